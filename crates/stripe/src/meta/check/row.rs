//! One row at a time: does it make sense, and does what it leads to?

use super::super::fault::Fault;
use super::super::keys::{self, CutRow, Listed, Named, Reserved, Stored};
use super::super::names::COOKIE_FIRST;
use super::super::session::Kept;
use super::super::{Store, mode};
use super::{Peek, read};
use crate::chain::Chain;
use crate::distribution;
use crate::kv::Kv;
use crate::objects::LEFT;
use crate::ops::check::{Class, Finding, Page};
use crate::ops::{Id, Quota, ROOT, Striping};
use covey_wire::{List, Name, Payload};
use std::collections::BTreeSet;

/// How many directories a path has at most before it counts as leading nowhere.
const DEPTH_MAX: usize = 1 << 16;

/// A finding of a file.
fn of(class: Class, id: Id) -> Finding {
    Finding { class: class as u8, id, ..Finding::default() }
}

impl<K: Kv> Store<K> {
    /// Judges a row; what is wrong goes into the page.
    pub(in super::super) fn check_row(
        &mut self,
        key: &[u8],
        value: Vec<u8>,
        page: &mut Page,
    ) -> Result<(), Fault> {
        if key > &b"j"[..] {
            self.census_passes_inodes();
        }
        let found = match key {
            _ if keys::chain_of(key).is_some() => self.check_chain(value),
            [b'i', rest @ ..] => self.check_inode(rest, value)?,
            [b'n', rest @ ..] => self.check_name_row(rest, value, page)?,
            [b'c', rest @ ..] => self.check_listed(rest, value)?,
            [b'o', rest @ ..] => self.check_orphan(rest)?,
            [b'r', rest @ ..] => self.check_reclaim(rest, value)?,
            [b't', rest @ ..] => self.check_cut(rest, value)?,
            [b'a', rest @ ..] => self.check_appends(rest, value)?,
            [b'd', rest @ ..] => self.check_inline(rest, value)?,
            [b'x', rest @ ..] => self.check_part(rest)?,
            [b'e', ..] => read::<Kept>(value).map(|_| Vec::new()),
            [b'q', ..] => read::<Quota>(value).map(|_| Vec::new()),
            [b's', ..] | [b'g', ..] => Some(Vec::new()),
            _ => Some(vec![of(Class::UnknownRow, 0)]),
        };
        let found = found.unwrap_or_else(|| vec![of(Class::DamagedRow, 0)]);
        page.findings.0.extend(found.into_iter().map(|mut finding| {
            if finding.name.is_empty() {
                finding.name = Name::from(key);
            }
            finding
        }));
        Ok(())
    }

    /// An inode, and all that can be said of it without counting names.
    fn check_inode(&mut self, rest: &[u8], value: Vec<u8>) -> Result<Option<Vec<Finding>>, Fault> {
        let stored = read::<Stored>(value)
            .filter(|s| keys::number_of(rest).is_ok_and(|id| id == s.inode.id));
        let Some(stored) = stored else { return Ok(None) };
        self.census_counts(&stored);
        let inode = &stored.inode;
        let version = inode.version;
        let mut found = Vec::new();
        let mut tell = |class, has, wanted| {
            let one = of(class, inode.id);
            found.push(Finding { found: has, wanted, version, ..one });
        };
        let waits = self.kv.get(&keys::orphan(inode.id)).map_err(Fault::Broken)?.is_some();
        if inode.nlink == 0 && !waits {
            tell(Class::Forgotten, 0, 0);
        }
        if inode.id >= self.counters.id_next {
            tell(Class::WrongNumber, self.counters.id_next, inode.id + 1);
        }
        if inode.is_regular() {
            if !inode.striping.as_ref().is_some_and(|striping| self.is_known(striping)) {
                tell(Class::BadStriping, 0, 0);
            }
            if stored.tail < inode.size {
                tell(Class::WrongTail, stored.tail, inode.size);
            }
        }
        if inode.is_dir() {
            let prefix = keys::numbered(b'n', inode.id);
            let (rows, _) = self.page_of(&prefix, &prefix, 1)?;
            if rows.is_empty() && inode.size != 0 {
                tell(Class::WrongEntries, inode.size, 0);
            }
            if rows.is_empty() && inode.nlink > 2 {
                tell(Class::WrongLinks, u64::from(inode.nlink), 2);
            }
            if inode.nlink > 0 && self.is_detached(inode.id)? {
                tell(Class::Detached, 0, 0);
            }
        }
        Ok(Some(found))
    }

