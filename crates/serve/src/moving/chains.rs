//! Chains that go to other I/O servers with all that lies on them, whether it is in use or not.
//!
//! Only where a server has several of them: the only one of a server would make another's load twice as large.

use super::mover::{Mover, Sight};
use super::rebalance::{above, below, is_right};
use covey_ninep::tree::Errno;
use covey_stripe::check::{bytes_on, laid_out_after};
use covey_stripe::client::Result;
use covey_stripe::ops::Load;
use covey_wire::Name;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What has become of a server's chains.
pub(super) enum Away {
    /// It has none any more.
    All,
    /// Some stay, and why.
    Stay(String),
    /// Chains do not move in this cluster.
    None,
}

/// What has become of an attempt to level servers by moving chains.
pub(super) enum Leveled {
    /// Some were moved.
    Moved,
    /// None of those that should have been.
    Failed,
    /// No chain brings two servers nearer to their shares.
    Nothing,
}

/// What lies on a chain.
#[derive(Clone, Copy, Debug, Default)]
struct Laid {
    bytes: u64,
    /// Of files without holes: so much space they take at least.
    dense: u64,
    files: u64,
}

/// Whether chains are moved: servers have several.
fn are_many(sight: &Sight) -> bool {
    sight.table.0.len() > sight.places.len()
}

/// Gives all chains of a server to others.
pub(super) async fn away(mover: &Mover<'_>, server: u16) -> Result<Away> {
    let sight = mover.look().await?;
    if !are_many(&sight) {
        return Ok(Away::None);
    }
    let chains = sight.table.led_by(&[server]);
    if chains.is_empty() {
        return Ok(Away::All);
    }
    let laid = laid(mover, &chains).await?;
    mover.expects(laid.values().map(|laid| laid.bytes).fold(0, u64::saturating_add));
    let (mut stays, mut full) = (None, BTreeSet::new());
    for chain in chains {
        let sight = mover.look_anew().await?;
        if !sight.is_serving(server) {
            return Ok(Away::Stay("it does not serve".into()));
        }
        let Some(to) = emptiest(&sight, server, &full, laid[&chain].dense) else {
            stays.get_or_insert("no other I/O server has space for a chain".to_owned());
            continue;
        };
        match mover.move_chain(chain, to, laid[&chain].files).await {
            Ok(()) => {}
            Err(error) if error.code() == Errno::ECANCELED => return Err(error),
            Err(error) => {
                if matches!(error.code(), Errno::ENOSPC | Errno::EDQUOT) {
                    full.insert(to);
                }
                tracing::warn!("chain {chain} stays where it is: {error}");
                stays = Some(format!("chain {chain} stays: {error}"));
            }
        }
    }
    Ok(stays.map_or(Away::All, Away::Stay))
}

/// The server that has fewest chains, and of these the one with most space; none whose disk has not so many bytes: it would be
/// filled up for nothing.
fn emptiest(sight: &Sight, but: u16, full: &BTreeSet<u16>, bytes: u64) -> Option<u16> {
    let has_space = |at: &u16| {
        let place = sight.place(*at);
        place.is_some_and(|place| place.bytes_total == 0 || place.bytes_available > bytes)
    };
    let others = sight.open().into_iter().filter(|at| *at != but && !full.contains(at));
    let others = others.filter(has_space);
    let space = |at: u16| sight.place(at).map_or(0, |place| place.bytes_available);
    others.min_by_key(|&at| (sight.table.led_by(&[at]).len(), Reverse(space(at)), at))
}

/// Moves chains from servers that hold more than their share to those that hold less.
pub(super) async fn level(mover: &Mover<'_>, sight: &Sight, loads: &[Load]) -> Result<Leveled> {
    if !are_many(sight) || loads.iter().all(is_right) {
        return Ok(Leveled::Nothing);
    }
    let servers: Vec<u16> = loads.iter().map(|load| load.server).collect();
    let laid = laid(mover, &sight.table.led_by(&servers)).await?;
    let on = |server: u16| sight.table.led_by(&[server]);
    // As the loads are counted: what a file with holes takes is not known.
    let sizes = laid.iter().map(|(chain, laid)| (*chain, laid.dense)).collect();
    let steps = plan(loads, on, &sizes);
    mover.expects(steps.iter().map(|(chain, _)| sizes[chain]).fold(0, u64::saturating_add));
    let mut leveled = if steps.is_empty() { Leveled::Nothing } else { Leveled::Failed };
    for (chain, to) in steps {
        match mover.move_chain(chain, to, laid[&chain].files).await {
            Ok(()) => leveled = Leveled::Moved,
            Err(error) if error.code() == Errno::ECANCELED => return Err(error),
            Err(error) => tracing::warn!("chain {chain} stays where it is: {error}"),
        }
    }
    Ok(leveled)
}

