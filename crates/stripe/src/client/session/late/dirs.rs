//! Directories that this client is alone with: files are made in them here, and said late.
//!
//! A client asks for that when it makes a file where it knows that the name leads nowhere, and is left alone with the
//! directory for as long as its lease on that goes on: each file that it says it has made renews it. When somebody else asks
//! for anything in the directory the lease is taken back: what was made there is said, and the client makes its next
//! files there as others do, for a while. The more often that happens, the longer.

use super::kept::Made;
use super::removals::Removals;
use super::settings::Settings;
use super::{Alone, Answered, Error, Kept, Late, MARGIN, Opened, Result, Set, State, Wire};
use crate::client::session::{Change, REFUSED, Session, Task};
use crate::meta::lease::LEASE_TIME;
use crate::meta::{NUMBERS_KEPT, New, access, may};
use crate::ops::{Caller, Id, Inode, Nanos, Op, Reply, Striping};
use covey_ninep::tree::Errno;
use covey_wire::Name;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Directories that are kept track of.
const DIRS_MAX: usize = 1024;
/// Numbers that are asked for first, and at most.
pub(super) const NUMBERS_FIRST: u16 = 16;
const NUMBERS_MAX: u16 = 64;
/// How long a directory is left to all after it was taken back, first and at most.
const REST: Duration = Duration::from_secs(2);
const REST_MAX: Duration = Duration::from_secs(64);

/// A directory in which this client makes files.
pub(super) struct Dir {
    /// This client is alone with it until then; none when it is not.
    until: Option<Instant>,
    since: Instant,
    /// As it was last, but for what the making and removing of files changes.
    inode: Option<Inode>,
    /// Numbers for files, with their layouts, to be used up to then.
    numbers: VecDeque<(Id, Striping)>,
    good_until: Instant,
    /// The server has room for the names that files get here: it takes the directory back when it is full.
    has_room: bool,
    /// How many are asked for next.
    wanted: u16,
    /// The server's clock at some moment here.
    clock: (Instant, Nanos),
    rest: Rest,
    is_asking: bool,
    origin: Origin,
    /// How often this client's own changes made what was known of it old.
    forgotten: u64,
    pub removals: Removals,
    pub settings: Settings,
}

/// How this client came to be alone with a directory.
#[derive(Clone, Copy, Default, PartialEq)]
enum Origin {
    /// It was there.
    #[default]
    Before,
    /// By making it; it has done nothing in it since.
    Unused,
    /// By making it, and it has done something in it.
    Used,
}

/// For how long nothing is asked for: longer each time that it was taken back.
pub(super) struct Rest {
    until: Option<Instant>,
    next: Duration,
}

impl Default for Rest {
    fn default() -> Rest {
        Rest { until: None, next: REST }
    }
}

impl Rest {
    pub fn begin(&mut self, now: Instant) {
        (self.until, self.next) = (Some(now + self.next), (self.next * 2).min(REST_MAX));
    }

    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// It was worth asking: the next one is short.
    pub fn has_paid(&mut self) {
        self.next = REST;
    }
}

impl Dir {
    fn new(now: Instant) -> Dir {
        Dir {
            until: None,
            since: now,
            inode: None,
            numbers: VecDeque::new(),
            good_until: now,
            has_room: false,
            wanted: NUMBERS_FIRST,
            clock: (now, 0),
            rest: Rest::default(),
            is_asking: false,
            origin: Origin::Before,
            forgotten: 0,
            removals: Removals::default(),
            settings: Settings::default(),
        }
    }

