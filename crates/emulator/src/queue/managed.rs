//! A FIFO queue with a drop policy that passes, marks or drops each packet on arrival.
//!
//! The policy sees the backlog without the packet on the line, and the idle time: the time since the queue was left
//! empty or a packet arrived, the later of the two.

use ekiden_proto::aqm::{self, ArrivingPacket, DropReason, Verdict};
use ekiden_proto::units::Rate;

use crate::Nanos;
use crate::ledger::{DropCause, StageEvents};
use crate::packet::{Ecn, Packet};
use crate::queue::{Backlog, Fifo, Queue, try_mark};

/// Decides about packets on arrival.
pub trait DropPolicy: Send {
    /// Returns the verdict on a packet.
    fn decide(&mut self, arrival: &ArrivingPacket) -> Verdict;

    /// Sets the rate of the line.
    fn set_rate(&mut self, rate: Option<Rate>);
}

/// A FIFO queue under a drop policy.
#[derive(Debug)]
pub struct ManagedQueue<L> {
    pub(super) policy: L,
    pub(super) waiting: Fifo,
    /// Time at which the queue was last left empty or a packet arrived.
    idle_since: Nanos,
}

impl<L> ManagedQueue<L> {
    /// Creates an empty queue.
    pub(super) fn with_policy(policy: L) -> Self {
        Self { policy, waiting: Fifo::default(), idle_since: 0 }
    }

    /// Describes a packet and the backlog for the policy.
    fn to_arrival(&self, packet: &Packet) -> ArrivingPacket {
        let Backlog { packets, bytes } = self.waiting.backlog();
        ArrivingPacket {
            now: packet.at,
            number: packet.number,
            backlog: aqm::Backlog { bytes, packets },
            idle: if packets == 0 { packet.at - self.idle_since } else { 0 },
            flow: packet.flow,
            source: packet.source,
            bytes: packet.bytes,
            ecn_capable: u32::from(packet.ecn != Ecn::NotCapable),
        }
    }
}

impl<L: DropPolicy> Queue for ManagedQueue<L> {
    fn enqueue(&mut self, mut packet: Packet, ledger: &mut StageEvents) {
        let verdict = self.policy.decide(&self.to_arrival(&packet));
        self.idle_since = packet.at;
        match verdict {
            Verdict::Drop(why) => return ledger.record_drop(packet, drop_cause(why)),
            Verdict::Mark => drop(try_mark(&mut packet)),
            Verdict::Pass => {}
        }
        self.waiting.push(packet);
    }

    fn dequeue(&mut self, now: Nanos, _ledger: &mut StageEvents) -> Option<Packet> {
        let packet = self.waiting.pop()?;
        if self.waiting.backlog().packets == 0 {
            self.idle_since = now;
        }
        Some(packet)
    }

    fn backlog(&self) -> Backlog {
        self.waiting.backlog()
    }

    fn into_packets(self: Box<Self>) -> Vec<Packet> {
        self.waiting.packets.into()
    }

    fn set_rate(&mut self, rate: Option<Rate>) {
        self.policy.set_rate(rate);
    }
}

const fn drop_cause(reason: DropReason) -> DropCause {
    match reason {
        DropReason::Full => DropCause::Full,
        DropReason::Early => DropCause::Early,
        DropReason::Forced => DropCause::Forced,
    }
}
