//! The client of this process: one background thread, started by the first call that needs it.
//!
//! The thread runs tokio and with it all connections. A call's future is polled on the thread of the
//! program that made the call, which sleeps on a futex in between: dropping the future is how a wait
//! ends, and a signal ends it where POSIX lets one.
//!
//! A fork copies the memory but not the thread. The child forgets the client without touching it
//! (its locks may be held by threads that are not there any more) and makes its own, with a session of
//! its own, when it first needs one.

use crate::boundary::{Inside, Interruptible, Result, Stop, errno, say};
use crate::handover::Inherited;
use crate::open::Open;
use crate::settings::settings;
use covey_cluster::config::Place;
use covey_cluster::error::Cannot;
use covey_cluster::{config, error, process_name};
use covey_io::os::users::GROUPS_MAX;
use covey_ninep::tree::Errno;
use covey_stripe::client::{Fs, Opened, Options};
use covey_stripe::ops::Caller;
use covey_wire::List;
use std::future::Future;
use std::ops::Deref;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::runtime::Handle;

/// A connection to the file system, and when it was made.
pub struct Client {
    fs: Fs,
    runtime: Handle,
    /// Distinguishes this client from earlier ones: their files must be opened again.
    pub generation: u64,
    /// Where the cluster is described.
    pub config: PathBuf,
}

impl Deref for Client {
    type Target = Fs;
    fn deref(&self) -> &Fs {
        &self.fs
    }
}

/// What exists of the client.
#[derive(Default)]
pub struct Slot {
    runtime: Option<Handle>,
    client: Option<Arc<Client>>,
    /// A session from before an exec, and the files that are still open in it, until it is resumed.
    before: Option<(Inherited, Vec<Arc<Open>>)>,
}

static SLOT: Mutex<Slot> = Mutex::new(Slot { runtime: None, client: None, before: None });
static GENERATION: AtomicU64 = AtomicU64::new(0);
static HAS_COMPLAINED: AtomicBool = AtomicBool::new(false);

/// The client, connected. The first call connects, which takes three seconds at most; calls that come
/// meanwhile wait for it.
pub fn client() -> Result<Arc<Client>> {
    let mut slot = lock();
    if let Some(client) = &slot.client {
        return Ok(client.clone());
    }
    let runtime = match &slot.runtime {
        Some(runtime) => runtime.clone(),
        None => slot.runtime.insert(start()?).clone(),
    };
    let before = slot.before.as_ref().map(|(inherited, _)| inherited);
    let (fs, config, opened) = wait_on(&runtime, connect(before)).map_err(complain)?;
    let generation = GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
    let client = Arc::new(Client { fs, runtime, generation, config });
    slot.client = Some(client.clone());
    if let Some((_, opens)) = slot.before.take() {
        for one in opened {
            let keep = |left: Option<Opened>, open: &Arc<Open>| open.keep_open(generation, left?);
            // What nobody has open after all is closed.
            opens.iter().fold(Some(one), keep);
        }
    }
    Ok(client)
}

/// The client, if there is one.
pub fn existing() -> Option<Arc<Client>> {
    lock().client.clone()
}

/// Goes on with the session that this process had as another program, now, or with the first call that
/// finds the servers there.
pub fn resume(inherited: Inherited, opens: Vec<Arc<Open>>) {
    lock().before = Some((inherited, opens));
    let _ = client();
}

/// Waits for a future that cannot fail and always ends.
pub fn wait_for<T>(client: &Client, call: impl Future<Output = T>) -> T {
    wait_on(&client.runtime, call)
}

/// Runs a call to its end. The library bounds its wait, except on hard clients, where a signal ends it.
pub fn wait<T>(
    client: &Client,
    call: impl Future<Output = covey_stripe::client::Result<T>>,
) -> Result<T> {
    if settings().hard {
        wait_until(client, call, Ends::BySignal)
    } else {
        Ok(wait_on(&client.runtime, call)?)
    }
}

/// Runs a call whose wait has no bound, such as for a lock: a signal ends it with EINTR, unless its
/// handler asks for the call to go on. The caller holds nothing, so that the handler may call us.
pub fn wait_or_signal<T>(
    client: &Client,
    call: impl Future<Output = covey_stripe::client::Result<T>>,
) -> Result<T> {
    wait_until(client, call, Ends::BySignalOutside)
}

