//! Measuring: what brings the times to `covey_tune`, and what shows its answers.

pub mod environment;
pub mod plot;
pub mod probe;
pub mod provenance;
pub mod report;
pub mod usage;
