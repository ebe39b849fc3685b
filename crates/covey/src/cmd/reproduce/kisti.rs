//! KISTI's table and figures.

use super::bench::Bench;
use super::told::{Part, Reproduction};
use crate::tune::environment::Watch;
use crate::tune::provenance::Provenance;
use covey_tune::papers::Paper;

/// The parts.
pub const PARTS: [&str; 7] = ["table1", "fig1", "fig2", "fig3", "fig4", "fig5", "fig6"];

/// Measures these parts.
pub async fn run(bench: &mut Bench, parts: &[&'static str]) -> Reproduction {
    let watch = Watch::begin();
    let mut found = Vec::new();
    for part in parts {
        bench.say(format!("KISTI 2007, {part}"));
        let mut one = Part::new(Paper::Kisti, part, "not measured");
        one.leave_out("all of it", "this covey cannot measure it");
        found.push(one);
    }
    Reproduction {
        kind: "reproduce",
        paper: Paper::Kisti.name(),
        is_quick: bench.wish.is_quick,
        parts: found,
        environment: watch.end(),
        provenance: Provenance::here(),
    }
}
