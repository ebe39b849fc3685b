//! The ordered map on disk: LMDB with one write transaction that is always open.
//!
//! Everything is read and written inside that transaction, by whoever owns the map, so a
//! caller sees its own changes at once and nobody else sees any. `checkpoint` makes all of them
//! durable together; `rollback`, a crash or a power cut lead back to the last checkpoint. What must
//! survive in between is the caller's to log.
//!
//! LMDB maps its file. The map's size is address space, not disk: the file grows as it is filled. There is twice as
//! much of it as the disk has bytes, and when the disk grows, so does it at the next checkpoint. So what ends
//! is the disk. Some of it is taken ahead of the rows, so that a checkpoint finds room for the pages that it
//! changes when somebody else has filled the disk: whoever keeps `dirty` of [`Kv::space`] small against the room
//! that is left can always delete.

use super::lock::LockFile;
use crate::disk::MapSpace;
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, MdbError, RwTxn, WithoutTls};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The map may grow to what its disk has.
pub const NO_LIMIT: u64 = u64::MAX;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 511;

/// An open map. One thread at a time may use it; it may be handed from thread to thread, so that a
/// checkpoint can wait for the disk elsewhere.
///
/// After an error of `put` or `delete` the transaction may be unusable: roll back.
pub struct Kv {
    /// The transaction, borrowed from `environment`. `None` only while it is being exchanged, or
    /// after a failure to begin a new one.
    transaction: Option<RwTxn<'static>>,
    map: Database<Bytes, Bytes>,
    /// From `Box::leak`, freed in `drop` after the transaction has ended.
    environment: NonNull<Env<WithoutTls>>,
    dir: PathBuf,
    /// LMDB's file, to take space for it.
    file: Arc<File>,
    limit: u64,
    taken: Arc<Taken>,
    account: Account,
    _lock: LockFile,
    /// Neither Send nor Sync by itself; see below.
    _one_thread_at_a_time: PhantomData<*const ()>,
}

// SAFETY: LMDB ties a write transaction to its thread by the writer mutex and by a reader slot in
// thread-local storage. With NO_LOCK there is neither, and what is left is plain memory that its one
// owner may take along.
unsafe impl Send for Kv {}

/// What has been changed since the last checkpoint.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Calls of `put` and `delete`.
    changes: u64,
    /// Pages of values that are too long for a leaf.
    long_pages: u64,
    /// Bytes in use when it began.
    used_before: u64,
    /// What the checkpoint before replaced, at most.
    pending: u64,
}

/// What the file has of the disk, in bytes.
#[derive(Debug, Default)]
struct Taken {
    /// How far space was taken ahead of the pages.
    ahead: AtomicU64,
    held: AtomicU64,
}

/// Space that is to be taken for a map ahead of its pages: see [`Kv::ahead`].
#[derive(Debug)]
pub struct Ahead {
    file: Arc<File>,
    taken: Arc<Taken>,
    from: u64,
    until: u64,
}

impl Ahead {
    /// Takes it, on any thread, while the map is in use. A disk without it is full, or cannot say ahead of time: then
    /// there is what there is.
    pub fn take(self) {
        let Ahead { file, taken, from, until } = self;
        if fallocate(&*file, FallocateFlags::KEEP_SIZE, from, until - from).is_ok() {
            taken.ahead.fetch_max(until, Ordering::SeqCst);
        }
        taken.note(&file);
    }
}

impl Taken {
    fn note(&self, file: &File) {
        if let Ok(about) = file.metadata() {
            self.held.store(about.blocks() * 512, Ordering::SeqCst);
        }
    }
}

