//! What a shared file may hold: a checker for reads, sizes and what survives.
//!
//! Every change is known with the time it began and, once it was acknowledged, the time it ended. A byte
//! that was read must be of a change that nothing has certainly overwritten: overwritten by an acknowledged
//! change that began after it had ended and was over before the read began. A change that failed may come
//! at any time, or never. After a loss of power only what was fsynced counts as certain.

use covey_io::task;
use std::cell::RefCell;
use std::time::Instant;

/// A change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Write {
        offset: u64,
        length: u64,
    },
    Truncate {
        size: u64,
    },
    /// Zeros, punched or allocated anew; with `grows` the file reaches to their end.
    Zero {
        offset: u64,
        length: u64,
        grows: bool,
    },
    /// Space was taken up to here, and the file reaches there.
    Allocate {
        end: u64,
    },
}

#[derive(Clone, Debug)]
struct Change {
    client: usize,
    kind: Kind,
    began: Instant,
    /// Acknowledged.
    ended: Option<Instant>,
    /// When an fsync that covers it was acknowledged.
    synced: Option<Instant>,
    /// A loss of power may have taken it, and no later fsync can promise otherwise.
    is_forfeit: bool,
}

/// A change that began.
#[derive(Clone, Copy, Debug)]
pub struct Begun(usize);

/// One file's history.
#[derive(Default)]
pub struct History {
    changes: RefCell<Vec<Change>>,
    losses: RefCell<Vec<Instant>>,
}

/// When something was asked and when it was answered.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub began: Instant,
    pub ended: Instant,
}

impl Change {
    fn covers(&self, at: u64) -> bool {
        match self.kind {
            Kind::Write { offset, length } | Kind::Zero { offset, length, .. } => {
                (offset..offset + length).contains(&at)
            }
            Kind::Truncate { size } => at >= size,
            Kind::Allocate { .. } => false,
        }
    }

    fn edges(&self) -> [u64; 2] {
        match self.kind {
            Kind::Write { offset, length } | Kind::Zero { offset, length, .. } => {
                [offset, offset + length]
            }
            Kind::Truncate { size } => [size, u64::MAX],
            Kind::Allocate { end } => [end, end],
        }
    }

    /// The size of a file that was empty before.
    fn end(&self) -> u64 {
        match self.kind {
            Kind::Zero { grows: false, .. } => 0,
            _ => self.reach(),
        }
    }

    /// Where it ends, or the size that it makes.
    fn reach(&self) -> u64 {
        match self.kind {
            Kind::Write { offset, length } | Kind::Zero { offset, length, .. } => offset + length,
            Kind::Truncate { size: end } | Kind::Allocate { end } => end,
        }
    }

    fn is_truncation(&self) -> bool {
        matches!(self.kind, Kind::Truncate { .. })
    }

    /// Whether what it covers reads as zeros.
    fn zeroes(&self) -> bool {
        !matches!(self.kind, Kind::Write { .. })
    }
}

