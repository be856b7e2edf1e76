//! Packets that arrive twice.

use crate::Nanos;
use crate::conditions::{self, Conditions};
use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::packet::Packet;
use crate::stage::Stage;
use crate::stage::timeline::Timeline;

/// Sends some packets again right behind themselves.
#[derive(Debug)]
pub struct Duplicate {
    settings: Option<conditions::Duplicate>,
    dice: Dice,
    passed: Timeline,
}

impl Duplicate {
    /// The duplication of the conditions.
    #[must_use]
    pub fn new(conditions: &Conditions, dice: Dice) -> Self {
        Self { settings: conditions.duplicate, dice: dice.of("duplicate"), passed: Timeline::default() }
    }
}

impl Stage for Duplicate {
    fn push(&mut self, packet: Packet, ledger: &mut Ledger) {
        self.passed.insert(packet);
        if self.settings.is_some_and(|settings| self.dice.happens(packet.number, settings.p)) {
            self.passed.insert(packet);
            ledger.copied.push(packet);
        }
    }

    fn next(&self) -> Option<Nanos> {
        self.passed.next()
    }

    fn pop(&mut self, _: &mut Ledger) -> Option<Packet> {
        self.passed.pop()
    }

    fn held(&self) -> usize {
        self.passed.len()
    }

    fn change(&mut self, conditions: &Conditions, _: Nanos, _: &mut Ledger) {
        self.settings = conditions.duplicate;
    }
}
