//! Accepts connections and runs a server machine on each.
//!
//! All connections to a tree run on one thread, the one that the tree lives on. One that fails ends
//! alone.

use super::export::ExportTree;
use super::lobby::{ATTACH_PATIENCE, Guest, Lobby};
use super::place::{Clients, Conversation};
use covey_io::os::net::{Address, Listener, PeerInfo, Stream, error_text, welcome};
use covey_io::os::place::Observed;
use covey_io::os::{credentials, limits, random, run};
use covey_ninep::message::MSIZE_DEFAULT;
use covey_ninep::server::{self, Session};
use covey_ninep::tree::{Peer, Tree};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What a listener asks of those who come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// The cluster key, if this server has one.
    pub key: Option<[u8; 32]>,
    /// Whether nobody gets in without proving it.
    pub require_key: bool,
    /// A lesser key, which opens one of the trees.
    pub guest: Option<server::Guest>,
    /// Who the clients are.
    pub clients: Clients,
    /// The longest message, where it is not the protocol's own limit.
    pub msize: Option<u32>,
}

/// Serves the directory `dir` at all of `listen`, until the future is dropped. Once it listens
/// everywhere, `ready` is told where, and to whom. Runs inside a `LocalSet`.
pub async fn serve_export(
    dir: &Path,
    listen: &[Address],
    is_read_only: bool,
    ready: impl FnOnce(&[Address], &str),
) -> io::Result<()> {
    // This process makes files for clients only, who have applied their own.
    rustix::process::umask(rustix::fs::Mode::empty());
    let tree = Rc::new(ExportTree::open(dir, is_read_only)?);
    // Without root only the server's own user has any business here, and root gets in anyway.
    let mode = if credentials::can_switch() { 0o666 } else { 0o600 };
    let lobby = Lobby::new(limits::open_files());
    let mut servers = JoinSet::new();
    let mut addresses = Vec::new();
    for address in listen {
        let listener = Listener::bind(address, mode).await?;
        addresses.push(listener.address().clone());
        let config = Config { clients: Clients::Programs, ..Config::default() };
        servers.spawn_local(serve_tree(listener, tree.clone(), config, lobby.clone()));
    }
    ready(&addresses, &tree.identity_text());
    while servers.join_next().await.is_some() {}
    Ok(())
}

/// Serves `tree` to everyone who connects, until the future is dropped; the connections end with it.
/// All listeners of a process have one `lobby`. Runs inside a `LocalSet`.
pub async fn serve_tree<T: Tree>(
    listener: Listener,
    tree: Rc<T>,
    config: Config,
    lobby: Rc<Lobby>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, info)) => {
                    let guest = lobby.enter(&info);
                    let (tree, whom) = (tree.clone(), guest.clone());
                    let task = connection(stream, info, tree, config, whom);
                    guest.runs_as(connections.spawn_local(task));
                }
                Err(error) => {
                    // Out of file descriptors, or a peer that went at once: no reason to end.
                    tracing::warn!("{}: accept: {}", listener.address(), error_text(&error));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            // Only to forget it: what became of a connection was logged there.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection<T: Tree>(
    stream: Stream,
    info: PeerInfo,
    tree: Rc<T>,
    config: Config,
    guest: Rc<Guest>,
) {
    let attach_by = Instant::now() + ATTACH_PATIENCE;
    let nonce = match random::nonce() {
        Ok(nonce) => nonce,
        Err(error) => return tracing::error!("no random bytes for a connection: {error}"),
    };
    let Config { key, require_key, guest: lesser, clients, msize } = config;
    let msize = msize.unwrap_or(MSIZE_DEFAULT);
    let session = server::Config {
        msize,
        key,
        nonce,
        require_key,
        guest: lesser,
        attach_by: Some(attach_by),
    };
    let name = info.name.clone();
    let stream = match tokio::time::timeout_at(attach_by.into(), welcome(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return guest.ended(Some(&format!("cannot begin: {}", error_text(&error))));
        }
        Err(_) => return guest.ended(Some("it has said nothing")),
    };
    let how = if matches!(stream, Stream::Shared(_)) { " through shared memory" } else { "" };
    tracing::debug!(uid = info.uid, "{name}: connected{how}");
    let stream = Observed::new(stream, Conversation::new(&info, clients));
    let peer = Peer { name: info.name, uid: info.uid, has_key: false };
    let session = Session::new(tree, peer, session).behind(guest.clone());
    let why = run::run(session, stream).await.err().map(|blame| blame.to_string());
    guest.ended(why.as_deref());
}

/// How long nothing is accepted after a failure to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
