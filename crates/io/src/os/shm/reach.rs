//! Copies between the memory of two processes by the kernel, where it is permitted.

use super::sleep;
use covey_wire::Span;
use covey_wire::transport::Refused;
use rustix::process::{Pid, PidfdFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A process whose memory is copied.
///
/// The kernel's calls for that know it by its number only, and a number is given away when its process has ended. The
/// pidfd tells: as long as it says that the process is there, the number is its.
#[derive(Debug)]
pub(super) struct Process {
    pid: i32,
    handle: OwnedFd,
}

impl Process {
    /// None for one of another pid namespace, which has no number here, and where there are no pidfds.
    pub fn open(pid: Option<i32>) -> Option<Process> {
        let number = Pid::from_raw(pid?)?;
        let handle = rustix::process::pidfd_open(number, PidfdFlags::empty()).ok()?;
        Some(Process { pid: number.as_raw_nonzero().get(), handle })
    }

    fn is_there(&self) -> bool {
        !sleep::is_readable(self.handle.as_fd())
    }
}

impl AsFd for Process {
    /// Becomes readable when it has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Read,
    Write,
}

/// Copies between memory of ours and pieces of a process's memory, one after the other. Both have the same number of
/// bytes.
pub(super) fn copy(
    process: &Process,
    way: Way,
    ours: Span,
    theirs: &[Span],
) -> Result<(), Refused> {
    if let [one] = theirs {
        // The common case: a list of all that the kernel takes is 16 KiB to be cleared.
        return copy_all(process, way, ours, &mut [piece(one)]).map(drop);
    }
    let mut ours = ours;
    for part in theirs.chunks(PIECES_MAX) {
        let mut pieces: Vec<libc::iovec> = part.iter().map(piece).collect();
        ours = copy_all(process, way, ours, &mut pieces)?;
    }
    Ok(())
}

fn piece(span: &Span) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(span.address as usize),
        iov_len: span.bytes as usize,
    }
}

/// Copies as long as it takes, and says what of ours is left.
fn copy_all(
    process: &Process,
    way: Way,
    mut ours: Span,
    mut left: &mut [libc::iovec],
) -> Result<Span, Refused> {
    while !left.is_empty() {
        let bytes: usize = left.iter().map(|piece| piece.iov_len).sum();
        let local = ours.part(0, bytes as u64).ok_or(Refused::Fault)?;
        let done = call(process, way, local, left)?;
        ours = ours.part(done as u64, ours.bytes - done as u64).ok_or(Refused::Fault)?;
        left = skip(left, done);
    }
    Ok(ours)
}

/// What is read is the process's if it is there afterwards. What is written must be kept from others: it is looked at
/// before, too.
fn call(process: &Process, way: Way, ours: Span, theirs: &[libc::iovec]) -> Result<usize, Refused> {
    if way == Way::Write && !process.is_there() {
        return Err(Refused::Dead);
    }
    let done = ask_kernel(process.pid, way, ours, theirs);
    if done.is_ok() && !process.is_there() {
        return Err(Refused::Dead);
    }
    done
}

fn ask_kernel(pid: i32, way: Way, ours: Span, theirs: &[libc::iovec]) -> Result<usize, Refused> {
    let local = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(ours.address as usize),
        iov_len: ours.bytes as usize,
    };
    let count = theirs.len() as libc::c_ulong;
    let remote = theirs.as_ptr();
    // SAFETY: the kernel checks both sides' addresses. That ours is memory that may be written is the promise of
    // whoever lends memory to the engine.
    let done = unsafe {
        match way {
            Way::Read => libc::process_vm_readv(pid, &local, 1, remote, count, 0),
            Way::Write => libc::process_vm_writev(pid, &local, 1, remote, count, 0),
        }
    };
    match usize::try_from(done) {
        Ok(0) if ours.bytes > 0 => Err(Refused::Fault),
        Ok(done) => Ok(done),
        Err(_) => Err(match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ESRCH) => Refused::Dead,
            Some(libc::EPERM | libc::ENOSYS) => Refused::Unsupported,
            _ => Refused::Fault,
        }),
    }
}

/// What is left of pieces of which `done` bytes were copied.
fn skip(pieces: &mut [libc::iovec], mut done: usize) -> &mut [libc::iovec] {
    let mut first = 0;
    for piece in pieces.iter_mut() {
        if piece.iov_len > done {
            piece.iov_base = piece.iov_base.wrapping_byte_add(done);
            piece.iov_len -= done;
            break;
        }
        done -= piece.iov_len;
        first += 1;
    }
    &mut pieces[first..]
}

/// Whether memory of a process can be read: it is told where a number lies, and which.
pub(super) fn can_read(process: &Process, (address, value): (u64, u64)) -> bool {
    let mut found = [0u8; 8];
    let ours = Span::new(found.as_mut_ptr().expose_provenance() as u64, 8);
    let read = copy(process, Way::Read, ours, &[Span::new(address, 8)]);
    read == Ok(()) && u64::from_le_bytes(found) == value
}

/// Pieces for one call: what the kernel takes.
const PIECES_MAX: usize = 1024;

/// Copies from memory of a process up to the first byte that it has not got; how many bytes that were.
pub(super) fn read_some(
    process: &Process,
    theirs: Span,
    ours: &mut [u8],
) -> Result<usize, Refused> {
    let mut done = 0;
    while done < ours.len() {
        let rest = &mut ours[done..];
        let local = Span::new(rest.as_mut_ptr().expose_provenance() as u64, rest.len() as u64);
        let address = theirs.address.wrapping_add(done as u64) as usize;
        let iov_base = std::ptr::with_exposed_provenance_mut(address);
        match call(process, Way::Read, local, &[libc::iovec { iov_base, iov_len: rest.len() }]) {
            Ok(count) => done += count,
            Err(Refused::Fault) => break,
            Err(refused) => return Err(refused),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(bytes: &mut [u8]) -> Span {
        Span::new(bytes.as_mut_ptr().expose_provenance() as u64, bytes.len() as u64)
    }

    #[test]
    fn a_number_that_was_given_away_is_neither_read_nor_written() {
        let pid = std::process::id() as i32;
        let mut ended = std::process::Command::new("true").spawn().expect("a process");
        let first = Process::open(Some(ended.id() as i32)).expect("it is not reaped yet");
        ended.wait().expect("it has ended");
        // As if its number were ours now.
        let given_away = Process { pid, handle: first.handle };
        let (mut from, mut to) = ([7_u8; 64], [1_u8; 64]);
        let (ours, theirs) = (span(&mut from), span(&mut to));
        assert_eq!(copy(&given_away, Way::Write, ours, &[theirs]), Err(Refused::Dead));
        assert_eq!(to, [1; 64], "somebody else's memory was written");
        assert_eq!(copy(&given_away, Way::Read, ours, &[theirs]), Err(Refused::Dead));
        assert_eq!(read_some(&given_away, theirs, &mut [0; 8]), Err(Refused::Dead));
        let there = Process::open(Some(pid)).expect("this process");
        assert_eq!(copy(&there, Way::Write, span(&mut from), &[span(&mut to)]), Ok(()));
        assert_eq!(to, from);
        assert!(Process::open(None).is_none() && Process::open(Some(0)).is_none());
    }
}
