//! The one loop that runs any protocol machine over a byte stream.
//!
//! A turn of the loop reads once, lets the machine work, and writes everything it answered with one
//! gathered write; the task sleeps only after a turn in which nothing moved. A quiet request costs
//! three system calls: a read, a write and the wait for the next event.
//!
//! What always holds:
//! - a large message is received into one contiguous buffer of its own, so that its payload can be
//!   split off without a copy; small messages share a buffer;
//! - no timer is touched unless the machine's deadline moved to an earlier time;
//! - a machine that is full, or whose peer does not take its output, is given no more input;
//! - a payload that has a place in its user's memory (`Machine::landing`) is received there;
//! - a payload that is to be put into a file (`Machine::deposit`) goes there whole, or is read like others;
//! - an observer hears of everything that was read from a socket, once its message is whole;
//! - what a file lends is sent or copied before the machine is called again;
//! - the future is `Send` when machine and stream are, and allocates nothing per message itself.

use super::file::{Received, read_range};
use crate::task::{self, Alarm};
use bytes::{BufMut, Bytes, BytesMut};
use covey_wire::{Blame, Deposit, FileRange, Landing, Machine, Piece, Segments};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// A byte stream that the loop can run on: a [`super::net::Stream`], tokio's own and the like.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// Writes of the front of `output`, where files are among what is to be sent, or payloads need not be sent
    /// ([`Self::places`]); answers how much. By way of memory, where nothing better is known.
    fn poll_write_files(
        &mut self,
        context: &mut Context<'_>,
        output: &Segments,
    ) -> Poll<io::Result<usize>> {
        write_front(self, context, output)
    }

    /// Whether payloads come in memory of their own: then nobody need make room for large ones, and all output goes by
    /// [`Self::poll_write_files`].
    fn places(&self) -> bool {
        false
    }

    /// Receives what has come.
    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        input: &mut BytesMut,
        bytes_max: usize,
    ) -> Poll<io::Result<Arrived>> {
        read_into(self, context, input, bytes_max)
    }

    /// Receives into a place that has room; answers how much, nothing where the peer has closed. Meanwhile the stream
    /// may keep the place.
    fn poll_land(
        &mut self,
        context: &mut Context<'_>,
        landing: &mut Landing,
    ) -> Poll<io::Result<usize>> {
        read_into_place(self, context, landing)
    }

    /// So many bytes are to be there before the stream counts as readable. Those that cannot wait so are readable sooner.
    fn set_low_water(&mut self, bytes: usize) {
        let _ = bytes;
    }

    /// How many bytes are worth waking for where a message is short of `wanted`.
    fn worth_waking_for(&self, wanted: usize) -> usize {
        let _ = wanted;
        1
    }

    /// Takes the next `range.length` bytes off the stream and puts them into the file, if all of them are
    /// there. Most streams cannot.
    fn receive(&mut self, range: &FileRange) -> io::Result<Received> {
        let _ = range;
        Ok(Received::Nothing)
    }
}

/// Is told what comes through a connection.
pub trait Observer<S> {
    /// The peer has asked something: `bytes` were read for it, in one part or several, while an answer to something before it
    /// was owed or not.
    fn heard(&mut self, stream: &S, bytes: usize, owed: bool);
}

/// Nobody listens.
impl<S> Observer<S> for () {
    fn heard(&mut self, _stream: &S, _bytes: usize, _owed: bool) {}
}

/// What was received.
#[derive(Debug)]
pub enum Arrived {
    /// So many bytes were appended to the input; none where the peer has closed.
    Bytes(usize),
    /// These come next, in memory of their own.
    Placed(Bytes),
}

/// Writes what `output` begins with, by way of memory where it lies in a file.
pub(crate) fn write_front(
    stream: &mut (impl AsyncWrite + Unpin + ?Sized),
    context: &mut Context<'_>,
    output: &Segments,
) -> Poll<io::Result<usize>> {
    let mut copy = Vec::new();
    let bytes = match output.pieces().next() {
        None => return Poll::Ready(Ok(0)),
        Some(Piece::Memory(bytes)) => bytes,
        Some(Piece::File(range)) => {
            copy = read_range(range)?;
            &copy
        }
        Some(Piece::Loan(loan)) => {
            loan.copy(&mut copy).map_err(|blame| io::Error::other(blame.to_string()))?;
            &copy
        }
    };
    Pin::new(stream).poll_write(context, bytes)
}

