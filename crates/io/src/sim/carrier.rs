//! A simulated transport of a message engine: processes with memory of their own, packets that take their time, peers
//! that die, and everything that a contract permits to be refused.
//!
//! All processes of a [`Carriers`] live on one thread. Each gets a [`SimTransport`] and a [`SimMemory`]; what happens in
//! which order comes from a seed.

mod arrive;
mod laned;
mod memory;

use super::Rng;
use super::card::{self, Access, Row};
use super::shares::Share;
use covey_wire::transport::{
    Glance, HEAD_BYTES_MAX, OneCopy, PUBLISHED_MAX, Published, Refused, Sink, Transfer,
};
use covey_wire::{Peer, Span, Transport};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

pub use memory::SimMemory;
use memory::with_own;
pub(super) use memory::{part, part_mut};

/// What the transport of a run can do, and how it behaves.
#[derive(Clone, Debug)]
pub struct CarrierProfile {
    /// Longest payload of a packet.
    pub packet_bytes_max: usize,
    /// Longest payload that can be posted; 0 for none.
    pub post_bytes_max: usize,
    /// Packets on the way from one process to another at most.
    pub packets_max: usize,
    /// Of a thousand packets, so many are refused though there is room.
    pub refused_permille: u64,
    /// Steps of time that a packet takes at most.
    pub delay_max: u64,
    /// Of a thousand frames, so many are lost, and as many doubled. Packets are neither.
    pub lost_permille: u64,
    /// Peers' memory is mapped.
    pub view: bool,
    /// Peers' memory can be copied.
    pub one_copy: bool,
    /// Of a thousand messages that are copied, so many are by both ends.
    pub shared_permille: u64,
    /// Peers' registrations can be seen.
    pub published: bool,
    /// Peers' memory is read and written by a card, when its turn comes, and packets need buffers that were posted: so
    /// many. `view`, `one_copy` and `published` mean nothing then.
    pub card: Option<usize>,
}

/// Processes that send to each other.
#[derive(Clone, Debug)]
pub struct Carriers {
    net: Rc<RefCell<Net>>,
    memories: Memories,
}

/// Each in a cell of its own: they are read while packets are filled.
pub(super) type Memories = Rc<Vec<RefCell<Vec<u8>>>>;

#[derive(Debug)]
pub(super) struct Net {
    pub rng: Rng,
    pub now: u64,
    pub profile: CarrierProfile,
    pub ends: Vec<End>,
    pub shares: Vec<Share>,
    /// Pieces of messages that their senders copied.
    pub helped: u64,
    pub frames_sent: u64,
}

#[derive(Debug)]
pub(super) struct End {
    pub is_dead: bool,
    /// By who sent them.
    pub inbox: Vec<VecDeque<Packet>>,
    /// Frames of a wire that loses some.
    pub frames: Vec<Packet>,
    /// By whom it was told of, and whether of its death.
    pub knows: Vec<Knows>,
    sent: Vec<u64>,
    pub published: Vec<Row>,
    /// What its card has to do.
    pub accesses: Vec<Access>,
    /// When buffers that packets took can be used again.
    buffers: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knows {
    Nothing,
    Alive,
    Dead,
}

#[derive(Debug)]
pub(super) struct Packet {
    pub due: u64,
    pub head: Vec<u8>,
    pub payload: Payload,
}

#[derive(Debug)]
pub(super) enum Payload {
    Copied(Vec<u8>),
    Posted { span: Span, token: u64 },
}

impl CarrierProfile {
    fn is_mapped(&self) -> bool {
        self.view && self.card.is_none()
    }
}

impl Net {
    /// Whether a process has a buffer for a packet.
    fn has_buffer(&mut self, me: usize) -> bool {
        let (now, count) = (self.now, self.profile.card.unwrap_or(usize::MAX));
        let taken = &mut self.ends[me].buffers;
        taken.retain(|due| *due > now);
        taken.len() < count
    }

