//! Directory streams.
//!
//! A DIR of ours is a box that C never looks into. Its entries come a page at a time and end where the
//! directory ended when the listing began, so a listing of a directory that grows comes to an end.

use crate::boundary::{self, Result, errno, export, is_inside, refuse, serve, serve_or, set_errno};
use crate::client::{caller, client, wait};
use crate::open::Open;
use crate::opening::open_place;
use crate::place::{Where, locate_path};
use crate::{descriptors, real, table};
use covey_stripe::client::Listing;
use covey_stripe::ops::DirEntry;
use libc::{DIR, c_char, c_int, c_long, dirent};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A listing under way.
pub(crate) struct Stream {
    fd: c_int,
    open: Arc<Open>,
    ahead: VecDeque<DirEntry>,
    /// Where the next page begins, and where the listing ends.
    cookie: u64,
    limit: u64,
    is_at_end: bool,
    /// After the entry that was given last.
    position: u64,
    entry: dirent,
}

static STREAMS: Mutex<BTreeMap<usize, Arc<Mutex<Stream>>>> = Mutex::new(BTreeMap::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn streams() -> MutexGuard<'static, BTreeMap<usize, Arc<Mutex<Stream>>>> {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(dir: *mut DIR) -> Option<Arc<Mutex<Stream>>> {
    if COUNT.load(Ordering::Relaxed) == 0 || is_inside() {
        return None;
    }
    boundary::lock(&STREAMS).get(&(dir as usize)).cloned()
}

fn locked(stream: &Mutex<Stream>) -> MutexGuard<'_, Stream> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

fn begin(fd: c_int, open: Arc<Open>) -> Result<*mut DIR> {
    if !open.is_dir() {
        return refuse(libc::ENOTDIR);
    }
    // SAFETY: an entry of zeros is valid.
    let entry = unsafe { std::mem::zeroed() };
    let ahead = VecDeque::new();
    let (cookie, limit, position) = (0, 0, 0);
    let stream = Stream { fd, open, ahead, cookie, limit, is_at_end: false, position, entry };
    let stream = Arc::new(Mutex::new(stream));
    let dir = Arc::as_ptr(&stream) as *mut DIR;
    streams().insert(dir as usize, stream);
    COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(dir)
}

impl Stream {
    fn next(&mut self) -> Result<*mut dirent> {
        if self.ahead.is_empty() && !self.is_at_end {
            self.load()?;
        }
        let Some(found) = self.ahead.pop_front() else { return Ok(std::ptr::null_mut()) };
        self.position = found.cookie;
        let entry = &mut self.entry;
        entry.d_ino = found.id;
        entry.d_off = found.cookie as i64;
        entry.d_type = found.kind;
        let name = found.name.as_bytes();
        let count = name.len().min(entry.d_name.len() - 1);
        for (to, from) in entry.d_name.iter_mut().zip(&name[..count]) {
            *to = *from as c_char;
        }
        entry.d_name[count] = 0;
        entry.d_reclen = size_of::<dirent>() as u16;
        Ok(entry)
    }

    fn load(&mut self) -> Result<()> {
        let (client, who) = (client()?, caller());
        let (id, cookie) = (self.open.id(), self.cookie);
        let page = wait(
            &client,
            client.readdir(&who, id, cookie, self.limit, PAGE_BYTES, Listing::Names),
        )?;
        self.limit = page.limit;
        self.is_at_end = page.end || page.entries.is_empty();
        if let Some(last) = page.entries.last() {
            // A server that goes backwards would keep us here for ever.
            if last.cookie <= self.cookie {
                return refuse(libc::EPROTO);
            }
            self.cookie = last.cookie;
        }
        self.ahead = page.entries.into();
        Ok(())
    }

    fn go_to(&mut self, position: u64) {
        self.ahead.clear();
        (self.cookie, self.position, self.is_at_end) = (position, position, false);
        if position == 0 {
            self.limit = 0;
        }
    }
}

export! { fn opendir(path: *const c_char) -> *mut DIR {
    const HOW: c_int = libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the program's own arguments.
    match unsafe { locate_path(path) } {
        // SAFETY: the program's own arguments.
        Where::Real(path) => unsafe { real::opendir()(path.pointer()) },
        Where::Ours(place) => serve_or(
            || {
                let fd = open_place(&place, HOW, 0)?;
                let open = table::lock().get(&fd).cloned();
                begin(fd, open.expect("just entered"))
            },
            // SAFETY: the path lives through the call.
            |outside| unsafe { real::opendir()(outside.as_ptr()) },
        ),
    }
} }

export! { fn fdopendir(fd: c_int) -> *mut DIR {
    match table::find(fd) {
        // SAFETY: no pointers.
        None => unsafe { real::fdopendir()(fd) },
        Some(open) => serve(|| begin(fd, open)),
    }
} }

