//! Chance that depends on nothing but a key and a number: the same packet is thrown the same whoever throws.

/// The fraction of the golden ratio, in 64 bits.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[must_use]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The 64 random bits that belong to `number`, by the dice of `key`.
#[must_use]
pub const fn random_bits(key: u64, number: u64) -> u64 {
    mix(key ^ mix(number.wrapping_mul(GOLDEN).wrapping_add(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mirror of this file has to throw these.
    #[test]
    fn throws_are_what_they_always_were() {
        assert_eq!(mix(1), 0x5692_161d_100b_05e5);
        let wanted = [0x83ec_686c_1600_460a, 0x819d_6f08_fdfc_3c1b, 0xeecd_2736_9f7e_c29a];
        assert_eq!([random_bits(1, 0), random_bits(42, 7), random_bits(u64::MAX, u64::MAX)], wanted);
    }
}
