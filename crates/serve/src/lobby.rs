//! Who is connected to a server: strangers, who have not attached yet, and the users who have.
//!
//! Anyone who reaches a socket can connect, so what they get before they have proven who they are is
//! small (see [`covey_ninep::server::Door`]), brief ([`ATTACH_PATIENCE`]) and for a limited number of
//! connections: when there are too many strangers, the oldest one of the machine or user that has most
//! of them is sent away. So a flood from one place displaces itself, and who attaches as fast as
//! clients do is in before its turn comes. A user of this machine has a limited number of connections,
//! which share what may be held for them in memory. Root, the server's own user and holders of the
//! cluster key could stop the server anyway; their limit is that of file descriptors.

pub mod crowd;
pub mod pace;
pub mod porch;

use covey_io::os::memory;
use covey_io::os::net::PeerInfo;
use covey_io::task;
use covey_ninep::server::{Door, Share};
use covey_ninep::tree::{Errno, Peer, Result};
use crowd::{Crowd, Origin};
use pace::Pace;
use porch::Porch;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// How long a connection may take to attach.
pub const ATTACH_PATIENCE: Duration = Duration::from_secs(10);
/// Most connections that have not attached, where the limit of open files allows four times as many.
const STRANGERS_MAX: usize = 512;
/// Most connections of one user, under the same condition.
const USER_CONNECTIONS_MAX: usize = 256;
/// What may be held for the connections of one user, in bytes.
const USER_BYTES_MAX: usize = 512 << 20;
/// What a user has held that is worth being given back, and how long after its last connection.
const GIVEN_BACK_MIN: usize = 128 << 20;
const GIVE_BACK_AFTER: Duration = Duration::from_secs(5);

/// All connections of a process.
pub struct Lobby {
    own_uid: u32,
    limits: Limits,
    state: RefCell<State>,
    log: RefCell<Pace>,
    /// Of those who need no limit.
    trusted: Rc<Share>,
    /// Where those wait who have not asked for an attach.
    porch: OnceCell<Porch>,
    /// Freed memory is about to be given back.
    gives_back: Cell<bool>,
}

#[derive(Clone, Copy)]
struct Limits {
    strangers: usize,
    user_connections: usize,
}

struct State {
    strangers: Crowd<AbortHandle>,
    known: HashMap<Origin, Account>,
    last: u64,
}

impl State {
    fn new(strangers_max: usize) -> State {
        State { strangers: Crowd::new(strangers_max), known: HashMap::new(), last: 0 }
    }
}

/// One user's connections, or those of one machine that has only a token to show.
struct Account {
    connections: usize,
    share: Rc<Share>,
}

impl Default for Account {
    fn default() -> Account {
        Account {
            connections: 0,
            share: Rc::new(Share::with_total(Share::BYTES_MAX, USER_BYTES_MAX)),
        }
    }
}

impl Lobby {
    /// An empty one, for a process that may have `files` open.
    pub fn new(files: u64) -> Rc<Lobby> {
        let quarter = usize::try_from(files / 4).unwrap_or(usize::MAX).max(8);
        // As many again wait in the porch.
        let limits = Limits {
            strangers: STRANGERS_MAX.min(quarter / 2),
            user_connections: USER_CONNECTIONS_MAX.min(quarter),
        };
        Lobby::limited(limits, rustix::process::geteuid().as_raw())
    }

    fn limited(limits: Limits, own_uid: u32) -> Rc<Lobby> {
        let state = RefCell::new(State::new(limits.strangers));
        let log = RefCell::new(Pace::new("connections were refused or ended before an attach"));
        Rc::new(Lobby {
            own_uid,
            limits,
            state,
            log,
            trusted: Rc::default(),
            porch: OnceCell::new(),
            gives_back: Cell::new(false),
        })
    }

    /// Where all its listeners accept.
    pub fn porch(&self) -> io::Result<Porch> {
        if let Some(porch) = self.porch.get() {
            return Ok(porch.clone());
        }
        let porch = Porch::open(self.limits, self.own_uid)?;
        Ok(self.porch.get_or_init(|| porch).clone())
    }

    /// A connection has come. Where there are too many strangers by that, one of them is sent away.
    pub fn enter(self: &Rc<Self>, peer: &PeerInfo) -> Rc<Guest> {
        let mut state = self.state.borrow_mut();
        state.last += 1;
        let number = state.last;
        let from = Origin::of(peer);
        // The kernel's word for these is as good as an attach.
        let is_stranger = !peer.uid.is_some_and(|uid| self.is_trusted(uid));
        if is_stranger && let Some(task) = state.strangers.enter(number, from) {
            task.abort();
        }
        let name = peer.name.clone();
        let (lobby, standing) = (self.clone(), Cell::new(Standing::Stranger { asked: false }));
        Rc::new(Guest { lobby, number, from, name, standing })
    }

    fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || uid == self.own_uid
    }

    /// Gives the system back, in a while, what a user has left behind: what is free lies between what others use.
    fn give_back(self: Rc<Self>) {
        if self.gives_back.replace(true) {
            return;
        }
        task::spawn(async move {
            task::sleep(GIVE_BACK_AFTER).await;
            self.gives_back.set(false);
            memory::give_back_freed_buffers();
        });
    }

    /// Says something about one who does not get in, unless that was said too often.
    pub fn complain(&self, text: impl FnOnce() -> String) {
        self.log.borrow_mut().complain(text);
    }
}

impl State {
    fn add_known(&mut self, from: Origin, limit: usize) -> Result<Rc<Share>> {
        let account = self.known.entry(from).or_default();
        if account.connections >= limit {
            let what = format!("{from} has {limit} connections already");
            return Err(Errno::because(Errno::EMFILE, what));
        }
        account.connections += 1;
        account.divide();
        Ok(account.share.clone())
    }

    /// One connection less. Answers what all of them have held at most if it was the last.
    fn remove_known(&mut self, from: Origin) -> Option<usize> {
        let account = self.known.get_mut(&from)?;
        account.connections -= 1;
        if account.connections > 0 {
            account.divide();
            return None;
        }
        self.known.remove(&from).map(|account| account.share.held_most())
    }
}

impl Account {
    fn divide(&self) {
        self.share.set(Share::BYTES_MAX.min(USER_BYTES_MAX / self.connections));
    }
}

/// One connection, as long as it lasts.
pub struct Guest {
    lobby: Rc<Lobby>,
    number: u64,
    from: Origin,
    name: String,
    standing: Cell<Standing>,
}

#[derive(Clone, Copy)]
enum Standing {
    /// Has perhaps seen our proof of the key.
    Stranger {
        asked: bool,
    },
    /// Counted with others from there.
    Known,
    Trusted,
}

impl Guest {
    /// What runs the connection.
    pub fn runs_as(&self, task: AbortHandle) {
        self.lobby.state.borrow_mut().strangers.ends_by(self.number, task);
    }

    /// Whether the kernel names the peer as one that needs no limits.
    fn is_trusted_by_kernel(&self, peer: &PeerInfo) -> bool {
        peer.uid.is_some_and(|uid| self.lobby.is_trusted(uid))
    }

    /// Whether nobody knows the peer.
    pub fn is_stranger(&self) -> bool {
        matches!(self.standing.get(), Standing::Stranger { .. })
    }

    /// Says how the connection ended, where that is of interest.
    pub fn ended(&self, why: Option<&str>) {
        let name = &self.name;
        match (self.standing.get(), why) {
            (Standing::Stranger { asked: true }, _) => self.lobby.complain(|| {
                format!("{name}: left when it had seen proof of the cluster key: it has another one, or none")
            }),
            (Standing::Stranger { .. }, Some(why)) => {
                self.lobby.complain(|| format!("{name}: {why}"));
            }
            (_, Some(why)) => tracing::warn!("{name}: {why}"),
            (_, None) => tracing::debug!("{name}: disconnected"),
        }
    }
}

impl Door for Guest {
    fn admit(&self, peer: &Peer) -> Result<Rc<Share>> {
        let mut state = self.lobby.state.borrow_mut();
        let uid = peer.uid.filter(|uid| !peer.has_key && !self.lobby.is_trusted(*uid));
        let (standing, share) = match uid {
            Some(_) => {
                let share = state.add_known(self.from, self.lobby.limits.user_connections)?;
                (Standing::Known, share)
            }
            None => (Standing::Trusted, self.lobby.trusted.clone()),
        };
        state.strangers.leave(self.number);
        self.standing.set(standing);
        Ok(share)
    }

    fn asked(&self) {
        if self.is_stranger() {
            self.standing.set(Standing::Stranger { asked: true });
        }
    }

