//! A data server's tree: one flat directory of objects for each chain, kept as files of a local directory.
//!
//! The objects of the server's own chain lie where those of older versions lie, `objects/LOW/`, those of others in
//! directories of their own, `objects/cCHAIN.STAY/LOW/` (see `data/dirs.rs`).
//!
//! An object is named by its file's id and stands at an epoch (see `covey_stripe::objects`). The epoch is
//! part of the file's name on disk, `ID` at epoch 0 and `ID.EPOCH` later, so that raising it is one
//! rename. Objects at a raised epoch are few; their epochs are kept in memory, found by a scan at
//! start. Reads and writes go inline where they cannot block and to the blocking pool elsewhere.
//!
//! While an object is being cut every request on it is refused: the cut waits for the writes that are
//! still under way, truncates, renames, and only then raises the epoch. Repeating it is harmless. A
//! write that went to the pool goes on when its client no longer waits for it; later writes
//! that overlap it wait until it is over.

mod chains;
mod changes;
mod cut;
mod dirs;
mod gone;
mod holds;
mod line;
mod listing;
mod losses;
mod lost;
mod receive;
#[cfg(test)]
mod refusals;
mod space;
mod stage;
mod standing;
mod syncs;
mod tree;
mod view;

pub mod copy;

use crate::watch::Watch;
use covey_io::disk::{self, Disk, DiskFile, Open};
use covey_io::os::directory::IDENTITY_FILE;
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::chain::Served;
use covey_stripe::objects::{self, At, DataOp, DataReply, Kept};
use covey_stripe::ops::Id;
use covey_wire::Bytes;
use cut::Cutting;
use gone::Gone;
pub use line::{Line, Node};
use stage::Part;
pub use standing::Standing;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::IoSlice;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use tokio::sync::Notify;
pub use tree::DataServer;

/// Subdirectories that objects are spread over, by the low byte of the id.
const FANOUT: u64 = 256;
/// A write is refused when fewer bytes than this would stay free: deleting needs space too.
const RESERVE_BYTES_MAX: u64 = 64 << 20;
/// Free space is looked at again after this many written bytes.
const RESERVE_CHECK_BYTES: u64 = 8 << 20;

/// The objects of one chain on a data server. That of the server's own chain leads to the others.
pub struct DataTree {
    disk: Arc<dyn Disk>,
    store: PathBuf,
    objects_dir: PathBuf,
    /// Subdirectories that the objects are spread over, by the low bits of the id.
    fanout: u64,
    /// The chain, where it has a directory of its own.
    chain: Option<u16>,
    /// Which stay of the chain that is.
    stay: u32,
    /// The trees of the other chains.
    others: dirs::Others,
    own_uid: u32,
    /// Epochs above 0, by id.
    epochs: RefCell<HashMap<Id, u32>>,
    held: RefCell<HashMap<Id, Weak<Object>>>,
    /// Objects that were lost with the disk before.
    lost: RefCell<HashSet<Id>>,
    gone: RefCell<Gone>,
    /// What is being staged: a start forgets it, since a loss of power may have taken what was not synced.
    staging: RefCell<HashMap<(Id, u32), Rc<Part>>>,
    /// What is staged, and for which epochs.
    staged: RefCell<HashMap<Id, BTreeSet<u32>>>,
    /// The connection that each client has said Start on last.
    lines: Rc<RefCell<HashMap<u64, Weak<Line>>>>,
    unchecked_bytes: Rc<Cell<u64>>,
    standing: Rc<Standing>,
    chains: Rc<chains::Chains>,
    losses: Rc<RefCell<losses::Losses>>,
    counters: Rc<super::stats::DataCounters>,
    watch: Rc<Watch>,
    /// What has changed since a mover began to copy the chain.
    noted: Rc<changes::Noted>,
    /// Chains that are being received.
    receiving: RefCell<HashMap<u16, receive::Receiving>>,
    /// The number of the last stay that was begun.
    stay_last: Cell<u32>,
    /// Directories of stays that could not be removed yet.
    remains: Rc<RefCell<Vec<PathBuf>>>,
}

