//! `covey mount --takeover`: a mount in use passes to this version of the program.

use super::{Args, KIND, log_file, on_thread};
use crate::cmd::Context;
use crate::cmd::cluster::{Cluster, Daemon, Process, mounts, spawn};
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use covey_mount::{End, Successor, server_of, take_over_cluster};
use rustix::process::Signal;
use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a takeover may take: the process before finishes what it does, and settles with the servers.
const TAKEOVER_WAIT: Duration = Duration::from_secs(120);

/// Takes the mount over.
pub async fn run(config: Config, mountpoint: &Path, args: &Args, context: &Context) -> Result<()> {
    let place = mounts::place_of(mountpoint)?;
    if mounts::kind_at(&place).is_none_or(|kind| kind != KIND) {
        return Err(Error::user(format!(
            "cannot take over the mount at {}: Covey is not mounted there",
            place.display()
        ))
        .hint(format!("`covey mount {}` mounts it", place.display())));
    }
    let threads = args.wish.threads.map(usize::from);
    if args.foreground {
        let wish = Successor { hard: args.wish.hard, threads };
        return in_foreground(config, place, wish).await;
    }
    let before = server_of(&place).await;
    let pid = in_background(&config, &place, args).await?;
    let value = serde_json::json!({
        "mount": place, "cluster": config.name, "pid": pid, "before": before,
    });
    context.output.result(&value, |out| {
        use std::io::Write;
        let before = before.map_or(String::new(), |pid| format!(" from process {pid}"));
        writeln!(out, "process {pid} has taken over the mount at {}{before}", place.display())
    })
}

async fn in_foreground(config: Config, mountpoint: PathBuf, wish: Successor) -> Result<()> {
    let cluster = Cluster::of_trusted(&config);
    let what = format!("take over the mount at {}", mountpoint.display());
    let file = mounts::own_pid_file(&config, &mountpoint)?;
    let taken_file = std::sync::Arc::new(std::sync::Mutex::new(None));
    let kept = taken_file.clone();
    let serving = move || {
        let is_taken = |before| {
            if let Err(error) = say_main_pid() {
                tracing::warn!("cannot tell systemd whose process the mount is: {error}");
            }
            let all = cluster.as_ref().map(mounts::of).unwrap_or_default();
            let known = all.into_iter().find(|record| record.process.pid == before);
            let path = known.map(|record| record.file).or(file);
            if let (Some(path), Some(mut me)) = (path, Process::now(std::process::id())) {
                me.note = mountpoint.to_string_lossy().into_owned();
                if let Err(error) = me.write(&path) {
                    tracing::warn!("cannot write {}: {error}", path.display());
                }
                *kept.lock().expect("no holder panics") = Some(path);
            }
        };
        take_over_cluster(&config, &mountpoint, wish, is_taken)
    };
    let end = on_thread(serving).await;
    let file = taken_file.lock().expect("no holder panics").take();
    if let Some(file) = file
        && !matches!(end, Ok(End::Given))
    {
        let _ = std::fs::remove_file(file);
    }
    let end = end.cannot(|| what).map(drop);
    end.map_err(|error| error.hint("`covey help mount` says who may take a mount over"))
}

async fn in_background(config: &Config, mountpoint: &Path, args: &Args) -> Result<u32> {
    let config_file = std::path::absolute(&config.file).cannot(|| "find the configuration")?;
    let mut arguments: Vec<OsString> = vec!["--config".into(), config_file.into()];
    let words = ["mount", "--foreground", "--detached", "--takeover"];
    arguments.extend(words.map(OsString::from));
    arguments.extend(args.wish.hard.then(|| "--hard".into()));
    let threads = args.wish.threads.map(|threads| threads.to_string());
    arguments.extend(threads.into_iter().flat_map(|threads| ["--threads".into(), threads.into()]));
    arguments.extend(["--".into(), mountpoint.into()]);
    let mut daemon = spawn(&arguments, &log_file(config, mountpoint)?, None)?;
    wait(&mut daemon, mountpoint).await?;
    Ok(daemon.process.pid)
}

/// Waits until the new process serves the mount.
async fn wait(daemon: &mut Daemon, mountpoint: &Path) -> Result<()> {
    let begin = Instant::now();
    loop {
        if server_of(mountpoint).await == Some(daemon.process.pid) {
            return Ok(());
        }
        let late = begin.elapsed() > TAKEOVER_WAIT;
        let end = daemon
            .ended()
            .or(late.then(|| format!("it has not come about in {} s", TAKEOVER_WAIT.as_secs())));
        if let Some(end) = end {
            let _ = daemon.process.signal(Signal::TERM);
            let what = || format!("cannot take over the mount at {}: {end}", mountpoint.display());
            return Err(daemon
                .told(what)
                .hint("the process that served the mount goes on as before")
                .hint(format!("`fuser -vm {}` shows what uses it", mountpoint.display())));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Tells a service manager that looks after the mount which process that is from now on.
fn say_main_pid() -> io::Result<()> {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(path)))?,
    };
    let text = format!("MAINPID={}", std::process::id());
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(drop)
}
