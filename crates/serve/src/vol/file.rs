//! Volumes in a file of this machine, or on one of its block devices.

use super::store::{Lane, RUNS_MAX, beyond, note_failure, tile, whole};
use super::syncs::Syncs;
use covey_io::disk::{Disk, DiskFile, Flush, Open};
use covey_io::os::directory::write_durably;
use covey_io::os::disk::OsDisk;
use covey_iscsi::store::{Answer, Failure, Hold, Reply, Request, Store};
use covey_wire::{Bytes, Payload};
use std::io::{self, IoSlice, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Handle;

/// A file or a block device as a store.
pub struct FileStore {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    bytes: AtomicU64,
    saved: PathBuf,
    lane: Lane,
    syncs: Arc<Syncs>,
    /// Held as long as the volume is: nobody else serves it.
    _lock: std::fs::File,
}

/// Opens a file or a block device, which nothing else on this machine may use meanwhile: a mounted file system, a swap area or
/// a RAID.
fn open_alone(path: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
    let kind = std::fs::metadata(path)?.file_type();
    let mut options = std::fs::File::options();
    options.read(true).write(true);
    if kind.is_block_device() {
        options.custom_flags(libc::O_EXCL);
    } else if !kind.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no file and no block device",
        ));
    }
    let busy = |error: io::Error| match error.kind() {
        io::ErrorKind::ResourceBusy => {
            io::Error::new(error.kind(), "it is in use: mounted, or part of something else")
        }
        _ => error,
    };
    options.open(path).map_err(busy)
}

impl FileStore {
    /// Opens `path`, which is there; what the unit saves goes to the file `saved`.
    pub fn open(path: &Path, saved: PathBuf, runtime: Handle) -> io::Result<FileStore> {
        let lock = open_alone(path)?;
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another process serves or uses it"));
            }
            Err(error) => return Err(error.into()),
        }
        let file = OsDisk.open(path, Open::Existing)?;
        let bytes = AtomicU64::new((&lock).seek(SeekFrom::End(0))?);
        let lane = Lane::new(runtime);
        let (path, syncs) = (path.to_owned(), Arc::default());
        Ok(FileStore { file, path, bytes, saved, lane, syncs, _lock: lock })
    }

    /// A file of whatever disk, for tests.
    #[cfg(test)]
    pub fn of(file: Arc<dyn DiskFile>, path: &Path, bytes: u64, runtime: Handle) -> FileStore {
        let (path, saved, bytes) = (path.to_owned(), PathBuf::new(), AtomicU64::new(bytes));
        let (lane, syncs) = (Lane::new(runtime), Arc::default());
        let lock = std::fs::File::open("/dev/null").expect("every machine has it");
        FileStore { file, path, bytes, saved, lane, syncs, _lock: lock }
    }

    /// Makes a file of `bytes`, none of them allocated. EEXIST where there is one.
    pub fn make(path: &Path, bytes: u64) -> io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::File::options();
        let file = options.write(true).create_new(true).mode(0o600).open(path)?;
        let made = file.set_len(bytes).and_then(|()| file.sync_all());
        let names = path.parent().unwrap_or(Path::new("/"));
        made.and_then(|()| covey_io::os::directory::sync_names(names)).inspect_err(|_| {
            // It would be in the way of the next try.
            let _ = std::fs::remove_file(path);
        })
    }

    /// Refuses what lies behind the first `bytes` from here on; until how many it did before. What has begun goes on.
    pub fn lower(&self, bytes: u64) -> u64 {
        self.bytes.fetch_min(bytes, Ordering::AcqRel)
    }

    /// Makes it longer or shorter; of a device its size is taken anew. What would be cut off is refused by then, and nothing
    /// is at work on it any more: a write that came behind would make the file long again.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        let file = std::fs::File::options().write(true).open(&self.path)?;
        if file.metadata()?.is_file() {
            file.set_len(bytes)?;
            file.sync_all()?;
        }
        let now = (&file).seek(SeekFrom::End(0))?;
        self.bytes.store(now.min(bytes), Ordering::Release);
        Ok(())
    }

    /// It could not be made shorter.
    pub fn raise(&self, bytes: u64) {
        self.bytes.fetch_max(bytes, Ordering::AcqRel);
    }

    fn read(&self, offset: u64, bytes: u64, may_lend: bool, hold: Hold) -> Answer {
        let length = bytes as usize;
        if may_lend
            && length >= covey_wire::RANGE_BYTES_MIN
            && let Ok(Some(range)) = self.file.range_by_copy(offset, length)
            && range.length == length
        {
            return Answer::Now(Reply::Data(Payload::of_file(range)));
        }
        match self.file.read_now(offset, length) {
            Ok(Some(data)) => Answer::Now(whole(data.into(), bytes)),
            Err(error) => Answer::Now(failed(&error, Failure::Read)),
            Ok(None) => {
                let file = self.file.clone();
                self.lane.begin(hold, move || match file.read_blocking(offset, length) {
                    Ok(data) => whole(data.into(), bytes),
                    Err(error) => failed(&error, Failure::Read),
                })
            }
        }
    }

    fn write(&self, offset: u64, data: Payload, fua: bool, hold: Hold) -> Answer {
        let since = self.syncs.since();
        let total = data.len();
        let slices: Vec<IoSlice<'_>> = data.pieces().iter().map(|one| IoSlice::new(one)).collect();
        match self.file.write_now(offset, &slices) {
            Ok(Some(count)) if count == total && !fua => return Answer::Now(Reply::Done),
            Err(error) => return Answer::Now(failed(&error, Failure::Write)),
            _ => {}
        }
        drop(slices);
        // What was written already is written again: the same bytes in the same place.
        let (file, syncs) = (self.file.clone(), self.syncs.clone());
        self.lane.begin(hold, move || {
            let sync = || syncs.sync_blocking(since, || file.sync_blocking(Flush::Data));
            let written = write_all(&*file, offset, data.pieces());
            done(written.and_then(|()| if fua { sync() } else { Ok(()) }))
        })
    }

    fn flush(&self, hold: Hold) -> Answer {
        let (file, syncs, since) = (self.file.clone(), self.syncs.clone(), self.syncs.since());
        self.lane.begin(hold, move || {
            done(syncs.sync_blocking(since, || file.sync_blocking(Flush::Data)))
        })
    }

    fn change(
        &self,
        hold: Hold,
        change: impl FnOnce(&dyn DiskFile) -> io::Result<()> + Send + 'static,
    ) -> Answer {
        let file = self.file.clone();
        self.lane.begin(hold, move || done(change(&*file)))
    }
}

