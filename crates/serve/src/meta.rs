//! The metadata server: the store of `covey_stripe::meta`, served.
//!
//! Clients of the cluster send operations with Tcall on the tree's root; they are applied at once, in
//! the order they came, and answered when the log holds them ([`journal`]). What has to be done on
//! the data servers is carried out beside ([`reclaim`]). Any 9P client may also walk the names and
//! read a file's striping as text.
//!
//! A session ends when its client has had no connection for the grace of ten seconds: then its locks
//! go, its appends end, and unlinked files that it alone had open are reclaimed.

mod adding;
mod chains;
pub mod copies;
pub mod journal;
mod leases;
pub mod offline;
mod places;
pub mod reclaim;
mod removal;
mod sessions;
mod stores;
mod switch;
mod tasks;
mod tree;

use super::stats::{MetaCounters, MetaTimes};
use super::watch::{self, Watch};
use anyhow::Context as _;
use covey_io::os::clock;
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::client::{Link, Net, Options};
use covey_stripe::meta::lease::LEASE_TIME;
use covey_stripe::meta::{Applied, SessionInfo, Store, WaitId, Work};
use covey_stripe::ops::{Answer, Caller, Nanos, Op, Reply, Request};
use covey_wire::{Field, List, Name};
use journal::{Journal, Media, Room, Rows};
use leases::LeaseTable;
use reclaim::{Cut, Pending};
use sessions::{Connection, SESSION_GRACE, Sessions};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::HashMap;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
pub use tasks::Begin;
use tokio::sync::{Notify, oneshot};
pub use tree::{MetaServer, Node};

/// The metadata server's state. Everything runs on one thread.
pub struct Meta {
    /// None while a checkpoint has it.
    store: RefCell<Option<Store<Rows>>>,
    store_back: Notify,
    space_last: Cell<Option<(u64, u64)>>,
    /// What has to be done to the store as soon as it is back.
    deferred: RefCell<Vec<Deferred>>,
    journal: Rc<Journal>,
    waiting: RefCell<HashMap<WaitId, oneshot::Sender<Reply>>>,
    pending: RefCell<Pending>,
    removals_due: Notify,
    /// Links to the I/O servers, by their index.
    links: RefCell<Vec<Arc<Link>>>,
    net: Arc<dyn Net>,
    /// The I/O servers that the configuration lists now, in its order.
    configured: Configured,
    /// The I/O servers' stores, by their index.
    stores: RefCell<Vec<stores::Standing>>,
    /// What is seen of them, by their index.
    sights: RefCell<Vec<places::Sight>>,
    /// What they were told to serve.
    told: RefCell<Vec<Rc<chains::Told>>>,
    /// The chain that is being given to another server.
    hold: RefCell<Option<switch::Hold>>,
    /// How many there were.
    holds: Cell<u64>,
    /// How often it was asked that what chains have left is removed, since the last time that nobody was at it.
    tidies: Cell<u64>,
    options: Options,
    sessions: RefCell<Sessions>,
    tasks: tasks::Tasks,
    leases: LeaseTable,
    /// After a loss of power nothing is told before: clients answer what was lost from what they remember.
    silent_until: Option<Instant>,
    last_now: Cell<Nanos>,
    /// What room the store had when that was looked at last.
    room_before: Cell<Room>,
    own_uid: u32,
    counters: Rc<MetaCounters>,
    pub(super) watch: Rc<Watch>,
}

/// What one name takes in the store beside what is said of it, roughly.
const STEP_BYTES: usize = 1024;

/// Inodes that are counted for quotas at once, the pause after them, and how often it is looked whether there are any.
const COUNTED_AT_ONCE: u32 = 1000;
const COUNT_PAUSE: Duration = Duration::from_millis(2);
const COUNT_WATCH: Duration = Duration::from_millis(200);

/// Says which I/O servers the configuration lists, in its order.
pub type Configured = Rc<dyn Fn() -> Vec<String>>;

type Deferred = Box<dyn FnOnce(&Rc<Meta>)>;