    pub fn is_alone(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now + MARGIN < until)
    }

    /// How many numbers are asked for.
    fn wants(&mut self) -> u16 {
        self.wanted = match self.numbers.len() {
            // They were all used.
            0 if self.clock.1 > 0 => (self.wanted * 4).min(NUMBERS_MAX),
            _ => NUMBERS_FIRST,
        };
        self.wanted
    }

    /// Whether files in it can be given names here.
    pub fn takes_links(&self, now: Instant) -> bool {
        self.is_alone(now) && self.has_room
    }

    /// Whether files can be made in it here.
    fn is_ready(&self, now: Instant) -> bool {
        self.is_alone(now) && now < self.good_until && !self.numbers.is_empty()
    }

    pub fn may_be_asked_for(&self, now: Instant) -> bool {
        !self.is_asking && self.rest.is_over(now)
    }

    /// Whether there is anything to remember of it.
    fn is_over(&self, now: Instant) -> bool {
        let is_alone = self.until.is_some_and(|until| now < until);
        let is_said = self.removals.is_over(now) && self.settings.is_over(now);
        !self.is_asking && !is_alone && self.rest.is_over(now) && is_said
    }

    /// The server's clock, which is never behind this.
    pub fn time(&self, now: Instant) -> Nanos {
        let since = now.saturating_duration_since(self.clock.0);
        self.clock.1.saturating_add(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The server's clock was at least that: the least delay on the way tells it best.
    fn learn_time(&mut self, now: Instant, time: Nanos) {
        if time > self.time(now) {
            self.clock = (now, time);
        }
    }

    pub fn forget(&mut self) {
        self.has_room = false;
        self.numbers.clear();
        self.removals.forget();
        self.until = None;
        self.forgotten += 1;
    }

    /// This client is alone with it from now on.
    pub fn is_alone_with(&mut self, inode: Inode, until: Instant, now: Instant) {
        if !self.is_alone(now) {
            self.since = now;
            // Quotas may be counted by now, and the store be full.
            self.numbers.clear();
            self.has_room = false;
        }
        (self.inode, self.until, self.rest.until) = (Some(inode), Some(until), None);
    }

    /// With numbers for files, its own and the server's clock when these were given.
    pub fn has_numbers(
        &mut self,
        numbers: impl Iterator<Item = (Id, Striping)>,
        now: Instant,
        time: Nanos,
    ) {
        self.has_room = true;
        self.numbers = numbers.collect();
        (self.clock, self.good_until) = ((now, time), now + NUMBERS_KEPT);
    }

    /// Something is done in it.
    pub fn is_used(&mut self) {
        if self.origin == Origin::Unused {
            self.origin = Origin::Used;
        }
    }

    /// It may be another by now, if it was forgotten oftener.
    pub fn is_known_since(&self, forgotten: u64) -> bool {
        self.forgotten == forgotten
    }

    /// The lease on it was granted anew. One that was over meanwhile may be anybody's.
    fn renew(&mut self, until: Instant, now: Instant) {
        if self.until.is_some_and(|until| now < until) {
            self.until = self.until.max(Some(until));
        }
    }

    /// Until when this client is alone with it, where its attributes may be set here: an answer on its way would not know of them.
    pub fn takes_settings(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|_| self.takes_links(now) && !self.is_asking)
    }

    /// It was told anew what it is.
    pub fn is_told(&mut self, inode: Inode) {
        self.inode = self.inode.take().map(|_| inode);
    }

    /// Its mode and times are those now.
    pub fn is_set(&mut self, inode: &Inode) -> Option<&Inode> {
        self.settings.are_kept();
        let known = self.inode.as_mut()?;
        known.mode = inode.mode;
        (known.atime, known.mtime) = (inode.atime, inode.mtime);
        Some(known)
    }

    /// As it was last, but for what the making and removing of files changes.
    pub fn inode(&self) -> Option<&Inode> {
        self.inode.as_ref()
    }

    /// Whether anything was done in it, where this client was alone with it since it made it.
    fn is_taken_back(&mut self, now: Instant) -> Option<bool> {
        let is_held = self.until.take()? > now;
        let origin = std::mem::take(&mut self.origin);
        if origin == Origin::Unused {
            return is_held.then_some(false);
        }
        // It has paid.
        if now.saturating_duration_since(self.since) > self.rest.next * 8 {
            self.rest.has_paid();
        }
        self.rest.begin(now);
        (is_held && origin == Origin::Used).then_some(true)
    }
}

impl State {
    /// The directory is this client's alone no longer.
    pub(super) fn take_back(&mut self, id: Id, now: Instant) {
        match self.dirs.get_mut(&id).and_then(|dir| dir.is_taken_back(now)) {
            Some(true) => self.made_dirs.has_paid(),
            Some(false) => self.made_dirs.was_in_vain(now),
            None => {}
        }
    }

