use super::*;
use crate::sim::Rng;
use std::collections::HashMap;
use std::io::Write;

/// Remembers everything. Payloads whose head begins with `P` have a place.
#[derive(Default)]
struct Record {
    joined: Vec<Peer>,
    packets: Vec<(Vec<u8>, Vec<u8>)>,
    places: HashMap<Vec<u8>, Vec<u8>>,
    placed: Vec<Vec<u8>>,
    sent: Vec<u64>,
    dead: Vec<Peer>,
}

impl Sink for Record {
    fn joined(&mut self, peer: Peer) {
        self.joined.push(peer);
    }

    fn packet(&mut self, peer: Peer, head: &[u8], payload: &[u8]) {
        assert!(!self.dead.contains(&peer), "nothing comes from the dead");
        self.packets.push((head.to_vec(), payload.to_vec()));
    }

    fn place(&mut self, _: Peer, head: &[u8], bytes: usize) -> Option<Span> {
        if head.first() != Some(&b'P') {
            return None;
        }
        let place = self.places.entry(head.to_vec()).or_insert_with(|| vec![0; bytes]);
        Some(span(place))
    }

    fn placed(&mut self, _: Peer, head: &[u8], bytes: usize) {
        assert_eq!(self.places[head].len(), bytes);
        self.placed.push(head.to_vec());
    }

    fn sent(&mut self, token: u64) {
        self.sent.push(token);
    }

    fn dead(&mut self, peer: Peer) {
        self.dead.push(peer);
    }
}

fn span(bytes: &[u8]) -> Span {
    Span::new(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)
}

/// One end with what it was told.
struct End {
    tcp: Tcp,
    heard: Record,
}

impl End {
    fn new() -> End {
        End { tcp: Tcp::new(Options::default()).unwrap(), heard: Record::default() }
    }

    fn poll(&mut self) -> usize {
        self.tcp.poll(8, &mut self.heard)
    }

    /// Sends however often it is refused.
    fn send(&mut self, other: &mut End, head: &[u8], payload: &[u8]) {
        loop {
            match self.tcp.send(Peer(0), head, payload.len(), |room| room.copy_from_slice(payload))
            {
                Ok(()) => return,
                Err(refused) => assert_eq!(refused, Refused::Full),
            }
            self.poll();
            other.poll();
        }
    }
}

/// Two that have met.
fn pair() -> (End, End) {
    let (mut a, mut b) = (End::new(), End::new());
    let address = a.tcp.listen().unwrap();
    assert_eq!(b.tcp.connect(address).unwrap(), Peer(0));
    until(&mut a, &mut b, |a, b| a.heard.joined.len() + b.heard.joined.len() == 2);
    (a, b)
}

