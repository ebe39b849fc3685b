//! List I/O: many ranges of a file in one request.

use crate::pair::raw::Raw;
use crate::pair::*;
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::Message;
use covey_ninep::runs::Run;
use covey_ninep::tree::Errno;
use covey_wire::List;
use std::rc::Rc;

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

fn read_list(runs: &[Run]) -> Message {
    Message::Treadlist { fid: 1, runs: List(runs.to_vec()) }
}

fn write_list(runs: &[Run], data: &[u8]) -> Message {
    Message::Twritelist { fid: 1, runs: List(runs.to_vec()), data: data.to_vec().into() }
}

fn listed(reply: Reply) -> Vec<u8> {
    match reply {
        Ok(Message::Rreadlist { data }) => data.into_bytes().to_vec(),
        other => panic!("no Rreadlist: {other:?}"),
    }
}

#[test]
fn a_strided_vector_is_read_and_written_with_one_request() {
    let mut pair = file(b"abcdefghijklmnop");
    let column = Run { offset: 1, bytes: 2, stride: 5, count: 3 };
    assert_eq!(listed(pair.call(read_list(&[column]))), b"bcghlm");
    let list = [Run::one(14, 2), column];
    assert_eq!(listed(pair.call(read_list(&list))), b"opbcghlm");
    let written = pair.call(write_list(&list, b"12345678"));
    assert_eq!(written, Ok(Message::Rwritelist { count: 8 }));
    assert_eq!(data(pair.call(read(1, 0, 100))), b"a34def56ijk78n12"[..].to_vec());
}

#[test]
fn what_lies_beyond_the_end_is_zeros_and_cut_off_at_the_end_of_the_answer() {
    let mut pair = file(b"abcd");
    let list = [Run::one(3, 3), Run::one(0, 1), Run::one(2, 4), Run::one(9, 2)];
    assert_eq!(listed(pair.call(read_list(&list))), b"d\0\0acd");
    assert_eq!(listed(pair.call(read_list(&[Run::one(4, 9)]))), b"");
    assert_eq!(listed(pair.call(read_list(&[]))), b"");
}

#[test]
fn a_list_that_makes_no_sense_is_refused_and_the_connection_goes_on() {
    let mut pair = file(b"abcd");
    let huge = Run { offset: 0, bytes: 1 << 20, stride: 1 << 20, count: 1 << 20 };
    assert_eq!(code(pair.call(read_list(&[huge]))), Errno::E2BIG);
    assert_eq!(code(pair.call(read_list(&[Run { count: 0, ..huge }]))), Errno::EINVAL);
    assert_eq!(code(pair.call(write_list(&[Run::one(0, 3)], b"ab"))), Errno::EINVAL);
    assert_eq!(code(pair.call(write_list(&[Run::one(0, 1)], b"ab"))), Errno::EINVAL);
    let far = Run { offset: u64::MAX, bytes: 2, stride: u64::MAX, count: u32::MAX };
    assert_eq!(code(pair.call(read_list(&[far]))), Errno::EFBIG);
    let elsewhere = Message::Treadlist { fid: 9, runs: List(vec![Run::one(0, 1)]) };
    assert_eq!(code(pair.call(elsewhere)), Errno::EBADF);
    assert_eq!(data(pair.call(read(1, 0, 9))), b"abcd");
}

#[test]
fn a_list_keeps_its_order_with_writes_that_it_meets() {
    let mut pair = file(b"abcdefgh");
    let column = Run { offset: 0, bytes: 1, stride: 4, count: 2 };
    let calls = [
        pair.conn.call(write_list(&[column], b"12")),
        pair.conn.call(read_list(&[column])),
        pair.conn.call(write(1, 3, b"34")),
        pair.conn.call(read_list(&[column])),
    ];
    let [_, before, _, after] = calls.map(|call| pair.run(call));
    assert_eq!((listed(before), listed(after)), (b"12".to_vec(), b"14".to_vec()));
}

#[test]
fn whoever_speaks_another_dialect_does_not_know_them() {
    let mut raw = Raw::new(Rc::new(MemoryTree::default()), Default::default());
    assert_eq!(raw.version("9P2000.L").1, "9P2000.L");
    raw.feed(&[(1, read_list(&[Run::one(0, 1)])), (2, write_list(&[], b""))]).unwrap();
    // Whatever it holds: it need not even be whole.
    raw.feed_bytes(&[8, 0, 0, 0, 202, 3, 0, 9]).unwrap();
    let unknown = |tag| (tag, Message::Rlerror { ecode: Errno::EOPNOTSUPP });
    assert_eq!(raw.replies(), [unknown(1), unknown(2), unknown(3)]);
}
