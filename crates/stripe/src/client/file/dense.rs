//! Files that were written out of order and have no hole in the end.
//!
//! A write beyond the known size tells the metadata server that a hole may lie before it. Most often none stays: the
//! writes of one client that are under way together (`covey cp`, the kernel's writeback) arrive in any order, and
//! the last of them closes the gap. Who stays marked costs each stat(2) a question to all I/O servers, and a check
//! cannot tell its lost bytes from holes. So it is remembered what was written here, and a file of which that is all
//! is told to have no holes ([`Op::Dense`]) with the next flush.
//!
//! What others do meanwhile cannot make that wrong: the metadata server believes it only of this epoch and size, and
//! of no file that somebody has punched in this epoch (see `Store::dense`).

use super::{OpenFile, State};
use crate::client::Shared;
use crate::ops::{Inode, Op};

/// What is known to be there of a file in one epoch.
#[derive(Default)]
pub(super) struct Written {
    epoch: u32,
    /// First byte and end, ascending, with something between them that is not known.
    ranges: Vec<(u64, u64)>,
    /// The file is marked as one that may have holes.
    is_marked: bool,
    /// The size of which it was last said that it has none.
    told: Option<u64>,
}

/// Ranges that are remembered; what would be one more is not.
const RANGES_MAX: usize = 256;

impl Written {
    /// What attributes say. Of a file without holes all is there up to its size, and stays until it is cut or punched.
    pub(super) fn saw(&mut self, inode: &Inode) {
        if inode.epoch < self.epoch {
            return;
        }
        self.enter(inode.epoch);
        if inode.sparse {
            self.is_marked = true;
        } else {
            self.add(0, inode.size);
        }
    }

    /// A write is about to tell of a hole, or has come to its end.
    fn begin(&mut self, epoch: u32, hole: bool) {
        self.enter(epoch);
        self.is_marked |= hole && self.epoch == epoch;
    }

    fn wrote(&mut self, epoch: u32, start: u64, end: u64) {
        if self.epoch == epoch {
            self.add(start, end);
        }
    }

    /// A truncation takes what was there.
    fn enter(&mut self, epoch: u32) {
        if epoch > self.epoch {
            *self = Written { epoch, ..Written::default() };
        }
    }

    fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let last = self.ranges.partition_point(|range| range.0 <= end);
        if first == last {
            if self.ranges.len() < RANGES_MAX {
                self.ranges.insert(first, (start, end));
            }
            return;
        }
        let joined = (start.min(self.ranges[first].0), end.max(self.ranges[last - 1].1));
        self.ranges[first] = joined;
        self.ranges.drain(first + 1..last);
    }

    fn is_whole(&self, size: u64) -> bool {
        self.ranges.first().is_some_and(|&(start, end)| start == 0 && end >= size)
    }

    /// Whether it is to be said that a file of this size has no holes.
    pub(super) fn is_due(&self, epoch: u32, size: u64) -> bool {
        self.is_marked && self.epoch == epoch && self.told != Some(size) && self.is_whole(size)
    }

    /// The same, once.
    fn take_due(&mut self, epoch: u32, size: u64) -> bool {
        let is_due = self.is_due(epoch, size);
        if is_due {
            (self.told, self.is_marked) = (Some(size), false);
        }
        is_due
    }
}

impl State {
    /// What is known to be there may have been lost with the metadata server's power.
    pub(super) fn forget_written(&mut self) {
        self.written = Written { epoch: self.epoch, ..Written::default() };
    }
}

impl OpenFile {
    /// A write that may tell of a hole begins.
    pub(super) fn begin_write(&self, epoch: u32, hole: bool) {
        self.lock().written.begin(epoch, hole);
    }

    /// These ranges, from the first byte to the end, are written in this epoch.
    pub(super) fn wrote_ranges(&self, epoch: u32, ranges: impl Iterator<Item = (u64, u64)>) {
        let mut state = self.lock();
        ranges.for_each(|(start, end)| state.written.wrote(epoch, start, end));
    }

    /// This client makes a hole.
    pub(super) fn makes_hole(&self) {
        self.lock().forget_written();
    }

    /// Says that a file has no holes if it was marked and all of it was written. Nobody relies on it: a failure is none
    /// of the flush.
    pub(super) async fn tell_dense(&self, fs: &Shared) {
        let (epoch, size) = {
            let mut state = self.lock();
            let (epoch, size) = (state.epoch, state.size);
            if !state.written.take_due(epoch, size) {
                return;
            }
            (epoch, size)
        };
        let _ = fs.session.change(&self.writer(), Op::Dense { id: self.id, epoch, size }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(ranges: &[(u64, u64)]) -> Written {
        let mut written = Written::default();
        ranges.iter().for_each(|&(start, end)| written.add(start, end));
        written
    }

    #[test]
    fn ranges_join_where_they_meet_and_overlap() {
        assert_eq!(written(&[(0, 5), (7, 9)]).ranges, [(0, 5), (7, 9)]);
        assert_eq!(written(&[(7, 9), (0, 5), (5, 7)]).ranges, [(0, 9)]);
        assert_eq!(written(&[(0, 1), (2, 3), (4, 5), (1, 5)]).ranges, [(0, 5)]);
        assert_eq!(written(&[(4, 8), (0, 20), (9, 9)]).ranges, [(0, 20)]);
        assert_eq!(written(&[(4, 8), (5, 6)]).ranges, [(4, 8)]);
    }

    #[test]
    fn a_file_is_whole_from_its_first_byte_to_its_size() {
        assert!(written(&[(3, 9), (0, 3)]).is_whole(9));
        assert!(!written(&[(3, 9), (0, 2)]).is_whole(9));
        assert!(!written(&[(1, 9)]).is_whole(9));
        assert!(!written(&[(0, 8)]).is_whole(9));
    }

    #[test]
    fn too_many_ranges_are_forgotten_and_never_made_up() {
        let mut written = Written::default();
        (0..2 * RANGES_MAX as u64).for_each(|at| written.add(3 * at + 1, 3 * at + 2));
        assert_eq!(written.ranges.len(), RANGES_MAX);
        written.add(0, 3 * RANGES_MAX as u64);
        assert_eq!(written.ranges, [(0, 3 * RANGES_MAX as u64)]);
    }

    #[test]
    fn it_is_said_once_of_an_epoch_and_a_size() {
        let mut written = Written::default();
        written.begin(0, true);
        written.wrote(0, 0, 9);
        assert!(!written.take_due(1, 9), "it was cut");
        assert!(written.take_due(0, 9));
        written.begin(0, true);
        assert!(!written.take_due(0, 9), "it was said");
        written.begin(1, true);
        written.wrote(0, 9, 20);
        assert!(!written.take_due(1, 9), "what was there is gone");
    }
}
