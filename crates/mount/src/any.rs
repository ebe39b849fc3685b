//! Any tree as a mount: each message of the kernel becomes calls of a [`Tree`], one for one where that is
//! possible. The kernel keeps nothing, neither names nor attributes nor pages, so what the tree makes up on
//! the spot (a clock, counters, a control file) is seen as it is.
//!
//! A number that the kernel knows a file by stands for one name with one file behind it; it holds a node of the
//! tree until the kernel forgets it. Reads that wait are ended by a signal at once, and dropped in the tree.

mod names;
mod nodes;

use crate::abi::flags::{fopen, init as offers, open};
use crate::abi::reply::{self, AttrOut, Dirents, OpenOut, StatfsOut, WriteOut, encode};
use crate::abi::{Header, Pad, Request, Rest};
use crate::handlers::{set_of, settle, sized};
use crate::transport::{self, Answer, Left, Served, Service};
use anyhow::Context;
use covey_ninep::message::Qid;
use covey_ninep::tree::{Attr, Errno, Read, SetXattr, Tree, User, Write};
use covey_wire::{Bytes, BytesMut, Name};
use nodes::Nodes;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

type Result<T> = std::result::Result<T, Errno>;

/// Serves `tree` on a device that [`attach`](crate::attach) has mounted, from its root `root` and as `user`, on this thread
/// until it is unmounted. To be run on a [`tokio::runtime::LocalRuntime`].
pub async fn serve_tree<T: Tree>(
    device: OwnedFd,
    tree: Rc<T>,
    user: User,
    root: (Qid, T::Node),
) -> anyhow::Result<()> {
    // One thread has it: Arc is what the transport asks for.
    #[allow(clippy::arc_with_non_send_sync)]
    let session = Arc::new(Session::new(tree, Rc::new(user), root));
    let device = Left { device, messages: Vec::new() };
    let served = transport::serve(device, Served::new(session), None).await;
    served.map(drop).context("the FUSE device failed")
}

/// One mounted tree.
struct Session<T: Tree> {
    tree: Rc<T>,
    user: Rc<User>,
    nodes: RefCell<Nodes<T::Node>>,
    open: RefCell<HashMap<u64, Rc<Open<T::Node>>>>,
    handle_last: Cell<u64>,
}

/// What a handle stands for.
struct Open<N> {
    node: N,
    /// Whether its readers may have to wait.
    blocking: bool,
}

impl<T: Tree> Session<T> {
    fn new(tree: Rc<T>, user: Rc<User>, (qid, root): (Qid, T::Node)) -> Session<T> {
        Session {
            tree,
            user,
            nodes: RefCell::new(Nodes::new(qid, root)),
            open: RefCell::default(),
            handle_last: Cell::new(0),
        }
    }

    async fn dispatch(&self, header: Header, request: Request) -> Result<Answer> {
        use Request::*;
        let id = header.nodeid;
        match request {
            Init { .. } => settle(&request, OFFERS),
            Lookup { name } => self.lookup(id, name.0).await.map(small),
            Getattr { .. } => self.getattr(id).await,
            Setattr { .. } => {
                let (node, set) = (self.node(id)?, set_of(&request));
                self.tree.setattr(&self.user, &node, set).wait().await?;
                self.getattr(id).await
            }
            Readlink {} => {
                let target = self.tree.readlink(&self.user, &self.node(id)?).wait().await?;
                Ok(Answer::Small(target.as_bytes().to_vec()))
            }
            Symlink { .. }
            | Mknod { .. }
            | Mkdir { .. }
            | Unlink { .. }
            | Rmdir { .. }
            | Rename { .. }
            | Rename2 { .. }
            | Link { .. }
            | Create { .. } => Box::pin(self.change_names(&header, request)).await,
            Open { flags, .. } | Opendir { flags, .. } => self.open(id, flags).await,
            Read { fh, offset, size, .. } => self.read(fh, offset, size).await,
            Write { fh, offset, data, flags, .. } => self.write(fh, offset, data, flags).await,
            Readdir { fh, offset, size, .. } => self.readdir(fh, offset, size).await,
            Release { fh, .. } | Releasedir { fh, .. } => {
                self.release(fh);
                Ok(Answer::Done)
            }
            Fsync { fh, fsync_flags, .. } | Fsyncdir { fh, fsync_flags, .. } => {
                let open = self.find(fh)?;
                let done = self.tree.fsync(&self.user, &open.node, fsync_flags & 1 != 0);
                done.wait().await.map(|()| Answer::Done)
            }
            Getxattr { .. } | Listxattr { .. } | Setxattr { .. } | Removexattr { .. } => {
                Box::pin(self.xattr(id, request)).await
            }
            Statfs {} => self.statfs(id).await,
            Destroy {} => Ok(Answer::Done),
            // The kernel does without, for good.
            _ => Err(Errno::ENOSYS.into()),
        }
    }

