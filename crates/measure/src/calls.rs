//! Whole calls over MPI, timed on several nodes at once: collectives, and kernels that communicate.

use super::child::{self, Watched};
use super::hosts::Hosts;
use super::mpi::{Mpi, Wait};
use super::programs::{self, COLLECTIVES, KERNELS, Program};
use super::scratch::Scratch;
use super::stop::Stop;
use crate::error::Result;
use covey_tune::timed::{Timed, read};
use std::time::Duration;

/// How long a program may write nothing: a batch of the longest call.
const SILENCE: Duration = Duration::from_secs(60);

/// What to time.
#[derive(Clone, Debug)]
pub enum Calls {
    /// Collectives by teams of so many processes, with messages of so many bytes.
    Collectives {
        /// How many take part.
        teams: Vec<usize>,
        /// How long the messages are.
        sizes: Vec<u64>,
    },
    /// Kernels, with their sizes.
    Kernels {
        /// Pairs of random numbers.
        pairs: u64,
        /// Unknowns of the sparse system.
        unknowns: u64,
        /// Edge of the plane that is transformed: a power of two.
        edge: u64,
        /// Integers that are sorted.
        keys: u64,
    },
}

/// What came of it: there may be something also when it failed.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// What was timed.
    pub all: Vec<Timed>,
    /// Why it broke off.
    pub failure: Option<String>,
}

impl Calls {
    fn program(&self) -> (Program, &'static [&'static str]) {
        match self {
            Calls::Collectives { .. } => (COLLECTIVES, &[]),
            Calls::Kernels { .. } => (KERNELS, &["-lm"]),
        }
    }

    fn words(&self) -> Vec<String> {
        match self {
            Calls::Collectives { teams, sizes } => {
                let teams: Vec<String> = teams.iter().map(usize::to_string).collect();
                let sizes = sizes.iter().map(u64::to_string);
                std::iter::once(teams.join(",")).chain(sizes).collect()
            }
            Calls::Kernels { pairs, unknowns, edge, keys } => {
                [pairs, unknowns, edge, keys].map(u64::to_string).to_vec()
            }
        }
    }

    /// Times all of it by so many processes, each thing for about `seconds`.
    pub fn time(
        &self,
        mpi: &Mpi,
        (hosts, ranks): (&Hosts, usize),
        seconds: f64,
        stop: &Stop,
    ) -> Result<Ran> {
        let (program, options) = self.program();
        let program = programs::build(program, mpi.compiler, options)?;
        let scratch = Scratch::new()?;
        let mut command = mpi.launch(hosts, ranks, Wait::Poll, &scratch)?;
        let (records, talk) = (scratch.file("records"), scratch.file("talk"));
        command.arg(program).arg(&records).arg(format!("{seconds:.3}")).args(self.words());
        let limit = SILENCE * 10;
        let watched =
            Watched { records: &records, output: &talk, talk: &talk, silence: SILENCE, limit };
        let mut ran = Ran::default();
        ran.failure = child::run(command, &watched, stop, |new| {
            let (found, used) = read(new)?;
            ran.all.extend(found);
            Ok(used)
        })?;
        Ok(ran)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_given_teams_and_sizes() {
        let calls = Calls::Collectives { teams: vec![2, 4], sizes: vec![8, 1024] };
        assert_eq!(calls.words(), ["2,4", "8", "1024"]);
        let calls = Calls::Kernels { pairs: 1, unknowns: 2, edge: 4, keys: 8 };
        assert_eq!(calls.words(), ["1", "2", "4", "8"]);
    }
}
