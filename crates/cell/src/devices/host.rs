//! `#U` and `#R`: files of the host. `#U` maps them; what is changed through `#R` is seen by all who use `#R`, and never written to
//! the disk. Only who runs the workers, and root, may use them.
//!
//! A file of the host may be slow: whoever asks for it waits, and no other worker does.

use super::lane::{Lane, Lanes};
use super::memory::map_call;
use super::{Access, Backing, Host, Lines, Region, qid};
use covey_ninep::message::Qid;
use covey_ninep::tree::{
    Attach, Attr, Bell, Data, Entry, Errno, O_TRUNC, Opened, Outcome, Read, Removal, Result,
    S_IFDIR, S_IFMT, S_IFREG, SetAttr, Tree, User, Write, Written,
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
    lanes: Rc<Lanes>,
    /// Files that are open, by their number and how.
    open: RefCell<HashMap<(u64, Access), Weak<Region>>>,
    /// What was read in for `#R`.
    private: RefCell<ReadIn>,
    /// What is read in now, by somebody for all who want it.
    loading: RefCell<HashSet<u64>>,
    loaded: Bell,
}

/// What was read in: a file is one by whatever path, and stays what it is by a path that leads elsewhere by now.
#[derive(Default)]
struct ReadIn {
    by_path: HashMap<Rc<str>, Rc<Region>>,
    by_number: HashMap<u64, Rc<Region>>,
}

impl ReadIn {
    /// The file that has this path, or had when it was opened, or has this number.
    fn find(&self, path: &str, number: u64) -> Option<&Rc<Region>> {
        self.by_path.get(path).or_else(|| self.by_number.get(&number))
    }
}

/// The right to read a file in for `#R`. Dropped, others may.
struct Loading {
    files: Rc<Files>,
    number: u64,
}

impl Loading {
    fn begin(files: &Rc<Files>, number: u64) -> Option<Loading> {
        let is_first = files.loading.borrow_mut().insert(number);
        is_first.then(|| Loading { files: files.clone(), number })
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.files.loading.borrow_mut().remove(&self.number);
        self.files.loaded.ring();
    }
}

/// A file by its path, and once it is open by its bytes.
#[derive(Clone)]
pub struct Node {
    path: Rc<str>,
    region: Option<Rc<Region>>,
    /// That of whoever has come for it.
    lane: Rc<Lane>,
}

impl Node {
    #[cfg(test)]
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn region(&self) -> Result<&Rc<Region>> {
        self.region.as_ref().ok_or(Errno::EISDIR.into())
    }

    /// Another one, for who has this one.
    fn at(&self, path: Rc<str>) -> Node {
        Node { path, region: None, lane: self.lane.clone() }
    }

    /// The path of a name below it, or above.
    fn step(&self, name: &Name) -> Result<Node> {
        if name.as_bytes() == b".." {
            return Ok(self.at(self.path.rsplit_once('/').map_or("", |(above, _)| above).into()));
        }
        Ok(self.at(path_of(self, name)?.into()))
    }
}

impl HostFiles {
    /// The host's files, from its root on. `lanes` are those of all such devices of the host.
    pub fn new(
        host: Rc<dyn Host>,
        lines: Rc<dyn Lines>,
        kind: Kind,
        lanes: Rc<Lanes>,
    ) -> HostFiles {
        let (open, private, loading) = Default::default();
        let loaded = Bell::default();
        HostFiles(Rc::new(Files { host, lines, kind, lanes, open, private, loading, loaded }))
    }

    /// Does what a visitor asks for, behind what the same one has asked for before.
    fn run<T: 'static, F: Future<Output = Result<T>> + 'static>(
        &self,
        node: &Node,
        work: impl FnOnce(Rc<Files>, Node) -> F + 'static,
    ) -> Outcome<T> {
        let (files, node) = (self.0.clone(), node.clone());
        node.lane.clone().run(move || Outcome::later(work(files, node)))
    }
}

