//! Rates of an application: matrices multiplied and systems solved, in blocks of some order, on a grid of processes.
//!
//! Which block orders to try follows from the network: ERATO-1 looks for them between the saturation point and the
//! block that reaches the plateau. What was measured is compared by the best of several repetitions, because
//! a neighbour can only make one slower.

use crate::choose::choose;
use crate::quantities::Quantities;
use serde::{Deserialize, Serialize};

/// The block orders there are to choose from.
pub const BLOCK_ORDERS: [u64; 6] = [8, 16, 32, 64, 128, 256];
/// A repetition whose wall time is so many times its processor time was disturbed.
pub const DISTURBED: f64 = 1.1;
/// A greater residual, in units of rounding, is a wrong answer. HPL has the same.
pub const RESIDUAL_MAX: f64 = 16.0;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Routine {
    /// Matrices are multiplied.
    Gemm,
    /// A system with one right side is solved.
    Gesv,
}

impl Routine {
    /// As the libraries name it, without the letters before.
    pub fn name(self) -> &'static str {
        match self {
            Routine::Gemm => "gemm",
            Routine::Gesv => "gesv",
        }
    }
}

/// A type of numbers, by its letter in the names of routines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Numbers {
    /// Single precision.
    S,
    /// Double precision.
    D,
    /// Complex, single precision.
    C,
    /// Complex, double precision.
    Z,
}

impl Numbers {
    /// All, in LAPACK's order.
    pub const ALL: [Numbers; 4] = [Numbers::S, Numbers::D, Numbers::C, Numbers::Z];

    /// Its letter.
    pub fn letter(self) -> char {
        match self {
            Numbers::S => 's',
            Numbers::D => 'd',
            Numbers::C => 'c',
            Numbers::Z => 'z',
        }
    }

    /// From a letter.
    pub fn from_letter(letter: char) -> Option<Numbers> {
        Numbers::ALL.into_iter().find(|one| one.letter() == letter)
    }
}

/// What is measured at once: a routine of one type on matrices dealt out in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    /// The routine.
    pub routine: Routine,
    /// Its numbers.
    pub numbers: Numbers,
    /// Order of the matrices.
    pub order: u64,
    /// Order of the blocks.
    pub block: u64,
    /// Rows of the grid of processes.
    pub rows: u64,
    /// Columns of the grid.
    pub columns: u64,
}

impl Case {
    /// Floating point operations, real ones: a complex multiplication and addition is eight.
    pub fn operations(&self) -> f64 {
        let n = self.order as f64;
        let of_one = match self.routine {
            Routine::Gemm => 2.0 * n * n * n,
            Routine::Gesv => 2.0 / 3.0 * n * n * n + 1.5 * n * n,
        };
        match self.numbers {
            Numbers::S | Numbers::D => of_one,
            Numbers::C | Numbers::Z => 4.0 * of_one,
        }
    }
}

/// One repetition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repetition {
    /// Of what.
    pub case: Case,
    /// How long it took.
    pub wall_s: f64,
    /// Processor time of the process that had least.
    pub cpu_s: f64,
    /// How wrong the result is, in units of rounding.
    pub residual: f64,
}

/// Reads whole lines of `gemm d 2000 64 1 2 WALL_NS CPU_NS RESIDUAL`, and `blas PATH`. Answers what was read and how
/// many bytes of it are used up; the beginning of a line waits for the rest.
pub fn read(text: &str) -> Result<(Records, usize), String> {
    let end = text.rfind('\n').map_or(0, |end| end + 1);
    let mut records = Records::default();
    for line in text[..end].lines() {
        match line.strip_prefix("blas ") {
            Some(path) => records.blas = Some(path.to_string()),
            None => records
                .repetitions
                .push(repetition(line).ok_or_else(|| format!("`{line}` is no record of a rate"))?),
        }
    }
    Ok((records, end))
}

/// What a measuring program wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// Where the BLAS was loaded from.
    pub blas: Option<String>,
    /// What was measured.
    pub repetitions: Vec<Repetition>,
}

fn repetition(line: &str) -> Option<Repetition> {
    let words: Vec<&str> = line.split(' ').collect();
    let [routine, numbers, order, block, rows, columns, wall, cpu, residual] = words[..] else {
        return None;
    };
    let routine = [Routine::Gemm, Routine::Gesv].into_iter().find(|one| one.name() == routine)?;
    let numbers = Numbers::from_letter(numbers.chars().next()?)?;
    let number = |word: &str| word.parse::<u64>().ok();
    let case = Case {
        routine,
        numbers,
        order: number(order)?,
        block: number(block)?,
        rows: number(rows)?,
        columns: number(columns)?,
    };
    let wall_s = number(wall)? as f64 / 1e9;
    Some(Repetition {
        case,
        wall_s: (wall_s > 0.0).then_some(wall_s)?,
        cpu_s: number(cpu)? as f64 / 1e9,
        residual: residual.trim_start_matches('-').parse().ok()?,
    })
}

