//! Noncontiguous ranges of a file in a compact form: list I/O.
//!
//! One [`Run`] is `count` pieces of `bytes` bytes each, every `stride` bytes: a contiguous range
//! (`count` 1), a strided vector, a column of a matrix. A list of runs is what Treadlist and
//! Twritelist carry; the data of all pieces travels one after another, in the order of the list.
//!
//! ```text
//!   Run { offset: 2, bytes: 3, stride: 8, count: 3 }
//!
//!   0         8         16        24
//!   |..AAA...|..BBB...|..CCC...|          data: AAABBBCCC
//! ```

use crate::message::Dialect;
use crate::tree::{Errno, Outcome};
use covey_wire::{Bytes, BytesMut, record};

/// Most runs in one message.
pub const RUNS_MAX: usize = 16 * 1024;
/// Most pieces that the runs of one message may have together.
pub const PIECES_MAX: u64 = 128 * 1024;

record! {
    /// Pieces of one size at equal distances.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Run for Dialect {
        /// Where the first piece begins.
        pub offset: u64,
        /// Bytes of each piece, at least 1.
        pub bytes: u32,
        /// From the beginning of a piece to that of the next, at least `bytes`; of no meaning where
        /// there is one piece.
        pub stride: u64,
        /// Pieces, at least 1.
        pub count: u32,
    }
}

impl Run {
    /// Bytes of a run on the wire.
    pub const WIRE_BYTES: usize = 24;

    /// One contiguous range.
    pub fn one(offset: u64, bytes: u32) -> Run {
        Run { offset, bytes, stride: u64::from(bytes), count: 1 }
    }

    /// Bytes of all pieces together.
    pub fn total(&self) -> u64 {
        u64::from(self.bytes) * u64::from(self.count)
    }

    /// The end of the last piece; the largest number where that is more than there can be.
    pub fn end(&self) -> u64 {
        let last = u64::from(self.count.saturating_sub(1)).saturating_mul(self.stride);
        self.offset.saturating_add(last).saturating_add(u64::from(self.bytes))
    }

    /// The pieces as (offset, bytes). Only of runs that were checked: see [`check`].
    pub fn pieces(self) -> impl Iterator<Item = (u64, u32)> {
        (0..u64::from(self.count)).map(move |at| (self.offset + at * self.stride, self.bytes))
    }
}

/// All pieces in the order of their data, as (offset, bytes).
pub fn pieces(runs: &[Run]) -> impl Iterator<Item = (u64, u32)> {
    runs.iter().flat_map(|run| run.pieces())
}

/// Bytes of all runs together; the largest number where they are more.
pub fn total(runs: &[Run]) -> u64 {
    runs.iter().fold(0, |sum, run| sum.saturating_add(run.total()))
}

/// The range that all runs lie in: first byte and end. Empty for no runs.
pub fn span(runs: &[Run]) -> (u64, u64) {
    let start = runs.iter().map(|run| run.offset).min().unwrap_or(0);
    (start, runs.iter().map(Run::end).max().unwrap_or(0))
}

/// Refuses a list that a peer may not send; answers its bytes, at most `bytes_max`.
///
/// EINVAL for runs that make no sense, E2BIG for a list over a limit, EFBIG for offsets that no file
/// has.
pub fn check(runs: &[Run], bytes_max: u32) -> Result<u32, Errno> {
    if runs.len() > RUNS_MAX {
        return Err(too_much(runs.len() as u64, "runs", RUNS_MAX as u64));
    }
    for run in runs {
        let Run { offset, bytes, stride, count } = *run;
        if bytes == 0 || count == 0 {
            let what = format!("a run of {count} pieces of {bytes} bytes");
            return Err(Errno::because(Errno::EINVAL, what));
        }
        if count > 1 && stride < u64::from(bytes) {
            let what = format!("pieces of {bytes} bytes every {stride} bytes overlap");
            return Err(Errno::because(Errno::EINVAL, what));
        }
        if run.end() > OFFSET_MAX {
            let what = format!("a run from {offset} ends beyond {OFFSET_MAX}");
            return Err(Errno::because(Errno::EFBIG, what));
        }
    }
    let pieces = runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
    if pieces > PIECES_MAX {
        return Err(too_much(pieces, "pieces", PIECES_MAX));
    }
    match total(runs) {
        total if total <= u64::from(bytes_max) => Ok(total as u32),
        total => Err(too_much(total, "bytes", bytes_max.into())),
    }
}

fn too_much(count: u64, what: &str, limit: u64) -> Errno {
    Errno::because(Errno::E2BIG, format!("a list of {count} {what}, limit is {limit}"))
}

/// The pieces of a read put together. What lies beyond the end of the file is zeros; the answer
/// ends with the last byte that was there.
#[derive(Debug, Default)]
pub struct Gathered {
    data: BytesMut,
    /// Up to here there is data.
    end: usize,
}

