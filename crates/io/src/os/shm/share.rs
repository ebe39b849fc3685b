//! Long messages that both ends copy: while the receiver reads, the sender writes what has not been read.
//!
//! The receiver fills in an [`Offer`] in the sender's memory, which the sender looks at when it polls, and begins at
//! the front. Who wants to copy more claims the next units with one exchange of a word, so a sender that does not poll
//! has claimed nothing, and the receiver copies everything. What the sender could not write it gives back.
//!
//! ```text
//!   receiver: fills, opens ── copies its first part ── claims and copies ── all claimed: waits for what is not done
//!   sender:              └─ sees ─ claims ─ copies ── done ─ claims ...     none left
//! ```
//!
//! An offer is over when all its units are done, so nobody writes into memory of a receive that has ended.

use super::arena::Offer;
use super::ring::Broken;
use covey_wire::Span;
use std::sync::atomic::Ordering;

/// What is claimed is counted in these.
const UNIT: u64 = 4096;
/// What is worth an offer.
pub(super) const SHARED_BYTES_MIN: u64 = 32 << 10;
/// And what is not too long for one: its units have numbers of 32 bits, of which one bit is kept.
const SHARED_BYTES_MAX: u64 = UNIT << 31;
/// Copied in one go: a poll takes no longer than that.
const PIECE_UNITS_MAX: u64 = (256 << 10) / UNIT;
/// Less is not worth a call.
const PIECE_UNITS_MIN: u64 = (16 << 10) / UNIT;
/// Offers in a row that nobody took, after which most are not made.
const IGNORED_MAX: u32 = 4;
/// Of those, one of so many is made nevertheless.
const TRIED_OF: u32 = 16;
/// In the lower half of the word that tells what is done: the last claim was given back.
const GIVEN_BACK: u64 = 1 << 31;
const LOWER: u64 = u32::MAX as u64;

/// A range of units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Units {
    first: u64,
    count: u64,
}

impl Units {
    /// That part of a span.
    pub fn of(self, span: Span) -> Option<Span> {
        let at = self.first.checked_mul(UNIT)?;
        let bytes = self.count.saturating_mul(UNIT).min(span.bytes.checked_sub(at)?);
        span.part(at, bytes)
    }
}

fn units(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT)
}

/// A good piece of what is left: smaller ones towards the end, so that both end together.
fn piece(left: u64) -> u64 {
    if left < 2 * PIECE_UNITS_MIN { left } else { (left / 2).min(PIECE_UNITS_MAX) }
}

/// What the receiver copies before it looks at what the sender does, who comes later.
fn first_piece(all: u64) -> u64 {
    (all * 5).div_ceil(8).min(PIECE_UNITS_MAX)
}

/// The receiver's side: which offers are made, and what became of the last.
#[derive(Debug, Default)]
pub(super) struct Offers {
    sequence: u32,
    ignored: u32,
    open: Option<Open>,
}

/// An offer that is not over.
#[derive(Clone, Copy, Debug)]
struct Open {
    all: u64,
    /// Copied here.
    mine: u64,
    /// The word, as it was last seen.
    claim: u64,
}

impl Offers {
    /// Whether to make one.
    pub fn wants(&mut self, bytes: u64) -> bool {
        if !(SHARED_BYTES_MIN..SHARED_BYTES_MAX).contains(&bytes) || self.open.is_some() {
            return false;
        }
        let is_heard = self.ignored < IGNORED_MAX;
        self.ignored += u32::from(!is_heard);
        is_heard || self.ignored.is_multiple_of(TRIED_OF)
    }

    /// Makes one, and says what is to be copied here first.
    pub fn open(&mut self, offer: &Offer, message: u32, from: Span, into: Span) -> Units {
        self.sequence = self.sequence.wrapping_add(1);
        let all = units(from.bytes);
        let count = first_piece(all);
        offer.message.store(message.into(), Ordering::Relaxed);
        offer.from.store(from.address, Ordering::Relaxed);
        offer.into.store(into.address, Ordering::Relaxed);
        offer.bytes.store(from.bytes, Ordering::Relaxed);
        let claim = u64::from(self.sequence) << 32 | count;
        // The peer reads the rest only when it has seen this word.
        offer.claim.store(claim, Ordering::Release);
        self.open = Some(Open { all, mine: 0, claim });
        Units { first: 0, count }
    }

    /// What was claimed here was copied.
    pub fn copied(&mut self, units: Units) {
        if let Some(open) = &mut self.open {
            open.mine += units.count;
        }
    }

    /// The next part that is to be copied here. The word lies in memory of the peer's: one that does not go on would be copied
    /// for without end.
    pub fn claim(&mut self, offer: &Offer) -> Result<Option<Units>, Broken> {
        let Some(open) = self.open.as_mut() else { return Ok(None) };
        loop {
            let first = open.claim & LOWER;
            let left = open.all.saturating_sub(first);
            if left == 0 {
                return Ok(None);
            }
            // While nobody helps: all that a first part was kept small for.
            let is_alone = first == open.mine;
            let count = if is_alone { left.min(PIECE_UNITS_MAX) } else { piece(left) };
            match exchange(offer, open.claim, count) {
                Ok(claim) => {
                    open.claim = claim;
                    return Ok(Some(Units { first, count }));
                }
                Err(found) if is_further(found, open.claim) => open.claim = found,
                Err(_) => return Err(Broken),
            }
        }
    }

