//! A namespace: names bound to trees, served as one tree.
//!
//! ```text
//!   bind("fs", ..)         /fs         one tree
//!   bind("time", ..)       /time       another; it knows nothing of its neighbours
//!   bind("n/io1", ..)      /n/io1      a tree imported from another server, see `import`
//!   union("all", ..) x 2   /all        two trees behind one name
//! ```
//!
//! A part is any [`Tree`], behind the one object-safe form of [`Part`]: to walk into it is to attach it,
//! so it decides for itself who may enter and as whom. The directories above are the namespace's own.
//! What always holds:
//!
//! - A file is used on behalf of the user whom its own part has admitted.
//! - `..` at the root of a part leads back to the directory that it is bound in, and stays at the root
//!   where the client attached the part itself.
//! - Links and renames from one part to another are refused with EXDEV.
//! - The numbers of files (`qid.path`) of different parts differ: those of a part bound with
//!   [`Namespace::bind`] are scrambled with the name of its place, which keeps them the same
//!   after a restart. [`Namespace::bind_plain`] leaves them as they are.

mod file;
mod part;
mod place;
mod union;

pub use file::{File, Handle};
pub use part::{Entrance, Part};

use crate::message::Qid;
use crate::tree::{
    Attach, Attr, Data, Entry, Errno, Lock, LockStatus, Make, Opened, Outcome, Read, Removal,
    Result, SetAttr, SetXattr, Statfs, Tree, User, View, Write, Written,
};
use covey_wire::{Bytes, Name};
use file::{for_each_method, number};
use place::{Bound, Dir, Guest, Place};
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;

/// What a namespace asks of the server that it belongs to.
pub trait Host: 'static {
    /// The user that an attach acts as, or a refusal. What is changed of the attach is what the parts are
    /// told.
    fn admit(&self, attach: &mut Attach) -> Result<User>;

    /// The path that an attach names. The default takes the name as it is.
    fn path(&self, aname: &Name) -> Result<String> {
        Ok(aname.lossy().into_owned())
    }

    /// The state of the file system, as the directories of the namespace report it.
    fn statfs(&self) -> Outcome<Statfs> {
        Ok(Statfs { bsize: 4096, namelen: 255, ..Statfs::default() }).into()
    }

    /// What 9P2000 calls a user.
    fn user_name(&self, uid: u32) -> Name {
        Name::from(uid.to_string())
    }

    /// What 9P2000 calls a group.
    fn group_name(&self, gid: u32) -> Name {
        Name::from(gid.to_string())
    }

    /// Finishes work that a lost connection has left; see [`Tree::detach`].
    fn detach(&self, work: Pin<Box<dyn Future<Output = ()>>>);
}

/// Names bound to trees.
pub struct Namespace {
    root: Rc<Dir>,
    host: Rc<dyn Host>,
    /// The number of the directory or place made last.
    number: Cell<u64>,
}

impl Namespace {
    /// An empty one.
    pub fn new(host: impl Host) -> Namespace {
        Namespace { root: Rc::new(Dir::new(0)), host: Rc::new(host), number: Cell::new(0) }
    }

    /// A directory of text and control files, to be bound somewhere: it lets everyone in who may enter
    /// where it is bound.
    pub fn folder() -> Namespace {
        Namespace::new(Open)
    }

    /// Binds `part` at `path`; directories on the way are made. EEXIST where something is bound
    /// already, ENOTDIR where `path` leads into a part.
    pub fn bind(&self, path: &str, part: Rc<dyn Part>) -> Result<()> {
        self.put(path, part, salt(path))
    }

    /// The same for a part whose files keep their numbers: at most one, or their numbers collide.
    pub fn bind_plain(&self, path: &str, part: Rc<dyn Part>) -> Result<()> {
        self.put(path, part, 0)
    }

