//! Files on their way to other I/O servers, a drain's or a rebalance's: what the metadata server has done beside itself, for as
//! long as it takes, whether the command that has asked for it is still there or not.
//!
//! ```text
//!   covey server drain ── AskTask ─► metadata server ── KeepTask ─► log
//!                                       │    ▲
//!                          task, rate,  │    │ progress
//!                          pause, end   ▼    │
//!                                    carry_out: a client like any other, on a thread of its own
//! ```
//!
//! The metadata server says what is to be done and how fast, by a [`Control`], and looks there how far it is. Nothing here
//! has to be remembered: how a file moves is safe at every point (`covey_stripe::meta::moves`), and which files are left to
//! move is found out anew after a start.

mod chains;
mod drain;
mod mover;
mod rebalance;
mod thread;

pub use thread::beside;

use covey_io::task;
use covey_ninep::tree::Errno;
use covey_stripe::client::{Fs, Pace};
use covey_stripe::ops::{Progress, Task, task as kind};
use covey_wire::{List, Name};
use mover::Mover;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What cannot be asked is asked again after this.
const RETRY: Duration = Duration::from_secs(2);

/// What the metadata server and whoever carries out a task say to each other.
pub struct Control {
    pace: Pace,
    /// Without the bytes that were copied since `bytes_before`.
    progress: Mutex<Progress>,
    bytes_before: u64,
    is_done: AtomicBool,
    has_ended: AtomicBool,
    /// Raised when somebody wants what waits to be tried at once.
    pokes: AtomicU64,
}

impl Control {
    /// Of a task that goes on from where it is.
    pub fn of(task: &Task) -> Control {
        let (waits, failures) = (Name::EMPTY, List(Vec::new()));
        let progress = Progress { waits, failures, ..task.progress.clone() };
        Control {
            pace: Pace::of(limit(task.rate)),
            bytes_before: progress.bytes,
            progress: Mutex::new(progress),
            is_done: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            pokes: AtomicU64::new(0),
        }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let mut progress = self.progress.lock().expect("no holder panics").clone();
        progress.bytes = self.bytes_before + self.pace.copied();
        progress.bytes_total = progress.bytes_total.max(progress.bytes);
        progress
    }

    /// So many bytes per second from now on; 0 for as fast as it goes.
    pub fn set_rate(&self, rate: u64) {
        self.pace.set(limit(rate));
    }

    /// What waits is tried at once.
    pub fn poke(&self) {
        self.change(|progress| progress.waits = Name::EMPTY);
        self.pokes.fetch_add(1, Ordering::Relaxed);
    }

    /// Nothing more moves.
    pub fn end(&self) {
        self.pace.end();
    }

    /// Whether it was ended, or will be at the next file.
    pub fn is_over(&self) -> bool {
        self.pace.is_over()
    }

    /// Whether everything was moved that could be.
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    /// Whether nobody works on it any more.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Whoever has worked on it is gone.
    pub fn ended(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Time has passed in which files moved, unless it waits.
    pub fn has_taken(&self, time: Duration) {
        self.change(|progress| {
            if progress.waits.is_empty() {
                progress.millis += time.as_millis() as u64;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress.lock().expect("no holder panics"));
    }

    fn waits(&self, why: &str) {
        self.change(|progress| progress.waits = Name::from(why));
    }

    fn goes_on(&self) {
        self.waits("");
    }

    fn pokes(&self) -> u64 {
        self.pokes.load(Ordering::Relaxed)
    }
}

/// Works on a task until it is done or was ended.
pub async fn carry_out(fs: &Fs, task: &Task, control: &Control) {
    let mover = Mover::new(fs, control);
    while !control.is_over() {
        let moved = match task.kind {
            kind::DRAIN => drain::drain(&mover, task.server).await,
            _ => rebalance::rebalance(&mover).await,
        };
        match moved {
            Ok(()) => {
                control.is_done.store(true, Ordering::Relaxed);
                return;
            }
            Err(error) if error.code() == Errno::ECANCELED => {}
            Err(error) => {
                control.waits(&error.to_string());
                mover.rest(RETRY).await;
            }
        }
    }
}

/// Waits for a client to work with, as long as the task is wanted.
pub async fn connected<F: Future<Output = covey_stripe::client::Result<Fs>>>(
    connect: impl Fn() -> F,
    control: &Control,
) -> Option<Fs> {
    while !control.is_over() {
        match connect().await {
            Ok(fs) => return Some(fs),
            Err(error) => control.waits(&error.to_string()),
        }
        task::sleep(RETRY).await;
    }
    None
}

fn limit(rate: u64) -> Option<u64> {
    (rate > 0).then_some(rate)
}
