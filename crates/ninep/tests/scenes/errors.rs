//! Error paths that no other scene comes by: answers of a tree that fit no message, limits, and replies of
//! a server that keeps to the form but not to the sense.

#[path = "../golden/messages.rs"]
mod messages;
use crate::pair::gate::Gate;
use crate::pair::raw::{Raw, attach, ecode};
use crate::pair::*;
use covey_ninep::client::{self, CallError, Client, Conn};
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::{Dialect, Extension, MSIZE_MIN, Message, NOFID, NOTAG, Number, Qid, dm};
use covey_ninep::server;
use covey_ninep::tree::*;
use covey_wire::{Blame, Bytes, BytesMut, Machine, Name, Segments};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Instant;

/// A tree whose answers are too long, or too few.
struct Odd;

impl Tree for Odd {
    type Node = u32;

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, u32)> {
        let qid = Qid { kind: Qid::DIR, version: 0, path: 1 };
        Ok((User { uid: 0, gid: 0, groups: vec![] }, qid, 0)).into()
    }

    /// Nothing is there, and that is no error; `more` is more than was asked for.
    fn walk(&self, _: &Rc<User>, _: &u32, names: &[Name]) -> Outcome<Vec<(Qid, u32)>> {
        let step = (Qid::default(), 1);
        Ok(if names[0].as_bytes() == b"more" { vec![step; 5] } else { vec![] }).into()
    }

    fn getattr(&self, _: &Rc<User>, _: &u32) -> Outcome<Attr> {
        Ok(Attr { mode: S_IFDIR | 0o777, ..Attr::default() }).into()
    }

    fn make(&self, _: &Rc<User>, _: &u32, _: Name, _: Make, _: u32) -> Outcome<Qid> {
        Ok(Qid::default()).into()
    }

    fn readlink(&self, _: &Rc<User>, _: &u32) -> Outcome<Name> {
        Ok(vec![b'x'; 5000].into()).into()
    }

    fn call(&self, _: &Rc<User>, _: &u32, _: Bytes) -> Outcome<Bytes> {
        Ok(vec![0; 5000].into()).into()
    }

    fn list_xattrs(&self, _: &Rc<User>, _: &u32) -> Outcome<Vec<Name>> {
        Ok(vec!["x".repeat(255).into(); 300]).into()
    }

    fn xattr(&self, _: &Rc<User>, _: &u32, name: Name) -> Outcome<Bytes> {
        let over = usize::from(name.as_bytes() == b"over");
        Ok(vec![0; XATTR_BYTES_MAX + over].into()).into()
    }

    fn user_name(&self, _: u32) -> Name {
        vec![b'u'; 65_000].into()
    }

    fn group_name(&self, gid: u32) -> Name {
        if gid == 0 { vec![b'g'; 600].into() } else { Name::EMPTY }
    }
}

fn odd(dialect: Dialect) -> Raw<Odd> {
    let config = server::Config { msize: MSIZE_MIN, ..Default::default() };
    let mut raw = Raw::new(Rc::new(Odd), config);
    raw.dialect = dialect;
    raw.version(dialect.version());
    raw.ask(attach(0, NOFID));
    raw
}

#[test]
fn answers_that_fit_no_message_are_errors() {
    let mut raw = odd(Dialect::Covey);
    assert_eq!(ecode(&raw.ask(Message::Treadlink { fid: 0 })), Errno::EIO);
    let call = Message::Tcall { fid: 0, body: b"x".to_vec().into() };
    assert_eq!(ecode(&raw.ask(call)), Errno::EOVERFLOW);
    let xattr_walk = |name: &str| Message::Txattrwalk { fid: 0, newfid: 1, name: name.into() };
    assert_eq!(ecode(&raw.ask(xattr_walk(""))), Errno::E2BIG);
    assert_eq!(ecode(&raw.ask(xattr_walk("over"))), Errno::E2BIG);
    assert_eq!(raw.ask(xattr_walk("most")), Message::Rxattrwalk { size: 65536 });
    assert_eq!(ecode(&odd(Dialect::Unix).ask(Message::Tstat { fid: 0 })), Errno::EOVERFLOW);
}

#[test]
fn attributes_that_are_read_count_towards_the_limit_of_a_connection() {
    let mut raw = odd(Dialect::Covey);
    let walk = |newfid| Message::Txattrwalk { fid: 0, newfid, name: "most".into() };
    (1..=256).for_each(|fid| assert_eq!(ecode(&raw.ask(walk(fid))), 0));
    assert_eq!(ecode(&raw.ask(walk(257))), Errno::ENOMEM);
}

