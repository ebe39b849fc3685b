//! The cluster's network as the striping client sees it: tokio underneath.

use crate::config::{Config, load};
use covey_io::os::net::{Address, Stream, connect};
use covey_io::os::{random, run, users};
use covey_ninep::client::{self, Conn};
use covey_ninep::message::Dialect;
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
    key: Option<[u8; 32]>,
    runtime: Handle,
}

impl ClusterNet {
    /// The network of `config`; `key` is proven to nodes that are not on this machine. Must be
    /// called inside the runtime that is to run the connections.
    pub fn new(config: Arc<Config>, key: Option<[u8; 32]>) -> ClusterNet {
        ClusterNet { config: Mutex::new(config), key, runtime: Handle::current() }
    }

    /// A node's addresses, and what it says of itself. One that the configuration does not name may have been added to its file
    /// since that was read.
    fn addresses(&self, server: &str) -> Result<(Vec<Address>, String)> {
        let mut config = self.config.lock().expect("no holder panics");
        if config.nodes.iter().all(|node| node.name != server) {
            match load(&config.file) {
                Ok(now) if now.id == config.id => *config = Arc::new(now),
                // It is being edited, or is another cluster's: what was read holds.
                _ => {}
            }
        }
        Ok((addresses(&config, server)?, whose(&config, server)))
    }
}

impl Net for ClusterNet {
    fn dial(&self, server: &str, aname: &str) -> BoxFuture<Result<Conn>> {
        let found = self.addresses(server);
        let (key, runtime, aname) = (self.key, self.runtime.clone(), aname.to_owned());
        Box::pin(async move {
            let (addresses, whose) = found?;
            dial_any(&addresses, &aname, &whose, key, &runtime).await
        })
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
    dial_any(&addresses, aname, &whose(config, server), key, &Handle::current()).await
}

/// What a node calls itself: a port may be another cluster's by now, and a name may lead to another
/// machine. It stands behind the tree's name in an attach, and a node that is called otherwise
/// refuses it with ENXIO.
pub fn whose(config: &Config, server: &str) -> String {
    format!("{server} {}", config.id)
}

async fn dial_any(
    addresses: &[Address],
    aname: &str,
    whose: &str,
    key: Option<[u8; 32]>,
    runtime: &Handle,
) -> Result<Conn> {
    let mut last = Errno::because(Errno::EIO, "the node has no address");
    for address in addresses {
        match dial(address, &format!("{aname} {whose}"), key, runtime).await {
            Ok(conn) => return Ok(conn),
            Err(error) if error.code == Errno::ENXIO => {
                let what =
                    format!("{address}: another cluster's server listens there, or another node");
                last = Errno::because(Errno::EIO, what);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to one address and attaches with fid 0.
pub async fn dial(
    address: &Address,
    aname: &str,
    key: Option<[u8; 32]>,
    runtime: &Handle,
) -> Result<Conn> {
    dial_speaking(address, aname, key, runtime, &[Dialect::Covey, Dialect::Linux]).await
}

/// The same in the first of these dialects that the server speaks.
pub async fn dial_speaking(
    address: &Address,
    aname: &str,
    key: Option<[u8; 32]>,
    runtime: &Handle,
    dialects: &[Dialect],
) -> Result<Conn> {
    let stream = connect(address, CONNECT_PATIENCE).await.map_err(|error| {
        // The words name the address.
        Errno::because(Errno::EIO, covey_io::os::net::error_text(&error))
    })?;
    let conn = drive(stream, runtime);
    conn.version_of(dialects).await?;
    let key = if address.is_local() { None } else { key };
    let nonce = random::nonce().map_err(Errno::from)?;
    let uid = rustix::process::geteuid().as_raw();
    // 9P2000 has names only.
    let uname = match conn.dialect() {
        Some(Dialect::Plan9) => users::by_uid(uid)?.map(|account| account.name.clone()),
        _ => None,
    };
    let uname = uname.unwrap_or_else(|| uid.to_string());
    conn.auth_and_attach(0, uname, Some(uid), aname, key, nonce).await?;
    Ok(conn)
}

/// Runs a client machine over a stream until either ends.
pub fn drive(stream: Stream, runtime: &Handle) -> Conn {
    // A server that dies is noticed while nobody asks it anything, and then costs nobody a wait.
    let config = client::Config { heartbeat_idle: true, ..client::Config::default() };
    let (conn, machine) = client::pair(config, std::time::Instant::now());
    runtime.spawn(async move {
        if let Err(blame) = run::run(machine, stream).await {
            tracing::debug!("connection ended: {blame}");
        }
    });
    conn
}
