//! What was measured: many short batches of each thing, gathered over the rounds of a run.

use super::what::{Over, What};
use serde::Serialize;

/// Batches of one thing, all times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// The time of an operation in each batch.
    pub times_ns: Vec<f64>,
    /// One-way times of a cache line between the same CPUs, taken in between.
    pub line_ns: Vec<f64>,
    /// Operations altogether.
    pub operations: u64,
    /// CPU time of both processes for these.
    pub cpu_ns: f64,
}

/// A thing, and who did it.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Shared memory or TCP.
    pub over: Over,
    /// The operation.
    pub what: What,
    /// Who: a library with its version, or a floor.
    pub who: String,
    /// Its batches.
    pub samples: Samples,
}

/// What is told of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Shared memory or TCP.
    pub over: Over,
    /// The operation.
    pub what: What,
    /// A library with its version, or a floor.
    pub who: String,
    /// Time of an operation: the least, that of the best tenth, the median.
    pub min_ns: f64,
    /// That of the best tenth: both processes were on a CPU.
    pub p10_ns: f64,
    /// The median.
    pub median_ns: f64,
    /// Batches.
    pub batches: usize,
    /// Bytes per second at the best tenth; none where nothing is moved.
    pub bytes_per_s: Option<f64>,
    /// CPU time of both processes for an operation.
    pub cpu_ns: Option<f64>,
    /// A cache line one way in the same minutes, best tenth.
    pub line_ns: Option<f64>,
}

/// All of them, in the order in which they were first measured.
#[derive(Clone, Debug, Default)]
pub struct Figures(Vec<Figure>);

impl Figures {
    /// Adds batches to what there is of this thing.
    pub fn add(&mut self, over: Over, what: What, who: &str, samples: Samples) {
        let is_this = |one: &&mut Figure| one.over == over && one.what == what && one.who == who;
        match self.0.iter_mut().find(is_this) {
            Some(Figure { samples: there, .. }) => {
                there.times_ns.extend(samples.times_ns);
                there.line_ns.extend(samples.line_ns);
                there.operations += samples.operations;
                there.cpu_ns += samples.cpu_ns;
            }
            None => self.0.push(Figure { over, what, who: who.into(), samples }),
        }
    }

    /// The least time of a thing so far.
    pub fn least_ns(&self, over: Over, what: What, who: &str) -> Option<f64> {
        let is_this = |one: &&Figure| one.over == over && one.what == what && one.who == who;
        let this = self.0.iter().find(is_this)?;
        this.samples.times_ns.iter().copied().min_by(f64::total_cmp)
    }

    /// Those that have batches.
    pub fn summaries(&self) -> Vec<Summary> {
        self.0.iter().filter_map(Figure::summary).collect()
    }
}

impl Figure {
    fn summary(&self) -> Option<Summary> {
        let Samples { times_ns, line_ns, operations, cpu_ns } = &self.samples;
        let [min_ns, p10_ns, median_ns] = [0.0, 0.1, 0.5].map(|share| quantile(times_ns, share));
        let bytes = self.what.bytes();
        Some(Summary {
            over: self.over,
            what: self.what,
            who: self.who.clone(),
            min_ns: min_ns?,
            p10_ns: p10_ns?,
            median_ns: median_ns?,
            batches: times_ns.len(),
            bytes_per_s: p10_ns.filter(|_| bytes > 0).map(|ns| bytes as f64 / ns * 1e9),
            cpu_ns: (*operations > 0 && *cpu_ns > 0.0).then(|| cpu_ns / *operations as f64),
            line_ns: quantile(line_ns, 0.1),
        })
    }
}

/// The value below which a share of them lies; the least of all at 0.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_one_thing_are_one_figure() {
        let mut figures = Figures::default();
        let samples = |ns: f64| Samples {
            times_ns: vec![ns; 5],
            line_ns: vec![50.0],
            operations: 10,
            cpu_ns: 20.0 * ns,
        };
        figures.add(Over::Memory, What::PingPong(8), "a", samples(100.0));
        figures.add(Over::Memory, What::PingPong(8), "b", samples(300.0));
        figures.add(Over::Memory, What::PingPong(8), "a", samples(200.0));
        figures.add(Over::Tcp, What::PingPong(8), "a", Samples::default());
        let found = figures.summaries();
        assert_eq!(found.len(), 2, "what has no batches is left out");
        assert_eq!((found[0].min_ns, found[0].median_ns, found[0].batches), (100.0, 200.0, 10));
        assert_eq!(found[0].cpu_ns, Some(300.0));
        assert_eq!(found[0].bytes_per_s, Some(8e7));
        assert_eq!(found[1].line_ns, Some(50.0));
    }

    #[test]
    fn quantiles_are_values_that_were_there() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(
            [0.0, 0.1, 0.5, 1.0].map(|share| quantile(&values, share).unwrap()),
            [0.0, 10.0, 50.0, 100.0]
        );
        assert_eq!(quantile(&[], 0.5), None);
    }
}