    /// This client has made a directory, and is alone with it.
    pub(super) fn is_made_dir(
        &mut self,
        made: Inode,
        numbers: impl Iterator<Item = (Id, Striping)>,
        (until, now, time): (Instant, Instant, Nanos),
    ) {
        let Some(dir) = self.dir(made.id, now) else { return };
        dir.origin = Origin::Unused;
        dir.is_alone_with(made, until, now);
        dir.has_numbers(numbers, now, time);
    }

    /// Its mode, owner or layout may be others.
    pub(super) fn forget_dir(&mut self, id: Id) {
        self.dirs.get_mut(&id).into_iter().for_each(Dir::forget);
    }

    /// A file was said to have been made in it, and that was granted.
    pub(super) fn renew_dir(&mut self, id: Id, asked: Instant, now: Instant, made: &Inode) {
        let Some(dir) = self.dirs.get_mut(&id) else { return };
        dir.learn_time(now, made.ctime);
        dir.renew(asked + LEASE_TIME, now);
    }

    /// A change in it was answered.
    pub(super) fn renewed(&mut self, wire: &Wire, id: Id, answered: &Answered) {
        let is_granted = self.is_granted(wire, answered);
        if let Some(dir) = self.dirs.get_mut(&id).filter(|_| is_granted) {
            dir.renew(answered.asked + LEASE_TIME, wire.net.now());
        }
    }

    /// Whether an answer came with a lease that nothing has ended since: no revocation, and no greeting.
    pub(super) fn is_granted(&self, wire: &Wire, answered: &Answered) -> bool {
        let is_granted = answered.grant > 0 && answered.grant >= self.revoked;
        is_granted && answered.greetings == wire.memory.greetings()
    }

    /// The session was greeted anew: the server knows nobody who is alone.
    pub(super) fn forget_dirs(&mut self) {
        self.dirs.values_mut().for_each(Dir::forget);
    }
}

impl Late {
    /// Makes a file, as Create does, in a directory that this client is alone with. None where the server must be asked.
    pub async fn make(
        self: &Arc<Self>,
        session: &Arc<Session>,
        caller: &Caller,
        op: &Op,
    ) -> Result<Option<(Inode, Opened)>> {
        let Op::Create { parent, name, access: asked, .. } = op else { return Ok(None) };
        if asked & access::ALONE == 0 || !self.leads_nowhere(caller, *parent, name) {
            return Ok(None);
        }
        self.lock().removals_failed(*parent)?;
        let is_ready = match self.is_ready(*parent) {
            Some(false) => self.be_alone(*parent).await?,
            known => known == Some(true),
        };
        Ok(if is_ready { self.make_now(session, caller, op) } else { None })
    }

    pub(super) fn leads_nowhere(&self, caller: &Caller, parent: Id, name: &Name) -> bool {
        let known = self.wire.cache.lookup(caller, parent, name, self.wire.net.now());
        matches!(known, Some(Err(error)) if error.code == Errno::ENOENT)
    }

    /// Whether a file can be made in a directory at once; none where that is not to be asked for, either.
    fn is_ready(&self, id: Id) -> Option<bool> {
        let now = self.wire.net.now();
        let mut state = self.lock();
        state.meet_greeting(&self.wire);
        if state.refused_until.is_some_and(|until| now < until) {
            return None;
        }
        let dir = state.dir(id, now)?;
        if dir.is_ready(now) { Some(true) } else { dir.may_be_asked_for(now).then_some(false) }
    }

