//! Requests that wait: futures that can be polled when they are woken, and dropped one by one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Something that waits, as a future does, but by `&mut`.
pub(super) trait Waits {
    type Output;
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Self::Output>;
}

/// A set of waits, each for the request with a tag. Only what was woken is polled.
pub(super) struct Tasks<W> {
    slots: Vec<Option<Task<W>>>,
    free: Vec<usize>,
    due: VecDeque<usize>,
    ready: Arc<Ready>,
}

struct Task<W> {
    tag: u16,
    wait: W,
    alarm: Arc<Alarm>,
}

/// What was woken since the last look, and who looks. Wakers may ring on any thread.
struct Ready {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    woken: VecDeque<usize>,
    looker: Option<Waker>,
}

struct Alarm {
    index: usize,
    is_woken: AtomicBool,
    ready: Arc<Ready>,
}

impl<W: Waits> Tasks<W> {
    pub fn new() -> Self {
        let ready = Arc::new(Ready { list: Mutex::default() });
        Tasks { slots: Vec::new(), free: Vec::new(), due: VecDeque::new(), ready }
    }

    /// Adds a wait, to be polled in the next round; answers its index for `remove`.
    pub fn insert(&mut self, tag: u16, wait: W) -> usize {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let ready = self.ready.clone();
        let alarm = Arc::new(Alarm { index, is_woken: AtomicBool::new(false), ready });
        alarm.wake_by_ref();
        self.slots[index] = Some(Task { tag, wait, alarm });
        index
    }

    /// Drops a wait.
    pub fn remove(&mut self, index: usize) {
        if self.slots[index].take().is_some() {
            self.free.push(index);
        }
    }

    /// Drops all.
    pub fn clear(&mut self) {
        (0..self.slots.len()).for_each(|index| self.remove(index));
    }

    /// Who is told when something wakes.
    pub fn set_waker(&self, waker: &Waker) {
        let mut list = self.ready.lock();
        if !list.looker.as_ref().is_some_and(|looker| looker.will_wake(waker)) {
            list.looker = Some(waker.clone());
        }
    }

    /// Begins a round with all that was woken; false when nothing was.
    pub fn begin_round(&mut self) -> bool {
        // What wakes while the round runs belongs to the next: a wait that wakes itself for ever
        // cannot keep the round from ending.
        self.due.append(&mut self.ready.lock().woken);
        !self.due.is_empty()
    }

    /// Polls on in this round up to the next wait that is over, which leaves the set.
    pub fn next_done(&mut self) -> Option<(u16, W::Output)> {
        while let Some(index) = self.due.pop_front() {
            // An index may have been emptied or used again since: then this poll is one too many.
            let Some(task) = self.slots[index].as_mut() else { continue };
            task.alarm.is_woken.store(false, Ordering::Release);
            let waker = Waker::from(task.alarm.clone());
            if let Poll::Ready(output) = task.wait.poll(&mut Context::from_waker(&waker)) {
                let tag = task.tag;
                self.remove(index);
                return Some((tag, output));
            }
        }
        None
    }
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let looker = {
            let mut list = self.ready.lock();
            list.woken.push_back(self.index);
            list.looker.clone()
        };
        if let Some(looker) = looker {
            looker.wake();
        }
    }
}
