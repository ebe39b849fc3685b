//! Which store this is, and whether the metadata server knows it.
//!
//! ```text
//!   DIR/objects/identity    store HEX          made with the store, never changed
//!                           metadata HEX       the metadata server that has files in it
//!                           chain CHAIN STAY GENERATION   a chain whose objects have a directory of their own
//!                           copy CHAIN STAY GENERATION    a chain that was copied here, and was not served yet
//!                           left CHAIN GENERATION   a chain that was moved away, at which generation
//!                           came CHAIN GENERATION MACHINE   a move that has brought a chain here: see [`Hop`]
//! ```
//!
//! It lies among the objects, so that it goes and comes back with them. Older versions kept it beside them.
//!
//! A disk that was replaced, or a directory that was emptied, is another store: it would answer with zeros
//! for every byte that the one before held. So a server serves nothing until the metadata server, which
//! remembers the store of each I/O server, has met this one and admitted it; whoever comes earlier waits a
//! moment. A store that it does not know answers EIO until the loss is accepted. And a store that
//! belongs to another metadata server is not given to one that would take all its objects for orphans.

use super::{DataTree, FANOUT, Line, dirs};
use covey_io::disk::{Disk, Flush, Open};
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::objects::{DataReply, Hop};
use covey_wire::{List, Name};
use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify};

/// The identity's file, in the objects' directory.
const FILE: &str = "identity";
const FILE_NEW: &str = "identity.new";
/// The file of older versions, in the storage directory.
const FILE_BESIDE: &str = "objects.identity";
const FILE_BYTES_MAX: usize = 4 << 20;
/// How long a request waits for the metadata server's word.
const WORD_WAIT: Duration = Duration::from_secs(2);

/// What the metadata server has said.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    None,
    Admitted,
    Refused(String),
}

/// What a store says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// Which one it is.
    pub store: Name,
    /// The metadata server whose files lie here; empty before it has come.
    pub meta: Name,
    /// The chains in it.
    pub held: Held,
}

/// The chains in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Those that have directories of their own.
    pub chains: BTreeMap<u16, Stay>,
    /// Copies that are whole, of chains that are still served elsewhere as far as is known here.
    pub copies: BTreeMap<u16, Stay>,
    /// Those that were moved away, and the generations at which they have left.
    pub left: BTreeMap<u16, u32>,
    /// The moves that have brought chains and copies here.
    pub hops: BTreeMap<u16, Vec<Hop>>,
}

impl Held {
    /// Whether it is known that a chain was moved away at this generation, or was moved here since.
    pub fn is_past(&self, chain: u16, generation: u32) -> bool {
        let is_back = self.chains.get(&chain).is_some_and(|stay| stay.generation >= generation);
        is_back || self.left.get(&chain).is_some_and(|&left| left >= generation)
    }
}

/// A stay of a chain in this store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stay {
    /// Names its directory.
    pub number: u32,
    /// The generation at which the chain was moved here; 0 for one that was made here.
    pub generation: u32,
}

/// The store's identity, and the metadata server's word on it.
pub struct Standing {
    store: Name,
    meta: RefCell<Name>,
    held: RefCell<Held>,
    /// The identity is written by one at a time.
    pub(super) writing: Mutex<()>,
    /// It held no object when it was opened, and none was made since.
    is_empty: Cell<bool>,
    /// When it was formatted, in nanoseconds since 1970.
    formatted: u64,
    /// The same as the word says: looked at with every request.
    pub(super) is_admitted: Cell<bool>,
    word: RefCell<Word>,
    has_come: Notify,
}

/// The identity of the objects in `objects`, below `store`; a new one when they have none. Asked before
/// the directories there are made. Only what is missing is new: a disk that cannot say ends the start.
/// An identity from which the objects' directories were taken away is not theirs any more.
pub(super) fn identity(disk: &dyn Disk, store: &Path, objects: &Path) -> io::Result<Identity> {
    let beside = store.join(FILE_BESIDE);
    let older = read(disk, &beside)?;
    let inside = read(disk, &objects.join(FILE))?;
    // The directories were there before a metadata server had files in them: one that is missing was removed, with
    // all that it held, and the identity has only been left behind.
    let is_whole = |found: &Identity| -> io::Result<bool> {
        Ok(found.meta.is_empty() || has_directories(disk, objects, &found.held)?)
    };
    let found = match inside {
        Some(found) if is_whole(&found)? => found,
        inside => {
            let none = Held::default();
            let identity = match &older {
                Some(older) if inside.is_none() && has_directories(disk, objects, &none)? => {
                    older.clone()
                }
                _ => Identity { store: new_mark(disk)?, ..Identity::default() },
            };
            disk.make_dir(objects)?;
            write(disk, objects, &identity)?;
            identity
        }
    };
    // One that is another's stays: its objects may come back.
    if older.is_some_and(|older| older.store == found.store) {
        disk.remove(&beside)?;
    }
    Ok(found)
}

