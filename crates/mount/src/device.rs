//! A mount: its options, its device, the threads that serve it, and its end.

use crate::files::Files;
use crate::handlers::Session;
use crate::kernel::Kernel;
use crate::transport::{self, End, Left, Served};
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
use tokio::signal::unix::{Signal, SignalKind, signal};

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
    /// The kernel executes no program of it.
    pub no_exec: bool,
    /// The mode of files and directories that have none of their own.
    pub consistency: Consistency,
    /// The close of a process that reads files in turn and takes no locks sends nothing. An fcntl lock that it takes all the
    /// same may last until the last copy of the descriptor is closed.
    pub quiet_closes: bool,
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
            no_exec: false,
            consistency: Consistency::Strict,
            quiet_closes: true,
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
        no_exec: options.no_exec,
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
    let served = Served::new(begin(&device, files, options)?);
    serve_all(vec![Left { device, messages: Vec::new() }], threads, served).await.map(drop)
}

/// A session with nothing open.
pub(crate) fn begin<F: Files>(
    device: &OwnedFd,
    files: Arc<F>,
    options: MountOptions,
) -> anyhow::Result<Arc<Session<F>>> {
    let speaking = device.try_clone().context("cannot copy the FUSE device")?;
    let kernel = Kernel::new(speaking).context("cannot start a thread")?;
    files.on_revoke(kernel.forget());
    Ok(Arc::new(Session::new(files, options, kernel)))
}

/// The same of a session that has begun, with the devices that there are; where they are fewer than threads, the first is
/// cloned.
pub(crate) async fn serve_all<F: Files>(
    devices: Vec<Left>,
    threads: usize,
    served: Served<Session<F>>,
) -> anyhow::Result<End> {
    let mut devices = devices.into_iter();
    let first = devices.next().context("there is no FUSE device")?;
    let mut more: Vec<Left> = devices.collect();
    while more.len() + 1 < threads {
        let device = clone_fd(&first.device).context("cannot clone the FUSE device")?;
        more.push(Left { device, messages: Vec::new() });
    }
    let is_alone = more.is_empty();
    for (index, device) in more.into_iter().enumerate() {
        let served = served.clone();
        let serving = move || {
            let runtime = local_runtime()?;
            runtime.block_on(serve_device(device, served, None))
        };
        let index = index + 1;
        thread::Builder::new().name(format!("fuse-{index}")).spawn(move || {
            if let Err(error) = serving() {
                // The kernel waits for answers to what this thread has read: they will not come.
                tracing::error!("a thread of the mount ended: {error:#}");
            }
        })?;
    }
    // One of several threads does not see what the others are asked.
    let front = if is_alone { Front::new() } else { None };
    serve_device(first, served, front).await
}

async fn serve_device<F: Files>(
    device: Left,
    served: Served<Session<F>>,
    front: Option<Front>,
) -> anyhow::Result<End> {
    let session = served.service.clone();
    // As a task of its own it is woken without a system call.
    let serving = tokio::task::spawn_local(transport::serve(device, served, front));
    let end = serving.await;
    if !matches!(end, Ok(Ok(End::Given))) {
        // A close that was interrupted may have left something, which a dead server may never take.
        let _ = tokio::time::timeout(LAZY_GRACE, session.settle()).await;
    }
    end.context("the mount's task is lost")?.context("the FUSE device failed")
}

/// A runtime for [`serve`].
pub fn local_runtime() -> anyhow::Result<LocalRuntime> {
    let mut builder = Builder::new_current_thread();
    // What is started by a thread that has moved is not to stay there.
    builder.on_thread_start(covey_io::os::place::everywhere);
    builder.enable_all().build_local(LocalOptions::default()).context("cannot start a runtime")
}

/// Unmounts at SIGTERM, SIGINT or SIGHUP, and ends the process when what is still open has had [`LAZY_GRACE`], or at the
/// next signal.
///
/// It is made before the mount: a signal that comes between the two is not missed, and when the mount is there nothing that is
/// needed to take it away can fail any more.
pub struct Unmounter {
    mounted: std::sync::mpsc::Sender<Unmount>,
}

type Unmount = Box<dyn FnOnce() -> io::Result<()> + Send>;

impl Unmounter {
    /// Holds the signals back from now on. If this is dropped without a mount they do what they did before: they end the process.
    pub fn start() -> anyhow::Result<Unmounter> {
        let (mounted, made) = std::sync::mpsc::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let signals = {
            let _inside = runtime.enter();
            Signals::catch()?
        };
        let thread = thread::Builder::new().name("signals".into());
        thread.spawn(move || {
            let unmount = made.recv().ok();
            let had_mount = unmount.is_some();
            runtime.block_on(signals.obey(unmount));
            std::process::exit(i32::from(!had_mount));
        })?;
        Ok(Unmounter { mounted })
    }

    /// The file system is there: `unmount` takes it away, lazily as [`covey_io::os::mount::umount`] does.
    pub fn mounted(self, unmount: impl FnOnce() -> io::Result<()> + Send + 'static) {
        // The thread waits for nothing else.
        let _ = self.mounted.send(Box::new(unmount));
    }
}

/// The signals that ask a mount to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn catch() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }

    async fn obey(mut self, unmount: Option<Unmount>) {
        self.any().await;
        let Some(unmount) = unmount else { return };
        if let Err(error) = unmount() {
            tracing::warn!("cannot unmount: {error}");
        }
        let _ = tokio::time::timeout(LAZY_GRACE, self.any()).await;
    }
}

/// How long open files are served after a signal has unmounted the file system.
pub const LAZY_GRACE: Duration = Duration::from_secs(10);
