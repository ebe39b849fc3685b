//! Names that this client removes in a directory that it is alone with: said late, and many at once.
//!
//! Who removes one file of a directory most often removes the next one, too. So with the second the client asks to be left
//! alone with the directory and with more of its files ([`Op::Take`]): then nobody else knows anything of them, or is told
//! of them before that is taken back, and a removal is answered here. A file of this client's own making that it is alone
//! with need not be asked for.
//!
//! Removals, and links ([`super::links`]), are gathered by directory, and said in their order as one [`Op::Names`] with those of
//! other directories, in the same cases and as soon as all else that is kept. Why some were not done after all is told by
//! whatever changes a name in the directory next, or by its fsync.

use super::dirs::{Asking, Dir, Rest};
use super::kept::is_same;
use super::{AGE_MAX, Concern, ERROR_KEPT, Going, Late, MARGIN, Result, State, Wire};
use crate::client::cache::Sent;
use crate::client::session::{Answered, Change, REFUSED, Task, unexpected};
use crate::client::{BoxFuture, Error};
use crate::meta::lease::LEASE_TIME;
use crate::meta::{NAME_BYTES_MAX, TAKEN_MAX, access, may, may_take_out};
use crate::ops::{Caller, Id, Inode, Op, Reply, step};
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};
use futures_util::future::{FutureExt, join_all};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Files that are asked for first.
const TAKEN_FIRST: usize = 16;
/// Removals in one directory that follow each other so soon are of one mind.
const IN_A_ROW: Duration = Duration::from_millis(100);
/// Bytes of a name in a request, with its step, its file and its directory, but for the name itself.
const NAME_BYTES: usize = 19;
/// How often it is tried to say removals where too much else is on its way.
const TRIES_MAX: usize = 1000;

/// What is removed in one directory.
#[derive(Default)]
pub(super) struct Removals {
    /// Files that nobody else knows anything of, until then.
    taken: HashSet<Id>,
    until: Option<Instant>,
    /// How many were asked for last, and granted.
    asked: usize,
    rest: Rest,
    /// When the last one was asked for.
    last: Option<Instant>,
    gone: Option<Gone>,
    /// What is being said, and of which files.
    going: Option<(Going, HashSet<Id>)>,
    /// Counts what was said.
    said: u64,
    /// What became of it, untold.
    failed: Option<(Error, Instant)>,
}

/// A change of one name, by its [`step`].
pub(super) struct Step {
    pub step: u8,
    pub id: Id,
    pub name: Name,
}

/// Names of a directory that are to be changed.
struct Gone {
    caller: Caller,
    steps: Vec<u8>,
    ids: Vec<Id>,
    names: Vec<Name>,
    /// Of these names in a request.
    bytes: usize,
    /// The cache knows of them.
    sent: Sent,
    since: Instant,
}

impl Gone {
    /// Whether one more name goes with the same request.
    fn has_room(&self, bytes_max: usize) -> bool {
        // The rest is for a caller of many groups.
        self.ids.len() < TAKEN_MAX && self.bytes + NAME_BYTES_MAX < bytes_max / 2
    }
}

/// Names of several directories that are about to be said in one request.
struct Saying {
    gone: Gone,
    /// The directories, each with its files.
    dirs: Vec<(Id, Vec<Id>)>,
    /// The directory of each name.
    within: Vec<Id>,
}

impl Saying {
    fn new(dir: Id, gone: Gone) -> Saying {
        let (dirs, within) = (vec![(dir, gone.ids.clone())], vec![dir; gone.ids.len()]);
        Saying { gone, dirs, within }
    }

    fn has_room(&self, more: &Gone, bytes_max: usize) -> bool {
        // A full store refuses links, and removals should not be with them.
        let has_links = |gone: &Gone| gone.steps.contains(&step::LINK);
        is_same(&self.gone.caller, &more.caller)
            && has_links(&self.gone) == has_links(more)
            && self.within.len() + more.ids.len() <= TAKEN_MAX
            && self.gone.bytes + more.bytes <= bytes_max / 2
    }

    fn add(&mut self, dir: Id, more: Gone, wire: &Wire) {
        self.within.extend(std::iter::repeat_n(dir, more.ids.len()));
        self.dirs.push((dir, more.ids.clone()));
        self.gone.steps.extend(more.steps);
        self.gone.ids.extend(more.ids);
        self.gone.names.extend(more.names);
        self.gone.bytes += more.bytes;
        wire.cache.join(&mut self.gone.sent, more.sent);
    }
}

