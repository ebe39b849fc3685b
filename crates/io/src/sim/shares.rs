//! Messages that both ends copy, simulated: who copies which piece, and when, comes from the seed; and who dies between
//! having claimed a piece and having copied it.

use super::Rng;
use super::carrier::{Carriers, Net};
use covey_wire::Span;
use covey_wire::transport::{Refused, Sink};

/// A fetch that was started.
#[derive(Debug)]
pub(super) struct Share {
    pub token: u64,
    /// Who receives.
    pub owner: usize,
    /// Who sends.
    pub helper: usize,
    pub message: u32,
    pub from: Span,
    pub into: Span,
    pub pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    at: u64,
    bytes: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// By the sender.
    Claimed,
    Done,
}

/// What is to be copied now.
pub(super) type Copy = (Span, Span);

impl Share {
    /// Cuts a transfer into some pieces.
    pub fn pieces(rng: &mut Rng, bytes: u64) -> Vec<Piece> {
        let mut cuts: Vec<u64> = (0..rng.below(5)).map(|_| rng.below(bytes)).collect();
        cuts.extend([0, bytes]);
        cuts.sort_unstable();
        let piece = |two: &[u64]| Piece { at: two[0], bytes: two[1] - two[0], state: State::Free };
        cuts.windows(2).map(piece).collect()
    }

    fn is_done(&self) -> bool {
        self.pieces.iter().all(|piece| piece.state == State::Done)
    }

    fn copy(&self, piece: usize) -> Option<Copy> {
        let Piece { at, bytes, .. } = self.pieces[piece];
        self.from.part(at, bytes).zip(self.into.part(at, bytes))
    }

    fn any(&self, rng: &mut Rng, state: State) -> Option<usize> {
        let is_it = |at: &usize| self.pieces[*at].state == state;
        let all: Vec<usize> = (0..self.pieces.len()).filter(is_it).collect();
        (!all.is_empty()).then(|| all[rng.index(all.len())])
    }
}

impl Net {
    /// A fetch of this process that has ended.
    pub fn fetched(&mut self, me: usize) -> Option<(u64, Result<(), Refused>)> {
        let ended = |share: &Share| share.is_done() || self.ends[share.helper].is_dead;
        let at = self.shares.iter().position(|share| share.owner == me && ended(share))?;
        let share = self.shares.remove(at);
        Some((share.token, if share.is_done() { Ok(()) } else { Err(Refused::Dead) }))
    }

    /// Whether fetches from a process have not ended.
    pub fn fetches(&self, me: usize, other: usize) -> bool {
        self.shares.iter().any(|share| (share.owner, share.helper) == (me, other))
    }

    /// A piece that this process copies now, as a receiver or a sender.
    pub fn share(&mut self, me: usize, sink: &mut impl Sink) -> Option<Copy> {
        self.shares.retain(|share| !self.ends[share.owner].is_dead);
        let at = self.rng.index(self.shares.len().max(1));
        let (share, rng) = (self.shares.get_mut(at)?, &mut self.rng);
        // The receiver is the slower one, or little would be left to its sender.
        let luck = if share.owner == me { 60 } else { 400 };
        if !rng.chance(luck) || self.ends[share.helper].is_dead {
            return None;
        }
        if share.owner == me {
            let piece = share.any(rng, State::Free)?;
            share.pieces[piece].state = State::Done;
            return share.copy(piece);
        }
        if share.helper != me {
            return None;
        }
        if let Some(piece) = share.any(rng, State::Claimed) {
            let gives_back = rng.chance(100);
            self.helped += u64::from(!gives_back);
            share.pieces[piece].state = if gives_back { State::Free } else { State::Done };
            return share.copy(piece).filter(|_| !gives_back);
        }
        let piece = share.any(rng, State::Free)?;
        ask(share, sink);
        share.pieces[piece].state = State::Claimed;
        None
    }
}

/// A message that is fetched waits, and is all that its receiver may see.
fn ask(share: &Share, sink: &impl Sink) {
    let (peer, message) = (Carriers::peer(share.helper, share.owner), share.message);
    let lends = |message, span| sink.lends(peer, message, span);
    assert!(lends(message, share.from), "{share:?} does not wait");
    assert!(!lends(message ^ 1 << 20, share.from), "another message");
    let before = Span::new(share.from.address - 1, 2);
    assert!(!lends(message, before), "memory before the message");
    assert!(!lends(message, Span::new(share.from.address, u64::MAX)), "memory after it");
}
