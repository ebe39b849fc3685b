//! The runtime's own descriptors, out of the program's way.
//!
//! Programs count on low numbers (the lowest free one is next) and close what they do not know. What
//! our threads open is moved up and remembered: the program's close(2) of such a number answers EBADF,
//! as if nothing were there.

use crate::boundary::{export, is_inside};
use crate::{real, table};
use libc::{c_int, c_uint};
use std::sync::{Mutex, MutexGuard, PoisonError};

static NUMBERS: Mutex<()> = Mutex::new(());

/// While it is held, the runtime gets no descriptor: for whoever closes all but the runtime's, and for
/// the time of a fork.
pub fn lock() -> MutexGuard<'static, ()> {
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a descriptor; one of ours is moved up and remembered before anybody can close it.
fn seated(make: impl FnOnce() -> c_int) -> c_int {
    if is_inside() {
        let _numbers = lock();
        move_up(make())
    } else {
        make()
    }
}

fn move_up(fd: c_int) -> c_int {
    if fd < 0 {
        return fd;
    }
    // SAFETY: the descriptor is our own.
    let high = unsafe {
        let high = real::fcntl()(fd, libc::F_DUPFD_CLOEXEC, i64::from(base()));
        if high >= 0 {
            real::close()(fd);
            high
        } else {
            fd
        }
    };
    table::note_internal(high);
    high
}

/// Where our numbers begin: below the limit that most programs run with.
pub fn base() -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    // SAFETY: the struct is ours.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (limit.rlim_cur.clamp(64, 1024) - 40) as c_int
}

export! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        // SAFETY: no pointers.
        seated(|| unsafe { real::socket()(domain, kind, protocol) })
    }
}

export! {
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int {
        // SAFETY: the caller's array of two.
        unsafe {
            if !is_inside() {
                return real::socketpair()(domain, kind, protocol, pair);
            }
            let _numbers = lock();
            let done = real::socketpair()(domain, kind, protocol, pair);
            if done == 0 {
                // The runtime makes one pair in a process's life, and a forked child goes on with it.
                for at in [pair, pair.add(1)] {
                    *at = move_up(*at);
                    table::keep(*at);
                }
            }
            done
        }
    }
}

export! {
    fn epoll_create1(flags: c_int) -> c_int {
        // SAFETY: no pointers.
        seated(|| unsafe { real::epoll_create1()(flags) })
    }
}

export! {
    fn eventfd(count: c_uint, flags: c_int) -> c_int {
        // SAFETY: no pointers.
        seated(|| unsafe { real::eventfd()(count, flags) })
    }
}
