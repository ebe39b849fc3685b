//! Which request waits for which.

use crate::pair::gate::Gate;
use crate::pair::raw::{Raw, ecode};
use crate::pair::*;
use covey_ninep::message::Message;
use covey_ninep::tree::Errno;
use std::rc::Rc;

/// A session with fid 1 at `path`, opened for reading and writing.
fn opened(path: &str) -> (Gate, Raw<Gate>) {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    raw.feed(&[(1, walk(0, 1, &[path])), (2, open(1, 2))]).unwrap();
    assert_eq!(raw.tags(), [1, 2]);
    gate.log();
    (gate, raw)
}

fn clunk(fid: u32) -> Message {
    Message::Tclunk { fid }
}

#[test]
fn writes_that_overlap_keep_their_order_and_others_pass() {
    let (gate, mut raw) = opened("file");
    gate.close("write 0");
    let writes = [(1, write(1, 0, b"abcd")), (2, write(1, 3, b"xy")), (3, write(1, 4, b"z"))];
    raw.feed(&writes).unwrap();
    assert_eq!(raw.tags(), []);
    // The third overlaps the second only: it waits for that one.
    assert_eq!(gate.log(), ["write 0"]);
    raw.feed(&[(4, write(1, 9, b"far"))]).unwrap();
    assert_eq!(raw.tags(), [4]);
    gate.open("write 0");
    assert_eq!(raw.tags(), [1, 2, 3]);
    assert_eq!(gate.log(), ["write 9", "write 3", "write 4"]);
}

#[test]
fn a_write_that_ends_where_another_begins_does_not_wait() {
    let (gate, mut raw) = opened("file");
    gate.close("write 4");
    raw.feed(&[(1, write(1, 4, b"abcd")), (2, write(1, 0, b"abcd")), (3, write(1, 8, b"z"))])
        .unwrap();
    assert_eq!(raw.tags(), [2, 3]);
    raw.feed(&[(4, write(1, 0, b"abcde")), (5, write(1, 7, b"z"))]).unwrap();
    assert_eq!(raw.tags(), []);
}

#[test]
fn a_read_waits_for_a_write_under_it_but_not_for_a_read() {
    let (gate, mut raw) = opened("file");
    gate.close("read 0");
    raw.feed(&[(1, read(1, 0, 8)), (2, read(1, 4, 8)), (3, write(1, 6, b"w")), (4, read(1, 6, 1))])
        .unwrap();
    assert_eq!(raw.tags(), [2]);
    gate.open("read 0");
    assert_eq!(raw.tags(), [1, 3, 4]);
}

#[test]
fn writes_to_a_file_opened_to_append_keep_their_order_at_any_offset() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    raw.feed(&[(1, walk(0, 1, &["log"])), (2, open(1, 0o2001))]).unwrap();
    assert_eq!(raw.tags(), [1, 2]);
    gate.close("write 0");
    raw.feed(&[(1, write(1, 0, b"a")), (2, write(1, 100, b"b"))]).unwrap();
    assert_eq!(raw.tags(), []);
    gate.open("write 0");
    assert_eq!(raw.tags(), [1, 2]);
}

#[test]
fn setattr_and_clunk_are_barriers() {
    let (gate, mut raw) = opened("file");
    gate.close("write 0");
    let set = Message::Tsetattr {
        fid: 1,
        valid: 8,
        mode: 0,
        uid: 0,
        gid: 0,
        size: 0,
        atime_sec: 0,
        atime_nsec: 0,
        mtime_sec: 0,
        mtime_nsec: 0,
    };
    let requests = [(1, write(1, 0, b"a")), (2, set), (3, read(1, 50, 1)), (4, clunk(1))];
    raw.feed(&requests).unwrap();
    assert_eq!(raw.tags(), []);
    assert_eq!(gate.log(), ["write 0"]);
    gate.open("write 0");
    assert_eq!(raw.tags(), [1, 2, 3, 4]);
    assert_eq!(gate.log(), ["setattr", "read 50", "clunk /file:open"]);
}

#[test]
fn fsync_waits_for_the_writes_before_it_and_not_for_reads() {
    let (gate, mut raw) = opened("file");
    gate.close("write 0");
    gate.close("read 9");
    let sync = Message::Tfsync { fid: 1, datasync: 0 };
    raw.feed(&[(1, write(1, 0, b"a")), (2, read(1, 9, 1)), (3, sync), (4, write(1, 20, b"b"))])
        .unwrap();
    assert_eq!(raw.tags(), [4]);
    gate.open("write 0");
    assert_eq!(raw.tags(), [1, 3]);
}

#[test]
fn what_is_sent_after_a_walk_to_its_new_fid_waits_for_it() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    gate.log();
    gate.close("walk a");
    raw.feed(&[(1, walk(0, 1, &["a"])), (2, open(1, 0)), (3, read(1, 0, 3)), (4, clunk(1))])
        .unwrap();
    assert_eq!(raw.tags(), []);
    assert_eq!(gate.log(), ["walk a"]);
    gate.open("walk a");
    assert_eq!(raw.tags(), [1, 2, 3, 4]);
    assert_eq!(gate.log(), ["open", "read 0", "clunk /a:open"]);
}

