//! Sizes: extension, truncation and its epochs, appends from many sessions.

use crate::lab::*;
use covey_stripe::kv::Kv;
use covey_stripe::meta::{Applied, Store, WaitId, Work};
use covey_stripe::ops::*;
use covey_wire::{List, Name};

const DONE: Reply = Reply::Done {};

fn reserve(lab: &mut Lab, session: u64, id: Id, length: u64) -> u64 {
    match lab.reply(session, Op::Reserve { id, length }) {
        Reply::Offset { offset, .. } => offset,
        other => panic!("{other:?}"),
    }
}

fn commit(lab: &mut Lab, session: u64, id: Id, offset: u64, length: u64) -> Option<WaitId> {
    match lab.send(session, 0, Op::Commit { id, offset, length }) {
        Applied::Wait(wait) => Some(wait),
        Applied::Reply(DONE) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_largest_end_wins_whatever_the_order() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    assert_eq!(lab.extend(id, 100).size, 100);
    assert_eq!(lab.extend(id, 50).size, 100);
    let inode = node(lab.reply(0, Op::Extend { id, epoch: 0, end: 200, hole: true }));
    assert_eq!((inode.size, inode.sparse), (200, true));
    assert_eq!(lab.totals(), (2, 200));
}

#[test]
fn files_end_where_off_t_ends() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let largest = i64::MAX as u64;
    for end in [largest + 1, u64::MAX] {
        assert_eq!(lab.code(0, Op::Extend { id, epoch: 0, end, hole: true }), Errno::EFBIG);
        assert_eq!(lab.code(0, truncate(id, end)), Errno::EFBIG);
    }
    assert_eq!(lab.truncate(id, largest).size, largest);
    let (session, _) = lab.hello(0, &[]);
    assert_eq!(lab.code(session, Op::Reserve { id, length: 1 }), Errno::EFBIG);
}

#[test]
fn sizes_that_add_up_to_more_than_there_are_numbers_do_no_harm() {
    let mut lab = Lab::default();
    let names = ["a", "b", "c"];
    for name in names {
        let id = lab.file(name).id;
        lab.truncate(id, i64::MAX as u64);
    }
    for name in names {
        assert_eq!(lab.unlink(ROOT, name), 0);
    }
    assert_eq!(lab.totals(), (1, 0));
}

#[test]
fn only_regular_files_have_a_size_to_set() {
    let mut lab = Lab::default();
    let dir = lab.mkdir(ROOT, "d").id;
    assert_eq!(lab.code(0, truncate(dir, 0)), Errno::EISDIR);
    assert_eq!(lab.code(0, Op::Extend { id: dir, epoch: 0, end: 1, hole: false }), Errno::EISDIR);
    let link = lab.create(ROOT, "l", covey_stripe::meta::mode::SYMLINK).id;
    assert_eq!(lab.code(0, truncate(link, 0)), Errno::EINVAL);
}

#[test]
fn a_cut_raises_the_epoch_and_is_answered_after_the_data_servers() {
    let mut lab = Lab::default();
    let file = lab.file("f");
    let id = file.id;
    lab.extend(id, 100);
    let Applied::AfterCut { id: cut, epoch: 1, reply } = lab.send(0, 0, truncate(id, 40)) else {
        panic!("a cut waits for data servers")
    };
    let inode = node(reply);
    assert_eq!((cut, inode.size, inode.epoch), (id, 40, 1));
    let striping = file.striping.unwrap();
    assert_eq!(lab.work, [Work::Cut { id, epoch: 1, size: 40, striping }]);
    // A writer who does not know of the cut is told.
    assert_eq!(lab.code(0, Op::Extend { id, epoch: 0, end: 90, hole: false }), Errno::ESTALE);
    assert_eq!(lab.stat(id).size, 40);
    assert_eq!(lab.extend(id, 90).size, 90);
}

#[test]
fn growing_makes_a_hole_and_no_epoch() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let inode = lab.truncate(id, 100);
    assert_eq!((inode.size, inode.epoch, inode.sparse), (100, 0, true));
    let same = lab.truncate(id, 100);
    assert_eq!((same.size, same.epoch), (100, 0));
    assert!(same.mtime > inode.mtime);
    assert!(lab.work.is_empty());
}

