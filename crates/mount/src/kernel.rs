//! What the kernel was told to remember, and how it is made to forget.
//!
//! Under leases the kernel may keep attributes, and the names of directories: paths are walked
//! without a request. Names of files it keeps for a moment after a listing ([`glimpses`]); else they are
//! left to LOOKUP, which is answered from memory too.
//!
//! - **Attributes** are forgotten by INVAL_INODE, which takes no lock. An answer on its way is no
//!   danger: the kernel drops those of an inode that it has which were asked for before. Of an inode that it is about
//!   to make it is told by a listing, which is waited for.
//! - **Names of directories** are made to expire by INVAL_ENTRY, which takes the lock of the parent
//!   directory, so it is done by a thread of its own. Somebody who holds that lock waits for our
//!   answer, and that may have to wait for another client, whose lock may wait for us: but only
//!   where both move directories of one and the same directory, and then no longer than a lease
//!   lasts. To expire is not to be dropped: whatever is mounted below stays.

mod glimpses;
mod pages;

pub use glimpses::{Asked, lasts};
pub use pages::PageState;

use super::abi::reply::{InvalEntry, InvalInode, OutHeader, encode};
use super::takeover::state as takeover;
use covey_stripe::client::Forget;
use covey_stripe::ops::{Id, Lease};
use covey_wire::Name;
use glimpses::{Awaited, Glimpses};
use rustix::io::Errno as OsError;
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The kernel's memory of one mount.
pub struct Kernel {
    device: OwnedFd,
    places: Mutex<Places>,
    glimpses: Glimpses,
    stored: Mutex<pages::Stored>,
    expiring: Beside<Place>,
    dropping: Beside<Id>,
    noting: Beside<Id>,
}

/// A thread for one kind of work that may have to wait for the kernel.
struct Beside<T>(Mutex<mpsc::Sender<Job<T>>>);

/// What it is to be done to, and who waits for it.
type Job<T> = (T, oneshot::Sender<()>);

/// What became of a notification.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notified {
    Known,
    /// The kernel has nothing of the kind.
    Unknown,
    /// It had no memory, and has not even looked.
    Refused,
}

#[derive(Default)]
struct Places {
    by_id: HashMap<Id, Place>,
    swept_at: Option<Instant>,
}

/// Where the kernel knows a directory to be.
#[derive(Clone)]
struct Place {
    parent: Id,
    name: Name,
    told_at: Instant,
}

impl<T: Send + 'static> Beside<T> {
    fn new() -> (Self, mpsc::Receiver<Job<T>>) {
        let (sender, jobs) = mpsc::channel();
        (Beside(Mutex::new(sender)), jobs)
    }

    /// Starts the thread; it ends with the kernel's memory.
    fn start(
        kernel: &Arc<Kernel>,
        name: &str,
        jobs: mpsc::Receiver<Job<T>>,
        act: fn(&Kernel, T),
    ) -> io::Result<()> {
        let kernel = Arc::downgrade(kernel);
        std::thread::Builder::new().name(name.into()).spawn(move || {
            for (what, done) in jobs {
                let Some(kernel) = kernel.upgrade() else { return };
                act(&kernel, what);
                let _ = done.send(());
            }
        })?;
        Ok(())
    }

    /// Completes when it is done.
    async fn ask(&self, what: T) {
        let (done, waits) = oneshot::channel();
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if jobs.send((what, done)).is_ok() {
            let _ = waits.await;
        }
    }
}

impl Kernel {
    /// Speaks to the kernel by its own copy of the device.
    pub fn new(device: OwnedFd) -> io::Result<Arc<Kernel>> {
        let (expiring, expiries) = Beside::new();
        let (dropping, drops) = Beside::new();
        let (noting, locks) = Beside::new();
        let (places, glimpses, stored) = Default::default();
        let kernel = Kernel { device, places, glimpses, stored, expiring, dropping, noting };
        let kernel = Arc::new(kernel);
        Beside::start(&kernel, "fuse-names", expiries, Kernel::expire)?;
        Beside::start(&kernel, "fuse-pages", drops, |kernel, id| kernel.forget_inode(id, 0))?;
        Beside::start(&kernel, "fuse-noted", locks, Kernel::pass_lock)?;
        Ok(kernel)
    }

