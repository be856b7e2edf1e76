//! The estimate of one direction of one section, from samples of the connections that have used it.
//!
//! Loss is a share of segments, so samples are weighted by their segments, and weights decay with [`HALF_LIFE`]. To
//! react sooner to a changed section, a sample that is nearly impossible by the estimate reduces the weight of the
//! estimate to that of the sample. A rate is the capacity of the section only if the section was the limit; any other
//! rate is a lower bound.
//!
//! Round-trip times are the minimum of a connection (`tcpi_min_rtt`), because the queue of a bulk transfer is not a
//! property of the section.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::figures::EstimateSnapshot;

/// Time after which the weight of a sample halves.
pub const HALF_LIFE: Duration = Duration::from_secs(120);

/// Half-life of the confidence without new samples, in addition to [`HALF_LIFE`].
const STALE_HALF_LIFE: Duration = Duration::from_secs(600);

/// Number of segments at which the confidence is one half: among so many, no loss or three losses distinguish one
/// section from another.
const HALF_SURE_SEGMENTS: f64 = 50.0;

/// Largest weight of the history, in segments, so that the newest sample always has an effect.
const MAX_SEGMENTS: f64 = 20_000.0;

/// Largest weight of the rates, in samples.
const MAX_RATE_SAMPLES: f64 = 4.0;

/// The figures of one connection since its previous sample.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SectionSample {
    /// Smallest round-trip time of the connection.
    pub rtt: Option<Duration>,
    /// Segments sent, retransmissions included.
    pub segments: u64,
    /// Segments that were retransmitted.
    pub lost: u64,
    /// The delivery rate, in bytes per second.
    pub rate: Option<f64>,
    /// Whether the section was the limit; otherwise `rate` is a lower bound.
    pub rate_is_limit: bool,
    /// Maximum of data in flight, in bytes: the smaller of the two buffers. `None` if unknown.
    pub window: Option<u64>,
}

/// The smoothed figures of one direction of one section.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    rtt: Option<f64>,
    segments: f64,
    lost: f64,
    rate: Option<f64>,
    rates: f64,
    at_least: Option<f64>,
    window: Option<u64>,
    at: Duration,
}

impl Estimate {
    /// The estimate of a report that is `age` old.
    #[must_use]
    pub fn from_snapshot(figures: &EstimateSnapshot, age: Duration, now: Duration) -> Self {
        let segments = figures.segments.clamp(0.0, MAX_SEGMENTS);
        Self {
            rtt: figures.rtt.map(|rtt| rtt.as_secs_f64()),
            segments,
            lost: figures.loss.unwrap_or(0.0).clamp(0.0, 1.0) * segments,
            rate: figures.rate,
            rates: if figures.rate.is_some() { 1.0 } else { 0.0 },
            at_least: figures.at_least,
            window: figures.window,
            at: now.saturating_sub(age),
        }
    }

    /// Records a sample; an empty sample has no effect.
    pub fn record(&mut self, sample: &SectionSample, now: Duration) {
        if *sample == SectionSample::default() {
            return;
        }
        self.decay(now);
        self.record_loss(sample);
        self.record_rtt(sample);
        self.record_rate(sample);
        self.record_window(sample);
    }

    /// Applies the decay for the time since the last sample.
    fn decay(&mut self, now: Duration) {
        let factor = decay_factor(now.saturating_sub(self.at), HALF_LIFE);
        self.segments *= factor;
        self.lost *= factor;
        self.rates *= factor;
        self.at_least = self.at_least.map(|rate| rate * factor);
        self.at = self.at.max(now);
    }

    fn record_loss(&mut self, sample: &SectionSample) {
        #[expect(clippy::cast_precision_loss, reason = "counts of one connection are far below 2^52")]
        let (segments, lost) = (sample.segments as f64, sample.lost.min(sample.segments) as f64);
        if self.is_outlier(segments, lost) {
            if lost * self.segments > self.lost * segments {
                // The old rate does not apply to the changed section.
                (self.rate, self.rates, self.at_least) = (None, 0.0, None);
            }
            self.cap_segments(segments);
        }
        self.segments += segments;
        self.lost += lost;
        self.cap_segments(MAX_SEGMENTS);
    }

