use super::*;
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

    fn packet(&mut self, _: Peer, head: &[u8], payload: &[u8]) {
        assert!(self.dead.is_empty(), "nothing comes from the dead");
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
    let mut state = bytes as u32 | 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
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
