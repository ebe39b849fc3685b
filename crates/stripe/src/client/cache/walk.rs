//! Whether what small files hold is wanted with the listings of directories: who goes through a tree reads it, or looks at it only.

use crate::ops::Id;
use std::collections::VecDeque;

/// Directories by which that is judged: the last ones that were listed.
const DIRS: usize = 8;

/// What became of these.
#[derive(Default)]
pub(super) struct Walk {
    dirs: VecDeque<Listed>,
}

struct Listed {
    dir: Id,
    /// Its small files, and how many of them were read since.
    files: u32,
    read: u32,
}

impl Walk {
    /// Whether most of the small files that were listed were read.
    pub fn wants_content(&self) -> bool {
        let count = |of: fn(&Listed) -> u32| self.dirs.iter().map(of).sum::<u32>();
        let read = count(|dir| dir.read);
        read > 0 && read * 2 >= count(|dir| dir.files)
    }

    /// So many small files of a directory were listed, from its beginning or further on.
    pub fn listed(&mut self, dir: Id, files: u32, from_start: bool) {
        match self.dirs.iter_mut().find(|listed| listed.dir == dir) {
            Some(listed) if from_start => (listed.files, listed.read) = (files, 0),
            Some(listed) => listed.files += files,
            None => {
                if self.dirs.len() == DIRS {
                    self.dirs.pop_front();
                }
                self.dirs.push_back(Listed { dir, files, read: 0 });
            }
        }
    }

    /// One of these was read for the first time since.
    pub fn read(&mut self, dir: Id) {
        let listed = self.dirs.iter_mut().find(|listed| listed.dir == dir);
        listed.into_iter().for_each(|listed| listed.read = (listed.read + 1).min(listed.files));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_wanted_while_most_of_what_is_listed_is_read() {
        let mut walk = Walk::default();
        assert!(!walk.wants_content(), "nothing is known");
        walk.listed(1, 4, true);
        walk.read(1);
        assert!(!walk.wants_content());
        walk.read(1);
        assert!(walk.wants_content());
        // One that is not listed counts for nothing.
        walk.read(9);
        walk.listed(2, 3, true);
        assert!(!walk.wants_content());
        (0..2).for_each(|_| walk.read(2));
        assert!(walk.wants_content());
        walk.listed(2, 5, false);
        assert!(!walk.wants_content(), "it has more files");
        // It is gone through once more, and so often that nothing is left of the others.
        walk.listed(2, 1, true);
        walk.read(2);
        assert!(walk.wants_content());
        (3..3 + DIRS as u64).for_each(|dir| walk.listed(dir, 1, true));
        walk.read(1);
        assert!(!walk.wants_content());
        // One that is read often counts once; and directories without small files say nothing.
        (0..3).for_each(|_| walk.read(3));
        assert!(!walk.wants_content());
        (3..3 + DIRS as u64).for_each(|dir| walk.listed(dir, 0, true));
        walk.listed(3, 1, true);
        walk.read(3);
        assert!(walk.wants_content());
    }
}
