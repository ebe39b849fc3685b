//! The commands that change volumes.

use super::file::{self, FileStore};
use super::record::{Backing, Record, check_name, check_place, number};
use super::standby::{Served, merged};
use super::turns::{NameTurn, unanswered};
use super::{Access, Kept, Volume, Volumes, own, portals, striped};
use covey_io::os::net::error_text;
use covey_io::task;
use covey_ninep::control::refuse;
use covey_ninep::tree::{Errno, Result};
use covey_stripe::client::Fs;
use covey_stripe::ops::Caller;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

impl Volumes {
    async fn create(self: &Rc<Self>, words: Vec<String>) -> Result<()> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (name, mut record, size) = Record::of_words(&words)?;
        self.check_free_name(&name)?;
        check_place(record.backing, &record.path)?;
        self.check_unused(&record)?;
        match size {
            Some(size) => self.make(&record, checked_size(size, &record)?).await?,
            None => record.adopted = true,
        }
        self.enter_made(name, record).await
    }

    /// Enters a volume; what was made for it is removed where that fails.
    async fn enter_made(self: &Rc<Self>, name: String, record: Record) -> Result<()> {
        let made = record.clone();
        let entered = self.enter_new(name, record).await;
        if entered.is_err() && !made.adopted {
            let _ = self.unmake(&made, None).await;
        }
        entered
    }

    /// Removes the bytes of a volume that nobody has any more but this node, whose own store is `held`.
    async fn unmake(&self, record: &Record, held: Option<Served>) -> Result<()> {
        match record.backing {
            Backing::Device => Ok(()),
            Backing::File => Ok(std::fs::remove_file(&record.path)?),
            Backing::Striped => {
                let (fs, who, path) = (self.fs().await?, own(), record.path.clone());
                let removed = async move {
                    check_alone(&fs, &who, &path, held).await?;
                    striped::remove(&fs, &who, &path).await
                };
                self.within(removed).await
            }
        }
    }

    /// Gives a volume's file back, if the cluster has it: only dropped, it is free some time later.
    async fn let_go(&self, volume: &Volume) {
        let Some(store) = volume.striped() else { return };
        let given_back = async move {
            store.store.give_back().await;
            Ok(())
        };
        // The metadata server may be gone.
        let _ = tokio::time::timeout(SETTLE_WAIT, self.within(given_back)).await;
    }

    async fn enter_new(self: &Rc<Self>, name: String, mut record: Record) -> Result<()> {
        record.serial = serial()?;
        self.enter(name, record, false).await
    }

    fn check_free_name(&self, name: &str) -> Result<()> {
        if self.volumes.borrow().contains_key(name) {
            Err(Errno::because(Errno::EEXIST, format!("there is a volume {name:?} already")))
        } else {
            Ok(())
        }
    }

    /// A file of the cluster's is one volume's. Of other files the kernel knows who has them.
    fn check_unused(&self, record: &Record) -> Result<()> {
        let is_it = |one: &Volume| {
            let other = one.record.borrow();
            (other.backing, record.backing) == (Backing::Striped, Backing::Striped)
                && striped::names_of(&other.path) == striped::names_of(&record.path)
        };
        let volumes = self.volumes.borrow();
        match volumes.iter().find(|(_, volume)| is_it(volume)) {
            Some((name, _)) => {
                let why = format!("{} is the file of volume {name}", record.path);
                Err(Errno::because(Errno::EBUSY, why))
            }
            None => Ok(()),
        }
    }

    /// Changes what is kept of a volume. Where that cannot be written, all is as it was.
    fn keep(&self, volume: &Volume, change: impl FnOnce(&mut Record)) -> Result<()> {
        let before = volume.record.borrow().clone();
        change(&mut volume.record.borrow_mut());
        let saved = self.save();
        if saved.is_err() {
            *volume.record.borrow_mut() = before;
        }
        saved
    }

    /// Another node serves the volume, and this one is to take its place when it dies.
    async fn join(self: &Rc<Self>, name: &str, path: &str) -> Result<()> {
        let (name, own, _) = Record::of_words(&[name, "striped", path])?;
        if let Ok(volume) = self.find(&name) {
            let known = volume.record.borrow();
            if (known.backing, &known.path) == (own.backing, &own.path) {
                return Ok(());
            }
            let why = format!(
                "node {} has another volume {name:?}, kept in {} {}; hint: choose another node, or remove that volume first",
                self.node,
                known.backing.word(),
                known.path
            );
            return Err(Errno::because(Errno::EEXIST, why));
        }
        check_place(own.backing, &own.path)?;
        // It may be free by now, and this node the first to have it.
        let published = self.published(path.to_owned()).await?;
        let Some(found) = published.record_of(&name)? else {
            let why = format!(
                "{path} does not say what volume {name} is; hint: where the file is to become a volume, `covey volume \
                 create {name} --striped {path}` without --size takes it as it is"
            );
            return Err(Errno::because(Errno::ENODATA, why));
        };
        self.enter(name, merged(&own, found), true).await
    }

    async fn enter(self: &Rc<Self>, name: String, record: Record, may_wait: bool) -> Result<()> {
        let volume = self.closed(&name, record, "");
        volume.is_new.set(!may_wait);
        let _its_turn = volume.turn.clone().lock_owned().await;
        // Somebody else may have been faster. From here to the entry nobody else runs.
        self.check_free_name(&name)?;
        self.forget_saved(&name)?;
        // Those that come to stand by write the list.
        self.volumes.borrow_mut().insert(name.clone(), volume.clone());
        self.open(&name, &volume).await;
        let why = volume.opened.borrow().as_ref().err().cloned();
        let kept = match why {
            Some(why) if !(may_wait && volume.stands_by.get()) => {
                Err(Errno::because(Errno::EIO, why))
            }
            _ => self.save(),
        };
        if let Err(error) = kept {
            self.volumes.borrow_mut().remove(&name);
            let _ = self.save();
            self.let_go(&volume).await;
            return Err(error);
        }
        self.bind_one(&name)
    }

    /// Removes what was saved for an earlier volume of this name, whose removal was cut off.
    fn forget_saved(&self, name: &str) -> Result<()> {
        let saved = self.dir.join(format!("{name}.state"));
        match std::fs::remove_file(&saved) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(at(&saved.display().to_string(), error))
            }
            _ => Ok(()),
        }
    }

    async fn make(&self, record: &Record, bytes: u64) -> Result<()> {
        match record.backing {
            Backing::Device => refuse("a device has the size that it has"),
            Backing::File => {
                let path = PathBuf::from(&record.path);
                let made = self.runtime().spawn_blocking(move || FileStore::make(&path, bytes));
                let made = made.await.map_err(|_| Errno::from(Errno::EIO))?;
                made.map_err(|error| at(&record.path, error))
            }
            Backing::Striped => {
                let (fs, who, path) = (self.fs().await?, own(), record.path.clone());
                self.within(async move { striped::make(&fs, &who, &path, bytes).await }).await
            }
        }
    }

    /// Forgets a volume, and its bytes unless they are to be kept.
    async fn remove(&self, name: &str, keeps: bool) -> Result<()> {
        let (volume, turn) = self.find_at_rest(name).await?;
        let record = volume.record.borrow().clone();
        if !record.exports.is_empty() {
            let why =
                format!("volume {name} is exported; hint: `covey volume unexport {name}` first");
            return Err(Errno::because(Errno::EBUSY, why));
        }
        if !keeps {
            volume.check_here()?;
        }
        self.volumes.borrow_mut().remove(name);
        if let Err(error) = self.save() {
            self.volumes.borrow_mut().insert(name.to_owned(), volume);
            return Err(error);
        }
        self.unbind_one(name);
        volume.target.disconnect("the volume is gone");
        volume.target.device.remove(0);
        let _ = std::fs::remove_file(self.dir.join(format!("{name}.state")));
        drop(turn);
        if keeps || record.adopted {
            return Ok(());
        }
        // As long as this node has the file no other one can take it; without the file none would.
        self.unmake(&record, volume.striped()).await
    }

    /// A new volume with the bytes of another, which must not change meanwhile.
    async fn copy(self: &Rc<Self>, name: &str, new: &str, path: &str) -> Result<()> {
        check_name(new)?;
        self.check_free_name(new)?;
        let (volume, turn) = self.find_at_rest(name).await?;
        volume.check_here()?;
        let record = volume.record.borrow().clone();
        if !record.exports.is_empty() {
            let why = format!("volume {name} is exported and may change; hint: unexport it first");
            return Err(Errno::because(Errno::EBUSY, why));
        }
        // Nobody can write to it meanwhile: to export it takes the turn of its name.
        drop(turn);
        let from = record.path.clone();
        check_place(record.backing, path)?;
        match record.backing {
            Backing::Device => return refuse("a device is not cloned"),
            Backing::File => {
                let to = PathBuf::from(path);
                let copied =
                    self.runtime().spawn_blocking(move || file::copy(Path::new(&from), &to));
                let copied = copied.await.map_err(|_| Errno::from(Errno::EIO))?;
                copied.map_err(|error| at(path, error))?;
            }
            Backing::Striped => {
                let (fs, who, to) = (self.fs().await?, own(), path.to_owned());
                let held = volume.striped();
                let copied = async move {
                    check_alone(&fs, &who, &from, held).await?;
                    striped::copy(&fs, &who, &from, &to).await
                };
                self.within(copied).await?;
            }
        }
        let clone = Record {
            path: path.to_owned(),
            exports: Vec::new(),
            access: Access::default(),
            adopted: false,
            ..record
        };
        self.enter_made(new.to_owned(), clone).await
    }

    async fn resize(
        &self,
        name: &str,
        bytes: u64,
        may_shrink: bool,
        turns: Vec<NameTurn>,
    ) -> Result<()> {
        let (volume, turn) = self.find_at_rest(name).await?;
        let bytes = checked_size(bytes, &volume.record.borrow())?;
        let opened = volume.need()?;
        if bytes < volume.bytes().unwrap_or(0) && !may_shrink {
            return refuse(
                "the volume would be shorter and lose what is at its end; hint: --shrink says that this is meant",
            );
        }
        // Whoever opens it again, because another node has taken it, does not wait for the size.
        drop(turn);
        let what = format!("the change of volume {name} to {bytes} bytes");
        match opened.kept {
            Kept::File(store) => {
                let before = store.store.lower(bytes);
                let first = bytes / u64::from(opened.unit.config().block_bytes);
                let patience = self.patience.get();
                let closing = opened.unit.close_from(first);
                let Ok(closed) = tokio::time::timeout(patience, closing).await else {
                    store.store.raise(before);
                    let then = "its blocks are in use, and nothing was changed";
                    return Err(unanswered(&what, patience, then));
                };
                let work = move || {
                    let resized = store.store.resize(bytes);
                    drop(closed);
                    resized.inspect_err(|_| store.store.raise(before))
                };
                let resized = self.runtime().spawn_blocking(work);
                let resized =
                    async move { Ok(resized.await.map_err(|_| Errno::from(Errno::EIO))??) };
                self.work_on(what, turns, resized).await
            }
            Kept::Striped(store) => {
                let runtime = self.client();
                let resized = async move {
                    let _changing = volume.changing.lock().await;
                    let resized = runtime.spawn(async move { store.store.resize(bytes).await });
                    Ok(resized.await.map_err(|_| Errno::from(Errno::EIO))??)
                };
                self.work_on(what, turns, resized).await
            }
        }
    }

    async fn export(&self, name: &str, address: &str) -> Result<()> {
        let (volume, turn) = self.find_at_rest(name).await?;
        if !volume.stands_by.get() {
            volume.need()?;
        }
        if !portals::is_local(address)?
            && let Some(why) = volume.record.borrow().access.refuses_distance()
        {
            return refuse(why);
        }
        self.portals.serve(address, &volume.target).await?;
        if volume.record.borrow().exports.iter().any(|one| one == address) {
            return Ok(());
        }
        let exported = self.keep(&volume, |record| record.exports.push(address.to_owned()));
        if exported.is_err() {
            self.portals.end(address, &self.iqn(name));
        }
        exported?;
        drop(turn);
        self.tell(name, &volume).await;
        Ok(())
    }

    async fn unexport(&self, name: &str, address: Option<&str>) -> Result<()> {
        let (volume, turn) = self.find_at_rest(name).await?;
        let is_meant = |one: &String| address.is_none_or(|address| one == address);
        let gone: Vec<String> =
            volume.record.borrow().exports.iter().filter(|one| is_meant(one)).cloned().collect();
        if gone.is_empty() && address.is_some() {
            return refuse(format!("volume {name} is not exported there"));
        }
        self.keep(&volume, |record| record.exports.retain(|one| !is_meant(one)))?;
        gone.iter().for_each(|address| self.portals.end(address, &self.iqn(name)));
        drop(turn);
        self.tell(name, &volume).await;
        if volume.record.borrow().exports.is_empty() {
            self.empty(&volume).await;
        }
        Ok(())
    }

    /// Until nobody uses a volume any more that is not exported: initiators have some seconds to log out. What comes next may be
    /// a copy.
    async fn empty(&self, volume: &Volume) {
        let sessions = || volume.target.sessions().len();
        let grace = Instant::now() + Duration::from_secs(portals::GRACE_SECONDS.into());
        while sessions() > 0 && Instant::now() < grace {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        volume.target.disconnect("the volume is not exported any more");
        let closed = Instant::now() + Duration::from_secs(portals::GRACE_SECONDS.into());
        while sessions() > 0 && Instant::now() < closed {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        if let Ok(opened) = volume.need() {
            let _ = tokio::time::timeout(SETTLE_WAIT, opened.unit.settle()).await;
        }
    }

    async fn change_access(&self, name: &str, words: &[&str]) -> Result<()> {
        let (volume, turn) = self.find_at_rest(name).await?;
        volume.check_here()?;
        let mut access = volume.record.borrow().access.clone();
        access.change(words)?;
        for address in &volume.record.borrow().exports {
            if !portals::is_local(address)?
                && let Some(why) = access.refuses_distance()
            {
                return refuse(format!("volume {name} is exported at {address}: {why}"));
            }
        }
        self.keep(&volume, |record| record.access = access.clone())?;
        volume.target.set_access(portals::access_of(&access));
        // The sessions of those who would be let in no more.
        volume.target.evict("its initiator is let in no more");
        drop(turn);
        self.tell(name, &volume).await;
        Ok(())
    }

    /// Makes all reservations void, and opens a volume whose saved ones could not be read.
    async fn clear_reservations(&self, name: &str) -> Result<()> {
        let (volume, _turn) = self.find_at_rest(name).await?;
        volume.check_here()?;
        if let Ok(opened) = volume.need() {
            return self.forget_reservations(&opened.unit).await;
        }
        volume.forgets.set(true);
        self.open(name, &volume).await;
        volume.need().map(drop)
    }

    /// Does a command to its end, whether or not somebody waits for it: half of one would be a file that nobody knows of.
    pub(super) async fn run_command(self: Rc<Self>, words: Vec<String>) -> Result<()> {
        let done = task::spawn(async move { self.run_to_end(words).await });
        done.await.unwrap_or_else(|error| Err(error.into()))
    }

    async fn run_to_end(self: Rc<Self>, words: Vec<String>) -> Result<()> {
        let borrowed: Vec<&str> = words.iter().map(String::as_str).collect();
        if let Some(why) = &self.unread {
            // A change would write it anew.
            return Err(Errno::because(Errno::EIO, why.clone()));
        }
        let turns = self.turns_of(&borrowed).await?;
        match &borrowed[..] {
            ["create", ..] => self.create(words[1..].to_vec()).await,
            ["join", name, path] => self.join(name, path).await,
            ["rm", name] => self.remove(name, false).await,
            ["rm", name, "keep"] => self.remove(name, true).await,
            ["clone", name, new, path] => self.copy(name, new, path).await,
            ["resize", name, bytes] => self.resize(name, number(bytes)?, false, turns).await,
            ["resize", name, bytes, "shrink"] => {
                self.resize(name, number(bytes)?, true, turns).await
            }
            ["export", name, address] => self.export(name, address).await,
            ["unexport", name] => self.unexport(name, None).await,
            ["unexport", name, address] => self.unexport(name, Some(address)).await,
            ["clear-reservations", name] => self.clear_reservations(name).await,
            ["acl", name, rest @ ..] => self.change_access(name, rest).await,
            [other, ..] => {
                refuse(format!("{other:?} is no command, or has other words; hint: read the file"))
            }
            [] => Ok(()),
        }
    }
}

impl Volume {
    /// EBUSY where another node serves the volume: its file is that node's.
    fn check_here(&self) -> Result<()> {
        if self.stands_by.get() {
            let why = "another node serves this volume; hint: `covey volume ls` shows which";
            Err(Errno::because(Errno::EBUSY, why))
        } else {
            Ok(())
        }
    }
}

/// An error where another node has a volume's file, or has taken it from this one, whose store is `held`.
async fn check_alone(
    fs: &Fs,
    who: &Caller,
    path: &str,
    held: Option<Served>,
) -> covey_stripe::client::Result<()> {
    match held {
        Some(store) => store.store.check_ours().await,
        None => striped::check_free(fs, who, path).await,
    }
}

/// An error that says of which file.
fn at(path: &str, error: std::io::Error) -> Errno {
    let why = format!("{path}: {}", error_text(&error));
    Errno::because(Errno::from(error).code, why)
}

/// Between one look whether initiators are gone and the next.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long a store may work for initiators that are gone.
const SETTLE_WAIT: Duration = Duration::from_secs(5);

fn serial() -> Result<String> {
    let number: [u8; 8] = covey_io::os::random::bytes()?;
    Ok(number.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn checked_size(bytes: u64, record: &Record) -> Result<u64> {
    let block = u64::from(record.block_bytes);
    if bytes != 0 && bytes.is_multiple_of(block) {
        Ok(bytes)
    } else {
        refuse(format!("{bytes} bytes are no whole number of blocks of {block}"))
    }
}

#[cfg(test)]
mod tests;
