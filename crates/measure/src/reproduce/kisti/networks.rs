//! Programs over MPI on several networks, each through every library that is installed.
//!
//! The paper has one library on InfiniBand and another on Myrinet, so it cannot say whether a difference comes from the
//! wire or from the library. Here each library runs over each network, and the difference is divided.

use crate::calls::Ran;
use crate::error::Result;
use crate::hosts::Hosts;
use crate::mpi::{self, Library, Mpi};
use crate::reproduce::bench::Bench;
use crate::reproduce::told::{Divided, Part, number};
use crate::stop::Stop;
use covey_tune::Estimate;
use covey_tune::reproduce::{Answer, Unit, is_between, quotient};
use covey_tune::split::{Split, mean};
use covey_tune::timed::Timed;

/// The paper's two, and one that differs from both more.
pub const NETWORKS: [&str; 3] = ["myrinet2000", "infiniband-sdr", "gigabit"];
/// What is compared: the first is what the other is measured by.
pub const PAIRS: [[&str; 2]; 2] = [["myrinet2000", "infiniband-sdr"], ["myrinet2000", "gigabit"]];
/// So many nodes, as in the paper.
pub const NODES: usize = 4;
/// What is judged by itself.
pub const ONE: Estimate = Estimate { value: 1.0, low: 1.0, high: 1.0 };

/// What was timed.
#[derive(Debug, Default)]
pub struct Everywhere {
    runs: Vec<Run>,
    /// In how many labs.
    labs: usize,
}

#[derive(Debug)]
struct Run {
    network: &'static str,
    library: String,
    all: Vec<Timed>,
}

/// Measures with one library on nodes.
pub type Measure = fn(&Mpi, &Hosts, bool, &Stop) -> Result<Ran>;

/// Measures everywhere, in rounds: what changes with time changes for all alike.
pub async fn everywhere(bench: &mut Bench, part: &mut Part, measure: Measure) -> Everywhere {
    let mut found = Everywhere::default();
    // As there: the first with Myrinet, the second with InfiniBand.
    let libraries: Vec<Mpi> = [Library::Mpich, Library::Openmpi]
        .into_iter()
        .flat_map(|one| mpi::choose(Some(one)))
        .flatten()
        .collect();
    if libraries.is_empty() {
        part.leave_out(
            "all of it",
            "no MPI is installed (apt-get install openmpi-bin libopenmpi-dev mpich libmpich-dev)",
        );
        return found;
    }
    if let [only] = &libraries[..] {
        part.leave_out(
            "whether the wire or the library",
            format!("{} is the only MPI installed, and it takes two", only.name),
        );
    }
    let rounds = if bench.wish.is_quick { 1 } else { 3 };
    for _ in 0..rounds {
        for network in NETWORKS {
            if let Err(error) = found.on(bench, part, network, (&libraries, measure)).await {
                part.fail(network, &error);
            }
        }
    }
    if let Err(error) = bench.down().await {
        part.fail("taking the lab down", &error);
    }
    part.doubt(found.doubt(bench));
    part.differs(format!(
        "{NODES} nodes share this machine's {} CPUs with the lab's own network: who waits for a message takes them \
         from who computes. A program that is slower than the wire hides what the wire makes",
        cpus()
    ));
    part.differs(
        "both libraries talk TCP here, whatever the network; the paper's mvapich 0.9.4 has verbs and its mpichgm \
         1.2.6 has GM, so that a library's part there is also that of its driver",
    );
    found
}

/// How many this machine has.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

impl Everywhere {
    async fn on(
        &mut self,
        bench: &mut Bench,
        part: &mut Part,
        network: &'static str,
        (libraries, measure): (&[Mpi], Measure),
    ) -> Result<()> {
        bench.lab(&[&NODES.to_string(), "--link", network]).await?;
        self.labs += 1;
        for mpi in libraries {
            let (mine, hosts, is_quick) = (mpi.clone(), bench.hosts(NODES)?, bench.wish.is_quick);
            let ran = bench.work(move |stop| measure(&mine, &hosts, is_quick, stop)).await;
            let what = format!("{network}, {}", mpi.name);
            match ran {
                Err(error) => part.fail(what, &error),
                Ok(ran) => {
                    bench.say(format!("  {what}: {} timed", ran.all.len()));
                    self.keep(network, &mpi.name, ran.all, part);
                    if let Some(why) = ran.failure {
                        part.leave_out(format!("the rest of {what}"), why);
                    }
                }
            }
        }
        if let Some(why) = bench.complaint().await {
            let text = format!("{network}: {why}");
            if !part.differs.contains(&text) {
                part.differs(text);
            }
        }
        Ok(())
    }

