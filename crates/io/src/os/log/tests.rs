use super::*;
use crate::os::disk::OsDisk;
use crate::sim::{DiskProfile, Rng, SimDisk};
use std::fs;
use std::sync::Condvar;

fn read(dir: &Path, generation: u64) -> (Vec<Vec<u8>>, Replay) {
    let mut records = Vec::new();
    let found = replay(&OsDisk, dir, generation, |record| {
        records.push(record.to_vec());
        Ok(())
    })
    .unwrap();
    (records, found)
}

fn written(records: &[&[u8]]) -> (tempfile::TempDir, Log) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::open(Arc::new(OsDisk), dir.path(), 1).unwrap();
    log.append(records).unwrap();
    (dir, log)
}

#[test]
fn records_come_back_in_order_and_the_log_goes_on_behind_them() {
    let (dir, mut log) = written(&[b"one", b"two"]);
    log.append(&[b"three"]).unwrap();
    log.sync_handle().sync().unwrap();
    drop(log);
    let mut log = Log::open(Arc::new(OsDisk), dir.path(), 1).unwrap();
    log.append(&[b"four"]).unwrap();
    let (records, found) = read(dir.path(), 1);
    assert_eq!(records, [&b"one"[..], b"two", b"three", b"four"]);
    assert_eq!(found.bytes, log.bytes());
    assert_eq!(found.torn, None);
}

#[test]
fn a_log_that_is_not_there_has_no_records() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(read(dir.path(), 7), (vec![], Replay::default()));
}

#[test]
fn every_cut_of_the_last_record_leaves_the_others() {
    let (dir, log) = written(&[b"first", b"second"]);
    let path = path_of(dir.path(), 1);
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole.len() as u64, log.bytes());
    drop(log);
    for length in 14..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let (records, found) = read(dir.path(), 1);
        assert_eq!(records, [b"first"], "cut to {length} bytes");
        assert_eq!(found.torn.unwrap().bytes, length as u64 - 13);
        assert_eq!(fs::metadata(&path).unwrap().len(), 13, "the tail is cut off");
    }
}

