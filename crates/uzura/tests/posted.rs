//! Memory of a peer that a card reads and writes when its turn comes, as verbs has it: its owner takes no part, ends come in
//! any order, and a key that was taken back meanwhile is refused by the card.

use covey_io::sim::{CarrierProfile, Carriers, SimMemory, SimTransport};
use covey_layout::{Element, Layout};
use covey_uzura::{
    Completion, Config, Engine, Fault, Key, Local, Remote, Rights, Source, Started, Tag,
};
use covey_wire::{Peer, Span};

type End = Engine<SimTransport, SimMemory>;

struct Two {
    carriers: Carriers,
    here: End,
    there: End,
    key: Key,
}

const PEER: Peer = Peer(0);

fn two(seed: u64, buffers: usize) -> Two {
    let profile = CarrierProfile {
        packet_bytes_max: 1024,
        post_bytes_max: 0,
        packets_max: 64,
        refused_permille: 0,
        delay_max: 2,
        lost_permille: 0,
        view: false,
        one_copy: false,
        shared_permille: 0,
        published: false,
        card: Some(buffers),
    };
    let carriers = Carriers::new(seed, 2, 1 << 20, profile);
    let [here, there] = [0, 1].map(|index| {
        let (transport, memory) = carriers.end(index);
        Engine::new(transport, memory, Config::default())
    });
    let mut two = Two { carriers, here, there, key: Key(0) };
    two.go_on();
    let whole = Span::new(Carriers::address(1), 1 << 16);
    two.key = two.there.register(whole, Rights::ALL).expect("there is room");
    two.carriers.look(1, |memory| {
        (0..1 << 16).for_each(|at| memory[at] = (at * 31 % 251) as u8);
    });
    // Until everybody has seen it.
    two.steps(1000);
    two
}

impl Two {
    fn steps(&mut self, count: usize) {
        (0..count).for_each(|_| self.carriers.step());
    }

    /// Only this side goes on: the other computes.
    fn here_goes_on(&mut self) {
        for _ in 0..400 {
            self.carriers.step();
            self.here.poll();
        }
    }

    fn go_on(&mut self) {
        for _ in 0..400 {
            self.carriers.step();
            self.here.poll();
            self.there.poll();
        }
    }

    fn remote(&self, at: u64) -> Remote {
        Remote { peer: PEER, key: self.key, at, form: None }
    }

    fn bytes(&self, at: usize, from: u64, count: usize) -> Vec<u8> {
        self.carriers.look(at, |memory| memory[from as usize..][..count].to_vec())
    }
}

fn here(at: u64, bytes: u64) -> Local {
    Local::bytes(Span::new(Carriers::address(0) + at, bytes))
}

fn pending(begun: Result<Started, Fault>) {
    assert!(matches!(begun, Ok(Started::Pending(_))), "it is done later: {begun:?}");
}

#[test]
fn a_card_gets_and_puts_while_the_peer_computes_and_ends_come_in_any_order() {
    let mut is_reordered = false;
    for seed in 0..20 {
        let mut two = two(seed, 4);
        for at in 0..8 {
            let (ours, theirs) = (here(at * 512, 512), two.remote(at * 512));
            let begun = match at % 2 {
                0 => two.here.get(ours, theirs, at),
                _ => two.here.put(ours, theirs, at),
            };
            pending(begun);
        }
        two.here_goes_on();
        let ends: Vec<Completion> = std::iter::from_fn(|| two.here.completion()).collect();
        assert_eq!(ends.len(), 8, "all have ended");
        assert!(ends.iter().all(|end| end.result.is_ok() && end.bytes == 512), "{ends:?}");
        is_reordered |= ends.windows(2).any(|pair| pair[0].context > pair[1].context);
        assert!((0..8).all(|at| two.bytes(0, at * 512, 512) == two.bytes(1, at * 512, 512)));
        assert_eq!(two.here.stats().direct, 8);
    }
    assert!(is_reordered);
}

#[test]
fn scattered_memory_goes_piece_by_piece_where_the_pieces_are_long() {
    let mut two = two(1, 4);
    let rows = |pitch| Layout::vector(20, 100, pitch, &Layout::element(Element::Byte));
    let [wide, narrow] =
        [300, 150].map(|pitch| two.here.commit(&rows(pitch).expect("small"), 1).expect("small"));
    let remote = Remote { form: Some(wide), ..two.remote(0) };
    let local = Local::laid(here(0, 20 * 150).span, narrow);
    pending(two.here.get(local, remote, 0));
    two.here_goes_on();
    assert_eq!(two.here.completion().map(|end| end.result), Some(Ok(())));
    for row in 0..20 {
        assert_eq!(two.bytes(0, row * 150, 100), two.bytes(1, row * 300, 100), "row {row}");
    }
    // Elements one by one are not for a card: the peer is asked.
    let elements = Layout::vector(1000, 1, 3, &Layout::element(Element::U16)).expect("small");
    let elements = two.here.commit(&elements, 1).expect("small");
    pending(two.here.get(here(0, 2000), Remote { form: Some(elements), ..remote }, 0));
    two.here_goes_on();
    assert_eq!(two.here.completion(), None);
    two.go_on();
    assert_eq!(two.here.completion().map(|end| end.result), Some(Ok(())));
}

#[test]
fn a_key_that_is_revoked_before_the_card_comes_to_it_is_refused_by_its_name() {
    for seed in 0..20 {
        let mut two = two(seed, 4);
        let before = two.bytes(1, 0, 4096);
        pending(two.here.put(here(8192, 4096), two.remote(0), 0));
        two.there.revoke(two.key).expect("it was there");
        two.go_on();
        let end = two.here.completion().expect("it ends");
        assert_eq!(end.result, Err(Fault::Revoked));
        assert_eq!(two.bytes(1, 0, 4096), before, "nothing was touched");
        // What is begun now may still see it; the card does not.
        pending(two.here.get(here(0, 64), two.remote(0), 0));
        two.go_on();
        assert_eq!(two.here.completion().map(|end| end.result), Some(Err(Fault::Revoked)));
    }
}

#[test]
fn a_dead_peer_ends_what_the_card_was_to_do_and_messages_wait_for_buffers() {
    let mut two = two(3, 1);
    for tag in 0..50 {
        let from = Source::From(PEER);
        pending(two.there.receive(from, Tag::exact(tag), local_there(tag * 8), tag));
        let sent = two.here.send(PEER, tag, here(tag * 8, 8), 0);
        assert!(sent.is_ok(), "{sent:?}");
    }
    for _ in 0..10 {
        two.go_on();
    }
    assert_eq!(std::iter::from_fn(|| two.there.completion()).count(), 50);
    pending(two.here.get(here(0, 4096), two.remote(0), 7));
    two.carriers.kill(1);
    for _ in 0..10 {
        two.here_goes_on();
    }
    let end = std::iter::from_fn(|| two.here.completion()).find(|end| end.context == 7);
    assert_eq!(end.map(|end| end.result), Some(Err(Fault::PeerDead)));
}

fn local_there(at: u64) -> Local {
    Local::bytes(Span::new(Carriers::address(1) + at, 8))
}
