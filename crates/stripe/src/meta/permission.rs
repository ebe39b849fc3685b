//! Who may do what: the checks of POSIX, as Linux makes them.

use super::fault::{Fault, refuse};
use super::keys::Named;
use crate::ops::{Caller, DirEntry, Inode};
use covey_ninep::tree::Errno;

/// Type bits of a mode and the special permission bits, as in stat(2).
#[allow(missing_docs)]
pub mod mode {
    pub const TYPE: u32 = 0o170_000;
    pub const SOCKET: u32 = 0o140_000;
    pub const SYMLINK: u32 = 0o120_000;
    pub const REGULAR: u32 = 0o100_000;
    pub const BLOCK: u32 = 0o060_000;
    pub const DIRECTORY: u32 = 0o040_000;
    pub const CHARACTER: u32 = 0o020_000;
    pub const FIFO: u32 = 0o010_000;
    pub const SETUID: u32 = 0o4000;
    pub const SETGID: u32 = 0o2000;
    pub const STICKY: u32 = 0o1000;
    pub const PERMISSIONS: u32 = 0o7777;
}

/// A directory, as directory entries have it.
const DIRECTORY_KIND: u8 = (mode::DIRECTORY >> 12) as u8;

/// Bits of an access.
#[allow(missing_docs)]
pub mod access {
    pub const READ: u8 = 4;
    pub const WRITE: u8 = 2;
    pub const EXECUTE: u8 = 1;
    pub const BOTH: u8 = READ | WRITE;
    pub const NONE: u8 = 0;
    /// With Create: if it makes the file, nobody else is told of that before the maker has said what
    /// it did to it ([`crate::meta::lease::Leases::leave_alone`]).
    pub const ALONE: u8 = 8;
}

impl Inode {
    /// The type bits of the mode.
    pub fn type_bits(&self) -> u32 {
        self.mode & mode::TYPE
    }

    /// Whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.type_bits() == mode::DIRECTORY
    }

    /// Whether this is a regular file.
    pub fn is_regular(&self) -> bool {
        self.type_bits() == mode::REGULAR
    }

    /// The type as directory entries have it.
    pub fn kind(&self) -> u8 {
        (self.mode >> 12) as u8
    }
}

impl DirEntry {
    /// Whether the name leads to a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == DIRECTORY_KIND
    }
}

impl Named {
    /// Whether the name leads to a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == DIRECTORY_KIND
    }
}

impl Caller {
    /// Whether this is the superuser, who passes most checks.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller belongs to a group.
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.0.contains(&gid)
    }

    /// Whether the caller may act as the file's owner.
    pub fn owns(&self, inode: &Inode) -> bool {
        self.is_root() || self.uid == inode.uid
    }
}

/// Whether the mode lets the caller do all of `wanted` (bits of [`access`]).
pub fn may(caller: &Caller, inode: &Inode, wanted: u8) -> bool {
    if caller.is_root() {
        // Root still cannot execute what nobody can.
        let runnable = inode.is_dir() || inode.mode & 0o111 != 0;
        return wanted & access::EXECUTE == 0 || runnable;
    }
    let shift = match () {
        () if caller.uid == inode.uid => 6,
        () if caller.is_in(inode.gid) => 3,
        () => 0,
    };
    let granted = (inode.mode >> shift) as u8 & 7;
    granted & wanted == wanted
}

/// Refuses with EACCES what the mode does not allow.
pub(super) fn check(caller: &Caller, inode: &Inode, wanted: u8) -> Result<(), Fault> {
    if may(caller, inode, wanted) {
        return Ok(());
    }
    let what = match wanted {
        access::READ => "read",
        access::WRITE => "write",
        access::EXECUTE if inode.is_dir() => "search",
        access::EXECUTE => "execute",
        _ if inode.is_dir() => "change",
        _ => "open",
    };
    let (bits, id) = (inode.mode & mode::PERMISSIONS, inode.id);
    refuse(Errno::EACCES, format!("uid {} may not {what} file {id}, mode {bits:04o}", caller.uid))
}

/// Whether a sticky directory lets the caller take `victim`'s name out of it.
pub fn may_take_out(caller: &Caller, dir: &Inode, victim: &Inode) -> bool {
    let is_sticky = dir.mode & mode::STICKY != 0;
    !is_sticky || caller.owns(dir) || caller.owns(victim)
}

/// Refuses with EPERM to take `victim`'s name out of a sticky directory that is somebody else's.
pub(super) fn check_sticky(caller: &Caller, dir: &Inode, victim: &Inode) -> Result<(), Fault> {
    if may_take_out(caller, dir, victim) {
        return Ok(());
    }
    refuse(
        Errno::EPERM,
        format!("directory {} is sticky and uid {} owns neither", dir.id, caller.uid),
    )
}

/// The mode after `caller` changed the content or the owner: no longer set-user-ID, nor set-group-ID
/// where that means execution. Where it does not, it still goes unless the caller is root or in the
/// group, which might make it executable later.
pub fn without_privilege(caller: &Caller, mode: u32, gid: u32) -> u32 {
    let keeps = mode & 0o010 == 0 && (caller.is_root() || caller.is_in(gid));
    mode & !(mode::SETUID | if keeps { 0 } else { mode::SETGID })
}

/// Content was written by `caller`: the privilege bits go unless root wrote.
pub(super) fn written_by(caller: &Caller, inode: &mut Inode) {
    if !caller.is_root() && inode.is_regular() {
        inode.mode = without_privilege(caller, inode.mode, inode.gid);
    }
}
