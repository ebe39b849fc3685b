//! Files that lend their bytes to replies: whatever follows a read in the same breath does not show in it.

use crate::pair::raw::{Raw, attach};
use crate::pair::*;
use covey_ninep::message::{Message, Qid};
use covey_ninep::tree::*;
use covey_wire::{Blame, Bytes, Lender, Loan, Name};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// One file, which lends all that it is asked for and counts what was settled.
#[derive(Clone, Default)]
struct Library(Arc<Shelf>);

#[derive(Default)]
struct Shelf {
    bytes: Mutex<Vec<u8>>,
    copied: Mutex<usize>,
    moments: Mutex<Vec<u64>>,
    is_ill: Mutex<bool>,
}

impl Lender for Shelf {
    fn copy(
        &self,
        offset: u64,
        length: usize,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), Blame> {
        if *self.is_ill.lock().unwrap() {
            return Err(Blame::Io("the disk is ill".into()));
        }
        *self.copied.lock().unwrap() += 1;
        let before = out.len();
        let bytes = self.bytes.lock().unwrap();
        out.extend(bytes.iter().skip(offset as usize).take(length));
        out.resize(before + length, 0);
        Ok(())
    }
}

impl Library {
    fn copied(&self) -> usize {
        *self.0.copied.lock().unwrap()
    }

    fn moments(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.moments.lock().unwrap())
    }
}

impl Tree for Library {
    type Node = ();

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, ())> {
        Ok((User { uid: 0, gid: 0, groups: Vec::new() }, Qid::default(), ())).into()
    }

    fn walk(&self, _: &Rc<User>, _: &(), names: &[Name]) -> Outcome<Vec<(Qid, ())>> {
        Ok(vec![(Qid::default(), ()); names.len()]).into()
    }

    fn open(&self, _: &Rc<User>, _: &(), flags: u32) -> Outcome<Opened<()>> {
        if flags & O_TRUNC != 0 {
            self.0.bytes.lock().unwrap().clear();
        }
        Ok(Opened { qid: Qid::default(), node: (), blocking: false }).into()
    }

    fn getattr(&self, _: &Rc<User>, _: &()) -> Outcome<Attr> {
        Ok(Attr::default()).into()
    }

    fn setattr(&self, _: &Rc<User>, _: &(), set: SetAttr) -> Outcome<()> {
        let size = set.size.unwrap_or(0) as usize;
        self.0.bytes.lock().unwrap().resize(size, 0);
        Ok(()).into()
    }

    fn read(&self, _: &Rc<User>, _: &(), read: Read<'_>) -> Data {
        let &Read { offset, count, .. } = &read;
        let bytes = self.0.bytes.lock().unwrap();
        if let Some(moment) = read.moment() {
            self.0.moments.lock().unwrap().push(moment);
            if offset + u64::from(count) <= bytes.len() as u64 {
                return Data::Loan(Loan { lender: self.0.clone(), offset, length: count as usize });
            }
        }
        read.of(&Bytes::copy_from_slice(&bytes))
    }

    fn write(&self, _: &Rc<User>, _: &(), write: Write) -> Written {
        let Incoming::Here(data) = write.data else { return Written::Unread };
        let offset = write.offset;
        let mut bytes = self.0.bytes.lock().unwrap();
        let end = offset as usize + data.len();
        let length = bytes.len().max(end);
        bytes.resize(length, 0);
        bytes[offset as usize..end].copy_from_slice(&data);
        Ok(data.len() as u32).into()
    }
}

/// A session with fid 1 open for reading and writing; the file has 1000 times `o`.
fn opened() -> (Library, Raw<Library>) {
    let library = Library::default();
    *library.0.bytes.lock().unwrap() = vec![b'o'; 1000];
    let mut raw = Raw::attached(Rc::new(library.clone()));
    raw.feed(&[(1, walk(0, 1, &["file"])), (2, open(1, 2))]).unwrap();
    assert_eq!(raw.tags(), [1, 2]);
    (library, raw)
}

