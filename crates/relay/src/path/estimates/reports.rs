//! Reports between relays: the estimates that a peer may see, and the use of received ones.
//!
//! Every relay that calls this one may see its neighbours. Estimates of a network of targets are sent only to relays
//! whose own sessions have gone there through this relay: no relay learns the targets of others.

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

/// How long a network is asked for that no session goes to any more.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

/// The shortest time between two looks at one network from one relay: each is a connection to a target.
const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(300);

/// Most looks that wait for one relay.
const MAX_PENDING_PROBES: usize = 16;

/// Most relays that may tell.
const MAX_REPORTERS: usize = 1024;

/// The entries that a peer has received on one connection, so that only changes are sent.
#[derive(Debug, Default)]
pub struct SentEntries(HashMap<Subject, Duration>);

impl EstimateStore {
    /// Answers a question: the changes since the last `heard`, those that concern the asking relay first.
    #[must_use]
    pub fn report_for(&self, ask: &ReportQuery, asker: PublicKey, heard: &mut SentEntries) -> Vec<SectionReport> {
        let now = self.now();
        let pages = self.lock();
        let neighbours = pages.own.iter().filter(|_| ask.neighbours).filter_map(|(place, entry)| match place {
            PeerId::Relay(key) => Some((subject_of(*key, &entry.estimate), entry.estimate)),
            PeerId::Proxy(_) | PeerId::Targets(_) => None,
        });
        let targets = ask.prefixes.iter().filter_map(|prefix| {
            let entry = pages.own.peek(&PeerId::Targets(*prefix))?;
            entry.origin_relays.contains(&asker).then_some((Subject::Targets(*prefix), entry.estimate))
        });
        let mut news: Vec<_> =
            neighbours.chain(targets).filter(|(subject, both)| heard.is_new(subject, both)).collect();
        let of_asker = [Subject::Relay(asker), Subject::Caller(asker)];
        news.sort_by_key(|(subject, _)| !of_asker.contains(subject));
        news.truncate(report::MAX_ENTRIES);
        news.into_iter().map(|(subject, both)| heard.record_sent(subject, &both, now)).collect()
    }

    /// The estimates of the sections to other relays, which every peer may see.
    #[must_use]
    pub fn neighbours(&self) -> Vec<SectionReport> {
        let (now, pages) = (self.now(), self.lock());
        let entry = |(place, entry): (&PeerId, &super::store::SectionEstimate)| match place {
            PeerId::Relay(key) => Some(report_entry(subject_of(*key, &entry.estimate), &entry.estimate, now)),
            PeerId::Proxy(_) | PeerId::Targets(_) => None,
        };
        pages.own.iter().filter_map(entry).collect()
    }

    /// Stores the report of another relay. Networks that this relay did not ask for are ignored.
    pub fn record_report(&self, teller: PublicKey, entries: &[SectionReport]) {
        let now = self.now();
        let mut pages = self.lock();
        for entry in entries {
            let place = match entry.subject {
                Subject::Relay(key) | Subject::Caller(key) => PeerId::Relay(key),
                Subject::Targets(prefix) if pages.requested.peek(&prefix).is_some() => PeerId::Targets(prefix),
                Subject::Targets(_) => continue,
            };
            let estimate = |told: &report::DirectionEstimate| Estimate::from_snapshot(&told.snapshot, told.age, now);
            let dialled = !matches!(entry.subject, Subject::Caller(_));
            let both =
                DuplexEstimate { sending: estimate(&entry.sending), receiving: estimate(&entry.receiving), dialled };
            if let Some(places) = pages.reports_from(teller) {
                places.insert(place, both);
            }
        }
    }

    /// Whether a report of this relay holds measurements later than that.
    #[must_use]
    pub fn has_report_since(&self, teller: &PublicKey, since: Duration) -> bool {
        let pages = self.lock();
        pages.reported.get(teller).is_some_and(|told| told.iter().any(|(_, both)| both.updated_at() > since))
    }

