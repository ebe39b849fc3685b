//! Many pieces of a data file in one go: list I/O.
//!
//! Pieces that lie close together, as those of a column do, are read with one system call for
//! what they span and picked out of it: a call costs more than to read a few hundred bytes that nobody
//! wants. Where a write cannot wait, and so nothing comes between, what lies between close pieces is read and
//! written back with them; else writes go piece by piece.

use super::{DataFile, FileKind};
use crate::disk::Piece;
use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwrite};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

/// Lists of more pieces take a while: they are left to the pool.
const PIECES_NOW_MAX: usize = 16 * 1024;
/// Bytes that nobody wants between two pieces which are read together.
const GAP_MAX: u64 = 1024;
/// The same for pieces that are written together: these bytes are read and written. Less than a page, so that no page
/// is taken that the pieces do not touch.
const WRITE_GAP_MAX: u64 = 512;
/// So many pieces are worth a read.
const WRITTEN_TOGETHER_MIN: usize = 4;
/// Bytes read with one call to be picked from.
const WINDOW_MAX: u64 = 256 * 1024;

impl DataFile {
    /// The bytes of all pieces in order, cut after the last one that is in the file; zeros stand
    /// for what is not there before it. `None` when the disk would have to be waited for.
    pub fn read_list_now(&self, pieces: &[Piece]) -> io::Result<Option<Bytes>> {
        if pieces.len() > PIECES_NOW_MAX {
            return Ok(None);
        }
        match self.kind() {
            FileKind::Memory => self.read_list_blocking(pieces).map(Some),
            FileKind::Other if self.inner.refuses_nowait.load(Ordering::Relaxed) => Ok(None),
            FileKind::Other => match read_pieces(self.as_fd(), pieces, ReadWriteFlags::NOWAIT) {
                Err(Errno::AGAIN) => Ok(None),
                Err(Errno::OPNOTSUPP) => {
                    self.inner.refuses_nowait.store(true, Ordering::Relaxed);
                    Ok(None)
                }
                result => Ok(Some(result?)),
            },
        }
    }

    /// Like `read_list_now`, but waits.
    pub fn read_list_blocking(&self, pieces: &[Piece]) -> io::Result<Bytes> {
        Ok(read_pieces(self.as_fd(), pieces, ReadWriteFlags::empty())?)
    }

