//! Messages between processes of one machine, through memory that they share.
//!
//! Each process has one file in memory, which its peers map: with an inbox for each of them and a heap for
//! messages. A packet is written into the peer's inbox and seen there by polling: no system call, no lock, and for a
//! short one a single cache line that moves. Memory of the heap is mapped by every peer, so one pass of a kernel
//! moves it; other memory is copied by `process_vm_readv` where the kernel permits it, which is tried out when two
//! processes meet.
//!
//! Processes of one user only. Who ends is told by its pidfd and by the socket over which it was met.

pub mod area;
mod arena;
mod barrier;
mod channel;
mod heap;
mod link;
mod meet;
mod reach;
mod ring;
mod share;
mod sleep;

use super::net::SocketFile;
use super::own::{Mappings, Own};
use arena::{Arena, ArenaPlan};
use covey_wire::transport::{
    ACCESS, Glance, OneCopy, PUBLISHED_MAX, Published, Refused, Sink, Transfer,
};
use covey_wire::{Peer, Span, Transport};
use heap::Heap;
use link::{Fetch, Link};
use meet::Card;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use channel::{COPIED, Channel, Copied, Met, meet};
pub(super) use sleep::has_event;
pub use sleep::{Bell, Pace, Patience, Waiter};

/// The sizes of a process's shared memory. Pages that are not used take none.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Peers at most.
    pub peers_max: u32,
    /// Bytes for [`Shm::allocate`].
    pub heap_bytes: u64,
    /// Copy by the kernel where it is permitted.
    pub one_copy: bool,
    /// Use mapped memory in place.
    pub view: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { peers_max: 64, heap_bytes: 1 << 30, one_copy: true, view: true }
    }
}

/// A meeting with the process at the other end of a socket, which has not said who it is.
#[derive(Debug)]
pub struct Meeting {
    stream: UnixStream,
    inbox: u32,
    spare: Option<Spare>,
}

/// Descriptors that are kept for what a new peer hands over. Where there are none to keep, it is met some other way: a peer
/// that has shared its memory already would be lost.
#[derive(Debug)]
pub struct Spare {
    _held: [OwnedFd; SPARE],
}

impl AsFd for Meeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The shared-memory transport of one process.
#[derive(Debug)]
pub struct Shm {
    settings: Settings,
    arena: Arc<Arena>,
    /// Ours, then those of peers.
    mappings: Mappings,
    has_memory: bool,
    memory: OwnedFd,
    heap: Heap,
    /// A number of ours that peers try to read.
    probe: Box<[u8; 8]>,
    has_barrier: bool,
    links: Vec<Link>,
    /// Inboxes that were given to peers, those of a meeting that came to nothing included.
    inboxes: u32,
    /// Links that the engine was told of.
    joined: usize,
    /// Slots in which registrations are published.
    published: Vec<u32>,
    bell: OwnedFd,
    events: OwnedFd,
    listener: Option<(SocketFile, UnixListener)>,
    /// The link with which the next poll begins.
    turn: usize,
    /// Polls since somebody looked at who has gone; one that found something is as long as many.
    polls: u32,
    #[cfg(test)]
    pub(super) lacks_descriptors: bool,
}

impl Shm {
    /// A process without peers.
    pub fn new(settings: Settings) -> io::Result<Shm> {
        let plan = ArenaPlan { peers_max: settings.peers_max, heap_bytes: settings.heap_bytes };
        let (arena, memory) = Arena::make(plan)?;
        let events = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
        let bell = sleep::bell()?;
        sleep::watch(&events, bell.as_fd(), sleep::BELL)?;
        let heap = Heap::new(arena.heap());
        let arena = Arc::new(arena);
        let mappings: Mappings = Arc::new(Mutex::new(vec![arena.clone()]));
        let mut probe = Box::new(crate::os::random::bytes::<8>()?);
        let _ = probe.as_mut_ptr().expose_provenance();
        Ok(Shm {
            heap,
            arena,
            mappings,
            has_memory: true,
            memory,
            probe,
            has_barrier: barrier::register(),
            links: Vec::new(),
            inboxes: 0,
            joined: 0,
            published: Vec::new(),
            bell,
            events,
            listener: None,
            turn: 0,
            polls: 0,
            #[cfg(test)]
            lacks_descriptors: false,
            settings,
        })
    }

    /// Lets peers come: they are met while [`Shm::accept`] is called.
    /// What a dead process has left there is removed, and at the end what is ours.
    pub fn listen(&mut self, path: &Path) -> io::Result<()> {
        SocketFile::clear(path)?;
        let listener = UnixListener::bind(path)?;
        let file = SocketFile::of(path)?;
        listener.set_nonblocking(true)?;
        sleep::watch(&self.events, listener.as_fd(), sleep::LISTENER)?;
        self.listener = Some((file, listener));
        Ok(())
    }

