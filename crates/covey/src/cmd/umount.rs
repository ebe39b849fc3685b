//! `covey umount`: ends a mount.

use super::Context;
use super::cluster::mounts::{self, Unmount};
use crate::error::{Error, Result};
use std::path::PathBuf;

/// Unmount a file system that `covey mount` has mounted
///
/// Pending writes are sent first. The process that served the mount then ends. Returns at once even
/// when servers are dead.
///
/// EXAMPLES
///
///     covey umount ~/covey
///     covey umount --lazy /mnt/covey    also while programs use it
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The directory
    #[arg(value_name = "MNT")]
    mountpoint: PathBuf,
    /// Detach it now, and clean up when the last program has closed its files
    #[arg(long, short)]
    lazy: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let mountpoint = mounts::place_of(&args.mountpoint)?;
    match mounts::kind_at(&mountpoint) {
        Some(kind) if kind.starts_with("fuse") => {}
        Some(kind) => {
            return Err(Error::user(format!(
                "cannot unmount {}: it is a {kind} mount, not Covey's",
                mountpoint.display()
            ))
            .hint("`umount` unmounts any file system"));
        }
        None => {
            return Err(Error::user(format!(
                "cannot unmount {}: nothing is mounted there",
                mountpoint.display()
            ))
            .hint("`findmnt -t fuse.covey` lists the mounts"));
        }
    }
    mounts::umount(&mountpoint, Unmount::lazily_if(args.lazy)).await?;
    context.output.result(&serde_json::json!({ "unmounted": mountpoint }), |out| {
        use std::io::Write;
        writeln!(out, "unmounted {}", mountpoint.display())
    })
}
