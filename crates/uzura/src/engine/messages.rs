//! Sending and receiving.

use super::Engine;
use crate::Fault;
use crate::api::{
    Claim, Completion, HEADER_BYTES_MAX, Local, Match, OpId, Probe, Rule, Source, Started, Tag,
};
use crate::direct::{Far, Fetch, Fetched};
use crate::envelope::{Envelope, Traits};
use crate::matching::{Body, EarlyIndex, follows_form};
use crate::numbers::{ANYBODY, OpIndex};
use crate::ops::{Place, Ready, State, What};
use crate::packet::{Head, PLAIN};
use crate::peers::ENVELOPE_BYTES;
use covey_wire::transport::Refused;
use covey_wire::{Memory, Peer, Span, Transport, copy_short};

impl<T: Transport, M: Memory> Engine<T, M> {
    #[inline]
    pub(super) fn start_send(
        &mut self,
        to: Peer,
        envelope: Envelope,
        header: &[u8],
        what: Local,
        context: u64,
    ) -> Result<Started, Fault> {
        let tag = envelope.tag;
        let bytes = self.core.size(&what)? + header.len() as u64;
        if header.len() > HEADER_BYTES_MAX {
            return Err(Fault::TooLong);
        }
        let is_done_when_sent = !envelope.traits.has(Traits::DELIVERED);
        if self.core.peer(to)?.is_clear_and_alike()
            && is_done_when_sent
            && !self.is_to_be_posted(to, &what, header, bytes)
            && self.send_now(to, &envelope, header, &what, bytes, PLAIN)?
        {
            return Ok(Started::Done(Completion::well(context, to, tag, bytes)));
        }
        let core = &mut self.core;
        let index = core.ops.add(What::Send, to, context, what).ok_or(Fault::Busy)?;
        let op = &mut core.ops[index];
        (op.tag, op.bytes, op.ahead) = (tag, bytes, header.len() as u64);
        (op.traits, op.data) = (envelope.traits, envelope.data);
        let id = core.ops.id(index);
        if core.peers[to.0 as usize].is_clear() && self.announce_now(to, index, header) {
            return Ok(Started::Pending(id));
        }
        let core = &mut self.core;
        if !header.is_empty() {
            core.ops[index].more().header.extend_from_slice(header);
        }
        core.peers[to.0 as usize].backlog.push_back(index);
        self.pump_now(to);
        Ok(Started::Pending(id))
    }

    /// Whether a message that is not announced is sent from where it lies.
    #[inline]
    pub(super) fn is_to_be_posted(
        &self,
        to: Peer,
        what: &Local,
        header: &[u8],
        bytes: u64,
    ) -> bool {
        bytes > self.core.config.copied_bytes_max as u64
            && what.form.is_none()
            && header.is_empty()
            && self.posts(to, bytes)
    }

    fn posts(&self, to: Peer, bytes: u64) -> bool {
        let most = self.core.config.eager_posted_bytes_max;
        bytes <= self.transport.post_bytes_max(to).min(most) as u64
    }

    /// Sends a short message if there is room for it. `types` is the slot of its elements, for a peer that needs them.
    #[inline(never)]
    pub(super) fn send_now(
        &mut self,
        to: Peer,
        envelope: &Envelope,
        header: &[u8],
        what: &Local,
        bytes: u64,
        types: u16,
    ) -> Result<bool, Fault> {
        let core = &mut self.core;
        let cost = bytes + ENVELOPE_BYTES;
        let max = core.config.eager_bytes_max.min(self.transport.packet_bytes_max(to));
        if bytes > max as u64 || core.peers[to.0 as usize].room < cost {
            return Ok(false);
        }
        // In two branches, so that the words of either head are written right where they belong.
        let Envelope { traits, tag, data, op } = *envelope;
        if types == PLAIN && traits.is_none() {
            let head = Head::Eager { tag }.encode();
            return self.send_with::<{ Head::EAGER_BYTES }>(to, &head, header, what, bytes);
        }
        let (traits, ahead) = (traits.bits(), header.len() as u16);
        let head = Head::Message { op, traits, tag, data, types, header: ahead };
        self.send_with::<{ Head::MESSAGE_BYTES }>(to, &head.encode(), header, what, bytes)
    }

