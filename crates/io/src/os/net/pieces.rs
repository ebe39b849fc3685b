//! How a paced connection hands its bytes to the kernel: in pieces of a few whole segments, each closed with MSG_EOR.
//!
//! The kernel's pacing spaces what it calls packets, and where the round trip is short these are up to 64 KiB long: a burst of
//! 44 frames, which fills a switch's queue however low the rate is. What MSG_EOR has closed is not joined with what follows.
//! So a connection of 30 Mbit/s sends one frame each 0.4 ms; that needs no privilege and no setting of the machine.
//!
//! On a slow link even one full frame is long. Who knows the port may ask for frames of half the length, as RFC 2686 does on
//! slow lines for voice.

use super::stream::poll_send_tcp;
use rustix::net::{SendFlags, send};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::net::TcpStream;

/// The length of a connection's pieces in bytes; zero where the kernel may join what it likes.
#[derive(Debug, Default)]
pub struct Pieces(AtomicUsize);

/// What a limited connection puts into one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Bytes of payload.
    bytes: usize,
    /// What the link would take at most.
    full: usize,
}

impl Frames {
    /// Of a connection with such segments: whole ones, or halves.
    pub fn of(segment_bytes: usize, in_half: bool) -> Frames {
        let full = segment_bytes.max(1);
        let bytes = if in_half { full.div_ceil(2).max(HALF_BYTES_MIN).min(full) } else { full };
        Frames { bytes, full }
    }

    /// The payload that takes as much of the wire as so much of it in full frames.
    pub fn payload(self, in_full: u64) -> u64 {
        if self.bytes == self.full {
            return in_full;
        }
        let part = |bytes: usize| bytes as f64 / (bytes + AROUND_BYTES) as f64;
        (in_full as f64 * part(self.bytes) / part(self.full)) as u64
    }
}

impl Pieces {
    /// For a connection that may send so many bytes a second, in such frames.
    pub fn set(&self, rate: Option<u64>, frames: Frames) {
        let bytes = rate.map_or(0, |rate| {
            // Of several halves the kernel would make full ones.
            if frames.bytes < frames.full {
                return frames.bytes;
            }
            let together = (rate as f64 * AT_ONCE_S) as usize / frames.bytes;
            together.clamp(1, FRAMES_MAX) * frames.bytes
        });
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// None where they are not limited.
    pub fn bytes(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

/// How much is worth collecting for a write in such pieces: whole ones.
pub fn together(piece: usize) -> usize {
    (TOGETHER_BYTES / piece).max(1) * piece
}

/// Writes pieces for as long as the socket takes them.
pub fn poll_write(
    stream: &TcpStream,
    context: &mut Context<'_>,
    bytes: &[u8],
    piece: usize,
) -> Poll<io::Result<usize>> {
    poll_send_tcp(stream, context, |socket| send_all(socket, bytes, piece))
}

fn send_all(socket: BorrowedFd<'_>, bytes: &[u8], piece: usize) -> io::Result<usize> {
    let flags = SendFlags::EOR | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let mut sent = 0;
    for part in bytes.chunks(piece) {
        match send(socket, part, flags) {
            Ok(count) if count == part.len() => sent += count,
            Ok(count) => return Ok(sent + count),
            Err(_) if sent > 0 => return Ok(sent),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}

/// What a connection sends at once takes it no longer than this at its rate.
const AT_ONCE_S: f64 = 0.000_05;
/// A burst of the kernel's own length.
const FRAMES_MAX: usize = 40;
/// What a frame has around its payload on the wire: headers of TCP with time stamps, of IPv4 and of Ethernet, and the gap.
const AROUND_BYTES: usize = 90;
/// Shorter frames are more headers than payload.
const HALF_BYTES_MIN: usize = 512;
/// Bytes that are handed over together.
const TOGETHER_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_connection_sends_single_segments() {
        let pieces = Pieces::default();
        assert_eq!(pieces.bytes(), None);
        let frames = Frames::of(1448, false);
        for (rate, segments) in [(1_000, 1), (4_000_000, 1), (116_000_000, 4), (u64::MAX, 40)] {
            pieces.set(Some(rate), frames);
            assert_eq!(pieces.bytes(), Some(segments * 1448), "{rate}");
        }
        pieces.set(None, frames);
        assert_eq!(pieces.bytes(), None);
        assert_eq!((together(1448) % 1448, together(100_000)), (0, 100_000));
    }

    /// At 100 Mbit/s a full frame takes 0.12 ms, and messages met three of them.
    #[test]
    fn half_frames_take_no_more_of_the_wire() {
        let bytes = |segment| Frames::of(segment, true).bytes;
        assert_eq!([0, 1, 536, 1000, 1448, 8948].map(bytes), [1, 1, 512, 512, 724, 4474]);
        let half = Frames::of(1448, true);
        let rate = half.payload(1_448_000);
        // A thousand full frames a second, or so many half ones.
        let on_wire = |payload: f64, bytes: f64| payload / bytes * (bytes + 90.0);
        let (short, full) = (on_wire(rate as f64, 724.0), on_wire(1_448_000.0, 1448.0));
        assert!((short / full - 1.0).abs() < 1e-5, "{short} {full}");
        assert_eq!(Frames::of(1448, false).payload(9), 9);
        let pieces = Pieces::default();
        for rate in [rate, 116_000_000] {
            pieces.set(Some(rate), half);
            assert_eq!(pieces.bytes(), Some(724), "{rate}: one in each");
        }
    }
}
