//! How well the keeper keeps time: what makes an emulated network trustworthy or not.

use serde::{Deserialize, Serialize};

/// A frame that is handed over later than this after it was due is late.
pub const LATE_NS: u64 = 50_000;
/// Over how long the keeper's own load is taken.
const WINDOW_NS: u64 = 100_000_000;
/// A keeper that works so much of a window does not keep up, in thousandths.
const BUSY_PER_MILLE: u64 = 970;

/// The longest time before a frame is due that is waited for awake.
const MARGIN_MAX_NS: u64 = 60_000;
/// How much the margin falls where it was enough. It rises by nineteen times as much where it was not, so that it
/// settles where one sleep of twenty ends later.
const MARGIN_STEP_NS: u64 = 50;

/// How long before a frame is due the keeper has to be awake: sleeps end too late, on a machine without other work by
/// more than on a busy one. It learns that from its sleeps, because waiting awake takes the CPU that the nodes need.
#[derive(Debug)]
pub struct Margin(u64);

impl Margin {
    /// The longest, until there were sleeps.
    pub fn new() -> Margin {
        Margin(MARGIN_MAX_NS)
    }

    /// Now, in nanoseconds.
    pub fn ns(&self) -> u64 {
        self.0
    }

    /// A sleep of its whole length ended so much too late.
    pub fn overslept(&mut self, late_ns: u64) {
        self.0 = if late_ns > self.0 {
            (self.0 + 19 * MARGIN_STEP_NS).min(MARGIN_MAX_NS)
        } else {
            self.0.saturating_sub(MARGIN_STEP_NS)
        };
    }
}

/// What the keeper says of itself since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Frames handed over.
    pub frames: u64,
    /// Of these, more than 50 us after they were due.
    pub late: u64,
    /// Frames that the receiving card refused.
    pub refused: u64,
    /// The latest, in nanoseconds.
    pub latest_ns: u64,
    /// Windows of 100 ms in which frames moved.
    pub windows: u64,
    /// Of these, ones in which the keeper had hardly a moment's rest: rates are then what this machine
    /// moves and not what was set.
    pub overloaded: u64,
    /// Whether it runs before ordinary processes.
    pub runs_first: bool,
}

/// Counts it.
#[derive(Debug)]
pub struct Timekeeper {
    timing: Timing,
    window_from_ns: u64,
    window_frames: u64,
    slept_ns: u64,
}

impl Timekeeper {
    /// Nothing has happened yet.
    pub fn new(runs_first: bool) -> Timekeeper {
        let timing = Timing { runs_first, ..Timing::default() };
        Timekeeper { timing, window_from_ns: 0, window_frames: 0, slept_ns: 0 }
    }

    /// A frame was handed over.
    pub fn delivered(&mut self, now_ns: u64, due_ns: u64, taken: bool) {
        let late_ns = now_ns.saturating_sub(due_ns);
        self.timing.frames += 1;
        self.timing.late += u64::from(late_ns > LATE_NS);
        self.timing.refused += u64::from(!taken);
        self.timing.latest_ns = self.timing.latest_ns.max(late_ns);
        self.window_frames += 1;
    }

    /// The keeper had nothing to do between these times.
    pub fn slept(&mut self, from_ns: u64, to_ns: u64) {
        self.slept_ns += to_ns - from_ns;
        let window_ns = to_ns - self.window_from_ns;
        if window_ns < WINDOW_NS {
            return;
        }
        let busy_ns = window_ns - self.slept_ns.min(window_ns);
        let overloaded = busy_ns * 1000 > window_ns * BUSY_PER_MILLE;
        self.timing.windows += u64::from(self.window_frames > 0);
        self.timing.overloaded += u64::from(overloaded && self.window_frames > 0);
        (self.window_from_ns, self.window_frames, self.slept_ns) = (to_ns, 0, 0);
    }

    /// Counts since the lab came up.
    pub fn timing(&self) -> Timing {
        self.timing
    }
}

impl Timing {
    /// What a reader must know before believing a measurement; `None` when there is nothing.
    pub fn warning(&self) -> Option<String> {
        let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        let overloaded = share(self.overloaded, self.windows);
        let late = share(self.late, self.frames);
        if overloaded > 2.0 {
            return Some(format!(
                "this machine does not carry what was set: its network was busy without rest for \
                 {overloaded:.0} % of the time"
            ));
        }
        (late > 5.0).then(|| {
            format!("{late:.0} % of the frames came more than 50 us late: others use the CPUs")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_without_rest_says_so() {
        let mut time = Timekeeper::new(false);
        for window in 0..10 {
            let from_ns = window * WINDOW_NS;
            time.delivered(from_ns, from_ns, true);
            // It rests for one millisecond of the hundred.
            time.slept(from_ns + WINDOW_NS - 1_000_000, from_ns + WINDOW_NS);
        }
        assert_eq!((time.timing().windows, time.timing().overloaded), (10, 10));
        assert!(time.timing().warning().unwrap().contains("does not carry"));
    }

    #[test]
    fn a_margin_settles_where_few_sleeps_end_later() {
        let mut margin = Margin::new();
        // Sleeps end 10 to 29 us late, one of a hundred much later.
        let late_ns =
            |sleep: u64| if sleep % 100 == 99 { 400_000 } else { 10_000 + sleep * 7 % 20 * 1000 };
        (0..2000).for_each(|sleep| margin.overslept(late_ns(sleep)));
        let settled: Vec<u64> = (0..2000)
            .map(|sleep| {
                margin.overslept(late_ns(sleep));
                margin.ns()
            })
            .collect();
        assert!(
            settled.iter().all(|ns| (26_000..31_000).contains(ns)),
            "{:?}",
            settled.iter().max()
        );
        (0..200).for_each(|_| margin.overslept(400_000));
        assert_eq!(margin.ns(), MARGIN_MAX_NS);
    }

    #[test]
    fn late_frames_are_told_and_few_are_forgiven() {
        let mut time = Timekeeper::new(true);
        (0..99).for_each(|_| time.delivered(LATE_NS, 0, true));
        time.delivered(LATE_NS + 1, 0, true);
        assert_eq!((time.timing().late, time.timing().warning()), (1, None));
        (0..100).for_each(|_| time.delivered(LATE_NS + 1, 0, true));
        assert!(time.timing().warning().unwrap().contains("late"));
    }
}
