//! Extended attributes of the export's files.
//!
//! `user.*` belong to whoever may read or write the file, and `system.posix_acl_*` to its owner: the kernel
//! decides. The rest (`security.*`, `trusted.*`) is the machine's own: only root reaches it, over a
//! server that is root; for others it is not there, and cannot be set.

use super::object::{Object, errno};
use covey_ninep::tree::{Errno, Result, SetXattr, XATTR_BYTES_MAX};
use covey_wire::{Bytes, Name};
use rustix::fs::XattrFlags;

/// Which attributes a user may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum XattrRights {
    /// Those that users have.
    OfUsers,
    /// All.
    All,
}

impl XattrRights {
    fn reach(self, name: &[u8]) -> bool {
        const OF_USERS: [&[u8]; 2] = [b"user.", b"system.posix_acl_"];
        self == XattrRights::All || OF_USERS.iter().any(|prefix| name.starts_with(prefix))
    }

    fn check_change(self, name: &[u8]) -> Result<()> {
        if self.reach(name) {
            return Ok(());
        }
        let what = "attributes other than user.* are for root over a server that is root";
        Err(Errno::because(Errno::EPERM, what))
    }
}

pub(super) fn list(object: &Object, rights: XattrRights) -> Result<Vec<Name>> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = match rustix::fs::listxattr(path(object), &mut names[..]) {
        Ok(length) => length,
        // A file system without any: an empty list says the same.
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(error) => return Err(errno(error)),
    };
    let names = names[..length].split(|byte| *byte == 0);
    Ok(names.filter(|name| !name.is_empty() && rights.reach(name)).map(Name::from).collect())
}

pub(super) fn get(object: &Object, name: &[u8], rights: XattrRights) -> Result<Bytes> {
    if !rights.reach(name) {
        return Err(Errno::ENODATA.into());
    }
    let mut value = vec![0; XATTR_BYTES_MAX];
    let length = rustix::fs::getxattr(path(object), name, &mut value[..]).map_err(errno)?;
    Ok(Bytes::copy_from_slice(&value[..length]))
}

pub(super) fn set(
    object: &Object,
    name: &[u8],
    value: &[u8],
    rule: SetXattr,
    rights: XattrRights,
) -> Result<()> {
    rights.check_change(name)?;
    let flags = match rule {
        SetXattr::Any => XattrFlags::empty(),
        SetXattr::Create => XattrFlags::CREATE,
        SetXattr::Replace => XattrFlags::REPLACE,
    };
    rustix::fs::setxattr(path(object), name, value, flags).map_err(errno)
}

pub(super) fn remove(object: &Object, name: &[u8], rights: XattrRights) -> Result<()> {
    rights.check_change(name)?;
    rustix::fs::removexattr(path(object), name).map_err(errno)
}

/// The object itself, whatever its name is by now: these calls take no descriptor of a mere place.
fn path(object: &Object) -> String {
    format!("/proc/self/fd/{}", object.proc_name())
}
