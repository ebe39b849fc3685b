//! `covey down --job`: results out, then this node's part gone.

use super::place::{JobDir, Record};
use super::plan::job_id;
use super::stage::{self, Out, Spec};
use super::which::{self, Which};
use super::{key, notes, up};
use crate::cmd::cluster::mounts;
use crate::cmd::copy::Beside;
use crate::cmd::{Context, down};
use crate::config::{Config, load};
use crate::error::{Error, Kind, Result};
use futures_util::future::join_all;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the first node's metadata stays for the others to see how the stage-out went.
const LINGER: Duration = Duration::from_secs(60);

const UNSAVED: &str = "unsaved";
/// Whether results were staged out could not be learned here.
pub const IN_DOUBT: &str = "in-doubt";
/// Until the file system is used again.
pub const STAGED_OUT: &str = "staged-out";
/// The file system was reached from this node: it may hold files.
pub const MET: &str = "met";

/// What was asked for.
pub struct Wish {
    /// The job, or nothing for the batch system's.
    pub job: String,
    /// Which run of it.
    pub run: Option<u32>,
    /// Which of its nodes this is.
    pub node: Option<String>,
    /// Where the job's directory is.
    pub parent: Option<PathBuf>,
    /// What to copy out.
    pub stage_out: Vec<Spec>,
    /// Pass over what is not there.
    pub skip_missing: bool,
    /// Only stop.
    pub keep: bool,
    /// Remove results that could not be staged out.
    pub discard: bool,
}

/// Runs the command.
pub async fn run(wish: &Wish, context: &Context) -> Result<()> {
    let job = job_id(&wish.job)?;
    let which = Which::new(job.clone(), wish.run, wish.node.as_deref());
    let Some(dir) = JobDir::find(wish.parent.as_deref(), &which)? else {
        return nothing(wish, &job, context);
    };
    let Some(lock) = dir.lock(&context.output).await? else {
        return nothing(wish, &job, context);
    };
    if !wish.stage_out.is_empty() {
        stage_out(wish, &dir, context).await?;
    } else if !wish.keep {
        may_remove(wish, &dir, &job, context).await?;
    }
    let stopped = down::stop_all(&dir.cluster, &context.output).await?;
    dir.end_strays().await?;
    let run = dir.record().map_or(0, |record| record.run);
    if !wish.keep {
        if let Some(record) = dir.record() {
            remove_traces(&record);
        }
        dir.remove(&lock)?;
    }
    tell(wish, (job.as_str(), run), Some(&dir), &stopped, context)
}

/// Ends what an earlier run of a job has left on this node: the job begins anew, and nobody waits for those files. They
/// stay only where somebody has said that they are results.
pub async fn retire(dir: &JobDir, context: &Context) -> Result<()> {
    let Some(lock) = dir.lock(&context.output).await? else { return Ok(()) };
    down::stop_all(&dir.cluster, &context.output).await?;
    dir.end_strays().await?;
    let record = dir.record();
    if dir.read(UNSAVED).is_some() || dir.read(IN_DOUBT).is_some() {
        let (job, run) = record.map(|record| (record.job, record.run)).unwrap_or_default();
        context.output.say(format!(
            "results of run {run} of job {job} stay in {}: `covey down --job {job} --run {run} \
             --discard` removes them",
            dir.path().display()
        ));
        return Ok(());
    }
    if let Some(record) = record {
        remove_traces(&record);
    }
    dir.remove(&lock)
}

fn nothing(wish: &Wish, job: &str, context: &Context) -> Result<()> {
    if wish.stage_out.is_empty() {
        return tell(wish, (job, wish.run.unwrap_or(0)), None, &[], context);
    }
    Err(Error::work(format!("cannot stage out: nothing of job {job} is on this node"))
        .hint("an earlier `covey down --job` has ended well here, or it never was up")
        .hint("--dir DIR, or TMPDIR, must be as they were for `covey up --job`"))
}

/// What lies elsewhere: the directories that were made for mounts, and the key where that is this node's to remove.
fn remove_traces(record: &Record) {
    for made in record.made_for_mounts.iter().rev() {
        let _ = std::fs::remove_dir(made);
    }
    if let Some(shared) = &record.shared_key {
        key::remove_shared(shared, &record.node);
    }
}

