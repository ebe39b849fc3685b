//! Starting workers: processes by default, threads on request.

use super::host::Wish;
use anyhow::Context;
use covey_io::os::program::{self, pin, private_copy, wait_for_hangup};
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

/// A worker that runs.
pub(super) enum Running {
    Process(Child),
    Thread(oneshot::Receiver<std::io::Result<i32>>),
}

impl Running {
    /// How it ended: None if it did what its program says.
    pub async fn ended(&mut self) -> Option<String> {
        match self {
            Running::Process(child) => match child.wait().await {
                Ok(status) if status.success() => None,
                Ok(status) => Some(status.to_string()),
                Err(error) => Some(error.to_string()),
            },
            Running::Thread(status) => match status.await {
                Ok(Ok(0)) => None,
                Ok(Ok(status)) => Some(format!("status {status}")),
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("its thread has panicked".into()),
            },
        }
    }

    /// Waits until a process that was killed is gone. False for a thread, which may still run.
    pub async fn gone(&mut self) -> bool {
        match self {
            Running::Process(child) => child.wait().await.is_ok(),
            Running::Thread(_) => false,
        }
    }

    /// Ends a process; a thread ends when it next asks for something.
    pub fn kill(&mut self) {
        if let Running::Process(child) = self {
            let _ = child.start_kill();
        }
    }
}

/// Starts a worker with its end of the socket.
pub(super) fn start(
    wish: &Wish,
    cpu: Option<usize>,
    socket: UnixStream,
) -> anyhow::Result<Running> {
    if wish.is_threads {
        return start_thread(wish, cpu, socket);
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.args(["cell", "work"]);
    if let Some(cpu) = cpu {
        command.arg("--cpu").arg(cpu.to_string());
    }
    command.arg(&wish.program).args(&wish.words).kill_on_drop(true);
    for (name, value) in wish.variables() {
        command.env(name, value);
    }
    let child = command.stdin(Stdio::from(OwnedFd::from(socket))).spawn();
    Ok(Running::Process(child.context("cannot start a worker process")?))
}

fn start_thread(wish: &Wish, cpu: Option<usize>, socket: UnixStream) -> anyhow::Result<Running> {
    let (tell, status) = oneshot::channel();
    let (program, words) = (wish.program.clone(), wish.words.clone());
    let run = move || {
        // Variables of the program are this worker's alone.
        let run = || {
            let (copy, _keep) = private_copy(&program)?;
            if let Some(cpu) = cpu {
                pin(cpu)?;
            }
            run(&copy, &words, socket)
        };
        // Nobody listens when the host is gone.
        let _ = tell.send(run());
    };
    std::thread::Builder::new()
        .name("worker".into())
        .spawn(run)
        .context("cannot start a thread")?;
    Ok(Running::Thread(status))
}

fn run(program: &Path, words: &[OsString], socket: UnixStream) -> std::io::Result<i32> {
    let socket = socket.into_raw_fd().to_string();
    let all = [OsString::from(socket), program.as_os_str().to_owned()];
    let words = all.iter().chain(words).map(|word| CString::new(word.as_bytes()));
    let words = words.collect::<Result<Vec<_>, _>>()?;
    program::work(library().as_deref(), program, &words)
}

/// What a worker process does: its host is at stdin. Ends with its program, or when the host is gone: also one that is
/// stopped, which the kernel kills when the thread ends that has started it, the host's own.
pub fn work(program: &Path, words: Vec<OsString>, cpu: Option<usize>) -> anyhow::Result<i32> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let watched = socket.try_clone()?;
    let program = program.to_owned();
    let worker = std::thread::Builder::new().name("worker".into()).stack_size(STACK_BYTES);
    let (tell, told) = std::sync::mpsc::channel();
    worker.spawn(move || {
        let pinned = cpu.map_or(Ok(()), pin);
        let _ = tell.send(pinned.and_then(|()| run(&program, &words, socket)));
    })?;
    std::thread::Builder::new().name("watch".into()).spawn(move || {
        wait_for_hangup(&watched);
        // The worker has a moment to say so itself, if it asks for anything.
        std::thread::sleep(std::time::Duration::from_secs(1));
        eprintln!("covey: worker: host is lost: it has ended");
        std::process::exit(1);
    })?;
    Ok(told.recv().context("the worker has panicked")??)
}

const STACK_BYTES: usize = 8 << 20;

/// Where `libcovey-cell.so` is: named by `COVEY_CELL_LIBRARY`, beside this program, or in the lib directory beside its own.
/// None where it is nowhere.
pub fn library() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("COVEY_CELL_LIBRARY") {
        return Some(named.into());
    }
    let program = std::env::current_exe().ok()?;
    let beside = program.parent()?;
    let lib = beside.parent().map(|above| above.join("lib")).unwrap_or_default();
    let all = [
        beside.join("libcovey-cell.so"),
        beside.join("libcovey_cell_lib.so"),
        lib.join("libcovey-cell.so"),
        lib.join("libcovey-cell.so.0"),
    ];
    all.into_iter().find(|file| file.is_file())
}
