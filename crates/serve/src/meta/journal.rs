//! The metadata store on disk: a map and a batch log.
//!
//! All requests of one wake-up are applied inside the map's open transaction; those that must be
//! kept are put together and leave for the log in one write, before any of their answers. What the
//! log has taken survives the death of the process; it reaches the disk each second and whenever a
//! client calls fsync. A checkpoint commits the map, and the log begins anew: after 32 MiB of
//! log, when the server has been idle for a moment, and at once when a sync of the log has failed: the system
//! may have dropped what it was to write. Nothing is acknowledged in between.
//!
//! A checkpoint needs space for the pages that it changes. The map keeps some, and a checkpoint is made
//! before the changes need more than a third of what is left. So it can always be written, and so can whatever
//! deletes change in a store that is full. A replay makes its checkpoints on the way for the same reason, and
//! notes in the map how much of the log is in it.

mod ahead;
mod room;
mod start;

use super::super::{
    statfs_of,
    stats::{MetaCounters, MetaTimes},
};
use ahead::Taking;
use anyhow::Context;
use covey_io::disk::{Disk, MapSpace};
use covey_io::os::disk::OsDisk;
use covey_io::os::kv::{Ahead, Kv, NO_LIMIT};
use covey_io::os::log::{self, Log, Next, SyncHandle};
use covey_io::task;
use covey_ninep::tree::{Errno, Result, Statfs};
use covey_stripe::kv::Kv as Map;
use covey_stripe::meta::Store;
use covey_stripe::ops::{Op, Request};
use covey_wire::{Bytes, Field, List, Name, Reader};
pub use room::Room;
use room::SPACE_CHECK_EVERY;
use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Notify, oneshot};

/// The log's length that calls for a checkpoint.
const LOG_BYTES_MAX: u64 = 32 << 20;
/// A server that has been idle for so long makes its checkpoint.
const IDLE: Duration = Duration::from_secs(2);
/// The log reaches the disk at least this often.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Room in the log that one client's operation must find: its own, and what the server adds.
const ROOM_BYTES: u64 = 256 << 10;
/// Of what the disk has left, what the map does not reckon with: others may take it.
const DISK_BYTES_SPARED: u64 = 64 << 20;
/// How much the map may take of its disk; unlimited when it is not set. For tests.
const LIMIT_VARIABLE: &str = "COVEY_METADATA_BYTES_MAX";
/// Which log goes with a checkpoint: a row of this module's own in the map.
const GENERATION: &[u8] = b"ggeneration";
/// How many records of which log are in the map already.
const APPLIED: &[u8] = b"gapplied";
/// Which metadata store this is, as I/O servers know it.
const IDENTITY: &[u8] = b"gidentity";

/// The store's map, and how it becomes durable.
pub trait DurableMap: Map + Send {
    /// Makes every change since the last time durable, all or none.
    fn checkpoint(&mut self) -> io::Result<()>;
    /// What it uses and has.
    fn space(&self) -> io::Result<MapSpace>;
    /// After a checkpoint: what it should take of the disk ahead of its pages, while it goes on.
    fn ahead(&self) -> Option<Ahead> {
        None
    }
}

/// The map that the server uses: LMDB, or a simulator's.
pub struct Rows(Box<dyn DurableMap>);

/// What a journal is kept on.
pub struct Media {
    /// The log's directory.
    pub dir: PathBuf,
    /// What the log is written to.
    pub disk: Arc<dyn Disk>,
    /// The map.
    pub map: Rows,
}

impl Media {
    /// The store in a directory of this machine.
    pub fn open(dir: &Path) -> io::Result<Media> {
        let limit = std::env::var(LIMIT_VARIABLE).ok().and_then(|text| text.parse().ok());
        let map = Kv::open(dir, limit.unwrap_or(NO_LIMIT))?;
        Ok(Media { dir: dir.to_owned(), disk: Arc::new(OsDisk), map: Rows::new(Lmdb(map)) })
    }
}

impl Rows {
    /// Any map will do.
    pub fn new(map: impl DurableMap + 'static) -> Rows {
        Rows(Box::new(map))
    }

    /// See [`DurableMap::checkpoint`].
    pub fn checkpoint(&mut self) -> io::Result<()> {
        self.0.checkpoint()
    }

