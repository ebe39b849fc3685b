//! Names and what is said of them: unlink, rename, mkdir, links, modes, owners, times.

use crate::boundary::{Result, Stop, export, fail, refuse, serve};
use crate::client::{caller, client, wait};
use crate::cwd::hand_out;
use crate::place::{Place, Where, by_path, locate};
use crate::walk::{Follow, resolve};
use crate::{real, table};
use covey_ninep::tree::{Errno, Removal, SetAttr, SetTime, Time};
use covey_stripe::client::{Taken, access};
use covey_stripe::ops::Id;
use covey_wire::Name;
use libc::{
    AT_FDCWD, c_char, c_int, c_uint, dev_t, gid_t, mode_t, size_t, ssize_t, timespec, timeval,
    uid_t,
};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};

static UMASK: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = u32::MAX;

/// The program has set its umask.
pub fn note_umask(mask: mode_t) {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
}

/// A mode without what the umask forbids. Asking the kernel for the umask means changing it for a
/// moment; /proc tells it without that.
pub fn masked(mode: mode_t) -> u32 {
    let mask = match UMASK.load(Ordering::Relaxed) {
        UNKNOWN => {
            let mask = umask_of_this_process().unwrap_or(0o022);
            UMASK.store(mask, Ordering::Relaxed);
            mask
        }
        mask => mask,
    };
    mode & 0o7777 & !mask
}

fn umask_of_this_process() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

fn take_away(place: &Place, what: Option<Removal>) -> Result<c_int> {
    let found = resolve(place, Follow::NotLast)?;
    let last = place.path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty());
    match last {
        Some(b".") if what == Some(Removal::Directory) => return refuse(libc::EINVAL),
        Some(b"..") if what == Some(Removal::Directory) => return refuse(libc::ENOTEMPTY),
        _ => {}
    }
    let (parent, name, inode) = found.entry()?;
    let what = what.unwrap_or(Removal::directory_if(inode.is_dir()));
    let client = client()?;
    wait(&client, client.unlink(&caller(), parent, &name, what))?;
    Ok(0)
}

fn make(place: &Place, mode: u32, rdev: u64, target: Name) -> Result<c_int> {
    let found = resolve(place, Follow::NotLast)?;
    let is_dir = mode & libc::S_IFMT == libc::S_IFDIR;
    if found.wants_dir && !is_dir && found.inode.is_none() {
        return refuse(libc::ENOENT);
    }
    let (parent, name) = found.vacancy()?;
    let client = client()?;
    wait(&client, client.make(&caller(), parent, &name, mode, rdev, target))?;
    Ok(0)
}

fn make_node(place: &Place, mode: mode_t, device: dev_t) -> Result<c_int> {
    let kind = if mode & libc::S_IFMT == 0 { libc::S_IFREG } else { mode & libc::S_IFMT };
    if kind != libc::S_IFREG {
        return make(place, kind | masked(mode), device, Name::EMPTY);
    }
    let (parent, name) = resolve(place, Follow::NotLast)?.vacancy()?;
    let client = client()?;
    wait(
        &client,
        client.create(&caller(), parent, &name, masked(mode), Taken::Refuse, access::NONE),
    )?;
    Ok(0)
}

/// A call on two paths: both ours, none, or EXDEV as between file systems.
///
/// # Safety
///
/// Both paths are null or end with a zero.
unsafe fn by_two_paths(
    (from_dir, from): (c_int, *const c_char),
    (to_dir, to): (c_int, *const c_char),
    real: impl FnOnce(*const c_char, *const c_char) -> c_int,
    ours: impl FnOnce(&Place, &Place) -> Result<c_int>,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { (locate(from_dir, from), locate(to_dir, to)) } {
        (Where::Real(from), Where::Real(to)) => real(from.pointer(), to.pointer()),
        (Where::Ours(from), Where::Ours(to)) => serve(|| ours(&{ from }, &{ to })),
        _ => fail(libc::EXDEV),
    }
}

fn rename_places(from: &Place, to: &Place, flags: c_uint) -> Result<c_int> {
    let source = resolve(from, Follow::NotLast)?;
    let target = resolve(to, Follow::NotLast)?;
    let makes_dir = source.inode.as_ref().is_some_and(|inode| inode.is_dir());
    let (parent, name, _) = source.entry()?;
    if target.wants_dir && !makes_dir {
        return refuse(libc::ENOTDIR);
    }
    let to_name = target.name.ok_or(Stop::from(Errno::EBUSY))?;
    let client = client()?;
    let who = caller();
    wait(&client, client.rename(&who, parent, &name, target.parent, &to_name, flags))?;
    Ok(0)
}

