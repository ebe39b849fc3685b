//! A node's whole tree: its parts bound under one root, absent where they are off.
//!
//! ```text
//!   /fs/     the file system            /data/   this node's objects, if it is an I/O server
//!   /stats   counters, one per line     /meta/   the names, if it is the metadata server
//!   /config  the cluster's configuration
//! ```
//!
//! A part decides for itself who may attach it; walking into it from the root is attaching it.

use super::watch::{Client, Detail, Watch};
use super::{ctl, data, fs, meta};
use covey_ninep::message::Qid;
use covey_ninep::runs::{self, Run};
use covey_ninep::tree::{
    Attach, Attr, Data, Entry, Errno, Lock, LockStatus, Make, Opened, Outcome, Read, Result,
    SetAttr, SetXattr, Statfs, Tree, User, Write, Written,
};
use covey_wire::{Bytes, Name};
use std::pin::Pin;
use std::rc::Rc;

/// Everything a node serves.
pub struct NodeTree {
    /// The file system.
    pub fs: fs::FsTree,
    /// Objects.
    pub data: Option<data::DataServer>,
    /// Names.
    pub meta: Option<meta::MetaServer>,
    /// The text of `/config`.
    pub config: String,
    /// What the node is called.
    pub name: String,
    /// What it is called among all clusters: an attach may say whom it means.
    pub whose: String,
    /// The watch over the objects' operations.
    pub watch: Rc<Watch>,
}

/// A file of one of the parts.
#[derive(Clone)]
pub enum Node {
    /// The root, with the attach that led there: its parts judge it again.
    Root(Rc<Attach>),
    /// A text file of the root.
    Text(Text),
    /// A file of the file system.
    Fs(fs::Node),
    /// The control file, opened for writing: what is no whole line yet.
    Ctl(ctl::Pending),
    /// An object, and on whose behalf it is used.
    Data(data::Node, Rc<Client>),
    /// A name.
    Meta(meta::Node),
}

/// The root's text files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// Counters.
    Stats,
    /// The configuration.
    Config,
    /// The program's version.
    Version,
    /// What can be set.
    Ctl,
    /// The last slow requests.
    Slow,
    /// Counters, with all that is known of the times.
    Times,
    /// How full the metadata store is; empty where there is none.
    Space,
    /// Whether the metadata server knows the store.
    Store,
}

impl Text {
    const ALL: [(Text, &str, u64); 8] = [
        (Text::Stats, "stats", 4),
        (Text::Config, "config", 5),
        (Text::Version, "version", 6),
        (Text::Ctl, "ctl", 7),
        (Text::Slow, "slow", 8),
        (Text::Times, "times", 9),
        (Text::Space, "space", 10),
        (Text::Store, "store", 11),
    ];

    /// Whether only root and the server's own user may read it: it tells what other users do.
    fn is_private(self) -> bool {
        match self {
            Text::Stats | Text::Ctl | Text::Slow | Text::Times => true,
            Text::Config | Text::Space | Text::Store | Text::Version => false,
        }
    }

    fn qid(self) -> Qid {
        let number = Text::ALL.iter().find(|(text, ..)| *text == self).map_or(0, |entry| entry.2);
        Qid { kind: Qid::FILE, version: 0, path: ROOT_PATHS + number }
    }
}

/// The root's own files have qid paths that no part uses.
const ROOT_PATHS: u64 = 0xffff_ffff_0000_0000;

fn root_qid(number: u64) -> Qid {
    Qid { kind: Qid::DIR, version: 0, path: ROOT_PATHS + number }
}

