//! Which chains this server serves, and at which generations: see `covey_stripe::chain`.
//!
//! The metadata server says so before it admits the store, and again whenever it changes. Nothing of it is kept on the disk: a
//! server that has started anew serves nothing until it was met. Clients that say no chain, of older versions, are served
//! as before.

use super::holds::Holds;
use super::{DataTree, Line};
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::chain::Served;
use covey_stripe::objects::{DataOp, DataReply};
use covey_wire::{Name, Payload};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use tokio::sync::Notify;

/// What is served now.
pub(super) struct Chains {
    /// Generations by the chain's index, 0 for those that are not served, as all are before the metadata server has said so.
    served: RefCell<Vec<u32>>,
    /// Held by all that was admitted since the last change and is under way.
    turn: RefCell<Rc<Turn>>,
    /// Those before it that may not be over.
    before: RefCell<Vec<Weak<Turn>>>,
    /// One is over.
    ended: Rc<Notify>,
    /// The connection on which the metadata server has spoken last, by its serial number.
    heard: Cell<u64>,
    /// What of it nobody else changes for a moment.
    pub holds: Holds,
}

/// The time between two changes of what is served.
pub(super) struct Turn(Rc<Notify>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl Default for Chains {
    fn default() -> Chains {
        let ended = Rc::<Notify>::default();
        let turn = RefCell::new(Rc::new(Turn(ended.clone())));
        let (served, before, heard, holds) = Default::default();
        Chains { served, turn, before, ended, heard, holds }
    }
}

impl Chains {
    /// EREMCHG for a chain that is not served, or at another generation.
    pub fn admit(&self, chain: Option<Served>) -> Result<()> {
        let Some(Served { chain, generation }) = chain else { return Ok(()) };
        let now = self.served.borrow().get(usize::from(chain)).copied();
        match now.unwrap_or(0) {
            now if now == generation && now > 0 => Ok(()),
            0 => {
                let what = format!("chain {chain} is not served here");
                Err(Errno::because(Errno::EREMCHG, what))
            }
            now => {
                let what = format!("chain {chain} is at generation {now}, not {generation}");
                Err(Errno::because(Errno::EREMCHG, what))
            }
        }
    }

    /// Whether a chain is served, at whatever generation.
    pub fn serves(&self, chain: u16) -> bool {
        self.served.borrow().get(usize::from(chain)).is_some_and(|&generation| generation > 0)
    }

    /// ESTALE for what the metadata server has said on an older connection than what it said last: it was on its way for long,
    /// and the table is another one by now.
    pub fn hear(&self, line: &Line) -> Result<()> {
        if line.serial < self.heard.get() {
            let what = "the metadata server has a newer connection";
            return Err(Errno::because(Errno::ESTALE, what));
        }
        self.heard.set(line.serial);
        Ok(())
    }

    /// What is under way holds this until it is over.
    pub fn turn(&self) -> Rc<Turn> {
        self.turn.borrow().clone()
    }

    /// From now on these are served and no others. Completes when nothing that was admitted before is under way, unless
    /// it would be admitted now as well, and nothing of what is given up is held.
    async fn serve(&self, chains: &[Served]) {
        let length = chains.iter().map(|one| usize::from(one.chain) + 1).max().unwrap_or(0);
        let mut served = vec![0; length];
        chains.iter().for_each(|one| served[usize::from(one.chain)] = one.generation);
        let before = self.served.replace(served.clone());
        let is_refused = |(at, &generation): (usize, &u32)| {
            generation > 0 && served.get(at) != Some(&generation)
        };
        if before.iter().enumerate().any(is_refused) {
            self.holds.give_up();
            let turn = self.turn.replace(Rc::new(Turn(self.ended.clone())));
            self.before.borrow_mut().push(Rc::downgrade(&turn));
        }
        while self.is_before_under_way() {
            self.ended.notified().await;
        }
        self.holds.are_over().await;
    }

    fn is_before_under_way(&self) -> bool {
        let mut before = self.before.borrow_mut();
        before.retain(|turn| turn.strong_count() > 0);
        !before.is_empty()
    }
}

impl DataTree {
    pub(super) async fn serve_chains(
        self: Rc<Self>,
        store: Name,
        chains: Vec<Served>,
    ) -> Result<DataReply> {
        self.standing.must_be(&store)?;
        self.chains.serve(&chains).await;
        Ok(DataReply::Done {})
    }

    pub(super) async fn serve_these(&self, chains: &[Served]) {
        self.chains.serve(chains).await;
    }

    /// EREMCHG for what the metadata server asks of a chain that is not served: it is being moved, or was.
    pub(super) fn must_serve(&self, chain: u16) -> Result<()> {
        if self.own_chain().is_none() || self.chains.serves(chain) {
            return Ok(());
        }
        Err(Errno::because(Errno::EREMCHG, format!("chain {chain} is not served here")))
    }

    /// What the metadata server asks of the objects of a chain; under way until it is over.
    pub(super) fn ask_in(
        self: &Rc<Self>,
        line: &Rc<Line>,
        chain: u16,
        op: DataOp,
    ) -> Outcome<DataReply> {
        // What is copied is at rest then: the last of it is copied when nobody is served any more.
        let is_copied = matches!(
            op,
            DataOp::Watch { .. }
                | DataOp::Changes {}
                | DataOp::Files { .. }
                | DataOp::FilesOf { .. }
                | DataOp::Fetch { .. }
                | DataOp::Hops {}
        );
        let may = if is_copied { Ok(()) } else { self.must_serve(chain) };
        let tree = match may.and_then(|()| self.must_have(chain)) {
            Ok(tree) => tree,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let turn = self.chains.turn();
        match tree.command(line, op, None) {
            Outcome::Later(later) => Outcome::later(async move {
                let answer = later.await;
                drop(turn);
                answer
            }),
            now => now,
        }
    }

    /// An operation that comes by a chain.
    pub(super) fn ask_by(
        self: &Rc<Self>,
        line: &Rc<Line>,
        served: Served,
        op: Payload,
    ) -> Outcome<DataReply> {
        let op = match DataOp::decode(op.into_bytes()) {
            Ok(op) => op,
            Err(blame) => {
                return Outcome::Now(Err(Errno::because(Errno::EINVAL, blame.to_string())));
            }
        };
        let line = line.clone();
        self.when_admitted(move |tree| {
            let admitted = tree.chains.admit(Some(served));
            match admitted.and_then(|()| tree.must_have(served.chain)) {
                Ok(tree) => tree.command(&line, op, Some(served)),
                Err(error) => Outcome::Now(Err(error)),
            }
        })
    }
}

#[cfg(test)]
#[path = "chains_tests.rs"]
mod tests;
