//! What waits for a peer is sent: answers first, then operations in the order in which they were begun, and between
//! them long transfers, a packet at a time.

use super::Engine;
use super::messages::head_of;
use crate::Fault;
use crate::api::Access;
use crate::envelope::{Envelope, Traits};
use crate::forms::Committed;
use crate::numbers::{OpIndex, Wire};
use crate::ops::{Op, State, What};
use crate::packet::{self, Head, PLAIN, VERSION};
use crate::peers::{Answer, DELIVERIES_MAX, ENVELOPE_BYTES, FETCH_BYTES_MAX, Job, REQUESTS_MAX};
use crate::serve::number_of;
use covey_wire::transport::{Refused, Transfer};
use covey_wire::{Memory, Peer, Transport};
use std::rc::Rc;

/// What became of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It went on, and has more.
    More,
    /// Nothing is left of it.
    Finished,
    /// The transport has no room.
    Full,
    /// It waits for the peer.
    Waits,
}

use Step::{Finished, Full, More, Waits};

impl<T: Transport, M: Memory> Engine<T, M> {
    /// Tries all peers for which something waits. Says how much was done.
    #[cold]
    pub(super) fn pump_all(&mut self) -> usize {
        let count = self.core.queue.len();
        let mut done = 0;
        self.transport.gather(true);
        for at in 0..count {
            let peer = self.core.queue[at];
            self.core.peers[peer.0 as usize].is_queued = false;
            done += self.pump_now(peer);
        }
        self.core.queue.drain(..count);
        self.transport.gather(self.gathers);
        done
    }

    /// Sends what can be sent to one peer, which is tried again in the next poll if that is not all. Says how much was
    /// done.
    pub(super) fn pump_now(&mut self, peer: Peer) -> usize {
        let done = self.pump(peer);
        if self.core.peers[peer.0 as usize].has_work(self.core.config.window_bytes / 4) {
            self.core.enqueue(peer);
        }
        done
    }

    /// Sends what can be sent to one peer. Says how much was done.
    fn pump(&mut self, peer: Peer) -> usize {
        let mut done = 0;
        if self.core.peer(peer).is_err() {
            return 0;
        }
        self.core.peers[peer.0 as usize].is_full = false;
        loop {
            let before = done;
            for what in [Self::first, Self::replies, Self::backlog, Self::job] {
                match what(self, peer) {
                    More | Finished => done += 1,
                    Waits => {}
                    Full => {
                        self.core.peers[peer.0 as usize].is_full = true;
                        return done;
                    }
                }
                if self.core.peer(peer).is_err() {
                    return done;
                }
            }
            if done == before {
                return done;
            }
        }
    }

    /// The first packet, and room that is given back.
    fn first(&mut self, peer: Peer) -> Step {
        let window = self.core.config.window_bytes;
        let state = &self.core.peers[peer.0 as usize];
        if !state.said_hello {
            let order = packet::number_of(self.core.config.order);
            let head = Head::Hello { version: VERSION, order, window };
            return self.plain(peer, head, &[], |state| state.said_hello = true);
        }
        if state.owed >= window / 4 {
            let head = Head::Credit { bytes: state.owed };
            return self.plain(peer, head, &[], |state| state.owed = 0);
        }
        Waits
    }

    /// Answers a peer with a head alone, at once where nothing waits before.
    pub(super) fn answer(&mut self, peer: Peer, head: Head) {
        let state = &self.core.peers[peer.0 as usize];
        let is_next = state.replies.is_empty() && state.said_hello;
        if !is_next || self.plain(peer, head, &[], |_| ()) == Full {
            self.core.peers[peer.0 as usize].reply(head, Vec::new());
            self.pump_now(peer);
        }
    }