impl Files {
    /// Attributes of files, with the size that they have here.
    async fn attrs(&self, paths: Vec<String>) -> Result<Vec<Result<Attr>>> {
        let mut attrs = self.host.attrs(paths.clone()).wait().await?;
        let private = self.private.borrow();
        for (path, attr) in paths.iter().zip(&mut attrs) {
            let Ok(attr) = attr else { continue };
            if let Some(region) = private.find(path, attr.qid.path) {
                attr.size = region.size();
            }
        }
        Ok(attrs)
    }

    async fn attr_of(&self, path: &str) -> Result<Attr> {
        let mut all = self.attrs(vec![path.to_owned()]).await?;
        all.pop().unwrap_or_else(|| Err(Errno::EIO.into()))
    }

    async fn walk(&self, from: Node, names: Vec<Name>) -> Result<Vec<(Qid, Node)>> {
        let (mut at, mut nodes, mut refusal) = (from, Vec::new(), Errno::from(Errno::ENOENT));
        for name in &names {
            match at.step(name) {
                Ok(next) => at = next,
                Err(error) => {
                    refusal = error;
                    break;
                }
            }
            nodes.push(at.clone());
        }
        let attrs = self.attrs(nodes.iter().map(|node| node.path.to_string()).collect()).await?;
        let mut steps = Vec::new();
        for (node, attr) in nodes.into_iter().zip(attrs) {
            match attr {
                Ok(attr) => steps.push((qid(&attr), node)),
                Err(error) if steps.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        if steps.is_empty() && !names.is_empty() { Err(refusal) } else { Ok(steps) }
    }

    /// The bytes of a file, which those of `#R` have when they have been read in.
    async fn region(
        self: &Rc<Files>,
        (path, number): (&Rc<str>, u64),
        access: Access,
    ) -> Result<Rc<Region>> {
        match self.kind {
            Kind::Mapped => self.mapped(path, access).await,
            Kind::Private => self.read_in(path, number).await,
        }
    }

    async fn mapped(&self, path: &str, access: Access) -> Result<Rc<Region>> {
        // Asked each time: what somebody has open another one may not open any more.
        let backing = self.host.open(path, access).wait().await?;
        let key = (backing.number(), backing.access());
        let known = self.open.borrow().get(&key).and_then(Weak::upgrade);
        if let Some(region) = known {
            region.refresh(&self.host, self.beside(&region)).await?;
            return Ok(region);
        }
        let region = self.add(key, backing);
        if region.is_changing() {
            region.refresh(&self.host, self.beside(&region)).await?;
        }
        Ok(region)
    }

    fn add(&self, key: (u64, Access), backing: Rc<dyn Backing>) -> Rc<Region> {
        let mut open = self.open.borrow_mut();
        open.retain(|_, region| region.strong_count() > 0);
        let other = others(&open, key).into_iter().next();
        let region = Region::new(backing, self.lines.clone(), other.as_ref());
        open.insert(key, Rc::downgrade(&region));
        region
    }

    /// The same file as it is open in other ways: who changes its size changes it there, too.
    fn beside(&self, region: &Rc<Region>) -> Vec<Rc<Region>> {
        let open = self.open.borrow();
        let is_it = |other: &Weak<Region>| std::ptr::eq(other.as_ptr(), Rc::as_ptr(region));
        let key = open.iter().find(|(_, other)| is_it(other)).map(|(key, _)| *key);
        key.map_or_else(Vec::new, |key| others(&open, key))
    }

    async fn read_in(self: &Rc<Files>, path: &Rc<str>, number: u64) -> Result<Rc<Region>> {
        loop {
            let known = self.private.borrow().find(path, number).cloned();
            if let Some(region) = known {
                self.private.borrow_mut().by_path.insert(path.clone(), region.clone());
                return Ok(region);
            }
            if let Some(_loading) = Loading::begin(self, number) {
                let backing = self.host.private(path).wait().await?;
                let number = backing.number();
                let region = Region::new(backing, self.lines.clone(), None);
                let mut private = self.private.borrow_mut();
                // It may have become another file on the way, which is known.
                let region = private.by_number.entry(number).or_insert(region).clone();
                private.by_path.insert(path.clone(), region.clone());
                return Ok(region);
            }
            let is_over = || (!self.loading.borrow().contains(&number)).then_some(());
            self.loaded.wait(is_over).await;
        }
    }

    async fn opened(self: Rc<Files>, node: Node, flags: u32) -> Result<Opened<Node>> {
        let attr = self.attr_of(&node.path).await?;
        let region = match attr.mode & S_IFMT {
            S_IFDIR => None,
            S_IFREG => {
                let file = (&node.path, attr.qid.path);
                let region = self.region(file, Access::of(flags)).await?;
                if flags & O_TRUNC != 0 {
                    self.resize_region(&region, 0).await?;
                }
                Some(region)
            }
            _ => {
                let what = "only plain files and directories are opened";
                return Err(Errno::because(Errno::EPERM, what));
            }
        };
        Ok(Opened { qid: attr.qid, node: Node { region, ..node }, blocking: false })
    }

    async fn resize(self: Rc<Files>, node: Node, size: u64) -> Result<()> {
        let region = match node.region {
            Some(region) => region,
            None => {
                let attr = self.attr_of(&node.path).await?;
                self.region((&node.path, attr.qid.path), Access::Write).await?
            }
        };
        self.resize_region(&region, size).await
    }

    async fn resize_region(&self, region: &Rc<Region>, size: u64) -> Result<()> {
        region.resize(&self.host, self.beside(region), size).wait().await
    }

    async fn write(self: Rc<Files>, node: Node, at: u64, data: Bytes) -> Result<u32> {
        let region = node.region()?;
        let count = data.len() as u32;
        match region.store(at, &data) {
            Some(stored) => {
                stored.wait().await?;
                if at.saturating_add(count.into()) > region.size() {
                    region.refresh(&self.host, self.beside(region)).await?;
                }
            }
            None => region.write(&self.host, self.beside(region), at, data).wait().await?,
        }
        Ok(count)
    }

    async fn list(self: Rc<Files>, node: Node, after: u64, max: u32) -> Result<Vec<Entry>> {
        let names = self.host.list(&node.path).wait().await?;
        let dots = [".", ".."].map(Name::from);
        let numbered = dots.into_iter().chain(names).zip(1..);
        let rest = numbered.skip_while(|(_, cookie)| *cookie <= after);
        let mut rest = rest.filter(|(name, _)| path_of(&node, name).is_ok()).peekable();
        let (mut entries, mut left) = (Vec::new(), max as usize);
        loop {
            let (mut page, mut room) = (Vec::new(), left);
            while let Some(next) = rest.next_if(|(name, _)| 24 + name.len() <= room) {
                room -= 24 + next.0.len();
                page.push(next);
            }
            if page.is_empty() {
                return Ok(entries);
            }
            let path = |(name, _): &(Name, u64)| match name.as_bytes() {
                b"." | b".." => Ok(node.path.to_string()),
                _ => path_of(&node, name),
            };
            let paths = page.iter().map(path).collect::<Result<Vec<String>>>()?;
            for ((name, cookie), attr) in page.into_iter().zip(self.attrs(paths).await?) {
                // One that went meanwhile, or that leads nowhere.
                let Ok(attr) = attr else { continue };
                left -= 24 + name.len();
                let qid = qid(&attr);
                let kind = if qid.kind & Qid::DIR != 0 { DT_DIR } else { DT_REG };
                entries.push(Entry { qid, cookie, kind, name });
            }
        }
    }
}

impl Tree for HostFiles {
    type Node = Node;

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, Node)> {
        Errno::EACCES.into()
    }

    fn enter(&self, user: &User, attach: Attach) -> Outcome<(User, Qid, Node)> {
        if user.uid != 0 && user.uid != self.0.host.owner().0 {
            let what = format!("user {} does not run these workers", user.uid);
            return Err(Errno::because(Errno::EACCES, what)).into();
        }
        let (lane, user) = (self.0.lanes.of(&attach.peer.name), user.clone());
        let root = Node { path: "".into(), region: None, lane };
        self.run(&root, async move |files, root| Ok((user, qid(&files.attr_of("").await?), root)))
    }

    fn walk(&self, _: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        let names = names.to_vec();
        self.run(from, async move |files, from| files.walk(from, names).await)
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        self.run(node, async |files, node| {
            let attr = files.attr_of(&node.path).await?;
            let size = node.region.as_ref().map_or(attr.size, |region| region.size());
            Ok(Attr { size, ..attr })
        })
    }

    fn setattr(&self, _: &Rc<User>, node: &Node, set: SetAttr) -> Outcome<()> {
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            return Errno::EPERM.into();
        }
        let Some(size) = set.size else { return Ok(()).into() };
        self.run(node, move |files, node| files.resize(node, size))
    }

