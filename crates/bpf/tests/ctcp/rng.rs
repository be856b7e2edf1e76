//! Seeded random numbers, equal in every run.

pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number less than `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        u32::try_from(self.next() % u64::from(limit)).unwrap()
    }

    /// Number of packets that arrive before the next loss, at a loss probability of `p` per packet.
    pub(crate) fn until_loss(&mut self, p: f64) -> u64 {
        let unit = (f64::from(self.below(u32::MAX)) + 1.0) / f64::from(u32::MAX);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let packets = (unit.ln() / (1.0 - p).ln()) as u64;
        packets
    }
}
