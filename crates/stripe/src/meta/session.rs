//! Sessions: a client's opens, and the stored replies that make its mutations repeatable.
//!
//! A session and its replies outlive the server: they change by logged operations only and are
//! written at checkpoints. Its opens are volatile; a client that comes back tells which files it
//! has open. A refusal is not stored: it changed nothing, so the request may as well be judged again.

use super::fault::{Fault, refuse};
use super::names::NAME_BYTES_MAX;
use super::permission::{access, check, mode};
use super::{Applied, Awaited, Store, WaitId, done, keys};
use crate::kv::Kv;
use crate::ops::{Id, Op, Reply, Request};
use covey_ninep::tree::Errno;
use covey_wire::{List, Name, record};
use std::collections::{BTreeMap, BTreeSet};

/// So many replies are kept of one session; of older mutations only that they were done.
pub const REPLIES_KEPT_MAX: usize = 4096;

/// So many mutations of one session are remembered at all.
const MUTATIONS_REMEMBERED_MAX: usize = 32 * 1024;

/// So many sessions exist at once.
const SESSIONS_MAX: usize = 64 * 1024;

/// A session, for status displays and for timing the grace of those that do not come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its number.
    pub session: u64,
    /// What its client calls itself.
    pub name: Name,
    /// Files it has open.
    pub open_files: usize,
}

#[derive(Default)]
pub(super) struct Sessions {
    live: BTreeMap<u64, Session>,
    /// How many sessions have a file open.
    openers: BTreeMap<Id, usize>,
    /// Files that are being moved; nobody has opened them since.
    moving: BTreeMap<Id, Moving>,
    /// Changed or ended since the last checkpoint.
    dirty: BTreeSet<u64>,
}

/// Whose a file is that is being moved: the epoch that is its mover's, and that one's session.
#[derive(Clone, Copy)]
struct Moving {
    epoch: u32,
    session: u64,
}

impl Sessions {
    pub(super) fn are_there(&self) -> bool {
        !self.live.is_empty()
    }

    pub(super) fn begin_move(&mut self, id: Id, epoch: u32, session: u64) {
        self.moving.insert(id, Moving { epoch, session });
    }

    pub(super) fn is_moving(&self, id: Id) -> Option<u32> {
        self.moving.get(&id).map(|moving| moving.epoch)
    }

    pub(super) fn end_move(&mut self, id: Id) {
        self.moving.remove(&id);
    }
}

#[derive(Default)]
struct Session {
    kept: Kept,
    /// How often each file is open. It keeps files alive, and gives nobody a right to them: a session
    /// has many users.
    opens: BTreeMap<Id, u64>,
}

record! {
    /// What of a session outlives the server.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub(super) struct Kept for () {
        /// What the client calls itself.
        pub(super) name: Name,
        /// Mutations below were answered, and the answer arrived.
        pub(super) floor: u64,
        /// Mutations done since, ascending.
        pub(super) done: List<Done>,
    }
}

record! {
    /// A mutation that was done.
    #[derive(Clone, Debug, PartialEq)]
    pub(super) struct Done for () {
        /// Its number.
        seq: u64,
        /// Its answer, unless there were too many.
        reply: Option<Reply>,
    }
}

impl Kept {
    fn find(&self, seq: u64) -> Option<&Done> {
        let index = self.done.0.binary_search_by_key(&seq, |done| done.seq).ok()?;
        Some(&self.done.0[index])
    }

    /// The client has the answers to everything below `floor`.
    fn forget_below(&mut self, floor: u64) {
        if floor > self.floor {
            self.floor = floor;
            let count = self.done.0.partition_point(|done| done.seq < floor);
            self.done.0.drain(..count);
        }
    }

    fn insert(&mut self, seq: u64, reply: Reply) {
        let index = self.done.0.partition_point(|done| done.seq < seq);
        self.done.0.insert(index, Done { seq, reply: Some(reply) });
        let count = self.done.0.len();
        if count > REPLIES_KEPT_MAX {
            self.done.0[count - 1 - REPLIES_KEPT_MAX].reply = None;
        }
        if count > MUTATIONS_REMEMBERED_MAX {
            self.forget_below(self.done.0[0].seq + 1);
        }
    }
}

