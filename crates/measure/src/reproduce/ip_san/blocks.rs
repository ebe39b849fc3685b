//! Figure 5: a file of 1 GB read and written in sequence, by the size of the blocks, on the local disk and over iSCSI.

use super::disks::{Disk, Disks, Place, Wish};
use super::part;
use crate::error::{Error, Result};
use crate::reproduce::bench::Bench;
use crate::reproduce::drawn::{Axis, Figure, Line};
use crate::reproduce::told::{Part, reason};
use covey_tune::Estimate;
use covey_tune::papers::ip_san::STREAMS;
use covey_tune::reproduce::{Answer, Beside, Unit, is_between, quotient};

const BLOCKS: [u64; 5] = [512, 1024, 2048, 4096, 8192];
const FILE_BYTES: u64 = 1 << 30;
const FILE_BYTES_QUICK: u64 = 16 << 20;
/// "No difference" of the largest blocks to the smallest.
const ALIKE: (f64, f64) = (0.9, 1.1);
/// How near a share must be to the paper's.
const NEAR: (f64, f64) = (0.85, 1.15);
/// "About twice" and "about four times".
const TWICE: (f64, f64) = (1.5, 2.5);
const FOUR_TIMES: (f64, f64) = (3.0, 5.0);
const PLACES: [Place; 2] = [Place::LOCAL, Place::shared(Disk::OneToOne)];

/// Writes FILE of COUNT blocks, drops it from the node's cache, and reads it: how many nanoseconds either took.
const SCRIPT: &str = "set -e; f=$1/stream\n\
    b=$(date +%s%N); dd if=/dev/zero of=$f bs=$2 count=$3 conv=fsync 2>/dev/null; e=$(date +%s%N); echo $((e-b))\n\
    dd of=$f oflag=nocache conv=notrunc,fdatasync count=0 2>/dev/null\n\
    b=$(date +%s%N); dd if=$f of=/dev/null bs=$2 2>/dev/null; e=$(date +%s%N); echo $((e-b)); rm $f";

/// Bytes per second of one disk with blocks of one size.
#[derive(Clone, Debug)]
struct Rates {
    place: Place,
    block: u64,
    write: Vec<f64>,
    read: Vec<f64>,
}

/// Measures and judges.
pub async fn streams(bench: &mut Bench) -> Part {
    let mut part = part("fig5", "a file read and written in sequence, by the size of the blocks");
    let found = match measured(bench, &mut part).await {
        Ok(found) => found,
        Err(error) => {
            part.leave_out("all of it", reason(&error));
            return part;
        }
    };
    let doubt = bench.doubt(1);
    show(&mut part, &found);
    judge(&mut part, &found, doubt.as_deref());
    part.doubt(doubt);
    if bench.wish.is_quick {
        part.differs(format!("a file of {} MiB, not of 1 GB", FILE_BYTES_QUICK >> 20));
    }
    part.differs(
        "the disks are files of this machine: their blocks come from memory, and a program that moves 512 bytes with each call \
         is slower than they are. Over iSCSI the wire of 1 Gbit/s is the limit, in both directions",
    );
    part.differs("writing ends with fsync; what is read is not in the node's own cache");
    part
}

async fn measured(bench: &mut Bench, part: &mut Part) -> Result<Vec<Rates>> {
    let (bytes, rounds) = if bench.wish.is_quick { (FILE_BYTES_QUICK, 2) } else { (FILE_BYTES, 3) };
    let wish = Wish {
        places: PLACES.to_vec(),
        nodes: 1,
        bytes: bytes * 5 / 4 + (96 << 20),
        can_pace: false,
    };
    let disks = Disks::up(bench, &wish).await?;
    let mut found: Vec<Rates> = Vec::new();
    for round in 0..rounds {
        for (place, block) in
            PLACES.into_iter().flat_map(|place| BLOCKS.map(|block| (place, block)))
        {
            match once(bench, &disks, place, (block, bytes)).await {
                Ok([write, read]) => keep(&mut found, place, block, [write, read]),
                Err(error) => part.fail(format!("{}, blocks of {block}", place.words()), &error),
            }
        }
        bench.say(format!("  round {} of {rounds}", round + 1));
    }
    if let Some(why) = bench.complaint().await {
        part.differs(why);
    }
    disks.down(bench).await?;
    if found.is_empty() { Err(Error::work("no stream was measured")) } else { Ok(found) }
}

