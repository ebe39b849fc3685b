//! A namespace: names bound to trees that know nothing of each other, served as one.

use crate::pair::gate::Gate;
use crate::pair::paths::{Door, Driven};
use crate::pair::raw::{Raw, attach, ecode};
use crate::pair::*;
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::{Dialect, Message, Qid};
use covey_ninep::namespace::Namespace;
use covey_ninep::server;
use covey_ninep::text::Text;
use covey_ninep::tree::*;
use covey_wire::Bytes;
use std::cell::Cell;
use std::rc::Rc;

/// The example of a part: one file of code, one line of binding.
fn clock(now: Rc<Cell<u64>>) -> Namespace {
    let time = Namespace::folder();
    time.bind("now", Rc::new(Text::new(move || format!("{}\n", now.get())))).unwrap();
    time.bind("zone", Rc::new(Text::new(|| "UTC\n"))).unwrap();
    time
}

/// Two trees in memory, a clock, and a tree whose answers can wait.
struct House {
    names: Namespace,
    now: Rc<Cell<u64>>,
    gate: Gate,
}

fn house() -> House {
    let (now, gate) = (Rc::new(Cell::new(7)), Gate::default());
    let names = Namespace::new(Door);
    names.bind("one", Rc::new(MemoryTree::default())).unwrap();
    names.bind("deep/two", Rc::new(MemoryTree::default())).unwrap();
    names.bind("gate", Rc::new(gate.clone())).unwrap();
    names.bind("time", Rc::new(clock(now.clone()))).unwrap();
    House { names, now, gate }
}

#[test]
fn a_bound_tree_is_seen_by_its_name_and_its_neighbours_are_not_disturbed() {
    let house = house();
    let mut pair = Pair::attached(house.names);
    assert_eq!(pair.names_at("/").unwrap(), [".", "..", "one", "deep", "gate", "time"]);
    assert_eq!(pair.names_at("deep").unwrap(), [".", "..", "two"]);
    assert_eq!(pair.names_at("time").unwrap(), [".", "..", "now", "zone"]);
    assert_eq!(pair.text_at("time/now").unwrap(), "7\n");
    assert_eq!(pair.text_at("time/zone").unwrap(), "UTC\n");
    pair.put_at("one", "file", "first").unwrap();
    pair.put_at("deep/two", "file", "second").unwrap();
    assert_eq!(pair.text_at("one/file").unwrap(), "first");
    assert_eq!(pair.text_at("deep/two/file").unwrap(), "second");
    assert_eq!(pair.text_at("two/file"), Err(Errno::ENOENT));
    assert_eq!(pair.text_at("time/then"), Err(Errno::ENOENT));
}

#[test]
fn a_text_is_one_snapshot_for_each_open() {
    let house = house();
    let mut pair = Pair::attached(house.names);
    let before = pair.open_at("time/now", 0).unwrap();
    house.now.set(1234);
    assert_eq!(data(pair.call(read(before, 0, 1))), b"7");
    assert_eq!(data(pair.call(read(before, 1, 9))), b"\n");
    assert_eq!(data(pair.call(read(before, u64::MAX, 9))), b"");
    assert_eq!(pair.text_at("time/now").unwrap(), "1234\n");
    assert_eq!(pair.open_at("time/now", 1), Err(Errno::EROFS));
    assert_eq!(pair.open_at("time/now", O_TRUNC), Err(Errno::EROFS));
}

#[test]
fn the_way_up_leads_out_of_a_part_and_stops_at_the_root() {
    let mut pair = Pair::attached(house().names);
    pair.put_at("deep/two", "file", "second").unwrap();
    pair.put_at("one", "file", "first").unwrap();
    for path in ["deep/two/../two/file", "deep/two/../../deep/two/file", "../../deep/two/file"] {
        assert_eq!(pair.text_at(path).as_deref(), Ok("second"), "{path}");
    }
    assert_eq!(pair.text_at("deep/two/../../one/file").as_deref(), Ok("first"));
    let two = pair.walk_to(0, "deep/two").unwrap();
    let out = pair.walk_to(two, "../../time/zone").unwrap();
    pair.call(open(out, 0)).unwrap();
    assert_eq!(data(pair.call(read(out, 0, 9))), b"UTC\n");
    // A directory of the part is not its root.
    let make = Message::Tmkdir { dfid: two, name: "dir".into(), mode: 0o755, gid: 0 };
    pair.call(make).unwrap();
    assert_eq!(pair.text_at("deep/two/dir/../file").as_deref(), Ok("second"));
    assert_eq!(pair.text_at("deep/two/dir/../../../one/file").as_deref(), Ok("first"));
}

