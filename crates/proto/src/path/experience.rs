//! The history of one path to one prefix, from sessions of this relay: transfer times by size, and the pause after a
//! failure. It takes precedence over reports.

use std::time::Duration;

use super::visits::{LearnedGain, PathVisits};

/// The half-life of a sample's weight.
const HALF_LIFE: Duration = Duration::from_secs(300);

/// The weight of reports, in sessions.
const REPORT_WEIGHT: f64 = 0.5;

/// Largest weight of the history, in sessions.
const MAX_WEIGHT: f64 = 8.0;

/// A session disappoints if it is slower than expected by this factor.
const SLOW_FACTOR: f64 = 1.5;

/// Number of disappointing sessions in a row that replace the mean.
const SLOW_STREAK: u8 = 3;

/// Half of the excess counts for a session that is slower than expected by more than this factor, as the excess may be
/// random. [`SLOW_STREAK`] disappointing sessions in a row count fully.
const OUTLIER_FACTOR: f64 = 1.4;

/// The first session after a pause replaces the mean if it is faster than expected by this factor, because no session
/// is faster than its path.
const FAST_FACTOR: f64 = 1.5;

/// Factor on the weight of a history for each size class between it and the requested class.
const NEIGHBOUR_WEIGHT: f64 = 0.7;

/// A class of sizes with the same nearest power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SizeClass(u8);

/// Limits of the size classes, 1 KiB and 1 TiB; smaller and larger sizes belong to the first and last class.
const MIN_LOG2_BYTES: f64 = 10.0;
const MAX_LOG2_BYTES: f64 = 40.0;

impl SizeClass {
    pub fn for_bytes(bytes: u64) -> Self {
        Self((bytes as f64).log2().round().clamp(MIN_LOG2_BYTES, MAX_LOG2_BYTES) as u8)
    }

    /// The representative size of the class, in bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.0
    }
}

/// Sessions of one size class over one path to one prefix. All times are logarithms of seconds, for the representative
/// size of the class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PathAverages {
    class: SizeClass,
    /// Mean openness of the windows at these sessions.
    openness: f64,
    /// Decrease of the logarithm of the time from initial to open windows.
    gain: LearnedGain,
    /// Mean logarithm of the transfer times.
    mean_log: f64,
    /// Mean logarithm of the ratio of transfer time to the map's prediction.
    log_excess: f64,
    /// Number of sessions that the means are based on; older ones count less.
    weight: f64,
    /// Number of disappointing sessions in a row, and the means of their logarithms of time and of their openness.
    slow_streak: u8,
    streak_mean_log: f64,
    streak_openness: f64,
    updated_at: Duration,
}

/// A session that has ended. All times are logarithms of seconds, for the representative size of its class.
#[derive(Debug, Clone, Copy)]
pub(super) struct RatedSession {
    /// The measured duration of the session.
    pub log: f64,
    /// The openness of the windows, from 0 (initial) to 1 (open).
    pub openness: f64,
    /// The time that the map predicted.
    pub promised: f64,
    /// The time that the chooser predicted, from map and experience.
    pub expected: f64,
}

impl RatedSession {
    /// The time, with half of the excess above [`OUTLIER_FACTOR`], which may be random.
    fn believed_log(&self) -> f64 {
        self.log - (self.log - self.expected - OUTLIER_FACTOR.ln()).max(0.0) / 2.0
    }
}

/// The history of one path to one prefix, by size class.
#[derive(Debug, Clone, Default)]
pub(super) struct PathHistory {
    averages: Vec<PathAverages>,
    pub visits: PathVisits,
}

impl PathHistory {
    /// The entry of the class, created if missing.
    pub fn entry(&mut self, class: SizeClass) -> &mut PathAverages {
        let averages = &mut self.averages;
        let index = averages.iter().position(|it| it.class == class).unwrap_or_else(|| {
            averages.push(PathAverages::new(class));
            averages.len() - 1
        });
        &mut averages[index]
    }

