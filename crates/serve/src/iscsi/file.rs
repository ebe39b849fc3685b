//! A unit of a target as a file: the tree that is mounted where a volume is attached.
//!
//! The tree is one directory with one file, or that file alone. Reads and writes may begin and end anywhere: blocks that are
//! written in part are read before, while nobody else writes. A disk whose target could not be reached for its patience has
//! failed what waited; another one is connected behind it, and requests fail at once as long as there is none.

use super::disk::Disk;
use bytes::{Bytes, BytesMut};
use covey_ninep::message::Qid;
use covey_ninep::tree::{
    Attach, Attr, Data, Directory, Entry, Errno, Opened, Outcome, Read, Result, S_IFDIR, S_IFREG,
    SetAttr, Time, Tree, User, Write, Written,
};
use covey_wire::Name;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::RwLock;

/// Between one attempt to reach the target again and the next.
const AGAIN: Duration = Duration::from_secs(1);

/// Connects to the unit; called again when a disk is lost.
pub type Connect = Box<dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Disk>>>>>;

/// A disk as a tree.
#[derive(Clone)]
pub struct DiskTree(Rc<Shared>);

struct Shared {
    connect: Connect,
    disk: RefCell<Option<Rc<Disk>>>,
    is_connecting: Cell<bool>,
    /// Why there is no disk.
    why: RefCell<String>,
    names: Directory<Node>,
    has_directory: bool,
    read_only: bool,
    bytes: Cell<u64>,
    block_bytes: u64,
    /// Held alone by who writes part of a block.
    turn: RwLock<()>,
    user: (u32, u32),
    begun: Time,
}

/// One of its two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// The directory.
    Root,
    /// The volume.
    Disk,
}

impl DiskTree {
    /// The disk that `connect` reaches, as a file `name` in a directory, or as a file alone.
    pub async fn open(
        connect: Connect,
        name: Option<&str>,
        read_only: bool,
    ) -> io::Result<DiskTree> {
        let disk = connect().await?;
        let mut names = Directory::default();
        names.insert(Name::from(name.unwrap_or("disk")), Node::Disk).expect("it is the first");
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Ok(DiskTree(Rc::new(Shared {
            connect,
            bytes: Cell::new(disk.bytes()),
            block_bytes: disk.block_bytes().into(),
            disk: RefCell::new(Some(Rc::new(disk))),
            is_connecting: Cell::new(false),
            why: RefCell::default(),
            names,
            has_directory: name.is_some(),
            read_only,
            turn: RwLock::default(),
            user: (uid, gid),
            begun: Time { sec: since.as_secs(), nsec: since.subsec_nanos().into() },
        })))
    }

    /// Its root.
    pub fn root(&self) -> (Qid, Node) {
        let node = if self.0.has_directory { Node::Root } else { Node::Disk };
        (self.0.qid(node), node)
    }

    /// Logs out, after what is under way.
    pub async fn close(&self) {
        let disk = self.0.disk.borrow_mut().take();
        if let Some(disk) = disk.and_then(Rc::into_inner) {
            disk.log_out().await;
        }
    }
}

impl Shared {
    fn qid(&self, node: Node) -> Qid {
        match node {
            Node::Root => Qid { kind: Qid::DIR, version: 0, path: 1 },
            Node::Disk => Qid { kind: Qid::FILE, version: 0, path: 2 },
        }
    }

    fn attr(&self, node: Node) -> Attr {
        let mode = match node {
            Node::Root => S_IFDIR | 0o700,
            Node::Disk if self.read_only => S_IFREG | 0o400,
            Node::Disk => S_IFREG | 0o600,
        };
        let (uid, gid) = self.user;
        let bytes = if node == Node::Disk { self.bytes.get() } else { 0 };
        Attr {
            size: bytes,
            blocks: bytes / 512,
            blksize: 1 << 20,
            ..Attr::new(self.qid(node).path, mode, uid, gid, self.begun)
        }
    }

    fn disk(self: &Rc<Self>) -> Result<Rc<Disk>> {
        if let Some(disk) = &*self.disk.borrow() {
            return Ok(disk.clone());
        }
        self.connect_again();
        Err(Errno::because(Errno::EIO, self.why.borrow().clone()))
    }

