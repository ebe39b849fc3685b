//! `#p`: named pipes between workers, and with everyone who may open them.
//!
//! A write waits until all of it fits, so that writes are never mixed; a read waits for bytes and takes what is there. A reader
//! gets the end of the file once somebody has written and nobody has the pipe open for writing any more; where a writer
//! was killed it gets EPIPE instead, also if it has the pipe open for writing itself. A writer gets EPIPE where the last
//! reader was killed, until somebody reads again.

use super::{Host, check_access, qid, wanted};
use covey_ninep::message::Qid;
use covey_ninep::tree::{
    Attach, Attr, Bell, Data, Directory, Entry, Errno, Opened, Outcome, Read, Removal, Result,
    S_IFDIR, S_IFREG, SetAttr, Tree, User, Write, Written, walk_by,
};
use covey_wire::{Bytes, Name};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Bytes that a pipe holds.
pub const PIPE_BYTES: usize = 64 << 10;
/// Pipes of one host.
const PIPES_MAX: usize = 4096;

/// The device.
pub struct Pipes {
    host: Rc<dyn Host>,
    attr: RefCell<Attr>,
    names: RefCell<Directory<Rc<Pipe>>>,
    count: Rc<Cell<usize>>,
    number: Cell<u64>,
    is_failing: Cell<bool>,
}

/// The directory, a pipe, or an open end of one.
#[derive(Clone)]
pub enum Node {
    /// The directory.
    Root,
    /// A pipe.
    Pipe(Rc<Pipe>),
    /// An open end.
    End(Rc<End>),
}

/// A pipe.
pub struct Pipe {
    attr: RefCell<Attr>,
    bytes: RefCell<VecDeque<u8>>,
    readers: Cell<usize>,
    writers: Cell<usize>,
    was_written: Cell<bool>,
    /// A writer was killed.
    is_broken: Cell<bool>,
    /// The last reader was killed.
    is_deaf: Cell<bool>,
    bell: Bell,
    /// How many there are of a host: those without a name, too, as long as somebody has them open.
    count: Option<Rc<Cell<usize>>>,
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Some(count) = &self.count {
            count.set(count.get() - 1);
        }
    }
}

/// An open end of a pipe.
pub struct End {
    pipe: Rc<Pipe>,
    reads: bool,
    writes: bool,
}

impl Pipe {
    fn new(attr: RefCell<Attr>, count: Option<Rc<Cell<usize>>>) -> Pipe {
        if let Some(count) = &count {
            count.set(count.get() + 1);
        }
        Pipe {
            attr,
            bytes: RefCell::default(),
            readers: Cell::new(0),
            writers: Cell::new(0),
            was_written: Cell::new(false),
            is_broken: Cell::new(false),
            is_deaf: Cell::new(false),
            bell: Bell::default(),
            count,
        }
    }

    /// `own`: how many of the writers are who reads.
    fn take(&self, count: usize, own: usize) -> Option<Result<Bytes>> {
        let mut bytes = self.bytes.borrow_mut();
        if bytes.is_empty() {
            if self.writers.get() <= own && self.was_written.get() && self.is_broken.get() {
                let what = "who wrote into the pipe was killed";
                return Some(Err(Errno::because(Errno::EPIPE, what)));
            }
            let is_over = self.writers.get() == 0 && self.was_written.get();
            return is_over.then(|| Ok(Bytes::new()));
        }
        let count = count.min(bytes.len());
        let taken: Bytes = bytes.drain(..count).collect::<Vec<u8>>().into();
        drop(bytes);
        self.bell.ring();
        Some(Ok(taken))
    }

    /// None as long as it does not fit.
    fn put(&self, data: &[u8]) -> Option<Result<u32>> {
        if self.is_deaf.get() {
            let what = "who read from the pipe was killed";
            return Some(Err(Errno::because(Errno::EPIPE, what)));
        }
        let mut bytes = self.bytes.borrow_mut();
        if bytes.len() + data.len() > PIPE_BYTES {
            return None;
        }
        bytes.extend(data);
        drop(bytes);
        self.was_written.set(true);
        self.bell.ring();
        Some(Ok(data.len() as u32))
    }
}

