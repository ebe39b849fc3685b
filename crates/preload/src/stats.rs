//! stat(2) and its kin: as many names as libc has had for it.

use crate::boundary::{Result, export, refuse, serve};
use crate::client::{caller, client, wait};
use crate::open::permits;
use crate::place::{Place, by_path};
use crate::walk::{Follow, resolve};
use crate::{real, table};
use covey_ninep::tree::Errno;
use covey_stripe::client::Stat;
use covey_stripe::ops::{Inode, Nanos, seconds_of};
use libc::{AT_FDCWD, c_char, c_int, c_uint};

/// The struct, which has the name of a function.
type Status = libc::stat;

fn of_place(place: &Place, flags: c_int) -> Result<Stat> {
    let follow = match flags & libc::AT_SYMLINK_NOFOLLOW {
        0 => Follow::Last,
        _ => Follow::NotLast,
    };
    let inode = resolve(place, follow)?.node()?;
    let client = client()?;
    wait(&client, async { Ok(client.with_blocks(inode).await) })
}

fn of_descriptor(fd: c_int) -> Result<Stat> {
    let open = table::lock().get(&fd).cloned();
    let Some(open) = open else { return refuse(libc::EBADF) };
    let client = client()?;
    wait(&client, client.stat(open.id()))
}

/// Our device number: no driver has major 0 and so high a minor one.
pub const DEVICE: u64 = 0xc0_4e0;

fn split(time: Nanos) -> (i64, i64) {
    let (seconds, nanos) = seconds_of(time);
    (seconds, nanos.into())
}

fn blocks(stat: &Stat) -> i64 {
    stat.blocks as i64
}

/// # Safety
///
/// `out` is null or a place for the struct.
unsafe fn fill(found: &Stat, out: *mut Status) -> Result<c_int> {
    if out.is_null() {
        return refuse(libc::EFAULT);
    }
    let inode = &found.inode;
    // SAFETY: a stat of zeros is valid.
    let mut stat: Status = unsafe { std::mem::zeroed() };
    stat.st_dev = DEVICE;
    stat.st_ino = inode.id;
    stat.st_mode = inode.mode;
    stat.st_nlink = u64::from(inode.nlink) as _;
    (stat.st_uid, stat.st_gid) = (inode.uid, inode.gid);
    stat.st_rdev = inode.rdev;
    stat.st_size = inode.size as i64;
    stat.st_blksize = IO_BLOCK_BYTES as _;
    stat.st_blocks = blocks(found);
    (stat.st_atime, stat.st_atime_nsec) = split(inode.atime);
    (stat.st_mtime, stat.st_mtime_nsec) = split(inode.mtime);
    (stat.st_ctime, stat.st_ctime_nsec) = split(inode.ctime);
    // SAFETY: not null, so the caller's promise.
    unsafe { out.write(stat) };
    Ok(0)
}

export! { fn stat | stat64(path: *const c_char, out: *mut Status) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::stat()(path, out), |place| fill(&of_place(place, 0)?, out)) }
} }
export! { fn lstat | lstat64(path: *const c_char, out: *mut Status) -> c_int {
    const HOW: c_int = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::lstat()(path, out), |place| fill(&of_place(place, HOW)?, out)) }
} }
export! { fn fstat | fstat64(fd: c_int, out: *mut Status) -> c_int {
    match table::find(fd) {
        // SAFETY: the program's own arguments.
        None => unsafe { real::fstat()(fd, out) },
        // SAFETY: the program's own struct.
        Some(_) => serve(|| unsafe { fill(&of_descriptor(fd)?, out) }),
    }
} }
export! { fn fstatat | fstatat64(dirfd: c_int, path: *const c_char, out: *mut Status, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        by_path(dirfd, path, |path| real::fstatat()(dirfd, path, out, flags), |place| {
            fill(&of_place(place, flags)?, out)
        })
    }
} }
export! { fn __xstat | __xstat64(version: c_int, path: *const c_char, out: *mut Status) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::__xstat()(version, path, out), |place| fill(&of_place(place, 0)?, out)) }
} }
export! { fn __lxstat | __lxstat64(version: c_int, path: *const c_char, out: *mut Status) -> c_int {
    const HOW: c_int = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::__lxstat()(version, path, out), |place| fill(&of_place(place, HOW)?, out)) }
} }
export! { fn __fxstat | __fxstat64(version: c_int, fd: c_int, out: *mut Status) -> c_int {
    match table::find(fd) {
        // SAFETY: the program's own arguments.
        None => unsafe { real::__fxstat()(version, fd, out) },
        // SAFETY: the program's own struct.
        Some(_) => serve(|| unsafe { fill(&of_descriptor(fd)?, out) }),
    }
} }
export! { fn __fxstatat | __fxstatat64(version: c_int, dirfd: c_int, path: *const c_char, out: *mut Status, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        by_path(dirfd, path, |path| real::__fxstatat()(version, dirfd, path, out, flags), |place| {
            fill(&of_place(place, flags)?, out)
        })
    }
} }

export! { fn statx(dirfd: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        by_path(dirfd, path, |path| real::statx()(dirfd, path, flags, mask, out), |place| {
            fill_extended(&of_place(place, flags)?, out)
        })
    }
} }

