//! Glimpses: what a listing tells the kernel for a moment, although a name of a file cannot be taken back from it.
//!
//! To make the kernel forget a name takes the lock of its directory, whose holder may wait for our own answer. So
//! READDIRPLUS, and nothing else, tells names of files and attributes for [`LASTS`], under the lease of the directory
//! and of each file, and a lease that is taken back is given up when that moment is over. A walk over a tree then
//! asks for each directory, not for each file.
//!
//! The moment begins when the process that lists has *noted* the answer, and nothing says when the kernel lets it run.
//! But it holds the lock of its directory, shared, from before it asks until it has noted everything. So an answer is
//! noted
//!
//! - when the next request of its handle comes in, or the handle is closed,
//! - when a request comes in whose process holds the lock alone: it makes, moves or removes something there,
//! - when we have had the lock ourselves for an instant ([`Kernel`](super::Kernel) has a thread for that).
//!
//! One of the last two comes soon: who keeps us from the lock has just sent such a request, or holds it shared
//! and waits for no other client, unless to be told of its newest files. Until then nothing is given up; from then
//! on names wait for [`OVER`], and attributes for nothing, since INVAL_INODE is exact for what the kernel has.
//!
//! Who makes a file has the lock alone, too, and most often looks at the name again: it links, moves or removes it. So where
//! this mount has made [`MADE_MIN`] files and met nobody, the name of the next one is told for a moment as well, and noted by
//! the same signs.
//!
//! That wait is somebody else's change. Where it happens no more is told for a while, for longer each time: where
//! clients meet, next to nothing is lost.

use covey_stripe::ops::{Id, Lease};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What was told of which files, and what is noted.
#[derive(Default)]
pub struct Glimpses {
    state: Mutex<State>,
    /// Something was noted.
    noted: Notify,
}

#[derive(Default)]
struct State {
    /// Listings that may not be noted yet, by the directory's handle.
    told: HashMap<u64, Told>,
    /// The last number that was given to one.
    number: u64,
    /// Directories of which the kernel may use names of files, and until when.
    names: HashMap<Id, Instant>,
    /// The same for all directories: another process has told of them.
    all_until: Option<Instant>,
    /// Counts what was taken back.
    taken_back: u64,
    /// Files made since.
    made: u32,
    rest: Rest,
}

/// What was told to one handle.
struct Told {
    number: u64,
    dir: Id,
    files: Files,
    at: Instant,
}

/// Of which files.
enum Files {
    These(Vec<Id>),
    Any,
}

/// While this lasts nothing is told.
#[derive(Default)]
struct Rest {
    until: Option<Instant>,
    length: Duration,
}

/// A moment before something was asked for.
#[derive(Clone, Copy)]
pub struct Asked(u64);

/// Listings that are to be noted before a lease is given up.
#[derive(Default)]
pub struct Awaited {
    /// By handle, number and directory.
    told: Vec<(u64, u64, Id)>,
    /// The last number that there was.
    number: u64,
}

impl Glimpses {
    /// A listing is about to be asked for of which the kernel will be told.
    pub fn asking(&self) -> Asked {
        Asked(self.lock().taken_back)
    }

    /// Whether nothing is told for a while, since clients have met.
    pub fn rests(&self) -> bool {
        self.lock().rest.lasts(Instant::now())
    }

    /// The kernel is about to be told of these files, which were asked for since `asked`: false where nothing is to
    /// be told. Leases are looked at afterwards: whoever takes one back from here on waits.
    pub fn tell(&self, fh: u64, dir: Id, files: Vec<Id>, asked: Asked) -> bool {
        let mut state = self.lock();
        // What was taken back since it was asked for may have changed.
        if state.rest.lasts(Instant::now()) || state.taken_back != asked.0 || !state.has_place(fh) {
            return false;
        }
        state.enter(fh, dir, Files::These(files));
        true
    }

    /// The kernel is about to be told of a file that was just made, by its name; as [`Glimpses::tell`].
    pub fn tell_made(&self, dir: Id, file: Id, asked: Asked) -> bool {
        let mut state = self.lock();
        state.made = state.made.saturating_add(1);
        let now = Instant::now();
        if state.made <= MADE_MIN || state.rest.lasts(now) || state.taken_back != asked.0 {
            return false;
        }
        let by = MADE | dir;
        if !state.has_place(by) {
            // No lease is left under which these were told.
            state.told.retain(|fh, told| fh & MADE == 0 || now < told.at + LEASE_OVER);
            if !state.has_place(by) {
                return false;
            }
        }
        state.enter(by, dir, Files::These(vec![file]));
        true
    }

    /// All that a handle was told is noted.
    pub fn noted(&self, fh: u64) {
        self.note(|at, _| at == fh);
    }

    /// Somebody has had a directory's lock alone since the listing of this number: all is noted that was told
    /// up to then.
    pub fn locked(&self, dir: Id, up_to: u64) {
        self.note(|_, told| told.dir == dir && told.number <= up_to);
    }

    /// Leases are taken back: what is to be noted before.
    pub fn take_back(&self, leases: &[Lease]) -> Awaited {
        let mut state = self.lock();
        state.taken_back += 1;
        state.made = 0;
        let ids = || leases.iter().filter(|lease| !lease.place).map(|lease| lease.id);
        let met = state.told.iter().filter(|(_, told)| ids().any(|id| told.is_of(id)));
        let told: Vec<_> = met.map(|(&fh, told)| (fh, told.number, told.dir)).collect();
        let now = Instant::now();
        let is_listed = told.iter().any(|(.., dir)| ids().any(|id| id == *dir));
        if is_listed || ids().any(|id| state.names_until(id) > Some(now)) {
            state.rest.begin(now);
        }
        Awaited { told, number: state.number }
    }

