use super::*;

const DIR: Id = 7;
const FH: u64 = 3;

fn content(id: Id) -> [Lease; 1] {
    [Lease { id, place: false }]
}

/// The files 8 and 9 are listed.
fn told() -> Glimpses {
    let glimpses = Glimpses::default();
    assert!(glimpses.tell(FH, DIR, vec![8, 9], glimpses.asking()));
    glimpses
}

#[test]
fn a_listing_is_waited_for_until_its_handle_asks_again_and_its_names_a_moment_longer() {
    let glimpses = told();
    let awaited = glimpses.take_back(&content(DIR));
    assert!(glimpses.awaits(&awaited));
    assert_eq!(glimpses.names_until(&content(DIR)), None, "the moment has not begun");
    glimpses.noted(FH);
    assert!(!glimpses.awaits(&awaited));
    let until = glimpses.names_until(&content(DIR)).expect("it has begun");
    assert!(until > Instant::now() + LASTS - OVER / 2, "it is not over");
}

#[test]
fn attributes_wait_for_the_listing_alone() {
    let glimpses = told();
    let awaited = glimpses.take_back(&content(9));
    assert!(glimpses.awaits(&awaited));
    glimpses.noted(FH);
    assert!(!glimpses.awaits(&awaited));
    assert_eq!(glimpses.names_until(&content(9)), None);
}

#[test]
fn what_was_not_told_waits_for_nothing() {
    let glimpses = told();
    assert!(glimpses.take_back(&content(10)).is_empty());
    assert!(glimpses.take_back(&[Lease { id: DIR, place: true }]).is_empty());
    assert!(glimpses.tell(FH, DIR, vec![], glimpses.asking()), "nobody has met");
}

#[test]
fn who_had_the_lock_of_the_directory_alone_has_seen_what_was_told_before_noted() {
    let glimpses = told();
    let awaited = glimpses.take_back(&content(8));
    let (dirs, up_to) = awaited.dirs();
    assert_eq!(dirs, [DIR]);
    glimpses.locked(DIR + 1, up_to);
    assert!(glimpses.awaits(&awaited), "that is another one");
    assert!(glimpses.tell(FH + 1, DIR, vec![8], glimpses.asking()));
    glimpses.locked(DIR, up_to);
    assert!(!glimpses.awaits(&awaited));
    let later = glimpses.take_back(&content(8));
    assert!(glimpses.awaits(&later), "the later listing may have begun since");
}

#[test]
fn an_answer_that_nobody_waits_for_any_more_hides_no_other_of_its_handle() {
    let glimpses = told();
    assert!(glimpses.tell(FH, DIR, vec![10], glimpses.asking()));
    for id in [8, 10, DIR] {
        assert!(!glimpses.take_back(&content(id)).is_empty(), "{id}");
    }
}

#[test]
fn what_was_asked_for_before_something_was_taken_back_is_not_told() {
    let glimpses = Glimpses::default();
    let asked = glimpses.asking();
    glimpses.take_back(&content(100));
    assert!(!glimpses.tell(FH, DIR, vec![8], asked));
    assert!(glimpses.take_back(&content(8)).is_empty());
}

#[test]
fn nothing_lasts_without_a_lease_that_outlasts_it_by_far() {
    assert_eq!(lasts(MARGIN), Duration::ZERO);
    assert_eq!(lasts(MARGIN + Duration::from_millis(1)), LASTS);
    assert!(MARGIN > OVER * 3);
}

#[test]
fn who_leaves_many_listings_unfinished_gets_no_more_of_them() {
    let glimpses = Glimpses::default();
    let asked = glimpses.asking();
    let told = (0..1000).filter(|fh| glimpses.tell(*fh, *fh, vec![1], asked)).count();
    assert_eq!(told, TOLD_MAX);
    assert!(glimpses.tell(0, 0, vec![1], asked), "it is one of them");
    glimpses.noted(0);
    assert!(glimpses.tell(1000, 1000, vec![1], asked));
}

#[test]
fn where_clients_meet_less_and_less_is_told() {
    let glimpses = told();
    assert!(!glimpses.rests());
    glimpses.take_back(&content(DIR));
    assert!(glimpses.rests());
    assert!(!glimpses.tell(FH + 1, DIR, vec![8], glimpses.asking()), "it rests");
    let (mut rest, mut now) = (Rest::default(), Instant::now());
    let mut lengths = Vec::new();
    for _ in 0..6 {
        rest.begin(now);
        rest.begin(now);
        lengths.push(rest.length.as_secs());
        now += rest.length;
    }
    assert_eq!(lengths, [8, 16, 32, 64, 64, 64]);
    rest.begin(now + REST_MAX * 2);
    assert_eq!(rest.length, REST_MIN, "they have met long ago");
}

#[test]
fn what_a_process_before_has_told_is_waited_for() {
    let glimpses = Glimpses::default();
    glimpses.take_over();
    assert!(glimpses.names_until(&content(100)).is_some(), "of any directory");
    glimpses.take_over_handle(FH, DIR);
    let awaited = glimpses.take_back(&content(100));
    assert!(glimpses.awaits(&awaited), "it may have been told of any file");
    glimpses.noted(FH);
    assert!(!glimpses.awaits(&awaited));
}

#[test]
fn the_name_of_a_file_that_was_made_is_told_where_nobody_was_met_and_noted_by_the_lock() {
    let glimpses = Glimpses::default();
    let made = |file| glimpses.tell_made(DIR, file, glimpses.asking());
    assert_eq!((0..100).filter(|&file| made(file)).count(), 100 - MADE_MIN as usize);
    let awaited = glimpses.take_back(&content(DIR));
    assert!(glimpses.awaits(&awaited));
    let (dirs, up_to) = awaited.dirs();
    assert_eq!(dirs, [DIR]);
    glimpses.locked(DIR, up_to);
    assert!(!glimpses.awaits(&awaited));
    assert!(glimpses.names_until(&content(DIR)).is_some());
    assert!(!made(200), "clients have met");
}

#[test]
fn clients_that_make_files_in_turn_are_told_of_none() {
    let glimpses = Glimpses::default();
    for file in 0..1000 {
        assert!(!glimpses.tell_made(DIR, file, glimpses.asking()));
        assert!(glimpses.take_back(&content(DIR)).is_empty());
    }
    assert!(!glimpses.rests());
}

#[test]
fn directories_in_which_nothing_more_is_made_take_no_place_from_others() {
    let glimpses = Glimpses::default();
    let asked = glimpses.asking();
    let made = (0..1000).filter(|dir| glimpses.tell_made(*dir, 1, asked)).count();
    assert_eq!(made, TOLD_MAX);
    for told in glimpses.lock().told.values_mut() {
        told.at -= LEASE_OVER;
    }
    assert!(glimpses.tell_made(2000, 1, asked));
    assert_eq!(glimpses.lock().told.len(), 1);
}

#[test]
fn a_tree_of_many_directories_that_was_just_made_is_listed_as_any_other() {
    let glimpses = Glimpses::default();
    let asked = glimpses.asking();
    let made = (0..1000).filter(|dir| glimpses.tell_made(*dir, 1, asked)).count();
    assert_eq!(made, TOLD_MAX);
    let told = (0..1000).filter(|fh| glimpses.tell(*fh, *fh, vec![1], asked)).count();
    assert_eq!(told, TOLD_MAX, "and no more of those");
    assert!(!glimpses.tell_made(2000, 1, asked));
}
