//! The namespace's own directories, and the steps from them into parts.

use super::Host;
use super::file::{File, Handle};
use super::part::{Entrance, Part};
use super::union::Union;
use crate::message::Qid;
use crate::tree::{
    Attach, Attr, Directory, Entry, Errno, O_TRUNC, Opened, Outcome, Result, S_IFDIR, S_IFREG,
    Statfs, Time, User,
};
use covey_wire::Name;
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

/// A directory of the namespace.
pub(super) struct Dir {
    pub number: u64,
    pub names: RefCell<Directory<Bound>>,
}

/// What a name leads to.
#[derive(Clone)]
pub(super) enum Bound {
    Dir(Rc<Dir>),
    Parts(Rc<Parts>),
}

/// The parts behind one name, each with what its numbers are scrambled with.
#[derive(Clone)]
pub(super) struct Parts {
    pub members: Vec<(Rc<dyn Part>, u64)>,
    pub number: u64,
}

/// Who has attached the namespace.
pub(super) struct Guest {
    pub user: Rc<User>,
    pub attach: Rc<Attach>,
    pub host: Rc<dyn Host>,
}

/// A directory as a guest has come to it.
#[derive(Clone)]
pub(super) struct Place {
    dir: Rc<Dir>,
    guest: Rc<Guest>,
    above: Option<Rc<Place>>,
}

impl Dir {
    pub fn new(number: u64) -> Dir {
        Dir { number, names: RefCell::default() }
    }
}

impl Bound {
    fn attr(&self) -> Attr {
        let (number, kind) = match self {
            Bound::Dir(dir) => (dir.number, Qid::DIR),
            Bound::Parts(parts) => (parts.number, parts.members.first().map_or(0, |m| m.0.kind())),
        };
        let mode = if kind & Qid::DIR != 0 { S_IFDIR } else { S_IFREG };
        Attr { mode, qid: Qid { kind, version: 0, path: OWN_PATHS + number }, ..Attr::default() }
    }
}

impl Parts {
    /// Enters what is bound here.
    pub fn enter(
        &self,
        guest: &Guest,
        above: Option<(Qid, Handle)>,
    ) -> Outcome<(User, Qid, Handle)> {
        let entrance = |salt| Entrance {
            user: guest.user.clone(),
            attach: (*guest.attach).clone(),
            above: above.clone(),
            salt,
        };
        if let [(only, salt)] = &self.members[..] {
            return only.clone().visit(entrance(*salt));
        }
        let entered = self.members.iter().map(|(part, salt)| part.clone().visit(entrance(*salt)));
        Union::enter(own_qid(self.number), (*guest.user).clone(), entered.collect(), above.clone())
    }
}

impl Place {
    /// Where an attach begins.
    pub fn root(dir: Rc<Dir>, guest: Rc<Guest>) -> Place {
        Place { dir, guest, above: None }
    }

    fn into_step(self) -> (Qid, Handle) {
        (own_qid(self.dir.number), Handle::new(self))
    }

    fn step(&self, name: &Name) -> Outcome<(Qid, Handle)> {
        if name.as_bytes() == b".." {
            let above = self.above.as_deref().unwrap_or(self);
            return Ok(above.clone().into_step()).into();
        }
        let found = self.dir.names.borrow().find(name);
        match found {
            Err(error) => Err(error).into(),
            Ok(Bound::Dir(dir)) => {
                let above = Some(Rc::new(self.clone()));
                Ok(Place { dir, guest: self.guest.clone(), above }.into_step()).into()
            }
            Ok(Bound::Parts(parts)) => {
                let entered = parts.enter(&self.guest, Some(self.clone().into_step()));
                entered.map(|(_, qid, handle)| (qid, handle))
            }
        }
    }
}

impl File for Place {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn to_handle(&self) -> Handle {
        Handle::new(self.clone())
    }

    fn walk(&self, names: &[Name]) -> Outcome<Vec<(Qid, Handle)>> {
        match names {
            [] => Ok(Vec::new()).into(),
            [first, rest @ ..] => walk_on(self.step(first), rest),
        }
    }

