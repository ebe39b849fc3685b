//! A simulated disk with a page cache.
//!
//! What was written and not synced survives the death of the process that wrote it. When the power
//! goes ([`SimDisk::lose_power`]) it is lost, or not, sector by sector. Names and truncations are kept as by
//! a journaling file system (ext4, XFS): in their order, so that what survives is what was done up
//! to some moment, and a sync of a file or a directory makes durable whatever was done to it and
//! all that was done before. A map ([`SimMap`]) stands for LMDB: it changes by whole checkpoints.
//!
//! A sync can be made to fail ([`SimDisk::fail_syncs`]), or the system's own writing back
//! ([`SimDisk::fail_write_back`]). Then, as on Linux, the pages are taken for clean: later syncs have nothing
//! to do and succeed, the bytes are seen for as long as they are cached, and each file that was open reports
//! it once.
//!
//! A *crash point* ends the process in the middle of a chosen disk operation, which then is done, half done
//! or not done.

mod file;
mod map;
mod power;

pub use map::SimMap;

use crate::disk::{Disk, DiskFile, FileStat, Open, Space};
use crate::task;
use covey_wire::Rng;
use file::{Inode, SimFile};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What kind of disk it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskProfile {
    /// Bytes that fit.
    pub capacity: u64,
    /// Of a thousand reads, how many the page cache can answer at once.
    pub cached_permille: u64,
    /// Writes are taken at once, as by tmpfs; elsewhere somebody has to wait for them.
    pub takes_writes: bool,
}

impl Default for DiskProfile {
    fn default() -> Self {
        DiskProfile { capacity: 1 << 30, cached_permille: 700, takes_writes: false }
    }
}

/// A disk; clones are the same one. It outlives the processes of its machine.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: Rng,
    profile: DiskProfile,
    inodes: HashMap<u64, Inode>,
    inode_next: u64,
    names: BTreeMap<PathBuf, u64>,
    dirs: BTreeSet<PathBuf>,
    used: u64,
    /// What the disk holds of the names.
    durable_names: BTreeMap<PathBuf, u64>,
    /// Changes of names that are not certain to be on the disk, in their order.
    journal: Vec<NameChange>,
    /// Number of the last change of a name or a truncation, and of the last one that is durable.
    changes: u64,
    durable_changes: u64,
    maps: BTreeMap<PathBuf, map::Durable>,
    /// Changes until the process ends.
    crash_after: Option<u64>,
    /// Syncs of dirty files that fail from now on.
    failing_syncs: u64,
    has_failed_sync: bool,
    /// Syncs of directories that fail from now on.
    failing_dir_syncs: u64,
    /// Looks at names until one fails.
    failing_look: Option<u64>,
    operations: u64,
    starts: u64,
    started_at: Option<Instant>,
}

/// A name that leads to an inode from now on, or to none; a rename is two in one.
#[derive(Clone, Debug)]
struct NameChange {
    number: u64,
    sets: Vec<(PathBuf, Option<u64>)>,
}

/// How an operation comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    /// The process ends in it.
    Crash,
}

