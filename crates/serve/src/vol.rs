//! The volumes of a node: what they are kept in, who may use them, where they are served by iSCSI, and the files by which they
//! are watched and told what to do.
//!
//! ```text
//!   /vol/ctl                the volumes as commands, and the commands there are
//!   /vol/NAME/ctl           the same for one
//!   /vol/NAME/{size,iqn}    bytes; the target's name
//!   /vol/NAME/{sessions,stats}
//! ```
//!
//! The list is kept in the node's store. A change is on disk before it is answered; when the node begins, every volume is opened
//! and served again as it was. A volume that cannot be opened (its disk is gone, another node serves it) says so and is tried
//! again. Where the list cannot be read there is no volume and none can be made, so that what is left of it stays: the node
//! itself goes on.

mod care;
mod change;
mod control;
mod file;
mod portals;
mod record;
#[cfg(test)]
mod sample;
mod standby;
mod store;
mod striped;
#[cfg(test)]
mod striped_tests;
#[cfg(test)]
mod sync_tests;
mod syncs;
mod turns;

use crate::net::TargetPorts;
use control::{All, One};
use covey_cluster::config::Config;
use covey_cluster::net::ClusterNet;
use covey_io::os::directory::write_durably;
use covey_io::os::net::error_text;
use covey_iscsi::scsi::{Unit, Units};
use covey_iscsi::store::Store;
use covey_iscsi::target::Target;
use covey_ninep::control::Control;
use covey_ninep::namespace::Namespace;
use covey_ninep::text::Text;
use covey_ninep::tree::{Errno, Result};
use covey_stripe::client::{Caching, Fs, Options};
use covey_stripe::ops::Caller;
use covey_wire::{List, fnv1a};
use file::FileStore;
use portals::{Portals, sessions_text, target_of};
use record::{Access, Record, Records};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use store::{Counted, Counts};
use striped::StripedStore;
use tokio::runtime::{Handle, Runtime};
use turns::{PATIENCE, Turns};

/// The volumes of a node.
pub struct Volumes {
    config: Arc<Config>,
    node: String,
    dir: PathBuf,
    /// Where stores work that cannot answer at once, and the striping client unless it has its place beside initiators.
    runtime: Option<Runtime>,
    /// How the striping client reaches the servers.
    net: OnceCell<Arc<ClusterNet>>,
    key: Option<[u8; 32]>,
    turns: Turns,
    /// How long a command waits for another one, and for a disk.
    patience: Cell<Duration>,
    fs: tokio::sync::OnceCell<Fs>,
    volumes: RefCell<BTreeMap<String, Rc<Volume>>>,
    /// Why the list could not be read, if so.
    unread: Option<String>,
    is_ending: Cell<bool>,
    portals: Portals,
    names: OnceCell<Weak<Namespace>>,
}

/// One of them.
struct Volume {
    /// Held while it is opened, or what it is or who may use it is changed.
    turn: Arc<tokio::sync::Mutex<()>>,
    record: RefCell<Record>,
    /// Why it is not open, if so.
    opened: RefCell<std::result::Result<Opened, String>>,
    /// What initiators log in to, at all its addresses. It has no unit while the volume is not open.
    target: Arc<Target<Units>>,
    /// Another node serves it, and this one would.
    stands_by: Cell<bool>,
    /// Whether it is known that no earlier process of this node holds its file.
    has_no_past: Cell<bool>,
    /// Its owner has just said at this node what it is, and it has not been open yet.
    is_new: Cell<bool>,
    /// What was heard of that node.
    heard: RefCell<standby::Heard>,
    /// How often this one has said that it lives.
    beat: Cell<u64>,
    /// Held while its file is told what it is.
    telling: tokio::sync::Mutex<()>,
    /// Held while its file's epoch changes by this node's own doing.
    changing: tokio::sync::Mutex<()>,
    /// Its owner has said that what is saved of its reservations is void.
    forgets: Cell<bool>,
}

/// An open volume.
#[derive(Clone)]
struct Opened {
    unit: Arc<Unit>,
    kept: Kept,
    counts: Arc<Counts>,
}

#[derive(Clone)]
enum Kept {
    File(Arc<Counted<FileStore>>),
    Striped(Arc<Counted<StripedStore>>),
}

