//! What the kernel knows of a TCP connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// One end of a connection, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// How many segments it has had to send again, less those that the other end says it had
    /// already: then nothing was lost, a timer was early.
    pub retransmits: u32,
    /// How many bytes it sends in one segment.
    pub segment_bytes: u32,
    /// For how long it had something to send, in microseconds.
    pub busy_us: u64,
    /// Of these, how long the other end's receive window kept it waiting.
    pub window_limited_us: u64,
    /// Of these, how long its own send buffer was too small for more.
    pub buffer_limited_us: u64,
    /// Segments under way that the other end has not acknowledged.
    pub unacknowledged: u32,
    /// How long ago it last acknowledged anything, in milliseconds.
    pub acknowledged_before_ms: u32,
    /// Bytes that have not left at all.
    pub not_sent_bytes: u32,
    /// What the other end has room for.
    pub window_bytes: u32,
}

impl Info {
    /// Whether the other end should have acknowledged something since then. A connection of which nothing can leave, because
    /// our own interface is down, has nothing under way; but neither has one whose other end has no room.
    pub fn awaits_acknowledgement(&self) -> bool {
        let has_room = self.segment_bytes > 0 && self.window_bytes >= self.segment_bytes;
        self.unacknowledged > 0 || self.not_sent_bytes > 0 && has_room
    }
}

/// Offsets in the kernel's `tcp_info`, to which fields are only ever added.
const SEGMENT_BYTES: usize = 16;
const UNACKED: usize = 24;
const LAST_ACK_RECV: usize = 56;
const TOTAL_RETRANS: usize = 100;
pub(super) const BYTES_RECEIVED: usize = 128;
pub(super) const SEGS_OUT: usize = 136;
pub(super) const SEGS_IN: usize = 140;
const NOTSENT_BYTES: usize = 144;
const BUSY_TIME: usize = 168;
const RWND_LIMITED: usize = 176;
const SNDBUF_LIMITED: usize = 184;
pub(super) const BYTES_SENT: usize = 200;
const DSACK_DUPS: usize = 216;
const SND_WND: usize = 228;
/// Room for all of these, and more than any kernel fills.
const INFO_BYTES: usize = 512;

#[expect(clippy::host_endian_bytes, reason = "the kernel writes its own numbers")]
fn short(raw: &[u8; INFO_BYTES], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|index| raw[at + index]))
}

#[expect(clippy::host_endian_bytes, reason = "the kernel writes its own numbers")]
fn long(raw: &[u8; INFO_BYTES], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|index| raw[at + index]))
}

/// Asks for it. What an old kernel does not say is zero.
pub fn info(connection: impl AsFd) -> io::Result<Info> {
    let mut raw = [0u8; INFO_BYTES];
    let mut length = INFO_BYTES as libc::socklen_t;
    let socket = connection.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes to `raw`, which lives here.
    let done = unsafe {
        let (to, length) = ((&raw mut raw).cast(), &raw mut length);
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, to, length)
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Info {
        retransmits: short(&raw, TOTAL_RETRANS).saturating_sub(short(&raw, DSACK_DUPS)),
        segment_bytes: short(&raw, SEGMENT_BYTES),
        busy_us: long(&raw, BUSY_TIME),
        window_limited_us: long(&raw, RWND_LIMITED),
        buffer_limited_us: long(&raw, SNDBUF_LIMITED),
        unacknowledged: short(&raw, UNACKED),
        acknowledged_before_ms: short(&raw, LAST_ACK_RECV),
        not_sent_bytes: short(&raw, NOTSENT_BYTES),
        window_bytes: short(&raw, SND_WND),
    })
}
