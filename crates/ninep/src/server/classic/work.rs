//! Requests of 9P2000 and .u that take several calls of the tree.

use super::Place;
use super::record;
use crate::message::{Dialect, Qid, Stat, dm};
use crate::server::attr::ENTRY_BYTES_MAX;
use crate::tree::{
    Attr, Entry, Errno, Make, O_CREAT, O_EXCL, Removal, Result, S_IFLNK, S_IFMT, SetAttr, Tree,
    User,
};
use covey_wire::{Bytes, Name};
use std::rc::Rc;

/// One file, as a fid holds it, and all that is needed to work on it.
pub(super) struct Work<T: Tree> {
    pub tree: Rc<T>,
    pub dialect: Dialect,
    pub user: Rc<User>,
    pub node: T::Node,
    pub place: Rc<Place<T::Node>>,
}

/// What Tcreate makes.
pub(super) enum New<N> {
    File { flags: u32 },
    Dir,
    Symlink { target: Name },
    Link { node: N },
    Special { mode: u32, major: u32, minor: u32 },
}

/// What Tcreate has made.
pub(in crate::server) struct Created<N> {
    pub qid: Qid,
    pub node: N,
    /// Whether it blocks, if it is open.
    pub open: Option<bool>,
}

impl<T: Tree> Work<T> {
    /// The file's record.
    pub async fn stat(self) -> Result<Box<Stat>> {
        let stat = self.stat_of(&self.node, self.place.name()).await?;
        if stat.fits(self.dialect) {
            Ok(Box::new(stat))
        } else {
            Err(Errno::because(Errno::EOVERFLOW, "the file's record is too long"))
        }
    }

    async fn stat_of(&self, node: &T::Node, name: Name) -> Result<Stat> {
        let attr = self.tree.getattr(&self.user, node).wait().await?;
        let target = match attr.mode & S_IFMT {
            S_IFLNK if self.dialect == Dialect::Unix => {
                Some(self.tree.readlink(&self.user, node).wait().await?)
            }
            _ => None,
        };
        Ok(record::stat(&*self.tree, self.dialect, name, &attr, target))
    }

    /// Changes what the record says, all of it or nothing: the name first, since it can be taken back.
    pub async fn wstat(self, asked: Stat, is_open: bool) -> Result<()> {
        let attr = self.tree.getattr(&self.user, &self.node).wait().await?;
        let set = record::changes(&*self.tree, self.dialect, &asked, &attr)?;
        let is_set = set != SetAttr::default();
        let old = self.place.name();
        let new = Some(asked.name).filter(|name| !name.is_empty() && *name != old);
        let Some(new) = new else {
            return match (is_set, is_open) {
                (true, _) => self.set(set).await,
                // Nothing is to change: the file is to reach stable storage (stat(5)).
                (false, true) => self.tree.fsync(&self.user, &self.node, false).wait().await,
                (false, false) => Ok(()),
            };
        };
        let dir = self.checked_dir(&attr).await?;
        // In .u rename(2) is meant, which replaces; stat(5) forbids it. With other changes it could not
        // be taken back.
        let may_replace = self.dialect == Dialect::Unix && !is_set;
        if !may_replace && self.find(&dir, &new).await?.is_some() {
            return Err(Errno::because(Errno::EEXIST, format!("there is a {new} already")));
        }
        self.rename(&dir, old.clone(), new.clone()).await?;
        if let Err(error) = self.set_if(is_set, set).await {
            // The error is told, whatever becomes of this.
            let _ = self.rename(&dir, new, old).await;
            return Err(error);
        }
        *self.place.name.borrow_mut() = new;
        Ok(())
    }

    async fn set_if(&self, is_set: bool, set: SetAttr) -> Result<()> {
        if is_set { self.set(set).await } else { Ok(()) }
    }

    async fn set(&self, set: SetAttr) -> Result<()> {
        self.tree.setattr(&self.user, &self.node, set).wait().await
    }

    async fn rename(&self, dir: &T::Node, old: Name, new: Name) -> Result<()> {
        self.tree.rename(&self.user, dir, old, dir, new).wait().await
    }

    /// Removes the file from where it was found.
    pub async fn remove(self) -> Result<()> {
        let attr = self.tree.getattr(&self.user, &self.node).wait().await?;
        let dir = self.checked_dir(&attr).await?;
        let what = Removal::of_mode(attr.mode);
        self.tree.unlink(&self.user, &dir, self.place.name(), what).wait().await
    }

    /// The directory in which the file still has its name: others may have renamed it, or put another
    /// one there.
    async fn checked_dir(&self, attr: &Attr) -> Result<T::Node> {
        let (dir, name) = (self.place.dir()?.node.clone(), self.place.name());
        match self.find(&dir, &name).await? {
            Some((qid, _)) if qid.path == attr.qid.path => Ok(dir),
            _ => Err(Errno::because(Errno::ENOENT, format!("{name} is another file by now"))),
        }
    }

