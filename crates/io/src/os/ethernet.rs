//! Raw Ethernet frames between machines that share a network: the [`Wire`] beside TCP.
//!
//! One socket for each interface, which sees only frames of our type that begin with its number, and shares a ring of
//! memory with the kernel: what has come is seen without a system call, and sending is one call through nothing but
//! the card's driver. It needs CAP_NET_RAW, changes nothing about the interface, and any number of processes may do so
//! beside each other. `docs/design/0037-raw-ethernet.md` says why it is not AF_XDP.

mod interface;
mod keeper;
mod ring;
mod shares;

use crate::lane::{PLACE_BYTES, Sent, Wire};
use covey_wire::Peer;
use interface::Interface;
use keeper::Keeper;
use ring::{Port, Way};
use rustix::event::epoll::{self, EventData, EventFlags};
use shares::Share;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

/// Which frames are ours: a type that the standard leaves to experiments.
pub const FRAME_TYPE: u16 = 0x88b5;

/// The sockets of an endpoint.
#[derive(Debug)]
pub struct Ethernet {
    ports: Vec<Port>,
    /// By peer.
    routes: Vec<Option<Route>>,
    /// Which port is asked first.
    turn: usize,
    keeper: Keeper,
    /// What the kernel watches while we sleep.
    events: OwnedFd,
    begun: Instant,
}

#[derive(Debug)]
struct Route {
    port: usize,
    share: Share,
    /// None until the peer has said where it is found.
    way: Option<Way>,
}

/// How frames reach us from a peer.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    /// What a peer has to know of it.
    pub place: [u8; PLACE_BYTES],
    /// The number of the socket.
    pub number: u32,
    /// Longest frame.
    pub frame_bytes_max: u16,
    /// Frames that it may have under way.
    pub window: u16,
}

impl Ethernet {
    /// Without a socket.
    pub fn new() -> io::Result<Ethernet> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Ethernet {
            ports: Vec::new(),
            routes: Vec::new(),
            turn: 0,
            keeper: Keeper::default(),
            events,
            begun: Instant::now(),
        })
    }

    /// Readable, while we sleep, when a frame has come.
    pub fn descriptor(&self) -> i32 {
        self.events.as_raw_fd()
    }

    /// How a peer reaches us, with which there is a connection between these two addresses. None where it goes by
    /// no Ethernet, or through a router, and where there is no room for the frames of another peer.
    pub fn reach(
        &mut self,
        peer: Peer,
        ours: IpAddr,
        theirs: IpAddr,
    ) -> io::Result<Option<Reached>> {
        let Some(interface) = interface::of(ours)? else { return Ok(None) };
        if !interface.is_direct(theirs) {
            return Ok(None);
        }
        let port = self.port(&interface)?;
        self.forget(peer);
        let Some(share) = self.ports[port].shares.take() else { return Ok(None) };
        while self.routes.len() <= peer.0 as usize {
            self.routes.push(None);
        }
        self.routes[peer.0 as usize] = Some(Route { port, share, way: None });
        let mut place = [0; PLACE_BYTES];
        place[..6].copy_from_slice(&interface.mac);
        let (number, frame_bytes_max) = (self.ports[port].number, interface.frame_bytes_max());
        Ok(Some(Reached { place, number, frame_bytes_max, window: share.window }))
    }

    /// Frames that the kernel had no room for, and dropped.
    pub fn dropped(&self) -> u64 {
        self.ports.iter().map(Port::dropped).sum()
    }

    /// Has the kernel lose so many of a thousand frames that come.
    #[cfg(test)]
    pub(super) fn lose(&mut self, permille: u32) -> io::Result<()> {
        self.ports.iter().try_for_each(|port| port.lose(permille))
    }

    fn port(&mut self, interface: &Interface) -> io::Result<usize> {
        if let Some(at) = self.ports.iter().position(|port| port.index == interface.index) {
            return Ok(at);
        }
        let number = u32::from_le_bytes(super::random::bytes()?);
        self.ports.push(Port::open(interface, number)?);
        Ok(self.ports.len() - 1)
    }
}

#[inline]
fn way_of(routes: &[Option<Route>], peer: Peer) -> Option<&Way> {
    routes.get(peer.0 as usize)?.as_ref()?.way.as_ref()
}

impl Wire for Ethernet {
    fn connect(&mut self, peer: Peer, at: &[u8; PLACE_BYTES]) -> bool {
        let Some(Some(route)) = self.routes.get_mut(peer.0 as usize) else { return false };
        let ([to @ .., 0, 0, 0, 0], false) = (at, at[0] & 1 != 0) else { return false };
        route.way = Some(self.ports[route.port].way(*to));
        true
    }

    #[inline]
    fn send(&mut self, peer: Peer, frame: &[u8]) -> Sent {
        way_of(&self.routes, peer).map_or(Sent::No, |way| way.send(frame))
    }

    fn keep(&mut self, peer: Peer, sequence: u32, frame: &[u8]) {
        let Ethernet { routes, keeper, .. } = self;
        if let Some(way) = way_of(routes, peer) {
            keeper.keep(peer, sequence, frame, way);
        }
    }

    #[inline]
    fn release(&mut self, peer: Peer, before: u32) {
        self.keeper.release(peer, before);
    }

    fn forget(&mut self, peer: Peer) {
        self.keeper.release_all(peer);
        if let Some(Route { port, share, .. }) =
            self.routes.get_mut(peer.0 as usize).and_then(Option::take)
        {
            self.ports[port].shares.give_back(share);
        }
    }

    #[inline]
    fn next(&mut self, mut take: impl FnMut(&[u8])) -> bool {
        let count = self.ports.len();
        for at in 0..count {
            let port = (self.turn + at) % count;
            if self.ports[port].next(&mut take) {
                self.turn = port + 1;
                return true;
            }
        }
        false
    }

    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn coarse_ms(&self) -> u64 {
        super::clock::coarse_ms()
    }

    fn prepare_sleep(&mut self) -> bool {
        for port in &self.ports {
            // One that is there already stays; without it a sleeper would wait for the stream.
            let _ = epoll::add(&self.events, &port.socket, EventData::new_u64(0), EventFlags::IN);
        }
        self.ports.iter().all(|port| !port.has_next())
    }

    fn woke(&mut self) {
        for port in &self.ports {
            let _ = epoll::delete(&self.events, &port.socket);
            port.forget_error();
        }
    }
}

#[cfg(test)]
mod tests;
