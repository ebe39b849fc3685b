//! The objects in the storage directories of I/O servers.

use anyhow::{Context, Result, bail};
use covey_io::os::directory::Identity;
use covey_stripe::objects;
use covey_stripe::ops::Id;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};

/// All objects of all servers.
pub struct Stores {
    /// By server and file: the epoch, and where it lies.
    objects: HashMap<(u16, Id), (u32, PathBuf)>,
    ids: BTreeMap<Id, ()>,
    given: BTreeSet<u16>,
    /// Servers whose directory was not given.
    pub missing: Vec<String>,
}

impl Stores {
    /// Reads the directories; each says which server it was.
    pub fn open(dirs: &[PathBuf], servers: &[String]) -> Result<Stores> {
        let (objects, ids, given) = Default::default();
        let mut stores = Stores { objects, ids, given, missing: servers.to_vec() };
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
                let Some((id, epoch)) = objects::parse(name) else { continue };
                let epoch = epoch.unwrap_or(0);
                self.ids.insert(id, ());
                let held = self.objects.entry((server, id)).or_insert((epoch, path.clone()));
                if epoch >= held.0 {
                    *held = (epoch, path);
                }
            }
        }
        Ok(())
    }

    /// Whether a server's directory was not given.
    pub fn lacks(&self, server: u16) -> bool {
        !self.given.contains(&server)
    }

    /// All files that have an object.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        self.ids.keys().copied()
    }

    /// An object's file and length.
    pub fn object(&self, server: u16, id: Id) -> Result<Option<(File, u64)>> {
        let Some((_, path)) = self.objects.get(&(server, id)) else { return Ok(None) };
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Some((file, length)))
    }
}
