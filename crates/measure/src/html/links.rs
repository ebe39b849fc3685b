//! What the page says of each link in words and numbers.

use super::{Table, Unit, escape, utc};
use crate::html::graphs::CURVES_MAX;
use crate::provenance::Provenance;
use crate::report::Report;
use covey_plot::page::Cell;
use covey_tune::Estimate;
use covey_tune::diagnose::Verdict;
use covey_tune::eliminate::Suspicion;

fn pair(link: &Report) -> String {
    format!("{} from {} to {}", link.protocol, link.from, link.to)
}

/// What must be known before the numbers: how many of these links have a fault, or are not to be trusted, and why.
pub fn warning(links: &[Report]) -> String {
    let count = |is: fn(&Report) -> bool| links.iter().filter(|link| is(link)).count();
    let of_all = |count: usize| match (count, links.len()) {
        (1, 1) => "This link".to_owned(),
        (count, all) => format!("{count} of {all} links"),
    };
    let is_bad =
        |link: &Report| link.failure.is_some() || matches!(link.verdict, Verdict::Faults(_));
    let unsure = links.iter().find_map(|link| match &link.verdict {
        Verdict::NotTrustworthy(why) => Some(why),
        _ => None,
    });
    let mut text = String::new();
    let bad = count(is_bad);
    if bad > 0 {
        let verb = if bad == 1 { "has" } else { "have" };
        let what = format!("✗ {} {verb} a fault: see the diagnosis.", of_all(bad));
        text += &format!("<p class=\"sub\"><b>{}</b></p>", escape(&what));
    }
    if let Some(why) = unsure {
        let count = count(|link| matches!(link.verdict, Verdict::NotTrustworthy(_)));
        let what = format!("? {} cannot be trusted: {why}.", of_all(count));
        text += &format!("<p class=\"sub\"><b>{}</b></p>", escape(&what));
    }
    text
}

/// What explains the bad ones of all pairs.
pub fn suspicions(all: &[Suspicion]) -> String {
    let cards = all.iter().map(|one| {
        let because = format!("Because {}.", one.evidence);
        card("bad", "Suspect", &one.words(), &[&because])
    });
    cards.collect()
}

/// Cause, evidence, remedy; faults first, and links that are alike together.
pub fn verdicts(links: &[Report]) -> String {
    let mut faults = String::new();
    let mut unsure: Vec<(String, Vec<String>)> = Vec::new();
    let mut sound = Vec::new();
    for link in links {
        let pair = pair(link);
        if let Some(why) = &link.failure {
            faults.push_str(&card("bad", "Broke off", &pair, &[why]));
        }
        match &link.verdict {
            Verdict::NoFault => sound.push(pair),
            Verdict::NotTrustworthy(why) => {
                match unsure.iter_mut().find(|(known, _)| known == why) {
                    Some((_, pairs)) => pairs.push(pair),
                    None => unsure.push((why.clone(), vec![pair])),
                }
            }
            Verdict::Faults(findings) => findings.iter().for_each(|finding| {
                let because = format!("Because {}.", finding.evidence);
                let remedy = format!("Remedy: {}.", finding.remedy);
                faults.push_str(&card("bad", finding.cause.words(), &pair, &[&because, &remedy]));
            }),
        }
    }
    let unsure = unsure.iter().map(|(why, pairs)| {
        card("unsure", "No diagnosis", &pairs.join(", "), &[&format!("Not trustworthy: {why}.")])
    });
    let sound = if sound.is_empty() {
        String::new()
    } else {
        card("good", "No fault found", &sound.join(", "), &[])
    };
    format!("{faults}{}{sound}", unsure.collect::<String>())
}

fn card(class: &str, what: &str, pair: &str, lines: &[&str]) -> String {
    let sign = match class {
        "good" => "✓",
        "bad" => "✗",
        _ => "?",
    };
    let lines: String = lines.iter().map(|line| format!("<p>{}</p>", escape(line))).collect();
    format!(
        "<div class=\"verdict {class}\"><p><b>{sign} {}</b> – {}</p>{lines}</div>",
        escape(what),
        escape(pair)
    )
}

