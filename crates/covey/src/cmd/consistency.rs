//! `covey consistency`: how soon changes of files are seen.

use super::mounted::{Place, Sight};
use super::path::{Failures, Follow, is_kind, kind, shown, text};
use super::{Context, tree};
use crate::error::{Cannot, Error, Result};
use crate::output::quote;
use covey_stripe::client::CONSISTENCY;
use covey_stripe::ops::{Consistency, Inode};
use futures_util::FutureExt;
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

/// Show or set how soon changes of files are seen
///
/// Mounts cache a file and gather writes to it as far as its mode permits. A new file or directory
/// gets the mode of its directory, and keeps it when it is moved. A file without a mode uses that
/// of each mount: `covey mount --consistency MODE`, else strict. A mount uses the mode that a file
/// had when it was opened. On a mount, a file's owner can also set it as the attribute
/// `user.covey.consistency`, which is what this command does for a path on a mount of this machine:
/// it needs no key there. With a `:` before it, a path is the cluster's own.
///
/// MODES
///
///     strict          a completed write is seen by every later read anywhere
///     close-to-open   data written before a close is seen by every open of the file after it,
///                     as with NFS; before the close within 5 s, by clients that ask the servers
///     job-scratch     for files that one node writes and reads: names and attributes may be 30 s
///                     old, and a node's own writes stay in its memory
///     mount           the mode of the mount
///
/// EXAMPLES
///
///     covey consistency /job42
///     covey consistency set job-scratch /job42         and new entries in it
///     covey consistency set -R close-to-open /home
///     covey consistency set job-scratch /mnt/covey/home/ann/scratch
#[derive(clap::Args, Debug)]
#[command(
    verbatim_doc_comment,
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true
)]
pub struct Args {
    #[command(subcommand)]
    change: Option<Change>,
    /// The files and directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

#[derive(clap::Subcommand, Debug)]
enum Change {
    /// Set the mode of files, and of directories for their new entries
    Set(Set),
}

#[derive(clap::Args, Debug)]
struct Set {
    /// strict, close-to-open, job-scratch, or mount
    #[arg(value_name = "MODE", value_parser = parse_own)]
    mode: Own,
    /// The files and directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Everything below, too
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// A file's own mode, if it is to have one.
#[derive(Clone, Copy, Debug)]
struct Own(Option<Consistency>);

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let paths = match &args.change {
        Some(Change::Set(set)) => &set.paths,
        None => &args.paths,
    };
    let places = Place::all(paths)?;
    let sight = Sight::of(&places, context).await?;
    let mut failures = Failures::default();
    let result = match &args.change {
        Some(Change::Set(set)) => set_all(set, places, &sight, &mut failures, context).await,
        None => show_all(&places, &sight, &mut failures, context).await,
    };
    sight.close(result).await?;
    failures.result()
}

async fn show_all(
    places: &[Place],
    sight: &Sight,
    failures: &mut Failures,
    context: &Context,
) -> Result<()> {
    let mut found = Vec::new();
    for place in places {
        let mode = failures.take(mode_of(place, sight).await, context);
        found.extend(mode.map(|mode| (text(place.path()), word(mode))));
    }
    let json = |(path, mode): &(String, &str)| serde_json::json!({ "path": path, "mode": mode });
    let value: Vec<_> = found.iter().map(json).collect();
    context.output.result(&value, |out| {
        found.iter().try_for_each(|(path, mode)| writeln!(out, "{}: {mode}", quote::text(path)))
    })
}

async fn mode_of(place: &Place, sight: &Sight) -> Result<Option<Consistency>> {
    let inode = sight.find("look at", place, Follow::Last).await?;
    let Place::Mounted(path) = place else { return Ok(inode.consistency()) };
    let mut name = [0; NAME_BYTES_MAX];
    let length = match getxattr(path, CONSISTENCY, &mut name[..]) {
        // Only files and directories of users have such attributes, and none of these has a mode.
        Err(Errno::NODATA | Errno::PERM) => return Ok(None),
        length => length.cannot(|| format!("look at {}", shown(place.path())))?,
    };
    let name = String::from_utf8_lossy(&name[..length]);
    let odd = |why| {
        Error::work(format!("cannot look at {}: its mount says {name:?}: {why}", path.display()))
            .hint("upgrade covey")
    };
    parse(&name).map(Some).map_err(odd)
}

async fn set_all(
    args: &Set,
    places: Vec<Place>,
    sight: &Sight,
    failures: &mut Failures,
    context: &Context,
) -> Result<()> {
    let mut changed = 0;
    for place in places {
        let inode = sight.find("set the consistency mode of", &place, Follow::Last).await;
        let Some(inode) = failures.take(inode, context) else { continue };
        let entries = if args.recursive {
            sight.tree("list", (place, inode), failures, context).await
        } else {
            vec![(place, inode)]
        };
        let has_mode =
            |(_, inode): &(Place, Inode)| is_kind(inode, kind::FILE) || is_kind(inode, kind::DIR);
        let entries = entries.into_iter().filter(has_mode).collect();
        let results = tree::each(entries, |(place, inode)| {
            async move {
                let what = || format!("set the consistency mode of {}", shown(place.path()));
                if let Place::Mounted(path) = &place {
                    return set_on_mount(path, args.mode.0).cannot(what);
                }
                let session = sight.session();
                let set = session.fs.set_consistency(&session.who, inode.id, args.mode.0);
                set.await.cannot(what)
            }
            .boxed_local()
        });
        changed +=
            results.await.into_iter().filter_map(|result| failures.take(result, context)).count();
    }
    context.output.result(&serde_json::json!({ "changed": changed }), |_| Ok(()))
}

fn set_on_mount(path: &Path, mode: Option<Consistency>) -> rustix::io::Result<()> {
    match mode {
        Some(mode) => setxattr(path, CONSISTENCY, mode.name().as_bytes(), XattrFlags::empty()),
        None => match removexattr(path, CONSISTENCY) {
            Err(Errno::NODATA) => Ok(()),
            removed => removed,
        },
    }
}

fn word(own: Option<Consistency>) -> &'static str {
    own.map_or(MOUNT, Consistency::name)
}

fn parse_own(text: &str) -> std::result::Result<Own, String> {
    match text {
        MOUNT => Ok(Own(None)),
        _ => {
            parse(text).map(|mode| Own(Some(mode))).map_err(|error| format!("{error} and {MOUNT}"))
        }
    }
}

/// Reads the name of a mode.
pub fn parse(text: &str) -> std::result::Result<Consistency, String> {
    Consistency::from_name(text).ok_or_else(|| {
        let names = Consistency::ALL.map(Consistency::name);
        format!("there are {}", names.join(", "))
    })
}

/// No mode has a longer name.
const NAME_BYTES_MAX: usize = 256;
/// No mode of one's own.
const MOUNT: &str = "mount";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_known_by_their_names() {
        assert_eq!(parse("job-scratch"), Ok(Consistency::JobScratch));
        assert!(parse("mount").unwrap_err().contains("close-to-open"));
        assert!(parse_own("mount").unwrap().0.is_none());
        assert!(parse_own("nfs").unwrap_err().ends_with("and mount"));
    }
}
