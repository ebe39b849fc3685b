//! The client's side of the metadata server: calls that survive a lost connection.
//!
//! A mutation carries the session and a number; when the connection is lost before its answer came it
//! is sent again on the next one, and the server answers what it answered the first time. When the
//! server has forgotten the session by then, what was sent in it fails: nobody can say whether it
//! was done. A server that restarted has forgotten opens and locks: both are told again before
//! anything else ([`memory`]).

mod handover;
mod late;
mod leases;
mod memory;
mod opened;
mod wire;

use super::beside::{Asker, beside};
use super::cache::{Cache, Sent};
use super::link::{Link, Start};
use super::{BoxFuture, Error, Net, Options, Result};
use crate::meta::{access, may};
use crate::ops::{Answer, Caller, Id, InlinePiece, Inode, Op, RangeLock, Reply, Request};
use covey_ninep::client::{Call, CallError, Conn};
use covey_ninep::message::Message;
use covey_ninep::tree::{self, Errno};
use covey_wire::{Field, Name, Payload, Reader};
use futures_util::future::select;
pub use handover::{Handover, Held};
use late::Late;
pub use leases::Forget;
use leases::{Listening, OnTheWay};
use memory::Memory;
pub use opened::Opened;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use wire::Wire;

/// The fid of the metadata tree's root on every connection.
const ROOT_FID: u32 = 0;
/// What must be left of a lease for an open that the server is told of later: much more than
/// [`TELL_PAUSE`], so that a slow machine does not matter.
const OPEN_MARGIN: Duration = Duration::from_millis(400);
/// How long opens and releases are kept back that need no answer: most files are closed by then.
const TELL_PAUSE: Duration = Duration::from_millis(20);
/// So many closes are told at once.
const CLOSES_MAX: usize = 256;
/// How often what must come to its end is tried again while the server is away.
const SETTLE_PAUSE: Duration = Duration::from_secs(1);

/// A session on the metadata server.
pub struct Session {
    dead_after: Duration,
    wire: Arc<Wire>,
    late: Arc<Late>,
    listening: Listening,
    /// Somebody is about to say what needs no answer.
    tells: AtomicBool,
}

/// How long a server is not asked again that does not know a request, as an older one, or would refuse it again: who counts for
/// quotas leaves nobody alone with a directory, nor with one in which no file can be made.
pub(super) const REFUSED: Duration = Duration::from_secs(30);

/// A request as often as it is sent.
struct Task {
    caller: Caller,
    op: Op,
    /// Keeps the number of a mutation open.
    change: Option<Change>,
    /// Who waits, when dropping the future is not how the wait ends.
    asker: Option<Asker>,
    /// What the cache was told of it before it is sent.
    begun: Option<Sent>,
    /// How often it was sent.
    sent: u32,
}

impl Task {
    fn new(caller: Caller, op: Op, change: Option<Change>, asker: Option<Asker>) -> Task {
        Task { caller, op, change, asker, begun: None, sent: 0 }
    }

    /// Whether the server may have done it although it has failed here: an answer was lost.
    fn may_be_done(&self, error: &Error) -> bool {
        error.is_away() || (may_pass(error) && self.sent > 1)
    }
}

/// Whether the same request may be answered later: the server is away, or its disk is full.
fn may_pass(error: &Error) -> bool {
    error.is_away() || matches!(error, Error::Full(_))
}

/// A place for an append, until it is committed. While it is held its number is open, and greetings
/// tell of it: a server that has lost our Commit with its power sees that nobody holds the place.
pub struct Place {
    caller: Caller,
    id: Id,
    /// Its first byte.
    pub offset: u64,
    length: u64,
    /// The file's epoch when it was given.
    pub epoch: u32,
    change: Option<Change>,
}

/// A reply, and how many greetings had begun when its request was made.
struct Answered {
    reply: Reply,
    greetings: u64,
    /// The number of the lease that came with it, and when it was asked for.
    grant: u64,
    asked: Instant,
}

impl Session {
    /// A session that begins with its first call.
    pub fn new(net: Arc<dyn Net>, server: &str, options: Options) -> Session {
        let memory = Memory::new(&options.name);
        Session::with(net, server, options, memory)
    }

