//! Queues in front of a line, in virtual time. A queue decides which packets to let in, which to mark, and which to
//! send next.
//!
//! The head comment of each file is its specification: with the document it cites, it determines every decision. Common
//! rules:
//!
//! * Times are integers, in nanoseconds. Fractions are IEEE 754 doubles, computed in the order in which formulas are
//!   written, without fused operations; where a file says so, they are integers, too.
//! * Sizes are [`Packet::bytes`]. The waiting packets are the [`Backlog`]; the packet on the line is not part of it.
//! * A limit *holds* when the backlog, in the unit of the limit, is not more than the limit. A packet is let in wholly
//!   or not at all. A packet that finds the line idle passes the queue nevertheless: a limit smaller than a packet lets
//!   none through.
//! * A drop is recorded with `at` the time of the drop, and otherwise with the packet as it arrived: not marked.
//! * With `ecn`, a packet is *capable* if it is [`Ecn::Capable`] or already [`Ecn::Marked`]. In the latter case a mark
//!   changes nothing, but the law counts it like any other mark (RFC 3168 section 5).

use std::collections::VecDeque;

use ekiden_proto::units::Rate;

use crate::Nanos;
use crate::ledger::StageEvents;
use crate::packet::{Ecn, Packet};
use crate::queue::kind::{QueueKind, QueueLimit};
use crate::rng::SeededRng;

pub mod auto;
pub mod codel;
pub mod fq_codel;
pub mod kind;
pub mod managed;
pub mod priority;
pub mod red;
pub mod tail_drop;
#[cfg(test)]
mod tests;

/// Number and total size of the waiting packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Number of waiting packets.
    pub packets: u64,
    /// Bytes of the waiting packets, in the link's [`SizeAccounting`](crate::conditions::SizeAccounting).
    pub bytes: u64,
}

impl Backlog {
    fn add(&mut self, packet: &Packet) {
        self.packets += 1;
        self.bytes += u64::from(packet.bytes);
    }

    fn remove(&mut self, packet: &Packet) {
        self.packets -= 1;
        self.bytes -= u64::from(packet.bytes);
    }

    /// Returns the backlog in the unit of a limit.
    const fn amount_in(self, unit: QueueLimit) -> u64 {
        match unit {
            QueueLimit::Packets(_) => self.packets,
            QueueLimit::Bytes(_) => self.bytes,
        }
    }

    const fn exceeds(self, limit: QueueLimit) -> bool {
        self.amount_in(limit) > limit.amount()
    }

    /// Returns whether the limit holds with one more packet.
    fn has_room(mut self, packet: &Packet, limit: QueueLimit) -> bool {
        self.add(packet);
        !self.exceeds(limit)
    }
}

/// Packets in order of arrival, with their total size.
#[derive(Debug, Default)]
struct Fifo {
    packets: VecDeque<Packet>,
    backlog: Backlog,
}

impl Fifo {
    /// Appends a packet at the tail.
    fn push(&mut self, packet: Packet) {
        self.backlog.add(&packet);
        self.packets.push_back(packet);
    }

    /// Removes the packet at the head.
    fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.backlog.remove(&packet);
        Some(packet)
    }

    /// Returns the number and the size of the packets.
    const fn backlog(&self) -> Backlog {
        self.backlog
    }
}

/// Marks a packet if it is ECN-capable. Returns whether it is.
fn try_mark(packet: &mut Packet) -> bool {
    let capable = packet.ecn != Ecn::NotCapable;
    if capable {
        packet.ecn = Ecn::Marked;
    }
    capable
}

/// A queue in front of a line. The packet on the line is not part of the queue. Times never decrease.
pub trait Queue: Send {
    /// Takes a packet at `packet.at`. Drops of this or other packets go to `ledger`.
    fn enqueue(&mut self, packet: Packet, ledger: &mut StageEvents);

    /// Removes the packet that goes onto the line at `now`, or returns `None` if the queue is empty. Drops go to
    /// `ledger`. The packet keeps its arrival time in `at`.
    ///
    /// A line calls this when it becomes free, even if [`backlog`](Self::backlog) is 0 (FQ-CoDel thereby detects the
    /// end of a flow), and when a packet arrives while the line is free; at no other time.
    fn dequeue(&mut self, now: Nanos, ledger: &mut StageEvents) -> Option<Packet>;

    /// Returns the number and the total size of the waiting packets.
    fn backlog(&self) -> Backlog;

    /// Returns the waiting packets in order of arrival, for the queue that replaces this one. Each packet keeps its
    /// arrival time in `at`.
    fn into_packets(self: Box<Self>) -> Vec<Packet>;

    /// Sets the rate of the line. Without a rate, transmission takes no time. Most queues ignore the rate.
    fn set_rate(&mut self, _rate: Option<Rate>) {}
}

/// Creates an empty queue in front of a line of `rate`. `rng` is for the queue's random decisions.
#[must_use]
pub fn build(kind: &QueueKind, rate: Option<Rate>, rng: SeededRng) -> Box<dyn Queue> {
    kind.build(rate, rng)
}
