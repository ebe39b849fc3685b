//! The worker's connection: the client machine of 9P over a message box, and beside it the errands of short transfers.

use super::errand::{Errand, Errands};
use super::ops::{Op, Reply};
use super::{Ended, Ground};
use crate::mailbox::{Broken, Refused, Wake, WorkerBox};
use crate::memory::Shared;
use crate::plan::SLOT_BYTES;
use covey_ninep::brief::{self, Said};
use covey_ninep::client::{self, Client, Conn};
use covey_ninep::tree::Result;
use covey_wire::{BytesMut, Machine, Segments, Span};
use std::collections::VecDeque;
use std::mem;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub(super) struct Link<S> {
    conn: Conn,
    client: Client,
    errands: Errands,
    mailbox: WorkerBox<S>,
    /// Messages that found no free slot.
    waiting: VecDeque<Vec<u8>>,
    out: Segments,
    message: Vec<u8>,
    /// What messages were kept in, to be used again.
    spare: Vec<Vec<u8>>,
    input: BytesMut,
}

impl<S: Shared> Link<S> {
    pub fn new(mailbox: WorkerBox<S>, now: Instant) -> Link<S> {
        // Who lets the worker wait is noticed by the bell, not by a heartbeat.
        let config = client::Config {
            msize: SLOT_BYTES as u32,
            heartbeat: FOR_EVER,
            dead_after: FOR_EVER,
            heartbeat_idle: false,
            window: client::Window::default(),
        };
        let (conn, client) = client::pair(config, now);
        Link {
            conn,
            client,
            errands: Errands::new(0),
            mailbox,
            waiting: VecDeque::new(),
            out: Segments::new(),
            message: Vec::new(),
            spare: Vec::new(),
            input: BytesMut::new(),
        }
    }

    pub fn conn(&self) -> &Conn {
        &self.conn
    }

    /// The answer, if it is there.
    pub fn poll<G: Ground<Memory = S>>(
        &mut self,
        op: &mut Op,
        ground: &mut G,
    ) -> std::result::Result<Option<Result<Reply>>, Ended> {
        self.take_news(ground)?;
        let polled = op.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        // Of all that was asked for until now: what is looked at twice is locked twice.
        self.send(ground)?;
        match polled {
            Poll::Ready(result) => Ok(Some(result)),
            Poll::Pending => Ok(None),
        }
    }

    /// The greeting is over: from now on there are errands, as long as messages may be.
    pub fn open(&mut self) {
        self.errands = Errands::new(self.conn.msize());
    }

    /// Sends an errand that reads. `None` if it cannot be one now: then it is a message like others.
    #[inline]
    pub fn read<G: Ground<Memory = S>>(
        &mut self,
        place: (u32, u64),
        bytes: u64,
        ground: &mut G,
    ) -> Option<Errand> {
        if !self.waiting.is_empty() {
            return None;
        }
        let sent = self.errands.read(&mut self.mailbox, place, bytes);
        sent.map(|(errand, wake)| rung(errand, wake, ground))
    }

    /// Sends an errand that writes bytes of the local store. `None` as for a read.
    #[inline]
    pub fn write<G: Ground<Memory = S>>(
        &mut self,
        place: (u32, u64),
        from: Span,
        ground: &mut G,
    ) -> Option<Errand> {
        if !self.waiting.is_empty() {
            return None;
        }
        let sent = self.errands.write(&mut self.mailbox, place, (from, ground));
        sent.map(|(errand, wake)| rung(errand, wake, ground))
    }

    /// Waits for the answer of an errand, which is over then, and the message that it came in.
    #[inline]
    pub fn wait_for<G: Ground<Memory = S>>(
        &mut self,
        errand: Errand,
        ground: &mut G,
    ) -> std::result::Result<(Said, Vec<u8>), Ended> {
        loop {
            if let Some(done) = self.errands.take(errand) {
                return Ok(done);
            }
            self.wait(ground)?;
            self.take_news(ground)?;
        }
    }

    /// A message that was taken is no longer needed.
    #[inline]
    pub fn give_back(&mut self, message: Vec<u8>) {
        self.spare.push(message);
    }

