//! Where a difference comes from: the wire or the library.
//!
//! Two clusters that differ in both, as in a paper that has one MPI on InfiniBand and another on Myrinet, cannot
//! say. With both libraries over both wires there are four times, and the whole factor between two opposite
//! corners is the product of two: what the wire makes, taken through either library and averaged, and what the library
//! makes, over either wire. The average of a factor is the geometric one, so the product is exact, and no order of
//! changing one after the other is preferred.
//!
//! ```text
//!                    library A    library B
//!     first wire        t00          t01        wire    = sqrt(t10/t00 * t11/t01)
//!     second wire       t10          t11        library = sqrt(t01/t00 * t11/t10)     wire * library = t11/t00
//! ```

use crate::reproduce::quotient;
use crate::statistics::Estimate;
use serde::{Deserialize, Serialize};

/// The factors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// The second wire with the second library by the first wire with the first library.
    pub whole: Estimate,
    /// What of it the wire makes.
    pub wire: Estimate,
    /// What of it the library makes.
    pub library: Estimate,
}

/// From where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The wire.
    Wire,
    /// The library.
    Library,
    /// Both, the wire more.
    WireMore,
    /// Both, the library more.
    LibraryMore,
    /// Neither makes more than chance may.
    Neither,
}

impl Source {
    /// What a person reads.
    pub fn words(self) -> &'static str {
        match self {
            Source::Wire => "the wire",
            Source::Library => "the library",
            Source::WireMore => "both, the wire more",
            Source::LibraryMore => "both, the library more",
            Source::Neither => "no difference beyond chance",
        }
    }
}

impl Split {
    /// Of four times: those of the first wire and those of the second, each through the first library and
    /// through the second. None when one is not a time.
    pub fn of(times: [[Estimate; 2]; 2]) -> Option<Split> {
        let is_time = |one: &Estimate| one.low > 0.0 && one.high.is_finite() && one.low <= one.high;
        if !times.iter().flatten().all(is_time) {
            return None;
        }
        let [[first, other_library], [other_wire, last]] = times;
        Some(Split {
            whole: quotient(last, first),
            wire: mean(&[quotient(other_wire, first), quotient(last, other_library)]),
            library: mean(&[quotient(other_library, first), quotient(last, other_wire)]),
        })
    }

    /// Of several things together, each counting alike; none for none.
    pub fn together(all: &[Split]) -> Option<Split> {
        let of = |part: fn(&Split) -> Estimate| mean(&all.iter().map(part).collect::<Vec<_>>());
        (!all.is_empty()).then(|| Split {
            whole: of(|one| one.whole),
            wire: of(|one| one.wire),
            library: of(|one| one.library),
        })
    }

    /// Which of the two makes the difference. A factor whose interval has 1 in it may be chance.
    pub fn source(&self) -> Source {
        let is_real = |factor: &Estimate| factor.high < 1.0 || factor.low > 1.0;
        let weight = |factor: &Estimate| factor.value.ln().abs();
        match (is_real(&self.wire), is_real(&self.library)) {
            (false, false) => Source::Neither,
            (true, false) => Source::Wire,
            (false, true) => Source::Library,
            (true, true) if weight(&self.wire) >= weight(&self.library) => Source::WireMore,
            (true, true) => Source::LibraryMore,
        }
    }
}

/// The geometric mean, and that of the intervals' ends: no narrower than chance allows when all err alike.
pub fn mean(factors: &[Estimate]) -> Estimate {
    let of = |end: fn(&Estimate) -> f64| {
        (factors.iter().map(|factor| end(factor).ln()).sum::<f64>() / factors.len() as f64).exp()
    };
    Estimate { value: of(|one| one.value), low: of(|one| one.low), high: of(|one| one.high) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn about(value: f64, width: f64) -> Estimate {
        Estimate { value, low: value / (1.0 + width), high: value * (1.0 + width) }
    }

    /// Times where each wire and each library has a factor of its own.
    fn times(wire: f64, library: f64, width: f64) -> [[Estimate; 2]; 2] {
        [1.0, wire].map(|wire| [1.0, library].map(|library| about(1e-4 * wire * library, width)))
    }

    #[test]
    fn each_factor_is_found_where_it_was_put() {
        let found = Split::of(times(0.5, 1.25, 0.01)).unwrap();
        assert!(
            (found.wire.value - 0.5).abs() < 1e-12 && (found.library.value - 1.25).abs() < 1e-12
        );
        assert!((found.whole.value - 0.625).abs() < 1e-12);
        assert_eq!(found.source(), Source::WireMore);
        let source =
            |wire, library, width| Split::of(times(wire, library, width)).unwrap().source();
        assert_eq!(source(0.5, 1.0, 0.01), Source::Wire);
        assert_eq!(source(1.0, 1.5, 0.01), Source::Library);
        assert_eq!(source(1.1, 0.5, 0.01), Source::LibraryMore);
        assert_eq!(source(1.05, 0.95, 0.2), Source::Neither);
    }

    #[test]
    fn a_time_that_is_none_splits_nothing() {
        let mut some = times(0.5, 1.25, 0.01);
        some[1][0] = about(f64::NAN, 0.0);
        assert_eq!(Split::of(some), None);
        some[1][0] = about(0.0, 0.0);
        assert_eq!(Split::of(some), None);
        assert_eq!(Split::together(&[]), None);
    }

    #[test]
    fn several_count_alike_whatever_they_take() {
        let one = Split::of(times(0.5, 1.0, 0.0)).unwrap();
        let other =
            Split::of(times(2.0, 1.0, 0.0).map(|row| row.map(|time| about(time.value * 1e3, 0.0))));
        let both = Split::together(&[one, other.unwrap()]).unwrap();
        assert!((both.wire.value - 1.0).abs() < 1e-12, "{both:?}");
    }

    proptest! {
        #[test]
        fn wire_and_library_always_make_the_whole(
            values in prop::array::uniform4(1e-7..1e2f64),
        ) {
            let [a, b, c, d] = values.map(|value| about(value, 0.1));
            let found = Split::of([[a, b], [c, d]]).unwrap();
            let product = found.wire.value * found.library.value;
            prop_assert!((product / found.whole.value - 1.0).abs() < 1e-9);
            prop_assert!(found.wire.low <= found.wire.value && found.wire.value <= found.wire.high);
        }
    }
}
