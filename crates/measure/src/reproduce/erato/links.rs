//! Figures 5 to 7: TCP, MPI and PVM over a cable and over two switches.

use super::part;
use crate::error::{Error, Result};
use crate::report::Report;
use crate::reproduce::bench::Bench;
use crate::reproduce::told::{Part, number};
use covey_tune::papers::{Join, Link, erato_link};
use covey_tune::reproduce::{Beside, Unit};
use covey_tune::{Estimate, Quantities};
use serde_json::Value;

/// What was measured over each way of joining, so that two parts need it once only.
#[derive(Debug, Default)]
pub struct Links {
    found: Vec<(Join, &'static str, std::result::Result<Report, String>)>,
}

/// What goes over the wire.
pub const PROTOCOLS: [&str; 3] = ["TCP", "MPI", "PVM"];
/// What the paper's slower switch takes longer than its faster one, in nanoseconds: 69 us against 64 us.
const CATALYST_MORE_NS: u64 = 5_000;

impl Links {
    /// Measures what has not been yet.
    pub async fn measure(&mut self, bench: &mut Bench) {
        if !self.found.is_empty() {
            return;
        }
        for join in Join::ALL {
            let joined = join_nodes(bench, join).await.map_err(|error| error.message);
            for protocol in PROTOCOLS {
                let measured = match &joined {
                    Err(why) => Err(why.clone()),
                    Ok(()) => {
                        let measured = through(bench, protocol).await;
                        measured.map_err(|error| error.message)
                    }
                };
                bench.say(format!("  {}, {protocol}: {}", join.name(), in_short(&measured)));
                self.found.push((join, protocol, measured));
            }
        }
    }

    /// What was measured.
    pub fn report(&self, join: Join, protocol: &str) -> Option<&Report> {
        let found = self.found.iter().find(|(j, p, _)| *j == join && *p == protocol)?;
        found.2.as_ref().ok()
    }

    /// The numbers that follow.
    pub fn typical(&self, join: Join, protocol: &str) -> Option<&Quantities> {
        self.report(join, protocol)?.typical.as_ref()
    }

    /// Why nothing of this protocol can be believed, if it cannot.
    pub fn doubt(&self, bench: &Bench, protocol: &str) -> Option<String> {
        let of = self.found.iter().filter(|(_, p, _)| *p == protocol);
        let reports = of.filter_map(|(_, _, found)| found.as_ref().ok());
        reports.filter(|_| !bench.wish.is_anyway).find_map(|one| one.environment.warning())
    }