    fn refused(&self, why: &Errno) {
        if self.is_stranger() {
            // Said now, not again when it leaves.
            self.standing.set(Standing::Stranger { asked: false });
            self.lobby.complain(|| format!("{}: refused: {why}", self.name));
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut state = self.lobby.state.borrow_mut();
        state.strangers.leave(self.number);
        let held = match self.standing.get() {
            Standing::Known => state.remove_known(self.from),
            Standing::Stranger { .. } | Standing::Trusted => None,
        };
        if held.is_some_and(|bytes| bytes >= GIVEN_BACK_MIN) {
            self.lobby.clone().give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { strangers: 6, user_connections: 3 };

    fn lobby() -> Rc<Lobby> {
        Lobby::limited(LIMITS, 77)
    }

    fn from(uid: Option<u32>, address: &str) -> PeerInfo {
        let address = address.parse().ok();
        PeerInfo { name: "x".into(), uid, pid: None, loopback: uid.is_some(), address }
    }

    fn peer(uid: Option<u32>, has_key: bool) -> Peer {
        Peer { name: "x".into(), uid, has_key }
    }

    fn waiting(lobby: &Lobby) -> Vec<u64> {
        lobby.state.borrow().strangers.waiting()
    }

    #[test]
    fn a_flood_from_one_place_displaces_itself() {
        let lobby = lobby();
        let calm = lobby.enter(&from(None, "10.0.0.9"));
        let flood: Vec<_> = (0..20).map(|_| lobby.enter(&from(None, "10.0.0.1"))).collect();
        assert_eq!(waiting(&lobby), [calm.number, 17, 18, 19, 20, 21]);
        // One network of IPv6 is one place.
        let spread = |at: u32| lobby.enter(&from(None, &format!("2001:db8::{at:x}")));
        let second: Vec<_> = (1..20).map(spread).collect();
        assert!(waiting(&lobby).contains(&calm.number));
        assert_eq!(waiting(&lobby).len(), LIMITS.strangers);
        drop((flood, second));
        assert_eq!(waiting(&lobby), [calm.number]);
    }

    #[test]
    fn who_is_sent_away_has_its_task_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let lobby = lobby();
            let first = lobby.enter(&from(None, "10.0.0.1"));
            let task = tokio::task::spawn_local(std::future::pending::<()>());
            first.runs_as(task.abort_handle());
            let more: Vec<_> = (0..6).map(|_| lobby.enter(&from(None, "10.0.0.1"))).collect();
            assert!(task.await.expect_err("it never ends by itself").is_cancelled());
            assert_eq!(waiting(&lobby).len(), more.len());
        });
    }

    #[test]
    fn a_user_has_so_many_connections_which_share_what_is_held_for_them() {
        let lobby = lobby();
        let user = |uid| {
            let guest = lobby.enter(&from(Some(uid), ""));
            guest.admit(&peer(Some(uid), false)).map(|share| (guest, share))
        };
        let few: Vec<_> = (0..3).map(|_| user(1000).expect("within the limit")).collect();
        assert_eq!(user(1000).map(drop).expect_err("one too many").code, Errno::EMFILE);
        user(1001).expect("another user");
        assert!(waiting(&lobby).is_empty());
        drop(few);
        user(1000).expect("they have gone");
        assert!(lobby.state.borrow().known.is_empty());
    }

    #[test]
    fn who_has_only_a_token_is_counted_by_machine() {
        let lobby = lobby();
        let holder = |address| {
            let guest = lobby.enter(&from(None, address));
            guest.admit(&peer(Some(65_534), false)).map(|_| guest)
        };
        let all: Vec<_> = (0..3).map(|_| holder("10.0.0.1").expect("within the limit")).collect();
        let refused = holder("10.0.0.1").map(drop).expect_err("one too many");
        assert!(refused.to_string().contains("machine 10.0.0.1"), "{refused}");
        holder("10.0.0.2").expect("another machine boots");
        drop(all);
        holder("10.0.0.1").expect("they have gone");
    }

    #[test]
    fn all_shares_of_a_user_together_are_bounded() {
        let mut state = State::new(LIMITS.strangers);
        let mut shares = Vec::new();
        for count in 1..=USER_CONNECTIONS_MAX {
            shares.push(
                state.add_known(Origin::User(5), USER_CONNECTIONS_MAX).expect("within the limit"),
            );
            let total: usize = shares.iter().map(|share| share.bytes()).sum();
            assert!(total <= USER_BYTES_MAX, "{count} connections: {total}");
            // Any message must fit.
            assert!(shares[0].bytes() > covey_ninep::message::MSIZE_DEFAULT as usize);
        }
    }

    #[test]
    fn root_the_own_user_and_holders_of_the_key_have_no_limit() {
        let lobby = lobby();
        for (uid, has_key) in [(Some(0), false), (Some(77), false), (None, true), (Some(9), true)] {
            let all: Vec<_> = (0..20)
                .map(|_| {
                    let guest = lobby.enter(&from(uid, "10.0.0.1"));
                    assert_eq!(guest.admit(&peer(uid, has_key)).unwrap().bytes(), Share::BYTES_MAX);
                    guest
                })
                .collect();
            assert!(waiting(&lobby).is_empty(), "{} are in", all.len());
        }
    }
}
