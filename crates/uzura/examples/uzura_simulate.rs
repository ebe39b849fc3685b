//! Runs seeds of simulated engines and says which of them lost, doubled or misplaced a byte.
//!
//! ```text
//! cargo run --release -p covey-uzura --example uzura_simulate -- --seeds 10000
//! cargo run --release -p covey-uzura --example uzura_simulate -- --first 4711 --seeds 1
//! ```

#[path = "../tests/uzura/mod.rs"]
mod uzura;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let first = value("--first").unwrap_or(0);
    let count = value("--seeds").unwrap_or(1000);
    let (mut failed, mut sum) = (0_u64, uzura::Report::default());
    for seed in first..first + count {
        match uzura::simulate(seed) {
            Ok(report) => sum.add(&report),
            Err(what) => {
                failed += 1;
                eprintln!("seed {seed}: {what}");
            }
        }
    }
    println!("{count} seeds, {failed} failed; {sum:?}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
