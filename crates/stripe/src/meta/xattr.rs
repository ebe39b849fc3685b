//! Extended attributes: who may see and change them, by xattr(7), and what they may hold.
//!
//! Each is a row of its own, `'x' id name`; the inode says whether there are any, so that the many
//! files without cost nothing when they are looked at or removed. The limits are Linux's own, and
//! one of ours on what a file's values take together, since the store is shared by all.

use super::fault::{Fault, refuse};
use super::keys::{self, Stored};
use super::names::touched;
use super::permission::{access, check, mode};
use super::{Applied, Store, done};
use crate::kv::Kv;
use crate::ops::{Caller, Id, Inode, Op, Reply, Request, xattr};
use covey_ninep::tree::Errno;
use covey_wire::{List, Name, Payload};

/// The longest value, in bytes.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// The names of one file together, each with its NUL, as listxattr(2) gives them.
pub const XATTR_LIST_BYTES_MAX: usize = 64 << 10;

/// The names and values of one file together.
pub const XATTR_FILE_BYTES_MAX: usize = 1 << 20;

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Namespaces; everything else, system.posix_acl_access included, is not supported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    /// By the file's permission bits; of plain files and directories only.
    User,
    /// Root's own: nobody else sees them.
    Trusted,
    /// Set by root, read by all.
    Security,
}

/// What a file has, added up.
#[derive(Default)]
struct Totals {
    list_bytes: usize,
    file_bytes: usize,
}

impl<K: Kv> Store<K> {
    pub(super) fn setxattr(&mut self, request: &Request) -> Result<Applied, Fault> {
        let Op::Setxattr { id, name, value, flags } = &request.op else {
            return refuse(Errno::EINVAL, "not a setxattr");
        };
        let space = space_of(name)?;
        let mut stored = self.stored(*id)?;
        may_change(&request.caller, &stored.inode, space)?;
        let bytes = value.len();
        if bytes > XATTR_VALUE_BYTES_MAX {
            let text = format!("the value has {bytes} bytes, limit is {XATTR_VALUE_BYTES_MAX}");
            return refuse(Errno::E2BIG, text);
        }
        if flags & !(xattr::CREATE | xattr::REPLACE) != 0 {
            return refuse(Errno::EINVAL, format!("setxattr flags {flags:#x} are not known"));
        }
        let key = keys::xattr(*id, name.as_bytes());
        let old = if stored.inode.has_xattrs { self.row::<Payload>(&key)? } else { None };
        match &old {
            Some(_) if flags & xattr::CREATE != 0 => {
                return refuse(Errno::EEXIST, format!("file {id} has {name} already"));
            }
            None if flags & xattr::REPLACE != 0 => return no_such(*id, name),
            _ => {}
        }
        self.must_fit(&stored.inode, name, bytes, old.as_ref().map(Payload::len))?;
        self.put_row(&key, value)?;
        stored.inode.has_xattrs = true;
        touched(&mut stored.inode, request.now);
        self.save(&stored)?;
        Ok(done())
    }

    pub(super) fn removexattr(
        &mut self,
        request: &Request,
        id: Id,
        name: &Name,
    ) -> Result<Applied, Fault> {
        let space = space_of(name)?;
        let mut stored = self.stored(id)?;
        may_change(&request.caller, &stored.inode, space)?;
        let key = keys::xattr(id, name.as_bytes());
        if !stored.inode.has_xattrs || !self.delete(&key)? {
            return no_such(id, name);
        }
        self.note_last(&mut stored)?;
        touched(&mut stored.inode, request.now);
        self.save(&stored)?;
        Ok(done())
    }

    pub(super) fn getxattr(&self, caller: &Caller, id: Id, name: &Name) -> Result<Applied, Fault> {
        let space = space_of(name)?;
        let inode = self.stored(id)?.inode;
        may_see(caller, &inode, space, name)?;
        let key = keys::xattr(id, name.as_bytes());
        match if inode.has_xattrs { self.row::<Payload>(&key)? } else { None } {
            Some(value) => Ok(Applied::Reply(Reply::Xattr { value })),
            None => no_such(id, name),
        }
    }

    pub(super) fn listxattr(&self, caller: &Caller, id: Id) -> Result<Applied, Fault> {
        let inode = self.stored(id)?.inode;
        let mut names = Vec::new();
        if inode.has_xattrs {
            self.visit_xattrs(id, |name, _| {
                if caller.is_root() || !name.starts_with(b"trusted.") {
                    names.push(Name::from(name));
                }
            })?;
        }
        Ok(Applied::Reply(Reply::XattrNames { names: List(names) }))
    }

    /// The file is gone for good, and so are they.
    pub(super) fn forget_xattrs(&mut self, id: Id) -> Result<(), Fault> {
        let mut doomed = Vec::new();
        self.visit_xattrs(id, |name, _| doomed.push(keys::xattr(id, name)))?;
        for key in doomed {
            self.delete(&key)?;
        }
        Ok(())
    }

