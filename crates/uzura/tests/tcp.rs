//! Engines over TCP: the same operations as over shared memory, where nobody can reach into the other.

use covey_io::os::own::Own;
use covey_io::os::packets::{Options, Tcp};
use covey_io::os::shm::{Patience, Waiter};
use covey_layout::{Element, Layout};
use covey_uzura::{Completion, Config, Engine, Fault, Local, Remote, Rights, Source, Started, Tag};
use covey_wire::transport::Transport;
use covey_wire::{Memory, Peer, Span};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const SIDE: u64 = 300;
const OTHER: Peer = Peer(0);

type Ours = Engine<Tcp, Own>;

/// Two engines that have met.
fn pair() -> [Ours; 2] {
    let mut tcp = [0, 1].map(|_| Tcp::new(Options::default()).expect("a transport"));
    let address = tcp[0].listen().expect("a port");
    tcp[1].connect(address).expect("a connection");
    let mut ends = tcp.map(|tcp| Engine::new(tcp, Own::default(), Config::default()));
    wait(&mut ends, |ends| ends.iter().all(|end| end.is_alive(OTHER)));
    ends
}

fn wait(ends: &mut [Ours], mut is_so: impl FnMut(&mut [Ours]) -> bool) {
    let begun = Instant::now();
    while !is_so(ends) {
        for end in ends.iter_mut() {
            end.poll();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come true");
    }
}

/// The ends of what was begun, each by its engine.
fn ends_of(
    ends: &mut [Ours],
    begun: Vec<(usize, Result<Started, Fault>)>,
) -> Vec<Result<Completion, Fault>> {
    let mut results = Vec::new();
    for (of, started) in begun {
        let done = match started {
            Err(fault) => Err(fault),
            Ok(Started::Done(done)) => done.result.map(|()| done),
            Ok(Started::Pending(_)) => {
                let mut found = None;
                wait(ends, |ends| {
                    found = found.or_else(|| ends[of].completion());
                    found.is_some()
                });
                found.ok_or(Fault::NoSuch).and_then(|done| done.result.map(|()| done))
            }
        };
        results.push(done);
    }
    results
}

fn noise(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 % 251 + at / 4096) as u8).collect()
}

fn write(end: &mut Ours, span: Span, bytes: &[u8]) {
    end.memory().write(span, |into| into.copy_from_slice(bytes)).expect("it is ours");
}

fn bytes(end: &mut Ours, span: Span) -> Vec<u8> {
    end.memory().read(span, <[u8]>::to_vec).expect("it is ours")
}

fn transposed(bytes: &[u8]) -> Vec<u8> {
    let side = SIDE as usize;
    let element = |at: usize| &bytes[4 * (at % side * side + at / side)..][..4];
    (0..side * side).flat_map(element).copied().collect()
}

fn columns() -> Layout {
    let column = Layout::vector(SIDE, 1, SIDE as i64, &Layout::element(Element::F32));
    column.and_then(|column| Layout::hvector(SIDE, 1, 4, &column)).expect("a matrix")
}

#[test]
fn messages_of_every_size_arrive_whether_awaited_or_not() {
    let mut ends = pair();
    for (tag, size) in
        [0, 1, 8, 4095, 4096, 4097, 65_536, 65_537, 1 << 20, 20 << 20].into_iter().enumerate()
    {
        for is_awaited in [true, false] {
            let sent = noise(size);
            let [from, to] = [0, 1].map(|at: usize| ends[at].memory().block(size as usize));
            write(&mut ends[0], from, &sent);
            let tag = tag as u64;
            let (first, second) = if is_awaited { (1, 0) } else { (0, 1) };
            let begun = [first, second].map(|at| {
                let started = match at {
                    0 => ends[0].send(OTHER, tag, Local::bytes(from), 0),
                    _ => ends[1].receive(Source::From(OTHER), Tag::exact(tag), Local::bytes(to), 0),
                };
                (at, started)
            });
            let done = ends_of(&mut ends, begun.to_vec());
            assert!(done.iter().all(Result::is_ok), "{size} bytes: {done:?}");
            assert!(bytes(&mut ends[1], to) == sent, "{size} bytes, awaited: {is_awaited}");
        }
    }
}

