//! The metadata server's pure core: names, inodes, sizes, sessions and locks over an ordered map.
//!
//! [`Store::apply`] is the one entry. It runs one operation to its end inside the transaction that
//! the map stands for: everything is checked first and written then, so a refused operation leaves
//! nothing behind. There is no clock, no randomness and no I/O here.
//!
//! ```text
//!   Request ──► apply ──► Reply | AfterCut | Wait | Fatal
//!                 │
//!                 └──► take_work: answers to those who waited, objects to remove or cut,
//!                      operations of the server's own to be logged and applied
//! ```
//!
//! **What the server does around it.** It stamps the time on each request, applies it, and writes
//! to its log those for which [`Op::is_logged`] holds and that were not refused, before any of
//! their replies leave. Every few seconds it calls [`Store::save_replies`] and commits. After a
//! crash it opens the last commit, calls [`Store::replay`] for what the log holds since, saves and
//! commits. It does what [`Store::pending_reclaims`] and [`Store::pending_cuts`] tell, and after the
//! grace ends the [`Store::sessions`] that did not come back, then calls [`Store::drop_orphans`]. A
//! [`Applied::Fatal`] leaves the transaction and this value unusable: abort, and start over from the
//! last commit.
//!
//! **What is where.** Everything that must outlive the server is in the map: `keys` lists the rows.
//! The counters and the stored replies are kept in memory between checkpoints, since the log
//! rebuilds them. Opens, locks and waits are volatile: they are never consulted by a logged
//! operation, with one exception that `attr` explains. So an unlinked file always becomes an orphan
//! first, and the decision that nobody has it open is an operation of its own ([`Op::Drop`]).

mod alone;
mod append;
mod attr;
mod chains;
mod check;
mod create;
mod dump;
mod fault;
mod inline;
mod keys;
pub mod lease;
mod lock;
mod mend;
mod moves;
mod names;
mod owned;
mod permission;
mod places;
mod projects;
mod read;
mod remove;
mod rename;
mod session;
mod steps;
mod stores;
mod tasks;
mod tmpfile;
mod xattr;

pub use alone::{NUMBERS_KEPT, NUMBERS_OVER};
pub use chains::format_chains;
pub(crate) use create::New;
pub use create::{LINKS_MAX, TARGET_BYTES_MAX};
pub use dump::{Record, records};
pub use moves::installed;
pub use names::{ENTRY_BYTES, NAME_BYTES_MAX, is_dots};
pub use owned::quota;
pub use permission::{access, may, may_take_out, mode, without_privilege};
pub use places::place;
pub use remove::{PendingCut, Reclaim, TAKEN_MAX};
pub use session::{REPLIES_KEPT_MAX, SessionInfo};
pub use xattr::{XATTR_FILE_BYTES_MAX, XATTR_LIST_BYTES_MAX, XATTR_VALUE_BYTES_MAX};

use crate::kv::Kv;
use crate::ops::{Caller, Id, Inode, Nanos, Op, ROOT, Reply, Request, Striping, StripingHint};
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};
use fault::{Fault, refuse};
use keys::{Counters, Stored, Superblock};
use lock::Locks;
use session::Sessions;
use std::collections::{BTreeMap, BTreeSet};

/// The formats that this program reads and writes: of a store whose servers have one chain each, and of one whose servers have
/// several, where earlier versions would look for objects in the wrong place ([`format_chains`]).
pub const FORMATS: std::ops::RangeInclusive<u32> = 4..=5;

/// A wait that [`Work::Answer`] ends. Never used again while the store is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitId(pub u64);

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// Answer this, once the log holds the request.
    Reply(Reply),
    /// The same, but not before every data server has seen the cut of this file at this epoch.
    /// It is in the work (or pending since before, when the request is a repeated one).
    AfterCut {
        /// The file.
        id: Id,
        /// The epoch that the cut made.
        epoch: u32,
        /// What to answer then.
        reply: Reply,
    },
    /// The answer comes later, in the work; until then [`Store::cancel_wait`] gives up.
    Wait(WaitId),
    /// The map failed, or holds damage, after something was written: abort, and open the store anew.
    Fatal(Errno),
}

