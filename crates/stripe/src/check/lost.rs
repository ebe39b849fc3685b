//! What is lost, by path: bytes that an I/O server should have, and does not.

use super::{Access, Check, Result, chain_table, odd};
use crate::chain::Table;
use crate::distribution::{self, Distribution};
use crate::error::Error;
use crate::meta::is_dots;
use crate::objects::{DataOp, DataReply, of_chain};
use crate::ops::check::{Class, Finding, Page, table};
use crate::ops::{DirEntry, Id, Inode, Op, ROOT, Reply};
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};
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
    let table = chain_table(access).await?;
    held_where(access, |inode| bytes_at(inode, server, &table)).await
}

/// The files that are laid out on an I/O server, with bytes there or without.
pub async fn laid_out_on<A: Access>(access: &A, server: u16) -> Result<Vec<Held>> {
    let table = chain_table(access).await?;
    let is_on = |inode: &Inode| {
        let List(chains) = &inode.striping.as_ref()?.servers;
        chains.iter().any(|&chain| table.is_on(chain, server)).then_some(())
    };
    let bytes = |inode: &Inode| is_on(inode).map(|()| bytes_at(inode, server, &table).unwrap_or(0));
    held_where(access, bytes).await
}

/// The files of which something is lost on an I/O server, whose disk was replaced, and nobody has accepted that; in the order
/// of their numbers.
pub async fn lost_on<A: Access>(access: &A, server: u16) -> Result<Vec<Held>> {
    let mut lost = Vec::new();
    let table = chain_table(access).await?;
    for chain in table.on(server) {
        let mut after = 0;
        loop {
            let list = of_chain(server, chain, DataOp::Objects { after, count: PAGE_ROWS });
            let DataReply::Objects { objects } = access.data(server, list).await? else {
                return Err(odd("Objects"));
            };
            let Some(last) = objects.0.last() else { break };
            after = last.id;
            let ids = objects.0.iter().filter(|object| object.is_lost()).map(|object| object.id);
            lost.extend(inodes(access, ids.collect()).await?);
        }
    }
    lost.sort_unstable_by_key(|inode| inode.id);
    lost.dedup_by_key(|inode| inode.id);
    named(access, lost.into_iter().map(|inode| held_of(inode, server, &table)).collect()).await
}

/// The loss of what files had on an I/O server is accepted: it reads as zeros from now on, as a hole. Those of them of which
/// nothing is lost there are left out of the answer.
pub async fn forgive<A: Access>(access: &A, server: u16, ids: Vec<Id>) -> Result<Vec<Id>> {
    let mut forgiven = Vec::new();
    let table = chain_table(access).await?;
    let each = table
        .on(server)
        .into_iter()
        .flat_map(|chain| ids.chunks(PAGE_ROWS as usize).map(move |ids| (chain, ids)));
    for (chain, ids) in each {
        let look = of_chain(server, chain, DataOp::Look { ids: List(ids.to_vec()) });
        let DataReply::Objects { objects } = access.data(server, look).await? else {
            return Err(odd("Look"));
        };
        let lost: Vec<Id> =
            objects.0.iter().filter(|object| object.is_lost()).map(|object| object.id).collect();
        // First: whoever is interrupted finds them lost still, and begins anew.
        for &id in &lost {
            take_for_hole(access, (server, &table), id).await?;
        }
        let forgive = of_chain(server, chain, DataOp::Forgive { ids: List(lost.clone()) });
        access.data(server, forgive).await?;
        forgiven.extend(lost);
    }
    forgiven.sort_unstable();
    forgiven.dedup();
    Ok(forgiven)
}

/// Missing bytes of the file are a hole from now on, and no finding.
async fn take_for_hole<A: Access>(
    access: &A,
    (server, table): (u16, &Table),
    id: Id,
) -> Result<()> {
    let mut tries = 0..TRIES;
    loop {
        let Some(inode) = inodes(access, vec![id]).await?.pop() else { return Ok(()) };
        if inode.sparse {
            return Ok(());
        }
        let (class, parent) = (Class::ShortObject as u8, server.into());
        let wanted = bytes_at(&inode, server, table).unwrap_or(0);
        let finding =
            Finding { class, id, parent, wanted, version: inode.version, ..Finding::default() };
        match access.change(Op::Mend { finding }).await {
            // It is being changed.
            Err(error) if error.code() == Errno::EAGAIN && tries.next().is_some() => {}
            other => return other.map(drop),
        }
    }
}

