//! Tasks, timers and processes on one thread, in virtual time.

mod sleep;

use super::net::{Network, Ports};
use super::trace::Trace;
use crate::task::{self, LocalFuture, Runtime};
use covey_wire::Rng;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A machine of the simulated world. 0 is the one that the test itself runs on.
pub type NodeId = usize;

/// How a machine's disk is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Milliseconds.
    Normal,
    /// Up to some seconds.
    Slow,
    /// Nothing comes back before so long a time.
    Hung(Duration),
}

/// A run did not come to its end within its virtual time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hang {
    /// When it was given up.
    pub at: Duration,
    /// Nothing was left that could ever happen, rather than too much.
    pub is_deadlock: bool,
}

/// One simulated world; answers as the runtime of this thread until it is dropped.
pub struct Sim {
    control: Control,
    _entered: task::Entered,
}

/// What moves the world, for tasks inside it too.
#[derive(Clone)]
pub struct Control {
    world: Rc<World>,
}

impl std::ops::Deref for Sim {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

pub(super) struct World {
    begun: Instant,
    /// Nanoseconds since the world began.
    now: Cell<u64>,
    /// Steps of tasks take time, all on the one clock.
    steps_take_time: Cell<bool>,
    tasks: RefCell<Vec<Option<Task>>>,
    free: RefCell<Vec<usize>>,
    ready: RefCell<VecDeque<Arc<Wakeup>>>,
    events: RefCell<BinaryHeap<Reverse<Event>>>,
    /// Who waits for a timer.
    sleepers: RefCell<HashMap<u64, Waker>>,
    numbers: Cell<u64>,
    pub(super) rng: RefCell<Rng>,
    nodes: RefCell<Vec<Node>>,
    current: Cell<NodeId>,
    trace: RefCell<Trace>,
    pub(super) network: RefCell<Network>,
    pub(super) ports: RefCell<Ports>,
}

struct Task {
    node: NodeId,
    /// None while it runs.
    future: Option<LocalFuture>,
    wakeup: Arc<Wakeup>,
}

/// A machine and the process on it.
struct Node {
    name: String,
    is_up: bool,
    is_powered: bool,
    is_stopped: bool,
    /// Tasks that would run if the process were not stopped.
    held: Vec<Arc<Wakeup>>,
    pace: Pace,
    /// Its clock on the wall minus the true one, in nanoseconds.
    skew: i64,
    /// How its process is to be seen to have ended, when it ends at a disk operation.
    power_fails: bool,
}

/// A task's place in the queue, once at most.
struct Wakeup {
    slot: usize,
    number: u64,
    is_queued: AtomicBool,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            with_world(|world| world.ready.borrow_mut().push_back(self.clone()));
        }
    }
}

struct Event {
    at: u64,
    number: u64,
    what: What,
}

enum What {
    /// A timer, by its number.
    Ring,
    Call(Box<dyn FnOnce()>),
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Event) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Unwinds out of a process that ends.
struct Exit;

thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// Does something in this thread's world; nothing where there is none any more.
pub(super) fn with_world<T>(act: impl FnOnce(&Rc<World>) -> T) -> Option<T> {
    let world = WORLD.with_borrow(Clone::clone);
    world.as_ref().map(act)
}

/// This thread's world.
pub(super) fn world() -> Rc<World> {
    with_world(Rc::clone).expect("a simulation runs on this thread")
}

/// Puts a line into the trace, for the process that runs now.
pub fn note(text: impl FnOnce() -> String) {
    with_world(|world| world.note(&text()));
}

impl Sim {
    /// A world without machines. With `echo` its trace goes to stderr as it happens.
    pub fn new(seed: u64, echo: bool) -> Sim {
        let world = Rc::new(World {
            begun: Instant::now(),
            now: Cell::new(0),
            steps_take_time: Cell::new(true),
            tasks: RefCell::default(),
            free: RefCell::default(),
            ready: RefCell::default(),
            events: RefCell::default(),
            sleepers: RefCell::default(),
            numbers: Cell::new(0),
            rng: RefCell::new(Rng::new(seed)),
            nodes: RefCell::default(),
            current: Cell::new(0),
            trace: RefCell::new(Trace::new(echo)),
            network: RefCell::default(),
            ports: RefCell::default(),
        });
        WORLD.set(Some(world.clone()));
        let _entered = task::enter(Rc::new(Guest(world.clone())));
        let control = Control { world };
        control.node("world");
        Sim { control, _entered }
    }

