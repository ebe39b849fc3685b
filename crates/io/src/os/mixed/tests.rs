//! Endpoints of one process that meet, and strangers.

mod glances;

use super::*;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

/// What an engine was told.
#[derive(Default)]
struct Heard {
    joined: Vec<Peer>,
    packets: Vec<(Peer, Vec<u8>)>,
    dead: Vec<Peer>,
}

impl Sink for Heard {
    fn joined(&mut self, peer: Peer) {
        self.joined.push(peer);
    }

    fn packet(&mut self, peer: Peer, head: &[u8], payload: &[u8]) {
        self.packets.push((peer, [head, payload].concat()));
    }

    fn dead(&mut self, peer: Peer) {
        self.dead.push(peer);
    }
}

struct End {
    mixed: Mixed,
    address: Address,
    heard: Heard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Memory,
    Tcp,
}

fn settings(by: By) -> Settings {
    let shm = shm::Settings { heap_bytes: 1 << 16, peers_max: 64, ..shm::Settings::default() };
    let tcp = Some((Ipv4Addr::LOCALHOST, 0).into());
    Settings { shm, near: by == By::Memory, tcp, ..Settings::default() }
}

fn end_with(settings: &Settings, secret: &[u8]) -> End {
    let mut mixed = Mixed::new(settings).expect("a transport");
    let address = mixed.open(settings, Secret::of(secret)).expect("a door");
    End { mixed, address, heard: Heard::default() }
}

fn end(by: By) -> End {
    end_with(&settings(by), b"quail")
}

