//! The worker: its coroutines, the order in which they run, and what they ask for.
//!
//! ```text
//!            ┌───────────────── one queue, first in first out ─────────────────┐
//!   resume ──┴─► coroutine ──asks──► at once ──► goes on                       │
//!                                └─► yield, copy, message ─────────────────────┘
//!                                └─► message on a file that waits ──► parked ──► at the end of a round, if answered
//! ```
//!
//! What always holds:
//!
//! - Coroutines are switched only where they ask for I/O, yield or end.
//! - There is one queue. Who asks for a transfer goes to its end, and is not resumed before the transfer is done, even if those behind
//!   it could go on. So the order of events follows from the program and its input alone, and not from when replies come.
//! - Files that may make their readers wait (pipes, a job's output) are the exception: their requests leave the queue, or the
//!   reader of a pipe would hold up its writer. They are looked at once in each round of the queue, the oldest first. What
//!   comes from them, and when, is an input: [`Trace`] records it, and a replay asks nobody for it.
//! - A copy is begun when it is asked for and done when its turn comes, so that with two coroutines one's memory is on its
//!   way while the other is at work.

mod copies;
mod errand;
mod files;
mod link;
mod ops;
mod quick;
mod turn;

pub use files::{FILES_MAX, mode};
pub use quick::{Begun, read, write};

use crate::coroutine::{Coroutine, Resumer, Round};
use crate::header::Ticket;
use crate::mailbox::WorkerBox;
use crate::memory::Shared;
use crate::store::{LocalStore, NoStack};
use crate::trace::{Diverged, Trace};
use covey_ninep::tree::{Errno, Result};
use covey_wire::{Bytes, Span};
use errand::Errand;
use files::Files;
use link::Link;
use ops::Op;
use quick::{Counter, Own};
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::num::NonZeroU64;
use std::ptr;
use std::rc::Rc;
use std::time::Instant;

/// The world of a worker: its local store, what lies in shared memory, and its host's bell.
pub trait Ground {
    /// What is shared with the host.
    type Memory: Shared;

    /// The shared memory.
    fn memory(&self) -> &Rc<Self::Memory>;

    /// Lets time pass until the host may have answered. An error says why it never will.
    fn wait(&mut self, mailbox: &WorkerBox<Self::Memory>) -> std::result::Result<(), String>;

    /// The host has answered: the next wait begins anew.
    fn reset(&mut self);

    /// Wakes the host.
    fn ring(&mut self);

    /// The time.
    fn now(&self) -> Instant;

    /// Takes in a file that the host has handed over under this number.
    fn adopt(&mut self, mapping: u32) -> Result<()>;

    /// Copies from the memory of a file to the local store.
    fn fetch(&self, mapping: u32, pointer: u64, to: Span) -> Copied;

    /// Copies from the local store to the memory of a file.
    fn put(&self, from: Span, mapping: u32, pointer: u64) -> Copied;

    /// The memory of a file will be copied soon.
    fn prefetch(&self, mapping: u32, pointer: u64, bytes: u64);

    /// Bytes of the local store, copied.
    fn take(&self, from: Span) -> Bytes;

    /// Copies bytes to the local store.
    fn give(&self, to: Span, bytes: &[u8]);

    /// A block of the local store; `None` when the machine has none.
    fn allocate(&mut self, bytes: u64) -> Option<Span>;

    /// A block that was allocated is free.
    fn release(&mut self, block: Span);
}

/// What became of a copy between the local store and the memory of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// All of it is where it belongs.
    Whole,
    /// Some of the file's memory is not there: its disk is full or broken, or another process has cut it off. The host knows
    /// which, and is asked by message for the same bytes.
    Refused,
}

