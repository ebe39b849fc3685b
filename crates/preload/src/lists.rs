//! List I/O: many pieces of memory and many pieces of a file in one call, and on each server in one
//! request.
//!
//! `covey_readx` and `covey_writex` have the form that the HPC extensions of POSIX proposed: a list of
//! memory, as for readv(2), and a list of places in the file.

use crate::boundary::{Result, Stop, export, refuse, serve};
use crate::client::wait;
use crate::data::{Span, given};
use crate::open::Open;
use crate::report::COUNTS;
use crate::table;
use covey_ninep::tree::Errno;
use covey_stripe::view::View;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

/// A place in a file, as in `covey-preload.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extent {
    pub offset: u64,
    pub length: u64,
}

/// A piece: bytes of the file, and where they are in memory.
#[derive(Clone, Copy)]
pub struct Piece {
    pub offset: u64,
    pub span: Span,
}

/// Reads all pieces; answers how many bytes each got: fewer than asked at the end of the file only.
pub fn read(open: &Open, pieces: &[Piece]) -> Result<Vec<usize>> {
    let mut counts = Vec::with_capacity(pieces.len());
    for pieces in pieces.chunks(PIECES_MAX) {
        read_some(open, pieces, &mut counts)?;
    }
    count(pieces);
    COUNTS.read_bytes.add(counts.iter().sum::<usize>() as u64);
    Ok(counts)
}

fn read_some(open: &Open, pieces: &[Piece], counts: &mut Vec<usize>) -> Result<()> {
    let (client, file) = open.to_read()?;
    let view = view(pieces)?;
    // What lies beyond the end reads as zeros within a list: the size tells it apart.
    let both = futures_util::future::try_join(file.read_view(&view), client.inode(open.id()));
    let (mut rest, inode) = wait(&client, both)?;
    for piece in pieces {
        let there =
            inode.size.saturating_sub(piece.offset).min(piece.span.length() as u64) as usize;
        let mut bytes = rest.split_to(piece.span.length().min(rest.len()));
        bytes.truncate(there);
        counts.push(bytes.len());
        // SAFETY: the program's own spans.
        unsafe { given(&bytes.into(), &[piece.span]) };
    }
    Ok(())
}

/// Writes all pieces.
pub fn write(open: &Open, pieces: &[Piece]) -> Result<()> {
    let (client, file) = open.to_write()?;
    for pieces in pieces.chunks(PIECES_MAX) {
        let total: usize = pieces.iter().map(|piece| piece.span.length()).sum();
        let mut data = Vec::with_capacity(total);
        for piece in pieces.iter().filter(|piece| piece.span.length() > 0) {
            // SAFETY: the program's own spans.
            data.extend_from_slice(unsafe {
                std::slice::from_raw_parts(piece.span.base(), piece.span.length())
            });
        }
        wait(&client, file.write_view(&view(pieces)?, data.into()))?;
    }
    if open.flags() & (libc::O_DSYNC | libc::O_SYNC) != 0 {
        wait(&client, file.fsync())?;
    }
    count(pieces);
    COUNTS.written_bytes.add(pieces.iter().map(|piece| piece.span.length() as u64).sum());
    Ok(())
}

/// The pieces as a view: what of them has a pattern is found there.
fn view(pieces: &[Piece]) -> Result<View> {
    let range = |piece: &Piece| (piece.offset, piece.span.length() as u64);
    Ok(View::of_ranges(pieces.iter().map(range))?)
}

/// So many pieces make a view; longer lists are several.
const PIECES_MAX: usize = 128 * 1024;

fn count(pieces: &[Piece]) {
    COUNTS.lists.add(1);
    COUNTS.list_pieces.add(pieces.len() as u64);
}

/// Lays memory and places side by side.
fn pair(spans: &[Span], extents: &[Extent]) -> Result<Vec<Piece>> {
    let mut pieces = Vec::with_capacity(spans.len().max(extents.len()));
    let mut spans = spans.iter().copied().filter(|span| span.length() > 0);
    let mut room = Span::EMPTY;
    for extent in extents {
        if extent.offset.checked_add(extent.length).is_none_or(|end| end > i64::MAX as u64) {
            return refuse(libc::EINVAL);
        }
        let (mut offset, mut left) = (extent.offset, extent.length);
        while left > 0 {
            if room.length() == 0 {
                room = spans.next().ok_or(Stop::from(Errno::EINVAL))?;
            }
            let length = left.min(room.length() as u64) as usize;
            pieces.push(Piece { offset, span: room.split_to(length) });
            (offset, left) = (offset + length as u64, left - length as u64);
        }
    }
    if room.length() == 0 && spans.next().is_none() { Ok(pieces) } else { refuse(libc::EINVAL) }
}

