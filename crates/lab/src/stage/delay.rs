//! Propagation: a constant, and jitter on top of it.

use crate::Nanos;
use crate::conditions::{Conditions, Distribution, Jitter};
use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::nanos;
use crate::packet::Packet;
use crate::stage::Stage;
use crate::stage::timeline::Timeline;

/// Holds each packet for the delay and its jitter. Unless the jitter may reorder, packets leave in the order they came:
/// one that would be too early waits for those before it, also after the delay has been shortened.
#[derive(Debug)]
pub struct Delay {
    delay: Nanos,
    jitter: Option<Jitter>,
    dice: Dice,
    on_the_way: Timeline,
}

impl Delay {
    /// The delay and jitter of the conditions.
    #[must_use]
    pub fn new(conditions: &Conditions, dice: Dice) -> Self {
        let delay = conditions.delay.map_or(0, nanos);
        Self { delay, jitter: conditions.jitter, dice: dice.of("jitter"), on_the_way: Timeline::default() }
    }

    fn jitter(&self, number: u64) -> Nanos {
        self.jitter.map_or(0, |jitter| draw(jitter, self.dice, number))
    }
}

/// The jitter of packet `number`.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a delay, in ns"
)]
fn draw(jitter: Jitter, dice: Dice, number: u64) -> Nanos {
    let uniform = dice.uniform(number);
    let unit = match jitter.distribution {
        Distribution::Uniform => uniform,
        Distribution::Exponential => -(1.0 - uniform).ln(),
        // Box and Muller 1958, one of the pair; its absolute value.
        Distribution::Normal => {
            let angle = std::f64::consts::TAU * dice.of("angle").uniform(number);
            ((-2.0 * (1.0 - uniform).ln()).sqrt() * angle.cos()).abs()
        }
    };
    (unit * nanos(jitter.scale) as f64) as Nanos
}

impl Stage for Delay {
    fn push(&mut self, mut packet: Packet, _: &mut Ledger) {
        packet.at += self.delay + self.jitter(packet.number);
        if !self.jitter.is_some_and(|jitter| jitter.reorder) {
            packet.at = packet.at.max(self.on_the_way.last().unwrap_or(0));
        }
        self.on_the_way.insert(packet);
    }

    fn next(&self) -> Option<Nanos> {
        self.on_the_way.next()
    }

    fn pop(&mut self, _: &mut Ledger) -> Option<Packet> {
        self.on_the_way.pop()
    }

    fn held(&self) -> usize {
        self.on_the_way.len()
    }

    fn change(&mut self, conditions: &Conditions, _: Nanos, _: &mut Ledger) {
        self.delay = conditions.delay.map_or(0, nanos);
        self.jitter = conditions.jitter;
    }

    fn least(&self) -> Nanos {
        self.delay
    }
}
