//! Large writes whose data goes from the stream into the file: which ones, and how they are answered.

use crate::pair::raw::Raw;
use crate::pair::*;
use covey_ninep::message::{Message, Qid};
use covey_ninep::tree::*;
use covey_wire::{BytesMut, Deposit, FileRange, Machine, Name, Segments};
use std::rc::Rc;
use std::sync::Arc;

const LARGE: usize = 50_000;

/// One file that has a place for every write.
struct Place;

impl Tree for Place {
    type Node = ();

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, ())> {
        Ok((User { uid: 0, gid: 0, groups: Vec::new() }, Qid::default(), ())).into()
    }

    fn walk(&self, _: &Rc<User>, _: &(), names: &[Name]) -> Outcome<Vec<(Qid, ())>> {
        Ok(vec![(Qid::default(), ()); names.len()]).into()
    }

    fn open(&self, _: &Rc<User>, _: &(), _: u32) -> Outcome<Opened<()>> {
        Ok(Opened { qid: Qid::default(), node: (), blocking: false }).into()
    }

    fn write(&self, _: &Rc<User>, _: &(), write: Write) -> Written {
        match write.data {
            Incoming::Here(data) => Written::Now(Ok(data.len() as u32)),
            Incoming::Coming(count) => {
                let (offset, length) = (write.offset, count as usize);
                Written::Into(FileRange { file: Arc::new(()), offset, length })
            }
        }
    }
}

/// A session with fid 1 open with these flags, that has had a large write.
fn opened(flags: u32) -> Raw<Place> {
    let mut raw = Raw::attached(Rc::new(Place));
    raw.feed(&[(1, walk(0, 1, &["file"])), (2, open(1, flags))]).unwrap();
    assert_eq!(raw.tags(), [1, 2]);
    assert_eq!(raw.session.deposit(&[]), Deposit::No, "nothing is expected yet");
    raw.feed(&[(3, write(1, 0, &[b'x'; LARGE]))]).unwrap();
    raw.tags();
    raw
}

/// A message without what follows its 23rd byte.
fn head(tag: u16, message: &Message) -> BytesMut {
    let mut out = Segments::new();
    message.put(tag, covey_ninep::message::Dialect::Covey, &mut out);
    let bytes: Vec<u8> = out.runs().flatten().copied().collect();
    BytesMut::from(&bytes[..bytes.len().min(23)])
}

#[test]
fn after_a_large_write_the_next_one_has_a_place() {
    let mut raw = opened(2);
    assert_eq!(raw.session.deposit(&[]), Deposit::UpTo(23));
    let mut head = head(4, &write(1, 777, &[b'y'; LARGE]));
    assert_eq!(raw.session.deposit(&head[..20]), Deposit::UpTo(3));
    let Deposit::Into(range) = raw.session.deposit(&head) else { panic!("it has a place") };
    assert_eq!((range.offset, range.length), (777, LARGE));
    raw.session.deposited(&mut head, Ok(LARGE));
    assert!(head.is_empty());
    assert!(matches!(raw.replies()[..], [(4, Message::Rwrite { count: 50_000 })]));
    assert_eq!(raw.session.deposit(&[]), Deposit::UpTo(23), "and the next again");
}

#[test]
fn an_error_of_the_system_is_the_answer() {
    let mut raw = opened(2);
    let mut head = head(4, &write(1, 0, &[b'y'; LARGE]));
    assert!(matches!(raw.session.deposit(&head), Deposit::Into(_)));
    raw.session.deposited(&mut head, Err(28));
    assert!(matches!(raw.replies()[..], [(4, Message::Rlerror { ecode: 28 })]));
}

#[test]
fn what_is_no_large_write_is_read_as_ever() {
    let huge = |mut head: BytesMut| {
        head[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        head[19..].copy_from_slice(&(u32::MAX - 23).to_le_bytes());
        head
    };
    let large = write(1, 0, &[b'y'; LARGE]);
    let others = [
        head(4, &write(1, 0, &[b'y'; 1000])),
        head(4, &read(1, 0, 70_000)),
        head(4, &write(2, 0, &[b'y'; LARGE])),
        huge(head(4, &large)),
    ];
    for other in others {
        let mut raw = opened(2);
        assert_eq!(raw.session.deposit(&other), Deposit::No);
        assert_eq!(raw.session.deposit(&[]), Deposit::No, "no longer expected");
    }
    for flags in [0, 0o2001] {
        let mut raw = opened(flags);
        assert!(!matches!(raw.session.deposit(&head(4, &large)), Deposit::Into(_)), "{flags:o}");
    }
}
