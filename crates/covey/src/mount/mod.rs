//! The FUSE mount: our own transport on the kernel's device, and the striping client behind it.
//!
//! ```text
//!   kernel ── transport (device, tasks, interrupts) ── handlers (one per message) ── Files ── Fs
//!                └── abi (message table)
//! ```
//!
//! Each thread has its own clone of the device and its own runtime; handlers are async, so a request
//! that waits for a dead server costs no thread, and a signal ends the wait.

pub mod abi;
mod cluster;
mod files;
mod handlers;
mod syscalls;
mod transport;

pub use cluster::{Options, mount_cluster};
pub use files::Files;

use anyhow::Context;
use handlers::Session;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use transport::Interrupts;

/// Answers all groups of a user, given the user and the process's primary group.
pub type Groups = Arc<dyn Fn(u32, u32) -> Vec<u32> + Send + Sync>;

/// How a file system is mounted.
#[derive(Clone)]
pub struct MountOptions {
    /// What df shows as the device.
    pub fsname: String,
    /// Threads that serve requests, at least 1.
    pub threads: usize,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permissions too. The file system checks them in any case; this costs a
    /// GETATTR per path component.
    pub default_permissions: bool,
    /// Nothing may be changed.
    pub read_only: bool,
    /// How long the kernel may keep names.
    pub entry_timeout: Duration,
    /// How long the kernel may keep attributes.
    pub attr_timeout: Duration,
    /// How long a request other than a wait for a lock goes on after its process got a signal.
    pub interrupt_grace: Duration,
    /// Who resolves groups.
    pub groups: Groups,
}

impl Default for MountOptions {
    /// Strict: nothing is cached.
    fn default() -> Self {
        MountOptions {
            fsname: "covey".into(),
            threads: 2,
            allow_other: true,
            default_permissions: true,
            read_only: false,
            entry_timeout: Duration::ZERO,
            attr_timeout: Duration::ZERO,
            interrupt_grace: Duration::from_secs(1),
            groups: Arc::new(|_uid, gid| vec![gid]),
        }
    }
}

/// Mounts `files` and serves them in the foreground until they are unmounted. SIGTERM, SIGINT and
/// SIGHUP unmount lazily: what is open goes on for [`LAZY_GRACE`] at most.
pub fn mount<F: Files>(
    files: Arc<F>,
    mountpoint: &Path,
    options: MountOptions,
) -> anyhow::Result<()> {
    let at = || format!("cannot mount on {}", mountpoint.display());
    let fd = syscalls::fuse_mount(mountpoint, &options).with_context(at)?;
    let (ended, end) = mpsc::channel();
    let target = mountpoint.to_path_buf();
    thread::Builder::new().name("fuse-signals".into()).spawn({
        let ended = ended.clone();
        move || {
            let outcome = unmount_on_signal(&target);
            let _ = ended.send(outcome);
        }
    })?;
    thread::Builder::new().name("fuse".into()).spawn(move || {
        let _ = ended.send(serve_fuse(fd, files, options));
    })?;
    end.recv().context("all threads are gone")?
}

/// Serves a mounted device until it is unmounted, on `options.threads` threads of its own.
pub fn serve_fuse<F: Files>(
    fd: OwnedFd,
    files: Arc<F>,
    options: MountOptions,
) -> anyhow::Result<()> {
    let threads = options.threads.max(1);
    let session = Arc::new(Session::new(files, options));
    let interrupts = Arc::new(Interrupts::default());
    let mut clones = Vec::with_capacity(threads);
    for _ in 1..threads {
        clones.push(syscalls::clone_fd(&fd).context("cannot clone the FUSE device")?);
    }
    clones.push(fd);
    let (ended, end) = mpsc::channel();
    for (index, fd) in clones.into_iter().enumerate() {
        let (session, interrupts, ended) = (session.clone(), interrupts.clone(), ended.clone());
        thread::Builder::new().name(format!("fuse-{index}")).spawn(move || {
            let _ = ended.send(serve_thread(fd, session, interrupts));
        })?;
    }
    drop(ended);
    // A thread that failed ends it all: the kernel gives its requests to nobody else.
    end.iter().collect()
}

fn serve_thread<F: Files>(
    fd: OwnedFd,
    session: Arc<Session<F>>,
    interrupts: Arc<Interrupts>,
) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .context("cannot start a runtime")?;
    // As a task of its own it is woken without a system call.
    let serving =
        async { tokio::task::spawn_local(transport::serve(fd, session, interrupts)).await };
    runtime.block_on(serving)?.context("the FUSE device failed")
}

fn unmount_on_signal(target: &Path) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut any = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
            }
        };
        any().await;
        if let Err(error) = syscalls::unmount(target) {
            tracing::warn!("cannot unmount {}: {error}", target.display());
        }
        // A second signal does not wait for what is open.
        let _ = tokio::time::timeout(LAZY_GRACE, any()).await;
        Ok(())
    })
}

/// How long open files are served after a signal has unmounted the file system.
pub const LAZY_GRACE: Duration = Duration::from_secs(10);
