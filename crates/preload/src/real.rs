//! libc's own functions, which ours stand before: the next definition of each name.

use libc::*;
use std::sync::atomic::{AtomicUsize, Ordering};

macro_rules! real {
    ($(fn $name:ident($($type:ty),*) -> $ret:ty;)*) => {
        $(
            pub fn $name() -> unsafe extern "C" fn($($type),*) -> $ret {
                static AT: AtomicUsize = AtomicUsize::new(0);
                let at = next(&AT, concat!(stringify!($name), "\0"));
                // SAFETY: libc's function of this name has this signature on Linux.
                unsafe { std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $ret>(at) }
            }
        )*
    };
}

fn next(at: &AtomicUsize, name: &str) -> usize {
    match at.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: the name ends with a zero.
            let found = unsafe { dlsym(RTLD_NEXT, name.as_ptr().cast()) } as usize;
            if found == 0 {
                missing();
            }
            at.store(found, Ordering::Relaxed);
            found
        }
        found => found,
    }
}

/// This libc lacks a function that the program has called through us.
fn missing() -> ! {
    const TEXT: &[u8] = b"covey-preload: this libc lacks a function that the program calls\n";
    // SAFETY: the text is a constant; abort does not return.
    unsafe {
        syscall(SYS_write, 2, TEXT.as_ptr(), TEXT.len());
        abort()
    }
}

type Path = *const c_char;