impl Meta {
    /// Opens the store and begins the server's own tasks. Must run inside a `LocalSet`.
    pub fn start(
        media: Media,
        configured: Configured,
        net: Arc<dyn Net>,
    ) -> anyhow::Result<Rc<Meta>> {
        let counters = Rc::new(MetaCounters::default());
        let (store, journal) = Journal::open(media, &configured(), counters.clone())?;
        let options = Options { name: "metadata server".into(), ..Options::default() };
        let servers = store.servers().len();
        let has_lost = store.has_lost_power();
        // Sessions that were greeted last may be lost, too.
        let leases = LeaseTable::new(store.boot(), has_lost || !store.sessions().is_empty());
        let meta = Rc::new(Meta {
            store: RefCell::new(Some(store)),
            store_back: Notify::new(),
            space_last: Cell::default(),
            deferred: RefCell::default(),
            journal: Rc::new(journal),
            waiting: RefCell::default(),
            stores: RefCell::default(),
            sights: RefCell::default(),
            told: RefCell::default(),
            pending: RefCell::default(),
            removals_due: Notify::new(),
            links: RefCell::default(),
            hold: RefCell::default(),
            holds: Cell::new(0),
            tidies: Cell::new(0),
            net,
            configured,
            options,
            sessions: RefCell::default(),
            tasks: tasks::Tasks::default(),
            leases,
            silent_until: has_lost.then(|| task::now() + LEASE_TIME),
            last_now: Cell::new(0),
            room_before: Cell::new(Room::Ample),
            own_uid: rustix::process::geteuid().as_raw(),
            counters,
            watch: Watch::new("meta"),
        });
        (0..servers).for_each(|_| meta.add_link());
        meta.take_up_pending()?;
        meta.spawn_tasks();
        Ok(meta)
    }

    /// What this server has counted since it started.
    pub fn counters(&self) -> &MetaCounters {
        &self.counters
    }

    /// The watch over its operations.
    pub fn watch(&self) -> &Rc<Watch> {
        &self.watch
    }

    /// How long its log and its checkpoints took.
    pub fn times(&self) -> &MetaTimes {
        self.journal.times()
    }

    /// Sessions now: number, client's name, open files.
    pub fn session_list(&self) -> Vec<SessionInfo> {
        self.store.borrow().as_ref().map_or_else(Vec::new, Store::sessions)
    }

