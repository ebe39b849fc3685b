//! Beginning acts, and doing what they should have done when they have ended.

use super::World;
use super::plan::{
    ANY_BYTES, ANY_TAG, Access, Act, HEADER_BYTES, Kind, PLACED_TAG, WINDOW_BYTES, Window, Wrong,
    element,
};
use super::shapes::{Shape, Size};
use covey_io::sim::Carriers;
use covey_layout::{ByteOrder, Element, Layout, Op};
use covey_uzura::{
    Completion, Done, End, Fault, Key, Local, Match, Message, OpId, Remote, Rights, Rule, Source,
    Started, Tag,
};
use covey_wire::Span;
use std::collections::BTreeSet;

/// An act under way.
#[derive(Clone, Debug)]
pub struct Pending {
    pub act: Act,
    pub id: Option<OpId>,
    /// The window was revoked since.
    pub was_revoked: bool,
    /// It was revoked before it began.
    pub is_late: bool,
}

/// Words that puts told their targets.
#[derive(Debug, Default)]
pub struct Words {
    begun: BTreeSet<u64>,
    /// With both ends.
    done: Vec<(u64, [usize; 2])>,
    refused: BTreeSet<u64>,
    seen: BTreeSet<u64>,
}

type Begun = Result<Started, Fault>;

impl World {
    /// Registers what peers may access, and sets what memory begins with.
    pub fn register(&mut self) -> Result<(), String> {
        for (node, at, bytes) in &self.plan.presets {
            self.expected[*node][*at..*at + bytes.len()].copy_from_slice(bytes);
            self.carriers
                .look(*node, |memory| memory[*at..*at + bytes.len()].copy_from_slice(bytes));
        }
        for window in &mut self.plan.windows {
            let span = span(window.target, window.at, WINDOW_BYTES as u64);
            let key = self.nodes[window.target].engine.register(span, Rights::ALL);
            window.key = key.map_err(|fault| fault.to_string())?.0;
        }
        Ok(())
    }

    /// A key of a counter or of memory that is only to be read: the same whenever it is asked for.
    fn key(&mut self, target: usize, rights: Rights, at: usize, bytes: u64) -> Result<Key, Fault> {
        let span = span(target, at, bytes);
        self.nodes[target].engine.register(span, rights)
    }

    fn local(&mut self, node: usize, shape: &Shape, at: usize) -> Result<Local, Fault> {
        let span = span(node, at, shape.span);
        let Some(layout) = &shape.layout else { return Ok(Local::bytes(span)) };
        let form = self.nodes[node].engine.commit(layout, 1)?;
        Ok(Local::laid(span, form))
    }

    fn remote(
        &mut self,
        node: usize,
        target: usize,
        shape: &Shape,
        key: Key,
        at: u64,
    ) -> Result<Remote, Fault> {
        let layout = shape.layout.as_ref();
        let form = layout.map(|layout| self.nodes[node].engine.commit(layout, 1)).transpose()?;
        Ok(Remote { peer: Carriers::peer(node, target), key, at, form })
    }

    pub fn act(&mut self, node: usize, act: Act) -> Result<(), String> {
        let context = self.nodes[node].next_context;
        self.nodes[node].next_context += 1;
        self.report.operations += 1;
        if let Act::Revoke { window } = act {
            return self.revoke(window);
        }
        let is_late = match &act {
            Act::Access { window, .. } | Act::Swap { window, .. } | Act::Atomic { window, .. } => {
                self.plan.windows[*window].is_revoked
            }
            _ => false,
        };
        let pending = Pending { act: act.clone(), id: None, was_revoked: false, is_late };
        self.nodes[node].pending.insert(context, pending);
        let started = self.begin(node, act, context);
        self.begun(node, context, started)
    }

