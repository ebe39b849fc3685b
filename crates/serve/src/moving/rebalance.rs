//! Every I/O server gets its share of the bytes.
//!
//! What the servers hold is counted over all files, and only those files are remembered, up to a number, whose move could
//! bring two servers nearer to their shares: the memory that it takes does not grow with the file system.

use super::chains::{self, Leveled};
use super::mover::{Mover, PASSES, PAUSE, Sight};
use covey_io::task;
use covey_stripe::chain::Table;
use covey_stripe::check::{bytes_on, laid_out_after};
use covey_stripe::client::Result;
use covey_stripe::meta::place;
use covey_stripe::ops::{Id, Inode, Load, Place, Striping};
use covey_wire::{List, Name};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How far from its share a server may be, in hundredths of it.
const WITHIN: u8 = 5;
/// Files that are thought of at a time.
const FILES_MAX: usize = 100_000;
/// How often chains are moved: files that come and go meanwhile must not keep it up for ever.
const ROUNDS_MAX: usize = 10;
/// What keeps files from moving is waited out for so long before it is said.
const GRACE: Duration = Duration::from_secs(5);

/// Moves files from servers that hold more than their share of the bytes to those that hold less.
pub(super) async fn rebalance(mover: &Mover<'_>) -> Result<()> {
    let mut absent = Absent::default();
    let (mut rounds, mut fruitless, mut is_first) = (0, 0, true);
    let mut failed = 0;
    loop {
        let sight = ready(mover, &mut absent).await?;
        let open = sight.open();
        let held = held(mover, &sight).await?;
        let loads = loads(&held, &open, &sight);
        show(mover, &loads);
        if rounds < ROUNDS_MAX {
            rounds += 1;
            match chains::level(mover, &sight, &loads).await? {
                Leveled::Moved => {
                    failed = 0;
                    continue;
                }
                Leveled::Failed if failed + 1 < PASSES => {
                    failed += 1;
                    mover.rest(PAUSE).await;
                    continue;
                }
                Leveled::Failed | Leveled::Nothing => rounds = ROUNDS_MAX,
            }
        }
        let files = candidates(mover, &sight, &loads).await?;
        let sizes: HashMap<Id, u64> = files.iter().map(|file| (file.id, file.bytes())).collect();
        let steps = plan(files, loads);
        if steps.is_empty() || fruitless == PASSES {
            return Ok(());
        }
        if !is_first {
            mover.rest(PAUSE).await;
        }
        is_first = false;
        mover.expects(steps.keys().map(|id| sizes[id]).fold(0, u64::saturating_add));
        let choose = |sight: &Sight, id, striping: &Striping| {
            replaced(striping, *steps.get(&id)?, &sight.table)
        };
        let tried = mover.move_all(steps.keys().copied().collect(), None, choose).await?;
        mover.report(&tried);
        fruitless = if tried.moved > 0 { 0 } else { fruitless + 1 };
    }
}

/// Servers that are to take files and do not serve: since when, and whether they were waited for.
#[derive(Default)]
struct Absent(BTreeMap<u16, Instant>);

impl Absent {
    /// Whether one of them may be back soon: shares without it would be wrong.
    fn may_return(&mut self, sight: &Sight, now: Instant) -> bool {
        // Away until the metadata server has seen it serve again.
        let is_absent = |place: &Place| match place.state {
            0 => !place.is_serving,
            state => state == place::AWAY,
        };
        let absent = sight.places.iter().zip(0..).filter(|(place, _)| is_absent(place));
        let since = |(_, at)| (at, self.0.get(&at).copied().unwrap_or(now));
        self.0 = absent.map(since).collect();
        self.0.values().any(|since| now.saturating_duration_since(*since) < GRACE)
    }
}

/// The servers, once at least two take files, the sizes of their disks are known, and none is just being started anew.
async fn ready(mover: &Mover<'_>, absent: &mut Absent) -> Result<Rc<Sight>> {
    let mut since: Option<Instant> = None;
    loop {
        let sight = mover.look().await?;
        let open = sight.open();
        let is_known = |at: &u16| sight.place(*at).is_some_and(|place| place.bytes_total > 0);
        let why = if absent.may_return(&sight, task::now()) {
            "an I/O server does not serve"
        } else if open.len() < 2 {
            "fewer than two I/O servers take files"
        } else if !open.iter().all(is_known) {
            "the size of a disk is not known"
        } else {
            if since.is_some() {
                mover.control.goes_on();
            }
            return Ok(sight);
        };
        let begun = *since.get_or_insert_with(task::now);
        if task::now().saturating_duration_since(begun) >= GRACE {
            mover.control.waits(why);
        }
        mover.rest(PAUSE).await;
    }
}

/// Shows all laid out files to `visit`. What a file with holes really takes is not known: those are left out.
async fn each_file(mover: &Mover<'_>, table: &Table, mut visit: impl FnMut(Laid)) -> Result<()> {
    let mut after = Some(Name::EMPTY);
    while let Some(next) = after {
        mover.must_go_on()?;
        let (files, rest) = laid_out_after(mover.fs, next).await?;
        let files = files.iter().filter(|inode| !inode.sparse);
        files.filter_map(|inode| Laid::of(inode, table)).for_each(&mut visit);
        after = rest;
    }
    Ok(())
}

