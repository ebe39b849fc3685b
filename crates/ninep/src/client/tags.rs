//! Tags and what each is used for.

use super::call::CallError;
use crate::brief;
use crate::message::{Message, NOTAG};
use covey_wire::{Blame, BytesMut};
use std::task::Waker;

/// Tags from here on are kept for Tflush and Tclunk, so that nothing is left behind.
pub(super) const CALL_TAGS: usize = 0xff00;

/// Those that are left are not ours.
pub(super) const ALL_TAGS: usize = brief::TAGS.start as usize;

/// What nobody waits for leaves room for calls.
pub(super) const SEND_TAGS: usize = 0x8000;

/// What a call came to.
pub(super) enum Answer {
    Reply(Message),
    /// The payload of an Rread is where it was to go.
    Filled(BytesMut),
}

/// What a tag is used for.
pub(super) enum Slot {
    Free,
    /// A call: number and weight of the request, whether it has left, who waits.
    Waiting {
        number: u8,
        weight: usize,
        is_sent: bool,
        waker: Option<Waker>,
        /// Where the payload of an Rread goes, until it is on its way there.
        room: Option<BytesMut>,
    },
    /// A call that is over and has not been looked at.
    Done(Result<Answer, CallError>),
    /// Nobody waits for the reply, after which the fid number is free.
    Detached {
        number: u8,
        weight: usize,
        is_sent: bool,
        release: Option<u32>,
    },
    /// A dropped call: its reply does not matter, Rflush does.
    Flushed {
        weight: usize,
    },
    /// A Tflush of that tag.
    Flush(u16),
    /// A Tflush of no tag.
    Heartbeat,
}

/// The tags of a connection. The one freed last is used next, so that the table stays small.
pub(super) struct Tags {
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// What NOTAG is used for: Tversion.
    version: Slot,
}

impl Tags {
    pub fn new() -> Tags {
        Tags { slots: Vec::new(), free: Vec::new(), version: Slot::Free }
    }

    /// A tag that is not in use, if less than `limit` are.
    pub fn take(&mut self, limit: usize) -> Option<u16> {
        if let Some(tag) = self.free.pop() {
            return Some(tag);
        }
        let tag = u16::try_from(self.slots.len()).ok().filter(|tag| usize::from(*tag) < limit)?;
        self.slots.push(Slot::Free);
        Some(tag)
    }

    /// The tag is no longer in use.
    pub fn free(&mut self, tag: u16) {
        if tag != NOTAG {
            self.free.push(tag);
        }
    }

    /// What a tag that was taken is used for.
    pub fn slot(&mut self, tag: u16) -> &mut Slot {
        self.slots.get_mut(usize::from(tag)).unwrap_or(&mut self.version)
    }

    /// The same of a number that may be none.
    pub fn known(&mut self, tag: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(tag))
    }

    /// What all tags are used for.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut().chain([&mut self.version])
    }

    /// Refuses a reply that no request awaits.
    pub fn check_reply(&mut self, tag: u16, reply: &Message) -> Result<(), Blame> {
        let number = reply.number();
        let is_known = tag == NOTAG || usize::from(tag) < self.slots.len();
        let fits = match self.slot(tag) {
            _ if !is_known => false,
            Slot::Waiting { number: asked, is_sent, .. }
            | Slot::Detached { number: asked, is_sent, .. } => {
                *is_sent && (number == *asked + 1 || is_error(reply))
            }
            Slot::Flushed { .. } => !number.is_multiple_of(2),
            Slot::Flush(_) | Slot::Heartbeat => matches!(reply, Message::Rflush {}),
            Slot::Free | Slot::Done(_) => false,
        };
        if fits {
            return Ok(());
        }
        Err(Blame::Violation(format!("{} with tag {tag} answers no request", reply.name())))
    }
}

/// Of which a dialect has one: the other is refused where messages are read.
fn is_error(reply: &Message) -> bool {
    matches!(reply, Message::Rlerror { .. } | Message::Rerror { .. })
}
