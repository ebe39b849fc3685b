//! What a node does: it keeps objects, or names, or both, and serves its tree.

use crate::config::{self, Config, Node, Role};
use crate::error::Error;
use crate::net as wires;
use crate::{
    accept, boot, data, fs, identity as who, lobby, meta, moving, place, tree, views, vol, xcpu,
};
use anyhow::{Context, bail};
use covey_cluster::key::{KeyFiles, read as read_key};
use covey_cluster::net::{self, ClusterNet};
use covey_cluster::process_name;
use covey_cluster::tuned::TuneFile;
use covey_io::disk::Disk;
use covey_io::os::directory::{DirectoryError, Identity, StoreDir};
use covey_io::os::disk::OsDisk;
use covey_io::os::net::{Address, Listener};
use covey_io::os::spawn::Starter;
use covey_ninep::namespace::Namespace;
use covey_ninep::tree::{Result as TreeResult, Statfs};
use covey_stripe::client::{Caching, Fs, Options};
use covey_stripe::meta::{Store, format_chains};
use covey_stripe::ops::StripingHint;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Chains that each I/O server of a new cluster has: what is moved from one to others can be dealt evenly.
const CHAINS_EACH: u16 = 16;

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
    Identity { cluster: config.id.clone(), node: node.name.clone(), role: node.storage_text() }
}

fn refused(error: DirectoryError) -> Error {
    let why = match &error {
        DirectoryError::Io(_, why) => covey_cluster::error::hint_of(why),
        _ => None,
    };
    Error::work(format!("cannot use the store: {error}")).hint(why.unwrap_or(error.hint()))
}

