//! Attributes as the metadata server wants them, and how long they hold.

use super::Fs;
use crate::ops::{Id, Nanos, Op, nanos_of, set};
use covey_ninep::tree::{SetAttr, SetTime, Time};
use std::time::Duration;

impl Fs {
    /// How much longer what was last said of a file holds without being asked for again: its
    /// attributes, and a directory's name.
    pub fn time_left(&self, id: Id) -> (Duration, Duration) {
        self.shared.session.cache().time_left(id, self.shared.net.now())
    }

    /// Whether a file was made here and the metadata server has yet to be told: then nobody else can have changed it.
    pub fn is_unmade(&self, id: Id) -> bool {
        self.shared.session.is_unmade(id)
    }

    /// Has the metadata server told of all that this client keeps; fails with what was refused, and was told to nobody yet.
    pub async fn settle(&self) -> super::Result<()> {
        self.shared.session.settle_late().await
    }

    /// How much longer the names hold that were said of a directory.
    pub fn names_left(&self, id: Id) -> Duration {
        self.shared.session.cache().names_left(id, self.shared.net.now())
    }
}

/// `more`: bits of the mask beside those of the attributes.
pub(super) fn setattr_op(id: Id, change: &SetAttr, more: u32) -> Op {
    let bit = |on: bool, bit: u32| if on { bit } else { 0 };
    let (atime, atime_mask) = time(change.atime, set::ATIME, set::ATIME_NOW);
    let (mtime, mtime_mask) = time(change.mtime, set::MTIME, set::MTIME_NOW);
    let mask = bit(change.mode.is_some(), set::MODE)
        | bit(change.uid.is_some(), set::UID)
        | bit(change.gid.is_some(), set::GID)
        | bit(change.size.is_some(), set::SIZE)
        | atime_mask
        | mtime_mask
        | more;
    Op::Setattr {
        id,
        mask,
        mode: change.mode.unwrap_or(0),
        uid: change.uid.unwrap_or(0),
        gid: change.gid.unwrap_or(0),
        size: change.size.unwrap_or(0),
        atime,
        mtime,
    }
}

fn time(change: Option<SetTime>, bit: u32, now_bit: u32) -> (Nanos, u32) {
    match change {
        None => (0, 0),
        Some(SetTime::Now) => (0, bit | now_bit),
        Some(SetTime::To(Time { sec, nsec })) => (nanos_of(sec.cast_signed(), nsec), bit),
    }
}
