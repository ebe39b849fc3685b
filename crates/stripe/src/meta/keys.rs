//! The map's rows: how keys are made so that they sort, and what their values hold.
//!
//! ```text
//!   's' word                  superblock, counters, start counter, losses of power, the I/O
//!                             servers' stores, which of these get new files, tasks, projects
//!   'i' id                    Stored: the inode with what clients never see
//!   'n' parent name           Named: where a name leads
//!   'c' parent cookie         Listed: the same entry in the order of listings
//!   'o' id                    a file without a name that may still be open (value: empty, or
//!                             NAMEABLE for one that never had a name and may get one)
//!   'r' id epoch              Striping of objects that must be removed
//!   't' id epoch              Cut that data servers may not have seen
//!   'a' id                    List<Reserved>: appends under way
//!   'e' session               Kept: a session with its stored replies
//!   'd' id                    Payload: what of a file's content lies with its inode
//!   'q' kind id               Quota: what a user or a group owns, and how much it may
//!   's' "chain" index         Chain: its generation and members; none for one that an older version left
//!   'x' id name               Payload: an extended attribute's value
//! ```
//!
//! Numbers in keys are big-endian, so that they sort as numbers. Every value begins with a version
//! byte.

use super::{Fault, Store};
use crate::kv::Kv;
use crate::ops::{Id, Inode, Striping};
use bytes::{Buf, BufMut};
use covey_ninep::tree::Errno;
use covey_wire::{Field, List, Name, Reader, record};

/// The version byte that rows are written with.
pub(super) const ROW_VERSION: u8 = 1;

/// The value of an orphan's row that Link may give a name.
pub(super) const NAMEABLE: &[u8] = b"nameable";

/// What stands before a Payload's bytes in its row: the version and the length.
pub(super) const PAYLOAD_HEADER_BYTES: usize = 5;

pub(super) const SUPER: &[u8] = b"ssuper";
pub(super) const COUNTERS: &[u8] = b"scounters";
pub(super) const BOOT: &[u8] = b"sboot";
/// How often the machine has lost its power; none while it has not.
pub(super) const LOSSES: &[u8] = b"slosses";
/// There as soon as epochs are skipped after a loss of power: see [`Store::opened_on`].
pub(super) const SKIPS: &[u8] = b"sskips";
/// List<Name>: the store of each I/O server by its index, empty for one that was never met, `unused` for
/// one that was added and not met yet.
pub(super) const STORES: &[u8] = b"sstores";
/// List<u8>: why each I/O server gets no new files, by its index: bits of [`super::place`]; none while all get them.
pub(super) const CHAINS_EACH: &[u8] = b"sper-server";
pub(super) const DROPS: &[u8] = b"sdrops";
pub(super) const PLACES: &[u8] = b"splaces";

/// List<Task>: what moves files, of each kind and server the last; none before the first.
pub(super) const TASKS: &[u8] = b"stasks";

/// Projects; none before the first.
pub(super) const PROJECTS: &[u8] = b"sprojects";

/// What the keys of chains begin with.
const CHAIN: &[u8] = b"schain";

/// Files up to this number are counted for quotas; none while there are no limits.
pub(super) const QUOTAS: &[u8] = b"squotas";

record! {
    /// What makes a map a metadata store.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Superblock for () {
        /// Says that this is ours.
        pub magic: Name,
        /// The store's format.
        pub format: u32,
        /// Which cluster.
        pub cluster: Name,
        /// I/O servers in the order that stripings index them.
        pub servers: List<Name>,
    }
}

record! {
    /// Counters kept in memory and written at checkpoints; replaying the log rebuilds them.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Counters for () {
        /// The next file's number.
        pub id_next: u64,
        /// The next session's number.
        pub session_next: u64,
        /// Inodes in use.
        pub files: u64,
        /// Sizes of regular files, added up; modulo 2^64, for sparse files can be that large.
        pub bytes: u64,
    }
}

record! {
    /// An inode with what clients never see.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Stored for () {
        /// What clients see.
        pub inode: Inode,
        /// A directory's next cookie.
        pub cookie_next: u64,
        /// Where a regular file's next append goes; at least its size.
        pub tail: u64,
        /// How many losses of power there had been when the file was made or last cut. After another
        /// one its size may be older than what I/O servers hold of it.
        pub losses: u64,
        /// What happened to a regular file since it was last cut: bits of [`mark`].
        pub marks: u8,
        /// Which project it belongs to; 0 for none.
        pub project: Project,
    }
}

