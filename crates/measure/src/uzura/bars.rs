//! What the engine is held against, in the same run: floors of the machine and other libraries.

use super::figures::Summary;
use super::floors::SIDES;
use super::served::SOCKET;
use super::what::{Move, Over, Shape, What, size};
use serde::Serialize;

/// What the engine is called among those that are measured.
pub const ENGINE: &str = "Covey";
/// What the provider of libfabric is called, before the library that sends through it.
pub const PROVIDER: &str = "the provider below";
/// Times of a cache line that differ by more than this factor were not taken at the same distance.
const PLACEMENT_FACTOR: f64 = 1.3;

/// A bar.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// Through what.
    pub over: Over,
    /// What is held against it.
    pub what: What,
    /// The limit, in words.
    pub limit: String,
    /// The limit at the best tenth.
    pub limit_ns: f64,
    /// What the engine took at the best tenth.
    pub found_ns: f64,
    /// The share of the limit that the medians take.
    pub median_share: f64,
    /// Whether the engine is within the limit, at the best tenth.
    pub is_met: bool,
    /// Why it may not be comparable.
    pub note: Option<String>,
}

/// Judges what there is: a bar of which a side was not measured is left out.
pub fn judge(all: &[Summary]) -> Vec<Bar> {
    let found = Found(all);
    let mut bars = Vec::new();
    bars.extend(found.line());
    for peer in ["Open MPI", "MPICH"] {
        bars.extend(found.peer(Over::Memory, What::PingPong(8), peer, 1.05));
    }
    for bytes in [64 << 10, 1 << 20] {
        let floor = found.of(Over::Memory, What::Read(bytes));
        let limit = Limit::of(floor, 1.0 / 0.9, "process_vm_readv, 0.9 of its rate");
        bars.extend(found.bar(Judged::ours(Over::Memory, What::PingPong(bytes)), limit));
    }
    bars.extend(found.peer(Over::Memory, What::Stream(64), "Open MPI", 1.0));
    let socket = found.by(Over::Tcp, What::PingPong(64), "a bare socket");
    let limit = Limit::of(socket, 1.1, "a bare socket, polled");
    bars.extend(found.bar(Judged::ours(Over::Tcp, What::PingPong(64)), limit));
    bars.extend(found.peer(Over::Tcp, What::PingPong(8), "Open MPI", 1.05));
    let iperf = found.by(Over::Tcp, What::Stream(1 << 20), "iperf3");
    let limit = Limit::of(iperf, 1.0 / 0.95, "iperf3, 0.95 of its rate");
    bars.extend(found.bar(Judged::ours(Over::Tcp, What::Stream(1 << 20)), limit));
    for file_bytes in [1 << 20, 64 << 20] {
        let what = What::Served(file_bytes);
        let socket = found.by(Over::Memory, what, SOCKET);
        let limit = Limit::of(socket, 1.0 / 1.5, "a unix socket, 1.5 of its rate");
        bars.extend(found.bar(Judged::ours(Over::Memory, what), limit));
    }
    for bytes in [8, 64, 1 << 10] {
        bars.extend(found.provider(Over::Memory, What::PingPong(bytes), 1.15));
    }
    for bytes in [64 << 10, 1 << 20] {
        bars.extend(found.provider(Over::Memory, What::PingPong(bytes), 0.5));
    }
    for bytes in super::peers::MESSAGES_TCP {
        bars.extend(found.provider(Over::Tcp, What::PingPong(bytes), 1.0));
    }
    for side in SIDES {
        for shape in [Shape::Gather, Shape::Scatter] {
            bars.extend(found.matrix(shape, side));
        }
    }
    bars
}

/// What is judged: whose time of what.
#[derive(Clone, Copy)]
struct Judged<'a> {
    who: &'a str,
    over: Over,
    what: What,
}

impl Judged<'_> {
    fn ours(over: Over, what: What) -> Judged<'static> {
        Judged { who: ENGINE, over, what }
    }
}

/// At most the time of a floor, or of a library, times a factor.
#[derive(Clone, Copy)]
struct Limit<'a> {
    against: Option<&'a Summary>,
    factor: f64,
    words: &'a str,
}

impl<'a> Limit<'a> {
    fn of(against: Option<&'a Summary>, factor: f64, words: &'a str) -> Limit<'a> {
        Limit { against, factor, words }
    }
}

struct Found<'a>(&'a [Summary]);

