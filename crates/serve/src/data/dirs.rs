//! The chains of a store, and the directories that their objects lie in.
//!
//! ```text
//!   objects/identity        names the chains that have directories of their own
//!   objects/LOW/            objects of the server's own chain, where stores of older versions have theirs
//!   objects/cCHAIN.STAY/LOW/   objects of another chain; each stay of it in this store has its own directory, and so has a copy
//! ```
//!
//! What the identity does not name counts for nothing: a chain that is moved here is put together first, and a chain
//! that has left is forgotten before its objects are removed. A chain that has left is not served again from this store unless it
//! is moved here: metadata from an older copy would take what is left for the chain.

use super::{DataTree, Gone, losses, standing};
use covey_io::task;
use covey_ninep::tree::{Errno, Result};
use covey_stripe::chain::Served;
use covey_stripe::objects::{At, DataReply, Kept};
use covey_stripe::ops::Id;
use covey_wire::Name;
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Subdirectories of a chain's directory: with sixteen chains as many as a store of one chain has.
pub(super) const FANOUT: u64 = 16;

/// The trees of the chains that have directories of their own.
#[derive(Default)]
pub struct Others {
    trees: RefCell<BTreeMap<u16, Rc<DataTree>>>,
    /// The chain whose objects lie in no directory of its own; None until the metadata server has said so, which one of an older
    /// version never does: then it is the only one.
    own: Cell<Option<u16>>,
    /// Chains are made by one at a time.
    making: tokio::sync::Mutex<()>,
    /// What the own chain has left in the first directories is being removed, or was.
    is_own_removed: Cell<bool>,
}

/// The directory of a chain's stay.
pub(super) fn of_stay(objects: &Path, chain: u16, stay: u32) -> PathBuf {
    objects.join(format!("c{chain}.{stay}"))
}

/// Its subdirectories.
pub(super) fn of_chain(objects: &Path, chain: u16, stay: u32) -> impl Iterator<Item = PathBuf> {
    lows(of_stay(objects, chain, stay))
}

/// The subdirectories of a stay's directory.
pub(super) fn lows(dir: PathBuf) -> impl Iterator<Item = PathBuf> {
    (0..FANOUT).map(move |low| dir.join(format!("{low:02x}")))
}

/// The chain and the stay that a directory is of, by its name.
pub(super) fn parse_stay(name: &str) -> Option<(u16, u32)> {
    let (chain, stay) = name.strip_prefix('c')?.split_once('.')?;
    Some((chain.parse().ok()?, stay.parse().ok()?))
}

/// Where an object lies in the directory of a stay, or what is beside it.
pub(super) fn path_of(dir: &Path, id: Id, epoch: u32, kept: Kept) -> PathBuf {
    dir.join(format!("{:02x}", id % FANOUT)).join(file_name(id, epoch, kept))
}

/// What the file of an object is called, or of what is beside it.
pub(super) fn file_name(id: Id, epoch: u32, kept: Kept) -> String {
    match (epoch, kept) {
        (0, Kept::Object) => format!("{id:016x}"),
        _ => format!("{id:016x}.{epoch}{}", kept.suffix()),
    }
}

impl DataTree {
    /// Opens the tree of a chain whose directories are there.
    pub(super) fn open_other(&self, chain: u16, stay: u32) -> io::Result<Rc<DataTree>> {
        let tree = DataTree {
            disk: self.disk.clone(),
            store: self.store.clone(),
            objects_dir: of_stay(&self.identity_dir(), chain, stay),
            fanout: FANOUT,
            chain: Some(chain),
            stay,
            others: Others::default(),
            own_uid: self.own_uid,
            epochs: RefCell::default(),
            held: RefCell::default(),
            lost: RefCell::default(),
            gone: RefCell::<Gone>::default(),
            staging: RefCell::default(),
            staged: RefCell::default(),
            lines: self.lines.clone(),
            unchecked_bytes: self.unchecked_bytes.clone(),
            standing: self.standing.clone(),
            chains: self.chains.clone(),
            losses: Rc::<RefCell<losses::Losses>>::clone(&self.losses),
            counters: self.counters.clone(),
            watch: self.watch.clone(),
            noted: Rc::default(),
            receiving: RefCell::default(),
            stay_last: Cell::default(),
            remains: Rc::default(),
        };
        tree.load()?;
        let tree = Rc::new(tree);
        self.others.trees.borrow_mut().insert(chain, tree.clone());
        Ok(tree)
    }

    /// The trees of all chains but the own.
    pub(super) fn others(&self) -> Vec<Rc<DataTree>> {
        self.others.trees.borrow().values().cloned().collect()
    }

    /// The tree of a chain, if this store has it: never one of an earlier stay.
    pub(super) fn of(self: &Rc<Self>, chain: u16) -> Option<Rc<DataTree>> {
        let Some(stay) = self.standing.stay_of(chain) else {
            let is_own = self.others.own.get().is_none_or(|own| own == chain);
            return (is_own && !self.standing.has_left(chain)).then(|| self.clone());
        };
        let trees = self.others.trees.borrow();
        trees.get(&chain).filter(|tree| tree.stay == stay.number).cloned()
    }

    /// The same, or why not.
    pub(super) fn must_have(self: &Rc<Self>, chain: u16) -> Result<Rc<DataTree>> {
        self.of(chain).ok_or_else(|| {
            let what = match self.standing.left_at(chain) {
                Some(generation) => format!(
                    "chain {chain} was moved away from here at its generation {generation}: the metadata is older than that"
                ),
                None => format!("chain {chain} is not served here"),
            };
            Errno::because(Errno::EREMCHG, what)
        })
    }

