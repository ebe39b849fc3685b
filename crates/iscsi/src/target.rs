//! The target: what initiators log in to.
//!
//! A [`Portal`] knows the targets of a node. Each connection to it is a [`Connection`]: a
//! [`Machine`](covey_wire::Machine) that logs in, finds or makes its [`Session`], and carries commands to the target's
//! [`Device`]. Connections may run on different threads, those of one session, too.
//!
//! ```text
//!   Connection ─┐                                 ┌─ login.rs        names, keys, CHAP
//!   Connection ─┼─► Session ─► Target ─► Device   ├─ full_feature.rs numbers, texts, pings, logout
//!   Connection ─┘   CmdSN      access             ├─ tasks.rs        commands, data both ways
//!                   tasks      sessions           └─ management.rs   aborts and resets
//! ```

mod batch;
mod connection;
mod credit;
mod data_in;
mod data_out;
mod discovery;
mod full_feature;
mod lent;
mod login;
mod management;
mod request;
mod security;
mod session;
mod tasks;

pub use crate::chap::Credentials;
pub use crate::scsi::Device;
pub use connection::{Connection, Seed};
pub use credit::Credit;
pub use session::{Counts, Entered, Order, Session, WINDOW};

use crate::message::login as status;
use crate::negotiate::Parameters;
use crate::scsi::Nexus;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Most sessions of one target.
const SESSIONS_MAX: usize = 4096;

/// The targets that can be reached at a node's addresses.
pub struct Portal<D: Device> {
    number: u64,
    targets: RwLock<BTreeMap<String, Arc<Target<D>>>>,
    /// Who may ask which targets there are.
    pub discovery: RwLock<Access>,
}

impl<D: Device> Default for Portal<D> {
    fn default() -> Self {
        let (targets, discovery) = Default::default();
        Portal { number: unique_number(), targets, discovery }
    }
}

/// Who may log in, and how they prove who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The initiators' names; none where all may.
    pub initiators: Option<Vec<String>>,
    /// What an initiator proves to know by CHAP; nobody has to where there is nothing.
    pub chap: Vec<Credentials>,
    /// What the target proves to know to who asks.
    pub mutual: Option<Credentials>,
    /// Whether only those may for whom somebody vouches ([`Connection::vouched_for`]).
    pub vouched_only: bool,
}

impl Access {
    fn admits(&self, initiator: &str, arrival: &Arrival) -> bool {
        let is_named =
            |names: &Vec<String>| names.iter().any(|name| name.eq_ignore_ascii_case(initiator));
        let may_come = arrival.is_vouched_for || !self.vouched_only;
        may_come && self.initiators.as_ref().is_none_or(is_named)
    }

    /// Whether somebody who has logged in could do so now; the status of a login if not.
    fn check(&self, initiator: &str, entered: &Entered) -> Result<(), u16> {
        if !self.admits(initiator, &entered.arrival) {
            return Err(status::AUTHORIZATION);
        }
        if !self.chap.is_empty() && self.chap != entered.chap {
            return Err(status::AUTHENTICATION);
        }
        Ok(())
    }
}

/// How a connection has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Arrival {
    /// `HOST:PORT` of the address that the initiator has come to; empty where it has none.
    local: String,
    /// Whether who accepted it knows the peer.
    is_vouched_for: bool,
}

/// What a connection holds at its node as long as it lasts: a place among those who are there.
pub trait Ticket: Send {
    /// The peer has logged in to a target, and is a stranger no more. False where there is no place for it.
    fn admit(&mut self) -> bool;

    /// The connection holds so many bytes for its initiator now: what has come and is not done, and what has not been taken.
    fn hold(&mut self, bytes: u64) -> Room {
        let _ = bytes;
        Room::Ample
    }
}

/// How much memory is left for those who share what a connection holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// As much as anybody needs.
    #[default]
    Ample,
    /// Little: no more than one command at a time is given memory.
    Scarce,
    /// None: what there is must be given back before more comes.
    None,
}

/// Where a target is instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// `HOST:PORT`, an IPv6 address in brackets.
    pub address: String,
    /// Whether it stays there.
    pub for_good: bool,
}

/// What a target is made of.
pub struct TargetConfig<D: Device> {
    /// Its iSCSI name.
    pub name: String,
    /// What people call it.
    pub alias: Option<String>,
    /// TargetPortalGroupTag.
    pub portal_group: u16,
    /// Its units.
    pub device: Arc<D>,
    /// Who may log in.
    pub access: Access,
    /// `HOST:PORT` of its portals, for discovery; where there is none, the address that the initiator has come to.
    pub addresses: Vec<String>,
    /// What it agrees to.
    pub parameters: Parameters,
}

