//! Scattered data of a file in one request. The tree in memory takes a list of ranges as a view.

use crate::pair::raw::Raw;
use crate::pair::*;
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::{MSIZE_DEFAULT, Message};
use covey_ninep::tree::Errno;
use covey_wire::Payload;
use std::ops::Range;
use std::rc::Rc;
use std::slice::from_ref;

const O_RDWR: u32 = 2;

/// The tree with a file open on fid 1 that holds `content`.
fn file(content: &[u8]) -> Pair<MemoryTree> {
    let mut pair = Pair::attached(MemoryTree::default());
    pair.call(walk(0, 1, &[])).unwrap();
    let create = Message::Tlcreate { fid: 1, name: "f".into(), flags: O_RDWR, mode: 0o644, gid: 0 };
    pair.call(create).unwrap();
    pair.call(write(1, 0, content)).unwrap();
    pair
}

/// A list of ranges as the tree in memory takes it, and the range that they lie in.
fn view(ranges: &[Range<u64>]) -> (u64, u64, u32, Payload) {
    let mut body = Vec::new();
    for range in ranges {
        body.extend_from_slice(&range.start.to_le_bytes());
        body.extend_from_slice(&((range.end - range.start) as u32).to_le_bytes());
    }
    let start = ranges.iter().map(|range| range.start).min().unwrap_or(0);
    let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
    let count = ranges.iter().map(|range| (range.end - range.start) as u32).sum();
    (start, end, count, body.into())
}

fn read_view(ranges: &[Range<u64>]) -> Message {
    let (start, end, count, view) = view(ranges);
    Message::Treadview { fid: 1, start, end, count, view }
}

fn write_view(ranges: &[Range<u64>], data: &[u8]) -> Message {
    let (start, end, _, view) = view(ranges);
    Message::Twriteview { fid: 1, start, end, view, data: data.to_vec().into() }
}

fn viewed(reply: Reply) -> Vec<u8> {
    match reply {
        Ok(Message::Rreadview { data }) => data.into_bytes().to_vec(),
        other => panic!("no Rreadview: {other:?}"),
    }
}

#[test]
fn a_column_is_read_and_written_with_one_request() {
    let mut pair = file(b"abcdefghijklmnop");
    let ranges = [14..16, 1..3, 6..8, 11..13];
    assert_eq!(viewed(pair.call(read_view(&ranges[1..]))), b"bcghlm");
    assert_eq!(viewed(pair.call(read_view(&ranges))), b"opbcghlm");
    let written = pair.call(write_view(&ranges, b"12345678"));
    assert_eq!(written, Ok(Message::Rwriteview { count: 8 }));
    assert_eq!(data(pair.call(read(1, 0, 100))), b"a34def56ijk78n12"[..].to_vec());
}

#[test]
fn what_lies_beyond_the_end_is_zeros_and_cut_off_at_the_end_of_the_answer() {
    let mut pair = file(b"abcd");
    assert_eq!(viewed(pair.call(read_view(&[3..6, 0..1, 2..6, 9..11]))), b"d\0\0acd");
    assert_eq!(viewed(pair.call(read_view(from_ref(&(4..13))))), b"");
    assert_eq!(viewed(pair.call(read_view(&[]))), b"");
}

#[test]
fn a_view_that_makes_no_sense_is_refused_and_the_connection_goes_on() {
    let mut pair = file(b"abcd");
    let limit = MSIZE_DEFAULT - 24;
    let of = |count| Message::Treadview {
        fid: 1,
        start: 0,
        end: u64::MAX,
        count,
        view: Payload::default(),
    };
    assert_eq!(code(pair.call(of(limit + 1))), Errno::E2BIG);
    assert_eq!(code(pair.call(of(limit))), Errno::EINVAL);
    assert_eq!(code(pair.call(write_view(from_ref(&(0..3)), b"ab"))), Errno::EINVAL);
    let (start, end, count, view) = view(from_ref(&(1..3)));
    let narrow = Message::Treadview { fid: 1, start, end: end - 1, count, view: view.clone() };
    assert_eq!(code(pair.call(narrow)), Errno::EINVAL);
    let elsewhere = Message::Treadview { fid: 9, start, end, count, view };
    assert_eq!(code(pair.call(elsewhere)), Errno::EBADF);
    assert_eq!(data(pair.call(read(1, 0, 9))), b"abcd");
}

#[test]
fn a_view_keeps_its_order_with_writes_that_it_meets() {
    let mut pair = file(b"abcdefgh");
    let column = [0..1, 4..5];
    let calls = [
        pair.conn.call(write_view(&column, b"12")),
        pair.conn.call(read_view(&column)),
        pair.conn.call(write(1, 3, b"34")),
        pair.conn.call(read_view(&column)),
    ];
    let [_, before, _, after] = calls.map(|call| pair.run(call));
    assert_eq!((viewed(before), viewed(after)), (b"12".to_vec(), b"14".to_vec()));
}

#[test]
fn whoever_speaks_another_dialect_does_not_know_them() {
    let mut raw = Raw::new(Rc::new(MemoryTree::default()), Default::default());
    assert_eq!(raw.version("9P2000.L").1, "9P2000.L");
    let requests = [(1, read_view(from_ref(&(0..1)))), (2, write_view(&[], b""))];
    raw.feed(&requests).unwrap();
    // Whatever it holds: it need not even be whole.
    raw.feed_bytes(&[8, 0, 0, 0, 206, 3, 0, 9]).unwrap();
    let unknown = |tag| (tag, Message::Rlerror { ecode: Errno::EOPNOTSUPP });
    assert_eq!(raw.replies(), [unknown(1), unknown(2), unknown(3)]);
}