    /// Completes when these listings are noted.
    pub async fn wait(&self, awaited: &Awaited) {
        loop {
            let mut noted = std::pin::pin!(self.noted.notified());
            noted.as_mut().enable();
            if !self.awaits(awaited) {
                return;
            }
            noted.await;
        }
    }

    /// Until when the kernel may use names that it was told under these leases, if that is not over.
    pub fn names_until(&self, leases: &[Lease]) -> Option<Instant> {
        let state = self.lock();
        let ids = leases.iter().filter(|lease| !lease.place).map(|lease| lease.id);
        let until = ids.filter_map(|id| state.names_until(id)).max();
        until.filter(|&until| until > Instant::now())
    }

    /// Another process may have told of anything.
    pub fn take_over(&self) {
        self.lock().all_until = Some(Instant::now() + OVER);
    }

    /// Another process may have told this handle of anything.
    pub fn take_over_handle(&self, fh: u64, dir: Id) {
        self.lock().enter(fh, dir, Files::Any);
    }

    fn awaits(&self, awaited: &Awaited) -> bool {
        let state = self.lock();
        // A handle that was told more since is one that has noted what was before.
        let is_there = |(fh, number, _): &(u64, u64, Id)| {
            state.told.get(fh).is_some_and(|told| told.number == *number)
        };
        awaited.told.iter().any(is_there)
    }

    fn note(&self, which: impl Fn(u64, &Told) -> bool) {
        let mut state = self.lock();
        if state.told.is_empty() {
            return;
        }
        let until = Instant::now() + OVER;
        let gone: Vec<(u64, Told)> = state.told.extract_if(|fh, told| which(*fh, told)).collect();
        if gone.is_empty() {
            return;
        }
        for (_, told) in gone {
            state.names.insert(told.dir, until);
        }
        drop(state);
        self.noted.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Awaited {
    /// Whether nothing is to be noted.
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// The directories whose locks tell when all is noted, and up to which number.
    pub fn dirs(&self) -> (Vec<Id>, u64) {
        let mut dirs: Vec<Id> = self.told.iter().map(|(.., dir)| *dir).collect();
        dirs.sort_unstable();
        dirs.dedup();
        (dirs, self.number)
    }
}

impl State {
    /// Whether one more may be told, or the same again. Who makes files takes no place from who lists them.
    fn has_place(&self, by: u64) -> bool {
        let is_alike = |other: &&u64| **other & MADE == by & MADE;
        self.told.len() < TOLD_MAX
            || self.told.contains_key(&by)
            || self.told.keys().filter(is_alike).count() < TOLD_MAX
    }

    fn enter(&mut self, fh: u64, dir: Id, files: Files) {
        let now = Instant::now();
        if self.names.len() >= NAMES_MAX {
            self.names.retain(|_, until| *until > now);
        }
        self.number += 1;
        let number = self.number;
        match self.told.get_mut(&fh) {
            // Its process has gone away from an answer that comes after all.
            Some(told) => told.add(files, number, now),
            None => drop(self.told.insert(fh, Told { number, dir, files, at: now })),
        }
    }

    fn names_until(&self, dir: Id) -> Option<Instant> {
        self.names.get(&dir).copied().max(self.all_until)
    }
}

impl Told {
    fn is_of(&self, id: Id) -> bool {
        let is_listed = || match &self.files {
            Files::These(files) => files.contains(&id),
            Files::Any => true,
        };
        self.dir == id || is_listed()
    }

    fn add(&mut self, files: Files, number: u64, at: Instant) {
        (self.number, self.at) = (number, at);
        match (&mut self.files, files) {
            (Files::These(before), Files::These(more)) => before.extend(more),
            (before, _) => *before = Files::Any,
        }
    }
}

impl Rest {
    fn lasts(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn begin(&mut self, now: Instant) {
        if self.lasts(now) {
            return;
        }
        let is_soon = self.until.is_some_and(|until| now < until + self.length);
        let length = if is_soon { self.length * 2 } else { REST_MIN };
        self.length = length.min(REST_MAX);
        self.until = Some(now + self.length);
    }
}

/// How long the kernel may use what it was just told, for which a lease lasts for so long.
pub fn lasts(left: Duration) -> Duration {
    if left > MARGIN { LASTS } else { Duration::ZERO }
}

/// How long the kernel may use it.
const LASTS: Duration = Duration::from_millis(100);

/// When nobody uses it any more, after it was noted: the kernel rounds up to ticks of its clock.
const OVER: Duration = Duration::from_millis(130);

/// What must be left of a lease: when it ends nobody is asked, so that a process has the time until then to note an
/// answer.
const MARGIN: Duration = Duration::from_millis(500);

/// Longer than a lease lasts, and what its server adds.
const LEASE_OVER: Duration = Duration::from_millis(1200);

/// Files that are made before their names are told: clients that make files in one directory in turn lose nothing.
const MADE_MIN: u32 = 64;

/// Beside handles of directories: who made a file there.
const MADE: u64 = 1 << 63;

const REST_MIN: Duration = Duration::from_secs(8);
const REST_MAX: Duration = Duration::from_secs(64);

/// Listings that are not noted, and as many directories in which files were made. Each change looks at all of them, and
/// whoever may open directories decides how many there are: beyond, nothing is told.
const TOLD_MAX: usize = 256;

/// Directories that are remembered before those are forgotten whose moment is over.
const NAMES_MAX: usize = 4096;

#[cfg(test)]
mod tests;
