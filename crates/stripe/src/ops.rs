//! What a client asks of the metadata server: one table of operations and one of replies.
//!
//! Operations travel in the body of a Tcall on the metadata server's root. Each is deterministic: it
//! carries its caller, and the time is stamped on it by the server before it is logged, so replaying
//! the log gives the same store. `Request { session, seq, .. }` lets a client repeat a mutation after
//! a lost connection and get the first answer.

mod bits;
pub mod check;
mod consistency;
mod nanos;
mod quotas;
mod servers;
mod table;
mod tasks;

pub use bits::{rename, set, step, xattr};
pub use consistency::Consistency;
pub use nanos::{Nanos, nanos_of, seconds_of};
pub use quotas::{Project, Quota};
pub use servers::{Place, StoreState};
pub use table::Changes;
pub use tasks::{Failure, Load, Progress, Task, task};

use crate::chain::Chain;
use crate::distribution;
use covey_wire::{Field, List, Name, Payload, Reader, messages, record};
use table::operations;

/// A file's number: the owner server in the top 16 bits, never reused. 1 is the root directory.
pub type Id = u64;

/// The root directory.
pub const ROOT: Id = 1;

/// Stands for the table of chains in leases: no file has this number.
pub const TABLE: Id = 0;

/// In the number of entries that a Lookup asks for: those that come after the name by their own names. Older servers,
/// which answer at most 256, take it for a large number.
pub const BY_NAME: u32 = 1 << 31;

record! {
    /// How a file's bytes lie on the I/O servers. Fixed when the file is created.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Striping for () {
        /// Which distribution: see [`crate::distribution::KINDS`].
        pub kind: u8,
        /// Bytes per server before the next one, where the strips have one size.
        pub strip_bytes: u32,
        /// What else the kind has: see [`crate::distribution`].
        pub params: List<u32>,
        /// The chains of I/O servers by index (see [`crate::chain`]), in the order of the strips. A chain that never had more
        /// than one member has the index of its server.
        pub servers: List<u16>,
    }
}

record! {
    /// What a directory says of the files created in it. Inherited by directories made in it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct StripingHint for () {
        /// Which distribution.
        pub kind: u8,
        /// Bytes per strip.
        pub strip_bytes: u32,
        /// How many servers; 0 for all.
        pub server_count: u16,
        /// What else the kind has: see [`crate::distribution`].
        pub params: List<u32>,
    }
}

record! {
    /// A file's attributes as the metadata server holds them.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Inode for () {
        /// The file.
        pub id: Id,
        /// Type and permission bits, as in stat(2).
        pub mode: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Names that lead here; directories count `.` and the `..` of their directories.
        pub nlink: u32,
        /// Device number of a special file, as makedev(3) packs it.
        pub rdev: u64,
        /// Bytes; for a directory its number of entries times 32.
        pub size: u64,
        /// Raised by each truncation; data servers refuse requests of another epoch.
        pub epoch: u32,
        /// Changes whenever content or attributes change.
        pub version: u64,
        /// A regular file that may have holes: its blocks must be asked of the data servers.
        pub sparse: bool,
        /// Bytes of content that are kept with the inode.
        pub inline: u32,
        /// Last read (relatime), last content change, last change, birth.
        pub atime: Nanos,
        /// Content changed.
        pub mtime: Nanos,
        /// Inode changed.
        pub ctime: Nanos,
        /// Created.
        pub btime: Nanos,
        /// A symbolic link's target, else empty.
        pub target: Name,
        /// A regular file's striping.
        pub striping: Option<Striping>,
        /// A directory's hint for new files.
        pub hint: Option<StripingHint>,
        /// A directory's parent (the root's is itself); 0 for anything else.
        pub parent: Id,
        /// Whether it has any extended attributes: most have none, and nobody needs to ask.
        pub has_xattrs: bool,
        /// How mounts keep what they know of it: the number of a [`Consistency`], or 0 where the
        /// mount decides. What is made in a directory gets the directory's.
        pub consistency: u8,
    }
}

