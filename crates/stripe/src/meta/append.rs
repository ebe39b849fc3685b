//! Appends from many clients at once.
//!
//! An append reserves its place (`tail` moves), writes its data, and commits. Places may be written
//! in any order, but the size moves over them in their own order, so that nobody ever reads a place
//! that is not written yet. A commit therefore waits until the size covers it. Reservations are
//! rows of their own: they outlive the server as the clients that hold them do. One that its client
//! has done with, while this server has lost the news of it with its power, ends when the client
//! comes back.

use super::attr::{check_end, must_be_regular};
use super::fault::{Fault, refuse};
use super::keys::{self, Reserved, Stored, mark};
use super::names::changed;
use super::{Applied, Awaited, Store, WaitId, done};
use crate::kv::Kv;
use crate::ops::{Id, Nanos, Reply, Request};
use covey_ninep::tree::Errno;
use covey_wire::List;

/// Appends under way in one file at once.
const RESERVED_MAX: usize = 16 * 1024;

impl<K: Kv> Store<K> {
    pub(super) fn reserve(
        &mut self,
        request: &Request,
        id: Id,
        length: u64,
    ) -> Result<Applied, Fault> {
        self.must_be_live(request.session)?;
        let mut stored = self.stored(id)?;
        must_be_regular(&stored.inode)?;
        let offset = stored.tail;
        let end = offset.saturating_add(length);
        check_end(end)?;
        let mut reserved = self.reserved(id)?;
        if reserved.len() >= RESERVED_MAX {
            return refuse(
                Errno::EAGAIN,
                format!("file {id} has {RESERVED_MAX} appends under way"),
            );
        }

        self.must_have_room_to(request, &stored, end)?;
        if length > 0 {
            // Whoever was given this place before, and lost it with our power, must not write there.
            self.clear_doubt(&mut stored, 0)?;
            let (session, seq) = (request.session, request.seq);
            reserved.push(Reserved { offset, end, session, seq, done: false });
            self.put_reserved(id, reserved)?;
            stored.tail = end;
            self.save(&stored)?;
        }
        Ok(Applied::Reply(Reply::Offset { offset, epoch: stored.inode.epoch }))
    }

    /// The data of an append is written, or some of it never will be. An append that is not known any more was answered
    /// before, or cut since: either way it is done. `told` is the number of its Reserve, and whether it leaves a hole: a
    /// place that was cut away may be another append's since.
    pub(super) fn end_append(
        &mut self,
        request: &Request,
        id: Id,
        (offset, length): (u64, u64),
        told: Option<(u64, bool)>,
    ) -> Result<Applied, Fault> {
        self.must_be_live(request.session)?;
        let mut stored = self.stored(id)?;
        must_be_regular(&stored.inode)?;
        let end = offset.saturating_add(length);
        let mut reserved = self.reserved(id)?;
        let mine = reserved.iter_mut().find(|reserved| {
            let is_told = told.is_none_or(|(reserve, _)| reserve == reserved.seq);
            let place = (reserved.offset, reserved.end, reserved.session);
            is_told && place == (offset, end, request.session)
        });
        let Some(mine) = mine else { return Ok(done()) };
        if !mine.done {
            mine.done = true;
            if told.is_some_and(|(_, hole)| hole) {
                stored.inode.sparse = true;
                stored.marks |= mark::BEYOND | mark::PUNCHED;
            }
            self.put_reserved(id, reserved)?;
            self.settle_appends(&mut stored)?;
            self.write_done(request, &mut stored)?;
        }
        if stored.inode.size >= end {
            return Ok(done());
        }
        Ok(Applied::Wait(self.wait_for(request.session, id, Awaited::Size(end))))
    }

