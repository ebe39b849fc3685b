//! What workers reach: the bandwidth of mapped files and matrices multiplied through files, beside programs that keep two
//! buffers by hand; and what it takes to ask the host, beside what a line of memory takes to another CPU and back.
//!
//! ```text
//!   this program ──► covey cell run ──► workers, which do both in turn, round after round ──► lines of their log
//! ```
//!
//! The programs are in C (`programs/cell_*.c`), compiled here. Times are those of the best tenth of the rounds, in which
//! the workers had their CPUs; intervals come from resampling the rounds.

mod charts;
mod tell;

use crate::environment::{Environment, Watch};
use crate::error::{Cannot, Error, Result};
use crate::programs::{self, CELL_BANDWIDTH, CELL_MATRICES, CELL_TRIPS, Program};
use crate::provenance::Provenance;
use crate::reproduce::told::reason;
use crate::scratch::Scratch;
use crate::stop::{INTERRUPTED, Stop};
use covey_io::os::shm::area::huge_pages;
use covey_tune::Estimate;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes of the file whose bandwidth is measured.
const FILE_BYTES: u64 = 128 << 20;
/// Of the file in which workers count who has come.
const MEETING_BYTES: u64 = 4096;
/// Coroutines at most.
const COROUTINES: i32 = 7;
/// How the log names what is done by hand, and the same with the next block asked for.
const BY_HAND: i32 = 0;
const BY_HAND_AHEAD: i32 = -1;

/// Of one round, as `programs/cell_trips.c` makes them.
const TRIPS: f64 = 1000.0;
const SWITCHES: f64 = 160_000.0;

/// How much is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of workers for both tables.
    pub workers: Vec<u32>,
    /// Rounds of each measurement.
    pub rounds: u32,
    /// Sides of the matrices.
    pub sides: Vec<u32>,
    /// Only host files in blocks of 8 KiB.
    pub is_short: bool,
}

impl Plan {
    /// Everything.
    pub fn whole(workers: Vec<u32>, rounds: u32) -> Plan {
        Plan { workers, rounds, sides: vec![256, 512, 1024], is_short: false }
    }

    /// Three rounds on one and two workers: to see that everything works, not how fast it is.
    pub fn quick() -> Plan {
        Plan { workers: vec![1, 2], rounds: 3, sides: vec![256], is_short: true }
    }
}

/// The bandwidth of one kind of file, in bytes per second.
#[derive(Clone, Debug, Serialize)]
pub struct Bandwidth {
    /// `#U` or `#r`.
    pub device: &'static str,
    /// Bytes of a block.
    pub block: u32,
    /// Huge pages were asked for.
    pub is_huge: bool,
    /// Workers at once.
    pub workers: u32,
    /// More workers than CPUs: shown, not judged.
    pub is_crowded: bool,
    /// Two buffers by hand.
    pub by_hand: f64,
    /// The same, and the beginning of the next block is prefetched.
    pub by_hand_ahead: f64,
    /// With 1 to 7 coroutines.
    pub coroutines: Vec<f64>,
    /// The best number of coroutines from 2 on.
    pub best: usize,
    /// How many times the rate of the better program by hand it reaches: this is what is judged.
    pub ratio: Estimate,
    /// How many times the rate by hand, as the paper has it, 2 coroutines reach.
    pub ratio_of_two: Estimate,
}

impl Bandwidth {
    /// Whether the paper's table has this kind of file and block.
    fn is_of_table(&self) -> bool {
        is_of_table((self.device, self.block, self.is_huge))
    }
}

/// The paper's table is that of host files in blocks of 8 KiB.
fn is_of_table(kind: (&str, u32, bool)) -> bool {
    kind == ("#U", 8192, false)
}

/// Times of one multiplication.
#[derive(Clone, Debug, Serialize)]
pub struct Matrices {
    /// Rows and columns.
    pub side: u32,
    /// Workers at once.
    pub workers: u32,
    /// More workers than CPUs: shown, not judged.
    pub is_crowded: bool,
    /// By hand, in seconds.
    pub by_hand_s: f64,
    /// Through files with one and with two coroutines, in seconds.
    pub coroutines_s: [f64; 2],
    /// The faster of these.
    pub files_s: f64,
    /// How much longer the faster takes, as a share.
    pub overhead: Estimate,
}

/// What it takes to ask the host, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Trips {
    /// A line of memory to a thread on another CPU, and another one back.
    pub floor_ns: f64,
    /// A message to the host, and its answer.
    pub message_ns: f64,
    /// One coroutine gives way to the next, by a call from C.
    pub switch_ns: f64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// By which results are told apart.
    pub kind: &'static str,
    /// Table 3.
    pub bandwidth: Vec<Bandwidth>,
    /// Table 4.
    pub matrices: Vec<Matrices>,
    /// Messages and switches.
    pub trips: Option<Trips>,
    /// What could not be measured, and why.
    pub missing: Vec<(String, String)>,
    /// How the machine was meanwhile.
    pub environment: Environment,
    /// Where the numbers come from.
    pub provenance: Provenance,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What {
    /// Table 3.
    pub bandwidth: bool,
    /// Table 4.
    pub matrices: bool,
    /// Messages and switches.
    pub trips: bool,
}