/// The largest chains first, each from the server that has most above its share to the one that lacks most, as long as
/// that brings both nearer.
fn plan(
    loads: &[Load],
    on: impl Fn(u16) -> Vec<u16>,
    sizes: &BTreeMap<u16, u64>,
) -> Vec<(u16, u16)> {
    let mut loads = loads.to_vec();
    let mut left: BTreeMap<u16, Vec<u16>> =
        loads.iter().map(|load| (load.server, on(load.server))).collect();
    let mut steps = Vec::new();
    while !loads.iter().all(is_right)
        && let Some((chain, from, to)) = next(&loads, &left, sizes)
    {
        left.entry(loads[from].server).or_default().retain(|other| *other != chain);
        // Files come and go between the counts.
        loads[from].held = loads[from].held.saturating_sub(sizes[&chain]);
        loads[to].held = loads[to].held.saturating_add(sizes[&chain]);
        steps.push((chain, loads[to].server));
    }
    steps
}

/// A chain that helps, and the places of the loads from which and to which it should go.
fn next(
    loads: &[Load],
    left: &BTreeMap<u16, Vec<u16>>,
    sizes: &BTreeMap<u16, u64>,
) -> Option<(u16, usize, usize)> {
    let to = (0..loads.len()).max_by_key(|&at| below(&loads[at]))?;
    let lacks = below(&loads[to]);
    let mut from: Vec<usize> = (0..loads.len()).filter(|&at| above(&loads[at]) > 0).collect();
    from.sort_by_key(|&at| Reverse(above(&loads[at])));
    from.into_iter().filter(|_| lacks > 0).find_map(|from| {
        let helps = |chain: &&u16| {
            let bytes = sizes.get(chain).copied().unwrap_or(0);
            bytes > 0 && bytes <= u64::midpoint(above(&loads[from]), lacks)
        };
        let chains = left.get(&loads[from].server)?;
        let best = chains.iter().filter(helps).max_by_key(|chain| sizes[chain])?;
        Some((*best, from, to))
    })
}

/// What lies on these chains.
async fn laid(mover: &Mover<'_>, chains: &[u16]) -> Result<BTreeMap<u16, Laid>> {
    let mut laid: BTreeMap<u16, Laid> =
        chains.iter().map(|&chain| (chain, Laid::default())).collect();
    let mut after = Some(Name::EMPTY);
    while let Some(next) = after {
        mover.must_go_on()?;
        let (files, rest) = laid_out_after(mover.fs, next).await?;
        for inode in &files {
            for chain in inode.striping.iter().flat_map(|striping| &striping.servers.0) {
                if let (Some(on), Some(bytes)) = (laid.get_mut(chain), bytes_on(inode, *chain)) {
                    (on.bytes, on.files) = (on.bytes.saturating_add(bytes), on.files + 1);
                    on.dense = on.dense.saturating_add(if inode.sparse { 0 } else { bytes });
                }
            }
        }
        after = rest;
    }
    Ok(laid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_stripe::chain::{Chain, Table};
    use covey_stripe::ops::Place;

    #[test]
    fn a_chain_goes_to_no_disk_that_it_would_fill() {
        let place = |bytes_available| Place {
            is_serving: true,
            bytes_total: 1000,
            bytes_available,
            ..Place::default()
        };
        let unknown = Place { is_serving: true, ..Place::default() };
        let table = Table(vec![Chain::of_one(0), Chain::of_one(0), Chain::of_one(2)]);
        let places = vec![place(900), place(50), place(500)];
        let sight = Sight { places, table: table.clone() };
        let to = |sight: &Sight, bytes| emptiest(sight, 0, &BTreeSet::new(), bytes);
        assert_eq!(to(&sight, 40), Some(1), "it has none yet");
        assert_eq!(to(&sight, 50), Some(2));
        assert_eq!(to(&sight, 500), None);
        let sight = Sight { places: vec![place(900), unknown], table };
        assert_eq!(to(&sight, 1 << 40), Some(1), "that will be seen");
    }

    #[test]
    fn chains_level_what_servers_hold_and_none_moves_in_vain() {
        let load = |server, held| Load { server, before: held, held, share: 320 };
        let sizes: BTreeMap<u16, u64> = (0..64).map(|chain| (chain, 25)).collect();
        let on = |server: u16| (0..64).filter(|chain| chain % 4 == server && server < 4).collect();
        let loads = [load(0, 400), load(1, 400), load(2, 400), load(3, 400), load(4, 0)];
        let steps = plan(&loads, on, &sizes);
        assert!((12..=13).contains(&steps.len()), "a fifth of all chains: {steps:?}");
        assert!(steps.iter().all(|(_, to)| *to == 4), "{steps:?}");
        // One large chain would make it as uneven as it is.
        let sizes = BTreeMap::from([(0, 1000)]);
        let loads = [load(0, 1000), load(1, 0)];
        let loads = loads.map(|load| Load { share: 500, ..load });
        let on = |server| if server == 0 { vec![0] } else { vec![] };
        assert_eq!(plan(&loads, on, &sizes), []);
        // What the fullest has does not help, what another has does.
        let load = |server, held| Load { server, before: held, held, share: 300 };
        let loads = [load(0, 450), load(1, 380), load(2, 70)];
        let on = |server| vec![server];
        let sizes = BTreeMap::from([(0, 450), (1, 100), (2, 70)]);
        assert_eq!(plan(&loads, on, &sizes), [(1, 2)]);
        // It has grown since the servers were counted.
        let loads = [Load { share: 100, ..load(0, 150) }, Load { share: 9000, ..load(1, 0) }];
        assert_eq!(plan(&loads, on, &BTreeMap::from([(0, 500)])), [(0, 1)]);
    }
}
