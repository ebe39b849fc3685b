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

fn split(clock: ClockId) -> (u64, u32) {
    let now = clock_gettime(clock);
    // A machine whose clock says it is before 1970 has no times worth keeping.
    (u64::try_from(now.tv_sec).unwrap_or(0), now.tv_nsec as u32)
}
