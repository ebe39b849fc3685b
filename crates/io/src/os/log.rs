//! The batch log: records appended in order, each with a checksum, in one file per generation.
//!
//! ```text
//!   DIR/log.00000003:   len u32 | crc32 of payload u32 | payload | len | crc | payload | ...
//! ```
//!
//! What `append` has taken survives the death of the process; what `sync` has reached survives a
//! power cut. A generation ends with a checkpoint of the store that the log protects: `rotate` begins
//! the next file and removes the older ones. Space is taken from the disk in large steps ahead of
//! the records, so that a full disk is noticed before anything is written.
//!
//! A record is never empty, so that the zeroes behind a torn tail are no records. After a sync the next
//! records are preceded by a mark that says how far it reached (`mark`): what is bad before that place is no
//! torn tail but damage, and is not cut off.
//!
//! A sync that failed may have dropped what it was to write, and the next one would succeed without it. So
//! a generation whose sync has failed once is never synced again: only the next checkpoint makes its records
//! durable. Until then `log.doubt` is in the directory, so that a start before it knows. The system tells a
//! failure to one sync only, so there is one at a time: the next begins when it is known what came of it.

mod mark;
mod next;

pub use next::{Making, Next};

use crate::disk::{Disk, DiskFile, Flush, Open};
use std::io::{self, BufReader, IoSlice, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Longest record in bytes; a length beyond it is damage.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// An open log.
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    generation: u64,
    file: Arc<dyn DiskFile>,
    /// Where the next record goes.
    end: u64,
    /// How far space is reserved.
    reserved: u64,
    /// Records of one append, put together.
    batch: Vec<u8>,
    /// What the last mark says.
    marked: u64,
    sync: SyncHandle,
}

/// Brings the log to the disk, from any thread. Follows the log through its generations.
#[derive(Clone, Debug)]
pub struct SyncHandle {
    current: Arc<Mutex<Arc<Current>>>,
    disk: Arc<dyn Disk>,
    doubt: PathBuf,
}

/// The file of a generation.
#[derive(Debug)]
struct Current {
    file: Arc<dyn DiskFile>,
    /// Held by a sync, whether or not anybody waits for it.
    turn: Mutex<()>,
    /// Where its records end, and up to where they are known to be on the disk.
    written: AtomicU64,
    synced: AtomicU64,
    /// A sync has failed.
    is_in_doubt: AtomicBool,
}

impl Current {
    fn new(file: Arc<dyn DiskFile>, end: u64) -> Arc<Current> {
        let (written, synced) = (AtomicU64::new(end), AtomicU64::new(0));
        let (turn, is_in_doubt) = (Mutex::new(()), AtomicBool::new(false));
        Arc::new(Current { file, turn, written, synced, is_in_doubt })
    }
}

/// What a replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Good records.
    pub records: u64,
    /// Their length with headers: where the log goes on.
    pub bytes: u64,
    /// What ended the log early, if anything.
    pub torn: Option<Torn>,
}

/// Bytes behind the last good record, now cut off. After a crash they are an append that was never
/// acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// How many bytes were cut off.
    pub bytes: u64,
    /// What was wrong with them.
    pub reason: &'static str,
    /// They end within a record, as those of a process that ended while it wrote. Anything else has been
    /// lost between the system and its disk.
    pub is_cut_off: bool,
}