impl NodeTree {
    fn text(&self, text: Text) -> String {
        match text {
            Text::Config => self.config.clone(),
            Text::Version => concat!(env!("CARGO_PKG_VERSION"), "\n").to_owned(),
            Text::Ctl => ctl::text(&self.watches()),
            Text::Slow => self.watches().iter().map(|watch| watch.slow_text()).collect(),
            Text::Stats => self.numbers(Detail::Summary),
            Text::Times => self.numbers(Detail::Buckets),
            Text::Space => {
                let space = self.meta.as_ref().and_then(|meta| meta.0.map_space());
                space.map_or_else(String::new, |(used, max)| format!("metadata {used} {max}\n"))
            }
            Text::Store => {
                self.data.as_ref().map_or_else(String::new, |data| data.0.standing().text())
            }
        }
    }

    /// Counters, operations, clients and times.
    fn numbers(&self, detail: Detail) -> String {
        let mut out = format!("node {}\n", self.name);
        let data = self.data.iter().flat_map(|data| data.0.counters().list());
        data.for_each(|(name, value)| out += &format!("data.{name} {value}\n"));
        if let Some(meta) = &self.meta {
            for (name, value) in meta.0.counters().list() {
                out += &format!("meta.{name} {value}\n");
            }
            let sessions = meta.0.session_list();
            out += &format!("meta.sessions {}\n", sessions.len());
            for one in sessions {
                out += &format!("session {} {} {}\n", one.session, one.name, one.open_files);
            }
            out += &meta.0.times().text(detail);
        }
        for watch in self.watches() {
            out += &watch.text(detail);
        }
        let moves = covey_io::os::place::moves();
        out + &format!("place.joined {}\n", moves.joined)
    }

    /// The watches over the parts that are on.
    fn watches(&self) -> Vec<Rc<Watch>> {
        let data = self.data.as_ref().map(|_| self.watch.clone());
        let meta = self.meta.as_ref().map(|meta| meta.0.watch().clone());
        data.into_iter().chain(meta).collect()
    }

    /// Watches what is asked of an object.
    fn watched<T: 'static>(
        &self,
        node: &Node,
        what: (u8, &'static str, u64),
        outcome: impl FnOnce() -> Outcome<T>,
    ) -> Outcome<T> {
        let Node::Data(object, client) = node else { return outcome() };
        let (number, name, bytes) = what;
        let request = self.watch.begin(number, name, Some(client));
        let request = request.about(data::id_of(object), bytes).waits_for("disk");
        self.watch.outcome(request, outcome())
    }

    fn part(&self, name: &[u8], attach: Attach) -> Outcome<(User, Qid, Node)> {
        match name {
            b"fs" => self.fs.attach(attach).map(|(user, qid, node)| (user, qid, Node::Fs(node))),
            b"data" => match &self.data {
                Some(data) => {
                    let client = self.watch.client(&attach.peer.name);
                    let node = move |node| Node::Data(node, client);
                    data.attach(attach).map(|(user, qid, inner)| (user, qid, node(inner)))
                }
                None => Errno::ENOENT.into(),
            },
            b"meta" => match &self.meta {
                Some(meta) => {
                    meta.attach(attach).map(|(user, qid, node)| (user, qid, Node::Meta(node)))
                }
                None => Errno::ENOENT.into(),
            },
            _ => Errno::ENOENT.into(),
        }
    }

    fn walk_root(&self, attach: &Rc<Attach>, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        let [first, rest @ ..] = names else { return Outcome::Now(Ok(Vec::new())) };
        if first.as_bytes() == b".." {
            return Outcome::Now(Ok(vec![(root_qid(0), Node::Root(attach.clone()))]));
        }
        let text = Text::ALL.iter().find(|(_, name, _)| name.as_bytes() == first.as_bytes());
        if let Some(&(text, ..)) = text {
            return Outcome::Now(Ok(vec![(text.qid(), Node::Text(text))]));
        }
        if !rest.is_empty() {
            // The part is entered first; the rest is walked from there by the next request. 9P allows
            // an answer of fewer names only as a failure, so longer walks go one step at a time.
            return self.walk_through(first, rest, attach);
        }
        self.part(first.as_bytes(), (**attach).clone()).map(|(_, qid, node)| vec![(qid, node)])
    }

