//! Extended attributes: fids that hold one to be read, or one to be written.

use crate::pair::raw::{Raw, ecode};
use crate::pair::*;
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::Message;
use covey_ninep::tree::{Errno, SetXattr, XATTR_BYTES_MAX};
use std::rc::Rc;

fn raw() -> Raw<MemoryTree> {
    Raw::attached(Rc::new(MemoryTree::default()))
}

fn xattr_walk(fid: u32, newfid: u32, name: &str) -> Message {
    Message::Txattrwalk { fid, newfid, name: name.into() }
}

fn xattr_create(fid: u32, name: &str, attr_size: u64, flags: u32) -> Message {
    Message::Txattrcreate { fid, name: name.into(), attr_size, flags }
}

/// Sets an attribute of the root through fid 9, up to the clunk's answer.
fn set(raw: &mut Raw<MemoryTree>, name: &str, value: &[u8], flags: u32) -> Message {
    assert_eq!(raw.ask(walk(0, 9, &[])), Message::Rwalk { qids: Default::default() });
    let created = raw.ask(xattr_create(9, name, value.len() as u64, flags));
    if created != (Message::Rxattrcreate {}) {
        raw.ask(Message::Tclunk { fid: 9 });
        return created;
    }
    if !value.is_empty() {
        raw.ask(write(9, 0, value));
    }
    raw.ask(Message::Tclunk { fid: 9 })
}

#[test]
fn an_attribute_is_set_by_the_clunk_and_read_through_a_fid_of_its_own() {
    let mut raw = raw();
    raw.ask(walk(0, 1, &[]));
    assert_eq!(raw.ask(xattr_create(1, "user.a", 5, 0)), Message::Rxattrcreate {});
    assert_eq!(raw.ask(write(1, 0, b"hel")), Message::Rwrite { count: 3 });
    assert_eq!(ecode(&raw.ask(xattr_walk(0, 2, "user.a"))), Errno::ENODATA);
    assert_eq!(raw.ask(write(1, 3, b"lo")), Message::Rwrite { count: 2 });
    assert_eq!(raw.ask(write(1, 0, b"j")), Message::Rwrite { count: 1 });
    assert_eq!(raw.ask(Message::Tclunk { fid: 1 }), Message::Rclunk {});
    assert_eq!(raw.ask(xattr_walk(0, 2, "user.a")), Message::Rxattrwalk { size: 5 });
    let all = Message::Rread { data: b"jello".to_vec().into() };
    assert_eq!(raw.ask(read(2, 0, 100)), all);
    assert_eq!(raw.ask(read(2, 3, 1)), Message::Rread { data: b"l".to_vec().into() });
    assert_eq!(raw.ask(read(2, u64::MAX, 1)), Message::Rread { data: Vec::new().into() });
    // What is read later does not change what the fid holds.
    set(&mut raw, "user.a", b"new", 0);
    assert_eq!(raw.ask(read(2, 0, 100)), all);
    assert_eq!(raw.ask(Message::Tclunk { fid: 2 }), Message::Rclunk {});
}

#[test]
fn the_list_has_every_name_with_a_nul_behind_it() {
    let mut raw = raw();
    assert_eq!(raw.ask(xattr_walk(0, 1, "")), Message::Rxattrwalk { size: 0 });
    set(&mut raw, "user.a", b"1", 0);
    set(&mut raw, "user.bc", b"2", 0);
    assert_eq!(raw.ask(xattr_walk(0, 2, "")), Message::Rxattrwalk { size: 15 });
    let list = b"user.a\0user.bc\0".to_vec();
    assert_eq!(raw.ask(read(2, 0, 100)), Message::Rread { data: list.into() });
}

#[test]
fn create_and_replace_are_kept_to_and_nothing_with_replace_removes() {
    let mut raw = raw();
    let done = Message::Rclunk {};
    assert_eq!(ecode(&set(&mut raw, "user.a", b"1", 2)), Errno::ENODATA);
    assert_eq!(set(&mut raw, "user.a", b"1", 1), done);
    assert_eq!(ecode(&set(&mut raw, "user.a", b"2", 1)), Errno::EEXIST);
    assert_eq!(set(&mut raw, "user.a", b"2", 2), done);
    assert_eq!(set(&mut raw, "user.empty", b"", 0), done);
    assert_eq!(raw.ask(xattr_walk(0, 1, "user.empty")), Message::Rxattrwalk { size: 0 });
    assert_eq!(set(&mut raw, "user.a", b"", 2), done);
    assert_eq!(ecode(&raw.ask(xattr_walk(0, 2, "user.a"))), Errno::ENODATA);
    assert_eq!(ecode(&set(&mut raw, "user.a", b"", 2)), Errno::ENODATA);
}