    /// For tasks inside the world.
    pub fn control(&self) -> Control {
        self.control.clone()
    }
}

impl Control {
    /// A new machine, without a process.
    pub fn node(&self, name: &str) -> NodeId {
        let mut nodes = self.world.nodes.borrow_mut();
        let is_world = nodes.is_empty();
        nodes.push(Node {
            name: name.to_owned(),
            is_up: is_world,
            is_powered: true,
            is_stopped: false,
            held: Vec::new(),
            pace: Pace::Normal,
            skew: 0,
            power_fails: false,
        });
        nodes.len() - 1
    }

    /// Makes steps of tasks take no time worth mentioning. Otherwise all machines share the time of one processor: what
    /// many do at once takes as long as if they did it in turn.
    pub fn make_steps_free(&self) {
        self.world.steps_take_time.set(false);
    }

    /// Sets how far a machine's wall clock is ahead of the true time, or behind.
    pub fn set_skew(&self, node: NodeId, nanos: i64) {
        self.world.nodes.borrow_mut()[node].skew = nanos;
    }

    /// Sets how a machine's disk is doing from now on.
    pub fn set_pace(&self, node: NodeId, pace: Pace) {
        self.world.nodes.borrow_mut()[node].pace = pace;
    }

    /// Begins the machine's process with one task; it may spawn others.
    pub fn boot(&self, node: NodeId, main: impl Future<Output = ()> + 'static) {
        {
            let mut nodes = self.world.nodes.borrow_mut();
            let node = &mut nodes[node];
            (node.is_up, node.is_powered, node.is_stopped) = (true, true, false);
        }
        self.world.spawn(node, Box::pin(main));
    }

    /// Runs a task in the machine's process.
    pub fn spawn(&self, node: NodeId, task: impl Future<Output = ()> + 'static) {
        self.world.spawn(node, Box::pin(task));
    }

    /// Whether the machine's process runs, stopped or not.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.world.is_up(node)
    }

    /// Ends the machine's process, as kill -9 does: its memory is gone, its connections are closed
    /// by the system.
    pub fn kill(&self, node: NodeId) {
        self.world.end_process(node, false);
    }

    /// Cuts the machine's power: nobody hears of it, and its disk forgets (see
    /// [`super::SimDisk::lose_power`]). It is on again when it is booted.
    pub fn lose_power(&self, node: NodeId) {
        self.world.end_process(node, true);
    }

    /// What the next end of the process at a disk operation is: a loss of power or not.
    pub fn set_power_fails(&self, node: NodeId, power_fails: bool) {
        self.world.nodes.borrow_mut()[node].power_fails = power_fails;
    }

    /// Stops the machine's process, as SIGSTOP does.
    pub fn stop(&self, node: NodeId) {
        self.world.nodes.borrow_mut()[node].is_stopped = true;
    }

    /// Lets a stopped process go on.
    pub fn cont(&self, node: NodeId) {
        let held = {
            let mut nodes = self.world.nodes.borrow_mut();
            nodes[node].is_stopped = false;
            std::mem::take(&mut nodes[node].held)
        };
        self.world.ready.borrow_mut().extend(held);
    }

    /// Virtual time since the world began.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.world.now.get())
    }

    /// Runs everything until `future` is done, for at most so much virtual time.
    pub fn run<T: 'static>(
        &self,
        limit: Duration,
        future: impl Future<Output = T> + 'static,
    ) -> Result<T, Hang> {
        let answer = Rc::new(RefCell::new(None));
        let put = answer.clone();
        self.world.spawn(0, Box::pin(async move { *put.borrow_mut() = Some(future.await) }));
        let end = self.world.now.get() + limit.as_nanos() as u64;
        loop {
            if let Some(answer) = answer.borrow_mut().take() {
                return Ok(answer);
            }
            let moved = self.world.step();
            if !moved || self.world.now.get() > end {
                return Err(Hang { at: self.elapsed(), is_deadlock: !moved });
            }
        }
    }

    /// A hash of everything that has happened.
    pub fn trace_hash(&self) -> u64 {
        self.world.trace.borrow().hash()
    }

    /// The last lines of the trace.
    pub fn trace(&self) -> Vec<String> {
        self.world.trace.borrow().lines().map(str::to_owned).collect()
    }

    /// Puts a line into the trace.
    pub fn note(&self, text: &str) {
        self.world.note(text);
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // Processes end while there is still a world to say so to.
        let count = self.world.nodes.borrow().len();
        (0..count).for_each(|node| self.world.end_process(node, true));
        WORLD.take();
    }
}

