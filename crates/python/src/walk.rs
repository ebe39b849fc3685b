//! Finding things by path, as the kernel does below a mount: symbolic links are followed, an absolute
//! one from the root of the file system.

use covey_ninep::tree::Errno;
use covey_stripe::client::Error::Odd;
use covey_stripe::client::{Fs, Result};
use covey_stripe::ops::{Caller, Id, Inode, ROOT};
use covey_wire::Name;
use std::collections::VecDeque;

/// Whether the last name of a path is followed when it is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// As stat(2).
    Last,
    /// As lstat(2).
    NotLast,
}

/// The names of a path. ENAMETOOLONG, and EINVAL for a zero byte, which no name has.
pub fn names(path: &[u8]) -> Result<Vec<Name>> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let parts: Vec<&[u8]> = parts.collect();
    if path.len() > PATH_BYTES_MAX || parts.iter().any(|part| part.len() > NAME_BYTES_MAX) {
        return Err(Errno::ENAMETOOLONG.into());
    }
    if path.contains(&0) {
        return Err(Errno::because(Errno::EINVAL, "a path has no zero byte").into());
    }
    Ok(parts.into_iter().map(Name::from).collect())
}

/// The inode at a path.
pub async fn resolve(fs: &Fs, who: &Caller, path: &[u8], follow: Follow) -> Result<Inode> {
    let ends_in_slash = path.ends_with(b"/");
    let follow = if ends_in_slash { Follow::Last } else { follow };
    let mut walk = Walk { fs, who, ahead: names(path)?.into(), links: 0 };
    let inode = walk.run(ROOT, follow).await?;
    if ends_in_slash && !inode.is_dir() { Err(Errno::ENOTDIR.into()) } else { Ok(inode) }
}

/// What a symbolic link in a directory leads to.
pub async fn through(fs: &Fs, who: &Caller, dir: Id, target: &Name) -> Result<Inode> {
    let mut walk = Walk { fs, who, ahead: names(target.as_bytes())?.into(), links: 1 };
    let from = if target.as_bytes().starts_with(b"/") { ROOT } else { dir };
    walk.run(from, Follow::Last).await
}

/// The directory that holds the last name of a path, and that name.
pub async fn resolve_parent(fs: &Fs, who: &Caller, path: &[u8]) -> Result<(Id, Name)> {
    let (above, name) = split(path)?;
    let dir = resolve(fs, who, above, Follow::Last).await?;
    if dir.is_dir() { Ok((dir.id, name)) } else { Err(Errno::ENOTDIR.into()) }
}

/// The path above the last name, and that name: EINVAL for the root and for paths that end in dots.
pub fn split(path: &[u8]) -> Result<(&[u8], Name)> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let name = &path[start..end];
    if name.is_empty() || name == b"." || name == b".." {
        return Err(Errno::because(Errno::EINVAL, "it names no entry of a directory").into());
    }
    names(path)?;
    Ok((&path[..start], name.into()))
}

struct Walk<'a> {
    fs: &'a Fs,
    who: &'a Caller,
    ahead: VecDeque<Name>,
    links: usize,
}

impl Walk<'_> {
    async fn run(&mut self, from: Id, follow: Follow) -> Result<Inode> {
        let mut dir = from;
        loop {
            if self.ahead.is_empty() {
                return self.fs.inode(dir).await;
            }
            let nodes = self.step(dir).await?;
            let link = nodes.iter().position(is_link);
            let passed = link.map_or(nodes.len(), |at| at + 1);
            self.ahead.drain(..passed);
            let Some(at) = link else {
                let last = nodes.into_iter().next_back().ok_or(Errno::from(Errno::ENOENT))?;
                if self.ahead.is_empty() {
                    return Ok(last);
                }
                dir = last.id;
                continue;
            };
            if self.ahead.is_empty() && follow == Follow::NotLast {
                return Ok(nodes[at].clone());
            }
            self.links += 1;
            if self.links > LINKS_MAX {
                return Err(Errno::ELOOP.into());
            }
            let target = nodes[at].target.as_bytes();
            dir = match (target.starts_with(b"/"), at) {
                (true, _) => ROOT,
                (false, 0) => dir,
                (false, _) => nodes[at - 1].id,
            };
            names(target)?.into_iter().rev().for_each(|name| self.ahead.push_front(name));
        }
    }

    /// Walks as many of the names ahead as one request takes. A walk through a symbolic link may be
    /// refused as a whole: then one name at a time.
    async fn step(&self, dir: Id) -> Result<Vec<Inode>> {
        let names: Vec<Name> = self.ahead.iter().take(WALK_MAX).cloned().collect();
        match self.fs.walk(self.who, dir, &names).await {
            Ok(nodes) if nodes.len() <= names.len() => Ok(nodes),
            Ok(_) => Err(Odd("a walk went further than asked".into())),
            Err(error) if error.code() == Errno::ENOTDIR && names.len() > 1 => {
                self.fs.walk(self.who, dir, &names[..1]).await
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether it is a symbolic link.
pub fn is_link(inode: &Inode) -> bool {
    inode.kind() == LINK
}

/// The type of a symbolic link, as directory entries have it.
const LINK: u8 = 10;
/// As in path_resolution(7).
const LINKS_MAX: usize = 40;
/// Most names in one request.
const WALK_MAX: usize = 16;
/// Longest path in bytes, its zero not counted.
const PATH_BYTES_MAX: usize = 4095;
/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 255;
