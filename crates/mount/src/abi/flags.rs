//! Flag bits of requests and replies, in the words of `linux/fuse.h` without their prefix.

#![allow(missing_docs)]

/// Of [`Request::Init`](super::Request::Init) and its reply; from bit 32 on in `flags2`.
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// LOOKUP of `.` and `..` is answered for any nodeid: file handles lead to files that the kernel
    /// has forgotten.
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    /// A read from the page cache asks for the attributes where they are no longer good, and drops the pages
    /// of a file whose time or size is another.
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// Of `Setattr.valid`.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
}

/// Of an open reply.
pub mod fopen {
    /// Reads and writes bypass the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// What the page cache has of the file stays.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// close(2) sends no FLUSH (Linux 5.16; older kernels send it all the same).
    pub const NOFLUSH: u32 = 1 << 5;
    /// Writes to one file need not wait for each other.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Of `Write.write_flags`.
pub mod write {
    /// Write-back of mapped pages: the handle is a guess and `flags` are 0.
    pub const CACHE: u32 = 1 << 0;
    /// The caller may not keep set-user-id and set-group-id bits.
    pub const KILL_SUIDGID: u32 = 1 << 2;
}

/// Of `Release.release_flags`.
pub mod release {
    /// The descriptor had flock(2) locks.
    pub const FLOCK_UNLOCK: u32 = 1 << 1;
}

/// Of `Getlk.lk_flags` and its like.
pub mod lk {
    /// flock(2) rather than fcntl(2).
    pub const FLOCK: u32 = 1 << 0;
}

/// Lock types, as fcntl(2) numbers them.
pub mod lock_type {
    pub const RDLCK: u32 = 0;
    pub const WRLCK: u32 = 1;
    pub const UNLCK: u32 = 2;
}

/// open(2) flags as they travel in requests (x86-64 and arm64 agree on these).
pub mod open {
    pub const ACCMODE: u32 = 0o3;
    pub const WRONLY: u32 = 0o1;
    pub const RDWR: u32 = 0o2;
    /// The kernel's own: opened to be executed.
    pub const EXEC: u32 = 0o40;
    pub const EXCL: u32 = 0o200;
    pub const TRUNC: u32 = 0o1000;
    pub const APPEND: u32 = 0o2000;
    /// Part of O_SYNC too.
    pub const DSYNC: u32 = 0o10000;
    /// O_SYNC: metadata, too.
    pub const SYNC: u32 = 0o4010000;
}

/// `Lseek.whence`.
pub mod whence {
    pub const DATA: u32 = 3;
    pub const HOLE: u32 = 4;
}