    /// A packet takes one, which is posted again after a while.
    fn take_buffer(&mut self, me: usize) {
        if self.profile.card.is_some() {
            let due = self.now + 1 + self.rng.below(BUFFER_STEPS);
            self.ends[me].buffers.push(due);
        }
    }
}

impl Carriers {
    /// Some processes, each with this much memory.
    pub fn new(seed: u64, ends: usize, memory_bytes: usize, profile: CarrierProfile) -> Carriers {
        let end = || End {
            is_dead: false,
            inbox: (0..ends).map(|_| VecDeque::new()).collect(),
            frames: Vec::new(),
            knows: vec![Knows::Nothing; ends],
            sent: Vec::new(),
            published: vec![Row::default(); PUBLISHED_MAX as usize],
            accesses: Vec::new(),
            buffers: Vec::new(),
        };
        let (rng, all) = (Rng::new(seed), (0..ends).map(|_| end()).collect());
        let net =
            Net { rng, now: 0, profile, ends: all, shares: Vec::new(), helped: 0, frames_sent: 0 };
        let memories = (0..ends).map(|_| RefCell::new(vec![0; memory_bytes])).collect();
        Carriers { net: Rc::new(RefCell::new(net)), memories: Rc::new(memories) }
    }

    /// What a process is given. Its peers are all others; [`Carriers::peer`] says which is which.
    pub fn end(&self, index: usize) -> (SimTransport, SimMemory) {
        let transport = SimTransport {
            net: self.net.clone(),
            memories: self.memories.clone(),
            me: index,
            gathers: false,
            entered: None,
            resting: BTreeSet::new(),
        };
        let is_mapped = self.net.borrow().profile.is_mapped();
        let memory = SimMemory { memories: self.memories.clone(), me: index, is_mapped };
        (transport, memory)
    }

    /// What process `me` calls process `other`.
    pub fn peer(me: usize, other: usize) -> Peer {
        Peer(if other < me { other } else { other - 1 } as u32)
    }

    /// Which process `me` means by a peer.
    pub fn index(me: usize, peer: Peer) -> usize {
        let peer = peer.0 as usize;
        if peer < me { peer } else { peer + 1 }
    }

    /// The address of a process's first byte.
    pub fn address(index: usize) -> u64 {
        (index as u64 + 1) << 40
    }

    /// Lets time pass.
    pub fn step(&self) {
        self.net.borrow_mut().now += 1;
    }

    /// A process dies. Of what it sent last, some arrives.
    pub fn kill(&self, index: usize) {
        let net = &mut *self.net.borrow_mut();
        net.ends[index].is_dead = true;
        for end in &mut net.ends {
            let inbox = &mut end.inbox[index];
            // What was posted lies in memory that is gone.
            let posted =
                inbox.iter().position(|packet| matches!(packet.payload, Payload::Posted { .. }));
            inbox.truncate(net.rng.index(posted.unwrap_or(inbox.len()) + 1));
            inbox.retain(|packet| packet.due != KEPT);
        }
    }

    /// How many pieces of messages were copied by their senders.
    pub fn helped(&self) -> u64 {
        self.net.borrow().helped
    }

    /// How many messages are being copied by both ends.
    pub fn shared(&self) -> usize {
        self.net.borrow().shares.len()
    }

    /// Looks at memory of a process.
    pub fn look<R>(&self, index: usize, with: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        with(&mut self.memories[index].borrow_mut())
    }
}

/// The transport of one process.
#[derive(Debug)]
pub struct SimTransport {
    net: Rc<RefCell<Net>>,
    memories: Memories,
    me: usize,
    gathers: bool,
    /// The registration that is accessed.
    entered: Option<(usize, u32, u64)>,
    /// Peers from which little comes.
    resting: BTreeSet<Peer>,
}

/// When a packet is due that its sender keeps back.
const KEPT: u64 = u64::MAX;

impl SimTransport {
    /// What was kept back leaves.
    fn let_go(&mut self) {
        let net = &mut *self.net.borrow_mut();
        for end in &mut net.ends {
            let mut last = 0;
            for packet in &mut end.inbox[self.me] {
                if packet.due == KEPT {
                    let due = net.now + net.rng.below(net.profile.delay_max + 1);
                    packet.due = due.max(last);
                }
                last = packet.due;
            }
        }
    }