impl Node {
    fn end(&self) -> Result<&Rc<End>> {
        match self {
            Node::End(end) => Ok(end),
            _ => Err(Errno::EISDIR.into()),
        }
    }

    fn pipe(&self) -> Option<&Rc<Pipe>> {
        match self {
            Node::Root => None,
            Node::Pipe(pipe) => Some(pipe),
            Node::End(end) => Some(&end.pipe),
        }
    }
}

impl Pipes {
    /// No pipes.
    pub fn new(host: Rc<dyn Host>) -> Pipes {
        let (uid, gid) = host.owner();
        let attr = Attr::new(1, S_IFDIR | 0o755, uid, gid, host.now()).into();
        let (count, number) = (Rc::default(), Cell::new(1));
        let names = RefCell::default();
        Pipes { host, attr, names, count, number, is_failing: Cell::new(false) }
    }

    /// While this is so, ends that are closed belong to somebody who was killed.
    pub fn set_failing(&self, is_failing: bool) {
        self.is_failing.set(is_failing);
    }

    fn attr_of(&self, node: &Node) -> Attr {
        node.pipe().map_or_else(|| self.attr.borrow().clone(), |pipe| pipe.attr.borrow().clone())
    }

    fn add(&self, user: &User, name: Name, mode: u32) -> Result<Rc<Pipe>> {
        check_access(user, &self.attr.borrow(), 2)?;
        if self.count.get() >= PIPES_MAX {
            let what = format!("there are {PIPES_MAX} pipes, the limit of a host");
            return Err(Errno::because(Errno::ENOSPC, what));
        }
        let (number, now) = (self.number.get() + 1, self.host.now());
        let attr = Attr::new(number, S_IFREG | mode & 0o777, user.uid, user.gid, now).into();
        let pipe = Rc::new(Pipe::new(attr, Some(self.count.clone())));
        self.names.borrow_mut().insert(name, pipe.clone())?;
        self.number.set(number);
        Ok(pipe)
    }

    fn opened(&self, pipe: Rc<Pipe>, flags: u32) -> Opened<Node> {
        let (reads, writes) = (flags & 3 != 1, flags & 3 != 0);
        if reads {
            pipe.readers.set(pipe.readers.get() + 1);
            pipe.is_deaf.set(false);
        }
        if writes {
            pipe.writers.set(pipe.writers.get() + 1);
            let is_first = pipe.writers.get() == 1 || pipe.is_broken.get();
            if is_first && pipe.bytes.borrow().is_empty() {
                pipe.was_written.set(false);
                pipe.is_broken.set(false);
            }
        }
        let qid = qid(&pipe.attr.borrow());
        Opened { qid, node: Node::End(Rc::new(End { pipe, reads, writes })), blocking: true }
    }
}

