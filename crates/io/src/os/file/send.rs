//! Output that has ranges of files among it, on its way into a socket.

use super::Inner;
use super::range::{self, append_range, send_range};
use covey_wire::{Loan, Piece, Segments};
use std::any::Any;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;

/// Pieces per call: those of more replies than leave together.
const PIECES_MAX: usize = 256;
const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

/// Sends what the socket takes of the front of `output`, with one system call, without waiting: a range with
/// sendfile, or all before the next such range. What is mapped is copied from there.
pub(crate) fn send_some(socket: BorrowedFd<'_>, output: &Segments) -> io::Result<usize> {
    let mut parts = [NO_PART; PIECES_MAX];
    let (mut count, mut flags) = (0, FLAGS);
    for (part, piece) in parts.iter_mut().zip(output.pieces()) {
        *part = match piece {
            Piece::Memory(bytes) => part_of(bytes),
            Piece::Loan(loan) => match mapped(loan) {
                Some(mapped) => mapped,
                None if count == 0 => return send_copy(socket, loan),
                None => break,
            },
            Piece::File(range) => match range::mapped(range) {
                Some(at) => libc::iovec { iov_base: at.cast_mut(), iov_len: range.length },
                None if count == 0 => return send_range(socket, range),
                None => {
                    flags |= libc::MSG_MORE;
                    break;
                }
            },
        };
        count += 1;
    }
    match (send(socket, &mut parts[..count], flags), output.pieces().next()) {
        // A mapped file has lost what was asked of it. What comes before that has been sent by now, or
        // is sent by another call: this one is about the first piece only.
        (Err(error), Some(first)) if error.raw_os_error() == Some(libc::EFAULT) => match first {
            Piece::Loan(loan) => send_copy(socket, loan),
            Piece::File(range) => send_range(socket, range),
            Piece::Memory(_) => send(socket, &mut parts[..1], FLAGS),
        },
        (sent, _) => sent,
    }
}

/// What `output` begins with in memory, at most so many bytes of it.
pub(crate) fn front(output: &Segments, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    for piece in output.pieces() {
        let room = bytes_max - out.len();
        match piece {
            _ if room == 0 => break,
            Piece::Memory(bytes) => out.extend_from_slice(&bytes[..bytes.len().min(room)]),
            Piece::Loan(loan) => {
                loan.copy(&mut out).map_err(|blame| io::Error::other(blame.to_string()))?;
            }
            Piece::File(range) => append_range(range, room, &mut out)?,
        }
        out.truncate(bytes_max);
    }
    Ok(out)
}

/// Sends what is lent by way of memory.
fn send_copy(socket: BorrowedFd<'_>, loan: &Loan) -> io::Result<usize> {
    let mut bytes = Vec::new();
    loan.copy(&mut bytes).map_err(|blame| io::Error::other(blame.to_string()))?;
    send(socket, &mut [part_of(&bytes)], FLAGS)
}

fn mapped(loan: &Loan) -> Option<libc::iovec> {
    let lender: &dyn Any = &*loan.lender;
    let at = lender.downcast_ref::<Inner>()?.mapped(loan.offset, loan.length)?;
    Some(libc::iovec { iov_base: at.cast_mut(), iov_len: loan.length })
}

fn part_of(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn send(socket: BorrowedFd<'_>, parts: &mut [libc::iovec], flags: i32) -> io::Result<usize> {
    // SAFETY: a msghdr is plain data, for which zeros are good.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: the parts are memory of the output, borrowed until after the call, or lie in mappings of files that its
    // loans hold; the kernel only reads there, and reports what is not there any more.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

const NO_PART: libc::iovec = libc::iovec { iov_base: null_mut(), iov_len: 0 };
