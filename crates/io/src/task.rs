//! What a server asks of the runtime that its tasks run on: to spawn, to wait, the time, and work
//! that may block.
//!
//! tokio answers, unless a [`Runtime`] was [entered](enter) on this thread: that is how a simulator
//! runs the servers' own code in virtual time. So whatever is to be simulated calls the functions of
//! this module and not tokio's; tokio's channels and `Notify` need no runtime and are as good there.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// A task without a name or an answer, bound to its thread.
pub type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Completes when its time has come.
pub type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A runtime other than tokio.
pub trait Runtime {
    /// Runs a task beside the one that asks, for as long as its process lives.
    fn spawn(&self, task: LocalFuture);
    /// Completes after `time`.
    fn sleep(&self, time: Duration) -> Timer;
    /// The clock that only goes forward.
    fn now(&self) -> Instant;
    /// The clock on the wall: since 1970.
    fn wall(&self) -> Duration;
    /// How long blocking work is in the queue before it begins, and how long it takes to be heard of.
    fn work_takes(&self) -> (Duration, Duration);
    /// Ends the process that asks, as `std::process::exit` does.
    fn exit(&self, why: &str) -> !;
}

/// Makes `runtime` answer on this thread until the guard is dropped.
pub fn enter(runtime: Rc<dyn Runtime>) -> Entered {
    Entered { before: CURRENT.replace(Some(runtime)) }
}

/// See [`enter`].
pub struct Entered {
    before: Option<Rc<dyn Runtime>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
    }
}

/// A task that was spawned. It goes on when this is dropped.
pub struct Task<T> {
    answer: oneshot::Receiver<T>,
}

impl<T> Future for Task<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let answer = ready!(Pin::new(&mut self.answer).poll(context));
        Poll::Ready(answer.map_err(|_| io::Error::other("the task was ended")))
    }
}

/// Runs a task on this thread beside the one that asks. With tokio: inside a `LocalSet`.
pub fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    let (sender, answer) = oneshot::channel();
    let task = async move {
        // Whoever spawned it may not want to know.
        let _ = sender.send(future.await);
    };
    match current() {
        Some(runtime) => runtime.spawn(Box::pin(task)),
        None => drop(tokio::task::spawn_local(task)),
    }
    Task { answer }
}

/// Completes after `time`, counted from now.
pub fn sleep(time: Duration) -> Timer {
    match current() {
        Some(runtime) => runtime.sleep(time),
        None => Box::pin(tokio::time::sleep(time)),
    }
}

/// A timer that is set anew only when it would ring too late.
#[derive(Default)]
pub struct Alarm {
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    /// The same of a runtime that was entered, and when it rings.
    timer: Option<(Instant, Timer)>,
}

impl Alarm {
    /// Ready when `deadline` has passed.
    pub fn poll(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        if let Some(runtime) = current() {
            return self.poll_entered(&*runtime, deadline, context);
        }
        let deadline = tokio::time::Instant::from_std(deadline);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if deadline < sleep.deadline() {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(context));
            // It may have rung for an older, earlier deadline.
            if deadline <= tokio::time::Instant::now() {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }

    fn poll_entered(
        &mut self,
        runtime: &dyn Runtime,
        deadline: Instant,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            let set = self.timer.take().filter(|(rings, _)| *rings <= deadline);
            let left = || deadline.saturating_duration_since(runtime.now());
            let (rings, timer) =
                self.timer.insert(set.unwrap_or_else(|| (deadline, runtime.sleep(left()))));
            ready!(timer.as_mut().poll(context));
            let rings = *rings;
            self.timer = None;
            if deadline <= rings.max(runtime.now()) {
                return Poll::Ready(());
            }
        }
    }
}

/// What `future` answers within `time`, or None.
pub async fn timeout<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    use futures_util::future::{Either, select};
    match select(pin!(future), pin!(sleep(time))).await {
        Either::Left((answer, _)) => Some(answer),
        Either::Right(_) => None,
    }
}

/// The clock that only goes forward.
pub fn now() -> Instant {
    // Tokio's, so that a test may stop it.
    let system = || tokio::time::Instant::now().into_std();
    CURRENT.with_borrow(|current| current.as_ref().map_or_else(system, |runtime| runtime.now()))
}

/// The clock on the wall: since 1970.
pub fn wall() -> Duration {
    let system = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    current().map_or_else(system, |runtime| runtime.wall())
}

/// Runs `work`, which may block, beside the tasks: on tokio's blocking pool. Dropping the future does
/// not stop work that has begun.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match simulated(work) {
        Ok(task) => task.await?,
        Err(work) => match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(io::Error::other("the process is ending")),
        },
    }
}

/// Begins blocking work where a runtime was entered; gives it back elsewhere.
fn simulated<T: 'static, W: FnOnce() -> T + 'static>(work: W) -> Result<Task<T>, W> {
    let Some(runtime) = current() else { return Err(work) };
    let (before, after) = runtime.work_takes();
    Ok(spawn(async move {
        sleep(before).await;
        let answer = work();
        sleep(after).await;
        answer
    }))
}

/// Ends the process; `why` was told already.
pub fn exit(why: &str) -> ! {
    match current() {
        Some(runtime) => runtime.exit(why),
        None => std::process::exit(1),
    }
}

fn current() -> Option<Rc<dyn Runtime>> {
    CURRENT.with_borrow(Clone::clone)
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<dyn Runtime>>> = const { RefCell::new(None) };
}