#[test]
fn what_cannot_be_an_attribute_is_refused_and_every_fid_is_free_after_its_clunk() {
    let mut raw = raw();
    let long = "x".repeat(256);
    for (name, size, flags, code) in [
        ("", 1, 0, Errno::ERANGE),
        (&*long, 1, 0, Errno::ERANGE),
        ("user.\0", 1, 0, Errno::EINVAL),
        ("user.a", 1, 3, Errno::EINVAL),
        ("user.a", XATTR_BYTES_MAX as u64 + 1, 0, Errno::E2BIG),
        ("user.a", u64::MAX, 0, Errno::E2BIG),
    ] {
        raw.ask(walk(0, 1, &[]));
        assert_eq!(ecode(&raw.ask(xattr_create(1, name, size, flags))), code, "{name} {size}");
        // The fid is still the file.
        assert!(matches!(raw.ask(walk(1, 2, &[])), Message::Rwalk { .. }));
        raw.ask(Message::Tclunk { fid: 1 });
        raw.ask(Message::Tclunk { fid: 2 });
    }
    assert_eq!(ecode(&raw.ask(xattr_walk(0, 1, &long))), Errno::ERANGE);
    assert_eq!(ecode(&raw.ask(xattr_walk(7, 1, "user.a"))), Errno::EBADF);
    assert_eq!(ecode(&raw.ask(xattr_walk(7, 1, ""))), Errno::EBADF);
    assert_eq!(ecode(&raw.ask(xattr_walk(0, 0, "user.a"))), Errno::EBADF);
    assert_eq!(ecode(&raw.ask(xattr_walk(0, 0, ""))), Errno::EBADF);
    assert_eq!(ecode(&raw.ask(xattr_create(7, "user.a", 1, 0))), Errno::EBADF);
    raw.ask(walk(0, 3, &[]));
    raw.ask(open(3, 0));
    assert_eq!(ecode(&raw.ask(xattr_create(3, "user.a", 1, 0))), Errno::EINVAL);
}

#[test]
fn writes_that_leave_a_hole_or_are_too_many_are_refused_and_too_few_set_nothing() {
    let mut raw = raw();
    raw.ask(walk(0, 1, &[]));
    raw.ask(xattr_create(1, "user.a", 4, 0));
    assert_eq!(ecode(&raw.ask(write(1, 1, b"x"))), Errno::EINVAL);
    assert_eq!(ecode(&raw.ask(write(1, u64::MAX, b"x"))), Errno::EINVAL);
    assert_eq!(ecode(&raw.ask(write(1, 0, b"12345"))), Errno::ENOSPC);
    raw.ask(write(1, 0, b"123"));
    assert_eq!(ecode(&raw.ask(write(1, 3, b"45"))), Errno::ENOSPC);
    assert_eq!(ecode(&raw.ask(read(1, 0, 9))), Errno::EBADF);
    assert_eq!(ecode(&raw.ask(Message::Tclunk { fid: 1 })), Errno::EINVAL);
    assert_eq!(ecode(&raw.ask(xattr_walk(0, 1, "user.a"))), Errno::ENODATA);
}

#[test]
fn the_fid_of_an_attribute_is_no_file() {
    let mut raw = raw();
    set(&mut raw, "user.a", b"1", 0);
    raw.ask(xattr_walk(0, 1, "user.a"));
    for request in [
        walk(1, 2, &[]),
        open(1, 0),
        write(1, 0, b"x"),
        Message::Tgetattr { fid: 1, request_mask: 1 },
        xattr_walk(1, 2, "user.a"),
        xattr_create(1, "user.b", 1, 0),
    ] {
        assert_eq!(ecode(&raw.ask(request.clone())), Errno::EBADF, "{request:?}");
    }
    assert_eq!(ecode(&raw.ask(Message::Tremove { fid: 1 })), Errno::EPERM);
    assert_eq!(ecode(&raw.ask(Message::Tclunk { fid: 1 })), Errno::EBADF);
}

#[test]
fn a_connection_holds_sixteen_mebibytes_of_attributes_and_no_more() {
    let mut raw = raw();
    let held = (16 << 20) / XATTR_BYTES_MAX as u32;
    for fid in 1..=held {
        raw.ask(walk(0, fid, &[]));
        let created = raw.ask(xattr_create(fid, "user.a", XATTR_BYTES_MAX as u64, 0));
        assert_eq!(created, Message::Rxattrcreate {});
    }
    let more = xattr_create(held + 1, "user.a", 1, 0);
    raw.ask(walk(0, held + 1, &[]));
    assert_eq!(ecode(&raw.ask(more.clone())), Errno::ENOMEM);
    raw.ask(Message::Tclunk { fid: 1 });
    assert_eq!(raw.ask(more), Message::Rxattrcreate {});
}

#[test]
fn the_client_sets_lists_gets_and_removes() {
    let mut pair = Pair::attached(MemoryTree::default());
    let conn = pair.conn.clone();
    let long: Vec<u8> = (0..XATTR_BYTES_MAX).map(|at| at as u8).collect();
    let set = |name: &str, value: &[u8], rule| {
        conn.set_xattr(0, name.into(), value.to_vec().into(), rule)
    };
    pair.run(set("user.a", b"1", SetXattr::Create)).unwrap();
    pair.run(set("user.long", &long, SetXattr::Any)).unwrap();
    assert_eq!(pair.run(conn.list_xattrs(0)).unwrap(), ["user.a".into(), "user.long".into()]);
    assert_eq!(pair.run(conn.xattr(0, "user.long".into())).unwrap(), long);
    assert_eq!(code_of(pair.run(set("user.a", b"2", SetXattr::Create))), Errno::EEXIST);
    assert_eq!(code_of(pair.run(set("user.a", b"", SetXattr::Replace))), Errno::EINVAL);
    pair.run(conn.remove_xattr(0, "user.a".into())).unwrap();
    assert_eq!(code_of(pair.run(conn.xattr(0, "user.a".into()))), Errno::ENODATA);
    assert_eq!(code_of(pair.run(conn.xattr(0, "".into()))), Errno::ERANGE);
    assert_eq!(code_of(pair.run(conn.remove_xattr(0, "user.a".into()))), Errno::ENODATA);
    let many = vec![0; XATTR_BYTES_MAX + 1];
    assert_eq!(code_of(pair.run(set("user.a", &many, SetXattr::Any))), Errno::E2BIG);
    pair.settle();
    assert_eq!(pair.server.as_ref().unwrap().fid_count(), 1);
}