fn format_meta(config: &Config, dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut map = meta::journal::Media::open(dir)?.map;
    let servers: Vec<String> = config.data().map(|node| node.name.clone()).collect();
    let hint = StripingHint::progressive(covey_cluster::tuned::strip(config)?.0, 0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Store::format(&mut map, &config.id, &servers, hint, since.as_nanos() as u64, owner)?;
    format_chains(&mut map, servers.len(), CHAINS_EACH)?;
    map.checkpoint()?;
    covey_io::os::directory::sync_names(dir)?;
    Ok(())
}

/// Serves a node until it is told to end, with what `tune` has chosen. What it serves, where and to whom is
/// reported to `say`, and its end.
pub async fn serve(
    config: &Config,
    name: &str,
    tune: Option<&TuneFile>,
    say: impl Fn(&str),
) -> anyhow::Result<()> {
    serve_with(config, name, tune, say, |_| Ok(())).await
}

/// The same with what `bind` binds besides.
pub async fn serve_with(
    config: &Config,
    name: &str,
    tune: Option<&TuneFile>,
    say: impl Fn(&str),
    bind: impl FnOnce(&Namespace) -> TreeResult<()>,
) -> anyhow::Result<()> {
    let node = config.node(name)?.clone();
    refuse_sandboxed_programs(&node)?;
    // Early, while there is little to be copied, and no file open that others must not have.
    let starter = node.is(Role::Launch).then(Starter::fork).transpose()?;
    // The programs of users, started by that one, have their usual turns: this node's work is what they may interrupt.
    covey_io::os::place::make_way();
    // Whatever may fail for want of a right or a port fails before the store is touched.
    let key = read_key(config)?;
    let listeners = listen(&node, key.is_some()).await?;
    covey_io::os::limits::raise_open_files()?;
    let _directory = match node.store.as_ref().filter(|_| node.is_storage()) {
        Some(store) => Some(StoreDir::open(store, &identity(config, &node)).map_err(refused)?),
        None => None,
    };
    let config = Arc::new(config.clone());
    let msize = Some(covey_cluster::tuned::msize(tune));
    let called = process_name::of_node(name);
    let net = Arc::new(ClusterNet::new(config.clone(), key).called(&called));
    let keys = KeyFiles::of(&config, key);
    let (parts, names) = build(&config, &node, net.clone())?;
    views::bind(&names, &config, &net)?;
    let targets = wires::TargetPorts::default();
    let wires = wires::bind(&names, &config, name, net.clone(), tune, targets.clone())?;
    let xcpu = match starter {
        Some(starter) => Some(xcpu::bind(&names, starter, &node, net, |part| wires.noticed(part))?),
        None => None,
    };
    if let (true, Some(store)) = (node.is(Role::Boot), &node.store) {
        names.bind("boot", wires.noticed(Rc::new(boot::open(store.join(boot::DIR))?)))?;
    }
    bind(&names)?;
    let tree = Rc::new(names);
    let volumes = match &node.store {
        Some(store) => {
            let dir = store.join("volumes");
            let volumes = vol::Volumes::load(config.clone(), name, &dir, key, targets)?;
            volumes.bind(&tree)?;
            let _ = parts.volumes.set(volumes.clone());
            tokio::task::spawn_local(volumes.clone().run());
            Some(volumes)
        }
        None => None,
    };
    crate::cell::bind(&tree)?;
    let lobby = lobby::Lobby::new(covey_io::os::limits::open_files());
    for listener in listeners {
        say(&format!("{name} serves {}", describe(&node, listener.address())));
        let require_key = !listener.address().is_local();
        let clients = place::Clients::Mounts;
        let guest = node.is(Role::Boot).then_some(boot::guest as fn(_) -> _);
        let keys = keys.clone();
        let session = accept::Config { keys, require_key, guest, clients, msize };
        tokio::task::spawn_local(accept::serve_tree(
            listener,
            tree.clone(),
            session,
            lobby.clone(),
        ));
    }
    wait_for_end().await?;
    if let Some(xcpu) = xcpu {
        xcpu.wipe_all();
    }
    if let Some(volumes) = &volumes {
        volumes.end().await;
    }
    if let Some(meta) = &parts.meta {
        meta.0.stop().await?;
    }
    say(&format!("{name} ended"));
    Ok(())
}

/// Users' programs would inherit the servers' sandbox, which `covey systemd sandbox` names in the environment.
fn refuse_sandboxed_programs(node: &Node) -> anyhow::Result<()> {
    if !node.is(Role::Launch) || std::env::var_os(SANDBOX).is_none() {
        return Ok(());
    }
    let name = &node.name;
    Err(Error::config(format!(
        "cannot serve {name}: it has the role launch, and users' programs must not run in the \
         servers' sandbox"
    ))
    .hint(format!(
        "remove /etc/systemd/system/covey@{name}.service.d/sandbox.conf, then systemctl daemon-reload"
    ))
    .hint(format!("or take \"launch\" from the roles of {name} in covey.toml"))
    .into())
}

/// The I/O servers that the configuration's file lists by now. While it is edited, or is another cluster's, what was read holds.
fn configured(config: Arc<Config>) -> meta::Configured {
    Rc::new(move || {
        let now = covey_cluster::config::load_found(&config.place())
            .ok()
            .filter(|now| now.id == config.id);
        let config = now.as_ref().unwrap_or(&config);
        config.data().map(|node| node.name.clone()).collect()
    })
}

/// Set by the drop-in of systemd that has the sandbox.
const SANDBOX: &str = "COVEY_SANDBOX";

fn build(
    config: &Arc<Config>,
    node: &Node,
    net: Arc<ClusterNet>,
) -> anyhow::Result<(Rc<tree::Node>, Namespace)> {
    let store = || node.store.clone().context("a node with a role has a store");
    let data = if node.is(Role::Data) {
        Some(data::DataServer(Rc::new(data::DataTree::open(Arc::new(OsDisk), &store()?)?)))
    } else {
        None
    };
    let configured = configured(config.clone());
    let neighbours = net.clone();
    let meta = if node.is(Role::Meta) {
        Some(meta::MetaServer(meta::Meta::start(
            meta::journal::Media::open(&store()?.join("meta"))?,
            configured,
            net.clone(),
        )?))
    } else {
        None
    };
    let name = format!("{} /fs", node.name);
    let options = Options { name, caching: Caching::Leases, ..Options::default() };
    let meta_name = config.meta().name.clone();
    if let Some(meta) = &meta {
        let name = format!("{} mover", node.name);
        meta.0.carry_out_tasks(moving::beside(net.clone(), meta_name.clone(), name));
    }
    let connect: fs::Connect = Rc::new(move || {
        let (net, meta, options) = (net.clone(), meta_name.clone(), options.clone());
        Box::pin(async move { Ok(Fs::connect(net, &meta, options).await?) })
    });
    let users = Rc::new(who::Users::of_this_process());
    let fs = fs::FsTree::new(connect, users.clone());
    let (name, whose) = (node.name.clone(), net::whose(config, &node.name));
    let (volumes, works) = Default::default();
    let parts = Rc::new(tree::Node { name, whose, users, data, meta, volumes, works });
    let names = tree::namespace(&parts, fs, config::render(config))?;
    for other in config.nodes.iter().filter(|other| other.name != node.name) {
        let name = other.name.clone();
        names.bind(&format!("n/{name}"), Rc::new(tree::neighbour(neighbours.clone(), name)))?;
    }
    Ok((parts, names))
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
    if node.is(Role::Launch) {
        what.push("/xcpu");
    }
    if node.is(Role::Boot) {
        what.push("/boot");
    }
    let who = if address.is_local() {
        "users of this machine (kernel credentials)"
    } else {
        "holders of the cluster key"
    };
    format!("{} at {address} to {who}", what.join(" "))
}

pub(crate) async fn wait_for_end() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Serves a directory of this machine until it is told to end.
pub async fn export(
    dir: &Path,
    listen: &[config::Address],
    read_only: bool,
    say: impl Fn(&str),
) -> anyhow::Result<()> {
    let listen = listen.iter().map(|address| address.to_string().parse());
    let listen = listen.collect::<Result<Vec<Address>, _>>()?;
    covey_io::os::limits::raise_open_files()?;
    let ready = |addresses: &[Address], whom: &str| {
        let how = if read_only { "read-only " } else { "" };
        for address in addresses {
            say(&format!("serves {} {how}at {address} {whom}", dir.display()));
        }
    };
    tokio::select! {
        ended = accept::serve_export(dir, &listen, read_only, ready) => Ok(ended?),
        ended = wait_for_end() => ended,
    }
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
