//! `#U` and `#R`: files of the host. `#U` maps them; what is changed through `#R` is seen by all who use `#R`, and never written to
//! the disk. Only who runs the workers, and root, may use them.
//!
//! A file of the host may be slow: whoever asks for it waits, and no other worker does.

use super::lane::{Lane, Lanes};
use super::memory::map_call;
use super::{Host, Lines, Region, qid};
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
    /// That of whoever has come for it.
    lane: Rc<Lane>,
}

impl Node {
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
            if let (Some(region), Ok(attr)) = (private.get(path.as_str()), attr) {
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
    async fn region(self: &Rc<Files>, path: &Rc<str>, may_write: bool) -> Result<Rc<Region>> {
        match self.kind {
            Kind::Mapped => self.mapped(path, may_write).await,
            Kind::Private => self.read_in(path).await,
        }
    }

    async fn mapped(&self, path: &str, may_write: bool) -> Result<Rc<Region>> {
        // Asked each time: what somebody has open another one may not open any more.
        let backing = self.host.open(path, may_write).wait().await?;
        let key = (backing.number(), may_write);
        let known = self.open.borrow().get(&key).and_then(Weak::upgrade);
        if let Some(region) = known {
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

    async fn read_in(self: &Rc<Files>, path: &Rc<str>) -> Result<Rc<Region>> {
        loop {
            if let Some(region) = self.private.borrow().get(path) {
                return Ok(region.clone());
            }
            if let Some(_loading) = Loading::begin(self, path) {
                let backing = self.host.private(path).wait().await?;
                let region = Rc::new(Region::new(backing, self.lines.clone()));
                self.private.borrow_mut().insert(path.clone(), region.clone());
                return Ok(region);
            }
            let is_over = || (!self.loading.borrow().contains(path)).then_some(());
            self.loaded.wait(is_over).await;
        }
    }

    async fn opened(self: Rc<Files>, node: Node, flags: u32) -> Result<Opened<Node>> {
        let attr = self.attr_of(&node.path).await?;
        let region = match attr.mode & S_IFMT {
            S_IFDIR => None,
            S_IFREG => {
                let truncates = flags & O_TRUNC != 0;
                let region = self.region(&node.path, flags & 3 != 0 || truncates).await?;
                if truncates {
                    self.changed(&region, |region| region.resize(0))?;
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
            None => self.region(&node.path, true).await?,
        };
        self.changed(&region, |region| region.resize(size))
    }

    async fn write(self: Rc<Files>, node: Node, at: u64, data: Bytes) -> Result<u32> {
        let region = node.region()?;
        let grows = at.saturating_add(data.len() as u64) > region.size();
        match region.store(at, &data) {
            Some(stored) => {
                stored.wait().await?;
                if grows {
                    self.changed(region, |region| region.refresh().map(drop))?;
                }
            }
            None if grows => self.changed(region, |region| region.write(at, &data))?,
            None => region.write(at, &data)?,
        }
        Ok(data.len() as u32)
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
