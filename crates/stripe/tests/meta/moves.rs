//! Files that move to other I/O servers.

use crate::lab::*;
use covey_ninep::tree::Errno;
use covey_stripe::meta::{Applied, Work, installed, mode};
use covey_stripe::objects::LEFT;
use covey_stripe::ops::{Id, Inode, Op, ROOT, Reply, StripingHint};
use covey_wire::List;

fn wanted(inode: &Inode, servers: &[u16]) -> Op {
    let (id, epoch, version) = (inode.id, inode.epoch, inode.version);
    Op::Move { id, epoch, version, servers: List(servers.to_vec()) }
}

/// What its mover is told, after the epoch has reached all servers.
fn begin(lab: &mut Lab, id: Id) -> Inode {
    let inode = node(lab.reply(0, Op::BeginMove { id }));
    lab.reply(0, Op::CutDone { id, epoch: inode.epoch });
    inode
}

/// A file of some bytes on all four servers.
fn file(lab: &mut Lab) -> Inode {
    file_named(lab, "f")
}

fn file_named(lab: &mut Lab, name: &str) -> Inode {
    let id = lab.file(name).id;
    lab.extend(id, 1_000_000)
}

fn servers_of(lab: &mut Lab, id: Id) -> Vec<u16> {
    lab.stat(id).striping.unwrap().servers.0
}

#[test]
fn a_file_that_moves_is_installed_where_it_lies_then_and_emptied_where_it_lay() {
    let mut lab = Lab::default();
    let id = file(&mut lab).id;
    let before = begin(&mut lab, id);
    assert_eq!(before.epoch, 1);
    let moved = lab.send(0, 0, wanted(&before, &[2, 0]));
    let Applied::AfterCut { id: of, epoch: 2, .. } = moved else { panic!("{moved:?}") };
    assert_eq!(of, id);
    let after = lab.stat(id);
    assert_eq!((after.epoch, after.size), (2, before.size));
    assert!(after.version > before.version);
    assert_eq!(servers_of(&mut lab, id), [2, 0]);
    lab.crash();
    let cuts = lab.store.pending_cuts((0, 0), 10).unwrap();
    assert_eq!(cuts.len(), 1);
    assert_eq!((cuts[0].id, cuts[0].epoch, installed(cuts[0].size)), (id, 2, Some(1_000_000)));
    assert_eq!(cuts[0].striping.servers.0, [2, 0]);
    let reclaims = lab.store.pending_reclaims((0, 0), 10).unwrap();
    let mut left: Vec<u16> = reclaims[0].striping.servers.0.clone();
    left.sort_unstable();
    assert_eq!((reclaims.len(), reclaims[0].epoch, left), (1, LEFT | 1, vec![1, 3]));
    // Until it is installed it does not move again.
    assert_eq!(lab.code(0, Op::BeginMove { id }), Errno::EBUSY);
    // A cut of that epoch that was done once more says nothing of what is to be emptied.
    lab.reply(0, Op::CutDone { id, epoch: 1 });
    assert_eq!(lab.store.pending_reclaims((0, 0), 10).unwrap(), reclaims);
    lab.reply(0, Op::Reclaimed { id, epoch: LEFT | 1 });
    lab.reply(0, Op::CutDone { id, epoch: 2 });
    assert!(lab.store.pending_cuts((0, 0), 10).unwrap().is_empty());
    let now = begin(&mut lab, id);
    assert_eq!(lab.code(0, wanted(&now, &[1])), 0);
    let [again, living] = lab.replayed();
    assert_eq!(again, living);
}

#[test]
fn what_lies_with_its_inode_is_laid_out_anew_without_anything_staged() {
    let mut lab = Lab::default();
    let hint = StripingHint::progressive(65536, 0);
    lab.reply(0, Op::SetStriping { id: ROOT, hint });
    let id = lab.file("f").id;
    let before = node(lab.reply(0, Op::BeginMove { id }));
    assert_eq!(before.epoch, 0, "there is nothing that anybody could write to");
    lab.work.clear();
    lab.send(0, 0, wanted(&before, &[3]));
    assert_eq!((lab.stat(id).epoch, servers_of(&mut lab, id)), (1, vec![3]));
    let [Work::Cut { epoch: 1, size, striping, .. }] = &lab.work[..] else {
        panic!("{:?}", lab.work)
    };
    assert_eq!(installed(*size), Some(0));
    assert_eq!(striping.servers.0, [3]);
    assert!(lab.store.pending_reclaims((0, 0), 10).unwrap().is_empty());
}

