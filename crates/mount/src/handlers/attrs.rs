//! Attributes: GETATTR, SETATTR, ACCESS, STATFS, and the kernel's picture of an inode.

use super::{Result, Session, locked};
use crate::abi::flags::fattr;
use crate::abi::reply::{Attr, AttrOut, Entry, StatfsOut, StatxOut, SxTime, encode};
use crate::abi::{Header, Pad, Request};
use crate::behind::Moment;
use crate::files::Files;
use crate::kernel::lasts;
use crate::transport::Answer;
use covey_ninep::tree::{Errno, SetAttr, SetTime, Time};
use covey_stripe::client::Stat;
use covey_stripe::meta::is_dots;
use covey_stripe::meta::without_privilege;
use covey_stripe::ops::{Caller, Id, Inode, Nanos, seconds_of};
use covey_wire::Name;
use std::time::Duration;

impl<F: Files> Session<F> {
    pub(super) async fn getattr(&self, id: Id) -> Result<Answer> {
        self.behind.settle(id).await;
        let stat = self.stat_with_pages(id).await?;
        Ok(self.attr_out(&stat))
    }

    /// The same with the time of birth.
    pub(super) async fn statx(&self, id: Id) -> Result<Answer> {
        self.behind.settle(id).await;
        let stat = self.stat_with_pages(id).await?;
        self.note_told(&stat.inode);
        Ok(Answer::Small(encode(&statx(&stat, self.attributes_kept(&stat.inode)))))
    }

    pub(super) async fn setattr(&self, header: &Header, request: Request) -> Result<Answer> {
        let Request::Setattr { valid, fh, .. } = request else {
            return Err(Errno::EINVAL.into());
        };
        let set = set_of(&request);
        // What was written before must not come after a cut, nor after a time that is set.
        self.behind.settle(header.nodeid).await;
        let by_handle = valid & fattr::FH != 0 && self.open.find(fh)?.writable;
        self.look_for_setgid(header, set.mode.unwrap_or(0));
        // ftruncate(2) asks the descriptor, not the mode that the file has by now.
        let is_cut = by_handle && only_size(&set);
        let as_asked = async |who: &Caller| {
            if is_cut {
                self.files.setattr_open(who, header.nodeid, set.clone()).await
            } else {
                self.files.setattr(who, header.nodeid, set.clone()).await
            }
        };
        let stat = match self.as_caller(header, as_asked).await {
            // The kernel begins a change of the file's ranges so where a stranger's takes privilege away, and leaves
            // that to us: fallocate(2) does it.
            Err(error) if error.code == Errno::EPERM && set == SetAttr::default() => {
                self.files.stat(header.nodeid).await?
            }
            stat => stat?,
        };
        Ok(self.attr_out(&stat))
    }

