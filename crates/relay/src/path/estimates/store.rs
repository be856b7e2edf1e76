//! The store of estimates: the estimates of this relay by remote node, and the estimates that other relays report.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_proto::key::PublicKey;
use ekiden_proto::path::bounded::BoundedMap;
use ekiden_proto::path::estimate::{Estimate, SectionSample};
use ekiden_proto::path::figures::EstimateSnapshot;
use ekiden_proto::path::prefix::Prefix;
use serde::Serialize;

use super::PeerId;
use super::history::Baselines;

/// Maximum number of sections of this relay; the least recently used section is dropped first.
const MAX_PEERS: usize = 1 << 16;

/// Maximum number of sections that one other relay may report.
pub(super) const MAX_REPORTED: usize = 1 << 14;

/// Maximum number of networks for which other relays are queried.
const MAX_REQUESTED: usize = 1 << 12;

/// Maximum number of origin relays that are stored for a section.
const MAX_ORIGIN_RELAYS: usize = 32;

/// Time for which a section counts as busy after at least `BUSY_BYTES` bytes of a session were recorded.
const BUSY_PERIOD: Duration = Duration::from_secs(10);
const BUSY_BYTES: u64 = 16 * 1024;

/// The estimates of all sections, shared by all threads behind a short lock.
#[derive(Debug)]
pub struct EstimateStore {
    started_at: Instant,
    tables: Mutex<EstimateTables>,
}

#[derive(Debug)]
pub(super) struct EstimateTables {
    pub own: BoundedMap<PeerId, SectionEstimate>,
    /// Estimates that other relays reported, by the reporting relay.
    pub reported: HashMap<PublicKey, BoundedMap<PeerId, DuplexEstimate>>,
    /// The time of the last session of this relay to a network.
    pub requested: BoundedMap<Prefix, Duration>,
    /// The targets that each relay is to probe; `last_probes` is the time of the last probe of a network by a relay.
    pub pending_probes: HashMap<PublicKey, Vec<SocketAddr>>,
    pub last_probes: BoundedMap<(PublicKey, Prefix), Duration>,
    /// The usual values of the current and the previous hour.
    pub baselines: Baselines,
}

/// A direction of a section, as seen from one end of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum EstimateDirection {
    Sending,
    Receiving,
}

/// The measurements of one section.
#[derive(Debug, Clone, Default)]
pub(super) struct SectionEstimate {
    pub estimate: DuplexEstimate,
    /// The relays that opened sessions on this section; empty if this relay opened all sessions.
    pub origin_relays: Vec<PublicKey>,
    /// When at least [`BUSY_BYTES`] bytes of a session were last recorded on the section.
    last_busy: Option<Duration>,
    /// The time of the last probe of the section, from either end.
    last_probed: Option<Duration>,
}

/// Both directions of a section, as seen from one end of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DuplexEstimate {
    /// Data from this end to the other end.
    pub sending: Estimate,
    /// Data from the other end to this end.
    pub receiving: Estimate,
    /// Whether this end dials connections; otherwise only the other end dials.
    pub dialled: bool,
}

/// One section in `/api/paths`.
#[derive(Debug, Clone, Serialize)]
pub struct SectionEstimateView {
    /// The remote node: the key of a relay, the address of a proxy, or a network of targets.
    pub to: String,
    /// The reporting relay; `None` for measurements of this relay.
    pub told_by: Option<PublicKey>,
    /// Data from the reporting relay to the remote node.
    pub sending: EstimateView,
    /// Data from the remote node to the reporting relay.
    pub receiving: EstimateView,
    /// Whether sessions have moved bytes on the section recently.
    pub busy: bool,
}

/// The estimate of one direction in a [`SectionEstimateView`].
#[derive(Debug, Clone, Serialize)]
pub struct EstimateView {
    /// The estimated round-trip time, in seconds.
    pub rtt_seconds: Option<f64>,
    /// Share of segments lost, 0 to 1.
    pub loss: Option<f64>,
    /// The estimated rate, in bytes per second.
    pub rate: Option<f64>,
    /// Lower bound of the rate, in bytes per second.
    pub at_least: Option<f64>,
    /// Number of bytes that may be in flight.
    pub window: Option<u64>,
    /// Number of segments on which the estimate is based.
    pub segments: f64,
    /// The confidence in the estimate, 0 to 1.
    pub confidence: f64,
    /// Time since the newest sample, in seconds.
    pub age_seconds: f64,
}

impl EstimateStore {
    /// Creates a store without estimates, whose clock starts at `started_at`.
    #[must_use]
    pub fn new(started_at: Instant) -> Self {
        let tables = EstimateTables {
            own: BoundedMap::new(MAX_PEERS),
            reported: HashMap::new(),
            requested: BoundedMap::new(MAX_REQUESTED),
            pending_probes: HashMap::new(),
            last_probes: BoundedMap::new(MAX_PEERS),
            baselines: Baselines::default(),
        };
        Self { started_at, tables: Mutex::new(tables) }
    }

    /// Returns the time on the clock of the store.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, EstimateTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the samples of a connection that this relay dialled to `peer_id`, while the connection carried `bytes`
    /// bytes of a session. `origin_relay` is the relay that opened the session.
    pub fn record_session(
        &self,
        peer_id: PeerId,
        origin_relay: Option<PublicKey>,
        sending: &SectionSample,
        receiving: &SectionSample,
        bytes: u64,
    ) {
        let now = self.now();
        let mut tables = self.lock();
        let entry = tables.record(peer_id, sending, receiving, now);
        entry.estimate.dialled = true;
        entry.record_bytes(bytes, now);
        match (peer_id, origin_relay) {
            (PeerId::Targets(prefix), None) => tables.requested.insert(prefix, now),
            (_, Some(origin_relay)) => entry.add_origin_relay(origin_relay),
            _ => {}
        }
    }

