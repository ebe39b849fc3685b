//! What is kept of one file until it is said.

use super::super::Opened;
use crate::client::cache::Sent;
use crate::ops::{Caller, Id, InlinePiece, Inode, Nanos, Op, Striping, set};
use covey_wire::{List, Name};
use std::time::Instant;

/// Permission bits that only the metadata server deals with.
pub(super) const PRIVILEGE: u32 = 0o7000;

/// What is to be said of one file.
pub(super) struct Kept {
    pub caller: Caller,
    /// How it is made, which nobody else knows yet.
    pub made: Option<Made>,
    pub write: Option<Write>,
    /// The bytes that are written.
    pub data: Vec<u8>,
    pub set: Set,
    /// The cache knows of it since then.
    pub sent: Sent,
    pub since: Instant,
}

/// A file that is to be made: see [`Op::Make`].
pub(super) struct Made {
    pub id: Id,
    pub parent: Id,
    pub name: Name,
    pub mode: u32,
    pub gid: u32,
    pub at: Nanos,
    pub striping: Striping,
    /// A write is about to go beyond what lies with the inode.
    pub is_beyond: bool,
    /// The server counts it when it has made the file.
    pub opened: Opened,
}

/// A write of what lies with the inode, without its bytes: see [`Op::WriteInline`].
#[derive(Clone, Copy)]
pub struct Write {
    pub epoch: u32,
    pub end: u64,
    pub hole: bool,
    pub piece: InlinePiece,
}

/// Attributes, as in [`Op::Setattr`].
#[derive(Clone, Copy, Default)]
pub struct Set {
    pub mask: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: u64,
    pub mtime: u64,
}

impl Write {
    pub fn is_followed_by(&self, next: &Write) -> bool {
        let is_next = u64::from(next.piece.offset) == self.piece.end();
        is_next && next.epoch == self.epoch && next.hole == self.hole
    }

    /// The next one says no more than how long the file has become, by what the I/O servers have.
    pub fn is_grown_by(&self, next: &Write) -> bool {
        next.piece.bytes == 0 && next.epoch == self.epoch && next.hole == self.hole
    }

    pub fn follow(&mut self, next: &Write) {
        self.end = self.end.max(next.end);
        self.piece.bytes += next.piece.bytes;
    }
}

impl Set {
    /// The later one counts.
    pub fn add(&mut self, new: Set) {
        let has = |bits: u32| new.mask & bits != 0;
        if has(set::MODE) {
            self.mode = new.mode;
        }
        if has(set::UID) {
            self.uid = new.uid;
        }
        if has(set::GID) {
            self.gid = new.gid;
        }
        if has(set::ATIME) {
            self.atime = new.atime;
            self.mask &= !set::ATIME_NOW;
        }
        if has(set::MTIME) {
            self.mtime = new.mtime;
            self.mask &= !set::MTIME_NOW;
        }
        self.mask |= new.mask;
    }
}

/// Root's groups do not matter.
pub(super) fn is_same(one: &Caller, other: &Caller) -> bool {
    one == other || (one.is_root() && other.is_root())
}

/// Whether nothing but want of space could refuse it, and its order to other attributes does not matter.
pub(super) fn may_set(caller: &Caller, inode: &Inode, new: &Set) -> bool {
    let has = |bits: u32| new.mask & bits != 0;
    let keeps_owner = !has(set::UID) || new.uid == inode.uid;
    let keeps_group = !has(set::GID) || new.gid == inode.gid;
    let is_plain = inode.mode & PRIVILEGE == 0 && (!has(set::MODE) || new.mode & PRIVILEGE == 0);
    caller.owns(inode) && keeps_owner && keeps_group && is_plain
}

/// What is said of a file that is there.
pub(super) fn amendment(id: Id, write: Option<Write>, data: Vec<u8>, set: Set) -> Op {
    let Set { mask, mode, uid, gid, atime, mtime } = set;
    let (epoch, end, hole, pieces) = fields(write);
    let (pieces, data, last) = (List(pieces), data.into(), false);
    Op::Amend { id, epoch, end, hole, pieces, data, mask, mode, uid, gid, atime, mtime, last }
}

impl Made {
    /// What is said of it, with what was done to it since.
    pub fn op(&self, write: Option<Write>, data: Vec<u8>, set: Set) -> Op {
        let (_, end, hole, pieces) = fields(write);
        Op::Make {
            id: self.id,
            parent: self.parent,
            name: self.name.clone(),
            mode: self.mode,
            gid: self.gid,
            at: self.at,
            striping: self.striping.clone(),
            end,
            hole,
            pieces: List(pieces),
            data: data.into(),
            // The owner is who made it.
            mask: set.mask & !(set::UID | set::GID) | if self.is_beyond { set::BEYOND } else { 0 },
            set_mode: set.mode,
            atime: set.atime,
            mtime: set.mtime,
            last: false,
        }
    }
}

fn fields(write: Option<Write>) -> (u32, u64, bool, Vec<InlinePiece>) {
    match write {
        Some(write) => (write.epoch, write.end, write.hole, vec![write.piece]),
        None => (0, 0, false, Vec::new()),
    }
}
