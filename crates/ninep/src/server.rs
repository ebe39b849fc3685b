//! The server: one connection as a pure machine over a [`Tree`].
//!
//! ```text
//!   bytes ──► frames ──► order ──► start ──► tree ──Now───► finish ──► replies ──► bytes
//!                         queue              └──Later──► tasks ──┘
//! ```
//!
//! What always holds:
//!
//! - On one fid, open, create, setattr, clunk, remove and a walk that makes or moves the fid are
//!   barriers: all before, then it, then all after. Reads and writes that overlap keep their order,
//!   unless both are reads; fsync waits for the writes before it. A walk from a fid waits for
//!   changes of names under that fid (mkdir, unlink, rename ...) and they for it. Everything else
//!   may finish in any order. So a client may send walk, open and read in one write.
//! - What is read as a range of a file ([`Data::Range`](crate::tree::Data::Range)) is taken from there by the peer: a change
//!   that was sent after the read may show in its answer. What a file only lends ([`Data::Loan`](crate::tree::Data::Loan), for
//!   short reads) is copied before anything that may change a file is begun, so the order holds there.
//! - Files opened as `blocking` have no order among reads and writes, and no barrier waits for
//!   them: clunk and remove cancel them (EINTR).
//! - Tflush is answered at once, and the flushed request never after it. A request that was queued
//!   or waiting is dropped; the fids are as if it had never been sent.
//! - Every fid that goes (clunk, remove, walk onto itself, a new Tversion, the end of the
//!   connection) is told to [`Tree::clunk`] once.
//!
//! [`Session`] is made with the tree and what is known of the peer, then driven by a loop as
//! [`Machine`] describes. Replies to all input that was handled together leave together.

mod answer;
mod attr;
mod classic;
mod deposit;
mod door;
mod fids;
mod finish;
mod order;
mod preauth;
mod read;
mod start;
mod tasks;
mod turn;
mod xattr;

pub(crate) use attr::valid;

use crate::auth::KeyRing;
use crate::frame::{self, Frame};
use crate::message::{Dialect, MSIZE_DEFAULT, MSIZE_MIN, Message, NONUNAME, Number};
use crate::tree::{Errno, Peer, Tree};
use answer::Wait;
use covey_wire::{Blame, Bytes, BytesMut, Deposit, Machine, Name, Segments};
use door::Stranger;
pub use door::{Door, STRANGER_MESSAGE_BYTES_MAX, STRANGER_MESSAGES_MAX, Share};
use fids::Fids;
use order::Order;
pub use preauth::{Begun, Nothing, Preauth};
pub use read::Alone;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;
use tasks::Tasks;
use turn::Request;

/// The number of a Tattach.
const TATTACH: u8 = 104;
/// Most outstanding requests before no more input is wanted; and as many may wait on blocking
/// files.
const REQUESTS_MAX: usize = 16384;
/// Longest text of an error in bytes: ERRMAX of Plan 9 less its NUL.
const ENAME_BYTES_MAX: usize = 127;
/// Replies of this many bytes are sent before more requests are started.
const SEND_BYTES: usize = 256 << 10;
/// How often futures that wake one another are polled before output is given a turn.
const ROUNDS_MAX: usize = 8;

/// How a server treats its connections.
#[derive(Clone, Debug)]
pub struct Config {
    /// The largest message in bytes; the peer may ask for less.
    pub msize: u32,
    /// The cluster key, if this server has one, and the other one while it is being replaced.
    pub key: Option<KeyRing>,
    /// 32 random bytes, fresh for every connection.
    pub nonce: [u8; 32],
    /// Whether an attach needs the key to be proven.
    pub require_key: bool,
    /// A lesser key, which opens one of the trees.
    pub guest: Option<Guest>,
    /// When a peer that has not attached is sent away.
    pub attach_by: Option<Instant>,
}

/// Who has proven a key of less weight than the cluster's: somebody without a name, to whom one tree is open.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// The user name that says in Tauth which key is meant.
    pub uname: &'static str,
    /// The key, and the other one while the cluster's is being replaced.
    pub key: KeyRing,
    /// The only tree that it opens, as Tattach names it: alone or before a space.
    pub aname: &'static str,
    /// As whom.
    pub uid: u32,
}

impl Default for Config {
    /// No key and no hurry. A nonce of zeros is good for nothing else.
    fn default() -> Self {
        Config {
            msize: MSIZE_DEFAULT,
            key: None,
            nonce: [0; 32],
            require_key: false,
            guest: None,
            attach_by: None,
        }
    }
}

