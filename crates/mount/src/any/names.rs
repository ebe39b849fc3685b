//! What makes, moves and removes names.

use super::{Result, Session, small};
use crate::abi::flags::open;
use crate::abi::reply::encode;
use crate::abi::{Header, Request};
use crate::transport::Answer;
use covey_ninep::tree::{Errno, Make, Removal, Tree};
use covey_wire::{Field, Name};

impl<T: Tree> Session<T> {
    pub(super) async fn change_names(&self, header: &Header, request: Request) -> Result<Answer> {
        use Request::*;
        let (dir, gid) = (header.nodeid, header.gid);
        match request {
            Symlink { name, target } => {
                self.make(dir, name.0, Make::Symlink { target: target.0 }, gid).await
            }
            Mkdir { mode, name, .. } => self.make(dir, name.0, Make::Dir { mode }, gid).await,
            Mknod { mode, rdev, name, .. } => {
                let rdev = u64::from(rdev);
                let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
                self.make(dir, name.0, Make::Special { mode, major, minor }, gid).await
            }
            Unlink { name } => self.unlink(dir, name.0, Removal::File).await,
            Rmdir { name } => self.unlink(dir, name.0, Removal::Directory).await,
            Rename { newdir, name, newname } => self.rename(dir, name.0, newdir, newname.0).await,
            Rename2 { newdir, flags: 0, name, newname, .. } => {
                self.rename(dir, name.0, newdir, newname.0).await
            }
            Rename2 { .. } => Err(Errno::because(Errno::EINVAL, "9P has rename(2) without flags")),
            Link { oldnodeid, name } => {
                let (node, to) = (self.node(oldnodeid)?, self.node(dir)?);
                self.tree.link(&self.user, &node, &to, name.0.clone()).wait().await?;
                self.lookup(dir, name.0).await.map(small)
            }
            Create { flags, mode, name, .. } => self.create(dir, name.0, flags, mode, gid).await,
            _ => Err(Errno::ENOSYS.into()),
        }
    }

    async fn make(&self, dir: u64, name: Name, make: Make, gid: u32) -> Result<Answer> {
        let at = self.node(dir)?;
        self.tree.make(&self.user, &at, name.clone(), make, gid).wait().await?;
        self.lookup(dir, name).await.map(small)
    }

    async fn unlink(&self, dir: u64, name: Name, what: Removal) -> Result<Answer> {
        let at = self.node(dir)?;
        self.tree.unlink(&self.user, &at, name, what).wait().await.map(|()| Answer::Done)
    }

    async fn rename(&self, dir: u64, name: Name, to: u64, new: Name) -> Result<Answer> {
        let (from, into) = (self.node(dir)?, self.node(to)?);
        let renamed = self.tree.rename(&self.user, &from, name.clone(), &into, new.clone());
        renamed.wait().await?;
        self.nodes.borrow_mut().rename((dir, &name), (to, &new));
        Ok(Answer::Done)
    }

    async fn create(
        &self,
        dir: u64,
        name: Name,
        flags: u32,
        mode: u32,
        gid: u32,
    ) -> Result<Answer> {
        let at = self.node(dir)?;
        let flags = flags & (open::ACCMODE | open::TRUNC | open::APPEND | open::EXCL);
        let created = self
            .tree
            .create(&self.user, &at, name.clone(), flags, mode & 0o7777, gid)
            .wait()
            .await?;
        let entry = self.lookup(dir, name).await;
        let entry = entry.inspect_err(|_| self.tree.clunk(&self.user, created.node.clone()))?;
        let mut out = encode(&entry);
        self.opened(created.node, created.blocking).put((), &mut out);
        Ok(Answer::Small(out))
    }
}
