//! Figures 8 to 15: BTIO's times and rates, by disk and network, by way of writing, by number of nodes.

use super::disks::{Disk, Net, Place};
use super::part;
use super::runs::{Case, Runs};
use crate::btio::{Class, Io};
use crate::reproduce::bench::Bench;
use crate::reproduce::drawn::{Axis, Figure, Line};
use crate::reproduce::told::{Part, number};
use covey_tune::Estimate;
use covey_tune::papers::ip_san;
use covey_tune::reproduce::{Answer, Beside, Unit, is_between, quotient};

/// What "no great difference" is: a tenth, to either side.
const ALIKE: (f64, f64) = (0.9, 1.1);
/// What "hardly slower" is: the paper's 610 s are 1.043 times its 585.
const HARDLY: (f64, f64) = (0.0, 1.1);
/// What "without loss" is.
const WITHOUT_LOSS: (f64, f64) = (0.0, 1.05);
const LONGER: (f64, f64) = (1.0, f64::INFINITY);
const ONE_TO_ONE: Place = Place::shared(Disk::OneToOne);
const STRIPED: Place = Place::shared(Disk::Striped);

/// Figures 8 and 9: every disk, by one network and by two.
pub async fn disks(bench: &mut Bench, runs: &mut Runs, classes: &[Class]) -> Part {
    let mut part = part(
        "fig8-9",
        "BTIO epio on four nodes: each disk, messages and storage on one network or on two",
    );
    let cases = cases(classes, &[Io::Epio], &Place::all());
    runs.measure(bench, &mut part, &cases).await;
    show(&mut part, runs, &cases, "figures 8 and 9");
    judge_disks(&mut part, runs, classes);
    differs(&mut part);
    part
}

fn judge_disks(part: &mut Part, runs: &Runs, classes: &[Class]) {
    let case = |class, place| Case::new(class, Io::Epio, place);
    let separate = Place { disk: Disk::OneToOne, net: Net::Separate };
    let by_local = |class| (case(class, ONE_TO_ONE), case(class, Place::LOCAL));
    let small = classes.iter().filter(|class| !matches!(class, Class::B | Class::C));
    let alike = small.map(|class| by_local(*class));
    judge(part, runs, "W and A take as long", alike, "time over 1:1 iSCSI by local", ALIKE);
    let large = classes.iter().filter(|class| **class == Class::B).map(|class| by_local(*class));
    judge(part, runs, "hardly slower", large, "time over 1:1 iSCSI by local", HARDLY);
    let networks = classes.iter().map(|class| (case(*class, ONE_TO_ONE), case(*class, separate)));
    let what = "time over 1:1 iSCSI by one network by that by two";
    judge(part, runs, "share one network", networks, what, WITHOUT_LOSS);
}

/// Figures 10 and 11, and what the paper could not compile. MPI-IO needs one file that all nodes see.
pub async fn simple(bench: &mut Bench, runs: &mut Runs, classes: &[Class]) -> Part {
    let title = "BTIO simple on four nodes; and full, which the authors could not compile";
    let mut part = part("fig10-11", title);
    let ios = [Io::Simple, Io::Full];
    let cases = cases(classes, &[ios[0], ios[1], Io::Epio], &[STRIPED]);
    runs.measure(bench, &mut part, &cases).await;
    show(&mut part, runs, &cases, "figures 10 and 11");
    judge_one_file(&mut part, runs, classes, (ios[0], &[STRIPED]));
    part.differs(
        "MPI's own files must be common to all nodes, which the nodes' own disks are not: only the parallel file system \
         has them. How the authors ran simple on four local disks their text does not say",
    );
    differs(&mut part);
    part
}

/// Figures 12 and 13.
pub async fn fortran(bench: &mut Bench, runs: &mut Runs, classes: &[Class]) -> Part {
    let mut part = part("fig12-13", "BTIO fortran on four nodes");
    let own = cases(classes, &[Io::Fortran], &Place::consolidated());
    let beside = cases(classes, &[Io::Epio], &[Place::LOCAL, ONE_TO_ONE]);
    runs.measure(bench, &mut part, &[&own[..], &beside[..]].concat()).await;
    show(&mut part, runs, &own, "figures 12 and 13");
    judge_one_file(&mut part, runs, classes, (Io::Fortran, &[Place::LOCAL, ONE_TO_ONE]));
    part.differs(
        "the nodes' own disks hold no common file: there each node writes its rows into a file of its own, with holes. \
         What the paper's text says is collected in one node's memory is written where it was computed; one file in \
         truth is that of the parallel file system alone",
    );
    differs(&mut part);
    part
}

