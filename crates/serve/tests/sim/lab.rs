//! What all parts of one simulation share: the cluster, the clock, and what counts as an excuse.

use super::cluster::{Cluster, is_away};
use super::history::Span;
use super::roles::Role;
use covey_io::sim::{NodeId, Rng, note};
use covey_io::task;
use covey_ninep::tree::Errno;
use covey_stripe::client::{Error, Result};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// No operation takes longer, whatever is broken meanwhile.
const OPERATION_MAX: Duration = Duration::from_secs(150);

/// One simulation.
pub struct Lab {
    pub cluster: Rc<Cluster>,
    pub rng: RefCell<Rng>,
    /// Whether anything goes wrong in this one.
    pub has_faults: bool,
    /// Set when everything is whole again: from a while later on, no error is excused.
    pub healed_at: Cell<Option<Instant>>,
    pub roles: RefCell<Vec<(usize, Rc<dyn Role>)>>,
    /// Losses of power so far, of any server.
    pub losses: Cell<u64>,
    /// Somebody moves files.
    pub has_moves: Cell<bool>,
    pub operations: Cell<u64>,
    pub errors: Cell<u64>,
}

impl Lab {
    /// A number from this simulation's generator.
    pub fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().below(bound)
    }

    pub fn chance(&self, permille: u64) -> bool {
        self.rng.borrow_mut().chance(permille)
    }

    /// Waits for any time up to `most`.
    pub async fn pause(&self, most: Duration) {
        let time = self.rng.borrow_mut().time(Duration::ZERO..most);
        task::sleep(time).await;
    }

    /// Runs one operation: it must end, and may fail only where there is an excuse. None: it failed
    /// because something was out of reach.
    pub async fn attempt<T>(
        &self,
        what: String,
        operation: impl Future<Output = Result<T>>,
    ) -> (Span, Option<T>) {
        self.expect(what, &[], operation).await.unwrap_or_else(|_| unreachable!())
    }

    /// Like `attempt`; the given errors are answers.
    pub async fn expect<T>(
        &self,
        what: String,
        answers: &[u32],
        operation: impl Future<Output = Result<T>>,
    ) -> std::result::Result<(Span, Option<T>), (Span, u32)> {
        self.expect_within(OPERATION_MAX, what, answers, operation).await
    }

    /// The same, for what has so much time.
    pub async fn expect_within<T>(
        &self,
        most: Duration,
        what: String,
        answers: &[u32],
        operation: impl Future<Output = Result<T>>,
    ) -> std::result::Result<(Span, Option<T>), (Span, u32)> {
        self.operations.set(self.operations.get() + 1);
        let began = task::now();
        note(|| format!("> {what}"));
        let answer = task::timeout(most, operation).await;
        let Some(answer) = answer else {
            panic!("{what}: not answered after {most:?}");
        };
        let span = Span { began, ended: task::now() };
        match answer {
            Ok(answer) => {
                note(|| format!("< {what}"));
                Ok((span, Some(answer)))
            }
            Err(error) if answers.contains(&error.code()) => {
                note(|| format!("< {what}: {error}"));
                Err((span, error.code()))
            }
            Err(error) => {
                note(|| format!("! {what}: {error}"));
                self.errors.set(self.errors.get() + 1);
                self.must_be_excused(&what, &error, began);
                Ok((span, None))
            }
        }
    }

    fn must_be_excused(&self, what: &str, error: &Error, began: Instant) {
        /// How long after everything is whole again something may still fail.
        const AFTERMATH: Duration = Duration::from_secs(12);
        let is_aftermath = self.healed_at.get().is_none_or(|at| began < at + AFTERMATH);
        // Whatever is full, things can be removed.
        let removes = ["Unlink(", "Rmdir(", "unlink it"].iter().any(|text| what.contains(text));
        assert!(!removes || error.code() != Errno::ENOSPC, "{what}: {error}, on a full store");
        // A file whose name was lost with the power, before anybody had synced it.
        let is_gone = error.code() == Errno::ESTALE && self.losses.get() > 0;
        // A session that was over when its file moved: only a client that was cut off for longer than the grace.
        let is_moved = error.code() == Errno::ESTALE && self.has_moves.get();
        // Told by the first fsync since, however late that is.
        let is_told_lost = matches!(error, Error::Unsynced { .. }) && self.losses.get() > 0;
        let is_excused = self.has_faults
            && ((is_aftermath && is_away(error)) || is_gone || is_told_lost || is_moved);
        assert!(is_excused, "{what}: {error}, and nothing excuses it");
    }

    /// A broken promise ends the simulation.
    pub fn check(&self, what: &str, checked: std::result::Result<(), String>) {
        if let Err(broken) = checked {
            panic!("{what}: {broken}");
        }
    }

    /// A server's power went.
    pub fn power_lost(&self, node: NodeId) {
        self.losses.set(self.losses.get() + 1);
        let is_meta = node == self.cluster.meta.node;
        self.roles.borrow().iter().for_each(|(_, role)| role.power_lost(is_meta));
    }

    /// Begins a server's process. What its disk has failed to keep is lost with the one before.
    pub fn boot(&self, node: NodeId) {
        let meta = &self.cluster.meta;
        if node == meta.node && meta.disk.is_damaged() {
            self.power_lost(node);
        }
        if node == meta.node {
            self.roles.borrow().iter().for_each(|(_, role)| role.meta_started());
        }
        self.cluster.boot(node);
    }

    /// A client's machine is gone.
    pub fn client_lost(&self, client: usize) {
        let roles = self.roles.borrow();
        roles.iter().filter(|(at, _)| *at == client).for_each(|(_, role)| role.client_lost());
    }

    /// A client's session may have ended without its knowledge.
    pub fn session_in_doubt(&self, client: usize) {
        let roles = self.roles.borrow();
        roles.iter().filter(|(at, _)| *at == client).for_each(|(_, role)| role.session_in_doubt());
    }

    /// Whether everybody has done what he was to do.
    pub fn is_done(&self) -> bool {
        self.roles.borrow().iter().all(|(_, role)| role.is_done())
    }
}