    /// The entry of the nearest class that has sessions, and the factor on its weight for the distance.
    pub fn nearest(&self, class: SizeClass) -> Option<(&PathAverages, f64)> {
        let distance = |it: &PathAverages| it.class.0.abs_diff(class.0);
        let nearest = self.averages.iter().filter(|it| it.weight > 0.0).min_by_key(|it| distance(it))?;
        Some((nearest, NEIGHBOUR_WEIGHT.powi(distance(nearest).into())))
    }

    /// The ratio of the sessions' times to the map's predictions, as a logarithm, from the nearest class; 0 without
    /// sessions.
    pub fn log_excess(&self, class: SizeClass, now: Duration) -> f64 {
        self.nearest(class).map_or(0.0, |(nearest, share)| {
            let weight = nearest.weight(now) * share;
            nearest.log_excess * weight / (weight + REPORT_WEIGHT)
        })
    }
}

impl PathAverages {
    const fn new(class: SizeClass) -> Self {
        Self {
            class,
            mean_log: 0.0,
            openness: 0.0,
            gain: LearnedGain::NONE,
            log_excess: 0.0,
            weight: 0.0,
            slow_streak: 0,
            streak_mean_log: 0.0,
            streak_openness: 0.0,
            updated_at: Duration::ZERO,
        }
    }

    pub const fn class(&self) -> SizeClass {
        self.class
    }

    /// The weight of the sessions at `now`.
    pub fn weight(&self, now: Duration) -> f64 {
        self.weight * decay_factor(now.saturating_sub(self.updated_at), HALF_LIFE)
    }

    /// The mean time of sessions with windows of this `openness`, if the model predicts that open windows reduce the
    /// logarithm of the time by `log_gain`.
    fn mean_log_at(&self, openness: f64, log_gain: f64) -> f64 {
        self.mean_log + self.gain.estimate(log_gain) * (self.openness - openness)
    }

    /// Returns the predicted time of a session with windows of this `openness`. `reported_log` is the prediction from
    /// reports alone, and `share` a factor on the weight of the history.
    pub fn predict(&self, openness: f64, log_gain: f64, reported_log: f64, share: f64, now: Duration) -> f64 {
        let weight = self.weight(now) * share;
        (weight * self.mean_log_at(openness, log_gain) + REPORT_WEIGHT * reported_log) / (weight + REPORT_WEIGHT)
    }

    /// Records a session. Returns whether the last [`SLOW_STREAK`] sessions have disappointed.
    pub fn record(&mut self, session: &RatedSession, now: Duration) -> bool {
        if !(session.log - session.promised).is_finite() {
            return false;
        }
        let believed_log = session.believed_log();
        if self.weight > 0.0 {
            self.gain.record(session.openness - self.openness, self.mean_log - believed_log);
        }
        self.weight = (self.weight(now) + 1.0).min(MAX_WEIGHT);
        self.updated_at = self.updated_at.max(now);
        self.mean_log += (believed_log - self.mean_log) / self.weight;
        self.openness += (session.openness - self.openness) / self.weight;
        self.log_excess += (believed_log - session.promised - self.log_excess) / self.weight;
        self.update_streak(session)
    }

    /// Like `record`, for the first session after a pause: if it is faster than expected by [`FAST_FACTOR`], the
    /// earlier history is dropped.
    pub fn record_trial(&mut self, session: &RatedSession, now: Duration) -> bool {
        if session.log < session.expected - FAST_FACTOR.ln() {
            *self = Self {
                mean_log: session.log,
                openness: session.openness,
                log_excess: session.log - session.promised,
                weight: MAX_WEIGHT,
                updated_at: now,
                ..Self::new(self.class)
            };
        }
        self.record(session, now)
    }

    /// Counts consecutive sessions that disappoint. [`SLOW_STREAK`] of them replace the history, and the result is
    /// true.
    fn update_streak(&mut self, session: &RatedSession) -> bool {
        if session.log < session.expected + SLOW_FACTOR.ln() {
            (self.slow_streak, self.streak_mean_log, self.streak_openness) = (0, 0.0, 0.0);
            return false;
        }
        self.slow_streak = self.slow_streak.saturating_add(1);
        self.streak_mean_log += (session.log - self.streak_mean_log) / f64::from(self.slow_streak);
        self.streak_openness += (session.openness - self.streak_openness) / f64::from(self.slow_streak);
        if self.slow_streak < SLOW_STREAK {
            return false;
        }
        (self.mean_log, self.log_excess) = (self.streak_mean_log, self.streak_mean_log - session.promised);
        self.openness = self.streak_openness;
        (self.weight, self.slow_streak) = (MAX_WEIGHT, 0);
        true
    }
}

