//! What a peer can have before its first attach, and what a known one can have afterwards.

use crate::pair::gate::Gate;
use crate::pair::raw::{Raw, attach, ecode};
use crate::pair::*;
use covey_ninep::client::CallError;
use covey_ninep::message::{Message, NOFID, NONUNAME, Number};
use covey_ninep::server::{Config, Door, STRANGER_MESSAGE_BYTES_MAX, STRANGER_MESSAGES_MAX, Share};
use covey_ninep::tree::{Errno, Peer, Result};
use covey_wire::{Blame, Machine, Name, Payload, Segments};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

const KEY: [u8; 32] = [1; 32];

fn locked() -> Config {
    Config { key: Some(KEY.into()), nonce: [4; 32], require_key: true, ..Config::default() }
}

fn stranger(config: Config) -> Raw<Gate> {
    let mut raw = Raw::new(Rc::new(Gate::default()), config);
    raw.version("9P2000.L.covey");
    raw
}

fn auth(afid: u32, uname: Name) -> Message {
    Message::Tauth { afid, uname, aname: Name::EMPTY, n_uname: Number(NONUNAME) }
}

fn bytes(message: &Message) -> Vec<u8> {
    let mut out = Segments::new();
    message.put(1, covey_ninep::message::Dialect::Linux, &mut out);
    out.runs().flatten().copied().collect()
}

#[test]
fn a_connection_has_few_authentication_files_and_gets_them_back() {
    let mut raw = stranger(locked());
    for afid in 0..16 {
        assert!(matches!(raw.ask(auth(afid, "root".into())), Message::Rauth { .. }), "{afid}");
    }
    assert_eq!(ecode(&raw.ask(auth(16, "root".into()))), Errno::EMFILE);
    assert_eq!(raw.ask(Message::Tclunk { fid: 3 }), Message::Rclunk {});
    assert!(matches!(raw.ask(auth(16, "root".into())), Message::Rauth { .. }));
}

#[test]
fn the_name_in_an_auth_is_short_and_does_not_keep_its_message() {
    let mut raw = stranger(locked());
    let long = |bytes: usize| Name::from(vec![b'x'; bytes]);
    assert!(matches!(raw.ask(auth(1, long(255))), Message::Rauth { .. }));
    assert_eq!(ecode(&raw.ask(auth(2, long(256)))), Errno::ENAMETOOLONG);
    // The buffer that a Tauth came in is free again once it was answered.
    let mut input = covey_wire::BytesMut::with_capacity(64 << 10);
    let room = input.as_ptr();
    input.extend_from_slice(&bytes(&auth(3, "root".into())));
    raw.session.handle_input(Instant::now(), &mut input).expect("a request");
    assert!(matches!(raw.replies()[..], [(1, Message::Rauth { .. })]));
    input.reserve(64 << 10);
    assert_eq!(input.as_ptr(), room, "nothing else refers to it");
}

#[test]
fn before_an_attach_messages_are_short() {
    let write = |bytes: u32| Message::Twrite {
        fid: 1,
        offset: 0,
        data: Payload::from(vec![0; bytes as usize - 23]),
    };
    let limit = STRANGER_MESSAGE_BYTES_MAX;
    assert_eq!(ecode(&stranger(locked()).ask(write(limit))), Errno::EBADF);
    let mut raw = stranger(locked());
    // Its header is enough: nobody makes room for the rest.
    let head = &bytes(&write(limit + 1))[..7];
    assert!(raw.session.bytes_wanted(head) < limit as usize);
    let Err(Blame::Violation(why)) = raw.feed_bytes(head) else { panic!("it was taken") };
    assert!(why.contains("before an attach"), "{why}");
    let mut known = Raw::attached(Rc::new(Gate::default()));
    assert_eq!(ecode(&known.ask(write(limit + 1))), Errno::EBADF);
}

#[test]
fn before_an_attach_messages_are_few() {
    let flush = (1, Message::Tflush { oldtag: 9 });
    let mut raw = stranger(locked());
    for _ in 1..STRANGER_MESSAGES_MAX {
        raw.feed(std::slice::from_ref(&flush)).expect("one of the first");
    }
    assert!(matches!(raw.feed(std::slice::from_ref(&flush)), Err(Blame::Violation(_))));
    let mut known = Raw::attached(Rc::new(Gate::default()));
    for _ in 0..2 * STRANGER_MESSAGES_MAX {
        known.feed(std::slice::from_ref(&flush)).expect("it is known");
    }
}

