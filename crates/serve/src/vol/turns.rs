//! Whose turn it is with a volume.
//!
//! There are two turns. The one of a volume's *name* belongs to the command that uses the volume's bytes or its addresses, or
//! makes or removes a volume of that name, for as long as the command works: a copy may take hours. The *volume's own* belongs
//! to who opens it or changes what it is, and who may use it: that takes no longer than its disk or the metadata server. So who may
//! use a volume can be changed while it is copied or resized. A command waits for neither longer than [`PATIENCE`].

use super::{OwnTurn, Volume, Volumes};
use covey_ninep::tree::{Errno, Result};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;

/// The turns of names, of volumes that are there or not.
#[derive(Default)]
pub(super) struct Turns(RefCell<BTreeMap<String, Rc<Line>>>);

/// Commands on volumes of one name: the one at work, and those that wait.
#[derive(Default)]
struct Line {
    lock: Arc<Mutex<()>>,
    at_work: Cell<Option<(&'static str, Instant)>>,
}

/// Held by a command as long as it is at work on volumes of a name.
pub(super) struct NameTurn {
    line: Rc<Line>,
    _held: OwnedMutexGuard<()>,
}

impl Drop for NameTurn {
    fn drop(&mut self) {
        self.line.at_work.set(None);
    }
}

impl Turns {
    /// Waits until no other command is at work on a volume of this name. EBUSY where that takes too long.
    pub async fn wait(
        &self,
        name: &str,
        command: &'static str,
        patience: Duration,
    ) -> Result<NameTurn> {
        let line = {
            let mut lines = self.0.borrow_mut();
            // Those that nobody is in any more.
            lines.retain(|_, line| Rc::strong_count(line) > 1);
            lines.entry(name.to_owned()).or_default().clone()
        };
        match timeout(patience, line.lock.clone().lock_owned()).await {
            Ok(held) => {
                line.at_work.set(Some((command, Instant::now())));
                Ok(NameTurn { line, _held: held })
            }
            Err(_) => Err(busy(name, line.at_work.get(), patience)),
        }
    }

    /// Which command is at work on volumes of this name.
    #[cfg(test)]
    pub fn at_work(&self, name: &str) -> Option<&'static str> {
        Some(self.0.borrow().get(name)?.at_work.get()?.0)
    }
}

fn busy(name: &str, at_work: Option<(&str, Instant)>, patience: Duration) -> Errno {
    let (command, seconds) =
        at_work.map_or(("another command", 0), |(what, since)| (what, since.elapsed().as_secs()));
    let why = format!(
        "volume {name} is in use by `{command}`, which has been at work for {seconds} s; this command waited {} s and did \
         nothing; hint: repeat it when that has ended",
        patience.as_secs()
    );
    Errno::because(Errno::EBUSY, why)
}

impl Volumes {
    /// The turns that a command needs.
    pub(super) async fn turns_of(&self, words: &[&str]) -> Result<Vec<NameTurn>> {
        let Some(command) = words.first().and_then(|word| ALONE.iter().find(|it| *it == word))
        else {
            return Ok(Vec::new());
        };
        let mut names: Vec<&str> = match words {
            ["clone", name, new, ..] => vec![name, new],
            [_, name, ..] => vec![name],
            _ => Vec::new(),
        };
        // Always in the same order: two commands never wait for each other.
        names.sort_unstable();
        names.dedup();
        let mut turns = Vec::new();
        for name in names {
            turns.push(self.turns.wait(name, command, self.patience.get()).await?);
        }
        Ok(turns)
    }

    /// A volume that nobody else opens or changes. EBUSY where that takes too long.
    pub(super) async fn find_at_rest(&self, name: &str) -> Result<(Rc<Volume>, OwnTurn)> {
        let patience = self.patience.get();
        match timeout(patience, self.find_free(name)).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(self.missing(name)),
            Err(_) => {
                let why = format!(
                    "volume {name} is being opened, and its disk or metadata server has not answered within {} s; this \
                     command did nothing; hint: repeat it when `covey volume ls` shows the volume open",
                    patience.as_secs()
                );
                Err(Errno::because(Errno::EBUSY, why))
            }
        }
    }

    /// Does work that a command has begun to its end, but waits for that no longer than is bearable. The volume's name stays
    /// the work's until it ends.
    pub(super) async fn work_on(
        &self,
        what: String,
        turns: Vec<NameTurn>,
        work: impl Future<Output = Result<()>> + 'static,
    ) -> Result<()> {
        let patience = self.patience.get();
        let working = covey_io::task::spawn(async move {
            let done = work.await;
            drop(turns);
            done
        });
        match timeout(patience, working).await {
            Ok(done) => done.unwrap_or_else(|error| Err(error.into())),
            Err(_) => Err(unanswered(&what, patience, "it may still be done")),
        }
    }
}

/// A volume's disk or servers have not answered.
pub(super) fn unanswered(what: &str, patience: Duration, then: &str) -> Errno {
    let why = format!(
        "{what} has not ended within {} s: the volume's disk or servers do not answer; {then}; hint: `covey volume show` \
         tells the size and `covey ping` which nodes answer",
        patience.as_secs()
    );
    Errno::because(Errno::ETIMEDOUT, why)
}

/// How long a command waits for another one, and for a disk.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The commands that use a volume's bytes, addresses or name: one at a time.
const ALONE: [&str; 8] =
    ["create", "join", "rm", "clone", "resize", "export", "unexport", "clear-reservations"];