    /// A directory's name is about to be told, for less than [`TOLD`].
    pub fn tell_place(&self, id: Id, parent: Id, name: &Name) {
        let place = Place { parent, name: name.clone(), told_at: Instant::now() };
        let mut places = self.places();
        places.sweep(place.told_at);
        places.by_id.insert(id, place);
    }

    /// A listing is about to be asked for, to be told with [`Kernel::tell_listing`].
    pub fn asking(&self) -> Asked {
        self.glimpses.asking()
    }

    /// Whether nothing of a listing is told for a while.
    pub fn rests(&self) -> bool {
        self.glimpses.rests()
    }

    /// A directory's handle is about to be told of these files, asked for since `asked`; whether it may be.
    pub fn tell_listing(&self, fh: u64, dir: Id, files: Vec<Id>, asked: Asked) -> bool {
        self.glimpses.tell(fh, dir, files, asked)
    }

    /// The kernel is about to be told of a file that was asked to be made after `asked`, by its name; whether it may be.
    pub fn tell_made(&self, dir: Id, file: Id, asked: Asked) -> bool {
        self.glimpses.tell_made(dir, file, asked)
    }

    /// A directory's handle asks again, or is closed.
    pub fn listed(&self, fh: u64) {
        self.glimpses.noted(fh);
    }

    /// A request has come in whose process holds the directory's lock alone.
    pub fn locked(&self, dir: Id) {
        self.glimpses.locked(dir, u64::MAX);
    }

    /// Another process has had this handle.
    pub fn handle_in(&self, fh: u64, dir: Id) {
        self.glimpses.take_over_handle(fh, dir);
    }

    /// A name was moved here, by the kernel itself.
    pub fn moved(&self, from: (Id, &Name), to: (Id, &Name), exchanged: bool) {
        let now = Instant::now();
        for place in self.places().by_id.values_mut() {
            let here = (place.parent, &place.name);
            let there = match () {
                () if here == from => to,
                () if here == to && exchanged => from,
                () => continue,
            };
            *place = Place { parent: there.0, name: there.1.clone(), told_at: now };
        }
    }

    /// Where the kernel believes directories to be, for another process.
    pub fn places_out(&self) -> Vec<takeover::Place> {
        let now = Instant::now();
        let mut places = self.places();
        places.sweep(now);
        let out = |(&id, place): (&Id, &Place)| {
            let age = now.duration_since(place.told_at).as_millis();
            let (parent, name) = (place.parent, place.name.clone());
            takeover::Place { id, parent, name, age_ms: u64::try_from(age).unwrap_or(u64::MAX) }
        };
        places.by_id.iter().map(out).collect()
    }

    /// What another process has told the kernel.
    pub fn places_in(&self, places: &[takeover::Place]) {
        let now = Instant::now();
        self.glimpses.take_over();
        let mut known = self.places();
        for takeover::Place { id, parent, name, age_ms } in places {
            let told_at = now.checked_sub(Duration::from_millis(*age_ms)).unwrap_or(now);
            let place = Place { parent: *parent, name: name.detached(), told_at };
            known.by_id.insert(*id, place);
        }
    }

    /// Makes the kernel forget whatever is taken back.
    pub fn forget(self: &Arc<Self>) -> Forget {
        let kernel = self.clone();
        Box::new(move |leases| {
            let mut expired = Vec::new();
            for lease in leases {
                match lease {
                    Lease { id, place: false } => kernel.forget_attributes(*id),
                    Lease { id, place: true } => expired.push(*id),
                }
            }
            let (kernel, leases) = (kernel.clone(), leases.to_vec());
            let awaited = kernel.glimpses.take_back(&leases);
            Box::pin(async move {
                for id in expired {
                    kernel.forget_place(id).await;
                }
                for Lease { id, .. } in leases.iter().filter(|lease| !lease.place) {
                    if kernel.pages(*id).is_some() {
                        kernel.drop_pages_of_old(*id).await;
                    }
                }
                if !awaited.is_empty() {
                    kernel.wait_for(&awaited).await;
                    // What the kernel has made of it by now.
                    let of_files = leases.iter().filter(|lease| !lease.place);
                    of_files.for_each(|lease| kernel.forget_attributes(lease.id));
                }
                if let Some(until) = kernel.glimpses.names_until(&leases) {
                    tokio::time::sleep_until(until.into()).await;
                }
            })
        })
    }