impl SimDisk {
    /// An empty disk.
    pub fn new(profile: DiskProfile, rng: Rng) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(State {
            rng,
            profile,
            inodes: HashMap::new(),
            inode_next: 1,
            names: BTreeMap::new(),
            dirs: BTreeSet::new(),
            used: 0,
            durable_names: BTreeMap::new(),
            journal: Vec::new(),
            changes: 0,
            durable_changes: 0,
            maps: BTreeMap::new(),
            crash_after: None,
            failing_syncs: 0,
            has_failed_sync: false,
            failing_dir_syncs: 0,
            failing_look: None,
            operations: 0,
            starts: 1,
            started_at: None,
        })))
    }

    /// Ends the process that makes the operation after so many more changes of this disk; None: not.
    pub fn set_crash_point(&self, after: Option<u64>) {
        self.lock().crash_after = after;
    }

    /// Sets how many bytes fit.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().profile.capacity = bytes;
    }

    /// The next `count` syncs that have something to write fail with EIO, those of maps included.
    pub fn fail_syncs(&self, count: u64) {
        let mut state = self.lock();
        state.failing_syncs = count;
        state.has_failed_sync = false;
    }

    /// The next `count` syncs of directories fail with EIO. The one after them succeeds, as on Linux.
    pub fn fail_dir_syncs(&self, count: u64) {
        self.lock().failing_dir_syncs = count;
    }

    /// Whether the next sync of a directory fails.
    pub fn fails_dir_syncs(&self) -> bool {
        self.lock().failing_dir_syncs > 0
    }

    /// Whether a sync has failed since [`SimDisk::fail_syncs`] was called last, or will.
    pub fn fails_syncs(&self) -> bool {
        let state = self.lock();
        state.failing_syncs > 0 || state.has_failed_sync
    }

    /// After so many more looks at what there is (lists, states, opens of existing files) one fails
    /// with EIO; None: none does.
    pub fn fail_look(&self, after: Option<u64>) {
        self.lock().failing_look = after;
    }

    /// What is dirty now is written back by the system, without success: the next sync reports it.
    pub fn fail_write_back(&self) {
        let mut state = self.lock();
        let State { inodes, rng, .. } = &mut *state;
        let mut dirty: Vec<_> = inodes.iter_mut().filter(|(_, inode)| inode.is_dirty()).collect();
        // In the order of their numbers, or the same seed would not do the same.
        dirty.sort_by_key(|(number, _)| **number);
        dirty.into_iter().for_each(|(_, inode)| inode.fail_write_back(rng));
    }

    /// Whether a file that still has a name has lost something to a failed write-back.
    pub fn is_damaged(&self) -> bool {
        let state = self.lock();
        state.names.values().any(|number| state.inodes[number].has_failed())
    }

    /// Bytes of all files with a name, and of maps.
    pub fn used(&self) -> u64 {
        self.lock().used
    }

    /// Changes so far.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Flips one bit of a file, in the cache and on the disk; false when it has none.
    pub fn rot(&self, path: &Path) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        let inode = state.names.get(path).and_then(|number| state.inodes.get_mut(number));
        inode.is_some_and(|inode| inode.rot(&mut state.rng))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change: counted, and now and then the last one of its process.
    fn change<T>(&self, act: impl FnOnce(&mut State, Fate) -> io::Result<T>) -> io::Result<T> {
        let (result, fate) = {
            let mut state = self.lock();
            let fate = state.fate();
            (act(&mut state, fate), fate)
        };
        if fate == Fate::Crash {
            task::exit("it was to end in this disk operation");
        }
        result
    }
}

impl State {
    fn fate(&mut self) -> Fate {
        self.operations += 1;
        match &mut self.crash_after {
            None => Fate::Done,
            Some(0) => {
                self.crash_after = None;
                Fate::Crash
            }
            Some(left) => {
                *left -= 1;
                Fate::Done
            }
        }
    }

    /// Whether a sync that has something to write fails.
    fn sync_fails(&mut self) -> bool {
        let fails = self.failing_syncs > 0;
        self.failing_syncs -= u64::from(fails);
        self.has_failed_sync |= fails;
        fails
    }

    fn look(&mut self) -> io::Result<()> {
        match self.failing_look {
            None => Ok(()),
            Some(left) => {
                self.failing_look = left.checked_sub(1);
                if left > 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
            }
        }
    }

    /// Whether an operation that is done whole or not at all is done.
    fn is_done(&mut self, fate: Fate) -> bool {
        fate == Fate::Done || self.rng.chance(500)
    }

    fn set_names(&mut self, sets: Vec<(PathBuf, Option<u64>)>) {
        for (path, inode) in &sets {
            let before = match inode {
                Some(inode) => self.names.insert(path.clone(), *inode),
                None => self.names.remove(path),
            };
            if let Some(before) = before.filter(|before| Some(*before) != *inode) {
                let is_renamed = sets.iter().any(|(_, inode)| *inode == Some(before));
                if !is_renamed {
                    self.used -= self.inodes[&before].space();
                    self.inodes.get_mut(&before).expect("it has a name").is_named = false;
                }
            }
        }
        self.changes += 1;
        let number = self.changes;
        self.journal.push(NameChange { number, sets });
    }

