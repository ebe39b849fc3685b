//! How two processes get to know each other: over a Unix socket, each sends a card and two descriptors, its shared
//! memory and its doorbell.

use super::arena::ArenaPlan;
use crate::os::credentials;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// What a process says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Card {
    /// Of its memory.
    pub plan: ArenaPlan,
    /// Where its heap lies, in its own addresses.
    pub heap_address: u64,
    /// Which of its inboxes the other may write to.
    pub inbox: u32,
    /// It can make other processes pass a barrier, so that they need none of their own.
    pub has_barrier: bool,
    /// A number of its memory, and its value: whether it can be read is tried out.
    pub probe: (u64, u64),
}

/// The other side.
pub(super) struct Met {
    pub card: Card,
    /// None for a process of another pid namespace.
    pub pid: Option<i32>,
    pub memory: OwnedFd,
    pub bell: OwnedFd,
}

/// Sends our card and takes the peer's. Peers of other users are refused.
pub(super) fn exchange(
    stream: &UnixStream,
    ours: &Card,
    memory: BorrowedFd<'_>,
    bell: BorrowedFd<'_>,
) -> io::Result<Met> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    offer(stream, ours, memory, bell)?;
    let (bytes, fds) = receive(stream)?;
    met(stream, &bytes, fds)
}

/// Sends our card, unless the peer belongs to another user.
pub(super) fn offer(
    stream: &UnixStream,
    ours: &Card,
    memory: BorrowedFd<'_>,
    bell: BorrowedFd<'_>,
) -> io::Result<()> {
    if credentials::peer(stream)?.uid != rustix::process::geteuid().as_raw() {
        return Err(refused("peer belongs to another user"));
    }
    send(stream, &ours.encode(), &[memory, bell])
}

/// Takes the peer's card from a socket that does not block, if it has come. It comes as a whole.
pub(super) fn accepted(stream: &UnixStream) -> io::Result<Option<Met>> {
    match receive(stream) {
        Ok((bytes, fds)) => met(stream, &bytes, fds).map(Some),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn met(stream: &UnixStream, bytes: &[u8; CARD_BYTES], fds: Vec<OwnedFd>) -> io::Result<Met> {
    let pid = credentials::peer(stream)?.pid;
    let card = Card::decode(bytes).ok_or_else(|| refused(stranger(bytes)))?;
    let [memory, bell] =
        <[OwnedFd; 2]>::try_from(fds).map_err(|_| refused("peer did not hand over its memory"))?;
    Ok(Met { card, pid, memory, bell })
}

/// Whether a meeting has ended before the peer had said who it is.
pub(super) fn has_said_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// Why a card is none of a peer.
fn stranger(card: &[u8; CARD_BYTES]) -> &'static str {
    let is_like = |at: usize| card[at] == MAGIC[at];
    if (0..MAGIC.len()).all(|at| is_like(at) != (at == ORDER)) {
        "peer has memory of the other byte order, which cannot be shared: meet it over TCP"
    } else {
        "peer is no engine of this version"
    }
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// A wait on a socket that has a time limit is interrupted whenever its process is stopped and goes on.
fn patiently<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    let begun = crate::os::clock::monotonic();
    loop {
        match call() {
            Err(Errno::INTR) if begun.elapsed() < PATIENCE => {}
            done => return Ok(done?),
        }
    }
}

/// Sends bytes and at most [`FDS_MAX`] descriptors.
pub(super) fn send(stream: &UnixStream, card: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(fds));
    let flags = SendFlags::NOSIGNAL;
    let slices = &[IoSlice::new(card)];
    let sent = patiently(|| rustix::net::sendmsg(stream, slices, &mut control, flags))?;
    if sent == card.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives so many bytes and the descriptors that came with them.
pub(super) fn receive<const BYTES: usize>(
    stream: &UnixStream,
) -> io::Result<([u8; BYTES], Vec<OwnedFd>)> {
    let mut card = [0; BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let slices = &mut [IoSliceMut::new(&mut card)];
    let mut receive = || rustix::net::recvmsg(stream.as_fd(), slices, &mut control, flags);
    let received = patiently(|| receive().map(|message| message.bytes))?;
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds: Vec<OwnedFd> = fds.flatten().collect();
    if received < BYTES {
        let text = "peer went away before it had said who it is";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    Ok((card, fds))
}

/// Rings and rows are numbers as they lie in memory: the last but one byte tells their order.
const MAGIC: &[u8; 8] = if cfg!(target_endian = "big") { b"uzura\0B\x02" } else { b"uzura\0L\x02" };
const ORDER: usize = 6;
const CARD_BYTES: usize = 8 + 8 + 8 + 4 + 4 + 8 + 16;
/// Descriptors of one message at most.
pub(super) const FDS_MAX: usize = 3;
/// A process that is there answers at once.
const PATIENCE: Duration = Duration::from_secs(5);

impl Card {
    fn encode(&self) -> [u8; CARD_BYTES] {
        let mut bytes = [0; CARD_BYTES];
        let fields = [
            &MAGIC[..],
            &self.plan.heap_bytes.to_le_bytes(),
            &self.heap_address.to_le_bytes(),
            &self.plan.peers_max.to_le_bytes(),
            &self.inbox.to_le_bytes(),
            &u64::from(self.has_barrier).to_le_bytes(),
            &self.probe.0.to_le_bytes(),
            &self.probe.1.to_le_bytes(),
        ];
        let mut rest = &mut bytes[..];
        for field in fields {
            let (room, after) = rest.split_at_mut(field.len());
            room.copy_from_slice(field);
            rest = after;
        }
        bytes
    }

    fn decode(bytes: &[u8; CARD_BYTES]) -> Option<Card> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (heap_bytes, rest) = rest.split_first_chunk()?;
        let (heap_address, rest) = rest.split_first_chunk()?;
        let (peers_max, rest) = rest.split_first_chunk()?;
        let (inbox, rest) = rest.split_first_chunk()?;
        let (barrier, rest) = rest.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk()?;
        let (value, _) = rest.split_first_chunk()?;
        let (peers_max, inbox) = (u32::from_le_bytes(*peers_max), u32::from_le_bytes(*inbox));
        let heap_bytes = u64::from_le_bytes(*heap_bytes);
        (magic == MAGIC && inbox < peers_max).then_some(Card {
            plan: ArenaPlan { peers_max, heap_bytes },
            heap_address: u64::from_le_bytes(*heap_address),
            inbox,
            has_barrier: u64::from_le_bytes(*barrier) == 1,
            probe: (u64::from_le_bytes(*address), u64::from_le_bytes(*value)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_comes_back_as_it_went_and_a_stranger_s_does_not() {
        let plan = ArenaPlan { peers_max: 9, heap_bytes: 1 << 33 };
        let card =
            Card { plan, heap_address: 77, inbox: 8, has_barrier: true, probe: (1 << 40, 3) };
        let mut bytes = card.encode();
        assert_eq!(Card::decode(&bytes), Some(card));
        bytes[0] ^= 1;
        assert_eq!(Card::decode(&bytes), None);
        assert!(stranger(&bytes).contains("version"));
        bytes[0] ^= 1;
        bytes[ORDER] ^= b'L' ^ b'B';
        assert_eq!(Card::decode(&bytes), None);
        assert!(stranger(&bytes).contains("byte order"));
    }
}