#[test]
fn a_part_that_was_attached_itself_is_the_root() {
    let names = house().names;
    let tree = Rc::new(names);
    for (aname, path) in [("one", ".."), ("/deep/", "../two"), ("/deep/two", "../..")] {
        let mut pair = Pair::raw(tree.clone(), Default::default(), Default::default());
        let conn = pair.conn.clone();
        pair.run(conn.version()).unwrap();
        pair.run(conn.auth_and_attach(0, "root", None, aname, None, [0; 32])).expect(aname);
        let above = pair.walk_to(0, path).expect(aname);
        assert!(pair.walk_to(above, "time").is_err(), "{aname}: nothing is above it");
    }
    let mut raw = Raw::new(tree, server::Config::default());
    raw.version("9P2000.L");
    let attach = |aname: &str| match attach(0, covey_ninep::message::NOFID) {
        Message::Tattach { fid, afid, uname, n_uname, .. } => {
            Message::Tattach { fid, afid, uname, n_uname, aname: aname.into() }
        }
        _ => unreachable!("it is an attach"),
    };
    assert_eq!(ecode(&raw.ask(attach("nowhere"))), Errno::ENOENT);
    assert_eq!(ecode(&raw.ask(attach("one/nowhere"))), Errno::ENOENT);
}

#[test]
fn the_host_decides_who_gets_in_and_a_part_who_gets_further() {
    /// Lets in user 5, and calls them user 6.
    struct Club;
    impl Tree for Club {
        type Node = ();
        fn attach(&self, _: Attach) -> Outcome<(User, Qid, ())> {
            Errno::EPERM.into()
        }
        fn enter(&self, user: &User, _: Attach) -> Outcome<(User, Qid, ())> {
            match user.uid {
                5 => Ok((User { uid: 6, ..user.clone() }, Qid::default(), ())).into(),
                _ => Errno::EACCES.into(),
            }
        }
        fn getattr(&self, user: &Rc<User>, _: &()) -> Outcome<Attr> {
            Ok(Attr { uid: user.uid, mode: S_IFREG, ..Attr::default() }).into()
        }
    }
    let names = Namespace::new(Door);
    names.bind("club", Rc::new(Club)).unwrap();
    let tree = Rc::new(names);
    for (uid, wanted) in [(5, Ok(6)), (4, Err(Errno::EACCES))] {
        let mut pair = Pair::raw(tree.clone(), Default::default(), Default::default());
        let conn = pair.conn.clone();
        pair.run(conn.version()).unwrap();
        let stranger = conn.auth_and_attach(0, "stranger", None, "", None, [0; 32]);
        assert_eq!(code_of(pair.run(stranger)), Errno::EACCES);
        pair.run(conn.auth_and_attach(0, "", Some(uid), "", None, [0; 32])).unwrap();
        let found = pair.walk_to(0, "club").map(|fid| {
            match pair.call(Message::Tgetattr { fid, request_mask: 0x7ff }) {
                Ok(Message::Rgetattr { uid, .. }) => uid,
                other => panic!("no Rgetattr: {other:?}"),
            }
        });
        assert_eq!(found, wanted);
    }
}

#[test]
fn files_of_different_parts_have_different_numbers_that_stay() {
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let mut pair = Pair::attached(house().names);
        let mut found = Vec::new();
        for dir in ["one", "deep/two"] {
            pair.put_at(dir, "file", "x").unwrap();
            found.push(pair.number_at(&format!("{dir}/file")).unwrap());
            let entries = pair.entries_at(dir, 4096).unwrap();
            let file = entries.iter().find(|entry| entry.name.as_bytes() == b"file").unwrap();
            assert_eq!(file.qid.path, *found.last().unwrap(), "listing and attributes agree");
        }
        assert_ne!(found[0], found[1]);
        numbers.push(found);
    }
    assert_eq!(numbers[0], numbers[1]);
    let names = Namespace::new(Door);
    names.bind_plain("plain", Rc::new(MemoryTree::default())).unwrap();
    assert_eq!(Pair::attached(names).number_at("plain"), Ok(1));
}

