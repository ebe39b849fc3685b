//! Names of one file stay names of one file, where `-r` and `-p` copy more than one of them.

use super::super::path::{Follow, is_kind, kind};
use super::local;
use super::meta::Meta;
use super::tree::{Copier, Job, Place};
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::{Errno, Removal};
use covey_stripe::ops::Id;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file that has several names: of this machine or of the file system.
type Key = (Option<(u64, u64)>, Option<Id>);

/// How far files are that have several names.
#[derive(Debug, Default)]
pub struct Links(HashMap<Key, Known>);

#[derive(Debug)]
enum Known {
    /// Its bytes are under way; these names come afterwards.
    UnderWay(Vec<Job>),
    /// They are here.
    Copied(Place),
}

impl Copier<'_> {
    /// Copies a file, or makes one more name of what has been copied of it. False: it has to wait for that, and comes again.
    pub(super) async fn file_or_link(&self, job: &Job, meta: &Meta) -> Result<bool> {
        let keeps = self.options.recursive && self.options.preserve;
        if !keeps || meta.nlink < 2 {
            return self.file(job, meta).await.map(|()| true);
        }
        let key = (meta.identity, meta.id);
        let copied = match self.links.borrow_mut().0.get_mut(&key) {
            Some(Known::UnderWay(waiting)) => {
                waiting.push(job.clone());
                return Ok(false);
            }
            Some(Known::Copied(place)) => Some(place.clone()),
            None => None,
        };
        if let Some(first) = copied {
            // Where it cannot have two names it is copied once more.
            if !self.link(job, &first).await? {
                self.file(job, meta).await?;
            }
            return Ok(true);
        }
        self.links.borrow_mut().0.insert(key, Known::UnderWay(Vec::new()));
        let copied = self.file(job, meta).await;
        let before = {
            let known = &mut self.links.borrow_mut().0;
            match &copied {
                Ok(()) => known.insert(key, Known::Copied(job.to.clone())),
                Err(_) => known.remove(&key),
            }
        };
        if let Some(Known::UnderWay(waiting)) = before {
            self.come_again(waiting);
        }
        copied.map(|()| true)
    }

    /// One more name of a file that was copied; false where that cannot be.
    async fn link(&self, job: &Job, first: &Place) -> Result<bool> {
        let what = || format!("make the name {} of {first}", job.to);
        let is_made = match (&job.to, first) {
            (Place::Local(path), Place::Local(first)) => {
                let (path, first) = (path.clone(), first.clone());
                let tag = self.options.beside.as_ref().map_or("", |beside| &beside.tag);
                let part = local::beside(&path, tag);
                local::blocking(move || link_local(&first, &part, &path)).await.cannot(what)?
            }
            (Place::Covey { path, dir, name }, Place::Covey { path: first, .. }) => {
                let (session, fs, who) = (self.session, &self.session.fs, &self.session.who);
                let id = session.resolve(first, Follow::NotLast).await.cannot(what)?.id;
                match fs.link(who, id, *dir, name).await {
                    Err(error) if error.code() == Errno::EEXIST => {
                        let there = session.resolve(path, Follow::NotLast).await.cannot(what)?;
                        if there.id == id {
                            return Ok(true);
                        }
                        if is_kind(&there, kind::DIR) {
                            return Err(Error::work(format!(
                                "cannot {}: a directory is there",
                                what()
                            ))
                            .hint("`covey rm -r` removes it"));
                        }
                        fs.unlink(who, *dir, name, Removal::File).await.cannot(what)?;
                        fs.link(who, id, *dir, name).await.cannot(what)?;
                        true
                    }
                    Err(error) if matches!(error.code(), Errno::EMLINK | Errno::EPERM) => false,
                    made => made.map(|_| true).cannot(what)?,
                }
            }
            _ => false,
        };
        if is_made {
            self.has_changed(&job.to);
            self.context.output.detail(format!("{} -> {}", job.from, job.to));
        }
        Ok(is_made)
    }
}

/// Takes the place of what has the name. `part`: a name beside, for a moment.
fn link_local(first: &Path, part: &Path, path: &Path) -> std::io::Result<bool> {
    let identity = |path: &Path| path.symlink_metadata().map(|meta| (meta.dev(), meta.ino()));
    if identity(path).is_ok_and(|there| identity(first).is_ok_and(|first| there == first)) {
        return Ok(true);
    }
    match std::fs::remove_file(part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Why it cannot be is of no interest: the file is copied instead.
    if std::fs::hard_link(first, part).is_err() {
        return Ok(false);
    }
    let renamed = std::fs::rename(part, path);
    if renamed.is_err() {
        let _ = std::fs::remove_file(part);
    }
    renamed.map(|()| true)
}
