//! From FUSE requests to calls of the file system: one async function per message.
//!
//! Inode numbers are file ids, which are stable and never reused: there is nothing to remember
//! between LOOKUP and FORGET. What is remembered is what is open ([`table`]) and which lock owners
//! there are. The kernel may cache what the file system holds a lease on, for as long as that lasts
//! ([`super::kernel`]), and more only where a weaker consistency mode says so ([`modes`]).

mod askers;
mod attrs;
mod data;
mod dirs;
mod handover;
mod init;
mod locks;
mod modes;
mod names;
mod quiet;
mod space;
mod stored;
mod table;
mod who;
mod xattr;

pub(crate) use attrs::set_of;
pub(crate) use init::settle;
pub(crate) use xattr::sized;

use super::MountOptions;
use super::abi::{Header, Request};
use super::behind::Behind;
use super::counts::Counts;
use super::files::Files;
use super::kernel::Kernel;
use super::takeover::state::Settled;
use super::transport::{Answer, Service};
use askers::Askers;
use covey_ninep::tree::{Errno, Removal};
use covey_stripe::client::Listing;
use covey_stripe::ops::{Caller, Consistency, Id};
use modes::{Pages, Usage};
use quiet::Quiet;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use table::Table;
use tokio::sync::Notify;
use who::Who;

type Result<T> = std::result::Result<T, Errno>;

/// One mounted file system: what all its threads share.
pub struct Session<F: Files> {
    files: Arc<F>,
    options: MountOptions,
    /// The groups of those who ask.
    who: Who,
    /// What the kernel keeps, under leases.
    kernel: Arc<Kernel>,
    open: Table<OpenFile<F::File>>,
    dirs: Table<OpenDir<F::File>>,
    /// How often each regular file is open.
    opened: Mutex<HashMap<Id, Opens>>,
    /// What is written in weaker modes and not on the servers yet.
    behind: Arc<Behind<F>>,
    /// What the kernel has of files in weaker modes.
    pages: Mutex<Pages>,
    /// Files that are read from pages in mode `strict`: one handle of each.
    paged: Mutex<HashMap<Id, F::File>>,
    /// Directories that have a mode of their own.
    dir_modes: Mutex<HashMap<Id, Consistency>>,
    /// Files that had set-user-id or set-group-id when their attributes were last told to the kernel.
    privileged: Mutex<HashSet<Id>>,
    /// Who has asked for fcntl locks on what: close owes them an unlock.
    askers: Mutex<Askers>,
    /// Somebody's locks have been given back since a handle has gone.
    left: Notify,
    /// Whose close of a file that was only read owes none.
    quiet: Mutex<Quiet>,
    /// The kernel was ever told to keep attributes other than under a lease.
    has_kept: AtomicBool,
    /// What each user has asked.
    counts: Counts,
    /// What INIT has settled.
    settled: OnceLock<Settled>,
    /// Errors of files that no program has heard of, and that are not known elsewhere.
    untold: Mutex<HashMap<Id, u32>>,
    /// Held by what goes on when its request was interrupted.
    aside: Arc<()>,
}

/// What a file handle stands for.
struct OpenFile<T> {
    id: Id,
    file: T,
    writable: bool,
    usage: Usage,
}

/// How often a file is open, and how often of these through the page cache.
#[derive(Clone, Copy, Default)]
struct Opens {
    all: usize,
    writable: usize,
    through_pages: usize,
}

/// What a directory handle stands for.
struct OpenDir<T> {
    id: Id,
    /// Keeps the directory while it is open.
    _file: T,
    /// Who opened it: permission was checked then.
    who: Caller,
    /// How far the listing has come that is being read.
    reached: Mutex<dirs::Reached>,
}

impl<F: Files> Session<F> {
    /// A session with nothing open.
    pub fn new(files: Arc<F>, options: MountOptions, kernel: Arc<Kernel>) -> Self {
        Session {
            behind: Arc::new(Behind::new(files.clone())),
            pages: Mutex::default(),
            paged: Mutex::default(),
            dir_modes: Mutex::default(),
            files,
            who: Who::new(options.groups.clone()),
            options,
            kernel,
            open: Table::default(),
            dirs: Table::default(),
            opened: Mutex::default(),
            privileged: Mutex::default(),
            askers: Mutex::default(),
            left: Notify::new(),
            quiet: Mutex::default(),
            has_kept: AtomicBool::new(false),
            counts: Counts::default(),
            settled: OnceLock::new(),
            untold: Mutex::default(),
            aside: Arc::default(),
        }
    }

    /// A process that makes, moves or removes a name has the lock of the directory, alone, until it is answered.
    fn note_locks(&self, dir: Id, request: &Request) {
        use Request::*;
        match request {
            Create { .. } | Mknod { .. } | Mkdir { .. } | Symlink { .. } | Link { .. } => {}
            Unlink { .. } | Rmdir { .. } => {}
            Rename { newdir, .. } | Rename2 { newdir, .. } => self.kernel.locked(*newdir),
            _ => return,
        }
        self.kernel.locked(dir);
    }

    /// Before the mount ends: what was written reaches the servers.
    pub async fn settle(&self) {
        self.behind.settle_all().await;
    }

