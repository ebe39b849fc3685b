//! A mount: its options, its device, the threads that serve it, and its end.

use crate::files::Files;
use crate::handlers::Session;
use crate::kernel::Kernel;
use crate::transport::{self, Interrupts};
use anyhow::Context;
use covey_io::os::mount::clone_fd;
use covey_io::os::place::Front;
use covey_stripe::ops::Consistency;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::signal::unix::{SignalKind, signal};

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
    /// The kernel checks permissions too. The file system checks them in any case, but is not asked
    /// about directories whose names the kernel has kept.
    pub default_permissions: bool,
    /// Nothing may be changed.
    pub read_only: bool,
    /// The mode of files and directories that have none of their own.
    pub consistency: Consistency,
    /// How long a request other than a wait for a lock goes on after its process got a signal.
    pub interrupt_grace: Duration,
    /// How the groups of a caller are found.
    pub groups: Groups,
}

impl Default for MountOptions {
    /// Strict: the kernel keeps what the file system holds a lease on, nothing else, where files do
    /// not say otherwise.
    fn default() -> Self {
        MountOptions {
            fsname: "covey".into(),
            threads: 2,
            allow_other: true,
            default_permissions: true,
            read_only: false,
            consistency: Consistency::Strict,
            interrupt_grace: Duration::from_secs(1),
            groups: Arc::new(|_uid, gid| vec![gid]),
        }
    }
}

/// Mounts a FUSE file system and answers its device, which must be served before anybody looks at
/// `target`.
pub fn attach(target: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let how = covey_io::os::mount::MountOptions {
        allow_other: options.allow_other,
        default_permissions: options.default_permissions,
        read_only: options.read_only,
        read_bytes_max: transport::DATA_BYTES_MAX,
    };
    covey_io::os::mount::fuse_mount(target, &options.fsname, "covey", &how)
}

/// Serves a mounted device until it is unmounted, on this thread and `options.threads - 1` more.
/// To be run on a [`tokio::runtime::LocalRuntime`]: that of the file system's own
/// connections, so that a request goes from the kernel to a server and back on one thread.
pub async fn serve<F: Files>(
    device: OwnedFd,
    files: Arc<F>,
    options: MountOptions,
) -> anyhow::Result<()> {
    let threads = options.threads;
    let speaking = device.try_clone().context("cannot copy the FUSE device")?;
    let kernel = Kernel::new(speaking).context("cannot start a thread")?;
    files.on_revoke(kernel.forget());
    let session = Arc::new(Session::new(files, options, kernel));
    let interrupts = Arc::new(Interrupts::default());
    for index in 1..threads {
        let device = clone_fd(&device).context("cannot clone the FUSE device")?;
        let (session, interrupts) = (session.clone(), interrupts.clone());
        let serving = move || {
            let runtime = local_runtime()?;
            runtime.block_on(serve_device(device, session, interrupts, None))
        };
        thread::Builder::new().name(format!("fuse-{index}")).spawn(move || {
            if let Err(error) = serving() {
                // The kernel waits for answers to what this thread has read: they will not come.
                tracing::error!("a thread of the mount ended: {error:#}");
            }
        })?;
    }
    // One of several threads does not see what the others are asked.
    let front = if threads == 1 { Front::new() } else { None };
    serve_device(device, session, interrupts, front).await
}

async fn serve_device<F: Files>(
    device: OwnedFd,
    session: Arc<Session<F>>,
    interrupts: Arc<Interrupts>,
    front: Option<Front>,
) -> anyhow::Result<()> {
    // As a task of its own it is woken without a system call.
    let serving = transport::serve(device, session.clone(), interrupts, front);
    let serving = tokio::task::spawn_local(serving);
    let served = serving.await;
    // A close that was interrupted may have left something, which a dead server may never take.
    let _ = tokio::time::timeout(LAZY_GRACE, session.settle()).await;
    served.context("the mount's task is lost")?.context("the FUSE device failed")
}

/// A runtime for [`serve`].
pub fn local_runtime() -> anyhow::Result<LocalRuntime> {
    let mut builder = Builder::new_current_thread();
    // What is started by a thread that has moved is not to stay there.
    builder.on_thread_start(covey_io::os::place::everywhere);
    builder.enable_all().build_local(LocalOptions::default()).context("cannot start a runtime")
}

/// Waits for SIGTERM, SIGINT or SIGHUP and unmounts, which is to be lazy: [`covey_io::os::mount::umount`]. Returns when what is still open has had
/// [`LAZY_GRACE`], or at the next signal.
pub fn unmount_on_signal(
    target: &Path,
    unmount: impl FnOnce(&Path) -> io::Result<()>,
) -> anyhow::Result<()> {
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
        if let Err(error) = unmount(target) {
            tracing::warn!("cannot unmount {}: {error}", target.display());
        }
        let _ = tokio::time::timeout(LAZY_GRACE, any()).await;
        Ok(())
    })
}

/// How long open files are served after a signal has unmounted the file system.
pub const LAZY_GRACE: Duration = Duration::from_secs(10);
