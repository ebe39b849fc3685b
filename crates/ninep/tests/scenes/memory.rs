//! The in-memory tree, through a client.

use crate::pair::*;
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::{Dialect, Message, Qid};
use covey_ninep::tree::Errno;
use covey_wire::{Field, Name, Reader};

const O_RDWR: u32 = 2;

fn tree() -> Pair<MemoryTree> {
    Pair::attached(MemoryTree::default())
}

/// Makes a file in the root, open on `fid`.
fn create(pair: &mut Pair<MemoryTree>, fid: u32, name: &str) {
    pair.call(walk(0, fid, &[])).unwrap();
    let flags = O_RDWR;
    pair.call(Message::Tlcreate { fid, name: name.into(), flags, mode: 0o644, gid: 5 }).unwrap();
}

fn mkdir(pair: &mut Pair<MemoryTree>, name: &str) -> Reply {
    pair.call(Message::Tmkdir { dfid: 0, name: name.into(), mode: 0o755, gid: 0 })
}

fn rename(pair: &mut Pair<MemoryTree>, old: &str, newdirfid: u32, new: &str) -> Reply {
    let (oldname, newname) = (old.into(), new.into());
    pair.call(Message::Trenameat { olddirfid: 0, oldname, newdirfid, newname })
}

fn unlink(pair: &mut Pair<MemoryTree>, name: &str, flags: u32) -> Reply {
    pair.call(Message::Tunlinkat { dirfid: 0, name: name.into(), flags })
}

/// Size, link count and mode.
fn attr(pair: &mut Pair<MemoryTree>, fid: u32) -> (u64, u64, u32) {
    match pair.call(Message::Tgetattr { fid, request_mask: 0x7ff }) {
        Ok(Message::Rgetattr { size, nlink, mode, .. }) => (size, nlink, mode),
        other => panic!("{other:?}"),
    }
}

/// Names and cookies of the root after `offset`, in one reply of at most `count` bytes.
fn list(pair: &mut Pair<MemoryTree>, offset: u64, count: u32) -> Vec<(u64, String)> {
    let Ok(Message::Rreaddir { data }) = pair.call(Message::Treaddir { fid: 90, offset, count })
    else {
        panic!("no Rreaddir");
    };
    let mut from = Reader::new(data.into_bytes());
    let mut entries = Vec::new();
    while from.remaining() > 0 {
        let _qid = Qid::get(Dialect::Linux, &mut from).unwrap();
        let (cookie, _kind) = (from.u64().unwrap(), from.u8().unwrap());
        let name = <Name as Field>::get((), &mut from).unwrap();
        entries.push((cookie, name.to_string()));
    }
    entries
}

fn open_root(pair: &mut Pair<MemoryTree>) {
    pair.call(walk(0, 90, &[])).unwrap();
    pair.call(open(90, 0)).unwrap();
}

#[test]
fn an_unlinked_file_lives_until_its_last_fid_is_gone() {
    let mut pair = tree();
    create(&mut pair, 1, "f");
    pair.call(write(1, 0, b"still here")).unwrap();
    unlink(&mut pair, "f", 0).unwrap();
    assert_eq!(code(pair.call(walk(0, 2, &["f"]))), Errno::ENOENT);
    assert_eq!(attr(&mut pair, 1), (10, 0, 0o100644));
    assert_eq!(data(pair.call(read(1, 0, 99))), b"still here");
}

#[test]
fn a_renamed_file_goes_on_under_its_fid_and_replaces_what_was_there() {
    let mut pair = tree();
    create(&mut pair, 1, "old");
    create(&mut pair, 2, "new");
    pair.call(write(1, 0, b"1")).unwrap();
    rename(&mut pair, "old", 0, "new").unwrap();
    pair.call(write(1, 1, b"2")).unwrap();
    pair.call(walk(0, 3, &["new"])).unwrap();
    assert_eq!(attr(&mut pair, 3), (2, 1, 0o100644));
    assert_eq!(attr(&mut pair, 2).1, 0);
    assert_eq!(code(pair.call(walk(0, 4, &["old"]))), Errno::ENOENT);
}

#[test]
fn a_directory_moves_with_what_is_in_it_but_not_into_itself() {
    let mut pair = tree();
    mkdir(&mut pair, "a").unwrap();
    mkdir(&mut pair, "b").unwrap();
    pair.call(walk(0, 1, &["a"])).unwrap();
    pair.call(walk(0, 2, &["b"])).unwrap();
    rename(&mut pair, "a", 2, "c").unwrap();
    pair.call(walk(0, 3, &["b", "c", "..", "..", "b"])).unwrap();
    assert_eq!(code(rename(&mut pair, "b", 1, "x")), Errno::EINVAL);
    assert_eq!(code(rename(&mut pair, "b", 2, "x")), Errno::EINVAL);
    assert_eq!(code(unlink(&mut pair, "b", 0x200)), Errno::ENOTEMPTY);
    assert_eq!(code(unlink(&mut pair, "b", 0)), Errno::EISDIR);
}

#[test]
fn a_rename_into_a_directory_that_is_gone_ends() {
    let mut pair = tree();
    mkdir(&mut pair, "a").unwrap();
    pair.call(walk(0, 1, &["a"])).unwrap();
    pair.call(Message::Tmkdir { dfid: 1, name: "b".into(), mode: 0o755, gid: 0 }).unwrap();
    pair.call(walk(1, 2, &["b"])).unwrap();
    pair.call(Message::Tunlinkat { dirfid: 1, name: "b".into(), flags: 0x200 }).unwrap();
    pair.call(Message::Tclunk { fid: 1 }).unwrap();
    unlink(&mut pair, "a", 0x200).unwrap();
    create(&mut pair, 3, "f");
    rename(&mut pair, "f", 2, "f").unwrap();
}

