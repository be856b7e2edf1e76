//! Goodness-of-fit tests for the samples of thousands of packets that a link check takes.

use super::special::gamma_q;

/// The Wilson interval (low, high) of a probability after `successes` of `n` tries (Wilson 1927, "Probable inference,
/// the law of succession, and statistical inference"); `z` is the normal quantile of the confidence, as in
/// [`Z_95`](super::Z_95). For `n` = 0 the interval is (0, 1).
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "no count is that large")]
pub fn wilson(successes: u64, n: u64, z: f64) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let (tries, share) = (n as f64, successes as f64 / n as f64);
    let shrink = 1.0 + z * z / tries;
    let centre = (share + z * z / (2.0 * tries)) / shrink;
    let half = z * (share * (1.0 - share) / tries + z * z / (4.0 * tries * tries)).sqrt() / shrink;
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

/// The p-value of Pearson's chi-square test (Pearson 1900) of the counts `observed` against `expected`, with one degree
/// of freedom less than there are classes, since both have the same total. Classes with an expected count of 0 must be
/// empty. Every other class should expect 5 or more.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "no count is that large")]
pub fn chi_square(observed: &[u64], expected: &[f64]) -> f64 {
    let classes: Vec<(f64, f64)> = observed.iter().map(|count| *count as f64).zip(expected.iter().copied()).collect();
    if classes.iter().any(|(count, expected)| *expected <= 0.0 && *count > 0.0) {
        return 0.0;
    }
    let possible = classes.iter().filter(|(_, expected)| *expected > 0.0);
    let statistic: f64 = possible.clone().map(|(count, expected)| (count - expected).powi(2) / expected).sum();
    let Some(freedom) = possible.count().checked_sub(1).filter(|freedom| *freedom > 0) else { return 1.0 };
    gamma_q(freedom as f64 / 2.0, statistic / 2.0)
}

/// The p-value of the Kolmogorov-Smirnov test of `samples` against the distribution `cdf` (Kolmogorov 1933, Smirnov
/// 1948), with the correction of Stephens (1970, "Use of the Kolmogorov-Smirnov, Cramer-von Mises and related
/// statistics without extensive tables") for finite samples. For an empty sample it is 1.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "no sample is that large")]
pub fn kolmogorov_smirnov(samples: &[f64], cdf: impl Fn(f64) -> f64) -> f64 {
    if samples.is_empty() {
        return 1.0;
    }
    let n = samples.len() as f64;
    let steps = super::sorted(samples);
    let distance = steps.iter().enumerate().fold(0.0, |farthest: f64, (i, x)| {
        let p = cdf(*x);
        farthest.max(p - i as f64 / n).max((i + 1) as f64 / n - p)
    });
    kolmogorov_tail((n.sqrt() + 0.12 + 0.11 / n.sqrt()) * distance)
}

/// The probability that a Kolmogorov variable is above `x` (Smirnov 1948).
fn kolmogorov_tail(x: f64) -> f64 {
    // Below 0.2 the tail differs from 1 by less than 1e-12, and the alternating series does not converge fast enough.
    if x < 0.2 {
        return 1.0;
    }
    let term = |j: i32| f64::from(1 - 2 * ((j + 1) % 2)) * (-2.0 * f64::from(j * j) * x * x).exp();
    (2.0 * (1..=100).map(term).sum::<f64>()).clamp(0.0, 1.0)
}

/// The autocorrelation of a sequence at lag 1, from -1 to 1 (Box, Jenkins 1976 section 2.1). For independent values it
/// is approximately normal with a standard deviation of 1/sqrt(n). For a constant it is 0.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "no sample is that large")]
pub fn lag1_correlation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let variance: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let together: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    if variance == 0.0 { 0.0 } else { together / variance }
}

#[cfg(test)]
mod tests {
    use super::super::{Z_95, Z_99_9, normal_cdf, normal_quantile};
    use super::*;
    use ekiden_emulator::rng::SeededRng;

    fn assert_within(got: f64, wanted: f64, error: f64) {
        assert!((got - wanted).abs() <= error, "{got} is not {wanted}");
    }

