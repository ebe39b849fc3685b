//! What is not synced on one I/O server, and in which start of that server's machine it was written.

use super::OpenFile;
use super::slots::ObjectFid;
use crate::client::chain::Head;
use crate::client::{Shared, Start, UnsyncedSlot};
use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is held on one I/O server.
#[derive(Default)]
pub(super) struct Slot {
    pub fid: Option<ObjectFid>,
    /// Writes that are over, done or not, and how many of them are on stable storage. What was
    /// written before the file was opened counts as one.
    pub written: u64,
    pub synced: u64,
    /// Writes that are not over, and whether something of one was answered where the chain is now.
    under_way: u64,
    is_answered: bool,
    /// The start of the server's machine in which what is not synced was written.
    machine: Option<u64>,
    /// When the file was opened, if something was written before and no answer has told yet in which
    /// start: then one that was later may have lost it.
    unmet_since: Option<Instant>,
    /// Where that was; where it was to be asked as long as nobody has answered.
    head: Option<Head>,
    /// The same where the chain was before.
    left: Vec<Left>,
    /// Some of it was written in an earlier start, and may be lost.
    is_lost: bool,
}

/// What was not synced where a chain was, as long as it is not known whether it was whole when the chain was moved: then it has been on
/// stable storage since.
#[derive(Clone)]
pub(super) struct Left {
    head: Head,
    /// As in a slot.
    pub machine: Option<u64>,
    unmet_since: Option<Instant>,
}

impl Left {
    /// The chain's generation there.
    pub fn generation(&self) -> u32 {
        generation(&self.head)
    }

    fn is_same(&self, other: &Left) -> bool {
        self.head.is_same(&other.head) && self.machine == other.machine
    }

    /// Whether the start of its machine in which the server has given the chain away, if that is known, was after the file was
    /// opened. Only the server itself knows when it was, as long as it has not started anew since.
    pub async fn has_started(&self, fs: &Shared, given_away: Option<u64>) -> bool {
        let Some(opened) = self.unmet_since else { return false };
        let link = &self.head.link;
        let conn = pin!(link.conn(link.now()));
        let conn = match select(conn, fs.net.sleep(MEET_WITHIN)).await {
            Either::Left((Ok((generation, _)), _)) => link.machine(generation),
            _ => None,
        };
        let start = conn.filter(|start| given_away.is_none_or(|machine| machine == start.machine));
        start.and_then(|start| start.at).is_some_and(|at| at >= opened)
    }
}

fn generation(head: &Head) -> u32 {
    head.served.map_or(0, |served| served.generation)
}

/// How long a server is waited for that has given a chain away: it may be switched off since.
const MEET_WITHIN: Duration = Duration::from_secs(1);

/// A write on its way to a slot.
pub(super) struct Counted<'a> {
    file: &'a OpenFile,
    slot: usize,
}

impl<'a> Counted<'a> {
    pub fn new(file: &'a OpenFile, slot: usize) -> Counted<'a> {
        let mut state = file.lock();
        state.slots[slot].under_way += 1;
        state.reads.is_changed();
        drop(state);
        Counted { file, slot }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut state = self.file.lock();
        let held = &mut state.slots[self.slot];
        (held.under_way, held.written) = (held.under_way - 1, held.written + 1);
        held.is_answered &= held.under_way > 0;
    }
}

impl Slot {
    /// A slot of a file just opened: whether there is anything that somebody may have written, and
    /// the start of the server's machine that was heard of last. What was written before is synced
    /// with the rest, so its loss from now on is to be told as well.
    pub fn opened(is_written: bool, head: Head) -> Slot {
        let link = &head.link;
        let slot = Slot::written_before(is_written, link.last_machine(), link.now());
        // Its chain may be elsewhere before anything is written.
        Slot { head: Some(head), ..slot }
    }

    fn written_before(is_written: bool, machine: Option<u64>, now: Instant) -> Slot {
        let machine = machine.filter(|_| is_written);
        let unmet_since = (is_written && machine.is_none()).then_some(now);
        Slot { written: is_written.into(), machine, unmet_since, ..Slot::default() }
    }

    pub fn is_dirty(&self) -> bool {
        self.written > self.synced
    }