/// The factor on a weight after `age` with this half-life.
fn decay_factor(age: Duration, half_life: Duration) -> f64 {
    (-age.as_secs_f64() / half_life.as_secs_f64()).exp2()
}

/// The circuit breaker of a path to a prefix that failed: the path is not used for a pause, which doubles with each
/// failure.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct CircuitBreaker {
    open_duration: Duration,
    open_until: Duration,
    /// After the pause, only one trial session may use the path until a trial has succeeded.
    needs_trial: bool,
    /// A trial session has started.
    is_trial_running: bool,
    /// A trial has succeeded; the length of the pause is kept.
    is_closed: bool,
}

/// Whether a path may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BreakerState {
    /// Every session may use the path.
    Closed,
    /// One session may try the path.
    HalfOpen,
    /// No session may use the path.
    Open,
}

/// The shortest and the longest pause.
const MIN_OPEN: Duration = Duration::from_secs(10);
const MAX_OPEN: Duration = Duration::from_secs(600);

impl CircuitBreaker {
    /// Opens the breaker at `now`. Failures during a pause are from sessions that began earlier, and do not prolong it.
    pub fn trip(&mut self, needs_trial: bool, now: Duration) {
        if self.state(now) == BreakerState::Open {
            self.needs_trial |= needs_trial;
            return;
        }
        let is_forgotten = now > self.open_until.saturating_add(MAX_OPEN);
        let previous = if is_forgotten { Duration::ZERO } else { self.open_duration };
        let length = (previous * 2).clamp(MIN_OPEN, MAX_OPEN);
        *self = Self {
            open_duration: length,
            open_until: now.saturating_add(length),
            needs_trial,
            is_trial_running: false,
            is_closed: false,
        };
    }

    /// The state of the breaker at `now`.
    pub fn state(&self, now: Duration) -> BreakerState {
        match self {
            Self { is_closed: true, .. } => BreakerState::Closed,
            Self { open_until: until, .. } if now < *until => BreakerState::Open,
            Self { needs_trial, .. } => {
                if *needs_trial {
                    BreakerState::HalfOpen
                } else {
                    BreakerState::Closed
                }
            }
        }
    }

    /// Starts a trial by one session. Other sessions do not use the path for a doubled pause, unless the trial
    /// succeeds. A trial during a pause, because all paths fail, does not prolong it.
    pub fn begin_trial(&mut self, now: Duration) {
        if self.state(now) != BreakerState::Open {
            self.open_duration = (self.open_duration * 2).clamp(MIN_OPEN, MAX_OPEN);
            self.open_until = now.saturating_add(self.open_duration);
        }
        self.is_trial_running = true;
    }

