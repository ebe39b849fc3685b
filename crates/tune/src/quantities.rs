//! What a curve says about a link.
//!
//! T(n) is the time of a block of n bytes one way, B(n) = 8n/T(n) its throughput. The definitions are
//! those of NetPIPE's authors and of ERATO-1 where these define anything, made such that a program
//! can follow them:
//!
//! - *Latency* L: TCP has no empty message, so L is the value at zero of the line through T(n) for blocks up to
//!   32 bytes, by Theil and Sen.
//! - *Bandwidth*: 8 by the slope of the line through T(n) over the last two octaves: what each further byte
//!   costs. Unlike the greatest B(n), it holds no latency, and no credit of a shaper.
//! - *Peak*: the greatest B(n), NetPIPE's "maximum attainable throughput".
//! - *Saturation point* S: the least n from which on T stays above 1.18 L. The figures of ERATO-1 mark where
//!   the curve begins to rise; its nine published points lie where a link of Hockney's model has T at
//!   1.14 to 1.24 L.
//! - n½ = L times bandwidth: the block that takes twice as long as an empty one (Hockney).
//! - n95: the least n from which on B stays above 95 % of the bandwidth. From S to n95 is the window in
//!   which a program chooses its blocks.
//!
//! Intervals hold the middle 95 % of what 400 repetitions of the experiment would give, drawn from the times
//! of each size.

use crate::curve::{Curve, Pick, Point};
use crate::statistics::{Estimate, theil_sen};
use covey_wire::Rng;
use serde::{Deserialize, Serialize};

/// Blocks up to so many bytes show the latency.
pub const SMALL_BYTES: u64 = 32;
/// How far above the latency T has risen at the saturation point.
pub const RISE: f64 = 1.18;
/// The share of the bandwidth at which a block is called long enough.
pub const PLATEAU: f64 = 0.95;
const REPETITIONS: usize = 400;
const SEED: u64 = 2001;

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantities {
    /// One way of an empty block, in seconds.
    pub latency_s: Estimate,
    /// What each further byte of a long block allows, in bits per second.
    pub bandwidth_bits_per_s: Estimate,
    /// The greatest throughput of any block, in bits per second.
    pub peak_bits_per_s: Estimate,
    /// Where the curve begins to rise, in bytes; none when it does not within the sizes tried.
    pub saturation_bytes: Option<Estimate>,
    /// The block that takes twice as long as an empty one, in bytes.
    pub half_bytes: Estimate,
    /// The least block with nearly the whole bandwidth, in bytes; none when the sizes end before.
    pub plateau_bytes: Option<Estimate>,
}

/// The numbers of one experiment, real or repeated.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    latency_s: f64,
    bandwidth: f64,
    peak: f64,
    saturation: Option<f64>,
    plateau: Option<f64>,
}

impl Quantities {
    /// Of the median times. `None` when the curve has too few points: it takes two small blocks and two
    /// within the last two octaves. And when longer blocks take no longer, as on a busy machine.
    pub fn of(curve: &Curve) -> Option<Quantities> {
        Quantities::of_pick(curve, Pick::Typical)
    }

    /// The same of another of each size's times.
    pub fn of_pick(curve: &Curve, pick: Pick) -> Option<Quantities> {
        let times = |point: &Point| point.time_s(pick);
        let found = Numbers::of(&table(curve, times))?;
        let mut rng = Rng::new(SEED);
        let again: Vec<Numbers> = (0..REPETITIONS)
            .filter_map(|_| Numbers::of(&table(curve, |point| point.time_again_s(pick, &mut rng))))
            .collect();
        let estimate = |value: f64, of: &dyn Fn(&Numbers) -> Option<f64>| {
            Estimate::from_repetitions(value, again.iter().filter_map(of).collect())
        };
        Some(Quantities {
            latency_s: estimate(found.latency_s, &|one| Some(one.latency_s)),
            bandwidth_bits_per_s: estimate(found.bandwidth, &|one| Some(one.bandwidth)),
            peak_bits_per_s: estimate(found.peak, &|one| Some(one.peak)),
            saturation_bytes: found.saturation.map(|value| estimate(value, &|one| one.saturation)),
            half_bytes: estimate(found.half(), &|one| Some(one.half())),
            plateau_bytes: found.plateau.map(|value| estimate(value, &|one| one.plateau)),
        })
    }
}

fn table(curve: &Curve, mut time: impl FnMut(&Point) -> f64) -> Vec<(f64, f64)> {
    curve.points.iter().map(|point| (point.bytes as f64, time(point))).collect()
}

