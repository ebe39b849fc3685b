//! Figure 4: HPL, and a solver of ScaLAPACK that runs over either MPI.

use super::networks::{Everywhere, NODES, PAIRS, everywhere};
use super::part;
use crate::app::blas::{self, Blas};
use crate::app::hpl::{self, Challenge, Dealt};
use crate::app::run::{Job, Ready};
use crate::calls::Ran;
use crate::error::{Error, Result};
use crate::hosts::Hosts;
use crate::mpi::Mpi;
use crate::reproduce::bench::Bench;
use crate::reproduce::told::{Part, number, reason};
use crate::stop::Stop;
use covey_tune::Estimate;
use covey_tune::application::{Case, Numbers, RESIDUAL_MAX, Repetition, Routine};
use covey_tune::papers::KISTI_HPL_GAIN;
use covey_tune::reproduce::{Answer, Beside, Unit, is_between, quotient};
use covey_tune::timed::Timed;

/// What of the gain is looked for: as much as the paper's, and a little more or less.
const GAIN: (f64, f64) = (1.0, 1.08);
const PLACE: &str = "figure 4";
/// How the processes are laid out.
const GRID: (u64, u64) = (2, 2);
const BLOCK: u64 = 64;
/// Programs of hpcc that communicate, and how they are told.
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("PTRANS_GBs", "PTRANS (a matrix is transposed)", "GB/s"),
    ("MPIRandomAccess_GUPs", "RandomAccess (single words are updated)", "10^9 updates/s"),
    ("MPIFFT_Gflops", "FFT", "Gflop/s"),
];

/// What hpcc said on each network, so that two parts need it once only.
#[derive(Debug, Default)]
pub struct Challenges {
    found: Vec<(&'static str, std::result::Result<Challenge, String>)>,
}

impl Challenges {
    /// Runs it where it has not run yet.
    async fn measure(&mut self, bench: &mut Bench) {
        for network in PAIRS[0] {
            if self.found.iter().any(|(one, _)| *one == network) {
                continue;
            }
            let found = on(bench, network).await.map_err(|error| reason(&error));
            let said = match &found {
                Err(why) => format!("left out: {why}"),
                Ok(found) => in_short(found),
            };
            bench.say(format!("  {network}, hpcc: {said}"));
            self.found.push((network, found));
        }
    }

    fn of(&self, network: &str) -> Option<&Challenge> {
        self.found.iter().find(|(one, _)| *one == network)?.1.as_ref().ok()
    }

    /// Rates of HPL.
    fn rate(&self, network: &str) -> Option<Estimate> {
        let right = self.of(network)?.hpl.iter().filter(|one| one.is_passed);
        let rates: Vec<f64> = right.map(|one| one.gflops * 1e9).collect();
        (!rates.is_empty()).then(|| Estimate::of_median(rates))
    }

    fn leave_out(&self, part: &mut Part) {
        for (network, found) in &self.found {
            let why = match found {
                Err(why) => Some(why),
                Ok(found) => found.failure.as_ref(),
            };
            if let Some(why) = why {
                part.leave_out(format!("hpcc on {network}"), why.as_str());
            }
        }
    }

    /// What its other programs reached. They are run for this unless it is to be short.
    pub async fn tell_programs(&mut self, bench: &mut Bench, part: &mut Part) {
        if bench.wish.is_quick && self.found.is_empty() {
            part.leave_out(
                "hpcc's PTRANS, RandomAccess and FFT",
                "they take longer; fig4, or a run without --quick, has them",
            );
            return;
        }
        self.measure(bench).await;
        self.leave_out(part);
        for (key, name, unit) in PROGRAMS {
            let of = |network: &'static str| {
                let summary = &self.of(network)?.summary;
                let value = summary.iter().find(|(one, _)| one == key)?.1;
                Some(format!("{network} {value:.4} {unit}"))
            };
            let all: Vec<String> = PAIRS[0].into_iter().filter_map(of).collect();
            if !all.is_empty() {
                part.measured(format!("hpcc's {name}: {}", all.join(", ")));
            }
        }
    }
}

