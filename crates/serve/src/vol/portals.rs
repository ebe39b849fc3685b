//! The addresses at which a node serves volumes: a listener each, and the targets behind it.

use super::record::Access;
use crate::iscsi::gate::Gate;
use crate::iscsi::{near_portal, serve_portal};
use crate::net::{TargetPort, TargetPorts};
use covey_io::os::limits;
use covey_io::os::net::{Address, Listener};
use covey_io::os::threads::Threads;
use covey_iscsi::negotiate::Parameters;
use covey_iscsi::scsi::Units;
use covey_iscsi::target::{self, Credentials, Portal, Target, TargetConfig};
use covey_ninep::tree::{Errno, Result};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// All of a node's.
#[derive(Default)]
pub struct Portals {
    doors: RefCell<BTreeMap<String, Door>>,
    threads: OnceCell<Arc<Threads>>,
    gate: OnceCell<Arc<Gate>>,
    ports: TargetPorts,
    /// Where initiators of this machine come to, if it has such an address: everything is served there that is served at all.
    near: Option<Address>,
    near_door: RefCell<Option<Door>>,
    /// Held while an address is opened: two volumes may want the same one.
    opening: tokio::sync::Mutex<()>,
}

/// One address.
struct Door {
    portal: Arc<Portal<Units>>,
    accepting: tokio::task::JoinHandle<()>,
    /// Held, not looked at.
    _port: Option<TargetPort>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A volume's target, one for all addresses at which it is served: its sessions know of each other, wherever they come in.
pub fn target_of(iqn: &str, name: &str, units: Arc<Units>, access: &Access) -> Arc<Target<Units>> {
    Arc::new(Target::new(TargetConfig {
        name: iqn.to_owned(),
        alias: Some(name.to_owned()),
        portal_group: 1,
        device: units,
        access: access_of(access),
        addresses: Vec::new(),
        parameters: Parameters::TARGET,
    }))
}

impl Portals {
    /// No address yet; the ports of those that there will be are told to `ports`. `node` is the unix socket of the node.
    pub fn telling(ports: TargetPorts, node: Option<&Path>) -> Portals {
        let near = node.map(|path| Address::Unix(near_portal(path)));
        Portals { ports, near, ..Portals::default() }
    }

    /// Serves a target at an address, from which nothing else need be served yet.
    pub async fn serve(&self, address: &str, target: &Arc<Target<Units>>) -> Result<()> {
        let _opening = self.opening.lock().await;
        let known = self.doors.borrow().get(address).map(|door| door.portal.clone());
        let portal = match known {
            Some(portal) => portal,
            None => {
                let door = self.open(&parsed(address)?).await?;
                let portal = door.portal.clone();
                self.doors.borrow_mut().insert(address.to_owned(), door);
                portal
            }
        };
        portal.share(target);
        self.serve_near(target).await;
        Ok(())
    }

    /// Serves a target to this machine, too. Who does not find it there comes to its address.
    async fn serve_near(&self, target: &Arc<Target<Units>>) {
        let Some(near) = &self.near else { return };
        if self.near_door.borrow().is_none() {
            match self.open(near).await {
                Ok(door) => *self.near_door.borrow_mut() = Some(door),
                Err(error) => return tracing::debug!("{near}: {error}"),
            }
        }
        if let Some(door) = &*self.near_door.borrow() {
            door.portal.share(target);
        }
    }

    async fn open(&self, address: &Address) -> Result<Door> {
        let portal = Portal::new();
        let listener = Listener::bind(address, 0o600).await?;
        let gate = self.gate.get_or_init(|| Gate::new(limits::open_files())).clone();
        let serving = serve_portal(listener, portal.clone(), self.threads()?, gate);
        let accepting = tokio::task::spawn_local(serving);
        let port = match address {
            Address::Tcp { port, .. } => Some(self.ports.hold(*port)),
            _ => None,
        };
        Ok(Door { portal, accepting, _port: port })
    }