impl Numbers {
    fn of(table: &[(f64, f64)]) -> Option<Numbers> {
        let most = table.last()?.0;
        let part = |from: f64, to: f64| {
            let inside = table.iter().filter(|(bytes, _)| (from..=to).contains(bytes));
            theil_sen(&inside.copied().collect::<Vec<_>>())
        };
        let (_, latency_s) = part(0.0, SMALL_BYTES as f64)?;
        let (slope, _) = part(most / 4.0, most)?;
        let bandwidth = 8.0 / slope;
        if !(bandwidth.is_finite() && bandwidth > 0.0 && latency_s > 0.0) {
            return None;
        }
        let throughput = |(bytes, time): &(f64, f64)| bytes * 8.0 / time;
        Some(Numbers {
            latency_s,
            bandwidth,
            peak: table.iter().map(throughput).fold(0.0, f64::max),
            saturation: from_which_on(table, |(_, time)| *time >= RISE * latency_s),
            plateau: from_which_on(table, |point| throughput(point) >= PLATEAU * bandwidth),
        })
    }

    fn half(&self) -> f64 {
        self.latency_s * self.bandwidth / 8.0
    }
}

/// The least size from which on something holds to the end.
fn from_which_on(table: &[(f64, f64)], holds: impl Fn(&(f64, f64)) -> bool) -> Option<f64> {
    let from = table.iter().rposition(|point| !holds(point)).map_or(0, |last| last + 1);
    table.get(from).map(|(bytes, _)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::sizes;
    use covey_wire::Rng;
    use proptest::prelude::*;

    fn hockney(latency_s: f64, bits_per_s: f64, most: u64) -> Curve {
        let time = |bytes: u64| latency_s + bytes as f64 * 8.0 / bits_per_s;
        Curve::new(sizes(most, 3).into_iter().map(|bytes| Point::new(bytes, vec![time(bytes); 7])))
    }

    #[test]
    fn erato_1s_crossover_cable_is_found_again() {
        // TCP: 57 us, 94.12 Mbit/s; published n1/2 671 and n95 12,742 bytes by the model.
        let found = Quantities::of(&hockney(57e-6, 94.12e6, 4 << 20)).unwrap();
        assert!((found.half_bytes.value - 670.6).abs() < 0.5, "{found:?}");
        let saturation = found.saturation_bytes.unwrap().value;
        assert!((0.17 * 670.6..0.21 * 670.6).contains(&saturation), "{saturation}");
        let plateau = found.plateau_bytes.unwrap().value;
        assert!((12_700.0..17_000.0).contains(&plateau), "{plateau}");
        assert!((found.peak_bits_per_s.value / 94.12e6 - 1.0).abs() < 0.001);
    }

    #[test]
    fn a_credit_of_the_shaper_moves_the_peak_and_not_the_bandwidth() {
        // A bucket of 16 kB lets the first part of each block pass for free.
        let time = |bytes: u64| 20e-6 + bytes.saturating_sub(16_000) as f64 * 8.0 / 100e6;
        let points =
            sizes(1 << 20, 3).into_iter().map(|bytes| Point::new(bytes, vec![time(bytes); 7]));
        let found = Quantities::of(&Curve::new(points)).unwrap();
        assert!(found.peak_bits_per_s.value > 1e9);
        assert!((found.bandwidth_bits_per_s.value / 100e6 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_curve_that_ends_too_early_says_so() {
        let found = Quantities::of(&hockney(1e-3, 1e9, 1 << 10)).unwrap();
        assert_eq!((found.saturation_bytes, found.plateau_bytes), (None, None));
        assert_eq!(Quantities::of(&Curve::default()), None);
        assert_eq!(Quantities::of(&Curve::new([Point::new(1, vec![1.0])])), None);
    }

    #[test]
    fn intervals_widen_with_noise_and_hold_the_truth() {
        let mut rng = Rng::new(7);
        let mut noisy = |width: f64| {
            let points = sizes(1 << 20, 3).into_iter().map(|bytes| {
                let time = 50e-6 + bytes as f64 * 8.0 / 100e6;
                let times = (0..25).map(|_| time * (1.0 + width * rng.share())).collect();
                Point::new(bytes, times)
            });
            Quantities::of(&Curve::new(points.collect::<Vec<_>>())).unwrap().latency_s
        };
        let (calm, wild) = (noisy(0.01), noisy(0.5));
        assert!(wild.high - wild.low > 5.0 * (calm.high - calm.low), "{calm:?} {wild:?}");
        assert!(calm.low <= calm.value && calm.value <= calm.high);
        // The median of the noise is half of its width.
        assert!(wild.low < 50e-6 * 1.25 && 50e-6 * 1.25 < wild.high, "{wild:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn every_link_of_hockneys_model_is_found_again(
            latency_us in 1.0..500.0f64,
            megabits in 1.0..100_000.0f64,
        ) {
            let found = Quantities::of(&hockney(latency_us * 1e-6, megabits * 1e6, 8 << 20)).unwrap();
            prop_assert!((found.latency_s.value / (latency_us * 1e-6) - 1.0).abs() < 1e-6);
            prop_assert!((found.bandwidth_bits_per_s.value / (megabits * 1e6) - 1.0).abs() < 1e-6);
            let half = latency_us * megabits / 8.0;
            prop_assert!((found.half_bytes.value / half - 1.0).abs() < 1e-5);
        }
    }
}
