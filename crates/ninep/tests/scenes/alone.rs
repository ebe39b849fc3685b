//! Messages that come alone: whatever they are, the answers are those of a stream.

use covey_ninep::memory::MemoryTree;
use covey_ninep::message::{Dialect, Message, NOFID, NONUNAME, Number};
use covey_ninep::server::{Alone, Config, Session};
use covey_ninep::tree::Peer;
use covey_wire::{BytesMut, List, Machine, Rng, Segments};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Instant;

fn bytes(tag: u16, message: Message) -> Vec<u8> {
    let mut out = Segments::new();
    message.put(tag, Dialect::Linux, &mut out);
    out.runs().flatten().copied().collect()
}

/// A server that is given each message apart.
struct Server {
    session: Session<MemoryTree>,
    /// How often it was begun at once.
    begun: usize,
    has_ended: bool,
}

impl Server {
    fn new() -> Server {
        let tree = Rc::new(MemoryTree::default());
        let session = Session::new(tree, Peer::default(), Config::default());
        Server { session, begun: 0, has_ended: false }
    }

    fn ask(&mut self, message: &[u8], at_once: bool) -> Vec<u8> {
        if at_once && self.session.begin_alone(message) != Alone::Not {
            self.begun += 1;
        } else {
            let mut input = BytesMut::from(message);
            self.has_ended |= self.session.handle_input(Instant::now(), &mut input).is_err();
        }
        let polled = self.session.poll_user(&mut Context::from_waker(Waker::noop()));
        self.has_ended |= matches!(polled, std::task::Poll::Ready(Err(_)));
        let mut out = Segments::new();
        while self.session.poll_output(&mut out, 1 << 20) {}
        out.settle().expect("memory lends nothing");
        out.runs().flatten().copied().collect()
    }
}

fn random(rng: &mut Rng) -> Message {
    let fid = rng.below(6) as u32;
    let offset = rng.below(40);
    match rng.below(14) {
        0..4 => Message::Tread { fid, offset, count: rng.below(64) as u32 },
        4..8 => {
            let data = vec![rng.next() as u8; rng.index(50)];
            Message::Twrite { fid, offset, data: data.into() }
        }
        8 => Message::Tlopen { fid, flags: rng.below(3) as u32 },
        9 => Message::Tclunk { fid },
        10 => Message::Tflush { oldtag: rng.below(8) as u16 },
        11 => {
            let names = List(vec![["a", "fifo", "none"][rng.index(3)].into()]);
            Message::Twalk { fid: 0, newfid: 1 + rng.below(5) as u32, names }
        }
        12 => {
            let (name, mode) =
                if rng.below(2) == 0 { ("a", 0o100_644) } else { ("fifo", 0o10_644) };
            Message::Tmknod { dfid: 0, name: name.into(), mode, major: 0, minor: 0, gid: 0 }
        }
        _ => Message::Tgetattr { fid, request_mask: 0x3fff },
    }
}

/// The same to both, the one at once; how many of the messages could be.
fn compare(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let (mut stream, mut alone) = (Server::new(), Server::new());
    let version = Message::Tversion { msize: 16384, version: "9P2000.L".into() };
    let attach = Message::Tattach {
        fid: 0,
        afid: NOFID,
        uname: "".into(),
        aname: "".into(),
        n_uname: Number(NONUNAME),
    };
    let first = [bytes(0xffff, version), bytes(0, attach)];
    for turn in 0..200 {
        let mut message = match first.get(turn) {
            Some(message) => message.clone(),
            None => bytes(rng.below(8) as u16, random(&mut rng)),
        };
        if turn > 150 && rng.below(40) == 0 {
            let at = rng.index(message.len());
            message[at] ^= 1 << rng.below(8);
        }
        assert_eq!(stream.ask(&message, false), alone.ask(&message, true), "{seed}: {message:?}");
        assert_eq!(stream.has_ended, alone.has_ended, "{seed}: {message:?}");
        assert_eq!(stream.session.request_count(), alone.session.request_count());
        if stream.has_ended {
            break;
        }
    }
    alone.begun
}

#[test]
fn a_message_that_comes_alone_has_the_answer_of_a_stream() {
    let begun: usize = (1..=500).map(compare).sum();
    assert!(begun > 5000, "{begun} were begun at once");
}

#[test]
fn before_an_attach_nothing_is_begun() {
    let mut server = Server::new();
    let read = bytes(1, Message::Tread { fid: 0, offset: 0, count: 9 });
    assert_eq!(server.session.begin_alone(&read), Alone::Not);
    server
        .ask(&bytes(0xffff, Message::Tversion { msize: 16384, version: "9P2000.L".into() }), true);
    assert_eq!(server.session.begin_alone(&read), Alone::Not);
}
