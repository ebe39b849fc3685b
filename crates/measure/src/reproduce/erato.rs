//! ERATO-1's figures and table.

mod apps;
mod card;
mod links;
mod pairs;

use super::bench::Bench;
use super::told::Part;
use covey_tune::papers::Paper;
use links::Links;

/// The parts.
pub const PARTS: [&str; 5] = ["fig5-7", "fig1-4", "fig8-9", "fig10-13", "table1"];

/// Measures these parts.
pub async fn run(bench: &mut Bench, parts: &[&'static str]) -> Vec<Part> {
    let mut links = Links::default();
    let mut found = Vec::new();
    for part in parts {
        bench.say(format!("ERATO-1, {part}"));
        found.push(match *part {
            "fig5-7" => links::numbers(bench, &mut links).await,
            "fig1-4" => pairs::claims(bench, &mut links).await,
            "fig8-9" => card::bad(bench).await,
            "fig10-13" => apps::figures(bench).await,
            _ => apps::peaks(bench).await,
        });
    }
    found
}

fn part(name: &'static str, title: &'static str) -> Part {
    Part::new(Paper::Erato1, name, title)
}
