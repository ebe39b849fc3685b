//! The worker's connection: the client machine of 9P over a message box.

use super::ops::{Op, Reply};
use super::{Ended, Ground};
use crate::mailbox::{Refused, Wake, WorkerBox};
use crate::memory::Shared;
use crate::plan::SLOT_BYTES;
use covey_ninep::client::{self, Client, Conn};
use covey_ninep::tree::Result;
use covey_wire::{BytesMut, Machine, Segments};
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub(super) struct Link<S> {
    conn: Conn,
    client: Client,
    mailbox: WorkerBox<S>,
    /// Messages that found no free slot.
    waiting: VecDeque<Vec<u8>>,
    out: Segments,
    message: Vec<u8>,
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
        };
        let (conn, client) = client::pair(config, now);
        Link {
            conn,
            client,
            mailbox,
            waiting: VecDeque::new(),
            out: Segments::new(),
            message: Vec::new(),
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

    /// Takes what was answered.
    fn take_news<G: Ground<Memory = S>>(
        &mut self,
        ground: &mut G,
    ) -> std::result::Result<(), Ended> {
        let mut has_news = false;
        while self
            .mailbox
            .take(&mut self.message)
            .map_err(|broken| Ended::Host(broken.to_string()))?
        {
            has_news = true;
            self.input.extend_from_slice(&self.message);
        }
        if has_news {
            ground.reset();
            let taken = self.client.handle_input(ground.now(), &mut self.input);
            taken.map_err(|blame| Ended::Host(blame.to_string()))?;
        }
        Ok(())
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

/// Looks at the ring of replies before anything else is done.
const GLANCES: u32 = 16;
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86400);
