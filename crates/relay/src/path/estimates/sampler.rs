//! Samples one connection of a session, at intervals and at its end, and assigns it to its section.

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

/// The shortest time between two looks: less says little of a rate.
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
    sampled_at: Instant,
    /// Of the meter, by the last look.
    bytes_moved: u64,
    stalled: Duration,
    held: Duration,
    /// Whether nothing was noted yet.
    is_first_sample: bool,
}

impl SectionSampler {
    /// Starts with the current counters: an earlier session may have used the connection.
    #[must_use]
    pub fn start(stream: &std::rc::Rc<TcpStream>, side: Direction, peer: PeerId, stats: &FlowStats) -> Self {
        Self {
            last_reading: tcp_counters(stream.as_fd()).unwrap_or_default(),
            stream: std::rc::Rc::downgrade(stream),
            side,
            peer,
            origin_relay: None,
            sampled_at: Instant::now(),
            bytes_moved: stats.moved(),
            stalled: stats.blocked_for(side),
            held: stats.blocked_for(side.opposite()),
            is_first_sample: true,
        }
    }

    /// Sets the relay that opened the session.
    #[must_use]
    pub fn with_origin_relay(self, user: Option<PublicKey>) -> Self {
        Self { origin_relay: user, ..self }
    }

    /// Samples, unless the last sample is recent or no bytes have moved since.
    pub fn sample_if_due(&mut self, stats: &FlowStats, estimates: &EstimateStore) {
        if self.sampled_at.elapsed() >= MIN_INTERVAL && stats.moved() != self.bytes_moved {
            self.sample(stats, estimates);
        }
    }

    /// Records the changes since the last sample.
    pub fn sample(&mut self, stats: &FlowStats, estimates: &EstimateStore) {
        // Fails only when the socket is already dead.
        let Some(stream) = self.stream.upgrade() else { return };
        let Ok(now) = tcp_counters(stream.as_fd()) else { return };
        let pumped = PumpTimes {
            span: self.sampled_at.elapsed(),
            stalled: stats.blocked_for(self.side).saturating_sub(self.stalled),
            held: stats.held_for(self.side.opposite()).saturating_sub(self.held),
            includes_start: self.is_first_sample,
        };
        let (out, back) =
            (sample_sending(&self.last_reading, &now, pumped), sample_receiving(&self.last_reading, &now, pumped));
        let bytes = stats.moved() - self.bytes_moved;
        match self.side {
            Direction::Up => estimates.record_session(self.peer, self.origin_relay, &out, &back, bytes),
            Direction::Down => estimates.record_incoming_session(self.peer, &out, &back, bytes),
        }
        let Self { stream, side, peer: place, origin_relay: user, .. } = self;
        *self = Self {
            stream: stream.clone(),
            side: *side,
            peer: *place,
            origin_relay: *user,
            last_reading: now,
            sampled_at: Instant::now(),
            bytes_moved: stats.moved(),
            stalled: stats.blocked_for(*side),
            held: stats.held_for(side.opposite()),
            is_first_sample: false,
        };
    }
}

/// The peer at the other end of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerId {
    /// A relay, by its public key.
    Relay(PublicKey),
    /// A proxy that is no relay.
    Proxy(SocketAddr),
    /// Targets that lie together.
    Targets(Prefix),
}

/// The first hop of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstHop {
    /// No hop: the target itself.
    Direct,
    /// A relay, by its public key.
    Relay(PublicKey),
    /// A proxy that is no relay.
    Proxy,
}

impl FirstHop {
    /// The first hop of `path`.
    #[must_use]
    pub fn from_path(path: &Path) -> Self {
        match path.hops.first() {
            None => Self::Direct,
            Some(hop) => hop.peering().map_or(Self::Proxy, |peering| Self::Relay(peering.key)),
        }
    }

    /// The key of a relay.
    #[must_use]
    pub const fn relay(self) -> Option<PublicKey> {
        match self {
            Self::Relay(key) => Some(key),
            Self::Direct | Self::Proxy => None,
        }
    }

    /// The peer when `server` was dialled.
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