    fn walk_through(
        &self,
        first: &Name,
        rest: &[Name],
        attach: &Rc<Attach>,
    ) -> Outcome<Vec<(Qid, Node)>> {
        let entered = self.part(first.as_bytes(), (**attach).clone());
        let parts = Parts { fs: self.fs.clone(), data: self.data.clone(), meta: self.meta.clone() };
        let rest = rest.to_vec();
        Outcome::later(async move {
            let (user, qid, node) = finish(entered).await?;
            let mut found = vec![(qid, node.clone())];
            if let Ok(more) = finish(parts.walk(&Rc::new(user), &node, &rest)).await {
                found.extend(more);
            }
            Ok(found)
        })
    }
}

async fn finish<T>(outcome: Outcome<T>) -> Result<T> {
    match outcome {
        Outcome::Now(result) => result,
        Outcome::Later(future) => future.await,
    }
}

/// The parts alone, for a walk that goes on after it has waited.
struct Parts {
    fs: fs::FsTree,
    data: Option<data::DataServer>,
    meta: Option<meta::MetaServer>,
}

impl Parts {
    fn walk(&self, user: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        fn wrap<N>(found: Vec<(Qid, N)>, node: impl Fn(N) -> Node) -> Vec<(Qid, Node)> {
            found.into_iter().map(|(qid, inner)| (qid, node(inner))).collect()
        }
        match (from, &self.data, &self.meta) {
            (Node::Fs(from), ..) => {
                self.fs.walk(user, from, names).map(|found| wrap(found, Node::Fs))
            }
            (Node::Data(from, client), Some(data), _) => {
                let client = client.clone();
                let node = move |inner| Node::Data(inner, client.clone());
                data.walk(user, from, names).map(|found| wrap(found, node))
            }
            (Node::Meta(from), _, Some(meta)) => {
                meta.walk(user, from, names).map(|found| wrap(found, Node::Meta))
            }
            _ => Errno::ENOTDIR.into(),
        }
    }
}

/// Hands an operation to the part that the node belongs to.
macro_rules! to_part {
    ($self:ident, $node:expr, |$tree:ident, $inner:ident| $call:expr, $own:expr) => {
        match $node {
            Node::Fs($inner) => {
                let $tree = &$self.fs;
                $call
            }
            Node::Data($inner, _) => match &$self.data {
                Some($tree) => $call,
                None => Errno::ENOENT.into(),
            },
            Node::Meta($inner) => match &$self.meta {
                Some($tree) => $call,
                None => Errno::ENOENT.into(),
            },
            _ => $own,
        }
    };
}

fn reopen<N>(opened: Opened<N>, node: impl FnOnce(N) -> Node) -> Opened<Node> {
    Opened { qid: opened.qid, node: node(opened.node), blocking: opened.blocking }
}

