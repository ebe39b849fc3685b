//! Rates, gathered over repetitions.

use super::bytes::RANDOM_BYTES;
use super::files::FILE_BYTES;
use super::pass::Timed;
use covey_tune::Estimate;
use serde::{Deserialize, Serialize};

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// Records one after another into a new file, then fsync.
    Write,
    /// The same over what is there.
    Rewrite,
    /// Records one after another.
    Read,
    /// The same again.
    Reread,
    /// Letters one at a time through a buffer of 4096, then fsync.
    PutLetters,
    /// Letters one at a time through a buffer of 4096.
    GetLetters,
    /// Blocks of 4096 anywhere.
    RandomRead,
    /// Blocks of 4096 anywhere, then fsync.
    RandomWrite,
    /// Small files: create, write, close; no fsync.
    Create,
    /// Small files: create, write, fsync, close.
    CreateSynced,
    /// Small files: stat.
    Stat,
    /// Small files: open, read, close.
    OpenRead,
    /// Small files: unlink.
    Unlink,
}

impl Test {
    /// As a person reads it.
    pub fn words(self) -> &'static str {
        match self {
            Test::Write => "write",
            Test::Rewrite => "rewrite",
            Test::Read => "read",
            Test::Reread => "re-read",
            Test::PutLetters => "write per character",
            Test::GetLetters => "read per character",
            Test::RandomRead => "random read",
            Test::RandomWrite => "random write",
            Test::Create => "files: create, write",
            Test::CreateSynced => "files: create, write, fsync",
            Test::Stat => "files: stat",
            Test::OpenRead => "files: open, read",
            Test::Unlink => "files: unlink",
        }
    }

    /// What an amount of 1 is: bytes, or how many an operation moves.
    fn operation_bytes(self) -> Option<u64> {
        match self {
            Test::RandomRead | Test::RandomWrite => Some(RANDOM_BYTES as u64),
            Test::Create | Test::CreateSynced | Test::OpenRead => Some(FILE_BYTES as u64),
            Test::Stat | Test::Unlink => Some(0),
            _ => None,
        }
    }

    /// Whether what is counted is operations.
    pub fn counts_operations(self) -> bool {
        self.operation_bytes().is_some()
    }
}

/// What caches held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caches {
    /// What went before left there.
    Warm,
    /// Nothing: this machine's were dropped.
    Dropped,
    /// The kernel was asked to forget the file; it may have followed.
    Advised,
    /// It was a write; its time ends after fsync, unless the name says otherwise.
    Written,
    /// The transfers went past them (O_DIRECT).
    Passed,
}

impl Caches {
    /// As a person reads it.
    pub fn word(self) -> &'static str {
        match self {
            Caches::Warm => "warm",
            Caches::Dropped => "dropped",
            Caches::Advised => "advised",
            Caches::Written => "-",
            Caches::Passed => "O_DIRECT",
        }
    }
}

/// One rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// What was done.
    pub test: Test,
    /// How long each transfer was; of small files, what each held.
    pub record_bytes: u64,
    /// Past the caches (O_DIRECT).
    pub direct: bool,
    /// What caches held before.
    pub caches: Caches,
    /// `bytes/s` or `operations/s`.
    pub unit: String,
    /// The median, and where it lies.
    pub rate: Estimate,
    /// Of each repetition.
    pub each: Vec<f64>,
    /// Of the last repetition: bytes, or operations.
    pub amount: u64,
    /// CPU time of this program, the kernel's part included, for each GiB; none where no bytes are moved.
    pub cpu_s_per_gib: Option<f64>,
    /// CPU time for each operation, where operations are counted.
    pub cpu_us_per_operation: Option<f64>,
}

/// Rates while they are measured.
#[derive(Debug, Default)]
pub struct Tally {
    rows: Vec<(Rate, Timed)>,
}

/// Which rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    /// What is done.
    pub test: Test,
    /// In records of this length.
    pub record_bytes: u64,
    /// Past the caches.
    pub direct: bool,
}

impl Tally {
    /// Takes one repetition's. Answers the rate so far; none for a pass that did nothing.
    pub fn add(&mut self, which: Which, caches: Caches, timed: Timed) -> Option<&Rate> {
        if timed.amount == 0 || timed.seconds <= 0.0 {
            return None;
        }
        let Which { test, record_bytes, direct } = which;
        let is_it = |(rate, _): &(Rate, Timed)| {
            (rate.test, rate.record_bytes, rate.direct) == (test, record_bytes, direct)
        };
        let index = self.rows.iter().position(is_it).unwrap_or_else(|| {
            self.rows.push((empty(which, caches), Timed::default()));
            self.rows.len() - 1
        });
        let (rate, total) = &mut self.rows[index];
        total.amount += timed.amount;
        total.cpu_s += timed.cpu_s;
        rate.caches = caches;
        rate.amount = timed.amount;
        rate.each.push(timed.amount as f64 / timed.seconds);
        rate.rate = Estimate::of_median(rate.each.clone());
        let per = total.cpu_s / total.amount as f64;
        (rate.cpu_s_per_gib, rate.cpu_us_per_operation) = match test.operation_bytes() {
            None => (Some(per * GIB), None),
            Some(0) => (None, Some(per * 1e6)),
            Some(bytes) => (Some(per / bytes as f64 * GIB), Some(per * 1e6)),
        };
        Some(rate)
    }

    /// The rates, in the order in which they were measured.
    pub fn rates(self) -> Vec<Rate> {
        self.rows.into_iter().map(|(rate, _)| rate).collect()
    }
}

fn empty(which: Which, caches: Caches) -> Rate {
    let unit = if which.test.counts_operations() { "operations/s" } else { "bytes/s" };
    Rate {
        test: which.test,
        record_bytes: which.record_bytes,
        direct: which.direct,
        caches,
        unit: unit.to_string(),
        rate: Estimate { value: 0.0, low: 0.0, high: 0.0 },
        each: Vec::new(),
        amount: 0,
        cpu_s_per_gib: None,
        cpu_us_per_operation: None,
    }
}

const GIB: f64 = (1u64 << 30) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_make_a_median_and_cpu_time_counts_by_what_was_done() {
        let mut tally = Tally::default();
        let which = Which { test: Test::Write, record_bytes: 4096, direct: false };
        for seconds in [1.0, 4.0, 2.0] {
            let timed = Timed { amount: 1 << 30, seconds, cpu_s: 0.5 };
            tally.add(which, Caches::Written, timed).unwrap();
        }
        let random = Which { test: Test::RandomRead, record_bytes: 4096, direct: true };
        let timed = Timed { amount: 1000, seconds: 0.5, cpu_s: 0.001 };
        tally.add(random, Caches::Passed, timed).unwrap();
        assert!(tally.add(random, Caches::Passed, Timed::default()).is_none(), "it did nothing");
        let rates = tally.rates();
        assert_eq!(rates.len(), 2);
        assert_eq!((rates[0].rate.value, rates[0].rate.high), (GIB / 2.0, GIB));
        assert_eq!((rates[0].cpu_s_per_gib, rates[0].cpu_us_per_operation), (Some(0.5), None));
        assert_eq!((rates[1].rate.value, rates[1].unit.as_str()), (2000.0, "operations/s"));
        assert!((rates[1].cpu_us_per_operation.unwrap() - 1.0).abs() < 1e-9);
    }
}