impl Gathered {
    /// Room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Gathered {
        Gathered { data: BytesMut::with_capacity(bytes), end: 0 }
    }

    /// What was read of the next piece, which has `wanted` bytes.
    pub fn push(&mut self, read: &[u8], wanted: u32) {
        let read = &read[..read.len().min(wanted as usize)];
        let next = self.data.len() + wanted as usize;
        self.data.extend_from_slice(read);
        if !read.is_empty() {
            self.end = self.data.len();
        }
        self.data.resize(next, 0);
    }

    /// All of it.
    pub fn into_bytes(mut self) -> Bytes {
        self.data.truncate(self.end);
        self.data.freeze()
    }
}

/// A list read piece by piece: for trees that know no better way.
pub fn read_each(runs: &[Run], mut read: impl FnMut(u64, u32) -> Outcome<Bytes>) -> Outcome<Bytes> {
    let started: Vec<_> =
        pieces(runs).map(|(offset, bytes)| (read(offset, bytes), bytes)).collect();
    let room = total(runs) as usize;
    if started.iter().all(|(read, _)| matches!(read, Outcome::Now(_))) {
        let mut gathered = Gathered::with_capacity(room);
        for (read, bytes) in started {
            match read {
                Outcome::Now(Ok(data)) => gathered.push(&data, bytes),
                Outcome::Now(Err(error)) => return Outcome::Now(Err(error)),
                Outcome::Later(_) => unreachable!("all are here"),
            }
        }
        return Outcome::Now(Ok(gathered.into_bytes()));
    }
    Outcome::later(async move {
        let mut gathered = Gathered::with_capacity(room);
        for (read, bytes) in started {
            gathered.push(&read.wait().await?, bytes);
        }
        Ok(gathered.into_bytes())
    })
}

/// A list written piece by piece. Answers the bytes written before the first piece that was not
/// written whole, or its error when nothing was.
pub fn write_each(
    runs: &[Run],
    mut data: Bytes,
    mut write: impl FnMut(u64, Bytes) -> Outcome<u32>,
) -> Outcome<u32> {
    let mut started = Vec::new();
    for (offset, bytes) in pieces(runs) {
        let piece = data.split_to((bytes as usize).min(data.len()));
        started.push((write(offset, piece), bytes));
    }
    if started.iter().all(|(write, _)| matches!(write, Outcome::Now(_))) {
        let now = |(write, bytes)| match write {
            Outcome::Now(result) => (result, bytes),
            Outcome::Later(_) => unreachable!("all are here"),
        };
        return Outcome::Now(written(started.into_iter().map(now)));
    }
    Outcome::later(async move {
        let mut results = Vec::with_capacity(started.len());
        for (write, bytes) in started {
            results.push((write.wait().await, bytes));
        }
        written(results.into_iter())
    })
}

fn written(results: impl Iterator<Item = (Result<u32, Errno>, u32)>) -> Result<u32, Errno> {
    let mut done = 0;
    for (result, bytes) in results {
        match result {
            Ok(count) if count >= bytes => done += bytes,
            Ok(count) => return Ok(done + count),
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Offsets are signed on Linux.
const OFFSET_MAX: u64 = i64::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_of_the_module_holds() {
        let run = Run { offset: 2, bytes: 3, stride: 8, count: 3 };
        assert_eq!(pieces(&[run]).collect::<Vec<_>>(), [(2, 3), (10, 3), (18, 3)]);
        assert_eq!((run.total(), run.end(), check(&[run], 9)), (9, 21, Ok(9)));
        assert_eq!(span(&[run, Run::one(1, 1)]), (1, 21));
    }

    #[test]
    fn lists_over_a_limit_are_refused_from_both_sides() {
        let refused = |runs: &[Run], bytes_max| check(runs, bytes_max).map_err(|error| error.code);
        let one = Run::one(0, 1);
        assert_eq!(refused(&vec![one; RUNS_MAX], 1 << 20), Ok(RUNS_MAX as u32));
        assert_eq!(refused(&vec![one; RUNS_MAX + 1], 1 << 20), Err(Errno::E2BIG));
        let many = |count| Run { offset: 0, bytes: 1, stride: 1, count };
        assert_eq!(refused(&[many(PIECES_MAX as u32)], 1 << 20), Ok(PIECES_MAX as u32));
        assert_eq!(refused(&[many(PIECES_MAX as u32 + 1)], 1 << 20), Err(Errno::E2BIG));
        assert_eq!(refused(&[Run::one(0, 10)], 9), Err(Errno::E2BIG));
        assert_eq!(refused(&[Run::one(0, 0)], 9), Err(Errno::EINVAL));
        assert_eq!(refused(&[Run { count: 0, ..one }], 9), Err(Errno::EINVAL));
        let close = Run { offset: 0, bytes: 4, stride: 3, count: 2 };
        assert_eq!(refused(&[close], 9), Err(Errno::EINVAL));
        assert_eq!(refused(&[Run { count: 1, ..close }], 9), Ok(4));
        assert_eq!(refused(&[Run::one(OFFSET_MAX - 4, 4)], 9), Ok(4));
        assert_eq!(refused(&[Run::one(OFFSET_MAX - 3, 4)], 9), Err(Errno::EFBIG));
        let far = Run { offset: 1, bytes: 1, stride: u64::MAX, count: u32::MAX };
        assert_eq!(refused(&[far; 3], u32::MAX), Err(Errno::EFBIG));
    }
}
