//! A tree of another server as a [`Tree`] of this one: what is asked of it goes on through a client [`Conn`],
//! to be bound in a [`crate::namespace`].
//!
//! Who brings the connection is the caller's: a [`Connect`] dials and attaches as the user who enters. A
//! node of this tree is a fid there, so a request is one request there; it is sent when it is asked for,
//! in order, and flushed there when it is dropped here. A file that says no unit of transfer when it is
//! opened (`iounit` 0) may make its readers wait, and is treated as such here: see
//! [`Opened::blocking`].

use crate::client::{Conn, Fid};
use crate::message::{DirEntry, Message, Qid};
use crate::server::valid;
use crate::tree::{
    Attach, Attr, Data, Entry, Errno, Incoming, Lock, LockStatus, Make, Opened, Outcome, Read,
    Removal, Result, S_IFMT, SetAttr, SetTime, SetXattr, Statfs, Time, Tree, User, View, Write,
    Written,
};
use covey_wire::{Bytes, List, Name};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Answers a fid at the root of the other tree, attached as this user, and the root's qid. The dialect
/// must be one of Linux's.
pub type Connect = Box<dyn Fn(&User) -> Pin<Box<dyn Future<Output = Result<(Fid, Qid)>>>>>;

/// A tree of another server.
pub struct Import {
    connect: Connect,
    hidden: Vec<Name>,
}

/// A file there: a fid, and names that have not been walked from it yet.
#[derive(Clone)]
pub struct Node {
    fid: Rc<Fid>,
    path: Vec<Name>,
    /// The number of the root.
    root: u64,
    is_root: bool,
    /// It is open, and others may wait for it.
    is_blocking: bool,
}

/// The root of a connection that has attached with fid 0.
pub async fn root_of(conn: &Conn) -> Result<(Fid, Qid)> {
    let fid = Fid::new(conn);
    let names = List(Vec::new());
    let walked = conn.call(Message::Twalk { fid: 0, newfid: fid.number(), names });
    let found = conn.call(Message::Tgetattr { fid: 0, request_mask: GETATTR_ALL });
    walked.await?;
    Ok((fid, attr(found.await?)?.qid))
}

impl Import {
    /// The tree that `connect` attaches.
    pub fn new(connect: Connect) -> Import {
        Import { connect, hidden: Vec::new() }
    }

    /// Does not show `name` in the root: a tree that imports this one in turn would have no end.
    pub fn hide(mut self, name: impl Into<Name>) -> Import {
        self.hidden.push(name.into());
        self
    }

    fn hides(&self, node: &Node, name: &Name) -> bool {
        node.is_root && self.hidden.contains(name)
    }
}

impl Node {
    fn root(fid: Fid, qid: Qid) -> Node {
        Node {
            fid: Rc::new(fid),
            path: Vec::new(),
            root: qid.path,
            is_root: true,
            is_blocking: false,
        }
    }

    /// A file that `fid` stands for.
    fn at(&self, fid: Rc<Fid>, path: Vec<Name>, qid: Qid) -> Node {
        let is_root = qid.path == self.root && qid.kind & Qid::DIR != 0;
        Node { fid, path, root: self.root, is_root, is_blocking: false }
    }

    /// The fid that stands for the file.
    async fn here(self) -> Result<Rc<Fid>> {
        if self.path.is_empty() {
            return Ok(self.fid);
        }
        let fid = Fid::new(self.fid.conn());
        let count = self.path.len();
        let walk =
            Message::Twalk { fid: self.fid.number(), newfid: fid.number(), names: List(self.path) };
        match self.fid.conn().call(walk).await? {
            Message::Rwalk { qids } if qids.0.len() == count => Ok(Rc::new(fid)),
            Message::Rwalk { .. } => Err(Errno::ESTALE.into()),
            other => Err(odd(&other)),
        }
    }

