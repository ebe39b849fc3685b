//! A new cluster for this machine: its configuration and its formatted stores.

use super::{Cluster, make_dir};
use crate::cmd::keygen;
use crate::config::{
    Address, Config, Node, PORT_DEFAULT, Pacing, Role, UNIX_PATH_MAX, new_id, render,
};
use crate::error::{Cannot, Error, Result};
use crate::output::Output;
use covey_io::os::directory::{sync_names, write_durably};
use covey_lab::state::Lab;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The configuration of a cluster that has not been up yet.
const NEW: &str = "covey.toml.new";
/// I/O servers unless another number is asked for.
const IO_SERVERS_DEFAULT: u16 = 4;

/// What was asked for: `None` is whatever there is, or the default.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// How many I/O servers.
    pub io_servers: Option<u16>,
    /// The first of the TCP ports on loopback.
    pub tcp: Option<u16>,
    /// Strip size in bytes.
    pub strip_bytes: Option<u32>,
}

/// A cluster that may be started.
pub struct Made {
    /// Its configuration.
    pub config: Config,
    /// What its directory held before.
    pub before: Before,
}

/// What the directory of a cluster held before it was to be started, in case that it cannot be.
pub enum Before {
    /// No cluster.
    Nothing,
    /// The same cluster with the same configuration.
    Same,
    /// The cluster, configured as it was.
    Other(Box<Config>),
}

impl Before {
    /// A start that failed leaves nothing that the next one would stumble over: neither addresses at
    /// which nobody may listen, nor a cluster of another shape that never ran.
    pub fn restore(&self, cluster: &Cluster) -> Result<()> {
        let file = cluster.config_file();
        let restored = match self {
            Before::Nothing => remove_what_never_ran(cluster),
            Before::Same => Ok(()),
            Before::Other(config) => {
                let text = render(config);
                write_durably(&cluster.dir.join("covey.toml.tcp"), &file, text.as_bytes())
            }
        };
        restored.cannot(|| format!("take back {}", file.display()))
    }
}

/// Under the name of an unfinished cluster, so that what is left by an end in the middle is known for it.
fn remove_what_never_ran(cluster: &Cluster) -> std::io::Result<()> {
    let new = cluster.dir.join(NEW);
    std::fs::rename(cluster.config_file(), &new)?;
    for name in ["store", "log", "run"] {
        let _ = std::fs::remove_dir_all(cluster.dir.join(name));
    }
    if !cluster.dir.join("store").exists() {
        std::fs::remove_file(&new)?;
    }
    Ok(())
}

/// The configuration of the cluster in its directory, made and formatted if there is none.
pub async fn make(cluster: &Cluster, shape: &Shape, output: &Output) -> Result<Made> {
    let is_new = !cluster.exists();
    let found = if is_new { format(cluster, shape, output).await? } else { cluster.config()? };
    let fitted = fit(cluster, found.clone(), shape);
    let before = match &fitted {
        _ if is_new => Before::Nothing,
        Ok(config) if *config != found => Before::Other(Box::new(found)),
        _ => Before::Same,
    };
    match fitted {
        Ok(config) => Ok(Made { config, before }),
        Err(error) => {
            before.restore(cluster)?;
            Err(error)
        }
    }
}

fn fit(cluster: &Cluster, mut config: Config, shape: &Shape) -> Result<Config> {
    fits(cluster, &config, shape)?;
    config.nodes.iter().filter_map(Node::unix_socket).try_for_each(own_socket_dir)?;
    if let Some(port) = shape.tcp {
        listen_at(cluster, &mut config, port)?;
    }
    Ok(config)
}

/// The file gets its name only when every store is formatted: a `covey up` that was interrupted, or
/// failed to start what it had made, leaves `covey.toml.new`, and then the stores beside it never held
/// anything.
async fn format(cluster: &Cluster, shape: &Shape, output: &Output) -> Result<Config> {
    let new = cluster.dir.join(NEW);
    let stores = cluster.dir.join("store");
    if new.exists() {
        output.say("an earlier covey up did not come to its end: starting afresh");
        std::fs::remove_dir_all(&stores).cannot(|| format!("remove {}", stores.display()))?;
        make_dir(&stores, 0o700)?;
    }
    nothing_in(cluster, &stores)?;
    let mut config = plan(cluster, shape, output)?;
    config.file = cluster.config_file();
    let formatted = format_as(cluster, &config).await;
    if formatted.is_err() {
        // As on a full disk, where what is left would be in the way of others.
        let _ = std::fs::remove_dir_all(&stores);
        let _ = std::fs::remove_file(&new);
    }
    formatted.map(|()| config)
}