impl Kv {
    /// Opens the map in the directory `dir`, or makes it there. `limit` bounds what it takes of the disk
    /// in this run and may differ from run to run.
    ///
    /// An error of kind `ResourceBusy` says which process uses the directory.
    pub fn open(dir: &Path, limit: u64) -> io::Result<Kv> {
        let lock = LockFile::take(&dir.join("kv.lock"))?;
        let path = dir.join("data.mdb");
        let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        let (mut size, least) = (address_space(dir, limit, bytes), whole_pages(bytes * 2));
        let environment = loop {
            match open_environment(dir, size) {
                // A process may have less address space than the disk has bytes.
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && size / 2 > least => {
                    size /= 2;
                }
                opened => break opened?,
            }
        };
        // A transaction borrows its environment, and both live in one struct: the environment gets
        // an address of its own, and a lifetime that `drop` ends by hand.
        let environment: &'static mut Env<WithoutTls> = Box::leak(Box::new(environment));
        let pointer = NonNull::from(&mut *environment);
        let opened = begin_first(environment)
            .map_err(into_io)
            .and_then(|begun| Ok((begun, OpenOptions::new().read(true).write(true).open(&path)?)));
        let ((transaction, map), file) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // SAFETY: the pointer is from `Box::leak` above, and the transaction that borrowed
                // from it is gone.
                drop(unsafe { Box::from_raw(pointer.as_ptr()) });
                return Err(error);
            }
        };
        let mut kv = Kv {
            transaction: Some(transaction),
            map,
            environment: pointer,
            dir: dir.to_owned(),
            file: Arc::new(file),
            limit,
            taken: Arc::default(),
            account: Account::default(),
            _lock: lock,
            _one_thread_at_a_time: PhantomData,
        };
        kv.begin_account(0)?;
        if let Some(ahead) = kv.ahead() {
            ahead.take();
        }
        Ok(kv)
    }

    /// The value of `key`, borrowed from the map until the next change.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<&[u8]>> {
        self.map.get(self.transaction()?, key).map_err(into_io)
    }

    /// Sets `key`, 1 to 511 bytes long.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let map = self.map;
        self.account.changes += 1;
        if value.len() + key.len() > LEAF_VALUE_BYTES_MAX {
            self.account.long_pages += (value.len() / PAGE_BYTES) as u64 + 2;
        }
        map.put(self.transaction_mut()?, key, value).map_err(into_io)
    }

    /// Removes `key`; whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> io::Result<bool> {
        let map = self.map;
        self.account.changes += 1;
        map.delete(self.transaction_mut()?, key).map_err(into_io)
    }

    /// Visits keys from `from` on in byte order, until `visit` answers false.
    pub fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> io::Result<()> {
        let range = (Bound::Included(from), Bound::Unbounded);
        for entry in self.map.range(self.transaction()?, &range).map_err(into_io)? {
            let (key, value) = entry.map_err(into_io)?;
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }

    /// How many keys there are.
    pub fn len(&self) -> io::Result<u64> {
        self.map.len(self.transaction()?).map_err(into_io)
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes every change so far durable, all or none, and begins anew. Waits for the disk. After an
    /// error (ENOSPC, EIO) the map is back at the last checkpoint. Then [`Kv::ahead`] is due.
    pub fn checkpoint(&mut self) -> io::Result<()> {
        let replaced = self.space().map_or(0, |space| space.dirty);
        let ended = match self.transaction.take() {
            Some(transaction) => transaction.commit().map_err(into_io),
            None => Ok(()),
        };
        self.grow();
        let begun = self.begin().and_then(|()| self.begin_account(replaced));
        ended.and(begun)
    }

    /// Forgets every change since the last checkpoint.
    pub fn rollback(&mut self) -> io::Result<()> {
        if let Some(transaction) = self.transaction.take() {
            transaction.abort();
        }
        self.begin()?;
        self.begin_account(self.account.pending)
    }

    /// What it uses, and what it has for more. `dirty` is reckoned from the number of changes, as if each had
    /// gone to other pages.
    pub fn space(&self) -> io::Result<MapSpace> {
        let stat = self.map.stat(self.transaction()?).map_err(into_io)?;
        let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages + META_PAGES;
        let used = (pages * PAGE_BYTES) as u64;
        let Account { changes, long_pages, used_before, pending } = self.account;
        let held = self.taken.held.load(Ordering::SeqCst);
        // A page is copied once, whatever is changed in it; then there are those of the list of free pages.
        let each = changes * (stat.depth as u64 + 2) + long_pages;
        let dirty = match changes {
            0 => 0,
            _ => (each * PAGE_BYTES as u64).min(used.max(used_before)) + FREE_LIST_BYTES,
        };
        Ok(MapSpace { used, dirty, pending, held, limit: self.limit })
    }

    /// A disk that has grown gets more address space. To be called between two transactions.
    fn grow(&mut self) {
        let environment = self.environment();
        let bytes = self.file.metadata().map_or(0, |meta| meta.len());
        let wanted = address_space(&self.dir, self.limit, bytes);
        if wanted > environment.info().map_size {
            // SAFETY: no transaction is active: the only one there ever is has just ended. Where the
            // address space is not to be had, LMDB goes on with what it has.
            let _ = unsafe { environment.resize(wanted) };
        }
    }

    /// What should be taken of the disk ahead of the pages, where that is more than is held. The map goes on meanwhile.
    pub fn ahead(&self) -> Option<Ahead> {
        let end = (self.environment().info().last_page_number as u64 + 1) * PAGE_BYTES as u64;
        let total =
            statvfs(&self.dir).map_or(0, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
        let reserve = MapSpace::reserve(total.min(self.limit));
        // Some more than is needed is taken, so that it is asked for seldom.
        let (until, from) = (end + reserve, self.taken.ahead.load(Ordering::SeqCst));
        let (file, taken) = (self.file.clone(), self.taken.clone());
        (from + reserve / 4 < until).then_some(Ahead { file, taken, from, until })
    }

    /// Begins to count anew.
    fn begin_account(&mut self, pending: u64) -> io::Result<()> {
        self.taken.note(&self.file);
        self.account = Account { pending, ..Account::default() };
        self.account.used_before = self.space()?.used;
        Ok(())
    }

    fn begin(&mut self) -> io::Result<()> {
        self.transaction = Some(self.environment().write_txn().map_err(into_io)?);
        Ok(())
    }

    fn environment(&self) -> &'static Env<WithoutTls> {
        // SAFETY: leaked in `open`, freed only in `drop`. The 'static lifetime goes nowhere but into
        // `self.transaction`, which `drop` ends first.
        unsafe { self.environment.as_ref() }
    }

    fn transaction(&self) -> io::Result<&RwTxn<'static>> {
        self.transaction.as_ref().ok_or_else(no_transaction)
    }

    fn transaction_mut(&mut self) -> io::Result<&mut RwTxn<'static>> {
        self.transaction.as_mut().ok_or_else(no_transaction)
    }
}

