//! `covey bench btio`: the BT benchmark of NASA, which writes its solution while it computes (NPB 2.4 I/O, NAS-03-002).
//!
//! The program is our own (`programs/btio.c`), in C over MPI. It writes to a directory, wherever that lies, or to Covey
//! without a mount: then `libcovey-preload.so` serves its calls, and the shim for MPI-IO sends its file view to the
//! servers as it is.

use crate::child::{self, Watched};
use crate::environment::{Environment, Watch};
use crate::error::{Error, Result};
use crate::hosts::Hosts;
use crate::mpi::{self, Library, Mpi, Wait};
use crate::programs::{self, BTIO, VIEWS};
use crate::provenance::Provenance;
use crate::scratch::Scratch;
use crate::stop::Stop;
use covey_lab::enter::ourselves;
use covey_plot::table;
use covey_tune::diagnose::noise;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// A size of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub enum Class {
    /// 12 points along each axis, 60 steps, 0.8 MB written
    #[value(name = "S")]
    S,
    /// 24 points, 200 steps, 22 MB
    #[value(name = "W")]
    W,
    /// 64 points, 200 steps, 419 MB
    #[value(name = "A")]
    A,
    /// 102 points, 200 steps, 1.7 GB
    #[value(name = "B")]
    B,
    /// 162 points, 200 steps, 6.8 GB
    #[value(name = "C")]
    C,
}

impl Class {
    /// NASA's letter.
    pub fn letter(self) -> &'static str {
        match self {
            Class::S => "S",
            Class::W => "W",
            Class::A => "A",
            Class::B => "B",
            Class::C => "C",
        }
    }

    /// Steps in time.
    pub fn steps(self) -> u32 {
        if self == Class::S { 60 } else { 200 }
    }

    /// Points along each axis.
    pub fn side(self) -> usize {
        match self {
            Class::S => 12,
            Class::W => 24,
            Class::A => 64,
            Class::B => 102,
            Class::C => 162,
        }
    }
}

/// How the solution is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    /// Collective MPI-IO through a file view, with collective buffering
    Full,
    /// MPI-IO through the same view, each process for itself
    Simple,
    /// Each process seeks and writes its rows
    Fortran,
    /// Each process writes a file of its own
    Epio,
    /// Not at all
    None,
}

impl Io {
    /// All that write.
    pub const ALL: [Io; 4] = [Io::Full, Io::Simple, Io::Fortran, Io::Epio];

    /// What NASA calls it.
    pub fn word(self) -> &'static str {
        match self {
            Io::Full => "full",
            Io::Simple => "simple",
            Io::Fortran => "fortran",
            Io::Epio => "epio",
            Io::None => "none",
        }
    }
}

/// Where the solution is written.
#[derive(Clone, Debug)]
pub enum Place {
    /// A directory of this machine, by its absolute name.
    Directory(PathBuf),
    /// A directory of Covey's files, reached without a mount.
    Covey {
        /// Its name, which begins with a slash.
        directory: String,
        /// The cluster's configuration, where it was named.
        config: Option<PathBuf>,
    },
}

/// Where the preload library shows Covey's files.
const PREFIX: &str = "/covey";

impl Place {
    fn directory(&self) -> String {
        match self {
            Place::Directory(path) => path.display().to_string(),
            Place::Covey { directory, .. } => {
                format!("{PREFIX}{}", directory.trim_end_matches('/'))
            }
        }
    }

    fn words(&self) -> String {
        match self {
            Place::Directory(path) => path.display().to_string(),
            Place::Covey { directory, .. } => format!("covey:{directory}, without a mount"),
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The size.
    pub class: Class,
    /// How many processes: a square.
    pub ranks: usize,
    /// The ways to write, one after the other.
    pub ios: Vec<Io>,
    /// Only this MPI.
    pub mpi: Option<Library>,
    /// Where the processes run.
    pub hosts: Hosts,
    /// Where to write: on each host its own directory of this name.
    pub place: Place,
    /// What else the program is asked for.
    pub extras: Extras,
}

/// What the program does beside solving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// The files stay.
    pub keeps: bool,
    /// What was written goes to stable storage and out of the caches before it is read back.
    pub is_cold: bool,
    /// It says when each phase began.
    pub tells_phases: bool,
}

impl Extras {
    fn words(self) -> impl Iterator<Item = &'static str> {
        let all = [(self.keeps, "keep"), (self.is_cold, "cold"), (self.tells_phases, "phases")];
        all.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, word)| word)
    }
}

