//! A fast lane beside a stream: short packets go by a wire that loses some, and everything else, and what was lost, by a
//! stream that loses nothing.
//!
//! Two peers have a stream in any case: it is where they proved themselves, and it notices a death. Where both have a wire
//! too, they tell each other over the stream how they are found there, measure a few round trips by each, and use
//! the wire when it is better. From then on
//!
//! ```text
//!   short packet ── frame ──► wire ─────────────► Sink::packet          one frame for those that leave together
//!   long one, posted one ───► stream ───────────► Sink::packet, placed
//!   frame that is not acknowledged ──► stream     within 2 ms, or as soon as a later one has come
//!                                  ──► wire       where its sender does not poll meanwhile
//! ```
//!
//! and all arrive once and in the order in which they were sent. A frame goes by the stream at most once, so a wire that is
//! cut, a card that is down and a peer that computes cost time, and nothing else: what the stream promises holds.
//! Where frames arrive by the stream only, the wire is left, and tried again later. When the stream of a peer has ended, its
//! frames that have come are taken before it is dead.
//!
//! What is here is pure: a [`Wire`] brings frames and the time, a [`Stream`] packets.
//!
//! A frame carries a key that its receiver chose and told over the stream, whose other end has been proven: frames of
//! strangers are dropped before anything else of them is looked at.

mod frame;
mod link;
mod measure;
mod order;
mod upkeep;
mod wire;

use covey_wire::transport::{OneCopy, Published, Refused, Sink, Transfer};
use covey_wire::{Peer, Span, Transport};
use frame::{About, HEADER_BYTES, Header, Kind, Offer};
use link::{Busy, Link, Through};
use order::{By, Lane, Owes};
use std::time::Duration;

pub use frame::PLACE_BYTES;
pub use measure::Outcome;
pub use wire::{Sent, Stream, Wire};

/// When the wire is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Where it was measured to be better.
    #[default]
    Better,
    /// Wherever a peer answers by it.
    Always,
    /// Nowhere.
    Never,
}

/// How frames reach this side from one peer.
#[derive(Clone, Copy, Debug)]
pub struct Here {
    /// Where the wire finds us.
    pub place: [u8; PLACE_BYTES],
    /// What its frames begin with, so that all others can be dropped early.
    pub number: u32,
    /// What only this peer is told. Not to be guessed.
    pub key: u64,
    /// Longest frame.
    pub frame_bytes_max: u16,
    /// Frames that the peer may have under way.
    pub window: u16,
}

/// A peer whose stream has ended, and until when frames of it are awaited.
#[derive(Clone, Copy, Debug)]
struct Dying {
    peer: Peer,
    until_ns: u64,
    until_taken: u64,
}

/// A stream with a lane beside it.
#[derive(Debug)]
pub struct Laned<T: Stream, W: Wire> {
    stream: T,
    wire: W,
    choice: Choice,
    /// By the numbers of the stream's peers.
    links: Vec<Link>,
    /// Those for which something is to be done when time passes.
    busy: Vec<u32>,
    /// Peers with which frames are, or may be, exchanged.
    offers: usize,
    gathers: bool,
    is_urgent: bool,
    /// Frames of some peer may be missing at the wire.
    has_suspects: bool,
    /// Peers whose streams have ended.
    dying: Vec<Dying>,
    /// Frames that were taken from the wire.
    taken: u64,
    rounds: u32,
    looked_ms: u64,
}

impl<T: Stream, W: Wire> Laned<T, W> {
    /// Without a lane to anybody.
    pub fn new(stream: T, wire: W, choice: Choice) -> Laned<T, W> {
        Laned {
            stream,
            wire,
            choice,
            links: Vec::new(),
            busy: Vec::new(),
            offers: 0,
            gathers: false,
            is_urgent: false,
            has_suspects: false,
            dying: Vec::new(),
            taken: 0,
            rounds: 0,
            looked_ms: 0,
        }
    }

    /// The stream.
    pub fn stream(&mut self) -> &mut T {
        &mut self.stream
    }