    /// The same with the bytes of a head, of which there are so many.
    #[inline(always)]
    fn send_with<const HEAD_BYTES: usize>(
        &mut self,
        to: Peer,
        head: &[u8],
        header: &[u8],
        what: &Local,
        bytes: u64,
    ) -> Result<bool, Fault> {
        let head = head.first_chunk::<HEAD_BYTES>().ok_or(Fault::Sizes)?;
        let core = &mut self.core;
        let cost = bytes + ENVELOPE_BYTES;
        let (peer, total) = (to, bytes as usize);
        let sent = if what.form.is_none() {
            let transport = &mut self.transport;
            core.memory.read(what.span, |body| {
                transport.send(peer, head, total, |room| {
                    if header.is_empty() {
                        return copy_short(room, body);
                    }
                    let (front, rest) = room.split_at_mut(header.len());
                    front.copy_from_slice(header);
                    rest.copy_from_slice(body);
                })
            })?
        } else {
            let mut taken = Ok(());
            let sent = self.transport.send(peer, head, total, |room| {
                let (front, rest) = room.split_at_mut(header.len());
                front.copy_from_slice(header);
                taken = core.take(what, 0, rest);
            });
            // Its size was found, so the memory is there.
            debug_assert_eq!(taken, Ok(()));
            sent
        };
        match sent {
            Ok(()) => {
                core.peers[to.0 as usize].room -= cost;
                core.stats.eager += 1;
                core.stats.bytes_copied += bytes;
                Ok(true)
            }
            Err(Refused::Dead) => Err(Fault::PeerDead),
            Err(_) => Ok(false),
        }
    }

    #[inline(always)]
    pub(super) fn start_receive(
        &mut self,
        from: Source,
        which: Match,
        into: Local,
        context: u64,
    ) -> Result<Started, Fault> {
        let room = self.core.size_to_write(&into)?;
        let (traits, tag) = which.parts();
        let early = &self.core.queues[traits.queue()].early;
        if !early.is_empty()
            && let Some(found) = early.find(from, tag, |_| true)
        {
            return self.receive_early((traits.queue(), found), into, room, None, context);
        }
        let peer = self.source(from)?;
        let core = &mut self.core;
        let index = core.ops.add(What::Receive, peer, context, into).ok_or(Fault::Busy)?;
        let op = &mut core.ops[index];
        (op.tag, op.ignore, op.bytes) = (tag.value, tag.ignore, room);
        (op.traits, op.state) = (traits, State::Posted);
        core.queues[traits.queue()].posted.add(&mut core.ops, index);
        Ok(Started::Pending(core.ops.id(index)))
    }

    #[inline(always)]
    fn source(&mut self, from: Source) -> Result<Peer, Fault> {
        match from {
            Source::Any => Ok(ANYBODY),
            Source::From(peer) => {
                self.know(peer);
                self.core.peer(peer).map(|_| peer)
            }
        }
    }

    pub(super) fn start_place(&mut self, rule: &Rule<'_>, context: u64) -> Result<Started, Fault> {
        let ahead = rule.mask.len() as u64;
        if rule.mask.len() != rule.value.len() || rule.header.bytes < ahead {
            return Err(Fault::Sizes);
        }
        if rule.mask.len() > HEADER_BYTES_MAX {
            return Err(Fault::TooLong);
        }
        let room = self.core.size_to_write(&rule.payload)? + ahead;
        let place =
            Place { mask: rule.mask.to_vec(), value: rule.value.to_vec(), header: rule.header };
        let fits = |message: &[u8]| follows_form(rule.mask, rule.value, message);
        let early = &self.core.queues[TAGGED].early;
        let early = early.find(rule.from, rule.tag, |early| fits(early.body.begin()));
        if let Some(early) = early {
            return self.receive_early((TAGGED, early), rule.payload, room, Some(place), context);
        }
        let peer = self.source(rule.from)?;
        let core = &mut self.core;
        let index = core.ops.add(What::Receive, peer, context, rule.payload).ok_or(Fault::Busy)?;
        let op = &mut core.ops[index];
        (op.tag, op.ignore, op.bytes, op.ahead) = (rule.tag.value, rule.tag.ignore, room, ahead);
        op.state = State::Posted;
        op.more().place = Some(place);
        core.queues[TAGGED].posted.add(&mut core.ops, index);
        Ok(Started::Pending(core.ops.id(index)))
    }