    /// Sends a request about the file; `answer` reads the reply.
    fn ask<A: 'static>(
        &self,
        request: impl FnOnce(u32) -> Message + 'static,
        answer: impl FnOnce(Message) -> Result<A> + 'static,
    ) -> Outcome<A> {
        let fid = self.fid.clone();
        if self.path.is_empty() {
            // On its way before anything that is asked for later.
            let call = fid.conn().call(request(fid.number()));
            return Outcome::later(async move {
                let reply = call.await;
                drop(fid);
                answer(reply?)
            });
        }
        let here = self.clone().here();
        Outcome::later(async move {
            let fid = here.await?;
            let reply = fid.conn().call(request(fid.number())).await;
            answer(reply?)
        })
    }

    /// The same for a reply that says no more than that it is done.
    fn tell(&self, request: impl FnOnce(u32) -> Message + 'static) -> Outcome<()> {
        self.ask(request, |_| Ok(()))
    }

    /// A fid of its own for the file, which `request` opens.
    fn open_by(&self, request: impl FnOnce(u32) -> Message + 'static) -> Outcome<Opened<Node>> {
        let (node, new) = (self.clone(), Fid::new(self.fid.conn()));
        let clone = Message::Twalk {
            fid: self.fid.number(),
            newfid: new.number(),
            names: List(self.path.clone()),
        };
        let walked = self.fid.conn().call(clone);
        let opened = self.fid.conn().call(request(new.number()));
        Outcome::later(async move {
            match walked.await? {
                Message::Rwalk { qids } if qids.0.len() == node.path.len() => {}
                Message::Rwalk { .. } => return Err(Errno::ESTALE.into()),
                other => return Err(odd(&other)),
            }
            let (qid, iounit) = match opened.await? {
                Message::Rlopen { qid, iounit } | Message::Rlcreate { qid, iounit } => {
                    (qid, iounit)
                }
                other => return Err(odd(&other)),
            };
            let is_blocking = iounit == 0 && qid.kind & Qid::DIR == 0;
            let node = Node { is_blocking, ..node.at(Rc::new(new), Vec::new(), qid) };
            Ok(Opened { qid, node, blocking: is_blocking })
        })
    }
}