impl Store for FileStore {
    fn ask(&self, request: Request, hold: Hold) -> Answer {
        if let Some(failure) = beyond(&request, self.bytes()) {
            return Answer::Now(Reply::Failed(failure));
        }
        match request {
            Request::Read { offset, bytes, may_lend } => self.read(offset, bytes, may_lend, hold),
            Request::Write { offset, data, fua, .. } => self.write(offset, data, fua, hold),
            Request::Flush => self.flush(hold),
            Request::Discard { range } => self.change(hold, move |file| discard(file, range)),
            Request::Zero { range } => self.change(hold, move |file| fill(file, range, &[0; 4096])),
            Request::Fill { range, pattern } => {
                self.change(hold, move |file| fill(file, range, &pattern))
            }
            Request::Save { state } => {
                let path = self.saved.clone();
                self.lane.begin(hold, move || done(save(&path, &state)))
            }
            Request::Allocated { range } => {
                let file = self.file.clone();
                self.lane.begin(hold, move || Reply::Extents(extents(&*file, range)))
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    fn losses(&self) -> u64 {
        self.syncs.losses()
    }
}

/// A copy that is on stable storage; EEXIST where there is a file already.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = std::fs::File::open(from)?;
    let bytes = source.metadata()?.len();
    FileStore::make(to, bytes)?;
    let mut copy = std::fs::File::options().write(true).open(to)?;
    let copied = copy_data(&mut source, &mut copy, bytes).and_then(|()| copy.sync_all());
    if copied.is_err() {
        // Part of a copy is of no use to anybody, and in the way of the next one.
        let _ = std::fs::remove_file(to);
    }
    copied
}

/// Copies what is there; holes stay holes.
fn copy_data(from: &mut std::fs::File, to: &mut std::fs::File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{SeekFrom as Next, seek};
    let mut at = 0;
    while at < bytes {
        let (data, hole) = match seek(&*from, Next::Data(at)) {
            Ok(data) => (data, seek(&*from, Next::Hole(data))?),
            Err(rustix::io::Errno::NXIO) => break,
            // A file system that knows of no holes.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => (at, bytes),
            Err(error) => return Err(error.into()),
        };
        from.seek(SeekFrom::Start(data))?;
        to.seek(SeekFrom::Start(data))?;
        io::copy(&mut (&*from).take(hole - data), to)?;
        at = hole;
    }
    Ok(())
}

fn save(path: &Path, state: &Bytes) -> io::Result<()> {
    // Beside it, under a name that no other volume's file and not the list's can have.
    let new = path.with_added_extension("new");
    super::make_private_file(&new)?;
    write_durably(&new, path, state)
}

/// What a unit saved last; nothing where it never did.
pub fn saved(path: &Path) -> io::Result<String> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        // Whoever reads it as reservations says that it is none, and what to do.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(format!("{error}")),
        other => other,
    }
}

