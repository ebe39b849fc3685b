//! Space within files and copies between them.

use super::{Error, File, Result, Seek};
use crate::objects::Reshape;
use crate::ops::Caller;
use covey_ninep::tree::Errno;
use futures_util::future::try_join_all;

/// Bits of fallocate(2)'s mode.
#[allow(missing_docs)]
pub mod fallocate {
    pub const KEEP_SIZE: u32 = 1;
    pub const PUNCH_HOLE: u32 = 2;
    pub const ZERO_RANGE: u32 = 16;
}

/// Most bytes of one copy: the caller goes on, and a signal gets in between.
const COPY_BYTES_MAX: u64 = 64 << 20;
/// Bytes that are read and written at once, and how many of those at a time.
const COPY_PIECE_BYTES: u64 = 1 << 20;
const COPY_PIECES: u64 = 8;

impl File {
    /// fallocate(2): `mode` is 0, KEEP_SIZE, PUNCH_HOLE with KEEP_SIZE, or ZERO_RANGE with or without
    /// it; EOPNOTSUPP for others. ENOSPC leaves the size as it was; a part may be allocated.
    pub async fn fallocate(&self, who: &Caller, mode: u32, offset: u64, length: u64) -> Result<()> {
        use fallocate::*;
        const PUNCH: u32 = PUNCH_HOLE | KEEP_SIZE;
        const ZERO_KEEP: u32 = ZERO_RANGE | KEEP_SIZE;
        let how = match mode {
            0 => Reshape::Allocate,
            KEEP_SIZE => Reshape::AllocateKeep,
            PUNCH => Reshape::Punch,
            ZERO_RANGE => Reshape::Zero,
            ZERO_KEEP => Reshape::ZeroKeep,
            _ => {
                let what = format!("fallocate mode {mode:#x} is not supported");
                return Err(Error::because(Errno::EOPNOTSUPP, what));
            }
        };
        if length == 0 {
            return Err(Errno::EINVAL.into());
        }
        let end = offset.checked_add(length).filter(|&end| end <= i64::MAX as u64);
        let end = end.ok_or(Errno::EFBIG)?;
        self.to_write().await?.reshape(&self.handle.shared, who, how, offset, end).await
    }

    /// Where the next data or the next hole at or after `offset` begins, as the I/O servers know
    /// them; ENXIO at the end and beyond, and for data that does not come any more.
    pub async fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        self.data()?.seek(&self.handle.shared, offset, what).await
    }

    /// Copies up to `length` bytes to another file or another place of this one, which must not
    /// overlap (EINVAL); answers how many, fewer at the end of the file and after 64 MiB. Holes stay holes.
    pub async fn copy(&self, offset: u64, to: &File, to_offset: u64, length: u64) -> Result<u64> {
        let apart = offset.abs_diff(to_offset) >= length;
        if self.id() == to.id() && !apart {
            return Err(Error::because(Errno::EINVAL, "the ranges overlap"));
        }
        let source = self.data()?.fresh(&self.handle.shared).await?;
        let end = offset.saturating_add(length.min(COPY_BYTES_MAX)).min(source.size);
        let mut at = offset;
        while at < end {
            let shift = |at: u64| at - offset + to_offset;
            let data = if source.sparse { self.next(at, Seek::Data, end).await? } else { at };
            if data > at {
                to.make_hole(shift(at), shift(data)).await?;
                at = data;
                continue;
            }
            let hole = if source.sparse { self.next(at, Seek::Hole, end).await? } else { end };
            let copied = self.copy_data(at, hole.max(at + 1).min(end), to, shift(at)).await?;
            at += copied;
            // Cut meanwhile.
            if copied == 0 {
                break;
            }
        }
        Ok(at.saturating_sub(offset))
    }

    /// Where the next data (or hole) begins, `end` when it is beyond.
    async fn next(&self, offset: u64, what: Seek, end: u64) -> Result<u64> {
        match self.seek(offset, what).await {
            Ok(found) => Ok(found.min(end)),
            Err(error) if error.code() == Errno::ENXIO => Ok(end),
            Err(error) => Err(error),
        }
    }

    /// Several pieces at once; how many bytes were there.
    async fn copy_data(&self, from: u64, end: u64, to: &File, to_offset: u64) -> Result<u64> {
        let end = end.min(from + COPY_PIECE_BYTES * COPY_PIECES);
        let pieces = (from..end).step_by(COPY_PIECE_BYTES as usize).map(|at| async move {
            let wanted = COPY_PIECE_BYTES.min(end - at);
            let data = self.read_at(at, wanted as usize).await?;
            let count = data.len() as u64;
            if count > 0 {
                to.write_at(at - from + to_offset, data).await?;
            }
            Ok::<(u64, u64), Error>((wanted, count))
        });
        let mut copied = 0;
        for (wanted, count) in try_join_all(pieces).await? {
            copied += count;
            if count < wanted {
                break;
            }
        }
        Ok(copied)
    }

    /// The range reads as zeros, and the file reaches to its end.
    async fn make_hole(&self, from: u64, end: u64) -> Result<()> {
        let (open, shared) = (self.to_write().await?, &self.handle.shared);
        let size = open.fresh(shared).await?.size;
        let writer = open.writer();
        if from < size {
            open.reshape(shared, &writer, Reshape::Punch, from, end.min(size)).await?;
        }
        open.grow(shared, end).await
    }
}