    /// Whether the losses differ from the estimate by more than three standard deviations (Poisson) and three losses:
    /// the losses of one full queue occur together.
    fn is_outlier(&self, segments: f64, lost: f64) -> bool {
        let share = if self.segments > 0.0 { self.lost / self.segments } else { return false };
        let expected = share * segments;
        (lost - expected).abs() > 3.0 * expected.sqrt() + 3.0
    }

    /// Caps the weight of the remembered losses at `segments`.
    fn cap_segments(&mut self, segments: f64) {
        if self.segments > segments {
            self.lost *= segments / self.segments;
            self.segments = segments;
        }
    }

    /// Averages the round trips, with a weight of one quarter for the sample. A round trip of half or double the
    /// estimate is a change of route and replaces the estimate.
    fn record_rtt(&mut self, sample: &SectionSample) {
        let Some(rtt) = sample.rtt.map(|rtt| rtt.as_secs_f64()) else { return };
        self.rtt = Some(match self.rtt {
            Some(before) if rtt < 2.0 * before && before < 2.0 * rtt => before + (rtt - before) / 4.0,
            _ => rtt,
        });
    }

    fn record_rate(&mut self, sample: &SectionSample) {
        let Some(rate) = sample.rate.filter(|rate| rate.is_finite() && *rate > 0.0) else { return };
        self.at_least = Some(self.at_least.map_or(rate, |before| before.max(rate)));
        if sample.rate_is_limit {
            self.rates = (self.rates + 1.0).min(MAX_RATE_SAMPLES);
            self.rate = Some(self.rate.map_or(rate, |before| before + (rate - before) / self.rates));
            self.at_least = Some(rate);
        }
    }

    /// Removes the window if more data was in flight: the window is no longer the limit.
    fn record_window(&mut self, sample: &SectionSample) {
        let in_flight = sample.rate.zip(self.rtt).map_or(0.0, |(rate, rtt)| rate * rtt);
        self.window = sample.window.or_else(|| self.window.filter(|window| in_flight <= *window as f64));
    }

    /// Round-trip time without the queue of the relay's own bulk transfers.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.and_then(|rtt| Duration::try_from_secs_f64(rtt).ok())
    }

    /// Share of segments lost, 0 to 1, of those sent in this direction; `None` before any was sent.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        (self.segments > 0.0).then(|| self.lost / self.segments)
    }

    /// Capacity of the section in bytes per second, from samples in which it was the limit, and at least the rate of
    /// any later sample.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.rate.map(|rate| self.at_least.map_or(rate, |least| rate.max(least)))
    }

    /// Lower bound of the capacity in bytes per second.
    #[must_use]
    pub const fn at_least(&self) -> Option<f64> {
        self.at_least
    }

    /// Maximum of data in flight, in bytes: the smaller of the two buffers. `None` if unknown.
    #[must_use]
    pub const fn window(&self) -> Option<u64> {
        self.window
    }

    /// Time of the newest sample; zero before the first.
    #[must_use]
    pub const fn updated_at(&self) -> Duration {
        self.at
    }

    /// Time since the newest sample.
    #[must_use]
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.at)
    }

    /// Confidence of the estimate, 0 to 1: it grows with the number of segments and falls with the age.
    #[must_use]
    pub fn confidence(&self, now: Duration) -> f64 {
        let age = self.age(now);
        let segments = self.segments * decay_factor(age, HALF_LIFE).max(0.25);
        segments / (segments + HALF_SURE_SEGMENTS) * decay_factor(age, STALE_HALF_LIFE)
    }

    /// All figures, for a report to other relays together with [`Estimate::age`].
    #[must_use]
    pub fn snapshot(&self) -> EstimateSnapshot {
        EstimateSnapshot {
            rtt: self.rtt(),
            loss: self.loss(),
            rate: self.rate(),
            at_least: self.at_least,
            window: self.window,
            segments: self.segments,
        }
    }
}

