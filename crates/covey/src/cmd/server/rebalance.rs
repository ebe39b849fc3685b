//! `covey server rebalance`: every I/O server holds its share of the bytes.

use super::moving::{Moving, Seen, ask, json_of, tell as tell_task};
use crate::cmd::Context;
use crate::config::size;
use crate::error::{Error, Result};
use crate::output::counted;
use covey_stripe::client::Fs;
use covey_stripe::ops::{Load, Task, task};
use serde_json::json;
use std::io::Write;

/// Has files moved from servers that hold more than their share of the bytes to those that hold less.
pub async fn rebalance(fs: &Fs, moving: Moving, context: &Context) -> Result<()> {
    match ask(fs, (task::REBALANCE, 0), "rebalance", moving, context).await? {
        Seen::Told(one) => tell_task(&one, fs, context),
        Seen::Settled(one) => tell(fs, &one, context),
    }
}

fn tell(fs: &Fs, one: &Task, context: &Context) -> Result<()> {
    let (servers, progress) = (fs.servers(), &one.progress);
    let name = |load: &Load| servers.get(usize::from(load.server)).map_or("?", |name| name);
    let of = |load: &Load| json!({ "server": name(load), "bytes_before": load.before, "bytes": load.held, "share": load.share });
    let errors: Vec<String> = progress
        .failures
        .0
        .iter()
        .map(|failure| format!("file {}: {}", failure.id, failure.reason.lossy()))
        .collect();
    let mut value = json_of(one, &servers);
    value["errors"] = json!(errors);
    value["servers"] = progress.loads.0.iter().map(of).collect();
    context.output.result(&value, |out| {
        let files = counted(progress.files, "file");
        writeln!(out, "moved {files}, {} copied", size::rounded(progress.bytes))?;
        let shown = |load: &Load| {
            let bytes = [load.before, load.held, load.share].map(size::rounded);
            [vec![name(load).to_owned()], bytes.to_vec()].concat()
        };
        let cells: Vec<_> = progress.loads.0.iter().map(shown).collect();
        crate::output::table(out, &["SERVER", ">BEFORE", ">NOW", ">SHARE"], &cells);
        Ok(())
    })?;
    errors.iter().for_each(|error| context.output.say(error));
    match one.state {
        task::DONE if errors.is_empty() => Ok(()),
        task::DONE => {
            let count = counted(errors.len() as u64, "file");
            Err(Error::work(format!("{count} could not be moved")))
        }
        task::ON => Err(Error::work(format!("rebalance waits: {}", progress.waits.lossy()))
            .hint("the servers go on as soon as they can: `covey server ls` shows it")),
        task::PAUSED => {
            Err(Error::work("rebalance was paused").hint("`covey server rebalance --resume`"))
        }
        _ => Err(Error::work("rebalance was ended")),
    }
}
