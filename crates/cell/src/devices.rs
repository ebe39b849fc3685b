//! The five devices that a host serves: trees like any others, which know nothing of workers.
//!
//! ```text
//!   #r  memory.rs   regions of memory as files           #p  pipes.rs   named pipes
//!   #U  host.rs     the host's files, mapped             #l  log.rs     the log
//!   #R  host.rs     the same, changed in memory only
//! ```
//!
//! What they need of the world is [`Host`]; a file's bytes are a [`Backing`]. A file that lies in memory which workers can reach
//! is used by them without messages: the call [`MAP`] answers where its header is.

mod host;
mod lane;
mod log;
mod memory;
mod pipes;
mod region;

pub use host::{HostFiles, Kind};
pub use lane::{Lanes, worker_name};
pub use log::Log;
pub use memory::Memory;
pub use pipes::Pipes;
pub use region::{Lines, Region};

use crate::header::Place;
use covey_ninep::message::Qid;
use covey_ninep::tree::{Attr, Errno, O_TRUNC, Outcome, Result, Time, User};
use covey_wire::{Bytes, Name};
use std::pin::Pin;
use std::rc::Rc;

/// The call by which a worker asks where an open file lies: this number and that of the worker. The answer is
/// [`crate::header::Ticket::encode`]d.
pub const MAP: u32 = 1;

/// How a file of the host is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// For reading.
    Read,
    /// For writing.
    Write,
    /// For both.
    Both,
}

impl Access {
    /// That which flags of open(2) ask for; who has a file cut off writes.
    fn of(flags: u32) -> Access {
        match (wanted(flags), flags & O_TRUNC != 0) {
            (4, false) => Access::Read,
            (2, _) => Access::Write,
            _ => Access::Both,
        }
    }
}

/// The bytes of a file.
pub trait Backing {
    /// How it is open.
    fn access(&self) -> Access {
        Access::Both
    }

    /// Which file it is, of those that [`Host::open`] opens.
    fn number(&self) -> u64 {
        0
    }

    /// How many there are.
    fn size(&self) -> u64;

    /// How many there are really: others may have changed that.
    fn measure(&self) -> Outcome<u64> {
        Ok(self.size()).into()
    }

    /// So many there are from now on, as was measured.
    fn settle(&self, size: u64) {
        let _ = size;
    }

    /// Whether the size says how much can be read. Files that a kernel makes up while they are read have none.
    fn has_size(&self) -> bool {
        true
    }

    /// Reads into `out`, which lies within the size: how much, less only if the file has lost bytes, or has no size.
    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize>;

    /// Writes within the size.
    fn write(&self, at: u64, data: &[u8]) -> Result<()>;

    /// Reads up to `count` bytes while others are served; none where [`read`](Backing::read) makes nobody wait.
    fn fetch(&self, at: u64, count: usize) -> Option<Outcome<Bytes>> {
        let _ = (at, count);
        None
    }

    /// Writes while others are served; none where [`write`](Backing::write) makes nobody wait. What it has has not moved when
    /// the file has grown, and its size is to be [measured](Backing::measure).
    fn store(&self, at: u64, data: &Bytes) -> Option<Outcome<()>> {
        let _ = (at, data);
        None
    }

    /// Cuts it off, or lets it grow with zeros, while others are served where that takes time. It may lie elsewhere then. One
    /// that was begun is waited for before anything else is changed.
    fn resize(&self, size: u64) -> Outcome<()>;

    /// Where it lies in memory that workers reach; `None` when it does not.
    fn place(&self) -> Option<Place>;

    /// To stable storage, where it has any.
    fn sync(&self) -> Outcome<()>;
}

/// What the devices need of the world. What concerns files of the host may take time: others are served meanwhile.
pub trait Host: 'static {
    /// The time.
    fn now(&self) -> Time;

    /// The user and group who runs the workers.
    fn owner(&self) -> (u32, u32);

    /// A new, empty file in memory.
    fn memory(&self) -> Result<Rc<dyn Backing>>;

    /// A file of the host. One that is opened for writing alone may be readable, too: that lets it lie in memory.
    fn open(&self, path: &str, access: Access) -> Outcome<Rc<dyn Backing>>;

    /// The content of a file of the host, in memory. Workers are served while it is read in.
    fn private(&self, path: &str) -> Outcome<Rc<dyn Backing>>;

    /// Attributes of files of the host, each or why not; symbolic links are followed.
    fn attrs(&self, paths: Vec<String>) -> Outcome<Vec<Result<Attr>>>;

    /// The names in a directory of the host.
    fn list(&self, path: &str) -> Outcome<Vec<Name>>;

    /// Makes an empty file. EEXIST when there is one.
    fn make(&self, path: &str, mode: u32) -> Outcome<()>;

    /// Removes a file.
    fn remove(&self, path: &str) -> Outcome<()>;

    /// Hands a mapping over to a worker that may not have it yet.
    fn share(&self, mapping: u32, worker: u32) -> Result<()>;

    /// Does work beside what else is done.
    fn detach(&self, work: Pin<Box<dyn Future<Output = ()>>>);

    /// Writes to the log. Later where the log does not take it now: whoever reads it may be slow.
    fn log(&self, text: Bytes) -> Outcome<()>;
}

/// EACCES unless the mode lets the user do this: 4 to read, 2 to write.
fn check_access(user: &User, attr: &Attr, wanted: u32) -> Result<()> {
    let shift = match () {
        () if user.uid == 0 => return Ok(()),
        () if user.uid == attr.uid => 6,
        () if user.groups.contains(&attr.gid) => 3,
        () => 0,
    };
    if attr.mode >> shift & wanted == wanted {
        return Ok(());
    }
    let what = format!("user {} may not do that with mode {:o}", user.uid, attr.mode & 0o777);
    Err(Errno::because(Errno::EACCES, what))
}

/// The bits that flags of open(2) ask for.
fn wanted(flags: u32) -> u32 {
    match flags & O_ACCMODE {
        0 => 4,
        1 => 2,
        _ => 6,
    }
}

/// The qid of a file with these attributes.
fn qid(attr: &Attr) -> Qid {
    attr.qid
}

const O_ACCMODE: u32 = 3;

#[cfg(test)]
pub(crate) mod tests;
