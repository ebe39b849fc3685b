//! Engines over TCP: the same operations as over shared memory, where nobody can reach into the other.

use covey_io::os::own::Own;
use covey_io::os::packets::{Options, Tcp};
use covey_layout::{Element, Layout};
use covey_uzura::{Completion, Config, Engine, Fault, Local, Remote, Rights, Source, Started, Tag};
use covey_wire::{Memory, Peer, Span};
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
