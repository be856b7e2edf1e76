//! Limits: file descriptors and their allocation, `[limits]` for clients, and `[timeouts]`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ekiden_sys::process;

use super::{Config, Listener, ListenerKind};

/// Maximum number of pipes of one worker. With more pipes, data would only wait in pipes instead of sockets.
const MAX_PIPES: usize = 512;

/// Maximum number of connections from relays without a session, regardless of the number of descriptors: each also
/// takes some KiB of memory.
const MAX_PENDING: usize = 16_384;

/// Maximum number of descriptors in the reserve for the admin listener, which still accepts when sessions have used up
/// all others.
const MAX_RESERVED: u64 = 16;

/// Sets the soft limit of open files to the highest value that leaves a reserve below the hard limit, and returns it.
/// The admin listener accepts beyond this limit.
///
/// # Errors
/// As getrlimit(2) and setrlimit(2).
pub fn limit_open_files() -> io::Result<u64> {
    let hard_limit = process::raise_open_file_limit()?;
    let files = hard_limit - (hard_limit / 8).min(MAX_RESERVED);
    process::set_open_file_limit(files)?;
    Ok(files)
}

/// The allocation of file descriptors.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Maximum number of open sessions.
    pub sessions: usize,
    /// Maximum number of pipes of each worker.
    pub pipes: usize,
    /// Maximum number of ready connections to each next relay.
    pub ready: usize,
    /// Maximum number of connections from relays that have not opened a session yet, and from load balancers without a
    /// complete PROXY header; 0 without a listener that has such connections.
    pub pending: usize,
}

impl Budget {
    /// Allocates `open_files` descriptors to the purposes of `config`.
    #[must_use]
    pub fn new(open_files: u64, config: &Config) -> Self {
        let files = usize::try_from(open_files).unwrap_or(usize::MAX);
        let pipes = (files / 16 / config.threads).clamp(1, MAX_PIPES);
        let dialled_relays = config.relays.iter().filter(|hop| config.may_dial(hop));
        let relays: usize = dialled_relays.map(|hop| hop.members().len()).sum();
        let ready = (files / 4 / relays.max(1)).clamp(1, config.limits.ready_connections.max(1));
        let has_pending = |listener: &Listener| {
            listener.kind == ListenerKind::Section || listener.tls.is_some() || !listener.proxy_protocol.is_empty()
        };
        let pending = if config.listeners.iter().any(|listener| has_pending(listener)) {
            (files / 8).clamp(1, MAX_PENDING)
        } else {
            0
        };
        let reserved = (files / 4).min(64) + 2 * pipes * config.threads + ready * relays + pending;
        // Two sockets for each session. A stream of HTTP/2 uses a third one for its connection, and may be its only
        // stream; four descriptors cover that.
        let per_session = if config.listeners.iter().any(|listener| listener.offers_http2()) { 4 } else { 2 };
        let affordable = (files.saturating_sub(reserved) / per_session).max(1);
        Self { sessions: config.limits.sessions.unwrap_or(affordable).min(affordable), pipes, ready, pending }
    }

    /// Returns a warning if the open files suffice for fewer sessions than `limits.sessions` of `config`.
    #[must_use]
    pub fn sessions_warning(&self, config: &Config) -> Option<String> {
        let (configured, affordable) = (config.limits.sessions?, self.sessions);
        (configured > affordable).then(|| {
            format!(
                "limits.sessions is {configured}, but the limit of open files suffices for {affordable} sessions: \
                 raise that limit by `ulimit -n`, or in a systemd unit by LimitNOFILE"
            )
        })
    }
}

/// `[limits]`: limits of sessions and connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Maximum number of open sessions; `None` for as many as the limit of open files permits.
    pub sessions: Option<usize>,
    /// Maximum number of open sessions from one source address, or from one relay among `peers`; `None` for no such
    /// limit.
    pub sessions_per_client: Option<usize>,
    /// Maximum size of an HTTP head or a SOCKS handshake, in bytes.
    pub head: usize,
    /// Maximum number of idle connections to servers and `http` hops that are kept for later requests, for all threads
    /// together.
    pub kept_connections: usize,
    /// Maximum number of authenticated connections that are kept ready for each next relay.
    pub ready_connections: usize,
    /// The database of bytes used for quotas; written only if there is a quota.
    pub usage_file: Option<PathBuf>,
}

