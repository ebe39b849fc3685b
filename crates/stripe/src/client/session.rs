//! The client's side of the metadata server: calls that survive a lost connection.
//!
//! A mutation carries the session and a number; when the connection is lost before its answer came it
//! is sent again on the next one, and the server answers what it answered the first time. A
//! server that restarted has forgotten opens and locks: both are told again before anything else.

use super::link::Link;
use super::{BoxFuture, Net, Options, Result};
use crate::ops::{Caller, Id, Op, RangeLock, Reply, Request};
use covey_ninep::client::{CallError, Conn};
use covey_ninep::message::Message;
use covey_ninep::tree::Errno;
use covey_wire::{Field, List, Name, Reader};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

/// The fid of the metadata tree's root on every connection.
const ROOT_FID: u32 = 0;

/// A session on the metadata server.
pub struct Session {
    link: Arc<Link>,
    memory: Arc<Memory>,
}

/// What a restarted server must be told again.
#[derive(Default)]
struct Memory {
    name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: u64,
    /// The server's start counter: another one has forgotten locks and waits.
    boot: u64,
    seq_next: u64,
    seqs_open: BTreeSet<u64>,
    opens: HashMap<Id, u32>,
    locks: Vec<(Id, RangeLock)>,
}

impl Session {
    /// A session that begins with its first call.
    pub fn new(net: Arc<dyn Net>, server: &str, options: Options) -> Session {
        let memory = Arc::new(Memory { name: options.name.clone(), ..Memory::default() });
        let greeted = memory.clone();
        let greet = move |conn: Conn| -> BoxFuture<Result<()>> {
            let memory = greeted.clone();
            Box::pin(async move { memory.greet(&conn).await })
        };
        let link = Link::new(net, server, "/meta", options, Some(Box::new(greet)));
        Session { link, memory }
    }

    /// Asks without changing anything that has to be answered once only.
    pub async fn ask(&self, caller: &Caller, op: Op) -> Result<Reply> {
        self.send(0, caller, op).await
    }

    /// Changes something, once.
    pub async fn change(&self, caller: &Caller, op: Op) -> Result<Reply> {
        let guard = SeqGuard { memory: &self.memory, seq: self.memory.next_seq() };
        self.send(guard.seq, caller, op).await
    }

    /// Connects now, so that later calls find a session.
    pub async fn start(&self) -> Result<()> {
        self.link.conn(self.link.now()).await.map(|_| ())
    }

    /// Counts an open that the server has granted.
    pub fn opened(&self, id: Id) {
        *self.memory.lock().opens.entry(id).or_default() += 1;
    }

    /// Counts an open given back.
    pub fn released(&self, id: Id) {
        let mut state = self.memory.lock();
        if let Some(count) = state.opens.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                state.opens.remove(&id);
            }
        }
    }

    /// Remembers a lock that was granted, for a server that restarts.
    pub fn locked(&self, id: Id, lock: RangeLock) {
        self.memory.lock().locks.push((id, lock));
    }

    /// Forgets what an unlock has given back; the rest of a lock that was cut stays.
    pub fn unlocked(&self, id: Id, gone: &RangeLock) {
        let mut state = self.memory.lock();
        let locks = std::mem::take(&mut state.locks);
        for (held_id, held) in locks {
            let same = held_id == id && held.owner == gone.owner && held.whole == gone.whole;
            if !same || held.end < gone.start || gone.end < held.start {
                state.locks.push((held_id, held));
                continue;
            }
            if held.start < gone.start {
                state.locks.push((id, RangeLock { end: gone.start - 1, ..held.clone() }));
            }
            if gone.end < held.end {
                state.locks.push((id, RangeLock { start: gone.end + 1, ..held }));
            }
        }
    }

    async fn send(&self, seq: u64, caller: &Caller, op: Op) -> Result<Reply> {
        let started = self.link.now();
        loop {
            let (_, conn) = self.link.conn(started).await?;
            let request = self.memory.request(seq, caller, op.clone());
            match call(&conn, &request).await {
                Ok(Reply::Error { code, reason }) => {
                    return Err(Errno::because(code, reason.lossy().into_owned()));
                }
                Ok(reply) => return Ok(reply),
                Err(CallError::Lost(why)) if self.link.is_over(started) => {
                    return Err(self.link.lost_error(&why));
                }
                Err(CallError::Lost(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Keeps a mutation's number open until its answer has come or its caller has gone.
struct SeqGuard<'a> {
    memory: &'a Memory,
    seq: u64,
}

impl Drop for SeqGuard<'_> {
    fn drop(&mut self) {
        self.memory.lock().seqs_open.remove(&self.seq);
    }
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn next_seq(&self) -> u64 {
        let mut state = self.lock();
        state.seq_next += 1;
        let seq = state.seq_next;
        state.seqs_open.insert(seq);
        seq
    }

    fn request(&self, seq: u64, caller: &Caller, op: Op) -> Request {
        let state = self.lock();
        let seq_done = state.seqs_open.first().copied().unwrap_or(state.seq_next + 1);
        let session = state.session;
        Request { session, seq, seq_done, now: 0, caller: caller.clone(), op }
    }

    /// Opens the session, or comes back to it, on a fresh connection.
    async fn greet(&self, conn: &Conn) -> Result<()> {
        let (session, files) = {
            let state = self.lock();
            let opens = state.opens.iter();
            let files = opens.flat_map(|(&id, &count)| (0..count).map(move |_| id)).collect();
            (state.session, files)
        };
        let name = Name::from(self.name.as_str());
        let hello = Op::Hello { session, files: List(files), name };
        let nobody = Caller::default();
        let reply = call(conn, &self.request(0, &nobody, hello)).await.map_err(Errno::from)?;
        let remembers = match reply {
            Reply::Session { session, known, boot } => {
                let mut state = self.lock();
                let same_start = std::mem::replace(&mut state.boot, boot) == boot;
                state.session = session;
                known && same_start
            }
            Reply::Error { code, reason } => {
                return Err(Errno::because(code, reason.lossy().into_owned()));
            }
            other => return Err(unexpected(&other)),
        };
        let locks = if remembers { Vec::new() } else { self.lock().locks.clone() };
        for (id, lock) in locks {
            let again = Op::Lock { id, lock, wait: false, again: true };
            call(conn, &self.request(0, &nobody, again)).await.map_err(Errno::from)?;
        }
        Ok(())
    }
}

/// A reply that does not fit its request: the server is broken or newer.
pub fn unexpected(reply: &Reply) -> Errno {
    Errno::because(Errno::EPROTO, format!("metadata server answered {}", reply.name()))
}

async fn call(conn: &Conn, request: &Request) -> std::result::Result<Reply, CallError> {
    let mut body = Vec::with_capacity(request.size(()));
    request.put((), &mut body);
    let call = conn.call(Message::Tcall { fid: ROOT_FID, body: body.into() });
    let Message::Rcall { body } = call.await? else {
        return Err(CallError::Lost("Tcall was answered with another message".into()));
    };
    Reply::get((), &mut Reader::new(body.into_bytes()))
        .map_err(|blame| CallError::Lost(blame.to_string()))
}