/// The runs in memory that `output` begins with, and whether nothing else is among those for one write.
pub(crate) fn front_slices<'a>(
    output: &'a Segments,
    slices: &mut [IoSlice<'a>; SLICES_MAX],
) -> (usize, bool) {
    let mut count = 0;
    for (slice, piece) in slices.iter_mut().zip(output.pieces()) {
        let Piece::Memory(bytes) = piece else { return (count, false) };
        *slice = IoSlice::new(bytes);
        count += 1;
    }
    (count, true)
}

/// Receives from a stream that appends to the input.
pub(crate) fn read_into(
    stream: &mut (impl AsyncRead + Unpin + ?Sized),
    context: &mut Context<'_>,
    input: &mut BytesMut,
    bytes_max: usize,
) -> Poll<io::Result<Arrived>> {
    let mut room = input.limit(bytes_max);
    pin!(stream.read_buf(&mut room)).poll(context).map_ok(Arrived::Bytes)
}

/// Receives from a stream into a place.
pub(crate) fn read_into_place(
    stream: &mut (impl AsyncRead + Unpin + ?Sized),
    context: &mut Context<'_>,
    landing: &mut Landing,
) -> Poll<io::Result<usize>> {
    let mut room = ReadBuf::new(landing.room());
    ready!(Pin::new(stream).poll_read(context, &mut room))?;
    let count = room.filled().len();
    landing.advance(count);
    Poll::Ready(Ok(count))
}

impl Stream for tokio::net::TcpStream {}
impl Stream for tokio::net::UnixStream {}
impl Stream for tokio::io::DuplexStream {}

/// Runs `machine` over `stream` until the peer closes it in good order (`Ok`), breaks the protocol,
/// or the stream fails. What the machine has to say last is sent before this returns, if the peer
/// takes it within a second.
pub async fn run<M: Machine, S: Stream>(machine: M, stream: S) -> Result<(), Blame> {
    run_on(machine, stream, BytesMut::new(), ()).await
}

/// The same with what was received for the machine before, and with an observer.
pub async fn run_on<M: Machine, S: Stream, O: Observer<S>>(
    machine: M,
    stream: S,
    input: BytesMut,
    observer: O,
) -> Result<(), Blame> {
    let mut link = Link::new(machine, stream, observer);
    link.input = input;
    let end = poll_fn(|context| link.poll_turns(context)).await;
    link.end(end).await
}

/// Runs `machine` until it is done and all that it said has been sent. Answers it, the stream and what was
/// received and not taken, for [`run_on`]; `None` where the peer has closed before.
pub async fn run_until<M: Machine, S: Stream>(
    machine: M,
    stream: S,
    is_done: impl Fn(&M) -> bool,
) -> Result<Option<(M, S, BytesMut)>, Blame> {
    let mut link = Link::new(machine, stream, ());
    let done = poll_fn(|context| {
        if let Poll::Ready(end) = link.poll_turns(context) {
            return Poll::Ready(end.map(|()| false));
        }
        // A machine that is done takes nothing more, so the turns have ended.
        let is_done = is_done(&link.machine) && link.output.is_empty();
        if is_done { Poll::Ready(Ok(true)) } else { Poll::Pending }
    });
    match done.await {
        Ok(true) => Ok(Some((link.machine, link.stream, link.input))),
        end => link.end(end.map(|_| ())).await.map(|()| None),
    }
}

/// A machine, its stream, and what is on the way between them.
struct Link<M, S, O> {
    machine: M,
    stream: S,
    observer: O,
    /// Whether the machine was given a whole message and nothing was written since.
    owes: bool,
    /// Bytes of a message whose rest is to come.
    unheard_bytes: usize,
    input: BytesMut,
    /// Where the rest of the message goes whose header is the input.
    landing: Option<Landing>,
    output: Segments,
    alarm: Alarm,
    /// What the stream was told of it last.
    low_water: usize,
    /// The largest message met since the input buffer was last made: what to make the next one for.
    expected_bytes: usize,
    can_write: bool,
}

/// What one turn of the loop came to.
#[derive(PartialEq, Eq)]
enum Turn {
    /// Something moved: turn again.
    Moved,
    /// Nothing moved, and all wakers are set.
    Still,
    /// The peer has closed its side.
    Closed,
}

impl<M: Machine, S: Stream, O: Observer<S>> Link<M, S, O> {
    fn new(machine: M, stream: S, observer: O) -> Self {
        Link {
            machine,
            stream,
            observer,
            owes: false,
            unheard_bytes: 0,
            input: BytesMut::new(),
            landing: None,
            output: Segments::new(),
            alarm: Alarm::default(),
            low_water: 1,
            expected_bytes: 0,
            can_write: true,
        }
    }

