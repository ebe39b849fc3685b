//! Candidates measured in rounds, against each other.

use super::Progress;
use super::blas::Blas;
use super::run::{Job, Ready};
use crate::error::Result;
use crate::hosts::Hosts;
use crate::stop::Stop;
use covey_tune::application::{Case, Rate, Repetition, survivors};
use std::collections::BTreeMap;
use std::time::Instant;

/// Which libraries, by their places in the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// The MPI.
    pub mpi: usize,
    /// The BLAS.
    pub blas: usize,
}

/// What can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// By which libraries.
    pub way: Way,
    /// What, dealt out how.
    pub case: Case,
}

impl Candidate {
    /// Whether one of the two is to be chosen: the same routine, type and MPI.
    pub fn is_of_same(&self, other: &Candidate) -> bool {
        let problem = |one: &Candidate| (one.way.mpi, one.case.routine, one.case.numbers);
        problem(self) == problem(other)
    }
}

/// What was found out.
#[derive(Clone, Debug, Default)]
pub struct Found(BTreeMap<Candidate, Vec<Repetition>>);

impl Found {
    /// The best of a candidate.
    pub fn rate(&self, one: &Candidate) -> Option<Rate> {
        Rate::of(self.0.get(one)?)
    }

    /// All rates.
    pub fn all(&self) -> impl Iterator<Item = (&Candidate, Rate)> {
        self.0.iter().filter_map(|(one, all)| Some((one, Rate::of(all)?)))
    }

    /// The foremost of each routine, type and MPI. Wrong answers lead nowhere.
    pub fn leaders(&self, count: usize) -> Vec<Candidate> {
        let mut right: Vec<(&Candidate, Rate)> =
            self.all().filter(|(_, rate)| rate.is_right()).collect();
        right.sort_by(|(_, one), (_, other)| other.gflops.total_cmp(&one.gflops));
        let is_foremost = |place: usize, one: &Candidate| {
            right[..place].iter().filter(|(other, _)| other.is_of_same(one)).count() < count
        };
        let all = right.iter().enumerate();
        all.filter(|(place, (one, _))| is_foremost(*place, one))
            .map(|(_, (one, _))| **one)
            .collect()
    }

    /// What is still in the contest after so many rounds.
    fn remaining(&self, alive: &[Candidate], rounds: usize) -> Vec<Candidate> {
        let gflops =
            |one: &Candidate| self.rate(one).filter(Rate::is_right).map_or(0.0, |rate| rate.gflops);
        let stays = |one: &&Candidate| {
            let rivals: Vec<&Candidate> =
                alive.iter().filter(|other| other.is_of_same(one)).collect();
            let rates: Vec<f64> = rivals.iter().map(|other| gflops(other)).collect();
            let place = rivals.iter().position(|other| other == one);
            place.is_some_and(|place| survivors(&rates, rounds)[place])
        };
        alive.iter().filter(stays).copied().collect()
    }
}

/// Where it is held.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The hosts.
    pub hosts: &'a Hosts,
    /// How many processes.
    pub ranks: usize,
    /// The MPIs.
    pub ready: &'a [Ready],
    /// The BLAS libraries.
    pub blas: &'a [Blas],
}

/// How it is held.
#[derive(Clone, Debug)]
pub struct Contest {
    /// The most rounds.
    pub rounds: usize,
    /// How often each round measures each.
    pub passes: usize,
    /// How long it may take. In a round that takes longer not every candidate has its turn.
    pub seconds: f64,
    /// Whether those far behind drop out.
    pub prunes: bool,
}

/// A job that takes longer is not what was wanted.
const JOB_SECONDS: f64 = 600.0;

