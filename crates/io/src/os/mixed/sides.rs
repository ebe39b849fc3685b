//! The peers, and over which transport each is reached.

use super::address::Address;
use crate::lane::{Here, Laned};
use crate::os::ethernet::{Ethernet, Reached};
use crate::os::packets::Tcp;
use crate::os::random;
use crate::os::shm::{self, Shm};
use covey_wire::transport::{Refused, Sink};
use covey_wire::{Peer, Span, Transport};
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;

/// Where a peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// It is being met.
    Meeting,
    /// By shared memory, under this number there.
    Near(u32),
    /// By TCP, under this number there.
    Far(u32),
    /// It is this endpoint.
    Own,
    Dead,
}

#[derive(Debug)]
pub(super) struct Sides {
    pub shm: Shm,
    /// With raw Ethernet beside it.
    pub tcp: Laned<Tcp, Ethernet>,
    pub all: Vec<Side>,
    /// Where each was found, if it was met by an address.
    names: Vec<Option<Address>>,
    /// Peers that the engine was told of.
    pub told: usize,
    /// Peers by their numbers in either transport.
    pub near: Vec<Peer>,
    pub far: Vec<Peer>,
    /// Who has come without having been called.
    pub came: VecDeque<Peer>,
    /// Peers that could not be met: to be told of.
    pub lost: VecDeque<Peer>,
    /// Why Ethernet could not be used, the last time.
    pub no_ethernet: Option<String>,
}

impl Sides {
    pub fn new(shm: Shm, tcp: Laned<Tcp, Ethernet>) -> Sides {
        Sides {
            shm,
            tcp,
            all: Vec::new(),
            names: Vec::new(),
            told: 0,
            near: Vec::new(),
            far: Vec::new(),
            came: VecDeque::new(),
            lost: VecDeque::new(),
            no_ethernet: None,
        }
    }

    pub fn add(&mut self, side: Side, name: Option<Address>) -> Peer {
        self.all.push(side);
        self.names.push(name);
        Peer(self.all.len() as u32 - 1)
    }

    /// Somebody new has come, and is being met.
    pub fn arrived(&mut self, them: Address) -> Peer {
        let peer = self.add(Side::Meeting, Some(them));
        self.came.push_back(peer);
        peer
    }

    #[inline]
    pub fn of(&self, peer: Peer) -> Side {
        self.all.get(peer.0 as usize).copied().unwrap_or(Side::Dead)
    }

    pub fn is_dead(&self, peer: Peer) -> bool {
        self.of(peer) == Side::Dead
    }

    pub fn name_of(&self, peer: Peer) -> Option<&Address> {
        self.names.get(peer.0 as usize)?.as_ref()
    }

    pub fn name(&mut self, peer: Peer, them: Address) {
        self.names[peer.0 as usize] = Some(them);
    }

    /// Goes on with a meeting over shared memory; none when the peer is there.
    pub fn go_on(&mut self, peer: Peer, meeting: shm::Meeting) -> io::Result<Option<shm::Meeting>> {
        match self.shm.go_on(meeting)? {
            Ok(near) => {
                self.join_near(peer, near);
                Ok(None)
            }
            Err(meeting) => Ok(Some(meeting)),
        }
    }

    /// A connection by TCP is the peer's.
    pub fn adopt(&mut self, peer: Peer, stream: TcpStream) -> io::Result<()> {
        let ends = stream.local_addr().and_then(|ours| Ok((ours.ip(), stream.peer_addr()?.ip())));
        let far = self.tcp.stream().adopt(stream)?;
        self.join_far(peer, far);
        if let (Ok((ours, theirs)), true) = (ends, self.tcp.may_offer()) {
            match self.tcp.wire().reach(far, ours, theirs) {
                Ok(reached) => self.offer(far, reached)?,
                Err(error) => {
                    let text = format!("no raw Ethernet between {ours} and {theirs}: {error}");
                    self.tcp.is_forced().then(|| complain(&text));
                    self.no_ethernet = Some(text);
                }
            }
        }
        Ok(())
    }

    /// Tells a peer how frames reach us.
    fn offer(&mut self, far: Peer, reached: Option<Reached>) -> io::Result<()> {
        let Some(Reached { place, number, frame_bytes_max, window }) = reached else {
            return Ok(());
        };
        let key = u64::from_le_bytes(random::bytes()?);
        self.tcp.offer(far, Here { place, number, key, frame_bytes_max, window });
        Ok(())
    }

    /// The peer of one that joined shared memory, a new one where it was not expected.
    pub fn join_near(&mut self, peer: Peer, near: Peer) {
        debug_assert_eq!(self.near.len(), near.0 as usize);
        self.near.push(peer);
        self.all[peer.0 as usize] = Side::Near(near.0);
    }

