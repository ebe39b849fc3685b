//! Data on its way to and from a tree: one question for each read and each write, answered in the form
//! that is cheapest for the tree.
//!
//! ```text
//!   Read  ──► Tree::read  ──► Data::    Bytes · Filled · Loan · Range · Failed · Later
//!   Write ──► Tree::write ──► Written:: Now · Later · Into (a range of a file) · Unread
//! ```

use super::{Errno, Outcome, Result};
use crate::frame;
use covey_wire::{Bytes, FileRange, Loan, RANGE_BYTES_MIN, Segments};
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// A read: what is asked for, and which forms of an answer the asker can take.
#[derive(Debug)]
pub struct Read<'a> {
    /// The first byte.
    pub offset: u64,
    /// At most this many bytes.
    pub count: u32,
    reply: Option<Reply<'a>>,
}

/// The reply that the data is for.
#[derive(Debug)]
struct Reply<'a> {
    tag: u16,
    moment: u64,
    output: &'a mut Segments,
}

/// Scattered data of a file, described in bytes whose meaning the tree defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// No byte of it lies before this one.
    pub start: u64,
    /// Nor at this one or behind it. Requests keep their order by this range, so a tree refuses a view
    /// that reaches out of it.
    pub end: u64,
    /// Bytes of data, at most a message's payload. A tree refuses a view that has more or fewer.
    pub bytes: u32,
    /// The description.
    pub body: Bytes,
}

/// The answer to a [`Read`].
pub enum Data {
    /// These bytes. More than were asked for are cut off.
    Bytes(Bytes),
    /// They have been appended to the reply: see [`Read::fill`].
    Filled(Filled),
    /// All of the bytes asked for, lent by their file until they are sent: see [`Read::moment`].
    Loan(Loan),
    /// A range of a file, which the connection sends from where it lies: its bytes are those that
    /// are there when the peer takes them. See [`Read::takes_range`].
    Range(FileRange),
    /// An error.
    Failed(Errno),
    /// The bytes when the future is done. Dropping it cancels the read.
    Later(Pin<Box<dyn Future<Output = Result<Bytes>>>>),
}

/// The proof that a reply was filled.
#[derive(Debug)]
pub struct Filled(());

impl Read<'static> {
    /// A read whose answer is wanted in memory: asked by anyone but a connection.
    pub fn bytes(offset: u64, count: u32) -> Read<'static> {
        Read { offset, count, reply: None }
    }
}

impl<'a> Read<'a> {
    /// A read whose data goes into `output` as the reply `tag`.
    pub(crate) fn reply(
        (tag, offset, count): (u16, u64, u32),
        moment: u64,
        output: &'a mut Segments,
    ) -> Read<'a> {
        Read { offset, count, reply: Some(Reply { tag, moment, output }) }
    }

    /// Whether the answer may be a range of a file: it costs less than a copy from a certain length.
    pub fn takes_range(&self) -> bool {
        self.reply.is_some() && self.count as usize >= RANGE_BYTES_MIN
    }

    /// For a read whose answer may be a loan: a moment. What a tree has found out about a file holds for
    /// other reads at the same moment: the server begins a new one whenever something has arrived or it
    /// is about to do anything that may change a file, and copies before what is lent.
    pub fn moment(&self) -> Option<u64> {
        let is_short = (self.count as usize) < RANGE_BYTES_MIN;
        self.reply.as_ref().filter(|_| is_short).map(|reply| reply.moment)
    }

    /// Has `read` append at most `count` bytes straight to the reply, which spares them a copy and an
    /// allocation. `None` when it answers false, because it would have to wait: what it has appended
    /// then is dropped.
    #[inline]
    pub fn fill(&mut self, read: impl FnOnce(&mut Vec<u8>) -> Result<bool>) -> Option<Data> {
        let is_filled = match &mut self.reply {
            Some(Reply { tag, output, .. }) => frame::put_rread(*tag, self.count, output, read),
            None => {
                let mut out = Vec::new();
                match read(&mut out) {
                    Ok(true) => return Some(Data::Bytes(out.into())),
                    other => other,
                }
            }
        };
        match is_filled {
            Ok(true) => Some(Data::Filled(Filled(()))),
            Ok(false) => None,
            Err(error) => Some(Data::Failed(error)),
        }
    }

    /// The part of `all`, a whole file's content, that is asked for.
    pub fn of(&self, all: &Bytes) -> Data {
        let start = all.len().min(usize::try_from(self.offset).unwrap_or(usize::MAX));
        let end = all.len().min(start.saturating_add(self.count as usize));
        Data::Bytes(all.slice(start..end))
    }
}

