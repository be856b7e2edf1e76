//! Packets that others overtake.

use crate::Nanos;
use crate::conditions::{self, Conditions};
use crate::dice::SeededRng;
use crate::ledger::StageEvents;
use crate::nanos;
use crate::packet::Packet;
use crate::stage::Stage;
use crate::stage::timeline::PacketSchedule;

/// Holds some packets back while the others pass.
#[derive(Debug)]
pub struct ReorderStage {
    settings: Option<conditions::Reorder>,
    rng: SeededRng,
    in_transit: PacketSchedule,
}

impl ReorderStage {
    /// The reordering of the conditions.
    #[must_use]
    pub fn new(conditions: &Conditions, dice: SeededRng) -> Self {
        Self { settings: conditions.reorder, rng: dice.derive("reorder"), in_transit: PacketSchedule::default() }
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
