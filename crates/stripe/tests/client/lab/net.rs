//! The client's world: virtual time, timers, tasks and dials.

use covey_ninep::client::{self, Client, Conn};
use covey_ninep::tree::{Errno, Result};
use covey_stripe::client::{BoxFuture, Net};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A waker that remembers.
pub struct Flag(AtomicBool);

impl Flag {
    pub fn raised() -> Arc<Flag> {
        Arc::new(Flag(AtomicBool::new(true)))
    }

    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn lower(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Polls the future if it was woken.
    pub fn poll<F: Future + ?Sized>(self: &Arc<Self>, future: Pin<&mut F>) -> Option<F::Output> {
        if !self.lower() {
            return None;
        }
        let waker = Waker::from(self.clone());
        match future.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.raise();
    }
}

pub struct SimNet(Arc<Mutex<State>>);

struct State {
    now: Instant,
    timers: Vec<(Instant, Weak<Mutex<Option<Waker>>>)>,
    new: Vec<New>,
    down: BTreeSet<String>,
    mute: BTreeSet<String>,
    dials: BTreeMap<String, usize>,
}

/// A task, or a connection that was dialled.
type New = (Option<BoxFuture<()>>, Option<String>, Option<Client>);

impl Default for SimNet {
    fn default() -> Self {
        SimNet(Arc::new(Mutex::new(State {
            now: Instant::now(),
            timers: Vec::new(),
            new: Vec::new(),
            down: BTreeSet::new(),
            mute: BTreeSet::new(),
            dials: BTreeMap::new(),
        })))
    }
}

impl SimNet {
    pub fn now_time(&self) -> Instant {
        self.0.lock().unwrap().now
    }

    pub fn take_new(&self) -> Vec<New> {
        std::mem::take(&mut self.0.lock().unwrap().new)
    }

    /// Whether nobody listens there.
    pub fn set_down(&self, server: &str, is_down: bool) {
        let down = &mut self.0.lock().unwrap().down;
        if is_down {
            down.insert(server.into())
        } else {
            down.remove(server)
        };
    }

    /// Whether it takes connections, and then says nothing.
    pub fn set_mute(&self, server: &str, is_mute: bool) {
        let mute = &mut self.0.lock().unwrap().mute;
        if is_mute {
            mute.insert(server.into())
        } else {
            mute.remove(server)
        };
    }

    pub fn is_mute(&self, server: &str) -> bool {
        self.0.lock().unwrap().mute.contains(server)
    }

    /// How often a server was dialled.
    pub fn dials(&self, server: &str) -> usize {
        self.0.lock().unwrap().dials.get(server).copied().unwrap_or(0)
    }

    pub fn next_timer(&self) -> Option<Instant> {
        let mut state = self.0.lock().unwrap();
        state.timers.retain(|(_, waker)| waker.strong_count() > 0);
        state.timers.iter().map(|timer| timer.0).min()
    }

    pub fn set_now(&self, now: Instant) {
        let due: Vec<_> = {
            let mut state = self.0.lock().unwrap();
            state.now = state.now.max(now);
            let now = state.now;
            let (due, later) =
                std::mem::take(&mut state.timers).into_iter().partition(|t| t.0 <= now);
            state.timers = later;
            due
        };
        for (_, waker) in due {
            let waker = waker.upgrade().and_then(|waker| waker.lock().unwrap().take());
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

struct Sleep {
    end: Instant,
    net: Arc<Mutex<State>>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.net.lock().unwrap();
        if state.now >= self.end {
            return Poll::Ready(());
        }
        let is_new = self.waker.lock().unwrap().replace(context.waker().clone()).is_none();
        if is_new {
            state.timers.push((self.end, Arc::downgrade(&self.waker)));
        }
        Poll::Pending
    }
}

impl Net for SimNet {
    fn dial(&self, server: &str, aname: &str) -> BoxFuture<Result<Conn>> {
        let mut state = self.0.lock().unwrap();
        *state.dials.entry(server.into()).or_default() += 1;
        if state.down.contains(server) {
            let refused = Errno::because(Errno::EIO, "connection refused");
            return Box::pin(async move { Err(refused) });
        }
        let config = client::Config { heartbeat_idle: true, ..client::Config::default() };
        let (conn, machine) = client::pair(config, state.now);
        state.new.push((None, Some(server.into()), Some(machine)));
        let aname = aname.to_owned();
        Box::pin(async move {
            conn.version().await?;
            conn.auth_and_attach(0, "root", Some(0), aname, None, [0; 32]).await?;
            Ok(conn)
        })
    }

    fn now(&self) -> Instant {
        self.now_time()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<()> {
        let end = self.now_time() + time;
        Box::pin(Sleep { end, net: self.0.clone(), waker: Arc::default() })
    }

    fn spawn(&self, task: BoxFuture<()>) {
        self.0.lock().unwrap().new.push((Some(task), None, None));
    }
}
