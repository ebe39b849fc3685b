//! Accepts iSCSI initiators, and runs their connections on threads of their own.
//!
//! [`gate`] says who may be connected, and [`Portal`] who may log in. Where no secret is asked for, the kernel is: it knows whose
//! socket is at the other end of a loopback connection. A lone initiator of this machine that waits for each answer has them from
//! its own CPU, as clients of other services have ([`covey_io::place`]).
//!
//! [`disk`] is the other end: a unit of some target as a disk; [`mod@file`] makes a file of it.

pub mod credits;
pub mod disk;
pub mod file;
pub mod gate;
mod sense;

use crate::place::{Clients, Conversation};
use bytes::BytesMut;
use covey_io::os::net::{Listener, PeerInfo, Stream, error_text, pacing, welcome};
use covey_io::os::threads::Threads;
use covey_io::os::{random, run};
use covey_iscsi::target::{Connection, Credit, Device, Portal, Seed};
use gate::Gate;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long nothing is accepted after a failure to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection by a unix socket may take until it says whether it wants to share memory.
const GREETING_PATIENCE: Duration = Duration::from_secs(15);

/// Serves `portal` to everyone who connects, until the future is dropped. Connections go on for as long as `threads` do.
pub async fn serve_portal<D: Device>(
    listener: Listener,
    portal: Arc<Portal<D>>,
    threads: Arc<Threads>,
    gate: Arc<Gate>,
) {
    loop {
        let accepted = listener.accept().await;
        let begun =
            accepted.and_then(|(stream, info)| begin(stream, info, &portal, &threads, &gate));
        if let Err(error) = begun {
            // Out of file descriptors, or a peer that went at once: no reason to end.
            tracing::warn!("{}: accept: {}", listener.address(), error_text(&error));
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// The portal of a node for initiators of its own machine, which is beside the unix socket of its other services: nothing that
/// TCP does is needed there, and the kernel says who comes.
pub fn near_portal(node: &Path) -> PathBuf {
    let mut path = node.as_os_str().to_owned();
    path.push(".iscsi");
    path.into()
}

fn begin<D: Device>(
    stream: Stream,
    info: PeerInfo,
    portal: &Arc<Portal<D>>,
    threads: &Threads,
    gate: &Arc<Gate>,
) -> std::io::Result<()> {
    let ends = ends(&stream)?;
    let local = ends.map_or_else(String::new, |(here, _)| address_text(here));
    let credit = ends.map_or_else(Arc::<Credit>::default, credits::enter);
    let seed: Seed = random::bytes()?;
    let (place, ended) = gate.enter(&info);
    let (portal, gate) = (portal.clone(), gate.clone());
    // Whoever has closed one connection and made another may count on that order, whatever threads they are on: a nexus that
    // is lost holds nothing any more.
    let caught_up = threads.caught_up();
    threads.spawn(move || async move {
        caught_up.await;
        let connection = Connection::new(portal, local, seed, Instant::now());
        let connection =
            if gate.vouches_for(&info) { connection.vouched_for() } else { connection };
        let connection = connection.with_ticket(Box::new(place)).with_credit(credit);
        tracing::debug!("{}: connected", info.name);
        let running = async {
            let welcomed = tokio::time::timeout(GREETING_PATIENCE, welcome(stream.resettle()?));
            let stream = pacing::enroll(welcomed.await.map_err(std::io::Error::from)??);
            let observer = Conversation::new(&info, Clients::Programs);
            let ended = run::run_on(connection, stream, BytesMut::new(), observer).await;
            ended.map_err(std::io::Error::other)
        };
        tokio::select! {
            why = running => match why {
                Ok(()) => tracing::debug!("{}: closed", info.name),
                Err(error) => tracing::debug!("{}: {}", info.name, error_text(&error)),
            },
            Ok(()) = ended => gate.complain(|| {
                format!("{}: too many connections have not logged in to a volume", info.name)
            }),
        }
    });
    Ok(())
}

/// The addresses of this end and of the other, of a connection that may go through a wire.
fn ends(stream: &Stream) -> std::io::Result<Option<(SocketAddr, SocketAddr)>> {
    let Stream::Tcp(stream) = stream else { return Ok(None) };
    Ok(Some((pacing::canonical(stream.local_addr()?), pacing::canonical(stream.peer_addr()?))))
}

/// As TargetAddress has it (RFC 7143, 13.8).
fn address_text(address: SocketAddr) -> String {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => format!("{ip}:{}", address.port()),
        IpAddr::V6(ip) => format!("[{ip}]:{}", address.port()),
    }
}

#[cfg(test)]
mod tests;
