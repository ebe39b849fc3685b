//! `covey mount`: the file system as a directory of this machine.

pub mod fstab;
mod takeover;

use super::Context;
use super::cluster::{Cluster, Daemon, Process, detach, mounts, spawn};
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use covey_mount::End;
use covey_stripe::ops::Consistency;
use rustix::process::Signal;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file system type that /proc/self/mountinfo shows.
pub const KIND: &str = "fuse.covey";
/// How long it may take until the mount is there.
const START_WAIT: Duration = Duration::from_secs(15);

/// Mount the file system
///
/// The mount is served by a process in the background until `covey umount`, `covey down` or the end
/// of the machine. Root, and the user who runs the servers, may mount; the mount is for its owner
/// alone unless --allow-other. Requests to a dead server fail within 3 s; with --hard they wait
/// until it is back, or until a signal.
///
/// EXAMPLES
///
///     covey mount ~/covey
///     covey mount /mnt/covey --hard --allow-other
///     covey mount --foreground /mnt/covey      for systemd and for looking at errors
///     covey mount --consistency close-to-open ~/covey      as in NFS
///
/// Where `mount.covey` is installed, a line of /etc/fstab mounts it, too:
///
///     /etc/covey/covey.toml  /mnt/covey  covey  _netdev,nofail,hard  0 0
///
/// Its options are ro, noexec, hard, private (not for other users), consistency=MODE and threads=N.
/// Where the same cluster is mounted there already, that is no error. Set-user-ID bits and device files
/// never count on a mount: nosuid and nodev are always so, and suid and dev change nothing.
///
/// With --takeover a mount that is in use passes to a new process, most often of a newer version, and
/// no program notices more than a moment's pause: files stay open, locks stay held, and a program that
/// waits for a lock goes on waiting. Only the user who mounted it may do so. The consistency mode,
/// --read-only, --no-exec, --allow-other and --no-delegations stay as they are; so do --hard and
/// --threads unless they are given. If anything fails, the process that served the mount goes on as
/// before, and the error says why.
///
///     covey mount --takeover /mnt/covey
///
/// Linux's own client mounts the same files from any node: mount -t 9p, see `covey help export`.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The directory, made if missing [default: /mnt/covey for root, else ~/covey]
    #[arg(value_name = "MNT")]
    mountpoint: Option<PathBuf>,
    /// Stay in the foreground
    #[arg(long)]
    foreground: bool,
    /// Take the mount over from the process that serves it, while it is in use
    #[arg(long, conflicts_with_all = ["allow_other", "read_only", "no_exec", "consistency", "no_delegations"])]
    takeover: bool,
    #[command(flatten)]
    wish: Wish,
    /// Leave the terminal's session: what a mount in the background is started with
    #[arg(long, hide = true)]
    detached: bool,
    /// Do nothing where the same cluster is mounted there already: what `mount -a` wants
    #[arg(long, hide = true, conflicts_with_all = ["takeover", "foreground"])]
    unless_mounted: bool,
}

/// How the mount shall behave.
#[derive(clap::Args, Clone, Debug)]
pub struct Wish {
    /// Wait for dead servers for as long as it takes, instead of an error
    #[arg(long)]
    hard: bool,
    /// Let other users in; needs `user_allow_other` in /etc/fuse.conf unless root
    #[arg(long)]
    allow_other: bool,
    /// Refuse every change
    #[arg(long)]
    read_only: bool,
    /// Execute no programs from it
    #[arg(long)]
    no_exec: bool,
    /// How soon changes are seen, for files and directories without their own mode: strict,
    /// close-to-open or job-scratch, see `covey help consistency`
    #[arg(long, value_name = "MODE", default_value = Consistency::Strict.name(),
          value_parser = super::consistency::parse)]
    consistency: Consistency,
    /// Say everything that is done to new files, and removals, at once, for up to four times the requests
    ///
    /// Without it, what is written to a new file that nobody else has asked for yet, its times and
    /// mode, and its name where nobody else works in the directory, are said together: at its close, at
    /// the latest after 5 ms, and before anybody else is told of the file. The same holds for removals of
    /// several files of a directory in a row. A mount process that is killed takes that with it, of files
    /// that are still open or were just removed. With it, each close(2) ends the process's fcntl locks on
    /// the file, also where a process that has only read many files takes its first lock.
    #[arg(long)]
    no_delegations: bool,
    /// Threads that serve the mount; more than one helps only if one is always busy [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
}