fn wait(ends: &mut [End], mut is_so: impl FnMut(&mut [End]) -> bool) {
    let begun = Instant::now();
    while !is_so(ends) {
        for end in ends.iter_mut() {
            end.mixed.poll(64, &mut end.heard);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come true");
    }
}

/// Says something to a peer as soon as that is possible.
fn say(ends: &mut [End], from: usize, to: Peer, what: &[u8]) {
    wait(ends, |ends| {
        let said = ends[from].mixed.send(to, what, 0, |_| ());
        assert!(matches!(said, Ok(()) | Err(Refused::Full)), "{said:?}");
        said.is_ok()
    });
}

fn has_heard(end: &End, what: &[u8]) -> bool {
    end.heard.packets.iter().any(|(_, said)| said == what)
}

#[test]
fn two_that_call_each_other_at_once_have_one_connection() {
    for by in [By::Memory, By::Tcp] {
        for _ in 0..8 {
            let mut ends = [end(by), end(by)];
            let addresses = [ends[0].address, ends[1].address];
            let first = ends[0].mixed.call(&addresses[1]).expect("a peer");
            let second = ends[1].mixed.call(&addresses[0]).expect("a peer");
            say(&mut ends, 0, first, b"one");
            say(&mut ends, 1, second, b"two");
            wait(&mut ends, |ends| has_heard(&ends[0], b"two") && has_heard(&ends[1], b"one"));
            for end in &mut ends {
                let side = if by == By::Memory { Side::Near(0) } else { Side::Far(0) };
                assert_eq!(end.mixed.sides.all, [side], "{by:?}");
                assert!(end.mixed.came().is_none() && end.heard.dead.is_empty());
                assert_eq!(end.heard.joined, [Peer(0)]);
            }
        }
    }
}

#[test]
fn who_is_called_learns_who_has_come_and_may_take_its_time() {
    let mut ends = [end(By::Memory), end(By::Memory)];
    let to = ends[1].address;
    let peer = ends[0].mixed.call(&to).expect("a peer");
    assert_eq!(ends[0].mixed.call(&to).expect("a peer"), peer);
    // It does not look: nobody waits for it.
    for _ in 0..10_000 {
        let end = &mut ends[0];
        end.mixed.poll(64, &mut end.heard);
    }
    assert_eq!(ends[0].mixed.send(peer, b"one", 0, |_| ()), Err(Refused::Full));
    say(&mut ends, 0, peer, b"one");
    wait(&mut ends, |ends| has_heard(&ends[1], b"one"));
    let came = ends[1].mixed.came().expect("somebody");
    assert_eq!(ends[1].mixed.address_of(came), Some(&ends[0].address));
    assert_eq!(ends[1].mixed.is_near(came), Some(true));
    let back = ends[0].address;
    assert_eq!(ends[1].mixed.call(&back).expect("a peer"), came);
}

#[test]
fn many_meet_all_others_at_once() {
    crate::os::limits::raise_open_files().expect("more files");
    for by in [By::Memory, By::Tcp] {
        // By memory each has as much of it for all others; more of them than callers that are heard at once.
        let count = if by == By::Memory { 12 } else { 70 };
        let mut ends: Vec<End> = (0..count).map(|_| end(by)).collect();
        let addresses: Vec<Address> = ends.iter().map(|end| end.address).collect();
        let mut peers = Vec::new();
        for end in &mut ends {
            let call = |address| end.mixed.call(address).expect("a peer");
            peers.push(addresses.iter().map(call).collect::<Vec<Peer>>());
        }
        for (from, peers) in peers.iter().enumerate() {
            for (to, peer) in peers.iter().enumerate() {
                say(&mut ends, from, *peer, &[from as u8, to as u8]);
            }
        }
        wait(&mut ends, |ends| ends.iter().all(|end| end.heard.packets.len() >= count));
        for (number, end) in ends.iter_mut().enumerate() {
            let mut said: Vec<_> = end.heard.packets.drain(..).map(|(_, said)| said).collect();
            said.sort_unstable();
            let expected: Vec<_> = (0..count).map(|from| vec![from as u8, number as u8]).collect();
            assert_eq!(said, expected);
            assert!(end.heard.dead.is_empty());
        }
    }
}

#[test]
fn who_does_not_know_the_secret_is_no_peer() {
    for by in [By::Memory, By::Tcp] {
        let mut ends = [end(by), end_with(&settings(by), b"hawk")];
        let to = ends[0].address;
        let peer = ends[1].mixed.call(&to).expect("a number");
        wait(&mut ends, |ends| ends[1].heard.dead == [peer]);
        assert_eq!(ends[1].mixed.send(peer, b"one", 0, |_| ()), Err(Refused::Dead));
        assert!(ends[0].heard.joined.is_empty() && ends[0].mixed.came().is_none());
    }
}

#[test]
fn strangers_that_flood_and_never_prove_themselves_keep_nobody_out() {
    let mut ends = [end(By::Tcp), end(By::Tcp)];
    let to = ends[0].address;
    let tcp = to.tcp().expect("it listens");
    let mut flood = Vec::new();
    for number in 0..3 * 64 {
        let mut stranger = TcpStream::connect(tcp).expect("a connection");
        // Some say nothing, some say something else.
        if number % 3 > 0 {
            let _ = stranger.write_all(&vec![number as u8; 16 << (number % 3)]);
        }
        flood.push(stranger);
        if number % 64 == 0 {
            let end = &mut ends[0];
            (0..ROUNDS * 2).for_each(|_| {
                end.mixed.poll(64, &mut end.heard);
            });
        }
    }
    let peer = ends[1].mixed.call(&to).expect("a peer");
    say(&mut ends, 1, peer, b"one");
    wait(&mut ends, |ends| has_heard(&ends[0], b"one"));
    assert_eq!(ends[0].heard.joined.len(), 1);
}

/// Connects again and again until it is told to stop, and says what `say` has it say.
fn flood(
    to: SocketAddr,
    is_over: &std::sync::atomic::AtomicBool,
    say: impl Fn(usize, &mut TcpStream),
) -> usize {
    let (mut held, mut count) = (VecDeque::new(), 0);
    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
        let Ok(mut stranger) = TcpStream::connect_timeout(&to, Duration::from_secs(1)) else {
            continue;
        };
        say(count, &mut stranger);
        held.push_back(stranger);
        held.truncate(200);
        count += 1;
    }
    count
}