impl Removals {
    /// Whether there is nothing to remember of it.
    pub fn is_over(&self, now: Instant) -> bool {
        let is_kept = |(_, at): &(Error, Instant)| now.duration_since(*at) < ERROR_KEPT;
        self.gone.is_none() && self.going.is_none() && !self.failed.as_ref().is_some_and(is_kept)
    }

    /// Others may know these files from now on.
    pub fn forget(&mut self) {
        self.taken.clear();
        self.asked = 0;
    }

    /// Something else was done in the directory: whoever makes a file, gives it another name and removes the first will
    /// not go on with others.
    pub fn are_interrupted(&mut self) {
        self.last = None;
    }

    /// No more files are asked for for a while.
    fn rests(&mut self, now: Instant) {
        self.asked = 0;
        self.rest.begin(now);
    }

    fn has(&self, id: Id, now: Instant) -> bool {
        self.taken.contains(&id) && self.until.is_some_and(|until| now + MARGIN < until)
    }

    /// How many files are asked for next: more while they are removed.
    fn wants(&mut self) -> usize {
        self.asked = match self.taken.len() {
            left if self.asked > 0 && left <= self.asked / 4 => {
                self.rest.has_paid();
                (self.asked * 4).min(TAKEN_MAX)
            }
            _ => TAKEN_FIRST,
        };
        self.asked
    }

    fn take(&mut self, ids: Vec<Id>, until: Instant) {
        (self.taken, self.until) = (ids.into_iter().collect(), Some(until));
    }

    /// Something was refused in the directory that was answered before.
    pub fn fail(&mut self, error: Error, now: Instant) {
        self.failed = Some((error, now));
    }

    fn is_of(&self, id: Id) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone.ids.contains(&id))
            || self.going.as_ref().is_some_and(|(_, ids)| ids.contains(&id))
    }

    /// Whether something has to be said before what concerns this, in a directory.
    fn is_in(&self, dir: Id, concern: &Concern<'_>) -> bool {
        let is_any = self.gone.is_some() || self.going.is_some();
        is_any
            && match *concern {
                Concern::Nothing => false,
                Concern::Being(id) => self.is_of(id),
                Concern::One(id) => dir == id || self.is_of(id),
                Concern::Name(within, _) => dir == within,
                Concern::All => true,
            }
    }

    /// Others may know some of these files from now on; whether that has to wait for what is to be said.
    fn is_taken_back(&mut self, dir: Id, revoked: &HashSet<Id>, now: Instant) -> bool {
        if self.until.is_none_or(|until| until <= now) {
            self.forget();
        }
        let before = self.taken.len();
        self.taken.retain(|id| !revoked.contains(id));
        // Others work with files that were taken.
        if self.taken.len() < before {
            self.rests(now);
        }
        let is_of_any = || revoked.iter().any(|id| self.is_of(*id));
        (self.gone.is_some() || self.going.is_some()) && (revoked.contains(&dir) || is_of_any())
    }
}

impl State {
    /// Directories in which removals have to be said before what concerns this.
    pub(super) fn removing(&self, concern: &Concern<'_>) -> Vec<Id> {
        let dirs = self.dirs.iter().filter(|(id, dir)| dir.removals.is_in(**id, concern));
        dirs.map(|(id, _)| *id).collect()
    }

    /// Whether names of a file are to be said in another directory than this.
    pub(super) fn is_elsewhere(&self, id: Id, dir: Id) -> bool {
        self.dirs.iter().any(|(other, it)| *other != dir && it.removals.is_of(id))
    }

    /// The same for leases that are taken back.
    pub(super) fn take_back_removals(&mut self, revoked: &HashSet<Id>, now: Instant) -> Vec<Id> {
        let dirs = self.dirs.iter_mut();
        let dirs = dirs
            .filter_map(|(id, dir)| dir.removals.is_taken_back(*id, revoked, now).then_some(*id));
        dirs.collect()
    }

    /// Why removals in a directory were not done after all, or attributes of it not set.
    pub(super) fn removals_failed(&mut self, dir: Id) -> Result<()> {
        let Some(dir) = self.dirs.get_mut(&dir) else { return Ok(()) };
        let failed = dir.removals.failed.take().or_else(|| dir.settings.take_failed());
        failed.map_or(Ok(()), |(error, _)| Err(error))
    }

    /// The same of any directory.
    pub(super) fn any_failed(&mut self) -> Result<()> {
        let failed = self.dirs.values_mut().find_map(|dir| dir.removals.failed.take());
        failed.map_or(Ok(()), |(error, _)| Err(error))
    }

