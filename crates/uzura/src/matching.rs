//! Which receive gets which message.
//!
//! Receives that name a peer and a tag lie in buckets by both, so that the common case is found at once; those
//! with wildcards in one list. The elder of the two that fit is served. Messages that came first lie in buckets
//! too, and in one list in the order in which they came, for receives with wildcards.

use crate::api::{Claim, Source, Tag};
use crate::envelope::{Envelope, Traits};
use crate::numbers::{ANYBODY, OpIndex};
use crate::ops::{Op, Ops, Ready};
use crate::order::Types;
use covey_wire::Peer;

/// A list of operations or of messages, linked through them.
#[derive(Clone, Copy, Debug)]
struct List<I> {
    first: I,
    last: I,
}

const EMPTY: List<OpIndex> = List { first: OpIndex::NONE, last: OpIndex::NONE };

/// Receives and messages that may match each other.
#[derive(Debug)]
pub(crate) struct Queue {
    pub posted: Posted,
    pub early: Unexpected,
}

impl Queue {
    pub fn new() -> Queue {
        Queue { posted: Posted::new(), early: Unexpected::new() }
    }
}

/// Receives without a message.
#[derive(Debug)]
pub(crate) struct Posted {
    exact: Vec<List<OpIndex>>,
    wild: List<OpIndex>,
    /// Those that look at headers.
    rules: List<OpIndex>,
    posted: u64,
}

impl Posted {
    pub fn new() -> Posted {
        Posted { exact: vec![EMPTY; BUCKETS], wild: EMPTY, rules: EMPTY, posted: 0 }
    }

    /// Adds a receive, whose source and tag are set.
    #[inline(always)]
    pub fn add(&mut self, ops: &mut Ops, index: OpIndex) {
        self.posted += 1;
        ops[index].order = self.posted;
        let list = self.list(ops, index);
        match list.last {
            OpIndex::NONE => list.first = index,
            last => ops[last].next = index,
        }
        list.last = index;
        ops[index].next = OpIndex::NONE;
    }

    /// Takes the receive that a message is for, if that is the first of the only list that has any, and `is_it` is true of it.
    #[inline(always)]
    pub fn take_first(
        &mut self,
        ops: &mut Ops,
        peer: Peer,
        tag: u64,
        is_it: impl FnOnce(&Op) -> bool,
    ) -> Option<OpIndex> {
        let exact = &mut self.exact[bucket(peer, tag)];
        let list = match (exact.first, self.wild.first) {
            (OpIndex::NONE, _) => &mut self.wild,
            (_, OpIndex::NONE) => exact,
            _ => return None,
        };
        let index = list.first;
        if self.rules.first != OpIndex::NONE || index == OpIndex::NONE {
            return None;
        }
        let op = &ops[index];
        if !op.takes(peer, tag) || !is_it(op) {
            return None;
        }
        unlink(ops, list, OpIndex::NONE, index);
        Some(index)
    }

    /// Takes the receive that a message is for. One that takes many stays.
    #[inline(always)]
    pub fn take(&mut self, ops: &mut Ops, peer: Peer, tag: u64, header: &[u8]) -> Option<OpIndex> {
        if self.rules.first != OpIndex::NONE
            && let Some(found) = self.rule(ops, peer, tag, header)
        {
            return Some(found);
        }
        let bucket = bucket(peer, tag);
        let exact = find(ops, self.exact[bucket], peer, tag);
        if self.wild.first != OpIndex::NONE
            && let Some((before, wild)) = find(ops, self.wild, peer, tag)
            && exact.is_none_or(|(_, exact)| ops[wild].order < ops[exact].order)
        {
            leave(ops, &mut self.wild, before, wild);
            return Some(wild);
        }
        let (before, found) = exact?;
        leave(ops, &mut self.exact[bucket], before, found);
        Some(found)
    }

    /// The same, if `is_it` is true of that receive and no header has to be looked at.
    pub fn take_if(
        &mut self,
        ops: &mut Ops,
        peer: Peer,
        tag: u64,
        is_it: impl FnOnce(&Op) -> bool,
    ) -> Option<OpIndex> {
        if self.rules.first != OpIndex::NONE {
            return None;
        }
        let exact = find(ops, self.exact[bucket(peer, tag)], peer, tag);
        let wild = find(ops, self.wild, peer, tag);
        let both = [exact, wild].into_iter().flatten().map(|(_, index)| index);
        let first = both.min_by_key(|index| ops[*index].order)?;
        if is_it(&ops[first]) { self.take(ops, peer, tag, &[]) } else { None }
    }

