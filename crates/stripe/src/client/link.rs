//! A connection that comes back: one per server.
//!
//! A `Link` dials when it is first used and again, by itself, whenever its connection is lost. While a
//! server is away, callers wait for it at most `dead_after` from the moment their own request
//! began. A server counts as dead when that long has passed since the connection was lost, and at
//! once when it was lost by silence, which has taken that long already: then callers are refused at
//! once, until a dial succeeds. Hard clients wait for as long as it takes.
//!
//! One task per link dials and watches; nobody else does, so a link never has two connections.

use super::{Away, BoxFuture, Error, Net, Options, Result};
use covey_ninep::client::Conn;
use covey_ninep::message::{IOHDRSZ, MSIZE_DEFAULT};
use covey_ninep::tree;
use futures_util::future::{Either, select};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// What is done with a fresh connection before anyone may use it. Answers which start of its machine
/// the server runs in.
pub type Greet = Box<dyn Fn(Conn) -> BoxFuture<tree::Result<Start>> + Send + Sync>;

/// A start of a server's machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// A number that no other start of it has.
    pub machine: u64,
    /// When it was, or later; None for what was long before.
    pub at: Option<Instant>,
    /// The server takes the chains by which objects are reached.
    pub says_chains: bool,
}

/// How long a request still waits for a server that is away. Two starts in a row are no outage, so it is waited for anew each time
/// that it was there; but not for ever, since it may be this request that ends it.
pub struct Patience {
    begun: Instant,
    /// The server was there.
    pub since: Instant,
    losses: u32,
}

/// How many connections a request may lose beyond the time of one.
const LOSSES_MAX: u32 = 8;

/// One server, reconnected to for as long as the link is held.
pub struct Link {
    net: Arc<dyn Net>,
    server: String,
    aname: String,
    options: Options,
    greet: Option<Greet>,
    state: Mutex<State>,
    payload_max: AtomicU32,
}

#[derive(Default)]
struct State {
    up: Option<Conn>,
    /// Counts connections: a fid is good for one generation.
    generation: u64,
    /// Which start of its machine the server runs in.
    start: Start,
    /// The task that dials and watches was begun.
    is_tended: bool,
    down_since: Option<Instant>,
    dead: bool,
    why: Away,
    changes: u64,
    waiters: Vec<Waker>,
}

impl Link {
    /// A link that nobody has used yet: nothing is dialled.
    pub fn new(
        net: Arc<dyn Net>,
        server: &str,
        aname: &str,
        options: Options,
        greet: Option<Greet>,
    ) -> Arc<Link> {
        let (server, aname) = (server.to_owned(), aname.to_owned());
        let (state, payload_max) = (Mutex::default(), AtomicU32::new(MSIZE_DEFAULT - IOHDRSZ));
        Arc::new(Link { net, server, aname, options, greet, state, payload_max })
    }

    /// The server's name.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Whether the server is known to be dead right now.
    pub fn is_dead(&self) -> bool {
        self.counts_as_dead(&self.lock())
    }

    /// How long a read or write may take on the live server.
    pub fn io_deadline(&self) -> Option<Duration> {
        (!self.options.hard).then_some(self.options.io_deadline)
    }

    /// Most bytes of payload in one request, as the last connection has settled it.
    pub fn payload_max(&self) -> u32 {
        self.payload_max.load(Ordering::Relaxed)
    }

    /// The clock, for the start of a request.
    pub fn now(&self) -> Instant {
        self.net.now()
    }

    /// The live connection, if there is one right now.
    pub fn conn_now(&self) -> Option<Conn> {
        self.lock().up.clone().filter(|conn| !conn.is_lost())
    }

    /// The live connection and its generation, if there is one right now.
    pub fn up_now(&self) -> Option<(u64, Conn)> {
        let mut state = self.lock();
        self.look(&mut state);
        state.up.clone().map(|conn| (state.generation, conn))
    }

    /// The live connection and its generation, waiting for it within the request's time.
    pub async fn conn(self: &Arc<Self>, started: Instant) -> Result<(u64, Conn)> {
        loop {
            let (seen, end) = {
                let mut state = self.lock();
                self.look(&mut state);
                if let Some(conn) = &state.up {
                    return Ok((state.generation, conn.clone()));
                }
                self.tend(&mut state);
                if !self.options.hard && (self.counts_as_dead(&state) || self.is_over(started)) {
                    return Err(self.down(&state));
                }
                let since = state.down_since.map_or(started, |since| since.min(started));
                (state.changes, since + self.options.dead_after)
            };
            self.changed_or_over(seen, end).await;
        }
    }

    /// Which start of its machine the server ran in on the connection of this generation, if that is
    /// still the last one.
    pub fn machine(&self, generation: u64) -> Option<Start> {
        let state = self.lock();
        (state.generation == generation).then_some(state.start)
    }

