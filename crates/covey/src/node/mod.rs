//! What a node does: it keeps objects, or names, or both, and serves its tree.

pub mod ctl;
pub mod data;
pub mod export;
pub mod fs;
pub mod identity;
pub mod lobby;
pub mod meta;
pub mod place;
pub mod serve;
pub mod stats;
pub mod tree;
pub mod watch;

pub use covey_cluster::key::read as read_key;
pub use covey_cluster::net;
pub use identity::attach_trusted;

use crate::config::{self, Config, Node, Role};
use crate::error::Error;
use crate::output::announce;
use crate::tune::file::TuneFile;
use anyhow::{Context, bail};
use covey_io::disk::Disk;
use covey_io::os::directory::{DirectoryError, Identity, StoreDir};
use covey_io::os::disk::OsDisk;
use covey_io::os::net::{Address, Listener};
use covey_ninep::client::Conn;
use covey_ninep::message::Message;
use covey_ninep::tree::{Errno, Result as TreeResult, Statfs};
use covey_stripe::client::{Caching, Fs, Options};
use covey_stripe::meta::Store;
use covey_stripe::ops::LayoutHint;
use covey_wire::{List, Name};
use net::ClusterNet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// The answer of one server to a ping.
#[derive(Clone, Debug)]
pub struct PingReport {
    /// Time of one request, there and back: the least of a few.
    pub latency: Duration,
    /// The server's version.
    pub version: String,
    /// Bytes its store can hold, when it has one.
    pub bytes_total: Option<u64>,
    /// Bytes that are used on its disk, by whatever.
    pub bytes_used: Option<u64>,
    /// Bytes still free for it.
    pub bytes_free: Option<u64>,
    /// Bytes that the metadata takes, and what it may grow to, where the node has it.
    pub metadata: Option<(u64, u64)>,
    /// The longest message that it takes, in bytes.
    pub msize: u32,
    /// Why an I/O server serves no objects, when it does not.
    pub store: StoreWord,
}

/// Whether the metadata server lets an I/O server serve from its store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreWord {
    /// It does, or there are no objects here.
    #[default]
    Known,
    /// It has not met the store yet.
    Unmet(String),
    /// It does not know the store: nothing is served.
    Unknown(String),
}

impl StoreWord {
    /// From the text of `/store`.
    fn parse(text: &str) -> StoreWord {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let reason = value("reason ").unwrap_or_default().to_owned();
        match value("state ") {
            Some("unknown") => StoreWord::Unknown(reason),
            Some("unmet") => StoreWord::Unmet(reason),
            _ => StoreWord::Known,
        }
    }
}

/// Formats a node's storage directory. Refuses one that is in use or already formatted.
pub async fn init(config: &Config, name: &str) -> anyhow::Result<()> {
    let node = config.node(name)?;
    let Some(store) = &node.store else {
        bail!("node {name} has no store: only nodes with a role are formatted");
    };
    let directory = StoreDir::create(store, &identity(config, node)).map_err(refused)?;
    if node.is(Role::Meta) {
        format_meta(config, &store.join("meta")).context("cannot format the metadata store")?;
    }
    if node.is(Role::Data) {
        data::DataTree::open(Arc::new(OsDisk), store)?;
    }
    drop(directory);
    Ok(())
}

fn identity(config: &Config, node: &Node) -> Identity {
    Identity { cluster: config.id.clone(), node: node.name.clone(), role: node.roles_text() }
}

fn refused(error: DirectoryError) -> Error {
    Error::work(format!("cannot use the store: {error}")).hint(error.hint())
}