impl Inode {
    /// Its own consistency mode; none where the mount decides.
    pub fn consistency(&self) -> Option<Consistency> {
        Consistency::from_number(self.consistency)
    }

    /// How much of it may lie with it, in bytes.
    pub fn inline_max(&self) -> u64 {
        self.striping.as_ref().map_or(0, distribution::inline_bytes)
    }
}

record! {
    /// On whose behalf. Only trusted peers send operations, so this is believed.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    pub struct Caller for () {
        /// User.
        pub uid: u32,
        /// Primary group.
        pub gid: u32,
        /// All groups.
        pub groups: List<u32>,
    }
}

record! {
    /// One operation with what makes it repeatable.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Request for () {
        /// The client's session, from `Hello`; 0 for reads and for Hello itself.
        pub session: u64,
        /// Number of this mutation within the session, from 1; 0 for reads.
        pub seq: u64,
        /// Every mutation below this number has been answered and may be forgotten.
        pub seq_done: u64,
        /// The server's clock when it was admitted. What the client puts here is overwritten.
        pub now: Nanos,
        /// Who asks.
        pub caller: Caller,
        /// What is asked.
        pub op: Op,
    }
}

record! {
    /// A directory entry, with the inode when it was asked for.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DirEntry for () {
        /// The file.
        pub id: Id,
        /// File type: the S_IFMT bits of the mode shifted right by 12, which is readdir's d_type.
        pub kind: u8,
        /// Position to go on after.
        pub cookie: u64,
        /// The name.
        pub name: Name,
        /// The inode, in `plus` listings.
        pub inode: Option<Inode>,
    }
}

record! {
    /// What lies with a file's inode: of a small file, all that it holds.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Content for () {
        /// The file.
        pub id: Id,
        /// Its bytes: as many as its size says, or as lie with the inode at most.
        pub data: Payload,
    }
}

record! {
    /// A piece of a file's inline part.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InlinePiece for () {
        /// Where it begins.
        pub offset: u32,
        /// Its bytes.
        pub bytes: u32,
    }
}

impl InlinePiece {
    /// The byte after the last.
    pub fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.bytes)
    }
}

record! {
    /// A lock, asked for or held. Ends are inclusive.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RangeLock for () {
        /// Exclusive (a write lock), else shared.
        pub exclusive: bool,
        /// flock's whole-file space rather than fcntl's: the two never meet.
        pub whole: bool,
        /// First byte.
        pub start: u64,
        /// Last byte, inclusive; u64::MAX for the end of the file.
        pub end: u64,
        /// Tells owners of one session apart (FUSE's lock owner).
        pub owner: u64,
        /// Process, for F_GETLK.
        pub pid: u32,
    }
}

impl RangeLock {
    /// A write lock on all bytes, in fcntl's space.
    pub fn on_all_bytes(owner: u64, pid: u32) -> RangeLock {
        RangeLock { exclusive: true, whole: false, start: 0, end: u64::MAX, owner, pid }
    }

    /// flock's exclusive lock.
    pub fn on_file(owner: u64, pid: u32) -> RangeLock {
        RangeLock { whole: true, ..RangeLock::on_all_bytes(owner, pid) }
    }
}

record! {
    /// What a client may remember, until it is told that it has changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct Lease for () {
        /// The file.
        pub id: Id,
        /// Under which name a directory is, rather than what a file is and holds: attributes, and
        /// the names in a directory.
        pub place: bool,
    }
}

record! {
    /// An answer on the wire.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Answer for () {
        /// The answer.
        pub reply: Reply,
        /// Number of the lease on all that it tells of, to be compared with that of
        /// [`Reply::Revoked`]; 0 when it is not to be remembered.
        pub grant: u64,
        /// The directory in which the operation has changed a name, where that is granted.
        pub dir: Option<Inode>,
    }
}