/// One connection of a server.
///
/// Dropping it drops all waiting requests and clunks all fids; those of open files are cut ([`Tree::cut`]).
pub struct Session<T: Tree> {
    tree: Rc<T>,
    peer: Peer,
    config: Config,
    /// `None` until Tversion has settled it.
    dialect: Option<Dialect>,
    msize: u32,
    fids: Fids<T::Node>,
    /// Authentication files opened so far.
    auths: u64,
    order: Order,
    /// The outstanding requests by tag. What is answered at once never comes here.
    requests: HashMap<u16, Request<T::Node>>,
    tasks: Tasks<Wait<T::Node>>,
    /// Requests that came while the machine was full.
    backlog: VecDeque<Frame>,
    /// Replies, ready to be sent.
    output: Segments,
    moment: Moment,
    /// The last request was a large write.
    expects_write: bool,
    load: Load,
    /// Until the first attach.
    stranger: Option<Stranger>,
    door: Rc<dyn Door>,
    /// What the peer may hold.
    share: Rc<Share>,
    /// What the loop held of its output when it asked for more, in bytes.
    passed_on: usize,
    /// What its share was told last that this connection holds.
    charged: Cell<usize>,
    failure: Option<Blame>,
    /// The peer needs its files no more: they are clunked, not cut.
    has_ended_well: bool,
    /// This is a [`Preauth`].
    keeps_attach: bool,
    /// The attach that ends it.
    attach: Option<Frame>,
}

/// What a connection uses of the server.
#[derive(Default)]
struct Load {
    /// Outstanding requests that end by themselves, and the payload they hold.
    requests: usize,
    bytes: usize,
    /// Outstanding requests that may wait for ever, and the payload they hold.
    blocked: usize,
    blocked_bytes: usize,
}

/// A time during which this server changes nothing itself, and for which all that it was asked has arrived.
/// No other connection has the same.
struct Moment(u64);

