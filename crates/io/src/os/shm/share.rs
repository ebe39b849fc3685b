//! Long messages that both ends copy, in one of two ways ([`By`]): while the receiver reads, the sender writes what has not
//! been read; or the sender copies to a stage that both have mapped, and the receiver from there.
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
//! By the stage the sender alone claims, from the front, as far as there is room on the stage, and the receiver copies what
//! is done. It copies each byte twice, but no kernel looks up pages: which way is quicker depends on the machine and on the
//! length, so it is measured ([`Choice`]). When nothing comes for a moment the receiver claims all that is left and reads it.
//!
//! An offer is over when all its units are done, so nobody writes into memory of a receive that has ended.

use super::arena::{Offer, STAGE_BYTES};
use super::ring::Broken;
use covey_wire::Span;
use std::sync::atomic::Ordering;
use std::time::Duration;

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

/// The stage, in units.
const STAGE_UNITS: u64 = STAGE_BYTES as u64 / UNIT;
/// What is copied to it at a time, of a message of so many units: less, and more is said than copied; more, and the other
/// end waits.
fn staged_units(all: u64) -> u64 {
    if all < LARGE_UNITS { STAGE_UNITS / 8 } else { STAGE_UNITS / 4 }
}
const LARGE_UNITS: u64 = (512 << 10) / UNIT;
/// Pieces in one go, which is at most the whole stage.
pub(super) const STAGED_PIECES: u64 = 4;
/// In the word that names the message: by the stage.
const STAGED: u64 = 1 << 32;

/// How the part of an offer that its sender copies comes to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The sender writes into the receiver's memory.
    Writing,
    /// Each copies its own half of the way.
    Stage,
}

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
    by: By,
    /// Copied here, but from the stage.
    mine: u64,
    /// Copied from the stage.
    taken: u64,
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
    pub fn open(&mut self, offer: &Offer, message: u32, from: Span, into: Span, by: By) -> Units {
        self.sequence = self.sequence.wrapping_add(1);
        let all = units(from.bytes);
        let (count, flag) = match by {
            By::Writing => (first_piece(all), 0),
            By::Stage => (0, STAGED),
        };
        offer.taken.store(0, Ordering::Relaxed);
        offer.message.store(u64::from(message) | flag, Ordering::Relaxed);
        offer.from.store(from.address, Ordering::Relaxed);
        offer.into.store(into.address, Ordering::Relaxed);
        offer.bytes.store(from.bytes, Ordering::Relaxed);
        let claim = u64::from(self.sequence) << 32 | count;
        // The peer reads the rest only when it has seen this word.
        offer.claim.store(claim, Ordering::Release);
        self.open = Some(Open { all, by, mine: 0, taken: 0, claim });
        Units { first: 0, count }
    }

    /// The next part that is on the stage, and where there.
    pub fn staged(&self, offer: &Offer) -> Option<(Units, usize)> {
        let open = self.open.filter(|open| open.by == By::Stage)?;
        let first = open.taken;
        let done = self.done(offer).min(open.all - open.mine);
        let at = first % STAGE_UNITS;
        let count = done.checked_sub(first)?.min(STAGE_UNITS - at);
        (count > 0).then_some((Units { first, count }, (at * UNIT) as usize))
    }

    /// That was copied from there.
    pub fn took(&mut self, offer: &Offer, units: Units) {
        if let Some(open) = &mut self.open {
            open.taken += units.count;
            // The place is the peer's again.
            offer.taken.store(open.taken, Ordering::Release);
        }
    }

    /// Whether everything was taken from the stage.
    pub fn is_taken(&self) -> bool {
        self.open.is_none_or(|open| open.taken >= open.all)
    }

    /// Units that the peer has done of the open offer.
    fn done(&self, offer: &Offer) -> u64 {
        let done = offer.answer.done.load(Ordering::Acquire);
        if done >> 32 == u64::from(self.sequence) { done & (GIVEN_BACK - 1) } else { 0 }
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
            let count = match open.by {
                // What is on the stage lies before it.
                By::Stage => left,
                By::Writing if is_alone => left.min(PIECE_UNITS_MAX),
                By::Writing => piece(left),
            };
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
        let done = offer.answer.done.load(Ordering::Acquire);
        let is_of_this = done >> 32 == u64::from(self.sequence);
        let theirs = match open.by {
            By::Stage => open.taken,
            By::Writing if is_of_this => done & (GIVEN_BACK - 1),
            By::Writing => 0,
        };
        if open.mine + theirs >= open.all {
            return Stands::Over { is_helped: theirs > 0 };
        }
        if !is_of_this || done & GIVEN_BACK == 0 {
            return Stands::Waits;
        }
        // What neither of us has done is one range: the last that it claimed.
        let first = offer.answer.given_back.load(Ordering::Relaxed);
        Stands::GivenBack(Units { first, count: open.all - open.mine - theirs })
    }

    /// An offer is over: the peer writes nothing of it any more.
    pub fn end(&mut self, is_helped: bool) {
        self.ignored = if is_helped { 0 } else { self.ignored.saturating_add(1) };
        self.open = None;
    }

    /// Whether the peer has done a part of the last one.
    pub fn was_helped(&self) -> bool {
        self.ignored == 0
    }
}

/// Which way is quicker with a peer, by length: what was measured.
#[derive(Debug, Default)]
pub(super) struct Choice([Class; CLASSES]);

