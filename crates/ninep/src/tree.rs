//! What a file tree must do to be served: the one interface behind every 9P server of Covey.
//!
//! A tree names its files by a `Node` of its own choosing: cheap to clone, and an object rather
//! than a path, so that renaming or unlinking a file does not disturb the fids that hold it. Each
//! method answers [`Outcome::Now`] or, when it has to wait, [`Outcome::Later`] with a future.
//! Dropping the future cancels the wait: Tflush, Tclunk and a lost connection do exactly that.
//!
//! The server has checked the protocol before a method is called: fids exist, names are single
//! components of 1 to 255 bytes that are neither `.` nor `..` nor hold a slash or NUL (walks may
//! hold `..`), counts fit the message size, reads and writes come only on opened fids in the right
//! mode, names of extended attributes have 1 to 255 bytes without NUL. Requests on one fid arrive in the order rules of [`crate::server`].
//!
//! Every method has a default that answers EOPNOTSUPP, so a small tree is a few methods.

mod attr;
mod bell;
mod data;
mod directory;
mod errno;
mod lock;

pub use attr::*;
pub use bell::Bell;
pub use data::{Data, Filled, Incoming, Read, View, Write, Written};
pub use directory::Directory;
pub use errno::{Errno, Result};
pub use lock::{Lock, LockStatus};

use crate::message::Qid;
use covey_wire::{Bytes, Name};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

/// An answer, now or later.
pub enum Outcome<T> {
    /// The answer.
    Now(Result<T>),
    /// The answer when the future is done. Dropping it cancels the request.
    Later(Pin<Box<dyn Future<Output = Result<T>>>>),
}

impl<T: 'static> Outcome<T> {
    /// What `answer` returns: lets a method that never waits use `?`.
    pub fn now(answer: impl FnOnce() -> Result<T>) -> Self {
        Outcome::Now(answer())
    }

    /// An answer that waits.
    pub fn later(future: impl Future<Output = Result<T>> + 'static) -> Self {
        Outcome::Later(Box::pin(future))
    }

    /// The answer, waited for.
    pub async fn wait(self) -> Result<T> {
        match self {
            Outcome::Now(result) => result,
            Outcome::Later(later) => later.await,
        }
    }

    /// The same outcome with its value changed.
    pub fn map<U: 'static>(self, change: impl FnOnce(T) -> U + 'static) -> Outcome<U> {
        match self {
            Outcome::Now(result) => Outcome::Now(result.map(change)),
            Outcome::Later(future) => Outcome::later(async move { future.await.map(change) }),
        }
    }

    /// The same outcome with what follows from its value, which may fail.
    pub fn and_then<U: 'static>(self, next: impl FnOnce(T) -> Result<U> + 'static) -> Outcome<U> {
        match self {
            Outcome::Now(result) => Outcome::Now(result.and_then(next)),
            Outcome::Later(future) => Outcome::later(async move { future.await.and_then(next) }),
        }
    }
}

impl<T> From<Result<T>> for Outcome<T> {
    fn from(result: Result<T>) -> Self {
        Outcome::Now(result)
    }
}

impl<T> From<u32> for Outcome<T> {
    fn from(code: u32) -> Self {
        Outcome::Now(Err(code.into()))
    }
}

/// On whose behalf a request is made. Decided at attach, inherited by every fid walked from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Numeric user id.
    pub uid: u32,
    /// Numeric primary group id.
    pub gid: u32,
    /// All groups, the primary one included.
    pub groups: Vec<u32>,
}

/// What is known of the peer before any message: given by the shell that accepted the connection.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Peer {
    /// Where the peer is, for logs: `unix` or an address.
    pub name: String,
    /// The user the kernel vouches for (peer credentials, or the owner of a loopback socket).
    pub uid: Option<u32>,
    /// Whether the cluster key was proven on this connection.
    pub has_key: bool,
}

