//! What the kernel was told to remember, and how it is made to forget.
//!
//! Under leases the kernel may keep attributes, and the names of directories: paths are walked
//! without a request. Names of files, and that there are none, it keeps for a moment ([`glimpses`]);
//! else they are left to LOOKUP, which is answered from memory too.
//!
//! - **Attributes** are forgotten by INVAL_INODE, which takes no lock. An answer on its way is no
//!   danger: the kernel drops a GETATTR's that began before. Those of an inode that is about to be made
//!   are a glimpse.
//! - **Names of directories** are made to expire by INVAL_ENTRY, which takes the lock of the parent
//!   directory, so it is done by a thread of its own. Somebody who holds that lock waits for our
//!   answer, and that may have to wait for another client, whose lock may wait for us: but only
//!   where both move directories of one and the same directory, and then no longer than a lease
//!   lasts. To expire is not to be dropped: whatever is mounted below stays.

mod glimpses;

pub use glimpses::Asked;

use super::abi::reply::{InvalEntry, InvalInode, OutHeader, encode};
use super::takeover::state as takeover;
use covey_stripe::client::Forget;
use covey_stripe::ops::{Id, Lease};
use covey_wire::Name;
use glimpses::Glimpses;
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
    expiring: Beside<Place>,
    dropping: Beside<Id>,
}

/// A thread for one kind of work that may have to wait for the kernel.
struct Beside<T>(Mutex<mpsc::Sender<Job<T>>>);

/// What it is to be done to, and who waits for it.
type Job<T> = (T, oneshot::Sender<()>);

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
        let (places, glimpses) = Default::default();
        let kernel = Arc::new(Kernel { device, places, glimpses, expiring, dropping });
        Beside::start(&kernel, "fuse-names", expiries, Kernel::expire)?;
        Beside::start(&kernel, "fuse-pages", drops, |kernel, id| kernel.forget_inode(id, 0))?;
        Ok(kernel)
    }

    /// A directory's name is about to be told, for less than [`TOLD`].
    pub fn tell_place(&self, id: Id, parent: Id, name: &Name) {
        let place = Place { parent, name: name.clone(), told_at: Instant::now() };
        let mut places = self.places();
        places.sweep(place.told_at);
        places.by_id.insert(id, place);
    }

    /// Something is about to be asked for, to be told with [`Kernel::glimpse`].
    pub fn asking(&self) -> Asked {
        self.glimpses.asking()
    }

    /// For how long the kernel may use what it is about to be told of a file, or of the names in a
    /// directory, which was asked for since `asked`. `left`: of the lease on it, now.
    pub fn glimpse(&self, id: Id, asked: Asked, left: impl FnOnce() -> Duration) -> Duration {
        self.glimpses.tell(id, asked, left)
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
            let glimpsed_until = kernel.glimpses.take_back(&leases);
            Box::pin(async move {
                for id in expired {
                    kernel.forget_place(id).await;
                }
                if let Some(until) = glimpsed_until {
                    tokio::time::sleep_until(until.into()).await;
                    // What they came with may be open by now.
                    let of_files = leases.iter().filter(|lease| !lease.place);
                    of_files.for_each(|lease| kernel.forget_attributes(lease.id));
                }
            })
        })
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
        let namelen = place.name.len() as u32;
        let head = InvalEntry { parent: place.parent, namelen, flags: EXPIRE_ONLY };
        self.notify(NOTIFY_INVAL_ENTRY, &[&encode(&head), place.name.as_bytes(), b"\0"]);
    }

    fn notify(&self, code: u32, pieces: &[&[u8]]) {
        let length = OutHeader::BYTES + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let header = encode(&OutHeader { len: length as u32, error: code, unique: 0 });
        let mut slices = vec![IoSlice::new(&header)];
        slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
        match rustix::io::retry_on_intr(|| rustix::io::writev(&self.device, &slices)) {
            // NOENT: the kernel does not know it. NODEV, PERM, NOTCONN: not mounted, or no longer.
            Ok(_) | Err(OsError::NOENT | OsError::NODEV | OsError::PERM | OsError::NOTCONN) => {}
            Err(error) => tracing::error!("fuse: the kernel refused a notification: {error}"),
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