/// The byte at `at` of change number `id`.
pub fn byte(id: usize, at: u64) -> u8 {
    let mixed = (id as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ at.wrapping_mul(0xd134_2543_de82_ef95);
    // Never zero, so that holes can be told from data.
    ((mixed >> 32) % 255) as u8 + 1
}

impl History {
    /// A change begins; what it writes is `bytes`.
    pub fn begin(&self, client: usize, kind: Kind) -> Begun {
        let mut changes = self.changes.borrow_mut();
        let began = task::now();
        changes.push(Change { client, kind, began, ended: None, synced: None, is_forfeit: false });
        Begun(changes.len() - 1)
    }

    /// What a write of this change says.
    pub fn bytes(&self, begun: Begun) -> Vec<u8> {
        match self.changes.borrow()[begun.0].kind {
            Kind::Write { offset, length } => {
                (offset..offset + length).map(|at| byte(begun.0, at)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// It was acknowledged.
    pub fn done(&self, begun: Begun) {
        self.changes.borrow_mut()[begun.0].ended = Some(task::now());
    }

    /// An fsync of this client, begun at `began`, was acknowledged.
    pub fn synced(&self, client: usize, began: Instant) {
        let now = task::now();
        let mut changes = self.changes.borrow_mut();
        let covered = |c: &&mut Change| {
            c.client == client && !c.is_forfeit && c.ended.is_some_and(|ended| ended <= began)
        };
        changes.iter_mut().filter(covered).for_each(|change| {
            change.synced.get_or_insert(now);
        });
    }

    /// An fsync of this client has failed, or it has opened the file anew: what a loss of power has
    /// taken before, or was written within a size that it has taken, is not promised any more.
    pub fn forfeit(&self, client: usize) {
        let now = task::now();
        let span = Span { began: now, ended: now };
        let in_doubt: Vec<bool> = {
            let changes = self.changes.borrow();
            let begun: Vec<&Change> = changes.iter().collect();
            let doubt = |change: &Change| {
                self.may_be_lost(change, span) || self.may_rest_on_lost(change, &begun, span)
            };
            changes.iter().map(doubt).collect()
        };
        let mut changes = self.changes.borrow_mut();
        let changes = changes.iter_mut().zip(in_doubt);
        for (change, in_doubt) in changes.filter(|(change, _)| change.client == client) {
            change.is_forfeit |= change.synced.is_none() && in_doubt;
        }
    }

    /// A server has lost its power.
    pub fn lost_power(&self) {
        self.losses.borrow_mut().push(task::now());
    }

    /// Whether everybody who asks in `span` must see the change, or what came after it.
    fn is_certain(&self, change: &Change, span: Span) -> bool {
        if change.ended.is_none_or(|ended| ended > span.began) {
            return false;
        }
        !self.may_be_lost(change, span)
    }

    /// Whether a loss of power may have taken the change from whoever asks in `span`.
    fn may_be_lost(&self, change: &Change, span: Span) -> bool {
        let lost = |loss: &Instant| *loss >= change.began && *loss <= span.ended;
        change.synced.is_none_or(|synced| synced > span.began)
            && self.losses.borrow().iter().any(lost)
    }

    /// Whether the change lies within a size that may be lost. A write within the size tells nobody of
    /// its end, so it goes with the size, even when its client had not heard of the loss yet.
    fn may_rest_on_lost(&self, change: &Change, begun: &[&Change], span: Span) -> bool {
        let is_within = |other: &&Change| {
            !std::ptr::eq(*other, change)
                && other.end() >= change.reach()
                && change.ended.is_none_or(|ended| other.began <= ended)
                && self.may_be_lost(other, span)
        };
        change.synced.is_none() && begun.iter().any(is_within)
    }

    /// Checks what a read of `count` bytes at `offset` has answered.
    pub fn check_read(
        &self,
        offset: u64,
        count: u64,
        bytes: &[u8],
        span: Span,
    ) -> Result<(), String> {
        let got = bytes.len() as u64;
        if got > count {
            return Err(format!("{got} bytes for a read of {count}"));
        }
        let (lower, upper) = self.size_bounds(span);
        if got < count && offset + got < lower {
            return Err(format!(
                "a read of {count} at {offset} ended after {got} bytes; the size is at least {lower}"
            ));
        }
        if got > 0 && offset + got > upper {
            let end = offset + got;
            return Err(format!("a read reached {end}, the size is at most {upper}"));
        }
        self.check_bytes(offset, bytes, span)
    }

    /// Checks the answer of a search for data: what lies before it reads as zeros.
    pub fn check_data(&self, offset: u64, found: Option<u64>, span: Span) -> Result<(), String> {
        let (lower, upper) = self.size_bounds(span);
        if let Some(found) = found.filter(|&found| found < offset || found >= upper) {
            return Err(format!("data at {found}, and the size is at most {upper}"));
        }
        let end = found.unwrap_or(lower);
        let zeros = vec![0; end.saturating_sub(offset) as usize];
        self.check_bytes(offset, &zeros, span)
    }

    /// Checks the answer of a search for a hole: the end of the file is one.
    pub fn check_hole(&self, offset: u64, found: Option<u64>, span: Span) -> Result<(), String> {
        let (lower, upper) = self.size_bounds(span);
        match found {
            Some(found) if found < offset || found > upper => {
                Err(format!("a hole at {found}, and the size is at most {upper}"))
            }
            None if offset < lower => {
                Err(format!("no hole behind {offset}, and the size is at least {lower}"))
            }
            _ => Ok(()),
        }
    }

    fn check_bytes(&self, offset: u64, bytes: &[u8], span: Span) -> Result<(), String> {
        let changes = self.changes.borrow();
        let end = offset + bytes.len() as u64;
        let mut edges: Vec<u64> = changes.iter().flat_map(Change::edges).collect();
        edges.extend([offset, end]);
        edges.retain(|edge| (offset..=end).contains(edge));
        edges.sort_unstable();
        edges.dedup();
        for piece in edges.windows(2) {
            let covering: Vec<(usize, &Change)> =
                changes.iter().enumerate().filter(|(_, change)| change.covers(piece[0])).collect();
            let certain = covering.iter().filter(|(_, change)| self.is_certain(change, span));
            let newest = certain.map(|(_, change)| change.began).max();
            let is_possible = |change: &Change| {
                let is_over = change.ended.is_some_and(|e| newest.is_some_and(|n| e < n));
                change.began <= span.ended && !is_over
            };
            let possible: Vec<_> = covering.iter().filter(|(_, c)| is_possible(c)).collect();
            let zero = newest.is_none() || possible.iter().any(|(_, c)| c.zeroes());
            for at in piece[0]..piece[1] {
                let got = bytes[(at - offset) as usize];
                let is_of =
                    |(id, change): &&&(usize, &Change)| !change.zeroes() && byte(*id, at) == got;
                if !(got == 0 && zero || possible.iter().any(|one| is_of(&one))) {
                    return Err(self.explain(at, got, &possible, zero));
                }
            }
        }
        Ok(())
    }

    fn explain(&self, at: u64, got: u8, possible: &[&(usize, &Change)], zero: bool) -> String {
        let changes = self.changes.borrow();
        let whose = (0..changes.len()).filter(|&id| changes[id].covers(at) && byte(id, at) == got);
        let whose: Vec<String> = whose.map(|id| self.tell(id)).collect();
        let possible: Vec<String> = possible.iter().map(|(id, _)| self.tell(*id)).collect();
        let zero_text = if zero { " or zero" } else { "" };
        format!(
            "byte {at} is {got}, which is of [{}]; it may be of [{}]{zero_text}",
            whose.join("; "),
            possible.join("; ")
        )
    }

    fn tell(&self, id: usize) -> String {
        let change = &self.changes.borrow()[id];
        let state = match (change.ended, change.synced) {
            (None, _) => "unanswered",
            (_, None) => "done",
            _ => "synced",
        };
        format!("#{id} client{} {:?} {state}", change.client, change.kind)
    }

    /// Between which bounds the size may be for whoever asks in `span`.
    fn size_bounds(&self, span: Span) -> (u64, u64) {
        let changes = self.changes.borrow();
        let begun: Vec<&Change> = changes.iter().filter(|c| c.began <= span.ended).collect();
        let truncations: Vec<&Change> =
            begun.iter().copied().filter(|change| change.is_truncation()).collect();
        let may_be_cut = |change: &Change| {
            let comes_after = |cut: &Change| {
                cut.end() < change.end()
                    && !std::ptr::eq(cut, change)
                    && cut.ended.is_none_or(|ended| ended >= change.began)
            };
            truncations.iter().any(|cut| comes_after(cut))
        };
        let is_cut = |change: &Change| {
            let is_after = |cut: &Change| {
                cut.end() < change.end()
                    && change.ended.is_some_and(|ended| ended < cut.began)
                    && self.is_certain(cut, span)
            };
            truncations.iter().any(|cut| is_after(cut))
        };
        let is_there = |change: &Change| {
            self.is_certain(change, span)
                && !may_be_cut(change)
                && !self.may_rest_on_lost(change, &begun, span)
        };
        let certain = begun.iter().filter(|change| is_there(change));
        let lower = certain.map(|change| change.end()).max().unwrap_or(0);
        let upper = begun.iter().filter(|change| !is_cut(change)).map(|change| change.end()).max();
        (lower, upper.unwrap_or(0))
    }

    /// Checks a size that was told.
    pub fn check_size(&self, size: u64, span: Span) -> Result<(), String> {
        let (lower, upper) = self.size_bounds(span);
        if (lower..=upper).contains(&size) {
            return Ok(());
        }
        Err(format!("the size is {size}, it must be from {lower} to {upper}"))
    }
}
