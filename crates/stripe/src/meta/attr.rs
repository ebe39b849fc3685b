//! Attributes and sizes.
//!
//! A file may be cut by whoever has it open for writing, whatever its mode says by now. A session has
//! many users, and what one of them has open is nothing to the others: the client knows whose handle
//! it is and says so with the request (`set::SIZE_OF_OPEN`).

use super::fault::{Fault, refuse};
use super::keys::{self, CutRow, Stored, mark};
use super::moves::INSTALLED;
use super::names::{changed, touched};
use super::owned::{Owner, owner};
use super::permission::{access, check, may, mode, without_privilege, written_by};
use super::{Applied, Store, Work, create, done, node};
use crate::kv::Kv;
use crate::objects::EPOCH_MAX;
use crate::ops::{Caller, Consistency, Id, Inode, Op, Reply, Request, StripingHint, set};
use covey_ninep::tree::Errno;

/// The largest size: off_t is signed.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64;

/// What Setattr asks beside a size: fields count when their bit is in the mask.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub mask: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: u64,
    pub mtime: u64,
}

impl Asked {
    fn has(&self, bits: u32) -> bool {
        self.mask & bits != 0
    }
}

impl<K: Kv> Store<K> {
    pub(super) fn setattr(&mut self, request: &Request) -> Result<Applied, Fault> {
        let Op::Setattr { id, mask, mode, uid, gid, size, atime, mtime } = request.op else {
            return refuse(Errno::EINVAL, "no attributes");
        };
        let asked = Asked { mask, mode, uid, gid, atime, mtime };
        let (caller, now) = (&request.caller, request.now);
        let mut stored = self.stored(id)?;
        if asked.has(set::AT_EPOCH) && (asked.has(set::MODE) || !asked.has(set::SIZE)) {
            return refuse(Errno::EINVAL, "an epoch stands beside a size, and in place of a mode");
        }
        if asked.has(set::SIZE) {
            self.check_size(request, &stored.inode, &asked, size)?;
        }
        check_owner(caller, &stored.inode, &asked)?;
        check_mode(caller, &stored.inode, &asked)?;
        check_times(caller, &stored.inode, &asked)?;
        self.check_room(request, &stored, &asked, size)?;
        if mask & !set::SIZE_OF_OPEN == 0 {
            return self.chown_to_nobody_else(request, stored);
        }

        touched(&mut stored.inode, now);
        let before = owner(&stored);
        set_owner(caller, &mut stored.inode, &asked);
        self.owns_instead(before, &stored);
        let cut =
            if asked.has(set::SIZE) { self.resize(request, &mut stored, size)? } else { None };
        set_times(&mut stored.inode, &asked, now);
        self.save(&stored)?;
        let epoch = stored.inode.epoch;
        // A size that is set after a smaller one says that what the smaller one cut is gone.
        let awaits_cut =
            cut.is_some() || (asked.has(set::SIZE) && self.is_cut_pending(id, epoch)?);
        let reply = Reply::Node { inode: stored.inode };
        Ok(if awaits_cut { Applied::AfterCut { id, epoch, reply } } else { Applied::Reply(reply) })
    }

    /// Content and attributes in one. What could refuse the attributes does so before anything is written.
    pub(super) fn amend(&mut self, request: &Request) -> Result<Applied, Fault> {
        let &Op::Amend {
            id,
            epoch,
            end,
            hole,
            ref pieces,
            ref data,
            mask,
            mode,
            uid,
            gid,
            atime,
            mtime,
            ..
        } = &request.op
        else {
            return refuse(Errno::EINVAL, "no amendment");
        };
        let inode = self.stored(id)?.inode;
        if mask & set::AT_VERSION != 0 && !self.replaying {
            let (known, current) = (set::from_fields(uid, gid), inode.version);
            if mask & (set::UID | set::GID) != 0 {
                return refuse(Errno::EINVAL, "a version stands where an owner does");
            }
            if known != current {
                let text = format!("file {id} was changed since version {known}, it has {current}");
                return refuse(Errno::ESTALE, text);
            }
        }
        let mask = mask & !set::AT_VERSION;
        let asked = Asked { mask, mode, uid, gid, atime, mtime };
        let is_given_away =
            (asked.has(set::UID) && uid != inode.uid) || (asked.has(set::GID) && gid != inode.gid);
        if is_given_away || asked.has(set::SIZE | set::SIZE_OF_OPEN) {
            return refuse(
                Errno::EINVAL,
                format!("an amendment of file {id} changes its size or owner"),
            );
        }
        check_owner(&request.caller, &inode, &asked)?;
        check_mode(&request.caller, &inode, &asked)?;
        check_times(&request.caller, &inode, &asked)?;
        let as_op = |op: Op| Request { op, ..request.clone() };
        let written = if pieces.0.is_empty() {
            node(inode)
        } else {
            let (pieces, data) = (pieces.clone(), data.clone());
            self.write_inline(&as_op(Op::WriteInline { id, epoch, end, hole, pieces, data }))?
        };
        if mask == 0 {
            return Ok(written);
        }
        self.setattr(&as_op(Op::Setattr { id, mask, mode, uid, gid, size: 0, atime, mtime }))
    }

