//! Quotas: how many files, and how many bytes in them, a user or a group may own.
//!
//! What each owns is counted from the moment that the first limit is set. Files that are there already are counted by
//! operations of the server's own, some at a time and in the order of their numbers ([`Op::CountOwned`]): what lies
//! beyond the one counted last is counted when it is come by, whatever happens to it until then. Limits hold when all
//! are counted.
//!
//! Bytes are sizes: a hole counts as what it reads as. Like the totals, the counts are kept in memory between
//! checkpoints, and the log rebuilds them.
//!
//! [`Op::CountOwned`]: crate::ops::Op::CountOwned

use super::attr::must_own;
use super::dump::row;
use super::fault::{Fault, refuse};
use super::keys::{self, Stored};
use super::{Applied, Store, done};
use crate::kv::Kv;
use crate::ops::{Caller, Id, Inode, Quota, ROOT, Reply, Request};
use bytes::BufMut;
use covey_ninep::tree::Errno;
use covey_wire::List;
use std::collections::{BTreeMap, BTreeSet};

/// Whose a quota is, and the limit that is none.
pub mod quota {
    /// A user's.
    pub const USER: u8 = 0;
    /// A group's.
    pub const GROUP: u8 = 1;
    /// As many as they like.
    pub const NO_LIMIT: u64 = u64::MAX;
}

/// Owners that may have a limit at once.
const LIMITS_MAX: usize = 60_000;
/// Owners in one answer.
const TOLD_MAX: u16 = 8192;

/// User or group, and its number.
type Who = (u8, u32);

/// What is counted, and what it may come to.
#[derive(Default)]
pub(super) struct Quotas {
    /// Files up to this number are counted.
    passed: Id,
    owned: BTreeMap<Who, Quota>,
    /// Who has a limit.
    limits: BTreeSet<Who>,
    /// Changed since the last checkpoint.
    dirty: BTreeSet<Who>,
}

impl Quotas {
    /// Those that a map holds; none where no limit was ever set.
    pub(super) fn load(kv: &impl Kv) -> Result<Option<Quotas>, Errno> {
        let Some(passed) = keys::row(kv, keys::QUOTAS)? else { return Ok(None) };
        let mut owned = BTreeMap::new();
        let mut damaged = false;
        kv.scan(b"q", &mut |key, value| {
            if key.first() != Some(&b'q') {
                return false;
            }
            match row::<Quota>(value) {
                Some(quota) => drop(owned.insert((quota.kind, quota.id), quota)),
                None => damaged = true,
            }
            true
        })?;
        // What is missing is found by counting anew; the limit in it is lost.
        let passed = if damaged { 0 } else { passed };
        let limits = owned.iter().filter(|(_, quota)| has_limit(quota)).map(|(who, _)| *who);
        let limits = limits.collect();
        let mut quotas = Quotas { passed, owned, limits, ..Quotas::default() };
        if damaged {
            quotas.forget_counts();
        }
        Ok(Some(quotas))
    }

    fn is_whole(&self) -> bool {
        self.passed == Id::MAX
    }

    fn of(&mut self, who: Who) -> &mut Quota {
        self.dirty.insert(who);
        self.owned.entry(who).or_insert_with(|| unlimited(who))
    }

    fn change(&mut self, owner: (u32, u32), act: impl Fn(&mut Quota)) {
        act(self.of((quota::USER, owner.0)));
        act(self.of((quota::GROUP, owner.1)));
    }

    fn add(&mut self, owner: (u32, u32), bytes: u64) {
        self.change(owner, |quota| {
            quota.files = quota.files.wrapping_add(1);
            quota.bytes = quota.bytes.wrapping_add(bytes);
        });
    }

    fn take(&mut self, owner: (u32, u32), bytes: u64) {
        self.change(owner, |quota| {
            quota.files = quota.files.wrapping_sub(1);
            quota.bytes = quota.bytes.wrapping_sub(bytes);
        });
    }

    fn forget_counts(&mut self) {
        self.passed = 0;
        for (who, quota) in &mut self.owned {
            (quota.files, quota.bytes) = (0, 0);
            self.dirty.insert(*who);
        }
    }
}

impl<K: Kv> Store<K> {
    /// Whether files are still to be counted: then the server applies [`Op::CountOwned`] until none is.
    ///
    /// [`Op::CountOwned`]: crate::ops::Op::CountOwned
    pub fn has_owners_to_count(&self) -> bool {
        self.quotas.as_ref().is_some_and(|quotas| !quotas.is_whole())
    }