impl<K: Kv> Store<K> {
    /// The sessions there are. After a start, those whose client does not come back within the
    /// grace must be ended with [`Store::session_expired`].
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let info = |(number, session): (&u64, &Session)| SessionInfo {
            session: *number,
            name: session.kept.name.clone(),
            open_files: session.opens.len(),
        };
        self.sessions.live.iter().map(info).collect()
    }

    /// A session's connection is lost and its grace begins, or another one has come in its place: what it
    /// waited for will be asked again.
    /// Opens and locks stay.
    pub fn session_lost(&mut self, session: u64) {
        let of_session = |(wait, waiting): (&WaitId, &super::Waiting)| {
            (waiting.session == session).then_some(*wait)
        };
        let waits: Vec<_> = self.waits.iter().filter_map(of_session).collect();
        waits.into_iter().for_each(|wait| self.cancel_wait(wait));
    }

    /// A session's grace is over: its opens, locks and waits go at once; what must be logged comes
    /// as work. An error is the map's, as in [`Applied::Fatal`].
    pub fn session_expired(&mut self, session: u64) -> Result<(), Errno> {
        self.end_volatile(session).map_err(Fault::into_errno)?;
        if self.sessions.live.contains_key(&session) {
            self.ask(Op::SessionOver { session });
        }
        Ok(())
    }

    /// The request behind a wait is not wanted any more. Its append stays done; its lock is not
    /// taken.
    pub fn cancel_wait(&mut self, wait: WaitId) {
        let Some(waiting) = self.waits.remove(&wait) else { return };
        if let Awaited::Lock = waiting.what {
            let granted = self.locks.cancel(waiting.id, wait);
            self.grant(granted);
        }
    }

    pub(super) fn bye(&mut self, session: u64) -> Result<Applied, Fault> {
        self.end_volatile(session)?;
        if self.sessions.live.contains_key(&session) {
            self.ask(Op::SessionOver { session });
        }
        Ok(done())
    }

    fn end_volatile(&mut self, session: u64) -> Result<(), Fault> {
        self.session_lost(session);
        self.sessions.moving.retain(|_, moving| moving.session != session);
        let granted = self.locks.end_session(session);
        self.grant(granted);
        self.set_opens(session, BTreeMap::new())
    }

    /// Opens a session, or comes back to one. A number that is not known any more gets a new one:
    /// the client then knows that what it had under way is lost.
    pub(super) fn hello(&mut self, request: &Request) -> Result<Applied, Fault> {
        let Op::Hello { session: asked, files, appends, name } = &request.op else {
            return refuse(Errno::EINVAL, "not a greeting");
        };
        if name.len() > NAME_BYTES_MAX {
            let text = format!("a client's name of {} bytes", name.len());
            return refuse(Errno::ENAMETOOLONG, format!("{text}, limit is {NAME_BYTES_MAX}"));
        }
        let known = self.sessions.live.contains_key(asked);
        if !known && self.sessions.live.len() >= SESSIONS_MAX {
            return refuse(Errno::EMFILE, format!("there are {SESSIONS_MAX} sessions already"));
        }
        let mut opens: BTreeMap<Id, u64> = BTreeMap::new();
        for id in &files.0 {
            if !self.dropping.contains(id) && self.exists(*id)? {
                *opens.entry(*id).or_default() += 1;
            }
        }
        let session = if known { *asked } else { self.new_session(name) };
        if known {
            // The connection before may not have been seen to end.
            self.session_lost(session);
            self.end_appends(session, &appends.0, request.now)?;
            self.rename_session(session, name);
        }
        if !self.replaying {
            self.set_opens(session, opens)?;
        }
        Ok(Applied::Reply(Reply::Session {
            session,
            known,
            boot: self.boot,
            machine: self.machine,
        }))
    }

    fn new_session(&mut self, name: &Name) -> u64 {
        let session = self.counters.session_next;
        self.counters.session_next += 1;
        let kept = Kept { name: name.clone(), ..Kept::default() };
        self.sessions.live.insert(session, Session { kept, ..Session::default() });
        self.sessions.dirty.insert(session);
        session
    }

    /// Another process may have taken the session over.
    fn rename_session(&mut self, session: u64, name: &Name) {
        let live = self.sessions.live.get_mut(&session);
        if let Some(session) = live.filter(|session| session.kept.name != *name) {
            session.kept.name = name.clone();
        } else {
            return;
        }
        self.sessions.dirty.insert(session);
    }

    /// The logged end of a session: its appends end, its replies go.
    pub(super) fn session_over(&mut self, session: u64, now: u64) -> Result<Applied, Fault> {
        self.end_appends(session, &[], now)?;
        self.end_volatile(session)?;
        if self.sessions.live.remove(&session).is_some() {
            self.sessions.dirty.insert(session);
        }
        Ok(done())
    }

    /// The stored answer, when the request was done before. Refuses the requests of a session that
    /// is over: nothing of it may take effect any more.
    pub(super) fn repeated(&mut self, request: &Request) -> Result<Option<Applied>, Fault> {
        if request.session == 0 || matches!(request.op, Op::Hello { .. }) {
            return Ok(None);
        }
        let kept = &self.live_session(request.session)?.kept;
        if request.seq == 0 {
            return Ok(None);
        }
        if request.seq < kept.floor {
            let (seq, floor) = (request.seq, kept.floor);
            return refuse(
                Errno::EPROTO,
                format!("mutation {seq} was answered, all below {floor}"),
            );
        }
        match kept.find(request.seq).map(|done| done.reply.clone()) {
            None => Ok(None),
            Some(Some(reply)) => self.answer_again(request, reply).map(Some),
            Some(None) => refuse(Errno::EIO, "it was done, but its answer is no longer kept"),
        }
    }

    fn answer_again(&mut self, request: &Request, reply: Reply) -> Result<Applied, Fault> {
        match (&request.op, &reply) {
            (
                Op::Create { open: true, .. } | Op::CreateWrite { .. } | Op::Make { .. },
                Reply::Created { inode, .. },
            ) if inode.is_regular() && self.exists(inode.id)? => {
                self.add_open(request.session, inode.id);
            }
            (Op::Tmpfile { .. }, Reply::Created { inode, .. }) if self.exists(inode.id)? => {
                self.add_open(request.session, inode.id);
            }
            (Op::Setattr { .. }, Reply::Node { inode }) => {
                let (id, epoch) = (inode.id, inode.epoch);
                if self.is_cut_pending(id, epoch)? {
                    return Ok(Applied::AfterCut { id, epoch, reply });
                }
            }
            _ => {}
        }
        Ok(Applied::Reply(reply))
    }

    /// Stores the answer of a mutation that was done.
    pub(super) fn remember(&mut self, request: &Request, applied: &Applied) {
        let Some(session) = self.sessions.live.get_mut(&request.session) else { return };
        if matches!(request.op, Op::Hello { .. }) {
            return;
        }
        session.kept.forget_below(request.seq_done);
        let reply = match applied {
            Applied::Reply(reply) | Applied::AfterCut { reply, .. } => Some(reply),
            Applied::Wait(_) | Applied::Fatal(_) => None,
        };
        if let Some(reply) = reply
            && request.seq >= session.kept.floor.max(1)
        {
            session.kept.insert(request.seq, reply.clone());
        }
        self.sessions.dirty.insert(request.session);
    }

    /// Opens a file: from now on it outlives its last name.
    pub(super) fn open_file(
        &mut self,
        request: &Request,
        id: Id,
        wanted: u8,
    ) -> Result<Applied, Fault> {
        if request.session != 0 {
            self.live_session(request.session)?;
        }
        let inode = self.stored(id)?.inode;
        if inode.nlink == 0 && !self.is_open(id) {
            return refuse(Errno::ESTALE, format!("file {id} was unlinked"));
        }
        if inode.type_bits() == mode::SYMLINK {
            return refuse(Errno::ELOOP, format!("file {id} is a symbolic link"));
        }
        if inode.is_dir() && wanted & access::WRITE != 0 {
            return refuse(Errno::EISDIR, format!("file {id} is a directory"));
        }
        check(&request.caller, &inode, wanted)?;
        self.add_open(request.session, id);
        Ok(super::node(inode))
    }

    /// One open less. More releases than opens are no error: Hello may have come between.
    pub(super) fn release(&mut self, session: u64, id: Id) -> Result<Applied, Fault> {
        let opens = self.sessions.live.get_mut(&session).map(|session| &mut session.opens);
        let Some(opens) = opens else { return Ok(done()) };
        if let Some(count) = opens.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                opens.remove(&id);
                self.closed(id)?;
            }
        }
        Ok(done())
    }

    /// The same of many.
    pub(super) fn close(&mut self, session: u64, ids: &[Id]) -> Result<Applied, Fault> {
        ids.iter().try_for_each(|&id| self.release(session, id).map(drop))?;
        Ok(done())
    }

    pub(super) fn add_open(&mut self, session: u64, id: Id) {
        if self.replaying {
            return;
        }
        self.sessions.moving.remove(&id);
        let Some(session) = self.sessions.live.get_mut(&session) else { return };
        let count = session.opens.entry(id).or_default();
        if *count == 0 {
            *self.sessions.openers.entry(id).or_default() += 1;
        }
        *count += 1;
    }

    /// Whether anybody has the file open.
    pub(super) fn is_open(&self, id: Id) -> bool {
        self.sessions.openers.contains_key(&id)
    }

    pub(super) fn must_be_live(&self, session: u64) -> Result<(), Fault> {
        self.live_session(session).map(|_| ())
    }

    /// Replaces a session's opens. The new ones count before the old ones go, so that a file in
    /// both is open throughout.
    fn set_opens(&mut self, session: u64, opens: BTreeMap<Id, u64>) -> Result<(), Fault> {
        let Some(session) = self.sessions.live.get_mut(&session) else { return Ok(()) };
        for id in opens.keys() {
            self.sessions.moving.remove(id);
            *self.sessions.openers.entry(*id).or_default() += 1;
        }
        let old = std::mem::replace(&mut session.opens, opens);
        old.into_keys().try_for_each(|id| self.closed(id))
    }

    /// One session less has the file open.
    fn closed(&mut self, id: Id) -> Result<(), Fault> {
        let Some(count) = self.sessions.openers.get_mut(&id) else { return Ok(()) };
        *count -= 1;
        if *count == 0 {
            self.sessions.openers.remove(&id);
            self.drop_if_unused(id)?;
        }
        Ok(())
    }

    pub(super) fn exists(&self, id: Id) -> Result<bool, Fault> {
        Ok(self.kv.get(&keys::inode(id)).map_err(Fault::Broken)?.is_some())
    }

    fn live_session(&self, session: u64) -> Result<&Session, Fault> {
        match self.sessions.live.get(&session) {
            Some(session) => Ok(session),
            None => refuse(Errno::ESTALE, format!("session {session} is over")),
        }
    }

    pub(super) fn load_sessions(&mut self) -> Result<(), Fault> {
        for (rest, kept) in self.rows::<Kept>(b"e", b"e", usize::MAX)? {
            let session = Session { kept, ..Session::default() };
            self.sessions.live.insert(keys::number_of(&rest)?, session);
        }
        Ok(())
    }

    pub(super) fn save_sessions(&mut self) -> Result<(), Fault> {
        for number in std::mem::take(&mut self.sessions.dirty) {
            let key = keys::session(number);
            match self.sessions.live.get(&number) {
                Some(session) => {
                    keys::put_row(&mut self.kv, &key, &session.kept).map_err(Fault::Broken)?;
                }
                None => {
                    self.delete(&key)?;
                }
            }
        }
        Ok(())
    }
}
