//! What a keeper and the daemon say to each other: packets of eight bytes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

/// The daemon's end. Dropping it ends the program and everything that came of it.
#[derive(Debug)]
pub struct Keeper {
    socket: AsyncFd<OwnedFd>,
    /// Who waits to hear of a signal, in the order of the orders.
    asked: RefCell<VecDeque<oneshot::Sender<i32>>>,
}

/// What happened to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It runs, with this process number.
    Started(u32),
    /// It could not be started: the error number, and what it was that failed.
    Failed(i32, Stage),
    /// It ended with this status, as wait(2) gives it. What it started may go on.
    Ended(i32),
    /// It is to end, and the kernel refuses to kill this process of it, which takes CAP_KILL. Said once.
    Refused(u32),
    /// Nothing of it is left.
    Gone,
}

/// What a keeper says: an event, or how a signal went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Event(Event),
    /// The error number, or 0.
    Signalled(i32),
}

/// What fails when a program cannot be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Preparing a process.
    Process,
    /// Becoming its user.
    User,
    /// Its directory.
    Directory,
    /// The program's file.
    Program,
}

impl Stage {
    const ALL: [Stage; 4] = [Stage::Process, Stage::User, Stage::Directory, Stage::Program];

    pub(super) fn number(self) -> u8 {
        Stage::ALL.iter().position(|stage| *stage == self).map_or(0, |at| at as u8)
    }

    pub(super) fn of(number: u8) -> Stage {
        Stage::ALL.get(usize::from(number)).copied().unwrap_or(Stage::Process)
    }
}

/// What a keeper is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Sends a signal to the program's process group.
    Signal(i32),
    /// Ends everything.
    Kill,
}

impl Keeper {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Keeper> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        // SAFETY: an OwnedFd is the same descriptor for as long as it lives, and lives in here.
        let registered = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
        let socket = registered.map_err(|error| error.into_parts().1)?;
        Ok(Keeper { socket, asked: RefCell::default() })
    }

    /// The next event, as soon as there is one. What [`Keeper::signal`] waits for is heard here.
    pub async fn next(&self) -> Event {
        loop {
            match self.word().await {
                Word::Signalled(errno) => {
                    let first = self.asked.borrow_mut().pop_front();
                    if let Some(asked) = first {
                        let _ = asked.send(errno);
                    }
                }
                Word::Event(event) => {
                    if event == Event::Gone {
                        self.asked.borrow_mut().clear();
                    }
                    return event;
                }
            }
        }
    }

    async fn word(&self) -> Word {
        let read = |socket: &OwnedFd| {
            let mut packet = [0; PACKET];
            // A keeper that ends before it has read an order resets the connection: that is reported first, and what it
            // said last, which is how the program ended, is still there.
            let read = match rustix::io::read(socket, &mut packet) {
                Err(rustix::io::Errno::CONNRESET) => rustix::io::read(socket, &mut packet),
                other => other,
            };
            match read {
                Ok(PACKET) => Ok(Word::decode(packet)),
                Ok(_) => Ok(Word::Event(Event::Gone)),
                Err(error) => Err(error.into()),
            }
        };
        let word = self.socket.async_io(Interest::READABLE, read).await;
        word.unwrap_or(Word::Event(Event::Gone))
    }

    /// Sends a signal to the program's process group, if it still runs; at once, whether or not the answer is waited for.
    /// The answer comes while somebody waits for the [`next`](Keeper::next) event.
    pub fn signal(&self, signal: i32) -> impl Future<Output = io::Result<()>> + use<> {
        let (tell, told) = oneshot::channel();
        if self.tell(Order::Signal(signal)) {
            self.asked.borrow_mut().push_back(tell);
        }
        async move {
            match told.await {
                // Its keeper has ended after the program.
                Ok(0) | Err(_) => Ok(()),
                Ok(errno) => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    /// Ends the program and everything that came of it; [`Event::Gone`] says when that is done.
    pub fn kill(&self) {
        let _ = self.tell(Order::Kill);
    }

    /// A keeper that is gone needs no orders, and it reads them faster than anyone gives them. Whether it will.
    fn tell(&self, order: Order) -> bool {
        let flags = rustix::net::SendFlags::NOSIGNAL;
        rustix::net::send(self.socket.get_ref(), &order.encode(), flags).is_ok()
    }
}

impl Event {
    pub(super) fn encode(self) -> [u8; PACKET] {
        match self {
            Event::Started(pid) => packet(b'S', 0, pid.cast_signed()),
            Event::Failed(errno, stage) => packet(b'F', stage.number(), errno),
            Event::Ended(status) => packet(b'E', 0, status),
            Event::Refused(pid) => packet(b'R', 0, pid.cast_signed()),
            Event::Gone => packet(b'G', 0, 0),
        }
    }

    fn decode(packet: [u8; PACKET]) -> Event {
        let number = number(packet);
        match packet[0] {
            b'S' => Event::Started(number.cast_unsigned()),
            b'F' => Event::Failed(number, Stage::of(packet[1])),
            b'E' => Event::Ended(number),
            b'R' => Event::Refused(number.cast_unsigned()),
            _ => Event::Gone,
        }
    }
}

impl Word {
    pub(super) fn encode(self) -> [u8; PACKET] {
        match self {
            Word::Event(event) => event.encode(),
            Word::Signalled(errno) => packet(b's', 0, errno),
        }
    }

    fn decode(packet: [u8; PACKET]) -> Word {
        match packet[0] {
            b's' => Word::Signalled(number(packet)),
            _ => Word::Event(Event::decode(packet)),
        }
    }
}

impl Order {
    fn encode(self) -> [u8; PACKET] {
        match self {
            Order::Signal(signal) => packet(b's', 0, signal),
            Order::Kill => packet(b'k', 0, 0),
        }
    }

    pub(super) fn decode(packet: [u8; PACKET]) -> Order {
        if packet[0] == b's' { Order::Signal(number(packet)) } else { Order::Kill }
    }
}

fn packet(kind: u8, detail: u8, number: i32) -> [u8; PACKET] {
    let [a, b, c, d] = number.to_le_bytes();
    [kind, detail, 0, 0, a, b, c, d]
}

fn number([_, _, _, _, a, b, c, d]: [u8; PACKET]) -> i32 {
    i32::from_le_bytes([a, b, c, d])
}

/// Bytes of a packet.
pub(super) const PACKET: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_program_is_heard_though_an_order_came_too_late_for_its_keeper() {
        use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
            let keeper = Keeper::new(ours).unwrap();
            send(&theirs, &Event::Ended(7 << 8).encode(), SendFlags::NOSIGNAL).unwrap();
            let signalled = keeper.signal(libc::SIGTERM);
            drop(theirs);
            assert_eq!(keeper.next().await, Event::Ended(7 << 8));
            assert_eq!(keeper.next().await, Event::Gone);
            assert!(signalled.await.is_ok() && keeper.signal(libc::SIGTERM).await.is_ok());
        });
    }

    #[test]
    fn events_and_orders_are_read_back() {
        for event in [
            Event::Started(4_000_000_000),
            Event::Failed(2, Stage::Directory),
            Event::Ended(256),
            Event::Refused(4_000_000_000),
            Event::Gone,
        ] {
            assert_eq!(Event::decode(event.encode()), event);
            assert_eq!(Word::decode(event.encode()), Word::Event(event));
        }
        assert_eq!(Word::decode(Word::Signalled(1).encode()), Word::Signalled(1));
        for order in [Order::Signal(15), Order::Kill] {
            assert_eq!(Order::decode(order.encode()), order);
        }
    }
}
