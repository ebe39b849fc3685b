//! A connection that is no peer's yet: a few bytes each way, and nothing that blocks.

use super::address::Address;
use super::greeting::{Greeting, Step};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, ipproto,
};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A socket of either kind.
#[derive(Debug)]
pub(super) enum Socket {
    Near(UnixStream),
    Far(TcpStream),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Near(stream) => stream.as_fd(),
            Socket::Far(stream) => stream.as_fd(),
        }
    }
}

impl Socket {
    /// Begins to connect to the socket of an endpoint of this machine.
    pub fn call_near(to: &Address) -> io::Result<Socket> {
        let socket = new(AddressFamily::UNIX, None)?;
        let name = SocketAddrUnix::new_abstract_name(&to.socket_name())?;
        rustix::net::connect(&socket, &name)?;
        Ok(Socket::Near(socket.into()))
    }

    /// Begins to connect by TCP: it is connected when it can be written to.
    pub fn call_far(to: SocketAddr) -> io::Result<Socket> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = new(family, Some(ipproto::TCP))?;
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        sockopt::set_tcp_nodelay(&socket, true)?;
        // A machine that is gone is noticed also while its program has not looked at us.
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, Duration::from_secs(1))?;
        sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(1))?;
        sockopt::set_tcp_keepcnt(&socket, 5)?;
        Ok(Socket::Far(socket.into()))
    }

    /// Makes one that has come as those are that were called.
    pub fn prepare(&self) -> io::Result<()> {
        match self {
            Socket::Near(stream) => stream.set_nonblocking(true),
            Socket::Far(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)
            }
        }
    }

    /// Whether a connection that was begun is there.
    pub fn is_connected(&self) -> io::Result<bool> {
        let mut fds = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::OUT)];
        if rustix::event::poll(&mut fds, Some(&Timespec::default()))? == 0 {
            return Ok(false);
        }
        sockopt::socket_error(self)??;
        Ok(true)
    }
}

fn new(
    family: AddressFamily,
    protocol: Option<rustix::net::Protocol>,
) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, protocol)
}

/// A socket over which two greet each other.
#[derive(Debug)]
pub(super) struct Line {
    pub socket: Socket,
    pub greeting: Greeting,
    said: Vec<u8>,
    out: Vec<u8>,
}

impl Line {
    pub fn new(socket: Socket, greeting: Greeting, first: Vec<u8>) -> Line {
        Line { socket, greeting, said: Vec::new(), out: first }
    }

    /// Says what is to be said, and takes the next thing that the other has said as a whole.
    pub fn go_on(&mut self) -> io::Result<Step> {
        loop {
            self.flush()?;
            if !self.read()? {
                return Ok(Step::More);
            }
            let step = self.greeting.take(&self.said, &mut self.out);
            self.said.clear();
            match step {
                Ok(Step::More) => {}
                Ok(step) => return Ok(step),
                Err(_) => return Err(ErrorKind::PermissionDenied.into()),
            }
        }
    }

    /// Adds to what is to be said, and says it.
    pub fn say(&mut self, what: impl FnOnce(&Greeting, &mut Vec<u8>)) -> io::Result<()> {
        what(&self.greeting, &mut self.out);
        self.flush()?;
        // So few bytes always fit.
        if self.out.is_empty() { Ok(()) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match rustix::net::send(&self.socket, &self.out, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.out.drain(..sent)),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether all that is wanted is there. Nothing beyond it is read: what follows is for somebody else.
    fn read(&mut self) -> io::Result<bool> {
        let wanted = self.greeting.bytes_wanted();
        while self.said.len() < wanted {
            let had = self.said.len();
            self.said.resize(wanted, 0);
            let read = rustix::net::recv(&self.socket, &mut self.said[had..], RecvFlags::empty());
            self.said.truncate(had + read.map_or(0, |(_, bytes)| bytes));
            match read {
                Ok((_, 0)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}
