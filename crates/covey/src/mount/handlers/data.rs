//! Open files: OPEN, READ, WRITE, FLUSH, RELEASE and what else goes by a file handle.

use super::{OpenFile, Result, Session, locked};
use crate::mount::abi::flags::{fopen, open, release, write};
use crate::mount::abi::reply::{OpenOut, WriteOut, encode};
use crate::mount::abi::{Header, Pad, Request};
use crate::mount::files::Files;
use crate::mount::transport::Answer;
use covey_ninep::tree::{Errno, SetAttr};
use covey_stripe::ops::Id;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

impl<F: Files> Session<F> {
    pub(super) async fn open(&self, header: &Header, flags: u32) -> Result<Answer> {
        let (who, access) = (self.caller(header), access_of(flags));
        let file = self.files.open(&who, header.nodeid, access).await?;
        if flags & open::TRUNC != 0 {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            self.files.setattr(&who, header.nodeid, set).await?;
        }
        let handle = self.opened(header.nodeid, file, access);
        let out = encode(&open_out(handle));
        // What LOOKUP has just said may be used for a moment; an open file is asked about each time.
        // While there is a lease, the kernel is made to forget when that is taken back.
        match self.files.time_left(header.nodeid).0 > TICK {
            true => Ok(Answer::Small(out)),
            false => Ok(Answer::Forgetting(header.nodeid, out)),
        }
    }

    /// Enters a file into the table of open ones.
    pub(super) fn opened(&self, id: Id, file: F::File, access: u8) -> u64 {
        *locked(&self.opened).entry(id).or_default() += 1;
        self.open.insert(OpenFile { id, file, writable: access & 2 != 0 })
    }

    fn closed(&self, id: Id) {
        if let Entry::Occupied(mut count) = locked(&self.opened).entry(id) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    pub(super) async fn read(&self, fh: u64, offset: u64, size: u32) -> Result<Answer> {
        let open = self.open.find(fh)?;
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
        let open = self.open.find(fh)?;
        let file = &open.file;
        if write_flags & write::KILL_SUIDGID != 0 {
            self.drop_privilege(header.nodeid).await?;
        }
        // The flags are the descriptor's at this moment: fcntl(F_SETFL) counts. The kernel's offset
        // is the end of the file as it knows it, which other mounts may have moved.
        match flags & open::APPEND != 0 && write_flags & write::CACHE == 0 {
            true => self.files.append(file, data.0.into()).await.map(|_offset| ())?,
            false => self.files.write_at(file, offset, data.0.into()).await?,
        }
        if flags & open::DSYNC != 0 {
            self.files.fsync(file).await?;
        }
        Ok(Answer::Small(encode(&WriteOut { size, padding: Pad })))
    }

    pub(super) async fn fsync(&self, fh: u64) -> Result<Answer> {
        let open = self.open.find(fh)?;
        self.files.fsync(&open.file).await?;
        Ok(Answer::Done)
    }

    /// close(2) of one descriptor: it gives up the process's fcntl locks on the file, as POSIX has it.
    pub(super) async fn flush(self: Arc<Self>, id: Id, fh: u64, owner: u64) -> Result<Answer> {
        let open = self.open.find(fh)?;
        self.clone().unlock_owner(id, owner).await?;
        self.files.flush(&open.file).await?;
        Ok(Answer::Done)
    }

    pub(super) async fn release(
        self: Arc<Self>,
        id: Id,
        fh: u64,
        flags: u32,
        owner: u64,
    ) -> Result<Answer> {
        let closed = self.open.remove(fh);
        if let Some(open) = &closed {
            self.closed(open.id);
        }
        if flags & release::FLOCK_UNLOCK != 0 {
            self.unlock_whole(id, owner).await?;
        }
        drop(closed);
        Ok(Answer::Done)
    }
}

/// More than a tick of the kernel's clock, for which what LOOKUP says may be used.
const TICK: Duration = Duration::from_millis(50);

/// The permission that open flags ask for: 4 read, 2 write, 1 execute.
pub(super) fn access_of(flags: u32) -> u8 {
    match flags & open::ACCMODE {
        open::WRONLY => 2,
        open::RDWR => 4 | 2,
        _ if flags & open::EXEC != 0 => 1,
        _ => 4,
    }
}

/// Every open file goes around the page cache, which is what makes mounts coherent; mmap(2) is
/// allowed beside it (DIRECT_IO_ALLOW_MMAP).
pub(super) fn open_out(fh: u64) -> OpenOut {
    let open_flags = fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;
    OpenOut { fh, open_flags, backing_id: 0 }
}