real! {
    fn open(Path, c_int, mode_t) -> c_int;
    fn openat(c_int, Path, c_int, mode_t) -> c_int;
    fn close(c_int) -> c_int;
    fn close_range(c_uint, c_uint, c_int) -> c_int;
    fn read(c_int, *mut c_void, size_t) -> ssize_t;
    fn write(c_int, *const c_void, size_t) -> ssize_t;
    fn pread(c_int, *mut c_void, size_t, off_t) -> ssize_t;
    fn pwrite(c_int, *const c_void, size_t, off_t) -> ssize_t;
    fn readv(c_int, *const iovec, c_int) -> ssize_t;
    fn writev(c_int, *const iovec, c_int) -> ssize_t;
    fn preadv(c_int, *const iovec, c_int, off_t) -> ssize_t;
    fn pwritev(c_int, *const iovec, c_int, off_t) -> ssize_t;
    fn preadv2(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    fn pwritev2(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    fn lseek(c_int, off_t, c_int) -> off_t;
    fn ftruncate(c_int, off_t) -> c_int;
    fn truncate(Path, off_t) -> c_int;
    fn fsync(c_int) -> c_int;
    fn fdatasync(c_int) -> c_int;
    fn syncfs(c_int) -> c_int;
    fn sync_file_range(c_int, off_t, off_t, c_uint) -> c_int;
    fn posix_fadvise(c_int, off_t, off_t, c_int) -> c_int;
    fn readahead(c_int, off_t, size_t) -> ssize_t;
    fn fallocate(c_int, c_int, off_t, off_t) -> c_int;
    fn posix_fallocate(c_int, off_t, off_t) -> c_int;
    fn stat(Path, *mut stat) -> c_int;
    fn lstat(Path, *mut stat) -> c_int;
    fn fstat(c_int, *mut stat) -> c_int;
    fn fstatat(c_int, Path, *mut stat, c_int) -> c_int;
    fn __xstat(c_int, Path, *mut stat) -> c_int;
    fn __lxstat(c_int, Path, *mut stat) -> c_int;
    fn __fxstat(c_int, c_int, *mut stat) -> c_int;
    fn __fxstatat(c_int, c_int, Path, *mut stat, c_int) -> c_int;
    fn statx(c_int, Path, c_int, c_uint, *mut statx) -> c_int;
    fn statfs(Path, *mut statfs) -> c_int;
    fn fstatfs(c_int, *mut statfs) -> c_int;
    fn statvfs(Path, *mut statvfs) -> c_int;
    fn fstatvfs(c_int, *mut statvfs) -> c_int;
    fn access(Path, c_int) -> c_int;
    fn euidaccess(Path, c_int) -> c_int;
    fn faccessat(c_int, Path, c_int, c_int) -> c_int;
    fn unlink(Path) -> c_int;
    fn unlinkat(c_int, Path, c_int) -> c_int;
    fn remove(Path) -> c_int;
    fn rename(Path, Path) -> c_int;
    fn renameat(c_int, Path, c_int, Path) -> c_int;
    fn renameat2(c_int, Path, c_int, Path, c_uint) -> c_int;
    fn mkdirat(c_int, Path, mode_t) -> c_int;
    fn rmdir(Path) -> c_int;
    fn link(Path, Path) -> c_int;
    fn linkat(c_int, Path, c_int, Path, c_int) -> c_int;
    fn symlinkat(Path, c_int, Path) -> c_int;
    fn readlink(Path, *mut c_char, size_t) -> ssize_t;
    fn readlinkat(c_int, Path, *mut c_char, size_t) -> ssize_t;
    fn realpath(Path, *mut c_char) -> *mut c_char;
    fn mknod(Path, mode_t, dev_t) -> c_int;
    fn mknodat(c_int, Path, mode_t, dev_t) -> c_int;
    fn mkfifo(Path, mode_t) -> c_int;
    fn chmod(Path, mode_t) -> c_int;
    fn fchmod(c_int, mode_t) -> c_int;
    fn fchmodat(c_int, Path, mode_t, c_int) -> c_int;
    fn chown(Path, uid_t, gid_t) -> c_int;
    fn lchown(Path, uid_t, gid_t) -> c_int;
    fn fchown(c_int, uid_t, gid_t) -> c_int;
    fn fchownat(c_int, Path, uid_t, gid_t, c_int) -> c_int;
    fn utimensat(c_int, Path, *const timespec, c_int) -> c_int;
    fn futimens(c_int, *const timespec) -> c_int;
    fn umask(mode_t) -> mode_t;
    fn opendir(Path) -> *mut DIR;
    fn fdopendir(c_int) -> *mut DIR;
    fn readdir(*mut DIR) -> *mut dirent;
    fn readdir_r(*mut DIR, *mut dirent, *mut *mut dirent) -> c_int;
    fn closedir(*mut DIR) -> c_int;
    fn rewinddir(*mut DIR) -> ();
    fn telldir(*mut DIR) -> c_long;
    fn seekdir(*mut DIR, c_long) -> ();
    fn dirfd(*mut DIR) -> c_int;
    fn scandir(Path, *mut *mut *mut dirent, Filter, Compare) -> c_int;
    fn chdir(Path) -> c_int;
    fn fchdir(c_int) -> c_int;
    fn getcwd(*mut c_char, size_t) -> *mut c_char;
    fn dup(c_int) -> c_int;
    fn dup2(c_int, c_int) -> c_int;
    fn dup3(c_int, c_int, c_int) -> c_int;
    fn fcntl(c_int, c_int, c_long) -> c_int;
    fn ioctl(c_int, c_ulong, c_long) -> c_int;
    fn flock(c_int, c_int) -> c_int;
    fn lockf(c_int, c_int, off_t) -> c_int;
    fn isatty(c_int) -> c_int;
    fn mmap(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
    fn sendfile(c_int, c_int, *mut off_t, size_t) -> ssize_t;
    fn copy_file_range(c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t;
    fn splice(c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t;
    fn fopen(Path, Path) -> *mut FILE;
    fn fdopen(c_int, Path) -> *mut FILE;
    fn freopen(Path, Path, *mut FILE) -> *mut FILE;
    fn fileno(*mut FILE) -> c_int;
    fn mkostemps(*mut c_char, c_int, c_int) -> c_int;
    fn mkdtemp(*mut c_char) -> *mut c_char;
    fn socket(c_int, c_int, c_int) -> c_int;
    fn socketpair(c_int, c_int, c_int, *mut c_int) -> c_int;
    fn epoll_create1(c_int) -> c_int;
    fn eventfd(c_uint, c_int) -> c_int;
    fn execve(Path, *const *const c_char, *const *const c_char) -> c_int;
    fn execvpe(Path, *const *const c_char, *const *const c_char) -> c_int;
    fn fexecve(c_int, *const *const c_char, *const *const c_char) -> c_int;
    fn posix_spawn(*mut pid_t, Path, *const c_void, *const c_void, *const *mut c_char, *const *mut c_char) -> c_int;
    fn posix_spawnp(*mut pid_t, Path, *const c_void, *const c_void, *const *mut c_char, *const *mut c_char) -> c_int;
    fn fork() -> pid_t;
    fn sigaction(c_int, *const sigaction, *mut sigaction) -> c_int;
    fn signal(c_int, sighandler_t) -> sighandler_t;
    fn __sysv_signal(c_int, sighandler_t) -> sighandler_t;
    fn _exit(c_int) -> ();
    fn aio_read(*mut aiocb) -> c_int;
    fn aio_write(*mut aiocb) -> c_int;
    fn aio_fsync(c_int, *mut aiocb) -> c_int;
    fn aio_error(*const aiocb) -> c_int;
    fn aio_return(*mut aiocb) -> ssize_t;
    fn aio_suspend(*const *const aiocb, c_int, *const timespec) -> c_int;
    fn aio_cancel(c_int, *mut aiocb) -> c_int;
    fn lio_listio(c_int, *const *mut aiocb, c_int, *mut sigevent) -> c_int;
    fn getxattr(Path, Path, *mut c_void, size_t) -> ssize_t;
    fn lgetxattr(Path, Path, *mut c_void, size_t) -> ssize_t;
    fn fgetxattr(c_int, Path, *mut c_void, size_t) -> ssize_t;
    fn setxattr(Path, Path, *const c_void, size_t, c_int) -> c_int;
    fn lsetxattr(Path, Path, *const c_void, size_t, c_int) -> c_int;
    fn fsetxattr(c_int, Path, *const c_void, size_t, c_int) -> c_int;
    fn listxattr(Path, *mut c_char, size_t) -> ssize_t;
    fn llistxattr(Path, *mut c_char, size_t) -> ssize_t;
    fn flistxattr(c_int, *mut c_char, size_t) -> ssize_t;
    fn removexattr(Path, Path) -> c_int;
    fn lremovexattr(Path, Path) -> c_int;
    fn fremovexattr(c_int, Path) -> c_int;
}

/// What scandir(3) asks of each entry.
pub type Filter = Option<unsafe extern "C" fn(*const dirent) -> c_int>;
/// How scandir(3) sorts.
pub type Compare = Option<unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int>;
