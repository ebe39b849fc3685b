//! Files that the metadata server moves, as long as it takes: the records of Tasks.

use super::Id;
use covey_wire::{List, Name, record};

/// What the numbers in a [`Task`] and in AskTask mean.
pub mod task {
    /// What lies on an I/O server goes to the others.
    pub const DRAIN: u8 = 1;
    /// Every I/O server gets its share.
    pub const REBALANCE: u8 = 2;

    /// Files move, or are about to.
    pub const ON: u8 = 1;
    /// Somebody has said that nothing is to move for now.
    pub const PAUSED: u8 = 2;
    /// Everything was moved that could be.
    pub const DONE: u8 = 3;
    /// Somebody has ended it before.
    pub const STOPPED: u8 = 4;

    /// It begins, or is tried again at once where it waits.
    pub const BEGIN: u8 = 1;
    /// Nothing is to move for now.
    pub const PAUSE: u8 = 2;
    /// It goes on.
    pub const RESUME: u8 = 3;
    /// It ends as it is.
    pub const STOP: u8 = 4;
}

record! {
    /// Files that go to other I/O servers, whether the command that has asked for it is still there or not.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    pub struct Task for () {
        /// Never given twice.
        pub number: u64,
        /// [`task::DRAIN`] or [`task::REBALANCE`].
        pub kind: u8,
        /// The I/O server that is drained, by index; 0 where none is.
        pub server: u16,
        /// Bytes copied per second at most; 0 for as fast as it goes.
        pub rate: u64,
        /// [`task::ON`] to [`task::STOPPED`].
        pub state: u8,
        /// How far it is.
        pub progress: Progress,
    }
}

impl Task {
    /// Whether it is the task of this kind, and of this server where it is a drain: there is one of each.
    pub fn is_of(&self, kind: u8, server: u16) -> bool {
        (self.kind, self.server) == (kind, server)
    }

    /// Whether it is under way, be it that it waits or is paused.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, task::ON | task::PAUSED)
    }

    /// What it is called, as `covey server` is given it. `server`: what its server is called.
    pub fn called(&self, server: Option<&str>) -> String {
        match self.kind {
            task::DRAIN => format!("drain {}", server.unwrap_or("?")),
            _ => "rebalance".to_owned(),
        }
    }
}

record! {
    /// How far a task is.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    pub struct Progress for () {
        /// Files that were moved.
        pub files: u64,
        /// Bytes that were copied.
        pub bytes: u64,
        /// What is to be copied in all, as far as it is known.
        pub bytes_total: u64,
        /// Milliseconds in which files moved.
        pub millis: u64,
        /// Files that were in use, or failed, when they were tried last.
        pub left: u64,
        /// Why nothing moves now; empty while something does.
        pub waits: Name,
        /// Files that could not be moved when they were tried last, some of them.
        pub failures: List<Failure>,
        /// What the I/O servers hold that a rebalance moves files among.
        pub loads: List<Load>,
    }
}

record! {
    /// A file that could not be moved.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Failure for () {
        /// The file.
        pub id: Id,
        /// Why.
        pub reason: Name,
    }
}

record! {
    /// What an I/O server holds of files, in bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Load for () {
        /// The I/O server, by index.
        pub server: u16,
        /// When the task began.
        pub before: u64,
        /// Now.
        pub held: u64,
        /// What its share is.
        pub share: u64,
    }
}