/// Measures.
pub fn measure(plan: &Plan, what: What, stop: &Stop, say: &dyn Fn(String)) -> Result<Report> {
    let watch = Watch::begin();
    // In memory: what disks do is not measured here.
    let memory = Path::new("/dev/shm");
    let scratch = if memory.is_dir() { Scratch::within(memory)? } else { Scratch::new()? };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let mut bench = Bench { plan, stop, say, scratch, cpus, missing: Vec::new() };
    let bandwidth = if what.bandwidth { bench.bandwidths()? } else { Vec::new() };
    let matrices = if what.matrices { bench.all_matrices()? } else { Vec::new() };
    let trips = if what.trips { bench.trips() } else { None };
    if stop.is_asked() {
        bench.missing.push(("the rest".into(), INTERRUPTED.into()));
    }
    Ok(Report {
        kind: "bench-cell",
        bandwidth,
        matrices,
        trips,
        missing: bench.missing,
        environment: watch.end(),
        provenance: Provenance::here(),
    })
}

struct Bench<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    say: &'a dyn Fn(String),
    scratch: Scratch,
    cpus: u32,
    missing: Vec<(String, String)>,
}

/// Times in seconds of each worker in each round, by how it was done.
type Times = BTreeMap<i32, Vec<Vec<f64>>>;