    #[cold]
    fn rule(&mut self, ops: &mut Ops, peer: Peer, tag: u64, header: &[u8]) -> Option<OpIndex> {
        let (mut before, mut at) = (OpIndex::NONE, self.rules.first);
        while at != OpIndex::NONE {
            if fits(ops, at, peer, tag) && follows(ops, at, header) {
                unlink(ops, &mut self.rules, before, at);
                return Some(at);
            }
            (before, at) = (at, ops[at].next);
        }
        None
    }

    /// Takes a receive back.
    pub fn remove(&mut self, ops: &mut Ops, index: OpIndex) {
        let list = self.list(ops, index);
        let (mut before, mut at) = (OpIndex::NONE, list.first);
        while at != OpIndex::NONE && at != index {
            (before, at) = (at, ops[at].next);
        }
        if at == index {
            unlink(ops, list, before, at);
        }
    }

    #[inline(always)]
    fn list(&mut self, ops: &Ops, index: OpIndex) -> &mut List<OpIndex> {
        let op = &ops[index];
        if op.more.as_ref().is_some_and(|more| more.place.is_some()) {
            &mut self.rules
        } else if op.peer == ANYBODY || op.ignore != 0 {
            &mut self.wild
        } else {
            &mut self.exact[bucket(op.peer, op.tag)]
        }
    }
}

#[inline]
fn find(ops: &Ops, list: List<OpIndex>, peer: Peer, tag: u64) -> Option<(OpIndex, OpIndex)> {
    let (mut before, mut at) = (OpIndex::NONE, list.first);
    while at != OpIndex::NONE {
        if fits(ops, at, peer, tag) {
            return Some((before, at));
        }
        (before, at) = (at, ops[at].next);
    }
    None
}

#[inline]
fn fits(ops: &Ops, index: OpIndex, peer: Peer, tag: u64) -> bool {
    ops[index].takes(peer, tag)
}

fn follows(ops: &Ops, index: OpIndex, header: &[u8]) -> bool {
    let place = ops[index].more.as_ref().and_then(|more| more.place.as_ref());
    place.is_some_and(|place| follows_form(&place.mask, &place.value, header))
}

/// Whether a message begins with a header of a form.
pub(crate) fn follows_form(mask: &[u8], value: &[u8], message: &[u8]) -> bool {
    let bits = mask.iter().zip(value).zip(message);
    message.len() >= mask.len()
        && bits.into_iter().all(|((mask, value), is)| (is ^ value) & mask == 0)
}

#[inline]
fn leave(ops: &mut Ops, list: &mut List<OpIndex>, before: OpIndex, at: OpIndex) {
    if !ops[at].traits.has(Traits::MANY) {
        unlink(ops, list, before, at);
    }
}

#[inline]
fn unlink(ops: &mut Ops, list: &mut List<OpIndex>, before: OpIndex, at: OpIndex) {
    let next = ops[at].next;
    match before {
        OpIndex::NONE => list.first = next,
        before => ops[before].next = next,
    }
    if list.last == at {
        list.last = before;
    }
}

/// A message that nobody has received yet.
#[derive(Debug)]
pub(crate) struct Early {
    pub peer: Peer,
    pub envelope: Envelope,
    pub body: Body,
    /// What the sender was charged for it.
    pub cost: u64,
    /// The elements of a short one, where its sender told them.
    pub types: Option<Types>,
    /// The number of its claim; 0 while it is in the lists.
    claim: u32,
    before: EarlyIndex,
    after: EarlyIndex,
    next: EarlyIndex,
}

/// What is there of it.
#[derive(Debug)]
pub(crate) enum Body {
    /// All.
    Whole(Vec<u8>),
    /// Its sender waits.
    Ready(Ready),
    /// A place without a message.
    Free,
}

impl Body {
    /// Bytes of the message.
    pub fn bytes(&self) -> u64 {
        match self {
            Body::Whole(bytes) => bytes.len() as u64,
            Body::Ready(ready) => ready.bytes,
            Body::Free => 0,
        }
    }

    /// The bytes that are there.
    pub fn begin(&self) -> &[u8] {
        match self {
            Body::Whole(bytes) => bytes,
            Body::Ready(ready) => &ready.header,
            Body::Free => &[],
        }
    }
}

/// A message's place among those that nobody has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarlyIndex(u32);

impl EarlyIndex {
    /// No message: the end of a list.
    const NONE: EarlyIndex = EarlyIndex(u32::MAX);
}

const NO_MESSAGE: List<EarlyIndex> = List { first: EarlyIndex::NONE, last: EarlyIndex::NONE };

