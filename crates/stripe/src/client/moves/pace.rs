//! How fast files are copied, all of a task together; and its end.

use super::super::Shared;
use crate::error::{Error, Result};
use covey_ninep::tree::Errno;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Who waits for its turn looks so often whether the task is over.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What was not used of the rate is made up for as far as this.
const SLACK: Duration = Duration::from_secs(1);

/// How fast files are copied, how much was copied so far, and whether to go on.
#[derive(Debug, Default)]
pub struct Pace {
    meter: Mutex<Meter>,
    is_over: AtomicBool,
    copied: AtomicU64,
}

#[derive(Debug, Default)]
struct Meter {
    /// 0 for as fast as it goes.
    bytes_per_s: u64,
    /// What was taken at this rate, and since when.
    taken: u64,
    begun: Option<Instant>,
    /// Raised when the rate changes: who waits by the old one is counted anew.
    turn: u32,
}

impl Pace {
    /// At most so many bytes per second; None for as fast as it goes.
    pub fn of(bytes_per_s: Option<u64>) -> Pace {
        let pace = Pace::default();
        pace.set(bytes_per_s);
        pace
    }

    /// The same from now on, also for what waits already.
    pub fn set(&self, bytes_per_s: Option<u64>) {
        let mut meter = self.meter.lock().expect("no holder panics");
        let turn = meter.turn.wrapping_add(1);
        // A rate of nothing would never end: one byte is as slow as it gets.
        let bytes_per_s = bytes_per_s.map_or(0, |rate| rate.max(1));
        *meter = Meter { bytes_per_s, turn, ..Meter::default() };
    }

    /// Nothing more is copied: files that are on their way stay where they lie, with ECANCELED.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether it was ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Bytes that were copied, but for those of files that did not move.
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn take_back(&self, bytes: u64) {
        self.copied.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Waits until all that was taken before was copied at the rate.
    pub(super) async fn take(&self, fs: &Shared, bytes: u64) -> Result<()> {
        let mut place = None;
        loop {
            if self.is_over() {
                return Err(Error::because(Errno::ECANCELED, "moving files was ended"));
            }
            let wait = self.wait(fs.net.now(), bytes, &mut place);
            if wait.is_zero() {
                return Ok(());
            }
            fs.net.sleep(wait.min(LOOK_EVERY)).await;
        }
    }

    /// How long it is until the turn of these bytes, whose place behind others is `place`: of which rate, and after how much.
    fn wait(&self, now: Instant, bytes: u64, place: &mut Option<(u32, u64)>) -> Duration {
        let mut meter = self.meter.lock().expect("no holder panics");
        let rate = meter.bytes_per_s;
        if rate == 0 {
            return Duration::ZERO;
        }
        let time_for = |bytes: u64| Duration::from_secs_f64(bytes as f64 / rate as f64);
        let mut begun = *meter.begun.get_or_insert(now);
        let before = match *place {
            Some((turn, before)) if turn == meter.turn => before,
            _ => {
                let before = meter.taken;
                let late = now.saturating_duration_since(begun + time_for(before));
                begun += late.saturating_sub(SLACK);
                meter.begun = Some(begun);
                meter.taken = before.saturating_add(bytes);
                *place = Some((meter.turn, before));
                before
            }
        };
        (begun + time_for(before)).saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// When each of some pieces has its turn, if they are asked for at `at`, in seconds.
    fn turns(pace: &Pace, begin: Instant, at: f64, count: usize) -> Vec<f64> {
        let now = begin + Duration::from_secs_f64(at);
        let turn = |_| at + pace.wait(now, MIB, &mut None).as_secs_f64();
        (0..count).map(turn).map(|turn| (turn * 100.0).round() / 100.0).collect()
    }

    #[test]
    fn pieces_follow_each_other_at_the_rate_and_a_pause_is_not_made_up_for() {
        let (pace, begin) = (Pace::of(Some(10 * MIB)), Instant::now());
        assert_eq!(turns(&pace, begin, 0.0, 3), [0.0, 0.1, 0.2]);
        assert_eq!(turns(&pace, begin, 0.3, 2), [0.3, 0.4]);
        // After a minute one second's worth goes at once, no more.
        let after = turns(&pace, begin, 60.0, 13);
        assert_eq!((after[0], after[9], after[12]), (60.0, 60.0, 60.2), "{after:?}");
        assert_eq!(turns(&Pace::of(None), begin, 0.0, 2), [0.0, 0.0]);
    }

    #[test]
    fn another_rate_holds_for_what_waits_already() {
        let (pace, begin) = (Pace::of(Some(1)), Instant::now());
        let (mut first, mut second) = (None, None);
        assert!(pace.wait(begin, MIB, &mut first).is_zero());
        assert!(pace.wait(begin, MIB, &mut second) > Duration::from_secs(1_000_000));
        pace.set(Some(2 * MIB));
        assert!(pace.wait(begin, MIB, &mut second).is_zero());
        assert_eq!(pace.wait(begin, MIB, &mut first), Duration::from_millis(500));
    }
}
