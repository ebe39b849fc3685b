//! An open file of ours, as the processes that share it see it.
//!
//! POSIX's open file description is shared by what fork, dup and exec copy. Ours lives in a page of
//! shared memory, an anonymous file (memfd) that every copy maps: offset and flags are there. The
//! program's descriptor is that anonymous file, opened with O_PATH. So it has a true number, outlives
//! exec with all that a new program needs to go on, and whatever reaches it without passing us (a system
//! call made by hand, a program without the library) gets EBADF, never bytes.

use crate::boundary::{Result, refuse};
use crate::client::{Client, client, wait};
use crate::real;
use covey_ninep::tree::Errno;
use covey_stripe::client::{File, Opened};
use covey_stripe::ops::{Caller, Id, Inode};
use libc::c_int;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is in the shared page.
#[repr(C)]
pub struct Page {
    magic: u64,
    id: u64,
    /// The type bits of the mode.
    kind: u32,
    path_bytes: u32,
    /// Where the next read or write goes.
    pub offset: AtomicI64,
    /// As F_GETFL answers them.
    pub flags: AtomicI32,
    path: [u8; PATH_ROOM],
}

/// One open file. Descriptors that were made from each other share it.
pub struct Open {
    page: *mut Page,
    file: Mutex<Option<(u64, File)>>,
    /// That the process had it open as another program: the server counts that until the last close.
    still_open: Mutex<Option<(u64, Opened)>>,
    position: Mutex<()>,
    /// Names this description as the owner of its flock and OFD locks.
    pub owner: u64,
    has_own_locks: AtomicBool,
}

// SAFETY: the page is shared memory that lives as long as this; what changes in it is atomic.
unsafe impl Send for Open {}
// SAFETY: the page is shared memory that lives as long as this; what changes in it is atomic.
unsafe impl Sync for Open {}

impl Open {
    /// A new description, and the descriptor for it.
    pub fn create(inode: &Inode, path: &[u8], flags: c_int) -> Result<(Arc<Open>, c_int)> {
        // SAFETY: the name ends with a zero.
        let memory = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
        if memory < 0 {
            return Err(Errno::from(std::io::Error::last_os_error()).into());
        }
        let made = Open::fill(memory, inode, path, flags);
        let shown = made.and_then(|open| {
            let fd = as_path(memory, flags & libc::O_CLOEXEC)?;
            Ok((open, fd))
        });
        if shown.is_err() {
            // SAFETY: it is ours, and nobody else knows it.
            unsafe { real::close()(memory) };
        }
        shown
    }

    fn fill(memory: c_int, inode: &Inode, path: &[u8], flags: c_int) -> Result<Arc<Open>> {
        // SAFETY: plain system calls on a descriptor of our own.
        if unsafe { libc::ftruncate(memory, PAGE_BYTES as i64) } != 0 {
            return Err(Errno::from(std::io::Error::last_os_error()).into());
        }
        let page = map(memory)?;
        let path = &path[..path.len().min(PATH_ROOM)];
        // SAFETY: the mapping is a page of zeros, which is a valid Page, and nobody else has it yet.
        let fresh = unsafe { &mut *page };
        (fresh.magic, fresh.id, fresh.kind) = (MAGIC, inode.id, inode.type_bits());
        fresh.path_bytes = path.len() as u32;
        fresh.path[..path.len()].copy_from_slice(path);
        fresh.flags.store(flags & !libc::O_CLOEXEC, Ordering::Relaxed);
        Ok(Open::new(page, None))
    }

    /// With the owner of its locks, and whether there may be some, if they are from before an exec.
    fn new(page: *mut Page, before: Option<(u64, bool)>) -> Arc<Open> {
        static OWNERS: AtomicU64 = AtomicU64::new(1);
        let (owner, has_own_locks) = match before {
            Some((owner, has)) => {
                OWNERS.fetch_max(owner + 1, Ordering::Relaxed);
                (owner, has)
            }
            None => (OWNERS.fetch_add(1, Ordering::Relaxed), false),
        };
        let (file, still_open, position) = Default::default();
        let has_own_locks = AtomicBool::new(has_own_locks);
        Arc::new(Open { page, file, still_open, position, owner, has_own_locks })
    }

