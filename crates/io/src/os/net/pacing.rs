//! The rates of this process's TCP connections: the kernel paces each by itself (SO_MAX_PACING_RATE), with or without fq,
//! and a paced one hands over short pieces (`pieces.rs`).
//!
//! Whoever runs a connection enrolls it; whoever knows what a port can take sets limits, from any task or thread. Two
//! parties do: the node at the other end, whose port receives, and this node, whose port sends. The lower limit counts. A
//! connection that neither has seen yet begins with what its peer's port keeps for new ones; one that this process makes to a
//! machine that has said nothing yet begins slowly.

use super::pieces::{Frames, Pieces};
use super::stream::{Paced, Stream};
use crate::os::{card, interface};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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

/// How fast a connection may send, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes of payload a second, if frames are full.
    pub rate: u64,
    /// In frames of half the length, which take as much of the wire: messages wait less for each.
    pub in_half: bool,
}

impl Limit {
    /// What obeys both.
    fn and(self, other: Limit) -> Limit {
        Limit { rate: self.rate.min(other.rate), in_half: self.in_half || other.in_half }
    }
}

/// In full frames.
impl From<u64> for Limit {
    fn from(rate: u64) -> Limit {
        Limit { rate, in_half: false }
    }
}

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
    /// Limits of the receiver's port and of the sender's.
    receiver: Option<Limit>,
    sender: Option<Limit>,
    /// When it was enrolled, while the receiver has not seen it: its limit is that of new connections.
    new_since: Option<Instant>,
    /// What the kernel was told last.
    told: Option<Limit>,
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
            let pieces = Arc::downgrade(&paced.enrolled.pieces);
            runtime.spawn(async move {
                tokio::time::sleep(NEW_FOR).await;
                not_heard(ends, &pieces);
            });
        }
    }
    stream
}

/// The peer of a connection has said nothing for long. Where the connection has ended, what is known of the peer is not its business.
fn not_heard(ends: Ends, pieces: &Weak<Pieces>) {
    let is_this = |entry: &Entry| std::ptr::eq(Arc::as_ptr(&entry.pieces), pieces.as_ptr());
    let is_here = enrolled().get(&ends).is_some_and(is_this);
    if is_here {
        heard(ends.1.ip());
    }
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

/// Sets or lifts a limit. A connection that is not enrolled is passed over.
pub fn limit(ends: Ends, port: Port, limit: Option<Limit>) {
    if let Some(entry) = enrolled().get_mut(&ends) {
        entry.limit(port, limit);
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
    enrolled().iter().map(|(ends, entry)| (*ends, entry.told.map(|limit| limit.rate))).collect()
}

impl Entry {
    fn limit(&mut self, port: Port, limit: Option<Limit>) {
        match port {
            Port::Receiver => (self.receiver, self.new_since) = (limit, None),
            Port::Sender => self.sender = limit,
        }
        self.tell();
    }

    /// Until the receiver has seen it.
    fn begin(&mut self, rate: Option<u64>) {
        self.receiver = rate.map(Limit::from);
        self.tell();
    }

    fn tell(&mut self) {
        let lower = self.receiver.into_iter().chain(self.sender).reduce(Limit::and);
        if lower == self.told {
            return;
        }
        match tell(self.socket.as_fd(), lower, self.unsent_free) {
            Ok(frames) => {
                self.told = lower;
                self.pieces.set(lower.map(|limit| limit.rate), frames);
            }
            // A socket whose connection has just ended.
            Err(error) => tracing::debug!("a connection is not paced: {error}"),
        }
    }
}

/// Tells the kernel how fast a connection may send; `None` lifts it. Answers in what frames.
fn tell(
    socket: BorrowedFd<'_>,
    limit: Option<Limit>,
    unsent_free: libc::c_int,
) -> io::Result<Frames> {
    let frames = Frames::of(segment_bytes(socket)?, limit.is_some_and(|limit| limit.in_half));
    let bytes_per_s: libc::c_ulong = limit.map_or(libc::c_ulong::MAX, |limit| {
        let rate = frames.payload(limit.rate);
        libc::c_ulong::try_from(rate.max(RATE_MIN)).unwrap_or(libc::c_ulong::MAX)
    });
    set(socket, (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE), bytes_per_s)?;
    // What has been handed over cannot be cut up any more, and goes at the rate of now.
    keep_unsent(socket, if limit.is_some() { UNSENT_BYTES_MAX } else { unsent_free })?;
    Ok(frames)
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

/// An option that is a whole number, of which any bytes are a value.
fn get<T: Copy + From<u8> + Into<i128>>(
    socket: BorrowedFd<'_>,
    (level, name): (i32, i32),
) -> io::Result<T> {
    let (mut value, mut length) = (T::from(0), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `length` bytes to `value`, which lives here.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

fn segment_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let bytes: libc::c_int = get(socket, (libc::IPPROTO_TCP, libc::TCP_MAXSEG))?;
    Ok(bytes.max(1) as usize)
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
mod tests;
