//! Rename, with all its cases: over something, across directories, exchange.

use super::fault::{Fault, refuse};
use super::keys::{Named, Stored};
use super::names::{changed, check_name, is_dots, must_be_alive, touched};
use super::permission::{access, check, check_sticky};
use super::remove::check_empty;
use super::{Applied, Store, done};
use crate::kv::Kv;
use crate::ops::{Caller, Id, Inode, Nanos, Op, ROOT, Request, rename};
use covey_ninep::tree::Errno;
use covey_wire::Name;

/// No tree is deeper: parents that do not end here are damage.
const DEPTH_MAX: usize = 1 << 20;

/// Both directories of a rename, which may be one.
struct Dirs {
    from: Stored,
    /// None when it is the same.
    to: Option<Stored>,
}

/// One end of a rename: what is, or shall be, there.
struct End<'a> {
    name: &'a Name,
    named: Named,
    stored: Stored,
}

impl Dirs {
    fn to(&mut self) -> &mut Stored {
        self.to.as_mut().unwrap_or(&mut self.from)
    }

    fn to_inode(&self) -> &Inode {
        &self.to.as_ref().unwrap_or(&self.from).inode
    }
}

impl<K: Kv> Store<K> {
    pub(super) fn rename(&mut self, request: &Request) -> Result<Applied, Fault> {
        let Op::Rename { parent, name, to, to_name, flags } = &request.op else {
            return refuse(Errno::EINVAL, "not a rename");
        };
        let (caller, now) = (&request.caller, request.now);
        check_words(name, to_name, *flags)?;
        let from = self.dir_to_search(*parent, caller)?;
        let other = *parent != *to;
        let to_dir = if other { Some(self.dir_to_search(*to, caller)?) } else { None };
        let dirs = Dirs { from, to: to_dir };
        let (named, stored) = self.existing(*parent, name)?;
        let moved = End { name, named, stored };
        let target = match self.named(*to, to_name)? {
            Some(named) => {
                let stored = self.entry_inode(&named)?;
                Some(End { name: to_name, named, stored })
            }
            None => None,
        };
        match (target, *flags) {
            (Some(_), rename::NOREPLACE) => {
                refuse(Errno::EEXIST, format!("{to_name} exists in directory {to}"))
            }
            (None, rename::EXCHANGE) => {
                refuse(Errno::ENOENT, format!("no {to_name} in directory {to}"))
            }
            (Some(target), _) if target.named.id == moved.named.id => Ok(done()),
            (Some(target), rename::EXCHANGE) => self.exchange(caller, dirs, moved, target, now),
            (target, _) => self.move_to(caller, dirs, moved, (to_name, target), now),
        }
    }