    /// The future of a request has room for the largest of them, and is moved: what is not asked all
    /// the time is put apart, and so is WRITE, which is half as large again as any other.
    async fn dispatch(self: Arc<Self>, header: Header, request: Request) -> Result<Answer> {
        use Request::*;
        let id = header.nodeid;
        self.note_locks(id, &request);
        match request {
            Lookup { name } => self.lookup(&header, name).await,
            Getattr { .. } => self.getattr(id).await,
            Setattr { .. } => Box::pin(self.setattr(&header, request)).await,
            Readlink {} => Box::pin(self.readlink(id)).await,
            Symlink { name, target } => Box::pin(self.symlink(&header, name, target)).await,
            Mknod { mode, rdev, name, .. } => Box::pin(self.mknod(&header, name, mode, rdev)).await,
            Mkdir { mode, name, .. } => Box::pin(self.mkdir(&header, name, mode)).await,
            Unlink { name } => self.unlink(&header, name, Removal::File).await,
            Rmdir { name } => self.unlink(&header, name, Removal::Directory).await,
            Rename { newdir, name, newname } => {
                Box::pin(self.rename(&header, name, newdir, newname, 0)).await
            }
            Rename2 { newdir, flags, name, newname, .. } => {
                Box::pin(self.rename(&header, name, newdir, newname, flags)).await
            }
            Link { oldnodeid, name } => Box::pin(self.link(&header, oldnodeid, name)).await,
            Create { flags, mode, name, .. } => self.create(&header, name, mode, flags).await,
            Open { flags, .. } => self.open(&header, flags).await,
            Read { fh, offset, size, .. } => self.read(id, fh, offset, size).await,
            Write { .. } => Box::pin(self.write(&header, request)).await,
            Lseek { fh, offset, whence, .. } => Box::pin(self.lseek(id, fh, offset, whence)).await,
            Fallocate { fh, offset, length, mode, .. } => {
                Box::pin(self.fallocate(&header, fh, offset, length, mode)).await
            }
            CopyFileRange { .. } => Box::pin(self.copy_file_range(&header, request)).await,
            Tmpfile { flags, mode, .. } => Box::pin(self.tmpfile(&header, mode, flags)).await,
            Statx { .. } => Box::pin(self.statx(id)).await,
            Fsync { fh, .. } => Box::pin(self.fsync(id, fh)).await,
            Flush { fh, lock_owner, .. } => self.flush(id, fh, lock_owner).await,
            Release { fh, release_flags, lock_owner, .. } => {
                self.release(id, fh, release_flags, lock_owner).await
            }
            Opendir { .. } => Box::pin(self.opendir(&header)).await,
            Readdir { fh, offset, size, .. } => {
                Box::pin(self.readdir(id, fh, offset, size, Listing::Names)).await
            }
            Readdirplus { fh, offset, size, .. } => {
                Box::pin(self.readdir(id, fh, offset, size, Listing::Inodes)).await
            }
            Fsyncdir { .. } => self.files.sync(id).await.map(|()| Answer::Done),
            Releasedir { fh, .. } => self.releasedir(fh),
            Getlk { owner, start, end, kind, pid, lk_flags, .. } => {
                let wanted = locks::Wanted { owner, start, end, kind, pid, lk_flags };
                Box::pin(self.getlk(id, wanted)).await
            }
            Setlk { fh, owner, start, end, kind, pid, lk_flags, .. } => {
                let wanted = locks::Wanted { owner, start, end, kind, pid, lk_flags };
                Box::pin(self.setlk(&header, fh, wanted, false)).await
            }
            Setlkw { fh, owner, start, end, kind, pid, lk_flags, .. } => {
                let wanted = locks::Wanted { owner, start, end, kind, pid, lk_flags };
                Box::pin(self.setlk(&header, fh, wanted, true)).await
            }
            Getxattr { size, name, .. } => Box::pin(self.getxattr(&header, name, size)).await,
            Listxattr { size, .. } => Box::pin(self.listxattr(&header, size)).await,
            Setxattr { size, flags, rest } => {
                Box::pin(self.setxattr(&header, rest.0, size, flags)).await
            }
            Removexattr { name } => Box::pin(self.removexattr(&header, name)).await,
            Access { mask, .. } => Box::pin(self.access(&header, mask)).await,
            Statfs {} => Box::pin(self.statfs()).await,
            Ioctl { .. } => Err(Errno::because(ENOTTY, "no ioctl is known here")),
            Init { .. } => {
                let (answer, settled) = init::init(&request, self.options.consistency)?;
                settled.map(|settled| self.settled.set(settled));
                Ok(answer)
            }
            Destroy {} => Ok(Answer::Done),
            // The transport keeps these to itself.
            Forget { .. } | BatchForget { .. } | Interrupt { .. } => Ok(Answer::Done),
        }
    }
}

impl<F: Files> Service for Session<F> {
    fn handle(
        self: Arc<Self>,
        header: Header,
        request: Request,
    ) -> impl Future<Output = Result<Answer>> + 'static {
        let (uid, kind, begun) = (header.uid, request.name(), Instant::now());
        let written = if let Request::Write { size, .. } = &request { *size } else { 0 };
        async move {
            let outcome = self.clone().dispatch(header, request).await;
            self.counts.note(uid, kind, written, &outcome, begun.elapsed());
            outcome
        }
    }

    /// A wait for a lock ends at once. Anything else is only waited for by people when a server is
    /// gone: programs that take signals all the time (Go's do) must not see EINTR from a healthy
    /// file system, nor a create that happened and was denied.
    fn patience(&self, request: &Request) -> Duration {
        match request {
            Request::Setlkw { .. } => Duration::ZERO,
            _ => self.options.interrupt_grace,
        }
    }

    /// What was granted and not answered is given back, or granted again.
    fn is_wait(&self, request: &Request) -> bool {
        matches!(request, Request::Setlkw { .. })
    }
}

/// The tables are changed in single steps: one that a panic left behind is whole.
fn locked<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

const ENOTTY: u32 = 25;
