//! Which descriptors are ours: open files of the file system, and those that the runtime works with.

use crate::boundary::{self, is_inside};
use crate::open::Open;
use libc::c_int;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is known of each number without a lock.
static KINDS: [AtomicU8; FDS_MAX] = [const { AtomicU8::new(NONE) }; FDS_MAX];
static TABLE: Mutex<BTreeMap<c_int, Arc<Open>>> = Mutex::new(BTreeMap::new());

/// The table.
pub type Table = BTreeMap<c_int, Arc<Open>>;

/// The open file of a descriptor, when it is ours and this thread is not in our own code.
pub fn find(fd: c_int) -> Option<Arc<Open>> {
    if !is_ours(fd) || is_inside() {
        return None;
    }
    boundary::lock(&TABLE).get(&fd).cloned()
}

/// Whether a descriptor is an open file of ours.
pub fn is_ours(fd: c_int) -> bool {
    kind(fd).is_some_and(|kind| kind.load(Ordering::Relaxed) == FILE)
}

/// Enters an open file; false when the number is beyond what is kept.
pub fn insert(fd: c_int, open: Arc<Open>) -> bool {
    let Some(kind) = kind(fd) else { return false };
    let before = lock().insert(fd, open);
    kind.store(FILE, Ordering::Relaxed);
    drop(before);
    true
}

/// Takes an open file out.
pub fn remove(fd: c_int) -> Option<Arc<Open>> {
    let kind = kind(fd)?;
    let removed = lock().remove(&fd);
    if removed.is_some() {
        kind.store(NONE, Ordering::Relaxed);
    }
    removed
}

/// The numbers of open files within a range, and those of the runtime.
pub fn within(first: u32, last: u32) -> (Vec<c_int>, Vec<c_int>) {
    let last = (last as usize).min(FDS_MAX - 1);
    let (mut files, mut internal) = (Vec::new(), Vec::new());
    for (fd, kind) in KINDS.iter().enumerate().take(last + 1).skip(first as usize) {
        match kind.load(Ordering::Relaxed) {
            FILE => files.push(fd as c_int),
            INTERNAL | KEPT => internal.push(fd as c_int),
            _ => {}
        }
    }
    (files, internal)
}

/// Whether a descriptor belongs to the runtime: the program does not know of it.
pub fn is_internal(fd: c_int) -> bool {
    kind(fd).is_some_and(|kind| kind.load(Ordering::Relaxed) >= INTERNAL)
}

/// Whether a descriptor of the runtime is good in the child of a fork, too.
pub fn is_kept(fd: c_int) -> bool {
    kind(fd).is_some_and(|kind| kind.load(Ordering::Relaxed) == KEPT)
}

/// Notes that a descriptor of the runtime is good in the child of a fork, too.
pub fn keep(fd: c_int) {
    if let Some(kind) = kind(fd) {
        kind.store(KEPT, Ordering::Relaxed);
    }
}

/// Notes a descriptor of the runtime.
pub fn note_internal(fd: c_int) {
    if let Some(kind) = kind(fd) {
        kind.store(INTERNAL, Ordering::Relaxed);
    }
}

/// Notes that a descriptor of the runtime is closed.
pub fn note_closed(fd: c_int) {
    if let Some(kind) = kind(fd) {
        kind.store(NONE, Ordering::Relaxed);
    }
}

/// For the time of a fork.
pub fn lock() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kind(fd: c_int) -> Option<&'static AtomicU8> {
    KINDS.get(usize::try_from(fd).ok()?)
}

/// Descriptors beyond this are not ours; opening one gives EMFILE.
const FDS_MAX: usize = 1 << 16;
const NONE: u8 = 0;
const FILE: u8 = 1;
const INTERNAL: u8 = 2;
const KEPT: u8 = 3;
