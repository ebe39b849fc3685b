//! Reads whose payload goes to a buffer of their caller's.

use crate::pair::*;
use covey_ninep::client::{self, CallError, Client, Conn, ReadInto};
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::{Dialect, Message};
use covey_ninep::tree::Errno;
use covey_wire::{Blame, BytesMut, Deposit, Machine, Segments};
use std::pin::pin;
use std::time::Instant;

const HEAD_BYTES: usize = 11;

/// A client whose server is the test.
struct Alone {
    conn: Conn,
    client: Client,
    input: BytesMut,
    now: Instant,
}

impl Alone {
    fn new() -> Alone {
        let now = Instant::now();
        let (conn, client) = client::pair(Default::default(), now);
        let mut alone = Alone { conn: conn.clone(), client, input: BytesMut::new(), now };
        let mut settled = pin!(conn.version());
        assert!(poll_once(settled.as_mut()).is_none());
        alone.sent();
        let version = Dialect::Covey.version().into();
        alone.feed(&encoded(0xffff, Message::Rversion { msize: 1 << 16, version })).unwrap();
        assert_eq!(poll_once(settled.as_mut()), Some(Ok(Dialect::Covey)));
        alone
    }

    /// Takes what the client sends.
    fn sent(&mut self) -> Vec<u8> {
        let mut out = Segments::new();
        while self.client.poll_output(&mut out, usize::MAX) {}
        out.runs().flatten().copied().collect()
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), Blame> {
        self.input.extend_from_slice(bytes);
        self.client.handle_input(self.now, &mut self.input)
    }

    fn read(&mut self, bytes: usize) -> ReadInto {
        let read = self.conn.read_into(7, 0, BytesMut::zeroed(bytes));
        self.sent();
        read
    }
}

fn encoded(tag: u16, message: Message) -> Vec<u8> {
    let mut out = Segments::new();
    message.put(tag, Dialect::Covey, &mut out);
    out.runs().flatten().copied().collect()
}

fn rread(tag: u16, data: &[u8]) -> Vec<u8> {
    encoded(tag, Message::Rread { data: data.to_vec().into() })
}

fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn a_payload_goes_to_the_buffer_wherever_it_is_cut() {
    let data = noise(300);
    let reply = rread(0, &data);
    for cut in HEAD_BYTES..reply.len() {
        let mut alone = Alone::new();
        let buffer = BytesMut::zeroed(400);
        let at = buffer.as_ptr();
        let mut read = pin!(alone.conn.read_into(7, 0, buffer));
        alone.sent();
        alone.feed(&reply[..HEAD_BYTES - 1]).unwrap();
        assert!(alone.client.landing(&mut alone.input).is_none(), "its length is not there");
        alone.feed(&reply[HEAD_BYTES - 1..cut]).unwrap();
        let mut landing = alone.client.landing(&mut alone.input).expect("it has a place");
        assert_eq!((landing.wanted(), alone.input.len()), (reply.len() - cut, HEAD_BYTES));
        assert!(alone.client.landing(&mut alone.input).is_none(), "once only");
        landing.put(&reply[cut..]);
        assert_eq!(poll_once(read.as_mut()), None);
        alone.client.landed(alone.now, &mut alone.input, landing).unwrap();
        let read = poll_once(read.as_mut()).expect("it is there").unwrap();
        assert_eq!((read.as_ptr(), &read[..]), (at, &data[..]));
        assert!(alone.input.is_empty());
    }
}

#[test]
fn what_came_whole_is_copied_and_errors_are_errors() {
    let mut alone = Alone::new();
    let mut first = pin!(alone.read(400));
    alone.feed(&rread(0, &noise(300))).unwrap();
    assert!(alone.client.landing(&mut alone.input).is_none());
    assert_eq!(poll_once(first.as_mut()).unwrap().unwrap(), noise(300));
    let mut second = pin!(alone.read(400));
    alone.feed(&encoded(0, Message::Rlerror { ecode: Errno::EIO })).unwrap();
    let Some(Err(CallError::Errno(errno))) = poll_once(second.as_mut()) else { panic!("no error") };
    assert_eq!(errno.code, Errno::EIO);
    assert_eq!(alone.client.deposit(&[]), Deposit::No);
}

#[test]
fn more_than_was_asked_for_has_no_place_and_breaks_the_rules() {
    let mut alone = Alone::new();
    let mut read = pin!(alone.read(100));
    let reply = rread(0, &noise(101));
    alone.feed(&reply[..50]).unwrap();
    assert!(alone.client.landing(&mut alone.input).is_none());
    assert!(matches!(alone.feed(&reply[50..]), Err(Blame::Violation(_))));
    assert!(matches!(poll_once(read.as_mut()), Some(Err(CallError::Lost(_)))));
}

