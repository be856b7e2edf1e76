//! Hysteresis of the standing choice: a path replaces it only if it is better by a margin and for a dwell time, which
//! grows with the number of recent changes. A path that has become much worse than before is replaced at once, and so
//! is a path that sessions have shown to be worse than direct.

use std::time::Duration;

use super::candidates::Hops;

/// Smallest gain that justifies a change to another relay path.
const MARGIN: f64 = 1.04;

/// Smallest gain that justifies a change to direct. It is smaller because relays have costs for other sessions.
const MARGIN_TO_DIRECT: f64 = 1.02;

/// Smallest gain that justifies a change to a path without sessions. It is predicted from reports, and the best of many
/// such predictions is probably too good.
const UNTRIED_MARGIN: f64 = 1.3;

/// Dwell time without recent changes, in seconds: how long another path must be better.
const DWELL: f64 = 3.0;

/// Longest dwell time in seconds.
const MAX_DWELL: f64 = 300.0;

/// Half-life of the count of changes, in seconds.
const CHANGE_HALF_LIFE: f64 = 300.0;

/// Time without a session after which the dwell time no longer applies.
const IDLE: Duration = Duration::from_secs(30);

/// A path has degraded if its prediction is worse by these factors: the first against its recent mean, the second
/// against the best path.
const DEGRADED_FACTOR: f64 = 1.5;
const BEATEN_FACTOR: f64 = 1.25;

/// The window for recent predictions, in seconds.
const RECENT_SECONDS: f64 = 60.0;

/// Number of earlier choices that are remembered: only a return to one of them counts as a change, because learning is
/// not flapping.
const MAX_PREVIOUS: usize = 3;

/// A usable path with its predicted duration, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AvailablePath {
    pub hops: Hops,
    pub predicted: f64,
    /// Whether the prediction is based on sessions of this relay.
    pub is_experienced: bool,
}

/// The decision about the standing choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StandingDecision {
    /// The best path is chosen, and may be the previous choice.
    Best,
    /// The previous choice is kept: another path is better, but by too little or for too short a time.
    Kept,
    /// The previous choice has become much worse than before.
    Degraded,
    /// The previous choice is no longer usable.
    Unavailable,
}

/// The standing choice of one prefix and size.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StandingChoice {
    current: Option<Hops>,
    /// Recent mean of the predictions for the chosen path, in seconds.
    recent_prediction: f64,
    /// Time of the last decision.
    last_decision: Duration,
    /// Time since which another path is better; `None` if no path is.
    beaten_since: Option<Duration>,
    /// Number of returns to an earlier choice; older ones count less.
    changes: f64,
    /// The choices before the current one.
    previous: [Option<Hops>; MAX_PREVIOUS],
}

impl StandingChoice {
    /// The path of the standing choice.
    pub const fn current(&self) -> Option<Hops> {
        self.current
    }

    /// Multiplies the mean of recent predictions by `factor`, when later predictions are for another kind of visit.
    pub const fn rescale(&mut self, factor: f64) {
        self.recent_prediction *= factor;
    }

    /// Selects one of `paths`, which are sorted, the best first, and not empty. Returns its index and the decision.
    pub fn decide(&mut self, paths: &[AvailablePath], now: Duration) -> (usize, StandingDecision) {
        let idle = now.saturating_sub(std::mem::replace(&mut self.last_decision, now));
        self.changes *= (-idle.as_secs_f64() / CHANGE_HALF_LIFE).exp2();
        let Some(current) = self.current else { return self.switch_to_best(paths, StandingDecision::Best) };
        let Some(index) = paths.iter().position(|path| path.hops == current) else {
            return self.switch_to_best(paths, StandingDecision::Unavailable);
        };
        let verdict = self.evaluate(paths, index, idle, now);
        if index > 0 && verdict != StandingDecision::Kept {
            if self.previous.contains(&Some(paths[0].hops)) {
                self.changes += 1.0;
            }
            self.previous.rotate_right(1);
            self.previous[0] = self.current;
            return self.switch_to_best(paths, verdict);
        }
        self.recent_prediction +=
            (paths[index].predicted - self.recent_prediction) * (idle.as_secs_f64() / RECENT_SECONDS).min(1.0);
        (index, verdict)
    }

    fn evaluate(&mut self, paths: &[AvailablePath], index: usize, idle: Duration, now: Duration) -> StandingDecision {
        let (best, current) = (&paths[0], &paths[index]);
        let gain = current.predicted / best.predicted;
        let margin = match best {
            AvailablePath { is_experienced: false, .. } if current.is_experienced => UNTRIED_MARGIN,
            best if best.hops.is_direct() => MARGIN_TO_DIRECT,
            _ => MARGIN,
        };
        if index == 0 || gain < margin {
            self.beaten_since = None;
            return if index == 0 { StandingDecision::Best } else { StandingDecision::Kept };
        }
        if gain >= BEATEN_FACTOR && current.predicted >= DEGRADED_FACTOR * self.recent_prediction {
            return StandingDecision::Degraded;
        }
        let is_beaten = |direct: &AvailablePath| {
            current.predicted > direct.predicted * MARGIN_TO_DIRECT && direct.is_experienced && current.is_experienced
        };
        let worse_than_direct = paths.iter().find(|path| path.hops.is_direct()).is_some_and(is_beaten);
        let beaten_since = *self.beaten_since.get_or_insert(now);
        let dwell = (DWELL * self.changes.exp2()).min(MAX_DWELL);
        let is_dwell_over = now.saturating_sub(beaten_since).as_secs_f64() >= dwell;
        if worse_than_direct || is_dwell_over || idle >= IDLE { StandingDecision::Best } else { StandingDecision::Kept }
    }