    /// Completes when these listings are noted: the locks of their directories tell, if nothing else does before.
    async fn wait_for(&self, awaited: &Awaited) {
        let (dirs, up_to) = awaited.dirs();
        let locking = async {
            for dir in dirs {
                self.noting.ask(dir).await;
                self.glimpses.locked(dir, up_to);
            }
        };
        tokio::select! {
            () = self.glimpses.wait(awaited) => {}
            () = locking => {}
        }
    }

    /// Has the lock of a directory for an instant: it is taken to look for the name, which no entry has.
    fn pass_lock(&self, dir: Id) {
        while self.forget_name(dir, b".") == Notified::Refused {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The attributes of an inode; one that the kernel does not know is no error.
    pub fn forget_attributes(&self, id: Id) {
        self.forget_inode(id, u64::MAX);
    }

    /// The attributes, and the pages from `off` on.
    fn forget_inode(&self, id: Id, off: u64) {
        let what = encode(&InvalInode { ino: id, off, len: 0 });
        self.notify(NOTIFY_INVAL_INODE, &[&what]);
    }

    /// The pages of a file too; mapped ones that were changed are written first. Done by a thread of
    /// its own, since a page may be locked until we have answered a READ or WRITE of it.
    pub async fn forget_pages(&self, id: Id) {
        self.dropping.ask(id).await;
    }

    async fn forget_place(&self, id: Id) {
        let Some(place) = self.places().by_id.get(&id).cloned() else { return };
        self.expiring.ask(place.clone()).await;
        // An answer that was on its way into the kernel may have come after.
        if place.told_at.elapsed() < ON_THE_WAY {
            tokio::time::sleep(ON_THE_WAY).await;
            let place = self.places().by_id.remove(&id).unwrap_or(place);
            self.expiring.ask(place).await;
        }
    }

    fn expire(&self, place: Place) {
        self.forget_name(place.parent, place.name.as_bytes());
    }

    fn forget_name(&self, parent: Id, name: &[u8]) -> Notified {
        let head = InvalEntry { parent, namelen: name.len() as u32, flags: EXPIRE_ONLY };
        self.notify(NOTIFY_INVAL_ENTRY, &[&encode(&head), name, b"\0"])
    }

    fn notify(&self, code: u32, pieces: &[&[u8]]) -> Notified {
        let length = OutHeader::BYTES + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let header = encode(&OutHeader { len: length as u32, error: code, unique: 0 });
        let mut slices = vec![IoSlice::new(&header)];
        slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
        match rustix::io::retry_on_intr(|| rustix::io::writev(&self.device, &slices)) {
            Ok(_) => Notified::Known,
            // NOENT: the kernel does not know it. NODEV, PERM, NOTCONN: not mounted, or no longer.
            Err(OsError::NOENT | OsError::NODEV | OsError::PERM | OsError::NOTCONN) => {
                Notified::Unknown
            }
            Err(error) => {
                tracing::error!("fuse: the kernel refused a notification: {error}");
                if error == OsError::NOMEM { Notified::Refused } else { Notified::Unknown }
            }
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    /// Drops what the kernel no longer believes.
    fn sweep(&mut self, now: Instant) {
        if self.swept_at.is_some_and(|at| now.duration_since(at) < TOLD) {
            return;
        }
        self.swept_at = Some(now);
        self.by_id.retain(|_, place| now.duration_since(place.told_at) < TOLD * 2);
    }
}

/// Longer than any lease.
const TOLD: Duration = Duration::from_secs(2);

/// How long an answer may take from its write into the kernel until the process that waits for it
/// has noted it.
const ON_THE_WAY: Duration = Duration::from_millis(20);

/// FUSE_NOTIFY_INVAL_INODE and INVAL_ENTRY, where a reply has its error.
const NOTIFY_INVAL_INODE: u32 = 2;
const NOTIFY_INVAL_ENTRY: u32 = 3;

/// FUSE_EXPIRE_ONLY: ask again before the name is used. Kernels before 6.2 drop it instead.
const EXPIRE_ONLY: u32 = 1;
