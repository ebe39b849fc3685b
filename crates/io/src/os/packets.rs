//! A message engine's packets over TCP: the [`Transport`] between machines, and on one where nothing better goes.
//!
//! ```text
//!   hello: COVEYUZ1                                                    both ways, once
//!   frame: payload bytes u32 | head bytes u8 | mark 3 bytes | head | payload     little endian
//! ```
//!
//! A packet leaves at once, or as soon as the socket takes it: then together with others. Where the engine says that it
//! sends several in one call, they leave together at the end of the call, or as soon as there are many. The payload of a posted
//! one goes to the socket from where it lies; one that its engine has a place for is read from the socket into that
//! place, but for what had come together with what was before it.
//!
//! A peer is dead when its connection ends or says something that is no frame. A machine that is cut off is noticed
//! by keepalives and by what it does not acknowledge, after [`SILENCE`]; one whose program computes and takes nothing
//! meanwhile acknowledges what it has, and is not dead.
//!
//! A poll reads from the links that something came from lately, and from no other: the kernel watches those, and is
//! asked now and then. So a poll costs one call of the system where one peer talks, however many there are.

mod incoming;
mod link;
mod outgoing;
mod watch;

use crate::lane::Stream;
use covey_wire::transport::{Refused, Sink, Transfer};
use covey_wire::{Peer, Span, Transport};
use link::{Link, Stranger};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use watch::{NEWCOMER, Watch};

/// Longest payload of a packet that is copied.
pub const PACKET_BYTES_MAX: usize = 64 << 10;
/// Longest payload of one that is not.
pub const POST_BYTES_MAX: usize = 16 << 20;
/// How long a peer's machine may acknowledge nothing of what it was sent.
pub const SILENCE: Duration = Duration::from_secs(5);
/// Connections that have not said hello yet.
const STRANGERS_MAX: usize = 64;
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(3);
/// Polls between two looks at what the kernel watches, where others are read from meanwhile.
const ROUNDS: u32 = 16;
/// After so many polls without anything a link is left to the kernel, where it is not the only one.
const QUIET_POLLS: u32 = 1024;
/// The same for a link by which little comes.
const RESTING_POLLS: u32 = 64;
/// After so many times that something came, a link that is watched is not watched any more.
const BUSY_POLLS: u32 = 8;
/// Between two looks whether machines still acknowledge.
const CHECK_EVERY_MS: u64 = 1000;

/// How connections are used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How long the kernel looks at the network card before a read says that there is nothing: SO_BUSY_POLL. It
    /// has no effect on loopback, and needs a privilege above what `net.core.busy_read` permits everybody.
    pub busy_poll: Duration,
}

/// Packets over TCP.
#[derive(Debug)]
pub struct Tcp {
    options: Options,
    /// By the numbers of peers. One that is dead keeps its number.
    links: Vec<Link>,
    /// How many of them the engine has heard of.
    told: usize,
    strangers: Vec<Stranger>,
    /// Who has come and was not accepted.
    arrived: VecDeque<Peer>,
    listener: Option<TcpListener>,
    /// Those that are read from in each poll.
    near: Vec<u32>,
    /// Which of them is first.
    turn: usize,
    watch: Watch,
    /// What is sent may wait for what is sent next.
    gathers: bool,
    rounds: u32,
    looked_ms: u64,
    checked_ms: u64,
}

impl Tcp {
    /// Without peers.
    pub fn new(options: Options) -> io::Result<Tcp> {
        Ok(Tcp {
            options,
            links: Vec::new(),
            told: 0,
            strangers: Vec::new(),
            arrived: VecDeque::new(),
            listener: None,
            near: Vec::new(),
            turn: 0,
            watch: Watch::new()?,
            gathers: false,
            rounds: 0,
            looked_ms: 0,
            checked_ms: 0,
        })
    }

