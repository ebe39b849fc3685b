//! What the handle and the machine share: tags, queues, fid numbers.

use super::call::CallError;
use super::tags::{ALL_TAGS, Answer, CALL_TAGS, SEND_TAGS, Slot, Tags};
use super::{Config, WINDOW_REQUESTS, Window};
use crate::frame::{Frame, weight};
use crate::message::{Dialect, HEADER_BYTES, Message, NONUNAME, NOTAG, Number};
use crate::tree::Errno;
use covey_wire::{Blame, BytesMut, Landing, Name, Payload, Segments};
use std::collections::VecDeque;
use std::mem;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// The state behind its lock. Wakers ring after the lock is given back.
pub(super) struct Shared {
    state: Mutex<State>,
}

impl Shared {
    pub fn new(config: Config) -> Shared {
        Shared { state: Mutex::new(State::new(config)) }
    }

    /// Does something with the state.
    pub fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let (result, wakers) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            (act(&mut state), mem::take(&mut state.wakers))
        };
        wakers.into_iter().for_each(Waker::wake);
        result
    }
}

/// One connection.
pub(super) struct State {
    /// `None` until Tversion has settled it.
    pub dialect: Option<Dialect>,
    pub msize: u32,
    /// Why the connection has ended.
    pub lost: Option<String>,
    /// It ended because the peer was silent for too long.
    pub is_silent: bool,
    /// The machine is to look at the clock: an answer has become due after an idle time.
    pub is_unstamped: bool,
    /// Tags with an answer due.
    pub due: usize,
    /// The peer owes an answer to a heartbeat.
    pub has_heartbeat: bool,
    /// Calls whose payload has a place of its own to go to.
    pub rooms: usize,
    /// There is something to send that the machine has not been told of.
    has_news: bool,
    /// No handle is left.
    is_left: bool,
    tags: Tags,
    /// Tflush, which passes requests that have not left.
    control: VecDeque<(u16, Message)>,
    requests: VecDeque<(u16, Message)>,
    /// On their way: requests, and their payload in bytes.
    sent: usize,
    sent_bytes: usize,
    window: Window,
    machine: Option<Waker>,
    watchers: Vec<Waker>,
    wakers: Vec<Waker>,
    fid_next: u32,
    fids_free: Vec<u32>,
}

impl State {
    fn new(config: Config) -> State {
        State {
            dialect: None,
            msize: config.msize,
            lost: None,
            is_silent: false,
            is_unstamped: config.heartbeat_idle,
            due: 0,
            has_heartbeat: false,
            rooms: 0,
            has_news: false,
            is_left: false,
            tags: Tags::new(),
            control: VecDeque::new(),
            requests: VecDeque::new(),
            sent: 0,
            sent_bytes: 0,
            window: config.window,
            machine: None,
            watchers: Vec::new(),
            wakers: Vec::new(),
            // Number 0 is left to whoever names the root by hand.
            fid_next: 1,
            fids_free: Vec::new(),
        }
    }

    // What users do.

    /// Queues a request whose reply is awaited; of an Rread, the payload goes to `room`, if there is one.
    pub fn call(&mut self, request: Message, room: Option<BytesMut>) -> Result<u16, CallError> {
        let tag = self.admit(&request, CALL_TAGS)?;
        let (number, weight) = (request.number(), weight(&request, self.msize));
        self.rooms += usize::from(room.is_some());
        let waiting = Slot::Waiting { number, weight, is_sent: false, waker: None, room };
        self.enqueue(tag, waiting, request);
        Ok(tag)
    }

    /// Queues a request whose reply is not awaited; after it, the number of fid `release` is free.
    pub fn send(&mut self, request: Message, release: Option<u32>) -> bool {
        let most = if release.is_some() { ALL_TAGS } else { SEND_TAGS };
        let Ok(tag) = self.admit(&request, most) else { return false };
        let (number, weight) = (request.number(), weight(&request, self.msize));
        let detached = Slot::Detached { number, weight, is_sent: false, release };
        self.enqueue(tag, detached, request);
        true
    }