async fn once(
    bench: &mut Bench,
    disks: &Disks,
    place: Place,
    (block, bytes): (u64, u64),
) -> Result<[f64; 2]> {
    bench.may_begin()?;
    let (dir, size, count) =
        (disks.dir_of(place).display().to_string(), block.to_string(), (bytes / block).to_string());
    let told = bench.on("n1", &["sh", "-c", SCRIPT, "sh", &dir, &size, &count]).await?;
    let rate = |line: &str| line.trim().parse::<f64>().ok().map(|ns| bytes as f64 / ns * 1e9);
    let rates: Vec<f64> = told.lines().filter_map(rate).collect();
    rates.try_into().map_err(|_| Error::work("cannot use the times of dd: some are missing"))
}

fn keep(found: &mut Vec<Rates>, place: Place, block: u64, [write, read]: [f64; 2]) {
    let is_it = |one: &&mut Rates| (one.place, one.block) == (place, block);
    match found.iter_mut().find(is_it) {
        Some(one) => {
            one.write.push(write);
            one.read.push(read);
        }
        None => found.push(Rates { place, block, write: vec![write], read: vec![read] }),
    }
}

/// Of all sizes of blocks, or of one.
fn rate(found: &[Rates], place: Place, block: Option<u64>, of: Of) -> Option<Estimate> {
    let is_it = |one: &&Rates| one.place == place && block.is_none_or(|block| one.block == block);
    let all: Vec<f64> = found.iter().filter(is_it).flat_map(of).copied().collect();
    (!all.is_empty()).then(|| Estimate::of_median(all))
}

/// Rates of one direction.
type Of = fn(&Rates) -> &Vec<f64>;

const WAYS: [(&str, Of); 2] = [("read", |one| &one.read), ("write", |one| &one.write)];

fn show(part: &mut Part, found: &[Rates]) {
    let mut lines = Vec::new();
    let ends = (BLOCKS[0] as f64, BLOCKS[BLOCKS.len() - 1] as f64);
    for (place, theirs) in PLACES.into_iter().zip(STREAMS) {
        for (way, of) in WAYS {
            let their_rate = if way == "read" { theirs.read } else { theirs.write };
            if let Some(ours) = rate(found, place, None, of) {
                let what = (way, Unit::BytesPerS);
                part.beside.push(Beside::new("figure 5", place.words(), what, ours, their_rate));
            }
            let point = |block| Some((block as f64, rate(found, place, Some(block), of)?.value));
            let name = format!("{way}, {}", place.words());
            lines.push(Line {
                name: name.clone(),
                points: BLOCKS.into_iter().filter_map(point).collect(),
                is_theirs: false,
            });
            let points = vec![(ends.0, their_rate), (ends.1, their_rate)];
            lines.push(Line { name: format!("paper, {name}"), points, is_theirs: true });
        }
        if let Some(share) = share(found, place) {
            let what = ("write by read", Unit::Share);
            part.beside.push(Beside::new("section 4.2", place.words(), what, share, theirs.share));
        }
    }
    part.figures.push(Figure {
        id: "streams".into(),
        title: "A file in sequence".into(),
        about: "By the size of the blocks. The paper's curves are lost; its text has these rates, and that the size makes no difference."
            .into(),
        x: Axis { name: "Block".into(), unit: Some(Unit::Bytes), is_log: true },
        y: Axis { name: "Rate".into(), unit: Some(Unit::BytesPerS), is_log: true },
        lines,
    });
}

