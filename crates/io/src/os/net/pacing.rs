//! The rates of this process's TCP connections: the kernel paces each by itself (SO_MAX_PACING_RATE), with or without fq,
//! and a paced one hands over short pieces (`pieces.rs`).
//!
//! Whoever runs a connection enrolls it; whoever knows what a port can take sets limits, from any task or thread. Two
//! parties do: the node at the other end, whose port receives, and this node, whose port sends. The lower limit counts. A
//! connection that neither has seen yet begins with what its peer's port keeps for new ones; one that this process makes to a
//! machine that has said nothing yet begins slowly.

use super::pieces::Pieces;
use super::stream::{Paced, Stream};
use crate::os::{card, interface};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

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
    /// When it was enrolled, while the receiver has not seen it: its limit is that of new connections.
    new_since: Option<Instant>,
    /// What the kernel was told last.
    told: Option<u64>,
    /// What may be unsent in the kernel while it is not limited, in bytes; 0 is the machine's own limit.
    unsent_free: libc::c_int,
}

static IS_ENABLED: AtomicBool = AtomicBool::new(false);
static MARK: AtomicU8 = AtomicU8::new(MARK_DEFAULT);
static ENROLLED: Mutex<BTreeMap<Ends, Entry>> = Mutex::new(BTreeMap::new());
/// What a new connection to a machine begins with, in bytes of payload a second; `None` is as much as it likes. What a machine
/// that is missing would say is not known yet.
static BEGIN: Mutex<BTreeMap<IpAddr, Option<u64>>> = Mutex::new(BTreeMap::new());

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

/// The same for a connection that this process makes. What it sends before the peer has said what its port takes would fill the
/// port's queue for as long: it begins slowly until the peer is heard, or for half a second.
pub fn enroll_dialed(stream: Stream) -> Stream {
    let stream = enroll(stream);
    if let (Stream::Paced(paced), Ok(runtime)) = (&stream, Handle::try_current()) {
        let ends = paced.enrolled.ends;
        if begin_unheard(ends) {
            // One that does not answer at all holds up nobody for longer.
            runtime.spawn(async move {
                tokio::time::sleep(NEW_FOR).await;
                heard(ends.1.ip());
            });
        }
    }
    stream
}

/// Limits a connection, if its peer has not been heard; whether it does.
fn begin_unheard(ends: Ends) -> bool {
    let mut all = enrolled();
    if begin().contains_key(&ends.1.ip()) {
        return false;
    }
    // What is said of this very connection counts.
    let new = all.get_mut(&ends).filter(|entry| entry.new_since.is_some());
    new.map(|entry| entry.begin(Some(UNHEARD_RATE))).is_some()
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
    let unsent_free = unsent_on(rate_of_link(ends.0.ip()));
    // A socket whose connection has just ended.
    let _ = keep_unsent(socket.as_fd(), unsent_free);
    let entry = Entry {
        socket,
        pieces: pieces.clone(),
        receiver: None,
        sender: None,
        new_since: Some(Instant::now()),
        told: None,
        unsent_free,
    };
    let mut all = enrolled();
    let entry = all.entry(ends).insert_entry(entry).into_mut();
    entry.begin(begin().get(&ends.1.ip()).copied().flatten());
    Enrolled { ends, pieces }
}

/// The rate of the card with this address, in bits a second, where its driver knows it.
fn rate_of_link(address: IpAddr) -> Option<u64> {
    let card = card::with_address(address).ok().flatten()?;
    interface::bits_per_s(&card.name)
}

