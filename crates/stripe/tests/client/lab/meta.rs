//! The metadata server: the store with its log, its waits, its cuts and its sessions' grace.

use super::data::Objects;
use super::net::SimNet;
use covey_ninep::message::Qid;
use covey_ninep::tree::*;
use covey_stripe::chain::Chain;
use covey_stripe::distribution::{self, Distribution};
use covey_stripe::kv::MemoryKv;
use covey_stripe::meta::lease::{Claim, LEASE_TIME, Leases, told};
use covey_stripe::meta::{Applied, Store, WaitId, Work};
use covey_stripe::ops::*;
use covey_wire::{Bytes, Field, List, Name, Reader};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

const GRACE: Duration = Duration::from_secs(10);

pub struct Meta {
    state: RefCell<State>,
    net: Arc<SimNet>,
    data: Vec<Rc<Objects>>,
    /// Cuts are kept from the I/O servers.
    pub holds_cuts: Cell<bool>,
    /// Changes of the table are kept from the I/O servers.
    pub holds_chains: Cell<bool>,
    /// It is of a version that knows no chains.
    pub knows_no_chains: Cell<bool>,
    /// A table in the place of the store's.
    pub other_table: RefCell<Option<Vec<Chain>>>,
    /// Operations by name, as they arrive.
    pub log: RefCell<Vec<&'static str>>,
    /// A question, and what was its answer after each change since.
    watched: RefCell<Option<(Op, Vec<Reply>)>>,
}

struct State {
    store: Store<MemoryKv>,
    checkpoint: MemoryKv,
    logged: Vec<Request>,
    answers: BTreeMap<WaitId, Reply>,
    cuts: VecDeque<Cut>,
    connected: BTreeMap<u64, usize>,
    lost_at: BTreeMap<u64, Instant>,
    orphans_due: Option<Instant>,
    wakers: Vec<Waker>,
    now: Nanos,
    leases: Leases,
    /// When those who wait for leases look again.
    looks: BTreeSet<Instant>,
}

struct Cut {
    id: Id,
    epoch: u32,
    size: u64,
    striping: Striping,
    /// Slots that have done it.
    done: usize,
}

impl Meta {
    pub fn new(net: Arc<SimNet>, data: Vec<Rc<Objects>>, hint: StripingHint) -> Rc<Meta> {
        let mut kv = MemoryKv::default();
        let servers: Vec<String> = (0..data.len()).map(super::data_name).collect();
        Store::format(&mut kv, "sim", &servers, hint, 1, (0, 0)).unwrap();
        let state = State {
            store: Store::open(kv.clone()).unwrap(),
            checkpoint: kv,
            logged: Vec::new(),
            answers: BTreeMap::new(),
            cuts: VecDeque::new(),
            connected: BTreeMap::new(),
            lost_at: BTreeMap::new(),
            orphans_due: None,
            wakers: Vec::new(),
            now: 1000,
            leases: Leases::new(1, None),
            looks: BTreeSet::new(),
        };
        let (state, log, watched) = (RefCell::new(state), RefCell::default(), RefCell::default());
        state.borrow_mut().save();
        let (holds_cuts, holds_chains, other_table) = Default::default();
        let knows_no_chains = Cell::default();
        Rc::new(Meta {
            state,
            net,
            data,
            holds_cuts,
            holds_chains,
            knows_no_chains,
            other_table,
            log,
            watched,
        })
    }

    pub fn restart(&self) {
        self.start(false);
    }

