//! What an engine keeps, apart from its transport; and what it does with the packets of messages.

mod arrivals;
mod many;

use crate::Fault;
use crate::api::{Completion, Config, Form, Local, Stats};
use crate::direct::is_done;
use crate::envelope::{Envelope, QUEUES, Traits};
use crate::forms::Forms;
use crate::matching::Queue;
use crate::numbers::{OpIndex, Wire};
use crate::ops::{Op, Ops, Ready, State, What};
use crate::packet::{Head, PLAIN, VERSION, order_of};
use crate::peers::{Job, PeerState};
use crate::table::Table;
use arrivals::Waiting;
use covey_layout::{View, ViewMut};
use covey_wire::transport::{Refused, Sink, Transfer};
use covey_wire::{Memory, Peer, Span, copy_short};
use std::collections::VecDeque;

/// Everything but the transport: a transport that is polled brings its packets here.
#[derive(Debug)]
pub(crate) struct Core<M> {
    pub memory: M,
    pub config: Config,
    pub forms: Forms,
    pub table: Table,
    pub ops: Ops,
    /// Of messages with tags, and of those without.
    pub queues: [Queue; QUEUES],
    pub peers: Vec<PeerState>,
    /// Peers that have something to be sent.
    pub queue: Vec<Peer>,
    /// Peers that were let go: their transport has to hear of it before their operations' ends are seen.
    pub let_go: Vec<Peer>,
    /// Receives that got a message whose sender waits, by their wire numbers, and the messages.
    pub matched: VecDeque<(Wire, Ready)>,
    pub completions: VecDeque<Completion>,
    pub stats: Stats,
}

impl<M: Memory> Core<M> {
    pub fn new(memory: M, mut config: Config) -> Core<M> {
        config.window_bytes = config.window_bytes.max(WINDOW_BYTES_MIN);
        Core {
            memory,
            forms: Forms::default(),
            table: Table::new(config.near_table_bytes, config.seed),
            ops: Ops::new(config.operations_max),
            queues: [Queue::new(), Queue::new()],
            peers: Vec::new(),
            queue: Vec::new(),
            let_go: Vec::new(),
            matched: VecDeque::new(),
            completions: VecDeque::new(),
            stats: Stats::default(),
            config,
        }
    }

    /// The peer, if it is alive.
    #[inline]
    pub fn peer(&mut self, peer: Peer) -> Result<&mut PeerState, Fault> {
        let state = self.peers.get_mut(peer.0 as usize).ok_or(Fault::NoPeer)?;
        if state.alive { Ok(state) } else { Err(Fault::PeerDead) }
    }

    /// Packed bytes of a local memory, which has all that its layout touches.
    #[inline(always)]
    pub fn size(&self, local: &Local) -> Result<u64, Fault> {
        self.memory.read(local.span, |_| ())?;
        local.form.map_or(Ok(local.span.bytes), |form| self.size_laid(form, local))
    }

    fn may_write(&self, form: Form) -> Result<(), Fault> {
        self.forms.find(form)?.target().ok_or(Fault::Layout).map(drop)
    }

    fn size_laid(&self, form: Form, local: &Local) -> Result<u64, Fault> {
        let plan = &self.forms.find(form)?.plan;
        let (begin, end) = plan.hull();
        let from = local.origin.checked_add_signed(begin.min(0));
        let to = local.origin.checked_add_signed(end.max(0));
        let fits = from.is_some() && to.is_some_and(|to| to <= local.span.bytes);
        if fits { Ok(plan.size()) } else { Err(Fault::OutOfRange) }
    }

    /// The same, of memory that is to be written.
    #[inline(always)]
    pub fn size_to_write(&self, local: &Local) -> Result<u64, Fault> {
        if let Some(form) = local.form {
            self.may_write(form)?;
        }
        self.size(local)
    }

