//! Leases on the way: what is asked and answered, and what the server takes back.
//!
//! The server cannot call a client, so the client keeps one request waiting there: its answer names
//! leases that are over. Before the next such request, which acknowledges that, all is forgotten
//! here and wherever it was passed on ([`Forget`]).

use super::{Answer, Session, call, unexpected};
use crate::client::BoxFuture;
use crate::client::cache::{Cache, Sent};
use crate::ops::{Caller, Id, Lease, Op, Reply};
use covey_ninep::client::CallError;
use covey_ninep::tree::Errno;
use futures_util::future::{AbortHandle, Abortable};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Makes others forget what they were told under these leases, before it completes.
pub type Forget = Box<dyn Fn(&[Lease]) -> BoxFuture<()> + Send + Sync>;

/// How often a server is asked again that does not want to be listened to.
const PAUSE: Duration = Duration::from_secs(1);

/// How soon what could not be said is said again.
const TELL_AGAIN: Duration = Duration::from_millis(1);

/// The task that listens; it ends with the session.
#[derive(Default)]
pub(super) struct Listening {
    task: Mutex<Option<AbortHandle>>,
    forget: Arc<OnceLock<Forget>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        task.iter().for_each(AbortHandle::abort);
    }
}

/// A request that the cache knows to be on its way.
pub(super) struct OnTheWay<'a> {
    cache: &'a Cache,
    sent: Option<Sent>,
}

impl<'a> OnTheWay<'a> {
    pub fn new(cache: &'a Cache, op: &Op, now: Instant) -> OnTheWay<'a> {
        OnTheWay::begun(cache, cache.sending(op, now))
    }

    /// One that the cache was told of already.
    pub fn begun(cache: &'a Cache, sent: Sent) -> OnTheWay<'a> {
        OnTheWay { cache, sent: Some(sent) }
    }

    /// The files that may be gone when it is done, where that is known.
    pub fn loses(&self) -> Option<&[Id]> {
        self.sent.as_ref()?.loses.as_deref()
    }

    /// It was not sent after all.
    pub fn not_sent(mut self) -> Option<Sent> {
        self.sent.take()
    }

    pub fn arrived(mut self, op: &Op, answer: &Answer, now: Instant) {
        if let Some(sent) = self.sent.take() {
            self.cache.learn(sent, op, answer, now);
        }
    }
}

impl Drop for OnTheWay<'_> {
    fn drop(&mut self) {
        if let Some(sent) = self.sent.take() {
            self.cache.failed(sent);
        }
    }
}

impl Session {
    /// Has `forget` called for every lease that is taken back. The first call counts.
    pub fn on_revoke(&self, forget: Forget) {
        let _ = self.listening.forget.set(forget);
    }

    /// Begins to listen.
    pub(super) fn listen(&self) {
        let (handle, registration) = AbortHandle::new_pair();
        let mut task = self.listening.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.replace(handle).is_some() {
            return;
        }
        let listener = Listener {
            wire: self.wire.clone(),
            late: self.late.clone(),
            forget: self.listening.forget.clone(),
        };
        let net = self.wire.net.clone();
        let listening = async move {
            loop {
                if listener.listen_once().await.is_err() {
                    net.sleep(PAUSE).await;
                }
            }
        };
        let listening = Abortable::new(listening, registration);
        self.wire.net.spawn(Box::pin(async move {
            let _ = listening.await;
        }));
    }
}

struct Listener {
    wire: Arc<super::Wire>,
    late: Arc<super::Late>,
    forget: Arc<OnceLock<Forget>>,
}

impl Listener {
    /// Listens on one connection until it is lost.
    async fn listen_once(&self) -> Result<(), Errno> {
        let (_, conn) = self.wire.link.conn(self.wire.link.now()).await?;
        let mut acked = 0;
        loop {
            let (request, _) =
                self.wire.memory.request(0, &Caller::default(), Op::Revokes { acked });
            match call(&conn, &request).await {
                Ok(Answer { reply: Reply::Revoked { number, leases }, .. }) => {
                    self.wire.cache.revoke(number, &leases.0);
                    let made = self.late.revoke(number, &leases.0).await;
                    let over = [leases.0, made].concat();
                    // Before it is acknowledged: a file that is open here lives on.
                    while !self.wire.memory.say_opens(&conn) && !conn.is_lost() {
                        self.wire.net.sleep(TELL_AGAIN).await;
                    }
                    if let Some(forget) = self.forget.get() {
                        forget(&over).await;
                    }
                    acked = number;
                }
                Err(CallError::Lost(_)) => return Ok(()),
                Err(CallError::Errno(error)) => return Err(error),
                Ok(Answer { reply: Reply::Error { code, .. }, .. }) => return Err(code.into()),
                Ok(Answer { reply, .. }) => return Err(unexpected(&reply).into()),
                Err(_) => return Ok(()),
            }
        }
    }
}
