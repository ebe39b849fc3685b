//! Which receive, probe or claim gets which message, against a list that is searched from its beginning.

use covey_io::sim::{CarrierProfile, Carriers, SimMemory, SimTransport};
use covey_uzura::{
    Claim, Completion, Config, Done, End, Engine, Fault, Local, Match, Message, OpId, Probe,
    Source, Started, Tag,
};
use covey_wire::{Peer, Span};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The one that receives; the others send.
const RECEIVER: usize = 0;
const SENDERS: usize = 2;
const MESSAGE_BYTES_MAX: u64 = 512;
const MEMORY_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
enum Act {
    Send {
        from: usize,
        tag: Option<u64>,
        bytes: u64,
        data: Option<u64>,
        done: Done,
    },
    Receive {
        from: Option<usize>,
        which: Match,
    },
    /// Into a buffer of so many messages of the greatest length.
    ReceiveMany {
        from: Option<usize>,
        messages: u64,
        left_min: u64,
    },
    Probe {
        from: Option<usize>,
        which: Match,
    },
    Claim {
        from: Option<usize>,
        which: Match,
    },
    /// One of the claims, if there is one.
    ReceiveClaimed(usize),
    Discard(usize),
    /// One of the receives, ended or not.
    Cancel(usize),
}

fn acts() -> impl Strategy<Value = Act> {
    let from = || prop::option::of(1..=SENDERS);
    let which = || {
        prop_oneof![
            Just(Match::Untagged),
            (0..3_u64).prop_map(|tag| Match::Tagged(Tag::exact(tag))),
            Just(Match::Tagged(Tag { value: 1, ignore: 2 })),
            Just(Match::Tagged(Tag::ANY)),
        ]
    };
    let bytes = prop_oneof![8..100_u64, 200..MESSAGE_BYTES_MAX];
    let done = prop_oneof![Just(Done::Sent), Just(Done::Delivered)];
    prop_oneof![
        6 => (1..=SENDERS, prop::option::of(0..4_u64), bytes, any::<Option<u64>>(), done)
            .prop_map(|(from, tag, bytes, data, done)| Act::Send { from, tag, bytes, data, done }),
        4 => (from(), which()).prop_map(|(from, which)| Act::Receive { from, which }),
        2 => (from(), 1..6_u64, 0..MESSAGE_BYTES_MAX).prop_map(|(from, messages, left_min)| {
            Act::ReceiveMany { from, messages, left_min }
        }),
        2 => (from(), which()).prop_map(|(from, which)| Act::Probe { from, which }),
        2 => (from(), which()).prop_map(|(from, which)| Act::Claim { from, which }),
        1 => any::<usize>().prop_map(Act::ReceiveClaimed),
        1 => any::<usize>().prop_map(Act::Discard),
        1 => any::<usize>().prop_map(Act::Cancel),
    ]
}

/// A message as the reference keeps it.
#[derive(Clone, Debug)]
struct Sent {
    id: u64,
    from: usize,
    tag: Option<u64>,
    bytes: u64,
    data: Option<u64>,
}

#[derive(Clone, Debug)]
struct Posted {
    context: u64,
    from: Option<usize>,
    which: Match,
    many: Option<Many>,
}

/// A buffer that takes many.
#[derive(Clone, Copy, Debug)]
struct Many {
    bytes: u64,
    used: u64,
    left_min: u64,
}

/// What was to end, and how.
#[derive(Clone, Debug, PartialEq)]
enum Ended {
    Received {
        context: u64,
        id: u64,
        from: usize,
        tag: u64,
        bytes: u64,
        data: Option<u64>,
    },
    /// The same in a buffer for many, from this place on.
    Part {
        at: u64,
        message: Box<Ended>,
        is_whole: bool,
    },
    Released {
        context: u64,
        bytes: u64,
        is_cancelled: bool,
    },
    Cancelled {
        context: u64,
    },
}

impl Ended {
    fn context(&self) -> u64 {
        match self {
            Ended::Part { message, .. } => message.context(),
            Ended::Received { context, .. }
            | Ended::Released { context, .. }
            | Ended::Cancelled { context } => *context,
        }
    }

    fn is_release(&self) -> bool {
        matches!(self, Ended::Released { .. })
    }

    fn place(&self) -> (u64, bool, u64) {
        let at = if let Ended::Part { at, .. } = self { *at } else { 0 };
        (self.context(), self.is_release(), at)
    }
}

