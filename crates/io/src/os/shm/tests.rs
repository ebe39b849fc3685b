//! A message that both ends copy, whose sender stops between its claim and its word; and a peer that writes anything
//! anywhere.

use super::share::{By, Claimed, Help};
use super::*;
use crate::sim::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64};

const BYTES: u64 = 1 << 20;
const TOKEN: u64 = 77;
const MESSAGE: u32 = 5;

/// What a receiver was told.
#[derive(Default)]
struct Told {
    done: Option<Result<(), Refused>>,
    is_dead: bool,
}

impl Sink for Told {
    fn packet(&mut self, _peer: Peer, _head: &[u8], _payload: &[u8]) {}

    fn done(&mut self, token: u64, result: Result<(), Refused>) {
        assert!(token == TOKEN && self.done.is_none() && !self.is_dead);
        self.done = Some(result);
    }

    fn dead(&mut self, _peer: Peer) {
        self.is_dead = true;
    }
}

/// A receiver, and a sender that has claimed something before the receiver could.
struct Two {
    receiver: Shm,
    sender: Shm,
    help: Help,
    claimed: Claimed,
    from: Vec<u8>,
    into: Vec<u8>,
}

fn span(bytes: &[u8]) -> Span {
    Span::new(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)
}

fn two() -> Two {
    let settings = || Settings { heap_bytes: 1 << 16, peers_max: 2, ..Settings::default() };
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let other = std::thread::spawn(move || {
        let mut shm = Shm::new(settings()).expect("shared memory");
        shm.meet(theirs).expect("they meet");
        shm
    });
    let mut receiver = Shm::new(settings()).expect("shared memory");
    receiver.meet(ours).expect("they meet");
    let sender = other.join().expect("it is there");
    let from: Vec<u8> = (0..BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
    let mut two = Two {
        receiver,
        claimed: Claimed::default(),
        help: Help::default(),
        from,
        into: vec![0; BYTES as usize],
        sender,
    };
    let (from, into) = (span(&two.from), span(&two.into));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (arena, is_over) = (two.sender.arena.clone(), &is_over);
        let claims = scope.spawn(move || {
            let mut help = Help::default();
            while !is_over.load(Ordering::Relaxed) {
                let claimed = help.claim(arena.offer(0), |message, all, by| {
                    message == MESSAGE && all.bytes == BYTES && by == By::Writing
                });
                if let Some(claimed) = claimed {
                    return Some((help, claimed));
                }
            }
            None
        });
        // An offer that the other thread was too late for is over at once.
        while two.receiver.fetch(TOKEN, Peer(0), MESSAGE, from, into) == Ok(Transfer::Done) {
            two.into.fill(0);
        }
        is_over.store(true, Ordering::Relaxed);
        let claims = claims.join().expect("it ends");
        (two.help, two.claimed) = claims.expect("it has what the receiver waits for");
    });
    two
}

impl Two {
    fn copy(&mut self) {
        let (at, bytes) = (self.claimed.from.address - span(&self.from).address, self.claimed.from);
        let part = at as usize..(at + bytes.bytes) as usize;
        assert!(self.into[part.clone()].iter().all(|byte| *byte == 0), "nobody else has it");
        self.into[part.clone()].copy_from_slice(&self.from[part]);
    }

    fn told(&mut self, until: impl Fn(&Told) -> bool) -> Told {
        let mut told = Told::default();
        while !until(&told) {
            self.receiver.poll(9, &mut told);
        }
        told
    }
}

#[test]
fn a_fetch_ends_when_the_sender_has_done_its_part() {
    let mut two = two();
    let mut told = Told::default();
    for _ in 0..100 {
        two.receiver.poll(9, &mut told);
    }
    assert!(told.done.is_none() && two.receiver.prepare_sleep());
    two.copy();
    two.help.done(two.sender.arena.offer(0), two.claimed);
    assert!(!two.receiver.prepare_sleep(), "there is something to be told");
    assert_eq!(two.told(|told| told.done.is_some()).done, Some(Ok(())));
    assert!(two.into == two.from);
}

#[test]
fn what_the_sender_gives_back_is_read() {
    let mut two = two();
    two.help.give_back(two.sender.arena.offer(0), two.claimed);
    assert_eq!(two.told(|told| told.done.is_some()).done, Some(Ok(())));
    assert!(two.into == two.from);
}

#[test]
fn a_fetch_from_a_sender_that_is_gone_ends_before_its_death_is_told() {
    let mut two = two();
    drop(std::mem::replace(&mut two.sender, Shm::new(Settings::default()).expect("another")));
    let told = two.told(|told| told.is_dead);
    assert_eq!(told.done, Some(Err(Refused::Dead)));
}

