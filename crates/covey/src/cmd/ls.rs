//! `covey ls`: directories listed, without a mount.

use super::mounted::{Place, Sight};
use super::names::{Kind, Names};
use super::path::{Failures, Follow, below, is_kind, kind};
use super::{Context, show};
use crate::config::size;
use crate::error::Result;
use crate::output::quote;
use covey_stripe::ops::Inode;
use std::ffi::OsString;

/// List files
///
/// Prints one name per line, sorted by bytes. Times are UTC. A path on a mount of this machine is
/// looked at there, which needs no key; with a `:` before it, it is the cluster's own.
///
/// EXAMPLES
///
///     covey ls             the root of the file system
///     covey ls -lh /doc
///     covey ls -R /doc
///     covey ls -l /mnt/covey/home/ann
///     covey --json ls -l /doc
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Args {
    /// What to list
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<OsString>,
    /// Long form: mode, links, owner, group, size, time, name
    #[arg(short)]
    long: bool,
    /// Names that begin with a dot too
    #[arg(short)]
    all: bool,
    /// Everything below, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Sizes such as 1.5M
    #[arg(short, long)]
    human_readable: bool,
    /// Directories themselves, not their contents
    #[arg(short, long)]
    directory: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
}

/// One directory or the files named on the command line: heading, and (name, inode).
struct Group {
    path: Option<Vec<u8>>,
    entries: Vec<(Vec<u8>, Inode)>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let places = Place::all(&args.paths)?;
    let sight = Sight::of(&places, context).await?;
    let mut failures = Failures::default();
    let groups = gather(&args, places, &sight, &mut failures, context).await;
    let result = write(&args, groups, context);
    sight.close(result).await?;
    failures.result()
}

async fn gather(
    args: &Args,
    places: Vec<Place>,
    sight: &Sight,
    failures: &mut Failures,
    context: &Context,
) -> Vec<Group> {
    let mut files = Group { path: None, entries: Vec::new() };
    let mut ahead = Vec::new();
    for place in places {
        // A link to a directory shows the directory; in the long form it shows the link.
        let follow = if args.long || args.directory { Follow::NotLast } else { Follow::Last };
        match failures.take(sight.find("list", &place, follow).await, context) {
            Some(inode) if is_kind(&inode, kind::DIR) && !args.directory => {
                ahead.push((place, inode))
            }
            Some(inode) => files.entries.push((place.path().to_vec(), inode)),
            None => {}
        }
    }
    ahead.reverse();
    let mut groups = Vec::new();
    if !files.entries.is_empty() {
        groups.push(files);
    }
    while let Some((place, inode)) = ahead.pop() {
        let entries = sight.entries("list", &place, &inode).await;
        let Some(mut entries) = failures.take(entries, context) else { continue };
        entries.retain(|(name, _)| args.all || !name.as_bytes().starts_with(b"."));
        entries.sort_by(|left, right| left.0.as_bytes().cmp(right.0.as_bytes()));
        if args.recursive {
            let dirs = entries.iter().filter(|(_, inode)| is_kind(inode, kind::DIR)).rev();
            ahead.extend(dirs.map(|(name, inode)| (place.below(name.as_bytes()), inode.clone())));
        }
        let entries =
            entries.into_iter().map(|(name, inode)| (name.as_bytes().to_vec(), inode)).collect();
        groups.push(Group { path: Some(place.path().to_vec()), entries });
    }
    groups
}

fn write(args: &Args, groups: Vec<Group>, context: &Context) -> Result<()> {
    let json: Vec<_> =
        if context.output.json { groups.iter().flat_map(group_json).collect() } else { Vec::new() };
    context.output.result(&json, |out| {
        let named = args.recursive || args.paths.len() > 1;
        for (index, group) in groups.iter().enumerate() {
            if index > 0 {
                out.push(b'\n');
            }
            if let (true, Some(path)) = (named, &group.path) {
                out.extend([&quote::name(path), &b":\n"[..]].concat());
            }
            if args.long {
                write_long(args, group, out)
            } else {
                group
                    .entries
                    .iter()
                    .for_each(|(name, _)| out.extend([&quote::name(name), &b"\n"[..]].concat()))
            }
        }
        Ok(())
    })
}

fn group_json(group: &Group) -> Vec<serde_json::Value> {
    let path = |name: &[u8]| group.path.as_ref().map_or(name.to_vec(), |dir| below(dir, name));
    group.entries.iter().map(|(name, inode)| show::json(&path(name), inode, None)).collect()
}

/// Names may be any bytes, so the rows are put together as bytes.
fn write_long(args: &Args, group: &Group, out: &mut Vec<u8>) {
    let (users, groups) = (Names::local(Kind::User), Names::local(Kind::Group));
    let size = |inode: &Inode| match (inode.mode & kind::MASK, args.human_readable) {
        (kind::CHAR | kind::BLOCK, _) => format!("{},{}", major(inode.rdev), minor(inode.rdev)),
        (_, true) => size::short(inode.size),
        (_, false) => inode.size.to_string(),
    };
    let cells = |inode: &Inode| {
        [inode.nlink.to_string(), users.name(inode.uid), groups.name(inode.gid), size(inode)]
    };
    let rows: Vec<_> = group.entries.iter().map(|(_, inode)| cells(inode)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let [links, user, owner, bytes] = [0, 1, 2, 3].map(width);
    for ((name, inode), row) in group.entries.iter().zip(&rows) {
        let [n, u, g, s] = row;
        let mode = show::mode(inode.mode);
        let time = show::time(inode.mtime);
        let head = format!("{mode} {n:>links$} {u:<user$} {g:<owner$} {s:>bytes$} {time} ");
        out.extend(head.as_bytes());
        out.extend(show::name_and_target(name, inode));
        out.push(b'\n');
    }
}

/// As makedev(3) packs it.
pub fn major(rdev: u64) -> u64 {
    ((rdev >> 32) & 0xffff_f000) | ((rdev >> 8) & 0xfff)
}

/// As makedev(3) packs it.
pub fn minor(rdev: u64) -> u64 {
    ((rdev >> 12) & 0xffff_ff00) | (rdev & 0xff)
}
