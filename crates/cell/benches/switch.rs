//! What a switch between coroutines costs, beside a bare resume and suspend of `corosensei`: `cargo bench -p covey-cell`.
//!
//! Sixteen coroutines on stacks of 16 KiB give way to each other until each has done so some thousand times: those of a
//! worker with its queue, its canaries and its requests, and those that a loop resumes one after the other. Each is
//! done twice: with the switch inlined into the coroutine, as in a program in Rust, and behind a function that is called,
//! as in a program in C. All take turns; printed are the best tenth and the median of the rounds.

#[path = "switch/toy.rs"]
mod toy;

use corosensei::stack::{Stack, StackPointer};
use corosensei::{CoroutineResult, Yielder};
use covey_cell::coroutine::{give_way, suspend};
use covey_cell::worker::{Answer, Cor, Request, Spawn};
use covey_wire::Span;
use std::cell::Cell;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::ptr;
use std::time::Instant;

const COROUTINES: usize = 16;
const TURNS: usize = 10_000;
const ROUNDS: usize = 200;
const STACK_BYTES: usize = 16 << 10;

fn main() {
    let mut contestants: [Contestant; 4] = [
        ("corosensei, inlined", |stacks| bare(stacks, bare_turns)),
        ("corosensei, behind a call", |stacks| bare(stacks, bare_calls)),
        ("worker, inlined", |stacks| worker(stacks, turns)),
        ("worker, behind a call", |stacks| worker(stacks, calls)),
    ];
    let mut stacks = Stacks::new();
    let mut times = contestants.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, run), times) in contestants.iter_mut().zip(&mut times) {
            times.push(run(&mut stacks));
        }
    }
    let mut first = None;
    println!(
        "{:28} {:>12} {:>8} {:>7}",
        "a switch, there and back", "best tenth", "median", "ratio"
    );
    for ((name, _), times) in contestants.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let tenth = &times[..ROUNDS / 10];
        let best = tenth.iter().sum::<f64>() / tenth.len() as f64;
        let first = *first.get_or_insert(best);
        println!("{name:28} {best:>9.2} ns {:>5.2} ns {:>7.2}", times[ROUNDS / 2], best / first);
    }
}

/// A name, and what runs once: the nanoseconds of each turn.
type Contestant = (&'static str, fn(&mut Stacks) -> f64);

/// Memory for stacks, used by all in turn.
struct Stacks(Vec<Vec<u128>>);

impl Stacks {
    fn new() -> Stacks {
        Stacks(vec![vec![0; STACK_BYTES / 16]; COROUTINES])
    }

    fn spans(&mut self) -> Vec<Span> {
        let address = |stack: &mut Vec<u128>| stack.as_mut_ptr().expose_provenance() as u64;
        self.0.iter_mut().map(|stack| Span::new(address(stack), STACK_BYTES as u64)).collect()
    }
}

/// Nanoseconds of each turn, the whole run of the worker measured.
fn worker(stacks: &mut Stacks, body: fn()) -> f64 {
    let mut worker = toy::worker();
    for stack in stacks.spans() {
        // SAFETY: the stacks outlive the worker.
        let cor = unsafe { Cor::on(stack, Box::new(()), body) };
        worker.start(Spawn { cor: cor.expect("large enough"), stack }).expect("room for stacks");
    }
    let begun = Instant::now();
    worker.run().expect("all of it");
    begun.elapsed().as_nanos() as f64 / (COROUTINES * TURNS) as f64
}

#[inline(always)]
fn yields() {
    if give_way() {
        return;
    }
    // SAFETY: all coroutines that ask are a worker's.
    let answer = unsafe { suspend::<Request, Answer>(Request::Yield) };
    black_box(answer);
}

#[inline(never)]
extern "C" fn yields_called() {
    yields();
}

fn turns() {
    (0..TURNS).for_each(|_| yields());
}

fn calls() {
    (0..TURNS).for_each(|_| black_box(yields_called as extern "C" fn())());
}

/// The same without a worker.
fn bare(stacks: &mut Stacks, body: fn(&Parent)) -> f64 {
    let mut all: Vec<_> = stacks
        .spans()
        .into_iter()
        .map(|stack| {
            corosensei::Coroutine::with_stack(Given(stack), move |to: &Parent, _| body(to))
        })
        .collect();
    let begun = Instant::now();
    for _ in 0..TURNS {
        for cor in &mut all {
            if let CoroutineResult::Yield(asked) = cor.resume(black_box(1)) {
                black_box(asked);
            }
        }
    }
    let took = begun.elapsed();
    all.iter_mut().for_each(|cor| assert!(cor.resume(1).as_return().is_some()));
    took.as_nanos() as f64 / (COROUTINES * TURNS) as f64
}

type Parent = Yielder<u64, u64>;

fn bare_turns(parent: &Parent) {
    for _ in 0..TURNS {
        black_box(parent.suspend(1));
    }
}

thread_local!(static PARENT: Cell<*const Parent> = const { Cell::new(ptr::null()) });

#[inline(never)]
extern "C" fn bare_called() {
    let parent = PARENT.get();
    // SAFETY: `bare_calls` has put the parent of the coroutine that runs there, and nobody else runs until it waits.
    black_box(unsafe { &*parent }.suspend(1));
    PARENT.set(parent);
}

fn bare_calls(parent: &Parent) {
    PARENT.set(parent);
    (0..TURNS).for_each(|_| black_box(bare_called as extern "C" fn())());
}

struct Given(Span);

// SAFETY: memory that outlives the coroutine, which needs little of it.
unsafe impl Stack for Given {
    fn base(&self) -> StackPointer {
        NonZeroUsize::new((self.0.address + self.0.bytes) as usize & !15).expect("not at 0")
    }

    fn limit(&self) -> StackPointer {
        NonZeroUsize::new(self.0.address as usize).expect("not at 0")
    }
}
