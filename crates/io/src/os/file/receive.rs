//! Payloads on their way from a socket into a file, through a pipe (splice(2)): the pages that the socket has
//! are copied into the file's, and never into memory of ours.
//!
//! It is done for what has arrived whole only, so that a peer that stops in the middle of a message has
//! written nothing. The file system takes part as with any write: sizes, times, limits and watchers are right.

use super::range::file_of;
use covey_wire::FileRange;
use rustix::io::{Errno, ioctl_fionread, read};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What became of a payload.
#[derive(Debug)]
pub enum Received {
    /// It is still in the stream: it is not all there, or cannot go this way.
    Nothing,
    /// It was taken off the stream. So much of it was written, or nothing because of a system error.
    Taken(Result<usize, i32>),
}

/// Moves the next `range.length` bytes of the stream into a file in memory. An error is the stream's: a part
/// is lost.
pub(crate) fn receive(socket: BorrowedFd<'_>, range: &FileRange) -> io::Result<Received> {
    let Ok(file) = file_of(range) else { return Ok(Received::Nothing) };
    if ioctl_fionread(socket)? < range.length as u64 {
        return Ok(Received::Nothing);
    }
    PIPE.with(|pipe| match pipe {
        Some(pipe) => pipe.carry(socket, file.file.as_fd(), range),
        None => Ok(Received::Nothing),
    })
}

/// A pipe that is empty between calls.
struct Pipe {
    to: OwnedFd,
    from: OwnedFd,
}

thread_local! {
    static PIPE: Option<Pipe> = Pipe::new().ok();
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A smaller one takes more calls.
        let _ = fcntl_setpipe_size(&to, PIPE_BYTES);
        Ok(Pipe { to, from })
    }

    fn carry(
        &self,
        socket: BorrowedFd<'_>,
        file: BorrowedFd<'_>,
        range: &FileRange,
    ) -> io::Result<Received> {
        let (mut taken, mut written, mut failure) = (0, 0, None);
        while taken < range.length {
            let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
            let count = match splice(socket, None, &self.to, None, range.length - taken, flags) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(_) if taken == 0 => return Ok(Received::Nothing),
                Err(error) => return Err(error.into()),
            };
            taken += count;
            if failure.is_none() {
                let at = range.offset + written as u64;
                let done = self.pour(file, at, count, &mut failure);
                written += done;
                self.empty(count - done)?;
            } else {
                self.empty(count)?;
            }
        }
        Ok(Received::Taken(match failure {
            // After a part, an error is left to the next write.
            Some(error) if written == 0 => Err(error.raw_os_error()),
            _ => Ok(written),
        }))
    }

    /// Writes `count` bytes of the pipe; how many went.
    fn pour(
        &self,
        file: BorrowedFd<'_>,
        mut offset: u64,
        count: usize,
        failure: &mut Option<Errno>,
    ) -> usize {
        let mut done = 0;
        while done < count {
            let flags = SpliceFlags::MOVE;
            match splice(&self.from, None, file, Some(&mut offset), count - done, flags) {
                Ok(0) => *failure = Some(Errno::IO),
                Ok(moved) => done += moved,
                Err(Errno::INTR) => {}
                Err(error) => *failure = Some(error),
            }
            if failure.is_some() {
                break;
            }
        }
        done
    }

    /// Throws `count` bytes away.
    fn empty(&self, mut count: usize) -> io::Result<()> {
        let mut scratch = [0; 4096];
        while count > 0 {
            let room = count.min(scratch.len());
            match read(&self.from, &mut scratch[..room]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(gone) => count -= gone,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The most that anybody may ask for.
const PIPE_BYTES: usize = 1 << 20;
