//! Reports between relays: the estimates that a peer may read, and the use of received estimates.
//!
//! Every relay that connects to this relay may read the estimates of the sections to its neighbours. Estimates of a
//! network of targets are sent only to relays whose own sessions have used this network through this relay, so no relay
//! learns the targets of other relays.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use ekiden_proto::key::PublicKey;
use ekiden_proto::path::bounded::BoundedMap;
use ekiden_proto::path::estimate::{Estimate, SectionSample};
use ekiden_proto::path::prefix::Prefix;
use ekiden_proto::wire::section::report::{self, ReportQuery, SectionReport, Subject};

use super::store::{DuplexEstimate, EstimateTables, MAX_REPORTED};
use super::{EstimateStore, PeerId};

/// Time after the last session to a network for which relays are queried about the network.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Minimum interval between two probes of one network by one relay: each probe is a connection to a target.
const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(300);

/// Maximum number of pending probes for one relay.
const MAX_PENDING_PROBES: usize = 16;

/// Maximum number of relays whose reports are stored.
const MAX_REPORTERS: usize = 1024;

/// The entries that were sent to a peer on one connection, with the times of their newest samples, so that only changes
/// are sent.
#[derive(Debug, Default)]
pub struct SentEntries(HashMap<Subject, Duration>);

impl EstimateStore {
    /// Returns the answer to a query: the entries that have changed since `sent`. Entries about the requesting relay
    /// are first, then entries that were never sent, then the others, the one with the oldest sent sample first.
    #[must_use]
    pub fn report_for(&self, query: &ReportQuery, requester: PublicKey, sent: &mut SentEntries) -> Vec<SectionReport> {
        let now = self.now();
        let tables = self.lock();
        let neighbours = tables.own.iter().filter(|_| query.neighbours).filter_map(|(peer_id, entry)| match peer_id {
            PeerId::Relay(key) => Some((subject_of(*key, &entry.estimate), entry.estimate)),
            PeerId::Proxy(_) | PeerId::Targets(_) => None,
        });
        let targets = query.prefixes.iter().filter_map(|prefix| {
            let entry = tables.own.peek(&PeerId::Targets(*prefix))?;
            entry.origin_relays.contains(&requester).then_some((Subject::Targets(*prefix), entry.estimate))
        });
        let mut entries: Vec<_> =
            neighbours.chain(targets).filter(|(subject, duplex)| sent.is_new(subject, duplex)).collect();
        let requester_subjects = [Subject::Relay(requester), Subject::Caller(requester)];
        entries.sort_by_key(|(subject, _)| (!requester_subjects.contains(subject), sent.0.get(subject).copied()));
        entries.truncate(report::MAX_ENTRIES);
        entries.into_iter().map(|(subject, duplex)| sent.record_sent(subject, &duplex, now)).collect()
    }

    /// Returns the estimates of the sections to other relays, which every peer may read.
    #[must_use]
    pub fn neighbours(&self) -> Vec<SectionReport> {
        let (now, tables) = (self.now(), self.lock());
        let entry = |(peer_id, entry): (&PeerId, &super::store::SectionEstimate)| match peer_id {
            PeerId::Relay(key) => Some(report_entry(subject_of(*key, &entry.estimate), &entry.estimate, now)),
            PeerId::Proxy(_) | PeerId::Targets(_) => None,
        };
        tables.own.iter().filter_map(entry).collect()
    }

    /// Stores the report of another relay. Networks that this relay did not request are ignored.
    pub fn record_report(&self, reporter: PublicKey, entries: &[SectionReport]) {
        let now = self.now();
        let mut tables = self.lock();
        for entry in entries {
            let peer_id = match entry.subject {
                Subject::Relay(key) | Subject::Caller(key) => PeerId::Relay(key),
                Subject::Targets(prefix) if tables.requested.peek(&prefix).is_some() => PeerId::Targets(prefix),
                Subject::Targets(_) => continue,
            };
            let estimate =
                |reported: &report::DirectionEstimate| Estimate::from_snapshot(&reported.snapshot, reported.age, now);
            let dialled = !matches!(entry.subject, Subject::Caller(_));
            let duplex =
                DuplexEstimate { sending: estimate(&entry.sending), receiving: estimate(&entry.receiving), dialled };
            if let Some(reports) = tables.reports_from(reporter) {
                reports.insert(peer_id, duplex);
            }
        }
    }

