//! Output on its way to the stream: what a machine fills and its loop writes.
//!
//! Small fields and payloads that are read right here are appended to buffers that go round: one that
//! has been written is filled again, so that a busy connection allocates nothing and touches no new
//! page. Payloads that exist already are shared, never copied. What lies in a file may be sent from
//! there: then it never comes into memory of ours.

use bytes::Bytes;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

/// A range of a file that the loop sends from where it lies. Which bytes they are is settled when
/// the peer takes them, not when the range is made: a range that its file has lost by then reads as
/// zeros.
#[derive(Clone)]
pub struct FileRange {
    /// An open file, of the kind that the loop knows.
    pub file: Arc<dyn Any + Send + Sync>,
    /// Its first byte.
    pub offset: u64,
    /// How many bytes it has.
    pub length: usize,
}

impl FileRange {
    /// The part of it from its byte `from` to its byte `to`.
    pub(crate) fn slice(&self, from: usize, to: usize) -> FileRange {
        let offset = self.offset + from as u64;
        FileRange { file: self.file.clone(), offset, length: to - from }
    }
}

impl PartialEq for FileRange {
    fn eq(&self, other: &FileRange) -> bool {
        let place = |range: &FileRange| (range.offset, range.length);
        Arc::ptr_eq(&self.file, &other.file) && place(self) == place(other)
    }
}

impl Eq for FileRange {}

impl fmt::Debug for FileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes from {} of a file>", self.length, self.offset)
    }
}

/// Shorter runs are copied: that costs less than to look up every page's place.
pub const RANGE_BYTES_MIN: usize = 16 << 10;

/// Output: runs of bytes in order. Small runs are put together.
#[derive(Debug, Default)]
pub struct Segments {
    runs: VecDeque<Run>,
    tail: Vec<u8>,
    length: usize,
    /// Buffers that have been written, to be filled again.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum Run {
    /// A buffer of ours, and how much of it has been written.
    Own(Vec<u8>, usize),
    Shared(Bytes),
    File(FileRange),
}

impl Segments {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where small fields are appended.
    pub fn small(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.append_with(SMALL_BYTES, write);
    }

    /// Where up to `bytes_max` bytes are appended, without moving what is there already. Whatever
    /// `write` appends is taken, more than `bytes_max`, too.
    pub fn append_with<T>(&mut self, bytes_max: usize, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.make_room(bytes_max);
        let before = self.tail.len();
        let result = write(&mut self.tail);
        assert!(self.tail.len() >= before, "what was there before has been cut off");
        self.length += self.tail.len() - before;
        result
    }

    /// Appends a shared run without copying it, unless it is tiny.
    pub fn shared(&mut self, run: Bytes) {
        if run.len() <= COPY_MAX {
            return self.append_with(run.len(), |out| out.extend_from_slice(&run));
        }
        self.length += run.len();
        self.seal();
        self.runs.push_back(Run::Shared(run));
    }

    /// Appends a range of a file.
    pub fn file_range(&mut self, range: FileRange) {
        if range.length > 0 {
            self.length += range.length;
            self.seal();
            self.runs.push_back(Run::File(range));
        }
    }

    /// Appends what `other` has, whole runs up to about `bytes_max` bytes, and takes it from there.
    /// Written buffers go back the other way.
    pub fn take_from(&mut self, other: &mut Segments, bytes_max: usize) {
        if self.is_empty() && other.length <= bytes_max {
            return std::mem::swap(self, other);
        }
        self.seal();
        other.seal();
        let target = self.length + bytes_max;
        while self.length < target {
            let Some(run) = other.runs.pop_front() else { break };
            let length = run.len();
            (self.length, other.length) = (self.length + length, other.length - length);
            self.runs.push_back(run);
        }
        while let Some(buffer) = self.spare.pop() {
            other.keep(buffer);
        }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing is left to write.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The runs in order, as far as they are in memory: to the first range of a file.
    pub fn runs(&mut self) -> impl Iterator<Item = &[u8]> {
        self.seal();
        self.runs.iter().map_while(Run::bytes)
    }

    /// Fills `slices` for a gathering write. Answers how many are filled, and whether a range of a
    /// file comes right behind them.
    pub fn gather<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> (usize, bool) {
        self.seal();
        let mut count = 0;
        for (slice, run) in slices.iter_mut().zip(self.runs.iter().map_while(Run::bytes)) {
            *slice = IoSlice::new(run);
            count += 1;
        }
        (count, matches!(self.runs.get(count), Some(Run::File(_))))
    }

    /// The range of a file that is to be written next, if the next bytes are in one.
    pub fn front_range(&self) -> Option<&FileRange> {
        match self.runs.front() {
            Some(Run::File(range)) => Some(range),
            _ => None,
        }
    }

    /// `count` bytes were written.
    pub fn advance(&mut self, mut count: usize) {
        self.seal();
        assert!(count <= self.length, "wrote more than there was");
        self.length -= count;
        while count > 0 {
            let front = self.runs.front_mut().expect("length counts the runs");
            let step = count.min(front.len());
            front.advance(step);
            count -= step;
            if front.len() == 0 {
                self.retire_front();
            }
        }
    }

    fn retire_front(&mut self) {
        if let Some(Run::Own(buffer, _)) = self.runs.pop_front() {
            self.keep(buffer);
        }
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        let kept: usize = self.spare.iter().map(Vec::capacity).sum();
        if kept + buffer.capacity() <= SPARE_BYTES_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Sees to it that the tail takes `bytes` more without growing.
    fn make_room(&mut self, bytes: usize) {
        if self.tail.capacity() - self.tail.len() >= bytes {
            return;
        }
        self.seal();
        let capacity = |at: &usize| self.spare[*at].capacity();
        let fitting = (0..self.spare.len()).filter(|at| capacity(at) >= bytes).min_by_key(capacity);
        let fresh = || Vec::with_capacity(bytes.max(BUFFER_BYTES));
        let tail = fitting.map_or_else(fresh, |at| self.spare.swap_remove(at));
        let old = std::mem::replace(&mut self.tail, tail);
        if old.capacity() > 0 {
            self.keep(old);
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.runs.push_back(Run::Own(tail, 0));
        }
    }
}

impl Run {
    /// The bytes, if they are in memory.
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Run::Own(buffer, written) => Some(&buffer[*written..]),
            Run::Shared(run) => Some(run),
            Run::File(_) => None,
        }
    }

