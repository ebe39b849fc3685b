//! Volumes in a file of the cluster's own file system: thin, striped over its I/O servers, reached from any node.
//!
//! One node at a time serves such a volume: it holds a lock on the whole file, which the metadata server takes away when the
//! node is lost for longer than its grace. What the unit saves is kept in an attribute of the file, so that whoever
//! serves it next knows the reservations.

use super::store::{RUNS_MAX, begin, tile, whole};
use covey_iscsi::store::{Answer, Failure, Hold, Reply, Request, Store};
use covey_ninep::tree::{Errno, SetAttr};
use covey_stripe::client::{File, Fs};
use covey_stripe::ops::{Caller, Id, ROOT, RangeLock};
use covey_wire::{Bytes, Name};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Handle;

/// A file of the file system as a store.
pub struct StripedStore {
    shared: Arc<Shared>,
    runtime: Handle,
}

struct Shared {
    fs: Fs,
    file: File,
    id: Id,
    who: Caller,
    bytes: AtomicU64,
    lock: RangeLock,
    runtime: Handle,
}

type Result<T> = std::result::Result<T, Errno>;

/// Makes a file of `bytes`, with no place on any server. EEXIST where there is one.
pub async fn make(fs: &Fs, who: &Caller, path: &str, bytes: u64) -> Result<()> {
    make_directories(fs, who, path).await?;
    let (parent, name) = parent_of(fs, who, path).await?;
    let (inode, file) = fs.create(who, parent, &name, 0o600, true, 6).await?;
    fs.setattr(who, inode.id, SetAttr { size: Some(bytes), ..SetAttr::default() }).await?;
    file.fsync().await?;
    fs.sync(parent).await
}

