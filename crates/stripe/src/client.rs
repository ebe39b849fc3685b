//! The striping client: the file system as async functions, with no runtime named.
//!
//! A [`Fs`] holds a session on the metadata server and a link to each I/O server; an open
//! [`File`] reads and writes on the I/O servers directly, all of them at once. The world is behind
//! [`Net`]: connections, a clock, and someone to run tasks.
//!
//! ```text
//!   Fs ──── Session ──── Link ──► metadata server     names, sizes, locks      (Tcall: ops)
//!    └─ File ─ OpenFile ─ Link ──► I/O server 0..n     objects                  (Tread, Twrite)
//! ```
//!
//! Every wait is bounded by `Options::dead_after`, or on hard clients ended by dropping the future.
//! Dropping a future never loses what was acknowledged; what it was doing may or may not be done.
//! An append that has begun goes on to its end, since later ones wait for it.

mod attrs;
mod beside;
mod cache;
mod chain;
mod check;
mod data;
mod entries;
mod file;
mod handed;
mod handle;
mod link;
mod moves;
mod quota;
mod servers;
mod session;
mod small;
mod space;
mod xattr;

pub use cache::Caching;
pub use data::{data_call, data_link, objects_link};
pub use handed::{Unsynced, UnsyncedSlot};
pub use handle::File;
pub use link::{Greet, Link, REDIAL_MAX, Start};
pub use moves::{Moved, Pace};
pub use session::{Forget, Handover, Held, Opened};
pub use small::{Created, Opening};
pub use space::fallocate;
pub use xattr::{CONSISTENCY, LAYOUT};

pub use crate::error::{Away, Error, Result};
pub use crate::meta::access;

use crate::objects::{DataOp, DataReply};
use crate::ops::{
    Caller, Consistency, DirEntry, Id, Inode, Op, RangeLock, Reply, StripingHint, set,
};
use attrs::setattr_op;
use covey_ninep::client::Conn;
use covey_ninep::message::Message;
use covey_ninep::tree::{self, Errno, Removal, SetAttr, Statfs};
use covey_wire::{List, Name};
use file::OpenFile;
use futures_util::future::{Either, join_all, select};
use servers::Servers;
use session::{Session, unexpected};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// A future without a name.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What the client needs of the world.
pub trait Net: Send + Sync + 'static {
    /// Connects to a server, proves what must be proven, and attaches to the named tree (`/meta` or
    /// `/data`); answers a handle whose machine is being driven, with fid 0 at the tree's root.
    fn dial(&self, server: &str, aname: &str) -> BoxFuture<tree::Result<Conn>>;
    /// The clock.
    fn now(&self) -> Instant;
    /// Completes after `time`.
    fn sleep(&self, time: Duration) -> BoxFuture<()>;
    /// Runs a task beside everything else.
    fn spawn(&self, task: BoxFuture<()>);
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Wait for a dead server for as long as it takes (a dropped future ends the wait), instead of EIO.
    pub hard: bool,
    /// How long a request to a dead server may take before EIO.
    pub dead_after: Duration,
    /// How long a read or write on a server that is alive but slow may take before EIO; a disk that
    /// hangs is not a dead server. Nothing bounds it on hard clients, and nothing bounds an fsync.
    pub io_deadline: Duration,
    /// What may be answered from memory.
    pub caching: Caching,
    /// What is done to a new file that nobody else knows yet may be said some milliseconds late, and in one:
    /// at its close at the latest. Needs [`Caching::Leases`].
    pub delegations: bool,
    /// Removals, too, where all else is done late: for who ends, in good order, no sooner than it has said goodbye.
    pub late_removals: bool,
    /// A name for logs and status: host and pid.
    pub name: String,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            hard: false,
            dead_after: Duration::from_secs(3),
            io_deadline: Duration::from_secs(30),
            caching: Caching::default(),
            delegations: false,
            late_removals: false,
            name: String::new(),
        }
    }
}

/// A file's attributes with its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What the metadata server says.
    pub inode: Inode,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    /// It is what will come of a change that has yet to be sent. Its times are the server's to say: it is
    /// not to be remembered.
    pub is_foretold: bool,
}

