//! Files that their sessions make late, in directories that they are alone with.

use crate::lab::*;
use crate::quotas::count_all;
use covey_stripe::meta::{Applied, mode, quota};
use covey_stripe::ops::*;
use covey_wire::List;

#[test]
fn a_file_that_is_made_late_is_as_one_that_was_made_at_once() {
    let mut lab = progressive();
    let session = lab.hello(0, &[]).0;
    let parent = lab.mkdir(ROOT, "d").id;
    let (first, stripings) = numbers(&mut lab, parent, 3);
    assert_eq!(stripings.len(), 3);
    let at_once = lab.create(parent, "other", mode::REGULAR | 0o600);
    assert_eq!(at_once.id, first + 3, "no number is given twice");
    let mask = set::MODE | set::MTIME;
    let made = Make { at: lab.now, mask, set_mode: 0o640, mtime: 4, ..make(parent, "f", first) };
    let op = made.with(&stripings[0], b"content").op();
    let Reply::Created { inode, created: true } = lab.reply(session, op) else {
        panic!("it was made");
    };
    assert_eq!((inode.id, inode.size, inode.mtime), (first, 7, 4));
    assert_eq!(inode.mode, mode::REGULAR | 0o640);
    assert_eq!(inode.btime, lab.now - 1, "it was made before it was said");
    assert_eq!(inode.striping.as_ref(), Some(&stripings[0]));
    assert_eq!(lab.stat(first), inode);
    let open_files = lab.store.sessions()[0].open_files;
    assert_eq!(open_files, 1);
    let read = lab.reply(0, Op::ReadInline { id: first, offset: 0, count: 100 });
    let Reply::Inline { data, .. } = read else { panic!("{read:?}") };
    assert_eq!(&data.into_bytes()[..], b"content");
    // What came long after, or before its time, counts from when it is said.
    for (at, id) in [(0, first + 1), (u64::MAX, first + 2)] {
        lab.now += 2_000_000_000;
        let name = format!("g{id}");
        let op = Make { at, ..make(parent, &name, id) }.with(&stripings[1], b"").op();
        let made = created(lab.reply(session, op));
        assert_eq!((made.btime, made.size), (lab.now, 0));
    }
    assert_eq!(lab.stat(parent).size, 4 * 32);
    check_replay(&mut lab);
}

#[test]
fn one_of_which_a_write_is_about_to_go_beyond_is_cut_and_removed_like_any_other() {
    let mut lab = progressive();
    let session = lab.hello(0, &[]).0;
    let (first, stripings) = numbers(&mut lab, ROOT, 2);
    for (id, mask) in [(first, 0), (first + 1, set::BEYOND)] {
        let made = Make { mask, ..make(ROOT, &format!("f{id}"), id) };
        created(lab.reply(session, made.with(&stripings[0], b"content").op()));
    }
    assert_eq!(lab.truncate(first, 3).epoch, 0, "all of it lies with its inode");
    assert_eq!(lab.truncate(first + 1, 3).epoch, 1);
    lab.reply(session, Op::Close { ids: List(vec![first, first + 1]) });
    assert_eq!(
        [lab.unlink(ROOT, &format!("f{first}")), lab.unlink(ROOT, "f0")],
        [0, Errno::ENOENT]
    );
    lab.serve();
    assert_eq!(lab.store.pending_reclaims((0, 0), 9), Ok(vec![]));
    assert_eq!(lab.unlink(ROOT, &format!("f{}", first + 1)), 0);
    lab.serve();
    let reclaims = lab.store.pending_reclaims((0, 0), 9).expect("a store in memory");
    assert_eq!(reclaims.iter().map(|reclaim| reclaim.id).collect::<Vec<_>>(), [first + 1]);
    check_replay(&mut lab);
}

