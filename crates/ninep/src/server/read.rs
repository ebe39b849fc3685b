//! Reads of files: the tree is asked once, and most are answered where they lie in the input, without being
//! decoded. The same for messages that come alone and whole, writes among them.

use super::answer::Wait;
use super::fids::File;
use super::finish::Then;
use super::order::{Claims, Stage};
use super::turn::Parked;
use super::{Moment, Session};
use crate::frame::{self, DATA_HEAD_BYTES, DataHead};
use crate::message::{Message, Qid};
use crate::tree::{Data, Read, Tree};
use bytes::Buf;
use covey_wire::{Bytes, BytesMut};

/// What became of a read.
pub(super) enum Reading<N> {
    /// The reply is in the output.
    Answered,
    /// The tree answers later.
    Waits(Parked<N>),
    /// It is no read of a file: not by this fid, or of a directory in a dialect that has them read.
    Other,
}

/// What became of a message that came alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// The reply is in the output.
    Answered,
    /// The tree answers later, or the connection has ended: `poll_user` is next.
    Waits,
    /// Nothing was done: it is for `handle_input`.
    Not,
}

impl<T: Tree> Session<T> {
    /// Starts a message that has arrived whole, behind which no other input waits, if it is a read or a write of a file
    /// whose turn it is. For a loop that receives each message by itself: it needs no buffer, no clock and no task.
    pub fn begin_alone(&mut self, message: &[u8]) -> Alone {
        if !self.is_known() {
            return Alone::Not;
        }
        self.moment = Moment::new();
        match frame::front_read(message).filter(|_| message.len() == DATA_HEAD_BYTES) {
            Some(head) => self.begin_read(&head),
            None => frame::whole_write(message)
                .map_or(Alone::Not, |(head, data)| self.begin_write(head, data)),
        }
    }

    /// Starts the message at the front of `input` if it is a read of a file whose turn it is; whether it
    /// was one.
    pub(super) fn start_front_read(&mut self, input: &mut BytesMut) -> bool {
        let Some(head) = frame::front_read(input) else { return false };
        let is_begun = self.begin_read(&head) != Alone::Not;
        if is_begun {
            input.advance(DATA_HEAD_BYTES);
        }
        is_begun
    }

    fn begin_read(&mut self, head: &DataHead) -> Alone {
        let &DataHead { tag, fid, offset, count } = head;
        let claims = Claims::of_read(fid, offset, count);
        if !self.is_turn(tag, &claims) {
            return Alone::Not;
        }
        match self.read(head) {
            Reading::Other => Alone::Not,
            Reading::Answered => Alone::Answered,
            Reading::Waits(parked) => {
                self.order.insert(tag, claims, Stage::Running);
                self.park(tag, claims, count.min(self.msize) as usize, parked);
                Alone::Waits
            }
        }
    }

    fn begin_write(&mut self, head: DataHead, data: &[u8]) -> Alone {
        let DataHead { tag, fid, offset, count } = head;
        if !self.is_turn(tag, &Claims::of_write(fid, offset, count)) {
            return Alone::Not;
        }
        let data = Bytes::copy_from_slice(data).into();
        self.admit(tag, Message::Twrite { fid, offset, data });
        let waits = self.failure.is_some() || self.requests.contains_key(&tag);
        if waits { Alone::Waits } else { Alone::Answered }
    }

    /// Whether a request could start now that has just come.
    pub(super) fn is_turn(&self, tag: u16, claims: &Claims) -> bool {
        let is_ready = self.dialect.is_some() && self.backlog.is_empty() && self.takes_more();
        // Without an outstanding request there is nothing to wait for.
        is_ready
            && (self.requests.is_empty()
                || !self.requests.contains_key(&tag)
                    && self.order.is_free(claims, |fid| self.fids.mode(fid)))
    }

    /// Asks the tree for a read whose turn it is.
    pub(super) fn read(&mut self, head: &DataHead) -> Reading<T::Node> {
        let &DataHead { tag, fid, offset, count } = head;
        let count = count.min(self.payload_max());
        let has_listings = !self.spoken().is_linux();
        let Ok(File { node, user, qid, .. }) = self.fids.readable(fid) else {
            return Reading::Other;
        };
        if qid.kind & Qid::DIR != 0 && has_listings {
            return Reading::Other;
        }
        let read = Read::reply((tag, offset, count), self.moment.0, &mut self.output);
        match self.tree.read(user, node, read) {
            Data::Filled(_) => {}
            Data::Loan(loan) => frame::put_rread_loan(tag, loan, &mut self.output),
            Data::Range(range) => frame::put_rread_range(tag, range, &mut self.output),
            Data::Bytes(mut data) => {
                data.truncate(count as usize);
                self.reply(tag, Message::Rread { data: data.into() });
            }
            Data::Failed(error) => self.reply_error(tag, error),
            Data::Later(later) => return Reading::Waits((Wait::Data(later), Then::Read { count })),
        }
        Reading::Answered
    }
}