    /// Notes that a session goes to this network, so that other relays are asked for it.
    pub fn request_prefix(&self, prefix: Prefix) {
        let now = self.now();
        self.lock().requested.insert(prefix, now);
    }

    /// Some of the networks to ask for, from the place on where the last question ended, and where this one does.
    #[must_use]
    pub fn requested_prefixes(&self, from: Option<Prefix>) -> (Vec<Prefix>, Option<Prefix>) {
        let now = self.now();
        let pages = self.lock();
        let lately = pages.requested.iter().filter(|(_, at)| now.saturating_sub(**at) < REQUEST_TIMEOUT);
        let mut wanted: Vec<_> = lately.map(|(prefix, _)| *prefix).filter(|prefix| from < Some(*prefix)).collect();
        wanted.sort_unstable();
        wanted.truncate(report::MAX_ENTRIES);
        let end = wanted.last().copied().filter(|_| wanted.len() == report::MAX_ENTRIES);
        (wanted, end)
    }

    /// Has `relay` look at a target soon: it connects to it, and ends the connection. False where it has just looked at
    /// one of the same network, or has enough to do.
    pub fn queue_target_probe(&self, relay: PublicKey, target: SocketAddr) -> bool {
        let now = self.now();
        let mut pages = self.lock();
        let key = (relay, Prefix::from(target.ip()));
        if pages.last_probes.peek(&key).is_some_and(|at| now.saturating_sub(*at) < MIN_PROBE_INTERVAL) {
            return false;
        }
        let looks = pages.pending_probes.entry(relay).or_default();
        if looks.len() >= MAX_PENDING_PROBES {
            return false;
        }
        looks.push(target);
        pages.last_probes.insert(key, now);
        true
    }

    /// The targets that `relay` is to look at.
    #[must_use]
    pub fn take_target_probes(&self, relay: &PublicKey) -> Vec<SocketAddr> {
        self.lock().pending_probes.remove(relay).unwrap_or_default()
    }

    /// Notes how long `relay` took to connect to a target, as it says.
    pub fn record_target_probe(&self, relay: PublicKey, target: SocketAddr, took: Duration) {
        let now = self.now();
        let sample = SectionSample { rtt: Some(took), segments: 2, ..SectionSample::default() };
        let mut pages = self.lock();
        let Some(places) = pages.reports_from(relay) else { return };
        let both = places.get_or_insert_with(PeerId::Targets(target.ip().into()), DuplexEstimate::default);
        both.sending.record(&sample, now);
        both.receiving.record(&sample, now);
    }
}

impl EstimateTables {
    fn reports_from(&mut self, teller: PublicKey) -> Option<&mut BoundedMap<PeerId, DuplexEstimate>> {
        let is_known = self.reported.contains_key(&teller);
        let told = (is_known || self.reported.len() < MAX_REPORTERS).then(|| self.reported.entry(teller));
        told.map(|told| told.or_insert_with(|| BoundedMap::new(MAX_REPORTED)))
    }
}

impl SentEntries {
    fn is_new(&self, subject: &Subject, both: &DuplexEstimate) -> bool {
        both.updated_at() > Duration::ZERO && self.0.get(subject).is_none_or(|at| both.updated_at() > *at)
    }

    fn record_sent(&mut self, subject: Subject, both: &DuplexEstimate, now: Duration) -> SectionReport {
        self.0.insert(subject, both.updated_at());
        report_entry(subject, both, now)
    }
}

fn subject_of(key: PublicKey, both: &DuplexEstimate) -> Subject {
    if both.dialled { Subject::Relay(key) } else { Subject::Caller(key) }
}

fn report_entry(subject: Subject, both: &DuplexEstimate, now: Duration) -> SectionReport {
    let told =
        |estimate: &Estimate| report::DirectionEstimate { snapshot: estimate.snapshot(), age: estimate.age(now) };
    SectionReport { subject, sending: told(&both.sending), receiving: told(&both.receiving) }
}
