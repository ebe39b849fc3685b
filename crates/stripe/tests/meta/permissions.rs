//! Who may do what.

use crate::lab::*;
use covey_stripe::meta::{access, mode};
use covey_stripe::ops::*;
use covey_wire::{List, Name};

const STAFF: u32 = 50;
const OTHERS: u32 = 60;

fn alice() -> Caller {
    user(ALICE, &[STAFF])
}

fn bob() -> Caller {
    user(BOB, &[OTHERS])
}

/// A root directory where everyone may make files.
fn open_lab(bits: u32) -> Lab {
    let mut lab = Lab::default();
    assert_eq!(lab.code(0, chmod(ROOT, bits)), 0);
    lab.caller = alice();
    lab
}

fn chown(id: Id, uid: u32, gid: u32) -> Op {
    Attributes { uid, gid, ..attributes(id, set::UID | set::GID) }.into()
}

fn chgrp(id: Id, gid: u32) -> Op {
    Attributes { gid, ..attributes(id, set::GID) }.into()
}

#[test]
fn the_owner_is_judged_by_the_owners_bits_even_where_others_may_more() {
    let mut lab = open_lab(0o777);
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o047).id;
    let read = Op::Open { id: file, access: access::READ };
    assert_eq!(lab.code(0, read.clone()), Errno::EACCES);
    lab.caller = user(BOB, &[OTHERS, STAFF]);
    assert_eq!(lab.code(0, read.clone()), 0);
    assert_eq!(lab.code(0, Op::Open { id: file, access: access::WRITE }), Errno::EACCES);
    lab.caller = bob();
    assert_eq!(lab.code(0, Op::Open { id: file, access: 7 }), 0);
    lab.caller = root();
    assert_eq!(lab.code(0, read), 0);
}

#[test]
fn root_executes_only_what_somebody_could() {
    let mut lab = Lab::default();
    let file = lab.file("f").id;
    let run = Op::Open { id: file, access: access::EXECUTE };
    assert_eq!(lab.code(0, run.clone()), Errno::EACCES);
    lab.code(0, chmod(file, 0o001));
    assert_eq!(lab.code(0, run), 0);
}

#[test]
fn a_walk_needs_search_permission_on_each_directory() {
    let mut lab = open_lab(0o777);
    let outer = lab.create(ROOT, "outer", mode::DIRECTORY | 0o755).id;
    let inner = lab.create(outer, "inner", mode::DIRECTORY | 0o600).id;
    lab.caller = root();
    lab.create(inner, "f", mode::REGULAR | 0o666);
    lab.caller = alice();
    assert_eq!(lab.find(inner, "f"), Err(Errno::EACCES));
    let names = List(vec![Name::from("outer"), Name::from("inner"), Name::from("f")]);
    match lab.reply(0, Op::Walk { from: ROOT, names }) {
        Reply::Nodes { inodes } => assert_eq!(inodes.0.len(), 2),
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_change_only_with_write_permission_on_the_directory() {
    let mut lab = open_lab(0o755);
    lab.caller = root();
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o666).id;
    lab.caller = alice();
    assert_eq!(lab.code(0, create(ROOT, "g", mode::REGULAR)), Errno::EACCES);
    assert_eq!(lab.unlink(ROOT, "f"), Errno::EACCES);
    assert_eq!(lab.rename(ROOT, "f", ROOT, "g", 0), Errno::EACCES);
    let link = Op::Link { id: file, parent: ROOT, name: Name::from("g") };
    assert_eq!(lab.code(0, link), Errno::EACCES);
    // What is there, or is not, is told before that, as Linux does.
    assert_eq!(lab.code(0, create(ROOT, "f", mode::REGULAR)), Errno::EEXIST);
    assert_eq!(lab.unlink(ROOT, "missing"), Errno::ENOENT);
}

#[test]
fn in_a_sticky_directory_only_the_owners_take_names_away() {
    let mut lab = open_lab(0o1777);
    lab.create(ROOT, "f", mode::REGULAR | 0o666);
    lab.caller = bob();
    let mine = lab.create(ROOT, "mine", mode::REGULAR | 0o666);
    assert_eq!(mine.uid, BOB);
    assert_eq!(lab.unlink(ROOT, "f"), Errno::EPERM);
    assert_eq!(lab.rename(ROOT, "f", ROOT, "g", 0), Errno::EPERM);
    assert_eq!(lab.rename(ROOT, "mine", ROOT, "f", 0), Errno::EPERM);
    assert_eq!(lab.rename(ROOT, "mine", ROOT, "f", rename::EXCHANGE), Errno::EPERM);
    assert_eq!(lab.unlink(ROOT, "mine"), 0);
    lab.caller = alice();
    assert_eq!(lab.unlink(ROOT, "f"), 0);
}

#[test]
fn only_the_owner_changes_the_mode() {
    let mut lab = open_lab(0o777);
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o644).id;
    assert_eq!(node(lab.reply(0, chmod(file, 0o4751))).mode, 0o104751);
    lab.caller = bob();
    assert_eq!(lab.code(0, chmod(file, 0o777)), Errno::EPERM);
    lab.caller = root();
    assert_eq!(node(lab.reply(0, chmod(file, 0o600))).mode, 0o100600);
}

