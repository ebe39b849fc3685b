//! A request on its way, as a future.

use super::state::Shared;
use super::tags::Answer;
use crate::message::Message;
use crate::tree::Errno;
use covey_wire::BytesMut;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// The server answered with an error, or the request cannot be sent: only this call fails.
    Errno(Errno),
    /// The connection has ended, for this reason: connect again. Whether the server has done what
    /// was asked is not known.
    Lost(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Errno(errno) => errno.fmt(f),
            CallError::Lost(reason) => write!(f, "connection lost: {reason}"),
        }
    }
}

impl std::error::Error for CallError {}

impl From<CallError> for Errno {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Errno(errno) => errno,
            CallError::Lost(reason) => {
                Errno::because(Errno::EIO, format!("connection lost: {reason}"))
            }
        }
    }
}

impl From<Errno> for CallError {
    fn from(errno: Errno) -> Self {
        CallError::Errno(errno)
    }
}

/// The reply to come. Dropped before it came, the request is flushed.
#[must_use = "a call that is dropped is flushed; use Conn::send where the reply does not matter"]
pub struct Call {
    shared: Arc<Shared>,
    tag: Result<u16, Option<CallError>>,
}

impl Call {
    pub(super) fn new(shared: Arc<Shared>, request: Message) -> Call {
        Call::with_room(shared, request, None)
    }

    fn with_room(shared: Arc<Shared>, request: Message, room: Option<BytesMut>) -> Call {
        let tag = shared.with(|state| state.call(request, room)).map_err(Some);
        Call { shared, tag }
    }

    /// Nobody waits for the reply, after which the number of `fid` is free.
    pub(super) fn detach(mut self, fid: u32) {
        if let Ok(tag) = std::mem::replace(&mut self.tag, Err(None)) {
            self.shared.with(|state| state.detach(tag, fid));
        }
    }
}

impl Call {
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<Answer, CallError>> {
        let result = match &mut self.tag {
            Ok(tag) => {
                let tag = *tag;
                ready!(self.shared.with(|state| state.poll_call(tag, context)))
            }
            Err(error) => Err(error.take().expect("a finished call is not polled again")),
        };
        self.tag = Err(None);
        Poll::Ready(result)
    }
}

impl Future for Call {
    type Output = Result<Message, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(self.poll_answer(context))?;
        Poll::Ready(Ok(match answer {
            Answer::Reply(reply) => reply,
            Answer::Filled(buffer) => Message::Rread { data: buffer.freeze().into() },
        }))
    }
}

/// A read into a buffer, to come. Dropped before, it is flushed, and the buffer with it.
#[must_use = "a read that is dropped is flushed"]
pub struct ReadInto {
    call: Call,
}

impl ReadInto {
    pub(super) fn new(shared: Arc<Shared>, fid: u32, offset: u64, room: BytesMut) -> ReadInto {
        let read = Message::Tread { fid, offset, count: room.len() as u32 };
        ReadInto { call: Call::with_room(shared, read, Some(room)) }
    }
}

impl Future for ReadInto {
    type Output = Result<BytesMut, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(self.call.poll_answer(context))?;
        Poll::Ready(match answer {
            Answer::Filled(buffer) => Ok(buffer),
            Answer::Reply(other) => unreachable!("{} answers no read", other.name()),
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Ok(tag) = self.tag {
            self.shared.with(|state| state.cancel(tag));
        }
    }
}
