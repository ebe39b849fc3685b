//! What a unit's bytes are kept in, seen by the commands that read and write them.
//!
//! A request either is answered at once or later, by a future: the connection that asked polls it, whatever thread that is.

use covey_wire::{Bytes, Payload};
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

/// What is asked of a store. Offsets and lengths are bytes, within the store's size; the unit has checked them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Bytes, all of them: answered by [`Reply::Data`].
    Read {
        /// The first byte.
        offset: u64,
        /// How many.
        bytes: u64,
        /// Whether they may be a range of a file instead of memory, because nobody looks at them: they are only sent.
        /// The port takes this back where it needs a digest.
        may_lend: bool,
    },
    /// Puts `data` at `offset`.
    Write {
        /// The first byte.
        offset: u64,
        /// What is written. Never in files.
        data: Payload,
        /// Whether it is on stable storage before it is answered.
        fua: bool,
        /// Whether it is a further part of what a command writes as its data comes: counted with the first one.
        continues: bool,
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
    /// Writes `pattern` into a range, over and over from its first byte.
    Fill {
        /// The range.
        range: Range<u64>,
        /// At least one byte.
        pattern: Bytes,
    },
    /// Keeps a text of the unit's own, a few kilobytes, in place of the one before; it is on stable storage before it is
    /// answered, and given back when the unit begins again.
    Save {
        /// The text.
        state: Bytes,
    },
    /// Which parts of a range are allocated: answered by [`Reply::Extents`].
    Allocated {
        /// The range.
        range: Range<u64>,
    },
}

impl Request {
    /// Whether it changes what is read.
    pub fn changes(&self) -> bool {
        matches!(
            self,
            Request::Write { .. }
                | Request::Discard { .. }
                | Request::Zero { .. }
                | Request::Fill { .. }
        )
    }
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
    /// It comes. The work has begun, and is done whether or not the future is: dropping it loses only the answer.
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

/// What must not be let go before a request's work is over: the store keeps it that long, whoever else has lost interest.
#[derive(Clone, Default)]
pub struct Hold(Option<Arc<dyn Held>>);

/// What a [`Hold`] holds.
pub trait Held: Send + Sync + 'static {
    /// The work failed.
    fn failed(&self, failure: Failure) {
        let _ = failure;
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "held" } else { "nothing" })
    }
}

impl PartialEq for Hold {
    /// Whether both hold the same.
    fn eq(&self, other: &Hold) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for Hold {}

impl Hold {
    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Holds `what`.
    pub fn new(what: Arc<dyn Held>) -> Hold {
        Hold(Some(what))
    }

    /// Tells that the work failed, then lets go.
    pub fn fail(self, failure: Failure) {
        if let Some(held) = self.0 {
            held.failed(failure);
        }
    }
}

/// A medium: a file, a block device, a file of the striped file system, or memory in tests.
pub trait Store: Send + Sync + 'static {
    /// Does what is asked, and drops `hold` once nothing is done for it any more. Called from several threads.
    fn ask(&self, request: Request, hold: Hold) -> Answer;

    /// Its size in bytes, which may change.
    fn bytes(&self) -> u64;

    /// How often a sync ([`Request::Flush`], or a write that must last) has failed so that what was written before may be
    /// lost, whether or not anybody waited for its answer. A failure counts before it is answered, and before a later sync
    /// that knows nothing of it succeeds.
    fn losses(&self) -> u64;
}
