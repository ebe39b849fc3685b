//! Blocks to and fro by a program of ours through a message library: the same sizes, rounds and passes as over
//! TCP, and the same report.

use super::child::{self, Watched};
use super::environment::Watch;
use super::hosts::Hosts;
use super::levels::Level;
use super::probe::{self, Plan};
use super::provenance::Provenance;
use super::report::{Report, rows};
use super::scratch::Scratch;
use super::stop::Stop;
use crate::error::{Error, Result};
use covey_tune::diagnose::Verdict;
use covey_tune::{Curve, Pick, Point, Quantities, records, sizes, step};
use std::process::Command;
use std::time::Duration;

/// How long the program may write nothing: it starts, or a size takes long.
const SILENCE: Duration = Duration::from_secs(20);

/// A way through a library.
#[derive(Clone, Debug)]
pub struct Through {
    /// The library's name, such as `Open MPI 4.1.4`.
    pub library: String,
    /// How both ends wait.
    pub wait: String,
    /// What to install or look at when it does not run.
    pub hint: String,
}

/// Hears of each size: its bytes, its median time in seconds.
pub type Progress<'a> = &'a mut (dyn FnMut(u64, f64) + Send);

/// The program's arguments after those that say how to reach the other.
pub fn arguments(plan: &Plan, hosts: &Hosts, scratch: &Scratch) -> Vec<String> {
    let records = match hosts {
        // What it says comes back from there, its files do not.
        Hosts::Machines(_) => "-".to_owned(),
        Hosts::Here | Hosts::Nodes(_) => scratch.file("records").display().to_string(),
    };
    let sizes = sizes(plan.up_to_bytes, plan.perturbation);
    let seconds = plan.budget.as_secs_f64();
    let slice_s = seconds / (probe::PASSES * sizes.len().max(1) as u64) as f64;
    let mut words = vec![
        records,
        probe::PASSES.to_string(),
        probe::ROUNDS_MIN.to_string(),
        probe::ROUNDS_MAX.to_string(),
        probe::WARM_UP.to_string(),
        format!("{slice_s:.6}"),
        format!("{:.1}", probe::SLICES_MAX),
        format!("{:.3}", f64::from(probe::OVERDRAFT) * seconds),
    ];
    words.extend(sizes.iter().map(u64::to_string));
    words
}

/// Runs the program and makes its records a level. What there was before a failure is kept; without any, the
/// failure is an error.
pub fn measure(
    command: Command,
    through: Through,
    hosts: &Hosts,
    plan: &Plan,
    scratch: &Scratch,
    stop: &Stop,
    progress: Progress<'_>,
) -> Result<Level> {
    let (from, to) = hosts.ends();
    let watch = Watch::begin();
    let mut points: Vec<Point> = Vec::new();
    let (file, talk) = (scratch.file("records"), scratch.file("talk"));
    let limit = SILENCE + (probe::OVERDRAFT + 1) * plan.budget;
    let output = match hosts {
        Hosts::Machines(_) => &file,
        Hosts::Here | Hosts::Nodes(_) => &talk,
    };
    let watched = Watched { records: &file, output, talk: &talk, silence: SILENCE, limit };
    let failure = child::run(command, &watched, stop, |new| {
        let (more, used) = records::read(new)?;
        for point in &more {
            progress(point.bytes, point.time_s(Pick::Typical));
        }
        points.extend(more);
        Ok(used)
    })?;
    let failure = match (failure, points.last()) {
        (Some(why), Some(last)) => Some(format!("after {} bytes {why}", last.bytes)),
        (Some(why), None) => {
            let library = &through.library;
            return Err(Error::work(format!("cannot measure through {library}: {why}"))
                .hint(through.hint.clone()));
        }
        (None, _) => None,
    };
    let curve = Curve::new(points);
    let report = Report {
        from,
        to,
        protocol: through.library,
        wait: through.wait,
        points: rows(&curve),
        typical: Quantities::of(&curve),
        best: Quantities::of_pick(&curve, Pick::Best),
        streams: None,
        both_at_once: None,
        verdict: Verdict::NotTrustworthy(
            "`covey tune net` looks for faults of the wire; this is what a library makes of it"
                .into(),
        ),
        environment: watch.end(),
        failure,
        wire: match hosts {
            Hosts::Here | Hosts::Machines(_) => None,
            Hosts::Nodes(nodes) => nodes.wire,
        },
        provenance: Provenance::here(),
    };
    Ok(Level { report, step: step(&curve) })
}
