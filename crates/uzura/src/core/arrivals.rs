//! Messages that arrive: each goes to the receive that it is for, or is held until there is one.

use super::Core;
use crate::Fault;
use crate::api::{Access, Completion, End, Rights, Short};
use crate::envelope::{Envelope, Traits};
use crate::matching::Body;
use crate::numbers::OpIndex;
use crate::ops::{Op, Ready, State};
use crate::order::Types;
use crate::packet::{Head, PLAIN};
use crate::peers::ENVELOPE_BYTES;
use covey_wire::{Memory, Peer, Span, copy_short};

/// What a peer says of a message that waits.
pub(super) struct Waiting {
    pub slot: u16,
    pub bytes: u64,
    pub address: u64,
}

impl<M: Memory> Core<M> {
    /// Puts bytes of a message, from `at` on, where its receive wants them. What there is no room for is dropped.
    #[inline(always)]
    pub fn deliver(&mut self, index: OpIndex, mut at: u64, mut bytes: &[u8]) {
        let op = &self.ops[index];
        let (ahead, local, room) = (op.ahead, op.local, op.wanted.saturating_sub(at));
        bytes = &bytes[..bytes.len().min(room as usize)];
        if at < ahead {
            let (header, rest) = bytes.split_at(bytes.len().min((ahead - at) as usize));
            self.deliver_header(index, at, header);
            (at, bytes) = (at + header.len() as u64, rest);
        }
        if !bytes.is_empty()
            && let Err(fault) = self.give(&local, at - ahead, bytes)
        {
            self.ops[index].spoil(fault);
        }
    }

    #[cold]
    fn deliver_header(&mut self, index: OpIndex, at: u64, bytes: &[u8]) {
        let more = self.ops[index].more.as_ref();
        let header = more.and_then(|more| more.place.as_ref()).map(|place| place.header);
        let Some(part) = header.and_then(|span| span.part(at, bytes.len() as u64)) else { return };
        if let Err(no) = self.memory.write(part, |into| into.copy_from_slice(bytes)) {
            self.ops[index].spoil(no.into());
        }
    }

    /// A receive got a message of this many bytes.
    #[inline(always)]
    pub fn matched(&mut self, index: OpIndex, peer: Peer, envelope: &Envelope, bytes: u64) {
        let op = &mut self.ops[index];
        if bytes > op.bytes {
            op.fault = Some(Fault::Truncated);
        }
        op.wanted = bytes.min(op.bytes);
        (op.peer, op.tag, op.bytes, op.moved) = (peer, envelope.tag, bytes, 0);
        // A receive of a tag has none before.
        if !envelope.traits.is_none() {
            (op.traits, op.data) =
                (envelope.traits.with(op.traits.only(Traits::PART)), envelope.data);
        }
        op.state = State::Moving;
    }

    #[inline(always)]
    pub(super) fn eager(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        payload: &[u8],
        types: Option<Types>,
    ) {
        let queue = envelope.traits.queue();
        let cost = payload.len() as u64 + ENVELOPE_BYTES;
        let bytes = payload.len() as u64;
        if let Some(index) = self.receiver(queue, peer, envelope.tag, payload, bytes) {
            self.matched(index, peer, &envelope, payload.len() as u64);
            if self.is_foreign(peer) {
                self.settle(index, types);
            }
            self.deliver(index, 0, payload);
            self.complete_here(index);
            self.give_back(peer, cost);
            if envelope.traits.has(Traits::DELIVERED) {
                self.reply(peer, Head::Ack { op: envelope.op, fault: 0 }, Vec::new());
            }
            return;
        }
        if self.hold(peer, cost) {
            let early = &mut self.queues[queue].early;
            let buffer = early.buffer(payload);
            self.stats.bytes_held += payload.len() as u64;
            early.add(peer, envelope, Body::Whole(buffer), cost, types);
        }
    }

    /// Receives a message as most are: short, with a tag and perhaps a word, for a receive that has room for all of it and is
    /// found at once. `None`: it is not, and nothing was done.
    #[inline(always)]
    pub fn receive_short(&mut self, peer: Peer, head: &[u8], payload: &[u8]) -> Option<Short> {
        let (tag, data) = Head::short(head)?;
        if self.peer(peer).ok()?.is_foreign {
            return None;
        }
        let bytes = payload.len() as u64;
        let place = |op: &Op| Span::new(op.local.span.address, bytes);
        let (posted, memory) = (&mut self.queues[Traits::default().queue()].posted, &self.memory);
        let index = posted.take_first(&mut self.ops, peer, tag, |op| {
            let is_plain = op.traits.is_none() && op.more.is_none() && op.local.form.is_none();
            is_plain && op.bytes >= bytes && memory.read(place(op), |_| ()).is_ok()
        })?;
        self.give_back(peer, bytes + ENVELOPE_BYTES);
        self.stats.bytes_copied += bytes;
        // It is there: it was looked at just now.
        let _ = self.memory.write(place(&self.ops[index]), |into| copy_short(into, payload));
        let context = self.ops.remove_plain(index);
        Some(Short { context, peer, tag, bytes, data })
    }

