//! fcntl, OFD and flock locks, as all mounts and clients of the file system see them.
//!
//! fcntl's belong to the process and go with its first close of the file; the others belong to the
//! description. A child of a fork has a session of its own, so it holds none of its parent's locks:
//! POSIX says so of fcntl's, for the others it is our limit.

use crate::boundary::{Result, Stop, export, refuse, serve};
use crate::client::{client, wait, wait_or_signal};
use crate::descriptors::size;
use crate::open::Open;
use crate::report::COUNTS;
use crate::{real, table};
use covey_ninep::tree::Errno;
use covey_stripe::ops::{Id, RangeLock};
use libc::{c_int, c_short, off_t};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The struct, which has the name of a function.
type Flock = libc::flock;

/// F_GETLK, F_SETLK and F_SETLKW, of both kinds.
pub fn control(open: &Arc<Open>, command: c_int, lock: &mut Flock) -> Result<c_int> {
    COUNTS.locks.add(1);
    let is_own = matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
    if is_own && lock.l_pid != 0 {
        return refuse(libc::EINVAL);
    }
    let (start, end) = range(open, lock)?;
    let owner = if is_own { own(open) } else { PROCESS };
    let wanted = RangeLock {
        exclusive: c_int::from(lock.l_type) == libc::F_WRLCK,
        whole: false,
        start,
        end,
        owner,
        pid: std::process::id(),
    };
    let client = client()?;
    if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
        let held = wait(&client, client.getlock(open.id(), wanted))?;
        tell(lock, held, is_own);
        return Ok(0);
    }
    match c_int::from(lock.l_type) {
        libc::F_UNLCK => wait(&client, client.unlock(open.id(), wanted))?,
        libc::F_RDLCK if open.access() & 4 == 0 => return refuse(libc::EBADF),
        libc::F_WRLCK if open.access() & 2 == 0 => return refuse(libc::EBADF),
        libc::F_RDLCK | libc::F_WRLCK => {
            // Before it is granted: close must not forget one whose answer got lost.
            if is_own {
                open.note_own_locks();
            } else {
                locked_files().insert(open.id());
            }
            let waits = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
            take(open, wanted, waits)?;
        }
        _ => return refuse(libc::EINVAL),
    }
    Ok(0)
}

fn take(open: &Open, wanted: RangeLock, waits: bool) -> Result<()> {
    let client = client()?;
    let taking = client.lock(open.id(), wanted, waits);
    if waits { wait_or_signal(&client, taking) } else { wait(&client, taking) }
}

fn tell(lock: &mut Flock, held: Option<RangeLock>, is_own: bool) {
    let Some(held) = held else {
        lock.l_type = libc::F_UNLCK as c_short;
        return;
    };
    lock.l_type = if held.exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as c_short;
    lock.l_whence = libc::SEEK_SET as c_short;
    lock.l_start = held.start as off_t;
    lock.l_len = if held.end >= i64::MAX as u64 { 0 } else { (held.end - held.start + 1) as off_t };
    lock.l_pid = if is_own { -1 } else { held.pid as i32 };
}

/// The bytes that a flock means: first and last.
fn range(open: &Open, lock: &Flock) -> Result<(u64, u64)> {
    let base = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => open.page().offset.load(Ordering::Acquire),
        libc::SEEK_END => size(open)? as i64,
        _ => return refuse(libc::EINVAL),
    };
    let overflow = || Stop::from(Errno::EOVERFLOW);
    let start = base.checked_add(lock.l_start).ok_or_else(overflow)?;
    let (first, last) = match lock.l_len {
        0 => (start, -1),
        length if length > 0 => (start, start.checked_add(length - 1).ok_or_else(overflow)?),
        length => (start + length, start - 1),
    };
    if first < 0 {
        return refuse(libc::EINVAL);
    }
    Ok((first as u64, if last < 0 { u64::MAX } else { last as u64 }))
}

/// Files on which this process has asked for fcntl locks.
static LOCKED_FILES: Mutex<BTreeSet<Id>> = Mutex::new(BTreeSet::new());

/// For the time of a fork, too: the child holds none of its parent's.
pub fn locked_files() -> MutexGuard<'static, BTreeSet<Id>> {
    LOCKED_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process's fcntl locks on a file that it closes: the first close of any descriptor ends them all.
pub fn give_back(open: &Open) -> Result<()> {
    if !locked_files().remove(&open.id()) {
        return Ok(());
    }
    let client = client()?;
    wait(&client, client.unlock(open.id(), RangeLock::on_all_bytes(PROCESS, std::process::id())))
}

/// The locks of a description that goes.
pub fn give_back_own(open: &Open) -> Result<()> {
    let client = client()?;
    let owner = own(open);
    let pid = std::process::id();
    wait(&client, client.unlock(open.id(), RangeLock::on_file(owner, pid)))?;
    wait(&client, client.unlock(open.id(), RangeLock::on_all_bytes(owner, pid)))
}

export! { fn flock(fd: c_int, operation: c_int) -> c_int {
    match table::find(fd) {
        // SAFETY: no pointers.
        None => unsafe { real::flock()(fd, operation) },
        Some(open) => serve(|| {
            COUNTS.locks.add(1);
            open.note_own_locks();
            let mut wanted = RangeLock::on_file(own(&open), std::process::id());
            let waits = operation & libc::LOCK_NB == 0;
            match operation & !libc::LOCK_NB {
                libc::LOCK_UN => {
                    let client = client()?;
                    wait(&client, client.unlock(open.id(), wanted))?;
                }
                libc::LOCK_EX => take(&open, wanted, waits)?,
                libc::LOCK_SH => {
                    wanted.exclusive = false;
                    take(&open, wanted, waits)?;
                }
                _ => return refuse(libc::EINVAL),
            }
            Ok(0)
        }),
    }
} }

export! { fn lockf | lockf64(fd: c_int, command: c_int, length: off_t) -> c_int {
    let open = table::find(fd)?;
    // SAFETY: a flock of zeros is valid.
    let mut lock: Flock = unsafe { std::mem::zeroed() };
    lock.l_whence = libc::SEEK_CUR as c_short;
    lock.l_len = length;
    lock.l_type = libc::F_WRLCK as c_short;
    Some(serve(|| match command {
        libc::F_LOCK => control(&open, libc::F_SETLKW, &mut lock),
        libc::F_TLOCK => control(&open, libc::F_SETLK, &mut lock),
        libc::F_ULOCK => {
            lock.l_type = libc::F_UNLCK as c_short;
            control(&open, libc::F_SETLK, &mut lock)
        }
        libc::F_TEST => {
            control(&open, libc::F_GETLK, &mut lock)?;
            match c_int::from(lock.l_type) {
                libc::F_UNLCK => Ok(0),
                _ => refuse(libc::EACCES),
            }
        }
        _ => refuse(libc::EINVAL),
    }))
} else { real::lockf()(fd, command, length) } }

/// The owner of a description's flock and OFD locks.
pub fn own(open: &Open) -> u64 {
    open.owner << 1 | 1
}

/// The owner of a process's fcntl locks: sessions tell processes apart.
pub const PROCESS: u64 = 0;
