//! `covey volume attach` and `detach`: a volume as a file of this machine, by our own initiator and a FUSE mount.

mod fs;

use super::all;
use super::which::choose;
use crate::cmd::Context;
use crate::cmd::cluster::mounts::{self, Unmount};
use crate::cmd::cluster::{Cluster, Daemon, Process, detach as leave_terminal, spawn};
use crate::cmd::mount::log_file;
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use covey_cluster::key;
use covey_cluster::net::ClusterNet;
use covey_cluster::pace;
use covey_cluster::reach::read_of;
use covey_io::os::mount::umount;
use covey_io::os::namespaces::Home;
use covey_io::os::net::Address;
use covey_io::os::random;
use covey_mount::{MountOptions, Unmounter, local_runtime, serve_tree};
use covey_ninep::tree::User;
use covey_serve::iscsi::disk::{self, Credentials, Disk, Parameters, Portals, parse_portal};
use covey_serve::iscsi::file::DiskTree;
use covey_serve::iscsi::near_portal;
use rustix::fs::{Access, access};
use rustix::process::Signal;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long it may take beyond the patience until the file is there.
const START_WAIT: Duration = Duration::from_secs(15);
/// A node that was lost is followed again after this.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Make a volume a file of this machine
///
/// PLACE is a directory, in which the volume is the file NAME, or a file. An initiator of Covey's own is
/// behind it: it logs in at the addresses where the volume is exported, at another one when the first is
/// lost, and sends again what had no answer. fsync brings everything to stable storage at the
/// target. When no address can be reached for --patience seconds, requests fail until one can be.
///
/// With --fs the volume's file system is mounted at PLACE instead, by a loop device (root only), with nosuid and nodev.
///
/// EXAMPLES
///
///     covey volume attach disk /mnt/volumes
///     covey volume attach disk /srv/data --fs ext4 --format
///     covey volume attach disk disk.img --portal 10.0.0.1:3260 --chap alice --secret-file secret
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Attach {
    /// The volume
    name: String,
    /// A directory or a file, made if missing: with a slash at its end or --fs, a directory
    #[arg(value_name = "PLACE")]
    place: PathBuf,
    /// Mount the file system of this type that the volume has
    #[arg(long, value_name = "TYPE")]
    fs: Option<String>,
    /// Make that file system, if the volume has none
    #[arg(long, requires = "fs")]
    format: bool,
    /// Options of mount, separated by commas, behind nosuid and nodev, which `suid` and `dev` undo
    #[arg(long, short, value_name = "OPTIONS", requires = "fs", value_delimiter = ',')]
    options: Vec<String>,
    /// Where the target is, instead of where the volume is exported; may be given several times
    #[arg(long, value_name = "HOST:PORT")]
    portal: Vec<String>,
    /// The node that has it, where nodes have different volumes of this name
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Prove USER's secret to the target
    #[arg(long, value_name = "USER", requires = "secret_file")]
    chap: Option<String>,
    /// The file with the secret
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The name that the target knows this machine by
    #[arg(long, value_name = "IQN")]
    initiator: Option<String>,
    /// Refuse every change
    #[arg(long)]
    read_only: bool,
    /// How long requests wait for a target that cannot be reached
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86400))]
    patience: u64,
    /// Stay in the foreground
    #[arg(long, conflicts_with = "fs")]
    foreground: bool,
    /// Leave the terminal's session: what an attachment in the background is started with
    #[arg(long, hide = true)]
    detached: bool,
}

/// Take a volume's file or file system away from this machine
#[derive(clap::Args, Debug)]
pub struct Detach {
    /// Where it is attached
    #[arg(value_name = "PLACE")]
    place: PathBuf,
    /// Take it away now, and clean up when the last program has closed it
    #[arg(long, short)]
    lazy: bool,
}