    /// Lets nobody claim anything any more: the rest will not be copied.
    pub fn close(&mut self, offer: &Offer) -> Result<(), Broken> {
        while let Some(units) = self.claim(offer)? {
            self.copied(units);
        }
        Ok(())
    }

    /// How the last offer stands, of which everything is claimed.
    pub fn stands(&self, offer: &Offer) -> Stands {
        let Some(open) = &self.open else { return Stands::Over { is_helped: false } };
        let done = offer.done.load(Ordering::Acquire);
        let is_of_this = done >> 32 == u64::from(self.sequence);
        let theirs = if is_of_this { done & (GIVEN_BACK - 1) } else { 0 };
        if open.mine + theirs >= open.all {
            return Stands::Over { is_helped: theirs > 0 };
        }
        if !is_of_this || done & GIVEN_BACK == 0 {
            return Stands::Waits;
        }
        // What neither of us has done is one range: the last that it claimed.
        let first = offer.given_back.load(Ordering::Relaxed);
        Stands::GivenBack(Units { first, count: open.all - open.mine - theirs })
    }

    /// An offer is over: the peer writes nothing of it any more.
    pub fn end(&mut self, is_helped: bool) {
        self.ignored = if is_helped { 0 } else { self.ignored.saturating_add(1) };
        self.open = None;
    }
}

/// How an offer stands whose units are all claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    /// Everything is done, by us alone or not.
    Over { is_helped: bool },
    /// The peer has not done its part.
    Waits,
    /// It could not do this, and will not.
    GivenBack(Units),
}

/// The sender's side.
#[derive(Debug, Default)]
pub(super) struct Help {
    /// The word of an offer of which nothing is left to be done.
    seen: u64,
    sequence: u32,
    /// Units of it that were done here.
    done: u64,
    has_given_back: bool,
    pub bytes: u64,
}

/// What was claimed for the peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Claimed {
    units: Units,
    pub from: Span,
    pub into: Span,
}

impl Help {
    /// Whether something may have been offered.
    #[inline]
    pub fn is_wanted(&self, offer: &Offer) -> bool {
        offer.claim.load(Ordering::Relaxed) != self.seen
    }

    /// Claims a part, if the engine says that the memory is the peer's to see.
    pub fn claim(
        &mut self,
        offer: &Offer,
        lends: impl FnOnce(u32, Span) -> bool,
    ) -> Option<Claimed> {
        let mut claim = offer.claim.load(Ordering::Acquire);
        let bytes = offer.bytes.load(Ordering::Relaxed);
        let from = Span::new(offer.from.load(Ordering::Relaxed), bytes);
        let into = Span::new(offer.into.load(Ordering::Relaxed), bytes);
        let message = offer.message.load(Ordering::Relaxed) as u32;
        let sequence = (claim >> 32) as u32;
        if self.sequence != sequence {
            (self.sequence, self.done, self.has_given_back) = (sequence, 0, false);
        }
        let is_left = |claim: u64| (claim & LOWER) < units(bytes);
        let is_none = !is_left(claim) || bytes >= SHARED_BYTES_MAX || self.has_given_back;
        if is_none || !lends(message, from) {
            self.seen = claim;
            return None;
        }
        // As long as the word is of this offer what was read above is, too.
        while (claim >> 32) as u32 == sequence && is_left(claim) {
            let first = claim & LOWER;
            let count = piece(units(bytes) - first);
            match exchange(offer, claim, count) {
                Ok(now) => {
                    let part = Units { first, count };
                    // Nothing is left after that, or it is looked at again.
                    self.seen = if is_left(now) { claim } else { now };
                    let (Some(from), Some(into)) = (part.of(from), part.of(into)) else { break };
                    return Some(Claimed { units: part, from, into });
                }
                Err(found) if is_further(found, claim) => claim = found,
                Err(_) => break,
            }
        }
        self.seen = claim;
        None
    }

    /// What was claimed is there.
    pub fn done(&mut self, offer: &Offer, claimed: Claimed) {
        self.done += claimed.units.count;
        self.bytes += claimed.from.bytes;
        offer.done.store(u64::from(self.sequence) << 32 | self.done, Ordering::Release);
    }

    /// What was claimed could not be written. Nothing more of this offer is.
    pub fn give_back(&mut self, offer: &Offer, claimed: Claimed) {
        offer.given_back.store(claimed.units.first, Ordering::Relaxed);
        self.has_given_back = true;
        let done = self.done | GIVEN_BACK;
        offer.done.store(u64::from(self.sequence) << 32 | done, Ordering::Release);
    }
}

/// Whether somebody has claimed more of an offer: that is all that may happen to its word.
fn is_further(found: u64, claim: u64) -> bool {
    found >> 32 == claim >> 32 && found > claim
}

/// Claims so many units, or says what the word is by now.
fn exchange(offer: &Offer, claim: u64, count: u64) -> Result<u64, u64> {
    let next = claim + count;
    let word = &offer.claim;
    word.compare_exchange(claim, next, Ordering::AcqRel, Ordering::Acquire).map(|_| next)
}

#[cfg(test)]
mod tests;
