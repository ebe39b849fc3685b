//! What was measured: times for each size, and the graphs that they make.

use crate::statistics::{median_interval, quantile};
use covey_wire::Rng;
use serde::{Deserialize, Serialize};

/// One block size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The block's size.
    pub bytes: u64,
    /// One way of each round trip in seconds, ascending.
    pub times_s: Vec<f64>,
    /// The least mean of one trial: what NetPIPE calls the time of a size.
    pub trial_s: f64,
    /// Segments that had to be sent again meanwhile, both ends together.
    pub retransmits: u64,
}

/// Which of a size's times is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pick {
    /// The least: what the link can do when nothing disturbs.
    Best,
    /// One tenth is less.
    Low,
    /// The median.
    #[default]
    Typical,
    /// The least mean of a trial, as NetPIPE has it. A single late message spoils the trial, which the least
    /// of several hides mostly.
    Netpipe,
}

impl Pick {
    fn share(self) -> f64 {
        match self {
            Pick::Best => 0.0,
            Pick::Low => 0.1,
            Pick::Typical | Pick::Netpipe => 0.5,
        }
    }
}

impl Point {
    /// One trial: times in any order; those that are no times are left out.
    pub fn new(bytes: u64, mut times_s: Vec<f64>) -> Point {
        times_s.retain(|time| time.is_finite() && *time > 0.0);
        times_s.sort_by(f64::total_cmp);
        let trial_s = times_s.iter().sum::<f64>() / times_s.len() as f64;
        Point { bytes, times_s, trial_s, retransmits: 0 }
    }

    /// One of its times.
    pub fn time_s(&self, pick: Pick) -> f64 {
        match pick {
            Pick::Netpipe => self.trial_s,
            _ => quantile(&self.times_s, pick.share()),
        }
    }

    /// Where the median lies with 95 % confidence.
    pub fn median_interval_s(&self) -> (f64, f64) {
        median_interval(&self.times_s)
    }

    /// Throughput in bits per second.
    pub fn bits_per_s(&self, pick: Pick) -> f64 {
        self.bytes as f64 * 8.0 / self.time_s(pick)
    }

    /// The same time as it might have come out in another run: the median of a sample drawn from this one
    /// has the rank of a Beta distribution, for which a normal one stands here.
    pub(crate) fn time_again_s(&self, pick: Pick, rng: &mut Rng) -> f64 {
        if pick == Pick::Netpipe {
            // Of few trials nothing is known about the next.
            return self.trial_s;
        }
        let share = pick.share();
        let count = self.times_s.len().max(1) as f64;
        let width = (share * (1.0 - share) / count).sqrt();
        quantile(&self.times_s, share + width * rng.normal())
    }
}

/// All sizes, ascending.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The points, each size once.
    pub points: Vec<Point>,
}

impl Curve {
    /// From points in any order. Those without any time are left out; of one size, all times count,
    /// each point as a trial.
    pub fn new(points: impl IntoIterator<Item = Point>) -> Curve {
        let mut all: Vec<Point> =
            points.into_iter().filter(|point| !point.times_s.is_empty()).collect();
        all.sort_by_key(|point| point.bytes);
        let mut merged: Vec<Point> = Vec::with_capacity(all.len());
        for point in all {
            match merged.last_mut().filter(|last| last.bytes == point.bytes) {
                None => merged.push(point),
                Some(last) => {
                    last.times_s.extend(point.times_s);
                    last.times_s.sort_by(f64::total_cmp);
                    last.trial_s = last.trial_s.min(point.trial_s);
                    last.retransmits += point.retransmits;
                }
            }
        }
        Curve { points: merged }
    }

    /// The throughput graph: block size in bytes, bits per second.
    pub fn throughput(&self, pick: Pick) -> Vec<(f64, f64)> {
        self.points.iter().map(|point| (point.bytes as f64, point.bits_per_s(pick))).collect()
    }

    /// The signature graph: time in seconds, bits per second. Where it leaves the axis is the latency.
    pub fn signature(&self, pick: Pick) -> Vec<(f64, f64)> {
        self.points.iter().map(|point| (point.time_s(pick), point.bits_per_s(pick))).collect()
    }

    /// The saturation graph: time in seconds, block size in bytes.
    pub fn saturation(&self, pick: Pick) -> Vec<(f64, f64)> {
        self.points.iter().map(|point| (point.time_s(pick), point.bytes as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_knows_its_best_low_and_typical_time() {
        let point = Point::new(1000, (1..=101).map(f64::from).collect());
        assert_eq!(point.time_s(Pick::Best), 1.0);
        assert_eq!(point.time_s(Pick::Low), 11.0);
        assert_eq!(point.time_s(Pick::Typical), 51.0);
        assert_eq!(point.bits_per_s(Pick::Best), 8000.0);
    }

    #[test]
    fn what_is_no_time_is_left_out_and_one_size_is_one_point() {
        let points = [
            Point::new(2, vec![0.5, f64::NAN, -1.0]),
            Point::new(1, vec![0.0]),
            Point::new(2, vec![0.25]),
        ];
        let curve = Curve::new(points);
        assert_eq!(curve.points.len(), 1);
        assert_eq!(curve.points[0].times_s, [0.25, 0.5]);
        // Two trials, of 0.5 and 0.25 s.
        assert_eq!(curve.points[0].time_s(Pick::Netpipe), 0.25);
    }

    #[test]
    fn the_three_graphs_hold_the_same_measurement() {
        let curve = Curve::new([Point::new(125, vec![0.001])]);
        assert_eq!(curve.throughput(Pick::Best), [(125.0, 1e6)]);
        assert_eq!(curve.signature(Pick::Best), [(0.001, 1e6)]);
        assert_eq!(curve.saturation(Pick::Best), [(0.001, 125.0)]);
    }
}
