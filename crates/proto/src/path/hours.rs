//! The usual figures of a section for each hour of the week, so that busy hours are predicted.
//!
//! Measurements count with their confidence, and the usual figures of the hour count for the rest. Rates, losses and
//! round trips differ by factors, so their logarithms are averaged. A measurement of another hour is first adjusted by
//! the usual ratio of the two hours.

use std::time::Duration;

use super::figures::EstimateSnapshot;

/// Hours of a week.
pub const HOURS_PER_WEEK: u32 = 7 * 24;

/// Upper bound of the factor between two hours.
const MAX_FACTOR: f64 = 8.0;

/// Smallest loss in calculations, because a ratio needs a loss above zero.
const MIN_LOSS: f64 = 1e-5;

/// Number of weeks at which the confidence of an hour is half of its maximum.
const HALF_SURE_WEEKS: f64 = 2.0;

/// Largest confidence of an hour's figures, because last week does not determine today.
const MAX_CONFIDENCE: f64 = 0.6;

/// The usual figures of an hour of the week.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HourlyBaseline {
    /// Round-trip time, in seconds.
    pub rtt: Option<f64>,
    /// Share of segments lost.
    pub loss: Option<f64>,
    /// Rate in bytes per second.
    pub rate: Option<f64>,
    /// Number of weeks in which the hour was measured.
    pub weeks: u32,
}

impl HourlyBaseline {
    /// Confidence of the figures, 0 to 1.
    #[must_use]
    pub fn confidence(&self) -> f64 {
        let weeks = f64::from(self.weeks);
        MAX_CONFIDENCE * weeks / (weeks + HALF_SURE_WEEKS)
    }
}

/// Returns the expected figures now, and their confidence, from `measured` with its `confidence`. `measured_hour` has
/// the usual figures of the hour of the measurement, `current_hour` has those of this hour; both are equal for a
/// measurement of this hour.
#[must_use]
pub fn forecast(
    measured: &EstimateSnapshot,
    confidence: f64,
    measured_hour: Option<&HourlyBaseline>,
    current_hour: &HourlyBaseline,
) -> (EstimateSnapshot, f64) {
    let (prior, confidence) = (current_hour.confidence(), confidence.clamp(0.0, 1.0));
    let share = if confidence + prior > 0.0 {
        prior * (1.0 - confidence) / (confidence + prior * (1.0 - confidence))
    } else {
        0.0
    };
    let blend =
        |value: Option<f64>, old_usual: Option<f64>, new_usual: Option<f64>, floor: f64| match (value, new_usual) {
            (Some(value), Some(new)) => {
                let factor =
                    old_usual.map_or(1.0, |old| (new.max(floor) / old.max(floor)).clamp(1.0 / MAX_FACTOR, MAX_FACTOR));
                let adjusted = value.max(floor) * factor;
                Some((adjusted.ln() * (1.0 - share) + new.max(floor).ln() * share).exp())
            }
            (value, new) => value.or(new),
        };
    let usual = |pick: fn(&HourlyBaseline) -> Option<f64>| (measured_hour.and_then(pick), pick(current_hour));
    let (rtt, loss, rate) =
        (usual(|baseline| baseline.rtt), usual(|baseline| baseline.loss), usual(|baseline| baseline.rate));
    let figures = EstimateSnapshot {
        rtt: blend(measured.rtt.map(|rtt| rtt.as_secs_f64()), rtt.0, rtt.1, 1e-6)
            .and_then(|rtt| Duration::try_from_secs_f64(rtt).ok()),
        // Where the usual loss is zero, the expected loss is zero.
        loss: blend(measured.loss, loss.0, loss.1, MIN_LOSS)
            .map(|loss| if loss <= MIN_LOSS * 1.01 { 0.0 } else { loss }),
        rate: blend(measured.rate, rate.0, rate.1, 1.0),
        ..*measured
    };
    (figures, confidence + prior * (1.0 - confidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: HourlyBaseline = HourlyBaseline { rtt: Some(0.02), loss: Some(0.0005), rate: Some(8e6), weeks: 20 };
    const BUSY: HourlyBaseline = HourlyBaseline { rtt: Some(0.04), loss: Some(0.002), rate: Some(2e6), weeks: 20 };

    fn measured() -> EstimateSnapshot {
        let rtt = Some(Duration::from_millis(20));
        EstimateSnapshot { rtt, loss: Some(0.0005), rate: Some(8e6), ..EstimateSnapshot::default() }
    }

    fn near(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value / expected - 1.0).abs() < 0.01)
    }

    #[test]
    fn forecast_follows_the_baseline_of_the_new_hour() {
        let (figures, _) = forecast(&measured(), 0.95, Some(&QUIET), &BUSY);
        assert!(near(figures.rate, 2e6) && near(figures.loss, 0.002), "{figures:?}");
        assert!(near(figures.rtt.map(|rtt| rtt.as_secs_f64()), 0.04), "{figures:?}");
    }

    #[test]
    fn confident_measurement_outweighs_the_baseline() {
        let (figures, confidence) = forecast(&measured(), 1.0, Some(&BUSY), &BUSY);
        assert!(near(figures.rate, 8e6) && confidence > 0.99, "{figures:?}");
        let (figures, _) = forecast(&measured(), 0.5, Some(&BUSY), &BUSY);
        assert!(figures.rate.is_some_and(|rate| rate > 2.1e6 && rate < 7.9e6), "{figures:?}");
    }

    #[test]
    fn forecast_without_measurement_is_the_baseline() {
        let (figures, confidence) = forecast(&EstimateSnapshot::default(), 0.0, None, &BUSY);
        assert!(near(figures.rate, 2e6) && near(figures.loss, 0.002), "{figures:?}");
        assert!(confidence > 0.4 && confidence <= MAX_CONFIDENCE);
    }

    #[test]
    fn baseline_confidence_grows_with_weeks() {
        let once = HourlyBaseline { weeks: 1, ..BUSY };
        assert!(once.confidence() < BUSY.confidence() && BUSY.confidence() < MAX_CONFIDENCE);
        assert!(HourlyBaseline::default().confidence() < f64::EPSILON);
    }

    #[test]
    fn odd_baseline_changes_the_forecast_by_a_bounded_factor() {
        let odd = HourlyBaseline { rate: Some(1.0), weeks: 1, ..BUSY };
        let (figures, _) = forecast(&measured(), 1.0, Some(&QUIET), &odd);
        assert!(near(figures.rate, 1e6), "{figures:?}");
    }

    #[test]
    fn zero_loss_stays_zero() {
        let clean = HourlyBaseline { loss: Some(0.0), ..QUIET };
        let none = EstimateSnapshot { loss: Some(0.0), ..measured() };
        assert_eq!(forecast(&none, 0.5, Some(&clean), &clean).0.loss, Some(0.0));
    }

    #[test]
    fn unknown_values_stay_unknown() {
        let (figures, confidence) = forecast(&EstimateSnapshot::default(), 0.0, None, &HourlyBaseline::default());
        assert_eq!((figures, confidence), (EstimateSnapshot::default(), 0.0));
    }
}
