//! Directories that have a quota.

use crate::lab::*;
use crate::quotas::{count_all, limit, owned, scanned};
use covey_ninep::tree::Errno;
use covey_stripe::meta::quota::{NO_LIMIT, PROJECT};
use covey_stripe::ops::{Id, Op, Project, ROOT, Reply, rename};
use covey_wire::Rng;

fn make(lab: &mut Lab, dir: Id) -> Result<Project, u32> {
    match lab.reply(0, Op::MakeProject { dir }) {
        Reply::Projects { projects } => Ok(projects.0[0]),
        other => Err(code(&other)),
    }
}

/// As the client goes through a tree: each directory before what is in it.
fn gather(lab: &mut Lab, dir: Id, project: u32) {
    assert_eq!(lab.code(0, Op::SetProject { id: dir, project }), 0);
    for (name, _) in lab.list(dir, 1 << 16) {
        if name == "." || name == ".." {
            continue;
        }
        let inode = lab.find(dir, &name).unwrap();
        if inode.is_dir() {
            gather(lab, inode.id, project);
        } else {
            assert_eq!(lab.code(0, Op::SetProject { id: inode.id, project }), 0);
        }
    }
}

/// A directory with a quota, and all that is in it counted.
fn begin(lab: &mut Lab, dir: Id, files_max: u64, bytes_max: u64) -> u32 {
    let number = make(lab, dir).unwrap().number;
    assert_eq!(limit(lab, (PROJECT, number), files_max, bytes_max), 0);
    gather(lab, dir, number);
    assert_eq!(lab.code(0, Op::EndProject { number, whole: true }), 0);
    count_all(lab);
    number
}

fn held(lab: &mut Lab, number: u32) -> (u64, u64) {
    owned(lab).get(&(PROJECT, number)).copied().unwrap_or_default()
}

/// Files in a directory with one below it, beside one of the same kind.
fn two_trees(lab: &mut Lab) -> (Id, Id, Id) {
    lab.reply(0, chmod(ROOT, 0o777));
    let [dir, other] = ["dir", "other"].map(|name| {
        let id = lab.mkdir(ROOT, name).id;
        lab.reply(0, chmod(id, 0o777));
        let file = lab.create(id, "file", 0o666).id;
        lab.extend(file, 1000);
        id
    });
    let sub = lab.mkdir(dir, "sub").id;
    lab.reply(0, chmod(sub, 0o777));
    let below = lab.create(sub, "below", 0o666).id;
    lab.extend(below, 500);
    (dir, sub, other)
}

#[test]
fn everything_below_a_directory_is_counted_whenever_it_came() {
    let mut lab = Lab::default();
    let (dir, sub, _) = two_trees(&mut lab);
    let number = begin(&mut lab, dir, NO_LIMIT, 1 << 40);
    assert_eq!(held(&mut lab, number), (4, 1500));
    let new = lab.create(sub, "new", 0o644).id;
    lab.extend(new, 100);
    lab.mkdir(sub, "deep");
    assert_eq!(held(&mut lab, number), (6, 1600));
    lab.truncate(new, 40);
    assert_eq!(lab.unlink(dir, "file"), 0);
    lab.serve();
    assert_eq!(held(&mut lab, number), (5, 540));
    assert_eq!(owned(&mut lab), scanned(&lab));
    lab.crash();
    assert_eq!((held(&mut lab, number), owned(&mut lab)), ((5, 540), scanned(&lab)));
    assert_eq!(lab.code(0, Op::Recount {}), 0);
    count_all(&mut lab);
    assert_eq!(held(&mut lab, number), (5, 540));
}

