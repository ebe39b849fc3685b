//! The log that comes next: made, and given its room, while the one before it is still written.

use super::{Log, remove, remove_older};
use crate::disk::{Disk, DiskFile, Open};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What makes a [`Next`], on any thread.
#[derive(Debug)]
pub struct Making {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    bytes: u64,
}

/// An empty log with room, under a name of its own until it is some generation's. One that nobody takes is removed
/// when the log is opened.
#[derive(Debug)]
pub struct Next {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) reserved: u64,
}

impl Log {
    /// To make the log after this one, with room for `bytes` of records. One at a time is made.
    pub fn making_next(&self, bytes: u64) -> Making {
        let (disk, dir) = (self.disk.clone(), self.dir.clone());
        Making { disk, dir, bytes }
    }

    /// Removes the log that was made to come after this one: nothing comes any more.
    pub fn forget_next(&self) -> io::Result<()> {
        forget(&*self.disk, &self.dir)
    }

    /// Removes the logs before this one, on any thread. To be called after a rotation to a log that was made ahead.
    pub fn removing_older(&self) -> impl FnOnce() -> io::Result<()> + Send + use<> {
        let (disk, dir, generation) = (self.disk.clone(), self.dir.clone(), self.generation);
        move || remove_older(&*disk, &dir, generation)
    }
}

impl Making {
    /// Makes it, and removes those that are over. Takes the disk's time; after an error there is none.
    pub fn make(self) -> io::Result<Next> {
        let Making { disk, dir, bytes } = self;
        let file = disk.open(&name(&dir), Open::Truncate)?;
        match file.reserve(0, bytes) {
            Ok(()) => Ok(Next { file, reserved: bytes }),
            Err(error) => {
                // What it has got of the room would be missed by somebody else.
                disk.remove(&name(&dir))?;
                Err(error)
            }
        }
    }
}

/// Removes what nobody has taken.
pub(super) fn forget(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    remove(disk, &name(dir))
}

/// Where it is until it is taken.
pub(super) fn name(dir: &Path) -> PathBuf {
    dir.join("log.next")
}
