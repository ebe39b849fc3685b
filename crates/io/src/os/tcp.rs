//! What the kernel knows of a TCP connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// How many segments it has had to send again since the connection began.
    pub retransmits: u32,
    /// How many bytes it sends in one segment.
    pub segment_bytes: u32,
}

/// Asks for it.
pub fn info(connection: impl AsFd) -> io::Result<Info> {
    // SAFETY: all of tcp_info is plain numbers, for which zeros are valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let socket = connection.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes to `info`, which lives here.
    let done = unsafe {
        let (to, length) = ((&raw mut info).cast(), &raw mut length);
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, to, length)
    };
    match done < 0 {
        true => Err(io::Error::last_os_error()),
        false => {
            Ok(Info { retransmits: info.tcpi_total_retrans, segment_bytes: info.tcpi_snd_mss })
        }
    }
}
