//! `covey up`: the embedded cluster of this machine, started.

use super::cluster::{Cluster, Daemon, Made, Process, Shape, make, mounts, spawn};
use super::job_fs::{self, args::Shared};
use super::{Context, mount};
use crate::config::{Config, Node, Role, parse_strip};
use crate::error::{Cannot, Error, Kind, Result};
use covey_cluster::reach::StoreWord;
use covey_lab::enter;
use covey_lab::state::Lab;
use covey_stripe::client::REDIAL_MAX;
use covey_stripe::ops::Consistency;
use rustix::process::Signal;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a server may take until it answers.
const START_WAIT: Duration = Duration::from_secs(20);
/// How long the metadata server may take to meet all I/O servers.
const MEET_WAIT: Duration = Duration::from_secs(2);

/// Start a cluster on this machine
///
/// The first time, it makes a cluster: one metadata server and a few I/O servers, each a separate
/// process that listens at a unix socket. No root is needed. Later, it starts the same cluster
/// again with all its data: running servers are left alone, dead ones are started.
///
/// EXAMPLES
///
///     covey up                        4 I/O servers in the default directory
///     covey up -n 8 --dir /scratch/c  another cluster elsewhere
///     covey up --mount ~/covey        with a mount; `covey mount` adds one later
///     covey up --tcp 5640             reachable by other 9P clients of this machine as well
///     covey lab exec n1 -- covey up   one server on each node of a lab
///
/// On a node of a lab (`covey lab`) it makes a cluster of the lab: each node is an I/O server, n1
/// the metadata server too. With -n fewer than the nodes, n1 is only the metadata server, the next
/// ones serve data, and the rest are clients. Servers listen on the storage network, where there is
/// one.
///
/// For several machines see `covey genconfig`.
///
/// JOBS
///
/// With --job it makes a file system of the nodes of a job, for as long as the job lasts. Run it
/// once on each node, by whatever starts programs there:
///
///     srun --overlap --ntasks-per-node=1 covey up --job --foreground --mount /tmp/fs &
///     covey up --job --stage-in input:/input      returns when all of it is up
///     srun ./work /tmp/fs
///     srun --overlap --ntasks-per-node=1 covey down --job --stage-out /output:output
///
///     pdsh -w node[1-4] covey up --job 7 --nodes node[1-4] --mount /tmp/fs
///
/// Each node is an I/O server in a directory of its own disk, covey-job-ID-UID-NODE in --dir
/// [default: $TMPDIR or /tmp]; the first has the metadata too. Servers run as you, and only you
/// and root reach them. Doing it twice is no error: what died is started again with its files.
/// Only `covey down --job` removes anything.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// I/O servers of a new cluster [default: 4]
    #[arg(short = 'n', value_name = "IO_SERVERS",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    io_servers: Option<u16>,
    /// Where the cluster lives [default: /var/lib/covey for root, else ~/.local/share/covey]; with
    /// --job where the job's directory is made
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Mount the file system there too; where that fails, the servers run on and the exit code is 1
    #[arg(long, value_name = "MNT")]
    mount: Option<PathBuf>,
    /// How soon changes are seen through the mount: strict, close-to-open or job-scratch, see
    /// `covey help consistency` [default: strict]
    #[arg(long, value_name = "MODE", requires = "mount", value_parser = super::consistency::parse)]
    consistency: Option<Consistency>,
    /// Listen on loopback TCP too: the metadata server at PORT, the I/O servers at the ports after
    /// it
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    tcp: Option<u16>,
    /// Strip size of new files, such as `64 KiB` [default: 64 KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_strip)]
    strip: Option<u32>,
    /// Stay in the foreground, and take the cluster down at SIGINT or SIGTERM
    #[arg(long)]
    foreground: bool,
    #[command(flatten)]
    job: job_fs::args::Up,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    if args.job.is_meant() {
        return run_job(args, context).await;
    }
    let dir = match &args.dir {
        Some(dir) => Some(dir.clone()),
        None => Cluster::named_by(context)?,
    };
    let cluster = Cluster::at(dir.as_deref())?;
    cluster.must_not_be_anothers()?;
    cluster.make_dirs()?;
    let lock = cluster.lock(&context.output).await?;
    let shape = Shape { io_servers: args.io_servers, tcp: args.tcp, strip_bytes: args.strip };
    let (config, started) = match make_and_start(&cluster, &shape, context).await {
        Ok(made) => made,
        Err(error) => {
            if !cluster.exists() {
                cluster.remove_empty_dirs();
            }
            return Err(error);
        }
    };
    let mounted = match &args.mount {
        Some(mountpoint) => {
            let wish = mount::Wish::in_mode(args.consistency.unwrap_or_default());
            mount_at(&config, mountpoint, &wish).await.map(Some)
        }
        None => Ok(None),
    };
    drop(lock);
    let at = mounted.as_ref().ok().and_then(Option::as_deref);
    tell(&cluster, &config, &started, at, context)?;
    // The cluster is of use without the mount, but a script that asked for one must not go on.
    let mounted = mounted.map(|_| ());
    if !args.foreground {
        return mounted;
    }
    if let Err(error) = mounted {
        context.output.tell(&error);
    }
    stay(&cluster, &config, context).await
}