#[test]
fn a_walk_that_leads_nowhere_makes_no_fid() {
    for dialect in [Dialect::Unix, Dialect::Linux] {
        let mut raw = odd(dialect);
        assert_eq!(ecode(&raw.ask(walk(0, 1, &["none"]))), Errno::ENOENT);
        assert_eq!(ecode(&raw.ask(Message::Tclunk { fid: 1 })), Errno::EBADF);
        match raw.ask(walk(0, 1, &["more"])) {
            Message::Rwalk { qids } => assert_eq!(qids.0.len(), 1),
            other => panic!("{other:?}"),
        }
    }
    // It was made, and is gone before it is looked at.
    let (name, extension) = ("d".into(), Extension::default());
    let made = Message::Tcreate { fid: 0, name, perm: dm::DIR | 0o755, mode: 0, extension };
    assert_eq!(ecode(&odd(Dialect::Unix).ask(made)), Errno::ENOENT);
}

#[test]
fn a_record_over_the_msize_is_an_error() {
    let config = server::Config { msize: MSIZE_MIN, ..Default::default() };
    let mut raw = Raw::new(Rc::new(MemoryTree::default()), config);
    raw.dialect = Dialect::Unix;
    raw.version("9P2000.u");
    raw.ask(attach(0, NOFID));
    raw.ask(walk(0, 1, &[]));
    let (name, extension) = ("l".into(), Extension("x".repeat(4050).into()));
    raw.ask(Message::Tcreate { fid: 1, name, perm: dm::SYMLINK | 0o777, mode: 0, extension });
    assert_eq!(ecode(&raw.ask(Message::Tstat { fid: 1 })), Errno::EOVERFLOW);
}

#[test]
fn what_linux_never_sends_is_refused() {
    let mut raw = Raw::attached(Rc::new(MemoryTree::default()));
    let set = Message::Tsetattr {
        fid: 0,
        valid: 32 | 256,
        mode: 0,
        uid: 0,
        gid: 0,
        size: 0,
        atime_sec: 0,
        atime_nsec: 0,
        mtime_sec: 0,
        mtime_nsec: 1_000_000_000,
    };
    assert_eq!(ecode(&raw.ask(set)), Errno::EINVAL);
    let long = Name::from("x".repeat(4096));
    for (target, code) in
        [(long, Errno::ENAMETOOLONG), ("".into(), Errno::ENOENT), ("a\0".into(), Errno::EINVAL)]
    {
        let link = Message::Tsymlink { dfid: 0, name: "l".into(), target, gid: 0 };
        assert_eq!(ecode(&raw.ask(link)), code);
    }
    let lock = |kind| Message::Tlock {
        fid: 0,
        kind,
        flags: 0,
        start: 0,
        length: 0,
        proc_id: 1,
        client_id: "c".into(),
    };
    assert_eq!(ecode(&raw.ask(lock(3))), Errno::EINVAL);
    assert_eq!(ecode(&raw.ask(lock(0))), Errno::EOPNOTSUPP);
    let get = Message::Tgetlock {
        fid: 0,
        kind: 3,
        start: 0,
        length: 0,
        proc_id: 1,
        client_id: "c".into(),
    };
    assert_eq!(ecode(&raw.ask(get)), Errno::EINVAL);
    raw.ask(walk(0, 1, &[]));
    raw.ask(open(1, 0));
    let list = Message::Treaddir { fid: 1, offset: 0, count: 20 };
    assert_eq!(ecode(&raw.ask(list)), Errno::EINVAL);
}

/// The golden requests, each to a tree that does nothing: whoever adds a message serves it.
#[test]
fn every_request_of_the_table_is_served_in_its_dialects() {
    for (dialect, request, _) in messages::golden() {
        let is_request = request.number().is_multiple_of(2);
        if !is_request || matches!(request, Message::Tversion { .. } | Message::Tflush { .. }) {
            continue;
        }
        let mut raw = Raw::speaking(Rc::new(MemoryTree::default()), dialect);
        let code = ecode(&raw.ask(request.clone()));
        // Without fid 1 most have a bad fid.
        assert_ne!(code, Errno::EOPNOTSUPP, "{} in {dialect:?}", request.name());
    }
}

