//! A session from version to the end.

use crate::pair::gate::Gate;
use crate::pair::raw::{Raw, attach, ecode};
use crate::pair::*;
use covey_ninep::client::{CallError, Config, Fid};
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::{Dialect, IOHDRSZ, MSIZE_DEFAULT, MSIZE_MIN, Message, NOFID, NOTAG};
use covey_ninep::server;
use covey_ninep::tree::{CUT, Errno};
use covey_wire::{Bytes, BytesMut, Machine, Segments};
use std::rc::Rc;
use std::time::Instant;

fn create(fid: u32, name: &str, flags: u32) -> Message {
    Message::Tlcreate { fid, name: name.into(), flags, mode: 0o644, gid: 0 }
}

#[test]
fn walk_open_and_read_leave_in_one_write_and_come_back_in_one() {
    let mut pair = Pair::attached(MemoryTree::default());
    pair.call(walk(0, 1, &[])).unwrap();
    pair.call(create(1, "hello", 2)).unwrap();
    pair.call(write(1, 0, b"hello")).unwrap();
    let (writes, replies) = (pair.client_writes.len(), pair.server_writes.len());
    let conn = pair.conn.clone();
    let calls = [walk(0, 2, &["hello"]), open(2, 0), read(2, 0, 99)];
    let [walked, opened, got] = calls.map(|message| conn.call(message));
    assert!(matches!(pair.run(walked), Ok(Message::Rwalk { .. })));
    assert!(matches!(pair.run(opened), Ok(Message::Rlopen { .. })));
    assert_eq!(data(pair.run(got)), b"hello");
    assert_eq!(pair.client_writes.len(), writes + 1);
    assert_eq!(pair.server_writes.len(), replies + 1);
}

#[test]
fn a_version_is_settled_at_the_best_that_both_know() {
    let answer = |version: &str| {
        let mut raw = Raw::new(Rc::new(Gate::default()), server::Config::default());
        raw.version(version).1
    };
    for known in ["9P2000", "9P2000.u", "9P2000.L", "9P2000.L.covey2"] {
        assert_eq!(answer(known), known);
    }
    for (asked, settled) in [
        ("9P2000.L.covey1", "9P2000.L"),
        ("9P2000.L.covey3", "9P2000.L"),
        ("9P2000.L.covey2.x", "9P2000.L.covey2"),
        ("9P2000.u.x.y", "9P2000.u"),
        ("9P2000.e", "9P2000"),
        ("9P2000.", "9P2000"),
        ("9P2001", "9P2000"),
        ("9P20000.L", "9P2000"),
    ] {
        assert_eq!(answer(asked), settled, "{asked}");
    }
    for unknown in ["", "9P", "9P1999", "9P1999.L", "9P+2000", "8P2000", "unknown", ".L", "9p2000"]
    {
        assert_eq!(answer(unknown), "unknown", "{unknown}");
    }
}