fn write_all(file: &dyn DiskFile, mut offset: u64, pieces: &[Bytes]) -> io::Result<()> {
    for piece in pieces {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let count = file.write_all_blocking(offset, &[IoSlice::new(rest)])?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            offset += count as u64;
            rest = &rest[count..];
        }
    }
    Ok(())
}

/// Frees a range; where the file system cannot, it becomes zeros.
fn discard(file: &dyn DiskFile, range: Range<u64>) -> io::Result<()> {
    match file.punch(range.start, range.end - range.start) {
        Err(error)
            if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::OPNOTSUPP) =>
        {
            fill(file, range, &[0; 4096])
        }
        other => other,
    }
}

fn fill(file: &dyn DiskFile, range: Range<u64>, pattern: &[u8]) -> io::Result<()> {
    let tile = Bytes::from(tile(pattern));
    let mut at = range.start;
    while at < range.end {
        let count = (range.end - at).min(tile.len() as u64);
        write_all(file, at, &[tile.slice(..count as usize)])?;
        at += count;
    }
    Ok(())
}

/// The runs of a range from its beginning, as many as are told. What is not known counts as allocated.
fn extents(file: &dyn DiskFile, range: Range<u64>) -> Vec<(u64, bool)> {
    let mut runs = Vec::new();
    let mut at = range.start;
    while at < range.end && runs.len() < RUNS_MAX {
        let (from, to) = match file.extent(at) {
            Ok(Some((from, to))) => (from.clamp(at, range.end), to.min(range.end)),
            Ok(None) => (range.end, range.end),
            Err(_) => (at, range.end),
        };
        if from > at {
            runs.push((from, false));
        }
        if to > from {
            runs.push((to, true));
        }
        at = to.max(from);
    }
    runs
}

fn done(result: io::Result<()>) -> Reply {
    match result {
        Ok(()) => Reply::Done,
        Err(error) => failed(&error, Failure::Write),
    }
}

