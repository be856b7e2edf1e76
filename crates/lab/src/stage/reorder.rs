//! Packets that others overtake.

use crate::Nanos;
use crate::conditions::{self, Conditions};
use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::nanos;
use crate::packet::Packet;
use crate::stage::Stage;
use crate::stage::timeline::Timeline;

/// Holds some packets back while the others pass.
#[derive(Debug)]
pub struct Reorder {
    settings: Option<conditions::Reorder>,
    dice: Dice,
    on_the_way: Timeline,
}

impl Reorder {
    /// The reordering of the conditions.
    #[must_use]
    pub fn new(conditions: &Conditions, dice: Dice) -> Self {
        Self { settings: conditions.reorder, dice: dice.of("reorder"), on_the_way: Timeline::default() }
    }
}

impl Stage for Reorder {
    fn push(&mut self, mut packet: Packet, _: &mut Ledger) {
        if let Some(settings) = self.settings.filter(|settings| self.dice.happens(packet.number, settings.p)) {
            packet.at += nanos(settings.by);
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
        self.settings = conditions.reorder;
    }
}
