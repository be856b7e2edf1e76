//! Histogram of queueing delays in virtual time, with 32 buckets per factor of two.

use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Binary logarithm of the buckets per factor of two: a bucket is at most 3 % wide.
const SUB_BUCKET_BITS: u32 = 5;

/// Histogram of queueing delays. Packets of links without a queue are not counted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueDelayHistogram {
    /// Number of packets counted.
    packets: u64,
    /// Sum of all delays, in nanoseconds.
    total: u64,
    /// Number of packets in each bucket, up to the last bucket that is not empty.
    #[serde(with = "sparse")]
    counts: Vec<u64>,
}

impl QueueDelayHistogram {
    /// Counts a packet with a delay of `wait`.
    pub fn record(&mut self, wait: Nanos) {
        let bucket = bucket(wait);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.packets += 1;
        self.total += wait;
    }

    /// Returns the packets counted since an earlier copy of this histogram.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = before.counts.iter().copied().chain(std::iter::repeat(0));
        Self {
            packets: self.packets - before.packets,
            total: self.total - before.total,
            counts: self.counts.iter().zip(earlier).map(|(now, before)| now - before).collect(),
        }
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.total += other.total;
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
    }

    /// Returns the number of packets.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the exact mean in nanoseconds, or 0 without packets.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a mean of measured times")]
    pub fn mean(&self) -> f64 {
        if self.packets == 0 { 0.0 } else { self.total as f64 / self.packets as f64 }
    }

    /// Returns the delay that a share `q` of the packets did not exceed, in nanoseconds: the upper bound of its bucket.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    pub fn quantile(&self, q: f64) -> Nanos {
        let rank = (self.packets as f64 * q).ceil() as u64;
        let mut cumulative = 0;
        let position = self.counts.iter().position(|count| {
            cumulative += count;
            cumulative >= rank
        });
        position.filter(|_| self.packets > 0).map_or(0, |bucket| upper_bound(bucket) - 1)
    }
}

/// Returns the bucket of a delay. Below 2^`SUB_BUCKET_BITS` ns each delay has its own bucket; above, the leading
/// `SUB_BUCKET_BITS` + 1 bits determine it.
const fn bucket(wait: Nanos) -> usize {
    let shift = (Nanos::BITS - wait.leading_zeros()).saturating_sub(SUB_BUCKET_BITS + 1);
    ((shift as usize) << SUB_BUCKET_BITS) + (wait >> shift) as usize
}

/// Returns the first delay beyond the bucket.
const fn upper_bound(bucket: usize) -> Nanos {
    let shift = (bucket >> SUB_BUCKET_BITS).saturating_sub(1);
    ((bucket - (shift << SUB_BUCKET_BITS) + 1) as Nanos) << shift
}

/// Serializes counts as pairs of bucket and count, since most buckets are empty.
mod sparse {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Upper limit of bucket numbers, above the bucket of any delay.
    const MAX_BUCKETS: usize = 1 << 12;

    #[allow(clippy::ptr_arg, reason = "the signature of serde(with)")]
    pub fn serialize<S: Serializer>(counts: &Vec<u64>, to: S) -> Result<S::Ok, S::Error> {
        let pairs: Vec<(usize, u64)> = counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect();
        pairs.serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u64>, D::Error> {
        let mut counts = Vec::new();
        for (bucket, count) in Vec::<(usize, u64)>::deserialize(from)? {
            if bucket >= MAX_BUCKETS {
                return Err(serde::de::Error::custom(format!("there is no bucket {bucket}")));
            }
            counts.resize(counts.len().max(bucket + 1), 0);
            counts[bucket] = count;
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_at_most_3_percent_wide() {
        let mut expected = 0;
        // The last bucket is excluded: its end, 2^64, is not a u64.
        for bucket in 0..(58 << 5) + 63 {
            let (first, end) = (expected, upper_bound(bucket));
            assert_eq!((super::bucket(first), super::bucket(end - 1)), (bucket, bucket));
            assert!((end - 1 - first) as f64 <= 0.032 * first as f64, "{first} to {end}");
            expected = end;
        }
        assert_eq!(bucket(Nanos::MAX) + 1, (58 << 5) + 64);
    }

    #[test]
    fn mean_is_exact_and_quantiles_are_close_upper_bounds() {
        let mut waits = QueueDelayHistogram::default();
        (1..=1000).for_each(|millisecond| waits.record(millisecond * 1_000_000));
        assert!((waits.mean() - 500_500_000.0).abs() < 1e-3);
        for (q, exact) in [(0.5, 500e6), (0.95, 950e6), (0.99, 990e6)] {
            let ratio = waits.quantile(q) as f64 / exact;
            assert!((1.0..1.033).contains(&ratio), "{q}: {ratio}");
        }
        assert_eq!(QueueDelayHistogram::default().quantile(0.99), 0);
    }

    #[test]
    fn since_subtracts_earlier_delays_and_merge_adds() {
        let mut before = QueueDelayHistogram::default();
        before.record(5);
        let mut now = before.clone();
        now.record(7_000_000);
        let since = now.since(&before);
        assert_eq!((since.packets(), since.quantile(0.5) / 1_000_000), (1, 7));
        let mut sum = before.clone();
        sum.merge(&since);
        assert_eq!(sum, now);
    }

    #[test]
    fn serialized_histogram_is_short_and_round_trips() {
        let mut waits = QueueDelayHistogram::default();
        waits.record(1_000_000_000);
        let text = serde_json::to_string(&waits).unwrap();
        assert!(text.len() < 80, "{text}");
        assert_eq!(serde_json::from_str::<QueueDelayHistogram>(&text).unwrap().quantile(0.5), waits.quantile(0.5));
        assert!(serde_json::from_str::<QueueDelayHistogram>(&text.replace("[[", "[[99")).is_err());
    }
}
