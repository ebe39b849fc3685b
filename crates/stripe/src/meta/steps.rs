//! Names that a session has changed late in directories that it is alone with, many at once: see [`Op::Names`].
//!
//! Each step counts by itself: what is refused leaves nothing behind, and what comes after it is done. Of a file that may
//! have no other name a step takes none away that was meant to follow a link ([`step::DROP`]).
//!
//! [`Op::Names`]: crate::ops::Op::Names

use super::fault::{Fault, refuse};
use super::names::check_name;
use super::remove::TAKEN_MAX;
use super::{Applied, Store};
use crate::kv::Kv;
use crate::ops::{Id, Inode, Op, Reply, Request, step};
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};
use std::collections::BTreeSet;

impl<K: Kv> Store<K> {
    pub(super) fn change_names(
        &mut self,
        request: &Request,
        steps: &[u8],
        dirs: &[Id],
        (ids, names): (&[Id], &[Name]),
    ) -> Result<Applied, Fault> {
        let count = steps.len();
        if [dirs.len(), ids.len(), names.len()] != [count; 3] || count > TAKEN_MAX {
            let (dirs, files, names) = (dirs.len(), ids.len(), names.len());
            let text = format!(
                "{dirs} directories, {names} names, {files} files, {count} steps: limit {TAKEN_MAX}"
            );
            return refuse(Errno::EINVAL, text);
        }
        let mut codes = Vec::with_capacity(count);
        let places = dirs.iter().zip(names);
        for ((&step, &id), (&dir, name)) in steps.iter().zip(ids).zip(places) {
            // A damaged row is in the way of its own step only, if that has not written anything.
            let wrote = std::mem::take(&mut self.wrote);
            let changed = self.change_name(request, dir, (step, id), name);
            codes.push(match changed {
                Ok(()) => 0,
                Err(Fault::Refused(error)) => error.code,
                Err(Fault::Broken(error)) if !self.wrote && error.code != Errno::ENOSPC => {
                    error.code
                }
                Err(broken) => return Err(broken),
            });
            self.wrote |= wrote;
        }
        Ok(Applied::Reply(Reply::Steps { codes: List(codes), dirs: List(Vec::new()) }))
    }

    /// The directories in which a request has changed names late.
    pub fn changed_dirs(&self, op: &Op) -> Vec<Inode> {
        let Op::Names { dirs, .. } = op else { return Vec::new() };
        let dirs: BTreeSet<Id> = dirs.0.iter().copied().collect();
        dirs.into_iter().filter_map(|dir| Some(self.dir(dir).ok()?.inode)).collect()
    }

    fn change_name(
        &mut self,
        request: &Request,
        dir: Id,
        (step, id): (u8, Id),
        name: &Name,
    ) -> Result<(), Fault> {
        match step {
            step::LINK => {
                // The log is gone through again where quotas are not judged, and nobody is about to be dropped: there every
                // step must end as it did, as refused ones are in it.
                if self.quotas.is_some() {
                    return refuse(Errno::EDQUOT, "quotas are counted: links are made at once");
                }
                if self.stored(id)?.inode.nlink == 0 {
                    return refuse(Errno::ENOENT, format!("file {id} has no name any more"));
                }
                self.link(request, id, dir, name).map(|_| ())
            }
            step::UNLINK | step::DROP => {
                check_name(name)?;
                self.dir_to_search(dir, &request.caller)?;
                let (named, file) = self.existing(dir, name)?;
                // Whatever has come by that name since is another's.
                if named.id != id {
                    return refuse(Errno::ENOENT, format!("{name} leads to another file"));
                }
                if step == step::DROP && file.inode.nlink < 2 {
                    return refuse(Errno::EBUSY, format!("{name} is the only name of file {id}"));
                }
                self.unlink(request, dir, name, false).map(|_| ())
            }
            _ => refuse(Errno::EINVAL, format!("there is no step {step}")),
        }
    }
}
