//! What the metadata server does on the data servers: cuts, removals, reconciliation.
//!
//! Everything here is pending in the store until it is done, so a crash of either side only delays
//! it. Cuts of one file are carried out in the order of their epochs. Removals are put together.

use super::Meta;
use super::chains::Part;
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::distribution::{self, Distribution};
use covey_stripe::meta::installed;
use covey_stripe::objects::{self, DataOp, DataReply, Doomed, EVERY, Object};
use covey_stripe::ops::{Id, Inode, Op, Reply, Striping};
use covey_wire::List;
use futures_util::future::join_all;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long what a dead server kept from being done waits for the next try.
const RETRY: Duration = Duration::from_secs(1);
/// A chain that its server does not serve is waited for so long by a cut, and looked for so often: none is held back longer.
const CHAIN_BACK_IN: Duration = Duration::from_millis(2500);
const CHAIN_LOOK: Duration = Duration::from_millis(20);
/// How long removals are gathered.
const GATHER: Duration = Duration::from_secs(1);
/// Objects removed with one request.
const REMOVE_MAX: usize = 1024;
/// Objects listed with one request.
const LIST_MAX: u32 = 4096;
/// How often a returned server is looked for, and how often everything is compared anyway.
const WATCH_EVERY: Duration = Duration::from_secs(2);
const RECONCILE_AFTER_DEATHS: Duration = Duration::from_secs(10);
/// How long after a meeting everything is compared once more: a write of a file that was lost with the power of the metadata
/// server may have been on its way.
const RECONCILE_AFTER_MEETING: Duration = Duration::from_secs(30);
const RECONCILE_EVERY: Duration = Duration::from_secs(3600);

/// A truncation on its way to the data servers.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The file.
    pub id: Id,
    /// The epoch it makes.
    pub epoch: u32,
    /// Bytes of the file that stay.
    pub size: u64,
    /// Where the objects are.
    pub striping: Striping,
}

/// What is under way.
#[derive(Default)]
pub struct Pending {
    cuts: HashMap<Id, VecDeque<Cut>>,
    cut_waiters: HashMap<(Id, u32), Vec<oneshot::Sender<Result<()>>>>,
    removals: Vec<(Id, u32, Striping)>,
    /// What files that are gone may have left on any server.
    sweeps: Vec<Doomed>,
}

impl Pending {
    /// What can be removed now. A file that is being cut waits: a cut that comes after the removal would
    /// make an object that nobody knows.
    fn removals_due(&mut self) -> Vec<(Id, u32, Striping)> {
        let is_due = |(id, ..): &(Id, u32, Striping)| !self.cuts.contains_key(id);
        let (due, later) = std::mem::take(&mut self.removals).into_iter().partition(is_due);
        self.removals = later;
        due
    }
}

impl Meta {
    /// Begins a cut, or queues it behind those of the same file.
    pub fn begin_cut(self: &Rc<Self>, cut: Cut) {
        let mut pending = self.pending.borrow_mut();
        let queue = pending.cuts.entry(cut.id).or_default();
        let id = cut.id;
        queue.push_back(cut);
        if queue.len() == 1 {
            let meta = self.clone();
            task::spawn(async move { meta.carry_out_cuts(id).await });
        }
    }

