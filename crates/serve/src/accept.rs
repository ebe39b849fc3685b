//! Accepts connections and runs a server machine on each.
//!
//! All connections to a tree run on one thread, the one that the tree lives on, from their first attach
//! on: what comes before is the [`porch`]'s. One that fails ends alone.

use super::export::ExportTree;
use super::lobby::porch::{self, Arrival};
use super::lobby::{ATTACH_PATIENCE, Guest, Lobby};
use super::place::{Clients, Conversation};
use bytes::BytesMut;
use covey_cluster::key::KeyFiles;
use covey_io::os::net::{Address, Listener, Stream, error_text, pacing, welcome};
use covey_io::os::{credentials, limits, run};
use covey_ninep::auth::KeyRing;
use covey_ninep::server::{self, Session};
use covey_ninep::tree::{Peer, Tree};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// What a listener asks of those who come.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The cluster keys, if this server has one.
    pub keys: Option<Arc<KeyFiles>>,
    /// Whether nobody gets in without proving it.
    pub require_key: bool,
    /// A lesser key, which opens one of the trees: what is made of the cluster keys.
    pub guest: Option<fn(KeyRing) -> server::Guest>,
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
    mut listener: Listener,
    tree: Rc<T>,
    config: Config,
    lobby: Rc<Lobby>,
) {
    // It goes when this ends, however long the porch takes to hear of that.
    let _file = listener.take_file();
    let address = listener.address().clone();
    let porch = match lobby.porch() {
        Ok(porch) => porch,
        Err(error) => {
            return tracing::error!("no thread to accept on: {}", error_text(&error));
        }
    };
    let mut arrivals = porch.accept(listener, config.clone());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            arrival = arrivals.recv() => {
                let Some(arrival) = arrival else {
                    return tracing::error!("{address}: nobody accepts connections any more");
                };
                let guest = lobby.enter(&arrival.info);
                let task = connection(arrival, tree.clone(), config.clone(), guest.clone());
                guest.runs_as(connections.spawn_local(task));
            }
            // Only to forget it: what became of a connection was logged there.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection<T: Tree>(arrival: Arrival, tree: Rc<T>, config: Config, guest: Rc<Guest>) {
    let Arrival { info, stream, begun } = arrival;
    let name = info.name.clone();
    let attach_by = Instant::now() + ATTACH_PATIENCE;
    let begin = async {
        let stream = stream.resettle()?;
        // Who has begun was welcomed before.
        if begun.is_some() { Ok(stream) } else { welcome(stream).await }
    };
    let Some(stream) = porch::greet(begin, attach_by, &guest).await else { return };
    let how = if matches!(stream, Stream::Shared(_)) { " through shared memory" } else { "" };
    tracing::debug!(uid = info.uid, "{name}: connected{how}");
    let observer = Conversation::new(&info, config.clients);
    let (session, input) = match begun {
        Some((begun, input)) => (Session::resume(tree, begun, Some(attach_by)), input),
        None => {
            let Some(session) = porch::session(&config, attach_by) else { return };
            let peer = Peer { name: info.name, uid: info.uid, has_key: false };
            (Session::new(tree, peer, session), BytesMut::new())
        }
    };
    let stream = pacing::enroll(stream);
    let session = session.behind(guest.clone());
    let why = run::run_on(session, stream, input, observer).await;
    let why = why.err().map(|blame| blame.to_string());
    guest.ended(why.as_deref());
}
