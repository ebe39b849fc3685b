//! Pages that the kernel reads under a lease: of which files, and which version.

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
    version: u64,
    /// There may be some.
    are_there: bool,
}

impl Kernel {
    /// Has the kernel take all that a file holds into its pages; false where it did not. Nobody may have the file open.
    pub fn store(&self, id: Id, version: u64, content: &[u8]) -> bool {
        let Ok(size) = u32::try_from(content.len()) else { return false };
        // An empty file has no page.
        if size > 0 {
            let head = encode(&Store { nodeid: id, offset: 0, size, padding: Pad });
            if self.notify(NOTIFY_STORE, &[&head, content]) != Notified::Known {
                return false;
            }
        }
        self.stored().files.insert(id, Pages { version, are_there: true });
        true
    }

    /// The version of a file that is read from pages.
    pub fn pages(&self, id: Id) -> Option<u64> {
        self.stored().files.get(&id).map(|pages| pages.version)
    }

    /// A file is read from pages of which nothing is known.
    pub fn pages_in(&self, id: Id) {
        self.stored().files.insert(id, Pages { version: NO_VERSION, are_there: true });
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

    /// Drops the pages of a file that is read from them, which are older than `version`.
    ///
    /// By a thread that does nothing else: the page may be locked until a READ of it is answered, which a server may keep
    /// waiting, and other files are not to wait with it.
    pub async fn drop_pages(self: &Arc<Self>, id: Id, version: u64) {
        if let Some(pages) = self.stored().files.get_mut(&id) {
            pages.are_there = false;
        }
        let (kernel, (done, waits)) = (self.clone(), oneshot::channel());
        let dropping = std::thread::Builder::new().name("fuse-stored".into()).spawn(move || {
            kernel.forget_inode(id, 0);
            let _ = done.send(());
        });
        match dropping {
            Ok(_) => drop(waits.await),
            Err(_) => self.forget_pages(id).await,
        }
        if let Some(pages) = self.stored().files.get_mut(&id) {
            pages.version = version;
        }
    }

    /// The same, of which no attributes are known.
    pub async fn drop_pages_of_old(self: &Arc<Self>, id: Id) {
        self.drop_pages(id, NO_VERSION).await;
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

/// Files have versions from 1 on.
const NO_VERSION: u64 = 0;

/// FUSE_NOTIFY_STORE.
const NOTIFY_STORE: u32 = 4;