#[test]
fn chmod_of_a_file_of_another_group_drops_set_group_id() {
    let mut lab = open_lab(0o777);
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o644).id;
    lab.caller = root();
    lab.code(0, chgrp(file, OTHERS));
    lab.caller = alice();
    assert_eq!(node(lab.reply(0, chmod(file, 0o2755))).mode, 0o100755);
    lab.caller = user(ALICE, &[STAFF, OTHERS]);
    assert_eq!(node(lab.reply(0, chmod(file, 0o2755))).mode, 0o102755);
}

#[test]
fn files_are_given_away_by_root_and_to_ones_own_groups_by_the_owner() {
    let mut lab = open_lab(0o777);
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o644).id;
    assert_eq!(lab.code(0, chown(file, BOB, STAFF)), Errno::EPERM);
    assert_eq!(lab.code(0, chgrp(file, OTHERS)), Errno::EPERM);
    lab.caller = user(ALICE, &[STAFF, OTHERS]);
    assert_eq!(node(lab.reply(0, chgrp(file, OTHERS))).gid, OTHERS);
    lab.caller = bob();
    assert_eq!(lab.code(0, chgrp(file, OTHERS)), Errno::EPERM);
    lab.caller = root();
    assert_eq!(node(lab.reply(0, chown(file, BOB, STAFF))).uid, BOB);
}

#[test]
fn a_new_owner_does_not_inherit_privilege() {
    let mut lab = open_lab(0o777);
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o6755).id;
    assert_eq!(node(lab.reply(0, chgrp(file, STAFF))).mode, 0o100755);
    // Set-group-ID without group execution means something else and stays.
    lab.code(0, chmod(file, 0o6745));
    assert_eq!(node(lab.reply(0, chgrp(file, STAFF))).mode, 0o102745);
    let dir = lab.create(ROOT, "d", mode::DIRECTORY | 0o2755).id;
    assert_eq!(node(lab.reply(0, chgrp(dir, STAFF))).mode, mode::DIRECTORY | 0o2755);
}

#[test]
fn writing_takes_privilege_away_unless_root_writes() {
    let mut lab = open_lab(0o777);
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o6777).id;
    let writes: [Op; 3] = [
        Op::Extend { id: file, epoch: 0, end: 10, hole: false },
        Op::Touch { id: file },
        truncate(file, 20),
    ];
    for write in writes {
        lab.caller = root();
        lab.code(0, chmod(file, 0o6777));
        assert_eq!(node(lab.reply(0, write.clone())).mode, 0o106777, "{write:?}");
        lab.caller = bob();
        assert_eq!(node(lab.reply(0, write.clone())).mode, 0o100777, "{write:?}");
    }
}

#[test]
fn set_group_id_without_execution_stays_for_the_group_and_root_alone() {
    let mut lab = open_lab(0o777);
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o2766).id;
    for (caller, mode) in [(root(), 0o102766), (alice(), 0o102766), (bob(), 0o100766)] {
        lab.caller = root();
        lab.code(0, chmod(file, 0o2766));
        lab.caller = caller;
        assert_eq!(node(lab.reply(0, Op::Touch { id: file })).mode, mode);
    }
    // The group that counts for a new owner is the one that the file had.
    lab.caller = root();
    lab.code(0, chown(file, BOB, STAFF));
    lab.code(0, chmod(file, 0o2766));
    lab.caller = bob();
    assert_eq!(node(lab.reply(0, chgrp(file, OTHERS))).mode, 0o100766);
}

#[test]
fn a_chown_that_names_nobody_takes_privilege_away_as_any_other() {
    let mut lab = open_lab(0o777);
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o6755).id;
    let nobody = |id| Op::from(attributes(id, 0));
    lab.caller = bob();
    assert_eq!(lab.code(0, nobody(file)), Errno::EPERM);
    lab.caller = root();
    assert_eq!(node(lab.reply(0, nobody(file))).mode, 0o100755);
    lab.caller = bob();
    assert_eq!(lab.code(0, nobody(file)), 0, "there is nothing to take away");
    lab.caller = root();
    lab.code(0, chmod(file, 0o6744));
    assert_eq!(node(lab.reply(0, nobody(file))).mode, 0o102744);
    let dir = lab.create(ROOT, "d", mode::DIRECTORY | 0o2755).id;
    assert_eq!(node(lab.reply(0, nobody(dir))).mode, mode::DIRECTORY | 0o2755);
    let [again, living] = lab.replayed();
    assert_eq!(again, living);
}