async fn inodes<A: Access>(access: &A, ids: Vec<Id>) -> Result<Vec<Inode>> {
    match access.ask(Op::Look { ids: List(ids) }).await? {
        Reply::Looked { files, .. } => {
            Ok(files.0.into_iter().filter_map(|file| file.inode).collect())
        }
        _ => Err(odd("Look")),
    }
}

fn held_of(inode: Inode, server: u16, table: &Table) -> Held {
    Held { bytes: bytes_at(&inode, server, table).unwrap_or(0), inode, paths: Vec::new() }
}

async fn held_where<A: Access>(
    access: &A,
    bytes_of: impl Fn(&Inode) -> Option<u64>,
) -> Result<Vec<Held>> {
    let of = |inode: Inode| Some(Held { bytes: bytes_of(&inode)?, inode, paths: Vec::new() });
    named(access, laid_out(access).await?.into_iter().filter_map(of).collect()).await
}

async fn named<A: Access>(access: &A, mut held: Vec<Held>) -> Result<Vec<Held>> {
    let mut paths = paths(access, &held.iter().map(|one| one.inode.id).collect()).await?;
    for one in &mut held {
        one.paths = paths.remove(&one.inode.id).unwrap_or_default();
    }
    Ok(held)
}

/// The files that are laid out on I/O servers, in the order of their numbers. Each is held in memory.
pub async fn laid_out<A: Access>(access: &A) -> Result<Vec<Inode>> {
    let (mut found, mut after) = (Vec::new(), Some(Name::EMPTY));
    while let Some(next) = after {
        let page = laid_out_after(access, next).await?;
        found.extend(page.0);
        after = page.1;
    }
    Ok(found)
}

/// Some of the same, and what to go on after, as long as there may be more.
pub async fn laid_out_after<A: Access>(
    access: &A,
    after: Name,
) -> Result<(Vec<Inode>, Option<Name>)> {
    let (low, high, rows_max) = (0, Id::MAX, PAGE_ROWS);
    let ask = Op::Check { table: table::HELD, after, rows_max, low, high };
    let Reply::Checked { page } = access.ask(ask).await? else { return Err(odd("Check")) };
    let Page { files, next, end, .. } = page;
    Ok((files.0, (!end).then_some(next)))
}

/// How many bytes of a file lie on a chain; None where none do.
pub fn bytes_on(inode: &Inode, chain: u16) -> Option<u64> {
    bytes_where(inode, |at| at == chain)
}

/// How many lie on a server, whatever the chain.
fn bytes_at(inode: &Inode, server: u16, table: &Table) -> Option<u64> {
    bytes_where(inode, |chain| table.is_on(chain, server))
}

fn bytes_where(inode: &Inode, is_there: impl Fn(u16) -> bool) -> Option<u64> {
    let striping = inode.striping.as_ref()?;
    let map = distribution::of(striping).ok()?;
    let slots = striping.servers.0.iter().enumerate().filter(|(_, at)| is_there(**at));
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
        each_name(access, dir, |entry| {
            let below = [&path[..], b"/", entry.name.as_bytes()].concat();
            if wanted.contains(&entry.id) {
                found.entry(entry.id).or_default().push(below.clone());
            }
            if entry.is_dir() && seen.insert(entry.id) {
                left.push((entry.id, below));
            }
        })
        .await?;
    }
    Ok(found)
}

fn is_gone(error: &Error) -> bool {
    matches!(error.code(), Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE)
}

/// Shows `visit` what the names in a directory lead to, but for `.` and `..`. One that is gone has none.
pub async fn each_name<A: Access>(
    access: &A,
    dir: Id,
    mut visit: impl FnMut(DirEntry),
) -> Result<()> {
    let mut cookie = 0;
    loop {
        let (limit, bytes_max) = (u64::MAX, PAGE_BYTES);
        let list = Op::Readdir { id: dir, cookie, limit, bytes_max, plus: false };
        let (entries, end) = match access.ask(list).await {
            Ok(Reply::Entries { entries, end, .. }) => (entries.0, end),
            Ok(_) => return Err(odd("Readdir")),
            // Removed since, or a name that leads nowhere.
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        cookie = entries.last().map_or(cookie, |entry| entry.cookie);
        let is_over = end || entries.is_empty();
        entries.into_iter().filter(|entry| !is_dots(&entry.name)).for_each(&mut visit);
        if is_over {
            return Ok(());
        }
    }
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

/// How often what changes all the time is tried.
const TRIES: usize = 8;
/// Rows of inodes asked for at once.
const PAGE_ROWS: u32 = 2048;
/// Bytes of entries asked for at once.
const PAGE_BYTES: u32 = 128 << 10;