    /// Meets a process that has come, if one has.
    pub fn accept(&mut self) -> io::Result<Option<Peer>> {
        let Some((_, listener)) = &self.listener else { return Ok(None) };
        match listener.accept() {
            Ok((stream, _)) => self.meet(stream).map(Some),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Meets the process that listens there. Waits for its [`Shm::accept`], 5 s at most.
    pub fn connect(&mut self, path: &Path) -> io::Result<Peer> {
        self.meet(UnixStream::connect(path)?)
    }

    /// Meets the process at the other end of a socket, which does the same. Waits for it, 5 s at most.
    pub fn meet(&mut self, stream: UnixStream) -> io::Result<Peer> {
        let card = self.card()?;
        let met = meet::exchange(&stream, &card, self.memory.as_fd(), self.bell.as_fd());
        let joined = met.and_then(|met| self.join(met, stream, card.inbox));
        joined.inspect_err(|_| self.take_back(card.inbox))
    }

    /// Begins to meet the process at the other end of a socket, without waiting: [`Shm::go_on`] ends it.
    pub fn begin(&mut self, stream: UnixStream, spare: Option<Spare>) -> io::Result<Meeting> {
        let card = self.card()?;
        match meet::offer(&stream, &card, self.memory.as_fd(), self.bell.as_fd()) {
            Ok(()) => Ok(Meeting { stream, inbox: card.inbox, spare }),
            Err(error) => {
                self.take_back(card.inbox);
                Err(error)
            }
        }
    }

    /// An inbox that no peer has, if it is the last one.
    fn take_back(&mut self, inbox: u32) {
        if self.inboxes == inbox + 1 {
            self.inboxes = inbox;
        }
    }

    /// Goes on with a meeting: it is given back while the peer has not said who it is.
    pub fn go_on(&mut self, meeting: Meeting) -> io::Result<Result<Peer, Meeting>> {
        if !sleep::is_readable(meeting.stream.as_fd()) {
            return Ok(Err(meeting));
        }
        let Meeting { stream, inbox, spare } = meeting;
        drop(spare);
        match meet::accepted(&stream) {
            Ok(None) => Ok(Err(Meeting { stream, inbox, spare: None })),
            Ok(Some(met)) => self.join(met, stream, inbox).map(Ok),
            Err(error) => {
                // It says who it is before it writes anything. One that has said it may have begun to write.
                if meet::has_said_nothing(&error) {
                    self.take_back(inbox);
                }
                Err(error)
            }
        }
    }

    /// What it takes to meet another peer; none when there is no room for one, or there are too few descriptors.
    pub fn spare(&self) -> Option<Spare> {
        let keep = |_| rustix::io::fcntl_dupfd_cloexec(&self.events, 0).ok();
        let all: Vec<OwnedFd> = (0..SPARE).map_while(keep).collect();
        let held = all.try_into().ok().filter(|_| self.has_room());
        #[cfg(test)]
        let held = held.filter(|_| !self.lacks_descriptors);
        Some(Spare { _held: held? })
    }

    /// Whether another peer can be met.
    pub fn has_room(&self) -> bool {
        self.inboxes < self.settings.peers_max
    }

    /// What is said to a new peer.
    fn card(&mut self) -> io::Result<Card> {
        let inbox = self.inboxes;
        if !self.has_room() {
            let text = format!("there are {inbox} peers already, the limit of this process");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        self.inboxes += 1;
        Ok(Card {
            plan: ArenaPlan {
                peers_max: self.settings.peers_max,
                heap_bytes: self.settings.heap_bytes,
            },
            heap_address: self.arena.heap().address,
            inbox,
            has_barrier: self.has_barrier,
            probe: (self.probe.as_ptr() as u64, u64::from_le_bytes(*self.probe)),
        })
    }

    fn join(&mut self, met: meet::Met, stream: UnixStream, inbox: u32) -> io::Result<Peer> {
        let link = Link::new(met, stream, &self.arena, inbox, &self.settings, self.has_barrier)?;
        for fd in link.watched() {
            sleep::watch(&self.events, fd, sleep::PEER)?;
        }
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner).push(link.memory());
        self.links.push(link);
        Ok(Peer(self.links.len() as u32 - 1))
    }

    /// Memory for an engine over this transport: what is allocated here, what peers share, and blocks of its own. `None`
    /// when it was given out before.
    pub fn memory(&mut self) -> Option<Own> {
        std::mem::take(&mut self.has_memory).then(|| Own::new(self.mappings.clone()))
    }

    /// Memory that peers map too. `None` when there is no room.
    pub fn allocate(&mut self, bytes: u64) -> Option<Span> {
        self.heap.allocate(bytes)
    }

    /// Gives memory back that was allocated. False when it was not.
    pub fn release(&mut self, span: Span) -> bool {
        self.heap.release(span.address)
    }

    /// Bytes of messages that were copied here for their receivers.
    pub fn helped_bytes(&self) -> u64 {
        self.links.iter().map(Link::helped_bytes).sum()
    }

    /// Lets nobody begin to access memory of ours any more, and says whether nobody does. Where a peer still does, because
    /// it was stopped in the middle, this is asked again.
    pub fn is_left_alone(&mut self) -> bool {
        if !self.published.is_empty() {
            for slot in std::mem::take(&mut self.published) {
                self.arena.row(slot).key.swap(0, Ordering::SeqCst);
            }
            barrier::heavy();
        }
        !self.links.iter().any(Link::has_hold)
    }

    /// Does not wait for what the peer may still write into memory of ours, which must stay as it is; whether there is
    /// such a thing.
    fn abandon(&mut self, peer: Peer) -> bool {
        self.links.get_mut(peer.0 as usize).is_some_and(Link::abandon)
    }

    #[inline]
    fn link(&mut self, peer: Peer) -> Result<&mut Link, Refused> {
        let link = self.links.get_mut(peer.0 as usize).ok_or(Refused::Dead)?;
        if link.is_alive() { Ok(link) } else { Err(Refused::Dead) }
    }

    /// The next poll looks at who has gone.
    pub fn look_soon(&mut self) {
        self.polls = POLLS_MAX;
    }

    /// What is looked at now and then only: who has come, and who has gone.
    #[cold]
    fn look(&mut self, sink: &mut impl Sink) -> usize {
        self.polls = 0;
        let mut happened = 0;
        while self.joined < self.links.len() {
            sink.joined(Peer(self.joined as u32));
            self.joined += 1;
            happened += 1;
        }
        if !sleep::has_event(&self.events) {
            return happened;
        }
        for (index, link) in self.links.iter_mut().enumerate() {
            // What it has sent is taken first.
            if link.is_gone() && !link.has_packet() {
                if let Some((token, result)) = link.fetched_of_gone() {
                    sink.done(token, result);
                }
                link.bury();
                sink.dead(Peer(index as u32));
                happened += 1;
            }
        }
        happened
    }
}

impl Shm {
    /// Polls every link once, until the sink wants no more. The link that ended a poll, or that had the last of its budget, is
    /// the last one of the next, so that none keeps others from being polled.
    #[inline]
    fn poll_links(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        let (mut left, mut happened, count) = (budget, 0, self.links.len());
        let mut index = self.turn;
        for _ in 0..count {
            if index >= count {
                index = 0;
            }
            let (peer, link) = (Peer(index as u32), &mut self.links[index]);
            index += 1;
            let (before, mut bytes) = (left, 0);
            while left > 0 {
                let taken = link.take(|head, payload| {
                    bytes = payload.len();
                    sink.packet(peer, head, payload);
                });
                match taken {
                    Ok(true) => {
                        left -= 1;
                        if left == 0 {
                            self.turn = index;
                        }
                        if !sink.wants_more() {
                            self.turn = index;
                            return happened + link.go_on(peer, sink) + budget - left;
                        }
                    }
                    Ok(false) | Err(ring::Broken) => break,
                }
            }
            if left < before {
                link.took(bytes);
            }
            if budget == 0 {
                continue;
            }
            happened += link.go_on(peer, sink);
            if link.is_lost() {
                link.bury();
                sink.dead(peer);
                happened += 1;
            }
        }
        happened + budget - left
    }
}

impl Transport for Shm {
    #[inline]
    fn packet_bytes_max(&self, _peer: Peer) -> usize {
        ring::PACKET_BYTES_MAX
    }

    #[inline]
    fn send(
        &mut self,
        peer: Peer,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        self.link(peer)?.send(head, bytes, fill)
    }

    #[inline]
    fn poll(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        let is_due = self.joined < self.links.len() || (self.polls >= POLLS_MAX && budget > 0);
        let mut happened = if is_due { self.look(sink) } else { 0 };
        happened += self.poll_links(budget, sink);
        if budget > 0 {
            self.polls += if happened == 0 { 1 } else { FULL_POLL };
        }
        happened
    }

    #[inline(always)]
    fn glance(&mut self, mut with: impl FnMut(Peer, &[u8], &[u8])) -> Glance {
        let count = self.links.len();
        if self.joined < count || self.polls >= POLLS_MAX {
            return Glance::Unknown;
        }
        let mut index = self.turn;
        for _ in 0..count {
            if index >= count {
                index = 0;
            }
            let mut bytes = 0;
            let glance = self.links[index].glance(|head, payload| {
                bytes = payload.len();
                with(Peer(index as u32), head, payload);
            });
            match glance {
                Glance::Nothing => index += 1,
                Glance::Taken => {
                    self.links[index].took(bytes);
                    (self.turn, self.polls) = (index + 1, self.polls + FULL_POLL);
                    return Glance::Taken;
                }
                Glance::Unknown => return Glance::Unknown,
            }
        }
        self.polls += 1;
        Glance::Nothing
    }

    fn is_reachable(&self, peer: Peer) -> bool {
        let link = self.links.get(peer.0 as usize);
        link.is_some_and(|link| link.is_alive() && (link.can_copy || self.settings.view))
    }

    #[inline]
    fn view(&mut self, peer: Peer, theirs: Span) -> Option<Span> {
        if !self.settings.view {
            return None;
        }
        self.link(peer).ok()?.view(theirs)
    }

    fn one_copy(&self, peer: Peer) -> OneCopy {
        let can_copy = self.links.get(peer.0 as usize).is_some_and(|link| link.can_copy);
        if can_copy { OneCopy::AtOnce } else { OneCopy::None }
    }

    fn read(
        &mut self,
        _token: u64,
        peer: Peer,
        from: &[Span],
        into: Span,
    ) -> Result<Transfer, Refused> {
        let process = self.link(peer)?.copyable()?;
        reach::copy(&process, reach::Way::Read, into, from).map(|()| Transfer::Done)
    }

    fn fetch(
        &mut self,
        token: u64,
        peer: Peer,
        message: u32,
        from: Span,
        into: Span,
    ) -> Result<Transfer, Refused> {
        self.link(peer)?.fetch(Fetch { token, message, from, into })
    }

    fn write(
        &mut self,
        _token: u64,
        peer: Peer,
        from: Span,
        to: &[Span],
    ) -> Result<Transfer, Refused> {
        let process = self.link(peer)?.copyable()?;
        reach::copy(&process, reach::Way::Write, from, to).map(|()| Transfer::Done)
    }

    fn publish(&mut self, slot: u32, what: Option<Published>) {
        if slot >= PUBLISHED_MAX {
            return;
        }
        let row = self.arena.row(slot);
        row.key.swap(0, Ordering::SeqCst);
        self.published.retain(|other| *other != slot);
        if let Some(what) = what {
            self.published.push(slot);
            row.address.store(what.span.address, Ordering::Relaxed);
            row.bytes.store(what.span.bytes, Ordering::Relaxed);
            row.rights.store(u64::from(what.rights), Ordering::Relaxed);
            row.key.store(what.key, Ordering::Release);
            return;
        }
        barrier::heavy();
    }

    fn settle(&mut self, key: u64, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        self.links.iter_mut().all(|link| link.wait_for_access(key, until))
    }

    #[inline]
    fn enter(&mut self, peer: Peer, slot: u32, key: u64) -> Result<Published, Refused> {
        self.link(peer)?.enter(slot, key)
    }

    #[inline]
    fn leave(&mut self, peer: Peer) {
        if let Some(link) = self.links.get(peer.0 as usize) {
            link.leave();
        }
    }

    fn sleep_on(&self) -> Option<i32> {
        Some(self.events.as_raw_fd())
    }

    fn prepare_sleep(&mut self) -> bool {
        self.arena.sleeping().store(1, Ordering::SeqCst);
        barrier::heavy();
        if self.joined < self.links.len() || self.links.iter().any(Link::has_news) {
            self.woke();
            return false;
        }
        // A sleep is a reason to look at once who has gone.
        self.look_soon();
        true
    }

    fn woke(&mut self) {
        self.arena.sleeping().store(0, Ordering::Relaxed);
        sleep::silence(&self.bell);
    }
}

impl Drop for Shm {
    /// Memory may be given back after that: nobody reads or writes it. Only a peer that was stopped in the middle of an access
    /// is not waited for without end: what it still writes when it goes on stays memory that nobody else gets, as far as
    /// that is ours to decide.
    fn drop(&mut self) {
        let until = Instant::now() + ACCESS;
        while !self.is_left_alone() {
            if Instant::now() >= until {
                std::mem::forget(self.mappings.clone());
                return;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// The memory and the bell of a peer, and its process.
const SPARE: usize = 3;
/// Between two looks at who has gone: some 100 us of polling.
const POLLS_MAX: u32 = 1 << 14;
/// As many as one poll that found something counts for.
const FULL_POLL: u32 = 1 << 5;

#[cfg(test)]
mod tests;