    /// Puts `part` behind `path`, after what is there: a name is looked for in one after the other, and a
    /// listing has the names of all.
    pub fn union(&self, path: &str, part: Rc<dyn Part>) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        let bound = match dir.names.borrow().find(&name) {
            Ok(Bound::Dir(_)) => return Err(taken(path)),
            Ok(Bound::Parts(parts)) => Some(parts),
            Err(_) => None,
        };
        let Some(mut parts) = bound else { return self.bind(path, part) };
        // Members have places of their own, so that their numbers differ, too.
        let salt = salt(&format!("{path}\0{}", parts.members.len()));
        Rc::make_mut(&mut parts).members.push((part, salt));
        let mut names = dir.names.borrow_mut();
        names.remove(&name)?;
        names.insert(name, Bound::Parts(parts))
    }

    /// Takes away what is bound at `path`. Who has entered it keeps what it holds.
    pub fn unbind(&self, path: &str) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        dir.names.borrow_mut().remove(&name).map(drop)
    }

    fn put(&self, path: &str, part: Rc<dyn Part>, salt: u64) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        let parts = place::Parts { members: vec![(part, salt)], number: self.next_number() };
        let bound = Bound::Parts(Rc::new(parts));
        dir.names.borrow_mut().insert(name, bound).map_err(|_| taken(path))
    }

    /// The directory that `path`'s last name is in, made where it is not there.
    fn parent(&self, path: &str) -> Result<(Rc<Dir>, Name)> {
        let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let last = names.pop().ok_or_else(|| taken("the root"))?;
        if names.iter().chain([&last]).any(|name| matches!(*name, "." | "..")) {
            return Err(Errno::because(Errno::EINVAL, format!("{path} has a . or ..")));
        }
        let mut dir = self.root.clone();
        for name in names {
            let name = Name::from(name);
            let found = dir.names.borrow().find(&name);
            let next = match found {
                Ok(Bound::Dir(next)) => next,
                Ok(Bound::Parts(_)) => {
                    let what = format!("{path} lies inside another part");
                    return Err(Errno::because(Errno::ENOTDIR, what));
                }
                Err(_) => {
                    let next = Rc::new(Dir::new(self.next_number()));
                    dir.names.borrow_mut().insert(name, Bound::Dir(next.clone()))?;
                    next
                }
            };
            dir = next;
        }
        Ok((dir, last.into()))
    }

    fn next_number(&self) -> u64 {
        self.number.set(self.number.get() + 1);
        self.number.get()
    }

    /// Enters as `user`: at the root, or where the attach says.
    fn attach_as(&self, user: User, attach: Attach) -> Outcome<(User, Qid, Handle)> {
        let path = match self.host.path(&attach.aname) {
            Ok(path) => path,
            Err(error) => return Err(error).into(),
        };
        let names: Vec<Name> =
            path.split('/').filter(|name| !name.is_empty()).map(Name::from).collect();
        let uname = attach.uname.detached();
        let attach = Rc::new(Attach { aname: Name::EMPTY, uname, ..attach });
        let host = self.host.clone();
        let guest = Rc::new(Guest { user: Rc::new(user.clone()), attach, host });
        place::descend(Place::root(self.root.clone(), guest), user, names)
    }
}

macro_rules! namespace {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty = $default:expr;)*) => {
        impl Tree for Namespace {
            type Node = Handle;

            fn attach(&self, mut attach: Attach) -> Outcome<(User, Qid, Handle)> {
                match self.host.admit(&mut attach) {
                    Ok(user) => self.attach_as(user, attach),
                    Err(error) => Err(error).into(),
                }
            }

            fn enter(&self, user: &User, attach: Attach) -> Outcome<(User, Qid, Handle)> {
                self.attach_as(user.clone(), attach)
            }

            fn walk(
                &self,
                _: &Rc<User>,
                from: &Handle,
                names: &[Name],
            ) -> Outcome<Vec<(Qid, Handle)>> {
                from.walk(names)
            }

            fn open(&self, _: &Rc<User>, node: &Handle, flags: u32) -> Outcome<Opened<Handle>> {
                node.open(flags)
            }

            fn create(
                &self,
                _: &Rc<User>,
                dir: &Handle,
                name: Name,
                flags: u32,
                mode: u32,
                gid: u32,
            ) -> Outcome<Opened<Handle>> {
                dir.create(name, flags, mode, gid)
            }

            fn read(&self, _: &Rc<User>, node: &Handle, read: Read<'_>) -> Data {
                node.read(read)
            }

            fn write(&self, _: &Rc<User>, node: &Handle, write: Write) -> Written {
                node.write(write)
            }

            fn link(&self, _: &Rc<User>, node: &Handle, dir: &Handle, name: Name) -> Outcome<()> {
                node.link(dir, name)
            }

            fn rename(
                &self,
                _: &Rc<User>,
                from: &Handle,
                old: Name,
                to: &Handle,
                new: Name,
            ) -> Outcome<()> {
                from.rename(old, to, new)
            }

            fn rename_node(
                &self,
                _: &Rc<User>,
                node: &Handle,
                to: &Handle,
                new: Name,
            ) -> Outcome<()> {
                node.rename_node(to, new)
            }

            $(fn $name(&self, _: &Rc<User>, node: &Handle, $($arg: $type),*) -> Outcome<$answer> {
                node.$name($($arg),*)
            })*

            fn user_name(&self, uid: u32) -> Name {
                self.host.user_name(uid)
            }

            fn group_name(&self, gid: u32) -> Name {
                self.host.group_name(gid)
            }

            fn detach(&self, work: Pin<Box<dyn Future<Output = ()>>>) {
                self.host.detach(work);
            }

            fn clunk(&self, _: &Rc<User>, node: Handle) {
                node.clunk();
            }

            fn cut(&self, _: &Rc<User>, node: Handle) {
                node.cut();
            }
        }
    };
}
for_each_method!(namespace);

/// The host of a folder.
struct Open;

impl Host for Open {
    fn admit(&self, attach: &mut Attach) -> Result<User> {
        Ok(crate::text::claimed(attach))
    }

    fn detach(&self, work: Pin<Box<dyn Future<Output = ()>>>) {
        let mut work = work;
        let _ = work.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    }
}

fn taken(path: &str) -> Errno {
    Errno::because(Errno::EEXIST, format!("{path} is bound already"))
}

/// What the numbers of a part's files are scrambled with: never 0.
fn salt(path: &str) -> u64 {
    let path = path.trim_matches('/');
    path.bytes().fold(1, |salt, byte| number(salt ^ u64::from(byte), !0)).max(1)
}