    /// The start of its machine that the server has told of last, if it ever has.
    pub fn last_machine(&self) -> Option<u64> {
        let state = self.lock();
        (state.generation > 0).then_some(state.start.machine)
    }

    /// Whether a request begun at `started` has had all the time it gets.
    pub fn is_over(&self, started: Instant) -> bool {
        !self.options.hard && self.net.now().duration_since(started) >= self.options.dead_after
    }

    /// The time that a request begins with.
    pub fn patience(&self) -> Patience {
        let now = self.net.now();
        Patience { begun: now, since: now, losses: 0 }
    }

    /// Whether a request whose connection was lost goes on, with the time of one that begins now: its server was there until then,
    /// however long the request had waited for something else.
    pub fn goes_on(&self, patience: &mut Patience) -> bool {
        (patience.since, patience.losses) = (self.net.now(), patience.losses + 1);
        patience.losses <= LOSSES_MAX || !self.is_over(patience.begun)
    }

    /// A server has answered that the request is for another, or for the same in a moment: the time begins anew.
    pub fn is_answered(&self, patience: &mut Patience) {
        patience.since = self.net.now();
    }

    /// The error of a request that a lost connection ended for good.
    pub fn lost(&self, why: String) -> Error {
        Error::Lost { server: self.server.clone(), why }
    }

    /// The error of a request that a live server has not answered within `limit`.
    pub fn slow(&self, limit: Duration) -> Error {
        Error::Slow { server: self.server.clone(), limit }
    }

    async fn changed_or_over(&self, seen: u64, end: Instant) {
        let changed = poll_fn(|context| {
            let mut state = self.lock();
            if state.changes != seen {
                return Poll::Ready(());
            }
            if !state.waiters.iter().any(|waiter| waiter.will_wake(context.waker())) {
                state.waiters.push(context.waker().clone());
            }
            Poll::Pending
        });
        if self.options.hard {
            return changed.await;
        }
        let left = end.saturating_duration_since(self.net.now());
        match select(pin!(changed), self.net.sleep(left)).await {
            Either::Left(_) | Either::Right(_) => {}
        }
    }

    fn counts_as_dead(&self, state: &State) -> bool {
        let away = |since| self.net.now().duration_since(since) >= self.options.dead_after;
        state.dead || state.down_since.is_some_and(away)
    }

    fn down(&self, state: &State) -> Error {
        Error::Down { server: self.server.clone(), why: state.why.clone() }
    }

    /// Notes that the connection has ended, whoever sees it first.
    fn look(&self, state: &mut State) {
        let Some(conn) = state.up.take_if(|conn| conn.is_lost()) else { return };
        state.dead = conn.died_silent();
        state.down_since = Some(self.net.now());
        state.why = if state.dead { Away::Silent } else { Away::Lost };
        state.announce();
    }

    fn tend(self: &Arc<Self>, state: &mut State) {
        if std::mem::replace(&mut state.is_tended, true) {
            return;
        }
        state.down_since = Some(self.net.now());
        self.net.spawn(Box::pin(tend(Arc::downgrade(self), self.net.clone())));
    }

    async fn dial_once(&self) -> tree::Result<(Conn, Start)> {
        let conn = self.net.dial(&self.server, &self.aname).await?;
        let start = match &self.greet {
            Some(greet) => greet(conn.clone()).await?,
            None => Start::default(),
        };
        Ok((conn, start))
    }

    fn came_up(&self, conn: Conn, start: Start) {
        self.payload_max.store(conn.payload_max(), Ordering::Relaxed);
        let mut state = self.lock();
        state.up = Some(conn);
        state.start = start;
        state.generation += 1;
        state.dead = false;
        state.down_since = None;
        state.announce();
    }

    fn dial_failed(&self, error: tree::Errno) {
        let mut state = self.lock();
        state.why = Away::Dial(error);
        if !state.dead && self.counts_as_dead(&state) {
            state.dead = true;
            state.announce();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl State {
    fn announce(&mut self) {
        self.changes += 1;
        self.waiters.drain(..).for_each(Waker::wake);
    }
}

const REDIAL_FIRST: Duration = Duration::from_millis(20);
/// The longest time between two attempts to reach a server that is away.
pub const REDIAL_MAX: Duration = Duration::from_millis(200);

/// Dials until it succeeds, then stays to see the connection end and dials again, as long as
/// anyone holds the link.
async fn tend(link: Weak<Link>, net: Arc<dyn Net>) {
    let mut pause = REDIAL_FIRST;
    loop {
        let Some(held) = link.upgrade() else { return };
        match held.dial_once().await {
            Ok((conn, start)) => {
                let closed = conn.closed();
                held.came_up(conn, start);
                drop(held);
                closed.await;
                let Some(held) = link.upgrade() else { return };
                held.look(&mut held.lock());
                pause = REDIAL_FIRST;
            }
            Err(error) => held.dial_failed(error),
        }
        net.sleep(pause).await;
        pause = (pause * 2).min(REDIAL_MAX);
    }
}