impl Stat {
    /// As it is now.
    pub fn new(inode: Inode, blocks: u64) -> Stat {
        Stat { inode, blocks, is_foretold: false }
    }
}

/// What a page of a directory says of each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Its name, number and kind.
    Names,
    /// Its inode, too, for those who may search the directory.
    Inodes,
}

/// What [`File::seek`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is written.
    Data,
    /// The next that is not; the end of the file counts as one.
    Hole,
}

/// One page of a directory.
#[derive(Clone, Debug)]
pub struct Page {
    /// The entries.
    pub entries: Vec<DirEntry>,
    /// Nothing comes after them.
    pub end: bool,
    /// The last cookie in use when the listing began; hand it to the next call.
    pub limit: u64,
}

/// What a creation does where the name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It fails with EEXIST.
    Refuse,
    /// It opens what is there.
    Open,
}

impl Taken {
    /// As O_EXCL says it.
    pub fn unless(exclusive: bool) -> Taken {
        if exclusive { Taken::Refuse } else { Taken::Open }
    }

    pub(crate) fn is_exclusive(self) -> bool {
        self == Taken::Refuse
    }
}

/// What a file system has and uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Space {
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub bytes_available: u64,
    pub files: u64,
    /// I/O servers that did not answer and are not counted.
    pub servers_missing: Vec<String>,
}

/// The file system, seen by one client. Clones share everything.
#[derive(Clone)]
pub struct Fs {
    shared: Arc<Shared>,
}

/// What all handles of a client share.
pub struct Shared {
    pub(crate) net: Arc<dyn Net>,
    pub(crate) session: Arc<Session>,
    data: Servers,
    files: Mutex<HashMap<Id, Weak<OpenFile>>>,
    ahead: file::Ahead,
}

/// How long a listing waits for an I/O server to count a sparse file's blocks.
const BLOCKS_WAIT: Duration = Duration::from_millis(300);
const S_IFMT: u32 = 0o170000;
const S_IFREG: u32 = 0o100000;
const S_IFDIR: u32 = 0o040000;

impl Fs {
    /// Connects to the metadata server `meta`; I/O servers are met when they are needed.
    pub async fn connect(net: Arc<dyn Net>, meta: &str, options: Options) -> Result<Fs> {
        let session = Session::new(net.clone(), meta, options.clone());
        Fs::begin(net, options, session).await
    }

    async fn begin(net: Arc<dyn Net>, options: Options, session: Session) -> Result<Fs> {
        session.start().await?;
        let data = Servers::ask(net.clone(), options, &session).await?;
        let (files, ahead) = Default::default();
        let shared = Shared { net, session: Arc::new(session), data, files, ahead };
        Ok(Fs { shared: Arc::new(shared) })
    }

    /// Down names from a directory (`..` allowed); fewer inodes than names when a later one is missing.
    pub async fn walk(&self, who: &Caller, from: Id, names: &[Name]) -> Result<Vec<Inode>> {
        if let ([name], true) = (names, self.shared.session.cache().is_on()) {
            return Ok(vec![self.lookup(who, from, name).await?]);
        }
        match self.ask(who, Op::Walk { from, names: List(names.to_vec()) }).await? {
            Reply::Nodes { inodes } => Ok(inodes.0),
            other => Err(unexpected(&other)),
        }
    }

    /// One name.
    pub async fn lookup(&self, who: &Caller, parent: Id, name: &Name) -> Result<Inode> {
        self.shared.session.lookup(who, parent, name).await
    }

    /// What the metadata server says of a file, and nobody else.
    pub async fn inode(&self, id: Id) -> Result<Inode> {
        self.shared.session.inode(id).await
    }

    /// The same as it is now, whatever is known here.
    pub async fn inode_now(&self, id: Id) -> Result<Inode> {
        self.shared.session.inode_now(id).await
    }

    /// Has `forget` called for whatever is taken back of what [`Fs::time_left`] has promised, before
    /// it may change. To be said once, by whoever passes it on.
    pub fn on_revoke(&self, forget: Forget) {
        self.shared.session.on_revoke(forget);
    }

