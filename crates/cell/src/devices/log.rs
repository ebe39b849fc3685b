//! `#l`: the log. What is written to its one file, `log`, is passed on to the host, and the last of it can be read.
//!
//! Writes are passed on in the order in which they come, one after another. Where the host takes no more for now, they wait,
//! and nothing else does.

use super::lane::Lane;
use super::{Host, check_access, qid, wanted};
use covey_ninep::message::Qid;
use covey_ninep::tree::{
    Attach, Attr, Data, Entry, Errno, Opened, Outcome, Read, S_IFDIR, S_IFREG, SetAttr, Tree, User,
    Write, Written, walk_by,
};
use covey_wire::Name;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Bytes of the log that are kept.
pub const LOG_BYTES: usize = 256 << 10;

/// The device.
pub struct Log {
    host: Rc<dyn Host>,
    root: Attr,
    file: Attr,
    kept: Rc<Kept>,
    /// Writes that the host has not taken.
    lane: Rc<Lane>,
}

/// The last bytes.
#[derive(Default)]
struct Kept(RefCell<VecDeque<u8>>);

impl Kept {
    fn add(&self, data: &[u8]) {
        let mut kept = self.0.borrow_mut();
        kept.extend(data);
        let over = kept.len().saturating_sub(LOG_BYTES);
        kept.drain(..over);
    }
}

/// The directory or the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// The directory.
    Root,
    /// The log.
    File,
}

impl Log {
    /// An empty log.
    pub fn new(host: Rc<dyn Host>) -> Log {
        let ((uid, gid), now) = (host.owner(), host.now());
        let root = Attr::new(1, S_IFDIR | 0o755, uid, gid, now);
        let file = Attr::new(2, S_IFREG | 0o640, uid, gid, now);
        Log { host, root, file, kept: Rc::default(), lane: Rc::default() }
    }

    fn attr(&self, node: Node) -> &Attr {
        match node {
            Node::Root => &self.root,
            Node::File => &self.file,
        }
    }
}

impl Tree for Log {
    type Node = Node;

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, Node)> {
        Errno::EACCES.into()
    }

    fn enter(&self, user: &User, _: Attach) -> Outcome<(User, Qid, Node)> {
        Ok((user.clone(), qid(&self.root), Node::Root)).into()
    }

    fn walk(&self, _: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        walk_by(from, names, |at, name| {
            let node = match (at, name.as_bytes()) {
                (_, b"..") => Node::Root,
                (Node::Root, b"log") => Node::File,
                (Node::Root, _) => return Err(Errno::ENOENT.into()),
                (Node::File, _) => return Err(Errno::ENOTDIR.into()),
            };
            Ok((qid(self.attr(node)), node))
        })
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        let size = if *node == Node::File { self.kept.0.borrow().len() as u64 } else { 0 };
        Ok(Attr { size, ..self.attr(*node).clone() }).into()
    }

    fn setattr(&self, _: &Rc<User>, _: &Node, _: SetAttr) -> Outcome<()> {
        Errno::EPERM.into()
    }

    fn open(&self, user: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        Outcome::now(|| {
            check_access(user, self.attr(*node), wanted(flags))?;
            Ok(Opened { qid: qid(self.attr(*node)), node: *node, blocking: false })
        })
    }

    fn read(&self, _: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        match node {
            Node::Root => Errno::EISDIR.into(),
            Node::File => {
                let kept = self.kept.0.borrow();
                let from = kept.len().min(usize::try_from(read.offset).unwrap_or(usize::MAX));
                let bytes = kept.iter().skip(from).take(read.count as usize).copied();
                Data::Bytes(bytes.collect::<Vec<u8>>().into())
            }
        }
    }

    fn write(&self, _: &Rc<User>, _: &Node, write: Write) -> Written {
        write.received(|_, data| {
            let (host, kept) = (self.host.clone(), self.kept.clone());
            self.lane.run(move || {
                host.log(data.clone()).map(move |()| {
                    kept.add(&data);
                    data.len() as u32
                })
            })
        })
    }

    fn readdir(&self, _: &Rc<User>, _: &Node, after: u64, max: u32) -> Outcome<Vec<Entry>> {
        let entries = [(".", Node::Root), ("..", Node::Root), ("log", Node::File)];
        let mut left = max as usize;
        let mut fits = |name: &str| {
            let rest = left.checked_sub(24 + name.len());
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        let numbered = entries.into_iter().zip(1..).skip_while(|(_, cookie)| *cookie <= after);
        let entries =
            numbered.take_while(|((name, _), _)| fits(name)).map(|((name, node), cookie)| {
                let kind = if node == Node::Root { 4 } else { 8 };
                Entry { qid: qid(self.attr(node)), cookie, kind, name: name.into() }
            });
        Ok(entries.collect()).into()
    }
}
