//! `covey run`: one program on many nodes.

use super::Context;
use super::job::find;
use super::job::follow::{self, Following, Rank};
use super::job::mpi::{Starters, Variables, send_over_covey};
use super::job::pick;
use super::job::spread::spread;
use super::job::stdin::Whom;
use super::job::terminal::{self, Raw};
use super::job::tree::{NodeTree, OnNode, Session};
use super::mpi::tuned_limit;
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use covey_cluster::tuned;
use covey_launch::job::{End, Ends, Part};
use covey_ninep::tree::Errno;
use futures_util::future::{join_all, try_join_all};
use plan::Plan;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use variants::Variants;

mod behind;
mod plan;
mod slurm;
mod variants;

/// Run a program on nodes of the cluster, as many ranks
///
/// The program is copied to the nodes, which pass it on among themselves while it arrives, and
/// started there as you, each rank in a directory of its own that is gone afterwards. Its output comes line by line; your input goes to rank 0. MPI programs
/// of MPICH and Open MPI find each other: no mpiexec is needed.
///
/// Without -w and --all it runs on the nodes that Slurm has allocated, else on the node of this
/// machine. Where there is no covey.toml, srun starts a daemon on each of Slurm's nodes, which ends
/// with this command.
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
///     covey run --all ./work.{arch}             # work.x86_64 here, work.s390x there
///     covey run --all --exec bin/work ./tree    # all of ./tree is copied
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
    /// PROG is a directory: copy all of it, and run the program NAME in it
    #[arg(long, value_name = "NAME", conflicts_with = "local")]
    exec: Option<String>,
    /// Look for PROG below DIR/ARCH, where ARCH is that of the node, such as x86_64
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Take the program's shared libraries along
    #[arg(long, conflicts_with = "local")]
    libs: bool,
    /// Whether MPI is served: auto looks whether the program needs it
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    mpi: When,
    /// What MPI sends over: `own` is what the library chooses, `covey` the message engine, by libfabric
    #[arg(long, value_name = "FABRIC", default_value = "own")]
    fabric: Fabric,
    /// To how many others a node passes on what is copied [default: that of tune.toml, else 2]
    #[arg(long, value_name = "N", value_parser = fan_out)]
    fan_out: Option<usize>,
    /// The job's name [default: one that is free]
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// The program, and its arguments; {arch} in its name stands for each node's architecture
    // One list: what follows the program is never an option of ours.
    #[arg(value_name = "PROG", required = true, num_args = 1.., trailing_var_arg = true)]
    words: Vec<String>,
}

impl Args {
    fn program(&self) -> &str {
        &self.words[0]
    }
}

/// What the messages of MPI travel over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Fabric {
    Own,
    Covey,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum When {
    Auto,
    On,
    Off,
}

impl When {
    /// What was said, or what was found.
    fn or(self, found: bool) -> bool {
        match self {
            When::On => true,
            When::Off => false,
            When::Auto => found,
        }
    }
}

/// A fan-out that was typed.
pub(super) fn fan_out(text: &str) -> std::result::Result<usize, String> {
    let most = tuned::FAN_OUT_MAX;
    let number: std::result::Result<u64, _> = text.parse();
    match number {
        Ok(number) if (1..=most).contains(&number) => Ok(number as usize),
        _ => Err(format!("a number from 1 to {most} is wanted")),
    }
}