fn link_places(from: &Place, to: &Place, flags: c_int) -> Result<c_int> {
    let follow = match flags & libc::AT_SYMLINK_FOLLOW {
        0 => Follow::NotLast,
        _ => Follow::Last,
    };
    let inode = resolve(from, follow)?.node()?;
    let (parent, name) = resolve(to, Follow::NotLast)?.vacancy()?;
    let client = client()?;
    wait(&client, client.link(&caller(), inode.id, parent, &name))?;
    Ok(0)
}

export! { fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::unlink()(path), |place| take_away(place, Some(Removal::File))) }
} }
export! { fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::rmdir()(path), |place| take_away(place, Some(Removal::Directory))) }
} }
export! { fn remove(path: *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::remove()(path), |place| take_away(place, None)) }
} }
export! { fn unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
    let what = Removal::directory_if(flags & libc::AT_REMOVEDIR != 0);
    // SAFETY: the program's own arguments.
    unsafe { by_path(dirfd, path, |path| real::unlinkat()(dirfd, path, flags), |place| take_away(place, Some(what))) }
} }
export! { fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        by_two_paths((AT_FDCWD, from), (AT_FDCWD, to), |from, to| real::rename()(from, to), |from, to| rename_places(from, to, 0))
    }
} }
export! { fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let pass = |from, to| real::renameat()(from_dir, from, to_dir, to);
        by_two_paths((from_dir, from), (to_dir, to), pass, |from, to| rename_places(from, to, 0))
    }
} }
export! { fn renameat2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let pass = |from, to| real::renameat2()(from_dir, from, to_dir, to, flags);
        by_two_paths((from_dir, from), (to_dir, to), pass, |from, to| match flags & !3 {
            0 => rename_places(from, to, flags),
            _ => refuse(libc::EINVAL),
        })
    }
} }
export! { fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        by_two_paths((AT_FDCWD, from), (AT_FDCWD, to), |from, to| real::link()(from, to), |from, to| link_places(from, to, 0))
    }
} }
export! { fn linkat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let pass = |from, to| real::linkat()(from_dir, from, to_dir, to, flags);
        by_two_paths((from_dir, from), (to_dir, to), pass, |from, to| link_places(from, to, flags))
    }
} }
export! { fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { mkdirat(AT_FDCWD, path, mode) }
} }
export! { fn mkdirat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        by_path(dirfd, path, |path| real::mkdirat()(dirfd, path, mode), |place| {
            make(place, libc::S_IFDIR | masked(mode), 0, Name::EMPTY)
        })
    }
} }
export! { fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::mknod()(path, mode, device), |place| make_node(place, mode, device)) }
} }
export! { fn mknodat(dirfd: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(dirfd, path, |path| real::mknodat()(dirfd, path, mode, device), |place| make_node(place, mode, device)) }
} }
export! { fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::mkfifo()(path, mode), |place| make_node(place, libc::S_IFIFO | mode, 0)) }
} }
export! { fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { symlinkat(target, AT_FDCWD, path) }
} }
export! { fn symlinkat(target: *const c_char, dirfd: c_int, path: *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        by_path(dirfd, path, |path| real::symlinkat()(target, dirfd, path), |place| {
            match CStr::from_ptr(target).to_bytes() {
                b"" => refuse(libc::ENOENT),
                target => make(place, libc::S_IFLNK | 0o777, 0, target.into()),
            }
        })
    }
} }

fn target_of(place: &Place) -> Result<Name> {
    let inode = resolve(place, Follow::NotLast)?.node()?;
    if inode.mode & libc::S_IFMT == libc::S_IFLNK { Ok(inode.target) } else { refuse(libc::EINVAL) }
}

export! { fn readlink(path: *const c_char, buffer: *mut c_char, room: size_t) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe { readlinkat(AT_FDCWD, path, buffer, room) }
} }
export! { fn __readlink_chk(path: *const c_char, buffer: *mut c_char, room: size_t, _size: size_t) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe { readlinkat(AT_FDCWD, path, buffer, room) }
} }
export! { fn readlinkat(dirfd: c_int, path: *const c_char, buffer: *mut c_char, room: size_t) -> ssize_t {
    // SAFETY: the program's own arguments; no more than `room` bytes are copied.
    unsafe {
        by_path(dirfd, path, |path| real::readlinkat()(dirfd, path, buffer, room), |place| {
            let target = target_of(place)?;
            let count = target.len().min(room);
            std::ptr::copy_nonoverlapping(target.as_bytes().as_ptr().cast(), buffer, count);
            Ok(count as ssize_t)
        })
    }
} }