fn wait_until<T>(
    client: &Client,
    call: impl Future<Output = covey_stripe::client::Result<T>>,
    ends: Ends,
) -> Result<T> {
    run_call(&client.runtime, call, ends).unwrap_or(Err(Errno::EINTR.into())).map_err(Stop::from)
}

/// What ends a wait beside its call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Nothing: it is bounded.
    Never,
    /// A signal; what its handler asks of us cannot be served, since the caller may hold something.
    BySignal,
    /// A signal whose handler is served.
    BySignalOutside,
}

/// Ends the session, so that opens and locks go at once: the process is about to end, or to become
/// another program. A call that comes later makes a new one.
pub fn end() {
    let Some(client) = lock().client.take() else { return };
    let bye = async {
        let _ = tokio::time::timeout(BYE_PATIENCE, client.bye()).await;
    };
    wait_on(&client.runtime, bye);
    // Files that are still open refer to it.
    std::mem::forget(client);
}

/// On whose behalf this process acts at this moment.
pub fn caller() -> Caller {
    let mut groups = groups();
    // SAFETY: plain system calls without arguments.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    if !groups.contains(&gid) {
        groups.insert(0, gid);
    }
    // What a message cannot count is left out.
    groups.truncate(GROUPS_MAX);
    Caller { uid, gid, groups: List(groups) }
}

/// All groups of this process beside the effective one, however many they are.
fn groups() -> Vec<u32> {
    let mut groups = vec![0; GROUPS_FEW];
    loop {
        // SAFETY: the buffer has the length that is told.
        let count = unsafe { libc::getgroups(groups.len() as i32, groups.as_mut_ptr()) };
        match usize::try_from(count) {
            Ok(count) => {
                groups.truncate(count);
                return groups;
            }
            // Linux's NGROUPS_MAX ends it: there are more than the buffer has room for.
            Err(_) if groups.len() <= GROUPS_MAX => groups.resize(groups.len() * 4, 0),
            Err(_) => return Vec::new(),
        }
    }
}

/// The client's lock, for the time of a fork.
pub fn lock() -> MutexGuard<'static, Slot> {
    SLOT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In the child of a fork: what the parent has is not ours.
pub fn forget(slot: &mut Slot) {
    std::mem::forget(std::mem::take(slot));
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

async fn connect(before: Option<&Inherited>) -> error::Result<(Fs, PathBuf, Vec<Opened>)> {
    let named = std::env::var_os("COVEY_CONFIG").map(PathBuf::from);
    let place = match (before, &named) {
        // What is open lies in that cluster.
        (Some(before), Some(_)) => Place::Named(before.config.clone()),
        (Some(before), None) => Place::Found(before.config.clone()),
        (None, named) => config::find(named.as_deref())?,
    };
    let place = place.absolute();
    let config = config::load_found(&place)?;
    let file = place.file().to_path_buf();
    let options = Options {
        hard: settings().hard,
        // A library does not ask a directory service in the middle of somebody's program.
        name: process_name::in_library(),
        ..Options::default()
    };
    let connected = match before {
        Some(before) => covey_cluster::resume(&config, options, &before.session).await,
        None => covey_cluster::connect(&config, options).await.map(|fs| (fs, Vec::new())),
    };
    let (fs, opened) = connected.cannot(|| format!("connect to cluster {}", config.name))?;
    Ok((fs, file, opened))
}

/// Says once why nothing works: errno alone would not help anybody.
fn complain(error: error::Error) -> Errno {
    if !HAS_COMPLAINED.swap(true, Ordering::Relaxed) {
        let hints = error.hints.iter().map(|hint| format!("; hint: {hint}"));
        say(&format!("{}{}", error.message, hints.collect::<String>()));
    }
    Errno::because(Errno::EIO, error.message)
}

/// Starts the thread. It takes no signals: they are the program's.
fn start() -> Result<Handle> {
    let (tell, told) = mpsc::sync_channel(1);
    let builder = std::thread::Builder::new().name("covey".into());
    let masked = without_signals(|| builder.spawn(move || run(&tell)));
    masked.map_err(Errno::from)?;
    match told.recv() {
        Ok(Ok(handle)) => Ok(handle),
        Ok(Err(error)) => Err(Errno::from(error).into()),
        Err(_) => Err(Errno::because(Errno::EIO, "the client's thread has not started").into()),
    }
}

fn run(tell: &mpsc::SyncSender<std::io::Result<Handle>>) {
    let _inside = Inside::enter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    match runtime {
        Ok(runtime) => {
            let _ = tell.send(Ok(runtime.handle().clone()));
            runtime.block_on(std::future::pending::<()>());
        }
        Err(error) => drop(tell.send(Err(error))),
    }
}

fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are plain memory that sigfillset and pthread_sigmask fill.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let done = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        done
    }
}

