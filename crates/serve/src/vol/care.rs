//! The care for a node's volumes as long as it runs: they are opened and served, tried again where that fails, and given back at
//! the end.

use super::file::{self, FileStore};
use super::record::Backing;
use super::standby::Published;
use super::store::{Counted, Counts};
use super::striped::{self, StripedStore};
use super::{Kept, Opened, Volume, Volumes, own};
use covey_iscsi::scsi::{self, Unit};
use covey_ninep::tree::{Errno, Result};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

impl Volumes {
    /// Opens and serves what there is, and tries again what could not be opened, for ever.
    pub async fn run(self: Rc<Self>) {
        let revive = self.each(|name| {
            let volumes = self.clone();
            async move { volumes.revive(&name).await }
        });
        let beat = self.each(|name| {
            let volumes = self.clone();
            async move { volumes.beat(&name).await }
        });
        tokio::join!(revive, beat);
    }

    /// The node ends: another one, or this one when it begins again, may have the volumes at once.
    pub async fn end(&self) {
        self.is_ending.set(true);
        let all: Vec<Rc<Volume>> = self.volumes.borrow().values().cloned().collect();
        let mut stores = Vec::new();
        for volume in all {
            volume.target.disconnect("the node ends");
            if let Ok(Opened { kept: Kept::Striped(store), .. }) = volume.need() {
                stores.push(store);
            }
        }
        let given_back = self.within(async move {
            let each = stores.iter().map(|store| store.store.give_back());
            futures_util::future::join_all(each).await;
            Ok(())
        });
        // The metadata server may be gone already.
        let _ = tokio::time::timeout(END_WAIT, given_back).await;
    }

