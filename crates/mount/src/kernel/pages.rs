//! Pages that the kernel reads under a lease: of which files, and of which state of them.

use super::{Kernel, Notified};
use crate::abi::Pad;
use crate::abi::reply::{Store, encode};
use covey_stripe::ops::Id;
use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// What is read from pages.
#[derive(Default)]
pub(super) struct Stored {
    /// By file that is open so.
    files: HashMap<Id, Pages>,
    is_swept: bool,
}

#[derive(Clone, Copy)]
struct Pages {
    /// Not newer than what they hold.
    of: PageState,
    /// There may be some.
    are_there: bool,
    /// How often they are being dropped just now.
    drops: usize,
}

/// The state of a file that its pages are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// This version: each change of what lies with an inode makes another one.
    Version(u64),
    /// None that is known: they are good for nothing.
    Unknown,
}

impl Kernel {
    /// Has the kernel take all that a file holds into its pages, to be read under a lease; false where it did not. Nobody may
    /// have the file open.
    pub fn store(&self, id: Id, version: u64, content: &[u8]) -> bool {
        let is_stored = self.fill(id, content);
        if is_stored {
            self.pages_in(id, PageState::Version(version));
        }
        is_stored
    }

    /// The same in the place of all pages and attributes that the kernel has of the file, to be kept until the next open.
    pub fn store_anew(&self, id: Id, content: &[u8]) -> bool {
        // What was longer before would be read beyond its end.
        self.forget_inode(id, 0);
        self.fill(id, content)
    }

    fn fill(&self, id: Id, content: &[u8]) -> bool {
        let Ok(size) = u32::try_from(content.len()) else { return false };
        // An empty file has no page.
        let head = encode(&Store { nodeid: id, offset: 0, size, padding: Pad });
        size == 0 || self.notify(NOTIFY_STORE, &[&head, content]) == Notified::Known
    }

    /// The state of a file that is read from pages.
    pub fn pages(&self, id: Id) -> Option<PageState> {
        self.stored().files.get(&id).map(|pages| pages.of)
    }

    /// A file is read from pages of this state.
    pub fn pages_in(&self, id: Id, of: PageState) {
        self.stored().files.insert(id, Pages { of, are_there: true, drops: 0 });
    }

    /// The kernel reads something of a file into its pages.
    pub fn pages_read(&self, id: Id) {
        if let Some(pages) = self.stored().files.get_mut(&id) {
            pages.are_there = true;
        }
    }

    /// Nobody reads the file from pages any more: an open brings others.
    pub fn pages_unused(&self, id: Id) {
        self.stored().files.remove(&id);
    }

    /// The pages of a file that is read from them are of the state `of` from here on: others are dropped. `last` is its last
    /// byte and where that is.
    ///
    /// To drop pages makes the kernel disregard attributes that it has asked for before, and go on with the size that it
    /// knows. A byte that it is told to take in makes the file reach there for it, whatever it disregards. (Where
    /// the file has become shorter, the next READ tells.)
    ///
    /// By a thread that does nothing else: a page may be locked until a READ of it is answered, which a server may keep
    /// waiting, and other files are not to wait with it.
    pub async fn renew_pages(self: &Arc<Self>, id: Id, of: PageState, last: Option<(u64, u8)>) {
        let mut drops = true;
        if let Some(pages) = self.stored().files.get_mut(&id) {
            // Who drops them at the same time may not be done.
            drops = std::mem::take(&mut pages.are_there) || pages.drops > 0;
            pages.drops += 1;
        }
        let (kernel, (done, waits)) = (self.clone(), oneshot::channel());
        let renew = move || {
            if drops {
                kernel.forget_inode(id, 0);
            }
            if let Some((offset, byte)) = last {
                let head = encode(&Store { nodeid: id, offset, size: 1, padding: Pad });
                kernel.notify(NOTIFY_STORE, &[&head, &[byte]]);
            }
            let _ = done.send(());
        };
        match std::thread::Builder::new().name("fuse-stored".into()).spawn(renew) {
            Ok(_) => drop(waits.await),
            Err(_) => self.forget_pages(id).await,
        }
        if let Some(pages) = self.stored().files.get_mut(&id) {
            pages.of = of;
            pages.drops = pages.drops.saturating_sub(1);
            // A page that begins with its last byte is whole.
            pages.are_there |= last.is_some_and(|(offset, _)| offset % PAGE_BYTES == 0);
        }
    }

    /// Drops the pages of a file that is read from them, of which no attributes are known.
    pub async fn drop_pages_of_old(self: &Arc<Self>, id: Id) {
        self.renew_pages(id, PageState::Unknown, None).await;
    }

    /// Whether somebody is to look after leases that end, who was not asked to yet.
    pub fn begin_sweep(&self) -> bool {
        !std::mem::replace(&mut self.stored().is_swept, true)
    }

    /// Files of which there may be pages; none where nothing is read from pages: there is nothing to look after.
    pub fn swept(&self) -> Option<Vec<Id>> {
        let mut stored = self.stored();
        stored.is_swept = !stored.files.is_empty();
        let there = stored.files.iter().filter(|(_, pages)| pages.are_there);
        stored.is_swept.then(|| there.map(|(&id, _)| id).collect())
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kernel's pages have this size, or a multiple of it.
const PAGE_BYTES: u64 = 4096;

/// FUSE_NOTIFY_STORE.
const NOTIFY_STORE: u32 = 4;