    /// Receives a message that came before.
    #[inline(never)]
    fn receive_early(
        &mut self,
        (queue, early): (usize, EarlyIndex),
        into: Local,
        room: u64,
        place: Option<Place>,
        context: u64,
    ) -> Result<Started, Fault> {
        let core = &mut self.core;
        let index = core.ops.add(What::Receive, ANYBODY, context, into).ok_or(Fault::Busy)?;
        let op = &mut core.ops[index];
        op.bytes = room;
        if let Some(place) = place {
            op.ahead = place.mask.len() as u64;
            op.more().place = Some(place);
        }
        let id = core.ops.id(index);
        if self.take_early(index, (queue, early)) {
            return Ok(Started::Done(self.core.end(index)));
        }
        Ok(Started::Pending(id))
    }

    pub(super) fn start_many(
        &mut self,
        from: Source,
        into: Span,
        left_min: u64,
        context: u64,
    ) -> Result<OpId, Fault> {
        let into = Local::bytes(into);
        self.core.size_to_write(&into)?;
        let peer = self.source(from)?;
        let core = &mut self.core;
        let index = core.ops.add(What::Receive, peer, context, into).ok_or(Fault::Busy)?;
        let op = &mut core.ops[index];
        op.traits = Traits::UNTAGGED.with(Traits::MANY);
        op.more().many.left_min = left_min.max(1);
        let id = core.ops.id(index);
        let queue = Traits::UNTAGGED.queue();
        while let Some(index) =
            self.core.ops.of_id(id).filter(|index| self.core.ops[*index].state == State::Waiting)
        {
            let early = &self.core.queues[queue].early;
            let Some(found) = early.find(from, Tag::exact(0), |_| true) else {
                self.core.ops[index].state = State::Posted;
                self.core.queues[queue].posted.add(&mut self.core.ops, index);
                break;
            };
            let bytes = early.look(found).body.bytes();
            let part = self.core.part_of(index, bytes).ok_or(Fault::Busy)?;
            if self.take_early(part, (queue, found)) {
                self.core.complete(part);
            }
        }
        Ok(id)
    }

    /// Gives a message that came before to a receive. Says whether that has ended.
    fn take_early(&mut self, index: OpIndex, (queue, early): (usize, EarlyIndex)) -> bool {
        let core = &mut self.core;
        let early = core.queues[queue].early.take(early);
        core.matched(index, early.peer, &early.envelope, early.body.bytes());
        if core.is_foreign(early.peer) {
            let types = match &early.body {
                Body::Ready(ready) => ready.types(),
                _ => early.types.clone(),
            };
            core.settle(index, types);
        }
        core.release(early.peer, early.cost);
        match early.body {
            Body::Whole(bytes) => {
                core.deliver(index, 0, &bytes);
                core.queues[queue].early.recycle(bytes);
                let wire = core.ops.wire(index);
                self.delivered(early.peer, &early.envelope);
                self.core.ops.is_live(wire)
            }
            Body::Ready(_) if core.peer(early.peer).is_err() => {
                core.ops[index].fault = Some(Fault::PeerDead);
                true
            }
            Body::Ready(ready) => self.fetch_body(index, &ready),
            Body::Free => true,
        }
    }

    /// A short message was received or dropped: its sender may wait for that.
    fn delivered(&mut self, peer: Peer, envelope: &Envelope) {
        if envelope.traits.has(Traits::DELIVERED) && self.core.peer(peer).is_ok() {
            self.answer(peer, Head::Ack { op: envelope.op, fault: 0 });
        }
    }

    /// Keeps the first message that fits for whoever has the claim.
    pub(super) fn claim_early(&mut self, from: Source, which: Match) -> Option<(Claim, Probe)> {
        let (traits, tag) = which.parts();
        let queue = &mut self.core.queues[traits.queue()];
        let found = queue.early.find(from, tag, |_| true)?;
        let probe = Probe::of(queue.early.look(found));
        let Claim(number) = queue.early.claim(found);
        Some((Claim(number | (traits.queue() as u64) << CLAIM_QUEUE_BIT), probe))
    }

    /// The queue and place of a claimed message.
    fn claimed(&self, claim: Claim) -> Result<(usize, EarlyIndex), Fault> {
        let (number, queue) = (claim.0 & !(1 << CLAIM_QUEUE_BIT), claim.0 >> CLAIM_QUEUE_BIT);
        let queue = queue as usize;
        let found = self.core.queues[queue].early.of_claim(Claim(number));
        found.map(|found| (queue, found)).ok_or(Fault::NoSuch)
    }

    pub(super) fn start_claimed(
        &mut self,
        claim: Claim,
        into: Local,
        context: u64,
    ) -> Result<Started, Fault> {
        let early = self.claimed(claim)?;
        let room = self.core.size_to_write(&into)?;
        self.receive_early(early, into, room, None, context)
    }