    fn start(&self, has_lost_power: bool) {
        let now = self.net.now_time();
        let mut state = self.state.borrow_mut();
        let mut store = Store::open(state.checkpoint.clone()).unwrap();
        state.logged.iter().for_each(|request| store.replay(request).unwrap());
        store.opened_on(0, has_lost_power).unwrap();
        let cuts = store.pending_cuts((0, 0), usize::MAX).unwrap();
        let cut = |c: covey_stripe::meta::PendingCut| Cut {
            id: c.id,
            epoch: c.epoch,
            size: c.size,
            striping: c.striping,
            done: 0,
        };
        state.cuts = cuts.into_iter().map(cut).collect();
        state.lost_at = store.sessions().iter().map(|info| (info.session, now)).collect();
        state.connected.clear();
        state.answers.clear();
        state.orphans_due = Some(now + GRACE);
        let quiet_until = (!store.sessions().is_empty()).then(|| now + LEASE_TIME);
        state.leases = Leases::new(store.boot(), quiet_until);
        state.looks.extend(quiet_until);
        state.store = store;
        state.save();
    }

    /// Its machine loses power, and with it all that was logged since the last checkpoint.
    pub fn lose_power(&self) {
        self.state.borrow_mut().logged.clear();
        self.start(true);
    }

    pub fn checkpoint(&self) {
        self.state.borrow_mut().save();
    }

    /// Ends all sessions, as if their clients had been away for too long.
    pub fn forget_sessions(&self) {
        let sessions = self.state.borrow().store.sessions();
        for info in sessions {
            self.state.borrow_mut().store.session_expired(info.session).unwrap();
            self.serve();
        }
    }

    /// Opens of all sessions together.
    pub fn open_files(&self) -> usize {
        self.state.borrow().store.sessions().iter().map(|info| info.open_files).sum()
    }