    /// The wire.
    pub fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    /// Tells a peer how frames reach us. The lane is used when it has done the same.
    pub fn offer(&mut self, peer: Peer, here: Here) {
        if self.choice == Choice::Never {
            return;
        }
        self.make_room(peer);
        let link = &mut self.links[peer.0 as usize];
        if link.here.replace(here).is_none() {
            self.offers += 1;
        }
        let Here { place, number, key, frame_bytes_max, window } = here;
        let offer = Offer { place, number, lane: peer.0, key, frame_bytes_max, window };
        link.says.push_back(About::Offer(offer));
        self.see_to(peer);
    }

    /// Whether the wire may be used at all.
    pub fn may_offer(&self) -> bool {
        self.choice != Choice::Never
    }

    /// Whether the wire is used wherever that is possible.
    pub fn is_forced(&self) -> bool {
        self.choice == Choice::Always
    }

    /// Whether short packets go by the wire to this peer.
    pub fn uses_wire(&self, peer: Peer) -> bool {
        self.links.get(peer.0 as usize).is_some_and(|link| link.uses)
    }

    /// What frames to a peer begin with: the number of its socket, of the pair, and the key.
    #[cfg(test)]
    pub(crate) fn names(&self, peer: Peer) -> Option<[u8; 16]> {
        let Offer { number, lane, key, .. } = self.links.get(peer.0 as usize)?.there?;
        let numbers = u64::from(number) | u64::from(lane) << 32;
        Some((u128::from(numbers) | u128::from(key) << 64).to_le_bytes())
    }

    /// What was measured last with this peer, on the side that measured.
    pub fn outcome(&self, peer: Peer) -> Option<Outcome> {
        self.links.get(peer.0 as usize)?.outcome
    }

    fn make_room(&mut self, peer: Peer) {
        while self.links.len() <= peer.0 as usize {
            self.links.push(Link { pause_ns: PAUSE_NS_MIN, ..Link::default() });
        }
    }

    fn see_to(&mut self, peer: Peer) {
        let link = &mut self.links[peer.0 as usize];
        if !link.is_busy {
            link.is_busy = true;
            self.busy.push(peer.0);
        }
    }

    /// Sends the frame that is being built.
    fn emit(&mut self, peer: Peer) {
        let link = &mut self.links[peer.0 as usize];
        let Some(Offer { number, lane, key, .. }) = link.there else { return };
        let Some((sequence, frame)) = link.lane.finish(number, lane, key) else { return };
        match self.wire.send(peer, frame) {
            Sent::Yes => {
                (link.failed, link.busy) = (0, None);
                self.wire.keep(peer, sequence, frame);
            }
            sent => {
                self.is_urgent = true;
                self.did_not_leave(peer, sent);
            }
        }
    }

    /// A frame waits a moment for a wire that is busy, and goes by the stream otherwise.
    #[cold]
    fn did_not_leave(&mut self, peer: Peer, sent: Sent) {
        let link = &mut self.links[peer.0 as usize];
        let now = self.wire.now_ns();
        let busy = link.busy.get_or_insert(Busy { since_ns: now, tries: 0 });
        busy.tries += 1;
        let is_busy = now < busy.since_ns + BUSY_NS_MAX || busy.tries < BUSY_TRIES_MIN;
        if sent == Sent::Busy && is_busy {
            link.lane.take_back();
        } else {
            link.busy = None;
            link.lane.failed();
            link.failed += 1;
        }
    }

    /// Sends a frame without packets.
    fn emit_word(&mut self, peer: Peer, kind: Kind) {
        let link = &mut self.links[peer.0 as usize];
        let Some(Offer { number, lane, key, .. }) = link.there else { return };
        let mut frame = [0; HEADER_BYTES];
        link.lane.header(number, lane, key, kind).put(&mut frame);
        self.wire.send(peer, &frame);
        link.lane.told();
    }