    /// The reply to the call `tag`, which is free again once it is there.
    pub fn poll_call(
        &mut self,
        tag: u16,
        context: &mut Context<'_>,
    ) -> Poll<Result<Answer, CallError>> {
        let slot = self.tags.slot(tag);
        if let Slot::Waiting { waker, .. } = slot {
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        match mem::replace(slot, Slot::Free) {
            Slot::Done(result) => {
                self.tags.free(tag);
                Poll::Ready(result)
            }
            _ => unreachable!("a call's tag is waiting or done until the call is over"),
        }
    }

    /// The call `tag` is dropped.
    pub fn cancel(&mut self, tag: u16) {
        self.take_room(tag);
        let slot = self.tags.slot(tag);
        match mem::replace(slot, Slot::Free) {
            Slot::Waiting { is_sent: false, .. } => {
                self.requests.retain(|(queued, _)| *queued != tag);
                self.due -= 1;
                self.tags.free(tag);
            }
            Slot::Waiting { number, weight, is_sent, .. } => {
                // Without a tag for Tflush, or with a Tversion, the reply is simply ignored.
                let flush = if tag == NOTAG { None } else { self.tags.take(ALL_TAGS) };
                *self.tags.slot(tag) = match flush {
                    Some(_) => Slot::Flushed { weight },
                    None => Slot::Detached { number, weight, is_sent, release: None },
                };
                if let Some(flush) = flush {
                    self.push_control(flush, Slot::Flush(tag), tag);
                }
            }
            _ => self.tags.free(tag),
        }
    }

    /// Nobody waits for the call `tag`, after which the number `fid` is free.
    pub fn detach(&mut self, tag: u16, fid: u32) {
        let release = Some(fid);
        match mem::replace(self.tags.slot(tag), Slot::Free) {
            Slot::Waiting { number, weight, is_sent, .. } => {
                *self.tags.slot(tag) = Slot::Detached { number, weight, is_sent, release };
            }
            _ => {
                self.tags.free(tag);
                self.release_fid(fid);
            }
        }
    }

    /// Completes when the connection has ended.
    pub fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<String> {
        if let Some(reason) = &self.lost {
            return Poll::Ready(reason.clone());
        }
        if !self.watchers.iter().any(|waker| waker.will_wake(context.waker())) {
            self.watchers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// The last handle is dropped.
    pub fn leave(&mut self) {
        self.is_left = true;
        self.wakers.extend(self.machine.take());
    }

    /// The connection ends. The first reason counts.
    pub fn lose(&mut self, reason: &str) {
        if self.lost.is_some() {
            return;
        }
        self.lost = Some(reason.into());
        self.requests.clear();
        self.control.clear();
        self.due = 0;
        for slot in self.tags.all() {
            if let Slot::Waiting { waker, .. } = slot {
                self.rooms = 0;
                self.wakers.extend(waker.take());
                *slot = Slot::Done(Err(CallError::Lost(reason.into())));
            }
        }
        self.wakers.append(&mut self.watchers);
        self.wakers.extend(self.machine.take());
    }

    pub fn take_fid(&mut self) -> u32 {
        self.fids_free.pop().unwrap_or_else(|| {
            self.fid_next += 1;
            self.fid_next - 1
        })
    }

    pub fn release_fid(&mut self, fid: u32) {
        self.fids_free.push(fid);
    }

    // What the machine does.

    /// Notes the machine's waker. Ready when there is new output, or when the connection is to end.
    pub fn poll_machine(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Blame>> {
        if let Some(reason) = &self.lost {
            return Poll::Ready(Err(Blame::Io(reason.clone())));
        }
        if mem::take(&mut self.has_news) && self.can_send() {
            return Poll::Ready(Ok(()));
        }
        if self.is_left && self.due == 0 {
            return Poll::Ready(Err(Blame::Io("closed by its user".into())));
        }
        if !self.machine.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.machine = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Moves messages out, Tflush first, as far as the window goes.
    pub fn poll_output(&mut self, out: &mut Segments, bytes_max: usize) -> bool {
        let dialect = self.dialect.unwrap_or(Dialect::Linux);
        let before = out.len();
        while out.len() - before < bytes_max && self.can_send() {
            if let Some((tag, flush)) = self.control.pop_front() {
                flush.put(tag, dialect, out);
            } else if let Some((tag, request)) = self.requests.pop_front() {
                self.set_sent(tag);
                request.put(tag, dialect, out);
            }
        }
        out.len() > before
    }

    /// A reply has arrived.
    pub fn handle_reply(&mut self, frame: Frame) -> Result<(), Blame> {
        let tag = frame.tag;
        let dialect = self.dialect_of(frame.number);
        let reply = frame.message(dialect)?;
        self.tags.check_reply(tag, &reply)?;
        let answer = match (reply, self.take_room(tag)) {
            (Message::Rread { data }, Some(mut room)) => {
                let bytes = data.into_bytes();
                let place = room.get_mut(..bytes.len()).ok_or_else(|| longer(bytes.len()))?;
                place.copy_from_slice(&bytes);
                room.truncate(bytes.len());
                Answer::Filled(room)
            }
            (reply, _) => Answer::Reply(reply),
        };
        self.conclude(tag, answer);
        Ok(())
    }

    /// Where the payload of the Rread goes that has begun.
    pub fn landing(&mut self, tag: u16, bytes: usize) -> Option<Landing> {
        let has_room = |slot: &Slot| match slot {
            Slot::Waiting { is_sent: true, room: Some(room), .. } => room.len() >= bytes,
            _ => false,
        };
        self.tags.known(tag).filter(|slot| has_room(slot))?;
        self.take_room(tag).map(|room| Landing::new(room, bytes))
    }

    /// The payload of an Rread is where it was to go. Nobody may wait for it any more.
    pub fn handle_landed(&mut self, tag: u16, landing: Landing) -> Result<(), Blame> {
        self.tags.check_reply(tag, &Message::Rread { data: Payload::default() })?;
        self.conclude(tag, Answer::Filled(landing.into_buffer()));
        Ok(())
    }

    fn take_room(&mut self, tag: u16) -> Option<BytesMut> {
        let Slot::Waiting { room, .. } = self.tags.slot(tag) else { return None };
        let room = room.take();
        self.rooms -= usize::from(room.is_some());
        room
    }

    /// A call has its answer, or something else its reply.
    fn conclude(&mut self, tag: u16, answer: Answer) {
        match mem::replace(self.tags.slot(tag), Slot::Free) {
            Slot::Waiting { weight, waker, .. } => {
                self.arrived(weight);
                self.wakers.extend(waker);
                *self.tags.slot(tag) = Slot::Done(match answer {
                    Answer::Reply(Message::Rlerror { ecode }) => {
                        Err(CallError::Errno(ecode.into()))
                    }
                    Answer::Reply(Message::Rerror { ename, errno }) => {
                        Err(CallError::Errno(said(ename, errno)))
                    }
                    answer => Ok(answer),
                });
            }
            Slot::Detached { weight, release, .. } => {
                self.arrived(weight);
                self.fids_free.extend(release);
                self.tags.free(tag);
            }
            // The reply was faster than the flush: the tag stays taken until Rflush.
            flushed @ Slot::Flushed { .. } => *self.tags.slot(tag) = flushed,
            Slot::Flush(old) => {
                self.due -= 1;
                self.tags.free(tag);
                if let Slot::Flushed { weight } = mem::replace(self.tags.slot(old), Slot::Free) {
                    self.arrived(weight);
                    self.tags.free(old);
                }
            }
            Slot::Heartbeat => {
                self.has_heartbeat = false;
                self.due -= 1;
                self.tags.free(tag);
            }
            Slot::Free | Slot::Done(_) => unreachable!("refused by check_reply"),
        }
    }

    /// In which dialect a message is read: before one is settled, in the one that has it.
    fn dialect_of(&self, number: u8) -> Dialect {
        let first = if Dialect::Linux.speaks(number) { Dialect::Linux } else { Dialect::Plan9 };
        self.dialect.unwrap_or(first)
    }

    /// Asks for a sign of life, unless that has been done or cannot be.
    pub fn send_heartbeat(&mut self) {
        if self.dialect.is_none() || self.has_heartbeat {
            return;
        }
        if let Some(tag) = self.tags.take(ALL_TAGS) {
            self.has_heartbeat = true;
            self.push_control(tag, Slot::Heartbeat, NOTAG);
        }
    }

    // Parts.

    /// A tag for `request`, if it can be sent.
    fn admit(&mut self, request: &Message, tags_max: usize) -> Result<u16, CallError> {
        if let Some(reason) = &self.lost {
            return Err(CallError::Lost(reason.clone()));
        }
        let misuse = |code, what: String| Err(CallError::Errno(Errno::because(code, what)));
        let dialect = self.dialect.unwrap_or(Dialect::Linux);
        let size = HEADER_BYTES + request.body_size(dialect);
        if size > self.msize as usize {
            let what = format!("{} of {size} bytes, msize is {}", request.name(), self.msize);
            return misuse(Errno::E2BIG, what);
        }
        match (request, self.dialect) {
            (Message::Tversion { .. }, _) if !matches!(self.tags.slot(NOTAG), Slot::Free) => {
                misuse(Errno::EBUSY, "Tversion is on its way".into())
            }
            (Message::Tversion { .. }, _) => Ok(NOTAG),
            (_, None) => misuse(Errno::EPROTO, format!("{} before Tversion", request.name())),
            (_, Some(dialect)) if !dialect.speaks(request.number()) => {
                let what = format!("{} in {}", request.name(), dialect.version());
                misuse(Errno::EOPNOTSUPP, what)
            }
            _ => match self.tags.take(tags_max) {
                Some(tag) => Ok(tag),
                None => misuse(Errno::EAGAIN, format!("{tags_max} calls are on their way")),
            },
        }
    }

    fn enqueue(&mut self, tag: u16, slot: Slot, request: Message) {
        *self.tags.slot(tag) = slot;
        // An answer becomes due where none was: silence counts from now on.
        self.is_unstamped |= self.due == 0;
        self.due += 1;
        self.requests.push_back((tag, request));
        self.tell_machine();
    }

    fn push_control(&mut self, tag: u16, slot: Slot, oldtag: u16) {
        *self.tags.slot(tag) = slot;
        self.due += 1;
        self.control.push_back((tag, Message::Tflush { oldtag }));
        self.tell_machine();
    }

    fn tell_machine(&mut self) {
        self.has_news = true;
        self.wakers.extend(self.machine.take());
    }

    fn arrived(&mut self, weight: usize) {
        self.due -= 1;
        self.sent -= 1;
        self.sent_bytes -= weight;
    }

    fn can_send(&self) -> bool {
        let has_room = self.sent == 0
            || (self.sent < WINDOW_REQUESTS && self.sent_bytes < self.window.bytes());
        !self.control.is_empty() || (has_room && !self.requests.is_empty())
    }

    fn set_sent(&mut self, tag: u16) {
        let sent_weight = match self.tags.slot(tag) {
            Slot::Waiting { weight, is_sent, .. } | Slot::Detached { weight, is_sent, .. } => {
                *is_sent = true;
                *weight
            }
            _ => unreachable!("a queued request is waited for or detached"),
        };
        self.sent += 1;
        self.sent_bytes += sent_weight;
    }
}

fn longer(bytes: usize) -> Blame {
    Blame::Violation(format!("Rread of {bytes} bytes is longer than was asked for"))
}

/// The error that an Rerror tells: .u has the number too.
fn said(ename: Name, errno: Number) -> Errno {
    match errno.0 {
        0 | NONUNAME => Errno::from_ename(&ename.lossy()),
        code => Errno::because(code, ename.lossy()),
    }
}
