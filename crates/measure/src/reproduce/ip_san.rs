//! The tables and figures of the IP-SAN paper: BTIO on local disks, on volumes over iSCSI, and on the parallel file
//! system, with messages and storage on one network or on two.

mod blocks;
mod disks;
mod figures;
mod future;
mod runs;
mod sizes;
mod traffic;

use super::bench::Bench;
use super::told::Part;
use crate::btio::Class;
use covey_tune::papers::Paper;
use runs::Runs;

/// The parts.
pub const PARTS: [&str; 8] =
    ["table2", "fig5", "fig8-9", "fig10-11", "fig12-13", "fig14-15", "future", "traffic"];

/// Measures these parts, with BTIO of these classes; none leaves the choice to us.
pub async fn run(bench: &mut Bench, parts: &[&'static str], classes: &[Class]) -> Vec<Part> {
    let usual: &[Class] = if bench.wish.is_quick { &[Class::W] } else { &[Class::W, Class::A] };
    let classes = if classes.is_empty() { usual } else { classes };
    let mut runs = Runs::default();
    let mut found = Vec::new();
    for part in parts {
        bench.say(format!("{}, {part}", Paper::IpSan.name()));
        found.push(match *part {
            "table2" => sizes::table(bench, classes).await,
            "fig5" => blocks::streams(bench).await,
            "fig8-9" => figures::disks(bench, &mut runs, classes).await,
            "fig10-11" => figures::simple(bench, &mut runs, classes).await,
            "fig12-13" => figures::fortran(bench, &mut runs, classes).await,
            "fig14-15" => figures::nodes(bench, &mut runs, classes).await,
            "future" => future::many(bench, classes).await,
            _ => traffic::phases(bench, classes).await,
        });
    }
    found
}

fn part(name: &'static str, title: &'static str) -> Part {
    Part::new(Paper::IpSan, name, title)
}
