//! A link that is down takes nothing. What is already on its way arrives.

use crate::Nanos;
use crate::conditions::Conditions;
use crate::ledger::{DropCause, StageEvents};
use crate::packet::Packet;
use crate::stage::Stage;
use crate::stage::timeline::PacketSchedule;

/// Drops everything while the link is down.
#[derive(Debug)]
pub struct LinkStateStage {
    down: bool,
    ready: PacketSchedule,
}

impl LinkStateStage {
    /// A gate, open unless the conditions say that the link is down.
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
