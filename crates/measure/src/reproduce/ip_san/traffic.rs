//! The characteristics of the traffic: what went over each cable in each phase of a run, by class.
//!
//! The lab's keeper counts frames of storage apart from all others. Its counters are read again and again while BTIO runs; the
//! program says when each phase began, by the same clock; between two readings frames are taken to be spread evenly.

use super::disks::{Disk, Disks, NODES, Net, Place, Wish};
use super::part;
use super::runs::{Case, Solved, disk_bytes, library, solve};
use crate::btio::{Class, Extras, Io, Phase};
use crate::error::Result;
use crate::reproduce::bench::Bench;
use crate::reproduce::drawn::{Axis, CableWay, Carried, Figure, Line, PhaseBytes, Traffic};
use crate::reproduce::told::{Part, reason};
use crate::stop::Stop;
use covey_lab::control::status;
use covey_lab::fabric::Counts;
use covey_lab::plan::{End, Plan};
use covey_lab::state::Lab;
use covey_tune::reproduce::Unit;
use rustix::time::{ClockId, clock_gettime};
use std::thread::JoinHandle;
use std::time::Duration;

/// From one reading of the counters to the next: a run of class S is over in a quarter of a second, and reads back in
/// some milliseconds.
const fn between_looks(class: Class) -> Duration {
    Duration::from_millis(if matches!(class, Class::S) { 10 } else { 100 })
}
/// The phases that are shown, in their order.
const PHASES: [&str; 4] = ["steps", "output", "settle", "read"];

/// What is looked at: 1:1 as in the paper, apart, many at one target, and one file of all.
const RUNS: [(Io, Place); 4] = [
    (Io::Epio, Place::shared(Disk::OneToOne)),
    (Io::Epio, Place { disk: Disk::OneToOne, net: Net::Separate }),
    (Io::Epio, Place::shared(Disk::ManyToOne)),
    (Io::Simple, Place::shared(Disk::Striped)),
];

/// Runs and counts.
pub async fn phases(bench: &mut Bench, classes: &[Class]) -> Part {
    let mut part = part("traffic", "what goes over each cable in each phase, by class");
    let class = classes.last().copied().unwrap_or(Class::W);
    if let Err(error) = measured(bench, &mut part, class).await {
        part.leave_out("what is not here", reason(&error));
    }
    part.doubt(bench.doubt(1));
    part.measured(
        "phases: `steps` are computed, with the messages that this takes; `output` is in the calls that write; `settle` is from the \
         last of these until all is on the disks; `read` reads back and checks",
    );
    part.differs(
        "storage is every TCP connection with port 5640 or 3260 at an end, messages are all else; bytes are those on the wire, with \
         what a frame has beside its contents. What a node's cache holds back of an output travels while the next steps are \
         computed",
    );
    part
}

async fn measured(bench: &mut Bench, part: &mut Part, class: Class) -> Result<()> {
    let mpi = library()?;
    let wish = Wish {
        places: RUNS.iter().map(|(_, place)| *place).collect(),
        nodes: NODES,
        bytes: disk_bytes(std::iter::once(class)),
        can_pace: false,
    };
    let disks = Disks::up(bench, &wish).await?;
    for (io, place) in RUNS {
        let case = Case { is_cold: place.disk != Disk::Striped, ..Case::new(class, io, place) };
        let looker = Looker::begin(bench.now()?.clone(), between_looks(class));
        let extras = Extras { tells_phases: true, ..Extras::default() };
        let solved = solve(bench, &disks, &mpi, &case, extras).await;
        let looks = looker.end();
        match solved {
            Ok(solved) => tell(part, &bench.now()?.plan()?, (&case, &solved), &looks),
            Err(error) => part.fail(case.words(), &error),
        }
        bench.say(format!("  {}: {} readings of the counters", case.words(), looks.len()));
    }
    if let Some(why) = bench.complaint().await {
        part.differs(why);
    }
    disks.down(bench).await
}

