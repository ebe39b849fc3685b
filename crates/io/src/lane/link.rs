//! What is known of one peer, and what the two ways bring from it.

use super::frame::{self, About, Header, Kind, Offer, Packets};
use super::measure::{Measure, Outcome};
use super::order::{Arrived, By, Lane, Owes};
use super::{Here, PAUSE_NS_MAX, PAUSE_NS_MIN};
use covey_wire::transport::{Refused, Sink};
use covey_wire::{Peer, Span};
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Link {
    pub is_dead: bool,
    pub is_busy: bool,
    pub here: Option<Here>,
    pub there: Option<Offer>,
    /// Of both sides' limits.
    pub frame_bytes_max: usize,
    /// Short packets are sent by frames.
    pub uses: bool,
    pub lane: Lane,
    pub measure: Option<Measure>,
    pub outcome: Option<Outcome>,
    /// What the stream is still to be given.
    pub says: VecDeque<About>,
    /// The stream has brought the answer to a measurement; the wire has.
    pub answered: bool,
    pub answered_by_wire: Option<u32>,
    /// Frames that only the stream has brought, since the wire brought one. They may wait at the wire still.
    pub missed: u32,
    /// The wire had nothing more when it was looked at after that.
    pub is_missing: bool,
    /// Frames that did not leave, since one did; and how long the next one has waited for a busy wire.
    pub failed: u32,
    pub busy: Option<Busy>,
    /// When it is measured again, and after how long the next time.
    pub again_ns: Option<u64>,
    pub pause_ns: u64,
    /// It broke the rules.
    pub is_wrong: bool,
    /// The engine wants nothing of it any more.
    pub is_let_go: bool,
}

/// A frame for which the wire has had no room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    pub since_ns: u64,
    pub tries: u32,
}

/// What the stream has brought about a lane.
pub(super) enum Word {
    Offer(Offer),
    Use,
    Stop,
    Any,
}

impl Link {
    /// Whether a frame is from the peer that was told the key.
    pub fn is_ours(&self, header: &Header) -> bool {
        !self.is_dead
            && !self.is_wrong
            && !self.is_let_go
            && self.here.is_some_and(|here| here.key == header.key)
    }

    pub fn take(
        &mut self,
        peer: Peer,
        header: &Header,
        packets: Packets<'_>,
        by: By,
        sink: &mut impl Sink,
    ) {
        self.lane.acknowledged(header.expected, header.kind == Kind::Gap);
        match header.kind {
            Kind::Packets => {
                let deliver = |head: &[u8], payload: &[u8]| give(peer, head, payload, sink);
                let arrived = self.lane.arrived(header, packets, by, deliver);
                match (by, arrived) {
                    (By::Wire, _) => (self.missed, self.is_missing) = (0, false),
                    (By::Stream, Arrived::New) => self.missed += 1,
                    (By::Stream, Arrived::Again) => {}
                }
            }
            Kind::Ack | Kind::Gap | Kind::Ping => {}
            Kind::Ask => self.lane.asked(),
            Kind::Pong => self.answered_by_wire = Some(header.sequence),
        }
    }

    /// What the stream has brought.
    pub fn hear(&mut self, peer: Peer, about: Option<About>, sink: &mut impl Sink) -> Word {
        if self.is_let_go {
            return Word::Any;
        }
        match about {
            Some(About::Offer(offer)) => return Word::Offer(offer),
            Some(About::Use) => return Word::Use,
            Some(About::Stop) => return Word::Stop,
            Some(About::Ping) => self.says.push_back(About::Pong),
            Some(About::Pong) => self.answered = true,
            Some(About::Ack(expected)) => self.lane.acknowledged(expected, false),
            Some(About::Resent(frame)) => match Header::of(&frame) {
                Some((header, packets)) if self.is_ours(&header) => {
                    self.take(peer, &header, packets, By::Stream, sink);
                    // The wire may be what loses acknowledgements.
                    self.says.retain(|about| !matches!(about, About::Ack(_)));
                    self.says.push_back(About::Ack(self.lane.expected()));
                }
                _ => self.is_wrong = true,
            },
            None => self.is_wrong = true,
        }
        // Its answers are not taken: a peer that floods is none.
        self.is_wrong |= self.says.len() > SAYS_MAX;
        Word::Any
    }

    /// Whether so many frames did not come by the wire that it is to be left, unless they come late.
    pub fn is_suspect(&self) -> bool {
        self.uses && self.missed >= MISSED_MAX
    }

    /// Whether the wire is to be left.
    pub fn is_lost(&self) -> bool {
        self.is_suspect() && self.is_missing || self.uses && self.failed >= MISSED_MAX
    }

