//! `covey uzura bench`: the engine beside the machine's floors and other message libraries.

mod tell;

use crate::cmd::Context;
use crate::error::{Error, Result};
use covey_measure::environment::{Environment, Watch};
use covey_measure::fabric;
use covey_measure::mpi::{Library, Mpi, installed};
use covey_measure::provenance::Provenance;
use covey_measure::stop::{INTERRUPTED, Stop, interruptible};
use covey_measure::uzura::bars::{Bar, judge};
use covey_measure::uzura::cpus::{self, Cpus};
use covey_measure::uzura::figures::{Figures, Summary};
use covey_measure::uzura::meter::Plan;
use covey_measure::uzura::peers::Peer;
use covey_measure::uzura::what::Over;
use covey_measure::uzura::{engine, floors, iperf, other, peers, served};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Measure messages and transpositions between two processes of this machine
///
/// Each operation is measured in thousands of short batches of at most 20 round trips, round after
/// round, by two processes that each stay on a CPU. The columns are the minimum, the best tenth
/// (both processes were on their CPUs) and the median; the CPU time of both processes per
/// operation; and the time of a bare cache line between the same CPUs in the same minutes, because
/// a hypervisor moves CPUs and every other number depends on it.
///
/// Beside them are the machine's own limits (a cache line, memcpy, process_vm_readv, transpositions
/// by our kernels, a bare TCP socket, iperf3, 9P by a unix socket), and Open MPI and MPICH where
/// they are installed: a program in C is compiled with their mpicc when it is first needed. Those
/// that speak libfabric are measured through Covey's provider too.
/// Transposed matrices are compared element by element.
///
/// EXAMPLES
///
///     covey uzura bench --quick
///     covey uzura bench --only matrices
///     covey uzura bench --rounds 20 --json
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// One short round: to see that everything works, not how fast it is
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Measure this only [default: all]
    #[arg(long, value_enum, value_name = "WHAT")]
    only: Vec<Part>,
    /// Number of rounds
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Measure as if the kernel may not copy between processes (process_vm_readv is forbidden); no
    /// bars are judged
    #[arg(long)]
    no_one_copy: bool,
    /// The two processes' CPUs [default: the first two]
    #[arg(long, value_name = "CPU,CPU")]
    cpus: Option<Cpus>,
    /// Be the second process.
    #[arg(long, hide = true, value_name = "MEMORY")]
    answer: Option<PathBuf>,
    #[arg(long, hide = true, value_name = "SOCKET")]
    answer_socket: Option<PathBuf>,
    #[arg(long, hide = true, value_name = "CPU", default_value_t = 0)]
    answer_cpu: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Messages by memory
    Memory,
    /// Messages by TCP on loopback
    Tcp,
    /// Matrices transposed on the way
    Matrices,
    /// 9P reads of 1 MiB from a file in memory
    Reads,
}

/// All that is told.
#[derive(Debug, Serialize)]
struct Report {
    figures: Vec<Summary>,
    bars: Vec<Bar>,
    /// What could not be measured, and why.
    missing: Vec<String>,
    /// The paper's own predictions.
    paper: Paper,
    cpus: Cpus,
    environment: Environment,
    provenance: Provenance,
}

/// What the UZURA paper predicts of its card.
#[derive(Debug, Serialize)]
struct Paper {
    message_64_bytes_ns: f64,
    block_4096_bytes_per_s: f64,
}

const PAPER: Paper = Paper { message_64_bytes_ns: 4030.0, block_4096_bytes_per_s: 1.02e9 };

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    if let Some(memory) = &args.answer {
        let socket = args.answer_socket.clone().unwrap_or_default();
        return other::answer(memory, &socket, args.answer_cpu);
    }
    let cpus = cpus::choose(args.cpus)?;
    let (rounds, slice_ms) = if args.quick { (1, 5) } else { (args.rounds.into(), 100) };
    let (slice, one_copy) = (Duration::from_millis(slice_ms), !args.no_one_copy);
    let plan = Plan { rounds, slice, cpus, one_copy };
    let (bar, say) = context.output.told();
    let measured = interruptible(move |stop| Ok(measure(&args, &plan, stop, &say)));
    let report = measured.await?;
    bar.finish_and_clear();
    context.output.result(&report, |out| tell::all(out, &report))?;
    if report.figures.is_empty() {
        Err(Error::work("nothing could be measured").hint("`covey uzura bench --json` says why"))
    } else {
        Ok(())
    }
}

/// A run: all that is to be measured, round after round.
struct Run<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    say: &'a dyn Fn(String),
    figures: Figures,
    missing: Vec<String>,
}