/// What the program does from one time on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// `open`, `steps`, `output`, `settle`, `read` or `end`.
    pub name: String,
    /// In seconds of the monotonic clock, which all programs of a machine share.
    pub begin_s: f64,
}

/// A longer silence means that it hangs: twenty steps of the largest class on a slow machine.
const SILENCE: Duration = Duration::from_secs(1800);
const LIMIT: Duration = Duration::from_secs(24 * 3600);
/// By so much a file system's times are behind.
const COARSE_CLOCK: Duration = Duration::from_millis(20);

/// One run of the program.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The MPI library, with its version.
    pub mpi: String,
    /// How it wrote.
    pub io: Io,
    /// Whether the norms are NASA's; those of the error come from what was read back.
    pub is_verified: bool,
    /// Of all steps, with output.
    pub seconds: f64,
    /// Million operations per second, of all processes.
    pub mops: f64,
    /// What output took: the harmonic mean of the processes.
    pub io_seconds: Option<f64>,
    /// Written, in 10^6 bytes.
    pub io_mb: Option<f64>,
    /// The same per second.
    pub io_mb_per_s: Option<f64>,
    /// What reading it back took.
    pub read_seconds: Option<f64>,
    /// A sum of the solutions read back: the same number for the same solutions.
    pub sum: Option<String>,
    /// Calls that the preload library served, in all processes.
    pub calls: Option<Calls>,
    /// When each phase began, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// What the program said, in the form of NASA's.
    pub said: String,
}

/// Calls of a program on files of Covey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// Plain reads.
    pub reads: u64,
    /// Plain writes.
    pub writes: u64,
    /// Views sent to the servers, one request to each.
    pub views: u64,
    /// Locks and unlocks.
    pub locks: u64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `btio`.
    pub kind: &'static str,
    /// The size.
    pub class: Class,
    /// How many processes.
    pub ranks: usize,
    /// Where it wrote.
    pub place: String,
    /// In the order in which they were made.
    pub runs: Vec<Run>,
    /// What could not be measured, and why.
    pub missing: Vec<(String, String)>,
    /// Whether others were busy.
    pub environment: Environment,
    /// Where it comes from.
    pub provenance: Provenance,
}

/// Measures. Refuses what the program would refuse before anything is compiled.
pub fn measure(plan: &Plan, stop: &Stop, say: &dyn Fn(String)) -> Result<Report> {
    check(plan)?;
    let watch = Watch::begin();
    let mut report = Report {
        kind: "btio",
        class: plan.class,
        ranks: plan.ranks,
        place: plan.place.words(),
        runs: Vec::new(),
        missing: Vec::new(),
        environment: Environment::default(),
        provenance: Provenance::here(),
    };
    for mpi in mpi::choose(plan.mpi)? {
        for io in &plan.ios {
            let what = format!("{} over {}", io.word(), mpi.name);
            say(what.clone());
            match run(plan, &mpi, *io, stop, say) {
                Ok(run) => report.runs.push(run),
                Err(error) => {
                    let hints = error.hints.iter().map(|hint| format!("; {hint}"));
                    let why = format!("{}{}", error.message, hints.collect::<String>());
                    report.missing.push((what, why));
                }
            }
            if stop.is_asked() {
                break;
            }
        }
    }
    report.environment = watch.end();
    Ok(report)
}