    /// Sends a ping or a pong, as long as it may be or shorter.
    fn emit_ping(&mut self, peer: Peer, kind: Kind, sequence: u32, bytes: usize) {
        let link = &mut self.links[peer.0 as usize];
        let Some(Offer { number, lane, key, .. }) = link.there else { return };
        let header = Header { sequence, ..link.lane.header(number, lane, key, kind) };
        let mut frame = vec![0; HEADER_BYTES];
        header.put(&mut frame);
        // What follows the packets, here none, is left out by whoever takes it.
        frame.resize(bytes.clamp(HEADER_BYTES, link.frame_bytes_max.max(HEADER_BYTES)), 0);
        self.wire.send(peer, &frame);
        link.lane.told();
    }

    /// Whether a packet may go by the stream now. Where frames may still be lost, they are asked for.
    fn may_go_by_stream(&mut self, peer: Peer) -> bool {
        let Some(link) = self.links.get(peer.0 as usize) else { return true };
        if link.is_dead || link.lane.is_settled() {
            return true;
        }
        self.emit(peer);
        self.see_to(peer);
        if self.links[peer.0 as usize].lane.asks() {
            self.emit_word(peer, Kind::Ask);
        }
        false
    }

    fn gave_stream(&mut self, peer: Peer) {
        self.make_room(peer);
        let lane = &mut self.links[peer.0 as usize].lane;
        lane.sent = lane.sent.wrapping_add(1);
    }

    /// Takes the frames that have come.
    fn take_frames(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        let mut happened = 0;
        while happened < budget && sink.wants_more() {
            let (links, mut whose) = (&mut self.links, None);
            let is_there = self.wire.next(|frame| {
                let Some((header, packets)) = Header::of(frame) else { return };
                let peer = Peer(header.lane);
                let Some(link) = links.get_mut(header.lane as usize) else { return };
                if link.is_ours(&header) {
                    link.take(peer, &header, packets, By::Wire, sink);
                    whose = Some((peer, header, frame.len()));
                }
            });
            if !is_there {
                break;
            }
            happened += 1;
            let Some((peer, Header { kind, sequence, .. }, bytes)) = whose else { continue };
            if kind == Kind::Ping {
                self.emit_ping(peer, Kind::Pong, sequence, bytes);
            }
            let link = &self.links[peer.0 as usize];
            self.is_urgent |= link.is_urgent();
            self.wire.release(peer, link.lane.awaited());
            self.see_to(peer);
        }
        self.taken += happened as u64;
        happened
    }

    /// The wire has no more frames: what the stream has brought instead will not come.
    fn note_missing(&mut self) {
        if std::mem::take(&mut self.has_suspects) {
            for number in &self.busy {
                let link = &mut self.links[*number as usize];
                link.is_missing = link.is_suspect();
                self.is_urgent |= link.is_missing;
            }
        }
    }

    fn poll_stream(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        let links = &mut self.links;
        let (heard, ended, gone) = (Vec::new(), Vec::new(), Vec::new());
        let mut through = Through { sink, links, heard, ended, gone };
        let happened = self.stream.poll(budget, &mut through);
        let Through { heard, ended, gone, .. } = through;
        gone.into_iter().for_each(|peer| self.forget(peer));
        self.heed(heard);
        if !ended.is_empty() {
            let (until_ns, until_taken) = (self.wire.now_ns() + LAST_NS, self.taken + LAST_FRAMES);
            self.dying.extend(ended.into_iter().map(|peer| Dying { peer, until_ns, until_taken }));
        }
        happened
    }

    /// Peers whose streams have ended are dead when what they had sent before has been taken: the wire has nothing more, also a
    /// moment later, or has had more than it has room for.
    #[cold]
    fn bury(&mut self, is_empty: bool, sink: &mut impl Sink) -> usize {
        let (now, taken, mut over) = (self.wire.now_ns(), self.taken, Vec::new());
        self.dying.retain(|dying| {
            let is_over = is_empty && now >= dying.until_ns || taken >= dying.until_taken;
            over.extend(is_over.then_some(dying.peer));
            !is_over
        });
        for peer in &over {
            self.forget(*peer);
            sink.dead(*peer);
        }
        over.len()
    }

