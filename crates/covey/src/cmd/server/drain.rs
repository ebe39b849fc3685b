//! `covey server drain`: what lies on an I/O server goes to the others.

use super::index;
use super::moving::{Moving, Seen, ask, json_of, tell as tell_task};
use crate::cmd::{Context, path::text};
use crate::error::{Cannot, Error, Result};
use crate::output::counted;
use covey_stripe::check::{Held, laid_out_on, paths_in_words};
use covey_stripe::client::Fs;
use covey_stripe::ops::{Task, task};
use serde_json::json;
use std::io::Write;

/// Files that stay are named up to this many.
const NAMED_MAX: u64 = 10_000;

/// Has a server closed, and the files moved that are laid out there.
pub async fn drain(fs: &Fs, node: &str, moving: Moving, context: &Context) -> Result<()> {
    let what = format!("drain {node}");
    let server = index(fs, node, what.clone()).await?;
    match ask(fs, (task::DRAIN, server), &what, moving, context).await? {
        Seen::Told(one) => tell_task(&one, fs, context),
        Seen::Settled(one) => {
            let is_to_be_named = one.state == task::ON && one.progress.left <= NAMED_MAX;
            let left = if is_to_be_named && one.progress.left > 0 {
                laid_out_on(fs, server).await.cannot(|| what)?
            } else {
                Vec::new()
            };
            tell(fs, node, &one, &left, context)
        }
    }
}

fn tell(fs: &Fs, node: &str, one: &Task, left: &[Held], context: &Context) -> Result<()> {
    let progress = &one.progress;
    let paths = |one: &Held| one.paths.iter().map(|path| text(path)).collect::<Vec<_>>();
    let named = |id| left.iter().find(|one| one.inode.id == id);
    let errors: Vec<String> = progress
        .failures
        .0
        .iter()
        .map(|failure| {
            let name = named(failure.id).map(|one| paths_in_words(&one.paths));
            let name = name.unwrap_or_else(|| format!("file {}", failure.id));
            format!("{name}: {}", failure.reason.lossy())
        })
        .collect();
    let mut value = json_of(one, &fs.servers());
    value["server"] = json!(node);
    value["errors"] = json!(errors);
    let left_paths = left.iter().map(|one| json!({ "id": one.inode.id, "paths": paths(one) }));
    value["left"] = left_paths.collect();
    context.output.result(&value, |out| {
        let files = counted(progress.files, "file");
        writeln!(out, "moved {files}, {} bytes copied", progress.bytes)?;
        left.iter().try_for_each(|one| writeln!(out, "left: {}", paths_in_words(&one.paths)))
    })?;
    errors.iter().for_each(|error| context.output.say(error));
    match one.state {
        task::DONE => Ok(()),
        task::ON => Err(waits(node, one, left.len() as u64)),
        task::PAUSED => Err(Error::work(format!("drain {node} was paused"))
            .hint(format!("`covey server drain {node} --resume`"))),
        _ => Err(Error::work(format!("drain {node} was ended"))),
    }
}

/// It is not done, and nothing moves now.
fn waits(node: &str, one: &Task, left: u64) -> Error {
    let why = one.progress.waits.lossy();
    let hint = format!(
        "the servers move them as soon as they can, whether this command waits or not: `covey server ls` shows it, \
         `covey server drain {node} --stop` ends it"
    );
    let is = if left == 1 { "is" } else { "are" };
    let what = match left {
        0 => format!("drain {node} waits: {why}"),
        _ => format!("{} still {is} on {node}: {why}", counted(left, "file")),
    };
    Error::work(what).hint(hint)
}