#[test]
fn msize_is_the_smaller_of_both_and_never_below_the_least() {
    let answer = |ours: u32, theirs: u32| {
        let config = server::Config { msize: ours, ..Default::default() };
        let mut raw = Raw::new(Rc::new(Gate::default()), config);
        let version = Message::Tversion { msize: theirs, version: "9P2000.L".into() };
        raw.feed(&[(NOTAG, version)]).unwrap();
        match &raw.replies()[..] {
            [(NOTAG, Message::Rversion { msize, version })] => {
                (*msize, version.lossy().to_string())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(answer(MSIZE_DEFAULT, u32::MAX), (MSIZE_DEFAULT, "9P2000.L".into()));
    assert_eq!(answer(MSIZE_DEFAULT, 8192), (8192, "9P2000.L".into()));
    assert_eq!(answer(8192, MSIZE_DEFAULT), (8192, "9P2000.L".into()));
    assert_eq!(answer(MSIZE_DEFAULT, MSIZE_MIN), (MSIZE_MIN, "9P2000.L".into()));
    assert_eq!(answer(MSIZE_DEFAULT, MSIZE_MIN - 1).1, "unknown");
}

#[test]
fn a_read_is_cut_to_what_fits_a_message() {
    let gate = Gate::default();
    let config = server::Config { msize: 8192, ..Default::default() };
    let mut raw = Raw::new(Rc::new(gate), config);
    raw.version("9P2000.L");
    let requests = [
        (1, attach(0, NOFID)),
        (2, walk(0, 1, &["f"])),
        (3, open(1, 0)),
        (4, read(1, 0, u32::MAX)),
    ];
    raw.feed(&requests).unwrap();
    match raw.replies().pop() {
        Some((4, Message::Rread { data })) => assert_eq!(data.len(), 8192 - IOHDRSZ as usize),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_second_version_cancels_requests_and_clunks_fids() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    gate.close("getattr");
    raw.feed(&[(1, walk(0, 1, &["f"])), (2, Message::Tgetattr { fid: 0, request_mask: 1 })])
        .unwrap();
    assert_eq!(raw.tags(), [1]);
    gate.log();
    raw.version("9P2000.L");
    let mut log = gate.log();
    log.sort();
    assert_eq!(log, ["clunk ", "clunk /f", "drop getattr"]);
    assert_eq!((raw.session.fid_count(), raw.session.request_count()), (0, 0));
    gate.open("getattr");
    assert_eq!(raw.tags(), []);
    assert_eq!(ecode(&raw.ask(walk(0, 1, &[]))), Errno::EBADF);
}

#[test]
fn a_dropped_connection_clunks_every_fid_once() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    gate.close("read 0");
    gate.close("remove");
    let requests = [
        (1, walk(0, 1, &["blocking"])),
        (2, open(1, 0)),
        (3, read(1, 0, 1)),
        (4, walk(0, 2, &["gone"])),
        (5, Message::Tremove { fid: 2 }),
        (6, attach(3, NOFID)),
    ];
    raw.feed(&requests).unwrap();
    assert_eq!(raw.tags(), [1, 2, 4, 6]);
    gate.log();
    drop(raw);
    let mut log = gate.log();
    log.sort();
    let all =
        ["clunk ", "clunk ", "clunk /gone", "cut /blocking:open", "drop read 0", "drop remove"];
    assert_eq!(log, all);
}

#[test]
fn what_is_open_when_the_connection_ends_is_cut_unless_its_peer_has_ended_well() {
    let opened = || {
        let gate = Gate::default();
        let mut raw = Raw::attached(Rc::new(gate.clone()));
        for fid in 1..=3 {
            raw.ask(walk(0, fid, &["f"]));
        }
        raw.ask(open(1, 1));
        raw.ask(open(2, 1));
        raw.ask(Message::Tclunk { fid: 2 });
        assert_eq!(gate.log().pop().as_deref(), Some("clunk /f:open"));
        (gate, raw)
    };
    let (gate, raw) = opened();
    drop(raw);
    assert_eq!(gate.log(), ["clunk ", "cut /f:open", "clunk /f"]);
    let (gate, raw) = opened();
    raw.session.end();
    assert_eq!(gate.log(), ["clunk ", "clunk /f:open", "clunk /f"]);
    let (gate, mut raw) = opened();
    raw.version("9P2000.L");
    assert_eq!(gate.log(), ["clunk ", "cut /f:open", "clunk /f"]);
}

#[test]
fn a_client_that_another_server_has_lost_is_cut_on_a_file_that_others_wait_for() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    raw.ask(walk(0, 1, &["blocking"]));
    raw.ask(walk(0, 2, &["f"]));
    let cut = |fid| Message::Tcall { fid, body: Bytes::from_static(CUT).into() };
    // A tree may have such a call of its own on files that nobody waits for, and on those that are not open.
    assert!(matches!(raw.ask(cut(1)), Message::Rcall { .. }));
    raw.ask(open(2, 1));
    raw.ask(cut(2));
    raw.ask(open(1, 1));
    assert_eq!(gate.log().iter().filter(|what| *what == "call").count(), 2);
    assert!(matches!(raw.ask(cut(1)), Message::Rcall { .. }));
    raw.ask(Message::Tclunk { fid: 1 });
    raw.ask(Message::Tclunk { fid: 2 });
    assert_eq!(gate.log(), ["cut /blocking:open", "clunk /f:open"]);
}

#[test]
fn a_walk_that_stops_half_way_answers_what_it_got_and_makes_no_fid() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    match raw.ask(walk(0, 1, &["a", "missing", "b"])) {
        Message::Rwalk { qids } => assert_eq!(qids.0.len(), 1),
        other => panic!("{other:?}"),
    }
    assert_eq!(ecode(&raw.ask(open(1, 0))), Errno::EBADF);
    assert_eq!(ecode(&raw.ask(walk(0, 1, &["missing"]))), Errno::ENOENT);
}

#[test]
fn an_open_fid_can_be_cloned_but_not_walked_onto_itself() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    raw.ask(walk(0, 1, &["f"]));
    raw.ask(open(1, 0));
    assert_eq!(ecode(&raw.ask(walk(1, 1, &["x"]))), Errno::EINVAL);
    assert!(matches!(raw.ask(walk(1, 2, &[])), Message::Rwalk { .. }));
    assert_eq!(ecode(&raw.ask(read(2, 0, 1))), Errno::EBADF);
    assert!(matches!(raw.ask(open(2, 1)), Message::Rlopen { .. }));
    assert_eq!(ecode(&raw.ask(open(2, 1))), Errno::EINVAL);
}