    /// Wrong results have no times. Those of later rounds join the first.
    fn keep(&mut self, network: &'static str, library: &str, all: Vec<Timed>, part: &mut Part) {
        for one in all.iter().filter(|one| !one.is_right) {
            let what = format!("{} on {network} through {library}", name(one));
            part.leave_out(what, "its result was wrong");
        }
        let right = all.into_iter().filter(|one| one.is_right);
        let is_it = |run: &&mut Run| run.network == network && run.library == library;
        let Some(run) = self.runs.iter_mut().find(is_it) else {
            self.runs.push(Run { network, library: library.to_string(), all: right.collect() });
            return;
        };
        for one in right {
            match run.all.iter_mut().find(|before| before.is_same(&one)) {
                Some(before) => before.times_s.extend(one.times_s),
                None => run.all.push(one),
            }
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.runs.iter().all(|run| run.all.is_empty())
    }

    /// Why it cannot be believed.
    pub fn doubt(&self, bench: &Bench) -> Option<String> {
        bench.doubt(self.labs)
    }

    fn libraries(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !all.contains(&run.library.as_str()) {
                all.push(&run.library);
            }
        }
        all
    }

    fn time(&self, network: &str, library: &str, of: &Timed) -> Option<Estimate> {
        let run = self.runs.iter().find(|run| run.network == network && run.library == library)?;
        Some(run.all.iter().find(|one| one.is_same(of))?.typical_s())
    }

    /// Everything that was timed anywhere, once.
    fn things(&self) -> Vec<&Timed> {
        let mut all: Vec<&Timed> = Vec::new();
        for one in self.runs.iter().flat_map(|run| &run.all) {
            if !all.iter().any(|before| before.is_same(one)) {
                all.push(one);
            }
        }
        all
    }