fn wait_on<T>(runtime: &Handle, call: impl Future<Output = T>) -> T {
    run_call(runtime, call, Ends::Never).expect("no signal ends it")
}

/// Polls a call on this thread until it is done, or a signal ends it where one may.
///
/// A thread that is ending has lost its locals, and with them what the runtime keeps there: atexit(3)
/// handlers and the last flush of streams run so. A thread of our own then polls for it.
fn run_call<T>(runtime: &Handle, call: impl Future<Output = T>, ends: Ends) -> Option<T> {
    let lost = |error: tokio::runtime::TryCurrentError| error.is_thread_local_destroyed();
    if !Handle::try_current().err().is_some_and(lost) {
        return poll_here(runtime, call, ends);
    }
    let mut result = None;
    let work = Moved((&mut result, call));
    let polls = move || {
        let Moved((result, call)) = { work };
        let _inside = Inside::enter();
        *result = poll_here(runtime, call, ends);
    };
    // SAFETY: what the thread borrows lives until it is joined, just below.
    let thread = without_signals(|| unsafe { std::thread::Builder::new().spawn_unchecked(polls) });
    let _ = thread.ok()?.join();
    result
}

/// What a thread takes over while its maker only waits for it.
struct Moved<T>(T);

// SAFETY: the maker touches nothing of it until the thread has ended.
unsafe impl<T> Send for Moved<T> {}

fn poll_here<T>(runtime: &Handle, call: impl Future<Output = T>, ends: Ends) -> Option<T> {
    let _runtime = runtime.enter();
    let parker = Arc::new(Parker(AtomicU32::new(0)));
    let waker = Waker::from(parker.clone());
    let mut context = Context::from_waker(&waker);
    let mut call = pin!(call);
    loop {
        if let Poll::Ready(result) = call.as_mut().poll(&mut context) {
            return Some(result);
        }
        while parker.park(ends) == Woken::Signal {
            if ends != Ends::Never {
                return None;
            }
        }
    }
}

/// Where a thread of the program sleeps: 0 asleep, 1 woken.
struct Parker(AtomicU32);

#[derive(PartialEq, Eq)]
enum Woken {
    Called,
    Signal,
}

impl Parker {
    fn park(&self, ends: Ends) -> Woken {
        if ends == Ends::Never {
            return self.sleep();
        }
        let between = Interruptible::enter(ends == Ends::BySignalOutside);
        if between.is_over { Woken::Signal } else { self.sleep() }
    }

    fn sleep(&self) -> Woken {
        while self.0.swap(0, Ordering::Acquire) == 0 {
            // Without a timeout the kernel goes on by itself after a handler with SA_RESTART.
            // SAFETY: the word lives as long as the wait.
            let failed = unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.0.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    0,
                    std::ptr::null::<libc::timespec>(),
                ) < 0
            };
            if failed && errno() == libc::EINTR && self.0.load(Ordering::Acquire) == 0 {
                return Woken::Signal;
            }
        }
        Woken::Called
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.0.swap(1, Ordering::Release) == 0 {
            // SAFETY: the word lives as long as `self`; one thread sleeps on it.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.0.as_ptr(),
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    1,
                )
            };
        }
    }
}

/// How long the metadata server may take to hear that we end.
const BYE_PATIENCE: Duration = Duration::from_millis(500);
/// Supplementary groups that are asked for first: as many as most processes have.
const GROUPS_FEW: usize = 64;
