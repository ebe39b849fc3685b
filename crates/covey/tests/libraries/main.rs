//! The libraries for C and MPI, end to end: real programs, compiled and preloaded.

mod capi;
mod cell;
mod mpi;
mod pmpi;
mod preload;
#[path = "../support/mod.rs"]
mod support;
