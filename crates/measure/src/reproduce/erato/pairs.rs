//! Figures 1 to 4: what the text says of their curves.

use super::links::{Links, PROTOCOLS, net, sizes};
use super::part;
use crate::error::Result;
use crate::report::Report;
use crate::reproduce::bench::Bench;
use crate::reproduce::told::{Part, number};
use covey_tune::papers::Join;
use covey_tune::reproduce::{Answer, Named, Unit, is_between, rises};
use covey_tune::{Estimate, Quantities};

/// So much of the bandwidth may change where it `hardly` does.
const HARDLY: (f64, f64) = (0.95, 1.05);
/// How far from the paper's factor ours may be.
const NEAR: f64 = 0.25;

/// Judges the claims.
pub async fn claims(bench: &mut Bench, links: &mut Links) -> Part {
    let mut part = part("fig1-4", "the curves of TCP, MPI and PVM; their values are lost");
    links.measure(bench).await;
    links.leave_out(&mut part);
    let doubt = links.doubt(bench, "TCP");
    let doubt = doubt.as_deref();
    if let Some(answer) = later_on_a_switch(links) {
        part.judge("rise later", answer.unless(doubt));
    }
    if let Some(answer) = latency_grows(links) {
        part.judge("latency grows", answer.unless(doubt));
        part.differs(
            "the order of the two switches was planted: only that a switch is slower than a cable is a finding",
        );
    }
    match four_pairs(bench).await {
        Ok((answer, doubt)) => part.judge("four pairs", answer.unless(doubt.as_deref())),
        Err(error) => part.leave_out("four pairs at once", error.message),
    }
    if let Some(answer) = overheads(links) {
        part.judge("8 % of the bandwidth", answer.unless(doubt));
        part.differs(
            "MPI and PVM cost less on this machine's processors and with today's libraries than in 2001",
        );
    }
    if let Some(answer) = saturate_in_order(links) {
        part.judge("saturates first", answer.unless(doubt));
    }
    part
}

fn later_on_a_switch(links: &Links) -> Option<Answer> {
    let direct = links.typical(Join::Direct, "TCP")?;
    let switch = links.typical(Join::CentroCom, "TCP")?;
    let half = [("n1/2 over the cable", direct.half_bytes), ("over the switch", switch.half_bytes)];
    let rate = |found: &Quantities| found.bandwidth_bits_per_s;
    let same =
        is_between("bandwidth over the switch by the cable's", rate(switch), rate(direct), HARDLY);
    Some(rises(&half, &|bytes| number(Unit::Bytes, bytes)).and(same))
}

fn latency_grows(links: &Links) -> Option<Answer> {
    let latency = |join: Join| Some((join.name(), links.typical(join, "TCP")?.latency_s));
    let all: Option<Vec<Named<'_>>> = Join::ALL.into_iter().map(latency).collect();
    Some(rises(&all?, &|time| number(Unit::Seconds, time)))
}

/// What MPI and PVM cost, over the paper's slower switch as there.
fn overheads(links: &Links) -> Option<Answer> {
    let of = |protocol| links.typical(Join::Catalyst, protocol);
    let (tcp, mpi, pvm) = (of("TCP")?, of("MPI")?, of("PVM")?);
    let one = |name: &str, found: &Quantities, kept: f64, factor: f64| {
        let bandwidth = is_between(
            &format!("{name} keeps of TCP's bandwidth"),
            found.bandwidth_bits_per_s,
            tcp.bandwidth_bits_per_s,
            (kept - 0.04, kept + 0.04),
        );
        let (least, most) = (factor * (1.0 - NEAR), factor * (1.0 + NEAR));
        let name = format!("{name}'s latency by TCP's");
        bandwidth.and(is_between(&name, found.latency_s, tcp.latency_s, (least, most)))
    };
    Some(one("MPI", mpi, 0.92, 1.8).and(one("PVM", pvm, 0.84, 2.0)))
}

fn saturate_in_order(links: &Links) -> Option<Answer> {
    let [tcp, mpi, pvm] = PROTOCOLS;
    let point = |protocol: &'static str| {
        Some((protocol, links.typical(Join::Catalyst, protocol)?.saturation_bytes?))
    };
    let all: Option<Vec<Named<'_>>> = [tcp, pvm, mpi].into_iter().map(point).collect();
    Some(rises(&all?, &|bytes| number(Unit::Bytes, bytes)))
}

/// One pair alone, then it and three others at once, with what makes the result doubtful.
async fn four_pairs(bench: &mut Bench) -> Result<(Answer, Option<String>)> {
    bench.lab(&["8", "--link", "fast-ethernet"]).await?;
    let name = bench.now()?.name.clone();
    let sizes = sizes(bench);
    let words = |from: &str, to: &str| -> Vec<String> {
        let all = ["tune", "net", from, to, "--lab", &name].into_iter().chain(sizes);
        all.map(String::from).collect()
    };
    let alone = net(bench, &words("n1", "n2")).await?;
    let pairs = [("n1", "n2"), ("n3", "n4"), ("n5", "n6"), ("n7", "n8")];
    let mut going = Vec::new();
    for (from, to) in pairs {
        let words = words(from, to);
        going.push(bench.start(&words.iter().map(String::as_str).collect::<Vec<_>>())?);
    }
    let mut together: Vec<Report> = Vec::new();
    let mut failure = None;
    for one in going {
        match bench.finish(one).await {
            Ok(out) => together.push(serde_json::from_slice(&out)?),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    bench.down().await?;
    if let Some(error) = failure {
        return Err(error);
    }
    let warned = |report: &Report| report.environment.warning();
    let doubt = together.iter().chain([&alone]).find_map(warned);
    let (Some(before), Some(worst)) = (bandwidth(&alone), worst(&together)) else {
        return Ok((Answer::not_shown("longer blocks took no longer"), doubt));
    };
    let what = "bandwidth of the slowest of four pairs by that of one alone";
    let answer = is_between(what, worst, before, HARDLY);
    Ok((answer, doubt.filter(|_| !bench.wish.is_anyway)))
}

fn bandwidth(report: &Report) -> Option<Estimate> {
    Some(report.typical.as_ref()?.bandwidth_bits_per_s)
}

fn worst(reports: &[Report]) -> Option<Estimate> {
    let all: Option<Vec<Estimate>> = reports.iter().map(bandwidth).collect();
    all?.into_iter().min_by(|one, other| one.value.total_cmp(&other.value))
}
