//! What a session does in a directory that it is alone with: see [`crate::meta::lease`].
//!
//! It makes files without asking, and says so later, each with what it has done to it. For that it has numbers of files
//! beforehand ([`Op::Alone`]) and their layouts, so that what it tells its users of a file is so. What the directory
//! decides (who may make files in it, their group and mode) it knows under its lease. Quotas it does not know: where there are
//! any, files are made here.

use super::attr::{Asked, set_owner, set_times};
use super::create::{New, with_type};
use super::fault::{Fault, refuse};
use super::inline::{check_data, check_pieces};
use super::keys::{Stored, mark};
use super::names::{COOKIE_FIRST, changed, must_be_alive, touched};
use super::owned::Owner;
use super::permission::{mode, written_by};
use super::{Applied, Store};
use crate::distribution;
use crate::kv::Kv;
use crate::ops::{Id, Inode, Nanos, Op, Reply, Request, Striping, StripingHint, set};
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};
use std::time::Duration;

/// How long a client uses numbers: a server that leaves waits for longer before it looks who lies there.
pub const NUMBERS_KEPT: Duration = Duration::from_secs(2);

/// When nobody makes files by numbers from before any more.
pub const NUMBERS_OVER: Duration = Duration::from_secs(5);

/// Numbers that one answer gives at most, and I/O servers that their layouts name.
const NUMBERS_MAX: u16 = 64;
const NAMED_MAX: usize = 4096;

/// A file that was made no longer ago may lie on servers that are about to leave the cluster: they wait for it.
const FRESH: Nanos = NUMBERS_KEPT.as_nanos() as Nanos;

/// A file was made so long before it is said at most; one that was made earlier counts as made now.
const LATE_MAX: Nanos = 1_000_000_000;

/// What may be set with the file that is made.
const MASK: u32 = set::MODE | set::ATIME | set::MTIME | set::ATIME_NOW | set::MTIME_NOW;

impl<K: Kv> Store<K> {
    /// Numbers for files to be made in a directory: none where quotas are counted, and the first is 0 then; none where no file
    /// can be laid out as it says.
    pub(super) fn alone(
        &mut self,
        request: &Request,
        id: Id,
        count: u16,
    ) -> Result<Applied, Fault> {
        let dir = self.dir(id)?.inode;
        must_be_alive(&dir)?;
        Ok(self.numbers(dir, count.max(1), request.now))
    }

    /// Makes a directory, with numbers for files to be made in it. Without numbers it is one like any other.
    pub(super) fn make_dir(&mut self, request: &Request) -> Result<Applied, Fault> {
        let &Op::MakeDir { parent, ref name, mode: bits, gid, count } = &request.op else {
            return refuse(Errno::EINVAL, "no directory to be made");
        };
        if bits & mode::TYPE != mode::DIRECTORY {
            return refuse(Errno::EINVAL, format!("mode {bits:o} is that of no directory"));
        }
        let op = Op::Create {
            parent,
            name: name.clone(),
            mode: bits,
            gid,
            rdev: 0,
            target: Name::EMPTY,
            exclusive: true,
            open: false,
            access: 0,
        };
        match self.create(&Request { op, ..request.clone() })? {
            Applied::Reply(Reply::Created { inode, .. }) => {
                Ok(self.numbers(inode, count, request.now))
            }
            other => Ok(other),
        }
    }

    /// So many numbers at most.
    fn numbers(&mut self, dir: Inode, count: u16, now: Nanos) -> Applied {
        let with = |dir, first, stripings| {
            Applied::Reply(Reply::Alone { dir, first, stripings: List(stripings), now })
        };
        if self.quotas.is_some() {
            return with(dir, 0, Vec::new());
        }
        let first = self.counters.id_next;
        let hint = dir.hint.as_ref().filter(|hint| self.must_be_laid_out(Some(hint)).is_ok());
        let Some(hint) = hint.filter(|_| count > 0) else { return with(dir, first, Vec::new()) };
        let mut stripings = vec![self.striping_for(first, hint)];
        let most = (NAMED_MAX / stripings[0].servers.0.len().max(1)) as u64;
        let count = u64::from(count.min(NUMBERS_MAX)).min(most).max(1);
        stripings.extend((first + 1..first + count).map(|id| self.striping_for(id, hint)));
        self.counters.id_next += count;
        with(dir, first, stripings)
    }