/// Held by whoever opens or changes a volume.
type OwnTurn = tokio::sync::OwnedMutexGuard<()>;

/// The text of a volume's file.
type MakeText = fn(&Volumes, &str) -> String;

impl Volumes {
    /// The volumes that the list in `dir` names; none of them is open. `key` is the cluster's; `ports` is told at
    /// which they are served.
    pub fn load(
        config: Arc<Config>,
        node: &str,
        dir: &Path,
        key: Option<[u8; 32]>,
        ports: TargetPorts,
    ) -> anyhow::Result<Rc<Volumes>> {
        make_private(dir)?;
        let (records, unread) = match read_list(&dir.join(LIST)) {
            Ok(records) => (records, None),
            Err(why) => {
                tracing::error!("{why}");
                (Records::new(), Some(why))
            }
        };
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.on_thread_start(covey_io::os::place::everywhere);
        builder.worker_threads(workers()).thread_name("volumes");
        let runtime = builder.enable_all().build()?;
        let listen = config.node(node).ok().map(|node| node.listen.clone()).unwrap_or_default();
        let socket = listen.iter().find_map(|address| address.unix_path());
        let portals = Portals::telling(ports, socket);
        let volumes = Rc::new(Volumes {
            config,
            node: node.to_owned(),
            dir: dir.to_owned(),
            runtime: Some(runtime),
            net: OnceCell::new(),
            key,
            turns: Turns::default(),
            patience: Cell::new(PATIENCE),
            fs: tokio::sync::OnceCell::new(),
            volumes: RefCell::default(),
            unread,
            is_ending: Cell::default(),
            portals,
            names: OnceCell::new(),
        });
        for (name, record) in records {
            let closed = volumes.closed(&name, record, "it is not open yet");
            volumes.volumes.borrow_mut().insert(name, closed);
        }
        Ok(volumes)
    }

    /// Binds their files at `/vol`.
    pub fn bind(self: &Rc<Self>, names: &Rc<Namespace>) -> Result<()> {
        names.bind("vol/ctl", Rc::new(Control::new(All(self.clone()))))?;
        let _ = self.names.set(Rc::downgrade(names));
        let all: Vec<String> = self.volumes.borrow().keys().cloned().collect();
        all.iter().try_for_each(|name| self.bind_one(name))
    }

    fn bind_one(self: &Rc<Self>, name: &str) -> Result<()> {
        let Some(names) = self.names.get().and_then(Weak::upgrade) else { return Ok(()) };
        let one = One(self.clone(), name.to_owned());
        names.bind(&format!("vol/{name}/ctl"), Rc::new(Control::new(one)))?;
        let texts: [(&str, MakeText); 4] = [
            ("size", Volumes::size_text),
            ("iqn", |volumes, name| volumes.iqn(name) + "\n"),
            ("sessions", Volumes::sessions_text),
            ("stats", Volumes::stats_text),
        ];
        for (file, make) in texts {
            let (volumes, owned) = (self.clone(), name.to_owned());
            let text = Text::new(move || make(&volumes, &owned)).only_for(super::tree::is_owner);
            names.bind(&format!("vol/{name}/{file}"), Rc::new(text))?;
        }
        Ok(())
    }

    fn unbind_one(&self, name: &str) {
        let Some(names) = self.names.get().and_then(Weak::upgrade) else { return };
        for file in ["ctl", "size", "iqn", "sessions", "stats"] {
            // What is bound was bound by this.
            let _ = names.unbind(&format!("vol/{name}/{file}"));
        }
    }

    fn closed(&self, name: &str, record: Record, why: &str) -> Rc<Volume> {
        let units = Arc::new(Units::default());
        let target = target_of(&self.iqn(name), name, units, &record.access);
        // Until it is open, or it is known where it is.
        target.set_away(true);
        let opened = RefCell::new(Err(why.to_owned()));
        let (record, stands_by) = (RefCell::new(record), Cell::new(false));
        let (turn, has_no_past, is_new, heard) = Default::default();
        let (beat, telling, changing, forgets) = Default::default();
        Rc::new(Volume {
            turn,
            record,
            opened,
            target,
            stands_by,
            has_no_past,
            is_new,
            heard,
            beat,
            telling,
            changing,
            forgets,
        })
    }