async fn run_job(args: Args, context: &Context) -> Result<()> {
    let shared = Shared {
        dir: args.dir,
        mount: args.mount,
        consistency: args.consistency.unwrap_or_default(),
        strip_bytes: args.strip,
        foreground: args.foreground,
    };
    match args.job.wish(shared) {
        Some(wish) => job_fs::up::run(&wish, context).await,
        None => Ok(()),
    }
}

/// The cluster, and the names of the nodes that this call started.
async fn make_and_start(
    cluster: &Cluster,
    shape: &Shape,
    context: &Context,
) -> Result<(Config, Vec<String>)> {
    let Made { config, before } = make(cluster, shape, &context.output).await?;
    match start(cluster, &config).await {
        Ok(started) => Ok((config, started)),
        Err(mut error) => {
            before.restore(cluster)?;
            if !cluster.exists() {
                // The hints speak of a configuration that is gone again.
                error.hints.clear();
                error = error.hint("nothing was kept of it: the same command tries again");
            }
            Err(error)
        }
    }
}

/// Starts what does not run, all at once, then waits for each. What this call started and cannot be
/// used is ended again.
async fn start(cluster: &Cluster, config: &Config) -> Result<Vec<String>> {
    let mut daemons = Vec::new();
    let dead = config.nodes.iter().filter(|node| cluster.process(&node.name).is_none());
    let mut result = Ok(());
    for node in dead {
        match start_in_place(cluster, config, node) {
            Ok(daemon) => daemons.push((node, daemon)),
            Err(error) => result = Err(error),
        }
    }
    for node in &config.nodes {
        // The first that cannot start decides: a later one that can must not hide it.
        if result.is_err() {
            break;
        }
        if !daemons.iter().any(|(other, _)| other.name == node.name) {
            match wait_for_running(cluster, config, node).await {
                Ok(started) => daemons.extend(started.map(|daemon| (node, daemon))),
                Err(error) => result = Err(error),
            }
        }
        if let Some((_, daemon)) = daemons.iter_mut().find(|(other, _)| other.name == node.name) {
            result = wait_for(config, node, daemon).await;
        }
    }
    if result.is_err() {
        for (node, daemon) in &mut daemons {
            stop_again(cluster, node, daemon).await;
        }
    }
    if result.is_ok() && !daemons.is_empty() {
        until_met(config).await;
    }
    if result.is_ok() && !daemons.is_empty() && has_mounts(cluster) {
        // What was down is up when the mounts have seen it, too.
        tokio::time::sleep(2 * REDIAL_MAX).await;
    }
    result.map(|()| daemons.iter().map(|(node, _)| node.name.clone()).collect())
}

