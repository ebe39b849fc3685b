//! Directories and symbolic links on both sides.

use super::super::path::{Follow, below, is_kind, kind, shown};
use super::attributes::{self, Attributes};
use super::beside::{local_mkdir, local_symlink, make_writable};
use super::local;
use super::meta::Meta;
use super::tree::{Copier, Job, Place, is_root};
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::{Errno, Removal, SetAttr};
use covey_stripe::ops::{Id, Inode};
use covey_wire::Name;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A directory of ours.
#[derive(Clone, Debug)]
pub enum Made {
    Local(PathBuf),
    Covey { path: Vec<u8>, id: Id },
}

impl Copier<'_> {
    pub(super) async fn symlink(&self, job: &Job, meta: &Meta) -> Result<()> {
        let what = || format!("make link {}", job.to);
        match &job.to {
            Place::Local(path) => {
                let (path, meta, preserve) = (path.clone(), meta.clone(), self.options.preserve);
                let tag = self.options.beside.as_ref().map(|beside| &beside.tag);
                let part = tag.map(|tag| local::beside(&path, tag));
                let make = move || {
                    let made = part.as_ref().unwrap_or(&path);
                    local_symlink(made, &meta.target)?;
                    if preserve {
                        meta.set_local_link(made, is_root())?;
                    }
                    part.as_ref().map_or(Ok(()), |part| std::fs::rename(part, &path))
                };
                local::blocking(make).await.cannot(what)?;
                self.has_changed(&job.to);
                Ok(())
            }
            Place::Covey { dir, name, .. } => {
                let (fs, who) = (&self.session.fs, &self.session.who);
                let mode = kind::SYMLINK | 0o777;
                let made = match fs.make(who, *dir, name, mode, 0, meta.target.clone()).await {
                    Err(error) if error.code() == Errno::EEXIST => {
                        fs.unlink(who, *dir, name, Removal::File).await.cannot(what)?;
                        fs.make(who, *dir, name, mode, 0, meta.target.clone()).await.cannot(what)?
                    }
                    other => other.cannot(what)?,
                };
                if self.options.preserve {
                    let set = SetAttr { mode: None, ..meta.set_attr(is_root()) };
                    fs.setattr(who, made.id, set).await.cannot(what)?;
                }
                Ok(())
            }
        }
    }

    pub(super) async fn directory(&self, job: Job, meta: Meta) -> Result<Vec<Job>> {
        let mode = if self.options.preserve {
            meta.permissions()
        } else {
            meta.permissions() & !self.options.umask & 0o1777
        };
        // Until everything is in it, it must be ours to write.
        let made = self.make_dir(&job.to, mode | 0o700).await?;
        if self.options.preserve || mode & 0o700 != 0o700 {
            let attributes = self.attributes(&job, &meta).await?;
            let meta = Meta { mode: kind::DIR | mode, ..meta };
            self.unfinished.borrow_mut().push((made.clone(), meta, attributes));
        }
        self.directories.set(self.directories.get() + 1);
        let inner = self.inner(&job).await?;
        // Jobs are taken from the end: the listing's own order is kept.
        let job = |(name, from, inode): (Vec<u8>, Place, Option<Inode>)| {
            let to = match &made {
                Made::Local(dir) => Place::Local(dir.join(OsStr::from_bytes(&name))),
                Made::Covey { path, id } => {
                    Place::Covey { path: below(path, &name), dir: *id, name: name.into() }
                }
            };
            Job { from, inode, follow: false, to }
        };
        Ok(inner.into_iter().rev().map(job).collect())
    }

    /// A directory's own, if they are to be kept.
    async fn attributes(&self, job: &Job, meta: &Meta) -> Result<Attributes> {
        match &job.from {
            _ if !self.options.preserve => Ok(Attributes::new()),
            Place::Local(dir) => {
                let opened = dir.clone();
                let found = move || attributes::of_local(&File::open(opened)?);
                let what = || format!("read the attributes of {}", dir.display());
                local::blocking(found).await.cannot(what)
            }
            from @ Place::Covey { .. } => {
                attributes::of_covey(self.session, meta, &from.to_string()).await
            }
        }
    }

    /// What a directory holds: name, place, inode.
    async fn inner(&self, job: &Job) -> Result<Vec<(Vec<u8>, Place, Option<Inode>)>> {
        match (&job.from, &job.inode) {
            (Place::Local(dir), _) => {
                let names = local::names(dir).await?.into_iter();
                Ok(names
                    .map(|name| (name.as_bytes().to_vec(), Place::Local(dir.join(&name)), None))
                    .collect())
            }
            (Place::Covey { path, .. }, inode) => {
                let id = match inode {
                    Some(inode) => inode.id,
                    None => self.session.find("list", path, Follow::Last).await?.id,
                };
                let entries =
                    self.session.entries(id).await.cannot(|| format!("list {}", job.from))?;
                let place = |(name, inode): (Name, Inode)| {
                    let from = Place::Covey {
                        path: below(path, name.as_bytes()),
                        dir: id,
                        name: name.clone(),
                    };
                    (name.as_bytes().to_vec(), from, Some(inode))
                };
                Ok(entries.into_iter().map(place).collect())
            }
        }
    }

    async fn make_dir(&self, to: &Place, mode: u32) -> Result<Made> {
        let what = || format!("make directory {to}");
        match to {
            Place::Local(path) => {
                let (dir, beside) = (path.clone(), self.options.beside.clone());
                let make = move || {
                    local_mkdir(&dir, mode)?;
                    let Some(beside) = beside else { return Ok(()) };
                    beside.check(&dir)?;
                    make_writable(&dir)
                };
                local::blocking(make).await.cannot(what)?;
                self.has_changed(to);
                Ok(Made::Local(path.clone()))
            }
            Place::Covey { path, dir, name } => {
                let (fs, who) = (&self.session.fs, &self.session.who);
                // `.` stands for a path that names no entry, such as the root: it is there.
                let made = match name.as_bytes() {
                    b"." => Err(Errno::EEXIST.into()),
                    _ => fs.make(who, *dir, name, kind::DIR | mode, 0, Name::from("")).await,
                };
                let id = match made {
                    Ok(inode) => inode.id,
                    Err(error) if error.code() == Errno::EEXIST => {
                        let there = self.session.resolve(path, Follow::Last).await.cannot(what)?;
                        if !is_kind(&there, kind::DIR) {
                            return Err(Error::errno(what(), Errno::EEXIST.into()));
                        }
                        there.id
                    }
                    Err(error) => return Err(error).cannot(what),
                };
                Ok(Made::Covey { path: path.clone(), id })
            }
        }
    }

    /// What a directory is given when everything is in it.
    pub(super) async fn finish_dir(
        &self,
        made: &Made,
        meta: &Meta,
        attributes: Attributes,
    ) -> Result<()> {
        let is_root = is_root();
        let preserve = self.options.preserve;
        match made {
            Made::Local(path) => {
                let (path, meta) = (path.clone(), meta.clone());
                local::blocking(move || {
                    let what = || format!("set the attributes of {}", path.display());
                    if !preserve {
                        let mode = PermissionsExt::from_mode(meta.permissions());
                        return std::fs::set_permissions(&path, mode).cannot(what);
                    }
                    let dir = File::open(&path).cannot(what)?;
                    attributes::set_local(&dir, &attributes, &path.display().to_string())?;
                    meta.set_local(&dir, is_root).cannot(what)
                })
                .await
            }
            Made::Covey { path, id } => {
                let shown = format!(":{}", shown(path));
                attributes::set_covey(self.session, *id, &attributes, &shown).await?;
                let only_mode = SetAttr { mode: Some(meta.permissions()), ..SetAttr::default() };
                let set = if preserve { meta.set_attr(is_root) } else { only_mode };
                let done = self.session.fs.setattr(&self.session.who, *id, set).await;
                done.map(|_| ()).cannot(|| format!("set the attributes of {shown}"))
            }
        }
    }
}