/// Tattach, after the server has looked up the authentication file.
#[derive(Clone, Debug)]
pub struct Attach {
    /// The peer, with `has_key` set when Tauth succeeded for this attach.
    pub peer: Peer,
    /// User name claimed.
    pub uname: Name,
    /// Numeric user claimed, or `None`.
    pub n_uname: Option<u32>,
    /// Which tree.
    pub aname: Name,
}

/// An answer that opens a file.
#[derive(Clone, Debug)]
pub struct Opened<N> {
    /// The file's qid.
    pub qid: Qid,
    /// What the fid holds from now on.
    pub node: N,
    /// Reads and writes may wait for one another (pipes, stdout, wait): exempt them from ordering.
    pub blocking: bool,
}

/// Whether an extended attribute may be there before it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattr {
    /// It may or may not.
    Any,
    /// It must not be there: EEXIST (XATTR_CREATE).
    Create,
    /// It must be there: ENODATA (XATTR_REPLACE).
    Replace,
}

/// Longest value of an extended attribute in bytes, and of the list of their names: Linux's limits.
pub const XATTR_BYTES_MAX: usize = 65536;

/// What [`Tree::walk`] answers, for a tree that finds one name at a time and never waits.
pub fn walk_by<N: Clone>(
    from: &N,
    names: &[Name],
    mut step: impl FnMut(&N, &Name) -> Result<(Qid, N)>,
) -> Outcome<Vec<(Qid, N)>> {
    let (mut at, mut steps) = (from.clone(), Vec::with_capacity(names.len()));
    for name in names {
        match step(&at, name) {
            Ok(next) => steps.push(next.clone()),
            Err(error) if steps.is_empty() => return Err(error).into(),
            Err(_) => break,
        }
        at = steps[steps.len() - 1].1.clone();
    }
    Ok(steps).into()
}