    /// Looks after each volume, again and again, on its own: one whose disk or server does not answer holds up no other.
    async fn each<F: Future<Output = ()>>(&self, look_after: impl Fn(String) -> F) {
        let (mut under_way, mut names) = (FuturesUnordered::new(), BTreeSet::new());
        let mut again = tokio::time::interval(AGAIN);
        again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = again.tick() => {
                    for name in self.list() {
                        if names.insert(name.clone()) {
                            let done = look_after(name.clone());
                            under_way.push(async move {
                                done.await;
                                name
                            });
                        }
                    }
                }
                Some(name) = under_way.next() => {
                    names.remove(&name);
                }
            }
        }
    }

    /// Says that this node lives, and looks whether it has lost a volume: every two seconds, and as soon as its store meets it.
    /// A command that takes long does not keep it from that: another node would take the volumes of one that is silent.
    async fn beat(&self, name: &str) {
        let Ok(volume) = self.find(name) else { return };
        let Some(store) = volume.striped() else { return };
        if self.is_lost(name, &volume, &store).await
            || tokio::time::timeout(AGAIN, store.store.met_loss()).await.is_ok()
        {
            self.lose(name, &volume, &store).await;
        }
    }

    /// The volumes to be looked after.
    fn list(&self) -> Vec<String> {
        if self.is_ending.get() {
            Vec::new()
        } else {
            self.volumes.borrow().keys().cloned().collect()
        }
    }

    async fn revive(&self, name: &str) {
        let Some((volume, _turn)) = self.find_free(name).await else { return };
        // Before it is open, which may take long: an initiator that finds no target gives up, and one that is asked to come
        // again does so.
        let exports = volume.record.borrow().exports.clone();
        for address in exports {
            if let Err(error) = self.portals.serve(&address, &volume.target).await {
                tracing::debug!("volume {name} is not served at {address}: {error}");
            }
        }
        if volume.opened.borrow().is_ok() {
            self.learn_portals(&volume).await;
        }
        // It may have been lost meanwhile.
        let is_closed = volume.opened.borrow().is_err();
        if is_closed {
            self.try_again(name, &volume).await;
        }
    }

    async fn try_again(&self, name: &str, volume: &Volume) {
        let may_try = volume.heard.borrow().may_try();
        if may_try || self.is_silent(volume).await {
            self.open(name, volume).await;
        } else {
            self.stand_by(name, volume).await;
        }
    }

    /// Opens a volume, or notes why it cannot be. Of one that another node serves it is known where that is.
    pub(super) async fn open(&self, name: &str, volume: &Volume) {
        let by_force = self.is_silent(volume).await || self.was_ours(volume).await;
        let opened = self.opened(name, volume, by_force, volume.forgets.take()).await;
        let backing = volume.record.borrow().backing;
        match &opened {
            Ok(opened) => {
                volume.has_no_past.set(true);
                volume.is_new.set(false);
                volume.stands_by.set(false);
                volume.heard.borrow_mut().forget();
                volume.target.device.insert(0, opened.unit.clone());
                self.publish(name, volume, &opened.kept).await;
                volume.target.set_away(false);
                volume.target.set_elsewhere(None);
            }
            Err(error) if error.code == Errno::EBUSY && backing == Backing::Striped => {
                self.stand_by(name, volume).await;
            }
            // It is tried again and again: what is known is not said again.
            Err(error) if volume.is_closed_by(error) => {
                tracing::debug!("volume {name} cannot be opened: {error}");
            }
            Err(error) => tracing::warn!("volume {name} cannot be opened: {error}"),
        }
        *volume.opened.borrow_mut() = opened.map_err(|error| error.to_string());
    }

    async fn opened(
        &self,
        name: &str,
        volume: &Volume,
        by_force: bool,
        forgets: bool,
    ) -> Result<Opened> {
        let counts = Arc::new(Counts::default());
        let record = volume.record.borrow().clone();
        let (kept, saved) = match record.backing {
            Backing::File | Backing::Device => {
                let state = self.dir.join(format!("{name}.state"));
                let (path, runtime) = (PathBuf::from(&record.path), self.runtime());
                // Its file system may take long, or never answer.
                let opened = self.runtime().spawn_blocking(move || {
                    let saved = if forgets { String::new() } else { file::saved(&state)? };
                    FileStore::open(&path, state, runtime).map(|store| (store, saved))
                });
                let (store, saved) = opened.await.map_err(|_| Errno::from(Errno::EIO))??;
                (Kept::File(Arc::new(Counted { store, counts: counts.clone() })), saved)
            }
            Backing::Striped => {
                let (store, saved, published) =
                    self.open_striped(name, &record.path, by_force).await?;
                // Another node has served it since this one did, and may have changed what it is. That cannot go on now: the
                // file is this node's.
                if !volume.is_new.get() && published.node != self.node {
                    self.take_record(name, volume, &published)?;
                }
                (Kept::Striped(Arc::new(Counted { store, counts: counts.clone() })), saved)
            }
        };
        let record = volume.record.borrow().clone();
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
        let unfit = |error: scsi::Unfit| {
            let hint = match error {
                scsi::Unfit::Reservations => {
                    format!("; hint: `covey volume clear-reservations {name}` makes them void")
                }
                _ => String::new(),
            };
            Errno::because(Errno::EINVAL, format!("{error}{hint}"))
        };
        let saved = if forgets { "" } else { &saved };
        let unit = Arc::new(Unit::new(config, kept.store(), saved).map_err(unfit)?);
        if forgets {
            self.forget_reservations(&unit).await?;
        }
        Ok(Opened { unit, kept, counts })
    }

    pub(super) async fn forget_reservations(&self, unit: &Arc<Unit>) -> Result<()> {
        let unit = unit.clone();
        let why = "that they are void could not be saved";
        let failed = move |_| covey_stripe::client::Error::because(Errno::EIO, why);
        self.within(async move { unit.forget_reservations().await.map_err(failed) }).await
    }

    async fn open_striped(
        &self,
        name: &str,
        path: &str,
        by_force: bool,
    ) -> Result<(StripedStore, String, Published)> {
        let (shared, path, runtime) = (self.fs().await?, path.to_owned(), self.client());
        // A session of its own: when it is over the volume is lost, and nothing else.
        let own_session = self.connect(name);
        self.within(async move {
            let who = own();
            if !by_force {
                striped::check_free(&shared, &who, &path).await?;
            }
            let fs = own_session.await?;
            let opened =
                StripedStore::open(fs.clone(), who.clone(), &path, runtime, by_force).await;
            if opened.is_err() {
                fs.bye().await;
            }
            let store = opened?;
            let saved = store.saved().await?;
            let published = striped::published(&fs, &who, &path).await?;
            Ok((store, saved, published))
        })
        .await
    }
}

