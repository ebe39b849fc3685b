//! The addresses at which a node serves volumes: a listener each, and the targets behind it.

use super::record::Access;
use crate::iscsi::serve_portal;
use covey_io::os::net::{Address, Listener};
use covey_io::os::threads::Threads;
use covey_iscsi::negotiate::Parameters;
use covey_iscsi::scsi::Units;
use covey_iscsi::target::{self, Credentials, Portal, TargetConfig};
use covey_ninep::tree::{Errno, Result};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// All of a node's.
#[derive(Default)]
pub struct Portals {
    doors: RefCell<BTreeMap<String, Door>>,
    threads: OnceCell<Arc<Threads>>,
}

/// One address.
struct Door {
    portal: Arc<Portal<Units>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Portals {
    /// Serves a target at an address, from which nothing else need be served yet.
    pub async fn serve(
        &self,
        address: &str,
        iqn: &str,
        name: &str,
        units: &Arc<Units>,
        access: &Access,
    ) -> Result<()> {
        let known = self.doors.borrow().get(address).map(|door| door.portal.clone());
        let portal = match known {
            Some(portal) => portal,
            None => self.open(address).await?,
        };
        if portal.target(iqn).is_some() {
            return Ok(());
        }
        portal.add(TargetConfig {
            name: iqn.to_owned(),
            alias: Some(name.to_owned()),
            portal_group: 1,
            device: units.clone(),
            access: access_of(access),
            addresses: Vec::new(),
            parameters: Parameters::TARGET,
        });
        Ok(())
    }

    async fn open(&self, address: &str) -> Result<Arc<Portal<Units>>> {
        let portal = Portal::new();
        let listener = Listener::bind(&parsed(address)?, 0o600).await?;
        let serving = serve_portal(listener, portal.clone(), self.threads()?);
        let accepting = tokio::task::spawn_local(serving);
        let door = Door { portal: portal.clone(), accepting };
        self.doors.borrow_mut().insert(address.to_owned(), door);
        Ok(portal)
    }

    fn threads(&self) -> Result<Arc<Threads>> {
        if let Some(threads) = self.threads.get() {
            return Ok(threads.clone());
        }
        let count = std::thread::available_parallelism().map_or(1, |count| count.get());
        let threads = Arc::new(Threads::start("iscsi", count.clamp(2, THREADS_MAX))?);
        Ok(self.threads.get_or_init(|| threads).clone())
    }

    /// Ends a target at an address, and the address with its last one.
    pub fn end(&self, address: &str, iqn: &str) {
        let mut doors = self.doors.borrow_mut();
        let Some(door) = doors.get(address) else { return };
        door.portal.remove(iqn, GRACE_SECONDS);
        if door.portal.targets().is_empty() {
            doors.remove(address);
        }
    }

    /// Changes who may log in to a target, wherever it is served.
    pub fn set_access(&self, iqn: &str, access: &Access) {
        for door in self.doors.borrow().values() {
            door.portal.target(iqn).iter().for_each(|target| target.set_access(access_of(access)));
        }
    }

    /// The sessions of a target, a line each.
    pub fn sessions_text(&self, iqn: &str) -> String {
        let mut text = String::new();
        for (address, door) in &*self.doors.borrow() {
            let sessions = door.portal.target(iqn).map(|target| target.sessions());
            for session in sessions.unwrap_or_default() {
                let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
                text += &format!(
                    "session {} {} at {address} connections {} commands {} bytes_read {} bytes_written {}\n",
                    session.tsih,
                    session.nexus.initiator,
                    session.connections(),
                    count(&session.counts.commands),
                    count(&session.counts.bytes_in),
                    count(&session.counts.bytes_out),
                );
            }
        }
        text
    }
}

fn access_of(access: &Access) -> target::Access {
    let credentials = |(name, secret): &(String, String)| Credentials {
        name: name.clone(),
        secret: secret.clone().into_bytes(),
    };
    target::Access {
        initiators: Some(access.initiators.clone()).filter(|names| !names.is_empty()),
        chap: access.chap.iter().map(credentials).collect(),
        mutual: access.mutual.as_ref().map(credentials),
    }
}

/// `HOST:PORT`, an IPv6 address in brackets, as iSCSI has it.
fn parsed(address: &str) -> Result<Address> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some((host, port.parse().ok().filter(|port| *port != 0)?))
    });
    let why = || format!("{address:?} is no address; hint: HOST:PORT, such as 127.0.0.1:3260");
    match parts {
        Some((host, port)) if !host.is_empty() => Ok(Address::Tcp { host: host.to_owned(), port }),
        _ => Err(Errno::because(Errno::EINVAL, why())),
    }
}

/// Whether only this machine reaches an address.
pub fn is_local(address: &str) -> Result<bool> {
    Ok(parsed(address)?.is_local())
}

/// How long initiators have to log out of what is served no more.
const GRACE_SECONDS: u16 = 3;
/// Most threads for connections.
const THREADS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_this_machine_reaches_is_told_apart() {
        for (address, local) in [
            ("127.0.0.1:3260", true),
            ("localhost:3260", true),
            ("[::1]:3260", true),
            ("0.0.0.0:3260", false),
            ("[::]:3260", false),
            ("10.1.2.3:3260", false),
            ("*:3260", false),
        ] {
            assert_eq!(is_local(address), Ok(local), "{address}");
        }
        for wrong in ["", "host", ":3260", "host:", "host:0", "host:99999"] {
            assert!(is_local(wrong).is_err(), "{wrong}");
        }
    }
}
