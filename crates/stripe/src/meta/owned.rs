//! Quotas: how many files, and how many bytes in them, a user or a group may own, or a project directory may hold (see
//! `projects`).
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
use crate::ops::{Caller, Id, Inode, Project, Quota, ROOT, Reply, Request};
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
    /// What lies below a directory.
    pub const PROJECT: u8 = 2;
    /// As many as they like.
    pub const NO_LIMIT: u64 = u64::MAX;

    /// Whose it is, in a word.
    pub fn word(kind: u8) -> &'static str {
        match kind {
            USER => "user",
            GROUP => "group",
            _ => "directory",
        }
    }
}

/// Owners that may have a limit at once.
const LIMITS_MAX: usize = 60_000;
/// Owners in one answer.
const TOLD_MAX: u16 = 8192;

/// User, group or project, and its number.
pub(super) type Who = (u8, u32);

/// For whom a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub uid: u32,
    pub gid: u32,
    /// 0 for none.
    pub project: u32,
}

impl Owner {
    pub fn each(self) -> impl Iterator<Item = Who> {
        let project = (self.project != 0).then_some((quota::PROJECT, self.project));
        [(quota::USER, self.uid), (quota::GROUP, self.gid)].into_iter().chain(project)
    }
}

/// What is counted, and what it may come to.
#[derive(Default)]
pub(super) struct Quotas {
    /// Files up to this number are counted.
    passed: Id,
    owned: BTreeMap<Who, Quota>,
    /// Who has a limit.
    limits: BTreeSet<Who>,
    /// Directories whose content is counted, by their numbers, and the number that was given last.
    pub(super) projects: BTreeMap<u32, Project>,
    pub(super) project_last: u32,
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
        let known: Option<keys::Projects> = keys::row(kv, keys::PROJECTS)?;
        let project_last = known.as_ref().map_or(0, |known| known.last);
        let projects = known.into_iter().flat_map(|known| known.projects.0);
        let projects = projects.map(|project| (project.number, project)).collect();
        let dirty = BTreeSet::new();
        let mut quotas = Quotas { passed, owned, limits, projects, project_last, dirty };
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

    fn change(&mut self, owner: Owner, act: impl Fn(&mut Quota)) {
        owner.each().for_each(|who| act(self.of(who)));
    }

    fn add(&mut self, owner: Owner, bytes: u64) {
        self.change(owner, |quota| {
            quota.files = quota.files.wrapping_add(1);
            quota.bytes = quota.bytes.wrapping_add(bytes);
        });
    }

