//! Loss outside of the queue, links that are down, and duplicates.

use crate::Nanos;
use crate::conditions::{self, Conditions, LossPosition};
use crate::ledger::{DropCause, StageEvents};
use crate::packet::Packet;
use crate::rng::SeededRng;
use crate::stage::{PacketSchedule, Stage};

/// Drops packets by the loss model of one position.
#[derive(Debug)]
pub struct LossStage {
    position: LossPosition,
    model: Option<conditions::Loss>,
    /// Whether the Gilbert-Elliott model is in its bad state. It starts in the good state.
    in_bad_state: bool,
    rng: SeededRng,
    state_rng: SeededRng,
    ready: PacketSchedule,
}

impl LossStage {
    /// Creates a stage with the loss of the conditions at `position`, if there is any.
    #[must_use]
    pub fn new(conditions: &Conditions, position: LossPosition, rng: SeededRng) -> Self {
        let rng = rng.derive(match position {
            LossPosition::Ingress => "ingress loss",
            LossPosition::Wire => "wire loss",
        });
        let model = model_at(conditions, position);
        Self {
            position,
            model,
            in_bad_state: false,
            rng: rng.derive("loss"),
            state_rng: rng.derive("state"),
            ready: PacketSchedule::default(),
        }
    }

    fn is_lost(&mut self, number: u64) -> bool {
        match &self.model {
            None => false,
            Some(conditions::Loss::Bernoulli { p, .. }) => self.rng.bernoulli(number, *p),
            Some(conditions::Loss::Pattern { every, lost, .. }) => lost.contains(&(number % every)),
            Some(conditions::Loss::GilbertElliott { to_bad, to_good, p_good, p_bad, .. }) => {
                let (p, change) = if self.in_bad_state { (*p_bad, *to_good) } else { (*p_good, *to_bad) };
                let lost = self.rng.bernoulli(number, p);
                self.in_bad_state ^= self.state_rng.bernoulli(number, change);
                lost
            }
        }
    }
}

fn model_at(conditions: &Conditions, place: LossPosition) -> Option<conditions::Loss> {
    conditions.loss.clone().filter(|loss| loss.at() == place)
}

impl Stage for LossStage {
    fn push(&mut self, packet: Packet, ledger: &mut StageEvents) {
        if self.is_lost(packet.number) {
            let cause = match self.position {
                LossPosition::Ingress => DropCause::IngressLoss,
                LossPosition::Wire => DropCause::WireLoss,
            };
            ledger.record_drop(packet, cause);
        } else {
            self.ready.insert(packet);
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
        self.model = model_at(conditions, self.position);
    }
}

/// Drops every new packet while the link is down. Packets already in later stages still arrive.
#[derive(Debug)]
pub struct LinkStateStage {
    down: bool,
    ready: PacketSchedule,
}

impl LinkStateStage {
    /// Creates a stage with the link state of the conditions.
    #[must_use]
    pub fn new(conditions: &Conditions) -> Self {
        Self { down: conditions.down, ready: PacketSchedule::default() }
    }
}

impl Stage for LinkStateStage {
    fn push(&mut self, packet: Packet, ledger: &mut StageEvents) {
        if self.down {
            ledger.record_drop(packet, DropCause::Down);
        } else {
            self.ready.insert(packet);
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
        self.down = conditions.down;
    }
}

/// Sends random packets twice, back to back.
#[derive(Debug)]
pub struct DuplicateStage {
    settings: Option<conditions::Duplicate>,
    rng: SeededRng,
    ready: PacketSchedule,
}

impl DuplicateStage {
    /// Creates a stage with the duplication of the conditions.
    #[must_use]
    pub fn new(conditions: &Conditions, rng: SeededRng) -> Self {
        Self { settings: conditions.duplicate, rng: rng.derive("duplicate"), ready: PacketSchedule::default() }
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
