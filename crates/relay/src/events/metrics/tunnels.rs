//! Metrics of tunnelled packets that are not TCP, and of datagrams of UDP associations.

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

/// The metrics of tunnels, or of UDP associations.
#[derive(Debug)]
pub(super) struct PacketMetrics {
    counters: Mutex<HashMap<String, Arc<PacketCounters>>>,
    packets: Family<ByDirection, Counter>,
    bytes: Family<ByDirection, Counter>,
    dropped: Family<ByReason, Counter>,
    /// The reasons for which these packets can be dropped.
    reasons: &'static [DropReason],
}

impl PacketMetrics {
    pub(super) fn new(reasons: &'static [DropReason]) -> Self {
        let (packets, bytes, dropped) = Default::default();
        Self { counters: Mutex::default(), packets, bytes, dropped, reasons }
    }

    pub(super) fn register_tunnels(&self, r: &mut Registry) {
        r.declare("tunnel_packets", "Packets through lanes by direction", self.packets.clone());
        r.declare("tunnel_packet_bytes", "Bytes of packets through lanes, IP headers included", self.bytes.clone());
        let dropped = "Tunnel packets dropped by reason";
        r.declare("tunnel_packets_dropped", dropped, self.dropped.clone());
    }

    pub(super) fn register_associations(&self, r: &mut Registry) {
        r.declare("udp_datagrams", "Relayed datagrams of UDP associations by direction", self.packets.clone());
        r.declare("udp_payload_bytes", "Payload bytes of relayed datagrams of UDP associations", self.bytes.clone());
        let dropped = "Datagrams of UDP associations dropped by reason";
        r.declare("udp_datagrams_dropped", dropped, self.dropped.clone());
    }

    fn counters(&self, listener: &str) -> Arc<PacketCounters> {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let listener_counters =
            counters.entry(listener.to_owned()).or_insert_with(|| Arc::new(self.new_counters(listener)));
        Arc::clone(listener_counters)
    }

    fn new_counters(&self, listener: &str) -> PacketCounters {
        let label = |direction| ByDirection { listener: listener.to_owned(), direction };
        let counts = |direction| DirectionCounters {
            packets: self.packets.get_or_create_owned(&label(direction)),
            bytes: self.bytes.get_or_create_owned(&label(direction)),
        };
        let dropped = |reason: DropReason| {
            let label = ByReason { listener: listener.to_owned(), reason: reason.as_str() };
            if self.reasons.contains(&reason) { self.dropped.get_or_create_owned(&label) } else { Counter::default() }
        };
        PacketCounters { down: counts("down"), up: counts("up"), dropped: DropReason::ALL.map(dropped) }
    }
}

impl Metrics {
    /// Returns the packet counters of a listener, shared by its lanes.
    #[must_use]
    pub fn packet_counters(&self, listener: &str) -> Arc<PacketCounters> {
        self.tunnels.counters(listener)
    }

    /// Returns the datagram counters of a listener, shared by its UDP associations.
    #[must_use]
    pub fn datagram_counters(&self, listener: &str) -> Arc<PacketCounters> {
        self.associations.counters(listener)
    }
}

/// The reason for which a packet or datagram is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// The queue of the lane is full.
    Full,
    /// The packet has waited in the queue for too long.
    Late,
    /// No lane leads to the destination.
    NoLane,
    /// The rules forbid the destination, routers may not forward the packet, or it is TCP.
    Denied,
    /// The packet is malformed, or longer than a record.
    Malformed,
    /// No tunnel leads to the source address.
    Spoofed,
    /// The relay that sent the packet may not send from its source address.
    WrongPeer,
    /// The host is out of memory, or the interface is down; for a datagram: the socket could not send the datagram
    /// without blocking.
    NotTaken,
    /// A fragment of a SOCKS5 datagram.
    Fragment,
    /// The name of the destination has no address, or its lookup is still in progress.
    Unresolved,
    /// The datagram is neither from the client nor from an address to which the client has sent.
    Stranger,
    /// The datagram exceeds the rate or the quota of the listener or of the user, or the maximum number of
    /// destinations.
    OverLimit,
}

impl DropReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 12] = [
        Self::Full,
        Self::Late,
        Self::NoLane,
        Self::Denied,
        Self::Malformed,
        Self::Spoofed,
        Self::WrongPeer,
        Self::NotTaken,
        Self::Fragment,
        Self::Unresolved,
        Self::Stranger,
        Self::OverLimit,
    ];

    /// The reasons of tunnels.
    pub const OF_TUNNELS: [Self; 8] = [
        Self::Full,
        Self::Late,
        Self::NoLane,
        Self::Denied,
        Self::Malformed,
        Self::Spoofed,
        Self::WrongPeer,
        Self::NotTaken,
    ];

    /// The reasons of UDP associations.
    pub const OF_ASSOCIATIONS: [Self; 10] = [
        Self::Full,
        Self::Late,
        Self::NoLane,
        Self::Denied,
        Self::Malformed,
        Self::NotTaken,
        Self::Fragment,
        Self::Unresolved,
        Self::Stranger,
        Self::OverLimit,
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
            Self::Fragment => "fragment",
            Self::Unresolved => "unresolved",
            Self::Stranger => "stranger",
            Self::OverLimit => "over_limit",
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
    /// Number of carried packets or datagrams.
    pub packets: Counter,
    /// Number of bytes of the carried packets, including the IP header.
    pub bytes: Counter,
}

impl PacketCounters {
    /// Returns counters that share the counts of dropped packets with `self`, but not the counts of carried packets: a
    /// packet that passes several queues of an association or of a forwarded lane is counted only once as carried.
    #[must_use]
    pub fn for_drops(&self) -> Self {
        Self { dropped: self.dropped.clone(), ..Self::default() }
    }

    /// Counts a packet that was carried.
    pub fn record_carried(&self, direction: Direction, bytes: usize) {
        let counts = match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
        };
        counts.packets.inc();
        counts.bytes.inc_by(bytes as u64);
    }

    /// Counts `packets` packets that were dropped for the reason `why`.
    pub fn record_dropped(&self, why: DropReason, packets: usize) {
        self.dropped[why as usize].inc_by(packets as u64);
    }
}
