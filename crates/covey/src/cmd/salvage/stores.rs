//! The objects in the storage directories of I/O servers.

use anyhow::{Context, Result, bail};
use covey_io::os::directory::Identity;
use covey_stripe::objects::{self, Kept};
use covey_stripe::ops::Id;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};

/// All objects of all chains.
pub struct Stores {
    /// By chain and file: the epoch, and where it lies.
    objects: HashMap<(u16, Id), (u32, PathBuf)>,
    /// What is staged, for which epochs.
    parts: HashMap<(u16, Id, u32), PathBuf>,
    /// What was lost with a disk, and nobody has accepted.
    lost: BTreeSet<(u16, Id)>,
    ids: BTreeMap<Id, ()>,
    /// The chains that were found, and the servers in whose stores.
    given: BTreeMap<u16, u16>,
    /// Servers whose directory was not given.
    pub missing: Vec<String>,
}

/// A chain in a store.
struct Holding {
    server: u16,
    /// The generation at which it was moved there; 0 for one that was made there.
    generation: u32,
    /// It lies in no directory of its own.
    is_own: bool,
    dir: PathBuf,
}

impl Stores {
    /// Reads the directories; each says which server it was. `head`: the server that a chain leads to, as far as the metadata
    /// knows: where its store has none of the chain, it has moved since, and the last one that got it counts.
    pub fn open(dirs: &[PathBuf], servers: &[String], head: impl Fn(u16) -> u16) -> Result<Stores> {
        let (objects, parts, lost, ids, given) = Default::default();
        let mut stores = Stores { objects, parts, lost, ids, given, missing: servers.to_vec() };
        let mut holdings: BTreeMap<u16, Vec<Holding>> = BTreeMap::new();
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
            let held = held(server as u16, dir).with_context(|| dir.display().to_string())?;
            for (chain, holding) in held {
                // What lies in no directory of its own is the chain only where the metadata says so.
                if holding.is_own && head(chain) != holding.server {
                    continue;
                }
                holdings.entry(chain).or_default().push(holding);
            }
        }
        for (chain, held) in holdings {
            let rank = |one: &&Holding| (one.server == head(chain), one.generation);
            let Some(one) = held.iter().max_by_key(rank) else { continue };
            stores.given.insert(chain, one.server);
            stores.read(chain, &one.dir).with_context(|| one.dir.display().to_string())?;
        }
        Ok(stores)
    }

    fn read(&mut self, chain: u16, dir: &Path) -> Result<()> {
        for low in std::fs::read_dir(dir)? {
            let low = low?;
            let is_low = low.file_name().as_encoded_bytes().iter().all(u8::is_ascii_hexdigit);
            if !low.file_type()?.is_dir() || !is_low {
                continue;
            }
            for object in std::fs::read_dir(low.path())? {
                let path = object?.path();
                let name = path.file_name().unwrap_or_default().as_encoded_bytes();
                let (id, epoch) = match objects::kept(name) {
                    // For a move that the metadata knows: it may not have been installed any more.
                    Some((id, epoch, Kept::Staged)) => {
                        self.parts.insert((chain, id, epoch), path);
                        continue;
                    }
                    Some((id, _, Kept::Lost)) => {
                        self.lost.insert((chain, id));
                        continue;
                    }
                    Some((id, epoch, Kept::Object)) if !objects::is_left(epoch) => (id, epoch),
                    _ => continue,
                };
                self.ids.insert(id, ());
                let held = self.objects.entry((chain, id)).or_insert((epoch, path.clone()));
                if epoch >= held.0 {
                    *held = (epoch, path);
                }
            }
        }
        Ok(())
    }

    /// Whether what a chain held of a file is lost, or no store that was given has the chain.
    pub fn lacks(&self, chain: u16, id: Id) -> bool {
        let is_lost = self.lost.contains(&(chain, id)) && !self.objects.contains_key(&(chain, id));
        !self.given.contains_key(&chain) || is_lost
    }

    /// All files that have an object.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        self.ids.keys().copied()
    }

    /// A server that has an object of a file on another chain, of a later epoch than is known: the file has moved there.
    pub fn moved_to(&self, id: Id, chains: &[u16], known: u32) -> Option<u16> {
        let others = self.given.iter().filter(|(chain, _)| !chains.contains(chain));
        let mut moved = others.filter(|(chain, _)| {
            let object = self.objects.get(&(**chain, id));
            object.is_some_and(|(epoch, path)| *epoch > known && has_bytes(path))
        });
        moved.next().map(|(_, server)| *server)
    }

    /// An object's file and length.
    /// Of a file of a known epoch what is staged for that epoch stands for an older object.
    pub fn object(&self, chain: u16, id: Id, known: Option<u32>) -> Result<Option<(File, u64)>> {
        let object = self.objects.get(&(chain, id));
        let is_there = object.is_some_and(|(epoch, _)| Some(*epoch) >= known);
        let part = known.and_then(|epoch| self.parts.get(&(chain, id, epoch)));
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

/// The chains in a store: its own, which lies where older versions have theirs, and those that its identity names.
fn held(server: u16, dir: &Path) -> Result<Vec<(u16, Holding)>> {
    let objects = dir.join("objects");
    let identity = match std::fs::read_to_string(objects.join("identity")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        identity => identity?,
    };
    let numbers = |key: &'static str| {
        let lines = identity.lines().filter_map(move |line| line.strip_prefix(key));
        lines.map(|line| line.split(' ').filter_map(|n| n.parse().ok()).collect::<Vec<u32>>())
    };
    let mut held = Vec::new();
    if !numbers("left ").any(|left| left.first() == Some(&u32::from(server))) {
        held.push((server, Holding { server, generation: 0, is_own: true, dir: objects.clone() }));
    }
    for line in numbers("chain ") {
        let [chain, stay, generation] = line[..] else { continue };
        let dir = objects.join(format!("c{chain}.{stay}"));
        held.retain(|(other, _)| u32::from(*other) != chain);
        held.push((chain as u16, Holding { server, generation, is_own: false, dir }));
    }
    Ok(held)
}

fn has_bytes(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}
