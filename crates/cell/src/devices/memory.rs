//! `#r`: regions of the host's memory as files, in one directory.

use super::{Host, Lines, MAP, Region, check_access, qid, wanted};
use covey_ninep::message::Qid;
use covey_ninep::tree::{
    Attach, Attr, Data, Directory, Entry, Errno, Make, O_TRUNC, Opened, Outcome, Read, Removal,
    Result, S_IFDIR, S_IFMT, S_IFREG, SetAttr, Tree, User, Write, Written, walk_by,
};
use covey_wire::{Bytes, Name};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The device.
pub struct Memory {
    host: Rc<dyn Host>,
    lines: Rc<dyn Lines>,
    root: Node,
    names: RefCell<Directory<Node>>,
    number: Cell<u64>,
}

/// A file, or the directory of all.
pub type Node = Rc<File>;

/// What a [`Node`] is.
pub struct File {
    attr: RefCell<Attr>,
    /// None for the directory.
    region: Option<Region>,
}

impl File {
    fn region(&self) -> Result<&Region> {
        self.region.as_ref().ok_or(Errno::EISDIR.into())
    }

    fn attr(&self) -> Attr {
        let attr = self.attr.borrow().clone();
        let size = self.region.as_ref().map_or(0, Region::size);
        Attr { size, blocks: size.div_ceil(512), ..attr }
    }
}

impl Memory {
    /// An empty directory of regions.
    pub fn new(host: Rc<dyn Host>, lines: Rc<dyn Lines>) -> Memory {
        let (uid, gid) = host.owner();
        let attr = Attr::new(1, S_IFDIR | 0o755, uid, gid, host.now()).into();
        let root = Rc::new(File { attr, region: None });
        Memory { host, lines, root, names: RefCell::default(), number: Cell::new(1) }
    }

    fn step(&self, from: &Node, name: &Name) -> Result<Node> {
        match name.as_bytes() {
            b".." => Ok(self.root.clone()),
            _ if from.region.is_some() => Err(Errno::ENOTDIR.into()),
            _ => self.names.borrow().find(name),
        }
    }

    fn add(&self, user: &User, name: Name, mode: u32) -> Result<Node> {
        check_access(user, &self.root.attr.borrow(), 2)?;
        if self.number.get() > FILES_MAX {
            let what = format!("{FILES_MAX} regions have been made, the limit of a host");
            return Err(Errno::because(Errno::ENOSPC, what));
        }
        self.names.borrow().find(&name).map_or(Ok(()), |_| Err(Errno::EEXIST))?;
        self.number.set(self.number.get() + 1);
        let (mode, now) = (S_IFREG | mode & 0o777, self.host.now());
        let attr = Attr::new(self.number.get(), mode, user.uid, user.gid, now).into();
        let region = Region::new(self.host.memory()?, self.lines.clone());
        let node = Rc::new(File { attr, region: Some(region) });
        self.names.borrow_mut().insert(name, node.clone())?;
        self.root.attr.borrow_mut().change_content(now);
        Ok(node)
    }

    fn opened(&self, node: &Node, flags: u32) -> Result<Opened<Node>> {
        if flags & O_TRUNC != 0 {
            node.region()?.resize(0)?;
            node.attr.borrow_mut().change_content(self.host.now());
        }
        Ok(Opened { qid: qid(&node.attr.borrow()), node: node.clone(), blocking: false })
    }
}

/// More files than any program has; each takes some memory of the host.
const FILES_MAX: u64 = 1 << 20;

