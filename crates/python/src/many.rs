//! Many files at once: what each costs is its requests, and those of all files are on their way
//! together.

use crate::client::leads_elsewhere;
use crate::walk::{Follow, names, resolve, split};
use covey_ninep::tree::{Errno, Removal, SetAttr};
use covey_stripe::client::{Error, File, Fs, Result, Taken, access};
use covey_stripe::ops::{Caller, Id, Inode, ROOT};
use covey_wire::{Bytes, Payload};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, StreamExt};
use std::collections::HashMap;

/// Directories by what paths say of them.
type Directories<'a> = HashMap<&'a [u8], Result<Id>>;

/// A path, the first byte of its file that is wanted, and the end; None for that of the file.
pub type Range<'a> = (&'a [u8], u64, Option<u64>);

/// What a range is found to be.
pub enum Content {
    /// It came with the opening.
    Here(Bytes),
    /// It is longer, and goes to memory of the caller's.
    Longer(Longer),
}

/// A range of an open file, and the bytes of it that are there.
pub struct Longer {
    file: File,
    first: Bytes,
    from: u64,
    end: u64,
}

impl Longer {
    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        self.end - self.from
    }
}

/// Opens files, and reads ranges of them that come with the opening.
pub async fn read(fs: &Fs, who: &Caller, wanted: &[Range<'_>]) -> Vec<Result<Content>> {
    all(wanted.iter().map(|&range| read_one(fs, who, range).boxed()).collect()).await
}

/// Reads the others, each to its place; answers how many bytes there were.
pub async fn fill(wanted: Vec<(Longer, &mut [u8])>) -> Vec<Result<usize>> {
    // Beside those places there is only what is on its way.
    let chunk = ON_THE_WAY_BYTES / wanted.len().clamp(1, AT_ONCE);
    let chunk = chunk.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES);
    let calls = wanted.into_iter().map(|(longer, into)| fill_one(longer, into, chunk).boxed());
    all(calls.collect()).await
}

async fn fill_one(longer: Longer, into: &mut [u8], chunk: usize) -> Result<usize> {
    let (first, rest) = into.split_at_mut(longer.first.len());
    first.copy_from_slice(&longer.first);
    let from = longer.from + first.len() as u64;
    Ok(first.len() + read_into(&longer.file, from, rest, chunk).await?)
}

/// The results in the order of the calls. Boxed, they are of a type that is known to be `Send`.
async fn all<T>(calls: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    stream::iter(calls).buffered(AT_ONCE).collect().await
}

async fn read_one(fs: &Fs, who: &Caller, (path, from, to): Range<'_>) -> Result<Content> {
    let (inode, file, first) = open(fs, who, path).await?;
    if !inode.is_regular() {
        let code = if inode.is_dir() { Errno::EISDIR } else { Errno::EOPNOTSUPP };
        return Err(code.into());
    }
    let end = to.unwrap_or(inode.size).min(inode.size).max(from);
    let had = first.len() as u64;
    if end <= had {
        return Ok(Content::Here(first.slice(from.min(end) as usize..end as usize)));
    }
    let first = first.slice(from.min(had) as usize..);
    Ok(Content::Longer(Longer { file, first, from, end }))
}

