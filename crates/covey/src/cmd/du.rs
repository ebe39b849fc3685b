//! `covey du`: what trees take.

use super::path::{Failures, Follow, inside, is_kind, kind, shown, text};
use super::tree::{self, Entry};
use super::{Context, Session};
use crate::config::size;
use crate::error::{Cannot, Result};
use crate::output::quote;
use covey_stripe::ops::Id;
use futures_util::FutureExt;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io::Write;

/// Show how much space files and directories take
///
/// Space allocated on the I/O servers, without holes; --apparent-size adds up sizes instead. A file
/// with several names counts once.
///
/// EXAMPLES
///
///     covey du -sh /doc
///     covey du --apparent-size /doc
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Args {
    /// Where to begin
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<OsString>,
    /// Only the sum of each PATH
    #[arg(short, long, conflicts_with = "all")]
    summarize: bool,
    /// Files too, not only directories
    #[arg(short, long)]
    all: bool,
    /// Sizes such as 1.5M; without it, in KiB
    #[arg(short, long)]
    human_readable: bool,
    /// Add up sizes, not allocated space
    #[arg(long)]
    apparent_size: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let mut failures = Failures::default();
    let mut seen = HashSet::new();
    let mut sums: Vec<(Vec<u8>, u64)> = Vec::new();
    for path in args.paths.iter().map(|path| inside(path)) {
        let inode = session.find("measure", &path, Follow::NotLast).await;
        let Some(inode) = failures.take(inode, context) else { continue };
        let entries =
            tree::list(&session, "list", (path.clone(), inode), &mut failures, context).await;
        let entries = once(entries, &mut seen);
        let bytes = measure(&args, &session, entries, &mut failures, context).await;
        sums.extend(add_up(&args, &path, bytes));
    }
    let json: Vec<_> = sums
        .iter()
        .map(|(path, bytes)| serde_json::json!({ "path": text(path), "bytes": bytes }))
        .collect();
    let result = context.output.result(&json, |out| {
        for (path, bytes) in &sums {
            let text = if args.human_readable {
                size::short(*bytes)
            } else {
                bytes.div_ceil(1024).to_string()
            };
            write!(out, "{text}\t")?;
            out.extend([&quote::name(path), &b"\n"[..]].concat());
        }
        Ok(())
    });
    session.close(result).await?;
    failures.result()
}

/// A file is counted under the first of its names.
fn once(entries: Vec<Entry>, seen: &mut HashSet<Id>) -> Vec<Entry> {
    let is_new =
        |(_, inode): &Entry| is_kind(inode, kind::DIR) || inode.nlink < 2 || seen.insert(inode.id);
    entries.into_iter().filter(is_new).collect()
}

/// What each takes: (path, whether a directory, bytes).
async fn measure(
    args: &Args,
    session: &Session,
    entries: Vec<Entry>,
    failures: &mut Failures,
    context: &Context,
) -> Vec<(Vec<u8>, bool, u64)> {
    let apparent = args.apparent_size;
    let results = tree::each(entries, |(path, inode)| {
        async move {
            let is_dir = is_kind(&inode, kind::DIR);
            if apparent || !is_kind(&inode, kind::FILE) || inode.size == 0 {
                return Ok((path, is_dir, if is_dir { 0 } else { inode.size }));
            }
            let stat =
                session.fs.stat(inode.id).await.cannot(|| format!("measure {}", shown(&path)))?;
            Ok((path, is_dir, stat.blocks * 512))
        }
        .boxed_local()
    });
    results.await.into_iter().filter_map(|result| failures.take(result, context)).collect()
}

/// Adds each to all directories above it, up to the one that was asked for.
fn add_up(args: &Args, top: &[u8], entries: Vec<(Vec<u8>, bool, u64)>) -> Vec<(Vec<u8>, u64)> {
    let mut sums: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (path, is_dir, bytes) in entries {
        if is_dir || args.all || path == top {
            *sums.entry(path.clone()).or_default() += bytes;
        }
        let mut above = &path[..];
        while above.len() > top.len() {
            let end = above.iter().rposition(|byte| *byte == b'/').unwrap_or(0).max(1);
            above = if end < top.len() { top } else { &above[..end] };
            *sums.entry(above.to_vec()).or_default() += bytes;
            if above == b"/" {
                break;
            }
        }
    }
    let wanted = |path: &Vec<u8>| !args.summarize || path == top;
    // Directories come after what they hold, as in du(1).
    sums.into_iter().rev().filter(|(path, _)| wanted(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(top: &str, all: bool) -> Vec<(String, u64)> {
        let args = Args {
            paths: vec![],
            summarize: false,
            all,
            human_readable: false,
            apparent_size: true,
            help: None,
        };
        let join =
            |tail: &str| if top == "/" { format!("/{tail}") } else { format!("{top}/{tail}") };
        let entries = vec![
            (top.as_bytes().to_vec(), true, 0),
            (join("a").into_bytes(), false, 5),
            (join("d").into_bytes(), true, 0),
            (join("d/b").into_bytes(), false, 7),
        ];
        add_up(&args, top.as_bytes(), entries)
            .into_iter()
            .map(|(path, bytes)| (text(&path), bytes))
            .collect()
    }

    #[test]
    fn every_directory_holds_the_sum_of_what_is_below() {
        assert_eq!(sums("/x", false), [("/x/d".to_string(), 7), ("/x".to_string(), 12)]);
        assert_eq!(sums("/", false), [("/d".to_string(), 7), ("/".to_string(), 12)]);
        assert_eq!(sums("/x", true).len(), 4);
    }
}
