//! What replies are made of: the structs of `linux/fuse.h` that follow the 16-byte reply header.

use super::Pad;
use covey_wire::{Blame, Field, Reader, record};

record! {
    /// What every reply begins with.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct OutHeader for () {
        /// Of the whole reply, in bytes.
        pub len: u32,
        /// An errno, negated, in two's complement; 0 for success.
        pub error: u32,
        /// Number of the request that is answered.
        pub unique: u64,
    }
}

impl OutHeader {
    /// Encoded size in bytes.
    pub const BYTES: usize = 16;
}

record! {
    /// Attributes.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Attr for () {
        pub ino: u64,
        pub size: u64,
        /// In units of 512 bytes.
        pub blocks: u64,
        pub atime: u64,
        pub mtime: u64,
        pub ctime: u64,
        pub atimensec: u32,
        pub mtimensec: u32,
        pub ctimensec: u32,
        pub mode: u32,
        pub nlink: u32,
        pub uid: u32,
        pub gid: u32,
        pub rdev: u32,
        pub blksize: u32,
        pub flags: u32,
    }
}

record! {
    /// A name's inode: answers LOOKUP and everything that makes a name.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Entry for () {
        pub nodeid: u64,
        pub generation: u64,
        /// Seconds that the name may be cached.
        pub entry_valid: u64,
        /// Seconds that the attributes may be cached.
        pub attr_valid: u64,
        pub entry_valid_nsec: u32,
        pub attr_valid_nsec: u32,
        pub attr: Attr,
    }
}

record! {
    /// Answers GETATTR and SETATTR.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct AttrOut for () {
        pub attr_valid: u64,
        pub attr_valid_nsec: u32,
        pub dummy: Pad,
        pub attr: Attr,
    }
}

record! {
    /// A time in a [`Statx`]: seconds as two's complement.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct SxTime for () {
        pub sec: u64,
        pub nsec: u32,
        pub reserved: Pad,
    }
}

record! {
    /// Answers STATX.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct StatxOut for () {
        pub attr_valid: u64,
        pub attr_valid_nsec: u32,
        pub flags: u32,
        pub spare0: u64,
        pub spare1: u64,
        /// Which fields are known, as in statx(2).
        pub mask: u32,
        pub blksize: u32,
        pub attributes: u64,
        pub nlink: u32,
        pub uid: u32,
        pub gid: u32,
        pub mode: u16,
        pub padding: u16,
        pub ino: u64,
        pub size: u64,
        /// In units of 512 bytes.
        pub blocks: u64,
        pub attributes_mask: u64,
        pub atime: SxTime,
        pub btime: SxTime,
        pub ctime: SxTime,
        pub mtime: SxTime,
        pub rdev_major: u32,
        pub rdev_minor: u32,
        pub dev_major: u32,
        pub dev_minor: u32,
        pub spare: Spare,
    }
}

/// The 14 words at the end of a statx that mean nothing yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spare;

impl Field for Spare {
    fn size(&self, _: ()) -> usize {
        14 * 8
    }
    fn put(&self, _: (), out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; 14 * 8]);
    }
    fn get(_: (), from: &mut Reader) -> Result<Self, Blame> {
        from.bytes(14 * 8).map(|_| Spare)
    }
}

record! {
    /// Answers OPEN and OPENDIR, and follows the entry in CREATE's answer.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct OpenOut for () {
        pub fh: u64,
        pub open_flags: u32,
        pub backing_id: u32,
    }
}

record! {
    /// Answers WRITE.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct WriteOut for () {
        pub size: u32,
        pub padding: Pad,
    }
}

record! {
    /// Answers GETXATTR and LISTXATTR that ask for the length.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct GetxattrOut for () {
        pub size: u32,
        pub padding: Pad,
    }
}

record! {
    /// Answers STATFS.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct StatfsOut for () {
        /// In units of `frsize`, as the next two.
        pub blocks: u64,
        pub bfree: u64,
        pub bavail: u64,
        pub files: u64,
        pub ffree: u64,
        pub bsize: u32,
        pub namelen: u32,
        pub frsize: u32,
        pub padding: Pad,
        pub spare0: u64,
        pub spare1: u64,
        pub spare2: u64,
    }
}

record! {
    /// Answers GETLK.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct LkOut for () {
        pub start: u64,
        pub end: u64,
        pub kind: u32,
        pub pid: u32,
    }
}

record! {
    /// Answers LSEEK.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct LseekOut for () {
        pub offset: u64,
    }
}

record! {
    /// Of the notification INVAL_ENTRY; the name and a NUL follow.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct InvalEntry for () {
        pub parent: u64,
        /// Longest name in bytes.
        pub namelen: u32,
        pub flags: u32,
    }
}

record! {
    /// Of the notification STORE; the data follow.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Store for () {
        pub nodeid: u64,
        pub offset: u64,
        /// Bytes of data.
        pub size: u32,
        pub padding: Pad,
    }
}

record! {
    /// Of the notification INVAL_INODE.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct InvalInode for () {
        pub ino: u64,
        /// Where pages are dropped from the cache; negative for attributes only.
        pub off: u64,
        pub len: u64,
    }
}

record! {
    /// Answers INIT, at 7.23 and later.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct InitOut for () {
        pub major: u32,
        pub minor: u32,
        pub max_readahead: u32,
        pub flags: u32,
        pub max_background: u16,
        pub congestion_threshold: u16,
        /// Largest WRITE in bytes.
        pub max_write: u32,
        /// Resolution of times in nanoseconds.
        pub time_gran: u32,
        /// Pages in one request.
        pub max_pages: u16,
        pub map_alignment: u16,
        pub flags2: u32,
        pub max_stack_depth: u32,
        pub unused0: u64,
        pub unused1: u64,
        pub unused2: u64,
    }
}

/// The encoding of a record.
pub fn encode(record: &impl Field) -> Vec<u8> {
    let mut out = Vec::with_capacity(record.size(()));
    record.put((), &mut out);
    out
}

/// A directory listing being filled: entries are padded to 8 bytes and never exceed the size that
/// the kernel asked for.
pub struct Dirents {
    out: Vec<u8>,
    bytes_max: usize,
}

impl Dirents {
    /// An empty listing of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Dirents { out: Vec::with_capacity(bytes_max.min(64 * 1024)), bytes_max }
    }

    /// Adds an entry, with its inode in READDIRPLUS; false when it does not fit.
    pub fn push(
        &mut self,
        entry: Option<&Entry>,
        ino: u64,
        cookie: u64,
        kind: u8,
        name: &[u8],
    ) -> bool {
        let head = if entry.is_some() { Self::PLUS_BYTES } else { 0 } + Self::HEAD_BYTES;
        let end = self.out.len() + (head + name.len()).next_multiple_of(8);
        let Ok(name_bytes) = u32::try_from(name.len()) else { return false };
        if end > self.bytes_max {
            return false;
        }
        if let Some(entry) = entry {
            entry.put((), &mut self.out);
        }
        Field::<()>::put(&ino, (), &mut self.out);
        Field::<()>::put(&cookie, (), &mut self.out);
        Field::<()>::put(&name_bytes, (), &mut self.out);
        Field::<()>::put(&u32::from(kind), (), &mut self.out);
        self.out.extend_from_slice(name);
        self.out.resize(end, 0);
        true
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// The encoded listing.
    pub fn into_vec(self) -> Vec<u8> {
        self.out
    }

    /// Of an entry before its name, in bytes.
    pub const HEAD_BYTES: usize = 24;
    /// What READDIRPLUS adds to each, in bytes.
    pub const PLUS_BYTES: usize = 128;
}