    /// Copies packed bytes from `at` on out of local memory.
    #[inline]
    pub fn take(&self, local: &Local, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        let Some(form) = local.form else {
            let part = local.span.part(at, into.len() as u64).ok_or(Fault::OutOfRange)?;
            return Ok(self.memory.read(part, |from| into.copy_from_slice(from))?);
        };
        let plan = &self.forms.find(form)?.plan;
        let origin = local.origin as usize;
        let packed = self.memory.read(local.span, |from| {
            View::at(from, origin).and_then(|from| plan.pack(from, at, into))
        });
        Ok(packed??)
    }

    /// Copies packed bytes from `at` on into local memory.
    #[inline(always)]
    pub fn give(&mut self, local: &Local, at: u64, from: &[u8]) -> Result<(), Fault> {
        self.stats.bytes_copied += from.len() as u64;
        let Some(form) = local.form else {
            let part = local.span.part(at, from.len() as u64).ok_or(Fault::OutOfRange)?;
            return Ok(self.memory.write(part, |into| copy_short(into, from))?);
        };
        self.give_laid(form, local, at, from)
    }

    fn give_laid(&mut self, form: Form, local: &Local, at: u64, from: &[u8]) -> Result<(), Fault> {
        let form = self.forms.find(form)?;
        let target = form.target().ok_or(Fault::Layout)?;
        let origin = local.origin as usize;
        let unpacked = self.memory.write(local.span, |into| {
            ViewMut::at(into, origin).and_then(|into| target.unpack(from, at, into))
        });
        Ok(unpacked??)
    }

    /// Ends an operation and tells it.
    #[inline(never)]
    pub fn complete(&mut self, index: OpIndex) {
        self.complete_here(index);
    }

    /// The same, without a call.
    #[inline(always)]
    fn complete_here(&mut self, index: OpIndex) {
        let Op { traits, next: parent, .. } = self.ops[index];
        let completion = self.end(index);
        self.completions.push_back(completion);
        if traits.has(Traits::PART) {
            self.part_ended(parent);
        }
    }

    /// Ends an operation with a fault and tells it.
    pub fn fail(&mut self, index: OpIndex, fault: Fault) {
        self.ops[index].spoil(fault);
        self.complete(index);
    }

    /// Ends an operation.
    #[inline(always)]
    pub fn end(&mut self, index: OpIndex) -> Completion {
        let op = &self.ops[index];
        let is_request = !matches!(op.what, What::Send | What::Receive | What::Tell);
        if is_request && op.state == State::Moving {
            let peer = &mut self.peers[op.peer.0 as usize];
            peer.requests -= 1;
        }
        if op.more.is_some() {
            self.turn(index);
        }
        self.ops.remove(index)
    }

    /// The peer has something to be sent: it is looked at in the next poll.
    #[inline(never)]
    pub fn enqueue(&mut self, peer: Peer) {
        let state = &mut self.peers[peer.0 as usize];
        if !state.is_queued {
            state.is_queued = true;
            self.queue.push(peer);
        }
    }

    /// A message of the peer takes no room here any more.
    #[inline(always)]
    pub fn give_back(&mut self, peer: Peer, cost: u64) {
        let state = &mut self.peers[peer.0 as usize];
        state.owed += cost;
        if state.owed >= self.config.window_bytes / 4 {
            self.enqueue(peer);
        }
    }

    /// A peer that breaks the rules is let go, as if it were dead.
    #[cold]
    pub fn violation(&mut self, peer: Peer) {
        self.let_go.push(peer);
        self.dead(peer);
    }

    /// Bytes for an operation of ours: a receive, or one that reads from the peer.
    fn data(&mut self, peer: Peer, wire: Wire, at: u64, payload: &[u8]) {
        let Some(index) = self.awaited(peer, wire, at, payload.len()) else { return };
        let op = &self.ops[index];
        let (local, before) = (op.local, op.more.as_ref().and_then(|more| more.before));
        let fault = match op.what {
            What::Receive => {
                self.deliver(index, at, payload);
                None
            }
            What::Get => self.give(&local, at, payload).err(),
            _ => before.and_then(|before| self.give(&before, at, payload).err()),
        };
        if let Some(fault) = fault {
            self.ops[index].spoil(fault);
        }
        self.arrived(index, payload.len() as u64);
    }