fn failed(error: &io::Error, otherwise: Failure) -> Reply {
    note_failure(error);
    Reply::Failed(match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Failure::Full,
        _ => otherwise,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_that_cannot_be_made_is_not_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        FileStore::make(&path, u64::MAX).unwrap_err();
        assert!(!path.exists());
        FileStore::make(&path, 4096).unwrap();
        FileStore::make(&path, 4096).unwrap_err();
        assert!(path.exists(), "what was there before stays");
    }

    /// Commands that were let in before the volume became shorter come behind that.
    #[test]
    fn what_lies_behind_the_end_is_not_written_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        FileStore::make(&path, 8192).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let state = dir.path().join("state");
        let store = FileStore::open(&path, state, runtime.handle().clone()).unwrap();
        let ask = |request| match store.ask(request, Hold::default()) {
            Answer::Now(reply) => reply,
            Answer::Later(later) => runtime.block_on(later),
        };
        let write = |offset| {
            let data = Payload::from(vec![7; 512]);
            ask(Request::Write { offset, data, fua: false, continues: false })
        };
        assert_eq!(store.lower(4096), 8192);
        assert_eq!(
            (write(4096 - 512), write(4096 - 511)),
            (Reply::Done, Reply::Failed(Failure::Write))
        );
        for late in [
            Request::Discard { range: 4096..4608 },
            Request::Zero { range: 3584..4608 },
            Request::Fill { range: 4096..4608, pattern: vec![1].into() },
        ] {
            assert_eq!(ask(late), Reply::Failed(Failure::Write));
        }
        let read = ask(Request::Read { offset: 4096, bytes: 1, may_lend: false });
        assert_eq!(read, Reply::Failed(Failure::Read));
        store.resize(4096).unwrap();
        assert_eq!((path.metadata().unwrap().len(), store.bytes()), (4096, 4096));
    }

    /// A loop device of a file, for as long as this is there.
    struct Loop(String);

    impl Loop {
        fn of(file: &Path) -> Option<Loop> {
            let mut losetup = std::process::Command::new("losetup");
            let made = losetup.args(["--find", "--show"]).arg(file);
            let made = made.output().ok().filter(|made| made.status.success())?;
            Some(Loop(String::from_utf8(made.stdout).ok()?.trim().to_owned()))
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
        }
    }

    /// Whoever has mounted a device, or made it part of something, has it alone: O_EXCL is how the kernel says so.
    #[test]
    fn a_device_that_is_in_use_is_no_volume() {
        use std::os::unix::fs::OpenOptionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("disk");
        FileStore::make(&file, 1 << 20).unwrap();
        let Some(device) = Loop::of(&file) else {
            return covey_harness::skip("needs a loop device");
        };
        let mut options = std::fs::File::options();
        let used = options.read(true).custom_flags(libc::O_EXCL).open(&device.0).unwrap();
        let error = open_alone(Path::new(&device.0)).unwrap_err();
        assert!(error.to_string().contains("it is in use"), "{error}");
        drop(used);
        let opened = open_alone(Path::new(&device.0)).unwrap();
        options.open(&device.0).expect_err("now it is the volume's");
        drop(opened);
    }

    #[test]
    fn a_copy_has_the_holes_of_the_original() {
        use std::os::unix::fs::{FileExt, MetadataExt};
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        FileStore::make(&from, 1 << 30).unwrap();
        let file = std::fs::File::options().write(true).open(&from).unwrap();
        for (offset, text) in [(0, "begin"), (600 << 20, "middle"), ((1 << 30) - 3, "end")] {
            file.write_all_at(text.as_bytes(), offset).unwrap();
        }
        copy(&from, &to).unwrap();
        let copied = to.metadata().unwrap();
        assert_eq!(copied.len(), 1 << 30);
        assert!(copied.blocks() * 512 < 16 << 20, "{} blocks", copied.blocks());
        let (file, mut found) = (std::fs::File::open(&to).unwrap(), [0; 6]);
        file.read_exact_at(&mut found, 600 << 20).unwrap();
        assert_eq!(&found, b"middle");
        file.read_exact_at(&mut found[..3], (1 << 30) - 3).unwrap();
        assert_eq!(&found[..3], b"end");
        assert!(copy(&from, &to).is_err(), "a file that is there is nobody's copy");
        assert!(to.exists());
    }

    /// A volume may be called as the list is.
    #[test]
    fn what_is_saved_touches_no_other_file_and_is_its_owners() {
        let dir = tempfile::tempdir().unwrap();
        for other in ["list", "list.new", "new"] {
            std::fs::write(dir.path().join(other), other).unwrap();
        }
        let path = dir.path().join("list.state");
        save(&path, &Bytes::from_static(b"saved")).unwrap();
        assert_eq!(saved(&path).unwrap(), "saved");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        for other in ["list", "list.new", "new"] {
            assert_eq!(std::fs::read_to_string(dir.path().join(other)).unwrap(), other);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
    }
}
