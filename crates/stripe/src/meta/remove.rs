//! The end of names and of files.
//!
//! ```text
//!   Unlink (last name) ──► orphan ──► nobody has it open: Op::Drop ──► reclaim ──► Op::Reclaimed
//!                          inode stays                    inode goes    objects go
//! ```
//!
//! Each arrow is logged. Only the decision in the middle looks at opens, which the log does not
//! know; so it is the server's own operation, asked for as [`Work::Apply`](super::Work).

use super::fault::{Fault, refuse};
use super::keys::{self, CutRow, Stored, mark};
use super::names::{check_name, must_be_alive, touched};
use super::permission::{access, check, check_sticky};
use super::{Applied, Store, Work, done, node};
use crate::kv::Kv;
use crate::ops::{Id, Nanos, Op, Reply, Request, Striping};
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};
use std::collections::HashSet;

/// Files that a session takes, or removes, at once.
pub const TAKEN_MAX: usize = 256;

/// Objects that must be removed: see [`Work::Remove`](super::Work).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaim {
    /// The file that was.
    pub id: Id,
    /// Objects of a later epoch stay.
    pub epoch: u32,
    /// Where they are.
    pub striping: Striping,
}

/// Objects that must be cut: see [`Work::Cut`](super::Work).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCut {
    /// The file.
    pub id: Id,
    /// The epoch that the cut made.
    pub epoch: u32,
    /// Bytes of the whole file that stay.
    pub size: u64,
    /// Where the objects are.
    pub striping: Striping,
}

impl<K: Kv> Store<K> {
    /// Removals not yet reported done, after `(id, epoch)` in order ((0, 0) for the first).
    pub fn pending_reclaims(
        &self,
        after: (Id, u32),
        count_max: usize,
    ) -> Result<Vec<Reclaim>, Errno> {
        let mut from = keys::reclaim(after.0, after.1);
        from.push(0);
        let rows = self.rows::<Striping>(b"r", &from, count_max).map_err(Fault::into_errno)?;
        let reclaim = |(rest, striping): (Vec<u8>, Striping)| {
            let (id, epoch) = keys::epoch_of(&rest).map_err(Fault::into_errno)?;
            Ok(Reclaim { id, epoch, striping })
        };
        rows.into_iter().map(reclaim).collect()
    }

    /// Cuts not yet reported done, after `(id, epoch)` in order ((0, 0) for the first). A file may
    /// have several; data servers must see them in this order.
    pub fn pending_cuts(
        &self,
        after: (Id, u32),
        count_max: usize,
    ) -> Result<Vec<PendingCut>, Errno> {
        let mut from = keys::cut(after.0, after.1);
        from.push(0);
        let rows = self.rows::<CutRow>(b"t", &from, count_max).map_err(Fault::into_errno)?;
        let cut = |(rest, row): (Vec<u8>, CutRow)| {
            let (id, epoch) = keys::epoch_of(&rest).map_err(Fault::into_errno)?;
            Ok(PendingCut { id, epoch, size: row.size, striping: row.striping })
        };
        rows.into_iter().map(cut).collect()
    }

    /// Asks, as work, for the end of every orphan that nobody has open. The server calls this once
    /// the grace after a start is over: by then all who live have said Hello.
    pub fn drop_orphans(&mut self) -> Result<(), Errno> {
        self.is_opens_grace = false;
        for id in self.orphans().map_err(Fault::into_errno)? {
            self.drop_if_unused(id).map_err(Fault::into_errno)?;
        }
        Ok(())
    }

    fn orphans(&self) -> Result<Vec<Id>, Fault> {
        let mut orphans = Vec::new();
        let mut visit = |key: &[u8], _: &[u8]| {
            let rest = key.strip_prefix(b"o");
            rest.is_some_and(|rest| {
                orphans.push(keys::number_of(rest));
                true
            })
        };
        self.kv.scan(b"o", &mut visit).map_err(Fault::Broken)?;
        orphans.into_iter().collect()
    }

