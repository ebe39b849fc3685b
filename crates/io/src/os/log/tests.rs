use super::*;
use crate::os::disk::OsDisk;
use std::fs;

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

#[test]
fn rotation_begins_an_empty_log_and_removes_the_old_one() {
    let (dir, mut log) = written(&[b"old"]);
    let handle = log.sync_handle();
    log.rotate(2).unwrap();
    log.append(&[b"new"]).unwrap();
    handle.sync().unwrap();
    assert_eq!(read(dir.path(), 2).0, [b"new"]);
    assert!(!path_of(dir.path(), 1).exists());
    assert!(log.rotate(2).is_err(), "generations only grow");
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
