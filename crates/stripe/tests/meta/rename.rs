//! Rename in all its cases.

use crate::lab::*;
use covey_stripe::meta::mode;
use covey_stripe::ops::*;

#[test]
fn a_file_is_renamed_within_and_across_directories() {
    let mut lab = Lab::default();
    let file = lab.file("a");
    let dir = lab.mkdir(ROOT, "d").id;
    assert_eq!(lab.rename(ROOT, "a", ROOT, "b", 0), 0);
    assert_eq!(lab.rename(ROOT, "b", dir, "c", 0), 0);
    assert_eq!(lab.find(ROOT, "b"), Err(Errno::ENOENT));
    let found = lab.find(dir, "c").unwrap();
    assert_eq!((found.id, found.nlink), (file.id, 1));
    assert!(found.ctime > file.ctime && found.mtime == file.mtime);
    assert_eq!((lab.stat(ROOT).size, lab.stat(dir).size), (32, 32));
}

#[test]
fn a_directory_takes_its_parent_link_along() {
    let mut lab = Lab::default();
    let (from, to) = (lab.mkdir(ROOT, "from").id, lab.mkdir(ROOT, "to").id);
    let moved = lab.mkdir(from, "m").id;
    assert_eq!(lab.rename(from, "m", to, "m", 0), 0);
    assert_eq!((lab.stat(from).nlink, lab.stat(to).nlink), (2, 3));
    assert_eq!(lab.stat(moved).parent, to);
    assert_eq!(lab.find(moved, "..").unwrap().id, to);
}

#[test]
fn the_file_that_was_there_is_replaced_and_its_objects_go() {
    let mut lab = Lab::default();
    let (new, old) = (lab.file("new").id, lab.file("old").id);
    lab.extend(old, 10);
    assert_eq!(lab.rename(ROOT, "new", ROOT, "old", 0), 0);
    assert_eq!(lab.find(ROOT, "old").unwrap().id, new);
    assert_eq!(lab.code(0, Op::Getattr { id: old }), Errno::ESTALE);
    assert_eq!(lab.store.pending_reclaims((0, 0), 9).unwrap()[0].id, old);
    assert_eq!((lab.stat(ROOT).size, lab.totals()), (32, (2, 0)));
}

#[test]
fn only_like_replaces_like_and_only_an_empty_directory_is_replaced() {
    let mut lab = Lab::default();
    lab.file("f");
    lab.mkdir(ROOT, "d");
    let full = lab.mkdir(ROOT, "full").id;
    lab.create(full, "x", mode::REGULAR);
    assert_eq!(lab.rename(ROOT, "f", ROOT, "d", 0), Errno::EISDIR);
    assert_eq!(lab.rename(ROOT, "d", ROOT, "f", 0), Errno::ENOTDIR);
    assert_eq!(lab.rename(ROOT, "d", ROOT, "full", 0), Errno::ENOTEMPTY);
    let links = lab.stat(ROOT).nlink;
    assert_eq!(lab.rename(ROOT, "full", ROOT, "d", 0), 0);
    assert_eq!(lab.stat(ROOT).nlink, links - 1);
    assert_eq!(lab.find(ROOT, "d").unwrap().id, full);
}

#[test]
fn an_empty_directory_elsewhere_is_replaced() {
    let mut lab = Lab::default();
    let (one, two) = (lab.mkdir(ROOT, "one").id, lab.mkdir(ROOT, "two").id);
    let moved = lab.mkdir(one, "m").id;
    let gone = lab.mkdir(two, "m").id;
    assert_eq!(lab.rename(one, "m", two, "m", 0), 0);
    assert_eq!((lab.stat(one).nlink, lab.stat(two).nlink), (2, 3));
    assert_eq!((lab.stat(one).size, lab.stat(two).size), (0, 32));
    assert_eq!(lab.stat(moved).parent, two);
    assert_eq!(lab.code(0, Op::Getattr { id: gone }), Errno::ESTALE);
}

#[test]
fn two_names_of_one_file_both_stay() {
    let mut lab = Lab::default();
    let file = lab.file("a").id;
    lab.code(0, Op::Link { id: file, parent: ROOT, name: "b".into() });
    let before = lab.stat(file);
    for flags in [0, rename::EXCHANGE] {
        assert_eq!(lab.rename(ROOT, "a", ROOT, "b", flags), 0);
        assert_eq!(lab.rename(ROOT, "a", ROOT, "a", flags), 0);
    }
    assert_eq!(lab.rename(ROOT, "a", ROOT, "b", rename::NOREPLACE), Errno::EEXIST);
    assert_eq!(lab.stat(file), before);
    assert_eq!(lab.list(ROOT, 4096).len(), 2);
}

