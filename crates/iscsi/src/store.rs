//! What a unit's bytes are kept in, seen by the commands that read and write them.
//!
//! A request either is answered at once or later, by a future: the connection that asked polls it, whatever thread that is.

use covey_wire::Payload;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

/// What is asked of a store. Offsets and lengths are bytes, within the store's size; the unit has checked them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Bytes, all of them: answered by [`Reply::Data`].
    Read {
        /// The first byte.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// Puts `data` at `offset`.
    Write {
        /// The first byte.
        offset: u64,
        /// What is written. Never in files.
        data: Payload,
        /// Whether it is on stable storage before it is answered.
        fua: bool,
    },
    /// Brings to stable storage everything that was answered before.
    Flush,
    /// Forgets a range, which reads as zeros from then on. It is not allocated any more where the store can do that.
    Discard {
        /// The range.
        range: Range<u64>,
    },
    /// Makes a range zeros that stay allocated.
    Zero {
        /// The range.
        range: Range<u64>,
    },
    /// Which parts of a range are allocated: answered by [`Reply::Extents`].
    Allocated {
        /// The range.
        range: Range<u64>,
    },
}

/// What a store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The bytes asked for, in memory or in a file.
    Data(Payload),
    /// It is done.
    Done,
    /// The parts of a range one after another, without a gap: where each ends, and whether it is allocated.
    Extents(Vec<(u64, bool)>),
    /// It is not done, or not all of it.
    Failed(Failure),
}

/// Why a store could not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The medium could not be read.
    Read,
    /// The medium could not be written.
    Write,
    /// No space is left for what is written.
    Full,
    /// The store is out of reach: a server is dead, or another node has it.
    Unreachable,
}

/// A store's answer.
pub enum Answer {
    /// Here it is.
    Now(Reply),
    /// It comes. Dropping the future loses only the answer, never makes the work half done twice.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Now(reply) => write!(f, "{reply:?}"),
            Answer::Later(_) => f.write_str("later"),
        }
    }
}

/// A medium: a file, a block device, a file of the striped file system, or memory in tests.
pub trait Store: Send + Sync + 'static {
    /// Does what is asked. Called from several threads.
    fn ask(&self, request: Request) -> Answer;

    /// Its size in bytes, which may change.
    fn bytes(&self) -> u64;
}