/// A way that writes one file, beside epio, which writes one for each process.
fn judge_one_file(part: &mut Part, runs: &Runs, classes: &[Class], (io, places): (Io, &[Place])) {
    let pairs = classes.iter().flat_map(|class| {
        places
            .iter()
            .map(|place| (Case::new(*class, io, *place), Case::new(*class, Io::Epio, *place)))
    });
    let what = format!("time of {} by that of epio", io.word());
    judge(part, runs, "longer than epio", pairs, &what, LONGER);
}

/// Figures 14 and 15: one node and four, read back from the disks.
pub async fn nodes(bench: &mut Bench, runs: &mut Runs, classes: &[Class]) -> Part {
    let mut part = part("fig14-15", "BTIO epio on one node and on four, read back from the disks");
    // The paper's is class A.
    let class =
        classes.iter().copied().find(|class| *class == Class::A).or(classes.last().copied());
    let class = class.unwrap_or(Class::A);
    let case = |nodes, place| Case { nodes, is_cold: true, ..Case::new(class, Io::Epio, place) };
    let cases: Vec<Case> = [1, 4]
        .into_iter()
        .flat_map(|nodes| [Place::LOCAL, ONE_TO_ONE].map(|place| case(nodes, place)))
        .collect();
    runs.measure(bench, &mut part, &cases).await;
    show(&mut part, runs, &cases, "figures 14 and 15");
    let pairs = [1, 4].map(|nodes| (case(nodes, ONE_TO_ONE), case(nodes, Place::LOCAL)));
    judge(&mut part, runs, "is like four", pairs.into_iter(), "time over iSCSI by local", ALIKE);
    for place in [Place::LOCAL, ONE_TO_ONE] {
        if let Some((one, four)) = runs.seconds(&case(1, place)).zip(runs.seconds(&case(4, place)))
        {
            part.measured(format!(
                "{}: four nodes are {:.2} times as fast as one",
                place.words(),
                one.value / four.value
            ));
        }
    }
    if class != Class::A {
        part.differs(format!("class {}; the paper's is A", class.letter()));
    }
    part.differs(
        "what was written is synced, and dropped from the nodes' caches, before it is read back; the machine that stands for \
         the disks, and the targets, may still have it in memory. The paper waited instead",
    );
    differs(&mut part);
    part
}

fn cases(classes: &[Class], ios: &[Io], places: &[Place]) -> Vec<Case> {
    let of = |class: &Class| {
        let class = *class;
        ios.iter().flat_map(move |io| places.iter().map(move |place| Case::new(class, *io, *place)))
    };
    classes.iter().flat_map(of).collect()
}

/// The claim holds when it does for all pairs; pairs that were not measured do not count.
fn judge(
    part: &mut Part,
    runs: &Runs,
    words: &str,
    pairs: impl Iterator<Item = (Case, Case)>,
    what: &str,
    limits: (f64, f64),
) {
    let mut answer: Option<Answer> = None;
    for (case, by) in pairs {
        let Some((ours, other)) = runs.seconds(&case).zip(runs.seconds(&by)) else { continue };
        let nodes = if case.nodes == 1 { ", 1 node" } else { "" };
        let of = format!("class {}{nodes}, {}: {what}", case.class.letter(), case.place.words());
        let one = is_between(&of, ours, other, limits).unless(runs.doubt(&[case, by]).as_deref());
        answer = Some(match answer {
            Some(before) => before.and(one),
            None => one,
        });
    }
    let missing =
        || Answer::not_shown("nothing of it was measured; --class B, say, has class B run");
    part.judge(words, answer.unwrap_or_else(missing));
}

/// Times and rates in words, beside the paper's where it has them, and as figures.
fn show(part: &mut Part, runs: &Runs, cases: &[Case], place: &str) {
    for case in cases {
        let Some((seconds, rate)) = runs.seconds(case).zip(runs.rate(case)) else { continue };
        part.measured(in_short(runs, case, seconds, rate));
        let is_remote = case.place != Place::LOCAL;
        let is_theirs = [Disk::Local, Disk::OneToOne].contains(&case.place.disk)
            && (case.place == Place::LOCAL || case.place.net == Net::Consolidated);
        let theirs = (case.class == Class::B && case.nodes == 4 && is_theirs)
            .then(|| ip_san::solved(case.io.word(), is_remote))
            .flatten();
        if let Some(theirs) = theirs {
            let (time, mops) = theirs.middle();
            part.beside.push(Beside::new(
                place,
                case.words(),
                ("time", Unit::Seconds),
                seconds,
                time,
            ));
            let what = ("rate", Unit::OpsPerS);
            part.beside.push(Beside::new(place, case.words(), what, rate, mops * 1e6));
        }
    }
    shares(part, runs, cases, place);
    part.figures.extend(charts(runs, cases, part.part));
}

