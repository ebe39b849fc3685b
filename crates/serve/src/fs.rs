//! The file system as a 9P tree: what a node serves as `/fs`, so that Linux's v9fs and any other 9P
//! client see the same files as the mount.
//!
//! A node holds a file's id, which no rename disturbs; an opened one holds the file open in this
//! server's session, so that it lives on after its last name is gone.

mod writers;

use super::export::LOCK_WAIT_MAX;
use super::identity::Users;
use covey_ninep::message::Qid;
use covey_ninep::tree::{
    Attach, Attr, Data, Entry, Errno, Lock, LockStatus, Make, Opened, Outcome, Read, Removal,
    Result, SetAttr, SetXattr, Statfs, Time, Tree, User, Write, Written,
};
use covey_stripe::client::{File, Fs, Listing, Stat, Taken};
use covey_stripe::ops::{Caller, Id, Inode, Nanos, ROOT, RangeLock, seconds_of, xattr};
use covey_wire::{Bytes, List, Name, Payload};
use std::cell::{Cell, OnceCell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::rc::Rc;
use tokio::time::timeout;
use writers::{Writer, Writers};

const S_IFMT: u32 = 0o170000;
const S_IFDIR: u32 = 0o040000;
const S_IFLNK: u32 = 0o120000;
const O_ACCMODE: u32 = 3;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;

/// The file system, served.
#[derive(Clone)]
pub struct FsTree {
    /// The client, from the first attach on: a server must not wait for itself at its start.
    fs: Rc<OnceCell<Fs>>,
    connect: Connect,
    users: Rc<Users>,
    writers: Writers,
    /// Makes the numbers of those who own locks.
    owners: RandomState,
}

/// Makes the client when it is first needed.
pub type Connect = Rc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Fs>>>>>;

/// A file, and how it is open.
#[derive(Clone)]
pub struct Node {
    id: Id,
    open: Option<Rc<Open>>,
}

struct Open {
    file: File,
    _writer: Option<Writer>,
    append: bool,
    /// The last cookie in use when a listing of this fid began.
    limit: Cell<u64>,
    /// Everything that those have locked by this fid who have: it goes with the fid.
    locks: RefCell<Vec<RangeLock>>,
}

impl FsTree {
    /// A tree over the client that `connect` makes.
    pub fn new(connect: Connect, users: Rc<Users>) -> FsTree {
        let (fs, writers, owners) = Default::default();
        FsTree { fs, connect, users, writers, owners }
    }

    /// The user that an attach acts as.
    pub fn admit(&self, attach: &Attach) -> Result<User> {
        self.users.admit(attach)
    }

    /// The client. Every node but an attach's own has come from it.
    fn client(&self) -> Option<Fs> {
        self.fs.get().cloned()
    }

    /// 9P's lock as a range. Its owner is a process of a client's, by what the client says, and never
    /// one of another user's: whoever says the same is somebody else. The number's key is this
    /// server's own, so that nobody can look for text that leads to a given number.
    fn range(&self, user: &User, lock: &Lock) -> RangeLock {
        const F_WRLCK: u8 = 1;
        let owner = self.owners.hash_one((user.uid, lock.proc_id, lock.client_id.as_bytes()));
        let end = match lock.length {
            0 => u64::MAX,
            length => lock.start.saturating_add(length - 1),
        };
        RangeLock {
            exclusive: lock.kind == F_WRLCK,
            whole: false,
            start: lock.start,
            end,
            owner,
            pid: lock.proc_id,
        }
    }
}

/// Runs the body with a clone of the client, later.
macro_rules! later {
    ($self:ident, $fs:ident, $body:block) => {{
        let Some($fs) = $self.client() else { return Errno::EIO.into() };
        Outcome::later(async move { $body })
    }};
}

impl Tree for FsTree {
    type Node = Node;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Node)> {
        let user = match self.admit(&attach) {
            Ok(user) => user,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let tree = self.clone();
        Outcome::later(async move {
            let fs = match tree.client() {
                Some(fs) => fs,
                None => {
                    let fs = (tree.connect)().await?;
                    tree.fs.get_or_init(|| fs).clone()
                }
            };
            let inode = fs.inode(ROOT).await?;
            Ok((user, qid(&inode), node(&inode)))
        })
    }

    fn walk(&self, user: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        let (who, from, names) = (caller(user), from.id, names.to_vec());
        later!(self, fs, {
            let inodes = fs.walk(&who, from, &names).await?;
            Ok(inodes.iter().map(|inode| (qid(inode), node(inode))).collect())
        })
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        let id = node.id;
        later!(self, fs, { Ok(attr(&fs.stat(id).await?)) })
    }

    fn setattr(&self, user: &Rc<User>, node: &Node, set: SetAttr) -> Outcome<()> {
        let (who, id) = (caller(user), node.id);
        let writes = self.writers.has(who.uid, id);
        later!(self, fs, {
            if writes {
                fs.setattr_open(&who, id, set).await?;
            } else {
                fs.setattr(&who, id, set).await?;
            }
            Ok(())
        })
    }

    fn open(&self, user: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        let (who, node, writers) = (caller(user), node.clone(), self.writers.clone());
        later!(self, fs, {
            let file = fs.open(&who, node.id, access(flags)).await?;
            if flags & O_TRUNC != 0 {
                let cut = SetAttr { size: Some(0), ..SetAttr::default() };
                fs.setattr_open(&who, node.id, cut).await?;
            }
            let inode = fs.inode(node.id).await?;
            let writer = writes(flags).then(|| writers.enter(who.uid, inode.id));
            Ok(opened(&inode, file, flags, writer))
        })
    }

    fn create(
        &self,
        user: &Rc<User>,
        dir: &Node,
        name: Name,
        flags: u32,
        mode: u32,
        gid: u32,
    ) -> Outcome<Opened<Node>> {
        let (who, dir, writers) = (creator(user, gid), dir.id, self.writers.clone());
        later!(self, fs, {
            let taken = Taken::unless(flags & O_EXCL != 0);
            let (inode, file) = fs.create(&who, dir, &name, mode, taken, access(flags)).await?;
            if flags & O_TRUNC != 0 && inode.size > 0 {
                let cut = SetAttr { size: Some(0), ..SetAttr::default() };
                fs.setattr_open(&who, inode.id, cut).await?;
            }
            let writer = writes(flags).then(|| writers.enter(who.uid, inode.id));
            Ok(opened(&inode, file, flags, writer))
        })
    }

    fn make(&self, user: &Rc<User>, dir: &Node, name: Name, make: Make, gid: u32) -> Outcome<Qid> {
        let (who, dir) = (creator(user, gid), dir.id);
        later!(self, fs, {
            let (mode, rdev, target) = match make {
                Make::Dir { mode } => (S_IFDIR | mode & 0o7777, 0, Name::EMPTY),
                Make::Symlink { target } => (S_IFLNK | 0o777, 0, target),
                Make::Special { mode, major, minor } => {
                    (mode, rustix::fs::makedev(major, minor), Name::EMPTY)
                }
            };
            Ok(qid(&fs.make(&who, dir, &name, mode, rdev, target).await?))
        })
    }

    fn read(&self, _: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        let Some(open) = node.open.clone() else { return Errno::EBADF.into() };
        let (offset, count) = (read.offset, read.count as usize);
        Data::later(async move { Ok(open.file.read_at(offset, count).await?.into_bytes()) })
    }

    fn write(&self, _: &Rc<User>, node: &Node, write: Write) -> Written {
        let Some(open) = node.open.clone() else { return Errno::EBADF.into() };
        write.received(|offset, data| {
            Outcome::later(async move {
                let (count, data) = (data.len() as u32, Payload::from(data));
                if open.append {
                    open.file.append(data).await?;
                } else {
                    open.file.write_at(offset, data).await?;
                }
                Ok(count)
            })
        })
    }

    fn readdir(
        &self,
        user: &Rc<User>,
        node: &Node,
        cookie: u64,
        bytes: u32,
    ) -> Outcome<Vec<Entry>> {
        let Some(open) = node.open.clone() else { return Errno::EBADF.into() };
        let (who, id) = (caller(user), node.id);
        later!(self, fs, {
            let limit = if cookie == 0 { 0 } else { open.limit.get() };
            let page = fs.readdir(&who, id, cookie, limit, bytes, Listing::Names).await?;
            open.limit.set(page.limit);
            let entry = |entry: covey_stripe::ops::DirEntry| Entry {
                qid: Qid { kind: kind(u32::from(entry.kind) << 12), version: 0, path: entry.id },
                cookie: entry.cookie,
                kind: entry.kind,
                name: entry.name,
            };
            Ok(page.entries.into_iter().map(entry).collect())
        })
    }

    fn readlink(&self, _: &Rc<User>, node: &Node) -> Outcome<Name> {
        let id = node.id;
        later!(self, fs, {
            let inode = fs.inode(id).await?;
            match inode.mode & S_IFMT {
                S_IFLNK => Ok(inode.target),
                _ => Err(Errno::EINVAL.into()),
            }
        })
    }

    fn link(&self, user: &Rc<User>, node: &Node, dir: &Node, name: Name) -> Outcome<()> {
        let (who, id, dir) = (caller(user), node.id, dir.id);
        later!(self, fs, { Ok(fs.link(&who, id, dir, &name).await.map(drop)?) })
    }

    fn rename(&self, user: &Rc<User>, from: &Node, old: Name, to: &Node, new: Name) -> Outcome<()> {
        let (who, from, to) = (caller(user), from.id, to.id);
        later!(self, fs, { Ok(fs.rename(&who, from, &old, to, &new, 0).await?) })
    }

    fn unlink(&self, user: &Rc<User>, dir: &Node, name: Name, what: Removal) -> Outcome<()> {
        let (who, dir) = (caller(user), dir.id);
        later!(self, fs, { Ok(fs.unlink(&who, dir, &name, what).await?) })
    }

    fn fsync(&self, _: &Rc<User>, node: &Node, _datasync: bool) -> Outcome<()> {
        let Some(open) = node.open.clone() else { return Errno::EBADF.into() };
        Outcome::later(async move { Ok(open.file.fsync().await?) })
    }

    fn statfs(&self, _: &Rc<User>, _: &Node) -> Outcome<Statfs> {
        later!(self, fs, {
            let space = fs.space().await?;
            Ok(Statfs {
                bsize: STATFS_UNIT as u32,
                blocks: space.bytes_total / STATFS_UNIT,
                bfree: space.bytes_free / STATFS_UNIT,
                bavail: space.bytes_available / STATFS_UNIT,
                files: space.files,
                ffree: FILES_FREE,
                fsid: 0,
                namelen: 255,
            })
        })
    }

    fn lock(&self, user: &Rc<User>, node: &Node, lock: Lock) -> Outcome<LockStatus> {
        const F_UNLCK: u8 = 2;
        let (id, range, release) = (node.id, self.range(user, &lock), lock.kind == F_UNLCK);
        let Some(open) = node.open.clone() else { return Errno::EBADF.into() };
        later!(self, fs, {
            if release {
                fs.unlock(id, range).await?;
                return Ok(LockStatus::Success);
            }
            open.will_lock(&range);
            let locked = if lock.wait {
                // The client asks again.
                timeout(LOCK_WAIT_MAX, fs.lock(id, range, true))
                    .await
                    .unwrap_or(Err(Errno::EAGAIN.into()))
            } else {
                fs.lock(id, range, false).await
            };
            match locked {
                Ok(()) => Ok(LockStatus::Success),
                Err(error) if error.code() == Errno::EAGAIN => Ok(LockStatus::Blocked),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn getlock(&self, user: &Rc<User>, node: &Node, lock: Lock) -> Outcome<Lock> {
        let (id, range) = (node.id, self.range(user, &lock));
        if node.open.is_none() {
            return Errno::EBADF.into();
        }
        later!(self, fs, {
            const F_RDLCK: u8 = 0;
            const F_UNLCK: u8 = 2;
            // Linux's v9fs says F_UNLCK whatever kind it was asked about: any lock is in the way.
            let asked = RangeLock { exclusive: lock.kind != F_RDLCK, ..range };
            Ok(match fs.getlock(id, asked).await? {
                None => Lock { kind: F_UNLCK, ..lock },
                Some(held) => Lock {
                    kind: u8::from(held.exclusive),
                    start: held.start,
                    length: if held.end == u64::MAX { 0 } else { held.end - held.start + 1 },
                    proc_id: held.pid,
                    client_id: lock.client_id,
                    wait: false,
                },
            })
        })
    }

    fn list_xattrs(&self, user: &Rc<User>, node: &Node) -> Outcome<Vec<Name>> {
        let (who, id) = (caller(user), node.id);
        later!(self, fs, { Ok(fs.listxattr(&who, id).await?) })
    }

    fn xattr(&self, user: &Rc<User>, node: &Node, name: Name) -> Outcome<Bytes> {
        let (who, id) = (caller(user), node.id);
        later!(self, fs, { Ok(fs.getxattr(&who, id, &name).await?) })
    }

    fn set_xattr(
        &self,
        user: &Rc<User>,
        node: &Node,
        name: Name,
        value: Bytes,
        rule: SetXattr,
    ) -> Outcome<()> {
        let (who, id) = (caller(user), node.id);
        let flags = match rule {
            SetXattr::Any => 0,
            SetXattr::Create => xattr::CREATE,
            SetXattr::Replace => xattr::REPLACE,
        };
        later!(self, fs, { Ok(fs.setxattr(&who, id, &name, value, flags).await?) })
    }

    fn remove_xattr(&self, user: &Rc<User>, node: &Node, name: Name) -> Outcome<()> {
        let (who, id) = (caller(user), node.id);
        later!(self, fs, { Ok(fs.removexattr(&who, id, &name).await?) })
    }

    fn user_name(&self, uid: u32) -> Name {
        super::export::user_name(uid)
    }

    fn detach(&self, work: Pin<Box<dyn Future<Output = ()>>>) {
        tokio::task::spawn_local(work);
    }

    fn clunk(&self, _: &Rc<User>, node: Node) {
        let Some(open) = node.open else { return };
        let Some(fs) = self.fs.get().filter(|_| Rc::strong_count(&open) == 1).cloned() else {
            return;
        };
        tokio::task::spawn_local(async move {
            // A client that was lost gives nothing back itself. After an error the unlock is said
            // as soon as the metadata server is back.
            for all in open.locks.take() {
                let _ = fs.unlock(node.id, all).await;
            }
            // Close owes the exact times; whoever wanted errors has called fsync.
            let _ = open.file.flush().await;
        });
    }
}

impl Open {
    /// The lock's owner is noted, with the range of all it can have.
    fn will_lock(&self, range: &RangeLock) {
        let mut locks = self.locks.borrow_mut();
        if !locks.iter().any(|known| known.owner == range.owner) {
            locks.push(RangeLock { start: 0, end: u64::MAX, ..range.clone() });
        }
    }
}

const STATFS_UNIT: u64 = 4096;
/// Inodes are limited by the metadata server's disk only: a number that df shows as plenty.
const FILES_FREE: u64 = 1 << 40;

fn caller(user: &User) -> Caller {
    Caller { uid: user.uid, gid: user.gid, groups: List(user.groups.clone()) }
}

/// The user as who makes a file for a group: one of its own, or any if it is root. The number comes
/// from the client; for another group the user's first one is taken, and the metadata server gives
/// the directory's where that is the rule.
fn creator(user: &User, gid: u32) -> Caller {
    let is_own = user.uid == 0 || user.gid == gid || user.groups.contains(&gid);
    Caller { gid: if is_own { gid } else { user.gid }, ..caller(user) }
}

fn writes(flags: u32) -> bool {
    flags & O_ACCMODE != 0
}

/// What an open needs. One that cuts needs to write, whatever it does later.
fn access(flags: u32) -> u8 {
    let cuts = if flags & O_TRUNC != 0 { 2 } else { 0 };
    cuts | match flags & O_ACCMODE {
        0 => 4,
        1 => 2,
        _ => 6,
    }
}

fn kind(mode: u32) -> u8 {
    match mode & S_IFMT {
        S_IFDIR => Qid::DIR,
        S_IFLNK => Qid::SYMLINK,
        _ => Qid::FILE,
    }
}

/// What 9P identifies a file by.
pub(super) fn qid(inode: &Inode) -> Qid {
    Qid { kind: kind(inode.mode), version: inode.version as u32, path: inode.id }
}

fn node(inode: &Inode) -> Node {
    Node { id: inode.id, open: None }
}

fn opened(inode: &Inode, file: File, flags: u32, writer: Option<Writer>) -> Opened<Node> {
    let open = Open {
        file,
        _writer: writer,
        append: flags & O_APPEND != 0,
        limit: Cell::new(0),
        locks: RefCell::default(),
    };
    let node = Node { open: Some(Rc::new(open)), ..node(inode) };
    Opened { qid: qid(inode), node, blocking: false }
}

fn time(nanos: Nanos) -> Time {
    let (sec, nsec) = seconds_of(nanos);
    Time { sec: sec.cast_unsigned(), nsec: nsec.into() }
}

/// What 9P says of a file.
pub(super) fn attr(stat: &Stat) -> Attr {
    let inode = &stat.inode;
    Attr {
        qid: qid(inode),
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        nlink: u64::from(inode.nlink),
        rdev: inode.rdev,
        size: inode.size,
        blksize: 1 << 20,
        blocks: stat.blocks,
        atime: time(inode.atime),
        mtime: time(inode.mtime),
        ctime: time(inode.ctime),
        btime: time(inode.btime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_for_a_group_of_its_maker_only() {
        let alice = User { uid: 1001, gid: 100, groups: vec![100, 27] };
        assert_eq!(creator(&alice, 27).gid, 27);
        assert_eq!(creator(&alice, 100).gid, 100);
        assert_eq!(creator(&alice, 0).gid, 100);
        assert_eq!(creator(&alice, u32::MAX).gid, 100);
        let root = User { uid: 0, gid: 0, groups: vec![0] };
        assert_eq!(creator(&root, 1234).gid, 1234);
    }
}
