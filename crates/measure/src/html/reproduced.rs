//! Papers that were measured again: numbers beside theirs, claims and their answers, differences divided.

use super::disk::notes_html;
use super::{Table, Unit, escape};
use covey_plot::page::Cell;
use covey_tune::Estimate;
use covey_tune::reproduce::{Beside, Judged, Outcome, Unit as Counted};
use covey_tune::split::{Source, Split};
use serde::Deserialize;

/// What `covey reproduce` says.
#[derive(Debug, Deserialize)]
pub struct Reproduced {
    paper: String,
    parts: Vec<Part>,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Part {
    part: String,
    title: String,
    beside: Vec<Beside>,
    measured: Vec<String>,
    divided: Vec<Divided>,
    claims: Vec<Judged>,
    differs: Vec<String>,
    left_out: Vec<LeftOut>,
}

#[derive(Debug, Deserialize)]
struct Divided {
    what: String,
    wires: [String; 2],
    libraries: [String; 2],
    times_s: [[Estimate; 2]; 2],
    #[serde(flatten)]
    split: Split,
    source: Source,
}

#[derive(Debug, Deserialize)]
struct LeftOut {
    what: String,
    why: String,
}

/// All parts of all papers.
pub fn papers(all: &[Reproduced]) -> String {
    let parts =
        all.iter().flat_map(|paper| paper.parts.iter().map(|part| told(&paper.paper, part)));
    parts.collect()
}

fn told(paper: &str, part: &Part) -> String {
    let heading =
        format!("<h3>{}, {}: {}</h3>", escape(paper), escape(&part.part), escape(&part.title));
    let tables = [beside(&part.beside), divided(&part.divided), claims(&part.claims)].concat();
    let measured = part.measured.iter().map(|text| format!("Measured: {text}"));
    let differs = part.differs.iter().map(|text| format!("Differs: {text}"));
    let left_out = part.left_out.iter().map(|one| format!("Left out: {}: {}", one.what, one.why));
    format!("{heading}{tables}{}", notes_html(measured.chain(differs).chain(left_out)))
}

fn beside(all: &[Beside]) -> String {
    let mut table = Table::new("", &["Of", "", ">Ours", ">Theirs", ">Ratio", "In"]);
    for one in all {
        let text = |value| number(one.unit, value);
        table.row([
            Cell::Name(one.of.clone()),
            Cell::Text(one.what.clone()),
            Cell::Number(
                text(one.ours.value),
                format!("{} to {}", text(one.ours.low), text(one.ours.high)),
            ),
            Cell::number(text(one.theirs)),
            Cell::number(format!("{:.2}", one.ratio)),
            Cell::Text(one.place.clone()),
        ]);
    }
    if table.is_empty() { String::new() } else { table.html() }
}

fn divided(all: &[Divided]) -> String {
    let tables = all.chunk_by(|one, other| one.wires == other.wires).map(|same| {
        let Divided { wires: [first, second], libraries: [a, b], .. } = &same[0];
        let caption = format!(
            "{second} against {first}. Factors are of the time: below 1 {second} is faster, or {b}; below each the \
             interval in which it lies."
        );
        let over = |wire: &str, library: &str| format!(">{wire}, {library}");
        let heads = [over(first, a), over(first, b), over(second, a), over(second, b)];
        let mut heading = vec![""];
        heading.extend(heads.iter().map(String::as_str));
        heading.extend([">The wire", ">The library", "Comes from"]);
        let mut table = Table::new(&caption, &heading);
        for row in same {
            let times = row.times_s.iter().flatten();
            let times = times.map(|time| Cell::number(Unit::Seconds.text(time.value)));
            let factor = |one: Estimate| Cell::Number(format!("{:.2}", one.value), format!("{:.2} to {:.2}", one.low, one.high));
            let factors = [row.split.wire, row.split.library].map(factor);
            let name = std::iter::once(Cell::Name(row.what.clone()));
            let last = std::iter::once(Cell::Text(row.source.words().to_string()));
            table.row(name.chain(times).chain(factors).chain(last));
        }
        table.html()
    });
    tables.collect()
}

fn claims(all: &[Judged]) -> String {
    let mut table = Table::new("", &["The paper says", "In", "Here", "Because"]);
    for one in all {
        let words = one.answer.outcome.words().to_string();
        table.row([
            Cell::Text(one.text.clone()),
            Cell::Text(one.place.clone()),
            match one.answer.outcome {
                Outcome::Holds => Cell::Judged(true, words),
                Outcome::DoesNotHold => Cell::Judged(false, words),
                Outcome::NotShown => Cell::Text(words),
            },
            Cell::Text(one.answer.because.clone()),
        ]);
    }
    if table.is_empty() { String::new() } else { table.html() }
}

fn number(unit: Counted, value: f64) -> String {
    match unit {
        Counted::Seconds => Unit::Seconds.text(value),
        Counted::BitsPerS => Unit::BitsPerSecond.text(value),
        Counted::Bytes => Unit::Bytes.text(value),
        Counted::BytesPerS => Unit::BytesPerSecond.text(value),
        Counted::Flops => Unit::FlopsPerSecond.text(value),
        Counted::Share => format!("{:.1} %", 100.0 * value),
    }
}