/// What a stranger says that knows everything but the secret.
fn lie(number: usize, stranger: &mut TcpStream) {
    let them =
        Address { id: [number as u8 | 1; 16], ..Address::of_tcp(([127, 0, 0, 1], 9).into()) };
    let card = [&b"COVEYMX3"[..], &[number as u8; 32], &them.encode()].concat();
    let said: [&[u8]; 4] = [&card, &[], &card[..50], &[&card[..], &[7; 32]].concat()];
    let _ = stranger.write_all(said[number % 4]);
}

#[test]
fn endpoints_meet_while_strangers_flood_them() {
    let mut ends: Vec<End> = (0..6).map(|_| end(By::Tcp)).collect();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let addresses: Vec<Address> = ends.iter().map(|end| end.address).collect();
    let tcp = addresses[0].tcp().expect("it listens");
    std::thread::scope(|scope| {
        let floods = [0, 1].map(|_| scope.spawn(|| flood(tcp, &is_over, lie)));
        for from in 1..6 {
            let peer = ends[from].mixed.call(&addresses[0]).expect("a peer");
            say(&mut ends, from, peer, &[from as u8]);
            wait(&mut ends, |ends| has_heard(&ends[0], &[from as u8]));
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let strangers: usize = floods.map(|flood| flood.join().expect("it ends")).iter().sum();
        assert!(strangers > 64, "no flood: {strangers}");
    });
    assert_eq!(ends[0].heard.joined.len(), 5);
    let door = ends[0].mixed.door.as_ref().expect("a door");
    assert!(door.is_bounded());
}

/// One end looks at who has come, as if it were that much later.
fn look_later(end: &mut End, seconds: u64) {
    let Mixed { door, sides, events, .. } = &mut end.mixed;
    let then = crate::os::clock::monotonic() + Duration::from_secs(seconds);
    (0..4).for_each(|_| door.as_mut().expect("a door").look_at(then, sides, events));
}

/// It lets a call end because it calls itself, and then computes for longer than anybody is expected.
#[test]
fn one_that_calls_and_then_computes_for_long_is_not_lost() {
    for by in [By::Memory, By::Tcp] {
        let mut ends = [end(by), end(by)];
        ends.sort_by_key(|end| end.address.id);
        let addresses = [ends[0].address, ends[1].address];
        let first = ends[1].mixed.call(&addresses[0]).expect("a peer");
        for at in [1, 0, 1] {
            // It connects and says its name; the other answers; it proves itself.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(50) {
                look_later(&mut ends[at], 0);
            }
        }
        let second = ends[0].mixed.call(&addresses[1]).expect("a peer");
        for seconds in (0..60).step_by(3) {
            look_later(&mut ends[1], seconds);
            assert!(!ends[1].mixed.sides.is_dead(first), "{by:?}: after {seconds} s");
        }
        say(&mut ends, 0, second, b"one");
        say(&mut ends, 1, first, b"two");
        wait(&mut ends, |ends| has_heard(&ends[0], b"two") && has_heard(&ends[1], b"one"));
    }
}

/// One that has no room in shared memory says that it is to be called by TCP, and the caller ends just then.
#[test]
fn one_that_is_expected_and_has_ended_is_found_to_be_dead() {
    let mut settings = settings(By::Memory);
    settings.shm.peers_max = 0;
    let mut ends = vec![end_with(&settings, b"quail"), end(By::Memory)];
    let to = ends[0].address;
    ends[1].mixed.call(&to).expect("a peer");
    wait(&mut ends, |ends| ends[0].mixed.came().is_some());
    ends.truncate(1);
    (6..60).step_by(6).for_each(|seconds| look_later(&mut ends[0], seconds));
    wait(&mut ends, |ends| ends[0].heard.dead == [Peer(0)]);
}

/// Waits for what comes true while one end's clock is ahead.
fn wait_later(ends: &mut [End], (who, seconds): (usize, u64), is_so: impl Fn(&mut [End]) -> bool) {
    wait(ends, |ends| {
        look_later(&mut ends[who], seconds);
        is_so(ends)
    });
}

