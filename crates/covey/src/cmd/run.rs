//! `covey run`: one program on many nodes.

use super::Context;
use super::job::follow::{self, Following, Rank};
use super::job::mpi::{Starters, Variables};
use super::job::pick;
use super::job::print::Form;
use super::job::program::{Program, same_here};
use super::job::stdin::Whom;
use super::job::terminal::{self, Raw};
use super::job::tree::{NodeTree, OnNode, Session};
use crate::config::{Config, random_hex};
use crate::error::{Cannot, Error, Result};
use covey_launch::job::{End, Ends, Part, Placement, is_name};
use covey_ninep::control::quote;
use covey_ninep::tree::Errno;
use covey_wire::Bytes;
use futures_util::future::{join_all, try_join_all};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Run a program on nodes of the cluster, as many ranks
///
/// The program is copied to the nodes and started there as you, each rank in a directory of its own
/// that is gone afterwards. Its output comes line by line; your input goes to rank 0. MPI programs
/// of MPICH and Open MPI find each other: no mpiexec is needed.
///
/// Without -w and --all it runs on the nodes that Slurm has allocated, else on the node of this
/// machine.
///
/// ^C asks the ranks to end, a second one kills them. When this command dies, so do they, unless
/// they are detached.
///
/// EXAMPLES
///
///     covey run -w node[1-4] uptime
///     covey run --all --gather --local uname -r
///     covey run --all --ppn 2 ./a.out input.dat
///     covey run -w node3 --tty --local bash
///     covey run -n 8 --all --detach --local /usr/local/bin/worker; covey ps
///
/// EXIT CODES
///
/// That of the ranks which is largest, where 128 and the number stand for a signal, and 254 for a
/// rank that was lost. The code of the rank that called MPI_Abort. 1 or 2 where nothing was
/// started.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// How many ranks [default: one for each node, or as many as --ppn says]
    #[arg(short = 'n', long, value_name = "RANKS")]
    ranks: Option<u32>,
    /// On these nodes, such as node[1-4,7]
    #[arg(short = 'w', long, value_name = "NODES", conflicts_with = "all")]
    nodes: Option<String>,
    /// On every node of the cluster
    #[arg(long)]
    all: bool,
    /// At most K ranks on a node
    #[arg(long, value_name = "K")]
    ppn: Option<u32>,
    /// Set a variable of the program's environment; without a value, pass on the one that is set here
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Start in DIR of each node [default: an empty directory; with --local the current one]
    #[arg(short = 'C', long, value_name = "DIR")]
    cwd: Option<String>,
    /// Begin each line with the node, and the rank where a node has several
    #[arg(short, long, conflicts_with = "gather")]
    label: bool,
    /// When all have ended, show equal output once
    #[arg(short, long)]
    gather: bool,
    /// Who gets the input: a rank, all or none
    #[arg(long, value_name = "WHOM", default_value = "0")]
    stdin: Whom,
    /// Lend this terminal to the program, which must be one rank
    #[arg(short, long, conflicts_with_all = ["label", "gather", "detach"])]
    tty: bool,
    /// Say on stderr how long each step took
    #[arg(long)]
    time: bool,
    /// Start, print the job's name, and leave it running
    #[arg(short, long)]
    detach: bool,
    /// Run a program that is on the nodes already
    #[arg(long)]
    local: bool,
    /// Take the program's shared libraries along
    #[arg(long, conflicts_with = "local")]
    libs: bool,
    /// Whether MPI is served: auto looks whether the program needs it
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    mpi: When,
    /// The job's name [default: one that is free]
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// The program
    #[arg(value_name = "PROG")]
    program: String,
    /// Its arguments
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum When {
    Auto,
    On,
    Off,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let begun = Instant::now();
    let config = context.config()?;
    let plan = Plan::new(args, &config)?;
    let mut times = vec![("look", begun.elapsed())];
    let mut step = Step(Instant::now());
    let nodes = reach(&plan, &config, context).await?;
    times.push(("reach", step.next()));
    let (starters, variables) = starters(&plan, &nodes).await?;
    let ranks = prepare(&plan, &nodes, context).await?;
    times.push(("copy", step.next()));
    start(&plan, &ranks, &variables).await?;
    times.push(("start", step.next()));
    if plan.args.detach {
        return detached(&plan, &ranks, context).await;
    }
    let ends = follow_all(&plan, ranks, starters, context).await?;
    times.push(("run", step.next()));
    if plan.args.time {
        tell_times(&times, begun.elapsed(), context);
    }
    follow::tell_ends(&ends, |rank| plan.label(rank), context);
    follow::verdict(&ends)
}