impl Bench<'_> {
    fn bandwidths(&mut self) -> Result<Vec<Bandwidth>> {
        let program = build(CELL_BANDWIDTH)?;
        let mut kinds = vec![("#U", 8192, false)];
        if !self.plan.is_short {
            let more = [("#U", 16384), ("#r", 8192), ("#r", 16384)];
            kinds.extend(more.map(|(device, block)| (device, block, false)));
            match huge_pages() {
                Ok(()) => {
                    let huge =
                        ["#U", "#r"].map(|device| [(device, 8192, true), (device, 16384, true)]);
                    kinds.extend(huge.into_iter().flatten());
                }
                Err(error) => {
                    let why = format!("this system gives shared memory none ({error})");
                    self.missing.push(("huge pages".into(), why));
                }
            }
        }
        let mut rows = Vec::new();
        for (device, block, is_huge) in kinds {
            // Of what the paper's table does not have, one and two workers are enough.
            let is_table = is_of_table((device, block, is_huge));
            let counts = self.plan.workers.iter().copied().filter(|count| is_table || *count <= 2);
            for workers in counts.collect::<Vec<_>>() {
                if self.stop.is_asked() {
                    return Ok(rows);
                }
                (self.say)(format!("bandwidth of {device}, blocks of {block}, {workers} workers"));
                match self.bandwidth(&program, (device, block, is_huge), workers) {
                    Ok(row) => rows.push(row),
                    Err(error) => self.missing.push((
                        format!("{device}, blocks of {block}, {workers} workers"),
                        reason(&error),
                    )),
                }
            }
        }
        Ok(rows)
    }

    fn bandwidth(
        &self,
        program: &Path,
        (device, block, is_huge): (&'static str, u32, bool),
        workers: u32,
    ) -> Result<Bandwidth> {
        let (file, meeting) = (self.scratch.file("bandwidth"), self.scratch.file("meeting"));
        make(&meeting, MEETING_BYTES)?;
        let path = match device {
            "#U" => {
                make(&file, FILE_BYTES)?;
                format!("#U{}", file.display())
            }
            _ => "#r/bandwidth".to_owned(),
        };
        let times_of_each = self.plan.rounds.into();
        let numbers = [FILE_BYTES, block.into(), times_of_each, is_huge.into(), workers.into()];
        let mut words = vec![path];
        words.extend(numbers.iter().map(u64::to_string));
        words.push(meeting.display().to_string());
        let options: &[&str] = if is_huge { &["--huge"] } else { &[] };
        let times = self.run(program, "bandwidth", workers, options, &words)?;
        // A worker's rates add up; a round's own is what all of them moved in it.
        let rate = |how: i32| -> Result<Vec<f64>> {
            let moved = 2.0 * FILE_BYTES as f64;
            Ok(rounds(&times, how)?.iter().map(|all| all.iter().map(|s| moved / s).sum()).collect())
        };
        let [hand, ahead] = [rate(BY_HAND)?, rate(BY_HAND_AHEAD)?];
        let [by_hand, by_hand_ahead] = [&hand, &ahead].map(|rates| best_tenth(rates));
        // One way is chosen of several: so it is by hand.
        let judge = if by_hand < by_hand_ahead { &ahead } else { &hand };
        let coroutines: Vec<Vec<f64>> = (1..=COROUTINES).map(rate).collect::<Result<_>>()?;
        let rates: Vec<f64> = coroutines.iter().map(|rates| best_tenth(rates)).collect();
        let best = (1..rates.len()).max_by(|a, b| rates[*a].total_cmp(&rates[*b])).unwrap_or(1);
        Ok(Bandwidth {
            device,
            block,
            is_huge,
            workers,
            is_crowded: workers > self.cpus,
            by_hand,
            by_hand_ahead,
            ratio: quotient(&coroutines[best], judge),
            ratio_of_two: quotient(&coroutines[1], &hand),
            coroutines: rates,
            best: best + 1,
        })
    }

    fn all_matrices(&mut self) -> Result<Vec<Matrices>> {
        let program = build(CELL_MATRICES)?;
        let mut rows = Vec::new();
        for &side in &self.plan.sides {
            for &workers in self.plan.workers.iter().filter(|count| count.is_power_of_two()) {
                if self.stop.is_asked() {
                    return Ok(rows);
                }
                (self.say)(format!("matrices of {side}, {workers} workers"));
                match self.matrices(&program, side, workers) {
                    Ok(row) => rows.push(row),
                    Err(error) => self
                        .missing
                        .push((format!("matrices of {side}, {workers} workers"), reason(&error))),
                }
            }
        }
        Ok(rows)
    }

    fn matrices(&self, program: &Path, side: u32, workers: u32) -> Result<Matrices> {
        let bytes = u64::from(side) * u64::from(side) * 4;
        let mut words = Vec::new();
        for name in ["a", "b", "c"] {
            let file = self.scratch.file(name);
            let ones: Vec<u8> = 1_f32.to_le_bytes().repeat(bytes as usize / 4);
            std::fs::write(&file, ones).cannot(|| format!("write {}", file.display()))?;
            words.push(format!("#U{}", file.display()));
        }
        // Larger ones take longer, and as many rounds of them tell less.
        let rounds = (self.plan.rounds * 256 / side).max(10);
        words.extend([side, workers, rounds].map(|number| number.to_string()));
        let times = self.run(program, "matrices", workers, &[], &words)?;
        // How often in a second, so that more is better.
        let slowest = |how: i32| -> Result<Vec<f64>> {
            let rounds = self::rounds(&times, how)?;
            Ok(rounds.iter().map(|all| 1.0 / all.iter().copied().fold(0.0, f64::max)).collect())
        };
        let (hand, coroutines) = (slowest(BY_HAND)?, [slowest(1)?, slowest(2)?]);
        let coroutines_s = coroutines.each_ref().map(|rates| 1.0 / best_tenth(rates));
        let files = &coroutines[usize::from(coroutines_s[1] < coroutines_s[0])];
        let ratio = quotient(&hand, files);
        let share = |ratio: f64| ratio - 1.0;
        Ok(Matrices {
            side,
            workers,
            is_crowded: workers > self.cpus,
            by_hand_s: 1.0 / best_tenth(&hand),
            coroutines_s,
            files_s: 1.0 / best_tenth(files),
            overhead: Estimate {
                value: share(ratio.value),
                low: share(ratio.low),
                high: share(ratio.high),
            },
        })
    }

    fn trips(&mut self) -> Option<Trips> {
        (self.say)("messages and switches".to_owned());
        match self.try_trips() {
            Ok(trips) => Some(trips),
            Err(error) => {
                self.missing.push(("messages and switches".into(), reason(&error)));
                None
            }
        }
    }

    fn try_trips(&self) -> Result<Trips> {
        if self.cpus < 2 {
            return Err(Error::work("the host needs another CPU than the worker"));
        }
        let program = build(CELL_TRIPS)?;
        let times = self.run(&program, "trips", 1, &[], &[self.plan.rounds.to_string()])?;
        let each = |how: i32, count: f64| -> Result<f64> {
            let rates: Vec<f64> =
                rounds(&times, how)?.iter().map(|all| count / 1e9 / all[0]).collect();
            Ok(1.0 / best_tenth(&rates))
        };
        Ok(Trips {
            floor_ns: each(0, TRIPS)?,
            message_ns: each(1, TRIPS)?,
            switch_ns: each(2, SWITCHES)?,
        })
    }

    /// Runs a program on workers and gathers what its log says.
    fn run(
        &self,
        program: &Path,
        word: &str,
        workers: u32,
        options: &[&str],
        words: &[String],
    ) -> Result<Times> {
        let covey = std::env::current_exe().cannot(|| "find this program")?;
        let mut command = Command::new(covey);
        command.args(["cell", "run", "--alone", "--pin", "-s", &workers.to_string()]);
        command.args(options).arg(program).args(words).stdin(Stdio::null());
        let done = command.output().cannot(|| "run workers")?;
        let said = String::from_utf8_lossy(&done.stdout);
        if !done.status.success() {
            let why = String::from_utf8_lossy(&done.stderr);
            let why = why.lines().next().unwrap_or("it says nothing").trim_start_matches("covey: ");
            return Err(Error::work(format!("cannot measure: {why}")));
        }
        gather(&said, word, workers as usize)
            .map_err(|line| Error::work(format!("cannot measure: {line}")))
    }
}

