//! Operations under way.

use crate::api::{Completion, End, Key, Local, OpId, Remote};
use crate::atomics::Atomic;
use crate::envelope::{Envelope, Traits};
use crate::forms::Committed;
use crate::numbers::{ANYBODY, GENERATION_MAX, OPERATIONS_MAX, OpIndex, Wire};
use crate::order::Types;
use covey_layout::{Element, Op as Combine};
use covey_wire::{Peer, Span};
use std::rc::Rc;

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// No operation.
    Free,
    Send,
    Receive,
    /// The end of a put is told to its target.
    Tell,
    Put,
    Get,
    Accumulate(Combine),
    Fetch(Combine),
    Swap,
    /// On elements in a row; [`More::atomic`] says what.
    AtomicUpdate,
    AtomicFetch,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Among those that wait for room or credit.
    Waiting,
    /// A receive that no message has come for.
    Posted,
    /// A message that waits for its receiver.
    Announced,
    /// Its bytes are on their way.
    Moving,
    /// A message has left, and its sender waits for its end at the receiver.
    Delivering,
    /// A receive of many messages that takes no more, and has some that are not whole.
    Closing,
    /// It is the transport's, which says when it has ended.
    Away,
}

/// An operation. What receiving a short message takes comes first.
#[derive(Debug)]
pub(crate) struct Op {
    pub what: What,
    pub state: State,
    pub generation: u16,
    /// Of a message.
    pub traits: Traits,
    /// Whose message or memory; [`ANYBODY`] for anybody's.
    pub peer: Peer,
    pub tag: u64,
    pub ignore: u64,
    /// The next one of its list; of a message in a buffer for many, the buffer's receive.
    pub next: OpIndex,
    /// When it was posted; of a message in a buffer for many, where it begins there.
    pub order: u64,
    pub context: u64,
    /// A message's word for its receiver, or a put's for its target.
    pub data: u64,
    pub local: Local,
    /// Bytes of it all.
    pub bytes: u64,
    /// Bytes before the local memory: of a header.
    pub ahead: u64,
    /// Bytes of it all that are there; of a message that is sent: that were taken.
    pub moved: u64,
    /// Of those to be moved.
    pub wanted: u64,
    /// Of what the transport was given and has not ended: packets that are read from its memory, a fetch into it, or reads and
    /// writes that it was posted for.
    pub posted: u32,
    /// What the peer calls its own half of it.
    pub theirs: Wire,
    pub fault: Option<crate::Fault>,
    pub more: Option<Box<More>>,
}

/// What only some operations have.
#[derive(Clone, Debug, Default)]
pub(crate) struct More {
    /// A header to be sent.
    pub header: Vec<u8>,
    /// Where a header goes.
    pub place: Option<Place>,
    /// The other side of a one-sided operation.
    pub remote: Option<Remote>,
    /// Where what was there before goes.
    pub before: Option<Local>,
    /// What is to be there.
    pub new: Option<Local>,
    /// The transport did not do all of it.
    pub is_refused: bool,
    /// The elements of what comes from a peer of the other byte order.
    pub types: Option<Types>,
    /// A buffer for many messages.
    pub many: Many,
    pub atomic: Option<(Atomic, Element)>,
}

/// A buffer for many messages: how far it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Many {
    /// With less than this left it takes no more.
    pub left_min: u64,
    pub used: u64,
    /// Messages in it that are not whole.
    pub parts: u32,
}

/// A form of headers.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub mask: Vec<u8>,
    pub value: Vec<u8>,
    pub header: Span,
}

/// A message that waits for its receiver.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    /// The sender's operation.
    pub op: Wire,
    pub bytes: u64,
    /// Its first bytes.
    pub header: Vec<u8>,
    /// Where the rest lies; `None` where it can only be asked for.
    pub address: Option<u64>,
    pub form: Option<Rc<Committed>>,
}

impl Ready {
    /// The elements of its body, where its sender told a layout.
    pub fn types(&self) -> Option<Types> {
        let at = self.header.len() as u64;
        self.form.clone().map(|form| Types { form, at })
    }
}

/// A table of operations that are named by index and generation.
#[derive(Debug)]
pub(crate) struct Ops {
    all: Vec<Op>,
    free: Vec<OpIndex>,
    max: usize,
}

impl Ops {
    pub fn new(max: usize) -> Ops {
        Ops { all: Vec::new(), free: Vec::new(), max: max.min(OPERATIONS_MAX) }
    }

    /// Adds an operation; `None` when there are too many.
    #[inline(always)]
    pub fn add(&mut self, what: What, peer: Peer, context: u64, local: Local) -> Option<OpIndex> {
        let max = self.max;
        self.add_up_to(max, what, peer, context, local)
    }

    /// Adds the receive of one message in a buffer for many, which its user has not counted.
    pub fn add_part(&mut self, parent: OpIndex, at: u64, local: Local) -> Option<OpIndex> {
        let Op { peer, context, .. } = self[parent];
        let index = self.add_up_to(OPERATIONS_MAX, What::Receive, peer, context, local)?;
        let op = &mut self[index];
        (op.next, op.order, op.bytes) = (parent, at, local.span.bytes);
        op.traits = Traits::PART;
        Some(index)
    }

