//! fcntl and flock locks: GETLK, SETLK, SETLKW, and what close owes.

use super::{Result, Session, locked};
use crate::abi::Header;
use crate::abi::flags::{lk, lock_type};
use crate::abi::reply::{LkOut, encode};
use crate::files::Files;
use crate::transport::Answer;
use covey_ninep::tree::Errno;
use covey_stripe::ops::{Id, RangeLock};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

/// The fields of a lock request.
pub(super) struct Wanted {
    pub owner: u64,
    pub start: u64,
    pub end: u64,
    pub kind: u32,
    pub pid: u32,
    pub lk_flags: u32,
}

impl Wanted {
    fn range(&self) -> RangeLock {
        let whole = self.lk_flags & lk::FLOCK != 0;
        RangeLock {
            exclusive: self.kind == lock_type::WRLCK,
            whole,
            start: if whole { 0 } else { self.start },
            end: if whole || self.end >= OFFSET_MAX { u64::MAX } else { self.end },
            owner: self.owner,
            pid: self.pid,
        }
    }
}

impl<F: Files> Session<F> {
    pub(super) async fn getlk(&self, id: Id, wanted: Wanted) -> Result<Answer> {
        let held = self.files.getlock(id, wanted.range()).await?;
        Ok(Answer::Small(encode(&match held {
            Some(held) => LkOut {
                start: held.start,
                end: held.end.min(OFFSET_MAX),
                kind: if held.exclusive { lock_type::WRLCK } else { lock_type::RDLCK },
                pid: held.pid,
            },
            None => LkOut { start: wanted.start, end: wanted.end, kind: lock_type::UNLCK, pid: 0 },
        })))
    }

    /// In weaker modes writes before an unlock are seen by the next holder of a lock: it leaves
    /// before the lock does, and pages from before the lock are forgotten with its grant.
    pub(super) async fn setlk(
        &self,
        header: &Header,
        fh: u64,
        wanted: Wanted,
        wait: bool,
    ) -> Result<Answer> {
        let (id, range) = (header.nodeid, wanted.range());
        if !range.whole {
            locked(&self.quiet).locks([header.pid, wanted.pid], id, Instant::now());
        }
        // Handles of directories are numbered by themselves.
        let kept = self.open.find(fh).ok().filter(|open| open.id == id && open.usage.is_kept());
        match wanted.kind {
            lock_type::UNLCK => {
                if let Some(open) = kept {
                    self.behind.settle(id).await;
                    // What failed is told by the close.
                    let left = self.files.flush(&open.file).await;
                    left.unwrap_or_else(|error| self.tell_later(id, error.code));
                }
                self.files.unlock(id, range).await?
            }
            lock_type::RDLCK | lock_type::WRLCK => {
                // Before it is granted: the answer may get lost, close must not forget.
                if !range.whole {
                    locked(&self.askers).note(id, range.owner, fh);
                    self.has_left(id, range.owner).await;
                }
                self.files.lock(id, range, wait).await?;
                if kept.is_some() {
                    // Who locks shares: what this mount writes is no longer the only news.
                    locked(&self.pages).doubt(id);
                    self.kernel.forget_pages(id).await;
                }
            }
            _ => return Err(Errno::EINVAL.into()),
        }
        Ok(Answer::Done)
    }

    /// Whether an owner ever asked for an fcntl lock on a file.
    pub(super) fn has_asked_for_locks(&self, id: Id, owner: u64) -> bool {
        locked(&self.askers).has(id, owner)
    }

    /// Gives back all fcntl locks of an owner on a file, if it ever asked for one.
    pub(super) async fn unlock_owner(self: Arc<Self>, id: Id, owner: u64) -> Result<()> {
        if !locked(&self.askers).leave(id, owner) {
            return Ok(());
        }
        self.unlock_all(id, RangeLock::on_all_bytes(owner, 0), None).await
    }

    /// Gives back the fcntl locks of those who lose their last way to the file with a handle: locks of
    /// the open file itself, and what no FLUSH came for.
    pub(super) async fn unlock_handle(self: Arc<Self>, id: Id, fh: u64) -> Result<()> {
        let owners = locked(&self.askers).close(id, fh);
        let leaving = owners.into_iter().map(|owner| Leaving(self.clone(), id, owner));
        let mut outcome = Ok(());
        for leaving in leaving.collect::<Vec<_>>() {
            let everything = RangeLock::on_all_bytes(leaving.2, 0);
            outcome = outcome.and(self.clone().unlock_all(id, everything, Some(leaving)).await);
        }
        outcome
    }

    /// Waits until locks of an owner have been given back that a handle had which is gone.
    async fn has_left(&self, id: Id, owner: u64) {
        loop {
            let mut left = pin!(self.left.notified());
            left.as_mut().enable();
            if !locked(&self.askers).is_leaving(id, owner) {
                return;
            }
            left.await;
        }
    }

    /// Gives back an owner's flock.
    pub(super) async fn unlock_whole(self: Arc<Self>, id: Id, owner: u64) -> Result<()> {
        self.unlock_all(id, RangeLock::on_file(owner, 0), None).await
    }

    /// Continues when the request is interrupted, because it would not be sent again.
    async fn unlock_all(
        self: Arc<Self>,
        id: Id,
        everything: RangeLock,
        leaving: Option<Leaving<F>>,
    ) -> Result<()> {
        let aside = self.aside.clone();
        let unlock = async move {
            let _until_then = (aside, leaving);
            self.files.unlock(id, everything).await
        };
        let done = tokio::task::spawn_local(unlock).await;
        done.unwrap_or_else(|lost| Err(Errno::because(Errno::EIO, lost.to_string())))
    }
}

/// An owner's locks on a file are being given back, until this is dropped.
struct Leaving<F: Files>(Arc<Session<F>>, Id, u64);

impl<F: Files> Drop for Leaving<F> {
    fn drop(&mut self) {
        locked(&self.0.askers).left(self.1, self.2);
        self.0.left.notify_waiters();
    }
}

/// The kernel's end of a lock that reaches to the end of the file.
const OFFSET_MAX: u64 = i64::MAX as u64;
