//! Locks: ranges, whole files, waiting, and what ends a wait.

use crate::lab::*;
use covey_stripe::meta::{Applied, WaitId};
use covey_stripe::ops::*;
use proptest::prelude::*;

const DONE: Reply = Reply::Done {};
const END: u64 = u64::MAX;

/// A lab with one file and two sessions.
struct Locksmith {
    lab: Lab,
    id: Id,
    a: u64,
    b: u64,
}

fn locksmith() -> Locksmith {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let (a, b) = (lab.hello(0, &[]).0, lab.hello(0, &[]).0);
    Locksmith { lab, id, a, b }
}

fn range(exclusive: bool, start: u64, end: u64) -> RangeLock {
    RangeLock { exclusive, whole: false, start, end, owner: 1, pid: 77 }
}

fn whole(exclusive: bool) -> RangeLock {
    RangeLock { whole: true, ..range(exclusive, 0, END) }
}

impl Locksmith {
    fn take(&mut self, session: u64, lock: RangeLock) -> u32 {
        let id = self.id;
        self.lab.code(session, Op::Lock { id, lock, wait: false, again: false })
    }

    fn wait_on(&mut self, id: Id, session: u64, lock: RangeLock) -> Result<Option<WaitId>, u32> {
        match self.lab.send(session, 0, Op::Lock { id, lock, wait: true, again: false }) {
            Applied::Wait(wait) => Ok(Some(wait)),
            Applied::Reply(DONE) => Ok(None),
            Applied::Reply(refused) => Err(code(&refused)),
            other => panic!("{other:?}"),
        }
    }

    fn wait(&mut self, session: u64, lock: RangeLock) -> WaitId {
        self.wait_on(self.id, session, lock).unwrap().expect("it must wait")
    }

    fn unlock(&mut self, session: u64, lock: RangeLock) {
        let id = self.id;
        assert_eq!(self.lab.reply(session, Op::Unlock { id, lock }), DONE);
    }

    fn test(&mut self, session: u64, lock: RangeLock) -> Option<RangeLock> {
        let id = self.id;
        match self.lab.reply(session, Op::Getlock { id, lock }) {
            Reply::Locked { lock } => lock,
            other => panic!("{other:?}"),
        }
    }

    fn granted(&mut self) -> Vec<WaitId> {
        let answers = self.lab.answers();
        assert!(answers.iter().all(|(_, reply)| *reply == DONE));
        answers.into_iter().map(|(wait, _)| wait).collect()
    }
}

#[test]
fn readers_share_and_writers_exclude() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, range(false, 0, 9)), 0);
    assert_eq!(smith.take(b, range(false, 5, 14)), 0);
    assert_eq!(smith.take(b, range(true, 9, 9)), Errno::EAGAIN);
    assert_eq!(smith.take(b, range(true, 10, 10)), 0);
    assert_eq!(smith.take(a, range(false, 10, 10)), Errno::EAGAIN);
}

#[test]
fn an_owners_locks_replace_its_own_and_split_around_what_is_given_back() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, range(true, 0, 99)), 0);
    assert_eq!(smith.take(a, range(false, 40, 59)), 0);
    smith.unlock(a, range(false, 45, 49));
    let held = |smith: &mut Locksmith, start, end| {
        smith.test(b, range(true, start, end)).map(|l| (l.exclusive, l.start, l.end))
    };
    assert_eq!(held(&mut smith, 0, 0), Some((true, 0, 39)));
    assert_eq!(held(&mut smith, 40, 40), Some((false, 40, 44)));
    assert_eq!(held(&mut smith, 45, 49), None);
    assert_eq!(held(&mut smith, 50, 50), Some((false, 50, 59)));
    assert_eq!(held(&mut smith, 99, END), Some((true, 60, 99)));
    assert_eq!(smith.take(a, range(true, 40, 59)), 0);
    assert_eq!(held(&mut smith, 0, END), Some((true, 0, 99)), "joined again");
}

#[test]
fn ranges_to_the_end_of_the_file_do_not_overflow() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, range(true, 0, END)), 0);
    smith.unlock(a, range(true, END, END));
    assert_eq!(smith.take(b, range(true, END, END)), 0);
    smith.unlock(a, range(true, 0, 0));
    assert_eq!(smith.test(b, range(true, 0, END)).map(|l| (l.start, l.end)), Some((1, END - 1)));
    let (id, lock) = (smith.id, range(true, 2, 1));
    assert_eq!(smith.lab.code(a, Op::Lock { id, lock, wait: false, again: false }), Errno::EINVAL);
}

