//! A file system in memory, as simple as can be: what the mount is tried over.

use covey_mount::Files;
use covey_ninep::tree::{Errno, Removal, Result, SetAttr, SetTime};
use covey_stripe::client::{Listing, Page, Seek, Space, Stat, Taken, fallocate};
use covey_stripe::ops::{Caller, DirEntry, Id, Inode, RangeLock, nanos_of, rename};
use covey_wire::{Bytes, Name, Payload};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;

/// The file system; clones share it.
#[derive(Clone, Default)]
pub struct Model {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    locks_changed: Notify,
}

/// What is there, and what was asked.
pub struct State {
    nodes: HashMap<Id, Node>,
    last_id: Id,
    last_cookie: u64,
    locks: Vec<(Id, RangeLock)>,
    /// Files whose data is on a server that is gone.
    pub stuck: HashSet<Id>,
    /// Requests that wait for a lock or for a stuck file at this moment.
    pub waiting: usize,
    /// Bytes of each READ.
    pub reads: Vec<usize>,
    /// Bytes of each WRITE.
    pub writes: Vec<usize>,
    /// Number of Appends.
    pub appends: usize,
    /// Number of questions for attributes, lookups not counted.
    pub stats: usize,
    /// Number of Fsyncs.
    pub fsyncs: usize,
    /// The server takes 0.1 s to take a lock back.
    pub slow_unlocks: bool,
    /// Number of Flushes.
    pub flushes: usize,
    /// Bytes copied by COPY_FILE_RANGE.
    pub copied: u64,
    /// Number of pages of listings with attributes.
    pub listed_with_attributes: usize,
}

struct Node {
    inode: Inode,
    data: Vec<u8>,
    entries: BTreeMap<u64, (Name, Id)>,
    names: HashMap<Name, u64>,
    opens: usize,
    xattrs: BTreeMap<Name, Bytes>,
}

impl Default for State {
    fn default() -> Self {
        let mut state = State {
            nodes: HashMap::new(),
            last_id: 0,
            last_cookie: 2,
            locks: Vec::new(),
            stuck: HashSet::new(),
            waiting: 0,
            reads: Vec::new(),
            writes: Vec::new(),
            appends: 0,
            stats: 0,
            fsyncs: 0,
            slow_unlocks: false,
            flushes: 0,
            copied: 0,
            listed_with_attributes: 0,
        };
        let root = state.add(&Caller::default(), S_IFDIR | 0o755, 0, Name::EMPTY);
        state.node(root).expect("the root").inode.parent = root;
        state
    }
}

/// An open file: the last clone dropped closes it.
#[derive(Clone)]
pub struct ModelFile(Arc<Open>);

struct Open {
    id: Id,
    model: Model,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.model.state();
        if let Ok(node) = state.node(self.id) {
            node.opens -= 1;
        }
        state.reclaim(self.id);
    }
}

/// Counts a wait while it lasts, even when it is given up.
struct Waiting(Model);

