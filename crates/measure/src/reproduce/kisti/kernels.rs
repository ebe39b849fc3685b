//! Figure 5: BT of the NAS Parallel Benchmarks, and kernels that communicate in place of the others.

use super::linpack::Challenges;
use super::networks::{Everywhere, NODES, ONE, PAIRS, everywhere, name};
use super::part;
use crate::btio::{self, Class, Extras, Io, Place};
use crate::calls::{Calls, Ran};
use crate::error::Result;
use crate::hosts::Hosts;
use crate::mpi::Mpi;
use crate::reproduce::bench::Bench;
use crate::reproduce::told::{Divided, Part};
use crate::stop::Stop;
use covey_tune::Estimate;
use covey_tune::papers::ip_san::mops;
use covey_tune::reproduce::{Answer, Outcome, is_between, quotient};
use covey_tune::split::Source;
use covey_tune::timed::Timed;

/// What hardly communicates.
const ALONE: &str = "ep";
/// So much is hardly a difference.
const HARDLY: (f64, f64) = (0.95, 1.05);

/// Measures and judges. What hpcc has said of its own programs on these networks is told as well.
pub async fn networks(bench: &mut Bench, challenges: &mut Challenges) -> Part {
    let mut part = part(
        "fig5",
        "BT and kernels that communicate, on three networks; the figure's values are lost",
    );
    let found = everywhere(bench, &mut part, measure).await;
    if !found.is_empty() {
        found.tell(&mut part, Some("all of them, on average"));
        judge(bench, &mut part, &found);
    }
    challenges.tell_programs(bench, &mut part).await;
    part.differs(
        "the NAS Parallel Benchmarks are not packaged. bt is Covey's own program of BT, judged by NASA's norms; ep, cg, ft and \
         is are small kernels of our own that communicate as those of these names do: one sum; a vector gathered and two sums in each step; a \
         plane transposed; keys exchanged. Each result is checked",
    );
    part
}

fn judge(bench: &Bench, part: &mut Part, found: &Everywhere) {
    let doubt = found.doubt(bench);
    let wires = found.wire(PAIRS[0]);
    if let Some((one, factor)) = wires.iter().find(|(one, _)| one.what == ALONE) {
        let what = format!("{}: time over {} by that over {}", name(one), PAIRS[0][1], PAIRS[0][0]);
        let answer = is_between(&what, *factor, ONE, HARDLY);
        part.judge("hardly differ", answer.unless(doubt.as_deref()));
        if factor.low > 1.0 || factor.high < 1.0 {
            part.differs(format!(
                "{ALONE} hardly communicates, and yet it differs by a factor of {:.2}: so much of any difference here is the \
                 machine's own unrest",
                factor.value
            ));
        }
    }
    let rows: Vec<Divided> = found.divided(PAIRS[0]).into_iter().map(|(_, row)| row).collect();
    if !rows.is_empty() {
        part.judge("because of its MPI", because_of_library(&rows).unless(doubt.as_deref()));
    }
}

/// Whether something is slower over InfiniBand with one library than over Myrinet with the other, and the library makes
/// it so. Which of ours stands for which of the paper's is not known, so either may be on InfiniBand.
fn because_of_library(rows: &[Divided]) -> Answer {
    let mut said = Vec::new();
    let (mut is_seen, mut is_open) = (false, false);
    for row in rows {
        let [[first, other], [second, last]] = row.times_s;
        let [a, b] = &row.libraries;
        for (whole, mine, its) in [(quotient(last, first), b, a), (quotient(second, other), a, b)] {
            is_open |= whole.low <= 1.0 && whole.high >= 1.0;
            if whole.low > 1.0 {
                is_seen |= matches!(row.source, Source::Library | Source::LibraryMore);
                said.push(format!(
                    "{} takes {} over {} with {mine} by {} with {its}, which comes from {}",
                    row.what,
                    times(whole),
                    row.wires[1],
                    row.wires[0],
                    row.source.words()
                ));
            }
        }
    }
    let outcome = match (is_seen, is_open || !said.is_empty()) {
        (true, _) => Outcome::Holds,
        (false, true) => Outcome::NotShown,
        (false, false) => Outcome::DoesNotHold,
    };
    if said.is_empty() {
        Answer::new(outcome, "nothing is slower over InfiniBand whichever library runs on it")
    } else {
        Answer::new(outcome, said.join("; "))
    }
}