    /// Gives an access to the card.
    fn access(
        &mut self,
        token: u64,
        peer: Peer,
        ours: Span,
        theirs: &[Span],
        is_write: bool,
    ) -> Result<Transfer, Refused> {
        let other = Carriers::index(self.me, peer);
        if self.is_unknown(peer) {
            return Err(Refused::Dead);
        }
        let entered = self.entered.filter(|entered| entered.0 == other);
        let (_, slot, key) = entered.ok_or(Refused::Key)?;
        let net = &mut *self.net.borrow_mut();
        let is_unlucky = net.rng.chance(net.profile.refused_permille / 4);
        let accesses = &mut net.ends[self.me].accesses;
        if is_unlucky || accesses.len() >= ACCESSES_MAX {
            return Err(Refused::Full);
        }
        let theirs = theirs.to_vec();
        accesses.push(Access { token, other, slot, key, is_write, ours, theirs, ended: None });
        Ok(Transfer::Started)
    }

    /// A packet, if there is room for it and luck.
    fn push(&mut self, peer: Peer, packet: impl FnOnce(&mut Net) -> Packet) -> Result<(), Refused> {
        let net = &mut *self.net.borrow_mut();
        let other = Carriers::index(self.me, peer);
        let is_there = net.ends.len() > other;
        if !is_there || net.ends[self.me].knows[other] == Knows::Dead {
            return Err(Refused::Dead);
        }
        let is_unlucky = net.rng.chance(net.profile.refused_permille);
        if is_unlucky || net.ends[other].inbox[self.me].len() >= net.profile.packets_max {
            return Err(Refused::Full);
        }
        let packet = packet(net);
        let last = net.ends[other].inbox[self.me].back().map_or(0, |last| last.due);
        // In order: none before the one that was sent before.
        let due = last.max(net.now + net.rng.below(net.profile.delay_max + 1));
        let due = if self.gathers { KEPT } else { due };
        let packet = Packet { due, ..packet };
        if !net.ends[other].is_dead {
            net.ends[other].inbox[self.me].push_back(packet);
        }
        Ok(())
    }

    /// What happens next at this process.
    fn next(&mut self) -> Option<Next> {
        let net = &mut *self.net.borrow_mut();
        if let Some(token) = net.ends[self.me].sent.pop() {
            return Some(Next::Sent(token));
        }
        if let Some((token, result)) = card::go_on(net, &self.memories, self.me) {
            return Some(Next::Done(token, result));
        }
        let has_buffer = net.has_buffer(self.me);
        if net.rng.chance(300)
            && let Some((token, result)) = net.fetched(self.me)
        {
            return Some(Next::Done(token, result));
        }
        let mut others: Vec<usize> = (0..net.ends.len()).filter(|end| *end != self.me).collect();
        net.rng.shuffle(&mut others);
        for other in others {
            let is_dead = net.ends[other].is_dead;
            let now = net.now;
            let luck = net.rng.chance(100) && !net.fetches(self.me, other);
            let end = &mut net.ends[self.me];
            if end.knows[other] == Knows::Nothing {
                end.knows[other] = Knows::Alive;
                return Some(Next::Joined(other));
            }
            if end.knows[other] == Knows::Dead {
                continue;
            }
            if has_buffer && end.inbox[other].front().is_some_and(|packet| packet.due <= now) {
                net.take_buffer(self.me);
                let end = &mut net.ends[self.me];
                return end.inbox[other].pop_front().map(|packet| Next::Packet(other, packet));
            }
            // What was given to the card ends before.
            let has_access = end.accesses.iter().any(|access| access.other == other);
            if is_dead && luck && !has_access && end.inbox[other].is_empty() {
                end.knows[other] = Knows::Dead;
                return Some(Next::Dead(other));
            }
        }
        None
    }