/// Messages without a receive.
#[derive(Debug)]
pub(crate) struct Unexpected {
    all: Vec<Early>,
    free: Vec<EarlyIndex>,
    buckets: Vec<List<EarlyIndex>>,
    order: List<EarlyIndex>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    claims: u32,
}

impl Unexpected {
    pub fn new() -> Unexpected {
        Unexpected {
            all: Vec::new(),
            free: Vec::new(),
            buckets: vec![NO_MESSAGE; BUCKETS],
            order: NO_MESSAGE,
            spare: Vec::new(),
            claims: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.order.first == EarlyIndex::NONE
    }

    /// A buffer with these bytes.
    pub fn buffer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Takes a buffer back.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(buffer);
        }
    }

    pub fn add(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        body: Body,
        cost: u64,
        types: Option<Types>,
    ) {
        let before = self.order.last;
        let early = Early {
            peer,
            envelope,
            body,
            cost,
            types,
            claim: 0,
            before,
            after: EarlyIndex::NONE,
            next: EarlyIndex::NONE,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.all[index.0 as usize] = early;
                index
            }
            None => {
                self.all.push(early);
                EarlyIndex(self.all.len() as u32 - 1)
            }
        };
        match self.order.last {
            EarlyIndex::NONE => self.order.first = index,
            last => self.all[last.0 as usize].after = index,
        }
        self.order.last = index;
        let list = &mut self.buckets[bucket(peer, envelope.tag)];
        match list.last {
            EarlyIndex::NONE => list.first = index,
            last => self.all[last.0 as usize].next = index,
        }
        list.last = index;
    }

    /// The first message that fits, and of which `is_it` is true.
    pub fn find(
        &self,
        from: Source,
        tag: Tag,
        is_it: impl Fn(&Early) -> bool,
    ) -> Option<EarlyIndex> {
        let by_bucket = match from {
            Source::From(peer) if tag.ignore == 0 => Some(bucket(peer, tag.value)),
            _ => None,
        };
        let mut at = by_bucket.map_or(self.order.first, |at| self.buckets[at].first);
        while at != EarlyIndex::NONE {
            let early = &self.all[at.0 as usize];
            let is_from = from == Source::Any || from == Source::From(early.peer);
            if is_from && tag.takes(early.envelope.tag) && is_it(early) {
                return Some(at);
            }
            at = if by_bucket.is_some() { early.next } else { early.after };
        }
        None
    }

    pub fn look(&self, index: EarlyIndex) -> &Early {
        &self.all[index.0 as usize]
    }

    /// Takes a message out.
    pub fn take(&mut self, index: EarlyIndex) -> Early {
        let gone = Early {
            peer: ANYBODY,
            envelope: Envelope::default(),
            body: Body::Free,
            cost: 0,
            types: None,
            claim: 0,
            before: EarlyIndex::NONE,
            after: EarlyIndex::NONE,
            next: EarlyIndex::NONE,
        };
        if self.look(index).claim == 0 {
            self.unlink(index);
        }
        self.free.push(index);
        std::mem::replace(&mut self.all[index.0 as usize], gone)
    }

    /// Takes a message out of the lists, so that only who has the claim finds it.
    pub fn claim(&mut self, index: EarlyIndex) -> Claim {
        self.unlink(index);
        // The last bit is the queue's.
        self.claims = self.claims % (u32::MAX >> 1) + 1;
        self.all[index.0 as usize].claim = self.claims;
        Claim(u64::from(index.0) | u64::from(self.claims) << 32)
    }

    /// The message of a claim, if it is still there.
    pub fn of_claim(&self, claim: Claim) -> Option<EarlyIndex> {
        let (index, serial) = (EarlyIndex(claim.0 as u32), (claim.0 >> 32) as u32);
        let early = self.all.get(index.0 as usize)?;
        (serial != 0 && early.claim == serial).then_some(index)
    }

    fn unlink(&mut self, index: EarlyIndex) {
        let early = self.look(index);
        let (before, after, next) = (early.before, early.after, early.next);
        let bucket = bucket(early.peer, early.envelope.tag);
        match before {
            EarlyIndex::NONE => self.order.first = after,
            before => self.all[before.0 as usize].after = after,
        }
        match after {
            EarlyIndex::NONE => self.order.last = before,
            after => self.all[after.0 as usize].before = before,
        }
        let list = &mut self.buckets[bucket];
        let (mut before, mut at) = (EarlyIndex::NONE, list.first);
        while at != index {
            (before, at) = (at, self.all[at.0 as usize].next);
        }
        match before {
            EarlyIndex::NONE => list.first = next,
            before => self.all[before.0 as usize].next = next,
        }
        if list.last == index {
            list.last = before;
        }
    }
}

