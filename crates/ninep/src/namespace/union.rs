//! Several directories behind one name: a name is looked for in one after the other, and a listing has the
//! names of all, each once.
//!
//! A member that cannot be entered (its node is down, the user has no right) is left out, as long as one is
//! there. What is walked to belongs to its member alone: `..` from there leads to the member's own root.

use super::file::{File, Handle};
use super::place::{check_listing, opened};
use crate::message::Qid;
use crate::tree::{Attr, Entry, Errno, Make, Opened, Outcome, Removal, Result, Statfs, User};
use covey_wire::Name;
use futures_util::future::join_all;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

/// The root of a union.
#[derive(Clone)]
pub(super) struct Union {
    qid: Qid,
    members: Rc<Vec<Handle>>,
    above: Option<(Qid, Handle)>,
    /// What an open one lists: a snapshot, taken when a listing begins.
    listing: Option<Rc<RefCell<Listing>>>,
}

/// All entries, and what they take of what all listings of a thread may.
#[derive(Default)]
struct Listing {
    entries: Vec<Entry>,
    _charge: Charge,
}

thread_local! {
    static LISTED_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Memory of listings, as long as it is kept: whoever serves a member says how long its listing is.
#[derive(Default)]
struct Charge(Cell<usize>);

impl Charge {
    fn add(&self, entries: &[Entry]) -> Result<()> {
        let bytes =
            entries.iter().map(|entry| size_of::<Entry>() + entry.name.len()).sum::<usize>();
        let (own, all) = (self.0.get() + bytes, LISTED_BYTES.get() + bytes);
        if own > LISTING_BYTES_MAX || all > LISTINGS_BYTES_MAX {
            let what = "the listing of several directories at one name takes too much memory";
            return Err(Errno::because(Errno::E2BIG, what));
        }
        self.0.set(own);
        LISTED_BYTES.set(all);
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        LISTED_BYTES.set(LISTED_BYTES.get() - self.0.get());
    }
}

impl Union {
    /// Of all that can be entered.
    pub fn enter(
        qid: Qid,
        user: User,
        entered: Vec<Outcome<(User, Qid, Handle)>>,
        above: Option<(Qid, Handle)>,
    ) -> Outcome<(User, Qid, Handle)> {
        Outcome::later(async move {
            let entered = join_all(entered.into_iter().map(Outcome::wait)).await;
            let members = any(entered)?.into_iter().map(|(_, _, handle)| handle).collect();
            let union = Union { qid, members: Rc::new(members), above, listing: None };
            Ok((user, qid, Handle::new(union)))
        })
    }

    /// What the first member answers that does not say `passes`.
    fn first<A: 'static>(
        &self,
        passes: u32,
        ask: impl Fn(&Handle) -> Outcome<A> + 'static,
    ) -> Outcome<A> {
        let members = self.members.clone();
        Outcome::later(async move {
            let mut refusal = Errno::from(passes);
            for member in members.iter() {
                match ask(member).wait().await {
                    Ok(answer) => return Ok(answer),
                    Err(error) if error.code == passes => {}
                    Err(error) => refusal = error,
                }
            }
            Err(refusal)
        })
    }
}

impl File for Union {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn to_handle(&self) -> Handle {
        Handle::new(self.clone())
    }

    fn walk(&self, names: &[Name]) -> Outcome<Vec<(Qid, Handle)>> {
        let [first, rest @ ..] = names else { return Ok(Vec::new()).into() };
        if first.as_bytes() == b".." {
            let above = self.above.clone().unwrap_or_else(|| (self.qid, self.to_handle()));
            return super::place::walk_on(Ok(above).into(), rest);
        }
        let names = names.to_vec();
        self.first(Errno::ENOENT, move |member| member.walk(&names))
    }

    fn getattr(&self) -> Outcome<Attr> {
        let qid = self.qid;
        let attr = self.first(Errno::ENOENT, |member| member.getattr());
        attr.map(move |attr| Attr { qid, ..attr })
    }

    fn open(&self, flags: u32) -> Outcome<Opened<Handle>> {
        if let Err(error) = check_listing(flags) {
            return Err(error).into();
        }
        let union = self.clone();
        Outcome::later(async move {
            let opens = union.members.iter().map(|member| member.open(flags));
            let opens = join_all(opens.collect::<Vec<_>>().into_iter().map(Outcome::wait)).await;
            let members = any(opens)?.into_iter().map(|opened| opened.node).collect();
            let (members, listing) = (Rc::new(members), Some(Rc::default()));
            let open = Union { members, listing, ..union };
            Ok(opened((open.qid, Handle::new(open))))
        })
    }

    fn create(&self, name: Name, flags: u32, mode: u32, gid: u32) -> Outcome<Opened<Handle>> {
        self.first(Errno::EROFS, move |member| member.create(name.clone(), flags, mode, gid))
    }

    fn make(&self, name: Name, make: Make, gid: u32) -> Outcome<Qid> {
        self.first(Errno::EROFS, move |member| member.make(name.clone(), make.clone(), gid))
    }

