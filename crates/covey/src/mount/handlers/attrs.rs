//! Attributes: GETATTR, SETATTR, ACCESS, STATFS, and the kernel's picture of an inode.

use super::{Result, Session};
use crate::mount::abi::flags::fattr;
use crate::mount::abi::reply::{Attr, AttrOut, Entry, StatfsOut, encode};
use crate::mount::abi::{Header, Pad, Request};
use crate::mount::files::Files;
use crate::mount::transport::Answer;
use covey_ninep::tree::{Errno, SetAttr, SetTime, Time};
use covey_stripe::client::Stat;
use covey_stripe::ops::{Caller, Id, Inode, Nanos};
use std::time::Duration;

impl<F: Files> Session<F> {
    pub(super) async fn getattr(&self, id: Id) -> Result<Answer> {
        let stat = self.files.stat(id).await?;
        Ok(self.attr_out(&stat))
    }

    pub(super) async fn setattr(&self, header: &Header, request: Request) -> Result<Answer> {
        let Request::Setattr { valid, fh, .. } = request else {
            return Err(Errno::EINVAL.into());
        };
        let set = set_of(&request);
        let who = self.caller(header);
        let by_handle = valid & fattr::FH != 0 && self.open.find(fh)?.writable;
        let stat = match self.files.setattr(&who, header.nodeid, set.clone()).await {
            // ftruncate(2) asks the descriptor, not the mode that the file has by now.
            Err(error) if error.code == Errno::EACCES && by_handle && only_size(&set) => {
                self.files.setattr(&Caller::default(), header.nodeid, set).await?
            }
            outcome => outcome?,
        };
        Ok(self.attr_out(&stat))
    }

    /// Asked only of mounts where the kernel does not check permissions itself.
    pub(super) async fn access(&self, header: &Header, mask: u32) -> Result<Answer> {
        let stat = self.files.stat(header.nodeid).await?;
        match permits(&stat.inode, &self.caller(header), mask & 7) {
            true => Ok(Answer::Done),
            false => Err(Errno::EACCES.into()),
        }
    }

    pub(super) async fn statfs(&self) -> Result<Answer> {
        let space = self.files.space().await?;
        let blocks = |bytes: u64| bytes / u64::from(STATFS_BLOCK_BYTES);
        Ok(Answer::Small(encode(&StatfsOut {
            blocks: blocks(space.bytes_total),
            bfree: blocks(space.bytes_free),
            bavail: blocks(space.bytes_available),
            // The store sets no limit on files but its space: a free block is room for one.
            files: space.files.saturating_add(blocks(space.bytes_available)),
            ffree: blocks(space.bytes_available),
            bsize: STATFS_BLOCK_BYTES,
            frsize: STATFS_BLOCK_BYTES,
            namelen: super::names::NAME_BYTES_MAX as u32,
            ..StatfsOut::default()
        })))
    }

    /// The entry of an inode. `blocks` is unknown where only the metadata server was asked: then
    /// it follows from the size, or, for a sparse file, must be asked for.
    pub(super) fn entry(&self, inode: &Inode, blocks: Option<u64>) -> Entry {
        let attr_valid = match blocks.is_none() && inode.sparse {
            true => Duration::ZERO,
            false => self.options.attr_timeout,
        };
        let entry_valid = self.options.entry_timeout;
        Entry {
            nodeid: inode.id,
            generation: 0,
            entry_valid: entry_valid.as_secs(),
            entry_valid_nsec: entry_valid.subsec_nanos(),
            attr_valid: attr_valid.as_secs(),
            attr_valid_nsec: attr_valid.subsec_nanos(),
            attr: attr(inode, blocks.unwrap_or_else(|| dense_blocks(inode.size))),
        }
    }

    fn attr_out(&self, stat: &Stat) -> Answer {
        let valid = self.options.attr_timeout;
        Answer::Small(encode(&AttrOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            dummy: Pad,
            attr: attr(&stat.inode, stat.blocks),
        }))
    }
}

