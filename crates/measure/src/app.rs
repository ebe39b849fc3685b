//! `covey tune app`: what matrices make of cores, BLAS, MPI and the network together.
//!
//! First one core with each BLAS; then MPI's curve, whose window says which block orders are worth trying; then
//! ScaLAPACK with these, in rounds, where those far behind the best drop out; at last the chosen ones once more.
//! The rounds start the programs anew, and every second one goes backwards, so that no busy moment hits one
//! candidate alone.

pub mod blas;
pub mod contest;
pub mod hpl;
pub mod report;
pub mod run;

use super::environment::Watch;
use super::hosts::Hosts;
use super::levels::Missing;
use super::mpi::{self, Library, Wait};
use super::probe::Plan;
use super::provenance::Provenance;
use super::stop::{INTERRUPTED, Stop};
use crate::error::{Error, Result};
use blas::Blas;
use contest::{Candidate, Contest, Found, Way};
use covey_tune::application::{
    BLOCK_ORDERS, Case, Numbers, Rate, Repetition, Routine, Window, grids, order_for,
};
use report::{AppReport, Chosen, Measured, Through};
use run::Ready;
use std::time::{Duration, Instant};

/// What to measure.
#[derive(Clone, Debug)]
pub struct AppPlan {
    /// Where the processes run.
    pub hosts: Hosts,
    /// How many there are.
    pub ranks: usize,
    /// Order of the matrices; by the budget when there is none.
    pub order: Option<u64>,
    /// Only this MPI.
    pub mpi: Option<Library>,
    /// Types of numbers of the multiplications. Systems are solved in double precision.
    pub numbers: Vec<Numbers>,
    /// How long it may take, roughly, without the exhaustive search and HPL.
    pub budget: Duration,
    /// Whether to measure everything afterwards, and compare.
    pub exhaustive: bool,
    /// Whether to run HPL.
    pub hpl: bool,
}

/// Hears what is being done.
pub type Progress<'a> = &'a mut (dyn FnMut(&str) + Send);

/// Matrices that one core multiplies are no greater: repetitions are to be short.
const PEAK_ORDER: u64 = 768;
const PEAK_ROUNDS: usize = 4;
/// Shares of the budget.
const OF_PEAKS: f64 = 0.2;
const OF_CURVES: f64 = 0.15;
const OF_CONTEST: f64 = 0.45;
const OF_CONFIRMATION: f64 = 0.1;
const OF_A_PASS: f64 = 0.05;
/// A BLAS whose core does less than this share of the best one's is not tried in ScaLAPACK.
const WORTH_TRYING: f64 = 0.5;
/// What ScaLAPACK makes of the cores, roughly; only how long it will take depends on it.
const GUESSED_SHARE: f64 = 0.4;
/// Matrices of this order take no time beside the start of the programs.
const STARTING_ORDER: u64 = 64;
/// Orders of blocks are known up to here from the curve.
const CURVE_BYTES: u64 = 1 << 20;
/// HPL's systems: long enough to say something, short enough for the rest of hpcc.
const HPL_ORDERS: (u64, u64) = (1000, 4000);

/// Measures.
pub fn measure(plan: &AppPlan, stop: &Stop, progress: Progress<'_>) -> Result<AppReport> {
    let watch = Watch::begin();
    let blas = blas::installed();
    if blas.is_empty() {
        return Err(Error::work("cannot measure rates of matrices: no BLAS is installed").hint(
            "apt-get install libopenblas0-pthread, or libblas3, libatlas3-base, libblis4-openmp",
        ));
    }
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
    let mut whole = Whole {
        plan,
        stop,
        blas,
        ready: Vec::new(),
        report: AppReport {
            kind: "app".into(),
            ranks: plan.ranks,
            cpus,
            has_network: matches!(plan.hosts, Hosts::Nodes(_)),
            provenance: Provenance::here(),
            ..AppReport::default()
        },
    };
    whole.peaks(progress)?;
    whole.find_mpi();
    whole.windows(progress);
    whole.scalapack(progress)?;
    if plan.hpl && !stop.is_asked() {
        progress("HPL");
        whole.hpl();
    }
    if stop.is_asked() {
        whole.report.failure = Some(INTERRUPTED.to_string());
    }
    whole.report.environment = watch.end();
    Ok(whole.report)
}

struct Whole<'a> {
    plan: &'a AppPlan,
    stop: &'a Stop,
    blas: Vec<Blas>,
    ready: Vec<Ready>,
    report: AppReport,
}

