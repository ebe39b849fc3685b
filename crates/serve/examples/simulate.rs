//! Runs seeds of the simulated cluster and stops at the first that breaks a promise.
//!
//! ```text
//! cargo run --release -p covey-serve --example simulate -- --seeds 10000      seeds 0 to 9999
//! cargo run --release -p covey-serve --example simulate -- --first 5000 --seeds 100
//! cargo run --release -p covey-serve --example simulate -- --seed 42          one, with its trace as it happens
//! ```

#[path = "../tests/sim/mod.rs"]
mod sim;

use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    if let Some(seed) = value("--seed") {
        return one(seed);
    }
    let goes_on = arguments.iter().any(|argument| argument == "--all");
    many(value("--first").unwrap_or(0), value("--seeds").unwrap_or(1000), goes_on)
}

fn one(seed: u64) -> ExitCode {
    match sim::simulate(seed, true) {
        Ok(report) => {
            println!("{report:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("seed {seed}: {}", failure.what);
            ExitCode::FAILURE
        }
    }
}

/// Runs seeds in turn; with `goes_on` past those that fail, and lists them.
fn many(first: u64, count: u64, goes_on: bool) -> ExitCode {
    let begun = Instant::now();
    let mut told = begun;
    let (mut operations, mut errors, mut virtual_time) = (0, 0, Duration::ZERO);
    let mut failed = Vec::new();
    for seed in first..first + count {
        match sim::simulate(seed, false) {
            Ok(report) => {
                operations += report.operations;
                errors += report.errors;
                virtual_time += report.elapsed;
            }
            Err(failure) if goes_on => {
                println!("seed {seed}: {}", failure.what);
                failed.push(seed);
            }
            Err(failure) => {
                eprintln!("{failure}");
                return ExitCode::FAILURE;
            }
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            eprintln!("{} of {count} seeds, {:.0?}", seed - first + 1, begun.elapsed());
        }
    }
    println!(
        "{count} seeds, {} failed {failed:?}: {operations} operations ({errors} failed for a reason), \
        {:.1} days of virtual time in {:.0?}",
        failed.len(),
        virtual_time.as_secs_f64() / 86400.0,
        begun.elapsed()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