/// The times of a log: `WORD WORKER HOW NANOSECONDS` in each line. A line that is none says what has failed.
fn gather<'a>(log: &'a str, word: &str, workers: usize) -> std::result::Result<Times, &'a str> {
    let mut times = Times::new();
    for line in log.lines() {
        let (worker, how, nanoseconds) = time(line, word).ok_or(line)?;
        let all = times.entry(how).or_insert_with(|| vec![Vec::new(); workers]);
        all.get_mut(worker).ok_or(line)?.push(nanoseconds as f64 / 1e9);
    }
    Ok(times)
}

fn time(line: &str, word: &str) -> Option<(usize, i32, u64)> {
    let mut words = line.strip_prefix(word)?.split_whitespace();
    let mut next = || words.next();
    Some((next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?))
}

/// What each worker took, round by round.
fn rounds(times: &Times, how: i32) -> Result<Vec<Vec<f64>>> {
    let workers = times.get(&how).ok_or_else(|| Error::work("cannot measure: no times"))?;
    let count = workers.iter().map(Vec::len).min().unwrap_or(0);
    Ok((0..count).map(|round| workers.iter().map(|times| times[round]).collect()).collect())
}

/// The mean of the best tenth, largest numbers being best.
fn best_tenth(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let best = &sorted[..sorted.len().div_ceil(10).min(sorted.len())];
    best.iter().sum::<f64>() / best.len() as f64
}

/// How many times the one is the other, at their best tenths; its interval by resampling the rounds.
fn quotient(of: &[f64], to: &[f64]) -> Estimate {
    let count = of.len().min(to.len());
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut again = || {
        let mut pick = |_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize % count
        };
        let picked: Vec<usize> = (0..count).map(&mut pick).collect();
        let side = |all: &[f64]| best_tenth(&picked.iter().map(|at| all[*at]).collect::<Vec<_>>());
        side(of) / side(to)
    };
    let repetitions = (0..REPETITIONS).map(|_| again()).collect();
    Estimate::from_repetitions(best_tenth(of) / best_tenth(to), repetitions)
}

const REPETITIONS: usize = 400;

/// A file of zeros.
fn make(file: &Path, bytes: u64) -> Result<()> {
    let made = std::fs::File::create(file).and_then(|made| made.set_len(bytes));
    made.cannot(|| format!("make {}", file.display()))
}

fn build(program: Program) -> Result<PathBuf> {
    let options = ["-O3", "-march=native", "-shared", "-fPIC"];
    programs::build(program, "cc", &options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_gathered_by_how_they_were_made_and_a_strange_line_is_refused() {
        let log = "bandwidth 0 0 2000000000\nbandwidth 1 0 1000000000\nbandwidth 0 2 500000000\n";
        let times = gather(log, "bandwidth", 2).unwrap();
        assert_eq!(rounds(&times, 0).unwrap(), [[2.0, 1.0]]);
        assert_eq!(rounds(&times, 2).unwrap(), Vec::<Vec<f64>>::new());
        assert!(rounds(&times, 1).is_err());
        let log = format!("{log}huge pages failed\n{log}");
        assert_eq!(gather(&log, "bandwidth", 2), Err("huge pages failed"));
        assert_eq!(gather("bandwidth failed\n", "bandwidth", 2), Err("bandwidth failed"));
        assert_eq!(gather("bandwidth 2 0 1\n", "bandwidth", 2), Err("bandwidth 2 0 1"));
    }

    #[test]
    fn a_quotient_is_that_of_the_best_tenths_and_lies_in_its_interval() {
        let of: Vec<f64> = (0..100).map(|n| 100.0 + f64::from(n % 10)).collect();
        let to: Vec<f64> = of.iter().map(|one| one / 2.0).collect();
        assert_eq!(best_tenth(&of), 109.0);
        let ratio = quotient(&of, &to);
        assert_eq!(ratio.value, 2.0);
        assert!(ratio.low <= 2.0 && ratio.high >= 2.0 && ratio.high - ratio.low < 0.1, "{ratio:?}");
    }
}
