//! A message engine's packets over TCP: the [`Transport`] between machines, and on one where nothing better goes.
//!
//! ```text
//!   hello: COVEYUZ1                                                    both ways, once
//!   frame: payload bytes u32 | head bytes u8 | mark 3 bytes | head | payload     little endian
//! ```
//!
//! A packet leaves at once, or as soon as the socket takes it: then together with others. The payload of a posted
//! one goes to the socket from where it lies; one that its engine has a place for is read from the socket into that
//! place, but for what had come together with what was before it.
//!
//! A peer is dead when its connection ends or says something that is no frame. A machine that is cut off is noticed
//! by keepalives and by what it does not acknowledge, after [`SILENCE`]; one whose program computes and takes nothing
//! meanwhile acknowledges what it has, and is not dead.

mod incoming;
mod link;
mod outgoing;

use covey_wire::transport::{Refused, Sink, Transfer};
use covey_wire::{Peer, Span, Transport};
use link::{Link, Stranger};
use rustix::event::epoll;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

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
    events: OwnedFd,
}

impl Tcp {
    /// Without peers.
    pub fn new(options: Options) -> io::Result<Tcp> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (links, strangers, arrived) = (Vec::new(), Vec::new(), VecDeque::new());
        Ok(Tcp { options, links, told: 0, strangers, arrived, listener: None, events })
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
        watch(&self.events, &listener)?;
        self.listener = Some(listener);
        Ok(address)
    }

    /// Who has come, if somebody has. All become peers while [`Tcp`] is polled, whether they are asked for here or not.
    pub fn accept(&mut self) -> Option<Peer> {
        self.meet();
        self.arrived.pop_front()
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
        watch(&self.events, &link.stream)?;
        Ok(self.join(link))
    }

    /// Ends the connection with a peer; its engine is told of a dead peer.
    pub fn leave(&mut self, peer: Peer) {
        if let Some(link) = self.links.get_mut(peer.0 as usize) {
            link.end();
        }
    }

    fn join(&mut self, link: Link) -> Peer {
        self.links.push(link);
        Peer(self.links.len() as u32 - 1)
    }

    fn link(&mut self, peer: Peer) -> Result<&mut Link, Refused> {
        self.links.get_mut(peer.0 as usize).filter(|link| link.is_open()).ok_or(Refused::Dead)
    }

    /// Takes in who has come, and makes peers of those that have said hello.
    fn meet(&mut self) {
        if let Some(listener) = &self.listener {
            while self.strangers.len() < STRANGERS_MAX
                && let Ok((stream, from)) = listener.accept()
            {
                if is_ours(&stream, from)
                    && let Ok(link) = Link::new(stream, &self.options)
                    && watch(&self.events, &link.stream).is_ok()
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
                    let peer = self.join(link);
                    self.arrived.push_back(peer);
                }
                Err(_) => drop(self.strangers.remove(at)),
            }
        }
    }
}

impl Transport for Tcp {
    fn packet_bytes_max(&self) -> usize {
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
        self.link(peer)?.send(head, bytes, fill)
    }

    fn post_bytes_max(&self) -> usize {
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
        self.link(peer)?.post(token, head, payload)
    }

    fn poll(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        let mut happened = 0;
        if self.listener.is_some() || !self.strangers.is_empty() {
            self.meet();
        }
        while self.told < self.links.len() {
            sink.joined(Peer(self.told as u32));
            self.told += 1;
            happened += 1;
        }
        for (number, link) in self.links.iter_mut().enumerate() {
            let left = budget.saturating_sub(happened);
            happened += link.poll(Peer(number as u32), left, sink);
        }
        happened
    }

    fn sleep_on(&self) -> Option<i32> {
        Some(self.events.as_raw_fd())
    }

    fn prepare_sleep(&mut self) -> bool {
        let is_quiet = self.told == self.links.len() && self.links.iter().all(Link::is_quiet);
        is_quiet && self.links.iter_mut().all(|link| link.watch_room(&self.events, true))
    }

    fn woke(&mut self) {
        for link in &mut self.links {
            link.watch_room(&self.events, false);
        }
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

/// Has a sleeper woken when something can be read.
fn watch(events: &OwnedFd, what: impl std::os::fd::AsFd) -> io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    Ok(epoll::add(events, what, data, epoll::EventFlags::IN)?)
}

#[cfg(test)]
mod tests;
