//! Small files that the kernel reads from its pages in mode `strict`.
//!
//! Who opens a small file to read it, and nothing else, finds all that it holds in the page cache: the content is known
//! here under a lease, and is stored before the open is answered. So reading such a file takes no request, and changes
//! no time of access that the kernel would ask for.
//!
//! The kernel asks for attributes before it reads from pages (AUTO_INVAL_DATA), unless it has some that are good under the
//! lease. That question meets the lease and the file's version here: where the pages are of another version they
//! are dropped before it is answered. So nothing has to be known of when pages come and go, only that what is stored is
//! not older than its version says. A file that has grown beyond what lies with its inode is written without a new version:
//! its pages are good for nothing, and dropped before each answer.
//!
//! A page is locked for as long as a READ of it is not answered, and to store waits for that lock. So only the first open of a
//! file stores: nobody has it open, so nobody reads it.

use super::data::access_of;
use super::{OpenFile, Result, Session, locked};
use crate::abi::flags::{init, open};
use crate::files::Files;
use crate::kernel::PageState;
use covey_stripe::client::Stat;
use covey_stripe::ops::{Consistency, Id, Inode};
use std::sync::Arc;
use std::time::Duration;

impl<F: Files> Session<F> {
    /// Whether a file that is opened so could be read from pages that are stored here.
    pub(super) fn may_store(&self, file: &F::File, flags: u32) -> bool {
        let other = open::TRUNC | open::APPEND | open::EXEC | rustix::fs::OFlags::DIRECT.bits();
        let asks = self.settled.get().is_some_and(|with| with.flags & init::AUTO_INVAL_DATA != 0);
        let is_read = access_of(flags) == 4 && flags & other == 0;
        // In the weaker modes an open decides which pages are read, and nothing asks afterwards.
        is_read && (asks || self.mode(self.files.consistency(file)) != Consistency::Strict)
    }

    /// Has the kernel take what a small file holds that is opened in one of the weaker modes, and of which it has no pages that
    /// are as new. `is_first`: nobody else has it open.
    pub(super) fn fill(&self, open: &OpenFile<F::File>, is_first: bool) -> bool {
        let version = self.files.version(&open.file);
        let whole = if is_first { self.files.whole(&open.file) } else { None };
        let Some((_, content)) = whole.filter(|(of, _)| *of == version) else { return false };
        // Nobody has it open, so no page waits for an answer of ours.
        let is_filled = self.kernel.store_anew(open.id, &content);
        // Who has opened it meanwhile may have written.
        is_filled && locked(&self.opened).get(&open.id).is_some_and(|opens| opens.all == 1)
    }

    /// Counts a handle that is being opened and reads from pages, if the kernel has all that the file holds.
    pub(super) fn store(&self, open: &mut OpenFile<F::File>) -> bool {
        open.usage.direct = false;
        // Before the content is looked at: a write that is done after that finds that there are pages.
        let is_first = self.count(open);
        let is_stored = match self.files.whole(&open.file) {
            Some((version, _)) if !is_first => {
                self.kernel.pages(open.id) == Some(PageState::Version(version))
            }
            Some((version, content)) => {
                let is_stored = self.kernel.store(open.id, version, &content);
                // It may have been taken back before it was known that there are pages.
                if self.files.whole(&open.file).is_none_or(|(now, _)| now != version) {
                    self.kernel.pages_in(open.id, PageState::Unknown);
                }
                is_stored
            }
            None => false,
        };
        if is_stored {
            locked(&self.paged).entry(open.id).or_insert_with(|| open.file.clone());
        } else {
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
        let last = Box::pin(self.last_byte(&stat.inode)).await;
        self.kernel.renew_pages(id, state_of(&stat.inode), last).await;
        self.files.stat(id).await
    }

    /// The last byte of a file that is read from pages, and where it is.
    async fn last_byte(&self, inode: &Inode) -> Option<(u64, u8)> {
        let offset = inode.size.checked_sub(1)?;
        let file = locked(&self.paged).get(&inode.id).cloned()?;
        let read = self.files.read_at(&file, offset, 1).await.ok()?.into_bytes();
        Some((offset, *read.first()?))
    }

    /// Whether pages that are read under a lease are of this state, if there are any: else the kernel may not go by
    /// these attributes.
    pub(super) fn pages_agree(&self, inode: &Inode) -> bool {
        let Some(of) = self.kernel.pages(inode.id) else { return true };
        of != PageState::Unknown && of == state_of(inode)
    }

    /// Drops the pages of files that stay open when their lease is about to end, or no lease tells what they hold: sendfile(2)
    /// and mappings ask for no attributes.
    pub fn sweep_stored(self: &Arc<Self>) {
        if !self.kernel.begin_sweep() {
            return;
        }
        let session = self.clone();
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(SWEEP_EVERY).await;
                let Some(stored) = session.kernel.swept() else { return };
                for id in stored {
                    let is_unknown = session.kernel.pages(id) == Some(PageState::Unknown);
                    if is_unknown || session.files.time_left(id).0 < SWEEP_EVERY * 2 {
                        session.kernel.drop_pages_of_old(id).await;
                    }
                }
            }
        });
    }
}

/// The state that pages are of which are read while a file has these attributes.
fn state_of(inode: &Inode) -> PageState {
    let with_inode = inode.inline_max();
    if inode.size <= with_inode { PageState::Version(inode.version) } else { PageState::Unknown }
}

/// A fraction of a lease.
const SWEEP_EVERY: Duration = Duration::from_millis(200);
