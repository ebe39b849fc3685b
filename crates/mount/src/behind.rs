//! Writes that programs do not wait for: what weaker consistency modes gather on its way to the
//! servers.
//!
//! Each file that is open for writing in such a mode has one run of bytes being gathered and one on
//! its way. A write that goes on where the last one ended joins the run; any other sends the run
//! off and begins a new one. Runs of a file leave in the order of their writes, one after another,
//! so the last of two overlapping writes wins. A request that reads the file, or changes it by
//! other means, [`settles`](Behind::settle) it first.
//!
//! A run that cannot be written is lost; the next write, fsync or close of the file tells, once.

use super::files::Files;
use covey_ninep::tree::{Errno, Result};
use covey_stripe::ops::Id;
use covey_wire::{Bytes, Payload};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;

/// The writes of one mount that are not on the servers yet.
pub struct Behind<F: Files> {
    files: Arc<F>,
    table: Mutex<Table<F::File>>,
    /// Gathered or on their way, of all files.
    bytes: Arc<AtomicUsize>,
}

struct Table<T> {
    by_id: HashMap<Id, Arc<Pending<T>>>,
    is_swept: bool,
    /// Files that were left last, and how many ever were.
    left: VecDeque<Id>,
    left_count: u64,
}

/// A moment, as far as files that are written matter.
#[derive(Clone, Copy)]
pub struct Moment(u64);

/// The unsent writes of one file.
struct Pending<T> {
    /// Held by the run that is on its way.
    turn: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<State<T>>,
}

struct State<T> {
    run: Option<Run<T>>,
    error: Option<Errno>,
    /// Handles that write.
    handles: usize,
}

/// Bytes that lie together in the file.
struct Run<T> {
    file: T,
    offset: u64,
    data: Vec<u8>,
    begun: Instant,
}

impl<F: Files> Behind<F> {
    /// Nothing is open.
    pub fn new(files: Arc<F>) -> Self {
        let (by_id, left) = (HashMap::new(), VecDeque::new());
        let table = Mutex::new(Table { by_id, is_swept: false, left, left_count: 0 });
        Behind { files, table, bytes: Arc::default() }
    }

    /// A handle that may write has been opened.
    pub fn enter(&self, id: Id) {
        let mut table = self.table();
        let pending = table.by_id.entry(id).or_insert_with(|| {
            let state = State { run: None, error: None, handles: 0 };
            Arc::new(Pending { turn: Arc::default(), state: Mutex::new(state) })
        });
        pending.lock().handles += 1;
    }

    /// It is gone. What it wrote is to be settled before.
    pub fn leave(&self, id: Id) {
        let mut table = self.table();
        let Some(pending) = table.by_id.get(&id) else { return };
        let mut state = pending.lock();
        state.handles -= 1;
        let is_over = state.handles == 0;
        drop(state);
        if is_over {
            table.by_id.remove(&id);
            if table.left.len() >= LEFT_KEPT {
                table.left.pop_front();
            }
            table.left.push_back(id);
            table.left_count += 1;
        }
    }

    /// Now, before something is asked of the servers.
    pub fn now(&self) -> Moment {
        Moment(self.table().left_count)
    }

    /// Whether the file has been open for such writes since, so that what was asked for then may be
    /// from before they arrived. The kernel has been told that they are done: it must not hear of an
    /// older size.
    pub fn wrote_since(&self, id: Id, then: Moment) -> bool {
        let table = self.table();
        if table.by_id.contains_key(&id) {
            return true;
        }
        let since = table.left_count - then.0;
        let known = table.left.iter().rev().take(since as usize);
        since > table.left.len() as u64 || known.into_iter().any(|&left| left == id)
    }

    /// Takes `data` for `offset`; on its way to the servers within [`DELAY`].
    pub async fn write(
        self: &Arc<Self>,
        id: Id,
        file: &F::File,
        offset: u64,
        data: Bytes,
    ) -> Result<()> {
        let Some(pending) = self.find(id) else {
            return self.files.write_at(file, offset, data.into()).await;
        };
        pending.outcome()?;
        if data.len() >= LARGE_BYTES {
            self.send(&pending).await;
            let turn = pending.turn.clone().lock_owned().await;
            self.bytes.fetch_add(data.len(), Ordering::Relaxed);
            self.start(&pending, turn, file.clone(), offset, data);
        } else {
            self.bytes.fetch_add(data.len(), Ordering::Relaxed);
            let mut counted = Counted { bytes: &self.bytes, length: data.len() };
            while !pending.lock().gather(file, offset, &data) {
                self.send(&pending).await;
            }
            counted.length = 0;
            self.sweep_soon();
            if pending.lock().is_full() {
                self.send(&pending).await;
            }
        }
        if self.bytes.load(Ordering::Relaxed) > BYTES_MAX {
            self.settled(&pending).await;
        }
        Ok(())
    }