    /// What chown(2) asks that names neither owner nor group: as with any other, the power of a
    /// set-user-ID program goes.
    fn chown_to_nobody_else(
        &mut self,
        request: &Request,
        mut stored: Stored,
    ) -> Result<Applied, Fault> {
        let mode = without_privilege(&request.caller, stored.inode.mode, stored.inode.gid);
        if stored.inode.is_dir() || mode == stored.inode.mode {
            return Ok(node(stored.inode));
        }
        must_own(&request.caller, &stored.inode)?;
        stored.inode.mode = mode;
        touched(&mut stored.inode, request.now);
        self.save(&stored)?;
        Ok(node(stored.inode))
    }

    fn check_size(
        &self,
        request: &Request,
        inode: &Inode,
        asked: &Asked,
        size: u64,
    ) -> Result<(), Fault> {
        must_be_regular(inode)?;
        check_end(size)?;
        if asked.has(set::AT_EPOCH) && asked.mode != inode.epoch {
            let (id, current, epoch) = (inode.id, inode.epoch, asked.mode);
            return refuse(Errno::ESTALE, format!("file {id} has epoch {current}, not {epoch}"));
        }
        if size < inode.size && inode.epoch >= EPOCH_MAX {
            return refuse(Errno::EOVERFLOW, format!("file {} was cut too often", inode.id));
        }
        // Only accepted requests are logged, and earlier versions did not say what had let them in.
        if self.replaying || asked.has(set::SIZE_OF_OPEN) {
            return Ok(());
        }
        check(&request.caller, inode, access::WRITE)
    }

    /// What a quota says, and all else that refuses a size: nothing is counted before that.
    fn check_room(
        &self,
        request: &Request,
        stored: &Stored,
        asked: &Asked,
        size: u64,
    ) -> Result<(), Fault> {
        let inode = &stored.inode;
        if asked.has(set::GID) {
            self.must_have_room_in(request, inode, asked.gid)?;
        }
        if !asked.has(set::SIZE) || size <= inode.size {
            return Ok(());
        }
        let uid = if asked.has(set::UID) { asked.uid } else { inode.uid };
        let gid = if asked.has(set::GID) { asked.gid } else { inode.gid };
        if inode.epoch >= EPOCH_MAX && self.is_in_doubt(stored) {
            return refuse(Errno::EOVERFLOW, format!("file {} was cut too often", inode.id));
        }
        let owner = Owner { uid, gid, ..owner(stored) };
        self.must_have_room(request, owner, (0, size - inode.size))
    }

    /// Sets the size; the new epoch when data servers must be told.
    fn resize(
        &mut self,
        request: &Request,
        stored: &mut Stored,
        size: u64,
    ) -> Result<Option<u32>, Fault> {
        stored.inode.mtime = request.now;
        written_by(&request.caller, &mut stored.inode);
        if size >= stored.inode.size {
            // The size was larger once, perhaps: then something is cut all the same.
            let cut = self.clear_doubt(stored, size)?;
            stored.inode.sparse |= size > stored.inode.size;
            self.grow(stored, size)?;
            return Ok(cut);
        }
        let inode = &mut stored.inode;
        let limit = inode.inline_max();
        let is_inline = inode.size == stored.tail && inode.size <= limit;
        let before = std::mem::replace(&mut inode.size, size);
        stored.tail = size;
        self.cut_inline(inode, size)?;
        self.count_bytes(stored, before);
        // Of a sparse file the I/O servers may hold space beyond the size.
        let is_plain = is_inline && !stored.inode.sparse && stored.marks & mark::BEYOND == 0;
        if is_plain && !self.is_in_doubt(stored) && self.reserved(stored.inode.id)?.is_empty() {
            return Ok(None);
        }
        // What is empty has no holes: nobody needs to count.
        stored.inode.sparse &= size > 0;
        self.forget_appends(stored.inode.id)?;
        self.cut_objects(stored, size).map(Some)
    }