fn in_short(runs: &Runs, case: &Case, seconds: Estimate, rate: Estimate) -> String {
    let time =
        |of: Option<Estimate>| of.map_or("-".to_owned(), |time| number(Unit::Seconds, time.value));
    format!(
        "{}: {} ({} to {}), {}; output {}, reading back {}",
        case.words(),
        number(Unit::Seconds, seconds.value),
        number(Unit::Seconds, seconds.low),
        number(Unit::Seconds, seconds.high),
        number(Unit::OpsPerS, rate.value),
        time(runs.io_seconds(case)),
        time(runs.read_seconds(case)),
    )
}

/// How much longer iSCSI takes than the local disk, beside the paper's class B: the only one whose times are left.
fn shares(part: &mut Part, runs: &Runs, cases: &[Case], place: &str) {
    for case in
        cases.iter().filter(|case| case.place == ONE_TO_ONE && case.nodes == 4 && !case.is_cold)
    {
        let local = Case { place: Place::LOCAL, ..*case };
        let theirs =
            ip_san::solved(case.io.word(), true).zip(ip_san::solved(case.io.word(), false));
        // A range for both disks together has no share.
        let Some((remote, own)) = theirs.filter(|(remote, own)| remote != own) else { continue };
        let Some((ours, by)) = runs.seconds(case).zip(runs.seconds(&local)) else { continue };
        let of = format!("class {}, {}, 1:1 iSCSI by local", case.class.letter(), case.io.word());
        let what = ("time, class B there", Unit::Share);
        let share = remote.middle().0 / own.middle().0;
        part.beside.push(Beside::new(place, of, what, quotient(ours, by), share));
    }
}

/// Times and rates by size, a curve for each way of writing and disk.
fn charts(runs: &Runs, cases: &[Case], id: &str) -> Vec<Figure> {
    let x = || Axis { name: "Points along each axis".into(), unit: None, is_log: true };
    let line = |of: &dyn Fn(&Case) -> Option<Estimate>, key: &Case| {
        let same =
            |case: &&Case| (case.io, case.place, case.nodes) == (key.io, key.place, key.nodes);
        let point = |case: &Case| Some((case.class.side() as f64, of(case)?.value));
        let points: Vec<(f64, f64)> = cases.iter().filter(same).filter_map(point).collect();
        let nodes = if key.nodes == 1 { ", 1 node" } else { "" };
        let name = format!("{}, {}{nodes}", key.io.word(), key.place.words());
        (!points.is_empty()).then_some(Line { name, points, is_theirs: false })
    };
    let lines = |of: &dyn Fn(&Case) -> Option<Estimate>| -> Vec<Line> {
        let mut keys: Vec<Case> = Vec::new();
        for case in cases {
            if !keys
                .iter()
                .any(|key| (key.io, key.place, key.nodes) == (case.io, case.place, case.nodes))
            {
                keys.push(*case);
            }
        }
        keys.iter().filter_map(|key| line(of, key)).collect()
    };
    let theirs = |of: fn(&ip_san::Solved) -> f64| -> Vec<Line> {
        let ios: Vec<&str> = cases.iter().map(|case| case.io.word()).collect();
        let four = cases.iter().all(|case| case.nodes == 4);
        let all = ip_san::SOLVED.iter().filter(|one| four && ios.contains(&one.io));
        all.map(|one| {
            let disk = match one.is_remote {
                Some(true) => ", iSCSI",
                Some(false) => ", local",
                None => "",
            };
            let name = format!("paper, {}{disk}", one.io);
            Line { name, points: vec![(102.0, of(one))], is_theirs: true }
        })
        .collect()
    };
    let figure = |what: &str, title: &str, unit, lines: Vec<Line>| {
        Figure {
        id: format!("{id}-{what}"),
        title: title.to_owned(),
        about: "By the size of the problem: 24 is class W, 64 is A, 102 is B. The paper's points are those that its text has."
            .to_owned(),
        x: x(),
        y: Axis { name: title.to_owned(), unit: Some(unit), is_log: true },
        lines,
    }
    };
    let seconds = lines(&|case| runs.seconds(case));
    if seconds.is_empty() {
        return Vec::new();
    }
    let rates = lines(&|case| runs.rate(case));
    let (times, ops) = (theirs(|one| one.middle().0), theirs(|one| one.middle().1 * 1e6));
    vec![
        figure("time", "Execution time", Unit::Seconds, [seconds, times].concat()),
        figure("rate", "Operations per second", Unit::OpsPerS, [rates, ops].concat()),
    ]
}