    fn move_to(
        &mut self,
        caller: &Caller,
        mut dirs: Dirs,
        mut moved: End<'_>,
        (to_name, target): (&Name, Option<End<'_>>),
        now: Nanos,
    ) -> Result<Applied, Fault> {
        // First, as the parents of a removed directory are those it had: they may be gone, or lead to what moves.
        must_be_alive(dirs.to_inode())?;
        self.check_not_into_itself(&dirs, &moved)?;
        check_leaves(caller, &dirs, &dirs.from.inode, &moved.stored.inode)?;
        check(caller, dirs.to_inode(), access::WRITE)?;
        if let Some(to) = &dirs.to {
            self.must_stay(Some(&dirs.from), to, &moved.stored)?;
        }
        if let Some(target) = &target {
            check_sticky(caller, dirs.to_inode(), &target.stored.inode)?;
            check_replaces(&moved.stored, &target.stored)?;
        }

        let is_dir = moved.stored.inode.is_dir();
        self.remove_entry(&mut dirs.from, moved.name, &moved.named, now)?;
        dirs.from.inode.nlink -= u32::from(is_dir);
        dirs.to().inode.nlink += u32::from(is_dir);
        if is_dir {
            moved.stored.inode.parent = dirs.to().inode.id;
        }
        touched(&mut moved.stored.inode, now);
        match target {
            None => self.add_entry(dirs.to(), to_name, &moved.stored.inode, now)?,
            Some(mut target) => {
                // The name was there all the time: it keeps its place in listings.
                let dir = dirs.to();
                changed(&mut dir.inode, now);
                dir.inode.nlink -= u32::from(target.stored.inode.is_dir());
                let (dir, cookie) = (dir.inode.id, target.named.cookie);
                self.put_entry(dir, to_name, &moved.stored.inode, cookie)?;
                self.lose_name(&mut target.stored, now)?;
            }
        }
        self.save(&moved.stored)?;
        self.save_dirs(&dirs)?;
        Ok(done())
    }

    fn exchange<'a>(
        &mut self,
        caller: &Caller,
        mut dirs: Dirs,
        mut one: End<'a>,
        mut two: End<'a>,
        now: Nanos,
    ) -> Result<Applied, Fault> {
        self.check_not_into_itself(&dirs, &one)?;
        if two.stored.inode.is_dir() && self.is_within(dirs.from.inode.id, two.named.id)? {
            return refuse(Errno::EINVAL, "a directory cannot move into itself");
        }
        check_leaves(caller, &dirs, &dirs.from.inode, &one.stored.inode)?;
        check_leaves(caller, &dirs, dirs.to_inode(), &two.stored.inode)?;
        if let Some(to) = &dirs.to {
            self.must_stay(Some(&dirs.from), to, &one.stored)?;
            self.must_stay(Some(to), &dirs.from, &two.stored)?;
        }

        let (from, to) = (dirs.from.inode.id, dirs.to().inode.id);
        self.put_entry(from, one.name, &two.stored.inode, one.named.cookie)?;
        self.put_entry(to, two.name, &one.stored.inode, two.named.cookie)?;
        let (one_is_dir, two_is_dir) = (one.stored.inode.is_dir(), two.stored.inode.is_dir());
        let from_links = &mut dirs.from.inode.nlink;
        *from_links = *from_links + u32::from(two_is_dir) - u32::from(one_is_dir);
        let to_links = &mut dirs.to().inode.nlink;
        *to_links = *to_links + u32::from(one_is_dir) - u32::from(two_is_dir);
        for (end, parent) in [(&mut one, to), (&mut two, from)] {
            if end.stored.inode.is_dir() {
                end.stored.inode.parent = parent;
            }
            touched(&mut end.stored.inode, now);
            self.save(&end.stored)?;
        }
        changed(&mut dirs.from.inode, now);
        if let Some(to) = &mut dirs.to {
            changed(&mut to.inode, now);
        }
        self.save_dirs(&dirs)?;
        Ok(done())
    }

    fn save_dirs(&mut self, dirs: &Dirs) -> Result<(), Fault> {
        self.save(&dirs.from)?;
        dirs.to.as_ref().map_or(Ok(()), |to| self.save(to))
    }

    fn check_not_into_itself(&self, dirs: &Dirs, moved: &End<'_>) -> Result<(), Fault> {
        let moves = dirs.to.is_some() && moved.stored.inode.is_dir();
        if moves && self.is_within(dirs.to_inode().id, moved.named.id)? {
            return refuse(Errno::EINVAL, "a directory cannot move into itself");
        }
        Ok(())
    }

    /// Whether `id` is `ancestor` or below it.
    pub(super) fn is_within(&self, id: Id, ancestor: Id) -> Result<bool, Fault> {
        let mut here = id;
        for _ in 0..DEPTH_MAX {
            match here {
                _ if here == ancestor => return Ok(true),
                ROOT => return Ok(false),
                _ => here = self.stored(here)?.inode.parent,
            }
        }
        Err(Fault::Broken(Errno::because(Errno::EIO, format!("parents of {id} do not end"))))
    }
}

fn check_words(name: &Name, to_name: &Name, flags: u32) -> Result<(), Fault> {
    if !matches!(flags, 0 | rename::NOREPLACE | rename::EXCHANGE) {
        return refuse(Errno::EINVAL, format!("rename flags {flags:#x} are not supported"));
    }
    check_name(name)?;
    check_name(to_name)?;
    if is_dots(name) || is_dots(to_name) {
        return refuse(Errno::EBUSY, ". and .. cannot be renamed");
    }
    Ok(())
}

/// Refuses to take `inode` out of `dir`.
fn check_leaves(caller: &Caller, dirs: &Dirs, dir: &Inode, inode: &Inode) -> Result<(), Fault> {
    check(caller, dir, access::WRITE)?;
    check_sticky(caller, dir, inode)?;
    if dirs.to.is_some() && inode.is_dir() {
        // Its `..` changes.
        check(caller, inode, access::WRITE)?;
    }
    Ok(())
}

fn check_replaces(moved: &Stored, target: &Stored) -> Result<(), Fault> {
    match (moved.inode.is_dir(), target.inode.is_dir()) {
        (true, false) => refuse(Errno::ENOTDIR, "a directory cannot replace a file"),
        (false, true) => refuse(Errno::EISDIR, "a file cannot replace a directory"),
        (true, true) => check_empty(target),
        (false, false) => Ok(()),
    }
}
