//! The lock table: what is held, who waits, and who is let in next.
//!
//! Waiting is first come, first served among those who conflict, so that readers coming and going
//! cannot keep a writer out for ever. Two exceptions: a request that does not wait takes what is
//! free; and an owner who holds something in the file already does not queue behind those who may
//! be waiting for just that.

use super::super::WaitId;
use crate::ops::{Id, RangeLock};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Locks held, and requests waiting, of one kind in one file.
const LOCKS_MAX: usize = 64 * 1024;

/// An owner of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    pub session: u64,
    pub owner: u64,
}

/// Why a lock was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Busy,
    Deadlock,
    TooMany,
}

/// What became of a request that may wait.
pub struct Taken {
    /// It has its lock; else it waits.
    pub held: bool,
    /// Others whose waits end by that.
    pub ended: Vec<WaitId>,
}

/// Every lock there is.
#[derive(Default)]
pub struct Locks {
    /// By file, and whether of whole files (flock).
    spaces: BTreeMap<(Id, bool), Space>,
}

/// The locks of one kind in one file.
#[derive(Default)]
struct Space {
    held: Vec<Claim>,
    waiting: VecDeque<(WaitId, Claim)>,
}

/// A lock and whose it is.
#[derive(Clone)]
struct Claim {
    who: Who,
    lock: RangeLock,
}

impl Locks {
    /// Takes a lock now or not at all; whose waits end by that (it may have been made weaker).
    pub fn take(&mut self, id: Id, who: Who, lock: &RangeLock) -> Result<Vec<WaitId>, Refusal> {
        let key = (id, lock.whole);
        let claim = Claim { who, lock: lock.clone() };
        if let Some(space) = self.spaces.get(&key) {
            space.check_room()?;
            if space.is_held_against(&claim) {
                return Err(Refusal::Busy);
            }
        }
        let space = self.spaces.entry(key).or_default();
        space.hold(claim);
        Ok(space.let_in())
    }

    /// The same, but queues as `wait` while others stand in the way.
    pub fn take_or_wait(
        &mut self,
        id: Id,
        who: Who,
        lock: &RangeLock,
        wait: WaitId,
    ) -> Result<Taken, Refusal> {
        let key = (id, lock.whole);
        let claim = Claim { who, lock: lock.clone() };
        let space = self.spaces.entry(key).or_default();
        space.check_room()?;
        if !space.must_wait(&claim, space.waiting.len()) {
            space.hold(claim);
            return Ok(Taken { held: true, ended: space.let_in() });
        }
        if lock.whole {
            // As flock(2) does: a lock that is converted is given up before the wait. So flock
            // never deadlocks in one file, and across files it is the callers' own affair.
            space.give_up(who, lock);
        }
        space.waiting.push_back((wait, claim.clone()));
        if !lock.whole && self.is_in_cycle(who) {
            return self.break_cycle(key, claim);
        }
        let mut ended = self.settle(key);
        let queued = ended.len();
        ended.retain(|other| *other != wait);
        Ok(Taken { held: ended.len() < queued, ended })
    }

    /// The last in the queue would wait for itself. If only manners made it wait it need not.
    fn break_cycle(&mut self, key: (Id, bool), claim: Claim) -> Result<Taken, Refusal> {
        let space = self.spaces.entry(key).or_default();
        space.waiting.pop_back();
        if space.is_held_against(&claim) {
            return Err(Refusal::Deadlock);
        }
        space.hold(claim);
        Ok(Taken { held: true, ended: space.let_in() })
    }

    /// Gives back what the owner holds in the range; whose waits end by that.
    pub fn release(&mut self, id: Id, who: Who, lock: &RangeLock) -> Vec<WaitId> {
        let Some(space) = self.spaces.get_mut(&(id, lock.whole)) else { return Vec::new() };
        space.give_up(who, lock);
        self.settle((id, lock.whole))
    }

