//! Descriptors: close, dup and fcntl.

use crate::boundary::{Inside, Result, export, fail, is_inside, refuse, serve};
use crate::client::{self, client, wait};
use crate::open::Open;
use crate::{handover, locks, real, seat, stdio, table};
use libc::{c_int, c_long, c_uint, c_ulong};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What is owed when a descriptor of an open file goes.
fn closed(open: Arc<Open>) -> Result<c_int> {
    crate::aio::settle_all();
    locks::give_back(&open)?;
    if Arc::strong_count(&open) == 1 && open.has_own_locks() {
        locks::give_back_own(&open)?;
    }
    open.flush()?;
    Ok(0)
}

/// Closes a number that is ours: the number goes in any case, as Linux has it.
fn close_ours(fd: c_int) -> c_int {
    serve(|| {
        let open = table::remove(fd);
        // SAFETY: the number was ours.
        unsafe { real::close()(fd) };
        open.map_or(Ok(0), closed)
    })
}

export! {
    fn close(fd: c_int) -> c_int {
        if table::is_internal(fd) {
            if !is_inside() {
                return Some(fail(libc::EBADF));
            }
            table::note_closed(fd);
        }
        (table::is_ours(fd) && !is_inside()).then(|| close_ours(fd))
    } else { real::close()(fd) }
}

export! {
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if is_inside() || first > last {
            // SAFETY: no pointers.
            return unsafe { real::close_range()(first, last, flags) };
        }
        const KEEPS: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
        if flags & KEEPS == 0 {
            let (files, _) = table::within(first, last);
            files.into_iter().for_each(|fd| { close_ours(fd); });
        }
        // Which numbers are the runtime's is asked only now: to close a file may have started it. Nor
        // may it open anything, such as the configuration or a connection, until the range is closed.
        let _client = client::lock();
        let _numbers = seat::lock();
        let (_, internal) = table::within(first, last);
        let mut from = first;
        for fd in internal {
            if from < fd as c_uint {
                // SAFETY: no pointers.
                unsafe { real::close_range()(from, fd as c_uint - 1, flags) };
            }
            from = fd as c_uint + 1;
        }
        if from > last {
            return 0;
        }
        // SAFETY: no pointers.
        unsafe { real::close_range()(from, last, flags) }
    }
}

export! {
    fn closefrom(first: c_int) -> () {
        // SAFETY: no pointers.
        unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
    }
}

/// Enters a copy of a descriptor.
fn copied(from: c_int, to: c_int) -> c_int {
    let (true, Some(open)) = (to >= 0, table::find(from)) else { return to };
    if !table::insert(to, open) {
        // SAFETY: the copy is not known to anyone yet.
        unsafe { real::close()(to) };
        return fail(libc::EMFILE);
    }
    stdio::became_ours(to, stdio::Buffer::Lines);
    to
}

/// Makes room for a copy at a number that the program chose.
fn make_room(from: c_int, to: c_int) -> Result<c_int> {
    if table::is_internal(to) {
        return refuse(libc::EBUSY);
    }
    // SAFETY: no pointers.
    let is_open = unsafe { real::fcntl()(from, libc::F_GETFD, 0) } >= 0;
    if from != to
        && is_open
        && let Some(open) = table::remove(to)
    {
        closed(open)?;
    }
    Ok(0)
}

export! {
    fn dup(fd: c_int) -> c_int {
        // SAFETY: no pointers.
        copied(fd, unsafe { real::dup()(fd) })
    }
}

export! {
    fn dup2(fd: c_int, to: c_int) -> c_int {
        if is_inside() {
            // SAFETY: no pointers.
            return unsafe { real::dup2()(fd, to) };
        }
        if serve(|| make_room(fd, to)) < 0 {
            return -1;
        }
        // SAFETY: no pointers.
        copied(fd, unsafe { real::dup2()(fd, to) })
    }
}

export! {
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
        if is_inside() {
            // SAFETY: no pointers.
            return unsafe { real::dup3()(fd, to, flags) };
        }
        if fd != to && serve(|| make_room(fd, to)) < 0 {
            return -1;
        }
        // SAFETY: no pointers.
        copied(fd, unsafe { real::dup3()(fd, to, flags) })
    }
}

