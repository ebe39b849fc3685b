//! A request on its way, as a future.

use super::state::Shared;
use crate::message::Message;
use crate::tree::Errno;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
        let tag = shared.with(|state| state.call(request)).map_err(Some);
        Call { shared, tag }
    }

    /// Nobody waits for the reply, after which the number of `fid` is free.
    pub(super) fn detach(mut self, fid: u32) {
        if let Ok(tag) = std::mem::replace(&mut self.tag, Err(None)) {
            self.shared.with(|state| state.detach(tag, fid));
        }
    }
}

impl Future for Call {
    type Output = Result<Message, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.tag {
            Ok(tag) => {
                let tag = *tag;
                std::task::ready!(self.shared.with(|state| state.poll_call(tag, context)))
            }
            Err(error) => Err(error.take().expect("a finished call is not polled again")),
        };
        self.tag = Err(None);
        Poll::Ready(result)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Ok(tag) = self.tag {
            self.shared.with(|state| state.cancel(tag));
        }
    }
}
