//! Large writes whose data goes straight from the stream into the file.
//!
//! Only where the write could start now: what must wait for its turn is read and queued like others. The loop
//! calls nothing between `deposit` and `deposited`, so what was checked stays true.

use super::order::Claims;
use super::{Moment, Session};
use crate::frame::{self, DATA_HEAD_BYTES, DataHead};
use crate::message::Message;
use crate::tree::{Incoming, Tree, Write, Written};
use covey_wire::{BytesMut, Deposit, FileRange, RANGE_BYTES_MIN};

impl<T: Tree> Session<T> {
    /// After a large write another is expected: then its header is looked at alone.
    pub(super) fn deposit_next(&mut self, input: &[u8]) -> Deposit {
        if !self.expects_write {
            return Deposit::No;
        }
        if input.len() < DATA_HEAD_BYTES {
            return Deposit::UpTo(DATA_HEAD_BYTES - input.len());
        }
        if input.len() > DATA_HEAD_BYTES {
            return Deposit::UpTo(frame::bytes_wanted(input, self.msize).max(1));
        }
        let head = frame::write_head(input, self.msize);
        let place = head.and_then(|head| self.place_of(&head));
        self.expects_write = place.is_some();
        let Some(range) = place else { return Deposit::No };
        match self.begin_change() {
            Ok(()) => Deposit::Into(range),
            Err(blame) => {
                self.failure = Some(blame);
                Deposit::No
            }
        }
    }

    /// The data is where it was to go.
    pub(super) fn conclude_deposit(&mut self, input: &mut BytesMut, written: Result<usize, i32>) {
        let head = frame::write_head(input, self.msize).expect("it was one before");
        input.clear();
        self.moment = Moment::new();
        match written {
            Ok(count) => self.reply(head.tag, Message::Rwrite { count: count as u32 }),
            Err(code) => self.reply_error(head.tag, (code as u32).into()),
        }
    }

    fn place_of(&self, head: &DataHead) -> Option<FileRange> {
        let &DataHead { tag, fid, offset, count } = head;
        let claims = Claims::of_write(fid, offset, count);
        let is_long = count as usize >= RANGE_BYTES_MIN;
        if !is_long || self.fids.mode(fid).append || !self.is_turn(tag, &claims) {
            return None;
        }
        let file = self.fids.writable(fid).ok()?;
        let write = Write { offset, data: Incoming::Coming(count) };
        match self.tree.write(&file.user, &file.node, write) {
            Written::Into(range) => Some(range),
            // An error is told when the payload is here.
            _ => None,
        }
    }
}
