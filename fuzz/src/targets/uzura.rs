//! What a peer of the message engine sends: heads and payloads of packets, and the frames that carry them over TCP.

use covey_io::os::own::Own;
use covey_io::os::packets::{Options, Tcp};
use covey_layout::{Element, Layout};
use covey_uzura::{Config, Done, Engine, Key, Local, Match, Message, Rights, Source, Tag};
use covey_wire::transport::{HEAD_BYTES_MAX, Refused, Sink};
use covey_wire::{Peer, Transport};
use std::collections::VecDeque;
use std::io::Write;
use std::net::{TcpListener, TcpStream};

const PEER: Peer = Peer(0);
const MEMORY: usize = 64 << 10;
/// What every frame has behind the lengths, as `docs/protocol/uzura.md` says.
const FRAME_MARK: [u8; 3] = [0xc0, 0x7e, 0x59];
/// Messages that are claimed and kept.
const CLAIMS_MAX: usize = 3;
/// Polls after the last byte came.
const POLLS: usize = 64;

/// Brings what the input says, and takes what the engine sends, now and then.
#[derive(Default)]
struct Liar {
    packets: VecDeque<(Vec<u8>, Vec<u8>)>,
    has_joined: bool,
    sent: usize,
}

impl Transport for Liar {
    fn packet_bytes_max(&self, _peer: Peer) -> usize {
        8192
    }

    fn send(
        &mut self,
        peer: Peer,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        assert!(head.len() <= HEAD_BYTES_MAX && bytes <= self.packet_bytes_max(peer));
        self.sent += 1;
        if self.sent.is_multiple_of(5) {
            return Err(Refused::Full);
        }
        fill(&mut vec![0; bytes]);
        Ok(())
    }

    fn poll(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        if !self.has_joined {
            self.has_joined = true;
            sink.joined(PEER);
            return 1;
        }
        let now = self.packets.len().min(budget);
        for (head, payload) in self.packets.drain(..now) {
            sink.packet(PEER, &head, &payload);
        }
        now
    }
}

/// Packets of a peer that says anything: the engine answers or buries it, touches no memory that it was not given, and
/// keeps no more than the window that it granted.
pub fn packets(data: &[u8]) {
    let mut memory = Own::default();
    let (inbox, shared) = (memory.block(MEMORY), memory.block(MEMORY));
    let mut engine = Engine::new(Liar::default(), memory, Config::default());
    engine.poll();
    let columns = Layout::vector(16, 1, 4, &Layout::element(Element::F32)).expect("it is small");
    let form = engine.commit(&columns, 4).expect("it is small");
    engine.register(shared, Rights::ALL).expect("there is room");
    engine.register_as(Key(1), shared, Rights::ALL).expect("it is free");
    let [half, rest, many] = [(0, 4096), (4096, 8192), (16384, 1024)]
        .map(|(at, bytes)| inbox.part(at, bytes).expect("it is longer"));
    for tag in [0, 1] {
        let _ = engine.receive(Source::Any, Tag::exact(tag), Local::bytes(half), tag);
    }
    let _ = engine.receive(Source::From(PEER), Tag::exact(2), Local::laid(rest, form), 2);
    let _ = engine.send(PEER, 7, Local::bytes(shared), 3);
    let delivered = Message { done: Done::Delivered, ..Message::default() };
    let _ = engine.send_message(PEER, &delivered, Local::bytes(half), 6);
    let _ = engine.receive(Source::Any, Match::Untagged, Local::bytes(half), 4);
    let _ = engine.receive_many(Source::From(PEER), many, 100, 7);
    let mut claims = VecDeque::new();
    let mut rest = data;
    while let Some((&[head_bytes, low, high], after)) = rest.split_first_chunk::<3>() {
        let head_bytes = (usize::from(head_bytes) % (HEAD_BYTES_MAX + 1)).min(after.len());
        let (head, after) = after.split_at(head_bytes);
        let payload = (usize::from(u16::from_le_bytes([low, high])) % 8193).min(after.len());
        let (payload, after) = after.split_at(payload);
        engine.transport().packets.push_back((head.to_vec(), payload.to_vec()));
        engine.poll();
        claims.extend(engine.claim(Source::Any, Match::Untagged));
        claims.extend(engine.claim(Source::Any, Tag::ANY));
        if claims.len() > CLAIMS_MAX
            && let Some((claim, probe)) = claims.pop_front()
        {
            match probe.bytes % 2 {
                0 => engine.discard(claim).expect("it was claimed"),
                _ => drop(engine.receive_claimed(claim, Local::bytes(half), 5)),
            }
        }
        rest = after;
    }
    for _ in 0..POLLS {
        engine.poll();
        while engine.completion().is_some() {}
    }
}