    /// Asked only of mounts where the kernel does not check permissions itself.
    pub(super) async fn access(&self, header: &Header, mask: u32) -> Result<Answer> {
        let stat = self.files.stat(header.nodeid).await?;
        let allowed = async |who: &Caller| {
            if permits(&stat.inode, who, mask & 7) {
                Ok(Answer::Done)
            } else {
                Err(Errno::EACCES.into())
            }
        };
        self.as_caller(header, allowed).await
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

    /// The entry of an inode, from what the metadata server says alone.
    /// `is_listed`: it is part of a listing, of which the kernel is told with [`Kernel::tell_listing`].
    ///
    /// [`Kernel::tell_listing`]: crate::kernel::Kernel::tell_listing
    pub(super) fn entry(&self, parent: Id, name: &Name, inode: &Inode, is_listed: bool) -> Entry {
        self.note_told(inode);
        let entry_valid = self.entry_valid(parent, name, inode, is_listed);
        let attr_valid = self.entry_attr_valid(inode, is_listed);
        Entry {
            nodeid: inode.id,
            generation: 0,
            entry_valid: entry_valid.as_secs(),
            entry_valid_nsec: entry_valid.subsec_nanos(),
            attr_valid: attr_valid.as_secs(),
            attr_valid_nsec: attr_valid.subsec_nanos(),
            attr: attr(inode, dense_blocks(inode)),
        }
    }

    /// How long a name is good: of directories, which are passed on the way to everything, as long
    /// as the lease on their place, others of a listing for a moment. Longer where the directory's mode is weaker.
    fn entry_valid(&self, parent: Id, name: &Name, inode: &Inode, is_listed: bool) -> Duration {
        let is_dir = inode.mode & S_IFMT == S_IFDIR;
        let kept = self.names_kept(parent);
        if !kept.is_zero() || is_dots(name) {
            return kept;
        }
        if !is_dir {
            return self.glimpse_of_names(parent, is_listed);
        }
        let left = self.files.time_left(inode.id).1.saturating_sub(DELAY);
        if !left.is_zero() {
            self.kernel.tell_place(inode.id, parent, name);
        }
        left
    }

    /// How long the kernel may use what it is told of a file without a way to take that back at once.
    fn glimpse(&self, id: Id, is_listed: bool) -> Duration {
        if is_listed { lasts(self.files.time_left(id).0) } else { Duration::ZERO }
    }

    /// The same of the names in a directory.
    pub(super) fn glimpse_of_names(&self, id: Id, is_listed: bool) -> Duration {
        if is_listed { lasts(self.files.names_left(id)) } else { Duration::ZERO }
    }

    /// How long the attributes in an entry are good.
    ///
    /// Without a lease stat(2) would ask twice on a strict mount, LOOKUP and GETATTR. A nanosecond, which
    /// the kernel rounds up to a tick of its clock, spares the second. It is safe for what is not open: the
    /// next stat by name asks again, and OPEN makes the kernel forget. Directories stay out of it,
    /// because `.` is reached without a LOOKUP.
    ///
    /// A lease counts in a listing alone: an inode that the kernel is about to make cannot be made to
    /// forget. The answer to a GETATTR can, and is good for as long as the lease.
    fn entry_attr_valid(&self, inode: &Inode, is_listed: bool) -> Duration {
        let is_dir = inode.mode & S_IFMT == S_IFDIR;
        let kept = match self.attributes_kept(inode) {
            // The blocks are not known: whoever wants them must ask.
            _ if inode.sparse || !self.pages_agree(inode) => return Duration::ZERO,
            Duration::ZERO => self.glimpse(inode.id, is_listed),
            kept => kept,
        };
        match kept {
            Duration::ZERO if is_dir || locked(&self.opened).contains_key(&inode.id) => {
                Duration::ZERO
            }
            Duration::ZERO => Duration::from_nanos(1),
            timeout => timeout,
        }
    }

    fn attr_out(&self, stat: &Stat) -> Answer {
        self.note_told(&stat.inode);
        let valid = match self.attributes_kept(&stat.inode) {
            _ if stat.is_foretold || !self.pages_agree(&stat.inode) => Duration::ZERO,
            // Its blocks are not under the lease.
            Duration::ZERO if stat.inode.sparse => Duration::ZERO,
            Duration::ZERO => self.files.time_left(stat.inode.id).0.saturating_sub(DELAY),
            timeout => timeout,
        };
        Answer::Small(encode(&AttrOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            dummy: Pad,
            attr: attr(&stat.inode, stat.blocks),
        }))
    }

    /// The attributes of a name's inode, which were asked for after `then`, once what was written of
    /// it has reached the servers.
    pub(super) async fn settled(&self, inode: Inode, then: Moment) -> Result<Inode> {
        if !self.behind.wrote_since(inode.id, then) {
            return Ok(inode);
        }
        self.behind.settle(inode.id).await;
        Ok(self.files.stat(inode.id).await?.inode)
    }

    /// An inode is about to be sent to the kernel.
    fn note_told(&self, inode: &Inode) {
        self.note_mode(inode);
        self.note_privilege(inode);
    }

    fn note_privilege(&self, inode: &Inode) {
        let mut privileged = locked(&self.privileged);
        if inode.mode & S_IFMT == S_IFREG && inode.mode & (S_ISUID | S_ISGID) != 0 {
            privileged.insert(inode.id);
        } else if !privileged.is_empty() {
            privileged.remove(&inode.id);
        }
    }