    fn node(&self, id: u64) -> Result<T::Node> {
        self.nodes.borrow().find(id)
    }

    fn find(&self, fh: u64) -> Result<Rc<Open<T::Node>>> {
        let found = self.open.borrow().get(&fh).cloned();
        found.ok_or_else(|| Errno::because(Errno::EBADF, format!("handle {fh} is not open")))
    }

    /// Finds a name; the kernel keeps the answer until it sends FORGET.
    async fn lookup(&self, dir: u64, name: Name) -> Result<reply::Entry> {
        let at = self.node(dir)?;
        let steps = self.tree.walk(&self.user, &at, std::slice::from_ref(&name)).wait().await?;
        let (qid, node) = steps.into_iter().next().ok_or(Errno::ENOENT)?;
        let attr = self.tree.getattr(&self.user, &node).wait().await;
        let attr = attr.inspect_err(|_| self.tree.clunk(&self.user, node.clone()))?;
        let (nodeid, spare) = self.nodes.borrow_mut().enter((dir, name, qid), node);
        if let Some(spare) = spare {
            self.tree.clunk(&self.user, spare);
        }
        Ok(reply::Entry {
            nodeid,
            generation: 0,
            entry_valid: 0,
            attr_valid: 0,
            entry_valid_nsec: 0,
            attr_valid_nsec: 0,
            attr: shown(&attr),
        })
    }

    async fn getattr(&self, id: u64) -> Result<Answer> {
        let attr = self.tree.getattr(&self.user, &self.node(id)?).wait().await?;
        let attr = shown(&attr);
        Ok(small(AttrOut { attr_valid: 0, attr_valid_nsec: 0, dummy: Pad, attr }))
    }

    async fn open(&self, id: u64, flags: u32) -> Result<Answer> {
        let flags = flags & (open::ACCMODE | open::TRUNC | open::APPEND);
        let opened = self.tree.open(&self.user, &self.node(id)?, flags).wait().await?;
        Ok(small(self.opened(opened.node, opened.blocking)))
    }

    fn opened(&self, node: T::Node, blocking: bool) -> OpenOut {
        let fh = self.handle_last.get() + 1;
        self.handle_last.set(fh);
        self.open.borrow_mut().insert(fh, Rc::new(Open { node, blocking }));
        OpenOut { fh, open_flags: fopen::DIRECT_IO, backing_id: 0 }
    }

    fn release(&self, fh: u64) {
        let gone = self.open.borrow_mut().remove(&fh);
        // A request that still uses it has lost its answer.
        if let Some(open) = gone {
            let node = Rc::try_unwrap(open).map_or_else(|open| open.node.clone(), |open| open.node);
            self.tree.clunk(&self.user, node);
        }
    }

    /// All that was asked for, unless the file ends before or its readers may have to wait.
    async fn read(&self, fh: u64, offset: u64, size: u32) -> Result<Answer> {
        let open = self.find(fh)?;
        let mut all = BytesMut::new();
        loop {
            let (at, left) = (offset + all.len() as u64, size - all.len() as u32);
            let read = self.tree.read(&self.user, &open.node, Read::bytes(at, left));
            let data = match read.into_outcome().wait().await {
                // What was read before is not lost.
                Err(_) if !all.is_empty() => Bytes::new(),
                answer => answer?,
            };
            let is_whole = data.is_empty() || data.len() >= left as usize || open.blocking;
            if is_whole && all.is_empty() {
                return Ok(Answer::Data(data.slice(..data.len().min(left as usize)).into()));
            }
            all.extend_from_slice(&data[..data.len().min(left as usize)]);
            if is_whole {
                return Ok(Answer::Data(all.freeze().into()));
            }
        }
    }

    async fn write(&self, fh: u64, offset: u64, data: Rest, flags: u32) -> Result<Answer> {
        let (open, mut data, mut done) = (self.find(fh)?, data.0, 0);
        loop {
            let write = Write::bytes(offset + u64::from(done), data.clone());
            let written = self.tree.write(&self.user, &open.node, write).into_outcome();
            let count = match written.wait().await {
                Err(_) if done > 0 => 0,
                answer => answer?.min(data.len() as u32),
            };
            data = data.slice(count as usize..);
            done += count;
            if count == 0 || data.is_empty() || open.blocking {
                // The kernel leaves it to us; the flags are the descriptor's at this moment.
                if flags & open::DSYNC != 0 && done > 0 {
                    let is_data_only = flags & open::SYNC != open::SYNC;
                    let synced = self.tree.fsync(&self.user, &open.node, is_data_only);
                    synced.wait().await?;
                }
                return Ok(small(WriteOut { size: done, padding: Pad }));
            }
        }
    }