/// What each server holds.
async fn held(mover: &Mover<'_>, sight: &Sight) -> Result<BTreeMap<u16, u64>> {
    let mut held = BTreeMap::new();
    each_file(mover, &sight.table, |file| count(&mut held, &file)).await?;
    Ok(held)
}

fn count(held: &mut BTreeMap<u16, u64>, file: &Laid) {
    for (server, bytes) in &file.parts {
        *held.entry(*server).or_default() += bytes;
    }
}

/// The largest files whose parts could help.
async fn candidates(mover: &Mover<'_>, sight: &Sight, loads: &[Load]) -> Result<Vec<Laid>> {
    let mut kept = Kept::of(loads);
    if !loads.iter().all(is_right) {
        each_file(mover, &sight.table, |file| kept.offer(file)).await?;
    }
    Ok(kept.files.into_values().collect())
}

/// Files that are thought of: the largest ones that lie on a server which has too much, by their largest part and number.
struct Kept<'a> {
    loads: &'a [Load],
    files: BTreeMap<(u64, Id), Laid>,
}

impl Kept<'_> {
    fn of(loads: &[Load]) -> Kept<'_> {
        Kept { loads, files: BTreeMap::new() }
    }

    fn offer(&mut self, file: Laid) {
        let lacks = self.loads.iter().map(below).max().unwrap_or(0);
        // More than that brings no two servers nearer.
        let helps = |load: &Load| {
            let bytes = file.on(load.server).unwrap_or(0);
            bytes > 0 && above(load) > 0 && bytes <= u64::midpoint(above(load), lacks)
        };
        if !self.loads.iter().any(helps) {
            return;
        }
        self.files.insert((file.largest(), file.id), file);
        if self.files.len() > FILES_MAX {
            self.files.pop_first();
        }
    }
}

/// What the servers hold is shown with what they held at first.
fn show(mover: &Mover<'_>, loads: &[Load]) {
    mover.control.change(|progress| {
        let old = std::mem::take(&mut progress.loads.0);
        let before = |load: &Load| old.iter().find(|old| old.server == load.server);
        let with = |load: &Load| Load {
            before: before(load).map_or(load.held, |old| old.before),
            ..*load
        };
        progress.loads = List(loads.iter().map(with).collect());
    });
}

pub(super) fn above(load: &Load) -> u64 {
    load.held.saturating_sub(load.share)
}

pub(super) fn below(load: &Load) -> u64 {
    load.share.saturating_sub(load.held)
}