#[test]
fn hard_links_are_counted_and_symbolic_links_read() {
    let mut pair = tree();
    create(&mut pair, 1, "f");
    pair.call(Message::Tlink { dfid: 0, fid: 1, name: "g".into() }).unwrap();
    assert_eq!(attr(&mut pair, 1).1, 2);
    assert_eq!(
        code(pair.call(Message::Tlink { dfid: 0, fid: 1, name: "g".into() })),
        Errno::EEXIST
    );
    unlink(&mut pair, "f", 0).unwrap();
    assert_eq!(attr(&mut pair, 1).1, 1);
    let symlink = Message::Tsymlink { dfid: 0, name: "s".into(), target: "a/b".into(), gid: 0 };
    pair.call(symlink).unwrap();
    pair.call(walk(0, 2, &["s"])).unwrap();
    let link = pair.call(Message::Treadlink { fid: 2 });
    assert_eq!(link, Ok(Message::Rreadlink { target: "a/b".into() }));
    assert_eq!(code(pair.call(Message::Treadlink { fid: 1 })), Errno::EINVAL);
}

#[test]
fn setattr_changes_what_it_names_and_nothing_else() {
    let mut pair = tree();
    create(&mut pair, 1, "f");
    pair.call(write(1, 0, b"0123456789")).unwrap();
    let set = |valid, mode, size, mtime_sec| Message::Tsetattr {
        fid: 1,
        valid,
        mode,
        uid: 9,
        gid: 9,
        size,
        atime_sec: 0,
        atime_nsec: 0,
        mtime_sec,
        mtime_nsec: 5,
    };
    pair.call(set(8, 0, 4, 0)).unwrap();
    assert_eq!(data(pair.call(read(1, 0, 99))), b"0123");
    pair.call(set(1, 0o600, 0, 0)).unwrap();
    assert_eq!(attr(&mut pair, 1), (4, 1, 0o100600));
    pair.call(set(32 | 256, 0, 0, 777)).unwrap();
    match pair.call(Message::Tgetattr { fid: 1, request_mask: 0x7ff }) {
        Ok(Message::Rgetattr { mtime_sec, mtime_nsec, uid, .. }) => {
            assert_eq!((mtime_sec, mtime_nsec), (777, 5));
            assert_ne!(uid, 9);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_listing_goes_on_after_its_cookie_while_the_directory_changes() {
    let mut pair = tree();
    for name in ["a", "b", "c"] {
        create(&mut pair, 50, name);
        pair.call(Message::Tclunk { fid: 50 }).unwrap();
    }
    open_root(&mut pair);
    // Two entries of 25 and 26 bytes fit, the third does not.
    let first = list(&mut pair, 0, 51);
    assert_eq!(first.iter().map(|(_, name)| &name[..]).collect::<Vec<_>>(), [".", ".."]);
    let second = list(&mut pair, first[1].0, 25);
    assert_eq!(second[0].1, "a");
    unlink(&mut pair, "a", 0).unwrap();
    create(&mut pair, 50, "d");
    let rest = list(&mut pair, second[0].0, 4096);
    assert_eq!(rest.iter().map(|(_, name)| &name[..]).collect::<Vec<_>>(), ["b", "c", "d"]);
    assert!(list(&mut pair, rest[2].0, 4096).is_empty());
    assert_eq!(code(pair.call(Message::Treaddir { fid: 90, offset: 0, count: 24 })), Errno::EINVAL);
}

#[test]
fn a_fifo_is_read_when_it_is_written() {
    let mut pair = tree();
    let (name, mode) = ("p".into(), 0o10644);
    pair.call(Message::Tmknod { dfid: 0, name, mode, major: 0, minor: 0, gid: 0 }).unwrap();
    pair.call(walk(0, 1, &["p"])).unwrap();
    pair.call(open(1, O_RDWR)).unwrap();
    let mut reading = pair.conn.call(read(1, 0, 4));
    pair.settle();
    assert!(poll_once(std::pin::Pin::new(&mut reading)).is_none());
    pair.call(write(1, 0, b"abcdef")).unwrap();
    assert_eq!(data(pair.run(reading)), b"abcd");
    assert_eq!(data(pair.call(read(1, 0, 4))), b"ef");
    let waiting = pair.conn.call(read(1, 0, 4));
    pair.call(Message::Tclunk { fid: 1 }).unwrap();
    assert_eq!(code(pair.run(waiting)), Errno::EINTR);
}

#[test]
fn the_version_of_a_qid_changes_with_the_content() {
    let mut pair = tree();
    create(&mut pair, 1, "f");
    let mut qid = || match pair.call(walk(0, 2, &["f"])) {
        Ok(Message::Rwalk { qids }) => {
            pair.call(Message::Tclunk { fid: 2 }).unwrap();
            pair.call(write(1, 0, b"x")).unwrap();
            qids.0[0]
        }
        other => panic!("{other:?}"),
    };
    let (before, after) = (qid(), qid());
    assert_eq!(before.path, after.path);
    assert_ne!(before.version, after.version);
}

#[test]
fn a_megabyte_goes_there_and_back() {
    let mut pair = tree();
    create(&mut pair, 1, "big");
    let content: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    pair.call(write(1, 0, &content)).unwrap();
    assert_eq!(data(pair.call(read(1, 0, 1 << 20))), content);
}
