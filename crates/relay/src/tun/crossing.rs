//! Packets through the lanes of one listener, counted as they cross.

use std::array;

use ekiden_proto::direction::Direction;
use prometheus_client::metrics::counter::Counter;

use super::judge::Dropped;

/// The counters of a listener.
#[derive(Debug, Default)]
pub struct Crossing {
    /// Toward the client.
    pub down: Counts,
    /// Toward the server.
    pub up: Counts,
    /// Those that went nowhere, in the order of [`Dropped::ALL`].
    dropped: [Counter; Dropped::ALL.len()],
}

/// Those of a direction.
#[derive(Debug, Default, Clone)]
pub struct Counts {
    /// Packets.
    pub packets: Counter,
    /// Their bytes, from the IP header on.
    pub bytes: Counter,
}

impl Crossing {
    /// The counters that these functions find.
    pub fn new(counts: impl Fn(&'static str) -> Counts, dropped: impl Fn(&'static str) -> Counter) -> Self {
        let dropped = array::from_fn(|place| dropped(Dropped::ALL[place].word()));
        Self { down: counts("down"), up: counts("up"), dropped }
    }

    /// Counts a packet that crosses.
    pub fn crossed(&self, direction: Direction, bytes: usize) {
        let counts = match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
        };
        counts.packets.inc();
        counts.bytes.inc_by(bytes as u64);
    }

    /// Counts packets that go nowhere.
    pub fn dropped(&self, why: Dropped, packets: usize) {
        self.dropped[why as usize].inc_by(packets as u64);
    }
}
