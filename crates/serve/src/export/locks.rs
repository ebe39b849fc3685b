//! Byte-range locks of the export's clients.
//!
//! To the kernel this one process would be a single owner of locks. So each owner (a client's process)
//! gets an open file of its own for each file that it locks, and locks that belong to that open file: the
//! kernel then keeps owners apart, joins and splits ranges, and sees the locks of programs on
//! this machine. A table beside it remembers who holds what, for the answer to Tgetlock.

use super::object::{Handle, Node, Object};
use covey_io::os::ofd::{self, LockKind, Range};
use covey_ninep::tree::{Bell, Errno, Lock, LockStatus, Outcome, Result};
use covey_wire::Name;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// How long a lock is waited for before the client is told that it is taken. Linux's v9fs cannot be
/// interrupted by a signal while the server waits, and waits by itself between two tries.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(1);
/// The first pause between two tries; each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Whose locks: a process of a client, by what the client says, and never one of another user's.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Owner {
    uid: u32,
    client_id: Name,
    proc_id: u32,
}

/// All locks of the export, by the file's qid path.
#[derive(Default)]
pub(super) struct Locks {
    files: RefCell<HashMap<u64, HashMap<Owner, Weak<OwnerLocks>>>>,
    /// Rings when a client has given something back.
    freed: Bell,
}

/// One owner's locks on one file: gone when the last node that it used is gone.
pub(super) struct OwnerLocks {
    /// Open for the locks alone.
    file: OwnedFd,
    held: RefCell<Vec<Held>>,
}

/// Bytes `start..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    kind: LockKind,
    start: u64,
    last: u64,
}

impl Locks {
    /// Sets or gives back a lock. `open` opens the file for a new owner. Who waits is answered within
    /// [`WAIT_MAX`].
    pub fn set(
        self: &Rc<Self>,
        node: &Node,
        uid: u32,
        lock: Lock,
        open: impl FnOnce() -> Result<OwnedFd>,
    ) -> Outcome<LockStatus> {
        let owner = Owner::of(uid, &lock);
        let begin = || {
            let kind = kind_of(&lock)?;
            must_be_open(&node.0)?;
            let locks = match self.find(node.0.path, &owner) {
                Some(locks) => locks,
                None if kind == LockKind::Unlock => return Ok(None),
                None => Rc::new(OwnerLocks { file: open()?, held: RefCell::default() }),
            };
            Ok(if self.try_set(&node.0, &owner, &lock, kind, &locks)? {
                None
            } else {
                Some((kind, locks))
            })
        };
        match begin() {
            Ok(None) => Ok(LockStatus::Success).into(),
            Ok(Some(_)) if !lock.wait => Ok(LockStatus::Blocked).into(),
            Ok(Some((kind, locks))) => {
                let (all, node) = (self.clone(), node.clone());
                Outcome::later(async move { all.wait(node, owner, lock, kind, locks).await })
            }
            Err(error) => Err(error).into(),
        }
    }

    /// Tries again whenever a client gives something back, and now and then, for what programs on this
    /// machine give back. Dropped, it leaves nothing behind.
    async fn wait(
        self: Rc<Self>,
        node: Node,
        owner: Owner,
        lock: Lock,
        kind: LockKind,
        own: Rc<OwnerLocks>,
    ) -> Result<LockStatus> {
        let attempt = || {
            // The owner may have got another lock meanwhile.
            let locks = self.find(node.0.path, &owner).unwrap_or_else(|| own.clone());
            self.try_set(&node.0, &owner, &lock, kind, &locks)
        };
        let deadline = Instant::now() + WAIT_MAX;
        let mut pause = PAUSE_MIN;
        while Instant::now() < deadline {
            let freed = self.freed.wait(|| match attempt() {
                Ok(false) => None,
                done => Some(done),
            });
            if let Ok(done) = tokio::time::timeout(pause, freed).await {
                return done.map(|_| LockStatus::Success);
            }
            pause = (pause * 2).min(deadline.saturating_duration_since(Instant::now()));
        }
        Ok(LockStatus::Blocked)
    }