pub(super) fn is_right(load: &Load) -> bool {
    u128::from(load.held.abs_diff(load.share)) * 100 <= u128::from(load.share) * u128::from(WITHIN)
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
        let mut parts: Vec<(u16, u64)> = Vec::with_capacity(chains.len());
        for (head, bytes) in chains.iter().map(bytes) {
            let Some(head) = head else { continue };
            match parts.iter_mut().find(|(at, _)| *at == head) {
                Some(part) => part.1 = part.1.saturating_add(bytes),
                None => parts.push((head, bytes)),
            }
        }
        Some(Laid { id: inode.id, parts })
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

/// What the open servers hold. Each one's share is by the size of its disk.
fn loads(held: &BTreeMap<u16, u64>, open: &[u16], sight: &Sight) -> Vec<Load> {
    let held = |at: u16| held.get(&at).copied().unwrap_or(0);
    let size = |at: u16| sight.place(at).map_or(1, |place| place.bytes_total.max(1));
    let all = open.iter().map(|&at| u128::from(held(at))).sum::<u128>();
    let sizes = open.iter().map(|&at| u128::from(size(at))).sum::<u128>();
    let share = |at| (all * u128::from(size(at)) / sizes.max(1)) as u64;
    let load = |&at: &u16| Load { server: at, before: held(at), held: held(at), share: share(at) };
    open.iter().map(load).collect()
}

/// What is to move: the largest parts first, each from the server that has most above its share to the one that lacks most,
/// as long as that brings both nearer.
fn plan(mut files: Vec<Laid>, mut loads: Vec<Load>) -> HashMap<Id, Step> {
    files.sort_by_key(|file| Reverse((file.largest(), file.id)));
    let mut steps = HashMap::new();
    for file in &files {
        if loads.iter().all(is_right) {
            break;
        }
        let (here, elsewhere): (Vec<usize>, Vec<usize>) =
            (0..loads.len()).partition(|&at| file.on(loads[at].server).is_some());
        let from = here.into_iter().max_by_key(|&at| above(&loads[at]));
        let to = elsewhere.into_iter().max_by_key(|&at| below(&loads[at]));
        let (Some(from), Some(to)) = (from, to) else { continue };
        let bytes = file.on(loads[from].server).unwrap_or(0);
        let (above, below) = (above(&loads[from]), below(&loads[to]));
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
    let there = table.led_by(&[to]);
    *old = there.get(usize::from(*old) % there.len().max(1)).copied()?;
    Some(chains)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(id: Id, size: u64, servers: &[u16]) -> Laid {
        let part = size / servers.len() as u64;
        Laid { id, parts: servers.iter().map(|&at| (at, part)).collect() }
    }

    fn place(bytes_total: u64) -> Place {
        let server = Name::from("io");
        Place { server, state: 0, is_serving: true, bytes_total, bytes_available: bytes_total }
    }

    fn loads_of(files: &[Laid], open: &[u16], sight: &Sight) -> Vec<Load> {
        let mut held = BTreeMap::new();
        files.iter().for_each(|file| count(&mut held, file));
        loads(&held, open, sight)
    }

    /// What each holds after all steps.
    fn moved(files: &[Laid], open: &[u16], places: &[Place]) -> (Vec<Load>, usize) {
        let sight = Sight { places: places.to_vec(), table: Table::of_servers(places.len()) };
        let before = loads_of(files, open, &sight);
        let mut kept = Kept::of(&before);
        files.iter().for_each(|file| kept.offer(file.clone()));
        let thought_of = kept.files.into_values().collect();
        let steps = plan(thought_of, before.clone());
        let mut after = files.to_vec();
        for file in &mut after {
            let Some(step) = steps.get(&file.id) else { continue };
            let part = file.parts.iter_mut().find(|(at, _)| *at == step.from).unwrap();
            part.0 = step.to;
        }
        (loads_of(&after, open, &sight), steps.len())
    }

    #[test]
    fn a_new_server_gets_its_share_of_files_on_all_the_others() {
        let places = [place(1000), place(1000), place(1000), place(1000)];
        let files: Vec<Laid> = (0..60).map(|id| file(id, 3 << 20, &[0, 1, 2])).collect();
        let (after, steps) = moved(&files, &[0, 1, 2, 3], &places);
        assert!(after.iter().all(is_right), "{after:?}");
        assert!((40..=48).contains(&steps), "a quarter of all parts: {steps}");
    }

    #[test]
    fn shares_are_by_the_size_of_the_disks_and_who_is_not_open_keeps_what_it_has() {
        let places = [place(3000), place(1000), place(1000)];
        let files: Vec<Laid> = (0..80).map(|id| file(id, 1 << 20, &[1])).collect();
        let (after, _) = moved(&files, &[0, 1], &places);
        assert_eq!((after[0].share, after[1].share), (60 << 20, 20 << 20));
        assert!(after.iter().all(is_right), "{after:?}");
        let files: Vec<Laid> = (0..80).map(|id| file(id, 1 << 20, &[2])).collect();
        assert_eq!(moved(&files, &[0, 1], &places).1, 0);
    }

    #[test]
    fn a_server_that_is_started_anew_is_waited_for_and_one_that_is_dead_is_not() {
        let gone = Place { is_serving: false, ..place(1000) };
        let away = Place { state: place::AWAY, ..gone.clone() };
        let back = Place { is_serving: true, ..away.clone() };
        let closed = Place { state: 1, ..gone.clone() };
        let (mut absent, begun) = (Absent::default(), Instant::now());
        let mut may_return = |places: [&Place; 2], after| {
            let places = places.map(Clone::clone).to_vec();
            absent.may_return(&Sight { places, table: Table::of_servers(2) }, begun + after)
        };
        let (there, at_once, late) = (place(1000), Duration::ZERO, GRACE);
        assert!(!may_return([&there, &there], at_once));
        assert!(!may_return([&there, &closed], at_once), "it is to take no files");
        assert!(may_return([&there, &gone], at_once));
        assert!(may_return([&there, &away], at_once));
        assert!(may_return([&there, &back], at_once), "it takes files in a moment");
        assert!(!may_return([&there, &away], late));
        assert!(may_return([&gone, &gone], late), "another one");
        assert!(!may_return([&there, &there], late));
        assert!(may_return([&there, &gone], late), "it was back");
    }

    #[test]
    fn one_large_file_does_not_go_back_and_forth() {
        let places = [place(1000), place(1000)];
        let files = [file(1, 1 << 30, &[0]), file(2, 1 << 20, &[1])];
        assert_eq!(moved(&files, &[0, 1], &places).1, 0, "it would be as uneven");
    }

    #[test]
    fn of_more_files_than_are_thought_of_the_largest_that_help_are_kept() {
        let load = |server, held| Load { server, before: held, held, share: 1 << 20 };
        let loads = [load(0, 2 << 20), load(1, 0)];
        let mut kept = Kept::of(&loads);
        let offered = FILES_MAX as u64 + 10;
        (0..offered).for_each(|id| kept.offer(file(id, 1 + id, &[0])));
        // These would bring nothing.
        kept.offer(file(offered, 3 << 20, &[0]));
        kept.offer(file(offered + 1, 1000, &[1]));
        assert_eq!(kept.files.len(), FILES_MAX);
        assert_eq!(kept.files.first_key_value().unwrap().0, &(11, 10));
        assert_eq!(kept.files.last_key_value().unwrap().0.1, offered - 1);
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
