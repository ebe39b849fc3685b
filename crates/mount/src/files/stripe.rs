//! The striping client as a file system to mount.

use super::Files;
use covey_ninep::tree::{Removal, Result, SetAttr};
use covey_stripe::client::{File, Forget, Fs, Listing, Page, Seek, Space, Stat, Taken};
use covey_stripe::ops::{Caller, Consistency, Id, Inode, RangeLock};
use covey_wire::{Bytes, Name, Payload};
use std::time::Duration;

impl Files for Fs {
    type File = File;

    fn time_left(&self, id: Id) -> (Duration, Duration) {
        Fs::time_left(self, id)
    }

    fn is_unmade(&self, id: Id) -> bool {
        Fs::is_unmade(self, id)
    }

    fn names_left(&self, id: Id) -> Duration {
        Fs::names_left(self, id)
    }

    fn version(&self, file: &File) -> u64 {
        file.version()
    }

    fn consistency(&self, file: &File) -> Option<Consistency> {
        file.consistency()
    }

    fn keeps(&self, file: &File, end: u64) -> bool {
        file.keeps(end)
    }

    fn whole(&self, file: &File) -> Option<(u64, Bytes)> {
        file.whole()
    }

    async fn bring_content(&self, file: &File) {
        file.bring_content().await;
    }

    fn on_revoke(&self, forget: Forget) {
        Fs::on_revoke(self, forget);
    }

    async fn lookup(&self, who: &Caller, parent: Id, name: &Name) -> Result<Inode> {
        Ok(Fs::lookup(self, who, parent, name).await?)
    }

    async fn stat(&self, id: Id) -> Result<Stat> {
        Ok(Fs::stat(self, id).await?)
    }

    async fn mode(&self, id: Id) -> Result<u32> {
        Ok(Fs::mode(self, id).await?)
    }

    async fn setattr(&self, who: &Caller, id: Id, set: SetAttr) -> Result<Stat> {
        Ok(Fs::setattr(self, who, id, set).await?)
    }

    async fn setattr_open(&self, who: &Caller, id: Id, set: SetAttr) -> Result<Stat> {
        Ok(Fs::setattr_open(self, who, id, set).await?)
    }

    async fn create(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        mode: u32,
        taken: Taken,
        access: u8,
    ) -> Result<(Inode, File)> {
        Ok(Fs::create(self, who, parent, name, mode, taken, access).await?)
    }

    async fn make(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        mode: u32,
        rdev: u64,
        target: Name,
    ) -> Result<Inode> {
        Ok(Fs::make(self, who, parent, name, mode, rdev, target).await?)
    }

    async fn open(&self, who: &Caller, id: Id, access: u8) -> Result<File> {
        Ok(Fs::open(self, who, id, access).await?)
    }

    async fn unlink(&self, who: &Caller, parent: Id, name: &Name, what: Removal) -> Result<()> {
        Ok(Fs::unlink(self, who, parent, name, what).await?)
    }

    async fn rename(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        to: Id,
        to_name: &Name,
        flags: u32,
    ) -> Result<()> {
        Ok(Fs::rename(self, who, parent, name, to, to_name, flags).await?)
    }

    async fn link(&self, who: &Caller, id: Id, parent: Id, name: &Name) -> Result<Inode> {
        Ok(Fs::link(self, who, id, parent, name).await?)
    }

    async fn readdir(
        &self,
        who: &Caller,
        id: Id,
        cookie: u64,
        limit: u64,
        bytes_max: u32,
        listing: Listing,
    ) -> Result<Page> {
        Ok(Fs::readdir(self, who, id, cookie, limit, bytes_max, listing).await?)
    }

    async fn tmpfile(
        &self,
        who: &Caller,
        parent: Id,
        mode: u32,
        access: u8,
    ) -> Result<(Inode, File)> {
        Ok(Fs::tmpfile(self, who, parent, mode, access).await?)
    }

    async fn fallocate(
        &self,
        who: &Caller,
        file: &File,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        Ok(file.fallocate(who, mode, offset, length).await?)
    }

    async fn copy(
        &self,
        from: &File,
        offset: u64,
        to: &File,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        Ok(from.copy(offset, to, to_offset, length).await?)
    }

    async fn set_consistency(&self, who: &Caller, id: Id, mode: Option<Consistency>) -> Result<()> {
        Ok(Fs::set_consistency(self, who, id, mode).await?)
    }

    async fn getxattr(&self, who: &Caller, id: Id, name: &Name) -> Result<Bytes> {
        Ok(Fs::getxattr(self, who, id, name).await?)
    }

    async fn listxattr(&self, who: &Caller, id: Id) -> Result<Vec<Name>> {
        Ok(Fs::listxattr(self, who, id).await?)
    }

    async fn setxattr(
        &self,
        who: &Caller,
        id: Id,
        name: &Name,
        value: Bytes,
        flags: u32,
    ) -> Result<()> {
        Ok(Fs::setxattr(self, who, id, name, value, flags).await?)
    }

    async fn removexattr(&self, who: &Caller, id: Id, name: &Name) -> Result<()> {
        Ok(Fs::removexattr(self, who, id, name).await?)
    }

    async fn space(&self) -> Result<Space> {
        Ok(Fs::space(self).await?)
    }

    async fn sync(&self, id: Id) -> Result<()> {
        Ok(Fs::sync(self, id).await?)
    }

    async fn lock(&self, id: Id, lock: RangeLock, wait: bool) -> Result<()> {
        Ok(Fs::lock(self, id, lock, wait).await?)
    }

    async fn unlock(&self, id: Id, lock: RangeLock) -> Result<()> {
        Ok(Fs::unlock(self, id, lock).await?)
    }

    async fn getlock(&self, id: Id, lock: RangeLock) -> Result<Option<RangeLock>> {
        Ok(Fs::getlock(self, id, lock).await?)
    }

    async fn read_at(&self, file: &File, offset: u64, count: usize) -> Result<Payload> {
        Ok(file.read_at(offset, count).await?)
    }

    async fn write_at(&self, file: &File, offset: u64, data: Payload) -> Result<()> {
        Ok(file.write_at(offset, data).await?)
    }

    async fn append(&self, file: &File, data: Payload) -> Result<u64> {
        Ok(file.append(data).await?)
    }

    async fn fsync(&self, file: &File) -> Result<()> {
        Ok(file.fsync().await?)
    }

    async fn flush(&self, file: &File) -> Result<()> {
        Ok(file.flush().await?)
    }

    async fn flush_late(&self, file: &File) -> Result<()> {
        Ok(file.flush_late().await?)
    }

    async fn seek(&self, file: &File, offset: u64, what: Seek) -> Result<u64> {
        Ok(file.seek(offset, what).await?)
    }
}
