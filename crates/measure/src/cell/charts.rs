//! The report as two charts: ours as curves with points, the paper's as lines behind them.

use super::{Bandwidth, Matrices, Report};
use covey_plot::chart::{Axis, Chart, Guide, Run, Sample, Series, Unit};
use covey_tune::papers::{LANL_BANDWIDTHS, LANL_MATRICES};

impl Report {
    /// A chart of each table that was measured.
    pub fn charts(&self) -> Vec<Chart> {
        let files: Vec<&Bandwidth> =
            self.bandwidth.iter().filter(|row| row.is_of_table()).collect();
        let mut charts = Vec::new();
        if !files.is_empty() {
            charts.push(bandwidth(&files));
        }
        if !self.matrices.is_empty() {
            charts.push(slowdown(&self.matrices));
        }
        charts
    }
}

fn axis(name: &str, unit: Unit) -> Axis {
    Axis { name: name.to_owned(), unit, run: Run::Linear }
}

fn bandwidth(rows: &[&Bandwidth]) -> Chart {
    let curve = |row: &&Bandwidth| Series {
        name: crowd(row.workers, row.is_crowded),
        points: points(&row.coroutines, |rate| Unit::BytesPerSecond.text(rate)),
        level: Some((row.by_hand, "by hand".to_owned())),
        ..Series::default()
    };
    let theirs = |row: &&Bandwidth| {
        let rates = LANL_BANDWIDTHS.get(row.workers as usize - 1)?;
        let rates = rates[1..].iter().map(|rate| rate * 1e9);
        let points = (1..).map(f64::from).zip(rates).collect();
        Some(Guide { name: format!("paper, {}", workers(row.workers)), points, is_result: true })
    };
    Chart {
        id: "bandwidth".into(),
        title: "Bandwidth of a mapped file, blocks of 8 KiB".into(),
        about: "Bytes read and written back in each second, by the number of coroutines.".into(),
        x: axis("Coroutines", Unit::Plain),
        y: axis("Bandwidth", Unit::BytesPerSecond),
        series: rows.iter().map(curve).collect(),
        guides: rows.iter().filter_map(theirs).collect(),
    }
}

fn slowdown(rows: &[Matrices]) -> Chart {
    let alike = || rows.chunk_by(|one, other| one.side == other.side);
    let curve = |rows: &[Matrices]| Series {
        name: side(rows[0].side),
        points: rows.iter().map(sample).collect(),
        ..Series::default()
    };
    let theirs = |rows: &[Matrices]| {
        let theirs = LANL_MATRICES.iter().filter(|row| row.side == rows[0].side);
        let share =
            theirs.map(|row| (f64::from(row.workers), (row.files_s / row.by_hand_s - 1.0) * 100.0));
        let name = format!("paper, {}", side(rows[0].side));
        Guide { name, points: share.collect(), is_result: true }
    };
    Chart {
        id: "slowdown".into(),
        title: "Matrix multiplication through files".into(),
        about: "How much longer it takes than with two buffers by hand, by the number of workers."
            .into(),
        x: axis(&axis_of_workers(rows), Unit::Plain),
        y: axis("Slowdown, %", Unit::Plain),
        series: alike().map(curve).collect(),
        guides: alike().map(theirs).collect(),
    }
}

fn sample(row: &Matrices) -> Sample {
    let percent = row.overhead.value * 100.0;
    let hover = format!("{}: {percent:.2} %", crowd(row.workers, row.is_crowded));
    Sample { at: (f64::from(row.workers), percent), hover }
}

fn points(values: &[f64], text: impl Fn(f64) -> String) -> Vec<Sample> {
    let numbered = (1..).zip(values);
    let sample = |(count, value): (u32, &f64)| Sample {
        at: (f64::from(count), *value),
        hover: format!("{count}: {}", text(*value)),
    };
    numbered.map(sample).collect()
}

fn workers(count: u32) -> String {
    format!("{count} worker{}", if count == 1 { "" } else { "s" })
}

/// Workers that are more than the CPUs take turns: who looks at a curve has to know.
fn crowd(count: u32, is_crowded: bool) -> String {
    workers(count) + if is_crowded { ", more than CPUs" } else { "" }
}

fn axis_of_workers(rows: &[Matrices]) -> String {
    let crowded = rows.iter().filter(|row| row.is_crowded).map(|row| row.workers).min();
    crowded.map_or("Workers".into(), |from| format!("Workers; from {from} on more than CPUs"))
}

fn side(side: u32) -> String {
    format!("{side} x {side}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_plot::chart::{Look, Size};
    use covey_tune::Estimate;

    #[test]
    fn more_workers_than_cpus_are_marked_and_the_paper_s_points_are_in_the_chart() {
        let row = |workers: u32| Matrices {
            side: 256,
            workers,
            is_crowded: workers > 2,
            by_hand_s: 1.0,
            coroutines_s: [1.01; 2],
            files_s: 1.01,
            overhead: Estimate { value: 0.01, low: 0.01, high: 0.01 },
        };
        let chart = slowdown(&[1, 2, 4, 8].map(row));
        assert_eq!(chart.x.name, "Workers; from 4 on more than CPUs");
        let hovers = chart.series[0].points.iter().map(|point| &*point.hover);
        assert!(hovers.rev().take(2).all(|hover| hover.contains("more than CPUs")));
        let svg = chart.svg(Size { width: 720.0, height: 420.0 }, Look::Page);
        let guide = svg.split("class=\"guide\" d=\"").last().expect("the paper's curve");
        let line = guide.split('"').next().expect("a line");
        assert_eq!(line.matches(['M', 'L']).count(), 4, "{line}");
    }
}
