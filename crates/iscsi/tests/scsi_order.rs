//! The order of commands: what an ORDERED one waits for, and who waits for it.

mod support;

use covey_iscsi::scsi::{Command, Completion, Device, Input, Nexus, Step, Task, TaskAttribute};
use covey_iscsi::store::Reply;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use support::{Bench, command, wait};

const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const COMPARE_AND_WRITE: [u8; 16] = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A command under way, and what it waits for.
struct Running<'a> {
    bench: &'a Bench,
    task: Task,
    step: Step,
    turn: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    rang: Arc<Flag>,
}

impl<'a> Running<'a> {
    fn begin(
        bench: &'a Bench,
        by: &Nexus,
        cdb: &[u8],
        out: u64,
        attribute: TaskAttribute,
    ) -> Running<'a> {
        let command = Command { attribute, ..command(cdb, out, 512) };
        let (task, step) = bench.units.start(0, by, command);
        let turn = (step == Step::Turn).then(|| bench.units.turn(&task));
        let mut running = Running { bench, task, step, turn, rang: Arc::default() };
        let _ = running.poll();
        running
    }

    fn poll(&mut self) -> Poll<()> {
        let waker = Waker::from(self.rang.clone());
        let Some(turn) = &mut self.turn else { return Poll::Ready(()) };
        turn.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Whether it may go on, of which whoever waits is told.
    fn has_turn(&mut self) -> bool {
        let rang = self.rang.0.load(Ordering::SeqCst);
        let has_turn = self.poll().is_ready();
        assert!(self.turn.is_none() || rang == has_turn, "nobody was woken for its turn");
        has_turn
    }

    fn finish(mut self, out: &[u8]) -> Completion {
        assert!(self.turn.is_none() || self.has_turn());
        loop {
            let input = match self.step {
                Step::Turn => Input::Stored(Reply::Done),
                Step::Collect { bytes } => Input::Data(out[..bytes as usize].to_vec().into()),
                Step::Store(request) => {
                    Input::Stored(wait(self.bench.units.ask(&self.task, request)))
                }
                Step::End(completion) => return completion,
                other => panic!("{other:?}"),
            };
            self.step = self.bench.units.next(&mut self.task, input);
        }
    }
}

/// The data of the write has not come when it is read, and the read is to come behind it all the same.
#[test]
fn an_ordered_command_sees_what_those_before_it_write() {
    let bench = Bench::new();
    let (one, two) = (bench.visitor(1), bench.visitor(2));
    let begin = |by, cdb: &[u8], out, attribute| Running::begin(&bench, by, cdb, out, attribute);
    let write = begin(&one, &WRITE, 512, TaskAttribute::Simple);
    let mut read = begin(&two, &READ, 0, TaskAttribute::Ordered);
    let mut behind = begin(&one, &WRITE, 512, TaskAttribute::Untagged);
    let first = begin(&one, &READ, 0, TaskAttribute::HeadOfQueue);
    assert_eq!(first.finish(&[]).data_in.into_bytes()[..], [0; 512]);
    assert!(!read.has_turn() && !behind.has_turn());
    assert_eq!(write.finish(&[1; 512]).status, 0);
    assert!(read.has_turn() && !behind.has_turn());
    assert_eq!(read.finish(&[]).data_in.into_bytes()[..], [1; 512]);
    assert!(behind.has_turn());
    assert_eq!(behind.finish(&[2; 512]).status, 0);
    let read = begin(&one, &READ, 0, TaskAttribute::Simple);
    assert_eq!(read.finish(&[]).data_in.into_bytes()[..], [2; 512]);
}

/// It has its blocks for itself, but not before its turn: whoever it waits for may need them.
#[test]
fn an_ordered_command_keeps_no_blocks_from_those_before_it() {
    let bench = Bench::new();
    let (one, two) = (bench.visitor(1), bench.visitor(2));
    let write = Running::begin(&bench, &one, &WRITE, 512, TaskAttribute::Simple);
    let swap = Running::begin(&bench, &two, &COMPARE_AND_WRITE, 1024, TaskAttribute::Ordered);
    assert_eq!(write.finish(&[1; 512]).status, 0);
    let (old, new) = ([1; 512], [2; 512]);
    assert_eq!(swap.finish(&[old, new].concat()).status, 0);
}

#[test]
fn an_aborted_command_leaves_its_turn_to_others() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let begin = |cdb: &[u8], out, attribute| Running::begin(&bench, &one, cdb, out, attribute);
    let write = begin(&WRITE, 512, TaskAttribute::Ordered);
    assert_eq!(write.step, Step::Collect { bytes: 512 }, "it is the only one");
    let ordered = begin(&READ, 0, TaskAttribute::Ordered);
    let mut behind = begin(&READ, 0, TaskAttribute::Simple);
    let Running { task, turn, rang, .. } = ordered;
    drop(task);
    // Its wait ends, too: nobody keeps it for nothing.
    assert!(rang.0.load(Ordering::SeqCst));
    let mut turn = turn.expect("it had to wait");
    assert!(turn.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert!(!behind.has_turn());
    drop(write);
    assert!(behind.has_turn());
    assert_eq!(behind.finish(&[]).status, 0);
}