    /// Somebody else's lock that stands in the way.
    pub fn obstacle(&self, id: Id, who: Who, lock: &RangeLock) -> Option<RangeLock> {
        let claim = Claim { who, lock: lock.clone() };
        let space = self.spaces.get(&(id, lock.whole))?;
        let mut held: Vec<_> = space.held.iter().filter(|held| held.conflicts(&claim)).collect();
        held.sort_by_key(|held| held.lock.start);
        held.first().map(|held| held.lock.clone())
    }

    /// A wait is given up; whose waits end by that.
    pub fn cancel(&mut self, id: Id, wait: WaitId) -> Vec<WaitId> {
        for whole in [false, true] {
            if let Some(space) = self.spaces.get_mut(&(id, whole)) {
                space.waiting.retain(|(other, _)| *other != wait);
            }
        }
        let mut ended = self.settle((id, false));
        ended.extend(self.settle((id, true)));
        ended
    }

    /// A session is over; whose waits end by that (none of its own).
    pub fn end_session(&mut self, session: u64) -> Vec<WaitId> {
        for space in self.spaces.values_mut() {
            space.held.retain(|claim| claim.who.session != session);
            space.waiting.retain(|(_, claim)| claim.who.session != session);
        }
        let keys: Vec<_> = self.spaces.keys().copied().collect();
        keys.into_iter().flat_map(|key| self.settle(key)).collect()
    }

    /// A file is gone: those who waited for it.
    pub fn forget(&mut self, id: Id) -> Vec<WaitId> {
        let spaces = [false, true].map(|whole| self.spaces.remove(&(id, whole)));
        let waiting = spaces.into_iter().flatten().flat_map(|space| space.waiting);
        waiting.map(|(wait, _)| wait).collect()
    }

    /// Lets in who can go now, and forgets the space when nobody is left.
    fn settle(&mut self, key: (Id, bool)) -> Vec<WaitId> {
        let Some(space) = self.spaces.get_mut(&key) else { return Vec::new() };
        let ended = space.let_in();
        if space.held.is_empty() && space.waiting.is_empty() {
            self.spaces.remove(&key);
        }
        ended
    }

    /// Whether `who` waits, over others who wait, for itself. Byte ranges only, as in POSIX.
    fn is_in_cycle(&self, who: Who) -> bool {
        let mut seen = BTreeSet::new();
        let mut ahead = self.blockers(who);
        while let Some(next) = ahead.pop() {
            if next == who {
                return true;
            }
            if seen.insert(next) {
                ahead.extend(self.blockers(next));
            }
        }
        false
    }

    /// Those whom an owner waits for.
    fn blockers(&self, who: Who) -> Vec<Who> {
        let ranges = self.spaces.iter().filter(|((_, whole), _)| !whole);
        ranges.flat_map(|(_, space)| space.blockers(who)).collect()
    }
}

impl Space {
    fn check_room(&self) -> Result<(), Refusal> {
        match self.held.len() + self.waiting.len() {
            0..LOCKS_MAX => Ok(()),
            _ => Err(Refusal::TooMany),
        }
    }

    fn is_held_against(&self, claim: &Claim) -> bool {
        self.held.iter().any(|held| held.conflicts(claim))
    }

    /// Whether a claim with `ahead` others before it in the queue must wait.
    fn must_wait(&self, claim: &Claim, ahead: usize) -> bool {
        self.is_held_against(claim) || self.must_queue(claim, ahead)
    }

    /// Whether a claim must let others go first, though nobody holds anything against it.
    fn must_queue(&self, claim: &Claim, ahead: usize) -> bool {
        let holds = self.held.iter().any(|held| held.who == claim.who);
        !holds && self.waiting.iter().take(ahead).any(|(_, other)| other.conflicts(claim))
    }