    /// Takes what was answered.
    fn take_news<G: Ground<Memory = S>>(
        &mut self,
        ground: &mut G,
    ) -> std::result::Result<(), Ended> {
        let mut has_news = false;
        let broken = |broken: Broken| Ended::Host(broken.to_string());
        while let Some(slot) = self.mailbox.take_slot(&mut self.message).map_err(broken)? {
            has_news = true;
            match brief::tag(&self.message) {
                Some(tag) if brief::TAGS.contains(&tag) => {
                    let spare = self.spare.pop().unwrap_or_default();
                    let message = mem::replace(&mut self.message, spare);
                    self.errands.arrive(slot, tag, message)?;
                }
                Some(_) => self.input.extend_from_slice(&self.message),
                None => self.errands.check_unanswered(slot)?,
            }
        }
        if has_news {
            ground.reset();
            self.handle(ground)?;
        }
        Ok(())
    }

    /// Has the connection take what has come for it. It may have more to say then, or there is room for what waits.
    fn handle<G: Ground<Memory = S>>(&mut self, ground: &mut G) -> std::result::Result<(), Ended> {
        if !self.input.is_empty() {
            let taken = self.client.handle_input(ground.now(), &mut self.input);
            taken.map_err(|blame| Ended::Host(blame.to_string()))?;
            return self.send(ground);
        }
        if self.waiting.is_empty() { Ok(()) } else { self.send(ground) }
    }

    pub fn send<G: Ground<Memory = S>>(
        &mut self,
        ground: &mut G,
    ) -> std::result::Result<(), Ended> {
        while self.client.poll_output(&mut self.out, 1 << 20) {}
        self.split();
        let mut wake = Wake::No;
        while let Some(message) = self.waiting.front() {
            match self.mailbox.post(message) {
                Ok(Wake::Ring) => wake = Wake::Ring,
                Ok(Wake::No) => {}
                Err(Refused::Full) => break,
                Err(Refused::NoMessage) => {
                    return Err(Ended::Host("it asks for messages that fit no slot".into()));
                }
            }
            self.waiting.pop_front();
        }
        if wake == Wake::Ring {
            ground.ring();
        }
        Ok(())
    }

    /// Cuts the output into messages.
    fn split(&mut self) {
        if self.out.is_empty() {
            return;
        }
        let mut bytes = Vec::with_capacity(self.out.len());
        self.out.runs().for_each(|run| bytes.extend_from_slice(run));
        self.out.advance(bytes.len());
        if bytes.first_chunk().map(|size| u32::from_le_bytes(*size) as usize) == Some(bytes.len()) {
            // Mostly it is one.
            self.waiting.push_back(bytes);
            return;
        }
        let mut rest = &bytes[..];
        while let Some(size) = rest.first_chunk::<4>() {
            let size = (u32::from_le_bytes(*size) as usize).clamp(4, rest.len());
            let (message, after) = rest.split_at(size);
            self.waiting.push_back(message.to_vec());
            rest = after;
        }
    }

    pub fn wait<G: Ground<Memory = S>>(
        &mut self,
        ground: &mut G,
    ) -> std::result::Result<(), Ended> {
        // An answer often comes within a microsecond, and whoever waits for it looks at much more than one line.
        for _ in 0..GLANCES {
            if self.mailbox.has_news() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        ground.wait(&self.mailbox).map_err(Ended::Host)
    }

    /// Waits until everything that was sent is answered.
    pub fn flush<G: Ground<Memory = S>>(
        &mut self,
        ground: &mut G,
    ) -> std::result::Result<(), Ended> {
        loop {
            self.take_news(ground)?;
            self.send(ground)?;
            if self.waiting.is_empty() && self.mailbox.in_flight() == 0 {
                return Ok(());
            }
            self.wait(ground)?;
        }
    }
}

/// Wakes the host for an errand that was sent.
#[inline]
fn rung(errand: Errand, wake: Wake, ground: &mut impl Ground) -> Errand {
    if wake == Wake::Ring {
        ground.ring();
    }
    errand
}

/// Looks at the ring of replies before anything else is done.
const GLANCES: u32 = 16;
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86400);