    /// What of that nobody was told, lately.
    pub(super) fn untold(&self, now: Instant) -> Option<Error> {
        let dirs = self.dirs.values();
        let failed = dirs.flat_map(|dir| [&dir.removals.failed, &dir.settings.failed]);
        let mut lately = failed.flatten().filter(|(_, at)| now.duration_since(*at) < ERROR_KEPT);
        lately.next().map(|(error, _)| error.clone())
    }
}

impl Late {
    /// Removes a file's name, as Unlink does, in a directory that this client is alone with. False where the server must be
    /// asked.
    pub async fn remove(
        self: &Arc<Self>,
        caller: &Caller,
        parent: Id,
        name: &Name,
    ) -> Result<bool> {
        if !(self.is_on && self.removes) {
            return Ok(false);
        }
        self.lock().removals_failed(parent)?;
        let inode = self.leads_to_file(&self.lock(), caller, parent, name);
        let Some(Inode { id, .. }) = inode else { return Ok(false) };
        let is_taken = match self.is_taken(parent, id) {
            None => false,
            Some(_) if !self.knows_names().await? => false,
            Some(is_taken) => is_taken || self.take(parent, id).await?,
        };
        if is_taken { self.remove_now(caller, parent, name, id) } else { Ok(false) }
    }

    /// The file that a name is known to lead to, if that is no directory.
    fn leads_to_file(
        &self,
        state: &State,
        caller: &Caller,
        parent: Id,
        name: &Name,
    ) -> Option<Inode> {
        let (cache, now) = (&self.wire.cache, self.wire.net.now());
        let inode = match cache.lookup(caller, parent, name, now) {
            Some(known) => known.ok()?,
            // What has got a name late is known here alone.
            None => state.linked(cache.leads_to(parent, name, now)?, now)?,
        };
        (!inode.is_dir()).then_some(inode)
    }

    /// Whether this client is alone with a file and its directory; none where that is not to be asked for, either.
    fn is_taken(&self, parent: Id, id: Id) -> Option<bool> {
        let now = self.wire.net.now();
        let mut state = self.lock();
        state.meet_greeting(&self.wire);
        let is_refused = state.takes_refused_until.is_some_and(|until| now < until);
        let is_own = state.files.get(&id).is_some_and(|file| file.is_quiet(now));
        let dir = state.dir(parent, now)?;
        let last = dir.removals.last.replace(now);
        if dir.is_alone(now) && (is_own || dir.removals.has(id, now)) {
            return Some(true);
        }
        let is_in_a_row = last.is_some_and(|last| now.duration_since(last) <= IN_A_ROW);
        let may_be_asked = dir.may_be_asked_for(now) && dir.removals.rest.is_over(now);
        (is_in_a_row && !is_refused && may_be_asked).then_some(false)
    }

    /// Asks to be left alone with a directory and files of it, from this one on; whether that is so then.
    async fn take(self: &Arc<Self>, parent: Id, id: Id) -> Result<bool> {
        let Some((asking, forgotten)) = Asking::begin(self, parent) else { return Ok(false) };
        let count = self.lock().dirs.get_mut(&parent).map_or(0, |dir| dir.removals.wants());
        let mut ids = self.wire.cache.files_in(parent, id, count, self.wire.net.now());
        // With those of its own making this client is alone until they are closed.
        {
            let state = self.lock();
            ids.retain(|id| !state.files.contains_key(id) && !self.wire.memory.is_open(*id));
        }
        let op = Op::Take { dir: parent, ids: List(ids.clone()) };
        let mut task = Task::new(Caller::default(), op, None, None);
        let answered = self.wire.send(&mut task).await;
        drop(asking);
        let (now, mut state) = (self.wire.net.now(), self.lock());
        if answered.as_ref().is_err_and(Error::is_unknown) {
            state.takes_refused_until = Some(now + REFUSED);
        }
        let answered = match state.granted(&self.wire, answered) {
            Ok(Some(answered)) => answered,
            other => {
                let dir = state.dirs.get_mut(&parent);
                dir.into_iter().for_each(|dir| dir.removals.rests(now));
                return other.map(|_| false);
            }
        };
        let dir = state.dirs.get_mut(&parent).filter(|dir| dir.is_known_since(forgotten));
        let (Reply::Node { inode }, Some(dir)) = (answered.reply, dir) else { return Ok(false) };
        let until = answered.asked + LEASE_TIME;
        dir.is_alone_with(inode, until, now);
        dir.removals.take(ids, until);
        Ok(dir.is_alone(now) && dir.removals.has(id, now))
    }

