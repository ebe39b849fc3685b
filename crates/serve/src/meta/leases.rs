//! Leases, served: changes wait for those who remember what they change.
//!
//! The rules are in `covey_stripe::meta::lease`; here they meet the clock and the connections.

use super::sessions::Connection;
use super::{Meta, finish};
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::meta::access;
use covey_stripe::meta::lease::{Claim, LEASE_TIME, Leases, told};
use covey_stripe::ops::{Answer, Id, Lease, Op, Reply, Request, set, step};
use covey_wire::List;
use std::cell::RefCell;
use std::rc::Rc;
use tokio::sync::Notify;

/// So much may be sessions' alone before they have to ask for more.
const ALONE_MAX: usize = 2048;

/// The table, and who waits for it to change.
pub struct LeaseTable {
    leases: RefCell<Leases>,
    /// Something was given back.
    given_back: Notify,
    /// Something is to be told.
    to_tell: Notify,
}

impl LeaseTable {
    /// After a start. Where clients may hold leases from before, changes wait until those are over.
    pub fn new(boot: u64, has_leases: bool) -> LeaseTable {
        let quiet_until = has_leases.then(|| task::now() + LEASE_TIME);
        LeaseTable {
            leases: RefCell::new(Leases::new(boot, quiet_until)),
            given_back: Notify::new(),
            to_tell: Notify::new(),
        }
    }

    /// A session's connection is lost.
    pub fn leave(&self, session: u64) {
        self.leases.borrow_mut().leave(session);
    }

    /// Whether so much is somebody's alone that nobody is left alone with more unasked: a listing looks at all of it.
    pub fn are_many_alone(&self) -> bool {
        self.leases.borrow().alone_count() >= ALONE_MAX
    }

    /// A session is over.
    pub fn end_session(&self, session: u64) {
        if self.leases.borrow_mut().end_session(session) {
            self.given_back.notify_waiters();
        }
    }

    /// Grants what an answer tells of; 0 when it is not to be remembered.
    /// `is_moving`: who opens such a file has to say so.
    pub fn grant(
        &self,
        session: u64,
        op: &Op,
        reply: &Reply,
        is_moving: impl Fn(u64) -> bool,
    ) -> u64 {
        let mut leases = self.leases.borrow_mut();
        if session == 0 || !leases.listens(session) {
            0
        } else {
            match told(op, reply) {
                told if told.is_empty() || told.iter().any(|lease| is_moving(lease.id)) => 0,
                told => leases.grant(session, &told, task::now()),
            }
        }
    }
}

impl Meta {
    pub(super) fn grant(&self, session: u64, op: &Op, reply: &Reply) -> u64 {
        let store = self.store_mut();
        let grant = self.leases.grant(session, op, reply, |id| store.is_moving(id));
        let mut leases = self.leases.leases.borrow_mut();
        match (op, reply) {
            (Op::Create { access, .. }, Reply::Created { inode, created: true })
                if access & access::ALONE != 0 && grant > 0 && inode.is_regular() =>
            {
                leases.leave_alone(session, inode.id);
            }
            (Op::Make { id, last: false, .. }, Reply::Created { .. }) if grant > 0 => {
                leases.leave_alone(session, *id);
            }
            // Its leases were taken back from all others, or it is new; and nothing was granted since.
            (Op::Alone { .. } | Op::MakeDir { .. }, Reply::Alone { dir, stripings, .. })
                if grant > 0 && !stripings.0.is_empty() =>
            {
                leases.leave_alone(session, dir.id);
            }
            (Op::Take { dir, ids }, Reply::Node { .. }) if grant > 0 => {
                let taken = [*dir].into_iter().chain(ids.0.iter().copied());
                taken.for_each(|id| leases.leave_alone(session, id));
            }
            (Op::Amend { id, last: true, .. }, _) => leases.open_to_all(session, *id),
            // Who removes one of a file's names has said all of it.
            (Op::Names { steps, ids, .. }, Reply::Steps { .. }) => {
                let named = steps.0.iter().zip(&ids.0);
                let gone = named.filter(|(step, _)| **step != step::LINK);
                gone.for_each(|(_, id)| leases.open_to_all(session, *id));
            }
            _ => {}
        }
        grant
    }

