//! A cluster in one thread: clients, servers and the network between them, with virtual time. All
//! that is left to chance (what is delivered when) comes from a seed.
#![allow(dead_code)]

pub mod data;
pub mod meta;
pub mod net;

use covey_ninep::client::Client;
use covey_ninep::server::{self, Session};
use covey_ninep::tree::{Peer, Tree};
use covey_stripe::client::{Caching, Fs, Options};
use covey_stripe::ops::{Caller, Op, StripingHint};
use covey_wire::{BytesMut, List, Machine, Name, Segments};
use data::{DataServer, Objects};
use meta::{Meta, MetaServer};
use net::{Flag, SimNet};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// I/O servers.
pub const SERVERS: usize = 3;
/// Bytes of a strip.
pub const STRIP: usize = 4096;
/// Bytes with the metadata, and where the striped part begins, in the progressive striping here.
pub const INLINE: usize = STRIP + 100;
pub const SINGLE: usize = 3 * STRIP;

pub struct World {
    pub net: Arc<SimNet>,
    pub meta: Rc<Meta>,
    pub data: Vec<Rc<Objects>>,
    /// The largest message of connections to come.
    pub msize: u32,
    /// What is to happen when so many rounds are over.
    pub plan: Vec<(usize, Event)>,
    conns: Vec<Conn>,
    tasks: Vec<Task>,
    round: usize,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A connection is cut; what is on its way arrives first, or does not.
    Cut { conn: usize, delivered: bool },
    /// An I/O server starts anew.
    RestartData(usize),
    /// The metadata server starts anew from its checkpoint and its log.
    RestartMeta,
    /// The metadata server makes a checkpoint.
    Checkpoint,
    /// A chain's generation rises. Its server hears of it at some time.
    RaiseChain(usize),
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    woken: Arc<Flag>,
}

struct Conn {
    server: String,
    client: Client,
    session: Box<dyn Machine>,
    woken: Arc<Flag>,
    to_server: BytesMut,
    to_client: BytesMut,
}

impl World {
    /// With files striped over all servers from their first byte on.
    pub fn new(seed: u64) -> World {
        World::with_hint(seed, StripingHint::simple_stripe(STRIP as u32, 0))
    }

    /// With the progressive striping, in small.
    pub fn progressive(seed: u64) -> World {
        let params = List(vec![INLINE as u32, SINGLE as u32]);
        World::with_hint(
            seed,
            StripingHint { params, ..StripingHint::progressive(STRIP as u32, 0) },
        )
    }

    pub fn with_hint(seed: u64, hint: StripingHint) -> World {
        let net = Arc::new(SimNet::default());
        let data: Vec<_> = (0..SERVERS).map(|_| Rc::new(Objects::default())).collect();
        for (index, data) in data.iter().enumerate() {
            *data.served.borrow_mut() = Some(Vec::new());
            data.starts_from.set(1000 * (index as u64 + 1));
        }
        let meta = Meta::new(net.clone(), data.clone(), hint);
        meta.tell_chains();
        let (plan, conns, tasks) = (Vec::new(), Vec::new(), Vec::new());
        let msize = server::Config::default().msize;
        World { net, meta, data, msize, plan, conns, tasks, round: 0, seed: seed | 1 }
    }

    pub fn client(&mut self, hard: bool) -> Fs {
        let caching = Caching::Leases;
        let options = Options { hard, caching, name: "client".into(), ..Options::default() };
        let net = self.net.clone();
        self.run(Fs::connect(net, "meta", options)).expect("the metadata server is there")
    }