/// Messages of one length to twice that.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    count: u32,
    /// What a MiB takes by writing and by the stage, in nanoseconds: the least, which is slowly forgotten.
    took: [Option<u64>; 2],
}

/// From [`SHARED_BYTES_MIN`] on. Longer ones do not fit in near caches, and are written.
const CLASSES: usize = 7;
/// Both ways in turn at first.
const TRIALS: u32 = 16;
/// Later the other way is tried once of so many times.
const TRIAL_OF: u32 = 128;

impl Choice {
    fn class(bytes: u64) -> usize {
        (bytes.max(1).ilog2().saturating_sub(SHARED_BYTES_MIN.ilog2())) as usize
    }

    /// The way for a message of so many bytes.
    pub fn of(&mut self, bytes: u64) -> By {
        let Some(class) = self.0.get_mut(Choice::class(bytes)) else { return By::Writing };
        class.count = class.count.wrapping_add(1);
        let [writing, stage] = class.took;
        let is_stage = match (writing, stage) {
            (Some(writing), Some(stage)) if class.count > TRIALS => stage < writing,
            _ => class.count.is_multiple_of(2),
        };
        let is_trial = class.count.is_multiple_of(TRIAL_OF);
        if is_stage != is_trial { By::Stage } else { By::Writing }
    }

    /// One of which both have copied a part took so long.
    pub fn took(&mut self, by: By, bytes: u64, time: Duration) {
        let Some(class) = self.0.get_mut(Choice::class(bytes)) else { return };
        let whole = (time.as_nanos() << 20) / u128::from(bytes.max(1));
        let now = u64::try_from(whole).unwrap_or(u64::MAX);
        let known = &mut class.took[usize::from(by == By::Stage)];
        *known = Some(match *known {
            Some(before) if now > before => before + (now - before) / FORGET,
            _ => now,
        });
    }
}

/// How much of a difference to the least time is believed.
const FORGET: u64 = 16;

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
    /// Where it goes on the stage, if it goes there.
    pub stage: Option<usize>,
}

impl Help {
    /// Whether something may have been offered.
    #[inline]
    pub fn is_wanted(&self, offer: &Offer) -> bool {
        offer.claim.load(Ordering::Relaxed) != self.seen
    }

    /// Claims a part, if the engine says that the memory is the peer's to see, and may be copied in this way. `None`, too,
    /// while the stage has no room.
    pub fn claim(
        &mut self,
        offer: &Offer,
        lends: impl FnOnce(u32, Span, By) -> bool,
    ) -> Option<Claimed> {
        let mut claim = offer.claim.load(Ordering::Acquire);
        let bytes = offer.bytes.load(Ordering::Relaxed);
        let from = Span::new(offer.from.load(Ordering::Relaxed), bytes);
        let into = Span::new(offer.into.load(Ordering::Relaxed), bytes);
        let message = offer.message.load(Ordering::Relaxed);
        let by = if message & STAGED == 0 { By::Writing } else { By::Stage };
        let sequence = (claim >> 32) as u32;
        if self.sequence != sequence {
            (self.sequence, self.done, self.has_given_back) = (sequence, 0, false);
        }
        let is_left = |claim: u64| (claim & LOWER) < units(bytes);
        let is_none = !is_left(claim) || bytes >= SHARED_BYTES_MAX || self.has_given_back;
        if is_none || !lends(message as u32, from, by) {
            self.seen = claim;
            return None;
        }
        let piece_units = staged_units(units(bytes));
        // As long as the word is of this offer what was read above is, too.
        while (claim >> 32) as u32 == sequence && is_left(claim) {
            let first = claim & LOWER;
            let left = units(bytes) - first;
            let count = match by {
                By::Writing => piece(left),
                // Not all that was done before was taken from there.
                By::Stage if self.held(offer, first) > STAGE_UNITS - piece_units => return None,
                By::Stage => left.min(piece_units).min(STAGE_UNITS - first % STAGE_UNITS),
            };
            match exchange(offer, claim, count) {
                Ok(now) => {
                    let part = Units { first, count };
                    let at = (first % STAGE_UNITS * UNIT) as usize;
                    let stage = (by == By::Stage).then_some(at);
                    // Nothing is left after that, or it is looked at again.
                    self.seen = if is_left(now) { claim } else { now };
                    let (Some(from), Some(into)) = (part.of(from), part.of(into)) else { break };
                    return Some(Claimed { units: part, from, into, stage });
                }
                Err(found) if is_further(found, claim) => claim = found,
                Err(_) => break,
            }
        }
        self.seen = claim;
        None
    }

    /// Units that are on the stage, up to this one.
    fn held(&self, offer: &Offer, first: u64) -> u64 {
        first.wrapping_sub(offer.taken.load(Ordering::Acquire))
    }

    /// What was claimed is there.
    pub fn done(&mut self, offer: &Offer, claimed: Claimed) {
        self.done += claimed.units.count;
        self.bytes += claimed.from.bytes;
        offer.answer.done.store(u64::from(self.sequence) << 32 | self.done, Ordering::Release);
    }

    /// What was claimed could not be written. Nothing more of this offer is.
    pub fn give_back(&mut self, offer: &Offer, claimed: Claimed) {
        offer.answer.given_back.store(claimed.units.first, Ordering::Relaxed);
        self.has_given_back = true;
        let done = self.done | GIVEN_BACK;
        offer.answer.done.store(u64::from(self.sequence) << 32 | done, Ordering::Release);
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
