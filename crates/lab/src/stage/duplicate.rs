//! Packets that arrive twice.

use crate::Nanos;
use crate::conditions::{self, Conditions};
use crate::dice::SeededRng;
use crate::ledger::StageEvents;
use crate::packet::Packet;
use crate::stage::Stage;
use crate::stage::timeline::PacketSchedule;

/// Sends some packets again right behind themselves.
#[derive(Debug)]
pub struct DuplicateStage {
    settings: Option<conditions::Duplicate>,
    rng: SeededRng,
    ready: PacketSchedule,
}

impl DuplicateStage {
    /// The duplication of the conditions.
    #[must_use]
    pub fn new(conditions: &Conditions, dice: SeededRng) -> Self {
        Self { settings: conditions.duplicate, rng: dice.derive("duplicate"), ready: PacketSchedule::default() }
    }
}

impl Stage for DuplicateStage {
    fn push(&mut self, packet: Packet, ledger: &mut StageEvents) {
        self.ready.insert(packet);
        if self.settings.is_some_and(|settings| self.rng.bernoulli(packet.number, settings.p)) {
            self.ready.insert(packet);
            ledger.duplicated.push(packet);
        }
    }

    fn next_departure(&self) -> Option<Nanos> {
        self.ready.next_due()
    }

    fn pop(&mut self, _: &mut StageEvents) -> Option<Packet> {
        self.ready.pop()
    }

    fn packet_count(&self) -> usize {
        self.ready.len()
    }

    fn set_conditions(&mut self, conditions: &Conditions, _: Nanos, _: &mut StageEvents) {
        self.settings = conditions.duplicate;
    }
}