/// Refuses what the program would refuse.
pub fn check(plan: &Plan) -> Result<()> {
    let (ranks, side) = (plan.ranks, plan.class.side());
    let cells = ranks.isqrt();
    if cells == 0 || cells * cells != ranks {
        return Err(Error::user(format!("cannot run BT in {ranks} processes: it needs a square"))
            .hint("-n 1, 4, 9, 16 and so on"));
    }
    if side / cells < 3 {
        let class = plan.class.letter();
        let most = (side / 3).pow(2);
        return Err(Error::user(format!("cannot run class {class} in {ranks} processes"))
            .hint(format!("its grid is enough for {most} at most")));
    }
    match &plan.place {
        Place::Covey { .. } if plan.extras.is_cold => {
            Err(Error::user("cannot read back past the caches without a mount")
                .hint("there are none: what is read comes from the servers"))
        }
        Place::Directory(dir) if matches!(plan.hosts, Hosts::Here) && !dir.is_dir() => {
            let dir = dir.display();
            Err(Error::user(format!("cannot write to {dir}: it is no directory"))
                .hint(format!("mkdir {dir}, or --dir covey:/DIR for Covey without a mount")))
        }
        _ => Ok(()),
    }
}

/// One run. Where it breaks off, what it has written goes as it does after others: a disk that is full would stay so.
pub fn run(plan: &Plan, mpi: &Mpi, io: Io, stop: &Stop, say: &dyn Fn(String)) -> Result<Run> {
    let begun = SystemTime::now();
    let result = solve(plan, mpi, io, stop, say);
    if let (Err(_), false, Place::Directory(dir)) = (&result, plan.extras.keeps, &plan.place) {
        clear_away(dir, io, plan.ranks, begun);
    }
    result
}

/// Removes what a run has written into a directory of this machine, as far as that is there.
fn clear_away(dir: &Path, io: Io, ranks: usize, begun: SystemTime) {
    let name = format!("btio.{}.out", io.word());
    let own = (0..ranks).map(|rank| format!("{name}.{rank:04}"));
    let names: Vec<String> = if io == Io::Epio { own.collect() } else { vec![name] };
    for file in names.iter().map(|name| dir.join(name)) {
        // What somebody has kept from an earlier run stays, if this one never came to it.
        let changed = file.metadata().and_then(|data| data.modified());
        if changed.is_ok_and(|changed| changed + COARSE_CLOCK >= begun) {
            let _ = std::fs::remove_file(file);
        }
    }
}

fn solve(plan: &Plan, mpi: &Mpi, io: Io, stop: &Stop, say: &dyn Fn(String)) -> Result<Run> {
    let program = programs::build(BTIO, mpi.compiler, &["-O3", "-lm"])?;
    let scratch = Scratch::new()?;
    let mut command = mpi.launch(&plan.hosts, plan.ranks, Wait::Poll, &scratch)?;
    if let Place::Covey { config, .. } = &plan.place {
        without_a_mount(&mut command, mpi, plan.ranks, config.as_ref())?;
    }
    command.arg(program).args([plan.class.letter(), io.word()]).arg(plan.place.directory());
    command.args(plan.extras.words());
    let (output, talk) = (scratch.file("output"), scratch.file("talk"));
    let watched =
        Watched { records: &output, output: &output, talk: &talk, silence: SILENCE, limit: LIMIT };
    let mut said = String::new();
    let failure = child::run(command, &watched, stop, |new| {
        let whole = new.rfind('\n').map_or(0, |end| end + 1);
        said.push_str(&new[..whole]);
        if let Some(line) = new[..whole].lines().rfind(|line| line.contains("Time step")) {
            say(format!("{} over {}: {}", io.word(), mpi.name, line.trim().to_lowercase()));
        }
        Ok(whole)
    })?;
    let broken = |why: String| Error::work(format!("it broke off: {why}"));
    if let Some(why) = failure {
        return Err(broken(why));
    }
    let talk = std::fs::read(&talk).unwrap_or_default();
    let told =
        Run { calls: calls(&String::from_utf8_lossy(&talk)), ..read(&mpi.name, io, said.clone()) };
    if told.seconds > 0.0 { Ok(told) } else { Err(broken("it reported no time".into())) }
}

