//! One transport for near and far: shared memory for peers of this machine and user, TCP for all others.
//!
//! Endpoints find each other by an [`Address`], which the program hands on as it likes. Nothing waits: who is called
//! has a number at once, takes packets when it has been met, and is found to be dead when it cannot be. Whoever comes, and
//! whoever is called, proves that it knows the job's [`Secret`]; nobody else becomes a peer, and a bounded number
//! of strangers is heard at a time. Two processes of one machine and user may also meet at a [`Place`] that both know.
//!
//! ```text
//!   call(address) ──► Meeting ──► Near: its socket, then memory      the same machine, user, network namespace
//!                         │  └──► Far: TCP                           any other
//!   somebody comes ───────┘
//! ```
//!
//! Beside TCP short packets go by raw Ethernet, where both may and it was measured to be faster: see [`lane`](crate::lane).
//!
//! What travels by either is neither encrypted nor signed once its sender has been proven: the network between the nodes of a
//! job must be its own.

mod address;
mod door;
mod greeting;
mod line;
mod meet;
mod secret;
mod sides;

use super::ethernet::Ethernet;
use super::own::Own;
use super::packets::{Options, PACKET_BYTES_MAX, Tcp};
use super::shm::{self, Shm};
use crate::lane::{Choice, Laned, Outcome};
use covey_wire::transport::{Glance, OneCopy, Published, Refused, Sink, Transfer};
use covey_wire::{Peer, Span, Transport};
use door::{Door, Known};
use rustix::event::epoll::{self, EventData, EventFlags};
use sides::{Side, Sides};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub use address::{ADDRESS_BYTES, Address};
pub use meet::Place;
pub use secret::{SECRET_VARIABLE, Secret};

/// How an endpoint is found, and what it uses.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Shared memory.
    pub shm: shm::Settings,
    /// Whether it is used.
    pub near: bool,
    /// Where to listen by TCP; nowhere without.
    pub tcp: Option<SocketAddr>,
    /// Whether short packets go by raw Ethernet to those that are met by TCP.
    pub ethernet: Choice,
}

impl Default for Settings {
    fn default() -> Settings {
        let shm = shm::Settings { peers_max: PEERS_MAX, ..shm::Settings::default() };
        Settings { shm, near: true, tcp: None, ethernet: Choice::default() }
    }
}

/// Shared memory and TCP as one transport.
#[derive(Debug)]
pub struct Mixed {
    sides: Sides,
    door: Option<Door>,
    /// Others may come by TCP at any time.
    listens_by_tcp: bool,
    events: OwnedFd,
    /// This endpoint as its own peer, and what it has sent to itself.
    own: Option<Peer>,
    own_packets: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// The last poll ended before TCP was polled: the next begins with it.
    far_waits: bool,
    rounds: u32,
    looked_ms: u64,
    /// No glance does: somebody is being met, of whom each poll looks for more, or the program looks so seldom that many glances
    /// would take long.
    only_polls: bool,
}

