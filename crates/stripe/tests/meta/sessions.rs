//! Sessions: repeated requests, opens, orphans, restarts.

use crate::lab::*;
use covey_stripe::meta::{Applied, REPLIES_KEPT_MAX, Work, access};
use covey_stripe::ops::*;
use covey_wire::Name;

fn unlink(name: &str) -> Op {
    Op::Unlink { parent: ROOT, name: Name::from(name), dir: false }
}

#[test]
fn a_repeated_mutation_gets_the_first_answer() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let first = lab.send(session, 1, create_open(ROOT, "f", true));
    assert!(!lab.store.was_repeated());
    let again = lab.send(session, 1, create_open(ROOT, "f", true));
    assert_eq!(first, again);
    assert!(lab.store.was_repeated(), "it tells of then");
    assert!(!first.is_refused());
    assert_eq!(lab.send(session, 2, unlink("f")), Applied::Reply(Reply::Done {}));
    assert_eq!(lab.send(session, 2, unlink("f")), Applied::Reply(Reply::Done {}));
    assert!(lab.send(session, 3, unlink("f")).is_refused());
}

#[test]
fn the_same_number_in_another_session_is_another_request() {
    let mut lab = Lab::default();
    let ((a, _), (b, _)) = (lab.hello(0, &[]), lab.hello(0, &[]));
    assert_ne!(a, b);
    lab.send(a, 1, create_open(ROOT, "f", true));
    let other = lab.send(b, 1, create_open(ROOT, "f", true));
    assert_eq!(other, Applied::Reply(other_reply(&other)));
    assert!(other.is_refused());
}

fn other_reply(applied: &Applied) -> Reply {
    match applied {
        Applied::Reply(reply) => reply.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn answers_outlive_the_server_by_the_checkpoint_and_by_the_log() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let first = lab.send(session, 1, create_open(ROOT, "a", true));
    lab.save();
    let second = lab.send(session, 2, create_open(ROOT, "b", true));
    lab.crash();
    assert_eq!(lab.hello(session, &[]), (session, true));
    assert_eq!(lab.send(session, 1, create_open(ROOT, "a", true)), first);
    assert_eq!(lab.send(session, 2, create_open(ROOT, "b", true)), second);
}

#[test]
fn answers_that_arrived_are_forgotten() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let caller = root();
    lab.send(session, 1, create_open(ROOT, "a", true));
    let op = create_open(ROOT, "b", true);
    lab.apply(Request { session, seq: 2, seq_done: 2, now: 9, caller, op });
    let late = lab.send(session, 1, create_open(ROOT, "a", true));
    assert_eq!(code(&other_reply(&late)), Errno::EPROTO);
    assert!(!lab.send(session, 2, create_open(ROOT, "b", true)).is_refused());
}

#[test]
fn of_too_many_unconfirmed_mutations_the_oldest_lose_their_answers_but_not_their_effect() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let id = lab.file("f").id;
    let count = REPLIES_KEPT_MAX as u64 + 1;
    for seq in 2..2 + count {
        lab.send(session, seq, Op::Touch { id });
    }
    let version = lab.stat(id).version;
    assert!(!lab.send(session, 3, Op::Touch { id }).is_refused());
    assert_eq!(code(&other_reply(&lab.send(session, 2, Op::Touch { id }))), Errno::EIO);
    assert_eq!(lab.stat(id).version, version);
    assert!(!lab.send(session, 1, Op::Touch { id }).is_refused(), "it was never done");
    assert_eq!(lab.stat(id).version, version + 1);
}

#[test]
fn a_repeated_cut_waits_for_the_data_servers_as_the_first_did() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let id = lab.file("f").id;
    lab.extend(id, 10);
    let first = lab.send(session, 1, truncate(id, 5));
    assert!(matches!(first, Applied::AfterCut { epoch: 1, .. }));
    lab.crash();
    lab.hello(session, &[]);
    assert_eq!(lab.send(session, 1, truncate(id, 5)), first);
    lab.reply(0, Op::Reclaimed { id, epoch: 1 });
    let done = lab.send(session, 1, truncate(id, 5));
    assert_eq!(node(other_reply(&done)).epoch, 1);
}

