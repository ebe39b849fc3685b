//! Repairs, one finding at a time. Each is judged again here, in the transaction that repairs it, and
//! is refused with EAGAIN when it is no longer so. Repairs are logged like any other operation.
//!
//! What is taken from a row that makes no sense is lost; everything else keeps all files and bytes:
//! what has no name gets one in `/lost+found`.

use super::check::Peek;
use super::fault::{Fault, refuse};
use super::keys::{self, Listed, Named, Stored, mark};
use super::names::{COOKIE_FIRST, ENTRY_BYTES, touched};
use super::{Applied, Store, done, mode};
use crate::kv::Kv;
use crate::objects::EPOCH_MAX;
use crate::ops::check::{Class, Finding, Page};
use crate::ops::{Id, Inode, ROOT, Request};
use covey_ninep::tree::Errno;
use covey_wire::Name;

/// Where files without a name get one.
const LOST_AND_FOUND: &str = "lost+found";

impl<K: Kv> Store<K> {
    pub(super) fn mend(&mut self, request: &Request, finding: &Finding) -> Result<Applied, Fault> {
        let Some(class) = Class::of(finding.class) else {
            return refuse(
                Errno::EINVAL,
                format!("findings of class {} are not known", finding.class),
            );
        };
        self.must_still_be(class, finding)?;
        let (id, parent, name) = (finding.id, finding.parent, &finding.name);
        match class {
            // What it should say is known.
            Class::DamagedRow if keys::chain_of(name.as_bytes()).is_some() => {
                self.settle_chains()?;
            }
            Class::DamagedRow | Class::StrayPart => {
                self.delete(name.as_bytes())?;
                self.owner_is_gone(name.as_bytes())?;
            }
            Class::DanglingName | Class::LostDirectory => self.mend_remove_name(parent, name)?,
            Class::Unlisted | Class::WrongKind => self.mend_entry(parent, name, id)?,
            Class::StrayListing => self.delete(name.as_bytes()).map(drop)?,
            Class::WrongParent => self.mend_inode(id, |inode| inode.parent = parent)?,
            Class::WrongLinks => {
                self.mend_inode(id, |inode| inode.nlink = finding.wanted as u32)?
            }
            Class::WrongEntries => self.mend_inode(id, |inode| inode.size = finding.wanted)?,
            Class::WrongCookie => self.mend_cookie(parent)?,
            Class::WrongTotals => {
                // Differences, so that what has changed since the count stays counted.
                let (files, bytes) = (&mut self.counters.files, &mut self.counters.bytes);
                *files = files.wrapping_add(finding.found);
                *bytes = bytes.wrapping_add(finding.wanted);
            }
            Class::WrongQuota => self.count_anew()?,
            Class::WrongNumber => {
                self.counters.id_next = self.counters.id_next.max(finding.wanted);
            }
            Class::Forgotten => {
                self.put_mark(&keys::orphan(id))?;
                self.drop_if_unused(id)?;
            }
            Class::WrongOrphan => self.delete(&keys::orphan(id)).map(drop)?,
            Class::StaleCut => self.delete(&keys::cut(id, finding.found as u32)).map(drop)?,
            Class::WrongReclaim => {
                self.delete(&keys::reclaim(id, finding.found as u32)).map(drop)?
            }
            Class::StaleAppend => self.mend_appends(id)?,
            Class::WrongTail => {
                let mut stored = self.stored(id)?;
                stored.tail = stored.inode.size;
                self.save(&stored)?;
            }
            Class::Unreachable => self.reconnect(request, id)?,
            Class::Detached => {
                self.leave_parent(id)?;
                self.reconnect(request, id)?;
            }
            Class::ShortObject => {
                let mut stored = self.stored(id)?;
                (stored.inode.sparse, stored.marks) = (true, stored.marks | mark::PUNCHED);
                stored.inode.version += 1;
                self.save(&stored)?;
            }
            Class::LongObject => return self.raise_epoch(id, None),
            Class::AheadObject => return self.raise_epoch(id, Some(finding.found as u32)),
            Class::BadStriping
            | Class::UnknownRow
            | Class::OrphanObject
            | Class::StrayObject
            | Class::OldObject
            | Class::LostObject => {
                return refuse(Errno::EOPNOTSUPP, format!("{} is not repaired here", class.word()));
            }
        }
        Ok(done())
    }