impl Data {
    /// An answer that waits.
    pub fn later(future: impl Future<Output = Result<Bytes>> + 'static) -> Data {
        Data::Later(Box::pin(future))
    }

    /// The answer to [`Read::bytes`].
    pub fn into_outcome(self) -> Outcome<Bytes> {
        match self {
            Data::Bytes(bytes) => Ok(bytes).into(),
            Data::Failed(error) => Err(error).into(),
            Data::Later(later) => Outcome::Later(later),
            Data::Filled(_) | Data::Loan(_) | Data::Range(_) => {
                Err(Errno::because(Errno::EIO, "the tree answered a read in a form not asked for"))
                    .into()
            }
        }
    }
}

impl From<Outcome<Bytes>> for Data {
    fn from(outcome: Outcome<Bytes>) -> Data {
        match outcome {
            Outcome::Now(Ok(bytes)) => Data::Bytes(bytes),
            Outcome::Now(Err(error)) => Data::Failed(error),
            Outcome::Later(later) => Data::Later(later),
        }
    }
}

impl From<Result<Bytes>> for Data {
    fn from(result: Result<Bytes>) -> Data {
        Outcome::Now(result).into()
    }
}

impl From<u32> for Data {
    fn from(code: u32) -> Data {
        Data::Failed(code.into())
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Data::Filled(_) => f.write_str("a filled reply"),
            Data::Loan(loan) => loan.fmt(f),
            Data::Range(range) => range.fmt(f),
            Data::Failed(error) => error.fmt(f),
            Data::Later(_) => f.write_str("later"),
        }
    }
}

/// A write.
#[derive(Clone, Debug)]
pub struct Write {
    /// Where its first byte goes.
    pub offset: u64,
    /// What is written.
    pub data: Incoming,
}

/// The payload of a write.
#[derive(Clone, Debug)]
pub enum Incoming {
    /// It has been received.
    Here(Bytes),
    /// This many bytes are still in the stream. Asked for long writes only, and not of files that are open
    /// to append: [`Written::Into`] has them put there without a copy, which has the same effect as a
    /// write; for any other answer they are received and the tree is asked again.
    Coming(u32),
}

/// The answer to a [`Write`].
pub enum Written {
    /// How much was written, or an error.
    Now(Result<u32>),
    /// The same when the future is done. Dropping it cancels the write.
    Later(Pin<Box<dyn Future<Output = Result<u32>>>>),
    /// Where a payload that is still coming is to be put.
    Into(FileRange),
    /// A payload that is still coming is to be received first.
    Unread,
}

impl Write {
    /// A write of bytes that are here.
    pub fn bytes(offset: u64, data: Bytes) -> Write {
        Write { offset, data: Incoming::Here(data) }
    }

    /// Hands offset and payload to `write` once the payload is here: for trees that have no better
    /// place for it.
    pub fn received(self, write: impl FnOnce(u64, Bytes) -> Outcome<u32>) -> Written {
        match self.data {
            Incoming::Here(data) => write(self.offset, data).into(),
            Incoming::Coming(_) => Written::Unread,
        }
    }
}

impl Written {
    /// The answer to [`Write::bytes`].
    pub fn into_outcome(self) -> Outcome<u32> {
        match self {
            Written::Now(result) => Outcome::Now(result),
            Written::Later(later) => Outcome::Later(later),
            Written::Into(_) | Written::Unread => {
                Err(Errno::because(Errno::EIO, "the tree asked for a payload that it has")).into()
            }
        }
    }
}

impl From<Outcome<u32>> for Written {
    fn from(outcome: Outcome<u32>) -> Written {
        match outcome {
            Outcome::Now(result) => Written::Now(result),
            Outcome::Later(later) => Written::Later(later),
        }
    }
}

impl From<Result<u32>> for Written {
    fn from(result: Result<u32>) -> Written {
        Written::Now(result)
    }
}

impl From<u32> for Written {
    fn from(code: u32) -> Written {
        Written::Now(Err(code.into()))
    }
}