#[test]
fn a_flipped_bit_ends_the_log_before_its_record() {
    let (dir, _log) = written(&[b"first", b"second", b"third"]);
    let path = path_of(dir.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[13 + 8] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (records, found) = read(dir.path(), 1);
    assert_eq!(records, [b"first"]);
    assert_eq!(found.torn.unwrap().reason, "the checksum is wrong");
}

/// A log of three appends, of which the first two are synced when the third is made.
fn synced_and_marked() -> (tempfile::TempDir, Vec<u8>) {
    let (dir, mut log) = written(&[b"first"]);
    log.append(&[b"second"]).unwrap();
    log.sync_handle().sync().unwrap();
    log.append(&[b"third"]).unwrap();
    let bytes = fs::read(path_of(dir.path(), 1)).unwrap();
    (dir, bytes)
}

#[test]
fn a_flipped_bit_in_what_was_synced_is_damage_with_its_place_and_nothing_is_cut() {
    let (dir, whole) = synced_and_marked();
    let path = path_of(dir.path(), 1);
    assert_eq!(read(dir.path(), 1).0, [&b"first"[..], b"second", b"third"]);
    // Within the first two records, their lengths included.
    for at in 0..27 {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(&path, &bytes).unwrap();
        let error = replay(&OsDisk, dir.path(), 1, |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "bit at {at}");
        let place = if at < 13 { "damaged at byte 0 " } else { "damaged at byte 13 " };
        assert!(error.to_string().contains(place), "{error}");
        assert!(error.to_string().contains("on the disk up to byte 27;"), "{error}");
        assert!(Log::open(Arc::new(OsDisk), dir.path(), 1).is_err());
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn a_flipped_bit_behind_what_was_synced_is_a_torn_tail() {
    let (dir, whole) = synced_and_marked();
    for at in 27..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(path_of(dir.path(), 1), &bytes).unwrap();
        let (records, found) = read(dir.path(), 1);
        assert_eq!(records, [&b"first"[..], b"second"], "bit at {at}");
        assert!(found.torn.is_some());
    }
}

#[test]
fn a_mark_counts_in_its_own_place_only() {
    let (dir, whole) = synced_and_marked();
    // As a client might send it in the content of a file.
    let mark = &whole[27..27 + mark::MARK_BYTES as usize];
    let mut log = Log::open(Arc::new(OsDisk), dir.path(), 1).unwrap();
    log.rotate(2, None).unwrap();
    log.append(&[b"torn", mark]).unwrap();
    let path = path_of(dir.path(), 2);
    let mut bytes = fs::read(&path).unwrap();
    bytes[9] ^= 4;
    fs::write(&path, &bytes).unwrap();
    assert!(read(dir.path(), 2).1.torn.is_some());
}

#[test]
fn zeroes_behind_the_records_are_no_records() {
    let (dir, _log) = written(&[b"first"]);
    let path = path_of(dir.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes.resize(4096, 0);
    fs::write(&path, bytes).unwrap();
    let (records, found) = read(dir.path(), 1);
    assert_eq!(records, [b"first"]);
    assert_eq!(found.torn.unwrap().reason, "the length is impossible");
}

#[test]
fn an_append_after_a_torn_tail_is_not_lost() {
    let (dir, log) = written(&[b"first"]);
    drop(log);
    let path = path_of(dir.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"\x09\0\0\0torn");
    fs::write(&path, bytes).unwrap();
    let mut log = Log::open(Arc::new(OsDisk), dir.path(), 1).unwrap();
    log.append(&[b"second"]).unwrap();
    assert_eq!(read(dir.path(), 1).0, [&b"first"[..], b"second"]);
}

/// A disk that can fail, and a directory on it.
fn disk_with_dir() -> (SimDisk, &'static Path) {
    let (disk, dir) = (SimDisk::new(DiskProfile::default(), Rng::new(1)), Path::new("/d"));
    disk.make_dir(dir).unwrap();
    (disk, dir)
}

#[test]
fn rotation_begins_an_empty_log_and_removes_the_old_one() {
    let (dir, mut log) = written(&[b"old"]);
    let handle = log.sync_handle();
    log.rotate(2, None).unwrap();
    log.append(&[b"new"]).unwrap();
    handle.sync().unwrap();
    assert_eq!(read(dir.path(), 2).0, [b"new"]);
    assert!(!path_of(dir.path(), 1).exists());
    assert!(log.rotate(2, None).is_err(), "generations only grow");
}

#[test]
fn a_log_that_was_made_ahead_has_its_room_and_goes_on_as_any_other() {
    let (disk, dir) = disk_with_dir();
    let mut log = Log::open(Arc::new(disk.clone()), dir, 1).unwrap();
    log.append(&[b"old"]).unwrap();
    let next = log.making_next(1 << 20).make().unwrap();
    log.append(&[b"older"]).unwrap();
    let names = || {
        let mut names = disk.list(dir).unwrap();
        names.sort();
        names
    };
    assert_eq!(names(), ["log.00000001", "log.next"]);
    log.rotate(2, Some(next)).unwrap();
    assert_eq!(names(), ["log.00000001", "log.00000002"]);
    log.removing_older()().unwrap();
    assert_eq!(names(), ["log.00000002"]);
    disk.set_capacity(disk.used());
    log.append(&[&[7; 1 << 19]]).expect("it has its room already");
    log.append(&[&[7; 1 << 20]]).expect_err("that is more");
    log.sync_handle().sync().unwrap();
    drop(log);
    disk.lose_power();
    let mut records = Vec::new();
    replay(&disk, dir, 2, |record| {
        records.push(record.len());
        Ok(())
    })
    .unwrap();
    assert_eq!(records, [1 << 19]);
}

#[test]
fn a_log_that_was_made_ahead_for_nothing_is_gone_after_a_start() {
    let (dir, log) = written(&[b"one"]);
    let next = || dir.path().join("log.next");
    drop(log.making_next(4096).make().unwrap());
    assert!(next().exists());
    drop(log);
    let mut log = Log::open(Arc::new(OsDisk), dir.path(), 1).unwrap();
    assert!(!next().exists());
    log.append(&[b"two"]).unwrap();
    assert_eq!(read(dir.path(), 1).0, [&b"one"[..], b"two"]);
}

#[test]
fn a_log_that_was_made_ahead_and_has_gone_is_made_then() {
    let (dir, mut log) = written(&[b"one"]);
    let next = log.making_next(4096).make().unwrap();
    fs::remove_file(dir.path().join("log.next")).unwrap();
    log.rotate(2, Some(next)).unwrap();
    log.append(&[b"two"]).unwrap();
    assert_eq!(read(dir.path(), 2).0, [b"two"]);
    let next = log.making_next(4096).make().unwrap();
    log.forget_next().unwrap();
    assert!(!dir.path().join("log.next").exists());
    drop(next);
}

#[test]
fn what_another_thread_has_removed_meanwhile_is_removed() {
    let (dir, _log) = written(&[b"one"]);
    let path = path_of(dir.path(), 1);
    remove(&OsDisk, &path).unwrap();
    remove(&OsDisk, &path).unwrap();
}

#[test]
fn a_disk_without_room_for_a_log_ahead_keeps_what_it_has() {
    let (disk, dir) = disk_with_dir();
    let log = Log::open(Arc::new(disk.clone()), dir, 1).unwrap();
    let used = disk.used();
    disk.set_capacity(used + 4096);
    log.making_next(1 << 20).make().unwrap_err();
    assert_eq!(disk.used(), used);
    assert_eq!(disk.list(dir).unwrap(), ["log.00000001"]);
}

#[test]
fn records_of_no_length_or_too_much_are_refused_whole() {
    let (dir, mut log) = written(&[b"good"]);
    assert!(log.append(&[b"fine", b""]).is_err());
    assert_eq!(read(dir.path(), 1).0, [b"good"]);
}

#[test]
fn an_error_of_the_visitor_cuts_nothing() {
    let (dir, log) = written(&[b"one", b"two"]);
    let result = replay(&OsDisk, dir.path(), 1, |_| Err(io::Error::other("stop")));
    assert!(result.is_err());
    assert_eq!(fs::metadata(path_of(dir.path(), 1)).unwrap().len(), log.bytes());
}

#[test]
fn a_log_whose_sync_has_failed_is_not_synced_again_until_it_is_rotated() {
    let (disk, dir) = disk_with_dir();
    let mut log = Log::open(Arc::new(disk.clone()), dir, 1).unwrap();
    log.append(&[b"one"]).unwrap();
    disk.fail_syncs(1);
    let sync = log.sync_handle();
    assert!(!is_in_doubt(&disk, dir));
    assert_eq!(sync.sync().unwrap_err().raw_os_error(), Some(5));
    assert!(is_in_doubt(&disk, dir), "a start must know of it");
    // The disk would say yes: the pages are gone.
    sync.sync().unwrap_err();
    log.append(&[b"two"]).unwrap();
    sync.sync().unwrap_err();
    log.rotate(2, None).unwrap();
    assert!(!is_in_doubt(&disk, dir));
    log.append(&[b"three"]).unwrap();
    sync.sync().unwrap();
}

#[test]
fn a_log_that_an_earlier_process_could_not_write_can_be_opened() {
    use crate::sim::Sim;
    let _sim = Sim::new(1, false);
    let mut torn = 0;
    for seed in 0..20 {
        let disk = SimDisk::new(DiskProfile::default(), Rng::new(seed));
        let (disk, dir) = (Arc::new(disk), Path::new("/d"));
        disk.make_dir(dir).unwrap();
        let mut log = Log::open(disk.clone(), dir, 1).unwrap();
        log.append(&[&[1; 2000]]).unwrap();
        log.sync_handle().sync().unwrap();
        log.append(&[&[2; 2000]]).unwrap();
        disk.fail_write_back();
        drop(log);
        let log = Log::open(disk, dir, 1).expect("what is cut off is all that is lost");
        torn += u32::from(log.bytes() < 4000);
    }
    assert!((1..20).contains(&torn), "{torn} of 20 have lost their last record");
}

/// A file whose first sync fails once it is let go. The second would succeed.
#[derive(Debug)]
struct FailsOnce {
    file: Arc<dyn DiskFile>,
    syncs: Mutex<u32>,
    changed: Condvar,
    is_let_go: AtomicBool,
}

impl FailsOnce {
    fn new(file: Arc<dyn DiskFile>) -> Arc<FailsOnce> {
        let (syncs, changed) = (Mutex::new(0), Condvar::new());
        Arc::new(FailsOnce { file, syncs, changed, is_let_go: AtomicBool::new(false) })
    }

    /// Waits until a sync is under way.
    fn is_syncing(&self) {
        let syncs = self.syncs.lock().unwrap();
        drop(self.changed.wait_while(syncs, |syncs| *syncs == 0).unwrap());
    }
}

impl DiskFile for FailsOnce {
    fn read_now(&self, offset: u64, length: usize) -> io::Result<Option<bytes::Bytes>> {
        self.file.read_now(offset, length)
    }
    fn write_now(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        self.file.write_now(offset, slices)
    }
    fn read_blocking(&self, offset: u64, length: usize) -> io::Result<bytes::Bytes> {
        self.file.read_blocking(offset, length)
    }
    fn write_all_blocking(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.file.write_all_blocking(offset, slices)
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }
    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.reserve(offset, length)
    }
    fn sync_blocking(&self, _: Flush) -> io::Result<()> {
        let mut syncs = self.syncs.lock().unwrap();
        *syncs += 1;
        self.changed.notify_all();
        if *syncs > 1 {
            return Ok(());
        }
        // Another one may come, and must not; or it is over when the test says so.
        let is_held = |syncs: &mut u32| *syncs == 1 && !self.is_let_go.load(Ordering::SeqCst);
        let wait = std::time::Duration::from_millis(300);
        drop(self.changed.wait_timeout_while(syncs, wait, is_held).unwrap());
        Err(rustix::io::Errno::IO.into())
    }
    fn stat(&self) -> io::Result<crate::disk::FileStat> {
        self.file.stat()
    }
}

/// A log on such a file.
fn failing_once(dir: &Path) -> (Log, Arc<FailsOnce>) {
    let log = Log::open(Arc::new(OsDisk), dir, 1).unwrap();
    let file = FailsOnce::new(log.file.clone());
    *log.sync.lock() = Current::new(file.clone(), 0);
    (log, file)
}

#[test]
fn a_failure_that_nobody_waits_for_is_known_to_the_next_sync() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, file) = failing_once(dir.path());
    log.append(&[b"one"]).unwrap();
    let (first, second) = (log.sync_handle(), log.sync_handle());
    // Who has asked for it has gone away.
    let given_up = std::thread::spawn(move || first.sync());
    file.is_syncing();
    let next = std::thread::spawn(move || second.sync());
    next.join().unwrap().expect_err("what the disk has dropped was not acknowledged");
    given_up.join().unwrap().unwrap_err();
    assert!(is_in_doubt(&OsDisk, dir.path()));
}

#[test]
fn a_sync_that_fails_after_its_log_has_ended_leaves_no_doubt() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, file) = failing_once(dir.path());
    log.append(&[b"one"]).unwrap();
    let sync = log.sync_handle();
    let late = std::thread::spawn(move || sync.sync());
    file.is_syncing();
    log.rotate(2, None).unwrap();
    file.is_let_go.store(true, Ordering::SeqCst);
    file.changed.notify_all();
    late.join().unwrap().unwrap_err();
    assert!(!is_in_doubt(&OsDisk, dir.path()), "all of it is in the checkpoint");
    log.append(&[b"two"]).unwrap();
    log.sync_handle().sync().unwrap();
}

#[test]
fn a_lack_of_descriptors_is_waited_for() {
    let mut left = 2;
    let mut scarce = || {
        left -= 1;
        if left < 0 { Ok(left) } else { Err(rustix::io::Errno::MFILE.into()) }
    };
    assert_eq!(patiently(&mut scarce).unwrap(), -1);
    let mut calls = 0;
    let refused = patiently(|| {
        calls += 1;
        Err::<(), _>(rustix::io::Errno::NOSPC.into())
    });
    assert!(refused.is_err());
    assert_eq!(calls, 1);
}
