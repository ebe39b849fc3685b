//! Mounting a cluster: the striping client behind the FUSE mount.

use super::{MountOptions, Unmounter, attach, local_runtime, serve};
use anyhow::Context;
use covey_cluster::config::Config;
use covey_cluster::connect_fs;
use covey_stripe::client::{self, Caching};
use covey_stripe::ops::Consistency;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::path::Path;
use std::sync::Arc;

/// How a cluster is mounted.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Wait for dead servers instead of EIO after a while.
    pub hard: bool,
    /// Let other users in.
    pub allow_other: bool,
    /// Refuse every change.
    pub read_only: bool,
    /// Threads that serve requests, at least 1.
    pub threads: usize,
    /// The mode of files and directories that have none of their own.
    pub consistency: Consistency,
    /// What is done to a new file that nobody else knows yet may be told to the servers late, and in one.
    pub delegations: bool,
}

/// Mounts the cluster's file system, and serves until it is unmounted or signalled.
///
/// The first thread runs the client's connections and serves the device too, so a request that it
/// takes goes from the kernel to the servers and back without changing threads. More threads help
/// where several programs keep one busy.
pub fn mount_cluster(config: &Config, mountpoint: &Path, options: &Options) -> anyhow::Result<()> {
    let runtime = local_runtime()?;
    let (hard, caching, delegations) = (options.hard, Caching::Leases, options.delegations);
    let client = client::Options { hard, caching, delegations, ..client::Options::default() };
    let fs = runtime.block_on(connect_fs(config, client))?;
    let how = MountOptions {
        fsname: format!("covey:{}", config.name),
        threads: options.threads.max(1),
        allow_other: options.allow_other,
        // The metadata server checks every operation, but the kernel walks through directories that
        // it knows without asking. Where nobody but root gets in there is nothing to check there, and
        // each change of a directory would cost a question for its mode.
        default_permissions: options.allow_other || !rustix::process::geteuid().is_root(),
        read_only: options.read_only,
        consistency: options.consistency,
        groups: Arc::new(groups),
        ..MountOptions::default()
    };
    let unmounter = Unmounter::start()?;
    let device = attach(mountpoint, &how)
        .with_context(|| format!("cannot mount on {}", mountpoint.display()))?;
    let target = mountpoint.to_owned();
    unmounter.mounted(move || covey_io::os::mount::umount(&target));
    if options.consistency != Consistency::Strict {
        read_further(mountpoint);
    }
    runtime.block_on(async move {
        let served = serve(device, Arc::new(fs.clone()), how).await;
        fs.bye().await;
        served
    })
}

/// Has the kernel read further ahead into its pages than its 128 KiB, which make streams twice as
/// dear as going around them. Only root may say so; nobody else's reads are wrong for it.
fn read_further(mountpoint: &Path) {
    // Without asking the file system, which nobody serves yet.
    let how = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let Ok(stat) = statx(CWD, mountpoint, how, StatxFlags::empty()) else { return };
    let device = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
    let told = std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), READ_AHEAD_KIB);
    if let Err(error) = told {
        tracing::debug!("the kernel reads 128 KiB ahead at most: {error}");
    }
}

/// More makes random faults of mapped files dearer than it makes streams cheaper.
const READ_AHEAD_KIB: &str = "512";

fn groups(uid: u32, gid: u32) -> Vec<u32> {
    match covey_io::os::users::by_uid(uid) {
        Ok(Some(account)) => account.groups.clone(),
        _ => vec![gid],
    }
}
