//! The entry of this relay: its content, and when the relay writes a new one.
//!
//! The entry carries measurements from the estimates of this relay. Measurements in the entries of other relays are
//! recorded in the estimates. Relays that share a connection exchange more measurements, and earlier; entries serve
//! relays without a connection.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_proto::fleet::{FleetEntry, FleetMember, MAX_NEIGHBOURS, Neighbour, RelayState, SigningKey};
use ekiden_proto::key::PublicKey;
use ekiden_proto::path::figures::EstimateSnapshot;
use ekiden_proto::wire::section::report::{DirectionEstimate, SectionReport, Subject};

use super::directory::{FleetShared, Membership, unix_seconds, unix_time};
use crate::config::FleetConfig;

/// Smallest relative change of a measurement that causes a new entry.
const MIN_CHANGE: f64 = 0.1;

/// Sequence numbers that a former process may have used after the last write of the state file. The file is written
/// once a second, and at the end of the process only if the disk is fast.
const RESTART_SEQUENCE_GAP: u64 = 1000;

/// Creates the entries of this relay. One writer serves all connections to etcd in turn, so that sequence numbers only
/// grow.
#[derive(Debug)]
pub struct EntryWriter {
    signing_key: SigningKey,
    sequence: u64,
    published: Vec<Neighbour>,
    /// When the last entry was written.
    published_at: Option<Instant>,
}

impl EntryWriter {
    /// Returns a writer that has created no entry.
    #[must_use]
    pub fn new(fleet: &FleetConfig) -> Self {
        Self {
            signing_key: SigningKey::derive_for_relay(&fleet.own_key),
            sequence: 0,
            published: Vec::new(),
            published_at: None,
        }
    }

    /// Returns the next signed entry; `None` without a certificate.
    pub fn next_entry(&mut self, fleet: &FleetConfig, inner: &FleetShared, request: Membership) -> Option<String> {
        let issued = fleet.certificate.clone()?;
        let used = inner.roster().as_ref().and_then(|roster| roster.sequence(&issued.certificate.key));
        // The clock makes sequence numbers grow across restarts even without a state file. The unit is milliseconds,
        // because a restart may take less than a second.
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

    /// Returns whether a new entry is due: the measurements have changed, and the last entry is at least `every` old.
    #[must_use]
    pub fn has_changes(&self, inner: &FleetShared, every: Duration) -> bool {
        if self.published_at.is_some_and(|at| at.elapsed() < every) {
            return false;
        }
        let current = inner.neighbours();
        let published_entry =
            |neighbour: &Neighbour| self.published.iter().find(|published| published.key == neighbour.key);
        let has_changed = |neighbour| {
            published_entry(neighbour).is_none_or(|published| neighbour.differs_from(published, MIN_CHANGE))
        };
        current.len().min(MAX_NEIGHBOURS) != self.published.len()
            || current.iter().take(MAX_NEIGHBOURS).any(has_changed)
    }
}

const MILLION: f64 = 1e6;

/// Number of segments that a loss rate from an entry counts for; entries do not state the number.
const REPORTED_SEGMENTS: f64 = 100.0;

impl FleetShared {
    /// Returns the measurements of the sections to other relays.
    pub fn neighbours(&self) -> Vec<Neighbour> {
        self.estimates.neighbours().iter().filter_map(to_neighbour).collect()
    }

    /// Records the measurements in a member's entry, unless the member has reported newer ones on a connection.
    pub fn record_measurements(&self, member: &FleetMember) {
        let reporter = member.entry.signed_certificate.certificate.key;
        let entries: Vec<_> = member.entry.neighbours.iter().map(to_entry).collect();
        let mut learned_at = self.learned_at();
        let last_learned = learned_at.get(&reporter).copied().unwrap_or_default();
        if !entries.is_empty() && !self.estimates.has_report_since(&reporter, last_learned) {
            self.estimates.record_report(reporter, &entries);
            // After the report, so that this report does not count as a newer one.
            learned_at.insert(reporter, self.estimates.now());
        }
    }

