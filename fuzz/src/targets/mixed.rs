//! Strangers at the door of an endpoint: what they say before they are peers, and what they answer when they are called.

use covey_io::os::mixed::{Address, Mixed, Secret, Settings};
use covey_wire::transport::Sink;
use covey_wire::{Peer, Transport};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Polls after the last byte came; each hundred looks at the door.
const POLLS: usize = 2000;

#[derive(Default)]
struct Heard {
    joined: usize,
    packets: usize,
}

impl Sink for Heard {
    fn joined(&mut self, _: Peer) {
        self.joined += 1;
    }

    fn packet(&mut self, _: Peer, _: &[u8], _: &[u8]) {
        self.packets += 1;
    }

    fn dead(&mut self, _: Peer) {}
}

/// An endpoint that listens by TCP only.
fn endpoint() -> (Mixed, Address) {
    let tcp = Some(([127, 0, 0, 1], 0).into());
    let mut settings = Settings { near: false, tcp, ..Settings::default() };
    (settings.shm.heap_bytes, settings.shm.peers_max) = (1 << 16, 4);
    let mut mixed = Mixed::new(&settings).expect("a transport");
    let address = mixed.open(&settings, Secret::of(b"quail")).expect("a door");
    (mixed, address)
}

/// What a stranger says to one that it calls: nobody joins, and no packet is taken.
pub fn callers(data: &[u8]) {
    let (mut mixed, address) = endpoint();
    let mut heard = Heard::default();
    let mut stranger = TcpStream::connect(address.tcp().expect("it listens")).expect("loopback");
    // In two parts, between which the other may answer.
    let (first, second) = data.split_at(data.len().min(96));
    let _ = stranger.write_all(first);
    poll(&mut mixed, &mut heard);
    let _ = stranger.write_all(second);
    poll(&mut mixed, &mut heard);
    drop(stranger);
    poll(&mut mixed, &mut heard);
    assert_eq!((heard.joined, heard.packets), (0, 0));
}

/// What a stranger answers that is called: it may be called, as its number is given at once, and says nothing that is taken.
pub fn called(data: &[u8]) {
    let (mut mixed, _) = endpoint();
    let mut heard = Heard::default();
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let to = listener.local_addr().expect("it is bound");
    let peer = mixed.call(&Address::of_tcp(to)).expect("a number");
    let (mut stranger, _) = listener.accept().expect("it has come");
    poll(&mut mixed, &mut heard);
    let mut card = [0; 96];
    let _ = stranger.read_exact(&mut card);
    let _ = stranger.write_all(data);
    poll(&mut mixed, &mut heard);
    assert!(mixed.send(peer, b"a head", 0, |_| ()).is_err());
    drop(stranger);
    poll(&mut mixed, &mut heard);
    assert_eq!((heard.joined, heard.packets), (1, 0));
}

/// An address that a program was given by anybody.
pub fn address(data: &[u8]) {
    if let Some(address) = Address::decode(data) {
        assert_eq!(Address::decode(&address.encode()), Some(address));
        assert!(!address.to_string().is_empty());
    }
}

fn poll(mixed: &mut Mixed, heard: &mut Heard) {
    for _ in 0..POLLS {
        mixed.poll(16, heard);
    }
}

/// A card as endpoints have it, and with something behind it.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let (_, address) = endpoint();
    let card = [&b"COVEYMX3"[..], &[7; 32], &address.encode()].concat();
    let proven = [&card[..], &[9; 32]].concat();
    vec![
        ("mixed_callers", card),
        ("mixed_callers", proven.clone()),
        ("mixed_called", proven),
        ("mixed_address", address.encode().to_vec()),
    ]
}