    /// EAGAIN unless the finding is still true.
    fn must_still_be(&mut self, class: Class, finding: &Finding) -> Result<(), Fault> {
        let changed = || refuse(Errno::EAGAIN, "it has changed since it was found");
        let key = match class {
            Class::DanglingName
            | Class::LostDirectory
            | Class::Unlisted
            | Class::WrongKind
            | Class::WrongCookie
            | Class::WrongParent => keys::name(finding.parent, finding.name.as_bytes()),
            Class::WrongLinks
            | Class::WrongEntries
            | Class::Unreachable
            | Class::ShortObject
            | Class::LongObject
            | Class::AheadObject => {
                let same = match self.peek::<Stored>(&keys::inode(finding.id))? {
                    Peek::Found(stored) => stored.inode.version == finding.version,
                    _ => false,
                };
                return if same { Ok(()) } else { changed() };
            }
            // Found by comparing, and put right by a difference.
            Class::WrongTotals | Class::WrongQuota => return Ok(()),
            _ => finding.name.as_bytes().to_vec(),
        };
        let Some(value) = self.kv.get(&key).map_err(Fault::Broken)? else { return changed() };
        let mut page = Page::default();
        let census = self.census.take();
        self.check_row(&key, value, &mut page)?;
        self.census = census;
        if page.findings.0.iter().any(|found| found.class == finding.class) {
            Ok(())
        } else {
            changed()
        }
    }

    /// Removes a name and its place in the listing. The directory's counts are told separately.
    fn mend_remove_name(&mut self, parent: Id, name: &Name) -> Result<(), Fault> {
        let Some(named) = self.peek::<Named>(&keys::name(parent, name.as_bytes()))?.found() else {
            return Ok(());
        };
        self.delete(&keys::name(parent, name.as_bytes()))?;
        self.delete(&keys::cookie(parent, named.cookie))?;
        let Some(mut dir) = self.peek::<Stored>(&keys::inode(parent))?.found() else {
            return Ok(());
        };
        if !dir.inode.is_dir() {
            return Ok(());
        }
        dir.inode.size = dir.inode.size.saturating_sub(ENTRY_BYTES);
        if named.is_dir() {
            dir.inode.nlink = dir.inode.nlink.saturating_sub(1).max(2);
        }
        dir.inode.version += 1;
        self.save(&dir)
    }

    /// Writes both rows of an entry anew, at a new place in the listing when its own is taken.
    fn mend_entry(&mut self, parent: Id, name: &Name, id: Id) -> Result<(), Fault> {
        let mut dir = self.dir(parent)?;
        let inode = self.stored(id)?.inode;
        let named: Named = self.existing_row(parent, name)?;
        let listed = self.peek::<Listed>(&keys::cookie(parent, named.cookie))?.found();
        let is_free = listed.is_none_or(|listed| listed.name == *name);
        let cookie =
            if is_free && named.cookie >= COOKIE_FIRST { named.cookie } else { dir.cookie_next };
        dir.cookie_next = dir.cookie_next.max(cookie.saturating_add(1));
        dir.inode.version += 1;
        self.put_entry(parent, name, &inode, cookie)?;
        self.save(&dir)
    }

    fn existing_row(&self, parent: Id, name: &Name) -> Result<Named, Fault> {
        match self.named(parent, name)? {
            Some(named) => Ok(named),
            None => refuse(Errno::EAGAIN, "it has changed since it was found"),
        }
    }

    fn mend_inode(&mut self, id: Id, change: impl FnOnce(&mut Inode)) -> Result<(), Fault> {
        let mut stored = self.stored(id)?;
        change(&mut stored.inode);
        stored.inode.version += 1;
        self.save(&stored)
    }

    /// Listings go on after the last place in use.
    fn mend_cookie(&mut self, parent: Id) -> Result<(), Fault> {
        let mut dir = self.dir(parent)?;
        let prefix = keys::numbered(b'c', parent);
        let mut last = COOKIE_FIRST - 1;
        let mut visit = |key: &[u8], _: &[u8]| {
            let place = key.strip_prefix(&prefix[..]).and_then(|rest| rest.try_into().ok());
            last = place.map(u64::from_be_bytes).unwrap_or(last).max(last);
            place.is_some()
        };
        self.kv.scan(&prefix, &mut visit).map_err(Fault::Broken)?;
        dir.cookie_next = dir.cookie_next.max(last.saturating_add(1));
        dir.inode.version += 1;
        self.save(&dir)
    }

