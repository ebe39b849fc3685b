//! Datagrams: each arrives whole, or twice, or not at all, and in any order.

use super::{NodeId, arrival};
use crate::sim::executor::{with_world, world};
use bytes::Bytes;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Poll, Waker};

/// What arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The machine and port it came from.
    pub from: (NodeId, u16),
    /// What it says.
    pub bytes: Bytes,
}

/// What a socket has received.
#[derive(Default)]
pub struct Inbox {
    arrived: VecDeque<Datagram>,
    reader: Option<Waker>,
}

/// A port of the machine that a process runs on.
#[derive(Debug)]
pub struct Socket {
    at: (NodeId, u16),
}

impl Socket {
    /// Takes a port of the asking process's machine.
    pub fn bind(port: u16) -> io::Result<Socket> {
        let world = world();
        let at = (world.current(), port);
        let mut network = world.network.borrow_mut();
        if network.sockets.contains_key(&at) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        network.sockets.insert(at, Inbox::default());
        Ok(Socket { at })
    }

    /// Sends one, or perhaps not.
    pub fn send_to(&self, to: (&str, u16), bytes: Bytes) {
        let world = world();
        let Some(node) = world.find(to.0) else { return };
        let (is_blocked, quality) = {
            let network = world.network.borrow();
            (network.is_blocked(self.at.0, node), network.quality())
        };
        let copies = {
            let mut rng = world.rng.borrow_mut();
            let is_lost = is_blocked || rng.chance(quality.lost_permille);
            let is_doubled = rng.chance(quality.doubled_permille);
            if is_lost { 0 } else { 1 + usize::from(is_doubled) }
        };
        for _ in 0..copies {
            let datagram = Datagram { from: self.at, bytes: bytes.clone() };
            let to = (node, to.1);
            let (way, bytes) = ((self.at.0, node), datagram.bytes.len() as u64);
            let (now, first) = (world.elapsed(), arrival(&world));
            let arrival = world.ports.borrow_mut().queue(way, now, first, bytes);
            world.call_at(arrival, move || arrive(to, datagram));
        }
    }

    /// The next one that arrives.
    pub async fn receive(&self) -> Datagram {
        poll_fn(|context| {
            let world = world();
            let mut network = world.network.borrow_mut();
            let Some(inbox) = network.sockets.get_mut(&self.at) else { return Poll::Pending };
            match inbox.arrived.pop_front() {
                Some(datagram) => Poll::Ready(datagram),
                None => {
                    inbox.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        with_world(|world| world.network.borrow_mut().sockets.remove(&self.at));
    }
}

fn arrive(to: (NodeId, u16), datagram: Datagram) {
    let waker = with_world(|world| {
        let mut network = world.network.borrow_mut();
        let inbox = network.sockets.get_mut(&to)?;
        inbox.arrived.push_back(datagram);
        inbox.reader.take()
    });
    waker.flatten().into_iter().for_each(Waker::wake);
}
