//! Transfers that a coroutine does by itself, on its own stack: what the worker would do, in the same order, without a switch
//! to the worker and back.
//!
//! ```text
//!   read:   asked for ──► the file's memory is asked for ──► gives way ... its turn ──► copied
//!   write:  copied
//! ```
//!
//! It is so where nobody records a trace and the file's line holds. All else is asked of the worker, before anything has
//! changed; or after, with [`Begun`], if the line has changed meanwhile. Who waits for its turn so waits for that alone: the
//! one before it gives way to it directly.

use super::copies::{IN_A_ROW_MAX, announce, copy_at_a_stroke, may_be_whole};
use super::files::Files;
use super::{Answer, Copy, Ground, Request};
use crate::coroutine::{counter, give_way, gone_on, may_go_on, suspend};
use covey_wire::Span;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A read whose turn has come, and which the worker has to finish.
#[derive(Debug)]
pub struct Begun(pub(super) Copy);

/// What coroutines use of their worker.
pub(super) struct Counter<G> {
    files: NonNull<Files>,
    ground: NonNull<G>,
    number: u32,
}

impl<G: Ground> Counter<G> {
    pub fn new(files: &Own<Files>, ground: &Own<G>, number: u32) -> Counter<G> {
        Counter { files: files.0, ground: ground.0, number }
    }

    /// That of the worker whose coroutine runs, where it may be used.
    ///
    /// # Safety
    ///
    /// The coroutines of this thread are those of a `Worker<G>`, and the caller is one of them, as long as it has this.
    #[inline(always)]
    unsafe fn here<'a>() -> Option<&'a Counter<G>> {
        // SAFETY: a worker has put it there, and keeps it as long as its coroutines run.
        unsafe { counter().cast::<Counter<G>>().as_ref() }
    }

    #[inline(always)]
    fn ground(&self) -> &G {
        // SAFETY: the worker stands still, with no reference to what is its own.
        unsafe { self.ground.as_ref() }
    }

    /// Does something with the files.
    #[inline(always)]
    fn with_files<T>(&self, act: impl FnOnce(&mut Files) -> T) -> T {
        // SAFETY: the same, and coroutines have no reference to them but here, where none is switched.
        act(unsafe { &mut *self.files.as_ptr() })
    }
}

/// Reads: how much, or what is to be asked of the worker.
///
/// # Safety
///
/// The coroutines of this thread are those of a `Worker<G>`. The memory is the caller's.
#[inline(always)]
pub unsafe fn read<G: Ground>(fd: i32, to: Span, at: Option<u64>) -> Result<u64, Request> {
    let ask = Request::Read { fd, to, at };
    // SAFETY: promised by the caller.
    let Some(counter) = (unsafe { Counter::<G>::here() }) else { return Err(ask) };
    let Some(copy) = counter.with_files(|files| files.look(fd, true, to, at)) else {
        return Err(ask);
    };
    if !may_be_whole(counter.ground(), &copy) {
        return Err(ask);
    }
    announce(counter.ground(), &copy);
    counter.with_files(|files| files.advance(&copy));
    if !give_way() {
        // SAFETY: the coroutines of a worker ask so. The worker comes back when it is this one's turn.
        let _ = unsafe { suspend::<Request, Answer>(Request::Yield) };
    }
    let done = copy_at_a_stroke(counter.ground(), counter.number, &copy);
    done.ok_or(Request::Finish(Begun(copy)))
}

/// Writes: how much, or what is to be asked of the worker.
///
/// # Safety
///
/// The coroutines of this thread are those of a `Worker<G>`. The memory is the caller's.
#[inline(always)]
pub unsafe fn write<G: Ground>(fd: i32, from: Span, at: Option<u64>) -> Result<u64, Request> {
    let ask = Request::Write { fd, from, at };
    // SAFETY: promised by the caller.
    let Some(counter) = (unsafe { Counter::<G>::here() }) else { return Err(ask) };
    if !may_go_on(IN_A_ROW_MAX) {
        return Err(ask);
    }
    let Some(copy) = counter.with_files(|files| files.look(fd, false, from, at)) else {
        return Err(ask);
    };
    let Some(bytes) = copy_at_a_stroke(counter.ground(), counter.number, &copy) else {
        return Err(ask);
    };
    counter.with_files(|files| files.advance(&copy));
    gone_on();
    Ok(bytes)
}

/// Something of a worker that its coroutines use, too, while they run: then nobody has a reference to it.
pub(super) struct Own<T>(NonNull<T>);

impl<T> Own<T> {
    pub fn new(own: T) -> Own<T> {
        Own(NonNull::from(Box::leak(Box::new(own))))
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: it is there as long as this, and no coroutine runs while somebody has the reference.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for Own<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the same, and the caller has this alone.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`, and no coroutine runs.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
