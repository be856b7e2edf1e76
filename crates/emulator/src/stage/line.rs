//! The bottleneck: a queue with a line behind it; and the rate of the sender's interface.

use crate::Nanos;
use crate::conditions::{Conditions, QueueKind, QueueLimit, TailDropSettings};
use crate::dice::SeededRng;
use crate::ledger::StageEvents;
use crate::packet::Packet;
use crate::queue::{self, Queue};
use crate::stage::{PacketSchedule, Stage, transmission_time};

/// Queue of a line if the lab file names none.
pub const DEFAULT_QUEUE: QueueKind = QueueKind::TailDrop(TailDropSettings { limit: QueueLimit::Packets(1000) });

/// A line that sends one packet at a time, with a queue. Every packet passes the queue, also when the line is idle, so
/// that queue management sees it.
pub struct BottleneckStage {
    bits_per_second: Option<u64>,
    queue: Box<dyn Queue>,
    kind: QueueKind,
    /// The packet on the line, with the end of its transmission in `at`.
    in_transmission: Option<Packet>,
    rng: SeededRng,
}

impl BottleneckStage {
    /// Creates a line of `rate` with the queue of the conditions.
    #[must_use]
    pub fn new(conditions: &Conditions, rng: SeededRng) -> Self {
        let kind = conditions.queue.clone().unwrap_or(DEFAULT_QUEUE);
        let rng = rng.derive("queue");
        let bits_per_second = conditions.rate.map(|rate| rate.bits_per_second());
        Self { bits_per_second, queue: queue::build(&kind, conditions.rate, rng), kind, in_transmission: None, rng }
    }

    fn send_next(&mut self, now: Nanos, ledger: &mut StageEvents) {
        self.in_transmission = self.queue.dequeue(now, ledger).map(|packet| {
            ledger.queue_delays.record(now - packet.at);
            Packet { at: now + transmission_time(packet.bytes, self.bits_per_second), ..packet }
        });
    }
}

impl Stage for BottleneckStage {
    fn push(&mut self, packet: Packet, ledger: &mut StageEvents) {
        self.queue.enqueue(packet, ledger);
        if self.in_transmission.is_none() {
            self.send_next(packet.at, ledger);
        }
    }

    fn next_departure(&self) -> Option<Nanos> {
        self.in_transmission.map(|packet| packet.at)
    }

    fn pop(&mut self, ledger: &mut StageEvents) -> Option<Packet> {
        let sent = self.in_transmission.take()?;
        self.send_next(sent.at, ledger);
        Some(sent)
    }

    fn packet_count(&self) -> usize {
        usize::from(self.in_transmission.is_some())
            + usize::try_from(self.queue.backlog().packets).unwrap_or(usize::MAX)
    }

    fn set_conditions(&mut self, conditions: &Conditions, now: Nanos, ledger: &mut StageEvents) {
        self.bits_per_second = conditions.rate.map(|rate| rate.bits_per_second());
        let kind = conditions.queue.clone().unwrap_or(DEFAULT_QUEUE);
        if kind == self.kind {
            self.queue.set_rate(conditions.rate);
            return;
        }
        // The new queue takes over the backlog as new arrivals, and drops packets by its own law.
        let mut new = queue::build(&kind, conditions.rate, self.rng);
        while let Some(packet) = self.queue.dequeue(now, ledger) {
            new.enqueue(Packet { at: now, ..packet }, ledger);
        }
        (self.queue, self.kind) = (new, kind);
    }
}

/// Rate of the sender's interface. A host emits a superpacket at one instant, but a real interface spreads it at its
/// line rate. Without this stage every queue behind it would see harsher bursts than in reality.
///
/// The stage has no limit: no packet is dropped.
#[derive(Debug)]
pub struct AccessRateStage {
    bits_per_second: Option<u64>,
    busy_until: Nanos,
    waiting: PacketSchedule,
}

impl AccessRateStage {
    /// Creates a stage with `access_rate`. Without a rate, transmission takes no time.
    #[must_use]
    pub fn new(conditions: &Conditions) -> Self {
        let bits_per_second = conditions.access_rate.map(|rate| rate.bits_per_second());
        Self { bits_per_second, busy_until: 0, waiting: PacketSchedule::default() }
    }
}

impl Stage for AccessRateStage {
    fn push(&mut self, mut packet: Packet, _: &mut StageEvents) {
        self.busy_until = packet.at.max(self.busy_until) + transmission_time(packet.bytes, self.bits_per_second);
        packet.at = self.busy_until;
        self.waiting.insert(packet);
    }

    fn next_departure(&self) -> Option<Nanos> {
        self.waiting.next_due()
    }

    fn pop(&mut self, _: &mut StageEvents) -> Option<Packet> {
        self.waiting.pop()
    }

    fn packet_count(&self) -> usize {
        self.waiting.len()
    }

    fn set_conditions(&mut self, conditions: &Conditions, _: Nanos, _: &mut StageEvents) {
        self.bits_per_second = conditions.access_rate.map(|rate| rate.bits_per_second());
    }
}
