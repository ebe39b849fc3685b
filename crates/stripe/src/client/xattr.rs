//! Extended attributes, and files without a name.
//!
//! One of them is not kept as such: `user.covey.layout` is how a file lies on the I/O servers, or how new files of a directory
//! will. Lists leave it out, so that a copy of all attributes does not carry it to other files.

use super::session::unexpected;
use super::{Error, File, Fs, Result};
use crate::distribution::STRIP_BYTES_DEFAULT;
use crate::distribution::wish::{self, Wish};
use crate::ops::{Caller, Id, Inode, Op, ROOT, Reply, StripingHint, xattr};
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, Name};
use std::time::Duration;

/// A file's layout as an attribute, in the words of [`wish`].
pub const LAYOUT: &str = "user.covey.layout";
/// A file's own consistency mode as an attribute, by the name of the mode. Mounts have it, not the servers.
pub const CONSISTENCY: &str = "user.covey.consistency";
/// Attributes that are not a user's.
const SECURITY: &[u8] = b"security.";
/// Tries while the file is open, half a second in all.
const CLOSE_TRIES: u32 = 25;
const CLOSE_PAUSE: Duration = Duration::from_millis(20);

impl Fs {
    /// An extended attribute's value; ENODATA when there is none of that name.
    pub async fn getxattr(&self, who: &Caller, id: Id, name: &Name) -> Result<Bytes> {
        if name.as_bytes() == LAYOUT.as_bytes() {
            return Ok(self.layout_text(id).await?.into());
        }
        // The kernel asks for privilege before each write.
        if name.as_bytes().starts_with(SECURITY) && self.shared.session.is_unmade(id) {
            return Err(Errno::ENODATA.into());
        }
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
        if name.as_bytes() == LAYOUT.as_bytes() {
            return self.set_layout(who, id, &value, flags).await;
        }
        let op = Op::Setxattr { id, name: name.clone(), value: value.into(), flags };
        self.change(who, op).await.map(|_| ())
    }

    /// Removes an extended attribute; ENODATA when there is none of that name.
    pub async fn removexattr(&self, who: &Caller, id: Id, name: &Name) -> Result<()> {
        if name.as_bytes() == LAYOUT.as_bytes() {
            let what = format!("{LAYOUT} cannot be removed: a layout can only be changed");
            return Err(Error::because(Errno::EPERM, what));
        }
        self.change(who, Op::Removexattr { id, name: name.clone() }).await.map(|_| ())
    }

    /// A directory's own hint for new files, or that of the nearest directory above that has one; none where no one has.
    pub async fn hint_of(&self, mut dir: Inode) -> Result<Option<StripingHint>> {
        while dir.hint.is_none() && dir.id != ROOT && dir.parent != dir.id {
            dir = self.stat(dir.parent).await?.inode;
        }
        Ok(dir.hint)
    }

    async fn layout_text(&self, id: Id) -> Result<String> {
        let inode = self.stat(id).await?.inode;
        match &inode.striping {
            Some(striping) => {
                Ok(wish::text_of_file(striping, |chain| self.shared.data.server_of(chain)))
            }
            None => Ok(wish::text(&self.layout_of(inode).await?)),
        }
    }

    /// The layout of a file, or of new files in a directory; ENODATA for what has none.
    async fn layout_of(&self, inode: Inode) -> Result<StripingHint> {
        match &inode.striping {
            Some(striping) => Ok(StripingHint::of_file(striping)),
            None if inode.is_dir() => {
                let hint = self.hint_of(inode).await?;
                Ok(hint.unwrap_or_else(|| StripingHint::progressive(STRIP_BYTES_DEFAULT, 0)))
            }
            None => {
                let id = inode.id;
                let what =
                    format!("file {id} has no layout: neither a regular file nor a directory");
                Err(Error::because(Errno::ENODATA, what))
            }
        }
    }

    /// What the text does not say stays. EINVAL with the reason where it says nothing sensible.
    async fn set_layout(&self, who: &Caller, id: Id, text: &[u8], flags: u32) -> Result<()> {
        if flags & xattr::CREATE != 0 {
            return Err(Error::because(Errno::EEXIST, format!("file {id} has a layout already")));
        }
        let invalid = |what: String| Error::because(Errno::EINVAL, format!("{LAYOUT}: {what}"));
        let text = str::from_utf8(text).map_err(|_| invalid("not text".into()))?;
        let wish: Wish = text.trim_end_matches('\0').parse().map_err(invalid)?;
        let now = self.layout_of(self.stat(id).await?.inode).await?;
        let hint = wish.of(now, STRIP_BYTES_DEFAULT).map_err(|unfit| invalid(unfit.to_string()))?;
        // What was closed a moment ago is told to the server a moment later.
        for _ in 0..CLOSE_TRIES {
            match self.set_striping(who, id, hint.clone()).await {
                Err(error) if error.code() == Errno::EBUSY => {
                    self.shared.net.sleep(CLOSE_PAUSE).await
                }
                done => return done,
            }
        }
        self.set_striping(who, id, hint).await
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
