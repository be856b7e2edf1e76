//! First and later visits. Relays keep their sections open, so a session that follows others begins with their
//! congestion windows, and may take half the time. A path with only occasional trial sessions has been measured on
//! first visits only, so its prediction is corrected to the time it would have if all sessions used the path.

use std::time::Duration;

/// A session that begins within this time after the end of another session is a later visit. Without data, a window
/// halves for each retransmission timeout (RFC 2861), so after about three of them it is the initial window.
const LATER_GAP: Duration = Duration::from_secs(1);

/// Number of later visits in a row after which the windows are open: sessions alternate between two connections,
/// because each connection is available again one round trip after its session, and each needs two sessions.
const OPENING_VISITS: u8 = 4;

/// From this share of recent sessions on, later visits are the usual ones, until their share falls below `RARE`.
const FREQUENT: f64 = 0.6;
const RARE: f64 = 0.4;

/// Weight of the newest session in the share.
const SHARE_WEIGHT: f64 = 0.25;

/// The assumed share of the modelled gain before any session has shown its gain. The model keeps a window until the
/// next session, but each of the alternating connections is idle for about a retransmission timeout, which halves its
/// window.
const GAIN_SHARE: f64 = 0.5;

/// Weight of the modelled gain, in sessions with open windows.
const MODEL_WEIGHT: f64 = 1.0;

/// Factor on the weight of earlier sessions in the gain at each new session.
const GAIN_DECAY: f64 = 0.95;

/// The state of the sections between relays when a session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Visit {
    /// The sections are ready and have the initial window.
    #[default]
    First,
    /// Earlier sessions have opened the windows.
    Later,
}

impl Visit {
    /// The openness of the windows, from 0 (initial) to 1 (open).
    pub const fn openness(self) -> f64 {
        match self {
            Self::First => 0.0,
            Self::Later => 1.0,
        }
    }
}

/// The end of the latest session; zero before the first.
#[derive(Debug, Clone, Copy, Default)]
struct LatestEnd(Duration);

impl LatestEnd {
    /// Whether a session that begins at `start` is a later visit.
    fn is_followed_at(self, start: Duration) -> bool {
        !self.0.is_zero() && start <= self.0.saturating_add(LATER_GAP)
    }

    /// Records that a session was active until `now`.
    fn extend(&mut self, now: Duration) {
        self.0 = self.0.max(now);
    }
}

/// The sessions on one path to one prefix.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PathVisits {
    /// Number of later visits in a row.
    streak: u8,
    latest: LatestEnd,
}

impl PathVisits {
    /// Records a session that began at `start` and ended at `end`.
    pub fn record(&mut self, start: Duration, end: Duration) {
        self.streak = if self.latest.is_followed_at(start) { self.streak.saturating_add(1) } else { 0 };
        self.latest.extend(end);
    }

    /// Records that a session was active until `now`.
    pub fn extend(&mut self, now: Duration) {
        self.latest.extend(now);
    }

    /// Whether the windows are still opening, so that the next session will be faster than the last one.
    pub fn is_opening(&self, now: Duration) -> bool {
        self.streak < OPENING_VISITS && self.latest.is_followed_at(now)
    }

    /// The openness of the windows at the latest session: 0 at a first visit, 1 after [`OPENING_VISITS`] later visits
    /// in a row.
    pub fn openness(&self) -> f64 {
        f64::from(self.streak.min(OPENING_VISITS)) / f64::from(OPENING_VISITS)
    }
}

/// The share of later visits among the sessions to one prefix.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct VisitRate {
    share: f64,
    usual: Visit,
    latest: LatestEnd,
}

impl VisitRate {
    /// Records a session to the prefix on any path.
    pub fn record(&mut self, start: Duration, end: Duration) {
        let is_later = f64::from(u8::from(self.latest.is_followed_at(start)));
        self.share += (is_later - self.share) * SHARE_WEIGHT;
        self.latest.extend(end);
        match self.usual {
            Visit::First if self.share >= FREQUENT => self.usual = Visit::Later,
            Visit::Later if self.share < RARE => self.usual = Visit::First,
            _ => {}
        }
    }

    /// Records that a session was active until `now`.
    pub fn extend(&mut self, now: Duration) {
        self.latest.extend(now);
    }

    /// The probable visit of the next session, on a path that all sessions use.
    pub const fn usual(&self) -> Visit {
        self.usual
    }
}

