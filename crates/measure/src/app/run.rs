//! Runs the programs that measure, and gathers what they say.

use super::blas::Blas;
use crate::child::{self, Watched};
use crate::error::{Error, Result};
use crate::hosts::Hosts;
use crate::mpi::{Library, Mpi, Wait};
use crate::programs::{self, GEMM, SCALAPACK};
use crate::scratch::Scratch;
use crate::stop::Stop;
use covey_tune::application::{Case, Numbers, Rate, Repetition, read};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// How long a program may write nothing: one case, checked, with the slowest library.
const SILENCE: Duration = Duration::from_secs(120);
/// Debian's name for any BLAS, so that no package to compile with is needed.
const ANY_BLAS: &str = "-l:libblas.so.3";

/// One core multiplies matrices of an order for `seconds` each type.
pub fn multiply(
    blas: &Blas,
    numbers: &[Numbers],
    order: u64,
    seconds: f64,
    stop: &Stop,
) -> Result<Vec<Repetition>> {
    let program = programs::build(GEMM, "cc", &[ANY_BLAS, "-lm", "-ldl"])
        .map_err(|error| error.hint("apt-get install gcc libc6-dev libopenblas0-pthread"))?;
    let scratch = Scratch::new()?;
    let mut command = Hosts::Here.command("env");
    command.args(blas.environment()).arg(program).arg(scratch.file("records"));
    let letters: String = numbers.iter().map(|one| one.letter()).collect();
    command.args([format!("{seconds:.3}"), order.to_string(), letters]);
    let ran = gather(command, blas, &scratch, SILENCE, stop)?;
    match ran.failure {
        None => Ok(ran.repetitions),
        Some(why) => {
            Err(Error::work(format!("cannot multiply matrices with {}: {why}", blas.name)))
        }
    }
}

/// A library with ScaLAPACK beside it, ready to run.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The MPI.
    pub mpi: Mpi,
    program: PathBuf,
}

impl Ready {
    /// Compiles what is to run.
    pub fn new(mpi: Mpi) -> Result<Ready> {
        let (library, package) = match mpi.library {
            Library::Openmpi => ("-lscalapack-openmpi", "libscalapack-openmpi-dev"),
            Library::Mpich => ("-lscalapack-mpich", "libscalapack-mpich-dev"),
        };
        let options = [library, ANY_BLAS, "-lm", "-ldl"];
        let program = programs::build(SCALAPACK, mpi.compiler, &options);
        let hint = format!("apt-get install {package} libopenblas0-pthread");
        Ok(Ready { program: program.map_err(|error| error.hint(hint))?, mpi })
    }

    /// Measures cases one after the other, `passes` times, until `seconds` are over.
    pub fn measure(&self, job: &Job<'_>, stop: &Stop) -> Result<Ran> {
        let scratch = Scratch::new()?;
        let mut command = self.mpi.launch(job.hosts, job.ranks, Wait::Poll, &scratch)?;
        command.arg("env").args(job.blas.environment()).arg(&self.program);
        command.arg(scratch.file("records"));
        let seconds = format!("{:.3}", job.seconds);
        command.args([job.passes.to_string(), seconds, job.least.to_string()]);
        command.args(job.cases.iter().map(word));
        let limit = SILENCE + Duration::from_secs_f64(job.seconds.max(0.0));
        gather(command, job.blas, &scratch, limit, stop)
    }
}

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Where.
    pub hosts: &'a Hosts,
    /// With how many processes.
    pub ranks: usize,
    /// With which BLAS.
    pub blas: &'a Blas,
    /// Matrices to multiply and systems to solve, in this order.
    pub cases: &'a [Case],
    /// Repetitions of each case.
    pub passes: usize,
    /// No case is begun after so long,
    pub seconds: f64,
    /// but for so many at the beginning.
    pub least: usize,
}

/// What came of it: there may be something also when it failed.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// What was measured.
    pub repetitions: Vec<Repetition>,
    /// Why it broke off.
    pub failure: Option<String>,
}

fn word(case: &Case) -> String {
    let Case { routine, numbers, order, block, rows, columns } = case;
    format!("{}:{}:{order}:{block}:{rows}:{columns}", routine.name(), numbers.letter())
}

fn gather(
    command: Command,
    blas: &Blas,
    scratch: &Scratch,
    limit: Duration,
    stop: &Stop,
) -> Result<Ran> {
    let mut ran = Ran::default();
    let (records, talk) = (scratch.file("records"), scratch.file("talk"));
    let watched =
        Watched { records: &records, output: &talk, talk: &talk, silence: SILENCE, limit };
    ran.failure = child::run(command, &watched, stop, |new| {
        let (found, used) = read(new)?;
        match found.blas.filter(|path| !blas.is_loaded_from(path)) {
            Some(path) => Err(format!("it loaded {path} instead of {}", blas.name)),
            None => Ok(used),
        }?;
        ran.repetitions.extend(found.repetitions);
        Ok(used)
    })?;
    Ok(ran)
}

/// The best of each case.
pub fn rates(all: &[Repetition]) -> Vec<Rate> {
    let mut cases: Vec<Case> = all.iter().map(|one| one.case).collect();
    cases.sort();
    cases.dedup();
    let of = |case: Case| -> Vec<Repetition> {
        all.iter().filter(|one| one.case == case).copied().collect()
    };
    cases.into_iter().filter_map(|case| Rate::of(&of(case))).collect()
}