    fn len(&self) -> usize {
        match self {
            Run::Own(buffer, written) => buffer.len() - written,
            Run::Shared(run) => run.len(),
            Run::File(range) => range.length,
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Run::Own(_, written) => *written += count,
            Run::Shared(run) => bytes::Buf::advance(run, count),
            Run::File(range) => {
                range.offset += count as u64;
                range.length -= count;
            }
        }
    }
}

/// Shared runs up to this length are copied: a run of its own costs more.
const COPY_MAX: usize = 4096;
/// Room for the fields of one message but its payload.
const SMALL_BYTES: usize = 512;
/// A new buffer, when no more is asked for.
const BUFFER_BYTES: usize = 64 << 10;
/// Most bytes in buffers that wait to be filled again.
const SPARE_BYTES_MAX: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(out: &mut Segments) -> Vec<u8> {
        out.runs().flatten().copied().collect()
    }

    #[test]
    fn runs_keep_their_order_whatever_their_kind() {
        let mut out = Segments::new();
        out.small(|out| out.push(1));
        out.shared(Bytes::from(vec![2; 5000]));
        out.shared(Bytes::from_static(&[3, 3]));
        out.append_with(100_000, |out| out.extend_from_slice(&[4; 100_000]));
        let wanted = [&[1][..], &[2; 5000], &[3, 3], &[4; 100_000]].concat();
        assert_eq!(out.len(), wanted.len());
        assert!(all(&mut out) == wanted);
        out.advance(5002);
        assert!(all(&mut out) == wanted[5002..]);
        out.advance(100_001);
        assert!(out.is_empty() && out.runs().next().is_none());
    }

    #[test]
    fn a_written_buffer_is_filled_again() {
        let mut out = Segments::new();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            out.append_with(200_000, |out| {
                seen.insert(out.as_ptr());
                out.resize(200_000, 7);
            });
            out.small(|out| out.push(1));
            let length = out.runs().map(<[u8]>::len).sum();
            out.advance(length);
        }
        assert!(seen.len() <= 2, "{} buffers", seen.len());
    }

    #[test]
    fn what_was_there_does_not_move_when_more_comes() {
        let mut out = Segments::new();
        out.append_with(60_000, |out| out.resize(60_000, 1));
        let before = out.tail.as_ptr();
        out.append_with(60_000, |out| out.resize(60_000, 2));
        assert_eq!(out.runs().next().map(<[u8]>::as_ptr), Some(before));
    }

    #[test]
    fn output_moves_on_in_whole_runs() {
        let (mut from, mut to) = (Segments::new(), Segments::new());
        for n in 0..10 {
            from.shared(Bytes::from(vec![n; 10_000]));
        }
        to.take_from(&mut from, 25_000);
        assert_eq!((to.len(), from.len()), (30_000, 70_000));
        to.take_from(&mut from, usize::MAX / 2);
        assert!(from.is_empty());
        assert!(all(&mut to) == (0..10).flat_map(|n| vec![n; 10_000]).collect::<Vec<_>>());
        to.advance(100_000);
        from.small(|out| out.push(9));
        to.take_from(&mut from, 100);
        assert_eq!(all(&mut to), [9]);
    }

    #[test]
    fn a_range_of_a_file_keeps_its_place_among_the_runs() {
        let mut out = Segments::new();
        let range = |length| FileRange { file: Arc::new(()), offset: 100, length };
        out.small(|out| out.extend_from_slice(b"head"));
        out.file_range(range(50_000));
        out.file_range(range(0));
        out.small(|out| out.extend_from_slice(b"tail"));
        assert_eq!((out.len(), out.front_range().is_none()), (50_008, true));
        let mut slices = [IoSlice::new(&[]); 8];
        assert_eq!(out.gather(&mut slices), (1, true));
        assert_eq!(*slices[0], *b"head");
        let mut moved = Segments::new();
        moved.take_from(&mut out, usize::MAX / 2);
        moved.advance(4 + 100);
        let left = moved.front_range().expect("the range is next");
        assert_eq!((left.offset, left.length), (200, 49_900));
        assert!(moved.runs().next().is_none());
        moved.advance(49_900);
        assert_eq!((all(&mut moved), moved.front_range().is_none()), (b"tail".to_vec(), true));
    }

    #[test]
    fn a_crowd_of_written_buffers_is_let_go() {
        let mut out = Segments::new();
        for _ in 0..10 {
            out.append_with(1 << 20, |out| out.resize(1 << 20, 0));
        }
        out.advance(10 << 20);
        assert!(out.spare.iter().map(Vec::capacity).sum::<usize>() <= SPARE_BYTES_MAX);
    }
}
