//! Coroutines with a stack of their own: the only context switch of Covey.
//!
//! A coroutine runs until it asks for something ([`suspend`]); what resumes it brings the answer. It runs on a stack that
//! its caller gives as it is, small ones too: the functions called here need some hundred bytes, everything larger is done
//! by who resumes it, or by [`on_large_stack`].
//!
//! Nothing is copied at a switch: a request stays where the coroutine has made it, and an answer fits a register. What is
//! stored in parts and loaded as a whole waits until all stores before it have left the processor, which after a copy of
//! some kilobytes takes longer than the switch.

#[cfg(any(test, not(all(target_arch = "x86_64", target_os = "linux"))))]
#[cfg_attr(test, allow(dead_code))]
mod portable;
mod round;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod switch;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
use portable as switch;

pub use round::{Round, give_way};
pub(crate) use round::{counter, gone_on, may_go_on};

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use covey_wire::Span;
use std::any::Any;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::num::NonZeroUsize;
use std::ptr;

/// What coroutines ask with `Q` and are answered with `A`, which fits a register.
pub struct Coroutine<Q: 'static, A: 'static> {
    context: switch::Context,
    _asks: PhantomData<(*mut Q, A)>,
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

/// A word at the far end of a stack that nobody writes to.
#[derive(Clone, Copy)]
struct Canary(*const u64);

impl Canary {
    /// # Safety
    /// The word is there, aligned, and nobody else uses it.
    unsafe fn put(at: *mut u64) -> Canary {
        // SAFETY: promised by the caller.
        unsafe { at.write(CANARY) };
        Canary(at)
    }

    /// Of a stack that has a guard page: nobody writes behind its end.
    fn behind_a_guard() -> Canary {
        static WHOLE: u64 = CANARY;
        Canary(&raw const WHOLE)
    }

    #[inline(always)]
    fn is_whole(self) -> bool {
        // SAFETY: `put` was promised that the word is there, for as long as the coroutine is.
        unsafe { self.0.read_volatile() == CANARY }
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

/// The right to resume coroutines on this thread. While it is there, the thread runs no program but in its coroutines.
pub struct Resumer(switch::Resumer);

impl Resumer {
    /// Begins to resume coroutines one by one.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Resumer {
        Resumer(switch::Resumer::new(ptr::null_mut()))
    }

    /// Begins to resume those that are first in a round. They may give way to each other: who asks for something is then
    /// another one, and is first. The round outlives this.
    pub fn of(round: &Round) -> Resumer {
        Resumer(switch::Resumer::new(round.shared()))
    }
}

impl fmt::Debug for Resumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resumer").finish_non_exhaustive()
    }
}

/// How a step of a coroutine ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<Q> {
    /// It asks for something.
    Asks(Q),
    /// It has returned.
    Done,
    /// It has written behind the end of its stack: it cannot be trusted, and is not resumed again.
    Overflow,
}

impl<Q: 'static, A: 'static> Coroutine<Q, A> {
    /// A coroutine on a stack of its own, with a guard page.
    pub fn new(stack_bytes: usize, body: impl FnOnce() + 'static) -> io::Result<Coroutine<Q, A>> {
        Coroutine::with_stack(stack_bytes, body).map(|(cor, _)| cor)
    }

    /// The same, and where its stack is, without the guard page.
    pub fn with_stack(
        stack_bytes: usize,
        body: impl FnOnce() + 'static,
    ) -> io::Result<(Coroutine<Q, A>, Span)> {
        let stack = DefaultStack::new(stack_bytes)?;
        let bytes = stack_bytes as u64;
        let span = Span::new((stack.base().get() as u64).saturating_sub(bytes), bytes);
        Ok((Coroutine::begun(Place::Own(stack), Canary::behind_a_guard(), body), span))
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
        let word = ptr::with_exposed_provenance_mut(begin);
        // SAFETY: the lowest bytes of memory that is the coroutine's; aligned.
        let canary = unsafe { Canary::put(word) };
        let limit = NonZeroUsize::new(begin + ALIGNMENT).ok_or(TooSmall)?;
        let base = NonZeroUsize::new(end).ok_or(TooSmall)?;
        let stack = Place::Given { base, limit, _keep: keep };
        Ok(Coroutine::begun(stack, canary, body))
    }