    /// Records a successful session, which closes the breaker if a trial has started.
    pub fn record_success(&mut self) {
        self.is_closed |= self.is_trial_running;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    /// The map's prediction, as a logarithm of seconds.
    const PROMISED: f64 = 0.5;

    const CLASS: SizeClass = SizeClass(11);

    /// The factor by which `experience` predicts sessions to be slower than promised, where reports alone predict the
    /// factor `exp(reported)`.
    fn slower(experience: &PathAverages, reported: f64, now: Duration) -> f64 {
        (predict(experience, PROMISED + reported, now) - PROMISED).exp()
    }

    fn predict(experience: &PathAverages, reported: f64, now: Duration) -> f64 {
        experience.predict(0.0, 0.0, reported, 1.0, now)
    }

    const fn session(log: f64, promised: f64, expected: f64) -> RatedSession {
        RatedSession { log, openness: 0.0, promised, expected }
    }

    fn record_session(experience: &mut PathAverages, factor: f64) -> bool {
        let expected = predict(experience, PROMISED, NOW);
        experience.record(&session(PROMISED + factor.ln(), PROMISED, expected), NOW)
    }

    /// The experience after `sessions` sessions that are slower than expected by `factor`.
    fn after(sessions: u32, factor: f64) -> PathAverages {
        let mut experience = PathAverages::new(CLASS);
        for _ in 0..sessions {
            record_session(&mut experience, factor);
        }
        experience
    }

    #[test]
    fn sessions_outweigh_reports() {
        let correction = slower(&after(3, 3.0), (1.0_f64 / 8.0).ln(), NOW);
        assert!((2.0..3.0).contains(&correction), "{correction}");
        assert_eq!(predict(&PathAverages::new(CLASS), 7.0, NOW), 7.0, "no session yet");
    }

    /// Masuya 2014, 8 MiB through Osaka: the line of the target is the limit, so open windows gain 6 %.
    #[test]
    fn sessions_correct_the_gain_that_the_model_predicts() {
        let (first, later, modelled) = (1.124_f64.ln(), 1.063_f64.ln(), 0.55);
        let mut experience = PathAverages::new(CLASS);
        let predict = |experience: &PathAverages, openness: f64| {
            experience.predict(openness, modelled, first - modelled * openness, 1.0, NOW)
        };
        for (log, openness) in [(first, 0.0), (first, 0.25), (later, 0.5), (later, 0.75), (later, 1.0)] {
            let expected = predict(&experience, openness);
            experience.record(&RatedSession { log, openness, promised: first, expected }, NOW);
        }
        let (at_first, at_later) = (predict(&experience, 0.0).exp(), predict(&experience, 1.0).exp());
        assert!((0.85..1.06).contains(&at_later), "{at_later}");
        assert!((1.06..1.3).contains(&at_first), "{at_first}");
    }

    #[test]
    fn changed_map_prediction_counts_only_after_sessions() {
        let experience = after(8, 1.0);
        for other in [-3.0, 3.0] {
            let expected = predict(&experience, PROMISED + other, NOW);
            assert!((expected - PROMISED).abs() < 0.2, "follows the sessions: {expected}");
        }
        let mut confirmed = experience;
        for _ in 0..16 {
            let expected = predict(&confirmed, PROMISED - 3.0, NOW);
            confirmed.record(&session(PROMISED - 3.0, PROMISED - 3.0, expected), NOW);
        }
        let now = predict(&confirmed, PROMISED - 3.0, NOW);
        assert!(now < PROMISED - 2.5, "follows the confirmed map: {now}");
    }

    #[test]
    fn weight_of_sessions_falls_with_the_size_distance() {
        let mut past = PathHistory::default();
        *past.entry(CLASS) = after(8, 4.0);
        let share =
            |past: &PathHistory, class| past.nearest(SizeClass(class)).map(|(near, share)| (near.class(), share));
        assert_eq!(
            [11, 12, 9].map(|class| share(&past, class)),
            [1.0, 0.7, 0.7 * 0.7].map(|share| Some((CLASS, share)))
        );
        past.entry(SizeClass(9));
        assert_eq!(share(&past, 9), Some((CLASS, 0.7 * 0.7)), "no session of this class yet");
        *past.entry(SizeClass(9)) = PathAverages { class: SizeClass(9), ..after(1, 1.0) };
        assert_eq!(share(&past, 9), Some((SizeClass(9), 1.0)));
        assert!(
            past.log_excess(CLASS, NOW) > past.log_excess(SizeClass(12), NOW)
                && past.log_excess(SizeClass(9), NOW).abs() < 0.01
        );
    }

    #[test]
    fn size_class_is_the_nearest_power_of_two() {
        let class = |bytes: u64| SizeClass::for_bytes(bytes).bytes();
        assert_eq!([0, 1000, 100_000, 90_000, u64::MAX].map(class), [1 << 10, 1 << 10, 1 << 17, 1 << 16, 1 << 40]);
    }

    #[test]
    fn old_sessions_count_little() {
        let experience = after(8, 4.0);
        let later = |halves: u32| slower(&experience, 0.0, NOW + HALF_LIFE * halves);
        assert!(later(0) > 3.5 && later(12) < 1.02, "{} and {}", later(0), later(12));
        assert!(experience.weight(NOW + HALF_LIFE) < 4.1);
    }

    #[test]
    fn disappointment_needs_three_slow_sessions_in_a_row() {
        let mut experience = after(8, 1.0);
        assert_eq!([3.0, 3.0, 1.0].map(|factor| record_session(&mut experience, factor)), [false, false, false]);
        assert_eq!([3.0, 3.0, 3.0].map(|factor| record_session(&mut experience, factor)), [false, false, true]);
        assert!(slower(&experience, 0.0, NOW) > 2.5, "adopted at once: {experience:?}");
    }

    #[test]
    fn small_slowdowns_do_not_disappoint_and_values_stay_finite() {
        let mut experience = PathAverages::new(CLASS);
        for _ in 0..20 {
            assert!(!experience.record(&session(PROMISED + 1.3_f64.ln(), PROMISED, PROMISED), NOW));
        }
        experience.record(&session(f64::INFINITY, PROMISED, PROMISED), Duration::ZERO);
        experience.record(&session(f64::NEG_INFINITY, PROMISED, PROMISED), Duration::MAX);
        assert!(predict(&experience, 0.0, NOW).is_finite(), "{experience:?}");
    }

    #[test]
    fn slow_outlier_counts_little_and_fast_trial_much() {
        let mut experience = PathAverages::new(CLASS);
        record_session(&mut experience, 20.0);
        assert!(slower(&experience, 0.0, NOW) < 4.0, "{experience:?}");
        let mut bad = after(8, 8.0);
        record_session(&mut bad, 1.0);
        assert!(slower(&bad, 0.0, NOW) > 4.0, "{bad:?}");
        let expected = predict(&bad, PROMISED, NOW);
        bad.record_trial(&session(PROMISED, PROMISED, expected), NOW);
        assert!(slower(&bad, 0.0, NOW) < 1.1, "{bad:?}");
    }

    const fn second(second: u64) -> Duration {
        Duration::from_secs(1000 + second)
    }

    #[test]
    fn open_time_doubles_and_ignores_failures_while_open() {
        let mut breaker = CircuitBreaker { is_closed: true, ..CircuitBreaker::default() };
        let mut at = 0;
        for wanted in [10, 20, 40, 80, 160, 320, 600, 600] {
            assert_eq!(breaker.state(second(at)), BreakerState::Closed);
            breaker.trip(false, second(at));
            breaker.trip(false, second(at + 5));
            assert_eq!(breaker.state(second(at + wanted - 1)), BreakerState::Open, "{wanted}: {breaker:?}");
            at += wanted;
        }
        breaker.trip(false, second(at + 601));
        assert_eq!(breaker.state(second(at + 611)), BreakerState::Closed, "back to the first open time: {breaker:?}");
    }

    #[test]
    fn half_open_breaker_admits_a_single_trial() {
        let mut breaker = CircuitBreaker::default();
        breaker.trip(true, second(0));
        breaker.record_success();
        assert_eq!([9, 10].map(|at| breaker.state(second(at))), [BreakerState::Open, BreakerState::HalfOpen]);
        breaker.begin_trial(second(10));
        assert_eq!([29, 30].map(|at| breaker.state(second(at))), [BreakerState::Open, BreakerState::HalfOpen]);
        breaker.record_success();
        assert_eq!(breaker.state(second(11)), BreakerState::Closed);
        breaker.trip(true, second(11));
        assert_eq!(
            [50, 51].map(|at| breaker.state(second(at))),
            [BreakerState::Open, BreakerState::HalfOpen],
            "the open time keeps doubling"
        );
    }

    /// Regression: while all paths failed, each session doubled the pause of direct.
    #[test]
    fn trials_during_a_pause_do_not_prolong_it() {
        let mut breaker = CircuitBreaker::default();
        breaker.trip(true, second(0));
        (1..8).for_each(|at| breaker.begin_trial(second(at)));
        assert_eq!([9, 10].map(|at| breaker.state(second(at))), [BreakerState::Open, BreakerState::HalfOpen]);
    }
}
