//! The proof of the cluster key.

use crate::pair::gate::Gate;
use crate::pair::raw::{Raw, attach, ecode};
use crate::pair::*;
use covey_ninep::auth::{self, KeyRing};
use covey_ninep::client::CallError;
use covey_ninep::message::{Message, NOFID, NONUNAME, Number, Qid};
use covey_ninep::server::{Config, Guest, Nothing, Preauth, STRANGER_MESSAGES_MAX, Session};
use covey_ninep::tree::{Errno, Peer, Tree};
use covey_wire::{Blame, Machine};
use std::rc::Rc;
use std::time::{Duration, Instant};

const KEY: [u8; 32] = [1; 32];
const OTHER: [u8; 32] = [2; 32];
const NONCE: [u8; 32] = [3; 32];

fn config(key: Option<KeyRing>) -> Config {
    Config { key, nonce: [4; 32], require_key: true, ..Config::default() }
}

fn enter(
    server: Option<[u8; 32]>,
    client: Option<[u8; 32]>,
) -> (Result<Qid, CallError>, Vec<String>) {
    enter_with(server.map(Into::into), client)
}

fn enter_with(
    server: Option<KeyRing>,
    client: Option<[u8; 32]>,
) -> (Result<Qid, CallError>, Vec<String>) {
    let gate = Gate::default();
    let mut pair = Pair::raw(Rc::new(gate.clone()), Default::default(), config(server));
    let conn = pair.conn.clone();
    pair.run(conn.version()).unwrap();
    let result = pair.run(conn.auth_and_attach(0, "root", Some(0), "/data", client, NONCE));
    (result, gate.log())
}