    /// Takes out of an answer what it says beside what was asked of files that others are alone with.
    pub(super) fn leave_out(&self, session: u64, reply: &mut Reply) {
        let Reply::Found { entries, contents, .. } = reply else { return };
        let leases = self.leases.leases.borrow();
        if leases.is_any_alone() {
            let now = task::now();
            let is_alone = |id| leases.is_alone_elsewhere(session, id, now);
            for entry in entries.0.iter_mut().filter(|entry| is_alone(entry.id)) {
                entry.inode = None;
            }
            contents.0.retain(|content| !is_alone(content.id));
        }
    }

    /// What a request takes back before it is applied: leases on what it changes, and the files that
    /// it asks for and others are alone with.
    fn taken_back(&self, session: u64, op: &Op) -> Result<Vec<Lease>> {
        let mut taken = if op.takes_leases() { self.store_mut().changes(op)? } else { Vec::new() };
        let (leases, now) = (self.leases.leases.borrow(), task::now());
        if !leases.is_any_alone() {
            return Ok(taken);
        }
        let content = |id| Lease { id, place: false };
        if let Op::Readdir { id: dir, plus: true, .. } | Op::ListContents { id: dir, .. } = op {
            // Which files it will tell of is not known before.
            let (store, alone) = (self.store_mut(), leases.alone_elsewhere(session, now));
            taken.extend(alone.filter(|&id| store.may_list(*dir, id)).map(content));
        } else if matches!(op, Op::SetQuota { .. } | Op::MakeProject { .. }) {
            // Where quotas are counted nobody makes files without asking.
            taken.extend(leases.alone_elsewhere(session, now).map(content));
        } else {
            let asked = self.store_mut().asks_for(op)?.into_iter();
            let alone = asked.filter(|&id| leases.is_alone_elsewhere(session, id, now));
            taken.extend(alone.map(content));
        }
        Ok(taken)
    }

    /// What a session has done to a file that it is alone with is done whatever the version of that.
    pub(super) fn allow_amendment(&self, request: &mut Request) {
        if let Op::Amend { id, mask, .. } = &mut request.op
            && self.leases.leases.borrow().is_alone(request.session, *id, task::now())
        {
            *mask &= !set::AT_VERSION;
        }
    }

    /// Whether a request says what its session has done in a directory that it is alone with: a store that has become full since
    /// has some room for that.
    pub(super) fn is_said_late(&self, request: &Request) -> bool {
        let (leases, now) = (self.leases.leases.borrow(), task::now());
        let is_alone = |id: &Id| leases.is_alone(request.session, *id, now);
        match &request.op {
            Op::Names { dirs, steps, ids, names } => {
                let is_even = [dirs.0.len(), ids.0.len(), names.0.len()] == [steps.0.len(); 3];
                is_even && request.op.grows() && dirs.0.iter().chain(&ids.0).all(is_alone)
            }
            Op::Make { parent: id, .. } | Op::Amend { id, .. } => is_alone(id),
            _ => false,
        }
    }

    /// Takes back all that sessions are alone with: the store has little room left, and what they do there from now on has to
    /// be refused at once when there is none.
    pub(super) fn leave_nobody_alone(self: &Rc<Self>) {
        let mut claims = Claims::begin(self, 0);
        let alone: Vec<Lease> = {
            let leases = self.leases.leases.borrow();
            let alone = leases.alone_elsewhere(0, task::now());
            alone.map(|id| Lease { id, place: false }).collect()
        };
        if claims.add(&alone) {
            task::spawn(async move { claims.wait().await });
        }
    }

    /// Whether a request has to take leases back before it may be applied: see
    /// [`Meta::request_in_turn`].
    pub(super) fn must_claim(&self, request: &Request) -> bool {
        let (leases, now) = (self.leases.leases.borrow(), task::now());
        let is_alone = |id: &Id| leases.is_alone(request.session, *id, now);
        match &request.op {
            // Whoever waits for the file waits for this.
            Op::Amend { id, .. } | Op::Make { parent: id, .. } if is_alone(id) => false,
            Op::Remove { dir, ids, .. } if is_alone(dir) && ids.0.iter().all(is_alone) => false,
            Op::Names { dirs, ids, .. } if dirs.0.iter().chain(&ids.0).all(is_alone) => false,
            op if op.takes_leases() => leases.concern_others(request.session, now),
            _ => leases.is_any_alone() && leases.concern_others(request.session, now),
        }
    }