impl Found<'_> {
    fn all(&self, over: Over, what: What) -> impl Iterator<Item = &Summary> {
        self.0.iter().filter(move |one| one.over == over && one.what == what)
    }

    /// The best that is not ours.
    fn of(&self, over: Over, what: What) -> Option<&Summary> {
        let is_ours = |one: &&Summary| one.who == ENGINE || one.who.starts_with(PROVIDER);
        let others = self.all(over, what).filter(|one| !is_ours(one));
        others.min_by(|a, b| a.p10_ns.total_cmp(&b.p10_ns))
    }

    fn by(&self, over: Over, what: What, who: &str) -> Option<&Summary> {
        self.all(over, what).find(|one| one.who.starts_with(who))
    }

    fn bar(&self, judged: Judged<'_>, limit: Limit<'_>) -> Option<Bar> {
        let (Judged { who, over, what }, Limit { against, factor, words }) = (judged, limit);
        let (ours, against) = (self.by(over, what, who)?, against?);
        let limit_ns = against.p10_ns * factor;
        Some(Bar {
            over,
            what,
            limit: format!("{factor:.2} x {words}"),
            limit_ns,
            found_ns: ours.p10_ns,
            median_share: ours.median_ns / (against.median_ns * factor),
            is_met: ours.p10_ns <= limit_ns,
            note: placement(ours, against),
        })
    }

    fn peer(&self, over: Over, what: What, who: &str, factor: f64) -> Option<Bar> {
        let against = self.by(over, what, who);
        self.bar(Judged::ours(over, what), Limit::of(against, factor, &against?.who))
    }

    /// Open MPI through the provider, at most what it takes its own way times a factor.
    fn provider(&self, over: Over, what: What, factor: f64) -> Option<Bar> {
        let against = self.by(over, what, "Open MPI");
        let words = format!("{}, for the provider", against?.who);
        let who = format!("{PROVIDER} Open MPI");
        self.bar(Judged { who: &who, over, what }, Limit::of(against, factor, &words))
    }

    /// 1.25 times what a cache line takes, and 60 ns.
    fn line(&self) -> Option<Bar> {
        let (over, what) = (Over::Memory, What::PingPong(8));
        let ours = self.by(over, what, ENGINE)?;
        let limit_ns = 1.25 * ours.line_ns? + 60.0;
        Some(Bar {
            over,
            what,
            limit: "1.25 x a cache line + 60 ns".into(),
            limit_ns,
            found_ns: ours.p10_ns,
            median_share: ours.median_ns / limit_ns,
            is_met: ours.p10_ns <= limit_ns,
            note: None,
        })
    }

    fn matrix(&self, shape: Shape, side: u64) -> Vec<Bar> {
        let over = Over::Memory;
        let library = |by| self.of(over, What::Matrix(by, shape, side));
        let mapped = self.of(over, What::TransposeMapped(side));
        let (whole, strips) = (What::TransposeRead(side), What::TransposeStrips(side));
        let reads = self.of(over, whole).into_iter().chain(self.of(over, strips));
        let read = reads.min_by(|a, b| a.p10_ns.total_cmp(&b.p10_ns));
        let moves = [
            (Move::Send, Move::Send, 0.45, read, "the kernel's read, transposed"),
            (Move::Get, Move::Get, 0.45, read, "the kernel's read, transposed"),
            (Move::OwnedSend, Move::Send, 1.0 / 3.0, mapped, "mapped memory, transposed"),
            (Move::OwnedGet, Move::OwnedGet, 1.0 / 3.0, mapped, "mapped memory, transposed"),
        ];
        let both = moves.into_iter().map(|(ours, theirs, factor, floor, words)| {
            let (what, best) = (What::Matrix(ours, shape, side), library(theirs));
            let (judged, who) = (Judged::ours(over, what), best.map_or("", |best| &best.who));
            let limits = [Limit::of(best, factor, who), Limit::of(floor, 1.5, words)];
            limits.map(|limit| self.bar(judged, limit))
        });
        both.flatten().flatten().collect()
    }
}

/// Whether the two were measured with the CPUs equally far apart.
fn placement(a: &Summary, b: &Summary) -> Option<String> {
    let (near, far) = (a.line_ns?.min(b.line_ns?), a.line_ns?.max(b.line_ns?));
    (far > PLACEMENT_FACTOR * near).then(|| {
        format!(
            "not comparable: a cache line took {near:.0} ns beside one, {far:.0} beside the other"
        )
    })
}

