//! Client machine and server session back to back: virtual time, no runtime, no socket.
#![allow(dead_code)]

pub mod gate;
pub mod paths;
pub mod raw;

use covey_ninep::client::{self, CallError, Client, Conn};
use covey_ninep::message::{Dialect, Message};
use covey_ninep::server::{self, Session};
use covey_ninep::tree::{Peer, Tree};
use covey_wire::{Blame, Bytes, BytesMut, Machine, Name, Segments};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub type Reply = Result<Message, CallError>;

/// Both sides of a connection.
pub struct Pair<T: Tree> {
    pub conn: Conn,
    pub client: Option<Client>,
    pub server: Option<Session<T>>,
    pub now: Instant,
    /// Nothing that the server sends arrives.
    pub server_is_mute: bool,
    /// What the client sent, one item for each joined write.
    pub client_writes: Vec<usize>,
    pub server_writes: Vec<usize>,
    pub client_error: Option<Blame>,
    pub server_error: Option<Blame>,
    to_server: BytesMut,
    to_client: BytesMut,
}

impl<T: Tree> Pair<T> {
    /// Connected; no version yet.
    pub fn raw(tree: Rc<T>, client: client::Config, server: server::Config) -> Self {
        let (conn, client) = client::pair(client, std::time::Instant::now());
        let peer = Peer { name: "unix".into(), uid: Some(0), has_key: false };
        Pair {
            conn,
            client: Some(client),
            server: Some(Session::new(tree, peer, server)),
            now: Instant::now(),
            server_is_mute: false,
            client_writes: Vec::new(),
            server_writes: Vec::new(),
            client_error: None,
            server_error: None,
            to_server: BytesMut::new(),
            to_client: BytesMut::new(),
        }
    }

    /// Connected, version settled, fid 0 at the root.
    pub fn attached(tree: T) -> Self {
        Self::speaking(tree, Dialect::Covey)
    }

    /// The same in a dialect.
    pub fn speaking(tree: T, dialect: Dialect) -> Self {
        let mut pair = Self::raw(Rc::new(tree), Default::default(), Default::default());
        let conn = pair.conn.clone();
        assert_eq!(pair.run(conn.version_of(&[dialect])), Ok(dialect));
        pair.run(conn.auth_and_attach(0, "root", None, "", None, [0; 32])).expect("attach");
        pair
    }

    /// Moves bytes until neither side has anything to say.
    pub fn settle(&mut self) {
        while self.step() {}
    }

    /// One joined write of each side.
    pub fn step(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let mut moved = false;
        if let Some(client) = &mut self.client
            && let Poll::Ready(Err(blame)) = client.poll_user(&mut context)
        {
            self.client_error.get_or_insert(blame);
            self.client = None;
        }
        if let Some(client) = &mut self.client {
            let sent = drain(client, &mut self.to_server);
            self.client_writes.extend((sent > 0).then_some(sent));
            moved |= sent > 0;
        }
        if let Some(server) = &mut self.server {
            let result = if self.to_server.is_empty() {
                Ok(())
            } else {
                server.handle_input(self.now, &mut self.to_server)
            };
            let user = server.poll_user(&mut context);
            let sent = drain(server, &mut self.to_client);
            self.server_writes.extend((sent > 0).then_some(sent));
            moved |= sent > 0;
            let user = match user {
                Poll::Ready(Err(blame)) => Err(blame),
                _ => Ok(()),
            };
            if let Err(blame) = result.and(user) {
                self.server_error.get_or_insert(blame);
                self.server = None;
            }
        }
        if self.server_is_mute {
            self.to_client.clear();
        }
        if let Some(client) = &mut self.client
            && !self.to_client.is_empty()
            && let Err(blame) = client.handle_input(self.now, &mut self.to_client)
        {
            self.client_error.get_or_insert(blame);
            self.client = None;
        }
        moved
    }

    /// Runs a future to its end, moving bytes meanwhile.
    pub fn run<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        for _ in 0..10_000 {
            if let Some(output) = poll_once(future.as_mut()) {
                return output;
            }
            self.settle();
        }
        panic!("the future waits for something that never comes");
    }

    /// One call to its end.
    pub fn call(&mut self, message: Message) -> Reply {
        let call = self.conn.call(message);
        self.run(call)
    }

    /// Lets time pass, with every deadline kept on the way.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        while let Some(deadline) = self.client.as_ref().and_then(|c| c.poll_deadline()) {
            if deadline > end {
                break;
            }
            self.now = self.now.max(deadline);
            let client = self.client.as_mut().expect("it has a deadline");
            if let Err(blame) = client.handle_timeout(self.now) {
                self.client_error.get_or_insert(blame);
                self.client = None;
            }
            self.settle();
        }
        self.now = end;
    }
}

/// Polls a future once.
pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn drain(machine: &mut impl Machine, to: &mut BytesMut) -> usize {
    let mut out = Segments::new();
    while machine.poll_output(&mut out, 64 << 10) {}
    out.runs().for_each(|run| to.extend_from_slice(run));
    out.len()
}

pub fn walk(fid: u32, newfid: u32, names: &[&str]) -> Message {
    let names = covey_wire::List(names.iter().map(|name| Name::from(*name)).collect());
    Message::Twalk { fid, newfid, names }
}

pub fn open(fid: u32, flags: u32) -> Message {
    Message::Tlopen { fid, flags }
}

pub fn read(fid: u32, offset: u64, count: u32) -> Message {
    Message::Tread { fid, offset, count }
}

pub fn write(fid: u32, offset: u64, data: &[u8]) -> Message {
    Message::Twrite { fid, offset, data: Bytes::copy_from_slice(data).into() }
}

/// The payload of an Rread.
pub fn data(reply: Reply) -> Vec<u8> {
    match reply {
        Ok(Message::Rread { data }) => data.into_bytes().to_vec(),
        other => panic!("no Rread: {other:?}"),
    }
}

/// The error of a reply.
pub fn code(reply: Reply) -> u32 {
    match reply {
        Err(CallError::Errno(errno)) => errno.code,
        other => panic!("no error: {other:?}"),
    }
}

/// The error of a call of any type.
pub fn code_of<T: std::fmt::Debug>(reply: Result<T, CallError>) -> u32 {
    match reply {
        Err(CallError::Errno(errno)) => errno.code,
        other => panic!("no error: {other:?}"),
    }
}
