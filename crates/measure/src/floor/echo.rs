//! Blocks to and fro over a socket, waiting awake or in the kernel.

use super::PATIENCE;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Awake,
    InKernel,
}

impl Wait {
    /// Sets a socket up for it.
    pub fn on(link: &TcpStream, is_busy: bool) -> io::Result<Wait> {
        link.set_nonblocking(is_busy)?;
        link.set_read_timeout(Some(PATIENCE))?;
        link.set_write_timeout(Some(PATIENCE))?;
        Ok(if is_busy { Wait::Awake } else { Wait::InKernel })
    }
}

/// Receives a block and sends it back.
pub(super) fn echo(link: &TcpStream, block: &mut [u8], wait: Wait) -> io::Result<()> {
    read_full(link, block, wait)?;
    write_full(link, block, wait)
}

pub(super) fn write_full(mut link: &TcpStream, mut block: &[u8], wait: Wait) -> io::Result<()> {
    while !block.is_empty() {
        let count = again(wait, || link.write(block))?;
        block = &block[count..];
    }
    Ok(())
}

pub(super) fn read_full(mut link: &TcpStream, mut block: &mut [u8], wait: Wait) -> io::Result<()> {
    while !block.is_empty() {
        let count = again(wait, || link.read(block))?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        block = &mut block[count..];
    }
    Ok(())
}

/// Tries until something is done.
fn again(wait: Wait, mut step: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let mut begin = None;
    loop {
        for _ in 0..4096 {
            match step() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && wait == Wait::Awake => {}
                done => return done,
            }
        }
        if begin.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}