    /// After the last turn: what the machine says last is still sent.
    async fn end(mut self, end: Result<(), Blame>) -> Result<(), Blame> {
        if self.can_write {
            self.last_words().await;
        }
        end
    }

    fn poll_turns(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Blame>> {
        for _ in 0..TURNS_MAX {
            match self.turn(context)? {
                Turn::Moved => continue,
                Turn::Still => return Poll::Pending,
                Turn::Closed => return Poll::Ready(self.closed()),
            }
        }
        // Other connections of this thread want their turn, too.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn turn(&mut self, context: &mut Context<'_>) -> Result<Turn, Blame> {
        let read = self.read(context)?;
        let rang = self.ring(context)?;
        let acted = match self.machine.poll_user(context) {
            Poll::Ready(result) => result.map(|()| true)?,
            Poll::Pending => false,
        };
        let wrote = self.write(context)?;
        Ok(match read {
            Turn::Still if rang || acted || wrote => Turn::Moved,
            read => read,
        })
    }

    /// Reads once and hands what came to the machine.
    fn read(&mut self, context: &mut Context<'_>) -> Result<Turn, Blame> {
        if self.machine.is_full() || self.output.len() > self.output_bytes_max() {
            return Ok(Turn::Still);
        }
        if self.machine.has_left() {
            self.machine.handle_input(task::now(), &mut self.input)?;
            return Ok(Turn::Moved);
        }
        if self.landing.is_none() {
            self.landing = self.machine.landing(&mut self.input);
        }
        if let Some(landing) = self.landing.take() {
            return self.land(context, landing);
        }
        let Some(limit) = self.limit()? else { return Ok(Turn::Moved) };
        let received = self.stream.poll_receive(context, &mut self.input, limit);
        let Poll::Ready(received) = received else {
            return Ok(self.wait_for(self.machine.bytes_wanted(&self.input)));
        };
        match received.map_err(|error| self.broken("read", error))? {
            Arrived::Bytes(0) => return Ok(Turn::Closed),
            Arrived::Bytes(count) => {
                self.note_large(count);
                let held = self.input.len();
                self.machine.handle_input(task::now(), &mut self.input)?;
                self.heard(count, self.input.len() < held);
            }
            Arrived::Placed(bytes) => {
                self.machine.handle_placed(task::now(), &mut self.input, bytes)?;
            }
        }
        Ok(Turn::Moved)
    }

    /// Nothing has come, and a message is short of `wanted` bytes. The stream wakes at once where what it is told to wait for is
    /// there already.
    fn wait_for(&mut self, wanted: usize) -> Turn {
        let low_water = self.machine.low_water().max(self.stream.worth_waking_for(wanted));
        if low_water != self.low_water {
            self.stream.set_low_water(low_water);
            self.low_water = low_water;
        }
        Turn::Still
    }

    /// Receives what has a place of its own.
    fn land(&mut self, context: &mut Context<'_>, mut landing: Landing) -> Result<Turn, Blame> {
        let received = match self.stream.poll_land(context, &mut landing) {
            Poll::Ready(received) => received.map_err(|error| self.broken("read", error))?,
            Poll::Pending => {
                let wanted = landing.wanted();
                self.landing = Some(landing);
                return Ok(self.wait_for(wanted));
            }
        };
        if received == 0 {
            return Ok(Turn::Closed);
        }
        let is_whole = landing.wanted() == 0;
        self.heard(received, is_whole);
        if is_whole {
            self.machine.landed(task::now(), &mut self.input, landing)?;
        } else {
            self.landing = Some(landing);
            // A part of a message is a sign of life.
            self.machine.handle_input(task::now(), &mut self.input)?;
        }
        Ok(Turn::Moved)
    }

    /// Tells the observer of what was read, once a message has ended with it: many peers send a header and its data apart,
    /// and still wait for each answer. Through shared memory nobody is woken, and nothing is won by moving to the peer's CPU.
    fn heard(&mut self, bytes: usize, is_whole: bool) {
        if self.stream.places() {
            return;
        }
        self.unheard_bytes += bytes;
        if is_whole {
            let owed = std::mem::replace(&mut self.owes, true);
            self.observer.heard(&self.stream, std::mem::take(&mut self.unheard_bytes), owed);
        }
    }

    /// How much to receive. `None` when a payload went its own way instead.
    fn limit(&mut self) -> Result<Option<usize>, Blame> {
        if self.stream.places() {
            return Ok(Some(READ_BYTES));
        }
        let may_read = match self.machine.deposit(&self.input) {
            Deposit::No => usize::MAX,
            Deposit::UpTo(bytes) => bytes,
            Deposit::Into(range) => {
                let received = self.stream.receive(&range);
                match received.map_err(|error| self.broken("read", error))? {
                    Received::Taken(written) => {
                        self.heard(range.length, true);
                        self.machine.deposited(&mut self.input, written);
                        return Ok(None);
                    }
                    // Up to its end, so that the next one begins with its header again.
                    Received::Nothing => range.length,
                }
            }
        };
        Ok(Some(self.make_room().min(may_read)))
    }

    /// Makes the buffer large enough for the message that has begun, and answers how much to read:
    /// of a large message exactly its rest, so that the next one starts in a buffer of its own;
    /// otherwise all that fits.
    fn make_room(&mut self) -> usize {
        let wanted = self.machine.bytes_wanted(&self.input).max(1);
        let spare = self.input.capacity() - self.input.len();
        if spare < wanted.max(SPARE_BYTES_MIN) {
            self.input.reserve(wanted.max(READ_BYTES).max(self.expected_bytes));
            self.expected_bytes = 0;
        }
        if wanted > READ_BYTES {
            self.note_large(self.input.len() + wanted);
            return wanted;
        }
        self.input.capacity() - self.input.len()
    }

    fn note_large(&mut self, count: usize) {
        if count > READ_BYTES {
            self.expected_bytes = self.expected_bytes.max(count);
        }
    }

    /// Wakes the machine when its deadline has come; whether it did.
    fn ring(&mut self, context: &mut Context<'_>) -> Result<bool, Blame> {
        let Some(deadline) = self.machine.poll_deadline() else { return Ok(false) };
        if self.alarm.poll(deadline, context).is_pending() {
            return Ok(false);
        }
        self.machine.handle_timeout(task::now())?;
        Ok(true)
    }

    /// Writes until nothing is left or the stream takes no more; whether anything was written.
    fn write(&mut self, context: &mut Context<'_>) -> Result<bool, Blame> {
        let mut wrote = false;
        let held_max = self.output_bytes_max();
        loop {
            while self.output.len() < held_max
                && self.machine.poll_output(&mut self.output, held_max)
            {}
            if self.output.is_empty() {
                return Ok(wrote);
            }
            match self.write_once(context) {
                Poll::Pending => {
                    // What the machine does next must not show in what it has said.
                    self.output.settle()?;
                    return Ok(wrote);
                }
                Poll::Ready(Ok(())) => wrote = true,
                Poll::Ready(Err(error)) => {
                    self.can_write = false;
                    return Err(self.broken("write", error));
                }
            }
        }
    }

    /// How much output is held before input is refused.
    fn output_bytes_max(&self) -> usize {
        self.machine.output_bytes_max().min(OUTPUT_BYTES_MAX)
    }

    fn write_once(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = ready!(self.write_some(context))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.output.advance(written);
        self.owes = false;
        Poll::Ready(Ok(()))
    }

    /// One system call's worth.
    fn write_some(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.stream.places() {
            return self.stream.poll_write_files(context, &self.output);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        match front_slices(&self.output, &mut slices) {
            (count, true) => {
                Pin::new(&mut self.stream).poll_write_vectored(context, &slices[..count])
            }
            (_, false) => self.stream.poll_write_files(context, &self.output),
        }
    }

    /// The peer has closed: in good order only between messages.
    fn closed(&self) -> Result<(), Blame> {
        match self.input.len() {
            0 => Ok(()),
            got => {
                let wanted = self.machine.bytes_wanted(&self.input);
                Err(Blame::Malformed(format!(
                    "connection closed inside a message, after {got} bytes with {wanted} to come"
                )))
            }
        }
    }

    fn broken(&self, what: &str, error: io::Error) -> Blame {
        Blame::Io(format!("cannot {what} the connection: {error}"))
    }

    /// Sends what the machine still has, for a peer that still listens.
    async fn last_words(&mut self) {
        let patience = task::now() + LAST_WORDS_MAX;
        let mut alarm = Alarm::default();
        poll_fn(|context| {
            let failed = self.write(context).is_err();
            if failed || self.output.is_empty() {
                return Poll::Ready(());
            }
            alarm.poll(patience, context)
        })
        .await
    }
}

/// What is read at once when messages are small.
const READ_BYTES: usize = 64 << 10;
/// A buffer with less room than this is replaced, so that reads do not become tiny.
const SPARE_BYTES_MIN: usize = 16 << 10;
/// How much output is held for a peer that does not take it, before input is refused.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// Runs per write. More than this never pays.
pub(crate) const SLICES_MAX: usize = 64;
/// Turns before the thread is given to others.
const TURNS_MAX: usize = 32;
/// How long a connection that is over waits for the peer to take what was said last.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