fn share(found: &[Rates], place: Place) -> Option<Estimate> {
    Some(quotient(rate(found, place, None, WAYS[1].1)?, rate(found, place, None, WAYS[0].1)?))
}

fn judge(part: &mut Part, found: &[Rates], doubt: Option<&str>) {
    let all = |answers: Vec<Option<Answer>>| {
        let all = answers.into_iter().flatten().reduce(Answer::and);
        all.unwrap_or_else(|| Answer::not_shown("it was not measured")).unless(doubt)
    };
    let sizes = PLACES.into_iter().flat_map(|place| {
        WAYS.map(|(way, of)| {
            let at = |block| rate(found, place, Some(block), of);
            let what = format!("{way}, {}: blocks of 8 KiB by those of 512 B", place.words());
            Some(is_between(&what, at(BLOCKS[4])?, at(BLOCKS[0])?, ALIKE))
        })
    });
    part.judge("makes no difference", all(sizes.collect()));
    let shares = PLACES.into_iter().zip(STREAMS).map(|(place, theirs)| {
        let to = Estimate { value: theirs.share, low: theirs.share, high: theirs.share };
        let what = format!("{}: write by read, by the paper's", place.words());
        Some(is_between(&what, share(found, place)?, to, NEAR))
    });
    part.judge("slower than reading", all(shares.collect()));
    let disks = WAYS.into_iter().zip([TWICE, FOUR_TIMES]).map(|((way, of), limits)| {
        let [local, remote] = PLACES.map(|place| rate(found, place, None, of));
        Some(is_between(&format!("{way}: local by iSCSI"), local?, remote?, limits))
    });
    part.judge("twice and writes", all(disks.collect()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_tune::papers::Paper;
    use covey_tune::reproduce::Outcome;

    fn found(rates: [[f64; 2]; 2]) -> Vec<Rates> {
        let mut found = Vec::new();
        for (place, [read, write]) in PLACES.into_iter().zip(rates) {
            for block in BLOCKS {
                for more in [0.99, 1.01] {
                    keep(&mut found, place, block, [write * more, read * more]);
                }
            }
        }
        found
    }

    fn outcomes(found: &[Rates]) -> Vec<Outcome> {
        let mut part = Part::new(Paper::IpSan, "fig5", "x");
        judge(&mut part, found, None);
        part.claims.iter().map(|claim| claim.answer.outcome).collect()
    }

    #[test]
    fn the_paper_s_rates_stand_up_to_its_claims() {
        let rates = STREAMS.map(|one| [one.read, one.write]);
        assert_eq!(outcomes(&found(rates)), [Outcome::Holds; 3]);
    }

    #[test]
    fn a_fast_disk_behind_a_slow_wire_is_another_world() {
        let found = found([[2e9, 1.5e9], [110e6, 100e6]]);
        let [sizes, shares, disks] = outcomes(&found).try_into().unwrap();
        assert_eq!(
            (sizes, shares, disks),
            (Outcome::Holds, Outcome::DoesNotHold, Outcome::DoesNotHold)
        );
        let mut part = Part::new(Paper::IpSan, "fig5", "x");
        show(&mut part, &found);
        assert_eq!(part.beside.len(), 6);
        assert_eq!(part.figures[0].lines.len(), 8);
    }

    #[test]
    fn the_script_writes_drops_and_reads() {
        let dir = tempfile::tempdir().unwrap();
        let words = ["-c", SCRIPT, "sh", dir.path().to_str().unwrap(), "512", "64"];
        let done = std::process::Command::new("sh").args(words).output().unwrap();
        let told = String::from_utf8(done.stdout).unwrap();
        let times: Vec<f64> = told.lines().map(|line| line.parse().unwrap()).collect();
        assert!(times.len() == 2 && times.iter().all(|time| *time > 0.0), "{told}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
