//! What a client does to a file that it alone knows, said late and in one request.
//!
//! Who makes a file most often writes it, sets its times, owner and mode, and closes it: four requests
//! and more, of which nobody else could see anything but the first and the last. So the metadata
//! server leaves the maker *alone* with the new file ([`crate::meta::lease`]): nobody else is told of
//! it before the maker was asked what it has done. What it does meanwhile is kept here and sent as
//! one [`Op::Amend`]:
//!
//! - when the file is closed or synced, and before any other request of this client that could tell of it,
//! - when the server takes the lease back, before that is acknowledged,
//! - after [`AGE_MAX`].
//!
//! Only what cannot be refused, but for want of space or of the server, is kept: whether it was done is
//! told by the next sync or close.

use super::wire::Wire;
use super::{Answered, Change, Task};
use crate::client::cache::Sent;
use crate::client::{BoxFuture, Error, Result};
use crate::meta::access;
use crate::meta::lease::LEASE_TIME;
use crate::ops::{Caller, Id, InlinePiece, Inode, Lease, Op, Reply, set};
use covey_wire::List;
use futures_util::future::{FutureExt, Shared, join_all};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long anything is kept.
pub const AGE_MAX: Duration = Duration::from_millis(5);
/// Files that are kept track of. Beyond, all is said at once.
const FILES_MAX: usize = 1024;
/// What must be left of the lease: much more than [`AGE_MAX`], so that a slow machine does not matter.
const MARGIN: Duration = Duration::from_millis(400);
/// How long an error is kept that nobody asks for, of a file that nobody has open any more.
const ERROR_KEPT: Duration = Duration::from_secs(60);
/// Attributes that may be set late.
const MASK: u32 =
    set::MODE | set::UID | set::GID | set::ATIME | set::MTIME | set::ATIME_NOW | set::MTIME_NOW;
const PRIVILEGE: u32 = 0o7000;
/// Bytes of a request around its data.
const REQUEST_BYTES: u32 = 1024;

/// What is to be said of all such files.
pub(super) struct Late {
    wire: Arc<Wire>,
    is_on: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last revocation that was heard of.
    revoked: u64,
    files: HashMap<Id, Alone>,
    /// Somebody looks after what gets old.
    is_watched: bool,
}

/// A file of this client's own making.
struct Alone {
    /// This client is alone with it until then; none when that is over.
    until: Option<Instant>,
    inode: Inode,
    kept: Option<Kept>,
    /// What is being said.
    going: Option<Going>,
    /// What became of it, untold.
    failed: Option<(Error, Instant)>,
}

/// Completes when something was said, or has failed.
type Going = Shared<BoxFuture<()>>;

/// What is to be said of one file.
struct Kept {
    caller: Caller,
    write: Option<Write>,
    /// The bytes that are written.
    data: Vec<u8>,
    set: Set,
    /// The cache knows of it since then.
    sent: Sent,
    since: Instant,
}

/// A write of what lies with the inode, without its bytes: see [`Op::WriteInline`].
#[derive(Clone, Copy)]
pub struct Write {
    pub epoch: u32,
    pub end: u64,
    pub hole: bool,
    pub piece: InlinePiece,
}

/// Attributes, as in [`Op::Setattr`].
#[derive(Clone, Copy, Default)]
pub struct Set {
    pub mask: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: u64,
    pub mtime: u64,
}

impl Late {
    pub fn new(wire: Arc<Wire>, is_on: bool) -> Arc<Late> {
        let is_on = is_on && wire.cache.is_on();
        Arc::new(Late { wire, is_on, state: Mutex::default() })
    }

    /// The bit with which a file is created, to be alone with it.
    pub fn access(&self) -> u8 {
        if self.is_on { access::ALONE } else { 0 }
    }