/// The path without symbolic links: the last one is found, those before it are taken as written.
fn real_path(place: &Place) -> Result<Vec<u8>> {
    let mut place = place.clone();
    for _ in 0..40 {
        let found = resolve(&place, Follow::NotLast)?;
        let inode = found.node()?;
        if inode.mode & libc::S_IFMT != libc::S_IFLNK {
            return Ok(crate::place::normal(&place.shown));
        }
        let dir = place.shown.rsplitn(2, |byte| *byte == b'/').nth(1).unwrap_or(b"").to_vec();
        let target = match inode.target.as_bytes() {
            absolute if absolute.starts_with(b"/") => absolute.to_vec(),
            relative => [&dir, &b"/"[..], relative].concat(),
        };
        let normal = crate::place::normal(&target);
        place = crate::place::below_prefix(&normal).ok_or_else(|| {
            Stop::Outside(std::ffi::CString::new(normal.clone()).unwrap_or_default())
        })?;
    }
    refuse(libc::ELOOP)
}

export! { fn realpath(path: *const c_char, buffer: *mut c_char) -> *mut c_char {
    // SAFETY: the program's own arguments; a buffer for a path has PATH_MAX bytes.
    unsafe {
        by_path(AT_FDCWD, path, |path| real::realpath()(path, buffer), |place| {
            let found = real_path(place)?;
            let room = if buffer.is_null() { 0 } else { libc::PATH_MAX as size_t };
            Ok(hand_out(&found, buffer, room))
        })
    }
} }
export! { fn __realpath_chk(path: *const c_char, buffer: *mut c_char, _room: size_t) -> *mut c_char {
    // SAFETY: the program's own arguments.
    unsafe { realpath(path, buffer) }
} }
export! { fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the program's own arguments.
    unsafe { realpath(path, std::ptr::null_mut()) }
} }

fn set(place: &Place, follow: Follow, set: SetAttr) -> Result<c_int> {
    set_id(resolve(place, follow)?.node()?.id, set)
}

fn set_id(id: Id, set: SetAttr) -> Result<c_int> {
    let client = client()?;
    wait(&client, client.setattr(&caller(), id, set))?;
    Ok(0)
}

fn mode(mode: mode_t) -> SetAttr {
    SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() }
}

fn owner(uid: uid_t, gid: gid_t) -> SetAttr {
    let wanted = |id: u32| (id != u32::MAX).then_some(id);
    SetAttr { uid: wanted(uid), gid: wanted(gid), ..SetAttr::default() }
}

fn by_flags(flags: c_int) -> Follow {
    if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { Follow::Last } else { Follow::NotLast }
}

/// Serves a call on a descriptor's file, or passes it on.
fn by_fd(fd: c_int, real: impl FnOnce() -> c_int, set: impl FnOnce() -> Result<SetAttr>) -> c_int {
    match table::find(fd) {
        None => real(),
        Some(open) => serve(|| set_id(open.id(), set()?)),
    }
}

export! { fn chmod(path: *const c_char, to: mode_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::chmod()(path, to), |place| set(place, Follow::Last, mode(to))) }
} }
export! { fn fchmod(fd: c_int, to: mode_t) -> c_int {
    // SAFETY: the program's own arguments.
    by_fd(fd, || unsafe { real::fchmod()(fd, to) }, || Ok(mode(to)))
} }
export! { fn fchmodat(dirfd: c_int, path: *const c_char, to: mode_t, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        by_path(dirfd, path, |path| real::fchmodat()(dirfd, path, to, flags), |place| {
            match resolve(place, by_flags(flags))?.node()? {
                link if link.mode & libc::S_IFMT == libc::S_IFLNK => refuse(libc::EOPNOTSUPP),
                inode => set_id(inode.id, mode(to)),
            }
        })
    }
} }
export! { fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::chown()(path, uid, gid), |place| set(place, Follow::Last, owner(uid, gid))) }
} }
export! { fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { by_path(AT_FDCWD, path, |path| real::lchown()(path, uid, gid), |place| set(place, Follow::NotLast, owner(uid, gid))) }
} }
export! { fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
    // SAFETY: the program's own arguments.
    by_fd(fd, || unsafe { real::fchown()(fd, uid, gid) }, || Ok(owner(uid, gid)))
} }
export! { fn fchownat(dirfd: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        by_path(dirfd, path, |path| real::fchownat()(dirfd, path, uid, gid, flags), |place| {
            set(place, by_flags(flags), owner(uid, gid))
        })
    }
} }

