//! The libraries for C and MPI, end to end: real programs, compiled and preloaded.

#[macro_use]
extern crate covey_harness_macro;

mod btio;
mod capi;
mod cell;
mod cell_ends;
mod cell_holds;
mod mpi;
#[path = "../hostile/nine.rs"]
#[allow(dead_code)]
mod nine;
mod nodes;
mod pmpi;
mod preload;
mod python;
#[path = "../support/mod.rs"]
mod support;
mod workers;

fn main() {
    covey_harness::run()
}