#[test]
fn a_directory_does_not_move_into_itself() {
    let mut lab = Lab::default();
    let a = lab.mkdir(ROOT, "a").id;
    let b = lab.mkdir(a, "b").id;
    let c = lab.mkdir(b, "c").id;
    assert_eq!(lab.rename(ROOT, "a", a, "x", 0), Errno::EINVAL);
    assert_eq!(lab.rename(ROOT, "a", c, "x", 0), Errno::EINVAL);
    assert_eq!(lab.rename(a, "b", c, "x", 0), Errno::EINVAL);
    assert_eq!(lab.rename(ROOT, "a", b, "c", rename::EXCHANGE), Errno::EINVAL);
    assert_eq!(lab.rename(b, "c", ROOT, "a", rename::EXCHANGE), Errno::EINVAL);
    assert_eq!(lab.rename(b, "c", ROOT, "a", 0), Errno::ENOTEMPTY);
    assert_eq!(lab.rename(b, "c", a, "x", 0), 0);
}

/// Somebody's working directory has been removed, and where it was below, too or not.
#[test]
fn nothing_moves_into_a_removed_directory_whatever_its_parents_were() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    lab.mkdir(ROOT, "x");
    for gone in [false, true] {
        let top = lab.mkdir(ROOT, "top").id;
        let below = lab.mkdir(top, "below").id;
        lab.reply(session, Op::Open { id: below, access: 1 });
        assert_eq!(lab.code(0, Op::Unlink { parent: top, name: "below".into(), dir: true }), 0);
        if gone {
            assert_eq!(lab.code(0, Op::Unlink { parent: ROOT, name: "top".into(), dir: true }), 0);
        } else {
            assert_eq!(lab.rename(ROOT, "top", below, "t", 0), Errno::ENOENT);
        }
        assert_eq!(lab.rename(ROOT, "x", below, "y", 0), Errno::ENOENT);
        lab.rename(ROOT, "top", ROOT, "before", 0);
    }
}

#[test]
fn exchange_swaps_a_file_and_a_directory_in_place() {
    let mut lab = Lab::default();
    let (one, two) = (lab.mkdir(ROOT, "one").id, lab.mkdir(ROOT, "two").id);
    let file = lab.create(one, "x", mode::REGULAR).id;
    let dir = lab.mkdir(two, "y").id;
    let cookies = (lab.list(one, 4096), lab.list(two, 4096));
    assert_eq!(lab.rename(one, "x", two, "y", rename::EXCHANGE), 0);
    assert_eq!(lab.find(one, "x").unwrap().id, dir);
    assert_eq!(lab.find(two, "y").unwrap().id, file);
    assert_eq!((lab.stat(one).nlink, lab.stat(two).nlink), (3, 2));
    assert_eq!(lab.stat(dir).parent, one);
    assert_eq!((lab.list(one, 4096), lab.list(two, 4096)), cookies);
    assert_eq!(lab.rename(one, "x", two, "z", rename::EXCHANGE), Errno::ENOENT);
    assert_eq!(lab.rename(one, "x", two, "z", 3), Errno::EINVAL);
    assert_eq!(lab.rename(one, "x", two, "z", 4), Errno::EINVAL);
}

#[test]
fn exchange_within_one_directory_keeps_its_counts() {
    let mut lab = Lab::default();
    let file = lab.file("f").id;
    let dir = lab.mkdir(ROOT, "d").id;
    let (links, size) = (lab.stat(ROOT).nlink, lab.stat(ROOT).size);
    assert_eq!(lab.rename(ROOT, "f", ROOT, "d", rename::EXCHANGE), 0);
    assert_eq!((lab.stat(ROOT).nlink, lab.stat(ROOT).size), (links, size));
    assert_eq!(lab.find(ROOT, "f").unwrap().id, dir);
    assert_eq!(lab.find(ROOT, "d").unwrap().id, file);
    assert_eq!(lab.stat(dir).parent, ROOT);
}

#[test]
fn moving_a_directory_elsewhere_needs_write_permission_on_it() {
    let mut lab = Lab::default();
    lab.code(0, chmod(ROOT, 0o777));
    let to = lab.create(ROOT, "to", mode::DIRECTORY).id;
    lab.code(0, chmod(to, 0o777));
    lab.mkdir(ROOT, "theirs");
    lab.caller = user(ALICE, &[50]);
    assert_eq!(lab.rename(ROOT, "theirs", to, "x", 0), Errno::EACCES);
    assert_eq!(lab.rename(ROOT, "theirs", ROOT, "x", 0), 0);
}
