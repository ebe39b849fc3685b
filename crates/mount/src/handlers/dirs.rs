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
use crate::kernel::Asked;
use crate::transport::Answer;
use covey_ninep::tree::Errno;
use covey_stripe::client::Listing;
use covey_stripe::meta::is_dots;
use covey_stripe::ops::{Caller, DirEntry, Id, Inode};
use std::sync::Mutex;

/// How far a listing has come.
#[derive(Clone, Copy, Default)]
pub(super) struct Reached {
    /// Where it ends: entries made later are left out.
    pub limit: u64,
    /// The cookie of its last entry, once that is known: nothing comes after it.
    pub end: Option<u64>,
}

impl<F: Files> Session<F> {
    pub(super) async fn opendir(&self, header: &Header) -> Result<Answer> {
        let opening = async |who: &Caller| {
            let file = self.files.open(who, header.nodeid, 4).await?;
            Ok((who.clone(), file))
        };
        let (who, file) = self.as_caller(header, opening).await?;
        let (id, reached) = (header.nodeid, Mutex::default());
        let fh = self.dirs.insert(OpenDir { id, _file: file, who, reached });
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
        self.kernel.listed(fh);
        let dir = self.dirs.find(fh)?;
        let before = match cookie {
            0 => Reached::default(),
            _ => *locked(&dir.reached),
        };
        if before.end == Some(cookie) {
            return Ok(Answer::Small(Vec::new()));
        }
        let is_plus = listing == Listing::Inodes;
        // What the kernel may not keep need not be asked for; names alone take a quarter of the bytes.
        let is_vain = is_plus && self.names_kept(id).is_zero() && self.kernel.rests();
        let (listing, bytes) = if is_vain { (Listing::Names, size / 4) } else { (listing, size) };
        let (then, asked) = (self.behind.now(), self.kernel.asking());
        let page = self.files.readdir(&dir.who, id, cookie, before.limit, bytes, listing).await?;
        let end = page.entries.last().filter(|_| page.end).map(|last| last.cookie);
        *locked(&dir.reached) = Reached { limit: page.limit, end };
        if page.entries.is_empty() && !page.end {
            return Err(Errno::because(Errno::EIO, "an empty page in the middle of a directory"));
        }
        let mut dirents = Dirents::new(size as usize);
        let told =
            page.entries.iter().filter(|entry| entry.inode.is_some() && !is_dots(&entry.name));
        let told: Vec<Id> = told.map(|entry| entry.id).collect();
        let is_told = !told.is_empty() && self.tell_listing(fh, id, told, asked);
        for entry in &page.entries {
            let inode = is_plus.then(|| self.entry_of(id, entry, then, is_told));
            let name = entry.name.as_bytes();
            if !dirents.push(inode.as_ref(), entry.id, entry.cookie, entry.kind, name) {
                break;
            }
        }
        Ok(Answer::Small(dirents.into_vec()))
    }

    /// The kernel is about to be told of these files; whether it may use that.
    fn tell_listing(&self, fh: u64, dir: Id, files: Vec<Id>, asked: Asked) -> bool {
        let is_told = self.kernel.tell_listing(fh, dir, files, asked);
        if self.dirs.find(fh).is_err() {
            // It was closed meanwhile: its process has not waited for this answer.
            self.kernel.listed(fh);
        }
        is_told
    }

    pub(super) fn releasedir(&self, fh: u64) -> Result<Answer> {
        self.dirs.remove(fh);
        self.kernel.listed(fh);
        Ok(Answer::Done)
    }

    /// With nodeid 0 the kernel takes the name and asks for the inode when it wants it: so for `.`
    /// and `..`, as the protocol asks, and where the attributes or their blocks are not known, or not
    /// what they will be when the writes that are gathered have arrived. And where the name may not be
    /// kept: it would be asked for again.
    fn entry_of(&self, dir: Id, entry: &DirEntry, then: Moment, is_told: bool) -> Entry {
        let is_good = |inode: &&Inode| {
            !is_dots(&entry.name) && !inode.sparse && !self.behind.wrote_since(inode.id, then)
        };
        let told = entry.inode.as_ref().filter(is_good);
        let told = told.map(|inode| self.entry(dir, &entry.name, inode, is_told));
        match told.filter(|told| told.entry_valid > 0 || told.entry_valid_nsec > 0) {
            Some(told) => told,
            None => Entry {
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
