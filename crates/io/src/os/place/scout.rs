//! Finds out where threads run.
//!
//! `/proc/TID/stat` may keep whoever reads it until the thread is done with what it does. One in execve(2) closes
//! files, and waits for the answer of the very thread that wants to know: so another one asks.

use super::thread::cpu_of;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// An answer that is still to come.
pub struct Answer(Receiver<Option<usize>>);

struct Question {
    tid: u32,
    answer: SyncSender<Option<usize>>,
}

/// Asks for the CPU of a thread; None where too many questions wait already.
pub fn ask(tid: u32) -> Option<Answer> {
    static SCOUT: OnceLock<Option<SyncSender<Question>>> = OnceLock::new();
    let scout = SCOUT.get_or_init(start).as_ref()?;
    let (answer, receiver) = sync_channel(1);
    scout.try_send(Question { tid, answer }).ok()?;
    Some(Answer(receiver))
}

fn start() -> Option<SyncSender<Question>> {
    let (sender, questions) = sync_channel::<Question>(QUESTIONS_MAX);
    let answer_all = move || {
        for Question { tid, answer } in questions {
            // Who has asked may have no use for it any more.
            let _ = answer.send(cpu_of(tid));
        }
    };
    std::thread::Builder::new().name("scout".into()).spawn(answer_all).ok()?;
    Some(sender)
}

impl Answer {
    /// The CPU, if it could be found out; None as long as that is not known.
    pub fn get(&self) -> Option<Option<usize>> {
        match self.0.try_recv() {
            Ok(cpu) => Some(cpu),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(None),
        }
    }
}

/// Questions that wait, of all threads.
const QUESTIONS_MAX: usize = 16;