    /// Connects to another disk in place of one that is lost, for as long as that takes.
    fn connect_again(self: &Rc<Self>) {
        if self.is_connecting.replace(true) {
            return;
        }
        let shared = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            while let Some(shared) = shared.upgrade() {
                match (shared.connect)().await {
                    Ok(disk) if u64::from(disk.block_bytes()) == shared.block_bytes => {
                        shared.bytes.set(disk.bytes());
                        *shared.disk.borrow_mut() = Some(Rc::new(disk));
                        shared.is_connecting.set(false);
                        return;
                    }
                    Ok(_) => *shared.why.borrow_mut() = "its blocks have another size now".into(),
                    Err(error) => *shared.why.borrow_mut() = error.to_string(),
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
    }

    /// An error of a disk, as a program learns of it.
    fn failed(self: &Rc<Self>, disk: &Rc<Disk>, error: &io::Error) -> Errno {
        tracing::warn!("the volume: {error}");
        if let Some(why) = disk.closed() {
            *self.why.borrow_mut() = why;
            self.disk.borrow_mut().take_if(|known| Rc::ptr_eq(known, disk));
            self.connect_again();
        }
        let code = match error.kind() {
            io::ErrorKind::StorageFull => Errno::ENOSPC,
            io::ErrorKind::ReadOnlyFilesystem => Errno::EROFS,
            io::ErrorKind::PermissionDenied => Errno::EACCES,
            _ => Errno::EIO,
        };
        Errno::because(code, error.to_string())
    }

    async fn read(self: &Rc<Self>, offset: u64, count: u32) -> Result<Bytes> {
        let end = (offset + u64::from(count)).min(self.bytes.get());
        if offset >= end {
            return Ok(Bytes::new());
        }
        let (from, to) = self.whole(offset, end);
        let disk = self.disk()?;
        let data = disk.read(from, (to - from) as usize).await;
        let data = data.map_err(|error| self.failed(&disk, &error))?;
        Ok(data.slice((offset - from) as usize..(end - from) as usize))
    }

    async fn write(self: &Rc<Self>, offset: u64, mut data: Bytes) -> Result<u32> {
        if self.read_only {
            return Err(Errno::EROFS.into());
        }
        let room = self.bytes.get().saturating_sub(offset);
        if room == 0 {
            return Err(Errno::because(Errno::ENOSPC, "the volume ends before"));
        }
        data.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        let (count, end) = (data.len() as u32, offset + data.len() as u64);
        let (from, to) = self.whole(offset, end);
        let disk = self.disk()?;
        let written = if (from, to) == (offset, end) {
            let _turn = self.turn.read().await;
            disk.write(offset, data).await
        } else {
            let _turn = self.turn.write().await;
            self.write_part(&disk, from..to, offset, &data).await
        };
        written.map_err(|error| self.failed(&disk, &error))?;
        Ok(count)
    }

    /// Writes what does not begin and end with blocks.
    async fn write_part(
        &self,
        disk: &Disk,
        blocks: std::ops::Range<u64>,
        offset: u64,
        data: &[u8],
    ) -> io::Result<()> {
        let whole = disk.read(blocks.start, (blocks.end - blocks.start) as usize).await?;
        let mut whole = BytesMut::from(whole);
        let at = (offset - blocks.start) as usize;
        whole[at..at + data.len()].copy_from_slice(data);
        disk.write(blocks.start, whole.freeze()).await
    }

    /// The blocks that a range touches.
    fn whole(&self, from: u64, to: u64) -> (u64, u64) {
        let block = self.block_bytes;
        (from / block * block, to.next_multiple_of(block))
    }

    async fn flush(self: &Rc<Self>) -> Result<()> {
        let disk = self.disk()?;
        disk.flush().await.map_err(|error| self.failed(&disk, &error))
    }

    /// The size may have changed since somebody asked.
    async fn measure(self: &Rc<Self>) -> Result<()> {
        let disk = self.disk()?;
        let bytes = disk.measure().await.map_err(|error| self.failed(&disk, &error))?;
        self.bytes.set(bytes);
        Ok(())
    }
}

impl Tree for DiskTree {
    type Node = Node;

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, Node)> {
        let (uid, gid) = self.0.user;
        let (qid, node) = self.root();
        Ok((User { uid, gid, groups: vec![gid] }, qid, node)).into()
    }

    fn walk(&self, _: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        covey_ninep::tree::walk_by(from, names, |at, name| match at {
            Node::Root if name.as_bytes() == b".." => Ok((self.0.qid(Node::Root), Node::Root)),
            Node::Root => self.0.names.find(name).map(|node| (self.0.qid(node), node)),
            Node::Disk => Err(Errno::ENOTDIR.into()),
        })
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        Ok(self.0.attr(*node)).into()
    }

    /// Times are nobody's, and a disk is as long as it is.
    fn setattr(&self, _: &Rc<User>, _: &Node, set: SetAttr) -> Outcome<()> {
        match set.size {
            Some(size) if size != self.0.bytes.get() => Outcome::Now(Err(Errno::because(
                Errno::EINVAL,
                "a volume is resized by `covey volume resize`",
            ))),
            _ => Ok(()).into(),
        }
    }

    fn open(&self, _: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        const ACCMODE: u32 = 3;
        let (shared, node) = (self.0.clone(), *node);
        if shared.read_only && flags & ACCMODE != 0 {
            return Errno::EROFS.into();
        }
        Outcome::later(async move {
            if node == Node::Disk {
                shared.measure().await?;
            }
            Ok(Opened { qid: shared.qid(node), node, blocking: false })
        })
    }

    fn read(&self, _: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        if *node == Node::Root {
            return Errno::EISDIR.into();
        }
        let (shared, offset, count) = (self.0.clone(), read.offset, read.count);
        Data::later(async move { shared.read(offset, count).await })
    }

    fn write(&self, _: &Rc<User>, node: &Node, write: Write) -> Written {
        let (shared, node) = (self.0.clone(), *node);
        write.received(|offset, data| match node {
            Node::Root => Errno::EISDIR.into(),
            Node::Disk => Outcome::later(async move { shared.write(offset, data).await }),
        })
    }

    fn readdir(&self, _: &Rc<User>, node: &Node, cookie: u64, bytes: u32) -> Outcome<Vec<Entry>> {
        match node {
            Node::Root => {
                let attr = |node: &Node| self.0.attr(*node);
                Ok(self.0.names.list(cookie, bytes, [Node::Root, Node::Root], attr)).into()
            }
            Node::Disk => Errno::ENOTDIR.into(),
        }
    }

    /// What was written is on stable storage, as the target has it: SYNCHRONIZE CACHE.
    fn fsync(&self, _: &Rc<User>, node: &Node, _: bool) -> Outcome<()> {
        let (shared, node) = (self.0.clone(), *node);
        Outcome::later(async move {
            match node {
                Node::Root => Ok(()),
                Node::Disk => shared.flush().await,
            }
        })
    }
}
