//! Writes and syncs: what their store is asked, and what initiators are told of a sync that failed.

mod support;

use covey_iscsi::scsi::{Device, Nexus, Step};
use covey_iscsi::store::{Failure, Reply};
use support::{Bench, command, wait};

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

/// An initiator that has lost its session is the same one when it is back.
#[test]
fn who_comes_back_hears_of_what_it_lost_meanwhile() {
    let bench = Bench::new();
    let (one, other) = (bench.visitor(1), bench.visitor(2));
    bench.good(&one, &WRITE, &[1; 512], 0);
    bench.units.lost(&one);
    bench.store.fail_next(Failure::Write);
    assert_eq!(bench.sense(&other, &FLUSH, &[], 0), (3, 0x0c00));
    let back = Nexus { number: 7, ..one };
    assert_eq!(bench.sense(&back, &[0; 6], &[], 0), (6, 0x2900));
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
