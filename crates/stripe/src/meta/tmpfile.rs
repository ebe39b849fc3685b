//! Files that are made without a name, as O_TMPFILE does.
//!
//! Such a file is an orphan from the start, opened in its maker's session; Link may name it, which
//! an unlinked file's Link may not. Without a name it ends as every orphan does.

use super::create::New;
use super::fault::{Fault, refuse};
use super::keys::{self, NAMEABLE, Stored};
use super::names::may_enter;
use super::owned::Owner;
use super::permission::mode;
use super::{Applied, Store};
use crate::kv::Kv;
use crate::ops::{Op, Reply, Request};
use covey_ninep::tree::Errno;
use covey_wire::Name;

impl<K: Kv> Store<K> {
    pub(super) fn tmpfile(&mut self, request: &Request) -> Result<Applied, Fault> {
        let &Op::Tmpfile { parent, mode: bits, gid, .. } = &request.op else {
            return refuse(Errno::EINVAL, "not a creation");
        };
        self.must_be_live(request.session)?;
        let caller = &request.caller;
        let dir = self.dir_to_search(parent, caller)?;
        may_enter(caller, &dir.inode)?;
        self.must_be_laid_out(dir.inode.hint.as_ref())?;
        let bits = mode::REGULAR | bits & mode::PERMISSIONS;
        let new = New { mode: bits, gid, rdev: 0, target: &Name::EMPTY };
        let gid = new.group(caller, &dir.inode)?;
        let owner = Owner { uid: caller.uid, gid, project: dir.project.0 };
        self.must_have_room(request, owner, (1, 0))?;
        let mut made = self.made(request, &new, &dir, gid);
        made.inode.nlink = 0;
        self.counters.id_next += 1;
        self.counters.files += 1;
        self.owns_one_more(&made);
        self.kv.put(&keys::orphan(made.inode.id), NAMEABLE).map_err(Fault::Broken)?;
        self.save(&made)?;
        self.add_open(request.session, made.inode.id);
        Ok(Applied::Reply(Reply::Created { inode: made.inode, created: true }))
    }

    /// A file without a name gets its first one. The caller saves it.
    pub(super) fn name_orphan(&mut self, file: &mut Stored) -> Result<(), Fault> {
        let id = file.inode.id;
        let key = keys::orphan(id);
        let row = self.kv.get(&key).map_err(Fault::Broken)?;
        if row.as_deref() != Some(NAMEABLE) || self.dropping.contains(&id) {
            return refuse(Errno::ENOENT, format!("file {id} was unlinked"));
        }
        self.delete(&key)?;
        file.inode.nlink = 1;
        Ok(())
    }
}
