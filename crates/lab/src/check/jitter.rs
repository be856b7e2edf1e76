//! Checks that jitter follows its distribution, and that packets stay in order unless reordering is configured.

use super::expectation::TimedProbe;
use super::probe::ProbeSeries;
use super::row::Finding;
use crate::stats::{kolmogorov_smirnov, normal_cdf};
use ekiden_emulator::Nanos;
use ekiden_emulator::conditions::{Distribution, Jitter};
use ekiden_emulator::nanos;

/// Accuracy of timestamps, in microseconds: the limit of the median in the fixed-delay row.
const TIMING_ACCURACY: f64 = 50.0;

/// Returns the number of packets to sample, from 20 to `most`. With more packets, the test would reject a distribution
/// that is shifted only by the accuracy of the timestamps. The test rejects a shift above about 1.95 / sqrt(N) standard
/// scales (p = 0.001); half of that is left for random variation.
pub fn sample_size(jitter: Jitter, most: usize) -> usize {
    let scale = nanos(jitter.scale) as f64 / 1e3;
    let root = 0.5 * 1.95 * scale / TIMING_ACCURACY;
    ((root * root) as usize).clamp(20, most)
}

/// Returns the gap between packets, in nanoseconds, at which no packet has to wait for its predecessor to keep the
/// order.
pub fn min_spacing(jitter: Jitter) -> Nanos {
    let scales = match jitter.distribution {
        Distribution::Uniform => 1,
        Distribution::Normal => 5,
        Distribution::Exponential => 9,
    };
    nanos(jitter.scale) * scales
}

/// Checks that the excess over the fixed delay follows the distribution.
pub fn check_distribution(timed: &[TimedProbe], jitter: Jitter) -> Finding {
    let scale = nanos(jitter.scale) as f64 / 1e3;
    let added: Vec<f64> = timed.iter().map(|timed| timed.error_micros() / scale).collect();
    let p = kolmogorov_smirnov(&added, |x| cumulative_probability(jitter.distribution, x));
    Finding {
        wanted: format!("Kolmogorov–Smirnov against {:?} of {}: p > 0.001", jitter.distribution, jitter.scale),
        measured: format!("p = {p:.4} ({} packets)", added.len()),
        pass: p > 0.001 && added.len() >= 20,
    }
}

/// Returns the probability that jitter is at most `x` times its scale.
fn cumulative_probability(distribution: Distribution, x: f64) -> f64 {
    let x = x.max(0.0);
    match distribution {
        Distribution::Uniform => x.min(1.0),
        Distribution::Normal => 2.0 * normal_cdf(x) - 1.0,
        Distribution::Exponential => 1.0 - (-x).exp(),
    }
}

/// Checks that packets sent in close succession arrive in order.
pub fn check_order(series: &ProbeSeries) -> Finding {
    Finding {
        wanted: "overtaken: 0".to_owned(),
        measured: format!("{} of {} that arrived", series.reordered_count(), series.received.len()),
        pass: series.reordered_count() == 0 && series.received.len() > 1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::probe::SentProbe;
    use super::*;
    use crate::stats::normal_quantile;
    use ekiden_emulator::rng::SeededRng;

    fn jitter(distribution: Distribution) -> Jitter {
        Jitter { distribution, scale: "2ms".parse().unwrap(), reorder: false }
    }

    /// Returns `n` arrivals. `of` computes the jitter of each in milliseconds from a uniform random number.
    fn sampled_arrivals(n: usize, of: impl Fn(f64) -> f64) -> Vec<TimedProbe> {
        let rng = SeededRng::new(3);
        let arrived = |number: usize| 1_000_000 + (of(rng.uniform(number as u64)) * 1e6) as Nanos;
        (0..n).map(|number| TimedProbe { number, expected: 1_000_000, arrived: arrived(number) }).collect()
    }

    #[test]
    fn late_samples_match_their_own_distribution_only() {
        let laws = [Distribution::Uniform, Distribution::Normal, Distribution::Exponential];
        let milliseconds = |law, u: f64| match law {
            Distribution::Uniform => 2.0 * u,
            Distribution::Normal => 2.0 * normal_quantile(0.5 + u / 2.0),
            Distribution::Exponential => -2.0 * (1.0 - u).ln(),
        };
        for (mine, other) in laws.into_iter().zip(laws.into_iter().cycle().skip(1)) {
            let n = sample_size(jitter(mine), 10_000);
            assert!(
                check_distribution(&sampled_arrivals(n, |u| milliseconds(mine, u) + 0.02), jitter(mine)).pass,
                "{mine:?}"
            );
            assert!(
                !check_distribution(&sampled_arrivals(n, |u| milliseconds(mine, u)), jitter(other)).pass,
                "{mine:?} taken for {other:?}"
            );
            assert!(
                !check_distribution(&sampled_arrivals(n, |u| 1.25 * milliseconds(mine, u)), jitter(mine)).pass,
                "{mine:?} too wide"
            );
        }
        assert!(!check_distribution(&[], jitter(Distribution::Uniform)).pass);
    }

    #[test]
    fn smaller_jitter_needs_fewer_packets() {
        let of =
            |scale: &str| sample_size(Jitter { scale: scale.parse().unwrap(), ..jitter(Distribution::Uniform) }, 3000);
        assert_eq!((of("10us"), of("2ms"), of("100ms")), (20, 1521, 3000));
    }

    #[test]
    fn order_check_fails_for_one_reordered_packet() {
        let sent = [SentProbe::for_test(0, 48); 3];
        let series = |order: [usize; 3]| ProbeSeries::for_test(sent, order.map(|number| (number, 1)));
        assert!(check_order(&series([0, 1, 2])).pass);
        assert!(!check_order(&series([0, 2, 1])).pass);
        assert!(!check_order(&ProbeSeries::default()).pass);
    }
}
