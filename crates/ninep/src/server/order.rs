//! Which requests wait for which: the order rules, as a table of lanes.
//!
//! A request claims one or two fids, each with an [`Access`]. Every fid with outstanding requests
//! has a lane: their claims in order of arrival, running or queued. A request starts when nothing
//! before it in its lanes stands in its way. A fid with no outstanding request has no lane, so that
//! a request that is answered at once leaves no trace here.

use super::start::LOCK_WAIT;
use crate::message::{Message, NOFID};
use std::collections::HashMap;

/// What a request does with a fid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Changes what the fid is: all before it, then it, then all after it.
    Barrier,
    /// Looks up names from it: side by side with other looks, but not with changes of names.
    Look,
    /// Changes names in it.
    Change,
    /// Reads or writes from `start` up to `end`: in order with writes that overlap.
    Data { write: bool, start: u64, end: u64 },
    /// Tcall: as a read or write of a blocking file, and free of any order on others.
    Call,
    /// Waits for the writes before it.
    Sync,
    /// Takes or gives back locks: in order with its like.
    Lock,
    /// Waits for a lock: without order, or it would hold up the unlock that it waits for. Barriers pass
    /// it.
    WaitForLock,
    /// Waits for barriers only.
    Free,
}

/// What a fid's state says about order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mode {
    /// Reads and writes may wait for one another: no order among them, and barriers pass them.
    pub blocking: bool,
    /// Offsets mean nothing: every write overlaps every other.
    pub append: bool,
}

impl Access {
    /// Whether it can wait for the peer.
    fn can_block(self, mode: Mode) -> bool {
        match self {
            Access::Data { .. } | Access::Call => mode.blocking,
            Access::WaitForLock => true,
            _ => false,
        }
    }

    /// Whether `self` must wait for `earlier` on the same fid.
    fn waits_for(self, earlier: Access, mode: Mode) -> bool {
        use Access::*;
        match (earlier, self) {
            (Barrier, _) => true,
            (earlier, Barrier) => !earlier.can_block(mode),
            (Look, Change) | (Change, Look) | (Lock, Lock) => true,
            (Data { write: a, start, end }, Data { write: b, start: from, end: to }) => {
                let overlap = mode.append || (start < to && from < end);
                !mode.blocking && (a || b) && overlap
            }
            (Data { write, .. }, Sync) => !mode.blocking && write,
            _ => false,
        }
    }
}

/// Whether a request may change what is in files, seen from a connection that has replies with such data to
/// send. To be removed takes nothing from a file that is open.
pub(super) fn may_change_data(request: &Message) -> bool {
    use Message::*;
    !matches!(
        request,
        Tread { .. }
            | Treadview { .. }
            | Tgetattr { .. }
            | Tstat { .. }
            | Twalk { .. }
            | Tclunk { .. }
            | Treaddir { .. }
            | Treadlink { .. }
            | Tstatfs { .. }
            | Tfsync { .. }
            | Tlock { .. }
            | Tgetlock { .. }
            | Tauth { .. }
            | Tattach { .. }
            | Txattrwalk { .. }
    )
}

/// The fids that a request claims.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Claims([Option<(u32, Access)>; 2]);

impl Claims {
    /// What `request` claims.
    pub fn of(request: &Message) -> Claims {
        use Message::*;
        match *request {
            Tauth { afid, .. } => one(afid, Access::Barrier),
            Tattach { fid, afid: NOFID, .. } => one(fid, Access::Barrier),
            Tattach { fid, afid, .. } => two((fid, Access::Barrier), (afid, Access::Free)),
            Twalk { fid, newfid, .. } => two((newfid, Access::Barrier), (fid, Access::Look)),
            Tlopen { fid, .. }
            | Tlcreate { fid, .. }
            | Topen { fid, .. }
            | Tcreate { fid, .. }
            | Twstat { fid, .. }
            | Txattrcreate { fid, .. }
            | Tsetattr { fid, .. }
            | Tclunk { fid }
            | Tremove { fid } => one(fid, Access::Barrier),
            Tread { fid, offset, count } => Claims::of_read(fid, offset, count),
            Twrite { fid, offset, ref data } => {
                one(fid, self::data(true, offset, data.len() as u64))
            }
            Treadview { fid, start, end, .. } => {
                one(fid, Access::Data { write: false, start, end })
            }
            Twriteview { fid, start, end, .. } => {
                one(fid, Access::Data { write: true, start, end })
            }
            Tcall { fid, .. } => one(fid, Access::Call),
            Tfsync { fid, .. } => one(fid, Access::Sync),
            Tlock { fid, flags, .. } if flags & LOCK_WAIT != 0 => one(fid, Access::WaitForLock),
            Tlock { fid, .. } => one(fid, Access::Lock),
            Txattrwalk { fid, newfid, .. } => two((newfid, Access::Barrier), (fid, Access::Free)),
            Tsymlink { dfid, .. } | Tmknod { dfid, .. } | Tmkdir { dfid, .. } => {
                one(dfid, Access::Change)
            }
            Tunlinkat { dirfid, .. } => one(dirfid, Access::Change),
            Tlink { dfid, fid, .. } => two((dfid, Access::Change), (fid, Access::Free)),
            Trename { fid, dfid, .. } => two((dfid, Access::Change), (fid, Access::Change)),
            Trenameat { olddirfid, newdirfid, .. } => {
                two((olddirfid, Access::Change), (newdirfid, Access::Change))
            }
            Tgetattr { fid, .. }
            | Tstat { fid }
            | Tstatfs { fid }
            | Treaddir { fid, .. }
            | Treadlink { fid }
            | Tgetlock { fid, .. } => one(fid, Access::Free),
            _ => Claims::default(),
        }
    }