/// The decrease of the logarithm of the time from first to later visits, from the modelled times. It is never negative:
/// a later visit is slower only if losses have ended slow start, and the loss is rarely known well enough.
pub(super) fn log_gain(first: f64, later: f64) -> f64 {
    ((first / later).ln() * GAIN_SHARE).max(0.0)
}

/// The decrease of the logarithm of the time from first to later visits, from sessions on one path, by linear
/// regression. It is much smaller than the modelled one where a line limits the rate and the line's rate is not known
/// yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LearnedGain {
    squares: f64,
    products: f64,
}

impl LearnedGain {
    pub const NONE: Self = Self { squares: 0.0, products: 0.0 };

    /// Records a session whose windows were wider open by `openness_delta` than at earlier sessions, and whose
    /// logarithm of the time was smaller by `log_reduction`.
    pub fn record(&mut self, openness_delta: f64, log_reduction: f64) {
        self.squares = self.squares * GAIN_DECAY + openness_delta * openness_delta;
        self.products = self.products * GAIN_DECAY + openness_delta * log_reduction;
    }

    /// The estimated gain, if the model predicts `modelled_gain`.
    pub fn estimate(&self, modelled_gain: f64) -> f64 {
        (modelled_gain * MODEL_WEIGHT + self.products) / (MODEL_WEIGHT + self.squares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(100_000 + milliseconds)
    }

    #[test]
    fn windows_open_from_visit_to_visit_and_close_in_a_pause() {
        let mut visits = PathVisits::default();
        let mut openness = |begin: u64| {
            visits.record(at(begin), at(begin + 300));
            (visits.openness(), visits.is_opening(at(begin + 500)))
        };
        let row = [0, 400, 800, 1200, 1600, 2000].map(&mut openness);
        assert_eq!(row, [(0.0, true), (0.25, true), (0.5, true), (0.75, true), (1.0, false), (1.0, false)]);
        assert_eq!(openness(3300), (1.0, false), "a second after the last one");
        assert_eq!(openness(4601), (0.0, true));
        assert!(!visits.is_opening(at(10_000)), "the next session would be a first visit");
    }

    #[test]
    fn concurrent_session_is_a_later_visit() {
        let mut visits = PathVisits::default();
        visits.record(at(0), at(5000));
        visits.record(at(100), at(400));
        assert_eq!(visits.openness(), 0.25);
        visits.record(at(5500), at(5600));
        assert_eq!(visits.openness(), 0.5, "the end of the longer session counts");
        visits.extend(at(20_000));
        visits.record(at(20_500), at(20_600));
        assert_eq!(visits.openness(), 0.75, "the session followed a long session");
    }

    #[test]
    fn few_unusual_sessions_do_not_change_the_usual_visit() {
        let mut rate = VisitRate::default();
        let mut now = 0;
        let mut usual_after = |pauses: &[u64]| {
            for pause in pauses {
                now += pause;
                rate.record(at(now), at(now + 100));
                now += 100;
            }
            rate.usual()
        };
        assert_eq!(usual_after(&[0, 50, 50, 50]), Visit::First, "too few sessions");
        assert_eq!(usual_after(&[50, 50]), Visit::Later);
        assert_eq!(usual_after(&[5000, 50, 50, 5000]), Visit::Later);
        assert_eq!(usual_after(&[5000, 5000, 5000]), Visit::First);
        assert_eq!(usual_after(&[50, 5000, 50, 5000, 50]), Visit::First);
    }

    #[test]
    fn modelled_gain_is_a_share_of_the_savings_and_never_negative() {
        assert!((log_gain(0.4, 0.1) - 2.0_f64.ln()).abs() < 1e-9);
        assert_eq!([log_gain(0.1, 0.4), log_gain(0.0, 0.0)], [0.0, 0.0]);
    }

    #[test]
    fn learned_gain_follows_the_sessions() {
        let after = |sessions: &[(f64, f64)]| {
            let mut gain = LearnedGain::NONE;
            sessions.iter().for_each(|(wider, faster)| gain.record(*wider, *faster));
            gain.estimate(0.6)
        };
        assert_eq!(after(&[]), 0.6);
        let opening = [0.25, 0.5, 0.75, 1.0];
        let seen = |gain: f64| after(&opening.map(|wider| (wider, gain * wider)));
        assert!((0.0..0.3).contains(&seen(0.0)) && (0.9..1.2).contains(&seen(1.2)), "{} {}", seen(0.0), seen(1.2));
        assert_eq!(after(&[(0.0, 2.0), (0.0, -1.0)]), 0.6, "equally open windows show nothing");
    }
}