#[test]
fn nothing_is_linked_or_renamed_from_one_part_to_another() {
    let mut pair = Pair::attached(house().names);
    pair.put_at("one", "file", "x").unwrap();
    let (one, two) = (pair.walk_to(0, "one").unwrap(), pair.walk_to(0, "deep/two").unwrap());
    let file = pair.walk_to(one, "file").unwrap();
    let link = |dfid| Message::Tlink { dfid, fid: file, name: "link".into() };
    let rename = |newdirfid| Message::Trenameat {
        olddirfid: one,
        oldname: "file".into(),
        newdirfid,
        newname: "new".into(),
    };
    assert_eq!(code(pair.call(link(two))), Errno::EXDEV);
    assert_eq!(code(pair.call(rename(two))), Errno::EXDEV);
    assert_eq!(code(pair.call(rename(0))), Errno::EXDEV);
    pair.call(link(one)).unwrap();
    pair.call(rename(one)).unwrap();
    assert_eq!(pair.names_at("one").unwrap(), [".", "..", "link", "new"]);
}

#[test]
fn the_namespace_s_own_directories_cannot_be_changed() {
    let mut pair = Pair::attached(house().names);
    assert_eq!(pair.put_at("/", "file", "x"), Err(Errno::EROFS));
    let mkdir = Message::Tmkdir { dfid: 0, name: "dir".into(), mode: 0o755, gid: 0 };
    assert_eq!(code(pair.call(mkdir)), Errno::EROFS);
    let unlink = Message::Tunlinkat { dirfid: 0, name: "one".into(), flags: 0x200 };
    assert_eq!(code(pair.call(unlink)), Errno::EROFS);
    assert_eq!(pair.open_at("deep", 1), Err(Errno::EISDIR));
    let deep = pair.open_at("deep", 0).unwrap();
    assert_eq!(code(pair.call(read(deep, 0, 9))), Errno::EISDIR);
}

#[test]
fn names_come_and_go_and_what_was_entered_stays() {
    let names = house().names;
    assert_eq!(names.bind("one", Rc::new(MemoryTree::default())).unwrap_err().code, Errno::EEXIST);
    assert_eq!(names.bind("deep", Rc::new(MemoryTree::default())).unwrap_err().code, Errno::EEXIST);
    let inside = names.bind("one/more", Rc::new(MemoryTree::default()));
    assert_eq!(inside.unwrap_err().code, Errno::ENOTDIR);
    assert!(names.bind("a/../b", Rc::new(MemoryTree::default())).is_err());
    assert!(names.bind("/", Rc::new(MemoryTree::default())).is_err());
    let tree = Rc::new(names);
    let mut pair = Pair::raw(tree.clone(), Default::default(), Default::default());
    let conn = pair.conn.clone();
    pair.run(conn.version()).unwrap();
    pair.run(conn.auth_and_attach(0, "root", None, "", None, [0; 32])).unwrap();
    pair.put_at("one", "file", "still here").unwrap();
    let file = pair.open_at("one/file", 0).unwrap();
    tree.unbind("one").unwrap();
    tree.bind("late", Rc::new(MemoryTree::default())).unwrap();
    assert_eq!(pair.names_at("/").unwrap(), [".", "..", "deep", "gate", "time", "late"]);
    assert_eq!(pair.text_at("one/file"), Err(Errno::ENOENT));
    assert_eq!(data(pair.call(read(file, 0, 99))), b"still here");
}

