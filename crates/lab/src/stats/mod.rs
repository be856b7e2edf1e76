//! Statistics of samples of few, noisy runs, and tests of samples of many packets: pure functions.
//!
//! This module compares runs by medians and their order-statistic confidence intervals, which assume no distribution.
//! [`fit`] has goodness-of-fit tests; [`special`] has the special functions that both use.

pub mod fit;
pub mod special;

use serde::{Deserialize, Serialize};

pub use fit::{chi_square, kolmogorov_smirnov, lag1_correlation, wilson};
pub use special::{normal_cdf, normal_quantile};

/// Summary of a sample: size, median, interval and range.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values in the sample.
    pub n: u32,
    /// Median of the values.
    pub median: f64,
    /// Lower end of the 95 % confidence interval of the median; with few values, the smallest value.
    pub low: f64,
    /// Upper end of the interval; with few values, the largest value.
    pub high: f64,
    /// Smallest value of the sample.
    pub min: f64,
    /// Largest value of the sample.
    pub max: f64,
    /// Actual confidence of the interval: below 0.95 with too few values.
    pub confidence: f64,
}

/// The standard normal quantile of a two-sided 95 % interval.
pub const Z_95: f64 = 1.959_963_984_540_054;
/// The standard normal quantile of a two-sided 99 % interval.
pub const Z_99: f64 = 2.575_829_303_548_901;
/// The standard normal quantile of a two-sided 99.9 % interval.
pub const Z_99_9: f64 = 3.290_526_731_491_926;

/// The required confidence of the interval of a median.
const CONFIDENCE: f64 = 0.95;

/// Summarizes a sample. The interval is that of Thompson (1936, "On confidence ranges for the median and other
/// expectation distributions"): the narrowest symmetric pair of order statistics that contains the median with at least
/// 95 %. Below 6 values no such pair exists, and the interval is the range of the sample. For an empty sample, all
/// fields are 0.
#[must_use]
pub fn summarise(values: &[f64]) -> Summary {
    let sorted = sorted(values);
    let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else { return Summary::default() };
    let (rank, confidence) = median_rank(sorted.len());
    Summary {
        n: u32::try_from(sorted.len()).unwrap_or(u32::MAX),
        median: quantile(&sorted, 0.5),
        low: sorted[rank - 1],
        high: sorted[sorted.len() - rank],
        min: *min,
        max: *max,
        confidence,
    }
}

/// The largest rank `k` such that the `k`-th smallest and the `k`-th largest of `n` values enclose the median with at
/// least the wanted confidence, and the actual confidence. `k` is at least 1.
#[allow(clippy::cast_precision_loss, reason = "no sample is that large")]
fn median_rank(n: usize) -> (usize, f64) {
    // The median is outside of the interval if fewer than `rank` of `n` fair coins fall on one side. The sum uses
    // logarithms, because 2^-n underflows for a large n.
    let ln_choices = |k: usize| special::ln_binomial(n as u64, k as u64);
    let coin = |k: usize| (ln_choices(k) - n as f64 * std::f64::consts::LN_2).exp();
    let (mut rank, mut outside) = (1, 2.0 * coin(0));
    while rank < n / 2 && 1.0 - outside - 2.0 * coin(rank) >= CONFIDENCE {
        outside += 2.0 * coin(rank);
        rank += 1;
    }
    (rank, (1.0 - outside).max(0.0))
}

/// The ratios of a treatment to its base, block by block, in the order of `treatment`. Blocks that only one of them has
/// are left out, and so are blocks whose base is 0, because JSON has no infinity.
#[must_use]
pub fn ratios(treatment: &[(u32, f64)], base: &[(u32, f64)]) -> Vec<f64> {
    paired_values(treatment, base).map(|(value, base)| value / base).filter(|ratio| ratio.is_finite()).collect()
}

/// The ratios as [`ratios`] returns them, but for verdicts, which need every block: with a base of 0, the ratio is 1 if
/// the value is 0, too, and infinite otherwise.
#[must_use]
pub fn ratios_with_zero_bases(treatment: &[(u32, f64)], base: &[(u32, f64)]) -> Vec<f64> {
    let ratio = |(value, base): (f64, f64)| match (value == 0.0, base == 0.0) {
        (true, true) => 1.0,
        (false, true) => f64::INFINITY.copysign(value),
        (_, false) => value / base,
    };
    paired_values(treatment, base).map(ratio).collect()
}

/// The differences of a treatment and its base, block by block, in the order of `treatment`.
#[must_use]
pub fn differences(treatment: &[(u32, f64)], base: &[(u32, f64)]) -> Vec<f64> {
    paired_values(treatment, base).map(|(value, base)| value - base).collect()
}

