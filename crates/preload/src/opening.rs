//! open(2) and its kin.

use crate::boundary::{Result, export, refuse, serve_or};
use crate::client::{caller, client, wait};
use crate::names::masked;
use crate::open::{Open, access_of, discard};
use crate::place::{Place, Where, locate};
use crate::report::COUNTS;
use crate::walk::{Follow, Found, resolve};
use crate::{real, table};
use covey_ninep::tree::SetAttr;
use covey_stripe::client::{File, Taken};
use covey_stripe::ops::Inode;
use libc::{c_char, c_int, mode_t};

/// Opens a place of ours; answers the descriptor.
pub fn open_place(place: &Place, flags: c_int, mode: mode_t) -> Result<c_int> {
    COUNTS.opens.add(1);
    let (inode, file) = find_or_create(place, flags, mode)?;
    check_kind(&inode, flags)?;
    let (open, fd) = Open::create(&inode, &place.shown, flags & KEPT)?;
    if let Some(file) = file {
        open.adopt(&*client()?, file);
    }
    if !table::insert(fd, open) {
        discard(fd);
        return refuse(libc::EMFILE);
    }
    Ok(fd)
}

fn find_or_create(place: &Place, flags: c_int, mode: mode_t) -> Result<(Inode, Option<File>)> {
    let creates = flags & libc::O_CREAT != 0 && flags & libc::O_PATH == 0;
    let exclusive = creates && flags & libc::O_EXCL != 0;
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return refuse(libc::EOPNOTSUPP);
    }
    let stays = flags & libc::O_NOFOLLOW != 0 || exclusive;
    let found = resolve(place, if stays { Follow::NotLast } else { Follow::Last })?;
    match &found.inode {
        Some(_) if exclusive => refuse(libc::EEXIST),
        Some(inode) if creates && inode.is_dir() => refuse(libc::EISDIR),
        None if creates => create(&found, flags, mode, exclusive),
        _ => open_found(found.node()?, flags),
    }
}

fn create(
    found: &Found,
    flags: c_int,
    mode: mode_t,
    exclusive: bool,
) -> Result<(Inode, Option<File>)> {
    let (Some(name), false) = (&found.name, found.wants_dir) else {
        return refuse(libc::EISDIR);
    };
    let (client, who) = (client()?, caller());
    let access = needed(flags);
    let taken = Taken::unless(exclusive);
    let creating = client.create(&who, found.parent, name, masked(mode), taken, access);
    let (inode, file) = wait(&client, creating)?;
    cut_if_asked(inode, Some(file), flags)
}

fn open_found(inode: Inode, flags: c_int) -> Result<(Inode, Option<File>)> {
    if flags & libc::O_PATH != 0 {
        return Ok((inode, None));
    }
    check_kind(&inode, flags)?;
    let client = client()?;
    let file = wait(&client, client.open(&caller(), inode.id, needed(flags)))?;
    if inode.is_dir() { Ok((inode, None)) } else { cut_if_asked(inode, Some(file), flags) }
}

/// What the caller must be permitted: to cut is to write, also where nothing is written.
fn needed(flags: c_int) -> u8 {
    access_of(flags) | if flags & libc::O_TRUNC != 0 { 2 } else { 0 }
}

fn cut_if_asked(inode: Inode, file: Option<File>, flags: c_int) -> Result<(Inode, Option<File>)> {
    if flags & libc::O_TRUNC != 0 && inode.is_regular() {
        let client = client()?;
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        wait(&client, client.setattr_open(&caller(), inode.id, set))?;
    }
    Ok((inode, file))
}

fn check_kind(inode: &Inode, flags: c_int) -> Result<()> {
    let writes = needed(flags) & 2 != 0;
    match (inode.mode & libc::S_IFMT, flags & libc::O_PATH != 0) {
        (libc::S_IFDIR, false) if writes => refuse(libc::EISDIR),
        (libc::S_IFDIR, _) => Ok(()),
        _ if flags & libc::O_DIRECTORY != 0 => refuse(libc::ENOTDIR),
        (_, true) | (libc::S_IFREG, _) => Ok(()),
        (libc::S_IFLNK, _) => refuse(libc::ELOOP),
        // Pipes, sockets and devices are for processes of one kernel.
        _ => refuse(libc::ENXIO),
    }
}

/// What F_GETFL answers, and O_CLOEXEC for the descriptor itself.
const KEPT: c_int = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_DSYNC
    | libc::O_DIRECT
    | libc::O_DIRECTORY
    | libc::O_NOATIME
    | libc::O_PATH
    | libc::O_CLOEXEC;

/// Opens a path wherever it leads.
///
/// # Safety
///
/// `path` is null or ends with a zero.
pub unsafe fn open_anywhere(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's promise; a real path is the program's own or lives through the call.
    unsafe {
        match locate(dirfd, path) {
            Where::Real(path) => real::openat()(dirfd, path.pointer(), flags, mode),
            Where::Ours(place) => serve_or(
                || open_place(&{ place }, flags, mode),
                |outside| real::open()(outside.as_ptr(), flags, mode),
            ),
        }
    }
}

// Variadic in C: on Linux's 64-bit machines an argument that may be missing travels as if it were
// there, and is looked at only where the flags say that it is.
export! {
    fn open | open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: the program's own arguments.
        unsafe { open_anywhere(libc::AT_FDCWD, path, flags, mode) }
    }
}
export! {
    fn __open_2 | __open64_2(path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: the program's own arguments.
        unsafe { open_anywhere(libc::AT_FDCWD, path, flags, 0) }
    }
}
export! {
    fn __open | __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: the program's own arguments.
        unsafe { open_anywhere(libc::AT_FDCWD, path, flags, mode) }
    }
}
export! {
    fn openat | openat64(dirfd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: the program's own arguments.
        unsafe { open_anywhere(dirfd, path, flags, mode) }
    }
}
export! {
    fn __openat_2 | __openat64_2(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: the program's own arguments.
        unsafe { open_anywhere(dirfd, path, flags, 0) }
    }
}
export! {
    fn creat | creat64(path: *const c_char, mode: mode_t) -> c_int {
        const HOW: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        // SAFETY: the program's own arguments.
        unsafe { open_anywhere(libc::AT_FDCWD, path, HOW, mode) }
    }
}
