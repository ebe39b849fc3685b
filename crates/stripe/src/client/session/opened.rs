//! Opens that the metadata server counts.

use super::{CLOSES_MAX, Session};
use crate::ops::Id;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An open that the server counts, until this is dropped.
#[derive(Clone)]
pub struct Opened(Arc<Open>);

/// One open, for all who hold it.
struct Open {
    session: Arc<Session>,
    id: Id,
    /// The number of one that it may not have heard of yet; 0 for none.
    untold: AtomicU64,
    /// False for a file that it has yet to be told of.
    is_counted: AtomicBool,
}

impl Opened {
    /// The server counts it.
    pub(super) fn told(session: &Arc<Session>, id: Id) -> Opened {
        Opened::new(session, id, None, true)
    }

    /// The server is told of it soon.
    pub(super) fn untold(session: &Arc<Session>, id: Id) -> Opened {
        let number = session.wire.memory.opened_untold(id);
        Opened::new(session, id, Some(number), true)
    }

    /// The server counts it when it is told that the file was made: see [`Opened::is_counted`].
    pub(super) fn late(session: &Arc<Session>, id: Id) -> Opened {
        Opened::new(session, id, None, false)
    }

    fn new(session: &Arc<Session>, id: Id, untold: Option<u64>, is_counted: bool) -> Opened {
        let (session, is_counted) = (session.clone(), AtomicBool::new(is_counted));
        let untold = AtomicU64::new(untold.unwrap_or(0));
        Opened(Arc::new(Open { session, id, untold, is_counted }))
    }

    /// The server has counted it, and was told of in a greeting if more have begun than these; false where it has to be asked
    /// again.
    pub(super) fn is_counted(&self, greetings: u64) -> bool {
        let is_counted = self.0.session.wire.memory.opened(self.0.id, greetings);
        self.0.is_counted.fetch_or(is_counted, Ordering::AcqRel);
        is_counted
    }

    /// The file may be there, and the server may not count the open.
    pub(super) fn is_to_be_told(&self) {
        if !self.0.is_counted.swap(true, Ordering::AcqRel) {
            let number = self.0.session.wire.memory.opened_untold(self.0.id);
            self.0.untold.store(number, Ordering::Release);
            self.0.session.tell_soon();
        }
    }

    /// The file.
    pub fn id(&self) -> Id {
        self.0.id
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !*self.is_counted.get_mut() {
            return self.session.late.is_closed(self.id);
        }
        let untold = Some(*self.untold.get_mut()).filter(|&number| number > 0);
        match self.session.wire.memory.released(self.id, untold) {
            0 => {}
            CLOSES_MAX.. => self.session.say_opens(),
            _ => self.session.tell_soon(),
        }
    }
}
