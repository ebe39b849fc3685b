//! Streams: bytes in order, or an end.

use super::{NodeId, arrival, current};
use crate::sim::executor::{World, with_world, world};
use crate::task;
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A packet of no answer is sent again after this.
const AGAIN: Duration = Duration::from_millis(200);
/// A connect of no answer is tried again after this.
const SYN_AGAIN: Duration = Duration::from_secs(1);
/// A peer that says nothing at all is given up after this.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Bytes on the way and unread, each way.
const WINDOW_BYTES: usize = 256 << 10;
/// Longest packet in bytes.
const PACKET_BYTES_MAX: u64 = 64 << 10;

/// A connection: what goes from side 0, who dialled, to side 1, and back.
pub struct Conn {
    nodes: [NodeId; 2],
    /// Bytes on their way to each side.
    pipes: [Pipe; 2],
    /// The side's process is gone without a word.
    is_vanished: [bool; 2],
    is_dropped: [bool; 2],
    is_reset: bool,
}

#[derive(Default)]
struct Pipe {
    flight: VecDeque<(u64, Packet)>,
    flight_bytes: usize,
    last_arrival: u64,
    is_pumped: bool,
    arrived: VecDeque<Bytes>,
    arrived_bytes: usize,
    has_ended: bool,
    is_closing: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

enum Packet {
    Data(Bytes),
    End,
}

/// Connections that were made and not yet accepted.
#[derive(Default)]
pub struct Backlog {
    number: u64,
    waiting: VecDeque<u64>,
    acceptor: Option<Waker>,
}

impl Conn {
    pub(super) fn is_between(&self, one: NodeId, other: NodeId) -> bool {
        !self.is_reset && (self.nodes == [one, other] || self.nodes == [other, one])
    }

