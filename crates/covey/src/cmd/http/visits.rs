//! Who reads at the moment. There are at most [`VISITS_MAX`]; the next one takes the place of who has been silent for
//! longest, so nobody can keep others out by holding connections.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Readers at a time.
pub const VISITS_MAX: usize = 64;

/// The visits, the longest silent first.
#[derive(Default)]
pub struct Visits {
    here: RefCell<VecDeque<Rc<Visit>>>,
    /// One has ended, or has got its answer.
    changed: Notify,
}

/// One reader.
pub struct Visit {
    visits: Rc<Visits>,
    /// Questions that are being answered.
    asked: Cell<usize>,
    task: OnceCell<AbortHandle>,
}

/// A question, until it is answered.
pub struct Asking<'a>(&'a Rc<Visit>);

/// A visit's own end of its task.
struct Presence(Rc<Visit>);

impl Visits {
    /// Runs a visit beside the others, once there is room for it.
    pub async fn admit<F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        run: impl FnOnce(Rc<Visit>) -> F,
    ) {
        while !self.has_room() {
            self.changed.notified().await;
        }
        let visit =
            Rc::new(Visit { visits: self.clone(), asked: Cell::new(0), task: OnceCell::new() });
        self.here.borrow_mut().push_back(visit.clone());
        let presence = Presence(visit.clone());
        let running = run(visit.clone());
        let task = tokio::task::spawn_local(async move {
            let _presence = presence;
            running.await;
        });
        visit.task.set(task.abort_handle()).expect("it is set once");
    }

    /// Whether one more has room, if need be in the place of who says nothing.
    fn has_room(&self) -> bool {
        let mut here = self.here.borrow_mut();
        if here.len() < VISITS_MAX {
            return true;
        }
        let silent = here.iter().position(|visit| visit.asked.get() == 0);
        let silent = silent.and_then(|at| here.remove(at));
        if let Some(task) = silent.as_ref().and_then(|visit| visit.task.get()) {
            task.abort();
        }
        silent.is_some()
    }

    fn remove(&self, visit: &Rc<Visit>) -> Option<Rc<Visit>> {
        let mut here = self.here.borrow_mut();
        let at = here.iter().position(|one| Rc::ptr_eq(one, visit))?;
        here.remove(at)
    }
}

impl Visit {
    /// It asks something.
    pub fn asks(self: &Rc<Self>) -> Asking<'_> {
        self.asked.set(self.asked.get() + 1);
        Asking(self)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let visit = self.0;
        visit.asked.set(visit.asked.get() - 1);
        let visits = &visit.visits;
        // Silent from now on.
        if let Some(visit) = visits.remove(visit) {
            visits.here.borrow_mut().push_back(visit);
        }
        visits.changed.notify_one();
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.visits.remove(&self.0);
        self.0.visits.changed.notify_one();
    }
}
