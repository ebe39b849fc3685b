//! The metadata server's log file.

use covey_io::os::disk::OsDisk;
use covey_io::os::log::{self, Log};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

thread_local! {
    /// In memory, one for the process; removed by scripts/fuzz.
    static DIR: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// A log of any bytes is replayed up to what is torn; then it takes more, and all that was good is there
/// again. One that a mark says to be damaged is left as it is. An odd first byte gives each record its right
/// checksum.
pub fn records(data: &[u8]) {
    let dir = DIR.with_borrow_mut(|dir| {
        dir.get_or_insert_with(|| {
            let dir = PathBuf::from(format!("/dev/shm/covey-fuzz.{}", std::process::id()));
            std::fs::create_dir_all(&dir).expect("/dev/shm can be written");
            dir
        })
        .clone()
    });
    let Some((first, rest)) = data.split_first() else { return };
    let mut bytes = rest.to_vec();
    if first % 2 == 1 {
        set_checksums(&mut bytes);
    }
    let file = dir.join("log.00000001");
    std::fs::write(&file, &bytes).expect("/dev/shm can be written");
    let Some(before) = replayed(&dir) else {
        assert_eq!(std::fs::read(&file).expect("it was written"), bytes);
        return;
    };
    let mut log = Log::open(Arc::new(OsDisk), &dir, 1).expect("a torn log is cut, not refused");
    log.append(&[b"more"]).expect("it goes on");
    drop(log);
    let after = replayed(&dir).expect("it was cut");
    assert_eq!(after.len(), before.len() + 1);
    assert_eq!(after[..before.len()], before[..]);
}

/// None: it is damaged.
fn replayed(dir: &Path) -> Option<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let replayed = log::replay(&OsDisk, dir, 1, |record| {
        found.push(record.to_vec());
        Ok(())
    });
    match replayed {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => None,
        other => other.map(|_| found).map(Some).expect("/dev/shm can be read"),
    }
}

fn set_checksums(bytes: &mut [u8]) {
    let mut rest = bytes;
    while let Some((header, body)) = rest.split_first_chunk_mut::<8>() {
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some((record, next)) = body.split_at_mut_checked(length) else { return };
        header[4..].copy_from_slice(&crc32fast::hash(record).to_le_bytes());
        rest = next;
    }
}