/// To how many others a node passes on what is copied.
pub(super) fn fan_out_of(asked: Option<usize>, config: &Config, context: &Context) -> usize {
    let tuned = || {
        tuned::TuneFile::load(&tuned::place(config)).unwrap_or_else(|error| {
            context.output.say(format!("warning: {}: the default fan-out holds", error.message));
            None
        })
    };
    asked.unwrap_or_else(|| tuned::fan_out(tuned().as_ref()))
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let begun = Instant::now();
    let daemons = match slurm::allocated(context.config_file.as_deref()) {
        Some(list) if args.nodes.is_none() && !args.all => {
            Some(slurm::Daemons::start(&list, args.detach).await?)
        }
        _ => None,
    };
    let config = match &daemons {
        Some(daemons) => daemons.config.clone(),
        None => context.config()?,
    };
    let plan = Plan::new(args, &config)?;
    let fan_out = fan_out_of(plan.args.fan_out, &config, context);
    let early = if variants::depends_on_arch(&plan.args) {
        None
    } else {
        Some(Variants::same(&plan.args, plan.placement.nodes().len())?)
    };
    let mut times = vec![("look", begun.elapsed())];
    let mut step = Step(Instant::now());
    let (nodes, last) = reach(&plan, &config, context).await?;
    // A job that goes on behind has looked before it went there.
    if plan.args.job.is_some() && !behind::is_here() {
        find::check_free(&config, &plan.job).await?;
    }
    let variants = match early {
        Some(variants) => variants,
        None => Variants::by_arch(&plan.args, &nodes).await?,
    };
    check_mpi(&variants, last)?;
    if plan.args.detach && variants.has_mpi() && !behind::is_here() {
        return behind::start();
    }
    times.push(("reach", step.next()));
    let (starters, variables) = starters(&plan, &variants, &nodes, &config).await?;
    let ranks = prepare(&plan, &variants, &nodes).await?;
    let ranks = bring(&plan, &variants, ranks, fan_out, context).await?;
    times.push(("copy", step.next()));
    start(&plan, &variants, &ranks, &variables).await?;
    times.push(("start", step.next()));
    let needs_pmix = variants.needs_pmix();
    if plan.args.detach {
        detached(&plan, &ranks, context).await?;
        if starters.is_none() {
            return Ok(());
        }
        behind::leave_terminal()?;
        return follow_all(&plan, ranks, (starters, needs_pmix), context).await.map(drop);
    }
    let ends = follow_all(&plan, ranks, (starters, needs_pmix), context).await?;
    times.push(("run", step.next()));
    if plan.args.time {
        tell_times(&times, begun.elapsed(), context);
    }
    follow::tell_ends(&ends, |rank| plan.label(rank), context);
    follow::verdict(&ends)
}

/// The nodes that are reached, and why the last of the others is not. The ranks of those are not started.
async fn reach(
    plan: &Plan,
    config: &Config,
    context: &Context,
) -> Result<(Vec<Option<Rc<NodeTree>>>, Option<Error>)> {
    let mut nodes = Vec::new();
    let mut last = None;
    for found in pick::reach_each(config, plan.placement.nodes()).await {
        match found {
            Ok(tree) => nodes.push(Some(tree)),
            Err(error) => {
                if let Some(before) = last.replace(error) {
                    context.output.tell(&before);
                }
                nodes.push(None);
            }
        }
    }
    match last {
        Some(error) if nodes.iter().all(Option::is_none) => Err(error),
        Some(error) => {
            context.output.tell(&error);
            Ok((nodes, Some(error)))
        }
        None => Ok((nodes, None)),
    }
}

/// MPI's ranks cannot do without each other.
fn check_mpi(variants: &Variants, unreached: Option<Error>) -> Result<()> {
    match (variants.has_mpi(), unreached) {
        (false, _) => Ok(()),
        (true, Some(_)) => Err(Error::work("cannot start an MPI program: a node is missing")
            .hint("-w names the nodes to run on")),
        (true, None) => Ok(()),
    }
}

async fn starters(
    plan: &Plan,
    variants: &Variants,
    nodes: &[Option<Rc<NodeTree>>],
    config: &Config,
) -> Result<(Option<Starters>, Vec<Variables>)> {
    let is_over_covey = plan.args.fabric == Fabric::Covey;
    match (variants.has_mpi(), is_over_covey) {
        (true, _) => {}
        (false, false) => return Ok((None, Vec::new())),
        (false, true) => {
            let name = plan.args.program();
            return Err(Error::user(format!("--fabric covey: {name} is no MPI program"))
                .hint("--mpi on says that it starts one"));
        }
    }
    let trees: Vec<Rc<NodeTree>> = nodes.iter().flatten().cloned().collect();
    let (starters, mut variables) = Starters::start(&trees, &plan.placement, &plan.job).await?;
    if is_over_covey {
        send_over_covey(&mut variables, plan.placement.nodes(), tuned_limit(config)?)?;
    }
    Ok((Some(starters), variables))
}

