//! Rows of a store as records that can be shown: what `covey fs-dump` writes.

use super::keys::{self, Counters, CutRow, Named, Reserved, Stored, Superblock};
use super::session::Kept;
use crate::chain::Chain;
use crate::ops::{Id, Inode, Project, Quota, Striping, Task};
use covey_wire::{Field, List, Name, Payload, Reader};

/// A row, read.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Record {
    /// What the store is.
    Superblock { format: u32, cluster: Name, servers: Vec<Name> },
    /// Numbers to come, and totals.
    Counters { id_next: u64, session_next: u64, files: u64, bytes: u64 },
    /// How often the store was opened.
    Boot { count: u64 },
    /// How often the machine has lost its power.
    Losses { count: u64 },
    /// The stores of the I/O servers by index.
    Stores { stores: Vec<Name> },
    /// Why I/O servers get no new files, by index: see [`super::place`].
    Places { places: Vec<u8> },
    /// A chain of I/O servers.
    Chain { index: u16, chain: Chain },
    /// A file.
    Inode { inode: Box<Inode>, cookie_next: u64, tail: u64, project: u32 },
    /// Where a name leads.
    Name { parent: Id, name: Name, id: Id, kind: u8, cookie: u64 },
    /// An unlinked file that may still be open.
    Orphan { id: Id },
    /// Objects that must be removed.
    Reclaim { id: Id, epoch: u32, striping: Striping },
    /// Objects that must be cut.
    Cut { id: Id, epoch: u32, size: u64, striping: Striping },
    /// Bytes set aside for an append.
    Append { id: Id, offset: u64, end: u64, session: u64, done: bool },
    /// Directories that have a quota.
    Projects { projects: Vec<Project> },
    /// Files that are being moved.
    Tasks { tasks: Vec<Task> },
    /// A client.
    Session { session: u64, name: Name, answered: u64, kept: usize },
    /// What of a file's content lies with its inode.
    Content { id: Id, bytes: Vec<u8> },
    /// What a user or a group owns, and how much it may.
    Quota { quota: Quota },
    /// Files up to this one are counted for quotas.
    Counted { up_to: Id },
    /// An extended attribute.
    Xattr { id: Id, name: Name, value: Vec<u8> },
    /// What this version does not know, or cannot read: the row as it is.
    Unknown { key: Vec<u8>, value: Vec<u8> },
}

/// Reads a row; most are one record, appends of a file may be several. The order of listings follows
/// from the names and is left out.
pub fn records(key: &[u8], value: &[u8]) -> Vec<Record> {
    match read(key, value) {
        Some(records) => records,
        None => vec![Record::Unknown { key: key.to_vec(), value: value.to_vec() }],
    }
}

fn read(key: &[u8], value: &[u8]) -> Option<Vec<Record>> {
    let id = || keys::number_of(key.get(1..)?).ok();
    let pair = || keys::epoch_of(key.get(1..)?).ok();
    Some(vec![match key {
        keys::SUPER => {
            let Superblock { format, cluster, servers, .. } = row(value)?;
            Record::Superblock { format, cluster, servers: servers.0 }
        }
        keys::COUNTERS => {
            let Counters { id_next, session_next, files, bytes } = row(value)?;
            Record::Counters { id_next, session_next, files, bytes }
        }
        keys::BOOT => Record::Boot { count: row(value)? },
        keys::LOSSES => Record::Losses { count: row(value)? },
        keys::STORES => Record::Stores { stores: row::<List<Name>>(value)?.0 },
        keys::QUOTAS => Record::Counted { up_to: row(value)? },
        [b'q', ..] => Record::Quota { quota: row(value)? },
        keys::PROJECTS => {
            let keys::Projects { projects, .. } = row(value)?;
            Record::Projects { projects: projects.0 }
        }
        keys::TASKS => Record::Tasks { tasks: row::<List<Task>>(value)?.0 },
        keys::PLACES => Record::Places { places: row::<List<u8>>(value)?.0 },
        // Of use to a server only.
        keys::CHAINS_EACH | keys::DROPS => return Some(Vec::new()),
        _ if let Some(index) = keys::chain_of(key) => Record::Chain { index, chain: row(value)? },
        [b'i', ..] => {
            let Stored { inode, cookie_next, tail, project, .. } = row(value)?;
            Record::Inode { inode: Box::new(inode), cookie_next, tail, project: project.0 }
        }
        [b'n', ..] => {
            let Named { id: file, kind, cookie } = row(value)?;
            let name = Name::from(key.get(9..)?);
            Record::Name { parent: id()?, name, id: file, kind, cookie }
        }
        keys::SKIPS | [b'c', ..] | [b'g', ..] => return Some(Vec::new()),
        [b'o', ..] => Record::Orphan { id: id()? },
        [b'r', ..] => {
            let (id, epoch) = pair()?;
            Record::Reclaim { id, epoch, striping: row(value)? }
        }
        [b't', ..] => {
            let ((id, epoch), CutRow { size, striping }) = (pair()?, row(value)?);
            Record::Cut { id, epoch, size, striping }
        }
        [b'a', ..] => {
            let (id, List(reserved)): (_, List<Reserved>) = (id()?, row(value)?);
            let append = |one: Reserved| {
                let Reserved { offset, end, session, done, .. } = one;
                Record::Append { id, offset, end, session, done }
            };
            return Some(reserved.into_iter().map(append).collect());
        }
        [b'd', ..] => {
            let bytes: Payload = row(value)?;
            Record::Content { id: id()?, bytes: bytes.into_bytes().to_vec() }
        }
        [b'x', ..] => {
            let (name, value): (_, Payload) = (Name::from(key.get(9..)?), row(value)?);
            Record::Xattr { id: id()?, name, value: value.into_bytes().to_vec() }
        }
        [b'e', ..] => {
            let kept: Kept = row(value)?;
            let (name, answered, kept) = (kept.name, kept.floor, kept.done.0.len());
            Record::Session { session: id()?, name, answered, kept }
        }
        _ => return None,
    }])
}

/// A row's record; None for one that cannot be read.
pub(super) fn row<T: Field>(value: &[u8]) -> Option<T> {
    let mut reader = Reader::new(value.to_vec().into());
    if reader.u8().ok()? != keys::ROW_VERSION {
        return None;
    }
    let record = T::get((), &mut reader).ok()?;
    reader.finish().ok()?;
    Some(record)
}