/// The timeouts of `[timeouts]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// From accept to the end of the client's handshake, for all reads together.
    pub handshake: Duration,
    /// Maximum time to hold the first packet of a connection until the target answers. After that, the connection
    /// bypasses the relay.
    pub hold: Duration,
    /// From the client's request until the whole path is established.
    pub connect: Duration,
    /// Maximum time without data in either direction.
    pub idle: Duration,
    /// Maximum time without data after one side has closed its direction.
    pub half_close_idle: Duration,
    /// Maximum time between two requests of an HTTP client.
    pub keep_alive: Duration,
    /// Maximum time for which an idle connection to a server is kept for later requests.
    pub kept_idle: Duration,
    /// Maximum age of a ready connection to a relay. An accepted connection from a relay that opens no session is
    /// closed after the sum of this and `handshake`.
    pub ready_age: Duration,
    /// Maximum time for which a connection to a relay is kept after a session has ended. An accepted connection from a
    /// relay is closed after the sum of this and `handshake`.
    pub section_idle: Duration,
    /// Maximum time for running sessions to finish after SIGTERM.
    pub drain: Duration,
    /// Maximum time for the new process of an upgrade to start serving.
    pub upgrade: Duration,
    /// Maximum time for running sessions of the old process to finish after an upgrade.
    pub upgrade_drain: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Hop, HopKind, Peering};
    use crate::testing::config_listening_at;
    use std::sync::Arc;

    use ekiden_proto::{addr::Target, key::PrivateKey, profile::Profile};

    /// A configuration with `relays` next hops.
    fn config(relays: u16) -> Config {
        let mut config = config_listening_at("auto://127.0.0.1:0");
        let own = Arc::new(PrivateKey::generate());
        let kind = HopKind::Section(Peering { key: own.public_key(), own_key: own, encrypt: false });
        let hop = |port: u16| Hop {
            name: port.to_string().into(),
            kind: kind.clone(),
            address: Target::parse("127.0.0.1", Some(port)).unwrap(),
            profile: Arc::new(Profile::named("test")),
            group: None,
        };
        config.set_paths_through((1..=relays).map(|port| Arc::new(hop(port))).collect());
        config.threads = 2;
        config
    }

    #[test]
    fn ready_connections_have_their_share_of_the_descriptors() {
        // Each relay has at least one ready connection, also if the descriptors do not suffice.
        for (files, relays, ready, suffice) in
            [(1 << 20, 3, 256, true), (1024, 1, 256, true), (1024, 4, 64, true), (8, 100, 1, false)]
        {
            let config = config(relays);
            let budget = Budget::new(files, &config);
            assert_eq!((budget.ready, budget.pending), (ready, 0), "{files} files, {relays} relays");
            let (relays, files) = (usize::from(relays), files as usize);
            let all = 2 * budget.sessions + 2 * budget.pipes * config.threads + relays * budget.ready;
            assert_eq!(all <= files, suffice, "{all} of {files} descriptors");
        }
    }

    #[test]
    fn section_and_proxy_listeners_reserve_pending_descriptors() {
        for (files, pending) in [(1 << 20, 16_384), (1024, 128), (4, 1)] {
            let mut config = config(1);
            let without = Budget::new(files, &config);
            let listener = Listener::clone(&config.listeners[0]);
            let balancer = "192.0.2.1/32".parse().unwrap();
            config.listeners.push(Arc::new(Listener { proxy_protocol: vec![balancer], ..listener.clone() }));
            assert_eq!(Budget::new(files, &config).pending, pending, "{files} files, behind a load balancer");
            config.listeners.pop();
            config.listeners.push(Arc::new(Listener { kind: ListenerKind::Section, ..listener }));
            let budget = Budget::new(files, &config);
            assert_eq!((budget.pending, without.pending), (pending, 0), "{files} files");
            assert_eq!(budget.sessions, without.sessions.saturating_sub(pending / 2).max(1), "{files} files");
        }
    }
}