#[test]
fn a_set_group_id_directory_gives_its_group_and_directories_pass_that_on() {
    let mut lab = open_lab(0o777);
    lab.caller = root();
    let dir = lab.create(ROOT, "d", mode::DIRECTORY | 0o2777).id;
    lab.code(0, chgrp(dir, OTHERS));
    lab.caller = alice();
    let file = lab.create(dir, "f", mode::REGULAR | 0o644);
    assert_eq!((file.gid, file.mode), (OTHERS, 0o100644));
    let sub = lab.create(dir, "sub", mode::DIRECTORY | 0o755);
    assert_eq!((sub.gid, sub.mode), (OTHERS, mode::DIRECTORY | 0o2755));
    let program = lab.create(dir, "p", mode::REGULAR | 0o2755);
    assert_eq!(program.mode, 0o100755, "alice is not in the group whose power this would be");
}

#[test]
fn a_file_is_made_only_in_a_group_of_ones_own() {
    let mut lab = open_lab(0o777);
    let mut in_group = |name: &str, group: u32| {
        let Op::Create { parent, name, mode, rdev, target, exclusive, open, access, .. } =
            create(ROOT, name, mode::REGULAR)
        else {
            unreachable!()
        };
        let gid = group;
        lab.reply(0, Op::Create { parent, name, mode, gid, rdev, target, exclusive, open, access })
    };
    assert_eq!(code(&in_group("f", OTHERS)), Errno::EPERM);
    assert_eq!(created(in_group("g", STAFF)).gid, STAFF);
    assert_eq!(created(in_group("h", u32::MAX)).gid, STAFF);
}

#[test]
fn devices_are_made_by_root_alone() {
    let mut lab = open_lab(0o777);
    assert_eq!(lab.code(0, create(ROOT, "c", mode::CHARACTER)), Errno::EPERM);
    assert_eq!(lab.code(0, create(ROOT, "p", mode::FIFO | 0o600)), 0);
    assert_eq!(lab.code(0, create(ROOT, "s", mode::SOCKET | 0o600)), 0);
    lab.caller = root();
    assert_eq!(lab.code(0, create(ROOT, "c", mode::CHARACTER)), 0);
    assert_eq!(lab.code(0, create(ROOT, "x", 0o150_000)), Errno::EINVAL);
}

#[test]
fn times_are_set_by_the_owner_and_to_the_present_also_by_writers() {
    let mut lab = open_lab(0o777);
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o622).id;
    let both = set::ATIME | set::MTIME;
    let given = |id| Op::from(Attributes { atime: 7, mtime: 8, ..attributes(id, both) });
    let now = |id| Op::from(attributes(id, both | set::ATIME_NOW | set::MTIME_NOW));
    let inode = node(lab.reply(0, given(file)));
    assert_eq!((inode.atime, inode.mtime), (7, 8));
    lab.caller = bob();
    assert_eq!(lab.code(0, given(file)), Errno::EPERM);
    let inode = node(lab.reply(0, now(file)));
    assert_eq!((inode.atime, inode.mtime), (inode.ctime, inode.ctime));
    lab.caller = root();
    lab.code(0, chmod(file, 0o644));
    lab.caller = bob();
    assert_eq!(lab.code(0, now(file)), Errno::EACCES);
}

fn cut_open(id: Id, size: u64) -> Op {
    Attributes { size, ..attributes(id, set::SIZE | set::SIZE_OF_OPEN) }.into()
}

/// A file of alice's that nobody's mode bits let write, open for writing in a session.
fn written_by_alice(lab: &mut Lab) -> (u64, Id) {
    let (session, _) = lab.hello(0, &[]);
    let made = Op::Create {
        parent: ROOT,
        name: Name::from("f"),
        mode: mode::REGULAR | 0o444,
        gid: u32::MAX,
        rdev: 0,
        target: Name::EMPTY,
        exclusive: true,
        open: true,
        access: access::WRITE,
    };
    let file = created(lab.reply(session, made)).id;
    (session, file)
}

#[test]
fn cutting_needs_write_permission_or_ones_own_open_for_writing() {
    let mut lab = open_lab(0o777);
    let (session, file) = written_by_alice(&mut lab);
    assert_eq!(lab.code(0, truncate(file, 10)), Errno::EACCES);
    assert_eq!(lab.code(session, truncate(file, 10)), Errno::EACCES, "it says not what is open");
    assert_eq!(lab.code(session, cut_open(file, 10)), 0);
    assert_eq!(lab.code(session, cut_open(file, 5)), 0);
    let [again, living] = lab.replayed();
    assert_eq!(again, living);
}

