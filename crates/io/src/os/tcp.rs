//! What the kernel knows of a TCP connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// How many segments this end has had to send again since the connection began.
pub fn retransmits(connection: impl AsFd) -> io::Result<u32> {
    // SAFETY: all of tcp_info is plain numbers, for which zeros are valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let socket = connection.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes to `info`, which lives here.
    let done = unsafe {
        let (to, length) = ((&raw mut info).cast(), &raw mut length);
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, to, length)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(info.tcpi_total_retrans) }
}