fn times(factor: Estimate) -> String {
    format!("{:.2} times ({:.2} to {:.2})", factor.value, factor.low, factor.high)
}

fn measure(mpi: &Mpi, hosts: &Hosts, is_quick: bool, stop: &Stop) -> Result<Ran> {
    let (calls, seconds) = if is_quick {
        (Calls::Kernels { pairs: 1 << 18, unknowns: 1 << 14, edge: 256, keys: 1 << 18 }, 0.5)
    } else {
        (Calls::Kernels { pairs: 1 << 22, unknowns: 1 << 17, edge: 1024, keys: 1 << 21 }, 4.0)
    };
    let mut ran = calls.time(mpi, (hosts, NODES), seconds, stop)?;
    let (class, times) = if is_quick { (Class::S, 1) } else { (Class::W, 2) };
    match bt(mpi, hosts, (class, times), stop) {
        Ok(timed) => ran.all.push(timed),
        Err(error) => ran.failure = ran.failure.or(Some(format!("bt: {}", error.message))),
    }
    Ok(ran)
}

/// BT without output: all its steps, so many times.
fn bt(mpi: &Mpi, hosts: &Hosts, (class, times): (Class, usize), stop: &Stop) -> Result<Timed> {
    let plan = btio::Plan {
        class,
        ranks: NODES,
        ios: vec![Io::None],
        mpi: None,
        hosts: hosts.clone(),
        place: Place::Directory(std::env::temp_dir()),
        extras: Extras::default(),
    };
    let runs = (0..times).map(|_| btio::run(&plan, mpi, Io::None, stop, &|_| {}));
    let runs: Vec<btio::Run> = runs.collect::<Result<_>>()?;
    // What the program writes of the time has two digits only; of the rate, more.
    let seconds = |run: &btio::Run| mops(class.side() as u32, class.steps(), 1.0) / run.mops;
    Ok(Timed {
        what: "bt".to_string(),
        ranks: NODES as u32,
        bytes: 0,
        is_right: runs.iter().all(|run| run.is_verified),
        times_s: runs.iter().map(seconds).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_tune::split::Split;

    fn row(wire: f64, library: f64) -> Divided {
        let about = |value: f64| Estimate { value, low: 0.99 * value, high: 1.01 * value };
        let times_s = [1.0, wire].map(|wire| [1.0, library].map(|library| about(wire * library)));
        let split = Split::of(times_s).unwrap();
        Divided {
            what: "cg".to_string(),
            wires: PAIRS[0],
            libraries: ["A".to_string(), "B".to_string()],
            times_s,
            split,
            source: split.source(),
        }
    }

    #[test]
    fn a_faster_wire_that_loses_by_its_library_is_found() {
        // A fifth faster, but the library twice as slow.
        let answer = because_of_library(&[row(0.8, 2.0), row(0.8, 1.0)]);
        assert_eq!(answer.outcome, Outcome::Holds);
        assert!(answer.because.contains("both, the library more"), "{answer:?}");
        // The library may be on the other network.
        assert_eq!(because_of_library(&[row(0.8, 0.5)]).outcome, Outcome::Holds);
        assert_eq!(because_of_library(&[row(0.8, 1.1)]).outcome, Outcome::DoesNotHold);
        assert_eq!(because_of_library(&[row(1.0, 1.0)]).outcome, Outcome::NotShown);
        // Slower, but by the wire: that is not what was claimed.
        assert_eq!(because_of_library(&[row(1.5, 1.0)]).outcome, Outcome::NotShown);
    }
}
