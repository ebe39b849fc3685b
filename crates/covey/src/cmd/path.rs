//! Finding things in the file system by path, as the kernel would for a mount.
//!
//! The file system's own `walk` goes down names from a directory and knows nothing of symbolic
//! links: they are followed here, at most [`LINKS_MAX`] in one path. `..` is the directory's real
//! parent.

use super::Session;
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::Errno;
use covey_stripe::client::Error::Odd;
use covey_stripe::ops::{DirEntry, Id, Inode, ROOT};
use covey_wire::Name;
use std::collections::VecDeque;

/// Most symbolic links in one path, as in path_resolution(7).
const LINKS_MAX: usize = 40;
/// Most names that are walked in one request.
const WALK_MAX: usize = 16;
/// Longest path in bytes, as in path_resolution(7).
const PATH_BYTES_MAX: usize = 4096;

/// S_IFMT and its values, as in inode(7).
pub mod kind {
    #![allow(missing_docs)]
    pub const MASK: u32 = 0o170_000;
    pub const SOCKET: u32 = 0o140_000;
    pub const SYMLINK: u32 = 0o120_000;
    pub const FILE: u32 = 0o100_000;
    pub const BLOCK: u32 = 0o060_000;
    pub const DIR: u32 = 0o040_000;
    pub const CHAR: u32 = 0o020_000;
    pub const FIFO: u32 = 0o010_000;
}

/// Whether an inode is a directory, and so on.
pub fn is_kind(inode: &Inode, kind: u32) -> bool {
    inode.mode & kind::MASK == kind
}

/// Whether the last name of a path is followed when it is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// As stat(2).
    Last,
    /// As lstat(2).
    NotLast,
}

/// A path in the file system, as bytes. A leading `:` or `covey:` is taken off; `a/b` means `/a/b`.
pub fn inside(path: &std::ffi::OsStr) -> Vec<u8> {
    let bytes = path.as_encoded_bytes();
    let bytes = bytes.strip_prefix(b"covey:").or(bytes.strip_prefix(b":")).unwrap_or(bytes);
    match bytes.first() {
        Some(b'/') => bytes.to_vec(),
        _ => [b"/", bytes].concat(),
    }
}

/// A path within a message.
pub fn shown(path: &[u8]) -> String {
    crate::output::quote::in_words(path)
}

/// A path as data, such as in JSON.
pub fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// A name below a directory's path.
pub fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.ends_with(b"/") { [dir, name].concat() } else { [dir, b"/", name].concat() }
}

/// The last name of a path, `None` for the root and for paths that end in `.` or `..`.
pub fn last_name(path: &[u8]) -> Option<&[u8]> {
    let name = path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty())?;
    (name != b"." && name != b"..").then_some(name)
}

/// Why a path led nowhere, and how: for the error of the command that wanted it.
pub type Found<T> = covey_stripe::client::Result<T>;

impl Session {
    /// The inode at a path.
    pub async fn resolve(&self, path: &[u8], follow: Follow) -> Found<Inode> {
        let ends_in_slash = path.len() > 1 && path.ends_with(b"/");
        let follow = if ends_in_slash { Follow::Last } else { follow };
        let inode = Walk::new(self).run(ROOT, path, follow).await?;
        if ends_in_slash && !is_kind(&inode, kind::DIR) {
            Err(Errno::ENOTDIR.into())
        } else {
            Ok(inode)
        }
    }

    /// The directory that holds the last name of a path, and that name.
    pub async fn resolve_parent(&self, path: &[u8]) -> Found<(Id, Name)> {
        let name = last_name(path)
            .ok_or_else(|| Errno::because(Errno::EINVAL, "it names no entry of a directory"))?;
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let trimmed = path.trim_ascii_end_slashes();
        let parent = &trimmed[..trimmed.len() - name.len()];
        let dir = Walk::new(self).run(ROOT, parent, Follow::Last).await?;
        if is_kind(&dir, kind::DIR) {
            Ok((dir.id, name.into()))
        } else {
            Err(Errno::ENOTDIR.into())
        }
    }

    /// The inode at a path, or an error that says what the command was about to do.
    pub async fn find(&self, verb: &str, path: &[u8], follow: Follow) -> Result<Inode> {
        self.resolve(path, follow).await.cannot(|| format!("{verb} {}", shown(path)))
    }

    /// The directory of a path and its last name, or an error that says what the command was about
    /// to do.
    pub async fn find_parent(&self, verb: &str, path: &[u8]) -> Result<(Id, Name)> {
        self.resolve_parent(path).await.cannot(|| format!("{verb} {}", shown(path)))
    }

