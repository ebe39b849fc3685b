//! Bytes that are no messages, and messages that must not be.

use crate::pair::raw::{Raw, attach, ecode};
use crate::pair::*;
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::{Dialect, Message, NOFID, NOTAG, Number};
use covey_ninep::tree::Errno;
use covey_wire::{Blame, BytesMut, Machine, Rng, Segments};
use std::rc::Rc;
use std::time::Instant;

fn raw() -> Raw<MemoryTree> {
    Raw::attached(Rc::new(MemoryTree::default()))
}

fn bytes(tag: u16, message: &Message) -> Vec<u8> {
    let mut out = Segments::new();
    message.put(tag, Dialect::Covey, &mut out);
    out.runs().flatten().copied().collect()
}

#[test]
fn an_unknown_request_is_refused_alone() {
    let mut raw = raw();
    raw.feed_bytes(&[7, 0, 0, 0, 98, 5, 0]).unwrap();
    let replies = raw.replies();
    assert_eq!((replies[0].0, ecode(&replies[0].1)), (5, Errno::EOPNOTSUPP));
    for of_others in [Message::Topen { fid: 0, mode: 0 }, Message::Tstat { fid: 0 }] {
        assert_eq!(ecode(&raw.ask(of_others)), Errno::EOPNOTSUPP);
    }
}

#[test]
fn a_reply_sent_to_a_server_is_a_violation() {
    assert!(matches!(raw().feed(&[(1, Message::Rclunk {})]), Err(Blame::Violation(_))));
    assert!(matches!(raw().feed_bytes(&[7, 0, 0, 0, 99, 5, 0]), Err(Blame::Violation(_))));
}

#[test]
fn a_reply_that_answers_no_request_ends_the_client() {
    for (tag, reply) in [
        (9, Message::Rclunk {}),
        (NOTAG, Message::Rflush {}),
        (0, Message::Rwalk { qids: Default::default() }),
    ] {
        let mut pair = Pair::attached(MemoryTree::default());
        let call = pair.conn.call(Message::Tgetattr { fid: 0, request_mask: 1 });
        let client = pair.client.as_mut().expect("connected");
        let mut sent = Segments::new();
        client.poll_output(&mut sent, 1000);
        let mut input = BytesMut::from(&bytes(tag, &reply)[..]);
        assert!(matches!(
            client.handle_input(Instant::now(), &mut input),
            Err(Blame::Violation(_))
        ));
        assert!(pair.run(call).is_err());
    }
}

#[test]
fn nothing_is_served_before_tversion() {
    let mut raw = Raw::new(Rc::new(MemoryTree::default()), Default::default());
    assert!(matches!(raw.feed(&[(1, attach(0, NOFID))]), Err(Blame::Violation(_))));
}

#[test]
fn a_size_below_a_header_or_over_msize_is_malformed() {
    assert!(matches!(raw().feed_bytes(&[6, 0, 0, 0, 120, 0, 0]), Err(Blame::Malformed(_))));
    assert!(matches!(raw().feed_bytes(&[255, 255, 255, 255, 118, 0, 0]), Err(Blame::Malformed(_))));
    let mut raw = raw();
    assert!(raw.feed_bytes(&[255, 255, 15, 0, 118, 0, 0]).is_ok());
    assert_eq!(raw.session.bytes_wanted(&[255, 255, 15, 0, 118, 0, 0]), 0xfffff - 7);
    assert_eq!(raw.session.bytes_wanted(&[255, 255]), 5);
}

#[test]
fn what_was_answered_before_an_error_still_leaves() {
    let mut raw = raw();
    let mut stream = bytes(1, &Message::Tgetattr { fid: 0, request_mask: 1 });
    stream.extend([0; 16]);
    assert!(raw.feed_bytes(&stream).is_err());
    let mut out = Segments::new();
    assert!(raw.session.poll_output(&mut out, 1 << 20));
    assert_eq!(out.len(), 160);
}

#[test]
fn a_message_may_arrive_in_any_pieces() {
    let mut raw = raw();
    let stream = [
        bytes(1, &walk(0, 1, &[])),
        bytes(2, &Message::Tlcreate { fid: 1, name: "f".into(), flags: 2, mode: 0o644, gid: 0 }),
        bytes(3, &write(1, 0, b"hello")),
        bytes(4, &read(1, 1, 3)),
    ]
    .concat();
    let mut input = BytesMut::new();
    for byte in stream {
        input.extend_from_slice(&[byte]);
        raw.session.handle_input(Instant::now(), &mut input).unwrap();
    }
    let replies = raw.replies();
    assert_eq!(replies.len(), 4);
    assert_eq!(replies[3].1, Message::Rread { data: b"ell".to_vec().into() });
}