impl Tree for NodeTree {
    type Node = Node;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Node)> {
        let aname = attach.aname.lossy().into_owned();
        let (path, whose) = aname.split_once(' ').unwrap_or((&aname, &self.whose));
        if whose != self.whose {
            let why = format!("{whose:?} was meant, this is {:?}", self.whose);
            return Outcome::Now(Err(Errno::because(Errno::ENXIO, why)));
        }
        match path.trim_matches('/') {
            "" => {
                // The user of this attach is who walks on into the parts.
                let user = match self.fs.admit(&attach) {
                    Ok(user) => user,
                    Err(error) => return Outcome::Now(Err(error)),
                };
                Outcome::Now(Ok((user, root_qid(0), Node::Root(Rc::new(attach)))))
            }
            part => {
                let part = part.to_owned();
                self.part(part.as_bytes(), attach)
            }
        }
    }

    fn walk(&self, user: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        match from {
            Node::Root(attach) => self.walk_root(attach, names),
            Node::Text(_) | Node::Ctl(_) => Errno::ENOTDIR.into(),
            part => {
                let fs = self.fs.clone();
                let parts = Parts { fs, data: self.data.clone(), meta: self.meta.clone() };
                parts.walk(user, part, names)
            }
        }
    }

    fn getattr(&self, user: &Rc<User>, node: &Node) -> Outcome<Attr> {
        to_part!(self, node, |tree, inner| tree.getattr(user, inner), {
            let (qid, mode, size) = match node {
                Node::Text(Text::Ctl) | Node::Ctl(_) => (Text::Ctl.qid(), 0o100600, 0),
                Node::Text(text) if text.is_private() => {
                    let size = if self.is_owner(user) { self.text(*text).len() } else { 0 };
                    (text.qid(), 0o100400, size as u64)
                }
                Node::Text(text) => (text.qid(), 0o100444, self.text(*text).len() as u64),
                _ => (root_qid(0), 0o040555, 0),
            };
            Outcome::Now(Ok(Attr { qid, mode, nlink: 1, size, blksize: 4096, ..Attr::default() }))
        })
    }

    fn setattr(&self, user: &Rc<User>, node: &Node, set: SetAttr) -> Outcome<()> {
        to_part!(self, node, |tree, inner| tree.setattr(user, inner, set), {
            match node {
                // A shell that redirects to it truncates it.
                Node::Text(Text::Ctl) | Node::Ctl(_) => Outcome::Now(Ok(())),
                _ => Errno::EROFS.into(),
            }
        })
    }

    fn open(&self, user: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        match node {
            Node::Fs(inner) => {
                self.fs.open(user, inner, flags).map(|opened| reopen(opened, Node::Fs))
            }
            Node::Data(inner, client) => match &self.data {
                Some(tree) => {
                    let client = client.clone();
                    let node = move |inner| Node::Data(inner, client);
                    tree.open(user, inner, flags).map(|o| reopen(o, node))
                }
                None => Errno::ENOENT.into(),
            },
            Node::Meta(inner) => match &self.meta {
                Some(tree) => tree.open(user, inner, flags).map(|o| reopen(o, Node::Meta)),
                None => Errno::ENOENT.into(),
            },
            Node::Text(Text::Ctl) if flags & 3 != 0 => match self.is_owner(user) {
                true => {
                    let (qid, node) = (Text::Ctl.qid(), Node::Ctl(ctl::Pending::default()));
                    Outcome::Now(Ok(Opened { qid, node, blocking: false }))
                }
                false => Errno::EACCES.into(),
            },
            Node::Text(text) if text.is_private() && !self.is_owner(user) => {
                let what = "it tells what all users do: for root and the server's own user";
                Outcome::Now(Err(Errno::because(Errno::EACCES, what)))
            }
            own if flags & 3 == 0 => {
                let qid = match own {
                    Node::Text(text) => text.qid(),
                    _ => root_qid(0),
                };
                Outcome::Now(Ok(Opened { qid, node: own.clone(), blocking: false }))
            }
            _ => Errno::EROFS.into(),
        }
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
        match dir {
            Node::Fs(dir) => {
                self.fs.create(user, dir, name, flags, mode, gid).map(|o| reopen(o, Node::Fs))
            }
            _ => Errno::EROFS.into(),
        }
    }

    fn make(&self, user: &Rc<User>, dir: &Node, name: Name, make: Make, gid: u32) -> Outcome<Qid> {
        to_part!(self, dir, |tree, dir| tree.make(user, dir, name, make, gid), Errno::EROFS.into())
    }

    fn read(&self, user: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        if let (Node::Data(inner, client), Some(data)) = (node, &self.data) {
            let request = self.watch.begin(0, "read", Some(client));
            let request = request.about(data::id_of(inner), read.count.into()).waits_for("disk");
            return self.watch.data(request, data.read(user, inner, read));
        }
        to_part!(self, node, |tree, inner| tree.read(user, inner, read), {
            let text = match node {
                Node::Text(text) => *text,
                Node::Ctl(_) => Text::Ctl,
                _ => return Errno::EISDIR.into(),
            };
            read.of(&Bytes::from(self.text(text)))
        })
    }

    fn write(&self, user: &Rc<User>, node: &Node, write: Write) -> Written {
        if let Node::Ctl(pending) = node {
            let copy = || self.begin_copy();
            let reset = || self.meta.iter().for_each(|meta| meta.0.times().reset());
            let meta = ctl::Meta { copy: &copy, reset: &reset };
            return write
                .received(|_, data| ctl::write(pending, &data, &self.watches(), &meta).into());
        }
        write.received(|offset, data| {
            let (what, write) = ((1, "write", data.len() as u64), Write::bytes(offset, data));
            self.watched(node, what, || {
                to_part!(self, node, |tree, inner| tree.write(user, inner, write), {
                    Written::from(Errno::EBADF)
                })
                .into_outcome()
            })
        })
    }

    fn read_list(&self, user: &Rc<User>, node: &Node, list: Vec<Run>) -> Outcome<Bytes> {
        to_part!(self, node, |tree, inner| tree.read_list(user, inner, list), {
            runs::read_each(&list, |offset, count| {
                self.read(user, node, Read::bytes(offset, count)).into_outcome()
            })
        })
    }

    fn write_list(
        &self,
        user: &Rc<User>,
        node: &Node,
        list: Vec<Run>,
        data: Bytes,
    ) -> Outcome<u32> {
        to_part!(self, node, |tree, inner| tree.write_list(user, inner, list, data), {
            Errno::EBADF.into()
        })
    }

    fn readdir(
        &self,
        user: &Rc<User>,
        node: &Node,
        cookie: u64,
        bytes: u32,
    ) -> Outcome<Vec<Entry>> {
        to_part!(self, node, |tree, inner| tree.readdir(user, inner, cookie, bytes), {
            let Node::Root(_) = node else { return Errno::ENOTDIR.into() };
            Outcome::Now(Ok(self
                .root_entries()
                .into_iter()
                .filter(|e| e.cookie > cookie)
                .collect()))
        })
    }

    fn readlink(&self, user: &Rc<User>, node: &Node) -> Outcome<Name> {
        to_part!(self, node, |tree, inner| tree.readlink(user, inner), Errno::EINVAL.into())
    }

    fn link(&self, user: &Rc<User>, node: &Node, dir: &Node, name: Name) -> Outcome<()> {
        match (node, dir) {
            (Node::Fs(node), Node::Fs(dir)) => self.fs.link(user, node, dir, name),
            _ => Errno::EXDEV.into(),
        }
    }

    fn rename(&self, user: &Rc<User>, from: &Node, old: Name, to: &Node, new: Name) -> Outcome<()> {
        match (from, to) {
            (Node::Fs(from), Node::Fs(to)) => self.fs.rename(user, from, old, to, new),
            _ => Errno::EXDEV.into(),
        }
    }

    fn unlink(&self, user: &Rc<User>, dir: &Node, name: Name, is_dir: bool) -> Outcome<()> {
        to_part!(self, dir, |tree, dir| tree.unlink(user, dir, name, is_dir), Errno::EROFS.into())
    }

    fn fsync(&self, user: &Rc<User>, node: &Node, datasync: bool) -> Outcome<()> {
        self.watched(node, (2, "fsync", 0), || {
            to_part!(self, node, |tree, inner| tree.fsync(user, inner, datasync), {
                Outcome::Now(Ok(()))
            })
        })
    }

    fn statfs(&self, user: &Rc<User>, node: &Node) -> Outcome<Statfs> {
        to_part!(self, node, |tree, inner| tree.statfs(user, inner), {
            match (&self.meta, &self.data) {
                (_, Some(data)) => data.statfs(user, &data::Node::Root(Rc::default())),
                (Some(meta), _) => meta.space(),
                _ => Outcome::Now(Ok(Statfs { bsize: 4096, namelen: 255, ..Statfs::default() })),
            }
        })
    }

    fn lock(&self, user: &Rc<User>, node: &Node, lock: Lock) -> Outcome<LockStatus> {
        to_part!(self, node, |tree, inner| tree.lock(user, inner, lock), Errno::EOPNOTSUPP.into())
    }

    fn getlock(&self, user: &Rc<User>, node: &Node, lock: Lock) -> Outcome<Lock> {
        to_part!(self, node, |tree, inner| tree.getlock(user, inner, lock), {
            Errno::EOPNOTSUPP.into()
        })
    }

    fn list_xattrs(&self, user: &Rc<User>, node: &Node) -> Outcome<Vec<Name>> {
        to_part!(self, node, |tree, inner| tree.list_xattrs(user, inner), {
            Errno::EOPNOTSUPP.into()
        })
    }

    fn xattr(&self, user: &Rc<User>, node: &Node, name: Name) -> Outcome<Bytes> {
        to_part!(self, node, |tree, inner| tree.xattr(user, inner, name), {
            Errno::EOPNOTSUPP.into()
        })
    }

    fn set_xattr(
        &self,
        user: &Rc<User>,
        node: &Node,
        name: Name,
        value: Bytes,
        rule: SetXattr,
    ) -> Outcome<()> {
        to_part!(self, node, |tree, inner| tree.set_xattr(user, inner, name, value, rule), {
            Errno::EOPNOTSUPP.into()
        })
    }

    fn remove_xattr(&self, user: &Rc<User>, node: &Node, name: Name) -> Outcome<()> {
        to_part!(self, node, |tree, inner| tree.remove_xattr(user, inner, name), {
            Errno::EOPNOTSUPP.into()
        })
    }

    fn call(&self, user: &Rc<User>, node: &Node, body: Bytes) -> Outcome<Bytes> {
        self.watched(node, (3, "call", 0), || {
            to_part!(self, node, |tree, inner| tree.call(user, inner, body), {
                Errno::EOPNOTSUPP.into()
            })
        })
    }

    fn user_name(&self, uid: u32) -> Name {
        self.fs.user_name(uid)
    }

    fn detach(&self, work: Pin<Box<dyn Future<Output = ()>>>) {
        self.fs.detach(work);
    }

    fn clunk(&self, user: &Rc<User>, node: Node) {
        if let Node::Fs(node) = node {
            self.fs.clunk(user, node);
        }
    }
}

