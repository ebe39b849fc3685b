//! Thousands of short batches, with the time of a bare cache line in between.

use super::cpus::{Cpus, pin};
use super::figures::{Figures, Samples};
use super::other::Pair;
use super::what::{Over, What};
use crate::error::Result;
use crate::floor::{Asker, cpu_time};
use crate::stop::Stop;
use std::io;
use std::time::{Duration, Instant};

/// Round trips in a batch at most.
pub const ROUNDS_MAX: u32 = 20;
/// How long a batch takes at most, where it has more than one round trip.
const BATCH: Duration = Duration::from_micros(100);
/// Batches between two looks at the cache line.
const CHUNK: usize = 25;
const LINE_BATCHES: usize = 5;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// All is gone through so often.
    pub rounds: usize,
    /// How long each thing is measured in each round.
    pub slice: Duration,
    /// Where.
    pub cpus: Cpus,
    /// Whether the kernel may copy between the processes, as most systems permit.
    pub one_copy: bool,
}

/// Something that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Thing<'a> {
    /// Shared memory or TCP.
    pub over: Over,
    /// The operation.
    pub what: What,
    /// A library with its version, or a floor.
    pub who: &'a str,
    /// Operations in one round trip.
    pub operations: u32,
    /// Whether the other process has a part in it, so that its CPU time counts.
    pub takes_two: bool,
}

/// Measures between this process and another.
#[derive(Debug)]
pub struct Meter<'a> {
    pair: Pair,
    slice: Duration,
    stop: &'a Stop,
    figures: &'a mut Figures,
    _pinned: super::cpus::Pinned,
}

impl<'a> Meter<'a> {
    /// Starts the other process. The calling thread stays on the first CPU as long as the meter lives.
    pub fn new(plan: &Plan, stop: &'a Stop, figures: &'a mut Figures) -> Result<Meter<'a>> {
        let pair = Pair::start(plan.cpus.second)?;
        let _pinned = pin(plan.cpus.first)?;
        Ok(Meter { pair, slice: plan.slice, stop, figures, _pinned })
    }

    /// Where the engines of both may meet.
    pub fn socket(&self) -> std::path::PathBuf {
        self.pair.socket()
    }

    /// Asks the other for something before it is measured.
    pub fn prepare(&mut self, ask: impl FnOnce(&mut Asker) -> io::Result<()>) -> Result<()> {
        ask(&mut self.pair.asker).map_err(|error| self.pair.explain(error))
    }

    /// Measures one thing for a slice of time. `batch` does some round trips and says what all of them took.
    pub fn slice(
        &mut self,
        thing: Thing<'_>,
        mut batch: impl FnMut(&mut Asker, u32) -> io::Result<Duration>,
    ) -> Result<()> {
        self.slices([thing], |asker, _, rounds| batch(asker, rounds))
    }

    /// Measures things for a slice of time each, some batches of one after some of the other, so that what happens to the
    /// machine meanwhile happens to all of them. `batch` is told which one it is.
    pub fn slices<const COUNT: usize>(
        &mut self,
        things: [Thing<'_>; COUNT],
        batch: impl FnMut(&mut Asker, usize, u32) -> io::Result<Duration>,
    ) -> Result<()> {
        let mut samples = [(); COUNT].map(|()| Samples::default());
        let done = self.run(&things, batch, &mut samples);
        for (thing, samples) in things.iter().zip(samples) {
            self.figures.add(thing.over, thing.what, thing.who, samples);
        }
        done.map_err(|error| self.pair.explain(error))
    }

    fn run<const COUNT: usize>(
        &mut self,
        things: &[Thing<'_>; COUNT],
        mut batch: impl FnMut(&mut Asker, usize, u32) -> io::Result<Duration>,
        samples: &mut [Samples; COUNT],
    ) -> io::Result<()> {
        let asker = &mut self.pair.asker;
        let mut paces = [Pace::default(); COUNT];
        for (which, pace) in paces.iter_mut().enumerate() {
            batch(asker, which, 1)?;
            *pace = Pace::of(batch(asker, which, 1)?);
        }
        let begin = Instant::now();
        loop {
            for (which, thing) in things.iter().enumerate() {
                let (samples, pace) = (&mut samples[which], &mut paces[which]);
                let batch = |asker: &mut Asker, rounds| batch(asker, which, rounds);
                chunk(asker, *thing, self.slice, pace, batch, samples)?;
            }
            if begin.elapsed() >= self.slice * COUNT as u32 || self.stop.is_asked() {
                return Ok(());
            }
        }
    }

    /// Ends the other process.
    pub fn end(self) {
        drop(self);
    }
}

/// How fast a thing goes.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// The last round trip, in seconds.
    round_s: f64,
    /// Round trips in a batch.
    rounds: u32,
}

impl Pace {
    fn of(round: Duration) -> Pace {
        let round_s = round.as_secs_f64().max(1e-9);
        let rounds = (BATCH.as_secs_f64() / round_s).clamp(1.0, ROUNDS_MAX.into()) as u32;
        Pace { round_s, rounds }
    }
}

/// The cache line, and then some batches of a thing.
fn chunk(
    asker: &mut Asker,
    thing: Thing<'_>,
    slice: Duration,
    pace: &mut Pace,
    mut batch: impl FnMut(&mut Asker, u32) -> io::Result<Duration>,
    samples: &mut Samples,
) -> io::Result<()> {
    for _ in 0..LINE_BATCHES {
        let line = asker.line(ROUNDS_MAX)?;
        samples.line_ns.push(ns(line) / f64::from(2 * ROUNDS_MAX));
    }
    let rounds = pace.rounds;
    // A tenth of the slice at most.
    let fitting = slice.as_secs_f64() / 10.0 / (pace.round_s * f64::from(rounds));
    let theirs = |asker: &mut Asker| {
        if thing.takes_two { asker.cpu_time_of_other() } else { Ok(Duration::ZERO) }
    };
    let before = theirs(asker)? + cpu_time();
    for _ in 0..(fitting as usize).clamp(1, CHUNK) {
        let took = batch(asker, rounds)?;
        let operations = rounds * thing.operations;
        samples.times_ns.push(ns(took) / f64::from(operations));
        samples.operations += u64::from(operations);
        pace.round_s = (took.as_secs_f64() / f64::from(rounds)).max(1e-9);
    }
    samples.cpu_ns += ns((cpu_time() + theirs(asker)?).saturating_sub(before));
    Ok(())
}

fn ns(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}
