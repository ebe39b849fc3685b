//! BTIO on the nodes of a lab, run once for all parts that need it.

use super::disks::{Disk, Disks, NODES, Place, Wish};
use crate::btio::{self, Class, Extras, Io, Phase, Run};
use crate::error::{Error, Result};
use crate::mpi::{self, Library, Mpi};
use crate::reproduce::bench::{Bench, Wish as How};
use crate::reproduce::told::{Part, reason};
use covey_tune::Estimate;
use covey_tune::papers::ip_san::{mops, written_bytes};

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The size.
    pub class: Class,
    /// How the solution is written.
    pub io: Io,
    /// So many nodes compute, with a process each.
    pub nodes: usize,
    /// Where it is written.
    pub place: Place,
    /// Read back from the disk, not from the nodes' caches.
    pub is_cold: bool,
}

impl Case {
    /// On all nodes.
    pub fn new(class: Class, io: Io, place: Place) -> Case {
        Case { class, io, nodes: NODES, place, is_cold: false }
    }

    /// In words.
    pub fn words(&self) -> String {
        let nodes = if self.nodes == 1 { ", 1 node" } else { "" };
        format!("class {}, {}, {}{nodes}", self.class.letter(), self.io.word(), self.place.words())
    }
}

/// What one run brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Solved {
    /// All steps with their output.
    pub seconds: f64,
    /// Output alone.
    pub io_seconds: f64,
    /// Reading back.
    pub read_seconds: f64,
    /// When each phase began.
    pub phases: Vec<Phase>,
}

/// What was run.
#[derive(Debug, Default)]
pub struct Runs {
    found: Vec<(Case, Vec<Solved>)>,
    /// Why what was run last cannot be believed.
    doubt: Option<String>,
}

/// How often a case is run: short ones more often.
pub fn rounds(how: &How, class: Class) -> usize {
    match class {
        _ if how.is_quick => 2,
        Class::S | Class::W => 5,
        Class::A => 2,
        Class::B | Class::C => 1,
    }
}

/// A disk that holds what a node may write of any of these classes, and its file system.
pub fn disk_bytes(classes: impl Iterator<Item = Class>) -> u64 {
    let bytes = |class: Class| written_bytes(class.side() as u32, class.steps());
    let most = classes.map(bytes).max().unwrap_or(0);
    // Also when all is written by one node.
    (most + most / 4 + (96 << 20)).next_multiple_of(16 << 20)
}

/// Open MPI where there is one: with more processes than processors it is several times as fast as MPICH.
pub fn library() -> Result<Mpi> {
    let found = mpi::choose(Some(Library::Openmpi)).or_else(|_| mpi::choose(None))?;
    found.into_iter().next().ok_or_else(|| Error::work("no MPI is installed"))
}

impl Runs {
    /// Runs those that were not run yet, in rounds: what changes with time changes for all alike.
    pub async fn measure(&mut self, bench: &mut Bench, part: &mut Part, cases: &[Case]) {
        let missing: Vec<Case> =
            cases.iter().filter(|case| self.of(case).is_none()).copied().collect();
        if missing.is_empty() {
            part.doubt(self.doubt.clone());
            return;
        }
        let result = self.in_lab(bench, part, &missing).await;
        if let Err(error) = result {
            part.leave_out("what is not here", reason(&error));
        }
        self.doubt = bench.doubt(1);
        part.doubt(self.doubt.clone());
    }

    async fn in_lab(&mut self, bench: &mut Bench, part: &mut Part, cases: &[Case]) -> Result<()> {
        let mpi = library()?;
        let mut places: Vec<Place> = Vec::new();
        for case in cases {
            if !places.contains(&case.place) {
                places.push(case.place);
            }
        }
        let wish = Wish {
            places,
            nodes: cases.iter().map(|case| case.nodes).max().unwrap_or(NODES),
            bytes: disk_bytes(cases.iter().map(|case| case.class)),
            can_pace: false,
        };
        let disks = Disks::up(bench, &wish).await?;
        part.differs(format!("the library is {}; the paper's is MPICH2 1.0.3", mpi.name));
        let how = bench.wish;
        let most = cases.iter().map(|case| rounds(&how, case.class)).max().unwrap_or(0);
        for round in 0..most {
            for case in cases.iter().filter(|case| round < rounds(&how, case.class)) {
                match solve(bench, &disks, &mpi, case, Extras::default()).await {
                    Ok(solved) => {
                        bench.say(format!("  {}: {:.2} s", case.words(), solved.seconds));
                        self.keep(case, solved);
                    }
                    Err(error) => part.fail(case.words(), &error),
                }
            }
        }
        if let Some(why) = bench.complaint().await {
            part.differs(why);
        }
        disks.down(bench).await
    }

    /// Notes a run.
    pub fn keep(&mut self, case: &Case, solved: Solved) {
        match self.found.iter_mut().find(|(one, _)| one == case) {
            Some((_, all)) => all.push(solved),
            None => self.found.push((*case, vec![solved])),
        }
    }

    fn of(&self, case: &Case) -> Option<&[Solved]> {
        self.found.iter().find(|(one, _)| one == case).map(|(_, all)| all.as_slice())
    }

    fn estimate(&self, case: &Case, of: fn(&Solved) -> f64) -> Option<Estimate> {
        Some(Estimate::of_median(self.of(case)?.iter().map(of).collect()))
    }