    /// Returns whether the reports of `reporter` contain measurements that are newer than `since`.
    #[must_use]
    pub fn has_report_since(&self, reporter: &PublicKey, since: Duration) -> bool {
        let tables = self.lock();
        tables
            .reported
            .get(reporter)
            .is_some_and(|reports| reports.iter().any(|(_, duplex)| duplex.updated_at() > since))
    }

    /// Records a session to this network, so that other relays are queried about the network.
    pub fn request_prefix(&self, prefix: Prefix) {
        let now = self.now();
        self.lock().requested.insert(prefix, now);
    }

    /// Returns the networks for the next query: the first networks after `from`, which is where the last query ended.
    /// Also returns where this query ends; `None` if the query contains the last network.
    #[must_use]
    pub fn requested_prefixes(&self, from: Option<Prefix>) -> (Vec<Prefix>, Option<Prefix>) {
        let now = self.now();
        let tables = self.lock();
        let recent = tables.requested.iter().filter(|(_, at)| now.saturating_sub(**at) < REQUEST_TIMEOUT);
        let mut prefixes: Vec<_> = recent.map(|(prefix, _)| *prefix).filter(|prefix| from < Some(*prefix)).collect();
        prefixes.sort_unstable();
        prefixes.truncate(report::MAX_ENTRIES);
        let end = prefixes.last().copied().filter(|_| prefixes.len() == report::MAX_ENTRIES);
        (prefixes, end)
    }

    /// Queues a probe of a target by `relay`: the relay connects to the target, and closes the connection. Returns
    /// false if the last probe of this network by the relay is too recent, or the relay has too many pending probes.
    pub fn queue_target_probe(&self, relay: PublicKey, target: SocketAddr) -> bool {
        let now = self.now();
        let mut tables = self.lock();
        let key = (relay, Prefix::from(target.ip()));
        if tables.last_probes.peek(&key).is_some_and(|at| now.saturating_sub(*at) < MIN_PROBE_INTERVAL) {
            return false;
        }
        let pending = tables.pending_probes.entry(relay).or_default();
        if pending.len() >= MAX_PENDING_PROBES {
            return false;
        }
        pending.push(target);
        tables.last_probes.insert(key, now);
        true
    }

    /// Takes the targets that `relay` is to probe.
    #[must_use]
    pub fn take_target_probes(&self, relay: &PublicKey) -> Vec<SocketAddr> {
        self.lock().pending_probes.remove(relay).unwrap_or_default()
    }

    /// Records the connect time to a target that `relay` has reported.
    pub fn record_target_probe(&self, relay: PublicKey, target: SocketAddr, took: Duration) {
        let now = self.now();
        let sample = SectionSample { rtt: Some(took), segments: 2, ..SectionSample::default() };
        let mut tables = self.lock();
        let Some(reports) = tables.reports_from(relay) else { return };
        let duplex = reports.get_or_insert_with(PeerId::Targets(target.ip().into()), DuplexEstimate::default);
        duplex.sending.record(&sample, now);
        duplex.receiving.record(&sample, now);
    }
}

impl EstimateTables {
    fn reports_from(&mut self, reporter: PublicKey) -> Option<&mut BoundedMap<PeerId, DuplexEstimate>> {
        let is_known = self.reported.contains_key(&reporter);
        let entry = (is_known || self.reported.len() < MAX_REPORTERS).then(|| self.reported.entry(reporter));
        entry.map(|entry| entry.or_insert_with(|| BoundedMap::new(MAX_REPORTED)))
    }
}

impl SentEntries {
    fn is_new(&self, subject: &Subject, duplex: &DuplexEstimate) -> bool {
        duplex.updated_at() > Duration::ZERO && self.0.get(subject).is_none_or(|at| duplex.updated_at() > *at)
    }

    fn record_sent(&mut self, subject: Subject, duplex: &DuplexEstimate, now: Duration) -> SectionReport {
        self.0.insert(subject, duplex.updated_at());
        report_entry(subject, duplex, now)
    }
}

fn subject_of(key: PublicKey, duplex: &DuplexEstimate) -> Subject {
    if duplex.dialled { Subject::Relay(key) } else { Subject::Caller(key) }
}

fn report_entry(subject: Subject, duplex: &DuplexEstimate, now: Duration) -> SectionReport {
    let direction_estimate =
        |estimate: &Estimate| report::DirectionEstimate { snapshot: estimate.snapshot(), age: estimate.age(now) };
    SectionReport {
        subject,
        sending: direction_estimate(&duplex.sending),
        receiving: direction_estimate(&duplex.receiving),
    }
}