    /// Takes up a description that this program was started with, and tells which one it is; none when
    /// the descriptor is something else. `before` is what was handed over of its own locks.
    pub fn inherited(fd: c_int, before: Option<(u64, bool)>) -> Option<(u64, Arc<Open>)> {
        let link = CString::new(format!("/proc/self/fd/{fd}")).ok()?;
        if !target(fd).starts_with(b"/memfd:covey-open-file") {
            return None;
        }
        // SAFETY: plain system calls; the descriptor is closed again.
        unsafe {
            let memory = real::open()(link.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0);
            if memory < 0 {
                return None;
            }
            let mut stat: libc::stat = std::mem::zeroed();
            let is_whole = libc::fstat(memory, &mut stat) == 0 && stat.st_size == PAGE_BYTES as i64;
            let page = if is_whole { map(memory).ok() } else { None };
            real::close()(memory);
            let page = page?;
            let is_known = (*page).magic == MAGIC && (*page).path_bytes as usize <= PATH_ROOM;
            if !is_known {
                libc::munmap(page.cast(), PAGE_BYTES);
                return None;
            }
            Some((stat.st_ino, Open::new(page, before)))
        }
    }

    /// The same description in the child of a fork: what the parent's threads hold is not ours.
    pub fn forked(&self) -> Arc<Open> {
        Open::new(self.page, None)
    }

    /// The shared page.
    pub fn page(&self) -> &Page {
        // SAFETY: mapped as long as this lives.
        unsafe { &*self.page }
    }

    /// Which file.
    pub fn id(&self) -> Id {
        self.page().id
    }

    /// The path it was opened by.
    pub fn path(&self) -> Vec<u8> {
        self.page().path[..self.page().path_bytes as usize].to_vec()
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.page().kind == libc::S_IFDIR
    }

    /// The flags as F_GETFL answers them.
    pub fn flags(&self) -> c_int {
        self.page().flags.load(Ordering::Relaxed)
    }

    /// Keeps other threads from moving the offset.
    pub fn position(&self) -> MutexGuard<'_, ()> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open file at the client, opened anew where this process has another client than whoever
    /// opened it. Permission was checked then.
    pub fn file(&self) -> Result<(Arc<Client>, File)> {
        if self.is_dir() {
            return refuse(libc::EISDIR);
        }
        if self.flags() & libc::O_PATH != 0 {
            return refuse(libc::EBADF);
        }
        let client = client()?;
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, file)) = held.as_ref().filter(|held| held.0 == client.generation) {
            return Ok((client, file.clone()));
        }
        let root = Caller::default();
        let file = wait(&client, client.open(&root, self.id(), self.access()))?;
        // What an older client had must not be touched.
        std::mem::forget(held.replace((client.generation, file.clone())));
        Ok((client, file))
    }

    /// Takes the file as it was opened.
    pub fn adopt(&self, client: &Client, file: File) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some((client.generation, file));
    }

    /// For reading; EBADF when it was not opened for that.
    pub fn to_read(&self) -> Result<(Arc<Client>, File)> {
        match self.access() & 4 {
            0 => refuse(libc::EBADF),
            _ => self.file(),
        }
    }

    /// For writing; EBADF when it was not opened for that.
    pub fn to_write(&self) -> Result<(Arc<Client>, File)> {
        match self.access() & 2 {
            0 => refuse(libc::EBADF),
            _ => self.file(),
        }
    }

    /// A flock or an OFD lock was asked for: the last close gives it back.
    pub fn note_own_locks(&self) {
        self.has_own_locks.store(true, Ordering::Relaxed);
    }

    /// Whether the description may hold locks.
    pub fn has_own_locks(&self) -> bool {
        self.has_own_locks.load(Ordering::Relaxed)
    }

    /// Whether the server counts it as an open of the file.
    pub fn is_counted(&self) -> bool {
        !self.is_dir() && self.flags() & libc::O_PATH == 0
    }

    /// Keeps an open from before an exec, if it is of this file and the first one; else gives it back.
    pub fn keep_open(&self, generation: u64, opened: Opened) -> Option<Opened> {
        let mut kept = self.still_open.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_some() || self.id() != opened.id() || !self.is_counted() {
            return Some(opened);
        }
        *kept = Some((generation, opened));
        None
    }

    /// 4 read, 2 write.
    pub fn access(&self) -> u8 {
        access_of(self.flags())
    }

    /// What close(2) owes: the exact time of the last write.
    pub fn flush(&self) -> Result<()> {
        let held = self.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((generation, file)) = held else { return Ok(()) };
        let client = client()?;
        if client.generation == generation {
            wait(&client, file.flush())?;
        }
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let held = self.file.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let kept = self.still_open.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // What an older client had must not be touched.
        let current = if held.is_some() || kept.is_some() {
            client().ok().map(|client| client.generation)
        } else {
            None
        };
        let is_current = |generation: u64| current == Some(generation);
        match held {
            Some((generation, file)) if is_current(generation) => drop(file),
            held => std::mem::forget(held),
        }
        match kept {
            Some((generation, opened)) if is_current(generation) => drop(opened),
            kept => std::mem::forget(kept),
        }
        // SAFETY: mapped by us, and nobody uses it any more.
        unsafe { libc::munmap(self.page.cast(), PAGE_BYTES) };
    }
}

