//! What keeps a host's devices below `/cell` of its node, also when the node has been away.

use super::Node;
use crate::cmd::Context;
use crate::error::{Cannot, Result};
use covey_io::os::random;
use covey_serve::cell::Host;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::{AbortHandle, spawn_local};

/// How often a host looks whether its node still shows it, and for a node that has gone.
const ANNOUNCED_AGAIN: Duration = Duration::from_secs(3);
/// The longest pause before a node that does not come back is looked for again.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A node that has not come back by then, in some hours, is not looked for any more.
const DIALS_MAX: u32 = 1000;

/// What keeps the devices in the node's tree.
pub(super) struct Shown {
    directory: PathBuf,
    again: AbortHandle,
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.again.abort();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Shows the devices below /cell of the node, and the node's namespace to the workers.
pub(super) async fn show(host: &Host, node: Node, context: &Context) -> Result<Shown> {
    let node = Rc::new(node);
    let seen = node.clone();
    host.bind_node(move || seen.conn()).cannot(|| "show the node to the workers")?;
    sweep(&std::env::temp_dir());
    let directory = private_directory()?;
    let socket = directory.join("host");
    let again = spawn_local(stay_announced(node.clone(), socket.clone())).abort_handle();
    let shown = Shown { directory, again };
    host.serve_at(&socket).await.cannot(|| format!("listen at {}", socket.display()))?;
    if let Err(error) = announce(&node, &socket).await {
        context.output.say(format!("not shown below /cell of the node: {error}"));
    }
    Ok(shown)
}

/// A node forgets a host that was silent for some seconds, as one that was stopped, and all of them when it starts anew: it is
/// told again.
async fn stay_announced(node: Rc<Node>, socket: PathBuf) {
    let (mut pause, mut dials) = (ANNOUNCED_AGAIN, 0);
    while dials < DIALS_MAX {
        tokio::time::sleep(pause).await;
        if node.conn().is_lost() {
            dials += 1;
            if let Err(error) = node.dial().await {
                tracing::debug!("the node is away: {error}");
                pause = (pause * 2).min(PAUSE_MAX);
                continue;
            }
        }
        (pause, dials) = (ANNOUNCED_AGAIN, 0);
        if let Ok(false) = is_announced(&node, &socket).await
            && let Err(error) = announce(&node, &socket).await
        {
            tracing::debug!("not shown below /cell of the node: {error}");
        }
    }
    tracing::warn!("the node has not come back: /cell does not show these workers any more");
}

async fn is_announced(node: &Node, socket: &Path) -> covey_ninep::tree::Result<bool> {
    let (text, line) = (node.hosts().await?, format!("host {}", socket.display()));
    Ok(text.split(|byte| *byte == b'\n').any(|other| other == line.as_bytes()))
}

async fn announce(node: &Node, socket: &Path) -> covey_ninep::tree::Result<()> {
    node.command(format!("host '{}'\n", socket.display())).await
}

fn private_directory() -> Result<PathBuf> {
    let word = random::bytes::<8>().cannot(|| "make a random name")?;
    let name = word.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let directory = std::env::temp_dir().join(format!("covey-cell-{name}"));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
    made.cannot(|| format!("make directory {}", directory.display()))?;
    Ok(directory)
}

/// Removes what hosts of this user have left that were killed: directories whose socket nobody listens at.
fn sweep(parent: &Path) {
    let user = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX)) {
        // What a link leads to is not looked at.
        let is_own = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        if is_own && is_left(&entry.path().join("host")) {
            tracing::debug!("removed what a host has left: {}", entry.path().display());
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether there is a socket at which nobody listens. Who does may be stopped: nobody is waited for.
fn is_left(socket: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let made = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let (Ok(made), Ok(address)) = (made, SocketAddrUnix::new(socket)) else { return false };
    rustix::net::connect(&made, &address) == Err(rustix::io::Errno::CONNREFUSED)
}

const PREFIX: &[u8] = b"covey-cell-";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_a_killed_host_has_left_is_removed_and_nothing_that_is_in_use() {
        let parent = tempfile::TempDir::new().expect("a directory");
        let make = |name: &str| {
            let directory = parent.path().join(name);
            std::fs::create_dir(&directory).expect("made");
            directory
        };
        let bind = |at: &Path| UnixListener::bind(at.join("host")).expect("bound");
        let [left, used, begun, other] =
            ["covey-cell-left", "covey-cell-used", "covey-cell-begun", "other"].map(make);
        drop(bind(&left));
        let _listens = bind(&used);
        drop(bind(&other));
        std::os::unix::fs::symlink(&other, parent.path().join("covey-cell-link")).expect("linked");
        sweep(parent.path());
        assert!(!left.exists());
        assert!(used.exists() && begun.exists() && other.join("host").exists());
    }
}