    /// Sends a packet of known bytes.
    pub(super) fn plain(
        &mut self,
        peer: Peer,
        head: Head,
        bytes: &[u8],
        then: impl FnOnce(&mut crate::peers::PeerState),
    ) -> Step {
        let fill = |room: &mut [u8]| room.copy_from_slice(bytes);
        let sent = self.transport.send(peer, &head.encode(), bytes.len(), fill);
        let step = self.sent(peer, sent);
        if step == Finished {
            then(&mut self.core.peers[peer.0 as usize]);
        }
        step
    }

    fn sent(&mut self, peer: Peer, sent: Result<(), Refused>) -> Step {
        match sent {
            Ok(()) => Finished,
            Err(Refused::Full) => Full,
            Err(_) => {
                self.core.violation(peer);
                Waits
            }
        }
    }

    fn replies(&mut self, peer: Peer) -> Step {
        let Some(reply) = self.core.peers[peer.0 as usize].replies.pop_front() else {
            return Waits;
        };
        let bytes = reply.bytes.len();
        let step = self.plain(peer, reply.head, &reply.bytes, |state| state.reply_bytes -= bytes);
        if step == Full {
            self.core.peers[peer.0 as usize].replies.push_front(reply);
        }
        step
    }

    /// The first operation of those that wait.
    fn backlog(&mut self, peer: Peer) -> Step {
        let state = &self.core.peers[peer.0 as usize];
        let (true, Some(&index)) = (state.open, state.backlog.front()) else { return Waits };
        let begun = match self.core.ops[index].what {
            What::Send => self.begin_send(peer, index),
            What::Tell => Ok(self.begin_tell(peer, index)),
            _ => self.begin_request(peer, index),
        };
        match begun {
            Ok(Finished) => {
                self.core.peers[peer.0 as usize].backlog.pop_front();
                Finished
            }
            Ok(step) => step,
            Err(fault) => {
                // A dead peer has no backlog any more, and its operations are ended.
                if self.core.peers[peer.0 as usize].backlog.pop_front() == Some(index) {
                    self.core.fail(index, fault);
                }
                Finished
            }
        }
    }

    fn begin_send(&mut self, peer: Peer, index: OpIndex) -> Result<Step, Fault> {
        let op = &mut self.core.ops[index];
        let header = op.more.as_mut().map_or(Vec::new(), |more| std::mem::take(&mut more.header));
        let result = self.announce(peer, index, &header);
        let is_there = self.core.ops[index].what == What::Send;
        match result {
            Ok(Finished) if self.core.ops[index].state == State::Waiting => {
                self.core.message_left(index);
            }
            Ok(Full | Waits) if is_there && !header.is_empty() => {
                self.core.ops[index].more().header = header;
            }
            _ => {}
        }
        result
    }

    /// The same for one that nothing waits before. False when it has to wait.
    #[inline]
    pub(super) fn announce_now(&mut self, peer: Peer, index: OpIndex, header: &[u8]) -> bool {
        match self.announce(peer, index, header) {
            Ok(Finished) => {
                if self.core.ops[index].state == State::Waiting {
                    self.core.message_left(index);
                }
                true
            }
            // A peer that was found to be dead took everything of it with it.
            Ok(_) => self.core.peer(peer).is_err(),
            Err(fault) => {
                if self.core.peer(peer).is_ok() {
                    self.core.fail(index, fault);
                }
                true
            }
        }
    }

