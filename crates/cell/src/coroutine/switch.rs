//! The switch between stacks, for x86-64 on Linux.
//!
//! A processor predicts where `ret` goes from the calls that it has seen. A switch that enters a coroutine by `call` and
//! leaves it by `ret`, as that of `corosensei` does, is predicted only where it is inlined into the coroutine's own loop. A
//! program in C calls `yield` or `spc_read`, each switch then has two returns that are predicted wrong, and costs 20 ns
//! and more instead of 3. Here switches are jumps, and the calls and returns of programs stay pairs.
//!
//! ```text
//!   stack of a coroutine, from its end:   Start │ frames of the program ... rbp rbx where │ free
//!                                                           Standing.place points here ───┘
//!   stack of who resumes it:              frames of the worker ............ rbp rbx where │ free
//!                               covey_cell_thread, of each thread, points here ───────────┘
//! ```
//!
//! Where the parent stands is a variable with a fixed place, so that the way back is known before it is known which
//! coroutine runs: what a processor does for the one switch it does while it still works on the last one.

use super::round::Desk;
use super::{Canary, Place};
use corosensei::stack::{Stack, StackPointer};
use std::any::Any;
use std::arch::{asm, global_asm, naked_asm};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};

/// What a coroutine begins and ends with: at the beginning of its stack.
#[repr(C, align(16))]
struct Start {
    /// What it is to do, until it has been resumed.
    body: Option<Box<dyn FnOnce()>>,
    /// What it has panicked with.
    panic: Option<Box<dyn Any + Send>>,
}

/// A coroutine that asks with a word that is not 0, and is answered with a word.
pub(super) struct Context {
    standing: Stand,
    _stack: Place,
}

/// How a coroutine is found again while it does not run.
#[derive(Clone, Copy)]
pub(super) struct Stand(NonNull<Standing>);

struct Standing {
    /// Where it stands.
    place: usize,
    canary: Canary,
    start: NonNull<Start>,
}

impl Stand {
    /// Whether it has kept within its stack.
    #[inline(always)]
    pub fn is_sound(self) -> bool {
        // SAFETY: it is there as long as the coroutine.
        unsafe { self.0.as_ref() }.canary.is_whole()
    }

    #[cold]
    fn pass_panic_on(self) {
        // SAFETY: both are there as long as the coroutine, which does not run.
        if let Some(panic) = unsafe { (*self.0.as_ref().start.as_ptr()).panic.take() } {
            resume_unwind(panic);
        }
    }
}

impl Context {
    pub fn new(stack: Place, canary: Canary, body: impl FnOnce() + 'static) -> Context {
        let base = stack.base().get() & !(align_of::<Start>() - 1);
        let start = ptr::with_exposed_provenance_mut::<Start>(base - size_of::<Start>());
        let first = start.cast::<usize>().wrapping_sub(2);
        let body: Option<Box<dyn FnOnce()>> = Some(Box::new(body));
        // SAFETY: the stack is the coroutine's alone, aligned here, and larger than this.
        unsafe {
            start.write(Start { body, panic: None });
            first.write(begin as *const () as usize);
            first.add(1).write(start.expose_provenance());
        }
        let start = NonNull::new(start).expect("a stack is not at 0");
        let standing = Standing { place: first.expose_provenance(), canary, start };
        Context { standing: Stand(NonNull::from(Box::leak(Box::new(standing)))), _stack: stack }
    }

    pub fn stand(&self) -> Stand {
        self.standing
    }

    /// Runs it, and those that it gives way to, until one asks for something: 0 when it has returned, which it does once. A
    /// panic is passed on. `None` when it has overflowed its stack.
    #[inline(always)]
    pub fn resume(&mut self, by: &mut Resumer, answer: u64) -> Option<u64> {
        // SAFETY: it stands there. Who comes back is this one, or first in the round that is resumed.
        unsafe {
            let (asked, now) = go_to(self.standing.0.as_ref().place, answer);
            let mut back = match by.desk.as_ref() {
                Some(desk) => desk.running(),
                None => self.standing,
            };
            back.0.as_mut().place = now;
            if !back.is_sound() {
                return None;
            }
            if asked == 0 {
                back.pass_panic_on();
            }
            Some(asked)
        }
    }
}