#[test]
fn nobody_passes_the_limit_of_a_directory_and_nothing_is_taken_that_was_there() {
    let mut lab = Lab::default();
    let (dir, sub, other) = two_trees(&mut lab);
    let number = make(&mut lab, dir).unwrap().number;
    // Already passed, but not all is counted: it does not hold yet.
    assert_eq!(limit(&mut lab, (PROJECT, number), 4, 1200), 0);
    count_all(&mut lab);
    lab.caller = user(ALICE, &[ALICE]);
    let early = lab.create(dir, "early", 0o644).id;
    lab.caller = root();
    gather(&mut lab, dir, number);
    lab.code(0, Op::EndProject { number, whole: true });
    assert_eq!(held(&mut lab, number), (5, 1500));

    lab.caller = user(ALICE, &[ALICE]);
    assert_eq!(lab.code(0, create(sub, "new", 0o644)), Errno::EDQUOT);
    let (epoch, end) = (lab.stat(early).epoch, 1);
    assert_eq!(lab.code(0, Op::Extend { id: early, epoch, end, hole: false }), Errno::EDQUOT);
    assert_eq!(lab.code(0, Op::Room { id: early, end }), Errno::EDQUOT);
    let session = lab.hello(0, &[]).0;
    let unnamed = Op::Tmpfile { parent: sub, mode: 0o644, gid: ALICE, access: 6 };
    assert_eq!(lab.code(session, unnamed), Errno::EDQUOT);
    lab.create(other, "elsewhere", 0o644);
    // What is given back can be used, up to the limit and no further.
    assert_eq!((lab.unlink(sub, "below"), lab.unlink(dir, "file")), (0, 0));
    lab.serve();
    lab.extend(early, 1200);
    assert_eq!(lab.code(0, Op::Extend { id: early, epoch, end: 1201, hole: false }), Errno::EDQUOT);
    lab.create(sub, "new", 0o644);
    assert_eq!(lab.code(0, create(sub, "more", 0o644)), Errno::EDQUOT);
    lab.caller = root();
    assert_eq!(lab.code(0, create(sub, "roots", 0o644)), 0);
    assert_eq!(owned(&mut lab), scanned(&lab));
}

#[test]
fn nothing_crosses_the_border_of_a_directory_with_a_quota() {
    let mut lab = Lab::default();
    let (dir, sub, other) = two_trees(&mut lab);
    let number = begin(&mut lab, dir, NO_LIMIT, 1 << 40);
    let before = held(&mut lab, number);
    for (from, name, to) in [(dir, "file", other), (sub, "below", ROOT), (dir, "sub", other)] {
        assert_eq!(lab.rename(from, name, to, "moved", 0), Errno::EXDEV, "{name}");
    }
    assert_eq!(lab.rename(other, "file", sub, "moved", 0), Errno::EXDEV);
    assert_eq!(lab.rename(ROOT, "other", dir, "moved", 0), Errno::EXDEV);
    for (one, two) in [(dir, other), (other, dir)] {
        assert_eq!(lab.rename(one, "file", two, "file", rename::EXCHANGE), Errno::EXDEV);
        let id = lab.find(one, "file").unwrap().id;
        let link = Op::Link { id, parent: two, name: "link".into() };
        assert_eq!(lab.code(0, link), Errno::EXDEV);
    }
    // Within it, and the whole of it.
    assert_eq!(lab.rename(dir, "file", sub, "file", 0), 0);
    assert_eq!(lab.rename(sub, "below", sub, "renamed", 0), 0);
    assert_eq!(lab.rename(ROOT, "dir", other, "dir", 0), 0);
    assert_eq!(lab.rename(other, "dir", ROOT, "dir", 0), 0);
    let id = lab.find(sub, "file").unwrap().id;
    assert_eq!(lab.code(0, Op::Link { id, parent: dir, name: "link".into() }), 0);
    assert_eq!((held(&mut lab, number), owned(&mut lab)), (before, scanned(&lab)));
}

#[test]
fn what_is_about_to_be_counted_does_not_leave() {
    let mut lab = Lab::default();
    let (dir, sub, other) = two_trees(&mut lab);
    // The directory was passed, and what is in it was not.
    let number = make(&mut lab, dir).unwrap().number;
    assert_eq!(lab.rename(dir, "file", other, "moved", 0), Errno::EXDEV);
    assert_eq!(lab.rename(dir, "sub", other, "moved", 0), Errno::EXDEV);
    assert_eq!(lab.rename(dir, "file", dir, "renamed", 0), 0);
    // Below a directory that was not passed names move as before.
    assert_eq!(lab.rename(sub, "below", other, "below", 0), 0);
    // Nor does it get a quota of its own.
    assert_eq!(make(&mut lab, sub), Err(Errno::EINVAL));
    gather(&mut lab, dir, number);
    count_all(&mut lab);
    assert_eq!(held(&mut lab, number), (3, 1000));
    assert_eq!(owned(&mut lab), scanned(&lab));
}

