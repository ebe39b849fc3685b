//! Attributes and directory entries between the wire and the tree.

use crate::message::{Dialect, Message, NAME_BYTES_MAX};
use crate::tree::{Attr, Entry, Errno, Result, SetAttr, SetTime, Statfs, Time};
use covey_wire::Field;

const ENTRY_HEADER_BYTES: usize = 24;
/// Room for one directory entry with the longest name.
pub(super) const ENTRY_BYTES_MAX: u32 = (ENTRY_HEADER_BYTES + NAME_BYTES_MAX) as u32;

/// The bits of Tgetattr that are answered with attributes every file has.
const GETATTR_BASIC: u64 = 0x7ff;
/// The bit of the time of birth.
const GETATTR_BTIME: u64 = 0x800;

/// The bits of Tsetattr's `valid`, as in Linux's p9.
pub(crate) mod valid {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 2;
    pub const GID: u32 = 4;
    pub const SIZE: u32 = 8;
    pub const ATIME: u32 = 16;
    pub const MTIME: u32 = 32;
    pub const ATIME_SET: u32 = 128;
    pub const MTIME_SET: u32 = 256;
}

/// Rgetattr of what was asked for.
pub(super) fn reply(attr: Attr, request_mask: u64) -> Message {
    let known = GETATTR_BASIC | if attr.btime == Time::default() { 0 } else { GETATTR_BTIME };
    Message::Rgetattr {
        valid: request_mask & known,
        qid: attr.qid,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        rdev: attr.rdev,
        size: attr.size,
        blksize: attr.blksize,
        blocks: attr.blocks,
        atime_sec: attr.atime.sec,
        atime_nsec: attr.atime.nsec,
        mtime_sec: attr.mtime.sec,
        mtime_nsec: attr.mtime.nsec,
        ctime_sec: attr.ctime.sec,
        ctime_nsec: attr.ctime.nsec,
        btime_sec: attr.btime.sec,
        btime_nsec: attr.btime.nsec,
        generation: 0,
        data_version: 0,
    }
}

/// What a Tsetattr asks for. CTIME asks for nothing: every change sets it.
pub(super) fn set_from(request: &Message) -> Result<SetAttr> {
    let &Message::Tsetattr {
        valid,
        mode,
        uid,
        gid,
        size,
        atime_sec,
        atime_nsec,
        mtime_sec,
        mtime_nsec,
        ..
    } = request
    else {
        unreachable!("asked of a Tsetattr only");
    };
    let has = |bit| valid & bit != 0;
    let time = |bit, set, sec, nsec| -> Result<Option<SetTime>> {
        match (has(bit), has(set)) {
            (false, _) => Ok(None),
            (true, false) => Ok(Some(SetTime::Now)),
            (true, true) if nsec < 1_000_000_000 => Ok(Some(SetTime::To(Time { sec, nsec }))),
            _ => Err(Errno::because(Errno::EINVAL, format!("time has {nsec} nanoseconds"))),
        }
    };
    Ok(SetAttr {
        mode: has(valid::MODE).then_some(mode),
        uid: has(valid::UID).then_some(uid),
        gid: has(valid::GID).then_some(gid),
        size: has(valid::SIZE).then_some(size),
        atime: time(valid::ATIME, valid::ATIME_SET, atime_sec, atime_nsec)?,
        mtime: time(valid::MTIME, valid::MTIME_SET, mtime_sec, mtime_nsec)?,
    })
}

/// Rreaddir of as many entries as fit, each `qid[13] offset[8] type[1] name[s]`.
pub(super) fn entries(entries: Vec<Entry>, bytes_max: u32) -> Result<Message> {
    let mut data = Vec::new();
    for entry in &entries {
        if data.len() + entry_bytes(entry) > bytes_max as usize {
            break;
        }
        let (c, out) = (Dialect::Linux, &mut data);
        entry.qid.put(c, out);
        entry.cookie.put(c, out);
        entry.kind.put(c, out);
        entry.name.put(c, out);
    }
    if data.is_empty() && !entries.is_empty() {
        let what = format!("{bytes_max} bytes hold no directory entry");
        return Err(Errno::because(Errno::EINVAL, what));
    }
    Ok(Message::Rreaddir { data: data.into() })
}

fn entry_bytes(entry: &Entry) -> usize {
    ENTRY_HEADER_BYTES + entry.name.len()
}

/// Rstatfs, with the file system type that Linux gives 9P.
pub(super) fn statfs(state: Statfs) -> Message {
    const V9FS_MAGIC: u32 = 0x0102_1997;
    Message::Rstatfs {
        kind: V9FS_MAGIC,
        bsize: state.bsize,
        blocks: state.blocks,
        bfree: state.bfree,
        bavail: state.bavail,
        files: state.files,
        ffree: state.ffree,
        fsid: state.fsid,
        namelen: state.namelen,
    }
}
