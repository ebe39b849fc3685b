//! The gate of a mount: while it is shut nobody reads requests, so that another process can take the mount over.
//!
//! ```text
//!   Open ──shut──► Shut ──leave──► Leaving ──give──► Given        each thread ends
//!    ▲              │ still: no request is in progress     │
//!    │              │ but those that wait for a lock       │ they are left: given up here, and not answered
//!    └────open──────┴──────────────────────────────────────┘       each thread goes on, with what it has left
//! ```
//!
//! A request that is left stays in the kernel as one that was read: whoever holds the same device may answer it.

use covey_wire::Bytes;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The gate of all threads of a mount.
#[derive(Default)]
pub struct Gate {
    is_shut: AtomicBool,
    state: Mutex<State>,
    /// The phase has changed, or what the threads have said.
    changed: Notify,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// How often it was shut.
    round: u64,
    /// Threads that serve, and how many of them have nothing in progress.
    serving: usize,
    still: usize,
    left: Vec<io::Result<Left>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    Shut,
    Leaving,
    Given,
}

/// What a thread has left: its device, and the requests that were read from it and are not answered.
pub struct Left {
    /// The device.
    pub device: OwnedFd,
    /// The requests, as they were read.
    pub messages: Vec<Bytes>,
}

/// How a thread's stand at the gate ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Stood {
    /// The gate is open: it goes on with these requests, which it had left.
    Open(Vec<Bytes>),
    /// The mount is another process's.
    Given,
}

