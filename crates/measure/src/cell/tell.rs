//! The report in words.

use super::{Bandwidth, Matrices, Report, Trips};
use covey_plot::table;
use covey_tune::Estimate;
use std::io::{Result, Write};

impl Report {
    /// Writes it down.
    pub fn tell(&self, out: &mut Vec<u8>) -> Result<()> {
        if !self.bandwidth.is_empty() {
            writeln!(out, "Reads and writes of mapped files, GB/s")?;
            let rows: Vec<Vec<String>> = self.bandwidth.iter().map(bandwidth).collect();
            let head = ["file", "block", "workers", "by hand", "+ahead", "1 cor", "2", "3", "4"];
            let head = [&head[..], &["5", "6", "7", "best 2-7 / better hand"]].concat();
            table(out, &head, &rows);
        }
        if !self.matrices.is_empty() {
            writeln!(out, "\nMatrices multiplied, ms")?;
            let rows: Vec<Vec<String>> = self.matrices.iter().map(matrices).collect();
            let head = ["side", "workers", "by hand", "1 cor", "2", "best/hand - 1"];
            table(out, &head, &rows);
        }
        if let Some(trips) = &self.trips {
            let Trips { floor_ns, message_ns, switch_ns } = trips;
            writeln!(out, "\nA message to the host and back: {message_ns:.0} ns")?;
            writeln!(out, "A line of memory to another CPU and back: {floor_ns:.0} ns")?;
            writeln!(out, "A coroutine gives way to the next: {switch_ns:.1} ns")?;
        }
        if self.bandwidth.iter().any(|row| row.is_crowded)
            || self.matrices.iter().any(|row| row.is_crowded)
        {
            writeln!(out, "\n* more workers than CPUs: shown, not judged")?;
        }
        for (what, why) in &self.missing {
            writeln!(out, "not measured: {what}: {why}")?;
        }
        if let Some(warning) = self.environment.warning() {
            writeln!(out, "\n{warning}")?;
        }
        Ok(())
    }
}

fn crowd(workers: u32, is_crowded: bool) -> String {
    format!("{workers}{}", if is_crowded { "*" } else { "" })
}

fn bandwidth(row: &Bandwidth) -> Vec<String> {
    let rate = |rate: f64| format!("{:.2}", rate / 1e9);
    let huge = if row.is_huge { " huge" } else { "" };
    let mut cells = vec![
        format!("{}{huge}", row.device),
        row.block.to_string(),
        crowd(row.workers, row.is_crowded),
        rate(row.by_hand),
        rate(row.by_hand_ahead),
    ];
    cells.extend(row.coroutines.iter().map(|one| rate(*one)));
    cells.push(between(row.ratio, 1.0, ""));
    cells
}

fn matrices(row: &Matrices) -> Vec<String> {
    let time = |seconds: f64| format!("{:.3}", seconds * 1e3);
    let mut cells = vec![row.side.to_string(), crowd(row.workers, row.is_crowded)];
    let [one, two] = row.coroutines_s.map(time);
    cells.extend([time(row.by_hand_s), one, two, between(row.overhead, 100.0, " %")]);
    cells
}

fn between(of: Estimate, times: f64, unit: &str) -> String {
    let Estimate { value, low, high } = of;
    format!("{:.3}{unit} ({:.3}..{:.3})", value * times, low * times, high * times)
}
