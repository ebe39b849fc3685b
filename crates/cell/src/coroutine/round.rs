//! The queue of coroutines, as a ring, and how one gives way to the next.
//!
//! A coroutine stays where it is while it runs. To send it to the end of the queue is to look at the next one, so nothing is
//! moved at a switch. Where the next one waits for nothing but its turn, a coroutine that gives way goes there by itself:
//! who resumes them sees it only as another one that is first. From the last one of the list it goes to the first one where
//! nobody outside the list is waited for.

use super::{Coroutine, switch, word};
use std::fmt;
use std::ptr::{self, NonNull};

/// A queue of coroutines. Its first one runs, or is the next to run.
pub struct Round {
    desk: NonNull<Desk>,
    seats: Vec<Seat>,
    /// Turns that were left when the first one was there.
    left: usize,
    from: usize,
    /// The last one of the list gives way to its first one.
    goes_round: bool,
}

/// What who resumes coroutines and the coroutine that runs both use, in turn. A coroutine that gives way does little more
/// than to move `now` by one: a processor that does one switch while it works on the last one waits for nothing else.
pub(super) struct Desk {
    /// Who is first: within the list, or at its beginning where there is nobody.
    now: *mut Seat,
    /// Who does not give way by itself: the last one of the list, and the one that has the last turn.
    stop: *mut Seat,
    /// Who follows where the turns stop; null where that is for who resumes them to say.
    after: *mut Seat,
    /// Somebody has given way so.
    has_gone_round: bool,
    /// Requests in a row of the one that runs.
    row: u32,
    /// What one that was idle is answered.
    answer: u64,
    /// Where coroutines find what they use of who resumes them.
    counter: *const (),
}

struct Seat {
    number: u32,
    /// It waits for its turn alone, or runs and will.
    is_idle: bool,
    stand: switch::Stand,
}

impl Round {
    /// Nobody. Who waits for the turn alone is answered with `answer`.
    pub fn new<A: 'static>(answer: A) -> Round {
        let mut seats = Vec::new();
        let now = seats.as_mut_ptr();
        let desk = Desk {
            now,
            stop: now,
            after: ptr::null_mut(),
            has_gone_round: false,
            row: 0,
            answer: word(answer),
            counter: ptr::null(),
        };
        let desk = NonNull::from(Box::leak(Box::new(desk)));
        Round { desk, seats, left: 0, from: 0, goes_round: false }
    }

    #[inline(always)]
    fn desk(&self) -> &Desk {
        // SAFETY: it is there as long as this, and coroutines use it only while they run: then nobody has this reference.
        unsafe { self.desk.as_ref() }
    }

    #[inline(always)]
    fn desk_mut(&mut self) -> &mut Desk {
        // SAFETY: the same, and the caller has this alone.
        unsafe { self.desk.as_mut() }
    }

    /// Where coroutines find what they use of who resumes them: see `counter`.
    pub fn set_counter(&mut self, counter: *const ()) {
        self.desk_mut().counter = counter;
    }

    /// Whether the last one of the list may give way to its first one: that nobody has to be looked at between.
    #[inline(always)]
    pub fn set_goes_round(&mut self, goes_round: bool) {
        self.goes_round = goes_round;
    }

    /// Who is first begins a row of requests.
    #[inline(always)]
    pub fn begin_row(&mut self) {
        self.desk_mut().row = 0;
    }

    /// Who is first has asked for something: how often in a row.
    #[inline(always)]
    pub fn count_in_row(&mut self) -> u32 {
        self.desk_mut().row += 1;
        self.desk().row
    }

    /// Where the first one is; 0 where there is nobody.
    #[inline(always)]
    fn at(&self) -> usize {
        (self.desk().now.addr() - self.seats.as_ptr().addr()) / size_of::<Seat>()
    }

    /// Who is there is first, and gives way to so many of those behind it.
    #[inline(always)]
    fn put(&mut self, at: usize, ways: usize, goes_round: bool) {
        let stop = at + ways.min(self.seats.len().saturating_sub(at + 1));
        let seats = self.seats.as_mut_ptr();
        self.from = at;
        let is_round = goes_round && stop + 1 == self.seats.len();
        let desk = self.desk_mut();
        (desk.now, desk.stop) = (seats.wrapping_add(at), seats.wrapping_add(stop));
        desk.after = if is_round { seats } else { ptr::null_mut() };
        desk.has_gone_round = false;
    }

    pub(super) fn shared(&self) -> *mut Desk {
        self.desk.as_ptr()
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    /// Whether there is nobody.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Turns until the list of all is at its end, where who is first does not give way by itself.
    #[inline(always)]
    pub fn to_end(&self) -> usize {
        self.len() - self.at()
    }

    /// Who is first.
    #[inline(always)]
    pub fn first(&self) -> Option<u32> {
        self.seats.get(self.at()).map(|seat| seat.number)
    }

    /// Turns that are left.
    #[inline(always)]
    pub fn left(&self) -> usize {
        if self.desk().has_gone_round {
            return self.to_end() - 1;
        }
        self.left - (self.at() - self.from)
    }

    /// So many turns are left behind the one of who is first: each that it gives way to has one of them. It is to be said
    /// after each other change, or else nobody gives way.
    #[inline(always)]
    pub fn set_left(&mut self, turns: usize) {
        self.left = turns;
        self.put(self.at(), turns, self.goes_round);
    }

    /// Whether the first one will wait for its turn alone.
    #[inline(always)]
    pub fn set_idle(&mut self, is_idle: bool) {
        let at = self.at();
        if let Some(seat) = self.seats.get_mut(at) {
            seat.is_idle = is_idle;
        }
    }

    /// The first one goes to the end.
    #[inline(always)]
    pub fn step(&mut self) {
        let at = self.counted();
        self.go(at + 1);
    }

    /// The first one leaves.
    pub fn leave(&mut self) {
        let at = self.counted();
        self.seats.remove(at);
        self.go(at);
    }

    /// One more at the end: behind all others, and before the first.
    pub fn join<Q, A>(&mut self, number: u32, cor: &Coroutine<Q, A>, is_idle: bool) {
        let at = self.counted();
        self.seats.insert(at, Seat { number, is_idle, stand: cor.context.stand() });
        self.go(at + 1);
    }

    /// All leave.
    pub fn clear(&mut self) {
        self.seats.clear();
        self.put(0, 0, false);
    }

    /// Where the first one is. The turns of those before it are counted: the list may change.
    #[inline(always)]
    fn counted(&mut self) -> usize {
        self.left = self.left();
        self.from = self.at();
        self.from
    }

    /// That one is first, or behind the last one the first of the list.
    #[inline(always)]
    fn go(&mut self, at: usize) {
        self.put(if at >= self.seats.len() { 0 } else { at }, 0, false);
    }
}