impl Drop for Context {
    /// What it was to do is dropped, if it has not begun. What its frames own is leaked.
    fn drop(&mut self) {
        // SAFETY: the coroutine does not run, and will not; nobody else looks for it.
        unsafe {
            let standing = Box::from_raw(self.standing.0.as_ptr());
            standing.start.drop_in_place();
        }
    }
}

/// The right to resume coroutines on this thread. While it is there a program runs in a coroutine or not at all.
pub(super) struct Resumer {
    desk: *mut Desk,
    before: (usize, *mut Desk),
}

impl Resumer {
    /// With a desk, coroutines may give way to those that wait there.
    pub fn new(desk: *mut Desk) -> Resumer {
        let before = (parent(), self::desk());
        set_desk(desk);
        Resumer { desk, before }
    }
}

impl Drop for Resumer {
    fn drop(&mut self) {
        set_parent(self.before.0);
        set_desk(self.before.1);
    }
}

/// Asks on behalf of the coroutine that runs. `None` outside any.
#[inline(always)]
pub(super) fn suspend(request: u64) -> Option<u64> {
    let parent = parent();
    // SAFETY: that is where who has resumed the coroutine stands.
    (parent != 0).then(|| unsafe { go_back(parent, request) })
}

/// Does work on the stack of who has resumed the coroutine that runs. Outside any it is just done.
pub(super) fn on_parent_stack<R>(work: impl FnOnce() -> R) -> R {
    let parent = parent();
    if parent == 0 {
        return work();
    }
    let _back = Outside { parent, desk: desk() };
    set_parent(0);
    set_desk(ptr::null_mut());
    corosensei::on_stack(Above(parent & !15), work)
}

/// A coroutine whose work is done elsewhere. Afterwards, also where that has panicked, it is in its round again.
struct Outside {
    parent: usize,
    desk: *mut Desk,
}

impl Drop for Outside {
    fn drop(&mut self) {
        set_parent(self.parent);
        set_desk(self.desk);
    }
}

/// What is free of a stack.
struct Above(usize);

// SAFETY: the stack is that of a thread, whose guard the system has put. It stands still while the coroutine runs.
unsafe impl Stack for Above {
    fn base(&self) -> StackPointer {
        NonZeroUsize::new(self.0).expect("a stack is not at 0")
    }

    fn limit(&self) -> StackPointer {
        self.base()
    }
}

/// Switches to who stands at `$place` with the word `$word`, and comes back with another one: what this side needs there is
/// below its stack, where signals do not write either. `$note` notes where that is, in `rax`, before anything is lost. Who
/// arrives finds its own place in `rdx`: no other instruction moves the stack, which a processor does faster than `push` and
/// `pop` around a stack that is exchanged.
macro_rules! switch {
    ($place:expr, $word:expr => $back:pat, [$($note:literal),+], $($register:tt)*) => {
        let back: u64;
        asm!(
            "lea rax, [rip + 2f]",
            "mov [rsp - 8], rbp",
            "mov [rsp - 16], rbx",
            "mov [rsp - 24], rax",
            "lea rax, [rsp - 24]",
            $($note,)+
            "jmp [rdx]",
            "2:",
            "mov rbx, [rdx + 8]",
            "mov rbp, [rdx + 16]",
            "lea rsp, [rdx + 24]",
            in("rdx") $place,
            inlateout("rdi") $word => back,
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            $($register)*
            clobber_abi("sysv64"),
        );
        let $back = back;
    };
}

