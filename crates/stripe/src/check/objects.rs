//! Objects against metadata, and metadata against objects.

use super::{Access, Check, Result, finding, odd};
use crate::distribution::{self, Distribution};
use crate::error::Error;
use crate::objects::{DataOp, DataReply, Doomed, Object, is_left, of_chain};
use crate::ops::check::{Class, Finding, Looked, table};
use crate::ops::{Id, Inode, Nanos};
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};
use std::collections::BTreeMap;

/// Objects listed with one request.
const OBJECTS: u32 = 2048;
/// A file that is open but has not changed for so long has no write under way.
const IDLE: Nanos = 60_000_000_000;

impl<A: Access> Check<'_, A> {
    /// Every object of a chain on a server.
    pub(super) async fn objects_of(&mut self, server: u16, chain: u16) -> Result<()> {
        let at = At { server, chain };
        let (mut after, mut lost) = (0, Vec::new());
        loop {
            let op = of_chain(server, chain, DataOp::Objects { after, count: OBJECTS });
            let objects = match self.access.data(server, op).await? {
                DataReply::Objects { objects } => objects.0,
                _ => return Err(odd("Objects")),
            };
            let Some(last) = objects.last() else { return self.tell_lost(lost).await };
            after = last.id;
            self.report.objects += objects.len() as u64;
            let suspects = self.judge_objects(at, &objects).await?;
            if suspects.is_empty() {
                continue;
            }
            self.access.sleep(self.options.second_look).await;
            let ids: Vec<Id> = suspects.keys().copied().collect();
            let again: Vec<Object> = self.objects(at, &ids).await?;
            for (id, finding) in self.judge_objects(at, &again).await? {
                if suspects.get(&id).is_none_or(|first| first.class != finding.class) {
                    continue;
                }
                if finding.class == Class::LostObject as u8 {
                    lost.push(finding);
                } else {
                    self.found(finding).await;
                }
            }
        }
    }

    /// What is wrong with these objects, as the metadata is now.
    async fn judge_objects(&self, at: At, objects: &[Object]) -> Result<BTreeMap<Id, Finding>> {
        let ids: Vec<Id> = objects.iter().map(|object| object.id).collect();
        let (files, now) = self.look(&ids).await?;
        let judged = objects.iter().zip(&files);
        let wrong = judged.filter_map(|(object, file)| {
            let (class, wanted) = judge(at.chain, object, file, now)?;
            let found = match class {
                Class::LongObject => object.bytes,
                _ => u64::from(object.epoch),
            };
            let version = file.inode.as_ref().map_or(0, |inode| inode.version);
            let parent = at.parent();
            Some((
                object.id,
                Finding { parent, found, wanted, version, ..finding(class, object.id) },
            ))
        });
        Ok(wrong.collect())
    }

    async fn objects(&self, At { server, chain }: At, ids: &[Id]) -> Result<Vec<Object>> {
        let look = of_chain(server, chain, DataOp::Look { ids: List(ids.to_vec()) });
        match self.access.data(server, look).await? {
            DataReply::Objects { objects } => Ok(objects.0),
            _ => Err(odd("Look")),
        }
    }

    /// An epoch to follow is that of a truncation which the metadata has lost. Of a move it is none: then something was left,
    /// or lies where the metadata knows nothing of it, and a cut would take it.
    pub(super) async fn check_ahead(&self, finding: &Finding) -> Result<()> {
        let (files, _) = self.look(&[finding.id]).await?;
        let inode = files.into_iter().next().and_then(|file| file.inode);
        let Some(inode) = inode else { return Ok(()) };
        let known = inode.striping.as_ref().map_or(&[][..], |striping| &striping.servers.0);
        for at in self.asked() {
            let found = self.objects(at, &[finding.id]).await?;
            let is_moved = |object: &Object| {
                let is_known = known.contains(&at.chain);
                let is_stray = !is_known && object.epoch > inode.epoch;
                is_left(object.epoch) || is_stray
            };
            if found.iter().any(is_moved) {
                let what =
                    "the file has moved since the metadata: `covey salvage` says where it lies";
                return Err(Error::because(Errno::EOPNOTSUPP, what));
            }
        }
        Ok(())
    }

    /// An object that nothing needs goes, at the epoch at which that was found. One that is not older than its file stays: the metadata is older than a move, and this may be the only copy.
    pub(super) async fn remove_object(&self, class: Class, finding: &Finding) -> Result<()> {
        if class == Class::StrayObject && finding.found >= finding.wanted {
            let what = "it is of a later layout than the metadata knows: `covey salvage` reads it";
            return Err(Error::because(Errno::EOPNOTSUPP, what));
        }
        let doomed = Doomed { id: finding.id, epoch: finding.found as u32 };
        let At { server, chain } = At::of(finding);
        let remove = of_chain(server, chain, DataOp::Remove { objects: List(vec![doomed]) });
        self.access.data(server, remove).await.map(drop)
    }

    /// Every file without holes must have its bytes.
    pub(super) async fn missing_bytes(&mut self, end: Id) -> Result<()> {
        let (mut after, mut lost) = (Name::EMPTY, Vec::new());
        while !self.servers.is_empty() {
            let page = self.page(table::FILES, after, (0, end)).await?;
            let suspects = self.judge_bytes(page.files.0, page.now).await?;
            if !suspects.is_empty() {
                self.access.sleep(self.options.second_look).await;
                let ids: Vec<Id> = suspects.keys().copied().collect();
                let (files, now) = self.look(&ids).await?;
                // Somebody has it open and may be writing: what lacks may be on its way.
                let (settled, busy): (Vec<_>, Vec<_>) =
                    files.into_iter().partition(|file| is_quiet(file, now));
                self.report.busy += busy.len() as u64;
                let full = |inode: &Inode| inode.size > 0 && !inode.sparse;
                let inodes =
                    settled.into_iter().filter_map(|file| file.inode.filter(full)).collect();
                for (id, finding) in self.judge_bytes(inodes, now).await? {
                    let first = suspects.get(&id);
                    if first.is_some_and(|first| first.version == finding.version) {
                        lost.push(finding);
                    }
                }
            }
            if page.end {
                break;
            }
            after = page.next;
        }
        self.tell_lost(lost).await
    }

    /// Files that lack bytes. A file is told once, whatever the number of its servers.
    async fn judge_bytes(&mut self, files: Vec<Inode>, _: Nanos) -> Result<BTreeMap<Id, Finding>> {
        let mut wanted: BTreeMap<At, Vec<(Id, u64, u64)>> = BTreeMap::new();
        for inode in &files {
            let Some(striping) = &inode.striping else { continue };
            let Ok(map) = distribution::of(striping) else { continue };
            for (slot, &chain) in striping.servers.0.iter().enumerate() {
                let bytes = map.physical_size(slot, inode.size);
                for server in self.table.servers(chain).filter(|_| bytes > 0) {
                    let at = At { server, chain };
                    wanted.entry(at).or_default().push((inode.id, bytes, inode.version));
                }
            }
        }
        let mut short = BTreeMap::new();
        for (at, wanted) in wanted {
            let ids: Vec<Id> = wanted.iter().map(|(id, ..)| *id).collect();
            let objects = match self.objects(at, &ids).await {
                Ok(objects) => objects,
                Err(error) => {
                    self.note_unasked(at.server, Err(error))?;
                    continue;
                }
            };
            // One that is lost is found by itself: it has more bytes than any.
            let has: BTreeMap<Id, u64> = objects.iter().map(|one| (one.id, one.bytes)).collect();
            for (id, bytes, version) in wanted {
                let found = has.get(&id).copied().unwrap_or(0);
                if found < bytes {
                    let one = finding(Class::ShortObject, id);
                    let parent = at.parent();
                    short.insert(id, Finding { parent, found, wanted: bytes, version, ..one });
                }
            }
        }
        Ok(short)
    }
}