    /// Cuts the objects of a file that is in doubt to this size; its new epoch, None for one that is
    /// not. Appends under way that are known keep their places. The caller saves.
    pub(super) fn clear_doubt(
        &mut self,
        stored: &mut Stored,
        size: u64,
    ) -> Result<Option<u32>, Fault> {
        if !self.is_in_doubt(stored) {
            return Ok(None);
        }
        if stored.inode.epoch >= EPOCH_MAX {
            return refuse(Errno::EOVERFLOW, format!("file {} was cut too often", stored.inode.id));
        }
        self.cut_objects(stored, size.max(stored.tail)).map(Some)
    }

    /// Raises the epoch, and asks for the objects to be cut to `size`; the new epoch. The caller saves.
    pub(super) fn cut_objects(&mut self, stored: &mut Stored, size: u64) -> Result<u32, Fault> {
        stored.inode.epoch = self.epoch_after(stored);
        stored.losses = self.losses;
        stored.marks &= mark::MOVED | if size == 0 { 0 } else { mark::PUNCHED };
        self.ask_for_cut(stored, size)?;
        Ok(stored.inode.epoch)
    }

    /// The epoch after a file's, which has one. Each loss of power since it was cut last may have taken epochs that were
    /// given out: who holds one of those must write nowhere.
    pub(super) fn epoch_after(&self, stored: &Stored) -> u32 {
        /// More than a file is cut between two syncs of the log.
        const SKIPPED: u64 = 1 << 16;
        let epoch = stored.inode.epoch;
        let lost = self.losses.saturating_sub(stored.losses);
        if lost == 0 || !self.skips {
            return epoch + 1;
        }
        // However often power is lost, epochs are left.
        let most = EPOCH_MAX.saturating_sub(epoch) / 4;
        let skipped = lost.saturating_mul(SKIPPED).min(u64::from(most)) as u32;
        epoch + skipped.max(1)
    }

    /// Asks for a file's objects to be cut to `size` in its new epoch, until that is reported.
    pub(super) fn ask_for_cut(&mut self, stored: &Stored, size: u64) -> Result<(), Fault> {
        let (inode, marks) = (&stored.inode, stored.marks);
        let Some(striping) = inode.striping.clone() else { return Ok(()) };
        let (id, epoch) = (inode.id, inode.epoch);
        // What a file has left on a server where it lies again is too new for a cut; nothing takes its place.
        let size = if size == 0 && marks & mark::MOVED != 0 { INSTALLED } else { size };
        self.put_row(&keys::cut(id, epoch), &CutRow { size, striping: striping.clone() })?;
        self.work.push(Work::Cut { id, epoch, size, striping });
        Ok(())
    }

    /// Raises the size to `end` if it is smaller, and lets appends below show. The caller saves.
    pub(super) fn grow(&mut self, stored: &mut Stored, end: u64) -> Result<(), Fault> {
        let has_appends = stored.tail > stored.inode.size;
        self.raise(stored, end);
        stored.tail = stored.tail.max(end);
        if has_appends { self.settle_appends(stored) } else { Ok(()) }
    }

    /// Raises the size alone.
    pub(super) fn raise(&mut self, stored: &mut Stored, end: u64) {
        let before = stored.inode.size;
        stored.inode.size = end.max(before);
        self.count_bytes(stored, before);
    }

    /// A file's size has changed.
    pub(super) fn count_bytes(&mut self, stored: &Stored, before: u64) {
        let bytes = &mut self.counters.bytes;
        *bytes = bytes.wrapping_sub(before).wrapping_add(stored.inode.size);
        self.owns_size(stored, before);
    }

    /// A write ended at `end`. One to 0 is about to go where only the I/O servers are.
    pub(super) fn extend(
        &mut self,
        request: &Request,
        id: Id,
        epoch: u32,
        end: u64,
        hole: bool,
    ) -> Result<Applied, Fault> {
        let mut stored = self.stored(id)?;
        must_be_regular(&stored.inode)?;
        check_end(end)?;
        if epoch != stored.inode.epoch {
            let current = stored.inode.epoch;
            return refuse(Errno::ESTALE, format!("file {id} has epoch {current}, not {epoch}"));
        }
        self.must_have_room_to(request, &stored, end)?;
        stored.inode.sparse |= hole;
        stored.marks |= mark::BEYOND;
        // Space is taken, freed or zeroed within the size: a write always tells of its end.
        stored.marks |= if hole && end == 0 { mark::PUNCHED } else { 0 };
        self.grow(&mut stored, end)?;
        self.write_done(request, &mut stored)?;
        Ok(node(stored.inode))
    }

