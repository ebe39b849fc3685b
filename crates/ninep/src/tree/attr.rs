//! What is known of a file and may be asked of it: attributes, changes of them, entries, the state of a file system.

use super::{Errno, Result};
use crate::message::Qid;
use covey_wire::Name;

/// The flag of open(2) that makes the file.
pub const O_CREAT: u32 = 0o100;
/// The flag of open(2) that wants to be the one who makes it.
pub const O_EXCL: u32 = 0o200;
/// The flag of open(2) that empties the file.
pub const O_TRUNC: u32 = 0o1000;
/// The flag of open(2) that writes at the end.
pub const O_APPEND: u32 = 0o2000;

/// The bits of [`Attr::mode`] that say what a file is.
pub const S_IFMT: u32 = 0o170000;
/// A socket.
pub const S_IFSOCK: u32 = 0o140000;
/// A block device.
pub const S_IFBLK: u32 = 0o060000;
/// A character device.
pub const S_IFCHR: u32 = 0o020000;
/// A FIFO.
pub const S_IFIFO: u32 = 0o010000;
/// A directory.
pub const S_IFDIR: u32 = 0o040000;
/// A plain file.
pub const S_IFREG: u32 = 0o100000;
/// A symbolic link.
pub const S_IFLNK: u32 = 0o120000;

/// Attributes, as Rgetattr has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Attr {
    pub qid: Qid,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u64,
    pub rdev: u64,
    pub size: u64,
    pub blksize: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
}

impl Attr {
    /// Of a new file with one name. `mode` has type bits; they decide the qid's kind, too.
    pub fn new(path: u64, mode: u32, uid: u32, gid: u32, now: Time) -> Self {
        let kind = match mode & S_IFMT {
            S_IFDIR => Qid::DIR,
            S_IFLNK => Qid::SYMLINK,
            _ => Qid::FILE,
        };
        let qid = Qid { kind, version: 0, path };
        let (atime, mtime, ctime) = (now, now, now);
        Attr {
            qid,
            mode,
            uid,
            gid,
            nlink: 1,
            blksize: 4096,
            atime,
            mtime,
            ctime,
            ..Attr::default()
        }
    }

    /// Counts a change of anything.
    pub fn change(&mut self, now: Time) {
        self.ctime = now;
        self.qid.version = self.qid.version.wrapping_add(1);
    }

    /// Counts a change of the content.
    pub fn change_content(&mut self, now: Time) {
        self.mtime = now;
        self.change(now);
    }

    /// Counts names that have come or gone.
    pub fn change_links(&mut self, by: i64, now: Time) {
        self.nlink = self.nlink.saturating_add_signed(by);
        self.change(now);
    }

    /// Whether an unlink may remove the file: EISDIR or ENOTDIR if not.
    pub fn check_unlink(&self, what: Removal) -> Result<()> {
        match (Removal::of_mode(self.mode), what) {
            (Removal::Directory, Removal::File) => Err(Errno::EISDIR.into()),
            (Removal::File, Removal::Directory) => Err(Errno::ENOTDIR.into()),
            _ => Ok(()),
        }
    }
}

/// What an unlink removes. One of the other kind is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Anything but a directory, as unlink(2).
    File,
    /// An empty directory, as rmdir(2).
    Directory,
}

impl Removal {
    /// What removes a file of this mode.
    pub fn of_mode(mode: u32) -> Removal {
        Removal::directory_if(mode & S_IFMT == S_IFDIR)
    }

    /// As AT_REMOVEDIR says.
    pub fn directory_if(is_dir: bool) -> Removal {
        if is_dir { Removal::Directory } else { Removal::File }
    }

    /// Whether it is that of a directory.
    pub fn is_dir(self) -> bool {
        self == Removal::Directory
    }
}

/// Seconds and nanoseconds since 1970. Times before that have negative seconds, in two's complement, as
/// Linux sends them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub struct Time {
    pub sec: u64,
    pub nsec: u64,
}

/// What Tsetattr asks: only what is `Some` changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
}

impl SetAttr {
    /// Does what is asked to attributes that are kept in memory; the size is left to the caller.
    pub fn apply(&self, attr: &mut Attr, now: Time) {
        let time = |asked, old| match asked {
            Some(SetTime::To(time)) => time,
            Some(SetTime::Now) => now,
            None => old,
        };
        attr.atime = time(self.atime, attr.atime);
        attr.mtime = time(self.mtime.or(self.size.map(|_| SetTime::Now)), attr.mtime);
        attr.mode = self.mode.map_or(attr.mode, |mode| attr.mode & !0o7777 | mode & 0o7777);
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        attr.change(now);
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock.
    Now,
    /// This time.
    To(Time),
}

/// What to make with [`Tree::make`](super::Tree::make).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Make {
    /// A directory with these permission bits.
    Dir { mode: u32 },
    /// A symbolic link.
    Symlink { target: Name },
    /// A device, FIFO or socket: mode with its type bits.
    Special { mode: u32, major: u32, minor: u32 },
}

impl Make {
    /// The mode with its type bits, and a symbolic link's target.
    pub fn into_mode_and_target(self) -> (u32, Name) {
        match self {
            Make::Dir { mode } => (S_IFDIR | mode & 0o7777, Name::default()),
            Make::Symlink { target } => (S_IFLNK | 0o777, target),
            Make::Special { mode, .. } => (mode, Name::default()),
        }
    }
}

/// One directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its qid.
    pub qid: Qid,
    /// Where to go on after it: any number but 0, stable while the directory changes.
    pub cookie: u64,
    /// DT_DIR and the like, from readdir(3).
    pub kind: u8,
    /// Its name.
    pub name: Name,
}

/// A file system's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Statfs {
    pub bsize: u32,
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub fsid: u64,
    pub namelen: u32,
}
