//! The fence between C and us: every function that C calls is within it, from its first line to its last,
//! because [`export!`] is the only way to make one.
//!
//! Within the fence a panic becomes EIO. A call that we serve ([`serve`]) is inside, too: a refusal becomes
//! errno, and whatever our own code asks of libc is let through to libc: a thread that is inside never enters again. So tracing, allocation and
//! the runtime may use descriptors without coming back here. A handler of the program is none of our own code:
//! it waits until the thread has left ([`signals`]).

use crate::{real, signals};
use covey_io::boundary::{Panicked, fence};
use covey_ninep::tree::Errno;
use std::cell::Cell;
use std::ffi::CString;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a served call answers.
pub type Result<T> = std::result::Result<T, Stop>;

/// Why a call of ours has no result.
#[derive(Debug)]
pub enum Stop {
    /// It failed.
    Errno(Errno),
    /// A symbolic link of ours led to a path of this machine.
    Outside(CString),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Stop::Errno(errno)
    }
}

impl From<covey_stripe::client::Error> for Stop {
    fn from(error: covey_stripe::client::Error) -> Stop {
        Stop::Errno(error.into())
    }
}

impl From<u32> for Stop {
    fn from(code: u32) -> Self {
        Stop::Errno(code.into())
    }
}

/// A refusal with a code of libc.
pub fn refuse<T>(code: i32) -> Result<T> {
    Err(Stop::Errno((code as u32).into()))
}

/// The result that C sees when a call fails.
pub trait Answer {
    /// -1, null, or nothing.
    const FAILED: Self;
}

macro_rules! answers {
    ($($type:ty = $failed:expr),*) => {
        $(impl Answer for $type { const FAILED: Self = $failed; })*
    };
}
answers!(i32 = -1, i64 = -1, isize = -1, () = ());
impl<T> Answer for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The signals that were blocked before this thread entered, if others are held back since.
    static MASK: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Whether this thread is in our own code, so that its calls are libc's.
pub fn is_inside() -> bool {
    // A thread that is ending has no locals any more: it is let through as well.
    INSIDE.try_with(Cell::get).unwrap_or(true)
}

/// While it is held, this thread's calls go to libc, and handlers wait.
pub struct Inside {
    was_inside: bool,
    mask: Option<u64>,
}

impl Inside {
    /// Enters; leaving restores what was before.
    pub fn enter() -> Inside {
        let held = if is_inside() { None } else { signals::hold() };
        let was_inside = INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true);
        let mask = MASK.try_with(|mask| if was_inside { mask.get() } else { mask.replace(held) });
        Inside { was_inside, mask: mask.unwrap_or(None) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.was_inside {
            return;
        }
        let held = MASK.try_with(|mask| mask.replace(self.mask)).unwrap_or(None);
        let _ = INSIDE.try_with(|inside| inside.set(false));
        signals::release(held);
    }
}

/// While it lives handlers wait, and this thread's calls come to us as before: for work outside that allocates, which a
/// handler that allocates too must not interrupt.
pub struct Quiet(Option<u64>);

impl Quiet {
    /// Holds signals back.
    pub fn begin() -> Quiet {
        Quiet(signals::hold())
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        signals::release(self.0.take());
    }
}

/// A table of ours, locked. Its thread is inside meanwhile: a handler that ran there could ask for the table that its own
/// thread holds.
pub struct Locked<T: 'static> {
    // Let go of before handlers run.
    guard: MutexGuard<'static, T>,
    _inside: Inside,
}

/// Locks a table that others than the fork ask for.
pub fn lock<T>(table: &'static Mutex<T>) -> Locked<T> {
    let inside = Inside::enter();
    Locked { guard: table.lock().unwrap_or_else(PoisonError::into_inner), _inside: inside }
}

impl<T> Deref for Locked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Locked<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Lets handlers in while this thread waits. Those that run while it is outside are served as ever;
/// where something is held during the wait, they must not be.
pub struct Interruptible {
    is_outside: bool,
    /// A signal that was held back has ended the wait.
    pub is_over: bool,
}

impl Interruptible {
    /// Until it is dropped.
    pub fn enter(outside: bool) -> Interruptible {
        let is_outside = outside && is_inside();
        if is_outside {
            let _ = INSIDE.try_with(|inside| inside.set(false));
        }
        let held = MASK.try_with(Cell::get).unwrap_or(None);
        Interruptible { is_outside, is_over: signals::release(held) }
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        if MASK.try_with(Cell::get).unwrap_or(None).is_some() {
            signals::hold();
        }
        if self.is_outside {
            let _ = INSIDE.try_with(|inside| inside.set(true));
        }
    }
}

/// Serves a call: errno is set when it fails and kept when it succeeds.
pub fn serve<R: Answer>(work: impl FnOnce() -> Result<R>) -> R {
    serve_or(work, |_| fail(libc::EXDEV))
}

/// Serves a call that may turn out to be about a path of this machine.
pub fn serve_or<R: Answer>(
    work: impl FnOnce() -> Result<R>,
    outside: impl FnOnce(CString) -> R,
) -> R {
    let errno = errno();
    let outcome = {
        let _inside = Inside::enter();
        work()
    };
    match outcome {
        Ok(value) => {
            set_errno(errno);
            value
        }
        Err(Stop::Errno(refusal)) => fail(refusal.code as i32),
        Err(Stop::Outside(path)) => outside(path),
    }
}

/// Fails with an errno.
pub fn fail<R: Answer>(code: i32) -> R {
    set_errno(code);
    R::FAILED
}

