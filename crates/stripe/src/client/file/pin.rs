//! Files that are somebody's own: once another client has raised the epoch they are lost.

use super::{OpenFile, State};
use crate::client::{Error, Result};
use crate::ops::{Inode, Striping};
use covey_ninep::tree::Errno;

/// Whether a file stays in its epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pinned {
    #[default]
    No,
    Yes,
    /// It was, and another client has raised the epoch.
    Taken,
}

impl State {
    /// A file that was laid out anew while this client could not be heard of as having it open: its bytes are elsewhere,
    /// and what is known here of where they are would read and write others.
    pub(super) fn meet_striping(&mut self, inode: &Inode, striping: &Striping) {
        let is_other = inode.striping.as_ref().is_some_and(|now| now != striping);
        if is_other && inode.epoch >= self.epoch {
            self.pinned = Pinned::Taken;
        }
    }

    /// Whether another client has the file by now, as these attributes say.
    pub(super) fn is_taken_by(&mut self, inode: &Inode) -> bool {
        if self.pinned == Pinned::Yes && inode.epoch > self.epoch {
            self.pinned = Pinned::Taken;
        }
        self.pinned == Pinned::Taken
    }
}

impl OpenFile {
    /// Whether the file still lies where this says, as far as these attributes are not older.
    pub fn is_laid_out_as(&self, inode: &Inode, striping: &Striping) -> bool {
        self.striping == *striping || inode.epoch < self.lock().epoch
    }

    /// Pins the file to its epoch; what was taken stays so.
    pub fn pin(&self) {
        let mut state = self.lock();
        if state.pinned != Pinned::Taken {
            state.pinned = Pinned::Yes;
        }
    }

    /// These attributes answer this client's own change of the size, which may have raised the epoch: a pinned file is pinned
    /// there. `from` is the epoch that the change was made at only, so that nobody else can have raised it; without one it
    /// may be one higher.
    fn repin(&self, inode: &Inode, from: Option<u32>) {
        let mut state = self.lock();
        let is_ours = match from {
            Some(from) => from == state.epoch && inode.epoch > from,
            None => inode.epoch.checked_sub(1) == Some(state.epoch),
        };
        if state.pinned == Pinned::Yes && is_ours {
            (state.epoch, state.size) = (inode.epoch, inode.size);
        }
    }

    /// A change of the size through this client was acknowledged, `from` an epoch where it said which: the next fsync speaks
    /// for it.
    pub fn was_resized(&self, inode: &Inode, from: Option<u32>) {
        self.repin(inode, from);
        self.was_cut();
    }

    /// The epoch that a pinned file is pinned to. ESTALE where it is known that another client has it.
    pub fn pinned_epoch(&self) -> Result<u32> {
        self.check_ours()?;
        Ok(self.lock().epoch)
    }

    /// Whether it is, or was, somebody's own.
    pub(super) fn is_pinned(&self) -> bool {
        self.lock().pinned != Pinned::No
    }

    /// ESTALE where another client has taken the file.
    pub fn check_ours(&self) -> Result<()> {
        match self.lock().pinned {
            Pinned::Taken => {
                let what = "the file was taken over by another client, or moved";
                Err(Error::because(Errno::ESTALE, what))
            }
            _ => Ok(()),
        }
    }
}