    /// Attributes with honest blocks.
    pub async fn stat(&self, id: Id) -> Result<Stat> {
        let inode = self.inode(id).await?;
        Ok(self.with_blocks(inode).await)
    }

    /// Adds the blocks to an inode: computed for a file without holes, asked of the I/O servers for
    /// one that may have some. A server that does not answer soon counts as holding its full share.
    pub async fn with_blocks(&self, inode: Inode) -> Stat {
        let dense = inode.size.div_ceil(512);
        let blocks = match &inode.striping {
            Some(striping) if inode.sparse => {
                let asks = striping.servers.0.iter().map(|&chain| self.allocated(chain, inode.id));
                let counted = join_all(asks).await;
                let share = dense / counted.len().max(1) as u64;
                let counted = counted.into_iter();
                let counted: u64 = counted.map(|b| b.map_or(share, |b| b.div_ceil(512))).sum();
                counted + u64::from(inode.inline).div_ceil(512)
            }
            _ if inode.mode & S_IFMT == S_IFREG => dense.next_multiple_of(8),
            _ => 0,
        };
        Stat::new(inode, blocks)
    }

    /// A file's mode, with what was done to it and has yet to be sent.
    pub async fn mode(&self, id: Id) -> Result<u32> {
        match self.shared.session.mode_late(id) {
            Some(mode) => Ok(mode),
            None => Ok(self.inode(id).await?.mode),
        }
    }

    /// Changes attributes.
    pub async fn setattr(&self, who: &Caller, id: Id, change: SetAttr) -> Result<Stat> {
        self.change_attributes(who, id, change, 0).await
    }

    /// The same through a file that `who` has open for writing, as ftruncate(2) does: a size is set
    /// whatever the mode says by now. Whoever calls this has made sure of the open: servers cannot,
    /// since all users of a client share its session.
    pub async fn setattr_open(&self, who: &Caller, id: Id, change: SetAttr) -> Result<Stat> {
        self.change_attributes(who, id, change, set::SIZE_OF_OPEN).await
    }

    /// Keeps everybody who has the file open now from writing it or reading it at the I/O servers, [`File::pin`]ned
    /// ones for good: for who takes a file over from another client that may not know it is dead.
    pub async fn fence(&self, who: &Caller, id: Id) -> Result<()> {
        let before = self.shared.session.inode_now(id).await?.epoch;
        match self.change(who, Op::Fence { id }).await {
            // An I/O server that does not answer hears of it before it serves again.
            Err(error) if error.code() == Errno::EIO => {
                let is_raised = self.shared.session.inode_now(id).await?.epoch > before;
                if is_raised { Ok(()) } else { Err(error) }
            }
            other => other.map(|_| ()),
        }
    }

    /// Sets the size of a file that is [`File::pin`]ned. ESTALE, and nothing changed, where another client has raised its
    /// epoch, whether or not this one has heard of it.
    pub async fn set_size_of_pinned(&self, who: &Caller, file: &File, size: u64) -> Result<Stat> {
        let epoch = file.pinned_epoch()?;
        let change = SetAttr { size: Some(size), ..SetAttr::default() };
        let mut op = setattr_op(file.id(), &change, set::AT_EPOCH);
        if let Op::Setattr { mode, .. } = &mut op {
            *mode = epoch;
        }
        let inode = node(self.change(who, op).await?)?;
        file.was_resized(&inode, epoch)?;
        Ok(self.with_blocks(inode).await)
    }

    async fn change_attributes(
        &self,
        who: &Caller,
        id: Id,
        change: SetAttr,
        more: u32,
    ) -> Result<Stat> {
        let open = self.shared.open_file(id);
        if let Some(open) = open.as_ref().filter(|_| change.mtime.is_some()) {
            open.forget_touch();
        }
        let op = setattr_op(id, &change, more);
        // Whoever has it open will hear whether it was done; of a directory whoever changes it next.
        if let Some(mut inode) = self.shared.session.set_late(who, &op, open.is_some()) {
            // Not all of it was written late.
            inode.size = open.as_ref().map_or(inode.size, |open| inode.size.max(open.known_size()));
            return Ok(Stat { is_foretold: true, ..self.with_blocks(inode).await });
        }
        let inode = node(self.change(who, op).await?)?;
        if let Some(open) = open {
            if change.size.is_some() {
                open.was_resized(&inode, None);
            }
            open.refresh(&inode);
        }
        Ok(self.with_blocks(inode).await)
    }