    /// Clears the inode's mark with the last one. The caller saves the inode.
    fn note_last(&self, stored: &mut Stored) -> Result<(), Fault> {
        let mut any = false;
        self.visit_xattrs(stored.inode.id, |_, _| any = true)?;
        stored.inode.has_xattrs = any;
        Ok(())
    }

    /// Refuses what would take a file over its limits.
    fn must_fit(
        &self,
        inode: &Inode,
        name: &Name,
        bytes: usize,
        replaced: Option<usize>,
    ) -> Result<(), Fault> {
        let mut totals = Totals::default();
        if inode.has_xattrs {
            self.visit_xattrs(inode.id, |name, bytes| totals.add(name.len(), bytes))?;
        }
        match replaced {
            // The old value goes, the name stays.
            Some(old) => totals.file_bytes = totals.file_bytes - old + bytes,
            None => totals.add(name.len(), bytes),
        }
        if totals.list_bytes > XATTR_LIST_BYTES_MAX {
            let text = format!("the names of file {} pass {XATTR_LIST_BYTES_MAX} bytes", inode.id);
            return refuse(Errno::ENOSPC, text);
        }
        if totals.file_bytes > XATTR_FILE_BYTES_MAX {
            let (id, limit) = (inode.id, XATTR_FILE_BYTES_MAX);
            return refuse(
                Errno::ENOSPC,
                format!("the attributes of file {id} pass {limit} bytes"),
            );
        }
        Ok(())
    }

    /// Names and lengths of values, in the order of the names.
    fn visit_xattrs(&self, id: Id, mut visit: impl FnMut(&[u8], usize)) -> Result<(), Fault> {
        let prefix = keys::numbered(b'x', id);
        let mut each = |key: &[u8], value: &[u8]| {
            let Some(name) = key.strip_prefix(&prefix[..]) else { return false };
            visit(name, value.len().saturating_sub(keys::PAYLOAD_HEADER_BYTES));
            true
        };
        self.kv.scan(&prefix, &mut each).map_err(Fault::Broken)
    }
}

impl Totals {
    fn add(&mut self, name_bytes: usize, value_bytes: usize) {
        self.list_bytes += name_bytes + 1;
        self.file_bytes += name_bytes + 1 + value_bytes;
    }
}

/// The namespace of a name that may be used.
fn space_of(name: &Name) -> Result<Space, Fault> {
    let bytes = name.as_bytes();
    if bytes.len() > NAME_BYTES_MAX {
        let length = bytes.len();
        let text = format!("the attribute's name has {length} bytes, limit is {NAME_BYTES_MAX}");
        return refuse(Errno::ERANGE, text);
    }
    if bytes.contains(&0) {
        return refuse(Errno::EINVAL, format!("the attribute's name {name:?} holds NUL"));
    }
    // A file capability must go with the next write, and IMA's and EVM's marks are the kernel's own
    // proofs of what lies on a local disk: neither can be kept here.
    let kernels_own = [&b"security.capability"[..], b"security.ima", b"security.evm"];
    let spaces = [
        (&b"user."[..], Space::User),
        (b"trusted.", Space::Trusted),
        (b"security.", Space::Security),
    ];
    let found = spaces.iter().find(|(prefix, _)| bytes.starts_with(prefix));
    match found {
        Some((prefix, _)) if bytes.len() == prefix.len() => {
            refuse(Errno::EINVAL, format!("the attribute's name {name:?} is a prefix alone"))
        }
        Some((_, space)) if !kernels_own.contains(&bytes) => Ok(*space),
        _ => refuse(Errno::EOPNOTSUPP, format!("attributes like {name} are not supported")),
    }
}

fn no_such<T>(id: Id, name: &Name) -> Result<T, Fault> {
    refuse(Errno::ENODATA, format!("file {id} has no {name}"))
}

fn takes_user_attributes(inode: &Inode) -> bool {
    inode.is_regular() || inode.is_dir()
}

fn may_see(caller: &Caller, inode: &Inode, space: Space, name: &Name) -> Result<(), Fault> {
    match space {
        Space::Trusted if !caller.is_root() => no_such(inode.id, name),
        Space::User if !takes_user_attributes(inode) => no_such(inode.id, name),
        Space::User => check(caller, inode, access::READ),
        _ => Ok(()),
    }
}

fn may_change(caller: &Caller, inode: &Inode, space: Space) -> Result<(), Fault> {
    if space != Space::User {
        return if caller.is_root() {
            Ok(())
        } else {
            refuse(Errno::EPERM, "only root sets attributes that are not user.*")
        };
    }
    if !takes_user_attributes(inode) {
        let text = "only plain files and directories have user.* attributes";
        return refuse(Errno::EPERM, text);
    }
    // Anybody may write into a sticky directory such as /tmp, but not mark it.
    if inode.is_dir() && inode.mode & mode::STICKY != 0 && !caller.owns(inode) {
        return refuse(Errno::EPERM, format!("directory {} is sticky", inode.id));
    }
    check(caller, inode, access::WRITE)
}
