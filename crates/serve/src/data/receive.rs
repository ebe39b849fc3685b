//! A chain that comes from another server: it is put together in a directory of its own, which counts for nothing until the
//! identity names it (see [`super::dirs`]). When it is settled the identity names it as a copy, and as the chain before it is
//! served for the first time. A copy that the metadata server does not want goes; nobody has changed anything there.

use super::{DataTree, Line, dirs, standing};
use covey_io::disk::{Disk, DiskFile, Flush, Open};
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::chain::Served;
use covey_stripe::objects::{ChainCopy, DataReply, HOPS_MAX, Hop, Kept, Put};
use covey_stripe::ops::Id;
use covey_wire::{Bytes, List, Name};
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

/// A chain that is being received.
pub(super) struct Receiving {
    stay: u32,
    /// The connection of its mover.
    line: Weak<Line>,
}

/// What is put where.
pub(super) struct Piece {
    pub chain: u16,
    pub stay: u32,
    pub id: Id,
    pub epoch: u32,
    pub kept: u8,
    pub how: u8,
    pub offset: u64,
    pub data: Bytes,
}

impl DataTree {
    /// Begins to receive a chain, in an empty directory; whatever else was received of it is forgotten. Answers with the number
    /// of its stay.
    pub(super) async fn receive(
        self: Rc<Self>,
        line: Rc<Line>,
        store: Name,
        chain: u16,
    ) -> Result<DataReply> {
        self.standing.must_be(&store)?;
        if self.chains.serves(chain) {
            return Err(Errno::because(Errno::EBUSY, format!("chain {chain} is served here")));
        }
        self.forget_movers();
        let before = self.receiving.borrow_mut().remove(&chain);
        if let Some(before) = before {
            self.remove_later(dirs::of_stay(&self.identity_dir(), chain, before.stay));
        }
        // Never one that was given before: what comes late is for that.
        let given = self.standing.numbers_of(chain);
        let stay = given.chain([self.stay_last.get()]).max().unwrap_or(0).saturating_add(1);
        self.stay_last.set(stay);
        // First: what follows may fail, or its mover be gone before it is over.
        let receiving = Receiving { stay, line: Rc::downgrade(&line) };
        self.receiving.borrow_mut().insert(chain, receiving);
        let made = self.make_stay(chain, stay).await;
        if made.is_err() {
            self.receiving.borrow_mut().retain(|_, now| now.stay != stay);
        }
        // Another mover may have come meanwhile.
        let is_wanted = self.must_receive(&line, chain, stay);
        if is_wanted.is_err() {
            self.remove_later(dirs::of_stay(&self.identity_dir(), chain, stay));
        }
        made.and(is_wanted).map(|_| DataReply::Received { stay })
    }

    /// An empty directory of a stay, which says that it is of no use.
    async fn make_stay(&self, chain: u16, stay: u32) -> Result<()> {
        let (disk, dir) = (self.disk.clone(), dirs::of_stay(&self.identity_dir(), chain, stay));
        task::blocking(move || remove_stay(&*disk, &dir)).await?;
        self.make_dirs(vec![chain], stay).await?;
        self.mark_unused(chain, stay).await
    }

    /// What was received from movers whose connections are over goes: it may be as much as the disk has room for. So does what
    /// could not be removed before.
    pub(super) fn forget_movers(&self) {
        std::mem::take(&mut *self.remains.borrow_mut())
            .into_iter()
            .for_each(|dir| self.remove_later(dir));
        let gone = |_: &u16, one: &mut Receiving| one.line.strong_count() == 0;
        let gone: Vec<(u16, Receiving)> = self.receiving.borrow_mut().extract_if(gone).collect();
        for (chain, one) in gone {
            self.remove_later(dirs::of_stay(&self.identity_dir(), chain, one.stay));
        }
    }

    /// ESTALE where the server has started anew since, since what was put before may be lost, and for whoever comes on another
    /// connection: what was sent on the one before may still come, and would put old bytes in the place of newer ones.
    fn must_receive(&self, line: &Rc<Line>, chain: u16, stay: u32) -> Result<PathBuf> {
        match self.receiving.borrow().get(&chain) {
            Some(now) if now.stay == stay && now.line.as_ptr() == Rc::as_ptr(line) => {
                Ok(dirs::of_stay(&self.identity_dir(), chain, stay))
            }
            _ => {
                let what = format!(
                    "chain {chain} is not being received from there: the server has started anew since, or the connection is another"
                );
                Err(Errno::because(Errno::ESTALE, what))
            }
        }
    }

