//! A complete file tree in memory: the shortest answer to how a [`Tree`] is written.
//!
//! It has files, directories, symbolic and hard links, and FIFOs, whose reads wait for a write. A
//! node counts references to an inode and is never a path: a renamed or unlinked file goes on under
//! the fids that hold it, and its memory goes with the last of them. Everyone may do everything, and
//! time is a count of changes.

use crate::tree::Removal;
use crate::{message::Qid, tree::*};
use covey_wire::{Bytes, Name};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::{iter::successors, ops::Range, rc::Rc, rc::Weak};

/// The tree. `MemoryTree::default()` has an empty root.
pub struct MemoryTree {
    root: Node,
    /// Of files and changes so far: the source of ids and times.
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
    names: RefCell<Directory<Node>>,
    xattrs: RefCell<BTreeMap<Name, Bytes>>,
    parent: RefCell<Weak<Inode>>,
    /// Rings for those who read from a FIFO.
    written: Bell,
}

impl Inode {
    fn qid(&self) -> Qid {
        self.attr.borrow().qid
    }

    fn is(&self, kind: u32) -> bool {
        self.attr.borrow().mode & S_IFMT == kind
    }

    fn names(&self) -> Result<RefMut<'_, Directory<Node>>> {
        if self.is(S_IFDIR) { Ok(self.names.borrow_mut()) } else { Err(Errno::ENOTDIR.into()) }
    }

    /// The directory above; the root's is the root.
    fn parent(self: &Rc<Self>) -> Node {
        self.parent.borrow().upgrade().unwrap_or_else(|| self.clone())
    }

    fn resize(&self, bytes: u64) -> Result<()> {
        const BYTES_MAX: u64 = 4 << 20;
        let may = bytes <= BYTES_MAX && (self.is(S_IFREG) || self.is(S_IFIFO));
        let code = if bytes > BYTES_MAX { Errno::EFBIG } else { Errno::EINVAL };
        may.then(|| self.data.borrow_mut().resize(bytes as usize, 0)).ok_or(code.into())
    }
}

impl Default for MemoryTree {
    fn default() -> Self {
        let attr = Attr::new(1, S_IFDIR | 0o755, 0, 0, Time::default()).into();
        MemoryTree { root: Rc::new(Inode { attr, ..Inode::default() }), count: 2.into() }
    }
}

impl MemoryTree {
    fn now(&self) -> Time {
        Time { sec: self.count.replace(self.count.get() + 1), nsec: 0 }
    }

    fn put(&self, dir: &Node, name: Name, node: &Node) -> Result<()> {
        dir.names()?.insert(name, node.clone())?;
        *node.parent.borrow_mut() = Rc::downgrade(dir);
        dir.attr.borrow_mut().change_content(self.now());
        Ok(())
    }

    /// Takes a name off. The inode lives on while a fid or another name holds it.
    fn take(&self, dir: &Node, name: &Name, what: Removal) -> Result<()> {
        let node = dir.names()?.find(name)?;
        node.attr.borrow().check_unlink(what)?;
        node.names.borrow().check_empty()?;
        dir.names()?.remove(name)?;
        dir.attr.borrow_mut().change_content(self.now());
        node.attr.borrow_mut().change_links(-1, self.now());
        Ok(())
    }
}