    /// Like `record_session`, for a connection that another relay dialled to this relay.
    pub(super) fn record_incoming_session(
        &self,
        peer_id: PeerId,
        sending: &SectionSample,
        receiving: &SectionSample,
        bytes: u64,
    ) {
        let now = self.now();
        self.lock().record(peer_id, sending, receiving, now).record_bytes(bytes, now);
    }

    /// Records the samples of a probe of `peer_id`, over a connection that this relay `dialled` or accepted.
    pub(super) fn record_probe(
        &self,
        peer_id: PeerId,
        dialled: bool,
        sending: &SectionSample,
        receiving: &SectionSample,
    ) {
        let now = self.now();
        let mut tables = self.lock();
        let entry = tables.record(peer_id, sending, receiving, now);
        entry.estimate.dialled |= dialled;
        entry.last_probed = Some(now);
    }

    /// Returns whether the last probe of the section is older than `after`, and no session measures the section.
    #[must_use]
    pub(super) fn needs_probe(&self, peer_id: PeerId, after: Duration) -> bool {
        let now = self.now();
        let tables = self.lock();
        let is_recent = |at: Duration| now.saturating_sub(at) < after;
        tables.own.peek(&peer_id).is_none_or(|entry| !entry.is_busy(now) && !entry.last_probed.is_some_and(is_recent))
    }

    /// Returns whether sessions have recently moved bytes on the section, so that no probe is needed.
    #[must_use]
    pub fn is_busy(&self, peer_id: PeerId) -> bool {
        let now = self.now();
        self.lock().own.peek(&peer_id).is_some_and(|entry| entry.is_busy(now))
    }

    /// Returns the estimates of this relay that have a sample newer than `since`.
    pub(super) fn updated_since(&self, since: Duration) -> Vec<(PeerId, DuplexEstimate)> {
        let tables = self.lock();
        let updated = tables.own.iter().filter(|(_, entry)| entry.estimate.updated_at() > since);
        updated.map(|(peer_id, entry)| (*peer_id, entry.estimate)).collect()
    }

    /// Replaces the usual values.
    pub(super) fn set_baselines(&self, baselines: Baselines) {
        self.lock().baselines = baselines;
    }

    /// Returns all estimates for `/api/paths`.
    #[must_use]
    pub fn views(&self) -> Vec<SectionEstimateView> {
        let now = self.now();
        let tables = self.lock();
        let own = tables.own.iter().map(|(peer_id, entry)| SectionEstimateView {
            busy: entry.is_busy(now),
            ..SectionEstimateView::new(*peer_id, None, &entry.estimate, now)
        });
        let reported = tables.reported.iter().flat_map(|(relay, reported)| {
            reported.iter().map(move |(peer_id, duplex)| SectionEstimateView::new(*peer_id, Some(*relay), duplex, now))
        });
        own.chain(reported).collect()
    }
}

impl EstimateTables {
    fn record(
        &mut self,
        peer_id: PeerId,
        sending: &SectionSample,
        receiving: &SectionSample,
        now: Duration,
    ) -> &mut SectionEstimate {
        let entry = self.own.get_or_insert_with(peer_id, SectionEstimate::default);
        entry.estimate.sending.record(sending, now);
        entry.estimate.receiving.record(receiving, now);
        entry
    }
}

impl SectionEstimate {
    fn record_bytes(&mut self, bytes: u64, now: Duration) {
        if bytes >= BUSY_BYTES {
            self.last_busy = Some(now);
        }
    }

    fn add_origin_relay(&mut self, relay: PublicKey) {
        if self.origin_relays.contains(&relay) {
            return;
        }
        if self.origin_relays.len() >= MAX_ORIGIN_RELAYS {
            self.origin_relays.remove(0);
        }
        self.origin_relays.push(relay);
    }

    fn is_busy(&self, now: Duration) -> bool {
        self.last_busy.is_some_and(|at| now.saturating_sub(at) < BUSY_PERIOD)
    }
}

impl DuplexEstimate {
    /// Returns the time of the newest sample; zero without samples.
    pub fn updated_at(&self) -> Duration {
        self.sending.updated_at().max(self.receiving.updated_at())
    }

    /// Returns the round-trip time, which is the same for both directions.
    pub fn rtt(&self) -> Option<Duration> {
        self.sending.rtt().or(self.receiving.rtt())
    }
}

impl SectionEstimateView {
    fn new(peer_id: PeerId, told_by: Option<PublicKey>, duplex: &DuplexEstimate, now: Duration) -> Self {
        let (sending, receiving) =
            (EstimateView::from_estimate(&duplex.sending, now), EstimateView::from_estimate(&duplex.receiving, now));
        Self { to: peer_id.to_string(), told_by, sending, receiving, busy: false }
    }
}

impl EstimateView {
    pub(super) fn from_estimate(estimate: &Estimate, now: Duration) -> Self {
        let EstimateSnapshot { rtt, loss, rate, at_least, window, segments } = estimate.snapshot();
        Self {
            rtt_seconds: rtt.map(|rtt| rtt.as_secs_f64()),
            loss,
            rate,
            at_least,
            window,
            segments,
            confidence: estimate.confidence(now),
            age_seconds: estimate.age(now).as_secs_f64(),
        }
    }
}