fn call(to: &Address, by: By) -> io::Result<line::Socket> {
    match by {
        By::Memory => line::Socket::call_near(to),
        By::Tcp => line::Socket::call_far(to.tcp().expect("it listens")),
    }
}

/// It computes, and strangers have filled what the kernel keeps of its callers.
#[test]
fn one_that_strangers_keep_busy_is_called_until_it_answers() {
    crate::os::limits::raise_open_files().expect("more files");
    for by in [By::Memory, By::Tcp] {
        let mut ends = [end(by), end(by)];
        let to = ends[0].address;
        let strangers: Vec<_> = (0..5000).map_while(|_| call(&to, by).ok()).collect();
        let peer = ends[1].mixed.call(&to).expect("a peer");
        for seconds in (0..60).step_by(2) {
            look_later(&mut ends[1], seconds);
            assert!(!ends[1].mixed.sides.is_dead(peer), "{by:?}: after {seconds} s");
        }
        drop(strangers);
        wait_later(&mut ends, (1, 60), |ends| ends[1].mixed.send(peer, b"one", 0, |_| ()).is_ok());
        wait(&mut ends, |ends| has_heard(&ends[0], b"one"));
    }
}

#[test]
fn one_whose_machine_does_not_answer_is_found_to_be_dead_in_the_end() {
    let mut ends = [end(By::Tcp)];
    // The network for documentation: nobody is there, or it cannot be reached at all.
    let nobody = Address::of_tcp(([192, 0, 2, 1], 9).into());
    let peer = ends[0].mixed.call(&nobody).expect("a number");
    (0..140).for_each(|seconds| look_later(&mut ends[0], seconds));
    assert!(ends[0].mixed.sides.is_dead(peer));
}

/// It computes while hundreds of others start.
#[test]
fn hundreds_may_come_while_one_computes() {
    let ends = [end(By::Tcp)];
    let to = ends[0].address.tcp().expect("it listens");
    let connect = |_| TcpStream::connect_timeout(&to, Duration::from_secs(9)).ok();
    let come: Vec<_> = (0..400).map_while(connect).collect();
    assert_eq!(come.len(), 400);
}

/// Strangers that say nothing come at a rate at which all places are theirs between two looks.
#[test]
fn one_that_has_said_who_it_is_is_not_let_go_for_strangers_that_say_nothing() {
    let mut ends = [end(By::Tcp), end(By::Tcp)];
    let to = ends[0].address;
    let peer = ends[1].mixed.call(&to).expect("a peer");
    wait(&mut ends[1..], |ends| ends[0].mixed.door.as_ref().expect("a door").greets());
    look_later(&mut ends[0], 0);
    let mut strangers = Vec::new();
    for _ in 0..4 {
        strangers.extend((0..64).map(|_| call(&to, By::Tcp).expect("a connection")));
        // They come one by one, each look finds some.
        look_later(&mut ends[0], 0);
    }
    // All of its greeting, and no second try.
    let mut is_heard = false;
    for _ in 0..1000 {
        look_later(&mut ends[1], 0);
        let door = ends[1].mixed.door.as_ref().expect("a door");
        is_heard |= !door.is_busy();
        if is_heard {
            break;
        }
        assert_eq!(door.failures(), 0, "it was let go");
        strangers.extend((0..64).map(|_| call(&to, By::Tcp).expect("a connection")));
        look_later(&mut ends[0], 0);
    }
    assert!(is_heard && !ends[1].mixed.sides.is_dead(peer));
}

/// One that proves the secret by the name of somebody else, and what it is told.
fn greet(ends: &mut [End], to: &Address, id: u8) -> (line::Line, greeting::Verdict) {
    let them = Address { id: [id; 16], ..*to };
    let greeting = greeting::Greeting::calls(&Secret::of(b"quail"), &them, [id; 32]);
    let socket = line::Socket::call_near(to).expect("it is seen");
    let mut line = line::Line::new(socket, greeting.0, greeting.1);
    let mut verdict = None;
    wait(ends, |_| {
        if let greeting::Step::Said(said, _) = line.go_on().expect("it is heard") {
            verdict = Some(said);
        }
        verdict.is_some()
    });
    (line, verdict.expect("one"))
}