    /// The names in a directory, also those of directories.
    fn inside(&self, dir: &Path) -> Vec<OsString> {
        let below = self.names.range(dir.to_owned()..).map(|(path, _)| path);
        let dirs = self.dirs.range(dir.to_owned()..);
        let below = below
            .take_while(|path| path.starts_with(dir))
            .chain(dirs.take_while(|path| path.starts_with(dir)));
        let own = below.filter(|path| path.parent() == Some(dir));
        own.filter_map(|path| path.file_name()).map(ToOwned::to_owned).collect()
    }

    fn inode_of(&self, path: &Path) -> io::Result<u64> {
        self.names.get(path).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn parent_exists(&self, path: &Path) -> io::Result<()> {
        if path.parent().is_some_and(|dir| self.dirs.contains(dir)) {
            Ok(())
        } else {
            Err(ErrorKind::NotFound.into())
        }
    }

    fn create(&mut self, path: &Path) -> u64 {
        let number = self.inode_next;
        self.inode_next += 1;
        self.inodes.insert(number, Inode::new());
        self.set_names(vec![(path.to_owned(), Some(number))]);
        number
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let known = {
            let mut state = self.lock();
            if how == Open::Existing {
                state.look()?;
            }
            state.inode_of(path)
        };
        let inode = match (known, how) {
            (Ok(inode), Open::Existing | Open::Create) => inode,
            (Err(error), Open::Existing) => return Err(error),
            (Ok(inode), Open::Truncate) => {
                SimFile::new(self, inode).set_length(0)?;
                inode
            }
            (Err(_), _) => self.change(|state, fate| {
                state.parent_exists(path)?;
                if state.is_done(fate) {
                    Ok(state.create(path))
                } else {
                    Err(ErrorKind::Interrupted.into())
                }
            })?,
        };
        Ok(Arc::new(SimFile::new(self, inode)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(|state, fate| {
            state.inode_of(path)?;
            if state.is_done(fate) {
                state.set_names(vec![(path.to_owned(), None)]);
            }
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|state, fate| {
            let inode = state.inode_of(from)?;
            state.parent_exists(to)?;
            if state.is_done(fate) && from != to {
                let sets = vec![(to.to_owned(), Some(inode)), (from.to_owned(), None)];
                state.set_names(sets);
            }
            Ok(())
        })
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        // Always durable.
        self.lock().dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.lock();
        if state.inside(dir).is_empty() {
            state.dirs.remove(dir);
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let mut state = self.lock();
        state.look()?;
        if !state.dirs.contains(dir) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(state.inside(dir))
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        let mut state = self.lock();
        state.look()?;
        let inode = state.inode_of(path)?;
        Ok(state.inodes[&inode].stat())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(|state, fate| {
            if let Some(left) = state.failing_dir_syncs.checked_sub(1) {
                state.failing_dir_syncs = left;
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            if state.is_done(fate) {
                let inside = |change: &&NameChange| {
                    change.sets.iter().any(|(path, _)| path.parent() == Some(dir))
                };
                let last = state.journal.iter().rev().find(inside).map(|change| change.number);
                state.make_durable(last.unwrap_or(0));
            }
            Ok(())
        })
    }

    fn space(&self, _: &Path) -> io::Result<Space> {
        const UNIT: u64 = 4096;
        let state = self.lock();
        let free = state.profile.capacity.saturating_sub(state.used) / UNIT;
        Ok(Space {
            unit: UNIT,
            units: state.profile.capacity / UNIT,
            free,
            available: free,
            files: 1 << 20,
            files_free: 1 << 19,
            id: 0,
            name_bytes_max: 255,
        })
    }

    fn machine_start(&self, _: &Path) -> u64 {
        self.lock().starts
    }

    fn machine_boot(&self) -> u64 {
        // Another number than the one with the mount.
        self.lock().starts + (1 << 32)
    }

    fn mark(&self) -> io::Result<[u8; 16]> {
        // What comes of a seed must not depend on how many marks were asked for.
        let mut rng = self.lock().rng.clone();
        let (high, low) = (rng.next().to_le_bytes(), rng.next().to_le_bytes());
        Ok(std::array::from_fn(|at| if at < 8 { high[at] } else { low[at - 8] }))
    }

    fn machine_age(&self) -> Duration {
        self.lock().started_at.map_or(Duration::MAX, |at| task::now() - at)
    }
}
