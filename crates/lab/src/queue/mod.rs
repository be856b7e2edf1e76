//! Where packets wait for the line, in virtual time: which to let in, which to mark, which to take next.
//!
//! The head comment of each file is its specification: with the document it cites, it determines every decision. What
//! they share:
//!
//! * Times are integers, in nanoseconds. Fractions are IEEE 754 doubles, computed in the order in which formulas are
//!   written, without fused operations; where a file says so, they are integers, too.
//! * Sizes are [`Packet::bytes`]. What waits is [`Backlog`]; the packet on the line is not in it.
//! * A limit *holds* when what waits, in the unit of the limit, is not more than the limit. A packet is let in wholly or
//!   not at all. One that finds the line idle passes the queue nevertheless: a limit that is smaller than a packet lets
//!   none through.
//! * A drop is written down with `at` the time of the drop, and is otherwise the packet as it arrived: not marked.
//! * With `ecn`, a packet is *capable* if it is [`Ecn::Capable`], or [`Ecn::Marked`] already; then a mark changes nothing,
//!   but counts for the law as any other (RFC 3168 section 5).

use std::collections::VecDeque;

use ekiden_proto::units::Rate;

use crate::Nanos;
use crate::dice::SeededRng;
use crate::ledger::StageEvents;
use crate::packet::{Ecn, Packet};
use crate::queue::kind::{QueueKind, QueueLimit};

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

/// How much waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Packets.
    pub packets: u64,
    /// Bytes, as the link counts them.
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

    /// How much waits, in the unit of a limit.
    const fn amount_in(self, unit: QueueLimit) -> u64 {
        match unit {
            QueueLimit::Packets(_) => self.packets,
            QueueLimit::Bytes(_) => self.bytes,
        }
    }

    const fn exceeds(self, limit: QueueLimit) -> bool {
        self.amount_in(limit) > limit.amount()
    }

    /// Whether the limit would still hold with one more packet.
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

/// Marks a packet, if it is capable. Whether it was.
fn try_mark(packet: &mut Packet) -> bool {
    let capable = packet.ecn != Ecn::NotCapable;
    if capable {
        packet.ecn = Ecn::Marked;
    }
    capable
}

/// A queue in front of a line. The packet on the line is no longer in it. Times never go back.
pub trait Queue: Send {
    /// Takes in the packet, at `packet.at`, or writes its drop (or somebody else's) into the ledger.
    fn enqueue(&mut self, packet: Packet, ledger: &mut StageEvents);

    /// The packet that goes onto the line at `now`; drops made on the way are in the ledger. None when all are gone.
    /// The packet's `at` is left as it was (the arrival): the line stamps it.
    ///
    /// A line asks at the moment it becomes free, even if [`backlog`](Self::backlog) is nothing (FQ-CoDel learns from this that
    /// a flow has ended), and when a packet arrives while it is free; at no other time.
    fn dequeue(&mut self, now: Nanos, ledger: &mut StageEvents) -> Option<Packet>;

    /// What waits.
    fn backlog(&self) -> Backlog;

    /// The line behind it has another rate from now on; without one it takes no time. Of no interest to most queues.
    fn set_rate(&mut self, _rate: Option<Rate>) {}
}

/// Creates an empty queue in front of a line of `rate`. `rng` is for the queue's random decisions.
#[must_use]
pub fn build(kind: &QueueKind, rate: Option<Rate>, rng: SeededRng) -> Box<dyn Queue> {
    kind.build(rate, rng)
}