fn differs(part: &mut Part) {
    part.differs(
        "the nodes share this machine's processors with the lab's network and with the targets: a processor that moves storage \
         is taken from who computes",
    );
    part.differs(
        "a local disk is a file of this machine behind its cache, far faster than the paper's SCSI disk; a volume is such a file, \
         too, behind a wire of 1 Gbit/s",
    );
}

#[cfg(test)]
mod tests {
    use super::super::runs::testing::took;
    use super::*;
    use covey_tune::papers::Paper;
    use covey_tune::reproduce::Outcome;

    fn runs(times: &[(Case, f64)]) -> Runs {
        let mut runs = Runs::default();
        for (case, seconds) in times {
            runs.keep(case, took(*seconds));
            runs.keep(case, took(*seconds * 1.01));
        }
        runs
    }

    fn epio(class: Class, place: Place) -> Case {
        Case::new(class, Io::Epio, place)
    }

    fn outcome(part: &Part, words: &str) -> Outcome {
        part.claims.iter().find(|claim| claim.text.contains(words)).unwrap().answer.outcome
    }

    /// The paper's own numbers uphold its claims.
    #[test]
    fn the_paper_s_numbers_stand_up_to_its_claims() {
        let separate = Place { disk: Disk::OneToOne, net: Net::Separate };
        let runs = runs(&[
            (epio(Class::B, Place::LOCAL), 585.0),
            (epio(Class::B, ONE_TO_ONE), 610.0),
            (epio(Class::B, separate), 605.0),
            (Case::new(Class::B, Io::Simple, Place::LOCAL), 690.0),
            (Case::new(Class::B, Io::Simple, ONE_TO_ONE), 690.0),
        ]);
        let mut part = Part::new(Paper::IpSan, "fig8-9", "x");
        judge_disks(&mut part, &runs, &[Class::B]);
        assert_eq!(outcome(&part, "hardly slower"), Outcome::Holds);
        assert_eq!(outcome(&part, "share one network"), Outcome::Holds);
        assert_eq!(outcome(&part, "W and A"), Outcome::NotShown, "neither was measured");
        let mut part = Part::new(Paper::IpSan, "fig10-11", "x");
        judge_one_file(&mut part, &runs, &[Class::B], (Io::Simple, &[Place::LOCAL, ONE_TO_ONE]));
        assert_eq!(outcome(&part, "than epio"), Outcome::Holds);
    }

    #[test]
    fn a_claim_falls_with_one_class_and_is_open_after_one_run() {
        let times = [
            (epio(Class::W, Place::LOCAL), 1.0),
            (epio(Class::W, ONE_TO_ONE), 1.02),
            (epio(Class::A, Place::LOCAL), 10.0),
            (epio(Class::A, ONE_TO_ONE), 14.0),
        ];
        let judged = |runs: &Runs| {
            let mut part = Part::new(Paper::IpSan, "fig8-9", "x");
            judge_disks(&mut part, runs, &[Class::W, Class::A]);
            outcome(&part, "W and A")
        };
        assert_eq!(judged(&runs(&times[..2])), Outcome::Holds);
        assert_eq!(judged(&runs(&times)), Outcome::DoesNotHold);
        let mut once = Runs::default();
        times.iter().for_each(|(case, seconds)| once.keep(case, took(*seconds)));
        assert_eq!(judged(&once), Outcome::NotShown);
    }

    #[test]
    fn class_b_stands_beside_the_paper_and_others_by_their_shares() {
        let runs = runs(&[
            (epio(Class::B, Place::LOCAL), 117.0),
            (epio(Class::B, ONE_TO_ONE), 122.0),
            (epio(Class::W, Place::LOCAL), 1.0),
            (epio(Class::W, ONE_TO_ONE), 1.1),
        ]);
        let cases = cases(&[Class::W, Class::B], &[Io::Epio], &Place::all());
        let mut part = Part::new(Paper::IpSan, "fig8-9", "x");
        show(&mut part, &runs, &cases, "figures 8 and 9");
        let ratios: Vec<f64> = part.beside.iter().map(|one| one.ratio).collect();
        // Time and rate of class B on both disks, and the shares of W and B.
        assert_eq!(ratios.len(), 6, "{:#?}", part.beside);
        assert!((ratios[0] - 117.0 * 1.005 / 585.0).abs() < 1e-9, "{ratios:?}");
        assert!((part.beside[4].theirs - 610.0 / 585.0).abs() < 1e-9);
        assert_eq!(part.measured.len(), 4);
        let lines = &part.figures[0].lines;
        assert_eq!(lines.iter().filter(|line| line.is_theirs).count(), 2, "{lines:#?}");
        assert_eq!(lines[0].points.len(), 2);
    }
}
