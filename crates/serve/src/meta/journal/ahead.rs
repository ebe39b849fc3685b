//! Room that is taken while the server goes on: for the log that comes next, and for the map's pages.

use super::{Journal, LOG_BYTES_MAX, room_on};
use covey_io::os::kv::Ahead;
use covey_io::os::log::{Log, Next};
use covey_io::task;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use tokio::sync::Notify;

/// What is taken, and what is to be.
#[derive(Default)]
pub(super) struct Taking {
    due: Notify,
    map: RefCell<Option<Ahead>>,
    next: RefCell<Option<Next>>,
    /// It is asked for once for each log.
    is_asked: Cell<bool>,
    wants_next: Cell<bool>,
    has_older: Cell<bool>,
}

impl Taking {
    /// To be called with the log's length after it has grown.
    pub fn log_has(&self, bytes: u64) {
        if bytes >= LOG_BYTES_MAX / 2 && !self.is_asked.replace(true) {
            self.wants_next.set(true);
            self.due.notify_one();
        }
    }

    /// The log that comes next, where it is made already.
    pub fn next(&self) -> Option<Next> {
        let next = self.next.borrow_mut().take();
        self.has_older.set(next.is_some());
        next
    }

    /// After a checkpoint.
    pub fn begin(&self, map: Option<Ahead>) {
        self.is_asked.set(false);
        *self.map.borrow_mut() = map;
        self.due.notify_one();
    }
}

impl Journal {
    /// Takes room when it is due, for as long as the journal lives.
    pub async fn take_room(self: Rc<Self>) {
        loop {
            self.taking.due.notified().await;
            let Some(take) = self.room_to_take() else { continue };
            if let Ok(Some(next)) = task::blocking(move || Ok(take())).await {
                *self.taking.next.borrow_mut() = Some(next);
            }
        }
    }

    /// Gives back what was taken for the log that comes next: the server ends.
    pub fn expect_no_more(&self) -> io::Result<()> {
        drop(self.taking.next.borrow_mut().take());
        self.log.borrow().as_ref().map_or(Ok(()), Log::forget_next)
    }

    /// The same as [`Journal::take_room`], once.
    #[cfg(test)]
    pub fn take_room_now(&self) {
        let next = self.room_to_take().and_then(|take| take());
        if next.is_some() {
            *self.taking.next.borrow_mut() = next;
        }
    }

    /// What is due now, to be called on any thread. None while a checkpoint has the log: it is asked for again then.
    fn room_to_take(&self) -> Option<impl FnOnce() -> Option<Next> + Send + use<>> {
        let (log, taking) = (self.log.borrow(), &self.taking);
        let log = log.as_ref()?;
        let older = taking.has_older.replace(false).then(|| log.removing_older());
        let map = taking.map.borrow_mut().take();
        let wants_next = taking.wants_next.replace(false)
            && taking.next.borrow().is_none()
            && room_on(&*self.disk, &self.dir) >= AMPLE_BYTES;
        let making = wants_next.then(|| log.making_next(LOG_BYTES_MAX + NEXT_BYTES_MORE));
        // What fails costs time later, and is told then.
        Some(move || {
            let _ = older.map_or(Ok(()), |remove| remove());
            map.into_iter().for_each(Ahead::take);
            making.and_then(|making| making.make().ok())
        })
    }
}

/// With less on the disk, a log takes its room in steps, as it grows.
const AMPLE_BYTES: u64 = 1 << 30;
/// A checkpoint is made some time after the log is long enough.
const NEXT_BYTES_MORE: u64 = LOG_BYTES_MAX / 4;