    /// Sends a message, or says that it is there.
    fn announce(&mut self, peer: Peer, index: OpIndex, header: &[u8]) -> Result<Step, Fault> {
        let envelope = self.core.ops.envelope(index);
        let Op { local, bytes, .. } = self.core.ops[index];
        let is_delivered = envelope.traits.has(Traits::DELIVERED);
        if is_delivered && self.core.peers[peer.0 as usize].deliveries >= DELIVERIES_MAX {
            return Ok(Waits);
        }
        let types = match self.types_of(peer, &local)? {
            Ok(types) => types,
            Err(step) => return Ok(step),
        };
        let room = self.core.peers[peer.0 as usize].room;
        let has_room = room >= bytes + ENVELOPE_BYTES;
        if types == PLAIN && has_room && self.is_to_be_posted(peer, &local, header, bytes) {
            return Ok(self.post_message(peer, index, &envelope));
        }
        if self.send_now(peer, &envelope, header, &local, bytes, types)? {
            return Ok(Finished);
        }
        let cost = header.len() as u64 + ENVELOPE_BYTES;
        if room < cost {
            return Ok(Waits);
        }
        let short = self.core.config.eager_bytes_max.min(self.transport.packet_bytes_max(peer));
        if bytes <= short as u64 && has_room {
            return Ok(Full);
        }
        let form = local.form.and_then(|form| self.core.forms.find(form).ok()).cloned();
        let (mut slot, mut address) = (PLAIN, local.span.address.wrapping_add(local.origin));
        if self.core.is_foreign(peer) {
            (slot, address) = (types, u64::MAX);
        } else if !self.transport.is_reachable(peer) {
            address = u64::MAX;
        } else if let Some(form) = form {
            match self.tell(peer, &form) {
                Err(step) => return Ok(step),
                Ok(Some(told)) => slot = told,
                Ok(None) => address = u64::MAX,
            }
        }
        let Envelope { op, traits, tag, data } = envelope;
        let traits = traits.bits();
        let head = Head::Ready { op, traits, slot, tag, data, bytes, address };
        let step = self.plain(peer, head, header, |state| state.room -= cost);
        if step == Finished {
            self.core.stats.rendezvous += 1;
            self.core.ops[index].state = State::Announced;
        }
        Ok(step)
    }

    /// Sends all of a message from where it lies, for which the peer has room.
    fn post_message(&mut self, peer: Peer, index: OpIndex, envelope: &Envelope) -> Step {
        let Op { local, bytes, .. } = self.core.ops[index];
        let (head, token) =
            (head_of(envelope, PLAIN, 0).encode(), self.core.ops.wire(index).token());
        match self.transport.post(token, peer, &head, local.span) {
            Ok(transfer) => {
                let op = &mut self.core.ops[index];
                op.posted = u32::from(transfer == Transfer::Started);
                (op.moved, op.wanted) = (bytes, bytes);
                self.core.peers[peer.0 as usize].room -= bytes + ENVELOPE_BYTES;
                self.core.stats.eager += 1;
                Finished
            }
            Err(refused) => self.sent(peer, Err(refused)),
        }
    }

    /// Tells a peer of a put that has taken place.
    fn begin_tell(&mut self, peer: Peer, index: OpIndex) -> Step {
        let Op { data, bytes, .. } = self.core.ops[index];
        let step = self.tell_written(peer, data, bytes);
        if step == Finished {
            self.core.complete(index);
        }
        step
    }

    /// The same without an operation. The word takes room in the window until the peer's user has taken it.
    pub(super) fn tell_written(&mut self, peer: Peer, data: u64, bytes: u64) -> Step {
        if self.core.peers[peer.0 as usize].room < ENVELOPE_BYTES {
            return Waits;
        }
        let head = Head::Written { data, bytes };
        self.plain(peer, head, &[], |state| state.room -= ENVELOPE_BYTES)
    }