    fn open(&self, _: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        self.run(node, move |files, node| files.opened(node, flags))
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
        self.run(dir, async move |files, dir| {
            let node = dir.at(path_of(&dir, &name)?.into());
            files.host.make(&node.path, mode & 0o777).wait().await?;
            files.opened(node, flags).await
        })
    }

    fn read(&self, _: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        let region = match node.region() {
            Ok(region) => region.clone(),
            Err(error) => return Data::Failed(error),
        };
        let (at, count) = (read.offset, read.count);
        node.lane.run(move || region.fetch(at, count)).into()
    }

    fn write(&self, _: &Rc<User>, node: &Node, write: Write) -> Written {
        write.received(|at, data| self.run(node, move |files, node| files.write(node, at, data)))
    }

    fn readdir(&self, _: &Rc<User>, node: &Node, after: u64, max: u32) -> Outcome<Vec<Entry>> {
        self.run(node, move |files, node| files.list(node, after, max))
    }

    fn unlink(&self, _: &Rc<User>, dir: &Node, name: Name, what: Removal) -> Outcome<()> {
        if self.0.kind == Kind::Private || what.is_dir() {
            return Errno::EROFS.into();
        }
        self.run(dir, async move |files, dir| {
            files.host.remove(&path_of(&dir, &name)?).wait().await
        })
    }