fn tell(part: &mut Part, plan: &Plan, (case, solved): (&Case, &Solved), looks: &[Look]) {
    let ways = divide(plan, looks, &solved.phases);
    let groups = groups(plan);
    let curves = curves(looks, &solved.phases, &groups);
    part.figures.push(Figure {
        id: format!("traffic-{}", part.figures.len() + 1),
        title: format!("Traffic of {}", case.words()),
        about: "Bytes in each second on the cables of the four nodes that compute, together, from the first step on.".into(),
        x: Axis { name: "Time".into(), unit: Some(Unit::Seconds), is_log: false },
        y: Axis { name: "Rate".into(), unit: Some(Unit::BytesPerS), is_log: false },
        lines: curves,
    });
    let sums = groups.iter().filter_map(|group| sum(group, &ways)).collect();
    part.traffic.push(Traffic { of: case.words(), sums, ways });
}

/// A reading of all counters.
#[derive(Clone, Debug)]
struct Look {
    /// In seconds of the monotonic clock.
    at_s: f64,
    /// Of every cable, there and back.
    cables: Vec<[Counts; 2]>,
}

/// Who reads them.
struct Looker {
    stop: Stop,
    thread: Option<JoinHandle<Vec<Look>>>,
}

impl Looker {
    fn begin(lab: Lab, pause: Duration) -> Looker {
        let stop = Stop::default();
        let theirs = stop.clone();
        let look = move || {
            let mut looks = Vec::new();
            while !theirs.is_asked() {
                looks.extend(look(&lab));
                std::thread::sleep(pause);
            }
            looks.extend(look(&lab));
            looks
        };
        // Without it there are no readings, which the tables then show.
        let thread = std::thread::Builder::new().name("counters".into()).spawn(look).ok();
        Looker { stop, thread }
    }

