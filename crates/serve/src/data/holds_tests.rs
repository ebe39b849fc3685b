//! Holds, as a server keeps them.

use super::*;
use covey_io::sim::{DiskProfile, Rng, SimDisk};
use std::path::Path;
use std::sync::Arc;

const KEY: Key = (None, 7);

#[test]
fn a_hold_keeps_out_others_and_whoever_says_no_number() {
    let holds = Holds::default();
    assert!(holds.keep_out(KEY, 1).is_none());
    assert!(holds.grant(KEY, 1));
    assert!(holds.keep_out(KEY, 1).is_none() && holds.keep_out((Some(3), 7), 2).is_none());
    assert!(holds.keep_out(KEY, 0).is_some());
    assert!(!holds.grant(KEY, 1), "it was in the way");
    assert!(holds.keep_out(KEY, 2).is_some());
}

#[test]
fn an_object_that_several_hold_is_nobodys_to_change() {
    let holds = Holds::default();
    assert!(holds.grant(KEY, 1) && holds.grant(KEY, 2));
    assert!(holds.keep_out(KEY, 2).is_some() && holds.keep_out(KEY, 1).is_some());
}

#[test]
fn pauses_grow_while_a_hold_is_in_the_way_again_and_again() {
    let holds = Holds::default();
    let mut now = task::now();
    for seconds in [8, 16, 32, 64, 64] {
        holds.pause(KEY, now, now);
        let until = holds.in_the_way.borrow()[&KEY].until;
        assert_eq!(until - now, Duration::from_secs(seconds));
        now = until;
    }
    now += Duration::from_secs(65);
    holds.pause(KEY, now, now);
    assert_eq!(holds.in_the_way.borrow()[&KEY].until - now, PAUSE);
}

#[test]
fn no_more_is_held_than_the_most_and_what_is_over_makes_room() {
    let holds = Holds::default();
    for id in 0..HOLDS_MAX as u64 {
        assert!(holds.grant((None, id), 1));
    }
    assert!(!holds.grant((None, HOLDS_MAX as u64), 1));
    std::thread::sleep(HOLD + LONGER);
    assert!(holds.grant((None, HOLDS_MAX as u64), 1));
    assert_eq!(holds.by_object.borrow().len(), 1);
    let now = task::now();
    for id in 0..HOLDS_MAX as u64 {
        holds.pause((None, id), now, now);
    }
    assert!(!holds.grant((None, HOLDS_MAX as u64), 1));
    let over = now.checked_sub(PAUSE * 3).unwrap();
    let pauses = holds.in_the_way.borrow_mut().drain().collect::<Vec<_>>();
    for (key, _) in pauses {
        holds.pause(key, over, over);
    }
    assert!(holds.grant((None, HOLDS_MAX as u64), 1));
}

#[test]
fn a_server_that_starts_admits_nobody_before_the_holds_of_the_process_before_are_over() {
    let begun = Instant::now();
    let disk = SimDisk::new(DiskProfile::default(), Rng::new(1));
    let tree = Rc::new(DataTree::open(Arc::new(disk), Path::new("/store")).unwrap());
    let DataReply::Met { store, .. } = tree.meet() else { panic!("it has a store") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tree.clone().admit_store(store, "meta".into()).await.unwrap();
    });
    assert!(begun.elapsed() >= HOLD + LONGER);
}