#[test]
fn no_more_requests_wait_on_blocking_files_than_there_is_room_for() {
    const REQUESTS_MAX: u16 = 16384;
    const FIDS: u16 = 64;
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    for fid in 1..=u32::from(FIDS) {
        raw.ask_as(60_000, walk(0, fid, &["blocking"]));
        raw.ask_as(60_000, open(fid, 0));
    }
    gate.close("read 0");
    for tag in 0..REQUESTS_MAX {
        raw.feed(&[(tag, read(1 + u32::from(tag % FIDS), 0, 1))]).unwrap();
    }
    assert_eq!(raw.tags(), []);
    assert_eq!(ecode(&raw.ask_as(60_000, read(1, 0, 1))), Errno::EAGAIN);
    // Whoever is clunked gives room.
    raw.feed(&[(60_001, Message::Tclunk { fid: 1 })]).unwrap();
    assert_eq!(raw.tags().len(), usize::from(REQUESTS_MAX / FIDS) + 1);
}

#[test]
fn a_lock_that_waits_holds_nothing_up_and_ends_with_flush_or_clunk() {
    let lock = |kind, flags| Message::Tlock {
        fid: 1,
        kind,
        flags,
        start: 0,
        length: 0,
        proc_id: 1,
        client_id: "c".into(),
    };
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    raw.ask(walk(0, 1, &["f"]));
    raw.ask(open(1, 2));
    gate.close("lock 1 wait");
    raw.feed(&[(5, lock(1, 1)), (6, lock(1, 1)), (7, lock(2, 0)), (8, read(1, 0, 1))]).unwrap();
    assert_eq!(raw.tags(), [7, 8], "what is given back passes those who wait");
    raw.feed(&[(9, Message::Tflush { oldtag: 5 })]).unwrap();
    assert_eq!(raw.tags(), [9]);
    gate.log();
    raw.feed(&[(10, Message::Tclunk { fid: 1 })]).unwrap();
    let replies = raw.replies();
    assert_eq!((replies[0].0, ecode(&replies[0].1)), (6, Errno::EINTR));
    assert_eq!(replies[1], (10, Message::Rclunk {}));
    assert_eq!(gate.log(), ["drop lock 1 wait", "clunk /f:open"]);
    // And one that is had.
    raw.ask(walk(0, 1, &["f"]));
    raw.ask(open(1, 2));
    raw.feed(&[(5, lock(1, 1))]).unwrap();
    gate.open("lock 1 wait");
    assert_eq!(raw.replies(), [(5, Message::Rlock { status: 0 })]);
}

/// A client and, by hand, its server.
struct Hand {
    conn: Conn,
    client: Client,
}

impl Hand {
    fn speaking(dialect: Dialect) -> Hand {
        let (conn, client) = client::pair(client::Config::default(), Instant::now());
        let mut hand = Hand { conn, client };
        let conn = hand.conn.clone();
        let dialects = [dialect];
        let mut version = Box::pin(conn.version_of(&dialects));
        assert!(poll_once(version.as_mut()).is_none());
        hand.answer(Message::Rversion { msize: 8192, version: dialect.version().into() });
        assert_eq!(poll_once(version.as_mut()), Some(Ok(dialect)));
        hand
    }

    /// Answers what was asked last.
    fn answer(&mut self, reply: Message) {
        let mut out = Segments::new();
        while self.client.poll_output(&mut out, 1 << 16) {}
        let sent: Vec<u8> = out.runs().flatten().copied().collect();
        let mut at = 0;
        let mut tag = NOTAG;
        while let Some(&[a, b, c, d, _, e, f]) = sent[at..].first_chunk() {
            tag = u16::from_le_bytes([e, f]);
            at += u32::from_le_bytes([a, b, c, d]) as usize;
        }
        let mut out = Segments::new();
        reply.put(tag, self.conn.dialect().unwrap_or(Dialect::Plan9), &mut out);
        let mut input: BytesMut = out.runs().flatten().copied().collect::<Vec<u8>>()[..].into();
        self.client.handle_input(Instant::now(), &mut input).unwrap();
    }

    /// What comes of a future whose requests are answered like this.
    fn meets<F: Future>(&mut self, work: F, answers: &[Message]) -> F::Output {
        let mut work = Box::pin(work);
        for answer in answers {
            assert!(poll(work.as_mut()).is_none(), "it asks no more before {answer:?}");
            self.answer(answer.clone());
        }
        poll(work.as_mut()).expect("no more answers are wanted")
    }
}

fn poll<F: Future>(work: Pin<&mut F>) -> Option<F::Output> {
    poll_once(work)
}

