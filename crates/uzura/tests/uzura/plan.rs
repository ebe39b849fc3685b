//! What the processes of a run are to do, and in which memory.

use super::MEMORY_BYTES;
use super::shapes::{Shape, Size};
use covey_io::sim::Rng;
use covey_layout::{ByteOrder, Element};
use covey_uzura::Done;
use std::collections::VecDeque;

/// One thing that a process does.
#[derive(Clone, Debug)]
pub enum Act {
    Send {
        message: usize,
    },
    Receive {
        message: usize,
    },
    /// The next of those that take messages of anybody.
    ReceiveAny {
        at: usize,
        order: u64,
        which: Kind,
    },
    Place {
        message: usize,
    },
    Access {
        window: usize,
        what: Access,
        size: Size,
        local: Shape,
        at: usize,
        remote: Shape,
    },
    Swap {
        window: usize,
        expected: usize,
        new: usize,
        before: usize,
    },
    /// Adds three numbers, and learns what was there.
    Atomic {
        window: usize,
        element: Element,
        from: usize,
        before: usize,
    },
    /// Adds one to a counter of another.
    Count {
        target: usize,
        one: usize,
        before: usize,
    },
    Revoke {
        window: usize,
    },
    Wrong {
        target: usize,
        at: usize,
        what: Wrong,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Put { word: Option<u64> },
    Get,
    Accumulate,
    Fetch { before: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    Key,
    Range,
    Rights,
}

/// How a message is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By one that names its sender and its tag.
    Exact,
    /// By whoever takes anything.
    Any,
    /// By whoever takes anything without a tag.
    Bare,
    /// By a rule about its header.
    Placed,
}

#[derive(Clone, Debug)]
pub struct Message {
    pub kind: Kind,
    pub size: Size,
    pub from: usize,
    pub to: usize,
    pub tag: u64,
    pub word: Option<u64>,
    pub done: Done,
    pub header: Vec<u8>,
    pub send: Shape,
    pub send_at: usize,
    pub receive: Shape,
    pub receive_at: usize,
    pub header_at: usize,
}

/// Memory of one process that another one accesses alone.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub origin: usize,
    pub target: usize,
    pub at: usize,
    pub is_busy: bool,
    pub is_revoked: bool,
    /// It is not known what it holds.
    pub is_lost: bool,
    pub key: u64,
}

#[derive(Debug, Default)]
struct Lane {
    acts: VecDeque<Act>,
    window: Option<usize>,
}

/// The plan of all processes.
#[derive(Debug)]
pub struct Plan {
    pub messages: Vec<Message>,
    pub windows: Vec<Window>,
    /// Of each process: a counter and memory that is only to be read.
    pub counters: Vec<usize>,
    pub read_only: Vec<usize>,
    /// Memory that holds something that was chosen.
    pub presets: Vec<(usize, usize, Vec<u8>)>,
    orders: Vec<ByteOrder>,
    lanes: Vec<Vec<Lane>>,
    top: Vec<usize>,
}

pub const WINDOW_BYTES: usize = 8 << 10;
pub const ANY_BYTES: u64 = 64;
pub const ANY_TAG: u64 = 8;
pub const PLACED_TAG: u64 = 20;
pub const HEADER_BYTES: usize = 16;

