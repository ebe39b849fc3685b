//! Volumes in a file of the cluster's own file system: thin, striped over its I/O servers, reached from any node.
//!
//! One node at a time serves such a volume: it holds a lock on the whole file, which the metadata server takes away when the
//! node is lost for longer than its grace. What the unit saves is kept in an attribute of the file, so that whoever
//! serves it next knows the reservations.

use super::standby::Published;
use super::store::{RUNS_MAX, begin, beyond, failure_of, note_failure, tile, whole};
use super::syncs::{Lost, Since, Syncs};
use covey_iscsi::store::{Answer, Failure, Hold, Reply, Request, Store};
use covey_ninep::tree::{Errno, Removal, SetAttr};
use covey_stripe::client::{Error, File, Fs, Result, Seek, Taken, access};
use covey_stripe::distribution::INLINE_BYTES_MAX;
use covey_stripe::ops::{Caller, Id, ROOT, RangeLock};
use covey_wire::{Bytes, Name};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// A file of the file system as a store.
pub struct StripedStore {
    shared: Arc<Shared>,
    runtime: Handle,
}

struct Shared {
    fs: Fs,
    file: File,
    id: Id,
    who: Caller,
    /// By which this node knows its claims.
    token: [u8; 16],
    bytes: AtomicU64,
    syncs: Syncs,
    lock: RangeLock,
    /// The attribute for what the unit saves.
    saved: String,
    /// Another client has taken the file.
    lost: AtomicBool,
    /// Is told when that is met.
    losing: Notify,
    /// Held by each request, and alone by a change of the size: a request that met the new epoch before this node knows of
    /// it would take the file for another node's.
    changing: tokio::sync::RwLock<()>,
    runtime: Handle,
}

/// Makes a file of `bytes`, with no place on any server. EEXIST where there is one.
pub async fn make(fs: &Fs, who: &Caller, path: &str, bytes: u64) -> Result<()> {
    make_directories(fs, who, path).await?;
    let (parent, name) = parent_of(fs, who, path).await?;
    let (inode, file) = fs.create(who, parent, &name, 0o600, Taken::Refuse, access::BOTH).await?;
    fs.setattr(who, inode.id, SetAttr { size: Some(bytes), ..SetAttr::default() }).await?;
    file.fsync().await?;
    fs.sync(parent).await
}

