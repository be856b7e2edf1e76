//! The entry of this relay: its content, and when to write it again.

use std::time::{Duration, Instant};

use ekiden_proto::fleet::{FleetEntry, MAX_NEIGHBOURS, Neighbour, RelayState, SigningKey};

use super::directory::{FleetShared, Membership, unix_seconds, unix_time};
use crate::config::FleetConfig;

/// Relative change of a measurement that is worth a new entry.
const MIN_CHANGE: f64 = 0.1;

/// Sequence numbers that a former process may have used beyond the file, which is written once a second and at the end
/// only if the disk is fast.
const RESTART_SEQUENCE_GAP: u64 = 1000;

/// Writes the entries of this relay. It outlives connections to etcd, so that sequence numbers only grow.
#[derive(Debug)]
pub struct EntryWriter {
    signing_key: SigningKey,
    sequence: u64,
    published: Vec<Neighbour>,
    /// When the last entry was written.
    published_at: Option<Instant>,
}

impl EntryWriter {
    /// Nothing has been said so far.
    #[must_use]
    pub fn new(fleet: &FleetConfig) -> Self {
        Self {
            signing_key: SigningKey::derive_for_relay(&fleet.own_key),
            sequence: 0,
            published: Vec::new(),
            published_at: None,
        }
    }

    /// The next entry; `None` without a certificate.
    pub fn next_entry(&mut self, fleet: &FleetConfig, inner: &FleetShared, request: Membership) -> Option<String> {
        let issued = fleet.certificate.clone()?;
        let used = inner.roster().as_ref().and_then(|roster| roster.sequence(&issued.certificate.key));
        // The clock makes numbers grow over restarts even without a file; in milliseconds, because a restart may take
        // less than a second.
        let least = u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX);
        let step = if self.sequence == 0 { RESTART_SEQUENCE_GAP } else { 1 };
        self.sequence = least.max(self.sequence + 1).max(used.map_or(0, |used| used.saturating_add(step)));
        self.published = inner.neighbours();
        self.published.truncate(MAX_NEIGHBOURS);
        self.published_at = Some(Instant::now());
        let state = if request == Membership::Serve { RelayState::Serving } else { RelayState::Draining };
        let entry = FleetEntry {
            signed_certificate: issued,
            sequence: self.sequence,
            created_at: unix_seconds(),
            state,
            neighbours: self.published.clone(),
        };
        Some(entry.sign(&self.signing_key))
    }

    /// Whether measurements are to be told now: they have changed, and the last entry is old enough.
    #[must_use]
    pub fn has_changes(&self, inner: &FleetShared, every: Duration) -> bool {
        if self.published_at.is_some_and(|at| at.elapsed() < every) {
            return false;
        }
        let now = inner.neighbours();
        let known = |neighbour: &Neighbour| self.published.iter().find(|told| told.key == neighbour.key);
        let news = |neighbour| known(neighbour).is_none_or(|told| neighbour.differs_from(told, MIN_CHANGE));
        now.len().min(MAX_NEIGHBOURS) != self.published.len() || now.iter().take(MAX_NEIGHBOURS).any(news)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ekiden_proto::key::PublicKey;

    use super::*;
    use crate::config::LogConfig;
    use crate::events::Events;
    use crate::events::log::Log;
    use crate::fleet::FleetDirectory;
    use crate::path::estimates::EstimateStore;

    #[test]
    fn news_wait_until_the_last_entry_is_old_enough() {
        let neighbour =
            Neighbour { key: PublicKey([1; 32]), rtt: Duration::from_millis(9), loss_ppm: 0, rate: 0, age: 0 };
        // It has told of a neighbour, and knows of none now.
        let author = EntryWriter {
            signing_key: SigningKey::generate(),
            sequence: 1,
            published: vec![neighbour],
            published_at: Some(Instant::now()),
        };
        let (log, _writer) = Log::start(LogConfig::default()).unwrap();
        let directory = FleetDirectory::new(Events::new(log), Arc::new(EstimateStore::new(Instant::now())));
        for (every, news) in [(Duration::from_secs(3600), false), (Duration::ZERO, true)] {
            assert_eq!(author.has_changes(&directory.shared, every), news, "{every:?}");
        }
        assert!(!EntryWriter { published: Vec::new(), ..author }.has_changes(&directory.shared, Duration::ZERO));
    }
}
