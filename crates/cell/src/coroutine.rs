//! Coroutines with a stack of their own: the only context switch of Covey, done by `corosensei`.
//!
//! A coroutine runs until it asks for something ([`suspend`]); what resumes it brings the answer. It runs on a stack that
//! its caller gives as it is, small ones too: the functions called here need some hundred bytes, everything larger is done
//! by who resumes it, or by [`on_large_stack`].

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{CoroutineResult, Yielder};
use covey_wire::Span;
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::ptr;

/// What coroutines ask with `Q` and are answered with `A`.
pub struct Coroutine<Q: 'static, A: 'static> {
    inner: corosensei::Coroutine<A, Q, (), Place>,
    canary: Option<Canary>,
}

/// Where a coroutine runs.
enum Place {
    /// A mapping with a guard page.
    Own(DefaultStack),
    /// Memory of its caller.
    Given { base: StackPointer, limit: StackPointer, _keep: Box<dyn Any> },
}

// SAFETY: a mapping of ours has its guard page. Memory of the caller has none where no whole page fits: who gives it has
// promised to `Coroutine::on` that it is a stack, and the canary tells of an overflow at the next switch.
unsafe impl Stack for Place {
    #[inline]
    fn base(&self) -> StackPointer {
        match self {
            Place::Own(stack) => stack.base(),
            Place::Given { base, .. } => *base,
        }
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        match self {
            Place::Own(stack) => stack.limit(),
            Place::Given { limit, .. } => *limit,
        }
    }
}

/// Words at the far end of a stack that nobody writes to.
#[derive(Clone, Copy)]
struct Canary(*mut [u64; CANARY_WORDS]);

impl Canary {
    /// # Safety
    /// The words are there, aligned, and nobody else uses them.
    unsafe fn put(at: *mut [u64; CANARY_WORDS]) -> Canary {
        // SAFETY: promised by the caller.
        unsafe { at.write([CANARY; CANARY_WORDS]) };
        Canary(at)
    }

    #[inline]
    fn is_whole(self) -> bool {
        // SAFETY: `put` was promised that the words are there, for as long as the coroutine is.
        unsafe { self.0.read_volatile() == [CANARY; CANARY_WORDS] }
    }
}

/// The stack that was given is no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall;

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a stack has {STACK_BYTES_MIN} bytes at least")
    }
}

impl std::error::Error for TooSmall {}

/// How a step of a coroutine ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<Q> {
    /// It asks for something.
    Asks(Q),
    /// It has returned.
    Done,
}

thread_local! {
    /// The yielder of the coroutine that runs on this thread.
    static RUNNING: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

impl<Q: 'static, A: 'static> Coroutine<Q, A> {
    /// A coroutine on a stack of its own, with a guard page.
    pub fn new(stack_bytes: usize, body: impl FnOnce() + 'static) -> io::Result<Coroutine<Q, A>> {
        let stack = Place::Own(DefaultStack::new(stack_bytes)?);
        Ok(Coroutine { inner: start(stack, body), canary: None })
    }

    /// A coroutine on the caller's stack. `keep` is dropped with the coroutine.
    ///
    /// # Safety
    ///
    /// The memory is the coroutine's alone until it is dropped, and is large enough for what the body calls.
    pub unsafe fn on(
        stack: Span,
        keep: Box<dyn Any>,
        body: impl FnOnce() + 'static,
    ) -> Result<Coroutine<Q, A>, TooSmall> {
        let end = stack.end().ok_or(TooSmall)? as usize & !(ALIGNMENT - 1);
        let begin = (stack.address as usize).next_multiple_of(ALIGNMENT);
        if stack.bytes < STACK_BYTES_MIN as u64 || end <= begin {
            return Err(TooSmall);
        }
        let words = ptr::with_exposed_provenance_mut(begin);
        // SAFETY: the lowest bytes of memory that is the coroutine's; aligned.
        let canary = unsafe { Canary::put(words) };
        let limit = NonZeroUsize::new(begin + size_of::<[u64; CANARY_WORDS]>()).ok_or(TooSmall)?;
        let base = NonZeroUsize::new(end).ok_or(TooSmall)?;
        let stack = Place::Given { base, limit, _keep: keep };
        Ok(Coroutine { inner: start(stack, body), canary: Some(canary) })
    }

    /// Runs it until it asks for something or returns. The first answer is not seen by it.
    #[inline]
    pub fn resume(&mut self, answer: A) -> Step<Q> {
        match self.inner.resume(answer) {
            CoroutineResult::Yield(request) => Step::Asks(request),
            CoroutineResult::Return(()) => Step::Done,
        }
    }

    /// Whether it has kept within its stack, as far as the words at its end tell.
    #[inline]
    pub fn is_within_stack(&self) -> bool {
        self.canary.is_none_or(Canary::is_whole)
    }
}

impl<Q: 'static, A: 'static> Drop for Coroutine<Q, A> {
    /// One that has not returned is left where it is: frames of C cannot be unwound. What its frames own is leaked.
    fn drop(&mut self) {
        if self.inner.started() && !self.inner.done() {
            // SAFETY: nothing refers to its frames: who resumes it holds answers and requests by value.
            unsafe { self.inner.force_reset() };
        }
    }
}

impl<Q, A> fmt::Debug for Coroutine<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coroutine").finish_non_exhaustive()
    }
}

