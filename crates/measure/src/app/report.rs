//! What `covey tune app` reports.

use super::hpl::Hpl;
use crate::environment::Environment;
use crate::levels::Missing;
use crate::provenance::Provenance;
use covey_plot::table;
use covey_tune::application::{BLOCK_ORDERS, Case, DISTURBED, Numbers, Rate, Window};
use serde::{Deserialize, Serialize};
use std::io::Write;

/// The result of `covey tune app`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppReport {
    /// `app`.
    pub kind: String,
    /// How many processes there were.
    pub ranks: usize,
    /// On how many CPUs.
    pub cpus: usize,
    /// A network lies between them: then they wait without anybody disturbing.
    pub has_network: bool,
    /// Order of the matrices of ScaLAPACK; none when it was not measured.
    pub order: Option<u64>,
    /// What one core does.
    pub peaks: Vec<Measured>,
    /// The block orders that the network leaves to choose from, by MPI.
    pub windows: Vec<Through>,
    /// ScaLAPACK: every case that was measured before the choice.
    pub rates: Vec<Measured>,
    /// What was chosen for each routine, type and MPI.
    pub chosen: Vec<Chosen>,
    /// Every case of the exhaustive search; empty without one.
    pub exhaustive: Vec<Measured>,
    /// HPL, when it was asked for.
    pub hpl: Option<Hpl>,
    /// What could not be measured: which, and why.
    pub missing: Vec<Missing>,
    /// Why the measurement ended early, if it did.
    pub failure: Option<String>,
    /// How busy the machine was.
    pub environment: Environment,
    /// Where and how it was measured.
    pub provenance: Provenance,
}

/// A rate, and by which libraries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The MPI; none for one core alone.
    pub mpi: Option<String>,
    /// The BLAS.
    pub blas: String,
    /// What it did.
    #[serde(flatten)]
    pub rate: Rate,
}

/// A window, and of which MPI.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Through {
    /// The MPI.
    pub mpi: String,
    /// The window; none when the curve has none, and then all orders are tried.
    pub window: Option<Window>,
}

/// A choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// With what, and what a measurement after the choice gave.
    #[serde(flatten)]
    pub confirmed: Measured,
    /// What it was chosen for.
    pub contest_gflops: f64,
    /// The confirmed rate as a share of what the cores used could do with the best BLAS.
    pub share_of_peak: Option<f64>,
    /// The best of the exhaustive search.
    pub best: Option<Measured>,
    /// How much of that the chosen one reaches, from the same repetitions.
    pub share_of_best: Option<f64>,
}

impl Measured {
    fn problem(&self) -> (Option<&str>, String) {
        (self.mpi.as_deref(), name(&self.rate.case))
    }
}

/// As ScaLAPACK calls it.
fn name(case: &Case) -> String {
    format!("p{}{}", case.numbers.letter(), case.routine.name())
}

fn doubt(rate: &Rate) -> String {
    match (rate.is_right(), rate.is_disturbed()) {
        (false, _) => "WRONG RESULT".to_string(),
        (true, true) => "not trustworthy: disturbed".to_string(),
        (true, false) => String::new(),
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_string(), |share| format!("{:.0} %", 100.0 * share))
}

impl AppReport {
    /// The best rate of one core with numbers of a type.
    pub fn peak(&self, numbers: Numbers) -> Option<f64> {
        let of_type = self.peaks.iter().filter(|one| one.rate.case.numbers == numbers);
        of_type.filter(|one| one.rate.is_right()).map(|one| one.rate.gflops).reduce(f64::max)
    }

    /// The least share of the best that a choice reaches; none without an exhaustive search.
    pub fn least_share(&self) -> Option<f64> {
        self.chosen.iter().filter_map(|one| one.share_of_best).reduce(f64::min)
    }

    /// In words.
    pub fn tell(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        self.tell_peaks(out)?;
        for Through { mpi, window } in &self.windows {
            match window {
                Some(window) => writeln!(
                    out,
                    "\n{mpi}: {}; the rule alone would take {}, tried are {:?}",
                    window.evidence,
                    window.rule,
                    window.orders()
                )?,
                None => writeln!(
                    out,
                    "\n{mpi}: its curve has no saturation window here, all block orders are tried"
                )?,
            }
        }
        self.tell_rates(out, &self.rates, "")?;
        self.tell_rates(out, &self.exhaustive, "exhaustive search, ")?;
        self.tell_chosen(out)?;
        if let Some(hpl) = &self.hpl {
            writeln!(
                out,
                "\nHPL with {}: {:.2} Gflop/s ({} of peak), order {}, blocks of {}, grid {}x{}, {:.1} s, {}",
                hpl.blas,
                hpl.gflops,
                percent(hpl.share_of_peak),
                hpl.order,
                hpl.block,
                hpl.rows,
                hpl.columns,
                hpl.seconds,
                if hpl.is_passed { "PASSED" } else { "FAILED" }
            )?;
        }
        for missing in &self.missing {
            writeln!(out, "\nnot measured: {}: {}", missing.what, missing.why)?;
        }
        self.tell_doubts(out)
    }