    /// Completes when the cut is done everywhere, with EIO when a data server does not answer: then
    /// it goes on being tried.
    pub async fn cut_done(self: &Rc<Self>, id: Id, epoch: u32) -> Result<()> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut pending = self.pending.borrow_mut();
            let queued = pending.cuts.get(&id).is_some_and(|q| q.iter().any(|c| c.epoch == epoch));
            if !queued {
                return Ok(());
            }
            pending.cut_waiters.entry((id, epoch)).or_default().push(sender);
        }
        let late = || Errno::because(Errno::EIO, "the truncation waits for an I/O server");
        match task::timeout(self.options.dead_after, receiver).await {
            Some(Ok(result)) => result,
            _ => Err(late()),
        }
    }

    /// Cuts a file again at the epoch it has: servers that are at this epoch do nothing.
    pub fn recut(self: &Rc<Self>, id: Id, epoch: u32) -> Outcome<Reply> {
        let inode = match self.ask_own(Op::Getattr { id }) {
            Reply::Node { inode } => inode,
            refused => return Outcome::Now(Ok(refused)),
        };
        let Some(striping) = inode.striping.filter(|_| inode.epoch == epoch) else {
            return Outcome::Now(Ok(Reply::Done {}));
        };
        if !self.pending.borrow().cuts.contains_key(&id) {
            self.begin_cut(Cut { id, epoch, size: inode.size, striping });
        }
        let meta = self.clone();
        Outcome::later(async move { meta.cut_done(id, epoch).await.map(|()| Reply::Done {}) })
    }

    async fn carry_out_cuts(self: Rc<Self>, id: Id) {
        loop {
            let next = self.pending.borrow().cuts.get(&id).and_then(|queue| queue.front().cloned());
            let Some(cut) = next else {
                self.pending.borrow_mut().cuts.remove(&id);
                return;
            };
            let result = self.carry_out(&cut).await;
            let done = result.is_ok();
            let waiters = self.pending.borrow_mut().cut_waiters.remove(&(id, cut.epoch));
            for waiter in waiters.into_iter().flatten() {
                // Its client may have gone.
                let _ = waiter.send(result.clone());
            }
            if self.is_gone(id).await {
                // What is left of it is removed: to be reported is that, and not the cut.
                self.pending.borrow_mut().cuts.remove(&id);
                return;
            }
            self.counters.cuts.add(u64::from(done));
            // Whoever wants the file empty need not wait for bytes that may never come.
            if done || (installed(cut.size).is_some() && self.is_emptied_next(id)) {
                self.apply_own(Op::CutDone { id, epoch: cut.epoch });
                let mut pending = self.pending.borrow_mut();
                pending.cuts.get_mut(&id).expect("only this task removes it").pop_front();
            } else {
                task::sleep(RETRY).await;
            }
        }
    }

    fn is_emptied_next(&self, id: Id) -> bool {
        let pending = self.pending.borrow();
        pending.cuts.get(&id).is_some_and(|queue| {
            queue.iter().skip(1).any(|cut| installed(cut.size).unwrap_or(cut.size) == 0)
        })
    }

    /// A chain that is on its way to another server, or new to its own, is back in a moment: whoever waits need not hear of it.
    async fn carry_out(&self, cut: &Cut) -> Result<()> {
        let begun = task::now();
        loop {
            match self.try_to_carry_out(cut).await {
                Err(error)
                    if error.code == Errno::EREMCHG
                        && task::now().saturating_duration_since(begun) < CHAIN_BACK_IN =>
                {
                    task::sleep(CHAIN_LOOK).await;
                }
                // Whoever has asked knows of no chains: for them a server does not answer.
                Err(error) if error.code == Errno::EREMCHG => {
                    return Err(Errno::because(Errno::EIO, error.reason));
                }
                done => return done,
            }
        }
    }

    async fn try_to_carry_out(&self, cut: &Cut) -> Result<()> {
        // The epoch must not outlive a power cut on a data server and be lost here.
        self.journal.sync().await?;
        let map = distribution::of(&cut.striping)?;
        self.store_is_here().await;
        let members = self.members_of(&cut.striping)?;
        let cuts = members.into_iter().map(|Part { slot, chain, server }| {
            let (id, epoch) = (cut.id, cut.epoch);
            let op = match installed(cut.size) {
                Some(size) => DataOp::Install { id, epoch, bytes: map.physical_size(slot, size) },
                None => DataOp::Cut { id, epoch, size: map.physical_size(slot, cut.size) },
            };
            async move { self.ask_chain(server, chain, op).await }
        });
        // All of them, even when one fails: a dead server must not keep the others from their epoch.
        join_all(cuts).await.into_iter().try_for_each(|cut| cut.map(|_| ()))
    }

    /// Queues the removal of what a file may have left on servers where it lay once.
    pub fn begin_sweep(&self, id: Id, epoch: u32) {
        self.pending.borrow_mut().sweeps.push(Doomed { id, epoch });
        self.removals_due.notify_one();
    }

    /// Queues the removal of a file's objects.
    pub fn begin_removal(&self, id: Id, epoch: u32, striping: Striping) {
        self.pending.borrow_mut().removals.push((id, epoch, striping));
        self.removals_due.notify_one();
    }

    /// Removes objects as they fall due, for as long as the server lives.
    pub async fn remove_objects(self: Rc<Self>) {
        loop {
            let is_idle = {
                let pending = self.pending.borrow();
                pending.removals.is_empty() && pending.sweeps.is_empty()
            };
            if is_idle {
                self.removals_due.notified().await;
            }
            // Nobody waits for the space of a moment ago, and many removals share one sync.
            task::sleep(GATHER).await;
            let due = self.pending.borrow_mut().removals_due();
            let sweeps = std::mem::take(&mut self.pending.borrow_mut().sweeps);
            if due.is_empty() && sweeps.is_empty() {
                continue;
            }
            // A name that a power cut brings back must not lead to a file without objects.
            if let Err(error) = self.journal.sync().await {
                tracing::error!("the metadata log does not reach the disk: {error}");
                self.pending.borrow_mut().removals.extend(due);
                self.pending.borrow_mut().sweeps.extend(sweeps);
                task::sleep(RETRY).await;
                continue;
            }
            for chunk in sweeps.chunks(REMOVE_MAX) {
                self.sweep(chunk).await;
            }
            let mut failed = Vec::new();
            for chunk in due.chunks(REMOVE_MAX) {
                failed.extend(self.remove_chunk(chunk).await);
            }
            if !failed.is_empty() {
                self.pending.borrow_mut().removals.extend(failed);
                task::sleep(RETRY).await;
            }
        }
    }

    /// Who does not hear of it now finds out when it is met anew.
    async fn sweep(&self, chunk: &[Doomed]) {
        let serving = (0..self.servers_known()).filter(|at| self.is_serving(*at));
        let asks = serving.map(async |at| {
            let server = at as u16;
            self.store_is_here().await;
            // One that has only its own may be of a version that knows no others.
            let is_plain = self.store_mut().chains_on(server).iter().all(|&chain| chain == server);
            let chain = if is_plain { server } else { EVERY };
            self.ask_chain(server, chain, DataOp::Remove { objects: List(chunk.to_vec()) }).await
        });
        join_all(asks).await;
    }

    /// Removes objects on all their servers at once; answers what has to be tried again.
    async fn remove_chunk(
        self: &Rc<Self>,
        chunk: &[(Id, u32, Striping)],
    ) -> Vec<(Id, u32, Striping)> {
        let ids: Vec<Id> = chunk.iter().map(|(id, ..)| *id).collect();
        // Without an answer all wait.
        let Ok(gone) = self.without_file(&ids).await else { return chunk.to_vec() };
        let gone: HashSet<Id> = gone.into_iter().collect();
        // What a file that has moved has left is emptied as long as the file lives.
        let leaves = |id: Id, epoch: u32| objects::is_left(epoch) && !gone.contains(&id);
        self.store_is_here().await;
        let mut by_server: BTreeMap<(u16, u16, bool), Vec<Doomed>> = BTreeMap::new();
        // Where they are; None for what is on no chain that is known, which stays to be removed.
        let mut members = Vec::with_capacity(chunk.len());
        for &(id, epoch, ref striping) in chunk {
            members.push(self.members_of(striping).ok());
            for part in members.last().into_iter().flatten().flatten() {
                let key = (part.server, part.chain, leaves(id, epoch));
                let objects = by_server.entry(key).or_default();
                objects.push(Doomed { id, epoch: epoch & !objects::LEFT });
            }
        }
        let asks = by_server.into_iter().map(|((server, chain, leaves), doomed)| async move {
            let objects = List(doomed);
            let op = if leaves { DataOp::Leave { objects } } else { DataOp::Remove { objects } };
            self.ask_chain(server, chain, op).await?;
            Ok::<_, Errno>((server, chain, leaves))
        });
        let answered = join_all(asks).await;
        let done: HashSet<(u16, u16, bool)> =
            answered.into_iter().filter_map(|answer| answer.ok()).collect();
        let mut failed = Vec::new();
        for ((id, epoch, striping), members) in chunk.iter().zip(members) {
            let leaves = leaves(*id, *epoch);
            let is_done = |members: Vec<Part>| {
                members.iter().all(|part| done.contains(&(part.server, part.chain, leaves)))
            };
            if members.is_some_and(is_done) {
                self.counters.reclaimed.add(1);
                self.apply_own(Op::Reclaimed { id: *id, epoch: *epoch });
            } else {
                failed.push((*id, *epoch, striping.clone()));
            }
        }
        failed
    }

    /// Compares each data server's objects with the store when the server is met anew, after
    /// clients died (what they were writing may have no file any more) and once an hour, and removes
    /// objects whose file is gone.
    pub async fn reconcile_each(self: Rc<Self>, server: usize) {
        let Ok(link) = self.link(server as u16) else { return };
        let (mut seen, mut deaths_seen) = (0, 0);
        let mut last = task::now();
        let mut again_at = None;
        while !self.has_left(server as u16).await {
            let (age, deaths) = (task::now() - last, self.counters.sessions_expired.value());
            let is_due =
                (deaths != deaths_seen && age >= RECONCILE_AFTER_DEATHS) || age >= RECONCILE_EVERY;
            let is_due = is_due || again_at.is_some_and(|at| task::now() >= at);
            if let Ok((generation, _)) = link.conn(link.now()).await
                && (generation != seen || is_due)
                && self.may_serve(server)
            {
                match self.reconcile_all(server as u16).await {
                    Ok(removed) => {
                        again_at = if generation != seen {
                            Some(task::now() + RECONCILE_AFTER_MEETING)
                        } else {
                            again_at.filter(|at| task::now() < *at)
                        };
                        (seen, deaths_seen, last) = (generation, deaths, task::now());
                        if removed > 0 {
                            tracing::info!(
                                "{}: removed {removed} objects without a file",
                                link.server()
                            );
                        }
                    }
                    Err(error) => tracing::warn!("{}: reconciling: {error}", link.server()),
                }
            }
            task::sleep(WATCH_EVERY).await;
        }
    }

    async fn reconcile_all(&self, server: u16) -> Result<usize> {
        let mut removed = 0;
        for chain in self.chains_on(server).await {
            match self.reconcile(server, chain).await {
                // It is being moved, or was: its place is another.
                Err(error) if error.code == Errno::EREMCHG => {}
                more => removed += more?,
            }
        }
        Ok(removed)
    }

    async fn reconcile(&self, server: u16, chain: u16) -> Result<usize> {
        let (mut after, mut removed) = (0, 0);
        loop {
            let list = DataOp::Objects { after, count: LIST_MAX };
            let DataReply::Objects { objects } = self.ask_chain(server, chain, list).await? else {
                return Err(Errno::because(Errno::EPROTO, "an odd answer to Objects"));
            };
            let Some(last) = objects.0.last() else {
                // A server of an older version stages nothing.
                if let Err(error) = self.unstage(server, chain).await {
                    tracing::debug!("chain {chain}: what is staged: {error}");
                }
                return Ok(removed);
            };
            after = last.id;
            let ids: Vec<Id> = objects.0.iter().map(|object| object.id).collect();
            let orphans = self.without_file(&ids).await?;
            let doomed = |id| Doomed { id, epoch: u32::MAX };
            let doomed: Vec<_> = orphans.into_iter().map(doomed).collect();
            if !doomed.is_empty() {
                removed += doomed.len();
                self.counters.orphan_objects.add(doomed.len() as u64);
                let remove = DataOp::Remove { objects: List(doomed) };
                self.ask_chain(server, chain, remove).await?;
            }
        }
    }

    /// What was staged on a server and is not wanted: its mover is gone, or was late.
    async fn unstage(&self, server: u16, chain: u16) -> Result<()> {
        let mut after = 0;
        loop {
            let list = DataOp::Staged { after, count: LIST_MAX };
            let DataReply::Objects { objects } = self.ask_chain(server, chain, list).await? else {
                return Err(Errno::because(Errno::EPROTO, "an odd answer to Staged"));
            };
            let Some(last) = objects.0.last() else { return Ok(()) };
            after = last.id;
            for &Object { id, epoch, .. } in &objects.0 {
                if !self.may_be_installed(id, epoch).await? {
                    self.ask_chain(server, chain, DataOp::Unstage { id, epoch }).await?;
                }
            }
        }
    }

    /// Whether what is staged for this epoch of a file is pending, or its mover under way. Looked at for each by itself: it
    /// may begin to be pending while others are unstaged.
    async fn may_be_installed(&self, id: Id, epoch: u32) -> Result<bool> {
        self.store_is_here().await;
        let Reply::Looked { files, .. } = self.ask_own(Op::Look { ids: List(vec![id]) }) else {
            return Err(Errno::because(Errno::EIO, "the store does not say where files lie"));
        };
        let is_moving = self.store_mut().is_moving(id);
        Ok(files.0.iter().any(|file| {
            let is_next = |inode: &Inode| is_moving && inode.epoch.checked_add(1) == Some(epoch);
            file.cut_pending || file.inode.as_ref().is_some_and(is_next)
        }))
    }

    /// Those of the ids that belong to no file.
    async fn without_file(&self, ids: &[Id]) -> Result<Vec<Id>> {
        self.store_is_here().await;
        match self.ask_own(Op::Exist { ids: List(ids.to_vec()) }) {
            Reply::Ids { ids: known } => {
                let known: HashSet<Id> = known.0.into_iter().collect();
                Ok(ids.iter().copied().filter(|id| !known.contains(id)).collect())
            }
            // No answer is no reason to remove anything, nor to call it compared.
            _ => Err(Errno::because(Errno::EIO, "the store does not say which files there are")),
        }
    }

    async fn is_gone(&self, id: Id) -> bool {
        self.without_file(&[id]).await.is_ok_and(|gone| !gone.is_empty())
    }
}