    async fn find(&self, dir: &T::Node, name: &Name) -> Result<Option<(Qid, T::Node)>> {
        match self.tree.walk(&self.user, dir, std::slice::from_ref(name)).wait().await {
            Ok(mut steps) => Ok(steps.pop()),
            Err(error) if error.code == Errno::ENOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a file in this directory, and opens it if it is one that can be.
    pub async fn create(
        self,
        name: Name,
        perm: u32,
        new: New<T::Node>,
    ) -> Result<Created<T::Node>> {
        let dir = self.tree.getattr(&self.user, &self.node).wait().await?;
        let (mode, gid) = self.inherited(&dir, perm);
        let make = match new {
            New::File { flags } => return self.create_file(name, flags, mode, gid).await,
            New::Link { node } => {
                self.tree.link(&self.user, &node, &self.node, name.clone()).wait().await?;
                return self.made(&name).await;
            }
            New::Dir => Make::Dir { mode },
            New::Symlink { target } => Make::Symlink { target },
            New::Special { mode: kind, major, minor } => {
                Make::Special { mode: kind | mode, major, minor }
            }
        };
        let is_dir = matches!(make, Make::Dir { .. });
        self.tree.make(&self.user, &self.node, name.clone(), make, gid).wait().await?;
        let made = self.made(&name).await?;
        if !is_dir {
            return Ok(made);
        }
        let opened = self.tree.open(&self.user, &made.node, 0).wait().await?;
        Ok(Created { qid: opened.qid, node: opened.node, open: Some(opened.blocking) })
    }

    /// Mode and group of a new file: in 9P2000 a directory gives its group, and takes away the
    /// permissions that it does not have itself (open(5)).
    fn inherited(&self, dir: &Attr, perm: u32) -> (u32, u32) {
        const SETGID: u32 = 0o2000;
        let mode = record::permissions(perm);
        if self.dialect == Dialect::Unix {
            let gid = if dir.mode & SETGID != 0 { dir.gid } else { self.user.gid };
            return (mode, gid);
        }
        let mask = if perm & dm::DIR != 0 { 0o777 } else { 0o666 };
        (mode & (!mask | dir.mode & mask), dir.gid)
    }

    async fn create_file(
        &self,
        name: Name,
        flags: u32,
        mode: u32,
        gid: u32,
    ) -> Result<Created<T::Node>> {
        let flags = flags | O_CREAT | O_EXCL;
        let opened = self.tree.create(&self.user, &self.node, name, flags, mode, gid);
        let opened = opened.wait().await?;
        Ok(Created { qid: opened.qid, node: opened.node, open: Some(opened.blocking) })
    }

    async fn made(&self, name: &Name) -> Result<Created<T::Node>> {
        let found = self.find(&self.node, name).await?;
        let (qid, node) = found.ok_or(Errno::ENOENT)?;
        Ok(Created { qid, node, open: None })
    }

    /// As many records of this directory after `cookie` as fit, and the cookie of the last one.
    pub async fn list(self, cookie: u64, bytes_max: u32) -> Result<(Bytes, u64)> {
        let (mut data, mut at) = (Vec::new(), cookie);
        loop {
            let room = bytes_max.max(ENTRY_BYTES_MAX);
            let entries = self.tree.readdir(&self.user, &self.node, at, room).wait().await?;
            if entries.is_empty() {
                return Ok((data.into(), at));
            }
            for entry in entries {
                let next = entry.cookie;
                if let Some(stat) = self.entry(entry).await? {
                    let bytes = 2 + covey_wire::Field::size(&stat, self.dialect);
                    if data.len() + bytes > bytes_max as usize {
                        return if data.is_empty() {
                            Err(no_room(bytes_max))
                        } else {
                            Ok((data.into(), at))
                        };
                    }
                    stat.put_entry(self.dialect, &mut data);
                }
                at = next;
            }
            if !data.is_empty() {
                return Ok((data.into(), at));
            }
        }
    }

    /// The record of a directory entry, unless it is gone. Of what the user may not look at there is
    /// what the directory itself says.
    async fn entry(&self, entry: Entry) -> Result<Option<Stat>> {
        if matches!(entry.name.as_bytes(), b"." | b"..") {
            return Ok(None);
        }
        let found = match self.find(&self.node, &entry.name).await {
            Ok(None) => return Ok(None),
            Ok(Some((_, node))) => self.stat_of(&node, entry.name.clone()).await,
            Err(error) => Err(error),
        };
        let fitting = found.ok().filter(|stat| stat.fits(self.dialect));
        Ok(Some(fitting.unwrap_or_else(|| {
            let mode = u32::from(entry.kind) << 12;
            let attr = Attr { qid: entry.qid, mode, ..Attr::default() };
            record::stat(&*self.tree, self.dialect, entry.name, &attr, None)
        })))
    }
}

fn no_room(bytes_max: u32) -> Errno {
    Errno::because(Errno::EINVAL, format!("{bytes_max} bytes hold no directory entry"))
}
