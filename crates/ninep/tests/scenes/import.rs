//! Another server's tree, bound in a namespace: two connections, one behind the other.

use crate::pair::gate::Gate;
use crate::pair::paths::{Door, Driven};
use crate::pair::*;
use covey_ninep::client::{Conn, Fid};
use covey_ninep::import::Import;
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::Message;
use covey_ninep::namespace::Namespace;
use covey_ninep::text::Text;
use covey_ninep::tree::*;
use covey_wire::{Bytes, Name};
use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;

/// A client of a namespace that imports the tree of another server as `/n/far`.
struct Chain {
    near: Pair<Namespace>,
    far: Rc<RefCell<Pair<Namespace>>>,
}

impl Chain {
    fn settle(&mut self) {
        while self.near.step() | self.far.borrow_mut().step() {}
    }
}

impl Driven for Chain {
    fn conn(&self) -> Conn {
        self.near.conn.clone()
    }

    fn drive<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        for _ in 0..1000 {
            if let Some(output) = poll_once(future.as_mut()) {
                return output;
            }
            self.settle();
        }
        panic!("the future waits for something that never comes");
    }
}

/// The far server has `mem`, `gate` and `n`; the near one attaches there as who has come to it.
fn chain() -> (Chain, Gate) {
    let (gate, names) = (Gate::default(), Namespace::new(Door));
    names.bind("mem", Rc::new(MemoryTree::default())).unwrap();
    names.bind("gate", Rc::new(gate.clone())).unwrap();
    names.bind("n/near", Rc::new(Text::new(|| "no end"))).unwrap();
    let mut far = Pair::raw(Rc::new(names), Default::default(), Default::default());
    let conn = far.conn.clone();
    far.run(conn.version()).unwrap();
    let import = Import::new(Box::new(move |user: &User| {
        let (conn, uid) = (conn.clone(), user.uid);
        Box::pin(async move {
            let fid = Fid::new(&conn);
            let attached =
                conn.auth_and_attach(fid.number(), "", Some(uid), "", None, [0; 32]).await;
            Ok((fid, attached?))
        })
    }));
    let names = Namespace::new(Door);
    names.bind("n/far", Rc::new(import.hide("n"))).unwrap();
    names.bind("mem", Rc::new(MemoryTree::default())).unwrap();
    let mut chain = Chain {
        near: Pair::raw(Rc::new(names), Default::default(), Default::default()),
        far: Rc::new(RefCell::new(far)),
    };
    let conn = chain.near.conn.clone();
    chain.drive(conn.version()).unwrap();
    chain.drive(conn.auth_and_attach(0, "", Some(41), "", None, [0; 32])).unwrap();
    (chain, gate)
}

#[test]
fn an_imported_tree_is_used_as_if_it_were_here() {
    let (mut chain, _) = chain();
    assert_eq!(chain.names_at("n/far").unwrap(), [".", "..", "mem", "gate"]);
    chain.put_at("n/far/mem", "file", "over there").unwrap();
    assert_eq!(chain.text_at("n/far/mem/file").as_deref(), Ok("over there"));
    assert_eq!(chain.text_at("mem/file"), Err(Errno::ENOENT));
    assert_eq!(chain.text_at("n/far/mem/nothing"), Err(Errno::ENOENT));
    assert_eq!(chain.text_at("n/far/mem/../../far/mem/file").as_deref(), Ok("over there"));
    let mem = chain.walk_to(0, "n/far/mem").unwrap();
    chain.ask(Message::Tmkdir { dfid: mem, name: "dir".into(), mode: 0o755, gid: 7 }).unwrap();
    let dir = chain.walk_to(mem, "dir").unwrap();
    let rename = Message::Trenameat {
        olddirfid: mem,
        oldname: "file".into(),
        newdirfid: dir,
        newname: "moved".into(),
    };
    chain.ask(rename).unwrap();
    assert_eq!(chain.names_at("n/far/mem/dir").unwrap(), [".", "..", "moved"]);
    let moved = chain.walk_to(dir, "moved").unwrap();
    chain.ask(Message::Tlink { dfid: mem, fid: moved, name: "again".into() }).unwrap();
    let symlink =
        Message::Tsymlink { dfid: mem, name: "sym".into(), target: "again".into(), gid: 0 };
    chain.ask(symlink).unwrap();
    let sym = chain.walk_to(mem, "sym").unwrap();
    let target = chain.ask(Message::Treadlink { fid: sym });
    assert_eq!(target, Ok(Message::Rreadlink { target: "again".into() }));
    chain.ask(Message::Tunlinkat { dirfid: dir, name: "moved".into(), flags: 0 }).unwrap();
    assert_eq!(chain.text_at("n/far/mem/again").as_deref(), Ok("over there"));
    assert_eq!(chain.text_at("n/far/mem/dir/moved"), Err(Errno::ENOENT));
}

