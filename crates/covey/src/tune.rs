//! Measuring: what brings the times to `covey_tune`, and what shows its answers.

pub mod blocks;
pub mod child;
pub mod environment;
pub mod hosts;
pub mod levels;
pub mod mpi;
pub mod plot;
pub mod probe;
pub mod programs;
pub mod provenance;
pub mod pvm;
pub mod report;
pub mod scratch;
pub mod stop;
pub mod usage;
