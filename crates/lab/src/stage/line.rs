//! The queue and the line behind it: the bottleneck.

use crate::Nanos;
use crate::conditions::{Conditions, Limit, QueueKind};
use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::packet::Packet;
use crate::queue::{self, Queue};
use crate::stage::{Stage, transmission};

/// What a line has in front of it where the file says nothing.
pub const DEFAULT_QUEUE: QueueKind = QueueKind::TailDrop { limit: Limit::Packets(1000) };

/// A line that sends one packet at a time, and the queue of those that wait for it. Every packet passes the queue, also
/// when the line is idle, so that queue management sees it.
pub struct Line {
    bits_per_second: Option<u64>,
    queue: Box<dyn Queue>,
    kind: QueueKind,
    /// The packet on the line; `at` is when its last bit has left.
    sending: Option<Packet>,
    dice: Dice,
}

impl Line {
    /// A line of `rate` with the queue of the conditions.
    #[must_use]
    pub fn new(conditions: &Conditions, dice: Dice) -> Self {
        let kind = conditions.queue.clone().unwrap_or(DEFAULT_QUEUE);
        let dice = dice.of("queue");
        let bits_per_second = conditions.rate.map(|rate| rate.bits_per_second());
        Self { bits_per_second, queue: queue::build(&kind, conditions.rate, dice), kind, sending: None, dice }
    }

    fn send_next(&mut self, now: Nanos, ledger: &mut Ledger) {
        self.sending = self.queue.dequeue(now, ledger).map(|packet| {
            ledger.waits.count(now - packet.at);
            Packet { at: now + transmission(packet.bytes, self.bits_per_second), ..packet }
        });
    }
}

impl Stage for Line {
    fn push(&mut self, packet: Packet, ledger: &mut Ledger) {
        self.queue.enqueue(packet, ledger);
        if self.sending.is_none() {
            self.send_next(packet.at, ledger);
        }
    }

    fn next(&self) -> Option<Nanos> {
        self.sending.map(|packet| packet.at)
    }

    fn pop(&mut self, ledger: &mut Ledger) -> Option<Packet> {
        let sent = self.sending.take()?;
        self.send_next(sent.at, ledger);
        Some(sent)
    }

    fn held(&self) -> usize {
        usize::from(self.sending.is_some()) + usize::try_from(self.queue.held().packets).unwrap_or(usize::MAX)
    }

    fn change(&mut self, conditions: &Conditions, now: Nanos, ledger: &mut Ledger) {
        self.bits_per_second = conditions.rate.map(|rate| rate.bits_per_second());
        let kind = conditions.queue.clone().unwrap_or(DEFAULT_QUEUE);
        if kind == self.kind {
            self.queue.set_rate(conditions.rate);
            return;
        }
        // The new queue takes over what waits, as if it had just come; what it has no room for is dropped by its own law.
        let mut new = queue::build(&kind, conditions.rate, self.dice);
        while let Some(packet) = self.queue.dequeue(now, ledger) {
            new.enqueue(Packet { at: now, ..packet }, ledger);
        }
        (self.queue, self.kind) = (new, kind);
    }
}