impl Log {
    /// Opens the log of `generation` in `dir` behind its last good record, or makes it. A torn tail
    /// is cut off, and files of older generations are removed.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, generation: u64) -> io::Result<Log> {
        let end = replay(&*disk, dir, generation, |_| Ok(()))?.bytes;
        let file = disk.open(&path_of(dir, generation), Open::Create)?;
        disk.sync_dir(dir)?;
        remove_older(&*disk, dir, generation)?;
        next::forget(&*disk, dir)?;
        let current = Arc::new(Mutex::new(Current::new(file.clone(), end)));
        let sync = SyncHandle { current, disk: disk.clone(), doubt: dir.join(DOUBT) };
        let dir = dir.to_owned();
        let (reserved, marked) = (end, 0);
        Ok(Log { disk, dir, generation, file, end, reserved, batch: Vec::new(), marked, sync })
    }

    /// Appends records, all or none, with one write. ENOSPC comes before anything is written.
    pub fn append(&mut self, records: &[&[u8]]) -> io::Result<()> {
        self.batch.clear();
        let current = self.sync.lock().clone();
        let synced = current.synced.load(Ordering::SeqCst);
        if synced > self.marked {
            mark::put(self.end, synced, &mut self.batch);
        }
        for record in records {
            check_length(record)?;
            self.batch.extend_from_slice(&(record.len() as u32).to_le_bytes());
            self.batch.extend_from_slice(&crc32fast::hash(record).to_le_bytes());
            self.batch.extend_from_slice(record);
        }
        self.reserve(self.batch.len() as u64)?;
        if let Err(error) = self.write_batch() {
            // Half a batch must not be taken for a whole one after a restart.
            self.file.set_length(self.end)?;
            self.reserved = self.end;
            return Err(error);
        }
        self.end += self.batch.len() as u64;
        self.marked = synced;
        current.written.store(self.end, Ordering::SeqCst);
        self.batch.shrink_to(BATCH_BYTES_KEPT);
        Ok(())
    }

    fn write_batch(&self) -> io::Result<()> {
        let mut done = 0;
        while done < self.batch.len() {
            let rest = [IoSlice::new(&self.batch[done..])];
            done += self.file.write_all_blocking(self.end + done as u64, &rest)?;
        }
        Ok(())
    }

    /// For the thread that syncs.
    pub fn sync_handle(&self) -> SyncHandle {
        self.sync.clone()
    }

    /// The generation that records go to.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes of records in this generation.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Begins the empty log of `generation`, a later one, and removes the older ones, unless it is `next`: then
    /// [`Log::removing_older`] is due. To be called when the store has a durable checkpoint that says `generation`.
    /// After an error the old generation is still in use.
    pub fn rotate(&mut self, generation: u64, next: Option<Next>) -> io::Result<()> {
        if generation <= self.generation {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "generations only grow"));
        }
        let path = path_of(&self.dir, generation);
        let next = next.filter(|_| self.disk.rename(&next::name(&self.dir), &path).is_ok());
        let is_ready = next.is_some();
        let (file, reserved) = match next {
            Some(Next { file, reserved }) => (file, reserved),
            None => (patiently(|| self.disk.open(&path, Open::Truncate))?, 0),
        };
        patiently(|| self.disk.sync_dir(&self.dir))?;
        self.file = file;
        (self.generation, self.end, self.reserved, self.marked) = (generation, 0, reserved, 0);
        *self.sync.lock() = Current::new(self.file.clone(), 0);
        if !is_ready {
            patiently(|| remove_older(&*self.disk, &self.dir, generation))?;
            // The older ones have just given their space back: this one takes it before somebody else does. Where
            // that fails, the next append tells.
            let _ = self.reserve(1);
        }
        if is_in_doubt(&*self.disk, &self.dir) {
            self.disk.remove(&self.dir.join(DOUBT))
        } else {
            Ok(())
        }
    }

    /// Makes sure that the disk has room for `bytes` more; ENOSPC when it has not.
    pub fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let wanted = self.end + bytes;
        if wanted <= self.reserved {
            return Ok(());
        }
        let ahead = wanted.next_multiple_of(STEP_BYTES);
        // Near the end of the disk a whole step may be too much, and the records may still fit.
        self.reserved = match self.fallocate(ahead) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.fallocate(wanted).map(|()| wanted)
            }
            taken => taken.map(|()| ahead),
        }?;
        Ok(())
    }

    fn fallocate(&self, until: u64) -> io::Result<()> {
        match self.file.reserve(self.reserved, until - self.reserved) {
            // This file system cannot say ahead of time.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            result => result,
        }
    }
}

