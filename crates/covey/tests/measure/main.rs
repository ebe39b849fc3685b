//! The lab, the tuner and the engine's figures, end to end.

mod lab;
mod report;
mod reproduce;
#[path = "../support/mod.rs"]
mod support;
mod tune;
mod tune_app;
mod tune_disk;
mod tune_levels;
mod uzura_bench;