    /// Whether the lock could be had.
    fn try_set(
        &self,
        object: &Object,
        owner: &Owner,
        lock: &Lock,
        kind: LockKind,
        locks: &Rc<OwnerLocks>,
    ) -> Result<bool> {
        let range = Range { start: lock.start, length: lock.length };
        if !ofd::try_lock(&locks.file, kind, range)? {
            return Ok(false);
        }
        locks.note(kind, lock);
        self.remember(object, owner.clone(), locks);
        if kind != LockKind::Write {
            // It may have been a write lock before.
            self.freed.ring();
        }
        Ok(true)
    }

    /// What stands in the way of `lock`. `open` opens the file to ask the kernel.
    ///
    /// Linux's v9fs says "unlock" whatever kind it was asked about: that finds any lock of others, as
    /// the question for a write lock does. (The kernel here would refuse such a question, or answer
    /// with what the asker holds.)
    pub fn test(
        &self,
        object: &Object,
        uid: u32,
        mut lock: Lock,
        open: impl FnOnce() -> Result<OwnedFd>,
    ) -> Result<Lock> {
        let kind = match kind_of(&lock)? {
            LockKind::Unlock => LockKind::Write,
            kind => kind,
        };
        must_be_open(object)?;
        let owner = Owner::of(uid, &lock);
        if let Some((other, held)) = self.conflict(object.path, &owner, kind, &lock) {
            lock.kind = number_of(held.kind);
            (lock.start, lock.length) = (held.start, length_of(&held));
            (lock.client_id, lock.proc_id) = (other.client_id, other.proc_id);
            return Ok(lock);
        }
        // A lock of a program on this machine: it has no client.
        let own = self.find(object.path, &owner);
        let range = Range { start: lock.start, length: lock.length };
        let found = match own {
            Some(own) => ofd::obstacle(&own.file, kind, range)?,
            None => ofd::obstacle(open()?, kind, range)?,
        };
        lock.kind = number_of(found.map_or(LockKind::Unlock, |found| found.kind));
        if let Some(found) = found {
            (lock.start, lock.length) = (found.range.start, found.range.length);
            (lock.client_id, lock.proc_id) = (Name::EMPTY, found.pid.unwrap_or(0));
        }
        Ok(lock)
    }

    fn find(&self, path: u64, owner: &Owner) -> Option<Rc<OwnerLocks>> {
        self.files.borrow().get(&path)?.get(owner)?.upgrade()
    }

    /// The owner's locks live as long as a node that was used to take some.
    fn remember(&self, object: &Object, owner: Owner, locks: &Rc<OwnerLocks>) {
        let mut nodes = object.locks.borrow_mut();
        if !nodes.iter().any(|known| Rc::ptr_eq(known, locks)) {
            nodes.push(locks.clone());
        }
        let mut files = self.files.borrow_mut();
        let owners = files.entry(object.path).or_default();
        owners.insert(owner, Rc::downgrade(locks));
    }

    /// Forgets the owners whose last node on this file is gone.
    pub fn tidy(&self, path: u64) {
        {
            let mut files = self.files.borrow_mut();
            let Some(owners) = files.get_mut(&path) else { return };
            owners.retain(|_, locks| locks.strong_count() > 0);
            if owners.is_empty() {
                files.remove(&path);
            }
        }
        self.freed.ring();
    }

    /// A write lock, if there is one: it is in the way of whatever the client has in mind.
    fn conflict(
        &self,
        path: u64,
        asker: &Owner,
        kind: LockKind,
        lock: &Lock,
    ) -> Option<(Owner, Held)> {
        let files = self.files.borrow();
        let others = files.get(&path)?.iter().filter(|(owner, _)| *owner != asker);
        let in_the_way = others.filter_map(|(owner, locks)| {
            let held = locks.upgrade()?.conflict(kind, lock)?;
            Some((owner.clone(), held))
        });
        in_the_way.max_by_key(|(_, held)| held.kind == LockKind::Write)
    }
}