    /// Seconds of all steps with their output.
    pub fn seconds(&self, case: &Case) -> Option<Estimate> {
        self.estimate(case, |solved| solved.seconds)
    }

    /// Seconds of output.
    pub fn io_seconds(&self, case: &Case) -> Option<Estimate> {
        self.estimate(case, |solved| solved.io_seconds)
    }

    /// Seconds of reading back.
    pub fn read_seconds(&self, case: &Case) -> Option<Estimate> {
        self.estimate(case, |solved| solved.read_seconds)
    }

    /// Operations per second.
    pub fn rate(&self, case: &Case) -> Option<Estimate> {
        let seconds = self.seconds(case)?;
        let rate = |seconds| 1e6 * mops(case.class.side() as u32, case.class.steps(), seconds);
        let (value, low, high) = (rate(seconds.value), rate(seconds.high), rate(seconds.low));
        Some(Estimate { value, low, high })
    }

    /// Why no claim can be judged by these cases.
    pub fn doubt(&self, cases: &[Case]) -> Option<String> {
        let is_once = |case: &Case| self.of(case).is_some_and(|all| all.len() < 2);
        let once = cases.iter().any(is_once).then(|| "it was run only once".to_owned());
        self.doubt.clone().or(once)
    }
}

/// Runs a case once. It says whether it is read back from the disk.
pub async fn solve(
    bench: &mut Bench,
    disks: &Disks,
    mpi: &Mpi,
    case: &Case,
    extras: Extras,
) -> Result<Solved> {
    let dir = disks.dir_of(case.place);
    let plan = btio::Plan {
        class: case.class,
        ranks: case.nodes,
        ios: vec![case.io],
        mpi: None,
        hosts: disks.hosts(bench, case.nodes)?,
        place: btio::Place::Directory(dir.clone()),
        extras: Extras { is_cold: case.is_cold, ..extras },
    };
    // The first process creates the file; on disks that are not common each node needs its own.
    let file = dir.join(format!("btio.{}.out", case.io.word())).display().to_string();
    let is_apart = case.place.disk != Disk::Striped && case.io != Io::Epio;
    if is_apart {
        on_each(bench, case.nodes, &["touch", &file]).await?;
    }
    let (mpi, io) = (mpi.clone(), case.io);
    let ran = bench.work(move |stop| btio::run(&plan, &mpi, io, stop, &|_| {})).await;
    if is_apart {
        on_each(bench, case.nodes, &["rm", "-f", &file]).await?;
    }
    solved(case, &ran?)
}

async fn on_each(bench: &mut Bench, nodes: usize, words: &[&str]) -> Result<()> {
    for node in 1..=nodes {
        bench.on(&format!("n{node}"), words).await?;
    }
    Ok(())
}

/// A wrong solution has no time. The program writes its time with two digits, its rate with more.
fn solved(case: &Case, run: &Run) -> Result<Solved> {
    if !run.is_verified {
        return Err(Error::work("its norms are not NASA's"));
    }
    let exactly = mops(case.class.side() as u32, case.class.steps(), 1.0) / run.mops;
    Ok(Solved {
        seconds: if exactly.is_finite() { exactly } else { run.seconds },
        io_seconds: match (run.io_mb, run.io_mb_per_s) {
            (Some(mega), Some(rate)) if rate > 0.0 => mega / rate,
            _ => run.io_seconds.unwrap_or(0.0),
        },
        read_seconds: run.read_seconds.unwrap_or(0.0),
        phases: run.phases.clone(),
    })
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// A run that took so long.
    pub fn took(seconds: f64) -> Solved {
        Solved {
            seconds,
            io_seconds: seconds / 10.0,
            read_seconds: seconds / 20.0,
            phases: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::took;
    use super::*;

    #[test]
    fn rates_are_those_of_the_times() {
        let case = Case::new(Class::B, Io::Epio, Place::LOCAL);
        let mut runs = Runs::default();
        assert!(runs.seconds(&case).is_none());
        runs.keep(&case, took(585.0));
        assert_eq!(runs.doubt(&[case]).as_deref(), Some("it was run only once"));
        runs.keep(&case, took(610.0));
        assert_eq!(runs.doubt(&[case]), None);
        let rate = runs.rate(&case).unwrap();
        assert!((rate.high / 1e6 - 1200.3).abs() < 0.1 && (rate.low / 1e6 - 1151.1).abs() < 0.1);
    }

    #[test]
    fn a_disk_holds_what_one_node_may_write() {
        let bytes = disk_bytes([Class::S, Class::A].into_iter());
        assert!(bytes > 419_430_400 * 5 / 4 && bytes.is_multiple_of(512), "{bytes}");
    }

    #[test]
    fn a_wrong_solution_has_no_time() {
        let run = Run {
            mpi: String::new(),
            io: Io::Epio,
            is_verified: false,
            seconds: 1.0,
            mops: 1.0,
            io_seconds: None,
            io_mb: None,
            io_mb_per_s: None,
            read_seconds: None,
            sum: None,
            calls: None,
            phases: Vec::new(),
            said: String::new(),
        };
        let case = Case::new(Class::S, Io::Epio, Place::LOCAL);
        assert!(solved(&case, &run).unwrap_err().message.contains("NASA"));
        let right = Run { is_verified: true, mops: 50.0, ..run };
        let seconds = solved(&case, &right).unwrap().seconds;
        assert!((mops(12, 60, seconds) - 50.0).abs() < 1e-9);
    }
}
