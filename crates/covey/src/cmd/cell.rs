//! `covey cell`: workers with a small local store that reach everything as files.

mod node;
mod shown;

use super::Context;
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::Errno;
use covey_serve::cell::{Ending, Host, Outcome, Wish, library, work};
use node::{Node, node};
use serde::Serialize;
use shown::show;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;

/// Workers with a small local store that reach everything as files
///
/// A worker's program is a shared object that is written against covey_cell.h and built with a plain
/// compiler. Its coroutines read and write regions of memory (#r), files of this machine (#U, #R),
/// pipes (#p), the log (#l), and every path of the node's namespace. `docs/manual/cell.md` shows how.
///
/// EXAMPLES
///
///     cc -O2 -shared -fPIC -o sum.so sum.c
///     covey cell run -s 4 sum.so /tmp/numbers
///     covey cell end
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Run(Run),
    End(End),
    #[command(hide = true)]
    Work(Work),
}

/// Run a program on workers, and wait for its end
///
/// Each worker calls `cormain` of the program, and ends when its coroutines have ended. What workers
/// write to the log appears on stdout. A worker that fails ends alone; the others get an error where
/// they depend on it. While the program runs, its regions and pipes are below /cell of the node, and
/// other paths of the node's namespace open from it.
///
/// Exit code 0 when all workers have ended well, 1 when one has not.
///
/// EXAMPLES
///
///     covey cell run -s 8 --pin matmul.so 1024
///     covey cell run --trace /tmp/trace prog.so && covey cell run --replay /tmp/trace prog.so
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
struct Run {
    /// Workers
    #[arg(short = 's', long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Run workers as threads of one process: a crash of one ends all
    #[arg(long)]
    threads: bool,
    /// Bind each worker to a CPU
    #[arg(long)]
    pin: bool,
    /// Bytes of each worker's local store: the program's segments, its stacks and what it allocates
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 10)]
    store: u64,
    /// Most bytes of memory files (#r, #R), in MiB; what is not used takes none
    #[arg(long, value_name = "MIB", default_value_t = 16 << 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memory: u64,
    /// Make memory files of 2 MiB and more of huge pages, which are taken as soon as a file grows
    #[arg(long)]
    huge: bool,
    /// Record what each worker does in FILE.N, N being its number
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Do again what FILE.N recorded, and stop where it differs
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// The node whose namespace the workers see [default: the one on this machine]
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Without any node: devices only
    #[arg(long, conflicts_with = "node")]
    alone: bool,
    /// The program, and its arguments
    // One list: what follows the program is never an option of ours.
    #[arg(value_name = "PROG", required = true, num_args = 1.., trailing_var_arg = true)]
    words: Vec<OsString>,
}

/// End programs on workers that a node shows, and wait until they are gone
///
/// Without HOST all of yours end. HOST is a host as /cell/ctl of the node lists it. Its workers are
/// killed, what they had open is closed, and who reads a pipe that one of them wrote gets an error;
/// `covey cell run` ends with exit code 1. Only a host's user and root may end it.
///
/// EXAMPLES
///
///     covey cell end
///     covey cell end --node io1 /tmp/covey-cell-6b1e0c1f5a3d2e47/host
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
struct End {
    /// The node that shows them [default: the one on this machine]
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// The host to end [default: all of yours]
    #[arg(value_name = "HOST")]
    host: Option<String>,
}

/// One worker, whose host is at stdin.
#[derive(clap::Args, Debug)]
struct Work {
    #[arg(long)]
    cpu: Option<usize>,
    #[arg(value_name = "PROG", required = true, num_args = 1.., trailing_var_arg = true)]
    words: Vec<OsString>,
}

/// The program, and its arguments.
fn parted(words: Vec<OsString>) -> (PathBuf, Vec<OsString>) {
    let mut words = words.into_iter();
    let program = words.next().expect("one is required");
    (program.into(), words.collect())
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    match args.command {
        Command::Run(args) => run_workers(args, context).await,
        Command::End(args) => end(args, context).await,
        Command::Work(args) => {
            let (program, words) = parted(args.words);
            let status = work(&program, words, args.cpu).cannot(|| "run a worker")?;
            // What was wrong has been said.
            std::process::exit(status)
        }
    }
}