    /// Lets those in who can go now, first come, first served.
    fn let_in(&mut self) -> Vec<WaitId> {
        let mut ended = Vec::new();
        let mut index = 0;
        while index < self.waiting.len() {
            if self.must_wait(&self.waiting[index].1, index) {
                index += 1;
                continue;
            }
            if let Some((wait, claim)) = self.waiting.remove(index) {
                self.hold(claim);
                ended.push(wait);
                // What it held may have become weaker, and its place in the queue is free.
                index = 0;
            }
        }
        ended
    }

    /// Gives a claim to its owner: it replaces what the owner had in the range, and joins with what
    /// touches it.
    fn hold(&mut self, mut claim: Claim) {
        self.give_up(claim.who, &claim.lock);
        self.held.retain(|held| {
            let joins = held.who == claim.who
                && held.lock.exclusive == claim.lock.exclusive
                && held.touches(&claim);
            if joins {
                claim.lock.start = claim.lock.start.min(held.lock.start);
                claim.lock.end = claim.lock.end.max(held.lock.end);
            }
            !joins
        });
        self.held.push(claim);
    }

    /// Takes a range out of what an owner holds; a lock around it becomes two.
    fn give_up(&mut self, who: Who, range: &RangeLock) {
        let mut rest = Vec::new();
        self.held.retain(|held| {
            if held.who != who || !held.overlaps(range) {
                return true;
            }
            let lock = &held.lock;
            if let Some(end) = range.start.checked_sub(1).filter(|end| *end >= lock.start) {
                rest.push(Claim { who, lock: RangeLock { end, ..lock.clone() } });
            }
            if let Some(start) = range.end.checked_add(1).filter(|start| *start <= lock.end) {
                rest.push(Claim { who, lock: RangeLock { start, ..lock.clone() } });
            }
            false
        });
        self.held.append(&mut rest);
    }

    /// Those whom an owner waits for here.
    fn blockers(&self, who: Who) -> Vec<Who> {
        let mut blockers = Vec::new();
        for (index, (_, claim)) in self.waiting.iter().enumerate() {
            if claim.who != who {
                continue;
            }
            blockers.extend(self.held.iter().filter(|held| held.conflicts(claim)).map(|h| h.who));
            if self.must_queue(claim, index) {
                let ahead = self.waiting.iter().take(index).map(|(_, other)| other);
                blockers.extend(ahead.filter(|other| other.conflicts(claim)).map(|o| o.who));
            }
        }
        blockers
    }
}

impl Claim {
    fn overlaps(&self, range: &RangeLock) -> bool {
        self.lock.start <= range.end && range.start <= self.lock.end
    }

    /// Overlaps, or ends where the other begins.
    fn touches(&self, other: &Claim) -> bool {
        self.lock.start <= other.lock.end.saturating_add(1)
            && other.lock.start <= self.lock.end.saturating_add(1)
    }

    fn conflicts(&self, other: &Claim) -> bool {
        self.who != other.who
            && (self.lock.exclusive || other.lock.exclusive)
            && self.overlaps(&other.lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_bounded_number_of_locks() {
        let who = Who { session: 1, owner: 1 };
        let range = |at: u64| RangeLock {
            exclusive: true,
            whole: false,
            start: at * 2,
            end: at * 2,
            owner: 1,
            pid: 1,
        };
        let claim = |at: u64| Claim { who, lock: range(at) };
        let (held, waiting) = ((1..LOCKS_MAX as u64).map(claim).collect(), VecDeque::new());
        let mut locks = Locks::default();
        locks.spaces.insert((7, false), Space { held, waiting });
        assert_eq!(locks.take(7, who, &range(0)), Ok(Vec::new()));
        let more = range(LOCKS_MAX as u64);
        assert_eq!(locks.take(7, who, &more), Err(Refusal::TooMany));
        let waits = locks.take_or_wait(7, who, &more, WaitId(1));
        assert_eq!(waits.err(), Some(Refusal::TooMany));
        assert_eq!(locks.take(8, who, &more), Ok(Vec::new()), "another file has room");
    }
}