fn session(rng: &mut Rng) -> Vec<(u16, Message)> {
    let (uname, aname, n_uname) = ("u".into(), "a".into(), Number(7));
    let all = [
        walk(0, 1, &["f"]),
        walk(0, 2, &[]),
        walk(2, 3, &["d", "..", "f"]),
        Message::Tlcreate { fid: 2, name: "f".into(), flags: 2, mode: 0o644, gid: 0 },
        Message::Tmkdir { dfid: 0, name: "d".into(), mode: 0o755, gid: 0 },
        Message::Tmknod { dfid: 0, name: "p".into(), mode: 0o10644, major: 0, minor: 0, gid: 0 },
        Message::Tsymlink { dfid: 0, name: "l".into(), target: "f".into(), gid: 0 },
        Message::Tlink { dfid: 0, fid: 2, name: "h".into() },
        Message::Trenameat { olddirfid: 0, oldname: "f".into(), newdirfid: 0, newname: "g".into() },
        Message::Tunlinkat { dirfid: 0, name: "g".into(), flags: 0 },
        open(1, 2),
        open(0, 0),
        read(2, 0, 100),
        write(2, 0, b"0123456789"),
        Message::Treaddir { fid: 0, offset: 0, count: 200 },
        Message::Tgetattr { fid: 1, request_mask: 0x3fff },
        Message::Tstatfs { fid: 0 },
        Message::Treadlink { fid: 3 },
        Message::Tfsync { fid: 2, datasync: 0 },
        Message::Tcall { fid: 0, body: b"x".to_vec().into() },
        Message::Tauth { afid: 8, uname, aname, n_uname },
        Message::Tflush { oldtag: 3 },
        Message::Tclunk { fid: 1 },
        Message::Tremove { fid: 3 },
        Message::Tversion { msize: 8192, version: "9P2000.L".into() },
        attach(0, NOFID),
    ];
    (0..40).map(|tag| (tag, all[rng.index(all.len())].clone())).collect()
}

#[test]
fn mutated_sessions_never_panic_and_never_leave_a_request_behind() {
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let mut raw = raw();
        let mut stream: Vec<u8> = Vec::new();
        for (tag, message) in session(&mut rng) {
            stream.extend(bytes(tag, &message));
        }
        for _ in 0..rng.index(6) {
            let at = rng.index(stream.len());
            match rng.index(4) {
                0 => stream[at] ^= 1 << rng.index(8),
                1 => stream[at] = [0, 1, 0x7f, 0x80, 0xff][rng.index(5)],
                2 => drop(stream.remove(at)),
                _ => stream.insert(at, rng.index(256) as u8),
            }
        }
        let mut input = BytesMut::new();
        let mut alive = true;
        for piece in stream.chunks(1 + rng.index(300)) {
            input.extend_from_slice(piece);
            alive = alive && raw.session.handle_input(Instant::now(), &mut input).is_ok();
            if alive && rng.index(3) == 0 {
                raw.replies();
            }
        }
        if alive {
            raw.replies();
        }
    }
}

#[test]
fn mutated_replies_never_panic_a_client() {
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::attached(MemoryTree::default());
        let calls: Vec<_> = session(&mut rng)
            .into_iter()
            .filter(|(_, message)| !matches!(message, Message::Tversion { .. }))
            .map(|(_, message)| pair.conn.call(message))
            .collect();
        let server = pair.server.as_mut().expect("connected");
        let client = pair.client.as_mut().expect("connected");
        let mut out = Segments::new();
        while client.poll_output(&mut out, 1 << 16) {}
        let mut input: BytesMut = out.runs().flatten().copied().collect::<Vec<u8>>()[..].into();
        server.handle_input(Instant::now(), &mut input).unwrap();
        let mut out = Segments::new();
        while server.poll_output(&mut out, 1 << 16) {}
        let mut replies: Vec<u8> = out.runs().flatten().copied().collect();
        let at = rng.index(replies.len());
        replies[at] ^= 1 << rng.index(8);
        let mut input = BytesMut::from(&replies[..]);
        let result = client.handle_input(Instant::now(), &mut input);
        assert_eq!(result.is_err(), pair.conn.is_lost());
        drop(calls);
    }
}
