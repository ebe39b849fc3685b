//! A session from version to the end.

mod pair;

use covey_ninep::message::{Dialect, Message, Qid};
use covey_ninep::tree::{Attach, Opened, Outcome, Tree, User};
use covey_wire::{Bytes, Name};
use pair::*;
use std::rc::Rc;

struct Hello;

impl Tree for Hello {
    type Node = ();
    fn attach(&self, _: Attach) -> Outcome<(User, Qid, ())> {
        Outcome::Now(Ok((User { uid: 0, gid: 0, groups: vec![] }, Qid::default(), ())))
    }
    fn walk(&self, _: &Rc<User>, _: &(), names: &[Name]) -> Outcome<Vec<(Qid, ())>> {
        Outcome::Now(Ok(names.iter().map(|_| (Qid::default(), ())).collect()))
    }
    fn open(&self, _: &Rc<User>, _: &(), _: u32) -> Outcome<Opened<()>> {
        Outcome::Now(Ok(Opened { qid: Qid::default(), node: (), blocking: false }))
    }
    fn read(&self, _: &Rc<User>, _: &(), _: u64, _: u32) -> Outcome<Bytes> {
        Outcome::later(async { Ok(Bytes::from_static(b"hello")) })
    }
}

#[test]
fn walk_open_and_read_leave_in_one_write_and_come_back_in_one() {
    let mut pair = Pair::attached(Hello);
    assert_eq!(pair.conn.dialect(), Some(Dialect::Covey));
    let (writes, replies) = (pair.client_writes.len(), pair.server_writes.len());
    let conn = pair.conn.clone();
    let calls = [walk(0, 1, &["a"]), open(1, 0), read(1, 0, 5)].map(|message| conn.call(message));
    let [walked, opened, got] = calls;
    assert!(matches!(pair.run(walked), Ok(Message::Rwalk { .. })));
    assert!(matches!(pair.run(opened), Ok(Message::Rlopen { .. })));
    assert_eq!(data(pair.run(got)), b"hello");
    assert_eq!(pair.client_writes.len(), writes + 1);
    assert_eq!(pair.server_writes.len(), replies + 1);
}