    /// A request was answered: it may have made a file.
    pub fn learn(&self, op: &Op, answered: &Answered) {
        let Op::Create { access: asked, .. } = op else { return };
        let Reply::Created { inode, created: true } = &answered.reply else { return };
        let is_asked = asked & access::ALONE != 0 && answered.grant > 0 && inode.is_regular();
        let mut state = self.lock();
        if !is_asked || answered.grant < state.revoked {
            return;
        }
        if state.files.len() >= FILES_MAX {
            state.forget_ended(self.wire.net.now(), |id| self.wire.memory.is_open(*id));
        }
        if state.files.len() < FILES_MAX {
            let until = Some(answered.asked + LEASE_TIME);
            let inode = inode.clone();
            let alone = Alone { until, inode, kept: None, going: None, failed: None };
            state.files.insert(alone.inode.id, alone);
        }
    }

    /// A change was made at once, and answered: the files of which it may tell have another version.
    pub fn changed(&self, task: &Task, answered: &Answered) {
        if !self.is_on || task.change.is_none() {
            return;
        }
        let makes = matches!(task.op, Op::Create { .. } | Op::CreateWrite { .. });
        let told = match &answered.reply {
            Reply::Node { inode } | Reply::Created { inode, .. } => Some(inode),
            _ => None,
        };
        let mut state = self.lock();
        for (id, file) in &mut state.files {
            let is_meant = match concern(&task.op) {
                Concern::Nothing => false,
                Concern::One(one) => one == *id,
                Concern::All => !makes,
            };
            match told.filter(|inode| inode.id == *id) {
                Some(inode) => file.inode.version = file.inode.version.max(inode.version),
                // Which one, nobody has said.
                None if is_meant => file.inode.version = 0,
                None => {}
            }
        }
    }

    /// Keeps a write, of `data` at its piece; false when it has to be said at once.
    pub fn write(self: &Arc<Self>, caller: &Caller, id: Id, new: Write, data: &[u8]) -> bool {
        if !self.is_on {
            return false;
        }
        let now = self.wire.net.now();
        let mut state = self.lock();
        let Some(file) = state.files.get_mut(&id) else { return false };
        let has_room = file.kept_bytes() + data.len() <= self.bytes_max();
        if !has_room || !file.takes(caller, now) || new.epoch != file.inode.epoch {
            return false;
        }
        match file.kept.as_ref().map(|kept| (&kept.write, kept.set.mask)) {
            None | Some((None, 0)) => {}
            // It goes on where the last one ended.
            Some((Some(write), 0)) if write.is_followed_by(&new) || write.is_grown_by(&new) => {}
            Some(_) => return false,
        }
        file.inode.size = file.inode.size.max(new.end);
        let kept = self.kept(file, caller, id, now);
        match &mut kept.write {
            Some(write) => write.follow(&new),
            none => *none = Some(new),
        }
        kept.data.extend_from_slice(data);
        self.watch(&mut state);
        true
    }

    /// Bytes of one file that are kept: what one request holds.
    fn bytes_max(&self) -> usize {
        self.wire.link.payload_max().saturating_sub(REQUEST_BYTES) as usize
    }

    /// Keeps attributes; the inode that comes of it but for its times, none when they have to be set
    /// at once.
    pub fn set(self: &Arc<Self>, caller: &Caller, id: Id, new: Set) -> Option<Inode> {
        if !self.is_on || new.mask == 0 || new.mask & !MASK != 0 {
            return None;
        }
        let now = self.wire.net.now();
        let mut state = self.lock();
        let file = state.files.get_mut(&id).filter(|file| file.takes(caller, now))?;
        if !may_set(caller, &file.inode, &new) {
            return None;
        }
        if new.mask & set::MODE != 0 {
            file.inode.mode = file.inode.type_bits() | new.mode & !PRIVILEGE;
        }
        let given = |field, present| new.mask & (field | present) == field;
        if given(set::ATIME, set::ATIME_NOW) {
            file.inode.atime = new.atime;
        }
        if given(set::MTIME, set::MTIME_NOW) {
            file.inode.mtime = new.mtime;
        }
        let inode = file.inode.clone();
        self.kept(file, caller, id, now).set.add(new);
        self.watch(&mut state);
        Some(inode)
    }

