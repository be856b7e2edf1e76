//! Random numbers that depend only on a seed, a place and a packet number. Adding a link, or a packet elsewhere,
//! changes no decision here. The arithmetic is [`ekiden_proto::aqm`], which has a mirror in C.

use ekiden_proto::aqm::{self, GOLDEN, mix};

/// A source of random numbers for one place: a stage of a direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeededRng {
    key: u64,
}

impl SeededRng {
    /// Creates the root source of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { key: mix(seed.wrapping_add(GOLDEN)) }
    }

    /// Derives an independent source for the place `name`.
    #[must_use]
    pub fn derive(self, name: &str) -> Self {
        // FNV-1a: names are short, and this runs once per stage.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Self { key: mix(self.key ^ hash) }
    }

    /// Returns the key of the source, for [`ekiden_proto::aqm`].
    #[must_use]
    pub const fn key(self) -> u64 {
        self.key
    }

    /// Returns the 64 random bits of `number`.
    #[must_use]
    pub const fn bits(self, number: u64) -> u64 {
        aqm::random_bits(self.key, number)
    }

    /// Returns a uniform number in [0, 1) for `number`.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub fn uniform(self, number: u64) -> f64 {
        (self.bits(number) >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Returns whether an event of probability `p` happens to `number`.
    #[must_use]
    pub fn bernoulli(self, number: u64, p: f64) -> bool {
        p > 0.0 && self.uniform(number) < p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_derivations_give_equal_bits_and_others_do_not() {
        let rng = SeededRng::new(42).derive("wan").derive("loss");
        assert_eq!(rng.bits(7), SeededRng::new(42).derive("wan").derive("loss").bits(7));
        for other in [
            SeededRng::new(43).derive("wan").derive("loss"),
            SeededRng::new(42).derive("lan").derive("loss"),
            SeededRng::new(42).derive("wan"),
        ] {
            assert_ne!(rng.bits(7), other.bits(7));
        }
        assert_ne!(rng.bits(7), rng.bits(8));
    }

    #[test]
    fn values_are_uniform_and_uncorrelated_with_neighbours() {
        let rng = SeededRng::new(1);
        let n = 100_000_u32;
        let values: Vec<f64> = (0..u64::from(n)).map(|i| rng.uniform(i)).collect();
        let mean = values.iter().sum::<f64>() / f64::from(n);
        assert!((mean - 0.5).abs() < 0.005, "mean {mean}");
        let lag: f64 = values.windows(2).map(|w| (w[0] - 0.5) * (w[1] - 0.5)).sum::<f64>() * 12.0 / f64::from(n);
        assert!(lag.abs() < 0.015, "correlation of neighbours {lag}");
        assert!(!rng.bernoulli(3, 0.0) && rng.bernoulli(3, 1.0));
    }
}
