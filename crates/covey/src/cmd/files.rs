//! `covey files`: the files that have bytes on an I/O server.

use super::path::text;
use super::{Context, server};
use crate::error::{Cannot, Result};
use crate::output::counted;
use covey_stripe::check::{Held, held_by, lost_on, paths_in_words};
use covey_stripe::client::Fs;
use serde_json::json;
use std::io::Write;

/// List the files that have bytes on an I/O server
///
/// By path, with the bytes that lie there and the file's size; it asks the metadata server only, so it also answers for
/// a server that is away. Files that lie with the metadata alone are on no I/O server.
///
/// EXAMPLES
///
///     covey files --on io3
///     covey files --on io3 --lost    what was lost with its disk, and nobody has accepted
///     covey --json files --on io3 | jq -r '.files[].paths[]'
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The I/O server
    #[arg(long, value_name = "NODE")]
    on: String,
    /// Only those of which something was lost there with a disk that was replaced, which nobody has accepted; this asks
    /// the I/O server, too
    #[arg(long)]
    lost: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let result = list(&session.fs, &args, context).await;
    session.close(result).await
}

async fn list(fs: &Fs, args: &Args, context: &Context) -> Result<()> {
    let node = &args.on;
    let cannot = || format!("list the files on {node}");
    let at = server::index(fs, node, cannot()).await?;
    let held = if args.lost { lost_on(fs, at).await } else { held_by(fs, at).await };
    let held = held.cannot(cannot)?;
    let bytes: u64 = held.iter().map(|one| one.bytes).fold(0, u64::saturating_add);
    let files: Vec<_> = held.iter().map(json_of).collect();
    let value = json!({ "server": node, "bytes": bytes, "files": files });
    context
        .output
        .result(&value, |out| held.iter().try_for_each(|one| writeln!(out, "{}", line(one))))?;
    let files = counted(held.len() as u64, "file");
    let were = if args.lost { "were lost " } else { "" };
    context.output.say(format!("{files}, {bytes} bytes {were}on {node}"));
    Ok(())
}

fn json_of(one: &Held) -> serde_json::Value {
    json!({
        "id": one.inode.id, "bytes_on_server": one.bytes, "bytes": one.inode.size,
        "sparse": one.inode.sparse,
        "paths": one.paths.iter().map(|path| text(path)).collect::<Vec<_>>(),
    })
}

/// A file in words: its paths, and how much of it lies there.
pub fn line(one: &Held) -> String {
    let most = if one.inode.sparse { "up to " } else { "" };
    let (paths, size) = (paths_in_words(&one.paths), one.inode.size);
    format!("{paths}: {most}{} of {size} bytes", one.bytes)
}