/// What a coroutine asks for. Spans are of the local store.
#[allow(missing_docs)]
#[derive(Debug)]
pub enum Request {
    /// Lets the others run.
    Yield,
    /// Ends.
    Terminate,
    /// Whether a coroutine may run on this memory, which is then the next one's. Answers 0, or why not.
    CheckNew { stack: Span },
    /// Makes a coroutine, which runs when its turn comes. Answers its number.
    Spawn(Box<Spawn>),
    /// Its own number.
    Id,
    /// Whether it is within its stack: 1 if so, else 0.
    CheckStack,
    /// Opens a file. Answers its descriptor.
    Open { path: Span, mode: u32 },
    /// Makes a file, or empties it, and opens it. Answers its descriptor.
    Create { path: Span, perm: u32, mode: u32 },
    /// Closes a descriptor.
    Close { fd: i32 },
    /// Removes a file.
    Remove { path: Span },
    /// Reads at an offset, or where the descriptor is. Answers how much, 0 at the end.
    Read { fd: i32, to: Span, at: Option<u64> },
    /// Writes at an offset, or where the descriptor is. Answers how much.
    Write { fd: i32, from: Span, at: Option<u64> },
    /// Reads what a read that was begun by [`read`] was to bring. Answers how much.
    Finish(Begun),
    /// Moves a descriptor: from the beginning (0), from where it is (1), from the end (2). Answers where it is.
    Seek { fd: i32, offset: i64, whence: u32 },
    /// Writes to the log.
    Log { text: Span },
    /// The words of its last error, as many as fit. Answers how many bytes they are.
    ErrorText { into: Span },
    /// The number of its last error, 0 after none.
    ErrorCode,
    /// Sets its last error; no words and 0 clear it.
    SetError { text: Span, code: u32 },
    /// Fails with these words and this number.
    Fail { text: Span, code: u32 },
    /// Allocates memory of the local store. Answers its address.
    Allocate { bytes: u64 },
    /// Moves an allocation to one of another size. Answers its address.
    Reallocate { address: u64, bytes: u64 },
    /// Gives memory back.
    Release { address: u64 },
}

/// The answer: a number that is not negative, or the number of an error, whose words are kept for [`Request::ErrorText`].
/// It fits a register, also inside an `Option` or a `Result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer(NonZeroU64);

impl Answer {
    /// A number. What is larger than 2^63 - 2 becomes that.
    #[inline]
    pub fn number(number: u64) -> Answer {
        Answer(NonZeroU64::MIN.saturating_add(number.min(IS_ERROR - 2)))
    }

    /// An error.
    #[inline]
    pub fn error(code: u32) -> Answer {
        Answer(NonZeroU64::MIN.saturating_add(u64::from(code)) | IS_ERROR)
    }

    /// The number, or that of the error.
    #[inline]
    pub fn result(self) -> std::result::Result<i64, u32> {
        let value = (self.0.get() & !IS_ERROR) - 1;
        if self.0.get() < IS_ERROR { Ok(value as i64) } else { Err(value as u32) }
    }
}

const IS_ERROR: u64 = 1 << 63;

/// A coroutine of a worker.
pub type Cor = Coroutine<Request, Answer>;

/// A coroutine to be.
#[derive(Debug)]
pub struct Spawn {
    /// The coroutine.
    pub cor: Cor,
    /// Its stack.
    pub stack: Span,
}

/// Why a worker ended before its program did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The host is gone, or does not speak as it must: start the program again.
    Host(String),
    /// A replay went another way.
    Diverged(Diverged),
    /// A coroutine wrote behind the end of its stack: give it a larger one.
    Overflow(u32),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Host(why) => write!(f, "host is lost: {why}"),
            Ended::Diverged(what) => what.fmt(f),
            Ended::Overflow(cor) => write!(f, "coroutine {cor} has overflowed its stack"),
        }
    }
}

impl std::error::Error for Ended {}

impl From<Diverged> for Ended {
    fn from(what: Diverged) -> Ended {
        Ended::Diverged(what)
    }
}

/// One worker. Made, it connects to its host; [`Worker::start`] makes its first coroutine; [`Worker::run`] runs them all.
pub struct Worker<G: Ground> {
    ground: Own<G>,
    number: u32,
    link: Link<G::Memory>,
    files: Own<Files>,
    counter: Own<Counter<G>>,
    store: LocalStore,
    trace: Trace,
    cors: Vec<Option<Slot>>,
    queue: Round,
    /// Those that wait at files that make them wait, the oldest first.
    parked: VecDeque<u32>,
}

struct Slot {
    cor: Cor,
    stack: Span,
    error: (u32, String),
    wait: Wait,
    /// What it waits for while that is `Wait::Copy`.
    copy: Copy,
}

/// What a coroutine waits for.
enum Wait {
    /// Its turn, with this answer.
    Turn(Answer),
    /// The copy of its slot.
    Copy,
    /// A message of its own.
    Errand(Errand, After),
    /// Messages.
    Message(Box<Sent>),
}

impl Wait {
    /// For its turn, and nothing else.
    #[inline]
    fn turn() -> Wait {
        Wait::Turn(Answer::number(0))
    }
}

/// Messages that are on their way, and what becomes of the answer.
struct Sent {
    op: Op,
    after: After,
}

