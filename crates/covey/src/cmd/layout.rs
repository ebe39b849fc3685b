//! `covey layout`: which server has which bytes.

mod set;
mod show;

use super::path::Failures;
use super::{Context, Session};
use crate::config::Config;
use crate::error::{Cannot, Result};
use covey_stripe::distribution;
use covey_stripe::ops::{Inode, ROOT, StripingHint};
use std::ffi::OsString;

/// Show or set how files are laid out over the servers
///
/// For a file: its distribution, how much each server has, and where each byte range lies. For a
/// directory: the layout of new files in it. A file's layout is fixed when its first byte is
/// written.
///
/// EXAMPLES
///
///     covey layout /data/big
///     covey layout --ranges 1000 /data/big
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
    let config = context.config()?;
    let session = context.session().await?;
    let mut failures = Failures::default();
    let result = match &args.change {
        Some(Change::Set(set)) => set::all(set, &session, &config, &mut failures, context).await,
        None => show::all(&args, &session, &config, &mut failures, context).await,
    };
    session.close(result).await?;
    failures.result()
}

/// A directory's own hint, or that of the nearest directory above that has one.
async fn hint_of(session: &Session, dir: &Inode, config: &Config) -> Result<StripingHint> {
    let mut at = dir.clone();
    loop {
        if let Some(hint) = at.hint {
            return Ok(hint);
        }
        if at.id == ROOT || at.parent == at.id {
            return Ok(StripingHint::progressive(covey_cluster::tuned::strip(config)?.0, 0));
        }
        at = session.fs.stat(at.parent).await.cannot(|| "look at the directory above")?.inode;
    }
}

fn server_count(hint: &StripingHint, config: &Config) -> usize {
    distribution::server_count(hint, config.data().count())
}