/// The best of several repetitions of one case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Of what.
    #[serde(flatten)]
    pub case: Case,
    /// Of the best repetition, in 10^9 operations a second.
    pub gflops: f64,
    /// Wall time of the best repetition.
    pub wall_s: f64,
    /// Its processor time, of the process that had least.
    pub cpu_s: f64,
    /// How many there were.
    pub repetitions: usize,
    /// The greatest residual of all, in units of rounding; absent when it was no number.
    pub residual: Option<f64>,
}

impl Rate {
    /// Of repetitions of one case; none without any.
    pub fn of(all: &[Repetition]) -> Option<Rate> {
        let best = all.iter().min_by(|one, other| one.wall_s.total_cmp(&other.wall_s))?;
        let residual = all
            .iter()
            .map(|one| one.residual)
            .try_fold(0.0f64, |most, one| one.is_finite().then_some(most.max(one)));
        Some(Rate {
            case: best.case,
            gflops: best.case.operations() / best.wall_s / 1e9,
            wall_s: best.wall_s,
            cpu_s: best.cpu_s,
            repetitions: all.len(),
            residual,
        })
    }

    /// Whether every result was right. A wrong answer is no rate.
    pub fn is_right(&self) -> bool {
        self.residual.is_some_and(|residual| residual <= RESIDUAL_MAX)
    }

    /// Wall time by processor time: 1 when nobody disturbed.
    pub fn stretch(&self) -> f64 {
        self.wall_s / self.cpu_s.max(1e-9)
    }

    /// Whether even the best repetition was disturbed.
    pub fn is_disturbed(&self) -> bool {
        self.stretch() > DISTURBED
    }
}

/// The block orders between which the network leaves the choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The least block of doubles that is above the saturation point.
    pub low: u64,
    /// The greatest with less than n95 bytes.
    pub high: u64,
    /// What the rule alone would choose.
    pub rule: u64,
    /// Why, in words.
    pub evidence: String,
}

impl Window {
    /// From a curve through MPI; none when it has no saturation point, or did not reach its plateau.
    pub fn of(through_mpi: &Quantities) -> Option<Window> {
        let chosen = choose(std::slice::from_ref(through_mpi)).block_order?;
        let (low, high, rule) = (chosen.low, chosen.high, chosen.value);
        Some(Window { low, high, rule, evidence: chosen.evidence })
    }

    /// Those of the usual orders that lie in it, and the nearest on either side: the ends are known no better
    /// than that.
    pub fn orders(&self) -> Vec<u64> {
        let below = BLOCK_ORDERS.into_iter().rev().find(|order| *order < self.low);
        let above = BLOCK_ORDERS.into_iter().find(|order| *order > self.high);
        let (from, to) = (below.unwrap_or(0), above.unwrap_or(u64::MAX));
        BLOCK_ORDERS.into_iter().filter(|order| (from..=to).contains(order)).collect()
    }
}

/// All grids of so many processes: rows and columns.
pub fn grids(ranks: u64) -> Vec<(u64, u64)> {
    (1..=ranks)
        .filter(|rows| ranks.is_multiple_of(*rows))
        .map(|rows| (rows, ranks / rows))
        .collect()
}

/// The order of matrices such that one pass over all cases takes about `seconds`, when `cubes` is the sum over the
/// cases of their operations by the cube of the order, each divided by the rate it will have.
pub fn order_for(cubes: f64, seconds: f64) -> u64 {
    const ORDERS: (u64, u64) = (256, 4096);
    let order = (seconds / cubes.max(1e-30)).cbrt() as u64;
    (order / 128 * 128).clamp(ORDERS.0, ORDERS.1)
}

