//! How a paced connection hands its bytes to the kernel: in pieces of a few whole segments, each closed with MSG_EOR.
//!
//! The kernel's pacing spaces what it calls packets, and where the round trip is short these are up to 64 KiB long: a burst of
//! 44 frames, which fills a switch's queue however low the rate is. What MSG_EOR has closed is not joined with what follows.
//! So a connection of 30 Mbit/s sends one frame each 0.4 ms; that needs no privilege and no setting of the machine.

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

impl Pieces {
    /// For a connection that may send so many bytes a second, whose segments are this long.
    pub fn set(&self, rate: Option<u64>, segment_bytes: usize) {
        let bytes = rate.map_or(0, |rate| {
            let segments = (rate as f64 * AT_ONCE_S) as usize / segment_bytes.max(1);
            segments.clamp(1, SEGMENTS_MAX) * segment_bytes.max(1)
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
const SEGMENTS_MAX: usize = 40;
/// Bytes that are handed over together.
const TOGETHER_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_connection_sends_single_segments() {
        let pieces = Pieces::default();
        assert_eq!(pieces.bytes(), None);
        for (rate, segments) in [(1_000, 1), (4_000_000, 1), (116_000_000, 4), (u64::MAX, 40)] {
            pieces.set(Some(rate), 1448);
            assert_eq!(pieces.bytes(), Some(segments * 1448), "{rate}");
        }
        pieces.set(None, 1448);
        assert_eq!(pieces.bytes(), None);
        assert_eq!((together(1448) % 1448, together(100_000)), (0, 100_000));
    }
}