#[test]
fn a_server_that_makes_no_sense_with_attributes_is_told() {
    let mut hand = Hand::speaking(Dialect::Linux);
    let conn = hand.conn.clone();
    let value = |name: &str| conn.xattr(0, name.into());
    let huge = Message::Rxattrwalk { size: 1 << 40 };
    assert_eq!(code_of(hand.meets(value("a"), &[huge])), Errno::EPROTO);
    let some = Message::Rxattrwalk { size: 5 };
    for data in [&b""[..], b"123456"] {
        let answers = [some.clone(), Message::Rread { data: data.to_vec().into() }];
        assert_eq!(code_of(hand.meets(value("a"), &answers)), Errno::EPROTO);
    }
    let set = || conn.set_xattr(0, "a".into(), b"123"[..].into(), SetXattr::Any);
    let walked = Message::Rwalk { qids: Default::default() };
    for count in [0, 4] {
        let answers = [walked.clone(), Message::Rxattrcreate {}, Message::Rwrite { count }];
        assert_eq!(code_of(hand.meets(set(), &answers)), Errno::EPROTO);
    }
    let refused = Message::Rlerror { ecode: Errno::ENOSPC };
    assert_eq!(code_of(hand.meets(set(), &[walked.clone(), refused.clone()])), Errno::ENOSPC);
    let to_the_end = [walked, Message::Rxattrcreate {}, Message::Rwrite { count: 3 }, refused];
    assert_eq!(code_of(hand.meets(set(), &to_the_end)), Errno::ENOSPC);
}

#[test]
fn an_error_in_u_counts_by_its_number_and_else_by_its_words() {
    let mut hand = Hand::speaking(Dialect::Unix);
    let conn = hand.conn.clone();
    let mut tell = |ename: &str, errno: u32| {
        let call = conn.call(Message::Tstat { fid: 0 });
        let error = Message::Rerror { ename: ename.into(), errno: Number(errno) };
        match hand.meets(call, &[error]) {
            Err(CallError::Errno(errno)) => errno,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(tell("no way", 13).to_string(), "permission denied: no way");
    assert_eq!(tell("File exists", 0).code, Errno::EEXIST);
    assert_eq!(tell("no way", u32::MAX), Errno::because(Errno::EIO, "no way"));
}

/// What a client makes of a server that answers its offers of Covey's dialect and .L like this.
fn offered(answers: &[Message]) -> std::result::Result<Dialect, CallError> {
    let (conn, client) = client::pair(client::Config::default(), Instant::now());
    let mut hand = Hand { conn: conn.clone(), client };
    hand.meets(conn.version(), answers)
}

#[test]
fn a_dialect_that_is_refused_with_an_error_is_followed_by_the_next_offer() {
    // As diod does, of what it does not know.
    let refused = Message::Rlerror { ecode: Errno::EIO };
    let spoken = Message::Rversion { msize: 8192, version: "9P2000.L".into() };
    assert_eq!(offered(&[refused.clone(), spoken]), Ok(Dialect::Linux));
    let words = Message::Rerror { ename: "Permission denied".into(), errno: Number(u32::MAX) };
    match offered(&[refused, words]) {
        Err(CallError::Lost(why)) => {
            assert!(why.contains("9P2000.L") && why.contains("permission denied"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    let unknown = Message::Rversion { msize: 8192, version: "unknown".into() };
    assert!(matches!(offered(&[unknown.clone(), unknown]), Err(CallError::Lost(_))));
}

#[test]
fn calls_that_cannot_be_made_fail_alone() {
    let mut hand = Hand::speaking(Dialect::Linux);
    let version = || Message::Tversion { msize: 8192, version: "9P2000.L".into() };
    let first = hand.conn.call(version());
    let mut second = Box::pin(hand.conn.call(version()));
    assert_eq!(code_of(poll_once(second.as_mut()).unwrap()), Errno::EBUSY);
    hand.answer(Message::Rversion { msize: 8192, version: "9P2000.L".into() });
    drop(first);
    // Every tag is taken.
    let calls: Vec<_> = (0..0xff00).map(|_| hand.conn.call(walk(0, 1, &[]))).collect();
    let mut last = Box::pin(hand.conn.call(walk(0, 1, &[])));
    assert_eq!(code_of(poll_once(last.as_mut()).unwrap()), Errno::EAGAIN);
    hand.conn.close("enough");
    let mut lost = calls.into_iter().next().map(Box::pin).unwrap();
    let lost = poll_once(lost.as_mut()).unwrap().unwrap_err();
    assert_eq!(lost, CallError::Lost("enough".into()));
    assert_eq!(Errno::from(lost).code, Errno::EIO);
    let input = &mut BytesMut::from(&[7, 0, 0, 0, 109, 0, 0][..]);
    assert!(matches!(hand.client.handle_input(Instant::now(), input), Err(Blame::Io(_))));
}