/// # Safety
///
/// The lists must have as many entries as their counts say.
unsafe fn pieces(
    iov: *const iovec,
    iov_count: size_t,
    extents: *const Extent,
    extent_count: size_t,
) -> Result<Vec<Piece>> {
    // SAFETY: the caller's promise.
    unsafe {
        let span = |at| {
            let entry: iovec = *iov.add(at);
            Span::new(entry.iov_base.cast(), entry.iov_len)
        };
        let spans: Vec<Span> = (0..iov_count).map(span).collect();
        let extents: Vec<Extent> = (0..extent_count).map(|at| *extents.add(at)).collect();
        pair(&spans, &extents)
    }
}

/// One piece after the other, on descriptors that are not ours.
fn one_by_one(
    pieces: &[Piece],
    step: impl Fn(*mut c_void, size_t, off_t) -> ssize_t,
) -> Result<isize> {
    let mut done = 0;
    for piece in pieces {
        let (base, length, offset) =
            (piece.span.base(), piece.span.length(), piece.offset as off_t);
        let step = step(base.cast(), length, offset);
        if step < 0 && done == 0 {
            return Err(Errno::from(std::io::Error::last_os_error()).into());
        }
        done += step.max(0);
        if step < length as isize {
            break;
        }
    }
    Ok(done)
}

export! { fn covey_readx(
    fd: c_int, iov: *const iovec, iov_count: size_t, extents: *const Extent, extent_count: size_t
) -> ssize_t {
    let open = table::find(fd);
    serve(|| {
        // SAFETY: the program's own lists.
        let pieces = unsafe { pieces(iov, iov_count, extents, extent_count)? };
        match open {
            Some(open) => Ok(read(&open, &pieces)?.into_iter().sum::<usize>() as ssize_t),
            None => one_by_one(&pieces, |base, length, offset| {
                // SAFETY: the program's own spans.
                unsafe { crate::real::pread()(fd, base, length, offset) }
            }),
        }
    })
} }

export! { fn covey_writex(
    fd: c_int, iov: *const iovec, iov_count: size_t, extents: *const Extent, extent_count: size_t
) -> ssize_t {
    let open = table::find(fd);
    serve(|| {
        // SAFETY: the program's own lists.
        let pieces = unsafe { pieces(iov, iov_count, extents, extent_count)? };
        let total: usize = pieces.iter().map(|piece| piece.span.length()).sum();
        match open {
            Some(open) => write(&open, &pieces).map(|()| total as ssize_t),
            None => one_by_one(&pieces, |base, length, offset| {
                // SAFETY: the program's own spans.
                unsafe { crate::real::pwrite()(fd, base, length, offset) }
            }),
        }
    })
} }

// Whether a descriptor is a file of ours, so that lists pay.
export! { failing(0) fn covey_is_ours(fd: c_int) -> c_int {
    c_int::from(table::is_ours(fd))
} }

#[cfg(test)]
mod tests {
    use super::*;

    fn span(base: usize, length: usize) -> Span {
        // SAFETY: nobody looks at its bytes.
        unsafe { Span::new(base as *mut u8, length) }
    }

    #[test]
    fn memory_and_places_are_cut_where_either_ends() {
        let places = [Extent { offset: 100, length: 5 }, Extent { offset: 200, length: 5 }];
        let pieces = pair(&[span(1, 3), span(50, 7)], &places).expect("as long as each other");
        let found: Vec<_> =
            pieces.iter().map(|p| (p.offset, p.span.base() as usize, p.span.length())).collect();
        assert_eq!(found, [(100, 1, 3), (103, 50, 2), (200, 52, 5)]);
    }

    #[test]
    fn pieces_without_bytes_are_in_no_view() {
        let piece = |offset, length| Piece { offset, span: span(1, length) };
        let list = [piece(9, 4), piece(70, 0), piece(20, 4), piece(3, 8)];
        let view = view(&list).expect("it is small");
        let ranges: Vec<_> = view.ranges().collect();
        assert_eq!(ranges, [(9, 13), (20, 24), (3, 11)]);
    }

    #[test]
    fn lists_of_unlike_length_are_refused() {
        let place = Extent { offset: 0, length: 5 };
        for length in [4, 6] {
            assert!(pair(&[span(1, length)], &[place]).is_err());
        }
        let beyond = Extent { offset: i64::MAX as u64, length: 1 };
        assert!(pair(&[span(1, 1)], &[beyond]).is_err());
    }
}
