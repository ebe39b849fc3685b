//! A complete file tree in memory: the shortest answer to how a [`Tree`] is written.
//!
//! It has files, directories, symbolic and hard links, and FIFOs, whose reads wait for a write. A
//! node counts references to an inode and is never a path: a renamed or unlinked file goes on under
//! the fids that hold it, and its memory goes with the last of them. There are no permissions, and
//! time is a count of changes. Tests serve it; nothing in it is fit for real data.

use crate::message::Qid;
use crate::tree::*;
use covey_wire::{Bytes, Name};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

/// The tree. `MemoryTree::default()` has an empty root.
pub struct MemoryTree {
    root: Node,
    /// Of changes, files and entries so far: the source of times, ids and cookies.
    count: Cell<u64>,
}

/// A file: what a fid holds.
pub type Node = Rc<Inode>;

/// What a file is made of. Each kind of file leaves some of it empty.
#[derive(Default)]
pub struct Inode {
    attr: RefCell<Attr>,
    /// Content of a file or FIFO, target of a symbolic link.
    data: RefCell<Vec<u8>>,
    /// Directory entries by their cookies.
    entries: RefCell<BTreeMap<u64, (Name, Node)>>,
    parent: RefCell<Weak<Inode>>,
    /// Who waits to read from a FIFO.
    readers: RefCell<Vec<Waker>>,
}

const FILE_BYTES_MAX: usize = 1 << 28;
const S_IFMT: u32 = 0o170000;
const S_IFIFO: u32 = 0o010000;
const S_IFDIR: u32 = 0o040000;
const S_IFREG: u32 = 0o100000;
const S_IFLNK: u32 = 0o120000;

impl Inode {
    fn new(path: u64, mode: u32, (uid, gid): (u32, u32), data: Vec<u8>) -> Node {
        let kind = [(S_IFDIR, Qid::DIR), (S_IFLNK, Qid::SYMLINK)];
        let kind = kind.iter().find(|(bits, _)| mode & S_IFMT == *bits).map_or(0, |kind| kind.1);
        let qid = Qid { kind, version: 0, path };
        let attr = Attr { qid, mode, uid, gid, nlink: 1, blksize: 4096, ..Attr::default() };
        Rc::new(Inode { attr: attr.into(), data: data.into(), ..Inode::default() })
    }

    fn qid(&self) -> Qid {
        self.attr.borrow().qid
    }

    fn is(&self, kind: u32) -> bool {
        self.attr.borrow().mode & S_IFMT == kind
    }

    /// The directory above; the root's is the root.
    fn parent(self: &Rc<Self>) -> Node {
        self.parent.borrow().upgrade().unwrap_or_else(|| self.clone())
    }

    fn find(self: &Rc<Self>, name: &Name) -> Result<(u64, Node)> {
        if !self.is(S_IFDIR) {
            return Err(Errno::ENOTDIR.into());
        }
        if name.as_bytes() == b".." {
            return Ok((2, self.parent()));
        }
        let entries = self.entries.borrow();
        let found = entries.iter().find(|(_, (other, _))| other == name);
        found.map(|(at, (_, node))| (*at, node.clone())).ok_or_else(|| Errno::ENOENT.into())
    }
}

impl Default for MemoryTree {
    fn default() -> Self {
        let root = Inode::new(1, S_IFDIR | 0o755, (0, 0), Vec::new());
        MemoryTree { root, count: Cell::new(2) }
    }
}

impl MemoryTree {
    fn next(&self) -> u64 {
        self.count.set(self.count.get() + 1);
        self.count.get()
    }

    /// Something has changed: so do times and the qid's version.
    fn touch(&self, node: &Inode, has_new_content: bool) {
        let mut attr = node.attr.borrow_mut();
        attr.qid.version += 1;
        attr.ctime.sec = self.next();
        if has_new_content {
            attr.mtime = attr.ctime;
        }
    }

    /// Gives `node` a name.
    fn put(&self, dir: &Node, name: Name, node: &Node) -> Result<()> {
        match dir.find(&name) {
            Ok(_) => return Err(Errno::EEXIST.into()),
            Err(error) if error.code != Errno::ENOENT => return Err(error),
            Err(_) => dir.entries.borrow_mut().insert(self.next(), (name, node.clone())),
        };
        *node.parent.borrow_mut() = Rc::downgrade(dir);
        self.touch(dir, true);
        Ok(())
    }