    /// Says what is missing.
    pub fn leave_out(&self, part: &mut Part) {
        for (join, protocol, found) in &self.found {
            let what = format!("{protocol} over {}", join.name());
            match found {
                Err(why) => part.leave_out(what, why.as_str()),
                Ok(report) if report.typical.is_none() => {
                    part.leave_out(what, "longer blocks took no longer: the machine was too busy");
                }
                Ok(_) => {}
            }
        }
    }
}

/// Numbers beside the paper's.
pub async fn numbers(bench: &mut Bench, links: &mut Links) -> Part {
    let mut part = part("fig5-7", "two nodes over TCP, MPI and PVM, on Fast Ethernet");
    links.measure(bench).await;
    for join in Join::ALL {
        for protocol in PROTOCOLS {
            if let Some((found, theirs)) =
                links.typical(join, protocol).zip(erato_link(join, protocol))
            {
                part.beside.extend(beside(found, &theirs));
            }
        }
    }
    links.leave_out(&mut part);
    part.differs(
        "the latency of TCP over a cable is no discovery: the lab's profile plants the paper's 57 us, \
         unless this machine alone takes longer",
    );
    part.differs(format!(
        "the lab's switch receives each frame whole, 7 us for the shortest, and then takes 4 us; \
         the Catalyst is this switch and a cable that adds {}",
        number(Unit::Seconds, CATALYST_MORE_NS as f64 / 1e9)
    ));
    part.differs("ours are medians with intervals, the paper's are NetPIPE's least means");
    if PROTOCOLS.iter().any(|one| *one != "TCP" && links.typical(Join::Direct, one).is_some()) {
        part.differs(
            "MPI and PVM are today's, run on today's processors, and wait in the kernel, as TCP does here; \
             the paper's are mpich 1.2.0 and PVM 3.4 on processors of 2001",
        );
    }
    if let Some(doubt) = links.doubt(bench, "TCP") {
        part.differs(doubt);
    }
    part
}

fn beside(found: &Quantities, theirs: &Link) -> Vec<Beside> {
    let of = format!("{}, {}", theirs.join.name(), theirs.protocol);
    let row = |what, ours: Estimate, value| {
        Beside::new(theirs.join.figure(), of.as_str(), what, ours, value)
    };
    let mut rows = vec![
        row(("bandwidth", Unit::BitsPerS), found.bandwidth_bits_per_s, theirs.bandwidth_bits_per_s),
        row(("latency", Unit::Seconds), found.latency_s, theirs.latency_s),
    ];
    rows.extend(
        found
            .saturation_bytes
            .map(|ours| row(("saturation point", Unit::Bytes), ours, theirs.saturation_bytes)),
    );
    rows
}

async fn join_nodes(bench: &mut Bench, join: Join) -> Result<()> {
    let topology = if join == Join::Direct { "direct" } else { "switch" };
    bench.lab(&["2", "--link", "fast-ethernet", "--topology", topology]).await?;
    if join == Join::Catalyst {
        let name = bench.now()?.name.clone();
        let status: Value = bench.covey(&["lab", "status", "--name", &name]).await?;
        let links = status["links"].as_array().into_iter().flatten();
        let mut link = links.filter(|link| link["name"] == "n2-sw1");
        let delay = link.next().and_then(|link| link["ways"][0]["settings"]["delay_ns"].as_u64());
        let delay = format!("{}ns", delay.unwrap_or(0) + CATALYST_MORE_NS);
        bench.set(&["n2-sw1", "delay", &delay]).await?;
    }
    Ok(())
}

/// Measures through a protocol between n1 and n2 of the lab.
async fn through(bench: &mut Bench, protocol: &str) -> Result<Report> {
    bench.may_begin()?;
    let (name, sizes) = (bench.now()?.name.clone(), sizes(bench));
    let ask = |words: &[&'static str]| -> Vec<String> {
        let all = words.iter().copied().chain(["n1", "n2", "--lab", &name]).chain(sizes);
        all.map(String::from).collect()
    };
    let command = if protocol == "MPI" { "mpi" } else { "pvm" };
    if protocol == "TCP" {
        let words = ask(&["tune", "net"]);
        return net(bench, &words).await;
    }
    let library: &[&str] = match command {
        // The paper's; else what there is.
        "mpi" if is_installed("mpicc.mpich") => &["--mpi", "mpich"],
        _ => &[],
    };
    let words = ask(&["tune", command, "--alone"]);
    let words: Vec<&str> =
        words.iter().map(String::as_str).chain(library.iter().copied()).collect();
    let mut found: Value = bench.covey(&words).await?;
    serde_json::from_value(found["levels"][0].take())
        .map_err(|why| Error::work(format!("cannot use what `tune {command}` says: {why}")))
}

/// `tune net` with these words.
pub async fn net(bench: &mut Bench, words: &[String]) -> Result<Report> {
    bench.covey(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// How long, and which sizes.
pub fn sizes(bench: &Bench) -> [&'static str; 6] {
    if bench.wish.is_quick {
        ["--budget", "1", "--up-to", "64KiB", "--perturbation", "0"]
    } else {
        ["--budget", "10", "--up-to", "512KiB", "--perturbation", "3"]
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn in_short(measured: &std::result::Result<Report, String>) -> String {
    match measured.as_ref().map(|report| &report.typical) {
        Err(why) => format!("left out: {why}"),
        Ok(None) => "no numbers".to_string(),
        Ok(Some(found)) => format!(
            "{}, {}",
            number(Unit::Seconds, found.latency_s.value),
            number(Unit::BitsPerS, found.bandwidth_bits_per_s.value)
        ),
    }
}
