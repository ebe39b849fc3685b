//! Programs on nodes, end to end: `covey run` and the commands about jobs, and MPI programs.

#[macro_use]
extern crate covey_harness_macro;

mod foreign;
mod job_fs;
mod keys;
mod lifetimes;
mod mpi;
#[path = "../hostile/nine.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod nine;
mod pacing;
mod run;
mod slurm;
mod spread;
#[path = "../support/mod.rs"]
mod support;
mod trouble;
mod views;

fn main() {
    covey_harness::run()
}
