//! The one generator of random numbers from a seed: for simulators, emulated networks, intervals and
//! tests. Keys and nonces come from the operating system.

use std::ops::Range;
use std::time::Duration;

/// A generator (xoshiro256**): the same seed gives the same numbers on every machine and in every
/// version, so the seed of a failure stays worth keeping.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The numbers of `seed`.
    pub fn new(seed: u64) -> Rng {
        let mut mix = seed;
        let mut word = || {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let a = (mix ^ (mix >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            b ^ (b >> 31)
        };
        Rng { state: [word(), word(), word(), word()] }
    }

    /// Another generator, whose numbers do not depend on how many are taken from this one later.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next())
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64 }
    }

    /// An index below `bound`.
    pub fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// A number of the range; its start when it is empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// True in `permille` of a thousand cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// True in `ppm` of a million cases. Draws nothing where it cannot happen, so that a fault that
    /// is off does not change what another does.
    pub fn strikes(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// At least 0 and less than 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number of the standard normal distribution: twelve shares have variance 1.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }

    /// A time of the range: most often a short one, now and then any.
    pub fn time(&mut self, range: Range<Duration>) -> Duration {
        let wide = range.end.saturating_sub(range.start).as_nanos() as u64;
        let bound = if self.chance(100) { wide } else { wide / 8 };
        range.start + Duration::from_nanos(self.below(bound))
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// Puts the items into any order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.index(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_numbers_that_it_always_gave() {
        let mut rng = Rng::new(0);
        let first = [(); 3].map(|()| rng.next());
        assert_eq!(first, [0x99ec_5f36_cb75_f2b4, 0xbf6e_1f78_4956_452a, 0x1a5f_849d_4933_e6e0]);
    }

    #[test]
    fn shares_are_even_and_normal_numbers_have_variance_1() {
        let mut rng = Rng::new(1);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let shares: Vec<f64> = (0..10_000).map(|_| rng.share()).collect();
        assert!((mean(&shares) - 0.5).abs() < 0.01);
        let squares: Vec<f64> = (0..10_000).map(|_| rng.normal().powi(2)).collect();
        assert!((mean(&squares) - 1.0).abs() < 0.05);
        let struck = (0..100_000).filter(|_| rng.strikes(100_000)).count();
        assert!((9_500..10_500).contains(&struck), "{struck}");
    }
}
