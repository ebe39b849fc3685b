//! Passes over the bytes of a file: records one after another, letters, and records anywhere.

use super::pass::{Laid, Lane, Limit, wrong};
use super::pattern::SECTOR;
use crate::error::{Cannot, Result};
use covey_wire::Rng;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;

/// Random transfers have this length, as with Bonnie and IOzone's usual one.
pub const RANDOM_BYTES: usize = 4096;
/// What letters are gathered in, as by the C library.
const LETTERS_BYTES: usize = 4096;
/// No pass does more random transfers than this.
const RANDOM_MAX: u64 = 1 << 18;
/// So many random writes are looked at afterwards.
const LOOKED_AT_MAX: usize = 1024;

/// Writes records until there are so many bytes, then fsync.
pub fn write(lane: &mut Lane, record: usize, bytes: u64, limit: &Limit) -> Result<u64> {
    let age = lane.laid.age + 1;
    let mut at = 0;
    while at < bytes && !limit.is_over() {
        let data = lane.pattern.record(at, record, age);
        let file = lane.file.as_ref().expect("files are open while they are measured");
        file.write_all_at(data, lane.base + at).cannot(|| writing(&lane.path))?;
        at += record as u64;
    }
    lane.open(false)?.sync_all().cannot(|| writing(&lane.path))?;
    lane.laid = Laid { bytes: lane.laid.bytes.max(at), age, newest_to: at };
    Ok(at)
}

/// Reads all of it in records.
pub fn read(lane: &mut Lane, record: usize, limit: &Limit) -> Result<u64> {
    let mut at = 0;
    while at + record as u64 <= lane.laid.bytes && !limit.is_over() {
        let file = lane.file.as_ref().expect("files are open while they are measured");
        let found = &mut lane.buffer.bytes()[..record];
        file.read_exact_at(found, lane.base + at).cannot(|| reading(&lane.path))?;
        look(lane, at, record)?;
        at += record as u64;
    }
    Ok(at)
}

/// Compares what lies in the buffer. Where a rewrite ended, a record's parts differ in age.
fn look(lane: &mut Lane, at: u64, bytes: usize) -> Result<()> {
    if lane.laid.age == 0 {
        return Ok(());
    }
    let edge = lane.laid.newest_to.saturating_sub(at).min(bytes as u64) as usize;
    for (begin, end) in [(0, edge), (edge, bytes)] {
        let offset = at + begin as u64;
        let age = lane.laid.age_at(offset);
        let found = &lane.buffer.bytes()[begin..end];
        if let Some(at) = lane.pattern.first_wrong(offset, found, age) {
            return Err(wrong(&lane.path, lane.base + at));
        }
    }
    Ok(())
}

/// Writes letters one at a time through a buffer, then fsync.
pub fn put_letters(lane: &mut Lane, bytes: u64, limit: &Limit) -> Result<u64> {
    let age = lane.laid.age + 1;
    let file = lane.file.as_ref().expect("files are open while they are measured");
    let mut out = BufWriter::with_capacity(LETTERS_BYTES, Stream { file, at: lane.base });
    let mut at = 0;
    while at < bytes && !limit.is_over() {
        for letter in lane.pattern.record(at, LETTERS_BYTES, age).iter() {
            let letter = std::hint::black_box(letter);
            out.write_all(std::slice::from_ref(letter)).cannot(|| writing(&lane.path))?;
        }
        at += LETTERS_BYTES as u64;
    }
    out.flush().cannot(|| writing(&lane.path))?;
    drop(out);
    file.sync_all().cannot(|| writing(&lane.path))?;
    lane.laid = Laid { bytes: lane.laid.bytes.max(at), age, newest_to: at };
    Ok(at)
}

/// Reads letters one at a time through a buffer.
pub fn take_letters(lane: &mut Lane, bytes: u64, limit: &Limit) -> Result<u64> {
    let file = lane.open(false)?.try_clone().cannot(|| reading(&lane.path))?;
    let stream = Stream { file: &file, at: lane.base };
    let mut letters = BufReader::with_capacity(LETTERS_BYTES, stream).bytes();
    let most = lane.laid.bytes.min(bytes);
    let mut at = 0;
    while at + LETTERS_BYTES as u64 <= most && !limit.is_over() {
        for place in &mut lane.buffer.bytes()[..LETTERS_BYTES] {
            let letter =
                letters.next().unwrap_or_else(|| Err(std::io::ErrorKind::UnexpectedEof.into()));
            *place = letter.cannot(|| reading(&lane.path))?;
        }
        look(lane, at, LETTERS_BYTES)?;
        at += LETTERS_BYTES as u64;
    }
    Ok(at)
}

