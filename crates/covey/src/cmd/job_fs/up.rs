//! `covey up --job`: this node's part of a job's file system.

use super::down::{self, IN_DOUBT, MET, STAGED_OUT};
use super::place::{JobDir, Record};
use super::plan::{Plan, Source, job_id};
use super::stage::{self, Spec};
use super::which::{Which, host};
use super::{key, notes, trust};
use crate::cmd::cluster::{Process, log_tail, mounts};
use crate::cmd::{Context, Session, mount, up};
use crate::config::{Address, Config, load, render};
use crate::error::{Cannot, Error, Kind, Result};
use crate::output::counted;
use covey_io::os::directory::write_durably;
use covey_stripe::ops::Consistency;
use futures_util::future::join_all;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What was asked for.
pub struct Wish {
    /// The job, or nothing for the batch system's.
    pub job: String,
    /// Which run of it.
    pub run: Option<u32>,
    /// Which of its nodes this is.
    pub node: Option<String>,
    /// Its nodes.
    pub source: Source,
    /// Where the job's directory is made.
    pub parent: Option<PathBuf>,
    /// The port of every server.
    pub port: Option<u16>,
    /// Strip size in bytes.
    pub strip_bytes: Option<u32>,
    /// A key that all nodes see.
    pub key_file: Option<PathBuf>,
    /// Where to mount.
    pub mount: Option<PathBuf>,
    /// The mount's mode.
    pub consistency: Consistency,
    /// What to copy in.
    pub stage_in: Vec<Spec>,
    /// How long the other nodes are waited for.
    pub wait: Duration,
    /// Stay until a signal.
    pub foreground: bool,
}

/// Runs the command.
pub async fn run(wish: &Wish, context: &Context) -> Result<()> {
    let job = job_id(&wish.job)?;
    let which = Which::new(job.clone(), wish.run, wish.node.as_deref());
    let here = JobDir::find(wish.parent.as_deref(), &which);
    let record = || here.as_ref().ok()?.as_ref()?.record();
    let nodes = wish.source.nodes().or_else(|error| record().map(|is| is.nodes).ok_or(error))?;
    let run = which.run.or_else(|| Some(record()?.run)).unwrap_or_default();
    let plan = Plan::new((job, run), nodes, wish.port, &which.own)?;
    let mountpoint = wish.mount.as_deref().map(mounts::place_of).transpose()?;
    if let (Some(typed), Some(place)) = (&wish.mount, &mountpoint) {
        trust::check_mountpoint(typed, place)?;
    }
    end_earlier_runs(wish, &plan, context).await?;
    let (dir, config, started) = start(wish, &plan, context).await?;
    warn_of_step(wish, started, context);
    wait_for_others(&plan, &config, wish.wait).await?;
    dir.put(MET, b"")?;
    // Whoever waits no longer for nodes that have no key yet would leave them without.
    if plan.is_first()
        && !wish.wait.is_zero()
        && let Some(shared) = dir.record().and_then(|record| record.shared_key)
    {
        key::remove_shared(&shared, &plan.me);
    }
    if let Some(mountpoint) = &mountpoint {
        mount_at(wish, &dir, &config, mountpoint, context).await?;
    }
    if plan.is_first() || !wish.wait.is_zero() {
        let session = of(&config, context).session().await?;
        let result = meet(wish, &plan, &session).await;
        session.close(result).await?;
    }
    if plan.is_first() {
        stage_in(wish, &dir, &config, context).await?;
    }
    tell(&plan, &dir, &config, started, mountpoint.as_deref(), context)?;
    if wish.foreground { stay(&dir, &plan, context).await } else { Ok(()) }
}

/// A job that was started again takes nothing from its earlier runs, whose servers and mounts would be in its way.
async fn end_earlier_runs(wish: &Wish, plan: &Plan, context: &Context) -> Result<()> {
    let which = Which::new(plan.job.clone(), Some(plan.run), Some(plan.me.as_str()));
    let all = JobDir::all(wish.parent.as_deref(), &which)?;
    for other in all.iter().filter(|other| other.node == plan.me) {
        if other.run > plan.run {
            let (job, run, later) = (&plan.job, plan.run, other.run);
            let what = format!("cannot start run {run} of job {job}: run {later} is here");
            return Err(Error::user(what)
                .hint(format!("`covey down --job {job} --run {later}` removes it")));
        }
        if other.run < plan.run {
            down::retire(&other.dir, context).await?;
        }
    }
    Ok(())
}