/// A chain on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub server: u16,
    pub chain: u16,
}

impl At {
    /// As findings of objects say it: the server, and above it the chain and one where that is not the server's own.
    fn parent(self) -> u64 {
        let chain = if self.chain == self.server { 0 } else { u64::from(self.chain) + 1 };
        u64::from(self.server) | chain << 16
    }

    fn of(finding: &Finding) -> At {
        let server = finding.parent as u16;
        let chain = (finding.parent >> 16).checked_sub(1).map_or(server, |chain| chain as u16);
        At { server, chain }
    }
}

/// Whether no write of the file is under way.
fn is_quiet(file: &Looked, now: Nanos) -> bool {
    let idle =
        |inode: &Inode| inode.mtime.cast_signed().saturating_add_unsigned(IDLE) < now.cast_signed();
    let is_idle = !file.is_open || file.inode.as_ref().is_some_and(idle);
    // One that has moved has no bytes before these are installed.
    is_idle && !file.cut_pending
}

/// What is wrong with an object, and the number that would be right. What was looked at first was the
/// object.
fn judge(chain: u16, object: &Object, file: &Looked, now: Nanos) -> Option<(Class, u64)> {
    let is_reclaimed = file.reclaim.is_some_and(|epoch| object.epoch <= epoch);
    if is_reclaimed {
        return None;
    }
    let Some(inode) = &file.inode else {
        return (!is_left(object.epoch)).then_some((Class::OrphanObject, 0));
    };
    let striping = inode.striping.as_ref()?;
    let mut slots = striping.servers.0.iter();
    let Some(slot) = slots.position(|&at| at == chain) else {
        // What a file that has moved leaves, so that nobody reads zeros there who has not heard of it.
        return (!is_left(object.epoch)).then_some((Class::StrayObject, u64::from(inode.epoch)));
    };
    if object.epoch > inode.epoch {
        return Some((Class::AheadObject, u64::from(inode.epoch)));
    }
    if object.epoch < inode.epoch {
        let old = (Class::OldObject, u64::from(inode.epoch));
        return (!file.cut_pending).then_some(old);
    }
    let bytes = distribution::of(striping).ok()?.physical_size(slot, inode.size.max(file.tail));
    if object.is_lost() {
        return Some((Class::LostObject, bytes));
    }
    (object.bytes > bytes && is_quiet(file, now)).then_some((Class::LongObject, bytes))
}