    fn remove_now(
        self: &Arc<Self>,
        caller: &Caller,
        parent: Id,
        name: &Name,
        id: Id,
    ) -> Result<bool> {
        let now = self.wire.net.now();
        let mut state = self.lock();
        state.meet_greeting(&self.wire);
        // Looked at once more: others of this client remove files, too.
        let is_changing = state.is_changing(parent, name);
        if is_changing || self.wire.memory.is_open(id) {
            return Ok(false);
        }
        let inode = self.leads_to_file(&state, caller, parent, name);
        let Some(inode) = inode.filter(|inode| inode.id == id) else { return Ok(false) };
        let is_linked = state.files.get(&id).is_some_and(|file| file.is_linked);
        let is_own = match state.files.get(&id) {
            Some(file) if file.has_to_say() => return Ok(false),
            // Names of one file in several directories are not said in one order.
            Some(_) if state.is_elsewhere(id, parent) => return Ok(false),
            file => file.is_some_and(|file| file.is_quiet(now)),
        };
        let Some(dir) = state.dirs.get_mut(&parent).filter(|dir| dir.is_alone(now)) else {
            return Ok(false);
        };
        if !(is_own || dir.removals.has(id, now)) || !may_remove(caller, dir, &inode) {
            return Ok(false);
        }
        // A link that is refused must not take the file with it.
        let step = if is_linked && dir.removals.is_of(id) { step::DROP } else { step::UNLINK };
        if !self.gather(dir, parent, caller, Step { step, id, name: name.clone() }, now) {
            return Ok(false);
        }
        dir.removals.taken.remove(&id);
        state.files.remove(&id);
        self.watch(&mut state);
        Ok(true)
    }

    /// Has a change of a name said with others in its directory; false where that has no room, or comes from another user.
    pub(super) fn gather(
        &self,
        dir: &mut Dir,
        parent: Id,
        caller: &Caller,
        Step { step, id, name }: Step,
        now: Instant,
    ) -> bool {
        let bytes = name.len() + NAME_BYTES;
        let (steps, ids) = (List(vec![step]), List(vec![id]));
        let (dirs, names) = (List(vec![parent]), List(vec![name.clone()]));
        let op = Op::Names { dirs, steps, ids, names };
        dir.is_used();
        match &mut dir.removals.gone {
            Some(gone) if !is_same(&gone.caller, caller) => return false,
            Some(gone) if !gone.has_room(self.bytes_max()) => return false,
            Some(gone) => {
                self.wire.cache.sending_too(&mut gone.sent, &op, now);
                gone.steps.push(step);
                gone.ids.push(id);
                gone.names.push(name);
                gone.bytes += bytes;
            }
            none => {
                let sent = self.wire.cache.sending(&op, now);
                let (steps, ids, names) = (vec![step], vec![id], vec![name]);
                let caller = caller.clone();
                *none = Some(Gone { caller, steps, ids, names, bytes, sent, since: now });
                self.removing.fetch_add(1, Ordering::AcqRel);
            }
        }
        true
    }

    /// Says the names that have to be said before what concerns this.
    pub(super) fn say_names_of(
        self: &Arc<Self>,
        state: &mut State,
        concern: &Concern<'_>,
    ) -> Vec<Going> {
        if self.removing.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let dirs = state.removing(concern);
        self.say_names(state, &dirs)
    }

    /// Says the names that were changed in these directories, after those of them that are being said: what completes when all
    /// are.
    pub(super) fn say_names(self: &Arc<Self>, state: &mut State, dirs: &[Id]) -> Vec<Going> {
        let mut goings = Vec::new();
        let mut saying: Option<Saying> = None;
        for &id in dirs {
            let Some(removals) = state.dirs.get_mut(&id).map(|dir| &mut dir.removals) else {
                continue;
            };
            let Some(gone) = removals.gone.take() else {
                goings.extend(removals.going.as_ref().map(|(going, _)| going.clone()));
                continue;
            };
            let full = saying.take_if(|saying| !saying.has_room(&gone, self.bytes_max()));
            goings.extend(full.map(|full| self.send_names(state, full)));
            match &mut saying {
                Some(saying) => saying.add(id, gone, &self.wire),
                none => *none = Some(Saying::new(id, gone)),
            }
        }
        goings.extend(saying.map(|saying| self.send_names(state, saying)));
        goings
    }