/// What the arguments come to.
struct Plan {
    args: Args,
    placement: Placement,
    job: String,
    /// What is copied; None runs a path of the nodes.
    program: Option<Program>,
    libraries: Vec<Library>,
    has_mpi: bool,
    /// Without PMIx each of its ranks would be a job of its own.
    needs_pmix: bool,
}

/// A shared library that goes along.
struct Library {
    name: String,
    bytes: Bytes,
}

impl Plan {
    fn new(args: Args, config: &Config) -> Result<Plan> {
        let names = pick::nodes(config, args.nodes.as_deref(), args.all)?;
        let placement = Placement::new(&names, args.ranks, args.ppn).map_err(|error| {
            Error::user(format!("cannot place the ranks: {error}"))
                .hint("-n says how many ranks, --ppn how many a node may have, -w which nodes")
        })?;
        let job = match &args.job {
            Some(job) if is_name(job) => job.clone(),
            Some(job) => {
                return Err(Error::user(format!("cannot call a job `{job}`"))
                    .hint("up to 64 letters, digits, `-`, `_` and `.`"));
            }
            None => random_hex(4)?,
        };
        if args.tty && (placement.ranks() != 1 || !Raw::is_possible()) {
            return Err(Error::user("cannot lend the terminal: there must be one, and one rank")
                .hint("-n 1 -w NODE runs one rank; --stdin sends a file or a pipe"));
        }
        if let Whom::Rank(rank) = args.stdin
            && rank >= placement.ranks()
        {
            let ranks = placement.ranks();
            return Err(Error::user(format!(
                "cannot send the input to rank {rank}: there are {ranks}"
            ))
            .hint("--stdin all, none, or a rank that there is"));
        }
        let program = if args.local { None } else { Some(Program::find(&args.program)?) };
        let has_mpi = match (args.mpi, &program) {
            (When::On, _) => true,
            (When::Off, _) => false,
            (When::Auto, Some(program)) => program.speaks_mpi(),
            (When::Auto, None) => {
                same_here(&args.program).is_some_and(|program| program.speaks_mpi())
            }
        };
        let needs_pmix = match &program {
            Some(program) => program.needs_pmix(),
            None => same_here(&args.program).is_none_or(|program| program.needs_pmix()),
        };
        if has_mpi && args.detach {
            return Err(Error::user(
                "cannot detach an MPI program: this command carries what its ranks tell each other",
            )
            .hint("nohup covey run ... & leaves the command running, too")
            .hint("--mpi off starts the program without MPI's server"));
        }
        let libraries = match (&program, args.libs) {
            (Some(program), true) => libraries(program)?,
            _ => Vec::new(),
        };
        Ok(Plan { args, placement, job, program, libraries, has_mpi, needs_pmix })
    }

    /// What a rank is called before its lines.
    fn label(&self, rank: u32) -> String {
        let node = &self.placement.nodes()[self.placement.node_of(rank)];
        match self.placement.shares_nodes() {
            true => format!("{node}/{rank}"),
            false => node.clone(),
        }
    }

    fn form(&self) -> Form {
        match (self.args.gather, self.args.label, self.placement.ranks()) {
            (true, ..) => Form::Gathered,
            (_, true, _) => Form::Labelled,
            (.., 1) => Form::Raw,
            _ => Form::Lines,
        }
    }

    fn argv(&self) -> Bytes {
        let words = std::iter::once(&self.args.program).chain(&self.args.args);
        let words: Vec<String> = words.map(|word| quote(word)).collect();
        words.join(" ").into()
    }

