//! First in, first out; a packet that does not fit is dropped.
//!
//! On arrival: if the limit holds with the packet, the packet goes to the tail; otherwise it is dropped as
//! [`DropCause::Full`]. A smaller packet behind it may still fit. On departure: the head is taken.

use crate::Nanos;
use crate::conditions::QueueLimit;
use crate::ledger::{DropCause, StageEvents};
use crate::packet::Packet;
use crate::queue::fifo::Fifo;
use crate::queue::{Backlog, Queue};

/// The plainest of queues.
#[derive(Debug)]
pub struct TailDropQueue {
    limit: QueueLimit,
    waiting: Fifo,
}

impl TailDropQueue {
    /// An empty queue that holds as much as `limit`.
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
}