    /// Newcombe 1998, "Two-sided confidence intervals for the single proportion: comparison of seven methods",
    /// table I, method 3.
    #[test]
    fn wilson_intervals_match_newcombe() {
        let table = [
            ((81, 263), (0.2553, 0.3662)),
            ((15, 148), (0.0624, 0.1605)),
            ((0, 20), (0.0, 0.1611)),
            ((1, 29), (0.0061, 0.1718)),
        ];
        for ((successes, n), wanted) in table {
            let got = wilson(successes, n, Z_95);
            assert_within(got.0, wanted.0, 0.000_051);
            assert_within(got.1, wanted.1, 0.000_051);
        }
        assert_eq!(wilson(0, 0, Z_95), (0.0, 1.0));
        assert!(wilson(15, 148, Z_99_9).1 > wilson(15, 148, Z_95).1);
    }

    /// Mendel's peas (1866) against 9:3:3:1, tested by Fisher (1936): chi-square 0.47 with 3 degrees of freedom, p =
    /// 0.925. Then critical values of Pearson and Hartley, "Biometrika Tables for Statisticians", table 8.
    #[test]
    fn chi_square_matches_published_tables() {
        let expected = [9.0, 3.0, 3.0, 1.0].map(|share| 556.0 * share / 16.0);
        assert_within(chi_square(&[315, 108, 101, 32], &expected), 0.925, 0.0005);
        for (freedom, critical, p) in [
            (1.0, 3.841_46, 0.05),
            (1.0, 10.828, 0.001),
            (10.0, 18.3070, 0.05),
            (10.0, 3.9403, 0.95),
            (100.0, 135.807, 0.01),
        ] {
            assert_within(gamma_q(freedom / 2.0, critical / 2.0), p, 0.000_01);
        }
        assert_eq!(chi_square(&[10, 10], &[10.0, 10.0]), 1.0);
        assert_eq!(chi_square(&[10, 1], &[11.0, 0.0]), 0.0, "observations in a class with an expectation of 0");
        assert_eq!(chi_square(&[10, 0], &[10.0, 0.0]), 1.0, "a single class is no test");
    }

    /// Stephens 1974, "EDF statistics for goodness of fit and some comparisons", table 1, case 0: the percentage points
    /// of the corrected distance.
    #[test]
    fn kolmogorov_smirnov_matches_stephens() {
        for (point, p) in [(1.138, 0.15), (1.224, 0.10), (1.358, 0.05), (1.480, 0.025), (1.628, 0.01)] {
            assert_within(kolmogorov_tail(point), p, 0.0005);
        }
        assert_within(kolmogorov_tail(0.2), 1.0, 1e-11);
        // Miller 1956, "Table of percentage points of Kolmogorov statistics": n = 10, two-sided 5 %: 0.40925. The
        // sample has this distance to the uniform distribution, at its first point.
        let mut samples: Vec<f64> = (1..=10).map(|i| f64::from(i) / 10.0).collect();
        samples[0] = 0.409_25;
        samples[1..4].fill(0.409_25);
        assert_within(kolmogorov_smirnov(&samples, |x| x), 0.05, 0.001);
        assert_eq!(kolmogorov_smirnov(&[], |x| x), 1.0);
    }

    #[test]
    fn kolmogorov_smirnov_rejects_a_shifted_normal_sample() {
        let rng = SeededRng::new(9);
        let samples: Vec<f64> = (0..2000).map(|i| normal_quantile(rng.uniform(i))).collect();
        assert!(kolmogorov_smirnov(&samples, normal_cdf) > 0.01);
        assert!(kolmogorov_smirnov(&samples, |x| normal_cdf(x - 0.15)) < 0.001);
    }

    /// The luteinizing hormone series of Diggle (1990), data set `lh` of R, whose `acf` at lag 1 is 0.576.
    #[test]
    fn lag1_correlation_of_the_hormone_series_matches_r() {
        let tenths: [u8; 48] = [
            24, 24, 24, 22, 21, 15, 23, 23, 25, 20, 19, 17, 22, 18, 32, 32, 27, 22, 22, 19, 19, 18, 27, 30, 23, 20, 20,
            29, 29, 27, 27, 23, 26, 24, 18, 17, 15, 14, 21, 33, 35, 35, 31, 26, 21, 34, 30, 29,
        ];
        assert_within(lag1_correlation(&tenths.map(f64::from)), 0.576, 0.0005);
        assert_eq!(lag1_correlation(&[2.0, 2.0, 2.0]), 0.0);
        assert_eq!(lag1_correlation(&[]), 0.0);
    }
}
