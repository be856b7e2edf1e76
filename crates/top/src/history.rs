//! The last minutes of sessions, for the plots. Bounded twice: so many samples of a session, so many sessions.

use std::collections::{HashMap, VecDeque};

use crate::answer::{DIRECTIONS, Direction};
use crate::live::LiveSession;

/// Three minutes, when the relay is asked each second.
const MAX_SAMPLES: usize = 180;

/// Of so many sessions: some 10 MB when all are full, whatever a relay has.
pub const MAX_SESSIONS: usize = 1000;

/// What a plot shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Bits a second.
    Rate,
    /// Seconds.
    Rtt,
    /// Packets.
    Queued,
}

/// One moment of a session.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// How old the session was, in seconds.
    age: f64,
    rate: [Option<f32>; 2],
    rtt: [Option<f32>; 2],
    queued: [Option<f32>; 2],
}

/// The last minutes of one session.
#[derive(Debug, Clone, Default)]
pub struct History(VecDeque<Sample>);

impl History {
    /// Notes how it is now.
    pub fn push(&mut self, running: &LiveSession) {
        if self.0.len() == MAX_SAMPLES {
            self.0.pop_front();
        }
        let section = |side| running.session.section(side);
        self.0.push_back(Sample {
            age: running.session.seconds,
            rate: DIRECTIONS.map(|side| running.rate(side).map(|bits| bits as f32)),
            rtt: DIRECTIONS.map(|side| section(side)?.rtt_seconds.map(|seconds| seconds as f32)),
            queued: DIRECTIONS.map(|side| section(side)?.queued.map(|packets| packets as f32)),
        });
    }

    /// One quantity, the oldest first.
    pub fn series(&self, quantity: Quantity, side: Direction) -> Vec<Option<f32>> {
        let pick = |sample: &Sample| match quantity {
            Quantity::Rate => sample.rate[side as usize],
            Quantity::Rtt => sample.rtt[side as usize],
            Quantity::Queued => sample.queued[side as usize],
        };
        self.0.iter().map(pick).collect()
    }

    /// From the first sample to the last, in seconds.
    pub fn span(&self) -> f64 {
        self.0.back().zip(self.0.front()).map_or(0.0, |(last, first)| last.age - first.age)
    }
}

/// The histories of many sessions.
#[derive(Debug, Default)]
pub struct Histories(HashMap<u64, History>);

impl Histories {
    /// Notes how `sessions` are now, the first of them; those of others are forgotten.
    pub fn record<'a>(&mut self, sessions: impl Iterator<Item = &'a LiveSession>) {
        let mut before = std::mem::take(&mut self.0);
        for running in sessions.take(MAX_SESSIONS) {
            let number = running.session.session;
            let mut history = before.remove(&number).unwrap_or_default();
            if history.0.back().is_some_and(|last| last.age > running.session.seconds) {
                // Another session of the same number, after the relay was started anew.
                history = History::default();
            }
            history.push(running);
            self.0.insert(number, history);
        }
    }

    /// That of one session, as far as there is one.
    pub fn get(&self, session: u64) -> History {
        self.0.get(&session).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Session, SessionsResponse};
    use crate::live::LiveSessions;

    fn live(count: u64, seconds: f64) -> LiveSessions {
        let session = |session| Session { session, seconds, ..Session::default() };
        let mut live = LiveSessions::default();
        live.update(SessionsResponse { sessions: (0..count).map(session).collect(), ..SessionsResponse::default() });
        live
    }

    #[test]
    fn what_is_kept_has_a_bound_whatever_a_relay_has() {
        let mut histories = Histories::default();
        for second in 0..2 * MAX_SAMPLES {
            histories.record(live(1, second as f64).sessions.iter());
        }
        assert_eq!(histories.get(0).0.len(), MAX_SAMPLES);
        assert_eq!(histories.get(0).span(), (MAX_SAMPLES - 1) as f64);
        histories.record(live(10_000, 1000.0).sessions.iter());
        assert_eq!(histories.0.len(), MAX_SESSIONS);
        histories.record(live(1, 1001.0).sessions.iter());
        assert_eq!(histories.0.len(), 1, "who is gone is forgotten");
        histories.record(live(1, 1.0).sessions.iter());
        assert_eq!(histories.get(0).0.len(), 1, "a relay that was started anew");
    }
}
