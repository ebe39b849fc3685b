//! The client: one connection as a pure machine, and the handle that its users hold.
//!
//! ```text
//!   Conn::call ──► requests ──► Client (Machine) ──► bytes
//!   Call ◄──────── replies ◄──────────┘◄──────────── bytes
//! ```
//!
//! [`pair`] makes both. A loop drives the [`Client`] as [`covey_wire::Machine`] describes, on
//! whatever thread; [`Conn`] is cloned and used from any other. What always holds:
//!
//! - A request is queued when [`Conn::call`] returns, not when its future is polled: calls made in
//!   a row leave in that order, as many as there are in one write.
//! - Dropping a [`Call`] before its reply sends Tflush; the tag is not used again before Rflush. A
//!   request that has not left yet is just forgotten.
//! - At most [`WINDOW_BYTES`] of payload, or what the [`Window`] says, and [`WINDOW_REQUESTS`] requests are on
//!   their way at once; the rest wait here, so that no server has to stop reading, heartbeats included.
//! - While an answer is due, silence for [`Config::heartbeat`] sends a Tflush of no tag, which
//!   every server answers at once; silence for [`Config::dead_after`] ends the connection. Silence
//!   counts from the last receipt or from the first request after an idle time, whichever is later
//!   (a request within a quarter of a heartbeat of the last receipt counts from that receipt).
//! - When the connection ends, every call ends with [`CallError::Lost`].

mod call;
mod fid;
mod machine;
mod session;
mod state;
mod tags;
mod xattr;

pub use call::{Call, CallError, ReadInto};
pub use fid::Fid;
pub use machine::Client;

use crate::message::{Dialect, IOHDRSZ, MSIZE_DEFAULT, Message};
use covey_wire::BytesMut;
use state::Shared;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Most bytes of payload on their way at once (one request of any size always is).
pub const WINDOW_BYTES: usize = 32 << 20;
/// Most requests on their way at once.
pub const WINDOW_REQUESTS: usize = 8192;

/// How many bytes of payload may be on their way on each connection that shares it. It can be changed while they live; one
/// request of any size is always permitted.
#[derive(Clone, Debug)]
pub struct Window(Arc<AtomicUsize>);

impl Default for Window {
    fn default() -> Window {
        Window(Arc::new(AtomicUsize::new(WINDOW_BYTES)))
    }
}

impl Window {
    /// Changes it, to at most [`WINDOW_BYTES`].
    pub fn set(&self, bytes: usize) {
        self.0.store(bytes.min(WINDOW_BYTES), Ordering::Relaxed);
    }

    /// As it is now.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The largest message in bytes that is offered.
    pub msize: u32,
    /// How long the peer may be silent before it is asked for a sign of life.
    pub heartbeat: Duration,
    /// How long the peer may be silent before it is dead.
    pub dead_after: Duration,
    /// Whether silence counts when no answer is due, too.
    pub heartbeat_idle: bool,
    /// What may be on its way.
    pub window: Window,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            msize: MSIZE_DEFAULT,
            heartbeat: Duration::from_secs(1),
            dead_after: Duration::from_secs(3),
            heartbeat_idle: false,
            window: Window::default(),
        }
    }
}

/// A new connection: the handle for its users and the machine for its loop, which begins at `now`.
pub fn pair(config: Config, now: Instant) -> (Conn, Client) {
    let shared = Arc::new(Shared::new(config.clone()));
    let handle = Arc::new(Handle { shared: shared.clone() });
    (Conn { handle }, Client::new(shared, config, now))
}

/// A handle on a connection: clones share it. When the last one is dropped, and what was sent has
/// been answered, the machine ends.
#[derive(Clone)]
pub struct Conn {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.with(|state| state.leave());
    }
}

impl Conn {
    /// Sends a request: it is queued now, the future is its reply. A reply of the right type, or
    /// Rlerror as [`CallError::Errno`], is all that comes back.
    pub fn call(&self, request: Message) -> Call {
        Call::new(self.shared().clone(), request)
    }

    /// Reads from `offset` of an open file into `buffer`, as much as it has room for, with one Tread. What comes is the
    /// buffer, cut to what there was. A large payload is received straight into it, with no copy between: the buffer
    /// belongs to the connection until then, so one whose read was dropped is not written to by surprise.
    pub fn read_into(&self, fid: u32, offset: u64, buffer: BytesMut) -> ReadInto {
        ReadInto::new(self.shared().clone(), fid, offset, buffer)
    }

    /// Sends a request whose reply nobody waits for; false when too many are on their way already,
    /// or the connection has ended.
    pub fn send(&self, request: Message) -> bool {
        self.shared().with(|state| state.send(request, None))
    }

    /// The largest message in bytes, as settled so far.
    pub fn msize(&self) -> u32 {
        self.shared().with(|state| state.msize)
    }

    /// Most bytes of payload in one Tread, Twrite or Tcall.
    pub fn payload_max(&self) -> u32 {
        self.msize() - IOHDRSZ
    }

    /// The dialect spoken, once [`Conn::version`] has settled it.
    pub fn dialect(&self) -> Option<Dialect> {
        self.shared().with(|state| state.dialect)
    }

    /// Whether both are handles on the same connection.
    pub fn is_same(&self, other: &Conn) -> bool {
        Arc::ptr_eq(self.shared(), other.shared())
    }

    /// Whether the connection has ended.
    pub fn is_lost(&self) -> bool {
        self.shared().with(|state| state.lost.is_some())
    }

    /// Whether the connection has ended because the peer was silent for [`Config::dead_after`]: to
    /// connect again would most likely take as long.
    pub fn died_silent(&self) -> bool {
        self.shared().with(|state| state.is_silent)
    }

    /// Completes with the reason when the connection has ended.
    pub fn closed(&self) -> impl Future<Output = String> + Send + 'static {
        let shared = self.shared().clone();
        poll_fn(move |context| shared.with(|state| state.poll_lost(context)))
    }

    /// Ends the connection: all calls are lost for this reason, and the machine's loop ends. A loop
    /// that knows why its transport failed says so here.
    pub fn close(&self, reason: &str) {
        self.shared().with(|state| state.lose(reason));
    }

    /// A fid number that is not in use. Give it back with [`Conn::release_fid`], or use [`Fid`].
    pub fn fid(&self) -> u32 {
        self.shared().with(|state| state.take_fid())
    }

    /// The fid number is no longer in use: the server has answered its clunk or never knew it.
    pub fn release_fid(&self, fid: u32) {
        self.shared().with(|state| state.release_fid(fid));
    }

    /// As [`Conn::release_fid`], once `call` is answered, whose reply nobody waits for any more: it
    /// is the fid's Tclunk or Tremove.
    pub fn release_fid_after(&self, fid: u32, call: Call) {
        call.detach(fid);
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }
}