    fn getattr(&self) -> Outcome<Attr> {
        let number = OWN_PATHS + self.dir.number;
        Ok(Attr::new(number, S_IFDIR | 0o555, 0, 0, Time::default())).into()
    }

    fn open(&self, flags: u32) -> Outcome<Opened<Handle>> {
        check_listing(flags).map(|()| self.clone().into_step()).map(opened).into()
    }

    fn readdir(&self, cookie: u64, bytes_max: u32) -> Outcome<Vec<Entry>> {
        let dot = Bound::Dir(self.dir.clone());
        let above = self.above.as_ref().map_or(dot.clone(), |above| Bound::Dir(above.dir.clone()));
        Ok(self.dir.names.borrow().list(cookie, bytes_max, [dot, above], Bound::attr)).into()
    }

    fn statfs(&self) -> Outcome<Statfs> {
        self.guest.host.statfs()
    }
}

/// Goes on from a first step, as far as there are names. A later step that fails ends the walk there.
pub(super) fn walk_on(first: Outcome<(Qid, Handle)>, rest: &[Name]) -> Outcome<Vec<(Qid, Handle)>> {
    if rest.is_empty() {
        return first.map(|step| vec![step]);
    }
    let rest = rest.to_vec();
    let go_on = |first: (Qid, Handle), more: Result<Vec<(Qid, Handle)>>| {
        let mut steps = vec![first];
        steps.extend(more.unwrap_or_default());
        Ok(steps)
    };
    match first {
        Outcome::Now(Err(error)) => Err(error).into(),
        Outcome::Now(Ok(first)) => match first.1.walk(&rest) {
            Outcome::Now(more) => go_on(first, more).into(),
            Outcome::Later(more) => Outcome::later(async move { go_on(first, more.await) }),
        },
        Outcome::Later(first) => Outcome::later(async move {
            let first = first.await?;
            let more = first.1.walk(&rest).wait().await;
            go_on(first, more)
        }),
    }
}

/// Enters where an attach says: `..` does not lead above it.
pub(super) fn descend(mut at: Place, user: User, names: Vec<Name>) -> Outcome<(User, Qid, Handle)> {
    let mut names = names.into_iter();
    while let Some(name) = names.next() {
        let found = at.dir.names.borrow().find(&name);
        match found {
            Err(error) => return Err(error).into(),
            Ok(Bound::Dir(dir)) => at = Place::root(dir, at.guest),
            Ok(Bound::Parts(parts)) => {
                let (entered, rest) = (parts.enter(&at.guest, None), names.collect::<Vec<_>>());
                return if rest.is_empty() { entered } else { below(entered, rest) };
            }
        }
    }
    let (qid, handle) = at.into_step();
    Ok((user, qid, handle)).into()
}

/// What lies further down in a part.
fn below(entered: Outcome<(User, Qid, Handle)>, names: Vec<Name>) -> Outcome<(User, Qid, Handle)> {
    Outcome::later(async move {
        let (user, _, root) = entered.wait().await?;
        let mut steps = root.walk(&names).wait().await?;
        let last = steps.pop().filter(|_| steps.len() + 1 == names.len());
        let (qid, handle) = last.ok_or(Errno::ENOENT)?;
        Ok((user, qid, handle))
    })
}

/// EISDIR for flags that ask for more than a listing.
pub(super) fn check_listing(flags: u32) -> Result<()> {
    let is_listing = flags & crate::text::O_ACCMODE == 0 && flags & O_TRUNC == 0;
    if is_listing { Ok(()) } else { Err(Errno::EISDIR.into()) }
}

pub(super) fn opened((qid, node): (Qid, Handle)) -> Opened<Handle> {
    Opened { qid, node, blocking: false }
}

fn own_qid(number: u64) -> Qid {
    Qid { kind: Qid::DIR, version: 0, path: OWN_PATHS + number }
}

/// The namespace's own directories have numbers that no part uses.
const OWN_PATHS: u64 = 0xffff_ffff_0000_0000;