    /// The mode of a file that this client is alone with.
    pub fn mode(&self, id: Id) -> Option<u32> {
        let now = self.wire.net.now();
        let state = self.lock();
        let file = state.files.get(&id).filter(|file| file.is_quiet(now))?;
        Some(file.inode.mode)
    }

    fn kept<'a>(&self, file: &'a mut Alone, caller: &Caller, id: Id, now: Instant) -> &'a mut Kept {
        file.kept.get_or_insert_with(|| Kept {
            caller: caller.clone(),
            write: None,
            data: Vec::new(),
            set: Set::default(),
            sent: self.wire.cache.sending(&Kept::op(id, None, Vec::new(), Set::default()), now),
            since: now,
        })
    }

    /// Whether something has to be said before an operation on one file.
    pub fn has_to_say_before(&self, op: &Op) -> bool {
        let is_kept = |file: &Alone| file.kept.is_some() || file.going.is_some();
        self.is_on
            && match concern(op) {
                Concern::Nothing => false,
                Concern::One(id) => self.lock().files.get(&id).is_some_and(is_kept),
                Concern::All => self.lock().files.values().any(is_kept),
            }
    }

    /// Says what has to be said before an operation.
    pub async fn before(self: &Arc<Self>, op: &Op) {
        if !self.is_on {
            return;
        }
        match concern(op) {
            Concern::Nothing => {}
            Concern::One(id) => self.settle(id).await,
            Concern::All => self.settle_all().await,
        }
    }

    /// Says what is kept of a file.
    pub async fn settle(self: &Arc<Self>, id: Id) {
        let going = self.say(&mut self.lock(), id, false);
        if let Some(going) = going {
            going.await;
        }
    }

    /// Says all that is kept.
    pub async fn settle_all(self: &Arc<Self>) {
        let ids: Vec<Id> = self.lock().files.keys().copied().collect();
        join_all(ids.into_iter().map(|id| self.settle(id))).await;
    }

    /// The file is closed or synced: all of it is said, and whether all of that was done.
    pub async fn finish(self: &Arc<Self>, id: Id) -> Result<()> {
        if !self.is_on {
            return Ok(());
        }
        // Nothing may be kept any more before what is kept has gone.
        let going = {
            let mut state = self.lock();
            let Some(file) = state.files.get_mut(&id) else { return Ok(()) };
            file.until = None;
            self.say(&mut state, id, true)
        };
        if let Some(going) = going {
            going.await;
        }
        let mut state = self.lock();
        let Some(file) = state.files.get_mut(&id) else { return Ok(()) };
        let failed = file.failed.take();
        if file.is_over() {
            state.files.remove(&id);
        }
        failed.map_or(Ok(()), |(error, _)| Err(error))
    }

    /// Leases are taken back: says what was done under them.
    pub async fn revoke(self: &Arc<Self>, number: u64, leases: &[Lease]) {
        let said: Vec<Going> = {
            let mut state = self.lock();
            state.revoked = state.revoked.max(number);
            let mut said = Vec::new();
            for lease in leases.iter().filter(|lease| !lease.place) {
                if let Some(file) = state.files.get_mut(&lease.id) {
                    file.until = None;
                    said.extend(self.say(&mut state, lease.id, true));
                }
            }
            said
        };
        join_all(said).await;
    }

    /// Sends what is kept of a file, beside whoever waits for it: that may be given up.
    fn say(self: &Arc<Self>, state: &mut State, id: Id, is_last: bool) -> Option<Going> {
        let file = state.files.get_mut(&id)?;
        let Some(kept) = file.kept.take() else { return file.going.clone() };
        let mut op = Kept::op(id, kept.write, kept.data, kept.set);
        if let Op::Amend { last, mask, uid, gid, .. } = &mut op {
            *last = is_last;
            if file.inode.version != 0 {
                // The owner stays who it is.
                *mask = *mask & !(set::UID | set::GID) | set::AT_VERSION;
                (*uid, *gid) = set::in_fields(file.inode.version);
            }
        }
        let change = Some(Change::new(&self.wire.memory));
        let mut task = Task { begun: Some(kept.sent), ..Task::new(kept.caller, op, change, None) };
        let late = self.clone();
        let saying: BoxFuture<()> = Box::pin(async move {
            let said = late.wire.send(&mut task).await;
            // It was not even sent.
            task.begun.take().into_iter().for_each(|sent| late.wire.cache.failed(sent));
            let now = late.wire.net.now();
            let mut state = late.lock();
            let Some(file) = state.files.get_mut(&id) else { return };
            file.going = None;
            match said {
                Ok(Answered { reply: Reply::Node { inode }, .. }) => file.inode = inode,
                Ok(answered) => file.failed = Some((super::unexpected(&answered.reply), now)),
                Err(error) => file.failed = Some((error, now)),
            }
        });
        let going = saying.shared();
        file.going = Some(going.clone());
        self.wire.net.spawn(Box::pin(going.clone()));
        Some(going)
    }

    /// Has what is kept said when it is old enough.
    fn watch(self: &Arc<Self>, state: &mut State) {
        if std::mem::replace(&mut state.is_watched, true) {
            return;
        }
        let late = Arc::downgrade(self);
        let net = self.wire.net.clone();
        self.wire.net.spawn(Box::pin(async move {
            loop {
                net.sleep(AGE_MAX).await;
                let Some(late) = late.upgrade() else { return };
                if !late.look() {
                    return;
                }
            }
        }));
    }

    /// Says what is old, and forgets what is over; whether to look again.
    fn look(self: &Arc<Self>) -> bool {
        let now = self.wire.net.now();
        let mut state = self.lock();
        let is_old = |kept: &Kept| now.duration_since(kept.since) >= AGE_MAX / 2;
        let old = state.files.iter().filter(|(_, file)| file.kept.as_ref().is_some_and(is_old));
        let old: Vec<Id> = old.map(|(id, _)| *id).collect();
        for id in old {
            self.say(&mut state, id, false);
        }
        state.forget_ended(now, |id| self.wire.memory.is_open(*id));
        state.is_watched = state.files.values().any(|file| file.kept.is_some());
        state.is_watched
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl super::Session {
    /// The mode of a file that this client is alone with.
    pub fn mode_late(&self, id: Id) -> Option<u32> {
        self.late.mode(id)
    }
}

impl State {
    /// Forgets files that this client is alone with no longer, and of which nothing is left to say.
    fn forget_ended(&mut self, now: Instant, is_open: impl Fn(&Id) -> bool) {
        self.files.retain(|id, file| {
            file.until = file.until.filter(|&until| now < until);
            let is_kept =
                |(_, at): &(Error, Instant)| is_open(id) || now.duration_since(*at) < ERROR_KEPT;
            file.failed = file.failed.take().filter(is_kept);
            !file.is_over()
        });
    }
}

impl Alone {
    /// Whether something more may be kept on behalf of the caller.
    fn takes(&self, caller: &Caller, now: Instant) -> bool {
        let is_same = self.kept.as_ref().is_none_or(|kept| is_same(&kept.caller, caller));
        is_same && self.is_quiet(now)
    }

    /// Whether this client is alone with it, and nothing of it is being said.
    fn is_quiet(&self, now: Instant) -> bool {
        let is_alone = self.until.is_some_and(|until| now + MARGIN < until);
        is_alone && self.going.is_none() && self.failed.is_none()
    }

    fn kept_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.data.len())
    }

    fn is_over(&self) -> bool {
        let is_idle = self.kept.is_none() && self.going.is_none();
        self.until.is_none() && is_idle && self.failed.is_none()
    }
}

