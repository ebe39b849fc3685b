//! Errands: reads and writes of one message each, which go to the box past the connection.
//!
//! ```text
//!   coroutine asks ──► message made in its slot, under a tag of its own ──► host
//!   its turn comes ◄── answer: copied out of the slot when it is seen, checked, kept ◄──┘
//! ```
//!
//! What always holds:
//!
//! - An errand is sent only when everything that was asked for before is in the box. So the order of 9P is that of the
//!   program, whichever way its messages take.
//! - An answer leaves its slot when it is seen, whosever turn it is: no coroutine that waits holds up the others' messages. It
//!   reaches the coroutine's memory at its turn, so no program sees when it came.
//! - A tag is in use from the request to the turn of who asked. What comes under another one ends the worker.

use super::{After, Answer, Copied, Ended, Ground, Worker};
use crate::mailbox::{Wake, WorkerBox};
use crate::memory::Shared;
use crate::plan::{SLOT_BYTES, SLOTS};
use covey_ninep::brief::{Asked, DATA_AT, HEAD_BYTES, Said, TAGS};
use covey_ninep::message::IOHDRSZ;
use covey_ninep::tree::{Errno, Result};
use covey_wire::Span;
use std::result::Result as StdResult;
use std::{fmt, mem};

/// The number of an errand that is on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Errand(u8);

/// All that may be on their way.
pub(super) struct Errands {
    /// A bit for each that is free.
    free: u16,
    all: [State; SLOTS],
    /// Most payload of a message.
    bytes_max: u64,
}

#[derive(Default)]
enum State {
    #[default]
    Free,
    /// What was asked for, in which slot.
    Sent(What, usize),
    /// The answer, and the message that it came in.
    Done(Said, Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Read,
    Write,
}

impl Errands {
    /// With messages of `msize` bytes.
    pub fn new(msize: u32) -> Errands {
        let bytes_max = u64::from(msize).min(SLOT_BYTES).saturating_sub(IOHDRSZ.into());
        Errands { free: u16::MAX, all: Default::default(), bytes_max }
    }

    /// Sends a read. `None` if it is no errand, or there is no room.
    #[inline]
    pub fn read<S: Shared>(
        &mut self,
        mailbox: &mut WorkerBox<S>,
        (fid, offset): (u32, u64),
        bytes: u64,
    ) -> Option<(Errand, Wake)> {
        let errand = self.find(bytes)?;
        let draft = mailbox.draft()?;
        let asked = Asked { tag: errand.tag(), fid, offset, count: bytes as u32 };
        draft.write(0, &asked.read());
        self.begin(errand, State::Sent(What::Read, draft.slot()));
        Some((errand, draft.post(HEAD_BYTES as u32)))
    }

    /// Sends a write of bytes of the local store. `None` as for a read.
    #[inline]
    pub fn write<G: Ground>(
        &mut self,
        mailbox: &mut WorkerBox<G::Memory>,
        (fid, offset): (u32, u64),
        (from, ground): (Span, &mut G),
    ) -> Option<(Errand, Wake)> {
        let errand = self.find(from.bytes)?;
        let draft = mailbox.draft()?;
        let count = from.bytes as u32;
        let asked = Asked { tag: errand.tag(), fid, offset, count };
        draft.write(0, &asked.write());
        if ground.put(from, 0, draft.at() + HEAD_BYTES as u64) == Copied::Refused {
            return None;
        }
        self.begin(errand, State::Sent(What::Write, draft.slot()));
        Some((errand, draft.post(HEAD_BYTES as u32 + count)))
    }

    fn find(&self, bytes: u64) -> Option<Errand> {
        let is_brief = (1..=self.bytes_max).contains(&bytes);
        (is_brief && self.free != 0).then_some(Errand(self.free.trailing_zeros() as u8))
    }

    fn begin(&mut self, errand: Errand, sent: State) {
        self.free &= !(1 << errand.0);
        self.all[errand.place()] = sent;
    }

    /// Takes an answer that has come in a slot, under one of [`TAGS`].
    pub fn arrive(&mut self, slot: usize, tag: u16, message: Vec<u8>) -> StdResult<(), Ended> {
        let unasked = || Ended::Host(format!("an answer with tag {tag} answers no request"));
        let place = usize::from(tag - TAGS.start);
        let state = self.all.get_mut(place).ok_or_else(unasked)?;
        let State::Sent(what, asked_in) = *state else { return Err(unasked()) };
        let said = Said::of(&message).filter(|said| match said {
            _ if asked_in != slot => false,
            Said::Data(_) => what == What::Read,
            Said::Written(_) => what == What::Write,
            Said::Refused(_) => true,
        });
        let odd = || Ended::Host(format!("the answer with tag {tag} is none to a {what}"));
        *state = State::Done(said.ok_or_else(odd)?, message);
        Ok(())
    }

    /// A slot has come back without an answer. Errands are never flushed: each has one.
    #[cold]
    pub fn check_unanswered(&self, slot: usize) -> StdResult<(), Ended> {
        let is_ours = |state: &State| matches!(state, State::Sent(_, sent) if *sent == slot);
        if self.all.iter().any(is_ours) {
            return Err(Ended::Host(format!("the request in slot {slot} was not answered")));
        }
        Ok(())
    }

    /// The answer, and its data, if it is there. The errand is over then.
    pub fn take(&mut self, errand: Errand) -> Option<(Said, Vec<u8>)> {
        let state = &mut self.all[errand.place()];
        let State::Done(..) = state else { return None };
        let State::Done(said, message) = mem::take(state) else { return None };
        self.free |= 1 << errand.0;
        Some((said, message))
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Read => "read",
            What::Write => "write",
        })
    }
}

impl Errand {
    fn tag(self) -> u16 {
        TAGS.start + u16::from(self.0)
    }

    fn place(self) -> usize {
        usize::from(self.0)
    }
}

impl<G: Ground> Worker<G> {
    /// The turn of a coroutine has come that has sent an errand.
    pub(super) fn end_errand(
        &mut self,
        cor: u32,
        errand: Errand,
        after: After,
    ) -> StdResult<Answer, Ended> {
        let (said, message) = self.link.wait_for(errand, &mut *self.ground)?;
        let answer = self.take_said(said, &message, after);
        self.link.give_back(message);
        self.answer(cor, answer, after)
    }

    fn take_said(&mut self, said: Said, message: &[u8], after: After) -> Result<i64> {
        match (said, after) {
            (Said::Refused(code), _) => Err(code.into()),
            (Said::Data(count), After::Data { to, moved }) => {
                let (data, count) = (message.get(DATA_AT..).unwrap_or_default(), u64::from(count));
                if count > to.bytes {
                    return Err(Errno::because(Errno::EPROTO, "more came than was asked for"));
                }
                self.ground.give(Span::new(to.address, count), data);
                self.settle(moved, count, to.bytes);
                Ok(count as i64)
            }
            (Said::Written(written), After::Written { count, moved }) => {
                let written = u64::from(written).min(count);
                self.settle(moved, written, count);
                Ok(written as i64)
            }
            _ => unreachable!("an answer is of the kind that was asked for"),
        }
    }
}
