//! Extended attributes, and files without a name.

use super::session::unexpected;
use super::{File, Fs, Result};
use crate::ops::{Caller, Id, Inode, Op, Reply};
use covey_wire::{Bytes, Name};

impl Fs {
    /// An extended attribute's value; ENODATA when there is none of that name.
    pub async fn getxattr(&self, who: &Caller, id: Id, name: &Name) -> Result<Bytes> {
        match self.ask(who, Op::Getxattr { id, name: name.clone() }).await? {
            Reply::Xattr { value } => Ok(value.into_bytes()),
            other => Err(unexpected(&other)),
        }
    }

    /// The names of a file's extended attributes, those that the caller may see.
    pub async fn listxattr(&self, who: &Caller, id: Id) -> Result<Vec<Name>> {
        match self.ask(who, Op::Listxattr { id }).await? {
            Reply::XattrNames { names } => Ok(names.0),
            other => Err(unexpected(&other)),
        }
    }

    /// Sets an extended attribute. `flags`: [`crate::ops::xattr`].
    pub async fn setxattr(
        &self,
        who: &Caller,
        id: Id,
        name: &Name,
        value: Bytes,
        flags: u32,
    ) -> Result<()> {
        let op = Op::Setxattr { id, name: name.clone(), value: value.into(), flags };
        self.change(who, op).await.map(|_| ())
    }

    /// Removes an extended attribute; ENODATA when there is none of that name.
    pub async fn removexattr(&self, who: &Caller, id: Id, name: &Name) -> Result<()> {
        self.change(who, Op::Removexattr { id, name: name.clone() }).await.map(|_| ())
    }

    /// Makes a regular file without a name in the directory's file system: [`Fs::link`] may name it,
    /// else it is gone with its last handle.
    pub async fn tmpfile(
        &self,
        who: &Caller,
        parent: Id,
        mode: u32,
        access: u8,
    ) -> Result<(Inode, File)> {
        let op = Op::Tmpfile { parent, mode: mode & 0o7777, gid: who.gid, access };
        let starts = self.shared.session.starts();
        let (inode, opened) = self.shared.session.open(who, op).await?;
        let file = self.handle(who, &inode, opened, starts).await?;
        Ok((inode, file))
    }
}