    /// Before a write by somebody who is not root: takes the file's privilege bits away, if it had
    /// any when the kernel last heard of it. The metadata server does so for what it is asked to do
    /// by that user, but does not hear of each write.
    pub(super) async fn drop_privilege(&self, header: &Header, id: Id) -> Result<()> {
        if !locked(&self.privileged).contains(&id) {
            return Ok(());
        }
        let inode = self.files.stat(id).await?.inode;
        // A file of the writer's group that nobody of it executes keeps its mark for locking.
        let left = async |who: &Caller| Ok(without_privilege(who, inode.mode, inode.gid));
        let mode = self.as_caller(header, left).await?;
        if mode == inode.mode {
            return Ok(());
        }
        let set = SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() };
        self.files.setattr(&Caller::default(), id, set).await?;
        if mode & S_ISGID == 0 {
            locked(&self.privileged).remove(&id);
        }
        self.kernel.forget_attributes(id);
        Ok(())
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

fn statx(stat: &Stat, valid: Duration) -> StatxOut {
    let inode = &stat.inode;
    let time = |time: Nanos| {
        let (sec, nsec) = split(time);
        SxTime { sec, nsec, reserved: Pad }
    };
    StatxOut {
        attr_valid: valid.as_secs(),
        attr_valid_nsec: valid.subsec_nanos(),
        mask: STATX_BASIC_STATS | STATX_BTIME,
        blksize: IO_BLOCK_BYTES,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        mode: inode.mode as u16,
        ino: inode.id,
        size: inode.size,
        blocks: stat.blocks,
        atime: time(inode.atime),
        btime: time(inode.btime),
        ctime: time(inode.ctime),
        mtime: time(inode.mtime),
        rdev_major: (inode.rdev as u32 >> 8) & 0xfff,
        rdev_minor: (inode.rdev as u32 & 0xff) | (inode.rdev as u32 >> 12 & 0xfff00),
        ..StatxOut::default()
    }
}

const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

fn split(time: Nanos) -> (u64, u32) {
    let (seconds, nanos) = seconds_of(time);
    (seconds.cast_unsigned(), nanos)
}

/// In units of 512 bytes, of what has no holes.
fn dense_blocks(inode: &Inode) -> u64 {
    match inode.mode & S_IFMT {
        S_IFREG => inode.size.div_ceil(4096).saturating_mul(8),
        _ => 0,
    }
}

/// What a SETATTR asks for.
pub(crate) fn set_of(request: &Request) -> SetAttr {
    let &Request::Setattr {
        valid, size, atime, mtime, atimensec, mtimensec, mode, uid, gid, ..
    } = request
    else {
        return SetAttr::default();
    };
    let has = |bit: u32| valid & bit != 0;
    let time = |bit: u32, now: u32, sec: u64, nsec: u32| match (has(bit), has(now)) {
        (_, true) => Some(SetTime::Now),
        // The kernel sends seconds as a signed number, and so does 9P.
        (true, false) => Some(SetTime::To(Time { sec, nsec: nsec.into() })),
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

/// What an answer's way into the kernel may take of the time that it names.
const DELAY: Duration = Duration::from_millis(20);

/// `st_blksize`: what stdio and cp use as a buffer where no page cache gathers small writes.
const IO_BLOCK_BYTES: u32 = 128 * 1024;

const STATFS_BLOCK_BYTES: u32 = 4096;

pub(super) const S_IFMT: u32 = 0o170_000;
pub(super) const S_IFDIR: u32 = 0o040_000;
pub(super) const S_IFREG: u32 = 0o100_000;
const S_ISUID: u32 = 0o4000;
pub(super) const S_ISGID: u32 = 0o2000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_truncation_may_be_granted_by_the_handle() {
        let size = SetAttr { size: Some(1), ..SetAttr::default() };
        assert!(only_size(&size));
        assert!(!only_size(&SetAttr { mode: Some(0o4777), ..size }));
        assert!(!only_size(&SetAttr::default()));
    }
}