impl Mixed {
    /// Without peers, and without an address.
    pub fn new(settings: &Settings) -> io::Result<Mixed> {
        let (shm, tcp) = (Shm::new(settings.shm.clone())?, Tcp::new(Options::default())?);
        let ethernet = Ethernet::new()?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let frames = Some(ethernet.descriptor());
        for fd in [shm.sleep_on(), tcp.sleep_on(), frames].into_iter().flatten() {
            // SAFETY: the transport has this descriptor open, and is borrowed.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            epoll::add(&events, fd, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(Mixed {
            sides: Sides::new(shm, Laned::new(tcp, ethernet, settings.ethernet)),
            door: None,
            listens_by_tcp: false,
            events,
            own: None,
            own_packets: VecDeque::new(),
            far_waits: false,
            rounds: 0,
            looked_ms: 0,
            only_polls: false,
        })
    }

    /// Lets those come, and be called, that know the secret. Says where it is found.
    pub fn open(&mut self, settings: &Settings, secret: Secret) -> io::Result<Address> {
        let door = Door::open(settings, secret, &self.events)?;
        let me = door.me;
        self.door = Some(door);
        // Until it is known how often the program looks.
        self.only_polls = true;
        Ok(me)
    }

    /// The peer at an address: the one that is known, or one that is called now. Never waits; one that cannot be met is
    /// found to be dead.
    pub fn call(&mut self, to: &Address) -> io::Result<Peer> {
        let door = self.door.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        if to.has_id() && to.id == door.me.id {
            let sides = &mut self.sides;
            return Ok(*self.own.get_or_insert_with(|| sides.add(Side::Own, Some(*to))));
        }
        if let Some(peer) = door.peer_of(to, &self.sides) {
            return Ok(peer);
        }
        let peer = self.sides.add(Side::Meeting, Some(*to));
        if to.has_id() {
            door.known.insert(to.id, (peer, Known::Meeting));
        }
        door.call(peer, *to);
        door.look(&mut self.sides, &self.events);
        self.only_polls = true;
        Ok(peer)
    }

    /// Somebody who has come without having been called, once.
    pub fn came(&mut self) -> Option<Peer> {
        self.sides.came.pop_front()
    }

    /// Where a peer is found, of those that were met by an address.
    pub fn address_of(&self, peer: Peer) -> Option<&Address> {
        self.sides.name_of(peer)
    }

    /// Whether a peer is reached by shared memory; none while it is being met, or dead.
    pub fn is_near(&self, peer: Peer) -> Option<bool> {
        match self.sides.of(peer) {
            Side::Near(_) | Side::Own => Some(true),
            Side::Far(_) => Some(false),
            Side::Meeting | Side::Dead => None,
        }
    }

    /// Whether short packets go to a peer by raw Ethernet, and what was measured, where this side did.
    pub fn ethernet(&self, peer: Peer) -> (bool, Option<Outcome>) {
        match self.sides.of(peer) {
            Side::Far(far) => {
                (self.sides.tcp.uses_wire(Peer(far)), self.sides.tcp.outcome(Peer(far)))
            }
            _ => (false, None),
        }
    }

    /// TCP, and raw Ethernet.
    #[cfg(test)]
    pub(super) fn lane(&mut self) -> &mut Laned<Tcp, Ethernet> {
        &mut self.sides.tcp
    }

    /// Why raw Ethernet could not be used with somebody, if it could not.
    pub fn why_no_ethernet(&self) -> Option<&str> {
        self.sides.no_ethernet.as_deref()
    }

    /// Lets nobody begin to access memory of ours any more, and says whether nobody does. Where a peer still does, because
    /// it was stopped in the middle, this is asked again.
    pub fn is_left_alone(&mut self) -> bool {
        self.sides.shm.is_left_alone()
    }

    /// Memory for an engine over this transport; `None` when it was given out before.
    pub fn memory(&mut self) -> Option<Own> {
        self.sides.shm.memory()
    }

    /// Memory that near peers map too. `None` when there is no room.
    pub fn allocate(&mut self, bytes: u64) -> Option<Span> {
        self.sides.shm.allocate(bytes)
    }

    /// Gives memory back that was allocated. False when it was not.
    pub fn release(&mut self, span: Span) -> bool {
        self.sides.shm.release(span)
    }

    /// Now and then: who has come.
    #[inline]
    fn look_around(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        if !self.rounds.is_multiple_of(ROUNDS) && !self.is_due() {
            return;
        }
        self.look();
    }

    /// Whether a poll of one who polls seldom looks around.
    #[inline]
    fn is_due(&self) -> bool {
        self.rounds.is_multiple_of(CLOCK_ROUNDS) && super::clock::coarse_ms() != self.looked_ms
    }

    #[cold]
    fn look(&mut self) {
        let before_ms = std::mem::replace(&mut self.looked_ms, super::clock::coarse_ms());
        self.only_polls = self.looked_ms.saturating_sub(before_ms) > SELDOM_MS;
        if let Some(door) = &mut self.door {
            let has_event = super::shm::has_event(&self.events);
            if door.is_busy() || has_event {
                door.look(&mut self.sides, &self.events);
            }
            if has_event {
                // Somebody may have gone, which shared memory itself asks about after many polls only.
                self.sides.shm.look_soon();
            }
            self.only_polls |= door.is_busy();
        }
        if self.listens_by_tcp && self.sides.far.is_empty() {
            // Where there are peers already, TCP finds others while it is polled.
            self.sides.tcp.stream().meet();
            self.sides.meet_far();
        }
    }

    /// Tells the engine who has joined.
    fn tell(&mut self, sink: &mut impl Sink) -> usize {
        let Sides { all, told, .. } = &mut self.sides;
        let begun = *told;
        while *told < all.len() {
            sink.joined(Peer(*told as u32));
            *told += 1;
        }
        *told - begun
    }

    /// Sends to a peer that is not reached by shared memory.
    #[inline(never)]
    fn send_beyond(
        &mut self,
        peer: Peer,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        match self.sides.of(peer) {
            Side::Far(far) => self.sides.tcp.send(Peer(far), head, bytes, fill),
            Side::Own if self.own_packets.len() >= OWN_PACKETS_MAX => Err(Refused::Full),
            Side::Own => {
                let mut payload = vec![0; bytes];
                fill(&mut payload);
                self.own_packets.push_back((head.to_vec(), payload));
                Ok(())
            }
            Side::Near(_) | Side::Meeting => Err(Refused::Full),
            Side::Dead => Err(Refused::Dead),
        }
    }

    /// Gives the engine what it has sent to itself.
    fn poll_own(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        let Some(own) = self.own else { return 0 };
        let count = self.own_packets.len().min(budget);
        for _ in 0..count {
            let Some((head, payload)) = self.own_packets.pop_front() else { break };
            sink.packet(own, &head, &payload);
        }
        count
    }
}

