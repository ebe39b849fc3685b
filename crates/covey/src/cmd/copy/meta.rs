//! Attributes as both sides understand them.

use super::super::path::kind;
use super::super::touch::{system_time, to_time};
use covey_ninep::tree::{SetAttr, SetTime};
use covey_stripe::ops::{Id, Inode, Nanos, nanos_of, seconds_of};
use covey_wire::Name;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// What is copied of a file besides its bytes.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last read.
    pub atime: Nanos,
    /// Last change.
    pub mtime: Nanos,
    /// It may have holes.
    pub is_sparse: bool,
    /// A symbolic link's target.
    pub target: Name,
    /// Names of it.
    pub nlink: u64,
    /// It has extended attributes, or may have.
    pub has_attributes: bool,
    /// Device and inode of a local file.
    pub identity: Option<(u64, u64)>,
    /// What it is in the file system.
    pub id: Option<Id>,
}

impl Meta {
    /// Of a file of this machine.
    pub fn local(meta: &Metadata, target: Option<PathBuf>) -> Meta {
        // The kernel's nanoseconds are never negative.
        let nanos = |seconds: i64, nanos: i64| nanos_of(seconds, nanos.cast_unsigned());
        Meta {
            mode: meta.mode(),
            uid: meta.uid(),
            gid: meta.gid(),
            size: meta.size(),
            atime: nanos(meta.atime(), meta.atime_nsec()),
            mtime: nanos(meta.mtime(), meta.mtime_nsec()),
            is_sparse: meta.blocks() * 512 < meta.size(),
            target: target
                .map_or(Name::from(""), |target| Name::from(target.as_os_str().as_bytes())),
            nlink: meta.nlink(),
            has_attributes: true,
            identity: Some((meta.dev(), meta.ino())),
            id: None,
        }
    }

    /// Of a file of the file system.
    pub fn covey(inode: &Inode) -> Meta {
        Meta {
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size,
            atime: inode.atime,
            mtime: inode.mtime,
            is_sparse: inode.sparse,
            target: inode.target.clone(),
            nlink: inode.nlink.into(),
            has_attributes: inode.has_xattrs,
            identity: None,
            id: Some(inode.id),
        }
    }

    /// The type bits.
    pub fn kind(&self) -> u32 {
        self.mode & kind::MASK
    }

    /// The permission bits.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// What `-p` sets inside the file system: owners only for root, who alone may give files away.
    pub fn set_attr(&self, is_root: bool) -> SetAttr {
        SetAttr {
            mode: Some(self.permissions()),
            uid: is_root.then_some(self.uid),
            gid: is_root.then_some(self.gid),
            size: None,
            atime: Some(SetTime::To(to_time(self.atime))),
            mtime: Some(SetTime::To(to_time(self.mtime))),
        }
    }

    /// What `-p` sets on this machine.
    pub fn set_local(&self, file: &std::fs::File, is_root: bool) -> std::io::Result<()> {
        if is_root {
            std::os::unix::fs::fchown(file, Some(self.uid), Some(self.gid))?;
        }
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(self.permissions()))?;
        let (accessed, modified) = (system_time(self.atime), system_time(self.mtime));
        let times = std::fs::FileTimes::new().set_accessed(accessed).set_modified(modified);
        file.set_times(times)
    }

    /// What `-p` sets of a symbolic link itself on this machine: it has times and owners, but no
    /// mode.
    pub fn set_local_link(&self, path: &std::path::Path, is_root: bool) -> std::io::Result<()> {
        use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
        if is_root {
            std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid))?;
        }
        let time = |nanos: Nanos| {
            let (tv_sec, nanos) = seconds_of(nanos);
            Timespec { tv_sec, tv_nsec: nanos.into() }
        };
        let times =
            Timestamps { last_access: time(self.atime), last_modification: time(self.mtime) };
        Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}