    /// Writes a list if that cannot block; see [`DataFile::write_list_blocking`]. Bytes between the pieces may be
    /// written as they were found, so the caller is the file's only writer.
    pub fn write_list_now(&self, pieces: &[Piece], data: &[u8]) -> io::Result<Option<usize>> {
        match self.kind() {
            FileKind::Memory if pieces.len() <= PIECES_NOW_MAX => {
                write_windows(self.as_fd(), pieces, data).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Writes the pieces from `data`, which has their bytes one after another. The count is short
    /// only when something failed after a part was written.
    pub fn write_list_blocking(&self, pieces: &[Piece], data: &[u8]) -> io::Result<usize> {
        match write_each(self.as_fd(), pieces, data) {
            (0, Some(error)) => Err(error.into()),
            (count, _) => Ok(count),
        }
    }
}

/// Writes pieces that lie close together with one call.
fn write_windows(file: BorrowedFd<'_>, pieces: &[Piece], data: &[u8]) -> io::Result<usize> {
    let (mut done, mut spare, mut rest) = (0, Vec::new(), pieces);
    while !rest.is_empty() {
        let (window, behind) = rest.split_at(window_length(rest, WRITE_GAP_MAX));
        rest = behind;
        let data = &data[done.min(data.len())..];
        let (count, error) = if window.len() < WRITTEN_TOGETHER_MIN {
            write_each(file, window, data)
        } else {
            write_window(file, window, data, &mut spare)
        };
        done += count;
        match error {
            Some(error) if done == 0 => return Err(error.into()),
            Some(_) => return Ok(done),
            None => {}
        }
    }
    Ok(done)
}

/// Writes all that pieces in file order span. How much of the pieces was written, and why no more.
fn write_window(
    file: BorrowedFd<'_>,
    window: &[Piece],
    data: &[u8],
    spare: &mut Vec<u8>,
) -> (usize, Option<Errno>) {
    let (start, (last, last_bytes)) = (window[0].0, window[window.len() - 1]);
    spare.resize((last + u64::from(last_bytes) - start) as usize, 0);
    match read_at(file, start, spare, ReadWriteFlags::empty()) {
        Ok(got) => spare[got..].fill(0),
        Err(error) => return (0, Some(error)),
    }
    let mut at = 0;
    for &(offset, bytes) in window {
        let Some(piece) = data.get(at..at + bytes as usize) else {
            return (0, Some(Errno::INVAL));
        };
        spare[(offset - start) as usize..][..piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    let (count, error) = write_piece(file, start, spare);
    let end = start + count as u64;
    let whole = |&(offset, bytes): &Piece| end.saturating_sub(offset).min(bytes.into()) as usize;
    (window.iter().map(whole).sum(), error)
}

/// Writes one piece after another. How much was written, and why no more.
fn write_each(file: BorrowedFd<'_>, pieces: &[Piece], data: &[u8]) -> (usize, Option<Errno>) {
    let mut done = 0;
    for &(offset, bytes) in pieces {
        let Some(piece) = data.get(done..done + bytes as usize) else {
            return (done, Some(Errno::INVAL));
        };
        let (count, error) = write_piece(file, offset, piece);
        done += count;
        if error.is_some() {
            return (done, error);
        }
    }
    (done, None)
}

/// How much was written, and why no more.
fn write_piece(file: BorrowedFd<'_>, offset: u64, piece: &[u8]) -> (usize, Option<Errno>) {
    let mut done = 0;
    while done < piece.len() {
        match pwrite(file, &piece[done..], offset + done as u64) {
            Ok(0) => return (done, Some(Errno::IO)),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

fn read_pieces(
    file: BorrowedFd<'_>,
    pieces: &[Piece],
    flags: ReadWriteFlags,
) -> Result<Bytes, Errno> {
    let total: usize = pieces.iter().map(|&(_, bytes)| bytes as usize).sum();
    let mut out = Vec::with_capacity(total);
    let mut end = 0;
    let mut spare = Vec::new();
    let mut rest = pieces;
    while let Some(&(start, first_bytes)) = rest.first() {
        let (window, behind) = rest.split_at(window_length(rest, GAP_MAX));
        rest = behind;
        let at = out.len();
        let there = match window {
            [_] => {
                out.resize(at + first_bytes as usize, 0);
                read_at(file, start, &mut out[at..], flags)?
            }
            _ => {
                let (last, last_bytes) = window[window.len() - 1];
                spare.resize((last + u64::from(last_bytes) - start) as usize, 0);
                let got = read_at(file, start, &mut spare, flags)?;
                pick(window, start, &spare[..got], &mut out)
            }
        };
        if there > 0 {
            end = at + there;
        }
    }
    out.truncate(end);
    Ok(out.into())
}

/// How many of the first pieces are worth being read together: those that follow one another
/// closely, with at most `gap_max` bytes between them.
fn window_length(pieces: &[Piece], gap_max: u64) -> usize {
    let start = pieces[0].0;
    let follows = |pair: &[Piece]| {
        let ((before, bytes), (next, next_bytes)) = (pair[0], pair[1]);
        let end = before.saturating_add(u64::from(bytes));
        next >= end
            && next - end <= gap_max
            && next.saturating_add(u64::from(next_bytes)).saturating_sub(start) <= WINDOW_MAX
    };
    1 + pieces.windows(2).take_while(|pair| follows(pair)).count()
}

/// Appends the pieces out of what was read from `start`; the end of the last one that was there.
fn pick(window: &[Piece], start: u64, read: &[u8], out: &mut Vec<u8>) -> usize {
    let begin = out.len();
    let mut end = 0;
    for &(offset, bytes) in window {
        let from = read.len().min((offset - start) as usize);
        let there = &read[from..read.len().min(from + bytes as usize)];
        out.extend_from_slice(there);
        if !there.is_empty() {
            end = out.len() - begin;
        }
        if there.len() < bytes as usize {
            out.resize(out.len() + bytes as usize - there.len(), 0);
        }
    }
    end
}

/// Fills `into` as far as the file goes.
fn read_at(
    file: BorrowedFd<'_>,
    offset: u64,
    into: &mut [u8],
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    let mut done = 0;
    while done < into.len() {
        let mut slices = [IoSliceMut::new(&mut into[done..])];
        match preadv2(file, &mut slices, offset + done as u64, flags) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &str, content: &[u8]) -> DataFile {
        let file = DataFile::new(tempfile::tempfile_in(dir).unwrap()).unwrap();
        file.write_all_blocking(0, &[io::IoSlice::new(content)]).unwrap();
        file
    }

    /// What a list reads, byte by byte.
    fn toy(content: &[u8], pieces: &[Piece]) -> Vec<u8> {
        let bytes = pieces.iter().flat_map(|&(at, bytes)| at..at + u64::from(bytes));
        let mut all: Vec<Option<u8>> = bytes.map(|at| content.get(at as usize).copied()).collect();
        while all.last() == Some(&None) {
            all.pop();
        }
        all.into_iter().map(|byte| byte.unwrap_or(0)).collect()
    }

    #[test]
    fn lists_read_what_a_byte_by_byte_toy_reads() {
        let content: Vec<u8> = (0..400_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
        let column: Vec<Piece> = (0..3000).map(|row| (row * 100, 8)).collect();
        let far: Vec<Piece> = (0..50).map(|row| (row * 9000, 10)).collect();
        let lists = [
            vec![],
            vec![(0, 400_000)],
            vec![(399_990, 20), (5, 3)],
            vec![(5, 3), (500_000, 3)],
            vec![(10, 5), (12, 5), (0, 4), (4, 0), (4, 2)],
            column,
            far,
        ];
        for dir in ["/dev/shm", env!("CARGO_MANIFEST_DIR")] {
            let file = file(dir, &content);
            for list in &lists {
                assert_eq!(file.read_list_blocking(list).unwrap(), toy(&content, list));
                if let Some(now) = file.read_list_now(list).unwrap() {
                    assert_eq!(now, toy(&content, list));
                }
            }
        }
    }

    #[test]
    fn a_written_list_leaves_what_lies_between() {
        let file = file("/dev/shm", &[b'.'; 20]);
        let pieces = [(2, 3), (10, 2), (18, 4)];
        assert_eq!(file.write_list_now(&pieces, b"abcdefghi").unwrap(), Some(9));
        assert_eq!(file.read_now(0, 99).unwrap().unwrap(), &b"..abc.....de......fghi"[..]);
        assert_eq!(file.read_list_now(&pieces).unwrap().unwrap(), &b"abcdefghi"[..]);
    }

    #[test]
    fn lists_write_what_a_byte_by_byte_toy_writes() {
        let mut toy: Vec<u8> = (0..200_000u32).map(|at| ((at * 11) >> 4) as u8).collect();
        let file = file("/dev/shm", &toy);
        let far = 1 + WRITE_GAP_MAX;
        let lists: [Vec<Piece>; 6] = [
            (0..2000).map(|row| (row * 100, 8)).collect(),
            (0..50).map(|row| (17 + row * (8 + WRITE_GAP_MAX), 8)).collect(),
            (0..50).map(|row| (3 + row * (8 + far), 8)).collect(),
            // Over the end, beyond it, backwards, and one upon another.
            (0..500).map(|row| (199_000 + row * 10, 7)).collect(),
            (0..9).map(|row| (4000 - row * 90, 30)).collect(),
            (0..9).map(|row| (5000 + row * 10, 30)).collect(),
        ];
        for (list, pieces) in lists.iter().enumerate() {
            let bytes = pieces.iter().map(|&(_, bytes)| bytes as usize).sum::<usize>();
            let data: Vec<u8> = (0..bytes).map(|at| (at * 7 + list) as u8).collect();
            let mut rest = &data[..];
            for &(at, bytes) in pieces {
                let (piece, left) = rest.split_at(bytes as usize);
                let end = at as usize + piece.len();
                toy.resize(toy.len().max(end), 0);
                toy[at as usize..end].copy_from_slice(piece);
                rest = left;
            }
            assert_eq!(file.write_list_now(pieces, &data).unwrap(), Some(bytes));
            let found = file.read_now(0, toy.len() + 1).unwrap().unwrap();
            assert!(found == toy, "list {list}");
        }
        assert!(file.write_list_now(&lists[0], &[0; 100]).is_err());
    }

    #[test]
    fn no_page_is_taken_that_no_piece_touches() {
        let file = file("/dev/shm", b"");
        let pieces: Vec<Piece> = (0..40).map(|row| (row * 20_000, 8)).collect();
        assert_eq!(file.write_list_now(&pieces, &[1; 320]).unwrap(), Some(320));
        let blocks = rustix::fs::fstat(file.file()).unwrap().st_blocks;
        assert_eq!(blocks, 40 * 8);
    }

    #[test]
    fn a_long_list_is_left_to_the_pool() {
        let file = file("/dev/shm", b"x");
        let many = vec![(0, 1); PIECES_NOW_MAX + 1];
        assert_eq!(file.read_list_now(&many).unwrap(), None);
        assert_eq!(file.write_list_now(&many, &vec![b'y'; many.len()]).unwrap(), None);
        let data = vec![b'y'; many.len()];
        assert_eq!(file.write_list_blocking(&many, &data).unwrap(), many.len());
        assert_eq!(file.read_list_blocking(&many).unwrap(), data);
    }
}