    fn take(&mut self, owner: Owner, bytes: u64) {
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
        if wanted.kind > quota::PROJECT {
            return refuse(Errno::EINVAL, format!("there are no quotas of kind {}", wanted.kind));
        }
        let is_known = |quotas: &Quotas| quotas.projects.contains_key(&wanted.id);
        if wanted.kind == quota::PROJECT && !self.quotas.as_ref().is_some_and(is_known) {
            return refuse(Errno::EINVAL, format!("there is no project {}", wanted.id));
        }
        let limits = self.quotas.as_ref().map_or(0, |quotas| quotas.limits.len());
        let is_known = self.quotas.as_ref().is_some_and(|quotas| quotas.limits.contains(&who));
        if limits >= LIMITS_MAX && has_limit(wanted) && !is_known {
            let text = format!("{LIMITS_MAX} users, groups and directories have a limit already");
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
        self.count_anew()?;
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
                found.push((owner(&stored), bytes_in(&stored.inode)));
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

    pub(super) fn put_passed(&mut self) -> Result<(), Fault> {
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
            quota::GROUP => caller.is_in(quota.id),
            // Of a directory it is shown as df shows it of a disk.
            _ => true,
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
        owner: Owner,
        more: (u64, u64),
    ) -> Result<(), Fault> {
        // Nearly all file systems have none.
        if self.quotas.is_none() {
            return Ok(());
        }
        owner.each().try_for_each(|who| self.must_have_room_of(request, who, more))
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
        let is_counted = |project: &Project| project.is_whole;
        if who.0 == quota::PROJECT && !quotas.projects.get(&who.1).is_some_and(is_counted) {
            return Ok(());
        }
        let is_passed =
            |more: u64, has: u64, limit: u64| more > 0 && has.saturating_add(more) > limit;
        let is_many = is_passed(files, quota.files, quota.files_max);
        let (had, limit) = (quota.bytes, quota.bytes_max);
        if !is_many && !is_passed(bytes, had, limit) {
            return Ok(());
        }
        let (caller, id) = (&request.caller, quota.id);
        let (whose, may_know) = match who.0 {
            quota::USER => (format!("user {id}"), caller.uid == id),
            quota::GROUP => (format!("group {id}"), caller.is_in(id)),
            _ => ("the directory with a quota".to_owned(), true),
        };
        // What somebody else owns is not everybody's to know.
        if !may_know {
            return refuse(Errno::EDQUOT, format!("the quota of {whose} is passed"));
        }
        if is_many {
            let limit = quota.files_max;
            let text = format!("{whose} has {} files, the quota is {limit}", quota.files);
            return refuse(Errno::EDQUOT, text);
        }
        let text =
            format!("{whose} has {had} bytes, with {bytes} more the quota {limit} is passed");
        refuse(Errno::EDQUOT, text)
    }

    /// The same of a file that is to reach to `end`.
    pub(super) fn must_have_room_to(
        &self,
        request: &Request,
        stored: &Stored,
        end: u64,
    ) -> Result<(), Fault> {
        let bytes = end.saturating_sub(stored.inode.size);
        self.must_have_room(request, owner(stored), (0, bytes))
    }

    /// See [`Op::Room`].
    pub(super) fn room(&self, request: &Request, id: Id, end: u64) -> Result<Applied, Fault> {
        self.must_have_room_to(request, &self.stored(id)?, end)?;
        Ok(done())
    }

    /// A file was made.
    pub(super) fn owns_one_more(&mut self, stored: &Stored) {
        if let Some(quotas) = self.counted(stored.inode.id) {
            quotas.add(owner(stored), bytes_in(&stored.inode));
        }
    }

    /// A file is gone.
    pub(super) fn owns_one_less(&mut self, stored: &Stored) {
        if let Some(quotas) = self.counted(stored.inode.id) {
            quotas.take(owner(stored), bytes_in(&stored.inode));
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
    pub(super) fn owns_size(&mut self, stored: &Stored, before: u64) {
        let size = stored.inode.size;
        if let Some(quotas) = self.counted(stored.inode.id).filter(|_| before != size) {
            quotas.change(owner(stored), |quota| {
                quota.bytes = quota.bytes.wrapping_sub(before).wrapping_add(size);
            });
        }
    }

    /// A file has another owner, group or project than before.
    pub(super) fn owns_instead(&mut self, before: Owner, stored: &Stored) {
        let (id, now, bytes) = (stored.inode.id, owner(stored), bytes_in(&stored.inode));
        if let Some(quotas) = self.counted(id).filter(|_| before != now) {
            quotas.take(before, bytes);
            quotas.add(now, bytes);
        }
    }

    /// A project is over, and its limits with it.
    pub(super) fn forget_project(&mut self, number: u32) -> Result<(), Fault> {
        if let Some(quotas) = &mut self.quotas {
            let who = (quota::PROJECT, number);
            quotas.projects.remove(&number);
            quotas.limits.remove(&who);
            let known = quotas.of(who);
            (known.bytes_max, known.files_max) = (quota::NO_LIMIT, quota::NO_LIMIT);
        }
        self.put_passed()
    }

    /// Compares what was counted by going through all files with what is kept: who owns something else, what bytes are kept
    /// and what they should be. None where not all is counted yet.
    pub(super) fn wrongly_owned(&self, counted: &BTreeMap<Who, Sum>) -> Vec<(Who, u64, u64)> {
        let Some(quotas) = self.quotas.as_ref().filter(|quotas| quotas.is_whole()) else {
            return Vec::new();
        };
        let all: BTreeSet<Who> = counted.keys().chain(quotas.owned.keys()).copied().collect();
        let wrong = |who: Who| {
            let kept = quotas
                .owned
                .get(&who)
                .map_or(Sum::default(), |quota| Sum { files: quota.files, bytes: quota.bytes });
            let right = counted.get(&who).copied().unwrap_or_default();
            (kept != right).then_some((who, kept.bytes, right.bytes))
        };
        all.into_iter().filter_map(wrong).collect()
    }

    /// Counts all anew, as [`Op::Recount`] does.
    ///
    /// [`Op::Recount`]: crate::ops::Op::Recount
    pub(super) fn count_anew(&mut self) -> Result<(), Fault> {
        if let Some(quotas) = &mut self.quotas {
            quotas.forget_counts();
        }
        self.put_passed()
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

/// For whom a file counts.
pub(super) fn owner(stored: &Stored) -> Owner {
    Owner { uid: stored.inode.uid, gid: stored.inode.gid, project: stored.project.0 }
}

/// Files, and bytes in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    files: u64,
    bytes: u64,
}

impl Sum {
    pub fn add(&mut self, stored: &Stored) {
        self.files = self.files.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes_in(&stored.inode));
    }

    pub fn take(&mut self, stored: &Stored) {
        self.files = self.files.wrapping_sub(1);
        self.bytes = self.bytes.wrapping_sub(bytes_in(&stored.inode));
    }
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
