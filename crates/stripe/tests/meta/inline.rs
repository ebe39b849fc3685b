//! Content that lies with its inode.

use crate::lab::*;
use covey_ninep::tree::Errno;
use covey_stripe::distribution::{INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX};
use covey_stripe::meta::{Applied, Work, access, mode};
use covey_stripe::ops::*;
use covey_wire::{List, Name, Payload};

const LIMIT: u64 = INLINE_BYTES_DEFAULT as u64;

fn write_op(id: Id, epoch: u32, offset: u32, data: &[u8]) -> Op {
    let piece = InlinePiece { offset, bytes: data.len() as u32 };
    let (end, pieces) = (piece.end(), List(vec![piece]));
    Op::WriteInline { id, epoch, end, hole: false, pieces, data: data.to_vec().into() }
}

fn write(lab: &mut Lab, id: Id, offset: u32, data: &[u8]) -> Inode {
    let epoch = lab.stat(id).epoch;
    node(lab.reply(0, write_op(id, epoch, offset, data)))
}

fn read(lab: &mut Lab, id: Id) -> Vec<u8> {
    inline(lab.reply(0, Op::ReadInline { id, offset: 0, count: u32::MAX })).1
}

fn inline(reply: Reply) -> (Inode, Vec<u8>) {
    match reply {
        Reply::Inline { inode, data } => (inode, data.into_bytes().to_vec()),
        other => panic!("{other:?}"),
    }
}

fn create_write(name: &str, data: &[u8]) -> Op {
    Op::CreateWrite {
        parent: ROOT,
        name: Name::from(name),
        mode: 0o644,
        gid: u32::MAX,
        exclusive: true,
        access: 6,
        data: data.to_vec().into(),
    }
}

#[test]
fn one_operation_creates_and_fills_and_one_finds_opens_and_reads() {
    let mut lab = progressive();
    let (session, _) = lab.hello(0, &[]);
    let made = created(lab.reply(session, create_write("f", b"hello")));
    assert_eq!((made.size, made.inline, made.sparse), (5, 5, false));
    let names = List(vec![Name::from("f")]);
    let open = Op::OpenRead { from: ROOT, names, access: 4, count: 3 };
    let (inode, data) = inline(lab.reply(session, open));
    assert_eq!((inode, &data[..]), (made.clone(), &b"hel"[..]));
    // Both have it open: it outlives its name.
    assert_eq!(lab.unlink(ROOT, "f"), 0);
    for _ in 0..2 {
        assert_eq!(read(&mut lab, made.id), b"hello");
        lab.reply(session, Op::Release { id: made.id });
    }
    assert_eq!(lab.code(0, Op::Getattr { id: made.id }), Errno::ESTALE);
    check_replay(&mut lab);
}

#[test]
fn an_open_by_a_path_with_dots_asks_for_the_file_that_it_leads_to() {
    let mut lab = progressive();
    let dir = lab.mkdir(ROOT, "d").id;
    let file = lab.create(dir, "f", mode::REGULAR | 0o644).id;
    for path in ["f", "./f", "../d/f", "../d/.././d/f"] {
        let names = List(path.split('/').map(Name::from).collect());
        let (access, count) = (access::READ, 1);
        let open = Op::OpenRead { from: dir, names: names.clone(), access, count };
        for op in [open, Op::Walk { from: dir, names }] {
            assert_eq!(lab.store.asks_for(&op).unwrap().last(), Some(&file), "{path}");
        }
    }
}

#[test]
fn a_write_moves_the_size_and_the_times_and_leaves_zeros_before_it() {
    let mut lab = progressive();
    let id = lab.file("f").id;
    let before = lab.stat(id);
    let after = write(&mut lab, id, 3, b"abc");
    assert_eq!((after.size, after.inline, after.epoch), (6, 6, 0));
    assert!(after.mtime > before.mtime && after.version > before.version);
    assert_eq!(read(&mut lab, id), b"\0\0\0abc");
    write(&mut lab, id, 1, b"XY");
    assert_eq!(read(&mut lab, id), b"\0XYabc");
    // A write that goes on beyond: its end is told with it.
    let pieces = List(vec![InlinePiece { offset: LIMIT as u32 - 1, bytes: 1 }]);
    let (end, data) = (LIMIT + 1000, Payload::from(b"z".to_vec()));
    let op = Op::WriteInline { id, epoch: 0, end, hole: false, pieces, data };
    let after = node(lab.reply(0, op));
    assert_eq!((after.size, u64::from(after.inline)), (LIMIT + 1000, LIMIT));
    let tail = Op::ReadInline { id, offset: LIMIT as u32 - 2, count: 9 };
    assert_eq!(inline(lab.reply(0, tail)).1, b"\0z");
    check_replay(&mut lab);
}