    fn begin_request(&mut self, peer: Peer, index: OpIndex) -> Result<Step, Fault> {
        if self.core.peers[peer.0 as usize].requests >= REQUESTS_MAX {
            return Ok(Waits);
        }
        let op = &self.core.ops[index];
        let remote = op.more.as_ref().and_then(|more| more.remote).ok_or(Fault::NoSuch)?;
        let (what, bytes) = (op.what, op.bytes);
        let form = remote.form.map(|form| self.core.forms.find(form).cloned()).transpose()?;
        let mut types = None;
        let is_atomic = matches!(what, What::AtomicUpdate | What::AtomicFetch);
        if self.core.is_foreign(peer) && !is_atomic {
            types = self.core.settle_request(index, form.as_ref())?;
        }
        if what == What::Get {
            types = None;
        }
        let (slot, told) = match self.slots_of(peer, form.as_ref(), types.as_ref())? {
            Ok(slots) => slots,
            Err(step) => return Ok(step),
        };
        let (wire, key, at) = (self.core.ops.wire(index), remote.key.0, remote.at);
        let step = match what {
            What::Get => {
                let head = Head::Get { op: wire, slot, key, at, total: bytes };
                self.plain(peer, head, &[], |_| ())
            }
            What::Swap => {
                let head = Head::Swap { op: wire, slot, types: told, key, at };
                self.swap(peer, index, head)?
            }
            What::AtomicUpdate | What::AtomicFetch => self.begin_atomic(peer, index)?,
            _ => {
                let generation = self.core.ops[index].generation;
                let job = Job::Update { op: index, generation, form, types, at: 0 };
                self.core.peers[peer.0 as usize].jobs.push_back(job);
                Finished
            }
        };
        if step == Finished {
            self.core.ops[index].state = State::Moving;
            self.core.peers[peer.0 as usize].requests += 1;
        }
        Ok(step)
    }

    fn swap(&mut self, peer: Peer, index: OpIndex, head: Head) -> Result<Step, Fault> {
        let op = &self.core.ops[index];
        let new = op.more.as_ref().and_then(|more| more.new).ok_or(Fault::NoSuch)?;
        let (local, bytes) = (op.local, op.bytes as usize);
        let mut both = vec![0; 2 * bytes];
        let (expected, replacement) = both.split_at_mut(bytes);
        self.core.take(&local, 0, expected)?;
        self.core.take(&new, 0, replacement)?;
        Ok(self.plain(peer, head, &both, |_| ()))
    }

    /// A packet of the first transfer; then it is the next one's turn.
    fn job(&mut self, peer: Peer) -> Step {
        let Some(mut job) = self.core.peers[peer.0 as usize].jobs.pop_front() else { return Waits };
        let step = match &mut job {
            Job::Message { op, generation, into, at } => {
                if !self.is_live(*op, *generation) {
                    return Finished;
                }
                self.message_part(peer, *op, *into, at)
            }
            Job::Update { op, generation, form, types, at } => {
                if !self.is_live(*op, *generation) {
                    return Finished;
                }
                self.update_part(peer, *op, form.as_ref(), types.as_ref(), at)
            }
            Job::Answer(answer) => self.answer_part(peer, answer),
        };
        // A dead peer has no jobs.
        let Ok(state) = self.core.peer(peer) else { return Waits };
        match step {
            Finished => {}
            Full => state.jobs.push_front(job),
            More | Waits => state.jobs.push_back(job),
        }
        step
    }

    fn is_live(&self, index: OpIndex, generation: u16) -> bool {
        let op = &self.core.ops[index];
        op.what != What::Free && op.generation == generation
    }

    fn message_part(&mut self, peer: Peer, index: OpIndex, into: Wire, at: &mut u64) -> Step {
        let op = &self.core.ops[index];
        let (local, ahead, end) = (op.local, op.ahead, op.wanted);
        let left = end.saturating_sub(*at);
        let head = Head::Data { op: into, at: *at }.encode();
        let most = self.transport.packet_bytes_max(peer) as u64;
        let posted = (self.transport.post_bytes_max(peer) as u64).min(left);
        let (sent, bytes) = if local.form.is_none() && posted > most {
            let Some(part) = local.span.part(*at - ahead, posted) else { return Waits };
            let token = self.core.ops.wire(index).token();
            (self.transport.post(token, peer, &head, part), posted)
        } else {
            let bytes = left.min(most);
            let (core, mut fault) = (&mut self.core, None);
            core.stats.bytes_copied += bytes;
            let sent = self.transport.send(peer, &head, bytes as usize, |room| {
                fault = core.take(&local, *at - ahead, room).err();
            });
            if let Some(fault) = fault {
                core.ops[index].spoil(fault);
            }
            (sent.map(|()| Transfer::Done), bytes)
        };
        match sent {
            Ok(transfer) => {
                *at += bytes;
                let op = &mut self.core.ops[index];
                op.posted += u32::from(transfer == Transfer::Started);
                op.moved = *at;
                if *at < end {
                    return More;
                }
                self.core.message_left(index);
                Finished
            }
            Err(refused) => self.sent(peer, Err(refused)),
        }
    }