/// This thread's errno.
pub fn errno() -> i32 {
    // SAFETY: libc's pointer to this thread's errno is always good.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's errno.
pub fn set_errno(code: i32) {
    // SAFETY: libc's pointer to this thread's errno is always good.
    unsafe { *libc::__errno_location() = code }
}

/// Says something on the stderr that the process was started with, in one write.
pub fn say(text: &str) {
    let line = format!("covey-preload: {text}\n");
    // SAFETY: the buffer lives through the call.
    unsafe { real::write()(STDERR.load(Ordering::Relaxed), line.as_ptr().cast(), line.len()) };
}

/// Keeps a copy of stderr for the last words: many programs close it before they end.
pub fn keep_stderr() {
    // SAFETY: no pointers.
    let copy = unsafe { real::fcntl()(2, libc::F_DUPFD_CLOEXEC, i64::from(crate::seat::base())) };
    if copy >= 0 {
        crate::table::keep(copy);
        STDERR.store(copy, Ordering::Relaxed);
    }
}

/// Where [`say`] speaks.
static STDERR: AtomicI32 = AtomicI32::new(2);

/// What a panic of ours says goes to libc directly: the thread may hold what a call of stderr's would ask for.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let _inside = Inside::enter();
        say(&format!("a fault of this library, its call fails with EIO: {panic}"));
    }));
}

/// Runs the whole of a function that C calls: a panic in it ends here, and is the call's failure with EIO.
///
/// It asks nothing of the system and allocates nothing; a call that does not panic finds its errno untouched.
#[inline]
pub fn fenced<R>(body: impl FnOnce() -> R, failed: impl FnOnce() -> R) -> R {
    let outcome = fence(|| {
        #[cfg(test)]
        tests::fall();
        body()
    });
    outcome.unwrap_or_else(|Panicked| {
        set_errno(libc::EIO);
        failed()
    })
}

/// Exports functions under their names in C, the whole body within the fence; of two names the second is the same
/// function, as on machines where `long` has 64 bits the large-file variants are.
///
/// - `failing(VALUE)` before it: what it answers after a panic, where that is not what [`Answer`] says.
/// - `else { CALL }` after it: libc's part, called when the body answers nothing. It is a thread's last step before it
///   sleeps in libc, and leaves the fence first: the end of a thread that is cancelled there (pthread_cancel) unwinds
///   through its caller, which no fence lets pass. `by_fd!(FD, CALL, |open| OURS)` is that for most calls on descriptors.
/// - `named("NAME")`: its name in C, where ours may not be the same.
/// - `callback`: what libc calls back. It is within the fence as well, and has no name in C.
macro_rules! export {
    ($(#[$meta:meta])* $(failing($failed:expr))? fn $name:ident | $alias:ident ($($arg:ident: $type:ty),* $(,)?) -> $ret:ty { $($body:tt)* } $(else $real:tt)?) => {
        crate::boundary::export!($(#[$meta])* $(failing($failed))? fn $name($($arg: $type),*) -> $ret { $($body)* } $(else $real)?);
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(clippy::missing_safety_doc)]
        pub unsafe extern "C" fn $alias($($arg: $type),*) -> $ret {
            // SAFETY: the same contract under another name; the fence is there.
            unsafe { $name($($arg),*) }
        }
    };
    ($(#[$meta:meta])* $(failing($failed:expr))? fn $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $ret:ty { by_fd!($fd:expr, $real:expr, |$open:ident| $ours:expr) }) => {
        crate::boundary::export!($(#[$meta])* $(failing($failed))? fn $name($($arg: $type),*) -> $ret {
            // SAFETY: the program's own arguments.
            #[allow(unused_unsafe)]
            crate::table::find($fd).map(|$open| crate::boundary::serve(|| unsafe { $ours }))
        } else { $real });
    };
    ($(#[$meta:meta])* $(failing($failed:expr))? fn $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $ret:ty { $($body:tt)* } else { $real:expr }) => {
        $(#[$meta])*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            let served = crate::boundary::fenced(move || -> Option<$ret> { $($body)* }, || Some(crate::boundary::export!(@failed $($failed)?)));
            match served {
                Some(answer) => answer,
                // SAFETY: the program's own arguments.
                None => unsafe { $real },
            }
        }
    };
    ($(#[$meta:meta])* $(failing($failed:expr))? fn $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $ret:ty { $($body:tt)* }) => {
        $(#[$meta])*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            crate::boundary::fenced(move || -> $ret { $($body)* }, || crate::boundary::export!(@failed $($failed)?))
        }
    };
    (named($symbol:literal) fn $name:ident ($($arg:ident: $type:ty),*) -> $ret:ty $body:block) => {
        #[cfg_attr(not(test), unsafe(export_name = $symbol))]
        #[allow(clippy::missing_safety_doc)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            crate::boundary::fenced(move || -> $ret { $body }, || crate::boundary::export!(@failed))
        }
    };
    ($(#[$meta:meta])* callback fn $name:ident () $body:block) => {
        $(#[$meta])*
        pub extern "C" fn $name() {
            crate::boundary::fenced(|| $body, || ())
        }
    };
    ($(#[$meta:meta])* $(failing($failed:expr))? callback fn $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $ret:ty $body:block) => {
        $(#[$meta])*
        unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            crate::boundary::fenced(move || -> $ret { $body }, || crate::boundary::export!(@failed $($failed)?))
        }
    };
    (@failed) => { crate::boundary::Answer::FAILED };
    (@failed $failed:expr) => { $failed };
}
pub(crate) use export;

#[cfg(test)]
mod tests;