    fn begin(&mut self, node: usize, act: Act, context: u64) -> Begun {
        match act {
            Act::Send { message } => {
                let message = self.plan.messages[message].clone();
                let what = self.local(node, &message.send, message.send_at)?;
                let to = Carriers::peer(node, message.to);
                let engine = &mut self.nodes[node].engine;
                let (word, done) = (message.word, message.done);
                let tag = (message.kind != Kind::Bare).then_some(message.tag);
                let sent = Message { tag, header: &message.header, data: word, done };
                engine.send_message(to, &sent, what, context)
            }
            Act::Receive { message } => {
                let message = self.plan.messages[message].clone();
                let into = self.local(node, &message.receive, message.receive_at)?;
                let from = Source::From(Carriers::peer(node, message.from));
                self.nodes[node].engine.receive(from, Tag::exact(message.tag), into, context)
            }
            Act::ReceiveAny { at, which, .. } => {
                let into = Local::bytes(span(node, at, ANY_BYTES));
                let tagged = Match::Tagged(Tag { value: ANY_TAG, ignore: 3 });
                let which = if which == Kind::Any { tagged } else { Match::Untagged };
                let engine = &mut self.nodes[node].engine;
                // Some are claimed before, which makes no difference to who gets what.
                let is_claimed = context.is_multiple_of(2);
                match is_claimed.then(|| engine.claim(Source::Any, which)).flatten() {
                    Some((claim, _)) => engine.receive_claimed(claim, into, context),
                    None => engine.receive(Source::Any, which, into, context),
                }
            }
            Act::Place { message } => self.begin_place(node, message, context),
            Act::Count { target, one, before } => {
                let at = self.plan.counters[target];
                let key = self.key(target, Rights::ATOMIC, at, 8)?;
                let layout = Layout::element(Element::U64);
                let counter = Shape { layout: Some(layout), places: Vec::new(), span: 8 };
                let to = self.remote(node, target, &counter, key, 0)?;
                let from = Local::bytes(span(node, one, 8));
                let before = Local::bytes(span(node, before, 8));
                self.nodes[node].engine.fetch(Op::Sum, from, before, to, context)
            }
            Act::Wrong { target, at, what } => self.begin_wrong(node, target, at, what, context),
            Act::Access { window, what, size, local, at, remote } => {
                self.plan.windows[window].is_busy = true;
                let window = self.plan.windows[window];
                let ours = self.local(node, &local, at)?;
                let key = Key(window.key);
                let theirs = self.remote(node, window.target, &remote, key, 0)?;
                let op = operation(&remote, size);
                let engine = &mut self.nodes[node].engine;
                match what {
                    Access::Put { word: None } => engine.put(ours, theirs, context),
                    Access::Put { word: Some(word) } => {
                        self.words.begun.insert(word);
                        engine.put_telling(ours, theirs, word, context)
                    }
                    Access::Get => engine.get(ours, theirs, context),
                    Access::Accumulate => engine.accumulate(op, ours, theirs, context),
                    Access::Fetch { before } => {
                        let before = Local::bytes(span(node, before, size.bytes()));
                        engine.fetch(op, ours, before, theirs, context)
                    }
                }
            }
            Act::Swap { window, expected, new, before } => {
                self.plan.windows[window].is_busy = true;
                let Some(window) = self.plan.windows.get(window).copied() else {
                    return Err(Fault::NoSuch);
                };
                // Half of them are equal.
                if context.is_multiple_of(2) {
                    let now = self.expected[window.target][window.at..window.at + 24].to_vec();
                    self.expected[node][expected..expected + 24].copy_from_slice(&now);
                    self.carriers.look(node, |memory| {
                        memory[expected..expected + 24].copy_from_slice(&now);
                    });
                }
                let peer = Carriers::peer(node, window.target);
                let to = Remote { peer, key: Key(window.key), at: 0, form: None };
                let part = |at| Local::bytes(span(node, at, 24));
                let (expected, new, before) = (part(expected), part(new), part(before));
                self.nodes[node].engine.compare_swap(expected, new, before, to, context)
            }
            Act::Atomic { window, element, from, before } => {
                self.plan.windows[window].is_busy = true;
                let Window { key, target, .. } = self.plan.windows[window];
                let part = |at| Local::bytes(span(node, at, ATOMIC_COUNT * element.bytes()));
                let peer = Carriers::peer(node, target);
                let to = Remote { peer, key: Key(key), at: 0, form: None };
                let engine = &mut self.nodes[node].engine;
                engine.atomic_fetch(Op::Sum, element, part(from), part(before), to, context)
            }
            Act::Revoke { .. } => Err(Fault::NoSuch),
        }
    }