/// # Safety
///
/// `out` is null or a place for the struct.
unsafe fn fill_extended(found: &Stat, out: *mut libc::statx) -> Result<c_int> {
    if out.is_null() {
        return refuse(libc::EFAULT);
    }
    let inode = &found.inode;
    let time = |time: Nanos| {
        let (seconds, nanoseconds) = split(time);
        // SAFETY: a timestamp of zeros is valid.
        let mut stamp: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        stamp.tv_sec = seconds;
        stamp.tv_nsec = nanoseconds as u32;
        stamp
    };
    // SAFETY: a statx of zeros is valid.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    stat.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    stat.stx_blksize = IO_BLOCK_BYTES;
    stat.stx_nlink = inode.nlink;
    (stat.stx_uid, stat.stx_gid) = (inode.uid, inode.gid);
    stat.stx_mode = inode.mode as u16;
    stat.stx_ino = inode.id;
    stat.stx_size = inode.size;
    stat.stx_blocks = blocks(found) as u64;
    stat.stx_atime = time(inode.atime);
    stat.stx_mtime = time(inode.mtime);
    stat.stx_ctime = time(inode.ctime);
    stat.stx_btime = time(inode.btime);
    stat.stx_dev_major = libc::major(DEVICE);
    stat.stx_dev_minor = libc::minor(DEVICE);
    stat.stx_rdev_major = libc::major(inode.rdev);
    stat.stx_rdev_minor = libc::minor(inode.rdev);
    // SAFETY: not null, so the caller's promise.
    unsafe { out.write(stat) };
    Ok(0)
}

/// access(2): judged by the real user, or the effective one.
fn judge(place: &Place, mode: c_int, effective: bool, flags: c_int) -> Result<c_int> {
    let follow = match flags & libc::AT_SYMLINK_NOFOLLOW {
        0 => Follow::Last,
        _ => Follow::NotLast,
    };
    let inode: Inode = resolve(place, follow)?.node()?;
    let mut who = caller();
    if !effective {
        // SAFETY: no arguments.
        (who.uid, who.gid) = unsafe { (libc::getuid(), libc::getgid()) };
    }
    if mode & !7 == 0 && permits(&inode, &who, mode as u32 & 7) {
        Ok(0)
    } else {
        Err(Errno::EACCES.into())
    }
}

export! { fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::access()(path, mode), |place| judge(place, mode, false, 0)) }
} }
export! { fn euidaccess | eaccess(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::euidaccess()(path, mode), |place| judge(place, mode, true, 0)) }
} }
export! { fn faccessat(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        by_path(dirfd, path, |path| real::faccessat()(dirfd, path, mode, flags), |place| {
            judge(place, mode, flags & libc::AT_EACCESS != 0, flags)
        })
    }
} }

/// # Safety
///
/// `file_system` is a place for the struct.
unsafe fn space(file_system: *mut libc::statvfs) -> Result<c_int> {
    let client = client()?;
    let found = wait(&client, client.space())?;
    // SAFETY: a struct of zeros is valid.
    let mut out: libc::statvfs = unsafe { std::mem::zeroed() };
    (out.f_bsize, out.f_frsize) = (SPACE_BLOCK_BYTES, SPACE_BLOCK_BYTES);
    out.f_blocks = found.bytes_total / SPACE_BLOCK_BYTES;
    out.f_bfree = found.bytes_free / SPACE_BLOCK_BYTES;
    out.f_bavail = found.bytes_available / SPACE_BLOCK_BYTES;
    out.f_files = found.files + out.f_bavail;
    (out.f_ffree, out.f_favail) = (out.f_bavail, out.f_bavail);
    out.f_namemax = 255;
    // SAFETY: the caller's promise.
    unsafe { file_system.write(out) };
    Ok(0)
}

/// # Safety
///
/// `out` is a place for the struct.
unsafe fn space_in_linux(out: *mut libc::statfs) -> Result<c_int> {
    // SAFETY: structs of zeros are valid; the last write goes where the caller promises a place.
    unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        space(&mut found)?;
        let mut stat: libc::statfs = std::mem::zeroed();
        stat.f_type = FILE_SYSTEM as _;
        (stat.f_bsize, stat.f_frsize) = (SPACE_BLOCK_BYTES as _, SPACE_BLOCK_BYTES as _);
        (stat.f_blocks, stat.f_bfree) = (found.f_blocks, found.f_bfree);
        (stat.f_bavail, stat.f_files) = (found.f_bavail, found.f_files);
        (stat.f_ffree, stat.f_namelen) = (found.f_ffree, 255);
        out.write(stat);
    }
    Ok(0)
}

export! { fn statvfs | statvfs64(path: *const c_char, out: *mut libc::statvfs) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::statvfs()(path, out), |place| { of_place(place, 0)?; space(out) }) }
} }
export! { fn fstatvfs | fstatvfs64(fd: c_int, out: *mut libc::statvfs) -> c_int {
    match table::find(fd) {
        // SAFETY: the program's own arguments.
        None => unsafe { real::fstatvfs()(fd, out) },
        // SAFETY: the program's own struct.
        Some(_) => serve(|| unsafe { space(out) }),
    }
} }
export! { fn statfs | statfs64(path: *const c_char, out: *mut libc::statfs) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::statfs()(path, out), |place| { of_place(place, 0)?; space_in_linux(out) }) }
} }
export! { fn fstatfs | fstatfs64(fd: c_int, out: *mut libc::statfs) -> c_int {
    match table::find(fd) {
        // SAFETY: the program's own arguments.
        None => unsafe { real::fstatfs()(fd, out) },
        // SAFETY: the program's own struct.
        Some(_) => serve(|| unsafe { space_in_linux(out) }),
    }
} }

/// What programs take as the size of a good request.
pub const IO_BLOCK_BYTES: u32 = 128 << 10;
const SPACE_BLOCK_BYTES: u64 = 4096;
/// What statfs(2) says of a FUSE mount: programs that treat the two alike are right.
const FILE_SYSTEM: u32 = 0x6573_5546;