/// Results that are only here are not removed unasked. What the first node knows of them counts on every node.
async fn may_remove(wish: &Wish, dir: &JobDir, job: &str, context: &Context) -> Result<()> {
    if wish.discard {
        return Ok(());
    }
    if dir.read(UNSAVED).is_some() {
        return Err(unsaved(dir, job));
    }
    let Some(record) = dir.record().filter(|record| record.nodes.len() > 1) else { return Ok(()) };
    let Ok(config) = load(&dir.cluster.config_file()) else { return Ok(()) };
    let inside = up::of(&config, context);
    if record.nodes.first() == Some(&record.node) {
        if dir.cluster.process(&record.node).is_some() {
            linger(&config, &record, None, &inside).await;
        }
        return Ok(());
    }
    // Where `covey up` never came so far, no program has seen the file system.
    if dir.read(MET).is_none() {
        return Ok(());
    }
    match notes::verdict(&inside).await {
        notes::Verdict::Free => Ok(()),
        notes::Verdict::Unsaved => {
            dir.put(IN_DOUBT, b"")?;
            Err(unsaved(dir, job))
        }
        notes::Verdict::Unknown => doubt(dir, &record, job),
    }
}

/// Nobody who begins anew may remove it either.
fn doubt(dir: &JobDir, record: &Record, job: &str) -> Result<()> {
    dir.put(IN_DOUBT, b"")?;
    let what = Error::work(format!(
        "cannot remove {}: the first node, {}, does not say whether results of job {job} were \
             staged out",
        dir.path().display(),
        record.nodes[0]
    ));
    Err(what
        .hint("run the command on all nodes at the same time")
        .hint("where nothing is needed any more, --discard removes it"))
}

fn unsaved(dir: &JobDir, job: &str) -> Error {
    Error::work(format!(
        "cannot remove {}: the stage-out of job {job} did not come to a good end",
        dir.path().display()
    ))
    .hint(
        "--stage-out SRC:DST tries again; after a stop, `covey up --job` starts the servers first",
    )
    .hint("--keep stops the servers and keeps the data; --discard removes it")
}

async fn stage_out(wish: &Wish, dir: &JobDir, context: &Context) -> Result<()> {
    let specs = wish.stage_out.iter().map(Spec::settled_out).collect::<Result<Vec<_>>>()?;
    let wanted: Vec<u8> = specs.iter().flat_map(Spec::line).collect();
    let was_done = dir.read(STAGED_OUT).as_deref() == Some(&wanted);
    let Some(record) = dir.record().filter(|_| dir.cluster.exists()) else {
        if was_done {
            // A command that was killed had begun to remove it.
            context.output.say("all was staged out before");
            return Ok(());
        }
        return Err(Error::work("cannot stage out: the job's file system never was up here")
            .hint("`covey down --job` without --stage-out removes what there is of it"));
    };
    let config = load(&dir.cluster.config_file())?;
    // Other nodes have seen the good end and may be gone: what was begun goes on. While all servers run, programs may
    // have written more since, and copying again does no harm.
    if was_done && !all_stay(&config, &record).await {
        context.output.say("all was staged out before");
        return Ok(());
    }
    let inside = up::of(&config, context);
    let is_first = record.nodes.first() == Some(&record.node);
    let gone = places_that_go(dir);
    if is_first {
        specs.iter().try_for_each(|spec| stage::outlives(spec, &gone))?;
    }
    dir.put(UNSAVED, &wanted)?;
    dir.forget(STAGED_OUT);
    // As typed: directories that commands run in may differ.
    let typed: Vec<u8> = wish.stage_out.iter().flat_map(Spec::line).collect();
    let number = covey_wire::fnv1a(&typed);
    let result = if is_first {
        let tag = format!("{} {}", record.job, dir.path().display());
        let beside = Beside { tag, avoid: gone };
        let skip_missing = wish.skip_missing;
        let how = Out { beside, skip_missing, watch: stage::Watch::default() };
        first(&specs, dir, number, &how, &inside).await
    } else {
        let waited = notes::wait(&inside, number).await;
        waited.and_then(|()| dir.rename(UNSAVED, STAGED_OUT))
    };
    result.map_err(|error| kept(error, dir, &record, context))?;
    if is_first && record.nodes.len() > 1 {
        linger(&config, &record, Some(number), &inside).await;
    }
    Ok(())
}

