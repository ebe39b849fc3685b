//! Files of the exported directory as objects: descriptors, never paths.
//!
//! A walk opens each name with O_PATH, which touches nothing but the name: no symbolic link is
//! followed, no device or FIFO is opened. What is opened later is that same object, through its entry
//! in `/proc/self/fd`, so a file that was renamed or removed meanwhile is still the one that was
//! meant, and a name that was replaced by something else does no harm.

use super::list::Listing;
use super::locks::OwnerLocks;
use covey_io::os::file::DataFile;
use covey_ninep::message::Qid;
use covey_ninep::tree::{Attr, Errno, Result, Time};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// A file of the export, as one or more fids hold it.
#[derive(Clone)]
pub struct Node(pub(super) Rc<Object>);

/// What a node is.
pub(super) struct Object {
    /// Unique in the export.
    pub path: u64,
    pub kind: FileType,
    /// Device number, to tell file systems apart.
    pub device: u64,
    pub handle: Handle,
    /// Locks taken through this node. They end with the last node that took some for their owner.
    pub locks: RefCell<Vec<Rc<OwnerLocks>>>,
}

/// How it is held.
pub(super) enum Handle {
    /// With O_PATH, for everything but data.
    Place(OwnedFd),
    /// Open for data.
    File { data: DataFile, writable: bool },
    /// Open for its entries.
    Dir(Listing),
}

impl AsFd for Object {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.handle {
            Handle::Place(fd) => fd.as_fd(),
            Handle::File { data, .. } => data.as_fd(),
            Handle::Dir(listing) => listing.as_fd(),
        }
    }
}

impl Object {
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Its name within the directory `/proc/self/fd`.
    pub fn proc_name(&self) -> String {
        self.as_fd().as_raw_fd().to_string()
    }
}

/// Refuses what can hang or act when it is opened.
pub(super) fn check_can_open(kind: FileType) -> Result<()> {
    match kind {
        FileType::RegularFile | FileType::Directory => Ok(()),
        FileType::Symlink => Err(Errno::ELOOP.into()),
        _ => Err(Errno::because(Errno::ENXIO, "only files and directories can be opened")),
    }
}

/// Opens one name in a directory, as it is.
pub(super) fn open_place(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve).map_err(errno)
}

/// The directory above; not checked to be in the export.
pub(super) fn open_parent(dir: impl AsFd) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::DIRECTORY;
    rustix::fs::openat(dir, "..", flags, Mode::empty()).map_err(errno)
}

/// Attributes of an open object, a symbolic link included.
pub(super) fn stat(of: impl AsFd) -> Result<Statx> {
    stat_at(of, b"", AtFlags::EMPTY_PATH)
}

/// Attributes of a name, without following it.
pub(super) fn stat_name(dir: impl AsFd, name: &[u8]) -> Result<Statx> {
    stat_at(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn stat_at(dir: impl AsFd, name: &[u8], flags: AtFlags) -> Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(dir, name, flags, wanted).map_err(errno)
}

/// Device and inode, together unique on this machine.
pub(super) fn identity(stat: &Statx) -> (u64, u64) {
    (device(stat), stat.stx_ino)
}

pub(super) fn device(stat: &Statx) -> u64 {
    rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

pub(super) fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(u32::from(stat.stx_mode))
}

/// The qid of what has these attributes. Its version changes whenever the file's size or times do.
pub(super) fn qid(path: u64, stat: &Statx) -> Qid {
    let (changed, modified) = (stat.stx_ctime, stat.stx_mtime);
    let seconds =
        (changed.tv_sec.cast_unsigned()).rotate_left(32) ^ modified.tv_sec.cast_unsigned();
    let fractions = u64::from(changed.tv_nsec) << 32 | u64::from(modified.tv_nsec);
    let mixed = mix(mix(seconds) ^ fractions) ^ stat.stx_size;
    Qid { kind: qid_kind(kind(stat)), version: (mix(mixed) >> 32) as u32, path }
}

pub(super) fn qid_kind(kind: FileType) -> u8 {
    match kind {
        FileType::Directory => Qid::DIR,
        FileType::Symlink => Qid::SYMLINK,
        _ => Qid::FILE,
    }
}

/// A number of which every bit depends on every bit of `n` (the finaliser of MurmurHash3).
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let n = (n ^ (n >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    n ^ (n >> 33)
}

pub(super) fn attr(path: u64, stat: &Statx) -> Attr {
    let time = |time: rustix::fs::StatxTimestamp| Time {
        sec: time.tv_sec.cast_unsigned(),
        nsec: u64::from(time.tv_nsec),
    };
    Attr {
        qid: qid(path, stat),
        mode: u32::from(stat.stx_mode),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: u64::from(stat.stx_nlink),
        rdev: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        blksize: u64::from(stat.stx_blksize),
        blocks: stat.stx_blocks,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
        btime: time(stat.stx_btime),
    }
}

/// The system's number. No text is made: ENOENT is daily bread.
pub(super) fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from(error.raw_os_error().cast_unsigned())
}
