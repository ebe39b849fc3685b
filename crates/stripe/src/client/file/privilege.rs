//! Set-user-ID and set-group-ID bits of a file that is being written.
//!
//! A write takes them away unless root writes, and only the metadata server can do that. But most writes
//! go to the I/O servers alone, and all handles of a client on one file share what is told of it. So it
//! is told on behalf of a user who may no more than any of those who write here; and where the bits were
//! last seen, and it would take one away, the metadata server hears of a write before its data goes out.

use super::{OpenFile, State};
use crate::client::session::unexpected;
use crate::client::{Result, Shared};
use crate::meta::without_privilege;
use crate::ops::{Caller, Inode, Op, Reply};
use std::sync::atomic::Ordering;

/// What the bits were seen with.
#[derive(Clone, Copy, Default)]
pub(super) struct Owner {
    mode: u32,
    gid: u32,
}

/// Both bits.
const PRIVILEGE: u32 = 0o6000;
/// Stands for users of whom none may what another may: in no group, and not root.
const NOBODY: u32 = 65_534;

impl OpenFile {
    /// A handle of `who` is about to write for the first time.
    pub fn written_for(&self, who: &Caller) {
        let mut state = self.lock();
        if who.is_root() || state.writer == *who {
            return;
        }
        state.writer = if state.writer.is_root() {
            who.clone()
        } else {
            Caller { uid: NOBODY, gid: NOBODY, ..Caller::default() }
        };
    }

    /// On whose behalf the metadata server is told of writes.
    pub fn writer(&self) -> Caller {
        self.lock().writer.clone()
    }

    /// Before a write: takes the bits away if they were there when the file was last heard of.
    pub async fn drop_privilege(&self, fs: &Shared) -> Result<()> {
        if !self.is_privileged.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (writer, owner) = {
            let state = self.lock();
            (state.writer.clone(), state.owner)
        };
        // Set-group-ID stays where nobody of the group executes the file, and its writer is in it.
        if writer.is_root() || without_privilege(&writer, owner.mode, owner.gid) == owner.mode {
            return Ok(());
        }
        match fs.session.change(&writer, Op::Touch { id: self.id }).await? {
            Reply::Node { inode } => {
                self.refresh(&inode);
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// An inode has come; it may be older than what was known.
    pub(super) fn note_privilege(&self, state: &mut State, inode: &Inode) {
        if inode.version >= state.version {
            state.version = inode.version;
            state.owner = Owner { mode: inode.mode, gid: inode.gid };
            self.is_privileged.store(inode.mode & PRIVILEGE != 0, Ordering::Relaxed);
        }
    }
}