impl Tree for Import {
    type Node = Node;

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, Node)> {
        let what = "an imported tree is entered through a namespace, which knows the user";
        Err(Errno::because(Errno::EACCES, what)).into()
    }

    fn enter(&self, user: &User, _: Attach) -> Outcome<(User, Qid, Node)> {
        let (connected, user) = ((self.connect)(user), user.clone());
        Outcome::later(async move {
            let (fid, qid) = connected.await?;
            Ok((user, qid, Node::root(fid, qid)))
        })
    }

    fn walk(&self, _: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        if names.first().is_some_and(|name| self.hides(from, name)) {
            return Errno::ENOENT.into();
        }
        let hidden = self.hidden.clone();
        let (from, names, new) = (from.clone(), names.to_vec(), Fid::new(from.fid.conn()));
        let path = [&from.path[..], &names[..]].concat();
        let (fid, newfid) = (from.fid.number(), new.number());
        let names_of_path = List(path.clone());
        let walked = from.fid.conn().call(Message::Twalk { fid, newfid, names: names_of_path });
        Outcome::later(async move {
            let qids = match walked.await? {
                Message::Rwalk { qids } => qids.0,
                other => return Err(odd(&other)),
            };
            let found = qids.get(from.path.len()..).unwrap_or_default();
            // The way may lead through the root once more.
            let is_hidden = |at: usize| {
                let is_root = |qid: &Qid| from.at(from.fid.clone(), Vec::new(), *qid).is_root;
                at > 0
                    && names.get(at).is_some_and(|name| hidden.contains(name))
                    && is_root(&found[at - 1])
            };
            let end = (0..found.len()).find(|at| is_hidden(*at)).unwrap_or(found.len());
            let found = &found[..end];
            let is_whole = found.len() == names.len();
            let step = |(at, qid): (usize, &Qid)| {
                let kept = names[..=at].iter().map(Name::detached);
                let path = from.path.iter().cloned().chain(kept).collect();
                (*qid, from.at(from.fid.clone(), path, *qid))
            };
            let mut steps: Vec<_> = found.iter().enumerate().take(names.len()).map(step).collect();
            match steps.last_mut() {
                None => {
                    let why = Fid::walk(new.conn(), fid, &path[..=from.path.len()]).await.err();
                    return Err(why.map_or(Errno::ENOENT.into(), Errno::from));
                }
                Some((_, last)) if is_whole => (last.fid, last.path) = (Rc::new(new), Vec::new()),
                Some(_) => {}
            }
            Ok(steps)
        })
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        node.ask(|fid| Message::Tgetattr { fid, request_mask: GETATTR_ALL }, attr)
    }

    fn setattr(&self, _: &Rc<User>, node: &Node, set: SetAttr) -> Outcome<()> {
        node.tell(move |fid| setattr(fid, &set))
    }

    fn open(&self, _: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        node.open_by(move |fid| Message::Tlopen { fid, flags })
    }

    fn create(
        &self,
        _: &Rc<User>,
        dir: &Node,
        name: Name,
        flags: u32,
        mode: u32,
        gid: u32,
    ) -> Outcome<Opened<Node>> {
        dir.open_by(move |fid| Message::Tlcreate { fid, name, flags, mode, gid })
    }

    fn make(&self, _: &Rc<User>, dir: &Node, name: Name, make: Make, gid: u32) -> Outcome<Qid> {
        let request = move |dfid| match make {
            Make::Dir { mode } => Message::Tmkdir { dfid, name, mode, gid },
            Make::Symlink { target } => Message::Tsymlink { dfid, name, target, gid },
            Make::Special { mode, major, minor } => {
                Message::Tmknod { dfid, name, mode, major, minor, gid }
            }
        };
        dir.ask(request, |reply| match reply {
            Message::Rmkdir { qid } | Message::Rsymlink { qid } | Message::Rmknod { qid } => {
                Ok(qid)
            }
            other => Err(odd(&other)),
        })
    }

    fn read(&self, _: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        let (offset, count) = (read.offset, read.count.min(node.fid.conn().payload_max()));
        let request = move |fid| Message::Tread { fid, offset, count };
        node.ask(request, |reply| match reply {
            Message::Rread { data } => Ok(data.into_bytes()),
            other => Err(odd(&other)),
        })
        .into()
    }

    fn write(&self, _: &Rc<User>, node: &Node, write: Write) -> Written {
        let Incoming::Here(mut data) = write.data else { return Written::Unread };
        data.truncate(node.fid.conn().payload_max() as usize);
        let offset = write.offset;
        let request = move |fid| Message::Twrite { fid, offset, data: data.into() };
        node.ask(request, count).into()
    }

    fn readdir(
        &self,
        _: &Rc<User>,
        node: &Node,
        cookie: u64,
        bytes_max: u32,
    ) -> Outcome<Vec<Entry>> {
        let count = bytes_max.min(node.fid.conn().payload_max());
        let hidden = if node.is_root { self.hidden.clone() } else { Vec::new() };
        let here = node.clone().here();
        Outcome::later(async move {
            let (fid, mut offset) = (here.await?, cookie);
            loop {
                let request = Message::Treaddir { fid: fid.number(), offset, count };
                let all = match fid.conn().call(request).await? {
                    Message::Rreaddir { data } => entries(data.into_bytes())?,
                    other => return Err(odd(&other)),
                };
                // No entry means the end, so a page of nothing but hidden names is not an answer.
                let next = all.last().map_or(offset, |entry| entry.cookie);
                let is_end = next == offset;
                let shown: Vec<_> =
                    all.into_iter().filter(|entry| !hidden.contains(&entry.name)).collect();
                if is_end || !shown.is_empty() {
                    return Ok(shown);
                }
                offset = next;
            }
        })
    }

    fn read_view(&self, _: &Rc<User>, node: &Node, view: View) -> Outcome<Bytes> {
        let View { start, end, bytes: count, body } = view;
        let request = move |fid| Message::Treadview { fid, start, end, count, view: body.into() };
        node.ask(request, |reply| match reply {
            Message::Rreadview { data } => Ok(data.into_bytes()),
            other => Err(odd(&other)),
        })
    }

    fn write_view(&self, _: &Rc<User>, node: &Node, view: View, data: Bytes) -> Outcome<u32> {
        let View { start, end, body, .. } = view;
        let (view, data) = (body.into(), data.into());
        let request = move |fid| Message::Twriteview { fid, start, end, view, data };
        node.ask(request, count)
    }

    fn readlink(&self, _: &Rc<User>, node: &Node) -> Outcome<Name> {
        node.ask(
            |fid| Message::Treadlink { fid },
            |reply| match reply {
                Message::Rreadlink { target } => Ok(target),
                other => Err(odd(&other)),
            },
        )
    }

    fn link(&self, _: &Rc<User>, node: &Node, dir: &Node, name: Name) -> Outcome<()> {
        let (node, dir) = (node.clone().here(), dir.clone().here());
        Outcome::later(async move {
            let (node, dir) = (node.await?, dir.await?);
            let (fid, dfid) = (same(&node, &dir)?, dir.number());
            Ok(dir.conn().call(Message::Tlink { dfid, fid, name }).await.map(drop)?)
        })
    }

    fn rename(&self, _: &Rc<User>, from: &Node, old: Name, to: &Node, new: Name) -> Outcome<()> {
        let (from, to) = (from.clone().here(), to.clone().here());
        Outcome::later(async move {
            let (from, to) = (from.await?, to.await?);
            let (olddirfid, newdirfid) = (from.number(), same(&to, &from)?);
            let rename = Message::Trenameat { olddirfid, oldname: old, newdirfid, newname: new };
            Ok(from.conn().call(rename).await.map(drop)?)
        })
    }

    fn unlink(&self, _: &Rc<User>, dir: &Node, name: Name, what: Removal) -> Outcome<()> {
        const AT_REMOVEDIR: u32 = 0x200;
        let flags = if what.is_dir() { AT_REMOVEDIR } else { 0 };
        dir.tell(move |dirfid| Message::Tunlinkat { dirfid, name, flags })
    }

    fn fsync(&self, _: &Rc<User>, node: &Node, datasync: bool) -> Outcome<()> {
        node.tell(move |fid| Message::Tfsync { fid, datasync: datasync.into() })
    }

    fn statfs(&self, _: &Rc<User>, node: &Node) -> Outcome<Statfs> {
        node.ask(
            |fid| Message::Tstatfs { fid },
            |reply| match reply {
                Message::Rstatfs {
                    bsize,
                    blocks,
                    bfree,
                    bavail,
                    files,
                    ffree,
                    fsid,
                    namelen,
                    ..
                } => Ok(Statfs { bsize, blocks, bfree, bavail, files, ffree, fsid, namelen }),
                other => Err(odd(&other)),
            },
        )
    }

    fn lock(&self, _: &Rc<User>, node: &Node, lock: Lock) -> Outcome<LockStatus> {
        let request = move |fid| {
            let Lock { kind, start, length, proc_id, client_id, wait } = lock;
            Message::Tlock { fid, kind, flags: wait.into(), start, length, proc_id, client_id }
        };
        node.ask(request, |reply| match reply {
            Message::Rlock { status: 0 } => Ok(LockStatus::Success),
            Message::Rlock { status: 1 } => Ok(LockStatus::Blocked),
            Message::Rlock { status: 3 } => Ok(LockStatus::Grace),
            Message::Rlock { .. } => Ok(LockStatus::Error),
            other => Err(odd(&other)),
        })
    }

    fn getlock(&self, _: &Rc<User>, node: &Node, lock: Lock) -> Outcome<Lock> {
        let request = move |fid| {
            let Lock { kind, start, length, proc_id, client_id, .. } = lock;
            Message::Tgetlock { fid, kind, start, length, proc_id, client_id }
        };
        node.ask(request, |reply| match reply {
            Message::Rgetlock { kind, start, length, proc_id, client_id } => {
                Ok(Lock { kind, start, length, proc_id, client_id, wait: false })
            }
            other => Err(odd(&other)),
        })
    }

    fn list_xattrs(&self, _: &Rc<User>, node: &Node) -> Outcome<Vec<Name>> {
        let node = node.clone().here();
        Outcome::later(async move {
            let fid = node.await?;
            Ok(fid.conn().list_xattrs(fid.number()).await?)
        })
    }

    fn xattr(&self, _: &Rc<User>, node: &Node, name: Name) -> Outcome<Bytes> {
        let node = node.clone().here();
        Outcome::later(async move {
            let fid = node.await?;
            Ok(fid.conn().xattr(fid.number(), name).await?)
        })
    }

    fn set_xattr(
        &self,
        _: &Rc<User>,
        node: &Node,
        name: Name,
        value: Bytes,
        rule: SetXattr,
    ) -> Outcome<()> {
        let node = node.clone().here();
        Outcome::later(async move {
            let fid = node.await?;
            Ok(fid.conn().set_xattr(fid.number(), name, value, rule).await?)
        })
    }

    fn remove_xattr(&self, _: &Rc<User>, node: &Node, name: Name) -> Outcome<()> {
        let node = node.clone().here();
        Outcome::later(async move {
            let fid = node.await?;
            Ok(fid.conn().remove_xattr(fid.number(), name).await?)
        })
    }

    fn call(&self, _: &Rc<User>, node: &Node, body: Bytes) -> Outcome<Bytes> {
        let request = move |fid| Message::Tcall { fid, body: body.into() };
        node.ask(request, |reply| match reply {
            Message::Rcall { body } => Ok(body.into_bytes()),
            other => Err(odd(&other)),
        })
    }

    /// The last holder of the fid there is lost; that it is clunked there does not say so.
    fn cut(&self, _: &Rc<User>, node: Node) {
        if node.is_blocking {
            node.fid.cut();
        }
    }
}