/// A number that takes no byte where it is 0, as in rows that were written before there were any: it must come last. Older
/// versions cannot read rows that have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Project(pub u32);

impl Field<()> for Project {
    fn size(&self, _: ()) -> usize {
        if self.0 == 0 { 0 } else { 4 }
    }
    fn put(&self, _: (), out: &mut Vec<u8>) {
        if self.0 != 0 {
            self.0.put((), out);
        }
    }
    fn get(_: (), from: &mut Reader) -> Result<Self, covey_wire::Blame> {
        if from.remaining() == 0 { Ok(Project(0)) } else { Field::<()>::get((), from).map(Project) }
    }
}

record! {
    /// The project directories.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Projects for () {
        /// The number that was given last.
        pub last: u32,
        /// All of them.
        pub projects: List<crate::ops::Project>,
    }
}

/// What happened to a regular file since it was last cut. Older versions knew the first only, as a bool.
pub(super) mod mark {
    /// Somebody began to write beyond what lies with the inode: the I/O servers may hold something
    /// although the size does not say so.
    pub const BEYOND: u8 = 1;
    /// Somebody made a hole in what was there, or one was found: nobody who has written the whole file can
    /// know that it is there. Only a cut to nothing takes it away.
    pub const PUNCHED: u8 = 2;
    /// It lay elsewhere once, and has left something there.
    pub const MOVED: u8 = 4;
}

record! {
    /// Where a name leads.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Named for () {
        /// The file.
        pub id: Id,
        /// Its type: the S_IFMT bits shifted right by 12.
        pub kind: u8,
        /// Its place in listings.
        pub cookie: u64,
    }
}

record! {
    /// An entry in the order of listings.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Listed for () {
        /// The file.
        pub id: Id,
        /// Its type.
        pub kind: u8,
        /// Its name.
        pub name: Name,
    }
}

record! {
    /// A truncation that data servers may not have seen.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CutRow for () {
        /// The size it left.
        pub size: u64,
        /// Where the objects are.
        pub striping: Striping,
    }
}

record! {
    /// Bytes set aside for an append.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Reserved for () {
        /// First byte.
        pub offset: u64,
        /// The byte after the last.
        pub end: u64,
        /// Whose.
        pub session: u64,
        /// The number of the Reserve: it is open until the append is over.
        pub seq: u64,
        /// Its data is written; an earlier append keeps it from showing.
        pub done: bool,
    }
}

impl<K: Kv> Store<K> {
    pub(super) fn row<T: Field>(&self, key: &[u8]) -> Result<Option<T>, Fault> {
        row(&self.kv, key).map_err(Fault::Broken)
    }

    pub(super) fn put_row<T: Field>(&mut self, key: &[u8], value: &T) -> Result<(), Fault> {
        self.wrote = true;
        put_row(&mut self.kv, key, value).map_err(Fault::Broken)
    }

    /// Makes a row without a value.
    pub(super) fn put_mark(&mut self, key: &[u8]) -> Result<(), Fault> {
        self.wrote = true;
        self.kv.put(key, b"").map_err(Fault::Broken)
    }

    pub(super) fn delete(&mut self, key: &[u8]) -> Result<bool, Fault> {
        self.wrote = true;
        self.kv.delete(key).map_err(Fault::Broken)
    }

    /// Rows from `from` on that begin with `prefix`, at most `count_max`: keys without the prefix.
    pub(super) fn rows<T: Field>(
        &self,
        prefix: &[u8],
        from: &[u8],
        count_max: usize,
    ) -> Result<Vec<(Vec<u8>, T)>, Fault> {
        let mut rows = Vec::new();
        let mut bad = None;
        let mut visit = |key: &[u8], value: &[u8]| {
            let Some(rest) = key.strip_prefix(prefix) else { return false };
            if rows.len() == count_max {
                return false;
            }
            match decode(value.to_vec()) {
                Ok(row) => rows.push((rest.to_vec(), row)),
                Err(error) => bad = Some(error),
            }
            bad.is_none()
        };
        self.kv.scan(from, &mut visit).map_err(Fault::Broken)?;
        match bad {
            Some(error) => Err(Fault::Broken(error)),
            None => Ok(rows),
        }
    }
}