    /// See [`DurableMap::space`].
    pub fn space(&self) -> io::Result<MapSpace> {
        self.0.space()
    }

    /// See [`DurableMap::ahead`].
    pub fn ahead(&self) -> Option<Ahead> {
        self.0.ahead()
    }
}

impl Map for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(key)
    }
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }
    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.0.delete(key)
    }
    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.0.scan(from, visit)
    }
}

/// LMDB as the store's map.
struct Lmdb(Kv);

impl DurableMap for Lmdb {
    fn checkpoint(&mut self) -> io::Result<()> {
        self.0.checkpoint()
    }
    fn space(&self) -> io::Result<MapSpace> {
        self.0.space()
    }
    fn ahead(&self) -> Option<Ahead> {
        self.0.ahead()
    }
}

impl Map for Lmdb {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key)?.map(<[u8]>::to_vec))
    }
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }
    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.0.delete(key)?)
    }
    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        Ok(self.0.scan(from, visit)?)
    }
}

/// The log's side of the store.
pub struct Journal {
    identity: Name,
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    /// None while a checkpoint has it.
    log: RefCell<Option<Log>>,
    sync: SyncHandle,
    batch: RefCell<Batch>,
    flush_due: Notify,
    /// A sync of the log has failed: what it holds becomes durable with the next checkpoint only.
    is_in_doubt: Cell<bool>,
    checkpoint_due: Notify,
    checkpoint_over: Notify,
    /// A checkpoint must be made before anything else is applied.
    is_wanted: Cell<bool>,
    /// What the disk had for the map when it was looked at last.
    disk_room: Cell<u64>,
    /// Log writes so far, and how many of them are known to be on disk.
    appended: Cell<u64>,
    synced: Cell<u64>,
    syncing: Mutex<()>,
    unchecked: Cell<u64>,
    on_disk: Cell<Room>,
    room_last: Cell<Room>,
    /// Bytes that were taken in since the store was full.
    spared: Cell<u64>,
    last_append: Cell<Option<Instant>>,
    taking: Taking,
    counters: Rc<MetaCounters>,
    times: MetaTimes,
}

#[derive(Default)]
struct Batch {
    records: Vec<Vec<u8>>,
    waiters: Vec<oneshot::Sender<()>>,
}

impl Journal {
    /// Opens the store on `media`: the last checkpoint, and everything the log holds since.
    /// `servers` are the cluster's I/O servers now.
    pub fn open(
        media: Media,
        servers: &[String],
        counters: Rc<MetaCounters>,
    ) -> anyhow::Result<(Store<Rows>, Journal)> {
        let Media { dir, disk, map } = media;
        let generation = number(&map, GENERATION)?.unwrap_or(0);
        let mut store = Store::open(map)?;
        let found = replay(&mut store, &disk, &dir, |store, applied| {
            let is_short = is_short(&store.kv().space()?, room_on(&*disk, &dir));
            if is_short { commit_until(store, generation, applied) } else { Ok(()) }
        })?;
        if let Some(torn) = &found.torn {
            tracing::warn!(
                "the log's last {} bytes were torn ({}): an unacknowledged batch was \
                dropped",
                torn.bytes,
                torn.reason
            );
        }
        if found.records > 0 {
            tracing::info!("replayed {} operations of the log", found.records);
        }
        let (machine, is_another) = start::note(store.kv_mut(), &*disk, &dir)?;
        let has_lost = log::is_in_doubt(&*disk, &dir)
            || found.torn.as_ref().is_some_and(|torn| !torn.is_cut_off);
        if has_lost && !is_another {
            tracing::warn!("the disk has failed to keep the log: as after a loss of power");
        }
        store.opened_on(machine, is_another || has_lost)?;
        let identity = identity(&mut store, &*disk)?;
        let added = store.adopt_servers(servers)?;
        if added > 0 {
            tracing::info!("{added} I/O servers were added: new files lie on them too");
        }
        let log = Log::open(disk.clone(), &dir, generation)?;
        let sync = log.sync_handle();
        let disk_room = Cell::new(room_on(&*disk, &dir));
        let journal = Journal {
            identity,
            dir,
            disk,
            log: RefCell::new(Some(log)),
            sync,
            batch: RefCell::default(),
            flush_due: Notify::new(),
            is_in_doubt: Cell::new(false),
            checkpoint_due: Notify::new(),
            checkpoint_over: Notify::new(),
            is_wanted: Cell::new(false),
            disk_room,
            appended: Cell::new(0),
            synced: Cell::new(0),
            syncing: Mutex::new(()),
            unchecked: Cell::new(SPACE_CHECK_EVERY),
            on_disk: Cell::new(Room::Ample),
            room_last: Cell::new(Room::Ample),
            spared: Cell::new(0),
            last_append: Cell::new(None),
            taking: Taking::default(),
            counters,
            times: MetaTimes::default(),
        };
        {
            let mut log = journal.log.borrow_mut();
            commit(&mut store, log.as_mut().expect("nobody has it yet"), None)?;
        }
        journal.taking.begin(store.kv().ahead());
        Ok((store, journal))
    }