    fn begin_place(&mut self, node: usize, message: usize, context: u64) -> Begun {
        let message = self.plan.messages[message].clone();
        let mut mask = [0; HEADER_BYTES];
        mask[..8].fill(0xff);
        let payload = self.local(node, &message.receive, message.receive_at)?;
        let rule = Rule {
            from: Source::From(Carriers::peer(node, message.from)),
            tag: Tag::exact(PLACED_TAG),
            mask: &mask,
            value: &message.header,
            header: span(node, message.header_at, HEADER_BYTES as u64),
            payload,
        };
        self.nodes[node].engine.place(&rule, context)
    }

    fn begin_wrong(
        &mut self,
        node: usize,
        target: usize,
        at: usize,
        what: Wrong,
        context: u64,
    ) -> Begun {
        let place = self.plan.read_only[target];
        let key = self.key(target, Rights::READ, place, 64)?;
        let (key, offset) = match what {
            Wrong::Key => (Key(key.0 ^ 1 << 50), 0),
            Wrong::Range => (key, 33),
            Wrong::Rights => (key, 0),
        };
        let peer = Carriers::peer(node, target);
        let remote = Remote { peer, key, at: offset, form: None };
        let local = Local::bytes(span(node, at, 32));
        let engine = &mut self.nodes[node].engine;
        match what {
            Wrong::Rights => engine.put(local, remote, context),
            _ => engine.get(local, remote, context),
        }
    }

    fn revoke(&mut self, window: usize) -> Result<(), String> {
        let what = self.plan.windows[window];
        let revoked = self.nodes[what.target].engine.revoke(Key(what.key));
        revoked.map_err(|fault| format!("a window could not be revoked: {fault}"))?;
        self.plan.windows[window].is_revoked = true;
        // From here on it stays as it is.
        self.accept(what.target, what.at, WINDOW_BYTES);
        for pending in self.nodes[what.origin].pending.values_mut() {
            pending.was_revoked = true;
        }
        Ok(())
    }

    /// Takes memory for what it is.
    pub fn accept(&mut self, node: usize, at: usize, bytes: usize) {
        let expected = &mut self.expected[node][at..at + bytes];
        self.carriers.look(node, |memory| expected.copy_from_slice(&memory[at..at + bytes]));
    }

    pub fn ended(&mut self, node: usize, completion: Completion) -> Result<(), String> {
        if completion.end == End::Written {
            return self.written(completion);
        }
        let pending = self.nodes[node].pending.remove(&completion.context);
        let Some(pending) = pending else {
            return Err(format!("{node} was told twice: {completion:?}"));
        };
        self.report.faults += u64::from(completion.result.is_err());
        let wrong = |what: &str| Err(format!("{what}: {pending:?} ended with {completion:?}"));
        let is_dead = completion.result == Err(Fault::PeerDead);
        if pending.is_late && completion.result.is_ok() {
            return wrong("its memory had been revoked before it began");
        }
        if is_dead && !self.nodes.iter().any(|node| node.is_dead) {
            return wrong("nobody is dead");
        }
        match pending.act.clone() {
            Act::Send { message } if completion.result.is_ok() || is_dead => {
                self.sent(message, completion).or_else(|what| wrong(&what))
            }
            Act::Receive { message } | Act::Place { message } => {
                self.received(node, message, completion).or_else(|what| wrong(&what))
            }
            Act::ReceiveAny { at, order, which } => {
                if completion.result == Err(Fault::Cancelled) || is_dead {
                    self.accept(node, at, ANY_BYTES as usize);
                    return Ok(());
                }
                self.received_any(node, at, (order, which), completion).or_else(|what| wrong(&what))
            }
            Act::Count { target, before, .. } => {
                match completion.result {
                    Ok(()) => self.counted(node, before, target),
                    Err(_) if is_dead => self.accept(node, before, 8),
                    Err(_) => return wrong("a counter"),
                }
                Ok(())
            }
            Act::Wrong { what, .. } => {
                let expected = match what {
                    Wrong::Key => Fault::WrongKey,
                    Wrong::Range => Fault::OutOfRange,
                    Wrong::Rights => Fault::Denied,
                };
                if completion.result == Err(expected) || is_dead { Ok(()) } else { wrong("fault") }
            }
            Act::Access { window, what, size, local, at, remote } => {
                self.plan.windows[window].is_busy = false;
                let is_revoked = completion.result == Err(Fault::Revoked)
                    && self.plan.windows[window].is_revoked;
                if completion.result.is_err() && !is_revoked && !is_dead {
                    return wrong("an access");
                }
                self.accessed(
                    node,
                    window,
                    what,
                    size,
                    (&local, at),
                    &remote,
                    &pending,
                    completion,
                );
                Ok(())
            }
            Act::Swap { window, expected, new, before } => {
                self.plan.windows[window].is_busy = false;
                self.swapped(node, window, [expected, new, before], &pending, completion);
                Ok(())
            }
            Act::Atomic { window, element, from, before } => {
                self.plan.windows[window].is_busy = false;
                self.added(node, window, element, [from, before], &pending, completion);
                Ok(())
            }
            _ => wrong("unexpected"),
        }
    }