impl Moment {
    fn new() -> Moment {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Moment(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl<T: Tree> Session<T> {
    /// A connection that has just been accepted from `peer`.
    pub fn new(tree: Rc<T>, peer: Peer, config: Config) -> Self {
        Session {
            tree,
            peer,
            msize: config.msize,
            stranger: Some(Stranger::new(config.attach_by)),
            door: Rc::new(()),
            share: Rc::default(),
            passed_on: 0,
            charged: Cell::new(0),
            config,
            dialect: None,
            fids: Fids::new(),
            auths: 0,
            order: Order::default(),
            requests: HashMap::new(),
            tasks: Tasks::new(),
            backlog: VecDeque::new(),
            output: Segments::new(),
            moment: Moment::new(),
            expects_write: false,
            load: Load::default(),
            failure: None,
            has_ended_well: false,
            keeps_attach: false,
            attach: None,
        }
    }

    /// The same with a shell that decides who may stay, and what each peer may hold.
    #[must_use]
    pub fn behind(mut self, door: Rc<dyn Door>) -> Self {
        self.door = door;
        self
    }

    /// Ends the session of a peer that has ended in good order without clunking its fids, as a program does that simply
    /// returns. One that is dropped has lost its peer: what it had open is cut.
    pub fn end(mut self) {
        self.has_ended_well = true;
    }

    /// Whether the peer has attached.
    pub fn is_known(&self) -> bool {
        self.stranger.is_none()
    }

    /// The dialect spoken, once that is settled.
    pub fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }

    /// The largest message in bytes, as settled so far.
    pub fn msize(&self) -> u32 {
        self.msize
    }

    /// The peer, as it was given.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// How many fids the peer holds.
    pub fn fid_count(&self) -> usize {
        self.fids.len()
    }

    /// How many requests have not been answered.
    pub fn request_count(&self) -> usize {
        self.requests.len()
    }

    /// Handles what waits in the backlog, as far as there is room, and until there is enough to send:
    /// the peer takes in the first replies while the next ones are made.
    fn advance(&mut self) -> Result<(), Blame> {
        while self.takes_more() {
            let Some(frame) = self.backlog.pop_front() else { break };
            self.handle_frame(frame)?;
        }
        Ok(())
    }

    /// Whether there is room to handle requests, and not enough to send.
    fn takes_more(&self) -> bool {
        let has_ended = self.failure.is_some() || self.attach.is_some();
        !has_ended && self.has_room() && self.output.len() < SEND_BYTES
    }

    fn has_room(&self) -> bool {
        let own = self.load.bytes + self.output.len() + self.passed_on;
        let held = own + self.load.blocked_bytes;
        self.share.charge(self.charged.replace(held), held);
        self.load.requests < REQUESTS_MAX
            && own < self.share.bytes()
            && (own == 0 || self.share.has_room())
    }

    fn handle_frame(&mut self, frame: Frame) -> Result<(), Blame> {
        self.count_message()?;
        let (tag, number) = (frame.tag, frame.number);
        let kept = (self.keeps_attach && number == TATTACH).then(|| frame.clone());
        let dialect = self.spoken();
        let message = match frame.message(dialect) {
            Ok(message) => message,
            Err(Blame::Unsupported(_)) if number.is_multiple_of(2) && self.dialect.is_some() => {
                self.reply_error(tag, Errno::EOPNOTSUPP.into());
                return Ok(());
            }
            Err(Blame::Unsupported(what)) => return Err(Blame::Violation(what)),
            Err(blame) => return Err(blame),
        };
        // Requests are even, replies odd.
        if !number.is_multiple_of(2) {
            let what = format!("{} sent to a server", message.name());
            return Err(Blame::Violation(what));
        }
        match message {
            Message::Tversion { msize, version } => self.handle_version(tag, msize, &version),
            _ if self.dialect.is_none() => {
                let what = format!("{} before Tversion", message.name());
                return Err(Blame::Violation(what));
            }
            Message::Tflush { oldtag } => self.flush(tag, oldtag),
            _ if self.requests.contains_key(&tag) => {
                let what = format!("{}: tag {tag} is in use", message.name());
                return Err(Blame::Violation(what));
            }
            request => self.admit(tag, request),
        }
        // It was not refused.
        self.attach = kept.filter(|_| self.requests.contains_key(&tag));
        Ok(())
    }

    /// Settles dialect and message size, and begins the session anew.
    fn handle_version(&mut self, tag: u16, msize: u32, version: &Name) {
        self.reset();
        let dialect = Dialect::settle(version.as_bytes()).filter(|_| msize >= MSIZE_MIN);
        self.dialect = dialect;
        self.msize =
            if dialect.is_some() { msize.min(self.config.msize) } else { self.config.msize };
        let version = dialect.map_or("unknown", Dialect::version).into();
        self.reply(tag, Message::Rversion { msize: self.msize, version });
    }

    fn reply(&mut self, tag: u16, message: Message) {
        message.put(tag, self.spoken(), &mut self.output);
    }

    /// .L has room for the number only: the reason is the tree's to log. 9P2000 has words, and only
    /// those that every client knows; .u has both.
    fn reply_error(&mut self, tag: u16, error: Errno) {
        let reply = match self.spoken() {
            Dialect::Linux | Dialect::Covey => Message::Rlerror { ecode: error.code },
            Dialect::Plan9 => {
                Message::Rerror { ename: error.ename().into(), errno: Number(NONUNAME) }
            }
            Dialect::Unix => {
                let mut ename = error.to_string();
                ename.truncate(ename.floor_char_boundary(ENAME_BYTES_MAX));
                Message::Rerror { ename: ename.into(), errno: Number(error.code) }
            }
        };
        self.reply(tag, reply);
    }

    /// The dialect; the one that says least until there is one.
    fn spoken(&self) -> Dialect {
        self.dialect.unwrap_or(Dialect::Linux)
    }

    /// Polls the futures that were woken.
    fn run_tasks(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if !self.tasks.begin_round() {
                return;
            }
            while let Some((tag, answer)) = self.tasks.next_done() {
                self.complete(tag, answer);
            }
        }
    }

    /// Goes on with what was woken and what there is room for now. The first error is kept: it ends
    /// the connection.
    fn step(&mut self) {
        if self.failure.is_none() {
            self.moment = Moment::new();
            self.run_tasks();
            if let Err(blame) = self.advance() {
                self.failure = Some(blame);
            }
        }
    }

    fn check(&self) -> Result<(), Blame> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

impl<T: Tree> Machine for Session<T> {
    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Blame> {
        self.handle_placed(now, input, Bytes::new())
    }

    fn handle_placed(
        &mut self,
        _now: Instant,
        input: &mut BytesMut,
        mut placed: Bytes,
    ) -> Result<(), Blame> {
        self.check()?;
        self.moment = Moment::new();
        loop {
            if self.start_front_read(input) {
                continue;
            }
            // One at a time: a Tversion changes how large the next message may be.
            match frame::next(input, &mut placed, self.message_bytes_max()) {
                Ok(Some(frame)) => self.backlog.push_back(frame),
                Ok(None) => break,
                Err(blame) => {
                    let begun = if input.is_empty() { &placed[..] } else { &input[..] };
                    self.failure = Some(self.too_early(blame, begun));
                    break;
                }
            }
            if let Err(blame) = self.advance() {
                self.failure = Some(blame);
                break;
            }
        }
        self.run_tasks();
        self.check()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), Blame> {
        self.check()?;
        self.check_attached(now)
    }

    fn poll_output(&mut self, out: &mut Segments, bytes_max: usize) -> bool {
        let before = out.len();
        out.take_from(&mut self.output, bytes_max);
        self.passed_on = out.len();
        out.len() > before
    }

    fn poll_deadline(&self) -> Option<Instant> {
        self.attach_by()
    }

    fn poll_user(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Blame>> {
        self.tasks.set_waker(context.waker());
        let before = self.output.len();
        self.step();
        match self.check() {
            Err(blame) => Poll::Ready(Err(blame)),
            Ok(()) if self.output.len() > before => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
        }
    }

    fn bytes_wanted(&self, input: &[u8]) -> usize {
        frame::bytes_wanted(input, self.message_bytes_max())
    }

    fn deposit(&mut self, input: &[u8]) -> Deposit {
        self.deposit_next(input)
    }

    fn deposited(&mut self, input: &mut BytesMut, written: Result<usize, i32>) {
        self.conclude_deposit(input, written);
    }

    fn output_bytes_max(&self) -> usize {
        self.share.output_bytes()
    }

    fn is_full(&self) -> bool {
        !self.backlog.is_empty() || self.attach.is_some() || !self.has_room()
    }
}

impl<T: Tree> Drop for Session<T> {
    fn drop(&mut self) {
        self.reset();
        self.share.charge(self.charged.take(), 0);
    }
}