/// Makes what is missing of this node's part, and starts its server unless it runs.
async fn start(wish: &Wish, plan: &Plan, context: &Context) -> Result<(JobDir, Config, bool)> {
    let (dir, _lock) = loop {
        let dir = JobDir::make_for(wish.parent.as_deref(), plan, &context.output)?;
        if let Some(lock) = dir.lock(&context.output).await? {
            break (dir, lock);
        }
    };
    let (config, started) = start_in(wish, plan, &dir).await?;
    Ok((dir, config, started))
}

/// The same, in a directory that is locked.
async fn start_in(wish: &Wish, plan: &Plan, dir: &JobDir) -> Result<(Config, bool)> {
    same_job(dir, plan)?;
    dir.make_inner()?;
    dir.forget(STAGED_OUT);
    dir.forget(IN_DOUBT);
    let is_new = !dir.cluster.exists();
    let config = if !is_new {
        same_port(wish, plan, load(&dir.cluster.config_file())?)?
    } else {
        dir.end_strays().await?;
        format(wish, plan, dir).await?
    };
    let node = config.node(&plan.me)?;
    if dir.cluster.process(&plan.me).is_some() {
        return Ok((config, false));
    }
    // One that no pid file names would hold the store and the port.
    dir.end_strays().await?;
    let mut daemon = up::start_node(&dir.cluster, &config, node, None)?;
    if let Err(error) = up::wait_for(&config, node, &mut daemon).await {
        daemon.kill();
        dir.forget(&format!("run/{}.pid", plan.me));
        if is_new {
            // With another port it must be made anew.
            dir.forget("covey.toml");
        }
        return Err(port_taken(&config, &plan.me)
            .unwrap_or(error)
            .hint("--port N, on every node alike, chooses another port"));
    }
    Ok((config, true))
}

/// Says who listens where this node's server was to.
fn port_taken(config: &Config, me: &str) -> Option<Error> {
    let Address::Tcp { port, .. } = config.node(me).ok()?.listen.first()?.clone() else {
        return None;
    };
    let owner = trust::user(covey_io::os::net::listener_owner(port)?);
    Some(Error::work(format!("cannot start node {me}: {owner} listens at its port {port}")))
}

/// The port stays what it was, for the other nodes know no other.
fn same_port(wish: &Wish, plan: &Plan, config: Config) -> Result<Config> {
    let is_at = |port: u16| {
        let end = format!("!{port}");
        config.node(&plan.me).is_ok_and(|node| node.listen[0].to_string().ends_with(&end))
    };
    match wish.port {
        Some(port) if !is_at(port) => Err(Error::user(format!(
            "cannot listen at port {port}: job {} was made with another",
            plan.job
        ))
        .hint("leave out --port")),
        _ => Ok(config),
    }
}

/// Refuses what another job of the same name has left, or another list of nodes.
fn same_job(dir: &JobDir, plan: &Plan) -> Result<()> {
    let Some(record) = dir.record() else {
        return dir.set_record(&Record::of(plan));
    };
    let differs = |what: String| {
        let place = dir.path().display();
        Err(Error::user(format!("cannot start {} in {place}: {what}", plan.shown()))
            .hint(format!("`covey down --job {}` removes what is there", plan.job))
            .hint("a job of another name has a directory of its own"))
    };
    if record.job != plan.job || record.host != host() {
        return differs(format!("it is that of job {} on {}", record.job, record.host));
    }
    if record.nodes != plan.nodes {
        return differs(format!("it was made for the nodes {}", record.nodes.join(",")));
    }
    Ok(())
}

/// The configuration gets its name when the store is formatted: without it nothing was ever kept here.
async fn format(wish: &Wish, plan: &Plan, dir: &JobDir) -> Result<Config> {
    dir.remove_unfinished()?;
    dir.make_inner()?;
    let own = dir.path().join("key");
    match &wish.key_file {
        Some(file) => key::take(file, &own)?,
        None => {
            let shared = key::shared_file(&plan.job, &plan.cluster_id())?;
            // The first node removes it, and whichever makes it: the first may never have come so far.
            if let Some(record) = dir.record()
                && (plan.is_first() || !shared.exists())
            {
                dir.set_record(&Record { shared_key: Some(shared.clone()), ..record })?;
                key::make_shared(&shared, &plan.me)?;
            }
            key::take(&shared, &own)?;
        }
    }
    let config = plan.config(dir, wish.strip_bytes)?;
    covey_serve::init(&config, &plan.me)
        .await
        .cannot(|| format!("format the store of {}", plan.me))?;
    let file = dir.cluster.config_file();
    write_durably(&dir.path().join("covey.toml.new"), &file, render(&config).as_bytes())
        .cannot(|| format!("write {}", file.display()))?;
    load(&file)
}

