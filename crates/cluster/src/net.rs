//! The cluster's network as the striping client sees it: tokio underneath.

use crate::config::{Config, load_found};
use crate::key::Keys;
use crate::pace::Followed;
use covey_io::os::net::{Address, Stream, connect, pacing};
use covey_io::os::{random, run, users};
use covey_ninep::client::{self, Conn};
use covey_ninep::message::{Dialect, NAME_BYTES_MAX};
use covey_ninep::tree::{Errno, Result};
use covey_stripe::client::{BoxFuture, Net};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How long one address may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);

/// Dials the nodes of a configuration. Tasks run on the runtime it was made in.
pub struct ClusterNet {
    config: Mutex<Arc<Config>>,
    keys: Arc<Keys>,
    runtime: Handle,
    /// What the client calls itself; empty if it does not.
    called: Arc<str>,
    /// Nodes whose word on the rates of our connections is followed.
    followed: Arc<Followed>,
}

/// What is asked of the server at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Nothing: who dials has chosen the address, and whoever listens there is meant.
    Anyone,
    /// On this machine it must belong to root, to this process's user or to this one, or prove the
    /// cluster key: any user's process may listen at the port of a server that is down.
    Cluster(Option<u32>),
}

impl Trust {
    /// What `config` asks for.
    pub fn of(config: &Config) -> Trust {
        Trust::Cluster(config.user_number())
    }

    fn admits(self, owner: Option<u32>) -> bool {
        let own = rustix::process::geteuid().as_raw();
        match self {
            Trust::Anyone => true,
            Trust::Cluster(user) => {
                owner.is_some_and(|owner| owner == 0 || owner == own || Some(owner) == user)
            }
        }
    }
}

impl ClusterNet {
    /// The network of `config`; `key` is proven to nodes that are not on this machine. Must be
    /// called inside the runtime that is to run the connections.
    pub fn new(config: Arc<Config>, key: Option<[u8; 32]>) -> ClusterNet {
        let keys = Arc::new(Keys::new(&config, key));
        crate::pace::begin(&config);
        let (followed, called) = (Arc::default(), "".into());
        ClusterNet {
            config: Mutex::new(config),
            keys,
            runtime: Handle::current(),
            called,
            followed,
        }
    }

    /// The same for a client that calls itself so.
    pub fn called(self, name: &str) -> ClusterNet {
        ClusterNet { called: name.into(), ..self }
    }

    /// A node's addresses, and what it says of itself. One that the configuration does not name may have been added to its file
    /// since that was read.
    fn addresses(&self, server: &str) -> Result<(Vec<Address>, Arc<Config>)> {
        let mut config = self.config.lock().expect("no holder panics");
        if config.nodes.iter().all(|node| node.name != server) {
            match load_found(&config.place()) {
                Ok(now) if now.id == config.id => *config = Arc::new(now),
                // It is being edited, or is another cluster's: what was read holds.
                _ => {}
            }
        }
        Ok((addresses(&config, server)?, config.clone()))
    }
}

impl ClusterNet {
    /// Dials a server and attaches its tree `aname` as the user `uid`, for whom this node vouches: the
    /// server grants what that user may do, not what this node may.
    pub fn dial_as(&self, server: &str, aname: &str, uid: u32) -> BoxFuture<Result<Conn>> {
        self.dial_for(server, aname, Some(uid))
    }