// Variadic in C, see `opening`.
export! {
    fn fcntl | fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                if is_inside() {
                    let low = argument.max(c_long::from(seat::base()));
                    // SAFETY: no pointers.
                    let made = unsafe { real::fcntl()(fd, command, low) };
                    table::note_internal(made);
                    return Some(made);
                }
                // SAFETY: no pointers.
                return Some(copied(fd, unsafe { real::fcntl()(fd, command, argument) }));
            }
            libc::F_GETFD | libc::F_SETFD => return None,
            _ => {}
        }
        let open = table::find(fd)?;
        // SAFETY: the program's own argument, as the command wants it.
        Some(serve(|| unsafe { control(&open, command, argument) }))
    } else { real::fcntl()(fd, command, argument) }
}
export! {
    fn __fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
        // SAFETY: the program's own arguments.
        unsafe { fcntl(fd, command, argument) }
    }
}

/// # Safety
///
/// For the commands of locks the argument is null or points to a flock.
unsafe fn control(open: &Arc<Open>, command: c_int, argument: c_long) -> Result<c_int> {
    match command {
        libc::F_GETFL => Ok(open.flags()),
        libc::F_SETFL => {
            let keep = open.flags() & !SETTABLE;
            open.page().flags.store(keep | argument as c_int & SETTABLE, Ordering::Relaxed);
            Ok(0)
        }
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => {
            let lock = argument as *mut libc::flock;
            if lock.is_null() {
                return refuse(libc::EFAULT);
            }
            // SAFETY: not null, so the caller's promise.
            locks::control(open, command, unsafe { &mut *lock })
        }
        _ => refuse(libc::EINVAL),
    }
}

const SETTABLE: c_int = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;

export! {
    fn ioctl(fd: c_int, request: c_ulong, argument: c_long) -> c_int {
        match table::find(fd) {
            // SAFETY: the program's own arguments.
            None => unsafe { real::ioctl()(fd, request, argument) },
            // FICLONE: cp and others copy the bytes when told so.
            Some(_) if request == 0x4004_9409 => fail(libc::EOPNOTSUPP),
            Some(_) => fail(libc::ENOTTY),
        }
    }
}

export! {
    failing(0) fn isatty(fd: c_int) -> c_int {
        if table::is_ours(fd) {
            crate::boundary::set_errno(libc::ENOTTY);
            return 0;
        }
        // SAFETY: no pointers.
        unsafe { real::isatty()(fd) }
    }
}

// Never fails.
export! {
    failing(set_umask(mask)) fn umask(mask: libc::mode_t) -> libc::mode_t {
        crate::names::note_umask(mask);
        set_umask(mask)
    }
}

fn set_umask(mask: libc::mode_t) -> libc::mode_t {
    // SAFETY: no pointers.
    unsafe { real::umask()(mask) }
}

/// The size of an open file at this moment.
pub fn size(open: &Open) -> Result<u64> {
    let client = client()?;
    Ok(wait(&client, client.inode(open.id()))?.size)
}

/// Tells the servers the exact times of what was written.
pub fn flush_all() {
    let all: Vec<Arc<Open>> = table::lock().values().cloned().collect();
    for open in all {
        // Nobody is left to hear of a failure.
        let _ = open.flush();
    }
}

/// Takes up what this program was started with.
pub fn inherit() {
    let _inside = Inside::enter();
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let fds = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let fds: Vec<c_int> = fds.collect();
    let handed = fds.iter().find_map(|fd| handover::take(*fd));
    // Descriptors that were made from each other are one description.
    let mut opens: BTreeMap<u64, Arc<Open>> = BTreeMap::new();
    for fd in fds {
        let before = handed.as_ref().and_then(|handed| handed.owner(fd));
        if let Some((which, open)) = Open::inherited(fd, before) {
            table::insert(fd, opens.entry(which).or_insert(open).clone());
        }
    }
    if let Some(handed) = handed {
        handover::resume(handed, opens.into_values().collect());
    }
}
