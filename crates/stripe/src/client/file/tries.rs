//! Requests that depend on what is known of the file: made again once that was out of date.

use super::OpenFile;
use crate::client::{Error, Result, Shared};
use covey_ninep::tree::Errno;
use std::time::Instant;

/// One act on a file, for as many tries as it takes.
pub(super) struct Tries<'a> {
    file: &'a OpenFile,
    fs: &'a Shared,
    behind: Behind,
    /// What the try under way was made with: the epoch, and most bytes in a message.
    epoch: u32,
    pub limit: u32,
    /// And the start of the metadata server's machine.
    machine: u64,
}

impl<'a> Tries<'a> {
    pub fn new(file: &'a OpenFile, fs: &'a Shared) -> Tries<'a> {
        Tries { file, fs, behind: Behind::default(), epoch: 0, limit: 0, machine: 0 }
    }

    /// The size and the epoch to try with: those of a metadata server that has started anew, if it has.
    /// ESTALE where another client has taken the file.
    pub async fn begin(&mut self) -> Result<(u64, u32)> {
        self.file.meet_restart(self.fs).await?;
        self.file.check_ours()?;
        self.limit = self.file.payload_max();
        let state = self.file.lock();
        self.epoch = state.epoch;
        self.machine = state.starts.1;
        Ok((state.size, state.epoch))
    }

    /// How the try went: `None` where there should be another, with what was learned.
    pub async fn end<T>(&mut self, tried: Result<T>) -> Result<Option<T>> {
        match tried {
            Err(error) if self.file.was_too_large(&error, self.limit) => {}
            Err(Error::Stale(_)) => {
                self.file.learn_epoch(self.fs, self.epoch, &mut self.behind).await?;
            }
            Err(error) if error.code() == Errno::EDQUOT => {
                self.file.was_refused(self.fs).await;
                return Err(error);
            }
            Ok(done) if self.file.lock().starts.1 == self.machine => return Ok(Some(done)),
            // Another act has met a loss of power meanwhile, and what this one relied on may be lost.
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        Ok(None)
    }
}

/// Since when an I/O server knows nothing of the epoch that a request says.
#[derive(Default)]
pub(super) struct Behind(Option<(u32, Instant)>);

impl Behind {
    pub fn since(&mut self, epoch: u32, now: Instant) -> Instant {
        let since = self.0.filter(|(told, _)| *told == epoch).map_or(now, |(_, since)| since);
        self.0 = Some((epoch, since));
        since
    }
}
