//! The lab, the tuner and the engine's figures, end to end.

mod lab;
mod report;
mod reproduce;
mod tune;
mod tune_app;
mod tune_disk;
mod tune_levels;
mod uzura_bench;
