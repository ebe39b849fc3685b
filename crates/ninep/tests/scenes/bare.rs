//! What a tree that serves as little as can be answers to each request: an errno of its own, and never
//! silence.

use crate::pair::raw::{Raw, ecode};
use crate::pair::{open, walk};
use covey_ninep::message::{Dialect, Message, Qid};
use covey_ninep::tree::*;
use covey_wire::Name;
use std::rc::Rc;

/// A root, and nothing else.
struct Bare;

/// A root that can be opened; of which kind its qid says.
struct Openable(u8);

fn root(kind: u8) -> Outcome<(User, Qid, ())> {
    let qid = Qid { kind, version: 0, path: 1 };
    Ok((User { uid: 0, gid: 0, groups: vec![] }, qid, ())).into()
}

impl Tree for Bare {
    type Node = ();

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, ())> {
        root(Qid::DIR)
    }
}

impl Tree for Openable {
    type Node = ();

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, ())> {
        root(self.0)
    }

    fn open(&self, _: &Rc<User>, _: &(), _: u32) -> Outcome<Opened<()>> {
        let qid = Qid { kind: self.0, version: 0, path: 1 };
        Ok(Opened { qid, node: (), blocking: false }).into()
    }

    /// More than a creation looks for.
    fn make(&self, _: &Rc<User>, _: &(), _: Name, _: Make, _: u32) -> Outcome<Qid> {
        Ok(Qid::default()).into()
    }

    fn walk(&self, _: &Rc<User>, _: &(), names: &[Name]) -> Outcome<Vec<(Qid, ())>> {
        let is_there = names[0].as_bytes() != b"none";
        Ok(if is_there { vec![(Qid::default(), ())] } else { vec![] }).into()
    }
}

fn all(fid: u32) -> Vec<(Message, u32)> {
    let (name, to) = (Name::from("x"), Name::from("y"));
    let client_id = Name::from("c");
    let set = Message::Tsetattr {
        fid,
        valid: 1,
        mode: 0o644,
        uid: 0,
        gid: 0,
        size: 0,
        atime_sec: 0,
        atime_nsec: 0,
        mtime_sec: 0,
        mtime_nsec: 0,
    };
    let lock = Message::Tlock {
        fid,
        kind: 0,
        flags: 0,
        start: 0,
        length: 0,
        proc_id: 1,
        client_id: client_id.clone(),
    };
    let getlock = Message::Tgetlock { fid, kind: 0, start: 0, length: 0, proc_id: 1, client_id };
    let make_node = Message::Tmknod {
        dfid: fid,
        name: name.clone(),
        mode: S_IFREG | 0o644,
        major: 0,
        minor: 0,
        gid: 0,
    };
    let symlink = Message::Tsymlink { dfid: fid, name: name.clone(), target: to.clone(), gid: 0 };
    let rename = Message::Trenameat {
        olddirfid: fid,
        oldname: name.clone(),
        newdirfid: fid,
        newname: to.clone(),
    };
    let create = Message::Tlcreate { fid, name: name.clone(), flags: 2, mode: 0o644, gid: 0 };
    vec![
        (walk(fid, 9, &["x"]), Errno::EOPNOTSUPP),
        (Message::Tgetattr { fid, request_mask: 0x7ff }, Errno::EOPNOTSUPP),
        (set, Errno::EOPNOTSUPP),
        (create, Errno::EROFS),
        (Message::Tmkdir { dfid: fid, name: name.clone(), mode: 0o755, gid: 0 }, Errno::EROFS),
        (make_node, Errno::EROFS),
        (symlink, Errno::EROFS),
        (Message::Treadlink { fid }, Errno::EINVAL),
        (Message::Tlink { dfid: fid, fid, name: name.clone() }, Errno::EOPNOTSUPP),
        (rename, Errno::EROFS),
        (Message::Trename { fid, dfid: fid, name: to }, Errno::EOPNOTSUPP),
        (Message::Tunlinkat { dirfid: fid, name: name.clone(), flags: 0 }, Errno::EROFS),
        (lock, Errno::EOPNOTSUPP),
        (getlock, Errno::EOPNOTSUPP),
        (Message::Txattrwalk { fid, newfid: 9, name: Name::EMPTY }, Errno::EOPNOTSUPP),
        (Message::Txattrwalk { fid, newfid: 9, name }, Errno::EOPNOTSUPP),
        (Message::Tcall { fid, body: vec![1].into() }, Errno::EOPNOTSUPP),
        (open(fid, 0), Errno::EOPNOTSUPP),
        // The fid goes with the answer, whatever it is.
        (Message::Tremove { fid }, Errno::EOPNOTSUPP),
    ]
}

#[test]
fn a_tree_that_serves_nothing_says_so_to_each_request() {
    let count = all(1).len();
    for at in 0..count {
        let mut raw = Raw::attached(Rc::new(Bare));
        assert_eq!(ecode(&raw.ask(walk(0, 1, &[]))), 0);
        let (request, code) = all(1).swap_remove(at);
        assert_eq!(ecode(&raw.ask(request.clone())), code, "{}", request.name());
    }
}

#[test]
fn an_attribute_that_cannot_be_set_or_removed_is_told_by_the_clunk() {
    for attr_size in [0, 1] {
        let mut raw = Raw::attached(Rc::new(Bare));
        raw.ask(walk(0, 1, &[]));
        let create = Message::Txattrcreate { fid: 1, name: "user.x".into(), attr_size, flags: 0 };
        assert_eq!(ecode(&raw.ask(create)), 0);
        if attr_size > 0 {
            assert_eq!(ecode(&raw.ask(crate::pair::write(1, 0, b"v"))), 0);
        }
        assert_eq!(ecode(&raw.ask(Message::Tclunk { fid: 1 })), Errno::EOPNOTSUPP);
    }
}

#[test]
fn what_is_open_and_cannot_be_read_or_written_says_so() {
    let mut raw = Raw::attached(Rc::new(Openable(Qid::FILE)));
    raw.ask(walk(0, 1, &[]));
    assert_eq!(ecode(&raw.ask(open(1, 2))), 0);
    assert_eq!(ecode(&raw.ask(crate::pair::read(1, 0, 10))), Errno::EOPNOTSUPP);
    assert_eq!(ecode(&raw.ask(crate::pair::write(1, 0, b"x"))), Errno::EOPNOTSUPP);
    let mut raw = Raw::attached(Rc::new(Openable(Qid::DIR)));
    raw.ask(walk(0, 1, &[]));
    assert_eq!(ecode(&raw.ask(open(1, 0))), 0);
    let list = Message::Treaddir { fid: 1, offset: 0, count: 1000 };
    assert_eq!(ecode(&raw.ask(list)), Errno::ENOTDIR);
}

#[test]
fn a_file_that_was_made_and_is_not_found_is_an_error() {
    let mut raw = Raw::speaking(Rc::new(Openable(Qid::DIR)), Dialect::Linux);
    let create =
        |name: &str| Message::Tlcreate { fid: 0, name: name.into(), flags: 2, mode: 0o644, gid: 0 };
    assert_eq!(ecode(&raw.ask(create("none"))), Errno::EOPNOTSUPP);
}
