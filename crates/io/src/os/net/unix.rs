//! A Unix stream that is woken only for what it waits for.
//!
//! A Unix socket tells its owner each time that the peer has taken something. tokio's own stream asks
//! for readability and room together, so each small message would wake its sender once more, for
//! nothing: between two processes that answer one another that is half of all wake-ups. This one
//! asks for readability, and for room only while a write waits for it.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A connected Unix stream socket.
#[derive(Debug)]
pub struct QuietStream {
    socket: AsyncFd<OwnedFd>,
    /// A duplicate that waits for room, while a write does.
    room: Option<AsyncFd<OwnedFd>>,
}

impl QuietStream {
    /// The same connection. Must be called within a runtime.
    pub fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        let socket: OwnedFd = stream.into_std()?.into();
        Ok(QuietStream { socket: watch(socket, Interest::READABLE)?, room: None })
    }

    /// The same within the runtime that this is called in.
    pub(super) fn resettle(self) -> io::Result<Self> {
        let socket = self.socket.into_inner();
        Ok(QuietStream { socket: watch(socket, Interest::READABLE)?, room: None })
    }

    /// Whether the first bytes that come are `expected`. They stay.
    pub(super) async fn peek(&self, expected: &[u8]) -> io::Result<bool> {
        let mut found = vec![0; expected.len()];
        for _ in 0..PEEKS_MAX {
            let mut guard = self.socket.readable().await?;
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            let count = match recv(self.socket.get_ref(), &mut found[..], flags) {
                Ok((_, count)) => count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    guard.clear_ready();
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if count == 0 || found[..count] != expected[..count] || count == expected.len() {
                return Ok(found == expected);
            }
            // The rest of a greeting is on its way.
            tokio::time::sleep(PEEK_AGAIN).await;
        }
        Ok(false)
    }

    /// The socket, to block.
    pub(super) fn into_std(self) -> io::Result<std::os::unix::net::UnixStream> {
        let stream = std::os::unix::net::UnixStream::from(self.socket.into_inner());
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    /// Runs a system call that sends, again whenever there is room, until it does not block.
    pub(super) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            // Asked for before the write: room that comes after it is told of anew.
            let guard = match &self.room {
                Some(room) => Some(ready!(room.poll_write_ready(context))?),
                None => None,
            };
            let sent = call(self.socket.get_ref().as_fd());
            match (sent.as_ref().map_err(io::Error::kind), guard) {
                (Err(ErrorKind::Interrupted), _) => continue,
                (Err(ErrorKind::WouldBlock), Some(mut guard)) => guard.clear_ready(),
                (Err(ErrorKind::WouldBlock), None) => {
                    self.room =
                        Some(watch(self.socket.get_ref().try_clone()?, Interest::WRITABLE)?);
                }
                _ => {
                    self.room = None;
                    return Poll::Ready(sent);
                }
            }
        }
    }
}

impl AsFd for QuietStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

fn watch(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // Deprecated because a type may lie about its descriptor; an OwnedFd does not, and the replacement
    // is unsafe.
    #[allow(deprecated)]
    AsyncFd::with_interest(socket, interest)
}

impl AsyncRead for QuietStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(context))?;
            let room = buffer.remaining();
            // SAFETY: the bytes are only written to.
            let spare = unsafe { buffer.unfilled_mut() };
            let got = match rustix::io::read(self.socket.get_ref(), spare) {
                Ok((got, _)) => got.len(),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    guard.clear_ready();
                    continue;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            };
            // There was no more: whatever comes, and the end, is told of anew.
            if 0 < got && got < room {
                guard.clear_ready();
            }
            // SAFETY: the kernel has filled these.
            unsafe { buffer.assume_init(got) };
            buffer.advance(got);
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for QuietStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let send = |socket: BorrowedFd<'_>| Ok(rustix::net::send(socket, bytes, NOSIGNAL)?);
        self.get_mut().poll_send(context, send)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut none = SendAncillaryBuffer::default();
        let send = |socket: BorrowedFd<'_>| Ok(sendmsg(socket, slices, &mut none, NOSIGNAL)?);
        self.get_mut().poll_send(context, send)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(self.socket.get_ref(), Shutdown::Write)?))
    }
}

/// Between two looks at a greeting of which a part has come.
const PEEK_AGAIN: Duration = Duration::from_millis(5);
/// Looks before a part of a greeting is taken for something else.
const PEEKS_MAX: u32 = 200;

/// Who has closed is an error, no signal.
const NOSIGNAL: SendFlags = SendFlags::NOSIGNAL;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    fn pair() -> (QuietStream, QuietStream) {
        let (one, other) = tokio::net::UnixStream::pair().unwrap();
        (QuietStream::new(one).unwrap(), QuietStream::new(other).unwrap())
    }

    /// What the pollers of this process wait for on `socket`, as the kernel tells it.
    fn waited_for(socket: &OwnedFd) -> Vec<u32> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap() {
            // Other tests close theirs meanwhile.
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            let mut lines = text.lines().filter_map(|line| line.strip_prefix("tfd:"));
            found.extend(lines.by_ref().filter_map(|line| {
                let mut words = line.split_whitespace();
                let is_it = words.next()?.parse::<i32>().ok()? == socket.as_raw_fd();
                words.next().filter(|word| is_it && *word == "events:")?;
                u32::from_str_radix(words.next()?, 16).ok()
            }));
        }
        found
    }

    #[test]
    fn room_is_not_waited_for_until_a_write_needs_it() {
        const IN: u32 = 1;
        const OUT: u32 = 4;
        block_on(async {
            let (mut one, mut other) = pair();
            one.write_all(b"a question").await.unwrap();
            let waited = waited_for(one.socket.get_ref());
            assert!(!waited.is_empty() && waited.iter().all(|events| events & (IN | OUT) == IN));
            let much = vec![7; 4 << 20];
            let mut got = vec![0; 10 + much.len()];
            let (sent, read) = tokio::join!(one.write_all(&much), other.read_exact(&mut got));
            assert_eq!((sent.unwrap(), read.unwrap()), ((), got.len()));
            assert!(one.room.is_none(), "nor after it");
        });
    }

    #[test]
    fn more_than_the_socket_holds_arrives_whole_and_in_order() {
        block_on(async {
            let (mut one, mut other) = pair();
            let sent: Vec<u8> = (0..9_000_000_u32).map(|index| (index % 251) as u8).collect();
            let mut got = Vec::new();
            let send = async {
                one.write_all(&sent).await.unwrap();
                one.shutdown().await.unwrap();
            };
            let (_, count) = tokio::join!(send, other.read_to_end(&mut got));
            assert_eq!(count.unwrap(), sent.len());
            assert!(got == sent);
            other.write_all(b"done").await.unwrap();
            let mut end = [0; 4];
            one.read_exact(&mut end).await.unwrap();
            assert_eq!(&end, b"done", "the other direction is still open");
        });
    }

    #[test]
    fn a_peer_that_is_gone_ends_the_read_and_fails_the_write() {
        block_on(async {
            let (mut one, other) = pair();
            drop(other);
            let mut got = [0; 4];
            assert_eq!(one.read(&mut got).await.unwrap(), 0);
            let error = one.write_all(b"?").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        });
    }
}
