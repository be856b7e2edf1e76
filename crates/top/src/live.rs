//! The sessions of the newest answer, with rates computed from the difference to the answer before.
//!
//! The time difference is the growth of each session's age by the relay's clock, so neither network delay nor a pause
//! of this program distorts a rate.

use std::collections::HashMap;

use crate::answer::{DIRECTIONS, Direction, Limit, Pool, Session, SessionsResponse};

/// A session with its rates.
#[derive(Debug, Clone, Default)]
pub struct LiveSession {
    pub session: Session,
    /// Rates down and up in bit/s; `None` until two answers can be compared.
    rates: [Option<f64>; 2],
}

/// All sessions and the summary of the newest answer.
#[derive(Debug, Default)]
pub struct LiveSessions {
    pub sessions: Vec<LiveSession>,
    pub summary: RelaySummary,
    has_answer: bool,
}

/// The figures of the relay for the summary lines.
#[derive(Debug, Default)]
pub struct RelaySummary {
    pub version: String,
    pub pipes: Option<(u64, u64)>,
    pub pools: Vec<Pool>,
    /// Total rates of all sessions down and up in bit/s.
    pub rates: [f64; 2],
}

impl LiveSession {
    /// Returns the rate of a direction in bit/s.
    pub fn rate(&self, side: Direction) -> Option<f64> {
        self.rates[side as usize]
    }

    /// Returns the limit of the faster direction, or that of the other direction if the first is unknown.
    pub fn limit(&self) -> Option<&Limit> {
        let [down, up] = self.rates.map(Option::unwrap_or_default);
        let (first, second) =
            if up > down { (Direction::Up, Direction::Down) } else { (Direction::Down, Direction::Up) };
        self.session.limit(first).or_else(|| self.session.limit(second))
    }

    /// Computes the rates of `session` since the answer before, or since its start if it is new.
    fn with_rates(before: Option<&Self>, session: Session, may_be_new: bool) -> Self {
        let rates = match before {
            Some(before) if session.seconds == before.session.seconds => before.rates,
            Some(before) => {
                let seconds = session.seconds - before.session.seconds;
                DIRECTIONS.map(|side| rate(session.bytes(side) - before.session.bytes(side), seconds))
            }
            None if may_be_new => DIRECTIONS.map(|side| rate(session.bytes(side), session.seconds)),
            None => [None; 2],
        };
        Self { session, rates }
    }

    /// Returns whether `later` can be this session. After a restart the relay reuses session numbers.
    pub fn can_continue_as(&self, later: &Session) -> bool {
        let Session { client, seconds, bytes_down, bytes_up, .. } = &self.session;
        *client == later.client
            && *seconds <= later.seconds
            && *bytes_down <= later.bytes_down
            && *bytes_up <= later.bytes_up
    }
}

impl LiveSessions {
    /// Replaces the sessions by those of the next answer.
    pub fn update(&mut self, answer: SessionsResponse) {
        let before: HashMap<u64, LiveSession> =
            self.sessions.drain(..).map(|running| (running.session.session, running)).collect();
        // A session in the first answer has an average rate, but no known current rate.
        let may_be_new = std::mem::replace(&mut self.has_answer, true);
        let running = answer.sessions.into_iter().map(|session| {
            let known = before.get(&session.session).filter(|before| before.can_continue_as(&session));
            LiveSession::with_rates(known, session, may_be_new)
        });
        self.sessions = running.collect();
        let known = |side| self.sessions.iter().filter_map(move |running| running.rate(side));
        let rates = DIRECTIONS.map(|side| known(side).fold(0.0, |sum, rate| sum + rate));
        let pipes = answer.pipes_open.zip(answer.pipes_idle);
        self.summary = RelaySummary { version: answer.version, pipes, pools: answer.pools, rates };
    }
}

fn rate(bytes: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| bytes as f64 * 8.0 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(sessions: &[(u64, f64, u64, u64)]) -> SessionsResponse {
        let session = |&(session, seconds, bytes_down, bytes_up)| Session {
            session,
            seconds,
            bytes_down,
            bytes_up,
            ..Session::default()
        };
        SessionsResponse { sessions: sessions.iter().map(session).collect(), ..SessionsResponse::default() }
    }

    fn rates(live: &LiveSessions) -> Vec<[Option<f64>; 2]> {
        live.sessions.iter().map(|running| DIRECTIONS.map(|side| running.rate(side))).collect()
    }

    #[test]
    fn rates_use_the_clock_of_the_relay() {
        let mut live = LiveSessions::default();
        live.update(answer(&[(1, 100.0, 5_000_000, 1000)]));
        assert_eq!(rates(&live), [[None, None]], "no rate before the second answer");
        live.update(answer(&[(1, 102.0, 6_000_000, 1000), (2, 0.5, 1000, 500)]));
        let expected = [[Some(4_000_000.0), Some(0.0)], [Some(16_000.0), Some(8000.0)]];
        assert_eq!(rates(&live), expected, "two seconds, and a session that has started since");
        assert_eq!(live.summary.rates, [4_016_000.0, 8000.0]);
        // A repeated answer does not change the rates.
        live.update(answer(&[(1, 102.0, 6_000_000, 1000), (2, 0.5, 1000, 500)]));
        assert_eq!(rates(&live), expected);
        live.update(answer(&[]));
        assert_eq!(live.summary.rates, [0.0, 0.0]);
    }

    #[test]
    fn sessions_of_a_restarted_relay_are_new_despite_equal_numbers() {
        let mut live = LiveSessions::default();
        live.update(answer(&[(1, 100.0, 5_000_000, 1000)]));
        live.update(answer(&[(1, 2.0, 1000, 0)]));
        assert_eq!(rates(&live), [[Some(4000.0), Some(0.0)]]);
    }

    #[test]
    fn limit_is_that_of_the_faster_direction() {
        let both = r#"{"version":"1","sessions":[{"session":1,"limits":{
            "down":{"section":"up","by":"path_rate","why":"-"},"up":{"section":"down","by":"of a later version"}}}]}"#;
        let mut live = LiveSessions::default();
        live.update(SessionsResponse::parse(both).unwrap());
        let mut running = live.sessions.remove(0);
        let mut limited = |rates| {
            running.rates = rates;
            running.limit().unwrap().factor()
        };
        assert_eq!(limited([None, None]), "up:path_rate");
        assert_eq!(limited([Some(1.0), Some(2.0)]), "down:of a later version");
        running.session.limits.as_mut().unwrap().up = None;
        assert_eq!(running.limit().unwrap().factor(), "up:path_rate", "the limit of the other direction is used");
        running.session.limits = None;
        assert!(running.limit().is_none());
    }
}
