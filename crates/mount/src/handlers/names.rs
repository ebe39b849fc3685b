//! Names: LOOKUP and everything that makes, moves or removes one.

use super::attrs::{S_IFDIR, S_IFMT, S_IFREG, S_ISGID};
use super::{Result, Session};
use crate::abi::flags::open;
use crate::abi::reply::{Attr, Entry, encode};
use crate::abi::{Header, Text};
use crate::files::Files;
use crate::transport::Answer;
use covey_ninep::tree::{Errno, Removal, SetAttr};
use covey_stripe::client::{Taken, access};
use covey_stripe::ops::{Caller, Id, Inode, rename};
use covey_wire::{Field, Name};
use std::time::Duration;

impl<F: Files> Session<F> {
    pub(super) async fn lookup(&self, header: &Header, name: Text) -> Result<Answer> {
        let name = checked(name)?;
        let (parent, then) = (header.nodeid, self.behind.now());
        let found = match name.as_bytes() {
            // Only who holds a file handle for a number is sent here, and needs no path to it.
            b"." => self.files.stat(parent).await.map(|stat| stat.inode),
            b".." => self.files.lookup(&Caller::default(), parent, &name).await,
            _ => {
                let looking = async |who: &Caller| self.files.lookup(who, parent, &name).await;
                self.as_caller(header, looking).await
            }
        };
        match found {
            Ok(inode) => Ok(self.entry_out(parent, &name, &self.settled(inode, then).await?)),
            Err(error) if error.code == Errno::ENOENT => {
                let kept = self.names_kept(parent);
                if kept.is_zero() { Err(error) } else { Ok(nowhere(kept)) }
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn readlink(&self, id: Id) -> Result<Answer> {
        let target = self.files.stat(id).await?.inode.target;
        Ok(Answer::Small(target.as_bytes().to_vec()))
    }

    pub(super) async fn symlink(
        &self,
        header: &Header,
        name: Text,
        target: Text,
    ) -> Result<Answer> {
        self.make(header, name, S_IFLNK | 0o777, 0, target.0).await
    }

    pub(super) async fn mkdir(&self, header: &Header, name: Text, mode: u32) -> Result<Answer> {
        self.make(header, name, S_IFDIR | mode & 0o7777, 0, Name::EMPTY).await
    }

    pub(super) async fn mknod(
        &self,
        header: &Header,
        name: Text,
        mode: u32,
        rdev: u32,
    ) -> Result<Answer> {
        if mode & S_IFMT != S_IFREG {
            return self.make(header, name, mode, u64::from(rdev), Name::EMPTY).await;
        }
        let (parent, name, mode) = (header.nodeid, checked(name)?, mode & 0o7777);
        self.look_for_setgid(header, mode);
        let making = async |who: &Caller| {
            self.files.create(who, parent, &name, mode, Taken::Refuse, access::NONE).await
        };
        let (inode, _closed_at_once) = self.as_caller(header, making).await?;
        Ok(self.entry_out(parent, &name, &inode))
    }

    pub(super) async fn create(
        &self,
        header: &Header,
        name: Text,
        mode: u32,
        flags: u32,
    ) -> Result<Answer> {
        let (parent, name, mode) = (header.nodeid, checked(name)?, mode & 0o7777);
        let exclusive = flags & open::EXCL != 0;
        let access = super::data::access_of(flags);
        let (then, asked) = (self.behind.now(), self.kernel.asking());
        self.look_for_setgid(header, mode);
        let making = async |who: &Caller| {
            self.files.create(who, parent, &name, mode, Taken::unless(exclusive), access).await
        };
        let (mut inode, file) = self.as_caller(header, making).await?;
        inode = self.settled(inode, then).await?;
        // Somebody else made it since the kernel looked.
        if flags & open::TRUNC != 0 && inode.size > 0 {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            let id = inode.id;
            let cut = async |who: &Caller| self.files.setattr(who, id, set.clone()).await;
            inode = self.as_caller(header, cut).await?.inode;
        }
        let is_told = self.kernel.tell_made(parent, inode.id, asked);
        let mut entry = self.entry(header.nodeid, &name, &inode, false);
        let glimpse = self.glimpse_of_names(parent, is_told);
        if entry.entry_valid == 0 && !glimpse.is_zero() {
            entry.entry_valid_nsec = entry.entry_valid_nsec.max(glimpse.subsec_nanos());
        }
        // The kernel looks at the mode once more before the file is open. Without a lease it asks:
        // attributes of an open file are kept under one only.
        let is_kept = !self.attributes_kept(&inode).is_zero();
        let is_exact =
            || !self.files.time_left(inode.id).0.is_zero() || self.files.is_unmade(inode.id);
        if !is_kept && !is_exact() {
            (entry.attr_valid, entry.attr_valid_nsec) = (0, 0);
        }
        let opened = self.opened_new(inode.id, file, flags);
        let mut out = encode(&entry);
        opened.put((), &mut out);
        Ok(Answer::Small(out))
    }

    /// A file without a name, which link(2) may give one.
    pub(super) async fn tmpfile(&self, header: &Header, mode: u32, flags: u32) -> Result<Answer> {
        let (mode, access) = (mode & 0o7777, super::data::access_of(flags));
        self.look_for_setgid(header, mode);
        let making =
            async |who: &Caller| self.files.tmpfile(who, header.nodeid, mode, access).await;
        let (inode, file) = self.as_caller(header, making).await?;
        let (opened, _) = self.opened(inode.id, file, flags);
        let mut out = encode(&self.entry(header.nodeid, &Name::EMPTY, &inode, false));
        opened.put((), &mut out);
        Ok(Answer::Small(out))
    }

    pub(super) async fn unlink(
        &self,
        header: &Header,
        name: Text,
        what: Removal,
    ) -> Result<Answer> {
        let (parent, name) = (header.nodeid, checked(name)?);
        let removing = async |who: &Caller| self.files.unlink(who, parent, &name, what).await;
        self.as_caller(header, removing).await?;
        Ok(Answer::Done)
    }

    pub(super) async fn rename(
        &self,
        header: &Header,
        name: Text,
        to: Id,
        to_name: Text,
        flags: u32,
    ) -> Result<Answer> {
        if flags & !(rename::NOREPLACE | rename::EXCHANGE) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let (from, name, to_name) = (header.nodeid, checked(name)?, checked(to_name)?);
        let moving =
            async |who: &Caller| self.files.rename(who, from, &name, to, &to_name, flags).await;
        self.as_caller(header, moving).await?;
        let exchanged = flags & rename::EXCHANGE != 0;
        self.kernel.moved((header.nodeid, &name), (to, &to_name), exchanged);
        Ok(Answer::Done)
    }

    pub(super) async fn link(&self, header: &Header, id: Id, name: Text) -> Result<Answer> {
        let (parent, name) = (header.nodeid, checked(name)?);
        let then = self.behind.now();
        let linking = async |who: &Caller| self.files.link(who, id, parent, &name).await;
        let inode = self.as_caller(header, linking).await?;
        let inode = self.settled(inode, then).await?;
        Ok(self.entry_out(parent, &name, &inode))
    }

    async fn make(
        &self,
        header: &Header,
        name: Text,
        mode: u32,
        rdev: u64,
        target: Name,
    ) -> Result<Answer> {
        let (parent, name) = (header.nodeid, checked(name)?);
        self.look_for_setgid(header, mode);
        let making = async |who: &Caller| {
            self.files.make(who, parent, &name, mode, rdev, target.clone()).await
        };
        let inode = self.as_caller(header, making).await?;
        Ok(self.entry_out(parent, &name, &inode))
    }

    /// A mode that has set-group-id loses it, without a word, where the group is a stranger's.
    pub(super) fn look_for_setgid(&self, header: &Header, mode: u32) {
        if mode & S_ISGID != 0 {
            self.who.anew(header);
        }
    }

    fn entry_out(&self, parent: Id, name: &Name, inode: &Inode) -> Answer {
        Answer::Small(encode(&self.entry(parent, name, inode, false)))
    }
}

/// That a name leads nowhere, for the kernel to keep.
fn nowhere(kept: Duration) -> Answer {
    Answer::Small(encode(&Entry {
        nodeid: 0,
        generation: 0,
        entry_valid: kept.as_secs(),
        entry_valid_nsec: kept.subsec_nanos(),
        attr_valid: 0,
        attr_valid_nsec: 0,
        attr: Attr::default(),
    }))
}

/// The kernel lets longer names through.
fn checked(name: Text) -> Result<Name> {
    if name.0.len() <= NAME_BYTES_MAX { Ok(name.0) } else { Err(Errno::ENAMETOOLONG.into()) }
}

/// Of one name, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;

const S_IFLNK: u32 = 0o120_000;