impl SyncHandle {
    /// Waits until every record appended before the call is on the disk. After an error no other call
    /// succeeds until the log is rotated.
    pub fn sync(&self) -> io::Result<()> {
        // A record of a generation that ends meanwhile is in the checkpoint that ended it.
        let current = self.lock().clone();
        let _turn = current.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if current.is_in_doubt.load(Ordering::SeqCst) {
            return Err(io::Error::other("an earlier sync of this log has failed"));
        }
        let reaching = current.written.load(Ordering::SeqCst);
        if let Err(error) = current.file.sync_blocking(Flush::Data) {
            current.is_in_doubt.store(true, Ordering::SeqCst);
            // A log that has ended meanwhile is in the checkpoint, and the next one is not in doubt.
            let now = self.lock();
            if Arc::ptr_eq(&now, &current) {
                // Not synced: that it outlives this process is enough, as another start of the machine is
                // reason for doubt by itself.
                self.disk.open(&self.doubt, Open::Create)?;
            }
            return Err(error);
        }
        current.synced.fetch_max(reaching, Ordering::SeqCst);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives every good record of `generation` to `visit`, in order, and cuts off what is behind the last
/// one. A log that is not there has no records. An error of `visit` ends the replay and cuts nothing, and
/// so does a bad record that was on the disk once: InvalidData.
pub fn replay(
    disk: &dyn Disk,
    dir: &Path,
    generation: u64,
    mut visit: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Replay> {
    let path = path_of(dir, generation);
    let file = match disk.open(&path, Open::Existing) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Replay::default()),
        Err(error) => return Err(error),
    };
    let length = file.stat()?.bytes;
    let mut from = BufReader::with_capacity(1 << 20, FromStart { file: &*file, at: 0 });
    let mut found = Replay::default();
    let mut record = Vec::new();
    while found.bytes < length {
        match read_record(&mut from, length - found.bytes, &mut record)? {
            Ok(Entry::Record) => {
                visit(&record)?;
                found.records += 1;
            }
            Ok(Entry::Mark) => {}
            Err(reason) => {
                must_be_torn(&*file, &path, found.bytes, length, reason)?;
                let is_cut_off = CUT_OFF.contains(&reason);
                found.torn = Some(Torn { bytes: length - found.bytes, reason, is_cut_off });
                file.set_length(found.bytes)?;
                // The first may report what an earlier process could not write; the cut itself has no pages.
                file.sync_blocking(Flush::All).or_else(|_| file.sync_blocking(Flush::All))?;
                break;
            }
        }
        found.bytes += HEADER_BYTES + record.len() as u64;
    }
    Ok(found)
}

/// Refuses to take what is bad from `start` on for a torn tail when a later mark says that it was on the
/// disk.
fn must_be_torn(
    file: &dyn DiskFile,
    path: &Path,
    start: u64,
    length: u64,
    reason: &str,
) -> io::Result<()> {
    let mut rest = Vec::new();
    FromStart { file, at: start }.take(length - start).read_to_end(&mut rest)?;
    let synced = mark::furthest(&rest, start);
    if synced <= start {
        return Ok(());
    }
    let path = path.display();
    let text = format!(
        "{path} is damaged at byte {start} ({reason}), and was on the disk up to byte {synced}; \
        hint: restore it, or go on without what came after with: truncate --size={start} {path}"
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

/// A file as a stream.
struct FromStart<'a> {
    file: &'a dyn DiskFile,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read_blocking(self.at, into.len())?;
        into[..bytes.len()].copy_from_slice(&bytes);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }
}

/// What stands in a log.
enum Entry {
    Record,
    Mark,
}

/// Reads one record or mark; the inner error says why there is none.
fn read_record(
    from: &mut impl Read,
    left: u64,
    record: &mut Vec<u8>,
) -> io::Result<Result<Entry, &'static str>> {
    if left < HEADER_BYTES {
        return Ok(Err(CUT_OFF[0]));
    }
    let (mut length, mut crc) = ([0; 4], [0; 4]);
    from.read_exact(&mut length)?;
    from.read_exact(&mut crc)?;
    let (length, entry) = match u32::from_le_bytes(length) {
        mark::MARK => ((mark::MARK_BYTES - HEADER_BYTES) as usize, Entry::Mark),
        length => (length as usize, Entry::Record),
    };
    if length == 0 || length > RECORD_BYTES_MAX {
        return Ok(Err("the length is impossible"));
    }
    if length as u64 > left - HEADER_BYTES {
        return Ok(Err(CUT_OFF[1]));
    }
    record.resize(length, 0);
    from.read_exact(record)?;
    let is_good = crc32fast::hash(record) == u32::from_le_bytes(crc);
    Ok(if is_good { Ok(entry) } else { Err("the checksum is wrong") })
}

fn check_length(record: &[u8]) -> io::Result<()> {
    if (1..=RECORD_BYTES_MAX).contains(&record.len()) {
        return Ok(());
    }
    let text = format!("log record is {} bytes, limit is 1 to {RECORD_BYTES_MAX}", record.len());
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn path_of(dir: &Path, generation: u64) -> PathBuf {
    dir.join(format!("log.{generation:08}"))
}

/// Whether a sync of the log in `dir` has failed since its last rotation.
pub fn is_in_doubt(disk: &dyn Disk, dir: &Path) -> bool {
    disk.stat(&dir.join(DOUBT)).is_ok()
}

fn remove_older(disk: &dyn Disk, dir: &Path, generation: u64) -> io::Result<()> {
    for name in disk.list(dir)? {
        let number = name.to_str().and_then(|name| name.strip_prefix("log.")?.parse::<u64>().ok());
        if number.is_some_and(|number| number < generation) {
            remove(disk, &dir.join(name))?;
        }
    }
    Ok(())
}

/// Removes a file that another thread may remove as well.
fn remove(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

const HEADER_BYTES: u64 = 8;
/// The file that says that a sync has failed.
const DOUBT: &str = "log.doubt";
/// How a record ends whose writer has ended in the middle.
const CUT_OFF: [&str; 2] = ["the header is cut off", "the record is cut off"];
/// Space is reserved in steps of this.
const STEP_BYTES: u64 = 8 << 20;
/// Memory that is kept for the next batch.
const BATCH_BYTES_KEPT: usize = 1 << 20;

/// A lack of file descriptors passes, and is no reason to lose a store: it is waited for.
fn patiently<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    use rustix::io::Errno;
    for _ in 0..TRIES_MAX {
        match act() {
            Err(error)
                if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE)) =>
            {
                std::thread::sleep(TRY_PAUSE);
            }
            other => return other,
        }
    }
    act()
}

/// Half a minute in all.
const TRIES_MAX: u32 = 300;
const TRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

#[cfg(test)]
mod tests;
