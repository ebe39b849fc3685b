//! How a connection over a unix socket becomes one through shared memory.
//!
//! Whoever connects says [`GREETING`] first, which is the beginning of no 9P message, and is answered with one byte: 1, and
//! both meet as [`shm`] tells, or 0, and the connection goes on as any other. Only processes of one user share memory:
//! what one of them may do to the other's, it may do anyway.

use super::{QuietStream, Stream};
use crate::os::credentials;
use crate::os::shm::{self, Channel};
use crate::task::blocking;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What is said before anything else.
const GREETING: &[u8; 8] = b"COVEYSH1";
const YES: u8 = 1;
const NO: u8 = 0;
/// Most connections of a process that share memory: each has some descriptors and a mapping of 33 MiB on either side.
const SHARED_MAX: u32 = 256;

/// A connection that has been accepted, through shared memory if that is what its peer wants.
pub async fn welcome(stream: Stream) -> io::Result<Stream> {
    let Stream::Unix(mut stream) = stream else { return Ok(stream) };
    if !stream.peek(GREETING).await? {
        return Ok(Stream::Unix(stream));
    }
    stream.read_exact(&mut [0; GREETING.len()]).await?;
    let Some(place) = Place::take().filter(|_| is_ours(&stream)) else {
        stream.write_all(&[NO]).await?;
        return Ok(Stream::Unix(stream));
    };
    stream.write_all(&[YES]).await?;
    // One of two on the same CPU goes to another one: the server does.
    share(stream, place, Channel::making_way).await
}

/// Asks for shared memory over a connection that was just made. Without it where the server does not want to.
pub async fn ask(stream: Stream) -> io::Result<Stream> {
    let Stream::Unix(mut stream) = stream else { return Ok(stream) };
    let Some(place) = Place::take().filter(|_| is_ours(&stream)) else {
        return Ok(Stream::Unix(stream));
    };
    stream.write_all(GREETING).await?;
    match stream.read_u8().await {
        Ok(YES) => share(stream, place, |channel| channel).await,
        Ok(NO) => Ok(Stream::Unix(stream)),
        Ok(_) => Err(stranger()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(stranger()),
        Err(error) => Err(error),
    }
}

fn stranger() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server there does not know of shared memory")
}

async fn share(
    stream: QuietStream,
    place: Place,
    end: fn(Channel) -> Channel,
) -> io::Result<Stream> {
    let stream = stream.into_std()?;
    let met = blocking(move || shm::meet(stream)).await?;
    Ok(Stream::Shared(Box::new(Shared { channel: end(Channel::new(met)?), _place: place })))
}

/// Whether the process at the other end belongs to this user.
fn is_ours(stream: &QuietStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    credentials::peer(stream.as_fd()).is_ok_and(|peer| peer.uid == own)
}

/// A connection through shared memory.
#[derive(Debug)]
pub struct Shared {
    pub(super) channel: Channel,
    _place: Place,
}

/// One of the connections of this process that share memory.
#[derive(Debug)]
struct Place;

static TAKEN: AtomicU32 = AtomicU32::new(0);

impl Place {
    fn take() -> Option<Place> {
        let more = |taken| (taken < SHARED_MAX).then_some(taken + 1);
        TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok().then_some(Place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}
