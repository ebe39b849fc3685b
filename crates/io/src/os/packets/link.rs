//! One connection.

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::watch::Watch;
use super::{Options, SILENCE};
use crate::os::tcp;
use covey_wire::transport::{HEAD_BYTES_MAX, Refused, Sink, Transfer};
use covey_wire::{Peer, Span};
use rustix::net::sockopt;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// What either end says first.
pub(super) const HELLO: [u8; 8] = *b"COVEYUZ1";
/// In every frame: what is none is noticed before it is believed.
pub(super) const MARK: [u8; 3] = [0xc0, 0x7e, 0x59];
/// Before the head.
pub(super) const PREFIX_BYTES: usize = 8;
/// How long one may take to say hello.
const HELLO_WITHIN: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Link {
    pub stream: TcpStream,
    out: Outgoing,
    incoming: Incoming,
    life: Life,
    /// It is read from in each poll.
    pub is_near: bool,
    /// Little comes by it: it is soon left to the kernel.
    pub rests: bool,
    /// Polls since something came.
    pub quiet_polls: u32,
    /// Polls in which something came since it is watched.
    pub busy_polls: u32,
    /// Whether the kernel watches it, and then whether for room to write too.
    watched: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// It ended, and what had come before may still be there.
    Ending,
    Dead,
}

impl Link {
    pub fn new(stream: TcpStream, options: &Options) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, Duration::from_secs(1))?;
        sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(1))?;
        sockopt::set_tcp_keepcnt(&stream, SILENCE.as_secs() as u32)?;
        busy_poll(&stream, options.busy_poll);
        let (out, incoming) = (Outgoing::beginning_with(&HELLO), Incoming::new());
        let (life, is_near, watched) = (Life::Open, false, None);
        let (quiet_polls, busy_polls) = (0, 0);
        let rests = false;
        let mut link =
            Link { stream, out, incoming, life, is_near, rests, quiet_polls, busy_polls, watched };
        link.flush();
        Ok(link)
    }

    pub fn is_open(&self) -> bool {
        self.life == Life::Open
    }

    /// Its owner has had enough of it.
    pub fn end(&mut self) {
        self.life = self.life.max_with_ending();
        self.incoming.close();
    }

    pub fn send(
        &mut self,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
        may_wait: bool,
    ) -> Result<(), Refused> {
        self.make_room()?;
        let payload = self.out.frame(&prefix(head, bytes)?, head, bytes);
        fill(payload);
        // Its sender may not poll for long: without its word nothing is kept back to be sent with what follows.
        if !may_wait || self.out.is_many() {
            self.flush();
        }
        Ok(())
    }

    /// What was kept back leaves.
    pub fn let_go(&mut self) {
        if self.is_open() && !self.out.is_empty() {
            self.flush();
        }
    }

    pub fn post(&mut self, token: u64, head: &[u8], payload: Span) -> Result<Transfer, Refused> {
        self.make_room()?;
        self.out.frame(&prefix(head, payload.bytes as usize)?, head, 0);
        self.out.span(token, payload);
        self.flush();
        if self.out.take_sent(token) { Ok(Transfer::Done) } else { Ok(Transfer::Started) }
    }

    fn make_room(&mut self) -> Result<(), Refused> {
        if self.out.is_full() {
            self.flush();
        }
        match (self.is_open(), self.out.is_full()) {
            (false, _) => Err(Refused::Dead),
            (true, true) => Err(Refused::Full),
            (true, false) => Ok(()),
        }
    }

    fn flush(&mut self) {
        if self.out.flush(self.stream.as_raw_fd()).is_err() {
            self.life = self.life.max_with_ending();
        }
    }

    /// Lets things go on, and says how many happened.
    pub fn poll(&mut self, peer: Peer, budget: usize, sink: &mut impl Sink) -> usize {
        if self.life == Life::Dead {
            return 0;
        }
        let mut happened = 0;
        self.let_go();
        while let Some(token) = self.out.next_sent() {
            sink.sent(token);
            happened += 1;
        }
        happened += self.receive(peer, budget, sink);
        if happened == 0 {
            self.quiet_polls = self.quiet_polls.saturating_add(1);
        } else {
            self.quiet_polls = 0;
            self.busy_polls = self.busy_polls.saturating_add(1);
        }
        // What was read before the end is delivered first.
        if self.life == Life::Ending && happened == 0 && budget > 0 {
            self.life = Life::Dead;
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
            sink.dead(peer);
            happened = 1;
        }
        happened
    }

    /// Looks whether the other machine still acknowledges. The kernel itself tries for a quarter of an hour; and its
    /// own limit of time would end connections to programs that merely read nothing.
    pub fn check(&mut self) {
        if !self.is_open() {
            return;
        }
        let info = tcp::info(&self.stream).unwrap_or_default();
        let silent = Duration::from_millis(info.acknowledged_before_ms.into());
        if info.awaits_acknowledgement() && silent > SILENCE {
            self.end();
        }
    }

    fn receive(&mut self, peer: Peer, budget: usize, sink: &mut impl Sink) -> usize {
        if self.incoming.is_closed() {
            return 0;
        }
        let mut happened = 0;
        let mut is_more = true;
        loop {
            match self.incoming.deliver(peer, budget.saturating_sub(happened), sink) {
                Ok(count) => happened += count,
                Err(_) => {
                    self.end();
                    return happened;
                }
            }
            if happened >= budget || !is_more {
                return happened;
            }
            match self.incoming.receive(self.stream.as_raw_fd()) {
                Ok(read) => {
                    is_more = read.is_all_that_was_asked;
                    happened += usize::from(read.is_of_a_payload);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return happened,
                Err(_) => {
                    self.life = self.life.max_with_ending();
                    return happened;
                }
            }
        }
    }

    /// Whether there is nothing to tell of without reading.
    pub fn is_quiet(&self) -> bool {
        match self.life {
            Life::Dead => true,
            Life::Ending => false,
            Life::Open => !self.out.has_sent() && !self.incoming.has_frame(),
        }
    }

    /// Whether nothing is to be done for it until something comes.
    pub fn is_settled(&self) -> bool {
        self.life == Life::Dead || self.is_quiet() && self.out.is_empty()
    }

    pub fn is_dead(&self) -> bool {
        self.life == Life::Dead
    }

    pub fn is_watched(&self) -> bool {
        self.watched.is_some()
    }

    /// Has the kernel watch it; where we sleep, also for room to write what waits.
    pub fn watch(&mut self, watch: &Watch, number: u32, is_asleep: bool) -> io::Result<()> {
        let wants_room = is_asleep && self.is_open() && !self.out.is_empty();
        match self.watched {
            Some(now) if now == wants_room => return Ok(()),
            Some(_) => watch.modify(&self.stream, number.into(), wants_room)?,
            None => {
                watch.add(&self.stream, number.into(), wants_room)?;
                self.busy_polls = 0;
            }
        }
        self.watched = Some(wants_room);
        Ok(())
    }

    pub fn unwatch(&mut self, watch: &Watch) {
        watch.remove(&self.stream);
        self.watched = None;
    }
}

