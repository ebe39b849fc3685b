//! The initiator: commands to a target, over connections that may come and go.
//!
//! A [`Session`] takes commands and outlives its connections; a [`Connection`] is the
//! [`Machine`](covey_wire::Machine) of one of them. Who runs it connects to one of the target's portals, runs a connection, and
//! does so again, perhaps at another portal, when it has ended. What had no answer is then sent again, in its old order: the
//! next login is of the same initiator port, so the target ends whatever was left of the old one before (RFC 7143, 6.3.5), and
//! nothing is executed late. A command that must not be repeated fails instead.
//!
//! ```text
//!   your code ── command(Request) ──► Session ──► Connection ──► bytes        read data lands in the request's
//!             ◄─────── Call ─────────    │    ◄──  (machine) ◄──              own buffer, without another copy
//!                                        └──► the next Connection
//! ```

mod commands;
mod connection;
mod login;

pub use crate::chap::Credentials;
pub use connection::Connection;

use crate::negotiate::Parameters;
use bytes::BytesMut;
use covey_wire::{Bytes, Payload};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// How to log in, and to what.
#[derive(Clone, Debug)]
pub struct Config {
    /// This initiator's name.
    pub initiator: String,
    /// The target's name; none for a discovery session.
    pub target: Option<String>,
    /// This side's part of the session's identity. Nobody else of this name may have the same.
    pub isid: [u8; 6],
    /// What proves to the target who we are.
    pub chap: Option<Credentials>,
    /// What the target must prove to know.
    pub mutual: Option<Credentials>,
    /// What is proposed.
    pub parameters: Parameters,
}

/// One SCSI command.
#[derive(Debug)]
pub struct Request {
    /// The unit, as on the wire: the number in the second byte.
    pub lun: u64,
    /// The command descriptor block.
    pub cdb: [u8; 16],
    /// Data for the target, in memory.
    pub data_out: Payload,
    /// Where data of the target goes, as much of it as the buffer is long.
    pub data_in: BytesMut,
    /// Whether it may be executed twice, when nobody knows whether it was once.
    pub is_repeatable: bool,
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Done {
    /// The SCSI status.
    pub status: u8,
    /// Sense data.
    pub sense: Bytes,
    /// The buffer of the request, cut to what came.
    pub data_in: BytesMut,
}

/// Why a command has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// The session has been closed, for this reason.
    Closed(String),
    /// The connection was lost, and the command must not be sent again: nobody knows whether it was executed.
    Unknown,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::Closed(why) => write!(f, "the session is closed: {why}"),
            Lost::Unknown => f.write_str("the connection was lost while the command was under way"),
        }
    }
}

impl std::error::Error for Lost {}

/// What a login came to that cannot go on here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The target is at this address, `HOST:PORT,GROUP`, for now or for good.
    Elsewhere(String),
    /// The target refused, with this status (11.13.5): there is no use in trying again.
    Refused(u16),
    /// The target is not who it must be.
    Impostor,
}

/// A session with a target: takes commands while connections come and go.
#[derive(Clone)]
pub struct Session {
    config: Arc<Config>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// Commands that have not been sent, or are to be sent again.
    queue: VecDeque<Job>,
    closed: Option<String>,
    refusal: Option<Refusal>,
    /// The connection that is logged in.
    waker: Option<Waker>,
    is_logged_in: bool,
    wants_logout: bool,
    /// Who waits for a login.
    watchers: Vec<Waker>,
    targets: Option<Vec<Found>>,
    landed: u64,
    copied: u64,
    answered: u64,
}

/// A target that discovery has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Its addresses, each `HOST:PORT,GROUP`.
    pub addresses: Vec<String>,
}

/// A command on its way, and who waits for it.
struct Job {
    request: Request,
    slot: Arc<Mutex<Slot>>,
    /// Whether it has been sent before.
    was_sent: bool,
}

#[derive(Default)]
struct Slot {
    result: Option<Result<Done, Lost>>,
    waker: Option<Waker>,
    is_given_up: bool,
}

impl Job {
    fn finish(self, result: Result<Done, Lost>) {
        let mut slot = lock(&self.slot);
        slot.result = Some(result);
        slot.waker.take().into_iter().for_each(Waker::wake);
    }
}

/// The answer to a command. Dropped before it has come, a command that was not sent never is.
pub struct Call(Arc<Mutex<Slot>>);

impl Future for Call {
    type Output = Result<Done, Lost>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.0);
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        lock(&self.0).is_given_up = true;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// A session that has no connection yet.
    pub fn new(config: Config) -> Session {
        Session { config: Arc::new(config), shared: Arc::default() }
    }

    /// Sends a command, now or when there is a connection.
    pub fn command(&self, request: Request) -> Call {
        let slot = Arc::<Mutex<Slot>>::default();
        let job = Job { request, slot: slot.clone(), was_sent: false };
        let mut shared = self.shared();
        match shared.closed.clone() {
            Some(why) => {
                drop(shared);
                job.finish(Err(Lost::Closed(why)));
            }
            None => {
                shared.queue.push_back(job);
                shared.waker.take().into_iter().for_each(Waker::wake);
            }
        }
        Call(slot)
    }

    /// Ends the session in good order: the target is told, then the connection ends.
    pub fn log_out(&self) {
        let mut shared = self.shared();
        shared.wants_logout = true;
        shared.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Ends the session: what waits, and what comes, fails for this reason.
    pub fn close(&self, why: &str) {
        let mut shared = self.shared();
        shared.closed = Some(why.to_owned());
        shared.waker.take().into_iter().for_each(Waker::wake);
        shared.watchers.drain(..).for_each(Waker::wake);
        let jobs = std::mem::take(&mut shared.queue);
        drop(shared);
        jobs.into_iter().for_each(|job| job.finish(Err(Lost::Closed(why.to_owned()))));
    }

    /// Whether it was closed, and why.
    pub fn closed(&self) -> Option<String> {
        self.shared().closed.clone()
    }

    /// What the last login came to, if it cannot go on here. Taken once.
    pub fn take_refusal(&self) -> Option<Refusal> {
        self.shared().refusal.take()
    }

    /// Completes when a connection is logged in, or the session is closed: whether one is.
    pub fn logged_in(&self) -> impl Future<Output = bool> + use<> {
        let shared = self.shared.clone();
        std::future::poll_fn(move |context| {
            let mut shared = lock(&shared);
            if shared.is_logged_in || shared.closed.is_some() {
                return Poll::Ready(shared.is_logged_in);
            }
            shared.watchers.push(context.waker().clone());
            Poll::Pending
        })
    }

    /// The targets that a discovery session has found, once it has.
    pub fn targets(&self) -> Option<Vec<Found>> {
        self.shared().targets.clone()
    }

    /// Bytes of data that were received where they belong, and bytes that were copied there.
    pub fn placed(&self) -> (u64, u64) {
        let shared = self.shared();
        (shared.landed, shared.copied)
    }

    /// How many commands had an answer, other than a unit attention, on connections that have ended.
    pub fn answered(&self) -> u64 {
        self.shared().answered
    }

    /// Whether commands wait for a connection.
    pub fn is_waiting(&self) -> bool {
        !self.shared().queue.is_empty()
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}
