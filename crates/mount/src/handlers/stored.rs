//! Small files that the kernel reads from its pages in mode `strict`.
//!
//! Who opens a small file to read it, and nothing else, finds all that it holds in the page cache: the content is known
//! here under a lease, and is stored before the open is answered. So reading such a file takes no request, and changes
//! no time of access that the kernel would ask for.
//!
//! The kernel asks for attributes before it reads from pages (AUTO_INVAL_DATA), unless it has some that are good under the
//! lease. That question meets the lease and the file's version here: where the pages are of another version they
//! are dropped before it is answered. So nothing has to be known of when pages come and go, only that what is stored is
//! not older than its version says.
//!
//! A page is locked for as long as a READ of it is not answered, and to store waits for that lock. So only the first open of a
//! file stores: nobody has it open, so nobody reads it.

use super::data::access_of;
use super::{OpenFile, Result, Session};
use crate::abi::flags::{init, open};
use crate::files::Files;
use covey_stripe::client::Stat;
use covey_stripe::ops::{Consistency, Id, Inode};
use std::sync::Arc;
use std::time::Duration;

impl<F: Files> Session<F> {
    /// Whether a file that is opened so could be read from pages.
    pub(super) fn may_store(&self, file: &F::File, flags: u32) -> bool {
        let other = open::TRUNC | open::APPEND | open::EXEC | rustix::fs::OFlags::DIRECT.bits();
        let asks = self.settled.get().is_some_and(|with| with.flags & init::AUTO_INVAL_DATA != 0);
        let is_read = access_of(flags) == 4 && flags & other == 0;
        is_read && asks && self.mode(self.files.consistency(file)) == Consistency::Strict
    }

    /// Counts a handle that is being opened and reads from pages, if the kernel has all that the file holds.
    pub(super) fn store(&self, open: &mut OpenFile<F::File>) -> bool {
        open.usage.direct = false;
        // Before the content is looked at: a write that is done after that finds that there are pages.
        let is_first = self.count(open);
        let is_stored = match self.files.whole(&open.file) {
            Some((version, _)) if !is_first => self.kernel.pages(open.id) == Some(version),
            Some((version, content)) => self.kernel.store(open.id, version, &content),
            None => false,
        };
        if !is_stored {
            self.closed(open);
            open.usage.direct = true;
        }
        is_stored
    }

    /// The file's attributes, with which the kernel may read from its pages.
    pub(super) async fn stat_with_pages(&self, id: Id) -> Result<Stat> {
        let stat = self.files.stat(id).await?;
        if self.pages_agree(&stat.inode) {
            return Ok(stat);
        }
        self.kernel.drop_pages(id, stat.inode.version).await;
        self.files.stat(id).await
    }

    /// Whether pages that are read under a lease are of this version, if there are any: else the kernel may not go by
    /// these attributes.
    pub(super) fn pages_agree(&self, inode: &Inode) -> bool {
        self.kernel.pages(inode.id).is_none_or(|version| version == inode.version)
    }

    /// Drops the pages of files that stay open when their lease is about to end: sendfile(2) and mappings ask for no
    /// attributes.
    pub(super) fn sweep_stored(self: &Arc<Self>) {
        if !self.kernel.begin_sweep() {
            return;
        }
        let session = self.clone();
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(SWEEP_EVERY).await;
                let Some(stored) = session.kernel.swept() else { return };
                for id in stored {
                    if session.files.time_left(id).0 < SWEEP_EVERY * 2 {
                        session.kernel.drop_pages_of_old(id).await;
                    }
                }
            }
        });
    }
}

/// A fraction of a lease.
const SWEEP_EVERY: Duration = Duration::from_millis(200);
