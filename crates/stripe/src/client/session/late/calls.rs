//! What a session offers of it.

use super::State;
use crate::client::Result;
use crate::client::session::{Opened, Session};
use crate::ops::{Caller, Id, Inode, Op};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that are kept at most of files that were closed.
const CLOSED_BYTES_MAX: usize = 512 << 10;

impl Session {
    /// Makes a file that is to be written, late if that may be.
    pub async fn create(self: &Arc<Self>, caller: &Caller, op: Op) -> Result<(Inode, Opened)> {
        match self.late.make(self, caller, &op).await? {
            Some(made) => Ok(made),
            None => self.open(caller, op).await,
        }
    }

    /// Completes when the server knows the file, which may have been made here: before any I/O server hears of it.
    pub async fn is_made(&self, id: Id) -> Result<()> {
        self.late.is_made(id).await
    }

    /// Tells the server of a file that it knows nothing of yet, and that a write is about to go beyond what lies with its
    /// inode; false where that is to be said by itself.
    pub async fn is_made_beyond(&self, id: Id) -> bool {
        if self.late.unmade.load(Ordering::Acquire) == 0 {
            return false;
        }
        let going = {
            let mut state = self.late.lock();
            let kept = state.files.get_mut(&id).and_then(|file| file.kept.as_mut());
            let Some(made) = kept.and_then(|kept| kept.made.as_mut()) else { return false };
            made.is_beyond = true;
            self.late.say(&mut state, id, false)
        };
        let Some(going) = going else { return false };
        going.await;
        let state = self.late.lock();
        let file = state.files.get(&id);
        file.is_some_and(|file| file.place.is_none() && file.failed.is_none())
    }

    /// Whether a file of this client's own making may be closed before the server is told all of it. Then it is told within
    /// [`AGE_MAX`](super::AGE_MAX), or before anybody else is told of the file; and it has room for it.
    pub fn close_late(&self, id: Id) -> bool {
        let late = &self.late;
        if !late.removes {
            return false;
        }
        let now = self.wire.net.now();
        let mut state = late.lock();
        let State { files, dirs, closed_bytes, .. } = &mut *state;
        let Some(file) = files.get_mut(&id).filter(|file| file.is_quiet(now)) else { return false };
        let has_room = dirs.get(&file.home).is_some_and(|dir| dir.takes_links(now));
        let bytes = file.kept_bytes();
        let all = *closed_bytes - file.closed_bytes + bytes;
        if file.kept.is_none() || !has_room || all > CLOSED_BYTES_MAX {
            return false;
        }
        (*closed_bytes, file.closed_bytes, file.is_closed) = (all, bytes, true);
        true
    }

    /// Says all that was done late; what of that was refused, and nobody was told yet.
    pub async fn settle_late(&self) -> Result<()> {
        self.late.settle_all().await;
        let untold = self.late.lock().untold(self.wire.net.now());
        untold.map_or(Ok(()), Err)
    }

    /// Whether the server has yet to be told of a file.
    pub fn is_unmade(&self, id: Id) -> bool {
        self.late.unmade.load(Ordering::Acquire) > 0
            && self.late.lock().files.get(&id).is_some_and(|file| file.place.is_some())
    }

    /// The mode of a file that this client is alone with.
    pub fn mode_late(&self, id: Id) -> Option<u32> {
        self.late.mode(id)
    }
}