/// Waits until the metadata server has met the I/O servers, from when on they serve. One that it cannot meet is no failure:
/// `covey status` shows it.
async fn until_met(config: &Config) {
    let begin = Instant::now();
    for node in config.data() {
        while begin.elapsed() < MEET_WAIT {
            match covey_cluster::reach::ping(config, &node.name).await {
                Ok(report) if matches!(report.store, StoreWord::Unmet(_)) => {}
                _ => break,
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn has_mounts(cluster: &Cluster) -> bool {
    mounts::of(cluster).iter().any(|record| record.process.is_alive())
}

fn start_in_place(cluster: &Cluster, config: &Config, node: &Node) -> Result<Daemon> {
    let place = Lab::around().map(|lab| enter::find(&lab, &lab.plan()?, &node.name)).transpose()?;
    start_node(cluster, config, node, place)
}

/// Starts the server of a node, in a place of a lab or where this runs.
pub fn start_node(
    cluster: &Cluster,
    config: &Config,
    node: &Node,
    place: Option<enter::Way>,
) -> Result<Daemon> {
    let arguments: [OsString; 6] = [
        "--config".into(),
        config.file.clone().into(),
        "serve".into(),
        "--node".into(),
        node.name.clone().into(),
        "--detached".into(),
    ];
    let mut daemon = spawn(&arguments, &cluster.log_file(&node.name), place)?;
    let pid_file = cluster.pid_file(&node.name);
    if let Err(error) = daemon.process.write(&pid_file) {
        // Nobody could stop what is not written down.
        daemon.kill();
        let cannot = || format!("start node {}: cannot write {}", node.name, pid_file.display());
        return Err(error).cannot(cannot);
    }
    Ok(daemon)
}

/// Waits until a server that was started answers, or says why it ended.
pub async fn wait_for(config: &Config, node: &Node, daemon: &mut Daemon) -> Result<()> {
    let mut end = None;
    let has_ended = || {
        end = daemon.ended();
        end.is_some()
    };
    let why = match until_it_answers(config, node, has_ended).await {
        Waited::Answers => return Ok(()),
        Waited::Ended => end.unwrap_or_default(),
        Waited::Late(why) => why,
    };
    Err(did_not_start(node, &why, Some(daemon)))
}

/// Waits until a server that ran before answers. One that was killed just now was still there then: it is started again.
async fn wait_for_running(
    cluster: &Cluster,
    config: &Config,
    node: &Node,
) -> Result<Option<Daemon>> {
    match until_it_answers(config, node, || cluster.process(&node.name).is_none()).await {
        Waited::Answers => Ok(None),
        Waited::Ended => start_in_place(cluster, config, node).map(Some),
        Waited::Late(why) => Err(did_not_start(node, &why, None)),
    }
}

/// What became of a server.
enum Waited {
    Answers,
    Ended,
    /// Why it is of no use.
    Late(String),
}

async fn until_it_answers(
    config: &Config,
    node: &Node,
    mut has_ended: impl FnMut() -> bool,
) -> Waited {
    let begin = Instant::now();
    loop {
        let ping = covey_cluster::reach::ping(config, &node.name);
        let why = match tokio::time::timeout(Duration::from_secs(3), ping).await {
            Ok(Ok(_)) => return Waited::Answers,
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "no answer within 3 s".to_string(),
        };
        if has_ended() {
            return Waited::Ended;
        }
        if begin.elapsed() > START_WAIT {
            let seconds = START_WAIT.as_secs();
            return Waited::Late(format!("it does not answer after {seconds} s ({why})"));
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

fn did_not_start(node: &Node, why: &str, daemon: Option<&Daemon>) -> Error {
    let mut message = format!("cannot start node {}: {why}", node.name);
    let tail = daemon.map(Daemon::tail).unwrap_or_default();
    if !tail.is_empty() {
        message.push_str(&format!("; the end of its log:\n{}", indented(&tail)));
    }
    Error::work(message)
        .hint(format!("`covey serve --node {}` runs it in the foreground", node.name))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

async fn stop_again(cluster: &Cluster, node: &Node, daemon: &mut Daemon) {
    let _ = daemon.process.signal(Signal::TERM);
    if !daemon.process.wait(Duration::from_secs(5)).await {
        daemon.kill();
    }
    let _ = daemon.ended();
    let _ = std::fs::remove_file(cluster.pid_file(&node.name));
}

/// Mounts the file system, unless it is mounted there already.
async fn mount_at(
    config: &Config,
    mountpoint: &std::path::Path,
    wish: &mount::Wish,
) -> Result<PathBuf> {
    let mountpoint =
        std::path::absolute(mountpoint).cannot(|| format!("find {}", mountpoint.display()))?;
    if mounts::kind_at(&mountpoint).is_none_or(|kind| kind != mount::KIND) {
        mount::in_background(config, &mountpoint, wish).await.map_err(|mut error| {
            // Whatever was wrong with it, servers were started: the command was not refused.
            error.kind = Kind::Work;
            error.hint("the servers run; `covey mount` adds a mount later")
        })?;
    }
    Ok(mountpoint)
}

fn tell(
    cluster: &Cluster,
    config: &Config,
    started: &[String],
    mounted: Option<&std::path::Path>,
    context: &Context,
) -> Result<()> {
    let nodes: Vec<_> = config.nodes.iter().map(|node| node_json(cluster, node, started)).collect();
    let value = serde_json::json!({
        "dir": cluster.dir, "config": config.file, "cluster": config.name, "id": config.id,
        "mount": mounted, "nodes": nodes,
    });
    context.output.result(&value, |out| {
        use std::io::Write;
        let (count, dir) = (config.data().count(), cluster.dir.display());
        let what = if started.is_empty() { "was up already" } else { "is up" };
        let of_data =
            if count == 1 { "1 I/O server".into() } else { format!("{count} I/O servers") };
        let servers = match (config.meta().is(Role::Data), count) {
            (true, 1) => "1 I/O server, which is the metadata server too".into(),
            (true, _) => format!("{of_data}, one of them the metadata server too"),
            (false, _) => format!("{of_data} and a metadata server"),
        };
        writeln!(out, "cluster {} {what}: {servers}, in {dir}\n", config.name)?;
        let rows: Vec<_> = config.nodes.iter().map(|node| row(cluster, node)).collect();
        crate::output::table(out, &["NODE", "ROLE", ">PID", "LISTENS AT"], &rows);
        if let Some(mountpoint) = mounted {
            writeln!(out, "\nmounted at {}", mountpoint.display())?;
        }
        writeln!(out, "\n{}", who_may(config))?;
        writeln!(out, "\ntry:\n{}", next(cluster, mounted))
    })
}

fn node_json(cluster: &Cluster, node: &Node, started: &[String]) -> serde_json::Value {
    serde_json::json!({
        "node": node.name, "roles": node.roles, "store": node.store,
        "pid": cluster.process(&node.name).map(|process| process.pid),
        "listen": node.listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "started": started.contains(&node.name),
    })
}

fn row(cluster: &Cluster, node: &Node) -> Vec<String> {
    let role = match (node.is(Role::Meta), node.is(Role::Data)) {
        (true, true) => "both servers",
        (true, false) => "metadata server",
        _ => "I/O server",
    };
    let pid =
        cluster.process(&node.name).map_or("-".to_string(), |process| process.pid.to_string());
    let listen: Vec<_> = node.listen.iter().map(ToString::to_string).collect();
    vec![node.name.clone(), role.to_string(), pid, listen.join(" ")]
}

fn who_may(config: &Config) -> String {
    if config.needs_key() && Lab::around().is_some() {
        return "who may: whoever is root on a node of this lab; mounts serve its other users."
            .to_string();
    }
    let uid = rustix::process::geteuid().as_raw();
    let whole = if uid == 0 {
        "root, for all users".to_string()
    } else {
        format!("root and uid {uid}, for all users")
    };
    let beyond = if config.needs_key() {
        "Who comes from another machine proves the cluster key."
    } else {
        "Nothing listens beyond this machine, so no key is needed."
    };
    format!(
        "who may: {whole}; others for themselves, on a mount with --allow-other or by a node's /fs.\n{beyond}"
    )
}

/// The next commands; they find the default cluster by themselves.
fn next(cluster: &Cluster, mounted: Option<&std::path::Path>) -> String {
    let is_default = crate::config::embedded_dir().as_deref() == Some(&cluster.dir);
    let mut lines = Vec::new();
    let mut down = "covey down".to_string();
    if !is_default {
        lines.push(format!("  export COVEY_CONFIG={}", cluster.config_file().display()));
        down = format!("covey down --dir {}", cluster.dir.display());
    }
    match mounted {
        Some(mountpoint) => lines.push(format!("  cp -r /usr/share/doc {}", mountpoint.display())),
        None => lines.push("  covey cp -r /usr/share/doc :/doc".to_string()),
    }
    lines.extend([
        "  covey ls -l /".to_string(),
        "  covey status".to_string(),
        format!("  {down}"),
    ]);
    lines.join("\n")
}

/// In the foreground: until a signal, `covey down` from elsewhere, or the death of a node.
async fn stay(cluster: &Cluster, config: &Config, context: &Context) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).cannot(|| "wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).cannot(|| "wait for signals")?;
    tokio::select! {
        _ = terminate.recv() => super::down::take_down(cluster, &context.output).await,
        _ = interrupt.recv() => super::down::take_down(cluster, &context.output).await,
        dead = first_death(cluster, config) => match dead {
            None => Ok(()),
            Some(name) => {
                let tail = indented(&super::cluster::log_tail(&cluster.log_file(&name), 0));
                super::down::take_down(cluster, &context.output).await?;
                Err(Error::work(format!("cannot go on: node {name} has died; the end of its \
                     log:\n{tail}")))
            }
        },
    }
}

/// The first node that died by itself; `None` when `covey down` has taken the last one down.
async fn first_death(cluster: &Cluster, config: &Config) -> Option<String> {
    let process = |name: &str| Process::read(&cluster.pid_file(name));
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut are_left = false;
        for node in &config.nodes {
            // One that `covey down` has taken down by itself is no death, and the others go on.
            let Some(now) = process(&node.name) else { continue };
            are_left = true;
            if now.is_alive() {
                continue;
            }
            // `covey down` removes the pid file just after the end: give it the time.
            tokio::time::sleep(Duration::from_secs(1)).await;
            if process(&node.name).is_some_and(|now| !now.is_alive()) {
                return Some(node.name.clone());
            }
        }
        if !are_left {
            return None;
        }
    }
}