    fn unlink(&self, name: Name, what: Removal) -> Outcome<()> {
        let members = self.members.clone();
        Outcome::later(async move {
            // Where it is seen, or what it hides would be removed.
            let name = [name];
            for member in members.iter() {
                match member.walk(&name).wait().await {
                    Ok(steps) => {
                        steps.into_iter().for_each(|(_, file)| file.clunk());
                        let [name] = name;
                        return member.unlink(name, what).wait().await;
                    }
                    Err(error) if error.code == Errno::ENOENT => {}
                    Err(error) => return Err(error),
                }
            }
            Err(Errno::ENOENT.into())
        })
    }

    fn readdir(&self, cookie: u64, bytes_max: u32) -> Outcome<Vec<Entry>> {
        let Some(listing) = self.listing.clone() else { return Errno::EBADF.into() };
        if cookie != 0 {
            return Ok(page(&listing.borrow().entries, cookie, bytes_max)).into();
        }
        let members = self.members.clone();
        let above = self.above.as_ref().map_or(self.qid, |(qid, _)| *qid);
        let dots = [(".", self.qid), ("..", above)];
        Outcome::later(async move {
            let charge = Charge::default();
            let lists = join_all(members.iter().map(|member| list_all(member, &charge))).await;
            let mut all = Vec::new();
            for (name, qid) in dots {
                all.push(Entry { qid, cookie: 0, kind: DT_DIR, name: name.into() });
            }
            let mut names: HashSet<Name> = all.iter().map(|entry| entry.name.clone()).collect();
            let found = any(lists)?.into_iter().flatten();
            all.extend(found.filter(|entry| names.insert(entry.name.clone())));
            (1..).zip(&mut all).for_each(|(cookie, entry)| entry.cookie = cookie);
            let first = page(&all, 0, bytes_max);
            listing.replace(Listing { entries: all, _charge: charge });
            Ok(first)
        })
    }

    fn statfs(&self) -> Outcome<Statfs> {
        self.first(Errno::EOPNOTSUPP, |member| member.statfs())
    }

    fn clunk(self: Box<Self>) {
        if let Ok(members) = Rc::try_unwrap(self.members) {
            members.into_iter().for_each(Handle::clunk);
        }
    }
}

/// The answers of those who have one, or the first refusal.
fn any<A>(answers: Vec<Result<A>>) -> Result<Vec<A>> {
    let (mut found, mut refusal) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Ok(answer) => found.push(answer),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    match refusal {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// All entries of an open directory.
async fn list_all(member: &Handle, charge: &Charge) -> Result<Vec<Entry>> {
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let cookie = all.last().map_or(0, |entry| entry.cookie);
        let more = member.readdir(cookie, PAGE_BYTES).wait().await?;
        if more.is_empty() {
            return Ok(all);
        }
        charge.add(&more)?;
        all.extend(more);
        if all.len() > ENTRIES_MAX {
            let what = format!("a directory of a union has over {ENTRIES_MAX} entries");
            return Err(Errno::because(Errno::E2BIG, what));
        }
    }
}

/// The entries after `cookie`, which count from 1.
fn page(all: &[Entry], cookie: u64, bytes_max: u32) -> Vec<Entry> {
    let mut left = bytes_max as usize;
    let rest = all.get(usize::try_from(cookie).unwrap_or(usize::MAX)..).unwrap_or_default();
    let fits = |entry: &&Entry| {
        let rest = left.checked_sub(24 + entry.name.len());
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    rest.iter().take_while(fits).cloned().collect()
}

const DT_DIR: u8 = 4;
const PAGE_BYTES: u32 = 64 << 10;
/// So that a listing stays in memory.
const ENTRIES_MAX: usize = 1 << 20;
/// Bytes of one listing, and of all that are kept.
const LISTING_BYTES_MAX: usize = 16 << 20;
const LISTINGS_BYTES_MAX: usize = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_take_a_bounded_part_of_memory_and_give_it_back() {
        let name = Name::from("n".repeat(255).as_str());
        let qid = Qid { kind: 0, version: 0, path: 1 };
        let entries = vec![Entry { qid, cookie: 0, kind: DT_DIR, name }; 10_000];
        let fill = |charge: &Charge| (0..100).find(|_| charge.add(&entries).is_err());
        let charges: Vec<Charge> = (0..20).map(|_| Charge::default()).collect();
        let filled: Vec<_> = charges.iter().map(fill).collect();
        // Each has its limit, and all together.
        assert!(filled.iter().all(Option::is_some));
        assert!(filled[0].unwrap() > 1);
        assert_eq!(filled[19], Some(0));
        assert!(LISTED_BYTES.get() <= LISTINGS_BYTES_MAX);
        drop(charges);
        assert_eq!(LISTED_BYTES.get(), 0);
        assert!(fill(&Charge::default()).unwrap() > 1);
    }
}
