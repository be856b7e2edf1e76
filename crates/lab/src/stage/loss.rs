//! Loss that no queue causes: independent, in bursts, or by a pattern.

use crate::Nanos;
use crate::conditions::{self, Conditions, LossAt};
use crate::dice::Dice;
use crate::ledger::{Cause, Ledger};
use crate::packet::Packet;
use crate::stage::Stage;
use crate::stage::timeline::Timeline;

/// Drops packets by the loss model of its place, ingress or wire.
#[derive(Debug)]
pub struct Loss {
    place: LossAt,
    model: Option<conditions::Loss>,
    /// The state of the Gilbert-Elliott model. It begins in the good one.
    bad: bool,
    dice: Dice,
    state_dice: Dice,
    passed: Timeline,
}

impl Loss {
    /// The loss at `place`, if the conditions have one there.
    #[must_use]
    pub fn new(conditions: &Conditions, place: LossAt, dice: Dice) -> Self {
        let dice = dice.of(match place {
            LossAt::Ingress => "ingress loss",
            LossAt::Wire => "wire loss",
        });
        let model = model_at(conditions, place);
        Self {
            place,
            model,
            bad: false,
            dice: dice.of("loss"),
            state_dice: dice.of("state"),
            passed: Timeline::default(),
        }
    }

    fn loses(&mut self, number: u64) -> bool {
        match &self.model {
            None => false,
            Some(conditions::Loss::Bernoulli { p, .. }) => self.dice.happens(number, *p),
            Some(conditions::Loss::Pattern { every, lost, .. }) => lost.contains(&(number % every)),
            Some(conditions::Loss::GilbertElliott { to_bad, to_good, p_good, p_bad, .. }) => {
                let (p, change) = if self.bad { (*p_bad, *to_good) } else { (*p_good, *to_bad) };
                let lost = self.dice.happens(number, p);
                self.bad ^= self.state_dice.happens(number, change);
                lost
            }
        }
    }
}

fn model_at(conditions: &Conditions, place: LossAt) -> Option<conditions::Loss> {
    conditions.loss.clone().filter(|loss| loss.at() == place)
}

impl Stage for Loss {
    fn push(&mut self, packet: Packet, ledger: &mut Ledger) {
        if self.loses(packet.number) {
            let cause = match self.place {
                LossAt::Ingress => Cause::IngressLoss,
                LossAt::Wire => Cause::WireLoss,
            };
            ledger.drop(packet, cause);
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
        self.model = model_at(conditions, self.place);
    }
}
