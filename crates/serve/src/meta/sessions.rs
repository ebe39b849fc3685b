//! Which connection speaks for a session, and for how long a silent session lives.
//!
//! A session belongs to the connection that said Hello last. What its client sent on an older one,
//! and gave up, may still arrive: it is refused, or a Release from before would close what the Hello
//! has just told to be open. A session without a connection ends after [`SESSION_GRACE`].
//!
//! After a start the sessions of the store are expected back. Until they are, and for a moment
//! longer, new locks wait: their clients may hold locks that this server has yet to hear of.

use super::super::watch;
use super::Meta;
use covey_io::task;
use covey_ninep::tree::{Errno, Result};
use covey_stripe::ops::{Id, Op, Reply, Request};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// How long a session outlives its last connection.
pub const SESSION_GRACE: Duration = Duration::from_secs(10);

/// Opens of one session that a Hello may tell of.
const OPENS_MAX: usize = 4 << 20;

/// How long a client that came back has to tell its locks.
const TELL_LOCKS: Duration = Duration::from_secs(1);

/// One attach of a client; when its last fid is gone, so is the connection.
pub struct Connection {
    meta: Weak<Meta>,
    /// Attaches are numbered in the order they came.
    number: u64,
    session: Cell<u64>,
    /// Files that are open, for the Hello to come.
    told: RefCell<Vec<Id>>,
    /// Its numbers.
    pub(super) client: Rc<watch::Client>,
}

/// Sessions and the connections that speak for them.
#[derive(Default)]
pub struct Sessions {
    attaches: u64,
    /// The connection of each session that has one.
    owners: BTreeMap<u64, u64>,
    /// When each session without a connection was left, by a number that no other time has: a watch is
    /// for one time only.
    departures: BTreeMap<u64, u64>,
    departure_last: u64,
    /// Sessions from before the start that have not come back.
    expected: BTreeSet<u64>,
    /// Sessions whose end is decided and not yet logged.
    ending: BTreeSet<u64>,
    has_ended: Rc<Notify>,
    is_lock_grace: bool,
    lock_grace_over: Rc<Notify>,
}

impl Connection {
    /// A new attach.
    pub fn new(meta: &Rc<Meta>) -> Connection {
        let mut sessions = meta.sessions.borrow_mut();
        sessions.attaches += 1;
        let client = meta.watch.client("no session yet");
        let (meta, number) = (Rc::downgrade(meta), sessions.attaches);
        Connection { meta, number, session: Cell::new(0), told: RefCell::default(), client }
    }

    /// Keeps what the next Hello does not list itself.
    pub(super) fn tell_open(&self, files: &[Id]) -> Result<Reply> {
        let mut told = self.told.borrow_mut();
        if told.len() + files.len() > OPENS_MAX {
            let what = format!("more than {OPENS_MAX} open files of one client");
            return Err(Errno::because(Errno::EMFILE, what));
        }
        told.extend_from_slice(files);
        Ok(Reply::Done {})
    }

    /// A Hello with all that is open.
    pub(super) fn complete(&self, mut request: Request) -> Request {
        if let Op::Hello { files, .. } = &mut request.op {
            files.0.extend(self.told.take());
        }
        request
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(meta) = self.meta.upgrade() {
            meta.disconnected(self.number, self.session.get());
        }
    }
}

impl Meta {
    /// Refuses what comes on a connection that does not speak for the request's session.
    pub(super) fn fence(&self, connection: &Connection, request: &Request) -> Result<()> {
        let late = || Errno::because(Errno::ESTALE, "the session has a newer connection");
        let owner = |session| self.sessions.borrow().owners.get(&session).copied();
        match &request.op {
            Op::Hello { session: 0, .. } | Op::StillOpen { .. } => Ok(()),
            Op::Hello { session, .. } => match owner(*session) {
                Some(owner) if owner > connection.number => Err(late()),
                _ => Ok(()),
            },
            _ if request.session == 0 => Ok(()),
            _ if owner(request.session) == Some(connection.number) => Ok(()),
            _ => Err(late()),
        }
    }