#[test]
fn a_transport_that_is_closed_waits_for_who_writes_into_its_memory() {
    let Two { receiver, sender, mut help, claimed, .. } = two();
    let is_done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let arena = sender.arena.clone();
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(5));
            is_done.store(true, Ordering::SeqCst);
            help.done(arena.offer(0), claimed);
        });
        drop(receiver);
        assert!(is_done.load(Ordering::SeqCst));
    });
}

#[test]
fn a_transport_that_is_closed_waits_for_who_accesses_its_memory_and_lets_nobody_else_begin() {
    let Two { receiver: mut owner, sender: mut other, mut help, claimed, .. } = two();
    help.done(owner.arena.offer(0), claimed);
    let (slot, key) = (3, 77);
    owner.publish(slot, Some(Published { key, span: Span::new(4096, 8), rights: 1 }));
    other.enter(Peer(0), slot, key).expect("it is published");
    help.done(other.arena.offer(0), claimed);
    assert!(!owner.is_left_alone());
    other.leave(Peer(0));
    assert!(owner.is_left_alone());
    assert_eq!(other.enter(Peer(0), slot, key).err(), Some(Refused::Key));
}

/// A peer that was stopped copies when it goes on, or never: nobody waits for that without end.
#[test]
fn a_transport_that_is_closed_does_not_wait_for_ever_for_one_that_is_stopped() {
    let Two { receiver, sender, .. } = two();
    let (has_ended, ends) = std::sync::mpsc::channel();
    let closes = std::thread::spawn(move || {
        drop(receiver);
        // Nobody listens any more where this came too late.
        let _ = has_ended.send(());
    });
    let in_time = ends.recv_timeout(30 * ACCESS);
    drop(sender);
    closes.join().expect("it ends");
    assert_eq!(in_time, Ok(()));
}

/// One that takes a packet per poll, as an engine does whose next message is better fetched first.
#[derive(Default)]
struct Slow {
    packets: [usize; 3],
    dead: Vec<Peer>,
    has_had: bool,
}

impl Sink for Slow {
    fn packet(&mut self, peer: Peer, _head: &[u8], _payload: &[u8]) {
        self.packets[peer.0 as usize] += 1;
        self.has_had = true;
    }

    fn wants_more(&self) -> bool {
        !self.has_had
    }

    fn dead(&mut self, peer: Peer) {
        self.dead.push(peer);
    }
}

impl Slow {
    fn poll(&mut self, shm: &mut Shm, budget: usize) {
        self.has_had = false;
        shm.poll(budget, self);
    }
}

/// A process, and others that it has met, by their numbers there.
fn one_of_many<const MANY: usize>() -> (Shm, [Shm; MANY]) {
    let settings = || Settings { heap_bytes: 1 << 16, peers_max: 4, ..Settings::default() };
    let mut one = Shm::new(settings()).expect("shared memory");
    let many = std::array::from_fn(|_| {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let other = std::thread::spawn(move || {
            let mut shm = Shm::new(settings()).expect("shared memory");
            shm.meet(theirs).expect("they meet");
            shm
        });
        one.meet(ours).expect("they meet");
        other.join().expect("it is there")
    });
    (one, many)
}

#[test]
fn one_that_sends_without_end_keeps_nobody_else_from_being_heard() {
    for (budget, is_slow) in [(4, false), (64, true)] {
        let (mut one, mut many) = one_of_many::<3>();
        let mut sink = Slow::default();
        for _ in 0..20 {
            for other in &mut many {
                while other.send(Peer(0), b"one", 0, |_| ()).is_ok() {}
            }
            for _ in 0..6 {
                if is_slow {
                    sink.poll(&mut one, budget)
                } else {
                    one.poll(budget, &mut All(&mut sink));
                }
            }
        }
        assert!(sink.packets.iter().all(|count| *count == sink.packets[0]), "{:?}", sink.packets);
    }
}

/// The same, but it takes all.
struct All<'a>(&'a mut Slow);

impl Sink for All<'_> {
    fn packet(&mut self, peer: Peer, head: &[u8], payload: &[u8]) {
        self.0.packet(peer, head, payload);
    }

    fn dead(&mut self, peer: Peer) {
        self.0.dead(peer);
    }
}

