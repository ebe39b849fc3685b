//! Directories: names, cookies, and what an entry's coming and going does to its directory.
//!
//! Each entry stands twice: by name, for walks, and by cookie, for listings. Cookies of a directory
//! ascend and are never used again, so a listing that goes on after a cookie misses nothing that
//! stayed and never sees an entry twice.

use super::Store;
use super::fault::{Fault, refuse};
use super::keys::{self, Listed, Named, Stored};
use super::permission::{access, check};
use crate::kv::Kv;
use crate::ops::{Caller, Id, Inode, Nanos};
use covey_ninep::tree::Errno;
use covey_wire::Name;

/// The longest name.
pub const NAME_BYTES_MAX: usize = 255;

/// A directory's size counts this much for each entry.
pub const ENTRY_BYTES: u64 = 32;

/// The first cookie of a real entry: 1 is `.` and 2 is `..`.
pub(super) const COOKIE_FIRST: u64 = 3;

impl<K: Kv> Store<K> {
    /// The inode of a file that was named by number: ESTALE when it is gone.
    pub(super) fn stored(&self, id: Id) -> Result<Stored, Fault> {
        match self.row(&keys::inode(id))? {
            Some(stored) => Ok(stored),
            None => refuse(Errno::ESTALE, format!("file {id} is gone")),
        }
    }

    pub(super) fn save(&mut self, stored: &Stored) -> Result<(), Fault> {
        self.census_saves(stored)?;
        self.put_row(&keys::inode(stored.inode.id), stored)
    }

    /// A directory that was named by number.
    pub(super) fn dir(&self, id: Id) -> Result<Stored, Fault> {
        let stored = self.stored(id)?;
        must_be_dir(&stored.inode)?;
        Ok(stored)
    }

    /// A directory in which the caller may look names up.
    pub(super) fn dir_to_search(&self, id: Id, caller: &Caller) -> Result<Stored, Fault> {
        let dir = self.dir(id)?;
        check(caller, &dir.inode, access::EXECUTE)?;
        Ok(dir)
    }

    /// Where a name leads.
    pub(super) fn named(&self, parent: Id, name: &Name) -> Result<Option<Named>, Fault> {
        self.row(&keys::name(parent, name.as_bytes()))
    }

    /// Where a name leads that must be there, and the inode.
    pub(super) fn existing(&self, parent: Id, name: &Name) -> Result<(Named, Stored), Fault> {
        match self.named(parent, name)? {
            Some(named) => Ok((named.clone(), self.entry_inode(&named)?)),
            None => refuse(Errno::ENOENT, format!("no {name} in directory {parent}")),
        }
    }

    /// The inode of an entry. An entry without one is damage; it is asked for before anything is
    /// written, so only this operation fails.
    pub(super) fn entry_inode(&self, named: &Named) -> Result<Stored, Fault> {
        let text =
            || format!("the name leads to file {}, which is gone; hint: covey fsck", named.id);
        let missing = || Fault::Refused(Errno::because(Errno::EIO, text()));
        self.row(&keys::inode(named.id))?.ok_or_else(missing)
    }

    /// Adds an entry. The caller saves the directory.
    pub(super) fn add_entry(
        &mut self,
        dir: &mut Stored,
        name: &Name,
        inode: &Inode,
        now: Nanos,
    ) -> Result<(), Fault> {
        let cookie = dir.cookie_next;
        dir.cookie_next += 1;
        dir.inode.size += ENTRY_BYTES;
        changed(&mut dir.inode, now);
        self.put_entry(dir.inode.id, name, inode, cookie)
    }

    /// Makes a name lead to `inode`, at a place in the listing.
    pub(super) fn put_entry(
        &mut self,
        dir: Id,
        name: &Name,
        inode: &Inode,
        cookie: u64,
    ) -> Result<(), Fault> {
        let (id, kind) = (inode.id, inode.kind());
        self.put_row(&keys::name(dir, name.as_bytes()), &Named { id, kind, cookie })?;
        self.put_row(&keys::cookie(dir, cookie), &Listed { id, kind, name: name.clone() })
    }

    /// Takes an entry away. The caller saves the directory.
    pub(super) fn remove_entry(
        &mut self,
        dir: &mut Stored,
        name: &Name,
        named: &Named,
        now: Nanos,
    ) -> Result<(), Fault> {
        dir.inode.size -= ENTRY_BYTES;
        changed(&mut dir.inode, now);
        self.delete(&keys::name(dir.inode.id, name.as_bytes()))?;
        self.delete(&keys::cookie(dir.inode.id, named.cookie))?;
        Ok(())
    }
}

/// Content and attributes of an inode changed.
pub(super) fn changed(inode: &mut Inode, now: Nanos) {
    inode.mtime = now;
    touched(inode, now);
}

/// Attributes of an inode changed.
pub(super) fn touched(inode: &mut Inode, now: Nanos) {
    inode.ctime = now;
    inode.version += 1;
}

pub(super) fn must_be_dir(inode: &Inode) -> Result<(), Fault> {
    if inode.is_dir() {
        Ok(())
    } else {
        refuse(Errno::ENOTDIR, format!("file {} is not a directory", inode.id))
    }
}

/// Refuses an entry where the caller may not put one, or nobody may any more.
pub(super) fn may_enter(caller: &Caller, dir: &Inode) -> Result<(), Fault> {
    must_be_alive(dir)?;
    check(caller, dir, access::WRITE)
}

/// Refuses to put an entry into a directory that was removed.
pub(super) fn must_be_alive(dir: &Inode) -> Result<(), Fault> {
    match dir.nlink {
        0 => refuse(Errno::ENOENT, format!("directory {} was removed", dir.id)),
        _ => Ok(()),
    }
}

/// Refuses what cannot be a name. `.` and `..` are names; see [`is_dots`].
pub(super) fn check_name(name: &Name) -> Result<(), Fault> {
    let bytes = name.as_bytes();
    if bytes.is_empty() {
        return refuse(Errno::EINVAL, "the name is empty");
    }
    if bytes.len() > NAME_BYTES_MAX {
        let length = bytes.len();
        let text = format!("the name has {length} bytes, limit is {NAME_BYTES_MAX}");
        return refuse(Errno::ENAMETOOLONG, text);
    }
    if bytes.contains(&b'/') || bytes.contains(&0) {
        return refuse(Errno::EINVAL, format!("the name {name:?} holds a slash or NUL"));
    }
    Ok(())
}

/// Whether this is `.` or `..`, which stand in every directory and belong to nobody.
pub fn is_dots(name: &Name) -> bool {
    matches!(name.as_bytes(), b"." | b"..")
}