impl Plan {
    pub fn random(rng: &mut Rng, orders: &[ByteOrder]) -> Plan {
        let count = orders.len();
        let mut plan = Plan {
            messages: Vec::new(),
            windows: Vec::new(),
            counters: Vec::new(),
            read_only: Vec::new(),
            presets: Vec::new(),
            orders: orders.to_vec(),
            lanes: (0..count).map(|_| Vec::new()).collect(),
            top: vec![0; count],
        };
        for node in 0..count {
            let counter = plan.memory(node, 8);
            plan.presets.push((node, counter, vec![0; 8]));
            plan.counters.push(counter);
            let read_only = plan.memory(node, 64);
            plan.read_only.push(read_only);
        }
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                plan.messages_between(rng, from, to);
                plan.window_between(rng, from, to);
            }
        }
        for node in 0..count {
            plan.receives_of_anything(node);
        }
        plan
    }

    /// Memory of a process that nothing else uses, between bytes that nothing at all uses.
    fn memory(&mut self, node: usize, bytes: u64) -> usize {
        let at = self.top[node].next_multiple_of(8) + 8;
        self.top[node] = at + bytes as usize + 8;
        assert!(self.top[node] <= MEMORY_BYTES / 2, "a plan is too large");
        at
    }

    fn messages_between(&mut self, rng: &mut Rng, from: usize, to: usize) {
        let mut sends = VecDeque::new();
        let mut tags: Vec<VecDeque<Act>> = vec![VecDeque::new(); 3];
        let mut placed = Vec::new();
        for _ in 0..rng.below(10) {
            let size = Size::random(rng);
            let index = self.messages.len();
            sends.push_back(Act::Send { message: index });
            let kind = *rng.pick(&[Kind::Exact, Kind::Exact, Kind::Any, Kind::Bare, Kind::Placed]);
            let word = rng.chance(300).then(|| rng.next());
            let done = if rng.chance(300) { Done::Delivered } else { Done::Sent };
            let (mut header, mut tag) = (Vec::new(), rng.below(3));
            let (mut send, mut receive) = (Shape::random(rng, size), Shape::random(rng, size));
            match kind {
                Kind::Exact => {
                    if rng.chance(100) {
                        receive = Shape::plain(rng.below(size.bytes()));
                    }
                    tags[tag as usize].push_back(Act::Receive { message: index });
                }
                Kind::Any | Kind::Bare => {
                    tag = if kind == Kind::Any { ANY_TAG + rng.below(4) } else { 0 };
                    send = Shape::plain(8 + rng.below(ANY_BYTES - 8));
                }
                Kind::Placed => {
                    tag = PLACED_TAG;
                    header = vec![rng.next() as u8; HEADER_BYTES];
                    header[..8].copy_from_slice(&(index as u64).to_le_bytes());
                    placed.push(Act::Place { message: index });
                }
            }
            let send_at = self.memory(from, send.span);
            if matches!(kind, Kind::Any | Kind::Bare) {
                self.presets.push((from, send_at, (index as u64).to_le_bytes().to_vec()));
            }
            let receive_at = self.memory(to, receive.span);
            let header_at = self.memory(to, HEADER_BYTES as u64);
            self.messages.push(Message {
                kind,
                size,
                from,
                to,
                tag,
                word,
                done,
                header,
                send,
                send_at,
                receive,
                receive_at,
                header_at,
            });
        }
        rng.shuffle(&mut placed);
        self.lane(from, sends, None);
        self.lane(to, placed.into(), None);
        tags.into_iter().for_each(|acts| self.lane(to, acts, None));
    }

    fn receives_of_anything(&mut self, node: usize) {
        for which in [Kind::Any, Kind::Bare] {
            let is_one = |message: &&Message| message.to == node && message.kind == which;
            let count = self.messages.iter().filter(is_one).count() as u64;
            let acts = (0..count)
                .map(|order| Act::ReceiveAny { at: self.memory(node, ANY_BYTES), order, which })
                .collect();
            self.lane(node, acts, None);
        }
    }

    fn window_between(&mut self, rng: &mut Rng, origin: usize, target: usize) {
        let at = self.memory(target, WINDOW_BYTES as u64);
        let window = self.windows.len();
        let (is_busy, is_revoked, is_lost, key) = Default::default();
        self.windows.push(Window { origin, target, at, is_busy, is_revoked, is_lost, key });
        let mut acts = VecDeque::new();
        for _ in 0..rng.below(8) {
            let mut size = Size::random(rng);
            size.rows = size.rows.min(16);
            size.columns = size.columns.min(16);
            let act = match rng.below(9) {
                0 => Act::Count { target, one: self.one(origin), before: self.memory(origin, 8) },
                1 => Act::Wrong {
                    target,
                    at: self.memory(origin, 32),
                    what: *rng.pick(&[Wrong::Key, Wrong::Range, Wrong::Rights]),
                },
                2 => Act::Swap {
                    window,
                    expected: self.memory(origin, 24),
                    new: self.memory(origin, 24),
                    before: self.memory(origin, 24),
                },
                3 => Act::Atomic {
                    window,
                    element: *rng.pick(&[Element::U16, Element::I32, Element::U64]),
                    from: self.memory(origin, 24),
                    before: self.memory(origin, 24),
                },
                kind => {
                    let what = match kind {
                        4 => Access::Put { word: rng.chance(500).then(|| rng.next()) },
                        5 | 6 => Access::Get,
                        7 => Access::Accumulate,
                        _ => Access::Fetch { before: self.memory(origin, size.bytes()) },
                    };
                    let (local, remote) = (Shape::random(rng, size), Shape::random(rng, size));
                    let at = self.memory(origin, local.span);
                    Act::Access { window, what, size, local, at, remote }
                }
            };
            acts.push_back(act);
        }
        self.lane(origin, acts, Some(window));
        if rng.chance(150) {
            self.lane(target, VecDeque::from([Act::Revoke { window }]), None);
        }
    }

    fn one(&mut self, node: usize) -> usize {
        let at = self.memory(node, 8);
        let mut one = 1_u64.to_le_bytes();
        if self.orders[node] == ByteOrder::Big {
            one.reverse();
        }
        self.presets.push((node, at, one.to_vec()));
        at
    }

    fn lane(&mut self, node: usize, acts: VecDeque<Act>, window: Option<usize>) {
        self.lanes[node].push(Lane { acts, window });
    }

    /// What a process does next.
    pub fn next(&mut self, rng: &mut Rng, node: usize) -> Option<Act> {
        let lanes = self.lanes[node].len();
        let lane = &mut self.lanes[node][rng.index(lanes)];
        let is_busy = lane.window.is_some_and(|window| self.windows[window].is_busy);
        if is_busy { None } else { lane.acts.pop_front() }
    }

    pub fn is_done(&self, node: usize) -> bool {
        self.lanes[node].iter().all(|lane| lane.acts.is_empty())
    }

    pub fn left(&self, node: usize) -> String {
        let left: usize = self.lanes[node].iter().map(|lane| lane.acts.len()).sum();
        format!("{left} acts not begun")
    }

    pub fn kill(&mut self, node: usize) {
        self.lanes[node].iter_mut().for_each(|lane| lane.acts.clear());
        let concerned = self.windows.iter_mut().filter(|window| window.origin == node);
        concerned.for_each(|window| window.is_lost = true);
    }

    /// What lies at a byte.
    pub fn about(&self, node: usize, at: usize) -> String {
        let has = |start: usize, bytes: u64| (start..start + bytes as usize + 8).contains(&at);
        let message = self.messages.iter().find(|message| {
            message.to == node
                && (has(message.receive_at, message.receive.span) || has(message.header_at, 16))
        });
        let window = self
            .windows
            .iter()
            .find(|window| window.target == node && has(window.at, WINDOW_BYTES as u64));
        format!("{message:?} {window:?}")
    }
}

/// The element that bytes without a layout have.
pub fn element(remote: &Shape, size: Size) -> Element {
    if remote.layout.is_some() { size.element } else { Element::Byte }
}
