//! Processes: fork, exec, spawn and exit.

use crate::boundary::{Inside, export, fail, is_inside};
use crate::place::{Where, locate_path};
use crate::{
    client, cwd, descriptors, directories, handover, real, report, seat, signals, stdio, table,
};
use libc::{c_char, c_int, c_void, pid_t};
use std::ffi::{CStr, CString};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Strings = *const *const c_char;

/// What a fork must find at rest.
struct Held {
    client: MutexGuard<'static, client::Slot>,
    _numbers: MutexGuard<'static, ()>,
    table: MutexGuard<'static, table::Table>,
    _cwd: MutexGuard<'static, Option<cwd::Cwd>>,
    _directories: directories::Held,
    _stdio: stdio::Held,
    locks: MutexGuard<'static, std::collections::BTreeSet<u64>>,
    /// Last: a handler that waits for the end of the fork finds nothing held.
    _signals: Later,
}

/// Handlers wait until it is dropped.
struct Later(Option<u64>);

impl Drop for Later {
    fn drop(&mut self) {
        signals::release(self.0);
    }
}

// SAFETY: taken and let go by the one thread that forks.
unsafe impl Send for Held {}

static HELD: Mutex<Option<Held>> = Mutex::new(None);

fn held() -> MutexGuard<'static, Option<Held>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

export! {
/// Before a fork: all locks, so that none is held by a thread that the child does not have.
callback fn before_fork() {
    let signals = Later(signals::hold());
    let held_now = Held {
        client: client::lock(),
        _numbers: seat::lock(),
        table: table::lock(),
        _cwd: cwd::lock(),
        _directories: directories::lock(),
        _stdio: stdio::lock(),
        locks: crate::locks::locked_files(),
        _signals: signals,
    };
    *held() = Some(held_now);
} }

export! {
/// After a fork, in the parent.
callback fn after_fork_in_parent() {
    let taken = held().take();
    drop(taken);
} }

export! {
/// After a fork, in the child: the client, its thread and its connections are the parent's.
callback fn after_fork_in_child() {
    let taken = held().take();
    let Some(mut held) = taken else { return };
    let _inside = Inside::enter();
    client::forget(&mut held.client);
    held.locks.clear();
    for open in held.table.values_mut() {
        let ours = open.forked();
        std::mem::forget(std::mem::replace(open, ours));
    }
    let (_, internal) = table::within(0, u32::MAX);
    for fd in internal.into_iter().filter(|fd| !table::is_kept(*fd)) {
        // SAFETY: the runtime that used it is not here.
        unsafe { real::close()(fd) };
        table::note_closed(fd);
    }
    report::forget();
} }

/// What is owed before the process ends.
pub fn end() {
    settle(client::end);
}

/// What is owed before the process becomes another program, which may fail.
fn before_exec() -> Option<handover::Handed> {
    settle(handover::prepare).flatten()
}

fn settle<T>(last: impl FnOnce() -> T) -> Option<T> {
    if is_inside() {
        return None;
    }
    crate::aio::settle();
    let done = {
        let _inside = Inside::enter();
        descriptors::flush_all();
        last()
    };
    report::report();
    Some(done)
}

// A child of vfork would change our tables, which it shares with its parent.
export! {
    fn vfork() -> pid_t {
        // SAFETY: no arguments.
        unsafe { real::fork()() }
    }
}

// C has been promised that these do not return, whatever becomes of what is owed.
export! { failing(exit_now(code)) fn _exit(code: c_int) -> () {
    end();
    exit_now(code)
} }
export! { #[allow(non_snake_case)] failing(exit_now(code)) fn _Exit(code: c_int) -> () {
    end();
    exit_now(code)
} }

fn exit_now(code: c_int) {
    // SAFETY: does not return.
    unsafe { real::_exit()(code) }
}

/// An environment that tells where we are.
struct Environment {
    _cwd: CString,
    pointers: Vec<*const c_char>,
}

/// The program's environment with our working directory; none when that is the kernel's.
///
/// # Safety
///
/// `given` is null or a list of strings that ends with null.
unsafe fn environment(given: Strings) -> Option<Environment> {
    let (_, path) = cwd::of_ours()?;
    let name = cwd::VARIABLE.to_bytes();
    let cwd = CString::new([name, b"=", &path].concat()).ok()?;
    let mut pointers = Vec::new();
    let mut at = given;
    // SAFETY: the caller's promise.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at).to_bytes();
            if !(entry.starts_with(name) && entry.get(name.len()) == Some(&b'=')) {
                pointers.push(*at);
            }
            at = at.add(1);
        }
    }
    pointers.push(cwd.as_ptr());
    pointers.push(std::ptr::null());
    Some(Environment { _cwd: cwd, pointers })
}

fn pointer(environment: &Option<Environment>, given: Strings) -> Strings {
    environment.as_ref().map_or(given, |environment| environment.pointers.as_ptr())
}

/// Programs that lie in our files cannot be run: the kernel would have to map them.
unsafe fn is_ours(path: *const c_char) -> bool {
    // SAFETY: the program's own path.
    unsafe {
        matches!(locate_path(path), Where::Ours(_))
            && CStr::from_ptr(path).to_bytes().contains(&b'/')
    }
}

export! { fn execve(path: *const c_char, arguments: Strings, variables: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        if is_ours(path) {
            return fail(libc::EACCES);
        }
        let _handed = before_exec();
        let environment = environment(variables);
        real::execve()(path, arguments, pointer(&environment, variables))
    }
} }
export! { fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { execve(path, arguments, environ.cast()) }
} }
export! { fn execvpe(name: *const c_char, arguments: Strings, variables: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        if is_ours(name) {
            return fail(libc::EACCES);
        }
        let _handed = before_exec();
        let environment = environment(variables);
        real::execvpe()(name, arguments, pointer(&environment, variables))
    }
} }
export! { fn execvp(name: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { execvpe(name, arguments, environ.cast()) }
} }
export! { fn fexecve(fd: c_int, arguments: Strings, variables: Strings) -> c_int {
    if table::is_ours(fd) {
        return fail(libc::EACCES);
    }
    // SAFETY: the program's own arguments.
    unsafe {
        let _handed = before_exec();
        let environment = environment(variables);
        real::fexecve()(fd, arguments, pointer(&environment, variables))
    }
} }

type Spawn = unsafe extern "C" fn(
    *mut pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    *const *mut c_char,
    *const *mut c_char,
) -> c_int;

unsafe fn spawn(
    real: Spawn,
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    how: *const c_void,
    arguments: *const *mut c_char,
    variables: *const *mut c_char,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        if is_ours(path) {
            return libc::EACCES;
        }
        let environment = environment(variables.cast());
        let variables = pointer(&environment, variables.cast());
        real(pid, path, actions, how, arguments, variables.cast())
    }
}

export! { failing(libc::EIO) fn posix_spawn(
    pid: *mut pid_t, path: *const c_char, actions: *const c_void, how: *const c_void,
    arguments: *const *mut c_char, variables: *const *mut c_char
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { spawn(real::posix_spawn(), pid, path, actions, how, arguments, variables) }
} }
export! { failing(libc::EIO) fn posix_spawnp(
    pid: *mut pid_t, path: *const c_char, actions: *const c_void, how: *const c_void,
    arguments: *const *mut c_char, variables: *const *mut c_char
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { spawn(real::posix_spawnp(), pid, path, actions, how, arguments, variables) }
} }

unsafe extern "C" {
    static environ: *const *const c_char;
}