impl Gate {
    /// Whether nobody may read.
    pub fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Acquire)
    }

    /// Completes when the gate is shut.
    pub async fn shuts(&self) {
        self.await_that(|state| (state.phase != Phase::Open).then_some(())).await;
    }

    /// A thread serves until what comes is dropped.
    pub fn enter(&self) -> Serving<'_> {
        self.lock().serving += 1;
        Serving(self)
    }

    /// Has all threads stop reading.
    pub fn shut(&self) {
        let mut state = self.lock();
        (state.phase, state.still) = (Phase::Shut, 0);
        state.round += 1;
        state.left.clear();
        self.is_shut.store(true, Ordering::Release);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Completes when no thread has anything in progress but waits; false after `limit`, or where nobody serves any more.
    pub async fn is_still(&self, limit: Duration) -> bool {
        let still =
            self.await_that(|state| (state.still >= state.serving).then_some(state.serving > 0));
        tokio::time::timeout(limit, still).await.unwrap_or(false)
    }

    /// Has all threads leave the requests that wait, and takes those.
    ///
    /// # Errors
    ///
    /// A device cannot be copied, or a thread does not come to it within `limit`.
    pub async fn leave(&self, limit: Duration) -> io::Result<Vec<Left>> {
        let threads = {
            let mut state = self.lock();
            state.phase = Phase::Leaving;
            state.still
        };
        self.changed.notify_waiters();
        let all = self.await_that(|state| {
            (state.left.len() >= threads).then(|| std::mem::take(&mut state.left))
        });
        let left = tokio::time::timeout(limit, all).await.map_err(|_| io::ErrorKind::TimedOut)?;
        left.into_iter().collect()
    }

    /// Has all threads go on.
    pub fn open(&self) {
        self.lock().phase = Phase::Open;
        self.is_shut.store(false, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Has all threads end.
    pub fn give(&self) {
        self.lock().phase = Phase::Given;
        self.changed.notify_waiters();
    }

    /// A thread's stand: `is_idle` says whether nothing but `waits` is in progress, `device` copies its device.
    pub async fn stand(
        &self,
        waits: &Rc<Waits>,
        is_idle: impl Fn() -> bool,
        device: impl FnOnce() -> io::Result<OwnedFd>,
    ) -> Stood {
        while !is_idle() {
            if !self.is_shut() {
                return Stood::Open(Vec::new());
            }
            tokio::time::sleep(BRIEF).await;
        }
        let round = {
            let mut state = self.lock();
            state.still += 1;
            state.round
        };
        self.changed.notify_waiters();
        let phase = self.await_that(|state| match state.phase {
            _ if state.round != round => Some(Phase::Open),
            Phase::Shut => None,
            phase => Some(phase),
        });
        match phase.await {
            Phase::Leaving => {}
            Phase::Given => return Stood::Given,
            Phase::Open | Phase::Shut => return Stood::Open(Vec::new()),
        }
        waits.leave();
        while !is_idle() || waits.count() > 0 {
            tokio::time::sleep(BRIEF).await;
        }
        let messages = waits.take();
        let left = device().map(|device| Left { device, messages: messages.clone() });
        self.lock().left.push(left);
        self.changed.notify_waiters();
        let is_given = self.await_that(|state| match state.phase {
            _ if state.round != round => Some(false),
            Phase::Leaving | Phase::Shut => None,
            phase => Some(phase == Phase::Given),
        });
        if is_given.await { Stood::Given } else { Stood::Open(messages) }
    }

    async fn await_that<T>(&self, mut found: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = found(&mut self.lock()) {
                return found;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that serves.
pub struct Serving<'a>(&'a Gate);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.lock().serving -= 1;
        self.0.changed.notify_waiters();
    }
}

/// The requests of one thread that wait for somebody else, and may do so in another process.
#[derive(Default)]
pub struct Waits {
    state: std::cell::RefCell<WaitsState>,
    leaves: Notify,
}

#[derive(Default)]
struct WaitsState {
    is_leaving: bool,
    /// In progress, by `unique`.
    waiting: HashMap<u64, Bytes>,
    left: Vec<Bytes>,
}

/// A request that waits; dropped when it is over.
pub struct Waiting {
    waits: Rc<Waits>,
    unique: u64,
}

impl Waits {
    /// A request begins that may be left.
    pub fn enter(self: &Rc<Self>, unique: u64, message: Bytes) -> Waiting {
        self.state.borrow_mut().waiting.insert(unique, message);
        Waiting { waits: self.clone(), unique }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.state.borrow().waiting.len()
    }

    fn leave(&self) {
        self.state.borrow_mut().is_leaving = true;
        self.leaves.notify_waiters();
    }

    fn take(&self) -> Vec<Bytes> {
        let mut state = self.state.borrow_mut();
        state.is_leaving = false;
        std::mem::take(&mut state.left)
    }
}

impl Waiting {
    /// Completes when the request is to be left.
    pub async fn leaves(&self) {
        loop {
            let leaves = self.waits.leaves.notified();
            if self.waits.state.borrow().is_leaving {
                return;
            }
            leaves.await;
        }
    }

    /// It is given up without an answer.
    pub fn leave(self) {
        let mut state = self.waits.state.borrow_mut();
        let message = state.waiting.get(&self.unique).cloned();
        state.left.extend(message);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waits.state.borrow_mut().waiting.remove(&self.unique);
    }
}

/// How often a thread looks whether its last requests are over.
const BRIEF: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::local_runtime;
    use std::cell::Cell;
    use std::sync::Arc;

    const LONG: Duration = Duration::from_secs(60);

    fn device() -> io::Result<OwnedFd> {
        Ok(std::fs::File::open("/dev/null")?.into())
    }

    fn run(test: impl AsyncFn(Arc<Gate>, Rc<Waits>)) {
        let (gate, waits) = (Arc::new(Gate::default()), Rc::new(Waits::default()));
        local_runtime().unwrap().block_on(test(gate, waits));
    }

    /// A request that waits until it is left.
    fn wait(waits: &Rc<Waits>, unique: u64) {
        let waiting = waits.enter(unique, Bytes::copy_from_slice(&unique.to_le_bytes()));
        tokio::task::spawn_local(async move {
            waiting.leaves().await;
            waiting.leave();
        });
    }

    #[test]
    fn waits_are_left_and_go_on_where_the_gate_opens() {
        run(async |gate, waits| {
            let _serving = gate.enter();
            wait(&waits, 5);
            gate.shut();
            let standing = gate.stand(&waits, || true, device);
            let handing = async {
                assert!(gate.is_still(LONG).await);
                let left = gate.leave(LONG).await.unwrap();
                assert_eq!((left.len(), left[0].messages.len(), waits.count()), (1, 1, 0));
                gate.open();
            };
            let (stood, ()) = tokio::join!(standing, handing);
            let Stood::Open(messages) = stood else { panic!("it was not given") };
            assert_eq!(messages, [Bytes::copy_from_slice(&5_u64.to_le_bytes())]);
            assert!(!gate.is_shut());
        });
    }

    #[test]
    fn a_thread_ends_where_the_mount_is_given() {
        run(async |gate, waits| {
            let _serving = gate.enter();
            gate.shut();
            let handing = async {
                assert!(gate.is_still(LONG).await);
                gate.leave(LONG).await.unwrap();
                gate.give();
            };
            let (stood, ()) = tokio::join!(gate.stand(&waits, || true, device), handing);
            assert_eq!(stood, Stood::Given);
        });
    }

    #[test]
    fn what_is_in_progress_keeps_the_gate_from_being_still() {
        run(async |gate, waits| {
            let _serving = gate.enter();
            gate.shut();
            let looks = Cell::new(0);
            let is_idle = || looks.replace(looks.get() + 1) > 3;
            let handing = async {
                assert!(gate.is_still(LONG).await);
                gate.open();
            };
            let (stood, ()) = tokio::join!(gate.stand(&waits, is_idle, device), handing);
            assert_eq!((stood, looks.get()), (Stood::Open(Vec::new()), 5));
            gate.shut();
            let handing = async {
                assert!(!gate.is_still(Duration::ZERO).await);
                gate.open();
            };
            let (stood, ()) = tokio::join!(gate.stand(&waits, || false, device), handing);
            assert_eq!(stood, Stood::Open(Vec::new()));
        });
    }

    #[test]
    fn nothing_is_still_where_nobody_serves() {
        run(async |gate, _| {
            drop(gate.enter());
            gate.shut();
            assert!(!gate.is_still(LONG).await);
        });
    }
}
