//! What an engine refuses, each by its name: the one operation has no effect, and everything else goes on.

use covey_io::sim::{CarrierProfile, Carriers, SimMemory, SimTransport};
use covey_layout::{Block, Element, Layout, Op};
use covey_uzura::{
    Completion, Config, End, Engine, Fault, Form, HEADER_BYTES_MAX, Key, Local, Message, OpId,
    Remote, Rights, Rule, Source, Started, Tag,
};
use covey_wire::{Peer, Span};

type Half = Engine<SimTransport, SimMemory>;
type Begun = Result<Started, Fault>;

/// Two engines that know each other. What is tried is tried at the first, and the second has registered memory.
struct Two {
    carriers: Carriers,
    here: Half,
    there: Half,
    peer: Peer,
    key: Key,
}

const MEMORY_BYTES: usize = 1 << 20;

fn two(profile: CarrierProfile, config: Config) -> Two {
    let carriers = Carriers::new(1, 2, MEMORY_BYTES, profile);
    let [here, there] = [0, 1].map(|index| {
        let (transport, memory) = carriers.end(index);
        Engine::new(transport, memory, config.clone())
    });
    let peer = Carriers::peer(0, 1);
    let mut two = Two { carriers, here, there, peer, key: Key(0) };
    two.go_on();
    let whole = Span::new(Carriers::address(1), 4096);
    two.key = two.there.register(whole, Rights::ALL).expect("there is room");
    two
}

impl Two {
    fn go_on(&mut self) {
        for _ in 0..200 {
            self.carriers.step();
            self.here.poll();
            self.there.poll();
        }
    }

    fn here_goes_on(&mut self) {
        for _ in 0..200 {
            self.carriers.step();
            self.here.poll();
        }
    }

    /// How something ended here.
    fn end(&mut self, begun: Begun) -> Result<Completion, Fault> {
        let completion = match begun? {
            Started::Done(completion) => completion,
            Started::Pending(_) => {
                self.go_on();
                self.here.completion().expect("it ends")
            }
        };
        completion.result.map(|()| completion)
    }

    fn remote(&self, form: Option<Form>) -> Remote {
        Remote { peer: self.peer, key: self.key, at: 0, form }
    }

    /// A message passes from here to there.
    fn goes_on(&mut self) {
        let into = Local::bytes(Span::new(Carriers::address(1) + 8192, 8));
        let from = Source::From(Carriers::peer(1, 0));
        let received = self.there.receive(from, Tag::exact(1), into, 9);
        assert!(matches!(received, Ok(Started::Pending(_))), "{received:?}");
        let sent = self.here.send(self.peer, 1, bytes(0, 8), 0);
        self.end(sent).expect("it is sent");
        self.go_on();
        let done = self.there.completion().expect("it comes");
        assert_eq!((done.context, done.result), (9, Ok(())));
    }
}

/// Memory of the first process.
fn bytes(at: u64, bytes: u64) -> Local {
    Local::bytes(Span::new(Carriers::address(0) + at, bytes))
}

/// Where peers' memory can be reached, and where it cannot.
fn profile(is_reached: bool) -> CarrierProfile {
    CarrierProfile {
        packet_bytes_max: 1024,
        post_bytes_max: 0,
        packets_max: 64,
        refused_permille: 0,
        delay_max: 2,
        lost_permille: 0,
        view: is_reached,
        shared_permille: 0,
        one_copy: is_reached,
        published: is_reached,
        card: None,
    }
}

#[test]
fn a_peer_that_never_was_and_memory_that_is_not_there_are_named() {
    for profile in [false, true].map(profile) {
        let mut two = two(profile, Config::default());
        let nobody = Peer(7);
        assert_eq!(two.here.send(nobody, 1, bytes(0, 8), 0), Err(Fault::NoPeer));
        let from = Source::From(nobody);
        assert_eq!(two.here.receive(from, Tag::ANY, bytes(0, 8), 0), Err(Fault::NoPeer));
        let remote = Remote { peer: nobody, ..two.remote(None) };
        assert_eq!(two.here.get(bytes(0, 8), remote, 0), Err(Fault::NoPeer));
        let outside = bytes(MEMORY_BYTES as u64 - 4, 8);
        assert_eq!(two.here.send(two.peer, 1, outside, 0), Err(Fault::NoMemory));
        assert_eq!(two.here.receive(Source::Any, Tag::ANY, outside, 0), Err(Fault::NoMemory));
        two.goes_on();
    }
}