#[test]
fn who_does_not_attach_in_time_is_sent_away() {
    let begun = Instant::now();
    let attach_by = begun + Duration::from_secs(10);
    let config = || Config { attach_by: Some(attach_by), ..Config::default() };
    let mut raw = stranger(config());
    assert_eq!(raw.session.poll_deadline(), Some(attach_by));
    let just_before = attach_by - Duration::from_millis(1);
    raw.session.handle_timeout(just_before).expect("there is time left");
    assert!(matches!(raw.session.handle_timeout(attach_by), Err(Blame::Violation(_))));
    let mut raw = stranger(config());
    assert!(matches!(raw.ask(attach(0, NOFID)), Message::Rattach { .. }));
    assert_eq!(raw.session.poll_deadline(), None);
    raw.session.handle_timeout(attach_by).expect("it has attached");
}

/// Admits who is let, and remembers everything.
#[derive(Default)]
struct Porter {
    share: Rc<Share>,
    is_closed: Cell<bool>,
    heard: RefCell<Vec<String>>,
}

impl Door for Porter {
    fn admit(&self, peer: &Peer) -> Result<Rc<Share>> {
        if self.is_closed.get() {
            Err(Errno::because(Errno::EMFILE, "full house"))
        } else {
            self.heard.borrow_mut().push(format!("in, key {}", peer.has_key));
            Ok(self.share.clone())
        }
    }

    fn asked(&self) {
        self.heard.borrow_mut().push("asked".into());
    }

    fn refused(&self, why: &Errno) {
        self.heard.borrow_mut().push(format!("refused: {}", why.reason));
    }
}

fn behind(porter: &Rc<Porter>, config: Config) -> Pair<Gate> {
    let mut pair = Pair::raw(Rc::new(Gate::default()), Default::default(), config);
    pair.server = pair.server.map(|server| server.behind(porter.clone()));
    let conn = pair.conn.clone();
    pair.run(conn.version()).expect("a version");
    pair
}

fn enter(pair: &mut Pair<Gate>, key: Option<[u8; 32]>) -> std::result::Result<(), CallError> {
    let conn = pair.conn.clone();
    pair.run(conn.auth_and_attach(0, "root", Some(0), "/", key, [3; 32])).map(drop)
}

#[test]
fn the_shell_hears_who_came_in_who_was_refused_and_who_has_another_key() {
    let porter = Rc::new(Porter::default());
    let heard = || porter.heard.take();
    enter(&mut behind(&porter, locked()), Some(KEY)).expect("the right key");
    assert_eq!(heard(), ["asked", "in, key true"]);
    enter(&mut behind(&porter, locked()), None).expect_err("no key");
    assert_eq!(heard(), ["refused: the cluster key must be proven first"]);
    // Its own check of the server ends it: it never comes to prove anything.
    enter(&mut behind(&porter, locked()), Some([2; 32])).expect_err("another key");
    assert_eq!(heard(), ["asked"]);
}

#[test]
fn who_is_not_admitted_stays_a_stranger_and_may_try_again() {
    let porter = Rc::new(Porter::default());
    porter.is_closed.set(true);
    let mut pair = behind(&porter, Config::default());
    let Err(CallError::Errno(refusal)) = enter(&mut pair, None) else { panic!("it was let in") };
    assert_eq!(refusal.code, Errno::EMFILE);
    assert_eq!(porter.heard.take(), ["refused: full house"]);
    let server = pair.server.as_ref().expect("it goes on");
    assert!(!server.is_known());
    assert_eq!(server.fid_count(), 0);
    porter.is_closed.set(false);
    enter(&mut pair, None).expect("there is room");
    assert!(pair.server.as_ref().expect("it goes on").is_known());
}

