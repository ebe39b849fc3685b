//! Serving a tree: accepts connections and runs one session on each.
//!
//! All sessions of a tree run on one thread, the one that the tree lives on. A connection that fails
//! ends alone.

use super::export::ExportTree;
use covey_io::os::credentials;
use covey_io::os::net::{Address, Listener, PeerInfo, Stream};
use covey_io::os::random;
use covey_ninep::message::MSIZE_DEFAULT;
use covey_ninep::server::{Config, Session};
use covey_ninep::tree::{Peer, Tree};
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How connections are treated.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Largest message in bytes.
    pub msize: u32,
    /// The cluster key, if this server has one.
    pub key: Option<[u8; 32]>,
    /// Who has to prove it.
    pub key_needed: KeyNeeded,
}

/// Who has to prove the cluster key before an attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyNeeded {
    /// Nobody: the tree decides by what the kernel says of the peer.
    Never,
    /// Peers that the kernel does not vouch for: those on other machines.
    Remotely,
    /// Everybody.
    Always,
}

impl Default for ServeConfig {
    fn default() -> Self {
        ServeConfig { msize: MSIZE_DEFAULT, key: None, key_needed: KeyNeeded::Remotely }
    }
}

/// Serves the directory `dir` at all of `listen`, until the future is dropped. Once it listens
/// everywhere, `ready` is told where, and to whom. To be run within a `LocalSet`.
pub async fn serve_export(
    dir: &Path,
    listen: &[Address],
    is_read_only: bool,
    ready: impl FnOnce(&[Address], &str),
) -> io::Result<Infallible> {
    let tree = Rc::new(ExportTree::open(dir, is_read_only)?);
    // Without root only the server's own user has any business here, and root gets in anyway.
    let mode = if credentials::can_switch() { 0o666 } else { 0o600 };
    let mut servers = JoinSet::new();
    let mut addresses = Vec::new();
    for address in listen {
        let listener = Listener::bind(address, mode).await?;
        addresses.push(listener.address().clone());
        servers.spawn_local(serve_tree(listener, tree.clone(), ServeConfig::default()));
    }
    ready(&addresses, &tree.identity_text());
    match servers.join_next().await {
        Some(Ok(never)) => match never {},
        Some(Err(error)) => Err(io::Error::other(error)),
        None => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no address to listen on"))
        }
    }
}

/// Serves `tree` to all who connect, until the future is dropped; connections end with it. To be run
/// within a `LocalSet`.
pub async fn serve_tree<T: Tree>(
    listener: Listener,
    tree: Rc<T>,
    config: ServeConfig,
) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, info)) => {
                    connections.spawn_local(connection(stream, info, tree.clone(), config.clone()));
                }
                Err(error) => {
                    // Most likely out of descriptors: others may go meanwhile.
                    tracing::warn!(address = %listener.address(), %error, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            // Only to forget it: what became of a connection was logged there.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection<T: Tree>(stream: Stream, info: PeerInfo, tree: Rc<T>, config: ServeConfig) {
    let nonce = match random::nonce() {
        Ok(nonce) => nonce,
        Err(error) => return tracing::error!(%error, "no randomness for a connection"),
    };
    let require_key = match config.key_needed {
        KeyNeeded::Never => false,
        KeyNeeded::Remotely => info.uid.is_none(),
        KeyNeeded::Always => true,
    };
    let session = Config { msize: config.msize, key: config.key, nonce, require_key };
    let peer = Peer { name: info.name.clone(), uid: info.uid, has_key: false };
    tracing::debug!(peer = info.name, uid = info.uid, "connected");
    match covey_io::run(Session::new(tree, peer, session), stream).await {
        Ok(()) => tracing::debug!(peer = info.name, "disconnected"),
        Err(blame) => tracing::info!(peer = info.name, %blame, "connection ended"),
    }
}

/// How long nothing is accepted after a failure to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