async fn first(
    specs: &[Spec],
    dir: &JobDir,
    number: u64,
    how: &Out,
    inside: &Context,
) -> Result<()> {
    let session = inside.session().await?;
    let copy = async {
        for spec in specs {
            stage::copy_out(&session, spec, how, inside).await?;
        }
        Ok(())
    };
    let work = notes::Work {
        wanted: number,
        count: &|| how.watch.count(),
        copy,
        record: || dir.rename(UNSAVED, STAGED_OUT),
    };
    let result = notes::telling(&session, work).await;
    session.close(result).await
}

/// Says where the data is. Failures of single files have been told by now.
fn kept(error: Error, dir: &JobDir, record: &Record, context: &Context) -> Error {
    if error.kind != Kind::Told {
        context.output.tell(&error);
    }
    Error::work(format!(
        "nothing was removed: the files of {} are in its directory on {}, here {}",
        which::shown(&record.job, record.run),
        record.nodes.join(", "),
        dir.path().display()
    ))
    .hint("the same command on the same nodes tries again; files that were staged out are whole")
    .hint("a dead server is started by `covey up --job` on its node")
}

/// The job's directory, and its mounts.
fn places_that_go(dir: &JobDir) -> Vec<PathBuf> {
    let mounts = mounts::of(&dir.cluster).into_iter();
    mounts
        .map(|record| PathBuf::from(record.process.note))
        .chain([dir.path().to_path_buf()])
        .collect()
}

/// Waits until the other servers have ended: their nodes read from this one how the stage-out went, if there was one.
async fn linger(config: &Config, record: &Record, stage_out: Option<u64>, inside: &Context) {
    const SILENT: Duration = Duration::from_secs(3);
    let begin = Instant::now();
    let (mut session, mut tick, mut told) = (None, 1 << 32, false);
    while begin.elapsed() < LINGER && answering(config, &record.nodes).await > 1 {
        if session.is_none() && stage_out.is_some() {
            let asked = tokio::time::timeout(Duration::from_secs(1), inside.session()).await;
            session = asked.ok().and_then(Result::ok);
        }
        if let (Some(session), Some(number)) = (&session, stage_out) {
            tick += 1;
            notes::say_done(session, number, tick).await;
        }
        if begin.elapsed() > SILENT && !std::mem::replace(&mut told, true) {
            let seconds = LINGER.as_secs();
            inside.output.say(format!(
                "waiting for `covey down --job` on the other nodes, at most {seconds} s"
            ));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether all servers run, and do not just end: that takes the others a moment after a good end.
async fn all_stay(config: &Config, record: &Record) -> bool {
    let count = record.nodes.len();
    if answering(config, &record.nodes).await < count {
        return false;
    }
    if count == 1 {
        return true;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    answering(config, &record.nodes).await == count
}

/// How many nodes have a server that answers.
async fn answering(config: &Config, nodes: &[String]) -> usize {
    let asked = nodes.iter().map(|name| {
        let ping = covey_cluster::reach::ping(config, name);
        tokio::time::timeout(Duration::from_secs(1), ping)
    });
    join_all(asked).await.iter().filter(|answer| matches!(answer, Ok(Ok(_)))).count()
}

fn tell(
    wish: &Wish,
    (job, run): (&str, u32),
    dir: Option<&JobDir>,
    stopped: &[String],
    context: &Context,
) -> Result<()> {
    let is_removed = dir.is_some() && !wish.keep;
    let value = serde_json::json!({
        "job": job, "run": run, "dir": dir.map(JobDir::path), "stopped": stopped, "removed": is_removed,
    });
    context.output.result(&value, |out| {
        use std::io::Write;
        let job = which::shown(job, run);
        match dir.map(|dir| dir.path().display()) {
            None => writeln!(out, "nothing of {job} is on this node"),
            Some(dir) if is_removed => writeln!(out, "{job} is down here: removed {dir}"),
            Some(dir) => writeln!(out, "{job} is stopped here; the data stays in {dir}"),
        }
    })
}