export! { fn readdir | readdir64(dir: *mut DIR) -> *mut dirent {
    match find(dir) {
        // SAFETY: the program's own stream.
        None => unsafe { real::readdir()(dir) },
        // Null is the end as well as an error: only errno tells them apart, and is kept at the end.
        Some(stream) => serve(|| locked(&stream).next()),
    }
} }

export! { failing(libc::EIO) fn readdir_r | readdir64_r(dir: *mut DIR, entry: *mut dirent, result: *mut *mut dirent) -> c_int {
    match find(dir) {
        // SAFETY: the program's own stream.
        None => unsafe { real::readdir_r()(dir, entry, result) },
        // The number of the error is what it answers, not -1.
        Some(stream) => match serve(|| {
            let found = locked(&stream).next()?;
            // SAFETY: the program's own memory; the entry found lives as long as the stream.
            unsafe {
                *result = if found.is_null() { found } else { entry.write(*found); entry };
            }
            Ok(0)
        }) {
            0 => 0,
            _ => {
                // SAFETY: the program's own memory.
                unsafe { *result = std::ptr::null_mut() };
                errno()
            }
        },
    }
} }

export! { fn closedir(dir: *mut DIR) -> c_int {
    if find(dir).is_none() {
        // SAFETY: the program's own stream.
        return unsafe { real::closedir()(dir) };
    }
    let stream = streams().remove(&(dir as usize));
    COUNT.fetch_sub(1, Ordering::Relaxed);
    let fd = stream.map_or(-1, |stream| locked(&stream).fd);
    // SAFETY: the number belongs to the stream.
    unsafe { descriptors::close(fd) }
} }

export! { fn rewinddir(dir: *mut DIR) -> () {
    match find(dir) {
        // SAFETY: the program's own stream.
        None => unsafe { real::rewinddir()(dir) },
        Some(stream) => locked(&stream).go_to(0),
    }
} }
export! { fn telldir(dir: *mut DIR) -> c_long {
    match find(dir) {
        // SAFETY: the program's own stream.
        None => unsafe { real::telldir()(dir) },
        Some(stream) => locked(&stream).position as c_long,
    }
} }
export! { fn seekdir(dir: *mut DIR, position: c_long) -> () {
    match find(dir) {
        // SAFETY: the program's own stream.
        None => unsafe { real::seekdir()(dir, position) },
        Some(stream) => locked(&stream).go_to(position as u64),
    }
} }
export! { fn dirfd(dir: *mut DIR) -> c_int {
    match find(dir) {
        // SAFETY: the program's own stream.
        None => unsafe { real::dirfd()(dir) },
        Some(stream) => locked(&stream).fd,
    }
} }

export! { fn scandir | scandir64(
    path: *const c_char, list: *mut *mut *mut dirent, filter: real::Filter, compare: real::Compare
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        if let Where::Real(path) = locate_path(path) {
            return real::scandir()(path.pointer(), list, filter, compare);
        }
        let dir = opendir(path);
        if dir.is_null() {
            return -1;
        }
        let mut found: Vec<*mut dirent> = Vec::new();
        set_errno(0);
        loop {
            let entry = readdir(dir);
            if entry.is_null() {
                break;
            }
            if filter.is_none_or(|filter| filter(entry) != 0) {
                let copy = libc::malloc(size_of::<dirent>()).cast::<dirent>();
                copy.write(*entry);
                found.push(copy);
            }
        }
        closedir(dir);
        let room = (found.len() * size_of::<*mut dirent>()).max(1);
        let out = libc::malloc(room).cast::<*mut dirent>();
        std::ptr::copy_nonoverlapping(found.as_ptr(), out, found.len());
        if let Some(compare) = compare {
            sort(out, found.len(), compare);
        }
        *list = out;
        found.len() as c_int
    }
} }

type Compare = unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int;

/// # Safety
///
/// `entries` has `count` entries.
unsafe fn sort(entries: *mut *mut dirent, count: usize, compare: Compare) {
    // SAFETY: the caller's promise; qsort hands its comparison pointers to two of the entries.
    unsafe {
        let entries = std::slice::from_raw_parts_mut(entries, count);
        entries.sort_by(|left, right| {
            let (mut left, mut right) = (left.cast_const(), right.cast_const());
            compare(&mut left, &mut right).cmp(&0)
        });
    }
}

const PAGE_BYTES: u32 = 64 << 10;

/// The table of streams, for the time of a fork.
pub struct Held {
    _streams: MutexGuard<'static, BTreeMap<usize, Arc<Mutex<Stream>>>>,
}

/// For the time of a fork.
pub fn lock() -> Held {
    Held { _streams: streams() }
}