/// Attaches a volume.
pub async fn attach(args: Attach, config: Config, context: &Context) -> Result<()> {
    let is_directory = args.place.is_dir() || args.place.to_string_lossy().ends_with('/');
    let place = mounts::place_of(&args.place)?;
    if args.foreground {
        if args.detached {
            leave_terminal();
        }
        let home = leave_mounts(&args, &config);
        return in_foreground(args, config, home, place, is_directory, context).await;
    }
    // What cannot be is told before anything is made.
    wish_of(&args, &config, context).await?;
    if args.fs.is_some() {
        return fs::attach(&args, &config, &place, context).await;
    }
    if mounts::kind_at(&place).is_some_and(|kind| kind.starts_with("fuse")) {
        let what = format!("cannot attach at {}: something is mounted there", place.display());
        return Err(Error::user(what).hint("`covey volume detach` takes a volume away"));
    }
    make_place(&place, is_directory)?;
    in_background(&args, &config, &place).await?;
    let file = if is_directory { place.join(&args.name) } else { place };
    context.output.result(&serde_json::json!({ "volume": args.name, "file": file }), |out| {
        use std::io::Write;
        writeln!(out, "{}", file.display())
    })
}

fn make_place(place: &Path, is_directory: bool) -> Result<()> {
    let made = if is_directory {
        std::fs::create_dir_all(place)
    } else {
        std::fs::File::options().create(true).append(true).open(place).map(drop)
    };
    made.cannot(|| format!("make {}", place.display()))
}

/// Starts the initiator in the background and waits until the file is there.
async fn in_background(args: &Attach, config: &Config, place: &Path) -> Result<()> {
    let config_file = std::path::absolute(&config.file).cannot(|| "find the configuration")?;
    let mut words: Vec<OsString> = vec!["--config".into(), config_file.into()];
    words.extend(["volume", "attach", "--foreground", "--detached"].map(OsString::from));
    words.extend(["--patience".into(), args.patience.to_string().into()]);
    for portal in &args.portal {
        words.extend(["--portal".into(), portal.into()]);
    }
    let texts = [("--chap", &args.chap), ("--initiator", &args.initiator), ("--node", &args.node)];
    for (flag, value) in texts {
        words.extend(value.iter().flat_map(|value| [flag.into(), value.into()]));
    }
    if let Some(file) = &args.secret_file {
        let file = std::path::absolute(file).cannot(|| "find the secret's file")?;
        words.extend(["--secret-file".into(), file.into()]);
    }
    words.extend(args.read_only.then(|| "--read-only".into()));
    words.extend(["--".into(), args.name.as_str().into(), place.into()]);
    let mut daemon = spawn(&words, &log_file(config, place)?, None)?;
    wait(&mut daemon, args, place).await
}

