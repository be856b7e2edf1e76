//! Samples one connection of a session, at intervals and at the end of the session, and records the samples for the
//! section.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Weak;
use std::str::FromStr;
use std::time::{Duration, Instant};

use ekiden_proto::addr::ServerAddr;
use ekiden_proto::direction::Direction;
use ekiden_proto::key::{KeyError, PublicKey};
use ekiden_proto::path::prefix::Prefix;
use ekiden_proto::path::reading::{PumpTimes, TcpCounters, sample_receiving, sample_sending};
use ekiden_sys::tcp_info::tcp_counters;
use tokio::net::TcpStream;

use super::EstimateStore;
use crate::config::Path;
use crate::pump::FlowStats;

/// Minimum interval between two samples: shorter intervals measure a rate too inaccurately.
const MIN_INTERVAL: Duration = Duration::from_secs(3);

/// Samples one connection for the estimate of its section.
#[derive(Debug)]
pub struct SectionSampler {
    stream: Weak<TcpStream>,
    /// `Down` for the client's section.
    side: Direction,
    peer: PeerId,
    /// The relay that opened the session.
    origin_relay: Option<PublicKey>,
    last_reading: TcpCounters,
    last_stats: StatsReading,
    sampled_at: Instant,
    /// Whether no sample has been recorded yet.
    is_first_sample: bool,
}

impl SectionSampler {
    /// Creates a sampler that starts from the current counters, because an earlier session may have used the
    /// connection.
    #[must_use]
    pub fn start(stream: &std::rc::Rc<TcpStream>, side: Direction, peer: PeerId, stats: &FlowStats) -> Self {
        Self {
            last_reading: tcp_counters(stream.as_fd()).unwrap_or_default(),
            stream: std::rc::Rc::downgrade(stream),
            side,
            peer,
            origin_relay: None,
            last_stats: StatsReading::new(stats, side),
            sampled_at: Instant::now(),
            is_first_sample: true,
        }
    }

    /// Sets the relay that opened the session.
    #[must_use]
    pub fn with_origin_relay(self, relay: Option<PublicKey>) -> Self {
        Self { origin_relay: relay, ..self }
    }

    /// Takes a sample, unless the last sample is recent or no bytes have moved since.
    pub fn sample_if_due(&mut self, stats: &FlowStats, estimates: &EstimateStore) {
        if self.sampled_at.elapsed() >= MIN_INTERVAL && stats.moved() != self.last_stats.moved {
            self.sample(stats, estimates);
        }
    }

    /// Records the changes since the last sample.
    pub fn sample(&mut self, stats: &FlowStats, estimates: &EstimateStore) {
        // Fails only when the socket is already dead.
        let Some(stream) = self.stream.upgrade() else { return };
        let Ok(reading) = tcp_counters(stream.as_fd()) else { return };
        let stats = StatsReading::new(stats, self.side);
        let pumped = self.pump_times(&stats);
        let (sending, receiving) = (
            sample_sending(&self.last_reading, &reading, pumped),
            sample_receiving(&self.last_reading, &reading, pumped),
        );
        let bytes = stats.moved - self.last_stats.moved;
        match self.side {
            Direction::Up => estimates.record_session(self.peer, self.origin_relay, &sending, &receiving, bytes),
            Direction::Down => estimates.record_incoming_session(self.peer, &sending, &receiving, bytes),
        }
        (self.last_reading, self.last_stats) = (reading, stats);
        (self.sampled_at, self.is_first_sample) = (Instant::now(), false);
    }

    /// Returns the times of the pump since the last sample.
    fn pump_times(&self, stats: &StatsReading) -> PumpTimes {
        PumpTimes {
            span: self.sampled_at.elapsed(),
            stalled: stats.stalled.saturating_sub(self.last_stats.stalled),
            held: stats.held.saturating_sub(self.last_stats.held),
            includes_start: self.is_first_sample,
        }
    }
}

/// The flow statistics at one moment, as one side of the session sees them.
#[derive(Debug, Clone, Copy)]
struct StatsReading {
    /// Bytes in both directions.
    moved: u64,
    /// Time in which bytes toward this side waited for room.
    stalled: Duration,
    /// Time in which bytes from this side waited for room or for their turn under a rate limit.
    held: Duration,
}

impl StatsReading {
    fn new(stats: &FlowStats, side: Direction) -> Self {
        Self { moved: stats.moved(), stalled: stats.blocked_for(side), held: stats.held_for(side.opposite()) }
    }
}

/// The peer at the other end of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerId {
    /// A relay, by its public key.
    Relay(PublicKey),
    /// A SOCKS5 or HTTP proxy.
    Proxy(SocketAddr),
    /// The targets in one network.
    Targets(Prefix),
}

/// The first hop of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstHop {
    /// No hop: the relay dials the target.
    Direct,
    /// A relay, by its public key.
    Relay(PublicKey),
    /// A SOCKS5 or HTTP proxy.
    Proxy,
}

impl FirstHop {
    /// Returns the first hop of `path`.
    #[must_use]
    pub fn from_path(path: &Path) -> Self {
        match path.hops.first() {
            None => Self::Direct,
            Some(hop) => hop.peering().map_or(Self::Proxy, |peering| Self::Relay(peering.key)),
        }
    }

    /// Returns the key of the relay; `None` if the first hop is not a relay.
    #[must_use]
    pub const fn relay(self) -> Option<PublicKey> {
        match self {
            Self::Relay(key) => Some(key),
            Self::Direct | Self::Proxy => None,
        }
    }

    /// Returns the peer of the connection to `server`.
    #[must_use]
    pub fn peer_id(self, ServerAddr(server): ServerAddr) -> PeerId {
        match self {
            Self::Direct => PeerId::Targets(server.ip().into()),
            Self::Relay(key) => PeerId::Relay(key),
            Self::Proxy => PeerId::Proxy(server),
        }
    }
}

impl FromStr for PeerId {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let targets = text.parse().map(Self::Targets);
        targets.or_else(|_| text.parse().map(Self::Proxy)).or_else(|_| text.parse().map(Self::Relay))
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relay(key) => key.fmt(f),
            Self::Proxy(address) => address.fmt(f),
            Self::Targets(prefix) => prefix.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::testing::tcp_pair;

    /// Regression: the times before the start were counted as part of the first sample.
    #[tokio::test]
    async fn first_sample_excludes_throttling_before_its_start() {
        const THROTTLED: Duration = Duration::from_secs(5);
        let (stream, _far) = tcp_pair().await;
        let stream = Rc::new(stream);
        let stats = FlowStats::new(Rc::new(()));
        stats.record_throttled(Direction::Down, THROTTLED);
        let peer = PeerId::Proxy(stream.peer_addr().unwrap());
        let sampler = SectionSampler::start(&stream, Direction::Up, peer, &stats);
        let held = |stats| sampler.pump_times(&StatsReading::new(stats, Direction::Up)).held;
        assert_eq!(held(&stats), Duration::ZERO);
        stats.record_throttled(Direction::Down, THROTTLED * 2);
        assert_eq!(held(&stats), THROTTLED * 2);
    }
}