async fn run_workers(args: Run, context: &Context) -> Result<()> {
    let (named, words) = parted(args.words.clone());
    let program = named.canonicalize();
    let program = program.cannot(|| format!("find program {}", named.display()))?;
    if library().is_none() {
        return Err(Error::work("cannot run workers: there is no libcovey-cell.so beside covey")
            .hint("COVEY_CELL_LIBRARY names it where it lies elsewhere"));
    }
    let node = if args.alone { None } else { node(args.node.as_deref(), context).await? };
    let wish = Wish {
        workers: args.workers,
        program,
        words,
        is_threads: args.threads,
        is_pinned: args.pin,
        store_bytes: args.store,
        heap_bytes: args.memory << 20,
        is_huge: args.huge,
        trace: args.trace.map(absolute).transpose()?,
        replay: args.replay.map(absolute).transpose()?,
    };
    // Not by way of its lock, which who writes here may hold for long.
    let stdout = std::io::stdout().as_fd().try_clone_to_owned();
    let mut stdout = File::from(stdout.cannot(|| "write to stdout")?);
    let host = Host::new(wish, move |text| {
        // A reader that has gone is no reason to end.
        let _ = stdout.write_all(text);
    });
    let host = host.cannot(|| "begin with workers")?;
    let _shown = match node {
        Some(node) => Some(show(&host, node, context).await?),
        None => None,
    };
    let ending = host.ending();
    let mut run = std::pin::pin!(host.run());
    let outcomes = tokio::select! {
        outcomes = &mut run => outcomes,
        () = told_to_end() => {
            ending.end("interrupted");
            // Who is told once more waits for nothing.
            tokio::select! {
                outcomes = &mut run => outcomes,
                () = told_to_end() => return Err(unfinished(&ending)),
            }
        }
    };
    report(&outcomes.cannot(|| "run workers")?, &ending, context)
}

fn unfinished(ending: &Ending) -> Error {
    Error::work(format!("cannot finish: {}", ending.why().unwrap_or("interrupted")))
}

async fn end(args: End, context: &Context) -> Result<()> {
    let node = node(args.node.as_deref(), context).await?;
    let node = node.ok_or_else(|| Error::work("cannot end workers: no node is on this machine"))?;
    let what = || match &args.host {
        Some(host) => format!("end the host at {host}"),
        None => "end your workers".to_owned(),
    };
    let line = args.host.as_ref().map_or("end\n".into(), |host| format!("end '{host}'\n"));
    let ended = node.command(line).await;
    if ended.as_ref().is_err_and(|error| error.code == Errno::ENOENT) {
        let why = format!("cannot {}: the node shows no such program", what());
        return Err(Error::work(why).hint("/cell/ctl of the node lists those that it shows"));
    }
    ended.cannot(what)
}

/// By a terminal, its end, or whoever kills.
async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let signals = kinds.into_iter().filter_map(|kind| signal(kind).ok());
    let waits = signals.map(|mut signal| Box::pin(async move { signal.recv().await }));
    futures_util::future::select_all(waits).await;
}

#[derive(Serialize)]
struct Report {
    kind: &'static str,
    workers: usize,
    failed: Vec<u32>,
}

fn report(outcomes: &[Outcome], ending: &Ending, context: &Context) -> Result<()> {
    let failed: Vec<&Outcome> = outcomes.iter().filter(|one| one.failure.is_some()).collect();
    if context.output.json {
        let failed = failed.iter().map(|outcome| outcome.worker).collect();
        let report = Report { kind: "cell-run", workers: outcomes.len(), failed };
        context.output.result(&report, |_| Ok(()))?;
    }
    let Some(first) = failed.first() else { return Ok(()) };
    if ending.why().is_some() {
        return Err(unfinished(ending));
    }
    let why = first.failure.as_deref().unwrap_or_default();
    let others = match failed.len() {
        1 => String::new(),
        count => format!(", and {} more failed", count - 1),
    };
    Err(Error::work(format!("cannot finish: worker {} ended with {why}{others}", first.worker)))
}

fn absolute(path: PathBuf) -> Result<PathBuf> {
    std::path::absolute(&path).cannot(|| format!("find {}", path.display()))
}