/// The epoch of a file that was never cut, when it is cut first after so many losses of power.
const fn skipped(losses: u32) -> u32 {
    losses << 16
}

/// A file that is shorter than what was written of it: the log's end went with the power.
fn with_lost_size(written: u64, kept: u64) -> (Lab, Inode) {
    let mut lab = Lab::default();
    let file = lab.file("f");
    lab.extend(file.id, kept);
    let log = lab.log.clone();
    lab.extend(file.id, written);
    lab.log = log;
    lab.lose_power(2);
    (lab, file)
}

#[test]
fn a_truncation_cuts_what_lies_beyond_a_size_that_was_lost_with_the_power() {
    for (size, left) in [(40, 40), (70, 70), (20, 20)] {
        let (mut lab, file) = with_lost_size(100, 40);
        let (id, striping) = (file.id, file.striping.unwrap());
        let sent = lab.send(0, 0, truncate(id, size));
        let Applied::AfterCut { epoch, reply, .. } = sent else { panic!("{sent:?}") };
        assert_eq!((epoch, node(reply).size), (skipped(1), size));
        assert_eq!(lab.work, [Work::Cut { id, epoch, size: left, striping }]);
        assert_eq!(lab.truncate(id, 80).epoch, epoch, "once is enough");
    }
    let (mut lab, _) = with_lost_size(100, 40);
    let young = lab.file("g").id;
    assert_eq!(lab.truncate(young, 70).epoch, 0, "its size was never lost");
}

#[test]
fn a_loss_of_power_is_remembered_by_the_starts_that_follow() {
    let (mut lab, file) = with_lost_size(100, 40);
    lab.crash();
    lab.store.opened_on(2, false).unwrap();
    assert_eq!(lab.truncate(file.id, 80).epoch, skipped(1));
    let [again, living] = lab.replayed();
    assert_eq!(again, living);
    lab.lose_power(3);
    assert_eq!(lab.truncate(file.id, 80).epoch, skipped(2));
}

#[test]
fn an_epoch_that_was_lost_with_the_power_is_never_given_again() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    lab.extend(id, 40);
    lab.save();
    let mut given = Vec::new();
    for machine in 2..6 {
        let (session, _) = lab.hello(0, &[]);
        let reserved = lab.reply(session, Op::Reserve { id, length: 10 });
        let Reply::Offset { offset: 40, epoch } = reserved else { panic!("{reserved:?}") };
        given.push(epoch);
        given.extend((1..4).map(|size| lab.truncate(id, 10 - size).epoch));
        // Not a word of it has reached the disk.
        lab.log.clear();
        lab.lose_power(machine);
    }
    let distinct = given.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert_eq!(distinct, 15, "{given:?}");
}

#[test]
fn epochs_do_not_run_out_however_often_power_is_lost() {
    let (mut lab, file) = with_lost_size(100, 40);
    let mut before = 0;
    for machine in 3..30_000 {
        lab.store.opened_on(machine, true).unwrap();
        let epoch = lab.truncate(file.id, 80).epoch;
        assert!(epoch > before, "{epoch} after {before}");
        before = epoch;
    }
    (0..1 << 20).for_each(|machine| lab.store.opened_on(machine, true).unwrap());
    let epoch = lab.truncate(file.id, 80).epoch;
    assert!(epoch > before && epoch < u32::MAX / 2, "{epoch} after {before}");
}

#[test]
fn the_log_of_a_program_that_skipped_no_epochs_is_replayed_with_the_epochs_it_gave() {
    let (mut lab, file) = with_lost_size(100, 40);
    lab.checkpoint.delete(b"sskips").unwrap();
    lab.store = Store::open(lab.checkpoint.clone()).unwrap();
    assert_eq!(lab.truncate(file.id, 20).epoch, 1);
    lab.extend(file.id, 60);
    lab.crash();
    assert_eq!(lab.stat(file.id).epoch, 1);
    lab.lose_power(3);
    assert_eq!(lab.truncate(file.id, 10).epoch, 1 + skipped(1));
}

