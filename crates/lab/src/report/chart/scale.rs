//! Maps values to positions: linear and logarithmic scales with ticks at round numbers.

/// The spacing of values on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleKind {
    /// Equal differences have equal distances.
    Linear,
    /// Equal ratios have equal distances.
    Log,
}

/// A scale with its ticks.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    kind: ScaleKind,
    low: f64,
    high: f64,
    /// The values of the ticks, ascending.
    pub ticks: Vec<f64>,
}

/// Ratio of the largest to the smallest amount above which a scale is logarithmic.
const LOG_FROM: f64 = 30.0;

impl Scale {
    /// Returns a scale for amounts: linear from zero, or logarithmic if the ratio of the largest to the smallest amount
    /// is above `LOG_FROM`.
    #[must_use]
    pub fn for_amounts(values: impl Iterator<Item = f64>, tick_count: usize) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        if low > 0.0 && low.is_finite() && high / low > LOG_FROM {
            return Self::from_ticks(log_ticks(low, high), ScaleKind::Log);
        }
        let high = if high > 0.0 { high } else { 1.0 };
        Self::from_ticks(linear_ticks(low.min(0.0), high, tick_count), ScaleKind::Linear)
    }

    /// Returns a scale for values whose differences matter: like [`for_amounts`](Self::for_amounts), but without zero
    /// if all values are above half of the highest.
    #[must_use]
    pub fn for_values(values: impl Iterator<Item = f64>, tick_count: usize) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        if low < high && low > high / 2.0 {
            return Self::from_ticks(linear_ticks(low, high, tick_count), ScaleKind::Linear);
        }
        Self::for_amounts(values.into_iter(), tick_count)
    }

    /// Returns a linear scale from 0 that ends at the highest value instead of at a tick, for time.
    #[must_use]
    pub fn ending_at(high: f64, tick_count: usize) -> Self {
        let high = if high.is_finite() && high > 0.0 { high } else { 1.0 };
        let mut ticks = linear_ticks(0.0, high, tick_count);
        ticks.retain(|tick| *tick <= high);
        Self { kind: ScaleKind::Linear, low: 0.0, high, ticks }
    }

    /// Returns a scale from the first tick to the last.
    fn from_ticks(ticks: Vec<f64>, kind: ScaleKind) -> Self {
        let (low, high) = (ticks.first().copied().unwrap_or(0.0), ticks.last().copied().unwrap_or(1.0));
        Self { kind, low, high, ticks }
    }

    /// Returns the label of an axis, with the suffix "logarithmic" if the scale is logarithmic.
    #[must_use]
    pub fn axis_label(&self, what: &str) -> String {
        match self.kind {
            ScaleKind::Linear => what.to_owned(),
            ScaleKind::Log => format!("{what}, logarithmic"),
        }
    }

    /// Returns the position of a value, from 0 to 1. Values outside of the scale are clamped.
    #[must_use]
    pub fn position(&self, value: f64) -> f64 {
        let place = match self.kind {
            ScaleKind::Linear => (value - self.low) / (self.high - self.low),
            ScaleKind::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// Returns the labels of the ticks, with no more decimals than the ticks need.
    #[must_use]
    pub fn tick_labels(&self) -> Vec<String> {
        match self.kind {
            ScaleKind::Linear => {
                let decimals = self.ticks.windows(2).map(|pair| decimals(pair[1] - pair[0])).max().unwrap_or(0);
                self.ticks.iter().map(|tick| format!("{tick:.decimals$}")).collect()
            }
            ScaleKind::Log => self.ticks.iter().map(|tick| format!("{tick:.*}", decimals(*tick))).collect(),
        }
    }
}

/// Returns the smallest number of decimals that represents `step` exactly, at most 9.
fn decimals(step: f64) -> usize {
    (0..9).find(|&places| fits_decimals(step, places)).unwrap_or(9)
}

fn fits_decimals(step: f64, places: usize) -> bool {
    let scaled = step * 10f64.powi(i32::try_from(places).unwrap_or(0));
    scaled.round() >= 1.0 && (scaled - scaled.round()).abs() < 1e-6 * scaled
}

/// Returns the round step (1, 2 or 5 times a power of ten) that divides a span into about `tick_count` steps.
#[must_use]
pub fn nice_step(span: f64, tick_count: usize) -> f64 {
    let rough = span / tick_count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let rest = rough / power;
    // The thresholds are the geometric means of neighbouring steps.
    let factor = match rest {
        _ if rest < 2f64.sqrt() => 1.0,
        _ if rest < 10f64.sqrt() => 2.0,
        _ if rest < 50f64.sqrt() => 5.0,
        _ => 10.0,
    };
    factor * power
}

/// Returns multiples of a round step that enclose `low` and `high`.
#[must_use]
pub fn linear_ticks(low: f64, high: f64, tick_count: usize) -> Vec<f64> {
    let span = high - low;
    if !(span.is_finite() && span > 0.0) {
        return vec![low, low + 1.0];
    }
    let step = nice_step(span, tick_count);
    let first = (low / step + 1e-9).floor() as i64;
    let last = (high / step - 1e-9).ceil() as i64;
    (first..=last).map(|multiple| multiple as f64 * step).collect()
}

/// Returns powers of ten that enclose `low` and `high`, which must be positive. For up to 3 decades, the ticks include
/// 2 and 5 times powers of ten.
#[must_use]
pub fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let factors: &[f64] = if decades <= 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let (first, last) = ((low.log10() + 1e-9).floor() as i32, (high.log10() - 1e-9).ceil() as i32);
    let all: Vec<f64> =
        (first..=last).flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power))).collect();
    let start = all.iter().rposition(|tick| *tick <= low * (1.0 + 1e-9)).unwrap_or(0);
    let end = all.iter().position(|tick| *tick >= high * (1.0 - 1e-9)).unwrap_or(all.len() - 1);
    all[start..=end.max(start + 1).min(all.len() - 1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        let steps = [(10.0, 5), (7.0, 5), (1.3, 5), (0.09, 4), (123.0, 6), (1e9, 5), (30.0, 6)]
            .map(|(span, n)| nice_step(span, n));
        assert_eq!(
            steps.map(|step| format!("{step:.3}")),
            ["2.000", "1.000", "0.200", "0.020", "20.000", "200000000.000", "5.000"]
        );
    }

    #[test]
    fn linear_ticks_enclose_the_range() {
        assert_eq!(linear_ticks(0.0, 12.4, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]);
        assert_eq!(linear_ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(linear_ticks(-3.0, 3.0, 3), [-4.0, -2.0, 0.0, 2.0, 4.0]);
        assert_eq!(linear_ticks(5.0, 5.0, 5), [5.0, 6.0]);
    }

    #[test]
    fn log_ticks_enclose_the_range() {
        assert_eq!(log_ticks(3.0, 180.0), [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(log_ticks(1.0, 100_000.0), [1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        assert_eq!(log_ticks(0.3, 0.4), [0.2, 0.5]);
    }

    #[test]
    fn tick_labels_have_the_required_decimals() {
        let labels = |values: &[f64]| Scale::for_amounts(values.iter().copied(), 4).tick_labels();
        assert_eq!(labels(&[0.0, 1.0]), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&[1.0, 35.0]), ["1", "2", "5", "10", "20", "50"]);
        assert_eq!(labels(&[0.05, 2.0]), ["0.05", "0.1", "0.2", "0.5", "1", "2"]);
    }

    #[test]
    fn positions_are_within_the_axis() {
        let linear = Scale::for_amounts([2.0, 10.0].into_iter(), 5);
        assert!((linear.position(5.0) - 0.5).abs() < 1e-12);
        let log = Scale::for_amounts([1.0, 100.0].into_iter(), 5);
        assert!((log.position(10.0) - 0.5).abs() < 1e-12);
        assert_eq!([linear.axis_label("MB/s"), log.axis_label("MB/s")], ["MB/s", "MB/s, logarithmic"]);
        assert_eq!([log.position(0.0), log.position(1e9), log.position(f64::NAN)], [0.0, 1.0, 0.0]);
        assert_eq!(Scale::for_amounts(std::iter::empty(), 5).ticks.first(), Some(&0.0));
    }
}