    fn tell_peaks(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let order = self.peaks.first().map_or(0, |one| one.rate.case.order);
        writeln!(out, "one core, matrices of order {order}, best of many short repetitions\n")?;
        let row = |one: &Measured| {
            let rate = &one.rate;
            vec![
                one.blas.clone(),
                format!("{}gemm", rate.case.numbers.letter()),
                format!("{:.2}", rate.gflops),
                format!("{:.2}", rate.stretch()),
                rate.repetitions.to_string(),
                doubt(rate),
            ]
        };
        let rows: Vec<Vec<String>> = self.peaks.iter().map(row).collect();
        table(out, &["BLAS", "ROUTINE", ">GFLOP/S", ">WALL/CPU", ">TIMES", "DOUBT"], &rows);
        Ok(())
    }

    /// A table for each routine, type and MPI: block orders side by side.
    fn tell_rates(
        &self,
        out: &mut Vec<u8>,
        rates: &[Measured],
        title: &str,
    ) -> std::io::Result<()> {
        let mut problems: Vec<_> = rates.iter().map(Measured::problem).collect();
        problems.sort();
        problems.dedup();
        for problem in problems {
            let (mpi, routine) = &problem;
            let order = self.order.unwrap_or(0);
            let mpi = mpi.unwrap_or("-");
            writeln!(out, "\n{title}{routine} over {mpi}, order {order}, Gflop/s\n")?;
            let of_it: Vec<_> = rates.iter().filter(|one| one.problem() == problem).collect();
            tell_grid(out, &of_it);
        }
        Ok(())
    }

    fn tell_chosen(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        if self.chosen.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nchosen\n")?;
        let row = |one: &Chosen| {
            let Measured { mpi, blas, rate } = &one.confirmed;
            vec![
                name(&rate.case),
                mpi.clone().unwrap_or_default(),
                blas.clone(),
                rate.case.block.to_string(),
                format!("{}x{}", rate.case.rows, rate.case.columns),
                format!("{:.2}", rate.gflops),
                percent(one.share_of_peak),
                percent(one.share_of_best),
                if self.has_network && rate.is_right() { String::new() } else { doubt(rate) },
            ]
        };
        let rows: Vec<Vec<String>> = self.chosen.iter().map(row).collect();
        let heading = [
            "ROUTINE", "MPI", "BLAS", ">BLOCK", ">GRID", ">GFLOP/S", ">OF PEAK", ">OF BEST",
            "DOUBT",
        ];
        table(out, &heading, &rows);
        Ok(())
    }

    fn tell_doubts(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let chosen = self.chosen.iter().filter(|_| !self.has_network);
        let all = || self.peaks.iter().chain(chosen.clone().map(|one| &one.confirmed));
        let disturbed = all().filter(|one| one.rate.is_disturbed()).count();
        if disturbed > 0 {
            writeln!(
                out,
                "\nnot trustworthy: {disturbed} of {} best repetitions took more than {DISTURBED} times their processor time",
                all().count()
            )?;
        }
        if self.ranks > self.cpus {
            let (ranks, cpus) = (self.ranks, self.cpus);
            writeln!(out, "\n{ranks} processes share {cpus} CPUs: they wait for one another")?;
        }
        Ok(())
    }
}

fn tell_grid(out: &mut Vec<u8>, rates: &[&Measured]) {
    let row_of = |one: &Measured| (one.blas.clone(), one.rate.case.rows, one.rate.case.columns);
    let orders: Vec<u64> = BLOCK_ORDERS
        .into_iter()
        .filter(|order| rates.iter().any(|one| one.rate.case.block == *order))
        .collect();
    let mut lines: Vec<_> = rates.iter().map(|one| row_of(one)).collect();
    lines.sort();
    lines.dedup();
    let rows: Vec<Vec<String>> = lines
        .into_iter()
        .map(|line| {
            let cell = |order: &u64| {
                let here = |one: &&&Measured| row_of(one) == line && one.rate.case.block == *order;
                match rates.iter().find(here) {
                    Some(one) if one.rate.is_right() => format!("{:.2}", one.rate.gflops),
                    Some(_) => "WRONG".to_string(),
                    None => "-".to_string(),
                }
            };
            let mut row = vec![line.0.clone(), format!("{}x{}", line.1, line.2)];
            row.extend(orders.iter().map(cell));
            row
        })
        .collect();
    let heads: Vec<String> = orders.iter().map(|order| format!(">{order}")).collect();
    let mut heading = vec!["BLAS", ">GRID"];
    heading.extend(heads.iter().map(String::as_str));
    table(out, &heading, &rows);
}
