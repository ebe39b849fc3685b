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
//! again.

mod control;
mod file;
mod portals;
mod record;
mod store;
mod striped;

use control::{All, One};
use covey_cluster::config::Config;
use covey_cluster::net::ClusterNet;
use covey_io::os::directory::write_durably;
use covey_iscsi::scsi::{self, Unit, Units};
use covey_iscsi::store::Store;
use covey_ninep::control::{Control, refuse};
use covey_ninep::namespace::Namespace;
use covey_ninep::text::Text;
use covey_ninep::tree::{Errno, Result};
use covey_stripe::client::{Caching, Fs, Options};
use covey_stripe::ops::Caller;
use covey_wire::List;
use file::FileStore;
use portals::Portals;
use record::{Access, Backing, Record, check_name, number};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use store::{Counted, Counts};
use striped::StripedStore;
use tokio::runtime::Runtime;

/// The volumes of a node.
pub struct Volumes {
    config: Arc<Config>,
    node: String,
    dir: PathBuf,
    /// Where stores work that cannot answer at once, and the striping client.
    runtime: Option<Runtime>,
    net: Arc<ClusterNet>,
    /// One change at a time.
    turn: tokio::sync::Mutex<()>,
    fs: RefCell<Option<Fs>>,
    volumes: RefCell<BTreeMap<String, Rc<Volume>>>,
    portals: Portals,
    names: OnceCell<Weak<Namespace>>,
}

/// One of them.
struct Volume {
    record: RefCell<Record>,
    /// Why it is not open, if so.
    opened: RefCell<std::result::Result<Opened, String>>,
}

/// An open volume.
#[derive(Clone)]
struct Opened {
    units: Arc<Units>,
    unit: Arc<Unit>,
    kept: Kept,
    counts: Arc<Counts>,
}

#[derive(Clone)]
enum Kept {
    File(Arc<Counted<FileStore>>),
    Striped(Arc<Counted<StripedStore>>),
}

/// The text of a volume's file.
type MakeText = fn(&Volumes, &str) -> String;

impl Volumes {
    /// The volumes that the list in `dir` names; none of them is open. `key` is the cluster's.
    pub fn load(
        config: Arc<Config>,
        node: &str,
        dir: &Path,
        key: Option<[u8; 32]>,
    ) -> anyhow::Result<Rc<Volumes>> {
        make_private(dir)?;
        let records = match std::fs::read_to_string(dir.join(LIST)) {
            Ok(text) => record::parse(&text)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Default::default(),
            Err(error) => return Err(error.into()),
        };
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).thread_name("volumes").enable_all().build()?;
        let net = {
            let _inside = runtime.enter();
            Arc::new(ClusterNet::new(config.clone(), key))
        };
        let closed = |(name, record)| (name, Rc::new(Volume::closed(record, "it is not open yet")));
        Ok(Rc::new(Volumes {
            config,
            node: node.to_owned(),
            dir: dir.to_owned(),
            runtime: Some(runtime),
            net,
            turn: tokio::sync::Mutex::default(),
            fs: RefCell::default(),
            volumes: RefCell::new(records.into_iter().map(closed).collect()),
            portals: Portals::default(),
            names: OnceCell::new(),
        }))
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