#[test]
fn the_first_append_after_a_loss_of_power_shuts_out_who_was_given_its_place_before() {
    let (mut lab, file) = with_lost_size(100, 40);
    let (id, striping) = (file.id, file.striping.unwrap());
    let (session, _) = lab.hello(0, &[]);
    let reserved = lab.reply(session, Op::Reserve { id, length: 10 });
    let epoch = skipped(1);
    assert_eq!(reserved, Reply::Offset { offset: 40, epoch });
    assert_eq!(lab.work, [Work::Cut { id, epoch, size: 40, striping }]);
    let reserved = lab.reply(session, Op::Reserve { id, length: 10 });
    assert_eq!(reserved, Reply::Offset { offset: 50, epoch });
}

#[test]
fn a_truncation_after_a_loss_of_power_keeps_the_appends_under_way() {
    let mut lab = Lab::default();
    let file = lab.file("f");
    let (id, striping) = (file.id, file.striping.unwrap());
    let (session, _) = lab.hello(0, &[]);
    lab.extend(id, 40);
    assert_eq!(reserve(&mut lab, session, id, 10), 40);
    lab.lose_power(2);
    assert_eq!(lab.truncate(id, 45).size, 45);
    assert_eq!(lab.work, [Work::Cut { id, epoch: skipped(1), size: 50, striping }]);
    assert_eq!(commit(&mut lab, session, id, 40, 10), None);
    assert_eq!(lab.stat(id).size, 50);
}

#[test]
fn an_append_whose_commit_was_lost_with_the_power_holds_nobody_up_when_its_client_is_back() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let (session, _) = lab.hello(0, &[]);
    let (other, _) = lab.hello(0, &[]);
    lab.send(session, 1, Op::Reserve { id, length: 10 });
    lab.send(session, 2, Op::Reserve { id, length: 10 });
    let log = lab.log.clone();
    lab.send(session, 3, Op::Commit { id, offset: 0, length: 10 });
    lab.log = log;
    lab.lose_power(2);
    // The first append is over for its client, the second is not.
    let (files, appends, name) = (List(vec![]), List(vec![2]), Name::from("client"));
    lab.reply(0, Op::Hello { session, files, appends, name });
    let offset = reserve(&mut lab, other, id, 5);
    assert_eq!(offset, 20);
    let wait = commit(&mut lab, other, id, offset, 5).expect("the second append is not written");
    assert_eq!(commit(&mut lab, session, id, 10, 10), None);
    assert_eq!(lab.answers(), [(wait, DONE)]);
    assert_eq!(lab.stat(id).size, 25);
    let [again, living] = lab.replayed();
    assert_eq!(again, living);
}

#[test]
fn cuts_stay_pending_in_order_until_each_is_reported() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    lab.extend(id, 100);
    lab.truncate(id, 50);
    lab.extend(id, 80);
    lab.truncate(id, 70);
    lab.crash();
    let pending = |lab: &Lab| {
        let cuts = lab.store.pending_cuts((0, 0), 10).unwrap();
        cuts.iter().map(|cut| (cut.id, cut.epoch, cut.size)).collect::<Vec<_>>()
    };
    assert_eq!(pending(&lab), [(id, 1, 50), (id, 2, 70)]);
    lab.reply(0, Op::Reclaimed { id, epoch: 1 });
    assert_eq!(pending(&lab), [(id, 2, 70)]);
    assert_eq!(lab.unlink(ROOT, "f"), 0);
    assert_eq!(pending(&lab), [], "objects that go need no cut");
}

#[test]
fn a_file_found_dense_is_believed_unless_it_changed() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    lab.truncate(id, 100);
    lab.reply(0, Op::Dense { id, epoch: 0, size: 99 });
    assert!(lab.stat(id).sparse);
    lab.reply(0, Op::Dense { id, epoch: 0, size: 100 });
    assert!(!lab.stat(id).sparse);
}