/// All quantities of the curves that have words, with intervals and definitions.
pub fn quantities(links: &[Report]) -> String {
    let known: Vec<&Report> =
        links.iter().take(CURVES_MAX).filter(|link| link.typical.is_some()).collect();
    if known.is_empty() {
        return String::new();
    }
    let heads = known.iter().map(|link| format!(">{}", pair(link)));
    let heading: Vec<String> =
        [String::new()].into_iter().chain(heads).chain(["Definition".to_string()]).collect();
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let caption = "Medians; below each the interval in which it lies with 95 % confidence. Megabits are 10^6 bits.";
    let mut table = Table::new(caption, &heading);
    let mut line = |name: &str,
                    unit: Unit,
                    of: fn(&covey_tune::Quantities) -> Option<Estimate>,
                    what: &str| {
        let cells = known.iter().map(|link| cell(unit, link.typical.as_ref().and_then(of)));
        let name = [Cell::Name(name.to_string())].into_iter();
        table.row(name.chain(cells).chain([Cell::Text(what.to_string())]));
    };
    line("Latency", Unit::Seconds, |one| Some(one.latency_s), "T at 0 bytes, from blocks up to 32");
    line(
        "Bandwidth",
        Unit::BitsPerSecond,
        |one| Some(one.bandwidth_bits_per_s),
        "slope of T over the last two octaves",
    );
    line(
        "Peak",
        Unit::BitsPerSecond,
        |one| Some(one.peak_bits_per_s),
        "greatest throughput of any block",
    );
    line(
        "Saturation point S",
        Unit::Bytes,
        |one| one.saturation_bytes,
        "T stays above 1.18 latencies",
    );
    line("n½", Unit::Bytes, |one| Some(one.half_bytes), "latency times bandwidth");
    line("n95", Unit::Bytes, |one| one.plateau_bytes, "throughput stays above 95 % of bandwidth");
    let least = known.iter().map(|link| {
        let best = link.best.as_ref().map(|best| best.latency_s.value);
        Cell::number(best.map_or("–".to_string(), |best| Unit::Seconds.text(best)))
    });
    let name = [Cell::Name("Least latency".to_string())].into_iter();
    table.row(name.chain(least).chain([Cell::Text("the same from the least times".to_string())]));
    let wait = known.iter().map(|link| Cell::number(link.wait.clone()));
    let name = [Cell::Name("Both ends wait".to_string())].into_iter();
    table.row(name.chain(wait).chain([Cell::Text("compare only what waits alike".to_string())]));
    table.html() + &further(links)
}

/// The links that have no column above, a line each.
fn further(links: &[Report]) -> String {
    let rest = links.get(CURVES_MAX..).unwrap_or_default();
    if rest.is_empty() {
        return String::new();
    }
    let mut table =
        Table::new("The other links.", &["Link", ">Latency", ">Bandwidth", ">Peak", ">n½"]);
    for link in rest {
        let found = link.typical.as_ref();
        let name = [Cell::Name(pair(link))].into_iter();
        table.row(name.chain([
            cell(Unit::Seconds, found.map(|one| one.latency_s)),
            cell(Unit::BitsPerSecond, found.map(|one| one.bandwidth_bits_per_s)),
            cell(Unit::BitsPerSecond, found.map(|one| one.peak_bits_per_s)),
            cell(Unit::Bytes, found.map(|one| one.half_bytes)),
        ]));
    }
    table.html()
}

fn cell(unit: Unit, found: Option<Estimate>) -> Cell {
    match found {
        None => Cell::Number("–".into(), "not within these sizes".into()),
        Some(one) => Cell::Number(
            unit.text(one.value),
            format!("{} to {}", unit.text(one.low), unit.text(one.high)),
        ),
    }
}

/// Long transfers alone and at once.
pub fn streams(links: &[Report]) -> String {
    let heading = ["", ">There", ">Back", ">There, at once", ">Back, at once"];
    let mut table =
        Table::new("What a long transfer reaches, alone and with one the other way.", &heading);
    for link in links {
        let Some([there, back]) = link.streams else { continue };
        let rate = |bits: f64| Cell::number(Unit::BitsPerSecond.text(bits));
        let both = link.both_at_once.map_or([f64::NAN; 2], |both| both);
        table.row([Cell::Name(pair(link)), rate(there), rate(back), rate(both[0]), rate(both[1])]);
    }
    if table.is_empty() { String::new() } else { table.html() }
}

/// Machines and command lines.
pub fn provenance(links: &[Report]) -> String {
    let heading = ["Link", ">Sizes", ">Duration", ">Waited for a CPU", "Verdict on the machine"];
    let mut table = Table::new("", &heading);
    for link in links {
        let environment = &link.environment;
        let pressure = environment.cpu_pressure;
        let share =
            pressure.map_or("unknown".to_string(), |share| format!("{:.1} %", 100.0 * share));
        let judged = match environment.warning() {
            None => Cell::Judged(true, "quiet enough".into()),
            Some(_) => Cell::Judged(false, "too busy for latency and S".into()),
        };
        table.row([
            Cell::Name(pair(link)),
            Cell::number(link.points.len().to_string()),
            Cell::number(format!("{:.1} s", environment.seconds)),
            Cell::number(share),
            judged,
        ]);
    }
    let mut origins: Vec<&Provenance> = Vec::new();
    for link in links.iter().filter(|link| !link.provenance.command.is_empty()) {
        let same = |known: &&Provenance| known.command == link.provenance.command;
        if !origins.iter().any(same) {
            origins.push(&link.provenance);
        }
    }
    let told: String = origins.iter().map(|origin| tell_origin(origin)).collect();
    let table = if table.is_empty() { String::new() } else { table.html() };
    format!("{told}{table}")
}

fn tell_origin(origin: &Provenance) -> String {
    let line = |name: &str, text: String| format!("<dt>{name}</dt><dd>{}</dd>", escape(&text));
    format!(
        "<pre>{}</pre><dl>{}{}{}{}</dl>",
        escape(&origin.command),
        line("When", format!("{} UTC", utc(origin.began_s.cast_signed()))),
        line("Host", origin.host.clone()),
        line("Machine", format!("{}, {} CPUs", origin.processor, origin.cpus)),
        line("Software", format!("Linux {}, covey {}", origin.kernel, origin.version))
    )
}
