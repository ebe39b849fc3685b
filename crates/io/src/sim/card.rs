//! What a network card does by itself in the simulation, as verbs has it: reads and writes of peers' registered memory that
//! are posted, done when their turn comes, and told in any order; receives that need a buffer each.
//!
//! A process sees others' registrations as they were a while ago. Whether a key is still good is found when an access is
//! made, by the card of whoever has the memory: one that was taken back meanwhile is refused there, and touches nothing.

use super::Rng;
use super::carrier::{Memories, Net, part, part_mut};
use covey_wire::Span;
use covey_wire::transport::{Published, Refused};

/// A posted access.
#[derive(Debug)]
pub(super) struct Access {
    pub token: u64,
    /// Whose memory, and the registration that was seen when it was posted.
    pub other: usize,
    pub slot: u32,
    pub key: u64,
    pub is_write: bool,
    pub ours: Span,
    pub theirs: Vec<Span>,
    pub ended: Option<Result<(), Refused>>,
}

/// A row of a process's registrations: what it is, and what it was before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    pub now: Published,
    pub before: Published,
    pub changed: u64,
}

impl Row {
    pub fn set(&mut self, what: Published, now: u64) {
        (self.before, self.now, self.changed) = (self.now, what, now);
    }

    /// What a peer sees of it.
    pub fn seen(&self, now: u64, rng: &mut Rng) -> Published {
        let is_late = now < self.changed + LAG_STEPS && rng.chance(700);
        if is_late { self.before } else { self.now }
    }
}

/// Lets the card of a process go on with one of its accesses. What ended: its token, and how.
pub(super) fn go_on(
    net: &mut Net,
    memories: &Memories,
    me: usize,
) -> Option<(u64, Result<(), Refused>)> {
    let count = net.ends[me].accesses.len();
    if count == 0 || net.rng.chance(500) {
        return None;
    }
    let at = net.rng.index(count);
    let access = &net.ends[me].accesses[at];
    if let Some(result) = access.ended {
        let access = net.ends[me].accesses.swap_remove(at);
        return Some((access.token, result));
    }
    let result = execute(net, memories, me, access);
    net.ends[me].accesses[at].ended = Some(result);
    None
}

fn execute(net: &Net, memories: &Memories, me: usize, access: &Access) -> Result<(), Refused> {
    let Access { other, slot, key, .. } = *access;
    if net.ends[other].is_dead {
        return Err(Refused::Dead);
    }
    let row = net.ends[other].published[slot as usize].now;
    let is_inside = |span: &Span| {
        let end = span.end().zip(row.span.end());
        span.address >= row.span.address && end.is_some_and(|(end, last)| end <= last)
    };
    if row.key != key || !access.theirs.iter().all(is_inside) {
        return Err(Refused::Key);
    }
    let (mut ours, mut theirs) = (memories[me].borrow_mut(), memories[other].borrow_mut());
    let mut ours = part_mut(&mut ours, me, access.ours).ok_or(Refused::Fault)?;
    for span in &access.theirs {
        let (here, rest) = ours.split_at_mut(span.bytes as usize);
        if access.is_write {
            part_mut(&mut theirs, other, *span).ok_or(Refused::Fault)?.copy_from_slice(here);
        } else {
            here.copy_from_slice(part(&theirs, other, *span).ok_or(Refused::Fault)?);
        }
        ours = rest;
    }
    Ok(())
}

/// How long a change of a registration may go unnoticed.
const LAG_STEPS: u64 = 300;