impl Life {
    fn max_with_ending(self) -> Life {
        match self {
            Life::Open => Life::Ending,
            other => other,
        }
    }
}

/// One that connected and has not said hello.
#[derive(Debug)]
pub(super) struct Stranger {
    pub link: Link,
    since: Instant,
}

impl Stranger {
    pub fn new(link: Link) -> Stranger {
        Stranger { link, since: Instant::now() }
    }

    /// Whether it has.
    pub fn greet(&mut self) -> io::Result<bool> {
        if self.since.elapsed() > HELLO_WITHIN {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self.link.incoming.receive(self.link.stream.as_raw_fd()) {
            Ok(_) => self.link.incoming.greeted(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.link.incoming.greeted(),
            Err(error) => Err(error),
        }
    }
}

fn prefix(head: &[u8], bytes: usize) -> Result<[u8; PREFIX_BYTES], Refused> {
    if head.len() > HEAD_BYTES_MAX {
        return Err(Refused::Unsupported);
    }
    let mut prefix = [0; PREFIX_BYTES];
    prefix[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    prefix[4] = head.len() as u8;
    prefix[5..].copy_from_slice(&MARK);
    Ok(prefix)
}

fn busy_poll(stream: &TcpStream, time: Duration) {
    let us = libc::c_int::try_from(time.as_micros()).unwrap_or(libc::c_int::MAX);
    if us == 0 {
        return;
    }
    // SAFETY: the kernel reads one int, which lives here. Without the privilege it refuses, and reads stay as they were.
    unsafe {
        let bytes = size_of::<libc::c_int>() as libc::socklen_t;
        let option = libc::SO_BUSY_POLL;
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const us).cast(),
            bytes,
        );
    }
}
