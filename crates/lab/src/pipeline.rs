//! One direction of a link: stages in a fixed order, moved on event by event in virtual time.
//!
//! The order is: gate (down), access serialiser, ingress loss, queue and line, delay and jitter, reordering, wire loss,
//! duplicates. A stage that the conditions never ask for is not there.

use std::collections::VecDeque;

use crate::Nanos;
use crate::conditions::{Conditions, LossAt};
use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::packet::Packet;
use crate::stage::{Stage, access, delay, duplicate, gate, line, loss, reorder};

const NEVER: Nanos = Nanos::MAX;

/// One direction of a link, in virtual time.
pub struct Pipeline {
    stages: Vec<Box<dyn Stage>>,
    /// When the next packet leaves each stage.
    next: Vec<Nanos>,
    /// For each stage, the least time from there to the far end; and, as the last, from the near end.
    ahead: Vec<Nanos>,
    /// What has happened up to here cannot be changed any more.
    settled: Nanos,
    out: VecDeque<Packet>,
    /// What happened to packets other than passing; the caller empties it.
    pub ledger: Ledger,
    by_packet: bool,
}

impl Pipeline {
    /// A direction that begins with the first of `conditions`, and may be changed to the others while it runs.
    /// Random decisions are by `dice`.
    #[must_use]
    pub fn new(conditions: &[&Conditions], dice: Dice) -> Self {
        let Some(first) = conditions.first() else {
            return Self::of(Vec::new(), false);
        };
        let ever = |asks: fn(&Conditions) -> bool| conditions.iter().any(|conditions| asks(conditions));
        let loses = |place| conditions.iter().any(|c| c.loss.as_ref().is_some_and(|loss| loss.at() == place));
        let mut stages: Vec<Box<dyn Stage>> = Vec::new();
        if ever(|c| c.down) {
            stages.push(Box::new(gate::Gate::new(first)));
        }
        if ever(|c| c.access_rate.is_some()) {
            stages.push(Box::new(access::Access::new(first)));
        }
        if loses(LossAt::Ingress) {
            stages.push(Box::new(loss::Loss::new(first, LossAt::Ingress, dice)));
        }
        if ever(|c| c.rate.is_some() || c.queue.is_some()) {
            stages.push(Box::new(line::Line::new(first, dice)));
        }
        if ever(|c| c.delay.is_some() || c.jitter.is_some()) {
            stages.push(Box::new(delay::Delay::new(first, dice)));
        }
        if ever(|c| c.reorder.is_some()) {
            stages.push(Box::new(reorder::Reorder::new(first, dice)));
        }
        if loses(LossAt::Wire) {
            stages.push(Box::new(loss::Loss::new(first, LossAt::Wire, dice)));
        }
        if ever(|c| c.duplicate.is_some()) {
            stages.push(Box::new(duplicate::Duplicate::new(first, dice)));
        }
        let only_delay = |c: &&Conditions| {
            **c == Conditions { delay: c.delay, count: c.count, down: c.down, ..Conditions::default() }
        };
        Self::of(stages, !conditions.iter().all(only_delay))
    }

    fn of(stages: Vec<Box<dyn Stage>>, by_packet: bool) -> Self {
        let next = vec![NEVER; stages.len()];
        let ahead = look_ahead(&stages);
        Self { stages, next, ahead, settled: 0, out: VecDeque::new(), ledger: Ledger::default(), by_packet }
    }

    /// Whether anything in it tells the packets of a superpacket apart. If not, one may be pushed whole.
    #[must_use]
    pub fn is_by_packet(&self) -> bool {
        self.by_packet
    }

    /// Takes a packet at `packet.at`. What is due until then happens first: at one instant, departures come before
    /// arrivals. A packet that is handed in too late for that counts as arriving when nothing more stands against it.
    /// Returns when it counts as arriving.
    pub fn push(&mut self, packet: Packet) -> Nanos {
        self.settled = self.settled.max(packet.at);
        self.advance(|at, _| at <= packet.at);
        self.hand(0, Packet { at: self.settled, ..packet });
        self.settled
    }

    /// The packet that comes out next, if it does so at or before `now`. Nothing is settled earlier than it must be: with
    /// a delay at the far end, packets may be pushed that much later than they arrived.
    pub fn pop(&mut self, now: Nanos) -> Option<Packet> {
        self.settled = self.settled.max(now.saturating_sub(self.ahead[self.stages.len()]));
        self.advance(|at, ahead| at + ahead <= now);
        self.out.pop_front()
    }

    /// The earliest time at which a packet could come out, if nothing is pushed before. There may turn out to be none.
    #[must_use]
    pub fn wake(&self) -> Option<Nanos> {
        let out = self.out.front().map(|packet| packet.at);
        let inside = self.next.iter().zip(&self.ahead).map(|(next, ahead)| next.saturating_add(*ahead)).min();
        out.or(inside).filter(|at| *at != NEVER)
    }

    /// New conditions from `now` on: some of those it was made for.
    pub fn change(&mut self, conditions: &Conditions, now: Nanos) {
        self.settled = self.settled.max(now);
        self.advance(|at, _| at <= now);
        for index in 0..self.stages.len() {
            self.stages[index].change(conditions, now, &mut self.ledger);
            self.note(index);
        }
        self.ahead = look_ahead(&self.stages);
    }

    /// How many packets are in it.
    #[must_use]
    pub fn held(&self) -> usize {
        self.out.len() + self.stages.iter().map(|stage| stage.held()).sum::<usize>()
    }

    /// Lets everything happen that is `due`, given its time and the least time from there to the far end, in order of
    /// time; at one instant the last stage first.
    fn advance(&mut self, due: impl Fn(Nanos, Nanos) -> bool) {
        while let Some(index) = self.earliest(&due) {
            let packet = self.stages[index].pop(&mut self.ledger);
            self.note(index);
            if let Some(packet) = packet {
                self.hand(index + 1, packet);
            }
        }
    }

    fn earliest(&self, due: impl Fn(Nanos, Nanos) -> bool) -> Option<usize> {
        let times = self.next.iter().zip(&self.ahead).enumerate();
        let due = times.filter(|(_, (at, ahead))| **at != NEVER && due(**at, **ahead));
        due.min_by_key(|(index, (at, _))| (**at, std::cmp::Reverse(*index))).map(|(index, _)| index)
    }

    fn hand(&mut self, index: usize, packet: Packet) {
        if let Some(stage) = self.stages.get_mut(index) {
            stage.push(packet, &mut self.ledger);
            self.note(index);
        } else {
            self.out.push_back(packet);
        }
    }

    fn note(&mut self, index: usize) {
        self.next[index] = self.stages[index].next().unwrap_or(NEVER);
    }
}

/// For each stage, the least time that those behind it hold a packet; and then for all of them.
fn look_ahead(stages: &[Box<dyn Stage>]) -> Vec<Nanos> {
    let mut ahead = vec![0; stages.len() + 1];
    let mut total = 0;
    for (index, stage) in stages.iter().enumerate().rev() {
        ahead[index] = total;
        total += stage.least();
    }
    ahead[stages.len()] = total;
    ahead
}

#[cfg(test)]
mod tests;