impl Desk {
    /// Who runs, or has run last.
    #[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), allow(dead_code))]
    #[inline(always)]
    pub fn running(&self) -> switch::Stand {
        // SAFETY: while coroutines run, and until the list is changed after that, it is one of them.
        unsafe { (*self.now).stand }
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
    // SAFETY: the desk is there while coroutines run, and nobody else uses it while this one does. Whoever is not where the
    // turns stop has somebody behind it in the list, which is not changed meanwhile; the other stands still, and waits for
    // this answer.
    unsafe {
        let now = (*desk).now;
        let is_stop = now == (*desk).stop;
        let next = if is_stop { (*desk).after } else { now.wrapping_add(1) };
        let own = (*now).stand;
        if next.is_null() || !(*next).is_idle || !own.is_sound() {
            return no_way();
        }
        (*desk).has_gone_round |= is_stop;
        (*desk).row = 0;
        (*desk).now = next;
        if next != now {
            switch::hand_over(own, (*next).stand, (*desk).answer);
        }
    }
    true
}

/// What coroutines use of who resumes them, for the one that runs; null outside any, and where it is not to be used.
#[inline(always)]
pub fn counter() -> *const () {
    let desk = switch::desk();
    if desk.is_null() {
        return ptr::null();
    }
    // SAFETY: as for `give_way`.
    unsafe { (*desk).counter }
}

/// Whether the coroutine that runs may ask for so many things in a row, and one more.
#[inline(always)]
pub fn may_go_on(row_max: u32) -> bool {
    let desk = switch::desk();
    // SAFETY: as for `give_way`.
    !desk.is_null() && unsafe { (*desk).row } + 1 < row_max
}

/// The coroutine that runs has done one of these by itself.
#[inline(always)]
pub fn gone_on() {
    let desk = switch::desk();
    if !desk.is_null() {
        // SAFETY: as for `give_way`.
        unsafe { (*desk).row += 1 };
    }
}

/// That it is cold keeps what follows out of the way of who gives way.
#[cold]
fn no_way() -> bool {
    false
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
            // SAFETY: nobody is dropped meanwhile.
            let step = unsafe { cors[first as usize].resume(&mut by, 5) };
            let first = round.first().expect("who has run is there");
            match step {
                Step::Asks(asked) => {
                    back.push((first, Some(*asked)));
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
            // Who joins is put before the first one, so that is the last one of the list, and does not give way by itself.
            let asked = [(0, Some(0)), (0, Some(1)), (1, Some(11)), (0, Some(2))];
            assert_eq!(back[..4], asked);
            assert_eq!(back[4..], [(0, None), (1, None), (2, None)]);
        }
        let (same, back) = ran(0);
        assert_eq!((same, back.len()), (order, 12));
    }
}