    pub fn ask(&self, op: Op) -> Reply {
        match self.apply(own(op)) {
            Applied::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// Begins to note each answer that a question would have had.
    pub fn watch(&self, op: Op) {
        let now = self.ask(op.clone());
        *self.watched.borrow_mut() = Some((op, vec![now]));
    }

    /// The answers since, in their order.
    pub fn watched(&self) -> Vec<Reply> {
        self.watched.take().expect("watched").1
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let state = self.state.borrow();
        let looks = state.looks.first().copied();
        state.lost_at.values().map(|&at| at + GRACE).chain(state.orphans_due).chain(looks).min()
    }

    /// What the server does by itself: one step of a cut, sessions that are over.
    pub fn turn(&self, chance: u64) -> bool {
        let now = self.net.now_time();
        let mut moved = chance == 0 && self.tell_chains();
        moved |= self.end_sessions(now) | self.look(now);
        if chance == 0 || self.holds_cuts.get() {
            return moved;
        }
        let done = {
            let mut state = self.state.borrow_mut();
            let Some(cut) = state.cuts.front_mut() else { return moved };
            moved = true;
            let server = cut.striping.servers.0[cut.done];
            let map = distribution::of(&cut.striping).unwrap();
            let size = map.physical_size(cut.done, cut.size);
            self.data[usize::from(server)].cut(cut.id, cut.epoch, size);
            cut.done += 1;
            (cut.done == cut.striping.servers.0.len()).then_some((cut.id, cut.epoch))
        };
        if let Some((id, epoch)) = done {
            self.state.borrow_mut().cuts.pop_front();
            self.apply(own(Op::Reclaimed { id, epoch }));
            self.wake();
        }
        moved
    }

    /// Wakes those who wait for leases when it is time.
    fn look(&self, now: Instant) -> bool {
        let later = self.state.borrow_mut().looks.split_off(&(now + Duration::from_nanos(1)));
        let due = std::mem::replace(&mut self.state.borrow_mut().looks, later);
        if !due.is_empty() {
            self.wake();
        }
        !due.is_empty()
    }

    pub fn has_work(&self) -> bool {
        !self.state.borrow().cuts.is_empty() && !self.holds_cuts.get()
    }

    fn end_sessions(&self, now: Instant) -> bool {
        let due: Vec<u64> = {
            let state = self.state.borrow();
            let due = state.lost_at.iter().filter(|(_, at)| now >= **at + GRACE);
            due.map(|(&session, _)| session).collect()
        };
        for session in &due {
            self.state.borrow_mut().lost_at.remove(session);
            self.state.borrow_mut().store.session_expired(*session).unwrap();
            self.serve();
        }
        let orphans = self.state.borrow().orphans_due.is_some_and(|at| now >= at);
        if orphans {
            self.state.borrow_mut().orphans_due = None;
            self.state.borrow_mut().store.drop_orphans().unwrap();
            self.serve();
        }
        orphans || !due.is_empty()
    }

    fn apply(&self, mut request: Request) -> Applied {
        let applied = {
            let state = &mut *self.state.borrow_mut();
            state.now += 1_000_000;
            request.now = state.now;
            let applied = state.store.apply(&request);
            assert!(!matches!(applied, Applied::Fatal(_)), "{applied:?} of {request:?}");
            if request.op.is_logged() && !applied.is_refused() {
                state.logged.push(request);
                if let Some((op, answers)) = &mut *self.watched.borrow_mut()
                    && let Applied::Reply(reply) = state.store.apply(&own(op.clone()))
                {
                    answers.push(reply);
                }
            }
            applied
        };
        self.serve();
        applied
    }

    fn serve(&self) {
        let work = self.state.borrow_mut().store.take_work();
        for work in work {
            match work {
                Work::Answer(wait, reply) => {
                    self.state.borrow_mut().answers.insert(wait, reply);
                }
                Work::Apply(request) => {
                    if let Op::SessionOver { session } = request.op {
                        self.state.borrow_mut().leases.end_session(session);
                    }
                    self.apply(request);
                }
                Work::Cut { id, epoch, size, striping } => {
                    let cut = Cut { id, epoch, size, striping, done: 0 };
                    self.state.borrow_mut().cuts.push_back(cut);
                }
                Work::Remove { id, epoch, .. } => {
                    self.data.iter().for_each(|data| data.remove(id));
                    self.apply(own(Op::Reclaimed { id, epoch }));
                }
                Work::Sweep { id, .. } => self.data.iter().for_each(|data| data.remove(id)),
            }
        }
        self.wake();
    }

    fn wake(&self) {
        let wakers = std::mem::take(&mut self.state.borrow_mut().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Tells the I/O servers what they serve, those that know of chains; whether any did not know.
    pub fn tell_chains(&self) -> bool {
        let table = self.table();
        let mut is_news = false;
        for (server, data) in self.data.iter().enumerate().filter(|_| !self.holds_chains.get()) {
            if let Some(served) = &mut *data.served.borrow_mut() {
                let is_on = |chain: &Chain| chain.written().any(|at| usize::from(at) == server);
                let generation = |chain: &Chain| if is_on(chain) { chain.generation } else { 0 };
                let now: Vec<u32> = table.iter().map(generation).collect();
                is_news |= *served != now;
                *served = now;
            }
        }
        is_news
    }

    /// The table of chains: the store's, or one that a test has put in its place.
    pub fn table(&self) -> Vec<Chain> {
        let state = self.state.borrow();
        self.other_table.borrow().clone().unwrap_or_else(|| state.store.chains().to_vec())
    }

    /// An operation of the server's own that takes leases back.
    pub async fn ask_in_turn(self: &Rc<Self>, op: Op) {
        match self.request(own(op)) {
            Outcome::Now(answer) => drop(answer.unwrap()),
            Outcome::Later(later) => drop(later.await.unwrap()),
        }
    }

    fn request(self: &Rc<Self>, request: Request) -> Outcome<Answer> {
        let changes = request.op.is_logged();
        let waits = {
            let leases = &self.state.borrow().leases;
            leases.concern_others(request.session, self.net.now_time())
        };
        match request.op {
            Op::Revokes { acked } => self.revokes(request.session, acked),
            Op::Hello { .. } => self.request_now(request),
            _ if changes && waits => {
                let mut wait = ClaimWait::new(self, request);
                Outcome::later(async move {
                    match poll_fn(|context| wait.poll(context.waker())).await {
                        Outcome::Now(result) => result,
                        Outcome::Later(later) => later.await,
                    }
                })
            }
            _ => self.request_now(request),
        }
    }

    fn revokes(self: &Rc<Self>, session: u64, acked: u64) -> Outcome<Answer> {
        if self.state.borrow_mut().leases.listen(session, acked) {
            self.wake();
        }
        let meta = self.clone();
        Outcome::later(poll_fn(move |context| {
            let mut state = meta.state.borrow_mut();
            match state.leases.take_revocation(session) {
                Some((number, leases)) => {
                    Poll::Ready(Ok(plain(Reply::Revoked { number, leases: List(leases) })))
                }
                None => {
                    state.wakers.push(context.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }

    fn request_now(self: &Rc<Self>, request: Request) -> Outcome<Answer> {
        let (session, op) = (request.session, request.op.clone());
        let applied = self.apply(request);
        let is_repeated = self.state.borrow().store.was_repeated();
        match applied {
            Applied::Reply(mut reply) => {
                if let Reply::Chains { chains, .. } = &mut reply {
                    chains.0 = self.table();
                }
                let told = told(&op, &reply);
                let now = self.net.now_time();
                let grant = if told.is_empty() || is_repeated {
                    0
                } else {
                    self.state.borrow_mut().leases.grant(session, &told, now)
                };
                let dir = self.state.borrow().store.changed_dir(&op).filter(|_| grant > 0);
                if let (Reply::Steps { dirs, .. }, true) = (&mut reply, grant > 0) {
                    dirs.0 = self.state.borrow().store.changed_dirs(&op);
                }
                Outcome::Now(Ok(Answer { reply, grant, dir }))
            }
            Applied::AfterCut { id, epoch, reply } => {
                let meta = self.clone();
                Outcome::later(poll_fn(move |context| {
                    let mut state = meta.state.borrow_mut();
                    if state.cuts.iter().any(|cut| (cut.id, cut.epoch) == (id, epoch)) {
                        state.wakers.push(context.waker().clone());
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(plain(reply.clone())))
                }))
            }
            Applied::Wait(wait) => {
                let guard = WaitGuard { meta: self.clone(), wait };
                Outcome::later(poll_fn(move |context| {
                    let mut state = guard.meta.state.borrow_mut();
                    if let Some(reply) = state.answers.remove(&wait) {
                        return Poll::Ready(Ok(plain(reply)));
                    }
                    state.wakers.push(context.waker().clone());
                    Poll::Pending
                }))
            }
            Applied::Fatal(error) => panic!("{error}"),
        }
    }

    fn connected(&self, session: u64) {
        let mut state = self.state.borrow_mut();
        *state.connected.entry(session).or_default() += 1;
        state.lost_at.remove(&session);
    }

    fn disconnected(&self, session: u64, boot: u64) {
        let mut state = self.state.borrow_mut();
        if state.store.boot() != boot {
            return;
        }
        let count = state.connected.entry(session).or_default();
        *count -= 1;
        if *count == 0 {
            state.lost_at.insert(session, self.net.now_time());
            state.leases.leave(session);
        }
    }
}

/// A change that waits for those who remember what it changes.
struct ClaimWait {
    meta: Rc<Meta>,
    request: Option<Request>,
    claim: Option<Claim>,
    boot: u64,
}

impl ClaimWait {
    fn new(meta: &Rc<Meta>, request: Request) -> ClaimWait {
        let boot = meta.state.borrow().store.boot();
        let claim = meta.state.borrow_mut().leases.begin_claim(request.session);
        ClaimWait { meta: meta.clone(), request: Some(request), claim: Some(claim), boot }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Outcome<Answer>> {
        let meta = self.meta.clone();
        let now = meta.net.now_time();
        {
            let state = &mut *meta.state.borrow_mut();
            let request = self.request.as_ref().unwrap();
            let claim = self.claim.as_mut().unwrap();
            let changes = state.store.changes(&request.op).unwrap();
            if state.leases.add(claim, &changes, now) {
                state.wakers.drain(..).for_each(Waker::wake);
            }
            let until = state.leases.in_the_way(claim, now);
            if let Some(until) = until {
                state.wakers.push(waker.clone());
                state.looks.insert(until);
                return Poll::Pending;
            }
        }
        let outcome = meta.request_now(self.request.take().unwrap());
        self.end();
        Poll::Ready(outcome)
    }

    fn end(&mut self) {
        let now = self.meta.net.now_time();
        if let Some(claim) = self.claim.take() {
            let state = &mut *self.meta.state.borrow_mut();
            if state.store.boot() == self.boot {
                state.leases.end_claim(claim, now);
            }
        }
        self.meta.wake();
    }
}

impl Drop for ClaimWait {
    fn drop(&mut self) {
        if self.claim.is_some() {
            self.end();
        }
    }
}

fn plain(reply: Reply) -> Answer {
    Answer { reply, grant: 0, dir: None }
}

impl State {
    fn save(&mut self) {
        self.store.save_replies().unwrap();
        self.checkpoint = self.store.kv().clone();
        self.logged.clear();
    }
}

struct WaitGuard {
    meta: Rc<Meta>,
    wait: WaitId,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.meta.state.borrow_mut().store.cancel_wait(self.wait);
        self.meta.serve();
    }
}

fn own(op: Op) -> Request {
    Request { session: 0, seq: 0, seq_done: 0, now: 0, caller: Caller::default(), op }
}

pub struct MetaServer(pub Rc<Meta>);

pub struct Connection {
    meta: Weak<Meta>,
    session: Cell<u64>,
    boot: Cell<u64>,
    told: RefCell<Vec<Id>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let (Some(meta), session @ 1..) = (self.meta.upgrade(), self.session.get()) {
            meta.disconnected(session, self.boot.get());
        }
    }
}

impl Tree for MetaServer {
    type Node = Rc<Connection>;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Rc<Connection>)> {
        assert_eq!(attach.aname.as_bytes(), b"/meta");
        let user = User { uid: 0, gid: 0, groups: vec![] };
        let qid = Qid { kind: Qid::DIR, version: 0, path: ROOT };
        let meta = Rc::downgrade(&self.0);
        let (session, boot, told) = Default::default();
        let connection = Connection { meta, session, boot, told };
        Outcome::Now(Ok((user, qid, Rc::new(connection))))
    }

    fn call(&self, _: &Rc<User>, node: &Rc<Connection>, body: Bytes) -> Outcome<Bytes> {
        let mut request = Request::get((), &mut Reader::new(body)).unwrap();
        self.0.log.borrow_mut().push(request.op.name());
        if matches!(request.op, Op::Chains {}) && self.0.knows_no_chains.get() {
            return Outcome::Now(Err(Errno::EINVAL.into()));
        }
        if let Op::StillOpen { files } = &request.op {
            node.told.borrow_mut().extend(&files.0);
            let mut out = Vec::new();
            plain(Reply::Done {}).put((), &mut out);
            return Outcome::Now(Ok(out.into()));
        }
        if let Op::Hello { files, .. } = &mut request.op {
            files.0.extend(node.told.take());
        }
        let is_hello = matches!(request.op, Op::Hello { .. });
        let outcome = self.0.request(request);
        if let (true, Outcome::Now(Ok(answer))) = (is_hello, &outcome)
            && let Reply::Session { session, boot, .. } = &answer.reply
        {
            node.session.set(*session);
            node.boot.set(*boot);
            self.0.connected(*session);
        }
        outcome.map(|reply| {
            let mut out = Vec::new();
            reply.put((), &mut out);
            out.into()
        })
    }
}

/// Names for a walk.
pub fn names(text: &str) -> List<Name> {
    List(text.split('/').map(Name::from).collect())
}