/// A file tree. See the module's text for what is promised to it.
#[allow(unused_variables)]
pub trait Tree: 'static {
    /// A file, as the tree names it.
    type Node: Clone + 'static;

    /// Who may come in, and where they start.
    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Self::Node)>;

    /// Enters from a namespace, which has admitted `user`. The default leaves it to `attach`.
    fn enter(&self, user: &User, attach: Attach) -> Outcome<(User, Qid, Self::Node)> {
        self.attach(attach)
    }

    /// The kind of the root, as a qid has it, for listings of what it is bound in.
    fn root_kind(&self) -> u8 {
        Qid::DIR
    }

    /// Down one or more names; `..` stays in the tree. Answers a qid and node for each name it got
    /// along: fewer than asked when a later one is missing, an error when the first one is.
    fn walk(
        &self,
        user: &Rc<User>,
        from: &Self::Node,
        names: &[Name],
    ) -> Outcome<Vec<(Qid, Self::Node)>> {
        Errno::EOPNOTSUPP.into()
    }

    /// Attributes.
    fn getattr(&self, user: &Rc<User>, node: &Self::Node) -> Outcome<Attr> {
        Errno::EOPNOTSUPP.into()
    }

    /// Changes attributes; `size` truncates or extends.
    fn setattr(&self, user: &Rc<User>, node: &Self::Node, set: SetAttr) -> Outcome<()> {
        Errno::EOPNOTSUPP.into()
    }

    /// Opens with Linux flags (O_RDONLY 0, O_WRONLY 1, O_RDWR 2, O_TRUNC 0o1000, O_APPEND 0o2000,
    /// ...).
    fn open(&self, user: &Rc<User>, node: &Self::Node, flags: u32) -> Outcome<Opened<Self::Node>> {
        Errno::EOPNOTSUPP.into()
    }

    /// Creates a plain file in `dir` and opens it. The default makes, walks to and opens it: for
    /// trees that answer these three at once, and whose `make` takes a Special of type S_IFREG.
    fn create(
        &self,
        user: &Rc<User>,
        dir: &Self::Node,
        name: Name,
        flags: u32,
        mode: u32,
        gid: u32,
    ) -> Outcome<Opened<Self::Node>> {
        let make = Make::Special { mode: S_IFREG | mode & 0o7777, major: 0, minor: 0 };
        let made = match self.make(user, dir, name.clone(), make, gid) {
            Outcome::Now(Ok(_)) => self.walk(user, dir, &[name]),
            Outcome::Now(Err(error)) => return Err(error).into(),
            Outcome::Later(_) => return Errno::EOPNOTSUPP.into(),
        };
        match made {
            Outcome::Now(Ok(steps)) if steps.len() == 1 => self.open(user, &steps[0].1, flags),
            Outcome::Now(Err(error)) => Err(error).into(),
            _ => Errno::EOPNOTSUPP.into(),
        }
    }

    /// Makes a directory, symbolic link or special file.
    fn make(
        &self,
        user: &Rc<User>,
        dir: &Self::Node,
        name: Name,
        make: Make,
        gid: u32,
    ) -> Outcome<Qid> {
        Errno::EROFS.into()
    }

    /// Up to `count` bytes from `offset`; fewer at the end. Asked once for each read.
    fn read(&self, user: &Rc<User>, node: &Self::Node, read: Read<'_>) -> Data {
        Errno::EOPNOTSUPP.into()
    }

    /// Writes; answers how much. Asked once for each write, or twice where the payload of a long one is
    /// still coming and the tree has no place for it.
    fn write(&self, user: &Rc<User>, node: &Self::Node, write: Write) -> Written {
        Errno::EOPNOTSUPP.into()
    }

    /// The bytes that a view names, one after another: `view.bytes` of them, less those at the end that lie beyond the
    /// end of the file; zeros stand for the others.
    fn read_view(&self, user: &Rc<User>, node: &Self::Node, view: View) -> Outcome<Bytes> {
        Errno::EOPNOTSUPP.into()
    }

    /// Writes what a view names from `data`, which has `view.bytes` bytes; answers how many of them, in that order, are
    /// written. Where the view names a byte twice either may win.
    fn write_view(
        &self,
        user: &Rc<User>,
        node: &Self::Node,
        view: View,
        data: Bytes,
    ) -> Outcome<u32> {
        Errno::EOPNOTSUPP.into()
    }

    /// Entries after `cookie` (0: from the start, with `.` and `..`), of at most `bytes_max` in all
    /// where each counts 24 + its name's length.
    fn readdir(
        &self,
        user: &Rc<User>,
        node: &Self::Node,
        cookie: u64,
        bytes_max: u32,
    ) -> Outcome<Vec<Entry>> {
        Errno::ENOTDIR.into()
    }

    /// The target of a symbolic link.
    fn readlink(&self, user: &Rc<User>, node: &Self::Node) -> Outcome<Name> {
        Errno::EINVAL.into()
    }

    /// A hard link to `node` in `dir`.
    fn link(
        &self,
        user: &Rc<User>,
        node: &Self::Node,
        dir: &Self::Node,
        name: Name,
    ) -> Outcome<()> {
        Errno::EOPNOTSUPP.into()
    }

    /// Renames, replacing what is there.
    fn rename(
        &self,
        user: &Rc<User>,
        from: &Self::Node,
        old: Name,
        to: &Self::Node,
        new: Name,
    ) -> Outcome<()> {
        Errno::EROFS.into()
    }

    /// Trename, by the file's own fid: only trees that know a file's parent can do it.
    fn rename_node(
        &self,
        user: &Rc<User>,
        node: &Self::Node,
        to: &Self::Node,
        new: Name,
    ) -> Outcome<()> {
        Errno::EOPNOTSUPP.into()
    }

    /// Removes a name.
    fn unlink(&self, user: &Rc<User>, dir: &Self::Node, name: Name, what: Removal) -> Outcome<()> {
        Errno::EROFS.into()
    }

    /// Tremove, by the file's own fid: only trees that know a file's parent can do it.
    fn remove(&self, user: &Rc<User>, node: &Self::Node) -> Outcome<()> {
        Errno::EOPNOTSUPP.into()
    }

    /// To stable storage.
    fn fsync(&self, user: &Rc<User>, node: &Self::Node, datasync: bool) -> Outcome<()> {
        Outcome::Now(Ok(()))
    }

    /// State of the file system. The default is one without blocks, as /proc is.
    fn statfs(&self, user: &Rc<User>, node: &Self::Node) -> Outcome<Statfs> {
        Ok(Statfs { bsize: 4096, namelen: 255, ..Statfs::default() }).into()
    }

    /// Takes or gives back a lock. When another's is in the way, the answer is Blocked, or comes later
    /// where the lock says that its owner waits: clunk and flush drop that wait.
    fn lock(&self, user: &Rc<User>, node: &Self::Node, lock: Lock) -> Outcome<LockStatus> {
        Errno::EOPNOTSUPP.into()
    }

    /// What would stand in the way of `lock`: that lock, or `lock` with kind F_UNLCK.
    fn getlock(&self, user: &Rc<User>, node: &Self::Node, lock: Lock) -> Outcome<Lock> {
        Errno::EOPNOTSUPP.into()
    }

    /// The names of the file's extended attributes that this user may see.
    fn list_xattrs(&self, user: &Rc<User>, node: &Self::Node) -> Outcome<Vec<Name>> {
        Errno::EOPNOTSUPP.into()
    }

    /// The value of an extended attribute: ENODATA when it has no such attribute.
    fn xattr(&self, user: &Rc<User>, node: &Self::Node, name: Name) -> Outcome<Bytes> {
        Errno::EOPNOTSUPP.into()
    }

    /// Sets an extended attribute to `value`, of at most [`XATTR_BYTES_MAX`] bytes.
    fn set_xattr(
        &self,
        user: &Rc<User>,
        node: &Self::Node,
        name: Name,
        value: Bytes,
        rule: SetXattr,
    ) -> Outcome<()> {
        Errno::EOPNOTSUPP.into()
    }

    /// Removes an extended attribute: ENODATA when it is not there.
    fn remove_xattr(&self, user: &Rc<User>, node: &Self::Node, name: Name) -> Outcome<()> {
        Errno::EOPNOTSUPP.into()
    }

    /// An operation of the tree's own (Covey's extension): bytes in, bytes out.
    fn call(&self, user: &Rc<User>, node: &Self::Node, body: Bytes) -> Outcome<Bytes> {
        Errno::EOPNOTSUPP.into()
    }

    /// What 9P2000 calls a user: the number in digits unless the tree knows a name.
    fn user_name(&self, uid: u32) -> Name {
        Name::from(uid.to_string())
    }

    /// What 9P2000 calls a group.
    fn group_name(&self, gid: u32) -> Name {
        Name::from(gid.to_string())
    }

    /// Finishes what a lost connection leaves to be done (ORCLOSE). The default does what can be done
    /// without waiting: for trees that answer at once.
    fn detach(&self, work: Pin<Box<dyn Future<Output = ()>>>) {
        let mut work = work;
        let _ = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }

    /// The last fid that held this node in this way is gone (clunk, remove or a lost connection).
    fn clunk(&self, user: &Rc<User>, node: Self::Node) {}

    /// Told in the place of a clunk where the connection has ended with the file open: nobody has closed it. For files that
    /// others wait for, as a pipe that breaks off is not one that ends.
    fn cut(&self, user: &Rc<User>, node: Self::Node) {
        self.clunk(user, node);
    }
}

/// What a Tcall on an open blocking file says: whoever held it is lost, and its clunk is a [`Tree::cut`]. So a server that
/// imports a tree passes on that it has lost a client.
pub const CUT: &[u8] = b"cut";
