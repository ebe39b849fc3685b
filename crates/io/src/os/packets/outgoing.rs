//! What is still to be written to a socket, in order: bytes of ours, and memory that lies elsewhere.

use covey_wire::Span;
use std::collections::VecDeque;
use std::io;

/// So many bytes wait at most before what is to be sent is refused; one packet more may be there.
const QUEUED_BYTES_MAX: usize = 256 << 10;
/// So many pieces wait at most.
const QUEUED_PIECES_MAX: usize = 1024;
/// So many bytes are kept back at most, to leave together.
const GATHERED_BYTES_MAX: usize = 32 << 10;
/// Pieces of one write.
const PIECES: usize = 8;

#[derive(Debug)]
enum Piece {
    Bytes { bytes: Vec<u8>, at: usize },
    Span { token: u64, rest: Span },
}

#[derive(Debug)]
pub(super) struct Outgoing {
    pieces: VecDeque<Piece>,
    /// Of ours, in all pieces.
    bytes: usize,
    /// Posted memory that was written, and is not told of.
    sent: VecDeque<u64>,
    spare: Vec<u8>,
}

impl Outgoing {
    pub fn beginning_with(bytes: &[u8]) -> Outgoing {
        let pieces = VecDeque::from([Piece::Bytes { bytes: bytes.to_vec(), at: 0 }]);
        let bytes = bytes.len();
        Outgoing { pieces, bytes, sent: VecDeque::new(), spare: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.bytes >= QUEUED_BYTES_MAX || self.pieces.len() >= QUEUED_PIECES_MAX
    }

    /// Whether more would not make the write any cheaper.
    pub fn is_many(&self) -> bool {
        self.bytes >= GATHERED_BYTES_MAX
    }

    /// Appends a frame, and lends the room for its payload.
    pub fn frame(&mut self, prefix: &[u8], head: &[u8], payload: usize) -> &mut [u8] {
        if !matches!(self.pieces.back(), Some(Piece::Bytes { .. })) {
            let bytes = std::mem::take(&mut self.spare);
            self.pieces.push_back(Piece::Bytes { bytes, at: 0 });
        }
        self.bytes += prefix.len() + head.len() + payload;
        let Some(Piece::Bytes { bytes, .. }) = self.pieces.back_mut() else {
            unreachable!("the last piece is of bytes: it was just put there");
        };
        bytes.extend_from_slice(prefix);
        bytes.extend_from_slice(head);
        let begin = bytes.len();
        bytes.resize(begin + payload, 0);
        &mut bytes[begin..]
    }

    /// Appends memory that lies elsewhere.
    pub fn span(&mut self, token: u64, span: Span) {
        self.pieces.push_back(Piece::Span { token, rest: span });
    }

    /// Writes what the socket takes.
    pub fn flush(&mut self, socket: i32) -> io::Result<()> {
        while !self.pieces.is_empty() {
            let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
            let mut list = [nothing; PIECES];
            let (mut count, mut wanted) = (0, 0);
            for (piece, one) in self.pieces.iter().zip(&mut list) {
                *one = piece.rest();
                wanted += one.iov_len;
                count += 1;
            }
            match write(socket, &mut list[..count]) {
                Ok(written) => {
                    self.written(written);
                    if written < wanted {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn written(&mut self, mut count: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            let part = count.min(piece.rest().iov_len);
            count -= part;
            match piece {
                Piece::Bytes { bytes, at } => {
                    *at += part;
                    self.bytes -= part;
                    if *at < bytes.len() {
                        return;
                    }
                    bytes.clear();
                    self.spare = std::mem::take(bytes);
                }
                Piece::Span { token, rest } => {
                    rest.address += part as u64;
                    rest.bytes -= part as u64;
                    if rest.bytes > 0 {
                        return;
                    }
                    self.sent.push_back(*token);
                }
            }
            self.pieces.pop_front();
        }
    }

    pub fn has_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    pub fn next_sent(&mut self) -> Option<u64> {
        self.sent.pop_front()
    }

    /// Whether the last thing that was written is this; then it is told of here.
    pub fn take_sent(&mut self, token: u64) -> bool {
        let is_last = self.pieces.is_empty() && self.sent.back() == Some(&token);
        if is_last {
            self.sent.pop_back();
        }
        is_last
    }
}

impl Piece {
    fn rest(&self) -> libc::iovec {
        match self {
            Piece::Bytes { bytes, at } => libc::iovec {
                iov_base: bytes[*at..].as_ptr().cast_mut().cast(),
                iov_len: bytes.len() - at,
            },
            Piece::Span { rest, .. } => super::incoming::piece(*rest),
        }
    }
}

fn write(socket: i32, list: &mut [libc::iovec]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the kernel reads our bytes, which live in `self`, and posted memory, which is in use until it is told of;
    // where there is no memory it says so. A header of zeroes is one without anything.
    let count = unsafe {
        match list {
            // A packet alone: the shorter way through the kernel.
            [one] => libc::send(socket, one.iov_base, one.iov_len, flags),
            _ => {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = list.as_mut_ptr();
                message.msg_iovlen = list.len() as _;
                libc::sendmsg(socket, &raw const message, flags)
            }
        }
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