    /// The striping client, made when it is first needed.
    async fn fs(&self) -> Result<Fs> {
        let connect = || self.within(self.connect(""));
        self.fs.get_or_try_init(connect).await.cloned()
    }

    /// A striping client: one volume's, or the one that all share.
    fn connect(
        &self,
        volume: &str,
    ) -> impl Future<Output = covey_stripe::client::Result<Fs>> + Send + use<> {
        let (net, meta) = (self.net(), self.config.meta().name.clone());
        let name = format!("{} /vol/{volume}", self.node);
        let caching = Caching::Leases;
        let options = Options { name, caching, dead_after: DEAD_AFTER, ..Options::default() };
        async move { Fs::connect(net, &meta, options).await }
    }

    fn net(&self) -> Arc<ClusterNet> {
        let make = || {
            let client = self.client();
            let _inside = client.enter();
            Arc::new(ClusterNet::new(self.config.clone(), self.key))
        };
        self.net.get_or_init(make).clone()
    }

    /// The runtime of the striping client. A single thread of its own and those of initiators' connections would wake each
    /// other for each read and write, so it is one of these then.
    fn client(&self) -> Handle {
        let threads = || self.portals.threads().ok().filter(|_| workers() == 1);
        threads().map_or_else(|| self.runtime(), |threads| threads.runtime())
    }

    /// Does something where the striping client is.
    async fn within<T: Send + 'static>(
        &self,
        work: impl Future<Output = covey_stripe::client::Result<T>> + Send + 'static,
    ) -> Result<T> {
        let done = self.client().spawn(work).await;
        Ok(done.unwrap_or_else(|_| Err(Errno::EIO.into()))?)
    }

    fn runtime(&self) -> Handle {
        self.runtime.as_ref().expect("it is there until the end").handle().clone()
    }

    fn find(&self, name: &str) -> Result<Rc<Volume>> {
        self.volumes.borrow().get(name).cloned().ok_or_else(|| self.missing(name))
    }

    fn missing(&self, name: &str) -> Errno {
        let why = format!("node {} has no volume {name:?}", self.node);
        Errno::because(Errno::ENOENT, why)
    }

    /// The volume of this name, when nobody else opens or changes it.
    async fn find_free(&self, name: &str) -> Option<(Rc<Volume>, OwnTurn)> {
        loop {
            let volume = self.find(name).ok()?;
            let turn = volume.turn.clone().lock_owned().await;
            // Another may have taken its place and its name.
            if self.find(name).is_ok_and(|now| Rc::ptr_eq(&now, &volume)) {
                return Some((volume, turn));
            }
        }
    }

    /// A number of the cluster's, for names that must differ between clusters.
    fn cluster(&self) -> u64 {
        fnv1a(self.config.id.as_bytes())
    }

    /// The name of a volume's target: the same from whichever node it is served.
    fn iqn(&self, name: &str) -> String {
        format!("iqn.2026-01.io.covey:{:016x}:{name}", self.cluster())
    }

    /// Puts the list on disk.
    fn save(&self) -> Result<()> {
        let volumes = self.volumes.borrow();
        let lines = volumes.iter().map(|(name, one)| one.record.borrow().lines(name, None, true));
        let text: String = lines.collect();
        check_text(&text)?;
        let new = self.dir.join(format!("{LIST}.new"));
        let written = make_private_file(&new)
            .and_then(|()| write_durably(&new, &self.dir.join(LIST), text.as_bytes()));
        written.map_err(|error| {
            let (new, error_text) = (new.display(), error_text(&error));
            let why = format!(
                "the list of volumes, {new}: {error_text}; hint: nothing was changed: make room there first"
            );
            Errno::because(Errno::from(error).code, why)
        })
    }

    fn size_text(&self, name: &str) -> String {
        self.find(name)
            .ok()
            .and_then(|one| one.bytes())
            .map_or_else(String::new, |n| format!("{n}\n"))
    }

    fn stats_text(&self, name: &str) -> String {
        let Some(counts) = self.find(name).ok().and_then(|one| one.counts()) else {
            return String::new();
        };
        counts.list().iter().map(|(what, count)| format!("{what} {count}\n")).collect()
    }

    fn sessions_text(&self, name: &str) -> String {
        self.find(name).map_or_else(|_| String::new(), |one| sessions_text(&one.target))
    }

    /// A line for each volume: whether it is open here, its size, its sessions, and what it has done since it was opened.
    pub fn numbers(&self) -> String {
        let mut out = String::new();
        for (name, volume) in self.volumes.borrow().iter() {
            let (open, bytes) = (u8::from(volume.bytes().is_some()), volume.bytes().unwrap_or(0));
            let sessions = volume.target.sessions().len();
            out += &format!("volume {name:?} open {open} bytes {bytes} sessions {sessions}");
            for (what, count) in volume.counts().unwrap_or_default().list() {
                out += &format!(" {what} {count}");
            }
            out.push('\n');
        }
        out
    }

    /// One volume as commands, and why it is not open.
    fn lines(&self, name: &str, volume: &Volume) -> String {
        let mut lines = volume.record.borrow().lines(name, volume.bytes(), false);
        if let Err(why) = &*volume.opened.borrow() {
            let state = if volume.stands_by.get() { "stands-by" } else { "closed" };
            lines += &format!("# {state} {name} {}\n", why.replace('\n', " "));
        }
        lines
    }
}

