//! What a lane is made of: a wire for its frames, and a stream beside it.

use super::PLACE_BYTES;
use covey_wire::{Peer, Transport};

/// Sends frames, of which some are lost, doubled, or overtaken by others; none is changed.
pub trait Wire {
    /// The peer is found there. Whether frames can be sent to it.
    fn connect(&mut self, peer: Peer, at: &[u8; PLACE_BYTES]) -> bool;

    /// Sends one, with luck.
    fn send(&mut self, peer: Peer, frame: &[u8]) -> Sent;

    /// Sends one again now and then, also while nobody calls, until it is released: it was sent under this number.
    fn keep(&mut self, peer: Peer, sequence: u32, frame: &[u8]) {
        let _ = (peer, sequence, frame);
    }

    /// All frames before this number have come, or the stream brings them.
    fn release(&mut self, peer: Peer, before: u32) {
        let _ = (peer, before);
    }

    /// The peer is gone.
    fn forget(&mut self, peer: Peer) {
        let _ = peer;
    }

    /// Lends the next frame that has come. False when there is none.
    fn next(&mut self, take: impl FnMut(&[u8])) -> bool;

    /// Nanoseconds since any moment that stays the same.
    fn now_ns(&self) -> u64;

    /// Milliseconds of a clock that costs less to look at.
    fn coarse_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    /// As [`Transport::prepare_sleep`].
    fn prepare_sleep(&mut self) -> bool {
        true
    }

    /// As [`Transport::woke`].
    fn woke(&mut self) {}
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Yes,
    /// There was no room for it: the wire is busy, and as good as before.
    Busy,
    /// It did not leave.
    No,
}

/// A transport that a lane can lie beside.
pub trait Stream: Transport {
    /// Ends the connection with a peer that breaks the rules; it is found to be dead.
    fn expel(&mut self, peer: Peer);

    /// Little will come from this peer: it may be looked at seldom.
    fn rest(&mut self, peer: Peer) {
        let _ = peer;
    }

    /// Everything from this peer comes by it again.
    fn rouse(&mut self, peer: Peer) {
        let _ = peer;
    }

    /// Whether it has had something lately, so that it should be polled each time.
    fn is_busy(&self) -> bool {
        true
    }
}
