//! One pass over the files: all threads at once, with the time and the CPU that it took.

use super::pattern::{Aligned, Pattern};
use crate::error::{Cannot, Error, Result};
use crate::stop::Stop;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What one thread works on.
#[derive(Debug)]
pub struct Lane {
    /// Its number.
    pub index: usize,
    /// Its file, or the device.
    pub path: PathBuf,
    /// Where its part of a device begins.
    pub base: u64,
    /// The same, open.
    pub file: Option<File>,
    /// The same, open for transfers past the caches.
    pub direct: Option<File>,
    /// What was written.
    pub laid: Laid,
    /// What should be there.
    pub pattern: Pattern,
    /// What is read.
    pub buffer: Aligned,
}

/// What was written to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Laid {
    /// Its length.
    pub bytes: u64,
    /// How many times its beginning was written. 0: not by this run, so its content is not known.
    pub age: u64,
    /// Up to here it was written so many times, and once less from here on.
    pub newest_to: u64,
}

impl Laid {
    /// How many times this place was written.
    pub fn age_at(&self, offset: u64) -> u64 {
        self.age - u64::from(offset >= self.newest_to)
    }
}

impl Lane {
    /// The open file.
    pub fn open(&self, direct: bool) -> Result<&File> {
        let file = if direct { &self.direct } else { &self.file };
        file.as_ref().ok_or_else(|| Error::work("cannot measure: a file is not open"))
    }
}

/// What is wrong with what was read there, as an error.
pub fn wrong(path: &Path, at: u64) -> Error {
    let text = "it holds something else than what was written there";
    Error::work(format!("cannot measure {}: at byte {at} {text}", path.display()))
        .hint("the storage or the file system loses data: rates of it mean nothing")
}

/// When a pass ends before its work is done.
#[derive(Clone, Debug)]
pub struct Limit {
    /// The latest time.
    pub until: Option<Instant>,
    /// Somebody may ask.
    pub stop: Stop,
}

impl Limit {
    /// So long from now.
    pub fn within(time: Option<Duration>, stop: &Stop) -> Limit {
        Limit { until: time.map(|time| Instant::now() + time), stop: stop.clone() }
    }

    /// Whether it is time.
    pub fn is_over(&self) -> bool {
        self.stop.is_asked() || self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timed {
    /// Bytes, or operations.
    pub amount: u64,
    /// From the first thread's start to the last one's end.
    pub seconds: f64,
    /// Of this process, the kernel's part included.
    pub cpu_s: f64,
}

/// Has every thread do its work, and waits for the last.
pub fn timed(
    lanes: &mut [Lane],
    work: &(dyn Fn(&mut Lane) -> Result<u64> + Sync),
) -> Result<Timed> {
    let barrier = Barrier::new(lanes.len());
    let (begun, cpu_s) = (Instant::now(), cpu_s());
    let done: Vec<Result<u64>> = match lanes {
        [lane] => vec![work(lane)],
        lanes => std::thread::scope(|scope| {
            let barrier = &barrier;
            let one = |lane| {
                scope.spawn(move || {
                    barrier.wait();
                    work(lane)
                })
            };
            let threads: Vec<_> = lanes.iter_mut().map(one).collect();
            let panicked = |_| Err(Error::work("cannot measure: a thread panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        }),
    };
    let (seconds, cpu_s) = (begun.elapsed().as_secs_f64(), self::cpu_s() - cpu_s);
    let amount = done.into_iter().sum::<Result<u64>>()?;
    Ok(Timed { amount, seconds, cpu_s })
}

/// Forgets what caches hold of the files: all caches of the machine where that is permitted.
pub fn drop_caches(lanes: &[Lane], of_machine: bool) -> Result<Dropped> {
    if of_machine && std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
        return Ok(Dropped::OfMachine);
    }
    for file in lanes.iter().filter_map(|lane| lane.file.as_ref()) {
        let advised = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        advised.map_err(std::io::Error::from).cannot(|| "ask the kernel to forget a file")?;
    }
    Ok(Dropped::OfFiles)
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// All caches of this machine.
    OfMachine,
    /// The pages of these files, as far as the file system follows the advice.
    OfFiles,
}

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rewrite_did_not_reach_is_one_younger() {
        let laid = Laid { bytes: 100, age: 5, newest_to: 40 };
        assert_eq!([0, 39, 40, 99].map(|at| laid.age_at(at)), [5, 5, 4, 4]);
    }
}
