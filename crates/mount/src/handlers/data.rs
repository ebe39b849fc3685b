//! Open files: OPEN, READ, WRITE, FLUSH, RELEASE and what else goes by a file handle.

use super::modes::Usage;
use super::{OpenFile, Result, Session, locked};
use crate::abi::flags::{fopen, open, release, write};
use crate::abi::reply::{OpenOut, WriteOut, encode};
use crate::abi::{Header, Pad, Request};
use crate::files::Files;
use crate::transport::Answer;
use covey_ninep::tree::{Errno, SetAttr};
use covey_stripe::ops::{Caller, Id};
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Instant;

impl<F: Files> Session<F> {
    pub(super) async fn open(self: &Arc<Self>, header: &Header, flags: u32) -> Result<Answer> {
        let (id, access) = (header.nodeid, access_of(flags));
        let opening = async |who: &Caller| self.files.open(who, id, access).await;
        let file = self.as_caller(header, opening).await?;
        if flags & open::TRUNC != 0 {
            self.behind.settle(id).await;
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            let cut = async |who: &Caller| self.files.setattr(who, id, set.clone()).await;
            self.as_caller(header, cut).await?;
        }
        if self.may_store(&file, flags) {
            self.files.bring_content(&file).await;
        }
        let (mut out, forget) = self.opened(id, file, flags);
        let is_only_read = access == 4 && self.options.quiet_closes;
        if is_only_read && locked(&self.quiet).reads(header.pid, id, Instant::now()) {
            out.open_flags |= fopen::NOFLUSH;
        }
        if self.kernel.pages(id).is_some() {
            self.sweep_stored();
        }
        // What LOOKUP has just said may be used for a moment; an open file is asked about each time,
        // unless its mode lets the kernel keep what it has.
        Ok(if forget { Answer::Forgetting(id, encode(&out)) } else { Answer::Small(encode(&out)) })
    }

    /// Enters a file into the table of open ones; how it is open, and whether its attributes are to
    /// be forgotten.
    pub(super) fn opened(&self, id: Id, file: F::File, flags: u32) -> (OpenOut, bool) {
        let usage = self.usage(&file, flags);
        self.opened_as(id, file, flags, usage)
    }

    /// The same of a file that was just made.
    pub(super) fn opened_new(&self, id: Id, file: F::File, flags: u32) -> OpenOut {
        let usage = self.usage_of_new(&file, flags);
        self.opened_as(id, file, flags, usage).0
    }

    fn opened_as(&self, id: Id, file: F::File, flags: u32, usage: Usage) -> (OpenOut, bool) {
        let is_candidate = self.may_store(&file, flags);
        let writable = access_of(flags) & 2 != 0;
        let (mut open_flags, mut forget) = self.open_flags(id, &file, usage);
        let mut open = OpenFile { id, file, writable, usage };
        if is_candidate && !usage.is_kept() && self.store(&mut open) {
            open_flags = fopen::KEEP_CACHE;
        } else {
            let is_first = self.count(&open);
            if is_candidate && usage.is_kept() && forget && self.fill(&open, is_first) {
                // Its attributes were forgotten with its pages.
                (open_flags, forget) = (open_flags | fopen::KEEP_CACHE, false);
            }
        }
        let fh = self.open.insert(open);
        (OpenOut { fh, open_flags, backing_id: 0 }, forget)
    }

    /// A handle is open, and will be in the table; whether it is the only one of its file.
    pub(super) fn count(&self, open: &OpenFile<F::File>) -> bool {
        let is_first;
        {
            let mut opened = locked(&self.opened);
            let opens = opened.entry(open.id).or_default();
            is_first = opens.all == 0;
            opens.all += 1;
            opens.writable += usize::from(open.writable);
            opens.through_pages += usize::from(!open.usage.direct);
        }
        if open.writable && open.usage.gathers {
            self.behind.enter(open.id);
        }
        is_first
    }

