//! The report of a network: what [`page`](mod@covey_plot::page) is filled with.
//!
//! Each chart is drawn at several sizes, of which the page shows the one that fits, so that letters stay
//! as large as they are. Whatever comes from a result is text, never markup.

mod app;
mod disk;
pub mod graphs;
mod links;
mod pairs;
mod reproduced;
mod theirs;

use super::app::report::AppReport;
use super::disk::DiskReport;
use super::results::{Results, SUSPICIONS};
use covey_plot::chart::{Look, Size, Unit, escape};
use covey_plot::page::{Page, Part, Table};
use covey_plot::utc;
use covey_tune::eliminate::Suspicion;
use graphs::{Kind, chart};
use reproduced::Reproduced;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The page.
pub fn page(results: &Results) -> String {
    let footer = format!(
        "Made by covey {} tune report. Everything is in this file.",
        env!("CARGO_PKG_VERSION")
    );
    Page {
        title: title(results),
        about: subtitle(results),
        key: key(results),
        parts: parts(results),
        footer,
    }
    .html()
}

fn parts(results: &Results) -> Vec<Part> {
    let part = |id, title, body: Option<String>| body.map(|body| Part { id, title, body });
    let links = &results.links;
    let some = |text: String| (!text.is_empty()).then_some(text);
    let mut others = results.others.clone();
    let suspicions: Vec<Suspicion> =
        take::<Vec<Suspicion>>(&mut others, SUSPICIONS).into_iter().flatten().collect();
    let diagnosis = links::suspicions(&suspicions) + &links::verdicts(links);
    let mut parts: Vec<Part> = [
        part("verdict", "Diagnosis", some(diagnosis)),
        part("graphs", "Graphs", figures(results)),
        part("numbers", "Numbers", some(links::quantities(links))),
        part("pairs", "All pairs", pairs::matrix(links)),
        part("long", "Long transfers", some(links::streams(links))),
        part("papers", "Beside ERATO-1", theirs::erato(links)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let disks: Vec<DiskReport> = take(&mut others, "disk");
    let apps: Vec<AppReport> = take(&mut others, "app");
    let papers: Vec<Reproduced> = take(&mut others, "reproduce");
    parts.extend(part("disk", "Directories and devices", some(disk::disks(&disks))));
    parts.extend(part("app", "Matrices", some(app::apps(&apps))));
    parts.extend(part("again", "Papers measured again", some(reproduced::papers(&papers))));
    parts.extend(part("others", "Other results", some(theirs::others(&others))));
    parts.extend(part("about", "Where this comes from", some(links::provenance(links))));
    parts
}

/// Those of one kind that are whole; the others stay, to be told as they are.
fn take<T: DeserializeOwned>(others: &mut Vec<(String, Value)>, kind: &str) -> Vec<T> {
    let mut found = Vec::new();
    others.retain(|(name, value)| {
        match (name == kind).then(|| serde_json::from_value(value.clone())) {
            Some(Ok(one)) => {
                found.push(one);
                false
            }
            _ => true,
        }
    });
    found
}

fn title(results: &Results) -> String {
    let links = &results.links;
    match links.as_slice() {
        [] => "What was measured".to_string(),
        [one] => format!("The network from {} to {}", one.from, one.to),
        [first, rest @ ..] => {
            let is_one = rest.iter().all(|link| (&link.from, &link.to) == (&first.from, &first.to));
            if is_one {
                format!("The network from {} to {}", first.from, first.to)
            } else {
                format!("The network: {} links", links.len())
            }
        }
    }
}

fn subtitle(results: &Results) -> String {
    let Some(origin) = results.links.first().map(|link| &link.provenance) else {
        return String::new();
    };
    if origin.host.is_empty() {
        return String::new();
    }
    let text = format!(
        "Measured on {} at {} UTC: {}, {} CPUs, Linux {}",
        origin.host,
        utc(origin.began_s.cast_signed()),
        origin.processor,
        origin.cpus,
        origin.kernel
    );
    format!("<p class=\"sub\">{}</p>", escape(&text))
}

/// The numbers that everybody wants first.
fn key(results: &Results) -> String {
    let Some(first) = results.links.iter().find_map(|link| Some((link, link.typical.as_ref()?)))
    else {
        return String::new();
    };
    let (link, found) = first;
    let warning = links::warning(&results.links);
    let one = |value: String, name: &str| format!("<div><b>{value}</b><span>{name}</span></div>");
    let share = link.wire.map(|wire| {
        let share = 100.0 * found.bandwidth_bits_per_s.value / wire.tcp_bits_per_s();
        one(format!("{share:.1} %"), "of what the wire allows TCP")
    });
    let bytes = |name: &str, value: Option<covey_tune::Estimate>| {
        value.map(|value| one(Unit::Bytes.text(value.value), name))
    };
    let tiles: String = [
        Some(one(Unit::Seconds.text(found.latency_s.value), "latency, one way")),
        Some(one(Unit::BitsPerSecond.text(found.bandwidth_bits_per_s.value), "bandwidth")),
        share,
        bytes("saturation point S", found.saturation_bytes),
        bytes("n95", found.plateau_bytes),
    ]
    .into_iter()
    .flatten()
    .collect();
    let whose = match results.links.len() {
        1 => String::new(),
        _ => format!(
            "<p class=\"note\">{} from {} to {}:</p>",
            escape(&link.protocol),
            escape(&link.from),
            escape(&link.to)
        ),
    };
    format!("{warning}{whose}<div class=\"key\">{tiles}</div>")
}

fn figures(results: &Results) -> Option<String> {
    if results.links.is_empty() {
        return None;
    }
    let figure = |kind: Kind| {
        let mut chart = chart(kind, &results.links);
        let name = chart.id.clone();
        let mut draw = |class: &str, width: f64, height: f64| {
            chart.id = format!("{name}-{class}");
            let svg = chart.svg(Size { width, height }, Look::Page);
            svg.replacen("class=\"chart\"", &format!("class=\"chart {class}\""), 1)
        };
        let big = match kind {
            Kind::Throughput => draw("big", 1134.0, 460.0),
            _ => String::new(),
        };
        let (mid, small) = (draw("mid", 552.0, 400.0), draw("small", 344.0, 380.0));
        format!(
            "<figure id=\"{name}\"><h3>{}</h3>{big}{mid}{small}<figcaption>{}</figcaption></figure>",
            kind.title(),
            kind.caption()
        )
    };
    let [throughput, signature, saturation] = Kind::ALL.map(figure);
    let shade = "<p class=\"note\">Points are medians; the shaded area is where they lie with 95 % confidence. \
                 A point tells its numbers under the pointer. Dotted: what the wire alone would take.</p>";
    Some(format!("{shade}{throughput}<div class=\"two\">{signature}{saturation}</div>"))
}