fn paired_values(treatment: &[(u32, f64)], base: &[(u32, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let base_of = |block: u32| base.iter().find(|(other, _)| *other == block).map(|(_, value)| *value);
    treatment.iter().filter_map(move |(block, value)| Some((*value, base_of(*block)?)))
}

/// The median of a sample in any order; 0 for an empty sample.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// The `q`-quantile, `q` from 0 to 1, of values in ascending order, interpolated between neighbours (definition 7 of
/// Hyndman, Fan 1996: that of R and `NumPy`); 0 for an empty sample.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    let share = place - place.floor();
    // The difference of two infinite neighbours is not a number.
    let is_exact = share == 0.0 || sorted[below] == sorted[above];
    if is_exact { sorted[below] } else { sorted[below] + share * (sorted[above] - sorted[below]) }
}

/// Whether two samples agree: whether the confidence intervals of their medians overlap.
#[must_use]
pub fn intervals_overlap(a: &Summary, b: &Summary) -> bool {
    a.low <= b.high && b.low <= a.high
}

/// The width of the interval relative to the median; infinite if the median is 0 and the interval is not a point.
#[must_use]
pub fn relative_interval_width(summary: &Summary) -> f64 {
    let width = summary.high - summary.low;
    if width == 0.0 { 0.0 } else { width / summary.median.abs() }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

pub use ekiden_proto::share::jain_index_of as jain;

/// The arithmetic mean; `None` for an empty sample.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a number of connections")]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(n: u32) -> Vec<f64> {
        (1..=n).map(f64::from).collect()
    }

    /// Rows of the table of order-statistic intervals of the median in Le Boudec, "Performance Evaluation of Computer
    /// and Communication Systems" (2010), appendix A, table A.1, where its interval is symmetric; n = 100 from the
    /// binomial distribution.
    #[test]
    fn median_intervals_match_published_tables() {
        let table = [
            (6, 1.0, 6.0, 0.969),
            (7, 1.0, 7.0, 0.984),
            (9, 2.0, 8.0, 0.961),
            (10, 2.0, 9.0, 0.979),
            (11, 2.0, 10.0, 0.988),
            (12, 3.0, 10.0, 0.961),
            (15, 4.0, 12.0, 0.965),
            (20, 6.0, 15.0, 0.959),
            (25, 8.0, 18.0, 0.957),
            (100, 40.0, 61.0, 0.965),
        ];
        for (n, low, high, confidence) in table {
            let got = summarise(&first(n));
            assert_eq!((got.low, got.high), (low, high), "n = {n}");
            assert!((got.confidence - confidence).abs() < 0.0006, "n = {n}: {}", got.confidence);
        }
    }

    #[test]
    fn few_values_have_low_confidence_and_many_do_not_underflow() {
        for (n, confidence) in [(1, 0.0), (2, 0.5), (3, 0.75), (4, 0.875), (5, 0.9375)] {
            let got = summarise(&first(n));
            assert_eq!((got.low, got.high, got.n), (1.0, f64::from(n), n));
            assert!((got.confidence - confidence).abs() < 1e-12, "n = {n}: {}", got.confidence);
        }
        assert_eq!(summarise(&[]), Summary::default());
        let many = summarise(&first(5001));
        assert!((0.95..0.953).contains(&many.confidence), "{}", many.confidence);
        // The normal approximation of the rank is (5001 - 1.96 * sqrt(5001)) / 2 = 2431.
        assert!((many.low - 2431.0).abs() <= 2.0, "{}", many.low);
        assert_eq!(many.median, 2501.0);
    }

    #[test]
    fn summaries_do_not_depend_on_order() {
        let got = summarise(&[5.0, 1.0, 4.0, 2.0, 3.0, 6.0]);
        assert_eq!((got.median, got.min, got.max), (3.5, 1.0, 6.0));
        assert_eq!(got, summarise(&first(6)));
    }

    #[test]
    fn ratios_are_paired_by_block() {
        let got = ratios(&[(2, 9.0), (0, 4.0), (7, 1.0), (3, 5.0)], &[(0, 2.0), (1, 1.0), (2, 3.0), (3, 0.0)]);
        assert_eq!(got, [3.0, 2.0], "block 7 has no base, block 3 has a base of 0");
    }

    #[test]
    fn ratios_with_zero_bases_have_every_common_block() {
        let (zero, two) = ([(0, 0.0), (1, 0.0), (2, 4.0)], [(0, 0.0), (1, 2.0), (2, 2.0), (3, 2.0)]);
        assert_eq!(ratios_with_zero_bases(&two, &zero), [1.0, f64::INFINITY, 0.5]);
        assert_eq!(ratios_with_zero_bases(&zero, &two), [1.0, 0.0, 2.0]);
        assert_eq!(median(&[1.0, f64::INFINITY, f64::INFINITY, f64::INFINITY]), f64::INFINITY);
    }

    #[test]
    fn quantiles_are_interpolated() {
        let ten = first(10);
        // R: quantile(1:10, c(0, .25, .5, .9, 1)).
        for (q, value) in [(0.0, 1.0), (0.25, 3.25), (0.5, 5.5), (0.9, 9.1), (1.0, 10.0)] {
            assert!((quantile(&ten, q) - value).abs() < 1e-12, "{q}");
        }
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn samples_agree_when_their_intervals_overlap() {
        let (a, b, c) = (summarise(&first(6)), summarise(&[6.0; 6]), summarise(&[7.0; 6]));
        assert!(intervals_overlap(&a, &b) && intervals_overlap(&b, &a));
        assert!(!intervals_overlap(&a, &c) && !intervals_overlap(&c, &a));
        assert!((relative_interval_width(&a) - 5.0 / 3.5).abs() < 1e-12);
        assert_eq!(relative_interval_width(&b), 0.0);
        assert_eq!(relative_interval_width(&summarise(&[-1.0, 0.0, 1.0])), f64::INFINITY);
    }

    fn close(value: Option<f64>, wanted: f64) -> bool {
        value.is_some_and(|value| (value - wanted).abs() < 1e-12)
    }

    #[test]
    fn jain_index_is_1_for_equal_rates_and_low_for_unequal_rates() {
        assert!(close(jain(&[3.0; 7]), 1.0));
        assert!(close(jain(&[5.0, 0.0, 0.0, 0.0]), 0.25));
        // The example of the report by Jain et al.: 60 Mbit/s and 40 Mbit/s.
        assert!(close(jain(&[60.0, 40.0]), 10_000.0 / 10_400.0));
        assert_eq!((jain(&[]), jain(&[0.0, 0.0])), (None, None));
    }

    #[test]
    fn mean_of_no_values_is_none() {
        assert!(close(mean(&[1.0, 2.0, 6.0]), 3.0));
        assert_eq!(mean(&[]), None);
    }
}