#[test]
fn appends_get_places_one_after_the_other_and_show_in_that_order() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    lab.extend(id, 10);
    let ((a, _), (b, _)) = (lab.hello(0, &[]), lab.hello(0, &[]));
    assert_eq!(reserve(&mut lab, a, id, 5), 10);
    assert_eq!(reserve(&mut lab, b, id, 7), 15);
    assert_eq!(lab.stat(id).size, 10);
    let wait = commit(&mut lab, b, id, 15, 7).expect("waits for the append before it");
    assert_eq!(lab.stat(id).size, 10);
    assert_eq!(commit(&mut lab, a, id, 10, 5), None);
    assert_eq!(lab.stat(id).size, 22);
    assert_eq!(lab.answers(), [(wait, DONE)]);
    assert_eq!(lab.totals(), (2, 22));
}

#[test]
fn a_repeated_commit_waits_again_or_is_done() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let (session, _) = lab.hello(0, &[]);
    reserve(&mut lab, session, id, 5);
    reserve(&mut lab, session, id, 5);
    let first = commit(&mut lab, session, id, 5, 5).unwrap();
    let second = commit(&mut lab, session, id, 5, 5).unwrap();
    assert_eq!(commit(&mut lab, session, id, 0, 5), None);
    assert_eq!(lab.answers(), [(first, DONE), (second, DONE)]);
    assert_eq!(commit(&mut lab, session, id, 5, 5), None);
    assert_eq!(lab.stat(id).size, 10);
}

#[test]
fn the_appends_of_a_dead_session_become_a_hole_that_holds_nobody_up() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let ((dead, _), (alive, _)) = (lab.hello(0, &[]), lab.hello(0, &[]));
    reserve(&mut lab, dead, id, 5);
    reserve(&mut lab, alive, id, 5);
    let wait = commit(&mut lab, alive, id, 5, 5).unwrap();
    lab.store.session_expired(dead).unwrap();
    assert_eq!(lab.answers(), [(wait, DONE)]);
    let inode = lab.stat(id);
    assert_eq!((inode.size, inode.sparse), (10, true));
    assert_eq!(lab.code(dead, Op::Commit { id, offset: 0, length: 5 }), Errno::ESTALE);
}

#[test]
fn what_a_dead_session_reserved_last_is_not_given_to_another() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let ((dead, _), (alive, _)) = (lab.hello(0, &[]), lab.hello(0, &[]));
    reserve(&mut lab, dead, id, 5);
    lab.store.session_expired(dead).unwrap();
    lab.serve();
    assert_eq!(lab.stat(id).size, 0);
    // Its last write may still be on the way.
    assert_eq!(reserve(&mut lab, alive, id, 5), 5);
    assert_eq!(commit(&mut lab, alive, id, 5, 5), None);
    assert_eq!(lab.stat(id).size, 10);
}

#[test]
fn reservations_outlive_the_server() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let ((a, _), (b, _)) = (lab.hello(0, &[]), lab.hello(0, &[]));
    reserve(&mut lab, a, id, 5);
    lab.save();
    reserve(&mut lab, b, id, 5);
    commit(&mut lab, b, id, 5, 5).unwrap();
    lab.crash();
    assert_eq!(reserve(&mut lab, a, id, 5), 10);
    let wait = commit(&mut lab, b, id, 5, 5).expect("still behind the first");
    assert_eq!(commit(&mut lab, a, id, 0, 5), None);
    assert_eq!(lab.answers(), [(wait, DONE)]);
    assert_eq!(lab.stat(id).size, 10);
}

#[test]
fn a_write_beyond_the_tail_pushes_it_and_shows_at_once() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let (session, _) = lab.hello(0, &[]);
    reserve(&mut lab, session, id, 5);
    reserve(&mut lab, session, id, 5);
    let wait = commit(&mut lab, session, id, 5, 5).unwrap();
    assert_eq!(lab.extend(id, 20).size, 20);
    assert_eq!(lab.answers(), [(wait, DONE)], "its bytes show: nothing to wait for");
    assert_eq!(reserve(&mut lab, session, id, 5), 20);
    assert_eq!(commit(&mut lab, session, id, 0, 5), None);
    assert_eq!(lab.stat(id).size, 20);
}