#[test]
fn a_fid_walked_onto_itself_moves_and_its_old_place_is_clunked() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    raw.ask(walk(0, 1, &["a"]));
    gate.log();
    assert!(matches!(raw.ask(walk(1, 1, &["b"])), Message::Rwalk { .. }));
    assert!(matches!(raw.ask(walk(1, 1, &[])), Message::Rwalk { .. }));
    raw.ask(Message::Tclunk { fid: 1 });
    assert_eq!(gate.log(), ["walk b", "clunk /a", "clunk /a/b"]);
    assert_eq!(ecode(&raw.ask(walk(0, 0, &["missing"]))), Errno::ENOENT);
    assert!(matches!(raw.ask(walk(0, 1, &["a"])), Message::Rwalk { .. }));
}

#[test]
fn reads_and_writes_need_the_mode_that_was_opened() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    for (fid, flags, can_read, can_write) in
        [(1, 0, true, false), (2, 1, false, true), (3, 2, true, true)]
    {
        raw.ask(walk(0, fid, &["f"]));
        raw.ask(open(fid, flags));
        assert_eq!(ecode(&raw.ask(read(fid, 0, 1))) == Errno::EBADF, !can_read);
        assert_eq!(ecode(&raw.ask(write(fid, 0, b"x"))) == Errno::EBADF, !can_write);
    }
    raw.ask(walk(0, 4, &["f"]));
    assert_eq!(ecode(&raw.ask(open(4, 3))), Errno::EINVAL);
}

#[test]
fn fids_that_are_unknown_or_in_use_are_refused() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate));
    for request in [walk(9, 1, &[]), open(9, 0), read(9, 0, 1), Message::Tclunk { fid: 9 }] {
        assert_eq!(ecode(&raw.ask(request)), Errno::EBADF);
    }
    raw.ask(walk(0, 1, &["f"]));
    assert_eq!(ecode(&raw.ask(walk(0, 1, &["g"]))), Errno::EBADF);
    assert_eq!(ecode(&raw.ask(walk(0, NOFID, &["g"]))), Errno::EBADF);
    assert_eq!(ecode(&raw.ask(attach(1, NOFID))), Errno::EBADF);
}

#[test]
fn the_65537th_fid_of_a_connection_is_refused() {
    let mut raw = Raw::attached(Rc::new(Gate::default()));
    let clones: Vec<_> = (1..65536).map(|fid| (1, walk(0, fid, &[]))).collect();
    raw.feed(&clones).unwrap();
    assert!(raw.replies().iter().all(|(_, reply)| ecode(reply) == 0));
    assert_eq!(ecode(&raw.ask(walk(0, 65536, &[]))), Errno::EMFILE);
    raw.ask(Message::Tclunk { fid: 7 });
    assert!(matches!(raw.ask(walk(0, 65536, &[])), Message::Rwalk { .. }));
}