    /// For another process to go on with.
    pub fn unsynced(&self) -> UnsyncedSlot {
        // That one cannot find out.
        let is_lost = self.is_lost || self.has_left();
        UnsyncedSlot { is_dirty: self.is_dirty(), machine: self.machine, is_lost }
    }

    /// What another process has written. Where it has met the machine there is nothing to guess.
    pub fn owe(&mut self, before: &UnsyncedSlot) {
        (self.written, self.synced) = (before.is_dirty.into(), 0);
        self.is_lost |= before.is_lost;
        if before.machine.is_some() {
            (self.machine, self.unmet_since) = (before.machine, None);
        }
    }

    /// A server has answered in this start of its machine.
    pub fn has_met(&mut self, head: &Head, start: Start) {
        if self.head.as_ref().is_some_and(|before| before.is_same(head)) {
            self.is_answered = self.under_way > 0;
            return self.met(start);
        }
        let Some(before) = self.head.clone() else {
            self.head = Some(head.clone());
            return self.met(start);
        };
        let is_same_link = Arc::ptr_eq(&before.link, &head.link);
        let is_later = generation(head) >= generation(&before);
        // Or nothing was written where that counts.
        let is_same_start = match self.machine {
            Some(machine) => machine == start.machine,
            None => self.unmet_since.is_none(),
        };
        if is_same_link && is_same_start {
            self.met(start);
        } else if !is_later {
            // An answer that was long on its way.
            let machine = Some(start.machine);
            return self.leave(Left { head: head.clone(), machine, unmet_since: None });
        } else {
            // It was moved, perhaps more than once.
            if self.is_dirty() || self.is_answered {
                let (machine, unmet_since) = (self.machine, self.unmet_since);
                self.leave(Left { head: before, machine, unmet_since });
            }
            (self.machine, self.unmet_since) = (Some(start.machine), None);
        }
        if is_later {
            self.head = Some(head.clone());
            self.is_answered = self.under_way > 0;
        }
    }

    fn leave(&mut self, left: Left) {
        if !self.left.iter().any(|known| known.is_same(&left)) {
            self.left.push(left);
        }
    }

    pub fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// What is not settled of where the chain was.
    pub fn left(&self) -> Vec<Left> {
        self.left.clone()
    }

    /// It is known now whether some of it is lost.
    pub fn settle(&mut self, settled: &Left, is_lost: bool) {
        let unsettled = self.left.len();
        self.left.retain(|left| !left.is_same(settled));
        self.is_lost |= is_lost && self.left.len() < unsettled;
    }

    /// Whether some of it is lost; that is told once.
    pub fn takes_loss(&mut self) -> bool {
        std::mem::take(&mut self.is_lost)
    }

    /// The server has answered in this start of its machine.
    fn met(&mut self, Start { machine, at, .. }: Start) {
        let unmet_since = self.unmet_since.take();
        self.is_lost |= match self.machine.replace(machine) {
            Some(before) => before != machine,
            None => unmet_since.zip(at).is_some_and(|(opened, at)| at >= opened),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_has_started_since_the_opening_may_have_lost_what_was_written_before() {
        let opened = Instant::now();
        let (before, since) = (opened.checked_sub(Duration::from_millis(1)), Some(opened));
        let is_lost = |is_written, known, at| {
            let mut slot = Slot::written_before(is_written, known, opened);
            slot.met(Start { machine: 2, at, says_chains: true });
            slot.is_lost
        };
        assert!(is_lost(true, None, since));
        assert!(!is_lost(true, None, before), "it was lost before the file was opened");
        assert!(!is_lost(true, None, None));
        assert!(!is_lost(false, None, since), "there was nothing to lose");
        assert!(is_lost(true, Some(1), None));
        assert!(!is_lost(true, Some(2), since));
    }

    #[test]
    fn only_the_first_answer_is_held_against_the_time_of_the_opening() {
        let opened = Instant::now();
        let mut slot = Slot::written_before(true, None, opened);
        slot.met(Start { machine: 2, ..Start::default() });
        slot.met(Start { machine: 2, at: Some(opened), says_chains: true });
        assert!(!slot.is_lost);
        slot.met(Start { machine: 3, ..Start::default() });
        assert!(slot.is_lost);
    }
}