    fn dial_for(&self, server: &str, aname: &str, user: Option<u32>) -> BoxFuture<Result<Conn>> {
        let found = self.addresses(server);
        let (keys, runtime, aname) = (self.keys.clone(), self.runtime.clone(), aname.to_owned());
        let (server, followed) = (server.to_owned(), self.followed.clone());
        let called = self.called.clone();
        Box::pin(async move {
            let (addresses, config) = found?;
            if config.pacing.is_on {
                followed.follow(&config, &server, &keys, &runtime);
            }
            let whose = whose(&config, &server);
            let (trust, is_paced) = (Trust::of(&config), config.pacing.is_on);
            let terms = Terms { trust, user, called: &called, server: &server, is_paced };
            let whom = Whom { aname: &aname, whose: &whose, terms };
            let tried = keys.now();
            let refusal = match dial_any(&addresses, whom, tried, &runtime).await {
                Err(error) if error.code == Errno::EACCES => error,
                Ok(conn) => {
                    keys.was_right();
                    return Ok(conn);
                }
                Err(error) => return Err(error),
            };
            // The key may have been changed since it was read.
            for key in keys.others(tried) {
                if let Ok(conn) = dial_any(&addresses, whom, Some(key), &runtime).await {
                    keys.took(key);
                    return Ok(conn);
                }
            }
            keys.complain(&server, &refusal);
            Err(refusal)
        })
    }
}

impl ClusterNet {
    /// Dials a node's root for so little traffic that it is never paced.
    pub async fn dial_quietly(&self, server: &str) -> Result<Conn> {
        let (_, config) = self.addresses(server)?;
        dial_node(&config, server, "/", self.keys.now()).await
    }

    /// Follows what a node says of the rates of this process's connections, for as long as there are any.
    pub fn follow(&self, server: &str) {
        if let Ok((_, config)) = self.addresses(server) {
            self.followed.follow(&config, server, &self.keys, &self.runtime);
        }
    }
}

impl Net for ClusterNet {
    fn dial(&self, server: &str, aname: &str) -> BoxFuture<Result<Conn>> {
        self.dial_for(server, aname, None)
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<()> {
        // Made where it is polled: who asks may be a thread outside the runtime, such as one that
        // drops a file.
        Box::pin(async move { tokio::time::sleep(time).await })
    }

    fn spawn(&self, task: BoxFuture<()>) {
        self.runtime.spawn(task);
    }
}

/// A node's addresses, those on this machine first.
pub fn addresses(config: &Config, server: &str) -> Result<Vec<Address>> {
    let unknown = || {
        let file = config.file.display();
        let what = format!("no node is called {server}; hint: copy the cluster's file to {file}");
        Errno::because(Errno::EIO, what)
    };
    let node = config.nodes.iter().find(|node| node.name == server).ok_or_else(unknown)?;
    let parse = |text: String| {
        text.parse::<Address>().map_err(|error| Errno::because(Errno::EIO, error.to_string()))
    };
    let all = node.listen.iter().map(|a| parse(a.to_string())).collect::<Result<Vec<_>>>()?;
    let is_here = |address: &Address| match address {
        Address::Unix(path) => path.exists(),
        _ => true,
    };
    // A unix socket that is not here belongs to another machine, unless there is nothing else.
    let (mut here, away): (Vec<_>, Vec<_>) = all.into_iter().partition(is_here);
    if here.is_empty() {
        here = away;
    }
    here.sort_by_key(|address| !matches!(address, Address::Unix(_)));
    Ok(here)
}

/// Connects to a node by the first of its addresses at which it answers, and attaches with fid 0.
pub async fn dial_node(
    config: &Config,
    server: &str,
    aname: &str,
    key: Option<[u8; 32]>,
) -> Result<Conn> {
    let addresses = addresses(config, server)?;
    let (whose, trust) = (&whose(config, server), Trust::of(config));
    let whom = Whom { aname, whose, terms: Terms { server, ..Terms::by(trust) } };
    dial_any(&addresses, whom, key, &Handle::current()).await
}

/// The same for a connection through which much may go, such as programs that are pushed: where the cluster paces, it yields to
/// messages.
pub async fn dial_bulk(
    config: &Config,
    server: &str,
    aname: &str,
    key: Option<[u8; 32]>,
) -> Result<Conn> {
    let runtime = Handle::current();
    if config.pacing.is_on {
        crate::pace::begin(config);
        let config = Arc::new(config.clone());
        let keys = Arc::new(Keys::new(&config, key));
        crate::pace::followed().follow(&config, server, &keys, &runtime);
    }
    let addresses = addresses(config, server)?;
    let (whose, trust) = (&whose(config, server), Trust::of(config));
    let terms = Terms { server, is_paced: config.pacing.is_on, ..Terms::by(trust) };
    dial_any(&addresses, Whom { aname, whose, terms }, key, &runtime).await
}

/// Which tree of which server is meant.
#[derive(Clone, Copy)]
struct Whom<'a> {
    aname: &'a str,
    whose: &'a str,
    terms: Terms<'a>,
}