operations! {
    /// An operation. Behind its fields stands what holds for it: whether it is `logged`, `grows` the
    /// store and so on, the files whose `content` changes, and the names that it `makes` or `moves` (`content_all`,
    /// `moves_all` and `moves_each`, of lists).
    pub enum Op for () {
        /// opens a session (0), logged so that its number outlives the server, or comes back to one
        /// after a lost connection or a restart; `files` are open in it, once per listing, and
        /// nothing else is (after a restart locks are taken again, with Lock); of its appends those go
        /// on whose Reserve is in `appends`, by its number
        1 Hello { session: u64, files: List<u64>, appends: List<u64>, name: Name } [logged],
        /// volatile: ends a session at once: its opens and locks go
        2 Bye {},
        /// read: down one or more names from a directory; `..` goes up, at the root it stays
        3 Walk { from: u64, names: List<Name> },
        /// read: attributes
        4 Getattr { id: u64 },
        /// changes attributes; SIZE truncates (raises the epoch when it may cut data) or extends
        5 Setattr { id: u64, mask: u32, mode: u32, uid: u32, gid: u32, size: u64, atime: u64,
                    mtime: u64 } [logged owner] content(id),
        /// creates a file of any type (S_IFMT of mode). A regular file is opened in the session when
        /// `open`. Without `exclusive` an existing regular file is opened instead.
        6 Create { parent: u64, name: Name, mode: u32, gid: u32, rdev: u64, target: Name,
                   exclusive: bool, open: bool, access: u8 } [logged grows] makes(parent name),
        /// volatile: opens for reading (access bit 4), writing (2), executing (1): checks
        /// permission, keeps the file alive in the session until Release
        7 Open { id: u64, access: u8 },
        /// volatile: one open less
        8 Release { id: u64 },
        /// removes a name; a directory when `dir`
        9 Unlink { parent: u64, name: Name, dir: bool } [logged opens] moves(parent name),
        /// renames, see `rename`
        10 Rename { parent: u64, name: Name, to: u64, to_name: Name, flags: u32 } [logged opens]
                    moves(parent name, to to_name),
        /// a hard link
        11 Link { id: u64, parent: u64, name: Name } [logged grows] content(id) makes(parent name),
        /// read: entries after `cookie` and not above `limit`, together at most about `bytes_max`;
        /// `.` and `..` are entries 1 and 2
        12 Readdir { id: u64, cookie: u64, limit: u64, bytes_max: u32, plus: bool },
        /// read: the store's totals
        13 Statfs {},
        /// a write ended at `end`: the size becomes at least that. `hole`: it began beyond the size.
        /// 0: it begins, beyond what lies with the inode of a file that ends there
        14 Extend { id: u64, epoch: u32, end: u64, hole: bool } [logged] content(id),
        /// takes `length` bytes at the end for an append; the size moves with Append's commit
        15 Reserve { id: u64, length: u64 } [logged] content(id),
        /// the append at `offset` is done; answered when the size covers it (the wait is volatile)
        16 Commit { id: u64, offset: u64, length: u64 } [logged] content(id),
        /// volatile: takes a lock, waiting for it when `wait`; `again` tells one held before the server
        /// restarted, which goes before all new ones
        17 Lock { id: u64, lock: RangeLock, wait: bool, again: bool },
        /// volatile: gives back what of the owner's locks lies in the range
        18 Unlock { id: u64, lock: RangeLock },
        /// read: what would stand in the way of the lock
        19 Getlock { id: u64, lock: RangeLock },
        /// volatile: everything acknowledged so far reaches stable storage before the answer
        20 Fsync { id: u64 },
        /// sets a directory's hint, or an empty file's striping
        21 SetStriping { id: u64, hint: StripingHint } [logged grows opens] content(id),
        /// server's own: the objects of an unlinked file (or of one cut, `epoch`) are gone everywhere
        22 Reclaimed { id: u64, epoch: u32 } [logged own],
        /// server's own: a session is over; its appends end
        23 SessionOver { session: u64 } [logged own],
        /// content was written (sent at most once a second and at fsync and close)
        24 Touch { id: u64 } [logged] content(id),
        /// the client has written all of the file, up to `size` in this epoch: it has no holes, unless it has changed since
        /// or somebody has punched it
        25 Dense { id: u64, epoch: u32, size: u64 } [logged] content(id),
        /// read: the server list and identity
        26 Cluster {},
        /// read: the ids that exist among these (for reconciling objects)
        27 Exist { ids: List<u64> },
        /// server's own: an unlinked file that nobody has open any more goes for good
        28 Drop { id: u64 } [logged own],
        /// volatile: a data server is behind the file's epoch (it lost a cut with its power): cut again
        29 Recut { id: u64, epoch: u32 },
        /// read: one name, its directory, and up to `ahead` entries that come after it in a listing, or with [`BY_NAME`]
        /// by their names; all of a directory that has no more than that. With `content` what the first of these files
        /// hold comes with them, as far as it lies with their inodes
        30 Lookup { parent: u64, name: Name, ahead: u32, content: bool },
        /// volatile: waits until leases are taken back; `acked` is the last that was heard of
        31 Revokes { acked: u64 },
        /// volatile: more files for the Hello that follows on this connection, which does not hold all
        32 StillOpen { files: List<u64> },
        /// volatile: one open less of each
        33 Close { ids: List<u64> },
        /// raises the epoch and cuts nothing: whoever goes on writing at the old one is refused, by the I/O servers
        /// too. Answered when they know; the epoch is raised even if one of them does not answer
        34 Fence { id: u64 } [logged] content(id),
        /// read: looks at up to `rows_max` rows after `after`, see [`check::table`]; inodes and links
        /// are told of the window from `low` up to, not including, `high`
        60 Check { table: u8, after: Name, rows_max: u32, low: u64, high: u64 } [opens],
        /// read: what there is to know of these files
        61 Look { ids: List<u64> },
        /// repairs what a check has found, if it is still so
        62 Mend { finding: check::Finding } [logged opens owner],
        /// read: rows as they are, from `from` on, together about `bytes_max`
        63 Rows { from: Name, bytes_max: u32 },
        /// server's own: an I/O server keeps its objects in this store from now on
        80 KnowStore { server: u16, store: Name } [logged own],
        /// volatile: what an I/O server held before it got the store that it has now is lost, and the
        /// server may serve again
        81 AcceptStore { server: u16 },
        /// volatile: the store that an I/O server has belongs to this metadata server, whatever it says itself: the
        /// metadata came back from a copy
        83 AdoptStore { server: u16 },
        /// volatile: the same, but reads and writes of lost objects fail until the loss is accepted, file by file
        95 ReplaceStore { server: u16 },
        /// server's own: the metadata is older than what the I/O servers hold
        84 Restored {} [logged own],
        /// read: the stores of the I/O servers, in index order
        82 Stores {},
        /// server's own: why an I/O server gets no new files: bits of [`crate::meta::place`]
        85 Place { server: u16, state: u8 } [logged own],
        /// volatile: closes (1) an I/O server to new files, or opens (0) it again
        86 SetPlace { server: u16, closed: u8 },
        /// read: which I/O servers get new files, in index order
        87 Places {},
        /// read: the chains that stripings name, and the I/O servers that these name, both in index order
        96 Chains {},
        /// server's own: the chain's generation is raised, as if it had changed
        97 RaiseChain { chain: u16 } [logged own],
        /// volatile: from the answer on nobody reads or writes by the chain who has not asked for the table since
        98 FenceChain { chain: u16 },
        /// volatile: nobody serves the chain from the answer on, for a while; ESTALE where it is not at this generation any more
        120 HoldChain { chain: u16, server: u16, generation: u32, stay: u32 },
        /// volatile: the chain of this hold is given back to the server that had it
        121 ReleaseChain { hold: u64 },
        /// volatile: the server has all of the chain in this store, and serves it from now on; ESTALE where it was given back
        122 SwitchChain { chain: u16, server: u16, generation: u32, stay: u32, hold: u64, store: Name },
        /// server's own: the same
        123 MoveChain { chain: u16, server: u16, generation: u32, store: Name } [logged own],
        /// server's own: a server has nothing any more of a chain that was moved away from it at this generation
        124 ChainDropped { chain: u16, server: u16, generation: u32 } [logged own],
        /// server's own: one more I/O server, at the end of the list
        100 AddServer { name: Name } [logged own],
        /// volatile: an I/O server that the configuration lists behind the known ones gets new files from now on
        101 AddServerListed { name: Name },
        /// volatile: an I/O server on which no file is laid out leaves the cluster for good; EBUSY where one is
        99 RemoveServer { server: u16 },
        /// server's own: a task of moving files, in the place of the one of its kind and server
        102 KeepTask { task: Task } [logged own],
        /// volatile: begins such a task, or changes it: `act` is one of [`task`]. Rate 0: as it was
        103 AskTask { kind: u8, server: u16, act: u8, rate: u64 },
        /// read: the tasks of moving files, and how far they are
        104 Tasks {},
        /// sets the limits of a user or a group; what it owns is not looked at
        88 SetQuota { quota: Quota } [logged grows],
        /// makes a directory that of a project: what comes to be below it is counted. Answered with the project
        105 MakeProject { dir: u64 } [logged grows],
        /// a file belongs to this project from now on, 0: to none
        106 SetProject { id: u64, project: u32 } [logged],
        /// all below a project's directory was gone through: its limits hold; `whole` 0: the project is over
        107 EndProject { number: u32, whole: bool } [logged],
        /// read: the project directories
        108 Projects {},
        /// counts anew what everybody owns
        89 Recount {} [logged],
        /// server's own: counts up to `rows_max` more of the files that were there before the first limit
        90 CountOwned { rows_max: u32 } [logged own],
        /// read: limits, and what is owned, from this user (kind 0) or group (1) on: all for the owner of the root
        /// directory, else the caller's
        91 Quotas { kind: u8, id: u32, count_max: u16 },
        /// by the owner of the root directory: a file that nobody has open is about to be copied by whoever asks. Its epoch is
        /// raised on all its servers before this is answered, as it is then
        94 BeginMove { id: u64 } [logged opens] content(id),
        /// the same file, if nobody has opened it since and it is at this epoch and version, lies on these I/O servers from
        /// now on, where it was staged for the next epoch. Answered when it is installed there
        92 Move { id: u64, epoch: u32, version: u64, servers: List<u16> } [logged opens] content(id),
        /// server's own: the objects of a file that was cut are at this epoch everywhere. What is to be removed up to that epoch
        /// stays to be removed: a file that has moved has both
        93 CutDone { id: u64, epoch: u32 } [logged own],
        /// read: as Readdir with attributes; with what the first files hold that lie with their inodes, up to `contents` bytes, where
        /// the answer is granted
        39 ListContents { id: u64, cookie: u64, limit: u64, bytes_max: u32, contents: u32 },
        /// sets an extended attribute; flags: see `xattr`
        40 Setxattr { id: u64, name: Name, value: Payload, flags: u32 } [logged grows owner] content(id),
        /// removes an extended attribute
        41 Removexattr { id: u64, name: Name } [logged] content(id),
        /// read: an extended attribute's value
        42 Getxattr { id: u64, name: Name },
        /// read: the names of the extended attributes that the caller may see
        43 Listxattr { id: u64 },
        /// makes a regular file without a name, opened in the session; a later Link may name it
        44 Tmpfile { parent: u64, mode: u32, gid: u32, access: u8 } [logged grows],
        /// sets how mounts keep what they know of a file, and of what is made in a directory
        45 SetConsistency { id: u64, consistency: u8 } [logged] content(id),
        /// volatile: leaves the session alone with these files of a directory, and with the directory, where the answer is
        /// granted: see Alone. Answered with the directory
        46 Take { dir: u64, ids: List<u64> } [takes],
        /// removes names that the session has removed late, as Unlink does, each if it leads to this file still: Done, or the files
        /// of those that do not
        47 Remove { dir: u64, ids: List<u64>, names: List<Name> } [logged opens] moves_all(dir names),
        /// changes names in directories that the session has changed late, one after the other, each by its [`step`]: gives the
        /// file this name, as Link does, or takes it away. Steps says what came of each; a full store has some room for
        /// who is alone with the directories and the files
        48 Names { dirs: List<u64>, steps: List<u8>, ids: List<u64>, names: List<Name> } [logged opens] content_all(ids)
                 moves_each(dirs names),
        /// makes a directory, as Create does, and leaves the session alone with it, as Alone does, where the answer is granted and
        /// has numbers. Answered with that directory
        49 MakeDir { parent: u64, name: Name, mode: u32, gid: u32, count: u16 } [logged grows] makes(parent name),
        /// writes pieces of what lies with the inode, all of the same write; the size becomes at least
        /// `end` as with Extend (0: it stays). `hole`: what the write has beyond leaves holes
        50 WriteInline { id: u64, epoch: u32, end: u64, hole: bool, pieces: List<InlinePiece>,
                         data: Payload } [logged grows] content(id),
        /// appends where all of it lies with the inode and no other append is under way; else ERANGE
        51 AppendInline { id: u64, data: Payload } [logged grows] content(id),
        /// read: attributes with up to `count` bytes of what lies with the inode
        52 ReadInline { id: u64, offset: u32, count: u32 },
        /// volatile: down the names, then as Open, with up to `count` bytes of what lies with the
        /// inode; without names `from` itself
        53 OpenRead { from: u64, names: List<Name>, access: u8, count: u32 },
        /// creates a regular file (or, not exclusive, finds it), opens it, and writes what of `data`
        /// lies with the inode, when the file is new
        54 CreateWrite { parent: u64, name: Name, mode: u32, gid: u32, exclusive: bool, access: u8,
                         data: Payload } [logged grows] makes(parent name),
        /// what the session did late to a file that it is alone with: writes as WriteInline (unless there are no pieces),
        /// then sets attributes as Setattr, but no size and no other owner. `last`: from then on it is not alone with it
        55 Amend { id: u64, epoch: u32, end: u64, hole: bool, pieces: List<InlinePiece>, data: Payload, mask: u32, mode: u32,
                   uid: u32, gid: u32, atime: u64, mtime: u64, last: bool } [logged grows owner] content(id),
        /// the append whose Reserve had the number `reserve` is done; answered when the size covers it (the wait is
        /// volatile). `hole`: not all of it was written, so the file has a hole there. Commit, which clients of before
        /// send, tells neither
        56 EndAppend { id: u64, reserve: u64, offset: u64, length: u64, hole: bool } [logged] content(id),
        /// read: whether quotas let the file reach to `end`; EDQUOT if not. Asked before space is taken, of which the size
        /// is told when it is there
        57 Room { id: u64, end: u64 },
        /// leaves the session alone with a directory, where quotas count nothing and the answer is granted: nobody else is
        /// told of what is in it before that is taken back. Answered with up to `count` numbers of files to be made there
        58 Alone { dir: u64, count: u16 } [logged grows] content(dir),
        /// makes a regular file that its session has made late in a directory that it is alone with, by a number that Alone
        /// has given and with the layout that came with it, opens it, writes as Amend does (unless there are no pieces) and
        /// sets times and `set_mode` by `mask` as Setattr does. `at`: when it was made, by the server's clock. `last`: the session
        /// is not alone with the file
        59 Make { id: u64, parent: u64, name: Name, mode: u32, gid: u32, at: Nanos, striping: Striping, end: u64, hole: bool,
                  pieces: List<InlinePiece>, data: Payload, mask: u32, set_mode: u32, atime: u64, mtime: u64,
                  last: bool } [logged grows] content(id) makes(parent name),
    }
}

