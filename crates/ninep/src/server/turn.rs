//! Whose turn it is: here requests are admitted, queued, started, completed, flushed and cancelled.

use super::answer::{Answer, Asked, Wait};
use super::fids::{Fid, File};
use super::finish::Then;
use super::order::{Claims, Stage, may_change_data};
use super::read::Reading;
use super::start::Started;
use super::{Load, Moment, REQUESTS_MAX, Session};
use crate::frame::{DataHead, weight};
use crate::message::Message;
use crate::tree::{Errno, Result, Tree};
use covey_wire::Blame;

/// An outstanding request.
pub(super) struct Request<N> {
    claims: Claims,
    /// Payload that it holds in bytes.
    weight: usize,
    /// Whether it may wait for ever.
    can_block: bool,
    state: State<N>,
}

enum State<N> {
    /// Its turn has not come.
    Queued(Message),
    /// The tree has not answered: the index of its task, and what to do then.
    Running(usize, Then<N>),
}

/// What a request waits for, and what is to be done then.
pub(super) type Parked<N> = (Wait<N>, Then<N>);

impl<T: Tree> Session<T> {
    /// A new request: it starts at once, or is queued behind what it must wait for.
    pub(super) fn admit(&mut self, tag: u16, request: Message) {
        let claims = Claims::of(&request);
        let weight = weight(&request, self.msize);
        let fids = &self.fids;
        if !self.order.is_free(&claims, |fid| fids.mode(fid)) {
            self.order.insert(tag, claims, Stage::Queued);
            let state = State::Queued(request);
            return self.insert(tag, Request { claims, weight, can_block: false, state });
        }
        if let Some(parked) = self.begin(tag, request) {
            self.order.insert(tag, claims, Stage::Running);
            self.park(tag, claims, weight, parked);
        }
    }

    /// The tree has answered the request `tag`, which waited for it.
    pub(super) fn complete(&mut self, tag: u16, answer: Result<Answer<T::Node>>) {
        let Some(request) = self.requests.remove(&tag) else { return };
        self.load.remove(&request);
        self.order.remove(tag, &request.claims, Stage::Running);
        // It may have changed a file.
        self.moment = Moment::new();
        if let State::Running(_, then) = request.state {
            self.conclude(tag, then, answer);
        }
        self.settle(request.claims);
    }

    /// Tflush: `oldtag` is never answered after Rflush. It may be over or never have been.
    pub(super) fn flush(&mut self, tag: u16, oldtag: u16) {
        let claims = self.requests.remove(&oldtag).map(|request| self.forget(oldtag, request));
        self.reply(tag, Message::Rflush {});
        self.settle(claims.unwrap_or_default());
    }

    /// Answers the requests that may wait for ever on `fid`.
    pub(super) fn cancel_blocked(&mut self, fid: u32) {
        for tag in self.order.blocked(fid, self.fids.mode(fid)) {
            if let Some(request) = self.requests.remove(&tag) {
                self.forget(tag, request);
                self.reply_error(tag, Errno::because(Errno::EINTR, "fid was clunked"));
            }
        }
    }

    /// The session ends: no request is answered any more, no fid stays. What is open is cut, unless the peer is known to
    /// have ended well.
    pub(super) fn reset(&mut self) {
        self.order.clear();
        self.tasks.clear();
        // In the order of their numbers, so that whatever follows from it is the same each time.
        let mut requests: Vec<_> = std::mem::take(&mut self.requests).into_iter().collect();
        requests.sort_unstable_by_key(|&(tag, _)| tag);
        for (_, request) in requests {
            self.load.remove(&request);
            self.abandon(request.state);
        }
        let gone: Vec<_> = self.fids.drain().collect();
        for fid in gone {
            if let Some(removal) = self.removal(&fid) {
                self.tree.detach(Box::pin(async move { drop(removal.await) }));
            }
            self.clunk(self.left(fid));
        }
    }

    /// The fid as whoever held it leaves it behind.
    fn left(&self, mut fid: Fid<T::Node>) -> Fid<T::Node> {
        if let Fid::File(File { open: Some(open), .. }) = &mut fid {
            open.is_cut |= !self.has_ended_well;
        }
        fid
    }

    /// Starts a request. Answers it at once, or returns what it waits for.
    fn begin(&mut self, tag: u16, request: Message) -> Option<Parked<T::Node>> {
        if let Message::Tread { fid, offset, count } = request {
            match self.read(&DataHead { tag, fid, offset, count }) {
                Reading::Answered => return None,
                Reading::Waits(parked) => return Some(parked),
                Reading::Other => {}
            }
        }
        if may_change_data(&request)
            && let Err(blame) = self.begin_change()
        {
            self.failure = Some(blame);
            return None;
        }
        match self.start(request) {
            Ok(Started::Reply(reply)) => self.reply(tag, reply),
            Ok(Started::Asked(Asked::Now(answer), then)) => self.conclude(tag, then, answer),
            Ok(Started::Asked(Asked::Later(wait), then)) => return Some((wait, then)),
            Err(error) => self.reply_error(tag, error),
        }
        None
    }

