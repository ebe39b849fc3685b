//! Extended attributes: a fid that holds one to be read, or one to be written.
//!
//! Txattrwalk makes a fid whose content is the value, or the names of all attributes, each with a NUL
//! behind it. Txattrcreate turns a fid into an attribute of so many bytes to come, and its clunk sets
//! it; none at all with XATTR_REPLACE removes it, as Linux says removexattr(2).

use super::Session;
use super::fids::Fid;
use super::finish::Then;
use super::start::Started;
use crate::message::{Message, NAME_BYTES_MAX};
use crate::tree::{Errno, Result, SetXattr, Tree, User, XATTR_BYTES_MAX};
use covey_wire::{Bytes, Name};
use std::rc::Rc;

/// What such a fid holds.
pub(super) enum Xattr<N> {
    /// A value, or the list of names.
    Read(Bytes),
    /// A value that is being written.
    Write(New<N>),
}

/// An attribute to be set when its fid is clunked.
pub(super) struct New<N> {
    node: N,
    user: Rc<User>,
    name: Name,
    rule: SetXattr,
    /// How long the value will be.
    size: usize,
    value: Vec<u8>,
}

impl<N> Xattr<N> {
    /// Memory that it takes, or will.
    pub fn bytes(&self) -> usize {
        match self {
            Xattr::Read(value) => value.len(),
            Xattr::Write(new) => new.size,
        }
    }

    pub fn read(&self, offset: u64, count: u32) -> Result<Bytes> {
        let Xattr::Read(value) = self else {
            return Err(Errno::because(Errno::EBADF, "the attribute is being written"));
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(value.len());
        let end = start.saturating_add(count as usize).min(value.len());
        Ok(value.slice(start..end))
    }

    /// Takes a piece of the value: where the last one ended, or over what is there.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let Xattr::Write(new) = self else {
            return Err(Errno::because(Errno::EBADF, "the attribute is being read"));
        };
        let start = usize::try_from(offset).ok().filter(|start| *start <= new.value.len());
        let Some(start) = start else {
            return Err(Errno::because(Errno::EINVAL, "a piece of the attribute is missing"));
        };
        if start + data.len() > new.size {
            let what = format!("the attribute was to have {} bytes", new.size);
            return Err(Errno::because(Errno::ENOSPC, what));
        }
        let over = data.len().min(new.value.len() - start);
        new.value[start..start + over].copy_from_slice(&data[..over]);
        new.value.extend_from_slice(&data[over..]);
        Ok(())
    }
}

impl<T: Tree> Session<T> {
    /// Txattrwalk: a new fid on a value, or on the list when there is no name.
    pub(super) fn start_xattr_walk(
        &mut self,
        fid: u32,
        newfid: u32,
        name: Name,
    ) -> Result<Started<T::Node>> {
        if name.is_empty() {
            self.fids.file(fid)?;
            self.check_new(newfid)?;
            let then = Then::XattrList { newfid };
            return self.ask(fid, then, |tree, file| tree.list_xattrs(&file.user, &file.node));
        }
        check_xattr_name(&name)?;
        self.fids.file(fid)?;
        self.check_new(newfid)?;
        let then = Then::XattrValue { newfid };
        self.ask(fid, then, |tree, file| tree.xattr(&file.user, &file.node, name))
    }

    /// Txattrcreate: the fid is an attribute from now on, to be written and clunked.
    pub(super) fn start_xattr_create(
        &mut self,
        fid: u32,
        name: Name,
        size: u64,
        flags: u32,
    ) -> Result<Started<T::Node>> {
        check_xattr_name(&name)?;
        let rule = match flags {
            0 => SetXattr::Any,
            1 => SetXattr::Create,
            2 => SetXattr::Replace,
            _ => return Err(Errno::because(Errno::EINVAL, format!("flags are {flags}"))),
        };
        if size > XATTR_BYTES_MAX as u64 {
            let what = format!("attribute is {size} bytes, limit is {XATTR_BYTES_MAX}");
            return Err(Errno::because(Errno::E2BIG, what));
        }
        let (size, file) = (size as usize, self.fids.unopened(fid)?);
        self.fids.check_xattr(size, self.share.xattr_bytes())?;
        let (node, user) = (file.node.clone(), file.user.clone());
        let new = New { node, user, name: name.detached(), rule, size, value: Vec::new() };
        let old = self.fids.remove(fid)?;
        self.fids.insert(fid, Fid::Xattr(Xattr::Write(new)));
        self.clunk(old);
        Ok(Started::Reply(Message::Rxattrcreate {}))
    }

    /// Sets what was written, now that the fid is clunked.
    pub(super) fn set_xattr(&self, xattr: Xattr<T::Node>) -> Result<Started<T::Node>> {
        let reply = Message::Rclunk {};
        let Xattr::Write(New { node, user, name, rule, size, value }) = xattr else {
            return Ok(Started::Reply(reply));
        };
        if value.len() < size {
            let what = format!("{} of the attribute's {size} bytes were written", value.len());
            return Err(Errno::because(Errno::EINVAL, what));
        }
        let asked = match (size, rule) {
            (0, SetXattr::Replace) => self.tree.remove_xattr(&user, &node, name),
            _ => self.tree.set_xattr(&user, &node, name, value.into(), rule),
        };
        Ok(Started::Asked(asked.into(), Then::Reply(reply)))
    }

    /// The new fid holds what the tree has answered.
    pub(super) fn finish_xattr(&mut self, newfid: u32, value: Bytes) -> Result<Message> {
        if value.len() > XATTR_BYTES_MAX {
            let what = format!("{} bytes, limit is {XATTR_BYTES_MAX}", value.len());
            return Err(Errno::because(Errno::E2BIG, what));
        }
        self.fids.check_xattr(value.len(), self.share.xattr_bytes())?;
        let size = value.len() as u64;
        self.fids.insert(newfid, Fid::Xattr(Xattr::Read(value)));
        Ok(Message::Rxattrwalk { size })
    }
}

/// The list as it is read: each name with a NUL behind it.
pub(super) fn list(names: &[Name]) -> Bytes {
    names.iter().flat_map(|name| [name.as_bytes(), b"\0"]).flatten().copied().collect()
}

fn check_xattr_name(name: &Name) -> Result<()> {
    match name.as_bytes() {
        [] => Err(Errno::because(Errno::ERANGE, "the attribute has no name")),
        long if long.len() > NAME_BYTES_MAX => {
            let what = format!("name is {} bytes, limit is {NAME_BYTES_MAX}", long.len());
            Err(Errno::because(Errno::ERANGE, what))
        }
        bytes if bytes.contains(&0) => Err(Errno::because(Errno::EINVAL, "name holds NUL")),
        _ => Ok(()),
    }
}