    pub(super) fn put(self: &Rc<Self>, line: &Rc<Line>, piece: Piece) -> Outcome<DataReply> {
        let begin = || -> Result<(PathBuf, Put)> {
            let dir = self.must_receive(line, piece.chain, piece.stay)?;
            let kept = Kept::of(piece.kept).ok_or(Errno::EINVAL)?;
            let how = Put::of(piece.how).ok_or(Errno::EINVAL)?;
            self.check_reserve(piece.data.len() as u64)?;
            Ok((dirs::path_of(&dir, piece.id, piece.epoch, kept), how))
        };
        let (path, how) = match begin() {
            Ok(begun) => begun,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let disk = self.disk.clone();
        Outcome::later(async move {
            task::blocking(move || put(&*disk, &path, how, piece.offset, &piece.data)).await?;
            Ok(DataReply::Done {})
        })
    }

    /// Nothing is there of a file any more.
    pub(super) fn clear(
        self: &Rc<Self>,
        line: &Rc<Line>,
        (chain, stay): (u16, u32),
        id: Id,
    ) -> Outcome<DataReply> {
        let dir = match self.must_receive(line, chain, stay) {
            Ok(dir) => dir.join(format!("{:02x}", id % dirs::FANOUT)),
            Err(error) => return Outcome::Now(Err(error)),
        };
        let (disk, prefix) = (self.disk.clone(), format!("{id:016x}"));
        Outcome::later(async move {
            task::blocking(move || {
                let names = disk.list(&dir)?;
                let own = names
                    .iter()
                    .filter(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
                own.into_iter().try_for_each(|name| disk.remove(&dir.join(name)))
            })
            .await?;
            Ok(DataReply::Done {})
        })
    }

    /// What was received is a copy of the chain from now on, on stable storage.
    pub(super) async fn settle(
        self: Rc<Self>,
        line: Rc<Line>,
        store: Name,
        chain: u16,
        (stay, generation): (u32, u32),
        mut hops: Vec<Hop>,
    ) -> Result<DataReply> {
        self.standing.must_be(&store)?;
        hops.drain(..hops.len().saturating_sub(HOPS_MAX));
        self.must_receive(&line, chain, stay)?;
        if self.chains.serves(chain) {
            return Err(Errno::because(Errno::EBUSY, format!("chain {chain} is served here")));
        }
        let objects = self.identity_dir();
        self.sync_dirs_of(dirs::of_chain(&objects, chain, stay)).await?;
        // Once: whoever puts something now comes too late.
        self.must_receive(&line, chain, stay)?;
        self.receiving.borrow_mut().remove(&chain);
        let copy = standing::Stay { number: stay, generation };
        let before = Rc::new(Cell::new(None));
        let replaced = before.clone();
        let name = move |identity: &mut standing::Identity| {
            replaced.set(identity.held.copies.insert(chain, copy));
            identity.held.hops.insert(chain, hops);
        };
        let named = self.change_identity(name).await;
        // What its mover is told has failed is never switched to.
        let of_no_use = if named.is_ok() { before.get().map(|it| it.number) } else { Some(stay) };
        if let Some(stay) = of_no_use {
            self.remove_later(dirs::of_stay(&objects, chain, stay));
        }
        named.map(|()| DataReply::Done {})
    }

    /// The copy of a chain that is to be served at a generation is the chain from now on: the server that had it removes it
    /// only after that. To be called by one at a time.
    pub(super) async fn take_copy(self: &Rc<Self>, served: Served) -> Result<()> {
        let chain = served.chain;
        let Some(copy) =
            self.standing.copy_of(chain).filter(|it| it.generation <= served.generation)
        else {
            return Ok(());
        };
        let (disk, dir) =
            (self.disk.clone(), dirs::of_stay(&self.identity_dir(), chain, copy.number));
        task::blocking(move || {
            remove_if_there(&*disk, &dir.join(UNUSED))?;
            disk.sync_dir(&dir)
        })
        .await?;
        let before = self.standing.stay_of(chain);
        let take = move |identity: &mut standing::Identity| {
            identity.held.left.remove(&chain);
            identity.held.copies.remove(&chain);
            identity.held.chains.insert(chain, copy);
        };
        self.change_identity(take).await?;
        if let Some(before) = before {
            self.close_other(chain, before);
            self.remove_marked(chain, before.number).await;
        }
        Ok(())
    }

    /// The copies that were not served yet. What was being received over connections that have ended goes.
    pub(super) fn copies(&self) -> DataReply {
        self.forget_movers();
        let held = self.standing.held();
        let copy = |(&chain, stay): (&u16, &standing::Stay)| ChainCopy { chain, stay: stay.number };
        DataReply::Copies { copies: List(held.copies.iter().map(copy).collect()) }
    }

    /// Nobody wants the copy of a chain any more.
    pub(super) async fn discard(
        self: Rc<Self>,
        store: Name,
        (chain, stay): (u16, u32),
    ) -> Result<DataReply> {
        self.standing.must_be(&store)?;
        let is_meant = move |copy: standing::Stay| copy.number == stay;
        if self.standing.copy_of(chain).is_some_and(is_meant) {
            match self.mark_unused(chain, stay).await {
                // Its directory was removed when it could not be named, and the disk has kept the name.
                Err(error) if error.code == Errno::ENOENT => {}
                marked => marked?,
            }
            self.change_identity(move |identity| {
                let copies = &mut identity.held.copies;
                if copies.get(&chain).copied().is_some_and(is_meant) {
                    copies.remove(&chain);
                }
            })
            .await?;
            if self.standing.stay_of(chain).is_none_or(|held| held.number != stay) {
                self.remove_later(dirs::of_stay(&self.identity_dir(), chain, stay));
            }
        }
        Ok(DataReply::Done {})
    }

    /// What was received is not wanted.
    pub(super) fn spare(&self, line: &Rc<Line>, chain: u16, stay: u32) -> Result<DataReply> {
        let dir = self.must_receive(line, chain, stay)?;
        self.receiving.borrow_mut().remove(&chain);
        self.remove_later(dir);
        Ok(DataReply::Done {})
    }

    /// A chain was moved away at this generation: it is forgotten, and its objects are removed. Nothing of one that has come back since.
    pub(super) async fn drop_chain(
        self: Rc<Self>,
        store: Name,
        chain: u16,
        generation: u32,
    ) -> Result<DataReply> {
        self.standing.must_be(&store)?;
        if self.standing.held().is_past(chain, generation) {
            return Ok(DataReply::Done {});
        }
        if self.chains.serves(chain) {
            return Err(Errno::because(Errno::EBUSY, format!("chain {chain} is served here")));
        }
        let stay = Rc::new(Cell::new(None));
        let dropped = stay.clone();
        self.change_identity(move |identity| {
            // It may have come back while this waited for its turn.
            if !identity.held.is_past(chain, generation) {
                dropped.set(identity.held.chains.remove(&chain));
                identity.held.left.insert(chain, generation);
            }
        })
        .await?;
        match stay.get() {
            Some(stay) => {
                self.close_other(chain, stay);
                self.remove_marked(chain, stay.number).await;
            }
            None => self.remove_own_if_left(),
        }
        Ok(DataReply::Done {})
    }

    /// If the own chain has left, or is back in a directory of its own, its first directories stay, empty.
    pub(super) fn remove_own_if_left(&self) {
        let Some(own) = self.own_chain() else { return };
        let has_left = self.standing.has_left(own) || self.standing.stay_of(own).is_some();
        if !has_left || !self.is_first_removal() {
            return;
        }
        self.forget_all();
        let (disk, dirs): (_, Vec<PathBuf>) =
            (self.disk.clone(), (0..self.fanout).map(|low| self.dir(low)).collect());
        task::spawn(async move {
            let removed =
                task::blocking(move || dirs.iter().try_for_each(|dir| empty(&*disk, dir)));
            if let Err(error) = removed.await {
                tracing::warn!("objects of a chain that has left are not all removed: {error}");
            }
        });
    }

    /// Says in a stay's directory that nothing there is of use: only then a start removes it, since an identity that is lost
    /// names no directory either.
    async fn mark_unused(&self, chain: u16, stay: u32) -> Result<()> {
        let (disk, dir) = (self.disk.clone(), dirs::of_stay(&self.identity_dir(), chain, stay));
        let mark = move || {
            disk.open(&dir.join(UNUSED), Open::Create)?;
            disk.sync_dir(&dir)
        };
        Ok(task::blocking(mark).await?)
    }

    /// What a chain has left in a stay goes, after a start as well; that the disk cannot take the mark does not keep it.
    async fn remove_marked(&self, chain: u16, stay: u32) {
        if let Err(error) = self.mark_unused(chain, stay).await {
            tracing::warn!("stay {stay} of chain {chain} is not marked as unused: {error}");
        }
        self.remove_later(dirs::of_stay(&self.identity_dir(), chain, stay));
    }

    fn remove_later(&self, dir: PathBuf) {
        let (disk, remains, removed) = (self.disk.clone(), self.remains.clone(), dir.clone());
        task::spawn(async move {
            if let Err(error) = task::blocking(move || remove_stay(&*disk, &removed)).await {
                // It is tried again, by the next start as well.
                tracing::warn!("{} is not all removed: {error}", dir.display());
                remains.borrow_mut().push(dir);
            }
        });
    }

    /// At a start: what was received and did not become a chain, and what has left and was not removed.
    pub(super) fn remove_remains(&self) -> io::Result<()> {
        for name in self.disk.list(&self.identity_dir())? {
            let Some((chain, stay)) = name.to_str().and_then(dirs::parse_stay) else { continue };
            let dir = self.identity_dir().join(name);
            let held: Vec<u32> = self.standing.numbers_of(chain).collect();
            if held.contains(&stay) {
                continue;
            }
            // An identity that knows where the chain is, here in a later stay or elsewhere, would name it.
            let is_over = held.iter().any(|held| *held > stay) || self.standing.has_left(chain);
            if is_over || self.disk.stat(&dir.join(UNUSED)).is_ok() {
                match remove_stay(&*self.disk, &dir) {
                    // Something that is not ours keeps nothing else from being served.
                    Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                        tracing::warn!("{} is not all removed: {error}", dir.display());
                    }
                    removed => removed?,
                }
            } else if self.standing.is_taken() {
                // Begun, and not yet marked. An identity that is new knows of none.
                remove_empty(&*self.disk, &dir)?;
            }
        }
        Ok(())
    }
}

fn put(disk: &dyn Disk, path: &Path, how: Put, offset: u64, data: &[u8]) -> io::Result<()> {
    let open = if how == Put::Begin { Open::Truncate } else { Open::Existing };
    let file = disk.open(path, open)?;
    match how {
        Put::Begin => Ok(()),
        Put::Go if file.write_all_blocking(offset, &[IoSlice::new(data)])? == data.len() => Ok(()),
        Put::Go => Err(io::ErrorKind::StorageFull.into()),
        Put::Empty => {
            let length = data.try_into().map_or(0, u64::from_le_bytes);
            let end = offset.saturating_add(length).min(file.stat()?.bytes);
            if offset >= end { Ok(()) } else { zero(&*file, offset, end) }
        }
        Put::End => {
            file.set_length(offset)?;
            file.sync_blocking(Flush::All)
        }
    }
}

/// A range reads as zeros, with space of its own only where the file system knows no other way.
fn zero(file: &dyn DiskFile, mut offset: u64, end: u64) -> io::Result<()> {
    match file.punch(offset, end - offset) {
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => {}
        punched => return punched,
    }
    let zeros = vec![0; 1 << 16];
    while offset < end {
        let piece = &zeros[..zeros.len().min((end - offset) as usize)];
        if file.write_all_blocking(offset, &[IoSlice::new(piece)])? != piece.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        offset += piece.len() as u64;
    }
    Ok(())
}

/// Removes a stay's directory with all that is in it, as far as it is there.
fn remove_stay(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    for low in dirs::lows(dir.to_owned()) {
        empty(disk, &low)?;
        disk.remove_dir(&low)?;
    }
    match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // What was put late has come in between.
        Ok(names) if names.iter().any(|name| name != UNUSED) => {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        names => _ = names?,
    }
    // Last: until then it says that the rest may go.
    remove_if_there(disk, &dir.join(UNUSED))?;
    disk.remove_dir(dir)
}

/// Removes a stay's directory if nothing is in it.
fn remove_empty(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    for low in dirs::lows(dir.to_owned()) {
        match disk.list(&low) {
            Ok(names) if names.is_empty() => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    dirs::lows(dir.to_owned()).try_for_each(|low| disk.remove_dir(&low))?;
    disk.remove_dir(dir)
}

fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// In a stay's directory: nothing there is of use.
const UNUSED: &str = "unused";

fn empty(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let names = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => names?,
    };
    names.iter().try_for_each(|name| remove_if_there(disk, &dir.join(name)))
}

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