#[test]
fn of_two_who_move_one_file_only_the_later_can_and_none_whose_server_began_anew() {
    let mut lab = Lab::default();
    let id = file(&mut lab).id;
    let (first, second) = (begin(&mut lab, id), begin(&mut lab, id));
    assert_ne!(first.epoch, second.epoch, "what they stage is apart");
    assert_eq!(lab.code(0, wanted(&first, &[1])), Errno::ESTALE);
    assert!(lab.store.is_moving(id));
    lab.crash();
    assert!(!lab.store.is_moving(id));
    assert_eq!(lab.code(0, wanted(&second, &[1])), Errno::ESTALE, "who opened it is not known");
    let third = begin(&mut lab, id);
    assert_eq!(lab.code(0, wanted(&third, &[1])), 0);
}

#[test]
fn whoever_opens_a_file_that_moves_keeps_it_where_it_is_even_if_it_is_closed_by_then() {
    let mut lab = Lab::default();
    let id = file(&mut lab).id;
    let session = lab.hello(0, &[]).0;
    let now = begin(&mut lab, id);
    assert_eq!(lab.code(session, Op::Open { id, access: 2 }), 0);
    lab.code(session, Op::Release { id });
    assert_eq!(lab.code(0, wanted(&now, &[1])), Errno::ESTALE);
    // The same of one who tells of it with a greeting.
    let now = begin(&mut lab, id);
    let session = lab.hello(0, &[id]).0;
    lab.code(session, Op::Release { id });
    assert_eq!(lab.code(0, wanted(&now, &[1])), Errno::ESTALE);
}

#[test]
fn a_cut_that_follows_comes_after_the_installation() {
    let mut lab = Lab::default();
    let id = file(&mut lab).id;
    let before = begin(&mut lab, id);
    lab.work.clear();
    lab.send(0, 0, wanted(&before, &[3]));
    lab.truncate(before.id, 10);
    let cuts: Vec<_> = lab
        .work
        .iter()
        .filter_map(|work| match work {
            Work::Cut { epoch, size, .. } => Some((*epoch, installed(*size), *size)),
            _ => None,
        })
        .collect();
    assert_eq!(cuts[0].0, 2);
    assert_eq!((cuts[0].1, cuts[1]), (Some(1_000_000), (3, None, 10)));
}

#[test]
fn a_file_that_was_changed_or_is_in_use_stays_where_it_is() {
    let mut lab = Lab::default();
    let id = file(&mut lab).id;
    let before = begin(&mut lab, id);
    let lay = servers_of(&mut lab, id);
    lab.reply(0, Op::Touch { id });
    assert_eq!(lab.code(0, wanted(&before, &[1])), Errno::ESTALE, "it was written");
    let now = begin(&mut lab, id);
    let session = lab.hello(0, &[]).0;
    assert_eq!(lab.code(session, Op::Open { id, access: 4 }), 0);
    assert_eq!(lab.code(0, Op::BeginMove { id }), Errno::EBUSY);
    assert_eq!(lab.code(0, wanted(&now, &[1])), Errno::EBUSY, "somebody reads it");
    lab.code(session, Op::Release { id });
    lab.reply(session, Op::Reserve { id, length: 10 });
    let now = lab.stat(id);
    assert_eq!(lab.code(0, wanted(&now, &[1])), Errno::EBUSY, "somebody appends");
    assert_eq!(servers_of(&mut lab, id), lay);
}

