//! `covey lab status`: what a lab is like now.

use super::{Which, host};
use crate::cmd::Context;
use crate::error::Result;
use crate::output::table;
use covey_lab::control::{CableStatus, Status, WayStatus, status};
use covey_lab::fabric::{Counts, Settings};
use covey_lab::floor::Floor;
use covey_lab::plan::Plan;
use covey_lab::profile::Profile;
use covey_lab::state::Lab;
use covey_lab::units::{rate_text, share_text, time_text};
use std::io::Write;

/// Show a lab: its nodes, cables, and how well time was kept
///
/// SENT and LOST count frames since the lab came up. FAULTS are settings that the profile does not
/// have, and those of `covey lab set NODE`. When this machine could not carry the set rate, a line
/// says so: do not trust measurements then.
///
/// EXAMPLES
///
///     covey lab status
///     covey --json lab status | jq '.timing.late'
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

/// Runs the command.
pub fn run(args: &Args, context: &Context) -> Result<()> {
    let lab = args.which.lab()?;
    let keeper = lab.living_keeper()?;
    let (plan, status) = (lab.plan()?, status(&lab)?);
    let value = serde_json::json!({
        "lab": lab.name, "dir": lab.dir, "keeper": keeper.pid, "plan": plan,
        "floor": status.floor, "timing": status.timing, "links": links(&plan, &status),
        "nodes": host::all_set(&lab),
    });
    context.output.result(&value, |out| tell(out, &lab, &plan, &status))
}

fn links(plan: &Plan, status: &Status) -> Vec<serde_json::Value> {
    let cables = plan.cables.iter().zip(&status.cables);
    cables
        .map(|(cable, now)| {
            let ends = cable.ends.map(|end| plan.end_name(end).to_string());
            serde_json::json!({ "name": cable.name, "ends": ends, "wires": cable.wires, "ways": now.ways })
        })
        .collect()
}

fn tell(out: &mut Vec<u8>, lab: &Lab, plan: &Plan, status: &Status) -> std::io::Result<()> {
    nodes(out, lab, plan, &host::all_set(lab))?;
    writeln!(out)?;
    let mut rows = Vec::new();
    for (cable, now) in plan.cables.iter().zip(&status.cables) {
        rows.extend(cable_rows(plan, cable, now));
    }
    let heading = ["LINK", "FROM", ">RATE", ">DELAY", ">QUEUE", ">MTU", ">SENT", ">LOST", "FAULTS"];
    table(out, &heading, &rows);
    writeln!(out)?;
    for network in &plan.networks {
        let profile = &network.profile;
        writeln!(out, "{}: {}, {}", network.name, profile.name, profile.summary())?;
        machine_lines(out, profile, status.floor)?;
    }
    match status.timing.warning() {
        Some(warning) => writeln!(out, "warning: {warning}"),
        None => Ok(()),
    }
}

/// The nodes and their addresses.
pub fn nodes(out: &mut Vec<u8>, lab: &Lab, plan: &Plan, set: &host::Set) -> std::io::Result<()> {
    let count = plan.nodes.len();
    let nodes = if count == 1 { "node" } else { "nodes" };
    writeln!(out, "lab {}: {count} {nodes}\n", lab.name)?;
    let rows: Vec<Vec<String>> = plan
        .nodes
        .iter()
        .enumerate()
        .map(|(node, name)| {
            let cards = plan.cards_of(node);
            let cards: Vec<String> =
                cards.map(|(_, card)| format!("{} {}", card.interface, card.address)).collect();
            let faults = set.get(name).into_iter().flatten();
            let faults: Vec<String> = faults.map(|(key, value)| format!("{key} {value}")).collect();
            vec![name.clone(), cards.join("  "), faults.join(", ")]
        })
        .collect();
    if set.is_empty() {
        let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row[..2].to_vec()).collect();
        table(out, &["NODE", "CARDS"], &rows);
    } else {
        table(out, &["NODE", "CARDS", "FAULTS"], &rows)
    }
    Ok(())
}