fn attr(inode: &Inode, blocks: u64) -> Attr {
    let (atime, atimensec) = split(inode.atime);
    let (mtime, mtimensec) = split(inode.mtime);
    let (ctime, ctimensec) = split(inode.ctime);
    Attr {
        ino: inode.id,
        size: inode.size,
        blocks,
        atime,
        mtime,
        ctime,
        atimensec,
        mtimensec,
        ctimensec,
        mode: inode.mode,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        // The low half of makedev(3)'s number is the kernel's own 32-bit form.
        rdev: inode.rdev as u32,
        blksize: IO_BLOCK_BYTES,
        flags: 0,
    }
}

fn split(time: Nanos) -> (u64, u32) {
    (time / NANOS, (time % NANOS) as u32)
}

/// In units of 512 bytes, for a file without holes.
fn dense_blocks(size: u64) -> u64 {
    size.div_ceil(4096).saturating_mul(8)
}

fn set_of(request: &Request) -> SetAttr {
    let &Request::Setattr {
        valid, size, atime, mtime, atimensec, mtimensec, mode, uid, gid, ..
    } = request
    else {
        return SetAttr::default();
    };
    let has = |bit: u32| valid & bit != 0;
    let time = |bit: u32, now: u32, sec: u64, nsec: u32| match (has(bit), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::To(representable(sec, nsec))),
        (false, false) => None,
    };
    SetAttr {
        mode: has(fattr::MODE).then_some(mode & 0o7777),
        uid: has(fattr::UID).then_some(uid),
        gid: has(fattr::GID).then_some(gid),
        size: has(fattr::SIZE).then_some(size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, atime, atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, mtime, mtimensec),
    }
}

/// Times are kept in nanoseconds since 1970: what lies outside (the kernel sends seconds as a signed
/// number) becomes the nearest that can be kept.
fn representable(sec: u64, nsec: u32) -> Time {
    match sec as i64 {
        ..0 => Time { sec: 0, nsec: 0 },
        _ if sec > u64::MAX / NANOS - 1 => Time { sec: u64::MAX / NANOS - 1, nsec: 0 },
        _ => Time { sec, nsec: u64::from(nsec) },
    }
}

fn only_size(set: &SetAttr) -> bool {
    set.size.is_some() && SetAttr { size: None, ..set.clone() } == SetAttr::default()
}

/// access(2): `mask` is 4 read, 2 write, 1 execute.
fn permits(inode: &Inode, who: &Caller, mask: u32) -> bool {
    if who.uid == 0 {
        let executable = inode.mode & 0o111 != 0 || inode.mode & S_IFMT == S_IFDIR;
        return mask & 1 == 0 || executable;
    }
    let granted = if who.uid == inode.uid {
        inode.mode >> 6
    } else if who.gid == inode.gid || who.groups.0.contains(&inode.gid) {
        inode.mode >> 3
    } else {
        inode.mode
    };
    mask & !granted == 0
}

const NANOS: u64 = 1_000_000_000;

/// `st_blksize`: what stdio and cp use as a buffer where no page cache gathers small writes.
const IO_BLOCK_BYTES: u32 = 128 * 1024;

const STATFS_BLOCK_BYTES: u32 = 4096;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_after_2554_become_the_nearest_that_can_be_kept() {
        assert_eq!(representable(-5i64 as u64, 3), Time { sec: 0, nsec: 0 });
        assert_eq!(representable(7, 3), Time { sec: 7, nsec: 3 });
        let last = representable(i64::MAX as u64, 999_999_999);
        assert!(last.sec.checked_mul(NANOS).is_some());
    }

    #[test]
    fn only_a_bare_truncation_may_be_granted_by_the_handle() {
        let size = SetAttr { size: Some(1), ..SetAttr::default() };
        assert!(only_size(&size));
        assert!(!only_size(&SetAttr { mode: Some(0o4777), ..size }));
        assert!(!only_size(&SetAttr::default()));
    }
}