#[test]
fn a_message_of_64_kib_leaves_at_once_and_is_copied_by_the_kernel_alone() {
    let mut ends = pair();
    let size = 64 << 10;
    let [from, to] = [0, 1].map(|at: usize| ends[at].memory().block(size));
    write(&mut ends[0], from, &noise(size as u64));
    let receive = ends[1].receive(Source::Any, Tag::exact(7), Local::bytes(to), 0);
    // Its answer is taken on the way, so that all that comes first has come.
    let short = [0, 1].map(|at: usize| ends[at].memory().block(1));
    let ask = ends[1].send(OTHER, 1, Local::bytes(short[1]), 0);
    let asked = ends[0].receive(Source::Any, Tag::exact(1), Local::bytes(short[0]), 0);
    assert!(ends_of(&mut ends, vec![(1, ask), (0, asked)]).iter().all(Result::is_ok));
    let before = [0, 1].map(|at: usize| ends[at].stats());
    let send = ends[0].send(OTHER, 7, Local::bytes(from), 0);
    assert!(ends_of(&mut ends, vec![(0, send), (1, receive)]).iter().all(Result::is_ok));
    let after = [0, 1].map(|at: usize| ends[at].stats());
    assert!(bytes(&mut ends[1], to) == noise(size as u64));
    assert_eq!((after[0].eager, after[0].rendezvous), (before[0].eager + 1, 0));
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(after.bytes_copied, before.bytes_copied);
    }
}

#[test]
fn a_message_that_is_longer_than_its_receive_is_cut_off_however_it_is_sent() {
    let mut ends = pair();
    for size in [100, 5000, 40_000, 64 << 10, 100_000] {
        let from = ends[0].memory().block(size);
        write(&mut ends[0], from, &noise(size as u64));
        let to = ends[1].memory().block(size - 50);
        let receive = ends[1].receive(Source::Any, Tag::exact(7), Local::bytes(to), 0);
        let send = ends[0].send(OTHER, 7, Local::bytes(from), 0);
        let done = ends_of(&mut ends, vec![(0, send), (1, receive)]);
        assert!(done[0].is_ok(), "{size} bytes: {done:?}");
        assert_eq!(done[1], Err(Fault::Truncated), "{size} bytes");
        assert!(bytes(&mut ends[1], to) == noise(size as u64)[..size - 50], "{size} bytes");
    }
}

#[test]
fn memory_of_a_send_that_has_failed_is_not_read_any_more() {
    let mut ends = pair();
    let size = 16 << 20;
    let [from, to] = [0, 1].map(|at: usize| ends[at].memory().block(size));
    write(&mut ends[0], from, &noise(size as u64));
    let receive = ends[1].receive(Source::Any, Tag::exact(7), Local::bytes(to), 0);
    assert!(matches!(receive, Ok(Started::Pending(_))));
    let send = ends[0].send(OTHER, 7, Local::bytes(from), 0);
    assert!(matches!(send, Ok(Started::Pending(_))));
    // In the middle of it the receiver says what no engine says.
    wait(&mut ends, |ends| bytes(&mut ends[1], to)[..1000] == noise(1000)[..]);
    ends[1].transport().send(OTHER, &[0xff; 4], 0, |_| ()).expect("there is room");
    let failed = loop {
        ends[0].poll();
        if let Some(completion) = ends[0].completion() {
            break completion;
        }
    };
    assert_eq!(failed.result, Err(Fault::PeerDead));
    write(&mut ends[0], from, &vec![0xaa; size]);
    for _ in 0..10_000 {
        for end in &mut ends {
            end.poll();
        }
    }
    let (came, sent) = (bytes(&mut ends[1], to), noise(size as u64));
    let wrong = came.iter().zip(&sent).position(|(came, sent)| came != sent && *came != 0);
    assert_eq!(wrong, None, "what the sender wrote later has come");
}

#[test]
fn a_matrix_is_transposed_on_the_way_by_send_put_and_get() {
    let mut ends = pair();
    let size = SIDE * SIDE * 4;
    let sent = noise(size);
    let [from, to] = [0, 1].map(|at: usize| ends[at].memory().block(size as usize));
    write(&mut ends[0], from, &sent);
    let form = ends[0].commit(&columns(), 1).expect("it is small");
    let receive = ends[1].receive(Source::Any, Tag::ANY, Local::bytes(to), 0);
    let send = ends[0].send(OTHER, 1, Local::laid(from, form), 0);
    for done in ends_of(&mut ends, vec![(1, receive), (0, send)]) {
        done.expect("it arrives");
    }
    assert!(bytes(&mut ends[1], to) == transposed(&sent));

    // The other knows nothing of the layout: it travels there.
    let key = ends[1].register(to, Rights::READ.and(Rights::WRITE)).expect("room for a key");
    let there = Remote { peer: OTHER, key, at: 0, form: Some(form) };
    let put = ends[0].put(Local::bytes(from), there, 0);
    ends_of(&mut ends, vec![(0, put)]).remove(0).expect("it is put");
    assert!(bytes(&mut ends[1], to) == transposed(&sent));
    let back = ends[0].memory().block(size as usize);
    let get = ends[0].get(Local::bytes(back), there, 0);
    ends_of(&mut ends, vec![(0, get)]).remove(0).expect("it is got");
    assert!(bytes(&mut ends[0], back) == sent, "transposed twice");

    ends[1].revoke(key).expect("it was there");
    let late = ends[0].get(Local::bytes(back), there, 0);
    assert_eq!(ends_of(&mut ends, vec![(0, late)]).remove(0).err(), Some(Fault::Revoked));
}