    /// Returns whether measurements in an entry of `relay` were recorded.
    pub fn has_learned(&self, relay: &PublicKey) -> bool {
        self.learned_at().contains_key(relay)
    }

    fn learned_at(&self) -> MutexGuard<'_, BTreeMap<PublicKey, Duration>> {
        self.learned_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn to_neighbour(entry: &SectionReport) -> Option<Neighbour> {
    let (Subject::Relay(key), DirectionEstimate { snapshot: figures, age }) = (entry.subject, entry.sending) else {
        return None;
    };
    Some(Neighbour {
        key,
        rtt: figures.rtt?,
        loss_ppm: (figures.loss.unwrap_or(0.0).clamp(0.0, 1.0) * MILLION) as u32,
        rate: figures.rate.map_or(0, |rate| rate as u64),
        age: age.as_secs(),
    })
}

fn to_entry(neighbour: &Neighbour) -> SectionReport {
    let Neighbour { key, rtt, loss_ppm, rate, age } = *neighbour;
    let figures = EstimateSnapshot {
        rtt: Some(rtt),
        loss: Some(f64::from(loss_ppm) / MILLION),
        rate: (rate > 0).then_some(rate as f64),
        segments: REPORTED_SEGMENTS,
        ..EstimateSnapshot::default()
    };
    let sending = DirectionEstimate { snapshot: figures, age: Duration::from_secs(age) };
    SectionReport { subject: Subject::Relay(key), sending, receiving: DirectionEstimate::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ekiden_proto::fleet::Certificate;

    use super::*;
    use crate::config::LogConfig;
    use crate::events::Events;
    use crate::events::log::{Log, LogWriter};
    use crate::fleet::FleetDirectory;
    use crate::path::estimates::EstimateStore;

    fn directory() -> (LogWriter, FleetDirectory) {
        let (log, writer) = Log::start(LogConfig::default()).unwrap();
        (writer, FleetDirectory::new(Events::new(log), Arc::new(EstimateStore::new(Instant::now()))))
    }

    fn neighbour(rtt: Duration) -> Neighbour {
        Neighbour { key: PublicKey([1; 32]), rtt, loss_ppm: 0, rate: 0, age: 0 }
    }

    #[test]
    fn later_entry_replaces_the_measurements_of_an_earlier_entry() {
        let (_writer, directory) = directory();
        let (key, relay) = (SigningKey::generate(), PublicKey([2; 32]));
        let certificate = Certificate {
            fleet: key.verify_key(),
            name: "osaka".to_owned(),
            address: "192.0.2.1:7000".parse().unwrap(),
            key: relay,
            verify_key: key.verify_key(),
            not_before: 0,
            not_after: 1,
        };
        let signed_certificate = certificate.sign(&key);
        for (sequence, rtt) in [(1, Duration::from_millis(9)), (2, Duration::from_millis(90))] {
            let neighbours = vec![neighbour(rtt)];
            let (signed_certificate, state) = (signed_certificate.clone(), RelayState::Serving);
            let entry = FleetEntry { signed_certificate, sequence, created_at: 0, state, neighbours };
            let member =
                FleetMember { entry, signed_text: String::new(), received_at: Duration::ZERO, missing_since: None };
            directory.shared.record_measurements(&member);
            let known = directory.shared.estimates.views();
            assert_eq!(known[0].sending.rtt_seconds, Some(rtt.as_secs_f64()), "{known:?}");
        }
        assert!(directory.shared.has_learned(&relay));
    }

    #[test]
    fn changes_wait_for_the_minimum_interval() {
        // The writer has published a neighbour, and now has no neighbours.
        let author = EntryWriter {
            signing_key: SigningKey::generate(),
            sequence: 1,
            published: vec![neighbour(Duration::from_millis(9))],
            published_at: Some(Instant::now()),
        };
        let (_writer, directory) = directory();
        for (every, expected) in [(Duration::from_secs(3600), false), (Duration::ZERO, true)] {
            assert_eq!(author.has_changes(&directory.shared, every), expected, "{every:?}");
        }
        assert!(!EntryWriter { published: Vec::new(), ..author }.has_changes(&directory.shared, Duration::ZERO));
    }
}