#[test]
fn one_that_was_made_and_answered_is_opened_again_when_it_is_said_again() {
    let mut lab = progressive();
    let session = lab.hello(0, &[]).0;
    let (first, stripings) = numbers(&mut lab, ROOT, 1);
    let op = make(ROOT, "f", first).with(&stripings[0], b"content").op();
    let one = lab.send(session, 7, op.clone());
    assert_eq!(lab.hello(session, &[]), (session, true), "it told of no open");
    assert_eq!(lab.store.sessions()[0].open_files, 0);
    assert_eq!(lab.send(session, 7, op), one);
    assert_eq!(lab.store.sessions()[0].open_files, 1);
    check_replay(&mut lab);
}

#[test]
fn what_is_refused_leaves_nothing() {
    let mut lab = progressive();
    let (first, stripings) = numbers(&mut lab, ROOT, 2);
    lab.file("taken");
    let before = dump(lab.store.kv());
    let good = || make(ROOT, "f", first).with(&stripings[0], b"content");
    let mut other = stripings[0].clone();
    other.servers.0.swap_remove(0);
    other.servers.0.push(99);
    let many = StripingHint::simple_stripe(65536, 0);
    let foreign = Striping { kind: many.kind, params: List(vec![]), ..stripings[0].clone() };
    let twice = Striping { servers: List(vec![0, 0]), ..stripings[0].clone() };
    let cases = [
        (Errno::EEXIST, Make { name: "taken".into(), ..good() }),
        (Errno::EEXIST, Make { name: "..".into(), ..good() }),
        (Errno::EINVAL, Make { name: "a/b".into(), ..good() }),
        (Errno::EINVAL, Make { id: 0, ..good() }),
        (Errno::EINVAL, Make { id: ROOT, ..good() }),
        (Errno::EINVAL, Make { id: u64::MAX, ..good() }),
        (Errno::EINVAL, Make { mode: mode::DIRECTORY | 0o755, ..good() }),
        (Errno::EINVAL, Make { mask: set::SIZE, ..good() }),
        (Errno::EINVAL, Make { mask: set::UID, ..good() }),
        (Errno::EINVAL, Make { end: 1 << 40, ..good() }),
        (Errno::EINVAL, Make { striping: other, ..good() }),
        (Errno::EINVAL, Make { striping: foreign, ..good() }),
        (Errno::EINVAL, Make { striping: twice, ..good() }),
        (Errno::ESTALE, Make { parent: 999, ..good() }),
    ];
    for (code, case) in cases {
        let op = case.op();
        assert_eq!(lab.code(0, op.clone()), code, "{op:?}");
    }
    lab.caller = user(ALICE, &[ALICE]);
    assert_eq!(lab.code(0, good().op()), Errno::EACCES);
    lab.caller = root();
    assert_eq!(dump(lab.store.kv()), before);
    assert_eq!(lab.code(0, good().op()), 0);
    assert_eq!(lab.code(0, Make { name: "again".into(), ..good() }.op()), Errno::EINVAL);
    check_replay(&mut lab);
}

#[test]
fn where_quotas_are_counted_no_numbers_are_given() {
    let mut lab = progressive();
    let limit = Quota {
        kind: quota::USER,
        id: ALICE,
        bytes_max: 3,
        files_max: quota::NO_LIMIT,
        bytes: 0,
        files: 0,
    };
    let open = lab.create(ROOT, "open", mode::DIRECTORY | 0o777).id;
    let (first, stripings) = numbers(&mut lab, open, 2);
    assert_eq!(lab.code(0, Op::SetQuota { quota: limit }), 0);
    count_all(&mut lab);
    assert_eq!(numbers(&mut lab, open, 2), (0, Vec::new()));
    let made = lab.reply(0, make_dir(open, "d", mode::DIRECTORY | 0o755, 2));
    assert!(
        matches!(made, Reply::Alone { first: 0, stripings: List(none), .. } if none.is_empty())
    );
    // One that has numbers from before.
    lab.caller = user(ALICE, &[ALICE]);
    let made = make(open, "f", first).with(&stripings[0], b"much");
    assert_eq!(lab.code(0, made.op()), Errno::EDQUOT);
    let made = make(open, "f", first).with(&stripings[0], b"few");
    assert_eq!(lab.code(0, made.op()), 0);
    lab.caller = root();
    check_replay(&mut lab);
}

