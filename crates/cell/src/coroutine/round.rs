//! The queue of coroutines, as a ring, and how one gives way to the next.
//!
//! A coroutine stays where it is while it runs. To send it to the end of the queue is to look at the next one, so nothing is
//! moved at a switch. Where the next one waits for nothing but its turn, a coroutine that gives way goes there by itself:
//! who resumes them sees it only as another one that is first.

use super::{Coroutine, switch, word};
use std::fmt;
use std::ptr::NonNull;

/// A queue of coroutines. Its first one runs, or is the next to run.
pub struct Round {
    desk: NonNull<Desk>,
}

/// What who resumes coroutines and the coroutine that runs both use, in turn.
pub(super) struct Desk {
    seats: Vec<Seat>,
    /// Who is first; 0 where there is nobody.
    at: usize,
    /// Turns until somebody looks at other things.
    left: usize,
    /// What one that was idle is answered.
    answer: u64,
}

struct Seat {
    number: u32,
    /// It waits for its turn alone.
    is_idle: bool,
    stand: switch::Stand,
}

impl Round {
    /// Nobody. Who waits for the turn alone is answered with `answer`.
    pub fn new<A: 'static>(answer: A) -> Round {
        let desk = Desk { seats: Vec::new(), at: 0, left: 0, answer: word(answer) };
        Round { desk: NonNull::from(Box::leak(Box::new(desk))) }
    }

    #[inline(always)]
    fn desk(&self) -> &Desk {
        // SAFETY: it is there as long as this, and coroutines use it only while they run: then nobody has this reference.
        unsafe { self.desk.as_ref() }
    }

    #[inline(always)]
    fn desk_mut(&mut self) -> &mut Desk {
        // SAFETY: the caller has this alone, so no coroutine runs and nobody else has a reference.
        unsafe { self.desk.as_mut() }
    }

    pub(super) fn shared(&self) -> *mut Desk {
        self.desk.as_ptr()
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.desk().seats.len()
    }

    /// Whether there is nobody.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.desk().seats.is_empty()
    }

    /// Who is first.
    #[inline(always)]
    pub fn first(&self) -> Option<u32> {
        let desk = self.desk();
        desk.seats.get(desk.at).map(|seat| seat.number)
    }

    /// Turns that are left.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.desk().left
    }

    /// So many turns are left: who is first has one of them, and so has each that it gives way to.
    #[inline(always)]
    pub fn set_left(&mut self, turns: usize) {
        self.desk_mut().left = turns;
    }

    /// Whether the first one will wait for its turn alone.
    #[inline(always)]
    pub fn set_idle(&mut self, is_idle: bool) {
        let desk = self.desk_mut();
        if let Some(seat) = desk.seats.get_mut(desk.at) {
            seat.is_idle = is_idle;
        }
    }

    /// The first one goes to the end.
    #[inline(always)]
    pub fn step(&mut self) {
        let desk = self.desk_mut();
        desk.at = desk.next();
    }

    /// The first one leaves.
    pub fn leave(&mut self) {
        let desk = self.desk_mut();
        desk.seats.remove(desk.at);
        if desk.at == desk.seats.len() {
            desk.at = 0;
        }
    }

    /// One more at the end: behind all others, and before the first.
    pub fn join<Q, A>(&mut self, number: u32, cor: &Coroutine<Q, A>, is_idle: bool) {
        let desk = self.desk_mut();
        desk.seats.insert(desk.at, Seat { number, is_idle, stand: cor.context.stand() });
        desk.at = (desk.at + 1) % desk.seats.len();
    }

    /// All leave.
    pub fn clear(&mut self) {
        let desk = self.desk_mut();
        desk.seats.clear();
        desk.at = 0;
    }
}

impl Desk {
    #[inline(always)]
    fn next(&self) -> usize {
        let next = self.at + 1;
        if next >= self.seats.len() { 0 } else { next }
    }

