//! A file of some part, held on behalf of a user: what a fid of a namespace stands for. Reads and writes go
//! through one virtual call to the part's own code; nothing is boxed for them.

use crate::message::Qid;
use crate::tree::{
    Attr, Data, Entry, Errno, Lock, LockStatus, Make, Opened, Outcome, Read, Removal, SetAttr,
    SetXattr, Statfs, Tree, User, View, Write, Written,
};
use covey_wire::{Bytes, Name};
use std::any::Any;
use std::ops::Deref;
use std::rc::Rc;

/// Says once which methods of a [`Tree`] take a file and answer something without files: `$then!` is given
/// the table. A method's default is what a directory of the namespace answers.
macro_rules! for_each_method {
    ($then:ident) => {
        $then! {
            getattr() -> Attr = Errno::EOPNOTSUPP.into();
            setattr(set: SetAttr) -> () = { let _ = set; Errno::EROFS.into() };
            make(name: Name, make: Make, gid: u32) -> Qid = {
                let _ = (name, make, gid);
                Errno::EROFS.into()
            };
            read_view(view: View) -> Bytes = { let _ = view; Errno::EISDIR.into() };
            write_view(view: View, data: Bytes) -> u32 = {
                let _ = (view, data);
                Errno::EISDIR.into()
            };
            readdir(cookie: u64, bytes_max: u32) -> Vec<Entry> = {
                let _ = (cookie, bytes_max);
                Errno::ENOTDIR.into()
            };
            readlink() -> Name = Errno::EINVAL.into();
            unlink(name: Name, what: Removal) -> () = { let _ = (name, what); Errno::EROFS.into() };
            remove() -> () = Errno::EROFS.into();
            fsync(datasync: bool) -> () = { let _ = datasync; Ok(()).into() };
            statfs() -> Statfs = Errno::EOPNOTSUPP.into();
            lock(lock: Lock) -> LockStatus = { let _ = lock; Errno::EOPNOTSUPP.into() };
            getlock(lock: Lock) -> Lock = { let _ = lock; Errno::EOPNOTSUPP.into() };
            list_xattrs() -> Vec<Name> = Errno::EOPNOTSUPP.into();
            xattr(name: Name) -> Bytes = { let _ = name; Errno::EOPNOTSUPP.into() };
            set_xattr(name: Name, value: Bytes, rule: SetXattr) -> () = {
                let _ = (name, value, rule);
                Errno::EOPNOTSUPP.into()
            };
            remove_xattr(name: Name) -> () = { let _ = name; Errno::EOPNOTSUPP.into() };
            call(body: Bytes) -> Bytes = { let _ = body; Errno::EOPNOTSUPP.into() };
        }
    };
}
pub(super) use for_each_method;

