//! Messages on the socket between two mount processes, with the devices that come beside.

use super::message::{HEAD_BYTES, Message};
use covey_io::os::hand;
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// One end of the conversation.
pub struct Talk {
    stream: UnixStream,
    /// Devices that have come.
    pub devices: Vec<OwnedFd>,
}

impl Talk {
    /// Nothing has been said.
    pub fn new(stream: UnixStream) -> Talk {
        Talk { stream, devices: Vec::new() }
    }

    /// The socket.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Says a message within `limit`.
    pub async fn say(&self, message: &Message, limit: Duration) -> io::Result<()> {
        self.say_with(message, &[], limit).await
    }

    /// The same, with devices beside.
    pub async fn say_with(
        &self,
        message: &Message,
        devices: &[BorrowedFd<'_>],
        limit: Duration,
    ) -> io::Result<()> {
        let bytes = message.encode();
        let (mut rest, mut devices) = (&bytes[..], devices);
        let saying = async {
            while !rest.is_empty() {
                let send = || hand::send(&self.stream, rest, devices);
                let sent = self.stream.async_io(Interest::WRITABLE, send).await?;
                (rest, devices) = (&rest[sent..], &[]);
            }
            Ok(())
        };
        within(limit, saying).await
    }

    /// The next message, within `limit`.
    pub async fn hear(&mut self, limit: Duration) -> io::Result<Message> {
        within(limit, async {
            let mut head = [0; HEAD_BYTES];
            self.fill(&mut head).await?;
            let (number, length) = Message::head(head).map_err(malformed)?;
            let mut body = Vec::new();
            // Grows as bytes arrive, whatever the head says.
            while body.len() < length {
                let from = body.len();
                body.resize(length.min(from + PART_BYTES), 0);
                self.fill(&mut body[from..]).await?;
            }
            Message::decode(number, body.into()).map_err(malformed)
        })
        .await
    }

    /// Completes when the other end has closed, or has said something that nobody asked for.
    pub async fn ends(&self, limit: Duration) {
        // Asked each time: that something could be read once says nothing of now.
        let looks = || {
            let seen = recv(&self.stream, &mut [0; 1], RecvFlags::PEEK)?;
            Ok::<_, io::Error>(seen.0)
        };
        let ended = self.stream.async_io(Interest::READABLE, looks);
        let _ = tokio::time::timeout(limit, ended).await;
    }

    async fn fill(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let receive = || hand::receive(&self.stream, into);
            let (received, devices) = self.stream.async_io(Interest::READABLE, receive).await?;
            if received == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has gone away"));
            }
            self.devices.extend(devices);
            into = &mut into[received..];
        }
        Ok(())
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"));
    tokio::time::timeout(limit, work).await.map_err(late)?
}

fn malformed(blame: covey_wire::Blame) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, blame.to_string())
}

/// Memory is taken for so much of a message before that has arrived.
const PART_BYTES: usize = 1 << 20;