    /// The last checkpoint, at an orderly end. The store does not come back from it.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.store_is_here().await;
        let store = self.store.borrow_mut().take().context("the store is away")?;
        self.journal.expect_no_more()?;
        self.journal.checkpoint(store).await.map(drop)
    }

    fn take_up_pending(self: &Rc<Self>) -> anyhow::Result<()> {
        let (cuts, removals, sessions) = {
            let store = self.store.borrow();
            let store = store.as_ref().context("the store is away")?;
            let all = usize::MAX;
            (
                store.pending_cuts((0, 0), all)?,
                store.pending_reclaims((0, 0), all)?,
                store.sessions(),
            )
        };
        for cut in cuts {
            let (id, epoch, size, striping) = (cut.id, cut.epoch, cut.size, cut.striping);
            self.begin_cut(Cut { id, epoch, size, striping });
        }
        removals.into_iter().for_each(|r| self.begin_removal(r.id, r.epoch, r.striping));
        self.await_sessions(sessions.into_iter().map(|info| info.session));
        let meta = self.clone();
        task::spawn(async move {
            // Whoever still had an unlinked file open has told so by then.
            task::sleep(SESSION_GRACE).await;
            meta.with_store(|meta| {
                let asked = meta.store_mut().drop_orphans();
                meta.do_work(asked);
            });
        });
        Ok(())
    }

    /// All clients of before this start have told what they have open, unless some were forgotten with the power.
    fn opens_are_known(self: &Rc<Self>) {
        let asked = {
            let mut store = self.store_mut();
            if store.has_lost_power() { Ok(()) } else { store.drop_orphans() }
        };
        self.do_work(asked);
    }

    /// The store, which must be here: see `with_store`.
    fn store_mut(&self) -> RefMut<'_, Store<Rows>> {
        RefMut::map(self.store.borrow_mut(), |store| store.as_mut().expect("the store is here"))
    }

    /// How long nothing is told yet.
    fn silence(&self) -> Option<Duration> {
        let rest = self.silent_until?.saturating_duration_since(task::now());
        (!rest.is_zero()).then_some(rest)
    }

    /// Whether the store is here and can take a change. Where the changes since the last checkpoint leave no room for
    /// more, one is asked for.
    fn is_store_here(&self) -> bool {
        let store = self.store.borrow();
        store.as_ref().is_some_and(|store| !self.journal.must_wait_for_checkpoint(store.kv()))
    }

    /// Bytes that the metadata takes, and what it may grow to; as they were last while a checkpoint has the
    /// store.
    pub fn map_space(&self) -> Option<(u64, u64)> {
        let space =
            self.store.borrow().as_ref().and_then(|store| self.journal.map_space(store.kv()));
        if space.is_some() {
            self.space_last.set(space);
        }
        self.space_last.get()
    }

    async fn store_is_here(&self) {
        while !self.is_store_here() {
            self.store_back.notified().await;
        }
    }

    /// Does something to the store, now or as soon as it is back.
    fn with_store(self: &Rc<Self>, act: impl FnOnce(&Rc<Meta>) + 'static) {
        self.now_or_later(Box::new(act));
    }

    fn now_or_later(self: &Rc<Self>, act: Deferred) {
        if self.is_store_here() { act(self) } else { self.deferred.borrow_mut().push(act) }
    }

    /// Lets a checkpoint have the store. Clients are kept waiting, not hanging: their connections
    /// go on, heartbeats are answered, and however slow the disk is, this server is not dead.
    async fn checkpoint(self: &Rc<Self>) {
        let Some(store) = self.store.borrow_mut().take() else { return };
        match self.journal.checkpoint(store).await {
            Ok(store) => *self.store.borrow_mut() = Some(store),
            Err(error) => {
                self.give_up(&format!("the metadata store cannot be brought to disk: {error:#}"))
            }
        }
        let deferred = std::mem::take(&mut *self.deferred.borrow_mut());
        // They may need another checkpoint on the way.
        deferred.into_iter().for_each(|act| self.now_or_later(act));
        self.store_back.notify_waiters();
    }

    /// Does what the store has asked for; a failure of the store itself ends the server.
    fn do_work(self: &Rc<Self>, asked: Result<()>) {
        if let Err(error) = asked {
            self.give_up(&format!("the metadata store failed: {error}"));
        }
        let work = self.store_mut().take_work();
        work.into_iter().for_each(|work| self.work(work));
    }

    fn spawn_tasks(self: &Rc<Self>) {
        let meta = self.clone();
        task::spawn(async move { meta.flush_batches().await });
        let meta = self.clone();
        task::spawn(async move { meta.make_checkpoints().await });
        task::spawn(self.journal.clone().sync_each_second());
        task::spawn(self.journal.clone().take_room());
        task::spawn(self.clone().remove_objects());
        task::spawn(self.clone().make_copies());
        task::spawn(self.clone().look_at_servers());
        task::spawn(self.clone().count_owners());
        (0..self.servers_known()).for_each(|server| self.attend(server as u16));
    }

    /// Counts what is there already when the first quota is set, some at a time: others want to be answered, too.
    async fn count_owners(self: Rc<Self>) {
        loop {
            self.store_is_here().await;
            if self.store_mut().has_owners_to_count() {
                self.apply_own(Op::CountOwned { rows_max: COUNTED_AT_ONCE });
                task::sleep(COUNT_PAUSE).await;
            } else {
                task::sleep(COUNT_WATCH).await;
            }
        }
    }

    async fn flush_batches(self: Rc<Self>) {
        loop {
            self.journal.flush_is_due().await;
            if let Err(error) = self.journal.flush() {
                self.give_up(&format!("the metadata log cannot be written: {error}"));
            }
        }
    }

    async fn make_checkpoints(self: Rc<Self>) {
        loop {
            let wanted = self.journal.checkpoint_is_wanted();
            task::timeout(Duration::from_millis(500), wanted).await;
            let is_due = |store: &Store<Rows>| self.journal.checkpoint_is_due(store.kv());
            if self.store.borrow().as_ref().is_some_and(is_due) {
                self.checkpoint().await;
            }
        }
    }

    /// The store can no longer be trusted to hold what it shows: a restart replays the log.
    fn give_up(&self, why: &str) -> ! {
        tracing::error!("{why}; ending, so that a restart recovers from the log");
        // Not by a macro that panics where stderr is closed: then the server would not end.
        let _ = writeln!(std::io::stderr(), "covey: {why}");
        task::exit(why)
    }

    fn now(&self) -> Nanos {
        let now = clock::stamp(task::wall().as_nanos() as Nanos, self.last_now.get());
        self.last_now.set(now);
        now
    }

    /// Applies one of the server's own operations, logged like any other.
    pub fn apply_own(self: &Rc<Self>, op: Op) {
        self.with_store(move |meta| {
            if let Applied::Fatal(error) = meta.apply(own_request(op)).0 {
                meta.give_up(&format!("the metadata store failed: {error}"));
            }
        });
    }

    /// The same, when no client remembers what the operation changes.
    fn apply_own_in_turn(self: &Rc<Self>, op: Op) {
        if let Op::SessionOver { session } = op {
            self.leases.end_session(session);
            self.begin_end(session);
            let meta = self.clone();
            task::spawn(async move {
                let claims = meta.claim(0, &op).await;
                meta.apply_own(op);
                meta.end_ends(session);
                drop(claims);
            });
        } else {
            self.apply_own(op);
        }
    }

    /// Asks the store something on the server's own behalf; EAGAIN while a checkpoint has it.
    pub fn ask_own(&self, op: Op) -> Reply {
        if !self.is_store_here() {
            return Reply::Error { code: Errno::EAGAIN, reason: Name::EMPTY };
        }
        match self.store_mut().apply(&own_request(op)) {
            Applied::Reply(reply) => reply,
            _ => Reply::Error { code: Errno::EIO, reason: Name::EMPTY },
        }
    }

    /// Applies a request; and whether that had been done before.
    fn apply(self: &Rc<Self>, mut request: Request) -> (Applied, bool) {
        request.now = self.now();
        self.counters.operations.add(1);
        let applied = self.store_mut().apply(&request);
        let is_repeated = self.store_mut().was_repeated();
        if request.op.is_logged() && !applied.is_refused() {
            self.journal.keep(&request);
        }
        self.do_work(Ok(()));
        (applied, is_repeated)
    }

    fn work(self: &Rc<Self>, work: Work) {
        match work {
            Work::Answer(wait, reply) => {
                if let Some(waiter) = self.waiting.borrow_mut().remove(&wait) {
                    // A waiter that gave up has cancelled its wait, or is about to.
                    let _ = waiter.send(reply);
                }
            }
            Work::Apply(request) => self.apply_own_in_turn(request.op),
            Work::Remove { id, epoch, striping } => self.begin_removal(id, epoch, striping),
            Work::Sweep { id, epoch } => self.begin_sweep(id, epoch),
            Work::Cut { id, epoch, size, striping } => {
                self.begin_cut(Cut { id, epoch, size, striping })
            }
        }
    }

    /// A client's request: answered now, or when the log, the data servers or other clients allow.
    fn request(self: &Rc<Self>, mut request: Request) -> Outcome<Answer> {
        if request.op.is_internal() {
            return Errno::EPERM.into();
        }
        if !self.is_store_here() {
            let meta = self.clone();
            return Outcome::later(async move {
                meta.store_is_here().await;
                finish(meta.request(request)).await
            });
        }
        // A client that comes back on a full disk must get in: it may want to remove things.
        let is_logged = request.op.is_logged() && !matches!(request.op, Op::Hello { .. });
        let room = if request.op.grows() { self.room() } else { Room::Ample };
        if let Op::MakeDir { count, .. } = &mut request.op
            && (room == Room::Scarce || self.leases.are_many_alone())
        {
            *count = 0;
        }
        let is_refused = match room {
            Room::Ample => false,
            // Who is alone makes things before there is room for them.
            Room::Scarce => matches!(request.op, Op::Alone { .. }),
            Room::None => !(self.is_said_late(&request) && self.spares(&request)),
        };
        if is_refused || (is_logged && !self.journal.has_room()) {
            let what = "the metadata store is full; hint: remove files, or give the metadata server's \
                disk more space";
            return Outcome::Now(Err(Errno::because(Errno::ENOSPC, what)));
        }
        let (session, op) = (request.session, request.op.clone());
        let (applied, is_repeated) = self.apply(request);
        self.answer((session, &op, is_repeated), applied)
    }

    /// What room the store has. When that has become scarce nobody is left alone with a directory.
    fn room(self: &Rc<Self>) -> Room {
        let room = self.journal.room(self.store_mut().kv());
        if self.room_before.replace(room) == Room::Ample && room > Room::Ample {
            self.leave_nobody_alone();
        }
        room
    }

    /// Whether the store, which is full, takes this in all the same.
    fn spares(&self, request: &Request) -> bool {
        // A name has two rows, and a file three.
        let steps = if let Op::Names { steps, .. } = &request.op { steps.0.len() } else { 1 };
        let bytes = request.size(()) + steps * STEP_BYTES;
        self.journal.spares(self.store_mut().kv(), bytes as u64)
    }

    /// A client's greeting. Its connection speaks for the session from the moment that there is one,
    /// not from the answer on: a client that goes away between the two must be missed.
    fn hello(self: &Rc<Self>, connection: &Connection, request: Request) -> Outcome<Answer> {
        let (session, op) = (request.session, request.op.clone());
        let (applied, is_repeated) = self.apply(request);
        if let (Applied::Reply(reply), Op::Hello { name, .. }) = (&applied, &op) {
            self.watch.rename(&connection.client, &name.lossy());
            self.greeted(connection, reply);
        }
        self.answer((session, &op, is_repeated), applied)
    }

    fn answer(
        self: &Rc<Self>,
        (session, op, is_repeated): (u64, &Op, bool),
        applied: Applied,
    ) -> Outcome<Answer> {
        match applied {
            Applied::Fatal(error) => self.give_up(&format!("the metadata store failed: {error}")),
            Applied::Reply(reply) if matches!(op, Op::Fsync { .. }) => {
                self.counters.fsyncs.add(1);
                let journal = self.journal.clone();
                Outcome::later(async move { journal.sync().await.map(|()| plain(reply)) })
            }
            Applied::Reply(mut reply) => {
                self.leave_out(session, &mut reply);
                let grant = if is_repeated { 0 } else { self.grant(session, op, &reply) };
                if let (Reply::Listed { contents, .. }, 0) = (&mut reply, grant) {
                    // Nobody may remember that.
                    contents.0.clear();
                }
                let dir = if grant > 0 { self.store_mut().changed_dir(op) } else { None };
                if let (Reply::Steps { dirs, .. }, true) = (&mut reply, grant > 0) {
                    *dirs = List(self.store_mut().changed_dirs(op));
                }
                let answer = Answer { reply, grant, dir };
                if !self.journal.is_behind() {
                    return Outcome::Now(Ok(answer));
                }
                let caught_up = self.journal.caught_up();
                Outcome::later(async move { caught_up.await.map(|()| answer) })
            }
            Applied::AfterCut { id, epoch, reply } => {
                let (meta, caught_up) = (self.clone(), self.journal.caught_up());
                Outcome::later(async move {
                    caught_up.await?;
                    meta.cut_done(id, epoch).await.map(|()| plain(reply))
                })
            }
            Applied::Wait(wait) => self.wait(wait).map(plain),
        }
    }

    fn wait(self: &Rc<Self>, wait: WaitId) -> Outcome<Reply> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(wait, sender);
        let guard = WaitGuard { meta: self.clone(), wait };
        Outcome::later(async move {
            let reply = receiver.await.map_err(|_| Errno::from(Errno::EINTR))?;
            guard.meta.journal.caught_up().await?;
            Ok(reply)
        })
    }
}

/// Gives up a wait whose client no longer wants it.
struct WaitGuard {
    meta: Rc<Meta>,
    wait: WaitId,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let unanswered = self.meta.waiting.borrow_mut().remove(&self.wait).is_some();
        if unanswered {
            let wait = self.wait;
            self.meta.with_store(move |meta| {
                meta.store_mut().cancel_wait(wait);
                meta.do_work(Ok(()));
            });
        }
    }
}

fn own_request(op: Op) -> Request {
    Request { session: 0, seq: 0, seq_done: 0, now: 0, caller: Caller::default(), op }
}

async fn finish<T>(outcome: Outcome<T>) -> Result<T> {
    match outcome {
        Outcome::Now(result) => result,
        Outcome::Later(later) => later.await,
    }
}

/// An answer that is not to be remembered.
fn plain(reply: Reply) -> Answer {
    Answer { reply, grant: 0, dir: None }
}