macro_rules! file {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty = $default:expr;)*) => {
        /// The methods of a [`Tree`], of one file and for one user. The defaults are those of a
        /// directory that nobody may change.
        #[allow(missing_docs)]
        pub trait File: 'static {
            /// The file itself, for those who know its type.
            fn as_any(&self) -> &dyn Any;

            /// What [`Clone`] would answer.
            fn to_handle(&self) -> Handle;

            fn walk(&self, names: &[Name]) -> Outcome<Vec<(Qid, Handle)>>;

            fn open(&self, flags: u32) -> Outcome<Opened<Handle>>;

            fn create(&self, name: Name, flags: u32, mode: u32, gid: u32) -> Outcome<Opened<Handle>> {
                let _ = (name, flags, mode, gid);
                Errno::EROFS.into()
            }

            fn read(&self, read: Read<'_>) -> Data {
                let _ = read;
                Errno::EISDIR.into()
            }

            fn write(&self, write: Write) -> Written {
                let _ = write;
                Errno::EISDIR.into()
            }

            fn link(&self, dir: &Handle, name: Name) -> Outcome<()> {
                let _ = (dir, name);
                Errno::EXDEV.into()
            }

            fn rename(&self, old: Name, to: &Handle, new: Name) -> Outcome<()> {
                let _ = (old, to, new);
                Errno::EXDEV.into()
            }

            fn rename_node(&self, to: &Handle, new: Name) -> Outcome<()> {
                let _ = (to, new);
                Errno::EXDEV.into()
            }

            $(fn $name(&self, $($arg: $type),*) -> Outcome<$answer> { $default })*

            /// The fid that held it is gone.
            fn clunk(self: Box<Self>) {}

            /// The same, as whoever held it is lost.
            fn cut(self: Box<Self>) {
                self.clunk();
            }
        }

        impl<T: Tree> File for Held<T> {
            fn as_any(&self) -> &dyn Any {
                self
            }

            fn to_handle(&self) -> Handle {
                let Held { at, node, path } = self;
                Handle::new(Held { at: at.clone(), node: node.clone(), path: *path })
            }

            fn walk(&self, names: &[Name]) -> Outcome<Vec<(Qid, Handle)>> {
                self.at.clone().walk(self.path, self.node.clone(), names)
            }

            fn open(&self, flags: u32) -> Outcome<Opened<Handle>> {
                let at = self.at.clone();
                let opened = self.at.tree.open(&self.at.user, &self.node, flags);
                opened.map(move |opened| at.opened(opened))
            }

            fn create(&self, name: Name, flags: u32, mode: u32, gid: u32) -> Outcome<Opened<Handle>> {
                let at = self.at.clone();
                let user = &self.at.user;
                let created = self.at.tree.create(user, &self.node, name, flags, mode, gid);
                created.map(move |opened| at.opened(opened))
            }

            fn read(&self, read: Read<'_>) -> Data {
                self.at.tree.read(&self.at.user, &self.node, read)
            }

            fn write(&self, write: Write) -> Written {
                self.at.tree.write(&self.at.user, &self.node, write)
            }

            fn link(&self, dir: &Handle, name: Name) -> Outcome<()> {
                let Some(dir) = self.sibling(dir) else { return Errno::EXDEV.into() };
                self.at.tree.link(&self.at.user, &self.node, dir, name)
            }

            fn rename(&self, old: Name, to: &Handle, new: Name) -> Outcome<()> {
                let Some(to) = self.sibling(to) else { return Errno::EXDEV.into() };
                self.at.tree.rename(&self.at.user, &self.node, old, to, new)
            }

            fn rename_node(&self, to: &Handle, new: Name) -> Outcome<()> {
                let Some(to) = self.sibling(to) else { return Errno::EXDEV.into() };
                self.at.tree.rename_node(&self.at.user, &self.node, to, new)
            }

            $(fn $name(&self, $($arg: $type),*) -> Outcome<$answer> {
                let answer = self.at.tree.$name(&self.at.user, &self.node, $($arg),*);
                renumbered(answer, self.at.salt)
            })*

            fn clunk(self: Box<Self>) {
                self.at.tree.clunk(&self.at.user, self.node);
            }

            fn cut(self: Box<Self>) {
                self.at.tree.cut(&self.at.user, self.node);
            }
        }
    };
}
for_each_method!(file);

/// Any file of a namespace.
pub struct Handle(pub(super) Box<dyn File>);

impl Handle {
    pub(super) fn new(file: impl File) -> Handle {
        Handle(Box::new(file))
    }

    pub(super) fn clunk(self) {
        self.0.clunk();
    }

    pub(super) fn cut(self) {
        self.0.cut();
    }
}

impl Clone for Handle {
    fn clone(&self) -> Handle {
        self.0.to_handle()
    }
}

impl Deref for Handle {
    type Target = dyn File;

    fn deref(&self) -> &dyn File {
        &*self.0
    }
}

/// A file of a part.
pub(super) struct Held<T: Tree> {
    pub at: Rc<Visit<T>>,
    pub node: T::Node,
    /// The part's own number of it.
    pub path: u64,
}

/// A part as one attach has entered it.
pub(super) struct Visit<T> {
    pub tree: Rc<T>,
    pub user: Rc<User>,
    /// The part's own number of its root.
    pub root: u64,
    /// The directory that it is bound in, if the client came that way.
    pub above: Option<(Qid, Handle)>,
    /// What the numbers of its files are scrambled with; 0 leaves them as they are.
    pub salt: u64,
}