impl Applied {
    /// Whether nothing was changed because the request was refused: such a request is not logged.
    pub fn is_refused(&self) -> bool {
        matches!(self, Applied::Reply(Reply::Error { .. }))
    }
}

/// What the server must do elsewhere, once its log holds everything applied so far: objects that
/// were cut or removed for an operation that a crash then takes back would be lost.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // Few at a time, and moved once.
pub enum Work {
    /// Answer a request that waited.
    Answer(WaitId, Reply),
    /// Apply this operation of the server's own, with its time stamped and logged like any other.
    Apply(Request),
    /// Remove the file's objects of this epoch or an older one, everywhere in the striping; then
    /// apply [`Op::Reclaimed`]. Repeated by [`Store::pending_reclaims`].
    Remove {
        /// The file.
        id: Id,
        /// Objects of a later epoch stay.
        epoch: u32,
        /// Where they are.
        striping: Striping,
    },
    /// Remove what the file has left of this epoch or an older one on any server. Nothing remembers it: a server that is met
    /// anew is compared with the store.
    Sweep {
        /// The file.
        id: Id,
        /// Objects of a later epoch stay.
        epoch: u32,
    },
    /// Cut the file's objects to this size and raise them to this epoch, everywhere in the striping
    /// and in the order of the epochs; then apply [`Op::CutDone`]. Repeated by
    /// [`Store::pending_cuts`].
    Cut {
        /// The file.
        id: Id,
        /// The epoch from now on.
        epoch: u32,
        /// Bytes of the whole file that stay.
        size: u64,
        /// Where the objects are.
        striping: Striping,
    },
}

/// The metadata of one file system. See the module's story.
pub struct Store<K: Kv> {
    kv: K,
    superblock: Superblock,
    counters: Counters,
    /// How often the machine has lost its power: see [`Store::opened_on`].
    losses: u64,
    /// Epochs are skipped after a loss of power. Not while the log of a program is replayed that did not: what it gave
    /// out is to be given again.
    skips: bool,
    /// Why I/O servers get no new files, by index: see [`place`]. Those that are not in it get them.
    places: Vec<u8>,
    /// What the slots of stripings name, by index.
    chains: chains::Kept,
    /// What users and groups own, as soon as one of them has a limit.
    quotas: Option<owned::Quotas>,
    boot: u64,
    machine: u64,
    has_lost_power: bool,
    /// Clients of before this start may have files open of which nothing is known yet.
    is_opens_grace: bool,
    sessions: Sessions,
    locks: Locks,
    /// Who waits, and for what.
    waits: BTreeMap<WaitId, Waiting>,
    wait_next: u64,
    /// Orphans whose end is under way: nobody can open them again.
    dropping: BTreeSet<Id>,
    work: Vec<Work>,
    replaying: bool,
    /// This operation has written something; it was answered from memory.
    wrote: bool,
    is_repeated: bool,
    census: Option<check::Running>,
}

/// Somebody who waits.
struct Waiting {
    session: u64,
    id: Id,
    what: Awaited,
}

/// What is waited for.
enum Awaited {
    /// A lock; the queue in `lock` knows which.
    Lock,
    /// The file's size to reach this.
    Size(u64),
}