    fn update_part(
        &mut self,
        peer: Peer,
        index: OpIndex,
        form: Option<&Rc<Committed>>,
        types: Option<&Rc<Committed>>,
        at: &mut u64,
    ) -> Step {
        // Others may have taken their slots since the last packet.
        let (slot, told) = match self.slots_of(peer, form, types) {
            Ok(Ok(slots)) => slots,
            Ok(Err(step)) => return step,
            Err(fault) => {
                self.core.fail(index, fault);
                return Finished;
            }
        };
        let op = &self.core.ops[index];
        let (what, local, total, moved) = (op.what, op.local, op.bytes, op.moved);
        let Some((key, place)) = op.remote() else { return Finished };
        let mut most = self.transport.packet_bytes_max(peer) as u64;
        if matches!(what, What::Fetch(_)) {
            most = most.min((moved + FETCH_BYTES_MAX).saturating_sub(*at));
        }
        let mut end = total.min(*at + most);
        let elements = if what == What::Put { types } else { types.or(form) };
        if let Some(signature) = elements.and_then(|form| form.signature()) {
            end = signature.boundary(end);
        }
        if end <= *at {
            return Waits;
        }
        let (op, key, last) = (self.core.ops.wire(index), key.0, u8::from(end == total));
        let (packed, at_there) = (*at, place);
        let head = match what {
            What::Accumulate(with) => {
                let what = number_of(with);
                let (at, types) = (at_there, told);
                Head::Accumulate { op, last, what, slot, types, key, at, packed, total }
            }
            What::Fetch(with) => {
                let (what, at, types) = (number_of(with), at_there, told);
                Head::Fetch { op, what, slot, types, key, at, packed, total }
            }
            _ => Head::Put { op, last, slot, types: told, key, at: at_there, packed, total },
        };
        let (core, mut fault) = (&mut self.core, None);
        let bytes = (end - packed) as usize;
        core.stats.bytes_copied += bytes as u64;
        let sent = self.transport.send(peer, &head.encode(), bytes, |room| {
            fault = core.take(&local, packed, room).err();
        });
        if let Some(fault) = fault {
            core.ops[index].spoil(fault);
        }
        match self.sent(peer, sent) {
            Finished => {
                *at = end;
                if end == total { Finished } else { More }
            }
            step => step,
        }
    }

    fn answer_part(&mut self, peer: Peer, answer: &mut Answer) -> Step {
        let left = answer.total - answer.at;
        let bytes = left.min(self.transport.packet_bytes_max(peer) as u64);
        let core = &mut self.core;
        let mut fault = core.may_answer(answer).err();
        let mut sent = Ok(());
        if fault.is_none() {
            let head = Head::Data { op: answer.op, at: answer.at }.encode();
            sent = self.transport.send(peer, &head, bytes as usize, |room| {
                fault = core.answer_part(answer, room).err();
            });
        }
        if let Some(fault) = fault {
            core.reply(peer, Head::Ack { op: answer.op, fault: fault.number() }, Vec::new());
            return Finished;
        }
        match self.sent(peer, sent) {
            Finished => {
                answer.at += bytes;
                if answer.at < answer.total {
                    return More;
                }
                self.core.accessed(peer, answer.key, Access::Read, answer.total);
                Finished
            }
            step => step,
        }
    }
}