struct World {
    carriers: Carriers,
    engines: Vec<Engine<SimTransport, SimMemory>>,
    /// The reference: messages and receives without each other, in order, and claims.
    early: Vec<Sent>,
    posted: Vec<Posted>,
    claims: Vec<(Claim, Sent)>,
    /// Every receive that did not end at once, with its place in memory.
    receives: Vec<(u64, OpId)>,
    places: Vec<Span>,
    /// Bytes of the receiver that have been given out.
    top: u64,
    sent: u64,
    /// Sends that have not ended, and those of them that are to end only when they were received.
    open: BTreeSet<u64>,
    waiting: BTreeSet<u64>,
}

fn fits(sent: &Sent, from: Option<usize>, which: Match) -> bool {
    let is_which = match (sent.tag, which) {
        (Some(tag), Match::Tagged(wanted)) => wanted.takes(tag),
        (None, Match::Untagged) => true,
        _ => false,
    };
    is_which && from.is_none_or(|from| from == sent.from)
}

fn source(from: Option<usize>) -> Source {
    from.map_or(Source::Any, |from| Source::From(Carriers::peer(RECEIVER, from)))
}

impl World {
    fn new(view: bool) -> World {
        let profile = CarrierProfile {
            packet_bytes_max: 256,
            post_bytes_max: 0,
            packets_max: 64,
            refused_permille: 100,
            delay_max: 2,
            lost_permille: 0,
            view,
            shared_permille: 0,
            one_copy: false,
            published: false,
            card: None,
        };
        let carriers = Carriers::new(1, 1 + SENDERS, MEMORY_BYTES, profile);
        let config = Config { eager_bytes_max: 128, ..Config::default() };
        let engines = (0..=SENDERS).map(|index| {
            let (transport, memory) = carriers.end(index);
            Engine::new(transport, memory, config.clone())
        });
        let engines = engines.collect();
        let (early, posted, claims, receives) = Default::default();
        let (places, top, sent, open, waiting) = Default::default();
        let mut world = World {
            carriers,
            engines,
            early,
            posted,
            claims,
            receives,
            places,
            top,
            sent,
            open,
            waiting,
        };
        world.drive();
        world
    }

    /// Until nothing more happens.
    fn drive(&mut self) {
        let mut quiet = 0;
        while quiet < 20 {
            self.carriers.step();
            let happened: usize = self.engines.iter_mut().map(Engine::poll).sum();
            quiet = if happened > 0 { 0 } else { quiet + 1 };
        }
    }

    fn send(
        &mut self,
        (from, tag): (usize, Option<u64>),
        bytes: u64,
        data: Option<u64>,
        done: Done,
    ) {
        let id = self.sent;
        let at = (id * MESSAGE_BYTES_MAX) as usize;
        self.sent += 1;
        self.carriers.look(from, |memory| {
            memory[at..at + bytes as usize].fill(id as u8);
            memory[at..at + 8].copy_from_slice(&id.to_le_bytes());
        });
        let what = Local::bytes(Span::new(Carriers::address(from) + at as u64, bytes));
        let message = Message { tag, data, done, ..Message::default() };
        let to = Carriers::peer(from, RECEIVER);
        // Every other one is offered at once first: if that is refused, nothing has left, and it is sent the usual way.
        let is_gone = id.is_multiple_of(2)
            && self.engines[from].send_at_once(to, &message, what).expect("the peer is there");
        if is_gone {
            assert_ne!(done, Done::Delivered, "its end would not be told");
            self.early.push(Sent { id, from, tag, bytes, data });
            return;
        }
        let begun = self.engines[from].send_message(to, &message, what, id);
        if matches!(begun.expect("it is sent"), Started::Pending(_)) {
            self.open.insert(id);
        }
        if done == Done::Delivered {
            assert!(self.open.contains(&id), "nobody has it yet");
            self.waiting.insert(id);
        }
        self.early.push(Sent { id, from, tag, bytes, data });
    }

    fn place(&mut self, messages: u64) -> (u64, Local) {
        let (context, bytes) = (self.places.len() as u64, messages * MESSAGE_BYTES_MAX);
        let place = Span::new(Carriers::address(RECEIVER) + self.top, bytes);
        self.top += bytes;
        self.places.push(place);
        (context, Local::bytes(place))
    }