/// The number of a fid, if it is one of the same connection as the other: a link or rename cannot span two.
fn same(fid: &Fid, other: &Fid) -> Result<u32> {
    if fid.conn().is_same(other.conn()) {
        Ok(fid.number())
    } else {
        Err(Errno::because(Errno::EXDEV, "the files were reached by two connections"))
    }
}

fn count(reply: Message) -> Result<u32> {
    match reply {
        Message::Rwrite { count } | Message::Rwriteview { count } => Ok(count),
        other => Err(odd(&other)),
    }
}

fn attr(reply: Message) -> Result<Attr> {
    let Message::Rgetattr {
        qid,
        mode,
        uid,
        gid,
        nlink,
        rdev,
        size,
        blksize,
        blocks,
        atime_sec,
        atime_nsec,
        mtime_sec,
        mtime_nsec,
        ctime_sec,
        ctime_nsec,
        btime_sec,
        btime_nsec,
        ..
    } = reply
    else {
        return Err(odd(&reply));
    };
    if mode & S_IFMT == 0 {
        return Err(Errno::because(Errno::EPROTO, "the server answered a mode without a type"));
    }
    let time = |sec, nsec| Time { sec, nsec };
    Ok(Attr {
        qid,
        mode,
        uid,
        gid,
        nlink,
        rdev,
        size,
        blksize,
        blocks,
        atime: time(atime_sec, atime_nsec),
        mtime: time(mtime_sec, mtime_nsec),
        ctime: time(ctime_sec, ctime_nsec),
        btime: time(btime_sec, btime_nsec),
    })
}