#[test]
fn a_dead_peer_ends_what_was_begun_with_it_and_nothing_hangs() {
    let [mut here, mut there] = pair();
    let memory = here.memory().block(4 << 20);
    let small = here.memory().block(8);
    let receive = here.receive(Source::From(OTHER), Tag::exact(1), Local::bytes(small), 0);
    let send = here.send(OTHER, 2, Local::bytes(memory), 0);
    for _ in 0..100 {
        here.poll();
        there.poll();
    }
    drop(there);
    let done = ends_of(std::slice::from_mut(&mut here), vec![(0, receive), (0, send)]);
    for done in done {
        assert_eq!(done.err(), Some(Fault::PeerDead));
    }
    assert!(here.send(OTHER, 3, Local::bytes(memory), 0).is_err(), "it stays dead");
}

#[test]
fn messages_that_are_sent_together_arrive_though_their_sender_never_polls_again() {
    let mut ends = pair();
    let from = ends[0].memory().block(64);
    let into = ends[1].memory().block(64);
    // The windows are known once a message has gone each way.
    for at in [0, 1] {
        let memory = ends[at].memory().block(8);
        let receive = ends[1 - at].receive(Source::Any, Tag::exact(9), Local::bytes(into), 0);
        let send = ends[at].send(OTHER, 9, Local::bytes(memory), 0);
        ends_of(&mut ends, vec![(1 - at, receive), (at, send)]);
    }
    ends[0].together(|end| {
        for tag in 0..300 {
            let inner = end.together(|end| end.send(OTHER, tag, Local::bytes(from), 0));
            assert!(matches!(inner, Ok(Started::Done(_))), "{inner:?}");
        }
    });
    for tag in 0..300 {
        let begun = ends[1].receive(Source::Any, Tag::exact(tag), Local::bytes(into), 0);
        // Only the receiver polls.
        let done = ends_of(&mut ends[1..], vec![(0, begun)]).remove(0).expect("it arrives");
        assert_eq!(done.tag, tag);
    }
}

/// One that has two peers, of which the first will die.
fn three() -> (Ours, [Ours; 2]) {
    let mut middle = Tcp::new(Options::default()).expect("a transport");
    let address = middle.listen().expect("a port");
    let mut middle = Engine::new(middle, Own::default(), Config::default());
    let others = [0, 1].map(|number| {
        let mut tcp = Tcp::new(Options::default()).expect("a transport");
        tcp.connect(address).expect("a connection");
        let mut other = Engine::new(tcp, Own::default(), Config::default());
        let begun = Instant::now();
        while !middle.is_alive(Peer(number)) || !other.is_alive(OTHER) {
            middle.poll();
            other.poll();
            assert!(begun.elapsed() < Duration::from_secs(60), "they do not meet");
        }
        other
    });
    (middle, others)
}

