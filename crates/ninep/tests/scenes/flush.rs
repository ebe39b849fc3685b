//! Tflush, from both sides.

use crate::pair::gate::Gate;
use crate::pair::raw::{Raw, ecode};
use crate::pair::*;
use covey_ninep::client::{self, Client};
use covey_ninep::message::{Dialect, Message, NOTAG};
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, BytesMut, Machine, Segments};
use std::rc::Rc;
use std::time::Instant;

fn flush(oldtag: u16) -> Message {
    Message::Tflush { oldtag }
}

fn attached() -> (Gate, Raw<Gate>) {
    let gate = Gate::default();
    let raw = Raw::attached(Rc::new(gate.clone()));
    gate.log();
    (gate, raw)
}

#[test]
fn a_flushed_request_is_dropped_and_never_answered() {
    let (gate, mut raw) = attached();
    gate.close("getattr");
    raw.feed(&[(1, Message::Tgetattr { fid: 0, request_mask: 1 }), (2, flush(1))]).unwrap();
    assert_eq!(raw.replies(), [(2, Message::Rflush {})]);
    assert_eq!(gate.log(), ["getattr", "drop getattr"]);
    gate.open("getattr");
    assert_eq!(raw.tags(), []);
}

#[test]
fn a_reply_that_was_ready_comes_before_rflush() {
    let (_, mut raw) = attached();
    raw.feed(&[(1, Message::Tgetattr { fid: 0, request_mask: 1 }), (2, flush(1))]).unwrap();
    assert_eq!(raw.tags(), [1, 2]);
}

#[test]
fn flush_of_a_tag_that_is_not_in_use_is_answered_at_once() {
    let (gate, mut raw) = attached();
    gate.close("getattr");
    let requests = [
        (1, Message::Tgetattr { fid: 0, request_mask: 1 }),
        (2, flush(NOTAG)),
        (3, flush(99)),
        (4, flush(4)),
    ];
    raw.feed(&requests).unwrap();
    assert_eq!(raw.tags(), [2, 3, 4]);
}

#[test]
fn a_queued_request_that_is_flushed_lets_those_behind_it_go() {
    let (gate, mut raw) = attached();
    raw.feed(&[(1, walk(0, 1, &["f"])), (2, open(1, 2))]).unwrap();
    raw.replies();
    gate.log();
    gate.close("write 0");
    raw.feed(&[(1, write(1, 0, b"ab")), (2, write(1, 1, b"cd")), (3, write(1, 2, b"ef"))]).unwrap();
    assert_eq!(raw.tags(), []);
    raw.feed(&[(4, flush(2))]).unwrap();
    assert_eq!(raw.tags(), [4, 3]);
    assert_eq!(gate.log(), ["write 0", "write 2"]);
}

#[test]
fn a_flushed_walk_leaves_its_new_fid_free() {
    let (gate, mut raw) = attached();
    gate.close("walk a");
    raw.feed(&[(1, walk(0, 1, &["a"])), (2, open(1, 0)), (3, flush(1))]).unwrap();
    let replies = raw.replies();
    assert_eq!(replies[0], (3, Message::Rflush {}));
    assert_eq!((replies[1].0, ecode(&replies[1].1)), (2, Errno::EBADF));
    gate.open("walk a");
    assert!(matches!(raw.ask(walk(0, 1, &["b"])), Message::Rwalk { .. }));
    assert_eq!(raw.session.fid_count(), 2);
}

#[test]
fn a_flushed_open_leaves_its_fid_unopened() {
    let (gate, mut raw) = attached();
    gate.close("open");
    raw.feed(&[(1, walk(0, 1, &["a"])), (2, open(1, 0)), (3, flush(2))]).unwrap();
    assert_eq!(raw.tags(), [1, 3]);
    gate.open("open");
    assert_eq!(ecode(&raw.ask(read(1, 0, 1))), Errno::EBADF);
    assert!(matches!(raw.ask(open(1, 0)), Message::Rlopen { .. }));
    assert!(matches!(raw.ask(read(1, 0, 1)), Message::Rread { .. }));
}

#[test]
fn a_flushed_create_leaves_the_fid_at_its_directory() {
    let (gate, mut raw) = attached();
    gate.close("create");
    let create = Message::Tlcreate { fid: 1, name: "f".into(), flags: 2, mode: 0o644, gid: 0 };
    raw.feed(&[(1, walk(0, 1, &["d"])), (2, create.clone()), (3, flush(2))]).unwrap();
    assert_eq!(raw.tags(), [1, 3]);
    gate.open("create");
    gate.log();
    assert!(matches!(raw.ask(create), Message::Rlcreate { .. }));
    raw.ask(Message::Tclunk { fid: 1 });
    assert_eq!(gate.log(), ["create", "clunk /d/f:open"]);
}

