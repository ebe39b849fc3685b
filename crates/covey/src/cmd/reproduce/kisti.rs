//! KISTI's table and figures.

mod bonnie;
mod cluster;
mod commands;

use super::bench::Bench;
use super::told::Part;
use bonnie::Rates;
use covey_tune::papers::Paper;

/// The parts.
pub const PARTS: [&str; 7] = ["table1", "fig1", "fig2", "fig3", "fig4", "fig5", "fig6"];

/// Measures these parts.
pub async fn run(bench: &mut Bench, parts: &[&'static str]) -> Vec<Part> {
    let mut rates = Rates::default();
    let mut found = Vec::new();
    for part in parts {
        bench.say(format!("KISTI 2007, {part}"));
        found.push(match *part {
            "table1" => bonnie::table(bench, &mut rates).await,
            "fig1" => bonnie::networks(bench, &mut rates).await,
            "fig2" => bonnie::metadata(bench, &mut rates).await,
            "fig6" => commands::networks(bench).await,
            other => programs(other),
        });
    }
    found
}

fn part(name: &'static str, title: &'static str) -> Part {
    Part::new(Paper::Kisti, name, title)
}

/// Figures 3 to 5 need MPI programs of several nodes, which nothing here starts yet.
fn programs(name: &'static str) -> Part {
    let title = match name {
        "fig3" => "MPI collectives on InfiniBand and Myrinet",
        "fig4" => "HPL on InfiniBand and Myrinet",
        _ => "NAS kernels on InfiniBand and Myrinet",
    };
    let mut part = part(name, title);
    part.leave_out("all of it", "this covey starts no MPI program on more than two nodes of a lab");
    part
}
