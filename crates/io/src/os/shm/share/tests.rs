//! Both sides of an offer, step by step out of a seed and as two threads: every unit is copied once, and nobody has a
//! claim when an offer is over.

use super::*;
use crate::sim::Rng;

fn offer() -> Offer {
    // SAFETY: an offer is made of numbers, as it is in new memory of the file.
    unsafe { std::mem::zeroed() }
}

const FROM: u64 = 1 << 30;
const INTO: u64 = 1 << 40;

/// Counts how often each unit was copied.
#[derive(Default)]
struct Copies(Vec<u32>);

impl Copies {
    fn add(&mut self, from: Span, into: Span) {
        let at = from.address - FROM;
        assert_eq!(into, Span::new(INTO + at, from.bytes));
        for unit in at / UNIT..(at + from.bytes).div_ceil(UNIT) {
            self.0[unit as usize] += 1;
        }
    }
}

/// One offer of so many bytes, in an order that the seed decides. Says what the sender copied.
fn run(rng: &mut Rng, line: &Offer, offers: &mut Offers, help: &mut Help, bytes: u64) -> u64 {
    let (from, into) = (Span::new(FROM, bytes), Span::new(INTO, bytes));
    let mut copies = Copies(vec![0; units(bytes) as usize]);
    let (before, gives_back) = (help.bytes, rng.chance(200));
    let mut here = Some(offers.open(line, 7, from, into, By::Writing));
    let mut there: Option<Claimed> = None;
    loop {
        if rng.chance(500) {
            match there.take() {
                None => {
                    there = help.claim(line, |message, span, _| {
                        assert_eq!((message, span), (7, from));
                        rng.chance(900)
                    });
                }
                Some(claimed) if gives_back && rng.chance(500) => help.give_back(line, claimed),
                Some(claimed) => {
                    copies.add(claimed.from, claimed.into);
                    help.done(line, claimed);
                }
            }
            continue;
        }
        if let Some(units) = here {
            copies.add(units.of(from).expect("within"), units.of(into).expect("within"));
            offers.copied(units);
            here = offers.claim(line).expect("nobody breaks the word");
            continue;
        }
        match offers.stands(line) {
            Stands::Waits => assert!(there.is_some(), "nobody has what is not done"),
            Stands::GivenBack(units) => {
                copies.add(units.of(from).expect("within"), units.of(into).expect("within"));
                offers.end(false);
                break;
            }
            Stands::Over { is_helped } => {
                assert_eq!(is_helped, help.bytes > before);
                offers.end(is_helped);
                break;
            }
        }
    }
    assert!(there.is_none() && copies.0.iter().all(|times| *times == 1), "{bytes} bytes");
    assert!(help.claim(line, |_, _, _| true).is_none(), "it is over");
    help.bytes - before
}

#[test]
fn every_unit_is_copied_once_whoever_claims_it_and_gives_it_back() {
    let mut helped = 0;
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let (line, mut offers, mut help) = (offer(), Offers::default(), Help::default());
        for _ in 0..1 + rng.below(10) {
            let most = if rng.chance(500) { 100 << 10 } else { 9 << 20 };
            let bytes = SHARED_BYTES_MIN + rng.below(most);
            helped += run(&mut rng, &line, &mut offers, &mut help, bytes);
        }
    }
    assert!(helped > 1 << 30, "{helped}");
}

#[test]
fn two_threads_copy_every_unit_once() {
    let line = &offer();
    let is_ended = &std::sync::atomic::AtomicBool::new(false);
    let bytes = 3 << 20;
    let (from, into) = (Span::new(FROM, bytes), Span::new(INTO, bytes));
    let (ours, theirs) = std::thread::scope(|scope| {
        let helper = scope.spawn(move || {
            let (mut help, mut copies) = (Help::default(), Copies(vec![0; units(bytes) as usize]));
            while !is_ended.load(Ordering::Relaxed) {
                if let Some(claimed) = help.claim(line, |_, _, _| true) {
                    copies.add(claimed.from, claimed.into);
                    help.done(line, claimed);
                }
            }
            copies.0
        });
        let (mut offers, mut copies) = (Offers::default(), Copies(vec![0; units(bytes) as usize]));
        for _ in 0..ROUNDS {
            let mut next = Some(offers.open(line, 7, from, into, By::Writing));
            while let Some(units) = next {
                copies.add(units.of(from).expect("within"), units.of(into).expect("within"));
                offers.copied(units);
                next = offers.claim(line).expect("nobody breaks the word");
            }
            while offers.stands(line) == Stands::Waits {
                std::thread::yield_now();
            }
            offers.end(true);
        }
        is_ended.store(true, Ordering::Relaxed);
        (copies.0, helper.join().expect("it ends"))
    });
    assert!(ours.iter().zip(theirs).all(|(ours, theirs)| ours + theirs == ROUNDS));
}