/// What becomes of an answer from the host.
#[derive(Clone, Copy, Debug)]
enum After {
    /// Nothing.
    Nothing,
    /// Bytes go there, and the descriptor advances where it was at this offset.
    Data { to: Span, moved: Option<(i32, u64)> },
    /// The descriptor advances where it was at this offset.
    Written { count: u64, moved: Option<(i32, u64)> },
    /// The descriptor moves so far behind the file's end.
    End { fd: i32, offset: i64 },
}

/// A copy between the local store and the memory of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Copy {
    fd: i32,
    ticket: Ticket,
    is_read: bool,
    local: Span,
    at: u64,
    /// The descriptor was moved on for this.
    is_moved: bool,
}

impl Copy {
    /// What is left behind its first `done` bytes, of it `most` bytes at most.
    fn part(&self, done: u64, most: u64) -> Copy {
        let bytes = (self.local.bytes - done).min(most);
        let local = Span::new(self.local.address + done, bytes);
        Copy { local, at: self.at.saturating_add(done), ..*self }
    }
}

impl<G: Ground> Worker<G> {
    /// Connects worker `number` to its host, as the user `uid`.
    pub fn new(
        ground: G,
        number: u32,
        uid: u32,
        store: LocalStore,
        trace: Trace,
    ) -> std::result::Result<Worker<G>, Ended> {
        let mailbox = WorkerBox::new(ground.memory().clone(), number);
        let link = Link::new(mailbox, ground.now());
        let (ground, files) = (Own::new(ground), Own::new(Files::default()));
        let counter = Own::new(Counter::new(&files, &ground, number));
        let mut worker = Worker {
            ground,
            number,
            link,
            files,
            counter,
            store,
            trace,
            cors: Vec::new(),
            queue: Round::new(Answer::number(0)),
            parked: VecDeque::new(),
        };
        let greeting = ops::greet(worker.link.conn(), uid);
        match worker.wait_for(greeting)? {
            Ok(ops::Reply::Log(fid)) => worker.files.log = Some(fid),
            Ok(_) => unreachable!("a greeting opens the log"),
            Err(error) => return Err(Ended::Host(format!("it refuses this worker: {error}"))),
        }
        worker.link.open();
        worker.queue.set_counter(ptr::from_ref(&*worker.counter).cast());
        Ok(worker)
    }

    /// Makes the first coroutine.
    pub fn start(&mut self, first: Spawn) -> std::result::Result<(), Ended> {
        self.spawn(first)?.map(drop).map_err(|error| Ended::Host(error.to_string()))
    }

    /// Runs until no coroutine is left.
    pub fn run(&mut self) -> std::result::Result<(), Ended> {
        // A trace has every switch.
        let mut resumer =
            if self.trace.is_on() { Resumer::new() } else { Resumer::of(&self.queue) };
        loop {
            if self.queue.left() == 0 {
                self.take_arrivals()?;
                self.queue.set_left(self.queue.to_end());
            }
            let Some(cor) = self.queue.first() else {
                if self.parked.is_empty() {
                    return self.link.flush(&mut *self.ground);
                }
                self.wait_for_arrival()?;
                continue;
            };
            // Nobody outside the queue is waited for: so nobody is to be looked for at the end of a round.
            self.queue.set_goes_round(self.parked.is_empty());
            self.queue.set_left(self.queue.left() - 1);
            // It waits for that once: afterwards it may give way by itself, and then waits for its turn alone.
            self.queue.set_idle(true);
            let answer = match mem::replace(&mut self.slot(cor).wait, Wait::turn()) {
                Wait::Turn(answer) => answer,
                Wait::Copy => self.copy_now(cor)?,
                Wait::Errand(errand, after) => self.end_errand(cor, errand, after)?,
                Wait::Message(sent) => self.finish(cor, *sent)?,
            };
            self.turn(&mut resumer, cor, answer)?;
        }
    }

    fn join(&mut self, cor: u32, is_idle: bool) {
        let slot = self.cors[cor as usize].as_ref().expect("who joins is there");
        self.queue.join(cor, &slot.cor, is_idle);
    }

    #[inline]
    fn slot(&mut self, cor: u32) -> &mut Slot {
        self.cors[cor as usize].as_mut().expect("who is in the queue is there")
    }

    /// What it waits for, which are messages.
    fn sent(&mut self, cor: u32) -> Sent {
        match mem::replace(&mut self.slot(cor).wait, Wait::turn()) {
            Wait::Message(sent) => *sent,
            _ => unreachable!("it waits for messages"),
        }
    }