#[inline]
fn bucket(peer: Peer, tag: u64) -> usize {
    let mix = (tag ^ u64::from(peer.0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mix >> (64 - BUCKETS.ilog2())) as usize
}

const BUCKETS: usize = 512;
const SPARE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Local;
    use crate::ops::{State, What};
    use covey_wire::{Peer, Span};

    fn post(ops: &mut Ops, posted: &mut Posted, peer: Peer, tag: u64, ignore: u64) -> OpIndex {
        let local = Local::bytes(Span::default());
        let index = ops.add(What::Receive, peer, 0, local).expect("there is room");
        (ops[index].tag, ops[index].ignore, ops[index].state) = (tag, ignore, State::Posted);
        posted.add(ops, index);
        index
    }

    #[test]
    fn receives_are_served_in_the_order_in_which_they_were_posted_wildcards_or_not() {
        let (mut ops, mut posted) = (Ops::new(100), Posted::new());
        let first = post(&mut ops, &mut posted, Peer(1), 7, 0);
        let anybody = post(&mut ops, &mut posted, ANYBODY, 7, 0);
        let second = post(&mut ops, &mut posted, Peer(1), 7, 0);
        let any_tag = post(&mut ops, &mut posted, Peer(1), 0, u64::MAX);
        let third = post(&mut ops, &mut posted, Peer(1), 7, 0);
        let mut take = |peer, tag| posted.take(&mut ops, Peer(peer), tag, &[]);
        assert_eq!(take(2, 8), None);
        for expected in [first, anybody, second, any_tag, third] {
            assert_eq!(take(1, 7), Some(expected));
        }
        assert_eq!(take(1, 7), None);
    }

    #[test]
    fn one_that_is_taken_back_leaves_the_others_in_their_order() {
        let (mut ops, mut posted) = (Ops::new(100), Posted::new());
        let all: Vec<OpIndex> =
            (0..5).map(|_| post(&mut ops, &mut posted, Peer(1), 7, 0)).collect();
        for gone in [all[4], all[0], all[2]] {
            posted.remove(&mut ops, gone);
        }
        let last = post(&mut ops, &mut posted, Peer(1), 7, 0);
        for expected in [all[1], all[3], last] {
            assert_eq!(posted.take(&mut ops, Peer(1), 7, &[]), Some(expected));
        }
        assert_eq!(posted.take(&mut ops, Peer(1), 7, &[]), None);
    }

    #[test]
    fn a_claimed_message_is_found_by_its_claim_only_and_once() {
        let mut early = Unexpected::new();
        for byte in 0..3 {
            early.add(Peer(1), Envelope::tagged(7), Body::Whole(vec![byte]), 1, None);
        }
        let find = |early: &Unexpected| early.find(Source::Any, Tag::exact(7), |_| true);
        early.take(find(&early).expect("the first"));
        let claim = early.claim(find(&early).expect("the second"));
        let third = early.take(find(&early).expect("the third"));
        assert_eq!((third.body.begin(), early.is_empty()), (&[2][..], true));
        let second = early.of_claim(claim).expect("it is there");
        assert_eq!(early.take(second).body.begin(), [1]);
        assert!(early.of_claim(claim).is_none());
        // The place is used again, by a message that nobody has claimed, and then by another claim.
        early.add(Peer(1), Envelope::tagged(7), Body::Whole(vec![4]), 1, None);
        assert!(early.of_claim(claim).is_none() && early.of_claim(Claim(0)).is_none());
        let other = early.claim(find(&early).expect("it is there"));
        assert!(other != claim && early.of_claim(claim).is_none());
    }

    #[test]
    fn early_messages_are_found_by_any_criterion_in_the_order_in_which_they_came() {
        let mut early = Unexpected::new();
        for (peer, tag) in [(1, 7), (2, 7), (1, 8), (1, 7)] {
            let body = Body::Whole(vec![early.all.len() as u8]);
            early.add(Peer(peer), Envelope::tagged(tag), body, 1, None);
        }
        let from = |peer| Source::From(Peer(peer));
        let mut take = |from, tag| {
            let found = early.find(from, tag, |_| true)?;
            Some(early.take(found).body.begin()[0])
        };
        assert_eq!(take(Source::Any, Tag::exact(8)), Some(2));
        assert_eq!(take(from(1), Tag::exact(7)), Some(0));
        assert_eq!(take(from(1), Tag::ANY), Some(3));
        assert_eq!(take(from(1), Tag::ANY), None);
        assert_eq!(take(Source::Any, Tag::ANY), Some(1));
        assert!(early.is_empty());
    }
}