messages! {
    /// An answer.
    pub enum Reply for () {
        /// it failed, with an errno and a reason
        1 Error { code: u32, reason: Name },
        /// done
        2 Done {},
        /// the session's number; `known` when it was there already; the server's start counter, and which
        /// start of its machine it runs in
        3 Session { session: u64, known: bool, boot: u64, machine: u64 },
        /// an inode
        4 Node { inode: Inode },
        /// the inodes a walk came by, fewer than asked when a later name is missing
        5 Nodes { inodes: List<Inode> },
        /// entries, and whether the end was reached; `limit` is the last cookie in use
        6 Entries { entries: List<DirEntry>, end: bool, limit: u64 },
        /// the same, and all that lies with the inodes of some of these files
        39 Listed { entries: List<DirEntry>, end: bool, limit: u64, contents: List<Content> },
        /// files in use, directories in use, bytes of all sizes
        7 Totals { files: u64, bytes: u64 },
        /// where an append goes
        8 Offset { offset: u64, epoch: u32 },
        /// a lock in the way, if any
        9 Locked { lock: Option<RangeLock> },
        /// the ids that exist
        10 Ids { ids: List<u64> },
        /// created (or found, when not exclusive)
        11 Created { inode: Inode, created: bool },
        /// the cluster: its id, and names of I/O servers in index order
        12 Cluster { id: Name, servers: List<Name> },
        /// a name's inode, if there is one, and entries with their inodes; `complete` when they are all.
        /// `contents`: all that lies with the inodes of some of these files
        13 Found { dir: Inode, inode: Option<Inode>, entries: List<DirEntry>, complete: bool,
                   contents: List<Content> },
        /// these leases are over
        14 Revoked { number: u64, leases: List<Lease> },
        /// a page of a check
        30 Checked { page: check::Page },
        /// what is known of files, in the order asked; the server's clock
        31 Looked { files: List<check::Looked>, now: Nanos },
        /// rows, and whether they were the last
        32 Rows { rows: List<check::Row>, end: bool },
        /// the stores of the I/O servers
        82 Stores { stores: List<StoreState> },
        /// which I/O servers get new files
        87 Places { places: List<Place> },
        /// the tasks of moving files
        104 Tasks { tasks: List<Task> },
        /// nobody serves the chain; the generation with which it is to serve next
        120 Held { generation: u32, hold: u64 },
        /// the chains, and the names of the I/O servers
        96 Chains { servers: List<Name>, chains: List<Chain> },
        /// limits, and what is owned, in order, none where there are no more; whether all files are counted
        91 Quotas { quotas: List<Quota>, is_whole: bool },
        /// project directories
        108 Projects { projects: List<Project> },
        /// an extended attribute's value
        20 Xattr { value: Payload },
        /// names of extended attributes
        21 XattrNames { names: List<Name> },
        /// the directory, the first of as many numbers in a row as there are layouts, with these, and the server's clock
        58 Alone { dir: Inode, first: u64, stripings: List<Striping>, now: Nanos },
        /// of each step 0, or the errno with which it was refused; and the directories as they are then, where that is granted
        48 Steps { codes: List<u32>, dirs: List<Inode> },
        /// an inode with bytes of what lies with it
        25 Inline { inode: Inode, data: Payload },
    }
}

macro_rules! numbered_field {
    ($type:ident) => {
        impl Field<()> for $type {
            fn size(&self, _: ()) -> usize {
                1 + self.body_size(())
            }
            fn put(&self, _: (), out: &mut Vec<u8>) {
                out.push(self.number());
                self.put_body((), out);
            }
            fn get(_: (), from: &mut Reader) -> Result<Self, covey_wire::Blame> {
                let number = from.u8()?;
                $type::take_body(number, (), from)
            }
        }
    };
}
numbered_field!(Op);
numbered_field!(Reply);