fn measure(args: &Args, plan: &Plan, stop: &Stop, say: &dyn Fn(String)) -> Report {
    let watch = Watch::begin();
    let (figures, missing) = (Figures::default(), Vec::new());
    let mut run = Run { plan, stop, say, figures, missing };
    let libraries = installed();
    for (library, name) in [(Library::Openmpi, "Open MPI"), (Library::Mpich, "MPICH")] {
        if !libraries.iter().any(|mpi| mpi.library == library) {
            run.missing.push(format!("{name} is not installed"));
        }
    }
    for round in 0..plan.rounds {
        let parts = [Part::Memory, Part::Tcp, Part::Matrices, Part::Reads];
        for part in
            parts.into_iter().filter(|part| args.only.is_empty() || args.only.contains(part))
        {
            if stop.is_asked() {
                break;
            }
            run.part(part, round, &libraries);
        }
    }
    if stop.is_asked() {
        run.missing.push(format!("the rest: {INTERRUPTED}"));
    }
    let figures = run.figures.summaries();
    Report {
        bars: if plan.one_copy { judge(&figures) } else { Vec::new() },
        figures,
        missing: run.missing,
        paper: PAPER,
        cpus: plan.cpus,
        environment: watch.end(),
        provenance: Provenance::here(),
    }
}

/// What measures the floors of a part.
type Floors = fn(&Plan, &Stop, &mut Figures) -> Result<()>;

impl Run<'_> {
    /// One round of one part: floors, engine and libraries as close together as it goes.
    fn part(&mut self, part: Part, round: usize, libraries: &[Mpi]) {
        let (plan, stop) = (self.plan, self.stop);
        let (over, name, floors): (_, _, Floors) = match part {
            Part::Memory => (Over::Memory, "messages by memory", floors::memory),
            Part::Tcp => (Over::Tcp, "messages by TCP", floors::sockets),
            Part::Matrices => (Over::Memory, "matrices", floors::matrices),
            Part::Reads => {
                (self.say)(format!("round {} of {}: 9P reads", round + 1, plan.rounds));
                let done = served::measure(plan, stop, &mut self.figures);
                return self.keep(done);
            }
        };
        (self.say)(format!("round {} of {}: {name}, floors", round + 1, plan.rounds));
        let floors = floors(plan, stop, &mut self.figures);
        self.keep(floors);
        if part == Part::Tcp {
            let iperf = if iperf::is_installed() {
                iperf::measure(plan, &mut self.figures)
            } else {
                Err(Error::work("iperf3 is not installed"))
            };
            self.keep(iperf);
        }
        (self.say)(format!("round {} of {}: {name}, Covey", round + 1, plan.rounds));
        let whats = engine::whats(over, &floors::SIDES, part == Part::Matrices);
        let ours = engine::measure(over, &whats, plan, stop, &mut self.figures);
        self.keep(ours);
        let whats = peers::whats(over, &floors::SIDES, part == Part::Matrices);
        for mpi in libraries {
            if stop.is_asked() {
                return;
            }
            (self.say)(format!("round {} of {}: {name}, {}", round + 1, plan.rounds, mpi.name));
            let mut whats = whats.clone();
            if !plan.one_copy && mpi.library == Library::Openmpi {
                // Its windows are refused then.
                whats.retain(|what| !what.is_got());
            }
            let peer = Peer { mpi, provider: None };
            let done = peers::measure(peer, over, &whats, plan, stop, &mut self.figures);
            self.keep(done);
        }
        if part != Part::Matrices {
            self.through_the_provider(over, libraries);
        }
    }

    /// Messages of the libraries that can send over Covey.
    fn through_the_provider(&mut self, over: Over, libraries: &[Mpi]) {
        let (plan, stop) = (self.plan, self.stop);
        let Some(provider) = fabric::directory() else {
            return self.keep(Err(Error::work("libcovey-fi.so is not installed")));
        };
        for mpi in libraries.iter().filter(|mpi| mpi.speaks_libfabric()) {
            if stop.is_asked() {
                return;
            }
            let peer = Peer { mpi, provider: Some(&provider) };
            (self.say)(format!("messages through {}", peer.name(over, plan.one_copy)));
            let mut whats = peers::whats(over, &floors::SIDES, false);
            whats.retain(|what| !what.is_got());
            let done = peers::measure(peer, over, &whats, plan, stop, &mut self.figures);
            self.keep(done);
        }
    }

    /// What failed is told once, and the rest goes on.
    fn keep(&mut self, done: Result<()>) {
        if let Err(error) = done
            && !self.missing.contains(&error.message)
        {
            self.missing.push(error.message);
        }
    }
}
