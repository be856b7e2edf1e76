//! Fractions as integers: averages and shares in 2^-24, probabilities in 2^-32.

/// Bits of the fraction of an average, and of a share.
pub const FRACTION_BITS: u32 = 24;

/// A probability of 1.
pub const ONE: u64 = 1 << 32;

/// `value` times `part`, which is in 2^-24 and at most 1, rounded down.
#[must_use]
pub const fn scale(value: u64, part: u64) -> u64 {
    let (whole, rest) = (value >> FRACTION_BITS, value & ((1 << FRACTION_BITS) - 1));
    whole * part + ((rest * part) >> FRACTION_BITS)
}

/// A number of a settings file in 2^-`bits`, to the nearest. Not negative.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded, and not negative")]
pub fn to_fixed(number: f64, bits: u32) -> u64 {
    (number * (1_u64 << bits) as f64).round() as u64
}

/// A probability of a settings file, in 2^-32.
#[must_use]
pub fn to_probability(p: f64) -> u64 {
    to_fixed(p, 32)
}
