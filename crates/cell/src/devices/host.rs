//! `#U` and `#R`: files of the host. `#U` maps them; what is changed through `#R` is seen by all who use `#R`, and never written to
//! the disk. Only who runs the workers, and root, may use them.

use super::memory::map_call;
use super::{Host, Lines, Region, qid};
use covey_ninep::message::Qid;
use covey_ninep::tree::{
    Attach, Attr, Bell, Data, Entry, Errno, O_TRUNC, Opened, Outcome, Read, Removal, Result,
    S_IFDIR, S_IFMT, S_IFREG, SetAttr, Tree, User, Write, Written, walk_by,
};
use covey_wire::{Bytes, Name};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::{Rc, Weak};

/// What becomes of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `#U`: they are the file's.
    Mapped,
    /// `#R`: they stay in memory.
    Private,
}

/// Either device.
pub struct HostFiles(Rc<Files>);

struct Files {
    host: Rc<dyn Host>,
    lines: Rc<dyn Lines>,
    kind: Kind,
    /// Files that are open, by their number and whether they may be written.
    open: RefCell<HashMap<(u64, bool), Weak<Region>>>,
    /// What was read in for `#R`, by path.
    private: RefCell<HashMap<Rc<str>, Rc<Region>>>,
    /// What is read in now, by somebody for all who want it.
    loading: RefCell<HashSet<Rc<str>>>,
    loaded: Bell,
}

/// The right to read a file in for `#R`. Dropped, others may.
struct Loading {
    files: Rc<Files>,
    path: Rc<str>,
}

impl Loading {
    fn begin(files: &Rc<Files>, path: &Rc<str>) -> Option<Loading> {
        let is_first = files.loading.borrow_mut().insert(path.clone());
        is_first.then(|| Loading { files: files.clone(), path: path.clone() })
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.files.loading.borrow_mut().remove(&self.path);
        self.files.loaded.ring();
    }
}

/// A file by its path, and once it is open by its bytes.
#[derive(Clone)]
pub struct Node {
    path: Rc<str>,
    region: Option<Rc<Region>>,
}

impl Node {
    fn region(&self) -> Result<&Region> {
        self.region.as_deref().ok_or(Errno::EISDIR.into())
    }
}

impl HostFiles {
    /// The host's files, from its root on.
    pub fn new(host: Rc<dyn Host>, lines: Rc<dyn Lines>, kind: Kind) -> HostFiles {
        let (open, private, loading) = Default::default();
        let loaded = Bell::default();
        HostFiles(Rc::new(Files { host, lines, kind, open, private, loading, loaded }))
    }
}

impl Files {
    fn attr_of(&self, path: &str) -> Result<Attr> {
        let attr = self.host.attr(path)?;
        let size = self.private.borrow().get(path).map(|region| region.size());
        Ok(Attr { size: size.unwrap_or(attr.size), ..attr })
    }

    fn step(&self, from: &Node, name: &Name) -> Result<(Qid, Node)> {
        let name = std::str::from_utf8(name.as_bytes()).map_err(|_| Errno::ENOENT)?;
        let path = match name {
            ".." => from.path.rsplit_once('/').map_or("", |(above, _)| above).to_owned(),
            name => format!("{}/{name}", from.path),
        };
        Ok((qid(&self.attr_of(&path)?), Node { path: path.into(), region: None }))
    }

    /// The bytes of a file, which those of `#R` have when they have been read in.
    fn region(self: &Rc<Files>, path: &Rc<str>, may_write: bool) -> Outcome<Rc<Region>> {
        if self.kind == Kind::Mapped {
            return self.mapped(path, may_write).into();
        }
        if let Some(region) = self.private.borrow().get(path) {
            return Ok(region.clone()).into();
        }
        Outcome::later(self.clone().read_in(path.clone()))
    }

