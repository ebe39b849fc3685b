//! `covey df`: space.

use super::cluster::mounts;
use super::mounted::Place;
use super::{Context, ping};
use crate::config::{Config, size};
use crate::error::{Cannot, Error, Result};
use covey_stripe::client::Space;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::fs::MetadataExt;

/// Show how much space the file system has and uses
///
/// The sum over all I/O servers. Other data on the same disks counts as used, and a disk that
/// several servers share counts once. Servers that do not answer are not counted: they are named
/// below the table, in JSON as `servers_missing`, and the exit code is 1 then. METADATA shows how
/// full the metadata store is: at 95% it refuses new names.
///
/// With a path on a mount of this machine the mount is asked, which needs no key; a mount does not
/// say how full the metadata store is, nor which servers are not counted.
///
/// EXAMPLES
///
///     covey df
///     covey df -h /mnt/covey
///     covey --json df
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Args {
    /// A path on a mount of this machine
    #[arg(value_name = "PATH")]
    path: Option<OsString>,
    /// Sizes such as 1.50 GiB; without it, in bytes
    #[arg(short, long)]
    human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    match &args.path {
        Some(path) => show(&of_mount(path)?, args.human_readable, context),
        None => show(&of_cluster(context).await?, args.human_readable, context),
    }
}

/// What is shown.
struct Shown {
    cluster: String,
    space: Space,
    /// Bytes that the metadata takes, and what it may grow to, if that is known.
    metadata: Option<(u64, u64)>,
}

async fn of_cluster(context: &Context) -> Result<Shown> {
    let config = context.config()?;
    let session = context.session().await?;
    let space = session.fs.space().await.cannot(|| "ask for the space");
    let space = session.close(space).await?;
    let metadata = metadata(&config).await;
    Ok(Shown { cluster: config.name, space, metadata })
}

fn of_mount(path: &OsStr) -> Result<Shown> {
    let Place::Mounted(path) = Place::of(path)? else {
        return Err(Error::user(format!(
            "cannot show the space of {}: it is not on a mount of Covey",
            path.display()
        ))
        .hint("`findmnt -t fuse.covey` lists the mounts")
        .hint("`covey df` without a path asks the servers"));
    };
    let what = || format!("ask for the space at {}", path.display());
    let device = std::fs::metadata(&path).cannot(what)?.dev();
    let told = rustix::fs::statvfs(&path).cannot(what)?;
    let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
    let space = Space {
        bytes_total: bytes(told.f_blocks),
        bytes_free: bytes(told.f_bfree),
        bytes_available: bytes(told.f_bavail),
        files: told.f_files.saturating_sub(told.f_ffree),
        servers_missing: Vec::new(),
    };
    let cluster = mounts::cluster_of(device).unwrap_or_else(|| "-".into());
    Ok(Shown { cluster, space, metadata: None })
}

fn show(shown: &Shown, human_readable: bool, context: &Context) -> Result<()> {
    let Shown { cluster, space, metadata } = shown;
    let missing = &space.servers_missing;
    let used = space.bytes_total.saturating_sub(space.bytes_free);
    let percent = percent(used, space.bytes_available);
    let value = serde_json::json!({
        "cluster": cluster, "bytes_total": space.bytes_total, "bytes_used": used,
        "bytes_free": space.bytes_free, "bytes_available": space.bytes_available,
        "files": space.files, "servers_missing": missing,
        "metadata_bytes_used": metadata.map(|(used, _)| used),
        "metadata_bytes_max": metadata.map(|(_, max)| max),
    });
    context.output.result(&value, |out| {
        let show =
            |bytes: u64| if human_readable { size::rounded(bytes) } else { bytes.to_string() };
        let row = vec![
            show(space.bytes_total),
            show(used),
            show(space.bytes_available),
            format!("{percent}%"),
            space.files.to_string(),
            metadata.map_or("-".into(), |(used, max)| format!("{}%", share(used, max))),
            cluster.clone(),
        ];
        crate::output::table(
            out,
            &[">SIZE", ">USED", ">AVAILABLE", ">USE", ">FILES", ">METADATA", "CLUSTER"],
            &[row],
        );
        if !missing.is_empty() {
            let is =
                if missing.len() == 1 { "does not answer and is" } else { "do not answer and are" };
            writeln!(out, "\n{} {is} not counted", missing.join(", "))?;
        }
        Ok(())
    })?;
    match &missing[..] {
        [] => Ok(()),
        missing => Err(not_all(missing)),
    }
}

fn not_all(missing: &[String]) -> Error {
    let do_not = if missing.len() == 1 { "it does not answer" } else { "they do not answer" };
    Error::work(format!("cannot ask {} for the space: {do_not}", missing.join(", ")))
        .hint("`covey status` shows which servers are up, and where their logs are")
}

/// Bytes that the metadata takes, and what it may grow to.
async fn metadata(config: &Config) -> Option<(u64, u64)> {
    ping::ask(config, config.meta()).await.ok()?.metadata
}

/// How many of a hundred parts are used, rounded up.
pub fn share(used: u64, max: u64) -> u64 {
    percent(used, max.saturating_sub(used))
}

/// Used of what users can have, rounded up as df does.
fn percent(used: u64, available: u64) -> u64 {
    let all = u128::from(used) + u128::from(available);
    (u128::from(used) * 100).div_ceil(all.max(1)) as u64
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn the_share_is_rounded_up_and_never_divides_by_zero() {
        assert_eq!(
            (percent(0, 0), percent(1, 999), percent(1, 1), percent(u64::MAX, 0)),
            (0, 1, 50, 100)
        );
    }
}
