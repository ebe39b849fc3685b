//! Rates of directories and devices.

use super::{Table, escape};
use crate::config::size;
use crate::disk::{DiskReport, Rate};
use covey_plot::page::Cell;

/// A table for each place.
pub fn disks(all: &[DiskReport]) -> String {
    all.iter().map(disk).collect()
}

fn disk(report: &DiskReport) -> String {
    let place = &report.place;
    let of = place.file_system.as_deref().unwrap_or(&place.kind);
    let threads = if report.threads == 1 {
        "one thread".to_string()
    } else {
        format!("{} threads", report.threads)
    };
    let caption = format!(
        "{} ({of}): {}, {threads}. Medians; below each the interval in which it lies.",
        place.path.display(),
        size::rounded(report.size_bytes),
    );
    let mut table = Table::new(&caption, &["", ">Record", ">Rate", ">CPU", "Caches"]);
    for rate in &report.rates {
        table.row([
            Cell::Name(rate.test.words().to_string()),
            Cell::number(size::exact(rate.record_bytes)),
            Cell::Number(rate.text(rate.rate.value), interval(rate)),
            Cell::number(cpu(rate)),
            Cell::Text(rate.caches.word().to_string()),
        ]);
    }
    let broke_off = report.failure.iter().map(|why| format!("It broke off: {why}."));
    let warning = report.environment.warning().into_iter();
    let notes = report.notes.iter().cloned().chain(broke_off).chain(warning);
    format!("{}{}", table.html(), notes_html(notes))
}

/// None of one repetition.
fn interval(rate: &Rate) -> String {
    if rate.rate.low < rate.rate.high {
        format!("{} to {}", rate.text(rate.rate.low), rate.text(rate.rate.high))
    } else {
        String::new()
    }
}

/// Short remarks below a table.
pub fn notes_html(notes: impl Iterator<Item = String>) -> String {
    let items: String = notes.map(|note| format!("<li>{}</li>", escape(&note))).collect();
    if items.is_empty() { items } else { format!("<ul class=\"note\">{items}</ul>") }
}

fn cpu(rate: &Rate) -> String {
    match (rate.cpu_us_per_operation, rate.cpu_s_per_gib) {
        (Some(us), _) => format!("{us:.1} µs each"),
        (None, Some(seconds)) => format!("{seconds:.2} s/GiB"),
        (None, None) => "–".to_string(),
    }
}