/// Every poll finds something, and none looks at all of the links.
#[test]
fn who_is_gone_is_found_while_another_one_sends_without_end() {
    let (mut one, [mut busy, gone]) = one_of_many::<2>();
    let mut sink = Slow::default();
    sink.poll(&mut one, 64);
    drop(gone);
    for _ in 0..POLLS_MAX {
        let _ = busy.send(Peer(0), b"one", 0, |_| ());
        sink.poll(&mut one, 64);
        if sink.dead == [Peer(1)] {
            return;
        }
    }
    panic!("nobody looks");
}

/// Lends one piece of memory to whoever asks for it.
#[derive(Default)]
struct Lends {
    lent: Span,
    packets: usize,
}

impl Sink for Lends {
    fn packet(&mut self, _peer: Peer, head: &[u8], payload: &[u8]) {
        assert!(head.len() <= 48 && payload.len() <= ring::PACKET_BYTES_MAX);
        self.packets += 1;
    }

    fn lends(&self, _peer: Peer, _message: u32, span: Span) -> bool {
        span == self.lent
    }

    fn dead(&mut self, _peer: Peer) {}
}

/// All words that a peer may write to and that somebody reads: of the inbox in this memory, and its table.
fn words(of: &Arena) -> Vec<&AtomicU64> {
    let (consumed, offer) = (of.consumed(0), of.offer(0));
    let mut words = vec![&consumed.slots, &consumed.bytes, &of.access(0).key];
    words.extend([&offer.claim, &offer.message, &offer.from, &offer.into, &offer.bytes]);
    words.extend([&offer.taken, &offer.answer.done, &offer.answer.given_back]);
    for slot in 0..8 {
        let row = of.row(slot);
        words.extend([&row.key, &row.address, &row.bytes, &row.rights]);
    }
    for line in 0..16 {
        // SAFETY: a line of the mapping, its word an atomic.
        words.push(unsafe { &(*of.slots(0).add(line)).word });
    }
    words
}

/// Nothing is read or written elsewhere, nobody panics, and nobody waits for ever.
#[test]
fn whatever_a_peer_writes_into_shared_memory_harms_nobody_but_its_own_messages() {
    let settings = || Settings { heap_bytes: 1 << 16, peers_max: 1, ..Settings::default() };
    let (from, into, theirs) = (vec![1_u8; 1 << 16], vec![0_u8; 1 << 16], vec![0_u8; 1 << 16]);
    for seed in 0..100 {
        let mut random = Rng::new(seed);
        let (ours, others) = UnixStream::pair().expect("sockets");
        let other = std::thread::spawn(move || {
            let mut shm = Shm::new(settings()).expect("shared memory");
            shm.meet(others).expect("they meet");
            shm
        });
        let mut honest = Shm::new(settings()).expect("shared memory");
        honest.meet(ours).expect("they meet");
        let odd = other.join().expect("it is there");
        let mut sink = Lends { lent: span(&from), packets: 0 };
        let both = [honest.arena.clone(), odd.arena.clone()];
        for _ in 0..60 {
            for arena in &both {
                let words = words(arena);
                for _ in 0..random.below(4) {
                    let value = match random.below(4) {
                        0 => random.next(),
                        1 => random.below(1 << 16) << 32 | random.below(1 << 16),
                        2 => random.below(20) << 32 | random.below(1 << 32),
                        _ => random.below(64),
                    };
                    words[random.index(words.len())].store(value, Ordering::Release);
                }
            }
            if random.chance(200) {
                // One that asks for what it may have, with a word that may say anything.
                let offer = honest.arena.offer(0);
                offer.from.store(sink.lent.address, Ordering::Relaxed);
                offer.into.store(span(&theirs).address, Ordering::Relaxed);
                offer.bytes.store(sink.lent.bytes, Ordering::Relaxed);
                offer.claim.store(random.below(9) << 32 | random.below(20), Ordering::Release);
            }
            honest.poll(16, &mut sink);
            match random.below(6) {
                0 => drop(honest.send(Peer(0), &[1; 40], random.index(300), |room| room.fill(2))),
                1 => {
                    let (slot, key) = (random.below(8) as u32, random.below(64));
                    if honest.enter(Peer(0), slot, key).is_ok() {
                        honest.leave(Peer(0));
                    }
                }
                2 => drop(honest.fetch(TOKEN, Peer(0), MESSAGE, span(&from), span(&into))),
                _ => {}
            }
        }
        // It has left what it accessed, as far as the other one can tell.
        odd.arena.access(0).key.store(0, Ordering::Release);
        drop(odd);
        // What is not over with a peer that is gone ends with it.
        drop(honest);
    }
    assert!(from.iter().all(|byte| *byte == 1), "it was lent to be read");
}
