//! One socket, and the ring of memory through which the kernel hands over what has come.
//!
//! A slot belongs to the kernel until it sets a bit in the slot's first word, and to us until we clear the word. The layout
//! is that of version 2 in the kernel's `Documentation/networking/packet_mmap.rst`.

use super::FRAME_TYPE;
use super::interface::{FRAME_BYTES_MAX, Interface};
use super::shares::Shares;
use crate::lane::Sent;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A socket bound to an interface.
#[derive(Debug)]
pub(super) struct Port {
    pub socket: Arc<OwnedFd>,
    pub index: u32,
    /// What frames for us begin with.
    pub number: u32,
    /// What its peers may send.
    pub shares: Shares,
    ring: Ring,
}

/// How frames reach a peer.
#[derive(Clone, Debug)]
pub(super) struct Way {
    socket: Arc<OwnedFd>,
    address: libc::sockaddr_ll,
}

impl Way {
    /// Sends a frame, without waiting.
    #[inline]
    pub fn send(&self, frame: &[u8]) -> Sent {
        let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel reads the frame and the address, which live here.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
                (&raw const self.address).cast(),
                bytes,
            )
        };
        if sent >= 0 { Sent::Yes } else { of_error(&io::Error::last_os_error()) }
    }
}

/// Frames that have left and were not sent yet by the card fill the socket's memory. That passes, and is no reason to believe
/// that the card is dead.
fn of_error(error: &io::Error) -> Sent {
    if error.kind() == io::ErrorKind::WouldBlock { Sent::Busy } else { Sent::No }
}

impl Port {
    pub fn open(interface: &Interface, number: u32) -> io::Result<Port> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // Without a type it receives nothing: it is bound when everything is set.
        // SAFETY: a new descriptor, or an error.
        let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it is open, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        only_for(&socket, number, 0)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V2)?;
        // Kernels before 4.20 show us what we send; it has not our number.
        let _ = set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1_i32);
        set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1_i32)?;
        let ring = Ring::new(&socket, interface)?;
        let (socket, shares) = (Arc::new(socket), Shares::default());
        let port = Port { socket, index: interface.index, number, shares, ring };
        let address = port.address([0; 6]);
        let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel reads an address, which lives here.
        let bound =
            unsafe { libc::bind(port.socket.as_raw_fd(), (&raw const address).cast(), bytes) };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(port) }
    }

    /// To whoever has this hardware address.
    pub fn way(&self, to: [u8; 6]) -> Way {
        Way { socket: self.socket.clone(), address: self.address(to) }
    }

    /// Whether a frame has come.
    #[inline]
    pub fn has_next(&self) -> bool {
        self.ring.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Lends the next one, if it has come.
    #[inline]
    pub fn next(&mut self, take: &mut impl FnMut(&[u8])) -> bool {
        if !self.has_next() {
            return false;
        }
        take(self.ring.frame().unwrap_or_default());
        self.ring.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.ring.advance();
        true
    }

    /// Frames that found no slot, since this was asked last.
    pub fn dropped(&self) -> u64 {
        let mut counts = [0_u32; 2];
        let mut bytes = size_of_val(&counts) as libc::socklen_t;
        let (level, what) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        // SAFETY: the kernel writes two numbers, for which there is room.
        let done = unsafe {
            let (to, bytes) = ((&raw mut counts).cast(), &raw mut bytes);
            libc::getsockopt(self.socket.as_raw_fd(), level, what, to, bytes)
        };
        if done < 0 { 0 } else { counts[1].into() }
    }

    /// An interface that went down leaves an error behind, which would wake every sleeper.
    pub fn forget_error(&self) {
        let _ = rustix::net::sockopt::socket_error(&self.socket);
    }

    #[cfg(test)]
    pub fn lose(&self, permille: u32) -> io::Result<()> {
        only_for(&self.socket, self.number, permille)
    }

    fn address(&self, to: [u8; 6]) -> libc::sockaddr_ll {
        let mut address = [0; 8];
        address[..6].copy_from_slice(&to);
        libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: FRAME_TYPE.to_be(),
            sll_ifindex: self.index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: address,
        }
    }
}

