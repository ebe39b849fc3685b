//! Syncs of a volume's file: one at a time, each for all who asked before it began, and the count of those that failed.
//!
//! The system reports a failure once, and takes what was lost for clean. Were two syncs at work at the same time, the one that
//! is told nothing could answer that everything is on stable storage before the other has said that it is not.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Mutex, MutexGuard};

/// The syncs of one file.
#[derive(Default)]
pub struct Syncs {
    /// How many have been asked for.
    asked: AtomicU64,
    /// How many of those had been when the last good one began. Held while one works.
    covered: Mutex<u64>,
    losses: AtomicU64,
}

/// Where a request stood when it began: a loss since then may be of what it wrote.
#[derive(Clone, Copy, Debug)]
pub struct Since(u64);

/// A sync of another request failed meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Lost;

impl From<Lost> for io::Error {
    fn from(_: Lost) -> io::Error {
        io::Error::other("another sync failed meanwhile: what was written before may be lost")
    }
}

impl Syncs {
    /// How many have failed so that something may be lost.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// To be asked before anything is written.
    pub fn since(&self) -> Since {
        Since(self.losses())
    }

    /// Brings to stable storage what was written before, for a thread that may wait.
    pub fn sync_blocking(
        &self,
        since: Since,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let number = self.ask();
        let covered = self.covered.blocking_lock();
        let worked = self.begun(*covered, number).map(|begun| (begun, sync()));
        self.end(covered, since, worked, |_| true)
    }

    /// The same for a task. `loses` says whether an error means that something may be lost.
    pub async fn sync<E: From<Lost>>(
        &self,
        since: Since,
        sync: impl Future<Output = Result<(), E>>,
        loses: impl FnOnce(&E) -> bool,
    ) -> Result<(), E> {
        let number = self.ask();
        let covered = self.covered.lock().await;
        let worked = match self.begun(*covered, number) {
            Some(begun) => Some((begun, sync.await)),
            None => None,
        };
        self.end(covered, since, worked, loses)
    }

    /// One of the number that was asked for last begins, unless this one is covered.
    fn begun(&self, covered: u64, number: u64) -> Option<u64> {
        (covered < number).then(|| self.asked.load(Ordering::Acquire))
    }

    /// What one that has begun came to, if it was needed.
    fn end<E: From<Lost>>(
        &self,
        mut covered: MutexGuard<'_, u64>,
        since: Since,
        worked: Option<(u64, Result<(), E>)>,
        loses: impl FnOnce(&E) -> bool,
    ) -> Result<(), E> {
        if let Some((begun, result)) = worked {
            if result.as_ref().is_err_and(loses) {
                self.losses.fetch_add(1, Ordering::AcqRel);
            }
            result?;
            *covered = begun;
        }
        drop(covered);
        Ok(self.check(since)?)
    }

    fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn check(&self, since: Since) -> Result<(), Lost> {
        if self.losses() == since.0 { Ok(()) } else { Err(Lost) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc;

    /// The first sync fails while a second and a third wait: these succeed, and know that something is lost.
    #[test]
    fn who_waited_while_a_sync_failed_is_told_of_it() {
        let syncs = Arc::new(Syncs::default());
        let (begun, has_begun) = mpsc::channel();
        let (fail, may_fail) = mpsc::channel::<()>();
        let first = {
            let (syncs, since) = (syncs.clone(), syncs.since());
            std::thread::spawn(move || {
                syncs.sync_blocking(since, || {
                    begun.send(()).unwrap();
                    may_fail.recv().unwrap();
                    Err(io::Error::from_raw_os_error(libc::EIO))
                })
            })
        };
        has_begun.recv().unwrap();
        let waiting = [(); 2].map(|()| {
            let (syncs, since) = (syncs.clone(), syncs.since());
            std::thread::spawn(move || syncs.sync_blocking(since, || Ok(())))
        });
        fail.send(()).unwrap();
        assert_eq!(first.join().unwrap().unwrap_err().raw_os_error(), Some(libc::EIO));
        for one in waiting {
            let error = one.join().unwrap().unwrap_err();
            assert!(error.to_string().contains("may be lost"), "{error}");
        }
        assert_eq!(syncs.losses(), 1);
        syncs.sync_blocking(syncs.since(), || Ok(())).unwrap();
    }

    #[test]
    fn one_sync_is_enough_for_all_who_asked_before_it_began() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (syncs, count) = (Syncs::default(), AtomicU64::new(0));
        let one = || {
            syncs.sync::<io::Error>(
                syncs.since(),
                async {
                    count.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    Ok(())
                },
                |_| true,
            )
        };
        let all = futures_util::future::join_all((0..32).map(|_| one()));
        assert!(runtime.block_on(all).into_iter().all(|done| done.is_ok()));
        // The first began before the others had asked.
        assert_eq!(count.into_inner(), 2);
    }
}
