//! A server session alone, fed with messages and asked for its replies.

use covey_ninep::message::{Dialect, Message, NOFID, NONUNAME, NOTAG, Number};
use covey_ninep::server::{Config, Session};
use covey_ninep::tree::{Peer, Tree};
use covey_wire::{Blame, Bytes, BytesMut, Machine, Segments};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Instant;

pub struct Raw<T: Tree> {
    pub session: Session<T>,
    pub dialect: Dialect,
    now: Instant,
}

impl<T: Tree> Raw<T> {
    pub fn new(tree: Rc<T>, config: Config) -> Self {
        let peer = Peer { name: "test".into(), uid: None, has_key: false };
        Raw::over(Session::new(tree, peer, config))
    }

    pub fn over(session: Session<T>) -> Self {
        Raw { session, dialect: Dialect::Covey, now: Instant::now() }
    }

    /// Version settled, fid 0 at the root.
    pub fn attached(tree: Rc<T>) -> Self {
        Raw::speaking(tree, Dialect::Covey)
    }

    /// The same in a dialect.
    pub fn speaking(tree: Rc<T>, dialect: Dialect) -> Self {
        let mut raw = Raw::new(tree, Config::default());
        raw.dialect = dialect;
        assert_eq!(raw.version(dialect.version()).1, dialect.version());
        raw.feed(&[(0, attach(0, NOFID))]).expect("attach");
        assert!(matches!(raw.replies()[..], [(0, Message::Rattach { .. })]));
        raw
    }

    /// Asks for a version; answers what is settled.
    pub fn version(&mut self, version: &str) -> (u32, String) {
        let version = Message::Tversion { msize: 1 << 20, version: version.into() };
        self.feed(&[(NOTAG, version)]).expect("version");
        match &self.replies()[..] {
            [(NOTAG, Message::Rversion { msize, version })] => (*msize, version.lossy().into()),
            other => panic!("no Rversion: {other:?}"),
        }
    }

    /// Messages that arrive in one read.
    pub fn feed(&mut self, messages: &[(u16, Message)]) -> Result<(), Blame> {
        let mut out = Segments::new();
        for (tag, message) in messages {
            message.put(*tag, self.dialect, &mut out);
        }
        let bytes: Vec<u8> = out.runs().flatten().copied().collect();
        self.feed_bytes(&bytes)
    }

    pub fn feed_bytes(&mut self, bytes: &[u8]) -> Result<(), Blame> {
        self.session.handle_input(self.now, &mut BytesMut::from(bytes))
    }

    /// All that the session has to say now.
    pub fn replies(&mut self) -> Vec<(u16, Message)> {
        let mut context = Context::from_waker(Waker::noop());
        let mut out = Segments::new();
        loop {
            // Each part is sent before there is another.
            let mut part = Segments::new();
            while self.session.poll_output(&mut part, 64 << 10) {
                out.take_from(&mut part, 64 << 10);
                part = Segments::new();
            }
            if self.session.poll_user(&mut context).is_pending() {
                break;
            }
        }
        out.settle().expect("the tree's files can be read");
        let mut bytes = Bytes::from(out.runs().flatten().copied().collect::<Vec<u8>>());
        let (mut replies, now) = (Vec::new(), self.session.dialect().unwrap_or(self.dialect));
        while let Some(&[a, b, c, d]) = bytes.first_chunk() {
            let size = u32::from_le_bytes([a, b, c, d]) as usize;
            let reply = bytes.split_to(size);
            // A Tversion may have changed the dialect after this one.
            let dialects = [now, self.dialect, Dialect::Unix, Dialect::Plan9, Dialect::Covey];
            let mut read = dialects.iter().map(|dialect| Message::get(reply.clone(), *dialect));
            replies.push(read.find_map(Result::ok).expect("a reply"));
        }
        replies
    }

    /// The tags that are answered now, in order.
    pub fn tags(&mut self) -> Vec<u16> {
        self.replies().into_iter().map(|(tag, _)| tag).collect()
    }

    /// One request, answered at once.
    pub fn ask(&mut self, message: Message) -> Message {
        self.ask_as(77, message)
    }

    /// The same with this tag.
    pub fn ask_as(&mut self, tag: u16, message: Message) -> Message {
        self.feed(&[(tag, message)]).expect("no violation");
        match &self.replies()[..] {
            [(answered, reply)] if *answered == tag => reply.clone(),
            other => panic!("not one reply: {other:?}"),
        }
    }
}

pub fn attach(fid: u32, afid: u32) -> Message {
    let (uname, aname, n_uname) = ("root".into(), "".into(), Number(NONUNAME));
    Message::Tattach { fid, afid, uname, aname, n_uname }
}

/// The code of an error, or 0.
pub fn ecode(reply: &Message) -> u32 {
    match reply {
        Message::Rlerror { ecode } => *ecode,
        Message::Rerror { ename, errno: Number(NONUNAME) } => {
            covey_ninep::tree::Errno::from_ename(&ename.lossy()).code
        }
        Message::Rerror { errno, .. } => errno.0,
        _ => 0,
    }
}
