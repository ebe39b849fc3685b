//! How much data a connection's initiator is asked for: the credit that R2Ts give.
//!
//! The initiator of a kernel cannot be told how fast to write. What it writes beyond its first burst it is asked for, so the
//! target that asks later, and for less at a time, has it write slower. Whoever knows what the port can take sets the credit,
//! from any thread, while the connection lives.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The credit of one connection.
#[derive(Debug)]
pub struct Credit {
    window: AtomicU64,
    rate: AtomicU64,
}

impl Default for Credit {
    fn default() -> Credit {
        Credit { window: AtomicU64::new(u64::MAX), rate: AtomicU64::new(u64::MAX) }
    }
}

impl Credit {
    /// How many bytes may be asked for and not have come; `None` is as many as there is memory for.
    pub fn set_window(&self, bytes: Option<u64>) {
        self.window.store(bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How many bytes are asked for in a second; `None` is without limit.
    pub fn set_rate(&self, bytes_per_s: Option<u64>) {
        self.rate.store(bytes_per_s.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn has_window(&self) -> bool {
        self.window() < u64::MAX
    }

    pub(super) fn window(&self) -> u64 {
        self.window.load(Ordering::Relaxed)
    }

    fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|rate| *rate < u64::MAX)
    }
}

/// When a connection may ask next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    next: Option<Instant>,
}

impl Turn {
    /// Of `wanted` bytes, with `outstanding` on their way, those that may be asked for at `now`.
    pub fn admit(&mut self, credit: &Credit, wanted: u64, outstanding: u64, now: Instant) -> u64 {
        let window = credit.window();
        let room = if outstanding == 0 {
            window.max(ASK_BYTES_MIN)
        } else {
            window.saturating_sub(outstanding)
        };
        let bytes = wanted.min(room);
        if bytes < wanted.min(ASK_BYTES_MIN) {
            return 0;
        }
        let Some(rate) = credit.rate() else {
            self.next = None;
            return bytes;
        };
        if self.next.is_some_and(|next| now < next) {
            return 0;
        }
        let at_once = (rate as f64 * AT_ONCE.as_secs_f64()) as u64;
        let bytes = bytes.min(at_once.max(ASK_BYTES_MIN));
        let takes = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        // A turn that was late is made up for, a pause is not.
        let due = self.next.map_or(now, |next| next.max(now.checked_sub(LATE_MAX).unwrap_or(now)));
        self.next = Some(due + takes.min(PAUSE_MAX));
        bytes
    }

    /// When something may be asked for again, if the rate forbids it now.
    pub fn next(&self) -> Option<Instant> {
        self.next
    }
}

/// Less than this is not asked for, unless no more is wanted: each R2T costs both sides a message.
const ASK_BYTES_MIN: u64 = 4096;
/// How long what is asked for at once takes at the rate.
const AT_ONCE: Duration = Duration::from_millis(1);
const LATE_MAX: Duration = Duration::from_millis(2);
/// However low the rate, the next turn comes: it may have been raised.
const PAUSE_MAX: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_bounds_what_is_on_its_way() {
        let (credit, mut turn, now) = (Credit::default(), Turn::default(), Instant::now());
        assert_eq!(turn.admit(&credit, 1 << 20, 1 << 30, now), 1 << 20);
        credit.set_window(Some(64 << 10));
        assert_eq!(turn.admit(&credit, 1 << 20, 0, now), 64 << 10);
        assert_eq!(turn.admit(&credit, 1 << 20, 48 << 10, now), 16 << 10);
        assert_eq!(turn.admit(&credit, 1 << 20, 63 << 10, now), 0, "too little to ask for");
        assert_eq!(turn.admit(&credit, 512, 63 << 10, now), 512, "the rest is");
        credit.set_window(Some(0));
        assert_eq!(turn.admit(&credit, 1 << 20, 0, now), 4096, "nothing stops for ever");
        assert_eq!(turn.next(), None);
    }

    #[test]
    fn a_rate_is_kept_over_a_second() {
        let (credit, mut turn, begin) = (Credit::default(), Turn::default(), Instant::now());
        credit.set_rate(Some(4_000_000));
        let (mut asked, mut now) = (0, begin);
        while now < begin + Duration::from_secs(1) {
            let bytes = turn.admit(&credit, 1 << 20, 0, now);
            assert!(bytes <= 4096);
            asked += bytes;
            // Timers are late by up to a millisecond.
            now = turn.next().unwrap().max(now) + Duration::from_micros(asked % 1000);
        }
        assert!((3_700_000..=4_100_000).contains(&asked), "{asked}");
        credit.set_rate(None);
        assert_eq!(turn.admit(&credit, 1 << 20, 0, now), 1 << 20);
    }
}