    /// Refuses what is done for a session on a connection that does not speak for it.
    pub(super) fn must_speak_for(&self, connection: &Connection, session: u64) -> Result<()> {
        if self.sessions.borrow().owners.get(&session) == Some(&connection.number) {
            Ok(())
        } else {
            Err(Errno::because(Errno::ESTALE, "the session has a newer connection"))
        }
    }

    /// A Hello was done: from now on its connection speaks for the session, and the older one is out.
    pub(super) fn greeted(self: &Rc<Self>, connection: &Connection, reply: &Reply) {
        if let Reply::Session { session, .. } = *reply {
            let before = connection.session.replace(session);
            if before != session {
                self.disconnected(connection.number, before);
            }
            let all_back = {
                let mut sessions = self.sessions.borrow_mut();
                sessions.owners.insert(session, connection.number);
                sessions.expected.remove(&session);
                sessions.departures.remove(&session);
                sessions.is_lock_grace && sessions.expected.is_empty()
            };
            if all_back {
                self.end_lock_grace_after(TELL_LOCKS);
                let meta = self.clone();
                task::spawn(async move { meta.with_store(Meta::opens_are_known) });
            }
        }
    }

    /// The sessions of the store, after a start.
    pub(super) fn await_sessions(self: &Rc<Self>, expected: impl Iterator<Item = u64>) {
        let expected: BTreeSet<u64> = expected.collect();
        expected.iter().for_each(|&session| self.watch_session(session));
        if expected.is_empty() {
            return;
        }
        let mut sessions = self.sessions.borrow_mut();
        sessions.expected = expected;
        sessions.is_lock_grace = true;
        drop(sessions);
        self.end_lock_grace_after(SESSION_GRACE);
    }

    /// From now on a client that comes back waits until its session is over, and gets another.
    pub(super) fn begin_end(&self, session: u64) {
        self.sessions.borrow_mut().ending.insert(session);
    }

    pub(super) fn end_ends(&self, session: u64) {
        let mut sessions = self.sessions.borrow_mut();
        sessions.ending.remove(&session);
        sessions.has_ended.notify_waiters();
    }

    pub(super) fn is_session_ending(&self, session: u64) -> bool {
        self.sessions.borrow().ending.contains(&session)
    }

    pub(super) async fn session_is_over(&self, session: u64) {
        while self.is_session_ending(session) {
            let ended = self.sessions.borrow().has_ended.clone();
            ended.notified().await;
        }
    }

    pub(super) fn is_lock_grace(&self) -> bool {
        self.sessions.borrow().is_lock_grace
    }

    pub(super) async fn lock_grace_over(&self) {
        while self.is_lock_grace() {
            let over = self.sessions.borrow().lock_grace_over.clone();
            over.notified().await;
        }
    }

    fn end_lock_grace_after(self: &Rc<Self>, time: Duration) {
        let meta = self.clone();
        task::spawn(async move {
            task::sleep(time).await;
            let mut sessions = meta.sessions.borrow_mut();
            sessions.is_lock_grace = false;
            sessions.lock_grace_over.notify_waiters();
        });
    }

    fn disconnected(self: &Rc<Self>, connection: u64, session: u64) {
        let mut sessions = self.sessions.borrow_mut();
        if sessions.owners.get(&session) != Some(&connection) {
            return;
        }
        sessions.owners.remove(&session);
        drop(sessions);
        self.leases.leave(session);
        self.watch_session(session);
    }

    /// Ends the session after the grace, unless its client is back by then.
    fn watch_session(self: &Rc<Self>, session: u64) {
        let meta = self.clone();
        let departure = {
            let mut sessions = self.sessions.borrow_mut();
            sessions.departure_last += 1;
            let number = sessions.departure_last;
            sessions.departures.insert(session, number);
            number
        };
        task::spawn(async move {
            task::sleep(SESSION_GRACE).await;
            {
                let mut sessions = meta.sessions.borrow_mut();
                if sessions.departures.get(&session) != Some(&departure)
                    || sessions.owners.contains_key(&session)
                {
                    return;
                }
                sessions.departures.remove(&session);
            }
            meta.with_store(move |meta| {
                if meta.session_list().iter().any(|info| info.session == session) {
                    meta.counters.sessions_expired.add(1);
                    let asked = meta.store_mut().session_expired(session);
                    meta.do_work(asked);
                }
            });
        });
    }
}