#[test]
fn names_that_are_no_single_component_are_refused() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    gate.log();
    let long = "n".repeat(256);
    for (name, code) in [
        ("", Errno::EINVAL),
        (".", Errno::EINVAL),
        ("a/b", Errno::EINVAL),
        ("a\0", Errno::EINVAL),
        (&long[..], Errno::ENAMETOOLONG),
    ] {
        assert_eq!(ecode(&raw.ask(walk(0, 1, &[name]))), code);
        let mkdir = Message::Tmkdir { dfid: 0, name: name.into(), mode: 0, gid: 0 };
        assert_eq!(ecode(&raw.ask(mkdir)), code);
    }
    let mkdir = Message::Tmkdir { dfid: 0, name: "..".into(), mode: 0, gid: 0 };
    assert_eq!(ecode(&raw.ask(mkdir)), Errno::EINVAL);
    assert_eq!(ecode(&raw.ask(walk(0, 1, &["a"; 17]))), Errno::EINVAL);
    assert_eq!(gate.log(), [""; 0], "the tree was asked");
    assert!(matches!(raw.ask(walk(0, 1, &[".."])), Message::Rwalk { .. }));
    assert!(matches!(raw.ask(walk(0, 2, &[&long[..255]])), Message::Rwalk { .. }));
}

#[test]
fn tcall_is_served_in_coveys_dialect_only() {
    let call = Message::Tcall { fid: 0, body: b"op".to_vec().into() };
    let mut raw = Raw::attached(Rc::new(Gate::default()));
    assert_eq!(raw.ask(call.clone()), Message::Rcall { body: b"op".to_vec().into() });
    let mut raw = Raw::new(Rc::new(Gate::default()), Default::default());
    raw.version("9P2000.L");
    raw.ask(attach(0, NOFID));
    assert_eq!(ecode(&raw.ask(call)), Errno::EOPNOTSUPP);
}

