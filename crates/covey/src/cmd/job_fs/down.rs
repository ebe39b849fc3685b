//! `covey down --job`: results out, then this node's part gone.

use super::place::{JobDir, Record};
use super::plan::job_id;
use super::stage::{self, Spec};
use super::{notes, up};
use crate::cmd::cluster::mounts;
use crate::cmd::{Context, down};
use crate::config::{Config, load};
use crate::error::{Error, Kind, Result};
use futures_util::future::join_all;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the first node's metadata stays for the others to see how the stage-out went.
const LINGER: Duration = Duration::from_secs(5);

const UNSAVED: &str = "unsaved";
/// Until the file system is used again.
pub const STAGED_OUT: &str = "staged-out";

/// What was asked for.
pub struct Wish {
    /// The job, or nothing for the batch system's.
    pub job: String,
    /// Where the job's directory is.
    pub parent: Option<PathBuf>,
    /// What to copy out.
    pub stage_out: Vec<Spec>,
    /// Only stop.
    pub keep: bool,
    /// Remove results that could not be staged out.
    pub discard: bool,
}

/// Runs the command.
pub async fn run(wish: &Wish, context: &Context) -> Result<()> {
    let job = job_id(&wish.job)?;
    let Some(dir) = JobDir::find(wish.parent.as_deref(), &job)? else {
        return nothing(wish, &job, context);
    };
    let Some(lock) = dir.lock(&context.output).await? else {
        return nothing(wish, &job, context);
    };
    if !wish.stage_out.is_empty() {
        stage_out(wish, &dir, context).await?;
    } else if !wish.keep {
        may_remove(wish, &dir, &job)?;
    }
    let stopped = down::stop_all(&dir.cluster, &context.output).await?;
    dir.end_strays().await?;
    if !wish.keep {
        if let Some(record) = dir.record() {
            remove_traces(&record);
        }
        dir.remove(&lock)?;
    }
    tell(wish, &job, Some(&dir), &stopped, context)
}

fn nothing(wish: &Wish, job: &str, context: &Context) -> Result<()> {
    if wish.stage_out.is_empty() {
        return tell(wish, job, None, &[], context);
    }
    Err(Error::work(format!("cannot stage out: nothing of job {job} is on this node"))
        .hint("an earlier `covey down --job` has ended well here, or it never was up")
        .hint("--dir DIR, or TMPDIR, must be as they were for `covey up --job`"))
}

/// What lies elsewhere: the directories that were made for mounts, and the key where this was the first node.
fn remove_traces(record: &Record) {
    for made in record.made_for_mounts.iter().rev() {
        let _ = std::fs::remove_dir(made);
    }
    if let Some(shared) =
        record.shared_key.as_ref().filter(|_| record.nodes.first() == Some(&record.node))
    {
        let _ = std::fs::remove_file(shared);
    }
}

/// Results that only are here are not removed unasked.
fn may_remove(wish: &Wish, dir: &JobDir, job: &str) -> Result<()> {
    if wish.discard || dir.read(UNSAVED).is_none() {
        return Ok(());
    }
    Err(Error::work(format!(
        "cannot remove {}: the stage-out of job {job} did not come to a good end",
        dir.path().display()
    ))
    .hint(
        "--stage-out SRC:DST tries again; after a stop, `covey up --job` starts the servers first",
    )
    .hint("--keep stops the servers and keeps the data; --discard removes it"))
}

async fn stage_out(wish: &Wish, dir: &JobDir, context: &Context) -> Result<()> {
    let specs = wish.stage_out.iter().map(Spec::settled_out).collect::<Result<Vec<_>>>()?;
    let wanted: Vec<u8> = specs.iter().flat_map(Spec::line).collect();
    let Some(record) = dir.record().filter(|_| dir.cluster.exists()) else {
        return Err(Error::work("cannot stage out: the job's file system never was up here")
            .hint("`covey down --job` without --stage-out removes what there is of it"));
    };
    let config = load(&dir.cluster.config_file())?;
    // Other nodes have seen the good end and may be gone: what was begun goes on. `covey up --job` takes it back.
    if dir.read(STAGED_OUT).as_deref() == Some(&wanted) {
        context.output.say("all was staged out before");
        return Ok(());
    }
    let inside = up::of(&config, context);
    let is_first = record.nodes.first() == Some(&record.node);
    if is_first {
        let gone = places_that_go(dir);
        specs.iter().try_for_each(|spec| stage::outlives(spec, &gone))?;
    }
    dir.forget(STAGED_OUT);
    dir.put(UNSAVED, &wanted)?;
    let result = if is_first {
        first(&specs, dir, &record, &inside).await
    } else {
        notes::wait(&inside).await
    };
    result.map_err(|error| kept(error, dir, &record, context))?;
    dir.rename(UNSAVED, STAGED_OUT)?;
    if is_first && record.nodes.len() > 1 {
        linger(&config, &record).await;
    }
    Ok(())
}

async fn first(specs: &[Spec], dir: &JobDir, record: &Record, inside: &Context) -> Result<()> {
    let session = inside.session().await?;
    let tag = format!("{} {}", record.job, dir.path().display());
    let copied = async {
        for spec in specs {
            stage::copy_out(&session, spec, &tag, inside).await?;
        }
        Ok(())
    };
    let result = notes::telling(&session, copied).await;
    session.close(result).await
}

/// Says where the data is. Failures of single files have been told by now.
fn kept(error: Error, dir: &JobDir, record: &Record, context: &Context) -> Error {
    if error.kind != Kind::Told {
        context.output.tell(&error);
    }
    Error::work(format!(
        "nothing was removed: the files of job {} are in its directory on {}, here {}",
        record.job,
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
        .map(|(_, process)| PathBuf::from(process.note))
        .chain([dir.path().to_path_buf()])
        .collect()
}

/// Waits a little until the other servers have ended: those who wait for the verdict read it from this node.
async fn linger(config: &Config, record: &Record) {
    let begin = Instant::now();
    while begin.elapsed() < LINGER && answering(config, &record.nodes).await > 1 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
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
    job: &str,
    dir: Option<&JobDir>,
    stopped: &[String],
    context: &Context,
) -> Result<()> {
    let is_removed = dir.is_some() && !wish.keep;
    let value = serde_json::json!({
        "job": job, "dir": dir.map(JobDir::path), "stopped": stopped, "removed": is_removed,
    });
    context.output.result(&value, |out| {
        use std::io::Write;
        match dir.map(|dir| dir.path().display()) {
            None => writeln!(out, "nothing of job {job} is on this node"),
            Some(dir) if is_removed => writeln!(out, "job {job} is down here: removed {dir}"),
            Some(dir) => writeln!(out, "job {job} is stopped here; the data stays in {dir}"),
        }
    })
}