#[test]
fn pieces_of_one_write_arrive_together() {
    let mut lab = progressive();
    let id = created(lab.reply(0, create_write("f", &[b'.'; 12]))).id;
    let pieces = [(1, 2), (5, 3), (11, 3)];
    let pieces = pieces.map(|(offset, bytes)| InlinePiece { offset, bytes }).to_vec();
    let data = Payload::from(b"abcdefgh".to_vec());
    let op = Op::WriteInline { id, epoch: 0, end: 14, hole: true, pieces: List(pieces), data };
    assert!(node(lab.reply(0, op)).sparse);
    assert_eq!(read(&mut lab, id), b".ab..cde...fgh");
}

#[test]
fn what_was_cut_reads_as_zeros_when_the_file_grows_again() {
    let mut lab = progressive();
    let id = created(lab.reply(0, create_write("f", b"abcdef"))).id;
    let cut = lab.truncate(id, 2);
    assert_eq!((cut.size, cut.inline, cut.epoch), (2, 2, 0));
    let grown = lab.truncate(id, 5);
    assert_eq!((grown.size, grown.inline), (5, 2));
    assert_eq!(read(&mut lab, id), b"ab\0\0\0");
    lab.truncate(id, 0);
    assert_eq!(lab.stat(id).inline, 0);
    write(&mut lab, id, 1, b"x");
    assert_eq!(read(&mut lab, id), b"\0x");
    check_replay(&mut lab);
}

#[test]
fn a_file_that_lies_here_is_cut_and_removed_without_the_io_servers() {
    let mut lab = progressive();
    let id = created(lab.reply(0, create_write("f", b"abc"))).id;
    let cut = lab.send(0, 0, truncate(id, 1));
    assert!(matches!(cut, Applied::Reply(Reply::Node { .. })), "{cut:?}");
    lab.unlink(ROOT, "f");
    assert_eq!(lab.work, []);
    assert_eq!(lab.code(0, Op::ReadInline { id, offset: 0, count: 1 }), Errno::ESTALE);
    let rows = dump(lab.store.kv());
    assert!(!rows.iter().any(|(key, _)| key[0] == b'd'), "its row is gone");
    check_replay(&mut lab);
}

#[test]
fn a_file_that_was_larger_is_cut_by_its_epoch_from_both_sides() {
    // Within the limit; beyond it; a write beyond it that has only begun.
    for (end, epoch) in [(None, 0), (Some(LIMIT + 1), 1), (Some(0), 1)] {
        let mut lab = progressive();
        let id = lab.file("f").id;
        write(&mut lab, id, 0, b"abc");
        write(&mut lab, id, LIMIT as u32 - 1, b"z");
        end.into_iter().for_each(|end| drop(lab.extend(id, end)));
        assert_eq!(lab.truncate(id, 2).epoch, epoch);
        assert_eq!(read(&mut lab, id), b"ab");
        let is_cut = lab.work.iter().any(|work| matches!(work, Work::Cut { .. }));
        assert_eq!(is_cut, epoch > 0);
        // Its objects have been, so they are removed.
        lab.unlink(ROOT, "f");
        let is_removed = lab.work.iter().any(|work| matches!(work, Work::Remove { .. }));
        assert_eq!(is_removed, epoch > 0);
        check_replay(&mut lab);
    }
}

#[test]
fn a_write_of_an_older_epoch_is_refused() {
    let mut lab = progressive();
    let id = lab.file("f").id;
    lab.extend(id, LIMIT * 2);
    lab.truncate(id, 0);
    assert_eq!(lab.code(0, write_op(id, 0, 0, b"old")), Errno::ESTALE);
    assert_eq!(lab.code(0, write_op(id, 1, 0, b"new")), 0);
    assert_eq!(read(&mut lab, id), b"new");
}