    /// Moves the size over the appends that are done and answers those who wait for it. The caller
    /// saves the inode.
    pub(super) fn settle_appends(&mut self, stored: &mut Stored) -> Result<(), Fault> {
        let id = stored.inode.id;
        let mut left = Vec::new();
        let mut blocked = false;
        for reserved in self.reserved(id)? {
            // One that the size covers already (a write beyond it did that) holds nobody up.
            blocked |= !reserved.done && reserved.end > stored.inode.size;
            if reserved.done && !blocked {
                self.raise(stored, reserved.end)
            } else {
                left.push(reserved)
            }
        }
        left.retain(|reserved| !(reserved.done && reserved.end <= stored.inode.size));
        self.put_reserved(id, left)?;
        self.answer_sizes(id, stored.inode.size);
        Ok(())
    }

    /// Files to which a session has appends under way.
    pub(super) fn appended_by(&self, session: u64) -> Result<Vec<Id>, Fault> {
        self.appended(|one| one.session == session)
    }

    /// Files to which a session has appends that end when its client knows only of these Reserves.
    pub(super) fn given_up_by(&self, session: u64, but: &[u64]) -> Result<Vec<Id>, Fault> {
        self.appended(|one| is_given_up(one, session, but))
    }

    fn appended(&self, is_meant: impl Fn(&Reserved) -> bool) -> Result<Vec<Id>, Fault> {
        let rows = self.rows::<List<Reserved>>(b"a", b"a", usize::MAX)?;
        let is_of = |row: &&(Vec<u8>, List<Reserved>)| row.1.0.iter().any(&is_meant);
        rows.iter().filter(is_of).map(|(rest, _)| keys::number_of(rest)).collect()
    }

    /// A session has done with its appends but for those of these Reserves: what the others reserved and
    /// did not write stays a hole.
    pub(super) fn end_appends(
        &mut self,
        session: u64,
        but: &[u64],
        now: Nanos,
    ) -> Result<(), Fault> {
        for (rest, List(mut reserved)) in self.rows::<List<Reserved>>(b"a", b"a", usize::MAX)? {
            let id = keys::number_of(&rest)?;
            let before = reserved.len();
            reserved.retain(|reserved| !is_given_up(reserved, session, but));
            if reserved.len() == before {
                continue;
            }
            let mut stored = self.stored(id)?;
            self.put_reserved(id, reserved)?;
            self.settle_appends(&mut stored)?;
            stored.inode.sparse = true;
            changed(&mut stored.inode, now);
            self.save(&stored)?;
        }
        Ok(())
    }

    /// The file was cut or is gone: whoever waits was written before that.
    pub(super) fn forget_appends(&mut self, id: Id) -> Result<(), Fault> {
        self.delete(&keys::appends(id))?;
        self.answer_sizes(id, u64::MAX);
        Ok(())
    }

    fn answer_sizes(&mut self, id: Id, size: u64) {
        let reached = |(wait, waiting): (&WaitId, &super::Waiting)| match waiting.what {
            Awaited::Size(end) if waiting.id == id && end <= size => Some(*wait),
            _ => None,
        };
        let waits: Vec<_> = self.waits.iter().filter_map(reached).collect();
        waits.into_iter().for_each(|wait| self.answer(wait, Reply::Done {}));
    }

    /// A file's appends under way, by offset.
    pub(super) fn reserved(&self, id: Id) -> Result<Vec<Reserved>, Fault> {
        let row = self.row::<List<Reserved>>(&keys::appends(id))?;
        Ok(row.map(|List(reserved)| reserved).unwrap_or_default())
    }

    fn put_reserved(&mut self, id: Id, reserved: Vec<Reserved>) -> Result<(), Fault> {
        if reserved.is_empty() {
            self.delete(&keys::appends(id)).map(|_| ())
        } else {
            self.put_row(&keys::appends(id), &List(reserved))
        }
    }
}

/// Whether an append ends without being written when its session goes on with these Reserves only.
fn is_given_up(one: &Reserved, session: u64, but: &[u64]) -> bool {
    !one.done && one.session == session && !but.contains(&one.seq)
}