impl<T: Tree> Visit<T> {
    /// One of its files, with the number that the namespace shows.
    pub fn file(self: &Rc<Self>, qid: Qid, node: T::Node) -> (Qid, Handle) {
        let held = Held { at: self.clone(), node, path: qid.path };
        (qid.renumber(self.salt), Handle::new(held))
    }

    fn opened(self: &Rc<Self>, opened: Opened<T::Node>) -> Opened<Handle> {
        let (qid, node) = self.file(opened.qid, opened.node);
        Opened { qid, node, blocking: opened.blocking }
    }

    /// Walks on from `node`, whose number is `path`, and steps out of the part where `..` leads there.
    fn walk(
        self: Rc<Self>,
        path: u64,
        node: T::Node,
        names: &[Name],
    ) -> Outcome<Vec<(Qid, Handle)>> {
        let [first, rest @ ..] = names else { return Ok(Vec::new()).into() };
        let is_up = |name: &Name| name.as_bytes() == b"..";
        if is_up(first) && path == self.root {
            let above = self.above.clone();
            let root = || {
                let qid = Qid { kind: self.tree.root_kind(), version: 0, path };
                self.file(qid, node)
            };
            return super::place::walk_on(Ok(above.unwrap_or_else(root)).into(), rest);
        }
        // To where a step up may lead out; most walks have none.
        let until = rest.iter().position(is_up).map_or(names.len(), |at| at + 1);
        let (now, then) = names.split_at(until);
        let (count, then) = (now.len(), then.to_vec());
        let steps = self.tree.walk(&self.user, &node, now);
        let visit = self.clone();
        let found = move |steps: Vec<(Qid, T::Node)>| {
            let last = steps.last().filter(|_| steps.len() == count).cloned();
            let file = |(qid, node)| visit.file(qid, node);
            (steps.into_iter().map(file).collect::<Vec<_>>(), last)
        };
        if then.is_empty() {
            return steps.map(move |steps| found(steps).0);
        }
        Outcome::later(async move {
            let (mut steps, last) = found(steps.wait().await?);
            let Some((qid, node)) = last else { return Ok(steps) };
            steps.extend(self.walk(qid.path, node, &then).wait().await.unwrap_or_default());
            Ok(steps)
        })
    }
}

impl<T: Tree> Held<T> {
    /// Another file, if it is one of the same part.
    fn sibling<'a>(&self, other: &'a Handle) -> Option<&'a T::Node> {
        let other = other.as_any().downcast_ref::<Held<T>>()?;
        Rc::ptr_eq(&self.at.tree, &other.at.tree).then_some(&other.node)
    }
}

/// Answers that hold numbers of files.
pub(super) trait Renumber: Sized + 'static {
    fn renumber(self, salt: u64) -> Self {
        let _ = salt;
        self
    }
}

impl Renumber for Qid {
    fn renumber(self, salt: u64) -> Qid {
        Qid { path: number(self.path, salt), ..self }
    }
}

impl Renumber for Attr {
    fn renumber(self, salt: u64) -> Attr {
        Attr { qid: self.qid.renumber(salt), ..self }
    }
}

impl Renumber for Vec<Entry> {
    fn renumber(mut self, salt: u64) -> Vec<Entry> {
        self.iter_mut().for_each(|entry| entry.qid = entry.qid.renumber(salt));
        self
    }
}

macro_rules! plain {
    ($($type:ty),*) => { $(impl Renumber for $type {})* };
}
plain!((), u32, Bytes, Name, Vec<Name>, Statfs, Lock, LockStatus);

fn renumbered<A: Renumber>(answer: Outcome<A>, salt: u64) -> Outcome<A> {
    match salt {
        0 => answer,
        salt => answer.map(move |answer| answer.renumber(salt)),
    }
}

/// One number for each, so that those of one part stay different from each other (the finalizer of
/// SplitMix64).
pub(super) fn number(path: u64, salt: u64) -> u64 {
    if salt == 0 {
        return path;
    }
    let mut mixed = path ^ salt;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
