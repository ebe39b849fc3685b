//! Latencies in buckets that grow by a quarter: any time fits, and a quantile is right within 20 %.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
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

    /// The buckets that have any, with their counts.
    fn used<'r>(&self, room: &'r mut [(u8, u64); BUCKETS]) -> &'r [(u8, u64)] {
        let mut count = 0;
        for (index, bucket) in self.buckets.iter().enumerate().filter(|(_, one)| one.get() > 0) {
            room[count] = (index as u8, bucket.get());
            count += 1;
        }
        &room[..count]
    }

    /// The time that so large a share did not exceed, ns.
    fn quantile_ns(&self, used: &[(u8, u64)], share: f64) -> u64 {
        let wanted = (self.count.get() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let reached = used.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        let end = reached.map_or(u64::MAX, |(bucket, _)| end_of(usize::from(*bucket)));
        end.min(self.max_ns.get())
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.buckets
            .iter()
            .chain([&self.count, &self.sum_ns, &self.max_ns])
            .for_each(|cell| cell.set(0));
    }

    /// Writes `count N mean_us N p50_us N p99_us N max_us N`, and with all details `sum_ns N buckets B:N,B:N`. There may be
    /// thousands of these to write at a time: so it is one pass, and there is no text between.
    pub fn write(&self, out: &mut String, detail: Detail) {
        let (count, sum_ns) = self.sums();
        let mut room = [(0, 0); BUCKETS];
        let used = self.used(&mut room);
        put(out, format_args!("count {count}"));
        put_us(out, " mean_us ", sum_ns / count.max(1));
        put_us(out, " p50_us ", self.quantile_ns(used, 0.5));
        put_us(out, " p99_us ", self.quantile_ns(used, 0.99));
        put_us(out, " max_us ", self.max_ns.get());
        if detail == Detail::Buckets {
            put(out, format_args!(" sum_ns {sum_ns} buckets "));
            for (at, (bucket, count)) in used.iter().enumerate() {
                put(out, format_args!("{}{bucket}:{count}", if at > 0 { "," } else { "" }));
            }
            if used.is_empty() {
                out.push('-');
            }
        }
    }

    /// The same as a text.
    pub fn text(&self, detail: Detail) -> String {
        let mut out = String::new();
        self.write(&mut out, detail);
        out
    }
}

/// Adds to a text.
pub(super) fn put(out: &mut String, words: std::fmt::Arguments) {
    out.write_fmt(words).expect("writing into a string cannot fail");
}

/// Microseconds with one decimal: of whole numbers, which are written much faster.
fn put_us(out: &mut String, name: &str, ns: u64) {
    let tenths = ns.saturating_add(50) / 100;
    put(out, format_args!("{name}{}.{}", tenths / 10, tenths % 10));
}

/// The time that so large a share of the times in buckets did not exceed, ns.
pub fn quantile_ns(buckets: &BTreeMap<usize, u64>, share: f64) -> u64 {
    let all = buckets.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
    let wanted = (all as f64 * share).ceil() as u64;
    let mut seen = 0_u64;
    let reached = buckets.iter().find(|(_, count)| {
        seen = seen.saturating_add(**count);
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
    use super::{BUCKETS, Detail, Duration, Histogram, bucket_of, end_of};

    fn quantile_ns(times: &Histogram, share: f64) -> u64 {
        times.quantile_ns(times.used(&mut [(0, 0); BUCKETS]), share)
    }

    #[test]
    fn quantiles_are_right_within_a_fifth() {
        let times = Histogram::default();
        (1..=1000u64).for_each(|us| times.add(Duration::from_micros(us)));
        for (share, wanted) in [(0.5, 500.0), (0.99, 990.0), (0.1, 100.0)] {
            let found = quantile_ns(&times, share) as f64 / 1e3;
            assert!(found >= wanted * 0.999 && found <= wanted * 1.26, "{share}: {found}");
        }
        assert_eq!(quantile_ns(&times, 1.0), 1_000_000);
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
        assert!(times.text(Detail::Buckets).ends_with(" buckets 0:2,6:1,159:1"));
        times.reset();
        assert_eq!(quantile_ns(&times, 0.5), 0);
    }

    #[test]
    fn the_text_is_that_of_the_quantiles() {
        let times = Histogram::default();
        let empty = "count 0 mean_us 0.0 p50_us 0.0 p99_us 0.0 max_us 0.0 sum_ns 0 buckets -";
        assert_eq!(times.text(Detail::Buckets), empty);
        for ns in [1_000, 1_000, 20_449] {
            times.add(Duration::from_nanos(ns));
        }
        let text = times.text(Detail::Buckets);
        assert_eq!(
            text,
            "count 3 mean_us 7.5 p50_us 1.0 p99_us 20.4 max_us 20.4 sum_ns 22449 buckets 39:2,56:1"
        );
        let us = |share| quantile_ns(&times, share) as f64 / 1e3;
        assert!(text.contains(&format!("p50_us {:.1} p99_us {:.1}", us(0.5), us(0.99))), "{text}");
    }

    #[test]
    fn buckets_follow_one_another() {
        for ns in [1u64, 2, 3, 4, 5, 7, 8, 1000, 1023, 1024, 1 << 39] {
            assert!(end_of(bucket_of(ns)) >= ns, "{ns}");
        }
    }
}
