//! A connection whose requests are noted.

use crate::os::file::Received;
use crate::os::run::{self, Arrived};
use bytes::BytesMut;
use covey_wire::{FileRange, Segments};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Is told what comes through a connection.
pub trait Observer<S> {
    /// The peer has asked something: `bytes` were read, while an answer was owed to it or not.
    fn heard(&mut self, stream: &S, bytes: usize, owed: bool);
}

/// A stream with an observer.
pub struct Observed<S, O> {
    stream: S,
    observer: O,
    /// Whether something was read and nothing written since.
    owes: bool,
}

impl<S, O: Observer<S>> Observed<S, O> {
    /// Tells `observer` of what goes through `stream`.
    pub fn new(stream: S, observer: O) -> Self {
        Observed { stream, observer, owes: false }
    }
}

impl<S: AsyncRead + Unpin, O: Observer<S> + Unpin> AsyncRead for Observed<S, O> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            let owed = std::mem::replace(&mut this.owes, true);
            this.observer.heard(&this.stream, bytes, owed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, O: Observer<S> + Unpin> AsyncWrite for Observed<S, O> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.owes = false;
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.owes = false;
        Pin::new(&mut this.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl<S: run::Stream, O: Observer<S> + Unpin> run::Stream for Observed<S, O> {
    fn poll_write_files(
        &mut self,
        context: &mut Context<'_>,
        output: &Segments,
    ) -> Poll<io::Result<usize>> {
        self.owes = false;
        self.stream.poll_write_files(context, output)
    }

    fn places(&self) -> bool {
        self.stream.places()
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        input: &mut BytesMut,
        bytes_max: usize,
    ) -> Poll<io::Result<Arrived>> {
        if self.places() {
            // Through shared memory nobody is woken, and nothing is won by moving to the peer's CPU.
            self.stream.poll_receive(context, input, bytes_max)
        } else {
            run::read_into(self, context, input, bytes_max)
        }
    }

    fn receive(&mut self, range: &FileRange) -> io::Result<Received> {
        let received = self.stream.receive(range)?;
        if let Received::Taken(_) = received {
            let owed = std::mem::replace(&mut self.owes, true);
            self.observer.heard(&self.stream, range.length, owed);
        }
        Ok(received)
    }
}