    /// What a completion of the receiver tells.
    fn end_of(&self, done: &Completion) -> Ended {
        let context = done.context;
        if done.end == End::Released {
            let is_cancelled = done.result == Err(Fault::Cancelled);
            assert!(is_cancelled || done.result.is_ok());
            return Ended::Released { context, bytes: done.bytes, is_cancelled };
        }
        if done.result == Err(Fault::Cancelled) {
            return Ended::Cancelled { context };
        }
        let is_whole = done.result.is_ok();
        assert!(is_whole || done.end == End::Part && done.result == Err(Fault::Truncated));
        let place = self.places[context as usize];
        let at = (place.address + done.at - Carriers::address(RECEIVER)) as usize;
        let there = done.bytes.min(place.bytes - done.at) as usize;
        let id = self.carriers.look(RECEIVER, |memory| {
            let (begin, body) = memory[at..at + there].split_at(8.min(there));
            // Of one that was cut off before, only the first bytes are known.
            let mut id = [0; 8];
            id[..begin.len()].copy_from_slice(begin);
            let id = u64::from_le_bytes(id);
            assert!(body.iter().all(|byte| *byte == id as u8), "{done:?} {id}");
            id
        });
        let from = Carriers::index(RECEIVER, done.peer);
        let (tag, bytes, data) = (done.tag, done.bytes, done.data);
        let message = Ended::Received { context, id, from, tag, bytes, data };
        if done.end == End::Part {
            return Ended::Part { at: done.at, message: Box::new(message), is_whole };
        }
        message
    }

    /// Matches what the reference has, and compares the ends.
    fn check(&mut self, mut expected: Vec<Ended>, started: Option<Completion>) {
        self.drive();
        let mut at = 0;
        while at < self.early.len() {
            let sent = &self.early[at];
            let taken = self.posted.iter().position(|one| fits(sent, one.from, one.which));
            match taken {
                Some(posted) => {
                    let sent = self.early.remove(at);
                    expected.extend(self.give(&sent, posted));
                }
                None => at += 1,
            }
        }
        let mut ends: Vec<Completion> = started.into_iter().collect();
        ends.extend(std::iter::from_fn(|| self.engines[RECEIVER].completion()));
        let mut ends: Vec<Ended> = ends.iter().map(|done| self.end_of(done)).collect();
        for (place, end) in ends.iter().enumerate().filter(|(_, end)| end.is_release()) {
            assert!(
                ends[place..].iter().all(|later| later.context() != end.context() || later == end)
            );
        }
        // Long messages in a buffer for many end after short ones that came after them.
        ends.sort_by_key(Ended::place);
        expected.sort_by_key(Ended::place);
        assert_eq!(ends, expected);
        for sender in 1..=SENDERS {
            while let Some(done) = self.engines[sender].completion() {
                assert_eq!(done.result, Ok(()));
                assert!(self.open.remove(&done.context), "{done:?}");
            }
        }
        let is_held = |id: &u64| {
            let claimed = self.claims.iter().map(|(_, sent)| sent);
            claimed.chain(&self.early).any(|sent| sent.id == *id)
        };
        for id in &self.waiting {
            assert_eq!(self.open.contains(id), is_held(id), "message {id}");
        }
    }

    /// Gives a message to a receive of the reference, which goes if it takes no more.
    fn give(&mut self, sent: &Sent, posted: usize) -> Vec<Ended> {
        let context = self.posted[posted].context;
        let message = received(sent, context);
        let Some(many) = &mut self.posted[posted].many else {
            self.posted.remove(posted);
            return vec![message];
        };
        let (at, left) = (many.used, many.bytes - many.used);
        let is_whole = sent.bytes <= left;
        many.used += sent.bytes.min(left);
        let bytes = many.used;
        let mut ends = vec![Ended::Part { at, message: Box::new(message), is_whole }];
        if many.bytes - bytes < many.left_min.max(1) {
            self.posted.remove(posted);
            ends.push(Ended::Released { context, bytes, is_cancelled: false });
        }
        ends
    }

    fn begun(&mut self, context: u64, begun: Result<Started, Fault>) -> Option<Completion> {
        match begun.expect("it is begun") {
            Started::Done(completion) => Some(completion),
            Started::Pending(id) => {
                self.receives.push((context, id));
                None
            }
        }
    }