/// How long the end of a node waits for its volumes to be given back.
const END_WAIT: Duration = Duration::from_secs(2);
/// How often what could not be opened is tried again.
const AGAIN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::super::LIST;
    use super::*;
    use crate::iscsi::disk;
    use covey_cluster::config::parse;
    use std::path::Path;
    use tokio::task::LocalSet;

    /// Volumes of a node whose metadata server takes connections and says nothing, as the list says that they are; of
    /// `IMAGE` in it there is a file. None is open.
    fn with_silent_meta(list: &str, test: impl AsyncFnOnce(Rc<Volumes>)) {
        let dir = tempfile::tempdir().unwrap();
        let silent = std::os::unix::net::UnixListener::bind(dir.path().join("meta")).unwrap();
        let node = |name: &str, roles: &str| {
            let dir = dir.path().display();
            format!(
                "[[node]]\nname = \"{name}\"\n{roles}listen = [\"unix!{dir}/{name}\"]\nstore = \"{dir}/{name}.d\"\n"
            )
        };
        let text = format!(
            "version = 1\n[cluster]\nname = \"c\"\nid = \"00000000000000000000000000000000\"\n{}{}",
            node("meta", "roles = [\"meta\", \"data\"]\n"),
            node("gw", "roles = [\"launch\"]\n")
        );
        let config = Arc::new(parse(&text, Path::new("test")).unwrap());
        let volumes_dir = dir.path().join("volumes");
        std::fs::create_dir(&volumes_dir).unwrap();
        let image = dir.path().join("image");
        FileStore::make(&image, 1 << 20).unwrap();
        let list = list.replace("IMAGE", &image.display().to_string());
        std::fs::write(volumes_dir.join(LIST), list).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ports = crate::net::TargetPorts::default();
        LocalSet::new().block_on(&runtime, async {
            test(Volumes::load(config, "gw", &volumes_dir, None, ports).unwrap()).await;
        });
        drop(silent);
    }

    fn is_open(volumes: &Volumes, name: &str) -> bool {
        volumes.find(name).is_ok_and(|one| one.opened.borrow().is_ok())
    }

    /// What is waited for holds up nothing else: what needs no metadata server is served meanwhile, though it comes later
    /// in the list.
    #[test]
    fn a_volume_that_is_slow_to_open_holds_up_no_other() {
        let list =
            "create a striped /a block 512 serial 1\ncreate b file IMAGE block 512 serial 2\n";
        with_silent_meta(list, async |volumes| {
            let caring = tokio::task::spawn_local(volumes.clone().run());
            while !is_open(&volumes, "b") {
                assert!(!caring.is_finished());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(!is_open(&volumes, "a"));
            // Nor does it hold up a command on another one.
            let words = ["resize", "b", "2097152"].map(str::to_owned).to_vec();
            volumes.clone().run_command(words).await.unwrap();
            assert_eq!(volumes.find("b").unwrap().bytes(), Some(2 << 20));
            assert!(
                volumes.find("a").unwrap().turn.try_lock().is_err(),
                "it is being opened still"
            );
            caring.abort();
        });
    }

    /// An initiator that finds no target gives up, and its file system with it: one that comes back while its node begins
    /// is asked to come again.
    #[test]
    fn a_target_is_there_before_its_volume_is_open() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let list = format!(
            "create a striped /a block 512 serial 1\nexport a {address}\n\
             create b file IMAGE block 512 serial 2\nexport b {address}\n"
        );
        with_silent_meta(&list, async |volumes| {
            let caring = tokio::task::spawn_local(volumes.clone().run());
            let log_in = async |name: &str| {
                let config = disk::Config {
                    initiator: "iqn.2026-01.org.example:me".into(),
                    target: Some(volumes.iqn(name)),
                    isid: [0x80; 6],
                    chap: None,
                    mutual: None,
                    parameters: disk::Parameters::INITIATOR,
                };
                let portal = disk::parse_portal(&address).unwrap();
                let once = Duration::ZERO;
                disk::Disk::connect(config, vec![portal], 0, once).await.map(|disk| disk.bytes())
            };
            // The other one at the same address is served.
            while log_in("b").await.is_err() {
                assert!(!caring.is_finished());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let refused = log_in("a").await.unwrap_err();
            assert!(refused.to_string().contains("status 0x0301"), "{refused}");
            caring.abort();
        });
    }
}
