//! What may be owned: the records of Quotas and Projects.

use super::Id;
use covey_wire::record;

record! {
    /// What a user or a group owns, or what lies in a project directory, and how much it may be.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Quota for () {
        /// Whose: see [`crate::meta::quota`].
        pub kind: u8,
        /// The user, the group, or the project.
        pub id: u32,
        /// Bytes that it may own, in sizes of files.
        pub bytes_max: u64,
        /// Files, directories and all else that it may own.
        pub files_max: u64,
        /// Bytes that it owns.
        pub bytes: u64,
        /// Files that it owns.
        pub files: u64,
    }
}

record! {
    /// A directory that has a quota: everything below it belongs to the project, and the directory itself.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Project for () {
        /// Never given twice; 0 stands for none.
        pub number: u32,
        /// The directory.
        pub dir: Id,
        /// All that was there when it began is counted: its limits hold.
        pub is_whole: bool,
    }
}