fn refused(result: Result<Qid, CallError>) -> u32 {
    match result {
        Err(CallError::Errno(errno)) => errno.code,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn both_sides_with_the_key_meet() {
    let (result, log) = enter(Some(KEY), Some(KEY));
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(log, ["key true", "attach /data"]);
}

#[test]
fn while_the_key_is_replaced_a_server_takes_both_and_no_other() {
    let keys = Some(KeyRing { now: KEY, other: Some(OTHER) });
    for key in [KEY, OTHER] {
        let (result, log) = enter_with(keys, Some(key));
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(log, ["key true", "attach /data"]);
    }
    for key in [Some([7; 32]), None] {
        let (result, log) = enter_with(keys, key);
        assert_eq!(refused(result), Errno::EACCES);
        assert_eq!(log, [""; 0], "the tree was asked");
    }
}

#[test]
fn the_first_of_two_keys_is_proven_first_for_those_who_read_one_proof_only() {
    let mut one = auth::Server::new(KEY, [4; 32]);
    let mut two = auth::Server::new(KeyRing { now: KEY, other: Some(OTHER) }, [4; 32]);
    for server in [&mut one, &mut two] {
        server.write(&NONCE).unwrap();
    }
    let (old, new) = (one.read(0, 64).unwrap(), two.read(0, 4096).unwrap());
    assert_eq!((old.len(), new.len()), (64, 96));
    assert_eq!(new[..64], old[..]);
    assert!(auth::prove(&OTHER, &NONCE, &old).is_err());
    two.write(&auth::prove(&OTHER, &NONCE, &new).unwrap()).unwrap();
    assert!(two.is_proven());
    // A server that shows more proofs than it can have keys is not searched for one that fits.
    let long = [&new[..64], &[0; 32], &new[64..]].concat();
    assert!(auth::prove(&OTHER, &NONCE, &long).is_err());
}

#[test]
fn neither_a_wrong_key_nor_none_gets_in() {
    for client in [Some(OTHER), None] {
        let (result, log) = enter(Some(KEY), client);
        assert_eq!(refused(result), Errno::EACCES);
        assert_eq!(log, [""; 0], "the tree was asked");
    }
}

/// A guest with its key at a server that has both.
fn visit(uname: &str, aname: &str, key: [u8; 32]) -> (Result<Qid, CallError>, Vec<String>) {
    let gate = Gate::default();
    let guest = Guest { uname: "image", key: OTHER.into(), aname: "/boot", uid: 65534 };
    let config = Config { guest: Some(guest), ..config(Some(KEY.into())) };
    let mut pair = Pair::raw(Rc::new(gate.clone()), Default::default(), config);
    let conn = pair.conn.clone();
    pair.run(conn.version()).unwrap();
    (pair.run(conn.auth_and_attach(0, uname, None, aname, Some(key), NONCE)), gate.log())
}

#[test]
fn a_guest_gets_into_one_tree_and_has_not_the_key() {
    for aname in ["/boot", "/boot node id"] {
        let (result, log) = visit("image", aname, OTHER);
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(log, ["key false", &format!("attach {aname}")]);
    }
    for aname in ["", "/", "/data", "/boot/..", "/booty", "/data /boot", " /boot"] {
        let (result, log) = visit("image", aname, OTHER);
        assert_eq!(refused(result), Errno::EACCES, "{aname}");
        assert_eq!(log, [""; 0], "the tree was asked for {aname}");
    }
}

#[test]
fn a_guests_key_is_not_the_clusters_nor_the_other_way_round() {
    for (uname, key) in [("root", OTHER), ("image", KEY), ("image", NONCE), ("images", OTHER)] {
        let (result, log) = visit(uname, "/boot", key);
        assert_eq!(refused(result), Errno::EACCES, "{uname}");
        assert_eq!(log, [""; 0], "the tree was asked for {uname}");
    }
    assert!(visit("root", "/data", KEY).0.is_ok());
}

#[test]
fn a_client_with_a_key_turns_away_from_a_server_without_one() {
    assert_eq!(refused(enter(None, Some(KEY)).0), Errno::EACCES);
}

#[test]
fn a_client_finds_out_a_server_that_only_pretends() {
    let nonce_server_and_nonsense = [9; 64];
    let error = auth::prove(&KEY, &NONCE, &nonce_server_and_nonsense).unwrap_err();
    assert_eq!(error.code, Errno::EACCES);
    assert_eq!(auth::prove(&KEY, &NONCE, &[9; 31]).unwrap_err().code, Errno::EACCES);
}

#[test]
fn the_proofs_are_those_of_the_specification() {
    // HMAC-SHA256 of the label and the two nonces, computed with another implementation.
    let mut server = auth::Server::new(KEY, [4; 32]);
    server.write(&NONCE).unwrap();
    let answer = server.read(0, 99).unwrap();
    assert_eq!(answer[..32], [4; 32]);
    assert_eq!(hex(&answer[32..]), SERVER_PROOF);
    assert_eq!(hex(&auth::prove(&KEY, &NONCE, &answer).unwrap()), CLIENT_PROOF);
}

#[test]
fn parts_may_come_in_pieces_but_not_run_over() {
    let mut server = auth::Server::new(KEY, [4; 32]);
    assert_eq!(server.read(0, 64).unwrap_err().code, Errno::EINVAL);
    server.write(&NONCE[..10]).unwrap();
    assert_eq!(server.write(&NONCE).unwrap_err().code, Errno::EINVAL);
    server.write(&NONCE[10..]).unwrap();
    let answer = server.read(0, 64).unwrap();
    assert_eq!(server.read(60, 64).unwrap(), answer[60..]);
    let proof = auth::prove(&KEY, &NONCE, &answer).unwrap();
    server.write(&proof[..31]).unwrap();
    assert!(!server.is_proven());
    server.write(&proof[31..]).unwrap();
    assert!(server.is_proven());
}

/// A server that requires the key, after Tauth and the nonce on afid 5: its answer.
fn challenged() -> (Raw<Gate>, Vec<u8>) {
    challenge(Raw::new(Rc::new(Gate::default()), config(Some(KEY.into()))))
}

fn challenge<T: Tree>(mut raw: Raw<T>) -> (Raw<T>, Vec<u8>) {
    raw.version("9P2000.L");
    let (uname, aname, n_uname) = ("root".into(), "".into(), Number(NONUNAME));
    let reply = raw.ask(Message::Tauth { afid: 5, uname, aname, n_uname });
    assert!(matches!(reply, Message::Rauth { aqid } if aqid.kind == Qid::AUTH));
    raw.ask(write(5, 0, &NONCE));
    match raw.ask(read(5, 0, 64)) {
        Message::Rread { data } => (raw, data.into_bytes().to_vec()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_authentication_file_that_saw_a_wrong_proof_is_dead() {
    let (mut raw, answer) = challenged();
    let proof = auth::prove(&KEY, &NONCE, &answer).unwrap();
    let mut wrong = proof.to_vec();
    wrong[31] ^= 1;
    assert_eq!(ecode(&raw.ask(write(5, 32, &wrong))), Errno::EACCES);
    assert_eq!(ecode(&raw.ask(write(5, 32, &proof))), Errno::EACCES);
    assert_eq!(ecode(&raw.ask(attach(0, 5))), Errno::EACCES);
}

#[test]
fn an_attach_needs_the_proof_and_the_name_it_was_made_for() {
    let (mut raw, answer) = challenged();
    assert_eq!(ecode(&raw.ask(attach(0, 5))), Errno::EACCES);
    let proof = auth::prove(&KEY, &NONCE, &answer).unwrap();
    assert_eq!(ecode(&raw.ask(write(5, 32, &proof))), 0);
    let (uname, aname, n_uname) = ("other".into(), "".into(), Number(NONUNAME));
    let other = Message::Tattach { fid: 0, afid: 5, uname, aname, n_uname };
    assert_eq!(ecode(&raw.ask(other)), Errno::EACCES);
    assert!(matches!(raw.ask(attach(0, 5)), Message::Rattach { .. }));
    assert_eq!(ecode(&raw.ask(attach(1, NOFID))), Errno::EACCES);
    assert_eq!(ecode(&raw.ask(attach(1, 0))), Errno::EBADF);
}

/// One that talks to strangers only, on a thread of its own.
fn before_attach(config: Config) -> Raw<Nothing> {
    Raw::over(Preauth::before_attach(Peer::default(), config))
}

/// The server with the tree, which goes on with what may cross threads.
fn resume(raw: Raw<Nothing>) -> Raw<Gate> {
    fn crosses<T: Send>(begun: T) -> T {
        begun
    }
    let begun = raw.session.into_begun().expect("an attach that may be granted");
    let mut raw = Raw::over(Session::resume(Rc::new(Gate::default()), crosses(begun), None));
    raw.dialect = raw.session.dialect().expect("it was settled");
    raw
}

#[test]
fn a_proof_made_before_the_tree_was_there_counts_with_the_tree() {
    let (mut raw, answer) = challenge(before_attach(config(Some(KEY.into()))));
    assert_eq!(ecode(&raw.ask(attach(0, 5))), Errno::EACCES);
    assert_eq!(ecode(&raw.ask(attach(0, NOFID))), Errno::EACCES);
    let proof = auth::prove(&KEY, &NONCE, &answer).expect("the server has the key");
    assert_eq!(ecode(&raw.ask(write(5, 32, &proof))), 0);
    assert!(!raw.session.has_begun(), "no attach yet");
    // What a client sends behind the attach, in the same packet, is the tree's, too.
    raw.feed(&[(3, attach(0, 5)), (4, walk(0, 1, &[]))]).expect("requests");
    assert!(raw.session.has_begun() && raw.session.is_full());
    assert!(raw.replies().is_empty(), "a tree has to answer it");
    let mut raw = resume(raw);
    let replies = raw.replies();
    assert!(
        matches!(replies[..], [(3, Message::Rattach { .. }), (4, Message::Rwalk { .. })]),
        "{replies:?}"
    );
    assert!(raw.session.is_known());
    // The proof is that of its own afid, and no other key's.
    assert_eq!(ecode(&raw.ask(attach(2, NOFID))), Errno::EACCES);
    assert!(matches!(raw.ask(attach(2, 5)), Message::Rattach { .. }));
}

#[test]
fn nothing_but_an_attach_in_good_order_goes_on_to_a_tree() {
    let mut raw = before_attach(config(Some(KEY.into())));
    raw.version("9P2000.L");
    let requests = [
        attach(0, NOFID),
        attach(0, 9),
        walk(0, 1, &["x"]),
        open(0, 0),
        Message::Tclunk { fid: 0 },
        Message::Tflush { oldtag: 1 },
        read(0, 0, 10),
    ];
    for request in requests {
        drop(raw.ask(request));
        assert!(!raw.session.has_begun());
    }
    assert!(raw.session.into_begun().is_none());
}

/// The thread of the tree may have been busy for long.
#[test]
fn an_attach_that_was_asked_for_in_time_is_answered_however_late() {
    let (begun, time) = (Instant::now(), Duration::from_secs(10));
    let attach_by = |at| Some(at + time);
    let mut raw = before_attach(Config { attach_by: attach_by(begun), ..Config::default() });
    raw.version("9P2000.L");
    raw.feed(&[(1, attach(0, NOFID))]).expect("in time");
    let settled = raw.session.into_begun().expect("an attach");
    let late = begun + 2 * time;
    let tree = Rc::new(Gate::default());
    let mut raw = Raw::over(Session::resume(tree, settled, attach_by(late)));
    // As the loop does: it looks at the clock first.
    raw.session.handle_timeout(late).expect("there is time again");
    assert!(matches!(raw.replies()[..], [(1, Message::Rattach { .. })]));
}

/// A stranger's messages are few, on both sides of the change together.
#[test]
fn what_was_said_before_the_tree_was_there_is_counted_on() {
    let gate = Gate::default();
    // Nobody is let in meanwhile.
    gate.close("attach ");
    let mut raw = before_attach(Config::default());
    raw.version("9P2000.L");
    let flush = (9, Message::Tflush { oldtag: 9 });
    for _ in 0..STRANGER_MESSAGES_MAX - 2 {
        raw.feed(std::slice::from_ref(&flush)).expect("one of the first");
    }
    drop(raw.replies());
    raw.feed(&[(1, attach(0, NOFID)), flush.clone()]).expect("the last message, and one more");
    let begun = raw.session.into_begun().expect("an attach");
    let mut raw = Raw::over(Session::resume(Rc::new(gate), begun, None));
    assert!(matches!(raw.feed(&[flush]), Err(Blame::Violation(_))), "65 messages and no attach");
}

#[test]
fn a_server_without_a_key_answers_tauth_as_diods_clients_expect() {
    let mut raw = Raw::new(Rc::new(Gate::default()), Config::default());
    raw.version("9P2000.L");
    let (uname, aname, n_uname) = ("root".into(), "".into(), Number(0));
    let reply = raw.ask(Message::Tauth { afid: 5, uname, aname, n_uname });
    assert_eq!(ecode(&reply), Errno::ENOENT);
    assert!(matches!(raw.ask(attach(0, NOFID)), Message::Rattach { .. }));
}

#[test]
fn an_authentication_file_is_no_file() {
    let (mut raw, _) = challenged();
    assert_eq!(ecode(&raw.ask(walk(5, 6, &["x"]))), Errno::EBADF);
    assert_eq!(ecode(&raw.ask(open(5, 0))), Errno::EBADF);
    assert!(matches!(raw.ask(Message::Tclunk { fid: 5 }), Message::Rclunk {}));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const SERVER_PROOF: &str = "1f667f455ced386b3516cd849a606688f0ec934e85e1aea4f3e8b6514da42a03";
const CLIENT_PROOF: &str = "9baaed5a55ebce0317d5cfacb249359ebd3a05068735a628e7dd17b3daa607f5";
