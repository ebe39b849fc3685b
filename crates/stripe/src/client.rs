//! The striping client: the file system as async functions, with no runtime named.

use crate::ops::{Caller, DirEntry, Id, Inode, LayoutHint, RangeLock};
use covey_ninep::tree::{Errno, SetAttr};
use covey_wire::{Bytes, Name, Payload};
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// What every call answers.
pub type Result<T> = std::result::Result<T, Errno>;

/// A future without a name.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What the client needs of the world: connections, a clock, and someone to run its tasks.
pub trait Net: Send + Sync + 'static {
    /// Connects to a server, proves what must be proven, and attaches to the named tree (`/meta` or
    /// `/data`); answers a handle whose machine is being driven, with fid 0 at the tree's root.
    fn dial(&self, server: &str, aname: &str) -> BoxFuture<Result<covey_ninep::client::Conn>>;
    /// The clock.
    fn now(&self) -> Instant;
    /// Completes after `time`.
    fn sleep(&self, time: Duration) -> BoxFuture<()>;
    /// Runs a task beside everything else.
    fn spawn(&self, task: BoxFuture<()>);
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Wait for a dead server for as long as it takes (a dropped future ends the wait), instead of EIO.
    pub hard: bool,
    /// How long a request to a dead server may take before EIO.
    pub dead_after: Duration,
    /// A name for logs and status: host and pid.
    pub name: String,
}

/// A file's attributes with its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What the metadata server says.
    pub inode: Inode,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
}

/// The file system, seen by one client. Clones share everything.
#[derive(Clone)]
pub struct Fs {}

/// An open file. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct File {}

/// One page of a directory.
#[derive(Clone, Debug)]
pub struct Page {
    /// The entries.
    pub entries: Vec<DirEntry>,
    /// Nothing comes after them.
    pub end: bool,
    /// The last cookie in use when the listing began; hand it to the next call.
    pub limit: u64,
}

/// What a file system has and uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Space {
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub bytes_available: u64,
    pub files: u64,
}

#[allow(unused_variables, missing_docs)]
impl Fs {
    /// Connects to the metadata server `meta`; I/O servers are met when they are needed.
    pub async fn connect(net: std::sync::Arc<dyn Net>, meta: &str, options: Options) -> Result<Fs> {
        Err(Errno::ENOSYS.into())
    }
    /// Down names from a directory (`..` allowed); fewer inodes than names when a later one is missing.
    pub async fn walk(&self, who: &Caller, from: Id, names: &[Name]) -> Result<Vec<Inode>> {
        Err(Errno::ENOSYS.into())
    }
    /// One name.
    pub async fn lookup(&self, who: &Caller, parent: Id, name: &Name) -> Result<Inode> {
        Err(Errno::ENOSYS.into())
    }
    /// Attributes with honest blocks.
    pub async fn stat(&self, id: Id) -> Result<Stat> {
        Err(Errno::ENOSYS.into())
    }
    pub async fn setattr(&self, who: &Caller, id: Id, set: SetAttr) -> Result<Stat> {
        Err(Errno::ENOSYS.into())
    }
    /// Creates (or, not exclusive, opens) a regular file. `access`: 4 read, 2 write.
    pub async fn create(&self, who: &Caller, parent: Id, name: &Name, mode: u32, exclusive: bool, access: u8) -> Result<(Inode, File)> {
        Err(Errno::ENOSYS.into())
    }
    /// Makes a directory, symbolic link or special file: `mode` with its type bits.
    pub async fn make(&self, who: &Caller, parent: Id, name: &Name, mode: u32, rdev: u64, target: Name) -> Result<Inode> {
        Err(Errno::ENOSYS.into())
    }
    /// Opens a regular file (or directory, to keep it). `access`: 4 read, 2 write, 1 execute.
    pub async fn open(&self, who: &Caller, id: Id, access: u8) -> Result<File> {
        Err(Errno::ENOSYS.into())
    }
    pub async fn unlink(&self, who: &Caller, parent: Id, name: &Name, dir: bool) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    /// `flags`: `ops::rename`.
    pub async fn rename(&self, who: &Caller, parent: Id, name: &Name, to: Id, to_name: &Name, flags: u32) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    pub async fn link(&self, who: &Caller, id: Id, parent: Id, name: &Name) -> Result<Inode> {
        Err(Errno::ENOSYS.into())
    }
    /// Entries after `cookie` (0: from the start, `.` and `..` first) up to `limit` (0 on the first call).
    pub async fn readdir(&self, who: &Caller, id: Id, cookie: u64, limit: u64, bytes_max: u32, plus: bool) -> Result<Page> {
        Err(Errno::ENOSYS.into())
    }
    pub async fn space(&self) -> Result<Space> {
        Err(Errno::ENOSYS.into())
    }
    /// Names and attributes of a directory (or any id) to stable storage.
    pub async fn sync(&self, id: Id) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    /// Takes a lock; waits for it when `wait` (dropping the future gives up), else EAGAIN.
    pub async fn lock(&self, id: Id, lock: RangeLock, wait: bool) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    pub async fn unlock(&self, id: Id, lock: RangeLock) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    pub async fn getlock(&self, id: Id, lock: RangeLock) -> Result<Option<RangeLock>> {
        Err(Errno::ENOSYS.into())
    }
    pub async fn set_layout(&self, who: &Caller, id: Id, hint: LayoutHint) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    /// Names of the I/O servers in the order that layouts index them.
    pub fn servers(&self) -> Vec<String> {
        Vec::new()
    }
    /// Ends the session at once: opens and locks go.
    pub async fn bye(&self) {}
}

#[allow(unused_variables)]
impl File {
    /// Which file.
    pub fn id(&self) -> Id {
        0
    }
    /// Up to `count` bytes from `offset`, in pieces that were never copied; fewer at the end only.
    pub async fn read_at(&self, offset: u64, count: usize) -> Result<Payload> {
        Err(Errno::ENOSYS.into())
    }
    /// All of `data` at `offset`; done when every later read anywhere sees it.
    pub async fn write_at(&self, offset: u64, data: Payload) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    /// All of `data` at the end, whoever else appends; answers where it went.
    pub async fn append(&self, data: Payload) -> Result<u64> {
        Err(Errno::ENOSYS.into())
    }
    /// Everything written through any handle of this client reaches stable storage.
    pub async fn fsync(&self) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    /// What close(2) owes: the exact mtime, and errors of earlier writes.
    pub async fn flush(&self) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    /// The next data at or after `offset` (`hole` false) or the next hole; ENXIO beyond the end.
    pub async fn seek(&self, offset: u64, hole: bool) -> Result<u64> {
        Err(Errno::ENOSYS.into())
    }
}

const _: fn() -> Bytes = Bytes::new;