impl Wish {
    /// What a mount without options does, in this mode.
    pub fn in_mode(consistency: Consistency) -> Self {
        Wish {
            hard: false,
            allow_other: false,
            read_only: false,
            no_exec: false,
            consistency,
            no_delegations: false,
            threads: None,
        }
    }
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let mountpoint = args.mountpoint.clone().or_else(default_mountpoint).ok_or_else(|| {
        Error::user("cannot choose a directory for the mount: HOME is not set")
            .hint("covey mount MNT")
    })?;
    let mountpoint =
        std::path::absolute(&mountpoint).cannot(|| format!("find {}", mountpoint.display()))?;
    if args.foreground && args.detached {
        detach();
    }
    if args.takeover {
        return takeover::run(config, &mountpoint, &args, context).await;
    }
    if args.foreground {
        let is_kept = !args.detached && std::env::var_os("INVOCATION_ID").is_some();
        return in_foreground(config, mountpoint, args.wish, is_kept).await;
    }
    if mounts::kind_at(&mountpoint).is_some_and(|kind| kind == KIND) {
        if args.unless_mounted
            && covey_mount::cluster_of(&mountpoint).await.as_ref() == Some(&config.id)
        {
            return say(context, &config, &mountpoint, "already mounted");
        }
        return Err(Error::user(format!(
            "cannot mount at {}: Covey is mounted there already",
            mountpoint.display()
        ))
        .hint(format!("`covey umount {}` unmounts it", mountpoint.display())));
    }
    in_background(&config, &mountpoint, &args.wish).await?;
    say(context, &config, &mountpoint, "mounted")
}

fn say(context: &Context, config: &Config, mountpoint: &Path, how: &str) -> Result<()> {
    let value = serde_json::json!({ "mount": mountpoint, "cluster": config.name });
    context.output.result(&value, |out| {
        use std::io::Write;
        writeln!(out, "{how} cluster {} at {}", config.name, mountpoint.display())
    })
}

fn default_mountpoint() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        Some("/mnt/covey".into())
    } else {
        std::env::var_os("HOME").map(|home| PathBuf::from(home).join("covey"))
    }
}

/// The mount runs on a thread of its own, because it brings its own runtime.
async fn in_foreground(
    config: Config,
    mountpoint: PathBuf,
    wish: Wish,
    is_kept: bool,
) -> Result<()> {
    may_mount(&mountpoint)?;
    let pid_file = mounts::own_pid_file(&config, &mountpoint)?;
    if let (Some(file), Some(mut me)) = (&pid_file, Process::now(std::process::id())) {
        me.note = mountpoint.to_string_lossy().into_owned();
        me.write(file)?;
    }
    let what = format!("mount at {}", mountpoint.display());
    let options = covey_mount::Options {
        hard: wish.hard,
        allow_other: wish.allow_other,
        read_only: wish.read_only,
        no_exec: wish.no_exec,
        threads: usize::from(wish.threads.unwrap_or(1)),
        consistency: wish.consistency,
        delegations: !wish.no_delegations,
        is_kept,
    };
    let serving = move || covey_mount::mount_cluster(&config, &mountpoint, &options);
    let end = on_thread(serving).await;
    if let Some(file) = pid_file
        && !matches!(end, Ok(End::Given))
    {
        let _ = std::fs::remove_file(file);
    }
    end.cannot(|| what).map(drop)
}

async fn on_thread(
    serve: impl FnOnce() -> anyhow::Result<End> + Send + 'static,
) -> anyhow::Result<End> {
    let (done, ended) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("mount".to_string());
    thread.spawn(move || drop(done.send(serve())))?;
    ended.await.unwrap_or_else(|_| Err(anyhow::anyhow!("the mount's thread has panicked")))
}

