//! The commands that change volumes.

use super::file::{self, FileStore};
use super::record::{Backing, Record, check_name, number};
use super::{Access, Kept, Volumes, own, portals, striped};
use covey_ninep::control::refuse;
use covey_ninep::tree::{Errno, Result};
use std::path::{Path, PathBuf};
use std::rc::Rc;

impl Volumes {
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
        self.enter(name, record, false).await
    }

    /// Another node serves the volume, and this one is to take its place when it dies.
    async fn join(self: &Rc<Self>, name: &str, path: &str) -> Result<()> {
        if self.volumes.borrow().contains_key(name) {
            return Ok(());
        }
        let (name, mut record, _) = Record::of_words(&[name, "striped", path])?;
        record.serial = serial()?;
        self.enter(name, record, true).await
    }

    async fn enter(self: &Rc<Self>, name: String, record: Record, may_wait: bool) -> Result<()> {
        let volume = self.closed(&name, record, "");
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
        // Another node may have it as soon as nobody uses it.
        volume.target.disconnect("the volume is gone");
        volume.target.device.remove(0);
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
        if !volume.stands_by.get() {
            volume.need()?;
        }
        if !portals::is_local(address)?
            && let Some(why) = volume.record.borrow().access.refuses_distance()
        {
            return refuse(why);
        }
        self.serve(&volume, address).await?;
        if volume.record.borrow().exports.iter().any(|one| one == address) {
            return Ok(());
        }
        volume.record.borrow_mut().exports.push(address.to_owned());
        self.save()?;
        self.tell(name, &volume).await;
        Ok(())
    }

    async fn unexport(&self, name: &str, address: Option<&str>) -> Result<()> {
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
        self.tell(name, &volume).await;
        Ok(())
    }

    async fn change_access(&self, name: &str, words: &[&str]) -> Result<()> {
        let volume = self.find(name)?;
        if volume.stands_by.get() {
            let why = "another node serves this volume; hint: `covey volume ls` shows which";
            return Err(Errno::because(Errno::EBUSY, why));
        }
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
        volume.target.set_access(portals::access_of(&access));
        self.tell(name, &volume).await;
        Ok(())
    }

    pub(super) async fn run_command(self: Rc<Self>, words: Vec<String>) -> Result<()> {
        let _turn = self.turn.lock().await;
        let borrowed: Vec<&str> = words.iter().map(String::as_str).collect();
        match &borrowed[..] {
            ["create", ..] => self.create(words[1..].to_vec()).await,
            ["join", name, path] => self.join(name, path).await,
            ["rm", name] => self.remove(name, false).await,
            ["rm", name, "keep"] => self.remove(name, true).await,
            ["clone", name, new, path] => self.copy(name, new, path).await,
            ["resize", name, bytes] => self.resize(name, number(bytes)?, false).await,
            ["resize", name, bytes, "shrink"] => self.resize(name, number(bytes)?, true).await,
            ["export", name, address] => self.export(name, address).await,
            ["unexport", name] => self.unexport(name, None).await,
            ["unexport", name, address] => self.unexport(name, Some(address)).await,
            ["acl", name, rest @ ..] => self.change_access(name, rest).await,
            [other, ..] => {
                refuse(format!("{other:?} is no command, or has other words; hint: read the file"))
            }
            [] => Ok(()),
        }
    }
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