/// A file in one of the objects' directories.
struct Found {
    id: Id,
    epoch: u32,
    kept: Kept,
    path: PathBuf,
}

/// An object that some fid holds.
pub struct Object {
    id: Id,
    /// The chain, where that has a directory of its own.
    chain: Option<u16>,
    epoch: Cell<u32>,
    file: RefCell<Option<Arc<dyn DiskFile>>>,
    /// Its name may not be on disk yet.
    is_name_dirty: Cell<bool>,
    /// A cut has it: nothing else may touch it.
    is_cutting: Cell<bool>,
    /// Ranges of the writes that are in the pool: first byte and end.
    writing: RefCell<Vec<(u64, u64)>>,
    /// A write or a cut has ended.
    ended: Notify,
    syncs: syncs::Syncs,
    version: Cell<u32>,
}

impl Object {
    fn is_writing(&self, start: u64, end: u64) -> bool {
        self.writing.borrow().iter().any(|&(other, other_end)| start < other_end && other < end)
    }
}

impl DataTree {
    /// The tree over `store`, whose `objects` directory is made when missing. It serves nothing before
    /// the metadata server has admitted it: see [`Standing`].
    pub fn open(disk: Arc<dyn Disk>, store: &Path) -> std::io::Result<DataTree> {
        let objects_dir = store.join("objects");
        let identity = standing::identity(&*disk, store, &objects_dir)?;
        for low in 0..FANOUT {
            disk.make_dir(&objects_dir.join(format!("{low:02x}")))?;
        }
        // Whoever syncs an object relies on the names that lead to it.
        disk.sync_dir(&objects_dir)?;
        disk.sync_dir(store)?;
        let losses = Rc::new(RefCell::new(losses::Losses::of_store(&*disk, store)?));
        let formatted = match disk.stat(&store.join(IDENTITY_FILE)) {
            Ok(stat) => stat.modified.as_nanos() as u64,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let chains = identity.held.chains.clone();
        let tree = DataTree {
            losses,
            disk,
            store: store.to_owned(),
            objects_dir,
            fanout: FANOUT,
            chain: None,
            stay: 0,
            others: dirs::Others::default(),
            own_uid: rustix::process::geteuid().as_raw(),
            epochs: RefCell::default(),
            held: RefCell::default(),
            lost: RefCell::default(),
            gone: RefCell::default(),
            staging: RefCell::default(),
            staged: RefCell::default(),
            lines: Rc::default(),
            unchecked_bytes: Rc::new(Cell::new(u64::MAX / 2)),
            standing: Rc::new(Standing::new(identity, formatted)),
            chains: Rc::default(),
            counters: Rc::default(),
            watch: Watch::new("data"),
            noted: Rc::default(),
            receiving: RefCell::default(),
            stay_last: Cell::default(),
            remains: Rc::default(),
        };
        tree.load()?;
        for (chain, stay) in chains {
            tree.open_other(chain, stay.number)?;
        }
        tree.remove_remains()?;
        Ok(tree)
    }

    /// Takes in what lies in the directories.
    fn load(&self) -> std::io::Result<()> {
        for low in 0..self.fanout {
            let found = self.scan(low)?;
            for (at, one) in found.iter().enumerate() {
                if one.kept == Kept::Staged {
                    self.staged.borrow_mut().entry(one.id).or_default().insert(one.epoch);
                    continue;
                }
                // A store that has nothing but marks is still one that has lost everything.
                if one.kept != Kept::Lost {
                    self.standing.has_object();
                }
                let next = found.get(at + 1).filter(|next| next.kept != Kept::Staged);
                match one.kept {
                    // A loss of power within an installation, or where a mark was to go, leaves both.
                    _ if next.is_some_and(|next| next.id == one.id) => {
                        self.disk.remove(&one.path)?;
                    }
                    Kept::Lost => self.note_lost(one.id, one.epoch),
                    _ => self.note_epoch(one.id, one.epoch),
                }
            }
        }
        Ok(())
    }

    /// What this server has counted since it started.
    pub fn counters(&self) -> &super::stats::DataCounters {
        &self.counters
    }

    /// The watch over what is asked of objects.
    pub fn watch(&self) -> &Rc<Watch> {
        &self.watch
    }

    /// Takes an object into the index.
    fn note_epoch(&self, id: Id, epoch: u32) {
        if epoch > 0 {
            self.epochs.borrow_mut().insert(id, epoch);
        }
    }

    /// What lies in one of the objects' directories, by id; of what is kept of one object the last counts.
    fn scan(&self, low: u64) -> std::io::Result<Vec<Found>> {
        let mut found = Vec::new();
        let dir = self.dir(low);
        for name in self.disk.list(&dir)? {
            if let Some((id, epoch, kept)) = objects::kept(name.as_encoded_bytes()) {
                found.push(Found { id, epoch, kept, path: dir.join(name) });
            }
        }
        // What a file has left is older than what has been installed since.
        found.sort_unstable_by_key(|one| {
            (one.id, one.kept, !objects::is_left(one.epoch), one.epoch)
        });
        Ok(found)
    }

    /// The directory of the objects whose ids have this low byte.
    fn dir(&self, low: u64) -> PathBuf {
        self.objects_dir.join(format!("{low:02x}"))
    }

    fn path(&self, id: Id, epoch: u32) -> PathBuf {
        self.path_of(id, epoch, Kept::Object)
    }

    fn path_of(&self, id: Id, epoch: u32, kept: Kept) -> PathBuf {
        self.dir(id % self.fanout).join(dirs::file_name(id, epoch, kept))
    }

    fn epoch_of(&self, id: Id) -> u32 {
        self.epochs.borrow().get(&id).copied().unwrap_or(0)
    }

    /// The chain has left: nothing of it is here.
    fn forget_all(&self) {
        self.epochs.take();
        self.held.take();
        self.lost.take();
        self.staging.take();
        self.staged.take();
    }

    fn object(&self, id: Id) -> Rc<Object> {
        let mut held = self.held.borrow_mut();
        if let Some(object) = held.get(&id).and_then(Weak::upgrade) {
            return object;
        }
        let object = Rc::new(Object {
            id,
            chain: self.chain,
            epoch: Cell::new(self.epoch_of(id)),
            file: RefCell::default(),
            is_name_dirty: Cell::new(true),
            is_cutting: Cell::new(false),
            writing: RefCell::default(),
            ended: Notify::new(),
            syncs: syncs::Syncs::default(),
            version: Cell::new(0),
        });
        held.insert(id, Rc::downgrade(&object));
        object
    }

    /// The object's file; None when it was never written.
    fn file_there(&self, object: &Object) -> Result<Option<Arc<dyn DiskFile>>> {
        self.open_file(object, Open::Existing)
    }

    /// The object's file, which is made when missing.
    fn file_made(&self, object: &Object) -> Result<Arc<dyn DiskFile>> {
        if object.file.borrow().is_none() && self.gone.borrow().has(object.id) {
            return Err(Errno::because(Errno::ESTALE, "the file was removed"));
        }
        // Its directory is not there.
        self.open_file(object, Open::Create)?.ok_or(Errno::ENOENT.into())
    }

    fn open_file(&self, object: &Object, how: Open) -> Result<Option<Arc<dyn DiskFile>>> {
        if let Some(file) = &*object.file.borrow() {
            return Ok(Some(file.clone()));
        }
        match self.disk.open(&self.path(object.id, object.epoch.get()), how) {
            Ok(file) => {
                self.standing.has_object();
                *object.file.borrow_mut() = Some(file.clone());
                Ok(Some(file))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // Zeros are what was never written, not what was taken away.
                self.must_be_here()?;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The file of an object that is to be read; None when it was never written.
    fn to_read(&self, object: &Object, at: At) -> Result<Option<Arc<dyn DiskFile>>> {
        self.admit(object, at)?;
        self.file_there(object)
    }

    fn count_read(&self, bytes: u64) {
        self.counters.reads.add(1);
        self.counters.bytes_read.add(bytes);
    }

    /// Refuses a request whose fid is of another epoch than the object, or came by a chain that is not served so.
    fn admit(&self, object: &Object, At { epoch, chain }: At) -> Result<()> {
        if !self.standing.is_admitted.get() {
            self.standing.check()?;
        }
        self.chains.admit(chain)?;
        if let (None, Some(_), Some(own)) = (chain, epoch, self.own_chain()) {
            // Who says no chain means this one, and may not know that it can move.
            self.must_serve(own)?;
        }
        if object.is_cutting.get() {
            return Err(Errno::because(Errno::ESTALE, "object is being cut"));
        }
        if epoch.is_none_or(|epoch| epoch == object.epoch.get()) {
            return self.must_not_be_lost(object.id);
        }
        Err(Errno::because(Errno::ESTALE, format!("object is at epoch {}", object.epoch.get())))
    }

    /// Looks at the free space now and then: the last of it is kept for deletes and the metadata.
    fn check_reserve(&self, bytes: u64) -> Result<()> {
        let unchecked = self.unchecked_bytes.get().saturating_add(bytes);
        self.unchecked_bytes.set(unchecked);
        if unchecked < RESERVE_CHECK_BYTES {
            return Ok(());
        }
        let space = self.disk.space(&self.objects_dir)?;
        let reserve = RESERVE_BYTES_MAX.min(space.bytes_total() / 20);
        if space.bytes_available() < reserve + bytes {
            let what = "the last of the disk is kept for deletes";
            return Err(Errno::because(Errno::ENOSPC, what));
        }
        self.unchecked_bytes.set(0);
        Ok(())
    }

    fn command(
        self: &Rc<Self>,
        line: &Rc<Line>,
        op: DataOp,
        chain: Option<Served>,
    ) -> Outcome<DataReply> {
        match op {
            DataOp::Cut { id, epoch, size } => {
                let tree = self.clone();
                Outcome::later(async move { tree.cut(id, epoch, size).await })
            }
            DataOp::Stage { id, epoch, how, offset, data } => {
                self.stage(line, (id, epoch), how, offset, data.into_bytes())
            }
            DataOp::Install { id, epoch, bytes } => {
                let tree = self.clone();
                Outcome::later(async move { tree.install(id, epoch, bytes).await })
            }
            DataOp::Unstage { id, epoch } => self.unstage(id, epoch).into(),
            DataOp::Staged { after, count } => self.list_staged(after, count).into(),
            DataOp::Leave { objects } => {
                let tree = self.clone();
                Outcome::later(async move { tree.leave(&objects.0).await })
            }
            DataOp::Remove { objects } => self.remove_all(&objects.0).into(),
            DataOp::Objects { after, count } => self.list(after, count).into(),
            DataOp::Allocated { id } => self.allocated(id).into(),
            DataOp::Reshape { id, epoch, how, offset, length } => {
                self.reshape(line, id, At { epoch: Some(epoch), chain }, how, offset, length)
            }
            DataOp::Extent { id, epoch, offset } => {
                self.extent(id, At { epoch: Some(epoch), chain }, offset)
            }
            DataOp::ReadHeld { id, epoch, offset, count } => {
                self.read_held(line, id, At { epoch: Some(epoch), chain }, offset, count)
            }
            DataOp::Look { ids } => self.look(&ids.0).into(),
            DataOp::Watch { is_on: true } => self.if_kept(self.watch_changes(line, true)),
            DataOp::Watch { is_on: false } => self.watch_changes(line, false).into(),
            DataOp::Changes {} => self.if_kept(self.take_changes(line)),
            DataOp::Files { after, count } => self.list_files(after, count).into(),
            DataOp::FilesOf { ids } => self.files_of(&ids.0).into(),
            DataOp::Hops {} => {
                match chain.map(|served| served.chain).or(self.chain).or(self.own_chain()) {
                    Some(chain) => Outcome::Now(Ok(self.standing.hops_of(chain))),
                    None => Errno::EINVAL.into(),
                }
            }
            DataOp::Fetch { id, epoch, kept, offset, count } => {
                self.fetch((id, epoch, kept), offset, count)
            }
            DataOp::Forgive { ids } => {
                let tree = self.clone();
                Outcome::later(async move { tree.forgive(ids.0).await })
            }
            // Not of the objects of a chain.
            _ => Errno::EINVAL.into(),
        }
    }

    /// The object's file for a write of `length` bytes within `range` that is admitted and counted, made if missing.
    fn file_to_write(
        &self,
        object: &Object,
        at: At,
        line: &Line,
        range: Range<u64>,
        length: u64,
    ) -> Result<Arc<dyn DiskFile>> {
        line.admit()?;
        self.admit(object, at)?;
        let file = match self.check_reserve(length) {
            Ok(()) => self.file_made(object)?,
            // What is written anew has its space.
            Err(full) => self.file_of_data(object, range.clone())?.ok_or(full)?,
        };
        self.noted.touch_range(object.id, range);
        self.counters.bytes_written.add(length);
        self.counters.writes.add(1);
        object.version.set(object.version.get().wrapping_add(1));
        Ok(file)
    }

    fn write_object(
        self: &Rc<Self>,
        object: &Rc<Object>,
        at: At,
        line: &Rc<Line>,
        offset: u64,
        data: Bytes,
    ) -> Outcome<u32> {
        let end = offset.saturating_add(data.len() as u64);
        if !self.is_free(object, line, offset, end) {
            let (tree, object, line) = (self.clone(), object.clone(), line.clone());
            return Outcome::later(async move {
                tree.becomes_free(&object, &line, offset, end).await;
                tree.write_object(&object, at, &line, offset, data).wait().await
            });
        }
        let file = match self.file_to_write(object, at, line, offset..end, data.len() as u64) {
            Ok(file) => file,
            Err(error) => return Outcome::Now(Err(error)),
        };
        match file.write_now(offset, &[IoSlice::new(&data)]) {
            Ok(Some(count)) if count == data.len() => Outcome::Now(Ok(count as u32)),
            Ok(_) => {
                let writing = self.begin_writing(object, offset, end);
                in_pool(writing, disk::write(file, offset, data))
            }
            Err(error) => Outcome::Now(Err(error.into())),
        }
    }
}

/// What is written in the blocking pool. The task goes on, and keeps its range, when the wait is dropped.
fn in_pool(
    writing: Writing,
    write: impl Future<Output = std::io::Result<usize>> + 'static,
) -> Outcome<u32> {
    let task = task::spawn(async move {
        let written = write.await;
        drop(writing);
        written
    });
    Outcome::later(async move { Ok(task.await?? as u32) })
}

/// A write in the pool: what overlaps it, and a cut, have to wait.
struct Writing {
    object: Rc<Object>,
    range: (u64, u64),
    noted: Rc<changes::Noted>,
    /// What it was admitted under: see [`chains::Chains::serve`].
    _turn: Rc<chains::Turn>,
}

impl DataTree {
    fn begin_writing(&self, object: &Rc<Object>, start: u64, end: u64) -> Writing {
        object.writing.borrow_mut().push((start, end));
        let (object, range, noted) = (object.clone(), (start, end), self.noted.clone());
        Writing { object, range, noted, _turn: self.chains.turn() }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // What was read in between may have been from before.
        self.noted.touch_range(self.object.id, self.range.0..self.range.1);
        let mut writing = self.object.writing.borrow_mut();
        if let Some(at) = writing.iter().position(|&range| range == self.range) {
            writing.swap_remove(at);
        }
        self.object.ended.notify_waiters();
    }
}