fn in_short(found: &Challenge) -> String {
    let rates: Vec<String> =
        found.hpl.iter().map(|one| number(Unit::Flops, one.gflops * 1e9)).collect();
    format!("HPL {}", if rates.is_empty() { "has no result".to_string() } else { rates.join(", ") })
}

/// Measures and judges.
pub async fn networks(bench: &mut Bench, challenges: &mut Challenges) -> Part {
    let mut part = part(
        "fig4",
        "HPL on four nodes over InfiniBand and Myrinet; of the figure's values one ratio is left",
    );
    challenges.measure(bench).await;
    let doubt = bench.doubt(PAIRS[0].len());
    challenges.leave_out(&mut part);
    let [myrinet, infiniband] = PAIRS[0].map(|network| challenges.rate(network));
    for (network, rate) in PAIRS[0].into_iter().zip([myrinet, infiniband]) {
        if let Some(rate) = rate {
            part.measured(format!("HPL over {network}: {}", said(rate)));
        }
    }
    if let Some((infiniband, myrinet)) = infiniband.zip(myrinet) {
        let ours = quotient(infiniband, myrinet);
        let what = ("HPL's rate", Unit::Share);
        part.beside.push(Beside::new(PLACE, "InfiniBand by Myrinet", what, ours, KISTI_HPL_GAIN));
        part.judge("4 % faster", gain(infiniband, myrinet).unless(doubt.as_deref()));
        part.differs(format!(
            "HPL is hpcc's, which Debian links with Open MPI only; order {}, where the paper's fills 12 GB",
            dealt(bench.wish.is_quick).order
        ));
    }
    let found = everywhere(bench, &mut part, solve).await;
    tell_solver(&found, &mut part);
    part
}

/// A system that does not fill the memory has less to compute for each byte that it sends: that it gains more than the
/// paper's refutes nothing.
fn gain(infiniband: Estimate, myrinet: Estimate) -> Answer {
    let answer = is_between("HPL over infiniband-sdr by myrinet2000", infiniband, myrinet, GAIN);
    let is_more = quotient(infiniband, myrinet).low > GAIN.1;
    if !is_more {
        answer
    } else {
        Answer::not_shown(format!("{}; but small systems depend on the wire more", answer.because))
    }
}

fn tell_solver(found: &Everywhere, part: &mut Part) {
    if found.is_empty() {
        return;
    }
    found.tell(part, None);
    part.differs("whether wire or library: pdgesv of ScaLAPACK stands for HPL, because it runs over both MPIs");
}

fn said(rate: Estimate) -> String {
    let text = |value| number(Unit::Flops, value);
    format!("{} ({} to {})", text(rate.value), text(rate.low), text(rate.high))
}

fn dealt(is_quick: bool) -> Dealt {
    let (rows, columns) = GRID;
    Dealt { order: if is_quick { 600 } else { 4000 }, block: BLOCK, rows, columns }
}

async fn on(bench: &mut Bench, network: &str) -> Result<Challenge> {
    let blas = best().ok_or_else(|| Error::work("no BLAS is installed"))?;
    bench.lab(&[&NODES.to_string(), "--link", network]).await?;
    let (hosts, is_quick) = (bench.hosts(NODES)?, bench.wish.is_quick);
    let times = if is_quick { 2 } else { 5 };
    let work = move |stop: &Stop| hpl::challenge(&hosts, dealt(is_quick), times, &blas, stop);
    let found = bench.work(work).await;
    let down = bench.down().await;
    let found = found?;
    down.map(|()| found)
}