const ROUNDS: u32 = 2000;

#[test]
fn a_message_that_is_not_lent_and_numbers_that_cannot_be_are_let_be() {
    let (line, mut help) = (offer(), Help::default());
    let mut offers = Offers::default();
    assert!(!help.is_wanted(&line));
    offers.open(&line, 7, Span::new(FROM, 1 << 20), Span::new(INTO, 1 << 20), By::Writing);
    assert!(help.is_wanted(&line));
    assert!(help.claim(&line, |_, _, _| false).is_none());
    assert!(!help.is_wanted(&line), "it is not asked again");
    for bytes in [u64::MAX, SHARED_BYTES_MAX, 0] {
        line.bytes.store(bytes, Ordering::Relaxed);
        line.claim.fetch_add(1 << 32, Ordering::Relaxed);
        assert!(help.claim(&line, |_, _, _| true).is_none(), "{bytes} bytes");
    }
    // A span that goes around the end of memory has no such part.
    line.bytes.store(1 << 20, Ordering::Relaxed);
    line.from.store(u64::MAX - 4096, Ordering::Relaxed);
    line.claim.store(9 << 32, Ordering::Relaxed);
    assert!(help.claim(&line, |_, span, _| span.end().is_some()).is_none());
}

#[test]
fn who_is_not_heard_offers_seldom_and_who_is_heard_always() {
    let (line, mut offers) = (offer(), Offers::default());
    let (from, into) = (Span::new(FROM, 1 << 20), Span::new(INTO, 1 << 20));
    let mut made = 0;
    for _ in 0..1000 {
        if offers.wants(1 << 20) {
            made += 1;
            offers.open(&line, 7, from, into, By::Writing);
            assert!(!offers.wants(1 << 20), "one at a time");
            offers.end(false);
        }
    }
    assert!((50..150).contains(&made), "{made}");
    offers.end(true);
    assert!(offers.wants(SHARED_BYTES_MIN) && !offers.wants(SHARED_BYTES_MIN - 1));
}

/// The word lies in memory of the sender's.
#[test]
fn a_sender_that_takes_claims_back_is_not_copied_for_without_end() {
    let bytes = 100 * UNIT;
    let (from, into) = (Span::new(FROM, bytes), Span::new(INTO, bytes));
    for word in [0, 5, 1 << 32, 1 << 32 | 5, 2 << 32 | 70] {
        let (line, mut offers) = (offer(), Offers::default());
        let mut next = Ok(Some(offers.open(&line, 7, from, into, By::Writing)));
        let mut copied = 0;
        while let Ok(Some(units)) = next {
            offers.copied(units);
            copied += units.count;
            line.claim.store(word, Ordering::Release);
            next = offers.claim(&line);
            assert!(copied <= 100, "{word:#x}");
        }
        assert_eq!(next, Err(Broken), "{word:#x}");
    }
}