#[test]
fn owners_of_one_session_are_told_apart_and_the_obstacle_is_named() {
    let mut smith = locksmith();
    let a = smith.a;
    assert_eq!(smith.take(a, range(true, 0, 9)), 0);
    let other = RangeLock { owner: 2, ..range(false, 5, 5) };
    assert_eq!(smith.take(a, other.clone()), Errno::EAGAIN);
    assert_eq!(smith.test(a, other), Some(range(true, 0, 9)));
    assert_eq!(smith.test(a, range(true, 0, END)), None, "one's own is no obstacle");
}

#[test]
fn flock_and_fcntl_never_meet() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, whole(true)), 0);
    assert_eq!(smith.take(b, range(true, 0, END)), 0);
    assert_eq!(smith.take(b, whole(false)), Errno::EAGAIN);
}

#[test]
fn waits_end_in_order_when_the_lock_is_given_back() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, range(true, 0, 9)), 0);
    let first = smith.wait(b, range(true, 0, 4));
    let second = smith.wait(b, RangeLock { owner: 2, ..range(true, 0, 9) });
    assert!(smith.granted().is_empty());
    smith.unlock(a, range(true, 0, 9));
    assert_eq!(smith.granted(), [first]);
    smith.unlock(b, range(true, 0, END));
    assert_eq!(smith.granted(), [second]);
}

#[test]
fn new_readers_do_not_overtake_a_waiting_writer() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, range(false, 0, 9)), 0);
    let writer = smith.wait(b, range(true, 0, 9));
    let reader = smith.wait(b, RangeLock { owner: 2, ..range(false, 0, 9) });
    // Who holds something already, or does not wait, is not held up by manners.
    assert_eq!(smith.wait_on(smith.id, a, range(false, 5, 15)), Ok(None));
    assert_eq!(smith.take(b, RangeLock { owner: 3, ..range(false, 0, 9) }), 0);
    smith.unlock(b, RangeLock { owner: 3, ..range(false, 0, 9) });
    smith.unlock(a, range(false, 0, END));
    assert_eq!(smith.granted(), [writer]);
    smith.unlock(b, range(true, 0, END));
    assert_eq!(smith.granted(), [reader]);
}

#[test]
fn a_writer_who_gives_up_lets_those_behind_go() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, range(false, 0, 9)), 0);
    let writer = smith.wait(b, range(true, 0, 9));
    let reader = smith.wait(b, RangeLock { owner: 2, ..range(false, 0, 9) });
    smith.lab.store.cancel_wait(writer);
    assert_eq!(smith.granted(), [reader]);
    smith.lab.store.cancel_wait(writer);
    assert!(smith.granted().is_empty());
}

#[test]
fn making_a_lock_weaker_lets_readers_in() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, range(true, 0, 9)), 0);
    let reader = smith.wait(b, range(false, 0, 9));
    assert_eq!(smith.take(a, range(false, 0, 9)), 0);
    assert_eq!(smith.granted(), [reader]);
}

#[test]
fn those_who_would_wait_for_each_other_are_told() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    let other = smith.lab.file("g").id;
    assert_eq!(smith.take(a, range(true, 0, 0)), 0);
    assert_eq!(smith.wait_on(other, b, range(true, 0, 0)), Ok(None));
    let wait = smith.wait(b, range(true, 0, 0));
    assert_eq!(smith.wait_on(other, a, range(true, 0, 0)), Err(Errno::EDEADLK));
    // Nothing of the refused request stays in the queue.
    smith.unlock(a, range(true, 0, 0));
    assert_eq!(smith.granted(), [wait]);
    let third = RangeLock { owner: 3, ..range(true, 0, 0) };
    assert_eq!(
        smith.lab.code(a, Op::Lock { id: other, lock: third, wait: false, again: false }),
        Errno::EAGAIN
    );
    smith.lab.reply(b, Op::Unlock { id: other, lock: range(true, 0, END) });
    assert_eq!(smith.wait_on(other, a, range(true, 0, 0)), Ok(None));
}

#[test]
fn two_readers_who_both_want_to_write_do_not_wait_for_ever() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, range(false, 0, 9)), 0);
    assert_eq!(smith.take(b, range(false, 0, 9)), 0);
    let wait = smith.wait(a, range(true, 0, 9));
    assert_eq!(smith.wait_on(smith.id, b, range(true, 0, 9)), Err(Errno::EDEADLK));
    smith.unlock(b, range(false, 0, END));
    assert_eq!(smith.granted(), [wait]);
}

