//! The bottleneck: a queue with a line behind it; and the rate of the sender's interface.

use crate::Nanos;
use crate::conditions::{Conditions, QueueKind, QueueLimit, TailDropSettings};
use crate::ledger::StageEvents;
use crate::packet::Packet;
use crate::queue::{self, Queue};
use crate::rng::SeededRng;
use crate::stage::{PacketSchedule, Stage, transmission_time};
use crate::trace::{DeliverySchedule, PACKET_OVERHEAD};

/// Queue of a line if the lab file names none.
pub const DEFAULT_QUEUE: QueueKind = QueueKind::TailDrop(TailDropSettings { limit: QueueLimit::Packets(1000) });

/// Times of transmission of a line.
#[derive(Debug)]
enum LineTiming {
    /// A packet takes the time of its size at this rate; none without a rate.
    Rate(Option<u64>),
    /// A packet leaves at an opportunity of a trace.
    Trace {
        schedule: DeliverySchedule,
        /// Difference between the size of a packet in the link's accounting and the size of its IP packet, in bytes.
        overhead: u32,
    },
}

impl LineTiming {
    fn new(conditions: &Conditions) -> Self {
        match &conditions.trace {
            Some(trace) => {
                Self::Trace { schedule: DeliverySchedule::new(trace.clone()), overhead: conditions.count.overhead() }
            }
            None => Self::Rate(conditions.rate.map(|rate| rate.bits_per_second())),
        }
    }

    /// Prepares the line for a packet that may start at `now`. Returns whether it may: a line with a trace sends only at
    /// an opportunity.
    fn is_ready(&mut self, now: Nanos) -> bool {
        match self {
            Self::Rate(_) => true,
            Self::Trace { schedule, .. } => {
                schedule.skip_before(now);
                schedule.is_open()
            }
        }
    }

    /// Returns the end of the transmission of a packet that starts at `now`.
    fn transmit(&mut self, packet: &Packet, now: Nanos) -> Nanos {
        match self {
            Self::Rate(rate) => now + transmission_time(packet.bytes, *rate),
            Self::Trace { schedule, overhead } => {
                schedule.transmit(packet.bytes.saturating_sub(*overhead) + PACKET_OVERHEAD)
            }
        }
    }

    /// Takes note that no packet waits at `now`.
    fn on_idle(&mut self) {
        if let Self::Trace { schedule, .. } = self {
            schedule.close();
        }
    }
}

/// A line that sends one packet at a time, with a queue. Every packet passes the queue, also when the line is idle, so
/// that queue management sees it.
pub struct BottleneckStage {
    line: LineTiming,
    queue: Box<dyn Queue>,
    kind: QueueKind,
    /// The packet on the line, with the end of its transmission in `at`.
    in_transmission: Option<Packet>,
    rng: SeededRng,
}

impl BottleneckStage {
    /// Creates a line of `rate` or `trace` with the queue of the conditions.
    #[must_use]
    pub fn new(conditions: &Conditions, rng: SeededRng) -> Self {
        let kind = conditions.queue.clone().unwrap_or(DEFAULT_QUEUE);
        let rng = rng.derive("queue");
        let queue = queue::build(&kind, conditions.line_rate(), rng);
        Self { line: LineTiming::new(conditions), queue, kind, in_transmission: None, rng }
    }

    fn send_next(&mut self, now: Nanos, ledger: &mut StageEvents) {
        if !self.line.is_ready(now) {
            return;
        }
        self.in_transmission = self.queue.dequeue(now, ledger).map(|packet| {
            ledger.queue_delays.record(now - packet.at);
            Packet { at: self.line.transmit(&packet, now), ..packet }
        });
        if self.in_transmission.is_none() {
            self.line.on_idle();
        }
    }

    /// Applies the rate or trace of the conditions. The packet on the line keeps its time. A trace that stays goes on.
    fn set_line(&mut self, conditions: &Conditions, now: Nanos, ledger: &mut StageEvents) {
        let waits_for_trace = self.in_transmission.is_none() && self.next_opportunity().is_some();
        match &self.line {
            LineTiming::Trace { schedule, .. } if Some(schedule.trace()) == conditions.trace.as_ref() => return,
            _ => self.line = LineTiming::new(conditions),
        }
        if waits_for_trace {
            self.send_next(now, ledger);
        }
    }

    /// Returns the time of the next opportunity of a trace, if packets wait for it.
    fn next_opportunity(&self) -> Option<Nanos> {
        match &self.line {
            LineTiming::Trace { schedule, .. } if self.queue.backlog().packets > 0 => Some(schedule.next_opportunity()),
            LineTiming::Rate(_) | LineTiming::Trace { .. } => None,
        }
    }
}

impl Stage for BottleneckStage {
    fn push(&mut self, packet: Packet, ledger: &mut StageEvents) {
        let now = packet.at;
        let was_empty = self.queue.backlog().packets == 0;
        self.queue.enqueue(packet, ledger);
        if self.in_transmission.is_some() {
            return;
        }
        match &mut self.line {
            LineTiming::Rate(_) => self.send_next(now, ledger),
            // An opportunity at the time of the arrival has passed without a packet.
            LineTiming::Trace { schedule, .. } if was_empty => schedule.skip_before(now + 1),
            LineTiming::Trace { .. } => {}
        }
    }

    fn next_departure(&self) -> Option<Nanos> {
        self.in_transmission.map_or_else(|| self.next_opportunity(), |packet| Some(packet.at))
    }

    fn pop(&mut self, ledger: &mut StageEvents) -> Option<Packet> {
        let now = self.next_departure()?;
        let sent = self.in_transmission.take();
        if let (None, LineTiming::Trace { schedule, .. }) = (&sent, &mut self.line) {
            schedule.open();
        }
        self.send_next(now, ledger);
        sent
    }

    fn packet_count(&self) -> usize {
        usize::from(self.in_transmission.is_some())
            + usize::try_from(self.queue.backlog().packets).unwrap_or(usize::MAX)
    }

    fn set_conditions(&mut self, conditions: &Conditions, now: Nanos, ledger: &mut StageEvents) {
        self.set_line(conditions, now, ledger);
        let kind = conditions.queue.clone().unwrap_or(DEFAULT_QUEUE);
        if kind == self.kind {
            self.queue.set_rate(conditions.line_rate());
            return;
        }
        // The new queue takes over the packets with their times of arrival, and drops packets by its own law.
        let old = std::mem::replace(&mut self.queue, queue::build(&kind, conditions.line_rate(), self.rng));
        self.kind = kind;
        let first_drop = ledger.dropped.len();
        for packet in old.into_packets() {
            self.queue.enqueue(packet, ledger);
        }
        for dropped in &mut ledger.dropped[first_drop..] {
            dropped.packet.at = now;
        }
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