#[test]
fn attributes_go_both_ways() {
    let (mut chain, _) = chain();
    chain.put_at("n/far/mem", "file", "12345678").unwrap();
    let fid = chain.walk_to(0, "n/far/mem/file").unwrap();
    let set = Message::Tsetattr {
        fid,
        valid: 1 | 2 | 4 | 8 | 32 | 256,
        mode: 0o600,
        uid: 3,
        gid: 4,
        size: 5,
        atime_sec: 0,
        atime_nsec: 0,
        mtime_sec: 77,
        mtime_nsec: 88,
    };
    chain.ask(set).unwrap();
    match chain.ask(Message::Tgetattr { fid, request_mask: 0x3fff }) {
        Ok(Message::Rgetattr { mode, uid, gid, size, mtime_sec, mtime_nsec, .. }) => {
            assert_eq!((mode, uid, gid, size), (S_IFREG | 0o600, 3, 4, 5));
            assert_eq!((mtime_sec, mtime_nsec), (77, 88));
        }
        other => panic!("no Rgetattr: {other:?}"),
    }
    let conn = chain.conn();
    let value = Bytes::from_static(b"value");
    chain.drive(conn.set_xattr(fid, "user.x".into(), value.clone(), SetXattr::Create)).unwrap();
    assert_eq!(chain.drive(conn.xattr(fid, "user.x".into())), Ok(value));
    assert_eq!(chain.drive(conn.list_xattrs(fid)).unwrap(), ["user.x".into()]);
    chain.drive(conn.remove_xattr(fid, "user.x".into())).unwrap();
    assert_eq!(code_of(chain.drive(conn.xattr(fid, "user.x".into()))), Errno::ENODATA);
    assert!(chain.ask(Message::Tstatfs { fid }).is_ok());
    assert!(chain.ask(Message::Tfsync { fid, datasync: 0 }).is_ok());
}

#[test]
fn long_data_and_lists_pass_in_order() {
    let (mut chain, _) = chain();
    chain.put_at("n/far/mem", "file", "").unwrap();
    let fid = chain.open_at("n/far/mem/file", 2).unwrap();
    let long: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
    let calls = [
        chain.conn().call(write(fid, 0, &long)),
        chain.conn().call(write(fid, 3, b"abc")),
        chain.conn().call(read(fid, 0, 8)),
        chain.conn().call(write(fid, 0, b"xyz")),
        chain.conn().call(read(fid, 0, 300_000)),
    ];
    let replies = calls.map(|call| chain.drive(call));
    let [_, _, Ok(Message::Rread { data: short }), _, Ok(Message::Rread { data: all })] = replies
    else {
        panic!("two reads are answered")
    };
    assert_eq!(short.into_bytes(), &b"\0\x01\x02abc\x06\x07"[..]);
    let all = all.into_bytes();
    assert_eq!((&all[..6], &all[6..]), (&b"xyzabc"[..], &long[6..]));
    let ranges = [0u64, 2, 4].map(|at| [&at.to_le_bytes()[..], &1u32.to_le_bytes()].concat());
    let view: covey_wire::Payload = ranges.concat().into();
    let (start, end) = (0, 5);
    let read = Message::Treadview { fid, start, end, count: 3, view: view.clone() };
    match chain.ask(read.clone()) {
        Ok(Message::Rreadview { data }) => assert_eq!(data.into_bytes(), &b"xzb"[..]),
        other => panic!("no Rreadview: {other:?}"),
    }
    let write = Message::Twriteview { fid, start, end, view, data: b"123".to_vec().into() };
    assert_eq!(chain.ask(write), Ok(Message::Rwriteview { count: 3 }));
    match chain.ask(read) {
        Ok(Message::Rreadview { data }) => assert_eq!(data.into_bytes(), &b"123"[..]),
        other => panic!("no Rreadview: {other:?}"),
    }
}

#[test]
fn the_far_server_is_told_who_has_come() {
    let (mut chain, _) = chain();
    chain.put_at("n/far/mem", "file", "x").unwrap();
    let fid = chain.walk_to(0, "n/far/mem/file").unwrap();
    match chain.ask(Message::Tgetattr { fid, request_mask: 0x7ff }) {
        Ok(Message::Rgetattr { uid, .. }) => assert_eq!(uid, 41),
        other => panic!("no Rgetattr: {other:?}"),
    }
}

