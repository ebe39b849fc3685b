//! Accepts iSCSI initiators, and runs their connections on threads of their own.
//!
//! Who has not logged in is a stranger, as in the [`lobby`](crate::lobby): of those only a limited number is there at a time, few of
//! them from one machine, and each for as long as a login may take.
//!
//! [`disk`] is the other end: a unit of some target as a disk; [`mod@file`] makes a file of it.

pub mod disk;
pub mod file;
mod sense;

use covey_io::os::net::{Listener, PeerInfo, Stream, error_text};
use covey_io::os::threads::Threads;
use covey_io::os::{random, run};
use covey_iscsi::target::{Connection, Device, Portal, Seed};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most connections that have not logged in.
const STRANGERS_MAX: usize = 256;
/// Most of them from one machine.
const STRANGERS_OF_ONE_MAX: usize = 64;
/// How long nothing is accepted after a failure to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Those who have not logged in, by where they come from.
#[derive(Clone, Debug, Default)]
struct Strangers(Arc<Mutex<HashMap<Option<IpAddr>, usize>>>);

/// A stranger's place, until it is dropped.
struct Place(Strangers, Option<IpAddr>);

impl Strangers {
    fn enter(&self, from: Option<IpAddr>) -> Option<Place> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = counts.values().sum();
        let count = counts.entry(from).or_default();
        if all >= STRANGERS_MAX || *count >= STRANGERS_OF_ONE_MAX {
            return None;
        }
        *count += 1;
        Some(Place(self.clone(), from))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.1);
            }
        }
    }
}

/// Serves `portal` to everyone who connects, until the future is dropped. Connections go on for as long as `threads` do.
pub async fn serve_portal<D: Device>(
    listener: Listener,
    portal: Arc<Portal<D>>,
    threads: Arc<Threads>,
) {
    let strangers = Strangers::default();
    loop {
        let accepted = listener.accept().await;
        let begun = accepted.and_then(|(stream, info)| {
            let Stream::Tcp(stream) = stream else { return Ok(()) };
            begin(stream.into_std()?, info, &portal, &threads, &strangers)
        });
        if let Err(error) = begun {
            // Out of file descriptors, or a peer that went at once: no reason to end.
            tracing::warn!("{}: accept: {}", listener.address(), error_text(&error));
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

fn begin<D: Device>(
    stream: TcpStream,
    info: PeerInfo,
    portal: &Arc<Portal<D>>,
    threads: &Threads,
    strangers: &Strangers,
) -> std::io::Result<()> {
    let Some(place) = strangers.enter(info.address) else {
        tracing::debug!("{}: too many connections have not logged in", info.name);
        return Ok(());
    };
    let local = address_text(stream.local_addr()?);
    let seed: Seed = random::bytes()?;
    let portal = portal.clone();
    threads.spawn(move || async move {
        let connection = Connection::new(portal, local, seed, Instant::now());
        let connection = connection.with_ticket(Box::new(place));
        tracing::debug!("{}: connected", info.name);
        let why = match tokio::net::TcpStream::from_std(stream) {
            Ok(stream) => {
                run::run(connection, Stream::Tcp(stream)).await.err().map(|blame| blame.to_string())
            }
            Err(error) => Some(error_text(&error)),
        };
        tracing::debug!("{}: {}", info.name, why.as_deref().unwrap_or("closed"));
    });
    Ok(())
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
