//! Figure 6: basic commands on three networks.

use super::cluster::{self, Mounted};
use super::part;
use crate::error::{Cannot, Error, Result};
use crate::reproduce::bench::Bench;
use crate::reproduce::told::{Part, number};
use covey_tune::Estimate;
use covey_tune::reproduce::{Answer, Named, Unit, rises};
use std::fmt::Write;
use std::path::Path;

/// In the order of the claim: the fastest first.
const NETWORKS: [&str; 3] = ["myrinet2000", "infiniband-sdr", "gigabit"];

/// Copies a tree into the file system; run by one client.
const WRITER: &str = "cp -r \"$1\" \"$2/tree\"";
/// What another client does with it.
const READERS: [(&str, &str); 4] = [
    ("ls -lR", "ls -lR \"$2/tree\""),
    ("du", "du -s \"$2/tree\""),
    ("cp out", "cp -r \"$2/tree\" \"$1.out\""),
    ("rm -r", "rm -r \"$2/tree\""),
];

/// Times of each command, and of all, on one network.
#[derive(Debug)]
struct Times {
    each: Vec<(&'static str, Estimate)>,
    all: Estimate,
}

/// Measures and judges.
pub async fn networks(bench: &mut Bench) -> Part {
    let mut part = part("fig6", "basic commands on three networks; the figure's values are lost");
    let mut found: Vec<(&str, Times)> = Vec::new();
    for network in NETWORKS {
        match on(bench, network).await {
            Ok(times) => {
                bench.say(format!("  {network}: {}", in_short(&times)));
                found.push((network, times));
            }
            Err(error) => part.leave_out(network, error.message),
        }
    }
    let totals: Vec<Named<'_>> = found.iter().map(|(name, times)| (*name, times.all)).collect();
    if totals.len() == NETWORKS.len() {
        let doubt = bench.doubt(NETWORKS.len());
        let mut answer = rises(&totals, &|time| number(Unit::Seconds, time));
        answer = Answer::new(answer.outcome, format!("all commands: {}", answer.because));
        part.judge("basic commands", answer.unless(doubt.as_deref()));
    }
    for (network, times) in &found {
        part.measured(format!("{network}: {}", in_short(times)));
    }
    part.differs(
        "all networks are faster than this machine's programs answer, and all nodes share its CPUs: \
         latency is what is left of a difference",
    );
    part
}

fn in_short(times: &Times) -> String {
    let one =
        |(name, time): &(&str, Estimate)| format!("{name} {}", number(Unit::Seconds, time.value));
    times.each.iter().map(one).collect::<Vec<_>>().join(", ")
}

async fn on(bench: &mut Bench, network: &str) -> Result<Times> {
    let (files, repetitions) = if bench.wish.is_quick { (20, 2) } else { (300, 7) };
    let mounted = cluster::up(bench, network, true, 2).await?;
    let tree = bench.now()?.file("tree");
    make_tree(&tree, files)?;
    let mut samples = vec![Vec::new(); 1 + READERS.len()];
    for _ in 0..repetitions {
        for (times, time) in samples.iter_mut().zip(once(bench, &mounted, &tree).await?) {
            times.push(time);
        }
    }
    bench.down().await?;
    let all = (0..repetitions).map(|at| samples.iter().map(|times| times[at]).sum()).collect();
    let names = std::iter::once("cp in").chain(READERS.map(|(name, _)| name));
    let each = names.zip(samples).map(|(name, times)| (name, Estimate::of_median(times))).collect();
    Ok(Times { each, all: Estimate::of_median(all) })
}

/// All commands once, in seconds each. The one who reads has seen nothing of it before.
async fn once(bench: &mut Bench, mounted: &Mounted, tree: &Path) -> Result<Vec<f64>> {
    let [writer, reader] = [&mounted.clients[0], &mounted.clients[1]];
    let tree = tree.display().to_string();
    let words = |script| ["sh", "-c", script, "sh", &tree, &mounted.dir];
    let write = script(&[WRITER]);
    let mut times = numbers(&bench.on(writer, &words(&write)).await?)?;
    let read = script(&READERS.map(|(_, command)| command));
    times.extend(numbers(&bench.on(reader, &words(&read)).await?)?);
    let copy = format!("{tree}.out");
    std::fs::remove_dir_all(&copy).cannot(|| format!("remove {copy}"))?;
    if times.len() == 1 + READERS.len() {
        Ok(times)
    } else {
        Err(Error::work("cannot use the times of the commands: some are missing"))
    }
}

/// A shell script that says how many nanoseconds each command took.
fn script(commands: &[&str]) -> String {
    commands.iter().fold("set -e\n".to_string(), |mut text, command| {
        let _ =
            writeln!(text, "b=$(date +%s%N); {command} >/dev/null; e=$(date +%s%N); echo $((e-b))");
        text
    })
}

fn numbers(text: &str) -> Result<Vec<f64>> {
    let number = |line: &str| {
        let wrong = || Error::work(format!("cannot use `{line}` as a time"));
        line.trim().parse::<f64>().map(|ns| ns / 1e9).map_err(|_| wrong())
    };
    text.lines().map(number).collect()
}

/// Files of 1 to 64 KiB in ten directories.
fn make_tree(tree: &Path, files: usize) -> Result<()> {
    let make = || -> std::io::Result<()> {
        for file in 0..files {
            let dir = tree.join(format!("d{}", file % 10));
            std::fs::create_dir_all(&dir)?;
            std::fs::write(dir.join(format!("f{file}")), vec![b'x'; 1024 << (file % 7)])?;
        }
        Ok(())
    };
    make().cannot(|| format!("make {}", tree.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_tells_the_time_of_each_command() {
        let text = script(&["true", "cd /"]);
        let done = std::process::Command::new("sh").args(["-c", &text]).output().unwrap();
        let times = numbers(&String::from_utf8(done.stdout).unwrap()).unwrap();
        assert!(times.len() == 2 && times.iter().all(|time| *time > 0.0), "{times:?}");
        assert!(numbers("quail\n").is_err());
    }
}