    fn begun(stack: Place, canary: Canary, body: impl FnOnce() + 'static) -> Coroutine<Q, A> {
        let context = switch::Context::new(stack, canary, body);
        Coroutine { context, _asks: PhantomData }
    }

    /// Runs it until it asks for something or returns. The first answer is not seen by it. One that has returned cannot be
    /// resumed: that aborts or panics.
    ///
    /// # Safety
    ///
    /// While the request is borrowed, who asks is not dropped: this one, or the one that is first in the resumer's round.
    #[inline(always)]
    pub unsafe fn resume<'a>(&mut self, by: &'a mut Resumer, answer: A) -> Step<&'a mut Q> {
        let Some(asked) = self.context.resume(&mut by.0, word(answer)) else {
            return Step::Overflow;
        };
        // SAFETY: the request lies in the frame of `suspend`, which stands still until the coroutine is resumed, which needs
        // what this borrows, or dropped, which the caller does not.
        match unsafe { ptr::with_exposed_provenance_mut::<Q>(asked as usize).as_mut() } {
            Some(request) => Step::Asks(request),
            None => Step::Done,
        }
    }
}

/// An answer as a word.
#[inline(always)]
fn word<A>(answer: A) -> u64 {
    const { assert!(size_of::<A>() == size_of::<u64>()) };
    let answer = mem::ManuallyDrop::new(answer);
    // SAFETY: both have the same bytes, and the answer is used no more.
    unsafe { mem::transmute_copy(&answer) }
}

impl<Q, A> fmt::Debug for Coroutine<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coroutine").finish_non_exhaustive()
    }
}

/// Asks for something on behalf of the coroutine that runs. `None` outside any coroutine.
///
/// # Safety
///
/// The coroutines of this thread ask with `Q` and are answered with `A`.
#[inline(always)]
pub unsafe fn suspend<Q: 'static, A: 'static>(mut request: Q) -> Option<A> {
    let request = ptr::from_mut(&mut request).expose_provenance() as u64;
    // SAFETY: promised by the caller: the word is what `resume` has made of such an answer.
    switch::suspend(request).map(|word| unsafe { mem::transmute_copy(&word) })
}

/// Does work on the stack of the thread, which is large. Outside any coroutine it is just done. The work does not call
/// [`suspend`]: it would be outside any coroutine.
pub fn on_large_stack<R>(work: impl FnOnce() -> R) -> R {
    switch::on_parent_stack(move || apart(work))
}