/// Makes the directories on the way that are not there, for the node's user only.
async fn make_directories(fs: &Fs, who: &Caller, path: &str) -> Result<()> {
    const DIRECTORY: u32 = 0o040_700;
    let mut names = names_of(path);
    names.pop();
    let mut parent = ROOT;
    for name in names {
        let made = fs.make(who, parent, &name, DIRECTORY, 0, Name::EMPTY).await;
        parent = match made {
            Ok(inode) => {
                fs.sync(parent).await?;
                inode.id
            }
            Err(error) if error.code == Errno::EEXIST => fs.lookup(who, parent, &name).await?.id,
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

/// Removes the file.
pub async fn remove(fs: &Fs, who: &Caller, path: &str) -> Result<()> {
    let (parent, name) = parent_of(fs, who, path).await?;
    fs.unlink(who, parent, &name, false).await
}

/// A copy with the holes that it has; EEXIST where there is a file already.
pub async fn copy(fs: &Fs, who: &Caller, from: &str, to: &str) -> Result<()> {
    let (parent, name) = parent_of(fs, who, from).await?;
    let source = fs.lookup(who, parent, &name).await?;
    make(fs, who, to, source.size).await?;
    let (parent, name) = parent_of(fs, who, to).await?;
    let copy = fs.lookup(who, parent, &name).await?;
    let (from, to) = (fs.open(who, source.id, 4).await?, fs.open(who, copy.id, 6).await?);
    let mut at = 0;
    while at < source.size {
        match from.copy(at, &to, at, source.size - at).await? {
            0 => break,
            copied => at += copied,
        }
    }
    to.fsync().await
}

async fn parent_of(fs: &Fs, who: &Caller, path: &str) -> Result<(Id, Name)> {
    let mut names: Vec<Name> = names_of(path);
    let name = names.pop().ok_or(Errno::EINVAL)?;
    let inodes = fs.walk(who, ROOT, &names).await?;
    if inodes.len() < names.len() {
        return Err(Errno::because(Errno::ENOENT, format!("{path}: its directory is not there")));
    }
    Ok((inodes.last().map_or(ROOT, |inode| inode.id), name))
}

fn names_of(path: &str) -> Vec<Name> {
    path.split('/').filter(|name| !name.is_empty()).map(Name::from).collect()
}

impl StripedStore {
    /// Opens the file at `path` and takes it for this node. EBUSY where another node has it.
    pub async fn open(fs: Fs, who: Caller, path: &str, runtime: Handle) -> Result<StripedStore> {
        let (parent, name) = parent_of(&fs, &who, path).await?;
        let inode = fs.lookup(&who, parent, &name).await?;
        let file = fs.open(&who, inode.id, 6).await?;
        let lock = RangeLock {
            exclusive: true,
            whole: true,
            start: 0,
            end: u64::MAX,
            owner: std::process::id().into(),
            pid: std::process::id(),
        };
        match fs.lock(inode.id, lock.clone(), false).await {
            Err(error) if error.code == Errno::EAGAIN => {
                return Err(Errno::because(
                    Errno::EBUSY,
                    "another node serves this volume; hint: `covey volume ls` shows which",
                ));
            }
            other => other?,
        }
        let bytes = AtomicU64::new(fs.stat(inode.id).await?.inode.size);
        let shared = Shared { fs, file, id: inode.id, who, bytes, lock, runtime: runtime.clone() };
        Ok(StripedStore { shared: Arc::new(shared), runtime })
    }

    /// What the unit saved last.
    pub async fn saved(&self) -> Result<String> {
        let shared = &self.shared;
        match shared.fs.getxattr(&shared.who, shared.id, &Name::from(SAVED)).await {
            Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Err(error) if error.code == Errno::ENODATA => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    /// A number that the file has as long as it lives.
    pub fn number(&self) -> Id {
        self.shared.id
    }

    /// Makes it longer or shorter.
    pub async fn resize(&self, bytes: u64) -> Result<()> {
        let shared = self.shared.clone();
        let change = SetAttr { size: Some(bytes), ..SetAttr::default() };
        shared.fs.setattr(&shared.who, shared.id, change).await?;
        shared.fs.sync(shared.id).await?;
        shared.bytes.store(bytes, Ordering::Release);
        Ok(())
    }
}

impl Store for StripedStore {
    fn ask(&self, request: Request, hold: Hold) -> Answer {
        let shared = self.shared.clone();
        begin(&self.runtime, hold, async move { shared.answer(request).await })
    }

    fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Acquire)
    }
}

impl Shared {
    async fn answer(&self, request: Request) -> Reply {
        match request {
            Request::Read { offset, bytes, .. } => {
                match self.file.read_at(offset, bytes as usize).await {
                    Ok(data) => whole(data, bytes),
                    Err(error) => failed(&error, Failure::Read),
                }
            }
            Request::Allocated { range } => match self.extents(range).await {
                Ok(runs) => Reply::Extents(runs),
                Err(error) => failed(&error, Failure::Read),
            },
            change => match self.change(change).await {
                Ok(()) => Reply::Done,
                Err(error) => failed(&error, Failure::Write),
            },
        }
    }

    async fn change(&self, request: Request) -> Result<()> {
        match request {
            Request::Write { offset, data, fua } => {
                self.file.write_at(offset, data).await?;
                if fua { self.file.fsync().await } else { Ok(()) }
            }
            Request::Flush => self.file.fsync().await,
            Request::Discard { range } => self.reshape(PUNCH, range).await,
            Request::Zero { range } => self.reshape(ZERO, range).await,
            Request::Fill { range, pattern } => self.fill(range, &pattern).await,
            Request::Save { state } => {
                let name = Name::from(SAVED);
                self.fs.setxattr(&self.who, self.id, &name, state, 0).await?;
                self.fs.sync(self.id).await
            }
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    async fn reshape(&self, mode: u32, range: Range<u64>) -> Result<()> {
        self.file.fallocate(&self.who, mode, range.start, range.end - range.start).await
    }

    async fn fill(&self, range: Range<u64>, pattern: &[u8]) -> Result<()> {
        let tile = Bytes::from(tile(pattern));
        let mut at = range.start;
        while at < range.end {
            let count = (range.end - at).min(tile.len() as u64);
            self.file.write_at(at, tile.slice(..count as usize).into()).await?;
            at += count;
        }
        Ok(())
    }

    async fn extents(&self, range: Range<u64>) -> Result<Vec<(u64, bool)>> {
        let mut runs = Vec::new();
        let mut at = range.start;
        while at < range.end && runs.len() < RUNS_MAX {
            let data = self.next(at, false, range.end).await?;
            if data > at {
                runs.push((data, false));
                at = data;
                continue;
            }
            // What lies with the metadata is never given back: zeros there are as good as nothing.
            let inline = INLINE_BYTES.min(range.end);
            if at < inline && self.is_zero(at, inline).await? {
                runs.push((inline, false));
                at = inline;
                continue;
            }
            at = self.next(at, true, range.end).await?.max(at + 1);
            runs.push((at, true));
        }
        Ok(runs)
    }

    async fn is_zero(&self, from: u64, to: u64) -> Result<bool> {
        let data = self.file.read_at(from, (to - from) as usize).await?;
        Ok(data.pieces().iter().all(|piece| piece.iter().all(|byte| *byte == 0)))
    }

    /// Where the next data (or hole) begins, `end` where there is none.
    async fn next(&self, offset: u64, hole: bool, end: u64) -> Result<u64> {
        match self.file.seek(offset, hole).await {
            Ok(found) => Ok(found.min(end)),
            Err(error) if error.code == Errno::ENXIO => Ok(end),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Shared {
    /// Another node may have it at once, not only when this one's session is over.
    fn drop(&mut self) {
        let (fs, id, lock) = (self.fs.clone(), self.id, self.lock.clone());
        self.runtime.spawn(async move { fs.unlock(id, lock).await });
    }
}

fn failed(error: &Errno, otherwise: Failure) -> Reply {
    tracing::warn!("a striped volume: {error}");
    Reply::Failed(match error.code {
        Errno::ENOSPC => Failure::Full,
        Errno::ESTALE => Failure::Unreachable,
        _ => otherwise,
    })
}

/// The attribute with what the unit saved.
const SAVED: &str = "user.covey.reservations";
/// How much of a file may lie with its metadata.
const INLINE_BYTES: u64 = 16 << 10;
/// fallocate(2): PUNCH_HOLE with KEEP_SIZE, ZERO_RANGE with KEEP_SIZE.
const PUNCH: u32 = 2 | 1;
const ZERO: u32 = 16 | 1;
