//! `covey 9p mount`: a server's tree as a directory of this machine, whatever is behind it.

use super::peer::Peer;
use crate::error::{Cannot, Error, Result};
use covey_io::os::net::Address;
use covey_mount::{MountOptions, Unmounter, local_runtime, serve_tree};
use covey_ninep::import::{Import, root_of};
use covey_ninep::message::Dialect;
use covey_ninep::tree::{self, Attach, Tree, User};
use covey_wire::Name;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What is mounted where.
pub struct Mount {
    pub address: Address,
    pub mountpoint: PathBuf,
    pub aname: String,
    pub key: Option<PathBuf>,
    /// One of [`DIALECTS`], where no other will do.
    pub dialect: Option<Dialect>,
    pub read_only: bool,
}

/// Only these have what a mount asks for.
const DIALECTS: [Dialect; 2] = [Dialect::Covey, Dialect::Linux];

/// Mounts and serves until it is unmounted, the connection ends, or a signal comes.
pub async fn mount(mount: Mount) -> Result<()> {
    let (done, ended) = tokio::sync::oneshot::channel();
    // The mount has a runtime of its own.
    let thread = std::thread::Builder::new().name("mount".into()).spawn(move || {
        let _ = done.send(on_this_thread(&mount));
    });
    thread.cannot(|| "start a thread")?;
    ended.await.unwrap_or_else(|_| Err(Error::work("the mount's thread has panicked")))
}

fn on_this_thread(mount: &Mount) -> Result<()> {
    let what = || format!("mount {} at {}", mount.address, mount.mountpoint.display());
    let runtime = local_runtime().cannot(what)?;
    runtime.block_on(async {
        let key = mount.key.as_deref();
        let dialects = mount.dialect.as_ref().map_or(&DIALECTS[..], std::slice::from_ref);
        let peer = Peer::connect(&mount.address, &mount.aname, key, dialects).await?;
        let conn = peer.conn.clone();
        let import = Import::new(Box::new(move |_| {
            let conn = conn.clone();
            Box::pin(async move { root_of(&conn).await })
        }));
        let me = myself();
        let attach = Attach {
            peer: tree::Peer::default(),
            uname: Name::EMPTY,
            n_uname: None,
            aname: Name::EMPTY,
        };
        let (me, qid, root) = import.enter(&me, attach).wait().await.cannot(what)?;
        let options = MountOptions {
            fsname: mount.address.to_string(),
            allow_other: false,
            read_only: mount.read_only,
            ..MountOptions::default()
        };
        let unmounter = Unmounter::start().cannot(what)?;
        let device = covey_mount::attach(&mount.mountpoint, &options).cannot(what)?;
        unmount_at_the_end(unmounter, mount.mountpoint.clone(), peer.conn.closed());
        serve_tree(device, Rc::new(import), me, (qid, root)).await.cannot(what)?;
        if peer.conn.is_lost() {
            let why = peer.conn.closed().await;
            let whom = &mount.address;
            return Err(Error::work(format!("the connection to {whom} was lost: {why}")));
        }
        Ok(())
    })
}

/// Signals and the end of the connection unmount. To be called on the mount's runtime.
fn unmount_at_the_end(
    unmounter: Unmounter,
    mountpoint: PathBuf,
    closed: impl Future<Output = String> + 'static,
) {
    let target = mountpoint.clone();
    unmounter.mounted(move || covey_io::os::mount::umount(&target));
    tokio::task::spawn_local(async move {
        closed.await;
        if let Err(error) = covey_io::os::mount::umount(&mountpoint) {
            tracing::warn!("cannot unmount {}: {error}", mountpoint.display());
        }
    });
}

fn myself() -> User {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    User { uid, gid, groups: vec![gid] }
}

/// Refuses what cannot be mounted on, with the usual reasons.
pub fn check(mountpoint: &Path) -> Result<PathBuf> {
    let shown = mountpoint.display();
    if !mountpoint.is_dir() {
        return Err(Error::user(format!("cannot mount at {shown}: it is no directory"))
            .hint("make it first"));
    }
    std::path::absolute(mountpoint).cannot(|| format!("find {shown}"))
}
