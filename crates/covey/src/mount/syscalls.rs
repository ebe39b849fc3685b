//! Mounting and unmounting, as root.

use super::MountOptions;
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Mounts a FUSE file system on `target` and answers its device.
pub fn fuse_mount(target: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = open("/dev/fuse", flags, Mode::empty())?;
    let mut data = format!("fd={},rootmode=40000,user_id=0,group_id=0", fd.as_raw_fd());
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if options.read_only {
        flags |= MountFlags::RDONLY;
    }
    let data = CString::new(data).map_err(io::Error::other)?;
    rustix::mount::mount(&*options.fsname, target, "fuse.covey", flags, &*data)?;
    Ok(fd)
}

/// Another descriptor of the same connection.
pub fn clone_fd(fd: &OwnedFd) -> io::Result<OwnedFd> {
    fd.try_clone()
}

/// Unmounts lazily.
pub fn unmount(target: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(target, UnmountFlags::DETACH)?)
}