async fn wait(daemon: &mut Daemon, args: &Attach, place: &Path) -> Result<()> {
    let (begin, limit) = (Instant::now(), START_WAIT + Duration::from_secs(args.patience));
    while !mounts::kind_at(place).is_some_and(|kind| kind.starts_with("fuse")) {
        let late = begin.elapsed() > limit;
        let late = late.then(|| format!("it was not there within {} s", limit.as_secs()));
        if let Some(end) = daemon.ended().or(late) {
            let _ = daemon.process.signal(Signal::TERM);
            return Err(daemon.told(|| end));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The attachment runs on a thread of its own, because it brings its own runtime.
async fn in_foreground(
    args: Attach,
    config: Config,
    home: Option<Home>,
    place: PathBuf,
    is_directory: bool,
    context: &Context,
) -> Result<()> {
    let wish = wish_of(&args, &config, context).await?;
    let pid_file = Cluster::of_trusted(&config).map(|cluster| mounts::pid_file(&cluster, &place));
    if let (Some(file), Some(mut me)) = (&pid_file, Process::now(std::process::id())) {
        me.note = place.to_string_lossy().into_owned();
        me.write(file)?;
    }
    let (done, ended) = tokio::sync::oneshot::channel();
    let name = is_directory.then(|| args.name.clone());
    let thread = std::thread::Builder::new().name("volume".into()).spawn(move || {
        let _ = done.send(serve(&args, &config, home, wish, name.as_deref(), &place));
    });
    thread.cannot(|| "start a thread")?;
    let result = ended.await;
    if let Some(file) = pid_file {
        let _ = std::fs::remove_file(file);
    }
    result.unwrap_or_else(|_| Err(Error::work("the attachment's thread has panicked")))
}

/// Leaves the mounts of this machine to those who use them. A file system on the volume is then never unmounted by the
/// end of the process that it is written to by, and no volume that is attached elsewhere is kept from its end.
fn leave_mounts(args: &Attach, config: &Config) -> Option<Home> {
    if !rustix::process::geteuid().is_root() {
        // Who is not root makes no loop device.
        return None;
    }
    let config_dir = std::path::absolute(&config.file).ok()?.parent()?.to_owned();
    let mut paths: Vec<PathBuf> = SYSTEM_PATHS.iter().map(PathBuf::from).collect();
    paths.push(config_dir);
    paths.extend(config.key_file.iter().chain(&args.secret_file).cloned());
    let listens = config.nodes.iter().flat_map(|node| &node.listen);
    paths.extend(listens.filter_map(|listen| listen.unix_path()).map(PathBuf::from));
    let left = Home::leave(&paths);
    left.inspect_err(|error| tracing::debug!("the mount namespace is not left: {error}")).ok()
}

/// What names and processors are looked up in, and what is mounted with.
const SYSTEM_PATHS: [&str; 6] = ["/etc", "/run", "/proc", "/sys/fs/cgroup", "/dev", "/usr"];

/// How to log in, and where.
struct Wish {
    login: disk::Config,
    portals: Portals,
    patience: Duration,
    /// The nodes that serve it, and stand by.
    nodes: Vec<String>,
}

async fn wish_of(args: &Attach, config: &Config, context: &Context) -> Result<Wish> {
    let node = args.node.as_deref().map(|node| config.node(node)).transpose()?;
    let (volumes, _) = all(config, context).await;
    // Whoever serves it first, whoever stands by after.
    let volumes = choose(&args.name, node.map(|node| node.name.as_str()), volumes, &[])?;
    let first = &volumes[0];
    let iqn = read_of(config, &first.node, &format!("vol/{}/iqn", args.name)).await?;
    let exported: Vec<String> = volumes.iter().flat_map(|one| reachable(one, config)).collect();
    let named = if args.portal.is_empty() { exported } else { args.portal.clone() };
    let parsed = |text: &String| {
        parse_portal(text).ok_or_else(|| {
            Error::user(format!("{text:?} is no address")).hint("HOST:PORT, such as 10.0.0.1:3260")
        })
    };
    let addresses: Vec<Address> = named.iter().map(parsed).collect::<Result<_>>()?;
    if addresses.is_empty() {
        let error = Error::work(format!("cannot attach volume {}: it is not exported", args.name));
        return Err(error.hint(format!("`covey volume export {}` serves it", args.name)));
    }
    // A node of this machine first by its own socket, unless it is said where to log in.
    let near = if args.portal.is_empty() { near(first, config) } else { None };
    let portals = Portals::from(near.into_iter().chain(addresses).collect::<Vec<_>>());
    let portals = portals.owned_by(config.user_number());
    let secret = args.secret_file.as_deref().map(|file| super::change::secret(Some(file)));
    let chap = match (&args.chap, secret.transpose()?) {
        (Some(user), Some(secret)) => {
            Some(Credentials { name: user.clone(), secret: secret.into_bytes() })
        }
        _ => None,
    };
    let number: [u8; 5] = random::bytes().cannot(|| "make a number for the session")?;
    let mut isid = [0x80; 6];
    isid[1..].copy_from_slice(&number);
    let login = disk::Config {
        initiator: args.initiator.clone().unwrap_or_else(own_name),
        target: Some(iqn.trim().to_owned()),
        isid,
        chap,
        mutual: None,
        parameters: Parameters::INITIATOR,
    };
    volumes.iter().for_each(|volume| name_portals(volume, args, config));
    let nodes = volumes.iter().map(|volume| volume.node.clone()).collect();
    Ok(Wish { login, portals, patience: Duration::from_secs(args.patience), nodes })
}

/// Has the node that serves the volume say how fast what is written to its portals may be sent.
fn name_portals(volume: &super::Volume, args: &Attach, config: &Config) {
    let exported = reachable(volume, config);
    let portals = if args.portal.is_empty() { &exported } else { &args.portal };
    for portal in portals.iter().filter_map(|text| parse_portal(text)) {
        if let Address::Tcp { host, .. } = portal {
            pace::use_portal(&volume.node, &host);
        }
    }
}

/// The portal of a volume's node for this machine, where the node is on it.
fn near(volume: &super::Volume, config: &Config) -> Option<Address> {
    let node = config.node(&volume.node).ok()?;
    let socket = node.listen.iter().find_map(|listen| listen.unix_path());
    let may_connect = |portal: &PathBuf| access(portal, Access::WRITE_OK).is_ok();
    socket.map(near_portal).filter(may_connect).map(Address::Unix)
}

/// Where a volume is exported, as seen from here.
fn reachable(volume: &super::Volume, config: &Config) -> Vec<String> {
    let host = config.node(&volume.node).ok().and_then(|node| {
        node.listen.iter().find_map(|listen| match listen {
            covey_cluster::config::Address::Tcp { host, .. } => Some(host.clone()),
            covey_cluster::config::Address::Unix(_) => None,
        })
    });
    let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
    let whole = |address: &String| match address.rsplit_once(':') {
        Some(("0.0.0.0" | "*" | "[::]", port)) => format!("{host}:{port}"),
        _ => address.clone(),
    };
    volume.exports.iter().map(whole).collect()
}

/// The name of this machine as an initiator.
fn own_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '-' || *letter == '.';
    format!("iqn.2026-01.io.covey:at.{}", host.chars().filter(plain).take(64).collect::<String>())
}

/// Has what is written yield to messages, as the nodes say.
fn follow(config: &Config, nodes: Vec<String>) -> Result<()> {
    if !config.pacing.is_on {
        return Ok(());
    }
    let net = ClusterNet::new(
        Arc::new(config.clone()),
        key::read(config).cannot(|| "read the cluster key")?,
    );
    tokio::spawn(async move {
        loop {
            nodes.iter().for_each(|node| net.follow(node));
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    });
    Ok(())
}

fn serve(
    args: &Attach,
    config: &Config,
    home: Option<Home>,
    wish: Wish,
    name: Option<&str>,
    place: &Path,
) -> Result<()> {
    let what = || format!("attach volume {} at {}", args.name, place.display());
    let runtime = local_runtime().cannot(what)?;
    let Wish { login, portals, patience, nodes } = wish;
    runtime.block_on(async {
        follow(config, nodes)?;
        let connect = move || -> std::pin::Pin<Box<dyn Future<Output = _>>> {
            let (login, portals) = (login.clone(), portals.clone());
            Box::pin(async move { Disk::connect(login, portals, 0, patience).await })
        };
        let tree = DiskTree::open(Box::new(connect), name, args.read_only).await;
        let tree = tree.map_err(|error| {
            let name = &args.name;
            Error::work(format!("cannot {}: {error}", what())).hint(format!(
                "`covey volume show {name}` tells who may use it; --chap USER --secret-file FILE proves who asks"
            ))
        })?;
        let options = MountOptions {
            fsname: format!("volume:{}", args.name),
            allow_other: false,
            read_only: args.read_only,
            ..MountOptions::default()
        };
        if args.detached {
            // Nobody could find out any more who keeps that file system.
            std::env::set_current_dir("/").cannot(what)?;
        }
        let unmounter = Unmounter::start().cannot(what)?;
        let mount = || covey_mount::attach(place, &options);
        let device = home.as_ref().map_or_else(mount, |home| home.visit(mount)).cannot(what)?;
        let (target, home) = (place.to_owned(), home.map(Home::forget));
        unmounter.mounted(move || match &home {
            Some(home) => home.visit(|| umount(&target)),
            None => umount(&target),
        });
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let me = User { uid: uid.as_raw(), gid: gid.as_raw(), groups: vec![gid.as_raw()] };
        let root = tree.root();
        serve_tree(device, Rc::new(tree.clone()), me, root).await.cannot(what)?;
        tree.close().await;
        Ok(())
    })
}

/// Takes a volume away.
pub async fn detach(args: Detach, config: &Config, context: &Context) -> Result<()> {
    let place = mounts::place_of(&args.place)?;
    let how = Unmount::lazily_if(args.lazy);
    match mounts::kind_at(&place) {
        Some(kind) if kind.starts_with("fuse") => mounts::umount(&place, how).await?,
        Some(_) => fs::detach(config, &place, how).await?,
        // Somebody has unmounted the file system.
        None if fs::is_attached(config, &place)? => fs::take_away(config, &place, how).await?,
        None => {
            let what = format!("cannot detach {}: nothing is attached there", place.display());
            return Err(Error::user(what).hint("`findmnt -t fuse.covey` lists what is attached"));
        }
    }
    context.output.result(&serde_json::json!({ "detached": place }), |out| {
        use std::io::Write;
        writeln!(out, "detached {}", place.display())
    })
}