impl<K: Kv> Store<K> {
    /// Makes an empty file system in `kv`: the superblock and the root directory (mode 0755, owned
    /// by `owner`: uid and gid). `servers` are the I/O servers; files made with `hint` lie on them.
    ///
    /// EEXIST when there is one already, EINVAL when the servers or the hint make no sense.
    pub fn format(
        kv: &mut K,
        cluster_id: &str,
        servers: &[String],
        hint: StripingHint,
        now: Nanos,
        owner: (u32, u32),
    ) -> Result<(), Errno> {
        if kv.get(keys::SUPER)?.is_some() {
            return Err(Errno::because(Errno::EEXIST, "the store is formatted already"));
        }
        if servers.is_empty() || servers.len() > SERVERS_MAX {
            let text = format!("{} I/O servers, must be 1 to {SERVERS_MAX}", servers.len());
            return Err(Errno::because(Errno::EINVAL, text));
        }
        create::check_hint(&hint, servers.len()).map_err(Fault::into_errno)?;
        let superblock = Superblock {
            magic: Name::from(MAGIC),
            format: *FORMATS.start(),
            cluster: Name::from(cluster_id),
            servers: List(servers.iter().map(|name| Name::from(name.as_str())).collect()),
        };
        let counters = Counters { id_next: ROOT + 1, session_next: 1, files: 1, bytes: 0 };
        keys::put_row(kv, &keys::inode(ROOT), &create::root(hint, now, owner))?;
        keys::put_row(kv, keys::COUNTERS, &counters)?;
        keys::put_row(kv, keys::BOOT, &0u64)?;
        keys::put_row(kv, keys::SKIPS, &1u8)?;
        keys::put_row(kv, keys::SUPER, &superblock)
    }

    /// Opens a formatted map and counts the start. The server commits this with the replayed log.
    ///
    /// ENODATA when it was never formatted, EINVAL when it is not a metadata store, EOPNOTSUPP when
    /// its format is not this program's.
    pub fn open(mut kv: K) -> Result<Self, Errno> {
        let superblock = read_superblock(&kv)?;
        let missing = |what: &str| Errno::because(Errno::EIO, format!("{what} missing"));
        let counters = keys::row(&kv, keys::COUNTERS)?.ok_or_else(|| missing("counters are"))?;
        let boot: u64 = keys::row(&kv, keys::BOOT)?.ok_or_else(|| missing("boot is"))?;
        keys::put_row(&mut kv, keys::BOOT, &(boot + 1))?;
        let losses = keys::row(&kv, keys::LOSSES)?.unwrap_or(0);
        let skips = keys::row::<u8>(&kv, keys::SKIPS)?.is_some();
        let quotas = owned::Quotas::load(&kv)?;
        let List(places) = keys::row(&kv, keys::PLACES)?.unwrap_or_default();
        let chains = chains::load(&kv, superblock.servers.0.len())?;
        let mut store = Store {
            kv,
            superblock,
            counters,
            losses,
            skips,
            places,
            chains,
            quotas,
            boot: boot + 1,
            machine: 0,
            has_lost_power: false,
            is_opens_grace: false,
            sessions: Sessions::default(),
            locks: Locks::default(),
            waits: BTreeMap::new(),
            wait_next: 1,
            dropping: BTreeSet::new(),
            work: Vec::new(),
            replaying: false,
            wrote: false,
            is_repeated: false,
            census: None,
        };
        store.load_sessions().map_err(Fault::into_errno)?;
        store.is_opens_grace = store.sessions.are_there();
        Ok(store)
    }

    /// Runs one operation.
    pub fn apply(&mut self, request: &Request) -> Applied {
        (self.wrote, self.is_repeated) = (false, false);
        match self.admit(request) {
            Ok(applied) => applied,
            Err(Fault::Refused(error)) => Applied::Reply(error_reply(&error)),
            // A damaged row must not take the server from everybody who does not need it. But a map without
            // space cannot go on, and what the log holds was done once.
            Err(Fault::Broken(error))
                if !self.wrote && !self.replaying && error.code != Errno::ENOSPC =>
            {
                Applied::Reply(error_reply(&error))
            }
            Err(Fault::Broken(error)) => Applied::Fatal(error),
        }
    }