    fn with(net: Arc<dyn Net>, server: &str, options: Options, memory: Memory) -> Session {
        let memory = Arc::new(memory);
        let greeted = memory.clone();
        let greet = move |conn: Conn| -> BoxFuture<tree::Result<Start>> {
            let memory = greeted.clone();
            Box::pin(async move {
                memory.greet(&conn).await?;
                Ok(Start::default())
            })
        };
        let dead_after = options.dead_after;
        let cache = Arc::new(Cache::new(options.caching));
        let (delegations, late_removals) = (options.delegations, options.late_removals);
        let link = Link::new(net.clone(), server, "/meta", options, Some(Box::new(greet)));
        let wire = Arc::new(Wire { link, net, memory, cache });
        let late = Late::new(wire.clone(), delegations, late_removals);
        let (listening, tells) = Default::default();
        Session { dead_after, wire, late, listening, tells }
    }

    /// What is remembered under leases.
    pub fn cache(&self) -> &Cache {
        &self.wire.cache
    }

    /// Attributes, as old as their lease at most.
    pub async fn inode(&self, id: Id) -> Result<Inode> {
        let known = || self.wire.cache.inode(id, self.wire.net.now());
        if let Some(inode) = known() {
            return Ok(inode);
        }
        // The answer to what had to be said of it tells what it is.
        if self.late.tell(id).await
            && let Some(inode) = known()
        {
            return Ok(inode);
        }
        self.inode_now(id).await
    }

    /// Attributes as they are now.
    pub async fn inode_now(&self, id: Id) -> Result<Inode> {
        match self.ask(&Caller::default(), Op::Getattr { id }).await? {
            Reply::Node { inode } => Ok(inode),
            other => Err(unexpected(&other)),
        }
    }

    /// One name.
    pub async fn lookup(&self, who: &Caller, parent: Id, name: &Name) -> Result<Inode> {
        let now = self.wire.net.now();
        if let Some(known) = self.wire.cache.lookup(who, parent, name, now) {
            return Ok(known?);
        }
        let (ahead, content) = self.wire.cache.ahead(parent, name, now);
        match self.ask(who, Op::Lookup { parent, name: name.clone(), ahead, content }).await? {
            Reply::Found { inode, .. } => inode.ok_or_else(|| Errno::ENOENT.into()),
            other => Err(unexpected(&other)),
        }
    }

    /// Most bytes of a request's body.
    pub fn payload_max(&self) -> u32 {
        self.wire.link.payload_max()
    }

    /// Asks without changing anything that has to be answered once only.
    pub async fn ask(&self, caller: &Caller, op: Op) -> Result<Reply> {
        let mut task = Task::new(caller.clone(), op, None, None);
        Ok(self.send(&mut task).await?.reply)
    }

    /// Changes something, once.
    pub async fn change(&self, caller: &Caller, op: Op) -> Result<Reply> {
        Ok(self.send(&mut self.task(caller, op)).await?.reply)
    }

    /// The same, unless nobody waits for it any more when it could be sent.
    pub async fn change_for(&self, asker: Asker, caller: &Caller, op: Op) -> Result<Reply> {
        let mut task = self.task(caller, op);
        task.asker = Some(asker);
        Ok(self.send(&mut task).await?.reply)
    }

    /// Says something before everything that is asked later, if it can be said now. What comes is
    /// whether it was answered. The server may do it later than it answers what was asked after it,
    /// so nothing of what it changes is remembered until then.
    pub fn tell(&self, caller: &Caller, op: Op) -> Option<BoxFuture<bool>> {
        if self.late.has_to_say_before(&op) {
            return None;
        }
        let conn = self.wire.link.conn_now()?;
        let (request, _) = self.wire.memory.request(0, caller, op);
        let sent = self.wire.cache.sending(&request.op, self.wire.net.now());
        let answer = queue(&conn, &request);
        let (cache, net) = (self.wire.cache.clone(), self.wire.net.clone());
        Some(Box::pin(async move {
            let way = OnTheWay::begun(&cache, sent);
            let Ok(answer) = answered(answer).await else { return false };
            way.arrived(&request.op, &answer, net.now());
            true
        }))
    }

    /// Connects now, so that later calls find a session.
    pub async fn start(&self) -> Result<()> {
        self.wire.link.conn(self.wire.link.now()).await.map(|_| ())?;
        if self.wire.cache.is_on() {
            self.listen();
        }
        Ok(())
    }