    /// The environment of a rank: some of ours, what names the rank, what MPI needs, what the user wants.
    fn env(&self, rank: u32, variables: Option<&Variables>) -> Bytes {
        let node = self.placement.node_of(rank);
        let local = self.placement.local_rank(rank);
        let mut all: Vec<String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| is_passed_on(name))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        all.push(format!("COVEY_JOB={}", self.job));
        all.push(format!("COVEY_NODE={}", self.placement.nodes()[node]));
        all.push(format!("COVEY_RANK={rank}"));
        all.push(format!("COVEY_SIZE={}", self.placement.ranks()));
        all.push(format!("COVEY_LOCAL_RANK={local}"));
        if let Some(variables) = variables {
            all.extend(variables.of(local).cloned());
        }
        for word in &self.args.env {
            match (word.contains('='), std::env::var(word)) {
                (true, _) => all.push(word.clone()),
                (false, Ok(value)) => all.push(format!("{word}={value}")),
                (false, Err(_)) => {}
            }
        }
        // The last of a name holds.
        let mut last: HashMap<&str, &str> = HashMap::new();
        let order: Vec<&str> = all
            .iter()
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| {
                last.insert(name, value);
                name
            })
            .collect();
        let lines = order
            .into_iter()
            .filter_map(|name| Some(quote(&format!("{name}={}", last.remove(name)?))));
        lines.collect::<Vec<_>>().join("\n").into()
    }
}

