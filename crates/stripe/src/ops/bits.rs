//! Bits and flags of operations.

/// Bits of [`Op::Setattr`](super::Op::Setattr)'s mask: which fields count.
pub mod set {
    #![allow(missing_docs)]
    pub const MODE: u32 = 1;
    pub const UID: u32 = 2;
    pub const GID: u32 = 4;
    pub const SIZE: u32 = 8;
    pub const ATIME: u32 = 16;
    pub const MTIME: u32 = 32;
    /// With ATIME: the server's clock rather than the field.
    pub const ATIME_NOW: u32 = 64;
    /// With MTIME: the server's clock rather than the field.
    pub const MTIME_NOW: u32 = 128;
    /// With SIZE: the caller has the file open for writing, and asks through that, as ftruncate(2)
    /// does: the mode no longer matters. The client answers for it.
    pub const SIZE_OF_OPEN: u32 = 256;
    /// With SIZE, and without MODE: only at the epoch that stands in the field of the mode, else ESTALE: whoever has a
    /// file for itself does not change one that another client has taken.
    pub const AT_EPOCH: u32 = 512;
    /// In an [`Op::Amend`](crate::ops::Op::Amend), without UID and GID: where the session is not alone with the file any more, only
    /// at the version whose halves stand in these fields ([`in_fields`]), else ESTALE: what others have done since is not
    /// undone.
    pub const AT_VERSION: u32 = 1024;
    /// Of a Make: a write is about to go beyond what lies with the inode, as an Extend to 0 says it.
    pub const BEYOND: u32 = 2048;

    /// A version in the fields `uid` (the lower half) and `gid`.
    pub fn in_fields(version: u64) -> (u32, u32) {
        (version as u32, (version >> 32) as u32)
    }

    /// The version in the fields `uid` and `gid`.
    pub fn from_fields(uid: u32, gid: u32) -> u64 {
        u64::from(gid) << 32 | u64::from(uid)
    }
}

/// What each step of an [`Op::Names`](super::Op::Names) does.
pub mod step {
    /// The file gets the name, which leads nowhere.
    pub const LINK: u8 = 0;
    /// The name goes, if it leads to the file still.
    pub const UNLINK: u8 = 1;
    /// The same if the file has another one: a link that was refused after all must not take the file with it.
    pub const DROP: u8 = 2;
}

/// [`Op::Setxattr`](super::Op::Setxattr)'s flags, as in setxattr(2): at most one.
pub mod xattr {
    #![allow(missing_docs)]
    pub const CREATE: u32 = 1;
    pub const REPLACE: u32 = 2;
}

/// Bits of [`Op::Rename`](super::Op::Rename)'s flags, as in renameat2(2).
pub mod rename {
    #![allow(missing_docs)]
    pub const NOREPLACE: u32 = 1;
    pub const EXCHANGE: u32 = 2;
}