/// One of our user that knows the secret, with many made-up names, and shares nothing.
#[test]
fn members_that_share_no_memory_keep_nobody_out() {
    let mut settings = settings(By::Memory);
    settings.shm.peers_max = 256;
    crate::os::limits::raise_open_files().expect("more files");
    let mut ends = [end_with(&settings, b"quail"), end(By::Memory)];
    let to = ends[0].address;
    let held: Vec<_> = (0..100).map(|number| greet(&mut ends, &to, number + 1)).collect();
    assert!(held.iter().all(|(_, verdict)| *verdict == greeting::Verdict::Yes));
    let peer = ends[1].mixed.call(&to).expect("a peer");
    say(&mut ends, 1, peer, b"one");
    wait(&mut ends, |ends| has_heard(&ends[0], b"one"));
    assert_eq!(ends[1].mixed.is_near(peer), Some(true));
}

/// It has no room for what the other shares, or ends: its place is somebody else's, and what fails by memory is tried by TCP.
#[test]
fn one_that_does_not_share_memory_in_the_end_takes_no_place_and_is_called_by_tcp() {
    let mut settings = settings(By::Memory);
    settings.shm.peers_max = 1;
    let mut ends = [end_with(&settings, b"quail"), end(By::Memory)];
    let to = ends[0].address;
    let (line, verdict) = greet(&mut ends, &to, 1);
    assert_eq!(verdict, greeting::Verdict::Yes);
    drop(line);
    let peer = ends[1].mixed.call(&to).expect("a peer");
    say(&mut ends, 1, peer, b"one");
    wait(&mut ends, |ends| has_heard(&ends[0], b"one"));
    assert_eq!(ends[1].mixed.is_near(peer), Some(true));
}

#[test]
fn one_that_has_too_few_descriptors_to_share_memory_is_met_by_tcp() {
    for who in [0, 1] {
        let mut ends = [end(By::Memory), end(By::Memory)];
        ends[who].mixed.sides.shm.lacks_descriptors = true;
        let to = ends[0].address;
        let peer = ends[1].mixed.call(&to).expect("a peer");
        say(&mut ends, 1, peer, b"one");
        wait(&mut ends, |ends| has_heard(&ends[0], b"one"));
        assert_eq!(ends[1].mixed.is_near(peer), Some(false));
    }
}

/// Its own address without its name: nobody else is there.
#[test]
fn one_that_calls_itself_by_tcp_finds_nobody() {
    let mut ends = [end(By::Tcp)];
    let own = Address::of_tcp(ends[0].address.tcp().expect("it listens"));
    let peer = ends[0].mixed.call(&own).expect("a number");
    wait(&mut ends, |ends| ends[0].heard.dead == [peer]);
}

/// One that takes a packet per poll, as an engine does whose next message is better fetched first.
#[derive(Default)]
struct Slow {
    packets: Vec<Peer>,
    has_had: bool,
}

impl Sink for Slow {
    fn packet(&mut self, peer: Peer, _head: &[u8], _payload: &[u8]) {
        self.packets.push(peer);
        self.has_had = true;
    }

    fn wants_more(&self) -> bool {
        !self.has_had
    }

    fn dead(&mut self, _peer: Peer) {}
}

