//! Whose close(2) is not asked about: that of a process which reads one file after the other and takes no locks.
//!
//! Of a file that was only read, close(2) has nothing to say but that the process's fcntl locks on the file end. The
//! question (FLUSH) is one of two that reading a small file takes. So a process that has opened several files in turn, to
//! read them, is told with the next one that it need not be asked (FOPEN_NOFLUSH), unless it has ever asked for an fcntl
//! lock, or anybody here for one on that file.
//!
//! The close of such a handle ends no lock, by whatever descriptor it was taken; what was asked for by the handle itself ends with
//! it (RELEASE): with the last close of this descriptor and its copies. So locks may last longer, and never end sooner, than
//! POSIX has it.

use covey_stripe::ops::Id;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The processes that open files, and the files that were ever locked.
#[derive(Default)]
pub(super) struct Quiet {
    readers: HashMap<u32, Reader>,
    /// When those who have rested were forgotten last.
    swept_at: Option<Instant>,
    /// Files on which somebody here has asked for a lock.
    shared: HashSet<Id>,
}

/// A process that opens files to read them: a thread of one, as the kernel tells it.
struct Reader {
    in_turn: u32,
    at: Instant,
    /// It has asked for a lock.
    locks: bool,
}

impl Quiet {
    /// A process opens a file to read it; whether its close is quiet.
    pub fn reads(&mut self, pid: u32, id: Id, now: Instant) -> bool {
        // One that cannot be seen from here is not to be told from others.
        if pid == 0 {
            return false;
        }
        if !self.has_room(now) && !self.readers.contains_key(&pid) {
            return false;
        }
        let new = Reader { in_turn: 0, at: now, locks: false };
        let reader = self.readers.entry(pid).or_insert(new);
        let is_next = now.saturating_duration_since(reader.at) < TURN;
        reader.in_turn = if is_next { reader.in_turn.saturating_add(1) } else { 1 };
        reader.at = now;
        reader.in_turn > IN_TURN && !reader.locks && self.is_unshared(id)
    }

    /// A process, by the numbers of the thread and of itself, asks for an fcntl lock on a file.
    pub fn locks(&mut self, pids: [u32; 2], id: Id, now: Instant) {
        self.share(id);
        for pid in pids.into_iter().filter(|pid| *pid != 0) {
            let taker = Reader { in_turn: 0, at: now, locks: true };
            if self.has_room(now) || self.readers.contains_key(&pid) {
                self.readers.insert(pid, taker);
            }
        }
    }

    /// Somebody has asked for a lock on a file.
    pub fn share(&mut self, id: Id) {
        if self.shared.len() < SHARED_MAX {
            self.shared.insert(id);
        }
    }

    fn has_room(&mut self, now: Instant) -> bool {
        let is_due = self.swept_at.is_none_or(|at| now.saturating_duration_since(at) >= TURN);
        if self.readers.len() >= READERS_MAX && is_due {
            self.swept_at = Some(now);
            self.readers.retain(|_, reader| {
                let known_for = if reader.locks { LOCKS_KNOWN } else { TURN };
                now.saturating_duration_since(reader.at) < known_for
            });
        }
        self.readers.len() < READERS_MAX
    }

    /// Where more were locked than are remembered, any may have been.
    fn is_unshared(&self, id: Id) -> bool {
        self.shared.len() < SHARED_MAX && !self.shared.contains(&id)
    }
}

/// So many files a process has read in turn before its closes are quiet.
const IN_TURN: u32 = 16;
/// Files that are opened within this time are read in turn.
const TURN: Duration = Duration::from_secs(2);
/// For how long one is remembered that has asked for a lock, where there are many.
const LOCKS_KNOWN: Duration = Duration::from_secs(3600);
/// Processes that are remembered. Where there are more at a time, all closes are asked about.
const READERS_MAX: usize = 1024;
/// Locked files that are remembered.
const SHARED_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the last of `count` files that a process opens in turn is closed quietly.
    fn reads(quiet: &mut Quiet, pid: u32, count: u64, now: Instant) -> bool {
        (0..count).fold(false, |_, id| quiet.reads(pid, 100 + id, now))
    }

    #[test]
    fn who_reads_in_turn_is_not_asked_from_the_seventeenth_file_on() {
        let (mut quiet, now) = (Quiet::default(), Instant::now());
        assert!(!reads(&mut quiet, 1, 16, now));
        assert!(quiet.reads(1, 7, now));
        assert!(!quiet.reads(2, 7, now));
        assert!(!reads(&mut quiet, 0, 20, now));
        // It has rested.
        assert!(!quiet.reads(1, 7, now + TURN));
    }

    #[test]
    fn who_locks_is_always_asked_and_so_is_everybody_about_a_file_that_was_locked() {
        let (mut quiet, now) = (Quiet::default(), Instant::now());
        quiet.locks([11, 10], 7, now);
        for pid in [10, 11] {
            assert!(!reads(&mut quiet, pid, 20, now));
        }
        assert!(reads(&mut quiet, 1, 17, now));
        assert!(!quiet.reads(1, 7, now));
        assert!(quiet.reads(1, 8, now));
    }

    #[test]
    fn more_than_is_remembered_are_all_asked() {
        let (mut quiet, now) = (Quiet::default(), Instant::now());
        assert!(!(1..=READERS_MAX as u32).any(|pid| quiet.reads(pid, 7, now)));
        assert!(!reads(&mut quiet, 5000, 20, now));
        assert!(reads(&mut quiet, 5000, 20, now + TURN));
        // Those who lock are forgotten, too, in the end.
        (1..=READERS_MAX as u32).for_each(|pid| quiet.locks([pid, pid], 7, now + 2 * TURN));
        assert!(!reads(&mut quiet, 6000, 20, now + 3 * TURN));
        assert!(reads(&mut quiet, 6000, 20, now + 2 * TURN + LOCKS_KNOWN));
        (0..SHARED_MAX as u64).for_each(|id| quiet.locks([1, 1], 1 << 20 | id, now));
        assert!(!reads(&mut quiet, 5000, 20, now + TURN));
    }
}