async fn format_as(cluster: &Cluster, config: &Config) -> Result<()> {
    let (new, stores) = (cluster.dir.join(NEW), cluster.dir.join("store"));
    std::fs::write(&new, render(config)).cannot(|| format!("write {}", new.display()))?;
    for node in &config.nodes {
        covey_serve::init(config, &node.name)
            .await
            .cannot(|| format!("format the store of {}", node.name))?;
    }
    // Stores that nobody knows how to serve would be as good as lost.
    let file = cluster.config_file();
    let content = render(config);
    let written = write_durably(&new, &file, content.as_bytes()).and_then(|()| sync_names(&stores));
    written.cannot(|| format!("write {}", file.display()))
}

fn nothing_in(cluster: &Cluster, stores: &Path) -> Result<()> {
    let mut entries = std::fs::read_dir(stores).cannot(|| format!("read {}", stores.display()))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(Error::work(format!(
            "cannot make a cluster in {}: there are stores, but no covey.toml",
            cluster.dir.display()
        ))
        .hint(
            "put back the covey.toml that belongs to them, or choose another directory with --dir",
        )),
    }
}

fn plan(cluster: &Cluster, shape: &Shape, output: &Output) -> Result<Config> {
    if let Some(lab) = Lab::around() {
        return plan_in_lab(cluster, shape, &lab);
    }
    let count = shape.io_servers.unwrap_or(IO_SERVERS_DEFAULT);
    let names =
        std::iter::once("meta".to_string()).chain((1..=count).map(|index| format!("io{index}")));
    let sockets = socket_dir(cluster, output);
    let node = |(index, name): (usize, String)| Node {
        roles: vec![if index == 0 { Role::Meta } else { Role::Data }, Role::Launch],
        listen: vec![Address::Unix(sockets.join(format!("{name}.sock")))],
        store: Some(cluster.store(&name)),
        emulated: None,
        name,
    };
    Ok(Config {
        file: cluster.config_file(),
        name: "local".to_string(),
        id: new_id()?,
        strip_bytes: shape.strip_bytes,
        pacing: Pacing::default(),
        key_file: None,
        user: None,
        is_named: true,
        nodes: names.enumerate().map(node).collect(),
        views: Vec::new(),
    })
}

/// One server on each node of a lab, found by TCP alone: nodes of a lab share files, and a Unix socket
/// would be a way past the network.
fn plan_in_lab(cluster: &Cluster, shape: &Shape, lab: &Lab) -> Result<Config> {
    let plan = lab.plan()?;
    let nodes = u16::try_from(plan.nodes.len()).unwrap_or(u16::MAX);
    let count = shape.io_servers.unwrap_or(nodes);
    if count > nodes {
        return Err(Error::user(format!(
            "cannot make a cluster of {count} I/O servers: lab {} has {nodes} nodes",
            lab.name
        ))
        .hint(format!("-n {nodes} or fewer")));
    }
    if shape.tcp.is_some() {
        return Err(Error::user(
            "cannot choose a TCP port: every node of a lab has its own address",
        )
        .hint("leave out --tcp"));
    }
    let is_shared = count == nodes;
    let servers = usize::from(count) + usize::from(!is_shared);
    let node = |index: usize| Node {
        name: plan.nodes[index].clone(),
        roles: match index {
            0 if is_shared => vec![Role::Meta, Role::Data, Role::Launch],
            0 => vec![Role::Meta, Role::Launch],
            _ => vec![Role::Data, Role::Launch],
        },
        listen: vec![Address::tcp(plan.storage_address(index).to_string(), PORT_DEFAULT)],
        store: Some(cluster.store(&plan.nodes[index])),
        emulated: None,
    };
    let key_file = cluster.dir.join("key");
    if !key_file.exists() {
        keygen::write_new(&key_file)?;
    }
    Ok(Config {
        file: cluster.config_file(),
        name: lab.name.clone(),
        id: new_id()?,
        strip_bytes: shape.strip_bytes,
        pacing: Pacing::default(),
        key_file: Some(key_file),
        user: None,
        is_named: true,
        nodes: (0..servers).map(node).collect(),
        views: Vec::new(),
    })
}

