//! The rounds of a host: it looks at the rings of its workers again and again, and sleeps when they have nothing.
//!
//! ```text
//!   pass ──► all turned ──► look, look, look ... ──► others of this thread ──► next pass
//!                             │ news: that worker is turned                     │ idle for long:
//!                             └ nudged: all are turned                          └► asleep until a bell rings
//! ```
//!
//! What a worker waits for comes from its ring, or from elsewhere: another worker that writes into a pipe, a node, a clock.
//! Whatever comes from elsewhere nudges. So a look costs a load from memory for each worker, and nothing else.

use super::host::{Cause, Worker, Workers};
use covey_cell::Shared;
use covey_io::os::shm::Bell;
use covey_io::os::shm::area::Area;
use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Looks of one pass: some ten microseconds, for which others of this thread wait.
const LOOKS: u32 = 1024;
/// Looks that a turn takes as long as.
const LOOKS_OF_TURN: u32 = 16;
/// How long a host without work polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// Serves all boxes, until there is an error.
pub(super) async fn serve(bell: Rc<Bell>, area: Rc<Area>, workers: Workers) -> anyhow::Error {
    let watched = bell.as_fd().try_clone_to_owned();
    // Deprecated because a type may lie about its descriptor; an OwnedFd does not.
    #[allow(deprecated)]
    let rung = watched.and_then(|fd| AsyncFd::with_interest(fd, Interest::READABLE));
    let rung = match rung {
        Ok(rung) => rung,
        Err(error) => return error.into(),
    };
    let mut rounds =
        Rounds { bell, rung, area, workers, nudge: None, idle_since: None, is_asleep: false };
    poll_fn(|context| rounds.poll(context)).await
}

struct Rounds {
    bell: Rc<Bell>,
    rung: AsyncFd<OwnedFd>,
    area: Rc<Area>,
    workers: Workers,
    nudge: Option<Arc<Nudge>>,
    idle_since: Option<Instant>,
    is_asleep: bool,
}

impl Rounds {
    /// One pass. Ready with the error that ends the host.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<anyhow::Error> {
        if std::mem::take(&mut self.is_asleep) {
            self.all(|worker| worker.mailbox.woke());
        }
        self.pass(context.waker());
        let now = Instant::now();
        let is_idle = now.duration_since(*self.idle_since.get_or_insert(now)) > SPIN;
        if !is_idle || !self.prepare_sleep() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.sleep(context)
    }

    fn pass(&mut self, task: &Waker) {
        let nudge = self.nudge.take().filter(|nudge| nudge.task.will_wake(task));
        let nudge = nudge.unwrap_or_else(|| Nudge::new(task));
        let waker = Waker::from(nudge.clone());
        let mut context = Context::from_waker(&waker);
        // A task is not polled for nothing.
        let mut is_due = true;
        let mut left = LOOKS;
        while left > 0 {
            is_due |= nudge.is_due();
            let cause = if std::mem::take(&mut is_due) { Cause::Nudge } else { Cause::News };
            let mut has_moved = false;
            self.all(|worker| {
                let is_turned = cause == Cause::Nudge || worker.mailbox.has_news();
                has_moved |= is_turned && worker.turn(cause, &mut context);
            });
            if has_moved {
                self.idle_since = None;
                left = left.saturating_sub(LOOKS_OF_TURN);
            } else {
                std::hint::spin_loop();
                left -= 1;
            }
        }
        self.nudge = Some(nudge);
    }

    /// Says that the host is about to sleep. False when there is news after all.
    fn prepare_sleep(&mut self) -> bool {
        let mut may_sleep = true;
        self.all(|worker| may_sleep &= worker.mailbox.prepare_sleep());
        self.is_asleep = true;
        self.area.fence();
        may_sleep
    }

    fn sleep(&mut self, context: &mut Context<'_>) -> Poll<anyhow::Error> {
        loop {
            match self.rung.poll_read_ready(context) {
                Poll::Ready(Ok(mut ready)) => {
                    self.bell.silence();
                    ready.clear_ready();
                    context.waker().wake_by_ref();
                }
                Poll::Ready(Err(error)) => return Poll::Ready(error.into()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn all(&self, act: impl FnMut(&mut Worker)) {
        self.workers.borrow_mut().iter_mut().flatten().for_each(act);
    }
}

/// Wakes the task that makes the rounds, and leaves word for the pass that it may be in.
struct Nudge {
    is_due: AtomicBool,
    task: Waker,
}

impl Nudge {
    fn new(task: &Waker) -> Arc<Nudge> {
        Arc::new(Nudge { is_due: AtomicBool::new(false), task: task.clone() })
    }

    #[inline]
    fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed) && self.is_due.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}