    /// The operation that such bytes are for. One that has ended is no matter: its bytes are dropped.
    fn awaited(&mut self, peer: Peer, wire: Wire, at: u64, bytes: usize) -> Option<OpIndex> {
        let index = self.ops.of_wire(wire, peer)?;
        let op = &self.ops[index];
        let wants = match op.what {
            What::Receive | What::Get | What::Fetch(_) | What::Swap | What::AtomicFetch => true,
            What::Free | What::Send | What::Tell => false,
            What::Put | What::Accumulate(_) | What::AtomicUpdate => false,
        };
        let end = at.checked_add(bytes as u64)?;
        (wants && op.state == State::Moving && end <= op.wanted).then_some(index)
    }

    fn arrived(&mut self, index: OpIndex, bytes: u64) {
        let op = &mut self.ops[index];
        op.moved += bytes;
        if op.moved < op.wanted {
            return;
        }
        let Op { peer, theirs, traits, .. } = *op;
        self.complete(index);
        if traits.has(Traits::DELIVERED) {
            self.reply(peer, Head::Ack { op: theirs, fault: 0 }, Vec::new());
        }
    }

    fn ack(&mut self, peer: Peer, wire: Wire, fault: u8) {
        let Some(index) = self.ops.of_wire(wire, peer) else { return };
        let op = &mut self.ops[index];
        let fits = match op.what {
            What::Receive | What::Tell | What::Free => false,
            What::Send => matches!(op.state, State::Announced | State::Delivering),
            What::Put | What::Accumulate(_) | What::AtomicUpdate => op.state == State::Moving,
            What::Get | What::Fetch(_) | What::Swap | What::AtomicFetch => {
                op.state == State::Moving && fault != 0
            }
        };
        if !fits {
            return;
        }
        if fault != 0 {
            op.fault = Some(Fault::of_number(fault).unwrap_or(Fault::NoMemory));
        }
        if op.state == State::Delivering {
            self.peers[peer.0 as usize].deliveries -= 1;
            if op.posted > 0 {
                // The transport still reads it.
                (op.state, op.traits) = (State::Moving, op.traits.without(Traits::DELIVERED));
                return;
            }
        }
        self.complete_or_tell(index);
    }

    /// A message has left: its memory may be used, and its end is there or is waited for.
    pub fn message_left(&mut self, index: OpIndex) {
        let op = &mut self.ops[index];
        if op.traits.has(Traits::DELIVERED) {
            op.state = State::Delivering;
            self.peers[op.peer.0 as usize].deliveries += 1;
        } else if op.posted == 0 {
            self.complete(index);
        } else {
            // The transport still reads it.
            op.state = State::Moving;
        }
    }

    /// A request has been answered, or its transfers have ended. A put whose target is to be told of it goes on with that.
    pub fn complete_or_tell(&mut self, index: OpIndex) {
        let op = &mut self.ops[index];
        let is_told = op.what == What::Put && op.traits.has(Traits::DATA) && op.fault.is_none();
        if !is_told {
            return self.complete(index);
        }
        let state = &mut self.peers[op.peer.0 as usize];
        state.requests -= u32::from(op.state == State::Moving);
        state.backlog.push_back(index);
        (op.what, op.state) = (What::Tell, State::Waiting);
        let peer = op.peer;
        self.enqueue(peer);
    }

    fn pull(&mut self, peer: Peer, wire: Wire, into: Wire, bytes: u64) {
        let Some(index) = self.ops.of_wire(wire, peer) else { return };
        let op = &mut self.ops[index];
        let header = op.ahead;
        if op.what != What::Send || op.state != State::Announced || bytes > op.bytes {
            return self.violation(peer);
        }
        op.state = State::Moving;
        (op.moved, op.wanted) = (header, bytes.max(header));
        let generation = op.generation;
        let job = Job::Message { op: index, generation, into, at: header };
        self.peers[peer.0 as usize].jobs.push_back(job);
        self.enqueue(peer);
    }