/// Reads a file from a byte on, to memory that is filled unless the file ends before; answers how many bytes there were.
pub async fn read_into(
    file: &File,
    from: u64,
    into: &mut [u8],
    chunk_bytes: usize,
) -> Result<usize> {
    let mut done = 0;
    while done < into.len() {
        let wanted = (into.len() - done).min(chunk_bytes);
        let data = file.read_at(from.saturating_add(done as u64), wanted).await?;
        for piece in data.pieces() {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
        if data.len() < wanted {
            break;
        }
    }
    Ok(done)
}

/// Bytes of a file whose size is not known, up to an end that may lie far behind it: all of them where they are few, else
/// the range that they are the first of.
pub async fn read_far(fs: &Fs, file: &File, from: u64, end: u64) -> Result<(Payload, u64)> {
    let near = (end - from).min(CHUNK_BYTES as u64);
    let first = file.read_at(from, near as usize).await?;
    if (first.len() as u64) < near || from + near == end {
        let end = from + first.len() as u64;
        return Ok((first, end));
    }
    let size = fs.inode(file.id()).await?.size;
    Ok((first, end.min(size.max(from + near))))
}

/// A file, opened, with its first bytes where they come with the answer.
async fn open(fs: &Fs, who: &Caller, path: &[u8]) -> Result<(Inode, File, Bytes)> {
    let straight = names(path)?;
    let is_straight = straight.iter().all(|name| name.as_bytes() != b"..");
    if is_straight && !path.ends_with(b"/") {
        match fs.open_read(who, ROOT, &straight, access::READ, FIRST_BYTES).await {
            Ok(opening) => return Ok((opening.inode, opening.file, opening.data)),
            Err(error) if !leads_elsewhere(&error) => return Err(error),
            Err(_) => {}
        }
    }
    let inode = resolve(fs, who, path, Follow::Last).await?;
    let opening = fs.open_read(who, inode.id, &[], access::READ, FIRST_BYTES).await?;
    Ok((opening.inode, opening.file, opening.data))
}

/// Writes files whole. Directories that several of them are in are looked for once.
pub async fn write(
    fs: &Fs,
    who: &Caller,
    wanted: Vec<(&[u8], Bytes)>,
    mode: u32,
    taken: Taken,
) -> Vec<Result<()>> {
    let dirs = &directories(fs, who, wanted.iter().map(|(path, _)| *path)).await;
    let how = (mode, taken);
    let one = |(path, data)| write_one(fs, who, dirs, path, data, how).boxed();
    all(wanted.into_iter().map(one).collect()).await
}

async fn write_one(
    fs: &Fs,
    who: &Caller,
    dirs: &Directories<'_>,
    path: &[u8],
    data: Bytes,
    (mode, taken): (u32, Taken),
) -> Result<()> {
    let (above, name) = split(path)?;
    if path.ends_with(b"/") {
        return Err(Errno::EISDIR.into());
    }
    let dir = dirs.get(above).cloned().unwrap_or(Err(Errno::ENOENT.into()))?;
    let made = fs.create_write(who, dir, &name, mode, taken, access::WRITE, data.clone().into());
    match made.await {
        Ok(made) if made.is_new => made.file.flush().await,
        Ok(made) => replace(fs, who, &made.inode, &made.file, data).await,
        Err(error) if error.code() == Errno::ELOOP && taken == Taken::Open => {
            let inode = resolve(fs, who, path, Follow::Last).await?;
            let file = fs.open(who, inode.id, access::WRITE).await?;
            replace(fs, who, &inode, &file, data).await
        }
        Err(error) => Err(error),
    }
}

async fn replace(fs: &Fs, who: &Caller, inode: &Inode, file: &File, data: Bytes) -> Result<()> {
    if inode.size > 0 {
        let empty = SetAttr { size: Some(0), ..SetAttr::default() };
        fs.setattr_open(who, inode.id, empty).await?;
    }
    write_range(file, 0, data).await?;
    file.flush().await
}

/// Writes bytes to a file, in messages of a size that its servers answer soon.
pub async fn write_range(file: &File, from: u64, data: Bytes) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        let end = data.len().min(done + CHUNK_BYTES);
        let at = from.checked_add(done as u64).ok_or(Errno::from(Errno::EFBIG))?;
        file.write_at(at, data.slice(done..end).into()).await?;
        done = end;
    }
    Ok(())
}

/// Removes files.
pub async fn unlink(fs: &Fs, who: &Caller, wanted: Vec<&[u8]>) -> Vec<Result<()>> {
    let dirs = &directories(fs, who, wanted.iter().copied()).await;
    all(wanted.into_iter().map(|path| unlink_one(fs, who, dirs, path).boxed()).collect()).await
}

async fn unlink_one(fs: &Fs, who: &Caller, dirs: &Directories<'_>, path: &[u8]) -> Result<()> {
    let (above, name) = split(path)?;
    let dir = dirs.get(above).cloned().unwrap_or(Err(Errno::ENOENT.into()))?;
    fs.unlink(who, dir, &name, Removal::File).await
}

/// The directories that paths are in, by what the paths say of them.
async fn directories<'a>(
    fs: &Fs,
    who: &Caller,
    paths: impl Iterator<Item = &'a [u8]>,
) -> Directories<'a> {
    let mut found = HashMap::new();
    for path in paths {
        let Ok((above, _)) = split(path) else { continue };
        if found.contains_key(above) {
            continue;
        }
        let dir = resolve(fs, who, above, Follow::Last).await;
        let dir = dir.and_then(|dir| match dir.is_dir() {
            true => Ok(dir.id),
            false => Err(Error::from(Errno::from(Errno::ENOTDIR))),
        });
        found.insert(above, dir);
    }
    found
}

/// Copies all of a file to another, which is cut to its length.
pub async fn copy(fs: &Fs, source: &File, target: &File) -> Result<()> {
    let mut at = 0;
    loop {
        let data: Payload = source.read_at(at, CHUNK_BYTES).await?;
        if data.is_empty() {
            break;
        }
        let got = data.len() as u64;
        target.write_at(at, data).await?;
        at += got;
    }
    if fs.inode(target.id()).await?.size > at {
        let end = SetAttr { size: Some(at), ..SetAttr::default() };
        fs.setattr_open(&crate::connection::caller(), target.id(), end).await?;
    }
    target.flush().await
}

/// Files at once: more of them gain nothing at four servers.
const AT_ONCE: usize = 64;
/// Bytes that are asked for with the opening: at most so many lie with the metadata.
const FIRST_BYTES: u32 = 64 << 10;
/// Most bytes of one call of the client.
pub const CHUNK_BYTES: usize = 16 << 20;
/// Fewest bytes of one call, where many are at work.
const CHUNK_BYTES_MIN: usize = 1 << 20;
/// Most bytes of large files that are on their way.
const ON_THE_WAY_BYTES: usize = 4 * CHUNK_BYTES;