    /// Takes a name off. The inode lives on while a fid or another name holds it.
    fn take(&self, dir: &Node, name: &Name, is_dir: bool) -> Result<()> {
        let (cookie, node) = dir.find(name)?;
        match (node.is(S_IFDIR), is_dir) {
            (true, false) => return Err(Errno::EISDIR.into()),
            (false, true) => return Err(Errno::ENOTDIR.into()),
            _ if !node.entries.borrow().is_empty() => return Err(Errno::ENOTEMPTY.into()),
            _ => dir.entries.borrow_mut().remove(&cookie),
        };
        node.attr.borrow_mut().nlink -= 1;
        self.touch(&node, false);
        self.touch(dir, true);
        Ok(())
    }

    fn add(
        &self,
        dir: &Node,
        name: Name,
        mode: u32,
        owner: (u32, u32),
        data: &[u8],
    ) -> Result<Node> {
        let node = Inode::new(self.next(), mode, owner, data.to_vec());
        self.put(dir, name, &node)?;
        self.touch(&node, true);
        Ok(node)
    }

    fn move_name(&self, from: &Node, old: &Name, to: &Node, new: Name) -> Result<()> {
        let (cookie, node) = from.find(old)?;
        let mut above = to.clone();
        while !Rc::ptr_eq(&above, &self.root) {
            if Rc::ptr_eq(&above, &node) {
                return Err(Errno::because(Errno::EINVAL, "directory would be inside itself"));
            }
            above = above.parent();
        }
        match to.find(&new) {
            Ok((_, other)) if Rc::ptr_eq(&other, &node) => return Ok(()),
            Ok(_) => self.take(to, &new, node.is(S_IFDIR))?,
            Err(_) => {}
        }
        self.put(to, new, &node)?;
        from.entries.borrow_mut().remove(&cookie);
        self.touch(from, true);
        Ok(())
    }
}