#[derive(Default)]
struct Count {
    dead: usize,
}

impl Sink for Count {
    fn packet(&mut self, _: Peer, head: &[u8], _: &[u8]) {
        assert!(head.len() <= HEAD_BYTES_MAX);
    }

    fn dead(&mut self, _: Peer) {
        self.dead += 1;
    }
}

/// Frames of a peer that says anything after its hello: packets, or the end of the connection, told once.
pub fn frames(data: &[u8]) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("it is bound");
    let mut liar = TcpStream::connect(address).expect("loopback");
    let (ours, _) = listener.accept().expect("it has come");
    let mut tcp = Tcp::new(Options::default()).expect("a watch");
    tcp.adopt(ours).expect("a socket");
    let _ = liar.write_all(&stream(data));
    drop(liar);
    let mut count = Count::default();
    for _ in 0..POLLS {
        tcp.poll(16, &mut count);
    }
    assert!(count.dead <= 1);
}

/// What the peer sends: frames whose head and payload the input has, and now and then the bytes as they are.
fn stream(data: &[u8]) -> Vec<u8> {
    let Some((says_hello, mut rest)) = data.split_first() else { return Vec::new() };
    let mut stream = if says_hello % 8 > 0 { b"COVEYUZ1".to_vec() } else { Vec::new() };
    while let Some((&[kind, head, low, high], after)) = rest.split_first_chunk::<4>() {
        if kind % 16 == 15 {
            stream.extend(&rest[1..]);
            break;
        }
        // Some say more than comes.
        let said = u32::from(u16::from_le_bytes([low, high])) << (kind % 16);
        stream.extend(said.to_le_bytes());
        stream.push(head);
        stream.extend(FRAME_MARK);
        let bytes = (usize::from(head) + said as usize).min(after.len());
        stream.extend(&after[..bytes]);
        rest = &after[bytes..];
    }
    stream
}

/// One packet of each kind that a peer begins with, and a frame.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let packet = |head: &[u8], payload: &[u8]| {
        let bytes = (payload.len() as u16).to_le_bytes();
        [&[head.len() as u8, bytes[0], bytes[1]], head, payload].concat()
    };
    let hello = packet(&[&[1, 2, 0][..], &(1u64 << 20).to_le_bytes()].concat(), &[]);
    let eager = packet(&[2, 0, 0, 0, 0, 0, 0, 0, 0], b"a message");
    let ready = [
        &[3, 1, 0, 0, 0, 0, 0xff, 0xff][..],
        &[2, 0, 0, 0, 0, 0, 0, 0],
        &[0; 8],
        &[0, 32],
        &[0; 14],
    ];
    let pull = packet(&[&[4][..], &[0; 8], &[0, 4], &[0; 6]].concat(), &[]);
    let data = packet(&[&[5][..], &[0; 12]].concat(), &[7; 64]);
    let untagged = packet(
        &[&[14][..], &[0; 4], &[7], &[0; 16], &[0xff; 2], &[0; 2]].concat(),
        b"without a tag",
    );
    let written = packet(&[15; 17], &[]);
    let atomic = [2, 4, 6].map(|element| {
        packet(
            &[&[16, 1, 0, 0, 0, 2, 1, element][..], &1u64.to_le_bytes(), &[0; 8]].concat(),
            &[1; 16],
        )
    });
    let all = [
        hello,
        atomic.concat(),
        eager,
        untagged,
        written,
        packet(&ready.concat(), &[]),
        pull,
        data,
    ]
    .concat();
    let frame = [&[1][..], &[0, 1, 4, 0, 9], b"four", &[0, 2, 0, 0, 7, 7]].concat();
    vec![("uzura_packets", all), ("uzura_frames", frame)]
}
