//! The switch between stacks, by `corosensei`: for all processors.

use super::round::Desk;
use super::{Canary, Place};
use corosensei::Yielder;
use std::cell::Cell;
use std::ptr;

type Parent = Yielder<u64, u64>;

thread_local! {
    /// The yielder of the coroutine that runs on this thread.
    static RUNNING: Cell<*const Parent> = const { Cell::new(ptr::null()) };
}

/// A coroutine that asks with a word that is not 0, and is answered with a word.
pub(super) struct Context(corosensei::Coroutine<u64, u64, (), Place>, Canary);

/// Nobody is found by this: coroutines do not give way to each other.
#[derive(Clone, Copy)]
pub(super) struct Stand;

impl Stand {
    pub fn is_sound(self) -> bool {
        true
    }
}

impl Context {
    pub fn new(stack: Place, canary: Canary, body: impl FnOnce() + 'static) -> Context {
        let cor = corosensei::Coroutine::with_stack(stack, move |parent: &Parent, _| {
            RUNNING.set(ptr::from_ref(parent));
            body();
            RUNNING.set(ptr::null());
        });
        Context(cor, canary)
    }

    pub fn stand(&self) -> Stand {
        Stand
    }

    /// Runs it until it asks for something: 0 when it has returned, which it does once. A panic of its is passed on. `None`
    /// when it has overflowed its stack.
    #[inline]
    pub fn resume(&mut self, _: &mut Resumer, answer: u64) -> Option<u64> {
        let stopped = self.0.resume(answer);
        let asked = stopped.as_yield().unwrap_or(0);
        self.1.is_whole().then_some(asked)
    }
}

impl Drop for Context {
    /// What it was to do is dropped, if it has not begun. What its frames own is leaked.
    fn drop(&mut self) {
        if self.0.started() && !self.0.done() {
            // SAFETY: nothing refers to its frames: requests are borrowed from who has the context.
            unsafe { self.0.force_reset() };
        }
    }
}

/// The right to resume coroutines on this thread.
pub(super) struct Resumer;

impl Resumer {
    pub fn new(_: *mut Desk) -> Resumer {
        Resumer
    }
}

/// Nobody gives way here.
#[inline(always)]
pub(super) fn desk() -> *mut Desk {
    ptr::null_mut()
}

/// # Safety
///
/// Not to be called.
pub(super) unsafe fn hand_over(_: Stand, _: Stand, _: u64) {}

/// Asks on behalf of the coroutine that runs. `None` outside any.
#[inline(always)]
pub(super) fn suspend(request: u64) -> Option<u64> {
    let running = RUNNING.get();
    if running.is_null() {
        return None;
    }
    RUNNING.set(ptr::null());
    // SAFETY: the yielder lives as long as its coroutine runs, which is now.
    let answer = unsafe { &*running }.suspend(request);
    RUNNING.set(running);
    Some(answer)
}

/// Does work on the stack of who has resumed the coroutine that runs. Outside any it is just done.
pub(super) fn on_parent_stack<R>(work: impl FnOnce() -> R) -> R {
    let running = RUNNING.get();
    if running.is_null() {
        return work();
    }
    let _back = Outside(running);
    RUNNING.set(ptr::null());
    let work = Here(work);
    // SAFETY: the yielder lives as long as its coroutine runs, which is now.
    unsafe { &*running }.on_parent_stack(move || work.done()).0
}

/// A coroutine whose work is done elsewhere. Afterwards, also where that has panicked, it runs again.
struct Outside(*const Parent);

impl Drop for Outside {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

/// What is asked to be `Send` and never leaves its thread: the other stack is of the same one.
struct Here<T>(T);

// SAFETY: `on_parent_stack` runs its work on the calling thread.
unsafe impl<T> Send for Here<T> {}

impl<F> Here<F> {
    fn done<R>(self) -> Here<R>
    where
        F: FnOnce() -> R,
    {
        Here((self.0)())
    }
}