    /// Whether the last request had been applied before: its answer tells what was so then, and is not to be
    /// remembered under a lease.
    pub fn was_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Runs one operation of the log again: what it leaves in the map counts, its answer does not,
    /// and nothing volatile comes of it.
    pub fn replay(&mut self, request: &Request) -> Result<(), Errno> {
        self.replaying = true;
        let applied = self.apply(request);
        self.replaying = false;
        self.is_opens_grace = self.sessions.are_there();
        self.work.clear();
        self.waits.clear();
        match applied {
            Applied::Fatal(error) => Err(error),
            _ => Ok(()),
        }
    }

    /// What the server must do elsewhere, in order. Removals and cuts stay pending in the map until
    /// they are reported; everything else comes once.
    pub fn take_work(&mut self) -> Vec<Work> {
        std::mem::take(&mut self.work)
    }

    /// Writes what is kept in memory between checkpoints. Call it before each commit.
    pub fn save_replies(&mut self) -> Result<(), Errno> {
        keys::put_row(&mut self.kv, keys::COUNTERS, &self.counters)?;
        self.save_quotas().map_err(Fault::into_errno)?;
        self.save_sessions().map_err(Fault::into_errno)
    }

    /// Says in which start of its machine the store was opened. After another one (`lost_power`)
    /// numbers are skipped that may have been given out and were lost: the files and clients that
    /// they named may still be there. And every file is in doubt until it is cut, in an epoch that cannot
    /// have been given out either: see `Stored::losses`. To be called after the log was replayed and before a commit.
    pub fn opened_on(&mut self, machine: u64, lost_power: bool) -> Result<(), Errno> {
        if lost_power {
            self.counters.id_next += NUMBERS_SKIPPED;
            self.counters.session_next += NUMBERS_SKIPPED;
            self.losses += 1;
            keys::put_row(&mut self.kv, keys::LOSSES, &self.losses)?;
            self.skip_generations().map_err(Fault::into_errno)?;
        }
        if !self.skips {
            keys::put_row(&mut self.kv, keys::SKIPS, &1u8)?;
            self.skips = true;
        }
        // A log that a failing disk has lost is a loss within one start of the machine, and clients are to
        // see another.
        self.machine = machine.wrapping_add(self.losses);
        self.has_lost_power = lost_power;
        // Sessions may be lost, too, with what they had open.
        self.is_opens_grace |= lost_power;
        Ok(())
    }

    /// Whether this start is the first after a loss of power: clients may know what is not known here.
    pub fn has_lost_power(&self) -> bool {
        self.has_lost_power
    }

    /// Whether the I/O servers may hold bytes beyond the file's size that were within it once, and
    /// clients a place for an append that is not known here any more.
    fn is_in_doubt(&self, stored: &Stored) -> bool {
        stored.losses != self.losses
    }

    /// How often the store was opened, this time included.
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> &Name {
        &self.superblock.cluster
    }

    /// Names of the I/O servers in the order that stripings index them.
    pub fn servers(&self) -> &[Name] {
        &self.superblock.servers.0
    }

    /// The map.
    pub fn kv(&self) -> &K {
        &self.kv
    }

    /// The map, for the server to commit. Rows are not to be touched.
    pub fn kv_mut(&mut self) -> &mut K {
        &mut self.kv
    }

    /// Gives the map back.
    pub fn into_kv(self) -> K {
        self.kv
    }

    /// Sessions and repeated requests; then the operation itself.
    fn admit(&mut self, request: &Request) -> Result<Applied, Fault> {
        if !request.op.is_logged() {
            return self.volatile(request);
        }
        if let Some(applied) = self.repeated(request)? {
            self.is_repeated = true;
            return Ok(applied);
        }
        let applied = self.mutate(request)?;
        self.remember(request, &applied);
        Ok(applied)
    }

