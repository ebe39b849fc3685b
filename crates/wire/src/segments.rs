//! Output on its way to the stream: what a machine fills and its loop writes.
//!
//! Small fields and payloads that are read right here are appended to buffers that go round: one that
//! has been written is filled again, so that a busy connection allocates nothing and touches no new
//! page. Payloads that exist already are shared, never copied. What lies in a file may be sent from
//! there: then it never comes into memory of ours.

use crate::{Blame, Loan};
use bytes::Bytes;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
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
    /// How many of the runs are loans.
    loans: usize,
    /// Buffers that have been written, to be filled again.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum Run {
    /// A buffer of ours, and how much of it has been written.
    Own(Vec<u8>, usize),
    Shared(Bytes),
    /// What comes before a range of a file: too little for a buffer.
    Header {
        bytes: [u8; HEADER_BYTES_MAX],
        begin: u8,
        end: u8,
    },
    File(FileRange),
    Loan(Loan),
}

/// A run of output where it is.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// In memory.
    Memory(&'a [u8]),
    /// In a file, of which the peer gets the pages themselves.
    File(&'a FileRange),
    /// In a file, to be copied as it is sent.
    Loan(&'a Loan),
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
        self.push(Run::Shared(run));
    }

    /// Appends a message that is a short header and what a file lends. Whoever holds the output calls
    /// [`Self::settle`] before it does anything that may change the file.
    pub fn loan_message(&mut self, header: &[u8], loan: Loan) {
        match header.len() {
            count @ ..=HEADER_BYTES_MAX => {
                let mut bytes = [0; HEADER_BYTES_MAX];
                bytes[..count].copy_from_slice(header);
                self.push(Run::Header { bytes, begin: 0, end: count as u8 });
            }
            _ => self.small(|out| out.extend_from_slice(header)),
        }
        if loan.length > 0 {
            self.loans += 1;
            self.push(Run::Loan(loan));
        }
    }

    /// Copies what is lent: what the output says is settled then, whatever becomes of the files.
    pub fn settle(&mut self) -> Result<(), Blame> {
        if self.loans == 0 {
            return Ok(());
        }
        self.seal();
        let runs = std::mem::take(&mut self.runs);
        (self.length, self.loans) = (0, 0);
        for run in runs {
            match run {
                Run::Header { .. } => {
                    let bytes = run.bytes().unwrap_or_default();
                    self.append_with(bytes.len(), |out| out.extend_from_slice(bytes));
                }
                // A copy that failed ends the connection: nothing follows it.
                Run::Loan(loan) => self.append_with(loan.length, |out| loan.copy(out))?,
                run => self.push(run),
            }
        }
        Ok(())
    }

    /// Whether some of it is only lent.
    pub fn has_loans(&self) -> bool {
        self.loans > 0
    }

    /// Appends a range of a file.
    pub fn file_range(&mut self, range: FileRange) {
        if range.length > 0 {
            self.push(Run::File(range));
        }
    }

    fn push(&mut self, run: Run) {
        self.length += run.len();
        self.seal();
        self.runs.push_back(run);
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
            let (length, loans) = (run.len(), usize::from(matches!(run, Run::Loan(_))));
            (self.length, other.length) = (self.length + length, other.length - length);
            (self.loans, other.loans) = (self.loans + loans, other.loans - loans);
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

    /// All pieces in order, wherever they are.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let tail = Some(Piece::Memory(&self.tail)).filter(|_| !self.tail.is_empty());
        self.runs.iter().map(Run::piece).chain(tail)
    }

    /// The first run, where it is memory that can be held on to.
    pub fn front_shared(&self) -> Option<&Bytes> {
        match self.runs.front() {
            Some(Run::Shared(run)) => Some(run),
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
        match self.runs.pop_front() {
            Some(Run::Own(buffer, _)) => self.keep(buffer),
            Some(Run::Loan(_)) => self.loans -= 1,
            _ => {}
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
        match self.piece() {
            Piece::Memory(bytes) => Some(bytes),
            Piece::File(_) | Piece::Loan(_) => None,
        }
    }

    fn piece(&self) -> Piece<'_> {
        match self {
            Run::Own(buffer, written) => Piece::Memory(&buffer[*written..]),
            Run::Shared(run) => Piece::Memory(run),
            Run::Header { bytes, begin, end } => {
                Piece::Memory(&bytes[usize::from(*begin)..usize::from(*end)])
            }
            Run::File(range) => Piece::File(range),
            Run::Loan(loan) => Piece::Loan(loan),
        }
    }

    fn len(&self) -> usize {
        match self {
            Run::Own(buffer, written) => buffer.len() - written,
            Run::Shared(run) => run.len(),
            Run::Header { begin, end, .. } => usize::from(*end - *begin),
            Run::File(range) => range.length,
            Run::Loan(loan) => loan.length,
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Run::Own(_, written) => *written += count,
            Run::Shared(run) => bytes::Buf::advance(run, count),
            Run::Header { begin, .. } => *begin += count as u8,
            Run::File(range) => {
                range.offset += count as u64;
                range.length -= count;
            }
            Run::Loan(loan) => {
                loan.offset += count as u64;
                loan.length -= count;
            }
        }
    }
}

/// Shared runs up to this length are copied: a run of its own costs more.
const COPY_MAX: usize = 4096;
/// Longest header that is kept without a buffer: with its length it fills no more than what a range takes.
const HEADER_BYTES_MAX: usize = 22;
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

    /// Offset and length of a range at the front.
    fn front(out: &Segments) -> Option<(u64, usize)> {
        match out.pieces().next() {
            Some(Piece::File(range)) => Some((range.offset, range.length)),
            Some(Piece::Loan(loan)) => Some((loan.offset, loan.length)),
            _ => None,
        }
    }

    #[test]
    fn a_range_of_a_file_keeps_its_place_among_the_runs() {
        let mut out = Segments::new();
        let range = |length| FileRange { file: Arc::new(()), offset: 100, length };
        out.small(|out| out.extend_from_slice(b"head"));
        out.file_range(range(50_000));
        out.file_range(range(0));
        out.small(|out| out.extend_from_slice(b"tail"));
        assert_eq!((out.len(), front(&out)), (50_008, None));
        assert_eq!(all(&mut out), b"head");
        let mut moved = Segments::new();
        moved.take_from(&mut out, usize::MAX / 2);
        moved.advance(4 + 100);
        assert_eq!((front(&moved), all(&mut moved)), (Some((200, 49_900)), vec![]));
        moved.advance(49_900);
        assert_eq!((front(&moved), all(&mut moved)), (None, b"tail".to_vec()));
    }

    /// Its bytes are their offsets, as long as it is well.
    struct Counting(bool);

    impl crate::Lender for Counting {
        fn copy(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> Result<(), Blame> {
            out.extend((offset..offset + length as u64).map(|at| at as u8));
            if self.0 { Ok(()) } else { Err(Blame::Io("it is ill".into())) }
        }
    }

    fn loan(offset: u64, length: usize) -> Loan {
        Loan { lender: Arc::new(Counting(true)), offset, length }
    }

    #[test]
    fn a_loan_is_a_piece_of_its_own_until_it_is_settled() {
        let mut out = Segments::new();
        out.small(|out| out.push(b'>'));
        out.loan_message(b"head", loan(100, 50));
        out.loan_message(&[b'-'; 30], loan(7, 3));
        out.loan_message(b"none", loan(7, 0));
        assert_eq!((out.len(), front(&out), out.has_loans()), (1 + 54 + 33 + 4, None, true));
        let mut moved = Segments::new();
        moved.take_from(&mut out, usize::MAX / 2);
        assert_eq!((moved.has_loans(), out.has_loans()), (true, false));
        moved.advance(3);
        assert_eq!(all(&mut moved), b"ad");
        moved.advance(2 + 10);
        assert_eq!((front(&moved), moved.len()), (Some((110, 40)), 77));
        moved.settle().unwrap();
        let rest: Vec<u8> = (110..150).chain([b'-'; 30]).chain(7..10).chain(*b"none").collect();
        assert_eq!((moved.has_loans(), moved.len(), all(&mut moved)), (false, 77, rest));
        moved.advance(77);
        assert!(moved.is_empty());
    }

    #[test]
    fn loans_that_were_sent_are_over() {
        let (mut out, mut other) = (Segments::new(), Segments::new());
        (0..3).for_each(|_| out.loan_message(b"head", loan(0, 1000)));
        other.small(|out| out.push(1));
        other.take_from(&mut out, 1500);
        assert_eq!((other.len(), out.len()), (1 + 2008, 1004));
        assert!(other.has_loans() && out.has_loans());
        other.advance(2008);
        assert!(other.has_loans());
        other.advance(1);
        out.advance(1004);
        assert!(!other.has_loans() && !out.has_loans());
    }

    #[test]
    fn nothing_follows_a_loan_that_could_not_be_settled() {
        let mut out = Segments::new();
        out.loan_message(b"head", loan(0, 5));
        out.loan_message(b"bad", Loan { lender: Arc::new(Counting(false)), offset: 0, length: 5 });
        out.loan_message(b"head", loan(0, 5));
        out.settle().unwrap_err();
        assert_eq!((out.len(), out.has_loans()), (9 + 3, false));
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