fn new_mark(disk: &dyn Disk) -> io::Result<Name> {
    let mark: String = disk.mark()?.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Name::from(mark))
}

/// Whether the objects' directories are all there: they were made before the identity beside them, and
/// are missing where the objects were wiped, or their disk is not mounted.
fn has_directories(disk: &dyn Disk, objects: &Path, held: &Held) -> io::Result<bool> {
    let own = (0..FANOUT).map(|low| objects.join(format!("{low:02x}")));
    let others =
        held.chains.iter().flat_map(|(&chain, &stay)| dirs::of_chain(objects, chain, stay.number));
    for dir in own.chain(others) {
        match disk.list(&dir) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn read(disk: &dyn Disk, path: &Path) -> io::Result<Option<Identity>> {
    let file = match disk.open(path, Open::Existing) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = file.read_blocking(0, FILE_BYTES_MAX)?;
    let text = String::from_utf8_lossy(&bytes);
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(Name::from);
    let lines = |key: &str| -> Option<Vec<Vec<u64>>> {
        let numbers = |line: &str| line.split(' ').map(|number| number.parse().ok()).collect();
        text.lines().filter_map(|line| line.strip_prefix(key)).map(numbers).collect()
    };
    let chain = |line: &Vec<u64>| match line[..] {
        [chain, number, generation] => {
            let stay =
                Stay { number: number.try_into().ok()?, generation: generation.try_into().ok()? };
            Some((chain.try_into().ok()?, stay))
        }
        _ => None,
    };
    let has_left = |line: &Vec<u64>| match line[..] {
        [chain, generation] => Some((chain.try_into().ok()?, generation.try_into().ok()?)),
        _ => None,
    };
    let hop = |line: &Vec<u64>| match line[..] {
        [chain, generation, machine] => {
            let hop = Hop { generation: generation.try_into().ok()?, machine };
            Some((u16::try_from(chain).ok()?, hop))
        }
        _ => None,
    };
    let stays = |key| lines(key).and_then(|lines| lines.iter().map(chain).collect());
    let (chains, copies) = (stays("chain "), stays("copy "));
    let left = lines("left ").and_then(|lines| lines.iter().map(has_left).collect());
    // Without one of these a loss may be told that was none.
    let came = lines("came ").unwrap_or_default();
    match (value("store "), chains, copies, left) {
        (Some(store), Some(chains), Some(copies), Some(left)) => {
            let mut hops: BTreeMap<u16, Vec<Hop>> = BTreeMap::new();
            came.iter()
                .filter_map(hop)
                .for_each(|(chain, hop)| hops.entry(chain).or_default().push(hop));
            let held = Held { chains, copies, left, hops };
            let meta = value("metadata ").unwrap_or_default();
            Ok(Some(Identity { store, meta, held }))
        }
        _ => {
            let what = format!("{} does not say which store this is", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

fn write(disk: &dyn Disk, objects: &Path, identity: &Identity) -> io::Result<()> {
    let Identity { store, meta, held } = identity;
    let mut text =
        format!("# Which store of Covey this is. Do not change it by hand.\nstore {store}\n");
    if !meta.is_empty() {
        text += &format!("metadata {meta}\n");
    }
    for (key, stays) in [("chain", &held.chains), ("copy", &held.copies)] {
        for (chain, Stay { number, generation }) in stays {
            text += &format!("{key} {chain} {number} {generation}\n");
        }
    }
    held.left.iter().for_each(|(chain, at)| text += &format!("left {chain} {at}\n"));
    for (chain, hops) in &held.hops {
        for Hop { generation, machine } in hops {
            text += &format!("came {chain} {generation} {machine}\n");
        }
    }
    let file = disk.open(&objects.join(FILE_NEW), Open::Truncate)?;
    if file.write_all_blocking(0, &[IoSlice::new(text.as_bytes())])? != text.len() {
        return Err(io::ErrorKind::StorageFull.into());
    }
    file.sync_blocking(Flush::All)?;
    disk.rename(&objects.join(FILE_NEW), &objects.join(FILE))?;
    disk.sync_dir(objects)
}

impl Standing {
    pub(super) fn new(identity: Identity, formatted: u64) -> Standing {
        Standing {
            store: identity.store,
            meta: RefCell::new(identity.meta),
            held: RefCell::new(identity.held),
            writing: Mutex::new(()),
            is_empty: Cell::new(true),
            formatted,
            is_admitted: Cell::new(false),
            word: RefCell::new(Word::None),
            has_come: Notify::new(),
        }
    }

    /// What the store says of itself.
    fn identity(&self) -> Identity {
        let (meta, held) = (self.meta.borrow().clone(), self.held.borrow().clone());
        Identity { store: self.store.clone(), meta, held }
    }

    /// Changes what is said of a store that no metadata server has files in yet: it is written when one has. Whether it is such a
    /// store.
    pub(super) fn change_if_new(&self, change: impl FnOnce(&mut Identity)) -> bool {
        let mut identity = self.identity();
        let is_new = identity.meta.is_empty() && !self.is_admitted.get();
        if is_new {
            change(&mut identity);
            *self.held.borrow_mut() = identity.held;
        }
        is_new
    }

    /// The chains in it.
    pub(super) fn held(&self) -> Ref<'_, Held> {
        self.held.borrow()
    }

    /// Whether a chain was moved away, and is not back.
    pub(super) fn has_left(&self, chain: u16) -> bool {
        self.held.borrow().left.contains_key(&chain)
    }

    /// The generation at which a chain was moved away.
    pub(super) fn left_at(&self, chain: u16) -> Option<u32> {
        self.held.borrow().left.get(&chain).copied()
    }

    /// Which stay of a chain is in a directory of its own.
    pub(super) fn stay_of(&self, chain: u16) -> Option<Stay> {
        self.held.borrow().chains.get(&chain).copied()
    }

    /// Which stay of a chain is a copy that was not served yet.
    pub(super) fn copy_of(&self, chain: u16) -> Option<Stay> {
        self.held.borrow().copies.get(&chain).copied()
    }

    /// The moves that have brought a chain here, none where it was made here.
    pub(super) fn hops_of(&self, chain: u16) -> DataReply {
        let hops = self.held.borrow().hops.get(&chain).cloned().unwrap_or_default();
        DataReply::Hops { hops: List(hops) }
    }

    /// The numbers of a chain's stays that the identity names.
    pub(super) fn numbers_of(&self, chain: u16) -> impl Iterator<Item = u32> + use<> {
        [self.stay_of(chain), self.copy_of(chain)].into_iter().flatten().map(|stay| stay.number)
    }

    /// Whether a metadata server has its files here.
    pub(super) fn is_taken(&self) -> bool {
        !self.meta.borrow().is_empty()
    }

    /// An object is made.
    pub(super) fn has_object(&self) {
        self.is_empty.set(false);
    }

    #[cfg(test)]
    pub(super) fn admit_for_test(&self) {
        self.say(Word::Admitted);
    }

    /// Whether a metadata server has said that the store is its own.
    pub(super) fn has_meta(&self) -> bool {
        !self.meta.borrow().is_empty()
    }

    fn say(&self, word: Word) {
        self.is_admitted.set(word == Word::Admitted);
        *self.word.borrow_mut() = word;
        self.has_come.notify_waiters();
    }

    /// Refuses whatever would read or change the objects.
    pub(super) fn check(&self) -> Result<()> {
        match &*self.word.borrow() {
            Word::Admitted => Ok(()),
            Word::Refused(why) => Err(Errno::because(Errno::EIO, why.clone())),
            Word::None => {
                let what = "the metadata server has not met this store yet";
                Err(Errno::because(Errno::EIO, what))
            }
        }
    }

    /// EINVAL when another store is meant, or this one is served or was served before: its objects are older than the files.
    pub(super) fn must_be_new(&self, store: &Name) -> Result<()> {
        self.must_be(store)?;
        if !self.meta.borrow().is_empty() || self.is_admitted.get() {
            let what = "the store has served before, so its objects may be older than the files; hint: put back the disk that \
                        was used last, or take an empty one";
            return Err(Errno::because(Errno::EINVAL, what));
        }
        Ok(())
    }

    /// EINVAL when another store is meant.
    pub(super) fn must_be(&self, store: &Name) -> Result<()> {
        if *store == self.store {
            Ok(())
        } else {
            Err(Errno::because(Errno::EINVAL, "another store is meant"))
        }
    }

    async fn come(&self) -> Result<()> {
        let heard = self.has_come.notified();
        if *self.word.borrow() == Word::None {
            // Without a word the check below tells.
            let _ = task::timeout(WORD_WAIT, heard).await;
        }
        self.check()
    }

    /// For people and `covey status`: one `key value` a line.
    pub fn text(&self) -> String {
        let word = self.word.borrow();
        let (state, why) = match &*word {
            Word::Admitted => ("known", ""),
            Word::Refused(why) => ("unknown", why.as_str()),
            Word::None => ("unmet", "the metadata server has not met this store yet"),
        };
        let mut text = format!("state {state}\nstore {}\n", self.store);
        if !why.is_empty() {
            text += &format!("reason {why}\n");
        }
        text
    }
}

impl DataTree {
    /// Which store this is.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Does what needs the objects, now or when the metadata server has said that they may be used.
    pub(super) fn when_admitted<T: 'static>(
        self: &Rc<Self>,
        act: impl FnOnce(&Rc<Self>) -> Outcome<T> + 'static,
    ) -> Outcome<T> {
        if self.standing.is_admitted.get() {
            return act(self);
        }
        let tree = self.clone();
        Outcome::later(async move {
            tree.standing.come().await?;
            act(&tree).wait().await
        })
    }

    pub(super) fn meet(&self) -> DataReply {
        let standing = &self.standing;
        let (store, meta) = (standing.store.clone(), standing.meta.borrow().clone());
        let (is_empty, formatted) = (standing.is_empty.get(), standing.formatted);
        DataReply::Met { store, meta, is_empty, formatted }
    }

    /// The metadata server knows this store.
    pub(super) async fn admit_store(self: Rc<Self>, store: Name, meta: Name) -> Result<DataReply> {
        let standing = &self.standing;
        standing.must_be(&store)?;
        let before = standing.meta.borrow().clone();
        if !before.is_empty() && before != meta {
            let what = "the store belongs to another metadata server";
            return Err(Errno::because(Errno::EINVAL, what));
        }
        if before.is_empty() {
            self.change_identity(|identity| identity.meta = meta).await?;
        }
        self.chains.holds.are_over().await;
        standing.say(Word::Admitted);
        Ok(DataReply::Done {})
    }

    /// Another metadata server than before has its files here: its metadata came back from a copy.
    pub(super) async fn adopt_store(
        self: Rc<Self>,
        store: Name,
        meta: Name,
        before: Name,
    ) -> Result<DataReply> {
        let standing = &self.standing;
        if (&store, &before) != (&standing.store, &*standing.meta.borrow()) {
            return Err(Errno::because(Errno::EINVAL, "another store is meant"));
        }
        self.change_identity(|identity| identity.meta = meta).await?;
        Ok(DataReply::Done {})
    }

    /// Changes what the store says of itself, on stable storage when this is over. It goes on when nobody waits for it any
    /// more: one half of it known is none.
    pub(super) async fn change_identity(
        &self,
        change: impl FnOnce(&mut Identity) + 'static,
    ) -> Result<()> {
        let (standing, disk, dir) = (self.standing.clone(), self.disk.clone(), self.identity_dir());
        let changing = task::spawn(async move {
            let _turn = standing.writing.lock().await;
            let mut identity = standing.identity();
            change(&mut identity);
            let Held { chains, copies, hops, .. } = &mut identity.held;
            hops.retain(|chain, _| chains.contains_key(chain) || copies.contains_key(chain));
            let new = identity.clone();
            task::blocking(move || write(&*disk, &dir, &new)).await?;
            *standing.meta.borrow_mut() = identity.meta;
            *standing.held.borrow_mut() = identity.held;
            Ok::<(), io::Error>(())
        });
        Ok(changing.await??)
    }

    /// The directory that says which store this is.
    pub(super) fn identity_dir(&self) -> PathBuf {
        self.store.join("objects")
    }

    /// EIO, from now on, when the objects were taken away while the server runs, or something else was mounted over them.
    pub(super) fn must_be_here(&self) -> Result<()> {
        let identity = self.identity_dir().join(FILE);
        match self.disk.stat(&identity) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let why = format!(
                    "{} is gone: the objects were removed, or something else is mounted there; hint: bring them back \
                     and restart the server",
                    identity.display()
                );
                tracing::error!("{why}");
                self.standing.say(Word::Refused(why));
                self.standing.check()
            }
            Err(error) => Err(error.into()),
            Ok(_) => Ok(()),
        }
    }

    pub(super) fn refuse_store(&self, why: &Name) -> DataReply {
        self.standing.say(Word::Refused(why.lossy().into_owned()));
        DataReply::Done {}
    }

    /// A greeting: whoever writes has to wait until the store may be used. A metadata server of an
    /// older version, which knows nothing of stores, greets as nobody: it is taken at its word until a
    /// newer one has come.
    pub(super) fn greet(self: &Rc<Self>, client: u64, line: &Rc<Line>) -> Outcome<DataReply> {
        if client == 0 && self.standing.meta.borrow().is_empty() {
            self.standing.say(Word::Admitted);
        }
        let line = line.clone();
        self.when_admitted(move |tree| tree.start(client, &line).into())
    }
}

#[cfg(test)]
#[path = "standing_tests.rs"]
mod tests;