    /// Asks to be left alone with a directory; whether files can be made there then.
    async fn be_alone(self: &Arc<Self>, id: Id) -> Result<bool> {
        let Some((asking, forgotten)) = Asking::begin(self, id) else { return Ok(false) };
        let count = self.lock().dirs.get_mut(&id).map_or(NUMBERS_FIRST, Dir::wants);
        let change = Some(Change::new(&self.wire.memory));
        let mut task = Task::new(Caller::default(), Op::Alone { dir: id, count }, change, None);
        let answered = self.wire.send(&mut task).await;
        drop(asking);
        let (now, mut state) = (self.wire.net.now(), self.lock());
        if answered.as_ref().is_err_and(Error::is_unknown) {
            state.refused_until = Some(now + REFUSED);
        }
        let answered = match state.granted(&self.wire, answered) {
            Ok(Some(answered)) => answered,
            other => {
                state.dirs.get_mut(&id).into_iter().for_each(|dir| dir.rest.begin(now));
                return other.map(|_| false);
            }
        };
        let Reply::Alone { dir: inode, first, stripings, now: time } = answered.reply else {
            return Ok(false);
        };
        if first == 0 {
            state.refused_until = Some(now + REFUSED);
        }
        let dir = state.dirs.get_mut(&id).filter(|dir| dir.is_known_since(forgotten));
        let Some(dir) = dir else { return Ok(false) };
        if stripings.0.is_empty() {
            dir.rest.until = Some(now + REFUSED);
            return Ok(false);
        }
        dir.is_alone_with(inode, answered.asked + LEASE_TIME, now);
        dir.has_numbers((first..).zip(stripings.0), now, time);
        Ok(dir.is_ready(now))
    }

    fn make_now(
        self: &Arc<Self>,
        session: &Arc<Session>,
        caller: &Caller,
        op: &Op,
    ) -> Option<(Inode, Opened)> {
        let Op::Create { parent, name, mode, gid, target, .. } = op else { return None };
        let now = self.wire.net.now();
        let mut state = self.lock();
        state.meet_greeting(&self.wire);
        // Looked at once more: others of this client make files, too.
        let is_changing = state.is_changing(*parent, name);
        if is_changing || !state.has_room(self) || !self.leads_nowhere(caller, *parent, name) {
            return None;
        }
        let dir = state.dirs.get_mut(parent).filter(|dir| dir.is_ready(now))?;
        let within = dir.inode.as_ref()?;
        if !may(caller, within, access::WRITE | access::EXECUTE) {
            return None;
        }
        let new = New { mode: *mode, gid: *gid, rdev: 0, target };
        let at = dir.time(now);
        let until = dir.until;
        let (id, _) = dir.numbers.front()?;
        let mut inode = new.foretold(*id, caller, within, at)?;
        let (id, striping) = dir.numbers.pop_front()?;
        dir.is_used();
        dir.removals.are_interrupted();
        inode.striping = Some(striping.clone());
        let opened = Opened::late(session, id);
        let made = Made {
            id,
            parent: *parent,
            name: name.clone(),
            mode: *mode,
            gid: *gid,
            at,
            striping,
            is_beyond: false,
            opened: opened.clone(),
        };
        let said = made.op(None, Vec::new(), Set::default());
        let kept = Kept {
            caller: caller.clone(),
            sent: self.wire.cache.sending(&said, now),
            made: Some(made),
            write: None,
            data: Vec::new(),
            set: Set::default(),
            since: now,
        };
        let place = Some((*parent, name.clone()));
        let told = inode.clone();
        let kept = Some(kept);
        state.files.insert(id, Alone { place, kept, ..Alone::new(inode, *parent, until) });
        self.unmade.fetch_add(1, Ordering::AcqRel);
        self.watch(&mut state);
        Some((told, opened))
    }
}

/// A change of this client's own is under way: nothing is made late meanwhile where it may make a difference. It may have
/// been done however it ends.
pub struct Changing {
    late: Arc<Late>,
    /// Directories, or one name in them.
    places: Vec<(Id, Option<Name>)>,
    is_any: bool,
}