    fn switch_to_best(&mut self, paths: &[AvailablePath], verdict: StandingDecision) -> (usize, StandingDecision) {
        self.current = Some(paths[0].hops);
        self.recent_prediction = paths[0].predicted;
        self.beaten_since = None;
        (0, verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::candidates::Candidate;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(1000.0 + seconds)
    }

    fn hops(relays: &[u32]) -> Hops {
        Hops::from_candidate(&Candidate { relays: relays.to_vec() }).unwrap()
    }

    /// Open paths with these predictions: direct, and through relay 1 and relay 2; the best first.
    fn open(direct: f64, one: f64, two: f64, experienced: bool) -> Vec<AvailablePath> {
        let open =
            |relays: &[u32], predicted| AvailablePath { hops: hops(relays), predicted, is_experienced: experienced };
        let mut all = vec![open(&[], direct), open(&[1], one), open(&[2], two)];
        all.sort_by(|one, other| one.predicted.total_cmp(&other.predicted));
        all
    }

    /// A standing choice that has kept relay 1 for long.
    fn settled() -> StandingChoice {
        let mut standing = StandingChoice::default();
        for second in 0..10 {
            standing.decide(&open(3.0, 1.0, 1.5, false), at(f64::from(second) - 10.0));
        }
        assert_eq!(standing.current(), Some(hops(&[1])));
        standing
    }

    #[test]
    fn small_gain_does_not_change_the_choice() {
        let mut standing = settled();
        for second in 0..100 {
            let (_, verdict) = standing.decide(&open(3.0, 1.0, 0.97, false), at(second.into()));
            assert_eq!((verdict, standing.current()), (StandingDecision::Kept, Some(hops(&[1]))));
        }
    }

    #[test]
    fn gain_must_last_before_a_change() {
        let mut standing = settled();
        for (second, predicted) in [(0.0, 0.8), (2.9, 0.8), (3.0, 1.2), (4.0, 0.8), (6.9, 0.8)] {
            standing.decide(&open(3.0, 1.0, predicted, false), at(second));
            assert_eq!(standing.current(), Some(hops(&[1])), "after {second} s");
        }
        let (place, verdict) = standing.decide(&open(3.0, 1.0, 0.8, false), at(7.0));
        assert_eq!((place, verdict, standing.current()), (0, StandingDecision::Best, Some(hops(&[2]))));
    }

    #[test]
    fn dwell_time_grows_with_recent_changes() {
        let mut standing = settled();
        let mut changes = Vec::new();
        for tenth in 0..18_000 {
            let now = f64::from(tenth) / 10.0;
            // The better path changes every 20 s, as if load followed the choice.
            let (one, two) = if ((now / 20.0) as u64).is_multiple_of(2) { (1.0, 0.8) } else { (0.8, 1.0) };
            let before = standing.current();
            standing.decide(&open(3.0, one, two, false), at(now));
            if standing.current() != before {
                changes.push(now);
            }
        }
        assert!((2..=18).contains(&changes.len()), "{changes:?}");
    }

    #[test]
    fn degraded_path_is_replaced_at_once() {
        let mut standing = settled();
        let (place, verdict) = standing.decide(&open(3.0, 1.9, 1.5, false), at(0.1));
        assert_eq!((place, verdict, standing.current()), (0, StandingDecision::Degraded, Some(hops(&[2]))));
    }

    #[test]
    fn equal_slowdown_of_all_paths_keeps_the_choice() {
        let mut standing = settled();
        let (_, verdict) = standing.decide(&open(9.0, 3.0, 4.5, false), at(0.1));
        assert_eq!((verdict, standing.current()), (StandingDecision::Best, Some(hops(&[1]))));
    }

    #[test]
    fn path_that_sessions_show_slower_than_direct_is_dropped() {
        let mut standing = settled();
        let (_, verdict) = standing.decide(&open(1.0, 1.2, 1.5, false), at(0.1));
        assert_eq!(verdict, StandingDecision::Kept, "a reported gain must last");
        standing.decide(&open(1.0, 1.2, 1.5, true), at(0.2));
        assert_eq!(standing.current(), Some(hops(&[])));
    }

    #[test]
    fn choice_is_made_again_after_a_long_pause() {
        let mut standing = settled();
        standing.decide(&open(3.0, 1.0, 0.8, false), at(60.0));
        assert_eq!(standing.current(), Some(hops(&[2])));
    }

    #[test]
    fn unavailable_standing_choice_is_replaced() {
        let mut standing = settled();
        let without: Vec<AvailablePath> =
            open(3.0, 1.0, 1.5, false).into_iter().filter(|open| open.hops != hops(&[1])).collect();
        let (place, verdict) = standing.decide(&without, at(0.1));
        assert_eq!((place, verdict, standing.current()), (0, StandingDecision::Unavailable, Some(hops(&[2]))));
    }
}