/// Bytes go over the stage in order, each once, and nothing is put where something waits, whoever is how quick, and whenever
/// the receiver reads the rest.
#[test]
fn what_is_staged_is_taken_before_its_place_is_used_again() {
    let (mut by_stage, mut by_reading) = (0, 0);
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let (line, mut offers, mut help) = (offer(), Offers::default(), Help::default());
        let bytes = SHARED_BYTES_MIN + rng.below(1 << 20);
        let (from, into) = (Span::new(FROM, bytes), Span::new(INTO, bytes));
        let all = units(bytes);
        let is_patient = rng.chance(500);
        // Which unit lies at each place of the stage, and how often each was copied.
        let mut stage: Vec<Option<u64>> = vec![None; STAGE_UNITS as usize];
        let mut copies = vec![0; all as usize];
        let mut there: Option<Claimed> = None;
        let first = offers.open(&line, 7, from, into, By::Stage);
        assert_eq!(first.count, 0);
        loop {
            if rng.chance(500) {
                if let Some(claimed) = there.take() {
                    let at = claimed.stage.expect("it goes to the stage") as u64 / UNIT;
                    let unit = (claimed.from.address - FROM) / UNIT;
                    for next in 0..claimed.units.count {
                        let place = &mut stage[(at + next) as usize];
                        assert_eq!(*place, None, "something waits there");
                        *place = Some(unit + next);
                    }
                    help.done(&line, claimed);
                } else {
                    there = help.claim(&line, |message, span, by| {
                        assert_eq!((message, span, by), (7, from, By::Stage));
                        true
                    });
                }
                continue;
            }
            if let Some((units, at)) = offers.staged(&line) {
                for next in 0..units.count {
                    let place = &mut stage[at / UNIT as usize + next as usize];
                    assert_eq!(place.take(), Some(units.first + next));
                    copies[(units.first + next) as usize] += 1;
                    by_stage += 1;
                }
                offers.took(&line, units);
            } else if !is_patient && rng.chance(100) {
                let mut rest = offers.claim(&line).expect("nobody breaks the word");
                while let Some(units) = rest {
                    for unit in units.first..units.first + units.count {
                        copies[unit as usize] += 1;
                        by_reading += 1;
                    }
                    offers.copied(units);
                    rest = offers.claim(&line).expect("nobody breaks the word");
                }
            }
            match offers.stands(&line) {
                Stands::Waits => {}
                Stands::GivenBack(_) => panic!("nothing is given back"),
                Stands::Over { .. } => break,
            }
        }
        assert!(there.is_none() && stage.iter().all(Option::is_none), "seed {seed}");
        assert!(copies.iter().all(|times| *times == 1), "seed {seed}");
        offers.end(true);
    }
    assert!(by_stage > 100_000 && by_reading > 10_000, "{by_stage}, {by_reading}");
}

/// A receiver that writes into the words what it likes: nothing is put beside the stage.
#[test]
fn no_word_of_the_receiver_leads_beside_the_stage() {
    let mut rng = Rng::new(1);
    let mut claimed = 0;
    for turn in 1..20_000_u64 {
        let (line, mut help) = (offer(), Help::default());
        line.message.store(STAGED | 7, Ordering::Relaxed);
        line.bytes.store(rng.below(1 << 24), Ordering::Relaxed);
        line.from.store(FROM, Ordering::Relaxed);
        let first = rng.below(1 << 12);
        line.taken.store(first.wrapping_sub(rng.below(20)), Ordering::Relaxed);
        line.claim.store(turn << 32 | first, Ordering::Relaxed);
        let part = help.claim(&line, |_, _, _| true);
        claimed += u32::from(part.is_some());
        let end = part.map_or(0, |part| part.stage.expect("by the stage") as u64 + part.from.bytes);
        assert!(end <= STAGE_BYTES as u64, "{end}");
    }
    assert!(claimed > 1000, "{claimed}");
}

#[test]
fn the_quicker_way_is_taken_and_the_other_one_tried_now_and_then() {
    let time = |by, quick| Duration::from_micros(if by == quick { 10 } else { 15 });
    let mut choice = Choice::default();
    for quick in [By::Stage, By::Writing] {
        let mut taken = 0;
        for turn in 0..4000 {
            let by = choice.of(64 << 10);
            choice.took(by, 64 << 10, time(by, quick));
            taken += u32::from(by == quick && turn >= 2000);
        }
        assert!((1900..2000).contains(&taken), "{quick:?}: {taken}");
    }
    // Each length for itself; what does not fit in caches is written.
    assert_eq!((choice.of(32 << 10), choice.of(32 << 10)), (By::Writing, By::Stage));
    assert!((0..100).all(|_| choice.of(64 << 20) == By::Writing));
}