    fn wake_all(&mut self) -> Vec<Waker> {
        let pipes = self.pipes.iter_mut();
        pipes.flat_map(|pipe| [pipe.reader.take(), pipe.writer.take()]).flatten().collect()
    }
}

/// One side of a connection.
#[derive(Debug)]
pub struct SimStream {
    conn: u64,
    side: usize,
}

/// Takes connections to the process's machine.
#[derive(Debug)]
pub struct Listener {
    node: NodeId,
    number: u64,
}

/// Listens on the machine that the asking process runs on.
pub fn listen() -> Listener {
    let world = world();
    let (node, number) = (world.current(), world.number());
    let backlog = Backlog { number, ..Backlog::default() };
    world.network.borrow_mut().listeners.insert(node, backlog);
    Listener { node, number }
}

impl Listener {
    /// The next connection, and the name of nobody in particular: the simulated network vouches for no one.
    pub async fn accept(&self) -> SimStream {
        let conn = poll_fn(|context| {
            let world = world();
            let mut network = world.network.borrow_mut();
            let Some(backlog) = network.listeners.get_mut(&self.node) else { return Poll::Pending };
            match backlog.waiting.pop_front() {
                Some(conn) => Poll::Ready(conn),
                None => {
                    backlog.acceptor = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        SimStream { conn, side: 1 }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        with_world(|world| {
            let mut network = world.network.borrow_mut();
            if network.listeners.get(&self.node).is_some_and(|b| b.number == self.number) {
                network.listeners.remove(&self.node);
            }
        });
    }
}

/// Connects to the machine called `to`. Waits for as long as nobody answers: bound it.
pub async fn connect(to: &str) -> io::Result<SimStream> {
    let unknown = || io::Error::new(ErrorKind::NotFound, format!("no machine is called {to}"));
    let node = world().find(to).ok_or_else(unknown)?;
    loop {
        let wait = {
            let world = world();
            Duration::from_nanos(arrival(&world) - world.elapsed())
        };
        task::sleep(wait * 2).await;
        match try_connect(node) {
            Some(result) => return result,
            None => task::sleep(SYN_AGAIN).await,
        }
    }
}

/// None when nobody answers.
fn try_connect(to: NodeId) -> Option<io::Result<SimStream>> {
    let world = world();
    let from = world.current();
    let mut network = world.network.borrow_mut();
    if !world.is_powered(to) || network.is_blocked(from, to) || network.is_blocked(to, from) {
        return None;
    }
    let Some(backlog) = network.listeners.get_mut(&to) else {
        return Some(Err(ErrorKind::ConnectionRefused.into()));
    };
    let id = world.number();
    backlog.waiting.push_back(id);
    let waker = backlog.acceptor.take();
    let conn = Conn {
        nodes: [from, to],
        pipes: Default::default(),
        is_vanished: [false; 2],
        is_dropped: [false; 2],
        is_reset: false,
    };
    network.conns.insert(id, conn);
    drop(network);
    waker.into_iter().for_each(Waker::wake);
    Some(Ok(SimStream { conn: id, side: 0 }))
}

/// Ends a connection for both sides at once; what is on its way is lost.
pub fn reset(id: u64) {
    let Some(wakers) = with_conn(id, |_, conn| {
        conn.is_reset = true;
        conn.wake_all()
    }) else {
        return;
    };
    wakers.into_iter().for_each(Waker::wake);
}

fn with_conn<T>(id: u64, act: impl FnOnce(&Rc<World>, &mut Conn) -> T) -> Option<T> {
    with_world(|world| {
        let mut network = world.network.borrow_mut();
        network.conns.get_mut(&id).map(|conn| act(world, conn))
    })
    .flatten()
}

/// Sends packets to side `to` of a connection.
fn send(world: &World, conn: &mut Conn, id: u64, to: usize, packet: Packet, arrival: u64) {
    let arrival = match &packet {
        Packet::Data(bytes) => {
            let way = (conn.nodes[1 - to], conn.nodes[to]);
            world.ports.borrow_mut().queue(way, world.elapsed(), arrival, bytes.len() as u64)
        }
        Packet::End => arrival,
    };
    let pipe = &mut conn.pipes[to];
    let arrival = arrival.max(pipe.last_arrival + 1);
    pipe.last_arrival = arrival;
    if let Packet::Data(bytes) = &packet {
        pipe.flight_bytes += bytes.len();
    }
    pipe.flight.push_back((arrival, packet));
    if !std::mem::replace(&mut pipe.is_pumped, true) {
        world.call_at(arrival, move || pump(id, to));
    }
}

/// Lets packets arrive whose time has come.
fn pump(id: u64, to: usize) {
    let world = world();
    let mut wakers = Vec::new();
    let mut answers_with_reset = false;
    {
        let mut network = world.network.borrow_mut();
        let Some(conn) = network.conns.get(&id) else { return };
        let (from_node, to_node) = (conn.nodes[1 - to], conn.nodes[to]);
        let is_blocked = network.is_blocked(from_node, to_node) || !world.is_powered(to_node);
        let sender_off = conn.is_vanished[1 - to] && !world.is_powered(from_node);
        let conn = network.conns.get_mut(&id).expect("it was just there");
        let is_gone = conn.is_vanished[to] || conn.is_dropped[to];
        let pipe = &mut conn.pipes[to];
        let now = world.elapsed();
        if conn.is_reset {
            return;
        }
        while let Some(&(arrival, _)) = pipe.flight.front() {
            if arrival > now {
                world.call_at(arrival, move || pump(id, to));
                return wakers.into_iter().for_each(Waker::wake);
            }
            if is_blocked {
                if sender_off {
                    // Nobody is left who could send it again.
                    pipe.flight.clear();
                    break;
                }
                let again = AGAIN.as_nanos() as u64;
                let wait = again / 2 + world.rng.borrow_mut().below(again);
                world.call_at(now + wait, move || pump(id, to));
                return wakers.into_iter().for_each(Waker::wake);
            }
            let (_, packet) = pipe.flight.pop_front().expect("it was just there");
            match packet {
                Packet::Data(bytes) if is_gone => {
                    pipe.flight_bytes -= bytes.len();
                    answers_with_reset = true;
                }
                Packet::Data(bytes) => {
                    pipe.flight_bytes -= bytes.len();
                    pipe.arrived_bytes += bytes.len();
                    pipe.arrived.push_back(bytes);
                }
                Packet::End => pipe.has_ended = true,
            }
            wakers.extend(pipe.reader.take());
        }
        pipe.is_pumped = false;
    }
    wakers.into_iter().for_each(Waker::wake);
    if answers_with_reset {
        reset(id);
    }
    forget_if_over(&world, id);
}

/// A connection that nobody holds any more, and on which nothing moves, is forgotten.
fn forget_if_over(world: &World, id: u64) {
    let mut network = world.network.borrow_mut();
    let is_over = network.conns.get(&id).is_some_and(|conn| {
        let gone = |side: usize| conn.is_dropped[side] || conn.is_vanished[side];
        gone(0) && gone(1) && (conn.is_reset || conn.pipes.iter().all(|p| !p.is_pumped))
    });
    if is_over {
        network.conns.remove(&id);
    }
}

pub fn process_ends(world: &World, node: NodeId, power_fails: bool) {
    let mut ids: Vec<u64> = {
        let network = world.network.borrow();
        let of_node = |conn: &Conn| !conn.is_reset && conn.nodes.contains(&node);
        network.conns.iter().filter(|(_, conn)| of_node(conn)).map(|(&id, _)| id).collect()
    };
    ids.sort_unstable();
    for id in ids {
        // A system that closes for its process throws away what is on the way, or sends it first.
        let resets = !power_fails && world.rng.borrow_mut().chance(500);
        if power_fails {
            let end = world.elapsed() + KEEPALIVE.as_nanos() as u64;
            world.call_at(end, move || reset(id));
            with_conn(id, |_, conn| {
                (0..2).filter(|&side| conn.nodes[side] == node).for_each(|side| {
                    conn.is_vanished[side] = true;
                });
            });
        } else if resets {
            world.call_at(arrival(world), move || reset(id));
        }
    }
    world.network.borrow_mut().listeners.remove(&node);
}

impl SimStream {
    /// The machine at the other end.
    pub fn peer(&self) -> NodeId {
        with_conn(self.conn, |_, conn| conn.nodes[1 - self.side]).unwrap_or_else(current)
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let side = self.side;
        let read = with_conn(self.conn, |world, conn| {
            let pipe = &mut conn.pipes[side];
            if let Some(front) = pipe.arrived.front_mut() {
                let room = into.remaining().min(front.len());
                // A read may give less than there is.
                let some = world.rng.borrow_mut().chance(50);
                let count = if some { 1 + world.rng.borrow_mut().index(room) } else { room };
                let count = count.min(room);
                into.put_slice(&front[..count]);
                front.advance(count);
                if front.is_empty() {
                    pipe.arrived.pop_front();
                }
                pipe.arrived_bytes -= count;
                return (Poll::Ready(Ok(())), pipe.writer.take());
            }
            if conn.is_reset {
                return (Poll::Ready(Err(ErrorKind::ConnectionReset.into())), None);
            }
            if pipe.has_ended {
                return (Poll::Ready(Ok(())), None);
            }
            pipe.reader = Some(context.waker().clone());
            (Poll::Pending, None)
        });
        let (answer, waker) = read.unwrap_or((Poll::Ready(Ok(())), None));
        waker.into_iter().for_each(Waker::wake);
        answer
    }
}

impl crate::os::run::Stream for SimStream {}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (id, to) = (self.conn, 1 - self.side);
        let world = world();
        let (arrival, is_lost) = {
            let lost = world.network.borrow().quality().lost_permille;
            (arrival(&world), world.rng.borrow_mut().chance(lost))
        };
        let again = if is_lost { AGAIN.as_nanos() as u64 } else { 0 };
        with_conn(id, |world, conn| {
            if conn.is_reset || conn.pipes[to].is_closing {
                return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
            }
            let pipe = &mut conn.pipes[to];
            let room = WINDOW_BYTES.saturating_sub(pipe.flight_bytes + pipe.arrived_bytes);
            if room == 0 {
                pipe.writer = Some(context.waker().clone());
                return Poll::Pending;
            }
            let total: usize = slices.iter().map(|slice| slice.len()).sum();
            let mut packet = Vec::with_capacity(total.min(room));
            for slice in slices {
                let left = room - packet.len();
                packet.extend_from_slice(&slice[..slice.len().min(left)]);
            }
            let count = packet.len();
            let mut rest = Bytes::from(packet);
            let mut arrival = arrival + again;
            while !rest.is_empty() {
                let cut = {
                    let mut rng = world.rng.borrow_mut();
                    let bound = if rng.chance(100) { 200 } else { PACKET_BYTES_MAX };
                    1 + rng.below(bound)
                };
                let packet = rest.split_to(rest.len().min(cut as usize));
                send(world, conn, id, to, Packet::Data(packet), arrival);
                arrival += world.rng.borrow_mut().below(50_000);
            }
            Poll::Ready(Ok(count))
        })
        .unwrap_or_else(|| Poll::Ready(Err(ErrorKind::BrokenPipe.into())))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

impl SimStream {
    fn close(&self) {
        let (id, to) = (self.conn, 1 - self.side);
        let Some(at) = with_world(|world| arrival(world)) else { return };
        with_conn(id, |world, conn| {
            let is_vanished = conn.is_vanished[self.side];
            if !conn.is_reset && !is_vanished && !conn.pipes[to].is_closing {
                conn.pipes[to].is_closing = true;
                send(world, conn, id, to, Packet::End, at);
            }
        });
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.close();
        with_conn(self.conn, |_, conn| conn.is_dropped[self.side] = true);
        with_world(|world| forget_if_over(world, self.conn));
    }
}