/// Makes the directories on the way that are not there, for the node's user only.
async fn make_directories(fs: &Fs, who: &Caller, path: &str) -> Result<()> {
    const DIRECTORY: u32 = 0o040_700;
    let mut names = names_of(path);
    names.pop();
    let mut parent = ROOT;
    for name in names {
        let made = fs.make(who, parent, &name, DIRECTORY, 0, Name::EMPTY).await;
        parent = match made {
            Ok(inode) => {
                fs.sync(parent).await?;
                inode.id
            }
            Err(error) if error.code() == Errno::EEXIST => fs.lookup(who, parent, &name).await?.id,
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

/// Removes the file.
pub async fn remove(fs: &Fs, who: &Caller, path: &str) -> Result<()> {
    let (parent, name) = parent_of(fs, who, path).await?;
    fs.unlink(who, parent, &name, Removal::File).await
}

/// A copy with the holes that it has; EEXIST where there is a file already.
pub async fn copy(fs: &Fs, who: &Caller, from: &str, to: &str) -> Result<()> {
    let source = fs.stat(find(fs, who, from).await?).await?.inode;
    make(fs, who, to, source.size).await?;
    let (parent, name) = parent_of(fs, who, to).await?;
    let copy = fs.lookup(who, parent, &name).await?;
    let copied = copy_data(fs, who, (source.id, copy.id), source.size).await;
    if copied.is_err() {
        // Part of a copy is of no use to anybody, and in the way of the next one.
        let _ = fs.unlink(who, parent, &name, Removal::File).await;
    }
    copied
}

async fn copy_data(fs: &Fs, who: &Caller, (from, to): (Id, Id), bytes: u64) -> Result<()> {
    let (from, to) = (fs.open(who, from, 4).await?, fs.open(who, to, 6).await?);
    let mut at = 0;
    while at < bytes {
        let hole = match from.seek(at, Seek::Data).await {
            Ok(data) => {
                at = data;
                from.seek(data, Seek::Hole).await?.min(bytes)
            }
            Err(error) if error.code() == Errno::ENXIO => break,
            Err(error) => return Err(error),
        };
        while at < hole {
            match from.copy(at, &to, at, hole - at).await? {
                0 => return Err(Error::because(Errno::EIO, "the volume became shorter")),
                copied => at += copied,
            }
        }
    }
    to.fsync().await
}

async fn parent_of(fs: &Fs, who: &Caller, path: &str) -> Result<(Id, Name)> {
    let mut names: Vec<Name> = names_of(path);
    let name = names.pop().ok_or(Errno::EINVAL)?;
    let inodes = fs.walk(who, ROOT, &names).await?;
    if inodes.len() < names.len() {
        return Err(Error::because(Errno::ENOENT, format!("{path}: its directory is not there")));
    }
    Ok((inodes.last().map_or(ROOT, |inode| inode.id), name))
}

pub(super) fn names_of(path: &str) -> Vec<Name> {
    path.split('/').filter(|name| !name.is_empty()).map(Name::from).collect()
}

/// The file of a volume. It is the node's user's, who alone may read and write it: whoever else could, would have the
/// volume's secrets, and could say what the volume is.
async fn find(fs: &Fs, who: &Caller, path: &str) -> Result<Id> {
    let (parent, name) = parent_of(fs, who, path).await?;
    let inode = fs.lookup(who, parent, &name).await?;
    let (uid, mode) = (inode.uid, inode.mode);
    if mode & KIND != REGULAR {
        return Err(Error::because(Errno::EINVAL, format!("{path} is no regular file")));
    }
    if uid != who.uid || mode & OTHERS != 0 {
        let permissions = mode & 0o7777;
        let why = format!(
            "{path} is user {uid}'s with mode {permissions:04o}: a volume's file is user {}'s alone; hint: chown and \
             chmod 600 first",
            who.uid
        );
        return Err(Error::because(Errno::EACCES, why));
    }
    Ok(inode.id)
}

const KIND: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
/// What others may do.
const OTHERS: u32 = 0o077;

async fn attribute(fs: &Fs, who: &Caller, id: Id, name: &str) -> Result<Option<String>> {
    match fs.getxattr(who, id, &Name::from(name)).await {
        Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        Err(error) if error.code() == Errno::ENODATA => Ok(None),
        Err(error) => Err(error),
    }
}

async fn set_attribute(fs: &Fs, who: &Caller, id: Id, name: &str, text: String) -> Result<()> {
    fs.setxattr(who, id, &Name::from(name), text.into_bytes().into(), 0).await?;
    fs.sync_inode(id).await
}

/// What a volume's file says of it.
pub(super) async fn published(fs: &Fs, who: &Caller, path: &str) -> Result<Published> {
    let id = find(fs, who, path).await?;
    let mut published = Published {
        number: id,
        record: attribute(fs, who, id, RECORD).await?.unwrap_or_default(),
        node: attribute(fs, who, id, SERVED).await?.unwrap_or_default(),
        beat: attribute(fs, who, id, BEAT).await?.unwrap_or_default(),
        ..Published::default()
    };
    for name in fs.listxattr(who, id).await? {
        let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
        if let Some(node) = name.strip_prefix(PORTALS) {
            let addresses = attribute(fs, who, id, &name).await?.unwrap_or_default();
            let addresses = addresses.split_whitespace().map(str::to_owned).collect();
            published.portals.insert(node.to_owned(), addresses);
        }
    }
    Ok(published)
}

/// Says with the file where a node serves the volume or would.
pub(super) async fn publish_portals(
    fs: &Fs,
    who: &Caller,
    path: &str,
    node: &str,
    addresses: Vec<String>,
) -> Result<()> {
    let id = find(fs, who, path).await?;
    let (name, text) = (format!("{PORTALS}{node}"), addresses.join(" "));
    if attribute(fs, who, id, &name).await?.unwrap_or_default() == text {
        return Ok(());
    }
    set_attribute(fs, who, id, &name, text).await
}

/// EBUSY where somebody has the file of a volume.
pub(super) async fn check_free(fs: &Fs, who: &Caller, path: &str) -> Result<()> {
    let id = find(fs, who, path).await?;
    match fs.getlock(id, whole_lock()).await? {
        Some(_) => Err(taken()),
        None => Ok(()),
    }
}

fn whole_lock() -> RangeLock {
    let pid = std::process::id();
    RangeLock::on_file(pid.into(), pid)
}

/// Has an epoch of the file for this node alone: two that raise it at the same time may both learn of the later one.
/// EBUSY where another node was first. Whoever has an earlier epoch is refused by the I/O servers.
async fn claim(fs: &Fs, who: &Caller, id: Id, epoch: u32, token: &[u8; 16]) -> Result<()> {
    const CREATE: u32 = 1;
    let name = format!("{CLAIM}.{epoch}");
    let set = fs.setxattr(who, id, &Name::from(name.as_str()), token.to_vec().into(), CREATE).await;
    match set {
        Err(error) if error.code() == Errno::EEXIST => {
            // It has it already, or the answer to the first of two tries was lost.
            let found = fs.getxattr(who, id, &Name::from(name.as_str())).await?;
            if found[..] != token[..] {
                return Err(taken());
            }
        }
        set => set?,
    }
    fs.sync_inode(id).await?;
    for other in fs.listxattr(who, id).await? {
        let other = String::from_utf8_lossy(other.as_bytes()).into_owned();
        let number = other.strip_prefix(CLAIM).and_then(|rest| rest.strip_prefix('.'));
        if number.and_then(|number| number.parse().ok()).is_some_and(|number: u32| number < epoch) {
            // The one that had it is gone, or will find that it has lost the file.
            let _ = fs.removexattr(who, id, &Name::from(other.as_str())).await;
        }
    }
    Ok(())
}

fn taken() -> Error {
    let why = "another node serves this volume; hint: `covey volume ls` shows which";
    Error::because(Errno::EBUSY, why)
}

impl StripedStore {
    /// Opens the file at `path` and takes it for this node. EBUSY where another node has it.
    ///
    /// Whoever had it before may not know that it has lost it. So the file's epoch is raised: the I/O servers refuse what comes
    /// late; that holds `by_force`, too, where a node still has the lock and has not been heard of. What was saved is kept under the epoch's number, where nobody else writes.
    pub async fn open(
        fs: Fs,
        who: Caller,
        path: &str,
        runtime: Handle,
        by_force: bool,
    ) -> Result<StripedStore> {
        let id = find(&fs, &who, path).await?;
        let lock = whole_lock();
        match fs.lock(id, lock.clone(), false).await {
            Err(error) if error.code() == Errno::EAGAIN && by_force => {}
            Err(error) if error.code() == Errno::EAGAIN => return Err(taken()),
            other => other?,
        }
        fs.fence(&who, id).await?;
        let file = fs.open(&who, id, 6).await?;
        let inode = fs.stat(id).await?.inode;
        file.pin()?;
        let token: [u8; 16] = covey_io::os::random::bytes()
            .map_err(|error| Error::because(Errno::EIO, format!("no random bytes: {error}")))?;
        claim(&fs, &who, id, inode.epoch, &token).await?;
        let (bytes, saved) = (AtomicU64::new(inode.size), format!("{SAVED}.{}", inode.epoch));
        let (lost, losing, runtime_too) = (AtomicBool::new(false), Notify::new(), runtime.clone());
        let shared = Shared {
            fs,
            file,
            id,
            who,
            token,
            bytes,
            syncs: Syncs::default(),
            lock,
            saved,
            lost,
            losing,
            changing: tokio::sync::RwLock::default(),
            runtime: runtime_too,
        };
        Ok(StripedStore { shared: Arc::new(shared), runtime })
    }

    /// What was saved last, by whoever served it then. It is this node's from here on.
    pub async fn saved(&self) -> Result<String> {
        let Shared { fs, who, id, saved, .. } = &*self.shared;
        let mut last: Option<(u32, String)> = None;
        for name in fs.listxattr(who, *id).await? {
            let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
            let epoch = name.strip_prefix(SAVED).and_then(|rest| rest.strip_prefix('.'));
            let Some(epoch) = epoch.and_then(|epoch| epoch.parse().ok()) else { continue };
            if last.as_ref().is_none_or(|(other, _)| *other < epoch) {
                last = Some((epoch, name));
            }
        }
        let Some((_, name)) = last else { return Ok(String::new()) };
        let text = attribute(fs, who, *id, &name).await?.unwrap_or_default();
        if name != *saved {
            set_attribute(fs, who, *id, saved, text.clone()).await?;
            fs.removexattr(who, *id, &Name::from(name.as_str())).await?;
        }
        Ok(text)
    }

    /// Says with the file what the volume is, and that this node serves it, unless it says so. ESTALE where another node has
    /// taken it: then that one's word holds.
    pub async fn publish(&self, node: &str, record: String) -> Result<()> {
        let Shared { fs, who, id, .. } = &*self.shared;
        for (name, text) in [(RECORD, record), (SERVED, node.to_owned())] {
            if attribute(fs, who, *id, name).await?.as_ref() != Some(&text) {
                self.check_ours().await?;
                set_attribute(fs, who, *id, name, text).await?;
            }
        }
        Ok(())
    }

    /// Until somebody meets that the file is another node's.
    pub async fn met_loss(&self) {
        self.shared.losing.notified().await;
    }

    /// Whether the file is another node's by now. Otherwise says with the file that this one lives.
    pub async fn is_lost(&self, beat: u64) -> bool {
        let Shared { fs, id, lock, file, lost, .. } = &*self.shared;
        if file.is_taken().await.unwrap_or(false) {
            lost.store(true, Ordering::Release);
        }
        let is_lost = lost.load(Ordering::Acquire);
        if !is_lost {
            // A lock that the metadata server has forgotten, or that a node held which did not answer any more.
            let _ = fs.lock(*id, lock.clone(), false).await;
            self.beat(beat).await;
        }
        is_lost
    }

    /// Says that this node lives. Of one that has lost the file nobody needs to know.
    pub async fn beat(&self, beat: u64) {
        let Shared { fs, who, id, saved, lost, .. } = &*self.shared;
        if lost.load(Ordering::Acquire) {
            return;
        }
        let beat = format!("{saved} {beat}").into_bytes();
        let _ = fs.setxattr(who, *id, &Name::from(BEAT), beat.into(), 0).await;
    }

    /// Lets others have the file: this node is about to end. What it still writes is refused as soon as they do.
    pub async fn give_back(&self) {
        let Shared { fs, id, lock, .. } = &*self.shared;
        let _ = fs.unlock(*id, lock.clone()).await;
        fs.bye().await;
    }

    /// A number that the file has as long as it lives.
    pub fn number(&self) -> Id {
        self.shared.id
    }

    /// ESTALE where the file is another node's by now.
    pub async fn check_ours(&self) -> Result<()> {
        let _turn = self.shared.changing.read().await;
        self.shared.check_pinned().await
    }

    /// Makes it longer or shorter.
    pub async fn resize(&self, bytes: u64) -> Result<()> {
        let Shared { fs, file, who, id, token, changing, .. } = &*self.shared;
        let _alone = changing.write().await;
        // To cut a file raises its epoch. It stays pinned: an epoch that another node has made is never this one's, and at
        // that one the metadata server refuses the size as the I/O servers refuse writes.
        let changed = fs.set_size_of_pinned(who, file, bytes).await;
        let changed = changed.inspect_err(|error| {
            if error.code() == Errno::ESTALE {
                self.shared.lose();
            }
        })?;
        self.shared.bytes.fetch_min(bytes, Ordering::AcqRel);
        let claimed = claim(fs, who, *id, changed.inode.epoch, token).await;
        claimed.inspect_err(|_| self.shared.lose())?;
        fs.sync_inode(*id).await?;
        self.shared.bytes.store(bytes, Ordering::Release);
        Ok(())
    }
}

impl Store for StripedStore {
    fn ask(&self, request: Request, hold: Hold) -> Answer {
        let (shared, asked) = (self.shared.clone(), self.shared.clone());
        // A read that nobody waits for any more need not end, so it is not given to another thread.
        let runtime = (!matches!(request, Request::Read { .. })).then_some(&self.runtime);
        let answer = begin(runtime, hold, async move { shared.answer(request).await });
        let Answer::Later(answer) = answer else { return answer };
        Answer::Later(Box::pin(async move {
            let reply = answer.await;
            if asked.lost.load(Ordering::Acquire) && matches!(reply, Reply::Failed(_)) {
                // It is the other node's to say. The connection ends as soon as this node sees that, and the
                // initiator asks there.
                std::future::pending::<()>().await;
            }
            reply
        }))
    }

    fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Acquire)
    }

    fn losses(&self) -> u64 {
        self.shared.syncs.losses()
    }
}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Error {
        Error::because(Errno::EIO, std::io::Error::from(lost).to_string())
    }
}

