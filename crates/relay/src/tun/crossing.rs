//! Packets through the lanes of one listener, counted as they cross.

use std::array;

use ekiden_proto::direction::Direction;
use prometheus_client::metrics::counter::Counter;

use super::judge::DropReason;

/// The counters of a listener.
#[derive(Debug, Default)]
pub struct PacketCounters {
    /// Toward the client.
    pub down: DirectionCounters,
    /// Toward the server.
    pub up: DirectionCounters,
    /// Those that went nowhere, in the order of [`DropReason::ALL`].
    dropped: [Counter; DropReason::ALL.len()],
}

/// Those of a direction.
#[derive(Debug, Default, Clone)]
pub struct DirectionCounters {
    /// Packets.
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