    /// A number that no other client has: no session of one start of the server has it, and starts are
    /// counted on its disk.
    pub fn unique(&self) -> u64 {
        self.wire.memory.unique()
    }

    /// Which start of the metadata server, and of its machine, this session was greeted by last.
    pub fn starts(&self) -> (u64, u64) {
        self.wire.memory.starts()
    }

    /// Ends the session, and gives all leases back, so that nobody waits for their end. A server that
    /// does not hear it forgets the session after its grace.
    pub async fn bye(&self) {
        self.late.settle_all().await;
        self.wire.cache.close();
        if self.wire.link.conn_now().is_some() {
            let nobody = Caller::default();
            let said = self.ask(&nobody, Op::Bye {});
            select(pin!(said), self.wire.net.sleep(self.dead_after)).await;
        }
    }

    /// Opens, with Open or Create. The server counts it until the [`Opened`] is dropped.
    pub async fn open(self: &Arc<Self>, caller: &Caller, op: Op) -> Result<(Inode, Opened)> {
        match self.open_with(caller, op).await? {
            (Reply::Node { inode } | Reply::Created { inode, .. }, opened) => Ok((inode, opened)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// The same with any operation that opens, and its reply.
    pub async fn open_with(self: &Arc<Self>, caller: &Caller, op: Op) -> Result<(Reply, Opened)> {
        let (session, caller) = (self.clone(), caller.clone());
        beside(&*self.wire.net, |asker| async move {
            let is_change = !matches!(op, Op::Open { .. } | Op::OpenRead { .. });
            let change = is_change.then(|| Change::new(&session.wire.memory));
            let mut task = Task::new(caller, op, change, Some(asker));
            loop {
                let answered = session.send(&mut task).await?;
                session.late.learn(&task.op, &answered);
                let id = match &answered.reply {
                    Reply::Node { inode }
                    | Reply::Created { inode, .. }
                    | Reply::Inline { inode, .. } => inode.id,
                    other => return Err(unexpected(other)),
                };
                // A greeting that has begun since did not tell of it: then it is asked for again.
                if session.wire.memory.opened(id, answered.greetings) {
                    let opened = Opened::told(&session, id);
                    return Ok((answered.reply, opened));
                }
            }
        })
        .await
    }

    /// Opens a file that is known under a lease, without a word to the server: it hears of the open
    /// before it can take the lease back, and soon if the file stays open. None where it must be asked.
    pub fn open_known(
        self: &Arc<Self>,
        caller: &Caller,
        id: Id,
        wanted: u8,
    ) -> Option<(Inode, Opened)> {
        let now = self.wire.net.now();
        self.wire.cache.inode(id, now)?;
        self.wire.link.conn_now()?;
        let opened = Opened::untold(self, id);
        // Looked at when it is counted: whoever takes the lease back from here on tells of it first.
        let inode = self.wire.cache.inode(id, now)?;
        if self.wire.cache.time_left(id, now).0 < OPEN_MARGIN || !may_open(caller, &inode, wanted) {
            return None;
        }
        self.tell_soon();
        Some((inode, opened))
    }

    fn say_opens(self: &Arc<Self>) {
        if let Some(conn) = self.wire.link.conn_now()
            && !self.wire.memory.say_opens(&conn)
        {
            self.tell_soon();
        }
    }

    /// Says in a while what is to be said and needs no answer.
    fn tell_soon(self: &Arc<Self>) {
        if self.tells.swap(true, Ordering::AcqRel) {
            return;
        }
        let (session, pause) = (Arc::downgrade(self), self.wire.net.sleep(TELL_PAUSE));
        self.wire.net.spawn(Box::pin(async move {
            pause.await;
            let Some(session) = session.upgrade() else { return };
            session.tells.store(false, Ordering::Release);
            session.say_opens();
        }));
    }

    /// The bit of an access with which a file is created that is to be written, to be alone with it.
    pub fn access_alone(&self, access: u8) -> u8 {
        if access & access::WRITE != 0 { self.late.access() } else { 0 }
    }

    /// Sets attributes late, if that may be: the inode that comes of it, but for its times. Of what is not open only directories.
    pub fn set_late(self: &Arc<Self>, caller: &Caller, op: &Op, is_open: bool) -> Option<Inode> {
        let &Op::Setattr { id, mask, mode, uid, gid, atime, mtime, .. } = op else { return None };
        self.late.set(caller, id, late::Set { mask, mode, uid, gid, atime, mtime }, is_open)
    }

    /// Removes a file's name late, if that may be.
    pub async fn remove_late(&self, caller: &Caller, parent: Id, name: &Name) -> Result<bool> {
        self.late.remove(caller, parent, name).await
    }

    /// Writes late what lies with the inode, if that may be.
    pub fn write_late(
        &self,
        caller: &Caller,
        id: Id,
        (epoch, end, hole): (u32, u64, bool),
        piece: InlinePiece,
        data: &[u8],
    ) -> bool {
        self.late.write(caller, id, late::Write { epoch, end, hole, piece }, data)
    }

    /// Says all that was done late to a file, which is closed or synced; whether all of that was done.
    pub async fn finish(&self, id: Id) -> Result<()> {
        self.late.finish(id).await
    }

    /// Takes a lock. Given up, by dropping the future too, it is not held afterwards.
    pub async fn lock(self: &Arc<Self>, id: Id, lock: RangeLock, wait: bool) -> Result<()> {
        let mut claim = Claim { session: self, id, range: Some(lock.clone()) };
        let op = Op::Lock { id, lock: lock.clone(), wait, again: false };
        let mut task = Task::new(Caller::default(), op, None, None);
        loop {
            match self.send(&mut task).await {
                Ok(answered) if self.wire.memory.locked(id, &lock, answered.greetings) => break,
                // A greeting that has begun since did not tell of it.
                Ok(_) => self.wire.memory.unlocked(id, &lock),
                Err(error) => {
                    if !error.is_away() {
                        claim.range = None;
                    }
                    return Err(error);
                }
            }
        }
        claim.range = None;
        Ok(())
    }

    /// Gives back what the owner holds within the range, now or when the server is back.
    pub async fn unlock(self: &Arc<Self>, id: Id, lock: RangeLock) -> Result<()> {
        self.wire.memory.unlocked(id, &lock);
        let mut claim = Claim { session: self, id, range: Some(lock.clone()) };
        self.ask(&Caller::default(), Op::Unlock { id, lock }).await?;
        claim.range = None;
        Ok(())
    }

    /// Takes a place at the end of a file. One that is granted after the wait for it has ended is
    /// given back, or later appends would wait for it.
    pub async fn reserve(
        self: &Arc<Self>,
        caller: &Caller,
        id: Id,
        length: u64,
        asker: Asker,
    ) -> Result<Place> {
        let mut task = self.task(caller, Op::Reserve { id, length });
        task.change.iter().try_for_each(|change| self.wire.memory.reserves(change.seq))?;
        task.asker = Some(asker);
        match self.send(&mut task).await {
            Ok(Answered { reply: Reply::Offset { offset, epoch }, .. }) => {
                Ok(Place { caller: task.caller, id, offset, length, epoch, change: task.change })
            }
            Ok(answered) => Err(unexpected(&answered.reply)),
            Err(error) => {
                // It may have been granted by an answer that was lost.
                if task.may_be_done(&error) {
                    task.asker = None;
                    self.settle(task, None);
                }
                Err(error)
            }
        }
    }

    /// Says that an append is written, or that it never will be as a whole: that leaves a hole.
    pub async fn commit(self: &Arc<Self>, place: Place, hole: bool) -> Result<()> {
        let Place { caller, id, offset, length, change: reserve, .. } = place;
        let mut task = self.commit_task(&caller, reserve.as_ref(), (id, offset, length), hole);
        match self.send(&mut task).await {
            Ok(_) => Ok(()),
            Err(error) => {
                if may_pass(&error) {
                    self.settle(task, reserve);
                }
                Err(error)
            }
        }
    }

    fn task(&self, caller: &Caller, op: Op) -> Task {
        Task::new(caller.clone(), op, Some(Change::new(&self.wire.memory)), None)
    }

    /// The place was the session's that reserved it, and is given up with it: another one's Commit
    /// would be taken for one that was answered before.
    fn commit_task(
        &self,
        caller: &Caller,
        reserve: Option<&Change>,
        (id, offset, length): (Id, u64, u64),
        hole: bool,
    ) -> Task {
        let number = reserve.map_or(0, |change| change.seq);
        let mut task =
            self.task(caller, Op::EndAppend { id, reserve: number, offset, length, hole });
        if let (Some(change), Some(reserve)) = (&mut task.change, reserve) {
            change.sent_in = reserve.sent_in;
        }
        task
    }

    /// Brings a Reserve or Commit to its end, however long the server is away or full. The number of a
    /// Commit's `reserve` stays open meanwhile.
    fn settle(self: &Arc<Self>, task: Task, reserve: Option<Change>) {
        self.wire.net.spawn(Box::pin(settle(
            Arc::downgrade(self),
            self.wire.net.clone(),
            task,
            reserve,
        )));
    }

    /// Sends a request, after what has to be said before it.
    async fn send(&self, task: &mut Task) -> Result<Answered> {
        let _changing = self.late.changing(&task.op);
        self.late.before(&task.op).await?;
        let answered = self.wire.send(task).await;
        answered.inspect(|answered| self.late.changed(task, answered))
    }
}

/// Asks again until there is an answer; a place that was reserved in vain is given back, as a hole.
async fn settle(
    session: Weak<Session>,
    net: Arc<dyn Net>,
    mut task: Task,
    mut reserve: Option<Change>,
) {
    loop {
        let Some(session) = session.upgrade() else { return };
        match (session.send(&mut task).await, &task.op) {
            (Err(error), _) if may_pass(&error) => {
                drop(session);
                net.sleep(SETTLE_PAUSE).await;
            }
            (Ok(Answered { reply: Reply::Offset { offset, .. }, .. }), Op::Reserve { .. }) => {
                let &Op::Reserve { id, length } = &task.op else { return };
                reserve = task.change.take();
                let place = (id, offset, length);
                task = session.commit_task(&task.caller, reserve.as_ref(), place, true);
            }
            _ => return drop(reserve),
        }
    }
}

/// A range of which nobody knows yet whether it is locked: dropped so, it is unlocked.
struct Claim<'a> {
    session: &'a Session,
    id: Id,
    range: Option<RangeLock>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Some(range) = self.range.take() else { return };
        self.session.wire.memory.owe_unlocks(self.id, &range);
        // Queued before whatever the owner asks next.
        if let Some(conn) = self.session.wire.link.conn_now() {
            self.session.wire.memory.pay(&conn);
        }
    }
}

/// A mutation's number, open until its answer has come or its caller has gone.
struct Change {
    memory: Arc<Memory>,
    seq: u64,
    /// The session it was sent in.
    sent_in: Option<u64>,
}

impl Change {
    fn new(memory: &Arc<Memory>) -> Change {
        Change { memory: memory.clone(), seq: memory.next_seq(), sent_in: None }
    }

