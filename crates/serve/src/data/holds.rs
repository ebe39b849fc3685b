//! Objects that nobody else writes to for a moment, because somebody reads them in order.
//!
//! Who reads a file in small pieces asks for more than it needs, and is told so much as may be used for [`HOLD`]: until then a
//! write of another client waits. Nobody is asked to give a hold back: it is over sooner than an answer would come from a
//! machine that is busy. An object whose hold was in somebody's way gets none for a while.
//!
//! What a client has of a hold ends with its lease on the file's attributes, too: so only what changes an object without
//! a word to the metadata server has to wait here. Holds do not outlive the process. So one that starts says nothing to the metadata
//! server before those of the process before it are over, and what gives up a chain waits for its holds: see
//! [`Chains::serve`](super::chains::Chains::serve).

use super::{DataTree, Line, Object};
use covey_io::disk;
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome};
use covey_stripe::objects::{At, DataReply, HELD_BYTES_MAX, HOLD};
use covey_stripe::ops::Id;
use covey_wire::Payload;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// So much longer than a reader goes by it: their clocks do not run alike.
const LONGER: Duration = Duration::from_millis(5);
/// An object whose hold was in the way gets none for so long, then for twice as long each time, up to the longest.
const PAUSE: Duration = Duration::from_secs(8);
const PAUSE_MAX: Duration = Duration::from_secs(64);
/// Objects that are held at a time, and those that are remembered to have been in the way. What would be one more is not held.
const HOLDS_MAX: usize = 4096;

/// An object: its chain, where that has a directory of its own, and its file.
type Key = (Option<u16>, Id);

/// The holds of a server.
pub(super) struct Holds {
    /// When those of the process before are over, and those of what was given up since.
    over_at: Cell<Instant>,
    by_object: RefCell<HashMap<Key, Hold>>,
    in_the_way: RefCell<HashMap<Key, Pause>>,
}

struct Hold {
    until: Instant,
    /// The client that reads; None where there are several.
    client: Option<u64>,
}

struct Pause {
    until: Instant,
    length: Duration,
}

impl Pause {
    /// Until when the next one counts as soon after this.
    fn is_remembered(&self) -> Instant {
        self.until + self.length
    }
}

impl Default for Holds {
    fn default() -> Holds {
        let (by_object, in_the_way) = Default::default();
        Holds { over_at: Cell::new(task::now() + HOLD + LONGER), by_object, in_the_way }
    }
}

impl Holds {
    /// Holds an object for a client, if it may be.
    fn grant(&self, key: Key, client: u64) -> bool {
        let now = task::now();
        let mut held = self.by_object.borrow_mut();
        let mut in_the_way = self.in_the_way.borrow_mut();
        if held.len() >= HOLDS_MAX {
            held.retain(|_, hold| now < hold.until);
        }
        if in_the_way.len() >= HOLDS_MAX {
            in_the_way.retain(|_, pause| now < pause.until);
        }
        let is_paused = in_the_way.get(&key).is_some_and(|pause| now < pause.until);
        if is_paused || held.len().max(in_the_way.len()) >= HOLDS_MAX {
            return false;
        }
        let until = now + HOLD + LONGER;
        let hold = held.entry(key).or_insert(Hold { until, client: Some(client) });
        let is_alone = hold.until <= now || hold.client == Some(client);
        *hold = Hold { until, client: is_alone.then_some(client) };
        true
    }

    /// Until when a client may not change an object. From now on that gets no hold for a while.
    fn keep_out(&self, key: Key, client: u64) -> Option<Instant> {
        let mut held = self.by_object.borrow_mut();
        let hold = held.get(&key)?;
        let now = task::now();
        if hold.until <= now {
            held.remove(&key);
            return None;
        }
        if client != 0 && hold.client == Some(client) {
            return None;
        }
        self.pause(key, hold.until, now);
        Some(hold.until)
    }

    fn pause(&self, key: Key, held_until: Instant, now: Instant) {
        let mut in_the_way = self.in_the_way.borrow_mut();
        let before = in_the_way.get(&key);
        if before.is_some_and(|pause| now < pause.until) {
            return;
        }
        let last = before.filter(|pause| now < pause.is_remembered());
        let length = last.map_or(PAUSE, |pause| (pause.length * 2).min(PAUSE_MAX));
        in_the_way.insert(key, Pause { until: held_until + length, length });
    }

    /// Some of what is held now is given up.
    pub fn give_up(&self) {
        let held = self.by_object.borrow();
        self.over_at
            .set(held.values().map(|hold| hold.until).fold(self.over_at.get(), Instant::max));
    }

    /// Completes when all that was given up is held no more, by whomever that is waited for, nor anything of the process before.
    pub async fn are_over(&self) {
        let left = self.over_at.get().saturating_duration_since(task::now());
        if !left.is_zero() {
            task::sleep(left.min(HOLD + LONGER)).await;
        }
    }
}

impl DataTree {
    /// Whether a range may be changed now.
    pub(super) fn is_free(&self, object: &Object, line: &Line, start: u64, end: u64) -> bool {
        !object.is_writing(start, end) && self.kept_out(object, line).is_none()
    }

    /// Completes when it may be.
    pub(super) async fn becomes_free(&self, object: &Object, line: &Line, start: u64, end: u64) {
        loop {
            if object.is_writing(start, end) {
                object.ended.notified().await;
            } else if let Some(until) = self.kept_out(object, line) {
                task::sleep(until.saturating_duration_since(task::now())).await;
            } else {
                return;
            }
        }
    }

    fn kept_out(&self, object: &Object, line: &Line) -> Option<Instant> {
        self.chains.holds.keep_out((object.chain, object.id), line.client.get())
    }

    /// Bytes of an object, and for how long nobody else changes it.
    pub(super) fn read_held(
        self: &Rc<Self>,
        line: &Line,
        id: Id,
        at: At,
        offset: u64,
        count: u32,
    ) -> Outcome<DataReply> {
        if count > HELD_BYTES_MAX {
            return Errno::EINVAL.into();
        }
        let object = self.object(id);
        let file = match self.to_read(&object, at) {
            Ok(file) => file,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let client = line.client.get();
        // What is under way was admitted, and may be answered at any moment.
        let is_still = object.writing.borrow().is_empty();
        // A metadata server of an older version admits a store that has started without a word.
        let is_told = self.standing.has_meta();
        let may_hold = client != 0 && is_still && is_told;
        let is_held = may_hold && self.chains.holds.grant((object.chain, id), client);
        let millis = if is_held { HOLD.as_millis() as u32 } else { 0 };
        let held = move |data| DataReply::Held { millis, data };
        let count = count as usize;
        self.count_read(count as u64);
        let Some(file) = file else { return Outcome::Now(Ok(held(Payload::default()))) };
        match file.read_now(offset, count) {
            Ok(Some(data)) => Outcome::Now(Ok(held(data.into()))),
            Ok(None) => {
                Outcome::later(
                    async move { Ok(held(disk::read(file, offset, count).await?.into())) },
                )
            }
            Err(error) => Outcome::Now(Err(error.into())),
        }
    }
}

#[cfg(test)]
#[path = "holds_tests.rs"]
mod tests;