#[test]
fn a_flushed_remove_has_taken_its_fid() {
    let (gate, mut raw) = attached();
    gate.close("remove");
    raw.feed(&[(1, walk(0, 1, &["d"])), (2, Message::Tremove { fid: 1 }), (3, flush(2))]).unwrap();
    assert_eq!(raw.tags(), [1, 3]);
    assert_eq!(gate.log(), ["walk d", "remove", "drop remove", "clunk /d"]);
    assert_eq!(raw.session.fid_count(), 1);
}

#[test]
fn a_tag_that_is_still_in_use_is_a_violation() {
    let (gate, mut raw) = attached();
    gate.close("getattr");
    let getattr = Message::Tgetattr { fid: 0, request_mask: 1 };
    assert!(raw.feed(&[(1, getattr.clone()), (1, getattr)]).is_err());
}

#[test]
fn a_dropped_call_is_flushed_and_its_tag_kept_until_rflush() {
    let gate = Gate::default();
    let mut pair = Pair::attached(gate.clone());
    gate.close("getattr");
    let call = pair.conn.call(Message::Tgetattr { fid: 0, request_mask: 1 });
    pair.settle();
    gate.log();
    drop(call);
    // Before Rflush the tag is not used again, whoever asks for one.
    pair.server_is_mute = true;
    pair.settle();
    assert_eq!(gate.log(), ["drop getattr"]);
    let again = pair.conn.call(Message::Tgetattr { fid: 0, request_mask: 1 });
    let mut sent = Segments::new();
    let client = pair.client.as_mut().expect("connected");
    assert!(Machine::poll_output(client, &mut sent, 1000));
    let sent: Vec<u8> = sent.runs().flatten().copied().collect();
    assert_eq!(sent[4..7], [24, 2, 0], "tags 0 and 1 wait for Rflush");
    drop(again);
}

#[test]
fn a_call_that_is_dropped_before_it_left_is_never_sent() {
    let gate = Gate::default();
    let mut pair = Pair::attached(gate.clone());
    let writes = pair.client_writes.len();
    drop(pair.conn.call(Message::Tgetattr { fid: 0, request_mask: 1 }));
    pair.settle();
    assert_eq!(pair.client_writes.len(), writes);
    assert!(pair.call(Message::Tgetattr { fid: 0, request_mask: 1 }).is_ok());
}

#[test]
fn a_flush_that_comes_too_late_does_no_harm() {
    let gate = Gate::default();
    let mut pair = Pair::attached(gate.clone());
    gate.close("getattr");
    let call = pair.conn.call(Message::Tgetattr { fid: 0, request_mask: 1 });
    pair.settle();
    // The answer and the flush cross.
    gate.open("getattr");
    drop(call);
    pair.settle();
    assert!(pair.client_error.is_none() && pair.server_error.is_none());
    assert!(pair.call(Message::Tgetattr { fid: 0, request_mask: 1 }).is_ok());
}

/// Number and tag of each message that the client has to send.
fn sent(client: &mut Client) -> Vec<(u8, u16)> {
    let mut out = Segments::new();
    while client.poll_output(&mut out, 1 << 16) {}
    let mut bytes = Bytes::from(out.runs().flatten().copied().collect::<Vec<u8>>());
    let mut messages = Vec::new();
    while let Some(&[a, b, c, d]) = bytes.first_chunk() {
        let size = u32::from_le_bytes([a, b, c, d]) as usize;
        let (tag, message) = Message::get(bytes.split_to(size), Dialect::Linux).unwrap();
        messages.push((message.number(), tag));
    }
    messages
}

fn receive(client: &mut Client, tag: u16, message: Message) {
    let mut out = Segments::new();
    message.put(tag, Dialect::Linux, &mut out);
    let mut input: BytesMut = out.runs().flatten().copied().collect::<Vec<u8>>()[..].into();
    client.handle_input(Instant::now(), &mut input).unwrap();
}

#[test]
fn a_reply_that_is_faster_than_rflush_does_not_free_its_tag() {
    const TCLUNK: u8 = 120;
    const TFLUSH: u8 = 108;
    let (conn, mut client) = client::pair(client::Config::default(), std::time::Instant::now());
    let mut version = Box::pin(conn.version());
    assert!(poll_once(version.as_mut()).is_none());
    sent(&mut client);
    let answer = Message::Rversion { msize: 8192, version: "9P2000.L".into() };
    receive(&mut client, NOTAG, answer);
    assert_eq!(poll_once(version.as_mut()), Some(Ok(Dialect::Linux)));
    let call = conn.call(Message::Tclunk { fid: 1 });
    assert_eq!(sent(&mut client), [(TCLUNK, 0)]);
    drop(call);
    assert_eq!(sent(&mut client), [(TFLUSH, 1)]);
    receive(&mut client, 0, Message::Rclunk {});
    conn.send(Message::Tclunk { fid: 2 });
    assert_eq!(sent(&mut client), [(TCLUNK, 2)]);
    receive(&mut client, 1, Message::Rflush {});
    conn.send(Message::Tclunk { fid: 3 });
    assert_eq!(sent(&mut client), [(TCLUNK, 0)]);
}
