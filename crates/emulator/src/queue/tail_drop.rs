//! Tail drop: a FIFO queue that drops a packet that does not fit.
//!
//! On arrival: if the limit holds with the packet, the packet goes to the tail; otherwise it is dropped as
//! [`DropCause::Full`]. A later, smaller packet may still fit. On departure, the head is removed.

use ekiden_proto::units::Rate;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::ledger::{DropCause, StageEvents};
use crate::packet::Packet;
use crate::queue::kind::{QueueLimit, QueueSettings};
use crate::queue::{Backlog, Fifo, Queue};
use crate::rng::SeededRng;

/// Settings of tail drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TailDropSettings {
    /// Capacity, in packets or bytes.
    pub limit: QueueLimit,
}

impl QueueSettings for TailDropSettings {
    fn limit(&self) -> QueueLimit {
        self.limit
    }

    fn build(&self, _rate: Option<Rate>, _rng: SeededRng) -> Box<dyn Queue> {
        Box::new(TailDropQueue::new(self.limit))
    }

    fn replay_check(&self) -> &'static str {
        "tail drop: replay"
    }
}

/// A FIFO queue with a limit.
#[derive(Debug)]
pub struct TailDropQueue {
    limit: QueueLimit,
    waiting: Fifo,
}

impl TailDropQueue {
    /// Creates an empty queue with the capacity `limit`.
    #[must_use]
    pub fn new(limit: QueueLimit) -> Self {
        Self { limit, waiting: Fifo::default() }
    }
}

impl Queue for TailDropQueue {
    fn enqueue(&mut self, packet: Packet, ledger: &mut StageEvents) {
        if self.backlog().has_room(&packet, self.limit) {
            self.waiting.push(packet);
        } else {
            ledger.record_drop(packet, DropCause::Full);
        }
    }

    fn dequeue(&mut self, _now: Nanos, _ledger: &mut StageEvents) -> Option<Packet> {
        self.waiting.pop()
    }

    fn backlog(&self) -> Backlog {
        self.waiting.backlog()
    }

    fn into_packets(self: Box<Self>) -> Vec<Packet> {
        self.waiting.packets.into()
    }
}