    pub(super) fn unlink(
        &mut self,
        request: &Request,
        parent: Id,
        name: &Name,
        as_dir: bool,
    ) -> Result<Applied, Fault> {
        check_name(name)?;
        match (name.as_bytes(), as_dir) {
            (b".", true) => return refuse(Errno::EINVAL, ". cannot be removed"),
            (b"..", true) => return refuse(Errno::ENOTEMPTY, ".. is never empty"),
            (b"." | b"..", false) => return refuse(Errno::EISDIR, "it is a directory"),
            _ => {}
        }
        let caller = &request.caller;
        let mut dir = self.dir_to_search(parent, caller)?;
        let (named, mut victim) = self.existing(parent, name)?;
        check(caller, &dir.inode, access::WRITE)?;
        check_sticky(caller, &dir.inode, &victim.inode)?;
        check_removable(&victim, name, as_dir)?;

        self.remove_entry(&mut dir, name, &named, request.now)?;
        dir.inode.nlink -= u32::from(as_dir);
        self.save(&dir)?;
        self.lose_name(&mut victim, request.now)?;
        Ok(done())
    }

    /// Removes names of files that the session has removed before: each that leads to its file still, of the others it says which
    /// files were meant. All is checked before anything is written.
    pub(super) fn remove_all(
        &mut self,
        request: &Request,
        parent: Id,
        ids: &[Id],
        names: &[Name],
    ) -> Result<Applied, Fault> {
        if ids.len() != names.len() || names.len() > TAKEN_MAX {
            let (names, files) = (names.len(), ids.len());
            let text = format!("{names} names of {files} files, at most {TAKEN_MAX} at once");
            return refuse(Errno::EINVAL, text);
        }
        let caller = &request.caller;
        let mut dir = self.dir_to_search(parent, caller)?;
        check(caller, &dir.inode, access::WRITE)?;
        let (mut found, mut skipped) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for (id, name) in ids.iter().zip(names) {
            check_name(name)?;
            // Whatever has come by that name since is another's.
            let named =
                self.named(parent, name)?.filter(|named| named.id == *id && !named.is_dir());
            match named {
                Some(named) if seen.insert(name) => {
                    check_sticky(caller, &dir.inode, &self.entry_inode(&named)?.inode)?;
                    found.push((name, named));
                }
                _ => skipped.push(*id),
            }
        }
        for (name, named) in &found {
            self.remove_entry(&mut dir, name, named, request.now)?;
            // Two of the names may be of one file.
            self.lose_name(&mut self.stored(named.id)?, request.now)?;
        }
        if !found.is_empty() {
            self.save(&dir)?;
        }
        Ok(if skipped.is_empty() {
            done()
        } else {
            Applied::Reply(Reply::Ids { ids: List(skipped) })
        })
    }

    /// Before names are removed late: see [`Op::Take`].
    pub(super) fn take(&self, id: Id, ids: &[Id]) -> Result<Applied, Fault> {
        if ids.len() > TAKEN_MAX {
            let text = format!("{} files to be taken, at most {TAKEN_MAX} at once", ids.len());
            return refuse(Errno::EINVAL, text);
        }
        let dir = self.dir(id)?.inode;
        must_be_alive(&dir)?;
        Ok(node(dir))
    }

    /// A file lost a name (a directory: its only one).
    pub(super) fn lose_name(&mut self, victim: &mut Stored, now: Nanos) -> Result<(), Fault> {
        let id = victim.inode.id;
        victim.inode.nlink = if victim.inode.is_dir() { 0 } else { victim.inode.nlink - 1 };
        touched(&mut victim.inode, now);
        self.save(victim)?;
        if victim.inode.nlink == 0 {
            self.put_mark(&keys::orphan(id))?;
            self.drop_if_unused(id)?;
        }
        Ok(())
    }

    /// Asks for the end of an orphan that nobody has open. From then on nobody can open it. After a start not all is known
    /// to be open that is: [`Store::drop_orphans`] comes after that.
    pub(super) fn drop_if_unused(&mut self, id: Id) -> Result<(), Fault> {
        if self.replaying || self.is_opens_grace || self.is_open(id) || self.dropping.contains(&id)
        {
            return Ok(());
        }
        if self.is_orphan(id)? {
            self.dropping.insert(id);
            self.ask(Op::Drop { id });
        }
        Ok(())
    }