/// The paper's is Goto's, of which OpenBLAS is the heir.
fn best() -> Option<Blas> {
    let all = blas::installed();
    let by_name = |name: &str| all.iter().find(|one| one.name.starts_with(name)).cloned();
    by_name("OpenBLAS")
        .or_else(|| by_name("BLIS"))
        .or_else(|| by_name("ATLAS"))
        .or_else(|| all.first().cloned())
}

/// ScaLAPACK's solver.
fn solve(mpi: &Mpi, hosts: &Hosts, is_quick: bool, stop: &Stop) -> Result<Ran> {
    let (order, passes, seconds) = if is_quick { (512, 4, 3.0) } else { (2400, 4, 30.0) };
    let blas = best().ok_or_else(|| Error::work("no BLAS is installed"))?;
    let (rows, columns) = GRID;
    let case =
        Case { routine: Routine::Gesv, numbers: Numbers::D, order, block: BLOCK, rows, columns };
    let cases = [case];
    let job = Job { hosts, ranks: NODES, blas: &blas, cases: &cases, passes, seconds, least: 0 };
    let ran = Ready::new(mpi.clone())?.measure(&job, stop)?;
    Ok(Ran { all: timed(&ran.repetitions).into_iter().collect(), failure: ran.failure })
}

fn timed(all: &[Repetition]) -> Option<Timed> {
    let order = all.first()?.case.order;
    Some(Timed {
        what: format!("pdgesv of order {order}"),
        ranks: NODES as u32,
        bytes: 0,
        is_right: all.iter().all(|one| one.residual <= RESIDUAL_MAX),
        times_s: all.iter().map(|one| one.wall_s).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::hpl::Hpl;
    use covey_tune::papers::Paper;
    use covey_tune::reproduce::Outcome;

    fn hpl(gflops: f64, is_passed: bool) -> Hpl {
        Hpl {
            blas: "OpenBLAS".to_string(),
            order: 1000,
            block: 64,
            rows: 2,
            columns: 2,
            gflops,
            seconds: 1.0,
            is_passed,
            share_of_peak: None,
        }
    }

    #[test]
    fn only_results_that_passed_are_rates() {
        let all = vec![hpl(2.0, true), hpl(9.0, false), hpl(3.0, true)];
        let found = Challenge {
            hpl: all,
            failure: Some("it was interrupted".to_string()),
            ..Challenge::default()
        };
        let challenges = Challenges {
            found: vec![("myrinet2000", Ok(found)), ("infiniband-sdr", Err("no hpcc".to_string()))],
        };
        let rate = challenges.rate("myrinet2000").unwrap();
        assert_eq!((rate.low, rate.high), (2e9, 3e9));
        assert_eq!(challenges.rate("infiniband-sdr"), None);
        let mut part = Part::new(Paper::Kisti, "fig4", "x");
        challenges.leave_out(&mut part);
        let why: Vec<&str> = part.left_out.iter().map(|one| one.why.as_str()).collect();
        assert_eq!(why, ["it was interrupted", "no hpcc"]);
    }

    #[test]
    fn a_small_system_that_gains_more_refutes_nothing() {
        let about = |value: f64| Estimate { value, low: 0.999 * value, high: 1.001 * value };
        let of = |infiniband| gain(about(infiniband), about(1.0)).outcome;
        assert_eq!((of(1.04), of(1.5)), (Outcome::Holds, Outcome::NotShown));
        assert_eq!(of(0.9), Outcome::DoesNotHold);
    }

    #[test]
    fn a_wrong_solution_spoils_its_times() {
        let case = Case {
            routine: Routine::Gesv,
            numbers: Numbers::D,
            order: 96,
            block: 8,
            rows: 2,
            columns: 2,
        };
        let once = |residual| Repetition { case, wall_s: 1.0, cpu_s: 1.0, residual };
        assert!(timed(&[once(0.1), once(0.2)]).unwrap().is_right);
        assert!(!timed(&[once(0.1), once(f64::NAN)]).unwrap().is_right);
        assert_eq!(timed(&[]), None);
    }
}