#[test]
fn one_that_sends_by_memory_without_end_does_not_keep_those_by_tcp_from_being_heard() {
    let mut ends = [end(By::Memory), end(By::Memory), end(By::Tcp)];
    let to = ends[0].address;
    let peers = [1, 2].map(|from: usize| {
        let peer = ends[from].mixed.call(&to).expect("a peer");
        say(&mut ends, from, peer, b"one");
        wait(&mut ends, |ends| has_heard(&ends[0], b"one"));
        ends[0].heard.packets.clear();
        peer
    });
    ends[2].mixed.send(peers[1], b"two", 0, |_| ()).expect("there is room");
    let mut slow = Slow::default();
    // What is sent takes some time by TCP.
    for _ in 0..100_000 {
        let _ = ends[1].mixed.send(peers[0], b"three", 0, |_| ());
        ends[2].mixed.poll(64, &mut Heard::default());
        slow.has_had = false;
        ends[0].mixed.poll(64, &mut slow);
        if slow.packets.contains(&Peer(1)) {
            return;
        }
    }
    panic!("it is not heard");
}

/// Each field of an address says something else than what is so; but for the machine's address, where nobody answers until
/// patience ends.
#[test]
fn addresses_that_lie_lead_to_nobody_or_to_the_one_they_name() {
    for by in [By::Memory, By::Tcp] {
        let mut ends = [end(by), end(by)];
        let right = ends[1].address.encode();
        for at in 0..ADDRESS_BYTES - 16 {
            for bit in [1, 0x80] {
                let mut bytes = right;
                bytes[at] ^= bit;
                let Some(lie) = Address::decode(&bytes) else { continue };
                let peer = ends[0].mixed.call(&lie).expect("a number");
                let said = [at as u8, bit];
                wait(&mut ends, |ends| {
                    let _ = ends[0].mixed.send(peer, &said, 0, |_| ());
                    ends[0].heard.dead.contains(&peer) || has_heard(&ends[1], &said)
                });
            }
        }
        // None of it keeps the two apart.
        let to = ends[1].address;
        let peer = ends[0].mixed.call(&to).expect("a peer");
        say(&mut ends, 0, peer, b"right");
        wait(&mut ends, |ends| has_heard(&ends[1], b"right"));
    }
}

#[test]
fn one_that_is_gone_is_found_to_be_dead() {
    for by in [By::Memory, By::Tcp] {
        let mut ends = vec![end(by), end(by)];
        let to = ends[1].address;
        ends.truncate(1);
        let peer = ends[0].mixed.call(&to).expect("a number");
        wait(&mut ends, |ends| ends[0].heard.dead == [peer]);
    }
}

#[test]
fn one_that_is_not_seen_from_here_is_met_by_tcp() {
    let mut ends = [end(By::Memory), end(By::Memory)];
    // As if its socket were in another network namespace.
    let mut to = ends[1].address;
    ends[1].mixed.door.as_mut().expect("a door").me.id[0] ^= 1;
    to.id[0] ^= 1;
    let peer = ends[0].mixed.call(&to).expect("a peer");
    say(&mut ends, 0, peer, b"one");
    wait(&mut ends, |ends| has_heard(&ends[1], b"one"));
    assert_eq!(ends[0].mixed.is_near(peer), Some(false));
}

/// One that shared memory itself says has come, before anybody asked for it.
#[test]
fn one_that_a_transport_tells_of_first_is_reached_by_that_transport() {
    let mut ends = [end(By::Memory)];
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let other = std::thread::spawn(move || {
        let mut shm = Shm::new(settings(By::Memory).shm).expect("shared memory");
        shm.meet(theirs).expect("they meet");
        shm
    });
    ends[0].mixed.sides.shm.meet(ours).expect("they meet");
    let End { mixed, heard, .. } = &mut ends[0];
    mixed.sides.poll_near(64, heard);
    assert_eq!(heard.joined, [Peer(0)]);
    assert_eq!(mixed.sides.all, [Side::Near(0)]);
    drop(other.join().expect("it is there"));
}

#[test]
fn only_its_tcp_address_is_enough_to_meet_one() {
    let mut ends = [end(By::Memory), end(By::Memory)];
    let to = ends[1].address;
    let tcp = to.tcp().expect("it listens");
    let peer = ends[0].mixed.call(&Address::of_tcp(tcp)).expect("a peer");
    say(&mut ends, 0, peer, b"one");
    wait(&mut ends, |ends| has_heard(&ends[1], b"one"));
    // From then on it is known by its name.
    assert_eq!(ends[0].mixed.call(&to).expect("a peer"), peer);
}