    /// Whether every chain of a striping is known, and the striping can be followed.
    fn is_known(&self, striping: &Striping) -> bool {
        let known = self.chains().len();
        distribution::of(striping).is_ok()
            && striping.servers.0.iter().all(|&chain| usize::from(chain) < known)
    }

    /// A chain: its members are servers that there are, each once. The next start makes one that is damaged anew.
    fn check_chain(&self, value: Vec<u8>) -> Option<Vec<Finding>> {
        let chain = read::<Chain>(value)?;
        let servers: BTreeSet<u16> = chain.members.0.iter().map(|member| member.server).collect();
        let is_each_once = servers.len() == chain.members.0.len();
        let are_there = servers.iter().all(|&server| usize::from(server) < self.servers().len());
        (is_each_once && are_there && chain.head().is_some()).then(Vec::new)
    }

    /// Whether a directory's parents go round in a circle. One whose parents end elsewhere is found
    /// by its missing name.
    pub(in super::super) fn is_detached(&self, id: Id) -> Result<bool, Fault> {
        let mut here = id;
        for _ in 0..DEPTH_MAX {
            if here == ROOT {
                return Ok(false);
            }
            match self.peek::<Stored>(&keys::inode(here))? {
                Peek::Found(stored) if stored.inode.parent == id => return Ok(true),
                Peek::Found(stored) if stored.inode.is_dir() => here = stored.inode.parent,
                _ => return Ok(false),
            }
        }
        // A circle further up: those in it are told.
        Ok(false)
    }

    fn check_name_row(
        &self,
        rest: &[u8],
        value: Vec<u8>,
        page: &mut Page,
    ) -> Result<Option<Vec<Finding>>, Fault> {
        let Ok(parent) = keys::number_of(rest) else { return Ok(None) };
        let name = Name::from(&rest[8..]);
        let Some(named) = read::<Named>(value.clone()) else { return Ok(None) };
        let tell = |class| vec![Finding { parent, name: name.clone(), ..of(class, named.id) }];
        let dir = match self.peek::<Stored>(&keys::inode(parent))? {
            Peek::Found(dir) if dir.inode.is_dir() => dir,
            _ => return Ok(Some(tell(Class::LostDirectory))),
        };
        self.tally(parent, value, page)?;
        let inode = match self.peek::<Stored>(&keys::inode(named.id))? {
            Peek::Found(stored) => stored.inode,
            Peek::Missing => return Ok(Some(tell(Class::DanglingName))),
            // The inode's own row tells that it is damaged.
            Peek::Damaged => return Ok(Some(Vec::new())),
        };
        let mut found = Vec::new();
        if named.kind != inode.kind() {
            found.extend(tell(Class::WrongKind));
        }
        let listed = self.peek::<Listed>(&keys::cookie(parent, named.cookie))?.found();
        if !listed.is_some_and(|listed| listed.id == named.id && listed.name == name) {
            found.extend(tell(Class::Unlisted));
        }
        if named.cookie >= dir.cookie_next || named.cookie < COOKIE_FIRST {
            found.extend(tell(Class::WrongCookie));
        }
        if inode.is_dir() && inode.parent != parent {
            found.extend(tell(Class::WrongParent));
        }
        Ok(Some(found))
    }