impl Transport for Mixed {
    #[inline]
    fn packet_bytes_max(&self, peer: Peer) -> usize {
        match self.sides.of(peer) {
            Side::Near(near) => self.sides.shm.packet_bytes_max(Peer(near)),
            Side::Far(far) => self.sides.tcp.packet_bytes_max(Peer(far)),
            // What every side can carry.
            _ => self.sides.shm.packet_bytes_max(peer).min(PACKET_BYTES_MAX),
        }
    }

    #[inline]
    fn send(
        &mut self,
        peer: Peer,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        if let Side::Near(near) = self.sides.of(peer) {
            return self.sides.shm.send(Peer(near), head, bytes, fill);
        }
        self.send_beyond(peer, head, bytes, fill)
    }

    fn gather(&mut self, may_gather: bool) {
        if !self.sides.far.is_empty() {
            self.sides.tcp.gather(may_gather);
        }
    }

    fn post_bytes_max(&self, peer: Peer) -> usize {
        match self.sides.of(peer) {
            Side::Far(far) => self.sides.tcp.post_bytes_max(Peer(far)),
            _ => 0,
        }
    }

    fn post(
        &mut self,
        token: u64,
        peer: Peer,
        head: &[u8],
        payload: Span,
    ) -> Result<Transfer, Refused> {
        match self.sides.of(peer) {
            Side::Far(far) => self.sides.tcp.post(token, Peer(far), head, payload),
            Side::Dead => Err(Refused::Dead),
            _ => Err(Refused::Unsupported),
        }
    }

    #[inline]
    fn poll(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        if budget > 0 && (self.door.is_some() || self.listens_by_tcp) {
            self.look_around();
        }
        let mut happened = 0;
        if self.sides.told < self.sides.all.len() {
            happened += self.tell(sink);
        }
        while let Some(peer) = self.sides.lost.pop_front() {
            sink.dead(peer);
            happened += 1;
        }
        if budget == 0 {
            return happened;
        }
        if !self.own_packets.is_empty() {
            happened += self.poll_own(budget, sink);
        }
        let is_far_first = std::mem::take(&mut self.far_waits);
        if is_far_first {
            happened += self.sides.poll_far(budget, sink);
        }
        if !self.sides.near.is_empty() && (!is_far_first || sink.wants_more()) {
            happened += self.sides.poll_near(budget, sink);
        }
        if !self.sides.far.is_empty() && !is_far_first {
            self.far_waits = !sink.wants_more();
            if !self.far_waits {
                happened += self.sides.poll_far(budget, sink);
            }
        }
        happened
    }

    #[inline(always)]
    fn glance(&mut self, mut with: impl FnMut(Peer, &[u8], &[u8])) -> Glance {
        let Sides { shm, all, told, lost, near, far, .. } = &mut self.sides;
        let is_plain = *told == all.len() && lost.is_empty() && far.is_empty();
        let is_alone = !self.only_polls && self.own_packets.is_empty();
        let rounds = self.rounds.wrapping_add(1);
        if !is_plain || !is_alone || rounds.is_multiple_of(GLANCES) {
            return Glance::Unknown;
        }
        self.rounds = rounds;
        shm.glance(|peer, head, payload| with(near[peer.0 as usize], head, payload))
    }

