//! Writes and syncs: what their store is asked, and what initiators are told of a sync that failed.

mod support;

use covey_iscsi::scsi::{Config, Device, Function, Input, Nexus, Step, Task, Unit, Units};
use covey_iscsi::store::{Failure, Reply, Request};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use support::{Bench, Memory, command, config, wait};

const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const WRITE_FUA: [u8; 10] = [0x2a, 8, 0, 0, 0, 0, 0, 0, 1, 0];
const FLUSH: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const FLUSH_IMMED: [u8; 10] = [0x35, 2, 0, 0, 0, 0, 0, 0, 0, 0];

/// A store tells of a failed sync once: whoever asked hears it, and whoever else had written when it asks next.
#[test]
fn a_failed_sync_is_told_once_to_everybody_who_had_written() {
    let bench = Bench::new();
    let (one, two, three) = (bench.visitor(1), bench.visitor(2), bench.visitor(3));
    bench.good(&one, &WRITE, &[1; 512], 0);
    bench.good(&two, &WRITE, &[2; 512], 0);
    bench.store.fail_next(Failure::Write);
    assert_eq!(bench.sense(&one, &FLUSH, &[], 0), (3, 0x0c00));
    bench.good(&one, &FLUSH, &[], 0);
    assert_eq!(bench.sense(&two, &FLUSH, &[], 0), (3, 0x0c00));
    bench.good(&two, &FLUSH, &[], 0);
    bench.good(&three, &FLUSH, &[], 0);
}

/// A long write is made in parts, as its data comes. It counts as one: the others say that they go on.
#[test]
fn the_parts_of_a_long_write_say_that_they_belong_together() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let long = [0x2a, 0, 0, 0, 0, 0, 0, 1, 0x84, 0];
    for turn in 1..=2 {
        bench.good(&one, &long, &[turn; 388 * 512], 0);
        assert_eq!(bench.store.log(), ["write", "write on", "write on", "write on"]);
    }
}

/// What fails is one write, what may be lost is all that was written before.
#[test]
fn a_write_that_could_not_last_says_nothing_of_those_before_it() {
    let bench = Bench::new();
    let (one, two) = (bench.visitor(1), bench.visitor(2));
    bench.good(&one, &WRITE, &[1; 512], 0);
    bench.good(&two, &WRITE, &[1; 512], 0);
    bench.store.fail_next(Failure::Write);
    assert_eq!(bench.sense(&one, &WRITE_FUA, &[2; 512], 0), (3, 0x0c00));
    for nexus in [&one, &two] {
        assert_eq!(bench.sense(nexus, &FLUSH, &[], 0), (3, 0x0c00));
        bench.good(nexus, &FLUSH, &[], 0);
    }
}

/// Nobody waits for its end: whoever had written must hear of it all the same.
#[test]
fn a_sync_that_nobody_waits_for_fails_loudly() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    bench.good(&one, &WRITE, &[1; 512], 0);
    bench.store.fail_next(Failure::Write);
    bench.good(&one, &FLUSH_IMMED, &[], 0);
    assert_eq!(bench.sense(&one, &FLUSH, &[], 0), (3, 0x0c00));
    bench.good(&one, &FLUSH, &[], 0);
}

/// The same initiator with another session, which is told that the unit is new to it.
fn comes_back(bench: &Bench, lost: &Nexus, number: u64) -> Nexus {
    let back = Nexus { number, ..lost.clone() };
    assert_eq!(bench.sense(&back, &[0; 6], &[], 0), (6, 0x2900));
    back
}

/// An initiator that has lost its session is the same one when it is back.
#[test]
fn who_comes_back_hears_of_what_it_lost_meanwhile() {
    let bench = Bench::new();
    let (one, other) = (bench.visitor(1), bench.visitor(2));
    bench.good(&one, &WRITE, &[1; 512], 0);
    bench.units.lost(&one);
    bench.store.fail_next(Failure::Write);
    assert_eq!(bench.sense(&other, &FLUSH, &[], 0), (3, 0x0c00));
    let back = comes_back(&bench, &one, 7);
    assert_eq!(bench.sense(&back, &FLUSH, &[], 0), (3, 0x0c00));
    bench.good(&back, &FLUSH, &[], 0);
}