    /// One whose sender waits for its receiver ends after it was received.
    fn sent(&mut self, message: usize, completion: Completion) -> Result<(), String> {
        let sent = &self.plan.messages[message];
        if sent.done == Done::Sent || completion.result.is_err() {
            return Ok(());
        }
        self.report.delivered += 1;
        // The receiver may have it in its queue still.
        let to = sent.to;
        while !self.nodes[to].is_dead
            && !self.received.contains(&message)
            && let Some(completion) = self.nodes[to].engine.completion()
        {
            self.ended(to, completion)?;
        }
        let is_there = self.received.contains(&message) || self.nodes[to].is_dead;
        if is_there { Ok(()) } else { Err("nobody has received it".to_owned()) }
    }

    /// A peer told of a put.
    fn written(&mut self, completion: Completion) -> Result<(), String> {
        let word = completion.data.filter(|word| self.words.begun.contains(word));
        let is_new = word.is_some_and(|word| self.words.seen.insert(word));
        self.report.words += 1;
        if is_new {
            Ok(())
        } else {
            Err(format!("a word that nobody told, or twice: {completion:?}"))
        }
    }

    /// A word comes if its put was done, and not if it was refused.
    pub fn audit_words(&mut self) -> Result<(), String> {
        let Words { done, refused, seen, .. } = &self.words;
        // What a process said last is lost with it.
        let is_alive = |ends: &[usize; 2]| ends.iter().all(|end| !self.nodes[*end].is_dead);
        let lost = done.iter().find(|(word, ends)| !seen.contains(word) && is_alive(ends));
        let early = refused.intersection(seen).next();
        match (lost, early) {
            (None, None) => Ok(()),
            wrong => Err(format!("words that were lost, or told of nothing: {wrong:?}")),
        }
    }

    fn received(
        &mut self,
        node: usize,
        message: usize,
        completion: Completion,
    ) -> Result<(), String> {
        self.received.insert(message);
        let message = self.plan.messages[message].clone();
        let (at, span) = (message.receive_at, message.receive.span as usize);
        if matches!(completion.result, Err(Fault::PeerDead | Fault::Cancelled)) {
            self.accept(node, at, span);
            self.accept(node, message.header_at, HEADER_BYTES);
            return Ok(());
        }
        let mut packed = message.send.pack(&self.expected[message.from], message.send_at);
        let is_short = message.receive.places.len() < packed.len();
        let expected = if is_short { Err(Fault::Truncated) } else { Ok(()) };
        let bytes = packed.len() + message.header.len();
        if completion.result != expected
            || completion.bytes != bytes as u64
            || completion.tag != message.tag
            || completion.data != message.word
            || Carriers::index(node, completion.peer) != message.from
        {
            return Err(format!("{bytes} bytes of {message:?}"));
        }
        packed.truncate(message.receive.places.len());
        self.turn(
            (message.from, node),
            [&message.send, &message.receive],
            message.size,
            &mut packed,
        );
        message.receive.unpack(&packed, &mut self.expected[node], at);
        let header = &mut self.expected[node][message.header_at..];
        header[..message.header.len()].copy_from_slice(&message.header);
        Ok(())
    }