    /// Nobody writes at the file's epoch any more.
    pub(super) fn fence(&mut self, request: &Request, id: Id) -> Result<Applied, Fault> {
        let mut stored = self.stored(id)?;
        must_be_regular(&stored.inode)?;
        if !self.replaying {
            check(&request.caller, &stored.inode, access::WRITE)?;
        }
        if stored.inode.epoch >= EPOCH_MAX {
            return refuse(Errno::EOVERFLOW, format!("file {id} was cut too often"));
        }
        let end = stored.inode.size.max(stored.tail);
        let epoch = self.cut_objects(&mut stored, end)?;
        self.save(&stored)?;
        Ok(Applied::AfterCut { id, epoch, reply: Reply::Node { inode: stored.inode } })
    }

    /// Content was written within the size.
    pub(super) fn touch(&mut self, request: &Request, id: Id) -> Result<Applied, Fault> {
        let mut stored = self.stored(id)?;
        must_be_regular(&stored.inode)?;
        self.write_done(request, &mut stored)?;
        Ok(node(stored.inode))
    }

    /// What every write does to the inode; saves it.
    pub(super) fn write_done(
        &mut self,
        request: &Request,
        stored: &mut Stored,
    ) -> Result<(), Fault> {
        changed(&mut stored.inode, request.now);
        written_by(&request.caller, &mut stored.inode);
        self.save(stored)
    }

    /// A client has written all of the file, up to this size and in this epoch. So it has no holes, whatever others did
    /// meanwhile, unless this is refused: what is written stays until it is cut, which raises the epoch (or, as
    /// long as all lies with the inode, changes nothing that a hole would be in), or punched, which marks the file before
    /// any hole is made; and who has made the file longer has changed its size.
    pub(super) fn dense(&mut self, id: Id, epoch: u32, size: u64) -> Result<Applied, Fault> {
        let mut stored = self.stored(id)?;
        must_be_regular(&stored.inode)?;
        let same = stored.inode.epoch == epoch && stored.inode.size == size && stored.tail == size;
        let is_whole = same && stored.marks & mark::PUNCHED == 0;
        if is_whole && stored.inode.sparse {
            stored.inode.sparse = false;
            self.save(&stored)?;
        }
        Ok(done())
    }

    /// A directory's hint for new files, or the striping of a file that holds nothing yet.
    pub(super) fn set_striping(
        &mut self,
        request: &Request,
        id: Id,
        hint: &StripingHint,
    ) -> Result<Applied, Fault> {
        let mut stored = self.stored(id)?;
        must_own(&request.caller, &stored.inode)?;
        create::check_hint(hint, self.server_count())?;
        let is_dir = stored.inode.is_dir();
        if is_dir {
            stored.inode.hint = Some(hint.clone());
        } else {
            must_be_regular(&stored.inode)?;
            self.relay(&mut stored, hint)?;
        }
        touched(&mut stored.inode, request.now);
        self.save(&stored)?;
        let epoch = stored.inode.epoch;
        let reply = Reply::Node { inode: stored.inode };
        Ok(if is_dir { Applied::Reply(reply) } else { Applied::AfterCut { id, epoch, reply } })
    }

    /// How mounts keep what they know of a file, and of what will be made in a directory.
    pub(super) fn set_consistency(
        &mut self,
        request: &Request,
        id: Id,
        consistency: u8,
    ) -> Result<Applied, Fault> {
        let mut stored = self.stored(id)?;
        must_own(&request.caller, &stored.inode)?;
        if consistency != 0 && Consistency::from_number(consistency).is_none() {
            return refuse(Errno::EINVAL, format!("there is no consistency mode {consistency}"));
        }
        stored.inode.consistency = consistency;
        touched(&mut stored.inode, request.now);
        self.save(&stored)?;
        Ok(node(stored.inode))
    }

