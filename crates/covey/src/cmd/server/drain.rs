//! `covey server drain`: what lies on an I/O server goes to the others.

use super::moving::{Done, Leaving, PASSES, PAUSE, Rate, open_servers};
use super::reporter::Reporter;
use super::{Door, index, places, set_door};
use crate::cmd::{Context, path::text};
use crate::error::{Cannot, Error, Result};
use crate::output::counted;
use covey_stripe::check::{Held, chain_table, laid_out_on, paths_in_words};
use covey_stripe::client::Fs;
use covey_stripe::ops::{Id, Striping};
use serde_json::json;
use std::io::Write;

/// Closes a server, and moves the files that are laid out there.
pub async fn drain(fs: &Fs, node: &str, rate: Rate, context: &Context) -> Result<()> {
    let cannot = || format!("drain {node}");
    let server = index(fs, node, cannot()).await?;
    set_door(fs, node, server, Door::Closed).await?;
    if !places(fs).await?.get(usize::from(server)).is_some_and(|place| place.is_serving) {
        let what =
            format!("cannot {}: it does not serve, so nothing can be read from it", cannot());
        let hint = format!("`covey files --on {node}` lists what lies there; it gets no new files");
        return Err(Error::work(what).hint(hint));
    }
    let mut left = laid_out_on(fs, server).await.cannot(cannot)?;
    let table = chain_table(fs).await.cannot(cannot)?;
    let bar = context
        .output
        .progress(Some(left.iter().fold(0, |sum, one| one.inode.size.saturating_add(sum))));
    let reporter = Reporter::begin(context.config()?, format!("drain {node}"), &bar);
    let mut done = Done::begin(rate);
    for pass in 0..PASSES {
        if left.is_empty() {
            break;
        }
        if pass > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let mut open = open_servers(&places(fs).await?);
        open.retain(|at| *at != server);
        if open.is_empty() {
            let what = format!("cannot {}: no other I/O server takes files", cannot());
            return Err(Error::work(what).hint("`covey server ls` shows why"));
        }
        done.errors.clear();
        let leaving = |one: &Held| Leaving { id: one.inode.id, name: paths_in_words(&one.paths) };
        let files = left.iter().map(leaving).collect();
        let open = table.led_by(&open);
        let is_drained = |chain: u16| table.is_on(chain, server);
        let choose = |id, striping: &Striping| elsewhere(striping, is_drained, &open, id);
        done.move_all(fs, files, choose, &bar).await;
        left = laid_out_on(fs, server).await.cannot(cannot)?;
    }
    drop(reporter);
    bar.finish_and_clear();
    tell(node, &done, &left, context)
}

/// The chains of a striping without those that are drained: others take their places, or there are fewer.
fn elsewhere(
    striping: &Striping,
    is_drained: impl Fn(u16) -> bool,
    open: &[u16],
    id: Id,
) -> Option<Vec<u16>> {
    let chains = &striping.servers.0;
    if !chains.iter().any(|&chain| is_drained(chain)) {
        return None;
    }
    let is_other = |chain: &u16| !chains.contains(chain) && !is_drained(*chain);
    let mut others: Vec<u16> = open.iter().copied().filter(is_other).collect();
    let mut other = || {
        let at = (id % others.len().max(1) as u64) as usize;
        (at < others.len()).then(|| others.remove(at))
    };
    let new: Vec<u16> = chains
        .iter()
        .filter_map(|&chain| if is_drained(chain) { other() } else { Some(chain) })
        .collect();
    (!new.is_empty()).then_some(new)
}

fn tell(node: &str, done: &Done, left: &[Held], context: &Context) -> Result<()> {
    let paths = |one: &Held| one.paths.iter().map(|path| text(path)).collect::<Vec<_>>();
    let value = json!({
        "server": node, "files_moved": done.files, "bytes_copied": done.bytes, "errors": done.errors,
        "left": left.iter().map(|one| json!({ "id": one.inode.id, "paths": paths(one) }))
            .collect::<Vec<_>>(),
    });
    context.output.result(&value, |out| {
        let files = counted(done.files, "file");
        writeln!(out, "moved {files}, {} bytes copied", done.bytes)?;
        left.iter().try_for_each(|one| writeln!(out, "left: {}", paths_in_words(&one.paths)))
    })?;
    done.errors.iter().for_each(|error| context.output.say(error));
    if left.is_empty() {
        return Ok(());
    }
    let what = format!("{} still {} on {node}", counted(left.len() as u64, "file"), {
        if left.len() == 1 { "is" } else { "are" }
    });
    Err(Error::work(what).hint(
        "files that somebody has open stay where they are: `covey server drain` moves them when they are closed",
    ))
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
            elsewhere(&striping(servers), |chain| chain == 1, open, 7)
        };
        assert_eq!(to(&[0, 1], &[0, 2]), Some(vec![0, 2]));
        assert_eq!(to(&[0, 1, 2], &[0, 2]), Some(vec![0, 2]));
        assert_eq!(to(&[0, 2], &[0, 2, 3]), None, "nothing lies there");
        assert_eq!(to(&[1], &[]), None, "there is no other");
        assert_eq!(to(&[1], &[4, 5, 6]), Some(vec![5]), "7 of 3");
        let both = elsewhere(&striping(&[0, 1]), |chain| chain < 2, &[0, 1, 4, 5, 6], 7);
        assert_eq!(both, Some(vec![5, 6]), "each chain of the server gets a place of its own");
        assert_eq!(elsewhere(&striping(&[0, 1]), |chain| chain < 2, &[4], 7), Some(vec![4]));
    }
}