    async fn readdir(&self, fh: u64, cookie: u64, size: u32) -> Result<Answer> {
        let open = self.find(fh)?;
        let mut listing = Dirents::new(size as usize);
        let entries = self.tree.readdir(&self.user, &open.node, cookie, size).wait().await?;
        for entry in &entries {
            let (ino, name) = (entry.qid.path, entry.name.as_bytes());
            if !listing.push(None, ino, entry.cookie, entry.kind, name) {
                break;
            }
        }
        Ok(Answer::Small(listing.into_vec()))
    }

    async fn statfs(&self, id: u64) -> Result<Answer> {
        let state = self.tree.statfs(&self.user, &self.node(id)?).wait().await?;
        Ok(small(StatfsOut {
            blocks: state.blocks,
            bfree: state.bfree,
            bavail: state.bavail,
            files: state.files,
            ffree: state.ffree,
            bsize: state.bsize,
            namelen: state.namelen,
            frsize: state.bsize,
            ..StatfsOut::default()
        }))
    }

    async fn xattr(&self, id: u64, request: Request) -> Result<Answer> {
        let (tree, user, node) = (&self.tree, &self.user, self.node(id)?);
        match request {
            Request::Getxattr { size, name, .. } => {
                sized(tree.xattr(user, &node, name.0).wait().await?, size)
            }
            Request::Listxattr { size, .. } => {
                let names = tree.list_xattrs(user, &node).wait().await?;
                let list: Vec<u8> =
                    names.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
                sized(list.into(), size)
            }
            Request::Setxattr { flags, rest, .. } => {
                let end = rest.0.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
                let (name, value) = (rest.0.slice(..end), rest.0.slice(end + 1..));
                let rule = match flags {
                    1 => SetXattr::Create,
                    2 => SetXattr::Replace,
                    _ => SetXattr::Any,
                };
                let set = tree.set_xattr(user, &node, name.into(), value, rule);
                set.wait().await.map(|()| Answer::Done)
            }
            Request::Removexattr { name } => {
                let removed = tree.remove_xattr(user, &node, name.0).wait().await;
                removed.map(|()| Answer::Done)
            }
            _ => Err(Errno::ENOSYS.into()),
        }
    }
}

impl<T: Tree> Service for Session<T> {
    async fn handle(self: Arc<Self>, header: Header, request: Request) -> Result<Answer> {
        self.dispatch(header, request).await
    }

    /// A wait of a file that makes its readers wait ends at once; anything else is given a moment, so
    /// that a healthy server's answer is not taken for an interruption.
    fn patience(&self, request: &Request) -> Duration {
        match request {
            Request::Read { fh, .. } | Request::Write { fh, .. }
                if self.find(*fh).is_ok_and(|open| open.blocking) =>
            {
                Duration::ZERO
            }
            _ => INTERRUPT_GRACE,
        }
    }

    fn forget(&self, id: u64, count: u64) {
        if let Some(node) = self.nodes.borrow_mut().forget(id, count) {
            self.tree.clunk(&self.user, node);
        }
    }
}

fn small(record: impl covey_wire::Field) -> Answer {
    Answer::Small(encode(&record))
}

fn shown(attr: &Attr) -> reply::Attr {
    reply::Attr {
        ino: attr.qid.path,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.sec,
        mtime: attr.mtime.sec,
        ctime: attr.ctime.sec,
        atimensec: attr.atime.nsec as u32,
        mtimensec: attr.mtime.nsec as u32,
        ctimensec: attr.ctime.nsec as u32,
        mode: attr.mode,
        nlink: u32::try_from(attr.nlink).unwrap_or(u32::MAX),
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev as u32,
        blksize: u32::try_from(attr.blksize).unwrap_or(4096),
        flags: 0,
    }
}

/// What is taken of what the kernel offers. Locks are left to it: they hold on this machine.
const OFFERS: u64 = offers::ASYNC_READ
    | offers::ATOMIC_O_TRUNC
    | offers::BIG_WRITES
    | offers::PARALLEL_DIROPS
    | offers::MAX_PAGES
    | offers::INIT_EXT
    | offers::DIRECT_IO_ALLOW_MMAP;

/// How long a request goes on after its process got a signal.
const INTERRUPT_GRACE: Duration = Duration::from_secs(1);