    /// Opens and serves what there is, and tries again what could not be opened, for ever.
    pub async fn run(self: Rc<Self>) {
        loop {
            let all: Vec<String> = self.volumes.borrow().keys().cloned().collect();
            for name in all {
                let _turn = self.turn.lock().await;
                self.revive(&name).await;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn revive(&self, name: &str) {
        let Ok(volume) = self.find(name) else { return };
        if volume.opened.borrow().is_err() {
            self.open(name, &volume).await;
        }
        let exports = volume.record.borrow().exports.clone();
        for address in exports {
            if let Err(error) = self.serve(name, &volume, &address).await {
                tracing::debug!("volume {name} is not served at {address}: {error}");
            }
        }
    }

    /// Opens a volume, or notes why it cannot be.
    async fn open(&self, name: &str, volume: &Volume) {
        let record = volume.record.borrow().clone();
        let opened = self.opened(name, &record).await;
        if let Err(error) = &opened {
            tracing::warn!("volume {name} cannot be opened: {error}");
        }
        *volume.opened.borrow_mut() = opened.map_err(|error| error.to_string());
    }

    async fn opened(&self, name: &str, record: &Record) -> Result<Opened> {
        let counts = Arc::new(Counts::default());
        let (kept, saved) = match record.backing {
            Backing::File | Backing::Device => {
                let state = self.dir.join(format!("{name}.state"));
                let saved = file::saved(&state)?;
                let path = Path::new(&record.path);
                let store = FileStore::open(path, state, self.runtime())?;
                (Kept::File(Arc::new(Counted { store, counts: counts.clone() })), saved)
            }
            Backing::Striped => {
                let (fs, who, path) = (self.fs().await?, own(), record.path.clone());
                let runtime = self.runtime();
                let opening = async move {
                    let store = StripedStore::open(fs, who, &path, runtime).await?;
                    let saved = store.saved().await?;
                    Ok((store, saved))
                };
                let (store, saved) = self.within(opening).await?;
                (Kept::Striped(Arc::new(Counted { store, counts: counts.clone() })), saved)
            }
        };
        let config = scsi::Config {
            name: name.to_owned(),
            serial: match &kept {
                // The same from whichever node it is served.
                Kept::Striped(store) => format!("{:016x}", store.store.number() ^ self.cluster()),
                Kept::File(_) => record.serial.clone(),
            },
            target: self.iqn(name).into(),
            block_bytes: record.block_bytes,
            read_only: record.read_only,
            removable: record.removable,
            write_cache: record.write_cache,
            portal_groups: vec![1],
        };
        let unfit = |error: scsi::Unfit| Errno::because(Errno::EINVAL, error.to_string());
        let unit = Arc::new(Unit::new(config, kept.store(), &saved).map_err(unfit)?);
        Ok(Opened { units: Arc::new(Units::of(unit.clone())), unit, kept, counts })
    }

    async fn serve(&self, name: &str, volume: &Volume, address: &str) -> Result<()> {
        let Ok(opened) = volume.opened.borrow().clone() else { return Ok(()) };
        let access = volume.record.borrow().access.clone();
        self.portals.serve(address, &self.iqn(name), name, &opened.units, &access).await
    }

    /// The striping client, made when it is first needed.
    async fn fs(&self) -> Result<Fs> {
        if let Some(fs) = &*self.fs.borrow() {
            return Ok(fs.clone());
        }
        let net = self.net.clone();
        let meta = self.config.meta().name.clone();
        let name = format!("{} /vol", self.node);
        let options = Options { name, caching: Caching::Leases, ..Options::default() };
        let fs = self.within(async move { Fs::connect(net, &meta, options).await }).await?;
        Ok(self.fs.borrow_mut().get_or_insert(fs).clone())
    }

    /// Does something on the volumes' own runtime.
    async fn within<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.runtime().spawn(work).await.unwrap_or_else(|_| Err(Errno::EIO.into()))
    }

    fn runtime(&self) -> tokio::runtime::Handle {
        self.runtime.as_ref().expect("it is there until the end").handle().clone()
    }

    fn find(&self, name: &str) -> Result<Rc<Volume>> {
        let missing = || Errno::because(Errno::ENOENT, format!("there is no volume {name:?} here"));
        self.volumes.borrow().get(name).cloned().ok_or_else(missing)
    }

    /// A number of the cluster's, for names that must differ between clusters.
    fn cluster(&self) -> u64 {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.config.id.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
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
        let new = self.dir.join(format!("{LIST}.new"));
        make_private_file(&new)?;
        Ok(write_durably(&new, &self.dir.join(LIST), text.as_bytes())?)
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
        self.portals.sessions_text(&self.iqn(name))
    }

    /// One volume as commands, and why it is not open.
    fn lines(&self, name: &str, volume: &Volume) -> String {
        let mut lines = volume.record.borrow().lines(name, volume.bytes(), false);
        if let Err(why) = &*volume.opened.borrow() {
            lines += &format!("# closed {name} {}\n", why.replace('\n', " "));
        }
        lines
    }

    async fn create(self: &Rc<Self>, words: Vec<String>) -> Result<()> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (name, mut record, size) = Record::of_words(&words)?;
        if self.volumes.borrow().contains_key(&name) {
            return Err(Errno::because(
                Errno::EEXIST,
                format!("there is a volume {name:?} already"),
            ));
        }
        record.serial = serial()?;
        if let Some(size) = size {
            self.make(&record, checked_size(size, &record)?).await?;
        }
        let volume = Rc::new(Volume::closed(record, ""));
        self.open(&name, &volume).await;
        if let Err(why) = &*volume.opened.borrow() {
            return Err(Errno::because(Errno::EIO, why.clone()));
        }
        self.volumes.borrow_mut().insert(name.clone(), volume);
        if let Err(error) = self.save() {
            self.volumes.borrow_mut().remove(&name);
            return Err(error);
        }
        self.bind_one(&name)
    }

    async fn make(&self, record: &Record, bytes: u64) -> Result<()> {
        match record.backing {
            Backing::Device => refuse("a device has the size that it has"),
            Backing::File => {
                let path = PathBuf::from(&record.path);
                let made = self.runtime().spawn_blocking(move || FileStore::make(&path, bytes));
                Ok(made.await.map_err(|_| Errno::from(Errno::EIO))??)
            }
            Backing::Striped => {
                let (fs, who, path) = (self.fs().await?, own(), record.path.clone());
                self.within(async move { striped::make(&fs, &who, &path, bytes).await }).await
            }
        }
    }

    /// Forgets a volume, and its bytes unless they are to be kept.
    async fn remove(&self, name: &str, keeps: bool) -> Result<()> {
        let volume = self.find(name)?;
        let record = volume.record.borrow().clone();
        if !record.exports.is_empty() {
            let why =
                format!("volume {name} is exported; hint: `covey volume unexport {name}` first");
            return Err(Errno::because(Errno::EBUSY, why));
        }
        self.volumes.borrow_mut().remove(name);
        if let Err(error) = self.save() {
            self.volumes.borrow_mut().insert(name.to_owned(), volume);
            return Err(error);
        }
        self.unbind_one(name);
        drop(volume);
        let _ = std::fs::remove_file(self.dir.join(format!("{name}.state")));
        match record.backing {
            _ if keeps => Ok(()),
            Backing::Device => Ok(()),
            Backing::File => Ok(std::fs::remove_file(&record.path)?),
            Backing::Striped => {
                let (fs, who, path) = (self.fs().await?, own(), record.path);
                self.within(async move { striped::remove(&fs, &who, &path).await }).await
            }
        }
    }

    /// A new volume with the bytes of another, which must not change meanwhile.
    async fn copy(self: &Rc<Self>, name: &str, new: &str, path: &str) -> Result<()> {
        check_name(new)?;
        let volume = self.find(name)?;
        let record = volume.record.borrow().clone();
        if !record.exports.is_empty() {
            let why = format!("volume {name} is exported and may change; hint: unexport it first");
            return Err(Errno::because(Errno::EBUSY, why));
        }
        let from = record.path.clone();
        match record.backing {
            Backing::Device => return refuse("a device is not cloned"),
            Backing::File => {
                let to = PathBuf::from(path);
                let copied =
                    self.runtime().spawn_blocking(move || file::copy(Path::new(&from), &to));
                copied.await.map_err(|_| Errno::from(Errno::EIO))??;
            }
            Backing::Striped => {
                let (fs, who, to) = (self.fs().await?, own(), path.to_owned());
                self.within(async move { striped::copy(&fs, &who, &from, &to).await }).await?;
            }
        }
        let clone = Record {
            path: path.to_owned(),
            exports: Vec::new(),
            access: Access::default(),
            ..record
        };
        let line = clone.lines(new, None, false);
        let words = covey_ninep::control::words(line.lines().next().unwrap_or_default())?;
        self.create(words[1..].to_vec()).await
    }

    async fn resize(&self, name: &str, bytes: u64, may_shrink: bool) -> Result<()> {
        let volume = self.find(name)?;
        let bytes = checked_size(bytes, &volume.record.borrow())?;
        let opened = volume.need()?;
        if bytes < volume.bytes().unwrap_or(0) && !may_shrink {
            return refuse(
                "the volume would be shorter and lose what is at its end; hint: --shrink says that this is meant",
            );
        }
        match opened.kept {
            Kept::File(store) => {
                let work = move || store.store.resize(bytes);
                let resized = self.runtime().spawn_blocking(work).await;
                Ok(resized.map_err(|_| Errno::from(Errno::EIO))??)
            }
            Kept::Striped(store) => {
                self.within(async move { store.store.resize(bytes).await }).await
            }
        }
    }

    async fn export(&self, name: &str, address: &str) -> Result<()> {
        let volume = self.find(name)?;
        volume.need()?;
        if !portals::is_local(address)?
            && let Some(why) = volume.record.borrow().access.refuses_distance()
        {
            return refuse(why);
        }
        self.serve(name, &volume, address).await?;
        if volume.record.borrow().exports.iter().any(|one| one == address) {
            return Ok(());
        }
        volume.record.borrow_mut().exports.push(address.to_owned());
        self.save()
    }

    fn unexport(&self, name: &str, address: Option<&str>) -> Result<()> {
        let volume = self.find(name)?;
        let is_meant = |one: &String| address.is_none_or(|address| one == address);
        let gone: Vec<String> =
            volume.record.borrow().exports.iter().filter(|one| is_meant(one)).cloned().collect();
        if gone.is_empty() && address.is_some() {
            return refuse(format!("volume {name} is not exported there"));
        }
        volume.record.borrow_mut().exports.retain(|one| !is_meant(one));
        self.save()?;
        gone.iter().for_each(|address| self.portals.end(address, &self.iqn(name)));
        Ok(())
    }

    fn change_access(&self, name: &str, words: &[&str]) -> Result<()> {
        let volume = self.find(name)?;
        let mut access = volume.record.borrow().access.clone();
        access.change(words)?;
        for address in &volume.record.borrow().exports {
            if !portals::is_local(address)?
                && let Some(why) = access.refuses_distance()
            {
                return refuse(format!("volume {name} is exported at {address}: {why}"));
            }
        }
        volume.record.borrow_mut().access = access.clone();
        self.save()?;
        self.portals.set_access(&self.iqn(name), &access);
        Ok(())
    }

    async fn run_command(self: Rc<Self>, words: Vec<String>) -> Result<()> {
        let _turn = self.turn.lock().await;
        let borrowed: Vec<&str> = words.iter().map(String::as_str).collect();
        match &borrowed[..] {
            ["create", ..] => self.create(words[1..].to_vec()).await,
            ["rm", name] => self.remove(name, false).await,
            ["rm", name, "keep"] => self.remove(name, true).await,
            ["clone", name, new, path] => self.copy(name, new, path).await,
            ["resize", name, bytes] => self.resize(name, number(bytes)?, false).await,
            ["resize", name, bytes, "shrink"] => self.resize(name, number(bytes)?, true).await,
            ["export", name, address] => self.export(name, address).await,
            ["unexport", name] => self.unexport(name, None),
            ["unexport", name, address] => self.unexport(name, Some(address)),
            ["acl", name, rest @ ..] => self.change_access(name, rest),
            [other, ..] => {
                refuse(format!("{other:?} is no command, or has other words; hint: read the file"))
            }
            [] => Ok(()),
        }
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
    fn closed(record: Record, why: &str) -> Volume {
        Volume { record: RefCell::new(record), opened: RefCell::new(Err(why.to_owned())) }
    }

    fn need(&self) -> Result<Opened> {
        let because =
            |why: &String| Errno::because(Errno::EIO, format!("the volume is closed: {why}"));
        self.opened.borrow().as_ref().map(Opened::clone).map_err(because)
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

/// As whom the node uses the file system.
fn own() -> Caller {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    Caller { uid, gid, groups: List(vec![gid]) }
}

fn serial() -> Result<String> {
    let number: [u8; 8] = covey_io::os::random::bytes()?;
    Ok(number.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn checked_size(bytes: u64, record: &Record) -> Result<u64> {
    let block = u64::from(record.block_bytes);
    match bytes != 0 && bytes.is_multiple_of(block) {
        true => Ok(bytes),
        false => refuse(format!("{bytes} bytes are no whole number of blocks of {block}")),
    }
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

/// The list's file in the volumes' directory.
const LIST: &str = "list";
/// How often what could not be opened is tried again.
const AGAIN: Duration = Duration::from_secs(2);
