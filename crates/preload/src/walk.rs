//! Finding things by path, as path_resolution(7) says the kernel does.
//!
//! Names go to the metadata server up to sixteen at a time. Symbolic links are followed here: a relative
//! target from its directory, an absolute one from the prefix when it lies below it, and otherwise
//! out of our hands, to this machine's own file system.

use crate::boundary::{Result, Stop, refuse};
use crate::client::{Client, caller, client, wait};
use crate::place::{Place, below_prefix};
use covey_ninep::tree::Errno;
use covey_stripe::ops::{Caller, Id, Inode};
use covey_wire::Name;
use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::Arc;

/// Whether the last name is followed when it is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// As stat(2).
    Last,
    /// As lstat(2).
    NotLast,
}

/// Where a path led.
#[derive(Clone, Debug)]
pub struct Found {
    /// The directory that the last name is in.
    pub parent: Id,
    /// The last name; none for the root and for paths that end in `.` or `..`.
    pub name: Option<Name>,
    /// What is there: nothing when only the last name is missing.
    pub inode: Option<Inode>,
    /// The path ended in a slash: it means a directory.
    pub wants_dir: bool,
}

impl Found {
    /// What is there, else ENOENT.
    pub fn node(self) -> Result<Inode> {
        let wants_dir = self.wants_dir;
        match self.inode {
            Some(inode) if wants_dir && !inode.is_dir() => refuse(libc::ENOTDIR),
            Some(inode) => Ok(inode),
            None => refuse(libc::ENOENT),
        }
    }

    /// The entry that is there.
    pub fn entry(self) -> Result<(Id, Name, Inode)> {
        let (parent, name) = (self.parent, self.name.clone());
        let inode = self.node()?;
        let name = name.ok_or(Stop::from(Errno::EBUSY))?;
        Ok((parent, name, inode))
    }

    /// The place for a new entry: EEXIST when something is there.
    pub fn vacancy(self) -> Result<(Id, Name)> {
        match (self.inode, self.name) {
            (None, Some(name)) => Ok((self.parent, name)),
            _ => refuse(libc::EEXIST),
        }
    }
}

/// Finds what a path leads to.
pub fn resolve(place: &Place, follow: Follow) -> Result<Found> {
    let wants_dir = place.path.ends_with(b"/") || place.path.ends_with(b"/.");
    let follow = if wants_dir { Follow::Last } else { follow };
    let mut walk = Walk { client: client()?, who: caller(), ahead: VecDeque::new(), links: 0 };
    if place.path.len() > PATH_BYTES_MAX {
        return refuse(libc::ENAMETOOLONG);
    }
    walk.prepend(&place.path)?;
    let found = walk.run(place.from, follow)?;
    Ok(Found { wants_dir: wants_dir && found.name.is_some(), ..found })
}

struct Walk {
    client: Arc<Client>,
    who: Caller,
    ahead: VecDeque<Name>,
    links: usize,
}

impl Walk {
    fn run(&mut self, from: Id, follow: Follow) -> Result<Found> {
        let mut dir = from;
        loop {
            if self.ahead.is_empty() {
                let inode = wait(&self.client, self.client.inode(dir))?;
                return Ok(Found { parent: dir, name: None, inode: Some(inode), wants_dir: false });
            }
            let (asked, nodes) = self.step(dir)?;
            let link = nodes.iter().position(|node| node.kind() == SYMLINK);
            let passed = link.map_or(nodes.len(), |at| at + 1);
            let last_asked = asked.get(passed.saturating_sub(1)).cloned();
            self.ahead.drain(..passed);
            let Some(at) = link else {
                let parent_at = |at: usize| if at == 0 { dir } else { nodes[at - 1].id };
                if self.ahead.is_empty() {
                    let name = last_asked.filter(|name| name.as_bytes() != b"..");
                    let parent = parent_at(passed - 1);
                    let inode = nodes.into_iter().next_back();
                    return Ok(Found { parent, name, inode, wants_dir: false });
                }
                if passed < asked.len() {
                    // The walk ended early: something is missing, or is no directory.
                    let parent = parent_at(passed);
                    let in_the_way = nodes.last().is_some_and(|node| !node.is_dir());
                    return match (in_the_way, self.ahead.len()) {
                        (true, _) => refuse(libc::ENOTDIR),
                        (false, 1) => {
                            let name = self.ahead.pop_front();
                            Ok(Found { parent, name, inode: None, wants_dir: false })
                        }
                        _ => refuse(libc::ENOENT),
                    };
                }
                dir = parent_at(passed);
                continue;
            };
            if self.ahead.is_empty() && follow == Follow::NotLast {
                let parent = if at == 0 { dir } else { nodes[at - 1].id };
                let inode = nodes.into_iter().nth(at);
                return Ok(Found { parent, name: last_asked, inode, wants_dir: false });
            }
            let within = if at == 0 { dir } else { nodes[at - 1].id };
            dir = self.through(within, nodes[at].target.as_bytes())?;
        }
    }

    /// Goes through a symbolic link; answers where to go on from.
    fn through(&mut self, within: Id, target: &[u8]) -> Result<Id> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return refuse(libc::ELOOP);
        }
        if target.first() != Some(&b'/') {
            self.prepend(target)?;
            return Ok(within);
        }
        let Some(place) = below_prefix(target) else {
            let mut path = target.to_vec();
            for name in &self.ahead {
                path.push(b'/');
                path.extend_from_slice(name.as_bytes());
            }
            return Err(Stop::Outside(CString::new(path).unwrap_or_default()));
        };
        self.prepend(&place.path)?;
        Ok(place.from)
    }

    /// Walks as many of the names ahead as one request takes. A walk through a symbolic link may be
    /// refused as a whole: then one name at a time. Answers what was asked, and what was found.
    fn step(&self, dir: Id) -> Result<(Vec<Name>, Vec<Inode>)> {
        let mut names: Vec<Name> = self.ahead.iter().take(WALK_MAX).cloned().collect();
        loop {
            match wait(&self.client, self.client.walk(&self.who, dir, &names)) {
                Ok(nodes) if nodes.len() <= names.len() => return Ok((names, nodes)),
                Ok(_) => return refuse(libc::EPROTO),
                Err(Stop::Errno(error)) if error.code == Errno::ENOTDIR && names.len() > 1 => {
                    names.truncate(1);
                }
                Err(Stop::Errno(error)) if error.code == Errno::ENOENT => {
                    return Ok((names, Vec::new()));
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn prepend(&mut self, path: &[u8]) -> Result<()> {
        let parts = path.split(|byte| *byte == b'/');
        let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty() && *part != b".").collect();
        if parts.iter().any(|part| part.len() > NAME_BYTES_MAX) {
            return refuse(libc::ENAMETOOLONG);
        }
        parts.into_iter().rev().for_each(|part| self.ahead.push_front(part.into()));
        Ok(())
    }
}

/// The type of a symbolic link, as directory entries have it.
const SYMLINK: u8 = libc::DT_LNK;
/// As in path_resolution(7).
const LINKS_MAX: usize = 40;
/// Most names in one request.
const WALK_MAX: usize = 16;
/// Longest path in bytes, its zero included.
const PATH_BYTES_MAX: usize = 4095;
/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 255;