/// The program gets the libraries that serve its calls; the launcher has no business with Covey's files.
fn without_a_mount(
    command: &mut Command,
    mpi: &Mpi,
    ranks: usize,
    config: Option<&PathBuf>,
) -> Result<()> {
    let serving = preload_library().ok_or_else(|| {
        Error::work("cannot reach Covey without a mount: there is no libcovey-preload.so")
            .hint("`make install` puts it beside covey; on a mount it is not needed: --dir MOUNT")
    })?;
    let all = [mpi.yielding(ranks), Some(mpi.library_of(VIEWS)?), Some(serving)];
    let all: Vec<String> = all.iter().flatten().map(|path| path.display().to_string()).collect();
    command.arg("env").arg(format!("LD_PRELOAD={}", all.join(" ")));
    command.arg(format!("COVEY_PRELOAD_PREFIX={PREFIX}")).arg("COVEY_PRELOAD_REPORT=1");
    command.args(config.map(|file| format!("COVEY_CONFIG={}", file.display())));
    Ok(())
}

/// Beside this program, or in the lib directory beside its own.
fn preload_library() -> Option<PathBuf> {
    let program = ourselves();
    let beside = program.parent()?;
    let mut all = vec![beside.join("libcovey-preload.so"), beside.join("libcovey_preload.so")];
    all.extend(beside.parent().map(|above| above.join("lib/libcovey-preload.so")));
    all.into_iter().find(|file| file.is_file())
}

/// What the program's lines say.
fn read(mpi: &str, io: Io, said: String) -> Run {
    let value = |name: &str| {
        let line = said.lines().find(|line| line.trim_start().starts_with(name))?;
        Some(line.rsplit(['=', ':']).next()?.trim().to_owned())
    };
    let number = |name: &str| value(name)?.parse::<f64>().ok();
    let io_seconds = number("I/O timing in seconds");
    Run {
        mpi: mpi.to_owned(),
        io,
        is_verified: value("Verification    =").is_some_and(|word| word == "SUCCESSFUL"),
        seconds: number("Time in seconds").unwrap_or(0.0),
        mops: number("Mop/s total").unwrap_or(0.0),
        io_seconds,
        io_mb: number("Total data written"),
        io_mb_per_s: number("I/O data rate"),
        read_seconds: number("Read back"),
        sum: value("Sum of what was read"),
        calls: None,
        phases: said.lines().filter_map(phase).collect(),
        said: said
            .lines()
            .filter(|line| phase(line).is_none())
            .flat_map(|line| [line, "\n"])
            .collect(),
    }
}

fn phase(line: &str) -> Option<Phase> {
    let mut words = line.strip_prefix(" Phase ")?.split_ascii_whitespace();
    let (name, begin_s) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    Some(Phase { name, begin_s })
}