impl Write {
    fn is_followed_by(&self, next: &Write) -> bool {
        let is_next = u64::from(next.piece.offset) == self.piece.end();
        is_next && next.epoch == self.epoch && next.hole == self.hole
    }

    /// The next one says no more than how long the file has become, by what the I/O servers have.
    fn is_grown_by(&self, next: &Write) -> bool {
        next.piece.bytes == 0 && next.epoch == self.epoch && next.hole == self.hole
    }

    fn follow(&mut self, next: &Write) {
        self.end = self.end.max(next.end);
        self.piece.bytes += next.piece.bytes;
    }
}

impl Set {
    /// The later one counts.
    fn add(&mut self, new: Set) {
        let has = |bits: u32| new.mask & bits != 0;
        if has(set::MODE) {
            self.mode = new.mode;
        }
        if has(set::UID) {
            self.uid = new.uid;
        }
        if has(set::GID) {
            self.gid = new.gid;
        }
        if has(set::ATIME) {
            self.atime = new.atime;
            self.mask &= !set::ATIME_NOW;
        }
        if has(set::MTIME) {
            self.mtime = new.mtime;
            self.mask &= !set::MTIME_NOW;
        }
        self.mask |= new.mask;
    }
}

/// Root's groups do not matter.
fn is_same(one: &Caller, other: &Caller) -> bool {
    one == other || (one.is_root() && other.is_root())
}