    fn fsync(&self, _: &Rc<User>, node: &Node, _: bool) -> Outcome<()> {
        self.run(node, async |_, node| node.region()?.sync().wait().await)
    }

    fn call(&self, _: &Rc<User>, node: &Node, body: Bytes) -> Outcome<Bytes> {
        match (map_call(&body), node.region()) {
            (Ok(worker), Ok(region)) => region.map(&self.0.host, worker),
            (Err(error), _) | (_, Err(error)) => Outcome::Now(Err(error)),
        }
    }
}

/// The file of a key as it is open in other ways.
fn others(open: &HashMap<(u64, Access), Weak<Region>>, key: (u64, Access)) -> Vec<Rc<Region>> {
    let all = [Access::Read, Access::Write, Access::Both].into_iter();
    let ways = all.filter(|access| *access != key.1);
    ways.filter_map(|access| open.get(&(key.0, access))?.upgrade()).collect()
}

/// A name that is no text is nobody's here: another one must not stand for it.
fn path_of(dir: &Node, name: &Name) -> Result<String> {
    let name = std::str::from_utf8(name.as_bytes()).map_err(|_| Errno::ENOENT)?;
    Ok(format!("{}/{name}", dir.path))
}

const DT_DIR: u8 = 4;
const DT_REG: u8 = 8;