#[test]
fn what_waited_for_a_walk_that_failed_has_a_bad_fid() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    gate.close("walk missing");
    raw.feed(&[(1, walk(0, 1, &["missing"])), (2, open(1, 0)), (3, read(1, 0, 3))]).unwrap();
    assert_eq!(raw.tags(), []);
    gate.open("walk missing");
    let codes: Vec<u32> = raw.replies().iter().map(|(_, reply)| ecode(reply)).collect();
    assert_eq!(codes, [Errno::ENOENT, Errno::EBADF, Errno::EBADF]);
}

#[test]
fn what_waited_for_an_open_that_failed_has_a_bad_fid() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    gate.close("open");
    raw.feed(&[(1, walk(0, 1, &["secret"])), (2, open(1, 0)), (3, read(1, 0, 3))]).unwrap();
    assert_eq!(raw.tags(), [1]);
    gate.open("open");
    let codes: Vec<u32> = raw.replies().iter().map(|(_, reply)| ecode(reply)).collect();
    assert_eq!(codes, [Errno::EACCES, Errno::EBADF]);
}

#[test]
fn walks_from_one_fid_go_side_by_side_but_not_past_a_change_of_names() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    gate.close("walk slow");
    gate.close("unlink name");
    let unlink = Message::Tunlinkat { dirfid: 0, name: "name".into(), flags: 0 };
    let requests = [
        (1, walk(0, 1, &["slow"])),
        (2, walk(0, 2, &["fast"])),
        (3, unlink),
        (4, walk(0, 3, &["x"])),
    ];
    raw.feed(&requests).unwrap();
    assert_eq!(raw.tags(), [2]);
    gate.open("walk slow");
    assert_eq!(raw.tags(), [1]);
    gate.open("unlink name");
    assert_eq!(raw.tags(), [3, 4]);
}

#[test]
fn a_request_on_two_fids_waits_for_the_barriers_of_both() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    gate.log();
    gate.close("walk dir");
    gate.close("walk file");
    let link = Message::Tlink { dfid: 1, fid: 2, name: "n".into() };
    raw.feed(&[(1, walk(0, 1, &["dir"])), (2, walk(0, 2, &["file"])), (3, link)]).unwrap();
    gate.open("walk file");
    assert_eq!(raw.tags(), [2]);
    gate.open("walk dir");
    assert_eq!(raw.tags(), [1, 3]);
    assert_eq!(gate.log(), ["walk dir", "walk file", "link /file to /dir/n"]);
}

#[test]
fn a_blocked_read_does_not_hold_up_the_write_that_feeds_it() {
    let (gate, mut raw) = opened("blocking");
    gate.close("read 0");
    raw.feed(&[(1, read(1, 0, 9)), (2, write(1, 0, b"food"))]).unwrap();
    assert_eq!(raw.tags(), [2]);
    gate.open("read 0");
    assert_eq!(raw.tags(), [1]);
}

#[test]
fn a_read_sent_before_its_blocking_file_is_open_is_exempt_once_it_is() {
    let gate = Gate::default();
    let mut raw = Raw::attached(Rc::new(gate.clone()));
    gate.close("open");
    gate.close("read 0");
    let requests = [
        (1, walk(0, 1, &["blocking"])),
        (2, open(1, 2)),
        (3, read(1, 0, 9)),
        (4, write(1, 0, b"food")),
    ];
    raw.feed(&requests).unwrap();
    assert_eq!(raw.tags(), [1]);
    gate.open("open");
    assert_eq!(raw.tags(), [2, 4]);
}

#[test]
fn clunk_cancels_what_waits_on_a_blocking_file() {
    let (gate, mut raw) = opened("blocking");
    gate.close("read 0");
    raw.feed(&[(1, read(1, 0, 9)), (2, clunk(1))]).unwrap();
    let replies = raw.replies();
    assert_eq!(replies[0], (1, Message::Rlerror { ecode: Errno::EINTR }));
    assert_eq!(replies[1], (2, Message::Rclunk {}));
    assert_eq!(gate.log(), ["read 0", "drop read 0", "clunk /blocking:open"]);
    assert_eq!(raw.session.request_count(), 0);
}

#[test]
fn clunk_waits_for_what_runs_on_any_other_file() {
    let (gate, mut raw) = opened("file");
    gate.close("read 0");
    raw.feed(&[(1, read(1, 0, 9)), (2, clunk(1))]).unwrap();
    assert_eq!(raw.tags(), []);
    gate.open("read 0");
    assert_eq!(raw.tags(), [1, 2]);
}

#[test]
fn a_fid_number_may_be_used_again_right_behind_its_clunk() {
    let (gate, mut raw) = opened("file");
    gate.close("read 0");
    raw.feed(&[(1, read(1, 0, 9)), (2, clunk(1)), (3, walk(0, 1, &["other"])), (4, open(1, 0))])
        .unwrap();
    assert_eq!(raw.tags(), []);
    gate.open("read 0");
    let replies = raw.replies();
    assert!(replies.iter().all(|(_, reply)| ecode(reply) == 0), "{replies:?}");
    assert_eq!(replies.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn calls_on_one_fid_may_finish_in_any_order() {
    let (gate, mut raw) = opened("file");
    gate.close("call");
    let call = |body: &[u8]| Message::Tcall { fid: 1, body: body.to_vec().into() };
    raw.feed(&[
        (1, call(b"a")),
        (2, Message::Tgetattr { fid: 1, request_mask: 1 }),
        (3, call(b"b")),
    ])
    .unwrap();
    assert_eq!(raw.tags(), [2]);
    gate.open("call");
    assert_eq!(raw.tags(), [1, 3]);
}
