//! Small writes that are taken together, where their initiator does not wait for the answer to each.
//!
//! An initiator with many writes under way that is slower than its target sends one after the other, and reads answers later. A
//! target that wakes for each of them spends more on waking, receiving and sending than on the write. ExpStatSN says how many
//! answers were sent that the initiator had not read when it sent its last command: at least as many commands come even if it
//! is told nothing more. So the connection sleeps until half of them have come, and some at most.
//!
//! Nothing says that such an initiator goes on: it may wait for the last of its writes. Then little comes, the connection
//! wakes a moment later, and for a while it wakes for everything.

use crate::message::{HEADER_BYTES, Header};
use crate::pdu::Pdu;
use std::time::{Duration, Instant};

/// Most commands that are waited for.
const COMMANDS_MAX: u32 = 8;
/// Writes of more bytes are worth a wake-up each.
const WRITE_BYTES_MAX: usize = 8 << 10;
/// How long is waited.
const PATIENCE: Duration = Duration::from_millis(1);
/// How long nothing is waited for after too little has come.
const REST: Duration = Duration::from_millis(100);

/// What is waited for on a connection.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Bytes of the last write that was taken and its ExpStatSN, as long as nothing else was.
    last: Option<(usize, u32)>,
    is_mixed: bool,
    /// How much is to come, and until when that is waited for.
    wanted: Option<(usize, Instant)>,
    rests_until: Option<Instant>,
}

impl Batch {
    /// Something has come.
    pub fn begin(&mut self) {
        (self.last, self.is_mixed) = (None, false);
    }

    /// A PDU of what has come.
    pub fn take(&mut self, pdu: &Pdu) {
        let bytes = pdu.data.len();
        match pdu.header {
            Ok(Header::ScsiCommand { exp_stat_sn, expected_bytes, .. })
                if (1..=WRITE_BYTES_MAX).contains(&bytes)
                    && bytes as u64 == expected_bytes.into() =>
            {
                self.last = Some((HEADER_BYTES + bytes, exp_stat_sn));
            }
            _ => self.is_mixed = true,
        }
    }

    /// All that has come was taken and is answered up to `next_stat_sn`, or is going to be.
    pub fn end(&mut self, now: Instant, next_stat_sn: u32) {
        self.wanted = None;
        let Some((bytes, exp_stat_sn)) = self.last.filter(|_| !self.is_mixed) else { return };
        let unread = next_stat_sn.wrapping_sub(exp_stat_sn).cast_signed().max(0).cast_unsigned();
        let commands = (unread / 2).min(COMMANDS_MAX);
        if commands > 1 && self.rests_until.is_none_or(|until| now >= until) {
            self.wanted = Some((commands as usize * bytes, now + PATIENCE));
        }
    }

    /// How many bytes are to come before it is worth waking for them.
    pub fn low_water(&self) -> usize {
        self.wanted.map_or(1, |(bytes, _)| bytes)
    }

    /// How long they are waited for.
    pub fn deadline(&self) -> Option<Instant> {
        self.wanted.map(|(_, until)| until)
    }

    /// Whether its time is over: perhaps the initiator waits for what it has sent.
    pub fn ring(&mut self, now: Instant) -> bool {
        let is_over = self.wanted.take_if(|(_, until)| now >= *until).is_some();
        if is_over {
            self.rests_until = Some(now + REST);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(bytes: usize, exp_stat_sn: u32, next_stat_sn: u32) -> usize {
        let mut batch = Batch { last: Some((bytes, exp_stat_sn)), ..Batch::default() };
        batch.end(Instant::now(), next_stat_sn);
        batch.low_water()
    }

    #[test]
    fn half_of_what_is_sure_to_come_is_waited_for() {
        let waits: Vec<_> =
            (0..20).map(|unread| batch(100, u32::MAX, u32::MAX.wrapping_add(unread))).collect();
        assert_eq!(waits[..6], [1, 1, 1, 1, 200, 200]);
        assert_eq!((waits[15], waits[16], waits[19]), (700, 800, 800));
        // Nobody has read what was not sent.
        assert_eq!(batch(100, 20, 10), 1);
    }
}
