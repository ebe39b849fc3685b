//! What the paper leaves to the future: many nodes at one target, and storage that yields to messages.

use super::disks::{Disk, Disks, NODES, Place, Wish};
use super::part;
use super::runs::{Case, disk_bytes, library, rounds, solve};
use crate::btio::{Class, Extras, Io};
use crate::error::Result;
use crate::reproduce::bench::Bench;
use crate::reproduce::told::{Part, number, reason};
use covey_tune::Estimate;
use covey_tune::reproduce::{Unit, quotient};

/// Who reaches what, and whether storage yields.
const SETUPS: [(Place, &str); 4] = [
    (Place::shared(Disk::OneToOne), "off"),
    (Place::shared(Disk::OneToOne), "on"),
    (Place::shared(Disk::ManyToOne), "off"),
    (Place::shared(Disk::ManyToOne), "on"),
];

/// Measures in turn, on one network.
pub async fn many(bench: &mut Bench, classes: &[Class]) -> Part {
    let mut part = part("future", "many nodes at one target, with and without the pacer");
    let class = classes.last().copied().unwrap_or(Class::W);
    match measured(bench, &mut part, class).await {
        Ok(times) => tell(&mut part, class, &times),
        Err(error) => part.leave_out("all of it", reason(&error)),
    }
    part.doubt(bench.doubt(1));
    part.differs("the paper asks for it in section 6 and measures nothing of it: nothing stands beside these times");
    part
}

async fn measured(bench: &mut Bench, part: &mut Part, class: Class) -> Result<Vec<Vec<f64>>> {
    let mpi = library()?;
    let wish = Wish {
        places: vec![SETUPS[0].0, SETUPS[2].0],
        nodes: NODES,
        bytes: disk_bytes(std::iter::once(class)),
        can_pace: true,
    };
    let disks = Disks::up(bench, &wish).await?;
    let mut times = vec![Vec::new(); SETUPS.len()];
    for _ in 0..rounds(&bench.wish, class) {
        for ((place, state), times) in SETUPS.into_iter().zip(&mut times) {
            let case = Case::new(class, Io::Epio, place);
            let paced = disks.pace(bench, state).await;
            let solved = match paced {
                Ok(()) => solve(bench, &disks, &mpi, &case, Extras::default()).await,
                Err(error) => Err(error),
            };
            match solved {
                Ok(solved) => {
                    bench.say(format!("  {}: {:.2} s", words(place, state), solved.seconds));
                    times.push(solved.seconds);
                }
                Err(error) => part.fail(words(place, state), &error),
            }
        }
    }
    if let Some(why) = bench.complaint().await {
        part.differs(why);
    }
    disks.down(bench).await?;
    Ok(times)
}

fn words(place: Place, state: &str) -> String {
    let pacer = if state == "on" { "storage yields" } else { "plain queues" };
    format!("{}, {pacer}", place.words())
}

fn tell(part: &mut Part, class: Class, times: &[Vec<f64>]) {
    let of = |at: usize| {
        let all: &Vec<f64> = &times[at];
        (!all.is_empty()).then(|| Estimate::of_median(all.clone()))
    };
    for (at, (place, state)) in SETUPS.into_iter().enumerate() {
        let Some(time) = of(at) else { continue };
        let by = of(0).map_or(String::new(), |first| {
            let share = quotient(time, first);
            format!(
                ", {:.2} times ({:.2} to {:.2}) that of 1:1 with plain queues",
                share.value, share.low, share.high
            )
        });
        let (letter, seconds) = (class.letter(), number(Unit::Seconds, time.value));
        part.measured(format!("class {letter}, epio, {}: {seconds}{by}", words(place, state)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_tune::papers::Paper;

    #[test]
    fn what_was_not_measured_is_not_told() {
        let mut part = Part::new(Paper::IpSan, "future", "x");
        tell(&mut part, Class::W, &[vec![1.0, 1.2], Vec::new(), vec![2.0, 2.2], Vec::new()]);
        assert_eq!(part.measured.len(), 2);
        assert!(
            part.measured[1].contains("N:1 iSCSI, one network, plain queues: 2.1 s, 1.91 times"),
            "{part:#?}"
        );
    }
}
