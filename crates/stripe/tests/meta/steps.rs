//! Names that their sessions change late, many at once and in several directories.

use crate::lab::*;
use covey_stripe::kv::Kv;
use covey_stripe::meta::{TAKEN_MAX, mode};
use covey_stripe::ops::*;
use covey_wire::{List, Name};

fn names(steps: &[(u8, Id, Id, &str)]) -> Op {
    let dirs = steps.iter().map(|(_, dir, ..)| *dir).collect();
    let ids = steps.iter().map(|(_, _, id, _)| *id).collect();
    let names = steps.iter().map(|(.., name)| Name::from(*name)).collect();
    let steps = steps.iter().map(|(step, ..)| *step).collect();
    Op::Names { dirs: List(dirs), steps: List(steps), ids: List(ids), names: List(names) }
}

fn codes(lab: &mut Lab, steps: &[(u8, Id, Id, &str)]) -> Vec<u32> {
    match lab.reply(0, names(steps)) {
        Reply::Steps { codes, .. } => codes.0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_that_change_late_change_as_those_that_change_at_once() {
    let mut one = progressive();
    let mut other = progressive();
    let mut made = Vec::new();
    for lab in [&mut one, &mut other] {
        let dirs = [lab.mkdir(ROOT, "d").id, lab.mkdir(ROOT, "e").id];
        let file = mode::REGULAR | 0o600;
        made.push((
            dirs,
            [(dirs[0], "a"), (dirs[1], "b")].map(|(dir, name)| lab.create(dir, name, file).id),
        ));
    }
    let ([d, e], [a, b]) = made[0];
    let steps = [
        (step::LINK, d, a, "a.new"),
        (step::DROP, d, a, "a"),
        (step::LINK, e, b, "b.new"),
        (step::LINK, d, b, "b.too"),
        (step::UNLINK, e, b, "b"),
    ];
    assert_eq!(codes(&mut one, &steps), [0; 5]);
    let told = one.store.changed_dirs(&names(&steps));
    let told: Vec<(Id, u64)> = told.iter().map(|dir| (dir.id, dir.size)).collect();
    assert_eq!(told, [(d, 2 * 32), (e, 32)], "the directories as they are then");
    for (step, dir, id, name) in steps {
        let name = Name::from(name);
        let op = match step {
            step::LINK => Op::Link { id, parent: dir, name },
            _ => Op::Unlink { parent: dir, name, dir: false },
        };
        assert_eq!(other.code(0, op), 0);
    }
    for id in [d, e, a, b] {
        let (one, other) = (one.stat(id), other.stat(id));
        assert_eq!((one.nlink, one.size, one.version), (other.nlink, other.size, other.version));
    }
    check_replay(&mut one);
}

#[test]
fn a_refused_step_leaves_nothing() {
    let mut lab = progressive();
    let (file, taken, dir) = (lab.file("f.tmp").id, lab.file("f").id, lab.mkdir(ROOT, "d").id);
    let gone = lab.file("gone").id;
    assert_eq!(lab.code(0, Op::Unlink { parent: ROOT, name: "gone".into(), dir: false }), 0);
    let refused = codes(
        &mut lab,
        &[
            (step::LINK, ROOT, file, "f"),
            (step::DROP, ROOT, file, "f.tmp"),
            (step::LINK, ROOT, gone, "again"),
            (step::LINK, ROOT, dir, "dir"),
            (step::LINK, 999, file, "x"),
            (step::LINK, ROOT, file, ""),
            (step::UNLINK, ROOT, dir, "d"),
            (step::UNLINK, ROOT, file, "f"),
            (step::UNLINK, ROOT, file, "none"),
            (step::LINK, ROOT, file, "f.new"),
        ],
    );
    let wanted = [
        Errno::EEXIST,
        Errno::EBUSY,
        Errno::ESTALE,
        Errno::EPERM,
        Errno::ESTALE,
        Errno::EINVAL,
        Errno::EISDIR,
        Errno::ENOENT,
        Errno::ENOENT,
        0,
    ];
    assert_eq!(refused, wanted);
    assert_eq!((lab.stat(file).nlink, lab.stat(taken).nlink), (2, 1));
    assert_eq!(lab.stat(ROOT).size, 4 * 32);
    assert_eq!(codes(&mut lab, &[(step::DROP, ROOT, file, "f.tmp")]), [0]);
    assert_eq!(codes(&mut lab, &[(step::UNLINK, ROOT, file, "f.new")]), [0]);
    assert_eq!(lab.code(0, Op::Getattr { id: file }), Errno::ESTALE);
    check_replay(&mut lab);
}

#[test]
fn who_may_not_change_a_name_does_not() {
    let mut lab = progressive();
    let dir = lab.create(ROOT, "d", mode::DIRECTORY | 0o1777).id;
    let closed = lab.create(ROOT, "closed", mode::DIRECTORY | 0o700).id;
    let secret = lab.create(closed, "secret", mode::REGULAR | 0o600).id;
    lab.caller = user(ALICE, &[ALICE]);
    let hers = lab.create(dir, "hers", mode::REGULAR | 0o600).id;
    assert_eq!(codes(&mut lab, &[(step::LINK, dir, hers, "hers too")]), [0]);
    lab.caller = user(BOB, &[BOB]);
    let refused = codes(
        &mut lab,
        &[
            (step::DROP, dir, hers, "hers"),
            (step::UNLINK, dir, hers, "hers"),
            (step::UNLINK, closed, secret, "secret"),
            (step::UNLINK, closed, secret, "none"),
            (step::LINK, closed, hers, "in"),
            (step::LINK, ROOT, hers, "out"),
        ],
    );
    let (eperm, eacces) = (Errno::EPERM, Errno::EACCES);
    assert_eq!(refused, [eperm, eperm, eacces, eacces, eacces, eacces]);
    check_replay(&mut lab);
}

#[test]
fn steps_come_in_lists_of_one_length_and_not_without_end() {
    let mut lab = progressive();
    let file = lab.file("f").id;
    assert_eq!(codes(&mut lab, &[]), []);
    let Op::Names { dirs, steps, ids, .. } = names(&[(step::LINK, ROOT, file, "g")]) else {
        panic!("it is another")
    };
    let uneven = Op::Names { dirs, steps, ids, names: List(Vec::new()) };
    assert_eq!(lab.code(0, uneven), Errno::EINVAL);
    let many = vec![(step::UNLINK, ROOT, file, "f"); TAKEN_MAX + 1];
    assert_eq!(lab.code(0, names(&many)), Errno::EINVAL);
    assert_eq!(codes(&mut lab, &[(9, ROOT, file, "f")]), [Errno::EINVAL]);
    assert_eq!(lab.stat(file).nlink, 1);
    check_replay(&mut lab);
}

/// What is logged is gone through again where other things are known: a step must end there as it did.
#[test]
fn a_refused_step_is_refused_in_a_replay() {
    let mut lab = progressive();
    let session = lab.hello(0, &[]).0;
    let tmpfile = Op::Tmpfile { parent: ROOT, mode: 0o600, gid: u32::MAX, access: 6 };
    let Reply::Created { inode, .. } = lab.reply(session, tmpfile) else { panic!("it is made") };
    let linked = codes(&mut lab, &[(step::LINK, ROOT, inode.id, "named")]);
    assert_eq!(linked, [Errno::ENOENT], "it may be about to go");
    assert_eq!(lab.code(session, Op::Release { id: inode.id }), 0);
    assert_eq!(lab.code(0, Op::Getattr { id: inode.id }), Errno::ESTALE);

    let file = lab.file("f").id;
    assert_eq!(super::quotas::limit(&mut lab, (0, ALICE), 10, 0), 0);
    let linked = codes(&mut lab, &[(step::LINK, ROOT, file, "g"), (step::UNLINK, ROOT, file, "f")]);
    assert_eq!(linked, [Errno::EDQUOT, 0]);
    check_replay(&mut lab);
}

#[test]
fn a_damaged_row_is_in_the_way_of_its_own_step_alone() {
    let mut lab = progressive();
    let (bad, good) = (lab.file("bad").id, lab.file("good").id);
    let key = [&b"i"[..], &[0, 0, 0, 0, 0, 0, 0, bad as u8]].concat();
    lab.store.kv_mut().put(&key, b"\x01garbage").unwrap();
    let steps = [
        (step::LINK, ROOT, good, "other"),
        (step::UNLINK, ROOT, bad, "bad"),
        (step::LINK, ROOT, bad, "bad too"),
        (step::DROP, ROOT, good, "good"),
    ];
    assert_eq!(codes(&mut lab, &steps), [0, Errno::EIO, Errno::EIO, 0]);
    assert_eq!((lab.stat(good).nlink, lab.stat(ROOT).size), (1, 2 * 32));
}

#[test]
fn a_link_takes_space_and_a_removal_does_not() {
    assert!(names(&[(step::UNLINK, ROOT, 7, "a"), (step::LINK, ROOT, 7, "b")]).grows());
    assert!(!names(&[(step::UNLINK, ROOT, 7, "a"), (step::DROP, ROOT, 7, "b")]).grows());
    assert!(!names(&[]).grows());
}
