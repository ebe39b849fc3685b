//! Small files: made, asked about, read and removed, in the order in which they were made.

use super::pass::{Lane, Limit, wrong};
use crate::error::{Cannot, Result};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// What each holds.
pub const FILE_BYTES: usize = 4096;
/// No thread makes more.
pub const FILES_MAX: u64 = 20_000;

/// Where one thread's files are: those that were closed only, and those that fsync followed.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// The directory.
    pub dir: PathBuf,
    /// How many.
    pub plain: u64,
    /// How many.
    pub synced: u64,
    /// How many of each sort there may be.
    pub most: u64,
}

fn name(dir: &Path, synced: bool, number: u64) -> PathBuf {
    dir.join(format!("{}{number}", if synced { "s" } else { "p" }))
}

/// Ages of the contents, so that one sort is not taken for the other.
fn age(synced: bool) -> u64 {
    1 + u64::from(synced)
}

/// Makes files, each with content. Answers how many.
pub fn create(lane: &mut Lane, made: &Made, synced: bool, limit: &Limit) -> Result<u64> {
    let mut count = 0;
    while count < made.most && !limit.is_over() {
        let path = name(&made.dir, synced, count);
        let making = || format!("make {}", path.display());
        let mut file = std::fs::File::create_new(&path).cannot(making)?;
        let content = lane.pattern.record(count * FILE_BYTES as u64, FILE_BYTES, age(synced));
        file.write_all(content).cannot(making)?;
        if synced {
            file.sync_all().cannot(making)?;
        }
        count += 1;
    }
    Ok(count)
}

/// Asks for the attributes of so many. Answers how many it came to.
pub fn stat(made: &Made, limit: &Limit) -> Result<u64> {
    let mut count = 0;
    while count < made.plain && !limit.is_over() {
        let path = name(&made.dir, false, count);
        std::fs::metadata(&path).cannot(|| format!("stat {}", path.display()))?;
        count += 1;
    }
    Ok(count)
}

/// Opens and reads so many.
pub fn read(lane: &mut Lane, made: &Made, limit: &Limit) -> Result<u64> {
    let mut count = 0;
    while count < made.plain && !limit.is_over() {
        let path = name(&made.dir, false, count);
        let reading = || format!("read {}", path.display());
        let mut file = std::fs::File::open(&path).cannot(reading)?;
        let found = &mut lane.buffer.bytes()[..FILE_BYTES];
        file.read_exact(found).cannot(reading)?;
        let at = count * FILE_BYTES as u64;
        if let Some(wrong_at) = lane.pattern.first_wrong(at, found, age(false)) {
            return Err(wrong(&path, wrong_at - at));
        }
        count += 1;
    }
    Ok(count)
}

/// Removes all.
pub fn unlink(made: &Made) -> Result<u64> {
    let all = (0..made.plain).map(|number| (false, number));
    for (synced, number) in all.chain((0..made.synced).map(|number| (true, number))) {
        let path = name(&made.dir, synced, number);
        std::fs::remove_file(&path).cannot(|| format!("remove {}", path.display()))?;
    }
    Ok(made.plain + made.synced)
}
