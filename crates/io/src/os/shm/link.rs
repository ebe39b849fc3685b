//! One peer of a process.

use super::arena::Arena;
use super::meet::Met;
use super::reach::Process;
use super::ring::{Broken, Reader, Writer};
use super::share::{By, Choice, Claimed, Help, Offers, STAGED_PIECES, Stands, Units};
use super::{Settings, barrier, reach, sleep};
use covey_wire::transport::{Glance, PUBLISHED_MAX, Published, Refused, Sink, Transfer};
use covey_wire::{Peer, Span};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// One peer.
#[derive(Debug)]
pub(super) struct Link {
    writer: Writer,
    reader: Reader,
    /// Our memory, where the peer writes; and the peer's.
    ours: Arc<Arena>,
    theirs: Arc<Arena>,
    inbox: u32,
    /// Of ours in its memory.
    their_inbox: u32,
    /// In the peer's addresses.
    heap: Span,
    /// None where its socket alone must tell whether it is there, and nothing is copied.
    process: Option<Arc<Process>>,
    pub can_copy: bool,
    /// The peer makes barriers for us.
    is_spared: bool,
    bell: OwnedFd,
    stream: UnixStream,
    is_alive: bool,
    /// What it sends can no longer be understood.
    is_broken: bool,
    offers: Offers,
    choice: Choice,
    help: Help,
    /// A message of which the peer copies the last part, and what became of ours.
    fetching: Option<(Fetch, Result<(), Refused>)>,
    /// Packets since one of the peer was taken.
    sent: u32,
}

impl Link {
    pub fn new(
        met: Met,
        stream: UnixStream,
        ours: &Arc<Arena>,
        inbox: u32,
        settings: &Settings,
        has_barrier: bool,
    ) -> io::Result<Link> {
        let theirs = Arc::new(Arena::open(met.memory.as_fd(), met.card.plan)?);
        stream.set_nonblocking(true)?;
        // A peer of another pid namespace has no number here: its socket must do.
        let process = Process::open(met.pid).map(Arc::new);
        let is_near = |process: &Arc<Process>| reach::can_read(process, met.card.probe);
        let can_copy = settings.one_copy && process.as_ref().is_some_and(is_near);
        Ok(Link {
            writer: Writer::new(theirs.clone(), met.card.inbox),
            reader: Reader::new(ours.clone(), inbox),
            ours: ours.clone(),
            inbox,
            their_inbox: met.card.inbox,
            heap: Span::new(met.card.heap_address, met.card.plan.heap_bytes),
            process,
            can_copy,
            is_spared: has_barrier && met.card.has_barrier,
            bell: met.bell,
            theirs,
            stream,
            is_alive: true,
            is_broken: false,
            offers: Offers::default(),
            choice: Choice::default(),
            help: Help::default(),
            fetching: None,
            sent: 0,
        })
    }

    /// What it shares with us.
    pub fn memory(&self) -> Arc<Arena> {
        self.theirs.clone()
    }