impl Tree for Memory {
    type Node = Node;

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, Node)> {
        Errno::EACCES.into()
    }

    fn enter(&self, user: &User, _: Attach) -> Outcome<(User, Qid, Node)> {
        Ok((user.clone(), qid(&self.root.attr.borrow()), self.root.clone())).into()
    }

    fn walk(&self, _: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        walk_by(from, names, |at, name| {
            let node = self.step(at, name)?;
            let qid = qid(&node.attr.borrow());
            Ok((qid, node))
        })
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        Ok(node.attr()).into()
    }

    fn setattr(&self, user: &Rc<User>, node: &Node, set: SetAttr) -> Outcome<()> {
        Outcome::now(|| {
            let owner = node.attr.borrow().uid;
            let is_owner = user.uid == 0 || user.uid == owner;
            if (set.mode.is_some() || set.uid.is_some() || set.gid.is_some()) && !is_owner {
                return Err(Errno::EPERM.into());
            }
            if set.uid.is_some_and(|uid| uid != owner && user.uid != 0) {
                return Err(Errno::EPERM.into());
            }
            // Who owns it may make it writable again.
            if !is_owner || set.size.is_some() {
                check_access(user, &node.attr.borrow(), 2)?;
            }
            if let Some(size) = set.size {
                node.region()?.resize(size)?;
            }
            set.apply(&mut node.attr.borrow_mut(), self.host.now());
            Ok(())
        })
    }

    fn open(&self, user: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        Outcome::now(|| {
            let truncates = if flags & O_TRUNC != 0 { 2 } else { 0 };
            check_access(user, &node.attr.borrow(), wanted(flags) | truncates)?;
            self.opened(node, flags)
        })
    }

    fn create(
        &self,
        user: &Rc<User>,
        _: &Node,
        name: Name,
        flags: u32,
        mode: u32,
        _: u32,
    ) -> Outcome<Opened<Node>> {
        Outcome::now(|| self.opened(&self.add(user, name, mode)?, flags))
    }

    fn make(&self, user: &Rc<User>, _: &Node, name: Name, make: Make, _: u32) -> Outcome<Qid> {
        Outcome::now(|| {
            let (mode, _) = make.into_mode_and_target();
            if mode & S_IFMT == S_IFREG {
                Ok(qid(&self.add(user, name, mode)?.attr.borrow()))
            } else {
                Err(Errno::because(Errno::EPERM, "regions lie in one directory"))
            }
        })
    }

    fn read(&self, _: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        node.region().map_or_else(Data::Failed, |region| region.read(read))
    }

    fn write(&self, _: &Rc<User>, node: &Node, write: Write) -> Written {
        write.received(|at, data| {
            Outcome::now(|| {
                node.region()?.write(at, &data)?;
                node.attr.borrow_mut().change_content(self.host.now());
                Ok(data.len() as u32)
            })
        })
    }

    fn readdir(&self, _: &Rc<User>, _: &Node, after: u64, max: u32) -> Outcome<Vec<Entry>> {
        let dots = [self.root.clone(), self.root.clone()];
        let attr = |node: &Node| node.attr.borrow().clone();
        Ok(self.names.borrow().list(after, max, dots, attr)).into()
    }

    fn unlink(&self, user: &Rc<User>, _: &Node, name: Name, what: Removal) -> Outcome<()> {
        Outcome::now(|| {
            check_access(user, &self.root.attr.borrow(), 2)?;
            let node = self.names.borrow().find(&name)?;
            node.attr.borrow().check_unlink(what)?;
            self.names.borrow_mut().remove(&name)?;
            node.attr.borrow_mut().change_links(-1, self.host.now());
            self.root.attr.borrow_mut().change_content(self.host.now());
            Ok(())
        })
    }

    fn call(&self, user: &Rc<User>, node: &Node, body: Bytes) -> Outcome<Bytes> {
        Outcome::now(|| {
            let (worker, region) = (map_call(&body)?, node.region()?);
            // Whoever reaches the memory can write there, too.
            check_access(user, &node.attr.borrow(), 6)?;
            region.map(&*self.host, worker)
        })
    }
}

/// The worker that a [`MAP`] call is of.
pub(super) fn map_call(body: &[u8]) -> Result<u32> {
    let (words, rest) = body.as_chunks::<4>();
    match (words, rest) {
        ([call, worker], []) if u32::from_le_bytes(*call) == MAP => Ok(u32::from_le_bytes(*worker)),
        _ => Err(Errno::because(Errno::EOPNOTSUPP, "there is no such call")),
    }
}
