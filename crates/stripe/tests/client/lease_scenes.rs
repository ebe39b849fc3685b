//! The table of leases by itself: who is granted what, who is told, who waits for how long.

use covey_stripe::meta::lease::{Claim, LEASE_TIME, Leases};
use covey_stripe::ops::Lease;
use std::time::{Duration, Instant};

const A: u64 = 1;
const B: u64 = 2;
const C: u64 = 3;
const FILE: Lease = Lease { id: 10, place: false };
const OTHER: Lease = Lease { id: 11, place: false };

struct Scene {
    leases: Leases,
    now: Instant,
}

impl Scene {
    fn new() -> Scene {
        let mut scene = Scene { leases: Leases::new(1, None), now: Instant::now() };
        for session in [A, B, C] {
            scene.leases.listen(session, 0);
        }
        scene
    }

    fn grant(&mut self, session: u64, leases: &[Lease]) -> u64 {
        self.leases.grant(session, leases, self.now)
    }

    /// A change by the session: its claim, if it has to wait.
    fn change(&mut self, session: u64, leases: &[Lease]) -> Option<Claim> {
        let mut claim = self.leases.begin_claim(session);
        if self.leases.add(&mut claim, leases, self.now) {
            Some(claim)
        } else {
            self.leases.end_claim(claim, self.now);
            None
        }
    }

    fn waits(&self, claim: &Claim) -> bool {
        self.leases.in_the_way(claim, self.now).is_some()
    }
}

#[test]
fn a_change_waits_until_the_holder_has_heard_of_it() {
    let mut scene = Scene::new();
    let granted = scene.grant(A, &[FILE, OTHER]);
    assert_ne!(granted, 0);
    let claim = scene.change(B, &[FILE]).expect("A holds it");
    let (number, told) = scene.leases.take_revocation(A).expect("A is told");
    assert_eq!(told, [FILE]);
    assert!(number > granted, "the answer may still be on its way");
    assert!(scene.waits(&claim));
    assert!(scene.leases.listen(A, number));
    assert!(!scene.waits(&claim));
    assert!(scene.change(C, &[OTHER]).is_some(), "A holds the other file still");
}

#[test]
fn own_changes_take_nothing_back() {
    let mut scene = Scene::new();
    scene.grant(A, &[FILE]);
    assert!(!scene.leases.concern_others(A, scene.now));
    assert!(scene.change(A, &[FILE]).is_none());
    assert!(scene.leases.take_revocation(A).is_none());
}

#[test]
fn a_holder_that_is_dead_is_waited_for_no_longer_than_its_lease() {
    let mut scene = Scene::new();
    scene.grant(A, &[FILE]);
    scene.leases.leave(A);
    let claim = scene.change(B, &[FILE]).expect("A may still use it");
    scene.now += LEASE_TIME;
    assert!(scene.waits(&claim), "its clock may be a little slow");
    scene.now += Duration::from_millis(100);
    assert!(!scene.waits(&claim));
}

#[test]
fn nothing_is_granted_to_who_cannot_be_told() {
    let mut scene = Scene::new();
    assert_eq!(scene.grant(9, &[FILE]), 0);
    scene.leases.leave(A);
    assert_eq!(scene.grant(A, &[FILE]), 0);
}

#[test]
fn nothing_is_granted_of_what_somebody_waits_to_change() {
    let mut scene = Scene::new();
    scene.grant(A, &[FILE]);
    let claim = scene.change(B, &[FILE]).expect("A holds it");
    assert_eq!(scene.grant(C, &[FILE, OTHER]), 0, "all or none");
    let (number, _) = scene.leases.take_revocation(A).expect("A is told");
    scene.leases.listen(A, number);
    assert_eq!(scene.grant(C, &[FILE]), 0);
    scene.leases.end_claim(claim, scene.now);
    assert_ne!(scene.grant(C, &[FILE]), 0);
}

#[test]
fn what_is_taken_back_twice_within_a_second_is_not_granted_for_a_second() {
    let mut scene = Scene::new();
    let taken_back = |scene: &mut Scene| {
        assert_ne!(scene.grant(A, &[FILE]), 0);
        let claim = scene.change(B, &[FILE]).expect("A holds it");
        let (number, _) = scene.leases.take_revocation(A).expect("A is told");
        scene.leases.listen(A, number);
        scene.leases.end_claim(claim, scene.now);
    };
    taken_back(&mut scene);
    scene.now += Duration::from_secs(1);
    taken_back(&mut scene);
    scene.now += Duration::from_millis(999);
    taken_back(&mut scene);
    assert_eq!(scene.grant(C, &[FILE]), 0, "clients that take turns go without");
    assert_eq!(scene.grant(B, &[FILE]), 0, "all of them");
    scene.now += Duration::from_secs(1);
    assert_ne!(scene.grant(C, &[FILE]), 0);
}

