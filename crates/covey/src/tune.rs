//! Measuring: what brings the times to `covey_tune`, and what shows its answers.

pub mod environment;
pub mod file;
pub mod html;
pub mod plot;
pub mod png;
pub mod probe;
pub mod provenance;
pub mod report;
pub mod results;
pub mod usage;