    /// Drops a claimed message. Its sender's operation ends well.
    pub(super) fn discard_claimed(&mut self, claim: Claim) -> Result<(), Fault> {
        let (queue, early) = self.claimed(claim)?;
        let core = &mut self.core;
        let early = core.queues[queue].early.take(early);
        core.release(early.peer, early.cost);
        match early.body {
            Body::Whole(bytes) => {
                core.queues[queue].early.recycle(bytes);
                self.delivered(early.peer, &early.envelope);
            }
            Body::Ready(ready) if core.peer(early.peer).is_ok() => {
                self.answer(early.peer, Head::Ack { op: ready.op, fault: 0 });
            }
            _ => {}
        }
        Ok(())
    }

    /// Fetches the messages whose receives were found while packets were looked at.
    pub(super) fn fetch_matched(&mut self) -> usize {
        let mut done = 0;
        while let Some((wire, ready)) = self.core.matched.pop_front() {
            let peer = self.core.ops.peer_of(wire);
            let Some(index) = self.core.ops.of_wire(wire, peer) else { continue };
            done += 1;
            if self.fetch_body(index, &ready) {
                self.core.complete(index);
            }
        }
        done
    }

    /// Gets the rest of a message whose sender waits: out of its memory, or by asking for it. Says whether the receive is to
    /// be ended.
    fn fetch_body(&mut self, index: OpIndex, ready: &Ready) -> bool {
        let core = &mut self.core;
        let header = ready.header.len() as u64;
        core.deliver(index, 0, &ready.header);
        let peer = core.ops[index].peer;
        core.ops[index].theirs = ready.op;
        let fetched = match self.reach(index, ready, header) {
            Ok(fetched) => fetched,
            Err(fault) => {
                self.core.ops[index].spoil(fault);
                Fetched::Whole
            }
        };
        let core = &mut self.core;
        match fetched {
            Fetched::Whole => {
                let wire = core.ops.wire(index);
                self.answer(peer, Head::Ack { op: ready.op, fault: 0 });
                // The peer may have been found to be dead, and everything of it ended.
                self.core.ops.is_live(wire)
            }
            Fetched::Later => {
                let op = &mut core.ops[index];
                (op.moved, op.posted) = (header, 1);
                false
            }
            Fetched::Not => {
                let op = &mut core.ops[index];
                op.moved = header;
                let (bytes, into) = (op.wanted, core.ops.wire(index));
                self.answer(peer, Head::Pull { op: ready.op, into, bytes });
                false
            }
        }
    }

    /// Reads the rest of a message right from its sender's memory, if that can be done.
    fn reach(&mut self, index: OpIndex, ready: &Ready, header: u64) -> Result<Fetched, Fault> {
        let op = &self.core.ops[index];
        let (ahead, local, peer) = (op.ahead, op.local, op.peer);
        let body = op.wanted.saturating_sub(header);
        if body == 0 {
            return Ok(Fetched::Whole);
        }
        let is_whole = op.wanted == ready.bytes || ready.form.is_none();
        let is_alike = !self.core.is_foreign(peer);
        let Some(origin) = ready.address.filter(|_| is_whole && is_alike && ahead <= header) else {
            return Ok(Fetched::Not);
        };
        if ready.form.as_ref().is_some_and(|form| form.plan.size() != body) {
            return Ok(Fetched::Not);
        }
        let far = Far { peer, origin, form: ready.form.clone(), bytes: body };
        let at = header - ahead;
        let fetched = if far.form.is_none() && local.form.is_none() {
            let fetch = Fetch { token: self.core.ops.wire(index).token(), message: ready.op };
            self.core.fetch_far(&mut self.transport, fetch, &far, &local, at)?
        } else {
            Fetched::of(self.core.read_far(&mut self.transport, &far, &local, at)?)
        };
        self.core.stats.direct += u64::from(fetched != Fetched::Not);
        Ok(fetched)
    }
}

/// The head of a message that is sent at once.
#[inline]
pub(super) fn head_of(envelope: &Envelope, types: u16, header_bytes: usize) -> Head {
    let Envelope { traits, tag, data, op } = *envelope;
    if types == PLAIN && traits.is_none() {
        return Head::Eager { tag };
    }
    let (traits, header) = (traits.bits(), header_bytes as u16);
    Head::Message { op, traits, tag, data, types, header }
}

const TAGGED: usize = 0;
/// Of a claim's number: whether its message has no tag.
const CLAIM_QUEUE_BIT: u32 = 63;