impl Waiting {
    fn begin(model: &Model) -> Self {
        model.state().waiting += 1;
        Waiting(model.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl State {
    fn node(&mut self, id: Id) -> Result<&mut Node> {
        self.nodes.get_mut(&id).ok_or_else(|| Errno::ESTALE.into())
    }

    /// Of a file that is still there, under whatever name.
    pub fn id_of(&self, name: &str) -> Id {
        let root = &self.nodes[&1];
        root.entries[&root.names[&Name::from(name)]].1
    }

    /// How many files exist, the root and unlinked ones included.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Writes as another mount would: the kernel here does not know.
    pub fn write_elsewhere(&mut self, id: Id, offset: u64, data: &[u8]) {
        self.write(id, offset, data).expect("the file is there");
    }

    /// Whether nobody has the file open.
    pub fn is_closed(&self, name: &str) -> bool {
        self.nodes[&self.id_of(name)].opens == 0
    }

    /// Whether nobody has any file open.
    pub fn is_all_closed(&self) -> bool {
        self.nodes.values().all(|node| node.inode.mode & S_IFMT == S_IFDIR || node.opens == 0)
    }

    /// How many locks are held.
    pub fn lock_count(&self) -> usize {
        self.locks.len()
    }

    fn child(&mut self, parent: Id, name: &Name) -> Result<Id> {
        let node = self.node(parent)?;
        if node.inode.mode & S_IFMT != S_IFDIR {
            return Err(Errno::ENOTDIR.into());
        }
        match name.as_bytes() {
            b"." => Ok(parent),
            b".." => Ok(node.inode.parent),
            _ => node.names.get(name).map(|at| node.entries[at].1).ok_or(Errno::ENOENT.into()),
        }
    }

    fn add(&mut self, who: &Caller, mode: u32, rdev: u64, target: Name) -> Id {
        self.last_id += 1;
        let now = now();
        let inode = Inode {
            id: self.last_id,
            mode,
            uid: who.uid,
            gid: who.gid,
            nlink: if mode & S_IFMT == S_IFDIR { 2 } else { 1 },
            rdev,
            size: target.len() as u64,
            epoch: 0,
            version: 0,
            sparse: false,
            inline: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            target,
            striping: None,
            hint: None,
            parent: 0,
            has_xattrs: false,
            consistency: 0,
        };
        let node = Node {
            inode,
            data: Vec::new(),
            entries: BTreeMap::new(),
            names: HashMap::new(),
            opens: 0,
            xattrs: BTreeMap::new(),
        };
        self.nodes.insert(self.last_id, node);
        self.last_id
    }

    fn enter(&mut self, parent: Id, name: &Name, id: Id) -> Result<()> {
        self.last_cookie += 1;
        let cookie = self.last_cookie;
        let dir = self.node(parent)?;
        dir.entries.insert(cookie, (name.clone(), id));
        dir.names.insert(name.clone(), cookie);
        let node = self.node(id)?;
        if node.inode.mode & S_IFMT == S_IFDIR {
            node.inode.parent = parent;
            self.node(parent)?.inode.nlink += 1;
        }
        Ok(())
    }

    fn leave(&mut self, parent: Id, name: &Name) -> Result<Id> {
        let dir = self.node(parent)?;
        let cookie = dir.names.remove(name).ok_or(Errno::ENOENT)?;
        let (_, id) = dir.entries.remove(&cookie).expect("names and entries agree");
        if self.node(id)?.inode.mode & S_IFMT == S_IFDIR {
            self.node(parent)?.inode.nlink -= 1;
        }
        Ok(id)
    }

    fn forget_link(&mut self, id: Id) -> Result<()> {
        let inode = &mut self.node(id)?.inode;
        inode.nlink -= if inode.mode & S_IFMT == S_IFDIR { 2 } else { 1 };
        self.reclaim(id);
        Ok(())
    }

    fn reclaim(&mut self, id: Id) {
        let gone = |node: &Node| node.inode.nlink == 0 && node.opens == 0;
        if self.nodes.get(&id).is_some_and(gone) {
            self.nodes.remove(&id);
        }
    }

    fn conflict(&self, id: Id, lock: &RangeLock) -> Option<RangeLock> {
        let stands = |held: &RangeLock| {
            held.whole == lock.whole
                && held.owner != lock.owner
                && (held.exclusive || lock.exclusive)
                && held.start <= lock.end
                && lock.start <= held.end
        };
        self.locks.iter().find(|(file, held)| *file == id && stands(held)).map(|(_, h)| h.clone())
    }

    fn unlock(&mut self, id: Id, lock: &RangeLock) {
        let mut kept = Vec::new();
        for (file, held) in self.locks.drain(..) {
            let same = file == id && held.whole == lock.whole && held.owner == lock.owner;
            if !same || held.end < lock.start || lock.end < held.start {
                kept.push((file, held));
                continue;
            }
            if held.start < lock.start {
                kept.push((file, RangeLock { end: lock.start - 1, ..held.clone() }));
            }
            if held.end > lock.end {
                kept.push((file, RangeLock { start: lock.end + 1, ..held }));
            }
        }
        self.locks = kept;
    }

    fn write(&mut self, id: Id, offset: u64, data: &[u8]) -> Result<()> {
        let node = self.node(id)?;
        let (start, end) = (offset as usize, offset as usize + data.len());
        if node.data.len() < end {
            node.data.resize(end, 0);
        }
        node.data[start..end].copy_from_slice(data);
        node.inode.size = node.data.len() as u64;
        node.inode.mtime = now();
        Ok(())
    }

    fn stat(&mut self, id: Id) -> Result<Stat> {
        let inode = self.node(id)?.inode.clone();
        let blocks = inode.size.div_ceil(512);
        Ok(Stat::new(inode, blocks))
    }
}

impl Model {
    /// A look at the state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn open_file(&self, id: Id) -> Result<ModelFile> {
        self.state().node(id)?.opens += 1;
        Ok(ModelFile(Arc::new(Open { id, model: self.clone() })))
    }
}

impl Files for Model {
    type File = ModelFile;

    async fn lookup(&self, _: &Caller, parent: Id, name: &Name) -> Result<Inode> {
        match name.as_bytes() {
            b"panics" => panic!("as the test wants it"),
            b"panics later" => {
                tokio::task::yield_now().await;
                panic!("as the test wants it, after a wait");
            }
            _ => {}
        }
        let mut state = self.state();
        let id = state.child(parent, name)?;
        Ok(state.node(id)?.inode.clone())
    }

    async fn stat(&self, id: Id) -> Result<Stat> {
        let mut state = self.state();
        state.stats += 1;
        state.stat(id)
    }

    async fn setattr_open(&self, who: &Caller, id: Id, set: SetAttr) -> Result<Stat> {
        self.setattr(who, id, set).await
    }

    async fn setattr(&self, _: &Caller, id: Id, set: SetAttr) -> Result<Stat> {
        let mut state = self.state();
        let node = state.node(id)?;
        let inode = &mut node.inode;
        if let Some(mode) = set.mode {
            inode.mode = inode.mode & S_IFMT | mode;
        }
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        let time = |set: Option<SetTime>, old| match set {
            None => old,
            Some(SetTime::Now) => now(),
            Some(SetTime::To(time)) => nanos_of(time.sec.cast_signed(), time.nsec),
        };
        if let Some(size) = set.size {
            node.data.resize(size as usize, 0);
            inode.size = size;
            inode.mtime = now();
        }
        inode.atime = time(set.atime, inode.atime);
        inode.mtime = time(set.mtime, inode.mtime);
        inode.ctime = now();
        state.stat(id)
    }

    async fn create(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        mode: u32,
        taken: Taken,
        _access: u8,
    ) -> Result<(Inode, ModelFile)> {
        let mut state = self.state();
        let id = match state.child(parent, name) {
            Ok(_) if taken == Taken::Refuse => return Err(Errno::EEXIST.into()),
            Ok(id) => id,
            Err(_) => {
                let id = state.add(who, S_IFREG | mode, 0, Name::EMPTY);
                state.enter(parent, name, id)?;
                id
            }
        };
        let inode = state.node(id)?.inode.clone();
        drop(state);
        Ok((inode, self.open_file(id)?))
    }

    async fn make(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        mode: u32,
        rdev: u64,
        target: Name,
    ) -> Result<Inode> {
        let mut state = self.state();
        if state.child(parent, name).is_ok() {
            return Err(Errno::EEXIST.into());
        }
        let id = state.add(who, mode, rdev, target);
        state.enter(parent, name, id)?;
        Ok(state.node(id)?.inode.clone())
    }

    async fn open(&self, _: &Caller, id: Id, _access: u8) -> Result<ModelFile> {
        self.open_file(id)
    }

    async fn unlink(&self, _: &Caller, parent: Id, name: &Name, what: Removal) -> Result<()> {
        let mut state = self.state();
        let id = state.child(parent, name)?;
        let node = state.node(id)?;
        match (node.inode.mode & S_IFMT == S_IFDIR, what.is_dir()) {
            (true, false) => return Err(Errno::EISDIR.into()),
            (false, true) => return Err(Errno::ENOTDIR.into()),
            (true, true) if !node.entries.is_empty() => return Err(Errno::ENOTEMPTY.into()),
            _ => {}
        }
        state.leave(parent, name)?;
        state.forget_link(id)
    }

    async fn rename(
        &self,
        _: &Caller,
        parent: Id,
        name: &Name,
        to: Id,
        to_name: &Name,
        flags: u32,
    ) -> Result<()> {
        let mut state = self.state();
        let old = state.child(to, to_name).ok();
        if flags & rename::NOREPLACE != 0 && old.is_some() {
            return Err(Errno::EEXIST.into());
        }
        let id = state.leave(parent, name)?;
        if let Some(old) = old {
            state.leave(to, to_name)?;
            if flags & rename::EXCHANGE != 0 {
                state.enter(parent, name, old)?
            } else {
                state.forget_link(old)?
            }
        }
        state.enter(to, to_name, id)
    }

    async fn link(&self, _: &Caller, id: Id, parent: Id, name: &Name) -> Result<Inode> {
        let mut state = self.state();
        if state.child(parent, name).is_ok() {
            return Err(Errno::EEXIST.into());
        }
        state.enter(parent, name, id)?;
        let inode = &mut state.node(id)?.inode;
        inode.nlink += 1;
        Ok(inode.clone())
    }

    async fn readdir(
        &self,
        _: &Caller,
        id: Id,
        cookie: u64,
        limit: u64,
        bytes_max: u32,
        listing: Listing,
    ) -> Result<Page> {
        let plus = listing == Listing::Inodes;
        let mut state = self.state();
        state.listed_with_attributes += usize::from(plus);
        let limit = if limit == 0 { state.last_cookie } else { limit };
        let parent = state.node(id)?.inode.parent;
        let dots = [(1, Name::from("."), id), (2, Name::from(".."), parent)];
        let rest = state.node(id)?.entries.range(cookie + 1..=limit.max(cookie + 1));
        let rest = rest.map(|(&cookie, (name, id))| (cookie, name.clone(), *id));
        let all: Vec<_> = dots.into_iter().filter(|dot| dot.0 > cookie).chain(rest).collect();
        let mut page = Page { entries: Vec::new(), end: true, limit };
        let mut bytes = 0;
        for (cookie, name, id) in all.into_iter().filter(|entry| entry.0 <= limit) {
            bytes += 24 + name.len() + if plus { 128 } else { 0 };
            if bytes > bytes_max as usize {
                page.end = false;
                break;
            }
            let inode = state.node(id)?.inode.clone();
            let kind = (inode.mode >> 12) as u8;
            page.entries.push(DirEntry { id, kind, cookie, name, inode: plus.then_some(inode) });
        }
        Ok(page)
    }

    async fn tmpfile(
        &self,
        who: &Caller,
        _parent: Id,
        mode: u32,
        _access: u8,
    ) -> Result<(Inode, ModelFile)> {
        let mut state = self.state();
        let id = state.add(who, S_IFREG | mode, 0, Name::EMPTY);
        state.node(id)?.inode.nlink = 0;
        let inode = state.node(id)?.inode.clone();
        drop(state);
        Ok((inode, self.open_file(id)?))
    }

    async fn fallocate(
        &self,
        _: &Caller,
        file: &ModelFile,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let mut state = self.state();
        let node = state.node(file.0.id)?;
        let end = (offset + length) as usize;
        if mode & fallocate::KEEP_SIZE == 0 && node.data.len() < end {
            node.data.resize(end, 0);
            node.inode.size = end as u64;
        }
        if mode & (fallocate::PUNCH_HOLE | fallocate::ZERO_RANGE) != 0 {
            let (from, end) = (node.data.len().min(offset as usize), node.data.len().min(end));
            node.data[from..end].fill(0);
        }
        Ok(())
    }

    async fn copy(
        &self,
        from: &ModelFile,
        offset: u64,
        to: &ModelFile,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let data = self.read_at(from, offset, length as usize).await?;
        let count = data.len() as u64;
        self.write_at(to, to_offset, data).await?;
        self.state().copied += count;
        Ok(count)
    }

    async fn getxattr(&self, _: &Caller, id: Id, name: &Name) -> Result<Bytes> {
        let mut state = self.state();
        let value = state.node(id)?.xattrs.get(name).cloned();
        value.ok_or_else(|| Errno::ENODATA.into())
    }

    async fn listxattr(&self, _: &Caller, id: Id) -> Result<Vec<Name>> {
        Ok(self.state().node(id)?.xattrs.keys().cloned().collect())
    }

    async fn setxattr(
        &self,
        _: &Caller,
        id: Id,
        name: &Name,
        value: Bytes,
        _flags: u32,
    ) -> Result<()> {
        self.state().node(id)?.xattrs.insert(name.clone(), value);
        Ok(())
    }

    async fn removexattr(&self, _: &Caller, id: Id, name: &Name) -> Result<()> {
        let removed = self.state().node(id)?.xattrs.remove(name);
        removed.map(drop).ok_or_else(|| Errno::ENODATA.into())
    }

    async fn space(&self) -> Result<Space> {
        let files = self.state().count() as u64;
        Ok(Space {
            bytes_total: 1 << 40,
            bytes_free: 1 << 39,
            bytes_available: 1 << 38,
            files,
            servers_missing: Vec::new(),
        })
    }

    async fn sync(&self, _: Id) -> Result<()> {
        self.state().fsyncs += 1;
        Ok(())
    }

    async fn lock(&self, id: Id, lock: RangeLock, wait: bool) -> Result<()> {
        let mut waiting = None;
        loop {
            let mut changed = std::pin::pin!(self.shared.locks_changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.state();
                if state.conflict(id, &lock).is_none() {
                    state.unlock(id, &lock);
                    state.locks.push((id, lock));
                    break;
                }
            }
            if !wait {
                return Err(Errno::EAGAIN.into());
            }
            waiting.get_or_insert_with(|| Waiting::begin(self));
            changed.await;
        }
        Ok(())
    }

    async fn unlock(&self, id: Id, lock: RangeLock) -> Result<()> {
        let is_slow = self.state().slow_unlocks;
        if is_slow {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.state().unlock(id, &lock);
        self.shared.locks_changed.notify_waiters();
        Ok(())
    }

    async fn getlock(&self, id: Id, lock: RangeLock) -> Result<Option<RangeLock>> {
        Ok(self.state().conflict(id, &lock))
    }

    async fn read_at(&self, file: &ModelFile, offset: u64, count: usize) -> Result<Payload> {
        if self.state().stuck.contains(&file.0.id) {
            let _waiting = Waiting::begin(self);
            std::future::pending::<()>().await;
        }
        let mut state = self.state();
        state.reads.push(count);
        let data = &state.node(file.0.id)?.data;
        let start = data.len().min(offset as usize);
        let end = data.len().min(start + count);
        // In two pieces, as two servers would send it.
        let (one, two) = data[start..end].split_at((end - start) / 2);
        let pieces = vec![Bytes::copy_from_slice(one), Bytes::copy_from_slice(two)];
        Ok(Payload::gather(pieces))
    }

    async fn write_at(&self, file: &ModelFile, offset: u64, data: Payload) -> Result<()> {
        let mut state = self.state();
        state.writes.push(data.len());
        state.write(file.0.id, offset, &data.into_bytes())
    }

    async fn append(&self, file: &ModelFile, data: Payload) -> Result<u64> {
        let mut state = self.state();
        state.appends += 1;
        let offset = state.node(file.0.id)?.inode.size;
        state.write(file.0.id, offset, &data.into_bytes())?;
        Ok(offset)
    }

    async fn fsync(&self, _: &ModelFile) -> Result<()> {
        self.state().fsyncs += 1;
        Ok(())
    }

    async fn flush(&self, _: &ModelFile) -> Result<()> {
        self.state().flushes += 1;
        Ok(())
    }

    async fn seek(&self, file: &ModelFile, offset: u64, what: Seek) -> Result<u64> {
        let size = self.state().node(file.0.id)?.inode.size;
        match what {
            _ if offset >= size => Err(Errno::ENXIO.into()),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("a clock after 1970").as_nanos() as u64
}

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