/// Starts the mount in the background and waits until it is there.
pub async fn in_background(config: &Config, mountpoint: &Path, wish: &Wish) -> Result<()> {
    may_mount(mountpoint)?;
    if !mountpoint.exists() {
        std::fs::create_dir_all(mountpoint)
            .cannot(|| format!("make directory {}", mountpoint.display()))?;
    }
    let config_file = std::path::absolute(&config.file).cannot(|| "find the configuration")?;
    let mut arguments: Vec<OsString> = vec![
        "--config".into(),
        config_file.into(),
        "mount".into(),
        "--foreground".into(),
        "--detached".into(),
    ];
    let flags = [
        ("--hard", wish.hard),
        ("--allow-other", wish.allow_other),
        ("--read-only", wish.read_only),
        ("--no-exec", wish.no_exec),
        ("--no-delegations", wish.no_delegations),
    ];
    arguments
        .extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| OsString::from(flag)));
    let threads = wish.threads.map(|threads| threads.to_string());
    arguments.extend(threads.into_iter().flat_map(|threads| ["--threads".into(), threads.into()]));
    arguments.extend(["--consistency".into(), wish.consistency.name().into()]);
    arguments.extend(["--".into(), mountpoint.into()]);
    let mut daemon = spawn(&arguments, &log_file(config, mountpoint)?, None)?;
    wait(&mut daemon, mountpoint).await
}

/// Tells the two common reasons before anything is started.
fn may_mount(mountpoint: &Path) -> Result<()> {
    let what = format!("cannot mount at {}", mountpoint.display());
    if !Path::new("/dev/fuse").exists() {
        return Err(Error::work(format!("{what}: there is no /dev/fuse here"))
            .hint("load it with `modprobe fuse`; in a container pass --device /dev/fuse")
            .hint("without a mount, `covey ls`, `covey cat`, `covey cp` reach the same files"));
    }
    match mountpoint.symlink_metadata() {
        Ok(meta) if !meta.is_dir() => Err(Error::user(format!("{what}: it is not a directory"))
            .hint("name a directory, or one that does not exist yet")),
        _ => Ok(()),
    }
}

async fn wait(daemon: &mut Daemon, mountpoint: &Path) -> Result<()> {
    let begin = Instant::now();
    loop {
        if mounts::kind_at(mountpoint).is_some_and(|kind| kind.starts_with("fuse")) {
            return Ok(());
        }
        let late = begin.elapsed() > START_WAIT;
        let end = daemon
            .ended()
            .or(late.then(|| format!("nothing was mounted within {} s", START_WAIT.as_secs())));
        if let Some(end) = end {
            let _ = daemon.process.signal(Signal::TERM);
            return Err(failed(mountpoint, &end, daemon));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn failed(mountpoint: &Path, end: &str, daemon: &Daemon) -> Error {
    let error = daemon.told(|| format!("cannot mount at {}: {end}", mountpoint.display()));
    let tail = daemon.tail();
    let is_forbidden =
        tail.contains("/dev/fuse") && tail.to_lowercase().contains("permission denied");
    let error = if is_forbidden {
        error.hint(
            "FUSE is not permitted to users here: root may allow it with `chmod 666 /dev/fuse`",
        )
    } else {
        error
    };
    error.hint("without a mount, `covey ls`, `covey cat`, `covey cp` reach the same files")
}

/// Where a mount in the background says what it has to say.
pub fn log_file(config: &Config, mountpoint: &Path) -> Result<PathBuf> {
    let name = format!("mount-{}", mountpoint.to_string_lossy().replace('/', "%"));
    if let Some(cluster) = Cluster::of_trusted(config) {
        return Ok(cluster.log_file(&name));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(Path::new("/var/log/covey").join(format!("{name}.log")));
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = state.or_else(home).ok_or_else(|| {
        Error::user("cannot choose a place for the log: HOME is not set")
            .hint("--foreground needs no log")
    })?;
    Ok(state.join("covey").join(format!("{name}.log")))
}
