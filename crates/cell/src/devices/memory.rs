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
    /// Of the last one that was made.
    number: Cell<u64>,
    /// Regions that have a name, or that somebody has open.
    count: Rc<Cell<u64>>,
}

/// A file, or the directory of all.
pub type Node = Rc<File>;

/// What a [`Node`] is.
pub struct File {
    attr: RefCell<Attr>,
    /// None for the directory.
    region: Option<Rc<Region>>,
    _counted: Option<Counted>,
}

/// One of the regions that there are, until it is dropped.
struct Counted(Rc<Cell<u64>>);

impl Counted {
    fn new(all: &Rc<Cell<u64>>) -> Counted {
        all.set(all.get() + 1);
        Counted(all.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl File {
    fn region(&self) -> Result<&Rc<Region>> {
        self.region.as_ref().ok_or(Errno::EISDIR.into())
    }

    fn attr(&self) -> Attr {
        let attr = self.attr.borrow().clone();
        let size = self.region.as_ref().map_or(0, |region| region.size());
        Attr { size, blocks: size.div_ceil(512), ..attr }
    }
}

impl Memory {
    /// An empty directory of regions.
    pub fn new(host: Rc<dyn Host>, lines: Rc<dyn Lines>) -> Memory {
        let (uid, gid) = host.owner();
        let attr = Attr::new(1, S_IFDIR | 0o755, uid, gid, host.now()).into();
        let root = Rc::new(File { attr, region: None, _counted: None });
        let (names, count) = Default::default();
        Memory { host, lines, root, names, number: Cell::new(1), count }
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
        if self.count.get() >= FILES_MAX {
            let what = format!("there are {FILES_MAX} regions, the limit of a host");
            return Err(Errno::because(Errno::ENOSPC, what));
        }
        self.names.borrow().find(&name).map_or(Ok(()), |_| Err(Errno::EEXIST))?;
        self.number.set(self.number.get() + 1);
        let (mode, now) = (S_IFREG | mode & 0o777, self.host.now());
        let attr = Attr::new(self.number.get(), mode, user.uid, user.gid, now).into();
        let region = Some(Region::new(self.host.memory()?, self.lines.clone(), None));
        let _counted = Some(Counted::new(&self.count));
        let node = Rc::new(File { attr, region, _counted });
        self.names.borrow_mut().insert(name, node.clone())?;
        self.root.attr.borrow_mut().change_content(now);
        Ok(node)
    }

    fn opened(&self, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        let (node, host) = (node.clone(), self.host.clone());
        let emptied = match (flags & O_TRUNC != 0, node.region()) {
            (false, _) => Ok(()).into(),
            (true, Ok(region)) => region.resize(&host, Vec::new(), 0),
            (true, Err(error)) => Outcome::Now(Err(error)),
        };
        emptied.map(move |()| {
            if flags & O_TRUNC != 0 {
                node.attr.borrow_mut().change_content(host.now());
            }
            let qid = qid(&node.attr.borrow());
            Opened { qid, node, blocking: false }
        })
    }
}

impl Memory {
    fn resized(&self, node: &Node, size: Option<u64>) -> Outcome<()> {
        match (size, node.region()) {
            (None, _) => Ok(()).into(),
            (Some(size), Ok(region)) => region.resize(&self.host, Vec::new(), size),
            (_, Err(error)) => Outcome::Now(Err(error)),
        }
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
        let resized = match may_set(user, node, &set) {
            Ok(()) => self.resized(node, set.size),
            Err(error) => Outcome::Now(Err(error)),
        };
        let (node, host) = (node.clone(), self.host.clone());
        resized.map(move |()| set.apply(&mut node.attr.borrow_mut(), host.now()))
    }

    fn open(&self, user: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        let truncates = if flags & O_TRUNC != 0 { 2 } else { 0 };
        let allowed = check_access(user, &node.attr.borrow(), wanted(flags) | truncates);
        match allowed {
            Ok(()) => self.opened(node, flags),
            Err(error) => Outcome::Now(Err(error)),
        }
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
        match self.add(user, name, mode) {
            Ok(node) => self.opened(&node, flags),
            Err(error) => Outcome::Now(Err(error)),
        }
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
            let (node, host, count) = (node.clone(), self.host.clone(), data.len() as u32);
            let written = match node.region() {
                Ok(region) => region.write(&host, Vec::new(), at, data),
                Err(error) => Outcome::Now(Err(error)),
            };
            written.map(move |()| {
                node.attr.borrow_mut().change_content(host.now());
                count
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
        let asked = || {
            let (worker, region) = (map_call(&body)?, node.region()?);
            // Whoever reaches the memory can write there, too.
            check_access(user, &node.attr.borrow(), 6)?;
            Ok((worker, region))
        };
        match asked() {
            Ok((worker, region)) => region.map(&self.host, worker),
            Err(error) => Outcome::Now(Err(error)),
        }
    }
}

/// Whether a user may change these attributes of a file.
fn may_set(user: &User, node: &Node, set: &SetAttr) -> Result<()> {
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
    Ok(())
}

/// The worker that a [`MAP`] call is of.
pub(super) fn map_call(body: &[u8]) -> Result<u32> {
    let (words, rest) = body.as_chunks::<4>();
    match (words, rest) {
        ([call, worker], []) if u32::from_le_bytes(*call) == MAP => Ok(u32::from_le_bytes(*worker)),
        _ => Err(Errno::because(Errno::EOPNOTSUPP, "there is no such call")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::tests::{Toy, toy};

    #[test]
    fn a_host_counts_the_regions_that_there_are_and_not_those_that_there_were() {
        let Toy { host, headers, .. } = toy(1);
        let memory = Memory::new(host, headers);
        let user = User { uid: 7, gid: 7, groups: vec![7] };
        memory.number.set(FILES_MAX + 5);
        let held = memory.add(&user, Name::from("one"), 0o600).unwrap();
        assert_eq!(memory.count.get(), 1);
        // Without a name it is there as long as somebody has it open.
        memory.names.borrow_mut().remove(&Name::from("one")).unwrap();
        assert_eq!(memory.count.get(), 1);
        drop(held);
        assert_eq!(memory.count.get(), 0);
        memory.count.set(FILES_MAX);
        let refused = memory.add(&user, Name::from("two"), 0o600).err().unwrap();
        assert_eq!(refused.code, Errno::ENOSPC);
    }
}
