//! `covey cell`: workers with a small local store that reach everything as files.

use super::Context;
use crate::config::{Config, find, load_found};
use crate::error::{Cannot, Error, Result};
use covey_cluster::net::{addresses, dial_node};
use covey_io::os::net::Address;
use covey_io::os::random;
use covey_ninep::client::{Conn, Fid};
use covey_ninep::message::Message;
use covey_ninep::tree::Errno;
use covey_serve::cell::{Host, Outcome, Wish, library, work};
use covey_wire::{Bytes, Name};
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::{AbortHandle, spawn_local};

/// How often a host looks whether its node still shows it.
const ANNOUNCED_AGAIN: Duration = Duration::from_secs(3);

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
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Run(Run),
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
    let node = if args.alone { None } else { node(&args, context).await? };
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
    let host = Host::new(wish, |text| {
        // A reader that has gone is no reason to end.
        let _ = std::io::stdout().write_all(text);
    });
    let host = host.cannot(|| "begin with workers")?;
    let _shown = match node {
        Some(conn) => Some(show(&host, conn, context).await?),
        None => None,
    };
    let outcomes = tokio::select! {
        outcomes = host.run() => outcomes.cannot(|| "run workers")?,
        () = told_to_end() => return Err(Error::work("cannot finish: interrupted")),
    };
    report(&outcomes, context)
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

fn report(outcomes: &[Outcome], context: &Context) -> Result<()> {
    let failed: Vec<&Outcome> = outcomes.iter().filter(|one| one.failure.is_some()).collect();
    if context.output.json {
        let failed = failed.iter().map(|outcome| outcome.worker).collect();
        let report = Report { kind: "cell-run", workers: outcomes.len(), failed };
        context.output.result(&report, |_| Ok(()))?;
    }
    let Some(first) = failed.first() else { return Ok(()) };
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

/// The node on this machine, or the one that was named. None where there is none.
async fn node(args: &Run, context: &Context) -> Result<Option<Conn>> {
    let is_asked = args.node.is_some() || context.config_file.is_some();
    let found = find(context.config_file.as_deref()).and_then(|found| load_found(&found));
    let config = match found {
        Ok(config) => config,
        Err(error) if is_asked => return Err(error),
        Err(_) => return Ok(None),
    };
    let name = match &args.node {
        Some(name) => config.node(name)?.name.clone(),
        None => match here(&config) {
            Some(name) => name,
            None => return Ok(None),
        },
    };
    match dial_node(&config, &name, "/", None).await {
        Ok(conn) => Ok(Some(conn)),
        Err(error) if args.node.is_none() => {
            context.output.say(format!("without a node: {name} does not answer ({error})"));
            Ok(None)
        }
        Err(error) => Err(Error::work(format!("cannot reach node {name}: {error}"))
            .hint("--alone runs workers without a node")),
    }
}

/// The node on this machine: of several the one whose job this is, or else the first.
fn here(config: &Config) -> Option<String> {
    let job = std::env::var("COVEY_NODE").ok();
    let is_job = |name: &&str| job.as_deref() == Some(*name);
    let mut all = config.nodes.iter().map(|node| &*node.name).filter(|name| is_here(config, name));
    let first = all.next()?;
    Some(std::iter::once(first).chain(all).find(is_job).unwrap_or(first).to_owned())
}

/// Whether the node has a socket on this machine.
fn is_here(config: &Config, name: &str) -> bool {
    addresses(config, name).is_ok_and(|all| {
        all.iter().any(|address| matches!(address, Address::Unix(path) if path.exists()))
    })
}

/// What keeps the devices in the node's tree.
struct Shown {
    directory: PathBuf,
    again: AbortHandle,
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.again.abort();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Shows the devices below /cell of the node, and the node's namespace to the workers.
async fn show(host: &Host, conn: Conn, context: &Context) -> Result<Shown> {
    host.bind_node(conn.clone()).cannot(|| "show the node to the workers")?;
    let directory = private_directory()?;
    let socket = directory.join("host");
    let again = spawn_local(stay_announced(conn.clone(), socket.clone())).abort_handle();
    let shown = Shown { directory, again };
    host.serve_at(&socket).await.cannot(|| format!("listen at {}", socket.display()))?;
    if let Err(error) = announce(&conn, &socket).await {
        context.output.say(format!("not shown below /cell of the node: {error}"));
    }
    Ok(shown)
}

/// A node forgets a host that was silent for some seconds, as one that was stopped: it is told again.
async fn stay_announced(conn: Conn, socket: PathBuf) {
    while !conn.is_lost() {
        tokio::time::sleep(ANNOUNCED_AGAIN).await;
        if let Ok(false) = is_announced(&conn, &socket).await
            && let Err(error) = announce(&conn, &socket).await
        {
            tracing::debug!("not shown below /cell of the node: {error}");
        }
    }
}

async fn is_announced(conn: &Conn, socket: &Path) -> covey_ninep::tree::Result<bool> {
    let control = control(conn, 0).await?;
    let (mut text, mut offset) = (Vec::new(), 0);
    loop {
        let (fid, count) = (control.number(), 8192);
        let Message::Rread { data } = conn.call(Message::Tread { fid, offset, count }).await?
        else {
            return Err(Errno::EPROTO.into());
        };
        let data = data.into_bytes();
        if data.is_empty() {
            break;
        }
        offset += data.len() as u64;
        text.extend_from_slice(&data);
    }
    let line = format!("host {}", socket.display());
    Ok(text.split(|byte| *byte == b'\n').any(|other| other == line.as_bytes()))
}

/// The node's control file of hosts.
async fn control(conn: &Conn, flags: u32) -> covey_ninep::tree::Result<Fid> {
    let fid = Fid::walk(conn, 0, &["cell", "ctl"].map(Name::from)).await?;
    conn.call(Message::Tlopen { fid: fid.number(), flags }).await?;
    Ok(fid)
}

fn private_directory() -> Result<PathBuf> {
    let word = random::bytes::<8>().cannot(|| "make a random name")?;
    let name = word.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let directory = std::env::temp_dir().join(format!("covey-cell-{name}"));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
    made.cannot(|| format!("make directory {}", directory.display()))?;
    Ok(directory)
}

async fn announce(conn: &Conn, socket: &Path) -> covey_ninep::tree::Result<()> {
    let fid = control(conn, 1).await?;
    let line = Bytes::from(format!("host '{}'\n", socket.display()));
    conn.call(Message::Twrite { fid: fid.number(), offset: 0, data: line.into() }).await?;
    Ok(())
}