    fn received_any(
        &mut self,
        node: usize,
        at: usize,
        (order, which): (u64, Kind),
        completion: Completion,
    ) -> Result<(), String> {
        let from = Carriers::index(node, completion.peer);
        let id = self.carriers.look(node, |memory| {
            let (id, _) = memory[at..].split_first_chunk().expect("it has eight bytes");
            u64::from_le_bytes(*id) as usize
        });
        let is_one = |message: &&super::plan::Message| {
            message.kind == which && message.from == from && message.to == node
        };
        let message = self.plan.messages.get(id).filter(is_one).cloned();
        let message = message.ok_or("what came is no message")?;
        if completion.result.is_err()
            || completion.tag != message.tag
            || completion.data != message.word
        {
            return Err("its tag, its word, or its end".to_owned());
        }
        if completion.bytes != message.send.span {
            return Err("its length".to_owned());
        }
        self.received.insert(id);
        let earlier = self.order.entry((from, node, which == Kind::Bare)).or_default();
        if earlier.iter().any(|(at, other)| (*at < order) != (*other < id)) {
            return Err(format!("{id} overtook, or came twice: {earlier:?}"));
        }
        earlier.push((order, id));
        let packed = message.send.pack(&self.expected[from], message.send_at);
        message.send.unpack(&packed, &mut self.expected[node], at);
        Ok(())
    }

    fn counted(&mut self, node: usize, before: usize, target: usize) {
        self.accept(node, before, 8);
        let value = &self.expected[node][before..before + 8];
        let order = self.orders[node];
        self.counts.push((target, number(order, value)));
    }