    /// Creates a regular file and opens it, for [`access`].
    pub async fn create(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        mode: u32,
        taken: Taken,
        access: u8,
    ) -> Result<(Inode, File)> {
        let op = Op::Create {
            parent,
            name: name.clone(),
            mode: S_IFREG | (mode & 0o7777),
            gid: who.gid,
            rdev: 0,
            target: Name::EMPTY,
            exclusive: taken.is_exclusive(),
            open: true,
            access: access | self.shared.session.access_alone(access),
        };
        let starts = self.shared.session.starts();
        let (inode, opened) = self.shared.session.create(who, op).await?;
        let file = self.handle(who, &inode, opened, starts).await?;
        Ok((inode, file))
    }

    /// Makes a directory, symbolic link or special file: `mode` with its type bits.
    pub async fn make(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        mode: u32,
        rdev: u64,
        target: Name,
    ) -> Result<Inode> {
        let is_dir = mode & S_IFMT == S_IFDIR;
        if is_dir && let Some(made) = self.shared.session.make_dir(who, parent, name, mode).await? {
            return Ok(made);
        }
        let op = Op::Create {
            parent,
            name: name.clone(),
            mode,
            gid: who.gid,
            rdev,
            target,
            exclusive: true,
            open: false,
            access: 0,
        };
        match self.change(who, op).await? {
            Reply::Created { inode, .. } => Ok(inode),
            other => Err(unexpected(&other)),
        }
    }

    /// Opens a regular file (or directory, to keep it). `access`: 4 read, 2 write, 1 execute.
    pub async fn open(&self, who: &Caller, id: Id, access: u8) -> Result<File> {
        let starts = self.shared.session.starts();
        let (inode, opened) = match self.shared.session.open_known(who, id, access) {
            Some(known) => known,
            None => self.shared.session.open(who, Op::Open { id, access }).await?,
        };
        self.handle(who, &inode, opened, starts).await
    }

    /// Removes a name.
    pub async fn unlink(&self, who: &Caller, parent: Id, name: &Name, what: Removal) -> Result<()> {
        let dir = what.is_dir();
        if !dir && self.shared.session.remove_late(who, parent, name).await? {
            return Ok(());
        }
        self.change(who, Op::Unlink { parent, name: name.clone(), dir }).await.map(|_| ())
    }

    /// Renames. `flags`: [`crate::ops::rename`].
    pub async fn rename(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        to: Id,
        to_name: &Name,
        flags: u32,
    ) -> Result<()> {
        let (name, to_name) = (name.clone(), to_name.clone());
        self.change(who, Op::Rename { parent, name, to, to_name, flags }).await.map(|_| ())
    }

    /// A hard link.
    pub async fn link(&self, who: &Caller, id: Id, parent: Id, name: &Name) -> Result<Inode> {
        if let Some(inode) = self.shared.session.link_late(who, id, parent, name).await? {
            return Ok(inode);
        }
        node(self.change(who, Op::Link { id, parent, name: name.clone() }).await?)
    }

    /// Space of all I/O servers that answer. Servers that share a file system count it once.
    pub async fn space(&self) -> Result<Space> {
        let files = match self.ask(&Caller::default(), Op::Statfs {}).await? {
            Reply::Totals { files, .. } => files,
            other => return Err(unexpected(&other)),
        };
        let mut space = Space { files, ..Space::default() };
        let mut seen = HashSet::new();
        self.shared.data.ask_again(&self.shared.session).await?;
        let links = self.shared.data.all();
        let asked = join_all(links.iter().map(|link| self.statfs_of(link))).await;
        for (link, stat) in links.iter().zip(asked) {
            let Some(stat) = stat else {
                space.servers_missing.push(link.server().to_owned());
                continue;
            };
            if stat.fsid != 0 && !seen.insert((stat.fsid, stat.blocks)) {
                continue;
            }
            let unit = u64::from(stat.bsize);
            space.bytes_total += stat.blocks * unit;
            space.bytes_free += stat.bfree * unit;
            space.bytes_available += stat.bavail * unit;
        }
        Ok(space)
    }