    fn mutate(&mut self, request: &Request) -> Result<Applied, Fault> {
        match &request.op {
            Op::Hello { .. } => self.hello(request),
            Op::Setattr { .. } => self.setattr(request),
            Op::Create { .. } => self.create(request),
            Op::Unlink { parent, name, dir } => self.unlink(request, *parent, name, *dir),
            Op::Rename { .. } => self.rename(request),
            Op::Link { id, parent, name } => self.link(request, *id, *parent, name),
            Op::Extend { id, epoch, end, hole } => self.extend(request, *id, *epoch, *end, *hole),
            Op::WriteInline { .. } => self.write_inline(request),
            Op::Amend { .. } => self.amend(request),
            Op::AppendInline { id, data } => self.append_inline(request, *id, data),
            Op::CreateWrite { .. } => self.create_write(request),
            Op::Alone { dir, count } => self.alone(request, *dir, *count),
            Op::Make { .. } => self.make(request),
            Op::MakeDir { .. } => self.make_dir(request),
            Op::Remove { dir, ids, names } => self.remove_all(request, *dir, &ids.0, &names.0),
            Op::Names { dirs, steps, ids, names } => {
                self.change_names(request, &steps.0, &dirs.0, (&ids.0, &names.0))
            }
            Op::Reserve { id, length } => self.reserve(request, *id, *length),
            Op::Commit { id, offset, length } => {
                self.end_append(request, *id, (*offset, *length), None)
            }
            &Op::EndAppend { id, reserve, offset, length, hole } => {
                self.end_append(request, id, (offset, length), Some((reserve, hole)))
            }
            Op::SetStriping { id, hint } => self.set_striping(request, *id, hint),
            Op::SetConsistency { id, consistency } => {
                self.set_consistency(request, *id, *consistency)
            }
            Op::Reclaimed { id, epoch } => self.reclaimed(*id, *epoch),
            Op::SessionOver { session } => self.session_over(*session, request.now),
            Op::Touch { id } => self.touch(request, *id),
            Op::Fence { id } => self.fence(request, *id),
            Op::Dense { id, epoch, size } => self.dense(*id, *epoch, *size),
            Op::CutDone { id, epoch } => self.cut_done(*id, *epoch),
            Op::Drop { id } => self.drop_orphan(*id),
            Op::KnowStore { server, store } => self.know_store(*server, store),
            Op::Place { server, state } => self.set_place(*server, *state),
            Op::AddServer { name } => self.add_server(name),
            Op::RaiseChain { .. } | Op::MoveChain { .. } | Op::ChainDropped { .. } => {
                self.change_table(&request.op)
            }
            Op::Restored {} => self.restored(),
            Op::KeepTask { task } => self.keep_task(task),
            Op::SetQuota { quota } => self.set_quota(request, quota),
            Op::BeginMove { id } => self.begin_move(request, *id),
            Op::Move { id, epoch, version, servers } => {
                self.move_file(request, *id, (*epoch, *version), &servers.0)
            }
            &Op::MakeProject { dir } => self.make_project(request, dir),
            &Op::SetProject { id, project } => self.set_project(request, id, project),
            &Op::EndProject { number, whole } => self.end_project(request, number, whole),
            Op::Recount {} => self.recount(request),
            Op::CountOwned { rows_max } => self.count_owned(*rows_max),
            Op::Mend { finding } => self.mend(request, finding),
            Op::Setxattr { .. } => self.setxattr(request),
            Op::Removexattr { id, name } => self.removexattr(request, *id, name),
            Op::Tmpfile { .. } => self.tmpfile(request),
            other => refuse(Errno::EOPNOTSUPP, format!("{} is not logged", other.name())),
        }
    }