    /// What both networks have through two libraries, divided.
    pub fn divided(&self, wires: [&'static str; 2]) -> Vec<(&Timed, Divided)> {
        let [first, second] = self.libraries()[..] else { return Vec::new() };
        let divide = |one| {
            let over = |wire| Some([self.time(wire, first, one)?, self.time(wire, second, one)?]);
            let times_s = [over(wires[0])?, over(wires[1])?];
            let split = Split::of(times_s)?;
            let libraries = [first, second].map(String::from);
            let (what, source) = (name(one), split.source());
            Some((one, Divided { what, wires, libraries, times_s, split, source }))
        };
        self.things().into_iter().filter_map(divide).collect()
    }

    /// What the wire makes of each thing, by as many libraries as there are.
    pub fn wire(&self, wires: [&'static str; 2]) -> Vec<(&Timed, Estimate)> {
        let of = |one| {
            let through = |library: &&str| {
                Some(quotient(
                    self.time(wires[1], library, one)?,
                    self.time(wires[0], library, one)?,
                ))
            };
            let factors: Vec<Estimate> = self.libraries().iter().filter_map(through).collect();
            (!factors.is_empty()).then(|| (one, mean(&factors)))
        };
        self.things().into_iter().filter_map(of).collect()
    }

    /// Tells all of it; a row for all together comes last if it has a name.
    pub fn tell(&self, part: &mut Part, together: Option<&str>) {
        for wires in PAIRS {
            let rows: Vec<Divided> = self.divided(wires).into_iter().map(|(_, row)| row).collect();
            let last = together.and_then(|what| all_together(&rows, what));
            part.divided.extend(rows);
            part.divided.extend(last);
        }
        if let [_] = self.libraries()[..] {
            for wires in PAIRS {
                for (one, factor) in self.wire(wires) {
                    part.measured(format!(
                        "{}: time over {} by that over {}: {:.2} ({:.2} to {:.2})",
                        name(one),
                        wires[1],
                        wires[0],
                        factor.value,
                        factor.low,
                        factor.high
                    ));
                }
            }
        }
    }
}

/// The mean of all rows; it has no times of its own.
fn all_together(rows: &[Divided], what: &str) -> Option<Divided> {
    let splits: Vec<Split> = rows.iter().map(|row| row.split).collect();
    let split = Split::together(&splits)?;
    let time = |wire: usize, library: usize| {
        mean(&rows.iter().map(|row| row.times_s[wire][library]).collect::<Vec<_>>())
    };
    let times_s = [[time(0, 0), time(0, 1)], [time(1, 0), time(1, 1)]];
    let (wires, libraries) = (rows[0].wires, rows[0].libraries.clone());
    Some(Divided {
        what: what.to_string(),
        wires,
        libraries,
        times_s,
        split,
        source: split.source(),
    })
}

/// What a person reads.
pub fn name(one: &Timed) -> String {
    match one.bytes {
        0 => format!("{}, {} processes", one.what, one.ranks),
        bytes => {
            format!("{}, {} processes, {}", one.what, one.ranks, number(Unit::Bytes, bytes as f64))
        }
    }
}

/// Whether the second network is not slower.
pub fn is_ahead(what: &str, wires: [&str; 2], factor: Estimate) -> Answer {
    let text = format!("{what}: time over {} by that over {}", wires[1], wires[0]);
    is_between(&text, factor, ONE, (0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_tune::papers::Paper;
    use covey_tune::reproduce::Outcome;
    use covey_tune::split::Source;

    fn timed(what: &str, time_s: f64) -> Timed {
        let times_s = vec![time_s; 7];
        Timed { what: what.to_string(), ranks: 4, bytes: 8, is_right: true, times_s }
    }

    /// InfiniBand takes half of Myrinet's time, and the second library twice the first one's.
    fn found(libraries: &[&str]) -> Everywhere {
        let mut found = Everywhere::default();
        let mut part = Part::new(Paper::Kisti, "fig3", "x");
        for (network, wire) in [("myrinet2000", 1.0), ("infiniband-sdr", 0.5)] {
            for (library, slower) in libraries.iter().zip([1.0, 2.0]) {
                let all = ["bcast", "reduce"].map(|what| timed(what, 1e-3 * wire * slower));
                found.keep(network, library, all.to_vec(), &mut part);
            }
        }
        found
    }

    #[test]
    fn a_difference_is_divided_and_told_once_for_all() {
        let mut part = Part::new(Paper::Kisti, "fig3", "x");
        found(&["A", "B"]).tell(&mut part, Some("all"));
        // Two things and all together; of the other pair there is nothing.
        assert_eq!(part.divided.len(), 3);
        for row in &part.divided {
            assert!((row.split.wire.value - 0.5).abs() < 1e-9, "{row:?}");
            assert!((row.split.library.value - 2.0).abs() < 1e-9, "{row:?}");
            assert!(matches!(row.source, Source::WireMore | Source::LibraryMore));
        }
        assert_eq!(part.divided[2].what, "all");
    }

    #[test]
    fn one_library_alone_still_shows_the_wire() {
        let found = found(&["A"]);
        let mut part = Part::new(Paper::Kisti, "fig3", "x");
        found.tell(&mut part, Some("all"));
        assert!(part.divided.is_empty() && part.measured.len() == 2, "{part:?}");
        let factors = found.wire(PAIRS[0]);
        assert!(factors.iter().all(|(_, factor)| (factor.value - 0.5).abs() < 1e-9));
        assert_eq!(is_ahead("x", PAIRS[0], factors[0].1).outcome, Outcome::Holds);
    }

    #[test]
    fn what_is_wrong_has_no_time_and_rounds_join() {
        let mut found = found(&["A"]);
        let mut part = Part::new(Paper::Kisti, "fig3", "x");
        let wrong = Timed { is_right: false, ..timed("alltoall", 1.0) };
        found.keep("myrinet2000", "A", vec![wrong, timed("bcast", 3e-3)], &mut part);
        assert_eq!(part.left_out.len(), 1);
        assert!(part.left_out[0].what.contains("alltoall, 4 processes, 8 B on myrinet2000"));
        assert_eq!(found.runs[0].all[0].times_s.len(), 14);
        assert_eq!(found.things().len(), 2);
    }
}