/// What may be unsent in the kernel on a link of this rate: what was handed over before a limit came leaves in long bursts.
fn unsent_on(bits_per_s: Option<u64>) -> libc::c_int {
    let bytes = bits_per_s.map_or(0.0, |rate| rate as f64 / 8.0 * UNSENT_FREE_S);
    if bytes > 0.0 { (bytes as libc::c_int).max(UNSENT_BYTES_MAX) } else { 0 }
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

/// Sets or lifts what connections to a machine are limited to that it has not seen yet. It counts until [`limit`] is called
/// for a connection, or for half a second: what the machine has not seen by then it does not look for.
pub fn limit_new(peer: IpAddr, rate: Option<u64>) {
    let mut all = enrolled();
    begin().insert(peer, rate);
    begin_all(&mut all, peer, rate);
}

/// A machine has been heard, or will not be: unless it has said something of new connections, they are free.
pub fn heard(peer: IpAddr) {
    let mut all = enrolled();
    let is_known = begin().contains_key(&peer);
    if !is_known {
        begin().insert(peer, None);
        begin_all(&mut all, peer, None);
    }
}

fn begin_all(all: &mut BTreeMap<Ends, Entry>, peer: IpAddr, rate: Option<u64>) {
    let theirs = all.iter_mut().filter(|(ends, _)| ends.1.ip() == peer);
    for (_, entry) in theirs {
        match entry.new_since {
            Some(since) if since.elapsed() < NEW_FOR => entry.begin(rate),
            Some(_) => entry.limit(Port::Receiver, None),
            None => {}
        }
    }
}

/// What a machine has said of new connections is not known any more.
pub fn forget(peer: IpAddr) {
    begin().remove(&peer);
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
            Port::Receiver => (self.receiver, self.new_since) = (rate, None),
            Port::Sender => self.sender = rate,
        }
        self.tell();
    }

    /// Until the receiver has seen it.
    fn begin(&mut self, rate: Option<u64>) {
        self.receiver = rate;
        self.tell();
    }

    fn tell(&mut self) {
        let lower = self.receiver.into_iter().chain(self.sender).min();
        if lower == self.told {
            return;
        }
        match tell(self.socket.as_fd(), lower, self.unsent_free) {
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
fn tell(socket: BorrowedFd<'_>, rate: Option<u64>, unsent_free: libc::c_int) -> io::Result<usize> {
    let bytes_per_s: libc::c_ulong = rate.map_or(libc::c_ulong::MAX, |rate| {
        libc::c_ulong::try_from(rate.max(RATE_MIN)).unwrap_or(libc::c_ulong::MAX)
    });
    set(socket, (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE), bytes_per_s)?;
    // What has been handed over cannot be cut up any more, and goes at the rate of now.
    keep_unsent(socket, if rate.is_some() { UNSENT_BYTES_MAX } else { unsent_free })?;
    segment_bytes(socket)
}

/// Limits what the kernel takes before it has sent it. Zero is the machine's own limit.
fn keep_unsent(socket: BorrowedFd<'_>, bytes: libc::c_int) -> io::Result<()> {
    set(socket, (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT), bytes)
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

/// Has a socket count as readable when so many bytes are there, and no sooner.
pub(super) fn set_low_water(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(socket, (libc::SOL_SOCKET, libc::SO_RCVLOWAT), bytes)
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

/// Locked after those that are enrolled.
fn begin() -> MutexGuard<'static, BTreeMap<IpAddr, Option<u64>>> {
    BEGIN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Class selector 1 (RFC 8622 calls it the old mark of less than best effort), which switches with priorities know.
pub const MARK_DEFAULT: u8 = 8;
/// TC_PRIO_BULK.
const PRIORITY_BULK: libc::c_int = 2;
/// The lowest rate, in bytes a second: heartbeats pass.
const RATE_MIN: u64 = 16 << 10;
/// What a paced connection may have in the kernel without having sent it.
const UNSENT_BYTES_MAX: libc::c_int = 64 << 10;
/// The same while it is not limited, as a time of the whole link: then it is sent soon after a limit comes.
const UNSENT_FREE_S: f64 = 0.005;
/// With what a connection to a machine begins that has not been heard, in bytes of payload a second: the news take some round trips.
const UNHEARD_RATE: u64 = 256 << 10;
/// By then a connection was listed, if the receiver takes it for bulk at all.
const NEW_FOR: Duration = Duration::from_millis(500);

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

    #[test]
    fn only_a_shared_wire_waits_for_more_than_a_frame_and_only_of_large_payloads() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        let (client, server) = pair();
        server.set_nonblocking(true).unwrap();
        let wakes = |stream: Stream| [1 << 20, 1448].map(|bytes| stream.worth_waking_for(bytes));
        assert_eq!(wakes(paced(client, 1_000_000)), [16 << 10, 1]);
        let plain = tokio::net::TcpStream::from_std(server).unwrap();
        assert_eq!(wakes(Stream::Tcp(plain)), [1, 1]);
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

    fn unsent_of(stream: &TcpStream) -> libc::c_int {
        let (mut bytes, mut length) = (0, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the kernel writes at most `length` bytes to `bytes`, which lives here.
        let done = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_NOTSENT_LOWAT,
                (&raw mut bytes).cast(),
                &raw mut length,
            )
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        bytes
    }

    /// Whoever joined while messages flowed filled the queue until the receiver had seen it.
    #[test]
    fn a_connection_begins_with_what_is_kept_for_new_ones() {
        let (client, server) = pair();
        let peer: IpAddr = [10, 9, 7, 6].into();
        let ends = |port| ((([10, 9, 7, 8], port).into()), (peer, 5640).into());
        let before = admit(client.try_clone().unwrap().into(), ends(1));
        assert_eq!(rate_of(&client), u64::MAX);
        limit_new(peer, Some(300_000));
        let after = admit(server.try_clone().unwrap().into(), ends(2));
        assert_eq!((rate_of(&client), rate_of(&server)), (300_000, 300_000));
        // What the receiver says of one that it has seen counts.
        limit(before.ends(), Port::Receiver, Some(4_000_000));
        limit_new(peer, Some(200_000));
        assert_eq!((rate_of(&client), rate_of(&server)), (4_000_000, 200_000));
        limit_new(peer, None);
        assert_eq!((rate_of(&client), rate_of(&server)), (4_000_000, u64::MAX));
        limit(before.ends(), Port::Receiver, None);
        limit_new(peer, Some(200_000));
        assert_eq!(rate_of(&client), u64::MAX, "it has been seen, and is free");
        limit_new(peer, None);
        drop(after);
    }

    /// A process that had just begun to write filled the queue of the port, and all that went through it was lost.
    #[test]
    fn a_connection_to_a_machine_that_was_not_heard_begins_slowly() {
        let (client, server) = pair();
        let peer: IpAddr = [10, 9, 3, 6].into();
        let ends = |port| ((([10, 9, 3, 8], port).into()), (peer, 5640).into());
        let first = admit(client.try_clone().unwrap().into(), ends(1));
        assert!(begin_unheard(first.ends()));
        assert_eq!(rate_of(&client), UNHEARD_RATE);
        assert_eq!(first.pieces(), Some(segment_bytes(client.as_fd()).unwrap()), "one at a time");
        limit_new(peer, None);
        assert_eq!(rate_of(&client), u64::MAX);
        // It has been heard.
        let second = admit(server.try_clone().unwrap().into(), ends(2));
        assert!(!begin_unheard(second.ends()));
        assert_eq!(rate_of(&server), u64::MAX);
        forget(peer);
        assert!(begin_unheard(second.ends()));
        heard(peer);
        assert_eq!(rate_of(&server), u64::MAX);
        forget(peer);
        assert!(begin_unheard(second.ends()));
        // Its port is shared, whatever a second node there does not say.
        limit_new(peer, Some(300_000));
        heard(peer);
        assert_eq!(rate_of(&server), 300_000);
        forget(peer);
        limit(second.ends(), Port::Receiver, Some(4_000_000));
        assert!(!begin_unheard(second.ends()), "it has been seen");
        assert_eq!(rate_of(&server), 4_000_000);
    }

    /// A target's connections at a port that the receiver does not take for bulk's would be slow for as long as they last.
    #[test]
    fn a_connection_that_the_receiver_does_not_see_is_not_new_for_ever() {
        let (client, _server) = pair();
        let peer: IpAddr = [10, 9, 4, 6].into();
        let guard = admit(
            client.try_clone().unwrap().into(),
            (([10, 9, 4, 8], 1).into(), (peer, 2).into()),
        );
        limit_new(peer, Some(300_000));
        assert_eq!(rate_of(&client), 300_000);
        let long_ago = Instant::now().checked_sub(2 * NEW_FOR);
        enrolled().get_mut(&guard.ends()).unwrap().new_since = long_ago;
        limit_new(peer, Some(300_000));
        assert_eq!(rate_of(&client), u64::MAX);
        limit_new(peer, None);
    }

    /// A megabyte that was handed over before the first message left in bursts of nine frames for half a second.
    #[test]
    fn little_is_unsent_on_a_slow_link_even_without_a_limit() {
        assert_eq!(unsent_on(None), 0);
        assert_eq!(unsent_on(Some(100_000_000)), 64 << 10);
        assert_eq!(unsent_on(Some(1_000_000_000)), 625_000);
        assert_eq!(unsent_on(Some(u64::MAX)), libc::c_int::MAX);
        let (client, _server) = pair();
        let ends = (([10, 9, 5, 8], 1).into(), ([10, 9, 5, 6], 2).into());
        let guard = admit(client.try_clone().unwrap().into(), ends);
        enrolled().get_mut(&ends).unwrap().unsent_free = 500_000;
        limit(ends, Port::Receiver, Some(1_000_000));
        assert_eq!(unsent_of(&client), 64 << 10);
        limit(ends, Port::Receiver, None);
        assert_eq!(unsent_of(&client), 500_000);
        drop(guard);
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
