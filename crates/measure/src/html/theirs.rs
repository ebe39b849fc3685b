//! The papers' figures beside ours, and results that have no section of their own.

use super::{Table, Unit, escape};
use crate::report::Report;
use covey_plot::page::Cell;
use covey_tune::papers::{ERATO_LINKS, Link};
use serde_json::Value;

/// ERATO-1's figures 5 to 7 beside links over Fast Ethernet.
pub fn erato(links: &[Report]) -> Option<String> {
    let is_fast_ethernet = |link: &&Report| link.wire.is_some_and(|wire| wire.bits_per_s == 100e6);
    let ours: Vec<&Report> = links.iter().filter(is_fast_ethernet).collect();
    let heading = ["Protocol", "Theirs: joined by", ">Bandwidth", ">Latency", ">Saturation point"];
    let caption = "Figures 5 to 7 of ERATO-1 (32 Pentium II at Fast Ethernet, 1999). Each number is theirs; below \
                   it ours and the ratio of ours to theirs. Their megabits of 2^20 bits are converted.";
    let mut table = Table::new(caption, &heading);
    for theirs in ERATO_LINKS {
        let matches = |link: &&&Report| protocol(link) == theirs.protocol;
        let Some(mine) = ours.iter().find(matches) else { continue };
        let Some(found) = &mine.typical else { continue };
        let cell = |unit: Unit, theirs: f64, ours: Option<f64>| match ours {
            None => Cell::Number(unit.text(theirs), "ours: not within these sizes".into()),
            Some(ours) => Cell::Number(
                unit.text(theirs),
                format!("ours {}, {:.2} times", unit.text(ours), ours / theirs),
            ),
        };
        let Link { bandwidth_bits_per_s, latency_s, saturation_bytes, join, .. } = theirs;
        table.row([
            Cell::Name(mine.protocol.clone()),
            Cell::Text(format!("{} ({})", join.name(), join.figure())),
            cell(Unit::BitsPerSecond, bandwidth_bits_per_s, Some(found.peak_bits_per_s.value)),
            cell(Unit::Seconds, latency_s, Some(found.latency_s.value)),
            cell(Unit::Bytes, saturation_bytes, found.saturation_bytes.map(|one| one.value)),
        ]);
    }
    let note = "<p class=\"note\">Bandwidth is what ERATO-1 calls so: the throughput at saturation, here the peak. The \
                lab's latency is chosen to be that of its crossover cable, so that it agrees by design; the \
                bandwidth and the shape are found.</p>";
    (!table.is_empty()).then(|| format!("{}{note}", table.html()))
}

/// The paper's word for a protocol.
fn protocol(link: &Report) -> &str {
    match link.protocol.as_str() {
        name if name.contains("MPI") => "MPI",
        name if name.contains("PVM") => "PVM",
        name => name,
    }
}

/// Whatever else there is, as it is.
pub fn others(others: &[(String, Value)]) -> String {
    let one = |(kind, value): &(String, Value)| {
        format!("<h3>{}</h3><div class=\"scroll\">{}</div>", escape(kind), plain(value))
    };
    others.iter().map(one).collect()
}

/// JSON as lists and tables. Lists of things with the same fields are tables.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "–".to_string(),
        Value::Bool(flag) => if *flag { "yes" } else { "no" }.to_string(),
        Value::Number(number) => number.as_f64().map_or(number.to_string(), number_text),
        Value::String(text) => escape(text),
        Value::Array(all) => array(all),
        Value::Object(fields) => {
            let line = |(name, value): (&String, &Value)| {
                format!("<dt>{}</dt><dd>{}</dd>", escape(&name.replace('_', " ")), plain(value))
            };
            format!("<dl>{}</dl>", fields.iter().map(line).collect::<String>())
        }
    }
}

fn number_text(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e9 {
        format!("{number:.0}")
    } else if (1e-3..1e6).contains(&number.abs()) {
        covey_plot::chart::three_digits(number)
    } else {
        format!("{number:.3e}")
    }
}

fn array(all: &[Value]) -> String {
    let Some(first) = all.first().and_then(Value::as_object) else {
        let items: Vec<String> = all.iter().map(plain).collect();
        return items.join(", ");
    };
    let names: Vec<&String> = first.keys().collect();
    let head: String = names
        .iter()
        .map(|name| format!("<th scope=\"col\">{}</th>", escape(&name.replace('_', " "))))
        .collect();
    let row = |value: &Value| {
        let cells = names.iter().map(|name| {
            let cell = value.get(name.as_str()).map_or(String::new(), plain);
            format!("<td>{cell}</td>")
        });
        format!("<tr>{}</tr>", cells.collect::<String>())
    };
    let rows: String = all.iter().map(row).collect();
    format!("<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
}