    fn mapped(&self, path: &str, may_write: bool) -> Result<Rc<Region>> {
        // Asked each time: what somebody has open another one may not open any more.
        let backing = self.host.open(path, may_write)?;
        let key = (backing.number(), may_write);
        if let Some(region) = self.open.borrow().get(&key).and_then(Weak::upgrade) {
            region.refresh()?;
            return Ok(region);
        }
        let region = Rc::new(Region::new(backing, self.lines.clone()));
        let mut open = self.open.borrow_mut();
        open.retain(|_, region| region.strong_count() > 0);
        open.insert(key, Rc::downgrade(&region));
        Ok(region)
    }

    /// Changes a file's size where it may be open for reading as well as for writing, which are two regions.
    fn changed(&self, region: &Rc<Region>, act: impl FnOnce(&Region) -> Result<()>) -> Result<()> {
        match self.beside(region) {
            Some(other) => other.while_changed(|| act(region)),
            None => act(region),
        }
    }

    /// The same file as it is open the other way.
    fn beside(&self, region: &Rc<Region>) -> Option<Rc<Region>> {
        let open = self.open.borrow();
        let is_it = |other: &Weak<Region>| std::ptr::eq(other.as_ptr(), Rc::as_ptr(region));
        let (&(path, may_write), _) = open.iter().find(|(_, other)| is_it(other))?;
        open.get(&(path, !may_write))?.upgrade()
    }

    async fn read_in(self: Rc<Files>, path: Rc<str>) -> Result<Rc<Region>> {
        loop {
            if let Some(region) = self.private.borrow().get(&path) {
                return Ok(region.clone());
            }
            if let Some(_loading) = Loading::begin(&self, &path) {
                let backing = self.host.private(&path).wait().await?;
                let region = Rc::new(Region::new(backing, self.lines.clone()));
                self.private.borrow_mut().insert(path.clone(), region.clone());
                return Ok(region);
            }
            let is_over = || (!self.loading.borrow().contains(&path)).then_some(());
            self.loaded.wait(is_over).await;
        }
    }

    fn opened(self: &Rc<Files>, path: &Rc<str>, flags: u32) -> Outcome<Opened<Node>> {
        let attr = match self.attr_of(path) {
            Ok(attr) => attr,
            Err(error) => return Err(error).into(),
        };
        let (path, qid, blocking) = (path.clone(), attr.qid, false);
        match attr.mode & S_IFMT {
            S_IFDIR => Ok(Opened { qid, node: Node { path, region: None }, blocking }).into(),
            S_IFREG => {
                let truncates = flags & O_TRUNC != 0;
                let region = self.region(&path, flags & 3 != 0 || truncates);
                let files = self.clone();
                region.and_then(move |region| {
                    if truncates {
                        files.changed(&region, |region| region.resize(0))?;
                    }
                    Ok(Opened { qid, node: Node { path, region: Some(region) }, blocking })
                })
            }
            _ => Err(Errno::because(Errno::EPERM, "only plain files and directories are opened"))
                .into(),
        }
    }
}

