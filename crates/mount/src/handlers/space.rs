//! Space within files: FALLOCATE, LSEEK, COPY_FILE_RANGE.

use super::{Result, Session, locked};
use crate::abi::flags::whence;
use crate::abi::reply::{LseekOut, WriteOut, encode};
use crate::abi::{Header, Pad, Request};
use crate::files::Files;
use crate::transport::Answer;
use covey_ninep::tree::Errno;
use covey_stripe::client::Seek;
use covey_stripe::ops::{Caller, Id};

impl<F: Files> Session<F> {
    pub(super) async fn lseek(&self, id: Id, fh: u64, offset: u64, whence: u32) -> Result<Answer> {
        let what = match whence {
            whence::DATA => Seek::Data,
            whence::HOLE => Seek::Hole,
            // The kernel does the others itself.
            _ => return Err(Errno::EINVAL.into()),
        };
        let open = self.open.find(fh)?;
        self.behind.settle(id).await;
        let offset = self.files.seek(&open.file, offset, what).await?;
        Ok(Answer::Small(encode(&LseekOut { offset })))
    }

    pub(super) async fn fallocate(
        &self,
        header: &Header,
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<Answer> {
        let open = self.open.find(fh)?;
        if !open.writable {
            return Err(Errno::EBADF.into());
        }
        if header.uid != 0 {
            self.drop_privilege(header, header.nodeid).await?;
        }
        self.behind.settle(header.nodeid).await;
        let allocating =
            async |who: &Caller| self.files.fallocate(who, &open.file, mode, offset, length).await;
        self.as_caller(header, allocating).await?;
        Ok(Answer::Done)
    }

    /// The kernel has written back what was mapped of the source, and forgets the target's pages.
    pub(super) async fn copy_file_range(
        &self,
        header: &Header,
        request: Request,
    ) -> Result<Answer> {
        let Request::CopyFileRange { fh, offset, nodeid_out, fh_out, offset_out, length, flags } =
            request
        else {
            return Err(Errno::EINVAL.into());
        };
        if flags != 0 {
            return Err(Errno::EINVAL.into());
        }
        let (from, to) = (self.open.find(fh)?, self.open.find(fh_out)?);
        if !to.writable {
            return Err(Errno::EBADF.into());
        }
        if header.uid != 0 {
            self.drop_privilege(header, nodeid_out).await?;
        }
        self.behind.settle(header.nodeid).await;
        self.behind.settle(nodeid_out).await;
        locked(&self.pages).write(nodeid_out);
        let copied = self.files.copy(&from.file, offset, &to.file, offset_out, length).await?;
        Ok(Answer::Small(encode(&WriteOut { size: copied as u32, padding: Pad })))
    }
}
