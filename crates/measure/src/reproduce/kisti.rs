//! KISTI's table and figures.

mod bonnie;
mod cluster;
mod collectives;
mod commands;
mod kernels;
mod linpack;
mod networks;

use super::bench::Bench;
use super::told::Part;
use bonnie::Rates;
use covey_tune::papers::Paper;
use linpack::Challenges;

/// The parts.
pub const PARTS: [&str; 7] = ["table1", "fig1", "fig2", "fig3", "fig4", "fig5", "fig6"];

/// Measures these parts.
pub async fn run(bench: &mut Bench, parts: &[&'static str]) -> Vec<Part> {
    let (mut rates, mut challenges) = (Rates::default(), Challenges::default());
    let mut found = Vec::new();
    for part in parts {
        bench.say(format!("KISTI 2007, {part}"));
        found.push(match *part {
            "table1" => bonnie::table(bench, &mut rates).await,
            "fig1" => bonnie::networks(bench, &mut rates).await,
            "fig2" => bonnie::metadata(bench, &mut rates).await,
            "fig3" => collectives::networks(bench).await,
            "fig4" => linpack::networks(bench, &mut challenges).await,
            "fig5" => kernels::networks(bench, &mut challenges).await,
            _ => commands::networks(bench).await,
        });
    }
    found
}

fn part(name: &'static str, title: &'static str) -> Part {
    Part::new(Paper::Kisti, name, title)
}