#[test]
fn nothing_of_a_session_that_is_over_takes_effect() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    lab.store.session_expired(session).unwrap();
    lab.serve();
    let late = lab.send(session, 1, create_open(ROOT, "f", true));
    assert_eq!(code(&other_reply(&late)), Errno::ESTALE);
    assert_eq!(lab.find(ROOT, "f"), Err(Errno::ENOENT));
    let (fresh, known) = lab.hello(session, &[]);
    assert!(!known && fresh != session, "the client learns that it lost its session");
}

#[test]
fn a_session_that_is_over_stays_so_after_a_restart() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    lab.save();
    lab.reply(session, Op::Bye {});
    lab.crash();
    assert!(lab.store.sessions().is_empty());
    assert_eq!(lab.code(session, create_open(ROOT, "f", true)), Errno::ESTALE);
    assert!(lab.hello(0, &[]).0 > session, "numbers are not used again");
}

#[test]
fn sessions_are_listed_with_their_names_and_opens() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    lab.reply(session, create_open(ROOT, "f", true));
    let info = lab.store.sessions();
    assert_eq!((info[0].session, info[0].open_files), (session, 1));
    assert_eq!(info[0].name, Name::from("client"));
    lab.crash();
    assert_eq!(lab.store.sessions()[0].open_files, 0);
}

#[test]
fn a_clients_name_is_bounded() {
    let mut lab = Lab::default();
    let name = Name::from("x".repeat(256));
    let hello =
        Op::Hello { session: 0, files: Default::default(), appends: Default::default(), name };
    assert_eq!(lab.code(0, hello), Errno::ENAMETOOLONG);
    assert!(lab.store.sessions().is_empty());
}

#[test]
fn an_unlinked_file_lives_until_its_last_close() {
    let mut lab = Lab::default();
    let ((a, _), (b, _)) = (lab.hello(0, &[]), lab.hello(0, &[]));
    let id = created(lab.reply(a, create_open(ROOT, "f", true))).id;
    lab.reply(b, Op::Open { id, access: access::READ });
    lab.reply(b, Op::Open { id, access: access::READ });
    assert_eq!(lab.unlink(ROOT, "f"), 0);
    assert_eq!(lab.stat(id).nlink, 0);
    assert_eq!(lab.extend(id, 7).size, 7);
    lab.reply(a, Op::Release { id });
    lab.reply(b, Op::Release { id });
    assert_eq!(lab.stat(id).size, 7);
    assert!(lab.work.is_empty());
    lab.reply(b, Op::Release { id });
    assert_eq!(lab.code(0, Op::Getattr { id }), Errno::ESTALE);
    assert!(matches!(lab.work[..], [Work::Remove { id: gone, .. }] if gone == id));
    assert_eq!(lab.totals(), (1, 0));
}

#[test]
fn an_unlinked_file_can_be_opened_again_while_somebody_has_it_open() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let id = created(lab.reply(session, create_open(ROOT, "f", true))).id;
    lab.unlink(ROOT, "f");
    assert_eq!(lab.code(session, Op::Open { id, access: access::READ }), 0);
    let link = Op::Link { id, parent: ROOT, name: Name::from("g") };
    assert_eq!(lab.code(0, link), Errno::ENOENT, "it cannot come back to the names");
}

#[test]
fn the_orphans_of_a_dead_session_are_reclaimed() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let id = created(lab.reply(session, create_open(ROOT, "f", true))).id;
    lab.unlink(ROOT, "f");
    lab.store.session_lost(session);
    lab.serve();
    assert_eq!(lab.stat(id).nlink, 0, "the grace keeps it");
    lab.store.session_expired(session).unwrap();
    lab.serve();
    assert_eq!(lab.code(0, Op::Getattr { id }), Errno::ESTALE);
}

#[test]
fn after_a_restart_orphans_wait_for_those_who_come_back_to_them() {
    let mut lab = Lab::default();
    let ((a, _), (b, _)) = (lab.hello(0, &[]), lab.hello(0, &[]));
    let kept = created(lab.reply(a, create_open(ROOT, "kept", true))).id;
    let left = created(lab.reply(b, create_open(ROOT, "left", true))).id;
    lab.unlink(ROOT, "kept");
    lab.unlink(ROOT, "left");
    lab.crash();
    assert_eq!(lab.hello(a, &[kept]), (a, true));
    lab.store.drop_orphans().unwrap();
    lab.serve();
    assert_eq!(lab.stat(kept).nlink, 0);
    assert_eq!(lab.code(0, Op::Getattr { id: left }), Errno::ESTALE);
    lab.reply(a, Op::Release { id: kept });
    assert_eq!(lab.code(0, Op::Getattr { id: kept }), Errno::ESTALE);
}

