//! Handlers of the program: they run between our calls, not in the middle of one.
//!
//! A handler may call write(2) and its like, also on a file of ours. In the middle of a call of ours that
//! could not be served: locks are held, and what our own code asks of libc is not for us. So signals that
//! have a handler wait until the call is over, as they do in the kernel while it reads or writes a file;
//! where a call may wait for long, for a lock, they are let in. Signals without a handler do what they
//! always do, and a program without handlers pays nothing.

use crate::boundary::export;
use crate::real;
use libc::{SIG_DFL, SIG_ERR, SIG_IGN, c_int, sighandler_t};
use std::sync::atomic::{AtomicU64, Ordering};

/// Signals that have a handler, a bit each, as the kernel counts them.
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// Those of them whose handler asks for the call to go on.
static RESTARTING: AtomicU64 = AtomicU64::new(0);

/// Holds signals that have a handler back from this thread; answers the mask before, for [`release`].
pub fn hold() -> Option<u64> {
    match HANDLED.load(Ordering::Relaxed) {
        0 => None,
        handled => Some(change(libc::SIG_BLOCK, handled)),
    }
}

/// What was held back comes now. Whether that ends a wait.
pub fn release(before: Option<u64>) -> bool {
    let Some(before) = before else { return false };
    let due = pending() & !before & HANDLED.load(Ordering::Relaxed);
    let ends = due & !RESTARTING.load(Ordering::Relaxed) != 0;
    change(libc::SIG_SETMASK, before);
    ends
}

fn change(how: c_int, set: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: both words live through the call, and the kernel's sets have 64 bits.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const set, &raw mut before, SET_BYTES);
    }
    before
}

fn pending() -> u64 {
    let mut set = 0_u64;
    // SAFETY: the word lives through the call, and the kernel's sets have 64 bits.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, SET_BYTES) };
    set
}

/// Signals that the thread brings on itself cannot wait.
fn bit(signal: c_int) -> u64 {
    const AT_ONCE: [c_int; 7] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
        libc::SIGABRT,
    ];
    match signal {
        1..=64 if !AT_ONCE.contains(&signal) => 1 << (signal - 1),
        _ => 0,
    }
}

fn is_function(handler: sighandler_t) -> bool {
    handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR
}

/// Before a handler is in place, so that it never runs where it must not.
fn note(signal: c_int, restarts: bool) {
    HANDLED.fetch_or(bit(signal), Ordering::Relaxed);
    if restarts {
        RESTARTING.fetch_or(bit(signal), Ordering::Relaxed)
    } else {
        RESTARTING.fetch_and(!bit(signal), Ordering::Relaxed)
    };
}

/// After it is gone.
fn forget(signal: c_int) {
    HANDLED.fetch_and(!bit(signal), Ordering::Relaxed);
}

export! { fn sigaction | __sigaction(
    signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let is_handler = !action.is_null() && is_function((*action).sa_sigaction);
        if is_handler {
            note(signal, (*action).sa_flags & libc::SA_RESTART != 0);
        }
        let done = real::sigaction()(signal, action, before);
        if done == 0 && !action.is_null() && !is_handler {
            forget(signal);
        }
        done
    }
} }

/// # Safety
///
/// `handler` is a function that may be called for the signal, or one of the constants.
unsafe fn set(signal: c_int, handler: sighandler_t, restarts: bool, real: Setter) -> sighandler_t {
    if is_function(handler) {
        note(signal, restarts);
    }
    // SAFETY: the caller's promise.
    let before = unsafe { real(signal, handler) };
    if before != SIG_ERR && !is_function(handler) {
        forget(signal);
    }
    before
}

type Setter = unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t;

export! { failing(SIG_ERR) fn signal | ssignal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the program's own handler.
    unsafe { set(number, handler, true, real::signal()) }
} }
export! { failing(SIG_ERR) fn bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the program's own handler.
    unsafe { set(number, handler, true, real::signal()) }
} }
export! { failing(SIG_ERR) fn sysv_signal | __sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the program's own handler.
    unsafe { set(number, handler, false, real::__sysv_signal()) }
} }

const SET_BYTES: usize = size_of::<u64>();
