//! Programs on nodes, end to end: `covey run` and the commands about jobs, and MPI programs.

mod mpi;
mod run;
#[path = "../support/mod.rs"]
mod support;
