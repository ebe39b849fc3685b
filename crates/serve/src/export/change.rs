//! Changes to objects: attributes, new names, hard links.
//!
//! Everything acts on descriptors. Where a system call insists on a path, the object's entry in
//! `/proc/self/fd` is that path; it leads to the object itself, even when it has no name any more.

use super::object::{Handle, Object, errno};
use covey_ninep::tree::{Errno, Make, Result, SetAttr, SetTime};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
};
use std::os::fd::{AsFd, OwnedFd};

/// The open directory `/proc/self/fd`.
#[derive(Debug)]
pub(super) struct ProcFd(OwnedFd);

impl ProcFd {
    pub fn open() -> rustix::io::Result<ProcFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open("/proc/self/fd", flags, Mode::empty()).map(ProcFd)
    }

    /// Opens the object itself. The caller has checked that it is a file or a directory.
    pub fn reopen(&self, object: &Object, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::openat(&self.0, object.proc_name(), flags, Mode::empty()).map_err(errno)
    }

    /// Changes attributes in the order that keeps what is asked for: a change of owner may clear mode
    /// bits, so may a change of size, and every change touches the times. The size comes as late as it
    /// can: it is what cannot be taken back when something else is refused.
    pub fn set_attr(&self, object: &Object, set: &SetAttr) -> Result<()> {
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            rustix::fs::chownat(object, "", uid, gid, AtFlags::EMPTY_PATH).map_err(errno)?;
        }
        if set.size.is_some() {
            self.set_times(object, set)?;
        }
        // The mode may take away the right to cut.
        let to_cut = set.size.map(|size| Ok::<_, Errno>((size, self.open_to_cut(object)?)));
        let to_cut = to_cut.transpose()?;
        if let Some(mode) = set.mode {
            self.set_mode(object, mode)?;
        }
        if let Some((size, file)) = to_cut {
            match file {
                Some(file) => rustix::fs::ftruncate(file, size),
                None => rustix::fs::ftruncate(object, size),
            }
            .map_err(errno)?;
            if let Some(mode) = set.mode.filter(|mode| mode & SET_IDS != 0) {
                self.set_mode(object, mode)?;
            }
        }
        self.set_times(object, set)
    }

    fn set_times(&self, object: &Object, set: &SetAttr) -> Result<()> {
        if set.atime.is_none() && set.mtime.is_none() {
            return Ok(());
        }
        let times =
            Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) };
        let name = object.proc_name();
        rustix::fs::utimensat(&self.0, name, &times, AtFlags::empty()).map_err(errno)
    }

    /// What the size is changed through, unless the object is open for writing itself: then that is
    /// enough, whatever the mode says by now.
    fn open_to_cut(&self, object: &Object) -> Result<Option<OwnedFd>> {
        match &object.handle {
            Handle::File { writable: true, .. } => Ok(None),
            _ if object.is_dir() => Err(Errno::EISDIR.into()),
            _ if object.kind != FileType::RegularFile => Err(Errno::EINVAL.into()),
            _ => self.reopen(object, OFlags::WRONLY).map(Some),
        }
    }

    fn set_mode(&self, object: &Object, mode: u32) -> Result<()> {
        if object.kind == FileType::Symlink {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let name = object.proc_name();
        rustix::fs::chmodat(&self.0, name, permissions(mode), AtFlags::empty()).map_err(errno)
    }

    /// A hard link to the object itself.
    pub fn link(&self, object: &Object, dir: impl AsFd, name: &[u8]) -> Result<()> {
        let flags = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(&self.0, object.proc_name(), dir, name, flags).map_err(errno)
    }
}

/// Makes a new file and opens it; EEXIST when the name is taken by anything.
pub(super) fn create(dir: impl AsFd, name: &[u8], flags: OFlags, mode: u32) -> Result<OwnedFd> {
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, permissions(mode)).map_err(errno)
}

/// Makes what is not a plain open file. Devices are never made.
pub(super) fn make(dir: impl AsFd, name: &[u8], make: &Make) -> Result<()> {
    match make {
        Make::Dir { mode } => rustix::fs::mkdirat(dir, name, permissions(*mode)),
        Make::Symlink { target } => rustix::fs::symlinkat(target.as_bytes(), dir, name),
        Make::Special { mode, .. } => {
            let kind = match FileType::from_raw_mode(*mode) {
                kind @ (FileType::Fifo | FileType::Socket | FileType::RegularFile) => kind,
                FileType::CharacterDevice | FileType::BlockDevice => {
                    return Err(Errno::because(Errno::EPERM, "devices are not made over 9P"));
                }
                _ => return Err(Errno::EINVAL.into()),
            };
            rustix::fs::mknodat(dir, name, kind, permissions(*mode), 0)
        }
    }
    .map_err(errno)
}

/// Whether a file is set-user-ID or set-group-ID, which a write may have to take away. Programs of this
/// machine change that at any time, so it is asked before each write.
pub(super) fn is_privileged(file: impl AsFd) -> bool {
    rustix::fs::fstat(file).map_or(true, |found| found.st_mode & SET_IDS != 0)
}

fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

fn timespec(set: Option<SetTime>) -> Timespec {
    match set {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        // A time that the kernel refuses becomes EINVAL there.
        Some(SetTime::To(time)) => {
            Timespec { tv_sec: time.sec.cast_signed(), tv_nsec: time.nsec.cast_signed() }
        }
    }
}

/// The mode bits that a change of size clears.
const SET_IDS: u32 = 0o6000;