    fn hello(&mut self, peer: Peer, version: u8, order: u8, window: u64) {
        let ours = self.config.order;
        let state = &mut self.peers[peer.0 as usize];
        let Some(order) = order_of(order) else { return self.violation(peer) };
        if version != VERSION || state.open || window < WINDOW_BYTES_MIN {
            return self.violation(peer);
        }
        (state.open, state.room, state.is_foreign) = (true, window, order != ours);
        self.enqueue(peer);
    }

    /// A packet that is none of the usual short messages.
    #[inline(never)]
    pub fn packet_other(&mut self, peer: Peer, head: &[u8], payload: &[u8]) {
        self.packet(peer, head, payload);
    }

    /// A packet that is not a short message.
    fn no_message(&mut self, peer: Peer, head: Option<Head>, payload: &[u8]) {
        match head {
            Some(Head::Data { op, at }) => self.data(peer, op, at, payload),
            Some(Head::Ready { op, traits, slot, tag, data, bytes, address }) => {
                let Some(traits) = Traits::of_bits(traits) else { return self.violation(peer) };
                let envelope = Envelope { traits, tag, data, op };
                self.ready(peer, envelope, Waiting { slot, bytes, address }, payload);
            }
            Some(Head::Ack { op, fault }) => self.ack(peer, op, fault),
            Some(head) => self.other(peer, head, payload),
            None => self.violation(peer),
        }
    }

    #[cold]
    fn other(&mut self, peer: Peer, head: Head, payload: &[u8]) {
        match head {
            Head::Hello { version, order, window } => self.hello(peer, version, order, window),
            Head::Written { data, bytes } => self.written(peer, data, bytes),
            Head::Pull { op, into, bytes } => self.pull(peer, op, into, bytes),
            Head::Credit { bytes } => {
                let state = &mut self.peers[peer.0 as usize];
                state.room = state.room.saturating_add(bytes);
                self.enqueue(peer);
            }
            Head::Define { slot, at, total } => {
                if !self.peers[peer.0 as usize].known.define(slot, at, total, payload) {
                    self.violation(peer);
                }
            }
            request => self.serve(peer, request, payload),
        }
    }
}

impl<M: Memory> Sink for Core<M> {
    fn joined(&mut self, peer: Peer) {
        while self.peers.len() <= peer.0 as usize {
            let next = Peer(self.peers.len() as u32);
            let mut state = PeerState::new();
            state.alive = next == peer;
            self.peers.push(state);
        }
        self.peers[peer.0 as usize].alive = true;
        self.enqueue(peer);
    }

    #[inline]
    fn packet(&mut self, peer: Peer, head: &[u8], payload: &[u8]) {
        if self.peer(peer).is_err() {
            return;
        }
        let (envelope, types, header) = match Head::decode(head) {
            Some(Head::Eager { tag }) => (Envelope::tagged(tag), PLAIN, 0),
            // What an MPI library sends: its rank travels in the word.
            Some(Head::Message { op, traits, tag, data, types, header }) => {
                let Some(traits) = Traits::of_bits(traits) else { return self.violation(peer) };
                (Envelope { traits, tag, data, op }, types, header)
            }
            head => return self.no_message(peer, head, payload),
        };
        if types == PLAIN {
            return self.eager(peer, envelope, payload, None);
        }
        self.message(peer, envelope, (types, header), payload);
    }

    #[inline]
    fn wants_more(&self) -> bool {
        self.matched.is_empty()
    }

    fn place(&mut self, peer: Peer, head: &[u8], bytes: usize) -> Option<Span> {
        let (op, at) = match Head::decode(head)? {
            Head::Data { op, at } => (op, at),
            head => return self.place_message(peer, &head, bytes as u64),
        };
        let index = self.awaited(peer, op, at, bytes)?;
        let op = &self.ops[index];
        let is_plain = matches!(op.what, What::Receive | What::Get) && op.local.form.is_none();
        let at = at.checked_sub(op.ahead).filter(|_| is_plain)?;
        op.local.span.part(at, bytes as u64)
    }

