//! What was read from a socket and is not delivered yet.
//!
//! Frames are read into a buffer, many at once, and lent from there. A payload that is longer than what is there is
//! read into its place, together with a little of what follows it.

use super::POST_BYTES_MAX;
use super::link::{HELLO, MARK, PREFIX_BYTES};
use covey_wire::transport::{HEAD_BYTES_MAX, Sink};
use covey_wire::{Peer, Span};
use std::io;

/// Read at once at most; each has room for a packet that is copied.
const BUFFER_BYTES: usize = 80 << 10;
/// Read at once where little came before: what is long goes on into its place, and is not copied from here.
const FIRST_BYTES: usize = 8 << 10;
/// A longer payload is asked a place for when not all of it is there.
const PLACED_BYTES_MIN: usize = 4 << 10;
/// Read together with the rest of a payload: what of the next one comes here has to be copied.
const BEHIND_BYTES: usize = 512;
/// Memory for a payload without a place is taken in steps, as it comes.
const HELD_STEP_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Incoming {
    buffer: Box<[u8]>,
    begin: usize,
    end: usize,
    /// Read at once next.
    next_bytes: usize,
    has_hello: bool,
    is_closed: bool,
    payload: Option<Payload>,
}

/// A payload of which a part is still to come. The buffer is empty meanwhile.
#[derive(Debug)]
struct Payload {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    bytes: usize,
    filled: usize,
    goes: To,
}

#[derive(Debug)]
enum To {
    Place(Span),
    Held(Vec<u8>),
}

/// What a read brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// There may be more.
    pub is_all_that_was_asked: bool,
    /// Bytes of a payload that has a place, or is held.
    pub is_of_a_payload: bool,
}

struct Frame {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    payload: usize,
}

impl Incoming {
    pub fn new() -> Incoming {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Incoming {
            buffer,
            begin: 0,
            end: 0,
            next_bytes: FIRST_BYTES,
            has_hello: false,
            is_closed: false,
            payload: None,
        }
    }