    fn end(self) -> Vec<Look> {
        self.stop.ask();
        self.thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

fn look(lab: &Lab) -> Option<Look> {
    let before = now_s();
    let status = status(lab).ok()?;
    let at_s = f64::midpoint(before, now_s());
    let cables = status.cables.iter().map(|cable| [0, 1].map(|way| cable.ways[way].counts));
    Some(Look { at_s, cables: cables.collect() })
}

fn now_s() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Frames and bytes: of messages, of storage.
type Both = [(f64, f64); 2];

fn both(counts: &Counts) -> Both {
    let [frames, bytes] =
        [counts.frames - counts.storage_frames, counts.bytes - counts.storage_bytes];
    [(frames as f64, bytes as f64), (counts.storage_frames as f64, counts.storage_bytes as f64)]
}

fn minus(one: Both, other: Both) -> Both {
    [0, 1].map(|class| (one[class].0 - other[class].0, one[class].1 - other[class].1))
}

fn times(one: Both, part: f64) -> Both {
    one.map(|(frames, bytes)| (frames * part, bytes * part))
}

/// The pieces of a phase: from one time to another.
fn pieces<'a>(phases: &'a [Phase], name: &'a str) -> impl Iterator<Item = (f64, f64)> + 'a {
    let ended = phases.windows(2).map(|pair| (&pair[0], pair[1].begin_s));
    ended.filter(move |(phase, _)| phase.name == name).map(|(phase, end_s)| (phase.begin_s, end_s))
}

/// What a way carried in the pieces of a phase, and the greatest rates of both classes while it lasted.
fn carried(
    looks: &[Look],
    phases: &[Phase],
    name: &str,
    (cable, way): (usize, usize),
) -> PhaseBytes {
    let mut sum = PhaseBytes { phase: name.to_owned(), ..PhaseBytes::default() };
    for (begin, end) in pieces(phases, name) {
        sum.seconds += end - begin;
        for pair in looks.windows(2) {
            let (from, to) = (pair[0].at_s, pair[1].at_s);
            let (shared, length) = (to.min(end) - from.max(begin), to - from);
            if shared <= 0.0 || length <= 0.0 {
                continue;
            }
            let moved = minus(both(&pair[1].cables[cable][way]), both(&pair[0].cables[cable][way]));
            let mine = times(moved, shared / length);
            for (class, carried) in [&mut sum.messages, &mut sum.storage].into_iter().enumerate() {
                carried.frames += mine[class].0;
                carried.bytes += mine[class].1;
                carried.peak_bytes_per_s = carried.peak_bytes_per_s.max(moved[class].1 / length);
            }
        }
    }
    sum
}

/// One way of every cable, where anything moved.
fn divide(plan: &Plan, looks: &[Look], phases: &[Phase]) -> Vec<CableWay> {
    let mut ways = Vec::new();
    for (at, cable) in plan.cables.iter().enumerate() {
        for (way, end) in cable.ends.into_iter().enumerate() {
            let phases: Vec<PhaseBytes> =
                PHASES.iter().map(|name| carried(looks, phases, name, (at, way))).collect();
            if phases.iter().any(|one| one.messages.bytes + one.storage.bytes > 0.0) {
                let (cable, from) = (cable.name.clone(), plan.end_name(end).to_string());
                ways.push(CableWay { cable, from, phases });
            }
        }
    }
    ways
}

/// Cables that do the same.
struct Group {
    /// `n1 to n4, front`.
    name: String,
    /// Their indices, each with the way from its node.
    cables: Vec<(usize, usize)>,
    /// Their names.
    names: Vec<String>,
    /// Whether their nodes compute.
    computes: bool,
}

/// The cables of the nodes that compute, and of those that store, in each network.
fn groups(plan: &Plan) -> Vec<Group> {
    let mut groups = Vec::new();
    for (network, known) in plan.networks.iter().enumerate() {
        for (first, computes) in [(0, true), (NODES, false)] {
            let mut group = Group {
                name: format!("n{} to n{}, {}", first + 1, first + NODES, known.name),
                cables: Vec::new(),
                names: Vec::new(),
                computes,
            };
            for (at, cable) in
                plan.cables.iter().enumerate().filter(|(_, one)| one.network == network)
            {
                let way = cable.ends.iter().position(|end| match end {
                    End::Card(card) => (first..first + NODES).contains(&plan.cards[*card].node),
                    End::Switch(_) => false,
                });
                if let Some(way) = way {
                    group.cables.push((at, way));
                    group.names.push(cable.name.clone());
                }
            }
            groups.push(group);
        }
    }
    groups
}

/// What all cables of a group carried from their nodes and to them: two ways, or none. The greatest rate is that of one cable.
fn sum(group: &Group, ways: &[CableWay]) -> Option<[CableWay; 2]> {
    let is_mine = |way: &&CableWay| group.names.contains(&way.cable);
    if !ways.iter().any(|way| is_mine(&way)) {
        return None;
    }
    let all = [true, false].map(|is_from_node| {
        let mut phases: Vec<PhaseBytes> = PHASES
            .iter()
            .map(|name| PhaseBytes { phase: (*name).to_owned(), ..PhaseBytes::default() })
            .collect();
        let from = |way: &&CableWay| way.from.starts_with('n') == is_from_node;
        for way in ways.iter().filter(is_mine).filter(from) {
            for (sum, one) in phases.iter_mut().zip(&way.phases) {
                sum.seconds = one.seconds;
                add(&mut sum.messages, &one.messages);
                add(&mut sum.storage, &one.storage);
            }
        }
        let from = if is_from_node { "the nodes" } else { "the switch" };
        CableWay { cable: group.name.clone(), from: from.to_owned(), phases }
    });
    Some(all)
}

fn add(sum: &mut Carried, one: &Carried) {
    sum.frames += one.frames;
    sum.bytes += one.bytes;
    sum.peak_bytes_per_s = sum.peak_bytes_per_s.max(one.peak_bytes_per_s);
}

/// Rates over time of the nodes that compute.
fn curves(looks: &[Look], phases: &[Phase], groups: &[Group]) -> Vec<Line> {
    let begin =
        phases.iter().find(|phase| phase.name == PHASES[0]).map_or(0.0, |phase| phase.begin_s);
    let end = phases.last().map_or(f64::MAX, |phase| phase.begin_s);
    let cables: Vec<(usize, usize)> = groups
        .iter()
        .filter(|group| group.computes)
        .flat_map(|group| &group.cables)
        .copied()
        .collect();
    let total = |look: &Look, other: bool| {
        let counts = cables
            .iter()
            .map(|(cable, way)| both(&look.cables[*cable][if other { 1 - way } else { *way }]));
        counts.fold(Both::default(), |sum, one| minus(sum, times(one, -1.0)))
    };
    let line = |name: &str, class: usize, other: bool| {
        let within = looks.windows(2).filter(|pair| pair[0].at_s >= begin && pair[0].at_s <= end);
        let points = within.map(|pair| {
            let moved = minus(total(&pair[1], other), total(&pair[0], other));
            let (from, to) = (pair[0].at_s, pair[1].at_s);
            (f64::midpoint(from, to) - begin, moved[class].1 / (to - from))
        });
        Line { name: name.to_owned(), points: points.collect(), is_theirs: false }
    };
    vec![
        line("messages, sent", 0, false),
        line("storage, written", 1, false),
        line("storage, read", 1, true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_lab::fabric::Deal;
    use covey_lab::plan::{Topology, Wish as LabWish};
    use covey_lab::profile::Profile;

    fn plan() -> Plan {
        let link = Profile::named("gigabit").unwrap();
        let (topology, deal) = (Topology::Switch, Deal::Flow);
        let storage_link = Some(link.clone());
        Plan::new(&LabWish { nodes: 8, topology, deal, link, storage_link, seed: 1 }).unwrap()
    }

    fn phase(name: &str, begin_s: f64) -> Phase {
        Phase { name: name.to_owned(), begin_s }
    }

    /// In each second the first cable's first way carries a message of 100 bytes and ten frames of storage of 1000.
    fn looks(cables: usize) -> Vec<Look> {
        let counts = |second: u64| Counts {
            frames: 11 * second,
            bytes: 10_100 * second,
            storage_frames: 10 * second,
            storage_bytes: 10_000 * second,
            ..Counts::default()
        };
        let at = |second: u64| {
            let mut all = vec![[Counts::default(); 2]; cables];
            all[0][0] = counts(second);
            Look { at_s: second as f64, cables: all }
        };
        (0..=10).map(at).collect()
    }

    #[test]
    fn bytes_are_divided_among_the_phases_by_time() {
        let plan = plan();
        let phases = [
            phase("steps", 1.0),
            phase("output", 2.5),
            phase("steps", 3.0),
            phase("settle", 5.0),
            phase("read", 6.0),
            phase("end", 8.0),
        ];
        let ways = divide(&plan, &looks(plan.cables.len()), &phases);
        assert_eq!(ways.len(), 1);
        assert_eq!((ways[0].cable.as_str(), ways[0].from.as_str()), ("n1-sw1", "n1"));
        let found: Vec<(f64, f64, f64)> = ways[0]
            .phases
            .iter()
            .map(|one| (one.seconds, one.messages.bytes.round(), one.storage.bytes.round()))
            .collect();
        assert_eq!(
            found,
            [
                (3.5, 350.0, 35_000.0),
                (0.5, 50.0, 5_000.0),
                (1.0, 100.0, 10_000.0),
                (2.0, 200.0, 20_000.0)
            ]
        );
        let storage = ways[0].phases[0].storage;
        assert_eq!(
            (storage.frame_bytes().unwrap().round(), storage.peak_bytes_per_s),
            (1000.0, 10_000.0)
        );
    }

    #[test]
    fn cables_of_a_kind_are_added_up() {
        let plan = plan();
        let groups = groups(&plan);
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(
            names,
            ["n1 to n4, front", "n5 to n8, front", "n1 to n4, storage", "n5 to n8, storage"]
        );
        assert!(groups.iter().all(|group| group.cables.len() == NODES));
        let phases = [phase("steps", 0.0), phase("end", 10.0)];
        let looks = looks(plan.cables.len());
        let ways = divide(&plan, &looks, &phases);
        let [from, to] = sum(&groups[0], &ways).unwrap();
        assert!((from.phases[0].storage.bytes - 100_000.0).abs() < 1.0);
        assert!(to.phases[0].storage.bytes.abs() < 1e-9 && sum(&groups[1], &ways).is_none());
        let curves = curves(&looks, &phases, &groups);
        assert_eq!(curves[1].points.len(), 10);
        assert!(curves[1].points.iter().all(|(_, rate)| (rate - 10_000.0).abs() < 1e-6));
    }
}