/// DIR/run, or a shorter place when a socket's path there would be too long for the kernel.
fn socket_dir(cluster: &Cluster, output: &Output) -> PathBuf {
    const LONGEST_NAME: usize = "/io65535.sock".len();
    let fits = |dir: &Path| dir.as_os_str().len() + LONGEST_NAME <= UNIX_PATH_MAX;
    let own = cluster.run_dir();
    if fits(&own) {
        return own;
    }
    let uid = rustix::process::geteuid().as_raw();
    let hash = path_hash(&cluster.dir);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime =
        runtime.filter(|dir| dir.is_absolute()).map(|dir| dir.join(format!("covey-{hash}")));
    let short =
        runtime.filter(|dir| fits(dir)).unwrap_or(format!("/tmp/covey-{uid}-{hash}").into());
    output.say(format!(
        "sockets go to {}: their paths under {} would exceed the kernel's {UNIX_PATH_MAX} bytes",
        short.display(),
        cluster.dir.display()
    ));
    short
}

/// The same directory always gets the same name.
fn path_hash(path: &Path) -> String {
    format!("{:016x}", covey_wire::fnv1a(path.as_os_str().as_encoded_bytes()))
}

/// Whether a directory has a name that is made for sockets whose paths were too long.
pub fn is_short_socket_dir(dir: &Path) -> bool {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let hash = name.strip_prefix("covey-").map(|rest| rest.rsplit('-').next().unwrap_or(rest));
    hash.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Makes the directory of a socket and refuses one that another user may have prepared in /tmp.
fn own_socket_dir(socket: &Path) -> Result<()> {
    let dir = socket.parent().unwrap_or(Path::new("/"));
    make_dir(dir, 0o755)?;
    let meta = std::fs::symlink_metadata(dir).cannot(|| format!("look at {}", dir.display()))?;
    if meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() {
        Ok(())
    } else {
        Err(Error::work(format!(
            "cannot use {} for sockets: it belongs to uid {}",
            dir.display(),
            meta.uid()
        ))
        .hint("run as the owner of the cluster's directory, or choose another with --dir"))
    }
}

/// Refuses a wish that differs from the cluster that is there.
fn fits(cluster: &Cluster, config: &Config, shape: &Shape) -> Result<()> {
    let differs = |what: String, hint: String| {
        let place = cluster.dir.display();
        let message = format!("cannot start the cluster in {place} {what}");
        Err(Error::user(message).hint(hint).hint("`covey up --dir DIR` makes another cluster"))
    };
    let count = config.data().count();
    match shape.io_servers {
        Some(wish) if usize::from(wish) != count => {
            return differs(
                format!("with {wish} I/O servers: it was made with {count}"),
                format!("leave out -n, or say -n {count}"),
            );
        }
        _ => {}
    }
    let Some(wish) = shape.strip_bytes else { return Ok(()) };
    let made_with = covey_cluster::tuned::strip(config)?.0;
    if wish == made_with {
        return Ok(());
    }
    let exact = |bytes: u32| crate::config::size::exact(bytes.into());
    differs(
        format!("with strip {}: it was made with {}", exact(wish), exact(made_with)),
        "`covey layout set --strip SIZE /` changes it for new files".to_string(),
    )
}

/// Adds loopback TCP: the metadata server at `port`, the I/O servers after it.
fn listen_at(cluster: &Cluster, config: &mut Config, port: u16) -> Result<()> {
    if usize::from(port) + config.nodes.len() > usize::from(u16::MAX) {
        return Err(Error::user(format!(
            "cannot listen at port {port}: one port per server must follow it"
        ))
        .hint("choose a smaller port"));
    }
    let before = config.clone();
    for (node, port) in config.nodes.iter_mut().zip(port..) {
        node.listen.retain(|address| address.unix_path().is_some());
        node.listen.push(Address::tcp("127.0.0.1", port));
    }
    if *config == before {
        return Ok(());
    }
    if let Some(node) = config.nodes.iter().find(|node| cluster.process(&node.name).is_some()) {
        return Err(Error::user(format!(
            "cannot listen at port {port}: node {} is running already",
            node.name
        ))
        .hint("`covey down` first"));
    }
    let (file, new) = (cluster.config_file(), cluster.dir.join("covey.toml.tcp"));
    let written = write_durably(&new, &file, render(config).as_bytes());
    written.cannot(|| format!("write {}", file.display()))
}
