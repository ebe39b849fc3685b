//! The tables and figures of "9P in high-performance computing": programs spread to many nodes, and workers.

mod workers;

use super::told::Part;
use crate::error::Result;
use crate::launch::{Spread, Took, rate, simulate};
use crate::stop::{INTERRUPTED, Stop};
use covey_lab::profile::Profile;
use covey_tune::Estimate;
use covey_tune::papers::{LANL_NODES, LANL_SPAWNS, Paper};
use covey_tune::reproduce::{Beside, Unit};

/// The parts.
pub const PARTS: [&str; 6] = ["table2", "fig2", "fig3", "table3", "table4", "fig4"];

/// How programs are spread where nobody has measured.
const FAN_OUT: usize = 2;
/// The paper's network of table 2, and that of its figures: SparkPlug, 32 nodes on Myrinet.
const INFINIBAND: &str = "infiniband-sdr";
const MYRINET: &str = "myrinet2000";
const SPARKPLUG_NODES: usize = 32;
/// The sizes of table 2, which the figures have as well.
const SHORT: usize = 64 << 10;
const LONG: usize = 16 << 20;

/// Simulates the launcher's parts and measures those of workers. What was done before a signal is kept.
pub fn run(
    parts: &[&'static str],
    is_quick: bool,
    stop: &Stop,
    say: &dyn Fn(String),
) -> Result<Vec<Part>> {
    let mut found = Vec::new();
    let (measured, simulated): (Vec<_>, Vec<_>) =
        parts.iter().partition(|part| workers::PARTS.contains(*part));
    for part in simulated {
        say(format!("{}, {part}", Paper::Lanl.name()));
        found.push(match part {
            "table2" => table(is_quick, stop)?,
            "fig2" => nodes(is_quick, stop)?,
            _ => sizes(is_quick, stop)?,
        });
    }
    if !measured.is_empty() {
        found.extend(workers::run(&measured, is_quick, stop, say)?);
    }
    Ok(found)
}

/// Four sizes on the nodes of Blue Steel.
fn table(is_quick: bool, stop: &Stop) -> Result<Part> {
    let mut part = begin("table2", "a program spread to 245 nodes on InfiniBand, by its size");
    let profile = profile(INFINIBAND)?;
    let nodes = if is_quick { 32 } else { LANL_NODES as usize };
    let mut took = Vec::new();
    for row in LANL_SPAWNS {
        let bytes = row.bytes as usize;
        let Some(one) =
            asked(&mut part, stop, Spread { nodes, bytes, fan_out: FAN_OUT }, &profile)?
        else {
            return Ok(part);
        };
        let (ours, of) = (exact(&one), format!("{} KiB", bytes >> 10));
        for (what, theirs) in [("beside B-Proc", row.bproc_s), ("beside XCPU", row.xcpu_s)] {
            let beside = Beside::new("table 2", of.clone(), (what, Unit::Seconds), ours, theirs);
            part.beside.push(beside);
        }
        took.push(one);
    }
    let (first, last) = (took[0], took[took.len() - 1]);
    let more = (last.time - first.time).as_secs_f64();
    let ideal = (FAN_OUT * (LONG - SHORT)) as f64 / rate(&profile)? as f64;
    part.measured(format!(
        "16 MiB take {:.1} ms longer than 64 KiB; {FAN_OUT} copies through one port take {:.1} ms: {:.2} times that",
        more * 1e3,
        ideal * 1e3,
        more / ideal
    ));
    let copies = |bytes: u64| bytes as f64 / LONG as f64;
    part.measured(format!(
        "{:.2} copies leave the machine of the command, {:.2} the node that is served first",
        copies(last.command_bytes),
        copies(last.first_bytes)
    ));
    let growth = |of: fn(&covey_tune::papers::Spawn) -> f64| {
        of(&LANL_SPAWNS[LANL_SPAWNS.len() - 1]) / of(&LANL_SPAWNS[0])
    };
    part.measured(format!(
        "16 MB by 64 KB is {:.1} with B-Proc, {:.1} with XCPU; what the program takes to start is in theirs only",
        growth(|row| row.bproc_s),
        growth(|row| row.xcpu_s)
    ));
    if is_quick {
        part.differs(format!("{nodes} nodes instead of {LANL_NODES}: it was to be short"));
    }
    Ok(part)
}

/// One program, more and more nodes.
fn nodes(is_quick: bool, stop: &Stop) -> Result<Part> {
    let mut part = begin("fig2", "one program spread to more and more nodes");
    let most = if is_quick { 64 } else { 1024 };
    for (network, most) in [(MYRINET, SPARKPLUG_NODES), (INFINIBAND, most)] {
        let profile = profile(network)?;
        let mut count = 1;
        while count <= most {
            for bytes in [SHORT, LONG] {
                let spread = Spread { nodes: count, bytes, fan_out: FAN_OUT };
                let Some(took) = asked(&mut part, stop, spread, &profile)? else { return Ok(part) };
                part.measured(line(network, spread, &took));
            }
            count *= 2;
        }
    }
    part.differs("the paper's curve is lost: nothing stands beside these times");
    Ok(part)
}

/// All nodes of SparkPlug, longer and longer programs.
fn sizes(is_quick: bool, stop: &Stop) -> Result<Part> {
    let mut part = begin("fig3", "longer and longer programs spread to 32 nodes on Myrinet");
    let (profile, nodes) = (profile(MYRINET)?, if is_quick { 8 } else { SPARKPLUG_NODES });
    for doubled in 0..=8 {
        let spread = Spread { nodes, bytes: SHORT << doubled, fan_out: FAN_OUT };
        let Some(took) = asked(&mut part, stop, spread, &profile)? else { return Ok(part) };
        part.measured(line(MYRINET, spread, &took));
    }
    part.differs("the paper's curve is lost: nothing stands beside these times");
    Ok(part)
}

fn begin(name: &'static str, title: &'static str) -> Part {
    let mut part = Part::new(Paper::Lanl, name, title);
    part.differs(
        "ours is simulated: the launcher's code on simulated machines whose ports have a rate; the nodes' CPUs and \
         disks, and the start of the program, take no time. `bench/launch` measures real daemons",
    );
    part
}

fn profile(name: &str) -> Result<Profile> {
    Profile::named(name).map_err(crate::error::Error::user)
}

/// What it takes, unless somebody has asked to stop.
fn asked(part: &mut Part, stop: &Stop, spread: Spread, profile: &Profile) -> Result<Option<Took>> {
    if stop.is_asked() {
        part.leave_out(part.part, INTERRUPTED);
        return Ok(None);
    }
    simulate(spread, profile).map(Some)
}

fn line(network: &str, spread: Spread, took: &Took) -> String {
    format!(
        "{network}, {:>4} nodes, {:>5} KiB: {:.2} ms",
        spread.nodes,
        spread.bytes >> 10,
        took.time.as_secs_f64() * 1e3
    )
}

/// The same each time.
fn exact(took: &Took) -> Estimate {
    let value = took.time.as_secs_f64();
    Estimate { value, low: value, high: value }
}
