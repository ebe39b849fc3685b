//! A connection of either kind.

use super::owner::socket_owner;
use super::pacing::Enrolled;
use super::pieces;
use super::shared::Shared;
use super::unix::QuietStream;
use crate::os::credentials;
use crate::os::file::{Received, front, receive, send_some};
use crate::os::run::{self, Arrived};
use bytes::BytesMut;
use covey_wire::{FileRange, Landing, Segments};
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A TCP or Unix stream.
#[derive(Debug)]
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// TCP that shares a wire with messages, and yields to them.
    Paced(Box<Paced>),
    /// Unix.
    Unix(QuietStream),
    /// Memory that both processes have mapped.
    Shared(Box<Shared>),
}

/// A TCP connection that is paced at times.
#[derive(Debug)]
pub struct Paced {
    pub(super) stream: TcpStream,
    pub(super) enrolled: Enrolled,
}

impl Stream {
    /// The CPU that took in the last packet: the sender's own, where that is on this machine. Only TCP
    /// tells.
    pub fn incoming_cpu(&self) -> Option<usize> {
        let stream = self.tcp()?;
        let cpu = rustix::net::sockopt::socket_incoming_cpu(stream).ok()?;
        // It is -1 before the first packet.
        i32::try_from(cpu).ok()?.try_into().ok()
    }
}

/// Whose process is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarEnd {
    /// The kernel vouches for this user. For a server's unix socket, it is the one that listened.
    User(u32),
    /// A connection within this machine, by the addresses of the other end and of this one.
    Loopback(SocketAddr, SocketAddr),
    /// Another machine.
    Away,
}

impl FarEnd {
    /// The user, if the kernel knows. Over loopback to be asked only once the other side has said
    /// something: until its process has accepted the connection, that belongs to nobody.
    pub fn user(&self) -> Option<u32> {
        match *self {
            FarEnd::User(uid) => Some(uid),
            FarEnd::Loopback(peer, local) => socket_owner(peer, local),
            FarEnd::Away => None,
        }
    }
}

impl Stream {
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Stream::Tcp(stream) => Some(stream),
            Stream::Paced(paced) => Some(&paced.stream),
            Stream::Unix(_) | Stream::Shared(_) => None,
        }
    }

    /// The same within the runtime that this is called in, which hears of what comes from now on. Not
    /// for shared memory, nor for what is enrolled already.
    pub fn resettle(self) -> io::Result<Stream> {
        match self {
            Stream::Tcp(stream) => TcpStream::from_std(stream.into_std()?).map(Stream::Tcp),
            Stream::Unix(stream) => stream.resettle().map(Stream::Unix),
            Stream::Shared(_) | Stream::Paced(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Who is at the other end.
    pub fn far_end(&self) -> io::Result<FarEnd> {
        Ok(match self {
            Stream::Tcp(stream) => {
                let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
                if peer.ip().to_canonical().is_loopback() {
                    FarEnd::Loopback(peer, local)
                } else {
                    FarEnd::Away
                }
            }
            // Nothing is paced within a machine.
            Stream::Paced(_) => FarEnd::Away,
            Stream::Unix(stream) => FarEnd::User(credentials::peer(stream)?.uid),
            // Memory is shared with this user's own processes only.
            Stream::Shared(_) => FarEnd::User(rustix::process::geteuid().as_raw()),
        })
    }
}

macro_rules! either {
    ($stream:expr, $name:ident => $call:expr) => {
        match $stream {
            Stream::Tcp($name) => $call,
            Stream::Paced(paced) => {
                let $name = &mut paced.stream;
                $call
            }
            Stream::Unix($name) => $call,
            Stream::Shared(shared) => {
                let $name = &mut shared.channel;
                $call
            }
        }
    };
}

impl Paced {
    /// Writes in short pieces, while this connection is limited. `collect` makes at most so many bytes of the front of what is to
    /// be sent.
    fn poll_write_pieces(
        &self,
        context: &mut Context<'_>,
        piece: usize,
        collect: impl FnOnce(usize) -> io::Result<Vec<u8>>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.stream.poll_write_ready(context))?;
        let bytes = collect(pieces::together(piece))?;
        pieces::poll_write(&self.stream, context, &bytes, piece)
    }
}

pub(super) fn poll_send_tcp(
    stream: &TcpStream,
    context: &mut Context<'_>,
    mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(context))?;
        match stream.try_io(Interest::WRITABLE, || call(stream.as_fd())) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            sent => return Poll::Ready(sent),
        }
    }
}