    fn placed(&mut self, peer: Peer, head: &[u8], bytes: usize) {
        match Head::decode(head) {
            Some(Head::Data { op, at }) => {
                if let Some(index) = self.awaited(peer, op, at, bytes) {
                    self.arrived(index, bytes as u64);
                }
            }
            _ => self.message_placed(peer, bytes as u64),
        }
    }

    fn sent(&mut self, token: u64) {
        let wire = Wire::of_token(token);
        let Some(index) = self.ops.of_wire(wire, self.ops.peer_of(wire)) else { return };
        let op = &mut self.ops[index];
        op.posted = op.posted.saturating_sub(1);
        if op.posted == 0 && op.state == State::Moving && op.moved >= op.wanted {
            self.complete(index);
        }
    }

    fn lends(&self, peer: Peer, message: u32, span: Span) -> bool {
        let Some(index) = self.ops.of_wire(Wire(message), peer) else { return false };
        let op = &self.ops[index];
        let is_there = op.what == What::Send && op.state == State::Announced;
        let at = span.address.checked_sub(op.local.span.address);
        let has_it = at.is_some_and(|at| op.local.span.part(at, span.bytes).is_some());
        is_there && op.local.form.is_none() && has_it
    }

    fn done(&mut self, token: u64, result: Result<(), Refused>) {
        let wire = Wire::of_token(token);
        let peer = self.ops.peer_of(wire);
        let Some(index) = self.ops.of_wire(wire, peer) else { return };
        let op = &mut self.ops[index];
        if op.state == State::Away {
            return self.posted_ended(index, result);
        }
        let is_fetch = op.what == What::Receive && op.posted > 0;
        if !is_fetch {
            return;
        }
        op.posted = 0;
        let (theirs, bytes) = (op.theirs, op.wanted);
        let is_alive = self.peer(peer).is_ok();
        let is_read = is_done(result.map(|()| Transfer::Done));
        if is_alive && is_read == Ok(false) {
            return self.reply(peer, Head::Pull { op: theirs, into: wire, bytes }, Vec::new());
        }
        if let Err(fault) = is_read {
            self.ops[index].spoil(fault);
        }
        self.complete(index);
        if is_alive {
            self.reply(peer, Head::Ack { op: theirs, fault: 0 }, Vec::new());
        }
    }

    fn dead(&mut self, peer: Peer) {
        let Ok(state) = self.peer(peer) else { return };
        let (held, is_foreign) = (state.held, state.is_foreign);
        *state = PeerState { alive: false, held, is_foreign, ..PeerState::new() };
        // Messages that wait stay in their order: who receives one of them learns that it is lost, and does not get
        // a later one in its place.
        let concerned: Vec<OpIndex> =
            self.ops.live().filter(|index| self.ops[*index].peer == peer).collect();
        for index in concerned {
            if self.ops[index].what == What::Free {
                // A buffer whose last message has just ended.
                continue;
            }
            if self.ops[index].traits.has(Traits::MANY) && self.ops[index].what == What::Receive {
                self.ops[index].fault = Some(Fault::PeerDead);
                self.close_many(index);
                continue;
            }
            if self.ops[index].state == State::Posted {
                let queue = self.ops[index].traits.queue();
                self.queues[queue].posted.remove(&mut self.ops, index);
            }
            self.ops[index].fault = Some(Fault::PeerDead);
            let op = &self.ops[index];
            if op.state == State::Away || op.what == What::Receive && op.posted > 0 {
                // Its memory may be written until the transport says that it has ended.
                continue;
            }
            self.ops[index].state = State::Waiting;
            self.complete(index);
        }
    }
}

/// Less would not let the longest header pass.
pub(crate) const WINDOW_BYTES_MIN: u64 = 4 << 10;