impl Shared {
    /// The file is another node's.
    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.losing.notify_one();
    }

    async fn check_pinned(&self) -> Result<()> {
        if self.file.is_taken().await? {
            Err(Error::because(Errno::ESTALE, "another node serves this volume"))
        } else {
            Ok(())
        }
    }

    async fn answer(&self, request: Request) -> Reply {
        let _turn = self.changing.read().await;
        if let Some(failure) = beyond(&request, self.bytes.load(Ordering::Acquire)) {
            return Reply::Failed(failure);
        }
        match request {
            Request::Read { offset, bytes, .. } => {
                match self.file.read_at(offset, bytes as usize).await {
                    Ok(data) => whole(data, bytes),
                    Err(error) => self.failed(&error, Failure::Read),
                }
            }
            Request::Allocated { range } => match self.extents(range).await {
                Ok(runs) => Reply::Extents(runs),
                Err(error) => self.failed(&error, Failure::Read),
            },
            change => match self.change(change).await {
                Ok(()) => Reply::Done,
                Err(error) => self.failed(&error, Failure::Write),
            },
        }
    }

    fn failed(&self, error: &Error, otherwise: Failure) -> Reply {
        note_failure(error);
        let failure = failure_of(error.code(), otherwise);
        if failure == Failure::Unreachable {
            self.lose();
        }
        Reply::Failed(failure)
    }

    async fn change(&self, request: Request) -> Result<()> {
        let since = self.syncs.since();
        match request {
            Request::Write { offset, data, fua, .. } => {
                self.file.write_at(offset, data).await?;
                if fua { self.sync(since).await } else { Ok(()) }
            }
            Request::Flush => self.sync(since).await,
            Request::Discard { range } => self.reshape(PUNCH, range).await,
            Request::Zero { range } => self.reshape(ZERO, range).await,
            Request::Fill { range, pattern } => self.fill(range, &pattern).await,
            Request::Save { state } => {
                let name = Name::from(self.saved.as_str());
                self.fs.setxattr(&self.who, self.id, &name, state, 0).await?;
                self.fs.sync_inode(self.id).await?;
                // The metadata server takes it of anybody. A node that takes the file later reads it.
                self.check_pinned().await
            }
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    async fn sync(&self, since: Since) -> Result<()> {
        // What a server that is away holds unsynced is asked for again, as soon as it is back. A file that another node has
        // is no more ours to speak of.
        let loses = |error: &Error| !matches!(error, Error::Down { .. } | Error::Stale(_));
        self.syncs.sync(since, self.file.fsync(), loses).await
    }

    async fn reshape(&self, mode: u32, range: Range<u64>) -> Result<()> {
        self.file.fallocate(&self.who, mode, range.start, range.end - range.start).await
    }

    async fn fill(&self, range: Range<u64>, pattern: &[u8]) -> Result<()> {
        let tile = Bytes::from(tile(pattern));
        let mut at = range.start;
        while at < range.end {
            let count = (range.end - at).min(tile.len() as u64);
            self.file.write_at(at, tile.slice(..count as usize).into()).await?;
            at += count;
        }
        Ok(())
    }

    async fn extents(&self, range: Range<u64>) -> Result<Vec<(u64, bool)>> {
        let mut runs = Vec::new();
        let mut at = range.start;
        while at < range.end && runs.len() < RUNS_MAX {
            let data = self.next(at, Seek::Data, range.end).await?;
            if data > at {
                runs.push((data, false));
                at = data;
                continue;
            }
            // What lies with the metadata is never given back: zeros there are as good as nothing.
            let inline = u64::from(INLINE_BYTES_MAX).min(range.end);
            if at < inline && self.is_zero(at, inline).await? {
                runs.push((inline, false));
                at = inline;
                continue;
            }
            at = self.next(at, Seek::Hole, range.end).await?.max(at + 1);
            runs.push((at, true));
        }
        Ok(runs)
    }

    async fn is_zero(&self, from: u64, to: u64) -> Result<bool> {
        let data = self.file.read_at(from, (to - from) as usize).await?;
        Ok(data.pieces().iter().all(|piece| piece.iter().all(|byte| *byte == 0)))
    }

    /// Where the next data (or hole) begins, `end` where there is none.
    async fn next(&self, offset: u64, what: Seek, end: u64) -> Result<u64> {
        match self.file.seek(offset, what).await {
            Ok(found) => Ok(found.min(end)),
            Err(error) if error.code() == Errno::ENXIO => Ok(end),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Shared {
    /// Another node may have it at once, not only when this one's session is over.
    fn drop(&mut self) {
        let (fs, id, lock) = (self.fs.clone(), self.id, self.lock.clone());
        self.runtime.spawn(async move {
            let _ = fs.unlock(id, lock).await;
            fs.bye().await;
        });
    }
}

/// Whose an epoch of the file is; its number follows.
const CLAIM: &str = "user.covey.claim";
/// The attributes with what the unit saved, each followed by the epoch in which it did.
const SAVED: &str = "user.covey.reservations";
/// The attribute with what the volume is.
const RECORD: &str = "user.covey.volume";
/// The attribute that names the node which serves it.
const SERVED: &str = "user.covey.served";
/// The attribute that changes as long as the node which serves it lives.
const BEAT: &str = "user.covey.beat";
/// The attributes with addresses, each followed by a node's name.
const PORTALS: &str = "user.covey.portals.";
/// fallocate(2): PUNCH_HOLE with KEEP_SIZE, ZERO_RANGE with KEEP_SIZE.
const PUNCH: u32 = 2 | 1;
const ZERO: u32 = 16 | 1;
