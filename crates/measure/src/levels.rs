//! The same two hosts through several layers, side by side: TCP, MPI, PVM.

use super::child::Running;
use super::hosts::{Hosts, Machines, Nodes};
use super::probe::{self, Plan};
use super::provenance::Provenance;
use super::report::{Graph, Report};
use super::stop::Stop;
use crate::error::{Cannot, Error, Result};
use covey_lab::enter;
use covey_lab::units::{rate_text, time_text};
use covey_plot::table;
use covey_tune::levels::Overhead;
use covey_tune::{Quantities, Step};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// One library, or TCP, with its curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// What `covey tune net` reports of TCP, of this level; `protocol` names it.
    #[serde(flatten)]
    pub report: Report,
    /// Where its curve of times has a step: the eager limit, as it is seen.
    pub step: Option<Step>,
}

/// Several, from the lowest on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Levels {
    /// TCP first, if it was measured.
    pub levels: Vec<Level>,
    /// What each costs over the first.
    pub overheads: Vec<Overhead>,
    /// Those that could not be measured: which, and why.
    pub missing: Vec<Missing>,
}

/// What could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Name of the library or level.
    pub what: String,
    /// The reason, in words.
    pub why: String,
}

impl Levels {
    /// Compares each level with the first.
    pub fn new(levels: Vec<Level>, missing: Vec<Missing>) -> Levels {
        let found = |level: &Level| level.report.typical.clone();
        let base: Option<Quantities> = levels.first().and_then(found);
        let overhead = |level: &Level| {
            Some(Overhead::of(&level.report.protocol, &found(level)?, base.as_ref()?))
        };
        let overheads = levels.iter().skip(1).filter_map(overhead).collect();
        Levels { levels, overheads, missing }
    }

    /// In words.
    pub fn tell(&self, out: &mut Vec<u8>, graph: Graph) -> std::io::Result<()> {
        for level in &self.levels {
            level.report.tell(out, graph)?;
            match (&level.step, level.report.protocol.as_str()) {
                (_, "TCP") => {}
                (Some(step), _) => writeln!(
                    out,
                    "\nblocks up to {} bytes are sent at once, from {} on they cost {} more (rendezvous)",
                    step.eager_bytes,
                    step.rendezvous_bytes,
                    time_text((step.cost_s * 1e9) as u64)
                )?,
                (None, _) => {
                    writeln!(out, "\nno step between sending at once and rendezvous is seen")?
                }
            }
            writeln!(out)?;
        }
        self.tell_side_by_side(out)?;
        for missing in &self.missing {
            writeln!(out, "\nnot measured: {}: {}", missing.what, missing.why)?;
        }
        Ok(())
    }

    /// One line for each.
    pub fn tell_side_by_side(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let rows: Vec<Vec<String>> = self.levels.iter().map(|level| self.row(level)).collect();
        let heading = [
            "LEVEL",
            "WAITS",
            ">LATENCY",
            ">FACTOR",
            ">PEAK",
            ">LOST",
            ">SATURATES AT",
            ">N95",
            ">EAGER TO",
        ];
        table(out, &heading, &rows);
        let waits: Vec<&str> = self.levels.iter().map(|level| level.report.wait.as_str()).collect();
        if waits.windows(2).all(|pair| pair[0] == pair[1]) {
            Ok(())
        } else {
            writeln!(out, "\nlevels that wait differently cannot be compared by latency")
        }
    }

    fn row(&self, level: &Level) -> Vec<String> {
        let name = &level.report.protocol;
        let dash = || "-".to_string();
        let bytes = |estimate: Option<covey_tune::Estimate>| {
            estimate.map_or_else(dash, |estimate| format!("{:.0} B", estimate.value))
        };
        let over = self.overheads.iter().find(|overhead| overhead.level == *name);
        let mut row = vec![name.clone(), level.report.wait.clone()];
        let Some(found) = &level.report.typical else {
            row.extend((0..7).map(|_| dash()));
            return row;
        };
        row.push(time_text((found.latency_s.value * 1e9) as u64));
        row.push(over.map_or_else(dash, |over| format!("{:.2}", over.latency_factor)));
        row.push(rate_text(Some(found.peak_bits_per_s.value as u64)));
        row.push(over.map_or_else(dash, |over| format!("{:.1} %", 100.0 * over.bandwidth_lost)));
        row.push(bytes(found.saturation_bytes));
        row.push(bytes(found.plateau_bytes));
        row.push(level.step.map_or_else(dash, |step| format!("{} B", step.eager_bytes)));
        row
    }

