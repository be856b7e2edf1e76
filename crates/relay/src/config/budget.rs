//! Limits: file descriptors and their use, `[limits]` for clients, and `[timeouts]`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ekiden_sys::process;

use super::{Config, Listener, ListenerKind};

/// Most pipes of one worker; more would only move the wait from the sockets into pipes.
const MAX_PIPES: usize = 512;

/// Most connections of relays without a session, however many descriptors there are: each takes some KiB as well.
const MAX_PENDING: usize = 16_384;

/// Most descriptors of the reserve for the admin listener, which answers when sessions have used up all others.
const MAX_RESERVED: u64 = 16;

/// Sets the limit of open files to the highest that leaves a reserve below the hard limit, and returns it. The admin
/// listener accepts beyond this limit.
///
/// # Errors
/// The kernel's, from getrlimit(2) or setrlimit(2).
pub fn limit_open_files() -> io::Result<u64> {
    let hard_limit = process::raise_open_file_limit()?;
    let files = hard_limit - (hard_limit / 8).min(MAX_RESERVED);
    process::set_open_file_limit(files)?;
    Ok(files)
}

/// How descriptors are shared out.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Most sessions at once.
    pub sessions: usize,
    /// Most pipes of each worker.
    pub pipes: usize,
    /// Ready connections to each next relay.
    pub ready: usize,
    /// Connections of relays that have not opened a session yet, and of load balancers without a complete PROXY header; 0
    /// without a listener for either.
    pub pending: usize,
}

impl Budget {
    /// Shares out so many descriptors.
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
        // Two sockets for each session. A stream of HTTP/2 has three, and may be the only one of its connection.
        let per_session = if config.listeners.iter().any(|listener| listener.offers_http2()) { 4 } else { 2 };
        let affordable = (files.saturating_sub(reserved) / per_session).max(1);
        Self { sessions: config.limits.sessions.unwrap_or(affordable).min(affordable), pipes, ready, pending }
    }
}

/// `[limits]` and `[timeouts]`: bounds for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Most concurrent sessions; `None`: as many as the open-file limit allows.
    pub sessions: Option<usize>,
    /// Sessions at once from one source address, or from one relay among `peers`; `None` for no bound of its own.
    pub sessions_per_client: Option<usize>,
    /// Longest HTTP head and SOCKS handshake, in bytes.
    pub head: usize,
    /// Idle connections to servers and `http` hops kept for later requests, of all threads together.
    pub kept_connections: usize,
    /// Most authenticated connections kept ready for each next relay.
    pub ready_connections: usize,
    /// The database with the bytes of quotas; written wherever there is a quota.
    pub usage_file: Option<PathBuf>,
}

/// The deadlines of `[timeouts]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// From accept to the end of the client's handshake, all reads together.
    pub handshake: Duration,
    /// How long the first packet of a connection waits for the target's answer before it is let pass without us.
    pub hold: Duration,
    /// From the client's request until the whole path stands.
    pub connect: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// Without a byte after one side has closed its direction.
    pub half_close_idle: Duration,
    /// How long an HTTP client may wait with its next request.
    pub keep_alive: Duration,
    /// How long an idle connection to a server is kept for later requests.
    pub kept_idle: Duration,
    /// How long a ready connection to a relay is kept, at most. A connection of a relay that has opened no session is
    /// closed after this and `handshake`.
    pub ready_age: Duration,
    /// How long a connection to a relay waits for its next session after a session has ended. A connection of a relay is
    /// closed after this and `handshake`.
    pub section_idle: Duration,
    /// How long sessions may go on after SIGTERM.
    pub drain: Duration,
    /// How long the new process of an upgrade may take until it serves.
    pub upgrade: Duration,
    /// How long sessions of the old one may go on after that.
    pub upgrade_drain: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read::{Flags, load};
    use crate::config::{Hop, HopKind, Peering};
    use std::sync::Arc;

    use ekiden_proto::{addr::Target, key::PrivateKey, profile::Profile};

    /// A configuration with `relays` next hops.
    fn config(relays: u16) -> Config {
        let flags = Flags { listen: vec!["auto://127.0.0.1:0".to_owned()], ..Flags::default() };
        let mut config = load(None, &flags).unwrap();
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
        for (files, relays, ready) in [(1 << 20, 3, 256), (1024, 1, 256), (1024, 4, 64), (8, 100, 1)] {
            let config = config(relays);
            let budget = Budget::new(files, &config);
            assert_eq!((budget.ready, budget.pending), (ready, 0), "{files} files, {relays} relays");
            let (relays, files) = (usize::from(relays), files as usize);
            let all = 2 * budget.sessions + 2 * budget.pipes * config.threads + relays * budget.ready;
            assert!(all <= files || files == 8, "{all} of {files} descriptors");
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