/// The sum of the preload library's reports. None where it says nothing.
fn calls(talk: &str) -> Option<Calls> {
    let mut all = None;
    for line in talk.lines().filter(|line| line.contains(" list requests of ")) {
        let before = |words: &str| -> u64 {
            let word = line.split(words).next().and_then(|part| part.rsplit(' ').next());
            word.and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        let sum: &mut Calls = all.get_or_insert_default();
        sum.reads += before(" reads of ");
        sum.writes += before(" writes of ");
        sum.views += before(" list requests of ");
        sum.locks += before(" lock calls");
    }
    all
}

impl Report {
    /// Whether everything was measured and has NASA's norms.
    pub fn is_right(&self) -> bool {
        self.missing.is_empty() && self.runs.iter().all(|run| run.is_verified)
    }

    /// Writes it down.
    pub fn tell(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let (class, ranks) = (self.class.letter(), self.ranks);
        let processes = if ranks == 1 { "process" } else { "processes" };
        writeln!(out, "BT class {class}, {ranks} {processes}, to {}", self.place)?;
        let rows: Vec<Vec<String>> = self.runs.iter().map(row).collect();
        let head = ["MPI", "I/O", "time s", "Mop/s", "I/O s", "written MB", "MB/s", "read s"];
        let head = [&head[..], &["contents", "verified"]].concat();
        table(out, &head, &rows);
        for run in &self.runs {
            if let Some(Calls { reads, writes, views, locks }) = run.calls {
                let (io, mpi) = (run.io.word(), &run.mpi);
                let calls =
                    format!("{views} views, {reads} reads, {writes} writes, {locks} lock calls");
                writeln!(out, "{io} over {mpi}: {calls}")?;
            }
        }
        for (what, why) in &self.missing {
            writeln!(out, "not measured: {what}: {why}")?;
        }
        if ranks > self.provenance.cpus {
            writeln!(
                out,
                "\nmore processes than CPUs: what they wait for one another is in every time"
            )?;
        }
        // Processes that wait for a CPU are our own as well.
        if let Some(why) = noise(None, self.environment.outside_cpus, self.environment.steal) {
            writeln!(out, "\nnot trustworthy: {why}")?;
        }
        Ok(())
    }
}

fn row(run: &Run) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    // Enough of it to see a difference.
    let sum = run.sum.as_deref().and_then(|sum| sum.get(..8));
    vec![
        run.mpi.clone(),
        run.io.word().to_owned(),
        format!("{:.2}", run.seconds),
        format!("{:.0}", run.mops),
        number(run.io_seconds),
        number(run.io_mb),
        number(run.io_mb_per_s),
        number(run.read_seconds),
        sum.unwrap_or("-").to_owned(),
        if run.is_verified { "yes" } else { "NO" }.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
 BTIO -- statistics:
   I/O timing in seconds   :           0.04
   I/O timing percentage   :           1.88
   Total data written (MB) :          22.12
   I/O data rate  (MB/sec) :         541.00
   Read back in seconds    :           0.02
   Sum of what was read    : 00a1b2c3d4e5f607

 BT Benchmark Completed.
 Time in seconds =                     0.75
 Mop/s total     =                 10353.00
 Mop/s/process   =                  2588.25
 Verification    =               SUCCESSFUL
";

    #[test]
    fn the_lines_of_the_program_are_understood() {
        let run = read("MPICH 4.0.2", Io::Simple, SAID.to_owned());
        assert!(run.is_verified);
        assert_eq!((run.seconds, run.mops), (0.75, 10353.0));
        assert_eq!((run.io_seconds, run.io_mb_per_s), (Some(0.04), Some(541.0)));
        assert_eq!(run.sum.as_deref(), Some("00a1b2c3d4e5f607"));
        let plain = read("MPICH", Io::None, SAID.replace("SUCCESSFUL", "UNSUCCESSFUL"));
        assert!(!plain.is_verified);
        assert_eq!(run.said, SAID);
    }

    #[test]
    fn phases_are_taken_from_what_the_program_says() {
        let phases = " Phase steps             12.500000\n Phase output            13.000000\n";
        let run = read("MPICH", Io::Epio, format!("{phases}{SAID}"));
        assert_eq!(run.said, SAID, "NASA's program says nothing of phases");
        let names: Vec<(&str, f64)> =
            run.phases.iter().map(|one| (one.name.as_str(), one.begin_s)).collect();
        assert_eq!(names, [("steps", 12.5), ("output", 13.0)]);
    }

    #[test]
    fn reports_of_the_preload_library_are_added_up() {
        let line = "covey: pid 7 (btio): 2 opens, 1 calls on names, 3 reads of 9 bytes, 4 writes of 9 bytes, \
                    12 list requests of 40 pieces, 5 lock calls\n";
        let sum = Calls { reads: 6, writes: 8, views: 24, locks: 10 };
        assert_eq!(calls(&line.repeat(2)), Some(sum));
        assert_eq!(calls("nothing of this kind"), None);
    }

    #[test]
    fn only_squares_that_fit_the_grid_are_run() {
        let place = Place::Directory("/".into());
        let (hosts, extras) = (Hosts::Here, Extras::default());
        let ios = vec![Io::Full];
        let plan = Plan { class: Class::S, ranks: 4, ios, mpi: None, hosts, place, extras };
        let with = |ranks| check(&Plan { ranks, ..plan.clone() });
        assert!(with(1).is_ok() && with(16).is_ok());
        assert!(with(8).unwrap_err().message.contains("square"));
        assert!(with(25).unwrap_err().message.contains("class S in 25"));
        let nowhere = Place::Directory("/no/such/place".into());
        let error = check(&Plan { place: nowhere, ..plan }).unwrap_err();
        assert!(error.message.contains("no directory"), "{error}");
    }
}