impl NodeTree {
    fn begin_copy(&self) -> bool {
        let Some(meta) = self.meta.as_ref().map(|meta| meta.0.clone()) else { return false };
        covey_io::task::spawn(async move {
            if let Err(error) = meta.copy_now().await {
                tracing::warn!("the metadata was not copied to the I/O servers: {error}");
            }
        });
        true
    }

    /// Whether a user may change what the node does: its own, and root.
    fn is_owner(&self, user: &User) -> bool {
        user.uid == 0 || user.uid == rustix::process::geteuid().as_raw()
    }

    fn root_entries(&self) -> Vec<Entry> {
        const DT_DIR: u8 = 4;
        const DT_REG: u8 = 8;
        let entry = |cookie: u64, name: &str, qid: Qid, kind: u8| Entry {
            qid,
            cookie,
            kind,
            name: Name::from(name),
        };
        let mut entries = vec![
            entry(1, ".", root_qid(0), DT_DIR),
            entry(2, "..", root_qid(0), DT_DIR),
            entry(3, "fs", root_qid(1), DT_DIR),
        ];
        if self.data.is_some() {
            entries.push(entry(4, "data", root_qid(2), DT_DIR));
        }
        if self.meta.is_some() {
            entries.push(entry(5, "meta", root_qid(3), DT_DIR));
        }
        for (text, name, number) in Text::ALL {
            entries.push(entry(number + 2, name, text.qid(), DT_REG));
        }
        entries
    }
}