    pub fn stop(&mut self, now: u64) {
        self.uses = false;
        self.lane.give_up();
        self.measure = None;
        self.measure_later(now);
    }

    /// Nothing is taken from it or sent to it any more.
    pub fn bury(&mut self) {
        *self = Link { is_dead: true, is_busy: self.is_busy, ..Link::default() };
    }

    /// Who measures does so again after a while.
    pub fn measure_later(&mut self, now: u64) {
        let (Some(here), Some(there)) = (self.here, self.there) else { return };
        if here.key < there.key {
            self.again_ns = Some(now + self.pause_ns);
            self.pause_ns = (self.pause_ns * 2).min(PAUSE_NS_MAX);
        }
    }

    pub fn is_urgent(&self) -> bool {
        matches!(self.lane.owes, Owes::Now | Owes::Gap) || self.answered_by_wire.is_some()
    }

    /// Whether something is to be done for it when time passes.
    pub fn is_waiting(&self) -> bool {
        let is_busy = self.lane.is_busy() || !self.says.is_empty() || self.measure.is_some();
        let is_doubted = self.is_suspect() || self.is_wrong;
        !self.is_dead && (is_busy || self.again_ns.is_some() || is_doubted)
    }

    /// The same, but for what may be done late.
    pub fn keeps_awake(&self) -> bool {
        !self.is_dead && (self.lane.is_busy() || !self.says.is_empty())
    }
}

/// An engine that hears what the stream brings, and nothing of what is said about lanes.
pub(super) struct Through<'a, S> {
    pub sink: &'a mut S,
    pub links: &'a mut Vec<Link>,
    pub heard: Vec<(Peer, Word)>,
    /// Peers that are dead as soon as their frames have been taken.
    pub ended: Vec<Peer>,
    /// Peers that are dead.
    pub gone: Vec<Peer>,
}

impl<S: Sink> Through<'_, S> {
    fn link(&mut self, peer: Peer) -> &mut Link {
        while self.links.len() <= peer.0 as usize {
            self.links.push(Link { pause_ns: PAUSE_NS_MIN, ..Link::default() });
        }
        &mut self.links[peer.0 as usize]
    }

    /// A packet of the stream has been taken: frames may have waited for it.
    fn took(&mut self, peer: Peer) {
        self.link(peer);
        let lane = &mut self.links[peer.0 as usize].lane;
        lane.received = lane.received.wrapping_add(1);
        let sink = &mut *self.sink;
        lane.catch_up(|head, payload| give(peer, head, payload, sink));
    }
}

impl<S: Sink> Sink for Through<'_, S> {
    fn joined(&mut self, peer: Peer) {
        self.link(peer);
        self.sink.joined(peer);
    }

    fn packet(&mut self, peer: Peer, head: &[u8], payload: &[u8]) {
        if head.first() == Some(&frame::ABOUT) {
            let about = About::decode(head, payload);
            self.link(peer);
            let word = self.links[peer.0 as usize].hear(peer, about, self.sink);
            self.heard.push((peer, word));
            return;
        }
        self.sink.packet(peer, head, payload);
        self.took(peer);
    }

    fn wants_more(&self) -> bool {
        self.sink.wants_more()
    }

    fn place(&mut self, peer: Peer, head: &[u8], bytes: usize) -> Option<Span> {
        if head.first() == Some(&frame::ABOUT) {
            return None;
        }
        self.sink.place(peer, head, bytes)
    }

    fn placed(&mut self, peer: Peer, head: &[u8], bytes: usize) {
        self.sink.placed(peer, head, bytes);
        self.took(peer);
    }

    fn lends(&self, peer: Peer, message: u32, span: Span) -> bool {
        self.sink.lends(peer, message, span)
    }

    fn sent(&mut self, token: u64) {
        self.sink.sent(token);
    }

    fn done(&mut self, token: u64, result: Result<(), Refused>) {
        self.sink.done(token, result);
    }

    fn dead(&mut self, peer: Peer) {
        let link = self.link(peer);
        if link.there.is_some() && !link.is_wrong && !link.is_let_go {
            // Nothing is sent any more.
            (link.uses, link.measure, link.again_ns) = (false, None, None);
            link.lane.give_up();
            self.ended.push(peer);
            return;
        }
        self.gone.push(peer);
        self.sink.dead(peer);
    }
}

/// A packet of a frame, for the engine. One about a lane has no business there.
fn give(peer: Peer, head: &[u8], payload: &[u8], sink: &mut impl Sink) {
    if head.first() != Some(&frame::ABOUT) {
        sink.packet(peer, head, payload);
    }
}

/// Frames, one after the other, that only the stream has brought, or that did not leave, before the wire is left.
const MISSED_MAX: u32 = 8;
/// Answers that the stream has not taken.
const SAYS_MAX: usize = 256;
