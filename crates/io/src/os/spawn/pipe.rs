//! The daemon's end of a program's input or output: a pipe, or a terminal.

use super::request::WindowSize;
use super::starter::winsize;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A pipe or terminal that is read and written without blocking. Several may wait for it at once: what
/// comes goes to one of them.
#[derive(Debug)]
pub struct Pipe(AsyncFd<OwnedFd>);

impl Pipe {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Pipe> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        // SAFETY: an OwnedFd is the same descriptor for as long as it lives, and lives in here.
        Ok(Pipe(unsafe { AsyncFd::register(fd) }.map_err(|error| error.into_parts().1)?))
    }

    /// What is there, at most `bytes_max`, as soon as there is something; nothing when no writer is left.
    /// Bytes are taken only when the future is done.
    pub async fn read(&self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let read = |fd: &OwnedFd| {
            let mut buffer = Vec::with_capacity(bytes_max.min(READ_BYTES_MAX));
            match rustix::io::read(fd, rustix::buffer::spare_capacity(&mut buffer)) {
                Ok(_) => Ok(buffer),
                // A terminal that nobody has open any more.
                Err(Errno::IO) => Ok(Vec::new()),
                Err(error) => Err(error.into()),
            }
        };
        self.0.async_io(Interest::READABLE, read).await
    }

    /// Writes as much as there is room for, as soon as there is some. EPIPE when no reader is left.
    pub async fn write(&self, data: &[u8]) -> io::Result<usize> {
        let write = |fd: &OwnedFd| Ok(rustix::io::write(fd, data)?);
        self.0.async_io(Interest::WRITABLE, write).await
    }

    /// Tells a terminal its size.
    pub fn resize(&self, size: WindowSize) -> io::Result<()> {
        Ok(rustix::termios::tcsetwinsize(self.0.get_ref(), winsize(size))?)
    }
}

/// A pipe holds this much.
const READ_BYTES_MAX: usize = 64 << 10;
