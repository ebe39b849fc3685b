//! Where a message library changes how it sends: up to its eager limit a message goes at once; a longer one is
//! announced, and waits until the receiver has said where to put it (rendezvous). That takes another way to and fro,
//! so the curve of times has a step there, which no wire makes.

use crate::curve::{Curve, Pick, Point};
use crate::quantities::SMALL_BYTES;
use crate::statistics::{quantile, theil_sen};
use serde::{Deserialize, Serialize};

/// A step costs at least this part of the latency: the answer that is waited for takes about one.
const COST_MIN: f64 = 0.6;
/// And so many times what the points scatter about their lines.
const NOISES: f64 = 6.0;
/// Shorter blocks are all sent at once, by every library.
const BYTES_MIN: u64 = 256;
/// How many points on each side make a line.
const POINTS_MIN: usize = 4;

/// A step in the times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The longest block before it: sent at once.
    pub eager_bytes: u64,
    /// The shortest behind it.
    pub rendezvous_bytes: u64,
    /// What it costs, in seconds.
    pub cost_s: f64,
}

/// The greatest step of a curve, if there is one: the times of the two octaves before it and of the two
/// behind it lie on lines that are apart by more than they scatter, and by more than half the latency.
pub fn step(curve: &Curve) -> Option<Step> {
    let table: Vec<(f64, f64)> = curve
        .points
        .iter()
        .map(|point| (point.bytes as f64, point.time_s(Pick::Typical)))
        .collect();
    let small = |point: &&Point| point.bytes <= SMALL_BYTES;
    let mut small: Vec<f64> =
        curve.points.iter().filter(small).map(|point| point.time_s(Pick::Typical)).collect();
    small.sort_by(f64::total_cmp);
    let latency_s = quantile(&small, 0.5);
    let candidates = (1..table.len()).filter(|at| table[at - 1].0 >= BYTES_MIN as f64);
    let jumps = candidates.filter_map(|at| Some((at, jump(&table, at, latency_s)?)));
    let (at, jump) = jumps.max_by(|(_, one), (_, other)| one.clarity.total_cmp(&other.clarity))?;
    Some(Step {
        eager_bytes: table[at - 1].0 as u64,
        rendezvous_bytes: table[at].0 as u64,
        cost_s: jump.cost_s,
    })
}

struct Jump {
    cost_s: f64,
    /// How many times what the points scatter. Greatest where no point lies on the wrong side.
    clarity: f64,
}

/// How far the line of the points before lies below that of the points from `at` on, between both.
fn jump(table: &[(f64, f64)], at: usize, latency_s: f64) -> Option<Jump> {
    let (before, behind) = (table[at - 1], table[at]);
    let left: Vec<(f64, f64)> =
        table[..at].iter().filter(|point| point.0 >= before.0 / 4.0).copied().collect();
    let right: Vec<(f64, f64)> =
        table[at..].iter().filter(|point| point.0 <= behind.0 * 4.0).copied().collect();
    if left.len() < POINTS_MIN || right.len() < POINTS_MIN {
        return None;
    }
    let middle = (before.0 + behind.0) / 2.0;
    let low = Line::of(&left)?;
    let high = Line::of(&right)?;
    let cost_s = high.at(middle) - low.at(middle);
    // The two points beside it must be apart as well: lines that bend meet anywhere.
    let apart_s = behind.1 - before.1 - low.slope.max(high.slope) * (behind.0 - before.0);
    let noise_s = low.noise_s + high.noise_s;
    let is_step = cost_s > (COST_MIN * latency_s).max(NOISES * noise_s)
        && apart_s > (COST_MIN / 2.0 * latency_s).max(NOISES / 2.0 * noise_s);
    is_step.then(|| Jump { cost_s, clarity: cost_s / noise_s.max(1e-3 * latency_s) })
}

/// The line of some points, and how far three quarters of them lie from it at most.
struct Line {
    slope: f64,
    start: f64,
    noise_s: f64,
}

impl Line {
    fn of(points: &[(f64, f64)]) -> Option<Line> {
        let (slope, start) = theil_sen(points)?;
        let mut apart: Vec<f64> =
            points.iter().map(|(x, y)| (y - start - slope * x).abs()).collect();
        apart.sort_by(f64::total_cmp);
        Some(Line { slope, start, noise_s: quantile(&apart, 0.75) })
    }

    fn at(&self, place: f64) -> f64 {
        self.start + self.slope * place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::sizes;
    use crate::wire::Wire;
    use covey_wire::Rng;

    fn curve(time: impl Fn(u64) -> f64) -> Curve {
        let points = sizes(1 << 20, 3).into_iter();
        Curve::new(points.map(|bytes| Point::new(bytes, vec![time(bytes); 5])))
    }

    #[test]
    fn the_limit_of_open_mpi_on_fast_ethernet_is_found() {
        // 64 KiB less a header: one round trip of 140 us more, of 5.9 ms.
        let time = |bytes: u64| {
            let more = if bytes > 65_536 - 64 { 140e-6 } else { 0.0 };
            70e-6 + bytes as f64 * 8.0 / 94.1e6 + more
        };
        let found = step(&curve(time)).unwrap();
        assert_eq!((found.eager_bytes, found.rendezvous_bytes), (49_155, 65_533));
        assert!((found.cost_s - 140e-6).abs() < 20e-6, "{found:?}");
    }

    #[test]
    fn a_limit_between_neighbours_is_found_to_the_byte() {
        let time = |bytes: u64| {
            let more = if bytes >= 24_576 { 33e-6 } else { 0.0 };
            7e-6 + bytes as f64 * 8.0 / 8e9 + more
        };
        let found = step(&curve(time)).unwrap();
        assert_eq!((found.eager_bytes, found.rendezvous_bytes), (24_573, 24_576));
    }

    #[test]
    fn wires_have_no_step_though_they_have_packets() {
        for (rate, latency_s) in [(100e6, 57e-6), (1e9, 40e-6), (10e9, 20e-6)] {
            let wire = Wire::ethernet(rate, 1500);
            assert_eq!(step(&curve(|bytes| latency_s + wire.time_s(bytes))), None, "{rate}");
        }
    }

    #[test]
    fn of_a_thousand_curves_that_scatter_five_at_most_have_a_step() {
        let found = (0..2000).filter(|seed| {
            let rng = std::cell::RefCell::new(Rng::new(*seed));
            let time = |bytes: u64| {
                let noise = 1.0 + 0.1 * rng.borrow_mut().normal().abs();
                (20e-6 + bytes as f64 * 8.0 / 1e9) * noise
            };
            step(&curve(time)).is_some()
        });
        assert!(found.count() <= 10);
    }

    #[test]
    fn too_few_sizes_have_none() {
        assert_eq!(step(&Curve::default()), None);
        assert_eq!(step(&Curve::new([Point::new(1, vec![1.0]), Point::new(512, vec![9.0])])), None);
    }
}