    /// What a read claims.
    pub fn of_read(fid: u32, offset: u64, count: u32) -> Claims {
        one(fid, data(false, offset, u64::from(count)))
    }

    /// What a write claims.
    pub fn of_write(fid: u32, offset: u64, count: u32) -> Claims {
        one(fid, data(true, offset, u64::from(count)))
    }

    /// The fids with their accesses.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Access)> + use<> {
        self.0.into_iter().flatten()
    }

    /// The fids alone.
    pub fn fids(&self) -> impl Iterator<Item = u32> + use<> {
        self.iter().map(|(fid, _)| fid)
    }

    /// Whether the request may wait for the peer and thus for ever.
    pub fn can_block(&self, mode: impl Fn(u32) -> Mode) -> bool {
        self.iter().any(|(fid, access)| access.can_block(mode(fid)))
    }
}

fn one(fid: u32, access: Access) -> Claims {
    Claims([Some((fid, access)), None])
}

/// Of two claims on the same fid the first counts.
fn two(first: (u32, Access), second: (u32, Access)) -> Claims {
    Claims([Some(first), (first.0 != second.0).then_some(second)])
}

fn data(write: bool, offset: u64, count: u64) -> Access {
    Access::Data { write, start: offset, end: offset.saturating_add(count) }
}

/// The lanes.
#[derive(Default)]
pub(super) struct Order {
    lanes: HashMap<u32, Vec<Claim>>,
    queued: usize,
}

struct Claim {
    tag: u16,
    access: Access,
    stage: Stage,
    claims: Claims,
}

/// Where an outstanding request is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It waits for those before it.
    Queued,
    /// It was given to the tree.
    Running,
}

impl Order {
    /// Whether a request with these claims, arriving now, can start.
    pub fn is_free(&self, claims: &Claims, mode: impl Fn(u32) -> Mode) -> bool {
        self.lanes.is_empty() || self.is_clear(None, claims, &mode)
    }

    /// Notes an outstanding request, as the last of its lanes.
    pub fn insert(&mut self, tag: u16, claims: Claims, stage: Stage) {
        self.queued += usize::from(stage == Stage::Queued);
        for (fid, access) in claims.iter() {
            let claim = Claim { tag, access, stage, claims };
            self.lanes.entry(fid).or_default().push(claim);
        }
    }

    /// The queued request `tag` starts.
    pub fn set_running(&mut self, tag: u16, claims: &Claims) {
        self.queued -= 1;
        for (fid, _) in claims.iter() {
            let lane = self.lanes.get_mut(&fid).into_iter().flatten();
            lane.filter(|claim| claim.tag == tag).for_each(|claim| claim.stage = Stage::Running);
        }
    }

    /// The request is over. Those that waited for it are found with `startable`.
    pub fn remove(&mut self, tag: u16, claims: &Claims, stage: Stage) {
        self.queued -= usize::from(stage == Stage::Queued);
        for (fid, _) in claims.iter() {
            let Some(lane) = self.lanes.get_mut(&fid) else { continue };
            lane.retain(|claim| claim.tag != tag);
            if lane.is_empty() {
                self.lanes.remove(&fid);
            }
        }
    }

    /// Whether any request waits for its turn.
    pub fn has_queued(&self) -> bool {
        self.queued > 0
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Order::default();
    }

    /// The queued requests in `fid`'s lane that can start now, in order.
    pub fn startable(&self, fid: u32, mode: impl Fn(u32) -> Mode) -> Vec<u16> {
        let mut found = Vec::new();
        if self.queued == 0 {
            return found;
        }
        for claim in self.lanes.get(&fid).into_iter().flatten() {
            if claim.stage == Stage::Queued && self.is_clear(Some(claim.tag), &claim.claims, &mode)
            {
                found.push(claim.tag);
            }
            // Nothing passes a barrier.
            if claim.access == Access::Barrier {
                break;
            }
        }
        found
    }

    /// The running requests on `fid` that may wait for ever: what a clunk cancels.
    pub fn blocked(&self, fid: u32, mode: Mode) -> Vec<u16> {
        let lane = self.lanes.get(&fid).into_iter().flatten();
        lane.filter(|claim| claim.stage == Stage::Running && claim.access.can_block(mode))
            .map(|claim| claim.tag)
            .collect()
    }

    /// Whether nothing before `tag` (before a newcomer: nothing at all) stands in its way.
    fn is_clear(&self, tag: Option<u16>, claims: &Claims, mode: &impl Fn(u32) -> Mode) -> bool {
        claims.iter().all(|(fid, access)| {
            let Some(lane) = self.lanes.get(&fid) else { return true };
            let mode = mode(fid);
            lane.iter()
                .take_while(|earlier| Some(earlier.tag) != tag)
                .all(|earlier| !access.waits_for(earlier.access, mode))
        })
    }
}
