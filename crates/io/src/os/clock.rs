//! The clocks.

use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// Seconds and nanoseconds since 1970.
pub fn wall() -> (u64, u32) {
    split(ClockId::Realtime)
}

/// Like [`wall`], but as of the last timer tick: what the kernel itself stamps files with.
pub fn wall_coarse() -> (u64, u32) {
    split(ClockId::RealtimeCoarse)
}

/// The clock that only goes forward: what machines are given.
pub fn monotonic() -> Instant {
    Instant::now()
}

/// The same clock as of the last timer tick, in milliseconds: a few of its ticks, and much cheaper.
pub fn coarse_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // By libc: rustix reads the kernel's vDSO by itself, which ends programs in C under valgrind.
    // SAFETY: there is a place for the time, and the clock is one of Linux's.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// What to stamp when a clock shows `now` and `last` was stamped before. A clock that is adjusted goes back a
/// little, and stamps wait for it: they do not go back with it. One that goes back far was wrong before, and is
/// followed: else nothing would change its time until the clock is there again.
pub fn stamp(now_ns: u64, last_ns: u64) -> u64 {
    match last_ns.checked_sub(now_ns) {
        Some(back) if back <= ADJUSTED_NS_MAX => last_ns,
        _ => now_ns,
    }
}

/// A leap second, and what a clock is off that a daemon steps.
const ADJUSTED_NS_MAX: u64 = 2_000_000_000;

fn split(clock: ClockId) -> (u64, u32) {
    let now = clock_gettime(clock);
    // A machine whose clock says it is before 1970 has no times worth keeping.
    (u64::try_from(now.tv_sec).unwrap_or(0), now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::{ADJUSTED_NS_MAX, stamp};

    #[test]
    fn stamps_wait_for_a_clock_that_is_adjusted_and_follow_one_that_was_wrong() {
        const NOW: u64 = 1_800_000_000_000_000_000;
        assert_eq!(stamp(NOW + 1, NOW), NOW + 1);
        assert_eq!(stamp(NOW, NOW), NOW);
        assert_eq!(stamp(NOW - 1, NOW), NOW);
        assert_eq!(stamp(NOW - ADJUSTED_NS_MAX, NOW), NOW);
        assert_eq!(stamp(NOW - ADJUSTED_NS_MAX - 1, NOW), NOW - ADJUSTED_NS_MAX - 1);
        // Ten years ahead for a moment: the next stamp is right again.
        let wrong = stamp(NOW + 315_360_000_000_000_000, NOW);
        assert_eq!(stamp(NOW + 1, wrong), NOW + 1);
    }
}