    fn first(&self, from: Option<usize>, which: Match) -> Option<usize> {
        self.early.iter().position(|sent| fits(sent, from, which))
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Send { from, tag, bytes, data, done } => {
                self.send((from, tag), bytes, data, done);
                self.check(Vec::new(), None);
            }
            Act::Receive { from, which } => {
                let (context, into) = self.place(1);
                let begun = self.engines[RECEIVER].receive(source(from), which, into, context);
                let done = self.begun(context, begun);
                match self.first(from, which) {
                    Some(at) => {
                        let sent = self.early.remove(at);
                        self.check(vec![received(&sent, context)], done);
                    }
                    None => {
                        self.posted.push(Posted { context, from, which, many: None });
                        self.check(Vec::new(), done);
                    }
                }
            }
            Act::ReceiveMany { from, messages, left_min } => {
                let (context, into) = self.place(messages);
                let (bytes, engine) = (into.span.bytes, &mut self.engines[RECEIVER]);
                let id = engine.receive_many(source(from), into.span, left_min, context);
                self.receives.push((context, id.expect("it is begun")));
                let many = Some(Many { bytes, used: 0, left_min });
                self.posted.push(Posted { context, from, which: Match::Untagged, many });
                self.check(Vec::new(), None);
            }
            Act::Probe { from, which } => {
                let found = self.engines[RECEIVER].probe(source(from), which);
                let sent = self.first(from, which).map(|at| &self.early[at]);
                assert_eq!(found, sent.map(probe));
            }
            Act::Claim { from, which } => {
                let claimed = self.engines[RECEIVER].claim(source(from), which);
                let sent = self.first(from, which).map(|at| self.early.remove(at));
                assert_eq!(claimed.map(|(_, found)| found), sent.as_ref().map(probe));
                self.claims.extend(claimed.map(|(claim, _)| claim).zip(sent));
            }
            Act::ReceiveClaimed(which) if !self.claims.is_empty() => {
                let (claim, sent) = self.claims.remove(which % self.claims.len());
                let (context, into) = self.place(1);
                let begun = self.engines[RECEIVER].receive_claimed(claim, into, context);
                let done = self.begun(context, begun);
                self.check(vec![received(&sent, context)], done);
                let again = self.engines[RECEIVER].receive_claimed(claim, into, context);
                assert_eq!(again, Err(Fault::NoSuch));
            }
            Act::Discard(which) if !self.claims.is_empty() => {
                let (claim, _) = self.claims.remove(which % self.claims.len());
                assert_eq!(self.engines[RECEIVER].discard(claim), Ok(()));
                assert_eq!(self.engines[RECEIVER].discard(claim), Err(Fault::NoSuch));
                self.check(Vec::new(), None);
            }
            Act::Cancel(which) if !self.receives.is_empty() => {
                let (context, id) = self.receives[which % self.receives.len()];
                let is_cancelled = self.engines[RECEIVER].cancel(id);
                let posted = self.posted.iter().position(|one| one.context == context);
                assert_eq!(is_cancelled, posted.is_some());
                let expected = posted.map(|at| match self.posted.remove(at).many {
                    Some(Many { used: bytes, .. }) => {
                        Ended::Released { context, bytes, is_cancelled: true }
                    }
                    None => Ended::Cancelled { context },
                });
                self.check(expected.into_iter().collect(), None);
            }
            _ => {}
        }
    }
}

fn received(sent: &Sent, context: u64) -> Ended {
    let Sent { id, from, tag, bytes, data } = *sent;
    Ended::Received { context, id, from, tag: tag.unwrap_or(0), bytes, data }
}

fn probe(sent: &Sent) -> Probe {
    let peer: Peer = Carriers::peer(RECEIVER, sent.from);
    Probe { peer, tag: sent.tag.unwrap_or(0), bytes: sent.bytes, data: sent.data }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn receives_probes_and_claims_get_what_a_list_would_give_them(
        view: bool,
        acts in prop::collection::vec(acts(), 1..80),
    ) {
        let mut world = World::new(view);
        for act in &acts {
            world.act(act);
        }
        // What nobody claimed any more gives its room back, and no sender waits for ever.
        let claims: Vec<Claim> = world.claims.drain(..).map(|(claim, _)| claim).collect();
        for claim in claims {
            prop_assert_eq!(world.engines[RECEIVER].discard(claim), Ok(()));
        }
        for which in [Match::Untagged, Match::Tagged(Tag::ANY)] {
            while let Some((claim, _)) = world.engines[RECEIVER].claim(Source::Any, which) {
                prop_assert_eq!(world.engines[RECEIVER].discard(claim), Ok(()));
            }
        }
        world.early.clear();
        world.check(Vec::new(), None);
        prop_assert!(world.open.is_empty());
        prop_assert_eq!(world.engines[RECEIVER].stats().unexpected_bytes, 0);
    }
}
