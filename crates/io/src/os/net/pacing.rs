//! The rates of this process's TCP connections: the kernel paces each by itself (SO_MAX_PACING_RATE), with or without fq.
//!
//! Whoever runs a connection enrolls it; whoever knows what a port can take sets limits, from any task or thread. Two
//! parties do: the node at the other end, whose port receives, and this node, whose port sends. The lower limit counts.

use super::Stream;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whose port a limit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// That of the node at the other end.
    Receiver,
    /// This node's.
    Sender,
}

/// A connection's two ends: this one and the other.
pub type Ends = (SocketAddr, SocketAddr);

/// Keeps a connection enrolled. To be dropped with the connection: until then the socket stays open.
#[derive(Debug)]
pub struct Enrolled {
    ends: Ends,
}

/// One connection.
#[derive(Debug)]
struct Entry {
    /// A duplicate, which goes with the guard.
    socket: OwnedFd,
    /// Limits in bytes of payload a second, of the receiver's port and of the sender's.
    receiver: Option<u64>,
    sender: Option<u64>,
    /// What the kernel was told last.
    told: Option<u64>,
}

static IS_ENABLED: AtomicBool = AtomicBool::new(false);
static ENROLLED: Mutex<BTreeMap<Ends, Entry>> = Mutex::new(BTreeMap::new());

/// Has this process's connections enrolled from now on: it is in a cluster with pacing.
pub fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
}

/// Enrolls a connection, if that is enabled; `None` for what is not TCP or stays on this machine: there is no wire to share.
pub fn enroll(stream: &Stream) -> Option<Enrolled> {
    let Stream::Tcp(stream) = stream else { return None };
    enroll_socket(stream.as_fd(), stream.local_addr().ok()?, stream.peer_addr().ok()?)
}

/// The same by descriptor and addresses.
pub fn enroll_socket(
    socket: BorrowedFd<'_>,
    local: SocketAddr,
    peer: SocketAddr,
) -> Option<Enrolled> {
    let ends = (canonical(local), canonical(peer));
    if !IS_ENABLED.load(Ordering::Relaxed) {
        return None;
    }
    if ends.0.ip() == ends.1.ip() || ends.1.ip().is_loopback() {
        return None;
    }
    Some(admit(socket.try_clone_to_owned().ok()?, ends))
}

fn admit(socket: OwnedFd, ends: Ends) -> Enrolled {
    let entry = Entry { socket, receiver: None, sender: None, told: None };
    enrolled().insert(ends, entry);
    Enrolled { ends }
}

impl Enrolled {
    /// The addresses of this end and of the other.
    pub fn ends(&self) -> Ends {
        self.ends
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        enrolled().remove(&self.ends);
    }
}

/// Sets or lifts a limit, in bytes of payload a second. A connection that is not enrolled is passed over.
pub fn limit(ends: Ends, port: Port, rate: Option<u64>) {
    if let Some(entry) = enrolled().get_mut(&ends) {
        entry.limit(port, rate);
    }
}

/// Lifts the limits of all connections for which `whose` holds.
pub fn lift(port: Port, whose: impl Fn(&Ends) -> bool) {
    for (_, entry) in enrolled().iter_mut().filter(|(ends, _)| whose(ends)) {
        entry.limit(port, None);
    }
}

/// Whether a connection with that machine is enrolled.
pub fn has(peer: IpAddr) -> bool {
    enrolled().keys().any(|(_, end)| end.ip() == peer)
}

/// All enrolled connections and what each is limited to, in bytes of payload a second.
pub fn list() -> Vec<(Ends, Option<u64>)> {
    enrolled().iter().map(|(ends, entry)| (*ends, entry.told)).collect()
}

impl Entry {
    fn limit(&mut self, port: Port, rate: Option<u64>) {
        match port {
            Port::Receiver => self.receiver = rate,
            Port::Sender => self.sender = rate,
        }
        let lower = self.receiver.into_iter().chain(self.sender).min();
        if lower == self.told {
            return;
        }
        match set_rate(self.socket.as_fd(), lower) {
            Ok(()) => self.told = lower,
            // A socket whose connection has just ended.
            Err(error) => tracing::debug!("a connection is not paced: {error}"),
        }
    }
}

/// Tells the kernel how fast a connection may send, in bytes of payload a second; `None` lifts it.
fn set_rate(socket: BorrowedFd<'_>, rate: Option<u64>) -> io::Result<()> {
    let rate: libc::c_ulong = rate.map_or(libc::c_ulong::MAX, |rate| {
        libc::c_ulong::try_from(rate.max(RATE_MIN)).unwrap_or(libc::c_ulong::MAX)
    });
    // SAFETY: the kernel reads `size_of_val(&rate)` bytes from `rate`, which lives here.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of_val(&rate) as libc::socklen_t,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn enrolled() -> MutexGuard<'static, BTreeMap<Ends, Entry>> {
    // Nothing is left half done by a holder that panics.
    ENROLLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lowest rate, in bytes a second: heartbeats pass.
const RATE_MIN: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn rate_of(stream: &TcpStream) -> u64 {
        let (mut rate, mut length) = (0u64, size_of::<u64>() as libc::socklen_t);
        // SAFETY: the kernel writes at most `length` bytes to `rate`, which lives here.
        let done = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MAX_PACING_RATE,
                (&raw mut rate).cast(),
                &raw mut length,
            )
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        rate
    }

    #[test]
    fn the_lower_of_two_limits_counts_and_both_can_be_lifted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (local, peer) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        enable();
        assert!(enroll_socket(client.as_fd(), local, peer).is_none(), "it has no wire");
        let ends = (local, peer);
        let guard = admit(client.as_fd().try_clone_to_owned().unwrap(), ends);
        limit(ends, Port::Receiver, Some(2_000_000));
        assert_eq!(rate_of(&client), 2_000_000);
        limit(ends, Port::Sender, Some(1_000_000));
        assert_eq!(rate_of(&client), 1_000_000);
        limit(ends, Port::Sender, None);
        assert_eq!(rate_of(&client), 2_000_000);
        lift(Port::Receiver, |found| *found == ends);
        assert_eq!(rate_of(&client), u64::MAX);
        assert!(has(peer.ip()));
        drop(guard);
        limit(ends, Port::Receiver, Some(5));
        assert!(list().iter().all(|(found, _)| *found != ends));
        assert_eq!(rate_of(&client), u64::MAX);
    }
}