    /// Why the whole is no success: the first level that broke off.
    pub fn failure(&self) -> Option<Error> {
        let broken =
            |level: &Level| Some((level.report.protocol.clone(), level.report.failure.clone()?));
        let (name, why) = self.levels.iter().find_map(broken)?;
        Some(Error::work(format!("cannot measure through {name} to the end: {why}")))
    }
}

/// TCP between the same two, by the same method.
pub fn tcp(hosts: &Hosts, plan: &Plan, stop: &Stop) -> Result<Level> {
    let report = match hosts {
        Hosts::Here => tcp_here(plan)?,
        Hosts::Nodes(nodes) => tcp_between(nodes, plan, stop)?,
        Hosts::Machines(machines) => tcp_by_run(machines, plan)?,
    };
    Ok(Level { report, step: None })
}

fn words(plan: &Plan) -> [String; 6] {
    let seconds = plan.budget.as_secs().max(1).to_string();
    let (up_to, perturbation) = (plan.up_to_bytes.to_string(), plan.perturbation.to_string());
    ["--budget".into(), seconds, "--up-to".into(), up_to, "--perturbation".into(), perturbation]
}

/// Between two programs on this machine: the one that answers is a thread of ours.
fn tcp_here(plan: &Plan) -> Result<Report> {
    let listener = TcpListener::bind("127.0.0.1:0").cannot(|| "listen on this machine")?;
    let address = listener.local_addr().cannot(|| "listen on this machine")?.to_string();
    // It ends with this process.
    std::thread::spawn(move || probe::serve(&listener, false));
    let mut command = Command::new(enter::ourselves());
    ask(command.args(["--json", "tune", "net", &address]).args(words(plan)))
}

fn tcp_between(nodes: &Nodes, plan: &Plan, _stop: &Stop) -> Result<Report> {
    let (from, to) = (&nodes.names[0], &nodes.names[1]);
    let mut command = Command::new(enter::ourselves());
    command.args(["--json", "tune", "net", from, to, "--lab", &nodes.lab.name]);
    ask(command.args(words(plan)))
}

/// Between nodes of a cluster: the program that answers and the one that asks are ours, started there.
fn tcp_by_run(machines: &Machines, plan: &Plan) -> Result<Report> {
    let [from, to] = &machines.names;
    let host = &machines.hosts[1];
    let is_v6 = host.contains(':');
    let any = if is_v6 { "[::]:0" } else { "0.0.0.0:0" };
    let host = if is_v6 { format!("[{host}]") } else { host.clone() };
    let mut answers = machines.run(std::slice::from_ref(to));
    answers.arg(enter::ourselves());
    answers.args(["--verbose", "tune", "serve", "--once", "--listen", any]);
    covey_io::os::namespaces::die_with_parent(&mut answers);
    answers.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let answers = answers.spawn().cannot(|| format!("start a program on {to}"))?;
    let mut answers = Running(answers);
    let said = BufReader::new(answers.0.stderr.take().expect("it is piped"));
    let port = said.lines().map_while(std::io::Result::ok).find_map(|line| {
        let (_, port) = line.split_once("answering at ")?.1.rsplit_once(':')?;
        port.parse::<u16>().ok()
    });
    let port = port.ok_or_else(|| {
        Error::work(format!("cannot measure over TCP: nothing answers on {to}"))
            .hint(format!("`covey run -w {to} hostname` shows whether anything runs there"))
    })?;
    let mut command = machines.run(std::slice::from_ref(from));
    command.arg(enter::ourselves());
    command.args(["--json", "tune", "net", &format!("{host}:{port}")]);
    let report = ask(command.args(words(plan)))?;
    Ok(Report { from: from.clone(), to: to.clone(), ..report })
}

fn ask(command: &mut Command) -> Result<Report> {
    covey_io::os::namespaces::die_with_parent(command);
    let output = command.stdin(Stdio::null()).output().cannot(|| "measure over TCP")?;
    let report = serde_json::from_slice::<Report>(&output.stdout).map_err(|_| {
        let said: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap_or_default();
        let why = said["error"]["message"].as_str().unwrap_or("it was interrupted").to_string();
        Error::work(format!("cannot measure over TCP: {why}"))
    })?;
    Ok(Report { provenance: Provenance::here(), ..report })
}