#[test]
fn what_is_sent_to_oneself_arrives() {
    let mut ends = [end(By::Memory)];
    let to = ends[0].address;
    let own = ends[0].mixed.call(&to).expect("a peer");
    say(&mut ends, 0, own, b"one");
    wait(&mut ends, |ends| has_heard(&ends[0], b"one"));
    assert_eq!(ends[0].heard.packets, [(own, b"one".to_vec())]);
}

#[test]
fn memory_that_is_full_of_peers_leaves_tcp() {
    let few = |peers_max| {
        let mut settings = settings(By::Memory);
        settings.shm.peers_max = peers_max;
        end_with(&settings, b"quail")
    };
    let mut ends = vec![few(1), few(8), few(8)];
    let to = ends[0].address;
    for from in 1..3 {
        let peer = ends[from].mixed.call(&to).expect("a peer");
        say(&mut ends, from, peer, &[from as u8]);
        wait(&mut ends, |ends| has_heard(&ends[0], &[from as u8]));
        assert_eq!(ends[from].mixed.is_near(peer), Some(from == 1));
    }
}

/// A program that was started again at the same port is another one.
#[test]
fn one_that_was_started_again_at_the_same_address_is_not_taken_for_the_one_before() {
    for by in [By::Memory, By::Tcp] {
        let mut ends = vec![end(by), end(by)];
        let before = ends[1].address;
        let peer = ends[0].mixed.call(&before).expect("a peer");
        say(&mut ends, 0, peer, b"one");
        wait(&mut ends, |ends| has_heard(&ends[1], b"one"));
        ends.truncate(1);
        let again = Settings { tcp: before.tcp(), ..settings(by) };
        ends.push(end_with(&again, b"quail"));
        wait(&mut ends, |ends| ends[0].heard.dead == [peer]);
        // Its old name leads to nobody, its new one to it.
        let late = ends[0].mixed.call(&before).expect("a number");
        wait(&mut ends, |ends| ends[0].heard.dead.contains(&late));
        let after = ends[1].address;
        assert_eq!(after.tcp(), before.tcp());
        let peer = ends[0].mixed.call(&after).expect("a peer");
        say(&mut ends, 0, peer, b"two");
        wait(&mut ends, |ends| has_heard(&ends[1], b"two"));
        assert!(!has_heard(&ends[1], b"one"));
    }
}

/// What somebody else of the machine says at the socket of an endpoint, whatever it knows.
#[test]
fn another_user_of_the_machine_is_not_heard_even_with_the_secret() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut ends = [end(By::Memory), end(By::Memory)];
    let to = ends[0].address;
    let of = Address { user: to.user, ..ends[1].address };
    let other = std::thread::spawn(move || {
        // SAFETY: it takes numbers, and changes this thread alone.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
        let line::Socket::Near(stream) = line::Socket::call_near(&to).expect("it is seen") else {
            unreachable!("it was called by its socket");
        };
        let secret = Secret::of(b"quail");
        let (greeting, first) = greeting::Greeting::calls(&secret, &of, [7; 32]);
        let mut line = line::Line::new(line::Socket::Near(stream), greeting, first);
        let begun = Instant::now();
        loop {
            match line.go_on() {
                Ok(greeting::Step::More) => assert!(begun.elapsed() < Duration::from_secs(60)),
                Ok(step) => return Some(step),
                Err(_) => return None,
            }
        }
    });
    wait(&mut ends, |_| other.is_finished());
    assert_eq!(other.join().expect("it ends"), None, "it was answered");
    assert!(ends[0].heard.joined.is_empty() && ends[0].mixed.came().is_none());
    // Its own users are heard as before.
    let peer = ends[1].mixed.call(&to).expect("a peer");
    say(&mut ends, 1, peer, b"one");
    wait(&mut ends, |ends| has_heard(&ends[0], b"one"));
}
