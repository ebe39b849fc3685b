//! Files that move to other I/O servers.
//!
//! ```text
//!   BeginMove: nobody has it open; epoch E+1 on all its servers ──► read, and staged on the new ones
//!     ──► Move: nobody has opened it since; new striping, epoch E+2 ──► installed there, emptied where it lay
//! ```
//!
//! From the Move on the old objects are too old for everybody, and the new ones are not there before they are installed:
//! until then whoever asks waits, as for a cut, in whose row that is pending. What the file has left is emptied at a later
//! epoch and not removed, as long as the file lives: a client that was cut off must read no zeros there, and write nothing.

use super::attr::{must_be_regular, must_own};
use super::fault::{Fault, refuse};
use super::keys::{self, CutRow, Stored, mark};
use super::{Applied, Store, Work, node};
use crate::distribution;
use crate::kv::Kv;
use crate::objects::{LEFT, is_left};
use crate::ops::{Id, ROOT, Reply, Request, Striping};
use covey_ninep::tree::Errno;
use covey_wire::List;
use std::collections::BTreeSet;

/// Set in the size of a cut that is none: the objects are those that were staged, of a file of that size.
pub(super) const INSTALLED: u64 = 1 << 63;

/// The size of the file whose staged objects a cut to this size installs; None for a cut.
pub fn installed(size: u64) -> Option<u64> {
    (size & INSTALLED != 0).then_some(size & !INSTALLED)
}

impl<K: Kv> Store<K> {
    /// Somebody is about to read the file where it lies and to stage it elsewhere: from here on nobody writes what was known
    /// before, since the epoch is raised everywhere before this is answered, and whoever opens the file is heard of. Until
    /// then, or until another one begins, the epoch is the mover's own.
    pub(super) fn begin_move(&mut self, request: &Request, id: Id) -> Result<Applied, Fault> {
        let mut stored = self.to_move(request, id)?;
        if self.is_inline(&stored) {
            self.begins_to_move(request, id, stored.inode.epoch);
            return Ok(node(stored.inode));
        }
        let end = stored.inode.size;
        let epoch = self.cut_objects(&mut stored, end)?;
        self.save(&stored)?;
        self.begins_to_move(request, id, epoch);
        Ok(Applied::AfterCut { id, epoch, reply: Reply::Node { inode: stored.inode } })
    }

    pub(super) fn move_file(
        &mut self,
        request: &Request,
        id: Id,
        (epoch, version): (u32, u64),
        servers: &[u16],
    ) -> Result<Applied, Fault> {
        let mut stored = self.to_move(request, id)?;
        let inode = &stored.inode;
        let is_begun = self.replaying || self.sessions.is_moving(id) == Some(epoch);
        if !is_begun || (inode.epoch, inode.version) != (epoch, version) {
            if is_begun {
                self.sessions.end_move(id);
            }
            return refuse(Errno::ESTALE, format!("file {id} was used since its move began"));
        }
        let old = inode.striping.clone().expect("it was looked at");
        let striping = Striping { servers: List(servers.to_vec()), ..old.clone() };
        self.check_servers(&striping)?;

        let (size, is_inline) = (inode.size, self.is_inline(&stored));
        stored.inode.striping = Some(striping.clone());
        stored.marks |= mark::MOVED;
        stored.inode.epoch += 1;
        stored.inode.version += 1;
        let epoch = stored.inode.epoch;
        if is_inline {
            self.ask_for_cut(&stored, size)?;
        } else {
            let size = size | INSTALLED;
            let row = CutRow { size, striping: striping.clone() };
            self.put_row(&keys::cut(id, epoch), &row)?;
            self.work.push(Work::Cut { id, epoch, size, striping });
            let left = old.servers.0.iter().filter(|server| !servers.contains(server));
            let left: Vec<u16> = left.copied().collect();
            if !left.is_empty() {
                self.reclaim(id, LEFT | (epoch - 1), Striping { servers: List(left), ..old })?;
            }
        }
        self.save(&stored)?;
        self.sessions.end_move(id);
        Ok(Applied::AfterCut { id, epoch, reply: Reply::Node { inode: stored.inode } })
    }

    /// What the log says of a move that began before a start is not known to be true still.
    fn begins_to_move(&mut self, request: &Request, id: Id, epoch: u32) {
        if !self.replaying {
            self.sessions.begin_move(id, epoch, request.session);
        }
    }

    /// A file that can move now.
    fn to_move(&self, request: &Request, id: Id) -> Result<Stored, Fault> {
        must_own(&request.caller, &self.stored(ROOT)?.inode)?;
        let stored = self.stored(id)?;
        must_be_regular(&stored.inode)?;
        if stored.inode.striping.is_none() {
            return refuse(Errno::EINVAL, format!("file {id} is on no I/O server"));
        }
        let is_open = !self.replaying && self.is_open(id);
        let is_appended = stored.tail > stored.inode.size || !self.reserved(id)?.is_empty();
        if is_open || is_appended || self.has_cut_pending(id)? || stored.inode.nlink == 0 {
            return refuse(Errno::EBUSY, format!("file {id} is in use"));
        }
        if is_left(stored.inode.epoch.saturating_add(2)) {
            return refuse(Errno::EOVERFLOW, format!("file {id} was cut too often"));
        }
        Ok(stored)
    }

    /// Whether a file is being moved: then nobody is to open it without a word.
    pub fn is_moving(&self, id: Id) -> bool {
        self.sessions.is_moving(id).is_some()
    }

    fn check_servers(&self, striping: &Striping) -> Result<(), Fault> {
        let servers = &striping.servers.0;
        let different: BTreeSet<u16> = servers.iter().copied().collect();
        let take_files = different
            .iter()
            .all(|&chain| usize::from(chain) < self.chains().len() && self.takes_files(chain));
        if !take_files || different.len() != servers.len() || distribution::of(striping).is_err() {
            return refuse(Errno::EINVAL, "no file is laid out on these I/O servers");
        }
        Ok(())
    }

    fn has_cut_pending(&self, id: Id) -> Result<bool, Fault> {
        let prefix = keys::numbered(b't', id);
        Ok(!self.rows::<CutRow>(&prefix, &prefix, 1)?.is_empty())
    }
}
