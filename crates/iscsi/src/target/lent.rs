//! Data that was sent from a store's file and that the initiator may not have yet: as long as that, it is in the file only, and
//! what changes the file changes it on its way. Its blocks stay claimed until ExpStatSN says that it has arrived.

use super::session::is_before;
use crate::store::Hold;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most that is lent on one connection: beyond it data is copied.
const LENT_MAX: usize = 256;
/// How long an initiator may speak and not say that it has what it has. Then others wait no more for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is lent, in the order of its statuses.
#[derive(Debug, Default)]
pub(super) struct Lent(VecDeque<Loan>);

#[derive(Debug)]
struct Loan {
    /// The ExpStatSN of an initiator that has it.
    acknowledged_by: u32,
    /// When the initiator first spoke after it was sent.
    heard: Option<Instant>,
    /// Held, not looked at.
    _hold: Hold,
}

impl Lent {
    /// Whether the initiator has all of it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether more may be lent.
    pub fn has_room(&self) -> bool {
        self.0.len() < LENT_MAX
    }

    /// Something was sent whose status has the number before `next_stat_sn`.
    pub fn add(&mut self, next_stat_sn: u32, hold: Hold) {
        if !hold.is_empty() {
            let loan = Loan { acknowledged_by: next_stat_sn, heard: None, _hold: hold };
            self.0.push_back(loan);
        }
    }

    /// The initiator has all statuses before this number, and the data that came with them.
    pub fn acknowledged(&mut self, exp_stat_sn: u32) {
        while self.0.front().is_some_and(|loan| !is_before(exp_stat_sn, loan.acknowledged_by)) {
            self.0.pop_front();
        }
    }

    /// The initiator has said something.
    pub fn heard(&mut self, now: Instant) {
        let is_late = |at: Instant| now.saturating_duration_since(at) > PATIENCE;
        while self.0.front().is_some_and(|loan| loan.heard.is_some_and(is_late)) {
            self.0.pop_front();
        }
        // Later ones were heard of later.
        let new = self.0.iter_mut().rev().take_while(|loan| loan.heard.is_none());
        new.for_each(|loan| loan.heard = Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Held;
    use std::sync::Arc;

    struct Nothing;
    impl Held for Nothing {}

    fn hold() -> (Hold, std::sync::Weak<Nothing>) {
        let held = Arc::new(Nothing);
        let weak = Arc::downgrade(&held);
        (Hold::new(held), weak)
    }

    #[test]
    fn what_was_lent_is_held_until_the_initiator_has_it() {
        let mut lent = Lent::default();
        let (first, first_held) = hold();
        let (second, second_held) = hold();
        // Numbers go around.
        lent.add(u32::MAX, first);
        lent.add(1, second);
        lent.add(2, Hold::default());
        lent.acknowledged(u32::MAX - 1);
        assert!(first_held.upgrade().is_some());
        lent.acknowledged(u32::MAX);
        assert!(first_held.upgrade().is_none() && second_held.upgrade().is_some());
        lent.acknowledged(3);
        assert!(second_held.upgrade().is_none() && lent.0.is_empty());
    }

    #[test]
    fn an_initiator_that_never_says_what_it_has_holds_up_nobody_for_ever() {
        let mut lent = Lent::default();
        let now = Instant::now();
        for count in 0..LENT_MAX {
            assert!(lent.has_room(), "{count}");
            lent.add(1, hold().0);
        }
        assert!(!lent.has_room());
        lent.heard(now);
        lent.heard(now + PATIENCE);
        assert!(!lent.has_room());
        lent.heard(now + PATIENCE + Duration::from_millis(1));
        assert!(lent.0.is_empty());
    }
}