    /// Who runs, or has run last.
    #[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), allow(dead_code))]
    #[inline(always)]
    pub fn running(&self) -> switch::Stand {
        self.seats[self.at].stand
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`, and no coroutine runs.
        drop(unsafe { Box::from_raw(self.desk.as_ptr()) });
    }
}

impl fmt::Debug for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Round").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Gives way to the next coroutine if that can run at once, and comes back when it is this one's turn again. False, with
/// nothing done, where who resumes them has to see to it.
#[inline(always)]
pub fn give_way() -> bool {
    let desk = switch::desk();
    if desk.is_null() {
        return false;
    }
    // SAFETY: the desk is there while coroutines run, and nobody else uses it while this one does.
    let desk = unsafe { &mut *desk };
    let next = desk.next();
    // SAFETY: both are within, for a coroutine that runs is one of them.
    let (from, to) =
        unsafe { (&raw mut *desk.seats.as_mut_ptr().add(desk.at), desk.seats.get_unchecked(next)) };
    // SAFETY: it points into the list, which is not changed meanwhile.
    let own = unsafe { (*from).stand };
    if desk.left == 0 || !to.is_idle || !own.is_sound() {
        return false;
    }
    let (there, answer) = (to.stand, desk.answer);
    desk.left -= 1;
    desk.at = next;
    // SAFETY: the seat of this one; the other stands still, and waits for this answer.
    unsafe {
        (*from).is_idle = true;
        switch::hand_over(own, there, answer);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::{Resumer, Step, suspend};
    use super::*;
    use covey_wire::Rng;
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::rc::Rc;

    type Cor = Coroutine<u32, u64>;

    fn cor(body: impl FnOnce() + 'static) -> Cor {
        Cor::new(16 << 10, body).expect("a stack")
    }

    #[test]
    fn a_round_is_a_queue() {
        let (mut round, mut queue, mut rng) = (Round::new(0_u64), VecDeque::new(), Rng::new(7));
        let nobody = cor(|| ());
        for number in 0..10_000 {
            assert_eq!((round.first(), round.len()), (queue.front().copied(), queue.len()));
            match rng.index(4) {
                0 => {
                    round.join(number, &nobody, true);
                    queue.push_back(number);
                }
                1 if !round.is_empty() => {
                    round.leave();
                    queue.pop_front();
                }
                _ => {
                    round.step();
                    queue.rotate_left(usize::from(!queue.is_empty()));
                }
            }
        }
    }

    /// Runs three coroutines that give way, one of which asks in its second turn: who ran, and who came back with what.
    fn ran(turns: usize) -> (Vec<u32>, Vec<(u32, Option<u32>)>) {
        let (ran, mut back) = (Rc::new(RefCell::new(Vec::new())), Vec::new());
        let mut round = Round::new(5_u64);
        let mut cors: Vec<Cor> = (0..3)
            .map(|number| {
                let ran = ran.clone();
                cor(move || {
                    for turn in 0..3 {
                        ran.borrow_mut().push(number);
                        let asks = number == 1 && turn == 1;
                        if asks || !give_way() {
                            // SAFETY: the types are those of these tests.
                            let answer = unsafe { suspend::<u32, u64>(number * 10 + turn) };
                            assert_eq!(answer, Some(5));
                        }
                    }
                })
            })
            .collect();
        for (number, cor) in (0..).zip(&cors) {
            round.join(number, cor, true);
        }
        let mut by = Resumer::of(&round);
        while let Some(first) = round.first() {
            round.set_left(turns);
            round.set_idle(false);
            // SAFETY: nobody is dropped meanwhile.
            let step = unsafe { cors[first as usize].resume(&mut by, 5) };
            let first = round.first().expect("who has run is there");
            match step {
                Step::Asks(asked) => {
                    back.push((first, Some(*asked)));
                    round.set_idle(true);
                    round.step();
                }
                Step::Done => {
                    back.push((first, None));
                    round.leave();
                }
                Step::Overflow => unreachable!("there is room"),
            }
        }
        (ran.take(), back)
    }

    #[test]
    fn who_gives_way_goes_to_the_next_one_in_the_same_order_as_without() {
        let (order, back) = ran(usize::MAX);
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
        if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            assert_eq!(back, [(1, Some(11)), (0, None), (1, None), (2, None)]);
        }
        let (same, back) = ran(0);
        assert_eq!((same, back.len()), (order, 12));
    }
}
