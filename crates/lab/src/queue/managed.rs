//! First in, first out, behind a law that looks at each packet that arrives: it is let in, marked, or dropped.
//!
//! The law is told what waits, without the packet on the line, and for how long nothing has: since the queue was left
//! empty or a packet arrived, whichever is later.

use ekiden_proto::aqm::{Arrival, Level, Verdict, Why};
use ekiden_proto::units::Rate;

use crate::Nanos;
use crate::ledger::{Cause, Ledger};
use crate::packet::{Ecn, Packet};
use crate::queue::fifo::Fifo;
use crate::queue::{Held, Queue, mark};

/// What decides about packets that arrive.
pub trait Law: Send {
    /// What becomes of a packet.
    fn judge(&mut self, arrival: &Arrival) -> Verdict;

    /// The line has another rate from now on.
    fn set_rate(&mut self, rate: Option<Rate>);
}

/// A queue under a law.
#[derive(Debug)]
pub struct Managed<L> {
    pub(super) law: L,
    pub(super) waiting: Fifo,
    /// When the queue was last left empty or a packet arrived.
    since: Nanos,
}

impl<L> Managed<L> {
    /// An empty queue.
    pub(super) fn under(law: L) -> Self {
        Self { law, waiting: Fifo::default(), since: 0 }
    }

    /// What the law is told of a packet.
    fn arrival(&self, packet: &Packet) -> Arrival {
        let Held { packets, bytes } = self.waiting.held();
        Arrival {
            now: packet.at,
            number: packet.number,
            waiting: Level { bytes, packets },
            idle: if packets == 0 { packet.at - self.since } else { 0 },
            flow: packet.flow,
            source: packet.source,
            bytes: packet.bytes,
            capable: u32::from(packet.ecn != Ecn::NotCapable),
        }
    }
}

impl<L: Law> Queue for Managed<L> {
    fn enqueue(&mut self, mut packet: Packet, ledger: &mut Ledger) {
        let verdict = self.law.judge(&self.arrival(&packet));
        self.since = packet.at;
        match verdict {
            Verdict::Drop(why) => return ledger.drop(packet, cause(why)),
            Verdict::Mark => drop(mark(&mut packet)),
            Verdict::Pass => {}
        }
        self.waiting.push(packet);
    }

    fn dequeue(&mut self, now: Nanos, _ledger: &mut Ledger) -> Option<Packet> {
        let packet = self.waiting.pop()?;
        if self.waiting.held().packets == 0 {
            self.since = now;
        }
        Some(packet)
    }

    fn held(&self) -> Held {
        self.waiting.held()
    }

    fn set_rate(&mut self, rate: Option<Rate>) {
        self.law.set_rate(rate);
    }
}

const fn cause(why: Why) -> Cause {
    match why {
        Why::Full => Cause::Full,
        Why::Early => Cause::Early,
        Why::Forced => Cause::Forced,
    }
}