    /// Which metadata store this is.
    pub fn identity(&self) -> &Name {
        &self.identity
    }

    /// How long writes, syncs and checkpoints took.
    pub fn times(&self) -> &MetaTimes {
        &self.times
    }

    /// Puts an applied request into the batch.
    pub fn keep(&self, request: &Request) {
        let mut record = Vec::with_capacity(request.size(()));
        match &request.op {
            // Which files are open is not kept: they are told again after a start.
            Op::Hello { session, appends, name, .. } => {
                let (session, files) = (*session, List(Vec::new()));
                let (appends, name) = (appends.clone(), name.clone());
                let op = Op::Hello { session, files, appends, name };
                Request { op, ..request.clone() }.put((), &mut record);
            }
            _ => request.put((), &mut record),
        }
        self.batch.borrow_mut().records.push(record);
        self.counters.logged.add(1);
        self.flush_due.notify_one();
    }

    /// Whether something was applied that the log does not hold yet, or holds without being able to
    /// bring it to the disk.
    pub fn is_behind(&self) -> bool {
        self.is_in_doubt.get() || !self.batch.borrow().records.is_empty()
    }

    /// Completes when everything applied so far is in the log, and that is not in doubt.
    pub fn caught_up(&self) -> impl Future<Output = Result<()>> + use<> {
        let waiter = self.is_behind().then(|| {
            let (sender, receiver) = oneshot::channel();
            self.batch.borrow_mut().waiters.push(sender);
            receiver
        });
        async move {
            match waiter {
                None => Ok(()),
                Some(waiter) => waiter
                    .await
                    .map_err(|_| Errno::because(Errno::EIO, "the metadata log cannot be written")),
            }
        }
    }

    /// Writes the batch and lets its answers go.
    pub fn flush(&self) -> io::Result<()> {
        let records = std::mem::take(&mut self.batch.borrow_mut().records);
        if records.is_empty() {
            return Ok(());
        }
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let mut log = self.log.borrow_mut();
        // Nothing is applied while a checkpoint has the store, so there is nothing to write then.
        let begun = Instant::now();
        log.as_mut().expect("a batch exists only while the log is here").append(&records)?;
        self.times.log_write.add(begun.elapsed());
        self.taking.log_has(log.as_ref().map_or(0, Log::bytes));
        drop(log);
        self.appended.set(self.appended.get() + 1);
        self.last_append.set(Some(task::now()));
        self.counters.log_writes.add(1);
        self.let_go();
        Ok(())
    }

    /// Lets the answers go that waited for the log.
    fn let_go(&self) {
        if self.is_in_doubt.get() {
            return;
        }
        for waiter in std::mem::take(&mut self.batch.borrow_mut().waiters) {
            // A client that went away meanwhile does not want its answer.
            let _ = waiter.send(());
        }
    }

    /// Waits until there is a batch.
    pub async fn flush_is_due(&self) {
        self.flush_due.notified().await;
    }

    /// Waits until a checkpoint must be made at once.
    pub async fn checkpoint_is_wanted(&self) {
        self.checkpoint_due.notified().await;
    }

