//! A worker's open files.

use super::Copy;
use crate::header::Ticket;
use covey_ninep::client::Fid;
use covey_ninep::tree::{Errno, Result};
use covey_wire::{Name, Span};
use std::rc::Rc;

/// Files that one worker may have open at once.
pub const FILES_MAX: usize = 64;

/// Of offset, count and buffer of what is copied without a message.
const ALIGNMENT: u64 = 16;

/// How a file is opened, as Plan 9 numbers it.
pub mod mode {
    /// For reading.
    pub const READ: u32 = 0;
    /// For writing.
    pub const WRITE: u32 = 1;
    /// For both.
    pub const BOTH: u32 = 2;
    /// Emptied first.
    pub const TRUNCATE: u32 = 0x10;
    /// Whatever can be had: for both, made where it is not there, or else for reading.
    pub const ANY: u32 = 0x100;
}

#[derive(Default)]
pub(super) struct Files {
    open: Vec<Option<File>>,
    /// Where log lines go.
    pub log: Option<Rc<Fid>>,
}

pub(super) struct File {
    pub fid: Rc<Fid>,
    pub offset: u64,
    /// Its line, where it lies in memory.
    pub map: Option<Ticket>,
    pub may_read: bool,
    pub may_write: bool,
    /// It may make its users wait.
    pub blocks: bool,
}

impl File {
    /// Moves the descriptor's own place on: where it was.
    #[inline]
    pub fn advance(&mut self, bytes: u64) -> u64 {
        let at = self.offset;
        self.offset = at.saturating_add(bytes);
        at
    }
}

impl Files {
    pub fn add(&mut self, file: File) -> Result<i32> {
        let free = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if free >= FILES_MAX {
            let what = format!("{FILES_MAX} files are open, the limit of a worker");
            return Err(Errno::because(Errno::EMFILE, what));
        }
        if free == self.open.len() {
            self.open.push(None);
        }
        self.open[free] = Some(file);
        Ok(free as i32)
    }

    #[inline]
    pub fn find(&mut self, fd: i32) -> Result<&mut File> {
        let slot = usize::try_from(fd).ok().and_then(|fd| self.open.get_mut(fd));
        slot.and_then(Option::as_mut).ok_or_else(|| unknown(fd))
    }

    /// The copy that a transfer is; `None` where it needs a message, or is an error. A descriptor's own place moves on at
    /// once, so that the next transfer begins behind this one.
    #[inline(always)]
    pub fn copy(&mut self, fd: i32, is_read: bool, local: Span, at: Option<u64>) -> Option<Copy> {
        let copy = self.look(fd, is_read, local, at)?;
        self.advance(&copy);
        Some(copy)
    }

    /// The same, and no descriptor is moved.
    #[inline(always)]
    pub fn look(&self, fd: i32, is_read: bool, local: Span, at: Option<u64>) -> Option<Copy> {
        let file = self.open.get(usize::try_from(fd).ok()?)?.as_ref()?;
        let ticket = file.map?;
        let offset = at.unwrap_or(file.offset);
        let is_aligned = (local.address | local.bytes | offset).is_multiple_of(ALIGNMENT);
        // What it may not do is refused by the host.
        if !is_aligned || !(if is_read { file.may_read } else { file.may_write }) {
            return None;
        }
        Some(Copy { fd, ticket, is_read, local, at: offset, is_moved: at.is_none() })
    }

    /// The descriptor's own place moves on by a copy that begins there.
    #[inline(always)]
    pub fn advance(&mut self, copy: &Copy) {
        if copy.is_moved
            && let Some(Some(file)) = self.open.get_mut(copy.fd as usize)
        {
            file.offset = copy.at.saturating_add(copy.local.bytes);
        }
    }

    pub fn close(&mut self, fd: i32) -> Result<File> {
        let slot = usize::try_from(fd).ok().and_then(|fd| self.open.get_mut(fd));
        slot.and_then(Option::take).ok_or_else(|| unknown(fd))
    }
}

pub(super) fn unknown(fd: i32) -> Errno {
    Errno::because(Errno::EBADF, format!("descriptor {fd} is not open"))
}

/// The names of a path: `#r/a` is `a` among the host's memory files, `/fs/b` is a path of its node's.
pub(super) fn names(path: &[u8]) -> Result<Vec<Name>> {
    let (root, rest) = match path {
        [b'#', device @ (b'r' | b'U' | b'R' | b'p' | b'l'), rest @ ..] => {
            (["cell".as_bytes(), std::slice::from_ref(device)].map(Name::from).to_vec(), rest)
        }
        [b'#', ..] => {
            let what = format!("{} is on no device: there are #r #U #R #p #l", text(path));
            return Err(Errno::because(Errno::ENODEV, what));
        }
        rest => (vec![Name::from("node")], rest),
    };
    let below = rest.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    Ok(root.into_iter().chain(below.map(Name::from)).collect())
}

/// Whether files of the path may lie in memory.
pub(super) fn may_be_mapped(path: &[u8]) -> bool {
    matches!(path, [b'#', b'r' | b'U' | b'R', ..])
}

/// A path as a trace has it, where an event is a line: what is no text, or not shown, is escaped.
pub(super) fn text(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                _ if letter.is_control() => text.extend(letter.escape_default()),
                _ => text.push(letter),
            }
        }
        text.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_with_a_device_or_at_the_node() {
        let names = |path: &str| {
            let names = names(path.as_bytes())?;
            Ok::<_, Errno>(names.iter().map(|name| name.lossy().into_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names("#U/tmp/test").unwrap(), ["cell", "U", "tmp", "test"]);
        assert_eq!(names("#rmatrix").unwrap(), ["cell", "r", "matrix"]);
        assert_eq!(names("/n/b/cell//p/./x").unwrap(), ["node", "n", "b", "cell", "p", "x"]);
        assert_eq!(names("#q/x").unwrap_err().code, Errno::ENODEV);
    }

    #[test]
    fn a_path_is_one_line_of_a_trace_and_no_other_path_has_the_same() {
        let lines = ["two\nlines", "two\\nlines", "t\u{e9}", "\r", "a b"].map(str::as_bytes);
        let all: Vec<String> = lines.iter().chain(&[&b"\xff"[..]]).map(|path| text(path)).collect();
        assert_eq!(all, ["two\\nlines", "two\\\\nlines", "t\u{e9}", "\\r", "a b", "\\xff"]);
    }
}
