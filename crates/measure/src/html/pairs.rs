//! All pairs at a glance.

use super::{Unit, escape};
use crate::report::Report;
use covey_tune::diagnose::Verdict;
use std::fmt::Write;

/// From how many links on a matrix says more than a list.
const LINKS_MIN: usize = 3;

/// Bandwidth and latency of each pair; the bar is the bandwidth as a share of the greatest.
pub fn matrix(links: &[Report]) -> Option<String> {
    let protocol = &links.first()?.protocol;
    let links: Vec<&Report> = links.iter().filter(|link| link.protocol == *protocol).collect();
    let mut nodes: Vec<&str> = Vec::new();
    for name in links.iter().flat_map(|link| [link.from.as_str(), link.to.as_str()]) {
        if !nodes.contains(&name) {
            nodes.push(name);
        }
    }
    if links.len() < LINKS_MIN || nodes.len() < LINKS_MIN {
        return None;
    }
    nodes.sort_by_key(|name| (name.len(), *name));
    let bandwidth = |link: &&Report| Some(link.typical.as_ref()?.bandwidth_bits_per_s.value);
    let most = links.iter().filter_map(bandwidth).fold(0.0, f64::max);
    let head: String =
        nodes.iter().map(|name| format!("<th scope=\"col\">{}</th>", escape(name))).collect();
    let mut rows = String::new();
    for (index, from) in nodes.iter().enumerate() {
        let _ = write!(rows, "<tr><th scope=\"row\">{}</th>", escape(from));
        for (column, to) in nodes.iter().enumerate() {
            let is_it = |link: &&&Report| {
                let ends = (link.from.as_str(), link.to.as_str());
                ends == (*from, *to) || ends == (*to, *from)
            };
            let found = links.iter().find(is_it);
            rows.push_str(&match found {
                _ if index == column => "<td class=\"self\">–</td>".to_string(),
                None => "<td></td>".to_string(),
                Some(link) => cell(link, most),
            });
        }
        rows.push_str("</tr>");
    }
    let note = format!(
        "{} bandwidth and latency of each pair. The bar shows the bandwidth beside the greatest of them; a \
         pair with a fault has a frame and its name.",
        escape(protocol)
    );
    Some(format!(
        "<p class=\"note\">{note}</p><div class=\"scroll\"><table class=\"matrix\"><thead><tr><td></td>{head}</tr>\
         </thead><tbody>{rows}</tbody></table></div>"
    ))
}

fn cell(link: &Report, most: f64) -> String {
    let fault = match &link.verdict {
        Verdict::Faults(findings) => findings.first().map(|finding| finding.cause.words()),
        _ => link.failure.as_ref().map(|_| "broke off"),
    };
    let (class, fault) = match fault {
        Some(words) => (" class=\"hit\"", format!("<small>✗ {}</small>", escape(words))),
        None => ("", String::new()),
    };
    match &link.typical {
        None => format!("<td{class}>–{fault}</td>"),
        Some(found) => {
            let rate = found.bandwidth_bits_per_s.value;
            format!(
                "<td{class}>{}<small>{}</small>{fault}<span class=\"bar\" style=\"--w:{:.0}%\"></span></td>",
                Unit::BitsPerSecond.text(rate),
                Unit::Seconds.text(found.latency_s.value),
                100.0 * (rate / most).clamp(0.0, 1.0)
            )
        }
    }
}