#[test]
fn a_server_s_own_imports_are_not_shown_so_that_there_is_an_end() {
    let (mut chain, _) = chain();
    assert_eq!(chain.walk_to(0, "n/far/n"), Err(Errno::ENOENT));
    assert_eq!(chain.walk_to(0, "n/far/n/near"), Err(Errno::ENOENT));
    assert_eq!(chain.walk_to(0, "n/far/mem/../n/near"), Err(Errno::ENOENT));
    // Elsewhere a name is a name.
    let mem = chain.walk_to(0, "n/far/mem").unwrap();
    chain.ask(Message::Tmkdir { dfid: mem, name: "n".into(), mode: 0o755, gid: 7 }).unwrap();
    assert_eq!(chain.names_at("n/far/mem").unwrap(), [".", "..", "n"]);
    // However little room there is for an answer.
    let names = |entries: Vec<covey_ninep::message::DirEntry>| entries.len();
    assert_eq!(names(chain.entries_at("n/far", 40).unwrap()), 4);
}

#[test]
fn a_read_that_waits_there_is_flushed_there() {
    let (mut chain, gate) = chain();
    let fid = chain.open_at("n/far/gate/blocking", 2).unwrap();
    gate.close("read 0");
    gate.log();
    let mut waits = Box::pin(chain.conn().call(read(fid, 0, 3)));
    chain.settle();
    assert!(poll_once(waits.as_mut()).is_none());
    // It does not hold up the write that would end it, though they overlap.
    chain.ask(write(fid, 0, b"abc")).unwrap();
    assert_eq!(gate.log(), ["read 0", "write 0"]);
    drop(waits);
    chain.settle();
    assert_eq!(gate.log(), ["drop read 0"]);
    let waits = chain.conn().call(read(fid, 0, 3));
    chain.settle();
    let clunk = chain.ask(Message::Tclunk { fid });
    assert_eq!(clunk, Ok(Message::Rclunk {}));
    assert_eq!(code(chain.drive(waits)), Errno::EINTR);
    chain.settle();
    let log = gate.log();
    assert_eq!(log[..2], ["read 0", "drop read 0"]);
    assert!(log[2].starts_with("clunk"), "{log:?}");
}

#[test]
fn a_client_that_is_lost_here_is_lost_there_and_one_that_closes_is_not() {
    let (mut chain, gate) = chain();
    let closed = chain.open_at("n/far/gate/blocking", 1).unwrap();
    chain.open_at("n/far/gate/blocking", 1).unwrap();
    chain.open_at("n/far/gate/plain", 1).unwrap();
    chain.ask(Message::Tclunk { fid: closed }).unwrap();
    chain.settle();
    let ends = |gate: &Gate| {
        let ends = |what: &String| what.ends_with(":open");
        gate.log().into_iter().filter(ends).collect::<Vec<_>>()
    };
    assert_eq!(ends(&gate), ["clunk /blocking:open"]);
    chain.near.server = None;
    chain.settle();
    // Nobody waits for the other one.
    assert_eq!(ends(&gate), ["cut /blocking:open", "clunk /plain:open"]);
}

#[test]
fn a_server_that_is_lost_is_an_error_and_no_fid_stays_behind() {
    let (mut chain, _) = chain();
    chain.put_at("n/far/mem", "file", "x").unwrap();
    let held = chain.far.borrow().server.as_ref().unwrap().fid_count();
    let file = chain.open_at("n/far/mem/file", 0).unwrap();
    chain.ask(Message::Tclunk { fid: file }).unwrap();
    chain.settle();
    assert_eq!(chain.far.borrow().server.as_ref().unwrap().fid_count(), held);
    let file = chain.open_at("n/far/mem/file", 0).unwrap();
    chain.far.borrow().conn.close("the cable was cut");
    assert_eq!(code(chain.ask(read(file, 0, 9))), Errno::EIO);
    let n = chain.walk_to(0, "n").unwrap();
    assert_eq!(chain.walk_to(n, "far"), Err(Errno::EIO));
    assert!(chain.text_at("mem/file").is_err(), "this server goes on");
    assert_eq!(chain.names_at("mem").unwrap(), [".", ".."]);
}

#[test]
fn a_walk_that_fails_late_says_why() {
    let (mut chain, _) = chain();
    let dfid = chain.walk_to(0, "n/far/mem").unwrap();
    chain.ask(Message::Tmkdir { dfid, name: "d".into(), mode: 0o755, gid: 7 }).unwrap();
    let fid = chain.walk_to(dfid, "d").unwrap();
    let file = Message::Tlcreate { fid, name: "f".into(), flags: 0, mode: 0o644, gid: 7 };
    chain.ask(file).unwrap();
    let conn = chain.near.conn.clone();
    let mut walk = |path: &str| {
        let names: Vec<Name> = path.split('/').map(Name::from).collect();
        chain.drive(Fid::walk(&conn, 0, &names)).map(drop).map_err(|error| Errno::from(error).code)
    };
    assert_eq!(walk("n/far/mem/d/f"), Ok(()));
    assert_eq!(walk("n/far/mem/d/f/x/y"), Err(Errno::ENOTDIR));
    assert_eq!(walk("n/far/mem/d/none/y"), Err(Errno::ENOENT));
    assert_eq!(walk("none/y"), Err(Errno::ENOENT));
}