/// The data of the answers to reads, in order.
fn data(raw: &mut Raw<Library>) -> Vec<Bytes> {
    let data = |reply| match reply {
        (_, Message::Rread { data }) => Some(data.into_bytes()),
        _ => None,
    };
    raw.replies().into_iter().filter_map(data).collect()
}

#[test]
fn a_read_shows_what_was_written_before_it_and_nothing_that_was_written_after() {
    let (library, mut raw) = opened();
    let requests = [
        (1, read(1, 0, 6)),
        (2, read(1, 3, 2)),
        (3, write(1, 2, b"nnn")),
        (4, read(1, 0, 6)),
        (5, write(1, 0, b"x")),
        (6, read(1, 0, 6)),
    ];
    raw.feed(&requests).unwrap();
    assert_eq!(library.copied(), 3, "what the writes might change is settled, the last is not");
    let wanted: [&[u8]; 4] = [b"oooooo", b"oo", b"oonnno", b"xonnno"];
    assert_eq!(data(&mut raw), wanted);
}

#[test]
fn whatever_may_change_the_file_settles_what_was_read() {
    let cut = || Message::Tsetattr {
        fid: 1,
        valid: 8,
        mode: 0,
        uid: 0,
        gid: 0,
        size: 2,
        atime_sec: 0,
        atime_nsec: 0,
        mtime_sec: 0,
        mtime_nsec: 0,
    };
    let open_anew = || open(2, O_TRUNC | 1);
    for change in [cut(), open_anew(), write(3, 0, b"far")] {
        let (_, mut raw) = opened();
        raw.feed(&[(8, walk(0, 2, &["file"])), (9, walk(0, 3, &["file"])), (10, open(3, 1))])
            .unwrap();
        raw.replies();
        raw.feed(&[(1, read(1, 0, 3)), (2, change), (3, read(1, 0, 3))]).unwrap();
        let [before, after] = &data(&mut raw)[..] else { panic!("two reads are answered") };
        assert_eq!(before, &b"ooo"[..]);
        assert_ne!(after, &b"ooo"[..]);
    }
}

#[test]
fn reads_and_looks_settle_nothing() {
    let (library, mut raw) = opened();
    let look = Message::Tgetattr { fid: 1, request_mask: 0 };
    raw.feed(&[(1, read(1, 0, 3)), (2, look), (3, walk(0, 2, &["file"])), (4, read(1, 5, 3))])
        .unwrap();
    assert_eq!(library.copied(), 0);
    assert_eq!(data(&mut raw).len(), 2);
}

#[test]
fn a_moment_ends_when_something_arrives_or_is_changed() {
    let (library, mut raw) = opened();
    raw.feed(&[(1, read(1, 0, 3)), (2, read(1, 0, 3)), (3, write(1, 0, b"n")), (4, read(1, 0, 3))])
        .unwrap();
    raw.feed(&[(5, read(1, 0, 3))]).unwrap();
    let moments = library.moments();
    assert_eq!(moments[0], moments[1]);
    assert!(moments[1] < moments[2] && moments[2] < moments[3], "{moments:?}");
    let mut other = Raw::attached(Rc::new(library.clone()));
    other.feed(&[(1, walk(0, 1, &["file"])), (2, open(1, 2)), (3, read(1, 0, 3))]).unwrap();
    assert!(!moments.contains(&library.moments()[0]), "another connection has its own");
}

#[test]
fn a_read_that_cannot_be_settled_ends_the_connection_before_the_change() {
    let (library, mut raw) = opened();
    *library.0.is_ill.lock().unwrap() = true;
    let requests = [(1, read(1, 0, 3)), (2, write(1, 0, b"n")), (3, write(1, 1, b"n"))];
    raw.feed(&requests).unwrap_err();
    assert_eq!(library.0.bytes.lock().unwrap()[..2], *b"oo");
    raw.feed(&[(4, attach(9, 0))]).unwrap_err();
}
