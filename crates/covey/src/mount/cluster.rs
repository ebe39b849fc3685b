//! Mounting a cluster: the striping client behind the FUSE mount.

use super::{MountOptions, mount};
use crate::config::Config;
use crate::node;
use anyhow::Context;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

/// How a cluster is mounted.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Wait for dead servers instead of EIO after a while.
    pub hard: bool,
    /// Let other users in.
    pub allow_other: bool,
    /// Refuse every change.
    pub read_only: bool,
}

/// Mounts the cluster's file system, and serves until it is unmounted or signalled.
///
/// The client's connections run on a thread of their own, which outlives the mount: what is closed
/// last can still be told to the servers.
pub fn mount_cluster(
    config: &Config,
    mountpoint: &Path,
    options: &Options,
) -> anyhow::Result<()> {
    let (ready, wait) = mpsc::channel();
    let (config_there, hard) = (config.clone(), options.hard);
    std::thread::Builder::new().name("client".into()).spawn(move || {
        let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match built {
            Ok(runtime) => runtime,
            Err(error) => return ready.send(Err(error.into())),
        };
        runtime.block_on(async move {
            let sent = ready.send(node::connect_fs(&config_there, hard).await);
            std::future::pending::<()>().await;
            sent
        })
    })?;
    let fs = wait.recv().context("the client's thread is gone")??;
    let options = MountOptions {
        fsname: format!("covey:{}", config.name),
        allow_other: options.allow_other,
        read_only: options.read_only,
        groups: Arc::new(groups),
        ..MountOptions::default()
    };
    mount(Arc::new(fs), mountpoint, options)
}

fn groups(uid: u32, gid: u32) -> Vec<u32> {
    match covey_io::os::users::by_uid(uid) {
        Ok(Some(account)) => account.groups.clone(),
        _ => vec![gid],
    }
}