#[test]
fn layouts_that_do_not_fit_or_write_a_byte_twice_are_named() {
    for profile in [false, true].map(profile) {
        let mut two = two(profile, Config::default());
        let blocks = [0, 0].map(|displacement| Block { count: 1, displacement });
        let twice = Layout::indexed(&blocks, &Layout::element(Element::F32)).expect("small");
        let twice = two.here.commit(&twice, 1).expect("it can be read");
        let span = bytes(0, 64).span;
        let laid = Local::laid(span, twice);
        assert_eq!(two.here.receive(Source::Any, Tag::ANY, laid, 0), Err(Fault::Layout));
        let remote = two.remote(Some(twice));
        assert_eq!(two.here.put(bytes(0, 8), remote, 0), Err(Fault::Layout));
        assert_eq!(two.here.get(bytes(0, 12), remote, 0), Err(Fault::Sizes));
        let short = Local::laid(Span::new(span.address, 3), twice);
        assert_eq!(two.here.send(two.peer, 1, short, 0), Err(Fault::OutOfRange));
        let (a, b, c) = (bytes(0, 8), bytes(8, 8), bytes(16, 4));
        let remote = two.remote(None);
        assert_eq!(two.here.fetch(Op::Replace, a, c, remote, 0), Err(Fault::Sizes));
        assert_eq!(two.here.compare_swap(a, b, c, remote, 0), Err(Fault::Sizes));
        assert_eq!(two.here.free(Form::of_number(77)), Err(Fault::NoSuch));
        let nothing = Local::laid(span, Form::of_number(77));
        assert_eq!(two.here.send(two.peer, 1, nothing, 0), Err(Fault::NoSuch));
        assert!(!two.here.cancel(OpId::of_number(12345)));
        two.goes_on();
    }
}

#[test]
fn operations_that_elements_do_not_have_and_what_is_too_long_are_named() {
    for profile in [false, true].map(profile) {
        let mut two = two(profile, Config::default());
        let floats = two.here.commit(&Layout::element(Element::F32), 2).expect("small");
        let remote = two.remote(Some(floats));
        let bits = two.here.accumulate(Op::Band, bytes(0, 8), remote, 0);
        assert_eq!(bits, Err(Fault::Operation));
        let header = [0; HEADER_BYTES_MAX + 1];
        let headed = two.here.send_headed(two.peer, 1, &header, bytes(0, 8), 0);
        assert_eq!(headed, Err(Fault::TooLong));
        let half = MEMORY_BYTES as u64 / 4;
        let remote = two.remote(None);
        let swap = two.here.compare_swap(
            bytes(0, half),
            bytes(half, half),
            bytes(2 * half, half),
            remote,
            0,
        );
        assert_eq!(swap, Err(Fault::TooLong));
        let rule = |mask, value, header_bytes| Rule {
            from: Source::Any,
            tag: Tag::ANY,
            mask,
            value,
            header: bytes(0, header_bytes).span,
            payload: bytes(1024, 8),
        };
        let long = [0; HEADER_BYTES_MAX + 1];
        assert_eq!(two.here.place(&rule(&long, &long, 1024), 0), Err(Fault::TooLong));
        assert_eq!(two.here.place(&rule(&[0; 4], &[0; 3], 4), 0), Err(Fault::Sizes));
        assert_eq!(two.here.place(&rule(&[0; 4], &[0; 4], 3), 0), Err(Fault::Sizes));
        two.goes_on();
    }
}

#[test]
fn more_operations_than_there_is_room_for_are_refused_until_some_have_ended() {
    let config = Config { operations_max: 2, ..Config::default() };
    let mut two = two(profile(true), config);
    let mut receive = |at| two.here.receive(Source::Any, Tag::ANY, bytes(at, 8), at);
    let begun = [receive(0), receive(8)];
    assert_eq!(receive(16), Err(Fault::Busy));
    let Ok(Started::Pending(first)) = begun[0] else { panic!("{begun:?}") };
    assert!(two.here.cancel(first));
    assert_eq!(two.here.completion().expect("it ends").result, Err(Fault::Cancelled));
    assert!(two.here.receive(Source::Any, Tag::ANY, bytes(16, 8), 16).is_ok());
}

#[test]
fn a_get_into_the_memory_that_it_reads_is_named() {
    // The first process's own memory, by the address that it is mapped at.
    let mut two = two(profile(true), Config::default());
    let into = Local::bytes(Span::new(Carriers::address(1), 8));
    let remote = two.remote(None);
    let begun = two.here.get(into, remote, 0);
    let ended = two.end(begun).map(drop);
    assert_eq!(ended, Err(Fault::Overlap));
    two.goes_on();
}

#[test]
fn a_buffer_for_many_whose_sender_dies_is_released_after_its_last_message() {
    for from in [Source::Any, Source::From(Carriers::peer(0, 1))] {
        let mut two = two(profile(false), Config { eager_bytes_max: 64, ..Config::default() });
        let into = Span::new(Carriers::address(0), 4096);
        two.here.receive_many(from, into, 64, 5).expect("there is room");
        for length in [16, 500] {
            let what = Local::bytes(Span::new(Carriers::address(1), length));
            let message = Message::default();
            assert!(two.there.send_message(Carriers::peer(1, 0), &message, what, 0).is_ok());
        }
        // The second one has been asked for, and is not answered.
        two.here_goes_on();
        two.carriers.kill(1);
        two.here_goes_on();
        let mut ends = std::iter::from_fn(|| two.here.completion());
        let mut next = || ends.next().map(|done| (done.end, done.result, done.at, done.bytes));
        assert_eq!(next(), Some((End::Part, Ok(()), 0, 16)));
        assert_eq!(next(), Some((End::Part, Err(Fault::PeerDead), 16, 500)));
        // Who receives of anybody waits for others.
        let released = (End::Released, Err(Fault::PeerDead), 0, 516);
        assert_eq!(next(), (from != Source::Any).then_some(released));
        assert_eq!(next(), None);
    }
}