    fn is_orphan(&self, id: Id) -> Result<bool, Fault> {
        Ok(self.kv.get(&keys::orphan(id)).map_err(Fault::Broken)?.is_some())
    }

    /// The logged end of an orphan: the inode goes, a regular file's objects are to be removed.
    ///
    /// Even an empty file may have objects, of a writer that died before it reported a size. Where
    /// all of a file may lie with its inode, a writer has said before that it goes beyond.
    pub(super) fn drop_orphan(&mut self, id: Id) -> Result<Applied, Fault> {
        self.dropping.remove(&id);
        self.sessions.end_move(id);
        if !self.is_orphan(id)? {
            return Ok(done());
        }
        let stored = self.stored(id)?;
        let is_inline = self.is_inline(&stored);
        self.census_drops(&stored);
        self.owns_one_less(&stored);
        self.project_dir_is_gone(&stored)?;
        let (mut inode, marks) = (stored.inode, stored.marks);
        self.delete(&keys::orphan(id))?;
        self.delete(&keys::inode(id))?;
        self.counters.files -= 1;
        self.forget_appends(id)?;
        self.forget_locks(id);
        // A cut is asked for in an epoch that it makes.
        if inode.epoch > 0 {
            self.forget_cuts(id)?;
        }
        if inode.has_xattrs {
            self.forget_xattrs(id)?;
        }
        self.cut_inline(&mut inode, 0)?;
        if marks & mark::MOVED != 0 {
            self.work.push(Work::Sweep { id, epoch: inode.epoch });
        }
        if let Some(striping) = inode.striping {
            self.counters.bytes = self.counters.bytes.wrapping_sub(inode.size);
            if !is_inline {
                self.reclaim(id, inode.epoch, striping)?;
            }
        }
        Ok(done())
    }

    /// Objects up to this epoch are to be removed.
    pub(super) fn reclaim(&mut self, id: Id, epoch: u32, striping: Striping) -> Result<(), Fault> {
        self.put_row(&keys::reclaim(id, epoch), &striping)?;
        self.work.push(Work::Remove { id, epoch, striping });
        Ok(())
    }

    /// Objects were removed, or cut, everywhere.
    pub(super) fn reclaimed(&mut self, id: Id, epoch: u32) -> Result<Applied, Fault> {
        self.delete(&keys::reclaim(id, epoch))?;
        self.delete(&keys::cut(id, epoch))?;
        Ok(done())
    }

    /// Objects were cut everywhere.
    pub(super) fn cut_done(&mut self, id: Id, epoch: u32) -> Result<Applied, Fault> {
        self.delete(&keys::cut(id, epoch))?;
        Ok(done())
    }

    pub(super) fn is_cut_pending(&self, id: Id, epoch: u32) -> Result<bool, Fault> {
        Ok(self.row::<CutRow>(&keys::cut(id, epoch))?.is_some())
    }

    /// Cuts of objects that are to be removed anyway.
    pub(super) fn forget_cuts(&mut self, id: Id) -> Result<(), Fault> {
        let prefix = keys::numbered(b't', id);
        for (rest, _) in self.rows::<CutRow>(&prefix, &prefix, usize::MAX)? {
            let key = [&prefix[..], &rest[..]].concat();
            self.delete(&key)?;
        }
        Ok(())
    }
}

/// Refuses to remove a directory as a file, a file as a directory, or what is in use.
fn check_removable(victim: &Stored, name: &Name, as_dir: bool) -> Result<(), Fault> {
    match (victim.inode.is_dir(), as_dir) {
        (true, false) => refuse(Errno::EISDIR, format!("{name} is a directory")),
        (false, true) => refuse(Errno::ENOTDIR, format!("{name} is not a directory")),
        (true, true) => check_empty(victim),
        (false, false) => Ok(()),
    }
}

pub(super) fn check_empty(dir: &Stored) -> Result<(), Fault> {
    match dir.inode.size {
        0 => Ok(()),
        _ => refuse(Errno::ENOTEMPTY, format!("directory {} has entries", dir.inode.id)),
    }
}
