//! Rates of matrices: one core, what was tried, what was chosen.

use super::Table;
use super::disk::notes_html;
use crate::app::report::{AppReport, Measured};
use covey_plot::page::Cell;
use covey_tune::application::{BLOCK_ORDERS, Numbers, Rate};

/// All tables of all measurements.
pub fn apps(all: &[AppReport]) -> String {
    all.iter().map(app).collect()
}

fn app(report: &AppReport) -> String {
    let tables = [cores(report), tried(report), chosen(report)];
    let hpl = report.hpl.iter().map(|hpl| {
        let verdict = if hpl.is_passed { "passed" } else { "FAILED" };
        format!(
            "HPL with {}, order {}, blocks of {}, {} x {} processes: {:.2} Gflop/s, {verdict}.",
            hpl.blas, hpl.order, hpl.block, hpl.rows, hpl.columns, hpl.gflops
        )
    });
    let missing =
        report.missing.iter().map(|one| format!("Not measured: {}: {}.", one.what, one.why));
    let crowded = (report.ranks > report.cpus).then(|| {
        format!("{} processes share {} CPUs: they wait for one another.", report.ranks, report.cpus)
    });
    let warning = report.environment.warning().into_iter();
    let notes = hpl.chain(missing).chain(crowded).chain(warning);
    format!(
        "{}{}",
        tables.map(|table| if table.is_empty() { String::new() } else { table.html() }).concat(),
        notes_html(notes)
    )
}

fn cores(report: &AppReport) -> Table {
    let types: Vec<Numbers> = Numbers::ALL
        .into_iter()
        .filter(|numbers| report.peaks.iter().any(|one| one.rate.case.numbers == *numbers))
        .collect();
    let heads: Vec<String> = types.iter().map(|one| format!(">{}gemm", one.letter())).collect();
    let mut heading = vec!["One core with"];
    heading.extend(heads.iter().map(String::as_str));
    let mut table = Table::new(
        "What one core reaches, in Gflop/s: the best of many short repetitions.",
        &heading,
    );
    for blas in names(report.peaks.iter().map(|one| one.blas.as_str())) {
        let cell = |numbers: &Numbers| {
            let is_it = |one: &&Measured| one.blas == blas && one.rate.case.numbers == *numbers;
            report.peaks.iter().find(is_it).map_or(Cell::number("–"), |one| rate(&one.rate))
        };
        table.row(std::iter::once(Cell::Name(blas.to_string())).chain(types.iter().map(cell)));
    }
    table
}

/// For each routine and MPI, of each block order the best grid and BLAS.
fn tried(report: &AppReport) -> Table {
    let blocks: Vec<u64> = BLOCK_ORDERS
        .into_iter()
        .filter(|block| report.rates.iter().any(|one| one.rate.case.block == *block))
        .collect();
    let heads: Vec<String> = blocks.iter().map(|block| format!(">{block}")).collect();
    let mut heading = vec!["Blocks of order"];
    heading.extend(heads.iter().map(String::as_str));
    let caption = format!(
        "ScaLAPACK, matrices of order {}, {} processes, in Gflop/s: the best of each block order, and with what.",
        report.order.unwrap_or(0),
        report.ranks
    );
    let mut table = Table::new(&caption, &heading);
    let problems: Vec<String> = report.rates.iter().map(problem).collect();
    for name in names(problems.iter().map(String::as_str)) {
        let cell = |block: &u64| {
            let of = report
                .rates
                .iter()
                .filter(|one| problem(one) == name && one.rate.case.block == *block);
            let best = of.max_by(|one, other| one.rate.gflops.total_cmp(&other.rate.gflops));
            best.map_or(Cell::number("–"), with)
        };
        table.row(std::iter::once(Cell::Name(name.to_string())).chain(blocks.iter().map(cell)));
    }
    table
}

fn chosen(report: &AppReport) -> Table {
    let heading =
        ["Chosen for", "BLAS", ">Block", ">Grid", ">Gflop/s", ">Of the peak", ">Of the best"];
    let mut table = Table::new("What was chosen, measured once more.", &heading);
    let percent = |share: Option<f64>| {
        Cell::number(share.map_or("–".to_string(), |share| format!("{:.0} %", 100.0 * share)))
    };
    for one in &report.chosen {
        let Measured { blas, rate: found, .. } = &one.confirmed;
        table.row([
            Cell::Name(problem(&one.confirmed)),
            Cell::Text(blas.clone()),
            Cell::number(found.case.block.to_string()),
            Cell::number(grid(found)),
            rate(found),
            percent(one.share_of_peak),
            percent(one.share_of_best),
        ]);
    }
    table
}

fn with(one: &Measured) -> Cell {
    if one.rate.is_right() {
        Cell::Number(
            format!("{:.2}", one.rate.gflops),
            format!("{}, {}", one.blas, grid(&one.rate)),
        )
    } else {
        rate(&one.rate)
    }
}

fn rate(rate: &Rate) -> Cell {
    if rate.is_right() {
        Cell::number(format!("{:.2}", rate.gflops))
    } else {
        Cell::Judged(false, "wrong result".to_string())
    }
}

fn grid(rate: &Rate) -> String {
    format!("{} x {}", rate.case.rows, rate.case.columns)
}

fn problem(one: &Measured) -> String {
    let case = &one.rate.case;
    format!(
        "p{}{} over {}",
        case.numbers.letter(),
        case.routine.name(),
        one.mpi.as_deref().unwrap_or("-")
    )
}

/// Each once, in their order.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for name in all {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}
