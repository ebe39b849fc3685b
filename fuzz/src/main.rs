//! All fuzz targets in one program: COVEY_FUZZ names the one to run, `scripts/fuzz` runs them.
//!
//! A target takes arbitrary bytes and must neither panic nor keep or ask for more memory than its input
//! explains; the allocator here watches that, so no sanitizer is needed.

#![no_main]

mod limit;
mod targets;

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use targets::TARGETS;

fuzz_target!(init: write_seeds(), |data: &[u8]| {
    static CHOSEN: OnceLock<fn(&[u8])> = OnceLock::new();
    let run = CHOSEN.get_or_init(|| {
        let name = std::env::var("COVEY_FUZZ").unwrap_or_default();
        let found = TARGETS.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("COVEY_FUZZ names no target: {name:?}")).1
    });
    limit::watched(|| run(data));
});

/// With COVEY_FUZZ_SEEDS, what a target begins with is written into that directory before it runs.
fn write_seeds() {
    let (Ok(dir), Ok(target)) = (std::env::var("COVEY_FUZZ_SEEDS"), std::env::var("COVEY_FUZZ"))
    else {
        return;
    };
    let seeds = targets::seeds().into_iter().filter(|(name, _)| *name == target);
    for (number, (_, seed)) in seeds.enumerate() {
        std::fs::write(format!("{dir}/seed{number}"), seed).expect("the corpus can be written");
    }
}
