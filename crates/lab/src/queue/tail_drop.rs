//! First in, first out; a packet that does not fit is dropped.
//!
//! On arrival: if the limit holds with the packet, the packet goes to the tail; otherwise it is dropped as
//! [`Cause::Full`]. A smaller packet behind it may still fit. On departure: the head is taken.

use crate::Nanos;
use crate::conditions::Limit;
use crate::ledger::{Cause, Ledger};
use crate::packet::Packet;
use crate::queue::fifo::Fifo;
use crate::queue::{Held, Queue};

/// The plainest of queues.
#[derive(Debug)]
pub struct TailDrop {
    limit: Limit,
    waiting: Fifo,
}

impl TailDrop {
    /// An empty queue that holds as much as `limit`.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        Self { limit, waiting: Fifo::default() }
    }
}

impl Queue for TailDrop {
    fn enqueue(&mut self, packet: Packet, ledger: &mut Ledger) {
        if self.held().has_room(&packet, self.limit) {
            self.waiting.push(packet);
        } else {
            ledger.drop(packet, Cause::Full);
        }
    }

    fn dequeue(&mut self, _now: Nanos, _ledger: &mut Ledger) -> Option<Packet> {
        self.waiting.pop()
    }

    fn held(&self) -> Held {
        self.waiting.held()
    }
}