fn until(a: &mut End, b: &mut End, is_done: impl Fn(&End, &End) -> bool) {
    let begin = std::time::Instant::now();
    while !is_done(a, b) {
        if a.poll() + b.poll() == 0 {
            std::thread::yield_now();
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not happen");
    }
}

/// Bytes of which no two stretches are alike.
fn noise(bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(bytes as u64);
    (0..bytes).map(|_| rng.next() as u8).collect()
}

#[test]
fn packets_of_every_size_arrive_once_whole_and_in_order() {
    let (mut a, mut b) = pair();
    let sizes = [0, 1, 7, 64, 511, 4095, 4096, 4097, 40_000, PACKET_BYTES_MAX, 3, 12_345];
    let sent: Vec<(Vec<u8>, Vec<u8>)> = (0..200usize)
        .map(|at| ([&b"h"[..], &noise(at % 48)].concat(), noise(sizes[at % sizes.len()])))
        .collect();
    for (head, payload) in &sent {
        a.send(&mut b, head, payload);
    }
    until(&mut a, &mut b, |_, b| b.heard.packets.len() + b.heard.placed.len() == sent.len());
    assert_eq!(b.heard.packets, sent);
    let too_long = a.tcp.send(Peer(0), &[0; 49], 0, |_| ());
    assert_eq!(too_long, Err(Refused::Unsupported));
    let too_long = a.tcp.send(Peer(0), &[], PACKET_BYTES_MAX + 1, |_| panic!("it is not filled"));
    assert_eq!(too_long, Err(Refused::Unsupported));
}

#[test]
fn posted_memory_goes_where_its_receiver_wants_it() {
    let (mut a, mut b) = pair();
    let payloads: Vec<Vec<u8>> =
        [5, 70_000, 4096, 3 << 20, 0, 999_999, 1 << 20].map(noise).to_vec();
    let mut expected_sent = Vec::new();
    for (token, payload) in payloads.iter().enumerate() {
        let head = [b'P', token as u8];
        match a.tcp.post(token as u64, Peer(0), &head, span(payload)) {
            Ok(Transfer::Done) => {}
            Ok(Transfer::Started) => expected_sent.push(token as u64),
            Err(refused) => panic!("{refused:?}"),
        }
        a.send(&mut b, b"between", &[token as u8]);
    }
    assert!(!expected_sent.is_empty(), "3 MiB do not fit into a socket");
    until(&mut a, &mut b, |_, b| {
        b.heard.packets.len() + b.heard.placed.len() == 2 * payloads.len()
    });
    until(&mut a, &mut b, |a, _| a.heard.sent.len() == expected_sent.len());
    assert_eq!(a.heard.sent, expected_sent);
    for (token, payload) in payloads.iter().enumerate() {
        let head = vec![b'P', token as u8];
        let placed = b.heard.placed.contains(&head).then(|| b.heard.places[&head].clone());
        let packet =
            b.heard.packets.iter().find(|(one, _)| *one == head).map(|(_, bytes)| bytes.clone());
        assert_eq!(placed.or(packet).as_ref(), Some(payload), "{} bytes", payload.len());
    }
    assert!(b.heard.placed.len() >= 3, "long ones have not been copied: {:?}", b.heard.placed);
    let between = b.heard.packets.iter().filter(|(head, _)| head == b"between");
    assert!(between.map(|(_, payload)| payload[0]).eq(0..payloads.len() as u8), "in order");
}

#[test]
fn a_receiver_without_a_place_holds_a_long_payload() {
    let (mut a, mut b) = pair();
    let payload = noise(5 << 20);
    let _ = a.tcp.post(9, Peer(0), b"held", span(&payload)).unwrap();
    until(&mut a, &mut b, |_, b| b.heard.packets.len() == 1);
    assert!(b.heard.packets[0].1 == payload);
}

#[test]
fn one_that_reads_nothing_fills_up_and_is_not_dead() {
    let (mut a, mut b) = pair();
    let payload = noise(PACKET_BYTES_MAX);
    let mut count = 0;
    while a.tcp.send(Peer(0), &[], payload.len(), |room| room.copy_from_slice(&payload)).is_ok() {
        count += 1;
        assert!(count < 10_000, "somewhere it must be full");
    }
    a.poll();
    assert!(a.heard.dead.is_empty());
    until(&mut a, &mut b, |_, b| b.heard.packets.len() == count);
}

#[test]
fn a_peer_that_ends_is_told_of_once_after_its_last_packet() {
    let (mut a, mut b) = pair();
    b.send(&mut a, b"last", b"words");
    drop(b);
    let mut other = End::new();
    until(&mut a, &mut other, |a, _| !a.heard.dead.is_empty());
    assert_eq!(a.heard.packets, [(b"last".to_vec(), b"words".to_vec())]);
    for _ in 0..10 {
        a.poll();
    }
    assert_eq!(a.heard.dead, [Peer(0)]);
    assert_eq!(a.tcp.send(Peer(0), &[], 0, |_| ()), Err(Refused::Dead));
    assert_eq!(a.tcp.post(1, Peer(0), &[], Span::default()), Err(Refused::Dead));
    assert_eq!(a.tcp.send(Peer(7), &[], 0, |_| ()), Err(Refused::Dead));
    assert!(a.tcp.prepare_sleep(), "the dead do not keep anybody awake");
}

#[test]
fn what_is_no_frame_ends_its_connection_and_no_other() {
    let (mut a, mut b) = pair();
    let address = a.tcp.listen().unwrap();
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut liar = TcpStream::connect(address).unwrap();
    liar.write_all(&link::HELLO).unwrap();
    liar.write_all(&[0xff; 64]).unwrap();
    until(&mut a, &mut b, |a, _| a.heard.dead == [Peer(1)]);
    assert_eq!(a.heard.joined, [Peer(0), Peer(1)], "a stranger is nobody's peer");
    a.send(&mut b, b"still", b"here");
    until(&mut a, &mut b, |_, b| b.heard.packets.len() == 1);
}

#[test]
fn frames_that_claim_too_much_are_refused_before_memory_is_taken() {
    let (mut a, mut b) = pair();
    let address = a.tcp.listen().unwrap();
    for (number, prefix) in [
        [0xff, 0xff, 0xff, 0xff, 0, 0xc0, 0x7e, 0x59],
        [0, 0, 0, 0, 49, 0xc0, 0x7e, 0x59],
        [0, 0, 0, 0, 0, 0, 0, 0],
    ]
    .into_iter()
    .enumerate()
    {
        let mut liar = TcpStream::connect(address).unwrap();
        liar.write_all(&link::HELLO).unwrap();
        liar.write_all(&prefix).unwrap();
        until(&mut a, &mut b, |a, _| a.heard.dead.len() == number + 1);
    }
    assert!(a.heard.packets.is_empty());
}

#[test]
fn a_sleeper_wakes_when_something_comes() {
    let (mut a, mut b) = pair();
    until(&mut a, &mut b, |_, _| true);
    while a.poll() + b.poll() > 0 {}
    let ready = |end: &End, ms: i32| {
        let mut one =
            libc::pollfd { fd: end.tcp.sleep_on().unwrap(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, which lives here.
        unsafe { libc::poll(&raw mut one, 1, ms) == 1 }
    };
    assert!(a.tcp.prepare_sleep());
    assert!(!ready(&a, 0));
    b.send(&mut a, b"wake", b"up");
    assert!(ready(&a, 5000));
    a.tcp.woke();
    until(&mut a, &mut b, |a, _| a.heard.packets.len() == 1);
    // One that waits for room sleeps too.
    let payload = noise(8 << 20);
    let Ok(Transfer::Started) = a.tcp.post(1, Peer(0), b"P", span(&payload)) else {
        panic!("8 MiB do not fit into a socket")
    };
    assert!(a.tcp.prepare_sleep());
    a.tcp.woke();
    until(&mut a, &mut b, |a, _| a.heard.sent == [1]);
}

#[test]
fn one_that_leaves_is_dead_to_both() {
    let (mut a, mut b) = pair();
    a.tcp.leave(Peer(0));
    until(&mut a, &mut b, |a, b| a.heard.dead.len() + b.heard.dead.len() == 2);
}

#[test]
fn who_comes_is_accepted_once_and_nobody_comes_from_elsewhere() {
    let (mut a, mut b) = (End::new(), End::new());
    assert_eq!(a.tcp.address(), None);
    assert_eq!(a.tcp.accept(), None);
    let elsewhere = a.tcp.listen_at(([0, 0, 0, 0], 0).into());
    assert_eq!(elsewhere.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let address = a.tcp.listen_at(([127, 0, 0, 1], 0).into()).unwrap();
    assert_eq!(a.tcp.address(), Some(address));
    b.tcp.connect(address).unwrap();
    until(&mut a, &mut b, |a, b| a.heard.joined.len() + b.heard.joined.len() == 2);
    assert_eq!((a.tcp.accept(), a.tcp.accept()), (Some(Peer(0)), None));
}

/// One that listens, and others that have met it.
fn crowd(count: usize) -> (End, Vec<End>) {
    let mut a = End::new();
    let address = a.tcp.listen().unwrap();
    let mut others: Vec<End> = (0..count).map(|_| End::new()).collect();
    for (at, other) in others.iter_mut().enumerate() {
        other.tcp.connect(address).unwrap();
        until(&mut a, other, |a, other| a.heard.joined.len() + other.heard.joined.len() == at + 2);
    }
    (a, others)
}

#[test]
fn links_that_are_quiet_are_left_to_the_kernel_and_are_heard_all_the_same() {
    let (mut a, mut others) = crowd(4);
    for _ in 0..2 * QUIET_POLLS {
        a.poll();
    }
    assert!(a.tcp.near.len() <= 1, "nobody has said anything: {:?}", a.tcp.near);
    for round in 0..2 * BUSY_POLLS as usize {
        others[2].send(&mut a, b"again", b"");
        until(&mut a, &mut others[2], |a, _| a.heard.packets.len() == round + 1);
    }
    assert!(a.tcp.near.contains(&2));
    assert!(!a.tcp.links[2].is_watched(), "it is read from without being asked for");
    // One that is not near is heard beside one that is, and so is the end of another.
    others[0].send(&mut a, b"far", b"");
    others.remove(3);
    until(&mut a, &mut others[2], |a, _| {
        a.heard.packets.iter().any(|(head, _)| head == b"far") && a.heard.dead == [Peer(3)]
    });
    // What did not fit is seen to although nothing comes from there.
    let payload = noise(8 << 20);
    let begun = a.tcp.post(5, Peer(1), b"P", span(&payload)).unwrap();
    assert_eq!(begun, Transfer::Started);
    until(&mut a, &mut others[1], |a, b| a.heard.sent == [5] && b.heard.placed.len() == 1);
    a.tcp.leave(Peer(0));
    until(&mut a, &mut others[1], |a, _| a.heard.dead == [Peer(3), Peer(0)]);
}

#[test]
fn whoever_talks_without_end_does_not_keep_others_from_being_heard() {
    let (mut a, mut others) = crowd(3);
    let word = |end: &mut End| while end.tcp.send(Peer(0), b"more", 0, |_| ()).is_ok() {};
    word(&mut others[0]);
    word(&mut others[1]);
    others[2].send(&mut a, b"one", b"word");
    for _ in 0..2 * ROUNDS {
        a.poll();
        if a.heard.packets.iter().any(|(head, _)| head == b"one") {
            return;
        }
        (0..2).for_each(|at| word(&mut others[at]));
    }
    panic!("the third is not heard");
}

#[test]
fn one_that_sleeps_is_woken_by_everybody_and_by_newcomers() {
    let (mut a, mut others) = crowd(3);
    let woken = |a: &mut End| {
        let fd = a.tcp.sleep_on().unwrap();
        let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, which lives here.
        let is_woken = unsafe { libc::poll(&raw mut one, 1, 5000) == 1 };
        a.tcp.woke();
        is_woken
    };
    for round in 0..30 {
        while a.poll() > 0 {}
        assert!(a.tcp.prepare_sleep(), "nothing is there");
        others[round % 3].send(&mut a, b"wake", b"up");
        assert!(woken(&mut a));
        a.poll();
        assert_eq!(a.heard.packets.len(), round + 1, "the first poll after a sleep looks at all");
    }
    let address = a.tcp.address().unwrap();
    assert!(a.tcp.prepare_sleep());
    let mut new = End::new();
    new.tcp.connect(address).unwrap();
    assert!(woken(&mut a));
    until(&mut a, &mut new, |a, _| a.heard.joined.len() == 4);
}

#[test]
fn a_frame_that_is_cut_is_not_delivered_and_its_sender_is_dead() {
    let frame = [&[8, 0, 0, 0, 2, 0xc0, 0x7e, 0x59][..], b"hd", b"payload!"].concat();
    let long = [&[0, 0, 1, 0, 2, 0xc0, 0x7e, 0x59][..], b"Pl", &[7; 50_000]].concat();
    let held = [&[0, 0, 1, 0, 2, 0xc0, 0x7e, 0x59][..], b"hd", &[7; 50_000]].concat();
    let mut cuts: Vec<Vec<u8>> = (1..frame.len()).map(|at| frame[..at].to_vec()).collect();
    cuts.extend([long, held]);
    let (mut a, mut b) = pair();
    let address = a.tcp.listen().unwrap();
    for (count, cut) in cuts.iter().enumerate() {
        let mut liar = TcpStream::connect(address).unwrap();
        liar.write_all(&[&link::HELLO[..], &frame, cut].concat()).unwrap();
        // Parts of a long payload are read before the end comes.
        until(&mut a, &mut b, |a, _| a.heard.packets.len() == count + 1);
        drop(liar);
        until(&mut a, &mut b, |a, _| a.heard.dead.len() == count + 1);
        assert_eq!(a.heard.packets.len(), count + 1, "cut after {} bytes", cut.len());
        a.send(&mut b, b"still", b"here");
    }
    assert!(a.heard.placed.is_empty());
    until(&mut a, &mut b, |_, b| b.heard.packets.len() == cuts.len());
}

#[test]
fn another_version_is_nobodys_peer_and_ends_a_connection_that_was_made_to_it() {
    let mut a = End::new();
    let address = a.tcp.listen().unwrap();
    let mut newer = TcpStream::connect(address).unwrap();
    newer.write_all(b"COVEYUZ2").unwrap();
    let mut other = End::new();
    until(&mut a, &mut other, |a, _| a.tcp.strangers.is_empty() && !is_open(&newer));
    assert!(a.heard.joined.is_empty());

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    other.tcp.connect(listener.local_addr().unwrap()).unwrap();
    listener.accept().unwrap().0.write_all(b"COVEYUZ2 and more").unwrap();
    until(&mut a, &mut other, |_, other| other.heard.dead == [Peer(0)]);
    assert!(other.heard.packets.is_empty());
    assert_eq!(other.tcp.send(Peer(0), &[], 0, |_| ()), Err(Refused::Dead));
}

/// Whether the other end has not closed: its hello was read, and then nothing.
fn is_open(mut stream: &TcpStream) -> bool {
    use std::io::Read;
    stream.set_nonblocking(true).unwrap();
    let mut room = [0; 64];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn a_connection_to_nobody_is_refused_and_leaves_no_peer() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut end = End::new();
    assert_eq!(end.tcp.connect(free).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    end.poll();
    assert!(end.heard.joined.is_empty() && end.heard.dead.is_empty());
}

#[test]
fn packets_that_may_leave_together_do_at_the_word_and_when_their_sender_polls() {
    let (mut a, mut b) = pair();
    let quiet = |b: &mut End| (0..100).all(|_| b.poll() == 0);
    while a.poll() + b.poll() > 0 {}
    for round in 0..2 {
        a.tcp.gather(true);
        (0..50).for_each(|at| a.send(&mut b, b"kept", &[at]));
        assert!(quiet(&mut b), "they wait for each other");
        match round {
            0 => a.tcp.gather(false),
            _ => drop(a.poll()),
        }
        // Nobody polls there any more.
        let begin = std::time::Instant::now();
        while b.heard.packets.len() < 50 * (round + 1) {
            b.poll();
            assert!(begin.elapsed() < Duration::from_secs(20), "something was left lying");
        }
        a.tcp.gather(false);
    }
    let payloads = b.heard.packets.iter().map(|(_, payload)| payload[0]);
    assert!(payloads.eq((0..50).chain(0..50)), "in order");

    // What is much leaves by itself, and posted memory takes with it what was before.
    a.tcp.gather(true);
    let payload = noise(PACKET_BYTES_MAX);
    a.send(&mut b, b"much", &payload);
    a.send(&mut b, b"kept", &[0]);
    assert_eq!(a.tcp.post(1, Peer(0), b"post", span(&payload[..9])), Ok(Transfer::Done));
    let begin = std::time::Instant::now();
    while b.heard.packets.len() < 103 {
        b.poll();
        assert!(begin.elapsed() < Duration::from_secs(20), "something was left lying");
    }
    // One who is not there any more does not hold the word up.
    a.send(&mut b, b"kept", &[0]);
    drop(b);
    a.tcp.gather(false);
    let mut other = End::new();
    until(&mut a, &mut other, |a, _| a.heard.dead == [Peer(0)]);
}
