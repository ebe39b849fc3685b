//! The objects in the storage directories of I/O servers.

use anyhow::{Context, Result, bail};
use covey_io::os::directory::Identity;
use covey_stripe::objects::{self, Kept};
use covey_stripe::ops::Id;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};

/// All objects of all servers.
pub struct Stores {
    /// By server and file: the epoch, and where it lies.
    objects: HashMap<(u16, Id), (u32, PathBuf)>,
    /// What is staged, for which epochs.
    parts: HashMap<(u16, Id, u32), PathBuf>,
    /// What was lost with a disk, and nobody has accepted.
    lost: BTreeSet<(u16, Id)>,
    ids: BTreeMap<Id, ()>,
    given: BTreeSet<u16>,
    /// Servers whose directory was not given.
    pub missing: Vec<String>,
}

impl Stores {
    /// Reads the directories; each says which server it was.
    pub fn open(dirs: &[PathBuf], servers: &[String]) -> Result<Stores> {
        let (objects, parts, lost, ids, given) = Default::default();
        let mut stores = Stores { objects, parts, lost, ids, given, missing: servers.to_vec() };
        for dir in dirs {
            let identity = Identity::read(dir).map_err(|error| anyhow::anyhow!("{error}"))?;
            let Some(server) = servers.iter().position(|name| *name == identity.node) else {
                bail!(
                    "{} belongs to {}, which is none of the I/O servers",
                    dir.display(),
                    identity.node
                );
            };
            stores.missing.retain(|name| *name != identity.node);
            stores.given.insert(server as u16);
            stores.read(server as u16, dir).with_context(|| dir.display().to_string())?;
        }
        Ok(stores)
    }

    fn read(&mut self, server: u16, dir: &Path) -> Result<()> {
        for low in std::fs::read_dir(dir.join("objects"))? {
            let low = low?;
            if !low.file_type()?.is_dir() {
                continue;
            }
            for object in std::fs::read_dir(low.path())? {
                let path = object?.path();
                let name = path.file_name().unwrap_or_default().as_encoded_bytes();
                let (id, epoch) = match objects::kept(name) {
                    // For a move that the metadata knows: it may not have been installed any more.
                    Some((id, epoch, Kept::Staged)) => {
                        self.parts.insert((server, id, epoch), path);
                        continue;
                    }
                    Some((id, _, Kept::Lost)) => {
                        self.lost.insert((server, id));
                        continue;
                    }
                    Some((id, epoch, Kept::Object)) if !objects::is_left(epoch) => (id, epoch),
                    _ => continue,
                };
                self.ids.insert(id, ());
                let held = self.objects.entry((server, id)).or_insert((epoch, path.clone()));
                if epoch >= held.0 {
                    *held = (epoch, path);
                }
            }
        }
        Ok(())
    }

    /// Whether what a server held of a file is lost, or the server's directory was not given.
    pub fn lacks(&self, server: u16, id: Id) -> bool {
        let is_lost =
            self.lost.contains(&(server, id)) && !self.objects.contains_key(&(server, id));
        !self.given.contains(&server) || is_lost
    }

    /// All files that have an object.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        self.ids.keys().copied()
    }

    /// Another server that has an object of a file of a later epoch than is known: the file has moved there.
    pub fn moved_to(&self, id: Id, servers: &[u16], known: u32) -> Option<u16> {
        self.given.iter().copied().filter(|at| !servers.contains(at)).find(|at| {
            let object = self.objects.get(&(*at, id));
            object.is_some_and(|(epoch, path)| *epoch > known && has_bytes(path))
        })
    }

    /// An object's file and length.
    /// Of a file of a known epoch what is staged for that epoch stands for an older object.
    pub fn object(&self, server: u16, id: Id, known: Option<u32>) -> Result<Option<(File, u64)>> {
        let object = self.objects.get(&(server, id));
        let is_there = object.is_some_and(|(epoch, _)| Some(*epoch) >= known);
        let part = known.and_then(|epoch| self.parts.get(&(server, id, epoch)));
        let path = match part.filter(|_| !is_there) {
            Some(part) => Some(part),
            None => object.map(|(_, path)| path),
        };
        let Some(path) = path else { return Ok(None) };
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Some((file, length)))
    }
}

fn has_bytes(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}