/// On what terms a connection is made.
#[derive(Clone, Copy)]
struct Terms<'a> {
    trust: Trust,
    /// Whom this node vouches for; None for itself.
    user: Option<u32>,
    /// What the client calls itself; empty if it does not.
    called: &'a str,
    /// The node of the cluster that it is to; empty if it is to none.
    server: &'a str,
    /// Bulk goes through it, which yields to messages.
    is_paced: bool,
}

impl Terms<'_> {
    fn by(trust: Trust) -> Self {
        Terms { trust, user: None, called: "", server: "", is_paced: false }
    }
}

/// Stands behind what a node calls itself in an attach on behalf of one of the peer's users: the peer may
/// be trusted, the user has no more rights than anybody.
pub const VOUCHED: &str = " user";

/// What a node calls itself: a port may be another cluster's by now, and a name may lead to another
/// machine. It stands behind the tree's name in an attach, and a node that is called otherwise
/// refuses it with ENXIO.
pub fn whose(config: &Config, server: &str) -> String {
    format!("{server} {}", config.id)
}

async fn dial_any(
    addresses: &[Address],
    whom: Whom<'_>,
    key: Option<[u8; 32]>,
    runtime: &Handle,
) -> Result<Conn> {
    let Whom { aname, whose, terms } = whom;
    let mut last = Errno::because(Errno::EIO, "the node has no address");
    for address in addresses {
        let aname = format!("{aname} {whose}{}", if terms.user.is_some() { VOUCHED } else { "" });
        let dialects = &[Dialect::Covey, Dialect::Linux];
        match dial_as(address, &aname, key, runtime, dialects, terms).await {
            Ok(conn) => return Ok(conn),
            Err(error) if error.code == Errno::ENXIO => {
                let what =
                    format!("{address}: another cluster's server listens there, or another node");
                last = Errno::because(Errno::EIO, what);
            }
            // A server that answers, if only with no, says more than an address where none does.
            Err(_) if last.code == Errno::EACCES => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to one address, whoever listens there, and attaches with fid 0.
pub async fn dial(
    address: &Address,
    aname: &str,
    key: Option<[u8; 32]>,
    runtime: &Handle,
) -> Result<Conn> {
    let dialects = &[Dialect::Covey, Dialect::Linux];
    dial_speaking(address, aname, key, runtime, dialects, Trust::Anyone).await
}

/// Whether a node takes a key, asked at an address beyond this machine: EACCES where it does not. None for a node that has
/// no such address, where the kernel says who comes.
pub async fn takes_key(config: &Config, node: &str, key: [u8; 32]) -> Option<Result<()>> {
    let all = config.nodes.iter().find(|other| other.name == node)?.listen.iter();
    let beyond = all.filter_map(|address| address.to_string().parse::<Address>().ok());
    let mut last = None;
    for address in beyond.filter(|address| !address.is_local()) {
        let aname = format!("/ {}", whose(config, node));
        match dial(&address, &aname, Some(key), &Handle::current()).await {
            Ok(_) => return Some(Ok(())),
            Err(error) if error.code == Errno::EACCES => return Some(Err(error)),
            Err(error) => last = Some(Err(error)),
        }
    }
    last
}

/// The same in the first of these dialects that the server speaks, if the server can be trusted.
pub async fn dial_speaking(
    address: &Address,
    aname: &str,
    key: Option<[u8; 32]>,
    runtime: &Handle,
    dialects: &[Dialect],
    trust: Trust,
) -> Result<Conn> {
    dial_as(address, aname, key, runtime, dialects, Terms::by(trust)).await
}

/// Connects to a server on this machine that belongs to this user, to root or to us, and attaches with fid 0 on behalf of
/// another user.
pub async fn dial_user_server(
    address: &Address,
    aname: &str,
    owner: u32,
    user: u32,
) -> Result<Conn> {
    let dialects = &[Dialect::Covey, Dialect::Linux];
    let terms = Terms { user: Some(user), ..Terms::by(Trust::Cluster(Some(owner))) };
    dial_as(address, aname, None, &Handle::current(), dialects, terms).await
}

async fn dial_as(
    address: &Address,
    aname: &str,
    key: Option<[u8; 32]>,
    runtime: &Handle,
    dialects: &[Dialect],
    Terms { trust, user, called, server, is_paced }: Terms<'_>,
) -> Result<Conn> {
    let broken = |error: std::io::Error| {
        // A socket that this user may not use. EACCES is a server's answer to the key.
        let code = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Errno::EPERM,
            _ => Errno::EIO,
        };
        // The words name the address.
        Errno::because(code, covey_io::os::net::error_text(&error))
    };
    let stream = connect(address, CONNECT_PATIENCE).await.map_err(broken)?;
    let far_end = stream.far_end().map_err(broken)?;
    let stream = if is_paced { pacing::enroll_dialed(stream) } else { stream };
    let conn = drive(stream, runtime, server);
    conn.version_of(dialects).await?;
    let key = if address.is_local() {
        // The server has spoken: whose it is can be seen now, and nothing was said to it yet.
        vouched(address, trust, far_end.user(), key)?
    } else {
        key
    };
    let nonce = random::nonce().map_err(Errno::from)?;
    let uid = user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    // 9P2000 has names only. To our own servers the number says who asks, and the name who works.
    let uname = match conn.dialect() {
        Some(Dialect::Plan9) => users::by_uid(uid)?.map(|account| account.name.clone()),
        Some(Dialect::Covey) if (1..=NAME_BYTES_MAX).contains(&called.len()) && user.is_none() => {
            Some(called.to_owned())
        }
        _ => None,
    };
    let uname = uname.unwrap_or_else(|| uid.to_string());
    let attached = conn.auth_and_attach(0, uname, Some(uid), aname, key, nonce).await;
    attached.map_err(|error| match Errno::from(error) {
        error if error.code == Errno::EACCES && error.reason.is_empty() && !address.is_local() => {
            Errno::because(
                Errno::EACCES,
                match key {
                    None => {
                        "the server wants proof of the cluster key, and this user can read none"
                    }
                    Some(_) => "the server does not take our proof of the cluster key",
                },
            )
        }
        error => error,
    })?;
    Ok(conn)
}

/// What the server at an address of this machine must prove: nothing, if it is one of those whom the
/// kernel knows as trusted, else the key.
fn vouched(
    address: &Address,
    trust: Trust,
    owner: Option<u32>,
    key: Option<[u8; 32]>,
) -> Result<Option<[u8; 32]>> {
    if trust.admits(owner) {
        return Ok(None);
    }
    if key.is_some() {
        return Ok(key);
    }
    let owner =
        owner.map_or("a user whom the kernel does not tell".into(), |uid| format!("user {uid}"));
    let what = format!(
        "{address}: the server there belongs to {owner}, neither root nor you nor the user that covey.toml \
         names; nothing was said to it"
    );
    Err(Errno::because(Errno::EIO, what))
}

/// Runs a client machine over a stream until either ends.
fn drive(stream: Stream, runtime: &Handle, server: &str) -> Conn {
    // A server that dies is noticed while nobody asks it anything, and then costs nobody a wait.
    let window = crate::pace::window(server);
    let config = client::Config { heartbeat_idle: true, window, ..client::Config::default() };
    let (conn, machine) = client::pair(config, std::time::Instant::now());
    runtime.spawn(async move {
        if let Err(blame) = run::run(machine, stream).await {
            tracing::debug!("connection ended: {blame}");
        }
    });
    conn
}
