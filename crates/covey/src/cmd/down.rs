//! `covey down`: the embedded cluster of this machine, stopped.

use super::cluster::mounts::{self, Unmount};
use super::cluster::{Cluster, Process, Recorded, is_short_socket_dir, records};
use super::job_fs::trust::user;
use super::ping::servers;
use super::{Context, job_fs};
use crate::error::{Error, Result};
use crate::output::Output;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a server may take to finish what it has begun.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// Stop the cluster that `covey up` started; its data stays
///
/// Unmounts the cluster's mounts, then asks each server to stop, and kills it if it does not within
/// 10 s. Doing it twice is no error. With names of nodes only those are stopped, mounts stay, and
/// `covey up` starts them again.
///
/// EXAMPLES
///
///     covey down
///     covey down io3
///     covey down --dir /scratch/c
///
/// JOBS
///
/// With --job it ends what `covey up --job` has made, and removes it. Run it once on each node:
///
///     srun --overlap --ntasks-per-node=1 covey down --job --stage-out /output:output
///     covey down --job 7                           without copying anything out
///
/// A file that is staged out has its name when it is whole and on disk; before that it is called
/// .covey-part-*. When a stage-out fails on the first node, or is cut off, nothing is removed on any
/// node and the exit code is 1; the same command tries again. Until then `covey down --job` removes
/// nothing, unless with --discard. Doing it twice is no error, and goes on where the first was killed.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Only these nodes
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// Where the cluster lives [default: /var/lib/covey for root, else ~/.local/share/covey]; with
    /// --job where the job's directory was made [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    job: job_fs::args::Down,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    if args.job.is_meant() {
        return match args.job.wish(args.dir) {
            Some(wish) => job_fs::down::run(&wish, context).await,
            None => Ok(()),
        };
    }
    let dir = match args.dir {
        Some(dir) => Some(dir),
        None => Cluster::named_by(context)?,
    };
    let named = dir.is_some();
    let cluster = Cluster::at(dir.as_deref())?;
    if !cluster.dir.join("lock").is_file() {
        if named && !cluster.dir.exists() {
            return Err(Error::user(format!(
                "cannot stop the cluster in {}: there is none",
                cluster.dir.display()
            ))
            .hint("`covey up` tells where the cluster lives"));
        }
        return tell(&cluster, &[], context);
    }
    let _lock = cluster.lock(&context.output).await?;
    let stopped = if args.nodes.is_empty() {
        stop_all(&cluster, &context.output).await?
    } else {
        let config = cluster.config()?;
        for name in &args.nodes {
            config.node(name)?;
        }
        let mut files = pid_files(&cluster)?;
        files.retain(|(name, _)| args.nodes.contains(name));
        stop_group(&cluster, &files, &context.output).await?
    };
    tell(&cluster, &stopped, context)
}

/// Takes the lock and stops everything: for `covey up --foreground`.
pub async fn take_down(cluster: &Cluster, output: &Output) -> Result<()> {
    let _lock = cluster.lock(output).await?;
    stop_all(cluster, output).await.map(|_| ())
}

/// Stops mounts and servers, under the lock; answers which servers.
pub async fn stop_all(cluster: &Cluster, output: &Output) -> Result<Vec<String>> {
    let mut pid_files = pid_files(cluster)?;
    for record in mounts::of(cluster) {
        stop_mount(&record, output).await;
    }
    // I/O servers last: the metadata server may still have objects to give back.
    let meta = cluster.config().ok().map(|config| config.meta().name.clone());
    pid_files.sort_by_key(|(name, _)| Some(name) != meta.as_ref());
    let mut stopped = Vec::new();
    let (first, rest) = pid_files.split_at(pid_files.len().min(1));
    for group in [first, rest] {
        stopped.extend(stop_group(cluster, group, output).await?);
    }
    remove_short_sockets(cluster);
    Ok(stopped)
}

/// Sockets that had to go elsewhere, for their paths were too long, leave an empty directory. Its name says what it was for:
/// what a configuration names may be another user's choice.
fn remove_short_sockets(cluster: &Cluster) {
    let Ok(config) = cluster.config() else { return };
    for dir in config.nodes.iter().filter_map(|node| node.unix_socket()?.parent()) {
        if is_short_socket_dir(dir) {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// The servers on record, by name.
fn pid_files(cluster: &Cluster) -> Result<Vec<(String, Process)>> {
    let all = records(&cluster.run_dir()).into_iter();
    let mut found = Vec::new();
    for record in all.filter(|record| !mounts::is_mounts(&record.file)) {
        if !record.is_sound() {
            return Err(not_sound(&record));
        }
        let name = record.file.file_stem().unwrap_or_default().to_string_lossy();
        found.push((name.into_owned(), record.process));
    }
    found.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(found)
}

fn not_sound(record: &Recorded) -> Error {
    let (file, pid) = (record.file.display(), record.process.pid);
    let owner = user(record.owner);
    Error::work(format!(
        "cannot stop the cluster: {file} belongs to {owner}, and pid {pid}, which it names, does not"
    ))
    .hint(format!("where that process is the server, `kill {pid}` ends it; else remove the file"))
}

async fn stop_group(
    cluster: &Cluster,
    group: &[(String, Process)],
    output: &Output,
) -> Result<Vec<String>> {
    let mut stopped = Vec::new();
    for (name, process) in group.iter().filter(|(_, process)| process.is_alive()) {
        process.signal(Signal::TERM)?;
        stopped.push(name.clone());
    }
    for (name, process) in group {
        stop(name, process, output).await?;
        remove(&cluster.pid_file(name));
    }
    Ok(stopped)
}

async fn stop(name: &str, process: &Process, output: &Output) -> Result<()> {
    if process.wait(STOP_WAIT).await {
        return Ok(());
    }
    output.say(format!(
        "{name} (pid {}) did not stop within {} s: ending it by force",
        process.pid,
        STOP_WAIT.as_secs()
    ));
    process.signal(Signal::KILL)?;
    if process.wait(STOP_WAIT).await {
        Ok(())
    } else {
        Err(Error::work(format!("cannot end {name}: pid {} does not go away", process.pid))
            .hint("it waits inside the kernel, mostly for a disk: `dmesg` may say which"))
    }
}

/// An unmount that fails because files are open becomes lazy: a cluster that stops serves them no
/// more.
async fn stop_mount(record: &Recorded, output: &Output) {
    let Recorded { file, process, owner } = record;
    let mountpoint = Path::new(&process.note);
    if mounts::is_fuse_of(mountpoint, *owner)
        && let Err(error) = mounts::umount(mountpoint, Unmount::IfUnused).await
    {
        output.say(format!("{}: letting go of it while in use", error.message));
        if let Err(error) = mounts::umount(mountpoint, Unmount::Lazily).await {
            output.tell(&error);
        }
    }
    // With nothing mounted there is nothing left to write back.
    if !process.wait(Duration::from_secs(3)).await {
        let _ = process.signal(Signal::KILL);
        process.wait(STOP_WAIT).await;
    }
    remove(file);
}

fn remove(file: &Path) {
    let _ = std::fs::remove_file(file);
}

fn tell(cluster: &Cluster, stopped: &[String], context: &Context) -> Result<()> {
    let value = serde_json::json!({ "dir": cluster.dir, "stopped": stopped });
    context.output.result(&value, |out| {
        use std::io::Write;
        let dir = cluster.dir.display();
        match stopped.len() {
            0 => writeln!(out, "nothing was running in {dir}"),
            count => writeln!(out, "stopped {}; the data stays in {dir}", servers(count)),
        }
    })
}