    /// Whether nothing of the file is gathered, or on its way.
    pub fn is_idle(&self, id: Id) -> bool {
        self.find(id)
            .is_none_or(|pending| pending.turn.try_lock().is_ok() && pending.lock().run.is_none())
    }

    /// Waits until what was written so far is on the servers, or lost.
    pub async fn settle(self: &Arc<Self>, id: Id) {
        if let Some(pending) = self.find(id) {
            self.settled(&pending).await;
        }
    }

    /// The same, and tells of what was lost.
    pub async fn finish(self: &Arc<Self>, id: Id) -> Result<()> {
        let Some(pending) = self.find(id) else { return Ok(()) };
        self.settled(&pending).await;
        pending.outcome()
    }

    /// All files: the mount is about to end.
    pub async fn settle_all(self: &Arc<Self>) {
        let all: Vec<_> = self.table().by_id.values().cloned().collect();
        for pending in all {
            self.settled(&pending).await;
        }
    }

    /// The errors that nobody has heard of, which are forgotten here.
    pub fn take_errors(&self) -> Vec<(Id, Errno)> {
        let table = self.table();
        let errors = table.by_id.iter().map(|(&id, pending)| (id, pending.outcome()));
        errors.filter_map(|(id, outcome)| Some((id, outcome.err()?))).collect()
    }

    async fn settled(self: &Arc<Self>, pending: &Arc<Pending<F::File>>) {
        self.send(pending).await;
        // What was on its way has arrived when its turn is over.
        drop(pending.turn.lock().await);
    }

    /// Sends the run off when the one before it has arrived.
    async fn send(self: &Arc<Self>, pending: &Arc<Pending<F::File>>) {
        let turn = pending.turn.clone().lock_owned().await;
        let run = pending.lock().run.take();
        if let Some(run) = run {
            self.start(pending, turn, run.file, run.offset, run.data.into());
        }
    }

    /// A separate task, so that it is not lost with the request that waits for it.
    fn start(
        self: &Arc<Self>,
        pending: &Arc<Pending<F::File>>,
        turn: OwnedMutexGuard<()>,
        file: F::File,
        offset: u64,
        data: Bytes,
    ) {
        let (files, pending, bytes) = (self.files.clone(), pending.clone(), self.bytes.clone());
        tokio::task::spawn_local(async move {
            let length = data.len();
            if let Err(error) = files.write_at(&file, offset, Payload::from(data)).await {
                tracing::warn!("{length} bytes written behind are lost: {error}");
                pending.lock().error.get_or_insert(error);
            }
            bytes.fetch_sub(length, Ordering::Relaxed);
            drop(turn);
        });
    }

    /// Looks after old runs for as long as there are files.
    fn sweep_soon(self: &Arc<Self>) {
        if std::mem::replace(&mut self.table().is_swept, true) {
            return;
        }
        let behind = self.clone();
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(SWEEP_EVERY).await;
                let old: Vec<_> = {
                    let mut table = behind.table();
                    if table.by_id.is_empty() {
                        table.is_swept = false;
                        return;
                    }
                    let all = table.by_id.values();
                    all.filter(|pending| pending.lock().is_old()).cloned().collect()
                };
                for pending in old {
                    behind.send(&pending).await;
                }
            }
        });
    }

    fn find(&self, id: Id) -> Option<Arc<Pending<F::File>>> {
        self.table().by_id.get(&id).cloned()
    }

    fn table(&self) -> MutexGuard<'_, Table<F::File>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that are counted before they are gathered, which an interrupt may prevent.
struct Counted<'a> {
    bytes: &'a AtomicUsize,
    length: usize,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.length, Ordering::Relaxed);
    }
}

impl<T> Pending<T> {
    fn outcome(&self) -> Result<()> {
        self.lock().error.take().map_or(Ok(()), Err)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> State<T> {
    /// Whether the bytes could join the run, or begin one.
    fn gather(&mut self, file: &T, offset: u64, data: &[u8]) -> bool {
        match &mut self.run {
            Some(run) if run.offset + run.data.len() as u64 == offset => {
                run.data.extend_from_slice(data);
                true
            }
            Some(_) => false,
            None => {
                let (file, data) = (file.clone(), data.to_vec());
                self.run = Some(Run { file, offset, data, begun: Instant::now() });
                true
            }
        }
    }
}

impl<T> State<T> {
    fn is_full(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.data.len() >= RUN_BYTES)
    }

    fn is_old(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.begun.elapsed() + SWEEP_EVERY >= DELAY)
    }
}

/// How long a write may be gathered.
pub const DELAY: Duration = Duration::from_secs(5);

const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// A run of this length is sent off.
const RUN_BYTES: usize = 1 << 20;

/// A write of this length is sent alone, without being copied.
const LARGE_BYTES: usize = 128 << 10;

/// Files that were left and are remembered.
const LEFT_KEPT: usize = 1024;

/// Where all files of a mount have more than this, each write waits for its own.
const BYTES_MAX: usize = 64 << 20;