fn start<Q: 'static, A: 'static>(
    stack: Place,
    body: impl FnOnce() + 'static,
) -> corosensei::Coroutine<A, Q, (), Place> {
    corosensei::Coroutine::with_stack(stack, move |yielder: &Yielder<A, Q>, _| {
        RUNNING.set(ptr::from_ref(yielder).cast());
        body();
    })
}

/// Asks for something on behalf of the coroutine that runs. `None` outside any coroutine.
///
/// # Safety
///
/// The coroutines of this thread ask with `Q` and are answered with `A`.
#[inline]
pub unsafe fn suspend<Q: 'static, A: 'static>(request: Q) -> Option<A> {
    let running = RUNNING.get();
    if running.is_null() {
        return None;
    }
    RUNNING.set(ptr::null());
    // SAFETY: the yielder lives as long as its coroutine runs, which is now; its types are promised by the caller.
    let answer = unsafe { &*running.cast::<Yielder<A, Q>>() }.suspend(request);
    RUNNING.set(running);
    Some(answer)
}

/// Does work on the stack of the thread, which is large. Outside any coroutine it is just done.
///
/// # Safety
///
/// The coroutines of this thread ask with `Q` and are answered with `A`. The work does not call [`suspend`].
pub unsafe fn on_large_stack<Q: 'static, A: 'static, R>(work: impl FnOnce() -> R) -> R {
    let running = RUNNING.get();
    if running.is_null() {
        return apart(work);
    }
    RUNNING.set(ptr::null());
    let work = Here(work);
    // SAFETY: the yielder lives as long as its coroutine runs, which is now; its types are promised by the caller.
    let yielder = unsafe { &*running.cast::<Yielder<A, Q>>() };
    let result = yielder.on_parent_stack(move || work.done());
    RUNNING.set(running);
    result.0
}

/// A frame of its own: what the work needs must not become part of the frame of who is on a small stack.
#[inline(never)]
fn apart<R>(work: impl FnOnce() -> R) -> R {
    work()
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
        Here(apart(self.0))
    }
}