impl Drop for Volumes {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Volume {
    fn need(&self) -> Result<Opened> {
        let because =
            |why: &String| Errno::because(Errno::EIO, format!("the volume is closed: {why}"));
        self.opened.borrow().as_ref().map(Opened::clone).map_err(because)
    }

    /// Its store, where that is a file of the cluster's and open.
    fn striped(&self) -> Option<Arc<Counted<StripedStore>>> {
        match &self.opened.borrow().as_ref().ok()?.kept {
            Kept::Striped(store) => Some(store.clone()),
            Kept::File(_) => None,
        }
    }

    fn is_closed_by(&self, error: &Errno) -> bool {
        self.opened.borrow().as_ref().err().is_some_and(|why| *why == error.to_string())
    }

    fn bytes(&self) -> Option<u64> {
        let opened = self.opened.borrow();
        let unit = &opened.as_ref().ok()?.unit;
        Some(unit.blocks() * u64::from(unit.config().block_bytes))
    }

    fn counts(&self) -> Option<Arc<Counts>> {
        self.opened.borrow().as_ref().ok().map(|opened| opened.counts.clone())
    }
}

impl Kept {
    fn store(&self) -> Arc<dyn Store> {
        match self {
            Kept::File(store) => store.clone(),
            Kept::Striped(store) => store.clone(),
        }
    }
}

/// How many threads the striping client may have: the servers are perhaps on the same CPUs.
fn workers() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
    (cpus / 2).clamp(1, WORKERS_MAX)
}

/// As whom the node uses the file system.
fn own() -> Caller {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    Caller { uid, gid, groups: List(vec![gid]) }
}

/// What was kept. The error says in which file it is not.
fn read_list(path: &Path) -> std::result::Result<Records, String> {
    let why = |error: &dyn std::fmt::Display| {
        let path = path.display();
        format!("the list of volumes, {path}, cannot be read: {error}; hint: mend or remove it")
    };
    match std::fs::read_to_string(path) {
        Ok(text) => record::parse(&text).map_err(|error| why(&error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Records::new()),
        Err(error) => Err(why(&error)),
    }
}

/// A list that could not be read back would take all volumes with it when the node begins again.
fn check_text(text: &str) -> Result<()> {
    let unreadable = |error: Errno| {
        let why = format!(
            "the list of volumes could not be read back: {error}; hint: nothing was changed"
        );
        Errno::because(Errno::EINVAL, why)
    };
    record::parse(text).map(drop).map_err(unreadable)
}

fn make_private(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Secrets are written to it next.
fn make_private_file(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::File::options().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

/// How long a server may be away before what is asked of it fails: an initiator is to have its error within 3 s of the
/// server's end, and the way to it takes time, too. A server that is only slow has longer.
const DEAD_AFTER: Duration = Duration::from_secs(2);
/// Most threads of the striping client.
const WORKERS_MAX: usize = 2;
/// The list's file in the volumes' directory.
const LIST: &str = "list";