    /// Where a message is to be read whose head has come: into the memory of the receive that it is for, if that takes it as
    /// it is.
    pub(super) fn place_message(&mut self, peer: Peer, head: &Head, bytes: u64) -> Option<Span> {
        let envelope = match *head {
            Head::Eager { tag } => Envelope::tagged(tag),
            Head::Message { op, traits, tag, data, types: PLAIN, .. } => {
                Envelope { traits: Traits::of_bits(traits)?, tag, data, op }
            }
            _ => return None,
        };
        if self.peer(peer).is_err() || self.is_foreign(peer) {
            return None;
        }
        let posted = &mut self.queues[envelope.traits.queue()].posted;
        let takes =
            |op: &Op| op.local.form.is_none() && op.bytes >= bytes && !op.traits.has(Traits::MANY);
        let index = posted.take_if(&mut self.ops, peer, envelope.tag, takes)?;
        self.matched(index, peer, &envelope, bytes);
        let op = &mut self.ops[index];
        op.theirs = envelope.op;
        let place = op.local.span.part(0, bytes);
        self.peers[peer.0 as usize].placing = Some(self.ops.wire(index));
        place
    }

    /// All of such a message is there.
    pub(super) fn message_placed(&mut self, peer: Peer, bytes: u64) {
        let Ok(state) = self.peer(peer) else { return };
        let wire = state.placing.take();
        let index = wire.and_then(|wire| self.ops.of_wire(wire, peer));
        self.give_back(peer, bytes + ENVELOPE_BYTES);
        if let Some(index) = index {
            self.arrived(index, bytes);
        }
    }

    #[inline]
    pub(super) fn ready(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        waiting: Waiting,
        payload: &[u8],
    ) {
        let Waiting { slot, bytes, address } = waiting;
        let (op, queue) = (envelope.op, envelope.traits.queue());
        if payload.len() as u64 > bytes {
            return self.violation(peer);
        }
        let state = &self.peers[peer.0 as usize];
        let form = state.known.find(slot);
        if state.is_foreign && form.is_err() {
            // Its elements would stay unknown.
            return self.violation(peer);
        }
        let address = Some(address).filter(|address| *address != u64::MAX && form.is_ok());
        let (header, form) = (payload.to_vec(), form.unwrap_or(None));
        let ready = Ready { op, bytes, header, address, form };
        let cost = ready.header.len() as u64 + ENVELOPE_BYTES;
        let index = self.receiver(queue, peer, envelope.tag, &ready.header, bytes);
        let Some(index) = index else {
            if self.hold(peer, cost) {
                self.queues[queue].early.add(peer, envelope, Body::Ready(ready), cost, None);
            }
            return;
        };
        self.matched(index, peer, &envelope, ready.bytes);
        if self.is_foreign(peer) {
            self.settle(index, ready.types());
        }
        self.matched.push_back((self.ops.wire(index), ready));
        self.give_back(peer, cost);
    }

    /// The receive of a message of this many bytes that begins with `header`, if it is posted.
    #[inline(always)]
    fn receiver(
        &mut self,
        queue: usize,
        peer: Peer,
        tag: u64,
        header: &[u8],
        bytes: u64,
    ) -> Option<OpIndex> {
        let index = self.queues[queue].posted.take(&mut self.ops, peer, tag, header)?;
        if !self.ops[index].traits.has(Traits::MANY) {
            return Some(index);
        }
        let part = self.part_of(index, bytes);
        if part.is_none() {
            // It has more messages under way than there are numbers.
            self.violation(peer);
        }
        part
    }

    /// A message that was held is held no more.
    pub fn release(&mut self, peer: Peer, cost: u64) {
        self.stats.unexpected_bytes -= cost;
        self.discharge(peer, cost);
    }

    /// Something that took room in a peer's window does so no more.
    pub fn discharge(&mut self, peer: Peer, cost: u64) {
        let state = &mut self.peers[peer.0 as usize];
        state.held = state.held.saturating_sub(cost);
        self.give_back(peer, cost);
    }

    /// Makes room for a message that nobody has received yet. A sender keeps to its window.
    fn hold(&mut self, peer: Peer, cost: u64) -> bool {
        if !self.charge(peer, cost) {
            return false;
        }
        self.stats.unexpected += 1;
        self.stats.unexpected_bytes += cost;
        true
    }

    /// Takes something of a peer's window.
    fn charge(&mut self, peer: Peer, cost: u64) -> bool {
        let window = self.config.window_bytes;
        let state = &mut self.peers[peer.0 as usize];
        if state.held + state.owed + cost > window {
            self.violation(peer);
            return false;
        }
        state.held += cost;
        true
    }

    /// A peer tells that it has put memory here.
    pub(super) fn written(&mut self, peer: Peer, data: u64, bytes: u64) {
        if self.charge(peer, ENVELOPE_BYTES) {
            let completion = Completion::well(0, peer, 0, bytes);
            let (end, data) = (End::Written, Some(data));
            self.completions.push_back(Completion { end, data, ..completion });
        }
    }

    /// A peer has accessed memory here. It is reported where that was wanted.
    pub fn accessed(&mut self, peer: Peer, key: u64, access: Access, bytes: u64) {
        let found = self.table.find(key);
        if found.is_ok_and(|found| Rights(found.rights).permit(Rights::REPORTED)) {
            let completion = Completion::well(key, peer, 0, bytes);
            self.completions.push_back(Completion { end: End::Accessed(access), ..completion });
        }
    }

    /// A short message that has more than a tag. A slot without a layout is none that the peer may name.
    pub(super) fn message(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        (slot, header): (u16, u16),
        payload: &[u8],
    ) {
        match self.peers[peer.0 as usize].known.find(slot) {
            Ok(form) => {
                let types = form.map(|form| Types { form, at: header.into() });
                self.eager(peer, envelope, payload, types);
            }
            Err(_) => self.violation(peer),
        }
    }
}