/// Has the kernel drop all frames that do not begin with this number, and so many of a thousand of those that do.
fn only_for(socket: &OwnedFd, number: u32, lost_permille: u32) -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let mut program = [
        step(load, 0, 0, 0),
        // It reads numbers of the network's order.
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 3, number.swap_bytes()),
        step(load, 0, 0, RANDOM),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, u32::MAX / 1000 * lost_permille),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn set<T>(socket: &OwnedFd, level: i32, what: i32, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads the value, and what it points to, which live in the caller.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, what, (&raw const *value).cast(), bytes)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Memory of the kernel, mapped.
#[derive(Debug)]
struct Ring {
    memory: NonNull<u8>,
    bytes: usize,
    slot_bytes: usize,
    slots_of_block: usize,
    slots: usize,
    /// Which slot is next, and where it begins.
    at: usize,
    next: NonNull<u8>,
}

// SAFETY: the mapping belongs to this value alone, and is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    fn new(socket: &OwnedFd, interface: &Interface) -> io::Result<Ring> {
        let payload = interface.mtu.min(FRAME_BYTES_MAX) as usize;
        let slot_bytes = (HEADER_BYTES_MAX + payload).next_multiple_of(libc::TPACKET_ALIGNMENT);
        let slots_of_block = BLOCK_BYTES / slot_bytes;
        let blocks = SLOTS_MIN.div_ceil(slots_of_block);
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: (blocks * slots_of_block) as u32,
        };
        set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let bytes = blocks * BLOCK_BYTES;
        let (access, how) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at any place, of memory that the kernel has just made for this.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, how, socket.as_raw_fd(), 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let (slots, at, next) = (blocks * slots_of_block, 0, memory);
        Ok(Ring { memory, bytes, slot_bytes, slots_of_block, slots, at, next })
    }

    /// To the slot behind. No slot lies in two blocks.
    #[inline]
    fn advance(&mut self) {
        self.at = if self.at + 1 == self.slots { 0 } else { self.at + 1 };
        let (block, within) = (self.at / self.slots_of_block, self.at % self.slots_of_block);
        // SAFETY: `at` is below the number of slots, so this lies within the mapping.
        self.next = unsafe { self.memory.add(block * BLOCK_BYTES + within * self.slot_bytes) };
    }

    /// Whose the next slot is.
    #[inline]
    fn status(&self) -> &AtomicU32 {
        // SAFETY: the first word of a slot, which is aligned, mapped as long as `self` lives, and which both sides use as
        // an atomic.
        unsafe { self.next.cast::<AtomicU32>().as_ref() }
    }

    /// The frame of the next slot, which is ours; none where it was too long for the slot.
    #[inline]
    fn frame(&self) -> Option<&[u8]> {
        let slot = self.next;
        // SAFETY: the slot begins with this header, which the kernel wrote before it gave us the slot.
        let header = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        let (begin, bytes) = (usize::from(header.tp_net), header.tp_snaplen as usize);
        if header.tp_len != header.tp_snaplen || begin + bytes > self.slot_bytes {
            return None;
        }
        // SAFETY: it lies within the slot, and nobody writes to it until we give the slot back.
        Some(unsafe { std::slice::from_raw_parts(slot.as_ptr().add(begin), bytes) })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which nothing refers any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

/// Frames that may wait to be taken: what all peers may have under way, see `shares`.
pub(super) const SLOTS_MIN: usize = 1024;
/// What the kernel allocates at once.
const BLOCK_BYTES: usize = 64 << 10;
/// Before the frame in its slot: the kernel's header, an address, and what it leaves for a link's header.
const HEADER_BYTES_MAX: usize = 128;
const PACKET_IGNORE_OUTGOING: i32 = 23;
/// Where a filter finds a random number: SKF_AD_RANDOM.
const RANDOM: u32 = 0xffff_f000 + 56;