impl Drop for Kv {
    /// What was not checkpointed is forgotten.
    fn drop(&mut self) {
        drop(self.transaction.take());
        // SAFETY: the pointer is from `Box::leak` in `open`, and nothing borrows from it any more.
        drop(unsafe { Box::from_raw(self.environment.as_ptr()) });
    }
}

impl std::fmt::Debug for Kv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kv").field("path", &self.environment().path()).finish_non_exhaustive()
    }
}

/// Address space for a map on the disk of `dir` that has `bytes` already: more than can ever be filled.
fn address_space(dir: &Path, limit: u64, bytes: u64) -> usize {
    let disk = statvfs(dir).map_or(0, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
    let most = disk.max(ADDRESS_BYTES_MIN).min(limit).min(ADDRESS_BYTES_MAX / 2);
    whole_pages(most.max(bytes) * 2)
}

fn whole_pages(bytes: u64) -> usize {
    (bytes as usize).next_multiple_of(PAGE_BYTES)
}

fn open_environment(dir: &Path, size: usize) -> io::Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(size).max_readers(1);
    // SAFETY: the mapped file must not change behind LMDB's back. The lock file keeps other
    // processes of ours out, and nothing else writes into a storage directory. NO_LOCK asks
    // that accesses exclude one another: there is one `Kv`, and it is not Sync.
    unsafe { options.flags(EnvFlags::NO_LOCK) };
    // SAFETY: nothing but LMDB changes the mapped file: the lock file keeps other processes out.
    unsafe { options.open(dir) }.map_err(into_io)
}

/// The first transaction, with LMDB's unnamed database.
fn begin_first(
    environment: &'static Env<WithoutTls>,
) -> heed::Result<(RwTxn<'static>, Database<Bytes, Bytes>)> {
    let mut transaction = environment.write_txn()?;
    let map = environment.create_database(&mut transaction, None)?;
    Ok((transaction, map))
}