    /// What becomes readable when it is gone.
    pub fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.process.iter().map(|process| process.as_fd()).chain([self.stream.as_fd()])
    }

    #[inline]
    pub fn is_alive(&self) -> bool {
        self.is_alive
    }

    /// Whether its process has ended or has let go of us.
    pub fn is_gone(&self) -> bool {
        self.is_alive && self.watched().any(|fd| sleep::is_readable(fd))
    }

    /// Nothing is sent to it or taken from it any more.
    pub fn bury(&mut self) {
        self.is_alive = false;
        self.offers.end(false);
        self.can_copy = false;
        self.process = None;
        // Descriptors that are closed are watched no more; and the peer learns of it.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Ok((end, _)) = UnixStream::pair() {
            self.stream = end;
        }
    }

    #[inline]
    pub fn send(
        &mut self,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        self.writer.send(head, bytes, fill)?;
        self.call();
        self.sent = self.sent.saturating_add(1);
        if self.sent >= STREAM {
            // There will be more, and the peer is not yet looking there.
            self.writer.prepare(bytes, AHEAD);
        }
        Ok(())
    }

    /// Whether it has waited last on the CPU that it calls so, and does not sleep.
    pub fn waits_on(&self, cpu: u32) -> bool {
        let is_awake = self.theirs.sleeping().load(Ordering::Relaxed) == 0;
        self.is_alive && is_awake && self.theirs.cpu().load(Ordering::Relaxed) == cpu
    }

    /// Packets were taken, the last one with so many bytes. Who has answered the one before answers this one too, mostly with
    /// as many: the memory for that comes while what was taken is looked at.
    #[inline]
    pub fn took(&mut self, bytes: usize) {
        if std::mem::take(&mut self.sent) > 0 {
            self.writer.prepare(bytes, 0);
        }
    }

    /// Wakes the peer if it sleeps.
    #[inline]
    fn call(&self) {
        barrier::light(self.is_spared);
        if self.theirs.sleeping().load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.theirs.sleeping().store(0, Ordering::Relaxed);
        sleep::ring(&self.bell);
    }

    #[inline]
    pub fn take(&mut self, with: impl FnOnce(&[u8], &[u8])) -> Result<bool, Broken> {
        if !self.is_alive || self.is_broken {
            return Ok(false);
        }
        let taken = self.reader.take(with);
        self.is_broken = taken.is_err();
        taken
    }

    /// Lends the next packet, if that is all that there may be to do.
    #[inline(always)]
    pub fn glance(&mut self, with: impl FnOnce(&[u8], &[u8])) -> Glance {
        let is_asked = || self.help.is_wanted(self.ours.offer(self.inbox));
        if !self.is_alive || self.is_broken || self.fetching.is_some() || is_asked() {
            return Glance::Unknown;
        }
        match self.reader.take(with) {
            Ok(true) => Glance::Taken,
            Ok(false) => Glance::Nothing,
            Err(Broken) => {
                self.is_broken = true;
                Glance::Unknown
            }
        }
    }

    #[inline]
    pub fn has_packet(&self) -> bool {
        self.is_alive && !self.is_broken && self.reader.has_packet()
    }

    /// Whether it is to be let go, and can be: it writes no memory of ours any more.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.is_broken && self.is_alive && self.fetching.is_none()
    }

    /// Copies a message of the peer, which may do a part of it.
    pub fn fetch(&mut self, fetch: Fetch) -> Result<Transfer, Refused> {
        let process = self.copyable()?;
        let Fetch { from, into, .. } = fetch;
        if from.bytes != into.bytes || !self.offers.wants(from.bytes) {
            return reach::copy(&process, reach::Way::Read, into, &[from]).map(|()| Transfer::Done);
        }
        let (by, begun) = (self.choice.of(from.bytes), Instant::now());
        let ended = self.fetch_by(by, &process, fetch);
        if ended == Ok(Transfer::Done) && self.offers.was_helped() {
            self.choice.took(by, from.bytes, begun.elapsed());
        }
        ended
    }

    fn fetch_by(
        &mut self,
        by: By,
        process: &Arc<Process>,
        fetch: Fetch,
    ) -> Result<Transfer, Refused> {
        let Fetch { message, from, into, .. } = fetch;
        let offer = self.theirs.offer(self.their_inbox);
        let first = self.offers.open(offer, message, from, into, by);
        let mut result = Ok(());
        let mut next = match by {
            By::Writing => Ok(Some(first)),
            By::Stage => {
                self.take_all_staged(&fetch);
                self.claim()
            }
        };
        while let Some(units) = next? {
            result = fetch.copy(process, units);
            self.offers.copied(units);
            if result.is_err() {
                self.close()?;
            }
            next = self.claim();
        }
        for _ in 0..SPINS {
            if let Some(result) = self.finish(&fetch, result) {
                return result.map(|()| Transfer::Done);
            }
            std::hint::spin_loop();
        }
        self.fetching = Some((fetch, result));
        Ok(Transfer::Started)
    }

    /// The next part of the open offer that is to be copied here.
    fn claim(&mut self) -> Result<Option<Units>, Refused> {
        let claimed = self.offers.claim(self.theirs.offer(self.their_inbox));
        claimed.map_err(|Broken| self.break_offer())
    }

    fn close(&mut self) -> Result<(), Refused> {
        let closed = self.offers.close(self.theirs.offer(self.their_inbox));
        closed.map_err(|Broken| self.break_offer())
    }

    fn break_offer(&mut self) -> Refused {
        self.offers.end(false);
        self.is_broken = true;
        Refused::Dead
    }

    /// Takes what the peer puts on the stage, until that is everything or nothing has come for a moment.
    fn take_all_staged(&mut self, fetch: &Fetch) {
        let mut idle = 0;
        while idle < IDLE && !self.offers.is_taken() {
            if self.take_staged(fetch) {
                idle = 0;
            } else {
                idle += 1;
                std::hint::spin_loop();
            }
        }
    }

    /// Copies what is on the stage to where it belongs; whether there was something.
    fn take_staged(&mut self, fetch: &Fetch) -> bool {
        let offer = self.theirs.offer(self.their_inbox);
        let mut has_taken = false;
        while let Some((units, at)) = self.offers.staged(offer)
            && let Some(into) = units.of(fetch.into)
        {
            let place = std::ptr::with_exposed_provenance_mut(into.address as usize);
            // SAFETY: the part of the stage is within the inbox, and the peer leaves it alone until it is taken. That the
            // place is memory that may be written is the promise of whoever fetches.
            unsafe {
                let stage = self.theirs.stage(self.their_inbox).add(at);
                std::ptr::copy_nonoverlapping(stage, place, into.bytes as usize);
            }
            self.offers.took(offer, units);
            has_taken = true;
        }
        has_taken
    }

    /// What became of a fetch whose parts are all claimed; `None` while the peer copies.
    fn finish(
        &mut self,
        fetch: &Fetch,
        result: Result<(), Refused>,
    ) -> Option<Result<(), Refused>> {
        self.take_staged(fetch);
        match self.offers.stands(self.theirs.offer(self.their_inbox)) {
            Stands::Over { is_helped } => {
                self.offers.end(is_helped);
                Some(result)
            }
            Stands::Waits => None,
            Stands::GivenBack(units) => {
                self.offers.end(false);
                let process = self.process.as_ref().ok_or(Refused::Dead);
                Some(result.and_then(|()| fetch.copy(process?, units)))
            }
        }
    }

    /// Copies what the peer asks for, and tells of a fetch that has ended. Says how many things happened.
    #[inline]
    pub fn go_on(&mut self, peer: Peer, sink: &mut impl Sink) -> usize {
        let has_none = self.fetching.is_none() && !self.help.is_wanted(self.ours.offer(self.inbox));
        if has_none { 0 } else { self.go_on_now(peer, sink) }
    }

    #[inline(never)]
    fn go_on_now(&mut self, peer: Peer, sink: &mut impl Sink) -> usize {
        let has_helped = self.help(|message, span, by| {
            sink.lends(peer, message, span)
                && (by == By::Writing || sink.lends_memory(peer, message))
        });
        let fetched = self.fetched();
        if let Some((token, result)) = fetched {
            sink.done(token, result);
        }
        usize::from(has_helped) + usize::from(fetched.is_some())
    }

    /// A fetch that has ended since it was started.
    #[inline]
    pub fn fetched(&mut self) -> Option<(u64, Result<(), Refused>)> {
        if self.fetching.is_none() { None } else { self.fetched_now() }
    }

    #[cold]
    fn fetched_now(&mut self) -> Option<(u64, Result<(), Refused>)> {
        let (fetch, result) = self.fetching.take()?;
        let ended = self.finish(&fetch, result);
        if ended.is_none() {
            self.fetching = Some((fetch, result));
        }
        ended.map(|result| (fetch.token, result))
    }

    /// Whether there is something to be told of: a packet, or a fetch that has ended.
    pub fn has_news(&self) -> bool {
        let has_fetched = || {
            let offer = self.theirs.offer(self.their_inbox);
            self.fetching.is_some()
                && (self.offers.stands(offer) != Stands::Waits
                    || self.offers.staged(offer).is_some())
        };
        self.has_packet() || has_fetched()
    }

    /// Forgets a fetch of which the peer may still copy a part; whether there was one. The memory must stay as it is.
    pub fn abandon(&mut self) -> bool {
        self.is_alive && self.fetched().is_none() && self.fetching.take().is_some()
    }

    /// Whether the peer asks for help with a message of ours.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.is_alive && self.help.is_wanted(self.ours.offer(self.inbox))
    }

    /// The same of a peer that is gone, so that it copies nothing any more.
    pub fn fetched_of_gone(&mut self) -> Option<(u64, Result<(), Refused>)> {
        let ended = self.fetched();
        ended.or_else(|| self.fetching.take().map(|(fetch, _)| (fetch.token, Err(Refused::Dead))))
    }

    /// Copies a part of a message of ours that the peer reads. Says whether there was one.
    #[inline]
    fn help(&mut self, lends: impl Fn(u32, Span, By) -> bool) -> bool {
        self.help.is_wanted(self.ours.offer(self.inbox)) && self.help_now(lends)
    }

    fn help_now(&mut self, lends: impl Fn(u32, Span, By) -> bool) -> bool {
        let offer = self.ours.offer(self.inbox);
        let may_help = self.can_copy && !self.is_broken;
        let mut has_helped = false;
        for _ in 0..STAGED_PIECES {
            let lends = |message, span, by| may_help && lends(message, span, by);
            let Some(claimed) = self.help.claim(offer, lends) else { break };
            has_helped = true;
            let Some(at) = claimed.stage else {
                self.write(claimed);
                break;
            };
            let from = std::ptr::with_exposed_provenance(claimed.from.address as usize);
            // SAFETY: the part of the stage is within the inbox, and the peer has taken what was there. What is lent is
            // memory of a message of ours that waits.
            unsafe {
                let stage = self.ours.stage(self.inbox).add(at);
                std::ptr::copy_nonoverlapping(from, stage, claimed.from.bytes as usize);
            }
            self.help.done(offer, claimed);
        }
        if has_helped {
            self.call();
        }
        has_helped
    }

    /// Writes what was claimed where it belongs.
    fn write(&mut self, claimed: Claimed) {
        let offer = self.ours.offer(self.inbox);
        let process = self.process.as_ref().ok_or(Refused::Dead);
        let copy = |process: &Arc<Process>| {
            reach::copy(process, reach::Way::Write, claimed.from, &[claimed.into])
        };
        match process.and_then(copy) {
            Ok(()) => self.help.done(offer, claimed),
            Err(_) => self.help.give_back(offer, claimed),
        }
    }

    /// Bytes that we have copied for the peer.
    pub fn helped_bytes(&self) -> u64 {
        self.help.bytes
    }

    /// Where memory of its heap is mapped here.
    #[inline]
    pub fn view(&self, theirs: Span) -> Option<Span> {
        let at = theirs.address.checked_sub(self.heap.address)?;
        self.heap.part(at, theirs.bytes)?;
        self.theirs.heap().part(at, theirs.bytes)
    }

    /// Its process, if its memory can be copied.
    pub fn copyable(&self) -> Result<Arc<Process>, Refused> {
        let process = self.process.as_ref().filter(|_| self.can_copy);
        process.cloned().ok_or(Refused::Unsupported)
    }

    #[inline]
    pub fn enter(&mut self, slot: u32, key: u64) -> Result<Published, Refused> {
        if slot >= PUBLISHED_MAX || key == 0 {
            return Err(Refused::Key);
        }
        let access = &self.theirs.access(self.their_inbox).key;
        access.store(key, Ordering::Release);
        barrier::light(self.is_spared);
        let row = self.theirs.row(slot);
        let is_there = row.key.load(Ordering::Acquire) == key;
        let published = Published {
            key,
            span: Span::new(row.address.load(Ordering::Acquire), row.bytes.load(Ordering::Acquire)),
            rights: row.rights.load(Ordering::Acquire) as u32,
        };
        // The row may have been given to another registration while it was read.
        if is_there && row.key.load(Ordering::Acquire) == key {
            return Ok(published);
        }
        access.store(0, Ordering::Release);
        Err(Refused::Key)
    }

    #[inline]
    pub fn leave(&self) {
        self.theirs.access(self.their_inbox).key.store(0, Ordering::Release);
    }

    /// Returns when the peer accesses no memory of ours by this key, or then; whether it does not. An access is as long as its
    /// copy.
    pub fn wait_for_access(&mut self, key: u64, until: Instant) -> bool {
        let access = &self.ours.access(self.inbox).key;
        let mut rounds = 0_u32;
        while key != 0 && access.load(Ordering::Acquire) == key && self.is_alive && !self.is_gone()
        {
            if Instant::now() >= until {
                return false;
            }
            rounds += 1;
            if rounds > 1000 {
                std::thread::sleep(Duration::from_micros(50));
            }
            std::thread::yield_now();
        }
        true
    }

    /// Whether the peer may still read or write memory of ours: by a key, or its part of a message that both copy.
    pub fn has_hold(&self) -> bool {
        let accesses = || self.ours.access(self.inbox).key.load(Ordering::Acquire) != 0;
        let copies = || {
            self.fetching.is_some()
                && self.offers.stands(self.theirs.offer(self.their_inbox)) == Stands::Waits
        };
        self.is_alive && (accesses() || copies()) && !self.is_gone()
    }
}

/// A message of the peer that is copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch {
    pub token: u64,
    /// What the peer calls it.
    pub message: u32,
    pub from: Span,
    pub into: Span,
}

impl Fetch {
    fn copy(&self, process: &Process, units: Units) -> Result<(), Refused> {
        let (from, into) = units.of(self.from).zip(units.of(self.into)).ok_or(Refused::Fault)?;
        reach::copy(process, reach::Way::Read, into, &[from])
    }
}

/// So many packets in a row are a stream: this many packets ahead its memory is fetched. (Where both take turns, the line that
/// is looked at next would be taken from the one who looks.)
const STREAM: u32 = 3;
const AHEAD: u64 = 2;
/// Looks at what the peer does last before something else is done.
const SPINS: u32 = 1 << 10;
/// And for something on the stage, before what is left is read instead.
const IDLE: u32 = 1 << 8;
