//! `covey server rebalance`: every I/O server holds its share of the bytes.

use super::moving::{Done, Leaving, PASSES, PAUSE, Rate, open_servers};
use super::reporter::Reporter;
use super::{Place, places};
use crate::cmd::Context;
use crate::config::size;
use crate::error::{Cannot, Error, Result};
use crate::output::{counted, knows_total};
use covey_stripe::chain::Table;
use covey_stripe::check::{bytes_on, chain_table, laid_out};
use covey_stripe::client::Fs;
use covey_stripe::ops::{Id, Inode, Striping};
use serde_json::json;
use std::collections::HashMap;
use std::io::Write;

/// How far from its share a server may be, in hundredths of it.
const WITHIN: u8 = 5;
/// How often the sizes of disks are looked for: a server that has just started is asked within seconds.
const UNKNOWN_MAX: usize = 8;

/// What a server holds of files, and what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    server: u16,
    held: u64,
    share: u64,
}

impl Load {
    fn above(self) -> u64 {
        self.held.saturating_sub(self.share)
    }

    fn below(self) -> u64 {
        self.share.saturating_sub(self.held)
    }

    fn is_right(self) -> bool {
        u128::from(self.held.abs_diff(self.share)) * 100
            <= u128::from(self.share) * u128::from(WITHIN)
    }
}

/// A file, and its bytes on each of its servers.
#[derive(Clone, Debug)]
struct Laid {
    id: Id,
    parts: Vec<(u16, u64)>,
}

impl Laid {
    fn of(inode: &Inode, table: &Table) -> Option<Laid> {
        let chains = &inode.striping.as_ref()?.servers.0;
        let bytes = |&chain: &u16| (table.head(chain), bytes_on(inode, chain).unwrap_or(0));
        let parts = chains.iter().map(bytes).filter_map(|(head, bytes)| Some((head?, bytes)));
        Some(Laid { id: inode.id, parts: parts.collect() })
    }

    /// None where it does not lie there.
    fn on(&self, server: u16) -> Option<u64> {
        self.parts.iter().find(|(at, _)| *at == server).map(|(_, bytes)| *bytes)
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes).fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    fn largest(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }
}

/// A file's part on one server that is to lie on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    from: u16,
    to: u16,
}