/// The two times of utimensat(2); null means now for both.
unsafe fn times(times: *const timespec) -> Result<SetAttr> {
    let time = |at: usize| {
        if times.is_null() {
            return Ok(Some(SetTime::Now));
        }
        // SAFETY: not null, so the program's array of two.
        let time = unsafe { *times.add(at) };
        match time.tv_nsec {
            libc::UTIME_NOW => Ok(Some(SetTime::Now)),
            libc::UTIME_OMIT => Ok(None),
            0..=999_999_999 => {
                let (sec, nsec) = (time.tv_sec.cast_unsigned(), time.tv_nsec as u64);
                Ok(Some(SetTime::To(Time { sec, nsec })))
            }
            _ => refuse(libc::EINVAL),
        }
    };
    Ok(SetAttr { atime: time(0)?, mtime: time(1)?, ..SetAttr::default() })
}

/// The same from microseconds.
unsafe fn micro(values: *const timeval) -> Option<[timespec; 2]> {
    // SAFETY: not null, so the program's array of two.
    (!values.is_null()).then(|| unsafe {
        [0, 1].map(|at| {
            let value = *values.add(at);
            timespec { tv_sec: value.tv_sec, tv_nsec: value.tv_usec * 1000 }
        })
    })
}

fn pointer(times: &Option<[timespec; 2]>) -> *const timespec {
    times.as_ref().map_or(std::ptr::null(), |times| times.as_ptr())
}

export! { fn utimensat(dirfd: c_int, path: *const c_char, to: *const timespec, flags: c_int) -> c_int {
    if path.is_null() {
        // SAFETY: the program's own arguments.
        return unsafe { futimens(dirfd, to) };
    }
    // SAFETY: the program's own arguments.
    unsafe {
        by_path(dirfd, path, |path| real::utimensat()(dirfd, path, to, flags), |place| {
            set(place, by_flags(flags), times(to)?)
        })
    }
} }
export! { fn futimens(fd: c_int, to: *const timespec) -> c_int {
    // SAFETY: the program's own arguments.
    by_fd(fd, || unsafe { real::futimens()(fd, to) }, || unsafe { times(to) })
} }
export! { fn utimes(path: *const c_char, to: *const timeval) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { let to = micro(to); utimensat(AT_FDCWD, path, pointer(&to), 0) }
} }
export! { fn lutimes(path: *const c_char, to: *const timeval) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { let to = micro(to); utimensat(AT_FDCWD, path, pointer(&to), libc::AT_SYMLINK_NOFOLLOW) }
} }
export! { fn futimes(fd: c_int, to: *const timeval) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { let to = micro(to); futimens(fd, pointer(&to)) }
} }
export! { fn futimesat(dirfd: c_int, path: *const c_char, to: *const timeval) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { let to = micro(to); utimensat(dirfd, path, pointer(&to), 0) }
} }
export! { fn utime(path: *const c_char, to: *const libc::utimbuf) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let to = (!to.is_null()).then(|| {
            [(*to).actime, (*to).modtime].map(|tv_sec| timespec { tv_sec, tv_nsec: 0 })
        });
        utimensat(AT_FDCWD, path, pointer(&to), 0)
    }
} }
export! { fn truncate | truncate64(path: *const c_char, size: libc::off_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        by_path(AT_FDCWD, path, |path| real::truncate()(path, size), |place| {
            let size = u64::try_from(size).map_err(|_| Stop::from(Errno::EINVAL))?;
            let inode = resolve(place, Follow::Last)?.node()?;
            match inode.mode & libc::S_IFMT {
                libc::S_IFDIR => refuse(libc::EISDIR),
                libc::S_IFREG => set_id(inode.id, SetAttr { size: Some(size), ..SetAttr::default() }),
                _ => refuse(libc::EINVAL),
            }
        })
    }
} }
