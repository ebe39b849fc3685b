//! Extended attributes: GETXATTR, SETXATTR, LISTXATTR, REMOVEXATTR.
//!
//! One of them is not kept as such: a file's own consistency mode can be seen and set as
//! `user.covey.consistency`, by the owner of the file, who need not know of the cluster. Lists
//! leave it out, so that a copy of all attributes does not carry it to other files. A list of access rights that
//! says no more than a mode, which cp(1) sets on each file that it copies, sets the mode. Another is made when it is read:
//! `user.covey.stats`, what its reader has asked of the mount ([`counts`](crate::counts)).

use super::{Result, Session};
use crate::abi::reply::{GetxattrOut, encode};
use crate::abi::{Header, Pad, Text};
use crate::counts::STATS;
use crate::files::Files;
use crate::transport::Answer;
use covey_ninep::tree::{Errno, SetAttr};
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
        if rest == ACCESS_ACL {
            return self.set_mode_as_acl(header, &value, flags).await;
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

    /// The kernel leaves it to us to change the mode, and believes what it knew of it.
    async fn set_mode_as_acl(&self, header: &Header, acl: &[u8], flags: u32) -> Result<Answer> {
        let id = header.nodeid;
        let bits = mode_of(acl).filter(|_| flags == 0).ok_or(Errno::EOPNOTSUPP)?;
        self.behind.settle(id).await;
        let mode = self.files.mode(id).await? & SPECIAL_BITS | bits;
        self.look_for_setgid(header, mode);
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let setting = async |who: &Caller| self.files.setattr(who, id, set.clone()).await;
        self.as_caller(header, setting).await?;
        Ok(Answer::Forgetting(id, Vec::new()))
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

/// The permission bits that a list of access rights comes to: that of a file's owner, its group and others, and of
/// nobody else.
fn mode_of(acl: &[u8]) -> Option<u32> {
    let (version, entries) = acl.split_first_chunk::<4>()?;
    let (entries, []) = entries.as_chunks::<ACL_ENTRY_BYTES>() else { return None };
    let number = |at: usize, entry: &[u8; ACL_ENTRY_BYTES]| {
        u32::from(u16::from_le_bytes([entry[at], entry[at + 1]]))
    };
    let is_plain = entries.iter().map(|entry| number(0, entry)).eq(ACL_TAGS)
        && entries.iter().all(|entry| number(2, entry) <= 7);
    let is_known = u32::from_le_bytes(*version) == ACL_VERSION;
    let bits = entries.iter().fold(0, |bits, entry| bits << 3 | number(2, entry));
    (is_known && is_plain).then_some(bits)
}

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// As linux/posix_acl_xattr.h has it.
const ACL_VERSION: u32 = 2;

/// Tag, permission and a user or group.
const ACL_ENTRY_BYTES: usize = 8;

/// The owner, the group, others.
const ACL_TAGS: [u32; 3] = [0x01, 0x04, 0x20];

/// Set-user-id, set-group-id and the sticky bit.
const SPECIAL_BITS: u32 = 0o7000;

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Vec<u8> {
        let entry = |&(tag, permission): &(u16, u16)| {
            [tag.to_le_bytes(), permission.to_le_bytes(), [0xff; 2], [0xff; 2]].concat()
        };
        [2_u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
    }

    #[test]
    fn a_list_of_access_rights_is_a_mode_where_it_names_nobody_else() {
        let plain = acl(&[(0x01, 6), (0x04, 5), (0x20, 4)]);
        assert_eq!(mode_of(&plain), Some(0o654));
        assert_eq!(mode_of(&plain[..plain.len() - 1]), None);
        assert_eq!(mode_of(&acl(&[(0x01, 6), (0x02, 7), (0x04, 5), (0x10, 7), (0x20, 4)])), None);
        assert_eq!(mode_of(&acl(&[(0x01, 8), (0x04, 5), (0x20, 4)])), None);
        assert_eq!(mode_of(&acl(&[(0x01, 6), (0x04, 5)])), None);
        assert_eq!(mode_of(&[]), None);
    }
}
