//! Extended attributes: GETXATTR, SETXATTR, LISTXATTR, REMOVEXATTR.
//!
//! One of them is not kept as such: a file's own consistency mode can be seen and set as
//! `user.covey.consistency`, by the owner of the file, who need not know of the cluster. Lists
//! leave it out, so that a copy of all attributes does not carry it to other files. Another is made when it is read:
//! `user.covey.stats`, what its reader has asked of the mount ([`counts`](crate::counts)).

use super::{Result, Session};
use crate::abi::reply::{GetxattrOut, encode};
use crate::abi::{Header, Pad, Text};
use crate::counts::STATS;
use crate::files::Files;
use crate::transport::Answer;
use covey_ninep::tree::Errno;
use covey_stripe::client::CONSISTENCY;
use covey_stripe::ops::{Caller, Consistency, xattr};
use covey_wire::{Bytes, Name};

impl<F: Files> Session<F> {
    /// `size` 0 asks for the length alone.
    pub(super) async fn getxattr(&self, header: &Header, name: Text, size: u32) -> Result<Answer> {
        let name = supported(name)?;
        if name.as_bytes() == CONSISTENCY.as_bytes() {
            let own = self.files.stat(header.nodeid).await?.inode.consistency();
            let own = own.ok_or(Errno::ENODATA)?;
            return sized(Bytes::from_static(own.name().as_bytes()), size);
        }
        if name.as_bytes() == STATS.as_bytes() {
            return sized(self.counts.of(header.uid).into(), size);
        }
        let id = header.nodeid;
        let reading = async |who: &Caller| self.files.getxattr(who, id, &name).await;
        sized(self.as_caller(header, reading).await?, size)
    }

    pub(super) async fn listxattr(&self, header: &Header, size: u32) -> Result<Answer> {
        let listing = async |who: &Caller| self.files.listxattr(who, header.nodeid).await;
        let names = self.as_caller(header, listing).await?;
        let mut list = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in &names {
            list.extend_from_slice(name.as_bytes());
            list.push(0);
        }
        sized(list.into(), size)
    }

    /// `rest` is the name, NUL, and `size` bytes of value.
    pub(super) async fn setxattr(
        &self,
        header: &Header,
        mut rest: Bytes,
        size: u32,
        flags: u32,
    ) -> Result<Answer> {
        let end = rest.iter().position(|&byte| byte == 0).ok_or(Errno::EINVAL)?;
        let value = rest.split_off(end + 1);
        rest.truncate(end);
        if value.len() != size as usize {
            let what = format!("a SETXATTR of {size} bytes carries {}", value.len());
            return Err(Errno::because(Errno::EIO, what));
        }
        let name = settable(Text(rest.into()))?;
        if name.as_bytes() == CONSISTENCY.as_bytes() {
            let mode = std::str::from_utf8(&value).ok().and_then(Consistency::from_name);
            return self.set_consistency(header, Some(mode.ok_or(Errno::EINVAL)?), flags).await;
        }
        let (id, value) = (header.nodeid, &value);
        let setting =
            async |who: &Caller| self.files.setxattr(who, id, &name, value.clone(), flags).await;
        self.as_caller(header, setting).await?;
        Ok(Answer::Done)
    }

    pub(super) async fn removexattr(&self, header: &Header, name: Text) -> Result<Answer> {
        let name = settable(name)?;
        if name.as_bytes() == CONSISTENCY.as_bytes() {
            return self.set_consistency(header, None, xattr::REPLACE).await;
        }
        let removing = async |who: &Caller| self.files.removexattr(who, header.nodeid, &name).await;
        self.as_caller(header, removing).await?;
        Ok(Answer::Done)
    }

    async fn set_consistency(
        &self,
        header: &Header,
        mode: Option<Consistency>,
        flags: u32,
    ) -> Result<Answer> {
        let has_own = self.files.stat(header.nodeid).await?.inode.consistency().is_some();
        if has_own && flags & xattr::CREATE != 0 {
            return Err(Errno::EEXIST.into());
        }
        if !has_own && flags & xattr::REPLACE != 0 {
            return Err(Errno::ENODATA.into());
        }
        let id = header.nodeid;
        let setting = async |who: &Caller| self.files.set_consistency(who, id, mode).await;
        self.as_caller(header, setting).await?;
        self.note_mode(&self.files.stat(header.nodeid).await?.inode);
        Ok(Answer::Done)
    }
}

pub(crate) fn sized(value: Bytes, size: u32) -> Result<Answer> {
    if size == 0 {
        let size = value.len() as u32;
        return Ok(Answer::Small(encode(&GetxattrOut { size, padding: Pad })));
    }
    if value.len() <= size as usize {
        Ok(Answer::Data(value.into()))
    } else {
        Err(Errno::ERANGE.into())
    }
}

/// The name, if the metadata server could know it: ls and cp ask for ACLs and capabilities of each
/// file that they see, and the answer to that is always the same.
fn supported(name: Text) -> Result<Name> {
    let bytes = name.0.as_bytes();
    let is_ours = [&b"user."[..], b"trusted.", b"security."].iter().any(|p| bytes.starts_with(p));
    let is_kernels = [&b"security.capability"[..], b"security.ima", b"security.evm"];
    if is_ours && !is_kernels.contains(&bytes) { Ok(name.0) } else { Err(Errno::EOPNOTSUPP.into()) }
}

/// The same, if anybody may set it.
fn settable(name: Text) -> Result<Name> {
    let name = supported(name)?;
    if name.as_bytes() == STATS.as_bytes() { Err(Errno::EPERM.into()) } else { Ok(name) }
}