    fn copy_from(
        &self,
        other: usize,
        is_gone: bool,
        from: &[Span],
        into: Span,
    ) -> Result<Transfer, Refused> {
        if is_gone {
            return Err(Refused::Dead);
        }
        let memory = self.memories[other].borrow();
        let pieces: Option<Vec<&[u8]>> =
            from.iter().map(|span| part(&memory, other, *span)).collect();
        let bytes = pieces.ok_or(Refused::Fault)?.concat();
        let ours = &self.memories[self.me];
        with_own(ours, self.me, into, |place| place.copy_from_slice(&bytes))
    }

    /// Perhaps copies a piece of a message that both ends copy.
    fn share(&mut self, sink: &mut impl Sink) {
        let Some((from, into)) = self.net.borrow_mut().share(self.me, sink) else { return };
        let owner = |span: Span| (span.address >> 40) as usize - 1;
        let bytes = part(&self.memories[owner(from)].borrow(), owner(from), from)
            .map(<[u8]>::to_vec)
            .expect("it was memory when it was fetched");
        let place = &mut self.memories[owner(into)].borrow_mut();
        part_mut(place, owner(into), into).expect("it is memory").copy_from_slice(&bytes);
    }

    fn is_unknown(&self, peer: Peer) -> bool {
        let net = self.net.borrow();
        let other = Carriers::index(self.me, peer);
        other >= net.ends.len() || net.ends[self.me].knows[other] == Knows::Dead
    }
}

enum Next {
    Joined(usize),
    Packet(usize, Packet),
    Sent(u64),
    Done(u64, Result<(), Refused>),
    Dead(usize),
}

impl Transport for SimTransport {
    fn packet_bytes_max(&self, _peer: Peer) -> usize {
        self.net.borrow().profile.packet_bytes_max
    }

    fn send(
        &mut self,
        peer: Peer,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        assert!(head.len() <= HEAD_BYTES_MAX && bytes <= self.packet_bytes_max(peer));
        self.push(peer, |net| {
            // What is not filled is found.
            let mut payload = vec![net.rng.next() as u8; bytes];
            fill(&mut payload);
            Packet { due: 0, head: head.to_vec(), payload: Payload::Copied(payload) }
        })
    }

    fn post_bytes_max(&self, _peer: Peer) -> usize {
        self.net.borrow().profile.post_bytes_max
    }

    fn post(
        &mut self,
        token: u64,
        peer: Peer,
        head: &[u8],
        payload: Span,
    ) -> Result<Transfer, Refused> {
        let payload = Payload::Posted { span: payload, token };
        let head = head.to_vec();
        self.push(peer, |_| Packet { due: 0, head, payload }).map(|()| Transfer::Started)
    }

    fn gather(&mut self, may_gather: bool) {
        self.gathers = may_gather;
        if !may_gather {
            self.let_go();
        }
    }

    fn poll(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        if budget > 0 && self.gathers {
            self.let_go();
        }
        if budget > 0 {
            self.share(sink);
        }
        for happened in 0..budget {
            match self.next() {
                None => return happened,
                Some(Next::Joined(other)) => sink.joined(Carriers::peer(self.me, other)),
                Some(Next::Packet(other, packet)) => self.deliver(other, packet, sink),
                Some(Next::Sent(token)) => sink.sent(token),
                Some(Next::Done(token, result)) => sink.done(token, result),
                Some(Next::Dead(other)) => sink.dead(Carriers::peer(self.me, other)),
            }
        }
        budget
    }

    fn glance(&mut self, with: impl FnMut(Peer, &[u8], &[u8])) -> Glance {
        self.glance_at(with)
    }

    fn is_reachable(&self, _peer: Peer) -> bool {
        // A card takes keys, and messages have none.
        let profile = &self.net.borrow().profile;
        profile.card.is_none() && (profile.view || profile.one_copy)
    }