#[test]
fn after_a_restart_a_name_may_go_before_those_who_have_the_file_open_are_back() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let id = created(lab.reply(session, create_open(ROOT, "f", true))).id;
    lab.crash();
    // Nobody has said yet that it is open.
    lab.unlink(ROOT, "f");
    lab.serve();
    assert_eq!(lab.hello(session, &[id]), (session, true));
    lab.store.drop_orphans().unwrap();
    lab.serve();
    assert_eq!(lab.stat(id).nlink, 0);
    lab.reply(session, Op::Release { id });
    assert_eq!(lab.code(0, Op::Getattr { id }), Errno::ESTALE);
}

#[test]
fn who_comes_back_without_an_append_takes_back_what_others_know_of_the_size() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let id = lab.file("f").id;
    lab.send(session, 7, Op::Reserve { id, length: 10 });
    let hello = |appends: &[u64]| Op::Hello {
        session,
        files: Default::default(),
        appends: covey_wire::List(appends.to_vec()),
        name: Name::EMPTY,
    };
    let content = Lease { id, place: false };
    assert_eq!(lab.store.changes(&hello(&[])).unwrap(), [content]);
    assert_eq!(lab.store.changes(&hello(&[7])).unwrap(), []);
    lab.reply(0, hello(&[]));
    assert_eq!(lab.store.changes(&hello(&[])).unwrap(), []);
}

#[test]
fn an_orphan_whose_end_was_asked_for_is_not_opened_again() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let id = lab.file("f").id;
    let caller = root();
    let request =
        |op| Request { session, seq: 0, seq_done: 0, now: 500, caller: caller.clone(), op };
    lab.store.apply(&request(unlink("f")));
    let open = lab.store.apply(&request(Op::Open { id, access: access::READ }));
    assert_eq!(code(&other_reply(&open)), Errno::ESTALE);
    let files = covey_wire::List(vec![id]);
    lab.store.apply(&request(Op::Hello {
        session,
        files,
        appends: Default::default(),
        name: Name::EMPTY,
    }));
    let [Work::Apply(own)] = &lab.store.take_work()[..] else { panic!("one Drop was asked for") };
    assert_eq!(own.op, Op::Drop { id });
    lab.store.apply(own);
    assert!(lab.store.apply(&request(Op::Getattr { id })).is_refused());
}

#[test]
fn coming_back_replaces_the_opens_without_closing_what_stays() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let stays = created(lab.reply(session, create_open(ROOT, "stays", true))).id;
    let goes = created(lab.reply(session, create_open(ROOT, "goes", true))).id;
    lab.unlink(ROOT, "stays");
    lab.unlink(ROOT, "goes");
    assert_eq!(lab.hello(session, &[stays, stays, 4711]), (session, true));
    assert_eq!(lab.code(0, Op::Getattr { id: goes }), Errno::ESTALE);
    lab.reply(session, Op::Release { id: stays });
    assert_eq!(lab.stat(stays).nlink, 0);
    lab.reply(session, Op::Release { id: stays });
    assert_eq!(lab.code(0, Op::Getattr { id: stays }), Errno::ESTALE);
}

#[test]
fn an_open_whose_answer_was_lost_counts_when_it_is_repeated_after_hello() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let first = lab.send(session, 1, create_open(ROOT, "f", true));
    let id = created(other_reply(&first)).id;
    lab.hello(session, &[]);
    assert_eq!(lab.send(session, 1, create_open(ROOT, "f", true)), first);
    lab.unlink(ROOT, "f");
    assert_eq!(lab.stat(id).nlink, 0, "it is open");
}

#[test]
fn internal_operations_are_told_apart() {
    for op in
        [Op::Drop { id: 2 }, Op::Reclaimed { id: 2, epoch: 0 }, Op::SessionOver { session: 1 }]
    {
        assert!(op.is_internal() && op.is_logged());
    }
    assert!(!Op::Touch { id: 2 }.is_internal());
    assert!(!Op::Getattr { id: 2 }.is_logged());
}

#[test]
fn numbers_that_a_power_loss_took_back_are_not_given_again() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let lost = lab.file("lost").id;
    // The log did not reach the disk.
    lab.log.clear();
    lab.lose_power(2);
    assert!(lab.file("new").id > lost);
    assert!(lab.hello(0, &[]).0 > session);
}
