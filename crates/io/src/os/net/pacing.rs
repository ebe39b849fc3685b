//! The rates of this process's TCP connections: the kernel paces each by itself (SO_MAX_PACING_RATE), with or without fq,
//! and a paced one hands over short pieces (`pieces.rs`).
//!
//! Whoever runs a connection enrolls it; whoever knows what a port can take sets limits, from any task or thread. Two
//! parties do: the node at the other end, whose port receives, and this node, whose port sends. The lower limit counts.

use super::pieces::Pieces;
use super::stream::{Paced, Stream};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    pieces: Arc<Pieces>,
}

/// One connection.
#[derive(Debug)]
struct Entry {
    /// A duplicate, which goes with the guard.
    socket: OwnedFd,
    pieces: Arc<Pieces>,
    /// Limits in bytes of payload a second, of the receiver's port and of the sender's.
    receiver: Option<u64>,
    sender: Option<u64>,
    /// What the kernel was told last.
    told: Option<u64>,
}

static IS_ENABLED: AtomicBool = AtomicBool::new(false);
static MARK: AtomicU8 = AtomicU8::new(MARK_DEFAULT);
static ENROLLED: Mutex<BTreeMap<Ends, Entry>> = Mutex::new(BTreeMap::new());

/// Has this process's connections enrolled from now on: it is in a cluster with pacing.
pub fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
}

/// Marks the packets of all enrolled connections, of now and of later, with this DSCP, 0 to 63: a switch that looks at it can
/// send them behind messages. None is 0.
pub fn mark_all(dscp: u8) {
    if MARK.swap(dscp, Ordering::Relaxed) != dscp {
        enrolled().values().for_each(|entry| mark(entry.socket.as_fd(), dscp));
    }
}

/// Enrolls a connection, if that is enabled, until it is dropped. What is not TCP or stays on this machine is left alone: there
/// is no wire to share.
pub fn enroll(stream: Stream) -> Stream {
    let Stream::Tcp(stream) = stream else { return stream };
    let enrolled = match (stream.local_addr(), stream.peer_addr()) {
        (Ok(local), Ok(peer)) => enroll_socket(stream.as_fd(), local, peer),
        _ => None,
    };
    match enrolled {
        Some(enrolled) => Stream::Paced(Box::new(Paced { stream, enrolled })),
        None => Stream::Tcp(stream),
    }
}

/// By descriptor and addresses.
fn enroll_socket(socket: BorrowedFd<'_>, local: SocketAddr, peer: SocketAddr) -> Option<Enrolled> {
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
    let pieces = Arc::<Pieces>::default();
    mark(socket.as_fd(), MARK.load(Ordering::Relaxed));
    let entry = Entry { socket, pieces: pieces.clone(), receiver: None, sender: None, told: None };
    enrolled().insert(ends, entry);
    Enrolled { ends, pieces }
}

impl Enrolled {
    /// The addresses of this end and of the other.
    pub fn ends(&self) -> Ends {
        self.ends
    }

    /// How long its pieces may be.
    pub(super) fn pieces(&self) -> Option<usize> {
        self.pieces.bytes()
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        let mut all = enrolled();
        // The peer may have ended this one and begun another between the same ends before it is dropped.
        if all.get(&self.ends).is_some_and(|entry| Arc::ptr_eq(&entry.pieces, &self.pieces)) {
            all.remove(&self.ends);
        }
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
        match tell(self.socket.as_fd(), lower) {
            Ok(segment_bytes) => {
                self.told = lower;
                self.pieces.set(lower, segment_bytes);
            }
            // A socket whose connection has just ended.
            Err(error) => tracing::debug!("a connection is not paced: {error}"),
        }
    }
}

/// Tells the kernel how fast a connection may send, in bytes of payload a second; `None` lifts it. Answers how long its
/// segments are.
fn tell(socket: BorrowedFd<'_>, rate: Option<u64>) -> io::Result<usize> {
    let bytes_per_s: libc::c_ulong = rate.map_or(libc::c_ulong::MAX, |rate| {
        libc::c_ulong::try_from(rate.max(RATE_MIN)).unwrap_or(libc::c_ulong::MAX)
    });
    set(socket, (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE), bytes_per_s)?;
    // What has been handed over cannot be cut up any more, and goes at the rate of now. Zero is the machine's own limit.
    let unsent: libc::c_int = if rate.is_some() { UNSENT_BYTES_MAX } else { 0 };
    set(socket, (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT), unsent)?;
    segment_bytes(socket)
}