    /// Ends all coroutines. Their stacks may be used for something else then.
    pub fn stop(&mut self) {
        self.queue.clear();
        self.parked.clear();
        self.cors.clear();
    }

    /// What was recorded.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The same, to be finished when the program has ended.
    pub fn trace_mut(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// What the program holds.
    pub fn store(&self) -> &LocalStore {
        &self.store
    }

    /// The worker's world.
    pub fn ground(&mut self) -> &mut G {
        &mut self.ground
    }

    /// Waits for messages that are on their way: everything else stands still.
    fn wait_for(&mut self, mut op: Op) -> std::result::Result<Result<ops::Reply>, Ended> {
        loop {
            if let Some(result) = self.link.poll(&mut op, &mut *self.ground)? {
                return Ok(result);
            }
            self.link.wait(&mut *self.ground)?;
        }
    }

    fn spawn(&mut self, new: Spawn) -> std::result::Result<Result<u32>, Ended> {
        let stack = new.stack;
        if let Err(refused) = self.store.hold_stack(stack) {
            return Ok(Err(no_stack(refused)));
        }
        let wait = Wait::turn();
        let (error, copy) = ((0, String::new()), Copy::default());
        let slot = Some(Slot { cor: new.cor, stack, error, wait, copy });
        let number = match self.cors.iter().position(Option::is_none) {
            Some(free) => {
                self.cors[free] = slot;
                free
            }
            None => {
                self.cors.push(slot);
                self.cors.len() - 1
            }
        } as u32;
        self.trace.event(format_args!("spawn {number}"))?;
        self.join(number, true);
        Ok(Ok(number))
    }

    /// Takes parked requests that were answered back into the queue.
    fn take_arrivals(&mut self) -> std::result::Result<(), Ended> {
        if self.parked.is_empty() {
            return Ok(());
        }
        if self.trace.is_replay() {
            return self.take_recorded();
        }
        for _ in 0..self.parked.len() {
            let cor = self.parked.pop_front().expect("counted");
            let slot = self.cors[cor as usize].as_mut().expect("who is parked is there");
            let Wait::Message(sent) = &mut slot.wait else { unreachable!("messages park") };
            let after = sent.after;
            match self.link.poll(&mut sent.op, &mut *self.ground)? {
                Some(result) => self.arrived(cor, result, after)?,
                None => self.parked.push_back(cor),
            }
        }
        Ok(())
    }

    /// Takes parked requests back into the queue that the recording answers here.
    fn take_recorded(&mut self) -> std::result::Result<(), Ended> {
        while let Some(arrival) = self.trace.arrival_due() {
            let Some(at) = self.parked.iter().position(|parked| *parked == arrival.cor) else {
                break;
            };
            let Some(cor) = self.parked.remove(at) else { break };
            let after = self.sent(cor).after;
            let result = match (arrival.result, after) {
                (Err(code), _) => Err(code.into()),
                (Ok(_), After::Data { .. }) => Ok(ops::Reply::Data(vec![arrival.data.into()])),
                (Ok(count), _) => Ok(ops::Reply::Count(count)),
            };
            self.arrived(cor, result, after)?;
        }
        Ok(())
    }

    fn arrived(
        &mut self,
        cor: u32,
        result: Result<ops::Reply>,
        after: After,
    ) -> std::result::Result<(), Ended> {
        if self.trace.is_on() {
            let arrival = ops::arrival(cor, &result);
            self.trace.event(format_args!("{arrival}"))?;
        }
        let answer = self.conclude(cor, result, after)?;
        self.slot(cor).wait = Wait::Turn(answer);
        self.join(cor, false);
        Ok(())
    }

    /// Nobody can run: waits until a parked request is answered.
    fn wait_for_arrival(&mut self) -> std::result::Result<(), Ended> {
        loop {
            self.take_arrivals()?;
            if !self.queue.is_empty() {
                return Ok(());
            }
            if self.trace.is_replay() {
                // The recording has something else here, or nothing: that is a difference.
                let cor = self.parked.front().expect("somebody is parked");
                return Ok(self.trace.event(format_args!("arrive {cor}"))?);
            }
            self.link.wait(&mut *self.ground)?;
        }
    }
}

fn no_stack(refused: NoStack) -> Errno {
    let code = match refused {
        NoStack::InUse(_) => Errno::EBUSY,
        NoStack::Overfull(_) => Errno::ENOMEM,
    };
    Errno::because(code, refused.to_string())
}

#[cfg(test)]
mod tests;
