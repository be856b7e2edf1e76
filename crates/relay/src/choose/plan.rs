//! What was chosen for a session, and how it came out.

use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::event::Chosen;
use ekiden_proto::limiting::Direction;
use ekiden_proto::path::candidates::Candidate;
use ekiden_proto::path::choice::{Outcome, Why};
use ekiden_proto::path::likely::Likely;
use ekiden_proto::path::prefix::Prefix;

/// A session of so many bytes or more tells of a path's rate, a smaller one of its delay.
const BULK: u64 = 256 << 10;

/// What of a smaller one comes at once: the first flight (RFC 6928).
const FLIGHT: u64 = 10 << 10;

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
    /// From the first bytes toward the server to the first byte of the answer; none before there is one.
    pub answer: Option<Duration>,
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
    /// A large session counts to its last byte. Of a small one, which may be a long conversation, only the way to the first
    /// answer is the path's.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        if self.is_bulk() {
            let took = self.connect + self.flowing;
            return Some(Outcome {
                carried: self.most(),
                took,
                goes_on: false,
                limited_by_path: !self.is_held_by_client(),
            });
        }
        let carried = Likely::down(self.down.min(FLIGHT));
        Some(Outcome { carried, took: self.connect + self.answer?, goes_on: false, limited_by_path: true })
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

    /// The same of a part of a large session: what it would have been for one that is large enough to tell.
    #[must_use]
    pub fn part(&self) -> Option<Outcome> {
        let Likely { bytes, direction } = self.most();
        if bytes == 0 || self.is_held_by_client() {
            return None;
        }
        let times = (BULK as f64 / bytes as f64).max(1.0);
        let carried = Likely { bytes: bytes.max(BULK), direction };
        Some(Outcome { carried, took: self.flowing.mul_f64(times), goes_on: true, limited_by_path: true })
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
    fn small_sessions_tell_of_delay_and_large_ones_of_rate() {
        let small = Carried {
            down: 5000,
            up: 600,
            connect: SECOND,
            answer: Some(SECOND),
            flowing: 9 * SECOND,
            ..Carried::default()
        };
        let outcome = small.outcome().unwrap();
        assert_eq!((outcome.carried, outcome.took), (Likely::down(5000), 2 * SECOND));
        assert!(Carried { answer: None, ..small }.outcome().is_none(), "nothing came back");
        let large = Carried { up: 1 << 20, ..small };
        let outcome = large.outcome().unwrap();
        assert_eq!((outcome.carried, outcome.took), (Likely::up(1 << 20), 10 * SECOND));
        assert!(!outcome.limited_by_path, "the client sent too little");
        let held = Carried { held_up: 8 * SECOND, ..large };
        assert!(held.outcome().unwrap().limited_by_path, "there was more than could be sent");
    }

    #[test]
    fn a_slow_part_counts_as_if_it_had_been_large_enough() {
        let part = Carried { down: BULK / 8, flowing: SECOND, ..Carried::default() };
        let outcome = part.part().unwrap();
        assert_eq!((outcome.carried.bytes, outcome.took), (BULK, 8 * SECOND));
        let fast = Carried { down: BULK * 2, ..part };
        assert_eq!(fast.part().unwrap().took, SECOND);
        assert!(Carried { held_down: SECOND, ..part }.part().is_none(), "the client did not take it");
        assert!(Carried { down: 0, ..part }.part().is_none());
    }
}