/// A file from a place on. Threads on one device share its descriptor, so none may use the descriptor's own place.
struct Stream<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Stream<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(bytes, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.file.write_at(bytes, self.at)?;
        self.at += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Where random transfers go, one after another.
#[derive(Clone, Debug)]
struct Places {
    rng: Rng,
    blocks: u64,
}

impl Places {
    fn of(lane: &Lane, seed: u64) -> Places {
        let blocks = lane.laid.bytes / RANDOM_BYTES as u64;
        Places { rng: Rng::new(seed ^ (lane.index as u64) << 32), blocks }
    }

    /// The next. `None` only for an empty file.
    fn place(&mut self) -> Option<u64> {
        (self.blocks > 0).then(|| self.rng.below(self.blocks) * RANDOM_BYTES as u64)
    }

    /// Not more than there are blocks, so that not much is met twice.
    fn most(&self) -> u64 {
        self.blocks.min(RANDOM_MAX)
    }
}

/// Reads blocks anywhere. Answers how many.
pub fn read_anywhere(lane: &mut Lane, direct: bool, seed: u64, limit: &Limit) -> Result<u64> {
    let mut places = Places::of(lane, seed);
    let mut count = 0;
    while count < places.most() && !limit.is_over() {
        let Some(at) = places.place() else { break };
        fetch(lane, direct, at)?;
        look(lane, at, RANDOM_BYTES)?;
        count += 1;
    }
    Ok(count)
}

fn fetch(lane: &mut Lane, direct: bool, at: u64) -> Result<()> {
    let Lane { file, direct: past, buffer, path, base, .. } = lane;
    let file = if direct { past } else { file };
    let file = file.as_ref().expect("files are open while they are measured");
    let found = &mut buffer.bytes()[..RANDOM_BYTES];
    file.read_exact_at(found, *base + at).cannot(|| reading(path))
}

/// Writes blocks anywhere, then fsync. Answers how many.
pub fn write_anywhere(
    lane: &mut Lane,
    direct: bool,
    (seed, age): (u64, u64),
    limit: &Limit,
) -> Result<u64> {
    let mut places = Places::of(lane, seed);
    let mut count = 0;
    while count < places.most() && !limit.is_over() {
        let Some(at) = places.place() else { break };
        let data = lane.pattern.record(at, RANDOM_BYTES, age);
        let file = if direct { &lane.direct } else { &lane.file };
        let file = file.as_ref().expect("files are open while they are measured");
        file.write_all_at(data, lane.base + at).cannot(|| writing(&lane.path))?;
        count += 1;
    }
    lane.open(direct)?.sync_all().cannot(|| writing(&lane.path))?;
    Ok(count)
}

/// Looks whether the first of so many random writes are there.
pub fn look_anywhere(lane: &mut Lane, (seed, age): (u64, u64), count: u64) -> Result<()> {
    let mut places = Places::of(lane, seed);
    for _ in 0..count.min(LOOKED_AT_MAX as u64) {
        let Some(at) = places.place() else { break };
        fetch(lane, false, at)?;
        let found = &lane.buffer.bytes()[..RANDOM_BYTES];
        if let Some(at) = lane.pattern.first_different(at, found, age) {
            return Err(wrong(&lane.path, lane.base + at));
        }
    }
    Ok(())
}

fn writing(path: &std::path::Path) -> String {
    format!("write {}", path.display())
}

fn reading(path: &std::path::Path) -> String {
    format!("read {}", path.display())
}

const _: () = assert!(RANDOM_BYTES.is_multiple_of(SECTOR) && LETTERS_BYTES.is_multiple_of(SECTOR));

#[cfg(test)]
mod tests {
    use super::super::pattern::{Aligned, Pattern};
    use super::*;
    use crate::stop::Stop;

    fn lane(dir: &std::path::Path) -> Lane {
        let path = dir.join("file0");
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
        Lane {
            index: 0,
            file: Some(file),
            path,
            base: 0,
            direct: None,
            laid: Laid::default(),
            pattern: Pattern::new(9, 0, 4096),
            buffer: Aligned::new(4096),
        }
    }

    #[test]
    fn what_is_read_is_what_was_written_or_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (mut lane, limit) = (lane(dir.path()), Limit::within(None, &Stop::default()));
        assert_eq!(write(&mut lane, 4096, 65536, &limit).unwrap(), 65536);
        assert_eq!(write(&mut lane, 4096, 32768, &limit).unwrap(), 32768, "half of it again");
        assert_eq!(read(&mut lane, 4096, &limit).unwrap(), 65536);
        assert_eq!(take_letters(&mut lane, 65536, &limit).unwrap(), 65536);
        assert_eq!(read_anywhere(&mut lane, false, 7, &limit).unwrap(), 16);
        let file = File::options().write(true).open(&lane.path).unwrap();
        file.write_all_at(&[0; 512], 40960).unwrap();
        let error = read(&mut lane, 4096, &limit).unwrap_err();
        assert!(error.message.contains("at byte 40960 it holds something else"), "{error}");
        assert!(take_letters(&mut lane, 65536, &limit).is_err());
    }

    #[test]
    fn random_writes_that_were_lost_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let (mut lane, limit) = (lane(dir.path()), Limit::within(None, &Stop::default()));
        assert_eq!(put_letters(&mut lane, 65536, &limit).unwrap(), 65536);
        let count = write_anywhere(&mut lane, false, (3, 2), &limit).unwrap();
        assert_eq!(count, 16);
        look_anywhere(&mut lane, (3, 2), count).unwrap();
        assert!(look_anywhere(&mut lane, (4, 2), count).is_err(), "others were not written");
        assert!(look_anywhere(&mut lane, (3, 3), count).is_err(), "nor a third time");
    }

    #[test]
    fn a_pass_ends_when_it_is_asked_to() {
        let dir = tempfile::tempdir().unwrap();
        let stop = Stop::default();
        stop.ask();
        let (mut lane, limit) = (lane(dir.path()), Limit::within(None, &stop));
        assert_eq!(write(&mut lane, 4096, 1 << 40, &limit).unwrap(), 0);
    }
}