#[test]
fn a_read_that_waits_in_a_part_is_flushed_there() {
    let house = house();
    let mut raw = Raw::attached(Rc::new(house.names));
    raw.feed(&[(1, walk(0, 1, &["gate", "blocking"])), (2, open(1, 2))]).unwrap();
    let opened = raw.replies();
    assert!(matches!(opened[1], (2, Message::Rlopen { iounit: 0, .. })), "{opened:?}");
    house.gate.close("read 0");
    house.gate.log();
    raw.feed(&[(3, read(1, 0, 9)), (4, write(1, 0, b"x")), (5, Message::Tflush { oldtag: 3 })])
        .unwrap();
    assert_eq!(raw.tags(), [4, 5], "the write passes the read, which is never answered");
    assert_eq!(house.gate.log(), ["read 0", "write 0", "drop read 0"]);
    raw.feed(&[(6, read(1, 0, 9)), (7, Message::Tclunk { fid: 1 })]).unwrap();
    assert_eq!(raw.tags(), [6, 7]);
    let log = house.gate.log();
    assert_eq!(log[..2], ["read 0", "drop read 0"]);
    assert!(log[2].starts_with("clunk ") && log.len() == 3, "{log:?}");
}

#[test]
fn a_walk_that_waits_in_a_part_is_as_any_other() {
    let house = house();
    house.gate.close("walk a");
    let mut raw = Raw::attached(Rc::new(house.names));
    raw.feed(&[(1, walk(0, 1, &["gate", "a"])), (2, walk(0, 2, &["one"]))]).unwrap();
    assert_eq!(raw.tags(), [2]);
    house.gate.open("walk a");
    assert!(matches!(&raw.replies()[..], [(1, Message::Rwalk { qids })] if qids.0.len() == 2));
    // The first name is found, the second is not: an answer of one name and no fid.
    raw.feed(&[(3, walk(0, 3, &["gate", "missing"])), (4, Message::Tclunk { fid: 3 })]).unwrap();
    let replies = raw.replies();
    assert!(
        matches!(&replies[0], (3, Message::Rwalk { qids }) if qids.0.len() == 1),
        "{replies:?}"
    );
    assert_eq!(ecode(&replies[1].1), Errno::EBADF);
}

#[test]
fn every_fid_of_a_part_is_clunked_once() {
    let house = house();
    let mut raw = Raw::attached(Rc::new(house.names));
    let walks = [(1, walk(0, 1, &["gate", "a"])), (2, walk(1, 2, &[])), (3, walk(0, 3, &["one"]))];
    raw.feed(&walks).unwrap();
    raw.tags();
    house.gate.log();
    raw.feed(&[(1, Message::Tclunk { fid: 1 })]).unwrap();
    let first = house.gate.log();
    drop(raw);
    assert_eq!((first.len(), house.gate.log()), (1, first));
}

#[test]
fn a_part_that_is_one_file_refuses_writes_and_views() {
    let mut pair = Pair::attached(house().names);
    let zone = pair.open_at("time/zone", 0).unwrap();
    let view = covey_wire::Payload::default();
    let view = Message::Treadview { fid: zone, start: 0, end: 0, count: 0, view };
    assert_eq!(code(pair.call(view)), Errno::EOPNOTSUPP);
    assert_eq!(code(pair.call(write(zone, 0, b"x"))), Errno::EBADF);
}

#[test]
fn a_client_of_another_dialect_sees_the_same() {
    for dialect in [Dialect::Plan9, Dialect::Unix] {
        let mut raw = Raw::speaking(Rc::new(house().names), dialect);
        raw.feed(&[(1, walk(0, 1, &["time", "now"])), (2, Message::Topen { fid: 1, mode: 0 })])
            .unwrap();
        assert_eq!(raw.tags(), [1, 2]);
        let reply = raw.ask(read(1, 0, 9));
        assert!(
            matches!(&reply, Message::Rread { data } if data.clone().into_bytes() == b"7\n"[..]),
            "{reply:?}"
        );
        raw.feed(&[(3, walk(0, 2, &[])), (4, Message::Topen { fid: 2, mode: 0 })]).unwrap();
        raw.tags();
        match raw.ask(read(2, 0, 4096)) {
            Message::Rread { data } => {
                let listing: Bytes = data.into_bytes();
                assert!(listing.windows(4).any(|name| name == b"time"));
            }
            other => panic!("no Rread: {other:?}"),
        }
    }
}