    pub(super) fn closed(&self, open: &OpenFile<F::File>) {
        // Goes when the table is free again: its end may close the file.
        let mut _unused = None;
        if let Entry::Occupied(mut entry) = locked(&self.opened).entry(open.id) {
            let opens = entry.get_mut();
            opens.all -= 1;
            opens.writable -= usize::from(open.writable);
            if open.writable && opens.writable == 0 {
                // Whoever could have asked has gone.
                locked(&self.untold).remove(&open.id);
            }
            opens.through_pages -= usize::from(!open.usage.direct);
            if opens.through_pages == 0 && !open.usage.direct {
                self.kernel.pages_unused(open.id);
                _unused = locked(&self.paged).remove(&open.id);
            }
            if opens.all == 0 {
                entry.remove();
            }
        }
        if open.writable && open.usage.gathers {
            self.behind.leave(open.id);
        }
    }

    pub(super) async fn read(&self, id: Id, fh: u64, offset: u64, size: u32) -> Result<Answer> {
        let open = self.open.find(fh)?;
        self.behind.settle(id).await;
        // One that goes around the pages may be mapped.
        if !open.usage.is_kept() {
            self.kernel.pages_read(id);
        }
        let data = self.files.read_at(&open.file, offset, size as usize).await?;
        Ok(Answer::Data(data))
    }

    pub(super) async fn write(&self, header: &Header, request: Request) -> Result<Answer> {
        let Request::Write { fh, offset, size, write_flags, flags, data, .. } = request else {
            return Err(Errno::EINVAL.into());
        };
        if data.0.len() != size as usize {
            let what = format!("a WRITE of {size} bytes carries {}", data.0.len());
            return Err(Errno::because(Errno::EIO, what));
        }
        let (open, id) = (self.open.find(fh)?, header.nodeid);
        let file = &open.file;
        if write_flags & write::KILL_SUIDGID != 0 {
            self.drop_privilege(header, id).await?;
        }
        match open.usage {
            usage if usage.fills() => locked(&self.pages).write(id),
            // Not in the pages; and who appends may not be alone.
            usage if usage.is_kept() => locked(&self.pages).doubt(id),
            _ => {}
        }
        let is_mapped = write_flags & write::CACHE != 0;
        // The flags are the descriptor's at this moment: fcntl(F_SETFL) counts.
        let at_once = open::APPEND | open::DSYNC | rustix::fs::OFlags::DIRECT.bits();
        // What is kept with a new file is not waited for.
        let is_kept = open.usage.gathers
            && open.usage.direct
            && self.files.keeps(file, offset.saturating_add(u64::from(size)))
            && self.behind.is_idle(id);
        if open.usage.gathers && !is_kept && !is_mapped && flags & at_once == 0 {
            let taken = self.behind.write(id, file, offset, data.0).await;
            taken.inspect_err(|_| locked(&self.pages).doubt(id))?;
            if open.usage.direct && self.has_pages(id) {
                self.behind.settle(id).await;
                self.kernel.forget_pages(id).await;
            }
            return Ok(Answer::Small(encode(&WriteOut { size, padding: Pad })));
        }
        self.behind.settle(id).await;
        // The kernel's offset is the end of the file as it knows it, which other mounts may have
        // moved.
        if flags & open::APPEND != 0 && !is_mapped {
            self.files.append(file, data.0.into()).await.map(|_offset| ())?
        } else {
            self.files.write_at(file, offset, data.0.into()).await?
        }
        if flags & open::DSYNC != 0 {
            self.files.fsync(file).await?;
        }
        if open.usage.direct && self.has_pages(id) {
            self.kernel.forget_pages(id).await;
        }
        Ok(Answer::Small(encode(&WriteOut { size, padding: Pad })))
    }

    /// Whether the kernel may be reading the file into its pages just now.
    fn has_pages(&self, id: Id) -> bool {
        locked(&self.opened).get(&id).is_some_and(|opens| opens.through_pages > 0)
    }

    pub(super) async fn fsync(&self, id: Id, fh: u64) -> Result<Answer> {
        let open = self.open.find(fh)?;
        self.finish(id).await?;
        self.files.fsync(&open.file).await?;
        Ok(Answer::Done)
    }

