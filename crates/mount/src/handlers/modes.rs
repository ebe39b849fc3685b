//! What a consistency mode lets the kernel keep, and when it is made to forget.
//!
//! The file system behind the mount is strict in every mode. What differs is for how long the
//! kernel may answer from its cache: names by the mode of their directory, attributes and pages by
//! that of the file. A file's own mode wins over the mount's.

use super::{Session, locked};
use crate::abi::flags::{fopen, open};
use crate::files::Files;
use covey_stripe::ops::{Consistency, Id, Inode};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What the kernel has of files in weaker modes.
#[derive(Default)]
pub(super) struct Pages {
    by_id: HashMap<Id, Seen>,
}

/// The state of a file that the kernel's pages are of.
struct Seen {
    version: u64,
    /// This mount has written since, which the pages have too.
    wrote: bool,
    /// Since when a newer version has been taken for this mount's own doing.
    adopted_at: Option<Instant>,
}

/// How an open file is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub mode: Consistency,
    /// Around the page cache.
    pub direct: bool,
    /// Writes may be gathered.
    pub gathers: bool,
}

impl Usage {
    /// Where the kernel has pages, or may get some beside it.
    pub fn is_kept(self) -> bool {
        self.mode != Consistency::Strict
    }

    /// Whether what is written stays in the kernel's pages.
    pub fn fills(self) -> bool {
        self.gathers && !self.direct
    }
}

impl Pages {
    /// A file of this version is being opened: whether the pages may stay.
    fn open(&mut self, id: Id, version: u64, mode: Consistency) -> bool {
        if self.by_id.len() >= FILES_MAX {
            self.by_id.clear();
        }
        let now = Instant::now();
        let new = Seen { version, wrote: false, adopted_at: None };
        let Some(seen) = self.by_id.get_mut(&id) else {
            self.by_id.insert(id, new);
            return false;
        };
        let is_own = seen.wrote && mode == Consistency::JobScratch;
        let is_late = seen.adopted_at.is_some_and(|at| now.duration_since(at) >= SCRATCH_KEPT);
        if is_late || (seen.version != version && !is_own) {
            *seen = new;
            return false;
        }
        if seen.version != version {
            (seen.version, seen.wrote) = (version, false);
            seen.adopted_at.get_or_insert(now);
        }
        true
    }

    /// What the pages have may not be what the servers have: the next open drops them.
    pub fn doubt(&mut self, id: Id) {
        self.by_id.remove(&id);
    }

    /// This mount writes the file.
    pub fn write(&mut self, id: Id) {
        if let Some(seen) = self.by_id.get_mut(&id) {
            seen.wrote = true;
        }
    }
}

impl<F: Files> Session<F> {
    /// The mode of what says this of itself.
    pub(super) fn mode(&self, own: Option<Consistency>) -> Consistency {
        own.unwrap_or(self.options.consistency)
    }

    pub(super) fn usage(&self, file: &F::File, flags: u32) -> Usage {
        let mode = self.mode(self.files.consistency(file));
        let around = open::APPEND | rustix::fs::OFlags::DIRECT.bits();
        let direct = mode == Consistency::Strict || flags & around != 0;
        Usage { mode, direct, gathers: !direct }
    }

    /// The same of a file that was just made. Who only writes it in mode `close-to-open` does so around the pages: the next open
    /// would drop them, and the kernel asks less.
    pub(super) fn usage_of_new(&self, file: &F::File, flags: u32) -> Usage {
        let usage = self.usage(file, flags);
        let is_only_written = super::data::access_of(flags) == 2;
        let around = is_only_written && usage.mode == Consistency::CloseToOpen;
        Usage { direct: usage.direct || around, ..usage }
    }