fn make_dir(parent: u64, name: &str, mode: u32, count: u16) -> Op {
    Op::MakeDir { parent, name: name.into(), mode, gid: u32::MAX, count }
}

#[test]
fn a_directory_is_made_as_any_other_with_numbers_for_its_files() {
    let mut lab = progressive();
    let session = lab.hello(0, &[]).0;
    let within = lab.create(ROOT, "within", mode::DIRECTORY | mode::SETGID | 0o777).id;
    let other = lab.create(within, "other", mode::DIRECTORY | 0o750);
    lab.now -= 1;
    let op = make_dir(within, "d", mode::DIRECTORY | 0o750, 3);
    let answer = lab.send(session, 7, op.clone());
    let Applied::Reply(Reply::Alone { dir, first, stripings, now }) = &answer else {
        panic!("{answer:?}")
    };
    assert_eq!((stripings.0.len(), *now), (3, lab.now));
    assert_eq!(*dir, Inode { id: dir.id, ..other }, "but for its number");
    assert_eq!((lab.stat(dir.id), lab.stat(within).nlink), (dir.clone(), 4));
    assert_eq!(lab.send(session, 7, op), answer, "said again it is made once");
    let file = lab.create(ROOT, "another", mode::REGULAR | 0o600).id;
    assert!(file >= first + 3 && dir.id < *first, "no number is given twice");
    let made = make(dir.id, "f", *first).with(&stripings.0[0], b"content").op();
    assert_eq!(created(lab.reply(session, made)).size, 7);
    let Reply::Alone { stripings, .. } =
        lab.reply(session, make_dir(within, "e", mode::DIRECTORY | 0o700, 0))
    else {
        panic!("it was made")
    };
    assert_eq!(stripings.0, [], "none were asked for");
    check_replay(&mut lab);
}

#[test]
fn a_directory_that_is_refused_takes_no_numbers() {
    let mut lab = progressive();
    lab.file("taken");
    let before = dump(lab.store.kv());
    let dir = mode::DIRECTORY | 0o755;
    let cases = [
        (Errno::EEXIST, make_dir(ROOT, "taken", dir, 3)),
        (Errno::EEXIST, make_dir(ROOT, "..", dir, 3)),
        (Errno::EINVAL, make_dir(ROOT, "a/b", dir, 3)),
        (Errno::EINVAL, make_dir(ROOT, "f", mode::REGULAR | 0o755, 3)),
        (Errno::EINVAL, make_dir(ROOT, "f", 0o755, 3)),
        (Errno::ESTALE, make_dir(999, "f", dir, 3)),
    ];
    for (code, op) in cases {
        assert_eq!(lab.code(0, op.clone()), code, "{op:?}");
    }
    lab.caller = user(ALICE, &[ALICE]);
    assert_eq!(lab.code(0, make_dir(ROOT, "f", dir, 3)), Errno::EACCES);
    lab.caller = root();
    assert_eq!(dump(lab.store.kv()), before);
    check_replay(&mut lab);
}

#[test]
fn numbers_are_given_for_directories_alone_and_not_without_end() {
    let mut lab = progressive();
    let file = lab.file("f").id;
    assert_eq!(lab.code(0, Op::Alone { dir: file, count: 1 }), Errno::ENOTDIR);
    assert_eq!(lab.code(0, Op::Alone { dir: 999, count: 1 }), Errno::ESTALE);
    assert_eq!(numbers(&mut lab, ROOT, 0).1.len(), 1);
    assert_eq!(numbers(&mut lab, ROOT, u16::MAX).1.len(), 64);
    let Applied::Reply(Reply::Alone { now, .. }) =
        lab.send(0, 0, Op::Alone { dir: ROOT, count: 1 })
    else {
        panic!("it was answered");
    };
    assert_eq!(now, lab.now);
    check_replay(&mut lab);
}