/// A frame of its own: what the work needs must not become part of the frame of who is on a small stack.
#[inline(never)]
fn apart<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Less is no use to any function.
pub const STACK_BYTES_MIN: usize = 2048;
const ALIGNMENT: usize = 16;
const CANARY: u64 = 0x7175_6169_6c20_6e62;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    fn resume<'a>(
        cor: &mut Coroutine<u32, u64>,
        by: &'a mut Resumer,
        answer: u64,
    ) -> Step<&'a mut u32> {
        // SAFETY: these tests drop coroutines at their ends.
        unsafe { cor.resume(by, answer) }
    }

    fn ask(number: u32) -> u64 {
        // SAFETY: all coroutines of these tests have these types.
        unsafe { suspend::<u32, u64>(number) }.expect("in a coroutine")
    }

    #[test]
    fn a_coroutine_with_a_stack_of_its_own_runs_where_it_says() {
        let local = Rc::new(Cell::new(0_u64));
        let told = local.clone();
        let body = move || {
            let here = 0_u8;
            told.set(ptr::from_ref(std::hint::black_box(&here)).expose_provenance() as u64);
        };
        let (mut cor, stack) = Coroutine::<u32, u64>::with_stack(32 << 10, body).unwrap();
        assert_eq!((stack.bytes, resume(&mut cor, &mut Resumer::new(), 0)), (32 << 10, Step::Done));
        assert!((stack.address..stack.end().unwrap()).contains(&local.get()));
    }

    #[test]
    fn a_coroutine_asks_and_is_answered_until_it_returns() {
        let mut cor = Coroutine::<u32, u64>::new(16 << 10, || {
            let answer = ask(1);
            assert_eq!(ask(answer as u32), 9);
        })
        .unwrap();
        assert_eq!(resume(&mut cor, &mut Resumer::new(), 0), Step::Asks(&mut 1));
        assert_eq!(resume(&mut cor, &mut Resumer::new(), 5), Step::Asks(&mut 5));
        assert_eq!(resume(&mut cor, &mut Resumer::new(), 9), Step::Done);
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
        let by = &mut Resumer::new();
        for turn in 0..3 {
            assert_eq!(resume(&mut cors[0], by, 0), Step::Asks(&mut (turn * 10)));
            assert_eq!(resume(&mut cors[1], by, 0), Step::Asks(&mut (turn * 10 + 1)));
        }
        assert_eq!(resume(&mut cors[1], by, 0), Step::Done);
        assert_eq!(resume(&mut cors[0], by, 0), Step::Done);
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
        assert_eq!(resume(&mut cor, &mut Resumer::new(), 0), Step::Overflow);
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
        resume(&mut cor, &mut Resumer::new(), 0);
        drop(cor);
        assert_eq!(Rc::strong_count(&token), 1);
    }

    #[test]
    fn large_work_is_done_on_the_large_stack() {
        let mut stack = vec![0u64; 512];
        let span = Span::new(stack.as_mut_ptr().expose_provenance() as u64, 4096);
        let body = || {
            let sum = on_large_stack(|| {
                std::hint::black_box([1_u8; 64 << 10]).iter().map(|&one| u32::from(one)).sum()
            });
            ask(sum);
        };
        // SAFETY: the stack outlives its coroutine.
        let cor = unsafe { Coroutine::<u32, u64>::on(span, Box::new(()), body) };
        assert_eq!(resume(&mut cor.unwrap(), &mut Resumer::new(), 0), Step::Asks(&mut (64 << 10)));
    }

    #[test]
    fn a_panic_reaches_who_has_resumed_the_coroutine() {
        let mut cor = Coroutine::<u32, u64>::new(64 << 10, || {
            ask(1);
            panic!("on purpose");
        })
        .unwrap();
        let by = &mut Resumer::new();
        assert_eq!(resume(&mut cor, by, 0), Step::Asks(&mut 1));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            resume(&mut cor, by, 0);
        }));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"on purpose"));
    }

    /// The same for either switch: this processor's, and that of all others.
    macro_rules! either {
        ($name:ident, $switch:ident) => {
            #[test]
            fn $name() {
                use super::$switch::{Context, Resumer, on_parent_stack, suspend};
                assert_eq!(suspend(1), None);
                assert_eq!(on_parent_stack(|| 7), 7);
                let by = &mut Resumer::new(ptr::null_mut());
                let stack = || Place::Own(DefaultStack::new(64 << 10).unwrap());
                let guarded = Canary::behind_a_guard();
                let token = Rc::new(Cell::new(0));
                let seen = token.clone();
                let mut one = Context::new(stack(), guarded, move || {
                    seen.set(suspend(5).unwrap());
                    on_parent_stack(|| seen.set(seen.get() + 100));
                    seen.set(seen.get() + suspend(6).unwrap());
                });
                let mut two = Context::new(stack(), guarded, || assert_eq!(suspend(9), Some(3)));
                assert_eq!((one.resume(by, 0), two.resume(by, 0)), (Some(5), Some(9)));
                assert_eq!((one.resume(by, 1), token.get()), (Some(6), 101));
                assert_eq!((two.resume(by, 3), one.resume(by, 10)), (Some(0), Some(0)));
                assert_eq!(token.get(), 111);
                let kept = token.clone();
                let not_begun = Context::new(stack(), guarded, move || kept.set(1));
                assert_eq!(Rc::strong_count(&token), 2);
                drop((not_begun, one, two));
                assert_eq!(Rc::strong_count(&token), 1);
                let mut panics = Context::new(stack(), guarded, || {
                    let work = || on_parent_stack(|| panic!("on purpose"));
                    assert!(std::panic::catch_unwind(work).is_err());
                    assert_eq!(suspend(7), Some(8), "it is in its round again");
                    panic!("on purpose")
                });
                assert_eq!(panics.resume(by, 0), Some(7));
                let resumed = std::panic::AssertUnwindSafe(|| panics.resume(by, 8));
                assert!(std::panic::catch_unwind(resumed).is_err());
            }
        };
    }

    either!(the_switch_of_this_processor_asks_answers_and_ends, switch);
    either!(the_switch_of_all_processors_asks_answers_and_ends, portable);

    #[test]
    fn outside_a_coroutine_nothing_is_asked() {
        // SAFETY: there is no coroutine.
        assert_eq!(unsafe { suspend::<u32, u64>(1) }, None);
    }
}