impl Owner {
    fn of(uid: u32, lock: &Lock) -> Owner {
        Owner { uid, client_id: lock.client_id.clone(), proc_id: lock.proc_id }
    }
}

impl OwnerLocks {
    /// Notes what the kernel has granted: the range has this kind now, whatever it had before.
    fn note(&self, kind: LockKind, lock: &Lock) {
        let (start, last) = (lock.start, last_of(lock));
        let mut held = self.held.borrow_mut();
        let mut rest = Vec::with_capacity(held.len() + 2);
        for old in held.drain(..) {
            if old.start < start {
                rest.push(Held { last: old.last.min(start - 1), ..old });
            }
            if old.last > last {
                rest.push(Held { start: old.start.max(last + 1), ..old });
            }
        }
        rest.retain(|old| old.start <= old.last);
        if kind != LockKind::Unlock {
            rest.push(Held { kind, start, last });
        }
        *held = rest;
    }

    fn conflict(&self, kind: LockKind, lock: &Lock) -> Option<Held> {
        let (start, last) = (lock.start, last_of(lock));
        let is_in_the_way = |held: &&Held| {
            let conflicts = kind == LockKind::Write || held.kind == LockKind::Write;
            conflicts && held.start <= last && start <= held.last
        };
        let held = self.held.borrow();
        held.iter().filter(is_in_the_way).max_by_key(|held| held.kind == LockKind::Write).copied()
    }
}

/// Locks are for those who have opened the file, which the mode has let them do. Any open will do, as
/// for flock(2), which v9fs makes locks of.
fn must_be_open(object: &Object) -> Result<()> {
    match object.handle {
        Handle::Place(_) => Err(Errno::EBADF.into()),
        Handle::File { .. } | Handle::Dir(_) => Ok(()),
    }
}

fn last_of(lock: &Lock) -> u64 {
    match lock.length {
        0 => u64::MAX,
        length => lock.start.saturating_add(length - 1),
    }
}

fn length_of(held: &Held) -> u64 {
    if held.last == u64::MAX { 0 } else { held.last - held.start + 1 }
}

fn kind_of(lock: &Lock) -> Result<LockKind> {
    match lock.kind {
        0 => Ok(LockKind::Read),
        1 => Ok(LockKind::Write),
        2 => Ok(LockKind::Unlock),
        _ => Err(Errno::EINVAL.into()),
    }
}

fn number_of(kind: LockKind) -> u8 {
    match kind {
        LockKind::Read => 0,
        LockKind::Write => 1,
        LockKind::Unlock => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(kind: u8, start: u64, length: u64) -> Lock {
        Lock { kind, start, length, proc_id: 1, client_id: Name::from("a"), wait: false }
    }

    #[test]
    fn ranges_are_split_by_what_comes_later() {
        let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let locks = OwnerLocks { file, held: RefCell::default() };
        locks.note(LockKind::Write, &lock(1, 0, 0));
        locks.note(LockKind::Read, &lock(0, 10, 10));
        locks.note(LockKind::Unlock, &lock(2, 15, 100));
        let mut held = locks.held.borrow().clone();
        held.sort_by_key(|held| held.start);
        let shown: Vec<_> =
            held.iter().map(|h| (number_of(h.kind), h.start, length_of(h))).collect();
        assert_eq!(shown, [(1, 0, 10), (0, 10, 5), (1, 115, 0)]);
        assert_eq!(locks.conflict(LockKind::Read, &lock(0, 10, 105)), None);
        assert!(locks.conflict(LockKind::Write, &lock(1, 14, 1)).is_some());
    }
}
