//! Handles: open files, as their users have them.
//!
//! Each is one open that the metadata server counts. All of a client's handles on one file share what is
//! known of it, an [`OpenFile`].

use super::beside::beside;
use super::file::OpenFile;
use super::session::Opened;
use super::{Fs, Result, Shared};
use crate::ops::{Caller, Consistency, Id, Inode, Op, Striping};
use crate::view::View;
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, Payload};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// An open file. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct File {
    pub(super) handle: Arc<Handle>,
}

/// One open that the metadata server counts.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    /// None for what has no data: directories and special files.
    open: Option<Arc<OpenFile>>,
    id: Id,
    version: u64,
    consistency: Option<Consistency>,
    /// Who opened it, and whether it has written.
    pub(super) who: Caller,
    has_written: AtomicBool,
    _opened: Opened,
}

impl Fs {
    /// `starts`: the metadata server's in which the inode was asked for, or an earlier one.
    pub(super) async fn handle(
        &self,
        who: &Caller,
        inode: &Inode,
        opened: Opened,
        starts: (u64, u64),
    ) -> Result<File> {
        let shared = self.shared.clone();
        let mut handle = Handle {
            shared,
            open: None,
            id: inode.id,
            version: inode.version,
            consistency: inode.consistency(),
            who: who.clone(),
            has_written: AtomicBool::default(),
            _opened: opened,
        };
        if let Some(striping) = &inode.striping {
            handle.shared.data.meet(striping, &handle.shared.session).await?;
            let open = handle.shared.share_file(inode, striping, starts)?;
            open.refresh(inode);
            handle.open = Some(open);
        }
        Ok(File { handle: Arc::new(handle) })
    }
}

impl Shared {
    pub(super) fn open_file(&self, id: Id) -> Option<Arc<OpenFile>> {
        self.files.lock().expect("no holder panics").get(&id)?.upgrade()
    }

    /// The file's shared state: what other handles use already, or a new one.
    fn share_file(
        &self,
        inode: &Inode,
        striping: &Striping,
        starts: (u64, u64),
    ) -> Result<Arc<OpenFile>> {
        let mut files = self.files.lock().expect("no holder panics");
        if let Some(open) = files.get(&inode.id).and_then(Weak::upgrade) {
            // What has moved while this client was cut off is another file to it: the old handles know the wrong servers.
            if open.is_laid_out_as(inode, striping) {
                return Ok(open);
            }
        }
        let chains = self.data.all_of(striping)?;
        let open = Arc::new(OpenFile::new(inode, striping, chains, starts)?);
        files.insert(inode.id, Arc::downgrade(&open));
        Ok(open)
    }
}

impl File {
    /// Which file.
    pub fn id(&self) -> Id {
        self.handle.id
    }

    /// The file's version when it was opened: as long as it is the same, nothing that was written
    /// and closed since is missing from what was read.
    pub fn version(&self) -> u64 {
        self.handle.version
    }

    /// The file's own consistency mode when it was opened.
    pub fn consistency(&self) -> Option<Consistency> {
        self.handle.consistency
    }

    /// From here on all of this client's handles on the file work in the epoch that it has: once another client has
    /// raised it (by [`Fs::fence`] or a truncation) they answer ESTALE, and never anything else again. What this client's own
    /// [`Fs::setattr`] makes of it is no loss; requests that are under way meanwhile may meet the new epoch before the answer
    /// has come, and take it for one.
    pub fn pin(&self) -> Result<()> {
        self.data()?.pin();
        Ok(())
    }

    /// Whether another client has raised the epoch of the file, which is pinned: asked now.
    pub async fn is_taken(&self) -> Result<bool> {
        let open = self.data()?;
        open.fresh(&self.handle.shared).await?;
        Ok(open.check_ours().is_err())
    }

    /// The epoch to which the file is pinned; ESTALE where it is known that another client has it.
    pub(super) fn pinned_epoch(&self) -> Result<u32> {
        self.data()?.pinned_epoch()
    }

    /// This client's own change of the size, at that epoch only, was acknowledged with these attributes.
    pub(super) fn was_resized(&self, inode: &Inode, from: u32) -> Result<()> {
        let open = self.data()?;
        open.was_resized(inode, Some(from));
        open.refresh(inode);
        Ok(())
    }

    /// Up to `count` bytes from `offset`, in pieces that were never copied; fewer at the end only.
    pub async fn read_at(&self, offset: u64, count: usize) -> Result<Payload> {
        self.data()?.read(&self.handle.shared, offset, count).await
    }

    /// The version of a small file and all that it holds, where both are known under a lease.
    pub fn whole(&self) -> Option<(u64, Bytes)> {
        let shared = &self.handle.shared;
        let known = shared.session.cache().content(self.handle.id, shared.net.now());
        let whole = known.filter(|held| held.size == held.content.len() as u64);
        whole.map(|held| (held.version, held.content))
    }