    fn volatile(&mut self, request: &Request) -> Result<Applied, Fault> {
        let caller = &request.caller;
        match &request.op {
            Op::Bye {} => self.bye(request.session),
            Op::Walk { from, names } => self.walk(caller, *from, &names.0),
            Op::Getattr { id } => Ok(node(self.stored(*id)?.inode)),
            Op::Take { dir, ids } => self.take(*dir, &ids.0),
            Op::Room { id, end } => self.room(request, *id, *end),
            Op::OpenRead { .. } => self.open_read(request),
            &Op::ReadInline { id, offset, count } => self.read_inline(id, offset, count),
            Op::Open { id, access } => self.open_file(request, *id, *access),
            Op::Release { id } => self.release(request.session, *id),
            Op::Close { ids } => self.close(request.session, &ids.0),
            Op::Readdir { .. } | Op::ListContents { .. } => self.readdir(request),
            Op::Statfs {} => Ok(self.statfs()),
            Op::Lock { id, lock, wait, .. } => self.lock(request, *id, lock, *wait),
            Op::Unlock { id, lock } => self.unlock(request, *id, lock),
            Op::Getlock { id, lock } => self.getlock(request, *id, lock),
            Op::Fsync { id } => self.stored(*id).map(|_| done()),
            Op::Cluster {} => Ok(self.cluster()),
            Op::Stores {} => self.store_states(),
            Op::Places {} => Ok(self.place_states()),
            Op::Projects {} => Ok(self.project_list()),
            Op::Chains {} => Ok(self.chain_table()),
            Op::Quotas { kind, id, count_max } => self.quotas(caller, (*kind, *id), *count_max),
            Op::Exist { ids } => self.exist(&ids.0),
            Op::Lookup { parent, name, ahead, content } => {
                self.lookup(caller, *parent, name, (*ahead, *content))
            }
            Op::Check { .. } => self.check(request),
            Op::Look { ids } => self.look(&ids.0, request.now),
            Op::Rows { from, bytes_max } => self.raw_rows(from, *bytes_max),
            Op::Getxattr { id, name } => self.getxattr(caller, *id, name),
            Op::Listxattr { id } => self.listxattr(caller, *id),
            other => refuse(Errno::EOPNOTSUPP, format!("{} is logged", other.name())),
        }
    }

    /// A new wait. During replay nobody waits, but the answer's shape is the same.
    fn wait_for(&mut self, session: u64, id: Id, what: Awaited) -> WaitId {
        let wait = WaitId(self.wait_next);
        self.wait_next += 1;
        self.waits.insert(wait, Waiting { session, id, what });
        wait
    }

    fn answer(&mut self, wait: WaitId, reply: Reply) {
        if self.waits.remove(&wait).is_some() {
            self.work.push(Work::Answer(wait, reply));
        }
    }

    /// Asks the server for an operation of its own. In replay the log holds it already, or the
    /// server finds what is pending afterwards.
    fn ask(&mut self, op: Op) {
        if !self.replaying {
            let caller = Caller::default();
            let own = Request { session: 0, seq: 0, seq_done: 0, now: 0, caller, op };
            self.work.push(Work::Apply(own));
        }
    }
}

fn read_superblock<K: Kv>(kv: &K) -> Result<Superblock, Errno> {
    let Some(superblock) = keys::row::<Superblock>(kv, keys::SUPER)? else {
        return Err(Errno::because(Errno::ENODATA, "the metadata store is not formatted"));
    };
    if superblock.magic.as_bytes() != MAGIC.as_bytes() {
        return Err(Errno::because(Errno::EINVAL, "this is not a metadata store"));
    }
    let (format, newest) = (superblock.format, *FORMATS.end());
    if !FORMATS.contains(&format) {
        let age = if format > newest { "newer" } else { "older" };
        let text =
            format!("the metadata store has format {format}, {age} than this one's {newest}");
        return Err(Errno::because(Errno::EOPNOTSUPP, text));
    }
    Ok(superblock)
}

fn done() -> Applied {
    Applied::Reply(Reply::Done {})
}

fn node(inode: Inode) -> Applied {
    Applied::Reply(Reply::Node { inode })
}

fn error_reply(error: &Errno) -> Reply {
    Reply::Error { code: error.code, reason: Name::from(error.reason.as_str()) }
}

/// More numbers than are given between two syncs of the log, however slow the disk.
const NUMBERS_SKIPPED: u64 = 1 << 24;

/// Indexes into the server list are 16 bits wide.
const SERVERS_MAX: usize = u16::MAX as usize;

/// The superblock's first field.
const MAGIC: &str = "covey metadata";
