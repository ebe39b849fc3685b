//! What lies on an I/O server goes to the others: its chains, and where these cannot go, files one by one.

use super::chains::{self, Away};
use super::mover::{Mover, PASSES, PAUSE, Sight, Tried};
use covey_io::task;
use covey_stripe::check::laid_out_after;
use covey_stripe::client::Result;
use covey_stripe::meta::NUMBERS_OVER;
use covey_stripe::ops::{Id, Inode, Striping};
use covey_wire::Name;
use std::time::{Duration, Instant};

/// Files that stay are remembered up to this many, and tried again without looking at all others.
const LEFT_MAX: usize = 100_000;
/// The pause before what was in use for some time is tried again.
const LONG_PAUSE: Duration = Duration::from_secs(10);
/// A server that has gone away is waited for so long before it is said: a restart is shorter.
const GRACE: Duration = Duration::from_secs(5);

/// Moves files until none is laid out on the server.
pub(super) async fn drain(mover: &Mover<'_>, server: u16) -> Result<()> {
    let (mut left, mut fruitless) = (Vec::new(), 0);
    let began = task::now();
    while is_ready(mover, server).await? {
        let stays = match chains::away(mover, server).await? {
            Away::All => return Ok(()),
            Away::Stay(why) => Some(why),
            Away::None => None,
        };
        // Before it is said what stays, all are looked at once more: files may have come by layouts from before.
        let is_last = fruitless + 1 == PASSES;
        let before = std::mem::take(&mut left);
        let tried = if before.is_empty() || is_last {
            let bytes = laid_out(mover, server).await?;
            let Some(bytes) = bytes else { return Ok(()) };
            mover.expects(bytes);
            try_all(mover, server).await?
        } else {
            try_some(mover, before, server).await?
        };
        mover.report(&tried);
        fruitless = match tried.moved {
            0 if is_last && task::now() < began + NUMBERS_OVER => fruitless,
            0 => fruitless + 1,
            _ => 0,
        };
        if tried.moved > 0 {
            mover.control.goes_on();
        }
        if fruitless >= PASSES {
            mover.control.waits(&stays.unwrap_or_else(|| why(&tried)));
        }
        if tried.left.len() <= LEFT_MAX {
            left = tried.left;
        }
        if left.is_empty() && tried.moved > 0 {
            continue;
        }
        let pause = if fruitless < PASSES { PAUSE } else { LONG_PAUSE };
        if mover.rest(pause).await {
            fruitless = 0;
        }
    }
    Ok(())
}

fn why(tried: &Tried) -> String {
    match (tried.left.len(), tried.failures.len()) {
        (1, 0) => "a file is in use".into(),
        (1, _) => "a file cannot be moved".into(),
        (0, _) => "files do not fit on the I/O servers that are left".into(),
        (left, 0) => format!("{left} files are in use"),
        (left, _) => format!("{left} files are in use or cannot be moved"),
    }
}

/// Waits until files can move from the server to others; false where it was removed.
async fn is_ready(mover: &Mover<'_>, server: u16) -> Result<bool> {
    let mut since: Option<Instant> = None;
    loop {
        let sight = mover.look().await?;
        if sight.is_removed(server) {
            return Ok(false);
        }
        let name = sight.place(server).map(|place| place.server.lossy().into_owned());
        let why = if !sight.is_serving(server) {
            format!("{} does not serve", name.unwrap_or_default())
        } else if sight.open().iter().all(|at| *at == server) {
            "no other I/O server takes files".to_owned()
        } else {
            if since.is_some() {
                mover.control.goes_on();
            }
            return Ok(true);
        };
        let begun = *since.get_or_insert_with(task::now);
        if task::now().saturating_duration_since(begun) >= GRACE {
            mover.control.waits(&why);
        }
        mover.rest(PAUSE).await;
    }
}

/// How many bytes the files have that are laid out there; None where there is no file.
async fn laid_out(mover: &Mover<'_>, server: u16) -> Result<Option<u64>> {
    let (mut bytes, mut after) = (None, Some(Name::EMPTY));
    while let Some(next) = after {
        let sight = mover.look().await?;
        let (files, rest) = laid_out_after(mover.fs, next).await?;
        for inode in files.iter().filter(|inode| is_there(&sight, inode, server)) {
            bytes = Some(inode.size.saturating_add(bytes.unwrap_or(0)));
        }
        after = rest;
    }
    Ok(bytes)
}