    /// The flags that a file is opened with, and whether its attributes are to be forgotten.
    pub(super) fn open_flags(&self, id: Id, file: &F::File, usage: Usage) -> (u32, bool) {
        if !usage.is_kept() {
            // Under a lease the kernel is made to forget when that is taken back. But what another mode
            // has let it keep may be older.
            let is_leased = self.files.time_left(id).0 > TICK;
            let forget = !is_leased || self.has_kept.load(Ordering::Relaxed);
            return (fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES, forget);
        }
        if usage.gathers && usage.direct {
            // What it was made with has just been told.
            return (fopen::DIRECT_IO, false);
        }
        let stay = locked(&self.pages).open(id, self.files.version(file), usage.mode);
        let how = if usage.direct { fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES } else { 0 };
        // What goes around the pages is to hear the truth about the size, too.
        (how | if stay { fopen::KEEP_CACHE } else { 0 }, !stay || usage.direct)
    }

    /// How long attributes may be kept, other than under a lease.
    pub(super) fn attributes_kept(&self, inode: &Inode) -> Duration {
        let mode = self.mode(inode.consistency());
        if mode != Consistency::Strict {
            self.has_kept.store(true, Ordering::Relaxed);
        }
        match mode {
            Consistency::Strict => Duration::ZERO,
            Consistency::CloseToOpen => CLOSE_TO_OPEN_KEPT,
            Consistency::JobScratch => SCRATCH_KEPT,
        }
    }

    /// How long names in a directory may be kept, other than under a lease.
    pub(super) fn names_kept(&self, dir: Id) -> Duration {
        let own = locked(&self.dir_modes).get(&dir).copied();
        match self.mode(own) {
            Consistency::JobScratch => SCRATCH_KEPT,
            Consistency::Strict | Consistency::CloseToOpen => Duration::ZERO,
        }
    }

    /// An inode is about to be sent to the kernel: its mode decides how names in it are kept.
    pub(super) fn note_mode(&self, inode: &Inode) {
        if !inode.is_dir() {
            return;
        }
        let mut modes = locked(&self.dir_modes);
        match inode.consistency() {
            Some(mode) => drop(modes.insert(inode.id, mode)),
            None if modes.is_empty() => {}
            None => drop(modes.remove(&inode.id)),
        }
    }
}

/// More than a tick of the kernel's clock, for which what LOOKUP says of a file may be used.
const TICK: Duration = Duration::from_millis(50);

/// For how long attributes of an open file may be old in mode `close-to-open`.
const CLOSE_TO_OPEN_KEPT: Duration = Duration::from_secs(3);

/// For how long names and attributes may be old in mode `job-scratch`.
const SCRATCH_KEPT: Duration = Duration::from_secs(30);

/// Files whose pages are known. Where there are more, all are read again once.
const FILES_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use Consistency::{CloseToOpen, JobScratch};

    #[test]
    fn pages_stay_while_the_version_does() {
        let mut pages = Pages::default();
        assert!(!pages.open(7, 1, CloseToOpen));
        assert!(pages.open(7, 1, CloseToOpen));
        assert!(!pages.open(7, 2, CloseToOpen));
        assert!(pages.open(7, 2, CloseToOpen));
    }

    #[test]
    fn own_writes_leave_the_pages_to_a_job_alone() {
        for (mode, stay) in [(CloseToOpen, false), (JobScratch, true)] {
            let mut pages = Pages::default();
            assert!(!pages.open(7, 1, mode));
            pages.write(7);
            assert_eq!(pages.open(7, 2, mode), stay);
            // Nobody here has written since.
            assert!(!pages.open(7, 3, mode));
        }
    }

    #[test]
    fn what_was_taken_for_own_is_read_again_after_a_while() {
        let mut pages = Pages::default();
        pages.open(7, 1, JobScratch);
        pages.write(7);
        assert!(pages.open(7, 2, JobScratch));
        let seen = pages.by_id.get_mut(&7).expect("seen");
        seen.adopted_at = Instant::now().checked_sub(SCRATCH_KEPT);
        assert!(!pages.open(7, 2, JobScratch));
        assert!(pages.open(7, 2, JobScratch));
    }
}