#[test]
fn who_has_said_goodbye_holds_nothing() {
    let mut scene = Scene::new();
    scene.grant(A, &[FILE]);
    let claim = scene.change(B, &[FILE]).expect("A holds it");
    assert!(scene.waits(&claim));
    assert!(scene.leases.end_session(A), "somebody may go on");
    assert!(!scene.waits(&claim));
    scene.leases.end_claim(claim, scene.now);
    assert!(!scene.leases.concern_others(B, scene.now));
}

#[test]
fn changes_of_one_file_keep_their_order_and_never_wait_in_a_circle() {
    let mut scene = Scene::new();
    scene.grant(A, &[FILE, OTHER]);
    let first = scene.change(B, &[FILE]).expect("A holds it");
    let second = scene.change(C, &[OTHER, FILE]).expect("A holds both");
    let (number, _) = scene.leases.take_revocation(A).expect("A is told");
    scene.leases.listen(A, number);
    let mut first = first;
    // The name that it changes leads to the other file by now.
    assert!(!scene.leases.add(&mut first, &[FILE, OTHER], scene.now));
    assert!(!scene.waits(&first));
    assert!(scene.waits(&second));
    scene.leases.end_claim(first, scene.now);
    assert!(!scene.waits(&second));
}

#[test]
fn a_revocation_that_did_not_arrive_is_told_again() {
    let mut scene = Scene::new();
    scene.grant(A, &[FILE]);
    let claim = scene.change(B, &[FILE]).expect("A holds it");
    scene.leases.take_revocation(A).expect("on its way, and lost");
    scene.leases.leave(A);
    assert!(scene.leases.take_revocation(A).is_none(), "A is not here");
    scene.leases.listen(A, 0);
    let (number, told) = scene.leases.take_revocation(A).expect("again");
    assert_eq!(told, [FILE]);
    scene.leases.listen(A, number);
    assert!(!scene.waits(&claim));
}

#[test]
fn a_late_answer_to_a_revocation_does_not_take_a_newer_lease() {
    let mut scene = Scene::new();
    scene.grant(A, &[FILE]);
    let claim = scene.change(B, &[FILE]).expect("A holds it");
    let (number, _) = scene.leases.take_revocation(A).expect("A is told");
    scene.now += Duration::from_secs(3);
    scene.leases.end_claim(claim, scene.now);
    scene.now += Duration::from_secs(3);
    // Enough for the table to have looked at what is over.
    for id in 100..200 {
        scene.grant(C, &[Lease { id, place: false }]);
    }
    assert_ne!(scene.grant(A, &[FILE]), 0);
    scene.leases.listen(A, number);
    assert!(scene.change(B, &[FILE]).is_some(), "A holds it again");
}

#[test]
fn after_a_start_changes_wait_for_leases_from_before() {
    let now = Instant::now();
    let mut scene = Scene { leases: Leases::new(2, Some(now + LEASE_TIME)), now };
    assert!(scene.leases.concern_others(B, now));
    let claim = scene.change(B, &[FILE]).expect("nobody knows who holds it");
    assert!(scene.waits(&claim));
    scene.now += LEASE_TIME;
    assert!(!scene.waits(&claim));
    scene.leases.end_claim(claim, scene.now);
    assert!(!scene.leases.concern_others(B, scene.now));
}

#[test]
fn grants_of_a_later_start_are_newer_than_revocations_of_an_earlier_one() {
    let mut before = Scene::new();
    before.grant(A, &[FILE]);
    before.change(B, &[FILE]);
    let (number, _) = before.leases.take_revocation(A).expect("A is told");
    let mut after = Scene { leases: Leases::new(2, None), now: before.now };
    after.leases.listen(A, 0);
    assert!(after.grant(A, &[FILE]) > number);
}

