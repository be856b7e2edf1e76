//! Recent samples of sessions for the plots. Both the samples per session and the sessions are bounded.

use std::collections::{HashMap, VecDeque};

use crate::answer::{DIRECTIONS, Direction};
use crate::live::LiveSession;

/// Maximum number of samples per session: three minutes at one answer per second.
const MAX_SAMPLES: usize = 180;

/// Maximum number of sessions with a history: about 10 MB when all histories are full.
pub const MAX_SESSIONS: usize = 1000;

/// A quantity that can be plotted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Transfer rate in bit/s.
    Rate,
    /// Round-trip time in seconds.
    Rtt,
    /// Queue length in packets.
    Queued,
}

/// The figures of a session at one time; each pair is down and up.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Age of the session in seconds.
    age: f64,
    rate: [Option<f32>; 2],
    rtt: [Option<f32>; 2],
    queued: [Option<f32>; 2],
}

/// The most recent samples of one session, the oldest first.
#[derive(Debug, Clone, Default)]
pub struct History(VecDeque<Sample>);

impl History {
    /// Appends a sample, and drops the oldest beyond [`MAX_SAMPLES`].
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

    /// Returns the samples of one quantity, the oldest first.
    pub fn series(&self, quantity: Quantity, side: Direction) -> Vec<Option<f32>> {
        let pick = |sample: &Sample| match quantity {
            Quantity::Rate => sample.rate[side as usize],
            Quantity::Rtt => sample.rtt[side as usize],
            Quantity::Queued => sample.queued[side as usize],
        };
        self.0.iter().map(pick).collect()
    }

    /// Returns the time between the first and the last sample in seconds.
    pub fn span(&self) -> f64 {
        self.0.back().zip(self.0.front()).map_or(0.0, |(last, first)| last.age - first.age)
    }
}

/// Histories by session number.
#[derive(Debug, Default)]
pub struct Histories(HashMap<u64, History>);

impl Histories {
    /// Appends a sample for each of the first [`MAX_SESSIONS`] sessions, and drops the histories of all others.
    pub fn record<'a>(&mut self, sessions: impl Iterator<Item = &'a LiveSession>) {
        let mut before = std::mem::take(&mut self.0);
        for running in sessions.take(MAX_SESSIONS) {
            let number = running.session.session;
            let mut history = before.remove(&number).unwrap_or_default();
            if history.0.back().is_some_and(|last| last.age > running.session.seconds) {
                // The relay has restarted, and this is another session with the number.
                history = History::default();
            }
            history.push(running);
            self.0.insert(number, history);
        }
    }

    /// Returns a copy of a session's history; empty if there is none.
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
    fn histories_are_bounded_in_samples_and_sessions() {
        let mut histories = Histories::default();
        for second in 0..2 * MAX_SAMPLES {
            histories.record(live(1, second as f64).sessions.iter());
        }
        assert_eq!(histories.get(0).0.len(), MAX_SAMPLES);
        assert_eq!(histories.get(0).span(), (MAX_SAMPLES - 1) as f64);
        histories.record(live(10_000, 1000.0).sessions.iter());
        assert_eq!(histories.0.len(), MAX_SESSIONS);
        histories.record(live(1, 1001.0).sessions.iter());
        assert_eq!(histories.0.len(), 1, "ended sessions are removed");
        histories.record(live(1, 1.0).sessions.iter());
        assert_eq!(histories.get(0).0.len(), 1, "a restarted relay");
    }
}
