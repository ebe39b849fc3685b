//! The same wire seen through several layers: what each costs. ERATO-1 calls it overhead: the share of the lower
//! level's bandwidth that is lost, and the factor by which latency grows.

use crate::quantities::Quantities;
use serde::{Deserialize, Serialize};

/// One level against the one below.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// The level.
    pub level: String,
    /// The share of the bandwidth that it loses; negative when it gains.
    pub bandwidth_lost: f64,
    /// How many times its latency is the other's.
    pub latency_factor: f64,
    /// How many times its saturation point is the other's, where both have one.
    pub saturation_factor: Option<f64>,
}

impl Overhead {
    /// Of a level over a base.
    pub fn of(level: &str, found: &Quantities, base: &Quantities) -> Overhead {
        let saturation = found.saturation_bytes.zip(base.saturation_bytes);
        Overhead {
            level: level.to_string(),
            bandwidth_lost: 1.0 - found.peak_bits_per_s.value / base.peak_bits_per_s.value,
            latency_factor: found.latency_s.value / base.latency_s.value,
            saturation_factor: saturation.map(|(one, other)| one.value / other.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Curve, Point, sizes};

    #[test]
    fn erato_1s_overheads_come_out() {
        // Catalyst: TCP 69 us and 89.75 of NetPIPE's megabits; MPI 123 and 82.67; PVM 140 and 75.67.
        let of = |latency_us: f64, megabits: f64| {
            let time =
                |bytes: u64| latency_us * 1e-6 + bytes as f64 * 8.0 / (megabits * 1_048_576.0);
            let points = sizes(8 << 20, 0).into_iter();
            Quantities::of(&Curve::new(points.map(|bytes| Point::new(bytes, vec![time(bytes); 3]))))
                .unwrap()
        };
        let tcp = of(69.0, 89.75);
        let mpi = Overhead::of("MPI", &of(123.0, 82.67), &tcp);
        assert!((mpi.bandwidth_lost - 0.08).abs() < 0.002, "{mpi:?}");
        assert!((mpi.latency_factor - 1.8).abs() < 0.03, "{mpi:?}");
        let pvm = Overhead::of("PVM", &of(140.0, 75.67), &tcp);
        assert!((pvm.bandwidth_lost - 0.16).abs() < 0.004, "{pvm:?}");
        assert!((pvm.latency_factor - 2.0).abs() < 0.05, "{pvm:?}");
        assert!(mpi.saturation_factor.unwrap() > 1.0);
    }
}