    /// Names and attributes acknowledged so far to stable storage.
    pub async fn sync(&self, id: Id) -> Result<()> {
        if let Some(open) = self.shared.open_file(id) {
            return open.fsync(&self.shared).await;
        }
        self.sync_inode(id).await
    }

    /// Brings to stable storage what the metadata server has of a file, such as its attributes. No I/O server need answer.
    pub async fn sync_inode(&self, id: Id) -> Result<()> {
        self.ask(&Caller::default(), Op::Fsync { id }).await.map(|_| ())
    }

    /// Takes a lock; waits for it when `wait` (dropping the future gives up), else EAGAIN.
    pub async fn lock(&self, id: Id, lock: RangeLock, wait: bool) -> Result<()> {
        self.shared.session.lock(id, lock, wait).await
    }

    /// Gives back what the owner holds within the range; after an error, when the server is back.
    pub async fn unlock(&self, id: Id, lock: RangeLock) -> Result<()> {
        self.shared.session.unlock(id, lock).await
    }

    /// What stands in the way of a lock.
    pub async fn getlock(&self, id: Id, lock: RangeLock) -> Result<Option<RangeLock>> {
        match self.ask(&Caller::default(), Op::Getlock { id, lock }).await? {
            Reply::Locked { lock } => Ok(lock),
            other => Err(unexpected(&other)),
        }
    }

    /// Sets a directory's hint for new files, or an empty file's striping.
    pub async fn set_striping(&self, who: &Caller, id: Id, hint: StripingHint) -> Result<()> {
        self.change(who, Op::SetStriping { id, hint }).await.map(|_| ())
    }

    /// Sets how mounts keep what they know of a file, and of what will be made in a directory; none to
    /// leave it to the mount.
    pub async fn set_consistency(
        &self,
        who: &Caller,
        id: Id,
        mode: Option<Consistency>,
    ) -> Result<()> {
        let consistency = mode.map_or(0, Consistency::number);
        self.change(who, Op::SetConsistency { id, consistency }).await.map(|_| ())
    }

    /// Ends the session at once: opens and locks go.
    pub async fn bye(&self) {
        self.shared.session.bye().await;
    }

    async fn ask(&self, who: &Caller, op: Op) -> Result<Reply> {
        self.shared.session.ask(who, op).await
    }

    async fn change(&self, who: &Caller, op: Op) -> Result<Reply> {
        self.shared.session.change(who, op).await
    }

    /// Bytes allocated for a file by one chain; None when it does not say soon.
    async fn allocated(&self, chain: u16, id: Id) -> Option<u64> {
        let chain = self.shared.data.chain(chain).ok()?;
        let asked = self.shared.on_chain(&chain, DataOp::Allocated { id });
        match select(pin!(asked), self.shared.net.sleep(BLOCKS_WAIT)).await {
            Either::Left((Ok((DataReply::Allocated { bytes }, _)), _)) => Some(bytes),
            _ => None,
        }
    }

    async fn statfs_of(&self, link: &Arc<Link>) -> Option<Statfs> {
        let asked = async {
            let (_, conn) = link.conn(link.now()).await.ok()?;
            conn.call(Message::Tstatfs { fid: 0 }).await.ok()
        };
        let soon = self.shared.net.sleep(BLOCKS_WAIT);
        match select(pin!(asked), soon).await {
            Either::Left((
                Some(Message::Rstatfs { bsize, blocks, bfree, bavail, fsid, .. }),
                _,
            )) => Some(Statfs { bsize, blocks, bfree, bavail, fsid, ..Statfs::default() }),
            _ => None,
        }
    }
}

fn node(reply: Reply) -> Result<Inode> {
    match reply {
        Reply::Node { inode } => Ok(inode),
        other => Err(unexpected(&other)),
    }
}
