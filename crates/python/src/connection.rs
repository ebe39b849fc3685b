//! The connection to a cluster: a thread that runs it, and how calls wait.
//!
//! A call's future is polled on the thread that made the call, without the GIL. Every 50 ms it looks
//! for signals, so that Ctrl-C ends a wait: dropping the future is how one ends. The library bounds
//! the waits anyway.
//!
//! A fork copies the memory but not the thread. The child leaks what it has inherited, whose locks may
//! be held by threads that are not there any more, and makes its own when it first needs one.

use crate::error::{self, Failed};
use covey_cluster::config::{self, Place};
use covey_cluster::process_name;
use covey_stripe::client::{Caching, Fs, Options};
use covey_stripe::ops::Caller;
use covey_wire::List;
use pyo3::prelude::*;
use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A session with the cluster, of the process that made it.
pub struct Connection {
    /// There until it is dropped.
    parts: Option<Parts>,
    pid: u32,
    /// Distinguishes this one from others: files of theirs must be opened again.
    pub generation: u64,
}

struct Parts {
    fs: Fs,
    runtime: Handle,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Connection {
    /// The file system.
    pub fn fs(&self) -> &Fs {
        &self.parts().fs
    }

    fn parts(&self) -> &Parts {
        self.parts.as_ref().expect("it is dropped with the connection")
    }

    /// Whether this process has made it.
    pub fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Runs a call to its end, or until a signal's handler raises.
    pub fn wait<T: Send>(
        &self,
        py: Python<'_>,
        call: impl Future<Output = T> + Send,
    ) -> PyResult<T> {
        wait_on(py, &self.parts().runtime, call)
    }

    /// The same for what can fail, on a path.
    pub fn ask<T: Send>(
        &self,
        py: Python<'_>,
        path: &std::ffi::OsStr,
        call: impl Future<Output = covey_stripe::client::Result<T>> + Send,
    ) -> PyResult<T> {
        self.wait(py, call)?.map_err(|error| error::raised(py, error, path))
    }

    fn open(cluster: &Cluster, py: Python<'_>) -> PyResult<Connection> {
        let config = config::load_found(&cluster.place).map_err(error::unusable)?;
        if config.id != cluster.id {
            return Err(error::another_cluster(&cluster.file(), &config.id, &cluster.id));
        }
        let (runtime, _stop) = start()?;
        let (name, caching) = (process_name::in_library(), Caching::Leases);
        let options = Options { name, caching, delegations: true, ..Options::default() };
        let connecting = async { covey_cluster::connect(&config, options).await };
        let fs = wait_on(py, &runtime, connecting)?.map_err(error::unusable)?;
        Ok(Connection {
            parts: Some(Parts { fs, runtime, _stop }),
            pid: std::process::id(),
            generation: GENERATION.fetch_add(1, Ordering::Relaxed),
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.parts.take());
        }
    }
}

/// Where the cluster is described, and the connection to it, if there is one now.
pub struct Cluster {
    place: Place,
    /// Which cluster the file named when it was found: no later session may be one with another.
    id: String,
    now: Mutex<Option<Arc<Connection>>>,
}

impl Cluster {
    /// The cluster of a file, or the one that the commands would find.
    pub fn find(named: Option<PathBuf>) -> PyResult<Cluster> {
        let named = named.or_else(|| std::env::var_os("COVEY_CONFIG").map(PathBuf::from));
        let place = config::find(named.as_deref()).map_err(error::unusable)?.absolute();
        let id = config::load_found(&place).map_err(error::unusable)?.id;
        Ok(Cluster { place, id, now: Mutex::default() })
    }

    /// The cluster's ID.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The file.
    pub fn file(&self) -> PathBuf {
        self.place.file().to_owned()
    }

    /// What distinguishes the cluster as its file says it now: all that it says, and which file the key is in.
    pub fn identity(&self) -> PyResult<String> {
        let config = config::load_found(&self.place).map_err(error::unusable)?;
        let key = config.key_file.as_ref().and_then(|file| file.metadata().ok());
        let key =
            key.map(|meta| (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()));
        Ok(format!("{} {key:?}", config::render(&config)))
    }

