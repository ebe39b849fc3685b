//! What is lost, by path: bytes that an I/O server should have, and does not.

use super::{Access, Check, Result, odd};
use crate::distribution::{self, Distribution};
use crate::ops::check::{Finding, Page, table};
use crate::ops::{Id, Inode, Op, ROOT, Reply};
use covey_ninep::tree::Errno;
use covey_wire::Name;
use std::collections::{BTreeMap, BTreeSet};

/// A path from the root.
pub type Path = Vec<u8>;

/// A file that has bytes on an I/O server.
#[derive(Clone, Debug)]
pub struct Held {
    /// The file.
    pub inode: Inode,
    /// Bytes of it that lie on that server; of a file with holes at most so many.
    pub bytes: u64,
    /// Its paths; none for one that is unlinked and still open.
    pub paths: Vec<Path>,
}

/// The files that have bytes on an I/O server, whether they are there or not, in the order of their
/// numbers. Each is held in memory.
pub async fn held_by<A: Access>(access: &A, server: u16) -> Result<Vec<Held>> {
    held_where(access, |inode| bytes_on(inode, server)).await
}

/// The files that are laid out on an I/O server, with bytes there or without.
pub async fn laid_out_on<A: Access>(access: &A, server: u16) -> Result<Vec<Held>> {
    let is_on = |inode: &Inode| inode.striping.as_ref()?.servers.0.contains(&server).then_some(());
    let bytes = |inode: &Inode| is_on(inode).map(|()| bytes_on(inode, server).unwrap_or(0));
    held_where(access, bytes).await
}

async fn held_where<A: Access>(
    access: &A,
    bytes_of: impl Fn(&Inode) -> Option<u64>,
) -> Result<Vec<Held>> {
    let of = |inode: Inode| Some(Held { bytes: bytes_of(&inode)?, inode, paths: Vec::new() });
    let mut held: Vec<Held> = laid_out(access).await?.into_iter().filter_map(of).collect();
    let mut paths = paths(access, &held.iter().map(|one| one.inode.id).collect()).await?;
    for one in &mut held {
        one.paths = paths.remove(&one.inode.id).unwrap_or_default();
    }
    Ok(held)
}

/// The files that are laid out on I/O servers, in the order of their numbers. Each is held in memory.
pub async fn laid_out<A: Access>(access: &A) -> Result<Vec<Inode>> {
    let (mut found, mut after) = (Vec::new(), Name::EMPTY);
    loop {
        let (low, high, rows_max) = (0, Id::MAX, PAGE_ROWS);
        let ask = Op::Check { table: table::HELD, after, rows_max, low, high };
        let Reply::Checked { page } = access.ask(ask).await? else { return Err(odd("Check")) };
        let Page { files, next, end, .. } = page;
        found.extend(files.0);
        if end {
            return Ok(found);
        }
        after = next;
    }
}

/// How many bytes of a file lie on a server; None where none do.
pub fn bytes_on(inode: &Inode, server: u16) -> Option<u64> {
    let striping = inode.striping.as_ref()?;
    let map = distribution::of(striping).ok()?;
    let slots = striping.servers.0.iter().enumerate().filter(|(_, at)| **at == server);
    let bytes = slots.map(|(slot, _)| map.physical_size(slot, inode.size)).sum();
    (bytes > 0).then_some(bytes)
}

/// The paths of files, each with all its names, found by a walk of all directories.
pub async fn paths<A: Access>(
    access: &A,
    wanted: &BTreeSet<Id>,
) -> Result<BTreeMap<Id, Vec<Path>>> {
    let mut found: BTreeMap<Id, Vec<Path>> = BTreeMap::new();
    // One that damage has put into two places is gone through once.
    let mut seen = BTreeSet::from([ROOT]);
    let mut left = if wanted.is_empty() { Vec::new() } else { vec![(ROOT, Path::new())] };
    while let Some((dir, path)) = left.pop() {
        let mut cookie = 0;
        loop {
            let (limit, bytes_max) = (u64::MAX, PAGE_BYTES);
            let list = Op::Readdir { id: dir, cookie, limit, bytes_max, plus: false };
            let (entries, end) = match access.ask(list).await {
                Ok(Reply::Entries { entries, end, .. }) => (entries.0, end),
                Ok(_) => return Err(odd("Readdir")),
                // Removed since, or a name that leads nowhere.
                Err(error) if matches!(error.code(), Errno::ENOENT | Errno::ENOTDIR) => break,
                Err(error) => return Err(error),
            };
            cookie = entries.last().map_or(cookie, |entry| entry.cookie);
            let is_over = end || entries.is_empty();
            for entry in entries {
                if matches!(entry.name.as_bytes(), b"." | b"..") {
                    continue;
                }
                let below = [&path[..], b"/", entry.name.as_bytes()].concat();
                if wanted.contains(&entry.id) {
                    found.entry(entry.id).or_default().push(below.clone());
                }
                if entry.kind == KIND_DIRECTORY && seen.insert(entry.id) {
                    left.push((entry.id, below));
                }
            }
            if is_over {
                break;
            }
        }
    }
    Ok(found)
}

impl<A: Access> Check<'_, A> {
    /// What is lost is told by path. The paths are looked for before anything is repaired: if they
    /// cannot be told, the loss stays as it is.
    pub(super) async fn tell_lost(&mut self, lost: Vec<Finding>) -> Result<()> {
        let mut paths = paths(self.access, &lost.iter().map(|one| one.id).collect()).await?;
        for finding in lost {
            let paths = paths.remove(&finding.id).unwrap_or_default();
            self.found_at(finding, paths).await;
        }
        Ok(())
    }
}

/// Rows of inodes asked for at once.
const PAGE_ROWS: u32 = 2048;
/// Bytes of entries asked for at once.
const PAGE_BYTES: u32 = 128 << 10;
/// S_IFDIR shifted right by 12.
const KIND_DIRECTORY: u8 = 4;