/// Whether nothing but want of space could refuse it, and its order to other attributes does not matter.
fn may_set(caller: &Caller, inode: &Inode, new: &Set) -> bool {
    let has = |bits: u32| new.mask & bits != 0;
    let keeps_owner = !has(set::UID) || new.uid == inode.uid;
    let keeps_group = !has(set::GID) || new.gid == inode.gid;
    let is_plain = inode.mode & PRIVILEGE == 0 && (!has(set::MODE) || new.mode & PRIVILEGE == 0);
    caller.owns(inode) && keeps_owner && keeps_group && is_plain
}

impl Kept {
    fn op(id: Id, write: Option<Write>, data: Vec<u8>, set: Set) -> Op {
        let Set { mask, mode, uid, gid, atime, mtime } = set;
        let (epoch, end, hole, pieces) = match write {
            Some(write) => (write.epoch, write.end, write.hole, vec![write.piece]),
            None => (0, 0, false, Vec::new()),
        };
        let (pieces, data, last) = (List(pieces), data.into(), false);
        Op::Amend { id, epoch, end, hole, pieces, data, mask, mode, uid, gid, atime, mtime, last }
    }
}

/// The files of which an operation may tell, or on which it depends.
enum Concern {
    Nothing,
    One(Id),
    All,
}

fn concern(op: &Op) -> Concern {
    match op {
        // They are about the session, the servers, or what nobody has yet.
        Op::Hello { .. }
        | Op::StillOpen { .. }
        | Op::Revokes { .. }
        | Op::Cluster {}
        | Op::Stores {}
        | Op::Places {}
        | Op::Lock { .. }
        | Op::Unlock { .. }
        | Op::Getlock { .. }
        | Op::Release { .. }
        | Op::Close { .. }
        | Op::Tmpfile { .. } => Concern::Nothing,
        // A name that is taken is refused, whatever it leads to.
        Op::Create { exclusive: true, .. } | Op::CreateWrite { exclusive: true, .. } => {
            Concern::Nothing
        }
        Op::Getattr { id }
        | Op::Room { id, .. }
        | Op::Setattr { id, .. }
        | Op::Open { id, .. }
        | Op::Extend { id, .. }
        | Op::Reserve { id, .. }
        | Op::Commit { id, .. }
        | Op::EndAppend { id, .. }
        | Op::SetStriping { id, .. }
        | Op::Touch { id }
        | Op::Dense { id, .. }
        | Op::Recut { id, .. }
        | Op::Fence { id }
        | Op::SetConsistency { id, .. }
        | Op::Setxattr { id, .. }
        | Op::Removexattr { id, .. }
        | Op::Getxattr { id, .. }
        | Op::Listxattr { id }
        | Op::WriteInline { id, .. }
        | Op::AppendInline { id, .. }
        | Op::ReadInline { id, .. }
        | Op::Readdir { id, plus: false, .. } => Concern::One(*id),
        _ => Concern::All,
    }
}
