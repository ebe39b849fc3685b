//! What a directory, a mount or a block device can do: the rates that Bonnie and IOzone measure.
//!
//! Passes over files of this program's own: write, write again, read and read again in records of several lengths,
//! letters one at a time, blocks anywhere, and many small files. All passes are gone through several times;
//! the numbers are medians. Every write ends with fsync inside its time. Before what is written is read, caches
//! are dropped where that is permitted, and what is read is compared with what should be there, so that a rate
//! of wrong data is no rate.
//!
//! ```text
//!   Plan ──► Place::find ──► Run: passes over Lanes, one per thread ──► Rates ──► DiskReport
//! ```
//!
//! Files lie in one directory `covey-tune-PID-N`, which is removed however it ends, except by SIGKILL. A device is only
//! read unless the plan says that it may be destroyed.

mod bytes;
mod files;
mod fit;
mod pass;
mod pattern;
mod place;
mod rates;
mod run;
mod tell;

pub use place::Place;
pub use rates::{Caches, Rate, Test};

use super::environment::{Environment, Watch};
use super::provenance::Provenance;
use super::stop::{INTERRUPTED, Stop};
use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Direct transfers take addresses, places and lengths that are multiples of this.
const TRANSFER_ALIGN: usize = 4096;
/// The shortest record.
pub const RECORD_BYTES_MIN: u64 = 4096;
/// The longest record.
pub const RECORD_BYTES_MAX: u64 = 16 << 20;
/// More threads are refused.
pub const THREADS_MAX: u32 = 64;
/// More repetitions are refused.
pub const REPETITIONS_MAX: u32 = 20;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A directory, which may be a mount, or a block device.
    pub target: PathBuf,
    /// Bytes in all files together; what fits the budget when none is given.
    pub size_bytes: Option<u64>,
    /// Lengths of records: powers of two within the limits above.
    pub records: Vec<u64>,
    /// Threads, each with a file of its own.
    pub threads: u32,
    /// How often all is gone through, if the budget lasts.
    pub repetitions: u32,
    /// How long it should take, roughly.
    pub budget: Duration,
    /// Whether a device may be overwritten.
    pub destroy: bool,
    /// Whether to drop the machine's caches where that is permitted.
    pub drop_caches: bool,
}

impl Plan {
    /// The usual one, of a place.
    pub fn of(target: impl Into<PathBuf>) -> Plan {
        Plan {
            target: target.into(),
            size_bytes: None,
            records: vec![4 << 10, 64 << 10, 1 << 20],
            threads: 1,
            repetitions: 3,
            budget: Duration::from_secs(30),
            destroy: false,
            drop_caches: true,
        }
    }
}

/// How far a measurement is.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// What has just been measured.
    pub latest: &'a Rate,
    /// Which share of the passes is done.
    pub share: f64,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskReport {
    /// `disk`.
    pub kind: String,
    /// The directory or device.
    pub place: Place,
    /// Bytes in all files together.
    pub size_bytes: u64,
    /// Threads, each with a file of its own.
    pub threads: u32,
    /// How often all was gone through to the end.
    pub repetitions: u32,
    /// Whether what was read was compared with what had been written.
    pub verified: bool,
    /// Why nothing went past the caches (O_DIRECT), if nothing did.
    pub direct_refused: Option<String>,
    /// The rates.
    pub rates: Vec<Rate>,
    /// What a reader must know of the numbers.
    pub notes: Vec<String>,
    /// How the machine was meanwhile.
    pub environment: Environment,
    /// Why it ended before its time.
    pub failure: Option<String>,
    /// Where the numbers come from.
    pub provenance: Provenance,
}

impl DiskReport {
    /// One of the rates: of transfers through the caches, and of the longest record where several were used.
    pub fn rate(&self, test: Test, record_bytes: Option<u64>) -> Option<&Rate> {
        let is_meant = |rate: &&Rate| {
            rate.test == test
                && !rate.direct
                && record_bytes.is_none_or(|bytes| rate.record_bytes == bytes)
        };
        self.rates.iter().filter(is_meant).max_by_key(|rate| rate.record_bytes)
    }
}

/// Measures. An error when there is nothing to tell; a measurement that broke off tells what there is, and why
/// it ended, in `failure`.
pub fn measure(
    plan: &Plan,
    stop: &Stop,
    progress: &mut dyn FnMut(&Progress),
) -> Result<DiskReport> {
    let place = Place::find(plan)?;
    let (watch, provenance) = (Watch::begin(), Provenance::here());
    let mut run = run::Run::begin(plan, place, stop)?;
    let outcome = run.all(progress);
    let (place, done) = run.finish();
    let failure = match outcome {
        Err(error) if done.rates.is_empty() => return Err(error),
        Err(error) => Some(error.message),
        Ok(()) if stop.is_asked() => Some(INTERRUPTED.to_string()),
        Ok(()) => None,
    };
    let mut report = DiskReport {
        kind: "disk".into(),
        verified: !place.is_device() || plan.destroy,
        place,
        size_bytes: done.size_bytes,
        threads: plan.threads,
        repetitions: done.repetitions,
        direct_refused: done.direct_refused,
        rates: done.rates,
        notes: Vec::new(),
        environment: watch.end(),
        failure,
        provenance,
    };
    report.notes = report.remarks();
    Ok(report)
}