impl run::Stream for Stream {
    fn poll_write_files(
        &mut self,
        context: &mut Context<'_>,
        output: &Segments,
    ) -> Poll<io::Result<usize>> {
        let send = |socket: BorrowedFd<'_>| send_some(socket, output);
        match self {
            Stream::Tcp(stream) => poll_send_tcp(stream, context, send),
            Stream::Paced(paced) => match paced.enrolled.pieces() {
                Some(piece) => paced.poll_write_pieces(context, piece, |most| front(output, most)),
                None => poll_send_tcp(&paced.stream, context, send),
            },
            Stream::Unix(stream) => stream.poll_send(context, send),
            Stream::Shared(shared) => shared.channel.poll_write_files(context, output),
        }
    }

    fn places(&self) -> bool {
        matches!(self, Stream::Shared(_))
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        input: &mut BytesMut,
        bytes_max: usize,
    ) -> Poll<io::Result<Arrived>> {
        match self {
            Stream::Shared(shared) => shared.channel.poll_receive(context, input, bytes_max),
            socket => run::read_into(socket, context, input, bytes_max),
        }
    }

    fn poll_land(
        &mut self,
        context: &mut Context<'_>,
        landing: &mut Landing,
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Shared(shared) => shared.channel.poll_land(context, landing),
            socket => run::read_into_place(socket, context, landing),
        }
    }

    fn set_low_water(&mut self, bytes: usize) {
        use super::pacing::set_low_water;
        // Where that cannot be, nothing is waited for.
        let _ = match self {
            Stream::Tcp(stream) => set_low_water(stream.as_fd(), bytes),
            Stream::Paced(paced) => set_low_water(paced.stream.as_fd(), bytes),
            Stream::Unix(_) | Stream::Shared(_) => Ok(()),
        };
    }

    /// A wire that is shared with messages brings a large payload in single frames. A wake-up for each takes a tenth of a CPU at
    /// 100 Mbit/s, from the messages' programs too.
    fn worth_waking_for(&self, wanted: usize) -> usize {
        let is_large = wanted >= 2 * WAKE_BYTES;
        if matches!(self, Stream::Paced(_)) && is_large { WAKE_BYTES } else { 1 }
    }

    fn receive(&mut self, range: &FileRange) -> io::Result<Received> {
        match self {
            Stream::Tcp(stream) => receive(stream.as_fd(), range),
            Stream::Paced(paced) => receive(paced.stream.as_fd(), range),
            Stream::Unix(stream) => receive(stream.as_fd(), range),
            Stream::Shared(_) => Ok(Received::Nothing),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Stream::Paced(paced) = &*self
            && let Some(piece) = paced.enrolled.pieces()
        {
            return paced.poll_write_pieces(context, piece, |most| Ok(joined(slices, most)));
        }
        either!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(context))
    }
}

/// The first bytes of these slices, at most so many.
fn joined(slices: &[IoSlice<'_>], bytes_max: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for slice in slices {
        out.extend_from_slice(&slice[..slice.len().min(bytes_max - out.len())]);
    }
    out
}

/// So much of a large payload is taken in at once: a peer of [`super::pacing`]'s lowest rate is heard once a second.
const WAKE_BYTES: usize = 16 << 10;
