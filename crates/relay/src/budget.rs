//! How many descriptors there are, and what for.

use std::io;

use ekiden_sys::process;

use crate::config::Config;

/// Most pipes of one worker; more would only move the wait from the sockets into pipes.
const MOST_PIPES: usize = 512;

/// Most descriptors that only the admin listener gets: for a relay that can be asked why it does not serve.
const MOST_RESERVED: u64 = 16;

/// Sets the limit of open files to the highest that leaves a reserve below the hard limit, and returns it. The admin
/// listener accepts beyond this limit.
///
/// # Errors
/// The kernel's, from getrlimit(2) or setrlimit(2).
pub fn limit_open_files() -> io::Result<u64> {
    let all = process::raise_open_files()?;
    let files = all - (all / 8).min(MOST_RESERVED);
    process::set_open_files(files)?;
    Ok(files)
}

/// How descriptors are shared out.
pub struct Budget {
    /// Most sessions at once.
    pub sessions: usize,
    /// Most pipes of each worker.
    pub pipes: usize,
    /// Ready connections to each next relay.
    pub ready: usize,
}

impl Budget {
    /// Shares out so many descriptors.
    #[must_use]
    pub fn new(open_files: u64, config: &Config) -> Self {
        let files = usize::try_from(open_files).unwrap_or(usize::MAX);
        let pipes = (files / 16 / config.threads).clamp(1, MOST_PIPES);
        let relays = config.relays.iter().filter(|hop| config.calls(hop)).count();
        let ready = (files / 4 / relays.max(1)).clamp(1, config.limits.ready_connections.max(1));
        let reserved = (files / 4).min(64) + 2 * pipes * config.threads + ready * relays;
        // Two sockets for each session.
        let affordable = (files.saturating_sub(reserved) / 2).max(1);
        Self { sessions: config.limits.sessions.unwrap_or(affordable).min(affordable), pipes, ready }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read::{Flags, load};
    use crate::config::{Hop, HopKind, Peering};
    use std::sync::Arc;

    use ekiden_proto::{addr::Target, key::PrivateKey, profile::Profile};

    /// A configuration with so many next relays.
    fn config(relays: u16) -> Config {
        let flags = Flags { listen: vec!["auto://127.0.0.1:0".to_owned()], ..Flags::default() };
        let mut config = load(None, &flags).unwrap();
        let own = Arc::new(PrivateKey::generate());
        let kind = HopKind::Section(Peering { key: own.public(), own, encrypt: false });
        let hop = |port: u16| Hop {
            name: port.to_string().into(),
            kind: kind.clone(),
            address: Target::parse("127.0.0.1", Some(port)).unwrap(),
            profile: Arc::new(Profile::named("test")),
        };
        config.go_by((1..=relays).map(|port| Arc::new(hop(port))).collect());
        config.threads = 2;
        config
    }

    #[test]
    fn ready_connections_have_their_share_of_the_descriptors() {
        for (files, relays, ready) in [(1 << 20, 3, 256), (1024, 1, 256), (1024, 4, 64), (8, 100, 1)] {
            let config = config(relays);
            let budget = Budget::new(files, &config);
            assert_eq!(budget.ready, ready, "{files} files, {relays} relays");
            let (relays, files) = (usize::from(relays), files as usize);
            let all = 2 * budget.sessions + 2 * budget.pipes * config.threads + relays * budget.ready;
            assert!(all <= files || files == 8, "{all} of {files} descriptors");
        }
    }
}
