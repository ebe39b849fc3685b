//! What was served, for COVEY_PRELOAD_REPORT.

use crate::boundary::say;
use crate::settings::settings;
use std::sync::atomic::{AtomicU64, Ordering};

/// One number.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    const fn zero() -> Count {
        Count(AtomicU64::new(0))
    }

    /// Adds.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// The numbers of this process.
pub struct Counts {
    pub opens: Count,
    pub names: Count,
    pub reads: Count,
    pub read_bytes: Count,
    pub writes: Count,
    pub written_bytes: Count,
    pub lists: Count,
    pub list_pieces: Count,
    pub locks: Count,
}

/// The numbers of this process.
pub static COUNTS: Counts = Counts {
    opens: Count::zero(),
    names: Count::zero(),
    reads: Count::zero(),
    read_bytes: Count::zero(),
    writes: Count::zero(),
    written_bytes: Count::zero(),
    lists: Count::zero(),
    list_pieces: Count::zero(),
    locks: Count::zero(),
};

/// Forgets what the parent of a fork has counted.
pub fn forget() {
    let counts = &COUNTS;
    let all = [&counts.opens, &counts.names, &counts.reads, &counts.read_bytes, &counts.writes];
    all.into_iter().for_each(|count| count.0.store(0, Ordering::Relaxed));
    let all = [&counts.written_bytes, &counts.lists, &counts.list_pieces, &counts.locks];
    all.into_iter().for_each(|count| count.0.store(0, Ordering::Relaxed));
}

/// Says on stderr what was served, if it is wanted and there is something to say.
pub fn report() {
    if !settings().report {
        return;
    }
    let counts = &COUNTS;
    let (opens, names) = (counts.opens.take(), counts.names.take());
    let (reads, read_bytes) = (counts.reads.take(), counts.read_bytes.take());
    let (writes, written_bytes) = (counts.writes.take(), counts.written_bytes.take());
    let (lists, pieces, locks) =
        (counts.lists.take(), counts.list_pieces.take(), counts.locks.take());
    if opens + names + reads + writes + lists + locks == 0 {
        return;
    }
    say(&format!(
        "pid {} ({}): {opens} opens, {names} calls on names, {reads} reads of {read_bytes} bytes, \
         {writes} writes of {written_bytes} bytes, {lists} list requests of {pieces} pieces, \
         {locks} lock calls",
        std::process::id(),
        program(),
    ));
}

fn program() -> String {
    let name = std::fs::read("/proc/self/comm").unwrap_or_default();
    String::from_utf8_lossy(&name).trim().to_owned()
}
