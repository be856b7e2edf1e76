//! Packets through tunnels that are not TCP.

use std::array;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ekiden_proto::direction::Direction;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::Metrics;
use super::declare::Declare;

label_sets! {
    ByDirection { listener: String, direction: &'static str }
    ByReason { listener: String, reason: &'static str }
}

/// The numbers of tunnels.
#[derive(Debug, Default)]
pub(super) struct TunnelMetrics {
    counters: Mutex<HashMap<String, Arc<PacketCounters>>>,
    packets: Family<ByDirection, Counter>,
    bytes: Family<ByDirection, Counter>,
    dropped: Family<ByReason, Counter>,
}

impl TunnelMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.declare("tunnel_packets", "Packets through lanes by direction", self.packets.clone());
        r.declare("tunnel_packet_bytes", "Bytes of packets through lanes, IP headers included", self.bytes.clone());
        let dropped = "Tunnel packets dropped by reason";
        r.declare("tunnel_packets_dropped", dropped, self.dropped.clone());
    }

    fn new_counters(&self, listener: &str) -> PacketCounters {
        let label = |direction| ByDirection { listener: listener.to_owned(), direction };
        let counts = |direction| DirectionCounters {
            packets: self.packets.get_or_create_owned(&label(direction)),
            bytes: self.bytes.get_or_create_owned(&label(direction)),
        };
        let dropped = |reason| self.dropped.get_or_create_owned(&ByReason { listener: listener.to_owned(), reason });
        PacketCounters::new(counts, dropped)
    }
}

impl Metrics {
    /// The packet counters of a listener, shared by its lanes.
    #[must_use]
    pub fn packet_counters(&self, listener: &str) -> Arc<PacketCounters> {
        let mut crossings = self.tunnels.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let made =
            crossings.entry(listener.to_owned()).or_insert_with(|| Arc::new(self.tunnels.new_counters(listener)));
        Arc::clone(made)
    }

    /// Counts a packet of a tunnel that goes nowhere.
    pub fn record_packet_dropped(&self, listener: &str, reason: &'static str) {
        self.tunnels.dropped.get_or_create(&ByReason { listener: listener.to_owned(), reason }).inc();
    }
}

/// Why a packet goes nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// Too many wait for the lane already.
    Full,
    /// The packet has waited too long.
    Late,
    /// There is no lane to the destination.
    NoLane,
    /// The rules forbid the destination, routers may not forward the packet, or it is TCP.
    Denied,
    /// The packet is malformed, or longer than a record.
    Malformed,
    /// No tunnel leads to the source.
    Spoofed,
    /// The relay that sent the packet may not send from its source address.
    WrongPeer,
    /// This host is out of memory, or the interface is down.
    NotTaken,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Full,
        Self::Late,
        Self::NoLane,
        Self::Denied,
        Self::Malformed,
        Self::Spoofed,
        Self::WrongPeer,
        Self::NotTaken,
    ];

    /// The value of the metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Late => "late",
            Self::NoLane => "no_lane",
            Self::Denied => "denied",
            Self::Malformed => "malformed",
            Self::Spoofed => "spoofed",
            Self::WrongPeer => "wrong_peer",
            Self::NotTaken => "not_taken",
        }
    }
}

/// The counters of a listener.
#[derive(Debug, Default)]
pub struct PacketCounters {
    /// Counters of the direction toward the client.
    pub down: DirectionCounters,
    /// Counters of the direction toward the server.
    pub up: DirectionCounters,
    /// Dropped packets, in the order of [`DropReason::ALL`].
    dropped: [Counter; DropReason::ALL.len()],
}

/// Counters of one direction.
#[derive(Debug, Default, Clone)]
pub struct DirectionCounters {
    /// The number of packets.
    pub packets: Counter,
    /// Their bytes, from the IP header on.
    pub bytes: Counter,
}

impl PacketCounters {
    /// The counters that these functions find.
    pub fn new(counts: impl Fn(&'static str) -> DirectionCounters, dropped: impl Fn(&'static str) -> Counter) -> Self {
        let dropped = array::from_fn(|place| dropped(DropReason::ALL[place].as_str()));
        Self { down: counts("down"), up: counts("up"), dropped }
    }

    /// Counts a packet that crosses.
    pub fn record_carried(&self, direction: Direction, bytes: usize) {
        let counts = match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
        };
        counts.packets.inc();
        counts.bytes.inc_by(bytes as u64);
    }

    /// Counts packets that go nowhere.
    pub fn record_dropped(&self, why: DropReason, packets: usize) {
        self.dropped[why as usize].inc_by(packets as u64);
    }
}
