//! One who moves files, some at a time.

use super::Control;
use covey_io::task;
use covey_ninep::tree::Errno;
use covey_stripe::chain::Table;
use covey_stripe::check::{Access, chain_table};
use covey_stripe::client::{Error, Fs, Moved, Result};
use covey_stripe::meta::place;
use covey_stripe::ops::{Failure, Id, Op, Place, Reply, Striping};
use covey_wire::{List, Name};
use futures_util::stream::{self, StreamExt};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Files that move at the same time.
const FILES: usize = 8;
/// How often what was in use is tried before it is said that it waits, and the pauses.
pub(super) const PASSES: usize = 3;
pub(super) const PAUSE: Duration = Duration::from_secs(2);
/// Failures that are kept to be shown.
const FAILURES_MAX: usize = 20;
/// What is seen of the I/O servers holds for so long.
const SIGHT_HOLDS: Duration = Duration::from_secs(1);
/// Who rests looks so often whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The I/O servers as they were a moment ago.
pub(super) struct Sight {
    pub places: Vec<Place>,
    pub table: Table,
}

impl Sight {
    /// The servers that files may move to, by index.
    pub fn open(&self) -> Vec<u16> {
        let is_open = |place: &Place| place.is_serving && place.state == 0;
        let all = self.places.iter().enumerate();
        all.filter(|(_, place)| is_open(place)).map(|(at, _)| at as u16).collect()
    }

    pub fn place(&self, server: u16) -> Option<&Place> {
        self.places.get(usize::from(server))
    }

    pub fn is_serving(&self, server: u16) -> bool {
        self.place(server).is_some_and(|place| place.is_serving)
    }

    pub fn is_removed(&self, server: u16) -> bool {
        self.place(server).is_none_or(|place| place.state & place::REMOVED != 0)
    }
}

/// What became of files that were tried.
#[derive(Default)]
pub(super) struct Tried {
    /// Files that were moved.
    pub moved: u64,
    /// Files that stay, because they are in use or because of an error.
    pub left: Vec<Id>,
    /// Some of the errors.
    pub failures: Vec<Failure>,
}

impl Tried {
    pub fn add(&mut self, other: Tried) {
        self.moved += other.moved;
        self.left.extend(other.left);
        let room = FAILURES_MAX.saturating_sub(self.failures.len());
        self.failures.extend(other.failures.into_iter().take(room));
    }

    fn failed(&mut self, id: Id, error: &Error) {
        self.left.push(id);
        if self.failures.len() < FAILURES_MAX {
            let reason = Name::from(error.to_string().as_str());
            self.failures.push(Failure { id, reason });
        }
    }
}

pub(super) struct Mover<'a> {
    pub fs: &'a Fs,
    pub control: &'a Control,
    seen: RefCell<Option<(Instant, Rc<Sight>)>>,
}

impl<'a> Mover<'a> {
    pub fn new(fs: &'a Fs, control: &'a Control) -> Mover<'a> {
        Mover { fs, control, seen: RefCell::default() }
    }

    /// The I/O servers; ECANCELED where the task is over.
    pub async fn look(&self) -> Result<Rc<Sight>> {
        self.must_go_on()?;
        if let Some((at, sight)) = &*self.seen.borrow()
            && task::now().saturating_duration_since(*at) < SIGHT_HOLDS
        {
            return Ok(sight.clone());
        }
        let Reply::Places { places } = Access::ask(self.fs, Op::Places {}).await? else {
            return Err(Error::Odd("an odd answer to Places".into()));
        };
        let table = chain_table(self.fs).await?;
        let sight = Rc::new(Sight { places: places.0, table });
        *self.seen.borrow_mut() = Some((task::now(), sight.clone()));
        Ok(sight)
    }

    /// Tries to move files to the chains that `choose` finds for each. Nothing is tried as long as `from` does not serve.
    pub async fn move_all(
        &self,
        files: Vec<Id>,
        from: Option<u16>,
        choose: impl Fn(&Sight, Id, &Striping) -> Option<Vec<u16>>,
    ) -> Result<Tried> {
        let choose = &choose;
        let moves = files.into_iter().map(|id| async move {
            let moved = async {
                let sight = self.look().await?;
                if from.is_some_and(|from| !sight.is_serving(from)) {
                    return Ok(Moved::Busy);
                }
                let choose = |striping: &Striping| choose(&sight, id, striping);
                self.fs.move_file(id, choose, &self.control.pace).await
            };
            (id, moved.await)
        });
        let mut tried = Tried::default();
        let mut moves = stream::iter(moves).buffer_unordered(FILES);
        while let Some((id, moved)) = moves.next().await {
            match moved {
                Ok(Moved::Done(_)) => {
                    tried.moved += 1;
                    self.control.change(|progress| progress.files += 1);
                }
                Ok(Moved::Nothing) => {}
                Ok(Moved::Busy) => tried.left.push(id),
                Err(error) if error.code() == Errno::ECANCELED => tried.left.push(id),
                Err(error) => tried.failed(id, &error),
            }
        }
        // Those that were under way have ended in good order.
        self.must_go_on()?;
        Ok(tried)
    }

    /// The same as they are now.
    pub async fn look_anew(&self) -> Result<Rc<Sight>> {
        self.seen.take();
        self.look().await
    }

    /// Gives a chain, on which so many files lie, to a server.
    pub async fn move_chain(&self, chain: u16, to: u16, files: u64) -> Result<()> {
        self.must_go_on()?;
        self.fs.move_chain(chain, to, &self.control.pace).await?;
        self.control.goes_on();
        self.control.change(|progress| progress.files += files);
        Ok(())
    }

    /// What a pass has come to.
    pub fn report(&self, tried: &Tried) {
        self.control.change(|progress| {
            progress.left = tried.left.len() as u64;
            progress.failures = List(tried.failures.clone());
        });
    }

    /// So much is left to be copied.
    pub fn expects(&self, bytes: u64) {
        let copied = self.control.progress().bytes;
        self.control.change(|progress| progress.bytes_total = copied.saturating_add(bytes));
    }

    /// Waits until the time is over, the task is, or somebody wants it tried at once: then true.
    pub async fn rest(&self, time: Duration) -> bool {
        let (end, pokes) = (task::now() + time, self.control.pokes());
        while !self.control.is_over() && self.control.pokes() == pokes {
            let left = end.saturating_duration_since(task::now());
            if left.is_zero() {
                return false;
            }
            task::sleep(left.min(LOOK_EVERY)).await;
        }
        !self.control.is_over()
    }

    pub fn must_go_on(&self) -> Result<()> {
        if self.control.is_over() {
            return Err(Error::because(Errno::ECANCELED, "moving files was ended"));
        }
        Ok(())
    }
}
