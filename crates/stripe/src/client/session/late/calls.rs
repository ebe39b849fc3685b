//! What a session offers of it.

use crate::client::Result;
use crate::client::session::{Opened, Session};
use crate::ops::{Caller, Id, Inode, Op};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