    fn mend_appends(&mut self, id: Id) -> Result<(), Fault> {
        self.delete(&keys::appends(id))?;
        let Some(mut stored) = self.peek::<Stored>(&keys::inode(id))?.found() else {
            return Ok(());
        };
        stored.tail = stored.inode.size;
        self.save(&stored)
    }

    /// Gives a file without a name one in `/lost+found`.
    fn reconnect(&mut self, request: &Request, id: Id) -> Result<(), Fault> {
        let mut home = self.lost_and_found(request)?;
        let name = Name::from(format!("#{id:016x}"));
        if self.named(home.inode.id, &name)?.is_some() {
            return refuse(Errno::EEXIST, format!("/{LOST_AND_FOUND}/{name} exists"));
        }
        let mut stored = self.stored(id)?;
        if stored.inode.is_dir() {
            stored.inode.parent = home.inode.id;
            stored.inode.nlink = stored.inode.nlink.max(2);
            home.inode.nlink += 1;
        } else {
            stored.inode.nlink = 1;
        }
        touched(&mut stored.inode, request.now);
        self.delete(&keys::orphan(id))?;
        self.add_entry(&mut home, &name, &stored.inode, request.now)?;
        self.save(&home)?;
        self.save(&stored)
    }

    fn lost_and_found(&mut self, request: &Request) -> Result<Stored, Fault> {
        let name = Name::from(LOST_AND_FOUND);
        if let Some(named) = self.named(ROOT, &name)? {
            return self.dir(named.id);
        }
        let mut root = self.stored(ROOT)?;
        let id = self.counters.id_next;
        self.counters.id_next += 1;
        self.counters.files += 1;
        let now = request.now;
        let inode = Inode {
            id,
            mode: mode::DIRECTORY | 0o700,
            nlink: 2,
            size: 0,
            epoch: 0,
            version: 1,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            parent: ROOT,
            ..root.inode.clone()
        };
        let losses = self.losses;
        let project = root.project;
        let home = Stored { inode, cookie_next: COOKIE_FIRST, tail: 0, losses, marks: 0, project };
        self.owns_one_more(&home);
        self.add_entry(&mut root, &name, &home.inode, now)?;
        root.inode.nlink += 1;
        self.save(&root)?;
        self.save(&home)?;
        Ok(home)
    }

    /// Takes the name of a directory in a circle away from its parent.
    fn leave_parent(&mut self, id: Id) -> Result<(), Fault> {
        let parent = self.stored(id)?.inode.parent;
        let prefix = keys::numbered(b'n', parent);
        let rows = self.rows::<Named>(&prefix, &prefix, usize::MAX)?;
        match rows.into_iter().find(|(_, named)| named.id == id) {
            Some((name, _)) => self.mend_remove_name(parent, &Name::from(name)),
            None => Ok(()),
        }
    }

    /// A new epoch for a file, which cuts its objects at its size everywhere.
    fn raise_epoch(&mut self, id: Id, at_least: Option<u32>) -> Result<Applied, Fault> {
        let mut stored = self.stored(id)?;
        let inode = &stored.inode;
        if at_least.is_none() && self.is_open_now(id) {
            return refuse(Errno::EBUSY, format!("file {id} is open"));
        }
        if inode.striping.is_none() {
            return Ok(done());
        }
        let wanted = at_least.unwrap_or(inode.epoch).max(inode.epoch);
        if wanted >= EPOCH_MAX {
            return refuse(Errno::EOVERFLOW, format!("file {id} was cut too often"));
        }
        let epoch = self.epoch_after(&stored).max(wanted + 1);
        let inode = &mut stored.inode;
        inode.epoch = epoch;
        inode.version += 1;
        let size = inode.size;
        (stored.tail, stored.losses) = (size, self.losses);
        self.forget_appends(id)?;
        self.ask_for_cut(&stored, size)?;
        self.save(&stored)?;
        Ok(Applied::AfterCut { id, epoch, reply: crate::ops::Reply::Done {} })
    }

    /// Asked only when a request is admitted, as with permissions: in replay it was.
    fn is_open_now(&self, id: Id) -> bool {
        !self.replaying && self.is_open(id)
    }
}