impl Whole<'_> {
    fn seconds(&self, share: f64) -> f64 {
        share * self.plan.budget.as_secs_f64()
    }

    fn miss(&mut self, what: &str, error: &Error) {
        let hints = error.hints.iter().map(|hint| format!("; {hint}"));
        let why = format!("{}{}", error.message, hints.collect::<String>());
        self.report.missing.push(Missing { what: what.to_string(), why });
    }

    /// In rounds over the libraries, too.
    fn peaks(&mut self, progress: Progress<'_>) -> Result<()> {
        let mut numbers = self.plan.numbers.clone();
        numbers.push(Numbers::D);
        numbers.sort();
        numbers.dedup();
        let order = self.plan.order.unwrap_or(PEAK_ORDER).min(PEAK_ORDER);
        let parts = (PEAK_ROUNDS * self.blas.len() * numbers.len()) as f64;
        let seconds = self.seconds(OF_PEAKS) / parts;
        let mut all: Vec<Vec<Repetition>> = vec![Vec::new(); self.blas.len()];
        for _ in 0..PEAK_ROUNDS {
            for (blas, found) in self.blas.iter().zip(&mut all) {
                if self.stop.is_asked() {
                    break;
                }
                progress(&format!("one core with {}", blas.name));
                match run::multiply(blas, &numbers, order, seconds, self.stop) {
                    Err(_) if self.stop.is_asked() => break,
                    more => found.extend(more?),
                }
            }
        }
        for (blas, found) in self.blas.iter().zip(&all) {
            let rates = run::rates(found).into_iter();
            let named = |rate| Measured { mpi: None, blas: blas.name.clone(), rate };
            self.report.peaks.extend(rates.map(named));
        }
        Ok(())
    }

    fn find_mpi(&mut self) {
        match mpi::choose(self.plan.mpi) {
            Err(error) => self.miss("ScaLAPACK", &error),
            Ok(all) => {
                for mpi in all {
                    let what = format!("ScaLAPACK over {}", mpi.name);
                    match Ready::new(mpi) {
                        Ok(ready) => self.ready.push(ready),
                        Err(error) => self.miss(&what, &error),
                    }
                }
            }
        }
    }

    fn windows(&mut self, progress: Progress<'_>) {
        let hosts = &self.plan.hosts;
        let share = OF_CURVES / self.ready.len().max(1) as f64;
        let budget = Duration::from_secs_f64(self.seconds(share).max(0.5));
        let plan = Plan { up_to_bytes: CURVE_BYTES, perturbation: 0, budget };
        for ready in self.ready.clone() {
            if self.stop.is_asked() || self.plan.ranks < 2 {
                return;
            }
            let name = ready.mpi.name.clone();
            progress(&format!("the curve of {name}"));
            let curve =
                ready.mpi.measure(hosts, Wait::usual(hosts), &plan, self.stop, &mut |_, _| {});
            let window = match curve {
                Ok(level) => level.report.typical.as_ref().and_then(Window::of),
                Err(error) => {
                    self.miss(&format!("the curve of {name}"), &error);
                    None
                }
            };
            self.report.windows.push(Through { mpi: name, window });
        }
    }

    fn scalapack(&mut self, progress: Progress<'_>) -> Result<()> {
        let pool = self.pool(false);
        if pool.is_empty() || self.stop.is_asked() {
            return Ok(());
        }
        let order = match self.plan.order {
            Some(order) => order,
            None => {
                let slower = self.slower(&pool, self.order(&pool, 1.0) / 2, progress)?;
                self.order(&pool, slower)
            }
        };
        self.report.order = Some(order);
        let mut found = Found::default();
        let rounds =
            Contest { rounds: 7, passes: 2, seconds: self.seconds(OF_CONTEST), prunes: true };
        let pool = with_order(pool, order);
        self.hold(&rounds, &pool, &mut found, progress)?;
        let tried = found.all().count();
        if tried < pool.len() && !self.stop.is_asked() {
            let what = format!("{} of {} ways to deal out", pool.len() - tried, pool.len());
            let why = "the budget was over before their turn; --budget gives more".to_string();
            self.report.missing.push(Missing { what, why });
        }
        self.report.rates = self.named(&found);
        let chosen = found.leaders(1);
        let seconds = self.seconds(OF_CONFIRMATION);
        let again = Contest { rounds: 6, passes: 3, seconds, prunes: false };
        let mut confirmed = Found::default();
        self.hold(&again, &chosen, &mut confirmed, progress)?;
        let mut all = Found::default();
        if self.plan.exhaustive {
            all = self.everything(order, &chosen, progress)?;
            self.report.exhaustive = self.named(&all);
        }
        for one in chosen {
            let choice = self.chosen(&one, &found, &confirmed, &all);
            self.report.chosen.extend(choice);
        }
        Ok(())
    }

    /// What is tried: within the windows, with the BLAS worth it; or everything. The order is to follow.
    fn pool(&self, is_everything: bool) -> Vec<Candidate> {
        let mut problems: Vec<(Routine, Numbers)> =
            self.plan.numbers.iter().map(|numbers| (Routine::Gemm, *numbers)).collect();
        problems.push((Routine::Gesv, Numbers::D));
        let mut pool = Vec::new();
        for (mpi, ready) in self.ready.iter().enumerate() {
            let mine = self.report.windows.iter().find(|one| one.mpi == ready.mpi.name);
            let blocks = match mine.and_then(|one| one.window.as_ref()) {
                Some(window) if !is_everything => window.orders(),
                _ => BLOCK_ORDERS.to_vec(),
            };
            for blas in 0..self.blas.len() {
                for &(routine, numbers) in &problems {
                    if !is_everything && !self.is_worth_trying(blas, numbers) {
                        continue;
                    }
                    for &block in &blocks {
                        for (rows, columns) in grids(self.plan.ranks as u64) {
                            let case = Case { routine, numbers, order: 0, block, rows, columns };
                            pool.push(Candidate { way: Way { mpi, blas }, case });
                        }
                    }
                }
            }
        }
        pool
    }

    fn peak_of(&self, blas: usize, numbers: Numbers) -> f64 {
        let is_it =
            |one: &&Measured| one.blas == self.blas[blas].name && one.rate.case.numbers == numbers;
        let found = self.report.peaks.iter().find(is_it);
        found.filter(|one| one.rate.is_right()).map_or(0.0, |one| one.rate.gflops)
    }

    fn is_worth_trying(&self, blas: usize, numbers: Numbers) -> bool {
        let best = self.report.peak(numbers).unwrap_or(0.0);
        self.peak_of(blas, numbers) >= WORTH_TRYING * best
    }

    fn cores(&self) -> f64 {
        self.plan.ranks.min(self.report.cpus) as f64
    }

    /// How long it takes by what one core does.
    fn expected_s(&self, one: &Candidate) -> f64 {
        let peak = self.peak_of(one.way.blas, one.case.numbers).max(0.1);
        one.case.operations() / 1e9 / (peak * self.cores() * GUESSED_SHARE)
    }

    /// The order with which a pass over the pool fits, when everything takes `slower` times what is expected.
    fn order(&self, pool: &[Candidate], slower: f64) -> u64 {
        let pool = with_order(pool.to_vec(), 1000);
        let cubes: f64 = pool.iter().map(|one| slower * self.expected_s(one) / 1e9).sum();
        order_for(cubes, self.seconds(OF_A_PASS))
    }

    /// How many times longer than expected it takes over this network: one case of each problem is tried, and
    /// what smallest matrices take is subtracted, as that is for starting.
    fn slower(&mut self, pool: &[Candidate], order: u64, progress: Progress<'_>) -> Result<f64> {
        let mut slower = 1.0_f64;
        for mpi in 0..self.ready.len() {
            let Some(blas) = pool.iter().find(|one| one.way.mpi == mpi).map(|one| one.way.blas)
            else {
                continue;
            };
            let way = Way { mpi, blas };
            let mine: Vec<&Candidate> = pool.iter().filter(|one| one.way == way).collect();
            let is_first = |place: usize, one: &Candidate| {
                mine[..place].iter().all(|other| !other.is_of_same(one))
            };
            let tried = mine.iter().enumerate().filter(|(place, one)| is_first(*place, one));
            let tried: Vec<Candidate> = tried.map(|(_, one)| **one).collect();
            let limit = self.seconds(2.0 * OF_A_PASS);
            let mut took = [0.0; 2];
            for (order, took) in [STARTING_ORDER, order].into_iter().zip(&mut took) {
                let tried = with_order(tried.clone(), order);
                let once = Contest { rounds: 1, passes: 1, seconds: limit, prunes: false };
                let begin = Instant::now();
                self.hold(&once, &tried, &mut Found::default(), progress)?;
                *took = begin.elapsed().as_secs_f64();
            }
            let expected: f64 =
                with_order(tried, order).iter().map(|one| self.expected_s(one)).sum();
            slower = slower.max((took[1] - took[0]) / expected);
        }
        Ok(slower)
    }

    fn hold(
        &mut self,
        contest: &Contest,
        candidates: &[Candidate],
        found: &mut Found,
        progress: Progress<'_>,
    ) -> Result<()> {
        let place = contest::Place {
            hosts: &self.plan.hosts,
            ranks: self.plan.ranks,
            ready: &self.ready,
            blas: &self.blas,
        };
        for (way, why) in contest.hold(&place, candidates, found, self.stop, progress)? {
            let (mpi, blas) = (&self.ready[way.mpi].mpi.name, &self.blas[way.blas].name);
            let what = format!("ScaLAPACK over {mpi} with {blas}");
            self.report.failure.get_or_insert(format!("{what}: {why}"));
            self.report.missing.push(Missing { what, why: format!("it broke off: {why}") });
        }
        Ok(())
    }

    /// Everything alike, then the foremost and the chosen ones more often, alike again.
    fn everything(
        &mut self,
        order: u64,
        chosen: &[Candidate],
        progress: Progress<'_>,
    ) -> Result<Found> {
        let mut all = Found::default();
        let pool = with_order(self.pool(true), order);
        let alike = Contest { rounds: 2, passes: 2, seconds: f64::INFINITY, prunes: false };
        self.hold(&alike, &pool, &mut all, progress)?;
        let mut finalists = all.leaders(4);
        finalists.extend(chosen);
        finalists.sort();
        finalists.dedup();
        let more = Contest { rounds: 5, ..alike };
        self.hold(&more, &finalists, &mut all, progress)?;
        Ok(all)
    }

    fn chosen(
        &self,
        one: &Candidate,
        contest: &Found,
        confirmed: &Found,
        all: &Found,
    ) -> Option<Chosen> {
        let was = contest.rate(one)?;
        // A confirmation that broke off leaves what it was chosen for.
        let rate = confirmed.rate(one).unwrap_or(was);
        let best = all.leaders(1).into_iter().find(|best| best.is_of_same(one));
        let best = best.and_then(|best| Some((best, all.rate(&best)?)));
        let here = all.rate(one).filter(Rate::is_right);
        Some(Chosen {
            confirmed: self.name(one, rate),
            contest_gflops: was.gflops,
            share_of_peak: self
                .report
                .peak(one.case.numbers)
                .map(|peak| rate.gflops / (peak * self.cores())),
            share_of_best: best.zip(here).map(|((_, best), here)| here.gflops / best.gflops),
            best: best.map(|(best, rate)| self.name(&best, rate)),
        })
    }

    fn name(&self, one: &Candidate, rate: Rate) -> Measured {
        let mpi = Some(self.ready[one.way.mpi].mpi.name.clone());
        Measured { mpi, blas: self.blas[one.way.blas].name.clone(), rate }
    }

    fn named(&self, found: &Found) -> Vec<Measured> {
        found.all().map(|(one, rate)| self.name(one, rate)).collect()
    }

    /// With what was chosen for solving over Open MPI, which is the MPI of hpcc; else with what is usual.
    fn hpl(&mut self) {
        let is_it = |one: &&Chosen| {
            let mpi = one.confirmed.mpi.as_deref().unwrap_or_default();
            one.confirmed.rate.case.routine == Routine::Gesv && mpi.starts_with("Open MPI")
        };
        let chosen = self.report.chosen.iter().find(is_it).map(|one| &one.confirmed);
        let case = chosen.map(|one| one.rate.case);
        let name = chosen.map(|one| one.blas.clone()).or_else(|| self.best_blas());
        let blas = self.blas.iter().find(|blas| Some(&blas.name) == name.as_ref());
        let Some(blas) = blas.cloned() else { return };
        let dealt = hpl::Dealt {
            order: self.plan.order.unwrap_or_else(|| {
                (2 * case.map_or(0, |case| case.order)).clamp(HPL_ORDERS.0, HPL_ORDERS.1)
            }),
            block: case.map_or(64, |case| case.block),
            rows: case.map_or(1, |case| case.rows),
            columns: case.map_or(self.plan.ranks as u64, |case| case.columns),
        };
        match hpl::measure(dealt, &blas, self.stop) {
            Err(error) => self.miss("HPL", &error),
            Ok(hpl) => {
                let peak = self.report.peak(Numbers::D);
                let share_of_peak = peak.map(|peak| hpl.gflops / (peak * self.cores()));
                self.report.hpl = Some(hpl::Hpl { share_of_peak, ..hpl });
            }
        }
    }

    fn best_blas(&self) -> Option<String> {
        let doubles = self.report.peaks.iter().filter(|one| one.rate.case.numbers == Numbers::D);
        let best = doubles.max_by(|one, other| one.rate.gflops.total_cmp(&other.rate.gflops));
        best.map(|one| one.blas.clone())
    }
}

fn with_order(pool: Vec<Candidate>, order: u64) -> Vec<Candidate> {
    let with = |one: Candidate| Candidate { case: Case { order, ..one.case }, ..one };
    pool.into_iter().map(with).collect()
}
