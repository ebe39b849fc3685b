//! A message that both ends copy, of a sender that breaks the rules meanwhile: it is let go at once, and its receive ends when
//! nobody writes into its memory any more.

use covey_io::sim::{CarrierProfile, Carriers, SimMemory, SimTransport};
use covey_uzura::{Config, Engine, Fault, Local, Source, Started, Tag};
use covey_wire::Span;
use covey_wire::transport::{Peer, Sink, Transport};

const BYTES: u64 = 4096;
const MESSAGE: u32 = 5;

/// A sender without an engine: it lends its one message.
struct Sender;

impl Sink for Sender {
    fn packet(&mut self, _peer: Peer, _head: &[u8], _payload: &[u8]) {}

    fn lends(&self, _peer: Peer, message: u32, span: Span) -> bool {
        (message, span) == (MESSAGE, Span::new(Carriers::address(1) + 8192, BYTES))
    }

    fn dead(&mut self, _peer: Peer) {}
}

/// Packets as the protocol's page has them.
fn hello() -> Vec<u8> {
    [&[1, 2, 0][..], &(1_u64 << 20).to_le_bytes()].concat()
}

fn ready() -> Vec<u8> {
    let address = Carriers::address(1) + 8192;
    let numbers = [1_u64, 0, BYTES, address].map(u64::to_le_bytes).concat();
    [&[3][..], &MESSAGE.to_le_bytes(), &[0, 0xff, 0xff], &numbers].concat()
}

/// A receive of so many bytes, whose message is being copied by both ends.
fn copying(seed: u64, bytes: u64) -> (Carriers, Engine<SimTransport, SimMemory>, SimTransport) {
    let profile = CarrierProfile {
        packet_bytes_max: 1024,
        post_bytes_max: 0,
        packets_max: 64,
        refused_permille: 0,
        delay_max: 0,
        lost_permille: 0,
        view: false,
        shared_permille: 1000,
        one_copy: true,
        published: true,
        card: None,
    };
    let carriers = Carriers::new(seed, 2, 1 << 20, profile);
    carriers.look(1, |memory| memory[8192..8192 + BYTES as usize].fill(7));
    let (transport, memory) = carriers.end(0);
    let mut engine = Engine::new(transport, memory, Config::default());
    let (mut sender, _) = carriers.end(1);
    let (us, it) = (Carriers::peer(1, 0), Carriers::peer(0, 1));
    let say = |sender: &mut SimTransport, head: &[u8]| sender.send(us, head, 0, |_| ());
    for _ in 0..9 {
        engine.poll();
        sender.poll(9, &mut Sender);
    }
    say(&mut sender, &hello()).expect("there is room");
    let into = Local::bytes(Span::new(Carriers::address(0), bytes));
    let begun = engine.receive(Source::From(it), Tag::exact(1), into, 0);
    assert!(matches!(begun, Ok(Started::Pending(_))), "{begun:?}");
    say(&mut sender, &ready()).expect("there is room");
    while carriers.shared() == 0 {
        engine.poll();
    }
    (carriers, engine, sender)
}

/// The seed's order of things. Says whether the sender was let go while the message was copied.
fn run(seed: u64) -> bool {
    let (carriers, mut engine, mut sender) = copying(seed, BYTES);
    let (us, it) = (Carriers::peer(1, 0), Carriers::peer(0, 1));
    let say = |sender: &mut SimTransport, head: &[u8]| sender.send(us, head, 0, |_| ());
    // No packet has this head.
    say(&mut sender, &[0xff]).expect("there is room");
    let mut was_shared = false;
    let completion = loop {
        engine.poll();
        sender.poll(1, &mut Sender);
        was_shared |= !engine.is_alive(it) && carriers.shared() > 0;
        if let Some(completion) = engine.completion() {
            break completion;
        }
    };
    assert_eq!(carriers.shared(), 0, "seed {seed}: it has ended, and is still copied");
    if was_shared {
        assert_eq!(completion.result, Err(Fault::PeerDead));
    }
    was_shared
}

#[test]
fn a_receive_of_a_sender_that_is_let_go_ends_when_its_memory_is_left_alone() {
    assert!((0..200).filter(|seed| run(*seed)).count() > 50);
}

/// The part that there was room for was lost too.
#[test]
fn a_message_that_is_cut_off_and_lost_with_its_sender_is_reported_as_lost() {
    for seed in 0..50 {
        let (carriers, mut engine, _sender) = copying(seed, BYTES / 2);
        carriers.kill(1);
        let completion = loop {
            carriers.step();
            engine.poll();
            if let Some(completion) = engine.completion() {
                break completion;
            }
        };
        let is_there =
            carriers.look(0, |memory| memory[..BYTES as usize / 2].iter().all(|byte| *byte == 7));
        let expected = if is_there { Fault::Truncated } else { Fault::PeerDead };
        assert_eq!(completion.result, Err(expected), "seed {seed}");
    }
}