#[test]
fn only_the_owner_of_the_root_directory_moves_files_and_only_where_they_can_lie() {
    let mut lab = Lab::default();
    let id = file(&mut lab).id;
    let before = begin(&mut lab, id);
    for servers in [&[][..], &[4], &[1, 1], &[0, 1, 2, 9]] {
        assert_eq!(lab.code(0, wanted(&before, servers)), Errno::EINVAL, "{servers:?}");
    }
    let dir = lab.create(ROOT, "d", mode::DIRECTORY | 0o755);
    assert_eq!(lab.code(0, Op::BeginMove { id: dir.id }), Errno::EISDIR);
    lab.caller = user(ALICE, &[ALICE]);
    assert_eq!(lab.code(0, wanted(&before, &[1])), Errno::EPERM);
    assert_eq!(lab.code(0, Op::BeginMove { id }), Errno::EPERM);
    lab.caller = root();
    assert!(matches!(lab.reply(0, wanted(&before, &[1])), Reply::Node { .. }));
}

#[test]
fn after_a_loss_of_power_a_move_begins_anew_and_cuts_what_was_lost() {
    let mut lab = Lab::default();
    let id = file(&mut lab).id;
    let before = begin(&mut lab, id);
    lab.save();
    lab.lose_power(2);
    assert_eq!(lab.code(0, wanted(&before, &[1])), Errno::ESTALE);
    let begun = begin(&mut lab, id);
    assert!(begun.epoch > before.epoch, "what was lost is cut");
    assert_eq!(lab.code(0, wanted(&begun, &[1])), 0);
}

#[test]
fn what_a_file_has_left_goes_with_it() {
    let mut lab = Lab::default();
    let id = file(&mut lab).id;
    let before = begin(&mut lab, id);
    lab.send(0, 0, wanted(&before, &[2]));
    lab.reply(0, Op::CutDone { id, epoch: 2 });
    lab.truncate(id, 0);
    lab.reply(0, Op::CutDone { id, epoch: 3 });
    lab.work.clear();
    lab.reply(0, Op::Unlink { parent: ROOT, name: "f".into(), dir: false });
    lab.reply(0, Op::Drop { id });
    assert!(lab.work.contains(&Work::Sweep { id, epoch: 3 }), "{:?}", lab.work);
    // One that never moved has left nothing.
    let other = lab.file("g").id;
    lab.work.clear();
    lab.reply(0, Op::Unlink { parent: ROOT, name: "g".into(), dir: false });
    lab.reply(0, Op::Drop { id: other });
    assert!(!lab.work.iter().any(|work| matches!(work, Work::Sweep { id, .. } if *id == other)));
}

#[test]
fn what_was_moved_once_is_emptied_by_an_installation_of_nothing() {
    let mut lab = Lab::default();
    let id = file(&mut lab).id;
    let before = begin(&mut lab, id);
    lab.send(0, 0, wanted(&before, &[2]));
    lab.reply(0, Op::CutDone { id, epoch: 2 });
    lab.reply(0, Op::Reclaimed { id, epoch: LEFT | 1 });
    let cuts = |lab: &Lab| -> Vec<u64> {
        lab.store.pending_cuts((0, 0), 10).unwrap().iter().map(|cut| cut.size).collect()
    };
    // Where it lies again it may have left something, which a cut does not replace.
    lab.truncate(id, 0);
    assert_eq!(cuts(&lab).into_iter().map(installed).collect::<Vec<_>>(), [Some(0)]);
    lab.reply(0, Op::CutDone { id, epoch: 3 });
    // A layout that is set anew removes at once, as ever.
    lab.reply(0, Op::SetStriping { id, hint: StripingHint::progressive(65536, 0) });
    let reclaims = lab.store.pending_reclaims((0, 0), 10).unwrap();
    assert_eq!(reclaims.iter().map(|one| one.epoch).collect::<Vec<_>>(), [3]);
    assert_eq!(cuts(&lab).into_iter().map(installed).collect::<Vec<_>>(), [Some(0)]);
    // What never moved is cut.
    let other = file_named(&mut lab, "g").id;
    lab.truncate(other, 0);
    assert_eq!(cuts(&lab).last(), Some(&0));
}
