//! Propagation delay: a constant, jitter, and random late packets.

use crate::Nanos;
use crate::conditions::{self, Conditions, Distribution, Jitter};
use crate::ledger::StageEvents;
use crate::nanos;
use crate::packet::Packet;
use crate::rng::SeededRng;
use crate::stage::{PacketSchedule, Stage};

/// Delays each packet by the delay and its jitter. Unless the jitter may reorder, packets leave in order of arrival: a
/// packet that would overtake waits, also after the delay has been reduced.
#[derive(Debug)]
pub struct DelayStage {
    delay: Nanos,
    jitter: Option<Jitter>,
    rng: SeededRng,
    in_transit: PacketSchedule,
}

impl DelayStage {
    /// Creates a stage with the delay and jitter of the conditions.
    #[must_use]
    pub fn new(conditions: &Conditions, rng: SeededRng) -> Self {
        let delay = conditions.delay.map_or(0, nanos);
        Self { delay, jitter: conditions.jitter, rng: rng.derive("jitter"), in_transit: PacketSchedule::default() }
    }

    fn packet_jitter(&self, number: u64) -> Nanos {
        self.jitter.map_or(0, |jitter| sample_jitter(jitter, self.rng, number))
    }
}

/// Returns the jitter of packet `number`, in nanoseconds.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a delay, in ns"
)]
fn sample_jitter(jitter: Jitter, rng: SeededRng, number: u64) -> Nanos {
    let uniform = rng.uniform(number);
    let unit = match jitter.distribution {
        Distribution::Uniform => uniform,
        Distribution::Exponential => -libm::log(1.0 - uniform),
        // Box and Muller 1958, one of the pair; its absolute value.
        Distribution::Normal => {
            let angle = std::f64::consts::TAU * rng.derive("angle").uniform(number);
            ((-2.0 * libm::log(1.0 - uniform)).sqrt() * libm::cos(angle)).abs()
        }
    };
    (unit * nanos(jitter.scale) as f64) as Nanos
}

impl Stage for DelayStage {
    fn push(&mut self, mut packet: Packet, _: &mut StageEvents) {
        packet.at += self.delay + self.packet_jitter(packet.number);
        if !self.jitter.is_some_and(|jitter| jitter.reorder) {
            packet.at = packet.at.max(self.in_transit.last_due().unwrap_or(0));
        }
        self.in_transit.insert(packet);
    }

    fn next_departure(&self) -> Option<Nanos> {
        self.in_transit.next_due()
    }

    fn pop(&mut self, _: &mut StageEvents) -> Option<Packet> {
        self.in_transit.pop()
    }

    fn packet_count(&self) -> usize {
        self.in_transit.len()
    }

    fn set_conditions(&mut self, conditions: &Conditions, _: Nanos, _: &mut StageEvents) {
        self.delay = conditions.delay.map_or(0, nanos);
        self.jitter = conditions.jitter;
    }

    fn min_delay(&self) -> Nanos {
        self.delay
    }
}

/// Delays random packets, so that others overtake them.
#[derive(Debug)]
pub struct ReorderStage {
    settings: Option<conditions::Reorder>,
    rng: SeededRng,
    in_transit: PacketSchedule,
}

impl ReorderStage {
    /// Creates a stage with the reordering of the conditions.
    #[must_use]
    pub fn new(conditions: &Conditions, rng: SeededRng) -> Self {
        Self { settings: conditions.reorder, rng: rng.derive("reorder"), in_transit: PacketSchedule::default() }
    }
}

impl Stage for ReorderStage {
    fn push(&mut self, mut packet: Packet, _: &mut StageEvents) {
        if let Some(settings) = self.settings.filter(|settings| self.rng.bernoulli(packet.number, settings.p)) {
            packet.at += nanos(settings.by);
        }
        self.in_transit.insert(packet);
    }

    fn next_departure(&self) -> Option<Nanos> {
        self.in_transit.next_due()
    }

    fn pop(&mut self, _: &mut StageEvents) -> Option<Packet> {
        self.in_transit.pop()
    }

    fn packet_count(&self) -> usize {
        self.in_transit.len()
    }

    fn set_conditions(&mut self, conditions: &Conditions, _: Nanos, _: &mut StageEvents) {
        self.settings = conditions.reorder;
    }
}