/// Whether a variable of this command is one that programs expect to find: paths, language, terminal, and the settings of
/// threads, MPI libraries and networks.
fn is_passed_on(name: &str) -> bool {
    const NAMES: [&str; 9] =
        ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TZ", "LD_LIBRARY_PATH"];
    const PREFIXES: [&str; 12] = [
        "LC_",
        "OMP_",
        "OMPI_",
        "OPAL_",
        "PMIX_MCA_",
        "PRTE_MCA_",
        "MPICH_",
        "MPIR_",
        "UCX_",
        "FI_",
        "I_MPI_",
        "COVEY_UZURA_",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The libraries that the loader finds for a program here, but the system's own.
fn libraries(program: &Program) -> Result<Vec<Library>> {
    let shown = program.path.display();
    let what = || format!("ask for the libraries of {shown}");
    let said = std::process::Command::new("ldd").arg(&program.path).output().cannot(what)?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let mut found = Vec::new();
    for (name, path) in said.lines().filter_map(library) {
        let bytes = std::fs::read(path).cannot(|| format!("read {path}"))?;
        found.push(Library { name: name.to_owned(), bytes: bytes.into() });
    }
    Ok(found)
}

/// A line of ldd: `libx.so.1 => /path (0x...)`. libc and what belongs to it fits the node's loader only.
fn library(line: &str) -> Option<(&str, &str)> {
    const SYSTEM: [&str; 7] =
        ["libc.", "libm.", "libpthread.", "libdl.", "librt.", "ld-linux", "libresolv."];
    let (name, rest) = line.trim().split_once(" => ")?;
    let path = rest.split(" (").next()?.trim();
    let is_ours = !SYSTEM.iter().any(|system| name.starts_with(system)) && !name.contains('/');
    (is_ours && path.starts_with('/')).then_some((name, path))
}

/// The nodes that are reached. The ranks of the others are not started, which MPI's cannot do without.
async fn reach(
    plan: &Plan,
    config: &Config,
    context: &Context,
) -> Result<Vec<Option<Rc<NodeTree>>>> {
    let mut nodes = Vec::new();
    let mut last = None;
    for found in pick::reach_each(config, plan.placement.nodes()).await {
        match found {
            Ok(tree) => nodes.push(Some(tree)),
            Err(error) if plan.has_mpi => return Err(error),
            Err(error) => {
                if let Some(before) = last.replace(error) {
                    context.output.tell(&before);
                }
                nodes.push(None);
            }
        }
    }
    match last {
        Some(error) if nodes.iter().all(Option::is_none) => return Err(error),
        Some(error) => context.output.tell(&error),
        None => {}
    }
    Ok(nodes)
}

async fn starters(
    plan: &Plan,
    nodes: &[Option<Rc<NodeTree>>],
) -> Result<(Option<Starters>, Vec<Variables>)> {
    if !plan.has_mpi {
        return Ok((None, Vec::new()));
    }
    let trees: Vec<Rc<NodeTree>> = nodes.iter().flatten().cloned().collect();
    let (starters, variables) = Starters::start(&trees, &plan.placement, &plan.job).await?;
    Ok((Some(starters), variables))
}

/// A rank's session, or why there is none.
type Made = (u32, std::result::Result<Rc<Session>, String>);

/// Makes the sessions, and brings the program to them.
async fn prepare(
    plan: &Plan,
    nodes: &[Option<Rc<NodeTree>>],
    context: &Context,
) -> Result<Vec<Made>> {
    let made = (0..plan.placement.ranks()).map(|rank| {
        let node = plan.placement.node_of(rank);
        async move {
            let Some(tree) = &nodes[node] else {
                return (rank, Err("its node was not reached".to_owned()));
            };
            let made = tree.make().await;
            (rank, made.map(Rc::new).map_err(|error| error.to_string()))
        }
    });
    let made = join_all(made).await;
    if let (Some((rank, Err(why))), true) = (
        made.iter().find(|(_, made)| made.is_err()),
        plan.has_mpi || made.iter().all(|(_, made)| made.is_err()),
    ) {
        return Err(Error::work(format!("cannot start {}: {why}", plan.label(*rank)))
            .hint("`covey ps` shows what runs there"));
    }
    let Some(program) = &plan.program else { return Ok(made) };
    let sessions: Vec<Rc<Session>> =
        made.iter().filter_map(|(_, made)| made.as_ref().ok().cloned()).collect();
    let bytes = program.bytes.len()
        + plan.libraries.iter().map(|library| library.bytes.len()).sum::<usize>();
    let bar = context.output.progress(bytes as u64 * sessions.len() as u64);
    bar.set_message("copying");
    let copies = sessions.iter().map(|session| copy(session, program, &plan.libraries, &bar));
    let copied = try_join_all(copies).await;
    bar.finish_and_clear();
    copied.on_node(|| format!("copy {} to the nodes", program.path.display()))?;
    Ok(made)
}

async fn copy(
    session: &Session,
    program: &Program,
    libraries: &[Library],
    bar: &indicatif::ProgressBar,
) -> std::result::Result<(), Errno> {
    let exec = session.open("exec", O_WRONLY | O_TRUNC).await?;
    send(session, &exec, &program.bytes, bar).await?;
    exec.clunk().await.map_err(Errno::from)?;
    for library in libraries {
        let file = session.create(&format!("fs/{}", library.name), 0o755).await?;
        send(session, &file, &library.bytes, bar).await?;
        file.clunk().await.map_err(Errno::from)?;
    }
    Ok(())
}

async fn send(
    session: &Session,
    fid: &covey_ninep::client::Fid,
    bytes: &Bytes,
    bar: &indicatif::ProgressBar,
) -> std::result::Result<(), Errno> {
    for at in (0..bytes.len()).step_by(BLOCK_BYTES) {
        let piece = bytes.slice(at..bytes.len().min(at + BLOCK_BYTES));
        let count = piece.len() as u64;
        session.put(fid, at as u64, piece).await?;
        bar.inc(count);
    }
    Ok(())
}

/// Tells each session what to run, and starts it.
async fn start(plan: &Plan, ranks: &[Made], variables: &[Variables]) -> Result<()> {
    let started = ranks.iter().filter_map(|(rank, made)| Some((*rank, made.as_ref().ok()?)));
    let started = started.map(|(rank, session)| async move {
        let started =
            start_one(plan, rank, session, variables.get(plan.placement.node_of(rank))).await;
        started.on_node(|| format!("start {} on {}", plan.args.program, plan.label(rank)))
    });
    try_join_all(started).await.map(drop)
}

async fn start_one(
    plan: &Plan,
    rank: u32,
    session: &Session,
    variables: Option<&Variables>,
) -> std::result::Result<(), Errno> {
    let mut env = plan.env(rank, variables).to_vec();
    if !plan.libraries.is_empty() {
        env.extend(b"\nLD_LIBRARY_PATH=.");
    }
    session.write("argv", plan.argv()).await?;
    session.write("env", env.into()).await?;
    session.command(&["id", &Part::Rank(rank).id(&plan.job)]).await?;
    if let Some(dir) = plan.directory() {
        session.command(&["cwd", &dir]).await?;
    }
    if plan.args.tty {
        let [rows, columns] = terminal::size()?;
        session.command(&["tty", &rows, &columns]).await?;
    }
    match &plan.program {
        Some(_) => session.command(&["exec"]).await,
        None => session.command(&["exec", &plan.args.program]).await,
    }
}

impl Plan {
    /// Where the program starts, if not in its session's directory.
    fn directory(&self) -> Option<String> {
        let here = || Some(std::env::current_dir().ok()?.display().to_string());
        self.args.cwd.clone().or_else(|| if self.args.local { here() } else { None })
    }
}

/// Leaves the ranks running. Up to here they end with this command; if one cannot be left, all end.
async fn detached(plan: &Plan, ranks: &[Made], context: &Context) -> Result<()> {
    let sessions: Vec<_> = ranks.iter().filter_map(|(_, made)| made.as_ref().ok()).collect();
    join_all(sessions.iter().map(|session| super::job::stdin::close(session))).await;
    let left = sessions.iter().map(|session| session.command(&["type", "persistent"]));
    if let Err(error) = try_join_all(left).await {
        join_all(sessions.iter().map(|session| session.command(&["wipe"]))).await;
        return Err(error).on_node(|| format!("leave job {} running", plan.job));
    }
    let job = &plan.job;
    context.output.result(
        &serde_json::json!({ "job": job, "ranks": plan.placement.ranks() }),
        |out| {
            out.extend(format!("{job}\n").bytes());
            Ok(())
        },
    )
}

async fn follow_all(
    plan: &Plan,
    made: Vec<Made>,
    starters: Option<Starters>,
    context: &Context,
) -> Result<Ends> {
    let mut ends = Ends::new(plan.placement.ranks());
    let mut ranks = Vec::new();
    for (rank, made) in made {
        match made {
            Ok(session) => ranks.push(Rank { rank, label: plan.label(rank), session }),
            Err(why) => ends.note(rank, End::Unstarted(why)),
        }
    }
    let raw = if plan.args.tty { Some(Raw::begin().cannot(|| "use the terminal")?) } else { None };
    let following = Following {
        needs_pmix: plan.needs_pmix,
        ranks,
        ends,
        form: plan.form(),
        stdin: Some(plan.args.stdin),
        has_terminal: plan.args.tty,
        starters,
    };
    let ends = follow::follow(following, context).await;
    drop(raw);
    ends
}

/// Measures from one step to the next.
struct Step(Instant);

impl Step {
    fn next(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.0, now)
    }
}

fn tell_times(times: &[(&str, Duration)], all: Duration, context: &Context) {
    let steps: Vec<String> = times
        .iter()
        .map(|(step, time)| format!("{step} {}", crate::output::duration(*time)))
        .collect();
    let all = crate::output::duration(all);
    context.output.say(format!("covey: {}; all {all}", steps.join(", ")));
}

const BLOCK_BYTES: usize = 1 << 20;
const O_WRONLY: u32 = 1;
const O_TRUNC: u32 = 0o1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_a_program_go_along_but_the_systems_own() {
        let of = |line| library(line).map(|(name, _)| name);
        assert_eq!(
            of("\tlibmpich.so.12 => /lib/libmpich.so.12 (0x00007f)"),
            Some("libmpich.so.12")
        );
        for line in [
            "\tlinux-vdso.so.1 (0x00007ffc)",
            "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x0)",
            "\tlibgone.so => not found",
            "\t/lib64/ld-linux-x86-64.so.2 (0x00007f)",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn only_what_programs_expect_is_passed_on() {
        for name in ["PATH", "OMP_NUM_THREADS", "OMPI_MCA_btl", "LC_ALL"] {
            assert!(is_passed_on(name), "{name}");
        }
        for name in ["SSH_AUTH_SOCK", "PWD", "PMI_RANK", "PMIX_RANK", "SECRET"] {
            assert!(!is_passed_on(name), "{name}");
        }
    }
}
