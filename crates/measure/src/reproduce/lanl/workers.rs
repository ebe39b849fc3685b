//! Tables 3 and 4 and figure 4 of "9P in high-performance computing": workers that reach memory as files.

use super::Part;
use crate::cell::{Bandwidth, Matrices, Plan, What, measure};
use crate::error::Result;
use crate::stop::Stop;
use covey_tune::Estimate;
use covey_tune::papers::{LANL_BANDWIDTHS, LANL_MATRICES, LANL_MULTIPLICATIONS, Multiplied, Paper};
use covey_tune::reproduce::{Beside, Unit};

/// The parts that measure workers.
pub const PARTS: [&str; 3] = ["table3", "table4", "fig4"];

/// Measures these parts. Table 4 and figure 4 are two views of one measurement.
pub fn run(
    parts: &[&'static str],
    is_quick: bool,
    stop: &Stop,
    say: &dyn Fn(String),
) -> Result<Vec<Part>> {
    let whole = || Plan { is_short: true, ..Plan::whole((1..=8).collect(), 60) };
    let plan = if is_quick { Plan::quick() } else { whole() };
    let what = What {
        bandwidth: parts.contains(&"table3"),
        matrices: parts.contains(&"table4") || parts.contains(&"fig4"),
        trips: false,
    };
    let report = measure(&plan, what, stop, say)?;
    let part = |name: &&'static str| {
        let mut part = match *name {
            "table3" => table_3(&report.bandwidth),
            "table4" => table_4(&report.matrices),
            _ => figure_4(&report.matrices),
        };
        report.missing.iter().for_each(|(what, why)| part.leave_out(what, why));
        part
    };
    Ok(parts.iter().map(part).collect())
}

fn part(name: &'static str, title: &'static str) -> Part {
    let mut part = Part::new(Paper::Lanl, name, title);
    part.differs("workers are cores with caches and a memory controller of their own, not SPEs");
    part
}

fn exactly(value: f64) -> Estimate {
    Estimate { value, low: value, high: value }
}

fn crowd(workers: u32, is_crowded: bool) -> String {
    let word = if workers == 1 { "worker" } else { "workers" };
    let mark = if is_crowded { ", more than there are CPUs" } else { "" };
    format!("{workers} {word}{mark}")
}

fn table_3(rows: &[Bandwidth]) -> Part {
    let mut part = part("table3", "Bandwidth of a mapped file of 128 MB, blocks of 8 KiB");
    part.differs("a core copies by itself: nothing is transferred while it does something else");
    for row in rows {
        let Some(theirs) = LANL_BANDWIDTHS.get(row.workers as usize - 1) else { continue };
        let of = crowd(row.workers, row.is_crowded);
        let ours = [&[row.by_hand], &row.coroutines[..]].concat();
        for (count, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            let what = match count {
                0 => "by hand".to_owned(),
                1 => "1 coroutine".to_owned(),
                count => format!("{count} coroutines"),
            };
            let unit = (&*what, Unit::BytesPerS);
            let (ours, theirs) = (exactly(*ours), theirs * 1e9);
            part.beside.push(Beside::new("table 3", of.clone(), unit, ours, theirs));
        }
        let unit = ("2 coroutines, of by hand", Unit::Share);
        let theirs = theirs[2] / theirs[0];
        part.beside.push(Beside::new("table 3", of, unit, row.ratio_of_two, theirs));
    }
    part
}

fn theirs(row: &Matrices) -> Option<Multiplied> {
    let is_it = |one: &Multiplied| (one.side, one.workers) == (row.side, row.workers);
    LANL_MATRICES.into_iter().find(is_it)
}

fn table_4(rows: &[Matrices]) -> Part {
    let mut part = part("table4", "10,000 multiplications of two matrices");
    part.differs("the kernel is plain C that the compiler vectorizes, the same for both");
    for row in rows {
        let Some(theirs) = theirs(row) else { continue };
        let of = format!("{0} x {0}, {1}", row.side, crowd(row.workers, row.is_crowded));
        for (what, ours, theirs) in
            [("files", row.files_s, theirs.files_s), ("by hand", row.by_hand_s, theirs.by_hand_s)]
        {
            let unit = (what, Unit::Seconds);
            let ours = exactly(ours * f64::from(LANL_MULTIPLICATIONS));
            part.beside.push(Beside::new("table 4", of.clone(), unit, ours, theirs));
        }
    }
    part
}

fn figure_4(rows: &[Matrices]) -> Part {
    let mut part = part("fig4", "How much longer a multiplication takes through files");
    part.differs("the figure's curve is lost: its points follow from table 4");
    for row in rows {
        let Some(theirs) = theirs(row) else { continue };
        let of = format!("{0} x {0}, {1}", row.side, crowd(row.workers, row.is_crowded));
        let unit = ("slowdown", Unit::Share);
        let theirs = theirs.files_s / theirs.by_hand_s - 1.0;
        part.beside.push(Beside::new("figure 4", of, unit, row.overhead, theirs));
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_say_what_the_text_says_of_them() {
        let slowdowns = LANL_MATRICES.map(|row| row.files_s / row.by_hand_s - 1.0);
        let least = slowdowns.into_iter().fold(f64::MAX, f64::min);
        let most = slowdowns.into_iter().fold(0.0, f64::max);
        assert!(
            (0.132..0.134).contains(&least) && (0.151..0.153).contains(&most),
            "{least} {most}"
        );
        let gains =
            LANL_BANDWIDTHS.iter().flat_map(|row| row[2..].iter().map(|rate| rate / row[0]));
        let most = gains.fold(0.0, f64::max);
        assert!((1.33..1.35).contains(&most), "{most}");
    }
}