    /// Listens on loopback: whoever connects there, and belongs to the user of this process or to root, becomes a
    /// peer. Between machines connections are made, and proven, elsewhere: see [`Tcp::adopt`].
    pub fn listen(&mut self) -> io::Result<SocketAddr> {
        self.listen_at((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// The same at an address of loopback; port 0 means any. The address has the port.
    pub fn listen_at(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        if !address.ip().is_loopback() {
            let text = format!("{address} is not on loopback: who comes there cannot be known");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        self.watch.add(&listener, NEWCOMER, false)?;
        self.listener = Some(listener);
        Ok(address)
    }

    /// Who has come, if somebody has. All become peers while [`Tcp`] is polled, whether they are asked for here or not.
    pub fn accept(&mut self) -> Option<Peer> {
        self.meet();
        self.arrived.pop_front()
    }

    /// The last of its peers, if there are any.
    pub(super) fn last(&self) -> Option<Peer> {
        self.links.len().checked_sub(1).map(|last| Peer(last as u32))
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Connects to one that listens. Packets for it may be sent from now on.
    pub fn connect(&mut self, to: SocketAddr) -> io::Result<Peer> {
        self.adopt(TcpStream::connect_timeout(&to, CONNECT)?)
    }

    /// Takes over a connection, whose other end does so too.
    pub fn adopt(&mut self, stream: TcpStream) -> io::Result<Peer> {
        let link = Link::new(stream, &self.options)?;
        Ok(self.join(link))
    }

    /// Ends the connection with a peer; its engine is told of a dead peer.
    pub fn leave(&mut self, peer: Peer) {
        if let Some(link) = self.links.get_mut(peer.0 as usize) {
            link.end();
            self.bring_near(peer.0);
        }
    }

    fn join(&mut self, link: Link) -> Peer {
        self.links.push(link);
        let number = self.links.len() as u32 - 1;
        self.bring_near(number);
        Peer(number)
    }

    fn link(&mut self, peer: Peer) -> Result<&mut Link, Refused> {
        self.links.get_mut(peer.0 as usize).filter(|link| link.is_open()).ok_or(Refused::Dead)
    }

    /// Reads from a link in each poll from now on.
    fn bring_near(&mut self, number: u32) {
        if let Some(link) = self.links.get_mut(number as usize)
            && !link.is_near
            && !link.is_dead()
        {
            link.is_near = true;
            link.quiet_polls = 0;
            self.near.push(number);
        }
    }

    /// What a send left behind is seen to in the polls that follow.
    fn see_to(&mut self, peer: Peer) {
        if self.links.get(peer.0 as usize).is_some_and(|link| !link.is_near && !link.is_settled()) {
            self.bring_near(peer.0);
        }
    }

    /// What was kept back leaves.
    fn let_go(&mut self) {
        for number in &self.near {
            self.links[*number as usize].let_go();
        }
    }

    /// The dead are not polled.
    fn bury(&mut self) {
        let links = &self.links;
        self.near.retain(|number| !links[*number as usize].is_dead());
        self.turn = if self.turn < self.near.len() { self.turn } else { 0 };
    }

    /// Now and then, and in each poll of one who polls seldom: brings near whoever has something, and leaves to the kernel
    /// who has not.
    #[inline]
    fn look_around(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        let now_ms = crate::os::clock::coarse_ms();
        if !self.rounds.is_multiple_of(ROUNDS) && !self.near.is_empty() && now_ms == self.looked_ms
        {
            return;
        }
        self.looked_ms = now_ms;
        self.look(now_ms);
    }

    fn look(&mut self, now_ms: u64) {
        let (links, watch, is_only) = (&mut self.links, &self.watch, self.near.len() == 1);
        self.near.retain(|number| {
            let link = &mut links[*number as usize];
            let quiet_polls = match (link.rests, is_only) {
                (true, _) => RESTING_POLLS,
                (false, false) => QUIET_POLLS,
                (false, true) => return true,
            };
            let stays = link.quiet_polls < quiet_polls || !link.is_settled();
            link.is_near = stays || link.watch(watch, *number, false).is_err();
            link.is_near
        });
        let mut is_somebody_new = !self.strangers.is_empty();
        if is_somebody_new || self.listener.is_some() || self.near.len() < self.links.len() {
            let mut ready = [0; 64];
            let mut count = 0;
            self.watch.ready(|number| match number {
                NEWCOMER => is_somebody_new = true,
                number => {
                    ready[count] = number as u32;
                    count += 1;
                }
            });
            ready[..count].iter().for_each(|number| self.bring_near(*number));
        }
        if is_somebody_new {
            self.meet();
        }
        if now_ms.saturating_sub(self.checked_ms) >= CHECK_EVERY_MS {
            self.checked_ms = now_ms;
            for number in 0..self.links.len() {
                self.links[number].check();
                self.see_to(Peer(number as u32));
            }
        }
    }

    /// Takes in who has come, and makes peers of those that have said hello.
    pub(super) fn meet(&mut self) {
        if let Some(listener) = &self.listener {
            while self.strangers.len() < STRANGERS_MAX
                && let Ok((stream, from)) = listener.accept()
            {
                if is_ours(&stream, from)
                    && let Ok(link) = Link::new(stream, &self.options)
                    && self.watch.add(&link.stream, NEWCOMER, false).is_ok()
                {
                    self.strangers.push(Stranger::new(link));
                }
            }
        }
        let mut at = 0;
        while let Some(stranger) = self.strangers.get_mut(at) {
            match stranger.greet() {
                Ok(false) => at += 1,
                Ok(true) => {
                    let link = self.strangers.remove(at).link;
                    self.watch.remove(&link.stream);
                    let peer = self.join(link);
                    self.arrived.push_back(peer);
                }
                Err(_) => drop(self.strangers.remove(at)),
            }
        }
    }
}

impl Transport for Tcp {
    fn end(&mut self, peer: Peer) {
        Tcp::leave(self, peer);
    }

    fn packet_bytes_max(&self, _peer: Peer) -> usize {
        PACKET_BYTES_MAX
    }

    fn send(
        &mut self,
        peer: Peer,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        if bytes > PACKET_BYTES_MAX {
            return Err(Refused::Unsupported);
        }
        let gathers = self.gathers;
        let sent = self.link(peer)?.send(head, bytes, fill, gathers);
        self.see_to(peer);
        sent
    }

    fn gather(&mut self, may_gather: bool) {
        self.gathers = may_gather;
        if !may_gather {
            self.let_go();
        }
    }

    fn post_bytes_max(&self, _peer: Peer) -> usize {
        POST_BYTES_MAX
    }

    fn post(
        &mut self,
        token: u64,
        peer: Peer,
        head: &[u8],
        payload: Span,
    ) -> Result<Transfer, Refused> {
        if payload.bytes > POST_BYTES_MAX as u64 {
            return Err(Refused::Unsupported);
        }
        let posted = self.link(peer)?.post(token, head, payload);
        self.see_to(peer);
        posted
    }

    fn poll(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        let mut happened = 0;
        if budget > 0 {
            self.look_around();
        }
        while self.told < self.links.len() {
            sink.joined(Peer(self.told as u32));
            self.told += 1;
            happened += 1;
        }
        if budget == 0 {
            return happened;
        }
        if self.gathers {
            // Who polls may be waiting for the answer to what it sent.
            self.let_go();
        }
        let count = self.near.len();
        for at in 0..count {
            let number = self.near[(self.turn + at) % count];
            let link = &mut self.links[number as usize];
            let left = budget.saturating_sub(happened);
            if left == 0 {
                // Whoever talks without end does not keep the others from being heard.
                self.turn = (self.turn + at) % count;
                break;
            }
            let new = link.poll(Peer(number), left, sink);
            happened += new;
            if new == 0 {
                continue;
            }
            if link.is_watched() && (link.busy_polls >= BUSY_POLLS || link.is_dead()) {
                link.unwatch(&self.watch);
            }
        }
        if happened > 0 {
            self.bury();
        }
        happened
    }

    fn sleep_on(&self) -> Option<i32> {
        Some(self.watch.descriptor())
    }

    fn prepare_sleep(&mut self) -> bool {
        let is_quiet = self.told == self.links.len() && self.links.iter().all(Link::is_quiet);
        let watch = &self.watch;
        let mut links = (0..).zip(&mut self.links);
        is_quiet
            && links.all(|(number, link)| link.is_dead() || link.watch(watch, number, true).is_ok())
    }

    fn woke(&mut self) {
        for (number, link) in (0..).zip(&mut self.links) {
            // What fails here wakes the next sleeper for nothing.
            let _ = link.is_watched() && link.watch(&self.watch, number, false).is_ok();
        }
        // The next poll looks around.
        self.rounds = ROUNDS - 1;
    }
}

impl Stream for Tcp {
    fn expel(&mut self, peer: Peer) {
        Tcp::leave(self, peer);
    }

    fn rest(&mut self, peer: Peer) {
        if let Some(link) = self.links.get_mut(peer.0 as usize) {
            link.rests = true;
        }
    }

    fn rouse(&mut self, peer: Peer) {
        if let Some(link) = self.links.get_mut(peer.0 as usize) {
            link.rests = false;
        }
        self.bring_near(peer.0);
    }

    fn is_busy(&self) -> bool {
        self.gathers || !self.near.is_empty() || self.told < self.links.len()
    }
}

/// Whether a connection on loopback belongs to our user, or to root.
fn is_ours(stream: &TcpStream, from: SocketAddr) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let owner = stream.local_addr().ok().and_then(|local| super::net::socket_owner(from, local));
    let is_loopback = match from.ip() {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => address.is_loopback(),
    };
    is_loopback && owner.is_some_and(|owner| owner == user || owner == 0)
}

#[cfg(test)]
mod tests;