    /// The connection of this process, made where there is none.
    pub fn connection(&self, py: Python<'_>) -> PyResult<Arc<Connection>> {
        if let Some(known) = self.existing() {
            return Ok(known);
        }
        // The lock is free meanwhile: of two threads that connect, the first to be done wins.
        let new = Arc::new(Connection::open(self, py)?);
        let (kept, lost) = {
            let mut now = self.lock();
            match now.as_ref().filter(|known| known.is_ours()) {
                Some(known) => (known.clone(), Some(new)),
                None => {
                    *now = Some(new.clone());
                    (new, None)
                }
            }
        };
        if let Some(lost) = lost {
            farewell(py, &lost)?;
        }
        Ok(kept)
    }

    /// The connection of this process, if there is one.
    pub fn existing(&self) -> Option<Arc<Connection>> {
        self.lock().clone().filter(|known| known.is_ours())
    }

    /// Ends the session, so that what it has open is released at once. A later call makes a new one.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(connection) = self.existing() else { return Ok(()) };
        *self.lock() = None;
        farewell(py, &connection)
    }

    /// Held only under the GIL, and never while it is released.
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn farewell(py: Python<'_>, connection: &Connection) -> PyResult<()> {
    let bye = async {
        let _ = tokio::time::timeout(BYE_PATIENCE, connection.fs().bye()).await;
    };
    connection.wait(py, bye)
}

/// On whose behalf this process acts at this moment.
pub fn caller() -> Caller {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let groups = rustix::process::getgroups().unwrap_or_default();
    let mut groups: Vec<u32> = groups.into_iter().map(|group| group.as_raw()).collect();
    if !groups.contains(&gid) {
        groups.insert(0, gid);
    }
    Caller { uid, gid, groups: List(groups) }
}

/// Starts a thread that runs connections until what is answered beside its handle is dropped.
fn start() -> Result<(Handle, oneshot::Sender<()>), Failed> {
    let (tell, told) = mpsc::sync_channel(1);
    let (stop, stopped) = oneshot::channel();
    std::thread::Builder::new().name("covey".into()).spawn(move || run(&tell, stopped))?;
    let runtime = told.recv().map_err(|_| std::io::Error::other("the client's thread ended"))??;
    Ok((runtime, stop))
}

fn run(tell: &mpsc::SyncSender<std::io::Result<Handle>>, stopped: oneshot::Receiver<()>) {
    match tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => {
            let _ = tell.send(Ok(runtime.handle().clone()));
            let _ = runtime.block_on(stopped);
            // What was still on its way, such as the news of a file's close, has a moment.
            runtime.block_on(async { tokio::time::sleep(LINGER).await });
        }
        Err(error) => drop(tell.send(Err(error))),
    }
}

fn wait_on<T: Send>(
    py: Python<'_>,
    runtime: &Handle,
    call: impl Future<Output = T> + Send,
) -> PyResult<T> {
    let mut call = Box::pin(call);
    let pid = std::process::id();
    let parker = Arc::new(Parker { thread: std::thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(parker.clone());
    loop {
        let polled = call.as_mut();
        if let Some(done) = py.detach(|| poll_for(SIGNALS_EVERY, runtime, polled, &parker, &waker))
        {
            return Ok(done);
        }
        let signals = py.check_signals();
        if std::process::id() != pid {
            // A signal's handler has forked. What the call waits for is the parent's, and so are its locks.
            std::mem::forget(call);
            signals?;
            return Err(error::forked());
        }
        signals?;
    }
}

fn poll_for<T>(
    time: Duration,
    runtime: &Handle,
    mut call: Pin<&mut (impl Future<Output = T> + Send)>,
    parker: &Parker,
    waker: &Waker,
) -> Option<T> {
    let _runtime = runtime.enter();
    let end = Instant::now() + time;
    loop {
        if let Poll::Ready(done) = call.as_mut().poll(&mut Context::from_waker(waker)) {
            return Some(done);
        }
        while !parker.woken.swap(false, Ordering::Acquire) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The flag stays as it is: the poll of the next round sees what came meanwhile.
                return None;
            }
            std::thread::park_timeout(left);
        }
    }
}

/// Where a thread sleeps.
struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

static GENERATION: AtomicU64 = AtomicU64::new(1);
/// How soon a signal's handler runs while a call waits.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);
const BYE_PATIENCE: Duration = Duration::from_secs(1);
const LINGER: Duration = Duration::from_millis(100);