    fn check_listed(&self, rest: &[u8], value: Vec<u8>) -> Result<Option<Vec<Finding>>, Fault> {
        let (Ok(parent), true) = (keys::number_of(rest), rest.len() == 16) else { return Ok(None) };
        let Ok(cookie) = keys::number_of(&rest[8..]) else { return Ok(None) };
        let Some(listed) = read::<Listed>(value) else { return Ok(None) };
        let named = self.peek::<Named>(&keys::name(parent, listed.name.as_bytes()))?.found();
        let stray = named.is_none_or(|named| named.cookie != cookie);
        let finding = Finding { parent, found: cookie, ..of(Class::StrayListing, listed.id) };
        Ok(Some(if stray { vec![finding] } else { Vec::new() }))
    }

    fn check_orphan(&self, rest: &[u8]) -> Result<Option<Vec<Finding>>, Fault> {
        let Ok(id) = keys::number_of(rest) else { return Ok(None) };
        let stored = self.peek::<Stored>(&keys::inode(id))?.found();
        let right = stored.is_some_and(|stored| stored.inode.nlink == 0);
        Ok(Some(if right { Vec::new() } else { vec![of(Class::WrongOrphan, id)] }))
    }

    /// A row of what belongs to a file.
    fn check_part(&self, rest: &[u8]) -> Result<Option<Vec<Finding>>, Fault> {
        let Ok(id) = keys::number_of(rest) else { return Ok(None) };
        let is_right = self.exists(id)?;
        Ok(Some(if is_right { Vec::new() } else { vec![of(Class::StrayPart, id)] }))
    }

    /// Content that lies with an inode.
    fn check_inline(&self, rest: &[u8], value: Vec<u8>) -> Result<Option<Vec<Finding>>, Fault> {
        match read::<Payload>(value) {
            Some(_) => self.check_part(rest),
            None => Ok(None),
        }
    }

    fn check_reclaim(&self, rest: &[u8], value: Vec<u8>) -> Result<Option<Vec<Finding>>, Fault> {
        let Ok((id, epoch)) = keys::epoch_of(rest) else { return Ok(None) };
        if read::<Striping>(value).is_none() {
            return Ok(None);
        }
        let stored = self.peek::<Stored>(&keys::inode(id))?.found();
        let alive = stored.is_some_and(|stored| stored.inode.epoch <= epoch & !LEFT);
        let finding = Finding { found: u64::from(epoch), ..of(Class::WrongReclaim, id) };
        Ok(Some(if alive { vec![finding] } else { Vec::new() }))
    }

    fn check_cut(&self, rest: &[u8], value: Vec<u8>) -> Result<Option<Vec<Finding>>, Fault> {
        let Ok((id, epoch)) = keys::epoch_of(rest) else { return Ok(None) };
        if read::<CutRow>(value).is_none() {
            return Ok(None);
        }
        let stored = self.peek::<Stored>(&keys::inode(id))?.found();
        let right = stored.is_some_and(|stored| stored.inode.epoch >= epoch);
        let finding = Finding { found: u64::from(epoch), ..of(Class::StaleCut, id) };
        Ok(Some(if right { Vec::new() } else { vec![finding] }))
    }

    fn check_appends(&self, rest: &[u8], value: Vec<u8>) -> Result<Option<Vec<Finding>>, Fault> {
        let Ok(id) = keys::number_of(rest) else { return Ok(None) };
        let Some(List(reserved)) = read::<List<Reserved>>(value) else { return Ok(None) };
        let stored = self.peek::<Stored>(&keys::inode(id))?.found();
        let right = stored.is_some_and(|stored| {
            let fits = |one: &Reserved| one.offset < one.end && one.end <= stored.tail;
            let is_live = |one: &Reserved| one.done || self.must_be_live(one.session).is_ok();
            stored.inode.type_bits() == mode::REGULAR
                && reserved.iter().all(|one| fits(one) && is_live(one))
        });
        Ok(Some(if right { Vec::new() } else { vec![of(Class::StaleAppend, id)] }))
    }
}