    /// Applies a request when nobody else remembers what it changes: at once where nobody does now,
    /// so that it is done before what its client has sent after it. The store must be here.
    pub(super) fn request_in_turn(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        request: Request,
    ) -> Outcome<Answer> {
        let mut claims = Claims::begin(self, request.session);
        let taken = self.taken_back(request.session, &request.op);
        match taken.map(|changes| claims.add(&changes)) {
            Err(error) => Outcome::Now(Err(error)),
            Ok(false) => {
                let outcome = self.applied(connection, request);
                drop(claims);
                outcome
            }
            Ok(true) => {
                let (meta, connection) = (self.clone(), connection.clone());
                Outcome::later(async move {
                    claims.wait().await;
                    meta.take_back(&mut claims, &request.op).await?;
                    // Its client may have come back on another connection, and gone on without it.
                    meta.fence(&connection, &request)?;
                    if let Op::Hello { session, .. } = request.op
                        && meta.is_session_ending(session)
                    {
                        // Its end waits for this.
                        drop(claims);
                        meta.session_is_over(session).await;
                        meta.store_is_here().await;
                        return finish(meta.applied(&connection, request)).await;
                    }
                    // Applied at once: the store is here.
                    let outcome = meta.applied(&connection, request);
                    drop(claims);
                    finish(outcome).await
                })
            }
        }
    }

    fn applied(self: &Rc<Self>, connection: &Connection, request: Request) -> Outcome<Answer> {
        match request.op {
            Op::Hello { .. } => self.hello(connection, request),
            _ => self.request(request),
        }
    }

    /// Completes with the store here, and nobody else holding a lease on what the operation changes.
    pub(super) async fn claim(self: &Rc<Self>, session: u64, op: &Op) -> Result<Claims> {
        let mut claims = Claims::begin(self, session);
        self.take_back(&mut claims, op).await?;
        Ok(claims)
    }

    async fn take_back(&self, claims: &mut Claims, op: &Op) -> Result<()> {
        loop {
            self.store_is_here().await;
            // The names may lead elsewhere by now.
            let taken = self.taken_back(claims.session(), op)?;
            if !claims.add(&taken) {
                return Ok(());
            }
            claims.wait().await;
        }
    }

    /// A session hears which leases are taken back; it has forgotten those of `acked`.
    pub(super) fn revokes(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        session: u64,
        acked: u64,
    ) -> Outcome<Reply> {
        if session == 0 {
            return Outcome::Now(Err(Errno::because(Errno::EINVAL, "only sessions hold leases")));
        }
        if self.leases.leases.borrow_mut().listen(session, acked) {
            self.leases.given_back.notify_waiters();
        }
        let (meta, connection) = (self.clone(), Rc::downgrade(connection));
        Outcome::later(async move {
            loop {
                let told = meta.leases.to_tell.notified();
                let connection = connection.upgrade().ok_or(Errno::ESTALE)?;
                meta.must_speak_for(&connection, session)?;
                drop(connection);
                let revocation = meta.leases.leases.borrow_mut().take_revocation(session);
                if let Some((number, leases)) = revocation {
                    return Ok(Reply::Revoked { number, leases: List(leases) });
                }
                told.await;
            }
        })
    }
}

/// What an operation has taken back; dropped when it is applied, or given up.
pub(super) struct Claims {
    meta: Rc<Meta>,
    claim: Option<Claim>,
}

impl Claims {
    fn begin(meta: &Rc<Meta>, session: u64) -> Claims {
        let claim = meta.leases.leases.borrow_mut().begin_claim(session);
        Claims { meta: meta.clone(), claim: Some(claim) }
    }

    /// Takes back what it has not yet; whether there is anything to wait for.
    fn add(&mut self, changes: &[Lease]) -> bool {
        let (table, Some(claim)) = (&self.meta.leases, &mut self.claim) else { return false };
        let waits = table.leases.borrow_mut().add(claim, changes, task::now());
        if waits {
            table.to_tell.notify_waiters();
        }
        waits
    }

    fn session(&self) -> u64 {
        self.claim.as_ref().map_or(0, Claim::session)
    }

    async fn wait(&self) {
        let (table, Some(claim)) = (&self.meta.leases, &self.claim) else { return };
        loop {
            let changed = table.given_back.notified();
            let now = task::now();
            let until = table.leases.borrow().in_the_way(claim, now);
            let Some(until) = until else { return };
            task::timeout(until.saturating_duration_since(now), changed).await;
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        let table = &self.meta.leases;
        table.leases.borrow_mut().end_claim(claim, task::now());
        table.given_back.notify_waiters();
    }
}