/// A target.
pub struct Target<D: Device> {
    /// Its iSCSI name.
    pub name: String,
    alias: Option<String>,
    portal_group: u16,
    /// Its units.
    pub device: Arc<D>,
    parameters: Parameters,
    changing: RwLock<Changing>,
    sessions: Mutex<BTreeMap<u16, Arc<Session<D>>>>,
}

/// A session, and those that it replaces.
type Begun<D> = (Arc<Session<D>>, Vec<Arc<Session<D>>>);

/// What may change while a target is served.
#[derive(Clone, Debug, Default)]
struct Changing {
    access: Access,
    addresses: Vec<String>,
    elsewhere: Option<Elsewhere>,
    is_away: bool,
}

impl<D: Device> Portal<D> {
    /// A portal without targets.
    pub fn new() -> Arc<Portal<D>> {
        Arc::new(Portal::default())
    }

    /// Serves another target; false where there is one of this name.
    pub fn add(&self, config: TargetConfig<D>) -> bool {
        self.share(&Arc::new(Target::new(config)))
    }

    /// Serves a target that other portals may serve as well: its sessions are known to all of them, so that a reset at one
    /// concerns the tasks of all. False where there is one of this name.
    pub fn share(&self, target: &Arc<Target<D>>) -> bool {
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        let name = target.name.to_ascii_lowercase();
        if targets.contains_key(&name) {
            return false;
        }
        targets.insert(name, target.clone());
        true
    }

    /// Serves a target no more. Initiators that have come this way are asked to log out, and lose their connections after
    /// `seconds`; those that other portals have let in stay.
    pub fn remove(&self, name: &str, seconds: u16) -> Option<Arc<Target<D>>> {
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        let target = targets.remove(&name.to_ascii_lowercase())?;
        let sessions = target.sessions().into_iter();
        let from_here = sessions.filter(|session| session.entered.portal == self.number);
        from_here.for_each(|session| session.order(Order::AskLogout(seconds)));
        Some(target)
    }

    /// Begins or finds a session for somebody whose login has succeeded, unless the target has left the portal since it began.
    fn enter<T>(
        &self,
        target: &Arc<Target<D>>,
        enter: impl FnOnce() -> Result<T, u16>,
    ) -> Result<T, u16> {
        // Held meanwhile: who removes the target finds the session.
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        let served = targets.get(&target.name.to_ascii_lowercase());
        if !served.is_some_and(|served| Arc::ptr_eq(served, target)) {
            return Err(status::NOT_FOUND);
        }
        enter()
    }

    /// The target of this name.
    pub fn target(&self, name: &str) -> Option<Arc<Target<D>>> {
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        targets.get(&name.to_ascii_lowercase()).cloned()
    }

    /// All targets, by name.
    pub fn targets(&self) -> Vec<Arc<Target<D>>> {
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        targets.values().cloned().collect()
    }
}

