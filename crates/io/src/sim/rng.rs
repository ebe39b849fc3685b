//! Numbers from a seed.

use std::ops::Range;
use std::time::Duration;

/// A generator (xoshiro256**): the same seed gives the same numbers on every machine.
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