    pub fn join_far(&mut self, peer: Peer, far: Peer) {
        debug_assert_eq!(self.far.len(), far.0 as usize);
        self.far.push(peer);
        self.all[peer.0 as usize] = Side::Far(far.0);
    }

    /// A peer that could not be met, or was gone before it was.
    pub fn lost(&mut self, peer: Peer) {
        if self.of(peer) == Side::Meeting {
            self.all[peer.0 as usize] = Side::Dead;
            self.lost.push_back(peer);
        }
    }

    /// The peer under this number of shared memory's, which was met without a door.
    pub fn of_near(&mut self, near: Peer) -> Peer {
        while self.near.len() <= near.0 as usize {
            let side = Side::Near(self.near.len() as u32);
            let peer = self.add(side, None);
            self.near.push(peer);
        }
        self.near[near.0 as usize]
    }

    /// The same of TCP's. Those that came before it become peers with it.
    pub fn of_far(&mut self, far: Peer) -> Peer {
        while self.far.len() <= far.0 as usize {
            let side = Side::Far(self.far.len() as u32);
            let peer = self.add(side, None);
            self.far.push(peer);
        }
        self.far[far.0 as usize]
    }

    /// Whoever has come to TCP's own listener is a peer.
    pub fn meet_far(&mut self) {
        if let Some(last) = self.tcp.stream().last() {
            self.of_far(last);
        }
    }

    /// Polls shared memory.
    #[inline]
    pub fn poll_near(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        let Sides { near: numbers, all, names, told, .. } = self;
        self.shm.poll(budget, &mut Named { sink, side: Side::Near, numbers, all, names, told })
    }

    /// Polls TCP.
    pub fn poll_far(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        let Sides { far: numbers, all, names, told, .. } = self;
        self.tcp.poll(budget, &mut Named { sink, side: Side::Far, numbers, all, names, told })
    }
}

/// Who asked for it hears why it is not there.
fn complain(text: &str) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| eprintln!("covey: {text}; TCP is used. It needs root or CAP_NET_RAW"));
}

/// An engine that hears of peers by the numbers that they have here.
struct Named<'a, S> {
    sink: &'a mut S,
    /// Where they are reached.
    side: fn(u32) -> Side,
    numbers: &'a mut Vec<Peer>,
    all: &'a mut Vec<Side>,
    names: &'a mut Vec<Option<Address>>,
    told: &'a mut usize,
}

impl<S: Sink> Named<'_, S> {
    #[inline]
    fn of(&self, peer: Peer) -> Peer {
        self.numbers[peer.0 as usize]
    }
}

impl<S: Sink> Sink for Named<'_, S> {
    /// Most have a number here, under which they are told of. Whoever came to TCP's own listener in this poll has none yet, and
    /// may have said something already.
    fn joined(&mut self, peer: Peer) {
        if self.numbers.len() > peer.0 as usize {
            return;
        }
        debug_assert_eq!((*self.told, self.numbers.len()), (self.all.len(), peer.0 as usize));
        let ours = Peer(self.all.len() as u32);
        self.all.push((self.side)(peer.0));
        self.names.push(None);
        self.numbers.push(ours);
        self.sink.joined(ours);
        *self.told += 1;
    }

    #[inline]
    fn packet(&mut self, peer: Peer, head: &[u8], payload: &[u8]) {
        self.sink.packet(self.of(peer), head, payload);
    }

    #[inline]
    fn wants_more(&self) -> bool {
        self.sink.wants_more()
    }

    fn place(&mut self, peer: Peer, head: &[u8], bytes: usize) -> Option<Span> {
        self.sink.place(self.of(peer), head, bytes)
    }

    fn placed(&mut self, peer: Peer, head: &[u8], bytes: usize) {
        self.sink.placed(self.of(peer), head, bytes);
    }

    fn lends(&self, peer: Peer, message: u32, span: Span) -> bool {
        self.sink.lends(self.of(peer), message, span)
    }

    fn lends_memory(&self, peer: Peer, message: u32) -> bool {
        self.sink.lends_memory(self.of(peer), message)
    }

    fn sent(&mut self, token: u64) {
        self.sink.sent(token);
    }

    fn done(&mut self, token: u64, result: Result<(), Refused>) {
        self.sink.done(token, result);
    }

    fn dead(&mut self, peer: Peer) {
        let peer = self.of(peer);
        self.all[peer.0 as usize] = Side::Dead;
        self.sink.dead(peer);
    }
}
