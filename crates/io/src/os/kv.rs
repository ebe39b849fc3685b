//! The ordered map on disk: LMDB with one write transaction that is always open.
//!
//! Everything is read and written inside that transaction, by whoever owns the map, so a
//! caller sees its own changes at once and nobody else sees any. `checkpoint` makes all of them
//! durable together; `rollback`, a crash or a power cut lead back to the last checkpoint. What must
//! survive in between is the caller's to log.
//!
//! LMDB maps its file. The map's size is address space, not disk: the file grows as it is filled.

use super::lock::LockFile;
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, MdbError, RwTxn, WithoutTls};
use std::io;
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;
use std::ptr::NonNull;

/// Address space for the map unless the caller says otherwise: 64 GiB.
pub const MAP_BYTES_DEFAULT: usize = 64 << 30;

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
    _lock: LockFile,
    /// Neither Send nor Sync by itself; see below.
    _one_thread_at_a_time: PhantomData<*const ()>,
}

// SAFETY: LMDB ties a write transaction to its thread by the writer mutex and by a reader slot in
// thread-local storage. With NO_LOCK there is neither, and what is left is plain memory that its one
// owner may take along.
unsafe impl Send for Kv {}

impl Kv {
    /// Opens the map in the directory `dir`, or makes it there. `map_bytes` bounds its size for
    /// this run and may differ from run to run.
    ///
    /// An error of kind `ResourceBusy` says which process uses the directory.
    pub fn open(dir: &Path, map_bytes: usize) -> io::Result<Kv> {
        let lock = LockFile::take(&dir.join("kv.lock"))?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(map_bytes.next_multiple_of(PAGE_BYTES)).max_readers(1);
        // SAFETY: the mapped file must not change behind LMDB's back. The lock file keeps other
        // processes of ours out, and nothing else writes into a storage directory. NO_LOCK asks
        // that accesses exclude one another: there is one `Kv`, and it is not Sync.
        unsafe { options.flags(EnvFlags::NO_LOCK) };
        // SAFETY: as above.
        let environment = unsafe { options.open(dir) }.map_err(into_io)?;
        // A transaction borrows its environment, and both live in one struct: the environment gets
        // an address of its own, and a lifetime that `drop` ends by hand.
        let environment: &'static mut Env<WithoutTls> = Box::leak(Box::new(environment));
        let pointer = NonNull::from(&mut *environment);
        let opened = begin_first(environment);
        match opened {
            Ok((transaction, map)) => Ok(Kv {
                transaction: Some(transaction),
                map,
                environment: pointer,
                _lock: lock,
                _one_thread_at_a_time: PhantomData,
            }),
            Err(error) => {
                // SAFETY: the pointer is from `Box::leak` above, and the transaction that borrowed
                // from it is gone.
                drop(unsafe { Box::from_raw(pointer.as_ptr()) });
                Err(into_io(error))
            }
        }
    }

    /// The value of `key`, borrowed from the map until the next change.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<&[u8]>> {
        self.map.get(self.transaction()?, key).map_err(into_io)
    }

    /// Sets `key`, 1 to 511 bytes long.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let map = self.map;
        map.put(self.transaction_mut()?, key, value).map_err(into_io)
    }

    /// Removes `key`; whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> io::Result<bool> {
        let map = self.map;
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
    /// error (ENOSPC, EIO) the map is back at the last checkpoint.
    pub fn checkpoint(&mut self) -> io::Result<()> {
        let ended = match self.transaction.take() {
            Some(transaction) => transaction.commit().map_err(into_io),
            None => Ok(()),
        };
        let begun = self.begin();
        ended.and(begun)
    }

    /// Forgets every change since the last checkpoint.
    pub fn rollback(&mut self) -> io::Result<()> {
        if let Some(transaction) = self.transaction.take() {
            transaction.abort();
        }
        self.begin()
    }

    /// Bytes of the map in use and its bound, to warn before it is full.
    pub fn space(&self) -> (u64, u64) {
        let info = self.environment().info();
        let used = (info.last_page_number as u64 + 1) * PAGE_BYTES as u64;
        (used, info.map_size as u64)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> Kv {
        Kv::open(dir, 1 << 30).unwrap()
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

    #[test]
    fn a_second_opener_learns_who_is_first() {
        let dir = tempfile::tempdir().unwrap();
        let _kv = open(dir.path());
        let error = Kv::open(dir.path(), 1 << 30).unwrap_err();
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