    /// Runs a future to its end, and everything else meanwhile.
    pub fn run<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        let woken = Flag::raised();
        let begun = self.net.now_time();
        loop {
            if let Some(output) = woken.poll(future.as_mut()) {
                return output;
            }
            if !self.turn() && !woken.is_raised() {
                assert!(self.sleep_until_next(), "everybody waits for somebody else");
                let waited = self.net.now_time() - begun;
                assert!(waited < Duration::from_secs(300), "it has taken {waited:?}");
            }
        }
    }

    /// Lets everything that goes on by itself happen for a while.
    pub fn rest(&mut self, time: Duration) {
        let sleep = covey_stripe::client::Net::sleep(&*self.net, time);
        self.run(sleep);
    }

    /// All that can be done now, once; whether anything was done.
    fn turn(&mut self) -> bool {
        self.round += 1;
        let round = self.round;
        let (due, later) = std::mem::take(&mut self.plan).into_iter().partition(|e| e.0 <= round);
        self.plan = later;
        let due: Vec<(usize, Event)> = due;
        let mut moved = !due.is_empty();
        due.into_iter().for_each(|(_, event)| self.event(event));
        for (future, server, client) in self.net.take_new() {
            moved = true;
            if let Some(future) = future {
                self.tasks.push(Task { future, woken: Flag::raised() });
            }
            if let (Some(server), Some(client)) = (server, client) {
                self.accept(server, client);
            }
        }
        let mut at = 0;
        while at < self.tasks.len() {
            let task = &mut self.tasks[at];
            moved |= task.woken.is_raised();
            match task.woken.poll(task.future.as_mut()) {
                Some(()) => drop(self.tasks.swap_remove(at)),
                None => at += 1,
            }
        }
        let chance = self.chance(4);
        moved |= self.meta.turn(chance);
        let mut at = 0;
        while at < self.conns.len() {
            let chance = self.chance(4);
            match self.conns[at].turn(&self.net, chance) {
                Ok(did) => {
                    moved |= did;
                    at += 1;
                }
                Err(()) => drop(self.conns.swap_remove(at)),
            }
        }
        moved
    }

    /// The same world goes on with these happening so many rounds from now.
    pub fn plan(&mut self, events: impl IntoIterator<Item = (usize, Event)>) {
        let round = self.round;
        self.plan.extend(events.into_iter().map(|(after, event)| (round + after, event)));
    }

    /// Whether anything planned has not happened yet.
    pub fn has_plans(&self) -> bool {
        !self.plan.is_empty()
    }

    pub fn event(&mut self, event: Event) {
        match event {
            Event::Cut { conn, delivered } if !self.conns.is_empty() => {
                let index = conn % self.conns.len();
                let mut conn = self.conns.swap_remove(index);
                if delivered {
                    conn.deliver(&self.net);
                }
            }
            Event::Cut { .. } => {}
            Event::RestartData(index) => self.cut_all(&data_name(index % SERVERS)),
            Event::RestartMeta => {
                self.cut_all("meta");
                self.meta.restart();
            }
            Event::Checkpoint => self.meta.checkpoint(),
            Event::RaiseChain(chain) => {
                self.meta.ask(Op::RaiseChain { chain: (chain % SERVERS) as u16 });
            }
        }
    }

    /// All connections to a server end.
    pub fn cut_all(&mut self, server: &str) {
        self.conns.retain(|conn| conn.server != server);
    }

    pub fn conn_count(&self, server: &str) -> usize {
        self.conns.iter().filter(|conn| conn.server == server).count()
    }

    fn accept(&mut self, server: String, client: Client) {
        let session: Box<dyn Machine> = match server.strip_prefix("io") {
            Some(index) => {
                let index: usize = index.parse().expect("io and a number");
                session(DataServer(self.data[index].clone()), self.msize)
            }
            None => session(MetaServer(self.meta.clone()), self.msize),
        };
        let (to_server, to_client) = (BytesMut::new(), BytesMut::new());
        let woken = Flag::raised();
        self.conns.push(Conn { server, client, session, woken, to_server, to_client });
    }

    fn sleep_until_next(&mut self) -> bool {
        let machines = |conn: &Conn| conn.client.poll_deadline();
        let deadlines = self.conns.iter().filter_map(machines);
        let timers = self.net.next_timer().into_iter();
        let Some(next) = deadlines.chain(timers).chain(self.meta.next_deadline()).min() else {
            return false;
        };
        self.net.set_now(next);
        let (now, net) = (next, self.net.clone());
        for conn in &mut self.conns {
            if conn.client.poll_deadline().is_some_and(|deadline| deadline <= now) {
                conn.is_lost_at(&net);
            }
        }
        true
    }

    /// Not [`covey_wire::Rng`]: the seeds of the failures that the models found belong to this one.
    fn chance(&mut self, of: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % of
    }
}

pub fn data_name(index: usize) -> String {
    format!("io{index}")
}

pub fn root() -> Caller {
    Caller::default()
}

pub fn name(text: &str) -> Name {
    Name::from(text)
}

fn session<T: Tree>(tree: T, msize: u32) -> Box<dyn Machine> {
    let peer = Peer { name: "sim".into(), uid: Some(0), has_key: false };
    let config = server::Config { msize, ..server::Config::default() };
    Box::new(Session::new(Rc::new(tree), peer, config))
}

impl Conn {
    /// Moves bytes, each way by chance; an error when it is over.
    fn turn(&mut self, net: &SimNet, chance: u64) -> Result<bool, ()> {
        let waker = Waker::from(self.woken.clone());
        let mut context = Context::from_waker(&waker);
        let mut moved = self.woken.lower();
        if let Poll::Ready(Err(_)) = self.client.poll_user(&mut context) {
            return Err(());
        }
        moved |= drain(&mut self.client, &mut self.to_server);
        if net.is_mute(&self.server) {
            return Ok(moved);
        }
        moved |= !self.to_server.is_empty() || !self.to_client.is_empty();
        if chance & 1 == 0 && !self.to_server.is_empty() {
            let now = net.now_time();
            self.session.handle_input(now, &mut self.to_server).map_err(|_| ())?;
        }
        if let Poll::Ready(Err(_)) = self.session.poll_user(&mut context) {
            return Err(());
        }
        moved |= drain(&mut *self.session, &mut self.to_client);
        if chance & 2 == 0 && !self.to_client.is_empty() {
            let now = net.now_time();
            self.client.handle_input(now, &mut self.to_client).map_err(|_| ())?;
        }
        Ok(moved)
    }

    /// What the client has said arrives, without an answer.
    fn deliver(&mut self, net: &SimNet) {
        drain(&mut self.client, &mut self.to_server);
        if !self.to_server.is_empty() && !net.is_mute(&self.server) {
            let _ = self.session.handle_input(net.now_time(), &mut self.to_server);
        }
    }

    fn is_lost_at(&mut self, net: &SimNet) {
        let _ = self.client.handle_timeout(net.now_time());
        self.woken.raise();
    }
}

fn drain(machine: &mut dyn Machine, into: &mut BytesMut) -> bool {
    let mut out = Segments::new();
    while machine.poll_output(&mut out, 1 << 20) {}
    out.runs().for_each(|run| into.extend_from_slice(run));
    !out.is_empty()
}