    /// It may be sent again within its session only: another one does not know it and would do it
    /// twice.
    fn note_sent(&mut self, session: u64) -> Result<()> {
        if *self.sent_in.get_or_insert(session) == session {
            return Ok(());
        }
        Err(Error::Forgotten)
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.memory.close_seq(self.seq);
    }
}

/// Whether the server would let the caller open the file, and without a word of its own.
fn may_open(caller: &Caller, inode: &Inode, wanted: u8) -> bool {
    let is_plain = inode.is_regular() || (inode.is_dir() && wanted & access::WRITE == 0);
    is_plain && inode.nlink > 0 && may(caller, inode, wanted)
}

/// A reply that does not fit its request: the server is broken or newer.
pub fn unexpected(reply: &Reply) -> Error {
    Error::Odd(format!("metadata server answered {}", reply.name()))
}

fn body(request: &Request) -> Payload {
    let mut body = Vec::with_capacity(request.size(()));
    request.put((), &mut body);
    body.into()
}

async fn call(conn: &Conn, request: &Request) -> std::result::Result<Answer, CallError> {
    answered(queue(conn, request)).await
}

/// Sends a request, before everything that is sent later.
fn queue(conn: &Conn, request: &Request) -> Call {
    conn.call(Message::Tcall { fid: ROOT_FID, body: body(request) })
}

async fn answered(call: Call) -> std::result::Result<Answer, CallError> {
    let Message::Rcall { body } = call.await? else {
        return Err(CallError::Errno(Errno::because(Errno::EPROTO, "Tcall got another message")));
    };
    Answer::get((), &mut Reader::new(body.into_bytes()))
        .map_err(|blame| CallError::Errno(Errno::because(Errno::EPROTO, blame.to_string())))
}