/// A sync that was aborted has told nobody anything.
#[test]
fn an_aborted_sync_leaves_its_news_to_the_next() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    bench.good(&one, &WRITE, &[1; 512], 0);
    bench.store.fail_next(Failure::Write);
    let (task, Step::Store(flush)) = bench.units.start(0, &one, command(&FLUSH, 0, 0)) else {
        panic!("it syncs")
    };
    assert_eq!(wait(bench.units.ask(&task, flush)), Reply::Failed(Failure::Write));
    drop(task);
    assert_eq!(bench.sense(&one, &FLUSH, &[], 0), (3, 0x0c00));
}

/// A write of one block, up to what it asks of the store.
fn begin_write(bench: &Bench, by: &Nexus) -> (Task, Request) {
    let (mut task, step) = bench.units.start(0, by, command(&WRITE, 512, 0));
    let Step::Collect { .. } = step else { panic!("it takes its data") };
    let Step::Store(write) = bench.units.next(&mut task, Input::Data(vec![1; 512].into())) else {
        panic!("it writes")
    };
    (task, write)
}

/// A sync speaks for what was written when it began, and not for what is still on its way.
#[test]
fn a_write_that_a_sync_overtook_is_the_next_ones() {
    let bench = Bench::new();
    let (one, other) = (bench.visitor(1), bench.visitor(2));
    let (mut task, write) = begin_write(&bench, &one);
    bench.good(&one, &FLUSH, &[], 0);
    let written = wait(bench.units.ask(&task, write));
    let Step::End(completion) = bench.units.next(&mut task, Input::Stored(written)) else {
        panic!("it ends")
    };
    assert_eq!(completion.status, 0);
    bench.store.fail_next(Failure::Write);
    assert_eq!(bench.sense(&other, &FLUSH, &[], 0), (3, 0x0c00));
    assert_eq!(bench.sense(&one, &FLUSH, &[], 0), (3, 0x0c00));
    bench.good(&one, &FLUSH, &[], 0);
}

/// Who was told, and lost its session with the answer, asks again.
#[test]
fn news_that_went_with_a_session_is_told_again() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    bench.good(&one, &WRITE, &[1; 512], 0);
    bench.store.fail_next(Failure::Write);
    assert_eq!(bench.sense(&one, &FLUSH, &[], 0), (3, 0x0c00));
    bench.units.lost(&one);
    let back = comes_back(&bench, &one, 7);
    assert_eq!(bench.sense(&back, &FLUSH, &[], 0), (3, 0x0c00));
    bench.good(&back, &FLUSH, &[], 0);
    // Who has asked for another one since has heard it.
    bench.units.lost(&back);
    let again = comes_back(&bench, &back, 8);
    bench.good(&again, &FLUSH, &[], 0);
}

/// What a sanitize must bring to the medium first was lost before: it fails, and one that has failed stays so.
#[test]
fn a_failed_sanitize_is_not_undone_by_news_of_a_loss() {
    const ERASE: [u8; 10] = [0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0];
    let bench = Bench::new();
    let (one, other) = (bench.visitor(1), bench.visitor(2));
    bench.good(&other, &WRITE, &[1; 512], 0);
    bench.store.fail_next(Failure::Write);
    assert_eq!(bench.sense(&one, &ERASE, &[], 0), (3, 0x0c00));
    assert_eq!(bench.sense(&other, &ERASE, &[], 0), (3, 0x0c00));
    assert_eq!(bench.sense(&one, &WRITE, &[1; 512], 0), (3, 0x3103));
    bench.good(&other, &ERASE, &[], 0);
    bench.good(&one, &WRITE, &[1; 512], 0);
}

/// MODE SELECT of the caching page, and its data.
fn select_cache(is_on: bool) -> ([u8; 6], [u8; 24]) {
    let mut list = [0; 24];
    list[4..7].copy_from_slice(&[0x08, 18, if is_on { 0x04 } else { 0 }]);
    ([0x15, 0x10, 0, 0, 24, 0], list)
}