/// What this machine makes of a profile.
pub fn machine_lines(
    out: &mut Vec<u8>,
    profile: &Profile,
    floor: Option<Floor>,
) -> std::io::Result<()> {
    let Some(floor) = floor else { return Ok(()) };
    let alone = time_text(floor.latency_ns);
    match profile.end_delay_ns(floor.latency_ns) {
        _ if profile.latency_ns == 0 => {
            writeln!(out, "  this machine alone takes {alone} one way")?
        }
        (end_ns, true) => writeln!(
            out,
            "  this machine alone takes {alone} one way; cables add {} at each node",
            time_text(end_ns)
        )?,
        (_, false) => writeln!(
            out,
            "  a latency of {} cannot be had here: this machine alone takes {alone} one way, and \
             that is what there is",
            time_text(profile.latency_ns)
        )?,
    }
    let most = rate_text(Some(floor.bits_per_s as u64));
    match profile.tcp_bits_per_s() {
        None => writeln!(out, "  one TCP connection carried {most}"),
        Some(wire) if wire > CARRIED_SHARE * floor.bits_per_s => writeln!(
            out,
            "  its rate cannot be had here: without any limit one TCP connection carried {most}"
        ),
        Some(_) => Ok(()),
    }
}

/// A wire is carried when this share of what the machine moved without limit exceeds it.
const CARRIED_SHARE: f64 = 0.8;

/// One row for each way.
fn cable_rows(plan: &Plan, cable: &covey_lab::plan::Cable, now: &CableStatus) -> Vec<Vec<String>> {
    let [there, back] = &now.ways;
    let wires = if cable.wires > 1 { format!(" x{}", cable.wires) } else { String::new() };
    let name = format!("{}{wires}", cable.name);
    let ends = cable.ends.map(|end| plan.end_name(end).to_string());
    let [from, to] = ends;
    vec![row(&name, &from, there), row("", &to, back)]
}

fn row(name: &str, from: &str, way: &WayStatus) -> Vec<String> {
    let settings = &way.settings;
    vec![
        name.to_string(),
        from.to_string(),
        rate_text(settings.bits_per_s),
        time_text(settings.delay_ns),
        format!("{} KiB", settings.queue_bytes >> 10),
        settings.mtu.to_string(),
        way.counts.frames.to_string(),
        lost(&way.counts),
        faults(settings),
    ]
}

fn lost(counts: &Counts) -> String {
    let reasons = [
        (counts.lost_queue, "queue"),
        (counts.lost_chance, "chance"),
        (counts.lost_mtu, "mtu"),
        (counts.lost_policer, "policer"),
        (counts.lost_down, "down"),
    ];
    let reasons: Vec<String> = reasons
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{why} {count}"))
        .collect();
    if reasons.is_empty() { "0".to_string() } else { reasons.join(", ") }
}

fn faults(settings: &Settings) -> String {
    let mut said = Vec::new();
    for (ppm, name) in [
        (settings.loss_ppm, "loss"),
        (settings.crowd_loss_ppm, "crowd-loss"),
        (settings.corrupt_ppm, "corrupt"),
        (settings.duplicate_ppm, "duplicate"),
        (settings.reorder_ppm, "reorder"),
    ] {
        if ppm > 0 {
            said.push(format!("{name} {}", share_text(ppm)));
        }
    }
    if settings.loss_from_bytes > 0 {
        said.push(format!("loss-from {}", settings.loss_from_bytes));
    }
    if settings.jitter_ns > 0 {
        said.push(format!("jitter {}", time_text(settings.jitter_ns)));
    }
    if settings.police_bits_per_s.is_some() {
        said.push(format!("police {}", rate_text(settings.police_bits_per_s)));
    }
    if settings.half_duplex {
        said.push("duplex half".to_string());
    }
    if settings.is_down {
        said.push("state down".to_string());
    }
    said.join(", ")
}