    /// close(2) of one descriptor: what was written is there, and the file has a new version, before
    /// it gives up the process's fcntl locks on the file, as POSIX has it.
    pub(super) async fn flush(self: Arc<Self>, id: Id, fh: u64, owner: u64) -> Result<Answer> {
        let open = self.open.find(fh)?;
        if !self.has_asked_for_locks(id, owner) {
            let written = self.written_in_time(&open).await;
            self.heard_by_close(&open, written)?;
            return Ok(Answer::Done);
        }
        // Goes on by itself when the request is interrupted: nobody would ask again.
        let aside = self.aside.clone();
        let closing = async move {
            let _aside = aside;
            let written = self.written(&open).await;
            let written = self.heard_by_close(&open, written);
            written.and(self.unlock_owner(id, owner).await)
        };
        let done = tokio::task::spawn_local(closing).await;
        done.unwrap_or_else(|lost| Err(Errno::because(Errno::EIO, lost.to_string())))?;
        Ok(Answer::Done)
    }

    /// What was gathered is on the servers; else its pages are no better than what was lost.
    async fn finish(&self, id: Id) -> Result<()> {
        let finished = self.behind.finish(id).await.and(self.told(id));
        if finished.is_err() {
            locked(&self.pages).doubt(id);
        }
        finished
    }

    /// What the process before has not told of a file, once.
    fn told(&self, id: Id) -> Result<()> {
        locked(&self.untold).remove(&id).map_or(Ok(()), |code| Err(code.into()))
    }

    /// An error of what was written that nobody has heard yet: the next fsync or close of one who writes the file does.
    pub(super) fn tell_later(&self, id: Id, code: u32) {
        locked(&self.untold).entry(id).or_insert(code);
    }

    /// close(2) of a descriptor hears what became of what was written. So does the fsync after it, or a closed copy of the
    /// descriptor, which a child process has, would take that away; and nobody hears it who only reads.
    fn heard_by_close(&self, open: &OpenFile<F::File>, written: Result<()>) -> Result<()> {
        let Err(error) = &written else { return written };
        if locked(&self.opened).get(&open.id).is_some_and(|opens| opens.writable > 0) {
            self.tell_later(open.id, error.code);
        }
        if open.writable { written } else { Ok(()) }
    }

    /// All writes through any handle are there for every later open of the file. In the weaker modes a file that nobody else
    /// knows may reach the servers a moment later.
    async fn written_in_time(&self, open: &OpenFile<F::File>) -> Result<()> {
        if !open.usage.is_kept() {
            return self.written(open).await;
        }
        self.finish(open.id).await.and(self.files.flush_late(&open.file).await)
    }

    /// All writes through any handle are on the servers, and every later open of the file sees a
    /// new version.
    pub(super) async fn written(&self, open: &OpenFile<F::File>) -> Result<()> {
        self.finish(open.id).await.and(self.files.flush(&open.file).await)
    }

    pub(super) async fn release(
        self: Arc<Self>,
        id: Id,
        fh: u64,
        flags: u32,
        owner: u64,
    ) -> Result<Answer> {
        let open = self.open.find(fh).ok();
        if let Some(open) = open.as_ref().filter(|open| open.writable && open.usage.gathers) {
            // A mapping outlives the last close.
            let written = self.written_in_time(open).await;
            written.unwrap_or_else(|error| tracing::warn!("fuse: after the last close: {error}"));
        }
        let closed = self.open.remove(fh);
        if let Some(open) = &closed {
            self.closed(open);
        }
        let unlocked = self.clone().unlock_handle(id, fh).await;
        if flags & release::FLOCK_UNLOCK != 0 {
            self.unlock_whole(id, owner).await?;
        }
        drop(closed);
        unlocked.map(|()| Answer::Done)
    }
}

/// The permission that open flags ask for: 4 read, 2 write, 1 execute.
pub(super) fn access_of(flags: u32) -> u8 {
    match flags & open::ACCMODE {
        open::WRONLY => 2,
        open::RDWR => 4 | 2,
        _ if flags & open::EXEC != 0 => 1,
        _ => 4,
    }
}