fn format_meta(config: &Config, dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut map = meta::journal::Media::open(dir)?.map;
    let servers: Vec<String> = config.data().map(|node| node.name.clone()).collect();
    let hint = LayoutHint::progressive(crate::tune::file::strip(config)?.0, 0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Store::format(&mut map, &config.id, &servers, hint, since.as_nanos() as u64, owner)?;
    map.checkpoint()?;
    covey_io::os::directory::sync_names(dir)?;
    Ok(())
}

/// Serves a node until it is told to end, with what `tune` has chosen.
pub async fn serve(config: &Config, name: &str, tune: Option<&TuneFile>) -> anyhow::Result<()> {
    let node = config.node(name)?.clone();
    // Whatever may fail for want of a right or a port fails before the store is touched.
    let key = read_key(config)?;
    let listeners = listen(&node, key.is_some()).await?;
    covey_io::os::limits::raise_open_files()?;
    let _directory = match &node.store {
        Some(store) => Some(StoreDir::open(store, &identity(config, &node)).map_err(refused)?),
        None => None,
    };
    let config = Arc::new(config.clone());
    let msize = Some(crate::tune::file::msize(tune));
    let net = Arc::new(ClusterNet::new(config.clone(), key));
    let tree = Rc::new(build(&config, &node, net)?);
    let lobby = lobby::Lobby::new(covey_io::os::limits::open_files());
    for listener in listeners {
        announce(format!("covey: {name} serves {}", describe(&node, listener.address())));
        let require_key = !listener.address().is_local();
        let clients = place::Clients::Mounts;
        let session = serve::Config { key, require_key, clients, msize };
        tokio::task::spawn_local(serve::serve_tree(listener, tree.clone(), session, lobby.clone()));
    }
    wait_for_end().await?;
    if let Some(meta) = &tree.meta {
        meta.0.stop().await?;
    }
    announce(format!("covey: {name} ended"));
    Ok(())
}

fn build(
    config: &Arc<Config>,
    node: &Node,
    net: Arc<ClusterNet>,
) -> anyhow::Result<tree::NodeTree> {
    let store = || node.store.clone().context("a node with a role has a store");
    let data = match node.is(Role::Data) {
        true => Some(data::DataServer(Rc::new(data::DataTree::open(Arc::new(OsDisk), &store()?)?))),
        false => None,
    };
    let servers: Vec<String> = config.data().map(|node| node.name.clone()).collect();
    let meta = match node.is(Role::Meta) {
        true => Some(meta::MetaServer(meta::Meta::start(
            meta::journal::Media::open(&store()?.join("meta"))?,
            &servers,
            net.clone(),
        )?)),
        false => None,
    };
    let name = format!("{} /fs", node.name);
    let options = Options { name, caching: Caching::Leases, ..Options::default() };
    let meta_name = config.meta().name.clone();
    let connect: fs::Connect = Rc::new(move || {
        let (net, meta, options) = (net.clone(), meta_name.clone(), options.clone());
        Box::pin(async move { Fs::connect(net, &meta, options).await })
    });
    let fs = fs::FsTree::new(connect, Rc::new(identity::Users::of_this_process()));
    let text = config::render(config);
    let watch = watch::Watch::new("data");
    let whose = net::whose(config, &node.name);
    Ok(tree::NodeTree { fs, data, meta, config: text, name: node.name.clone(), whose, watch })
}

async fn listen(node: &Node, has_key: bool) -> anyhow::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for address in &node.listen {
        let address: Address = address.to_string().parse()?;
        if !address.is_local() && !has_key {
            return Err(Error::config(format!(
                "cannot listen at {address}: that is beyond this machine and there is no cluster key"
            ))
            .hint("make one with covey keygen FILE, copy it to every node, and name it as \
                key_file in covey.toml")
            .into());
        }
        // Anyone on this machine may knock; who may attach what is decided from their credentials.
        let bound = Listener::bind(&address, 0o666).await.map_err(|error| {
            Error::work(error.to_string())
                .hint("`covey status` shows what runs, `ss -ltnp` who listens where")
        });
        listeners.push(bound?);
    }
    Ok(listeners)
}

fn describe(node: &Node, address: &Address) -> String {
    let mut what = vec!["/fs"];
    if node.is(Role::Meta) {
        what.push("/meta");
    }
    if node.is(Role::Data) {
        what.push("/data");
    }
    let who = match address.is_local() {
        true => "users of this machine (kernel credentials)",
        false => "holders of the cluster key",
    };
    format!("{} at {address} to {who}", what.join(" "))
}

async fn wait_for_end() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Serves a directory of this machine until it is told to end.
pub async fn export(dir: &Path, listen: &[config::Address], read_only: bool) -> anyhow::Result<()> {
    let listen = listen.iter().map(|address| address.to_string().parse());
    let listen = listen.collect::<Result<Vec<Address>, _>>()?;
    covey_io::os::limits::raise_open_files()?;
    let ready = |addresses: &[Address], whom: &str| {
        let how = if read_only { "read-only " } else { "" };
        for address in addresses {
            announce(format!("covey: serves {} {how}at {address} {whom}", dir.display()));
        }
    };
    tokio::select! {
        ended = serve::serve_export(dir, &listen, read_only, ready) => Ok(ended?),
        ended = wait_for_end() => ended,
    }
}

