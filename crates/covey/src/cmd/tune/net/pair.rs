//! Two nodes of a lab: one answers, the other measures and hands over what it finds, size by size.

use super::{Args, here};
use crate::error::{Cannot, Error, Result};
use covey_lab::control::status;
use covey_lab::enter;
use covey_lab::plan::Plan;
use covey_lab::state::Lab;
use covey_measure::probe;
use covey_measure::provenance::Provenance;
use covey_measure::report::Report;
use covey_measure::stop::{INTERRUPTED, Stop};
use covey_tune::Point;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a keeper that is ending may take.
const KEEPER_WAIT: Duration = Duration::from_secs(2);
/// How soon a request to stop is seen.
const STOP_POLL: Duration = Duration::from_millis(50);

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Point(Point),
    Report(Box<Report>),
}

/// On the node: tells of one size. Whether anybody listens does not matter to the measurement.
pub fn hand_over_point(point: &Point) {
    if let Ok(text) = serde_json::to_string(&Line::Point(point.clone())) {
        let _ = crate::output::write_out(format!("{text}\n").as_bytes());
    }
}

/// On the node: the end.
pub fn hand_over(report: &Report) -> Result<()> {
    let text = serde_json::to_string(&Line::Report(Box::new(report.clone())))?;
    crate::output::write_out(format!("{text}\n").as_bytes())
}

/// This program on a node, which ends with this thread however that ends.
pub fn on_node(lab: &Lab, node: &str) -> Command {
    let mut command = enter::ourselves_on(lab, node);
    covey_io::os::namespaces::die_with_parent(&mut command);
    command
}

/// A node that answers until this is dropped.
#[derive(Debug)]
pub struct Answering(Child);

impl Answering {
    /// Starts it.
    pub fn on(lab: &Lab, plan: &Plan, node: &str) -> Result<Answering> {
        let (_, card) = plan.cards_of(lab.node(plan, node)?).next().expect("every node has a card");
        let listen = format!("{}:{}", card.address, probe::PORT_DEFAULT);
        let mut command = on_node(lab, node);
        command.args(["tune", "serve", "--listen", &listen]).stdout(Stdio::null());
        command.spawn().map(Answering).cannot(|| format!("answer on {node}"))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        enter::end(&mut self.0);
    }
}

/// Measures between two nodes, while `at_once` pairs of them share the machine.
pub fn between(
    args: &Args,
    lab: &Lab,
    [from, to]: [&str; 2],
    at_once: usize,
    stop: &Stop,
    heard: &mut dyn FnMut(&Point),
) -> Result<Report> {
    lab.living_keeper()?;
    let plan = lab.plan()?;
    lab.node(&plan, from)?;
    lab.node(&plan, to)?;
    if from == to {
        return Err(Error::user(format!("cannot measure {from} to itself"))
            .hint("name two different nodes"));
    }
    let words = words(args, lab, &plan, to, at_once)?;
    let server = Answering::on(lab, &plan, to)?;
    let mut command = on_node(lab, from);
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begin = Instant::now();
    let mut child = command.spawn().cannot(|| format!("measure on {from}"))?;
    let mut points = Vec::new();
    let out = child.stdout.take().expect("it was asked for");
    let is_over = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        let measuring = &mut child;
        scope.spawn(|| end_when_asked(measuring, stop, &is_over));
        let report = listen(BufReader::new(out), &mut points, heard);
        is_over.store(true, Ordering::Relaxed);
        report
    });
    let mut said = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_end(&mut said);
    }
    let _ = child.wait();
    drop(server);
    let report = match report {
        Some(report) => report,
        None if points.is_empty() => return Err(said_no(lab, from, stop, &said)),
        None => here::partial(from, to, points, begin.elapsed(), &why_ended(lab, from, stop)),
    };
    // What was run on the node was this command's doing.
    Ok(Report { wire: plan.networks[0].profile.wire(), provenance: Provenance::here(), ..report })
}

fn words(args: &Args, lab: &Lab, plan: &Plan, to: &str, at_once: usize) -> Result<Vec<String>> {
    let mut words: Vec<String> = ["--json", "tune", "net", to, "--points"].map(String::from).into();
    let mut add = |key: &str, value: String| words.extend([key.to_string(), value]);
    add("--budget", args.budget.to_string());
    add("--up-to", args.up_to.to_string());
    add("--perturbation", args.perturbation.to_string());
    if let Some(floor) = status(lab)?.floor {
        // Pairs at once share what the machine moves.
        add("--machine", (floor.bits_per_s / at_once as f64).to_string());
    }
    if let Some(expect) = args.expect.or(plan.networks[0].profile.tcp_bits_per_s()) {
        add("--expect", (expect as u64).to_string());
    }
    if let Some(file) = &args.evidence {
        add("--evidence", file.display().to_string());
    }
    words.extend(args.anyway.then(|| "--anyway".to_string()));
    words.extend(args.like_application.then(|| "--like-application".to_string()));
    Ok(words)
}

/// Takes in lines until there are no more. What is no line of ours is left out.
fn listen(
    lines: impl BufRead,
    points: &mut Vec<Point>,
    heard: &mut dyn FnMut(&Point),
) -> Option<Report> {
    let mut report = None;
    for line in lines.lines().map_while(std::io::Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Line::Point(point)) => {
                heard(&point);
                points.push(point);
            }
            Ok(Line::Report(all)) => report = Some(*all),
            Err(_) => {}
        }
    }
    report
}

/// Ends the measuring program when this one is asked to end: what there was is told then.
fn end_when_asked(measuring: &mut Child, stop: &Stop, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        if stop.is_asked() {
            return enter::end(measuring);
        }
        std::thread::sleep(STOP_POLL);
    }
}

fn why_ended(lab: &Lab, from: &str, stop: &Stop) -> String {
    // What runs in a lab ends a moment before its keeper does.
    let begin = Instant::now();
    while lab.keeper().is_some() {
        if stop.is_asked() {
            return INTERRUPTED.to_string();
        }
        if begin.elapsed() > KEEPER_WAIT {
            return format!("the measuring program on {from} was ended");
        }
        std::thread::sleep(KEEPER_WAIT / 20);
    }
    format!("lab {} went down meanwhile", lab.name)
}

/// What the measuring node said instead of a report: our own error, as JSON.
pub fn said_no(lab: &Lab, from: &str, stop: &Stop, stderr: &[u8]) -> Error {
    let said: serde_json::Value = serde_json::from_slice(stderr).unwrap_or_default();
    let message = said["error"]["message"].as_str().map(str::to_string);
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(stderr).trim().to_string());
    let message = if message.is_empty() {
        format!("cannot measure: {}", why_ended(lab, from, stop))
    } else {
        format!("{message} (on {from})")
    };
    let hints = said["error"]["hints"].as_array().into_iter().flatten();
    hints.filter_map(|hint| hint.as_str()).fold(Error::work(message), Error::hint)
}