/// A rank's session, or why there is none.
type Made = (u32, std::result::Result<Rc<Session>, String>);

/// Makes the sessions.
async fn prepare(
    plan: &Plan,
    variants: &Variants,
    nodes: &[Option<Rc<NodeTree>>],
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
    check_made(plan, variants, &made)?;
    Ok(made)
}

/// Some must be there, and all where they are ranks of MPI.
fn check_made(plan: &Plan, variants: &Variants, made: &[Made]) -> Result<()> {
    let failed = made.iter().find_map(|(rank, made)| Some((*rank, made.as_ref().err()?)));
    let is_none_left = made.iter().all(|(_, made)| made.is_err());
    match failed {
        Some((rank, why)) if variants.has_mpi() || is_none_left => {
            Err(Error::work(format!("cannot start {}: {why}", plan.label(rank)))
                .hint("`covey ps` shows what runs there"))
        }
        _ => Ok(()),
    }
}

/// Brings each session its program. One that got none is not started; its node is told of.
async fn bring(
    plan: &Plan,
    variants: &Variants,
    mut made: Vec<Made>,
    fan_out: usize,
    context: &Context,
) -> Result<Vec<Made>> {
    for (number, variant) in variants.each() {
        let Some(source) = &variant.source else { continue };
        let mut places = Vec::new();
        let mut sessions = Vec::new();
        for (at, (rank, one)) in made.iter().enumerate() {
            if let (Ok(session), true) =
                (one, variants.is_of(number, plan.placement.node_of(*rank)))
            {
                places.push(at);
                sessions.push(session.clone());
            }
        }
        let bar = context.output.progress(Some(variant.bytes));
        bar.set_message("copying");
        let failed = spread(source, &sessions, fan_out, &bar).await;
        bar.finish_and_clear();
        for (at, why) in failed {
            let shown = &variant.shown;
            made[places[at]].1 = Err(format!("{shown} was not copied: {why}"));
        }
    }
    check_made(plan, variants, &made)?;
    Ok(made)
}

/// Tells each session what to run, and starts it.
async fn start(
    plan: &Plan,
    variants: &Variants,
    ranks: &[Made],
    variables: &[Variables],
) -> Result<()> {
    let started = ranks.iter().filter_map(|(rank, made)| {
        let variant = variants.of(plan.placement.node_of(*rank))?;
        Some((*rank, made.as_ref().ok()?, variant))
    });
    let started = started.map(|(rank, session, variant)| async move {
        let variables = variables.get(plan.placement.node_of(rank));
        let started = start_one(plan, rank, session, variables, &variant.start).await;
        started.on_node(|| format!("start {} on {}", plan.args.program(), plan.label(rank)))
    });
    try_join_all(started).await.map(drop)
}

async fn start_one(
    plan: &Plan,
    rank: u32,
    session: &Session,
    variables: Option<&Variables>,
    command: &[String],
) -> std::result::Result<(), Errno> {
    session.write("argv", plan.argv()).await?;
    session.write("env", plan.env(rank, variables)).await?;
    session.command(&["id", &Part::Rank(rank).id(&plan.job)]).await?;
    if let Some(dir) = plan.directory() {
        session.command(&["cwd", &dir]).await?;
    }
    if plan.args.tty {
        let [rows, columns] = terminal::size()?;
        session.command(&["tty", &rows, &columns]).await?;
    }
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    session.command(&command).await
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
    (starters, needs_pmix): (Option<Starters>, bool),
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
        needs_pmix,
        outlive_us: false,
        ranks,
        ends,
        form: plan.form(),
        // Of a detached job both ends of the pipes are left to those who attach to it.
        stdin: (!plan.args.detach).then_some(plan.args.stdin),
        leaves_output: plan.args.detach,
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
