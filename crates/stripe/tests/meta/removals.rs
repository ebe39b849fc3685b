//! Names that their sessions remove late, many at once.

use crate::lab::*;
use covey_stripe::meta::{TAKEN_MAX, mode};
use covey_stripe::ops::*;
use covey_wire::{List, Name};

fn remove(dir: Id, files: &[(Id, &str)]) -> Op {
    let ids = files.iter().map(|(id, _)| *id).collect();
    let names = files.iter().map(|(_, name)| Name::from(*name)).collect();
    Op::Remove { dir, ids: List(ids), names: List(names) }
}

#[test]
fn names_that_are_removed_late_go_as_those_that_are_removed_at_once() {
    let mut one = progressive();
    let mut other = progressive();
    let mut dirs = Vec::new();
    for lab in [&mut one, &mut other] {
        let dir = lab.mkdir(ROOT, "d").id;
        let ids: Vec<Id> = ["a", "b", "c"]
            .iter()
            .map(|name| lab.create(dir, name, mode::REGULAR | 0o600).id)
            .collect();
        let link = Op::Link { id: ids[0], parent: ROOT, name: "link".into() };
        assert_eq!(lab.code(0, link), 0);
        dirs.push((dir, ids));
    }
    let (dir, ids) = &dirs[0];
    assert_eq!(one.code(0, remove(*dir, &[(ids[0], "a"), (ids[2], "c")])), 0);
    for name in ["a", "c"] {
        let op = Op::Unlink { parent: dirs[1].0, name: name.into(), dir: false };
        assert_eq!(other.code(0, op), 0);
    }
    assert_eq!(one.stat(*dir).size, 32);
    assert_eq!(one.stat(ids[0]).nlink, 1);
    for id in [*dir, ids[0], ids[1]] {
        let (one, other) = (one.stat(id), other.stat(id));
        assert_eq!((one.nlink, one.size), (other.nlink, other.size), "file {id}");
    }
    assert_eq!(one.code(0, Op::Getattr { id: ids[2] }), other.code(0, Op::Getattr { id: ids[2] }));
    check_replay(&mut one);
}

#[test]
fn two_names_of_one_file_both_go() {
    let mut lab = progressive();
    let session = lab.hello(0, &[]).0;
    let id = lab.file("a").id;
    assert_eq!(lab.code(0, Op::Link { id, parent: ROOT, name: "b".into() }), 0);
    assert_eq!(lab.code(session, Op::Open { id, access: 4 }), 0);
    let op = remove(ROOT, &[(id, "a"), (id, "b"), (id, "a")]);
    assert_eq!(lab.code(0, op), 0);
    assert_eq!(lab.stat(id).nlink, 0, "it is open");
    assert_eq!(lab.stat(ROOT).size, 0);
    check_replay(&mut lab);
}

#[test]
fn what_has_come_by_the_name_since_stays() {
    let mut lab = progressive();
    let (gone, dir) = (lab.file("a").id, lab.mkdir(ROOT, "dir").id);
    assert_eq!(lab.code(0, Op::Unlink { parent: ROOT, name: "a".into(), dir: false }), 0);
    let new = lab.file("a").id;
    let before = dump(lab.store.kv());
    assert_eq!(
        lab.code(0, remove(ROOT, &[(gone, "a"), (dir, "dir"), (new, "b"), (0, "")])),
        Errno::EINVAL
    );
    assert_eq!(lab.code(0, remove(ROOT, &[(gone, "a"), (dir, "dir"), (new, "b"), (new, "..")])), 0);
    assert_eq!(dump(lab.store.kv()), before);
    assert_eq!(lab.stat(new).nlink, 1);
    check_replay(&mut lab);
}

#[test]
fn who_may_not_remove_one_of_them_removes_none() {
    let mut lab = progressive();
    let dir = lab.create(ROOT, "d", mode::DIRECTORY | 0o1777).id;
    lab.caller = user(ALICE, &[ALICE]);
    let hers = lab.create(dir, "hers", mode::REGULAR | 0o600).id;
    lab.caller = user(BOB, &[BOB]);
    let his = lab.create(dir, "his", mode::REGULAR | 0o600).id;
    let before = dump(lab.store.kv());
    assert_eq!(lab.code(0, remove(dir, &[(his, "his"), (hers, "hers")])), Errno::EPERM);
    assert_eq!(lab.code(0, remove(ROOT, &[(dir, "d")])), Errno::EACCES);
    assert_eq!(dump(lab.store.kv()), before);
    assert_eq!(lab.code(0, remove(dir, &[(his, "his")])), 0);
    lab.caller = root();
    assert_eq!(lab.code(0, remove(hers, &[(his, "his")])), Errno::ENOTDIR);
    assert_eq!(lab.code(0, remove(999, &[])), Errno::ESTALE);
    let uneven = Op::Remove { dir, ids: List(vec![hers]), names: List(vec![]) };
    assert_eq!(lab.code(0, uneven), Errno::EINVAL);
    let many: Vec<_> = (0..=TAKEN_MAX as Id).map(|_| (hers, "hers")).collect();
    assert_eq!(lab.code(0, remove(dir, &many)), Errno::EINVAL);
    check_replay(&mut lab);
}

#[test]
fn files_are_taken_in_directories_alone_and_not_without_end() {
    let mut lab = progressive();
    let file = lab.file("f").id;
    let take = |dir, count| Op::Take { dir, ids: List(vec![file; count]) };
    assert_eq!(lab.code(0, take(ROOT, TAKEN_MAX)), 0);
    assert_eq!(lab.code(0, take(ROOT, TAKEN_MAX + 1)), Errno::EINVAL);
    assert_eq!(lab.code(0, take(file, 1)), Errno::ENOTDIR);
    assert_eq!(lab.code(0, take(999, 1)), Errno::ESTALE);
    let dir = lab.mkdir(ROOT, "d").id;
    let session = lab.hello(0, &[]).0;
    assert_eq!(lab.code(session, Op::Open { id: dir, access: 4 }), 0);
    assert_eq!(lab.code(0, Op::Unlink { parent: ROOT, name: "d".into(), dir: true }), 0);
    assert_eq!(lab.code(0, take(dir, 1)), Errno::ENOENT);
    check_replay(&mut lab);
}

#[test]
fn a_name_that_is_given_twice_takes_no_other_file_with_it() {
    let mut lab = progressive();
    let (file, dir) = (lab.file("a").id, lab.mkdir(ROOT, "dir").id);
    for other in [dir, ROOT, 999] {
        let named = format!("again{other}");
        let id = lab.file(&named).id;
        let reply = lab.reply(0, remove(ROOT, &[(other, &named), (id, &named), (other, &named)]));
        assert_eq!(reply, Reply::Ids { ids: List(vec![other, other]) });
        assert_eq!(lab.code(0, Op::Getattr { id }), Errno::ESTALE);
    }
    assert_eq!((lab.stat(dir).nlink, lab.stat(file).nlink), (2, 1));
    assert_eq!(lab.stat(ROOT).size, 2 * 32);
    check_replay(&mut lab);
}