/// An initiator that has turned the cache off sends no SYNCHRONIZE CACHE for what it wrote before.
#[test]
fn a_cache_that_is_turned_off_is_brought_to_stable_storage_first() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    bench.good(&one, &WRITE, &[1; 512], 0);
    let ((off, no), (on, yes)) = (select_cache(false), select_cache(true));
    bench.store.fail_next(Failure::Write);
    assert_eq!(bench.sense(&one, &off, &no, 0), (3, 0x0c00));
    bench.good(&one, &on, &yes, 0);
    bench.good(&one, &WRITE, &[2; 512], 0);
    bench.good(&one, &off, &no, 0);
    assert_eq!(bench.store.log(), ["write", "write", "flush"]);
    bench.good(&one, &off, &no, 0);
    assert!(bench.store.log().is_empty(), "it is off already");
}

/// It may be answered behind the MODE SELECT whose sync it was too late for.
#[test]
fn a_write_that_meets_the_end_of_the_cache_lasts() {
    let bench = Bench::new();
    let (one, other) = (bench.visitor(1), bench.visitor(2));
    let (mut task, write) = begin_write(&bench, &one);
    let (off, no) = select_cache(false);
    bench.good(&other, &off, &no, 0);
    let written = wait(bench.units.ask(&task, write));
    let Step::Store(sync) = bench.units.next(&mut task, Input::Stored(written)) else {
        panic!("it syncs")
    };
    assert_eq!(wait(bench.units.ask(&task, sync)), Reply::Done);
    assert_eq!(bench.store.log(), ["flush", "write", "flush"]);
}

/// A unit that has no cache by itself loses the one that it was given, and nobody will sync it.
#[test]
fn a_reset_that_takes_the_cache_away_syncs() {
    let bench = Bench::with(Config { write_cache: false, ..config() }, 1 << 20);
    let one = bench.visitor(1);
    let (on, yes) = select_cache(true);
    bench.good(&one, &on, &yes, 0);
    bench.good(&one, &WRITE, &[1; 512], 0);
    bench.units.manage(0, &one, Function::LogicalUnitReset);
    bench.units.manage(0, &one, Function::LogicalUnitReset);
    assert_eq!(bench.store.log(), ["write", "flush"]);
}

/// Who makes a unit shorter waits for what is at work behind the new end, and for nothing else; what comes later waits for it.
#[test]
fn blocks_are_closed_once_nobody_is_at_work_on_them() {
    let store = Memory::new(1 << 20);
    let unit = Arc::new(Unit::new(config(), store.clone(), "").unwrap());
    let bench = Bench { units: Units::of(unit.clone()), store };
    let one = bench.visitor(1);
    bench.store.state.lock().unwrap().works_on = Some(Vec::new());
    let write = [0x2a, 0, 0, 0, 0, 9, 0, 0, 2, 0];
    let (mut task, _) = bench.units.start(0, &one, command(&write, 1024, 0));
    let data = Input::Data(vec![1; 1024].into());
    let Step::Store(request) = bench.units.next(&mut task, data) else { panic!("it writes") };
    let _written = bench.units.ask(&task, request);
    let mut context = Context::from_waker(Waker::noop());
    let (mut behind, mut within) = (pin!(unit.close_from(11)), pin!(unit.close_from(10)));
    let Poll::Ready(closed) = behind.as_mut().poll(&mut context) else { panic!("it is idle") };
    drop(closed);
    assert!(within.as_mut().poll(&mut context).is_pending());
    drop(task);
    assert!(within.as_mut().poll(&mut context).is_pending(), "the store goes on");
    bench.store.state.lock().unwrap().works_on = None;
    let Poll::Ready(closed) = within.as_mut().poll(&mut context) else { panic!("it has ended") };
    let (mut task, _) = bench.units.start(0, &one, command(&write, 1024, 0));
    let data = Input::Data(vec![1; 1024].into());
    let Step::Store(request) = bench.units.next(&mut task, data) else { panic!("it writes") };
    let covey_iscsi::store::Answer::Later(mut later) = bench.units.ask(&task, request) else {
        panic!("it waits")
    };
    assert!(later.as_mut().poll(&mut context).is_pending());
    drop(closed);
    assert!(later.as_mut().poll(&mut context).is_ready());
}