impl Tree for MemoryTree {
    type Node = Node;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Node)> {
        let uid = attach.n_uname.or(attach.peer.uid).unwrap_or(0);
        let user = User { uid, gid: uid, groups: vec![uid] };
        Outcome::Now(Ok((user, self.root.qid(), self.root.clone())))
    }

    fn walk(&self, _: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        let (mut at, mut steps) = (from.clone(), Vec::new());
        for name in names {
            at = match at.find(name) {
                Ok((_, node)) => node,
                Err(error) if steps.is_empty() => return Outcome::Now(Err(error)),
                Err(_) => break,
            };
            steps.push((at.qid(), at.clone()));
        }
        Outcome::Now(Ok(steps))
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        let size = node.data.borrow().len() as u64;
        Outcome::Now(Ok(Attr { size, blocks: size.div_ceil(512), ..node.attr.borrow().clone() }))
    }

    fn setattr(&self, _: &Rc<User>, node: &Node, set: SetAttr) -> Outcome<()> {
        if let Some(size) = set.size {
            if !node.is(S_IFREG) || size > FILE_BYTES_MAX as u64 {
                return Errno::EINVAL.into();
            }
            node.data.borrow_mut().resize(size as usize, 0);
        }
        self.touch(node, set.size.is_some());
        let attr = &mut *node.attr.borrow_mut();
        let now = attr.ctime;
        let time = |new, old| match new {
            Some(SetTime::To(time)) => time,
            Some(SetTime::Now) => now,
            None => old,
        };
        (attr.atime, attr.mtime) = (time(set.atime, attr.atime), time(set.mtime, attr.mtime));
        attr.mode = set.mode.map_or(attr.mode, |mode| attr.mode & S_IFMT | mode & 0o7777);
        (attr.uid, attr.gid) = (set.uid.unwrap_or(attr.uid), set.gid.unwrap_or(attr.gid));
        Outcome::Now(Ok(()))
    }

    fn open(&self, _: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        const O_TRUNC: u32 = 0o1000;
        if flags & O_TRUNC != 0 && node.is(S_IFREG) {
            node.data.borrow_mut().clear();
            self.touch(node, true);
        }
        let (qid, blocking) = (node.qid(), node.is(S_IFIFO));
        Outcome::Now(Ok(Opened { qid, node: node.clone(), blocking }))
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
        match self.add(dir, name, S_IFREG | mode & 0o7777, (user.uid, gid), &[]) {
            Ok(node) => self.open(user, &node, flags),
            Err(error) => Outcome::Now(Err(error)),
        }
    }

    fn make(&self, user: &Rc<User>, dir: &Node, name: Name, make: Make, gid: u32) -> Outcome<Qid> {
        let owner = (user.uid, gid);
        let made = match make {
            Make::Dir { mode } => self.add(dir, name, S_IFDIR | mode & 0o7777, owner, &[]),
            Make::Symlink { target } => {
                self.add(dir, name, S_IFLNK | 0o777, owner, target.as_bytes())
            }
            Make::Special { mode, .. } if mode & S_IFMT == S_IFIFO => {
                self.add(dir, name, mode, owner, &[])
            }
            Make::Special { .. } => Err(Errno::EOPNOTSUPP.into()),
        };
        made.map(|node| node.qid()).into()
    }

    fn read(&self, _: &Rc<User>, node: &Node, offset: u64, count: u32) -> Outcome<Bytes> {
        if node.is(S_IFIFO) {
            // The answer comes later. If the request is flushed, this future is dropped.
            let node = node.clone();
            return Outcome::later(poll_fn(move |context| {
                let mut data = node.data.borrow_mut();
                if data.is_empty() {
                    node.readers.borrow_mut().push(context.waker().clone());
                    return Poll::Pending;
                }
                let count = data.len().min(count as usize);
                Poll::Ready(Ok(data.drain(..count).collect::<Vec<u8>>().into()))
            }));
        }
        let data = node.data.borrow();
        let start = data.len().min(offset as usize);
        let end = data.len().min(start + count as usize);
        Outcome::Now(Ok(Bytes::copy_from_slice(&data[start..end])))
    }

    fn write(&self, _: &Rc<User>, node: &Node, offset: u64, new: Bytes) -> Outcome<u32> {
        let data = &mut *node.data.borrow_mut();
        if node.is(S_IFIFO) {
            data.extend_from_slice(&new);
            node.readers.borrow_mut().drain(..).for_each(Waker::wake);
            return Outcome::Now(Ok(new.len() as u32));
        }
        let Some(end) =
            (offset as usize).checked_add(new.len()).filter(|end| *end <= FILE_BYTES_MAX)
        else {
            return Errno::EFBIG.into();
        };
        data.resize(data.len().max(end), 0);
        data[offset as usize..end].copy_from_slice(&new);
        self.touch(node, true);
        Outcome::Now(Ok(new.len() as u32))
    }

    fn readdir(&self, _: &Rc<User>, dir: &Node, after: u64, max: u32) -> Outcome<Vec<Entry>> {
        let (mut left, mut list) = (max as usize, Vec::new());
        let dots = [(1, Name::from("."), dir.clone()), (2, Name::from(".."), dir.parent())];
        let entries = dir.entries.borrow();
        let named = entries.iter().map(|(at, (name, node))| (*at, name.clone(), node.clone()));
        for (cookie, name, node) in dots.into_iter().chain(named).filter(|entry| entry.0 > after) {
            let Some(rest) = left.checked_sub(24 + name.len()) else { break };
            left = rest;
            let kind = (node.attr.borrow().mode >> 12) as u8;
            list.push(Entry { qid: node.qid(), cookie, kind, name });
        }
        Outcome::Now(Ok(list))
    }

    fn readlink(&self, _: &Rc<User>, node: &Node) -> Outcome<Name> {
        match node.is(S_IFLNK) {
            true => Outcome::Now(Ok(Name::from(&node.data.borrow()[..]))),
            false => Errno::EINVAL.into(),
        }
    }

    fn link(&self, _: &Rc<User>, node: &Node, dir: &Node, name: Name) -> Outcome<()> {
        if node.is(S_IFDIR) {
            return Errno::EPERM.into();
        }
        let link = self.put(dir, name, node);
        node.attr.borrow_mut().nlink += u64::from(link.is_ok());
        link.into()
    }

    fn rename(&self, _: &Rc<User>, from: &Node, old: Name, to: &Node, new: Name) -> Outcome<()> {
        self.move_name(from, &old, to, new).into()
    }

    fn unlink(&self, _: &Rc<User>, dir: &Node, name: Name, is_dir: bool) -> Outcome<()> {
        self.take(dir, &name, is_dir).into()
    }

    fn statfs(&self, _: &Rc<User>, _: &Node) -> Outcome<Statfs> {
        Outcome::Now(Ok(Statfs { bsize: 4096, namelen: 255, ..Statfs::default() }))
    }
}