    #[inline(always)]
    fn add_up_to(
        &mut self,
        max: usize,
        what: What,
        peer: Peer,
        context: u64,
        local: Local,
    ) -> Option<OpIndex> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow(max, local)?,
        };
        let op = &mut self.all[index.place()];
        (op.what, op.peer, op.context, op.local) = (what, peer, context, local);
        (op.state, op.tag, op.ignore, op.next) = (State::Waiting, 0, 0, OpIndex::NONE);
        op.traits = Traits::default();
        (op.bytes, op.ahead, op.moved, op.wanted, op.posted) = (0, 0, 0, 0, 0);
        Some(index)
    }

    #[cold]
    fn grow(&mut self, max: usize, local: Local) -> Option<OpIndex> {
        if self.all.len() >= max {
            return None;
        }
        self.all.push(Op {
            what: What::Free,
            state: State::Waiting,
            generation: 0,
            traits: Traits::default(),
            peer: ANYBODY,
            tag: 0,
            ignore: 0,
            next: OpIndex::NONE,
            order: 0,
            context: 0,
            data: 0,
            local,
            bytes: 0,
            ahead: 0,
            moved: 0,
            wanted: 0,
            posted: 0,
            theirs: Wire::default(),
            fault: None,
            more: None,
        });
        Some(OpIndex::new(self.all.len() - 1))
    }

    /// Ends an operation: its number means nothing any more.
    #[inline(always)]
    pub fn remove(&mut self, index: OpIndex) -> Completion {
        let op = &mut self.all[index.place()];
        let (mut end, mut data, mut at) = (End::Operation, None, 0);
        if op.what == What::Receive && !op.traits.is_none() {
            data = op.traits.has(Traits::DATA).then_some(op.data);
            if op.traits.has(Traits::PART) {
                (end, at) = (End::Part, op.order);
            } else if op.traits.has(Traits::MANY) {
                end = End::Released;
            }
        }
        op.what = What::Free;
        op.generation = op.generation.wrapping_add(1) & GENERATION_MAX;
        let result = op.fault.take().map_or(Ok(()), Err);
        if op.more.is_some() {
            op.more = None;
        }
        self.free.push(index);
        let Op { context, peer, tag, bytes, .. } = *op;
        Completion { end, context, result, peer, tag, bytes, data, at }
    }

    /// Ends a receive that was posted and has no more than that. Says what it was posted with.
    #[inline(always)]
    pub fn remove_plain(&mut self, index: OpIndex) -> u64 {
        let op = &mut self.all[index.place()];
        op.what = What::Free;
        op.generation = op.generation.wrapping_add(1) & GENERATION_MAX;
        self.free.push(index);
        op.context
    }

    /// What a peer calls it.
    #[inline]
    pub fn wire(&self, index: OpIndex) -> Wire {
        Wire::of(index, self[index].generation)
    }

    /// The operation that a peer means, if it is still under way and its own.
    #[inline]
    pub fn of_wire(&self, wire: Wire, peer: Peer) -> Option<OpIndex> {
        let index = wire.index();
        let op = self.all.get(index.place())?;
        let is_it = op.what != What::Free && op.peer == peer;
        (is_it && op.generation == wire.generation()).then_some(index)
    }

    /// What a message says of itself.
    pub fn envelope(&self, index: OpIndex) -> Envelope {
        let op = &self[index];
        Envelope { traits: op.traits, tag: op.tag, data: op.data, op: self.wire(index) }
    }

    /// Whether it is under way still.
    pub fn is_live(&self, wire: Wire) -> bool {
        self.of_wire(wire, self.peer_of(wire)).is_some()
    }

    /// What our user calls it.
    pub fn id(&self, index: OpIndex) -> OpId {
        OpId(self.wire(index).token())
    }

    /// The operation that our user means.
    pub fn of_id(&self, id: OpId) -> Option<OpIndex> {
        let wire = Wire::of_token(id.0);
        self.of_wire(wire, self.peer_of(wire))
    }

    /// Whose operation it is.
    pub fn peer_of(&self, wire: Wire) -> Peer {
        self.all.get(wire.index().place()).map_or(ANYBODY, |op| op.peer)
    }

    /// All that are under way.
    pub fn live(&self) -> impl Iterator<Item = OpIndex> {
        let live = self.all.iter().enumerate().filter(|(_, op)| op.what != What::Free);
        live.map(|(place, _)| OpIndex::new(place))
    }
}

impl std::ops::Index<OpIndex> for Ops {
    type Output = Op;

    #[inline]
    fn index(&self, index: OpIndex) -> &Op {
        &self.all[index.place()]
    }
}

impl std::ops::IndexMut<OpIndex> for Ops {
    #[inline]
    fn index_mut(&mut self, index: OpIndex) -> &mut Op {
        &mut self.all[index.place()]
    }
}

impl Op {
    /// Whether it is a receive for such a message, by source and tag.
    #[inline(always)]
    pub fn takes(&self, peer: Peer, tag: u64) -> bool {
        (self.peer == peer || self.peer == ANYBODY) && (self.tag ^ tag) & !self.ignore == 0
    }

    /// Something went wrong on the way. The first fault stays, but one that says that a part is there.
    pub fn spoil(&mut self, fault: crate::Fault) {
        if matches!(self.fault, None | Some(crate::Fault::Truncated)) {
            self.fault = Some(fault);
        }
    }

    /// A put whose target is told this.
    pub fn tells(&mut self, data: Option<u64>) {
        if let Some(data) = data {
            (self.data, self.traits) = (data, Traits::DATA);
        }
    }

    /// What only some have.
    pub fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// The key and place of the other side.
    pub fn remote(&self) -> Option<(Key, u64)> {
        let remote = self.more.as_ref()?.remote?;
        Some((remote.key, remote.at))
    }
}