fn is_there(sight: &Sight, inode: &Inode, server: u16) -> bool {
    let chains = inode.striping.iter().flat_map(|striping| &striping.servers.0);
    chains.into_iter().any(|&chain| sight.table.is_on(chain, server))
}

async fn try_all(mover: &Mover<'_>, server: u16) -> Result<Tried> {
    let (mut all, mut after) = (Tried::default(), Some(Name::EMPTY));
    while let Some(next) = after {
        let sight = mover.look().await?;
        let (files, rest) = laid_out_after(mover.fs, next).await?;
        let there = files.iter().filter(|inode| is_there(&sight, inode, server));
        let ids = there.map(|inode| inode.id).collect();
        all.add(try_some(mover, ids, server).await?);
        if !mover.look().await?.is_serving(server) {
            break;
        }
        after = rest;
    }
    Ok(all)
}

async fn try_some(mover: &Mover<'_>, ids: Vec<Id>, server: u16) -> Result<Tried> {
    let choose = |sight: &Sight, id, striping: &Striping| {
        let mut open = sight.open();
        open.retain(|at| *at != server);
        let is_drained = |chain: u16| sight.table.is_on(chain, server);
        let open = sight.table.led_by(&open);
        elsewhere(striping, is_drained, |chain| sight.table.head(chain), &open, id)
    };
    mover.move_all(ids, Some(server), choose).await
}

/// The chains of a striping without those that are drained: others take their places, or there are fewer.
fn elsewhere(
    striping: &Striping,
    is_drained: impl Fn(u16) -> bool,
    server: impl Fn(u16) -> Option<u16>,
    open: &[u16],
    id: Id,
) -> Option<Vec<u16>> {
    let chains = &striping.servers.0;
    if !chains.iter().any(|&chain| is_drained(chain)) {
        return None;
    }
    // No two parts on one server.
    let stay = chains.iter().filter(|&&chain| !is_drained(chain));
    let stay: Vec<Option<u16>> = stay.map(|&chain| server(chain)).collect();
    let is_other = |chain: &u16| !is_drained(*chain) && !stay.contains(&server(*chain));
    let mut others: Vec<u16> = open.iter().copied().filter(is_other).collect();
    let mut other = || {
        let at = (id % others.len().max(1) as u64) as usize;
        let found = others.get(at).copied()?;
        others.retain(|&chain| server(chain) != server(found));
        Some(found)
    };
    let new: Vec<u16> = chains
        .iter()
        .filter_map(|&chain| if is_drained(chain) { other() } else { Some(chain) })
        .collect();
    (!new.is_empty()).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_wire::List;

    #[test]
    fn another_server_takes_the_place_of_the_drained_one_or_there_is_one_less() {
        let striping = |servers: &[u16]| Striping {
            kind: 1,
            strip_bytes: 4096,
            params: List(Vec::new()),
            servers: List(servers.to_vec()),
        };
        let to = |servers: &[u16], open: &[u16]| {
            elsewhere(&striping(servers), |chain| chain == 1, Some, open, 7)
        };
        assert_eq!(to(&[0, 1], &[0, 2]), Some(vec![0, 2]));
        assert_eq!(to(&[0, 1, 2], &[0, 2]), Some(vec![0, 2]));
        assert_eq!(to(&[0, 2], &[0, 2, 3]), None, "nothing lies there");
        assert_eq!(to(&[1], &[]), None, "there is no other");
        assert_eq!(to(&[1], &[4, 5, 6]), Some(vec![5]), "7 of 3");
        let both = elsewhere(&striping(&[0, 1]), |chain| chain < 2, Some, &[0, 1, 4, 5, 6], 7);
        assert_eq!(both, Some(vec![5, 6]), "each chain of the server gets a place of its own");
        assert_eq!(elsewhere(&striping(&[0, 1]), |chain| chain < 2, Some, &[4], 7), Some(vec![4]));
        // Of four chains on each server.
        let on = |chain: u16| Some(chain / 4);
        let one = elsewhere(&striping(&[0, 4]), |chain| chain < 4, on, &[4, 5, 6, 7, 8, 9], 7);
        assert_eq!(one, Some(vec![9, 4]), "no two parts on one server");
    }
}