/// The number of segments that yield this confidence, 0 to 1.
pub(super) fn segments_for_confidence(confidence: f64) -> f64 {
    let confidence = confidence.clamp(0.0, 0.999);
    HALF_SURE_SEGMENTS * confidence / (1.0 - confidence)
}

/// The factor on a weight after `age` with this half-life.
fn decay_factor(age: Duration, half_life: Duration) -> f64 {
    (-age.as_secs_f64() / half_life.as_secs_f64()).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn losing(segments: u64, lost: u64) -> SectionSample {
        SectionSample { rtt: Some(Duration::from_millis(20)), segments, lost, ..SectionSample::default() }
    }

    fn carrying(rate: f64, rate_is_limit: bool) -> SectionSample {
        SectionSample { rate: Some(rate), rate_is_limit, ..SectionSample::default() }
    }

    fn of(samples: &[(u64, SectionSample)]) -> Estimate {
        let mut estimate = Estimate::default();
        samples.iter().for_each(|(seconds, sample)| estimate.record(sample, at(*seconds)));
        estimate
    }

    fn near(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() <= expected * 0.02)
    }

    #[test]
    fn unused_section_has_no_estimates() {
        let estimate = Estimate::default();
        assert_eq!((estimate.rtt(), estimate.loss(), estimate.rate(), estimate.window()), (None, None, None, None));
        assert!(estimate.confidence(at(0)) < f64::EPSILON);
    }

    #[test]
    fn samples_are_weighted_by_their_segments() {
        let estimate = of(&[(0, losing(10_000, 10)), (0, losing(100, 1))]);
        assert!(near(estimate.loss(), 11.0 / 10_100.0), "{estimate:?}");
    }

    #[test]
    fn loss_is_capped_at_all_segments() {
        assert!(near(of(&[(0, losing(10, 90))]).loss(), 1.0));
    }

    #[test]
    fn rising_loss_is_adopted_at_once() {
        let estimate = of(&[(0, losing(20_000, 2)), (10, losing(1_000, 20))]);
        assert!(estimate.loss().is_some_and(|loss| loss > 0.009), "{estimate:?}");
    }

    /// If the earlier rate still counted as capacity, the losses would be underestimated.
    #[test]
    fn rising_loss_discards_the_earlier_rate() {
        let fast = SectionSample { rate: Some(1e7), rate_is_limit: true, ..losing(20_000, 2) };
        let slow = SectionSample { rate: Some(5e5), ..losing(200, 8) };
        let estimate = of(&[(0, fast), (10, slow)]);
        assert_eq!((estimate.rate(), estimate.at_least()), (None, Some(5e5)));
        assert_eq!(of(&[(0, fast), (10, SectionSample { rate: Some(5e5), ..losing(200, 0) })]).rate(), Some(1e7));
    }

    #[test]
    fn falling_loss_is_adopted_at_once() {
        let estimate = of(&[(0, losing(20_000, 400)), (10, losing(5_000, 0))]);
        assert!(estimate.loss().is_some_and(|loss| loss < 0.011), "{estimate:?}");
    }

    #[test]
    fn insignificant_loss_change_moves_the_estimate_little() {
        let estimate = of(&[(0, losing(20_000, 200)), (1, losing(1_000, 14))]);
        assert!(estimate.loss().is_some_and(|loss| (0.0100..0.0103).contains(&loss)), "{estimate:?}");
    }

    #[test]
    fn sample_weight_halves_after_the_half_life() {
        let estimate = of(&[(0, losing(1_000, 4)), (HALF_LIFE.as_secs(), losing(1_000, 10))]);
        assert!(near(estimate.loss(), 12.0 / 1_500.0), "{estimate:?}");
    }

    #[test]
    fn rate_below_the_limit_is_only_a_lower_bound() {
        let estimate = of(&[(0, carrying(1e6, false))]);
        assert_eq!((estimate.rate(), estimate.at_least()), (None, Some(1e6)));
    }

    #[test]
    fn rate_limit_holds_until_a_higher_rate_is_measured() {
        let mut estimate = of(&[(0, carrying(1e6, true)), (0, carrying(5e5, false))]);
        assert_eq!(estimate.rate(), Some(1e6), "a lower rate changes nothing");
        estimate.record(&carrying(3e6, false), at(0));
        assert_eq!(estimate.rate(), Some(3e6), "a higher rate replaces the limit");
    }

    #[test]
    fn window_limit_holds_until_more_is_in_flight() {
        let rtt = Some(Duration::from_millis(20));
        let limited = SectionSample { rtt, window: Some(50_000), ..carrying(2e6, false) };
        let after = |rate: f64| of(&[(0, limited), (0, SectionSample { rtt, ..carrying(rate, false) })]).window();
        assert_eq!([1e6, 2e6, 3e6].map(after), [Some(50_000), Some(50_000), None]);
    }

    #[test]
    fn a_lower_limit_lowers_the_rate() {
        let estimate = of(&[(0, carrying(4e6, true)), (5, carrying(1e6, true)), (10, carrying(1e6, true))]);
        assert!(estimate.rate().is_some_and(|rate| rate < 2.1e6), "{estimate:?}");
    }

    #[test]
    fn invalid_rates_are_ignored() {
        assert_eq!(of(&[(0, carrying(f64::NAN, true)), (0, carrying(-1.0, true))]).rate(), None);
    }

    #[test]
    fn round_trip_is_smoothed_until_a_large_change() {
        let rtt = |millis| SectionSample { rtt: Some(Duration::from_millis(millis)), ..SectionSample::default() };
        assert_eq!(of(&[(0, rtt(20)), (1, rtt(24))]).rtt(), Some(Duration::from_millis(21)));
        assert_eq!(of(&[(0, rtt(20)), (1, rtt(60))]).rtt(), Some(Duration::from_millis(60)));
    }

    #[test]
    fn confidence_grows_with_segments_and_falls_with_age() {
        let (few, many) = (of(&[(0, losing(20, 0))]), of(&[(0, losing(2_000, 0))]));
        assert!(few.confidence(at(0)) < 0.3 && many.confidence(at(0)) > 0.9);
        assert!(many.confidence(at(600)) < 0.5 * many.confidence(at(0)));
        assert!(many.confidence(at(7_200)) < 0.01);
        assert_eq!(many.age(at(600)), at(600));
    }

    #[test]
    fn clock_that_runs_backwards_is_tolerated() {
        let estimate = of(&[(50, losing(100, 1)), (10, losing(100, 1))]);
        assert!(near(estimate.loss(), 0.01) && estimate.age(at(20)) == Duration::ZERO);
    }

    #[test]
    fn snapshot_restores_the_estimate_and_its_age() {
        let own = of(&[(0, losing(1_000, 10)), (0, carrying(2e6, true))]);
        let restored = Estimate::from_snapshot(&own.snapshot(), own.age(at(30)), at(1_000));
        assert_eq!(
            (restored.snapshot().rtt, restored.rate(), restored.age(at(1_000))),
            (own.rtt(), own.rate(), at(30))
        );
        assert!(near(restored.loss(), 0.01));
    }

    #[test]
    fn invalid_snapshot_values_are_clamped() {
        let invalid = EstimateSnapshot { loss: Some(-5.0), segments: 1e300, ..EstimateSnapshot::default() };
        let restored = Estimate::from_snapshot(&invalid, Duration::ZERO, at(0));
        assert!(restored.loss() == Some(0.0) && restored.confidence(at(0)) <= 1.0);
    }
}
