//! Latencies in buckets that grow by a quarter: any time fits, and a quantile is right within 20 %.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

/// Buckets for each doubling.
const STEPS: u32 = 4;
/// Up to 2^40 ns, 18 minutes; longer ones count as that.
const BUCKETS: usize = 40 * STEPS as usize;

/// Counts of times, from a nanosecond up.
pub struct Histogram {
    buckets: Box<[Cell<u64>; BUCKETS]>,
    count: Cell<u64>,
    sum_ns: Cell<u64>,
    max_ns: Cell<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = Box::new([const { Cell::new(0) }; BUCKETS]);
        let [count, sum_ns, max_ns] = [const { Cell::new(0) }; 3];
        Histogram { buckets, count, sum_ns, max_ns }
    }
}

impl Histogram {
    /// Counts a time.
    pub fn add(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let bucket = &self.buckets[bucket_of(ns)];
        bucket.set(bucket.get() + 1);
        self.count.set(self.count.get() + 1);
        self.sum_ns.set(self.sum_ns.get().wrapping_add(ns));
        self.max_ns.set(self.max_ns.get().max(ns));
    }

    /// How many times there are, and their sum in ns.
    pub(super) fn sums(&self) -> (u64, u64) {
        (self.count.get(), self.sum_ns.get())
    }

    /// The time that so large a share did not exceed.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.count.get() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += bucket.get();
            if seen >= wanted && seen > 0 {
                return Duration::from_nanos(end_of(index).min(self.max_ns.get()));
            }
        }
        Duration::from_nanos(self.max_ns.get())
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.buckets
            .iter()
            .chain([&self.count, &self.sum_ns, &self.max_ns])
            .for_each(|cell| cell.set(0));
    }

    /// `count N mean_us N p50_us N p99_us N max_us N`, and with all details `sum_ns N buckets B:N,B:N`.
    pub fn text(&self, detail: Detail) -> String {
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
        let quantile = |share| us(self.quantile(share).as_nanos() as u64);
        let count = self.count.get();
        let details = match detail {
            Detail::Summary => String::new(),
            Detail::Buckets => {
                format!(" sum_ns {} buckets {}", self.sum_ns.get(), self.buckets_text())
            }
        };
        format!(
            "count {count} mean_us {} p50_us {} p99_us {} max_us {}{details}",
            us(self.sum_ns.get() / count.max(1)),
            quantile(0.5),
            quantile(0.99),
            us(self.max_ns.get())
        )
    }

    /// Those that have any; `-` when none has.
    fn buckets_text(&self) -> String {
        let counts = self.buckets.iter().map(Cell::get).enumerate().filter(|(_, count)| *count > 0);
        let texts: Vec<String> =
            counts.map(|(bucket, count)| format!("{bucket}:{count}")).collect();
        if texts.is_empty() { "-".into() } else { texts.join(",") }
    }
}

/// The time that so large a share of the times in buckets did not exceed, ns.
pub fn quantile_ns(buckets: &BTreeMap<usize, u64>, share: f64) -> u64 {
    let wanted = (buckets.values().sum::<u64>() as f64 * share).ceil() as u64;
    let mut seen = 0;
    let reached = buckets.iter().find(|(_, count)| {
        seen += **count;
        seen >= wanted && seen > 0
    });
    reached.map_or(0, |(bucket, _)| end_of((*bucket).min(BUCKETS - 1)))
}

/// The longest time that those in buckets may have, ns.
pub fn top_ns(buckets: &BTreeMap<usize, u64>) -> u64 {
    let last = buckets.iter().rfind(|(_, count)| **count > 0);
    last.map_or(0, |(bucket, _)| end_of((*bucket).min(BUCKETS - 1)))
}

/// The first bucket whose times are all 2^`doubling` ns or longer; those before it are all shorter.
pub fn end_of_doubling(doubling: usize) -> usize {
    doubling * STEPS as usize
}

/// How much of a histogram is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What people read.
    Summary,
    /// What differences can be made of.
    Buckets,
}

fn bucket_of(ns: u64) -> usize {
    let doubling = ns.ilog2();
    let step = if doubling < 2 { ns << (2 - doubling) } else { ns >> (doubling - 2) };
    ((doubling * STEPS + (step as u32 & (STEPS - 1))) as usize).min(BUCKETS - 1)
}

/// The longest time of a bucket.
fn end_of(bucket: usize) -> u64 {
    let (doubling, step) = (bucket as u32 / STEPS, bucket as u64 % u64::from(STEPS));
    let base = 1u64 << doubling;
    base + base * (step + 1) / u64::from(STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_fifth() {
        let times = Histogram::default();
        (1..=1000u64).for_each(|us| times.add(Duration::from_micros(us)));
        for (share, wanted) in [(0.5, 500.0), (0.99, 990.0), (0.1, 100.0)] {
            let found = times.quantile(share).as_nanos() as f64 / 1e3;
            assert!(found >= wanted * 0.999 && found <= wanted * 1.26, "{share}: {found}");
        }
        assert_eq!(times.quantile(1.0), Duration::from_millis(1));
    }

    #[test]
    fn every_time_has_a_bucket() {
        let times = Histogram::default();
        for time in
            [Duration::ZERO, Duration::from_nanos(1), Duration::from_nanos(3), Duration::MAX]
        {
            times.add(time);
        }
        assert!(times.text(Detail::Summary).starts_with("count 4 "));
        times.reset();
        assert_eq!(times.quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn buckets_follow_one_another() {
        for ns in [1u64, 2, 3, 4, 5, 7, 8, 1000, 1023, 1024, 1 << 39] {
            assert!(end_of(bucket_of(ns)) >= ns, "{ns}");
        }
    }
}