fn no_transaction() -> io::Error {
    io::Error::other("the key-value store has no transaction after a failed checkpoint")
}

/// An error with the number of errno(3) that says the same.
fn into_io(error: heed::Error) -> io::Error {
    let number = match error {
        heed::Error::Io(error) => return error,
        heed::Error::Mdb(MdbError::MapFull) => libc::ENOSPC,
        heed::Error::Mdb(MdbError::BadValSize) => libc::EINVAL,
        heed::Error::Mdb(MdbError::Other(code)) if code > 0 => code,
        other => return io::Error::other(format!("key-value store: {other}")),
    };
    io::Error::from_raw_os_error(number)
}

const PAGE_BYTES: usize = 4096;
/// Pages that say where the last two checkpoints are.
const META_PAGES: usize = 2;
/// A key and its value that are longer may get pages of their own.
const LEAF_VALUE_BYTES_MAX: usize = 1900;
/// The list of free pages, as far as one checkpoint changes it.
const FREE_LIST_BYTES: u64 = 4 * PAGE_BYTES as u64;
/// A map gets at least half of this and at most all of it in address space.
const ADDRESS_BYTES_MIN: u64 = 1 << 30;
const ADDRESS_BYTES_MAX: u64 = 16 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> Kv {
        Kv::open(dir, NO_LIMIT).unwrap()
    }

    #[test]
    fn a_checkpoint_survives_and_what_came_after_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut kv = open(dir.path());
        kv.put(b"kept", b"1").unwrap();
        kv.checkpoint().unwrap();
        kv.put(b"lost", b"2").unwrap();
        assert_eq!(kv.get(b"lost").unwrap(), Some(&b"2"[..]), "own changes are seen at once");
        drop(kv);
        let kv = open(dir.path());
        assert_eq!(kv.get(b"kept").unwrap(), Some(&b"1"[..]));
        assert_eq!(kv.get(b"lost").unwrap(), None);
    }

    #[test]
    fn rollback_leads_back_to_the_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let mut kv = open(dir.path());
        kv.put(b"a", b"old").unwrap();
        kv.checkpoint().unwrap();
        kv.put(b"a", b"new").unwrap();
        kv.put(b"b", b"new").unwrap();
        assert!(kv.delete(b"a").unwrap());
        kv.rollback().unwrap();
        assert_eq!(kv.get(b"a").unwrap(), Some(&b"old"[..]));
        assert_eq!(kv.len().unwrap(), 1);
    }

    #[test]
    fn a_scan_begins_at_its_key_and_ends_when_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut kv = open(dir.path());
        for key in [&b"a"[..], b"b", b"bb", b"c", b"d"] {
            kv.put(key, key).unwrap();
        }
        let mut seen = Vec::new();
        kv.scan(b"b", &mut |key, _| {
            seen.push(key.to_vec());
            key != b"c"
        })
        .unwrap();
        assert_eq!(seen, [&b"b"[..], b"bb", b"c"]);
        assert!(!kv.delete(b"nothing").unwrap());
    }

    #[test]
    fn a_full_map_is_enospc_and_rollback_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut kv = Kv::open(dir.path(), 256 << 10).unwrap();
        let fill = (0u32..).map(|n| kv.put(&n.to_le_bytes(), &[0; 4000]));
        let error = fill.take(1000).find_map(Result::err).expect("a bounded map fills up");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        kv.rollback().unwrap();
        kv.put(b"fits", b"again").unwrap();
        kv.checkpoint().unwrap();
        assert_eq!(kv.len().unwrap(), 1);
    }

    /// Row `n` of about half a page.
    fn row(n: u64) -> ([u8; 8], [u8; 1500]) {
        // Not in the order of the keys, as ids in hashed directories are not.
        (n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes(), [n as u8; 1500])
    }

    #[test]
    fn whoever_keeps_checkpoints_small_can_fill_a_map_and_delete_everything() {
        const LIMIT: u64 = 4 << 20;
        let dir = tempfile::tempdir().unwrap();
        let mut kv = Kv::open(dir.path(), LIMIT).unwrap();
        let careful = |kv: &mut Kv, disk: u64| {
            let space = kv.space().unwrap();
            if space.dirty >= space.room(disk) / 3 {
                kv.checkpoint().unwrap();
            }
        };
        let mut rows = 0;
        while kv.space().unwrap().used < LIMIT / 20 * 19 {
            careful(&mut kv, u64::MAX);
            let (key, value) = row(rows);
            kv.put(&key, &value).unwrap();
            rows += 1;
        }
        assert!(rows > 1000, "{rows} rows fit");
        kv.checkpoint().unwrap();
        drop(kv);
        // What is held, and not what the disk has, is enough to delete with.
        let mut kv = Kv::open(dir.path(), LIMIT).unwrap();
        for at in 0..rows {
            careful(&mut kv, 0);
            assert!(kv.delete(&row(at).0).unwrap());
        }
        kv.checkpoint().unwrap();
        assert!(kv.is_empty().unwrap() && kv.space().unwrap().used < 1 << 16);
        let length = std::fs::metadata(dir.path().join("data.mdb")).unwrap().len();
        assert!(length <= LIMIT + (64 << 10), "{length} bytes");
    }

    #[test]
    fn what_is_reckoned_dirty_is_no_less_than_what_a_checkpoint_writes() {
        let dir = tempfile::tempdir().unwrap();
        let mut kv = open(dir.path());
        let end = |kv: &Kv| (kv.environment().info().last_page_number as u64 + 1) * 4096;
        (0..2000).for_each(|n| kv.put(&row(n).0, &row(n).1).unwrap());
        kv.checkpoint().unwrap();
        // Nothing is free: every page that is changed is a new one at the end.
        for (from, to) in [(0, 3), (3, 400), (0, 2000)] {
            let before = end(&kv);
            (from..to).for_each(|n| kv.put(&row(n).0, &[7; 1500]).unwrap());
            kv.put(b"long", &[1; 20_000]).unwrap();
            let dirty = kv.space().unwrap().dirty;
            kv.checkpoint().unwrap();
            let grown = end(&kv) - before;
            assert!(grown <= dirty, "{grown} bytes were written, {dirty} reckoned");
        }
    }

    #[test]
    fn space_is_taken_ahead_by_another_thread_while_the_map_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let mut kv = open(dir.path());
        assert!(kv.ahead().is_none(), "it has been taken");
        let before = kv.space().unwrap();
        let rows = before.held / 2000;
        (0..rows).for_each(|n| kv.put(&row(n).0, &row(n).1).unwrap());
        kv.checkpoint().unwrap();
        let ahead = kv.ahead().expect("the pages have come near its end");
        let taking = std::thread::spawn(move || ahead.take());
        (0..rows / 2).for_each(|n| assert!(kv.delete(&row(n).0).unwrap()));
        taking.join().unwrap();
        let after = kv.space().unwrap();
        assert!(after.held > before.held, "{after:?} after {before:?}");
        kv.checkpoint().unwrap();
        assert_eq!(kv.len().unwrap(), rows - rows / 2);
    }

    #[test]
    fn a_map_may_be_opened_with_a_smaller_limit_than_it_has_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let mut kv = open(dir.path());
        (0..500).for_each(|n| kv.put(&row(n).0, &row(n).1).unwrap());
        kv.checkpoint().unwrap();
        drop(kv);
        let mut kv = Kv::open(dir.path(), 4096).unwrap();
        assert_eq!(kv.space().unwrap().room(u64::MAX), 0);
        (0..500).for_each(|n| assert!(kv.delete(&row(n).0).unwrap()));
        kv.checkpoint().unwrap();
    }

    #[test]
    fn a_second_opener_learns_who_is_first() {
        let dir = tempfile::tempdir().unwrap();
        let _kv = open(dir.path());
        let error = Kv::open(dir.path(), NO_LIMIT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(error.to_string(), format!("in use by process {}", std::process::id()));
    }

    #[test]
    fn keys_of_improper_length_are_invalid() {
        let dir = tempfile::tempdir().unwrap();
        let mut kv = open(dir.path());
        kv.put(&[7; KEY_BYTES_MAX], b"").unwrap();
        let error = kv.put(&[7; KEY_BYTES_MAX + 1], b"").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
