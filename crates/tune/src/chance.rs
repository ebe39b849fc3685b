//! Random numbers, for intervals and for what an emulated network loses: the same for the same seed, so
//! results can be repeated.

/// Splitmix64, from a seed on.
#[derive(Clone, Debug)]
pub struct Chance(pub u64);

impl Chance {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// True in `ppm` of a million cases. Draws nothing where it cannot happen, so that a fault that is
    /// off does not change what another does.
    pub fn strikes(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.bits() % 1_000_000 < u64::from(ppm)
    }

    /// Between 0 and 1.
    pub fn share(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Of the standard normal distribution: twelve shares have variance 1.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }
}