#[test]
fn more_leases_than_a_list_may_hold_are_taken_back_in_several_messages() {
    let mut scene = Scene::new();
    let all: Vec<Lease> = (0..70_000).map(|id| Lease { id: 100 + id, place: false }).collect();
    for lease in &all {
        assert_ne!(scene.grant(A, &[*lease]), 0);
    }
    let claim = scene.change(B, &all).expect("A holds them");
    let mut told = Vec::new();
    while let Some((number, leases)) = scene.leases.take_revocation(A) {
        assert!(scene.waits(&claim), "A has not heard of all of them");
        assert!(leases.len() <= usize::from(u16::MAX), "{} in one message", leases.len());
        told.extend(leases);
        scene.leases.listen(A, number);
    }
    told.sort_unstable();
    assert_eq!(told, all);
    assert!(!scene.waits(&claim));
}

#[test]
fn who_is_alone_with_a_file_is_asked_before_anybody_is_told_of_it() {
    let mut scene = Scene { leases: Leases::new(1, None), now: Instant::now() };
    let file = Lease { id: 7, place: false };
    scene.leases.listen(1, 0);
    assert!(scene.leases.grant(1, &[file], scene.now) > 0);
    scene.leases.leave_alone(1, 7);
    assert!(scene.leases.is_alone(1, 7, scene.now));
    assert!(scene.leases.is_alone_elsewhere(2, 7, scene.now));
    assert!(!scene.leases.is_alone_elsewhere(1, 7, scene.now));
    assert_eq!(scene.leases.alone_elsewhere(2, scene.now).collect::<Vec<_>>(), [7]);

    let mut claim = scene.leases.begin_claim(2);
    assert!(scene.leases.add(&mut claim, &[file], scene.now));
    let (number, _) = scene.leases.take_revocation(1).expect("it is told");
    // Until it has answered it may still say what it did, and nobody else is told either.
    assert!(scene.leases.is_alone(1, 7, scene.now));
    assert!(scene.leases.is_alone_elsewhere(3, 7, scene.now));
    assert!(scene.leases.listen(1, number));
    assert!(scene.leases.in_the_way(&claim, scene.now).is_none());
    assert!(!scene.leases.is_alone(1, 7, scene.now));
    assert!(!scene.leases.is_alone_elsewhere(3, 7, scene.now));
    scene.leases.end_claim(claim, scene.now);
}

#[test]
fn nobody_is_alone_with_a_file_for_longer_than_its_lease() {
    let mut scene = Scene { leases: Leases::new(1, None), now: Instant::now() };
    let file = Lease { id: 7, place: false };
    scene.leases.listen(1, 0);
    scene.leases.grant(1, &[file], scene.now);
    scene.leases.leave_alone(1, 7);
    scene.now += LEASE_TIME * 2;
    assert!(!scene.leases.is_alone(1, 7, scene.now));
    assert!(!scene.leases.is_alone_elsewhere(2, 7, scene.now));
    // A lease that is granted anew does not bring it back.
    scene.leases.grant(1, &[file], scene.now);
    assert!(!scene.leases.is_alone(1, 7, scene.now));
    scene.leases.leave_alone(1, 7);
    scene.leases.open_to_all(1, 7);
    assert!(!scene.leases.is_any_alone());
    scene.leases.leave_alone(1, 7);
    scene.leases.end_session(1);
    assert!(!scene.leases.is_any_alone());
}

#[test]
fn who_is_alone_with_a_directory_stays_so_when_the_lease_on_its_place_goes() {
    let content = Lease { id: 7, place: false };
    let place = Lease { id: 7, place: true };
    let is_alone = |scene: &Scene| {
        scene.leases.is_alone(A, 7, scene.now) && scene.leases.is_alone_elsewhere(B, 7, scene.now)
    };

    // It runs out,
    let mut scene = Scene::new();
    scene.grant(A, &[content, place]);
    scene.leases.leave_alone(A, 7);
    for _ in 0..4 {
        scene.now += LEASE_TIME / 2;
        assert_ne!(scene.grant(A, &[content]), 0);
        assert!(is_alone(&scene));
    }
    // is granted anew after that,
    assert_ne!(scene.grant(A, &[place]), 0);
    assert!(is_alone(&scene));
    // or is taken back.
    let claim = scene.change(B, &[place]).expect("A holds it");
    let (number, told) = scene.leases.take_revocation(A).expect("A is told");
    assert_eq!(told, [place]);
    assert!(scene.leases.listen(A, number));
    assert!(!scene.waits(&claim));
    assert!(is_alone(&scene));
}
