//! What is asked for ahead: of a directory's entries, and of what small files hold.

use crate::ops::BY_NAME;
use covey_wire::Name;

/// How far to ask ahead in one directory, as in reading a file: further while it pays.
#[derive(Default)]
pub(super) struct Ahead {
    names: Pace,
    contents: Pace,
    /// Small files of it that were read since entries came last.
    read: u32,
    /// The next one that is read is the one for which the others came.
    is_own: bool,
}

/// Questions of one kind.
#[derive(Default)]
struct Pace {
    /// What was asked for last.
    asked: Option<Name>,
    /// Whether those are asked for that come after a name by their own names, not in a listing.
    by_name: bool,
    /// That was tried, and nothing has paid since.
    has_turned: bool,
    /// How many came with the last answer, and how often one was used since.
    came: u32,
    used: u32,
    /// Answers of which too little was used, in a row; and how many questions go without therefore.
    wasted: u32,
    skip: u32,
}

impl Ahead {
    /// How many entries to ask for beside a name that is not known, and in which order ([`BY_NAME`]).
    pub fn next(&mut self, name: &Name) -> u32 {
        let came = self.names.came;
        match self.names.asks(name) {
            None => 0,
            // A small directory is worth having as a whole.
            Some(false) => self.names.in_order(FIRST),
            Some(true) => self.names.in_order((came * 4).clamp(FIRST, MOST)),
        }
    }

    /// Whether what small files hold is wanted with them: most of those that were found were read.
    pub fn wants_content(&self) -> bool {
        self.read > 0 && self.read * 2 >= self.names.used
    }

    /// An entry that came was used.
    pub fn found(&mut self) {
        self.names.used += 1;
    }

    /// A small file was read, not for the first time since it was found; whether its content was known.
    pub fn read(&mut self, again: bool, is_known: bool) {
        self.read += u32::from(!again);
        if !again && is_known && !std::mem::take(&mut self.is_own) {
            self.contents.used += 1;
        }
    }

    /// How many entries to ask for with what they hold, beside what a file holds, if any: with the second that is read.
    pub fn next_content(&mut self, name: &Name) -> Option<u32> {
        if self.read < 2 || !self.wants_content() {
            self.contents.asked = Some(name.clone());
            return None;
        }
        self.contents.asks(name)?;
        // Until something comes.
        self.contents.was_in_vain();
        Some(self.contents.in_order(MOST))
    }

    /// So many entries came.
    pub fn came(&mut self, entries: usize) {
        (self.names.came, self.names.used, self.read) = (entries as u32, 0, 0);
    }

    /// What so many files hold came with a listing.
    pub fn came_listed(&mut self, files: usize) {
        if files == 0 {
            return;
        }
        let contents = &mut self.contents;
        (contents.came, contents.used, contents.skip) = (files as u32, 0, 0);
        self.is_own = false;
    }

    /// What so many files hold came, that which was asked for among them.
    pub fn came_contents(&mut self, files: usize) {
        if files > 1 {
            let contents = &mut self.contents;
            (contents.came, contents.used, contents.skip) = (files as u32 - 1, 0, 0);
            contents.wasted = contents.wasted.saturating_sub(1);
        }
        self.is_own = files > 0;
    }
}

impl Pace {
    /// Whether to ask for others beside this name; if so, whether the last answer has paid.
    fn asks(&mut self, name: &Name) -> Option<bool> {
        let ascends = self.asked.replace(name.clone()).is_some_and(|asked| asked < *name);
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        match self.came {
            0 => Some(false),
            came if self.used * 2 >= came => {
                (self.wasted, self.has_turned) = (0, false);
                Some(true)
            }
            // Perhaps for want of the order: what is asked for is sorted, and came as it is listed.
            _ if ascends && !self.by_name && !self.has_turned => {
                (self.by_name, self.has_turned, self.came) = (true, true, 0);
                Some(false)
            }
            _ => {
                (self.by_name, self.has_turned) = (false, self.by_name);
                self.was_in_vain();
                None
            }
        }
    }

    fn was_in_vain(&mut self) {
        self.wasted = (self.wasted + 1).min(WASTED_MAX);
        (self.skip, self.came) = ((1 << self.wasted) - 1, 0);
    }

    fn in_order(&self, entries: u32) -> u32 {
        if self.by_name { entries | BY_NAME } else { entries }
    }
}

const FIRST: u32 = 32;
const MOST: u32 = 128;
const WASTED_MAX: u32 = 6;
