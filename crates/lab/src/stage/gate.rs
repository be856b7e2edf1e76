//! A link that is down takes nothing. What is already on its way arrives.

use crate::Nanos;
use crate::conditions::Conditions;
use crate::ledger::{Cause, Ledger};
use crate::packet::Packet;
use crate::stage::Stage;
use crate::stage::timeline::Timeline;

/// Drops everything while the link is down.
#[derive(Debug)]
pub struct Gate {
    down: bool,
    passed: Timeline,
}

impl Gate {
    /// A gate, open unless the conditions say that the link is down.
    #[must_use]
    pub fn new(conditions: &Conditions) -> Self {
        Self { down: conditions.down, passed: Timeline::default() }
    }
}

impl Stage for Gate {
    fn push(&mut self, packet: Packet, ledger: &mut Ledger) {
        if self.down {
            ledger.drop(packet, Cause::Down);
        } else {
            self.passed.insert(packet);
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
        self.down = conditions.down;
    }
}