    fn is_reachable(&self, peer: Peer) -> bool {
        match self.sides.of(peer) {
            Side::Near(near) => self.sides.shm.is_reachable(Peer(near)),
            Side::Own => true,
            _ => false,
        }
    }

    #[inline]
    fn view(&mut self, peer: Peer, theirs: Span) -> Option<Span> {
        match self.sides.of(peer) {
            Side::Near(near) => self.sides.shm.view(Peer(near), theirs),
            Side::Own => Some(theirs),
            _ => None,
        }
    }

    fn one_copy(&self, peer: Peer) -> OneCopy {
        match self.sides.of(peer) {
            Side::Near(near) => self.sides.shm.one_copy(Peer(near)),
            _ => OneCopy::None,
        }
    }

    fn read(
        &mut self,
        token: u64,
        peer: Peer,
        from: &[Span],
        into: Span,
    ) -> Result<Transfer, Refused> {
        let near = self.near(peer)?;
        self.sides.shm.read(token, near, from, into)
    }

    fn fetch(
        &mut self,
        token: u64,
        peer: Peer,
        message: u32,
        from: Span,
        into: Span,
    ) -> Result<Transfer, Refused> {
        let near = self.near(peer)?;
        self.sides.shm.fetch(token, near, message, from, into)
    }

    fn write(
        &mut self,
        token: u64,
        peer: Peer,
        from: Span,
        to: &[Span],
    ) -> Result<Transfer, Refused> {
        let near = self.near(peer)?;
        self.sides.shm.write(token, near, from, to)
    }

    fn publish(&mut self, slot: u32, what: Option<Published>) {
        self.sides.shm.publish(slot, what);
    }

    fn settle(&mut self, key: u64, patience: Duration) -> bool {
        self.sides.shm.settle(key, patience)
    }

    #[inline]
    fn enter(&mut self, peer: Peer, slot: u32, key: u64) -> Result<Published, Refused> {
        let near = self.near(peer)?;
        self.sides.shm.enter(near, slot, key)
    }

    #[inline]
    fn leave(&mut self, peer: Peer) {
        if let Side::Near(near) = self.sides.of(peer) {
            self.sides.shm.leave(Peer(near));
        }
    }

    fn end(&mut self, peer: Peer) {
        if let Side::Far(far) = self.sides.of(peer) {
            self.sides.tcp.end(Peer(far));
        }
    }

    fn sleep_on(&self) -> Option<i32> {
        Some(self.events.as_raw_fd())
    }

    fn prepare_sleep(&mut self) -> bool {
        let is_quiet = self.sides.told == self.sides.all.len()
            && self.sides.lost.is_empty()
            && self.own_packets.is_empty();
        if !is_quiet || !self.sides.shm.prepare_sleep() {
            return false;
        }
        if self.sides.tcp.prepare_sleep() {
            return true;
        }
        self.sides.shm.woke();
        false
    }

    fn woke(&mut self) {
        self.sides.shm.woke();
        self.sides.tcp.woke();
        // The next poll looks around.
        self.rounds = ROUNDS - 1;
    }
}

impl Mixed {
    #[inline]
    fn near(&self, peer: Peer) -> Result<Peer, Refused> {
        match self.sides.of(peer) {
            Side::Near(near) => Ok(Peer(near)),
            Side::Dead => Err(Refused::Dead),
            _ => Err(Refused::Unsupported),
        }
    }
}

/// Polls between two looks at who has come.
const ROUNDS: u32 = 256;
/// One of so many glances is a poll, which looks at the clock.
const GLANCES: u32 = 64;
/// Who takes longer from one look around to the next polls seldom: a few ticks of the slowest clock.
const SELDOM_MS: u64 = 12;
/// Polls between two looks at the clock.
const CLOCK_ROUNDS: u32 = 4;
/// What an endpoint may have sent to itself and not taken.
const OWN_PACKETS_MAX: usize = 256;
/// More than most machines have CPUs. Others are reached by TCP.
const PEERS_MAX: u32 = 512;

#[cfg(test)]
mod tests;