    /// Drops what has come, and takes nothing more.
    pub fn close(&mut self) {
        (self.begin, self.end, self.payload) = (0, 0, None);
        self.is_closed = true;
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the other end has said hello.
    pub fn greeted(&mut self) -> io::Result<bool> {
        if !self.has_hello && self.end - self.begin >= HELLO.len() {
            if self.buffer[self.begin..][..HELLO.len()] != HELLO {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.begin += HELLO.len();
            self.has_hello = true;
        }
        Ok(self.has_hello)
    }

    /// Reads once.
    pub fn receive(&mut self, socket: i32) -> io::Result<Read> {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let rest = self.payload.as_mut().map(Payload::room);
        // What is behind a payload is read only together with all that is left of it.
        let room = match (&self.payload, &rest) {
            (Some(payload), Some(rest)) if rest.iov_len < payload.bytes - payload.filled => 0,
            (Some(_), _) => BEHIND_BYTES,
            (None, _) => self.next_bytes.min(self.buffer.len() - self.end),
        };
        let room = &mut self.buffer[self.end..][..room];
        let behind = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        let mut list = [rest.unwrap_or(behind), behind];
        let list = &mut list[..1 + usize::from(rest.is_some())];
        let wanted: usize = list.iter().map(|one| one.iov_len).sum();
        let count = read(socket, list)?;
        let of_payload = rest.map_or(0, |rest| count.min(rest.iov_len));
        if let Some(payload) = &mut self.payload {
            payload.filled += of_payload;
            payload.settle();
        }
        self.end += count - of_payload;
        if rest.is_none() {
            // As long as there is more than is asked for, more is asked for.
            let more = (self.next_bytes * 4).min(BUFFER_BYTES);
            self.next_bytes = if count == wanted { more } else { FIRST_BYTES };
        }
        Ok(Read { is_all_that_was_asked: count == wanted, is_of_a_payload: of_payload > 0 })
    }

    /// Delivers what is whole, so many packets at most.
    pub fn deliver(
        &mut self,
        peer: Peer,
        budget: usize,
        sink: &mut impl Sink,
    ) -> io::Result<usize> {
        if !self.greeted()? {
            return Ok(0);
        }
        let mut count = 0;
        while count < budget {
            if let Some(payload) = self.payload.take_if(|payload| payload.filled == payload.bytes) {
                payload.deliver(peer, sink);
                count += 1;
                continue;
            }
            if self.payload.is_some() {
                break;
            }
            let Some(frame) = self.frame()? else { break };
            let begin = self.begin + PREFIX_BYTES + frame.head_bytes;
            let there = (self.end - begin).min(frame.payload);
            if there == frame.payload {
                let payload = &self.buffer[begin..][..there];
                self.begin = begin + there;
                sink.packet(peer, &frame.head[..frame.head_bytes], payload);
                count += 1;
            } else if frame.payload >= PLACED_BYTES_MIN {
                let payload = Payload::begin(&frame, &self.buffer[begin..][..there], peer, sink);
                self.begin = begin + there;
                self.payload = Some(payload);
                self.next_bytes = FIRST_BYTES;
            } else {
                break;
            }
        }
        Ok(count)
    }

    /// Whether something is whole.
    pub fn has_frame(&self) -> bool {
        match (&self.payload, self.frame()) {
            (Some(payload), _) => payload.filled == payload.bytes,
            (None, Ok(Some(frame))) => {
                self.has_hello
                    && self.end - self.begin >= PREFIX_BYTES + frame.head_bytes + frame.payload
            }
            (None, Ok(None)) => false,
            (None, Err(_)) => true,
        }
    }

    /// The frame at the beginning, if its head is there.
    fn frame(&self) -> io::Result<Option<Frame>> {
        let there = &self.buffer[self.begin..self.end];
        let Some((prefix, rest)) = there.split_first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let [a, b, c, d, head_bytes, mark @ ..] = *prefix;
        let (payload, head_bytes) =
            (u32::from_le_bytes([a, b, c, d]) as usize, usize::from(head_bytes));
        if mark != MARK || head_bytes > HEAD_BYTES_MAX || payload > POST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some(there) = rest.get(..head_bytes) else { return Ok(None) };
        let mut head = [0; HEAD_BYTES_MAX];
        head[..head_bytes].copy_from_slice(there);
        Ok(Some(Frame { head, head_bytes, payload }))
    }
}

impl Payload {
    /// A payload whose first bytes are there.
    fn begin(frame: &Frame, first: &[u8], peer: Peer, sink: &mut impl Sink) -> Payload {
        let head = &frame.head[..frame.head_bytes];
        let place = sink.place(peer, head, frame.payload);
        let place = place.filter(|place| place.bytes == frame.payload as u64);
        let goes = match place {
            Some(place) => {
                put(first, place);
                To::Place(place)
            }
            None => To::Held(first.to_vec()),
        };
        let (head, head_bytes) = (frame.head, frame.head_bytes);
        Payload { head, head_bytes, bytes: frame.payload, filled: first.len(), goes }
    }

    /// Where the next bytes go.
    fn room(&mut self) -> libc::iovec {
        match &mut self.goes {
            To::Place(place) => {
                let rest = (self.bytes - self.filled) as u64;
                piece(place.part(self.filled as u64, rest).unwrap_or_default())
            }
            To::Held(held) => {
                let next = (self.bytes - self.filled).min(HELD_STEP_BYTES);
                held.resize(self.filled + next, 0);
                let room = &mut held[self.filled..];
                libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }
            }
        }
    }

    /// Only what has come is held.
    fn settle(&mut self) {
        if let To::Held(held) = &mut self.goes {
            held.truncate(self.filled);
        }
    }

    fn deliver(self, peer: Peer, sink: &mut impl Sink) {
        let head = &self.head[..self.head_bytes];
        match self.goes {
            To::Place(_) => sink.placed(peer, head, self.bytes),
            To::Held(held) => sink.packet(peer, head, &held),
        }
    }
}

/// Memory by its address, for the kernel.
pub(super) fn piece(span: Span) -> libc::iovec {
    let base = std::ptr::with_exposed_provenance_mut::<u8>(span.address as usize);
    libc::iovec { iov_base: base.cast(), iov_len: span.bytes as usize }
}

/// Copies what came together with something else to the beginning of its place.
fn put(first: &[u8], place: Span) {
    let base = std::ptr::with_exposed_provenance_mut::<u8>(place.address as usize);
    // SAFETY: the engine named this memory, which is its own to write until it hears `placed`, and which has room for the
    // whole payload; the buffer is ours alone.
    unsafe { std::ptr::copy_nonoverlapping(first.as_ptr(), base, first.len()) };
}

fn read(socket: i32, list: &mut [libc::iovec]) -> io::Result<usize> {
    loop {
        // SAFETY: the kernel writes to the buffer, which is ours, to what is held, and to the place that the engine named.
        // A header of zeroes is one without anything.
        let count = unsafe {
            match list {
                // Packets: the shorter way through the kernel.
                [one] => libc::recv(socket, one.iov_base, one.iov_len, libc::MSG_DONTWAIT),
                _ => {
                    let mut message: libc::msghdr = std::mem::zeroed();
                    message.msg_iov = list.as_mut_ptr();
                    message.msg_iovlen = list.len() as _;
                    libc::recvmsg(socket, &raw mut message, libc::MSG_DONTWAIT)
                }
            }
        };
        match usize::try_from(count) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => return Ok(count),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}