    /// Nothing is kept for a dead peer: what it had of the wire is for others.
    fn forget(&mut self, peer: Peer) {
        let link = &mut self.links[peer.0 as usize];
        self.offers -= usize::from(link.here.is_some());
        link.bury();
        self.wire.forget(peer);
    }

    /// Whether the stream is to be polled this time.
    fn is_stream_due(&self) -> bool {
        self.offers == 0 || self.rounds.is_multiple_of(STREAM_ROUNDS) || self.stream.is_busy()
    }
}

impl<T: Stream, W: Wire> Transport for Laned<T, W> {
    fn packet_bytes_max(&self, peer: Peer) -> usize {
        self.stream.packet_bytes_max(peer)
    }

    #[inline]
    fn send(
        &mut self,
        peer: Peer,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        let link = self.links.get_mut(peer.0 as usize);
        if let Some(link) = link.filter(|link| link.uses)
            && Lane::fits(head, bytes, link.frame_bytes_max)
        {
            if link.lane.is_full() {
                return Err(Refused::Full);
            }
            let longest = link.frame_bytes_max;
            if !link.lane.has_room(head, bytes, longest) {
                self.emit(peer);
                let lane = &self.links[peer.0 as usize].lane;
                if lane.is_full() || !lane.has_room(head, bytes, longest) {
                    return Err(Refused::Full);
                }
            }
            self.links[peer.0 as usize].lane.add(head, bytes, fill);
            if !self.gathers {
                self.emit(peer);
            }
            self.see_to(peer);
            return Ok(());
        }
        if !self.may_go_by_stream(peer) {
            return Err(Refused::Full);
        }
        self.stream.send(peer, head, bytes, fill)?;
        self.gave_stream(peer);
        Ok(())
    }

    fn gather(&mut self, may_gather: bool) {
        self.gathers = may_gather;
        if !may_gather {
            for at in 0..self.busy.len() {
                self.emit(Peer(self.busy[at]));
            }
        }
        self.stream.gather(may_gather);
    }

    fn post_bytes_max(&self, peer: Peer) -> usize {
        self.stream.post_bytes_max(peer)
    }

    fn post(
        &mut self,
        token: u64,
        peer: Peer,
        head: &[u8],
        payload: Span,
    ) -> Result<Transfer, Refused> {
        if !self.may_go_by_stream(peer) {
            return Err(Refused::Full);
        }
        let posted = self.stream.post(token, peer, head, payload)?;
        self.gave_stream(peer);
        Ok(posted)
    }

    #[inline]
    fn poll(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        let mut happened = 0;
        if self.offers > 0 && budget > 0 {
            self.rounds = self.rounds.wrapping_add(1);
            if self.gathers {
                (0..self.busy.len()).for_each(|at| self.emit(Peer(self.busy[at])));
            }
            happened += self.take_frames(budget, sink);
            let is_empty = happened < budget && sink.wants_more();
            if is_empty {
                self.note_missing();
            }
            if !self.dying.is_empty() {
                happened += self.bury(is_empty, sink);
            }
        }
        // With a budget of 0 the stream says who has joined.
        if budget == 0 || self.is_stream_due() && sink.wants_more() {
            // Frames without end do not keep it from being heard.
            happened += self.poll_stream(budget.min(budget.saturating_sub(happened).max(1)), sink);
        }
        if !self.busy.is_empty() && budget > 0 {
            let ms =
                if self.rounds.is_multiple_of(4) { self.wire.coarse_ms() } else { self.looked_ms };
            if self.is_urgent || self.rounds.is_multiple_of(KEEP_ROUNDS) || ms != self.looked_ms {
                self.looked_ms = ms;
                self.keep_up();
            }
        }
        happened
    }

    fn is_reachable(&self, peer: Peer) -> bool {
        self.stream.is_reachable(peer)
    }

