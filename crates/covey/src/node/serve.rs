//! Accepts connections and runs a server machine on each.

use covey_io::os::net::{Listener, error_text};
use covey_io::os::{random, run};
use covey_ninep::message::MSIZE_DEFAULT;
use covey_ninep::server::{self, Session};
use covey_ninep::tree::{Peer, Tree};
use std::rc::Rc;
use std::time::Duration;

/// What a listener asks of those who come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// The cluster key, if this server has one.
    pub key: Option<[u8; 32]>,
    /// Whether nobody gets in without proving it.
    pub require_key: bool,
}

/// Serves `tree` to everyone who connects, until the future is dropped. Runs inside a `LocalSet`.
pub async fn serve_tree<T: Tree>(listener: Listener, tree: Rc<T>, config: Config) {
    loop {
        let (stream, info) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, or a peer that went at once: neither is a reason to end.
                tracing::warn!("{}: accept: {}", listener.address(), error_text(&error));
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let nonce = match random::nonce() {
            Ok(nonce) => nonce,
            Err(error) => {
                tracing::error!("no random bytes for a connection: {error}");
                continue;
            }
        };
        let peer = Peer { name: info.name, uid: info.uid, has_key: false };
        let name = peer.name.clone();
        let session = server::Config {
            msize: MSIZE_DEFAULT,
            key: config.key,
            nonce,
            require_key: config.require_key,
        };
        let machine = Session::new(tree.clone(), peer, session);
        tokio::task::spawn_local(async move {
            if let Err(blame) = run::run(machine, stream).await {
                tracing::warn!("{name}: {blame}");
            }
        });
    }
}