    /// Everything applied so far reaches the disk. Callers that come together share one sync. When that
    /// fails, the checkpoint that must follow is waited for; the server ends where it fails, too.
    pub async fn sync(&self) -> Result<()> {
        self.caught_up().await?;
        let wanted = self.appended.get();
        let _turn = self.syncing.lock().await;
        if self.synced.get() >= wanted {
            return Ok(());
        }
        let reaching = self.appended.get();
        let handle = self.sync.clone();
        let begun = Instant::now();
        let synced = task::blocking(move || handle.sync()).await;
        self.times.log_sync.add(begun.elapsed());
        // Whatever was in a log that has ended meanwhile is in the checkpoint.
        if self.synced.get() >= reaching {
            return Ok(());
        }
        match synced {
            Ok(()) => self.synced.set(reaching),
            Err(error) => self.doubt(&error).await,
        }
        Ok(())
    }

    /// A sync has failed, and the system takes for written what it may have dropped: asks for a
    /// checkpoint, and waits for it.
    async fn doubt(&self, error: &io::Error) {
        tracing::error!("the metadata log does not reach the disk: {error}; a checkpoint is made");
        self.is_in_doubt.set(true);
        self.checkpoint_due.notify_one();
        while self.is_in_doubt.get() {
            self.checkpoint_over.notified().await;
        }
    }

    /// The state of the disk that the log is on.
    pub fn space(&self) -> Result<Statfs> {
        statfs_of(&*self.disk, &self.dir)
    }

    /// Bytes that the metadata takes, and what it may grow to: names are refused a little before.
    pub fn map_space(&self, map: &Rows) -> Option<(u64, u64)> {
        let space = map.space().ok()?;
        Some((space.used, space.capacity(self.disk_room.get()).max(space.used)))
    }

    /// Whether a checkpoint must be made before anything else is applied. Asks for it then.
    pub fn must_wait_for_checkpoint(&self, map: &Rows) -> bool {
        if !self.is_wanted.get()
            && map.space().is_ok_and(|space| is_short(&space, self.disk_room.get()))
        {
            self.is_wanted.set(true);
            self.checkpoint_due.notify_one();
        }
        self.is_wanted.get()
    }

    /// Whether the log has room for another operation besides those that wait to be written. Asked
    /// before anything is applied: what was applied must never fail to be written.
    pub fn has_room(&self) -> bool {
        let waiting: usize =
            self.batch.borrow().records.iter().map(|record| record.len() + 8).sum();
        let wanted = waiting as u64 + ROOM_BYTES;
        self.log.borrow_mut().as_mut().is_some_and(|log| log.reserve(wanted).is_ok())
    }

    /// Whether it is time for a checkpoint, and the disk has room for one. Without room the log goes
    /// on in the space it has.
    pub fn checkpoint_is_due(&self, map: &Rows) -> bool {
        if self.is_in_doubt.get() || self.is_wanted.get() {
            return true;
        }
        self.disk_room.set(room_on(&*self.disk, &self.dir));
        if map.space().is_ok_and(|space| !fits(&space, self.disk_room.get())) {
            return false;
        }
        let bytes = self.log.borrow().as_ref().map_or(0, Log::bytes);
        let idle = self.last_append.get().is_some_and(|at| task::now() - at >= IDLE);
        bytes >= LOG_BYTES_MAX || (bytes > 0 && idle)
    }

    /// Commits the map and begins the log anew. The disk may take its time: that is waited for on
    /// another thread, and the store is away meanwhile.
    pub async fn checkpoint(&self, mut store: Store<Rows>) -> anyhow::Result<Store<Rows>> {
        self.flush()?;
        let begun = Instant::now();
        let mut log = self.log.borrow_mut().take().context("the log is away")?;
        let next = self.taking.next();
        let (store, log) = task::blocking(move || {
            commit(&mut store, &mut log, next).map(|()| (store, log)).map_err(io::Error::other)
        })
        .await?;
        self.taking.begin(store.kv().ahead());
        *self.log.borrow_mut() = Some(log);
        self.synced.set(self.appended.get());
        self.is_in_doubt.set(false);
        self.is_wanted.set(false);
        self.let_go();
        self.checkpoint_over.notify_waiters();
        self.last_append.set(None);
        self.counters.checkpoints.add(1);
        self.times.checkpoint.add(begun.elapsed());
        Ok(store)
    }

