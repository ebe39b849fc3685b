//! Directories: OPENDIR, READDIR and READDIRPLUS.
//!
//! The cookie of an entry is its place for ever, so a listing goes on after any entry while others
//! come and go. It ends at the last cookie that was in use when it began: a loop that makes a file
//! for each entry it sees comes to an end.

use super::{OpenDir, Result, Session, locked};
use crate::abi::reply::{Dirents, Entry, OpenOut, encode};
use crate::abi::{Header, reply};
use crate::behind::Moment;
use crate::files::Files;
use crate::transport::Answer;
use covey_ninep::tree::Errno;
use covey_stripe::client::Listing;
use covey_stripe::ops::{Caller, DirEntry, Id};
use std::sync::Mutex;

impl<F: Files> Session<F> {
    pub(super) async fn opendir(&self, header: &Header) -> Result<Answer> {
        let opening = async |who: &Caller| {
            let file = self.files.open(who, header.nodeid, 4).await?;
            Ok((who.clone(), file))
        };
        let (who, file) = self.as_caller(header, opening).await?;
        let (id, limit) = (header.nodeid, Mutex::new(0));
        let fh = self.dirs.insert(OpenDir { id, _file: file, who, limit });
        Ok(Answer::Small(encode(&OpenOut { fh, open_flags: 0, backing_id: 0 })))
    }

    pub(super) async fn readdir(
        &self,
        id: Id,
        fh: u64,
        cookie: u64,
        size: u32,
        listing: Listing,
    ) -> Result<Answer> {
        let dir = self.dirs.find(fh)?;
        let limit = match cookie {
            0 => 0,
            _ => *locked(&dir.limit),
        };
        let then = self.behind.now();
        let page = self.files.readdir(&dir.who, id, cookie, limit, size, listing).await?;
        *locked(&dir.limit) = page.limit;
        if page.entries.is_empty() && !page.end {
            return Err(Errno::because(Errno::EIO, "an empty page in the middle of a directory"));
        }
        let mut dirents = Dirents::new(size as usize);
        for entry in &page.entries {
            let inode = (listing == Listing::Inodes).then(|| self.entry_of(id, entry, then));
            let name = entry.name.as_bytes();
            if !dirents.push(inode.as_ref(), entry.id, entry.cookie, entry.kind, name) {
                break;
            }
        }
        Ok(Answer::Small(dirents.into_vec()))
    }

    /// With nodeid 0 the kernel takes the name and asks for the inode when it wants it: so for `.`
    /// and `..`, as the protocol asks, and where the attributes or their blocks are not known, or not
    /// what they will be when the writes that are gathered have arrived.
    fn entry_of(&self, dir: Id, entry: &DirEntry, then: Moment) -> Entry {
        let special = matches!(entry.name.as_bytes(), b"." | b"..");
        match &entry.inode {
            Some(inode)
                if !special && !inode.sparse && !self.behind.wrote_since(inode.id, then) =>
            {
                self.entry(dir, &entry.name, inode)
            }
            _ => Entry {
                nodeid: 0,
                generation: 0,
                entry_valid: 0,
                attr_valid: 0,
                entry_valid_nsec: 0,
                attr_valid_nsec: 0,
                attr: reply::Attr::default(),
            },
        }
    }
}
