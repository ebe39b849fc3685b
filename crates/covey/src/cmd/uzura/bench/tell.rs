//! What a person is told.

use super::Report;
use crate::output::table;
use covey_measure::uzura::bars::Bar;
use covey_measure::uzura::figures::Summary;
use covey_measure::uzura::what::{Over, What};
use std::io::{Result, Write};

const HEADING: [&str; 8] = ["WHAT", "WHO", ">MIN", ">P10", ">MEDIAN", ">CPU", ">LINE", "P10 RATE"];

/// Whether a figure belongs to a part.
type IsOf = fn(&Summary) -> bool;

/// Everything.
pub fn all(out: &mut Vec<u8>, report: &Report) -> Result<()> {
    let parts: [(&str, IsOf); 4] = [
        ("Memory", |one| one.over == Over::Memory && !is_matrix(one.what) && !is_read(one.what)),
        ("TCP on loopback", |one| one.over == Over::Tcp),
        ("Matrices of f32, transposed", |one| is_matrix(one.what)),
        ("9P reads into the reader's buffer", |one| is_read(one.what)),
    ];
    for (title, is_of) in parts {
        let mut figures: Vec<&Summary> = report.figures.iter().filter(|one| is_of(one)).collect();
        if !figures.is_empty() {
            figures.sort_by_key(|one| order(one.what));
            writeln!(
                out,
                "{title}. Times in us, CPU time of both ends for each, a cache line in ns:\n"
            )?;
            table(out, &HEADING, &rows(&figures));
            writeln!(out)?;
        }
    }
    let paper = &report.paper;
    let (us, gb) = (paper.message_64_bytes_ns / 1e3, paper.block_4096_bytes_per_s / 1e9);
    writeln!(
        out,
        "The UZURA paper predicts of its card {us:.2} us for 64 B and {gb:.2} GB/s in blocks of 4 KiB."
    )?;
    bars(out, &report.bars)?;
    for missing in &report.missing {
        writeln!(out, "not measured: {missing}")?;
    }
    if let Some(warning) = report.environment.warning() {
        writeln!(out, "{warning}")?;
    }
    Ok(())
}

fn is_matrix(what: What) -> bool {
    use What::*;
    matches!(what, Matrix(..) | TransposeMapped(_) | TransposeRead(_) | TransposeStrips(_))
}

fn is_read(what: What) -> bool {
    matches!(what, What::Served(_))
}

/// What belongs together stands together: matrices by their sides, messages before streams.
fn order(what: What) -> (u64, u8) {
    match what {
        What::Line => (0, 0),
        What::Copy(_) => (0, 1),
        What::Read(_) => (0, 2),
        What::PingPong(bytes) => (1 + bytes, 0),
        What::PingPongBlocking(bytes) => (1 + bytes, 1),
        What::Stream(bytes) => (1 << 62, 2 * (bytes >> 20) as u8),
        What::Together(bytes) => (1 << 62, 1 + 2 * (bytes >> 20) as u8),
        What::Served(file_bytes) => (file_bytes, 0),
        What::TransposeMapped(side) => (side, 0),
        What::TransposeRead(side) => (side, 1),
        What::TransposeStrips(side) => (side, 2),
        What::Matrix(by, shape, side) => (side, 3 + 3 * by as u8 + shape as u8),
    }
}

fn rows(figures: &[&Summary]) -> Vec<Vec<String>> {
    let mut before = None;
    let rows = figures.iter().map(|one| {
        let is_same = before.replace(one.what) == Some(one.what);
        vec![
            if is_same { String::new() } else { one.what.words() },
            one.who.clone(),
            us(one.min_ns),
            us(one.p10_ns),
            us(one.median_ns),
            one.cpu_ns.map_or("-".into(), us),
            one.line_ns.map_or("-".into(), |ns| format!("{ns:.0}")),
            rate(one),
        ]
    });
    rows.collect()
}

/// A rate where that is what one asks for.
fn rate(one: &Summary) -> String {
    match (one.what, one.bytes_per_s) {
        (What::Stream(64) | What::Together(64), _) => format!("{:.2} M/s", 1e3 / one.p10_ns),
        (What::Line | What::PingPongBlocking(_), _) | (_, None) => String::new(),
        (_, Some(rate)) if one.what.bytes() >= 4096 => format!("{:.2} GB/s", rate / 1e9),
        _ => String::new(),
    }
}

fn us(ns: f64) -> String {
    match ns {
        ..1e4 => format!("{:.3}", ns / 1e3),
        ..1e6 => format!("{:.1}", ns / 1e3),
        _ => format!("{:.0}", ns / 1e3),
    }
}

fn bars(out: &mut Vec<u8>, bars: &[Bar]) -> Result<()> {
    if bars.is_empty() {
        return Ok(());
    }
    let met = bars.iter().filter(|bar| bar.is_met).count();
    writeln!(
        out,
        "\n{met} of {} bars are met (P10; the last column is the medians' share of the limit):\n",
        bars.len()
    )?;
    let row = |bar: &Bar| {
        vec![
            if bar.is_met { "met" } else { "not met" }.to_string(),
            bar.words(),
            us(bar.found_ns),
            us(bar.limit_ns),
            bar.limit.clone(),
            format!("{:.2}", bar.median_share),
            bar.note.clone().unwrap_or_default(),
        ]
    };
    let heading = ["", "WHAT", ">US", ">LIMIT", "WHICH IS", ">MEDIAN", ""];
    table(out, &heading, &bars.iter().map(row).collect::<Vec<_>>());
    Ok(())
}