    /// Brings the log to the disk each second, for as long as the journal lives.
    pub async fn sync_each_second(self: Rc<Self>) {
        loop {
            task::sleep(SYNC_EVERY).await;
            if self.synced.get() < self.appended.get() {
                // The log was not written: that has ended the server already.
                let _ = self.sync().await;
            }
        }
    }
}

/// What the disk has left for the map.
fn room_on(disk: &dyn Disk, dir: &Path) -> u64 {
    let available = disk.space(dir).map_or(0, |space| space.bytes_available());
    available - DISK_BYTES_SPARED.min(available / 2)
}

/// Whether the next checkpoint finds room.
fn fits(space: &MapSpace, disk: u64) -> bool {
    space.dirty <= space.room(disk)
}

/// Whether it still does, and should be made before more is changed. Where it finds none, there is only the log.
fn is_short(space: &MapSpace, disk: u64) -> bool {
    space.dirty > 0 && space.dirty >= space.room(disk) / 3 && fits(space, disk)
}

/// Applies what the log holds and the map does not, and says after each record how many are applied.
pub(super) fn replay(
    store: &mut Store<Rows>,
    disk: &Arc<dyn Disk>,
    dir: &Path,
    mut applied: impl FnMut(&mut Store<Rows>, u64) -> io::Result<()>,
) -> anyhow::Result<log::Replay> {
    let generation = number(store.kv(), GENERATION)?.unwrap_or(0);
    let before = applied_before(store.kv(), generation)?;
    let mut count = 0;
    let found = log::replay(&**disk, dir, generation, |record| {
        count += 1;
        if count > before {
            replay_one(store, record)?;
            applied(store, count)?;
        }
        Ok(())
    })?;
    Ok(found)
}

/// How many records of the log are in the map.
fn applied_before(map: &Rows, generation: u64) -> Result<u64> {
    let bytes = map.get(APPLIED)?.unwrap_or_default();
    let row = bytes.split_first_chunk::<8>().zip(bytes.last_chunk::<8>());
    Ok(row.map_or(0, |((of, _), count)| {
        if u64::from_le_bytes(*of) == generation { u64::from_le_bytes(*count) } else { 0 }
    }))
}

/// A checkpoint in the middle of a log.
fn commit_until(store: &mut Store<Rows>, generation: u64, applied: u64) -> io::Result<()> {
    let row = [generation.to_le_bytes(), applied.to_le_bytes()].concat();
    let failed = |error: Errno| io::Error::other(error.to_string());
    store.save_replies().map_err(failed)?;
    store.kv_mut().put(APPLIED, &row).map_err(failed)?;
    store.kv_mut().checkpoint()?;
    store.kv().ahead().into_iter().for_each(Ahead::take);
    Ok(())
}

/// The map's commit says which log goes on from it, so both change at once.
pub(super) fn commit(
    store: &mut Store<Rows>,
    log: &mut Log,
    ready: Option<Next>,
) -> anyhow::Result<()> {
    let next = log.generation() + 1;
    store.save_replies()?;
    store.kv_mut().put(GENERATION, &next.to_le_bytes())?;
    store.kv_mut().checkpoint()?;
    log.rotate(next, ready)?;
    Ok(())
}

/// Which log goes with the map's last checkpoint.
pub(super) fn generation(map: &Rows) -> Result<Option<u64>> {
    number(map, GENERATION)
}

/// The store's identity; a new one when it has none.
fn identity(store: &mut Store<Rows>, disk: &dyn Disk) -> anyhow::Result<Name> {
    if let Some(known) = store.kv().get(IDENTITY)? {
        return Ok(Name::from(known));
    }
    let mark: String = disk.mark()?.iter().map(|byte| format!("{byte:02x}")).collect();
    store.kv_mut().put(IDENTITY, mark.as_bytes())?;
    Ok(Name::from(mark))
}

fn number(map: &Rows, row: &[u8]) -> Result<Option<u64>> {
    let bytes = map.get(row)?;
    Ok(bytes.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?))))
}

fn replay_one(store: &mut Store<Rows>, record: &[u8]) -> io::Result<()> {
    let mut from = Reader::new(Bytes::copy_from_slice(record));
    let request = Request::get((), &mut from).map_err(|blame| {
        io::Error::other(format!("the log holds what this version cannot read: {blame}"))
    })?;
    store.replay(&request).map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests;