#[test]
fn a_cut_ends_appends_under_way_and_takes_the_tail_back() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    lab.extend(id, 10);
    let (session, _) = lab.hello(0, &[]);
    reserve(&mut lab, session, id, 5);
    reserve(&mut lab, session, id, 5);
    let wait = commit(&mut lab, session, id, 15, 5).unwrap();
    lab.truncate(id, 3);
    assert_eq!(lab.answers(), [(wait, DONE)], "appended, then cut");
    assert_eq!(commit(&mut lab, session, id, 10, 5), None);
    assert_eq!(lab.stat(id).size, 3);
    assert_eq!(reserve(&mut lab, session, id, 5), 3);
}

#[test]
fn an_append_of_nothing_reserves_nothing() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let (session, _) = lab.hello(0, &[]);
    assert_eq!(reserve(&mut lab, session, id, 0), 0);
    assert_eq!(reserve(&mut lab, session, id, 1), 0);
    assert_eq!(lab.code(0, Op::Reserve { id, length: 1 }), Errno::ESTALE, "appends need a session");
}

/// The end of the append whose Reserve had this number.
fn end_append(id: Id, reserve: u64, (offset, length): (u64, u64), hole: bool) -> Op {
    Op::EndAppend { id, reserve, offset, length, hole }
}

#[test]
fn the_end_of_an_append_that_was_cut_away_is_not_another_ones() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let (session, _) = lab.hello(0, &[]);
    lab.extend(id, 100);
    let (first, second) = (1, 2);
    lab.send(session, first, Op::Reserve { id, length: 50 });
    lab.truncate(id, 60);
    lab.extend(id, 100);
    lab.send(session, second, Op::Reserve { id, length: 50 });
    // The first thread finds that its place is gone, and says so.
    let said = lab.send(session, 3, end_append(id, first, (100, 50), true));
    assert!(matches!(said, Applied::Reply(DONE)), "{said:?}");
    let inode = lab.stat(id);
    assert_eq!((inode.size, inode.sparse), (100, false), "the second has written nothing yet");
    let said = lab.send(session, 4, end_append(id, second, (100, 50), false));
    assert!(matches!(said, Applied::Reply(DONE)), "{said:?}");
    assert_eq!((lab.stat(id).size, lab.stat(id).sparse), (150, false));
}

#[test]
fn a_size_for_one_epoch_is_refused_at_another() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    lab.extend(id, 100_000);
    let at = |epoch, size, mask| -> Op {
        Attributes { size, mode: epoch, ..attributes(id, set::SIZE | set::AT_EPOCH | mask) }.into()
    };
    for size in [50_000, 200_000] {
        assert_eq!(lab.code(0, at(1, size, 0)), Errno::ESTALE);
        assert_eq!((lab.stat(id).size, lab.stat(id).epoch), (100_000, 0));
    }
    let mode = lab.stat(id).mode;
    assert_eq!(lab.code(0, at(0, 50_000, set::MODE)), Errno::EINVAL);
    let cut = node_after_cut(lab.send(0, 0, at(0, 50_000, 0)));
    assert_eq!((cut.size, cut.epoch, cut.mode), (50_000, 1, mode), "the epoch is no mode");
    assert_eq!(lab.code(0, at(0, 60_000, 0)), Errno::ESTALE);
}

#[test]
fn an_append_that_failed_leaves_a_hole_whatever_the_epoch() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let (session, _) = lab.hello(0, &[]);
    lab.send(session, 1, Op::Reserve { id, length: 50 });
    assert_eq!(node_after_cut(lab.send(0, 0, Op::Fence { id })).epoch, 1);
    lab.send(session, 2, end_append(id, 1, (0, 50), true));
    let inode = lab.stat(id);
    assert_eq!((inode.size, inode.sparse), (50, true));
    // Who has written all of it before takes no hole away.
    lab.send(0, 0, Op::Dense { id, epoch: 1, size: 50 });
    assert!(lab.stat(id).sparse);
}

fn node_after_cut(applied: Applied) -> Inode {
    let Applied::AfterCut { reply, .. } = applied else { panic!("{applied:?}") };
    node(reply)
}