/// A number that no portal and no nexus of this process has: units may be reached by several portals.
fn unique_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<D: Device> Target<D> {
    /// A target, to be served at one portal or several ([`Portal::share`]).
    pub fn new(config: TargetConfig<D>) -> Target<D> {
        let TargetConfig { access, addresses, .. } = config;
        Target {
            name: config.name,
            alias: config.alias,
            portal_group: config.portal_group,
            device: config.device,
            parameters: config.parameters,
            changing: RwLock::new(Changing { access, addresses, elsewhere: None, is_away: false }),
            sessions: Mutex::default(),
        }
    }

    /// Changes who may log in, from the next login on. Sessions go on until they are evicted.
    pub fn set_access(&self, access: Access) {
        self.change(|changing| changing.access = access);
    }

    /// Ends the sessions of those whom a login like theirs would not let in any more, by their names or what they have proved.
    pub fn evict(&self, why: &'static str) {
        let access = self.look(|it| it.access.clone());
        let sessions = self.sessions().into_iter();
        let stays = |session: &Arc<Session<D>>| {
            access.check(&session.nexus.initiator, &session.entered).is_ok()
        };
        sessions.filter(|session| !stays(session)).for_each(|session| session.close(why));
    }

    /// Sends initiators elsewhere, from the next login on; or no more.
    pub fn set_elsewhere(&self, elsewhere: Option<Elsewhere>) {
        self.change(|changing| changing.elsewhere = elsewhere);
    }

    /// Has initiators come again later, from the next login on; or no more.
    pub fn set_away(&self, is_away: bool) {
        self.change(|changing| changing.is_away = is_away);
    }

    /// Changes the addresses that discovery reports.
    pub fn set_addresses(&self, addresses: Vec<String>) {
        self.change(|changing| changing.addresses = addresses);
    }

    fn change(&self, change: impl FnOnce(&mut Changing)) {
        change(&mut self.changing.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn look<T>(&self, look: impl FnOnce(&Changing) -> T) -> T {
        look(&self.changing.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Its sessions.
    pub fn sessions(&self) -> Vec<Arc<Session<D>>> {
        self.table().values().cloned().collect()
    }

    /// Asks all initiators to log out; connections that remain after `seconds` are closed.
    pub fn ask_logout(&self, seconds: u16) {
        self.order(&Order::AskLogout(seconds));
    }

    /// Ends all sessions. What has no answer yet gets none, nor does what still comes on their connections: initiators send it
    /// again where they log in next.
    pub fn disconnect(&self, why: &'static str) {
        self.sessions().iter().for_each(|session| session.close(why));
    }

    fn order(&self, order: &Order) {
        self.sessions().iter().for_each(|session| session.order(order.clone()));
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<u16, Arc<Session<D>>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a login that has succeeded would do so now: what it was checked against may have changed while it went on.
    /// Asked under the lock of the sessions, so that whoever changes something finds all that were let in before.
    fn check(&self, initiator: &str, entered: &Entered) -> Result<(), u16> {
        self.look(|it| {
            if it.elsewhere.is_some() || it.is_away {
                return Err(status::UNAVAILABLE);
            }
            it.access.check(initiator, entered)
        })
    }

    /// Begins a session. Those of the same initiator port are ended by it, and returned.
    fn begin(
        self: &Arc<Self>,
        nexus: Nexus,
        entered: Entered,
        connections_max: u32,
        cmd_sn: u32,
    ) -> Result<Begun<D>, u16> {
        let mut sessions = self.table();
        self.check(&nexus.initiator, &entered)?;
        //= rfc7143#6.3.5
        // A login of the same initiator port reinstates the session: the old one is ended before.
        let is_old = |session: &&Arc<Session<D>>| {
            let old = &session.nexus;
            old.initiator.eq_ignore_ascii_case(&nexus.initiator) && old.isid == nexus.isid
        };
        let old: Vec<_> = sessions.values().filter(is_old).cloned().collect();
        for session in &old {
            sessions.remove(&session.tsih);
            session.abort(|_, _| true);
            session.close("the session was reinstated");
            self.device.lost(&session.nexus);
        }
        if sessions.len() >= SESSIONS_MAX {
            return Err(status::OUT_OF_RESOURCES);
        }
        let last = sessions.keys().next_back().copied().unwrap_or(0);
        let free = |tsih: &u16| !sessions.contains_key(tsih);
        let tsih = last.checked_add(1).or_else(|| (1..=u16::MAX).find(free));
        let tsih = tsih.ok_or(status::OUT_OF_RESOURCES)?;
        let target = Some(self.clone());
        let session = Arc::new(Session::new(target, nexus, entered, tsih, connections_max, cmd_sn));
        sessions.insert(tsih, session.clone());
        Ok((session, old))
    }

    /// The session that a connection wants to join.
    fn session(
        &self,
        tsih: u16,
        (initiator, isid): (&str, [u8; 6]),
        entered: &Entered,
    ) -> Result<Arc<Session<D>>, u16> {
        let sessions = self.table();
        self.check(initiator, entered)?;
        let is_same = |session: &&Arc<Session<D>>| {
            let nexus = &session.nexus;
            nexus.initiator.eq_ignore_ascii_case(initiator) && nexus.isid == isid
        };
        sessions.get(&tsih).filter(is_same).cloned().ok_or(status::NO_SESSION)
    }

    /// The last connection of a session is gone.
    fn end(&self, session: &Arc<Session<D>>) {
        let mut sessions = self.table();
        let is_known = sessions.get(&session.tsih).is_some_and(|known| Arc::ptr_eq(known, session));
        if is_known {
            sessions.remove(&session.tsih);
            drop(sessions);
            self.device.lost(&session.nexus);
        }
    }
}
