//! Several measurements within one budget: which fit, how long each may take, and what came of them.

use super::app::report::AppReport;
use super::disk::DiskReport;
use super::levels::{Level, Missing};
use super::provenance::Provenance;
use super::report::{Graph, Report};
use covey_tune::levels::Overhead;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::time::Duration;

/// A measurement, in order of worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// `tune net`.
    Net,
    /// `tune disk`.
    Disk,
    /// `tune mpi`.
    Mpi,
    /// `tune app`.
    App,
    /// `tune pvm`.
    Pvm,
}

impl Part {
    /// All of them, those that tell most first.
    pub const ALL: [Part; 5] = [Part::Net, Part::Disk, Part::Mpi, Part::App, Part::Pvm];

    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Part::Net => "net",
            Part::Disk => "disk",
            Part::Mpi => "mpi",
            Part::App => "app",
            Part::Pvm => "pvm",
        }
    }

    /// With less time its numbers mean nothing.
    pub fn least(self) -> Duration {
        Duration::from_secs(match self {
            Part::Net => 4,
            Part::Disk | Part::Mpi => 3,
            Part::App => 20,
            Part::Pvm => 2,
        })
    }

    /// What share of the time it is given, beside the others'.
    fn weight(self) -> u32 {
        match self {
            Part::Net | Part::Disk => 3,
            Part::Mpi => 2,
            Part::App => 4,
            Part::Pvm => 1,
        }
    }
}

/// Which of these parts fit, and which do not. The first ones go first.
pub fn fitting(budget: Duration, parts: &[Part]) -> (Vec<Part>, Vec<Part>) {
    let mut left = budget;
    parts.iter().partition(|part| match left.checked_sub(part.least()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    })
}

/// How long the first of these may take, so that there is enough for the others.
pub fn share(left: Duration, parts: &[Part]) -> Duration {
    let Some(first) = parts.first() else { return Duration::ZERO };
    let all: u32 = parts.iter().map(|part| part.weight()).sum();
    let others: Duration = parts[1..].iter().map(|part| part.least()).sum();
    let most = left.saturating_sub(others);
    (left * first.weight() / all).min(most).max(first.least())
}

/// What one part brought.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Found {
    /// The network.
    Link(Box<Report>),
    /// The network through a message library.
    Level(Box<Level>),
    /// A directory or device.
    Disk(Box<DiskReport>),
    /// ScaLAPACK.
    App(Box<AppReport>),
}

/// How long a part took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spent {
    /// Which.
    pub part: Part,
    /// What it was given, in seconds.
    pub planned_s: f64,
    /// What it took, in seconds.
    pub seconds: f64,
}

/// The result of `covey tune all`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct All {
    /// `all`.
    pub kind: String,
    /// What there was, in seconds.
    pub budget_s: f64,
    /// What was measured, as the single commands report it.
    pub results: Vec<Found>,
    /// What message libraries cost over TCP.
    pub overheads: Vec<Overhead>,
    /// What took how long.
    pub spent: Vec<Spent>,
    /// What was left out by intention: which, and why.
    pub left_out: Vec<Missing>,
    /// What failed or broke off: which, and why.
    pub failures: Vec<Missing>,
    /// Where the numbers come from.
    pub provenance: Provenance,
}

impl All {
    /// Notes what is left out.
    pub fn leave_out(&mut self, part: Part, why: impl Into<String>) {
        self.left_out.push(Missing { what: part.word().into(), why: why.into() });
    }

    /// Notes what failed.
    pub fn fail(&mut self, part: Part, why: impl Into<String>) {
        self.failures.push(Missing { what: part.word().into(), why: why.into() });
    }

    /// In words.
    pub fn tell(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        for found in &self.results {
            match found {
                Found::Link(report) => report.tell(out, Graph::None)?,
                Found::Level(level) => level.report.tell(out, Graph::None)?,
                Found::Disk(report) => report.tell(out)?,
                Found::App(report) => report.tell(out)?,
            }
            writeln!(out)?;
        }
        for Spent { part, planned_s, seconds } in &self.spent {
            writeln!(out, "{}: {seconds:.1} s of {planned_s:.1} s", part.word())?;
        }
        for (what, list) in [("left out", &self.left_out), ("failed", &self.failures)] {
            for Missing { what: which, why } in list {
                writeln!(out, "{what}: {which}: {why}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn what_is_worth_most_is_fitted_first() {
        let (fit, rest) = fitting(seconds(8), &Part::ALL);
        assert_eq!((fit, rest), (vec![Part::Net, Part::Disk], Part::ALL[2..].to_vec()));
        assert_eq!(fitting(seconds(32), &Part::ALL).0, Part::ALL);
        assert_eq!(fitting(seconds(2), &Part::ALL).0, [Part::Pvm], "a short one may still fit");
        assert!(fitting(seconds(1), &Part::ALL).0.is_empty());
    }

    #[test]
    fn each_part_leaves_enough_for_the_others() {
        assert_eq!(share(seconds(130), &Part::ALL), seconds(30));
        assert_eq!(share(seconds(32), &Part::ALL), seconds(4));
        assert_eq!(share(seconds(10), &[Part::Pvm]), seconds(10), "the last has all that is left");
        assert_eq!(share(seconds(9), &[]), Duration::ZERO);
    }
}