#[test]
fn a_reply_that_nobody_asked_for_has_no_place() {
    let mut alone = Alone::new();
    let read = alone.read(400);
    for tag in [1, 500, 0xffff] {
        let mut input = BytesMut::from(&rread(tag, &noise(300))[..100]);
        assert!(alone.client.landing(&mut input).is_none(), "{tag}");
        assert_eq!(input.len(), 100);
    }
    let odd = [&[200, 0, 0, 0, 117, 0, 0][..], &300_u32.to_le_bytes(), &[0; 50]].concat();
    assert!(alone.client.landing(&mut BytesMut::from(&odd[..])).is_none(), "lengths differ");
    drop(read);
}

#[test]
fn headers_are_received_alone_while_a_buffer_waits_and_not_after_it() {
    let mut alone = Alone::new();
    assert_eq!(alone.client.deposit(&[]), Deposit::No);
    let mut read = pin!(alone.read(400));
    assert_eq!(alone.client.deposit(&[]), Deposit::UpTo(HEAD_BYTES));
    let other = rread(1, &noise(50));
    assert_eq!(alone.client.deposit(&other[..4]), Deposit::UpTo(HEAD_BYTES - 4));
    assert_eq!(alone.client.deposit(&other[..HEAD_BYTES]), Deposit::UpTo(50));
    let reply = rread(0, &noise(300));
    alone.feed(&reply[..HEAD_BYTES]).unwrap();
    let mut landing = alone.client.landing(&mut alone.input).unwrap();
    assert_eq!(alone.client.deposit(&[]), Deposit::No);
    landing.put(&reply[HEAD_BYTES..]);
    alone.client.landed(alone.now, &mut alone.input, landing).unwrap();
    assert!(poll_once(read.as_mut()).unwrap().is_ok());
}

#[test]
fn a_read_that_was_dropped_lands_and_is_forgotten_and_its_tag_waits_for_the_flush() {
    for drops_before in [true, false] {
        let mut alone = Alone::new();
        let read = alone.read(400);
        let reply = rread(0, &noise(300));
        alone.feed(&reply[..100]).unwrap();
        let mut landing = alone.client.landing(&mut alone.input);
        if drops_before {
            landing = None;
            alone.input = BytesMut::from(&reply[..100]);
        }
        drop(read);
        assert_eq!(alone.sent()[4], 108, "Tflush");
        assert_eq!(alone.client.deposit(&[]), Deposit::No);
        match landing {
            Some(mut landing) => {
                landing.put(&reply[100..]);
                alone.client.landed(alone.now, &mut alone.input, landing).unwrap();
            }
            None => {
                assert!(alone.client.landing(&mut alone.input).is_none());
                alone.feed(&reply[100..]).unwrap();
            }
        }
        let next = alone.conn.read_into(7, 0, BytesMut::zeroed(8));
        assert_eq!(alone.sent()[5..7], [2, 0], "tag 0 is waited for, 1 is the flush's");
        alone.feed(&encoded(1, Message::Rflush {})).unwrap();
        drop(next);
    }
}

#[test]
fn a_connection_that_is_lost_while_a_payload_lands_fails_the_read() {
    let mut alone = Alone::new();
    let mut read = pin!(alone.read(400));
    let reply = rread(0, &noise(300));
    alone.feed(&reply[..100]).unwrap();
    let landing = alone.client.landing(&mut alone.input).unwrap();
    alone.conn.close("gone");
    assert!(matches!(poll_once(read.as_mut()), Some(Err(CallError::Lost(_)))));
    assert!(alone.client.landed(alone.now, &mut alone.input, landing).is_err());
    let mut late = pin!(alone.conn.read_into(7, 0, BytesMut::zeroed(8)));
    assert!(matches!(poll_once(late.as_mut()), Some(Err(CallError::Lost(_)))));
}

#[test]
fn a_server_is_read_into_a_buffer_that_is_cut_to_what_there_was() {
    let mut pair = Pair::attached(MemoryTree::default());
    pair.call(walk(0, 1, &[])).unwrap();
    let create = Message::Tlcreate { fid: 1, name: "f".into(), flags: 2, mode: 0o644, gid: 0 };
    pair.call(create).unwrap();
    pair.call(write(1, 0, b"hello")).unwrap();
    for (offset, found) in [(0, &b"hello"[..]), (3, b"lo"), (5, b"")] {
        let read = pair.conn.read_into(1, offset, BytesMut::zeroed(100));
        assert_eq!(pair.run(read).unwrap(), found);
    }
}