impl Tree for MemoryTree {
    type Node = Node;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Node)> {
        let uid = attach.n_uname.or(attach.peer.uid).unwrap_or(0);
        Ok((User { uid, gid: uid, groups: vec![uid] }, self.root.qid(), self.root.clone())).into()
    }

    fn walk(&self, _: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        walk_by(from, names, |at, name| {
            let is_up = name.as_bytes() == b"..";
            let node = if is_up { at.parent() } else { at.names()?.find(name)? };
            Ok((node.qid(), node))
        })
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        let size = node.data.borrow().len() as u64;
        Ok(Attr { size, blocks: size.div_ceil(512), ..node.attr.borrow().clone() }).into()
    }

    fn setattr(&self, _: &Rc<User>, node: &Node, set: SetAttr) -> Outcome<()> {
        let resized = set.size.map_or(Ok(()), |size| node.resize(size));
        resized.map(|()| set.apply(&mut node.attr.borrow_mut(), self.now())).into()
    }

    fn open(&self, _: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        if flags & O_TRUNC != 0 && node.is(S_IFREG) {
            node.data.borrow_mut().clear();
            node.attr.borrow_mut().change_content(self.now());
        }
        Ok(Opened { qid: node.qid(), node: node.clone(), blocking: node.is(S_IFIFO) }).into()
    }

    fn make(&self, user: &Rc<User>, dir: &Node, name: Name, make: Make, gid: u32) -> Outcome<Qid> {
        let (mode, target) = make.into_mode_and_target();
        let now = self.now();
        let attr = Attr::new(now.sec, mode, user.uid, gid, now).into();
        let data = target.as_bytes().to_vec().into();
        let node = Rc::new(Inode { attr, data, ..Inode::default() });
        self.put(dir, name, &node).map(|()| node.qid()).into()
    }

    fn read_view(&self, _: &Rc<User>, node: &Node, view: View) -> Outcome<Bytes> {
        Outcome::now(|| {
            let data = node.data.borrow();
            let (mut all, mut end) = (Vec::new(), 0);
            for range in pieces(&view)? {
                let there = range.start.min(data.len())..range.end.min(data.len());
                let next = all.len() + range.len();
                end = if there.is_empty() { end } else { all.len() + there.len() };
                all.extend_from_slice(&data[there]);
                all.resize(next, 0);
            }
            all.truncate(end);
            Ok(all.into())
        })
    }

    fn write_view(&self, _: &Rc<User>, node: &Node, view: View, mut data: Bytes) -> Outcome<u32> {
        Outcome::now(|| {
            let pieces = pieces(&view)?;
            let end = pieces.iter().map(|range| range.end).max().unwrap_or(0);
            let size = node.data.borrow().len();
            node.resize(end.max(size) as u64)?;
            for range in pieces {
                let piece = data.split_to(range.len());
                node.data.borrow_mut()[range].copy_from_slice(&piece);
            }
            node.attr.borrow_mut().change_content(self.now());
            Ok(view.bytes)
        })
    }

    fn read(&self, _: &Rc<User>, node: &Node, mut read: Read<'_>) -> Data {
        let (offset, count) = (read.offset as usize, read.count as usize);
        let copy = |out: &mut Vec<u8>| {
            let data = node.data.borrow();
            let rest = data.get(offset..).unwrap_or_default();
            out.extend_from_slice(&rest[..rest.len().min(count)]);
            Ok(true)
        };
        if !node.is(S_IFIFO)
            && let Some(data) = read.fill(copy)
        {
            return data;
        }
        let node = node.clone();
        // The answer comes later. If the request is flushed, this future is dropped.
        Data::later(node.written.clone().wait(move || {
            let data = &mut *node.data.borrow_mut();
            (!data.is_empty()).then(|| Ok(data.drain(..count.min(data.len())).collect()))
        }))
    }

    fn write(&self, _: &Rc<User>, node: &Node, write: Write) -> Written {
        write.received(|offset, new| {
            Outcome::now(|| {
                let size = node.data.borrow().len() as u64;
                let start = if node.is(S_IFIFO) { size } else { offset };
                let end = start.saturating_add(new.len() as u64);
                node.resize(end.max(size))?;
                node.data.borrow_mut()[start as usize..end as usize].copy_from_slice(&new);
                node.written.ring();
                node.attr.borrow_mut().change_content(self.now());
                Ok(new.len() as u32)
            })
        })
    }

    fn readdir(&self, _: &Rc<User>, dir: &Node, after: u64, max: u32) -> Outcome<Vec<Entry>> {
        let attr = |node: &Node| node.attr.borrow().clone();
        Ok(dir.names.borrow().list(after, max, [dir.clone(), dir.parent()], attr)).into()
    }

    fn readlink(&self, _: &Rc<User>, node: &Node) -> Outcome<Name> {
        let target = Name::from(&node.data.borrow()[..]);
        node.is(S_IFLNK).then_some(target).ok_or(Errno::EINVAL.into()).into()
    }

    fn link(&self, _: &Rc<User>, node: &Node, to: &Node, name: Name) -> Outcome<()> {
        let put =
            if node.is(S_IFDIR) { Err(Errno::EPERM.into()) } else { self.put(to, name, node) };
        put.map(|()| node.attr.borrow_mut().change_links(1, self.now())).into()
    }

    fn rename(&self, _: &Rc<User>, from: &Node, old: Name, to: &Node, new: Name) -> Outcome<()> {
        Outcome::now(|| {
            let node = from.names()?.find(&old)?;
            let up = |at: &Node| Some(at.parent()).filter(|above| !Rc::ptr_eq(at, above));
            if successors(Some(to.clone()), up).any(|above| Rc::ptr_eq(&above, &node)) {
                return Err(Errno::because(Errno::EINVAL, "directory would be inside itself"));
            }
            let there = to.names()?.find(&new);
            match there {
                Ok(there) if Rc::ptr_eq(&there, &node) => return Ok(()),
                Ok(_) => self.take(to, &new, Removal::of_mode(node.attr.borrow().mode))?,
                Err(_) => {}
            }
            from.names()?.remove(&old)?;
            from.attr.borrow_mut().change_content(self.now());
            self.put(to, new, &node)
        })
    }

    fn unlink(&self, _: &Rc<User>, dir: &Node, name: Name, what: Removal) -> Outcome<()> {
        self.take(dir, &name, what).into()
    }

    fn list_xattrs(&self, _: &Rc<User>, node: &Node) -> Outcome<Vec<Name>> {
        Ok(node.xattrs.borrow().keys().cloned().collect()).into()
    }

    fn xattr(&self, _: &Rc<User>, node: &Node, name: Name) -> Outcome<Bytes> {
        node.xattrs.borrow().get(&name).cloned().ok_or(Errno::ENODATA.into()).into()
    }

    fn set_xattr(
        &self,
        _: &Rc<User>,
        node: &Node,
        name: Name,
        value: Bytes,
        rule: SetXattr,
    ) -> Outcome<()> {
        let mut xattrs = node.xattrs.borrow_mut();
        let is_there = xattrs.contains_key(&name);
        match (rule, is_there) {
            (SetXattr::Create, true) => Errno::EEXIST.into(),
            (SetXattr::Replace, false) => Errno::ENODATA.into(),
            // So that their list stays within its limit.
            _ if !is_there && xattrs.len() >= XATTRS_MAX => Errno::ENOSPC.into(),
            _ => {
                xattrs.insert(name, value);
                node.attr.borrow_mut().change(self.now());
                Ok(()).into()
            }
        }
    }

    fn remove_xattr(&self, _: &Rc<User>, node: &Node, name: Name) -> Outcome<()> {
        let removed = node.xattrs.borrow_mut().remove(&name);
        removed
            .map(|_| node.attr.borrow_mut().change(self.now()))
            .ok_or(Errno::ENODATA.into())
            .into()
    }
}

/// The ranges of a view, which is described here by a list of them: `offset[8] bytes[4]`.
fn pieces(view: &View) -> Result<Vec<Range<usize>>> {
    let (all, rest) = view.body.as_chunks::<12>();
    let range = |&[a, b, c, d, e, f, g, h, i, j, k, l]: &[u8; 12]| {
        let start = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let end = start.checked_add(u32::from_le_bytes([i, j, k, l]).into())?;
        let is_within = view.start <= start && end <= view.end;
        is_within.then_some(start as usize..end as usize)
    };
    let ranges: Option<Vec<_>> = all.iter().map(range).collect();
    let ranges = ranges.filter(|ranges| {
        let bytes: usize = ranges.iter().map(Range::len).sum();
        rest.is_empty() && bytes == view.bytes as usize
    });
    ranges.ok_or(Errno::EINVAL.into())
}

/// Most extended attributes of one file.
const XATTRS_MAX: usize = 64;
