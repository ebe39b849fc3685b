//! Papers that were measured again: numbers beside theirs, claims and their answers, differences divided.

use super::disk::notes_html;
use super::{Table, Unit, escape};
use crate::reproduce::drawn::{Axis, Figure, TRAFFIC_HEADING, Traffic};
use covey_plot::chart::{self, Chart, Look, Run, Sample, Series, Size};
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
    traffic: Vec<Traffic>,
    figures: Vec<Figure>,
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
    let figures: String = part.figures.iter().map(|one| figure(paper, one)).collect();
    let traffic: String = part.traffic.iter().map(traffic).collect();
    let tables = [beside(&part.beside), divided(&part.divided), claims(&part.claims)].concat();
    let measured = part.measured.iter().map(|text| format!("Measured: {text}"));
    let differs = part.differs.iter().map(|text| format!("Differs: {text}"));
    let left_out = part.left_out.iter().map(|one| format!("Left out: {}: {}", one.what, one.why));
    format!(
        "{heading}{tables}{figures}{traffic}{}",
        notes_html(measured.chain(differs).chain(left_out))
    )
}

/// At three sizes, of which the page shows the one that fits.
fn figure(paper: &str, one: &Figure) -> String {
    let name = format!("{}-{}", paper.to_lowercase().replace(' ', "-"), one.id);
    let mut chart = chart(one);
    let mut draw = |class: &str, width: f64, height: f64| {
        chart.id = format!("{name}-{class}");
        let svg = chart.svg(Size { width, height }, Look::Page);
        svg.replacen("class=\"chart\"", &format!("class=\"chart {class}\""), 1)
    };
    let drawn = [("big", 1134.0, 420.0), ("mid", 552.0, 400.0), ("small", 344.0, 400.0)]
        .map(|(class, width, height)| draw(class, width, height));
    format!(
        "<figure id=\"{}\"><h3>{}</h3>{}<figcaption>{}</figcaption></figure>",
        escape(&name),
        escape(&one.title),
        drawn.concat(),
        escape(&one.about)
    )
}

fn chart(one: &Figure) -> Chart {
    let axis = |axis: &Axis| chart::Axis {
        name: axis.name.clone(),
        unit: match axis.unit {
            Some(Counted::Seconds) => Unit::Seconds,
            Some(Counted::BitsPerS) => Unit::BitsPerSecond,
            Some(Counted::Bytes) => Unit::Bytes,
            Some(Counted::BytesPerS) => Unit::BytesPerSecond,
            Some(Counted::Flops) => Unit::FlopsPerSecond,
            Some(Counted::OpsPerS | Counted::Share) | None => Unit::Plain,
        },
        run: if axis.is_log { Run::Log } else { Run::Linear },
    };
    let text = |unit: Option<Counted>, value| match unit {
        Some(unit) => number(unit, value),
        None => format!("{value}"),
    };
    let series = one.lines.iter().map(|line| {
        let sample = |at: &(f64, f64)| {
            let (x, y) = (text(one.x.unit, at.0), text(one.y.unit, at.1));
            Sample { at: *at, hover: format!("{}\n{x}: {y}", line.name) }
        };
        let points = line.points.iter().map(sample).collect();
        Series { name: line.name.clone(), points, ..Series::default() }
    });
    Chart {
        id: one.id.clone(),
        title: one.title.clone(),
        about: one.about.clone(),
        x: axis(&one.x),
        y: axis(&one.y),
        series: series.collect(),
        guides: Vec::new(),
    }
}

fn traffic(one: &Traffic) -> String {
    let heading = TRAFFIC_HEADING.map(|name| {
        let (mark, name) = name.strip_prefix('>').map_or(("", name), |name| (">", name));
        // Capitals at the beginning and in units, as in the other tables of the page.
        let words = name.split(' ').enumerate().map(|(at, word)| match word {
            "MB" | "B" => word.to_owned(),
            _ if at == 0 => format!("{}{}", &word[..1], word[1..].to_lowercase()),
            _ => word.to_lowercase(),
        });
        format!("{mark}{}", words.collect::<Vec<_>>().join(" "))
    });
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let mut table = Table::new(&format!("Traffic of {}", one.of), &heading);
    for row in one.rows() {
        let cells = row.into_iter().enumerate().map(|(column, text)| match column {
            0 => Cell::Name(text),
            1 | 2 => Cell::Text(text),
            _ => Cell::number(text),
        });
        table.row(cells);
    }
    if table.is_empty() { String::new() } else { table.html() }
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
        Counted::OpsPerS => format!("{:.0} Mop/s", value / 1e6),
        Counted::Share => format!("{:.1} %", 100.0 * value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_and_traffic_are_drawn_and_are_never_markup() {
        let axis = |name: &str, unit: &str| json!({ "name": name, "unit": unit, "is_log": true });
        let carried = json!({ "frames": 10.0, "bytes": 15_380.0, "peak_bytes_per_s": 2e6 });
        let phase =
            json!({ "phase": "<output>", "seconds": 1.0, "messages": carried, "storage": carried });
        let way = json!({ "cable": "n1 to n4, front", "from": "the nodes", "phases": [phase] });
        let paper = json!({
            "paper": "IP-SAN",
            "parts": [{
                "part": "fig5", "title": "streams",
                "figures": [{
                    "id": "streams", "title": "A <file>", "about": "By blocks.",
                    "x": axis("Block", "bytes"), "y": axis("Rate", "bytes-per-s"),
                    "lines": [{ "name": "read", "points": [[512.0, 1e8], [8192.0, 1.1e8]], "is_theirs": false }],
                }],
                "traffic": [{ "of": "epio", "sums": [[way, way]], "ways": [] }],
            }],
        });
        let html = papers(&[serde_json::from_value(paper).unwrap()]);
        for words in [
            "id=\"ip-san-streams\"",
            "A &lt;file&gt;",
            "Traffic of epio",
            "&lt;output&gt;",
            "Storage MB",
        ] {
            assert!(html.contains(words), "{words}: {html}");
        }
        assert_eq!(html.matches("<svg").count(), 3, "one for each width");
        assert!(!html.contains("<file>"));
    }
}
