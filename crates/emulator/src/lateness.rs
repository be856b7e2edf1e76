//! Histogram of the lateness of packets, with four buckets per factor of two, from 1 µs to 1 s.

use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Upper bound of the first bucket, in nanoseconds.
const FIRST_BOUND: Nanos = 1000;
/// Four buckets for each of 20 factors of two.
const BUCKET_COUNT: usize = 81;

/// Lateness of packets at the exit of the emulator, relative to their ideal times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatenessHistogram {
    /// Upper bounds of the buckets, in nanoseconds, ascending. The last bucket has no upper bound.
    pub bounds: Vec<Nanos>,
    /// Number of packets in each bucket.
    pub counts: Vec<u64>,
    /// Maximum lateness, in nanoseconds.
    pub max: Nanos,
}

impl Default for LatenessHistogram {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a bound")]
    fn default() -> Self {
        let bounds = (0..BUCKET_COUNT).map(|k| (FIRST_BOUND as f64 * libm::exp2(k as f64 / 4.0)) as Nanos).collect();
        Self { bounds, counts: vec![0; BUCKET_COUNT], max: 0 }
    }
}

impl LatenessHistogram {
    /// Counts `packets` with the lateness `late`.
    pub fn record(&mut self, late: Nanos, packets: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < late).min(self.counts.len() - 1);
        self.counts[bucket] += packets;
        self.max = self.max.max(late);
    }

    /// Returns the lateness that a share `q` of the packets did not exceed: the upper bound of its bucket, in
    /// nanoseconds.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    pub fn quantile(&self, q: f64) -> Nanos {
        let total: u64 = self.counts.iter().sum();
        let rank = (total as f64 * q).ceil() as u64;
        let mut cumulative = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            cumulative += count;
            if cumulative >= rank {
                return (*bound).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds_within_20_percent() {
        let mut lateness = LatenessHistogram::default();
        for microseconds in 1..=1000 {
            lateness.record(microseconds * 1000, 1);
        }
        for (q, exact) in [(0.5, 500_000.0), (0.99, 990_000.0), (1.0, 1_000_000.0)] {
            #[allow(clippy::cast_precision_loss, reason = "a small number")]
            let ratio = lateness.quantile(q) as f64 / exact;
            assert!((1.0..1.2).contains(&ratio), "{q}: {ratio}");
        }
        assert_eq!(lateness.max, 1_000_000);
        assert_eq!(LatenessHistogram::default().quantile(0.99), 0, "an empty histogram");
    }

    #[test]
    fn lateness_above_all_bounds_is_counted_in_the_last_bucket() {
        let mut lateness = LatenessHistogram::default();
        lateness.record(5_000_000_000, 2);
        assert_eq!(lateness.counts.last(), Some(&2));
        assert_eq!(lateness.quantile(0.5), 1_048_576_000, "1 µs times two to the power of 20");
    }
}