impl Bar {
    /// What is held against it, in words.
    pub fn words(&self) -> String {
        let over = match self.over {
            Over::Memory => "memory",
            Over::Tcp => "TCP",
        };
        match self.what {
            What::PingPong(bytes) => format!("{over}: {} one way", size(bytes)),
            what => format!("{over}: {}", what.words()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uzura::figures::{Figures, Samples};

    fn all(figures: &[(Over, What, &str, f64, f64)]) -> Vec<Summary> {
        let mut all = Figures::default();
        for &(over, what, who, ns, line) in figures {
            let samples = Samples {
                times_ns: vec![ns; 20],
                line_ns: vec![line],
                operations: 20,
                cpu_ns: 1.0,
            };
            all.add(over, what, who, samples);
        }
        all.summaries()
    }

    #[test]
    fn a_bar_is_met_up_to_its_limit_and_not_beyond() {
        use {Over::Memory, What::PingPong};
        let at = |ns| {
            let bars = judge(&all(&[
                (Memory, PingPong(8), "Covey", ns, 50.0),
                (Memory, PingPong(8), "Open MPI 4.1.4, vader", 200.0, 52.0),
            ]));
            bars.iter().map(|bar| (bar.limit_ns, bar.is_met)).collect::<Vec<_>>()
        };
        assert_eq!(at(122.0), [(122.5, true), (210.0, true)]);
        assert_eq!(at(123.0), [(122.5, false), (210.0, true)]);
        assert_eq!(at(211.0), [(122.5, false), (210.0, false)]);
    }

    #[test]
    fn a_transposition_is_held_against_the_best_library_and_the_floor_of_its_memory() {
        let gather = |by| What::Matrix(by, Shape::Gather, 100);
        let bars = judge(&all(&[
            (Over::Memory, gather(Move::Send), "Covey", 5.0, 50.0),
            (Over::Memory, gather(Move::OwnedSend), "Covey", 2.0, 50.0),
            (Over::Memory, gather(Move::Send), "Open MPI", 27.0, 50.0),
            (Over::Memory, gather(Move::Send), "MPICH", 20.0, 50.0),
            (Over::Memory, What::TransposeMapped(100), "mapped memory", 1.0, 50.0),
            (Over::Memory, What::TransposeRead(100), "process_vm_readv", 6.0, 50.0),
            (Over::Memory, What::TransposeStrips(100), "process_vm_readv", 4.0, 50.0),
        ]));
        let judged: Vec<(f64, bool)> =
            bars.iter().map(|bar| (bar.limit_ns.round(), bar.is_met)).collect();
        assert_eq!(judged, [(9.0, true), (6.0, true), (7.0, true), (2.0, false)]);
    }

    #[test]
    fn a_read_through_shared_memory_takes_two_thirds_of_one_by_a_socket() {
        let what = What::Served(1 << 20);
        let met = |ns| {
            let bars = judge(&all(&[
                (Over::Memory, what, "a unix socket", 120.0, 50.0),
                (Over::Memory, what, "Covey", ns, 50.0),
            ]));
            bars.iter().map(|bar| bar.is_met).collect::<Vec<_>>()
        };
        assert_eq!((met(80.0), met(81.0)), (vec![true], vec![false]));
    }

    #[test]
    fn the_provider_is_held_against_the_library_that_sends_through_it_and_is_no_other() {
        let what = What::PingPong(64 << 10);
        let through = format!("{PROVIDER} Open MPI 4.1.4");
        let met = |ns| {
            let bars = judge(&all(&[
                (Over::Memory, what, "Covey", 3.0, 50.0),
                (Over::Memory, what, "Open MPI 4.1.4, vader", 6.0, 50.0),
                (Over::Memory, what, through.as_str(), ns, 50.0),
            ]));
            bars.iter().map(|bar| (bar.limit_ns, bar.is_met)).collect::<Vec<_>>()
        };
        assert_eq!((met(3.0), met(3.1)), (vec![(3.0, true)], vec![(3.0, false)]));
        let (bytes, ours) = (What::PingPong(8), "the provider below Open MPI 5");
        let tcp = judge(&all(&[
            (Over::Tcp, bytes, "Open MPI 4.1.4, tcp BTL", 5000.0, 50.0),
            (Over::Tcp, bytes, ours, 4000.0, 50.0),
        ]));
        assert_eq!(tcp.iter().map(|bar| bar.is_met).collect::<Vec<_>>(), [true]);
    }

    #[test]
    fn what_was_measured_at_another_distance_is_marked() {
        use {Over::Memory, What::PingPong};
        let bars = judge(&all(&[
            (Memory, PingPong(8), "Covey", 100.0, 45.0),
            (Memory, PingPong(8), "MPICH 4.0.2, memory", 400.0, 230.0),
        ]));
        assert_eq!(bars[0].note, None);
        assert!(bars[1].note.as_ref().unwrap().contains("45 ns beside one, 230"));
        assert!(judge(&[]).is_empty(), "nothing is judged that was not measured");
    }
}