#[test]
fn a_peer_that_takes_nothing_is_given_no_more_than_its_share() {
    let porter = Rc::new(Porter { share: Rc::new(Share::new(1 << 20)), ..Porter::default() });
    let mut raw = Raw::new(Rc::new(Gate::default()), Config::default());
    raw.session = raw.session.behind(porter.clone());
    raw.version("9P2000.L.covey");
    assert!(matches!(raw.ask(attach(0, NOFID)), Message::Rattach { .. }));
    assert_eq!(raw.session.output_bytes_max(), 64 << 10);
    let flushes: Vec<u8> = (0..4096).flat_map(|_| bytes(&Message::Tflush { oldtag: 9 })).collect();
    let mut fed = 0;
    // As the loop does: no input while the machine is full or what it has said is not taken.
    while !raw.session.is_full() && fed < 64 << 20 {
        raw.feed_bytes(&flushes).expect("requests");
        fed += flushes.len();
    }
    assert!(fed <= (2 << 20), "{fed} bytes of requests were taken");
    drop(raw.replies());
    let fids = (1..2000).find(|&fid| {
        let clone = Message::Twalk { fid: 0, newfid: fid, names: covey_wire::List(vec![]) };
        !matches!(raw.ask(clone), Message::Rwalk { .. })
    });
    assert_eq!(fids, Some(1024));
    // Others have come: what it has it keeps.
    porter.share.set(512 << 10);
    assert_eq!(raw.session.fid_count(), 1024);
    let clone = Message::Twalk { fid: 0, newfid: 5000, names: covey_wire::List(vec![]) };
    assert_eq!(ecode(&raw.ask(clone)), Errno::EMFILE);
}

#[test]
fn connections_of_one_user_hold_no_more_than_their_total_whoever_came_first() {
    const TOTAL: usize = 32 << 10;
    let share = Rc::new(Share::with_total(1 << 20, TOTAL));
    let connect = || {
        let porter = Rc::new(Porter { share: share.clone(), ..Porter::default() });
        let mut raw = Raw::new(Rc::new(Gate::default()), Config::default());
        raw.session = raw.session.behind(porter);
        raw.version("9P2000.L.covey");
        assert!(matches!(raw.ask(attach(0, NOFID)), Message::Rattach { .. }));
        raw
    };
    let flushes: Vec<u8> = (0..512).flat_map(|_| bytes(&Message::Tflush { oldtag: 9 })).collect();
    let fill = |raw: &mut Raw<Gate>| {
        let mut fed = 0;
        while !raw.session.is_full() && fed < 64 << 20 {
            raw.feed_bytes(&flushes).expect("requests");
            fed += flushes.len();
        }
        fed
    };
    let mut first = connect();
    assert!(fill(&mut first) >= TOTAL);
    let mut later = connect();
    let fed = fill(&mut later);
    assert!(fed <= 2 * flushes.len(), "{fed} bytes were taken beyond the total");
    // One whose answers are taken in is served nevertheless.
    drop(later.replies());
    assert!(matches!(later.ask(Message::Tflush { oldtag: 9 }), Message::Rflush {}));
    drop(first);
    drop(later.replies());
    assert!(fill(&mut later) >= TOTAL, "its room is another's now");
}

#[test]
fn what_the_loop_has_taken_and_not_sent_counts_as_held() {
    const READ: u32 = 64 << 10;
    const CONNECTIONS: usize = 16;
    let share = Rc::new(Share::with_total(1 << 20, 4 * READ as usize));
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let porter = Rc::new(Porter { share: share.clone(), ..Porter::default() });
        let mut raw = Raw::new(Rc::new(Gate::default()), Config::default());
        raw.session = raw.session.behind(porter);
        raw.version("9P2000.L");
        raw.ask(attach(0, NOFID));
        raw.feed(&[(1, walk(0, 1, &["f"])), (2, open(1, 0))]).unwrap();
        raw.replies();
        // As the loop does for a peer that takes nothing.
        let (mut taken, mut tag) = (Segments::new(), 0);
        let most = raw.session.output_bytes_max();
        while !raw.session.is_full() && tag < 100 {
            tag += 1;
            raw.feed(&[(tag, read(1, 0, READ))]).unwrap();
            while taken.len() < most && raw.session.poll_output(&mut taken, most) {}
        }
        held.push((raw, taken));
    }
    let all = |(raw, taken): &mut (Raw<Gate>, Segments)| {
        while raw.session.poll_output(taken, 1 << 30) {}
        taken.len()
    };
    let bytes: usize = held.iter_mut().map(all).sum();
    let limit = (4 + CONNECTIONS) * (READ as usize + 100);
    assert!(bytes <= limit, "{bytes} bytes are held, {limit} may be");
    // One that is sent what it waits for is served again.
    let (raw, _) = &mut held[0];
    raw.replies();
    assert!(!raw.session.is_full());
}