#[test]
fn three_in_a_ring_are_a_deadlock_too() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    let c = smith.lab.hello(0, &[]).0;
    for (session, byte) in [(a, 0), (b, 1), (c, 2)] {
        assert_eq!(smith.take(session, range(true, byte, byte)), 0);
    }
    smith.wait(a, range(true, 1, 1));
    smith.wait(b, range(true, 2, 2));
    assert_eq!(smith.wait_on(smith.id, c, range(true, 0, 0)), Err(Errno::EDEADLK));
}

#[test]
fn manners_never_make_a_deadlock() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    let c = smith.lab.hello(0, &[]).0;
    let other = smith.lab.file("g").id;
    assert_eq!(smith.wait_on(other, c, range(true, 0, 0)), Ok(None));
    assert_eq!(smith.take(a, range(false, 0, 0)), 0);
    // b waits to write here; a waits elsewhere for c; c would read here, politely behind b.
    smith.wait(b, range(true, 0, 0));
    assert!(smith.wait_on(other, a, range(true, 0, 0)).unwrap().is_some());
    assert_eq!(smith.wait_on(smith.id, c, range(false, 0, 0)), Ok(None));
}

#[test]
fn a_waiting_flock_gives_up_what_it_had() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, whole(false)), 0);
    assert_eq!(smith.take(b, whole(false)), 0);
    assert_eq!(smith.take(a, whole(true)), Errno::EAGAIN);
    let first = smith.wait(a, whole(true));
    assert_eq!(smith.take(b, whole(true)), 0, "nobody holds it shared any more");
    smith.unlock(b, whole(true));
    assert_eq!(smith.granted(), [first]);
}

#[test]
fn a_lost_connection_keeps_locks_and_ends_waits_and_the_graces_end_ends_locks() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, range(true, 0, 9)), 0);
    let lost = smith.wait(b, range(true, 0, 9));
    smith.lab.store.session_lost(b);
    smith.lab.store.session_lost(a);
    assert_eq!(smith.take(b, range(true, 0, 9)), Errno::EAGAIN);
    let wait = smith.wait(b, range(true, 0, 9));
    assert_ne!(wait, lost);
    smith.lab.store.session_expired(a).unwrap();
    assert_eq!(smith.granted(), [wait]);
    assert_eq!(smith.take(a, range(true, 20, 20)), Errno::ESTALE);
}

#[test]
fn what_was_waited_for_on_an_older_connection_is_not_granted_any_more() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, range(true, 0, 9)), 0);
    smith.wait(b, range(true, 0, 9));
    assert_eq!(smith.lab.hello(b, &[]), (b, true));
    smith.unlock(a, range(true, 0, 9));
    assert_eq!(smith.granted(), []);
    assert_eq!(smith.take(a, range(true, 0, 9)), 0);
}

#[test]
fn a_restart_forgets_locks_and_they_are_taken_again() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, range(true, 0, 9)), 0);
    smith.lab.crash();
    smith.lab.hello(a, &[]);
    assert_eq!(smith.take(a, range(true, 0, 9)), 0);
    assert_eq!(smith.take(b, range(true, 0, 9)), Errno::EAGAIN);
}

#[test]
fn only_sessions_lock_and_only_files_that_exist() {
    let mut smith = locksmith();
    let a = smith.a;
    assert_eq!(smith.take(0, range(true, 0, 9)), Errno::ESTALE);
    let lock = range(true, 0, 9);
    assert_eq!(
        smith.lab.code(a, Op::Lock { id: 99, lock, wait: true, again: false }),
        Errno::ESTALE
    );
}

#[test]
fn those_who_wait_for_a_file_that_goes_are_told() {
    let mut smith = locksmith();
    let (a, b) = (smith.a, smith.b);
    assert_eq!(smith.take(a, range(true, 0, 9)), 0);
    let wait = smith.wait(b, range(true, 0, 9));
    smith.lab.unlink(ROOT, "f");
    let answers = smith.lab.answers();
    assert_eq!((answers[0].0, code(&answers[0].1)), (wait, Errno::ESTALE));
}

/// A step of the model test. Owners are 0..4, bytes 0..BYTES.
#[derive(Clone, Debug)]
enum Step {
    Take { owner: u64, exclusive: bool, start: u64, end: u64 },
    Wait { owner: u64, exclusive: bool, start: u64, end: u64 },
    Release { owner: u64, start: u64, end: u64 },
}

const OWNERS: u64 = 4;
const BYTES: usize = 12;