    /// Sets what a user or a group may own.
    pub(super) fn set_quota(
        &mut self,
        request: &Request,
        wanted: &Quota,
    ) -> Result<Applied, Fault> {
        must_own(&request.caller, &self.stored(ROOT)?.inode)?;
        let who = (wanted.kind, wanted.id);
        if wanted.kind > quota::GROUP {
            return refuse(Errno::EINVAL, format!("there are no quotas of kind {}", wanted.kind));
        }
        let limits = self.quotas.as_ref().map_or(0, |quotas| quotas.limits.len());
        let is_known = self.quotas.as_ref().is_some_and(|quotas| quotas.limits.contains(&who));
        if limits >= LIMITS_MAX && has_limit(wanted) && !is_known {
            let text = format!("{LIMITS_MAX} users and groups have a limit already");
            return refuse(Errno::ENOSPC, text);
        }
        let quotas = self.quotas.get_or_insert_with(Quotas::default);
        if has_limit(wanted) {
            quotas.limits.insert(who);
        } else {
            quotas.limits.remove(&who);
        }
        let known = quotas.of(who);
        (known.bytes_max, known.files_max) = (wanted.bytes_max, wanted.files_max);
        self.put_passed()?;
        Ok(done())
    }

    /// Counts everything anew.
    pub(super) fn recount(&mut self, request: &Request) -> Result<Applied, Fault> {
        must_own(&request.caller, &self.stored(ROOT)?.inode)?;
        if let Some(quotas) = &mut self.quotas {
            quotas.forget_counts();
            self.put_passed()?;
        }
        Ok(done())
    }