/// A step of Slurm ends what it has started when its command ends.
fn warn_of_step(wish: &Wish, started: bool, context: &Context) {
    let is_step = std::env::var("SLURM_STEP_ID")
        .is_ok_and(|step| step.parse::<u32>().is_ok_and(|step| step < 0xffff_fff0));
    if started && is_step && !wish.foreground {
        context.output.say(
            "this is a step of Slurm, which may end the server together with it: \
             `srun ... covey up --job --foreground &` keeps it",
        );
    }
}

/// The first node waits for all, the others for the first.
async fn wait_for_others(plan: &Plan, config: &Config, limit: Duration) -> Result<()> {
    let meta = config.meta().name.clone();
    let mut missing: Vec<String> = if plan.is_first() { plan.nodes.clone() } else { vec![meta] };
    let (begin, mut why) = (Instant::now(), String::new());
    while !limit.is_zero() {
        let asked = missing.iter().map(|name| async move {
            let ping = covey_cluster::reach::ping(config, name);
            match tokio::time::timeout(Duration::from_secs(3), ping).await {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some((name.clone(), format!("{error:#}"))),
                Err(_) => Some((name.clone(), "no answer within 3 s".to_string())),
            }
        });
        let silent: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
        if let Some((_, reason)) = silent.first() {
            why.clone_from(reason);
        }
        missing = silent.into_iter().map(|(name, _)| name).collect();
        if missing.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > limit {
            return Err(not_all(plan, &missing, limit, &why));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn not_all(plan: &Plan, missing: &[String], limit: Duration, why: &str) -> Error {
    Error::work(format!(
        "cannot reach {} of {} within {} s: {why}",
        missing.join(", "),
        plan.shown(),
        limit.as_secs()
    ))
    .hint("the command must run on each node; this node's server goes on: the same command waits again")
    .hint("nodes that see different files at ~/.cache/covey have different keys: --key-file FILE names one for all")
    .hint(format!("`covey down --job {}` on each node ends it", plan.job))
}

/// Servers that answer are not enough: a program that starts now wants its mount.
async fn meet(wish: &Wish, plan: &Plan, session: &Session) -> Result<()> {
    if !plan.is_first() {
        return notes::say_ready(session, &plan.me).await;
    }
    notes::forget_stage_out(session).await?;
    if wish.wait.is_zero() {
        return Ok(());
    }
    let missing = notes::wait_ready(session, &plan.nodes[1..], wish.wait).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let why = "its server answers, but the command there has not come to its end";
    Err(not_all(plan, &missing, wish.wait, why))
}

async fn mount_at(
    wish: &Wish,
    dir: &JobDir,
    config: &Config,
    mountpoint: &Path,
    context: &Context,
) -> Result<()> {
    let Some(_lock) = dir.lock(&context.output).await? else { return Ok(()) };
    if mounts::kind_at(mountpoint).is_some_and(|kind| kind == mount::KIND) {
        return mounted_by_us(dir, mountpoint);
    }
    if let Some(mut record) = dir.record()
        && !mountpoint.exists()
        && !record.made_for_mounts.iter().any(|made| made == mountpoint)
    {
        record.made_for_mounts.push(mountpoint.to_path_buf());
        dir.set_record(&record)?;
    }
    // Once it is there and ours, nobody can put another in its place.
    if !mountpoint.exists() {
        let what = || format!("make directory {}", mountpoint.display());
        std::fs::create_dir_all(mountpoint).cannot(what)?;
    }
    trust::check_mountpoint(mountpoint, mountpoint)?;
    let how = mount::Wish::in_mode(wish.consistency);
    mount::in_background(config, mountpoint, &how)
        .await
        .map_err(|error| error.hint("the server runs; the same command tries again"))
}

/// Another job's mount there would be taken for this one's.
fn mounted_by_us(dir: &JobDir, mountpoint: &Path) -> Result<()> {
    let is_alive = |process: Process| process.is_alive();
    let file = mounts::pid_file(&dir.cluster, mountpoint);
    if Process::read(&file).is_some_and(is_alive) {
        return Ok(());
    }
    let place = mountpoint.display();
    Err(Error::user(format!("cannot mount at {place}: something else of Covey is mounted there"))
        .hint(format!("`covey umount {place}` unmounts it; or choose another directory")))
}

/// Copies in what has not been copied in yet.
async fn stage_in(wish: &Wish, dir: &JobDir, config: &Config, context: &Context) -> Result<()> {
    const DONE: &str = "staged-in";
    if wish.stage_in.is_empty() {
        return Ok(());
    }
    let Some(_lock) = dir.lock(&context.output).await? else { return Ok(()) };
    let inside = of(config, context);
    let session = inside.session().await?;
    let staged = async {
        for spec in &wish.stage_in {
            let mut done = dir.read(DONE).unwrap_or_default();
            let line = spec.settled_in()?.line();
            if done.windows(line.len()).any(|known| known == line) {
                continue;
            }
            stage::copy_in(&session, spec, context).await?;
            done.extend(line);
            dir.put(DONE, &done)?;
        }
        notes::say_staged_in(&session).await
    };
    let result: Result<()> = staged.await;
    if result.is_err() {
        notes::forget_staged_in(&session).await;
    }
    let failed = |error: Error| {
        if error.kind != Kind::Told {
            context.output.tell(&error);
        }
        Error::work("not all was staged in; the file system is up all the same")
            .hint("the same command tries again what failed")
    };
    session.close(result.map_err(failed)).await
}

/// The job's file system, for commands that are run by this one.
pub fn of(config: &Config, context: &Context) -> Context {
    Context { config_file: Some(config.file.clone()), output: context.output }
}

fn tell(
    plan: &Plan,
    dir: &JobDir,
    config: &Config,
    started: bool,
    mountpoint: Option<&Path>,
    context: &Context,
) -> Result<()> {
    let pid = dir.cluster.process(&plan.me).map(|process| process.pid);
    let value = serde_json::json!({
        "job": plan.job, "run": plan.run, "dir": dir.path(), "config": config.file, "nodes": plan.nodes,
        "node": plan.me, "first": plan.is_first(), "pid": pid,
        "started": started, "mount": mountpoint,
    });
    context.output.result(&value, |out| {
        use std::io::Write;
        let what = if started { "is up" } else { "was up already" };
        let nodes = counted(plan.nodes.len() as u64, "node");
        let (job, me, at) = (&plan.job, &plan.me, dir.path().display());
        writeln!(out, "{} {what} on {me}, one of {nodes}, in {at}", plan.shown())?;
        if let Some(mountpoint) = mountpoint {
            writeln!(out, "mounted at {}", mountpoint.display())?;
        }
        if plan.is_first() {
            writeln!(out, "\ntry:\n  export COVEY_CONFIG={}", config.file.display())?;
            writeln!(out, "  covey ls /")?;
            writeln!(out, "  covey down --job {job}    on each node")?;
        }
        Ok(())
    })
}

/// In the foreground: until `covey down --job`, a signal or the server's death. What is in it stays: only
/// `covey down --job` removes anything.
async fn stay(dir: &JobDir, plan: &Plan, context: &Context) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).cannot(|| "wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).cannot(|| "wait for signals")?;
    tokio::select! {
        _ = terminate.recv() => stop(dir, context).await,
        _ = interrupt.recv() => stop(dir, context).await,
        died = server_ends(dir, plan) => if died { Err(dead(dir, plan)) } else { Ok(()) },
    }
}

fn dead(dir: &JobDir, plan: &Plan) -> Error {
    let tail = log_tail(&dir.cluster.log_file(&plan.me), 0);
    let what = format!("cannot go on: the server of {} has died; the end of its log:", plan.me);
    Error::work(format!("{what}\n{tail}")).hint("`covey up --job` again starts it with its files")
}

async fn stop(dir: &JobDir, context: &Context) -> Result<()> {
    let Some(_lock) = dir.lock(&context.output).await? else { return Ok(()) };
    crate::cmd::down::stop_all(&dir.cluster, &context.output).await.map(|_| ())
}

/// Whether it died; false when it was stopped, which takes its pid file away.
async fn server_ends(dir: &JobDir, plan: &Plan) -> bool {
    let file = dir.cluster.pid_file(&plan.me);
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        match Process::read(&file) {
            None => return false,
            Some(process) if !process.is_alive() => {
                // `covey down` removes the pid file just after the end: give it the time.
                tokio::time::sleep(Duration::from_secs(1)).await;
                return file.exists();
            }
            Some(_) => {}
        }
    }
}