fn completion(end: &mut Ours) -> Completion {
    let begun = Instant::now();
    loop {
        end.poll();
        if let Some(done) = end.completion() {
            return done;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not end");
    }
}

/// A message passes from the middle to the second of the others.
fn passes(middle: &mut Ours, other: &mut Ours) {
    let [from, into] = [middle.memory().block(64), other.memory().block(64)];
    let received = other.receive(Source::From(OTHER), Tag::exact(77), Local::bytes(into), 77);
    assert!(matches!(received, Ok(Started::Pending(_))), "{received:?}");
    let _ = middle.send(Peer(1), 77, Local::bytes(from), 0).expect("it lives");
    let begun = Instant::now();
    loop {
        middle.poll();
        other.poll();
        if let Some(done) = other.completion() {
            return assert_eq!((done.context, done.result), (77, Ok(())));
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not pass");
    }
}

/// Until some of a message of nines has come.
fn some_comes(sender: &mut Ours, receiver: &mut Ours, into: Span) {
    let begun = Instant::now();
    while receiver.memory().read(into, |bytes| bytes[0]).expect("it is ours") != 9 {
        sender.poll();
        receiver.poll();
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing comes");
    }
}

#[test]
fn a_sender_that_dies_in_the_middle_of_a_long_message_ends_its_receive_and_no_other() {
    let (mut middle, [mut first, mut second]) = three();
    let [from, into] = [first.memory().block(64 << 20), middle.memory().block(64 << 20)];
    let receive = middle.receive(Source::From(Peer(0)), Tag::exact(1), Local::bytes(into), 5);
    assert!(matches!(receive, Ok(Started::Pending(_))), "{receive:?}");
    first.memory().write(from, |bytes| bytes.fill(9)).expect("it is ours");
    let _ = first.send(OTHER, 1, Local::bytes(from), 0).expect("it is announced");
    some_comes(&mut first, &mut middle, into);
    assert!(middle.completion().is_none(), "it is in the middle");
    drop(first);
    let done = completion(&mut middle);
    assert_eq!((done.context, done.result), (5, Err(Fault::PeerDead)));
    passes(&mut middle, &mut second);
}

#[test]
fn a_receiver_that_dies_in_the_middle_of_a_long_message_ends_its_send_and_no_other() {
    let (mut middle, [mut first, mut second]) = three();
    let [into, from] = [first.memory().block(64 << 20), middle.memory().block(64 << 20)];
    middle.memory().write(from, |bytes| bytes.fill(9)).expect("it is ours");
    let send = middle.send(Peer(0), 1, Local::bytes(from), 6);
    assert!(matches!(send, Ok(Started::Pending(_))), "{send:?}");
    let receive = first.receive(Source::Any, Tag::exact(1), Local::bytes(into), 0);
    assert!(matches!(receive, Ok(Started::Pending(_))), "{receive:?}");
    some_comes(&mut middle, &mut first, into);
    assert!(middle.completion().is_none(), "it is in the middle");
    drop(first);
    let done = completion(&mut middle);
    assert_eq!((done.context, done.result), (6, Err(Fault::PeerDead)));
    passes(&mut middle, &mut second);
}

#[test]
fn more_ends_than_cpus_pass_a_token_round_without_starving_each_other() {
    const ENDS: usize = 8;
    const ROUNDS: u64 = 100;
    let (addresses, mut listeners): (Vec<_>, Vec<_>) = (0..ENDS).map(|_| mpsc::channel()).unzip();
    // Each connects to the next one; the last one's next is the first.
    listeners.rotate_left(1);
    let ends = addresses.into_iter().zip(listeners).enumerate();
    let all: Vec<_> = ends
        .map(|(number, (mine, next))| {
            std::thread::spawn(move || ring(number, &mine, &next, ROUNDS))
        })
        .collect();
    for (number, one) in all.into_iter().enumerate() {
        assert_eq!(one.join().expect("it does not panic"), ROUNDS, "end {number}");
    }
}

/// One end of a ring, with all the others on two CPUs. Says how often the token came.
fn ring(
    number: usize,
    mine: &mpsc::Sender<SocketAddr>,
    next: &mpsc::Receiver<SocketAddr>,
    rounds: u64,
) -> u64 {
    share_two_cpus();
    let mut tcp = Tcp::new(Options::default()).expect("a transport");
    mine.send(tcp.listen().expect("a port")).expect("somebody wants it");
    let next = tcp.connect(next.recv().expect("it listens")).expect("a connection");
    let mut end = Engine::new(tcp, Own::default(), Config::default());
    let (token, mut waiter) = (end.memory().block(8), Waiter::new(Patience::default()));
    let mut came = 0;
    let mut begun = Instant::now();
    while came < rounds {
        let receive = end.receive(Source::Any, Tag::ANY, Local::bytes(token), 1);
        if number == 0 {
            let _ = end.send(next, came, Local::bytes(token), 2).expect("it lives");
        }
        let mut is_there = matches!(receive, Ok(Started::Done(_)));
        while !is_there {
            if end.poll() == 0 {
                let may_sleep = end.is_idle();
                waiter.wait(end.transport(), may_sleep);
            } else {
                waiter.reset();
            }
            while let Some(done) = end.completion() {
                done.result.expect("it arrives");
                is_there |= done.context == 1;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it starves after {came}");
        }
        begun = Instant::now();
        came += 1;
        if number != 0 {
            let _ = end.send(next, came, Local::bytes(token), 2).expect("it lives");
        }
    }
    // What it sent last is taken before it goes.
    while end.poll() > 0 {}
    came
}

fn share_two_cpus() {
    let mut two = CpuSet::new();
    let all = sched_getaffinity(None).expect("it is ours");
    (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).take(2).for_each(|cpu| two.set(cpu));
    sched_setaffinity(None, &two).expect("they are some of ours");
}