#[test]
fn attributes_that_were_asked_for_are_marked_valid() {
    let mut raw = Raw::attached(Rc::new(Gate::default()));
    match raw.ask(Message::Tgetattr { fid: 0, request_mask: 0x3fff }) {
        // The gate knows no time of birth.
        Message::Rgetattr { valid, .. } => assert_eq!(valid, 0x7ff),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_payload_of_a_write_shares_the_buffer_it_arrived_in() {
    let data = vec![7; 1 << 20];
    let mut out = Segments::new();
    write(1, 0, &data).put(1, Dialect::Linux, &mut out);
    let mut input: BytesMut = out.runs().flatten().copied().collect::<Vec<u8>>()[..].into();
    let at = input.as_ptr() as usize;
    let frame: Bytes = input.split().freeze();
    let (_, message) = Message::get(frame, Dialect::Linux).unwrap();
    let Message::Twrite { data, .. } = message else { panic!() };
    assert_eq!(data.into_bytes().as_ptr() as usize, at + 23);
}

#[test]
fn a_machine_that_is_full_keeps_what_it_was_given_until_there_is_room() {
    let mut raw = Raw::attached(Rc::new(Gate::default()));
    raw.feed(&[(1, walk(0, 1, &["f"])), (2, open(1, 0))]).unwrap();
    raw.replies();
    // 200 answers of 1 MiB are more than a connection may keep in memory.
    let reads: Vec<_> = (0..200).map(|tag| (tag, read(1, 0, 1 << 20))).collect();
    raw.feed(&reads).unwrap();
    assert!(raw.session.is_full());
    assert_eq!(raw.tags(), (0..200).collect::<Vec<u16>>());
    assert!(!raw.session.is_full());
}

#[test]
fn replies_leave_before_more_is_read_than_one_write_takes() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    raw.feed(&[(1, walk(0, 1, &["f"])), (2, open(1, 0))]).unwrap();
    raw.replies();
    gate.log();
    let reads: Vec<_> = (0..4).map(|tag| (tag, read(1, 0, 1 << 20))).collect();
    raw.feed(&reads).unwrap();
    assert_eq!(gate.log().len(), 1);
    assert_eq!(raw.tags(), [0, 1, 2, 3]);
}

/// What a client makes of a server that answers each Tversion with the next of these.
fn met(answers: &[(u32, &str)]) -> Result<Dialect, CallError> {
    let (conn, mut client) =
        covey_ninep::client::pair(Config::default(), std::time::Instant::now());
    let mut version = Box::pin(conn.version());
    for (msize, version_answered) in answers {
        assert!(poll_once(version.as_mut()).is_none());
        let mut sent = Segments::new();
        assert!(client.poll_output(&mut sent, 1000));
        let answer = Message::Rversion { msize: *msize, version: (*version_answered).into() };
        let mut out = Segments::new();
        answer.put(NOTAG, Dialect::Linux, &mut out);
        let mut input: BytesMut = out.runs().flatten().copied().collect::<Vec<u8>>()[..].into();
        client.handle_input(Instant::now(), &mut input).unwrap();
    }
    poll_once(version.as_mut()).expect("no more answers are wanted")
}

#[test]
fn a_client_takes_coveys_dialect_else_l_and_nothing_less() {
    let m = MSIZE_DEFAULT;
    assert_eq!(met(&[(m, "9P2000.L.covey2")]), Ok(Dialect::Covey));
    assert_eq!(met(&[(m, "9P2000.L")]), Ok(Dialect::Linux));
    assert_eq!(met(&[(m, "unknown"), (8192, "9P2000.L")]), Ok(Dialect::Linux));
    assert!(matches!(met(&[(m, "9P2000"), (m, "unknown")]), Err(CallError::Lost(_))));
    assert!(matches!(met(&[(m, "unknown"), (m, "9P2000.L.covey2")]), Err(CallError::Lost(_))));
}

#[test]
fn a_client_refuses_an_msize_that_is_over_its_own_or_below_the_least() {
    assert!(met(&[(MSIZE_MIN, "9P2000.L")]).is_ok());
    assert!(met(&[(MSIZE_DEFAULT, "9P2000.L")]).is_ok());
    for msize in [MSIZE_MIN - 1, MSIZE_DEFAULT + 1] {
        assert!(matches!(met(&[(msize, "9P2000.L")]), Err(CallError::Lost(_))));
    }
}

#[test]
fn a_fid_that_is_dropped_is_clunked_and_its_number_used_again() {
    let gate = Gate::default();
    let mut pair = Pair::attached(gate.clone());
    let fid = Fid::new(&pair.conn);
    let number = fid.number();
    pair.call(walk(0, number, &["f"])).unwrap();
    gate.log();
    drop(fid);
    pair.settle();
    assert_eq!(gate.log(), ["clunk /f"]);
    assert_eq!(pair.conn.fid(), number);
}

#[test]
fn what_cannot_be_sent_fails_alone() {
    let mut pair = Pair::attached(Gate::default());
    let too_long = vec![0; MSIZE_DEFAULT as usize];
    assert_eq!(code(pair.call(write(1, 0, &too_long))), Errno::E2BIG);
    assert!(pair.call(walk(0, 1, &[])).is_ok());
    let (conn, _client) = covey_ninep::client::pair(Config::default(), std::time::Instant::now());
    let early = pair.run(conn.call(walk(0, 1, &[])));
    assert_eq!(code(early), Errno::EPROTO);
}

#[test]
fn the_machine_ends_when_the_last_handle_is_gone_and_all_is_answered() {
    let gate = Gate::default();
    let mut pair = Pair::attached(gate.clone());
    pair.conn.send(walk(0, 1, &["f"]));
    pair.conn.send(Message::Tclunk { fid: 1 });
    gate.log();
    let (spare, _) = covey_ninep::client::pair(Config::default(), std::time::Instant::now());
    pair.conn = spare;
    pair.settle();
    pair.settle();
    assert_eq!(gate.log(), ["walk f", "clunk /f"]);
    assert!(pair.client.is_none());
}

#[test]
fn a_closed_connection_ends_every_call_with_the_reason() {
    let gate = Gate::default();
    let mut pair = Pair::attached(gate.clone());
    gate.close("getattr");
    let call = pair.conn.call(Message::Tgetattr { fid: 0, request_mask: 1 });
    pair.settle();
    let closed = pair.conn.closed();
    pair.conn.close("no more");
    assert_eq!(pair.run(call), Err(CallError::Lost("no more".into())));
    assert_eq!(pair.run(closed), "no more");
    assert!(pair.conn.is_lost());
    let errno = Errno::from(pair.call(walk(0, 1, &[])).unwrap_err());
    assert_eq!(errno.code, Errno::EIO);
}

#[test]
fn a_machine_that_is_dropped_loses_its_calls() {
    let gate = Gate::default();
    let mut pair = Pair::attached(gate.clone());
    gate.close("getattr");
    let call = pair.conn.call(Message::Tgetattr { fid: 0, request_mask: 1 });
    pair.settle();
    pair.client = None;
    assert_eq!(pair.run(call), Err(CallError::Lost("connection closed".into())));
}
