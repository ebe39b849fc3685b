//! What a mount needs of a file system: the striping client's own calls, as a trait, so that the
//! mount can be tried over a model in memory.

mod stripe;

use covey_ninep::tree::{Errno, Removal, Result, SetAttr};
use covey_stripe::client::{Forget, Listing, Page, Seek, Space, Stat, Taken};
use covey_stripe::ops::{Caller, Consistency, Id, Inode, RangeLock};
use covey_wire::{Bytes, Name, Payload};
use std::future::Future;
use std::time::Duration;

/// A file system to be mounted. The methods are those of [`covey_stripe::client::Fs`] and its
/// `File`, with the same promises. Futures may be dropped at any time: an interrupted request is.
#[allow(missing_docs)]
pub trait Files: Send + Sync + 'static {
    /// An open file. Clones share it; the last one dropped closes it.
    type File: Clone + Send + Sync + 'static;

    /// How much longer the kernel may keep a file's attributes, and a directory's name.
    fn time_left(&self, _id: Id) -> (Duration, Duration) {
        Default::default()
    }
    /// How much longer the names are good that were told of a directory.
    fn names_left(&self, _id: Id) -> Duration {
        Duration::ZERO
    }
    /// Whether a file was made here, and the server has yet to be told.
    fn is_unmade(&self, _id: Id) -> bool {
        false
    }
    /// The file's version when it was opened.
    fn version(&self, _file: &Self::File) -> u64 {
        0
    }
    /// The file's own consistency mode when it was opened.
    fn consistency(&self, _file: &Self::File) -> Option<Consistency> {
        None
    }
    /// The version of a small file and all that it holds, where both are known under a lease.
    fn whole(&self, _file: &Self::File) -> Option<(u64, Bytes)> {
        None
    }
    /// Whether a write of a file that ends there is kept with the file, which the servers have yet to be told of: nobody waits
    /// for it.
    fn keeps(&self, _file: &Self::File, _end: u64) -> bool {
        false
    }
    /// Asks for what [`Files::whole`] is to know, where others of its directory come with it.
    fn bring_content(&self, _file: &Self::File) -> impl Future<Output = ()> {
        async {}
    }
    /// Has `forget` called before anything of that changes.
    fn on_revoke(&self, _forget: Forget) {}

    fn lookup(&self, who: &Caller, parent: Id, name: &Name) -> impl Future<Output = Result<Inode>>;
    fn stat(&self, id: Id) -> impl Future<Output = Result<Stat>>;
    /// A file's mode, with what is being done to it.
    fn mode(&self, id: Id) -> impl Future<Output = Result<u32>> {
        async move { Ok(self.stat(id).await?.inode.mode) }
    }
    fn setattr(&self, who: &Caller, id: Id, set: SetAttr) -> impl Future<Output = Result<Stat>>;
    /// The same through a file that is open for writing.
    fn setattr_open(
        &self,
        who: &Caller,
        id: Id,
        set: SetAttr,
    ) -> impl Future<Output = Result<Stat>>;
    /// `access`: 4 read, 2 write.
    fn create(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        mode: u32,
        taken: Taken,
        access: u8,
    ) -> impl Future<Output = Result<(Inode, Self::File)>>;
    fn make(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        mode: u32,
        rdev: u64,
        target: Name,
    ) -> impl Future<Output = Result<Inode>>;
    /// `access`: 4 read, 2 write, 1 execute.
    fn open(&self, who: &Caller, id: Id, access: u8) -> impl Future<Output = Result<Self::File>>;
    fn unlink(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        what: Removal,
    ) -> impl Future<Output = Result<()>>;
    fn rename(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        to: Id,
        to_name: &Name,
        flags: u32,
    ) -> impl Future<Output = Result<()>>;
    fn link(
        &self,
        who: &Caller,
        id: Id,
        parent: Id,
        name: &Name,
    ) -> impl Future<Output = Result<Inode>>;
    /// Entries after `cookie` (0: `.` and `..` first) up to `limit` (0 on the first call).
    fn readdir(
        &self,
        who: &Caller,
        id: Id,
        cookie: u64,
        limit: u64,
        bytes_max: u32,
        listing: Listing,
    ) -> impl Future<Output = Result<Page>>;
    /// A regular file without a name.
    fn tmpfile(
        &self,
        who: &Caller,
        parent: Id,
        mode: u32,
        access: u8,
    ) -> impl Future<Output = Result<(Inode, Self::File)>>;
    /// `mode`: [`covey_stripe::client::fallocate`].
    fn fallocate(
        &self,
        who: &Caller,
        file: &Self::File,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> impl Future<Output = Result<()>>;
    /// Copies up to `length` bytes from one file to another; how many.
    fn copy(
        &self,
        from: &Self::File,
        offset: u64,
        to: &Self::File,
        to_offset: u64,
        length: u64,
    ) -> impl Future<Output = Result<u64>>;
    fn getxattr(&self, who: &Caller, id: Id, name: &Name) -> impl Future<Output = Result<Bytes>>;
    fn listxattr(&self, who: &Caller, id: Id) -> impl Future<Output = Result<Vec<Name>>>;
    /// `flags`: [`covey_stripe::ops::xattr`].
    fn setxattr(
        &self,
        who: &Caller,
        id: Id,
        name: &Name,
        value: Bytes,
        flags: u32,
    ) -> impl Future<Output = Result<()>>;
    /// The mode that a file, or what is made in a directory, has of its own.
    fn set_consistency(
        &self,
        _who: &Caller,
        _id: Id,
        _mode: Option<Consistency>,
    ) -> impl Future<Output = Result<()>> {
        async { Err(Errno::EOPNOTSUPP.into()) }
    }
    fn removexattr(&self, who: &Caller, id: Id, name: &Name) -> impl Future<Output = Result<()>>;
    fn space(&self) -> impl Future<Output = Result<Space>>;
    fn sync(&self, id: Id) -> impl Future<Output = Result<()>>;
    /// Dropping the future of a waiting lock gives up.
    fn lock(&self, id: Id, lock: RangeLock, wait: bool) -> impl Future<Output = Result<()>>;
    fn unlock(&self, id: Id, lock: RangeLock) -> impl Future<Output = Result<()>>;
    fn getlock(&self, id: Id, lock: RangeLock) -> impl Future<Output = Result<Option<RangeLock>>>;

    fn read_at(
        &self,
        file: &Self::File,
        offset: u64,
        count: usize,
    ) -> impl Future<Output = Result<Payload>>;
    fn write_at(
        &self,
        file: &Self::File,
        offset: u64,
        data: Payload,
    ) -> impl Future<Output = Result<()>>;
    /// Appends at the end, whatever other clients append; returns the offset.
    fn append(&self, file: &Self::File, data: Payload) -> impl Future<Output = Result<u64>>;
    fn fsync(&self, file: &Self::File) -> impl Future<Output = Result<()>>;
    fn flush(&self, file: &Self::File) -> impl Future<Output = Result<()>>;
    /// The same of a file that is closed, where the servers may hear of it a moment later, if nobody else can tell.
    fn flush_late(&self, file: &Self::File) -> impl Future<Output = Result<()>> {
        self.flush(file)
    }
    /// Where the next data (or hole) at or after `offset` begins.
    fn seek(&self, file: &Self::File, offset: u64, what: Seek)
    -> impl Future<Output = Result<u64>>;
}
