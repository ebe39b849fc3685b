//! Copies between the memory of two processes by the kernel, where it is permitted.

use covey_wire::Span;
use covey_wire::transport::Refused;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Read,
    Write,
}

/// Copies between memory of ours and pieces of a process's memory, one after the other. Both have the same number of
/// bytes.
pub(super) fn copy(pid: i32, way: Way, ours: Span, theirs: &[Span]) -> Result<(), Refused> {
    if let [one] = theirs {
        // The common case: a list of all that the kernel takes is 16 KiB to be cleared.
        return copy_all(pid, way, ours, &mut [piece(one)]).map(drop);
    }
    let mut ours = ours;
    for part in theirs.chunks(PIECES_MAX) {
        let mut pieces: Vec<libc::iovec> = part.iter().map(piece).collect();
        ours = copy_all(pid, way, ours, &mut pieces)?;
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
    pid: i32,
    way: Way,
    mut ours: Span,
    mut left: &mut [libc::iovec],
) -> Result<Span, Refused> {
    while !left.is_empty() {
        let bytes: usize = left.iter().map(|piece| piece.iov_len).sum();
        let local = ours.part(0, bytes as u64).ok_or(Refused::Fault)?;
        let done = call(pid, way, local, left)?;
        ours = ours.part(done as u64, ours.bytes - done as u64).ok_or(Refused::Fault)?;
        left = skip(left, done);
    }
    Ok(ours)
}

fn call(pid: i32, way: Way, ours: Span, theirs: &[libc::iovec]) -> Result<usize, Refused> {
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
pub(super) fn can_read(pid: i32, (address, value): (u64, u64)) -> bool {
    let mut found = [0u8; 8];
    let ours = Span::new(found.as_mut_ptr().expose_provenance() as u64, 8);
    let read = copy(pid, Way::Read, ours, &[Span::new(address, 8)]);
    read == Ok(()) && u64::from_le_bytes(found) == value
}

/// Pieces for one call: what the kernel takes.
const PIECES_MAX: usize = 1024;