impl Tree for Pipes {
    type Node = Node;

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, Node)> {
        Errno::EACCES.into()
    }

    fn enter(&self, user: &User, _: Attach) -> Outcome<(User, Qid, Node)> {
        Ok((user.clone(), qid(&self.attr.borrow()), Node::Root)).into()
    }

    fn walk(&self, _: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        walk_by(from, names, |at, name| {
            let node = match (name.as_bytes(), at) {
                (b"..", _) => Node::Root,
                (_, Node::Root) => Node::Pipe(self.names.borrow().find(name)?),
                _ => return Err(Errno::ENOTDIR.into()),
            };
            Ok((qid(&self.attr_of(&node)), node))
        })
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        Ok(self.attr_of(node)).into()
    }

    /// A shell that redirects to a pipe truncates it, which changes nothing.
    fn setattr(&self, user: &Rc<User>, node: &Node, set: SetAttr) -> Outcome<()> {
        Outcome::now(|| {
            let pipe = node.pipe().ok_or(Errno::EPERM)?;
            let is_owner = user.uid == 0 || user.uid == pipe.attr.borrow().uid;
            match (set.mode, set.uid.is_some() || set.gid.is_some()) {
                (None, false) => Ok(()),
                (Some(mode), false) if is_owner => {
                    let mut attr = pipe.attr.borrow_mut();
                    attr.mode = S_IFREG | mode & 0o777;
                    Ok(())
                }
                _ => Err(Errno::EPERM.into()),
            }
        })
    }

    fn open(&self, user: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        Outcome::now(|| match node {
            Node::Root => {
                let qid = qid(&self.attr.borrow());
                Ok(Opened { qid, node: Node::Root, blocking: false })
            }
            Node::Pipe(pipe) => {
                check_access(user, &pipe.attr.borrow(), wanted(flags))?;
                Ok(self.opened(pipe.clone(), flags))
            }
            Node::End(_) => Err(Errno::EBADF.into()),
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
        Outcome::now(|| Ok(self.opened(self.add(user, name, mode)?, flags)))
    }

    fn read(&self, _: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        let (pipe, own) = match node.end() {
            Ok(end) => (end.pipe.clone(), usize::from(end.writes)),
            Err(error) => return Data::Failed(error),
        };
        let count = read.count as usize;
        let bell = pipe.bell.clone();
        Data::later(bell.wait(move || pipe.take(count, own)))
    }

    fn write(&self, _: &Rc<User>, node: &Node, write: Write) -> Written {
        let pipe = match node.end() {
            Ok(end) => end.pipe.clone(),
            Err(error) => return Written::Now(Err(error)),
        };
        write.received(|_, data| {
            if data.len() > PIPE_BYTES {
                let what = format!("a pipe holds {PIPE_BYTES} bytes");
                return Err(Errno::because(Errno::EINVAL, what)).into();
            }
            if let Some(put) = pipe.put(&data) {
                return put.into();
            }
            let bell = pipe.bell.clone();
            Outcome::later(bell.wait(move || pipe.put(&data)))
        })
    }

    fn readdir(&self, _: &Rc<User>, _: &Node, after: u64, max: u32) -> Outcome<Vec<Entry>> {
        let root = Rc::new(Pipe::new(self.attr.clone(), None));
        let attr = |pipe: &Rc<Pipe>| pipe.attr.borrow().clone();
        Ok(self.names.borrow().list(after, max, [root.clone(), root], attr)).into()
    }

    fn unlink(&self, user: &Rc<User>, _: &Node, name: Name, what: Removal) -> Outcome<()> {
        Outcome::now(|| {
            check_access(user, &self.attr.borrow(), 2)?;
            let pipe = self.names.borrow().find(&name)?;
            pipe.attr.borrow().check_unlink(what)?;
            self.names.borrow_mut().remove(&name)?;
            Ok(())
        })
    }

    fn clunk(&self, _: &Rc<User>, node: Node) {
        let Node::End(end) = node else { return };
        let pipe = &end.pipe;
        if end.reads {
            pipe.readers.set(pipe.readers.get() - 1);
        }
        if end.writes {
            pipe.writers.set(pipe.writers.get() - 1);
            if self.is_failing.get() {
                pipe.is_broken.set(true);
                // Its end is an error even if it has written nothing.
                pipe.was_written.set(true);
            }
        }
        if end.reads && pipe.readers.get() == 0 {
            // Told to those who write now: whoever comes afterwards may have another reader.
            pipe.is_deaf.set(self.is_failing.get() && pipe.writers.get() > 0);
        }
        pipe.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::toy;
    use super::*;

    const READ: u32 = 0;
    const WRITE: u32 = 1;
    const BOTH: u32 = 2;

    struct Rig {
        pipes: Rc<Pipes>,
        pipe: Rc<Pipe>,
        user: Rc<User>,
    }

    impl Rig {
        fn new() -> Rig {
            let (pipes, user) = (toy(1).pipes, User { uid: 0, gid: 0, groups: Vec::new() });
            let pipe = pipes.add(&user, Name::from("a"), 0o600).unwrap();
            Rig { pipes, pipe, user: Rc::new(user) }
        }

        fn open(&self, flags: u32) -> Node {
            self.pipes.opened(self.pipe.clone(), flags).node
        }

        fn kill(&self, node: Node) {
            self.pipes.set_failing(true);
            self.pipes.clunk(&self.user, node);
            self.pipes.set_failing(false);
        }

        fn put(&self, bytes: usize) -> Option<std::result::Result<u32, u32>> {
            let put = self.pipe.put(&vec![7; bytes]);
            put.map(|put| put.map_err(|error| error.code))
        }

        fn take(&self, own: usize) -> Option<std::result::Result<usize, u32>> {
            let taken = self.pipe.take(PIPE_BYTES, own);
            taken.map(|taken| taken.map(|bytes| bytes.len()).map_err(|error| error.code))
        }
    }

    #[test]
    fn who_waits_for_room_hears_that_the_last_reader_was_killed() {
        let rig = Rig::new();
        let (one, other, writer) = (rig.open(READ), rig.open(READ), rig.open(WRITE));
        assert_eq!(rig.put(PIPE_BYTES), Some(Ok(PIPE_BYTES as u32)));
        assert_eq!(rig.put(1), None);
        rig.kill(one);
        assert_eq!(rig.put(1), None, "there is another reader");
        rig.kill(other);
        assert_eq!(rig.put(1), Some(Err(Errno::EPIPE)));
        // One that comes anew takes what is there.
        let reader = rig.open(READ);
        assert_eq!(rig.put(1), None);
        assert_eq!(rig.take(0), Some(Ok(PIPE_BYTES)));
        assert_eq!(rig.put(1), Some(Ok(1)));
        // One that ends in good order leaves what is written to the next, as one that never came does.
        rig.pipes.clunk(&rig.user, reader);
        assert_eq!(rig.put(1), Some(Ok(1)));
        rig.pipes.clunk(&rig.user, writer);
    }

    #[test]
    fn whoever_writes_after_all_are_gone_waits_for_a_reader_as_ever() {
        let rig = Rig::new();
        let both = rig.open(BOTH);
        rig.kill(both);
        let _writer = rig.open(WRITE);
        assert_eq!(rig.put(1), Some(Ok(1)));
    }

    #[test]
    fn one_who_could_write_as_well_hears_that_the_other_writer_was_killed() {
        let rig = Rig::new();
        let (reader, writer) = (rig.open(BOTH), rig.open(WRITE));
        assert_eq!(rig.put(3), Some(Ok(3)));
        assert_eq!(rig.take(1), Some(Ok(3)));
        assert_eq!(rig.take(1), None);
        rig.kill(writer);
        assert_eq!(rig.take(1), Some(Err(Errno::EPIPE)));
        let next = rig.open(WRITE);
        assert_eq!(rig.take(1), None, "there is somebody again");
        // The end of a writer in good order is no end for one who may write itself.
        rig.pipes.clunk(&rig.user, next);
        assert_eq!(rig.take(1), None);
        drop(reader);
    }

    #[test]
    fn a_pipe_without_a_name_counts_as_long_as_somebody_has_it() {
        let rig = Rig::new();
        let end = rig.open(WRITE);
        rig.pipes.names.borrow_mut().remove(&Name::from("a")).unwrap();
        let Rig { pipes, pipe, user } = rig;
        drop(pipe);
        assert_eq!(pipes.count.get(), 1);
        pipes.clunk(&user, end);
        assert_eq!(pipes.count.get(), 0);
    }
}