impl Contest {
    /// Holds it. Answers which ways broke off, and why; what they had brought is kept.
    pub fn hold(
        &self,
        place: &Place<'_>,
        candidates: &[Candidate],
        found: &mut Found,
        stop: &Stop,
        progress: Progress<'_>,
    ) -> Result<Vec<(Way, String)>> {
        let (mut alive, mut broken) = (candidates.to_vec(), Vec::new());
        let begin = Instant::now();
        for round in 0..self.rounds {
            if round > 0 && begin.elapsed().as_secs_f64() > self.seconds {
                break;
            }
            let ways = ways(&alive);
            let seconds = (self.seconds / ways.len().max(1) as f64).min(JOB_SECONDS);
            for way in ways {
                if stop.is_asked() {
                    return Ok(broken);
                }
                let mut cases: Vec<Case> =
                    alive.iter().filter(|one| one.way == way).map(|one| one.case).collect();
                // When time is short, each problem still meets the same blocks and grids.
                cases.sort_by_key(|case| (case.block, case.rows, case.routine, case.numbers));
                if round % 2 == 1 {
                    cases.reverse();
                }
                let (ready, blas) = (&place.ready[way.mpi], &place.blas[way.blas]);
                progress(&format!(
                    "round {}: {} cases over {} with {}",
                    round + 1,
                    cases.len(),
                    ready.mpi.name,
                    blas.name
                ));
                let job = Job {
                    hosts: place.hosts,
                    ranks: place.ranks,
                    blas,
                    cases: &cases,
                    passes: self.passes,
                    seconds,
                    least: problems(&cases),
                };
                let ran = ready.measure(&job, stop)?;
                for one in ran.repetitions {
                    found.0.entry(Candidate { way, case: one.case }).or_default().push(one);
                }
                if let Some(why) = ran.failure.filter(|_| !stop.is_asked()) {
                    alive.retain(|one| one.way != way);
                    broken.push((way, why));
                }
            }
            if self.prunes {
                alive = found.remaining(&alive, round + 1);
            }
        }
        Ok(broken)
    }
}

/// How many routines and types there are.
fn problems(cases: &[Case]) -> usize {
    let mut all: Vec<_> = cases.iter().map(|case| (case.routine, case.numbers)).collect();
    all.sort();
    all.dedup();
    all.len()
}

fn ways(alive: &[Candidate]) -> Vec<Way> {
    let mut all: Vec<Way> = alive.iter().map(|one| one.way).collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_tune::application::{Numbers, Routine};

    fn candidate(mpi: usize, blas: usize, block: u64) -> Candidate {
        let (routine, numbers) = (Routine::Gemm, Numbers::D);
        let case = Case { routine, numbers, order: 100, block, rows: 1, columns: 2 };
        Candidate { way: Way { mpi, blas }, case }
    }

    fn found(all: &[(Candidate, f64, f64)]) -> Found {
        let mut found = Found::default();
        for (one, wall_s, residual) in all {
            let (wall_s, residual) = (*wall_s, *residual);
            let once = Repetition { case: one.case, wall_s, cpu_s: wall_s, residual };
            found.0.entry(*one).or_default().push(once);
        }
        found
    }

    #[test]
    fn each_mpi_has_a_leader_and_wrong_answers_do_not_lead() {
        let found = found(&[
            (candidate(0, 0, 8), 2.0, 0.1),
            (candidate(0, 1, 8), 1.0, 0.1),
            (candidate(0, 1, 16), 0.1, 1e9),
            (candidate(1, 0, 8), 9.0, 0.1),
        ]);
        assert_eq!(found.leaders(1), [candidate(0, 1, 8), candidate(1, 0, 8)]);
        assert_eq!(found.leaders(2).len(), 3);
    }

    #[test]
    fn who_is_far_behind_drops_out_of_his_own_contest_only() {
        let all = [candidate(0, 0, 8), candidate(0, 0, 16), candidate(1, 0, 8)];
        let found = found(&[(all[0], 1.0, 0.1), (all[1], 3.0, 0.1), (all[2], 9.0, 0.1)]);
        assert_eq!(found.remaining(&all, 1), [all[0], all[2]]);
        assert_eq!(ways(&all), [Way { mpi: 0, blas: 0 }, Way { mpi: 1, blas: 0 }]);
    }
}