    fn view(&mut self, peer: Peer, theirs: Span) -> Option<Span> {
        let other = Carriers::index(self.me, peer);
        let is_mapped = self.net.borrow().profile.is_mapped() && !self.is_unknown(peer);
        let memory = self.memories[other].borrow();
        (is_mapped && part(&memory, other, theirs).is_some()).then_some(theirs)
    }

    fn one_copy(&self, _peer: Peer) -> OneCopy {
        let profile = &self.net.borrow().profile;
        match profile.card {
            Some(_) => OneCopy::Posted,
            None if profile.one_copy => OneCopy::AtOnce,
            None => OneCopy::None,
        }
    }

    fn read(
        &mut self,
        token: u64,
        peer: Peer,
        from: &[Span],
        into: Span,
    ) -> Result<Transfer, Refused> {
        if self.one_copy(peer) == OneCopy::Posted {
            return self.access(token, peer, into, from, false);
        }
        let other = Carriers::index(self.me, peer);
        let is_gone = self.is_unknown(peer) || self.net.borrow().ends[other].is_dead;
        self.copy_from(other, is_gone, from, into)
    }

    fn fetch(
        &mut self,
        token: u64,
        peer: Peer,
        message: u32,
        from: Span,
        into: Span,
    ) -> Result<Transfer, Refused> {
        let other = Carriers::index(self.me, peer);
        let has_it = part(&self.memories[other].borrow(), other, from).is_some();
        let is_gone = self.is_unknown(peer) || self.net.borrow().ends[other].is_dead;
        let net = &mut *self.net.borrow_mut();
        if is_gone || !has_it || !net.rng.chance(net.profile.shared_permille) {
            return self.copy_from(other, is_gone, &[from], into);
        }
        let pieces = Share::pieces(&mut net.rng, from.bytes);
        let (owner, helper) = (self.me, other);
        net.shares.push(Share { token, owner, helper, message, from, into, pieces });
        Ok(Transfer::Started)
    }

    fn write(
        &mut self,
        token: u64,
        peer: Peer,
        from: Span,
        to: &[Span],
    ) -> Result<Transfer, Refused> {
        if self.one_copy(peer) == OneCopy::Posted {
            return self.access(token, peer, from, to, true);
        }
        let other = Carriers::index(self.me, peer);
        if self.is_unknown(peer) || self.net.borrow().ends[other].is_dead {
            return Err(Refused::Dead);
        }
        let mut bytes = Vec::new();
        with_own(&self.memories[self.me], self.me, from, |ours| bytes.extend_from_slice(ours))?;
        let (mut memory, mut rest) = (self.memories[other].borrow_mut(), &bytes[..]);
        for span in to {
            let place = part_mut(&mut memory, other, *span).ok_or(Refused::Fault)?;
            let (here, after) = rest.split_at(place.len());
            place.copy_from_slice(here);
            rest = after;
        }
        Ok(Transfer::Done)
    }

    fn publish(&mut self, slot: u32, what: Option<Published>) {
        let net = &mut *self.net.borrow_mut();
        let row = &mut net.ends[self.me].published[slot as usize];
        row.set(what.unwrap_or_default(), net.now);
    }

    fn enter(&mut self, peer: Peer, slot: u32, key: u64) -> Result<Published, Refused> {
        let other = Carriers::index(self.me, peer);
        if self.is_unknown(peer) {
            return Err(Refused::Unsupported);
        }
        let net = &mut *self.net.borrow_mut();
        let has_card = net.profile.card.is_some();
        let row = net.ends[other].published[slot as usize];
        let found = if has_card {
            row.seen(net.now, &mut net.rng)
        } else if !net.profile.published || net.ends[other].is_dead {
            return Err(Refused::Unsupported);
        } else {
            row.now
        };
        if found.key != key {
            return Err(Refused::Key);
        }
        self.entered = Some((other, slot, key));
        Ok(found)
    }

    fn leave(&mut self, _peer: Peer) {
        self.entered = None;
    }
}

/// What a card has to do at a time, at most.
const ACCESSES_MAX: usize = 64;
/// Until a buffer of a packet is posted again, at most.
const BUFFER_STEPS: u64 = 20;