#[test]
fn appends_go_one_after_another_until_they_need_a_place() {
    let mut lab = progressive();
    let (session, _) = lab.hello(0, &[]);
    let id = lab.file("f").id;
    let append = |data: &[u8]| Op::AppendInline { id, data: data.to_vec().into() };
    let offset = |reply| match reply {
        Reply::Offset { offset, .. } => offset,
        other => panic!("{other:?}"),
    };
    assert_eq!(offset(lab.reply(0, append(b"one"))), 0);
    assert_eq!(offset(lab.reply(0, append(b"two"))), 3);
    assert_eq!(read(&mut lab, id), b"onetwo");
    assert_eq!(offset(lab.reply(0, append(&vec![b'.'; LIMIT as usize - 6]))), 6);
    assert_eq!(lab.code(0, append(b"x")), Errno::ERANGE);
    // While another append has a place, too, whose bytes may come before its commit.
    lab.truncate(id, 6);
    assert_eq!(offset(lab.reply(session, Op::Reserve { id, length: 3 })), 6);
    assert_eq!(lab.code(0, append(b"x")), Errno::ERANGE);
    let pieces = List(vec![InlinePiece { offset: 6, bytes: 3 }]);
    let data = Payload::from(b"abc".to_vec());
    let reserved = Op::WriteInline { id, epoch: 0, end: 0, hole: false, pieces, data };
    assert_eq!(node(lab.reply(0, reserved)).size, 6);
    assert_eq!(read(&mut lab, id), b"onetwo");
    // What has a place may still be on its way: a cut now needs the epoch.
    let mut other = lab.stat(id);
    lab.reply(session, Op::Commit { id, offset: 6, length: 3 });
    assert_eq!(read(&mut lab, id), b"onetwoabc");
    lab.reply(session, Op::Reserve { id, length: 3 });
    other = node(lab.reply(0, truncate(other.id, 1)));
    assert_eq!(other.epoch, 1);
    check_replay(&mut lab);
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let mut lab = progressive();
    let id = created(lab.reply(0, create_write("f", b"abc"))).id;
    let striped = Lab::default().file("g");
    assert_eq!(striped.inline, 0);
    let beyond = write_op(id, 0, LIMIT as u32, b"x");
    assert_eq!(lab.code(0, beyond), Errno::EINVAL);
    let mut short = write_op(id, 0, 0, b"xyz");
    if let Op::WriteInline { data, .. } = &mut short {
        *data = b"xy".to_vec().into();
    }
    assert_eq!(lab.code(0, short), Errno::EINVAL);
    let large = vec![0; INLINE_BYTES_MAX as usize + 1];
    assert_eq!(lab.code(0, create_write("large", &large)), Errno::E2BIG);
    assert_eq!(lab.code(0, write_op(id, 0, 0, &large)), Errno::E2BIG);
    assert_eq!(lab.code(0, write_op(ROOT, 0, 0, b"x")), Errno::EISDIR);
    assert_eq!(lab.code(0, create_write("f", b"x")), Errno::EEXIST);
    let pieces = List(vec![InlinePiece { offset: u32::MAX, bytes: u32::MAX }; 2]);
    let huge =
        Op::WriteInline { id, epoch: 0, end: u64::MAX, hole: true, pieces, data: vec![1].into() };
    assert_eq!(lab.code(0, huge), Errno::EFBIG);
    assert_eq!(read(&mut lab, id), b"abc");
    check_replay(&mut lab);
}

#[test]
fn of_a_file_that_is_longer_the_beginning_is_kept_and_of_a_striped_one_nothing() {
    let mut lab = progressive();
    let (inline, plain) = (LIMIT / 2, StripingHint::progressive(65536, 0));
    let hint = StripingHint { params: List(vec![inline as u32, plain.params.0[1]]), ..plain };
    lab.reply(0, Op::SetStriping { id: ROOT, hint });
    let data = vec![7; inline as usize + 100];
    let made = created(lab.reply(0, create_write("f", &data)));
    assert_eq!((made.size, u64::from(made.inline)), (inline, inline));
    lab.reply(0, Op::SetStriping { id: ROOT, hint: StripingHint::simple_stripe(65536, 0) });
    let made = created(lab.reply(0, create_write("g", b"abc")));
    assert_eq!((made.size, made.inline), (0, 0));
    assert_eq!(lab.code(0, write_op(made.id, 0, 0, b"x")), Errno::EINVAL);
}

#[test]
fn a_repeated_creation_is_answered_again_and_done_once() {
    let mut lab = progressive();
    let (session, _) = lab.hello(0, &[]);
    let first = lab.send(session, 1, create_write("f", b"abc"));
    assert_eq!(lab.send(session, 1, create_write("f", b"abc")), first);
    assert_eq!(lab.totals(), (2, 3));
}

