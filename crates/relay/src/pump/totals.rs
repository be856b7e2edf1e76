//! What goes through one listener, of all its sessions and threads.

use ekiden_proto::direction::Direction;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::SecondsCounter;

/// Its counters, which are told to whoever asks for the metrics.
#[derive(Debug, Clone, Default)]
pub struct ListenerTotals {
    /// Toward the client, copied.
    pub down_copied: Counter,
    /// Toward the client, spliced.
    pub down_spliced: Counter,
    /// Toward the server, copied.
    pub up_copied: Counter,
    /// Toward the server, spliced.
    pub up_spliced: Counter,
    /// Time in which bytes toward the client had no room.
    pub down_stalled: SecondsCounter,
    /// Time in which bytes toward the server had no room.
    pub up_stalled: SecondsCounter,
    /// Bytes toward the client that wait in this host.
    pub down_queued: Gauge,
    /// Bytes toward the server that wait in this host.
    pub up_queued: Gauge,
}

impl ListenerTotals {
    /// Bytes toward clients, and toward servers.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.down_copied.get() + self.down_spliced.get(), self.up_copied.get() + self.up_spliced.get())
    }

    /// That of stalls in a direction.
    #[must_use]
    pub fn stalled_seconds(&self, direction: Direction) -> &SecondsCounter {
        match direction {
            Direction::Down => &self.down_stalled,
            Direction::Up => &self.up_stalled,
        }
    }

    /// That of what waits in a direction.
    #[must_use]
    pub fn queued_bytes(&self, direction: Direction) -> &Gauge {
        match direction {
            Direction::Down => &self.down_queued,
            Direction::Up => &self.up_queued,
        }
    }
}