/// Less is no use to any function.
pub const STACK_BYTES_MIN: usize = 2048;
const ALIGNMENT: usize = 16;
const CANARY_WORDS: usize = 2;
const CANARY: u64 = 0x7175_6169_6c20_6e62;

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn ask(number: u32) -> u64 {
        // SAFETY: all coroutines of these tests have these types.
        unsafe { suspend::<u32, u64>(number) }.expect("in a coroutine")
    }

    #[test]
    fn a_coroutine_asks_and_is_answered_until_it_returns() {
        let mut cor = Coroutine::<u32, u64>::new(16 << 10, || {
            let answer = ask(1);
            assert_eq!(ask(answer as u32), 9);
        })
        .unwrap();
        assert_eq!(cor.resume(0), Step::Asks(1));
        assert_eq!(cor.resume(5), Step::Asks(5));
        assert_eq!(cor.resume(9), Step::Done);
    }

    #[test]
    fn two_coroutines_on_stacks_of_4096_bytes_take_turns() {
        let mut stacks = vec![[0u64; 512]; 2];
        let mut cors: Vec<_> = stacks
            .iter_mut()
            .enumerate()
            .map(|(index, stack)| {
                let address = stack.as_mut_ptr().expose_provenance() as u64;
                let body =
                    move || (0..3).for_each(|turn| assert_eq!(ask(turn * 10 + index as u32), 0));
                // SAFETY: the stack outlives its coroutine, which alone uses it.
                unsafe { Coroutine::<u32, u64>::on(Span::new(address, 4096), Box::new(()), body) }
                    .unwrap()
            })
            .collect();
        for turn in 0..3 {
            assert_eq!(cors[0].resume(0), Step::Asks(turn * 10));
            assert_eq!(cors[1].resume(0), Step::Asks(turn * 10 + 1));
        }
        assert!(cors.iter().all(Coroutine::is_within_stack));
        assert_eq!(cors[1].resume(0), Step::Done);
        assert_eq!(cors[0].resume(0), Step::Done);
    }

    #[test]
    fn a_broken_end_of_a_stack_is_noticed() {
        let mut stack = vec![0u64; 512];
        let address = stack.as_mut_ptr().expose_provenance() as u64;
        let body = move || {
            let lowest = ptr::with_exposed_provenance_mut::<u64>(address as usize);
            // SAFETY: within the stack, whose end this test breaks.
            unsafe { lowest.write_volatile(1) };
            ask(1);
        };
        // SAFETY: the stack outlives its coroutine.
        let cor =
            unsafe { Coroutine::<u32, u64>::on(Span::new(address, 4096), Box::new(()), body) };
        let mut cor = cor.unwrap();
        assert!(cor.is_within_stack());
        assert_eq!(cor.resume(0), Step::Asks(1));
        assert!(!cor.is_within_stack());
    }

    #[test]
    fn a_stack_that_is_too_small_is_refused() {
        let span = Span::new(4096, STACK_BYTES_MIN as u64 - 1);
        // SAFETY: it is refused before it is touched.
        let refused = unsafe { Coroutine::<u32, u64>::on(span, Box::new(()), || ()) };
        assert_eq!(refused.err(), Some(TooSmall));
    }

    #[test]
    fn one_that_is_dropped_before_its_end_gives_back_what_it_was_given() {
        let mut stack = vec![0u64; 512];
        let span = Span::new(stack.as_mut_ptr().expose_provenance() as u64, 4096);
        let token = Rc::new(());
        // SAFETY: the stack outlives its coroutine.
        let cor = unsafe {
            Coroutine::<u32, u64>::on(span, Box::new(token.clone()), || assert_eq!(ask(1), 0))
        };
        let mut cor = cor.unwrap();
        cor.resume(0);
        drop(cor);
        assert_eq!(Rc::strong_count(&token), 1);
    }

    #[test]
    fn large_work_is_done_on_the_large_stack() {
        let mut stack = vec![0u64; 512];
        let span = Span::new(stack.as_mut_ptr().expose_provenance() as u64, 4096);
        let body = || {
            // SAFETY: the types are those of this test.
            let sum = unsafe {
                on_large_stack::<u32, u64, _>(|| {
                    std::hint::black_box([1_u8; 64 << 10]).iter().map(|&one| u32::from(one)).sum()
                })
            };
            ask(sum);
        };
        // SAFETY: the stack outlives its coroutine.
        let cor = unsafe { Coroutine::<u32, u64>::on(span, Box::new(()), body) };
        assert_eq!(cor.unwrap().resume(0), Step::Asks(64 << 10));
    }

    #[test]
    fn outside_a_coroutine_nothing_is_asked() {
        // SAFETY: there is no coroutine.
        assert_eq!(unsafe { suspend::<u32, u64>(1) }, None);
    }
}