#[test]
fn what_a_session_has_open_lets_its_other_users_cut_nothing() {
    let mut lab = open_lab(0o777);
    let (session, file) = written_by_alice(&mut lab);
    assert_eq!(lab.code(session, cut_open(file, 10)), 0);
    lab.caller = bob();
    assert_eq!(lab.code(session, truncate(file, 0)), Errno::EACCES);
    lab.crash();
    assert_eq!(lab.hello(session, &[file]), (session, true));
    assert_eq!(lab.code(session, truncate(file, 0)), Errno::EACCES);
    assert_eq!(lab.stat(file).size, 10);
}

#[test]
fn an_open_for_writing_permits_a_cut_and_nothing_else() {
    let mut lab = open_lab(0o777);
    let (session, file) = written_by_alice(&mut lab);
    lab.caller = bob();
    let mask = set::SIZE | set::SIZE_OF_OPEN | set::MODE;
    let both = Attributes { size: 10, mode: 0o777, ..attributes(file, mask) };
    assert_eq!(lab.code(session, both.into()), Errno::EPERM);
    let times = Attributes { mtime: 7, ..attributes(file, set::MTIME | set::SIZE_OF_OPEN) };
    assert_eq!(lab.code(session, times.into()), Errno::EPERM);
    assert_eq!(lab.stat(file).size, 0);
}

#[test]
fn a_refused_setattr_changes_nothing_of_what_it_asked() {
    let mut lab = open_lab(0o777);
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o666);
    lab.caller = bob();
    let both = Attributes { size: 10, mode: 0o777, ..attributes(file.id, set::SIZE | set::MODE) };
    assert_eq!(lab.code(0, both.into()), Errno::EPERM);
    assert_eq!(lab.stat(file.id), file);
}

#[test]
fn a_listing_needs_read_permission_and_its_attributes_search_permission() {
    let mut lab = open_lab(0o777);
    let dir = lab.create(ROOT, "d", mode::DIRECTORY | 0o711).id;
    lab.create(dir, "f", mode::REGULAR | 0o644);
    let list = Op::Readdir { id: dir, cookie: 0, limit: 0, bytes_max: 4096, plus: true };
    let inodes = |reply| match reply {
        Reply::Entries { entries, end: true, .. } => {
            entries.0.iter().filter(|entry| entry.inode.is_some()).count()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(inodes(lab.reply(0, list.clone())), 3);
    lab.caller = bob();
    assert_eq!(lab.code(0, list.clone()), Errno::EACCES);
    lab.caller = alice();
    lab.code(0, chmod(dir, 0o744));
    lab.caller = bob();
    assert_eq!(inodes(lab.reply(0, list)), 0);
}

#[test]
fn a_layout_is_chosen_by_the_owner_and_for_files_before_they_hold_data() {
    let mut lab = open_lab(0o777);
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o666);
    let one = StripingHint::simple_stripe(512, 1);
    let ask = Op::SetStriping { id: file.id, hint: one };
    lab.caller = bob();
    assert_eq!(lab.code(0, ask.clone()), Errno::EPERM);
    lab.caller = alice();
    let after = node(lab.reply(0, ask.clone()));
    assert_eq!(after.striping.unwrap().servers.0.len(), 1);
    assert_eq!(after.epoch, file.epoch + 1, "writers under the old layout are refused");
    let pending = lab.store.pending_reclaims((0, 0), 9).unwrap();
    assert_eq!((pending[0].epoch, Some(&pending[0].striping)), (0, file.striping.as_ref()));
    lab.extend(file.id, 1);
    assert_eq!(lab.code(0, ask), Errno::ENOTEMPTY);
}

#[test]
fn a_consistency_mode_is_chosen_by_the_owner_and_inherited() {
    let mut lab = open_lab(0o777);
    let dir = lab.create(ROOT, "d", mode::DIRECTORY | 0o777);
    assert_eq!(dir.consistency(), None);
    let ask = |consistency| Op::SetConsistency { id: dir.id, consistency };
    lab.caller = bob();
    assert_eq!(lab.code(0, ask(2)), Errno::EPERM);
    lab.caller = alice();
    assert_eq!(lab.code(0, ask(9)), Errno::EINVAL);
    let after = node(lab.reply(0, ask(Consistency::JobScratch.number())));
    assert_eq!(after.consistency(), Some(Consistency::JobScratch));
    assert!(after.version > dir.version, "mounts are to hear of it");
    for bits in [mode::REGULAR | 0o600, mode::DIRECTORY | 0o700] {
        let made = lab.create(dir.id, &format!("{bits}"), bits);
        assert_eq!(made.consistency(), Some(Consistency::JobScratch));
    }
    assert_eq!(node(lab.reply(0, ask(0))).consistency(), None);
}