#[test]
fn opening_checks_permission_and_follows_no_link() {
    let mut lab = progressive();
    let (session, _) = lab.hello(0, &[]);
    let file = created(lab.reply(0, create_write("f", b"abc")));
    lab.reply(0, chmod(file.id, 0o200));
    lab.create(ROOT, "l", covey_stripe::meta::mode::SYMLINK);
    let dir = lab.mkdir(ROOT, "d");
    let open = |from, names: &[&str], access| {
        let names = names.iter().map(|name| Name::from(*name)).collect();
        Op::OpenRead { from, names: List(names), access, count: 100 }
    };
    let (read, write) = (access::READ, access::WRITE);
    lab.caller = user(ALICE, &[ALICE]);
    assert_eq!(lab.code(session, open(ROOT, &["f"], read)), Errno::EACCES);
    lab.caller = root();
    assert_eq!(lab.code(session, open(ROOT, &["l"], read)), Errno::ELOOP);
    assert_eq!(lab.code(session, open(ROOT, &["f", "x"], read)), Errno::ENOTDIR);
    assert_eq!(lab.code(session, open(ROOT, &["d", "x"], read)), Errno::ENOENT);
    assert_eq!(lab.code(session, open(ROOT, &["d"], write)), Errno::EISDIR);
    assert_eq!(inline(lab.reply(session, open(dir.id, &["..", "d"], read))).1, b"");
    assert_eq!(inline(lab.reply(session, open(file.id, &[], read))).1, b"abc");
    // Who does not open to read is not given the content.
    assert_eq!(inline(lab.reply(session, open(file.id, &[], write))).1, b"");
}

#[test]
fn an_amendment_writes_and_sets_what_a_write_and_a_change_of_attributes_would() {
    let mut lab = progressive();
    let id = lab.file("f").id;
    let mask = set::MODE | set::UID | set::GID | set::ATIME | set::MTIME;
    let inode = node(lab.reply(0, amend(id, b"content", mask)));
    assert_eq!((inode.size, inode.mode & 0o7777), (7, 0o640));
    assert_eq!((inode.atime, inode.mtime), (3, 4));
    assert_eq!(read(&mut lab, id), b"content");
    let inode = node(lab.reply(0, amend(id, b"", set::MTIME)));
    assert_eq!((inode.size, inode.mtime), (7, 4));
    check_replay(&mut lab);
}

#[test]
fn an_amendment_of_who_is_alone_no_more_needs_the_version_that_it_knew() {
    let mut lab = progressive();
    let id = lab.file("f").id;
    let at = |version: u64, mask: u32| {
        let mut op = amend(id, b"content", mask | set::AT_VERSION);
        if let Op::Amend { uid, gid, .. } = &mut op {
            (*uid, *gid) = set::in_fields(version);
        }
        op
    };
    let known = lab.stat(id).version;
    assert_eq!(lab.code(0, at(known, set::UID)), Errno::EINVAL);
    let inode = node(lab.reply(0, at(known, set::MTIME)));
    assert_eq!((inode.uid, inode.gid, inode.mtime), (0, 0, 4));
    let before = lab.stat(id);
    for stale in [known, 0, before.version + 1, before.version | 1 << 32] {
        assert_eq!(lab.code(0, at(stale, set::MODE)), Errno::ESTALE);
    }
    assert_eq!(lab.stat(id), before);
    assert_eq!(lab.code(0, at(before.version, 0)), 0);
    check_replay(&mut lab);
}

#[test]
fn an_amendment_that_is_refused_writes_nothing() {
    let mut lab = progressive();
    let id = lab.file("f").id;
    let before = lab.stat(id);
    for mask in [set::SIZE, set::MODE | set::SIZE_OF_OPEN] {
        assert_eq!(lab.code(0, amend(id, b"content", mask)), Errno::EINVAL);
    }
    // Somebody else's.
    lab.caller = user(1000, &[1000]);
    assert_eq!(lab.code(0, amend(id, b"content", set::MODE)), Errno::EPERM);
    lab.caller = root();
    let mut given_away = amend(id, b"content", set::UID);
    if let Op::Amend { uid, .. } = &mut given_away {
        *uid = 1000;
    }
    assert_eq!(lab.code(0, given_away), Errno::EINVAL);
    assert_eq!(lab.stat(id), before);
    check_replay(&mut lab);
}