    fn send_names(self: &Arc<Self>, state: &mut State, saying: Saying) -> Going {
        let Saying { gone, dirs, within } = saying;
        let mut before = Vec::new();
        let (mut numbers, mut files) = (Vec::new(), Vec::new());
        for (id, ids) in dirs {
            let Some(dir) = state.dirs.get_mut(&id) else { continue };
            let removals = &mut dir.removals;
            removals.said += 1;
            numbers.push((id, removals.said));
            let (going, earlier) = removals.going.take().unzip();
            before.extend(going);
            let mut all: HashSet<Id> = earlier.unwrap_or_default();
            all.extend(ids);
            files.push((id, all));
        }
        let Gone { caller, steps, ids, names, sent, .. } = gone;
        let (dirs, steps) = (List(within), List(steps));
        let op = Op::Names { dirs, steps, ids: List(ids), names: List(names) };
        let change = Some(Change::new(&self.wire.memory));
        let mut task = Task { begun: Some(sent), ..Task::new(caller, op, change, None) };
        let late = self.clone();
        let saying: BoxFuture<()> = Box::pin(async move {
            join_all(before).await;
            let mut said = late.wire.send(&mut task).await;
            for _ in 0..TRIES_MAX {
                // It was not sent, as something had to be said before for which there was no room.
                if !matches!(&said, Err(error) if error.code() == Errno::EAGAIN) {
                    break;
                }
                late.wire.net.sleep(AGE_MAX).await;
                said = late.wire.send(&mut task).await;
            }
            task.begun.take().into_iter().for_each(|sent| late.wire.cache.failed(sent));
            late.were_changed(&numbers, &task.op, said);
        });
        let going = saying.shared();
        for (id, files) in files {
            if let Some(dir) = state.dirs.get_mut(&id) {
                dir.removals.going = Some((going.clone(), files));
            }
        }
        self.wire.net.spawn(Box::pin(going.clone()));
        going
    }

    /// What was said of directories is done, or is not.
    fn were_changed(&self, of: &[(Id, u64)], op: &Op, said: Result<Answered>) {
        let now = self.wire.net.now();
        let mut state = self.lock();
        self.removing.fetch_sub(of.len(), Ordering::AcqRel);
        for (id, number) in of {
            let Some(dir) = state.dirs.get_mut(id) else { continue };
            dir.removals.going.take_if(|_| dir.removals.said == *number);
            let failed = match &said {
                Ok(Answered { reply: reply @ Reply::Steps { .. }, .. }) => refused(*id, op, reply),
                Ok(answered) => Some(unexpected(&answered.reply)),
                Err(error) => Some(error.clone()),
            };
            match (failed, &said) {
                (Some(error), _) => {
                    dir.removals.fail(error, now);
                    dir.forget();
                }
                (None, Ok(answered)) => state.renewed(&self.wire, *id, answered),
                (None, Err(_)) => {}
            }
        }
    }

    /// Says removals that are old, unless some of their directory are being said; whether there are any left.
    pub(super) fn look_at_removals(self: &Arc<Self>, state: &mut State, now: Instant) -> bool {
        if self.removing.load(Ordering::Acquire) == 0 {
            return false;
        }
        let is_old = |gone: &Gone| now.duration_since(gone.since) >= AGE_MAX / 2;
        let is_due = |dir: &Dir| {
            dir.removals.going.is_none() && dir.removals.gone.as_ref().is_some_and(is_old)
        };
        let due = state.dirs.iter().filter(|(_, dir)| is_due(dir)).map(|(id, _)| *id);
        let due: Vec<Id> = due.collect();
        self.say_names(state, &due);
        state.dirs.values().any(|dir| dir.removals.gone.is_some())
    }
}

/// Why one of the steps in a directory was refused. What has come by a name since stays, and is no reason.
fn refused(dir: Id, op: &Op, reply: &Reply) -> Option<Error> {
    let (Op::Names { dirs, steps, .. }, Reply::Steps { codes, .. }) = (op, reply) else {
        return None;
    };
    let told = steps.0.iter().zip(&codes.0).zip(&dirs.0);
    let is_reason = |&((step, code), within): &((&u8, &u32), &Id)| {
        *within == dir && *code != 0 && (*step == step::LINK || *code != Errno::ENOENT)
    };
    told.into_iter().find(is_reason).map(|((_, code), _)| {
        Error::because(*code, "a link or removal before this one was refused")
    })
}

/// What [`crate::meta`] decides by the directory and the file.
fn may_remove(caller: &Caller, dir: &Dir, file: &Inode) -> bool {
    let Some(dir) = dir.inode() else { return false };
    may(caller, dir, access::WRITE | access::EXECUTE) && may_take_out(caller, dir, file)
}