    /// Counts the next files that were there before.
    pub(super) fn count_owned(&mut self, rows_max: u32) -> Result<Applied, Fault> {
        let Some(quotas) = self.quotas.as_mut().filter(|quotas| !quotas.is_whole()) else {
            return Ok(done());
        };
        let from = keys::inode(quotas.passed.saturating_add(1));
        let mut last = None;
        let mut left = rows_max.max(1);
        let mut found = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            let Some(id) = key.strip_prefix(b"i").and_then(|rest| keys::number_of(rest).ok())
            else {
                return false;
            };
            // What is damaged nobody owns until it is repaired, and counted anew.
            if let Some(stored) = row::<Stored>(value) {
                found.push((owner(&stored.inode), bytes_in(&stored.inode)));
            }
            last = Some(id);
            left -= 1;
            left > 0
        };
        self.kv.scan(&from, &mut visit).map_err(Fault::Broken)?;
        found.into_iter().for_each(|(owner, bytes)| quotas.add(owner, bytes));
        let is_end = left > 0;
        quotas.passed = if is_end { Id::MAX } else { last.unwrap_or(Id::MAX) };
        self.put_passed()?;
        Ok(done())
    }

    fn put_passed(&mut self) -> Result<(), Fault> {
        match self.quotas.as_ref().map(|quotas| quotas.passed) {
            Some(passed) => self.put_row(keys::QUOTAS, &passed),
            None => Ok(()),
        }
    }

    /// What users and groups own, in order: all of them for root and the owner of the root directory, else the caller's
    /// own.
    pub(super) fn quotas(
        &self,
        caller: &Caller,
        from: Who,
        count_max: u16,
    ) -> Result<Applied, Fault> {
        let sees_all = caller.owns(&self.stored(ROOT)?.inode);
        let is_shown = |quota: &&Quota| match quota.kind {
            _ if sees_all => true,
            quota::USER => quota.id == caller.uid,
            _ => caller.is_in(quota.id),
        };
        let count_max = usize::from(count_max.min(TOLD_MAX));
        let all = self.quotas.iter().flat_map(|quotas| quotas.owned.range(from..));
        let shown = all.map(|(_, quota)| quota).filter(is_shown).take(count_max);
        let quotas = List(shown.copied().collect());
        let is_whole = !self.has_owners_to_count();
        Ok(Applied::Reply(Reply::Quotas { quotas, is_whole }))
    }

    /// Refuses (EDQUOT) what would be more than the owner, or the group, may own. Root may always.
    pub(super) fn must_have_room(
        &self,
        request: &Request,
        (uid, gid): (u32, u32),
        more: (u64, u64),
    ) -> Result<(), Fault> {
        self.must_have_room_of(request, (quota::USER, uid), more)?;
        self.must_have_room_of(request, (quota::GROUP, gid), more)
    }

    /// The same of a file that is to come into another group.
    pub(super) fn must_have_room_in(
        &self,
        request: &Request,
        inode: &Inode,
        gid: u32,
    ) -> Result<(), Fault> {
        if gid == inode.gid {
            return Ok(());
        }
        self.must_have_room_of(request, (quota::GROUP, gid), (1, bytes_in(inode)))
    }

    fn must_have_room_of(
        &self,
        request: &Request,
        who: Who,
        (files, bytes): (u64, u64),
    ) -> Result<(), Fault> {
        let Some(quotas) = self.quotas.as_ref().filter(|quotas| quotas.is_whole()) else {
            return Ok(());
        };
        if self.replaying || request.caller.is_root() {
            return Ok(());
        }
        let Some(quota) = quotas.owned.get(&who) else { return Ok(()) };
        let is_user = who.0 == quota::USER;
        let word = if is_user { "user" } else { "group" };
        let (caller, id) = (&request.caller, quota.id);
        let is_passed =
            |more: u64, has: u64, limit: u64| more > 0 && has.saturating_add(more) > limit;
        let is_many = is_passed(files, quota.files, quota.files_max);
        let (had, limit) = (quota.bytes, quota.bytes_max);
        if !is_many && !is_passed(bytes, had, limit) {
            return Ok(());
        }
        // What somebody else owns is not everybody's to know.
        if !(if is_user { caller.uid == id } else { caller.is_in(id) }) {
            return refuse(Errno::EDQUOT, format!("the quota of {word} {id} is passed"));
        }
        if is_many {
            let limit = quota.files_max;
            let text = format!("{word} {id} has {} files, the quota is {limit}", quota.files);
            return refuse(Errno::EDQUOT, text);
        }
        let text =
            format!("{word} {id} has {had} bytes, with {bytes} more the quota {limit} is passed");
        refuse(Errno::EDQUOT, text)
    }

    /// The same of a file that is to reach to `end`.
    pub(super) fn must_have_room_to(
        &self,
        request: &Request,
        inode: &Inode,
        end: u64,
    ) -> Result<(), Fault> {
        let bytes = end.saturating_sub(inode.size);
        self.must_have_room(request, owner(inode), (0, bytes))
    }

    /// See [`Op::Room`].
    pub(super) fn room(&self, request: &Request, id: Id, end: u64) -> Result<Applied, Fault> {
        self.must_have_room_to(request, &self.stored(id)?.inode, end)?;
        Ok(done())
    }

    /// A file was made.
    pub(super) fn owns_one_more(&mut self, inode: &Inode) {
        if let Some(quotas) = self.counted(inode.id) {
            quotas.add(owner(inode), bytes_in(inode));
        }
    }

    /// A file is gone.
    pub(super) fn owns_one_less(&mut self, inode: &Inode) {
        if let Some(quotas) = self.counted(inode.id) {
            quotas.take(owner(inode), bytes_in(inode));
        }
    }

    /// A damaged row was removed: whose file it was is not known, or what somebody owns.
    pub(super) fn owner_is_gone(&mut self, key: &[u8]) -> Result<(), Fault> {
        match &mut self.quotas {
            Some(quotas) if key.starts_with(b"i") || key.starts_with(b"q") => {
                quotas.forget_counts();
            }
            _ => return Ok(()),
        }
        self.put_passed()
    }

    /// A file has another size than before.
    pub(super) fn owns_size(&mut self, inode: &Inode, before: u64) {
        if let Some(quotas) = self.counted(inode.id).filter(|_| before != inode.size) {
            quotas.change(owner(inode), |quota| {
                quota.bytes = quota.bytes.wrapping_sub(before).wrapping_add(inode.size);
            });
        }
    }

    /// A file has another owner or group than before.
    pub(super) fn owns_instead(&mut self, before: (u32, u32), inode: &Inode) {
        if let Some(quotas) = self.counted(inode.id).filter(|_| before != owner(inode)) {
            quotas.take(before, bytes_in(inode));
            quotas.add(owner(inode), bytes_in(inode));
        }
    }

    fn counted(&mut self, id: Id) -> Option<&mut Quotas> {
        self.quotas.as_mut().filter(|quotas| id <= quotas.passed)
    }

    /// Writes what is kept in memory between checkpoints.
    pub(super) fn save_quotas(&mut self) -> Result<(), Fault> {
        let Some(quotas) = &mut self.quotas else { return Ok(()) };
        for who in std::mem::take(&mut quotas.dirty) {
            let key = key(who);
            let quota = quotas.owned.get(&who).copied().unwrap_or_else(|| unlimited(who));
            if quota == unlimited(who) {
                quotas.owned.remove(&who);
                self.kv.delete(&key).map_err(Fault::Broken)?;
            } else {
                keys::put_row(&mut self.kv, &key, &quota).map_err(Fault::Broken)?;
            }
        }
        Ok(())
    }
}

/// Who owns a file: user and group.
pub(super) fn owner(inode: &Inode) -> (u32, u32) {
    (inode.uid, inode.gid)
}

fn bytes_in(inode: &Inode) -> u64 {
    if inode.is_regular() { inode.size } else { 0 }
}

fn unlimited((kind, id): Who) -> Quota {
    let (bytes_max, files_max) = (quota::NO_LIMIT, quota::NO_LIMIT);
    Quota { kind, id, bytes_max, files_max, bytes: 0, files: 0 }
}

fn has_limit(quota: &Quota) -> bool {
    quota.bytes_max != quota::NO_LIMIT || quota.files_max != quota::NO_LIMIT
}

fn key((kind, id): Who) -> Vec<u8> {
    let mut key = vec![b'q', kind];
    key.put_u32(id);
    key
}