impl World {
    pub(super) fn elapsed(&self) -> u64 {
        self.now.get()
    }

    pub(super) fn current(&self) -> NodeId {
        self.current.get()
    }

    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.nodes.borrow()[node].is_up
    }

    pub(super) fn is_powered(&self, node: NodeId) -> bool {
        self.nodes.borrow()[node].is_powered
    }

    pub(super) fn find(&self, name: &str) -> Option<NodeId> {
        self.nodes.borrow().iter().position(|node| node.name == name)
    }

    pub(super) fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    fn note(&self, text: &str) {
        let nodes = self.nodes.borrow();
        let now = Duration::from_nanos(self.now.get());
        self.trace.borrow_mut().line(now, &nodes[self.current.get()].name, text);
    }

    /// Has something happen at a later time.
    pub(super) fn call_at(&self, at: u64, act: impl FnOnce() + 'static) {
        let number = self.number();
        let what = What::Call(Box::new(act));
        self.events.borrow_mut().push(Reverse(Event { at, number, what }));
    }

    fn spawn(&self, node: NodeId, future: LocalFuture) {
        if !self.is_up(node) {
            return drop(future);
        }
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            self.tasks.borrow_mut().push(None);
            self.tasks.borrow().len() - 1
        });
        let number = self.number();
        let wakeup = Arc::new(Wakeup { slot, number, is_queued: AtomicBool::new(true) });
        let task = Task { node, future: Some(future), wakeup: wakeup.clone() };
        self.tasks.borrow_mut()[slot] = Some(task);
        self.ready.borrow_mut().push_back(wakeup);
    }

    /// Lets one thing happen; false when there is nothing left.
    fn step(&self) -> bool {
        let next = {
            let mut ready = self.ready.borrow_mut();
            // Most often in turn, as runtimes do it; now and then in any order, as threads do it.
            let count = ready.len().min(64);
            let mut rng = self.rng.borrow_mut();
            let at = if count > 1 && rng.chance(300) { rng.index(count) } else { 0 };
            ready.remove(at)
        };
        match next {
            Some(wakeup) => self.poll(&wakeup),
            None => return self.advance(),
        }
        true
    }

    /// Goes to the time of the next event that somebody waits for.
    fn advance(&self) -> bool {
        loop {
            let Some(Reverse(event)) = self.events.borrow_mut().pop() else { return false };
            match event.what {
                What::Ring => {
                    let waker = self.sleepers.borrow_mut().remove(&event.number);
                    let Some(waker) = waker else { continue };
                    self.now.set(self.now.get().max(event.at));
                    waker.wake();
                }
                What::Call(act) => {
                    self.now.set(self.now.get().max(event.at));
                    let before = self.current.replace(0);
                    act();
                    self.current.set(before);
                }
            }
            return true;
        }
    }

    fn poll(&self, wakeup: &Arc<Wakeup>) {
        let (node, mut future) = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(task) = tasks[wakeup.slot].as_mut() else { return };
            if task.wakeup.number != wakeup.number {
                return;
            }
            let mut nodes = self.nodes.borrow_mut();
            if nodes[task.node].is_stopped {
                return nodes[task.node].held.push(wakeup.clone());
            }
            (task.node, task.future.take().expect("a task runs once at a time"))
        };
        wakeup.is_queued.store(false, Ordering::Relaxed);
        // Work takes time, so whoever goes round in circles comes to the end of his.
        let step =
            if self.steps_take_time.get() { 200 + self.rng.borrow_mut().below(2000) } else { 1 };
        self.now.set(self.now.get() + step);
        self.trace.borrow_mut().number(self.now.get());
        let before = self.current.replace(node);
        let waker = Waker::from(wakeup.clone());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            future.as_mut().poll(&mut Context::from_waker(&waker))
        }));
        let ended = match polled {
            Ok(Poll::Pending) => {
                let mut tasks = self.tasks.borrow_mut();
                match tasks[wakeup.slot].as_mut().filter(|t| t.wakeup.number == wakeup.number) {
                    Some(task) => task.future = Some(future),
                    // Its process has ended meanwhile.
                    None => {
                        drop(tasks);
                        drop(future);
                    }
                }
                None
            }
            Ok(Poll::Ready(())) => {
                drop(future);
                self.forget(wakeup);
                None
            }
            Err(payload) => {
                // What was being done when the process ended must not go on while it unwinds.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
                self.forget(wakeup);
                Some(payload)
            }
        };
        self.current.set(before);
        if let Some(payload) = ended {
            if !payload.is::<Exit>() {
                resume_unwind(payload);
            }
            let power_fails = self.nodes.borrow()[node].power_fails;
            self.end_process(node, power_fails);
        }
    }

    fn forget(&self, wakeup: &Wakeup) {
        let mut tasks = self.tasks.borrow_mut();
        if tasks[wakeup.slot].as_ref().is_some_and(|task| task.wakeup.number == wakeup.number) {
            tasks[wakeup.slot] = None;
            self.free.borrow_mut().push(wakeup.slot);
        }
    }

    fn end_process(&self, node: NodeId, power_fails: bool) {
        {
            let mut nodes = self.nodes.borrow_mut();
            let node = &mut nodes[node];
            (node.is_up, node.is_stopped) = (false, false);
            node.is_powered &= !power_fails;
            node.held.clear();
        }
        super::net::process_ends(self, node, power_fails);
        let before = self.current.replace(node);
        let count = self.tasks.borrow().len();
        for slot in 0..count {
            let is_its = self.tasks.borrow()[slot].as_ref().is_some_and(|task| task.node == node);
            if is_its {
                let task = self.tasks.borrow_mut()[slot].take();
                self.free.borrow_mut().push(slot);
                drop(task);
            }
        }
        self.current.set(before);
        // What the dead have said to one another while they were dropped counts for nothing.
        let tasks = self.tasks.borrow();
        self.ready.borrow_mut().retain(|wakeup| {
            tasks[wakeup.slot].as_ref().is_some_and(|task| task.wakeup.number == wakeup.number)
        });
    }

    fn work_takes(&self, node: NodeId) -> (Duration, Duration) {
        let pace = self.nodes.borrow()[node].pace;
        let mut rng = self.rng.borrow_mut();
        let (micro, milli) = (Duration::from_micros, Duration::from_millis);
        match pace {
            Pace::Normal => (rng.time(micro(20)..milli(20)), rng.time(micro(5)..milli(1))),
            Pace::Slow => (rng.time(milli(1)..milli(3000)), rng.time(micro(5)..milli(300))),
            // Before or after: what hangs may have been done all the same.
            Pace::Hung(time) if rng.chance(500) => (time, micro(50)),
            Pace::Hung(time) => (micro(50), time),
        }
    }
}

/// The world as the runtime that [`crate::task`] asks.
struct Guest(Rc<World>);

impl Runtime for Guest {
    fn spawn(&self, task: LocalFuture) {
        self.0.spawn(self.0.current.get(), task);
    }

    fn sleep(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.0.sleep(time))
    }

    fn now(&self) -> Instant {
        self.0.begun + Duration::from_nanos(self.0.now.get())
    }

    fn wall(&self) -> Duration {
        // A Tuesday in 2033.
        const EPOCH: u64 = 2_000_000_000_000_000_000;
        let skew = self.0.nodes.borrow()[self.0.current.get()].skew;
        Duration::from_nanos((EPOCH + self.0.now.get()).saturating_add_signed(skew))
    }

    fn work_takes(&self) -> (Duration, Duration) {
        self.0.work_takes(self.0.current.get())
    }

    fn exit(&self, why: &str) -> ! {
        self.0.note(&format!("the process ends: {why}"));
        resume_unwind(Box::new(Exit))
    }
}

impl Control {
    pub(super) fn world(&self) -> Rc<World> {
        self.world.clone()
    }
}