    /// The tree of an object that is walked to. Where there are several, the chain has to be said, unless it is read by hand.
    pub(super) fn reached_by(self: &Rc<Self>, at: At) -> Result<Rc<DataTree>> {
        match at.chain {
            Some(served) => self.must_have(served.chain),
            None if at.epoch.is_none() || self.others.trees.borrow().is_empty() => Ok(self.clone()),
            None => {
                let what =
                    "the client does not say by which chain it comes: it is of an older version";
                Err(Errno::because(Errno::EREMCHG, what))
            }
        }
    }

    /// The tree of a chain, made where this store never had it.
    pub(super) async fn made(self: &Rc<Self>, chain: u16) -> Result<Rc<DataTree>> {
        self.make_all(&[chain]).await?;
        self.must_have(chain)
    }

    /// Makes those of some chains that this store never had, all together: a server that is new gets many.
    async fn make_all(self: &Rc<Self>, chains: &[u16]) -> Result<()> {
        let _turn = self.others.making.lock().await;
        chains.iter().try_for_each(|&chain| self.open_named(chain))?;
        let is_known = |chain: &u16| {
            self.standing.stay_of(*chain).is_some()
                || self.others.own.get() == Some(*chain)
                || self.standing.has_left(*chain)
        };
        let new: Vec<u16> = chains.iter().copied().filter(|chain| !is_known(chain)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let stay = standing::Stay::default();
        self.make_dirs(new.clone(), stay.number).await?;
        let made = new.clone();
        let take = move |identity: &mut standing::Identity| {
            for &chain in &made {
                identity.held.chains.entry(chain).or_insert(stay);
            }
        };
        // One that was never admitted says so when it is: a server that is new has less to wait for.
        if !self.standing.change_if_new(&take) {
            self.change_identity(take).await?;
        }
        Ok(new.into_iter().try_for_each(|chain| self.open_named(chain))?)
    }

    /// The directories of chains' stays of this number, on stable storage.
    pub(super) async fn make_dirs(&self, chains: Vec<u16>, stay: u32) -> Result<()> {
        let (disk, objects) = (self.disk.clone(), self.identity_dir());
        let (inside, own) = (objects.clone(), chains.clone());
        let make = move || {
            let dirs = own.iter().flat_map(|&chain| of_chain(&inside, chain, stay));
            dirs.into_iter().try_for_each(|dir| disk.make_dir(&dir))
        };
        task::blocking(make).await?;
        let stays = chains.iter().map(|&chain| of_stay(&objects, chain, stay));
        self.sync_dirs_of(stays.chain([objects.clone()])).await
    }

    /// Syncs directories at the same time: they share what the disk has to do for each.
    pub(super) async fn sync_dirs_of(&self, dirs: impl IntoIterator<Item = PathBuf>) -> Result<()> {
        let syncs = dirs.into_iter().map(|dir| {
            let disk = self.disk.clone();
            task::blocking(move || disk.sync_dir(&dir))
        });
        let synced = join_all(syncs).await;
        Ok(synced.into_iter().collect::<io::Result<()>>()?)
    }

    /// Copies of chains that are served from now on are these chains. One after the other: this may be asked twice.
    async fn take_copies(self: &Rc<Self>, chains: &[Served]) -> Result<()> {
        let _turn = self.others.making.lock().await;
        for &one in chains {
            self.take_copy(one).await?;
            self.open_named(one.chain)?;
        }
        Ok(())
    }

    /// Opens the tree of the stay that the identity names: what it was to be opened after may have been broken off.
    fn open_named(&self, chain: u16) -> io::Result<()> {
        let Some(stay) = self.standing.stay_of(chain) else { return Ok(()) };
        let is_open = |tree: &Rc<DataTree>| tree.stay == stay.number;
        if !self.others.trees.borrow().get(&chain).is_some_and(is_open) {
            self.open_other(chain, stay.number)?;
        }
        Ok(())
    }

    /// Forgets a stay of a chain.
    pub(super) fn close_other(&self, chain: u16, stay: standing::Stay) {
        let mut trees = self.others.trees.borrow_mut();
        if trees.get(&chain).is_some_and(|tree| tree.stay == stay.number) {
            trees.remove(&chain);
        }
    }

    /// Whether nobody has begun to remove what the own chain has left.
    pub(super) fn is_first_removal(&self) -> bool {
        !self.others.is_own_removed.replace(true)
    }

    /// The chain whose objects lie in no directory of its own, where that is known.
    pub(super) fn own_chain(&self) -> Option<u16> {
        self.others.own.get()
    }

    /// From now on these chains are served and no others, those that are new among them made. One that has left is not.
    pub(super) async fn serve_as(
        self: Rc<Self>,
        store: Name,
        own: u16,
        chains: Vec<Served>,
    ) -> Result<DataReply> {
        self.standing.must_be(&store)?;
        self.others.own.set(Some(own));
        self.forget_movers();
        // To its end when nobody waits for it any more: a chain that is taken by halves is served empty.
        let (tree, all) = (self.clone(), chains.clone());
        let taking = task::spawn(async move {
            tree.take_copies(&all).await?;
            tree.remove_own_if_left();
            let all: Vec<u16> = all.iter().map(|one| one.chain).collect();
            tree.make_all(&all).await
        });
        taking.await??;
        let mut served = Vec::with_capacity(chains.len());
        for one in chains {
            match self.must_have(one.chain) {
                Ok(_) => served.push(one),
                Err(error) if error.code == Errno::EREMCHG => tracing::error!(
                    "{error}; hint: files on it are read by `covey salvage` from the I/O servers' stores"
                ),
                Err(error) => return Err(error),
            }
        }
        self.serve_these(&served).await;
        Ok(DataReply::Done {})
    }
}
