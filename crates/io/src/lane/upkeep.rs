//! What is done when time has passed, and when something was said about a lane.

use super::frame::{About, Kind, Offer};
use super::link::Word;
use super::measure::{Length, Measure, Next};
use super::order::Owes;
use super::{Choice, Laned, Stream, Wire};
use covey_wire::Peer;
use covey_wire::transport::Refused;

impl<T: Stream, W: Wire> Laned<T, W> {
    /// Does what is due.
    pub(super) fn keep_up(&mut self) {
        self.is_urgent = false;
        let now = self.wire.now_ns();
        let mut at = 0;
        while let Some(number) = self.busy.get(at).copied() {
            self.keep_up_with(Peer(number), now);
            let link = &mut self.links[number as usize];
            link.is_busy = link.is_waiting();
            if link.is_busy {
                at += 1;
            } else {
                self.busy.swap_remove(at);
            }
        }
    }

    fn keep_up_with(&mut self, peer: Peer, now: u64) {
        let link = &mut self.links[peer.0 as usize];
        if link.is_dead {
            return;
        }
        if link.is_wrong {
            return self.stream.expel(peer);
        }
        if !self.gathers && link.lane.is_building() {
            self.emit(peer);
        }
        self.go_on_measuring(peer, now);
        let link = &mut self.links[peer.0 as usize];
        if link.is_lost() {
            link.says.push_back(About::Stop);
            link.stop(now);
            self.stream.rouse(peer);
        }
        let link = &mut self.links[peer.0 as usize];
        let owes = link.lane.owes;
        if link.lane.owes_now(now) {
            self.emit_word(peer, if owes == Owes::Gap { Kind::Gap } else { Kind::Ack });
        }
        self.tell(peer, now);
    }

    /// Gives the stream what is to go by it.
    pub(super) fn tell(&mut self, peer: Peer, now: u64) {
        let link = &mut self.links[peer.0 as usize];
        while let Some(frame) = link.lane.due(now) {
            let about = About::Resent(frame.to_vec());
            if !say(&mut self.stream, peer, &about) {
                return;
            }
            link.lane.resent();
            self.wire.release(peer, link.lane.awaited());
        }
        while let Some(about) = link.says.front() {
            if !say(&mut self.stream, peer, about) {
                return;
            }
            link.says.pop_front();
        }
    }

    fn go_on_measuring(&mut self, peer: Peer, now: u64) {
        let choice = self.choice;
        let link = &mut self.links[peer.0 as usize];
        if link.again_ns.is_some_and(|again| now >= again) {
            link.again_ns = None;
            link.measure = Some(Measure::new());
        }
        let Some(measure) = &mut link.measure else { return };
        let mut next = Next::Nothing;
        if let Some(round) = link.answered_by_wire.take() {
            next = measure.by_wire(round, now);
        }
        if next == Next::Nothing && std::mem::take(&mut link.answered) {
            next = measure.by_stream(now);
        }
        if next == Next::Nothing {
            next = measure.go_on(now);
        }
        match next {
            Next::Nothing => {}
            Next::PingStream => link.says.push_back(About::Ping),
            Next::PingWire(round, length) => {
                let bytes = match length {
                    Length::Shortest => 0,
                    Length::Longest => link.frame_bytes_max,
                };
                self.emit_ping(peer, Kind::Ping, round, bytes);
            }
            Next::Done(outcome) => {
                link.measure = None;
                link.outcome = Some(outcome);
                let is_taken = match choice {
                    Choice::Better => outcome.is_wire_better(),
                    Choice::Always => outcome.wire_ns.is_some(),
                    Choice::Never => false,
                };
                if is_taken {
                    link.says.push_back(About::Use);
                    self.begin_using(peer);
                } else {
                    link.measure_later(now);
                }
            }
        }
    }

    fn begin_using(&mut self, peer: Peer) {
        let link = &mut self.links[peer.0 as usize];
        link.uses = link.there.is_some() && !link.is_dead;
        (link.missed, link.failed, link.is_missing) = (0, 0, false);
        self.stream.rest(peer);
    }

    /// Does what was said about lanes over the stream.
    pub(super) fn heed(&mut self, heard: Vec<(Peer, Word)>) {
        for (peer, word) in heard {
            match word {
                Word::Offer(offer) => self.take_offer(peer, offer),
                Word::Use => self.begin_using(peer),
                Word::Stop => {
                    let now = self.wire.now_ns();
                    self.links[peer.0 as usize].stop(now);
                    self.stream.rouse(peer);
                }
                Word::Any => {}
            }
            self.is_urgent = true;
            self.wire.release(peer, self.links[peer.0 as usize].lane.awaited());
            self.has_suspects |= self.links[peer.0 as usize].is_suspect();
            self.see_to(peer);
        }
    }

    fn take_offer(&mut self, peer: Peer, offer: Offer) {
        let link = &mut self.links[peer.0 as usize];
        let Some(here) = link.here else { return };
        let bytes = usize::from(offer.frame_bytes_max.min(here.frame_bytes_max));
        if link.there.is_some()
            || offer.window == 0
            || bytes < FRAME_BYTES_MIN
            || !self.wire.connect(peer, &offer.place)
        {
            return;
        }
        link.lane.begin(offer.window, here.window);
        (link.there, link.frame_bytes_max) = (Some(offer), bytes);
        // One of the two measures.
        if here.key < offer.key {
            link.measure = Some(Measure::new());
        }
    }
}

/// Says something about the lane over the stream. False when there is no room now.
fn say(stream: &mut impl Stream, peer: Peer, about: &About) -> bool {
    let (head, payload) = about.encode();
    let said = stream.send(peer, &head, payload.len(), |place| place.copy_from_slice(&payload));
    said != Err(Refused::Full)
}

/// Shorter frames are not worth it.
const FRAME_BYTES_MIN: usize = 256;
