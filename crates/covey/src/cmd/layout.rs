//! `covey layout`: which server has which bytes.

mod mounted;
mod set;
mod show;

use super::path::{Failures, inside};
use super::{Context, Session};
use crate::config::Config;
use crate::error::{Cannot, Result};
use covey_stripe::distribution;
use covey_stripe::ops::{Inode, StripingHint};
use mounted::Mounted;
use std::ffi::OsString;

/// Show or set how files are laid out over the servers
///
/// For a file: its distribution, how much each server has, and where each byte range lies. For a
/// directory: the layout of new files in it. A file's layout is fixed when its first byte is
/// written.
///
/// A path on a mount of this machine is looked at there, which needs no key of the cluster; with a
/// `:` before it, it is the cluster's own path. On a mount, a layout is also the attribute
/// `user.covey.layout`, such as `kind=simple_stripe strip=1048576 servers=4`.
///
/// EXAMPLES
///
///     covey layout /data/big
///     covey layout --ranges 1000 /data/big
///     covey layout /mnt/covey/home/ann/big
///     covey layout set --strip '1 MiB' /data           files made in /data from now on
///     covey layout set --kind simple_stripe --strip '1 MiB' --servers 2 /data/new
///     covey layout set --kind varstrip --strips '0:64 KiB,1:128 KiB' /data/uneven
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
    /// Number of byte ranges of a file to list
    #[arg(long, value_name = "N", default_value_t = 16)]
    ranges: usize,
}

#[derive(clap::Subcommand, Debug)]
enum Change {
    /// Set the layout of a directory's new files, or of an empty file
    Set(set::Args),
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let paths = match &args.change {
        Some(Change::Set(set)) => &set.paths,
        None => &args.paths,
    };
    let places = paths.iter().map(Place::of).collect::<Result<Vec<Place>>>()?;
    let is_inside = |place: &Place| matches!(place, Place::Inside(_));
    let cluster = if places.iter().any(is_inside) {
        Some((context.session().await?, context.config()?))
    } else {
        None
    };
    let mut failures = Failures::default();
    let result = match &args.change {
        Some(Change::Set(set)) => {
            set::all(set, &places, cluster.as_ref(), &mut failures, context).await
        }
        None => show::all(&args, &places, cluster.as_ref(), &mut failures, context).await,
    };
    match cluster {
        Some((session, _)) => session.close(result).await?,
        None => result?,
    }
    failures.result()
}

/// The file system and its configuration, where a path is not on a mount.
type Cluster = (Session, Config);

/// What a path leads to.
enum Place {
    /// Something on a mount of this machine.
    Mounted(OsString, Mounted),
    /// A path of the cluster.
    Inside(Vec<u8>),
}

impl Place {
    fn of(path: &OsString) -> Result<Place> {
        Ok(match Mounted::at(path)? {
            Some(mounted) => Place::Mounted(path.clone(), mounted),
            None => Place::Inside(inside(path)),
        })
    }
}

/// The hint that new files of a directory get.
async fn hint_of(session: &Session, dir: &Inode, config: &Config) -> Result<StripingHint> {
    match session.fs.hint_of(dir.clone()).await.cannot(|| "look at the directory above")? {
        Some(hint) => Ok(hint),
        None => Ok(StripingHint::progressive(covey_cluster::tuned::strip(config)?.0, 0)),
    }
}

fn server_count(hint: &StripingHint, config: &Config) -> usize {
    distribution::server_count(hint, config.data().count())
}
