//! Small files in one round trip: create with the first data, open with the first data.

use super::session::unexpected;
use super::{File, Fs, Result, Taken};
use crate::distribution::INLINE_BYTES_DEFAULT;
use crate::ops::{Caller, Id, Inode, Op, Reply};
use covey_wire::{Bytes, List, Name, Payload};

/// Bytes of a request around its data.
pub(super) const REQUEST_BYTES: u32 = 4096;

/// A file that was created, or found.
pub struct Created {
    /// Its attributes, with what was written of it.
    pub inode: Inode,
    /// Its handle.
    pub file: File,
    /// It is new. If not, nothing was written.
    pub is_new: bool,
}

/// A file that was opened.
pub struct Opening {
    /// Its attributes.
    pub inode: Inode,
    /// Its handle.
    pub file: File,
    /// Its first bytes: those that lie with its metadata, as many as were asked for. A small file has
    /// no others.
    pub data: Bytes,
}

impl Opening {
    /// Whether `data` is all there is.
    pub fn is_whole(&self) -> bool {
        self.data.len() as u64 == self.inode.size
    }
}

impl Fs {
    /// Creates a regular file, or finds it, and opens it. When it is new, all of
    /// `data` is written: with one request to the metadata server where it lies with the metadata.
    #[allow(clippy::too_many_arguments)] // They are those of a creation, and the data.
    pub async fn create_write(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        mode: u32,
        taken: Taken,
        access: u8,
        data: Payload,
    ) -> Result<Created> {
        let data = data.into_bytes();
        let most = self.shared.session.payload_max().saturating_sub(REQUEST_BYTES);
        let first = data.len().min(most.min(INLINE_BYTES_DEFAULT) as usize);
        let op = Op::CreateWrite {
            parent,
            name: name.clone(),
            mode: mode & 0o7777,
            gid: who.gid,
            exclusive: taken.is_exclusive(),
            access,
            data: data.slice(..first).into(),
        };
        let starts = self.shared.session.starts();
        let (reply, opened) = self.shared.session.open_with(who, op).await?;
        let Reply::Created { mut inode, created: is_new } = reply else {
            return Err(unexpected(&reply));
        };
        let file = self.handle(who, &inode, opened, starts).await?;
        let done = inode.size as usize;
        if is_new && done < data.len() {
            file.write_at(done as u64, data.slice(done..).into()).await?;
            inode.size = data.len() as u64;
        }
        Ok(Created { inode, file, is_new })
    }

    /// Down the names from a directory (no symbolic links), opened, and up to `count` of its first
    /// bytes with it: with one request to the metadata server. Without names `from` itself is opened.
    pub async fn open_read(
        &self,
        who: &Caller,
        from: Id,
        names: &[Name],
        access: u8,
        count: u32,
    ) -> Result<Opening> {
        let most = self.shared.session.payload_max().saturating_sub(REQUEST_BYTES);
        let (names, count) = (List(names.to_vec()), count.min(most));
        let op = Op::OpenRead { from, names, access, count };
        let starts = self.shared.session.starts();
        let (reply, opened) = self.shared.session.open_with(who, op).await?;
        let Reply::Inline { inode, data } = reply else { return Err(unexpected(&reply)) };
        let file = self.handle(who, &inode, opened, starts).await?;
        Ok(Opening { inode, file, data: data.into_bytes() })
    }
}