/// Which stay in the contest after so many rounds, by the best that each has shown. A first look can be wrong by a
/// factor of two on a machine that others use, so the door closes slowly.
pub fn survivors(rates: &[f64], rounds: usize) -> Vec<bool> {
    let best = rates.iter().copied().fold(0.0, f64::max);
    let share = match rounds {
        0 => 0.0,
        1 => 0.5,
        2 => 0.7,
        3 => 0.8,
        _ => 0.9,
    };
    rates.iter().map(|rate| *rate > 0.0 && *rate >= share * best).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Estimate;

    fn case(routine: Routine, numbers: Numbers) -> Case {
        Case { routine, numbers, order: 1000, block: 64, rows: 1, columns: 2 }
    }

    #[test]
    fn operations_are_those_of_the_literature() {
        assert_eq!(case(Routine::Gemm, Numbers::D).operations(), 2e9);
        assert_eq!(case(Routine::Gemm, Numbers::Z).operations(), 8e9);
        let solved = case(Routine::Gesv, Numbers::D).operations();
        assert!((solved / 1e9 - 0.66817).abs() < 1e-4, "{solved}");
    }

    #[test]
    fn records_are_read_line_by_line_and_the_rest_waits() {
        let text =
            "blas /usr/lib/x/libblas.so.3\ngemm d 1000 64 1 2 200000000 190000000 0.5\ngesv d 10";
        let (found, used) = read(text).unwrap();
        assert_eq!(&text[used..], "gesv d 10");
        assert_eq!(found.blas.as_deref(), Some("/usr/lib/x/libblas.so.3"));
        assert_eq!(found.repetitions[0].case, case(Routine::Gemm, Numbers::D));
        assert_eq!(found.repetitions[0].wall_s, 0.2);
        for wrong in ["gemm q 1 1 1 1 1 1 0\n", "gemm d 1 1 1 1 0 1 0\n", "quail\n", "\n"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_best_repetition_counts_and_one_wrong_answer_spoils_all() {
        let once = |wall_s: f64, residual: f64| Repetition {
            case: case(Routine::Gemm, Numbers::D),
            wall_s,
            cpu_s: 0.1,
            residual,
        };
        let rate = Rate::of(&[once(0.4, 0.1), once(0.1, 0.2), once(0.2, 0.3)]).unwrap();
        assert_eq!((rate.gflops.round(), rate.repetitions, rate.residual), (20.0, 3, Some(0.3)));
        assert!(rate.is_right() && !rate.is_disturbed());
        assert!(Rate::of(&[once(0.12, 0.1)]).unwrap().is_disturbed());
        for residual in [17.0, f64::INFINITY, f64::NAN] {
            assert!(!Rate::of(&[once(0.1, 0.1), once(0.2, residual)]).unwrap().is_right());
        }
        assert_eq!(Rate::of(&[]), None);
    }

    #[test]
    fn candidates_are_those_in_the_window_and_its_neighbours() {
        let window = |low, high| Window { low, high, rule: low, evidence: String::new() }.orders();
        assert_eq!(window(6, 61), [8, 16, 32, 64]);
        assert_eq!(window(9, 31), [8, 16, 32]);
        assert_eq!(window(8, 64), [8, 16, 32, 64, 128]);
        assert_eq!(window(40, 50), [32, 64]);
        assert_eq!(window(300, 400), [256]);
        assert_eq!(window(1, 4), [8]);
    }

    #[test]
    fn a_window_follows_from_s_and_n95() {
        let exactly = |value: f64| Estimate { value, low: value, high: value };
        let mut link = Quantities {
            latency_s: exactly(1e-6),
            bandwidth_bits_per_s: exactly(1e9),
            peak_bits_per_s: exactly(1e9),
            saturation_bytes: Some(exactly(800.0)),
            half_bytes: exactly(2000.0),
            plateau_bytes: Some(exactly(32768.0)),
        };
        let window = Window::of(&link).unwrap();
        assert_eq!((window.low, window.high, window.rule), (10, 64, 64));
        link.plateau_bytes = None;
        assert_eq!(Window::of(&link), None);
    }

    #[test]
    fn grids_have_all_processes() {
        assert_eq!(grids(1), [(1, 1)]);
        assert_eq!(grids(6), [(1, 6), (2, 3), (3, 2), (6, 1)]);
    }

    #[test]
    fn the_door_closes_slowly() {
        let rates = [10.0, 7.5, 5.5, 0.0];
        assert_eq!(survivors(&rates, 0), [true, true, true, false]);
        assert_eq!(survivors(&rates, 1), [true, true, true, false]);
        assert_eq!(survivors(&rates, 2), [true, true, false, false]);
        assert_eq!(survivors(&rates, 3), [true, false, false, false]);
    }

    #[test]
    fn matrices_fit_the_time_there_is() {
        // Ten multiplications at 20 Gflop/s each: one second is enough for orders of 1000.
        assert_eq!(order_for(10.0 * 2.0 / 20e9, 1.0), 896);
        assert_eq!(order_for(1.0, 1.0), 256);
        assert_eq!(order_for(0.0, 1.0), 4096);
    }
}
