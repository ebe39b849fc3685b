//! The contract between a protocol and the loop that runs it.

use crate::{Blame, FileRange, Landing, Segments};
use bytes::{Bytes, BytesMut};
use std::task::{Context, Poll};
use std::time::Instant;

/// What may become of the payload of the message that comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deposit {
    /// It is read like anything else.
    No,
    /// It may be of use to read so many bytes first, and no more: to the end of a header, or to where the
    /// next one begins.
    UpTo(usize),
    /// What is in the input is the header of a message, and its payload, all that follows in it, may go
    /// straight into this range of a file.
    Into(FileRange),
}

/// A protocol as a pure state machine: one side of one connection.
///
/// Methods come in three kinds, none of them async, and none reads a clock:
///
/// - `handle_*`: something arrived, bytes or a deadline;
/// - `poll_*`: what the caller must do next;
/// - everything else a machine has of its own: commands and answers of its user.
///
/// After any call of the first or third kind the caller polls `poll_output` until it is empty, then
/// sleeps until the socket is readable or `poll_deadline` has come. Output may be joined into as
/// few writes as the caller likes; its order is the protocol's.
pub trait Machine {
    /// Takes complete messages off the front of `input` and leaves the rest there. An error ends
    /// the connection, after what `poll_output` still has.
    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Blame>;

    /// Takes what comes right behind `input` and lies in memory of its own already: where it is a
    /// payload, it stays there. A machine that does not know how copies it.
    fn handle_placed(
        &mut self,
        now: Instant,
        input: &mut BytesMut,
        placed: Bytes,
    ) -> Result<(), Blame> {
        input.extend_from_slice(&placed);
        self.handle_input(now, input)
    }

    /// The deadline of `poll_deadline` has passed. An error ends the connection.
    fn handle_timeout(&mut self, now: Instant) -> Result<(), Blame>;

    /// Moves output into `out` up to about `bytes_max` bytes; false when there was none.
    fn poll_output(&mut self, out: &mut Segments, bytes_max: usize) -> bool;

    /// When `handle_timeout` is due.
    fn poll_deadline(&self) -> Option<Instant>;

    /// Lets the machine's user act: completes when `poll_output` is worth another call, or an error
    /// ends the connection. A machine that only answers input is always pending here.
    fn poll_user(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Blame>> {
        let _ = context;
        Poll::Pending
    }

    /// How many more bytes the message at the front of `input` needs: how much to read at least.
    fn bytes_wanted(&self, input: &[u8]) -> usize;

    /// How much output the loop may hold for a peer that does not take it, in bytes, where that is less
    /// than the loop's own limit.
    fn output_bytes_max(&self) -> usize {
        usize::MAX
    }

    /// Whether it has left whole messages in the input for the next turn, so that what it has answered so far is sent first: a
    /// peer with many requests under way goes on meanwhile. Then `handle_input` is called again without more to read.
    fn has_left(&self) -> bool {
        false
    }

    /// Whether the machine would rather not be given more input now: its user is behind.
    fn is_full(&self) -> bool {
        false
    }

    /// How many bytes there are to be before it is worth waking for them. A machine for which it is more than one has a deadline
    /// after which it is one again: of what comes, less may come for now.
    fn low_water(&self) -> usize {
        1
    }

    /// Where the payload of the message that comes next may go. After `Into` the loop either puts all of
    /// it there and calls `deposited`, or reads it like anything else; nothing else is called before.
    fn deposit(&mut self, input: &[u8]) -> Deposit {
        let _ = input;
        Deposit::No
    }

    /// The payload of the message whose header is `input` was taken off the stream: so many bytes of it
    /// were written, or none because of a system error. To be taken off the input is the header.
    fn deposited(&mut self, input: &mut BytesMut, written: Result<usize, i32>) {
        let _ = (input, written);
        unreachable!("nothing was to be deposited");
    }

    /// Where in its user's memory the rest of the message that has begun goes. What of it is in `input` is put there, and
    /// only the header stays. Then the loop fills the place and calls `landed`; `handle_input` may be called before, as
    /// a sign of life.
    fn landing(&mut self, input: &mut BytesMut) -> Option<Landing> {
        let _ = input;
        None
    }

    /// The payload of the message whose header is `input` is where it was to go. To be taken off the input is the header.
    fn landed(
        &mut self,
        now: Instant,
        input: &mut BytesMut,
        landing: Landing,
    ) -> Result<(), Blame> {
        let _ = (now, input, landing);
        unreachable!("nothing was to land");
    }
}