    fn view(&mut self, peer: Peer, theirs: Span) -> Option<Span> {
        self.stream.view(peer, theirs)
    }

    fn one_copy(&self, peer: Peer) -> OneCopy {
        self.stream.one_copy(peer)
    }

    fn read(
        &mut self,
        token: u64,
        peer: Peer,
        from: &[Span],
        into: Span,
    ) -> Result<Transfer, Refused> {
        self.stream.read(token, peer, from, into)
    }

    fn fetch(
        &mut self,
        token: u64,
        peer: Peer,
        message: u32,
        from: Span,
        into: Span,
    ) -> Result<Transfer, Refused> {
        self.stream.fetch(token, peer, message, from, into)
    }

    fn write(
        &mut self,
        token: u64,
        peer: Peer,
        from: Span,
        to: &[Span],
    ) -> Result<Transfer, Refused> {
        self.stream.write(token, peer, from, to)
    }

    fn publish(&mut self, slot: u32, what: Option<Published>) {
        self.stream.publish(slot, what);
    }

    fn settle(&mut self, key: u64, patience: Duration) -> bool {
        self.stream.settle(key, patience)
    }

    fn enter(&mut self, peer: Peer, slot: u32, key: u64) -> Result<Published, Refused> {
        self.stream.enter(peer, slot, key)
    }

    fn leave(&mut self, peer: Peer) {
        self.stream.leave(peer);
    }

    fn end(&mut self, peer: Peer) {
        if let Some(link) = self.links.get_mut(peer.0 as usize) {
            link.is_let_go = true;
        }
        self.stream.end(peer);
    }

    fn sleep_on(&self) -> Option<i32> {
        self.stream.sleep_on()
    }

    fn prepare_sleep(&mut self) -> bool {
        if !self.busy.is_empty() {
            // What is owed is paid first; what may be lost keeps us awake until it is known, or goes by the stream.
            for number in &self.busy {
                let lane = &mut self.links[*number as usize].lane;
                if lane.owes != Owes::Nothing {
                    lane.asked();
                }
            }
            self.keep_up();
        }
        let is_quiet = self.dying.is_empty()
            && self.busy.iter().all(|number| !self.links[*number as usize].keeps_awake());
        if !is_quiet || !self.wire.prepare_sleep() {
            return false;
        }
        if self.stream.prepare_sleep() {
            return true;
        }
        self.wire.woke();
        false
    }

    fn woke(&mut self) {
        self.wire.woke();
        self.stream.woke();
        // The next poll looks at the stream.
        self.rounds = STREAM_ROUNDS - 1;
    }
}

impl<T: Stream, W: Wire> Drop for Laned<T, W> {
    /// What may be lost goes by the stream, which delivers it after our end.
    fn drop(&mut self) {
        for number in 0..self.links.len() {
            let link = &mut self.links[number];
            if link.is_dead || link.lane.is_settled() {
                continue;
            }
            self.emit(Peer(number as u32));
            self.links[number].lane.give_up();
            self.tell(Peer(number as u32), u64::MAX);
        }
    }
}

/// Polls between two looks at the stream, while little comes by it.
const STREAM_ROUNDS: u32 = 32;
/// Polls between two looks at the clock.
const KEEP_ROUNDS: u32 = 8;
/// How long each frame waits for a busy wire, and how often it is tried at least: a program that computes between two tries
/// has not seen whether the wire was busy meanwhile.
const BUSY_NS_MAX: u64 = 2_000_000;
const BUSY_TRIES_MIN: u32 = 4;
/// How long frames are awaited of a peer whose stream has ended, and how many frames of all peers are taken meanwhile: more
/// than a wire keeps.
const LAST_NS: u64 = 1_000_000;
const LAST_FRAMES: u64 = 2048;
/// Until the wire is measured again.
const PAUSE_NS_MIN: u64 = 1_000_000_000;
const PAUSE_NS_MAX: u64 = 64_000_000_000;

#[cfg(test)]
mod tests;
