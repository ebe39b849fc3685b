//! Reads of files: the tree is asked once, and most are answered where they lie in the input, without being
//! decoded.

use super::Session;
use super::answer::Wait;
use super::fids::File;
use super::finish::Then;
use super::order::{Claims, Stage};
use super::turn::Parked;
use crate::frame::{self, DATA_HEAD_BYTES, DataHead};
use crate::message::{Message, Qid};
use crate::tree::{Data, Read, Tree};
use bytes::Buf;
use covey_wire::BytesMut;

/// What became of a read.
pub(super) enum Reading<N> {
    /// The reply is in the output.
    Answered,
    /// The tree answers later.
    Waits(Parked<N>),
    /// It is no read of a file: not by this fid, or of a directory in a dialect that has them read.
    Other,
}

impl<T: Tree> Session<T> {
    /// Starts the message at the front of `input` if it is a read of a file whose turn it is; whether it
    /// was one.
    pub(super) fn start_front_read(&mut self, input: &mut BytesMut) -> bool {
        let Some(head) = frame::front_read(input) else { return false };
        let &DataHead { tag, fid, offset, count } = &head;
        let is_ready = self.dialect.is_some() && self.backlog.is_empty() && self.takes_more();
        if !is_ready {
            return false;
        }
        // Without an outstanding request there is nothing to wait for.
        if !self.requests.is_empty() {
            let (fids, claims) = (&self.fids, Claims::of_read(fid, offset, count));
            if self.requests.contains_key(&tag)
                || !self.order.is_free(&claims, |fid| fids.mode(fid))
            {
                return false;
            }
        }
        match self.read(&head) {
            Reading::Other => return false,
            Reading::Answered => {}
            Reading::Waits(parked) => {
                let claims = Claims::of_read(fid, offset, count);
                self.order.insert(tag, claims, Stage::Running);
                self.park(tag, claims, count.min(self.msize) as usize, parked);
            }
        }
        input.advance(DATA_HEAD_BYTES);
        true
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