    /// Gives an empty file that nobody has open another striping. Objects that writers may have left
    /// under the old one go; the new servers hear of the new epoch by a cut.
    fn relay(&mut self, stored: &mut Stored, hint: &StripingHint) -> Result<(), Fault> {
        let inode = &mut stored.inode;
        let id = inode.id;
        if stored.tail > 0 || inode.size > 0 || inode.epoch >= EPOCH_MAX {
            return refuse(Errno::ENOTEMPTY, format!("file {id} has data"));
        }
        // Whoever has it open deals its bytes by the old striping.
        if !self.replaying && self.is_open(id) {
            return refuse(Errno::EBUSY, format!("file {id} is open"));
        }
        let striping = self.striping_for(id, hint);
        let old = inode.striping.replace(striping);
        let before = inode.epoch;
        self.cut_inline(inode, 0)?;
        self.forget_cuts(id)?;
        if let Some(old) = old {
            self.reclaim(id, before, old)?;
        }
        self.cut_objects(stored, 0).map(drop)
    }
}

/// Refuses sizes and writes on anything but a regular file.
pub(super) fn must_be_regular(inode: &Inode) -> Result<(), Fault> {
    match inode.type_bits() {
        mode::REGULAR => Ok(()),
        mode::DIRECTORY => refuse(Errno::EISDIR, format!("file {} is a directory", inode.id)),
        _ => refuse(Errno::EINVAL, format!("file {} is not a regular file", inode.id)),
    }
}

/// Refuses a size or an end that no file can have.
pub(super) fn check_end(end: u64) -> Result<(), Fault> {
    match end {
        0..=SIZE_MAX => Ok(()),
        _ => refuse(Errno::EFBIG, format!("a file of {end} bytes, limit is {SIZE_MAX}")),
    }
}

pub(super) fn must_own(caller: &Caller, inode: &Inode) -> Result<(), Fault> {
    if caller.owns(inode) {
        Ok(())
    } else {
        refuse(Errno::EPERM, format!("uid {} does not own file {}", caller.uid, inode.id))
    }
}

fn check_owner(caller: &Caller, inode: &Inode, asked: &Asked) -> Result<(), Fault> {
    if asked.has(set::UID) && !caller.is_root() {
        must_own(caller, inode)?;
        if asked.uid != inode.uid {
            return refuse(Errno::EPERM, "only root gives files away");
        }
    }
    if asked.has(set::GID) && !caller.is_root() {
        must_own(caller, inode)?;
        if asked.gid != inode.gid && !caller.is_in(asked.gid) {
            let (uid, gid) = (caller.uid, asked.gid);
            return refuse(Errno::EPERM, format!("uid {uid} is not in group {gid}"));
        }
    }
    Ok(())
}

fn check_mode(caller: &Caller, inode: &Inode, asked: &Asked) -> Result<(), Fault> {
    if !asked.has(set::MODE) {
        return Ok(());
    }
    if inode.type_bits() == mode::SYMLINK {
        return refuse(Errno::EOPNOTSUPP, "symbolic links have no mode of their own");
    }
    must_own(caller, inode)
}

/// Any time needs the owner; the present time also whoever may write.
fn check_times(caller: &Caller, inode: &Inode, asked: &Asked) -> Result<(), Fault> {
    let given = |field, now| asked.has(field) && !asked.has(now);
    if given(set::ATIME, set::ATIME_NOW) || given(set::MTIME, set::MTIME_NOW) {
        return must_own(caller, inode);
    }
    let any = asked.has(set::ATIME_NOW | set::MTIME_NOW);
    if any && !caller.owns(inode) && !may(caller, inode, access::WRITE) {
        return check(caller, inode, access::WRITE);
    }
    Ok(())
}

/// Owner and mode. As Linux does, even for root, a new owner does not inherit the power of a
/// set-user-ID program.
pub(super) fn set_owner(caller: &Caller, inode: &mut Inode, asked: &Asked) {
    if asked.has(set::UID | set::GID) && !inode.is_dir() {
        inode.mode = without_privilege(caller, inode.mode, inode.gid);
    }
    if asked.has(set::UID) {
        inode.uid = asked.uid;
    }
    if asked.has(set::GID) {
        inode.gid = asked.gid;
    }
    if asked.has(set::MODE) {
        let mut bits = asked.mode & mode::PERMISSIONS;
        if !caller.is_root() && !caller.is_in(inode.gid) {
            bits &= !mode::SETGID;
        }
        inode.mode = inode.type_bits() | bits;
    }
}

pub(super) fn set_times(inode: &mut Inode, asked: &Asked, now: u64) {
    if asked.has(set::ATIME | set::ATIME_NOW) {
        inode.atime = if asked.has(set::ATIME_NOW) { now } else { asked.atime };
    }
    if asked.has(set::MTIME | set::MTIME_NOW) {
        inode.mtime = if asked.has(set::MTIME_NOW) { now } else { asked.mtime };
    }
}