    /// All entries of a directory without `.` and `..`, with their inodes, in the server's order.
    pub async fn entries(&self, dir: Id) -> Found<Vec<(Name, Inode)>> {
        let with_inode = |entry: DirEntry| match entry.inode {
            Some(inode) => Ok((entry.name, inode)),
            None => Err(Errno::because(Errno::EPROTO, "an entry came without its inode").into()),
        };
        self.fs.entries(&self.who, dir).await?.into_iter().map(with_inode).collect()
    }
}

trait TrimSlashes {
    fn trim_ascii_end_slashes(&self) -> &[u8];
}

impl TrimSlashes for [u8] {
    fn trim_ascii_end_slashes(&self) -> &[u8] {
        let end = self.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        &self[..end]
    }
}

/// A walk under way: where it is, and the names that are still ahead.
struct Walk<'a> {
    session: &'a Session,
    ahead: VecDeque<Name>,
    links: usize,
}

impl<'a> Walk<'a> {
    fn new(session: &'a Session) -> Self {
        Walk { session, ahead: VecDeque::new(), links: 0 }
    }

    async fn run(mut self, from: Id, path: &[u8], follow: Follow) -> Found<Inode> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        self.prepend(path)?;
        let mut dir = from;
        loop {
            if self.ahead.is_empty() {
                return Ok(self.session.fs.stat(dir).await?.inode);
            }
            let nodes = self.step(dir).await?;
            let link = nodes.iter().position(|node| is_kind(node, kind::SYMLINK));
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
            self.prepend(target)?;
        }
    }

    /// Walks as many of the names ahead as one request takes. A walk through a symbolic link may be
    /// refused as a whole: then one name at a time.
    async fn step(&self, dir: Id) -> Found<Vec<Inode>> {
        let names: Vec<Name> = self.ahead.iter().take(WALK_MAX).cloned().collect();
        match self.session.fs.walk(&self.session.who, dir, &names).await {
            Ok(nodes) if nodes.len() <= names.len() => Ok(nodes),
            Ok(_) => Err(Odd("a walk went further than asked".into())),
            Err(error) if error.code() == Errno::ENOTDIR && names.len() > 1 => {
                self.session.fs.walk(&self.session.who, dir, &names[..1]).await
            }
            Err(error) => Err(error),
        }
    }

    fn prepend(&mut self, path: &[u8]) -> Found<()> {
        let parts =
            path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        let parts: Vec<&[u8]> = parts.collect();
        if parts.iter().any(|part| part.len() > 255) {
            return Err(Errno::ENAMETOOLONG.into());
        }
        parts.into_iter().rev().for_each(|part| self.ahead.push_front(part.into()));
        Ok(())
    }
}

/// Tells failures of one path after the other, and remembers that there were some.
#[derive(Debug, Default)]
pub struct Failures(bool);

impl Failures {
    /// Takes the value, or tells the error.
    pub fn take<T>(&mut self, result: Result<T>, context: &super::Context) -> Option<T> {
        result.map_err(|error| self.tell(&error, context)).ok()
    }

    /// Tells an error.
    pub fn tell(&mut self, error: &Error, context: &super::Context) {
        context.output.tell(error);
        self.0 = true;
    }

    /// The command's result: exit code 1 if there were failures.
    pub fn result(self) -> Result<()> {
        if self.0 { Err(Error::told()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_inside_may_be_marked_and_are_always_absolute() {
        let inside = |path: &str| shown(&inside(path.as_ref()));
        let cases = [
            ("/a/b", "/a/b"),
            (":/a", "/a"),
            ("covey:/a", "/a"),
            (":a", "/a"),
            ("a", "/a"),
            ("", "/"),
            (":", "/"),
        ];
        cases.iter().for_each(|(path, wanted)| assert_eq!(inside(path), *wanted));
    }

    #[test]
    fn the_last_name_is_none_where_there_is_no_entry() {
        assert_eq!(last_name(b"/a/b/"), Some(&b"b"[..]));
        assert_eq!(last_name(b"/a"), Some(&b"a"[..]));
        for path in [&b"/"[..], b"", b"/a/..", b"/."] {
            assert_eq!(last_name(path), None);
        }
    }

    #[test]
    fn names_are_put_below_directories_with_one_slash() {
        assert_eq!(below(b"/", b"a"), b"/a");
        assert_eq!(below(b"/d", b"a"), b"/d/a");
    }
}