    pub fn audit_counters(&mut self) -> Result<(), String> {
        let mut seen = self.counts.clone();
        seen.sort_unstable();
        let before = seen.len();
        seen.dedup();
        if seen.len() != before {
            return Err(format!("two saw the same count: {:?}", self.counts));
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn accessed(
        &mut self,
        node: usize,
        window: usize,
        what: Access,
        size: Size,
        (local, at): (&Shape, usize),
        remote: &Shape,
        pending: &Pending,
        completion: Completion,
    ) {
        let window = self.plan.windows[window];
        if let Access::Put { word: Some(word) } = what {
            match completion.result {
                Ok(()) => self.words.done.push((word, [node, window.target])),
                Err(Fault::PeerDead) => {}
                Err(_) => drop(self.words.refused.insert(word)),
            }
        }
        let is_known = completion.result.is_ok() && !pending.was_revoked;
        if !is_known {
            // It may have been done, or a part of it; after it was revoked nothing changes there.
            if what == Access::Get {
                self.accept(node, at, local.span as usize);
            }
            if let Access::Fetch { before } = what {
                self.accept(node, before, size.bytes() as usize);
            }
            if !window.is_revoked {
                self.accept(window.target, window.at, WINDOW_BYTES);
            }
            return;
        }
        let theirs = remote.pack(&self.expected[window.target], window.at);
        // What each side has, as the other one sees it.
        let (ends, sides) = ((node, window.target), [local, remote]);
        let mut seen = theirs.clone();
        self.turn(ends, sides, size, &mut seen);
        let mut ours = local.pack(&self.expected[node], at);
        self.turn(ends, sides, size, &mut ours);
        match what {
            Access::Get => local.unpack(&seen, &mut self.expected[node], at),
            Access::Put { .. } => {
                remote.unpack(&ours, &mut self.expected[window.target], window.at)
            }
            Access::Accumulate | Access::Fetch { .. } => {
                let order = self.orders[window.target];
                let sum = combine(order, element(remote, size), &theirs, &ours);
                remote.unpack(&sum, &mut self.expected[window.target], window.at);
            }
        }
        if let Access::Fetch { before } = what {
            self.expected[node][before..before + seen.len()].copy_from_slice(&seen);
        }
    }

    /// Turns packed bytes that pass from one process to another of the other byte order, if one of the layouts says what
    /// their elements are.
    fn turn(&self, ends: (usize, usize), sides: [&Shape; 2], size: Size, packed: &mut [u8]) {
        let is_typed = sides.iter().any(|side| side.layout.is_some());
        if is_typed && self.orders[ends.0] != self.orders[ends.1] {
            let whole = packed.chunks_exact_mut(size.element.bytes() as usize);
            whole.for_each(|element| element.reverse());
        }
    }

    fn added(
        &mut self,
        node: usize,
        window: usize,
        element: Element,
        [from, before]: [usize; 2],
        pending: &Pending,
        completion: Completion,
    ) {
        let window = self.plan.windows[window];
        let bytes = (ATOMIC_COUNT * element.bytes()) as usize;
        if completion.result.is_err() || pending.was_revoked {
            self.accept(node, before, bytes);
            if !window.is_revoked {
                self.accept(window.target, window.at, WINDOW_BYTES);
            }
            return;
        }
        let orders = [node, window.target].map(|end| self.orders[end]);
        let seen = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            if orders[0] != orders[1] {
                bytes.chunks_mut(element.bytes() as usize).for_each(<[u8]>::reverse);
            }
            bytes
        };
        let there = self.expected[window.target][window.at..window.at + bytes].to_vec();
        let ours = seen(&self.expected[node][from..from + bytes]);
        let sum = combine(orders[1], element, &there, &ours);
        self.expected[window.target][window.at..window.at + bytes].copy_from_slice(&sum);
        self.expected[node][before..before + bytes].copy_from_slice(&seen(&there));
    }

    fn swapped(
        &mut self,
        node: usize,
        window: usize,
        [expected, new, before]: [usize; 3],
        pending: &Pending,
        completion: Completion,
    ) {
        let window = self.plan.windows[window];
        if completion.result.is_err() || pending.was_revoked {
            self.accept(node, before, 24);
            if !window.is_revoked {
                self.accept(window.target, window.at, WINDOW_BYTES);
            }
            return;
        }
        let bytes = |node: usize, at: usize| self.expected[node][at..at + 24].to_vec();
        let there = bytes(window.target, window.at);
        let (expected, new) = (bytes(node, expected), bytes(node, new));
        self.expected[node][before..before + 24].copy_from_slice(&there);
        if there == expected {
            self.expected[window.target][window.at..window.at + 24].copy_from_slice(&new);
        }
    }
}

/// Numbers of an atomic operation.
const ATOMIC_COUNT: u64 = 3;

fn span(node: usize, at: usize, bytes: u64) -> Span {
    Span::new(Carriers::address(node) + at as u64, bytes)
}

fn operation(remote: &Shape, size: Size) -> Op {
    if element(remote, size) == Element::Byte { Op::Bxor } else { Op::Sum }
}

fn number(order: ByteOrder, bytes: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    match order {
        ByteOrder::Little => bytes.iter().rev().fold(0, add),
        ByteOrder::Big => bytes.iter().fold(0, add),
    }
}

/// Sums of integers, or bytes with exclusive or.
fn combine(order: ByteOrder, element: Element, there: &[u8], here: &[u8]) -> Vec<u8> {
    let width = element.bytes() as usize;
    let pairs = there.chunks(width).zip(here.chunks(width));
    pairs
        .flat_map(|(a, b)| {
            let (a, b) = (number(order, a), number(order, b));
            let sum = if element == Element::Byte { a ^ b } else { a.wrapping_add(b) };
            let mut bytes = sum.to_le_bytes()[..width].to_vec();
            if order == ByteOrder::Big {
                bytes.reverse();
            }
            bytes
        })
        .collect()
}