/// A client of the cluster's file system.
pub async fn connect_fs(config: &Config, hard: bool, caching: Caching) -> anyhow::Result<Fs> {
    let name = format!("pid {}", std::process::id());
    covey_cluster::connect(config, Options { hard, name, caching, ..Options::default() }).await
}

/// Asks a node for a sign of life.
pub async fn ping(config: &Config, name: &str) -> anyhow::Result<PingReport> {
    const ROUNDS: usize = 5;
    let conn = dial_root(config, name).await?;
    let mut latency = Duration::MAX;
    let mut space = (None, None, None);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let reply = conn.call(Message::Tstatfs { fid: 0 }).await?;
        latency = latency.min(begun.elapsed());
        if let Message::Rstatfs { bsize, blocks, bfree, bavail, .. } = reply
            && blocks > 0
        {
            let unit = u64::from(bsize);
            let of = |blocks: u64| Some(blocks.saturating_mul(unit));
            space = (of(blocks), of(blocks.saturating_sub(bfree)), of(bavail));
        }
    }
    let version = read_text(&conn, "version").await.unwrap_or_default().trim().to_owned();
    let metadata = match config.node(name)?.is(Role::Meta) {
        true => metadata_space(&read_text(&conn, "space").await.unwrap_or_default()),
        false => None,
    };
    // A server of an older version has no such file.
    let store = StoreWord::parse(&read_text(&conn, "store").await.unwrap_or_default());
    let ((bytes_total, bytes_used, bytes_free), msize) = (space, conn.msize());
    Ok(PingReport { latency, version, bytes_total, bytes_used, bytes_free, metadata, msize, store })
}

/// What a node's `space` says.
fn metadata_space(text: &str) -> Option<(u64, u64)> {
    let (used, max) = text.trim().strip_prefix("metadata ")?.split_once(' ')?;
    Some((used.parse().ok()?, max.parse().ok()?))
}

/// Reads a text file of a node's root.
async fn read_text(conn: &Conn, name: &str) -> anyhow::Result<String> {
    let fid = open_root_file(conn, name, 0).await?;
    let mut text = Vec::new();
    loop {
        let read = Message::Tread { fid, offset: text.len() as u64, count: 64 << 10 };
        match conn.call(read).await? {
            Message::Rread { data } if data.is_empty() => break,
            Message::Rread { data } => text.extend_from_slice(&data.into_bytes()),
            other => bail!("Tread was answered with {}", other.name()),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

async fn open_root_file(conn: &Conn, name: &str, flags: u32) -> anyhow::Result<u32> {
    let fid = conn.fid();
    let names = List(vec![Name::from(name)]);
    let walk = conn.call(Message::Twalk { fid: 0, newfid: fid, names });
    let open = conn.call(Message::Tlopen { fid, flags });
    walk.await?;
    open.await?;
    Ok(fid)
}

/// A connection to a node's root, by the first of its addresses that answers.
async fn dial_root(config: &Config, name: &str) -> anyhow::Result<Conn> {
    Ok(net::dial_node(config, name, "/", read_key(config)?).await?)
}

/// A text file of a node's root.
pub async fn read_of(config: &Config, name: &str, file: &str) -> anyhow::Result<String> {
    read_text(&dial_root(config, name).await?, file).await
}

/// Writes a command to a node's control file.
pub async fn write_ctl(config: &Config, name: &str, command: &str) -> anyhow::Result<()> {
    const WRITE: u32 = 1;
    let conn = dial_root(config, name).await?;
    let fid = open_root_file(&conn, "ctl", WRITE).await?;
    let data = covey_wire::Payload::from(format!("{command}\n").into_bytes());
    conn.call(Message::Twrite { fid, offset: 0, data }).await.map_err(Errno::from)?;
    Ok(())
}

/// The state of the file system that a directory is on.
pub fn statfs_of(disk: &dyn Disk, dir: &Path) -> TreeResult<Statfs> {
    let space = disk.space(dir)?;
    Ok(Statfs {
        bsize: space.unit as u32,
        blocks: space.units,
        bfree: space.free,
        bavail: space.available,
        files: space.files,
        ffree: space.files_free,
        fsid: space.id,
        namelen: space.name_bytes_max as u32,
    })
}