    /// Whether a write that ends there is kept with the file, of which the metadata server is told later: nobody waits for it.
    pub fn keeps(&self, end: u64) -> bool {
        let session = &self.handle.shared.session;
        let is_inline = |open: &Arc<OpenFile>| end <= open.inline_bytes();
        self.handle.open.as_ref().is_some_and(is_inline) && session.is_unmade(self.handle.id)
    }

    /// Asks for what lies with the file's inode, for [`File::whole`] and reads, together with that of others of its
    /// directory where those are read in turn. Nothing is asked for this file alone.
    pub async fn bring_content(&self) {
        if let Some(open) = &self.handle.open {
            open.content(&self.handle.shared).await;
        }
    }

    /// All of `data` at `offset`; done when every later read anywhere sees it.
    pub async fn write_at(&self, offset: u64, data: Payload) -> Result<()> {
        self.to_write().await?.write(&self.handle.shared, offset, data).await
    }

    /// The bytes that a view names, one after another: each server is asked once for all that it has of
    /// them (or once per message, where that is more than one holds). What lies beyond the end of the
    /// file is left out at the end of the answer, and reads as zeros before it.
    pub async fn read_view(&self, view: &View) -> Result<Bytes> {
        let bytes = usize::try_from(view.bytes()).map_err(|_| Errno::from(Errno::EFBIG))?;
        let mut data = vec![0; bytes];
        let there = self.read_view_into(view, &mut data).await?;
        data.truncate(there);
        Ok(data.into())
    }

    /// As `read_view`, into memory that has exactly the view's bytes; how many of them, from the front,
    /// are not beyond the end of the file. What lies beyond the end reads as zeros. After an error any of it may have
    /// changed.
    pub async fn read_view_into(&self, view: &View, into: &mut [u8]) -> Result<usize> {
        self.data()?.read_view(&self.handle.shared, view, into).await
    }

    /// Writes what a view names from `data`, which has exactly its bytes; done when every later read
    /// anywhere sees them. Where the view names a byte twice either may win.
    pub async fn write_view(&self, view: &View, data: Bytes) -> Result<()> {
        self.to_write().await?.write_view(&self.handle.shared, view, data).await
    }

    /// All of `data` at the end, whoever else appends; answers where it went.
    pub async fn append(&self, data: Payload) -> Result<u64> {
        let open = self.data()?.clone();
        if data.is_empty() {
            return open.size(&self.handle.shared).await;
        }
        self.to_write().await?;
        let handle = self.handle.clone();
        beside(&*self.handle.shared.net, |asker| async move {
            open.append(&handle.shared, data, asker).await
        })
        .await
    }

    /// Everything written through any handle of this client reaches stable storage.
    pub async fn fsync(&self) -> Result<()> {
        match &self.handle.open {
            Some(open) => open.fsync(&self.handle.shared).await,
            None => {
                let sync = Op::Fsync { id: self.handle.id };
                self.handle.shared.session.ask(&Caller::default(), sync).await.map(|_| ())
            }
        }
    }

    /// What close(2) owes: the exact mtime.
    pub async fn flush(&self) -> Result<()> {
        match &self.handle.open {
            Some(open) => open.flush(&self.handle.shared).await,
            None => Ok(()),
        }
    }

    /// The same where a moment later will do: a file that nobody else knows may be told of then, if the server has promised room
    /// for it. Whoever asks for the file is told of it as it was when this was answered. What is refused after all is told by
    /// the next change of a name in its directory, or by the directory's fsync.
    pub async fn flush_late(&self) -> Result<()> {
        match &self.handle.open {
            Some(open) => open.flush_late(&self.handle.shared).await,
            None => Ok(()),
        }
    }

    /// The data, to be changed on behalf of whoever has opened this handle.
    pub(super) async fn to_write(&self) -> Result<&Arc<OpenFile>> {
        let open = self.data()?;
        if !self.handle.has_written.load(Ordering::Relaxed) {
            open.written_for(&self.handle.who);
            self.handle.has_written.store(true, Ordering::Relaxed);
        }
        open.drop_privilege(&self.handle.shared).await?;
        Ok(open)
    }

    pub(super) fn data(&self) -> Result<&Arc<OpenFile>> {
        self.handle.open.as_ref().ok_or_else(|| Errno::EISDIR.into())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            // Looked at under the table's lock: a new handle cannot take it up meanwhile.
            let mut files = self.shared.files.lock().expect("no holder panics");
            if Arc::strong_count(&open) == 1 {
                // The table may know a newer one: the file has moved since this one was opened.
                if files.get(&self.id).is_some_and(|known| known.as_ptr() == Arc::as_ptr(&open)) {
                    files.remove(&self.id);
                }
                open.close();
            }
        }
    }
}
