//! What was chosen for a session, and how it came out.

use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::direction::Direction;
use ekiden_proto::event::Chosen;
use ekiden_proto::path::candidates::Candidate;
use ekiden_proto::path::choice::{Outcome, Why};
use ekiden_proto::path::likely::Likely;
use ekiden_proto::path::prefix::Prefix;

use crate::pump::Answer;

/// A session of so many bytes or more tells of a path's rate.
const BULK: u64 = 256 << 10;

/// The answer for one session.
#[derive(Debug)]
pub struct Plan {
    /// Where it wants to go.
    pub target: Target,
    /// Where that lies.
    pub prefix: Prefix,
    /// What it will probably carry.
    pub likely: Likely,
    /// So many of its ways are dialled at once, because too little is measured; 0 where the first is the best.
    pub racers: usize,
    /// Why.
    pub why: Why,
}

/// One way of a [`Plan`], and what is expected of it.
#[derive(Debug)]
pub struct Expected {
    /// The whole answer.
    pub plan: Arc<Plan>,
    /// The path; none where there are hops on it that are no relays.
    pub candidate: Option<Candidate>,
    /// From the client's wish to the last byte; none where too little is measured.
    pub predicted: Option<Duration>,
}

/// What a session, or a part of it, has carried, and how long that took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Carried {
    /// Bytes toward the client.
    pub down: u64,
    /// Bytes toward the server.
    pub up: u64,
    /// From the client's wish until the path stood; zero for a later part.
    pub connect: Duration,
    /// The largest answer; none before there is one.
    pub answer: Option<Answer>,
    /// Time in which bytes moved, or were waited for and not by the client.
    pub flowing: Duration,
    /// Part of it in which there were bytes for the client and no room to send them.
    pub held_down: Duration,
    /// The same for the server.
    pub held_up: Duration,
}

impl Carried {
    /// In which direction most went, and how much.
    #[must_use]
    pub const fn most(&self) -> Likely {
        if self.up > self.down { Likely::up(self.up) } else { Likely::down(self.down) }
    }

    /// Whether the client was what held it back: it did not take what there was, or sent too little.
    #[must_use]
    pub fn is_held_by_client(&self) -> bool {
        match self.most().direction {
            Direction::Down => !self.held_down.is_zero() && self.held_down * 2 >= self.flowing,
            Direction::Up => self.held_up * 2 < self.flowing,
        }
    }

    /// Whether it tells of a rate.
    #[must_use]
    pub const fn is_bulk(&self) -> bool {
        self.most().bytes >= BULK
    }

    /// What the chooser is told; nothing where nothing has come back.
    ///
    /// A large session counts to its last byte. Of a small one, which may be a long conversation, only its largest answer
    /// does, as if it was the only one: how often it goes to and fro is not the path's affair.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        let limited_by_path = !self.is_held_by_client();
        if self.is_bulk() {
            let (carried, took) = (self.most(), self.connect + self.flowing);
            return Some(Outcome { carried, of: carried.bytes, took, goes_on: false, limited_by_path });
        }
        let Answer { bytes, wait, span } = self.answer?;
        let took = self.connect + wait + span;
        Some(Outcome { carried: Likely::down(bytes), of: bytes, took, goes_on: false, limited_by_path: true })
    }

    /// What has come on top of `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            down: self.down - before.down,
            up: self.up - before.up,
            connect: Duration::ZERO,
            answer: None,
            flowing: self.flowing.saturating_sub(before.flowing),
            held_down: self.held_down.saturating_sub(before.held_down),
            held_up: self.held_up.saturating_sub(before.held_up),
        }
    }

    /// The same of a part of a large session, which is to carry `of` bytes in all.
    #[must_use]
    pub fn part(&self, of: u64) -> Option<Outcome> {
        let Likely { bytes, direction } = self.most();
        if bytes == 0 || self.is_held_by_client() {
            return None;
        }
        let carried = Likely { bytes, direction };
        Some(Outcome { carried, of, took: self.flowing, goes_on: true, limited_by_path: true })
    }
}

impl Expected {
    /// What status and the closing event say: `left` tells which ways were tried before.
    #[must_use]
    pub fn told(&self, left: &[String], predicted: Option<Duration>, took: Option<Duration>) -> Chosen {
        let Plan { why, likely, .. } = &*self.plan;
        let retreats = if left.is_empty() { String::new() } else { format!("; {}", left.join(", ")) };
        Chosen {
            reason: if left.is_empty() { why.word() } else { "retreats" },
            why: format!("{why}{retreats}"),
            likely_bytes: likely.bytes,
            likely_direction: likely.direction.word(),
            predicted,
            took,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn small_sessions_tell_of_an_answer_and_large_ones_of_all() {
        let answer = Answer { bytes: 4000, wait: SECOND, span: SECOND };
        let small = Carried {
            down: 5000,
            up: 600,
            connect: SECOND,
            answer: Some(answer),
            flowing: 9 * SECOND,
            ..Carried::default()
        };
        let outcome = small.outcome().unwrap();
        assert_eq!((outcome.carried, outcome.of, outcome.took), (Likely::down(4000), 4000, 3 * SECOND));
        assert!(Carried { answer: None, ..small }.outcome().is_none(), "nothing came back");
        let large = Carried { up: 1 << 20, ..small };
        let outcome = large.outcome().unwrap();
        assert_eq!((outcome.carried, outcome.took), (Likely::up(1 << 20), 10 * SECOND));
        assert!(!outcome.limited_by_path, "the client sent too little");
        let held = Carried { held_up: 8 * SECOND, ..large };
        assert!(held.outcome().unwrap().limited_by_path, "there was more than could be sent");
    }

    #[test]
    fn a_part_counts_as_one_of_a_large_session_unless_the_client_holds_it() {
        let part = Carried { down: BULK / 8, flowing: SECOND, ..Carried::default() };
        let outcome = part.part(BULK).unwrap();
        assert_eq!((outcome.carried.bytes, outcome.of, outcome.took), (BULK / 8, BULK, SECOND));
        assert!(Carried { held_down: SECOND, ..part }.part(BULK).is_none(), "the client did not take it");
        assert!(Carried { down: 0, ..part }.part(BULK).is_none());
    }

    #[test]
    fn what_is_told_says_which_ways_were_left() {
        let prefix = "192.0.2.0/24".parse().unwrap();
        let target = Target::parse("192.0.2.7:443", None).unwrap();
        let plan = Plan { target, prefix, likely: Likely::up(5000), racers: 0, why: Why::Unmeasured };
        let expected = Expected { plan: Arc::new(plan), candidate: None, predicted: None };
        let told = expected.told(&[], Some(SECOND), None);
        assert_eq!((told.reason, told.likely_bytes, told.likely_direction), ("unmeasured", 5000, "up"));
        assert_eq!((told.predicted, told.took), (Some(SECOND), None));
        let told = expected.told(&["osaka failed: refused".to_owned()], None, Some(SECOND));
        assert_eq!((told.reason, told.took), ("retreats", Some(SECOND)));
        assert!(told.why.ends_with("; osaka failed: refused"), "{}", told.why);
    }
}