fn setattr(fid: u32, set: &SetAttr) -> Message {
    let has = |is: bool, bit: u32| if is { bit } else { 0 };
    let time = |set: Option<SetTime>| match set {
        Some(SetTime::To(time)) => (time, true),
        _ => (Time::default(), false),
    };
    let ((atime, atime_set), (mtime, mtime_set)) = (time(set.atime), time(set.mtime));
    let valid = has(set.mode.is_some(), valid::MODE)
        | has(set.uid.is_some(), valid::UID)
        | has(set.gid.is_some(), valid::GID)
        | has(set.size.is_some(), valid::SIZE)
        | has(set.atime.is_some(), valid::ATIME)
        | has(set.mtime.is_some(), valid::MTIME)
        | has(atime_set, valid::ATIME_SET)
        | has(mtime_set, valid::MTIME_SET);
    Message::Tsetattr {
        fid,
        valid,
        mode: set.mode.unwrap_or(0),
        uid: set.uid.unwrap_or(0),
        gid: set.gid.unwrap_or(0),
        size: set.size.unwrap_or(0),
        atime_sec: atime.sec,
        atime_nsec: atime.nsec,
        mtime_sec: mtime.sec,
        mtime_nsec: mtime.nsec,
    }
}

fn entries(data: Bytes) -> Result<Vec<Entry>> {
    let entries = DirEntry::take_entries(data)
        .map_err(|blame| Errno::because(Errno::EPROTO, blame.to_string()))?;
    let entry = |DirEntry { qid, offset, kind, name }| Entry { qid, cookie: offset, kind, name };
    Ok(entries.into_iter().map(entry).collect())
}

fn odd(reply: &Message) -> Errno {
    Errno::because(Errno::EPROTO, format!("the server answered with {}", reply.name()))
}

/// The bits of Tgetattr for all that there is.
const GETATTR_ALL: u64 = 0x3fff;