/// Goes to where a coroutine stands, with an answer. Comes back with what one asks, and where that stands then.
///
/// # Safety
///
/// The coroutine stands there.
#[inline(always)]
unsafe fn go_to(place: usize, answer: u64) -> (u64, usize) {
    let now;
    // SAFETY: every register is saved or said to be lost.
    unsafe {
        switch!(
            place, answer => asked,
            [
                "mov rcx, qword ptr [rip + covey_cell_thread@GOTTPOFF]",
                "mov qword ptr fs:[rcx], rax"
            ],
            lateout("rsi") now,
        );
        (asked, now)
    }
}

/// Goes from the coroutine that runs to another one, with an answer, until somebody goes to this one.
///
/// # Safety
///
/// `own` is that of the coroutine that runs, and `other` that of one that does not.
#[inline(always)]
pub(super) unsafe fn hand_over(own: Stand, other: Stand, answer: u64) {
    // SAFETY: every register is saved or said to be lost; both are there as long as their coroutines.
    unsafe {
        let (own, place) = (&raw mut (*own.0.as_ptr()).place, (*other.0.as_ptr()).place);
        switch!(place, answer => _, ["mov [rsi], rax"], in("rsi") own,);
    }
}

/// Goes back to who has resumed the coroutine that runs, with what that asks. Comes back with the answer.
///
/// # Safety
///
/// Who has resumed it stands there.
#[inline(always)]
unsafe fn go_back(parent: usize, request: u64) -> u64 {
    // SAFETY: every register is saved or said to be lost.
    unsafe {
        switch!(parent, request => answer, ["mov rsi, rax"],);
        answer
    }
}

/// Where a coroutine begins: nothing has called it.
#[unsafe(naked)]
unsafe extern "sysv64" fn begin() -> ! {
    naked_asm!(
        "mov rdi, [rdx + 8]",
        "lea rsp, [rdx + 16]",
        "xor ebp, ebp",
        "push 0",
        "jmp {run}",
        run = sym run
    )
}

unsafe extern "sysv64" fn run(start: *mut Start) -> ! {
    // SAFETY: `begin` found it where `Context::new` has put it. Nobody else uses it while the coroutine runs.
    let body = unsafe { (*start).body.take() };
    let done = catch_unwind(AssertUnwindSafe(|| body.map(|body| body())));
    // SAFETY: the start is still this coroutine's alone, and who has resumed it waits there.
    unsafe {
        (*start).panic = done.err();
        go_back(parent(), 0);
    }
    unreachable!("a coroutine that has returned is not resumed")
}

// Two words of each thread: where who resumes coroutines stands, 0 while none run, and the desk where they may give way. The
// compiler's own way to a variable of a thread is a function call in a library; these are found by an offset that the
// loader has filled in.
global_asm!(
    ".pushsection .tbss.covey_cell_thread, \"awT\", @nobits",
    ".balign 16",
    ".globl covey_cell_thread",
    ".hidden covey_cell_thread",
    ".type covey_cell_thread, @object",
    ".size covey_cell_thread, 16",
    "covey_cell_thread:",
    ".zero 16",
    ".popsection",
);

macro_rules! thread_word {
    ($load:ident, $store:ident, $place:literal, $type:ty) => {
        #[inline(always)]
        pub(super) fn $load() -> $type {
            let value;
            // SAFETY: reads a variable of this thread.
            unsafe {
                asm!(
                    "mov {value}, qword ptr [rip + covey_cell_thread@GOTTPOFF]",
                    concat!("mov {value}, qword ptr fs:[{value} + ", $place, "]"),
                    value = out(reg) value,
                    options(nostack, readonly, preserves_flags),
                );
            }
            value
        }

        fn $store(value: $type) {
            // SAFETY: writes a variable of this thread, which nobody refers to.
            unsafe {
                asm!(
                    "mov {place}, qword ptr [rip + covey_cell_thread@GOTTPOFF]",
                    concat!("mov qword ptr fs:[{place} + ", $place, "], {value}"),
                    place = out(reg) _,
                    value = in(reg) value,
                    options(nostack, preserves_flags),
                );
            }
        }
    };
}

thread_word!(parent, set_parent, "0", usize);
thread_word!(desk, set_desk, "8", *mut Desk);
