//! What the trend of large problems promises for small ones, and how far these stay behind: ERATO-1 calls that the
//! overhead of a cluster.

use crate::statistics::{Estimate, theil_sen};
use serde::{Deserialize, Serialize};

/// A line through the rates of large problems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    /// From this size on problems are large.
    pub from: u64,
    /// How far, as a share of the line, the one that is farthest from it lies beside it.
    pub bend: f64,
    /// The smaller ones, ascending.
    pub behind: Vec<Behind>,
}

/// A small problem.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Behind {
    /// Its size.
    pub size: u64,
    /// Its rate.
    pub rate: Estimate,
    /// What the line has there.
    pub ideal: f64,
}

/// So many points make a line that something can lie beside.
const LARGE_MIN: usize = 3;

impl Trend {
    /// From sizes and rates, ascending: the larger half, three at least, makes the line. None with fewer than
    /// one beside these, or when the line has nothing to promise: it falls, or is below zero at all that are small.
    pub fn of(points: &[(u64, Estimate)]) -> Option<Trend> {
        let count = points.len().div_ceil(2).max(LARGE_MIN);
        let (small, large) = points.split_at_checked(points.len().checked_sub(count)?)?;
        let all: Vec<(f64, f64)> =
            large.iter().map(|(size, rate)| (*size as f64, rate.value)).collect();
        let (slope, start) = theil_sen(&all).filter(|(slope, _)| *slope > 0.0)?;
        let line = |size: u64| start + slope * size as f64;
        let beside = |(size, rate): &(u64, Estimate)| (rate.value / line(*size) - 1.0).abs();
        let behind = small.iter().map(|(size, rate)| Behind {
            size: *size,
            rate: *rate,
            ideal: line(*size),
        });
        let behind: Vec<Behind> = behind.filter(|one| one.ideal > 0.0).collect();
        (!behind.is_empty()).then(|| Trend {
            from: large[0].0,
            bend: large.iter().map(beside).fold(0.0, f64::max),
            behind,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(rate: impl Fn(f64) -> f64) -> Vec<(u64, Estimate)> {
        let of = |size: u64| {
            let value = rate(size as f64);
            (size, Estimate { value, low: 0.9 * value, high: 1.1 * value })
        };
        [250, 500, 1000, 2000, 3000, 4000, 5000].map(of).to_vec()
    }

    #[test]
    fn what_is_lost_below_the_line_is_found() {
        // On a line above 1000, and half of it below.
        let found = points(|size| (1e9 + 1e6 * size) * if size < 1000.0 { 0.5 } else { 1.0 });
        let found = Trend::of(&found).unwrap();
        assert_eq!((found.from, found.behind.len()), (2000, 3));
        assert!(found.bend < 1e-9);
        let share = |at: usize| found.behind[at].rate.value / found.behind[at].ideal;
        assert!((share(0) - 0.5).abs() < 1e-9 && (share(2) - 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_cluster_of_constant_overhead_is_bent_and_behind() {
        // Each problem has some time for its operations, and half a second that does not depend on its size.
        let found = Trend::of(&points(|size| size.powi(3) / (size.powi(3) / 1e10 + 0.5))).unwrap();
        assert!(found.bend > 0.0 && found.behind[0].rate.value < 0.05 * found.behind[0].ideal);
    }

    #[test]
    fn no_line_no_promise() {
        assert_eq!(Trend::of(&[]), None);
        assert_eq!(Trend::of(&points(|size| 1e9 - size)), None, "it falls");
        assert_eq!(
            Trend::of(&points(|size| 1e6 * (size - 1500.0))),
            None,
            "it is below zero at all small ones"
        );
        let few = points(|size| size);
        assert_eq!(Trend::of(&few[..3]), None);
        assert!(Trend::of(&few[..4]).is_some());
    }
}
