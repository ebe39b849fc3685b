//! Mounting a cluster: the striping client behind the FUSE mount.

use super::handlers::Session;
use super::transport::{self, Interrupts};
use super::{MountOptions, serve_thread, syscalls, unmount_on_signal};
use crate::config::Config;
use crate::node;
use anyhow::Context;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use tokio::runtime::{Builder, LocalOptions};

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
}

/// Mounts the cluster's file system, and serves until it is unmounted or signalled.
///
/// The first thread runs the client's connections and serves the device too, so a request that it
/// takes goes from the kernel to the servers and back without changing threads. More threads help
/// where several programs keep one busy.
pub fn mount_cluster(config: &Config, mountpoint: &Path, options: &Options) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .context("cannot start a runtime")?;
    let fs = runtime.block_on(node::connect_fs(config, options.hard))?;
    let how = MountOptions {
        fsname: format!("covey:{}", config.name),
        threads: options.threads.max(1),
        allow_other: options.allow_other,
        // The metadata server checks every operation; a check by the kernel would ask it for the
        // attributes of each directory of a path first.
        default_permissions: false,
        read_only: options.read_only,
        groups: Arc::new(groups),
        ..MountOptions::default()
    };
    let device = syscalls::fuse_mount(mountpoint, &how)
        .with_context(|| format!("cannot mount on {}", mountpoint.display()))?;
    let target = mountpoint.to_owned();
    thread::Builder::new().name("signals".into()).spawn(move || {
        // What is still open after the grace is cut off.
        let outcome = unmount_on_signal(&target);
        std::process::exit(i32::from(outcome.is_err()));
    })?;
    let session = Arc::new(Session::new(Arc::new(fs.clone()), how.clone()));
    let interrupts = Arc::new(Interrupts::default());
    for index in 1..how.threads {
        let device = syscalls::clone_fd(&device).context("cannot clone the FUSE device")?;
        let (session, interrupts) = (session.clone(), interrupts.clone());
        thread::Builder::new().name(format!("fuse-{index}")).spawn(move || {
            if let Err(error) = serve_thread(device, session, interrupts) {
                tracing::error!("a FUSE thread ended: {error:#}");
            }
        })?;
    }
    runtime.block_on(async move {
        // As a task of its own it is woken without a system call.
        let served = tokio::task::spawn_local(transport::serve(device, session, interrupts)).await;
        fs.bye().await;
        served?.context("the FUSE device failed")
    })
}

fn groups(uid: u32, gid: u32) -> Vec<u32> {
    match covey_io::os::users::by_uid(uid) {
        Ok(Some(account)) => account.groups.clone(),
        _ => vec![gid],
    }
}
