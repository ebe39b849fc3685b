//! Repetitions of cases, by BLAS.

use covey_tune::Estimate;
use covey_tune::application::{Case, RESIDUAL_MAX, Repetition};

/// The BLAS that nobody has made fast.
pub const PLAIN: &str = "reference";

/// With fewer repetitions the least and the greatest say too little of chance,
const FEW: usize = 6;
/// which is then taken to be this at least.
const CHANCE: f64 = 0.05;

/// What was measured.
#[derive(Debug, Default)]
pub struct Measured(Vec<(String, Repetition)>);

impl Measured {
    /// Keeps repetitions.
    pub fn keep(&mut self, blas: &str, all: Vec<Repetition>) {
        self.0.extend(all.into_iter().map(|one| (blas.to_string(), one)));
    }

    /// How long it took; none when a result was wrong, or there is none.
    pub fn seconds(&self, blas: &str, case: Case) -> Option<Estimate> {
        let of = self.0.iter().filter(|(name, one)| name == blas && one.case == case);
        let all: Vec<&Repetition> = of.map(|(_, one)| one).collect();
        let is_right = all.iter().all(|one| one.residual <= RESIDUAL_MAX);
        let found = Estimate::of_median(all.iter().map(|one| one.wall_s).collect());
        let wide = Estimate {
            low: found.low.min(found.value * (1.0 - CHANCE)),
            high: found.high.max(found.value * (1.0 + CHANCE)),
            ..found
        };
        (is_right && !all.is_empty()).then_some(if all.len() < FEW { wide } else { found })
    }

    /// Operations by wall time, as in the paper.
    pub fn flops(&self, blas: &str, case: Case) -> Option<Estimate> {
        let Estimate { value, low, high } = self.seconds(blas, case)?;
        let of = |seconds: f64| case.operations() / seconds;
        Some(Estimate { value: of(value), low: of(high), high: of(low) })
    }
}

/// A part of something that is known exactly.
pub fn by(one: Estimate, whole: f64) -> Estimate {
    Estimate { value: one.value / whole, low: one.low / whole, high: one.high / whole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_tune::application::{Numbers, Routine};

    #[test]
    fn a_rate_is_of_right_results_of_its_case_and_library() {
        let case = Case {
            routine: Routine::Gemm,
            numbers: Numbers::D,
            order: 1000,
            block: 64,
            rows: 2,
            columns: 2,
        };
        let once = |wall_s, residual| Repetition { case, wall_s, cpu_s: wall_s, residual };
        let mut found = Measured::default();
        found.keep("ATLAS", vec![once(1.0, 0.1), once(2.0, 0.1), once(4.0, 0.1)]);
        found.keep("BLIS", vec![once(1.0, 0.1), once(1.0, f64::NAN)]);
        let rate = found.flops("ATLAS", case).unwrap();
        assert_eq!((rate.value, rate.low, rate.high), (1e9, 0.5e9, 2e9));
        found.keep("OpenBLAS", vec![once(1.0, 0.1)]);
        let once = found.seconds("OpenBLAS", case).unwrap();
        assert_eq!((once.low, once.high), (0.95, 1.05), "one alone is not exact");
        assert_eq!(found.flops("BLIS", case), None, "one wrong result spoils all");
        assert_eq!(found.flops("ATLAS", Case { block: 32, ..case }), None);
        assert_eq!(by(rate, 4e9).value, 0.25);
    }
}