pub(super) fn row<T: Field>(kv: &impl Kv, key: &[u8]) -> Result<Option<T>, Errno> {
    kv.get(key)?.map(decode).transpose()
}

pub(super) fn put_row<T: Field>(kv: &mut impl Kv, key: &[u8], value: &T) -> Result<(), Errno> {
    let mut row = Vec::with_capacity(1 + value.size(()));
    row.push(ROW_VERSION);
    value.put((), &mut row);
    kv.put(key, &row)
}

/// A value's record. What we wrote ourselves and cannot read is damage: EIO.
fn decode<T: Field>(value: Vec<u8>) -> Result<T, Errno> {
    let mut reader = Reader::new(value.into());
    let damaged = |what: String| Errno::because(Errno::EIO, format!("damaged row: {what}"));
    match reader.u8().map_err(|blame| damaged(blame.to_string()))? {
        ROW_VERSION => {}
        other => return Err(damaged(format!("row version {other}, only {ROW_VERSION} is known"))),
    }
    let record = T::get((), &mut reader).map_err(|blame| damaged(blame.to_string()))?;
    reader.finish().map_err(|blame| damaged(blame.to_string()))?;
    Ok(record)
}

pub(super) fn inode(id: Id) -> Vec<u8> {
    numbered(b'i', id)
}

pub(super) fn name(parent: Id, name: &[u8]) -> Vec<u8> {
    let mut key = numbered(b'n', parent);
    key.extend_from_slice(name);
    key
}

pub(super) fn cookie(parent: Id, cookie: u64) -> Vec<u8> {
    numbered_pair(b'c', parent, cookie)
}

pub(super) fn orphan(id: Id) -> Vec<u8> {
    numbered(b'o', id)
}

pub(super) fn reclaim(id: Id, epoch: u32) -> Vec<u8> {
    with_epoch(b'r', id, epoch)
}

pub(super) fn cut(id: Id, epoch: u32) -> Vec<u8> {
    with_epoch(b't', id, epoch)
}

pub(super) fn inline(id: Id) -> Vec<u8> {
    numbered(b'd', id)
}

pub(super) fn appends(id: Id) -> Vec<u8> {
    numbered(b'a', id)
}

pub(super) fn xattr(id: Id, name: &[u8]) -> Vec<u8> {
    let mut key = numbered(b'x', id);
    key.extend_from_slice(name);
    key
}

/// Among the words of the store, which older versions pass over.
pub(super) fn chain(index: u16) -> Vec<u8> {
    let mut key = CHAIN.to_vec();
    key.put_u16(index);
    key
}

/// The index of the chain that a row is of.
pub(super) fn chain_of(key: &[u8]) -> Option<u16> {
    let mut rest = key.strip_prefix(CHAIN)?;
    rest.try_get_u16().ok().filter(|_| rest.is_empty())
}

pub(super) fn session(session: u64) -> Vec<u8> {
    numbered(b'e', session)
}

/// A table's letter and a number.
pub(super) fn numbered(table: u8, number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    key.push(table);
    key.put_u64(number);
    key
}

fn numbered_pair(table: u8, first: u64, second: u64) -> Vec<u8> {
    let mut key = numbered(table, first);
    key.put_u64(second);
    key
}

fn with_epoch(table: u8, id: Id, epoch: u32) -> Vec<u8> {
    let mut key = numbered(table, id);
    key.put_u32(epoch);
    key
}

/// The number at the front of a key's rest.
pub(super) fn number_of(mut rest: &[u8]) -> Result<u64, Fault> {
    rest.try_get_u64().map_err(|_| short_key())
}

/// The number and the epoch that a key's rest consists of.
pub(super) fn epoch_of(mut rest: &[u8]) -> Result<(Id, u32), Fault> {
    let id = rest.try_get_u64().map_err(|_| short_key())?;
    Ok((id, rest.try_get_u32().map_err(|_| short_key())?))
}

fn short_key() -> Fault {
    Fault::Broken(Errno::because(Errno::EIO, "damaged row: its key is too short"))
}