/// Moves files from servers that hold more than their share of the bytes to those that hold less.
pub async fn rebalance(fs: &Fs, rate: Rate, context: &Context) -> Result<()> {
    let cannot = || "rebalance the I/O servers";
    let bar = context.output.progress(None);
    let reporter = Reporter::begin(context.config()?, "rebalance".into(), &bar);
    let mut done = Done::begin(rate);
    let (mut before, mut unknown) = (None, 0);
    let table = chain_table(fs).await.cannot(cannot)?;
    let (places, loads) = loop {
        let places = places(fs).await?;
        let open = open_servers(&places);
        if open.len() < 2 {
            let what = format!("cannot {}: fewer than two take files", cannot());
            return Err(Error::work(what).hint("`covey server ls` shows why"));
        }
        if open.iter().any(|at| places[usize::from(*at)].bytes_total == 0) {
            if unknown == UNKNOWN_MAX {
                let what = format!("cannot {}: the size of a disk is not known", cannot());
                return Err(Error::work(what).hint("`covey server ls` shows them"));
            }
            unknown += 1;
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let files = laid_out(fs).await.cannot(cannot)?;
        // What a file with holes really takes is not known.
        let files = files.iter().filter(|inode| !inode.sparse);
        let files: Vec<Laid> = files.filter_map(|inode| Laid::of(inode, &table)).collect();
        let loads = loads(&files, &open, &places);
        let pass = before.get_or_insert_with(|| (loads.clone(), 0));
        pass.1 += 1;
        let sizes: HashMap<Id, u64> = files.iter().map(|file| (file.id, file.bytes())).collect();
        let steps = plan(files, loads.clone());
        if steps.is_empty() || pass.1 > PASSES {
            break (places, loads);
        }
        if pass.1 > 1 {
            tokio::time::sleep(PAUSE).await;
        }
        let total = steps.keys().map(|id| sizes[id]).fold(done.bytes, u64::saturating_add);
        bar.set_length(total);
        knows_total(&bar);
        let leaving = steps.keys().map(|&id| Leaving { id, name: format!("file {id}") }).collect();
        let choose = |id, striping: &Striping| replaced(striping, *steps.get(&id)?, &table);
        done.move_all(fs, leaving, choose, &bar).await;
    };
    drop(reporter);
    bar.finish_and_clear();
    let before = before.map_or_else(Vec::new, |(loads, _)| loads);
    tell(&done, &places, (&before, &loads), context)
}

/// What the open servers hold of these files. Each one's share is by the size of its disk.
fn loads(files: &[Laid], open: &[u16], places: &[Place]) -> Vec<Load> {
    let held = |at: u16| files.iter().filter_map(|file| file.on(at)).sum::<u64>();
    let size = |at: u16| places[usize::from(at)].bytes_total.max(1);
    let held: Vec<(u16, u64)> = open.iter().map(|&at| (at, held(at))).collect();
    let all = u128::from(held.iter().map(|(_, held)| held).sum::<u64>());
    let sizes = open.iter().map(|&at| u128::from(size(at))).sum::<u128>();
    let share = |at| (all * u128::from(size(at)) / sizes) as u64;
    held.into_iter().map(|(server, held)| Load { server, held, share: share(server) }).collect()
}

/// What is to move: the largest parts first, each from the server that has most above its share to the one that lacks most,
/// as long as that brings both nearer.
fn plan(mut files: Vec<Laid>, mut loads: Vec<Load>) -> HashMap<Id, Step> {
    files.sort_by_key(|file| std::cmp::Reverse((file.largest(), file.id)));
    let mut steps = HashMap::new();
    for file in &files {
        if loads.iter().all(|load| load.is_right()) {
            break;
        }
        let (here, elsewhere): (Vec<usize>, Vec<usize>) =
            (0..loads.len()).partition(|&at| file.on(loads[at].server).is_some());
        let from = here.into_iter().max_by_key(|&at| loads[at].above());
        let to = elsewhere.into_iter().max_by_key(|&at| loads[at].below());
        let (Some(from), Some(to)) = (from, to) else { continue };
        let bytes = file.on(loads[from].server).unwrap_or(0);
        let (above, below) = (loads[from].above(), loads[to].below());
        if bytes == 0 || above == 0 || below == 0 || bytes > u64::midpoint(above, below) {
            continue;
        }
        loads[from].held -= bytes;
        loads[to].held += bytes;
        steps.insert(file.id, Step { from: loads[from].server, to: loads[to].server });
    }
    steps
}

/// The chains of a striping after a step between servers, unless it has changed since.
fn replaced(striping: &Striping, Step { from, to }: Step, table: &Table) -> Option<Vec<u16>> {
    let mut chains = striping.servers.0.clone();
    if chains.iter().any(|&chain| table.head(chain) == Some(to)) {
        return None;
    }
    let old = chains.iter_mut().find(|chain| table.head(**chain) == Some(from))?;
    *old = table.led_by(&[to]).first().copied()?;
    Some(chains)
}

fn tell(
    done: &Done,
    places: &[Place],
    (before, after): (&[Load], &[Load]),
    context: &Context,
) -> Result<()> {
    let name = |load: &Load| places[usize::from(load.server)].server.lossy().into_owned();
    let was =
        |load: &Load| before.iter().find(|one| one.server == load.server).map_or(0, |one| one.held);
    let of = |load: &Load| json!({ "server": name(load), "bytes_before": was(load), "bytes": load.held, "share": load.share });
    let value = json!({
        "files_moved": done.files, "bytes_copied": done.bytes, "errors": done.errors,
        "servers": after.iter().map(of).collect::<Vec<_>>(),
    });
    context.output.result(&value, |out| {
        writeln!(
            out,
            "moved {}, {} copied",
            counted(done.files, "file"),
            size::rounded(done.bytes)
        )?;
        let cells: Vec<_> = after
            .iter()
            .map(|load| {
                vec![
                    name(load),
                    size::rounded(was(load)),
                    size::rounded(load.held),
                    size::rounded(load.share),
                ]
            })
            .collect();
        crate::output::table(out, &["SERVER", ">BEFORE", ">NOW", ">SHARE"], &cells);
        Ok(())
    })?;
    done.errors.iter().for_each(|error| context.output.say(error));
    match done.errors.len() {
        0 => Ok(()),
        count => Err(Error::work(format!("{} could not be moved", counted(count as u64, "file")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_wire::{List, Name};

    fn file(id: Id, size: u64, servers: &[u16]) -> Laid {
        let part = size / servers.len() as u64;
        Laid { id, parts: servers.iter().map(|&at| (at, part)).collect() }
    }

    fn place(bytes_total: u64) -> Place {
        let server = Name::from("io");
        Place { server, state: 0, is_serving: true, bytes_total, bytes_available: bytes_total }
    }

    /// What each holds after all steps.
    fn moved(files: &[Laid], open: &[u16], places: &[Place]) -> (Vec<Load>, usize) {
        let steps = plan(files.to_vec(), loads(files, open, places));
        let mut after = files.to_vec();
        for file in &mut after {
            let Some(step) = steps.get(&file.id) else { continue };
            let part = file.parts.iter_mut().find(|(at, _)| *at == step.from).unwrap();
            part.0 = step.to;
        }
        (loads(&after, open, places), steps.len())
    }

    #[test]
    fn a_new_server_gets_its_share_of_files_on_all_the_others() {
        let places = [place(1000), place(1000), place(1000), place(1000)];
        let files: Vec<Laid> = (0..60).map(|id| file(id, 3 << 20, &[0, 1, 2])).collect();
        let (after, steps) = moved(&files, &[0, 1, 2, 3], &places);
        assert!(after.iter().all(|load| load.is_right()), "{after:?}");
        assert!((40..=48).contains(&steps), "a quarter of all parts: {steps}");
    }

    #[test]
    fn shares_are_by_the_size_of_the_disks_and_who_is_not_open_keeps_what_it_has() {
        let places = [place(3000), place(1000), place(1000)];
        let files: Vec<Laid> = (0..80).map(|id| file(id, 1 << 20, &[1])).collect();
        let (after, _) = moved(&files, &[0, 1], &places);
        assert_eq!((after[0].share, after[1].share), (60 << 20, 20 << 20));
        assert!(after.iter().all(|load| load.is_right()), "{after:?}");
        let files: Vec<Laid> = (0..80).map(|id| file(id, 1 << 20, &[2])).collect();
        assert_eq!(moved(&files, &[0, 1], &places).1, 0);
    }

    #[test]
    fn one_large_file_does_not_go_back_and_forth() {
        let places = [place(1000), place(1000)];
        let files = [file(1, 1 << 30, &[0]), file(2, 1 << 20, &[1])];
        assert_eq!(moved(&files, &[0, 1], &places).1, 0, "it would be as uneven");
    }
    #[test]
    fn a_file_that_was_laid_out_anew_meanwhile_is_left_as_it_is() {
        let (kind, strip_bytes, params) = (1, 4096, List(Vec::new()));
        let striping = Striping { kind, strip_bytes, params, servers: List(vec![2, 0]) };
        let step = |from, to| replaced(&striping, Step { from, to }, &Table::of_servers(4));
        assert_eq!(step(2, 1), Some(vec![1, 0]));
        assert_eq!((step(3, 1), step(2, 0)), (None, None));
    }
}
