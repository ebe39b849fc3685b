//! Measuring: what brings the times to `covey_tune`, and what shows its answers.

pub mod all;
pub mod app;
pub mod blocks;
pub mod calls;
pub mod child;
pub mod disk;
pub mod environment;
pub mod file;
pub mod hosts;
pub mod html;
pub mod levels;
pub mod mpi;
pub mod plot;
pub mod png;
pub mod probe;
pub mod programs;
pub mod provenance;
pub mod pvm;
pub mod report;
pub mod results;
pub mod scratch;
pub mod stop;
pub mod usage;