impl Tree for HostFiles {
    type Node = Node;

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, Node)> {
        Errno::EACCES.into()
    }

    fn enter(&self, user: &User, _: Attach) -> Outcome<(User, Qid, Node)> {
        Outcome::now(|| {
            if user.uid != 0 && user.uid != self.0.host.owner().0 {
                let what = format!("user {} does not run these workers", user.uid);
                return Err(Errno::because(Errno::EACCES, what));
            }
            let root = Node { path: "".into(), region: None };
            Ok((user.clone(), qid(&self.0.attr_of("")?), root))
        })
    }

    fn walk(&self, _: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        walk_by(from, names, |at, name| self.0.step(at, name))
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        Outcome::now(|| {
            let attr = self.0.attr_of(&node.path)?;
            let size = node.region.as_ref().map_or(attr.size, |region| region.size());
            Ok(Attr { size, ..attr })
        })
    }

    fn setattr(&self, _: &Rc<User>, node: &Node, set: SetAttr) -> Outcome<()> {
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            return Errno::EPERM.into();
        }
        let Some(size) = set.size else { return Ok(()).into() };
        let files = self.0.clone();
        let resize = move |region: &Rc<Region>| files.changed(region, |region| region.resize(size));
        match &node.region {
            Some(region) => resize(region).into(),
            None => self.0.region(&node.path, true).and_then(move |region| resize(&region)),
        }
    }

    fn open(&self, _: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        self.0.opened(&node.path, flags)
    }

    fn create(
        &self,
        _: &Rc<User>,
        dir: &Node,
        name: Name,
        flags: u32,
        mode: u32,
        _: u32,
    ) -> Outcome<Opened<Node>> {
        if self.0.kind == Kind::Private {
            let what = "#R changes files and makes none; hint: #r does";
            return Err(Errno::because(Errno::EROFS, what)).into();
        }
        let path: Rc<str> = match path_of(dir, &name) {
            Ok(path) => path.into(),
            Err(error) => return Err(error).into(),
        };
        match self.0.host.make(&path, mode & 0o777) {
            Ok(()) => self.0.opened(&path, flags),
            Err(error) => Err(error).into(),
        }
    }

    fn read(&self, _: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        node.region().map_or_else(Data::Failed, |region| region.read(read))
    }

    fn write(&self, _: &Rc<User>, node: &Node, write: Write) -> Written {
        write.received(|at, data| {
            Outcome::now(|| {
                let region = node.region.as_ref().ok_or(Errno::EISDIR)?;
                if at.saturating_add(data.len() as u64) <= region.size() {
                    region.write(at, &data)?;
                } else {
                    self.0.changed(region, |region| region.write(at, &data))?;
                }
                Ok(data.len() as u32)
            })
        })
    }

    fn readdir(&self, _: &Rc<User>, node: &Node, after: u64, max: u32) -> Outcome<Vec<Entry>> {
        Outcome::now(|| {
            let names = self.0.host.list(&node.path)?;
            let dots = [".", ".."].map(Name::from);
            let (mut entries, mut left) = (Vec::new(), max as usize);
            let numbered = dots.into_iter().chain(names).zip(1..);
            for (name, cookie) in numbered.skip_while(|(_, cookie)| *cookie <= after) {
                let Some(rest) = left.checked_sub(24 + name.len()) else { break };
                let qid = match name.as_bytes() {
                    b"." | b".." => qid(&self.0.attr_of(&node.path)?),
                    // One that went meanwhile, or that leads nowhere.
                    _ => match self.0.step(node, &name) {
                        Ok((qid, _)) => qid,
                        Err(_) => continue,
                    },
                };
                left = rest;
                let kind = if qid.kind & Qid::DIR != 0 { DT_DIR } else { DT_REG };
                entries.push(Entry { qid, cookie, kind, name });
            }
            Ok(entries)
        })
    }

    fn unlink(&self, _: &Rc<User>, dir: &Node, name: Name, what: Removal) -> Outcome<()> {
        Outcome::now(|| {
            if self.0.kind == Kind::Private || what.is_dir() {
                return Err(Errno::EROFS.into());
            }
            self.0.host.remove(&path_of(dir, &name)?)
        })
    }

    fn fsync(&self, _: &Rc<User>, node: &Node, _: bool) -> Outcome<()> {
        node.region().and_then(Region::sync).into()
    }

    fn call(&self, _: &Rc<User>, node: &Node, body: Bytes) -> Outcome<Bytes> {
        Outcome::now(|| node.region()?.map(&*self.0.host, map_call(&body)?))
    }
}

/// A name that is no text is nobody's here: another one must not stand for it.
fn path_of(dir: &Node, name: &Name) -> Result<String> {
    let name = std::str::from_utf8(name.as_bytes()).map_err(|_| Errno::ENOENT)?;
    Ok(format!("{}/{name}", dir.path))
}

const DT_DIR: u8 = 4;
const DT_REG: u8 = 8;
