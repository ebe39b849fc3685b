//! `#p`: named pipes between workers, and with everyone who may open them.
//!
//! A write waits until all of it fits, so that writes are never mixed; a read waits for bytes and takes what is there. A reader
//! gets the end of the file once somebody has written and nobody has the pipe open for writing any more. A writer that is
//! cut (killed, or its connection is lost) has not ended: in the place of the end, behind all that the others write,
//! readers get EPIPE, also who has the pipe open for writing itself. A writer gets EPIPE where the last reader but itself was
//! cut, until somebody reads again.
//!
//! An end stays what it was until somebody opens the pipe for writing again: then another stream begins for who has read
//! that end, and for who comes now. Who has not read it reads on, and gets the worse of both ends.

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
    /// How far it has come.
    now: Cell<Mark>,
    /// Where the stream begins that a new reader reads.
    begin: Cell<Mark>,
    /// The last end that a reader was told.
    told: Cell<Option<Mark>>,
    /// A reader was cut, and none has come since.
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

/// What has become of a pipe so far, in numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// Writes, and writers that were cut: without any there is no end.
    writes: u64,
    /// Writers that were cut.
    cuts: u64,
    /// Writers that have come.
    writers: u64,
}

/// An open end of a pipe.
pub struct End {
    pipe: Rc<Pipe>,
    reads: bool,
    writes: bool,
    /// Where the stream began that it reads, if it reads.
    begin: Cell<Mark>,
    /// The end that it was told.
    told: Cell<Option<Mark>>,
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
            now: Cell::default(),
            begin: Cell::default(),
            told: Cell::new(None),
            is_deaf: Cell::new(false),
            bell: Bell::default(),
            count,
        }
    }

    fn advance(&self, change: impl FnOnce(&mut Mark)) {
        let mut now = self.now.get();
        change(&mut now);
        self.now.set(now);
    }

    /// A writer comes.
    fn add_writer(&self) {
        self.advance(|now| now.writers += 1);
        let was_told = self.told.take().is_some();
        let is_over = self.writers.get() == 0 || was_told;
        if is_over && self.bytes.borrow().is_empty() {
            self.begin.set(self.now.get());
        }
        self.writers.set(self.writers.get() + 1);
    }

    fn add_reader(&self) {
        self.readers.set(self.readers.get() + 1);
        self.is_deaf.set(false);
    }
}

impl End {
    fn new(pipe: Rc<Pipe>, flags: u32) -> End {
        let (reads, writes) = (flags & 3 != 1, flags & 3 != 0);
        if reads {
            pipe.add_reader();
        }
        if writes {
            pipe.add_writer();
        }
        let (begin, told) = (Cell::new(pipe.begin.get()), Cell::new(None));
        End { pipe, reads, writes, begin, told }
    }

    /// Where the stream began that it reads now.
    fn begin(&self) -> Mark {
        let is_past = |told: &Mark| told.writers < self.pipe.now.get().writers;
        if let Some(told) = self.told.get().filter(is_past) {
            self.told.set(None);
            self.begin.set(told);
        }
        self.begin.get()
    }

    /// None as long as there is nothing.
    fn take(&self, count: usize) -> Option<Result<Bytes>> {
        let mut bytes = self.pipe.bytes.borrow_mut();
        if bytes.is_empty() {
            drop(bytes);
            return self.stream_end();
        }
        let count = count.min(bytes.len());
        let taken: Bytes = bytes.drain(..count).collect::<Vec<u8>>().into();
        drop(bytes);
        self.pipe.bell.ring();
        Some(Ok(taken))
    }

    /// How the stream ends, if nobody else writes any more.
    fn stream_end(&self) -> Option<Result<Bytes>> {
        let (pipe, begin, now) = (&self.pipe, self.begin(), self.pipe.now.get());
        let others = pipe.writers.get() - usize::from(self.writes);
        let end = match () {
            () if others > 0 || now.writes == begin.writes => return None,
            () if now.cuts > begin.cuts => {
                let what = "who wrote into the pipe was killed, or its connection was lost";
                Err(Errno::because(Errno::EPIPE, what))
            }
            // It may write itself.
            () if self.writes => return None,
            () => Ok(Bytes::new()),
        };
        self.told.set(Some(now));
        pipe.told.set(Some(now));
        Some(end)
    }

    /// None as long as it does not fit.
    fn put(&self, data: &[u8]) -> Option<Result<u32>> {
        let pipe = &self.pipe;
        if pipe.is_deaf.get() && pipe.readers.get() == usize::from(self.reads) {
            let what = "who read from the pipe was killed, or its connection was lost";
            return Some(Err(Errno::because(Errno::EPIPE, what)));
        }
        let mut bytes = pipe.bytes.borrow_mut();
        if bytes.len() + data.len() > PIPE_BYTES {
            return None;
        }
        bytes.extend(data);
        drop(bytes);
        pipe.advance(|now| now.writes += 1);
        pipe.bell.ring();
        Some(Ok(data.len() as u32))
    }

    /// It is closed, or whoever held it is lost.
    fn close(&self, is_cut: bool) {
        let pipe = &self.pipe;
        if self.writes {
            pipe.writers.set(pipe.writers.get() - 1);
            if is_cut {
                // Its end is an error even if it has written nothing.
                pipe.advance(|now| (now.writes, now.cuts) = (now.writes + 1, now.cuts + 1));
            }
        }
        if self.reads {
            pipe.readers.set(pipe.readers.get() - 1);
            // Told to those who write now: whoever comes afterwards may have another reader.
            pipe.is_deaf.set(is_cut && pipe.writers.get() > 0);
        }
        pipe.bell.ring();
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
        Pipes { host, attr, names: RefCell::default(), count, number }
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
        let qid = qid(&pipe.attr.borrow());
        Opened { qid, node: Node::End(Rc::new(End::new(pipe, flags))), blocking: true }
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
        let end = match node.end() {
            Ok(end) => end.clone(),
            Err(error) => return Data::Failed(error),
        };
        let count = read.count as usize;
        let bell = end.pipe.bell.clone();
        Data::later(bell.wait(move || end.take(count)))
    }

    fn write(&self, _: &Rc<User>, node: &Node, write: Write) -> Written {
        let end = match node.end() {
            Ok(end) => end.clone(),
            Err(error) => return Written::Now(Err(error)),
        };
        write.received(|_, data| {
            if data.len() > PIPE_BYTES {
                let what = format!("a pipe holds {PIPE_BYTES} bytes");
                return Err(Errno::because(Errno::EINVAL, what)).into();
            }
            if let Some(put) = end.put(&data) {
                return put.into();
            }
            let bell = end.pipe.bell.clone();
            Outcome::later(bell.wait(move || end.put(&data)))
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
        if let Node::End(end) = node {
            end.close(false);
        }
    }

    fn cut(&self, _: &Rc<User>, node: Node) {
        if let Node::End(end) = node {
            end.close(true);
        }
    }
}

#[cfg(test)]
mod tests;