/// A connection that cannot be marked is as good as others.
fn mark(socket: BorrowedFd<'_>, dscp: u8) {
    let byte = libc::c_int::from(dscp) << 2;
    // One of the two is the connection's own.
    let _ = set(socket, (libc::IPPROTO_IP, libc::IP_TOS), byte);
    let _ = set(socket, (libc::IPPROTO_IPV6, libc::IPV6_TCLASS), byte);
    // In this machine's own card, too, it waits behind messages.
    let _ = set(socket, (libc::SOL_SOCKET, libc::SO_PRIORITY), PRIORITY_BULK);
}

fn set<T: Copy>(socket: BorrowedFd<'_>, (level, name): (i32, i32), value: T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of_val(&value)` bytes from `value`, which lives here.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn segment_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let (mut bytes, mut length) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `length` bytes to `bytes`, which lives here.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            (&raw mut bytes).cast(),
            &raw mut length,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes.max(1) as usize) }
}

/// An address as connections are known by here: an IPv4 one is written as such.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn enrolled() -> MutexGuard<'static, BTreeMap<Ends, Entry>> {
    // Nothing is left half done by a holder that panics.
    ENROLLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Class selector 1 (RFC 8622 calls it the old mark of less than best effort), which switches with priorities know.
pub const MARK_DEFAULT: u8 = 8;
/// TC_PRIO_BULK.
const PRIORITY_BULK: libc::c_int = 2;
/// The lowest rate, in bytes a second: heartbeats pass.
const RATE_MIN: u64 = 16 << 10;
/// What a paced connection may have in the kernel without having sent it.
const UNSENT_BYTES_MAX: libc::c_int = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::file::DataFile;
    use crate::os::run::Stream as _;
    use covey_wire::Segments;
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use tokio::io::AsyncWriteExt;

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

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// Within this machine nothing is enrolled, so it is done by hand.
    fn paced(stream: TcpStream, rate: u64) -> Stream {
        let ends = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let enrolled = admit(stream.try_clone().unwrap().into(), ends);
        limit(ends, Port::Receiver, Some(rate));
        stream.set_nonblocking(true).unwrap();
        let stream = tokio::net::TcpStream::from_std(stream).unwrap();
        Stream::Paced(Box::new(Paced { stream, enrolled }))
    }

    #[test]
    fn what_is_sent_in_pieces_arrives_whole() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let content: Vec<u8> = (0..1_000_000_u32).map(|at| (at >> 3) as u8).collect();
        let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all(&content).unwrap();
        let file = DataFile::new(file).unwrap();
        let range = file.range(0, content.len()).unwrap().expect("it is in memory and long");
        let (ours, mut theirs) = pair();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).map(|_| got)
        });
        runtime.block_on(async {
            let mut stream = paced(ours, 50_000_000);
            let mut output = Segments::new();
            output.small(|out| out.extend_from_slice(b"before"));
            output.file_range(range);
            output.small(|out| out.extend_from_slice(b"after"));
            while !output.is_empty() {
                let sent = poll_fn(|context| stream.poll_write_files(context, &output)).await;
                output.advance(sent.unwrap());
            }
            stream.write_all(&content).await.unwrap();
        });
        let got = reader.join().unwrap().unwrap();
        assert!(got == [b"before", &content[..], b"after", &content].concat());
    }

    /// A peer that resets a connection and dials again from the same port was never paced any more.
    #[test]
    fn a_connection_between_the_same_ends_stays_enrolled_when_the_old_one_is_dropped() {
        let (client, server) = pair();
        let ends = (([10, 9, 8, 7], 1).into(), ([10, 9, 8, 6], 2).into());
        let [old, new] = [&client, &server].map(|one| admit(one.try_clone().unwrap().into(), ends));
        drop(old);
        limit(ends, Port::Receiver, Some(1_000_000));
        assert_eq!(rate_of(&server), 1_000_000);
        drop(new);
        assert!(list().iter().all(|(found, _)| *found != ends));
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
        assert_eq!(rustix::net::sockopt::ip_tos(&client).unwrap(), 32, "CS1");
        mark_all(0);
        assert_eq!(rustix::net::sockopt::ip_tos(&client).unwrap(), 0);
        mark_all(MARK_DEFAULT);
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