impl Late {
    /// A request is about to be sent, or what has to be said before it.
    pub fn changing(self: &Arc<Self>, op: &Op) -> Option<Changing> {
        if !self.is_on || !op.is_logged() {
            return None;
        }
        let changes = op.changes();
        let named = changes.made.iter().chain(&changes.moved);
        let named = named.map(|&(dir, name)| (dir, Some(name.clone())));
        let content = changes.content.iter().map(|id| (*id, None));
        let places: Vec<_> = content.chain(named).collect();
        let now = self.wire.net.now();
        // A directory goes, or comes to be elsewhere: which one, is not known. A file's removal is refused there.
        let is_of_file = matches!(op, Op::Unlink { dir: false, .. });
        let may_be_dir = |(dir, name): &(Id, &Name)| self.wire.cache.may_be_dir(*dir, name, now);
        let is_any = !is_of_file && changes.moved.iter().any(may_be_dir);
        let mut state = self.lock();
        changes.content.iter().for_each(|id| state.forget_dir(*id));
        state.changing.extend(places.iter().cloned());
        state.changes_any += usize::from(is_any);
        Some(Changing { late: self.clone(), places, is_any })
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let mut state = self.late.lock();
        for place in &self.places {
            if place.1.is_none() {
                state.forget_dir(place.0);
            }
            if let Some(at) = state.changing.iter().position(|changing| changing == place) {
                state.changing.swap_remove(at);
            }
        }
        if self.is_any {
            state.changes_any -= 1;
            state.forget_dirs();
        }
    }
}

/// A directory is being asked for; dropped when that is over.
pub(super) struct Asking<'a> {
    late: &'a Late,
    id: Id,
}

impl<'a> Asking<'a> {
    /// And how often it was forgotten before: an answer that was asked for before that does not count.
    pub fn begin(late: &'a Late, id: Id) -> Option<(Asking<'a>, u64)> {
        let (now, mut state) = (late.wire.net.now(), late.lock());
        // The server is not to leave this client alone anew before it was told what was done before.
        if state.files.get(&id).is_some_and(Alone::has_to_say) {
            return None;
        }
        let dir = state.dir(id, now)?;
        dir.is_asking = true;
        Some((Asking { late, id }, dir.forgotten))
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.late.lock();
        state.dirs.get_mut(&self.id).into_iter().for_each(|dir| dir.is_asking = false);
    }
}

impl State {
    /// What is known of a directory, or is to be, if there is room for one more.
    pub(super) fn dir(&mut self, id: Id, now: Instant) -> Option<&mut Dir> {
        if !self.dirs.contains_key(&id) && !self.has_room_for(DIRS_MAX, now) {
            return None;
        }
        Some(self.dirs.entry(id).or_insert_with(|| Dir::new(now)))
    }

    /// Whether there is room for directories that are made: they leave half of it to others.
    pub(super) fn has_room_for_dirs(&mut self, now: Instant) -> bool {
        self.has_room_for(DIRS_MAX / 2, now)
    }

    fn has_room_for(&mut self, most: usize, now: Instant) -> bool {
        if self.dirs.len() >= most {
            self.dirs.retain(|_, dir| !dir.is_over(now));
        }
        self.dirs.len() < most
    }

    /// The answer to who asked to be alone with a directory; none where that was not granted.
    pub(super) fn granted(
        &mut self,
        wire: &Wire,
        answered: Result<Answered>,
    ) -> Result<Option<Answered>> {
        self.meet_greeting(wire);
        match answered {
            Ok(answered) => Ok(Some(answered).filter(|it| self.is_granted(wire, it))),
            Err(error) if error.is_away() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Whether a change of this client's own is under way that may be of this name.
    pub(super) fn is_changing(&self, parent: Id, name: &Name) -> bool {
        let is_in_the_way = |(dir, changed): &(Id, Option<Name>)| {
            *dir == parent && changed.as_ref().is_none_or(|changed| changed == name)
        };
        let is_to_be_set = || self.files.get(&parent).is_some_and(Alone::has_to_say);
        self.changes_any > 0 || self.changing.iter().any(is_in_the_way) || is_to_be_set()
    }

    /// The same of a file.
    pub(super) fn is_file_changing(&self, id: Id) -> bool {
        self.changing.iter().any(|(changing, name)| *changing == id && name.is_none())
    }

    /// Who was alone before a greeting is not any more.
    pub(super) fn meet_greeting(&mut self, wire: &Wire) {
        let greetings = wire.memory.greetings();
        if std::mem::replace(&mut self.greetings, greetings) != greetings {
            self.forget_dirs();
            self.knows_names = None;
        }
    }
}