    /// Makes a file that its session has made before. All is checked before anything is written.
    pub(super) fn make(&mut self, request: &Request) -> Result<Applied, Fault> {
        let &Op::Make {
            id,
            parent,
            ref name,
            mode: bits,
            gid,
            at,
            ref striping,
            end,
            hole,
            ref pieces,
            ref data,
            mask,
            set_mode,
            atime,
            mtime,
            ..
        } = &request.op
        else {
            return refuse(Errno::EINVAL, "no file to be made");
        };
        let (caller, now) = (&request.caller, request.now);
        let new = New { mode: with_type(bits)?, gid, rdev: 0, target: &Name::EMPTY };
        let (is_beyond, mask) = (mask & set::BEYOND != 0, mask & !set::BEYOND);
        if new.mode & mode::TYPE != mode::REGULAR || mask & !MASK != 0 {
            let text = format!("file {id} is no regular one, or more is set than mode and times");
            return refuse(Errno::EINVAL, text);
        }
        let dir = self.dir_for_new(caller, parent, name)?;
        if id == 0 || id >= self.counters.id_next || self.exists(id)? {
            return refuse(Errno::EINVAL, format!("number {id} was not given for a new file"));
        }
        let is_fresh = now.saturating_sub(at) <= FRESH;
        if !self.replaying && !self.is_layout_of(dir.inode.hint.as_ref(), striping, is_fresh) {
            let text = format!("file {id} is laid out as no file of directory {parent}");
            return refuse(Errno::EINVAL, text);
        }
        let gid = new.group(caller, &dir.inode)?;
        let made_at = if now.saturating_sub(at) <= LATE_MAX { at.min(now) } else { now };
        let mut inode = new.inode(id, caller, &dir.inode, gid, made_at);
        inode.striping = Some(striping.clone());
        check_data(data)?;
        check_pieces(&inode, &pieces.0, data)?;
        let limit = inode.inline_max();
        if end > limit || (pieces.0.is_empty() && end > 0) {
            let text = format!("file {id} is made with {end} bytes, only {limit} lie with it");
            return refuse(Errno::EINVAL, text);
        }
        let owner = Owner { uid: caller.uid, gid, project: dir.project.0 };
        self.must_have_room(request, owner, (1, end))?;

        let (losses, project) = (self.losses, dir.project);
        let marks = if is_beyond { mark::BEYOND } else { 0 };
        let mut made =
            Stored { inode, cookie_next: COOKIE_FIRST, tail: end, losses, marks, project };
        if !pieces.0.is_empty() {
            self.put_inline(&mut made, &pieces.0, data)?;
            (made.inode.size, made.inode.sparse) = (end, hole);
            changed(&mut made.inode, now);
            written_by(caller, &mut made.inode);
        }
        if mask != 0 {
            let asked = Asked { mask, mode: set_mode, uid: caller.uid, gid, atime, mtime };
            touched(&mut made.inode, now);
            set_owner(caller, &mut made.inode, &asked);
            set_times(&mut made.inode, &asked, now);
        }
        self.counters.bytes = self.counters.bytes.wrapping_add(end);
        self.enter(request, dir, name, &made)?;
        self.add_open(request.session, id);
        Ok(Applied::Reply(Reply::Created { inode: made.inode, created: true }))
    }

    /// Whether a new file of a directory with this hint may be laid out so: by the table of servers as it is now, or was a moment
    /// ago.
    fn is_layout_of(
        &self,
        hint: Option<&StripingHint>,
        striping: &Striping,
        is_fresh: bool,
    ) -> bool {
        let Some(hint) = hint else { return false };
        let chains = &striping.servers.0;
        let is_alike = striping.kind == hint.kind
            && striping.strip_bytes == hint.strip_bytes
            && striping.params == hint.params;
        let is_once = |(at, chain): (usize, &u16)| !chains[..at].contains(chain);
        let fits = match usize::from(hint.server_count) {
            0 => chains.len() <= self.servers().len(),
            most => chains.len() <= most,
        };
        is_alike
            && fits
            && distribution::of(striping).is_ok()
            && chains.iter().enumerate().all(is_once)
            && chains.iter().all(|&chain| self.is_there(chain))
            && (is_fresh || chains.iter().all(|&chain| self.takes_files(chain)))
    }
}