    /// Something that may change a file is next: replies to the reads before it are settled first.
    pub(super) fn begin_change(&mut self) -> std::result::Result<(), Blame> {
        self.moment = Moment::new();
        self.output.settle()
    }

    fn conclude(&mut self, tag: u16, then: Then<T::Node>, answer: Result<Answer<T::Node>>) {
        match self.finish(then, answer) {
            Ok(reply) => self.reply(tag, reply),
            Err(error) => self.reply_error(tag, error),
        }
    }

    /// A started request waits for the tree.
    pub(super) fn park(
        &mut self,
        tag: u16,
        claims: Claims,
        weight: usize,
        parked: Parked<T::Node>,
    ) {
        let (wait, then) = parked;
        let fids = &self.fids;
        let can_block = claims.can_block(|fid| fids.mode(fid));
        // A read that waits for a blocking file holds nothing yet.
        let is_read = matches!(then, Then::Read { .. } | Then::ReadView { .. });
        let weight = if can_block && is_read { 0 } else { weight };
        if can_block && !self.load.has_room_to_block(weight, self.share.bytes()) {
            // Backpressure cannot help here: what would end these waits may be behind them.
            self.order.remove(tag, &claims, Stage::Running);
            let what = format!("{} requests wait on blocking files", self.load.blocked);
            return self.reply_error(tag, Errno::because(Errno::EAGAIN, what));
        }
        let state = State::Running(self.tasks.insert(tag, wait), then);
        self.insert(tag, Request { claims, weight, can_block, state });
    }

    fn insert(&mut self, tag: u16, request: Request<T::Node>) {
        self.load.insert(&request);
        self.requests.insert(tag, request);
    }

    /// Starts what waited for a request that claimed `claims` and is over.
    fn settle(&mut self, claims: Claims) {
        let mut fids: Vec<u32> = Vec::new();
        fids.extend(self.order.has_queued().then_some(claims).iter().flat_map(Claims::fids));
        while let Some(fid) = fids.pop() {
            let table = &self.fids;
            for tag in self.order.startable(fid, |fid| table.mode(fid)) {
                if let Some(claims) = self.begin_queued(tag) {
                    fids.extend(claims.fids());
                }
            }
        }
    }

    /// The turn of a queued request has come. Returns its claims if it is over already.
    fn begin_queued(&mut self, tag: u16) -> Option<Claims> {
        let request = self.requests.remove(&tag)?;
        self.load.remove(&request);
        let Request { claims, weight, state, .. } = request;
        let State::Queued(message) = state else { return None };
        self.order.set_running(tag, &claims);
        if let Some(parked) = self.begin(tag, message) {
            self.park(tag, claims, weight, parked);
            return None;
        }
        self.order.remove(tag, &claims, Stage::Running);
        Some(claims)
    }

    /// Drops a request that was taken out of the table.
    fn forget(&mut self, tag: u16, request: Request<T::Node>) -> Claims {
        self.load.remove(&request);
        let stage = match request.state {
            State::Queued(_) => Stage::Queued,
            State::Running(..) => Stage::Running,
        };
        self.order.remove(tag, &request.claims, stage);
        if let State::Running(task, _) = request.state {
            self.tasks.remove(task);
        }
        self.abandon(request.state);
        request.claims
    }

    /// A remove or clunk that is dropped has taken its fid all the same.
    fn abandon(&mut self, state: State<T::Node>) {
        if let State::Running(_, Then::Gone { user, node, .. }) = state {
            self.clunk_node(&user, node);
        }
    }
}

impl Load {
    fn insert<N>(&mut self, request: &Request<N>) {
        let (count, bytes) = self.side(request.can_block);
        *count += 1;
        *bytes += request.weight;
    }

    fn remove<N>(&mut self, request: &Request<N>) {
        let (count, bytes) = self.side(request.can_block);
        *count -= 1;
        *bytes -= request.weight;
    }

    fn side(&mut self, can_block: bool) -> (&mut usize, &mut usize) {
        if can_block {
            (&mut self.blocked, &mut self.blocked_bytes)
        } else {
            (&mut self.requests, &mut self.bytes)
        }
    }

    fn has_room_to_block(&self, weight: usize, bytes_max: usize) -> bool {
        self.blocked < REQUESTS_MAX && self.blocked_bytes + weight <= bytes_max
    }
}