#[test]
fn a_directory_with_a_quota_lies_in_no_other_one() {
    let mut lab = Lab::default();
    let (dir, sub, other) = two_trees(&mut lab);
    let inner = begin(&mut lab, sub, NO_LIMIT, 1 << 40);
    assert_eq!(make(&mut lab, dir), Err(Errno::EINVAL));
    assert_eq!(make(&mut lab, ROOT), Err(Errno::EINVAL));
    assert_eq!(make(&mut lab, sub).unwrap().number, inner, "it is what it was");
    assert_eq!(lab.code(0, Op::EndProject { number: inner, whole: false }), 0);
    let number = begin(&mut lab, dir, NO_LIMIT, 1 << 40);
    assert!(number > inner, "a number is not given twice");
    assert_eq!(make(&mut lab, sub), Err(Errno::EINVAL));
    assert_eq!(make(&mut lab, 1 << 30), Err(Errno::ESTALE));
    lab.caller = user(ALICE, &[ALICE]);
    assert_eq!(make(&mut lab, other), Err(Errno::EPERM));
    assert_eq!(lab.code(0, Op::SetProject { id: other, project: number }), Errno::EPERM);
    assert_eq!(lab.code(0, Op::EndProject { number, whole: false }), Errno::EPERM);
    lab.caller = root();
    assert_eq!(lab.code(0, Op::SetProject { id: other, project: 99 }), Errno::EINVAL);
    assert_eq!(limit(&mut lab, (PROJECT, 99), 1, 1), Errno::EINVAL);
}

#[test]
fn a_quota_that_is_over_or_whose_directory_is_gone_binds_nobody() {
    let mut lab = Lab::default();
    let (dir, sub, other) = two_trees(&mut lab);
    let number = begin(&mut lab, dir, 1, 1);
    gather(&mut lab, dir, 0);
    assert_eq!(lab.code(0, Op::EndProject { number, whole: false }), 0);
    assert_eq!(held(&mut lab, number), (0, 0));
    lab.caller = user(ALICE, &[ALICE]);
    lab.create(sub, "new", 0o644);
    lab.caller = root();
    assert_eq!(lab.rename(sub, "new", other, "new", 0), 0);

    begin(&mut lab, sub, NO_LIMIT, 1 << 40);
    assert_eq!(lab.unlink(sub, "below"), 0);
    lab.serve();
    assert_eq!(lab.rmdir(dir, "sub"), 0);
    lab.serve();
    let Reply::Projects { projects } = lab.reply(0, Op::Projects {}) else { panic!() };
    assert_eq!(projects.0, []);
    assert_eq!(owned(&mut lab), scanned(&lab));
    lab.crash();
    assert_eq!(owned(&mut lab), scanned(&lab));
}

#[test]
fn whatever_happens_the_sums_are_those_of_a_scan() {
    for seed in 0..8 {
        let (mut lab, mut rng) = (Lab::default(), Rng::new(seed));
        let (dir, sub, other) = two_trees(&mut lab);
        let number = begin(&mut lab, dir, NO_LIMIT, 1 << 40);
        let dirs = [dir, sub, other];
        for step in 0..300 {
            let (at, to) = (dirs[rng.index(3)], dirs[rng.index(3)]);
            let (name, other_name) = (format!("f{}", rng.index(6)), format!("f{}", rng.index(6)));
            match rng.below(7) {
                0 | 1 => drop(lab.code(0, create(at, &name, 0o644))),
                2 => drop(lab.unlink(at, &name)),
                3 => drop(lab.rename(at, &name, to, &other_name, 0)),
                4 => drop(lab.rename(at, &name, to, &other_name, rename::EXCHANGE)),
                5 => {
                    if let Ok(inode) = lab.find(at, &name) {
                        let link =
                            Op::Link { id: inode.id, parent: to, name: other_name.as_str().into() };
                        lab.code(0, link);
                    }
                }
                _ => {
                    if let Ok(inode) = lab.find(at, &name) {
                        lab.truncate(inode.id, rng.below(5000));
                    }
                }
            }
            lab.serve();
            if step % 100 == 50 {
                lab.crash();
            }
        }
        assert_eq!(owned(&mut lab), scanned(&lab), "seed {seed}");
        // What says that it belongs to the directory is below it, and nothing else.
        let mut below = (0, 0);
        let mut left = vec![dir];
        let mut seen = std::collections::BTreeSet::new();
        while let Some(here) = left.pop() {
            below.0 += 1;
            for (name, _) in lab.list(here, 1 << 16) {
                let inode = match name.as_str() {
                    "." | ".." => continue,
                    name => lab.find(here, name).unwrap(),
                };
                if inode.is_dir() {
                    left.push(inode.id);
                } else if seen.insert(inode.id) {
                    below = (below.0 + 1, below.1 + inode.size);
                }
            }
        }
        assert_eq!(held(&mut lab, number), below, "seed {seed}");
    }
}
