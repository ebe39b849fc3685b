//! Statistics that a few outliers do not move: times on a shared machine have long tails.

use serde::{Deserialize, Serialize};

/// A number with the interval in which it lies with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The best guess.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

impl Estimate {
    /// The median of numbers in any order, and where it lies: by order statistics, and with fewer than six
    /// between the least and the greatest.
    pub fn of_median(mut numbers: Vec<f64>) -> Estimate {
        numbers.sort_by(f64::total_cmp);
        let (low, high) = median_interval(&numbers);
        Estimate { value: quantile(&numbers, 0.5), low, high }
    }

    /// From the value and what it was in repetitions that chance made: their middle 95 %.
    pub fn from_repetitions(value: f64, mut repetitions: Vec<f64>) -> Estimate {
        repetitions.retain(|one| one.is_finite());
        repetitions.sort_by(f64::total_cmp);
        if repetitions.is_empty() {
            Estimate { value, low: value, high: value }
        } else {
            Estimate {
                value,
                low: quantile(&repetitions, 0.025).min(value),
                high: quantile(&repetitions, 0.975).max(value),
            }
        }
    }
}

/// A quantile of sorted numbers, between two of them in proportion. Not a number for none.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (below, part) = (at.floor() as usize, at.fract());
    let above = sorted[(below + 1).min(last)];
    sorted[below] + part * (above - sorted[below])
}

/// The interval of the median by order statistics, which asks nothing of the distribution: the ranks
/// between which the median lies with 95 % confidence.
pub fn median_interval(sorted: &[f64]) -> (f64, f64) {
    let count = sorted.len();
    if count < 6 {
        // So few do not even give 95 % between the least and the greatest.
        return (quantile(sorted, 0.0), quantile(sorted, 1.0));
    }
    let half_width = 1.96 * (count as f64).sqrt() / 2.0;
    let middle = count as f64 / 2.0;
    let low = (middle - half_width).floor().max(0.0) as usize;
    let high = ((middle + half_width).ceil() as usize).min(count - 1);
    (sorted[low], sorted[high])
}

/// The line through points by Theil and Sen: slope and value at zero. Up to 29 % of the points may be
/// anywhere. `None` for fewer than two different places.
pub fn theil_sen(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (index, one) in points.iter().enumerate() {
        for other in &points[index + 1..] {
            if one.0 != other.0 {
                slopes.push((other.1 - one.1) / (other.0 - one.0));
            }
        }
    }
    if slopes.is_empty() {
        return None;
    }
    slopes.sort_by(f64::total_cmp);
    let slope = quantile(&slopes, 0.5);
    let mut starts: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    starts.sort_by(f64::total_cmp);
    Some((slope, quantile(&starts, 0.5)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_lie_between_their_neighbours() {
        let numbers = [1.0, 2.0, 4.0];
        assert_eq!(quantile(&numbers, 0.0), 1.0);
        assert_eq!(quantile(&numbers, 0.5), 2.0);
        assert_eq!(quantile(&numbers, 0.75), 3.0);
        assert_eq!(quantile(&numbers, 1.0), 4.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn an_interval_of_the_median_has_the_ranks_of_the_textbook() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        // Ranks 40 and 61 of 100.
        assert_eq!(median_interval(&hundred), (41.0, 61.0));
        assert_eq!(median_interval(&[3.0, 5.0, 9.0]), (3.0, 9.0));
    }

    #[test]
    fn the_median_of_a_few_lies_among_all_of_them() {
        let found = Estimate::of_median(vec![5.0, 1.0, 3.0]);
        assert_eq!(found, Estimate { value: 3.0, low: 1.0, high: 5.0 });
        assert!(Estimate::of_median(Vec::new()).value.is_nan());
    }

    #[test]
    fn a_quarter_of_wild_points_does_not_move_the_line() {
        let mut points: Vec<(f64, f64)> =
            (0..40).map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x))).collect();
        points.iter_mut().step_by(5).for_each(|point| point.1 = 1e6);
        let (slope, start) = theil_sen(&points).unwrap();
        assert!((slope - 2.0).abs() < 1e-9 && (start - 3.0).abs() < 1e-9, "{slope} {start}");
        assert_eq!(theil_sen(&[(1.0, 2.0), (1.0, 3.0)]), None);
    }

    proptest! {
        #[test]
        fn any_line_is_found_again(slope in -1e3..1e3f64, start in -1e3..1e3f64) {
            let points: Vec<(f64, f64)> =
                (0..20).map(|x| (f64::from(x), start + slope * f64::from(x))).collect();
            let (found_slope, found_start) = theil_sen(&points).unwrap();
            prop_assert!((found_slope - slope).abs() < 1e-6);
            prop_assert!((found_start - start).abs() < 1e-6);
        }

        #[test]
        fn quantiles_rise_with_their_share(mut numbers in prop::collection::vec(-1e9..1e9f64, 1..50)) {
            numbers.sort_by(f64::total_cmp);
            let found: Vec<f64> =
                (0..=10).map(|tenth| quantile(&numbers, f64::from(tenth) / 10.0)).collect();
            prop_assert!(found.windows(2).all(|pair| pair[0] <= pair[1]));
        }
    }
}