    /// The threads of all connections.
    pub fn threads(&self) -> std::io::Result<Arc<Threads>> {
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
        if let Some(near) = &*self.near_door.borrow()
            && doors.values().all(|door| door.portal.target(iqn).is_none())
        {
            near.portal.remove(iqn, GRACE_SECONDS);
        }
    }
}

/// The sessions of a target, a line each.
pub fn sessions_text(target: &Target<Units>) -> String {
    let mut text = String::new();
    for session in target.sessions() {
        let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        text += &format!(
            "session {} {} at {} connections {} commands {} bytes_read {} bytes_written {}\n",
            session.tsih,
            session.nexus.initiator,
            Some(&session.entered.address).filter(|at| !at.is_empty()).map_or("unix", |at| at),
            session.connections(),
            count(&session.counts.commands),
            count(&session.counts.bytes_in),
            count(&session.counts.bytes_out),
        );
    }
    text
}

pub fn access_of(access: &Access) -> target::Access {
    let credentials = |(name, secret): &(String, String)| Credentials {
        name: name.clone(),
        secret: secret.clone().into_bytes(),
    };
    target::Access {
        initiators: Some(access.initiators.clone()).filter(|names| !names.is_empty()),
        chap: access.chap.iter().map(credentials).collect(),
        mutual: access.mutual.as_ref().map(credentials),
        vouched_only: access.refuses_distance().is_some(),
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
pub const GRACE_SECONDS: u16 = 3;
/// Most threads for connections.
const THREADS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    use crate::iscsi::disk::{Config, Disk, parse_portal};
    use covey_iscsi::negotiate::Parameters;
    use covey_iscsi::scsi::{self, Unit};
    use covey_iscsi::store::{Answer, Hold, Reply, Request, Store};
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    struct Zeros;

    impl Store for Zeros {
        fn ask(&self, request: Request, _: Hold) -> Answer {
            Answer::Now(match request {
                Request::Read { bytes, .. } => Reply::Data(vec![0; bytes as usize].into()),
                _ => Reply::Done,
            })
        }

        fn bytes(&self) -> u64 {
            1 << 20
        }

        fn losses(&self) -> u64 {
            0
        }
    }

    const TARGET: &str = "iqn.2026-01.org.example:disk";

    fn units() -> Arc<Units> {
        let config = scsi::Config {
            name: "disk".into(),
            serial: "0123456789".into(),
            target: TARGET.into(),
            block_bytes: 512,
            read_only: false,
            removable: false,
            write_cache: true,
            portal_groups: vec![1],
        };
        Arc::new(Units::of(Arc::new(Unit::new(config, Arc::new(Zeros), "").unwrap())))
    }

    async fn disk(address: &str, number: u8) -> Disk {
        let config = Config {
            initiator: "iqn.2026-01.org.example:me".into(),
            target: Some(TARGET.into()),
            isid: [0x80, 0, 0, 0, 0, number],
            chap: None,
            mutual: None,
            parameters: Parameters::INITIATOR,
        };
        let unix = || Address::Unix(address.into());
        let portals = vec![parse_portal(address).unwrap_or_else(unix)];
        Disk::connect(config, portals, 0, Duration::from_secs(10)).await.unwrap()
    }

    fn free_address() -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    }

    /// Sessions of one target know of each other, whatever address they have come to: a reset at one aborts what others have
    /// under way, and who logs in again at another address ends the session that was left behind.
    #[test]
    fn all_addresses_of_a_target_have_the_same_sessions() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let ports = TargetPorts::default();
            let dir = tempfile::tempdir().unwrap();
            let node = dir.path().join("node.sock");
            let portals = Portals::telling(ports.clone(), Some(&node));
            let target = target_of(TARGET, "disk", units(), &Access::default());
            let addresses = [free_address(), free_address()];
            for address in &addresses {
                portals.serve(address, &target).await.unwrap();
                portals.serve(address, &target).await.unwrap();
            }
            let port_of = |address: &String| address.rsplit_once(':').unwrap().1.parse().unwrap();
            let told = || ports.and(&BTreeSet::new());
            assert_eq!(told(), addresses.iter().map(port_of).collect());
            let first = disk(&addresses[0], 1).await;
            let second = disk(&addresses[1], 2).await;
            let text = sessions_text(&target);
            for address in &addresses {
                assert!(text.contains(&format!("at {address} ")), "{text}");
            }
            let numbers: Vec<u16> = target.sessions().iter().map(|one| one.tsih).collect();
            assert_eq!(numbers.len(), 2);
            assert_ne!(numbers[0], numbers[1]);
            // The same initiator port at the other address: the old session is over.
            let again = disk(&addresses[1], 1).await;
            assert_eq!(target.sessions().len(), 2);
            drop((first, again));
            // An address that goes takes only those with it that have come there.
            portals.end(&addresses[0], TARGET);
            assert_eq!(told(), [port_of(&addresses[1])].into());
            second.read(0, 512).await.unwrap();
            // The target hears on a thread of its own that the other one has gone.
            let are_left = || sessions_text(&target).matches(&addresses[1]).count();
            let begun = Instant::now();
            while are_left() != 1 && begun.elapsed() < Duration::from_secs(10) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(are_left(), 1);
            // Near this machine it is served as long as it is anywhere.
            let near = disk(near_portal(&node).to_str().unwrap(), 3).await;
            assert!(sessions_text(&target).contains(" at unix "));
            portals.end(&addresses[1], TARGET);
            let begun = Instant::now();
            while !target.sessions().is_empty() && begun.elapsed() < Duration::from_secs(10) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(sessions_text(&target), "");
            drop(near);
        });
    }

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