fn step() -> impl Strategy<Value = Step> {
    let ends = (0..BYTES as u64, 0..BYTES as u64).prop_map(|(a, b)| (a.min(b), a.max(b)));
    (0..OWNERS, any::<bool>(), ends, 0..4u8).prop_map(|(owner, exclusive, (start, end), kind)| {
        match kind {
            0 => Step::Take { owner, exclusive, start, end },
            1 => Step::Wait { owner, exclusive, start, end },
            _ => Step::Release { owner, start, end },
        }
    })
}

/// What each owner holds of each byte: nothing, shared, exclusive.
type Bytes = [[Option<bool>; BYTES]; OWNERS as usize];

fn is_free(bytes: &Bytes, owner: u64, exclusive: bool, start: u64, end: u64) -> bool {
    let others = (0..OWNERS).filter(|other| *other != owner);
    others.flat_map(|other| &bytes[other as usize][start as usize..=end as usize]).all(|held| {
        match held {
            None => true,
            Some(theirs) => !theirs && !exclusive,
        }
    })
}

fn fill(bytes: &mut Bytes, owner: u64, start: u64, end: u64, value: Option<bool>) {
    bytes[owner as usize][start as usize..=end as usize].fill(value);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn locks_are_what_a_table_of_bytes_says(steps in prop::collection::vec(step(), 1..60)) {
        let mut smith = locksmith();
        let session = smith.a;
        let mut bytes: Bytes = Default::default();
        let mut waiting: Vec<(WaitId, u64, RangeLock)> = Vec::new();
        let lock = |owner, exclusive, start, end| {
            RangeLock { owner, ..range(exclusive, start, end) }
        };
        for step in steps {
            // Who waits does nothing else meanwhile.
            let busy = |owner| waiting.iter().any(|(_, waiter, _)| *waiter == owner);
            match step {
                Step::Take { owner, exclusive, start, end } if !busy(owner) => {
                    let free = is_free(&bytes, owner, exclusive, start, end);
                    let code = smith.take(session, lock(owner, exclusive, start, end));
                    prop_assert_eq!(code, if free { 0 } else { Errno::EAGAIN });
                    if free {
                        fill(&mut bytes, owner, start, end, Some(exclusive));
                    }
                }
                Step::Wait { owner, exclusive, start, end } if !busy(owner) => {
                    let free = is_free(&bytes, owner, exclusive, start, end);
                    let asked = lock(owner, exclusive, start, end);
                    match smith.wait_on(smith.id, session, asked.clone()) {
                        Ok(None) => {
                            prop_assert!(free);
                            fill(&mut bytes, owner, start, end, Some(exclusive));
                        }
                        Ok(Some(wait)) => {
                            prop_assert!(!free || !waiting.is_empty());
                            waiting.push((wait, owner, asked));
                        }
                        Err(code) => {
                            prop_assert!(!free && !waiting.is_empty());
                            prop_assert_eq!(code, Errno::EDEADLK);
                        }
                    }
                }
                Step::Release { owner, start, end } if !busy(owner) => {
                    smith.unlock(session, lock(owner, false, start, end));
                    fill(&mut bytes, owner, start, end, None);
                }
                _ => {}
            }
            for wait in smith.granted() {
                let index = waiting.iter().position(|(other, ..)| *other == wait).unwrap();
                let (_, owner, l) = waiting.remove(index);
                prop_assert!(is_free(&bytes, owner, l.exclusive, l.start, l.end));
                fill(&mut bytes, owner, l.start, l.end, Some(l.exclusive));
            }
            // Nobody waits for nothing: there is a reason, held or queued.
            for (index, (_, owner, l)) in waiting.iter().enumerate() {
                let polite = waiting[..index].iter().any(|(_, _, other)| {
                    (other.exclusive || l.exclusive) && other.start <= l.end && l.start <= other.end
                });
                prop_assert!(polite || !is_free(&bytes, *owner, l.exclusive, l.start, l.end));
            }
            for owner in 0..OWNERS {
                for byte in 0..BYTES as u64 {
                    let found = smith.test(session, lock(owner, true, byte, byte));
                    prop_assert_eq!(found.is_none(), is_free(&bytes, owner, true, byte, byte));
                }
            }
        }
        // Everybody gets what they wait for when the holders leave one by one.
        for owner in 0..OWNERS {
            smith.unlock(session, lock(owner, false, 0, END));
        }
        let mut granted = smith.granted().len();
        for _ in 0..waiting.len() {
            for owner in 0..OWNERS {
                smith.unlock(session, lock(owner, false, 0, END));
            }
            granted += smith.granted().len();
        }
        prop_assert_eq!(granted, waiting.len());
    }
}