/// 4 read, 2 write.
pub fn access_of(flags: c_int) -> u8 {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => 4,
        libc::O_WRONLY => 2,
        _ => 4 | 2,
    }
}

/// Whether the mode permits an access: 4 read, 2 write, 1 execute.
pub fn permits(inode: &Inode, who: &Caller, access: u32) -> bool {
    if who.is_root() {
        return access & 1 == 0 || inode.is_dir() || inode.mode & 0o111 != 0;
    }
    let shift = match () {
        () if who.uid == inode.uid => 6,
        () if who.is_in(inode.gid) => 3,
        () => 0,
    };
    inode.mode >> shift & access == access
}

/// What a descriptor is, in the kernel's words; the first bytes of it.
pub fn target(fd: c_int) -> Vec<u8> {
    let link = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let mut target = vec![0_u8; 64];
    // SAFETY: the buffer has the length that is passed.
    let length =
        unsafe { real::readlink()(link.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    target.truncate(usize::try_from(length).unwrap_or(0));
    target
}

fn map(memory: c_int) -> Result<*mut Page> {
    const HOW: c_int = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file that has a page.
    let at =
        unsafe { real::mmap()(std::ptr::null_mut(), PAGE_BYTES, HOW, libc::MAP_SHARED, memory, 0) };
    if at == libc::MAP_FAILED {
        Err(Errno::from(std::io::Error::last_os_error()).into())
    } else {
        Ok(at.cast())
    }
}

/// Opens the anonymous file once more with O_PATH, under the same number. Where /proc is missing the
/// number stays the anonymous file itself.
fn as_path(memory: c_int, cloexec: c_int) -> Result<c_int> {
    let link = CString::new(format!("/proc/self/fd/{memory}")).unwrap_or_default();
    // SAFETY: plain system calls on descriptors of our own.
    unsafe {
        let path = real::open()(link.as_ptr(), libc::O_PATH | libc::O_CLOEXEC, 0);
        let from = if path < 0 { memory } else { path };
        if path >= 0 {
            real::dup3()(path, memory, cloexec);
            real::close()(from);
        } else {
            real::fcntl()(memory, libc::F_SETFD, if cloexec == 0 { 0 } else { 1 });
        }
    }
    Ok(memory)
}

/// Unmaps nothing and closes nothing: for a descriptor that could not be entered in the table.
pub fn discard(fd: c_int) {
    // SAFETY: the descriptor is our own.
    unsafe { real::close()(fd) };
}

const NAME: &CStr = c"covey-open-file";
const MAGIC: u64 = 0x3176_796f_6376_7963;
const PAGE_BYTES: usize = 4096;
const PATH_ROOM: usize = PAGE_BYTES - 40;
const _: () = assert!(size_of::<Page>() == PAGE_BYTES);
