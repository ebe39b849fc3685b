//! The box by hand, and under a simulated memory that delays stores and a bell that is dropped.

use super::*;
use crate::Plan;
use crate::memory::Flat;
use covey_wire::Rng;
use std::cell::RefCell;
use std::collections::VecDeque;

fn pair() -> (WorkerBox<Flat>, HostBox<Flat>, Rc<Flat>) {
    let memory = Rc::new(Flat::new(Plan { workers: 1, heap_bytes: 0 }.bytes()));
    (WorkerBox::new(memory.clone(), 0), HostBox::new(memory.clone(), 0), memory)
}

/// A message of `bytes` bytes.
fn message(kind: u8, tag: u16, bytes: usize) -> Vec<u8> {
    let mut message = vec![0; bytes];
    message[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    message[4] = kind;
    message[5..7].copy_from_slice(&tag.to_le_bytes());
    message
}

#[test]
fn the_first_words_are_those_of_the_page() {
    let (mut worker, mut host, memory) = pair();
    assert_eq!(worker.post(&message(120, 5, 11)), Ok(Wake::No));
    assert_eq!(memory.load(box_at(0) + REQUESTS_AT), 0x0004_000b);
    assert_eq!(worker.post(&message(120, 6, 11)), Ok(Wake::No));
    assert_eq!(memory.load(box_at(0) + REQUESTS_AT + 4), 0x1004_000b);
    let mut taken = Vec::new();
    assert_eq!((host.take(&mut taken), host.take(&mut taken)), (Ok(true), Ok(true)));
    assert_eq!(host.reply(&message(121, 6, 7)), Ok(Wake::No));
    assert_eq!(memory.load(box_at(0) + REPLIES_AT), 0x1004_0007);
}

#[test]
fn sixteen_messages_fit_and_the_next_one_waits_for_a_reply_of_any() {
    let (mut worker, mut host, _) = pair();
    let mut taken = Vec::new();
    for tag in 0..16 {
        assert_eq!(worker.post(&message(120, tag, 11)), Ok(Wake::No));
    }
    assert_eq!(worker.post(&message(120, 16, 11)), Err(Refused::Full));
    while host.take(&mut taken).unwrap() {}
    assert_eq!(host.reply(&message(121, 9, 7)), Ok(Wake::No));
    assert_eq!(host.reply(&message(121, 9, 7)), Err(Refused::NoMessage));
    assert_eq!(worker.take(&mut taken), Ok(true));
    assert_eq!(taken, message(121, 9, 7));
    assert_eq!(worker.post(&message(120, 16, 11)), Ok(Wake::No));
    assert_eq!(worker.take(&mut taken), Ok(false));
}

#[test]
fn a_message_put_together_in_its_slot_is_like_others_and_a_draft_that_is_dropped_is_none() {
    let (mut worker, mut host, _) = pair();
    let mut taken = Vec::new();
    for tag in 0..16 {
        assert_eq!(worker.draft().map(|draft| draft.slot()), Some(usize::from(tag)));
        assert_eq!(worker.in_flight(), u32::from(tag));
        let (message, draft) = (message(116, tag, 23), worker.draft().expect("a free slot"));
        assert_eq!(draft.slot(), usize::from(tag));
        draft.write(0, &message[..7]);
        draft.write(7, &message[7..]);
        assert_eq!(draft.post(23), Wake::No);
        assert_eq!((host.take(&mut taken), &taken), (Ok(true), &message));
    }
    assert!(worker.draft().is_none());
    assert_eq!(host.reply(&message(117, 5, 11)), Ok(Wake::No));
    assert_eq!(worker.take_slot(&mut taken), Ok(Some(5)));
    assert_eq!(worker.draft().map(|draft| draft.slot()), Some(5));
}

#[test]
fn the_longest_message_fits_and_a_longer_one_does_not() {
    let (mut worker, mut host, _) = pair();
    let (longest, mut taken) = (SLOT_BYTES as usize, Vec::new());
    assert_eq!(worker.post(&message(118, 1, longest + 1)), Err(Refused::NoMessage));
    assert_eq!(worker.post(&message(118, 1, longest)), Ok(Wake::No));
    assert_eq!(host.take(&mut taken), Ok(true));
    assert_eq!(taken.len(), longest);
    assert_eq!(worker.post(&message(118, 2, 11)[..10]), Err(Refused::NoMessage));
}

#[test]
fn rings_go_on_after_their_counters_have_wrapped() {
    let (mut worker, mut host, _) = pair();
    let start = u32::MAX - 40;
    let [asked, told] = [&mut worker.requests.ring, &mut host.replies.ring];
    for ring in [asked, &mut worker.replies, &mut host.requests, told] {
        ring.count = start;
    }
    let mut taken = Vec::new();
    for tag in 0..20_000_u16 {
        assert_eq!(worker.post(&message(120, tag, 11)), Ok(Wake::No));
        assert_eq!(host.take(&mut taken), Ok(true));
        assert_eq!(host.take(&mut taken), Ok(false), "at {tag}");
        assert_eq!(host.reply(&message(121, tag, 7)), Ok(Wake::No));
        assert_eq!(worker.take(&mut taken), Ok(true));
        assert_eq!(worker.take(&mut taken), Ok(false), "at {tag}");
    }
}

#[test]
fn a_flush_gives_back_the_slot_of_what_it_flushes() {
    let (mut worker, mut host, _) = pair();
    let mut flush = message(108, 2, 9);
    flush[7] = 1;
    assert_eq!(worker.post(&message(116, 1, 23)), Ok(Wake::No));
    assert_eq!(worker.post(&flush), Ok(Wake::No));
    let mut taken = Vec::new();
    while host.take(&mut taken).unwrap() {}
    assert_eq!(host.reply(&message(109, 2, 7)), Ok(Wake::No));
    assert_eq!(worker.take(&mut taken), Ok(true));
    assert!(taken.is_empty());
    assert_eq!(worker.take(&mut taken), Ok(true));
    assert_eq!(taken[4], 109);
    assert_eq!(worker.in_flight(), 0);
}

#[test]
fn a_box_that_was_scribbled_over_is_broken_and_nothing_worse() {
    let mut rng = Rng::new(1);
    let mut broken = 0;
    for _ in 0..20_000 {
        let (mut worker, mut host, memory) = pair();
        let mut taken = Vec::new();
        assert_eq!(worker.post(&message(120, 3, 11)), Ok(Wake::No));
        for _ in 0..4 {
            let random = rng.next();
            // Round 1, so that many words look new.
            let word = (random >> 32) as u32 & 0xf003_ffff | 1 << 18;
            memory.store(box_at(0) + random % 32 * 4, word);
        }
        for _ in 0..16 {
            match (host.take(&mut taken), worker.take(&mut taken)) {
                (Err(_), _) | (_, Err(_)) => broken += 1,
                _ => assert!(taken.len() <= SLOT_BYTES as usize),
            }
        }
    }
    assert!(broken > 20_000);
}

#[test]
fn each_side_notices_that_a_word_of_its_own_was_overwritten() {
    let mut rng = Rng::new(5);
    for posted in 0..40_u16 {
        let (mut worker, mut host, memory) = pair();
        let mut taken = Vec::new();
        for tag in 0..posted {
            assert_eq!(worker.post(&message(120, tag, 11)), Ok(Wake::No));
            assert_eq!(host.take(&mut taken), Ok(true));
            assert_eq!(host.reply(&message(121, tag, 7)), Ok(Wake::No));
            assert_eq!(worker.take(&mut taken), Ok(true));
        }
        assert_eq!((worker.prepare_sleep(), host.check()), (Ok(true), Ok(())));
        worker.woke();
        // The host never sees this one, or the worker the answer.
        assert_eq!(worker.post(&message(120, 99, 11)), Ok(Wake::No));
        let is_answer = rng.index(2) == 1;
        if is_answer {
            assert_eq!(host.take(&mut taken), Ok(true));
            assert_eq!(host.reply(&message(121, 99, 7)), Ok(Wake::No));
        }
        let ring = if is_answer { REPLIES_AT } else { REQUESTS_AT };
        let place = box_at(0) + ring + u64::from(posted) % 16 * 4;
        memory.store(place, memory.load(place) & !(ROUND_MAX << 18));
        let [worker, host] = [worker.prepare_sleep().map(drop), host.check()];
        assert_eq!((worker.is_err(), host.is_err()), (!is_answer, is_answer), "{posted}");
    }
}

/// What stores of two sides are until the other side sees them: a queue for each, in order, as on x86.
struct Delayed {
    memory: Option<Flat>,
    queues: [RefCell<VecDeque<Store>>; 2],
    rng: RefCell<Rng>,
    /// Fences do nothing: what the protocol would be without them.
    is_unfenced: bool,
}

enum Store {
    Word(u64, u32),
    Bytes(u64, Vec<u8>),
}

impl Delayed {
    fn new(seed: u64, is_unfenced: bool) -> Delayed {
        let memory = Some(Flat::new(Plan { workers: 1, heap_bytes: 0 }.bytes()));
        let rng = RefCell::new(Rng::new(seed));
        Delayed { memory, queues: Default::default(), rng, is_unfenced }
    }

    fn flat(&self) -> &Flat {
        self.memory.as_ref().expect("it was made with one")
    }

    fn chance(&self, of: u64) -> bool {
        self.rng.borrow_mut().below(of) == 0
    }

    /// The other side sees the oldest store.
    fn drain_one(&self, side: usize) -> bool {
        let oldest = self.queues[side].borrow_mut().pop_front();
        match oldest {
            Some(Store::Word(at, value)) => self.flat().store(at, value),
            Some(Store::Bytes(at, bytes)) => self.flat().write(at, &bytes),
            None => return false,
        }
        true
    }
}

struct Side {
    world: Rc<Delayed>,
    side: usize,
}

impl Shared for Side {
    fn load(&self, at: u64) -> u32 {
        // A side sees its own stores at once.
        let queue = self.world.queues[self.side].borrow();
        let own = queue.iter().rev().find_map(|store| match store {
            Store::Word(place, value) if *place == at => Some(*value),
            _ => None,
        });
        own.unwrap_or_else(|| self.world.flat().load(at))
    }

    fn store(&self, at: u64, value: u32) {
        self.world.queues[self.side].borrow_mut().push_back(Store::Word(at, value));
    }

    fn load_wide(&self, at: u64) -> u64 {
        self.world.flat().load_wide(at)
    }

    fn store_wide(&self, at: u64, value: u64) {
        self.world.flat().store_wide(at, value);
    }

    fn fence(&self) {
        while !self.world.is_unfenced && self.world.drain_one(self.side) {}
    }

    fn read(&self, at: u64, into: &mut [u8]) {
        self.world.flat().read(at, into);
    }

    fn write(&self, at: u64, from: &[u8]) {
        self.world.queues[self.side].borrow_mut().push_back(Store::Bytes(at, from.to_vec()));
    }
}

/// What a side does while it has nothing to do: it polls a few times and sleeps then.
#[derive(Default)]
struct Rest {
    is_asleep: bool,
    /// A ring that has arrived or is on its way.
    is_rung: bool,
    slept: u32,
}

/// Steps after which a sleeper looks whatever happens.
const PATIENCE: u32 = 400;

/// Runs 40 requests through the box. Answers how often a sleeper was rescued by its patience though no ring was dropped,
/// or that it never ended.
fn simulate(seed: u64, is_unfenced: bool, drops: bool) -> Result<u32, &'static str> {
    let world = Rc::new(Delayed::new(seed, is_unfenced));
    let side = |side| Rc::new(Side { world: world.clone(), side });
    let (mut worker, mut host) = (WorkerBox::new(side(0), 0), HostBox::new(side(1), 0));
    let mut rests: [Rest; 2] = Default::default();
    let (mut asked, mut answered, mut due, mut rescued) = (0_u16, 0, Vec::new(), 0);
    let mut taken = Vec::new();
    for _ in 0..200_000 {
        if answered == 40 {
            return Ok(rescued);
        }
        let now = usize::from(world.chance(2));
        if world.chance(3) {
            world.drain_one(now);
        }
        let rest = &mut rests[now];
        if rest.is_asleep {
            rest.slept += 1;
            let is_late = rest.slept > PATIENCE;
            // A ring takes a while.
            if !(is_late || rest.is_rung && world.chance(4)) {
                continue;
            }
            rescued += u32::from(is_late && !rest.is_rung);
            *rest = Rest::default();
            if now == 0 { worker.woke() } else { host.woke() }
        }
        let (mut wake, mut idle) = (Wake::No, true);
        if now == 0 {
            if asked < 40 && worker.has_room() && world.chance(2) {
                wake = worker.post(&message(120, asked, 11)).map_err(|_| "refused")?;
                (asked, idle) = (asked + 1, false);
            } else if worker.take(&mut taken).map_err(|_| "worker: broken")? {
                (answered, idle) = (answered + 1, false);
            }
            // With something still to ask it does not sleep.
            idle &= asked == 40 || !worker.has_room();
        } else if host.take(&mut taken).map_err(|_| "host: broken")? {
            due.push(u16::from_le_bytes([taken[5], taken[6]]));
            idle = false;
        } else if !due.is_empty() && world.chance(2) {
            wake = host.reply(&message(121, due.remove(0), 7)).map_err(|_| "refused")?;
            idle = false;
        } else {
            idle = due.is_empty();
        }
        if wake == Wake::Ring && !(drops && world.chance(3)) {
            rests[1 - now].is_rung = true;
        }
        if idle && world.chance(3) {
            rests[now].is_rung = false;
            let may = if now == 0 { worker.prepare_sleep() } else { Ok(host.prepare_sleep()) };
            rests[now].is_asleep =
                may.and_then(|may| host.check().map(|()| may)).map_err(|_| "lost")?;
            rests[now].slept = 0;
        }
    }
    Err("nobody moved any more")
}

#[test]
fn no_wake_up_is_lost_in_10_000_seeds() {
    for seed in 1..=10_000 {
        assert_eq!(simulate(seed, false, false), Ok(0), "seed {seed}");
    }
}

#[test]
fn a_dropped_ring_costs_patience_and_nothing_else() {
    let rescued: u32 = (1..=10_000).map(|seed| simulate(seed, false, true).expect("it ends")).sum();
    assert!(rescued > 0);
}

/// That the simulation can find what it looks for.
#[test]
fn without_fences_wake_ups_are_lost() {
    let lost = (1..=10_000).filter(|seed| simulate(*seed, true, false) != Ok(0)).count();
    assert!(lost > 0);
}
